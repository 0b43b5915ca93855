/*
 * Writers that die in the middle of anything.
 *
 * A process writes to a store in memory that it shares with the test, and is killed at a random
 * moment; so is one that restores the store from that memory. Then the test restores it, and the
 * next process goes on with it, many times in a row. Each key has an entry, shared too, that says
 * what is there before the operation that is under way, and what is there after it: one of both
 * must be found, whole. What was answered is never lost.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arena.h"
#include "witness.h"

#define KEYS	 600u
#define COUNTERS 64u /* the last of the keys */
#define LONGEST	 600000u
#define THREADS	 2u
#define TTL_MS	 3600000u

/* Of a value its sequence, of a counter its count; 0: the key is not there. */
struct entry {
	_Atomic uint64_t before;
	_Atomic uint64_t after;
	_Atomic uint64_t last; /* sequence that was used */
};

struct shared {
	struct entry entries[KEYS];
	_Atomic uint64_t answers;
};

struct crash {
	struct test_store test;
	struct shared *shared;
	uint64_t round;
	bool may_lose;
	uint64_t cells; /* found in use */
};

struct writer {
	struct crash *crash;
	struct store_worker *worker;
	unsigned number;
	struct test_rng rng;
	uint8_t *value;
	size_t limit;
};

static bool is_counter(uint64_t number)
{
	return number >= KEYS - COUNTERS;
}

/* ------------------------------------------------------------------------------------------
 * The process that is killed
 */

static void begin(struct entry *entry, uint64_t after)
{
	atomic_store(&entry->after, after);
}

static void end(struct crash *crash, struct entry *entry, enum store_status status)
{
	if (status == STORE_OK || status == STORE_NOT_FOUND)
		atomic_store(&entry->before, atomic_load(&entry->after));
	else
		atomic_store(&entry->after, atomic_load(&entry->before));
	atomic_fetch_add(&crash->shared->answers, 1);
}

static void put(struct writer *me, uint64_t number)
{
	struct entry *entry = &me->crash->shared->entries[number];
	uint64_t sequence = atomic_fetch_add(&entry->last, 1) + 1;
	uint8_t key[WITNESS_MAX_KEY];
	struct store_put put = {.key = key,
				.key_length = witness_make_key(number, key),
				.value = me->value,
				.ttl_ms = test_rng_below(&me->rng, 4) ? 0 : TTL_MS};
	enum store_status status;

	put.value_length = WITNESS_MIN_VALUE + test_rng_below(&me->rng, me->limit);
	witness_make_value(number, sequence, me->value, put.value_length);
	begin(entry, sequence);
	status = store_put(me->worker, &put, NULL);
	CHECK(status == STORE_OK || status == STORE_NO_MEMORY);
	end(me->crash, entry, status);
}

static void count_on(struct writer *me, uint64_t number)
{
	struct entry *entry = &me->crash->shared->entries[number];
	uint8_t key[WITNESS_MAX_KEY];
	size_t key_length = witness_make_key(number, key);
	enum store_status status;
	uint64_t before = atomic_load(&entry->before);
	int64_t delta = 1, sum;

	/* Now and then to and from a number that has no cell. */
	if (before % 3 == 2)
		delta += before > (uint64_t)STORE_CELL_MAX ? -STORE_CELL_MAX : STORE_CELL_MAX;
	begin(entry, before + (uint64_t)delta);
	status = store_add(me->worker, key, key_length, delta, &sum, NULL);
	/* An evicted counter begins anew. */
	if (status == STORE_OK && (uint64_t)sum != entry->after) {
		CHECK(me->crash->may_lose);
		begin(entry, (uint64_t)sum);
	}
	end(me->crash, entry, status);
}

static void delete (struct writer *me, uint64_t number)
{
	struct entry *entry = &me->crash->shared->entries[number];
	uint8_t key[WITNESS_MAX_KEY];
	size_t key_length = witness_make_key(number, key);
	enum store_status status;

	begin(entry, 0);
	status = store_delete(me->worker, key, key_length, 0, NULL);
	CHECK(status == STORE_OK ||
	      (status == STORE_NOT_FOUND && (me->crash->may_lose || entry->before == 0)));
	end(me->crash, entry, status);
}

static void touch(struct writer *me, uint64_t number)
{
	uint8_t key[WITNESS_MAX_KEY];
	size_t key_length = witness_make_key(number, key);
	enum store_status status = store_expire(me->worker, key, key_length,
						test_rng_below(&me->rng, 2) * TTL_MS, NULL);

	CHECK(status == STORE_OK || status == STORE_NOT_FOUND);
}

static void *write_on(void *context)
{
	static const size_t limits[] = {60, 200, 3000, 40000, LONGEST};
	struct writer *me = context;

	for (uint64_t i = 0;; i++) {
		uint64_t number = test_rng_below(&me->rng, KEYS / THREADS) * THREADS + me->number;
		uint64_t dice = test_rng_below(&me->rng, 100);

		if (i % 200 == 0)
			me->limit = limits[test_rng_below(&me->rng, TEST_COUNT(limits))];
		if (dice < 20)
			delete (me, number);
		else if (dice < 30)
			touch(me, number);
		else if (is_counter(number))
			count_on(me, number);
		else
			put(me, number);
	}
	return NULL;
}

static void start_writer(struct writer *me, struct crash *crash, unsigned number)
{
	*me = (struct writer){.crash = crash, .number = number};
	test_rng_init(&me->rng, crash->round * THREADS + number);
	me->value = malloc(LONGEST + WITNESS_MIN_VALUE);
	CHECK(me->value);
	CHECK_OK(store_worker_open(crash->test.store, &me->worker));
}

/* The store came with the fork: memory and cells are shared, the rest is a copy. */
static void write_until_killed(void *context)
{
	struct writer writers[THREADS];
	pthread_t thread;

	for (unsigned i = 0; i < THREADS; i++)
		start_writer(&writers[i], context, i);
	CHECK_EQ(pthread_create(&thread, NULL, write_on, &writers[1]), 0);
	write_on(&writers[0]);
}

/* ------------------------------------------------------------------------------------------
 * The one who finds what is left
 */

/* What is there, as an entry says it. */
static uint64_t find(struct crash *crash, uint64_t number, uint8_t *value)
{
	uint8_t key[WITNESS_MAX_KEY];
	size_t key_length = witness_make_key(number, key);
	struct store_info info;
	enum store_status status = store_get(crash->test.worker, key, key_length, value,
					     LONGEST + WITNESS_MIN_VALUE, &info);
	uint64_t sequence;

	if (status == STORE_NOT_FOUND)
		return 0;
	CHECK_EQ(status, STORE_OK);
	if (info.cell != STORE_NO_CELL) {
		CHECK(is_counter(number));
		crash->cells++;
	}
	if (is_counter(number)) {
		value[info.value_length] = '\0';
		return strtoull((char *)value, NULL, 10);
	}
	sequence = witness_parse(number, value, info.value_length);
	if (!sequence)
		TEST_FAIL("round %" PRIu64 ": a broken value of key %" PRIu64, crash->round,
			  number);
	return sequence;
}

/* Over and over, so that it is killed in the middle. */
static void restore_until_killed(void *context)
{
	struct crash *crash = context;
	struct store *store;

	for (;;) {
		CHECK_OK(store_restore(&crash->test.options, &store));
		store_destroy(store);
	}
}

static void check_all(struct crash *crash)
{
	uint8_t *value = malloc(LONGEST + 2 * WITNESS_MIN_VALUE);
	struct store_stats stats;
	uint64_t keys = 0;

	CHECK(value);
	test_store_check(&crash->test);
	crash->cells = 0;
	for (uint64_t i = 0; i < KEYS; i++) {
		struct entry *entry = &crash->shared->entries[i];
		uint64_t found = find(crash, i, value);

		/* What was evicted is not there, or was counted from 0 again. */
		bool is_anew =
			found == 0 || (is_counter(i) && found == entry->after - entry->before);

		if (found != entry->before && found != entry->after &&
		    !(crash->may_lose && is_anew))
			TEST_FAIL("round %" PRIu64 ": key %" PRIu64 " is at %" PRIu64
				  ", not at %" PRIu64 " or %" PRIu64,
				  crash->round, i, found, entry->before, entry->after);
		entry->before = entry->after = found;
		keys += found != 0;
	}
	store_stats(crash->test.store, &stats);
	CHECK_EQ(stats.keys, keys);
	CHECK_EQ(stats.cells_used, crash->cells);
	free(value);
}

static void run_rounds(size_t size, enum store_on_full on_full, uint64_t rounds)
{
	struct crash crash = {.may_lose = on_full == STORE_EVICT};
	struct test_rng rng;

	test_rng_init(&rng, 4711);
	crash.shared = mmap(NULL, sizeof(*crash.shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(crash.shared != MAP_FAILED);
	test_store_open(&crash.test, size, on_full);
	for (; crash.round < rounds; crash.round++) {
		pid_t pid;

		/* Nothing of this process must touch the memory while the other works. */
		store_worker_close(crash.test.worker);
		pid = test_spawn(write_until_killed, &crash);
		usleep((useconds_t)test_rng_below(&rng, 40000));
		test_kill(pid);
		store_destroy(crash.test.store);
		/* Whoever restores may be killed, too. */
		pid = test_spawn(restore_until_killed, &crash);
		usleep((useconds_t)test_rng_below(&rng, 20000));
		test_kill(pid);
		CHECK_OK(store_restore(&crash.test.options, &crash.test.store));
		CHECK_OK(store_worker_open(crash.test.store, &crash.test.worker));
		check_all(&crash);
	}
	CHECK(crash.shared->answers > rounds * 10);
	test_store_close(&crash.test);
	munmap(crash.shared, sizeof(*crash.shared));
}

static void test_nothing_lost(void)
{
	run_rounds(24 * MIB, STORE_REJECT, TEST_HAS_SANITIZER ? 30 : 80);
}

static void test_nothing_wrong(void)
{
	run_rounds(6 * MIB, STORE_EVICT, TEST_HAS_SANITIZER ? 30 : 80);
}

static const struct test tests[] = {
	{"nothing_answered_is_lost", test_nothing_lost},
	{"nothing_is_wrong_when_evicting", test_nothing_wrong},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_crash", tests, TEST_COUNT(tests));
}
