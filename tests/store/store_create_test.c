/*
 * How stores and workers begin and end, and what they count meanwhile.
 */
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "store/layout.h"

static void test_create(void)
{
	struct test_store test;
	struct store_options options;
	struct store *store = NULL;
	struct store_stats stats;

	test_store_open(&test, 3 * MIB, STORE_REJECT);
	options = test.options;
	options.size = STORE_MIN_SIZE - 1;
	CHECK_STATUS(store_create(&options, &store), RMR_INVALID);
	options.size = (size_t)STORE_MAX_SIZE + 1;
	CHECK_STATUS(store_create(&options, &store), RMR_INVALID);
	options = test.options;
	options.memory = (uint8_t *)options.memory + 64;
	CHECK_STATUS(store_create(&options, &store), RMR_INVALID);
	options.memory = NULL;
	CHECK_STATUS(store_create(&options, &store), RMR_INVALID);
	options = test.options;
	options.cells = (uint8_t *)options.cells + 4;
	CHECK_STATUS(store_create(&options, &store), RMR_INVALID);
	CHECK(store == NULL);
	store_destroy(NULL);
	store_worker_close(NULL);
	/* An odd rest is left alone. */
	store_worker_close(test.worker);
	store_destroy(test.store);
	memset(test.memory, 0, test.size);
	test.options.size = 2 * MIB + 54321;
	CHECK_OK(store_create(&test.options, &test.store));
	CHECK_OK(store_worker_open(test.store, &test.worker));
	store_stats(test.store, &stats);
	CHECK_EQ(stats.size, 2 * MIB);
	CHECK_EQ(put_text(test.worker, "key", "value", NULL), STORE_OK);
	test_store_check(&test);
	test_store_close(&test);
}

static void test_worker_limit(void)
{
	struct store_worker *workers[STORE_MAX_WORKERS], *one_more;
	struct test_store test;
	char value[16];

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	for (unsigned i = 1; i < STORE_MAX_WORKERS; i++)
		CHECK_OK(store_worker_open(test.store, &workers[i]));
	CHECK_STATUS(store_worker_open(test.store, &one_more), RMR_LIMIT);
	for (unsigned i = 1; i < STORE_MAX_WORKERS; i++)
		CHECK_EQ(put_text(workers[i], "key", "value", NULL), STORE_OK);
	store_worker_close(workers[100]);
	CHECK_OK(store_worker_open(test.store, &workers[100]));
	test_store_check(&test);
	for (unsigned i = 1; i < STORE_MAX_WORKERS; i++)
		store_worker_close(workers[i]);
	CHECK_EQ(get_text(test.worker, "key", value, sizeof(value), NULL), STORE_OK);
	CHECK_STR(value, "value");
	test_store_check(&test);
	test_store_close(&test);
}

static void test_status_texts(void)
{
	for (int status = STORE_OK; status >= STORE_TOO_MANY_PINS; status--) {
		CHECK(strlen(store_status_text(status)) > 1);
		CHECK(strcmp(store_status_text(status), "unknown status") != 0);
	}
	CHECK_STR(store_status_text(STORE_NOT_FOUND), "not found");
	CHECK_STR(store_status_text(STORE_UNKNOWN - 1), "unknown status");
	CHECK_STR(store_status_text(1), "unknown status");
	CHECK_STR(store_status_text(INT32_MIN), "unknown status");
}

static void test_counts(void)
{
	struct test_store test;
	struct store_stats stats;
	struct store_worker *other;
	char value[16];

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_OK(store_worker_open(test.store, &other));
	CHECK_EQ(put_text(test.worker, "a", "1", NULL), STORE_OK);
	CHECK_EQ(put_text(other, "b", "2", NULL), STORE_OK);
	CHECK_EQ(put_text(other, "b", "3", NULL), STORE_OK);
	CHECK_EQ(get_text(test.worker, "b", value, sizeof(value), NULL), STORE_OK);
	CHECK_EQ(get_text(test.worker, "c", value, sizeof(value), NULL), STORE_NOT_FOUND);
	CHECK_EQ(store_delete(other, "a", 1, 0, NULL), STORE_OK);
	/* Counts outlive their worker. */
	store_worker_close(other);
	store_stats(test.store, &stats);
	CHECK_EQ(stats.keys, 1);
	CHECK_EQ(stats.puts, 3);
	CHECK_EQ(stats.gets, 2);
	CHECK_EQ(stats.hits, 1);
	CHECK_EQ(stats.deletes, 1);
	CHECK_EQ(stats.expired + stats.evicted + stats.no_memory, 0);
	test_store_check(&test);
	test_store_close(&test);
}

static const struct test tests[] = {
	{"create", test_create},
	{"as_many_workers_as_there_may_be", test_worker_limit},
	{"status_texts", test_status_texts},
	{"counts", test_counts},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_create", tests, TEST_COUNT(tests));
}
