/* Parts of kv-bench that can be tested alone: the keys that are drawn, the pace, the mixes. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "harness/test.h"
#include "kv-bench/choose.h"
#include "kv-bench/pace.h"

#define DRAWS 1000000

/* ------------------------------------------------------------------------------------------
 * Distributions
 */

/* Draws are compared with what the law says, rank by rank: a difference beyond six standard
 * deviations is no chance. */
static void check_zipf(double skew, uint64_t count)
{
	uint64_t *seen = calloc(count + 1, sizeof(*seen));
	struct dice dice = {.state = 1};
	struct zipf zipf;
	double all = 0;

	CHECK(seen);
	zipf_init(&zipf, count, skew);
	for (int i = 0; i < DRAWS; i++) {
		uint64_t rank = zipf_draw(&zipf, &dice);

		CHECK(rank >= 1 && rank <= count);
		seen[rank]++;
	}
	for (uint64_t rank = 1; rank <= count; rank++)
		all += pow((double)rank, -skew);
	for (uint64_t rank = 1; rank <= count; rank++) {
		double expected = DRAWS * pow((double)rank, -skew) / all;
		double deviation = sqrt(expected) + 1;

		CHECK(fabs((double)seen[rank] - expected) < 6 * deviation);
	}
	free(seen);
}

static void test_zipf_is_zipf(void)
{
	check_zipf(0.99, 1000);
	check_zipf(1, 100);
	check_zipf(0.5, 5000);
	check_zipf(2, 50);
	check_zipf(0.99, 1);
}

static struct shared *make_shared(unsigned slots, uint64_t keys)
{
	struct shared *shared = calloc(1, sizeof(*shared) + slots * sizeof(shared->slots[0]));

	CHECK(shared);
	shared->slot_count = slots;
	atomic_store(&shared->next, keys);
	atomic_store(&shared->visible, keys);
	for (unsigned i = 0; i < slots; i++)
		atomic_store(&shared->slots[i].inserting, NOT_INSERTING);
	return shared;
}

static void test_zipf_begins_with_key_0(void)
{
	struct pass pass = {.distribution = DIST_ZIPF, .skew = 0.99};
	struct shared *shared = make_shared(1, 100);
	struct dice dice = {.state = 7};
	uint64_t seen[100] = {0};
	struct chooser chooser;

	choose_init(&chooser, &pass, 100, 0, 1);
	for (int i = 0; i < 100000; i++) {
		uint64_t number = choose_key(&chooser, &dice, shared);

		CHECK(number < 100);
		seen[number]++;
	}
	CHECK(seen[0] > seen[1] && seen[1] > seen[9] && seen[9] > seen[99] && seen[99] > 0);
	free(shared);
}

static void test_uniform_is_uniform(void)
{
	struct pass pass = {.distribution = DIST_UNIFORM, .skew = 0.99};
	struct shared *shared = make_shared(1, 50);
	struct dice dice = {.state = 7};
	uint64_t seen[50] = {0};
	struct chooser chooser;

	choose_init(&chooser, &pass, 50, 0, 1);
	for (int i = 0; i < DRAWS; i++) {
		uint64_t number = choose_key(&chooser, &dice, shared);

		CHECK(number < 50);
		seen[number]++;
	}
	for (int i = 0; i < 50; i++)
		CHECK(fabs((double)seen[i] - DRAWS / 50.0) < 6 * sqrt(DRAWS / 50.0));
	free(shared);
}

static void test_sequential_covers_all_keys_once(void)
{
	struct pass pass = {.distribution = DIST_SEQUENTIAL, .skew = 0.99};
	struct shared *shared = make_shared(3, 100);
	struct dice dice = {.state = 7};
	unsigned seen[100] = {0};

	for (unsigned thread = 0; thread < 3; thread++) {
		struct chooser chooser;

		choose_init(&chooser, &pass, 100, thread, 3);
		for (uint64_t i = chooser.first; i < chooser.last; i++)
			seen[choose_key(&chooser, &dice, shared)]++;
		CHECK_EQ(choose_key(&chooser, &dice, shared), chooser.first);
	}
	for (int i = 0; i < 100; i++)
		CHECK_EQ(seen[i], 1);
	free(shared);
}

static void test_latest_follows_the_inserts(void)
{
	struct pass pass = {.distribution = DIST_LATEST, .skew = 0.99};
	struct shared *shared = make_shared(1, 1000);
	struct dice dice = {.state = 7};
	struct chooser chooser;
	uint64_t newest = 0;

	choose_init(&chooser, &pass, 1000, 0, 1);
	for (int i = 0; i < 5000; i++) {
		uint64_t number = choose_new(shared, &shared->slots[0]);

		CHECK_EQ(number, 1000 + (uint64_t)i);
		/* Not before it is there. */
		CHECK(choose_key(&chooser, &dice, shared) < number);
		choose_inserted(shared, &shared->slots[0], NOT_INSERTING);
		CHECK_EQ(atomic_load(&shared->visible), number + 1);
	}
	for (int i = 0; i < 10000; i++)
		newest += choose_key(&chooser, &dice, shared) >= 5900;
	CHECK(newest > 5000); /* the last hundred of six thousand */
	free(shared);
}

static void test_an_insert_under_way_holds_back_later_ones(void)
{
	struct shared *shared = make_shared(2, 10);
	uint64_t first = choose_new(shared, &shared->slots[0]);

	CHECK_EQ(choose_new(shared, &shared->slots[1]), first + 1);
	choose_inserted(shared, &shared->slots[1], NOT_INSERTING);
	CHECK_EQ(atomic_load(&shared->visible), first);
	choose_inserted(shared, &shared->slots[0], NOT_INSERTING);
	CHECK_EQ(atomic_load(&shared->visible), first + 2);
	free(shared);
}

#define INSERTERS 3
#define INSERTS	  20000

static struct {
	struct shared *shared;
	_Atomic unsigned char is_there[INSERTERS * INSERTS + 1];
	_Atomic unsigned index;
} race;

static void *insert_many(void *argument)
{
	struct slot *slot = &race.shared->slots[atomic_fetch_add(&race.index, 1)];

	(void)argument;
	for (int i = 0; i < INSERTS; i++) {
		uint64_t number = choose_new(race.shared, slot), visible;

		atomic_store(&race.is_there[number], 1);
		choose_inserted(race.shared, slot, NOT_INSERTING);
		visible = atomic_load(&race.shared->visible);
		CHECK(visible == 0 || atomic_load(&race.is_there[visible - 1]));
	}
	return NULL;
}

static void test_what_is_visible_is_there(void)
{
	pthread_t threads[INSERTERS];

	race.shared = make_shared(INSERTERS, 0);
	for (int i = 0; i < INSERTERS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, insert_many, NULL), 0);
	for (int i = 0; i < INSERTERS; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(atomic_load(&race.shared->visible), INSERTERS * INSERTS);
	free(race.shared);
}

/* ------------------------------------------------------------------------------------------
 * Pace and mixes
 */

static void test_moments_are_evenly_spread(void)
{
	uint64_t start = 1000000, second = pace_ticks_of(1000000000);
	struct pace first, other;

	pace_init(&first, 1000, 0, start, 0, 2);
	pace_init(&other, 1000, 0, start, 1, 2);
	CHECK_EQ(pace_left(&first, start + second), 500);
	for (int i = 0; i < 500; i++) {
		uint64_t a = pace_take(&first), b = pace_take(&other);
		double each = (double)second / 1000;

		CHECK(fabs((double)a - ((double)start + 2 * i * each)) < 2);
		CHECK(fabs((double)b - ((double)start + (2 * i + 1) * each)) < 2);
	}
	CHECK_EQ(pace_left(&first, start + second), 0);
}

static void test_waiting_is_never_too_short(void)
{
	for (uint64_t ns = 1000; ns <= 3000000; ns *= 3) {
		uint64_t until = clock_ticks() + pace_ticks_of(ns);

		pace_wait(until);
		CHECK(clock_ticks() >= until);
	}
}

static bool is_near(double a, double b)
{
	return fabs(a - b) < 1e-9;
}

static void test_mixes(void)
{
	struct pass pass = {0};

	CHECK_EQ(plan_mix(&pass, "get:95,put:5"), RMR_OK);
	CHECK(is_near(plan_share(&pass, OP_GET), 0.95) && is_near(plan_share(&pass, OP_PUT), 0.05));
	CHECK_EQ(plan_mix(&pass, "read:1,update:1,scan:2"), RMR_OK);
	CHECK(is_near(plan_share(&pass, OP_GET), 0.25) && is_near(plan_share(&pass, OP_SCAN), 0.5));
	CHECK_EQ(plan_mix(&pass, "rmw"), RMR_OK);
	CHECK(is_near(plan_share(&pass, OP_RMW), 1));
	CHECK_EQ(plan_mix(&pass, ""), RMR_INVALID);
	CHECK_EQ(plan_mix(&pass, "fly:5"), RMR_INVALID);
	CHECK_EQ(plan_mix(&pass, "get:x"), RMR_INVALID);
	CHECK_EQ(plan_mix(&pass, "get:-1"), RMR_INVALID);
	CHECK_EQ(plan_mix(&pass, "get:0"), RMR_INVALID);
	CHECK_EQ(plan_mix(&pass, "getx:1"), RMR_INVALID);
}

static void test_workloads(void)
{
	static const struct {
		const char *name;
		enum op op;
		double share;
		enum distribution distribution;
	} wanted[] = {
		{"a", OP_PUT, 0.5, DIST_ZIPF},	 {"b", OP_GET, 0.95, DIST_ZIPF},
		{"c", OP_GET, 1, DIST_ZIPF},	 {"d", OP_INSERT, 0.05, DIST_LATEST},
		{"e", OP_SCAN, 0.95, DIST_ZIPF}, {"f", OP_RMW, 0.5, DIST_ZIPF},
	};
	struct pass pass = {0};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		CHECK(plan_workload(&pass, wanted[i].name));
		CHECK(is_near(plan_share(&pass, wanted[i].op), wanted[i].share));
		CHECK_EQ(pass.distribution, wanted[i].distribution);
	}
	CHECK(!plan_workload(&pass, "g"));
}

static const struct test tests[] = {
	{"zipf_is_zipf", test_zipf_is_zipf},
	{"zipf_begins_with_key_0", test_zipf_begins_with_key_0},
	{"uniform_is_uniform", test_uniform_is_uniform},
	{"sequential_covers_all_keys_once", test_sequential_covers_all_keys_once},
	{"latest_follows_the_inserts", test_latest_follows_the_inserts},
	{"an_insert_under_way_holds_back_later_ones",
	 test_an_insert_under_way_holds_back_later_ones},
	{"what_is_visible_is_there", test_what_is_visible_is_there},
	{"moments_are_evenly_spread", test_moments_are_evenly_spread},
	{"waiting_is_never_too_short", test_waiting_is_never_too_short},
	{"mixes", test_mixes},
	{"workloads", test_workloads},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "kv_bench_parts", tests, TEST_COUNT(tests));
}
