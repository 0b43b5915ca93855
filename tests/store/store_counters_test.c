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

/* What is refused changes nothing: neither the number nor its form. */
static void check_refused(struct test_store *test, const char *key, int64_t delta)
{
	struct store_info before, after;
	char text[32], same[32];
	int64_t sum = 77;

	CHECK_EQ(get_text(test->worker, key, text, sizeof(text), &before), STORE_OK);
	CHECK_EQ(add(test, key, delta, &sum, NULL), STORE_OUT_OF_RANGE);
	CHECK_EQ(sum, 77);
	CHECK_EQ(get_text(test->worker, key, same, sizeof(same), &after), STORE_OK);
	CHECK_STR(same, text);
	CHECK_EQ(after.version, before.version);
	CHECK_EQ(after.cell, before.cell);
}

/* A key's number is in a cell, or is not. */
static void check_form(struct test_store *test, const char *key, bool has_cell)
{
	struct store_info info;

	CHECK_EQ(store_stat(test->worker, key, strlen(key), &info), STORE_OK);
	CHECK_EQ(info.cell != STORE_NO_CELL, has_cell);
}

/* By steps of 2^60 to the edges of int64 and back. */
static void test_range(void)
{
	const int64_t step = (int64_t)1 << 60;
	struct test_store test;
	int64_t sum = 0;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	for (int64_t i = 1; i < 8; i++) {
		check_add(&test, "up", step, i * step);
		check_add(&test, "down", -step, -i * step);
	}
	/* In a cell as long as it was not large. */
	check_form(&test, "up", false);
	check_form(&test, "down", false);
	check_cells(&test, 0, 2);
	check_refused(&test, "up", step);
	check_refused(&test, "up", INT64_MAX);
	check_add(&test, "up", step - 1, INT64_MAX);
	check_refused(&test, "up", 1);
	check_text(&test, "up", "9223372036854775807");
	check_add(&test, "down", -step, INT64_MIN);
	check_refused(&test, "down", -1);
	check_refused(&test, "down", INT64_MIN);
	check_text(&test, "down", "-9223372036854775808");
	check_add(&test, "up", INT64_MIN, -1);
	check_add(&test, "down", INT64_MAX, -1);
	/* Both are small again. */
	check_form(&test, "up", true);
	check_form(&test, "down", true);
	/* The extremes at once. */
	check_add(&test, "most", INT64_MAX, INT64_MAX);
	check_add(&test, "least", INT64_MIN, INT64_MIN);
	CHECK_EQ(store_swap(test.worker, "most", 4, INT64_MAX, INT64_MIN, &sum), STORE_OK);
	check_text(&test, "most", "-9223372036854775808");
	CHECK_EQ(add(&test, "most", -1, &sum, NULL), STORE_OUT_OF_RANGE);
	test_store_check(&test);
	test_store_close(&test);
}

/* Where a number changes its form, and who is told of its cell. */
static void test_forms(void)
{
	struct test_store test;
	struct store_info info;
	int64_t found;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	check_add(&test, "n", STORE_CELL_LARGE / 2, STORE_CELL_LARGE / 2);
	check_form(&test, "n", true);
	check_add(&test, "n", STORE_CELL_LARGE / 2, STORE_CELL_LARGE);
	CHECK_EQ(store_stat(test.worker, "n", 1, &info), STORE_OK);
	CHECK(info.cell_is_open);
	/* A peer counts on. */
	atomic_fetch_add(cell(&test, "n"), 1);
	CHECK_EQ(store_stat(test.worker, "n", 1, &info), STORE_OK);
	CHECK(info.cell != STORE_NO_CELL && !info.cell_is_open);
	check_text(&test, "n", "2305843009213693953");
	check_add(&test, "n", 0, STORE_CELL_LARGE + 1);
	check_form(&test, "n", false);
	/* Not to and fro at the limit. */
	check_add(&test, "n", -1, STORE_CELL_LARGE);
	check_form(&test, "n", false);
	check_add(&test, "n", -STORE_CELL_LARGE / 2, STORE_CELL_LARGE / 2);
	check_form(&test, "n", true);
	CHECK_EQ(store_swap(test.worker, "n", 1, STORE_CELL_LARGE / 2, -STORE_CELL_LARGE - 1,
			    &found),
		 STORE_OK);
	check_form(&test, "n", false);
	check_text(&test, "n", "-2305843009213693953");
	/* Whatever peers make of a cell is a number. */
	check_add(&test, "m", 1, 1);
	atomic_store(cell(&test, "m"), INT64_MAX);
	check_refused(&test, "m", 1);
	check_add(&test, "m", -1, INT64_MAX - 1);
	check_form(&test, "m", false);
	test_store_check(&test);
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
		{"4611686018427387905", true, STORE_CELL_MAX + 1},
		{"9223372036854775806", true, INT64_MAX - 1},
		{"-9223372036854775808", true, INT64_MIN},
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
		{"1.0", false, 0},
		{"- 5", false, 0},
		{"--5", false, 0},
		{"text", false, 0},
		{"9223372036854775808", false, 0},
		{"-9223372036854775809", false, 0},
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
			CHECK_EQ(after.cell != STORE_NO_CELL,
				 llabs(sum / 2) < STORE_CELL_LARGE / 4);
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
	CHECK_EQ(put_text(test.worker, "n", "9223372036854775807", NULL), STORE_OK);
	check_refused(&test, "n", 1);
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
	CHECK_EQ(store_swap(test.worker, "n", 1, 20, INT64_MAX, &found), STORE_OK);
	CHECK_EQ(store_swap(test.worker, "n", 1, 20, 21, &found), STORE_CONFLICT);
	CHECK_EQ(found, INT64_MAX);
	CHECK_EQ(store_swap(test.worker, "n", 1, INT64_MAX, INT64_MIN, &found), STORE_OK);
	CHECK_EQ(store_swap(test.worker, "n", 1, INT64_MIN, 3, &found), STORE_OK);
	check_form(&test, "n", true);
	/* The text of a number is a number. */
	CHECK_EQ(put_text(test.worker, "n", "007", NULL), STORE_OK);
	CHECK_EQ(store_swap(test.worker, "n", 1, 8, 9, &found), STORE_CONFLICT);
	CHECK_EQ(found, 7);
	check_text(&test, "n", "007");
	CHECK_EQ(store_swap(test.worker, "n", 1, 7, 9, &found), STORE_OK);
	check_text(&test, "n", "9");
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

		CHECK_EQ(status, STORE_OK);
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
	/* A peer that comes late sees it, also when another one was still later. */
	CHECK(store_cell_is_gone(atomic_fetch_add(first, -1000)));
	CHECK(atomic_load(first) > 0);
	CHECK(store_cell_is_gone(atomic_fetch_add(first, 2000)));
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

/* When no cell is free the store counts by itself, until one comes back. */
static void test_out_of_cells(void)
{
	struct test_store test;
	struct store_cells look;
	char key[16];

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	CHECK_EQ(put_text(test.worker, "text", "5", NULL), STORE_OK);
	for (int i = 0; i < CELLS; i++) {
		snprintf(key, sizeof(key), "n%d", i);
		check_add(&test, key, i, i);
	}
	store_cells_look(test.store, &look);
	CHECK(!look.were_missed);
	check_add(&test, "one more", 1, 1);
	check_add(&test, "one more", 1, 2);
	check_add(&test, "text", 1, 6);
	check_form(&test, "one more", false);
	check_form(&test, "text", false);
	store_cells_look(test.store, &look);
	CHECK(look.were_missed);
	store_cells_look(test.store, &look);
	CHECK(!look.were_missed);
	check_add(&test, "n5", 1, 6);
	/* Retired ones are not free yet. */
	CHECK_EQ(store_delete(test.worker, "n5", 2, 0, NULL), STORE_OK);
	check_add(&test, "one more", 1, 3);
	check_form(&test, "one more", false);
	store_cells_release(test.store, store_cells_ticket(test.store));
	check_add(&test, "one more", 1, 4);
	check_form(&test, "one more", true);
	check_text(&test, "text", "6");
	check_cells(&test, CELLS, 0);
	test_store_check(&test);
	store_flush(test.worker);
	check_cells(&test, 0, CELLS);
	/* All of them, round and round, most of them counted by the store. */
	for (int i = 0; i < 5 * CELLS; i++) {
		if (i % 7 == 0)
			store_cells_release(test.store, store_cells_ticket(test.store));
		snprintf(key, sizeof(key), "n%d", i % CELLS);
		check_add(&test, key, i, i);
		CHECK_EQ(store_delete(test.worker, key, strlen(key), 0, NULL), STORE_OK);
	}
	test_store_close(&test);
}

/* Cells that a lost peer may know are not used again; others go round as before. */
static void test_barred(void)
{
	struct test_store test;
	struct store_stats stats;
	_Atomic int64_t *first, *second;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	check_add(&test, "a", 1, 1);
	check_add(&test, "b", 1, 1);
	first = cell(&test, "a");
	second = cell(&test, "b");
	CHECK_EQ(store_delete(test.worker, "a", 1, 0, NULL), STORE_OK);
	store_cells_bar(test.store);
	check_add(&test, "c", 1, 1);
	CHECK_EQ(store_delete(test.worker, "b", 1, 0, NULL), STORE_OK);
	CHECK_EQ(store_delete(test.worker, "c", 1, 0, NULL), STORE_OK);
	store_cells_release(test.store, store_cells_ticket(test.store));
	store_stats(test.store, &stats);
	CHECK_EQ(stats.cells_lost, 2);
	check_cells(&test, 0, 0);
	for (int i = 0; i < 100; i++) {
		check_add(&test, "d", 1, 1);
		CHECK(cell(&test, "d") != first && cell(&test, "d") != second);
		CHECK_EQ(store_delete(test.worker, "d", 1, 0, NULL), STORE_OK);
		store_cells_release(test.store, store_cells_ticket(test.store));
	}
	/* One cell for all of them. */
	check_add(&test, "e", 1, 1);
	CHECK(cell(&test, "e") - (_Atomic int64_t *)test.cells == 2);
	test_store_close(&test);
}

/* Counting by the store keeps the time to live, to the millisecond. */
static void test_ttl_as_text(void)
{
	struct test_store test;
	struct store_info info;
	int64_t sum;

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	test.options.clock_ms = test_clock_ms;
	test.options.cells = NULL;
	test_store_restart(&test);
	check_add(&test, "n", 1, 1);
	CHECK_EQ(store_expire(test.worker, "n", 1, 5000, &info), STORE_OK);
	for (int i = 0; i < 100; i++) {
		test_now_ms += 3;
		CHECK_EQ(add(&test, "n", 1, &sum, &info), STORE_OK);
		CHECK_EQ(sum, i + 2);
		CHECK_EQ(info.expires_ms, test_now_ms - (uint64_t)(i + 1) * 3 + 5000);
	}
	test_now_ms += 5000;
	CHECK_EQ(add(&test, "n", 1, &sum, &info), STORE_OK);
	CHECK_EQ(sum, 1);
	CHECK_EQ(info.expires_ms, 0);
	test_store_check(&test);
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

	test_store_open(&test, 4 * MIB, STORE_REJECT);
	test.options.cells = NULL;
	test_store_restart(&test);
	check_add(&test, "n", 1, 1);
	CHECK_EQ(put_text(test.worker, "n", "5", NULL), STORE_OK);
	check_add(&test, "n", 1, 6);
	check_add(&test, "n", 4, 10);
	check_text(&test, "n", "10");
	test_store_check(&test);
	test_store_close(&test);
}

/* ------------------------------------------------------------------------------------------
 * Few cells, many counters, large and small numbers: every sum is right
 */

#define PLACES	3
#define THREADS 4

struct crowd {
	struct test_store test;
	/* What each key must be, modulo 2^64: sums of all that was answered STORE_OK. */
	_Atomic uint64_t sums[PLACES];
	atomic_uint with_cell, as_text;
	pthread_barrier_t barrier;
};

struct walker {
	struct crowd *crowd;
	uint64_t seed;
	/* As a peer does: the cell that it was told last. */
	_Atomic int64_t *cells[PLACES];
};

static const int64_t steps[] = {
	1, 3, STORE_CELL_STEP - 1, STORE_CELL_LARGE / 2, STORE_CELL_LARGE, STORE_CELL_MAX};

/* A one-sided addition by the rules. False: the store has to be asked. */
static bool add_as_a_peer(struct walker *walker, unsigned place, int64_t delta)
{
	int64_t before;

	if (!walker->cells[place] || delta >= STORE_CELL_STEP || delta <= -STORE_CELL_STEP)
		return false;
	before = atomic_fetch_add(walker->cells[place], delta);
	if (store_cell_is_large(before))
		walker->cells[place] = NULL;
	if (store_cell_is_gone(before))
		return false;
	atomic_fetch_add(&walker->crowd->sums[place], (uint64_t)delta);
	return true;
}

/* All threads forget their cells; then cells may be used again. */
static void begin_epoch(struct walker *walker)
{
	memset(walker->cells, 0, sizeof(walker->cells));
	if (pthread_barrier_wait(&walker->crowd->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
		store_cells_release(walker->crowd->test.store,
				    store_cells_ticket(walker->crowd->test.store));
}

static void *walk(void *argument)
{
	struct walker *walker = argument;
	struct crowd *crowd = walker->crowd;
	struct store_worker *worker;
	struct test_rng rng;

	test_rng_init(&rng, walker->seed);
	CHECK_OK(store_worker_open(crowd->test.store, &worker));
	for (int i = 0; i < (TEST_HAS_SANITIZER ? 20000 : 200000); i++) {
		unsigned place = (unsigned)test_rng_below(&rng, PLACES);
		char key = (char)('a' + place);
		int64_t step = steps[test_rng_below(&rng, TEST_COUNT(steps))];
		int64_t delta = test_rng_below(&rng, 2) ? step : -step, sum;
		struct store_info info;
		enum store_status status;

		if (i % 300 == 0)
			begin_epoch(walker);
		if (add_as_a_peer(walker, place, delta))
			continue;
		if (test_rng_below(&rng, 4) == 0) {
			status = store_swap(worker, &key, 1, delta, step, &sum);
			if (status == STORE_OK)
				atomic_fetch_add(&crowd->sums[place],
						 (uint64_t)step - (uint64_t)delta);
			CHECK(status == STORE_OK || status == STORE_CONFLICT);
			continue;
		}
		status = store_add(worker, &key, 1, delta, &sum, &info);
		CHECK(status == STORE_OK || status == STORE_OUT_OF_RANGE);
		if (status != STORE_OK)
			continue;
		atomic_fetch_add(&crowd->sums[place], (uint64_t)delta);
		atomic_fetch_add(info.cell == STORE_NO_CELL ? &crowd->as_text : &crowd->with_cell,
				 1);
		walker->cells[place] = info.cell != STORE_NO_CELL && info.cell_is_open
					       ? (_Atomic int64_t *)crowd->test.cells + info.cell
					       : NULL;
	}
	store_worker_close(worker);
	return NULL;
}

/* Threads count the same few keys, by themselves and by the store, with few cells, so that numbers
 * change their form all the time. */
static void test_every_sum(void)
{
	struct crowd crowd = {0};
	struct walker walkers[THREADS];
	pthread_t threads[THREADS];

	test_store_open(&crowd.test, 4 * MIB, STORE_REJECT);
	crowd.test.options.cells_size = 2 * sizeof(int64_t);
	test_store_restart(&crowd.test);
	CHECK_EQ(pthread_barrier_init(&crowd.barrier, NULL, THREADS), 0);
	for (unsigned place = 0; place < PLACES; place++)
		check_add(&crowd.test, (char[]){(char)('a' + place), 0}, 0, 0);
	for (unsigned round = 0; round < 8; round++) {
		/* The memory is found by another store, later with more cells. */
		crowd.test.options.cells_size = (round < 4 ? 2 : 500) * sizeof(int64_t);
		test_store_restart(&crowd.test);
		for (unsigned i = 0; i < THREADS; i++) {
			walkers[i] = (struct walker){.crowd = &crowd, .seed = round * 10 + i};
			CHECK_EQ(pthread_create(&threads[i], NULL, walk, &walkers[i]), 0);
		}
		for (unsigned i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		for (unsigned place = 0; place < PLACES; place++)
			check_add(&crowd.test, (char[]){(char)('a' + place), 0}, 0,
				  (int64_t)crowd.sums[place]);
		test_store_check(&crowd.test);
	}
	pthread_barrier_destroy(&crowd.barrier);
	CHECK(crowd.with_cell > 100 && crowd.as_text > 100);
	test_store_close(&crowd.test);
}

static const struct test tests[] = {
	{"add", test_add},
	{"get_and_view", test_get_room},
	{"range", test_range},
	{"forms", test_forms},
	{"texts", test_texts},
	{"text_with_ttl", test_text_with_ttl},
	{"swap", test_swap},
	{"text_becomes_a_counter_twice", test_text_becomes_a_counter_twice},
	{"gone_cells_and_tickets", test_gone},
	{"out_of_cells", test_out_of_cells},
	{"barred_cells", test_barred},
	{"ttl_as_text", test_ttl_as_text},
	{"private_cells", test_private_cells},
	{"no_cells", test_no_cells},
	{"every_sum", test_every_sum},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_counters", tests, TEST_COUNT(tests));
}
