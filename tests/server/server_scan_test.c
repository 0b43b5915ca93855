/*
 * SCAN, spoken raw, of keys that share bucket and tag: of the longest three do not fit into a
 * reply. A client that knows KV_GO_BEHIND is told of all of them, one that does not is told that it
 * cannot be; neither asks for ever.
 */
#include <string.h>

#include "harness/test.h"
#include "server/raw.h"
#include "server/subject.h"
#include "store/collide.h"

#define KEYS  25u
#define STEPS 100u /* more than a scan can need */

static struct subject subject;

static void put_keys(struct raw *raw, uint32_t count)
{
	uint64_t seed = raw_hash_seed(raw);

	for (uint32_t i = 0; i < count; i++) {
		uint8_t key[KV_MAX_KEY];

		collide_key(key, seed, 'x', i);
		CHECK_EQ(raw_call(raw, &(struct raw_request){.header = {.op = KV_OP_PUT,
									.key_length = sizeof(key),
									.value_length = 1},
							     .key = key,
							     .value = "v"}),
			 KV_OK);
	}
	CHECK_EQ(raw_put(raw, "short", "v", 1), KV_OK);
}

/* What a scan has seen. */
struct sight {
	unsigned seen[KEYS], others;
	uint8_t last[KV_MAX_KEY];
	uint16_t last_length;
};

static void see(struct sight *sight, const struct kv_reply_view *reply)
{
	struct kv_scan_entry entry;
	const uint8_t *key;
	size_t at = 0;

	while (kv_next_scan_entry(reply, &at, &entry, &key)) {
		uint32_t number;

		CHECK_EQ(entry.value_length, 1);
		memcpy(sight->last, key, entry.key_length);
		sight->last_length = (uint16_t)entry.key_length;
		memcpy(&number, key + sizeof(number), sizeof(number));
		if (entry.key_length == KV_MAX_KEY)
			sight->seen[number]++;
		else
			sight->others++;
	}
	CHECK_EQ(at, reply->value_length);
}

/* One request from a client that knows, or one that does not. */
static int ask(struct raw *raw, uint64_t cursor, const struct sight *behind, unsigned flags)
{
	struct raw_request request = {
		.header = {.op = KV_OP_SCAN, .flags = flags, .argument = cursor, .place = 100}};

	if (behind) {
		request.header.key_length = behind->last_length;
		request.key = behind->last;
	}
	return raw_call(raw, &request);
}

static void all_are_told(const char *by)
{
	struct sight sight = {0};
	struct raw raw;
	uint64_t cursor = 0;
	bool is_among = false;
	unsigned steps = 0;

	subject_start(&subject, NULL);
	raw_enter(&raw, by, subject_address(&subject, by), NULL);
	put_keys(&raw, KEYS);
	do {
		CHECK(++steps < STEPS);
		CHECK_EQ(ask(&raw, cursor, is_among ? &sight : NULL, KV_GO_BEHIND), KV_OK);
		see(&sight, &raw.reply);
		cursor = raw.reply.header.number;
		is_among = raw.reply.header.flags & KV_AMONG;
		CHECK(!is_among || cursor);
	} while (cursor);
	for (unsigned i = 0; i < KEYS; i++)
		CHECK_EQ(sight.seen[i], 1);
	CHECK_EQ(sight.others, 1);
	raw_close(&raw);
	subject_stop(&subject);
}

static void test_all_are_told(void)
{
	subject_for_each(all_are_told);
}

/* Whoever cannot say behind which key is told of two, as ever; of three he cannot be. */
static void old_client(const char *by)
{
	for (uint32_t keys = 2; keys <= 3; keys++) {
		struct sight sight = {0};
		unsigned steps = 0;
		uint64_t cursor = 0;
		struct raw raw;
		int status;

		subject_start(&subject, NULL);
		raw_enter(&raw, by, subject_address(&subject, by), NULL);
		put_keys(&raw, keys);
		do {
			CHECK(++steps < STEPS);
			status = ask(&raw, cursor, NULL, 0);
			CHECK(!(raw.reply.header.flags & KV_AMONG));
			if (status == KV_OK)
				see(&sight, &raw.reply);
			cursor = raw.reply.header.number;
		} while (cursor && status == KV_OK);
		CHECK_EQ(status, keys == 2 ? KV_OK : KV_INTERNAL);
		for (uint32_t i = 0; i < keys && keys == 2; i++)
			CHECK(sight.seen[i] >= 1);
		raw_close(&raw);
		subject_stop(&subject);
	}
}

static void test_old_client(void)
{
	subject_for_each(old_client);
}

/* Any key and any cursor may be asked with: the answer is what lies there. */
static void test_any_key(void)
{
	struct sight sight = {.last = "nonsense", .last_length = 8};
	struct raw raw;

	subject_start(&subject, NULL);
	raw_enter(&raw, "tcp", subject_address(&subject, "tcp"), NULL);
	put_keys(&raw, 3);
	CHECK_EQ(ask(&raw, 0, &sight, KV_GO_BEHIND), KV_OK);
	CHECK_EQ(ask(&raw, UINT64_MAX, &sight, KV_GO_BEHIND), KV_OK);
	CHECK_EQ(raw.reply.header.number, 0);
	sight.last_length = KV_MAX_KEY;
	CHECK_EQ(ask(&raw, 1, &sight, 0), KV_OK);
	/* But none that is longer than keys are. */
	sight.last_length++;
	raw_ask(&raw,
		&(struct raw_request){.header = {.op = KV_OP_SCAN, .key_length = sight.last_length},
				      .key = raw.message});
	CHECK_EQ(raw_receive_end(&raw), KV_PROTOCOL);
	raw_close(&raw);
	subject_stop(&subject);
}

static const struct test tests[] = {
	{"all_are_told", test_all_are_told},
	{"old_client", test_old_client},
	{"any_key", test_any_key},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "server_scan", tests, TEST_COUNT(tests));
}
