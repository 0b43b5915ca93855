/* The spin lock: that it excludes, and that what is done under it is seen by the next. */
#include <pthread.h>

#include "base/spin_lock.h"
#include "harness/test.h"

#define THREADS 4
#define ROUNDS	50000

static struct spin_lock lock;
static uint64_t counter, copies[8]; /* plain: only the lock guards them */

static void *count_up(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		spin_lock_take(&lock);
		counter++;
		for (size_t k = 0; k < TEST_COUNT(copies); k++) {
			CHECK_EQ(copies[k], counter - 1);
			copies[k] = counter;
		}
		spin_lock_give(&lock);
	}
	return arg;
}

static void test_excludes(void)
{
	pthread_t threads[THREADS];

	spin_lock_init(&lock);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, count_up, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(counter, THREADS * ROUNDS);
}

static void test_try(void)
{
	struct spin_lock own;

	spin_lock_init(&own);
	CHECK(spin_lock_try(&own));
	CHECK(!spin_lock_try(&own));
	spin_lock_give(&own);
	CHECK(spin_lock_try(&own));
	spin_lock_give(&own);
	spin_lock_take(&own);
	CHECK(!spin_lock_try(&own));
}

static const struct test tests[] = {
	{"excludes", test_excludes},
	{"try", test_try},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "spin_lock_test", tests, TEST_COUNT(tests));
}
