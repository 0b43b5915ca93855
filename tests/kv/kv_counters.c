/*
 * Counters: their range, and that there are as many as keys, however few cells there are.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"

#define KEY(text) text, sizeof(text) - 1

/* Adds until the sum would leave the range: every sum is right, the refused one changes nothing,
 * and other clients see the same. */
static void check_edge(kv_client_t *client, kv_client_t *other, const char *key, int64_t step)
{
	const int64_t edge = step > 0 ? INT64_MAX : INT64_MIN;
	int64_t sum, expected = 0;
	char value[32], text[32];
	size_t length;

	while (step > 0 ? expected <= edge - step : expected >= edge - step) {
		expected += step;
		CHECK_KV(client, kv_client_incr(client, key, strlen(key), step, &sum), KV_OK);
		CHECK_EQ(sum, expected);
		/* A small step is made one-sidedly, where the number is small enough. */
		CHECK_KV(other, kv_client_incr(other, key, strlen(key), 1, &sum), KV_OK);
		CHECK_EQ(sum, expected + 1);
		CHECK_KV(other, kv_client_fetch_add(other, key, strlen(key), -1, &sum), KV_OK);
		CHECK_EQ(sum, expected + 1);
	}
	CHECK_KV(client, kv_client_incr(client, key, strlen(key), step, &sum), KV_OUT_OF_RANGE);
	CHECK_KV(other, kv_client_incr(other, key, strlen(key), edge - expected, &sum), KV_OK);
	CHECK_EQ(sum, edge);
	for (int i = 0; i < 3; i++) {
		CHECK_KV(client, kv_client_incr(client, key, strlen(key), step > 0 ? 1 : -1, &sum),
			 KV_OUT_OF_RANGE);
		length = sizeof(value);
		CHECK_KV(other, kv_client_get(other, key, strlen(key), value, &length), KV_OK);
		CHECK_EQ(length, snprintf(text, sizeof(text), "%" PRId64, edge));
		CHECK_MEM(value, text, length);
	}
	CHECK_KV(client, kv_client_counter_cas(client, key, strlen(key), 0, 1, &sum),
		 KV_CAS_FAILED);
	CHECK_EQ(sum, edge);
	CHECK_KV(client, kv_client_counter_cas(client, key, strlen(key), edge, 12, &sum), KV_OK);
	/* It is small again. */
	CHECK_KV(other, kv_client_incr(other, key, strlen(key), 1, &sum), KV_OK);
	CHECK_KV(other, kv_client_incr(other, key, strlen(key), 1, &sum), KV_OK);
	CHECK_EQ(sum, 14);
}

static void test_counter_range(void)
{
	struct server server;
	kv_client_t *client, *other;
	int64_t sum = 7;

	server_start(&server, NULL);
	client = client_open(&server, NULL);
	other = client_open(&server, NULL);
	check_edge(client, other, "up", (int64_t)1 << 60);
	check_edge(client, other, "down", -((int64_t)1 << 60));
	check_edge(client, other, "far up", (int64_t)3 << 60);
	check_edge(client, other, "far down", INT64_MIN / 2 - 7);
	CHECK_KV(client, kv_client_incr(client, KEY("least"), INT64_MIN, &sum), KV_OK);
	CHECK_EQ(sum, INT64_MIN);
	CHECK_KV(client, kv_client_fetch_add(client, KEY("least"), INT64_MAX, &sum), KV_OK);
	CHECK_EQ(sum, INT64_MIN);
	CHECK_KV(client, kv_client_incr(client, KEY("least"), 1, &sum), KV_OK);
	CHECK_EQ(sum, 0);
	kv_client_destroy(client);
	kv_client_destroy(other);
	server_stop(&server);
}

/* Counters that come and go: cells are used again, and no count goes to another key. */
static void test_counters_come_and_go(void)
{
	enum { CELLS = 64 };
	const int rounds = setup.fault_plan ? 300 : 2000;
	kv_server_options_t options = {.counters = CELLS};
	kv_client_t *one, *two;
	struct server server;
	char key[16];

	server_start(&server, &options);
	one = client_open(&server, NULL);
	two = client_open(&server, NULL);
	for (int i = 0; i < rounds; i++) {
		size_t length = (size_t)snprintf(key, sizeof(key), "c%d", i % 8);
		int64_t sum = 0;

		CHECK_KV(one, kv_client_incr(one, key, length, 1, &sum), KV_OK);
		CHECK_EQ(sum, 1);
		CHECK_KV(two, kv_client_incr(two, key, length, 1, &sum), KV_OK);
		CHECK_EQ(sum, 2);
		CHECK_KV(one, kv_client_delete(one, key, length), KV_OK);
	}
	kv_client_destroy(one);
	kv_client_destroy(two);
	server_stop(&server);
}

/* A client that comes by many counters, each for a moment: none is refused. */
static void test_counters_without_end(void)
{
	const int count = TEST_HAS_SANITIZER || strcmp(setup.device, "shm") != 0 ? 3000 : 150000;
	/* By default there are more cells. */
	kv_server_options_t options = {.counters = 1000};
	kv_client_t *client;
	struct server server;
	char key[24];

	server_start(&server, &options);
	client = client_open(&server, NULL);
	for (int i = 0; i < count; i++) {
		size_t length = (size_t)snprintf(key, sizeof(key), "c%d", i);
		int64_t sum;

		CHECK_KV(client, kv_client_incr(client, key, length, i, &sum), KV_OK);
		CHECK_EQ(sum, i);
		CHECK_KV(client, kv_client_delete(client, key, length), KV_OK);
	}
	kv_client_destroy(client);
	server_stop(&server);
}

/* A client that counted once and sleeps keeps no other one from counting. */
static void test_a_sleeper(void)
{
	enum { CELLS = 16, KEYS = 3 * CELLS };
	kv_server_options_t options = {.counters = CELLS};
	kv_client_t *client, *sleeper;
	struct server server;
	char key[24];
	int64_t sum;

	server_start(&server, &options);
	sleeper = client_open(&server, NULL);
	client = client_open(&server, NULL);
	CHECK_KV(sleeper, kv_client_incr(sleeper, KEY("k0"), 1000, &sum), KV_OK);
	for (int round = 1; round <= 50; round++) {
		for (int i = 0; i < KEYS; i++) {
			size_t length = (size_t)snprintf(key, sizeof(key), "k%d", i);

			/* Some go, and take their cells with them. */
			if (i % 3 == 1 && round > 1)
				CHECK_KV(client, kv_client_delete(client, key, length), KV_OK);
			CHECK_KV(client, kv_client_incr(client, key, length, 1, &sum), KV_OK);
			CHECK_EQ(sum, i == 0 ? 1000 + round : i % 3 == 1 ? 1 : round);
		}
	}
	/* It is awake again, and counts on. */
	CHECK_KV(sleeper, kv_client_incr(sleeper, KEY("k0"), 1, &sum), KV_OK);
	CHECK_EQ(sum, 1051);
	CHECK_KV(sleeper, kv_client_incr(sleeper, KEY("k1"), 1, &sum), KV_OK);
	CHECK_EQ(sum, 2);
	kv_client_destroy(client);
	kv_client_destroy(sleeper);
	server_stop(&server);
}

const struct test counter_tests[] = {
	{"counter_range", test_counter_range},
	{"counters_come_and_go", test_counters_come_and_go},
	{"counters_without_end", test_counters_without_end, 0, 120},
	{"counters_and_a_sleeper", test_a_sleeper},
	{0},
};
