/* Every call of kv.h, once and for what it says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

#define KEY(text) text, sizeof(text) - 1

static void test_put_get_delete(void)
{
	struct server server;
	kv_client_t *client;
	char value[64];
	size_t length = sizeof(value);

	server_start(&server, NULL);
	client = client_open(&server, NULL);
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &length), KV_NOT_FOUND);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("value")), KV_OK);
	for (int i = 0; i < 3; i++) {
		length = sizeof(value);
		CHECK_KV(client, kv_client_get(client, KEY("k"), value, &length), KV_OK);
		CHECK_EQ(length, 5);
		CHECK_MEM(value, "value", 5);
	}
	length = 4;
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &length), KV_BUFFER_TOO_SMALL);
	CHECK_EQ(length, 5);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("")), KV_OK);
	length = sizeof(value);
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &length), KV_OK);
	CHECK_EQ(length, 0);
	length = 0;
	CHECK_KV(client, kv_client_get(client, KEY("k"), NULL, &length), KV_OK);
	CHECK_KV(client, kv_client_delete(client, KEY("k")), KV_OK);
	CHECK_KV(client, kv_client_delete(client, KEY("k")), KV_NOT_FOUND);
	length = sizeof(value);
	CHECK_KV(client, kv_client_get(client, KEY("k"), value, &length), KV_NOT_FOUND);
	CHECK_CONTAINS(kv_client_error(client), "not found");
	kv_client_destroy(client);
	server_stop(&server);
}

static void test_versions(void)
{
	kv_put_options_t absent = {.condition = KV_IF_ABSENT};
	struct server server;
	kv_client_t *client;
	uint64_t version = 0, before;
	kv_info_t info;

	server_start(&server, NULL);
	client = client_open(&server, NULL);
	CHECK_KV(client, kv_client_cas(client, KEY("k"), 1, KEY("x"), &version), KV_NOT_FOUND);
	CHECK_KV(client, kv_client_put_with(client, KEY("k"), KEY("1"), &absent, &info), KV_OK);
	CHECK(info.version > 0);
	CHECK_EQ(info.length, 1);
	before = info.version;
	CHECK_KV(client, kv_client_put_with(client, KEY("k"), KEY("2"), &absent, &info), KV_EXISTS);
	CHECK_EQ(info.version, before);
	CHECK_KV(client, kv_client_cas(client, KEY("k"), before, KEY("3"), &version), KV_OK);
	CHECK(version > before);
	CHECK_KV(client, kv_client_cas(client, KEY("k"), before, KEY("4"), &before), KV_CAS_FAILED);
	CHECK_EQ(before, version);
	CHECK_KV(client, kv_client_stat(client, KEY("k"), &info), KV_OK);
	CHECK_EQ(info.version, version);
	CHECK_EQ(info.ttl_ms, 0);
	CHECK_KV(client, kv_client_delete_version(client, KEY("k"), version + 1, &info),
		 KV_CAS_FAILED);
	CHECK_EQ(info.version, version);
	CHECK_KV(client, kv_client_delete_version(client, KEY("k"), version, NULL), KV_OK);
	CHECK_KV(client, kv_client_exists(client, KEY("k")), KV_NOT_FOUND);
	CHECK_KV(client, kv_client_put_with(client, KEY("k"), KEY("5"), NULL, &info), KV_OK);
	CHECK(info.version > version);
	kv_client_destroy(client);
	server_stop(&server);
}

static void test_time_to_live(void)
{
	kv_put_options_t options = {.ttl_ms = 300};
	struct server server;
	kv_client_t *client;
	char value[8];
	size_t length = sizeof(value);
	kv_info_t info;
	uint64_t ttl;

	server_start(&server, NULL);
	client = client_open(&server, NULL);
	CHECK_KV(client, kv_client_put_with(client, KEY("a"), KEY("x"), &options, NULL), KV_OK);
	CHECK_KV(client, kv_client_put_with(client, KEY("b"), KEY("y"), &options, NULL), KV_OK);
	CHECK_KV(client, kv_client_ttl(client, KEY("a"), &ttl), KV_OK);
	CHECK(ttl > 0 && ttl <= 300);
	CHECK_KV(client, kv_client_get_with(client, KEY("a"), value, &length, &info), KV_OK);
	CHECK(info.ttl_ms > 0 && info.ttl_ms <= 300);
	CHECK_KV(client, kv_client_touch(client, KEY("b"), 0), KV_OK);
	CHECK_KV(client, kv_client_touch(client, KEY("none"), 5), KV_NOT_FOUND);
	test_sleep_ms(350);
	length = sizeof(value);
	CHECK_KV(client, kv_client_get(client, KEY("a"), value, &length), KV_NOT_FOUND);
	CHECK_KV(client, kv_client_exists(client, KEY("a")), KV_NOT_FOUND);
	length = sizeof(value);
	CHECK_KV(client, kv_client_get(client, KEY("b"), value, &length), KV_OK);
	CHECK_KV(client, kv_client_ttl(client, KEY("b"), &ttl), KV_OK);
	CHECK_EQ(ttl, 0);
	kv_client_destroy(client);
	server_stop(&server);
}

static void test_counters(void)
{
	struct server server;
	kv_client_t *client, *other;
	int64_t number = 0;
	char value[32];
	size_t length = sizeof(value);

	server_start(&server, NULL);
	client = client_open(&server, NULL);
	other = client_open(&server, NULL);
	CHECK_KV(client, kv_client_incr(client, KEY("n"), 5, &number), KV_OK);
	CHECK_EQ(number, 5);
	CHECK_KV(client, kv_client_incr(client, KEY("n"), -7, &number), KV_OK);
	CHECK_EQ(number, -2);
	CHECK_EQ(kv_client_last_path(client), KV_PATH_ATOMIC);
	CHECK_KV(other, kv_client_fetch_add(other, KEY("n"), 10, &number), KV_OK);
	CHECK_EQ(number, -2);
	CHECK_KV(other, kv_client_counter_cas(other, KEY("n"), 8, 100, &number), KV_OK);
	CHECK_EQ(number, 8);
	CHECK_KV(other, kv_client_counter_cas(other, KEY("n"), 8, 101, &number), KV_CAS_FAILED);
	CHECK_EQ(number, 100);
	CHECK_KV(client, kv_client_get(client, KEY("n"), value, &length), KV_OK);
	CHECK_EQ(length, 3);
	CHECK_MEM(value, "100", 3);
	/* The cell that both know is gone with the key. */
	CHECK_KV(client, kv_client_delete(client, KEY("n")), KV_OK);
	CHECK_KV(other, kv_client_incr(other, KEY("n"), 1, &number), KV_OK);
	CHECK_EQ(number, 1);
	CHECK_KV(client, kv_client_put(client, KEY("text"), KEY("no number")), KV_OK);
	CHECK_KV(client, kv_client_incr(client, KEY("text"), 1, &number), KV_NOT_A_NUMBER);
	CHECK_KV(client, kv_client_put(client, KEY("text"), KEY("41")), KV_OK);
	CHECK_KV(client, kv_client_incr(client, KEY("text"), 1, &number), KV_OK);
	CHECK_EQ(number, 42);
	CHECK_KV(client, kv_client_incr(client, KEY("text"), INT64_MAX, &number), KV_OUT_OF_RANGE);
	kv_client_destroy(client);
	kv_client_destroy(other);
	server_stop(&server);
}

static void see_key(void *context, const void *key, size_t key_length, const kv_info_t *info)
{
	uint8_t *seen = context;
	int number;

	CHECK(key_length < 20);
	CHECK(sscanf(key, "key-%d-", &number) == 1);
	CHECK_EQ(info->length, (unsigned)number % 100);
	seen[number] = 1;
}

static void test_scan_flush_stats(void)
{
	enum { KEYS = 3000 };
	static uint8_t seen[KEYS];
	struct server server;
	kv_client_t *client;
	uint64_t cursor = 0, round_trip = 0;
	char key[32], value[100] = "";
	int calls = 0;

	server_start(&server, NULL);
	client = client_open(&server, NULL);
	for (int i = 0; i < KEYS; i++) {
		int length = snprintf(key, sizeof(key), "key-%d-", i);

		CHECK_KV(client, kv_client_put(client, key, (size_t)length, value, (size_t)i % 100),
			 KV_OK);
	}
	do {
		CHECK_KV(client, kv_client_scan(client, &cursor, 100, see_key, seen), KV_OK);
		calls++;
	} while (cursor);
	for (int i = 0; i < KEYS; i++)
		CHECK(seen[i]);
	CHECK(calls >= KEYS / 400);
	CHECK_EQ(client_figure(client, "keys"), KEYS);
	CHECK_EQ(client_figure(client, "requests.put"), KEYS);
	if (setup_is_shm())
		CHECK_EQ(client_figure(client, "requests.put.shm"), KEYS);
	/* One in sixteen is timed, and the first; of the last seconds. */
	CHECK(client_figure(client, "times.put.samples") > 0);
	CHECK(client_figure(client, "times.put.samples") <= (KEYS + 15) / 16);
	CHECK(client_figure(client, "times.put.p50_ns") > 0);
	CHECK(client_figure(client, "times.put.p50_ns") <=
	      client_figure(client, "times.put.p999_ns"));
	CHECK_EQ(client_figure(client, "clients"), 1);
	CHECK_KV(client, kv_client_ping(client, &round_trip), KV_OK);
	CHECK(round_trip > 0);
	CHECK_KV(client, kv_client_flush(client), KV_OK);
	CHECK_EQ(client_figure(client, "keys"), 0);
	kv_client_destroy(client);
	server_stop(&server);
}

static int give_up(void *context, const void *current, size_t current_length, const void **value,
		   size_t *length)
{
	(void)context, (void)current, (void)current_length, (void)value, (void)length;
	return KV_NOT_FOUND;
}

static int add_letter(void *context, const void *current, size_t current_length, const void **value,
		      size_t *length)
{
	char *text = context;

	if (current_length >= 50)
		return KV_NO_MEMORY;
	if (current_length)
		memcpy(text, current, current_length);
	text[current_length] = 'x';
	*value = text;
	*length = current_length + 1;
	return KV_OK;
}

static void test_update_and_alloc(void)
{
	struct server server;
	kv_client_t *client;
	char text[64];
	void *value;
	size_t length;
	kv_info_t info, after;

	server_start(&server, NULL);
	client = client_open(&server, NULL);
	CHECK_KV(client, kv_client_get_alloc(client, KEY("k"), &value, &length, NULL),
		 KV_NOT_FOUND);
	for (int i = 1; i <= 50; i++)
		CHECK_KV(client, kv_client_update(client, KEY("k"), add_letter, text, &info),
			 KV_OK);
	CHECK_KV(client, kv_client_update(client, KEY("k"), add_letter, text, NULL), KV_NO_MEMORY);
	CHECK_KV(client, kv_client_update(client, KEY("k"), give_up, NULL, NULL), KV_NOT_FOUND);
	CHECK_KV(client, kv_client_get_alloc(client, KEY("k"), &value, &length, &after), KV_OK);
	CHECK_EQ(length, 50);
	CHECK_EQ(after.version, info.version);
	CHECK_EQ(strlen(value), 50);
	kv_free(value);
	kv_client_destroy(client);
	server_stop(&server);
}

static void test_batches(void)
{
	enum { COUNT = 500 };
	static char keys[COUNT][16], values[COUNT][300], got[COUNT][300];
	const void *key_pointers[COUNT], *value_pointers[COUNT];
	void *got_pointers[COUNT];
	size_t key_lengths[COUNT], lengths[COUNT], rooms[COUNT];
	int statuses[COUNT];
	struct server server;
	kv_client_t *client;

	server_start(&server, NULL);
	client = client_open(&server, NULL);
	for (unsigned i = 0; i < COUNT; i++) {
		key_lengths[i] = (size_t)snprintf(keys[i], sizeof(keys[i]), "k%u", i);
		lengths[i] = i % 300;
		rooms[i] = sizeof(got[i]);
		value_fill(values[i], lengths[i], i);
		key_pointers[i] = keys[i];
		value_pointers[i] = values[i];
		got_pointers[i] = got[i];
	}
	CHECK_KV(client,
		 kv_client_batch_put(client, COUNT - 1, key_pointers, key_lengths, value_pointers,
				     lengths, statuses),
		 KV_OK);
	for (unsigned i = 0; i < COUNT - 1; i++)
		CHECK_EQ(statuses[i], KV_OK);
	/* The last one was not put, and one has too little room. */
	rooms[299] = 7;
	CHECK_KV(client,
		 kv_client_batch_get(client, COUNT, key_pointers, key_lengths, got_pointers, rooms,
				     statuses),
		 KV_OK);
	CHECK_EQ(statuses[COUNT - 1], KV_NOT_FOUND);
	CHECK_EQ(statuses[299], KV_BUFFER_TOO_SMALL);
	CHECK_EQ(rooms[299], 299);
	for (unsigned i = 0; i < COUNT - 1; i++) {
		if (i == 299)
			continue;
		CHECK_EQ(statuses[i], KV_OK);
		CHECK_EQ(rooms[i], lengths[i]);
		CHECK(value_is(got[i], rooms[i], i));
	}
	rooms[0] = sizeof(got[0]);
	CHECK_KV(client,
		 kv_client_batch_get(client, COUNT, key_pointers, key_lengths, got_pointers, rooms,
				     NULL),
		 KV_NOT_FOUND);
	kv_client_destroy(client);
	server_stop(&server);
}

/* Submitted operations on one key keep their order. */
static void test_asynchronous(void)
{
	kv_client_options_t options = {.window = 16};
	struct server server;
	kv_client_t *client;
	kv_result_t results[16];
	char values[8][32];
	int count, done = 0, full = 0;

	server_start(&server, NULL);
	client = client_open(&server, &options);
	for (uint64_t i = 0; i < 8; i++) {
		char value[32];

		value_fill(value, sizeof(value), i);
		CHECK_KV(client,
			 kv_client_submit_put(client, KEY("same"), value, sizeof(value), NULL, i),
			 KV_OK);
		CHECK_KV(client,
			 kv_client_submit_get(client, KEY("same"), values[i], sizeof(values[i]),
					      100 + i),
			 KV_OK);
	}
	full = kv_client_submit_delete(client, KEY("same"), 1);
	CHECK_EQ(full, KV_AGAIN);
	while ((count = kv_client_poll(client, results, 16, -1)) > 0) {
		for (int i = 0; i < count; i++) {
			CHECK_EQ(results[i].status, KV_OK);
			if (results[i].cookie >= 100) {
				CHECK_EQ(results[i].length, 32);
				CHECK(value_is(values[results[i].cookie - 100], 32,
					       results[i].cookie - 100));
			}
		}
		done += count;
	}
	CHECK_EQ(done, 16);
	CHECK_KV(client, kv_client_submit_incr(client, KEY("n"), 3, 7), KV_OK);
	CHECK_EQ(kv_client_poll(client, results, 1, -1), 1);
	CHECK_EQ(results[0].number, 3);
	CHECK_EQ(results[0].cookie, 7);
	CHECK_KV(client, kv_client_submit_delete(client, KEY("none"), 8), KV_OK);
	CHECK_EQ(kv_client_poll(client, results, 1, -1), 1);
	CHECK_EQ(results[0].status, KV_NOT_FOUND);
	CHECK_EQ(kv_client_poll(client, results, 1, 0), 0);
	kv_client_destroy(client);
	server_stop(&server);
}

/* A get that finds its remembered place to be wrong is asked for; a put that was submitted behind
 * it must not overtake it. */
static void test_order_of_stale_gets(void)
{
	struct server server;
	kv_client_t *client, *writer;
	kv_result_t results[4];
	char value[8];
	size_t room;

	server_start(&server, NULL);
	client = client_open(&server, NULL);
	writer = client_open(&server, NULL);
	for (int i = 0; i < 20; i++) {
		int count, done = 0;

		CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("old")), KV_OK);
		room = sizeof(value);
		CHECK_KV(client, kv_client_get(client, KEY("k"), value, &room), KV_OK);
		CHECK_KV(writer, kv_client_put(writer, KEY("k"), KEY("now")), KV_OK);
		CHECK_KV(client, kv_client_submit_get(client, KEY("k"), value, sizeof(value), 1),
			 KV_OK);
		if (i % 2)
			CHECK_KV(client,
				 kv_client_submit_put(client, KEY("k"), KEY("new"), NULL, 2),
				 KV_OK);
		else
			CHECK_KV(client, kv_client_submit_delete(client, KEY("k"), 2), KV_OK);
		while (done < 2 && (count = kv_client_poll(client, results, 4, -1)) > 0) {
			for (int j = 0; j < count; j++)
				CHECK_EQ(results[j].status, KV_OK);
			done += count;
		}
		CHECK_EQ(done, 2);
		CHECK_MEM(value, "now", 3);
	}
	kv_client_destroy(client);
	kv_client_destroy(writer);
	server_stop(&server);
}

static void test_views(void)
{
	struct server server;
	kv_client_t *client;
	kv_view_t view, missing;
	static char value[100000];

	server_start(&server, NULL);
	client = client_open(&server, NULL);
	value_fill(value, sizeof(value), 1);
	CHECK_KV(client, kv_client_put(client, KEY("k"), value, sizeof(value)), KV_OK);
	if (!setup_is_shm()) {
		CHECK_KV(client, kv_client_view(client, KEY("k"), &view), KV_UNSUPPORTED);
	} else {
		CHECK_KV(client, kv_client_view(client, KEY("none"), &missing), KV_NOT_FOUND);
		CHECK_KV(client, kv_client_view(client, KEY("k"), &view), KV_OK);
		CHECK_EQ(view.length, sizeof(value));
		/* Whatever becomes of the key. */
		CHECK_KV(client, kv_client_delete(client, KEY("k")), KV_OK);
		for (int i = 0; i < 100; i++) {
			value_fill(value, sizeof(value), (uint64_t)i);
			CHECK_KV(client, kv_client_put(client, KEY("other"), value, sizeof(value)),
				 KV_OK);
		}
		CHECK(value_is(view.value, view.length, 1));
		kv_client_release(client, &view);
		CHECK(!view.value);
		CHECK_KV(client, kv_client_ping(client, NULL), KV_OK);
		CHECK_EQ(client_figure(client, "pins"), 0);
	}
	kv_client_destroy(client);
	server_stop(&server);
}

static void test_five_calls(void)
{
	struct server server;
	char address[300];
	void *handle = NULL;
	char *value = NULL;

	if (strncmp(setup.device, "fault", 5) == 0 || strncmp(setup.device, "verbs", 5) == 0)
		TEST_SKIP("kv_open() takes an address, not a device");
	server_start(&server, NULL);
	if (setup_is_shm())
		snprintf(address, sizeof(address), "shm:kv-%d", server.port);
	else
		snprintf(address, sizeof(address), "%s://%s:%d", setup.device, setup.host,
			 server.port);
	CHECK_EQ(kv_open(address, &handle), 0);
	CHECK_EQ(kv_set(handle, "key", "a value"), 0);
	CHECK_EQ(kv_get(handle, "key", &value), 0);
	CHECK_STR(value, "a value");
	kv_release(value);
	value = (char *)1;
	CHECK_EQ(kv_get(handle, "none", &value), 1);
	CHECK(!value);
	CHECK_EQ(kv_close(handle), 0);
	server_stop(&server);
	CHECK_EQ(kv_open(address, &handle), 1);
}

/* What run_client() prints, to be looked at, and that it leaves nothing behind. */
static void test_run_client(void)
{
	char address[300], output[4096], path[300];
	struct server server;
	kv_client_t *client;
	size_t length;
	FILE *file;

	if (strncmp(setup.device, "fault", 5) == 0 || strncmp(setup.device, "verbs", 5) == 0)
		TEST_SKIP("run_client() takes an address, not a device");
	server_start(&server, NULL);
	if (setup_is_shm())
		snprintf(address, sizeof(address), "shm:kv-%d", server.port);
	else
		snprintf(address, sizeof(address), "%s://%s:%d", setup.device, setup.host,
			 server.port);
	snprintf(path, sizeof(path), "%s/output", test_tmpdir());
	CHECK(freopen(path, "w", stdout) != NULL);
	CHECK_EQ(run_client(address), 0);
	client = client_open(&server, NULL);
	CHECK_EQ(client_figure(client, "items"), 0);
	kv_client_destroy(client);
	server_stop(&server);
	CHECK_EQ(run_client(address), 1);
	fflush(stdout);
	file = fopen(path, "r");
	CHECK(file != NULL);
	length = fread(output, 1, sizeof(output) - 1, file);
	output[length] = 0;
	fclose(file);
	CHECK_CONTAINS(output, "not there, as it should be");
	CHECK_CONTAINS(output, "8388608 bytes");
	CHECK_CONTAINS(output, "all went well");
	CHECK_CONTAINS(output, "failed: ");
	CHECK(!strstr(output, "not what was set"));
}

static void test_wrong_arguments(void)
{
	static char key[KV_MAX_KEY + 1];
	struct server server;
	kv_client_t *client;
	char value[8];
	size_t length = sizeof(value);

	client = kv_client_create(CONN_MODE_AUTO);
	CHECK_KV(client, kv_client_put(client, KEY("k"), KEY("v")), KV_DISCONNECTED);
	CHECK_CONTAINS(kv_client_error(client), "kv_client_connect");
	CHECK_KV(client, kv_client_connect(client, "http://nonsense", 1), KV_INVALID);
	CHECK_KV(client, kv_client_connect(client, "localhost", 70000), KV_INVALID);
	kv_client_destroy(client);
	kv_client_destroy(NULL);
	server_start(&server, NULL);
	client = client_open(&server, NULL);
	CHECK_KV(client, kv_client_put(client, key, 0, "", 0), KV_KEY_TOO_LONG);
	CHECK_KV(client, kv_client_put(client, key, sizeof(key), "", 0), KV_KEY_TOO_LONG);
	CHECK_KV(client, kv_client_get(client, key, sizeof(key), value, &length), KV_KEY_TOO_LONG);
	CHECK_KV(client, kv_client_put(client, KEY("k"), NULL, 3), KV_INVALID);
	CHECK_KV(client, kv_client_put(client, key, KV_MAX_KEY, KEY("longest")), KV_OK);
	CHECK_KV(client, kv_client_get(client, key, KV_MAX_KEY, value, &length), KV_OK);
	CHECK_EQ(length, 7);
	CHECK_KV(client, kv_client_put(client, KEY("k"), value, (size_t)1 << 40),
		 KV_VALUE_TOO_LONG);
	kv_client_destroy(client);
	server_stop(&server);
}

/* Puts by one client, and gets by the other, who came by another transport to the same port. */
static void check_both(kv_client_t *one, kv_client_t *other, const char *key)
{
	char value[16];
	size_t length = sizeof(value);

	CHECK_KV(one, kv_client_put(one, key, strlen(key), "both", 4), KV_OK);
	CHECK_KV(other, kv_client_get(other, key, strlen(key), value, &length), KV_OK);
	CHECK_EQ(length, 4);
	CHECK_MEM(value, "both", 4);
}

/* One port number, whatever a client comes by: tcp and verbs by socket are told apart by their
 * first words, and RDMA CM has ports of its own. */
static void test_one_port_for_all(void)
{
	static const char *const lists[] = {"tcp,verbs:rxe0", "tcp,verbs:rxe0,socket"};
	static const char *const devices[] = {"verbs:rxe0", "verbs:rxe0,socket"};

	if (strncmp(setup.device, "verbs", 5) != 0)
		TEST_SKIP("where there are verbs");
	for (int i = 0; i < 2; i++) {
		kv_server_options_t options = {.listen = lists[i]};
		kv_client_options_t by_tcp = {.device = "tcp"}, by_verbs = {.device = devices[i]};
		kv_client_t *tcp, *verbs;
		struct server server;

		server_start(&server, &options);
		by_tcp.connect_timeout_ms = by_verbs.connect_timeout_ms =
			5000 * (int)TEST_TIME_FACTOR;
		tcp = kv_client_create_with(CONN_MODE_AUTO, &by_tcp);
		verbs = kv_client_create_with(CONN_MODE_AUTO, &by_verbs);
		CHECK(tcp && verbs);
		CHECK_KV(tcp, kv_client_connect(tcp, setup.host, server.port), KV_OK);
		CHECK_KV(verbs, kv_client_connect(verbs, setup.host, server.port), KV_OK);
		check_both(tcp, verbs, "from tcp");
		check_both(verbs, tcp, "from verbs");
		kv_client_destroy(tcp);
		kv_client_destroy(verbs);
		server_stop(&server);
	}
}

/* Clients by two transports add to one counter at once, some by themselves and some by asking:
 * whoever changes the cell otherwise than its owner thinks loses additions. */
#define COUNTING_ADDS 400

struct counting {
	const struct server *server;
	const char *device; /* NULL: as the setup says */
	struct test_pipe pipe;
};

static void count_on(void *argument)
{
	struct counting *counting = argument;
	const char *device = setup.device;
	kv_client_t *client;
	int64_t sum;

	if (counting->device)
		setup.device = counting->device;
	client = client_open(counting->server, NULL);
	setup.device = device;
	test_signal(&counting->pipe, TEST_CHILD);
	test_await(&counting->pipe, TEST_CHILD);
	for (int i = 0; i < COUNTING_ADDS; i++)
		CHECK_KV(client, kv_client_incr(client, KEY("n"), 1 + i % 3, &sum), KV_OK);
	kv_client_destroy(client);
}

static void check_counting(bool by_cpu, enum kv_path path)
{
	char listen[128];
	kv_server_options_t options = {.counters_by_cpu = by_cpu, .listen = listen};
	struct counting countings[4] = {0};
	pid_t pids[4];
	struct server server;
	kv_client_t *client;
	int64_t sum, expected = 0;

	snprintf(listen, sizeof(listen), "%s,shm", setup.device);
	server_start(&server, &options);
	for (int i = 0; i < 4; i++) {
		countings[i].server = &server;
		countings[i].device = i % 2 ? "shm" : NULL;
		test_pipe_open(&countings[i].pipe);
		pids[i] = test_spawn(count_on, &countings[i]);
		test_await(&countings[i].pipe, TEST_PARENT);
	}
	for (int i = 0; i < 4; i++)
		test_signal(&countings[i].pipe, TEST_PARENT);
	for (int i = 0; i < 4; i++)
		test_wait(pids[i]);
	for (int i = 0; i < COUNTING_ADDS; i++)
		expected += 4 * (1 + i % 3);
	client = client_open(&server, NULL);
	CHECK_KV(client, kv_client_incr(client, KEY("n"), 0, &sum), KV_OK);
	CHECK_EQ(sum, expected);
	CHECK_KV(client, kv_client_incr(client, KEY("n"), 0, &sum), KV_OK);
	CHECK_EQ(kv_client_last_path(client), path);
	kv_client_destroy(client);
	server_stop(&server);
}

static void test_counters_by_all(void)
{
	bool by_adapter = strncmp(setup.device, "verbs", 5) == 0;

	if (setup_is_shm())
		TEST_SKIP("needs a second transport");
	check_counting(false, KV_PATH_ATOMIC);
	check_counting(true, by_adapter ? KV_PATH_INLINE : KV_PATH_ATOMIC);
}

const struct test basic_tests[] = {
	{"put_get_delete", test_put_get_delete},
	{"versions", test_versions},
	{"time_to_live", test_time_to_live},
	{"counters", test_counters},
	{"counters_by_all", test_counters_by_all},
	{"scan_flush_stats", test_scan_flush_stats},
	{"update_and_alloc", test_update_and_alloc},
	{"batches", test_batches},
	{"asynchronous", test_asynchronous},
	{"order_of_stale_gets", test_order_of_stale_gets},
	{"views", test_views},
	{"five_calls", test_five_calls},
	{"five_calls_by_run_client", test_run_client},
	{"wrong_arguments", test_wrong_arguments},
	{"one_port_for_all", test_one_port_for_all},
	{0},
};
