/*
 * Times to live: an item is gone at its very millisecond for every operation, and the sweep takes
 * its memory back without anybody asking for it, at a bounded cost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "store/layout.h"

static void open_store(struct test_store *test, size_t size)
{
	test_store_open(test, size, STORE_REJECT);
	test->options.clock_ms = test_clock_ms;
	test_store_restart(test);
}

static enum store_status put_ttl(struct test_store *test, uint32_t number, uint64_t ttl_ms,
				 size_t length, struct store_info *info)
{
	static const uint8_t value[100000];
	struct store_put put = {.key = &number,
				.key_length = sizeof(number),
				.value = value,
				.value_length = length,
				.ttl_ms = ttl_ms};

	return store_put(test->worker, &put, info);
}

static enum store_status look(struct test_store *test, uint32_t number, struct store_info *info)
{
	return store_stat(test->worker, &number, sizeof(number), info);
}

static struct store_stats stats_of(struct test_store *test)
{
	struct store_stats stats;

	store_stats(test->store, &stats);
	return stats;
}

static uint64_t items_of(struct test_store *test)
{
	struct store_stats stats = stats_of(test);
	uint64_t items = 0;

	for (unsigned i = 0; i < STORE_CLASS_STATS; i++)
		items += stats.classes[i].items;
	return items;
}

/* ------------------------------------------------------------------------------------------
 * On access
 */

static void test_exact(void)
{
	struct test_store test;
	struct store_info info;

	open_store(&test, 4 * MIB);
	CHECK_EQ(put_ttl(&test, 1, 100, 10, &info), STORE_OK);
	CHECK_EQ(info.expires_ms, test_now_ms + 100);
	CHECK_EQ(put_ttl(&test, 2, 0, 10, &info), STORE_OK);
	CHECK_EQ(info.expires_ms, 0);
	test_now_ms += 99;
	CHECK_EQ(look(&test, 1, &info), STORE_OK);
	CHECK_EQ(info.expires_ms, test_now_ms + 1);
	test_now_ms += 1;
	CHECK_EQ(look(&test, 1, &info), STORE_NOT_FOUND);
	test_now_ms += (uint64_t)1 << 40;
	CHECK_EQ(look(&test, 2, &info), STORE_OK);
	CHECK_EQ(stats_of(&test).keys, 1);
	CHECK_EQ(stats_of(&test).expired, 1);
	test_store_check(&test);
	test_store_close(&test);
}

/* Each operation by itself is the first to come by an expired key. */
static void test_every_operation(void)
{
	struct store_put put = {.key_length = 4, .value = "new", .value_length = 3};
	struct test_store test;
	struct store_info old[10], info;
	struct store_view view;
	uint32_t key[10];
	int64_t sum;
	char value[16];

	open_store(&test, 4 * MIB);
	for (uint32_t i = 0; i < 10; i++) {
		key[i] = i;
		CHECK_EQ(put_ttl(&test, i, 10, 10, &old[i]), STORE_OK);
	}
	test_now_ms += 10;
	CHECK_EQ(store_get(test.worker, &key[0], 4, value, 16, &info), STORE_NOT_FOUND);
	CHECK_EQ(store_stat(test.worker, &key[1], 4, &info), STORE_NOT_FOUND);
	CHECK_EQ(store_pin(test.worker, &key[2], 4, &view), STORE_NOT_FOUND);
	CHECK_EQ(store_delete(test.worker, &key[3], 4, 0, &info), STORE_NOT_FOUND);
	CHECK_EQ(store_delete(test.worker, &key[4], 4, old[4].version + 1, &info), STORE_NOT_FOUND);
	CHECK_EQ(store_expire(test.worker, &key[5], 4, 1000, &info), STORE_NOT_FOUND);
	put.key = &key[6];
	put.condition = STORE_IF_VERSION;
	put.version = old[6].version;
	CHECK_EQ(store_put(test.worker, &put, &info), STORE_NOT_FOUND);
	put.key = &key[7];
	put.condition = STORE_IF_ABSENT;
	CHECK_EQ(store_put(test.worker, &put, &info), STORE_OK);
	CHECK(info.version > old[7].version);
	CHECK_EQ(info.expires_ms, 0);
	put.key = &key[8];
	put.condition = STORE_ALWAYS;
	CHECK_EQ(store_put(test.worker, &put, &info), STORE_OK);
	CHECK(info.version > old[8].version);
	CHECK_EQ(store_add(test.worker, &key[9], 4, 3, &sum, &info), STORE_OK);
	CHECK_EQ(sum, 3);
	for (uint32_t i = 0; i < 10; i++)
		CHECK_EQ(look(&test, i, &info), i >= 7 ? STORE_OK : STORE_NOT_FOUND);
	store_tick(test.worker, 100000);
	CHECK_EQ(items_of(&test), 3);
	test_store_check(&test);
	test_store_close(&test);
}

static void test_expire(void)
{
	struct test_store test;
	struct store_info first, info;
	uint32_t key = 1;

	open_store(&test, 4 * MIB);
	CHECK_EQ(put_ttl(&test, 1, 0, 10, &first), STORE_OK);
	CHECK_EQ(store_expire(test.worker, &key, 4, 50, &info), STORE_OK);
	CHECK_EQ(info.version, first.version);
	CHECK_EQ(info.expires_ms, test_now_ms + 50);
	test_now_ms += 49;
	/* Put off, in the last moment. */
	CHECK_EQ(store_expire(test.worker, &key, 4, 100, NULL), STORE_OK);
	test_now_ms += 99;
	CHECK_EQ(store_tick(test.worker, 100000), 0);
	CHECK_EQ(look(&test, 1, &info), STORE_OK);
	/* For ever. */
	CHECK_EQ(store_expire(test.worker, &key, 4, 0, &info), STORE_OK);
	CHECK_EQ(info.expires_ms, 0);
	test_now_ms += 1000000;
	CHECK_EQ(store_tick(test.worker, 100000), 0);
	CHECK_EQ(look(&test, 1, &info), STORE_OK);
	CHECK_EQ(store_expire(test.worker, &key, 4, 1, NULL), STORE_OK);
	test_now_ms += 1;
	CHECK_EQ(store_expire(test.worker, &key, 4, 0, NULL), STORE_NOT_FOUND);
	CHECK_EQ(look(&test, 1, &info), STORE_NOT_FOUND);
	test_store_check(&test);
	test_store_close(&test);
}

/* Longer than time itself: as long as can be told. */
static void test_huge(void)
{
	static const uint64_t ttls[] = {ITEM_EXPIRY_MASK - 1, ITEM_EXPIRY_MASK,
					ITEM_EXPIRY_MASK + 1, UINT64_MAX - 1000000, UINT64_MAX};
	struct test_store test;
	struct store_info info;
	uint32_t key = 1;

	open_store(&test, 4 * MIB);
	for (size_t i = 0; i < TEST_COUNT(ttls); i++) {
		CHECK_EQ(put_ttl(&test, 1, ttls[i], 10, &info), STORE_OK);
		CHECK_EQ(info.expires_ms, ITEM_EXPIRY_MASK);
		CHECK_EQ(look(&test, 1, &info), STORE_OK);
		CHECK_EQ(store_expire(test.worker, &key, 4, 5, &info), STORE_OK);
		CHECK_EQ(store_expire(test.worker, &key, 4, ttls[i], &info), STORE_OK);
		CHECK_EQ(info.expires_ms, ITEM_EXPIRY_MASK);
		CHECK_EQ(look(&test, 1, &info), STORE_OK);
	}
	test_store_check(&test);
	test_store_close(&test);
}

/* The host's own time, which goes by. */
static void test_real_clock(void)
{
	struct test_store test;
	struct store_info info;
	uint64_t before;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	before = store_clock_ms(test.store);
	CHECK_EQ(put_ttl(&test, 1, 30, 10, &info), STORE_OK);
	CHECK(info.expires_ms >= before + 30);
	while (look(&test, 1, &info) == STORE_OK)
		CHECK(store_clock_ms(test.store) <= info.expires_ms + 1000);
	CHECK(store_clock_ms(test.store) >= before + 30);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * The sweep
 */

/* Sweeps until nothing comes any more; what one call takes back is bounded. */
static size_t sweep(struct test_store *test, size_t budget, size_t most_at_once)
{
	size_t taken = 0, idle = 0;

	while (idle < 2000) {
		size_t now = store_tick(test->worker, budget);

		CHECK(now <= budget + most_at_once);
		taken += now;
		idle = now ? 0 : idle + 1;
	}
	return taken;
}

static void test_sweep(void)
{
	struct test_store test;
	struct store_stats before;

	open_store(&test, 32 * MIB);
	before = stats_of(&test);
	for (uint32_t i = 0; i < 40000; i++)
		CHECK_EQ(put_ttl(&test, i, 1 + i % 1000, i % 150, NULL), STORE_OK);
	for (uint32_t i = 40000; i < 40100; i++)
		CHECK_EQ(put_ttl(&test, i, 1 + i % 1000, 70000, NULL), STORE_OK);
	CHECK_EQ(sweep(&test, 1000, 1024), 0);
	test_now_ms += 500;
	CHECK_EQ(sweep(&test, 1000, 1024), 20100);
	CHECK_EQ(stats_of(&test).keys, 20000);
	test_store_check(&test);
	test_now_ms += 500;
	CHECK_EQ(sweep(&test, 10, 1024), 20000);
	CHECK_EQ(stats_of(&test).expired, 40100);
	CHECK_EQ(items_of(&test), 0);
	/* Nobody asked, and the pages are free: a class keeps a span at most. */
	CHECK(stats_of(&test).free > before.free - 40 * STORE_PAGE_SIZE);
	test_store_check(&test);
	test_store_close(&test);
}

/* One that expires among many that do not: the many are not looked at. */
static void test_sweep_ignores_lasting(void)
{
	struct test_store test;
	struct store_info info;
	uint64_t pages;
	size_t ticks = 0;

	open_store(&test, 64 * MIB);
	pages = test.size / STORE_PAGE_SIZE;
	for (uint32_t i = 0; i < 300000; i++)
		CHECK_EQ(put_ttl(&test, i, 0, 50, NULL), STORE_OK);
	CHECK_EQ(put_ttl(&test, 1000000, 10, 3000, NULL), STORE_OK);
	test_now_ms += 10;
	/* A budget for a hundred items finds it after one look at each page at most. */
	while (store_tick(test.worker, 100) == 0)
		CHECK(++ticks <= pages / 100);
	CHECK_EQ(look(&test, 1000000, &info), STORE_NOT_FOUND);
	CHECK_EQ(stats_of(&test).keys, 300000);
	test_store_check(&test);
	test_store_close(&test);
}

/* Times that were changed after the sweep had looked, in both directions. */
static void test_sweep_after_changes(void)
{
	struct test_store test;
	uint32_t key;

	open_store(&test, 8 * MIB);
	for (uint32_t i = 0; i < 1000; i++)
		CHECK_EQ(put_ttl(&test, i, 1000, 50, NULL), STORE_OK);
	CHECK_EQ(sweep(&test, 5000, 1024), 0);
	for (key = 0; key < 1000; key += 2)
		CHECK_EQ(store_expire(test.worker, &key, 4, key % 4 ? 10 : 0, NULL), STORE_OK);
	test_now_ms += 10;
	CHECK_EQ(sweep(&test, 5000, 1024), 250);
	test_now_ms += 989;
	CHECK_EQ(sweep(&test, 5000, 1024), 0);
	test_now_ms += 1;
	CHECK_EQ(sweep(&test, 5000, 1024), 500);
	test_now_ms += 100000;
	CHECK_EQ(sweep(&test, 5000, 1024), 0);
	CHECK_EQ(stats_of(&test).keys, 250);
	test_store_check(&test);
	test_store_close(&test);
}

static void test_no_budget(void)
{
	struct test_store test;

	open_store(&test, 4 * MIB);
	CHECK_EQ(put_ttl(&test, 1, 10, 50, NULL), STORE_OK);
	test_now_ms += 10;
	CHECK_EQ(store_tick(test.worker, 0), 0);
	CHECK_EQ(sweep(&test, 1, 1024), 1);
	test_store_close(&test);
}

/* One thread alone: nothing for the thread sanitizer, which takes its time. */
#define SLOW_IN_TSAN (TEST_HAS_TSAN ? TEST_SLOW : 0)

static const struct test tests[] = {
	{"the_very_millisecond", test_exact},
	{"every_operation", test_every_operation},
	{"expire", test_expire},
	{"huge_times", test_huge},
	{"the_hosts_clock", test_real_clock},
	{"sweep", test_sweep},
	{"sweep_ignores_what_lasts", test_sweep_ignores_lasting, SLOW_IN_TSAN},
	{"sweep_after_changes", test_sweep_after_changes},
	{"no_budget", test_no_budget},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_expiry", tests, TEST_COUNT(tests));
}
