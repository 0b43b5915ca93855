/*
 * Making room when several want it: free places that other workers keep are found, what is made
 * free for a long value is not taken by others, and a long value that cannot fit does not cost the
 * rest.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "arena.h"

static enum store_status put_number(struct store_worker *worker, uint64_t number, size_t length)
{
	static const uint8_t zeroes[4096];
	struct store_put put = {.key = &number, .key_length = 8, .value_length = length};
	struct store_draft draft;
	enum store_status status = store_draft_begin(worker, &put, &draft);

	if (status != STORE_OK)
		return status;
	for (size_t at = 0; at < length; at += sizeof(zeroes))
		memcpy((uint8_t *)draft.value + at, zeroes,
		       length - at < sizeof(zeroes) ? length - at : sizeof(zeroes));
	return store_draft_commit(worker, &put, &draft, NULL);
}

static uint64_t count_keys(struct test_store *test)
{
	struct store_stats stats;

	store_stats(test->store, &stats);
	return stats.keys;
}

/* One worker fills the store and deletes a little, which it keeps for itself. Another one asks. */
static void test_kept_by_another(void)
{
	struct store_worker *other;
	struct test_store test;
	uint64_t count = 0;

	test_store_open(&test, 2 * MIB, STORE_REJECT);
	CHECK_OK(store_worker_open(test.store, &other));
	while (put_number(test.worker, count, 100) == STORE_OK)
		count++;
	CHECK_EQ(put_number(other, UINT64_MAX, 100), STORE_NO_MEMORY);
	for (uint64_t i = 0; i < 10; i++)
		CHECK_EQ(store_delete(test.worker, &i, 8, 0, NULL), STORE_OK);
	for (uint64_t i = 0; i < 10; i++)
		CHECK_EQ(put_number(other, i, 100), STORE_OK);
	CHECK_EQ(count_keys(&test), count);
	store_worker_close(other);
	test_store_check(&test);
	test_store_close(&test);
}

/* A value that would fit if it were not for a few that are pinned, or on their way in: most of the
 * others are still there after it was refused. */
static void refuse_long(bool by_drafts)
{
	struct store_put put = {.key = "draft", .key_length = 5, .value_length = 100000};
	struct store_draft drafts[8];
	struct store_view views[8];
	struct test_store test;
	uint64_t before;

	test_store_open(&test, 8 * MIB, STORE_EVICT);
	for (uint64_t i = 0; i < 8; i++) {
		for (uint64_t j = 0; j < 5000; j++)
			CHECK_EQ(put_number(test.worker, i * 5000 + j, 100), STORE_OK);
		if (by_drafts)
			CHECK_EQ(store_draft_begin(test.worker, &put, &drafts[i]), STORE_OK);
		else
			CHECK_EQ(store_pin(test.worker, &(uint64_t){i * 5000}, 8, &views[i]),
				 STORE_OK);
	}
	before = count_keys(&test);
	CHECK_EQ(put_number(test.worker, UINT64_MAX, 6 * MIB), STORE_NO_MEMORY);
	CHECK(count_keys(&test) > before / 2);
	for (unsigned i = 0; i < 8; i++) {
		if (by_drafts)
			store_draft_abort(test.worker, &drafts[i]);
		else
			store_unpin(test.worker, &views[i]);
	}
	CHECK_EQ(put_number(test.worker, UINT64_MAX, 6 * MIB), STORE_OK);
	test_store_check(&test);
	test_store_close(&test);
}

static void test_refused(void)
{
	refuse_long(false);
	refuse_long(true);
}

struct crowd {
	struct test_store test;
	_Atomic bool is_over;
};

static void *put_small(void *context)
{
	struct crowd *crowd = context;
	struct store_worker *worker;

	CHECK_OK(store_worker_open(crowd->test.store, &worker));
	for (uint64_t i = 0; !atomic_load(&crowd->is_over); i++)
		CHECK_EQ(put_number(worker, i % 1000000, 40 + i / 50000 % 8 * 30), STORE_OK);
	store_worker_close(worker);
	return NULL;
}

/* Long values beside a crowd of small ones, in a store that is always full. */
static void test_beside_a_crowd(void)
{
	struct crowd crowd = {.is_over = false};
	pthread_t threads[2];
	int rounds = TEST_HAS_SANITIZER ? 20 : 200;

	test_store_open(&crowd.test, 32 * MIB, STORE_EVICT);
	for (unsigned i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, put_small, &crowd), 0);
	for (int i = 0; i < rounds; i++)
		CHECK_EQ(put_number(crowd.test.worker, UINT64_MAX - (uint64_t)i % 8, 3 * MIB),
			 STORE_OK);
	atomic_store(&crowd.is_over, true);
	for (unsigned i = 0; i < 2; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	test_store_check(&crowd.test);
	test_store_close(&crowd.test);
}

/* ------------------------------------------------------------------------------------------
 * The old value of a key for whose new one room is made
 */

static bool has_number(struct test_store *test, uint64_t number, size_t length)
{
	struct store_info info;

	return store_stat(test->worker, &number, 8, &info) == STORE_OK &&
	       info.value_length == length;
}

/* It is the coldest of all, and stays nevertheless, until the new one is complete. */
static void test_old_value_stays(void)
{
	const size_t length = 2 * MIB;
	const uint64_t key = UINT64_MAX;
	struct store_put put = {.key = &key, .key_length = 8, .value_length = length};
	struct store_draft draft;
	struct test_store test;

	test_store_open(&test, 12 * MIB, STORE_EVICT);
	for (int round = 0; round < 10; round++) {
		CHECK_EQ(put_number(test.worker, key, length), STORE_OK);
		for (uint64_t i = 0; i < 2000; i++) {
			struct store_info info;

			CHECK_EQ(put_number(test.worker, i, 4000), STORE_OK);
			for (int j = 0; j < 3; j++)
				(void)!store_get(test.worker, &i, 8, (uint8_t[4000]){0}, 4000,
						 &info);
		}
		/* Filling up may evict it, making room for its successor may not. */
		if (!has_number(&test, key, length))
			CHECK_EQ(put_number(test.worker, key, length), STORE_OK);
		for (int j = 0; j < 3; j++) {
			CHECK_EQ(store_draft_begin(test.worker, &put, &draft), STORE_OK);
			CHECK(has_number(&test, key, length));
			store_draft_abort(test.worker, &draft);
			CHECK(has_number(&test, key, length));
		}
	}
	test_store_check(&test);
	test_store_close(&test);
}

/* Of two such values only one fits. */
static void test_old_value_goes_first(void)
{
	const size_t length = 6 * MIB;
	const uint64_t key = 7;
	struct store_put put = {.key = &key, .key_length = 8, .value_length = length};
	struct store_draft draft;
	struct test_store test;
	struct store_info info;

	test_store_open(&test, 10 * MIB, STORE_EVICT);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(put_number(test.worker, key, length + (size_t)i), STORE_OK);
	CHECK(has_number(&test, key, length + 2));
	test_store_check(&test);
	test_store_close(&test);

	test_store_open(&test, 10 * MIB, STORE_REJECT);
	CHECK_EQ(put_number(test.worker, key, length), STORE_OK);
	CHECK_EQ(put_number(test.worker, key, length), STORE_NO_MEMORY);
	CHECK_EQ(store_stat(test.worker, &key, 8, &info), STORE_OK);
	put.may_lose_old = true;
	/* A condition needs the old one. */
	put.condition = STORE_IF_VERSION;
	put.version = info.version;
	CHECK_EQ(store_draft_begin(test.worker, &put, &draft), STORE_NO_MEMORY);
	CHECK(has_number(&test, key, length));
	put.condition = STORE_ALWAYS;
	CHECK_EQ(store_draft_begin(test.worker, &put, &draft), STORE_OK);
	CHECK(!has_number(&test, key, length));
	memset(draft.value, 1, length);
	CHECK_EQ(store_draft_commit(test.worker, &put, &draft, NULL), STORE_OK);
	CHECK(has_number(&test, key, length));
	/* Where there is room for both nothing goes. */
	put.value_length = MIB;
	CHECK_EQ(store_draft_begin(test.worker, &put, &draft), STORE_OK);
	CHECK(has_number(&test, key, length));
	store_draft_abort(test.worker, &draft);
	test_store_check(&test);
	test_store_close(&test);
}

static const struct test tests[] = {
	{"kept_by_another_worker", test_kept_by_another},
	{"a_long_value_that_is_refused", test_refused},
	{"long_values_beside_a_crowd", test_beside_a_crowd},
	{"old_value_stays", test_old_value_stays},
	{"old_value_goes_first", test_old_value_goes_first},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_room", tests, TEST_COUNT(tests));
}
