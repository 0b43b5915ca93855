/*
 * Readers that never ask, beside writers that never wait for them.
 *
 * Each test is a store, two threads that write to it, and processes that read it one-sidedly in all
 * three ways (onlooker.h) and judge what they get (witness.h). Some readers are stopped now and
 * then in the middle of whatever they do, and go on when everything has changed. What differs is
 * what happens to the keys: they are updated, deleted, put again, they expire and are moved about;
 * they are evicted while sizes change all the time; there are more and more of them; or others come
 * and go in such numbers that the index grows and shrinks.
 *
 * STORE_READERS_MS in the environment sets how long each test goes on. That this test finds what it
 * is made for is shown by planted_test.py.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arena.h"
#include "base/clock.h"
#include "onlooker.h"
#include "store/layout.h"

#define WRITERS	       2u
#define READERS	       5u
#define DEFAULT_MS     (TEST_HAS_SANITIZER ? 2500 : 3500)
#define MOST_MS	       100000
#define AT_LEAST       1000u /* of what readers and writers do; of what is seldom, a hundredth */
#define LONG_TTL_MS    3600000u
#define SHORT_TTL_MS   40u
#define TICK_BUDGET    300u
#define STEPS_A_PHASE  400u
#define FILLERS_A_STEP 20u

struct scenario {
	size_t size;
	enum store_on_full on_full;
	uint64_t keys;
	uint64_t keys_at_first; /* the others come one by one */
	uint64_t fillers;	/* keys of each writer that no reader asks for, all put, all gone */
	unsigned kept_of_two;
	size_t longest;
	unsigned deletes, expiries; /* of 100 operations on keys that are not kept */
	/* Whether what the test is about has happened often enough. */
	bool (*is_enough)(const struct store_stats *stats);
};

struct stage {
	const struct scenario *scenario;
	struct test_store test;
	struct witness *witness;
	struct onlooker_job jobs[READERS];
	struct onlooker_counts *counts; /* by kind; shared */
	pid_t readers[READERS];
};

struct writer {
	struct stage *stage;
	struct store_worker *worker;
	unsigned number;
	pthread_t thread;
	struct test_rng rng;
	uint8_t *value;
	size_t limit; /* of values, in this phase */
	uint64_t next_key;
	uint64_t next_filler; /* they are put, then deleted, and so on */
};

/* ------------------------------------------------------------------------------------------
 * Writers
 */

/* A key has one writer; kept ones and others are dealt evenly. */
static bool is_mine(const struct writer *me, uint64_t number)
{
	return number / 2 % WRITERS == me->number;
}

static uint64_t pick_mine(struct writer *me)
{
	for (;;) {
		uint64_t number = witness_pick(me->stage->witness, &me->rng);

		if (is_mine(me, number))
			return number;
	}
}

/* Other sizes are asked for all the time, so that memory moves between classes. */
static void begin_phase(struct writer *me)
{
	static const size_t limits[] = {60, 200, 500, 3000, 9000, 40000, 150000, SIZE_MAX};
	size_t limit = limits[test_rng_below(&me->rng, sizeof(limits) / sizeof(limits[0]))];

	me->limit = limit < me->stage->scenario->longest ? limit : me->stage->scenario->longest;
}

static void put(struct writer *me, uint64_t number)
{
	struct witness *witness = me->stage->witness;
	size_t limit = test_rng_below(&me->rng, 4) ? me->limit : 100;
	bool is_kept = witness_is_kept(witness, number);
	uint8_t key[WITNESS_MAX_KEY];
	struct store_put put = {.key = key,
				.key_length = witness_make_key(number, key),
				.value = me->value,
				.value_length =
					WITNESS_MIN_VALUE +
					test_rng_below(&me->rng, limit - WITNESS_MIN_VALUE)};
	struct store_info info;
	uint64_t sequence;

	if (test_rng_below(&me->rng, 100) < (is_kept ? 10 : me->stage->scenario->expiries))
		put.ttl_ms = is_kept ? LONG_TTL_MS : 1 + test_rng_below(&me->rng, SHORT_TTL_MS);
	sequence = witness_begin(witness, number, false);
	witness_make_value(number, sequence, me->value, put.value_length);
	switch (store_put(me->worker, &put, &info)) {
	case STORE_OK:
		witness_answer(witness, number, sequence, info.expires_ms);
		break;
	case STORE_NO_MEMORY:
		witness_refuse(witness, number);
		break;
	default:
		TEST_FAIL("put");
	}
}

static void delete (struct writer *me, uint64_t number)
{
	struct witness *witness = me->stage->witness;
	uint8_t key[WITNESS_MAX_KEY];
	size_t key_length = witness_make_key(number, key);
	uint64_t sequence = witness_begin(witness, number, true);
	enum store_status status = store_delete(me->worker, key, key_length, 0, NULL);

	CHECK(status == STORE_OK || status == STORE_NOT_FOUND);
	witness_answer(witness, number, sequence, 0);
}

static void touch(struct writer *me, uint64_t number)
{
	struct witness *witness = me->stage->witness;
	uint64_t ttl_ms = LONG_TTL_MS + test_rng_below(&me->rng, 1000);
	uint8_t key[WITNESS_MAX_KEY];
	size_t key_length = witness_make_key(number, key);
	struct store_info info = {0};

	if (!witness_is_kept(witness, number))
		ttl_ms = test_rng_below(&me->rng, SHORT_TTL_MS);
	witness_touch(witness, number);
	if (store_expire(me->worker, key, key_length, ttl_ms, &info) == STORE_OK)
		witness_touched(witness, number, info.expires_ms);
}

/* One more key, until all are there. */
static void add_key(struct writer *me)
{
	struct witness *witness = me->stage->witness;
	uint64_t limit;

	while (me->next_key < witness->count && !is_mine(me, me->next_key))
		me->next_key++;
	if (me->next_key >= witness->count)
		return;
	put(me, me->next_key++);
	limit = atomic_load(&witness->limit);
	while (limit < me->next_key &&
	       !atomic_compare_exchange_weak(&witness->limit, &limit, me->next_key))
		;
}

/* One more filler, or one less. They have the shortest values that share memory with buckets. */
static void change_filler(struct writer *me)
{
	uint64_t fillers = me->stage->scenario->fillers, turn = me->next_filler++ % (2 * fillers);
	uint64_t key[2] = {UINT64_MAX - me->number, turn % fillers};
	struct store_put put = {.key = key,
				.key_length = sizeof(key),
				.value = me->value,
				.value_length = WITNESS_MIN_VALUE};

	if (turn < fillers)
		CHECK_EQ(store_put(me->worker, &put, NULL), STORE_OK);
	else
		CHECK_EQ(store_delete(me->worker, key, sizeof(key), 0, NULL), STORE_OK);
}

static void step(struct writer *me)
{
	const struct scenario *scenario = me->stage->scenario;
	uint64_t number = pick_mine(me), dice = test_rng_below(&me->rng, 100);

	if (scenario->keys > scenario->keys_at_first && dice < 90)
		add_key(me);
	else if (dice < 8)
		touch(me, number);
	else if (!witness_is_kept(me->stage->witness, number) && dice < 8 + scenario->deletes)
		delete (me, number);
	else
		put(me, number);
}

static void *write_on(void *context)
{
	struct writer *me = context;

	me->limit = 100;
	for (uint64_t i = 0; i < me->stage->scenario->keys_at_first; i++) {
		if (is_mine(me, i))
			put(me, i);
	}
	for (uint64_t i = 0; !atomic_load(&me->stage->witness->stop); i++) {
		if (i % STEPS_A_PHASE == 0)
			begin_phase(me);
		step(me);
		for (unsigned j = 0; me->stage->scenario->fillers && j < FILLERS_A_STEP; j++)
			change_filler(me);
	}
	return NULL;
}

static void start_writer(struct writer *me, struct stage *stage, unsigned number)
{
	*me = (struct writer){
		.stage = stage, .number = number, .next_key = stage->scenario->keys_at_first};
	test_rng_init(&me->rng, number);
	me->value = malloc(stage->scenario->longest);
	CHECK(me->value);
	CHECK_OK(store_worker_open(stage->test.store, &me->worker));
	CHECK_EQ(pthread_create(&me->thread, NULL, write_on, me), 0);
}

static void end_writer(struct writer *me)
{
	CHECK_EQ(pthread_join(me->thread, NULL), 0);
	store_worker_close(me->worker);
	free(me->value);
}

/* ------------------------------------------------------------------------------------------
 * The stage
 */

static int run_ms(void)
{
	const char *text = getenv("STORE_READERS_MS");

	return text ? atoi(text) : DEFAULT_MS;
}

/* Before there is any thread. */
static void start_readers(struct stage *stage)
{
	static const enum onlooker_kind kinds[READERS] = {
		ONLOOKER_NEAR, ONLOOKER_FAR, ONLOOKER_REMEMBERS, ONLOOKER_FAR, ONLOOKER_REMEMBERS};

	stage->counts = mmap(NULL, ONLOOKER_KINDS * sizeof(*stage->counts), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(stage->counts != MAP_FAILED);
	for (unsigned i = 0; i < READERS; i++) {
		stage->jobs[i] = (struct onlooker_job){.kind = kinds[i],
						       .witness = stage->witness,
						       .fd = stage->test.fd,
						       .memory = stage->test.memory,
						       .size = stage->test.size,
						       .longest = stage->scenario->longest,
						       .stream = i,
						       .counts = &stage->counts[kinds[i]]};
		stage->readers[i] = test_spawn(onlooker_run, &stage->jobs[i]);
	}
}

/* Too short to ask for numbers. */
static bool is_short(void)
{
	return TEST_HAS_SANITIZER || getenv("STORE_READERS_MS");
}

/* What there has not been enough of yet; NULL: enough of all. */
static const char *find_missing(const struct stage *stage)
{
	uint64_t at_least = is_short() ? 1 : AT_LEAST;
	struct store_stats stats;

	for (unsigned i = 0; i < ONLOOKER_KINDS; i++) {
		const struct onlooker_counts *counts = &stage->counts[i];

		if (counts->hits < at_least)
			return "hits";
		if (counts->asks < at_least / 100 && i != ONLOOKER_NEAR)
			return "asks";
		if (counts->torn < at_least / 100 && i != ONLOOKER_NEAR)
			return "torn copies";
		if (counts->misses < at_least / 100 && i == ONLOOKER_NEAR &&
		    stage->witness->kept_of_two < 2)
			return "misses";
	}
	store_stats(stage->test.store, &stats);
	if (stats.puts < at_least)
		return "puts";
	return is_short() || stage->scenario->is_enough(&stats) ? NULL : "changes in the store";
}

/* Stops readers in the middle of anything, and takes back what has expired, but not all at once. */
static void disturb(struct stage *stage)
{
	uint64_t deadline_ns = clock_deadline_ns(run_ms());
	uint64_t limit_ns = clock_deadline_ns(MOST_MS);
	struct test_rng rng;

	test_rng_init(&rng, 77);
	/* As long as it is to last, and on a busy machine until all has happened often enough. */
	while (!atomic_load(&stage->witness->stop) &&
	       (!clock_passed(deadline_ns) || (find_missing(stage) && !clock_passed(limit_ns)))) {
		pid_t reader = stage->readers[test_rng_below(&rng, READERS)];

		kill(reader, SIGSTOP);
		test_sleep_ms((unsigned)test_rng_below(&rng, test_rng_below(&rng, 20) ? 4 : 100));
		kill(reader, SIGCONT);
		test_sleep_ms((unsigned)test_rng_below(&rng, 3));
		store_tick(stage->test.worker, TICK_BUDGET);
	}
}

static void run(const struct scenario *scenario)
{
	struct stage stage = {.scenario = scenario};
	struct writer writers[WRITERS];
	const char *missing;

	test_store_open(&stage.test, scenario->size, scenario->on_full);
	stage.witness =
		witness_create(scenario->keys, scenario->keys_at_first, scenario->kept_of_two);
	start_readers(&stage);
	for (unsigned i = 0; i < WRITERS; i++)
		start_writer(&writers[i], &stage, i);
	disturb(&stage);
	atomic_store(&stage.witness->stop, true);
	for (unsigned i = 0; i < WRITERS; i++)
		end_writer(&writers[i]);
	atomic_store(&stage.witness->is_still, true);
	for (unsigned i = 0; i < READERS; i++)
		test_wait(stage.readers[i]);
	test_store_check(&stage.test);
	missing = find_missing(&stage);
	if (missing)
		TEST_FAIL("not enough %s", missing);
	test_store_close(&stage.test);
}

/* ------------------------------------------------------------------------------------------
 * Tests
 */

static bool has_updated_deleted_expired(const struct store_stats *stats)
{
	return stats->deletes > 100 && stats->expired > 100 && stats->moved > 100;
}

/* Keys that are always there, and keys that come and go. */
static void test_updated_deleted_expired(void)
{
	static const struct scenario scenario = {.size = 24 * MIB,
						 .on_full = STORE_REJECT,
						 .keys = 800,
						 .keys_at_first = 800,
						 .kept_of_two = 1,
						 .longest = 600000,
						 .deletes = 30,
						 .expiries = 60,
						 .is_enough = has_updated_deleted_expired};
	run(&scenario);
}

static bool has_evicted(const struct store_stats *stats)
{
	return stats->evicted > 100 && stats->pages_moved > 10;
}

static void test_evicted(void)
{
	static const struct scenario scenario = {.size = 8 * MIB,
						 .on_full = STORE_EVICT,
						 .keys = 4000,
						 .keys_at_first = 4000,
						 .kept_of_two = 0,
						 .longest = 700000,
						 .deletes = 5,
						 .expiries = 10,
						 .is_enough = has_evicted};
	run(&scenario);
}

static bool has_growing(const struct store_stats *stats)
{
	return stats->buckets > 4 * SEGMENT_BUCKETS;
}

static void test_growing(void)
{
	static const struct scenario scenario = {.size = 128 * MIB,
						 .on_full = STORE_REJECT,
						 .keys = TEST_HAS_SANITIZER ? 100000 : 300000,
						 .keys_at_first = 1000,
						 .kept_of_two = 2,
						 .longest = 128,
						 .deletes = 0,
						 .expiries = 0,
						 .is_enough = has_growing};
	run(&scenario);
}

static bool has_shrunk(const struct store_stats *stats)
{
	return stats->shrinks > 20;
}

static void test_shrinking(void)
{
	static const struct scenario scenario = {.size = 64 * MIB,
						 .on_full = STORE_REJECT,
						 .keys = 500,
						 .keys_at_first = 500,
						 .fillers = TEST_HAS_SANITIZER ? 5000 : 15000,
						 .kept_of_two = 1,
						 .longest = 40000,
						 .deletes = 30,
						 .expiries = 30,
						 .is_enough = has_shrunk};
	run(&scenario);
}

static const struct test tests[] = {
	{"updated_deleted_expired", test_updated_deleted_expired, 0, 200},
	{"evicted", test_evicted, 0, 200},
	{"growing", test_growing, 0, 200},
	{"shrinking", test_shrinking, 0, 200},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_readers", tests, TEST_COUNT(tests));
}
