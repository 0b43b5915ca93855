/* The server's own life: options, where it listens, start and stop, limits, and counters' cells. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "harness/test.h"
#include "server/raw.h"
#include "server/subject.h"

static struct subject subject;

static void goodbye(const char *by)
{
	struct raw idle, busy;

	subject_start(&subject, NULL);
	raw_enter(&idle, by, subject_address(&subject, by), NULL);
	raw_enter(&busy, by, subject_address(&subject, by), NULL);
	CHECK_EQ(raw_put(&busy, "key", "value", 5), KV_OK);
	kv_server_stop(subject.server);
	CHECK_EQ(raw_receive_end(&idle), KV_OK);
	CHECK_EQ(raw_receive_end(&busy), KV_OK);
	raw_close(&idle);
	raw_close(&busy);
	subject_stop(&subject);
}

static void start_again(const char *by)
{
	struct raw raw;

	subject_start(&subject, NULL);
	for (int i = 0; i < 3; i++) {
		raw_enter(&raw, by, subject_address(&subject, by), NULL);
		CHECK_EQ(raw_get(&raw, "key", 100), i ? KV_OK : KV_NOT_FOUND);
		CHECK_EQ(raw_put(&raw, "key", "value", 5), KV_OK);
		kv_server_stop(subject.server);
		kv_server_stop(subject.server);
		raw_close(&raw);
		CHECK_EQ(kv_server_port(subject.server), 0);
		CHECK_CONTAINS(kv_server_paths(subject.server), "not started");
		CHECK_EQ(kv_server_start(subject.server), KV_OK);
		CHECK_EQ(kv_server_start(subject.server), KV_INVALID);
		snprintf(subject.tcp, sizeof(subject.tcp), "127.0.0.1:%d",
			 kv_server_port(subject.server));
	}
	CHECK_EQ(subject_figure(&subject, "requests.put"), 3);
	subject_stop(&subject);
}

static void max_clients(const char *by)
{
	kv_server_options_t options = {.max_clients = 3};
	struct kv_introduction introduction = {.magic = KV_PROTOCOL_MAGIC,
					       .version = KV_PROTOCOL_VERSION};
	struct raw raws[3], more;

	subject_start(&subject, &options);
	for (int i = 0; i < 3; i++)
		raw_enter(&raws[i], by, subject_address(&subject, by), NULL);
	CHECK_STATUS(raw_dial(&more, by, subject_address(&subject, by), &introduction),
		     RMR_REFUSED);
	CHECK_CONTAINS(rmr_error_message(), "too many clients");
	raw_close(&more);
	raw_close(&raws[1]);
	subject_await(&subject, "clients", 2);
	raw_enter(&more, by, subject_address(&subject, by), NULL);
	CHECK_EQ(raw_simple(&more, KV_OP_PING, NULL, 0), KV_OK);
	raw_close(&more);
	raw_close(&raws[0]);
	raw_close(&raws[2]);
	subject_stop(&subject);
}

static void landing_total(const char *by)
{
	kv_server_options_t options = {.landing_size = 1 << 20, .landing_total = 5 << 19};
	struct raw raws[3];

	subject_start(&subject, &options);
	for (int i = 0; i < 3; i++)
		raw_enter(&raws[i], by, subject_address(&subject, by), NULL);
	CHECK_EQ(raw_simple(&raws[0], KV_OP_LANDING, NULL, UINT64_MAX), KV_OK);
	CHECK_EQ(raws[0].reply.header.number, 1 << 20);
	CHECK_EQ(raw_simple(&raws[1], KV_OP_LANDING, NULL, 1 << 20), KV_OK);
	CHECK_EQ(raw_simple(&raws[2], KV_OP_LANDING, NULL, 1 << 20), KV_BUSY);
	raw_close(&raws[0]);
	subject_await(&subject, "landing_bytes", 1 << 20);
	CHECK_EQ(raw_simple(&raws[2], KV_OP_LANDING, NULL, 1 << 20), KV_OK);
	raw_close(&raws[1]);
	raw_close(&raws[2]);
	subject_stop(&subject);
}

static void max_pins(const char *by)
{
	kv_server_options_t options = {.max_pins = 20};
	uint64_t handles[20];
	struct raw raw;

	subject_start(&subject, &options);
	raw_enter(&raw, by, subject_address(&subject, by), NULL);
	CHECK_EQ(raw.welcome.max_pins, 20);
	CHECK_EQ(raw_put(&raw, "key", "value", 5), KV_OK);
	for (int i = 0; i < 20; i++) {
		CHECK_EQ(raw_simple(&raw, KV_OP_PIN, "key", 0), KV_OK);
		handles[i] = raw.reply.header.number;
	}
	CHECK_EQ(raw_simple(&raw, KV_OP_PIN, "key", 0), KV_BUSY);
	CHECK_EQ(raw_simple(&raw, KV_OP_UNPIN, NULL, handles[7]), KV_OK);
	CHECK_EQ(raw_simple(&raw, KV_OP_PIN, "key", 0), KV_OK);
	CHECK_EQ(raw_simple(&raw, KV_OP_UNPIN, NULL, handles[7]), KV_INVALID);
	CHECK_EQ(raw_simple(&raw, KV_OP_DELETE, "key", 0), KV_OK);
	CHECK_EQ(subject_figure(&subject, "items"), 1);
	raw_close(&raw);
	subject_await(&subject, "items", 0);
	subject_stop(&subject);
}

/* Pins the value as often as it goes. Returns how often. */
static unsigned pin_all(struct raw *raw)
{
	unsigned count = 0;

	while (raw_simple(raw, KV_OP_PIN, "key", 0) == KV_OK)
		count++;
	CHECK_EQ(raw->reply.header.status, KV_BUSY);
	CHECK_CONTAINS((const char *)raw->reply.value, "views hold too much");
	return count;
}

/* Views hold an eighth of the store at most, and a quarter all together. One more is possible for
 * each client, until those who are silent are sent away. */
static void pinned_bytes(const char *by)
{
	enum { SIZE = 8000, MEMORY = 16 << 20 };
	kv_server_options_t options = {.memory = MEMORY,
				       .client_timeout_ms = 100 * (int)TEST_TIME_FACTOR};
	struct raw raws[3];
	static char value[SIZE];
	unsigned held, tries = 0;

	subject_start(&subject, &options);
	for (int i = 0; i < 3; i++)
		raw_enter(&raws[i], by, subject_address(&subject, by), NULL);
	CHECK_EQ(raw_put(&raws[0], "key", value, SIZE), KV_OK);
	held = pin_all(&raws[0]);
	CHECK_EQ(held, MEMORY / 8 / SIZE);
	CHECK_EQ(pin_all(&raws[1]), held);
	CHECK_EQ(pin_all(&raws[2]), 1);
	CHECK_EQ(subject_figure(&subject, "pins"), 2 * held + 1);
	if (strcmp(by, "shm") != 0) {
		while (raw_simple(&raws[2], KV_OP_PIN, "key", 0) != KV_OK && tries++ < 10000)
			test_sleep_ms(2);
		CHECK_EQ(raws[2].reply.header.status, KV_OK);
		CHECK(subject_figure(&subject, "pins") < 2 * held + 2);
	}
	for (int i = 0; i < 3; i++)
		raw_close(&raws[i]);
	subject_await(&subject, "pins", 0);
	raw_enter(&raws[0], by, subject_address(&subject, by), NULL);
	CHECK_EQ(pin_all(&raws[0]), held); /* all of it came back */
	raw_close(&raws[0]);
	subject_stop(&subject);
}

/* A value that a worker would be busy with for long is not pushed: the client READs it itself. */
static void long_pushes(const char *by)
{
	enum { SHORT = 8 << 20, LONG = 33 << 20 };
	kv_server_options_t options = {.memory = 160 << 20};
	kv_client_options_t with = {.buffer_size = 48 << 20, .get_mode = KV_GET_ASK};
	char *value = malloc(LONG), *got = malloc(LONG), url[256];
	kv_client_t *client;
	size_t length;

	CHECK(value && got);
	memset(value, 'v', LONG);
	subject_start(&subject, &options);
	client = kv_client_create_with(CONN_MODE_AUTO, &with);
	snprintf(url, sizeof(url), "%s%s", strcmp(by, "shm") == 0 ? "shm:" : "tcp://",
		 subject_address(&subject, by));
	CHECK_EQ(kv_client_connect(client, url, 0), KV_OK);
	for (int i = 0; i < 2; i++) {
		size_t size = i ? LONG : SHORT;

		CHECK_EQ(kv_client_put(client, "key", 3, value, size), KV_OK);
		length = LONG;
		memset(got, 0, LONG);
		CHECK_EQ(kv_client_get(client, "key", 3, got, &length), KV_OK);
		CHECK_EQ(length, size);
		CHECK_MEM(got, value, size);
		CHECK_EQ(kv_client_last_path(client), i ? KV_PATH_RENDEZVOUS : KV_PATH_PUSH);
	}
	CHECK_EQ(subject_figure(&subject, "pushes"), 1);
	kv_client_destroy(client);
	subject_stop(&subject);
	free(value);
	free(got);
}

/* Connections that have proved nothing keep no client out. */
static void strangers(const char *by)
{
	enum { STRANGERS = 20 };
	kv_server_options_t options = {.max_clients = 2, .key_file = subject_key_file('w')};
	struct raw strangers[STRANGERS], raws[2], more;

	subject_start(&subject, &options);
	for (int i = 0; i < STRANGERS; i++)
		raw_connect(&strangers[i], by, subject_address(&subject, by));
	for (int i = 0; i < 2; i++)
		raw_enter(&raws[i], by, subject_address(&subject, by), options.key_file);
	CHECK_EQ(subject_figure(&subject, "clients"), 2);
	/* One that proves itself now is one too many. */
	CHECK_EQ(raw_greet(&strangers[0], options.key_file, 0), KV_OP_REFUSE);
	CHECK_EQ(strangers[0].refuse.status, KV_BUSY);
	CHECK_CONTAINS(strangers[0].refuse.reason, "too many clients");
	raw_close(&raws[0]);
	subject_await(&subject, "clients", 1);
	raw_enter(&more, by, subject_address(&subject, by), options.key_file);
	raw_close(&more);
	raw_close(&raws[1]);
	for (int i = 0; i < STRANGERS; i++)
		raw_close(&strangers[i]);
	subject_stop(&subject);
}

static void clients_per_peer(const char *by)
{
	struct kv_introduction introduction = {.magic = KV_PROTOCOL_MAGIC,
					       .version = KV_PROTOCOL_VERSION};
	kv_server_options_t options = {.max_clients_per_peer = 2};
	const char *other = strcmp(by, "shm") == 0 ? "tcp" : "shm";
	struct raw raws[2], more;

	subject_start(&subject, &options);
	for (int i = 0; i < 2; i++)
		raw_enter(&raws[i], by, subject_address(&subject, by), NULL);
	CHECK_STATUS(raw_dial(&more, by, subject_address(&subject, by), &introduction),
		     RMR_REFUSED);
	CHECK_CONTAINS(rmr_error_message(), "the server takes 2 of one");
	raw_close(&more);
	/* By another way they are others. */
	raw_enter(&more, other, subject_address(&subject, other), NULL);
	raw_close(&more);
	raw_close(&raws[0]);
	subject_await(&subject, "clients", 1);
	raw_enter(&raws[0], by, subject_address(&subject, by), NULL);
	raw_close(&raws[0]);
	raw_close(&raws[1]);
	subject_stop(&subject);
}

/* Cells come back when their clients have forgotten them, not before. */
static void cells_come_back(const char *by)
{
	kv_server_options_t options = {.counters = 64};
	struct raw raw, other;
	char key[32];

	subject_start(&subject, &options);
	raw_enter(&raw, by, subject_address(&subject, by), NULL);
	raw_enter(&other, by, subject_address(&subject, by), NULL);
	for (int i = 0; i < 64; i++) {
		snprintf(key, sizeof(key), "n%d", i);
		CHECK_EQ(raw_simple(&raw, KV_OP_ADD, key, 1), KV_OK);
	}
	/* For more the server counts by itself. */
	CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "more", 1), KV_OK);
	CHECK_EQ(raw.reply.header.cell, KV_NO_CELL);
	CHECK_EQ(raw_simple(&raw, KV_OP_FLUSH, NULL, 0), KV_OK);
	subject_await(&subject, "cells_epoch", 2);
	test_sleep_ms(300);
	CHECK_EQ(subject_figure(&subject, "cells_retired"), 64);
	CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "more", 1), KV_OK);
	CHECK_EQ(raw.reply.header.cell, KV_NO_CELL);
	CHECK_EQ(raw.reply.header.cells_epoch, 2);
	CHECK_EQ(raw_simple(&raw, KV_OP_CELLS, NULL, 2), KV_OK);
	subject_await(&subject, "cells_retired", 0);
	CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "more", 1), KV_OK);
	CHECK(raw.reply.header.cell != KV_NO_CELL);
	CHECK_EQ(raw.reply.header.number, 2);
	/* Who goes remembers nothing, either. */
	CHECK_EQ(raw_simple(&raw, KV_OP_FLUSH, NULL, 0), KV_OK);
	for (int i = 0; i < 64; i++) {
		snprintf(key, sizeof(key), "n%d", i);
		(void)raw_simple(&raw, KV_OP_ADD, key, 1);
	}
	CHECK_EQ(raw_simple(&raw, KV_OP_FLUSH, NULL, 0), KV_OK);
	raw_close(&raw);
	subject_await(&subject, "cells_retired", 0);
	CHECK_EQ(raw_simple(&other, KV_OP_ADD, "n", 7), KV_OK);
	raw_close(&other);
	subject_stop(&subject);
}

#define THREADS 6

/* One of several clients that work on the same few keys. */
static void *work_along(void *argument)
{
	uint64_t number = (uint64_t)(uintptr_t)argument;
	const char *by = number % 2 ? "shm" : "tcp";
	struct test_rng rng;
	struct raw raw;

	test_rng_init(&rng, number);
	raw_enter(&raw, by, subject_address(&subject, by), NULL);
	for (int i = 0; i < 1500; i++) {
		char key[2] = {(char)('a' + test_rng_below(&rng, 8))}, value[600];
		size_t length = 1 + test_rng_below(&rng, sizeof(value));

		memset(value, key[0], length);
		switch (test_rng_below(&rng, 8)) {
		case 0:
			(void)raw_simple(&raw, KV_OP_DELETE, key, 0);
			break;
		case 1:
			CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "count", 1), KV_OK);
			break;
		case 2:
			if (raw_simple(&raw, KV_OP_PIN, key, 0) == KV_OK)
				CHECK_EQ(raw_simple(&raw, KV_OP_UNPIN, NULL,
						    raw.reply.header.number),
					 KV_OK);
			break;
		case 3:
			CHECK_EQ(raw_simple(&raw, KV_OP_STATS, NULL, 0), KV_OK);
			break;
		case 4:
			CHECK_EQ(raw_put(&raw, key, value, length), KV_OK);
			break;
		default:
			if (raw_get(&raw, key, sizeof(value)) != KV_OK)
				break;
			for (size_t k = 0; k < raw.reply.value_length; k++)
				CHECK_EQ(raw.reply.value[k], key[0]);
		}
		/* Some die in the middle of it. */
		if (test_rng_below(&rng, 200) == 0) {
			raw_close(&raw);
			raw_enter(&raw, by, subject_address(&subject, by), NULL);
		}
	}
	raw_close(&raw);
	return NULL;
}

static void test_many_at_once(void)
{
	kv_server_options_t options = {.workers = 3};
	pthread_t threads[THREADS];
	struct raw raw;
	uint64_t adds;

	subject_start(&subject, &options);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, work_along, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	subject_await(&subject, "clients", 0);
	adds = subject_figure(&subject, "requests.add");
	CHECK_EQ(subject_figure(&subject, "items"), subject_figure(&subject, "keys"));
	CHECK_EQ(subject_figure(&subject, "pins"), 0);
	raw_enter(&raw, "shm", subject_address(&subject, "shm"), NULL);
	CHECK_EQ(raw_simple(&raw, KV_OP_ADD, "count", 0), KV_OK);
	CHECK_EQ(raw.reply.header.number, adds);
	raw_close(&raw);
	subject_stop(&subject);
}

/* A client that is silent while cells are scarce loses its connection, and with it the cells. */
static void test_silent_client_loses_cells(void)
{
	kv_server_options_t options = {.counters = 8};
	struct raw raw;
	uint64_t begin_ns;

	subject_start(&subject, &options);
	raw_enter(&raw, "tcp", subject_address(&subject, "tcp"), NULL);
	for (char key[2] = "a"; key[0] < 'a' + 9; key[0]++)
		CHECK_EQ(raw_simple(&raw, KV_OP_ADD, key, 1), KV_OK);
	CHECK_EQ(raw_simple(&raw, KV_OP_FLUSH, NULL, 0), KV_OK);
	begin_ns = clock_now_ns();
	subject_await(&subject, "cells_epoch", 2);
	/* It takes 10 s: more than the client waits for. */
	test_sleep_ms(8000);
	CHECK_EQ(subject_figure(&subject, "clients"), 1);
	CHECK_EQ(raw_receive_end(&raw), KV_BUSY);
	CHECK(clock_now_ns() - begin_ns > 9000000000u);
	subject_await(&subject, "cells_retired", 0);
	raw_close(&raw);
	subject_stop(&subject);
}

/* ------------------------------------------------------------------------------------------
 * Without clients
 */

static void check_create(const kv_server_options_t *options, int expected, const char *words)
{
	kv_server_t *server = NULL;
	int status = kv_server_create(options, &server);

	if (status == KV_OK) {
		status = kv_server_start(server);
		kv_server_destroy(server);
	}
	CHECK_EQ(status, expected);
	if (words)
		CHECK_CONTAINS(kv_server_error(), words);
}

static void test_options(void)
{
	const size_t memory = 2 << 20;

	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	check_create(&(kv_server_options_t){.memory = 1000}, KV_INVALID, "memory");
	check_create(&(kv_server_options_t){.memory = memory, .window = 1025}, KV_INVALID,
		     "window");
	check_create(&(kv_server_options_t){.memory = memory, .eager_limit = 100}, KV_INVALID,
		     "eager");
	check_create(&(kv_server_options_t){.memory = memory, .port = 70000}, KV_INVALID, "port");
	check_create(&(kv_server_options_t){.memory = memory, .listen = "pigeon"}, KV_INVALID,
		     "pigeon");
	check_create(&(kv_server_options_t){.memory = memory, .listen = ","}, KV_INVALID, "empty");
	check_create(&(kv_server_options_t){.memory = memory, .listen = "tcp:foo"}, KV_INVALID,
		     "tcp:foo");
	check_create(&(kv_server_options_t){.memory = memory, .listen = "verbs:none_0,socket"},
		     KV_UNSUPPORTED, "verbs:none_0");
	check_create(&(kv_server_options_t){.memory = memory, .listen = "shm:a b"}, KV_INVALID,
		     "a b");
	check_create(
		&(kv_server_options_t){.memory = memory, .listen = "tcp://no.such.host.invalid:1"},
		KV_INVALID, "no.such.host");
	check_create(&(kv_server_options_t){.memory = memory, .listen = "shm,tcp", .port = -1},
		     KV_OK, NULL);
	check_create(&(kv_server_options_t){.memory = memory, .port = -1}, KV_OK, NULL);
	kv_server_destroy(NULL);
}

static void test_paths(void)
{
	kv_server_options_t options = {
		.memory = 2 << 20, .listen = "shm:one,tcp://127.0.0.1:0,shm:two", .port = -1};
	kv_server_t *server, *second;

	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	CHECK_EQ(kv_server_create(&options, &server), KV_OK);
	CHECK_EQ(kv_server_port(server), 0);
	CHECK_EQ(kv_server_start(server), KV_OK);
	CHECK(kv_server_port(server) > 0);
	CHECK_CONTAINS(kv_server_paths(server), "shm: listening at");
	CHECK_CONTAINS(kv_server_paths(server), "one");
	CHECK_CONTAINS(kv_server_paths(server), "two");
	CHECK_CONTAINS(kv_server_paths(server), "tcp: listening at 127.0.0.1:");
	/* A name that is taken: fatal when it was asked for. */
	options.listen = "shm:one";
	CHECK_EQ(kv_server_create(&options, &second), KV_OK);
	CHECK_EQ(kv_server_start(second), KV_BUSY);
	CHECK_CONTAINS(kv_server_error(), "one");
	kv_server_destroy(second);
	/* A port that is taken, and was not asked for by name: only noted. */
	options.listen = NULL;
	options.address = "127.0.0.1";
	options.port = kv_server_port(server);
	CHECK_EQ(kv_server_create(&options, &second), KV_OK);
	CHECK_EQ(kv_server_start(second), KV_OK);
	CHECK_CONTAINS(kv_server_paths(second), "tcp: not listening: ");
	CHECK_CONTAINS(kv_server_paths(second), "shm: listening at");
	CHECK_EQ(kv_server_port(second), 0);
	kv_server_destroy(second);
	kv_server_destroy(server);
}

/* Who waits costs nothing. */
static void test_idle(void)
{
	struct raw raws[40];
	struct rusage before, after;
	uint64_t used_us;

	subject_start(&subject, NULL);
	for (int i = 0; i < 40; i++) {
		const char *by = i % 2 ? "shm" : "tcp";

		raw_enter(&raws[i], by, subject_address(&subject, by), NULL);
		CHECK_EQ(raw_simple(&raws[i], KV_OP_PING, NULL, 0), KV_OK);
	}
	test_sleep_ms(300);
	getrusage(RUSAGE_SELF, &before);
	test_sleep_ms(2000);
	getrusage(RUSAGE_SELF, &after);
	used_us = (uint64_t)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 +
		  (uint64_t)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) +
		  (uint64_t)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000 +
		  (uint64_t)(after.ru_stime.tv_usec - before.ru_stime.tv_usec);
	/* One percent, for the clients as well, whose fabric is in this process. */
	if (!TEST_HAS_SANITIZER && used_us > 20000)
		TEST_FAIL("%llu us in 2 s", (unsigned long long)used_us);
	for (int i = 0; i < 40; i++)
		raw_close(&raws[i]);
	subject_stop(&subject);
}

static void test_goodbye(void)
{
	subject_for_each(goodbye);
}

static void test_start_again(void)
{
	subject_for_each(start_again);
}

static void test_max_clients(void)
{
	subject_for_each(max_clients);
}

static void test_landing_total(void)
{
	subject_for_each(landing_total);
}

static void test_limits_of_peers(void)
{
	subject_for_each(pinned_bytes);
	subject_for_each(long_pushes);
	subject_for_each(strangers);
	subject_for_each(clients_per_peer);
}

static void test_max_pins(void)
{
	subject_for_each(max_pins);
}

/* A buffer for pushes that is longer than the server maps: by shm long values are copied from where
 * they lie instead. */
static void test_buffer_beyond_the_limits(void)
{
	kv_client_options_t client_options = {.buffer_size = (size_t)256 << 20,
					      .get_mode = KV_GET_ASK};
	const size_t size = 1 << 20;
	char *value = malloc(size), *found = calloc(1, size), url[128];
	kv_client_t *client;
	kv_result_t result;
	size_t length = size;

	CHECK(value && found);
	memset(value, 'v', size);
	subject_start(&subject, NULL);
	client = kv_client_create_with(CONN_MODE_SHM, &client_options);
	CHECK(client);
	snprintf(url, sizeof(url), "shm:%s", subject_address(&subject, "shm"));
	CHECK_EQ(kv_client_connect(client, url, 0), KV_OK);
	CHECK_EQ(kv_client_put(client, "long", 4, value, size), KV_OK);
	CHECK_EQ(kv_client_put(client, "short", 5, "short", 5), KV_OK);
	for (int i = 0; i < 2; i++) {
		length = size;
		if (kv_client_get(client, "long", 4, found, &length) != KV_OK)
			TEST_FAIL("%s", kv_client_error(client));
		CHECK_EQ(length, size);
		CHECK_MEM(found, value, size);
		length = size;
		CHECK_EQ(kv_client_get(client, "short", 5, found, &length), KV_OK);
		CHECK_EQ(length, 5);
		CHECK_EQ(kv_client_incr(client, "count", 5, 1, &(int64_t){0}), KV_OK);
		length = size;
		CHECK_EQ(kv_client_get(client, "count", 5, found, &length), KV_OK);
		CHECK_EQ(length, 1);
	}
	CHECK_EQ(kv_client_submit_get(client, "long", 4, found, size, 7), KV_OK);
	CHECK_EQ(kv_client_poll(client, &result, 1, -1), 1);
	CHECK_EQ(result.status, KV_OK);
	CHECK_MEM(found, value, size);
	kv_client_destroy(client);
	subject_stop(&subject);
	free(value);
	free(found);
}

static void test_cells_come_back(void)
{
	subject_for_each(cells_come_back);
}

static const struct test tests[] = {
	{"options", test_options},
	{"paths", test_paths},
	{"goodbye", test_goodbye},
	{"start_again", test_start_again},
	{"max_clients", test_max_clients},
	{"landing_total", test_landing_total},
	{"max_pins", test_max_pins},
	{"limits_of_peers", test_limits_of_peers},
	{"buffer_beyond_the_limits", test_buffer_beyond_the_limits},
	{"cells_come_back", test_cells_come_back},
	{"many_at_once", test_many_at_once},
	{"silent_client_loses_cells", test_silent_client_loses_cells, TEST_SLOW},
	{"idle", test_idle},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "server_life", tests, TEST_COUNT(tests));
}
