/*
 * The index becomes smaller when most keys are gone, and its pages are used for something else:
 * that the memory comes back, and that no reader, writer, scan or restore is led astray.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arena.h"
#include "store/internal.h"
#include "store/reader_glance.h"

#define MAX_TICKS 100000u

static enum store_status put_number(struct store_worker *worker, uint64_t number, uint64_t ttl_ms)
{
	uint64_t value[3] = {number, ~number, number * 7};
	struct store_put put = {.key = &number,
				.key_length = sizeof(number),
				.value = value,
				.value_length = sizeof(value),
				.ttl_ms = ttl_ms};

	return store_put(worker, &put, NULL);
}

static void check_number(struct store_worker *worker, uint64_t number)
{
	const uint64_t expected[3] = {number, ~number, number * 7};
	uint64_t value[3] = {0};
	struct store_info info;

	CHECK_EQ(store_get(worker, &number, sizeof(number), value, sizeof(value), &info), STORE_OK);
	CHECK_EQ(info.value_length, sizeof(value));
	CHECK_MEM(value, expected, sizeof(value));
}

static uint64_t index_bytes(struct test_store *test)
{
	struct store_stats stats;

	store_stats(test->store, &stats);
	return stats.index;
}

/* Ticks until the index has no more than this. */
static void shrink_to(struct test_store *test, uint64_t bytes)
{
	for (unsigned i = 0; index_bytes(test) > bytes; i++) {
		CHECK(i < MAX_TICKS);
		store_tick(test->worker, 1);
	}
}

/* All of it, again and again, and a few keys stay there all the time. */
static void test_memory_comes_back(void)
{
	const uint64_t keys = TEST_HAS_SANITIZER ? 100000 : 1000000, kept = 500;
	struct test_store test;
	uint64_t before;

	test_store_open(&test, 256 * MIB, STORE_REJECT);
	before = index_bytes(&test);
	CHECK_EQ(before, STORE_PAGE_SIZE);
	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < keys; i++)
			CHECK_EQ(put_number(test.worker, i, 0), STORE_OK);
		CHECK(index_bytes(&test) > keys * 16);
		store_flush(test.worker);
		for (uint64_t i = 0; i < kept; i++)
			CHECK_EQ(put_number(test.worker, i, 0), STORE_OK);
		shrink_to(&test, before);
		test_store_check(&test);
		CHECK_EQ(index_bucket_count(&test.store->index), SEGMENT_BUCKETS);
		for (uint64_t i = 0; i < kept; i++)
			check_number(test.worker, i);
	}
	/* Restored, it has as few buckets. */
	test_store_restart(&test);
	CHECK_EQ(index_bytes(&test), before);
	for (uint64_t i = 0; i < kept; i++)
		check_number(test.worker, i);
	test_store_close(&test);
}

/* A worker that is about to lock a bucket keeps all pages from being given back. */
static void test_guard_keeps_pages(void)
{
	struct test_store test;
	struct store_worker *other;
	uint64_t before;

	test_store_open(&test, 16 * MIB, STORE_REJECT);
	CHECK_OK(store_worker_open(test.store, &other));
	for (uint64_t i = 0; i < 20000; i++)
		CHECK_EQ(put_number(test.worker, i, 0), STORE_OK);
	store_flush(test.worker);
	atomic_store(&other->guard.is_set, true);
	/* Overflow buckets are reached by locked ones only, and are no concern here. */
	index_give_overflow_pages(&test.store->index);
	before = index_bytes(&test);
	for (int i = 0; i < 20; i++)
		store_tick(test.worker, 1);
	CHECK_EQ(index_bucket_count(&test.store->index), SEGMENT_BUCKETS);
	CHECK_EQ(index_bytes(&test), before);
	CHECK(before > STORE_PAGE_SIZE);
	test_store_check(&test);
	atomic_store(&other->guard.is_set, false);
	shrink_to(&test, STORE_PAGE_SIZE);
	store_worker_close(other);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * A reader that is overtaken
 */

static struct {
	struct test_store test;
	const struct bucket *bucket; /* that the reader is looking at */
	struct bucket line;	     /* what it was */
	bool is_due;
	bool is_alike;
} overtaken;

/* Fills all memory with copies of what the bucket was, 64 bytes by 64 bytes. */
static void fill_with_lines(struct test_store *test)
{
	static uint8_t value[MIB];

	for (size_t i = 0; i < sizeof(value); i += BUCKET_SIZE)
		memcpy(value + i, (const void *)&overtaken.line, BUCKET_SIZE);
	for (size_t length = sizeof(value); length >= ITEM_WIDE; length /= 2) {
		struct store_put put = {.value = value, .value_length = length};
		uint64_t number = (uint64_t)length << 32;

		put.key = &number;
		put.key_length = sizeof(number);
		while (store_put(test->worker, &put, NULL) == STORE_OK)
			number++;
	}
}

/* The reader's clock, which it asks while it looks at an item that can expire. */
static uint64_t overtake(void)
{
	struct test_store *test = &overtaken.test;

	if (overtaken.is_due) {
		overtaken.is_due = false;
		store_flush(test->worker);
		shrink_to(test, STORE_PAGE_SIZE);
		fill_with_lines(test);
		/* True if the header that the reader will find is the one that it found before. */
		overtaken.is_alike = overtaken.bucket->header == overtaken.line.header;
	}
	return store_clock_ms(test->store);
}

/* In the middle of a get the page of its bucket becomes part of a value that looks like the bucket:
 * only the count of shrinks can tell. */
static void get_overtaken(bool by_glance)
{
	enum { KEYS = 12000 };
	struct test_store *test = &overtaken.test;
	struct reader reader;
	unsigned overtakings = 0;

	test_store_open(test, 8 * MIB, STORE_REJECT);
	for (uint64_t key = 0; overtakings < 3; key++) {
		uint64_t number, hash, value[3] = {0};
		struct reader_item found;

		CHECK(key < KEYS);
		store_flush(test->worker);
		for (uint64_t i = 0; i < KEYS; i++)
			CHECK_EQ(put_number(test->worker, i, 3600000), STORE_OK);
		reader = test->store->reader;
		reader.clock_ms = overtake;
		hash = reader_hash(&reader, &key, sizeof(key));
		number = glance_home(&reader, hash);
		/* One that goes away, and is not where the long item's own header will be. */
		if (number < SEGMENT_BUCKETS || number % SEGMENT_BUCKETS < 16)
			continue;
		overtaken.bucket = reader_bucket(&reader, reader.directory, number);
		memcpy((void *)&overtaken.line, (const void *)overtaken.bucket, BUCKET_SIZE);
		overtaken.is_due = true;
		overtaken.is_alike = false;
		if (by_glance)
			CHECK_EQ(reader_glance(&reader, hash, &key, sizeof(key), value,
					       sizeof(value), &found),
				 GLANCE_LOOK);
		else
			CHECK_EQ(reader_look(&reader, hash, &key, sizeof(key), value, sizeof(value),
					     &found),
				 READER_MISS);
		/* Not if a glance did not come as far, for the key overflows, or the page is one
		 * of the few that are free even now. */
		overtakings += overtaken.is_alike;
	}
	test_store_close(test);
}

static void test_glance_is_overtaken(void)
{
	get_overtaken(true);
}

static void test_look_is_overtaken(void)
{
	get_overtaken(false);
}

/* ------------------------------------------------------------------------------------------
 * Threads
 */

#define THREADS 3u
#define KEPT	200u

struct crowd {
	struct test_store test;
	atomic_bool stop;
};

struct member {
	struct crowd *crowd;
	uint64_t number;
	pthread_t thread;
};

static uint64_t key_of(uint64_t member, uint64_t i)
{
	return (member + 1) << 32 | i;
}

/* Puts many keys, finds them all, and deletes them, again and again. */
static void *fill_and_empty(void *context)
{
	const uint64_t keys = TEST_HAS_SANITIZER ? 5000 : 20000;
	struct member *me = context;
	struct store_worker *worker;

	CHECK_OK(store_worker_open(me->crowd->test.store, &worker));
	while (!atomic_load(&me->crowd->stop)) {
		for (uint64_t i = 0; i < keys; i++)
			CHECK_EQ(put_number(worker, key_of(me->number, i), 0), STORE_OK);
		for (uint64_t i = 0; i < keys; i++)
			check_number(worker, key_of(me->number, i));
		for (uint64_t i = 0; i < keys; i++) {
			uint64_t key = key_of(me->number, i);

			CHECK_EQ(store_delete(worker, &key, sizeof(key), 0, NULL), STORE_OK);
		}
	}
	store_worker_close(worker);
	return NULL;
}

static bool see_kept(void *context, const void *key, size_t key_length,
		     const struct store_info *info)
{
	unsigned *seen = context;
	uint64_t number;

	CHECK_EQ(key_length, sizeof(number));
	CHECK(info->version > 0);
	memcpy(&number, key, sizeof(number));
	if (number < KEPT)
		seen[number]++;
	return true;
}

/* Every key that stays is shown, and only once. */
static void *scan_on(void *context)
{
	struct member *me = context;
	struct store_worker *worker;

	CHECK_OK(store_worker_open(me->crowd->test.store, &worker));
	while (!atomic_load(&me->crowd->stop)) {
		unsigned seen[KEPT] = {0};
		uint64_t cursor = 0;

		do {
			store_scan(worker, &cursor, 20, see_kept, seen);
		} while (cursor);
		for (unsigned i = 0; i < KEPT; i++)
			CHECK_EQ(seen[i], 1);
	}
	store_worker_close(worker);
	return NULL;
}

/* Until the index has shrunk often enough, with threads at it all the time. */
static void test_threads(void)
{
	struct crowd crowd = {0};
	struct member members[THREADS];
	struct store_header *header;

	test_store_open(&crowd.test, 64 * MIB, STORE_REJECT);
	header = crowd.test.memory;
	for (uint64_t i = 0; i < KEPT; i++)
		CHECK_EQ(put_number(crowd.test.worker, i, 0), STORE_OK);
	for (unsigned i = 0; i < THREADS; i++) {
		members[i] = (struct member){.crowd = &crowd, .number = i};
		CHECK_EQ(pthread_create(&members[i].thread, NULL, i ? fill_and_empty : scan_on,
					&members[i]),
			 0);
	}
	while (atomic_load(&header->shrinks) < (TEST_HAS_SANITIZER ? 10 : 100)) {
		store_tick(crowd.test.worker, 1);
		for (uint64_t i = 0; i < KEPT; i++)
			check_number(crowd.test.worker, i);
	}
	atomic_store(&crowd.stop, true);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(members[i].thread, NULL), 0);
	shrink_to(&crowd.test, STORE_PAGE_SIZE);
	test_store_check(&crowd.test);
	test_store_close(&crowd.test);
}

/* ------------------------------------------------------------------------------------------
 * Killed while it shrinks
 */

static void grow_and_shrink(void *context)
{
	struct test_store *test = context;

	for (;;) {
		for (uint64_t i = KEPT; i < 20000; i++)
			CHECK_EQ(put_number(test->worker, i, 0), STORE_OK);
		for (uint64_t i = KEPT; i < 20000; i++)
			CHECK_EQ(store_delete(test->worker, &i, sizeof(i), 0, NULL), STORE_OK);
		shrink_to(test, STORE_PAGE_SIZE);
	}
}

static void test_killed(void)
{
	struct test_store test;
	struct test_rng rng;

	test_rng_init(&rng, 5);
	test_store_open(&test, 16 * MIB, STORE_REJECT);
	for (uint64_t i = 0; i < KEPT; i++)
		CHECK_EQ(put_number(test.worker, i, 0), STORE_OK);
	for (int round = 0; round < 40; round++) {
		pid_t child = test_spawn(grow_and_shrink, &test);

		test_sleep_ms((unsigned)test_rng_below(&rng, 40));
		test_kill(child);
		test_store_restart(&test);
		test_store_check(&test);
		for (uint64_t i = 0; i < KEPT; i++)
			check_number(test.worker, i);
		/* The child begins with keys that are all there or all gone. */
		for (uint64_t i = KEPT; i < 20000; i++) {
			enum store_status status =
				store_delete(test.worker, &i, sizeof(i), 0, NULL);

			CHECK(status == STORE_OK || status == STORE_NOT_FOUND);
		}
		shrink_to(&test, STORE_PAGE_SIZE);
		test_store_check(&test);
	}
	test_store_close(&test);
}

static const struct test tests[] = {
	{"memory_comes_back", test_memory_comes_back, 0, 120},
	{"a_guard_keeps_pages", test_guard_keeps_pages},
	{"a_glance_is_overtaken", test_glance_is_overtaken},
	{"a_look_is_overtaken", test_look_is_overtaken},
	{"threads", test_threads, 0, 200},
	{"killed", test_killed, 0, 200},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_shrink", tests, TEST_COUNT(tests));
}
