/*
 * Every operation on single keys and every status that it can answer, with keys and values at
 * and past their limits. Views, counters, scans, expiry and full stores have tests of their own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "store/layout.h"

static enum store_status put_bytes(struct test_store *test, const void *key, size_t key_length,
				   const void *value, size_t length, struct store_info *info)
{
	struct store_put put = {
		.key = key, .key_length = key_length, .value = value, .value_length = length};

	return store_put(test->worker, &put, info);
}

static void check_text(struct test_store *test, const char *key, const char *expected)
{
	char value[256];

	CHECK_EQ(get_text(test->worker, key, value, sizeof(value), NULL), STORE_OK);
	CHECK_STR(value, expected);
}

static void check_missing(struct test_store *test, const char *key)
{
	struct store_info info;
	struct store_view view;
	char value[16];

	CHECK_EQ(store_get(test->worker, key, strlen(key), value, sizeof(value), &info),
		 STORE_NOT_FOUND);
	CHECK_EQ(store_stat(test->worker, key, strlen(key), &info), STORE_NOT_FOUND);
	CHECK_EQ(store_pin(test->worker, key, strlen(key), &view), STORE_NOT_FOUND);
	CHECK_EQ(store_delete(test->worker, key, strlen(key), 0, NULL), STORE_NOT_FOUND);
	CHECK_EQ(store_delete(test->worker, key, strlen(key), 5, NULL), STORE_NOT_FOUND);
	CHECK_EQ(store_expire(test->worker, key, strlen(key), 5, NULL), STORE_NOT_FOUND);
}

/* ------------------------------------------------------------------------------------------
 * Keys
 */

static void check_key_length_refused(struct test_store *test, const void *key, size_t length)
{
	struct store_put put = {.key = key, .key_length = length, .value = "v", .value_length = 1};
	struct store_get many = {.key = key, .key_length = length};
	struct store_draft draft;
	struct store_info info;
	struct store_view view;
	int64_t number;
	char value[8];

	CHECK_EQ(store_put(test->worker, &put, &info), STORE_KEY_LENGTH);
	CHECK_EQ(store_draft_begin(test->worker, &put, &draft), STORE_KEY_LENGTH);
	CHECK_EQ(store_get(test->worker, key, length, value, 8, &info), STORE_KEY_LENGTH);
	CHECK_EQ(store_stat(test->worker, key, length, &info), STORE_KEY_LENGTH);
	CHECK_EQ(store_pin(test->worker, key, length, &view), STORE_KEY_LENGTH);
	CHECK_EQ(store_delete(test->worker, key, length, 0, &info), STORE_KEY_LENGTH);
	CHECK_EQ(store_expire(test->worker, key, length, 0, &info), STORE_KEY_LENGTH);
	CHECK_EQ(store_add(test->worker, key, length, 1, &number, &info), STORE_KEY_LENGTH);
	CHECK_EQ(store_swap(test->worker, key, length, 1, 2, &number), STORE_KEY_LENGTH);
	store_get_many(test->worker, &many, 1);
	CHECK_EQ(many.status, STORE_KEY_LENGTH);
}

static void test_key_lengths(void)
{
	static const size_t lengths[] = {1, 2, 7, 8, 9, 63, 64, 65, 255, 4095, STORE_MAX_KEY};
	uint8_t key[STORE_MAX_KEY + 1], value[STORE_MAX_KEY];
	struct test_store test;
	struct store_info info;

	memset(key, 'k', sizeof(key));
	test_store_open(&test, 4 * MIB, STORE_REJECT);
	check_key_length_refused(&test, key, 0);
	check_key_length_refused(&test, key, STORE_MAX_KEY + 1);
	/* All begin alike: they are different keys. */
	for (size_t i = 0; i < TEST_COUNT(lengths); i++)
		CHECK_EQ(put_bytes(&test, key, lengths[i], key, lengths[i], NULL), STORE_OK);
	for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
		CHECK_EQ(store_get(test.worker, key, lengths[i], value, sizeof(value), &info),
			 STORE_OK);
		CHECK_EQ(info.value_length, lengths[i]);
	}
	CHECK_EQ(store_stat(test.worker, key, 3, &info), STORE_NOT_FOUND);
	test_store_check(&test);
	test_store_close(&test);
}

static void test_key_bytes(void)
{
	struct test_store test;
	uint16_t found;

	test_store_open(&test, 16 * MIB, STORE_REJECT);
	for (unsigned i = 0; i < 65536; i++) {
		uint16_t key = (uint16_t)i;

		CHECK_EQ(put_bytes(&test, &key, 2, &key, 2, NULL), STORE_OK);
		if (i < 256)
			CHECK_EQ(put_bytes(&test, &key, 1, &key, 1, NULL), STORE_OK);
	}
	for (unsigned i = 0; i < 65536; i++) {
		uint16_t key = (uint16_t)i;

		CHECK_EQ(store_get(test.worker, &key, 2, &found, 2, NULL), STORE_OK);
		CHECK_EQ(found, key);
		if (i < 256)
			CHECK_EQ(store_get(test.worker, &key, 1, &found, 1, NULL), STORE_OK);
	}
	test_store_check(&test);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * Values
 */

static void test_empty_value(void)
{
	struct test_store test;
	struct store_info info;
	struct store_view view;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(put_bytes(&test, "key", 3, NULL, 0, &info), STORE_OK);
	CHECK_EQ(info.value_length, 0);
	CHECK_EQ(store_get(test.worker, "key", 3, NULL, 0, &info), STORE_OK);
	CHECK_EQ(info.value_length, 0);
	CHECK_EQ(store_pin(test.worker, "key", 3, &view), STORE_OK);
	CHECK_EQ(view.length, 0);
	store_unpin(test.worker, &view);
	CHECK_EQ(store_delete(test.worker, "key", 3, 0, NULL), STORE_OK);
	check_missing(&test, "key");
	test_store_check(&test);
	test_store_close(&test);
}

/* Sizes around every border of classes and of alignment. */
static void test_value_lengths(void)
{
	uint8_t *value = malloc(2 * MIB), *found = malloc(2 * MIB);
	struct test_store test;
	struct store_info info;
	struct test_rng rng;

	CHECK(value && found);
	test_rng_init(&rng, 1);
	test_rng_fill(&rng, value, 2 * MIB);
	test_store_open(&test, 8 * MIB, STORE_REJECT);
	for (size_t power = 1; power <= 2 * MIB; power *= 2) {
		for (size_t eighth = 8; eighth <= 15; eighth++) {
			size_t around = power * eighth / 8;

			for (size_t length = around > 34 ? around - 34 : 0;
			     length <= around + 1 && length <= 2 * MIB; length++) {
				CHECK_EQ(put_bytes(&test, "k", 1, value, length, &info), STORE_OK);
				CHECK_EQ(info.value_length, length);
				CHECK_EQ(store_get(test.worker, "k", 1, found, 2 * MIB, &info),
					 STORE_OK);
				CHECK_EQ(info.value_length, length);
				CHECK_MEM(found, value, length);
				length += length > 300 && length < around - 2 ? 13 : 0;
			}
		}
	}
	test_store_check(&test);
	free(value);
	free(found);
	test_store_close(&test);
}

/* The largest that fits, found by asking, is all of the pool; one byte more can never fit. */
static void test_largest_value(void)
{
	struct test_store test;
	struct store_stats stats;
	struct store_put put = {.key = "largest", .key_length = 7};
	struct store_draft draft;
	struct store_view view;
	uint64_t low = 0, high = 8 * MIB;

	test_store_open(&test, 8 * MIB, STORE_REJECT);
	store_stats(test.store, &stats);
	while (low + 1 < high) {
		put.value_length = (low + high) / 2;
		if (store_draft_begin(test.worker, &put, &draft) == STORE_OK) {
			store_draft_abort(test.worker, &draft);
			low = put.value_length;
		} else {
			high = put.value_length;
		}
	}
	CHECK_EQ(item_size(7, low), stats.free);
	put.value_length = low;
	CHECK_EQ(store_draft_begin(test.worker, &put, &draft), STORE_OK);
	memset(draft.value, 0x77, low);
	CHECK_EQ(store_draft_commit(test.worker, &put, &draft, NULL), STORE_OK);
	CHECK_EQ(store_pin(test.worker, "largest", 7, &view), STORE_OK);
	CHECK_EQ(view.length, low);
	CHECK_EQ(((const uint8_t *)view.value)[low - 1], 0x77);
	store_unpin(test.worker, &view);
	store_stats(test.store, &stats);
	CHECK_EQ(stats.free, 0);
	CHECK_EQ(put_text(test.worker, "other", "", NULL), STORE_NO_MEMORY);
	test_store_check(&test);
	put.value_length = low + 1;
	CHECK_EQ(store_draft_begin(test.worker, &put, &draft), STORE_VALUE_TOO_LONG);
	put.value_length = SIZE_MAX;
	CHECK_EQ(store_draft_begin(test.worker, &put, &draft), STORE_VALUE_TOO_LONG);
	put.value_length = ITEM_MAX_VALUE + 1;
	CHECK_EQ(store_put(test.worker, &put, NULL), STORE_VALUE_TOO_LONG);
	CHECK_EQ(store_delete(test.worker, "largest", 7, 0, NULL), STORE_OK);
	CHECK_EQ(put_text(test.worker, "other", "", NULL), STORE_OK);
	test_store_close(&test);
}

static void test_no_room(void)
{
	struct test_store test;
	struct store_info info = {0};
	char value[16] = "untouched";

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(put_text(test.worker, "key", "0123456789", NULL), STORE_OK);
	CHECK_EQ(store_get(test.worker, "key", 3, value, 9, &info), STORE_NO_ROOM);
	CHECK_EQ(info.value_length, 10);
	CHECK_STR(value, "untouched");
	CHECK_EQ(store_get(test.worker, "key", 3, NULL, 0, &info), STORE_NO_ROOM);
	CHECK_EQ(store_get(test.worker, "key", 3, value, 10, NULL), STORE_OK);
	CHECK_MEM(value, "0123456789", 10);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * Conditions
 */

static void test_if_absent(void)
{
	struct test_store test;
	struct store_put put = {.key = "key",
				.key_length = 3,
				.value = "first",
				.value_length = 5,
				.condition = STORE_IF_ABSENT};
	struct store_info first, info;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(store_put(test.worker, &put, &first), STORE_OK);
	put.value = "second!";
	put.value_length = 7;
	CHECK_EQ(store_put(test.worker, &put, &info), STORE_EXISTS);
	CHECK_EQ(info.version, first.version);
	CHECK_EQ(info.value_length, 5);
	CHECK_EQ(info.offset, first.offset);
	CHECK_EQ(store_put(test.worker, &put, NULL), STORE_EXISTS);
	check_text(&test, "key", "first");
	CHECK_EQ(store_delete(test.worker, "key", 3, 0, NULL), STORE_OK);
	CHECK_EQ(store_put(test.worker, &put, &info), STORE_OK);
	CHECK(info.version > first.version);
	check_text(&test, "key", "second!");
	test_store_check(&test);
	test_store_close(&test);
}

static void test_if_version(void)
{
	struct test_store test;
	struct store_put put = {.key = "key",
				.key_length = 3,
				.value = "swapped",
				.value_length = 7,
				.condition = STORE_IF_VERSION,
				.version = 1};
	struct store_info first, info;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(store_put(test.worker, &put, &info), STORE_NOT_FOUND);
	put.version = 0;
	CHECK_EQ(store_put(test.worker, &put, &info), STORE_NOT_FOUND);
	CHECK_EQ(put_text(test.worker, "key", "first", &first), STORE_OK);
	CHECK_EQ(store_put(test.worker, &put, &info), STORE_CONFLICT);
	CHECK_EQ(info.version, first.version);
	put.version = first.version + 1;
	CHECK_EQ(store_put(test.worker, &put, NULL), STORE_CONFLICT);
	check_text(&test, "key", "first");
	put.version = first.version;
	CHECK_EQ(store_put(test.worker, &put, &info), STORE_OK);
	CHECK(info.version > first.version);
	check_text(&test, "key", "swapped");
	/* The same again: it is another version now. */
	CHECK_EQ(store_put(test.worker, &put, NULL), STORE_CONFLICT);
	test_store_check(&test);
	test_store_close(&test);
}

static void test_delete_if_version(void)
{
	struct test_store test;
	struct store_info first, info;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(put_text(test.worker, "key", "value", &first), STORE_OK);
	CHECK_EQ(store_delete(test.worker, "key", 3, first.version + 1, &info), STORE_CONFLICT);
	CHECK_EQ(info.version, first.version);
	CHECK_EQ(store_delete(test.worker, "key", 3, first.version + 1, NULL), STORE_CONFLICT);
	check_text(&test, "key", "value");
	CHECK_EQ(store_delete(test.worker, "key", 3, first.version, NULL), STORE_OK);
	check_missing(&test, "key");
	test_store_check(&test);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * Many at once
 */

static void test_get_many(void)
{
	enum { COUNT = 100 };
	struct test_store test;
	struct store_get gets[COUNT];
	char keys[COUNT][16], values[COUNT][16];

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	for (int i = 0; i < COUNT; i++) {
		snprintf(keys[i], sizeof(keys[i]), "key %d", i);
		if (i % 3)
			CHECK_EQ(put_text(test.worker, keys[i], keys[i], NULL), STORE_OK);
	}
	for (size_t count = 0; count <= COUNT; count += 1 + count / 3) {
		for (size_t i = 0; i < count; i++)
			gets[i] = (struct store_get){.key = keys[i],
						     .key_length = strlen(keys[i]),
						     .value = values[i],
						     .room = i % 5 == 4 ? 2 : 16};
		store_get_many(test.worker, gets, count);
		for (size_t i = 0; i < count; i++) {
			CHECK_EQ(gets[i].status, i % 3 == 0   ? STORE_NOT_FOUND
						 : i % 5 == 4 ? STORE_NO_ROOM
							      : STORE_OK);
			if (i % 3)
				CHECK_EQ(gets[i].info.value_length, strlen(keys[i]));
			if (gets[i].status == STORE_OK)
				CHECK_MEM(values[i], keys[i], strlen(keys[i]));
		}
	}
	test_store_close(&test);
}

static const struct test tests[] = {
	{"key_lengths", test_key_lengths},
	{"any_bytes_in_keys", test_key_bytes},
	{"an_empty_value", test_empty_value},
	{"value_lengths", test_value_lengths},
	{"the_largest_value", test_largest_value},
	{"no_room_in_the_buffer", test_no_room},
	{"put_if_absent", test_if_absent},
	{"put_if_version", test_if_version},
	{"delete_if_version", test_delete_if_version},
	{"get_many", test_get_many},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_operations", tests, TEST_COUNT(tests));
}
