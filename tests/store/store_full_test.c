/*
 * Full stores: rejecting loses nothing and leaks nothing, evicting takes what is cold and never
 * what is pinned, and neither writes a byte outside of the memory that it was given.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arena.h"
#include "base/hash.h"
#include "store/layout.h"

/* What a value repeats: told from all others by its key's number and a stamp. */
static uint64_t pattern_of(uint32_t number, uint32_t stamp)
{
	return ((uint64_t)number << 32 | stamp) * 0x9e3779b97f4a7c15u;
}

static enum store_status put_pattern(struct store_worker *worker, uint32_t number, uint32_t stamp,
				     size_t length)
{
	struct store_put put = {.key = &number, .key_length = 4, .value_length = length};
	uint64_t word = pattern_of(number, stamp);
	struct store_draft draft;
	enum store_status status = store_draft_begin(worker, &put, &draft);

	if (status != STORE_OK)
		return status;
	for (size_t i = 0; i < length / 8; i++)
		((uint64_t *)draft.value)[i] = word;
	memcpy((uint8_t *)draft.value + length / 8 * 8, &word, length % 8);
	return store_draft_commit(worker, &put, &draft, NULL);
}

static void check_pattern(struct store_worker *worker, uint32_t number, uint32_t stamp,
			  size_t length)
{
	uint64_t word = pattern_of(number, stamp);
	struct store_view view;

	CHECK_EQ(store_pin(worker, &number, 4, &view), STORE_OK);
	CHECK_EQ(view.length, length);
	for (size_t i = 0; i < length; i += 8)
		CHECK_MEM((const uint8_t *)view.value + i, &word, length - i < 8 ? length - i : 8);
	store_unpin(worker, &view);
}

static bool is_there(struct test_store *test, uint32_t number)
{
	struct store_info info;

	return store_stat(test->worker, &number, 4, &info) == STORE_OK;
}

static void check_empty(struct test_store *test)
{
	struct store_stats stats;

	store_stats(test->store, &stats);
	CHECK_EQ(stats.keys, 0);
	for (unsigned i = 0; i < STORE_CLASS_STATS; i++)
		CHECK_EQ(stats.classes[i].items + stats.classes[i].used + stats.classes[i].wasted,
			 0);
	test_store_check(test);
}

/* ------------------------------------------------------------------------------------------
 * Rejecting
 */

enum { MODEL_KEYS = 20000 };

struct entry {
	uint32_t stamp; /* 0: not there */
	uint32_t length;
};

/* Random puts of all lengths until it is full, and on. Returns how many bytes are in. */
static size_t fill(struct test_store *test, struct test_rng *rng, struct entry *entries,
		   unsigned steps)
{
	size_t bytes = 0, refused = 0;

	for (unsigned i = 1; i <= steps; i++) {
		uint32_t number = (uint32_t)test_rng_below(rng, MODEL_KEYS);
		uint32_t length = (uint32_t)test_rng_below(rng, 16u << test_rng_below(rng, 12));
		enum store_status status = put_pattern(test->worker, number, i, length);

		if (status == STORE_OK)
			entries[number] = (struct entry){i, length};
		else
			CHECK_EQ(status, STORE_NO_MEMORY);
		refused += status != STORE_OK;
	}
	CHECK(refused > steps / 10);
	for (uint32_t i = 0; i < MODEL_KEYS; i++) {
		CHECK_EQ(is_there(test, i), entries[i].stamp != 0);
		if (entries[i].stamp)
			check_pattern(test->worker, i, entries[i].stamp, entries[i].length);
		bytes += entries[i].length;
	}
	test_store_check(test);
	return bytes;
}

static void test_reject(void)
{
	struct entry *entries = calloc(MODEL_KEYS, sizeof(*entries));
	struct store_stats stats;
	struct test_store test;
	struct test_rng rng;
	size_t first = 0;

	CHECK(entries);
	test_rng_init(&rng, 1);
	test_store_open(&test, 4 * MIB, STORE_REJECT);
	for (int round = 0; round < 4; round++) {
		size_t bytes = fill(&test, &rng, entries, 20000);

		CHECK(bytes > 2 * MIB);
		first = round == 0 ? bytes : first;
		/* As much as at the first time: nothing has leaked. */
		CHECK(bytes > first / 10 * 8);
		for (uint32_t i = 0; i < MODEL_KEYS && round % 2; i++) {
			CHECK_EQ(store_delete(test.worker, &i, 4, 0, NULL),
				 entries[i].stamp ? STORE_OK : STORE_NOT_FOUND);
		}
		if (round % 2 == 0)
			store_flush(test.worker);
		memset(entries, 0, MODEL_KEYS * sizeof(*entries));
		check_empty(&test);
	}
	store_stats(test.store, &stats);
	CHECK(stats.no_memory > 0);
	CHECK_EQ(stats.evicted, 0);
	free(entries);
	test_store_close(&test);
}

/* Whatever was there before: once all is deleted there is room for anything that ever fits. */
static void test_room_after_deleting(void)
{
	struct test_store test;

	test_store_open(&test, STORE_MIN_SIZE, STORE_REJECT);
	for (size_t length = 10; length < 400000; length += length / 9 + 8) {
		CHECK_EQ(put_pattern(test.worker, 1, 1, length), STORE_OK);
		check_pattern(test.worker, 1, 1, length);
		CHECK_EQ(store_delete(test.worker, &(uint32_t){1}, 4, 0, NULL), STORE_OK);
	}
	check_empty(&test);
	CHECK_EQ(put_pattern(test.worker, 1, 1, 850000), STORE_OK);
	store_flush(test.worker);
	check_empty(&test);
	test_store_close(&test);
}

/* The next key whose hash ends in ten zeroes. */
static uint32_t next_of_bucket_0(const struct test_store *test, uint32_t number)
{
	uint64_t seed = ((const struct store_header *)test->memory)->hash_seed;

	while (hash64_seed(&number, 4, seed) & (SEGMENT_BUCKETS - 1))
		number++;
	return number;
}

/* There is room for an item but not for its slot. */
static void no_room_in_index(enum store_on_full on_full)
{
	uint32_t keys[BUCKET_SLOTS + 1], number = 0, big = UINT32_MAX;
	struct store_stats before, after;
	struct test_store test;
	enum store_status status;

	test_store_open(&test, STORE_MIN_SIZE, on_full);
	for (int i = 0; i <= BUCKET_SLOTS; i++) {
		keys[i] = next_of_bucket_0(&test, number);
		number = keys[i] + 1;
	}
	for (int i = 0; i < BUCKET_SLOTS; i++)
		CHECK_EQ(put_pattern(test.worker, keys[i], 1, 8), STORE_OK);
	store_stats(test.store, &before);
	CHECK_EQ(put_pattern(test.worker, big, 1, before.free - 100), STORE_OK);
	store_stats(test.store, &before);
	CHECK_EQ(before.free, 0);
	status = put_pattern(test.worker, keys[BUCKET_SLOTS], 1, 8);
	store_stats(test.store, &after);
	if (on_full == STORE_REJECT) {
		CHECK_EQ(status, STORE_NO_MEMORY);
		CHECK_EQ(after.keys, before.keys);
		CHECK_EQ(after.classes[0].items, before.classes[0].items);
		CHECK_EQ(store_delete(test.worker, &big, 4, 0, NULL), STORE_OK);
		CHECK_EQ(put_pattern(test.worker, keys[BUCKET_SLOTS], 1, 8), STORE_OK);
	} else {
		CHECK_EQ(status, STORE_OK);
		CHECK(!is_there(&test, big));
	}
	for (int i = 0; i <= BUCKET_SLOTS; i++)
		check_pattern(test.worker, keys[i], 1, 8);
	test_store_check(&test);
	store_flush(test.worker);
	check_empty(&test);
	test_store_close(&test);
}

static void test_no_index_page(void)
{
	no_room_in_index(STORE_REJECT);
	no_room_in_index(STORE_EVICT);
}

/* ------------------------------------------------------------------------------------------
 * Evicting
 */

enum use { USED_BY_GET, USED_BY_TOUCH, CLAIMED_WRONGLY };

static void use_key(struct test_store *test, uint32_t number, enum use use)
{
	struct store_info info;
	char value[200];

	if (use == USED_BY_GET) {
		(void)!store_get(test->worker, &number, 4, value, sizeof(value), NULL);
		return;
	}
	if (store_stat(test->worker, &number, 4, &info) != STORE_OK)
		return;
	if (use == USED_BY_TOUCH) {
		store_touch(test->worker, info.offset, info.version);
		return;
	}
	store_touch(test->worker, info.offset, info.version + 1);
	store_touch(test->worker, info.offset, 0);
	store_touch(test->worker, info.offset + 8, info.version);
	store_touch(test->worker, 0, info.version);
	store_touch(test->worker, test->size, 1);
	store_touch(test->worker, test->size - 64, info.version);
	store_touch(test->worker, UINT64_MAX, info.version);
}

/* Of 2000 keys that are used while ten times the memory goes by, how many are still there. */
static unsigned survivors(enum use use)
{
	struct test_store test;
	unsigned left = 0;

	test_store_open(&test, 4 * MIB, STORE_EVICT);
	for (uint32_t i = 0; i < 2000; i++)
		CHECK_EQ(put_pattern(test.worker, i, 1, 100), STORE_OK);
	for (uint32_t i = 0; i < 300000; i++) {
		CHECK_EQ(put_pattern(test.worker, 10000 + i, 1, 100), STORE_OK);
		if (i % 4 == 0)
			use_key(&test, i / 4 % 2000, use);
	}
	for (uint32_t i = 0; i < 2000; i++)
		left += is_there(&test, i);
	test_store_check(&test);
	test_store_close(&test);
	return left;
}

static void test_cold_first(void)
{
	CHECK(survivors(USED_BY_GET) > 1950);
	CHECK(survivors(USED_BY_TOUCH) > 1950);
	CHECK(survivors(CLAIMED_WRONGLY) < 20);
}

/* A put makes room for itself, and not for many others. */
static void test_no_more_than_needed(void)
{
	static const size_t lengths[] = {100, 5000, 60000, 300000, 700000};

	for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
		struct store_stats before, after;
		struct test_store test;
		uint32_t number = 0;
		uint64_t allowed;

		test_store_open(&test, 8 * MIB, STORE_EVICT);
		do {
			CHECK_EQ(put_pattern(test.worker, number++, 1, lengths[i]), STORE_OK);
			store_stats(test.store, &before);
		} while (before.evicted == 0);
		for (int j = 0; j < 100; j++)
			CHECK_EQ(put_pattern(test.worker, number++, 1, lengths[i]), STORE_OK);
		store_stats(test.store, &after);
		/* As many as came, and what a worker keeps; and a span, of which there are 32 at
		 * least, if the index needed a page. */
		allowed = 100 + 16;
		if (after.index > before.index)
			allowed += 8 * MIB / 32 / lengths[i];
		CHECK(after.evicted - before.evicted <= allowed);
		test_store_close(&test);
	}
}

/* Views hold their items in the store, however much goes by. */
static void test_pinned_stay(void)
{
	enum { PINNED = 2000 };
	struct store_view *views = calloc(PINNED, sizeof(*views));
	struct test_store test;

	CHECK(views);
	test_store_open(&test, 4 * MIB, STORE_EVICT);
	for (uint32_t i = 0; i < PINNED; i++) {
		CHECK_EQ(put_pattern(test.worker, i, 1, 100 + i % 7 * 100), STORE_OK);
		CHECK_EQ(store_pin(test.worker, &i, 4, &views[i]), STORE_OK);
	}
	for (uint32_t i = 0; i < 100000; i++)
		CHECK_EQ(put_pattern(test.worker, PINNED + i, 1, 10 + i % 900), STORE_OK);
	for (uint32_t i = 0; i < PINNED; i++) {
		uint64_t word = pattern_of(i, 1);

		check_pattern(test.worker, i, 1, 100 + i % 7 * 100);
		CHECK_MEM(views[i].value, &word, 8);
		store_unpin(test.worker, &views[i]);
	}
	/* Now they can go. */
	for (uint32_t i = 0; i < 100000; i++)
		CHECK_EQ(put_pattern(test.worker, 200000 + i, 1, 10 + i % 900), STORE_OK);
	CHECK(!is_there(&test, 0) && !is_there(&test, PINNED / 2));
	test_store_check(&test);
	free(views);
	test_store_close(&test);
}

/* All that a class has is pinned or being written: others have to give. */
static void others_give(size_t length, unsigned drafts)
{
	struct store_put put = {.key = "draft", .key_length = 5, .value_length = length};
	struct store_draft taken[8];
	struct store_view view;
	struct test_store test;

	CHECK(drafts <= TEST_COUNT(taken));
	test_store_open(&test, 8 * MIB, STORE_EVICT);
	for (uint32_t i = 0; i < 100000; i++)
		CHECK_EQ(put_pattern(test.worker, i, 1, 100), STORE_OK);
	CHECK_EQ(put_pattern(test.worker, UINT32_MAX, 1, length), STORE_OK);
	CHECK_EQ(store_pin(test.worker, &(uint32_t){UINT32_MAX}, 4, &view), STORE_OK);
	for (unsigned i = 0; i < drafts; i++)
		CHECK_EQ(store_draft_begin(test.worker, &put, &taken[i]), STORE_OK);
	for (unsigned i = 0; i < drafts; i++)
		store_draft_abort(test.worker, &taken[i]);
	store_unpin(test.worker, &view);
	test_store_check(&test);
	test_store_close(&test);
}

static void test_others_give(void)
{
	others_give(400000, 8);
	others_give(200000, 8);
	others_give(60000, 8);
	others_give(700000, 4);
}

/* Everything is pinned: there is nothing to be evicted, and that is an answer. */
static void test_all_pinned(void)
{
	struct store_view *views = calloc(10000, sizeof(*views));
	struct test_store test;
	uint32_t count = 0;

	CHECK(views);
	test_store_open(&test, STORE_MIN_SIZE, STORE_EVICT);
	while (put_pattern(test.worker, count, 1, 300) == STORE_OK) {
		CHECK_EQ(store_pin(test.worker, &count, 4, &views[count]), STORE_OK);
		CHECK(++count < 10000);
	}
	CHECK(count > 1500);
	CHECK_EQ(put_pattern(test.worker, count, 1, 100000), STORE_NO_MEMORY);
	for (uint32_t i = 0; i < count; i++)
		check_pattern(test.worker, i, 1, 300);
	test_store_check(&test);
	for (uint32_t i = 0; i < count; i++)
		store_unpin(test.worker, &views[i]);
	CHECK_EQ(put_pattern(test.worker, count, 1, 100000), STORE_OK);
	store_flush(test.worker);
	check_empty(&test);
	free(views);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * Bounds
 */

/* The store's memory between two pages that nobody may touch; so is the odd rest. */
static void run_guarded(enum store_on_full on_full, bool zero_freed)
{
	size_t size = 2 * MIB + 3 * 4096, rest = 2 * MIB;
	uint8_t *memory = mmap(NULL, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct store_options options = {.memory = memory + 4096,
					.size = size,
					.on_full = on_full,
					.zero_freed = zero_freed};
	struct store_worker *worker;
	struct store *store;
	struct test_rng rng;
	char why[200] = "";

	CHECK(memory != MAP_FAILED);
	CHECK_EQ(mprotect(memory + 4096, rest, PROT_READ | PROT_WRITE), 0);
	test_rng_init(&rng, on_full);
	CHECK_OK(store_create(&options, &store));
	CHECK_OK(store_worker_open(store, &worker));
	for (uint32_t i = 0; i < 30000; i++) {
		uint32_t number = (uint32_t)test_rng_below(&rng, 5000);
		size_t length = test_rng_below(&rng, 16u << test_rng_below(&rng, 18));

		(void)!put_pattern(worker, number, i, length);
		number = (uint32_t)test_rng_below(&rng, 5000);
		if (i % 3 == 0)
			(void)!store_delete(worker, &number, 4, 0, NULL);
		store_touch(worker, test_rng_next(&rng) >> test_rng_below(&rng, 64), i);
		if (i % 100 == 0)
			store_tick(worker, 1000);
	}
	CHECK(store_is_valid(store, why, sizeof(why)));
	store_flush(worker);
	store_worker_close(worker);
	store_destroy(store);
	munmap(memory, size + 8192);
}

static void test_guarded(void)
{
	run_guarded(STORE_EVICT, false);
	run_guarded(STORE_EVICT, true);
	run_guarded(STORE_REJECT, false);
}

/* One thread alone: nothing for the thread sanitizer, which takes its time. */
#define SLOW_IN_TSAN (TEST_HAS_TSAN ? TEST_SLOW : 0)

static const struct test tests[] = {
	{"rejecting_loses_nothing", test_reject, SLOW_IN_TSAN},
	{"room_after_deleting", test_room_after_deleting},
	{"no_page_for_the_index", test_no_index_page},
	{"cold_items_go_first", test_cold_first, SLOW_IN_TSAN},
	{"no_more_than_needed", test_no_more_than_needed, SLOW_IN_TSAN},
	{"pinned_items_stay", test_pinned_stay, SLOW_IN_TSAN},
	{"others_give", test_others_give, SLOW_IN_TSAN},
	{"everything_is_pinned", test_all_pinned},
	{"never_outside_of_the_memory", test_guarded, SLOW_IN_TSAN},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_full", tests, TEST_COUNT(tests));
}
