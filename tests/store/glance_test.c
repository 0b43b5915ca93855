/* The short way of a get: that it is right, and that it is taken. */
#include "store/reader_glance.h"

#include <stdio.h>
#include <string.h>

#include "arena.h"
#include "store/internal.h"

#define ROOM 8192

static enum glance glance(const struct test_store *test, const char *key, void *value, size_t room,
			  struct reader_item *found)
{
	const struct reader *reader = &test->store->reader;
	size_t length = strlen(key);

	return reader_glance(reader, reader_hash(reader, key, length), key, length, value, room,
			     found);
}

static void make_key(char *key, size_t size, uint32_t number)
{
	snprintf(key, size, "key %u", number);
}

/* While the index grows from the least to many buckets. Keys that overflow need another look: about
 * one in thirty by the load, and a fifth just before their bucket is split. */
static void test_found_at_a_glance(void)
{
	enum { KEYS = 60000, CHECK_AT = 3000 };
	struct test_store test;
	char key[24], value[24];
	struct reader_item found;

	test_store_open(&test, 32 * MIB, STORE_REJECT);
	for (uint32_t keys = 0; keys < KEYS;) {
		uint32_t hits = 0, misses = 0;

		make_key(key, sizeof(key), keys++);
		CHECK_EQ(put_text(test.worker, key, key, NULL), STORE_OK);
		if (keys % CHECK_AT)
			continue;
		for (uint32_t i = 0; i < keys; i++) {
			enum glance seen;

			make_key(key, sizeof(key), i);
			seen = glance(&test, key, value, sizeof(value), &found);
			CHECK(seen != GLANCE_MISS);
			if (seen == GLANCE_FOUND) {
				hits++;
				CHECK_EQ(item_value_length(found.lengths), strlen(key));
				CHECK_MEM(value, key, strlen(key));
			}
			make_key(key, sizeof(key), KEYS + i);
			seen = glance(&test, key, value, sizeof(value), &found);
			CHECK(seen != GLANCE_FOUND);
			misses += seen == GLANCE_MISS;
		}
		CHECK(hits >= keys / 100 * 90);
		CHECK(misses >= keys / 100 * 75);
	}
	test_store_close(&test);
}

static const struct reader_item untouched = {77, 77, 77, 77};

/* Count and mask of the buckets are not believed: with wrong ones a key may not be found at once,
 * but is never found missing, and no other is found. */
static void test_wrong_hints(void)
{
	enum { KEYS = 20000 };
	static const uint64_t counts[] = {0, 1, 2, 1000, 4096, 5000, 1 << 20, UINT64_MAX};
	struct test_store test;
	struct store_header *header;
	struct reader_item found;
	char key[24], value[24];
	struct test_rng rng;
	uint64_t mask;

	test_store_open(&test, 16 * MIB, STORE_REJECT);
	header = test.memory;
	for (uint32_t i = 0; i < KEYS; i++) {
		make_key(key, sizeof(key), i);
		CHECK_EQ(put_text(test.worker, key, key, NULL), STORE_OK);
	}
	mask = header->bucket_mask;
	test_rng_init(&rng, 0);
	for (int i = 0; i < 200000; i++) {
		const uint64_t masks[] = {mask, mask >> 1,  mask >> 4,		mask * 2 + 1,
					  0,	UINT64_MAX, test_rng_next(&rng)};
		uint32_t number = (uint32_t)test_rng_below(&rng, KEYS);

		header->bucket_mask = masks[test_rng_below(&rng, TEST_COUNT(masks))];
		header->bucket_count = i % 3 ? counts[test_rng_below(&rng, TEST_COUNT(counts))]
					     : test_rng_below(&rng, 3 * KEYS / 4);
		make_key(key, sizeof(key), number);
		switch (glance(&test, key, value, sizeof(value), &found)) {
		case GLANCE_FOUND:
			CHECK_MEM(value, key, strlen(key));
			break;
		case GLANCE_MISS:
			TEST_FAIL("%s is missing with count %lu and mask %lx", key,
				  (uint64_t)header->bucket_count, (uint64_t)header->bucket_mask);
		default:
			break;
		}
		make_key(key, sizeof(key), KEYS + number);
		CHECK(glance(&test, key, value, sizeof(value), &found) != GLANCE_FOUND);
	}
	test_store_close(&test);
}

/* Nor is anything believed while somebody is at the bucket. */
static void test_locked(void)
{
	struct test_store test;
	struct index_lock lock;
	struct reader_item found = untouched;
	char value[8];

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(put_text(test.worker, "key", "value", NULL), STORE_OK);
	lock = index_lock(&test.store->index, &test.worker->guard,
			  reader_hash(&test.store->reader, "key", 3));
	CHECK_EQ(glance(&test, "key", value, sizeof(value), &found), GLANCE_LOOK);
	CHECK_MEM(&found, &untouched, sizeof(found));
	index_unlock(&lock);
	CHECK_EQ(glance(&test, "key", value, sizeof(value), &found), GLANCE_FOUND);
	test_store_close(&test);
}

/* What is not so simple is left to a look, and not written down. */
static void test_left_to_a_look(void)
{
	static uint8_t value[ROOM], bytes[ROOM];
	struct store_put put = {.key = "key", .key_length = 3, .value = bytes};
	struct reader_item found = untouched;
	struct test_store test;
	int64_t number;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	put.value_length = ITEM_WIDE - 1;
	CHECK_EQ(store_put(test.worker, &put, NULL), STORE_OK);
	CHECK_EQ(glance(&test, "key", value, ITEM_WIDE - 2, &found), GLANCE_LOOK);
	CHECK_MEM(&found, &untouched, sizeof(found));
	CHECK_EQ(glance(&test, "key", value, ITEM_WIDE - 1, &found), GLANCE_FOUND);
	CHECK_EQ(item_value_length(found.lengths), ITEM_WIDE - 1);
	put.value_length = ITEM_WIDE;
	CHECK_EQ(store_put(test.worker, &put, NULL), STORE_OK);
	CHECK_EQ(glance(&test, "key", value, ROOM, &found), GLANCE_LOOK);

	put.value_length = 0;
	CHECK_EQ(store_put(test.worker, &put, NULL), STORE_OK);
	CHECK_EQ(glance(&test, "key", value, 0, &found), GLANCE_FOUND);
	CHECK_EQ(item_value_length(found.lengths), 0);

	CHECK_EQ(store_add(test.worker, "number", 6, 1, &number, NULL), STORE_OK);
	CHECK_EQ(glance(&test, "number", value, ROOM, &found), GLANCE_LOOK);
	test_store_close(&test);
}

/* A time to live that is not over is no reason to look. */
static void test_expiry(void)
{
	struct test_store test;
	struct reader_item found;
	char value[8];

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	test.options.clock_ms = test_clock_ms;
	test_store_restart(&test);
	CHECK_EQ(put_text(test.worker, "key", "value", NULL), STORE_OK);
	CHECK_EQ(store_expire(test.worker, "key", 3, 50, NULL), STORE_OK);
	test_now_ms += 49;
	CHECK_EQ(glance(&test, "key", value, sizeof(value), &found), GLANCE_FOUND);
	CHECK_EQ(found.expires_ms, test_now_ms + 1);
	test_now_ms++;
	found = untouched;
	CHECK_EQ(glance(&test, "key", value, sizeof(value), &found), GLANCE_LOOK);
	CHECK_MEM(&found, &untouched, sizeof(found));
	test_store_close(&test);
}

/* Keys of all lengths whose difference is in any one byte. */
static void test_keys_of_all_lengths(void)
{
	uint8_t key[100], bytes[100];
	struct test_rng rng;

	test_rng_init(&rng, 0);
	test_rng_fill(&rng, key, sizeof(key));
	memcpy(bytes, key, sizeof(key));
	for (size_t length = 1; length <= sizeof(key); length++) {
		CHECK(racy_equal(key, bytes, length));
		for (size_t i = 0; i < sizeof(key); i++) {
			bytes[i] ^= 1;
			CHECK_EQ(racy_equal(key, bytes, length), i >= length);
			bytes[i] ^= 1;
		}
	}
}

/* A copy has all bytes, and no other is written. */
static void test_values_of_all_lengths(void)
{
	uint8_t from[300], to[300], expected[300];
	struct test_rng rng;

	test_rng_init(&rng, 0);
	test_rng_fill(&rng, from, sizeof(from));
	for (size_t length = 0; length <= 200; length++) {
		for (size_t shift = 0; shift < 17; shift++) {
			memset(to, 0x55, sizeof(to));
			memset(expected, 0x55, sizeof(expected));
			racy_copy(to + 30, from + shift, length);
			memcpy(expected + 30, from + shift, length);
			CHECK_MEM(to, expected, sizeof(to));
		}
	}
}

/* A heat counts to three and back, whatever its neighbours have. */
static void test_heat(void)
{
	static _Atomic uint8_t bytes[4];
	static struct store store = {.heat = bytes};
	enum { COUNT = sizeof(bytes) * HEAT_PER_BYTE };
	unsigned model[COUNT] = {0};
	struct test_rng rng;

	CHECK_EQ(heat_size(COUNT * HEAT_UNIT), sizeof(bytes));
	test_rng_init(&rng, 0);
	for (int i = 0; i < 100000; i++) {
		unsigned at = (unsigned)test_rng_below(&rng, COUNT);
		uint64_t offset = at * HEAT_UNIT + test_rng_below(&rng, HEAT_UNIT);

		switch (test_rng_below(&rng, 3)) {
		case 0:
			heat_up(&store, offset);
			model[at] += model[at] < HEAT_MAX;
			break;
		case 1:
			CHECK_EQ(heat_down(&store, offset), model[at] == 0);
			model[at] -= model[at] > 0;
			break;
		default:
			model[at] = (unsigned)test_rng_below(&rng, HEAT_MAX + 1);
			heat_set(&store, offset, model[at]);
		}
		for (unsigned j = 0; j < COUNT; j++)
			CHECK_EQ(heat_get(&store, j * HEAT_UNIT), model[j]);
	}
}

static const struct test tests[] = {
	{"found_at_a_glance", test_found_at_a_glance},
	{"wrong_hints", test_wrong_hints},
	{"locked", test_locked},
	{"left_to_a_look", test_left_to_a_look},
	{"expiry", test_expiry},
	{"keys_of_all_lengths", test_keys_of_all_lengths},
	{"values_of_all_lengths", test_values_of_all_lengths},
	{"heat", test_heat},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "glance_test", tests, TEST_COUNT(tests));
}
