/* Values that are longer than a message, for a client without a data plane: control_client_test. */
#include <string.h>

#include "control_fixture.h"

#define MIB ((size_t)1 << 20)

static uint8_t room[6 * MIB];

void check_chunks(kv_control_t *control)
{
	static const size_t lengths[] = {4 * MIB - 512, 4 * MIB, 5 * MIB + 1};
	kv_put_options_t if_absent = {.condition = KV_IF_ABSENT, .ttl_ms = 1000000};
	kv_info_t info, put;
	uint64_t version;
	size_t length;
	void *value;

	for (unsigned i = 0; i < TEST_COUNT(lengths); i++) {
		value_fill(room, lengths[i], i);
		CHECK_KV(control,
			 kv_control_put_with(control, "c", 1, room, lengths[i], NULL, &put), KV_OK);
		CHECK_EQ(kv_control_last_path(control), KV_PATH_INLINE);
		memset(room, 0, lengths[i]);
		length = 6 * MIB;
		CHECK_KV(control, kv_control_get_with(control, "c", 1, room, &length, &info),
			 KV_OK);
		CHECK_EQ(length, lengths[i]);
		CHECK_EQ(info.version, put.version);
		CHECK(value_is(room, length, i));
		CHECK_KV(control, kv_control_get_alloc(control, "c", 1, &value, &length, NULL),
			 KV_OK);
		CHECK(length == lengths[i] && value_is(value, length, i));
		CHECK_EQ(((char *)value)[length], 0);
		kv_free(value);
		CHECK_KV(control, kv_control_stat(control, "c", 1, &info), KV_OK);
		CHECK_EQ(info.length, lengths[i]);
		length = MIB;
		CHECK_KV(control, kv_control_get(control, "c", 1, room, &length),
			 KV_BUFFER_TOO_SMALL);
		CHECK_EQ(length, lengths[i]);
	}
	/* And with conditions. */
	CHECK_KV(control, kv_control_put_with(control, "c", 1, room, 5 * MIB, &if_absent, &info),
		 KV_EXISTS);
	CHECK_EQ(info.version, put.version);
	value_fill(room, 5 * MIB, 9);
	CHECK_KV(control, kv_control_cas(control, "c", 1, put.version, room, 5 * MIB, &version),
		 KV_OK);
	CHECK(version > put.version);
	CHECK_KV(control, kv_control_cas(control, "c", 1, put.version, room, 5 * MIB, &version),
		 KV_CAS_FAILED);
	CHECK(version > put.version);
	CHECK_KV(control, kv_control_delete(control, "c", 1), KV_OK);
	CHECK_KV(control, kv_control_cas(control, "c", 1, version, room, 5 * MIB, NULL),
		 KV_NOT_FOUND);
	CHECK_KV(control, kv_control_put_with(control, "c", 1, room, 5 * MIB, &if_absent, &info),
		 KV_OK);
	CHECK_KV(control, kv_control_stat(control, "c", 1, &info), KV_OK);
	CHECK(info.ttl_ms > 900000 && info.length == 5 * MIB);
	CHECK_KV(control, kv_control_delete(control, "c", 1), KV_OK);
}
