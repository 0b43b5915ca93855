/* Each operation of the protocol, spoken raw, by shm and by tcp. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"
#include "server/raw.h"
#include "server/subject.h"

static struct subject subject;

static void begin(struct raw *raw, const char *by)
{
	subject_start(&subject, NULL);
	raw_enter(raw, by, subject_address(&subject, by), NULL);
}

static void end(struct raw *raw)
{
	raw_close(raw);
	subject_await(&subject, "clients", 0);
	subject_stop(&subject);
}

static void check_value(const struct raw *raw, const void *value, size_t length)
{
	CHECK_EQ(raw->reply.header.flags, KV_HAS_VALUE);
	CHECK_EQ(raw->reply.value_length, length);
	CHECK_EQ(raw->reply.header.value_length, length);
	CHECK_MEM(raw->reply.value, value, length);
}

static void put_get_delete(const char *by)
{
	struct raw raw;
	uint64_t version;

	begin(&raw, by);
	CHECK_EQ(raw_get(&raw, "key", 100), KV_NOT_FOUND);
	CHECK_EQ(raw_put(&raw, "key", "value", 5), KV_OK);
	version = raw.reply.header.version;
	CHECK(version > 0);
	CHECK(raw.reply.header.offset > 0);
	CHECK(raw.reply.header.server_time_ms > 0);
	CHECK_EQ(raw_get(&raw, "key", 100), KV_OK);
	CHECK_EQ(raw.reply.header.version, version);
	CHECK_EQ(raw.reply.header.cell, KV_NO_CELL);
	check_value(&raw, "value", 5);
	CHECK_EQ(raw_get(&raw, "key", 4), KV_BUFFER_TOO_SMALL);
	CHECK_EQ(raw.reply.header.value_length, 5);
	CHECK_EQ(raw_put(&raw, "empty", "", 0), KV_OK);
	CHECK_EQ(raw_get(&raw, "empty", 0), KV_OK);
	CHECK_EQ(raw.reply.value_length, 0);
	CHECK_EQ(raw_simple(&raw, KV_OP_STAT, "key", 0), KV_OK);
	CHECK_EQ(raw.reply.header.version, version);
	CHECK_EQ(raw_simple(&raw, KV_OP_DELETE, "key", 0), KV_OK);
	CHECK_EQ(raw_simple(&raw, KV_OP_DELETE, "key", 0), KV_NOT_FOUND);
	CHECK_EQ(raw_simple(&raw, KV_OP_STAT, "key", 0), KV_NOT_FOUND);
	end(&raw);
}

static int put_if(struct raw *raw, unsigned condition, uint64_t version)
{
	return raw_call(raw, &(struct raw_request){
				     .header = {.op = KV_OP_PUT,
						.flags = (uint8_t)(condition << KV_CONDITION_SHIFT),
						.key_length = 3,
						.value_length = 3,
						.version = version},
				     .key = "key",
				     .value = "new",
			     });
}

static void conditions(const char *by)
{
	struct raw raw;
	uint64_t version;

	begin(&raw, by);
	CHECK_EQ(put_if(&raw, KV_IF_VERSION, 1), KV_NOT_FOUND);
	CHECK_EQ(put_if(&raw, KV_IF_ABSENT, 0), KV_OK);
	version = raw.reply.header.version;
	CHECK_EQ(put_if(&raw, KV_IF_ABSENT, 0), KV_EXISTS);
	CHECK_EQ(raw.reply.header.version, version);
	CHECK_EQ(put_if(&raw, KV_IF_VERSION, version + 7), KV_CAS_FAILED);
	CHECK_EQ(raw.reply.header.version, version);
	CHECK_EQ(put_if(&raw, KV_IF_VERSION, version), KV_OK);
	CHECK(raw.reply.header.version > version);
	CHECK_EQ(put_if(&raw, 3, 0), KV_INVALID);
	end(&raw);
}

static void expiry(const char *by)
{
	struct raw raw;
	const struct kv_reply *reply = &raw.reply.header;

	begin(&raw, by);
	CHECK_EQ(raw_put(&raw, "key", "value", 5), KV_OK);
	CHECK_EQ(reply->expires_ms, 0);
	CHECK_EQ(raw_simple(&raw, KV_OP_EXPIRE, "key", 5000), KV_OK);
	CHECK(reply->expires_ms > reply->server_time_ms);
	CHECK(reply->expires_ms <= reply->server_time_ms + 5000);
	CHECK_EQ(raw_simple(&raw, KV_OP_EXPIRE, "key", 1), KV_OK);
	test_sleep_ms(5);
	CHECK_EQ(raw_get(&raw, "key", 100), KV_NOT_FOUND);
	CHECK_EQ(raw_simple(&raw, KV_OP_EXPIRE, "key", 1), KV_NOT_FOUND);
	end(&raw);
}

static int swap(struct raw *raw, int64_t expected, int64_t desired)
{
	return raw_call(raw, &(struct raw_request){
				     .header = {.op = KV_OP_SWAP,
						.key_length = 1,
						.version = (uint64_t)expected,
						.argument = (uint64_t)desired},
				     .key = "n",
			     });
}

static void counters(const char *by)
{
	struct raw raw;
	struct rmr_remote *cells;
	struct rmr_region *region;
	int64_t old = 0;
	uint64_t cell;

	begin(&raw, by);
	CHECK(raw.welcome.capabilities & KV_CAN_COUNT);
	CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "n", 5), KV_OK);
	CHECK_EQ(raw.reply.header.number, 5);
	cell = raw.reply.header.cell;
	CHECK(cell != KV_NO_CELL);
	/* By ourselves. */
	CHECK_OK(rmr_remote_open(raw.conn, &raw.welcome.cells, &cells));
	CHECK_OK(rmr_region_open(raw.device, &old, sizeof(old), 0, &region));
	CHECK_OK(raw_transfer(&raw, &(struct rmr_work){.op = RMR_OP_FETCH_ADD,
						       .local = &old,
						       .length = 8,
						       .region = region,
						       .remote = cells,
						       .offset = cell * 8,
						       .operand = 10}));
	CHECK_EQ(old, 5);
	rmr_region_close(region);
	CHECK_EQ(raw_get(&raw, "n", 100), KV_OK);
	check_value(&raw, "15", 2);
	CHECK_EQ(raw.reply.header.cell, cell);
	CHECK_EQ(swap(&raw, 14, 1), KV_CAS_FAILED);
	CHECK_EQ(raw.reply.header.number, 15);
	CHECK_EQ(swap(&raw, 15, -4), KV_OK);
	CHECK_EQ(raw.reply.header.cell, cell);
	CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "n", (uint64_t)-1), KV_OK);
	CHECK_EQ((int64_t)raw.reply.header.number, -5);
	CHECK_EQ(raw_put(&raw, "text", "abc", 3), KV_OK);
	CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "text", 1), KV_NOT_A_NUMBER);
	CHECK_EQ(raw_simple(&raw, KV_OP_PIN, "n", 0), KV_UNSUPPORTED);
	CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "n", INT64_MAX), KV_OK);
	CHECK_EQ((int64_t)raw.reply.header.number, INT64_MAX - 5);
	CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "n", 6), KV_OUT_OF_RANGE);
	CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "n", 5), KV_OK);
	CHECK_EQ((int64_t)raw.reply.header.number, INT64_MAX);
	end(&raw);
}

static void scan(const char *by)
{
	struct raw raw;
	bool seen[300] = {0};
	uint64_t cursor = 0;

	begin(&raw, by);
	for (int i = 0; i < 300; i++) {
		char key[32];

		snprintf(key, sizeof(key), "key-%d", i);
		CHECK_EQ(raw_put(&raw, key, "x", 1), KV_OK);
	}
	do {
		struct kv_scan_entry entry;
		const uint8_t *key;
		size_t at = 0;

		CHECK_EQ(raw_call(&raw, &(struct raw_request){.header = {.op = KV_OP_SCAN,
									 .argument = cursor,
									 .place = 100}}),
			 KV_OK);
		while (kv_next_scan_entry(&raw.reply, &at, &entry, &key)) {
			CHECK_EQ(entry.value_length, 1);
			seen[atoi((const char *)key + 4)] = true;
		}
		CHECK_EQ(at, raw.reply.value_length);
		cursor = raw.reply.header.number;
	} while (cursor);
	for (int i = 0; i < 300; i++)
		CHECK(seen[i]);
	CHECK_EQ(raw_simple(&raw, KV_OP_FLUSH, NULL, 0), KV_OK);
	CHECK_EQ(raw_get(&raw, "key-1", 10), KV_NOT_FOUND);
	CHECK_EQ(subject_figure(&subject, "keys"), 0);
	end(&raw);
}

static void stats_and_ping(const char *by)
{
	struct raw raw;
	uint64_t part = 0;
	bool classes = false;
	char text[RAW_RECV_SIZE];

	begin(&raw, by);
	CHECK_EQ(raw_simple(&raw, KV_OP_PING, NULL, 0), KV_OK);
	CHECK_EQ(raw_put(&raw, "key", "value", 5), KV_OK);
	do {
		CHECK_EQ(raw_simple(&raw, KV_OP_STATS, NULL, part), KV_OK);
		memcpy(text, raw.reply.value, raw.reply.value_length);
		text[raw.reply.value_length] = '\0';
		if (part == 0) {
			CHECK_CONTAINS(text, "clients 1\n");
			CHECK_CONTAINS(text, "keys 1\n");
			CHECK_CONTAINS(text, "requests.put 1\n");
			CHECK_CONTAINS(text, "uptime_ms ");
		}
		classes |= strstr(text, ".items 1\n") != NULL;
		part = raw.reply.header.number;
	} while (part);
	CHECK(classes);
	end(&raw);
}

static void pins(const char *by)
{
	struct raw raw;
	struct rmr_remote *arena;
	struct rmr_region *region;
	uint64_t handle;
	char bytes[64];

	begin(&raw, by);
	CHECK_EQ(raw_simple(&raw, KV_OP_PIN, "key", 0), KV_NOT_FOUND);
	CHECK_EQ(raw_put(&raw, "key", "pinned value", 12), KV_OK);
	CHECK_EQ(raw_simple(&raw, KV_OP_PIN, "key", 0), KV_OK);
	handle = raw.reply.header.number;
	/* It stays, although it is replaced. */
	CHECK_EQ(raw_put(&raw, "key", "another", 7), KV_OK);
	CHECK_EQ(raw_get(&raw, "key", 0), KV_BUFFER_TOO_SMALL);
	CHECK_EQ(subject_figure(&subject, "items"), 2);
	CHECK_EQ(raw_simple(&raw, KV_OP_UNPIN, NULL, handle), KV_OK);
	CHECK_EQ(subject_figure(&subject, "items"), 1);
	CHECK_EQ(raw_simple(&raw, KV_OP_UNPIN, NULL, handle), KV_INVALID);
	CHECK_EQ(raw_simple(&raw, KV_OP_UNPIN, NULL, 77), KV_INVALID);
	/* Where the item lies, the client reads it by itself. */
	CHECK_EQ(raw_simple(&raw, KV_OP_PIN, "key", 0), KV_OK);
	CHECK(raw.reply.header.number != handle);
	CHECK_OK(rmr_remote_open(raw.conn, &raw.welcome.arena, &arena));
	CHECK_EQ(rmr_remote_rights(arena), RMR_READ);
	CHECK_OK(rmr_region_open(raw.device, bytes, sizeof(bytes), 0, &region));
	CHECK_OK(raw_transfer(&raw, &(struct rmr_work){.op = RMR_OP_READ,
						       .local = bytes,
						       .length = sizeof(bytes),
						       .region = region,
						       .remote = arena,
						       .offset = raw.reply.header.offset}));
	CHECK_MEM(bytes + 32, "key", 3);
	CHECK_MEM(bytes + 40, "another", 7);
	rmr_region_close(region);
	end(&raw);
	/* The pin that was not given back was taken back. */
}

/* A value that comes in pieces. */
static void pieces(const char *by)
{
	struct raw raw;
	uint8_t value[10000];
	uint32_t id;
	struct test_rng rng;

	test_rng_init(&rng, 1);
	test_rng_fill(&rng, value, sizeof(value));
	begin(&raw, by);
	id = raw.next_id;
	CHECK_EQ(raw_call(&raw, &(struct raw_request){.header = {.op = KV_OP_PUT_BEGIN,
								 .key_length = 4,
								 .value_length = sizeof(value)},
						      .key = "long"}),
		 KV_OK);
	CHECK_EQ(raw_get(&raw, "long", 20000), KV_NOT_FOUND);
	for (size_t at = 0; at < sizeof(value); at += 2500) {
		struct kv_request header = {.op = KV_OP_PUT_PIECE,
					    .flags = at == 7500 ? KV_FINAL : 0,
					    .value_length = 2500,
					    .argument = id,
					    .place = at};

		CHECK_EQ(raw_call(&raw,
				  &(struct raw_request){.header = header, .value = value + at}),
			 KV_OK);
	}
	CHECK(raw.reply.header.version > 0);
	CHECK_EQ(raw_get(&raw, "long", 20000), KV_BUFFER_TOO_SMALL);
	CHECK_EQ(raw.reply.header.value_length, sizeof(value));
	/* It is over: another piece belongs to nothing. */
	CHECK_EQ(raw_call(&raw, &(struct raw_request){.header = {.op = KV_OP_PUT_PIECE,
								 .value_length = 1,
								 .argument = id},
						      .value = value}),
		 KV_INVALID);
	end(&raw);
}

static uint32_t begin_draft(struct raw *raw, uint64_t length, int expected)
{
	uint32_t id = raw->next_id;

	CHECK_EQ(raw_call(raw, &(struct raw_request){.header = {.op = KV_OP_PUT_BEGIN,
								.key_length = 1,
								.value_length = length},
						     .key = "d"}),
		 expected);
	return id;
}

static void drafts_are_bounded(const char *by)
{
	struct raw raw;
	uint32_t ids[4];
	struct kv_request piece = {.op = KV_OP_PUT_PIECE, .value_length = 8};

	begin(&raw, by);
	for (int i = 0; i < 4; i++)
		ids[i] = begin_draft(&raw, 100, KV_OK);
	CHECK_EQ(subject_figure(&subject, "items"), 4);
	begin_draft(&raw, 100, KV_BUSY);
	CHECK_EQ(raw_simple(&raw, KV_OP_PUT_CANCEL, NULL, ids[1]), KV_OK);
	CHECK_EQ(raw_simple(&raw, KV_OP_PUT_CANCEL, NULL, ids[1]), KV_INVALID);
	begin_draft(&raw, (uint64_t)1 << 40, KV_VALUE_TOO_LONG);
	begin_draft(&raw, UINT64_MAX, KV_VALUE_TOO_LONG);
	piece.argument = ids[0];
	piece.place = 93;
	CHECK_EQ(raw_call(&raw, &(struct raw_request){.header = piece, .value = "12345678"}),
		 KV_INVALID);
	piece.place = UINT64_MAX - 3;
	CHECK_EQ(raw_call(&raw, &(struct raw_request){.header = piece, .value = "12345678"}),
		 KV_INVALID);
	/* The last one before the others. */
	piece.place = 92;
	piece.flags = KV_FINAL;
	CHECK_EQ(raw_call(&raw, &(struct raw_request){.header = piece, .value = "12345678"}),
		 KV_INVALID);
	CHECK_EQ(raw_get(&raw, "d", 100), KV_NOT_FOUND);
	CHECK_EQ(subject_figure(&subject, "items"), 2);
	raw_close(&raw);
	subject_await(&subject, "items", 0);
	subject_stop(&subject);
}

static void touches(const char *by)
{
	struct raw raw;
	struct kv_touch some[KV_MAX_TOUCHES] = {{.offset = 12345, .version = 1},
						{.offset = UINT64_MAX, .version = UINT64_MAX}};

	begin(&raw, by);
	CHECK_EQ(raw_put(&raw, "key", "value", 5), KV_OK);
	some[2].offset = raw.reply.header.offset;
	some[2].version = raw.reply.header.version;
	CHECK_EQ(raw_call(&raw, &(struct raw_request){.header = {.op = KV_OP_PING,
								 .touch_count = KV_MAX_TOUCHES},
						      .touches = some}),
		 KV_OK);
	end(&raw);
}

/* Many requests before the first reply is taken: all are answered, in order. */
static void window(const char *by)
{
	struct raw raw;

	begin(&raw, by);
	CHECK_EQ(raw.welcome.window, 64);
	for (int round = 0; round < 50; round++) {
		uint32_t first = raw.next_id;

		for (uint32_t i = 0; i < raw.welcome.window; i++)
			raw_ask(&raw, &(struct raw_request){.header = {.op = KV_OP_GET,
								       .key_length = 4,
								       .value_length = 10},
							    .key = "none"});
		for (uint32_t i = 0; i < raw.welcome.window; i++) {
			CHECK(raw_receive_reply(&raw));
			CHECK_EQ(raw.reply.header.id, first + i);
			CHECK_EQ(raw.reply.header.status, KV_NOT_FOUND);
		}
	}
	end(&raw);
}

/* Asks for the value at a place in our buffer. */
static int get_pushed(struct raw *raw, const char *key, size_t room, uint64_t place)
{
	return raw_call(raw, &(struct raw_request){.header = {.op = KV_OP_GET,
							      .flags = KV_PUSH,
							      .key_length = (uint16_t)strlen(key),
							      .value_length = room,
							      .place = place},
						   .key = key});
}

#define LONG_VALUE  200000u
#define OUR_BUFFER  300000u
#define LANDING_PUT (sizeof(struct kv_request) + 4 + LONG_VALUE)

/* Puts a long value by the landing buffer, which it asks for first. */
static void put_landing(struct raw *raw, const uint8_t *value)
{
	struct kv_request header = {.op = KV_OP_PUT, .key_length = 4, .value_length = LONG_VALUE};
	uint8_t *message = malloc(LANDING_PUT);
	struct rmr_descriptor descriptor;
	struct rmr_remote *landing;
	struct rmr_region *region;

	CHECK(message);
	CHECK_EQ(raw_simple(raw, KV_OP_LANDING, NULL, 1 << 20), KV_OK);
	CHECK_EQ(raw->reply.header.number, 1 << 20);
	CHECK_EQ(raw->reply.value_length, sizeof(descriptor));
	memcpy(&descriptor, raw->reply.value, sizeof(descriptor));
	CHECK_EQ(raw_simple(raw, KV_OP_LANDING, NULL, 1 << 20), KV_INVALID);
	CHECK_OK(rmr_remote_open(raw->conn, &descriptor, &landing));
	CHECK_EQ(rmr_remote_rights(landing), RMR_WRITE);
	header.id = raw->next_id++;
	kv_encode_request(message, &header, "long", value, NULL);
	CHECK_OK(rmr_region_open(raw->device, message, LANDING_PUT, 0, &region));
	CHECK_EQ(rmr_post(raw->conn,
			  &(struct rmr_work){.op = RMR_OP_WRITE_IMM,
					     .source = message,
					     .length = LANDING_PUT,
					     .region = region,
					     .remote = landing,
					     .offset = 10 * KV_PLACE,
					     .immediate = 10},
			  1),
		 1);
	CHECK(raw_receive_reply(raw));
	CHECK_EQ(raw->reply.header.status, KV_OK);
	CHECK_EQ(raw->reply.header.id, header.id);
	rmr_region_close(region);
	free(message);
}

static bool is_zero(const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (bytes[i])
			return false;
	}
	return true;
}

static void landing_and_push(const char *by)
{
	struct raw raw;
	struct rmr_arena *arena;
	struct rmr_region *region;
	struct rmr_descriptor descriptor;
	uint8_t *value = malloc(LONG_VALUE), *buffer;
	struct test_rng rng;

	CHECK(value);
	test_rng_init(&rng, 2);
	test_rng_fill(&rng, value, LONG_VALUE);
	begin(&raw, by);
	put_landing(&raw, value);
	/* Without a buffer of ours. */
	CHECK_EQ(get_pushed(&raw, "long", LONG_VALUE, 0), KV_BUFFER_TOO_SMALL);
	CHECK_OK(rmr_arena_open(OUR_BUFFER, RMR_ARENA_PEERS_WRITE, &arena));
	buffer = rmr_arena_base(arena);
	CHECK_OK(rmr_region_open(raw.device, buffer, OUR_BUFFER, RMR_WRITE, &region));
	CHECK_OK(rmr_region_export(region, raw.conn, &descriptor));
	CHECK_EQ(
		raw_call(&raw, &(struct raw_request){.header = {.op = KV_OP_BUFFER,
								.value_length = sizeof(descriptor)},
						     .value = &descriptor}),
		KV_OK);
	/* Places outside: nothing is written. */
	CHECK_EQ(get_pushed(&raw, "long", LONG_VALUE, OUR_BUFFER - LONG_VALUE + 1), KV_INVALID);
	CHECK_EQ(get_pushed(&raw, "long", LONG_VALUE, UINT64_MAX - 10), KV_INVALID);
	CHECK_EQ(get_pushed(&raw, "long", LONG_VALUE - 1, 0), KV_BUFFER_TOO_SMALL);
	CHECK(is_zero(buffer, OUR_BUFFER));
	CHECK_EQ(get_pushed(&raw, "long", LONG_VALUE, OUR_BUFFER - LONG_VALUE), KV_OK);
	CHECK_EQ(raw.reply.header.flags, KV_PUSHED);
	CHECK_EQ(raw.reply.header.value_length, LONG_VALUE);
	CHECK_MEM(buffer + OUR_BUFFER - LONG_VALUE, value, LONG_VALUE);
	CHECK(is_zero(buffer, OUR_BUFFER - LONG_VALUE));
	/* Again and again, with the value replaced meanwhile: nothing stays pinned. */
	for (int i = 0; i < 200; i++)
		CHECK_EQ(get_pushed(&raw, "long", LONG_VALUE, 0), KV_OK);
	CHECK_EQ(raw_put(&raw, "long", "short", 5), KV_OK);
	subject_await(&subject, "items", 1);
	CHECK_EQ(get_pushed(&raw, "long", LONG_VALUE, 0), KV_OK);
	check_value(&raw, "short", 5);
	CHECK_EQ(subject_figure(&subject, "landing_bytes"), 1 << 20);
	raw_close(&(struct raw){.conn = raw.conn});
	rmr_region_close(region);
	raw.conn = NULL;
	subject_await(&subject, "landing_bytes", 0);
	end(&raw);
	rmr_arena_close(arena);
	free(value);
}

/* ------------------------------------------------------------------------------------------
 * PUT_PULL
 */

struct offer {
	uint8_t *value;
	struct rmr_region *region;
	struct rmr_descriptor descriptor;
};

static void make_offer(struct raw *raw, uint32_t rights, struct offer *offer)
{
	struct test_rng rng;

	offer->value = malloc(LONG_VALUE);
	CHECK(offer->value);
	test_rng_init(&rng, 3);
	test_rng_fill(&rng, offer->value, LONG_VALUE);
	CHECK_OK(rmr_region_open(raw->device, offer->value, LONG_VALUE, rights, &offer->region));
	CHECK_OK(rmr_region_export(offer->region, raw->conn, &offer->descriptor));
}

static void end_offer(struct offer *offer)
{
	rmr_region_close(offer->region);
	free(offer->value);
}

static struct raw_request pull_request(const struct offer *offer, uint64_t length)
{
	return (struct raw_request){.header = {.op = KV_OP_PUT_PULL,
					       .key_length = 4,
					       .value_length = sizeof(offer->descriptor),
					       .place = length},
				    .key = "long",
				    .value = &offer->descriptor};
}

static int put_pulled(struct raw *raw, const struct offer *offer, uint64_t length)
{
	struct raw_request request = pull_request(offer, length);

	return raw_call(raw, &request);
}

/* By shm the server reads nobody's memory but arenas. */
static void pull_is_refused(struct raw *raw, const struct offer *offer)
{
	CHECK(!(raw->welcome.capabilities & KV_CAN_PULL));
	CHECK_EQ(put_pulled(raw, offer, LONG_VALUE), KV_UNSUPPORTED);
	CHECK_EQ(raw_call(raw, &(struct raw_request){.header = {.op = KV_OP_BUFFER,
								.value_length =
									sizeof(offer->descriptor)},
						     .value = &offer->descriptor}),
		 KV_INVALID);
}

static void pull(const char *by)
{
	struct raw raw;
	struct offer offer, secret;
	uint8_t *copy = malloc(LONG_VALUE + 100);
	struct rmr_region *region;
	struct rmr_remote *arena;

	CHECK(copy);
	begin(&raw, by);
	make_offer(&raw, RMR_READ | RMR_WRITE, &offer);
	make_offer(&raw, RMR_WRITE, &secret);
	if (!strcmp(by, "shm")) {
		pull_is_refused(&raw, &offer);
	} else {
		CHECK(raw.welcome.capabilities & KV_CAN_PULL);
		CHECK_EQ(put_pulled(&raw, &offer, LONG_VALUE + 1), KV_INVALID);
		CHECK_EQ(put_pulled(&raw, &offer, UINT64_MAX), KV_INVALID);
		CHECK_EQ(put_pulled(&raw, &offer, 0), KV_INVALID);
		CHECK_EQ(put_pulled(&raw, &secret, LONG_VALUE), KV_INVALID);
		CHECK_EQ(raw_get(&raw, "long", LONG_VALUE), KV_NOT_FOUND);
		CHECK_EQ(put_pulled(&raw, &offer, LONG_VALUE), KV_OK);
		CHECK_EQ(raw.reply.header.value_length, LONG_VALUE);
		/* The item as others read it: complete, with that value at its end. */
		CHECK_OK(rmr_region_open(raw.device, copy, LONG_VALUE + 100, 0, &region));
		CHECK_OK(rmr_remote_open(raw.conn, &raw.welcome.arena, &arena));
		CHECK_OK(raw_transfer(&raw, &(struct rmr_work){.op = RMR_OP_READ,
							       .local = copy,
							       .length = LONG_VALUE + 64,
							       .region = region,
							       .remote = arena,
							       .offset = raw.reply.header.offset}));
		CHECK_MEM(copy + 64, offer.value, LONG_VALUE);
		rmr_region_close(region);
		/* One byte, and what is shorter than a piece or longer than two. */
		CHECK_EQ(put_pulled(&raw, &offer, 1), KV_OK);
		CHECK_EQ(raw_get(&raw, "long", 10), KV_OK);
		check_value(&raw, offer.value, 1);
		CHECK_EQ(subject_figure(&subject, "items"), 1);
	}
	end_offer(&offer);
	end_offer(&secret);
	free(copy);
	end(&raw);
}

/* The server reads, and the client goes away: its memory first, or all of it. Nothing is left. */
static void pull_without_end(const char *by)
{
	struct raw raw;
	struct offer offer;
	struct raw_request request;

	if (!strcmp(by, "shm"))
		return;
	for (int i = 0; i < 6; i++) {
		begin(&raw, by);
		make_offer(&raw, RMR_READ, &offer);
		request = pull_request(&offer, LONG_VALUE);
		for (int j = 0; j < 4; j++)
			raw_ask(&raw, &request);
		if (i % 2 == 0) {
			end_offer(&offer);
			(void)raw_receive_end(&raw);
		} else {
			raw_close(&(struct raw){.conn = raw.conn});
			raw.conn = NULL;
			end_offer(&offer);
		}
		raw_close(&raw);
		subject_await(&subject, "drafts", 0);
		subject_await(&subject, "clients", 0);
		subject_stop(&subject);
	}
}

static void bad_buffers(const char *by)
{
	struct raw raw;
	struct rmr_descriptor nonsense = {.bytes = {1, 2, 3}};

	begin(&raw, by);
	CHECK_EQ(raw_call(&raw, &(struct raw_request){.header = {.op = KV_OP_BUFFER,
								 .value_length = sizeof(nonsense)},
						      .value = &nonsense}),
		 KV_INVALID);
	CHECK_EQ(raw_call(&raw,
			  &(struct raw_request){.header = {.op = KV_OP_BUFFER, .value_length = 10},
						.value = &nonsense}),
		 KV_INVALID);
	CHECK_EQ(raw_simple(&raw, KV_OP_LANDING, NULL, 0), KV_INVALID);
	CHECK_EQ(raw_simple(&raw, KV_OP_CELLS, NULL, 1), KV_OK);
	CHECK_EQ(raw_simple(&raw, KV_OP_CELLS, NULL, 2), KV_INVALID);
	end(&raw);
}

static void test_pull(void)
{
	subject_for_each(pull);
}

static void test_pull_without_end(void)
{
	subject_for_each(pull_without_end);
}

static void test_put_get_delete(void)
{
	subject_for_each(put_get_delete);
}

static void test_conditions(void)
{
	subject_for_each(conditions);
}

static void test_expiry(void)
{
	subject_for_each(expiry);
}

static void test_counters(void)
{
	subject_for_each(counters);
}

static void test_scan(void)
{
	subject_for_each(scan);
}

static void test_stats_and_ping(void)
{
	subject_for_each(stats_and_ping);
}

static void test_pins(void)
{
	subject_for_each(pins);
}

static void test_pieces(void)
{
	subject_for_each(pieces);
}

static void test_drafts_are_bounded(void)
{
	subject_for_each(drafts_are_bounded);
}

static void test_touches(void)
{
	subject_for_each(touches);
}

static void test_window(void)
{
	subject_for_each(window);
}

static void test_landing_and_push(void)
{
	subject_for_each(landing_and_push);
}

static void test_bad_buffers(void)
{
	subject_for_each(bad_buffers);
}

static const struct test tests[] = {
	{"put_get_delete", test_put_get_delete},
	{"conditions", test_conditions},
	{"expiry", test_expiry},
	{"counters", test_counters},
	{"scan", test_scan},
	{"stats_and_ping", test_stats_and_ping},
	{"pins", test_pins},
	{"pieces", test_pieces},
	{"drafts_are_bounded", test_drafts_are_bounded},
	{"touches", test_touches},
	{"window", test_window},
	{"landing_and_push", test_landing_and_push},
	{"bad_buffers", test_bad_buffers},
	{"pull", test_pull},
	{"pull_without_end", test_pull_without_end},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "server_raw", tests, TEST_COUNT(tests));
}
