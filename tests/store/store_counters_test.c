/*
 * Counters: sums, ranges, texts that become counters, and cells that are not used again too early.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"

#define CELLS 1024 /* that a test's store has */

static enum store_status add(struct test_store *test, const char *key, int64_t delta, int64_t *sum,
			     struct store_info *info)
{
	return store_add(test->worker, key, strlen(key), delta, sum, info);
}

static void check_add(struct test_store *test, const char *key, int64_t delta, int64_t expected)
{
	int64_t sum = 0x5555;

	CHECK_EQ(add(test, key, delta, &sum, NULL), STORE_OK);
	CHECK_EQ(sum, expected);
}

static void check_text(struct test_store *test, const char *key, const char *expected)
{
	char value[64];
	struct store_info info;

	CHECK_EQ(get_text(test->worker, key, value, sizeof(value), &info), STORE_OK);
	CHECK_STR(value, expected);
	CHECK_EQ(info.value_length, strlen(expected));
	CHECK_EQ(store_stat(test->worker, key, strlen(key), &info), STORE_OK);
	CHECK_EQ(info.value_length, strlen(expected));
}

static _Atomic int64_t *cell(struct test_store *test, const char *key)
{
	struct store_info info;

	CHECK_EQ(store_stat(test->worker, key, strlen(key), &info), STORE_OK);
	CHECK(info.cell < CELLS);
	return (_Atomic int64_t *)test->cells + info.cell;
}

static void check_cells(struct test_store *test, uint64_t used, uint64_t retired)
{
	struct store_stats stats;

	store_stats(test->store, &stats);
	CHECK_EQ(stats.cells, CELLS);
	CHECK_EQ(stats.cells_used, used);
	CHECK_EQ(stats.cells_retired, retired);
}

static void test_add(void)
{
	struct test_store test;
	struct store_info first, info;
	int64_t sum;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(add(&test, "n", 5, &sum, &first), STORE_OK);
	CHECK_EQ(sum, 5);
	CHECK(first.cell != STORE_NO_CELL);
	check_add(&test, "n", -7, -2);
	check_text(&test, "n", "-2");
	check_add(&test, "n", 0, -2);
	CHECK_EQ(add(&test, "n", 1002, &sum, &info), STORE_OK);
	/* Counting on leaves the version alone. */
	CHECK_EQ(info.version, first.version);
	CHECK_EQ(info.cell, first.cell);
	check_text(&test, "n", "1000");
	/* Peers count in the cell. */
	atomic_fetch_add(cell(&test, "n"), 24);
	check_add(&test, "n", 0, 1024);
	check_text(&test, "n", "1024");
	/* A key that is not there counts from 0, by 0 as well. */
	check_add(&test, "zero", 0, 0);
	check_text(&test, "zero", "0");
	check_cells(&test, 2, 0);
	test_store_check(&test);
	test_store_close(&test);
}

static void test_get_room(void)
{
	struct test_store test;
	struct store_info info;
	struct store_view view;
	uint64_t number;
	char value[8] = "before";

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	check_add(&test, "n", -123456, -123456);
	CHECK_EQ(store_get(test.worker, "n", 1, value, 6, &info), STORE_NO_ROOM);
	CHECK_EQ(info.value_length, 7);
	CHECK_STR(value, "before");
	CHECK_EQ(store_get(test.worker, "n", 1, value, 7, &info), STORE_OK);
	CHECK_MEM(value, "-123456", 7);
	/* A view is the number of the cell. */
	CHECK_EQ(store_pin(test.worker, "n", 1, &view), STORE_OK);
	CHECK_EQ(view.length, sizeof(number));
	memcpy(&number, view.value, sizeof(number));
	CHECK_EQ(number, view.info.cell);
	store_unpin(test.worker, &view);
	test_store_close(&test);
}

static void test_range(void)
{
	struct test_store test;
	int64_t sum = 0;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(add(&test, "n", STORE_COUNTER_MAX + 1, &sum, NULL), STORE_OUT_OF_RANGE);
	CHECK_EQ(add(&test, "n", INT64_MIN, &sum, NULL), STORE_OUT_OF_RANGE);
	CHECK_EQ(store_stat(test.worker, "n", 1, &(struct store_info){0}), STORE_NOT_FOUND);
	check_add(&test, "n", STORE_COUNTER_MAX, STORE_COUNTER_MAX);
	CHECK_EQ(add(&test, "n", 1, &sum, NULL), STORE_OUT_OF_RANGE);
	CHECK_EQ(add(&test, "n", INT64_MAX, &sum, NULL), STORE_OUT_OF_RANGE);
	CHECK_EQ(add(&test, "n", STORE_COUNTER_MAX, &sum, NULL), STORE_OUT_OF_RANGE);
	check_text(&test, "n", "4611686018427387904");
	check_add(&test, "n", STORE_COUNTER_MIN, 0);
	check_add(&test, "n", STORE_COUNTER_MIN, STORE_COUNTER_MIN);
	CHECK_EQ(add(&test, "n", -1, &sum, NULL), STORE_OUT_OF_RANGE);
	CHECK_EQ(add(&test, "n", INT64_MIN, &sum, NULL), STORE_OUT_OF_RANGE);
	check_text(&test, "n", "-4611686018427387904");
	/* What peers made of it. */
	atomic_store(cell(&test, "n"), INT64_MAX);
	CHECK_EQ(add(&test, "n", STORE_COUNTER_MAX, &sum, NULL), STORE_OUT_OF_RANGE);
	CHECK_EQ(add(&test, "n", 1, &sum, NULL), STORE_OUT_OF_RANGE);
	atomic_store(cell(&test, "n"), INT64_MIN + 5);
	CHECK_EQ(add(&test, "n", STORE_COUNTER_MIN, &sum, NULL), STORE_OUT_OF_RANGE);
	CHECK_EQ(sum, 0);
	check_cells(&test, 1, 0);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * Texts
 */

static void test_texts(void)
{
	static const struct {
		const char *text;
		bool is_number;
		int64_t number;
	} texts[] = {
		{"0", true, 0},
		{"17", true, 17},
		{"-17", true, -17},
		{"-0", true, 0},
		{"007", true, 7},
		{"4611686018427387903", true, STORE_COUNTER_MAX - 1},
		{"-4611686018427387904", true, STORE_COUNTER_MIN},
		{"00000000000000000012", true, 12},
		{"", false, 0},
		{"-", false, 0},
		{"+5", false, 0},
		{" 5", false, 0},
		{"\t5", false, 0},
		{"\n5", false, 0},
		{"5 ", false, 0},
		{"5\n", false, 0},
		{"5x", false, 0},
		{"0x5", false, 0},
		{"1e3", false, 0},
		{"1.0", false, 0},
		{"- 5", false, 0},
		{"--5", false, 0},
		{"text", false, 0},
		{"4611686018427387905", false, 0},
		{"9223372036854775808", false, 0},
		{"99999999999999999999", false, 0},
		{"000000000000000000012", false, 0},
		{"1000000000000000000000000000", false, 0},
	};
	struct test_store test;
	struct store_info before, after;
	int64_t sum;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	for (size_t i = 0; i < TEST_COUNT(texts); i++) {
		enum store_status status;

		CHECK_EQ(put_text(test.worker, "n", texts[i].text, &before), STORE_OK);
		status = add(&test, "n", 1, &sum, &after);
		if (status != (texts[i].is_number ? STORE_OK : STORE_NOT_A_NUMBER))
			TEST_FAIL("\"%s\": %s", texts[i].text, store_status_text(status));
		if (texts[i].is_number) {
			CHECK_EQ(sum, texts[i].number + 1);
			CHECK(after.version > before.version);
			CHECK(after.cell != STORE_NO_CELL);
		} else {
			check_text(&test, "n", texts[i].text);
			CHECK_EQ(store_swap(test.worker, "n", 1, 0, 1, &sum), STORE_NOT_A_NUMBER);
		}
		/* Overwriting ends the counter. */
		store_cells_release(test.store, store_cells_ticket(test.store));
	}
	CHECK_EQ(store_put(test.worker,
			   &(struct store_put){
				   .key = "n", .key_length = 1, .value = "5\0", .value_length = 2},
			   NULL),
		 STORE_OK);
	CHECK_EQ(add(&test, "n", 1, &sum, NULL), STORE_NOT_A_NUMBER);
	CHECK_EQ(put_text(test.worker, "n", "4611686018427387904", NULL), STORE_OK);
	CHECK_EQ(add(&test, "n", 1, &sum, NULL), STORE_OUT_OF_RANGE);
	check_text(&test, "n", "4611686018427387904");
	test_store_check(&test);
	test_store_close(&test);
}

/* A counter made of a text keeps its time to live. */
static void test_text_with_ttl(void)
{
	struct test_store test;
	struct store_put put = {
		.key = "n", .key_length = 1, .value = "41", .value_length = 2, .ttl_ms = 500};
	struct store_info info;
	int64_t sum;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	test.options.clock_ms = test_clock_ms;
	test_store_restart(&test);
	CHECK_EQ(store_put(test.worker, &put, NULL), STORE_OK);
	test_now_ms += 100;
	CHECK_EQ(add(&test, "n", 1, &sum, &info), STORE_OK);
	CHECK_EQ(sum, 42);
	CHECK_EQ(info.expires_ms, test_now_ms + 400);
	test_now_ms += 399;
	check_add(&test, "n", 1, 43);
	test_now_ms += 1;
	/* Its time is over: it counts from 0 again, for ever. */
	CHECK_EQ(add(&test, "n", 1, &sum, &info), STORE_OK);
	CHECK_EQ(sum, 1);
	CHECK_EQ(info.expires_ms, 0);
	check_cells(&test, 1, 1);
	CHECK_EQ(store_expire(test.worker, "n", 1, 10, NULL), STORE_OK);
	test_now_ms += 10;
	CHECK_EQ(store_swap(test.worker, "n", 1, 1, 2, &sum), STORE_NOT_FOUND);
	CHECK_EQ(store_tick(test.worker, 10000), 0);
	check_cells(&test, 0, 2);
	test_store_check(&test);
	test_store_close(&test);
}

static void test_swap(void)
{
	struct test_store test;
	int64_t found = 77;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(store_swap(test.worker, "n", 1, 0, 1, &found), STORE_NOT_FOUND);
	CHECK_EQ(found, 77);
	check_add(&test, "n", 10, 10);
	CHECK_EQ(store_swap(test.worker, "n", 1, 11, 20, &found), STORE_CONFLICT);
	CHECK_EQ(found, 10);
	CHECK_EQ(store_swap(test.worker, "n", 1, 10, 20, &found), STORE_OK);
	CHECK_EQ(found, 10);
	check_text(&test, "n", "20");
	CHECK_EQ(store_swap(test.worker, "n", 1, 20, STORE_COUNTER_MAX + 1, &found),
		 STORE_OUT_OF_RANGE);
	CHECK_EQ(store_swap(test.worker, "n", 1, 20, STORE_COUNTER_MIN - 1, &found),
		 STORE_OUT_OF_RANGE);
	CHECK_EQ(store_swap(test.worker, "n", 1, 20, STORE_COUNTER_MIN, &found), STORE_OK);
	test_store_close(&test);
}

struct counting {
	struct store *store;
	atomic_bool stop;
};

static void *count_on(void *argument)
{
	struct counting *counting = argument;
	struct store_worker *worker;
	int64_t sum;

	CHECK_OK(store_worker_open(counting->store, &worker));
	while (!atomic_load(&counting->stop)) {
		enum store_status status = store_add(worker, "n", 1, 1, &sum, NULL);

		CHECK(status == STORE_OK || status == STORE_NO_MEMORY);
	}
	store_worker_close(worker);
	return NULL;
}

/* A text that is about to become a counter, and is replaced by one meanwhile: that one is counted
 * on, and not made into another, by which counts of peers would be lost. */
static void test_text_becomes_a_counter_twice(void)
{
	struct store_put put = {.key = "n", .key_length = 1, .value = "5", .value_length = 1};
	struct test_store test;
	struct counting counting = {0};
	pthread_t thread;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	counting.store = test.store;
	CHECK_EQ(pthread_create(&thread, NULL, count_on, &counting), 0);
	for (int i = 0; i < (TEST_HAS_SANITIZER ? 20000 : 200000); i++) {
		struct store_info info, later;
		int64_t sum;

		CHECK_EQ(store_put(test.worker, &put, NULL), STORE_OK);
		CHECK_EQ(store_delete(test.worker, "n", 1, 0, NULL), STORE_OK);
		CHECK_EQ(store_add(test.worker, "n", 1, 1, &sum, &info), STORE_OK);
		for (int look = 0; look < 3; look++) {
			CHECK_EQ(store_stat(test.worker, "n", 1, &later), STORE_OK);
			CHECK_EQ(later.version, info.version);
		}
		CHECK_EQ(store_delete(test.worker, "n", 1, 0, NULL), STORE_OK);
		/* Nobody remembers cells here. */
		store_cells_release(test.store, store_cells_ticket(test.store));
	}
	atomic_store(&counting.stop, true);
	pthread_join(thread, NULL);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * Cells
 */

static void test_gone(void)
{
	struct test_store test;
	_Atomic int64_t *first;
	uint64_t ticket;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	check_add(&test, "n", 7, 7);
	first = cell(&test, "n");
	ticket = store_cells_ticket(test.store);
	CHECK_EQ(store_delete(test.worker, "n", 1, 0, NULL), STORE_OK);
	CHECK_EQ(atomic_load(first), STORE_COUNTER_GONE);
	/* A peer that comes late sees it, and harms nobody. */
	CHECK(atomic_fetch_add(first, 1000) < STORE_COUNTER_MIN);
	check_cells(&test, 0, 1);
	/* A ticket from before its end does not release it. */
	store_cells_release(test.store, ticket);
	check_cells(&test, 0, 1);
	check_add(&test, "n", 1, 1);
	CHECK(cell(&test, "n") != first);
	ticket = store_cells_ticket(test.store);
	store_cells_release(test.store, ticket);
	store_cells_release(test.store, ticket);
	check_cells(&test, 1, 0);
	check_add(&test, "m", 3, 3);
	CHECK(cell(&test, "m") == first);
	check_add(&test, "m", 1, 4);
	/* Overwriting and flushing end counters, too. */
	first = cell(&test, "n");
	CHECK_EQ(put_text(test.worker, "n", "text", NULL), STORE_OK);
	CHECK_EQ(atomic_load(first), STORE_COUNTER_GONE);
	store_flush(test.worker);
	check_cells(&test, 0, 2);
	test_store_check(&test);
	test_store_close(&test);
}

static void test_out_of_cells(void)
{
	struct test_store test;
	struct store_stats stats;
	int64_t sum;
	char key[16];

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(put_text(test.worker, "text", "5", NULL), STORE_OK);
	for (int i = 0; i < CELLS; i++) {
		snprintf(key, sizeof(key), "n%d", i);
		check_add(&test, key, i, i);
	}
	CHECK_EQ(add(&test, "one more", 1, &sum, NULL), STORE_NO_MEMORY);
	CHECK_EQ(add(&test, "text", 1, &sum, NULL), STORE_NO_MEMORY);
	check_text(&test, "text", "5");
	check_add(&test, "n5", 1, 6);
	/* Retired ones are not free yet. */
	CHECK_EQ(store_delete(test.worker, "n5", 2, 0, NULL), STORE_OK);
	CHECK_EQ(add(&test, "one more", 1, &sum, NULL), STORE_NO_MEMORY);
	store_cells_release(test.store, store_cells_ticket(test.store));
	check_add(&test, "one more", 1, 1);
	check_cells(&test, CELLS, 0);
	test_store_check(&test);
	store_flush(test.worker);
	check_cells(&test, 0, CELLS);
	store_stats(test.store, &stats);
	CHECK_EQ(stats.keys, 0);
	/* All of them, round and round. */
	for (int i = 0; i < 5 * CELLS; i++) {
		store_cells_release(test.store, store_cells_ticket(test.store));
		snprintf(key, sizeof(key), "n%d", i % CELLS);
		check_add(&test, key, i, i);
		CHECK_EQ(store_delete(test.worker, key, strlen(key), 0, NULL), STORE_OK);
	}
	check_cells(&test, 0, 1);
	test_store_close(&test);
}

/* Nobody outside uses them: they are free at once. */
static void test_private_cells(void)
{
	struct test_store test;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	test.options.cells_are_private = true;
	test_store_restart(&test);
	for (int i = 0; i < 5 * CELLS; i++) {
		check_add(&test, "n", i, i);
		CHECK_EQ(store_delete(test.worker, "n", 1, 0, NULL), STORE_OK);
		check_cells(&test, 0, 0);
	}
	test_store_close(&test);
}

static void test_no_cells(void)
{
	struct test_store test;
	int64_t sum;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	test.options.cells = NULL;
	test_store_restart(&test);
	CHECK_EQ(add(&test, "n", 1, &sum, NULL), STORE_NO_MEMORY);
	CHECK_EQ(put_text(test.worker, "n", "5", NULL), STORE_OK);
	CHECK_EQ(add(&test, "n", 1, &sum, NULL), STORE_NO_MEMORY);
	check_text(&test, "n", "5");
	test_store_check(&test);
	test_store_close(&test);
}

static const struct test tests[] = {
	{"add", test_add},
	{"get_and_view", test_get_room},
	{"range", test_range},
	{"texts", test_texts},
	{"text_with_ttl", test_text_with_ttl},
	{"swap", test_swap},
	{"text_becomes_a_counter_twice", test_text_becomes_a_counter_twice},
	{"gone_cells_and_tickets", test_gone},
	{"out_of_cells", test_out_of_cells},
	{"private_cells", test_private_cells},
	{"no_cells", test_no_cells},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_counters", tests, TEST_COUNT(tests));
}
