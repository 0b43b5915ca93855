/*
 * Servers whose answers cannot be trusted: they say that a call's time is over while its value is
 * still being written, or name lengths that cannot be. The server is a real one. What it says is
 * altered on its way into the client, and what it is told on its way out: the linker puts the
 * functions here before those of the client (--wrap).
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "data_plane_raw.h"

#define HUGE_VALUE (48 * MIB)
#define LATE_TRIES 6

static uint64_t told_timeout_ns; /* 0: the truth */
static bool does_lie;
static uint64_t lie; /* the length of what was pushed */

size_t __real_grpc_timeout_format(uint64_t timeout_ns, char to[GRPC_TIMEOUT_TEXT]);
size_t __wrap_grpc_timeout_format(uint64_t timeout_ns, char to[GRPC_TIMEOUT_TEXT]);
KvCache__GetResponse *__real_kv_cache__get_response__unpack(ProtobufCAllocator *allocator,
							    size_t length, const uint8_t *bytes);
KvCache__GetResponse *__wrap_kv_cache__get_response__unpack(ProtobufCAllocator *allocator,
							    size_t length, const uint8_t *bytes);

size_t __wrap_grpc_timeout_format(uint64_t timeout_ns, char to[GRPC_TIMEOUT_TEXT])
{
	return __real_grpc_timeout_format(told_timeout_ns ? told_timeout_ns : timeout_ns, to);
}

KvCache__GetResponse *__wrap_kv_cache__get_response__unpack(ProtobufCAllocator *allocator,
							    size_t length, const uint8_t *bytes)
{
	KvCache__GetResponse *response =
		__real_kv_cache__get_response__unpack(allocator, length, bytes);

	if (response && response->success && does_lie) {
		response->pushed = true;
		response->value_length = lie;
	}
	return response;
}

static void check_untouched(const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i += 512) {
		if (bytes[i] != 0x11)
			TEST_FAIL("byte %zu was written after the call had returned", i);
	}
}

/* The server's clock says first that the time is over, in the middle of a WRITE. What the caller
 * gets back then is his own. */
static void test_late_writes(void)
{
	kv_server_options_t large = {.memory = 256 * MIB};
	kv_control_options_t options = {.buffer_size = HUGE_VALUE,
					.timeout_ms = 20000 * TEST_TIME_FACTOR};
	struct service service;
	kv_control_t *control;
	uint8_t *memory;
	unsigned late = 0;
	size_t length;

	service_start(&service, &large, NULL);
	control = client_open(&service, &options);
	memory = kv_control_alloc(control, HUGE_VALUE);
	CHECK(memory);
	memset(memory, 0xaa, HUGE_VALUE);
	CHECK_KV(control, kv_control_put(control, "huge", 4, memory, HUGE_VALUE), KV_OK);
	for (int i = 0; i < LATE_TRIES; i++) {
		int status;

		CHECK(plane_is_ready(control, control_deadline(control)));
		length = HUGE_VALUE;
		told_timeout_ns = 1000000u + 500000u * (unsigned)i;
		status = kv_control_get(control, "huge", 4, memory, &length);
		told_timeout_ns = 0;
		if (status == KV_OK)
			continue;
		CHECK_EQ(status, KV_TIMEOUT);
		CHECK(!control->plane.link);
		memset(memory, 0x11, HUGE_VALUE);
		pause_ms(100);
		check_untouched(memory, HUGE_VALUE);
		late++;
	}
	CHECK(late);
	/* The same for a put: nobody reads the place any more. */
	CHECK(plane_is_ready(control, control_deadline(control)));
	told_timeout_ns = 1000000u;
	if (kv_control_put(control, "huge", 4, memory, HUGE_VALUE) != KV_OK)
		CHECK(!control->plane.link);
	told_timeout_ns = 0;
	/* And then it goes on as before. */
	length = HUGE_VALUE;
	CHECK_KV(control, kv_control_get(control, "huge", 4, memory, &length), KV_OK);
	CHECK_EQ(kv_control_last_path(control), KV_PATH_PUSH);
	CHECK_EQ(length, HUGE_VALUE);
	kv_control_free(control, memory);
	kv_control_close(control);
	service_stop(&service);
}

/* A get of this value is told that so many bytes were pushed, which cannot be. */
static void check_lie(kv_control_t *control, const char *key, uint64_t length)
{
	static uint8_t room[LONG];
	void *value = room;
	size_t told = sizeof(room);

	lie = length;
	does_lie = true;
	CHECK_KV(control, kv_control_get_alloc(control, key, strlen(key), &value, &told, NULL),
		 KV_PROTOCOL);
	CHECK(value == room);
	CHECK(!control->plane.link);
	told = sizeof(room);
	CHECK_KV(control, kv_control_get(control, key, strlen(key), room, &told), KV_PROTOCOL);
	does_lie = false;
}

static void test_lengths_that_cannot_be(void)
{
	static const uint64_t lies[] = {4 * MIB + 1, UINT32_MAX, INT64_MAX, UINT64_MAX - 1,
					UINT64_MAX};
	kv_control_options_t options = {.buffer_size = 4 * MIB},
			     inline_only = {.no_data_plane = true};
	struct service service;
	kv_control_t *control, *plain;
	void *value;
	size_t length;

	service_start(&service, NULL, NULL);
	control = client_open(&service, &options);
	put_there(control, 3 * MIB);
	CHECK_KV(control, kv_control_put(control, "small", 5, "v", 1), KV_OK);
	for (size_t i = 0; i < TEST_COUNT(lies); i++) {
		check_lie(control, i % 2 ? "there" : "small", lies[i]);
		/* The truth again, by a new link. */
		CHECK_KV(control, kv_control_get_alloc(control, "there", 5, &value, &length, NULL),
			 KV_OK);
		CHECK_EQ(length, 3 * MIB);
		CHECK(value_is(value, length, 7));
		CHECK_EQ(kv_control_last_path(control), KV_PATH_PUSH);
		free(value);
	}
	/* Nothing was offered, and yet it was pushed. Of no length it is a value without bytes. */
	plain = client_open(&service, &inline_only);
	check_lie(plain, "small", 0);
	check_lie(plain, "small", 1);
	does_lie = true;
	lie = 0;
	length = 0;
	CHECK_KV(control, kv_control_get(control, "small", 5, NULL, &length), KV_OK);
	does_lie = false;
	CHECK_EQ(length, 0);
	kv_control_close(plain);
	kv_control_close(control);
	service_stop(&service);
}

const struct test lie_tests[] = {
	{"late_writes", test_late_writes},
	{"lengths_that_cannot_be", test_lengths_that_cannot_be},
	{0},
};
