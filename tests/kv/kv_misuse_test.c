/*
 * Calls without a client, or without something that they need; what kv_client_error() keeps; and
 * what becomes of submitted operations when the caller disconnects.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/test.h"
#include "remora/kv.h"
#include "remora/server.h"

#define KEY(text) text, sizeof(text) - 1

static int never(void *context, const void *current, size_t current_length, const void **value,
		 size_t *length)
{
	(void)context, (void)current, (void)current_length, (void)value, (void)length;
	return KV_INVALID;
}

static void ignore(void *context, const void *key, size_t key_length, const kv_info_t *info)
{
	(void)context, (void)key, (void)key_length, (void)info;
}

/* Every call of kv.h that takes a client. */
static void test_no_client(void)
{
	const void *keys[] = {"k"};
	const size_t key_lengths[] = {1};
	char room[8], *text;
	void *values[] = {room}, *found;
	const void *sources[] = {room};
	size_t length = sizeof(room);
	uint64_t number = 0;
	int64_t sum;
	int status;
	kv_info_t info;
	kv_view_t view = {0};
	kv_client_totals_t totals;
	kv_result_t result;

	CHECK_EQ(kv_client_connect(NULL, "localhost", 1), KV_INVALID);
	CHECK_EQ(kv_client_connect_socket(NULL, "localhost", 1, NULL), KV_INVALID);
	kv_client_disconnect(NULL);
	kv_client_destroy(NULL);
	CHECK(strlen(kv_client_error(NULL)) > 0);
	CHECK_STR(kv_client_transport(NULL), "");
	CHECK_EQ(kv_client_put(NULL, KEY("k"), KEY("v")), KV_INVALID);
	CHECK_EQ(kv_client_get(NULL, KEY("k"), room, &length), KV_INVALID);
	CHECK_EQ(kv_client_delete(NULL, KEY("k")), KV_INVALID);
	CHECK_EQ(kv_client_cas(NULL, KEY("k"), 1, KEY("v"), &number), KV_INVALID);
	CHECK_EQ(kv_client_batch_get(NULL, 1, keys, key_lengths, values, &length, &status),
		 KV_INVALID);
	CHECK_EQ(kv_client_batch_put(NULL, 1, keys, key_lengths, sources, &length, &status),
		 KV_INVALID);
	CHECK_EQ(kv_client_put_with(NULL, KEY("k"), KEY("v"), NULL, &info), KV_INVALID);
	CHECK_EQ(kv_client_get_with(NULL, KEY("k"), room, &length, &info), KV_INVALID);
	CHECK_EQ(kv_client_get_alloc(NULL, KEY("k"), &found, &length, NULL), KV_INVALID);
	kv_client_set_progress(NULL, NULL, NULL);
	CHECK_EQ(kv_client_view(NULL, KEY("k"), &view), KV_INVALID);
	kv_client_release(NULL, &view);
	kv_client_release(NULL, NULL);
	CHECK_EQ(kv_client_delete_version(NULL, KEY("k"), 1, &info), KV_INVALID);
	CHECK_EQ(kv_client_touch(NULL, KEY("k"), 1), KV_INVALID);
	CHECK_EQ(kv_client_stat(NULL, KEY("k"), &info), KV_INVALID);
	CHECK_EQ(kv_client_exists(NULL, KEY("k")), KV_INVALID);
	CHECK_EQ(kv_client_ttl(NULL, KEY("k"), &number), KV_INVALID);
	CHECK_EQ(kv_client_incr(NULL, KEY("k"), 1, &sum), KV_INVALID);
	CHECK_EQ(kv_client_fetch_add(NULL, KEY("k"), 1, &sum), KV_INVALID);
	CHECK_EQ(kv_client_counter_cas(NULL, KEY("k"), 1, 2, &sum), KV_INVALID);
	CHECK_EQ(kv_client_update(NULL, KEY("k"), never, NULL, &info), KV_INVALID);
	CHECK_EQ(kv_client_scan(NULL, &number, 1, ignore, NULL), KV_INVALID);
	CHECK_EQ(kv_client_flush(NULL), KV_INVALID);
	CHECK_EQ(kv_client_ping(NULL, &number), KV_INVALID);
	CHECK_EQ(kv_client_stats(NULL, &text), KV_INVALID);
	CHECK_EQ(kv_client_submit_get(NULL, KEY("k"), room, sizeof(room), 1), KV_INVALID);
	CHECK_EQ(kv_client_submit_put(NULL, KEY("k"), KEY("v"), NULL, 1), KV_INVALID);
	CHECK_EQ(kv_client_submit_delete(NULL, KEY("k"), 1), KV_INVALID);
	CHECK_EQ(kv_client_submit_incr(NULL, KEY("k"), 1, 1), KV_INVALID);
	CHECK_EQ(kv_client_submit_flush(NULL), KV_INVALID);
	CHECK_EQ(kv_client_poll(NULL, &result, 1, 0), 0);
	CHECK_EQ(kv_client_last_path(NULL), KV_PATH_NONE);
	CHECK_EQ(kv_client_last_round_trips(NULL), 0);
	kv_client_get_totals(NULL, &totals);
	CHECK_EQ(totals.round_trips, 0);
	CHECK_EQ(kv_open(NULL, NULL), 1);
	CHECK_EQ(kv_set(NULL, "k", "v"), 1);
	kv_release(NULL);
	CHECK_EQ(kv_close(NULL), 1);
}

static kv_server_t *start_server(const char *listen)
{
	kv_server_options_t options = {
		.listen = listen, .address = "127.0.0.1", .port = -1, .memory = 8 << 20};
	kv_server_t *server;

	CHECK_EQ(setenv("REMORA_SHM_DIR", test_tmpdir(), 1), 0);
	if (kv_server_create(&options, &server) != KV_OK || kv_server_start(server) != KV_OK)
		TEST_FAIL("%s", kv_server_error());
	return server;
}

static kv_client_t *connect_client(const kv_server_t *server)
{
	kv_client_t *client = kv_client_create(CONN_MODE_AUTO);

	CHECK(client);
	if (kv_client_connect(client, "127.0.0.1", kv_server_port(server)) != KV_OK)
		TEST_FAIL("%s", kv_client_error(client));
	return client;
}

/* Outputs and keys that are not there. */
static void test_no_output(void)
{
	kv_server_t *server = start_server("shm,tcp");
	kv_client_t *client = connect_client(server);
	size_t length = 8;
	char room[8];

	CHECK_EQ(kv_client_put(client, KEY("k"), KEY("v")), KV_OK);
	CHECK_EQ(kv_client_put(client, KEY("k"), NULL, 1), KV_INVALID);
	CHECK_EQ(kv_client_put(client, NULL, 1, KEY("v")), KV_KEY_TOO_LONG);
	CHECK_EQ(kv_client_get(client, NULL, 1, room, &length), KV_KEY_TOO_LONG);
	CHECK_EQ(kv_client_get(client, KEY("k"), room, NULL), KV_INVALID);
	CHECK_EQ(kv_client_get(client, KEY("k"), NULL, &length), KV_INVALID);
	CHECK_EQ(kv_client_get_alloc(client, KEY("k"), NULL, &length, NULL), KV_INVALID);
	CHECK_EQ(kv_client_view(client, KEY("k"), NULL), KV_INVALID);
	kv_client_release(client, NULL);
	CHECK_EQ(kv_client_stats(client, NULL), KV_INVALID);
	CHECK_EQ(kv_client_scan(client, NULL, 1, ignore, NULL), KV_INVALID);
	CHECK_EQ(kv_client_update(client, KEY("k"), NULL, NULL, NULL), KV_INVALID);
	CHECK_EQ(kv_client_batch_get(client, 1, NULL, NULL, NULL, NULL, NULL), KV_INVALID);
	CHECK_EQ(kv_client_poll(client, NULL, 1, 0), 0);
	kv_client_get_totals(client, NULL);
	CHECK_EQ(kv_client_stat(client, KEY("k"), NULL), KV_OK);
	CHECK_EQ(kv_client_ping(client, NULL), KV_OK);
	kv_client_destroy(client);
	kv_server_destroy(server);
}

/* The text is that of the last call that failed, whatever succeeded since. */
static void test_error_is_kept(void)
{
	kv_server_t *server = start_server("tcp");
	kv_client_t *client = connect_client(server);
	size_t length = 8;
	char room[8];

	CHECK_EQ(kv_client_put(client, KEY("k"), NULL, 1), KV_INVALID);
	CHECK_STR(kv_client_error(client), "put: no value");
	CHECK_EQ(kv_client_put(client, KEY("k"), KEY("v")), KV_OK);
	CHECK_EQ(kv_client_get(client, KEY("k"), room, &length), KV_OK);
	CHECK_EQ(kv_client_ping(client, NULL), KV_OK);
	CHECK_STR(kv_client_error(client), "put: no value");
	length = sizeof(room);
	CHECK_EQ(kv_client_get(client, KEY("missing"), room, &length), KV_NOT_FOUND);
	CHECK_EQ(kv_client_put(client, KEY("k"), KEY("v")), KV_OK);
	CHECK_STR(kv_client_error(client), kv_strerror(KV_NOT_FOUND));
	kv_client_destroy(client);
	kv_server_destroy(server);
}

/* Each submitted operation has one result, also when the caller disconnects before it is done. */
static void check_disconnect(const char *listen)
{
	enum { COUNT = 12 };
	kv_server_t *server = start_server(listen);
	kv_client_t *client = connect_client(server);
	bool is_told[COUNT] = {false};
	static char rooms[COUNT][16];
	kv_result_t results[COUNT];
	int told = 0, count;

	for (int i = 0; i < COUNT; i++) {
		uint64_t cookie = (uint64_t)i;

		switch (i % 3) {
		case 0:
			CHECK_EQ(kv_client_submit_put(client, KEY("k"), KEY("v"), NULL, cookie),
				 KV_OK);
			break;
		case 1:
			CHECK_EQ(kv_client_submit_get(client, KEY("k"), rooms[i], 16, cookie),
				 KV_OK);
			break;
		default:
			CHECK_EQ(kv_client_submit_incr(client, KEY("n"), 1, cookie), KV_OK);
		}
	}
	kv_client_disconnect(client);
	while ((count = kv_client_poll(client, results, 5, 0)) > 0) {
		for (int i = 0; i < count; i++) {
			int status = results[i].status;

			CHECK(results[i].cookie < COUNT && !is_told[results[i].cookie]);
			is_told[results[i].cookie] = true;
			CHECK(status == KV_OK || status == KV_DISCONNECTED || status == KV_UNKNOWN);
			/* A get changes nothing. */
			CHECK(results[i].cookie % 3 != 1 || status != KV_UNKNOWN);
			told++;
		}
	}
	CHECK_EQ(told, COUNT);
	/* And it goes on as if nothing had been. */
	CHECK_EQ(kv_client_connect(client, "127.0.0.1", kv_server_port(server)), KV_OK);
	CHECK_EQ(kv_client_submit_put(client, KEY("k"), KEY("w"), NULL, 77), KV_OK);
	CHECK_EQ(kv_client_poll(client, results, 1, -1), 1);
	CHECK_EQ(results[0].cookie, 77);
	CHECK_EQ(results[0].status, KV_OK);
	kv_client_destroy(client);
	kv_server_destroy(server);
}

static void test_disconnect(void)
{
	check_disconnect("tcp");
	check_disconnect("shm,tcp");
}

static const struct test tests[] = {
	{"no_client", test_no_client},
	{"no_output", test_no_output},
	{"error_is_kept", test_error_is_kept},
	{"disconnect", test_disconnect},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "kv_misuse_test", tests, TEST_COUNT(tests));
}
