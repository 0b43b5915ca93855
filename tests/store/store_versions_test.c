/*
 * Versions: none is given out twice, and those of a key only grow, whichever worker puts it and
 * however it went away before; also over restarts, with the memory and without.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "store/layout.h"

#define WORKERS 5u
#define KEYS	20000u

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static enum store_status put_number(struct store_worker *worker, uint32_t number, size_t length,
				    uint64_t ttl_ms, struct store_info *info)
{
	static const uint8_t value[100000] = "123";
	struct store_put put = {.key = &number,
				.key_length = sizeof(number),
				.value = value,
				.value_length = length,
				.ttl_ms = ttl_ms};

	return store_put(worker, &put, info);
}

static uint64_t next_version(struct test_store *test)
{
	struct store_stats stats;

	store_stats(test->store, &stats);
	return stats.next_version;
}

/* Few keys that all workers change in turn: the worst case for versions that come in blocks. */
static void test_sequence(void)
{
	enum { COUNT = 20000 };
	struct store_worker *workers[WORKERS];
	uint64_t *given = calloc(COUNT, sizeof(*given)), last[50] = {0}, count = 0, first;
	struct store_info info;
	struct test_store test;
	struct test_rng rng;

	CHECK(given);
	test_rng_init(&rng, 1);
	test_store_open(&test, 8 * MIB, STORE_REJECT);
	first = next_version(&test);
	for (unsigned i = 0; i < WORKERS; i++)
		CHECK_OK(store_worker_open(test.store, &workers[i]));
	for (int i = 0; i < COUNT; i++) {
		uint32_t key = (uint32_t)test_rng_below(&rng, 50);
		struct store_worker *worker = workers[test_rng_below(&rng, WORKERS)];

		if (test_rng_below(&rng, 4) == 0) {
			(void)!store_delete(worker, &key, sizeof(key), 0, NULL);
			continue;
		}
		CHECK_EQ(put_number(worker, key, 3, 0, &info), STORE_OK);
		CHECK(info.version > last[key]);
		last[key] = info.version;
		given[count++] = info.version;
	}
	qsort(given, count, sizeof(*given), by_number);
	for (uint64_t i = 1; i < count; i++)
		CHECK(given[i] != given[i - 1]);
	CHECK(next_version(&test) - first <= 3 * count + WORKERS * 64);
	for (unsigned i = 0; i < WORKERS; i++)
		store_worker_close(workers[i]);
	test_store_check(&test);
	test_store_close(&test);
	free(given);
}

/* ------------------------------------------------------------------------------------------
 * Everything that ends an item
 */

struct scene {
	struct test_store test;
	struct store_worker *workers[WORKERS];
	uint64_t last[KEYS]; /* the highest version that the key was seen to have */
};

static void open_workers(struct scene *scene)
{
	for (unsigned i = 0; i < WORKERS; i++)
		CHECK_OK(store_worker_open(scene->test.store, &scene->workers[i]));
}

static void close_workers(struct scene *scene)
{
	for (unsigned i = 0; i < WORKERS; i++)
		store_worker_close(scene->workers[i]);
}

static void put_somehow(struct scene *scene, struct test_rng *rng, struct store_worker *worker,
			uint32_t key)
{
	size_t length = test_rng_below(rng, 100) == 0 ? test_rng_below(rng, 100000)
						      : 3 + test_rng_below(rng, 200);
	uint64_t ttl_ms = test_rng_below(rng, 3) ? 0 : 1 + test_rng_below(rng, 50);
	struct store_info info;

	if (test_rng_below(rng, 8) == 0)
		length = 3;
	if (put_number(worker, key, length, ttl_ms, &info) != STORE_OK)
		return;
	CHECK(info.version > scene->last[key]);
	scene->last[key] = info.version;
}

/* A counter, which is new, or was the text of a number, or was a counter before. */
static void count(struct scene *scene, struct store_worker *worker, uint32_t key)
{
	struct store_info before = {0}, after;
	int64_t sum;

	(void)!store_stat(worker, &key, sizeof(key), &before);
	if (store_add(worker, &key, sizeof(key), 1, &sum, &after) != STORE_OK)
		return;
	CHECK(before.version && before.cell != STORE_NO_CELL ? after.version == before.version
							     : after.version > scene->last[key]);
	scene->last[key] = after.version;
}

static void step(struct scene *scene, struct test_rng *rng)
{
	struct store_worker *worker = scene->workers[test_rng_below(rng, WORKERS)];
	uint32_t key = (uint32_t)test_rng_below(rng, KEYS);
	struct store_info info;

	switch (test_rng_below(rng, 16)) {
	case 0:
	case 1:
	case 2:
	case 3:
		(void)!store_delete(worker, &key, sizeof(key), 0, NULL);
		break;
	case 4:
		count(scene, worker, key);
		break;
	case 5:
		test_now_ms += test_rng_below(rng, 10);
		(void)store_tick(worker, 1000);
		break;
	case 6:
		if (store_stat(worker, &key, sizeof(key), &info) == STORE_OK)
			CHECK_EQ(info.version, scene->last[key]);
		break;
	default:
		put_somehow(scene, rng, worker, key);
	}
}

static void test_ways_out(void)
{
	unsigned steps = TEST_HAS_SANITIZER ? 150000 : 600000;
	struct scene *scene = calloc(1, sizeof(*scene));
	struct store_stats stats;
	uint64_t most_buckets = 0; /* the index shrinks after a flush */
	struct test_rng rng;

	CHECK(scene);
	test_rng_init(&rng, 2);
	test_store_open(&scene->test, 3 * MIB, STORE_EVICT);
	scene->test.options.clock_ms = test_clock_ms;
	test_store_restart(&scene->test);
	open_workers(scene);
	for (unsigned i = 1; i <= steps; i++) {
		step(scene, &rng);
		if (i % 1000 == 0) {
			store_stats(scene->test.store, &stats);
			if (stats.buckets > most_buckets)
				most_buckets = stats.buckets;
		}
		if (i % (steps / 4) == 0)
			store_flush(scene->workers[0]);
		if (i % (steps / 3) == 0) {
			close_workers(scene);
			test_store_check(&scene->test);
			test_store_restart(&scene->test);
			open_workers(scene);
		}
		if (i == steps / 3 - 1) {
			store_stats(scene->test.store, &stats);
			CHECK(stats.evicted && stats.expired && stats.deletes);
			CHECK(most_buckets > SEGMENT_BUCKETS);
		}
	}
	close_workers(scene);
	test_store_close(&scene->test);
	free(scene);
}

/* ------------------------------------------------------------------------------------------
 * Threads
 */

enum { SHARED = 64 };

struct crowd {
	struct test_store test;
	_Atomic uint64_t last[SHARED];
	unsigned steps;
};

struct actor {
	struct crowd *crowd;
	uint64_t seed;
};

/* What another thread has put and noted before this put began is below. */
static void put_and_note(struct crowd *crowd, struct store_worker *worker, uint32_t key)
{
	uint64_t before = atomic_load(&crowd->last[key]);
	struct store_info info;

	CHECK_EQ(put_number(worker, key, 8, 0, &info), STORE_OK);
	CHECK(info.version > before);
	while (before < info.version &&
	       !atomic_compare_exchange_weak(&crowd->last[key], &before, info.version))
		;
}

static void *act(void *argument)
{
	struct actor *actor = argument;
	struct crowd *crowd = actor->crowd;
	struct store_worker *worker;
	struct test_rng rng;

	test_rng_init(&rng, actor->seed);
	CHECK_OK(store_worker_open(crowd->test.store, &worker));
	for (unsigned i = 0; i < crowd->steps; i++) {
		uint32_t key = (uint32_t)test_rng_below(&rng, SHARED);

		if (test_rng_below(&rng, 2))
			(void)!store_delete(worker, &key, sizeof(key), 0, NULL);
		else
			put_and_note(crowd, worker, key);
		/* New keys let the index split the buckets of the shared ones. */
		if (i % 8 == 0) {
			key = (uint32_t)(actor->seed << 24 | (i + SHARED));
			CHECK_EQ(put_number(worker, key, 8, 0, NULL), STORE_OK);
		}
	}
	store_worker_close(worker);
	return NULL;
}

static void test_threads(void)
{
	enum { THREADS = 4 };
	struct crowd *crowd = calloc(1, sizeof(*crowd));
	struct actor actors[THREADS];
	pthread_t threads[THREADS];

	CHECK(crowd);
	crowd->steps = TEST_HAS_SANITIZER ? 20000 : 200000;
	test_store_open(&crowd->test, 64 * MIB, STORE_REJECT);
	for (unsigned i = 0; i < THREADS; i++) {
		actors[i] = (struct actor){.crowd = crowd, .seed = i + 1};
		CHECK_EQ(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	test_store_check(&crowd->test);
	test_store_close(&crowd->test);
	free(crowd);
}

/* ------------------------------------------------------------------------------------------
 * Restarts
 */

static uint64_t put_one(struct test_store *test)
{
	struct store_info info;

	CHECK_EQ(put_text(test->worker, "key", "value", &info), STORE_OK);
	return info.version;
}

/* A store whose predecessor's memory is gone begins above it. */
static void test_restart_without_memory(void)
{
	uint64_t last = 0;

	for (int round = 0; round < 3; round++) {
		struct test_store test;

		test_store_open(&test, 2 * MIB, STORE_REJECT);
		for (int i = 0; i < 100; i++) {
			uint64_t version = put_one(&test);

			CHECK(version > last);
			CHECK(version < ITEM_MAX_VERSION);
			last = version;
		}
		test_store_close(&test);
	}
}

/* Kept memory counts even if it is ahead of the clock; a header that makes no sense does not. */
static void test_restart_with_memory(void)
{
	const uint64_t lead = (uint64_t)1 << 50;
	struct store_header *header;
	struct test_store test;
	uint64_t first, ahead, later;

	test_store_open(&test, 2 * MIB, STORE_REJECT);
	header = test.memory;
	first = put_one(&test);
	test_store_restart(&test);
	later = put_one(&test);
	CHECK(later > first);
	header->next_version += lead;
	test_store_restart(&test);
	ahead = put_one(&test);
	CHECK(ahead > later + lead);
	/* The items alone say it. */
	header->next_version = 0;
	test_store_restart(&test);
	later = put_one(&test);
	CHECK(later > ahead);
	CHECK_EQ(store_delete(test.worker, "key", 3, 0, NULL), STORE_OK);
	header->next_version = UINT64_MAX;
	test_store_restart(&test);
	later = put_one(&test);
	CHECK(later > first && later < ahead);
	test_store_close(&test);
}

static const struct test tests[] = {
	{"sequence", test_sequence},
	{"ways_out", test_ways_out},
	{"threads", test_threads},
	{"restart_without_memory", test_restart_without_memory},
	{"restart_with_memory", test_restart_with_memory},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_versions", tests, TEST_COUNT(tests));
}
