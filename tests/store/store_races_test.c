/*
 * Races of threads for one key, of which exactly one may win, and no step may be lost.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "arena.h"

#define THREADS 4u

struct race {
	struct test_store test;
	_Atomic uint64_t wins;
	unsigned rounds;
};

static void *run_race(void *context)
{
	struct race *race = context;
	struct store_worker *worker;
	uint64_t wins = 0;

	CHECK_OK(store_worker_open(race->test.store, &worker));
	for (unsigned i = 0; i < race->rounds; i++) {
		uint64_t count = 0;
		struct store_info info;
		struct store_put put = {.key = &i,
					.key_length = sizeof(i),
					.value = "",
					.condition = STORE_IF_ABSENT};
		enum store_status status = store_put(worker, &put, NULL);

		CHECK(status == STORE_OK || status == STORE_EXISTS);
		wins += status == STORE_OK;
		/* A number that is read and swapped: no step is lost. */
		put = (struct store_put){.key = "n",
					 .key_length = 1,
					 .value = &count,
					 .value_length = sizeof(count),
					 .condition = STORE_IF_VERSION};
		do {
			CHECK_EQ(store_get(worker, "n", 1, &count, sizeof(count), &info), STORE_OK);
			count++;
			put.version = info.version;
			status = store_put(worker, &put, NULL);
		} while (status == STORE_CONFLICT);
		CHECK_EQ(status, STORE_OK);
	}
	atomic_fetch_add(&race->wins, wins);
	store_worker_close(worker);
	return NULL;
}

static void test_one_winner(void)
{
	struct race race = {.rounds = TEST_HAS_SANITIZER ? 5000 : 50000};
	pthread_t threads[THREADS];
	uint64_t count = 0;
	struct store_put put = {
		.key = "n", .key_length = 1, .value = &count, .value_length = sizeof(count)};

	test_store_open(&race.test, 16 * MIB, STORE_REJECT);
	CHECK_EQ(store_put(race.test.worker, &put, NULL), STORE_OK);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, run_race, &race), 0);
	for (unsigned i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(race.wins, race.rounds);
	CHECK_EQ(store_get(race.test.worker, "n", 1, &count, sizeof(count), NULL), STORE_OK);
	CHECK_EQ(count, (uint64_t)race.rounds * THREADS);
	test_store_check(&race.test);
	test_store_close(&race.test);
}

static const struct test tests[] = {
	{"one_winner", test_one_winner},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_races", tests, TEST_COUNT(tests));
}
