/*
 * Memory goes where it is used: when values of another size come, pages move to their class, by
 * eviction or, in a store that rejects, by compaction.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "store/layout.h"
#include "store/slab.h"

#define SIZE (32 * MIB)

static uint8_t filler[2 * MIB];

static enum store_status put_number(struct test_store *test, uint64_t number, size_t length)
{
	struct store_put put = {.key = &number,
				.key_length = sizeof(number),
				.value = filler,
				.value_length = length};

	return store_put(test->worker, &put, NULL);
}

static bool is_there(struct test_store *test, uint64_t number)
{
	struct store_info info;

	return store_stat(test->worker, &number, sizeof(number), &info) == STORE_OK;
}

/* Which part of the memory, in percent, the items of a length have. */
static unsigned share_of(struct test_store *test, size_t length)
{
	struct store_stats stats;

	store_stats(test->store, &stats);
	return (unsigned)(stats.classes[slab_class_of(item_size(8, length))].used * 100 /
			  (stats.size - stats.fixed - stats.index));
}

/* Puts until so many times the memory has gone by. */
static uint64_t stream(struct test_store *test, uint64_t number, size_t length, double times)
{
	uint64_t count = (uint64_t)(times * SIZE / (double)(length + 64));

	for (uint64_t i = 0; i < count; i++)
		CHECK_EQ(put_number(test, number++, length), STORE_OK);
	return number;
}

/* Nothing is used but what is put. The new length has most of the memory once the store has been
 * filled with it two and a half times. */
static void test_shifts(void)
{
	static const size_t lengths[] = {100, 4000, 200000, 100, 200000, 4000, 1000000, 1000, 100};
	struct test_store test;
	uint64_t number = 0;

	test_store_open(&test, SIZE, STORE_EVICT);
	for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
		unsigned share;

		number = stream(&test, number, lengths[i], 2.5);
		share = share_of(&test, lengths[i]);
		if (share < 60)
			TEST_FAIL("shift %zu, to %zu bytes: %u%% of the memory", i, lengths[i],
				  share);
		test_store_check(&test);
	}
	test_store_close(&test);
}

/* The first of a new length finds room at once, and a few can be kept soon. */
static void test_soon(void)
{
	static const size_t lengths[] = {4000, 20000, 60000, 200000, 400000, 1000000};
	struct test_store test;
	uint64_t number = 0, first;
	unsigned kept;

	test_store_open(&test, SIZE, STORE_EVICT);
	for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
		number = stream(&test, number, 100, 1.5);
		first = number;
		number = stream(&test, number, lengths[i], 0.25);
		kept = 0;
		for (uint64_t j = first; j < number; j++)
			kept += is_there(&test, j);
		/* Some of a quarter of the memory. */
		if (kept < (number - first) / 5)
			TEST_FAIL("of %lu values of %zu bytes %u were kept", number - first,
				  lengths[i], kept);
	}
	test_store_check(&test);
	test_store_close(&test);
}

/* What is in use keeps its memory against a stream of another size that nobody reads. */
static void test_used_stays(void)
{
	enum { HOT = 20000 };
	struct test_store test;
	uint64_t number = HOT;
	unsigned left = 0;

	test_store_open(&test, SIZE, STORE_EVICT);
	for (uint64_t i = 0; i < HOT; i++)
		CHECK_EQ(put_number(&test, i, 100), STORE_OK);
	for (int round = 0; round < 400; round++) {
		number = stream(&test, number, 4000, 0.02);
		for (uint64_t i = 0; i < HOT; i++)
			(void)!store_get(test.worker, &i, sizeof(i), filler, 100, NULL);
	}
	for (uint64_t i = 0; i < HOT; i++)
		left += is_there(&test, i);
	CHECK(left > HOT / 10 * 9);
	test_store_check(&test);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * Without eviction
 */

static uint64_t fill(struct test_store *test, uint64_t number, size_t length)
{
	while (put_number(test, number, length) == STORE_OK)
		number++;
	return number;
}

/* Full of `small`, of which most are deleted here and there: `large` get what became free. */
static void compact(size_t small, size_t large)
{
	struct test_store test;
	struct test_rng rng;
	uint64_t end, last, freed = 0, got;
	struct store_stats stats;
	bool *kept;

	test_rng_init(&rng, small + large);
	test_store_open(&test, SIZE, STORE_REJECT);
	end = fill(&test, 0, small);
	CHECK(share_of(&test, small) > 70);
	CHECK_EQ(put_number(&test, end, large), STORE_NO_MEMORY);
	kept = calloc(end, sizeof(*kept));
	CHECK(kept);
	for (uint64_t i = 0; i < end; i++) {
		kept[i] = test_rng_below(&rng, 10) == 0;
		if (!kept[i])
			CHECK_EQ(store_delete(test.worker, &i, sizeof(i), 0, NULL), STORE_OK);
		freed += kept[i] ? 0 : item_size(8, small);
	}
	last = fill(&test, end, large);
	got = (last - end) * item_size(8, large);
	if (got < freed / 10 * 7)
		TEST_FAIL("%lu of %lu bytes for values of %zu after %zu", got, freed, large, small);
	for (uint64_t i = 0; i < end; i++)
		CHECK_EQ(is_there(&test, i), kept[i]);
	for (uint64_t i = end; i < last; i++)
		CHECK(is_there(&test, i));
	store_stats(test.store, &stats);
	CHECK_EQ(stats.evicted, 0);
	test_store_check(&test);
	free(kept);
	store_flush(test.worker);
	test_store_check(&test);
	test_store_close(&test);
}

static void test_compaction(void)
{
	compact(100, 4000);
	compact(100, 200000);
	compact(4000, 100);
	compact(4000, 200000);
	compact(100, 2 * MIB);
}

/* One value as long as half the store, after a tenth of the small ones was left. */
static void test_compaction_for_one(void)
{
	struct store_put put = {.key = "one", .key_length = 3, .value_length = SIZE / 2};
	struct store_draft draft;
	struct test_store test;
	uint64_t end;

	test_store_open(&test, SIZE, STORE_REJECT);
	end = fill(&test, 0, 200);
	for (uint64_t i = 0; i < end; i++) {
		if (i % 10)
			CHECK_EQ(store_delete(test.worker, &i, sizeof(i), 0, NULL), STORE_OK);
	}
	CHECK_EQ(store_draft_begin(test.worker, &put, &draft), STORE_OK);
	store_draft_abort(test.worker, &draft);
	for (uint64_t i = 0; i < end; i++)
		CHECK_EQ(is_there(&test, i), i % 10 == 0);
	test_store_check(&test);
	test_store_close(&test);
}

/* One thread alone: nothing for the thread sanitizer, which takes its time. */
#define SLOW_IN_TSAN (TEST_HAS_TSAN ? TEST_SLOW : 0)

static const struct test tests[] = {
	{"shifts", test_shifts, SLOW_IN_TSAN},
	{"soon", test_soon, SLOW_IN_TSAN},
	{"what_is_used_stays", test_used_stays, TEST_SLOW},
	{"compaction", test_compaction, SLOW_IN_TSAN},
	{"compaction_for_one", test_compaction_for_one, SLOW_IN_TSAN},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_balance", tests, TEST_COUNT(tests));
}
