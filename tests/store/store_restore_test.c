/*
 * Restoring a store from its memory alone: what comes out is what was there.
 *
 * For writers that die in the middle see store_crash_test.c, for broken memory store_damage_test.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picture.h"
#include "store/item.h"
#include "witness.h"

static void check_equal(size_t size, enum store_on_full on_full, uint64_t keys, size_t longest)
{
	struct picture before, after;
	struct test_store test;
	struct test_rng rng;

	test_rng_init(&rng, size + keys);
	test_store_open(&test, size, on_full);
	for (int round = 0; round < 6; round++) {
		for (uint64_t i = 0; i < keys * 3; i++)
			picture_work(&test, &rng, keys, longest);
		test_sleep_ms(5);
		store_tick(test.worker, SIZE_MAX);
		CHECK(picture_take(&test, keys, &before) > keys / 50);
		test_store_restart(&test);
		picture_take(&test, keys, &after);
		picture_compare(&before, &after);
		picture_free(&before);
		picture_free(&after);
	}
	store_flush(test.worker);
	test_store_check(&test);
	test_store_close(&test);
}

static void test_equal(void)
{
	check_equal(128 * MIB, STORE_REJECT, TEST_HAS_SANITIZER ? 2000 : 20000, 2 * MIB);
}

static void test_equal_evicting(void)
{
	check_equal(6 * MIB, STORE_EVICT, TEST_HAS_SANITIZER ? 1000 : 3000, MIB);
}

/* Its writer had marked the cell, and died before it marked the item. */
static void test_counter_that_was_ending(void)
{
	struct store_info info;
	struct test_store test;
	int64_t sum;

	test_store_open(&test, 2 * MIB, STORE_REJECT);
	CHECK_EQ(store_add(test.worker, "count", 5, 42, &sum, &info), STORE_OK);
	((int64_t *)test.cells)[info.cell] = STORE_COUNTER_GONE;
	test_store_restart(&test);
	CHECK_EQ(store_stat(test.worker, "count", 5, &info), STORE_NOT_FOUND);
	CHECK_EQ(store_add(test.worker, "count", 5, 1, &sum, &info), STORE_OK);
	CHECK_EQ(sum, 1);
	test_store_check(&test);
	test_store_close(&test);
}

/* A counter that was replaced by `text`, as its writer leaves it who dies before it kills the
 * counter: with its cell ended, or not yet. */
static void replace_half(struct test_store *test, const char *text, bool has_ended)
{
	struct store_info counter, value;
	_Atomic uint64_t *version;
	int64_t sum;

	CHECK_EQ(store_add(test->worker, "count", 5, 42, &sum, &counter), STORE_OK);
	CHECK_EQ(put_text(test->worker, "count", text, &value), STORE_OK);
	/* As it was before the kill, and before the place was free. */
	store_worker_close(test->worker);
	version = (_Atomic uint64_t *)((uint8_t *)test->memory + counter.offset);
	*version = counter.version;
	version[1] = item_checksum(counter.offset, counter.version, 0, version[3],
				   item_body_hash((struct item *)version));
	version = (_Atomic uint64_t *)((uint8_t *)test->memory + value.offset);
	*version |= ITEM_PENDING;
	((int64_t *)test->cells)[counter.cell] = has_ended ? STORE_COUNTER_GONE + 7 : 43;
	test->worker = NULL;
	test_store_restart(test);
}

/* The cell was not ended: peers may have counted on, so the counter stays. */
static void test_counter_that_was_not_replaced(void)
{
	struct test_store test;
	struct store_stats stats;
	struct store_info info;
	char value[16];

	test_store_open(&test, 2 * MIB, STORE_REJECT);
	replace_half(&test, "no number", false);
	CHECK_EQ(get_text(test.worker, "count", value, sizeof(value), &info), STORE_OK);
	CHECK_STR(value, "43");
	CHECK(info.cell != STORE_NO_CELL);
	store_stats(test.store, &stats);
	CHECK_EQ(stats.keys, 1);
	CHECK_EQ(stats.cells_used, 1);
	test_store_check(&test);
	test_store_close(&test);
}

/* The cell was ended, so the number is where it went: the cell is free again. */
static void test_counter_that_was_replaced(void)
{
	struct test_store test;
	struct store_stats stats;
	struct store_info info;
	char value[32];
	int64_t sum;

	test_store_open(&test, 2 * MIB, STORE_REJECT);
	replace_half(&test, "4611686018427387946", true);
	CHECK_EQ(get_text(test.worker, "count", value, sizeof(value), &info), STORE_OK);
	CHECK_STR(value, "4611686018427387946");
	CHECK_EQ(info.cell, STORE_NO_CELL);
	store_stats(test.store, &stats);
	CHECK_EQ(stats.keys, 1);
	CHECK_EQ(stats.cells_used, 0);
	CHECK_EQ(store_add(test.worker, "count", 5, -4611686018427387904, &sum, NULL), STORE_OK);
	CHECK_EQ(sum, 42);
	test_store_check(&test);
	test_store_close(&test);
}

/* Killed in the middle of a new time to live: the item is there, with the old one or the new. */
static void test_a_time_that_was_changing(void)
{
	struct test_store test;
	struct store_info info;
	struct item *item;
	char value[16];

	test_store_open(&test, STORE_MIN_SIZE, STORE_REJECT);
	CHECK_EQ(put_text(test.worker, "key", "value", &info), STORE_OK);
	item = (struct item *)((uint8_t *)test.memory + info.offset);
	atomic_fetch_or(&item->version, ITEM_PENDING);
	atomic_store(&item->expiry, store_clock_ms(test.store) + 100000);
	test_store_restart(&test);
	CHECK_EQ(get_text(test.worker, "key", value, sizeof(value), &info), STORE_OK);
	CHECK_STR(value, "value");
	CHECK(info.expires_ms > store_clock_ms(test.store));
	test_store_check(&test);
	test_store_close(&test);
}

/* Every page is taken: the index must come back in the pages that it had. */
static void test_a_full_store(void)
{
	struct test_store test;
	struct store_stats before, after;
	char key[16];

	test_store_open(&test, 2 * MIB, STORE_REJECT);
	for (int i = 0;; i++) {
		snprintf(key, sizeof(key), "key%d", i);
		if (put_text(test.worker, key, "a value of some length, so that it is full soon",
			     NULL) != STORE_OK)
			break;
	}
	store_stats(test.store, &before);
	for (int i = 0; i < 20; i++) {
		test_store_restart(&test);
		test_store_check(&test);
		store_stats(test.store, &after);
		CHECK_EQ(after.keys, before.keys);
		CHECK_EQ(after.index, before.index);
	}
	test_store_close(&test);
}

static const struct test tests[] = {
	{"equal", test_equal},
	{"equal_when_evicting", test_equal_evicting},
	{"a_counter_that_was_ending", test_counter_that_was_ending},
	{"a_counter_that_was_replaced", test_counter_that_was_replaced},
	{"a_counter_that_was_not_replaced", test_counter_that_was_not_replaced},
	{"a_time_that_was_changing", test_a_time_that_was_changing},
	{"a_full_store", test_a_full_store},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_restore", tests, TEST_COUNT(tests));
}
