/*
 * Scans and flushes, at rest and while other threads put and delete and the index grows.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "base/hash.h"
#include "collide.h"
#include "store/layout.h"

#define KEYS 20000u

/* Which keys a scan showed, and how often. */
struct sight {
	unsigned *seen;
	unsigned keys;
	uint64_t total;
	uint64_t stop_at; /* ends the scan before this key of a call; 0: never */
	uint64_t in_call;
};

static bool see(void *context, const void *key, size_t key_length, const struct store_info *info)
{
	struct sight *sight = context;
	uint32_t number;

	CHECK_EQ(key_length, sizeof(number));
	memcpy(&number, key, sizeof(number));
	CHECK(info->version > 0 && info->offset % 8 == 0);
	if (sight->stop_at && ++sight->in_call >= sight->stop_at)
		return false;
	sight->total++;
	if (number < sight->keys)
		sight->seen[number]++;
	return true;
}

static enum store_status put_number(struct store_worker *worker, uint32_t number, uint64_t ttl_ms)
{
	struct store_put put = {.key = &number,
				.key_length = sizeof(number),
				.value = "value",
				.value_length = 5,
				.ttl_ms = ttl_ms};

	return store_put(worker, &put, NULL);
}

static void open_sight(struct sight *sight, unsigned keys)
{
	*sight = (struct sight){.keys = keys, .seen = calloc(keys, sizeof(*sight->seen))};
	CHECK(sight->seen);
}

/* Scans to the end; returns how many calls it took. */
static unsigned scan_all(struct store_worker *worker, struct sight *sight, size_t count)
{
	uint64_t cursor = 0;
	unsigned calls = 0;

	do {
		uint64_t before = sight->total;

		sight->in_call = 0;
		store_scan(worker, &cursor, count, see, sight);
		/* About as many as were asked for: a bucket more at most. */
		CHECK(sight->total - before < count + 64 * BUCKET_SLOTS);
		calls++;
	} while (cursor);
	return calls;
}

static void test_at_rest(void)
{
	static const size_t counts[] = {1, 7, 100, 1000000};
	struct test_store test;
	struct sight sight;

	test_store_open(&test, 16 * MIB, STORE_REJECT);
	open_sight(&sight, KEYS);
	CHECK_EQ(scan_all(test.worker, &sight, 10), 1);
	CHECK_EQ(sight.total, 0);
	for (uint32_t i = 0; i < KEYS; i++)
		CHECK_EQ(put_number(test.worker, i, 0), STORE_OK);
	for (size_t i = 0; i < TEST_COUNT(counts); i++) {
		unsigned calls;

		memset(sight.seen, 0, KEYS * sizeof(*sight.seen));
		calls = scan_all(test.worker, &sight, counts[i]);
		CHECK(calls <= KEYS / counts[i] + 1);
		for (unsigned j = 0; j < KEYS; j++)
			CHECK_EQ(sight.seen[j], 1);
	}
	free(sight.seen);
	test_store_close(&test);
}

/* The function ends the call after a few keys: going on shows all of them nevertheless. */
static void test_early_stop(void)
{
	struct test_store test;
	struct sight sight;

	test_store_open(&test, 16 * MIB, STORE_REJECT);
	for (uint32_t i = 0; i < KEYS; i++)
		CHECK_EQ(put_number(test.worker, i, 0), STORE_OK);
	/* Fewer at a time would not do: keys with the same tag go together. */
	for (uint64_t stop_at = 5; stop_at < 30; stop_at += 5) {
		open_sight(&sight, KEYS);
		sight.stop_at = stop_at;
		scan_all(test.worker, &sight, 1000);
		for (unsigned j = 0; j < KEYS; j++)
			CHECK(sight.seen[j] >= 1);
		/* Only those that share a tag with the one it stopped at are shown again. */
		CHECK(sight.total < KEYS + KEYS / 100);
		free(sight.seen);
	}
	test_store_close(&test);
}

/* Stopped at the first key of a call: the place is the same, and the end is not reached. */
static void test_stop_at_once(void)
{
	struct test_store test;
	struct sight sight;
	uint64_t cursor = 0, again;

	test_store_open(&test, 16 * MIB, STORE_REJECT);
	open_sight(&sight, KEYS);
	for (uint32_t i = 0; i < KEYS; i++)
		CHECK_EQ(put_number(test.worker, i, 0), STORE_OK);
	while (sight.total < KEYS) {
		sight.stop_at = 1;
		sight.in_call = 0;
		store_scan(test.worker, &cursor, 10, see, &sight);
		CHECK(cursor != 0);
		again = cursor;
		sight.in_call = 0;
		store_scan(test.worker, &again, 10, see, &sight);
		CHECK_EQ(again, cursor);
		sight.stop_at = 0;
		store_scan(test.worker, &cursor, 10, see, &sight);
		if (!cursor)
			break;
	}
	CHECK_EQ(sight.total, KEYS);
	free(sight.seen);
	test_store_close(&test);
}

/* In the first bucket, at the first key: to stop there is not to be at the end. */
static void test_stop_at_the_first_place(void)
{
	struct test_store test;
	struct sight sight;
	uint64_t cursor = 0, seed;
	uint32_t number = 0;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	seed = ((const struct store_header *)test.memory)->hash_seed;
	while (hash64_seed(&number, sizeof(number), seed) & (SEGMENT_BUCKETS - 1))
		number++;
	CHECK_EQ(put_number(test.worker, number, 0), STORE_OK);
	open_sight(&sight, 1);
	sight.stop_at = 1;
	store_scan(test.worker, &cursor, 10, see, &sight);
	CHECK(cursor != 0);
	CHECK_EQ(sight.total, 0);
	sight.stop_at = 0;
	store_scan(test.worker, &cursor, 10, see, &sight);
	CHECK_EQ(cursor, 0);
	CHECK_EQ(sight.total, 1);
	free(sight.seen);
	test_store_close(&test);
}

static void test_expired_are_not_shown(void)
{
	struct test_store test;
	struct sight sight;

	test_store_open(&test, 16 * MIB, STORE_REJECT);
	test.options.clock_ms = test_clock_ms;
	test_store_restart(&test);
	open_sight(&sight, 1000);
	for (uint32_t i = 0; i < 1000; i++)
		CHECK_EQ(put_number(test.worker, i, i % 2 ? 50 : 0), STORE_OK);
	scan_all(test.worker, &sight, 10);
	CHECK_EQ(sight.total, 1000);
	test_now_ms += 50;
	scan_all(test.worker, &sight, 10);
	CHECK_EQ(sight.total, 1500);
	for (uint32_t i = 0; i < 1000; i++)
		CHECK_EQ(sight.seen[i], i % 2 ? 1 : 2);
	free(sight.seen);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * Keys that share bucket and tag
 */

/* A chain has 448 places. The thread sanitizer takes long for long keys, and here is one thread. */
#define COLLIDING (TEST_HAS_TSAN ? 60u : 300u)

/* Who has room for a few keys at a time, and remembers the last. */
struct narrow {
	unsigned room, taken;
	uint8_t last[KV_MAX_KEY];
	size_t last_length;
	unsigned *seen; /* by the number that a colliding key has */
	unsigned others;
};

static uint32_t number_of(const uint8_t *key)
{
	uint64_t word;

	memcpy(&word, key, sizeof(word));
	return (uint32_t)(word >> 32);
}

static bool take_few(void *context, const void *key, size_t key_length,
		     const struct store_info *info)
{
	struct narrow *narrow = context;

	CHECK(info->version > 0);
	if (narrow->taken == narrow->room)
		return false;
	narrow->taken++;
	memcpy(narrow->last, key, key_length);
	narrow->last_length = key_length;
	if (key_length == KV_MAX_KEY)
		narrow->seen[number_of(key)]++;
	else
		narrow->others++;
	return true;
}

static void put_colliding(struct test_store *test, uint32_t number)
{
	uint64_t seed = ((const struct store_header *)test->memory)->hash_seed;
	uint8_t key[KV_MAX_KEY], first[KV_MAX_KEY];
	struct store_put put = {.key = key, .key_length = sizeof(key), .value = "v"};

	collide_key(first, seed, 'x', 0);
	collide_key(key, seed, 'x', number);
	CHECK_EQ(hash64_seed(key, sizeof(key), seed), hash64_seed(first, sizeof(first), seed));
	put.value_length = 1;
	CHECK_EQ(store_put(test->worker, &put, NULL), STORE_OK);
}

static void delete_colliding(struct test_store *test, uint32_t number)
{
	uint64_t seed = ((const struct store_header *)test->memory)->hash_seed;
	uint8_t key[KV_MAX_KEY];

	collide_key(key, seed, 'x', number);
	(void)!store_delete(test->worker, key, sizeof(key), 0, NULL);
}

/* One step. False: that was the last one. */
static bool scan_narrowly(struct test_store *test, struct narrow *narrow, uint64_t *cursor,
			  bool *is_among)
{
	uint64_t before = *cursor;

	narrow->taken = 0;
	*is_among = store_scan_behind(test->worker, *is_among ? narrow->last : NULL,
				      narrow->last_length, cursor, 1000, take_few, narrow);
	CHECK(!*cursor || narrow->taken > 0 || *cursor != before);
	return *cursor != 0;
}

/* With room for one key, or two, or more, each key is shown, and none of them twice. */
static void test_colliding(void)
{
	static const unsigned rooms[] = {1, 2, 3, 7, COLLIDING, 1000};
	struct test_store test;

	test_store_open(&test, 32 * MIB, STORE_REJECT);
	for (uint32_t i = 0; i < COLLIDING; i++)
		put_colliding(&test, i);
	for (uint32_t i = 0; i < 1000; i++)
		CHECK_EQ(put_number(test.worker, i, 0), STORE_OK);
	for (size_t i = 0; i < TEST_COUNT(rooms); i++) {
		unsigned seen[COLLIDING] = {0};
		struct narrow narrow = {.room = rooms[i], .seen = seen};
		uint64_t cursor = 0;
		bool is_among = false;

		while (scan_narrowly(&test, &narrow, &cursor, &is_among))
			continue;
		for (unsigned j = 0; j < COLLIDING; j++)
			CHECK_EQ(seen[j], 1);
		CHECK_EQ(narrow.others, 1000);
	}
	test_store_close(&test);
}

/* Between the steps some are deleted, some put again, others come: those that stay are shown, and
 * it comes to an end although all of them change all the time. */
static void test_colliding_while_changing(void)
{
	unsigned seen[COLLIDING] = {0}, steps = 0;
	struct narrow narrow = {.room = 2, .seen = seen};
	bool is_among = false;
	struct test_store test;
	uint64_t cursor = 0;
	uint32_t other = 0;

	test_store_open(&test, 32 * MIB, STORE_REJECT);
	for (uint32_t i = 0; i < COLLIDING; i++)
		put_colliding(&test, i);
	while (scan_narrowly(&test, &narrow, &cursor, &is_among)) {
		CHECK(++steps < 2 * (KEYS + COLLIDING));
		if (!is_among)
			continue;
		/* Some that were shown before are gone: those behind them are fewer places away. */
		for (uint32_t i = 1; i < 10; i += 2)
			if (number_of(narrow.last) % 10 == 0 && number_of(narrow.last) > i)
				delete_colliding(&test, number_of(narrow.last) - i);
		for (uint32_t i = 0; i < COLLIDING; i += 2)
			put_colliding(&test, i);
		/* And the index grows meanwhile. */
		for (unsigned i = 0; i < 200 && other < KEYS; i++)
			CHECK_EQ(put_number(test.worker, other++, 0), STORE_OK);
	}
	for (unsigned i = 0; i < COLLIDING; i += 2)
		CHECK(seen[i] >= 1);
	test_store_check(&test);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * While others write
 */

struct writer {
	struct store *store;
	_Atomic bool stop;
	_Atomic uint64_t rounds;
	uint32_t first; /* numbers of its own keys */
	uint32_t count;
};

/* Puts more and more keys, so that the index grows, and deletes some of its own. */
static void *write_keys(void *context)
{
	struct writer *writer = context;
	struct store_worker *worker;
	uint32_t next = writer->first;

	CHECK_OK(store_worker_open(writer->store, &worker));
	while (!atomic_load(&writer->stop)) {
		uint32_t gone = writer->first + (next - writer->first) / 2;

		if (next - writer->first < writer->count) {
			CHECK_EQ(put_number(worker, next++, 0), STORE_OK);
			if (next % 4 == 0)
				(void)!store_delete(worker, &gone, sizeof(gone), 0, NULL);
		} else {
			CHECK_EQ(put_number(worker, gone, 0), STORE_OK);
			(void)!store_delete(worker, &gone, sizeof(gone), 0, NULL);
		}
		atomic_fetch_add(&writer->rounds, 1);
	}
	store_worker_close(worker);
	return NULL;
}

static void test_while_growing(void)
{
	struct test_store test;
	struct store_stats before, after;
	struct writer writer = {.first = KEYS, .count = 400000};
	pthread_t thread;
	struct sight sight;
	unsigned scans = 0;

	test_store_open(&test, 128 * MIB, STORE_REJECT);
	for (uint32_t i = 0; i < KEYS; i++)
		CHECK_EQ(put_number(test.worker, i, 0), STORE_OK);
	store_stats(test.store, &before);
	writer.store = test.store;
	CHECK_EQ(pthread_create(&thread, NULL, write_keys, &writer), 0);
	do {
		open_sight(&sight, KEYS);
		sight.stop_at = scans % 3 == 2 ? 20 : 0;
		scan_all(test.worker, &sight, 1 + 300 * (size_t)(scans % 4));
		for (unsigned i = 0; i < KEYS; i++) {
			if (!sight.seen[i])
				TEST_FAIL("scan %u missed key %u", scans, i);
		}
		free(sight.seen);
		scans++;
		store_stats(test.store, &after);
	} while (after.buckets < before.buckets * 4 || scans < 5);
	atomic_store(&writer.stop, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	test_store_check(&test);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * Flush
 */

static void check_empty(struct test_store *test)
{
	struct store_stats stats;

	store_stats(test->store, &stats);
	CHECK_EQ(stats.keys, 0);
	CHECK_EQ(stats.overflow_buckets, 0);
	for (unsigned i = 0; i < STORE_CLASS_STATS; i++)
		CHECK_EQ(stats.classes[i].items + stats.classes[i].used + stats.classes[i].wasted,
			 0);
	test_store_check(test);
}

static void test_flush(void)
{
	struct test_store test;
	int64_t sum;

	test_store_open(&test, 64 * MIB, STORE_REJECT);
	store_flush(test.worker);
	check_empty(&test);
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < KEYS; i++) {
			struct store_put put = {.key = &i,
						.key_length = sizeof(i),
						.value = test.memory,
						.value_length = i % 2000};

			CHECK_EQ(store_put(test.worker, &put, NULL), STORE_OK);
		}
		CHECK_EQ(store_add(test.worker, "counter", 7, 1, &sum, NULL), STORE_OK);
		CHECK_EQ(sum, 1);
		store_flush(test.worker);
		check_empty(&test);
	}
	test_store_close(&test);
}

/* What was there when it began is gone, although others put and the index grows. */
static void test_flush_while_growing(void)
{
	struct test_store test;
	struct writer writer = {.first = KEYS, .count = 200000};
	struct store_info info;
	pthread_t thread;

	test_store_open(&test, 128 * MIB, STORE_REJECT);
	writer.store = test.store;
	CHECK_EQ(pthread_create(&thread, NULL, write_keys, &writer), 0);
	for (int round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < KEYS / 10; i++)
			CHECK_EQ(put_number(test.worker, i, 0), STORE_OK);
		while (atomic_load(&writer.rounds) < (uint64_t)round * 2000)
			test_sleep_ms(1);
		store_flush(test.worker);
		for (uint32_t i = 0; i < KEYS / 10; i++)
			CHECK_EQ(store_stat(test.worker, &i, sizeof(i), &info), STORE_NOT_FOUND);
	}
	atomic_store(&writer.stop, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	test_store_check(&test);
	store_flush(test.worker);
	check_empty(&test);
	test_store_close(&test);
}

/* One thread alone: nothing for the thread sanitizer, which takes its time. */
#define SLOW_IN_TSAN (TEST_HAS_TSAN ? TEST_SLOW : 0)

static const struct test tests[] = {
	{"at_rest", test_at_rest},
	{"early_stop", test_early_stop},
	{"stop_at_once", test_stop_at_once},
	{"stop_at_the_first_place", test_stop_at_the_first_place, TEST_SLOW},
	{"expired_are_not_shown", test_expired_are_not_shown},
	{"colliding", test_colliding},
	{"colliding_while_changing", test_colliding_while_changing},
	{"while_growing", test_while_growing},
	{"flush", test_flush, SLOW_IN_TSAN},
	{"flush_while_growing", test_flush_while_growing},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_scan", tests, TEST_COUNT(tests));
}
