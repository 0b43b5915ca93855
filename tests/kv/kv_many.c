/* Many clients at once, all data checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "fixture.h"

#define KEY(text) text, sizeof(text) - 1

struct worker {
	const struct server *server;
	unsigned number;
	unsigned operations;
};

/* Works on keys of its own, and on one that all count on. */
static void work(void *argument)
{
	/* So many processes that begin at once, and load libraries, use up all processors. */
	kv_client_options_t patient = {.connect_timeout_ms = 30000 * (int)TEST_TIME_FACTOR,
				       .timeout_ms = 30000 * (int)TEST_TIME_FACTOR};
	struct worker *worker = argument;
	kv_client_t *client = client_open(worker->server, &patient);
	static char value[40000], got[40000];
	uint64_t versions[16] = {0};
	struct test_rng rng;
	char key[32];

	test_rng_init(&rng, worker->number);
	for (unsigned i = 0; i < worker->operations; i++) {
		unsigned number = (unsigned)test_rng_below(&rng, 16);
		int key_length = snprintf(key, sizeof(key), "%u/%u", worker->number, number);
		size_t length, room = sizeof(got);
		kv_info_t info;

		if (versions[number] && test_rng_below(&rng, 2)) {
			CHECK_KV(client,
				 kv_client_get_with(client, key, (size_t)key_length, got, &room,
						    &info),
				 KV_OK);
			CHECK_EQ(info.version, versions[number]);
			CHECK(value_is(got, room, versions[number] ? number * 1000003u + room : 0));
			continue;
		}
		length = test_rng_below(&rng, 10) ? test_rng_below(&rng, 300)
						  : test_rng_below(&rng, sizeof(value));
		value_fill(value, length, number * 1000003u + length);
		CHECK_KV(client,
			 kv_client_put_with(client, key, (size_t)key_length, value, length, NULL,
					    &info),
			 KV_OK);
		CHECK(info.version > versions[number]);
		versions[number] = info.version;
		CHECK_KV(client, kv_client_incr(client, KEY("all"), 1, NULL), KV_OK);
	}
	kv_client_destroy(client);
}

static void run_many(unsigned count, unsigned operations, unsigned workers)
{
	kv_server_options_t options = {.memory = 256 << 20, .workers = workers};
	struct worker *all = calloc(count, sizeof(*all));
	pid_t *pids = calloc(count, sizeof(*pids));
	struct server server;
	kv_client_t *client;
	uint64_t puts;
	int64_t sum;

	server_start(&server, &options);
	for (unsigned i = 0; i < count; i++) {
		all[i] = (struct worker){&server, i, operations};
		pids[i] = test_spawn(work, &all[i]);
	}
	for (unsigned i = 0; i < count; i++)
		test_wait(pids[i]);
	client = client_open(&server, NULL);
	puts = client_figure(client, "puts");
	CHECK_KV(client, kv_client_incr(client, KEY("all"), 0, &sum), KV_OK);
	CHECK(puts > count * operations / 4);
	CHECK(sum > 0 && (uint64_t)sum <= puts);
	kv_client_destroy(client);
	server_stop(&server);
	free(all);
	free(pids);
}

static void test_64_clients(void)
{
	bool is_emulated = TEST_TIME_FACTOR >= 10;

	run_many(is_emulated ? 16 : 64, TEST_HAS_SANITIZER || is_emulated ? 100 : 500, 2);
}

static void test_two_clients_one_worker(void)
{
	run_many(2, TEST_HAS_SANITIZER || TEST_TIME_FACTOR >= 10 || setup.fault_plan ? 2000 : 10000,
		 1);
}

/* Hundreds of clients of one process, and all are served. */
static void test_crowd(void)
{
	/* A queue by libfabric's tcp takes 15 to 50 MiB, so not hundreds of them. */
	const bool few = TEST_HAS_SANITIZER || TEST_TIME_FACTOR >= 10 ||
			 strncmp(setup.device, "ofi", 3) == 0;
	const int count = few ? 60 : 1000;
	kv_client_options_t options = {.window = 4, .cache_entries = 64};
	kv_client_t **clients = calloc((size_t)count, sizeof(kv_client_t *));
	kv_server_options_t server_options = {.workers = 2};
	struct rlimit limit;
	struct server server;
	int64_t sum = 0;

	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_cur < (rlim_t)count * 16)
		TEST_SKIP("only %d descriptors are permitted", (int)limit.rlim_cur);
	server_start(&server, &server_options);
	for (int i = 0; i < count; i++)
		clients[i] = client_open(&server, &options);
	CHECK_EQ(client_figure(clients[0], "clients"), count);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < count; i++)
			CHECK_KV(clients[i], kv_client_incr(clients[i], KEY("all"), 1, &sum),
				 KV_OK);
	CHECK_EQ(sum, 3 * count);
	for (int i = 0; i < count; i++)
		kv_client_destroy(clients[i]);
	free(clients);
	server_stop(&server);
}

/* More than it takes are told so; when one goes there is room again. */
static void test_too_many_clients(void)
{
	kv_server_options_t options = {.max_clients = 4};
	kv_client_options_t quick = {.connect_timeout_ms = 3000};
	kv_client_t *clients[4], *more;
	struct server server;
	int status = KV_BUSY;

	server_start(&server, &options);
	for (int i = 0; i < 4; i++)
		clients[i] = client_open(&server, NULL);
	CHECK(client_try(&server, &quick, &more) != KV_OK);
	CHECK_CONTAINS(kv_client_error(more), "clients");
	kv_client_destroy(more);
	kv_client_destroy(clients[0]);
	for (int i = 0; i < 100 && status != KV_OK; i++) {
		test_sleep_ms(20);
		status = client_try(&server, &quick, &more);
		if (status != KV_OK)
			kv_client_destroy(more);
	}
	CHECK_EQ(status, KV_OK);
	CHECK_KV(more, kv_client_ping(more, NULL), KV_OK);
	kv_client_destroy(more);
	for (int i = 1; i < 4; i++)
		kv_client_destroy(clients[i]);
	server_stop(&server);
}

/* ------------------------------------------------------------------------------------------
 * Figures
 */

enum { FIGURE_KEYS = 50, FIGURE_ROUNDS = 200 };

/* Three of four keys are there. */
static void get_some(kv_client_t *client, bool in_batches)
{
	char names[FIGURE_KEYS][24], values[FIGURE_KEYS][16];
	const void *keys[FIGURE_KEYS];
	size_t key_lengths[FIGURE_KEYS], lengths[FIGURE_KEYS];
	void *rooms[FIGURE_KEYS];
	int statuses[FIGURE_KEYS];

	for (int i = 0; i < FIGURE_KEYS; i++) {
		snprintf(names[i], sizeof(names[i]), "figure-%d", i);
		keys[i] = names[i];
		key_lengths[i] = strlen(names[i]);
		rooms[i] = values[i];
		lengths[i] = sizeof(values[i]);
		if (!in_batches)
			statuses[i] = kv_client_get(client, keys[i], key_lengths[i], rooms[i],
						    &lengths[i]);
	}
	if (in_batches)
		CHECK_KV(client,
			 kv_client_batch_get(client, FIGURE_KEYS, keys, key_lengths, rooms, lengths,
					     statuses),
			 KV_OK);
	for (int i = 0; i < FIGURE_KEYS; i++)
		CHECK_EQ(statuses[i], i % 4 ? KV_OK : KV_NOT_FOUND);
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/* The server's figures count all gets, also those that it does not see: nearly all at any time, and
 * each of them when the client has left. */
static void check_figures(kv_client_t *watcher, const struct server *server, kv_get_mode_t mode,
			  bool in_batches)
{
	const uint64_t gets = FIGURE_KEYS * FIGURE_ROUNDS;
	const uint64_t hits = FIGURE_ROUNDS * (FIGURE_KEYS - (FIGURE_KEYS + 3) / 4);
	kv_client_options_t options = {.get_mode = mode};
	uint64_t gets_before = client_figure(watcher, "gets");
	uint64_t hits_before = client_figure(watcher, "hits");
	kv_client_t *client = client_open(server, &options);

	for (int i = 0; i < FIGURE_ROUNDS; i++)
		get_some(client, in_batches);
	/* By this client, so that what it told before has arrived. */
	CHECK(distance(client_figure(client, "gets") - gets_before, gets) <= gets / 100);
	CHECK(distance(client_figure(client, "hits") - hits_before, hits) <= gets / 100);
	kv_client_destroy(client);
	while (client_figure(watcher, "gets") - gets_before != gets ||
	       client_figure(watcher, "hits") - hits_before != hits)
		test_sleep_ms(1);
}

static void test_hit_ratio(void)
{
	struct server server;
	kv_client_t *watcher;

	if (setup.fault_plan)
		TEST_SKIP("a get that is repeated is counted again");
	server_start(&server, NULL);
	watcher = client_open(&server, NULL);
	for (int i = 0; i < FIGURE_KEYS; i++) {
		char name[24];

		snprintf(name, sizeof(name), "figure-%d", i);
		if (i % 4)
			CHECK_KV(watcher, kv_client_put(watcher, name, strlen(name), "v", 1),
				 KV_OK);
	}
	for (int mode = KV_GET_AUTO; mode <= KV_GET_INDEX; mode++) {
		check_figures(watcher, &server, (kv_get_mode_t)mode, false);
		check_figures(watcher, &server, (kv_get_mode_t)mode, true);
	}
	kv_client_destroy(watcher);
	server_stop(&server);
}

const struct test many_tests[] = {
	{"hit_ratio", test_hit_ratio},
	{"64_clients", test_64_clients, 0, 120},
	{"two_clients_one_worker", test_two_clients_one_worker},
	{"crowd", test_crowd, TEST_SLOW, 120},
	{"too_many_clients", test_too_many_clients},
	{0},
};
