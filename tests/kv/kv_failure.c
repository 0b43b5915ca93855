/* Clients and servers that die, stop, and come back. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "fixture.h"

#define KEY(text) text, sizeof(text) - 1

/* A client over tcp has a helper thread, and a process with threads cannot start one that has some
 * under the thread sanitizer. */
static void need_fork(void)
{
	if (TEST_HAS_TSAN && !setup_is_shm())
		TEST_SKIP("the thread sanitizer does not permit threads after fork");
}

/* Keeps everything that a client can keep, and waits to be killed. */
static void hold(void *argument)
{
	const struct server *server = argument;
	kv_client_t *client = client_open(server, NULL);
	static char value[100000];
	struct test_rng rng;
	kv_view_t views[8];

	test_rng_init(&rng, (uint64_t)clock_now_ns());
	if (setup_is_shm())
		for (int i = 0; i < 8; i++)
			CHECK_KV(client, kv_client_view(client, KEY("held"), &views[i]), KV_OK);
	for (;;) {
		char key[16];
		int length = snprintf(key, sizeof(key), "k%u", (unsigned)test_rng_below(&rng, 50));

		CHECK_KV(client,
			 kv_client_put(client, key, (size_t)length, value,
				       test_rng_below(&rng, sizeof(value))),
			 KV_OK);
	}
}

static void test_death_of_clients(void)
{
	struct server server;
	static char value[1000], got[1000];
	kv_client_t *client;
	size_t room = sizeof(got);

	need_fork();
	server_start(&server, NULL);
	client = client_open(&server, NULL);
	value_fill(value, sizeof(value), 5);
	CHECK_KV(client, kv_client_put(client, KEY("held"), value, sizeof(value)), KV_OK);
	for (int i = 0; i < 20; i++) {
		pid_t pid = test_spawn(hold, &server);

		test_sleep_ms(20 + (unsigned)i * 7);
		CHECK_KV(client, kv_client_ping(client, NULL), KV_OK);
		test_kill(pid);
	}
	/* All that they held comes back. */
	for (int i = 0; client_figure(client, "clients") != 1; i++) {
		if (i == 300)
			TEST_FAIL("%d clients are left", (int)client_figure(client, "clients"));
		test_sleep_ms(50);
	}
	CHECK_EQ(client_figure(client, "pins"), 0);
	CHECK_EQ(client_figure(client, "drafts"), 0);
	CHECK_EQ(client_figure(client, "landing_bytes"), 0);
	CHECK_KV(client, kv_client_get(client, KEY("held"), got, &room), KV_OK);
	CHECK(value_is(got, room, 5));
	CHECK_KV(client, kv_client_flush(client), KV_OK);
	CHECK_EQ(client_figure(client, "keys"), 0);
	kv_client_destroy(client);
	server_stop(&server);
}

/* kill -9 of the server: the client comes back by itself to the next one. */
static void test_death_of_the_server(void)
{
	kv_client_options_t options = {.timeout_ms = 10000};
	struct server server;
	kv_client_t *client;
	kv_client_totals_t totals;
	char value[16];
	size_t room = sizeof(value);

	need_fork();
	server_start(&server, NULL);
	client = client_open(&server, &options);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("old")), KV_OK);
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &room), KV_OK);
	test_kill(server.pid);
	/* Long enough to be noticed where nothing but memory is read. */
	test_sleep_ms(150);
	server_restart(&server);
	room = sizeof(value);
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &room), KV_NOT_FOUND);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("new")), KV_OK);
	room = sizeof(value);
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &room), KV_OK);
	CHECK_MEM(value, "new", 3);
	kv_client_get_totals(client, &totals);
	CHECK_EQ(totals.reconnects, 1);
	kv_client_destroy(client);
	server_stop(&server);
}

/* Nobody comes back: calls end by their deadline, and say so. */
static void test_no_server_any_more(void)
{
	kv_client_options_t options = {.timeout_ms = 500};
	struct server server;
	kv_client_t *client;
	char value[16];
	size_t room = sizeof(value);
	uint64_t begin;

	server_start(&server, NULL);
	client = client_open(&server, &options);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("v")), KV_OK);
	test_kill(server.pid);
	test_sleep_ms(150);
	begin = clock_now_ns();
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &room), KV_DISCONNECTED);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("v")), KV_DISCONNECTED);
	CHECK(clock_now_ns() - begin < 2000000000u * TEST_TIME_FACTOR);
	kv_client_destroy(client);
}

/* A stopped server is not a dead one, but no answer comes; nor is its memory believed. */
static void test_stopped_server(void)
{
	kv_client_options_t options = {.timeout_ms = 400};
	struct server server;
	kv_client_t *client;
	char value[16];
	size_t room = sizeof(value);
	int status;

	server_start(&server, NULL);
	client = client_open(&server, &options);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("v")), KV_OK);
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &room), KV_OK);
	stop_process(server.pid);
	test_sleep_ms(300);
	room = sizeof(value);
	status = kv_client_get(client, KEY("other"), value, &room);
	CHECK_EQ(status, KV_TIMEOUT);
	if (setup_is_shm()) {
		room = sizeof(value);
		CHECK_KV(client, kv_client_get(client, KEY("k"), value, &room), KV_TIMEOUT);
	}
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("w")), KV_UNKNOWN);
	CHECK_CONTAINS(kv_client_error(client), "may have been made");
	kill(server.pid, SIGCONT);
	test_sleep_ms(300);
	room = sizeof(value);
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &room), KV_OK);
	CHECK_MEM(value, "w", 1);
	kv_client_destroy(client);
	server_stop(&server);
}

/* A long value whose place is known is read in pieces: however many those are, the get ends in time
 * when nobody answers. */
static void test_stopped_while_it_is_read(void)
{
	const size_t size = 30 << 20;
	kv_server_options_t server_options = {.memory = 128 << 20};
	kv_client_options_t options = {.timeout_ms = 2000 * (int)TEST_TIME_FACTOR,
				       .buffer_size = 64 << 20};
	struct server server;
	kv_client_t *client;
	char *value = malloc(size);
	uint64_t begin_ns;

	CHECK(value);
	server_start(&server, &server_options);
	client = client_open(&server, &options);
	value_fill(value, size, 3);
	CHECK_KV(client, kv_client_put(client, KEY("long"), value, size), KV_OK);
	for (int i = 0; i < 3; i++) {
		size_t length = size;

		memset(value, 0, size);
		CHECK_KV(client, kv_client_get(client, KEY("long"), value, &length), KV_OK);
		CHECK(value_is(value, length, 3));
	}
	stop_process(server.pid);
	test_sleep_ms(300);
	begin_ns = clock_now_ns();
	for (int i = 0; i < 2; i++) {
		size_t length = size;
		int status = kv_client_get(client, KEY("long"), value, &length);

		if (status != KV_TIMEOUT && status != KV_DISCONNECTED)
			TEST_FAIL("%d: %s", status, kv_client_error(client));
	}
	CHECK(clock_now_ns() - begin_ns <
	      2 * 1000000ull * (uint64_t)options.timeout_ms + 2000000000ull * TEST_TIME_FACTOR);
	kill(server.pid, SIGCONT);
	free(value);
	kv_client_destroy(client);
	server_stop(&server);
}

/* A window full of requests that nobody answers: everything ends by its time all the same. */
static void test_batch_without_answers(void)
{
	enum { KEYS = 100 };
	kv_client_options_t options = {
		.timeout_ms = 200, .get_mode = KV_GET_ASK, .connect_timeout_ms = 500};
	const void *keys[KEYS];
	void *values[KEYS];
	size_t key_lengths[KEYS], rooms[KEYS];
	static char room[KEYS][8];
	int statuses[KEYS];
	struct server server;
	kv_client_t *client;
	uint64_t begin;

	need_fork();
	server_start(&server, NULL);
	client = client_open(&server, &options);
	for (int i = 0; i < KEYS; i++) {
		keys[i] = "key";
		key_lengths[i] = 3;
		values[i] = room[i];
		rooms[i] = sizeof(room[i]);
	}
	stop_process(server.pid);
	begin = clock_now_ns();
	CHECK_KV(client,
		 kv_client_batch_get(client, KEYS, keys, key_lengths, values, rooms, statuses),
		 KV_OK);
	for (int i = 0; i < KEYS; i++)
		CHECK_EQ(statuses[i], KV_TIMEOUT);
	/* The window is full of what is late; still a put ends, and outlives the link. */
	CHECK_EQ(kv_client_put(client, KEY("k"), KEY("v")), KV_TIMEOUT);
	CHECK(clock_now_ns() - begin < 5000000000u * TEST_TIME_FACTOR);
	test_kill(server.pid);
	CHECK(kv_client_put(client, KEY("k"), KEY("v")) != KV_OK);
	server_restart(&server);
	/* 200 ms are little on a busy machine; but in the end it finds the new one. */
	for (int tries = 0; kv_client_put(client, KEY("k"), KEY("v")) != KV_OK; tries++) {
		CHECK(tries < 100);
		test_sleep_ms(100);
	}
	kv_client_destroy(client);
	server_stop(&server);
}

/* What comes too late is given back. */
static void test_late_views(void)
{
	kv_client_options_t options = {.timeout_ms = 200};
	struct server server;
	kv_client_t *client;
	kv_view_t view;
	int64_t sum;

	if (strcmp(setup.device, "shm") != 0)
		TEST_SKIP("by shm alone");
	server_start(&server, NULL);
	client = client_open(&server, &options);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("v")), KV_OK);
	CHECK_KV(client, kv_client_incr(client, KEY("n"), 1, &sum), KV_OK);
	stop_process(server.pid);
	CHECK_KV(client, kv_client_view(client, KEY("k"), &view), KV_TIMEOUT);
	/* Nor is anything counted in the memory of somebody who may be dead. */
	CHECK_KV(client, kv_client_incr(client, KEY("n"), 1, &sum), KV_UNKNOWN);
	kill(server.pid, SIGCONT);
	test_sleep_ms(100);
	CHECK_KV(client, kv_client_ping(client, NULL), KV_OK);
	CHECK_KV(client, kv_client_ping(client, NULL), KV_OK);
	CHECK_EQ(client_figure(client, "pins"), 0);
	kv_client_destroy(client);
	server_stop(&server);
}

/* A count that may have been applied is not said to be lost. */
static void test_late_counts(void)
{
	kv_client_options_t options = {.timeout_ms = 300};
	struct server server;
	kv_client_t *client;
	int64_t sum;

	if (setup_is_shm())
		TEST_SKIP("where nobody else is needed to count");
	server_start(&server, NULL);
	client = client_open(&server, &options);
	CHECK_KV(client, kv_client_incr(client, KEY("n"), 1, &sum), KV_OK);
	CHECK_KV(client, kv_client_incr(client, KEY("n"), 1, &sum), KV_OK);
	stop_process(server.pid);
	/* An adapter counts whether the server runs or not. */
	CHECK_KV(client, kv_client_incr(client, KEY("n"), 1, &sum),
		 strncmp(setup.device, "verbs", 5) == 0 ? KV_OK : KV_UNKNOWN);
	kill(server.pid, SIGCONT);
	test_sleep_ms(100);
	CHECK_KV(client, kv_client_incr(client, KEY("n"), 0, &sum), KV_OK);
	CHECK_EQ(sum, 3);
	kv_client_destroy(client);
	server_stop(&server);
}

/* An answer that came before the server died counts, also when the next request finds out that it
 * has. */
static void test_answers_before_death(void)
{
	struct server server;
	kv_client_t *client, *other;
	kv_result_t results[2];
	int submitted = 1, answered = 0, first = KV_UNKNOWN;

	need_fork();
	server_start(&server, NULL);
	client = client_open(&server, NULL);
	other = client_open(&server, NULL);
	CHECK_KV(client, kv_client_submit_put(client, KEY("a"), KEY("1"), NULL, 1), KV_OK);
	CHECK_KV(client, kv_client_submit_flush(client), KV_OK);
	/* It has been answered when the next one has. */
	CHECK_KV(other, kv_client_put(other, KEY("b"), KEY("2")), KV_OK);
	test_sleep_ms(50 * (int)TEST_TIME_FACTOR);
	test_kill(server.pid);
	test_sleep_ms(50 * (int)TEST_TIME_FACTOR);
	server_restart(&server);
	/* The first of these may find out, the others know. */
	for (uint64_t i = 2; i < 5; i++) {
		submitted += kv_client_submit_put(client, KEY("c"), KEY("3"), NULL, i) == KV_OK;
		(void)kv_client_submit_flush(client);
		test_sleep_ms(10);
	}
	while (answered < submitted) {
		int count = kv_client_poll(client, results, 2, 5000 * (int)TEST_TIME_FACTOR);

		CHECK(count > 0);
		for (int i = 0; i < count; i++)
			if (results[i].cookie == 1)
				first = results[i].status;
		answered += count;
	}
	CHECK_EQ(first, KV_OK);
	kv_client_destroy(client);
	kv_client_destroy(other);
	server_stop(&server);
}

/* Polls until all of them have ended; what came of those with cookie 1. */
static int poll_for_first(kv_client_t *client, int submitted)
{
	int first = KV_INTERNAL;

	for (int answered = 0; answered < submitted;) {
		kv_result_t results[32];
		int count = kv_client_poll(client, results, 32, 5000 * (int)TEST_TIME_FACTOR);

		CHECK(count > 0);
		for (int i = 0; i < count; i++)
			if (results[i].cookie == 1)
				first = results[i].status;
		answered += count;
	}
	return first;
}

/* However long the server takes, the key is there when this returns. */
static void wait_for_a(const struct server *server)
{
	uint64_t deadline_ns = clock_deadline_ns(20000 * (int)TEST_TIME_FACTOR);
	kv_client_t *witness = client_open(server, NULL);

	while (kv_client_exists(witness, KEY("a")) != KV_OK) {
		CHECK(!clock_passed(deadline_ns));
		test_sleep_ms(1);
	}
	kv_client_destroy(witness);
}

/* Gets that look into the index, and a put behind them. Each READ that is done calls for another.
 * When this returns the first ones are done, and the put is answered; none of it was taken. */
static int submit_gets_and_put(const struct server *server, kv_client_t *client, int gets)
{
	static char room[64][16];

	stop_process(server->pid);
	for (int i = 0; i < gets; i++)
		CHECK_KV(client,
			 kv_client_submit_get(client, KEY("none"), room[i], sizeof(room[i]), 2),
			 KV_OK);
	CHECK_KV(client, kv_client_submit_put(client, KEY("a"), KEY("1"), NULL, 1), KV_OK);
	CHECK_KV(client, kv_client_submit_flush(client), KV_OK);
	kill(server->pid, SIGCONT);
	/* It is carried out; now its answer, and the READs, have only to come in. */
	wait_for_a(server);
	test_sleep_ms(100 * (int)TEST_TIME_FACTOR);
	return gets + 1;
}

/* What was read before the server died calls for more, which cannot be sent; that it cannot is
 * found out more than once. The answer behind it counts nevertheless. */
static void test_answer_behind_reads(void)
{
	kv_client_options_t options = {.get_mode = KV_GET_INDEX};
	struct server server;
	kv_client_t *client;
	int submitted;

	if (setup_is_shm() || setup.fault_plan)
		TEST_SKIP("where nothing is read by READs, or comes in unless it is polled for");
	need_fork();
	server_start(&server, NULL);
	client = client_open(&server, &options);
	submitted = submit_gets_and_put(&server, client, 3);
	test_kill(server.pid);
	test_sleep_ms(100 * (int)TEST_TIME_FACTOR);
	server_restart(&server);
	CHECK_EQ(poll_for_first(client, submitted), KV_OK);
	kv_client_destroy(client);
	server_stop(&server);
}

/* The caller comes back when the time is over. An answer that has come counts, however much else
 * has to be taken in before it. */
static void test_answer_not_looked_for(void)
{
	kv_client_options_t options = {.get_mode = KV_GET_INDEX,
				       .timeout_ms = 300 * (int)TEST_TIME_FACTOR};
	struct server server;
	kv_client_t *client;
	int submitted;

	if (setup_is_shm() || setup.fault_plan)
		TEST_SKIP("where nothing is read by READs, or comes in unless it is polled for");
	server_start(&server, NULL);
	client = client_open(&server, &options);
	submitted = submit_gets_and_put(&server, client, 20);
	test_sleep_ms(400 * (int)TEST_TIME_FACTOR);
	CHECK_EQ(poll_for_first(client, submitted), KV_OK);
	kv_client_destroy(client);
	server_stop(&server);
}

struct persistent {
	const struct server *server;
	struct test_pipe pipe;
};

/* A server that is stopped and started again may be just dead, or about to be. */
static kv_client_t *client_open_late(const struct server *server,
				     const kv_client_options_t *options)
{
	uint64_t deadline_ns = clock_deadline_ns(20000 * TEST_TIME_FACTOR);
	kv_client_t *client;

	while (client_try(server, options, &client) != KV_OK) {
		CHECK(!clock_passed(deadline_ns));
		kv_client_destroy(client);
		test_sleep_ms(10);
	}
	return client;
}

/* Puts numbers that grow, and knows after each what is certain. */
static void put_on_and_on(void *argument)
{
	struct persistent *persistent = argument;
	kv_client_options_t options = {.timeout_ms = 8000};
	kv_client_t *client = client_open_late(persistent->server, &options);
	unsigned unknown = 0;
	char value[32], key[32];

	for (unsigned i = 0; i < 600; i++) {
		int key_length = snprintf(key, sizeof(key), "n%u", i);
		int length = snprintf(value, sizeof(value), "%u", i);
		int status = kv_client_put(client, key, (size_t)key_length, value, (size_t)length);

		if (status == KV_UNKNOWN)
			unknown++;
		else
			CHECK_KV(client, status, KV_OK);
		test_sleep_ms(1);
	}
	/* A graceful stop leaves no doubt. */
	CHECK_EQ(unknown, 0);
	kv_client_destroy(client);
}

/* Stopped and started again while it is used: everybody is told, and nothing is in doubt. */
static void test_graceful_stop(void)
{
	struct persistent persistent;
	struct server server;
	pid_t pid;

	server_start(&server, NULL);
	persistent.server = &server;
	pid = test_spawn(put_on_and_on, &persistent);
	for (int i = 0; i < 3; i++) {
		test_sleep_ms(150);
		server_stop(&server);
		server_restart(&server);
	}
	test_wait(pid);
	server_stop(&server);
}

static void churn(void *argument)
{
	const struct server *server = argument;
	kv_client_options_t options = {.timeout_ms = 5000};
	kv_client_t *client = client_open_late(server, &options);
	struct test_rng rng;
	char value[5000];

	test_rng_init(&rng, clock_now_ns());
	for (;;) {
		size_t room = sizeof(value), length = test_rng_below(&rng, sizeof(value));
		int status;

		value_fill(value, length, length);
		status = kv_client_put(client, KEY("k"), value, length);
		CHECK(status == KV_OK || status == KV_UNKNOWN || status == KV_DISCONNECTED ||
		      status == KV_TIMEOUT);
		status = kv_client_get(client, KEY("k"), value, &room);
		CHECK(status == KV_OK || status == KV_NOT_FOUND || status == KV_DISCONNECTED ||
		      status == KV_TIMEOUT);
		if (status == KV_OK)
			CHECK(value_is(value, room, room));
	}
}

/* Servers killed at random moments, with clients at work. */
static void test_servers_die_at_work(void)
{
	struct server server;
	pid_t pids[3];
	kv_client_t *client;

	server_start(&server, NULL);
	for (int i = 0; i < 3; i++)
		pids[i] = test_spawn(churn, &server);
	for (int i = 0; i < 8; i++) {
		test_sleep_ms(30 + (unsigned)i * 23);
		test_kill(server.pid);
		server_restart(&server);
	}
	test_sleep_ms(300);
	for (int i = 0; i < 3; i++) {
		/* Still at work, none has failed. */
		CHECK_EQ(waitpid(pids[i], NULL, WNOHANG), 0);
		test_kill(pids[i]);
	}
	client = client_open(&server, NULL);
	CHECK_KV(client, kv_client_ping(client, NULL), KV_OK);
	kv_client_destroy(client);
	server_stop(&server);
}

const struct test failure_tests[] = {
	{"death_of_clients", test_death_of_clients, 0, 90},
	{"death_of_the_server", test_death_of_the_server},
	{"no_server_any_more", test_no_server_any_more},
	{"stopped_server", test_stopped_server},
	{"stopped_while_it_is_read", test_stopped_while_it_is_read, TEST_SLOW},
	{"batch_without_answers", test_batch_without_answers},
	{"late_views", test_late_views},
	{"answer_behind_reads", test_answer_behind_reads},
	{"answer_not_looked_for", test_answer_not_looked_for},
	{"answers_before_death", test_answers_before_death},
	{"late_counts", test_late_counts},
	{"graceful_stop", test_graceful_stop},
	{"servers_die_at_work", test_servers_die_at_work},
	{0},
};
