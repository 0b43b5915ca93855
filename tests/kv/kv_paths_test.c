/*
 * Which path CONN_MODE_AUTO takes: the best that works, whatever is wrong with those before it; and
 * that a client which had to take a slower one goes over to the better one when that is there.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/test.h"
#include "remora/fabric.h"
#include "remora/kv.h"
#include "remora/server.h"

#define KEY(text) text, sizeof(text) - 1
#define NOBODY	  65534

static kv_server_t *start_server(const char *listen, const char *key_file)
{
	kv_server_options_t options = {.listen = listen,
				       .address = "127.0.0.1",
				       .port = -1,
				       .memory = 8 << 20,
				       .workers = 1,
				       .key_file = key_file};
	kv_server_t *server;

	CHECK_EQ(setenv("REMORA_SHM_DIR", test_tmpdir(), 1), 0);
	if (kv_server_create(&options, &server) != KV_OK || kv_server_start(server) != KV_OK)
		TEST_FAIL("%s", kv_server_error());
	return server;
}

static kv_client_t *connect_auto(int port, int timeout_ms, int expected)
{
	kv_client_options_t options = {.connect_timeout_ms = timeout_ms};
	kv_client_t *client = kv_client_create_with(CONN_MODE_AUTO, &options);
	int status;

	CHECK(client);
	status = kv_client_connect(client, "127.0.0.1", port);
	if (status != expected)
		TEST_FAIL("%d: %s", status, kv_client_error(client));
	return client;
}

static bool is_by(const kv_client_t *client, const char *device)
{
	return strncmp(kv_client_transport(client), device, strlen(device)) == 0;
}

/* ------------------------------------------------------------------------------------------
 * A path that does not work
 */

static void be_another_user(void *argument)
{
	int port = *(int *)argument;
	kv_client_t *client;

	CHECK_EQ(setgid(NOBODY), 0);
	CHECK_EQ(setuid(NOBODY), 0);
	client = connect_auto(port, 0, KV_OK);
	CHECK(is_by(client, "tcp (shm: "));
	CHECK_EQ(kv_client_put(client, KEY("k"), KEY("v")), KV_OK);
	kv_client_destroy(client);
}

static void test_another_user(void)
{
	kv_server_t *server;
	int port;

	if (geteuid() != 0)
		TEST_SKIP("only root can be another user");
	if (TEST_HAS_TSAN)
		TEST_SKIP("the sanitizer allows no threads in a child of a process with threads");
	server = start_server("shm,tcp", NULL);
	port = kv_server_port(server);
	test_wait(test_spawn(be_another_user, &port));
	kv_server_destroy(server);
}

struct impostor {
	struct rmr_device *device;
	struct rmr_listener *listener;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	atomic_bool has_accepted;
};

static void *accept_one(void *argument)
{
	struct impostor *impostor = argument;
	struct rmr_request *request;

	if (rmr_listener_next(impostor->listener, -1, &request) == RMR_OK)
		(void)!rmr_accept(request, impostor->queue, NULL, &impostor->conn);
	atomic_store(&impostor->has_accepted, true);
	return NULL;
}

static void impostor_open(struct impostor *impostor, int port)
{
	struct rmr_queue_options queue_options = {.recv_slots = 8, .recv_size = 16384};
	char name[32];

	snprintf(name, sizeof(name), "kv-%d", port);
	CHECK_OK(rmr_device_open("shm", NULL, &impostor->device));
	CHECK_OK(rmr_queue_open(impostor->device, &queue_options, &impostor->queue));
	CHECK_OK(rmr_listener_open(impostor->device, name, NULL, &impostor->listener));
}

static void impostor_close(struct impostor *impostor)
{
	rmr_conn_close(impostor->conn);
	rmr_listener_close(impostor->listener);
	rmr_queue_close(impostor->queue);
	rmr_device_close(impostor->device);
}

/* Something else listens where the server would: it takes callers and says nothing, or it is never
 * there to take one. */
static void check_impostor(bool accepts)
{
	kv_server_t *server = start_server("tcp", NULL);
	struct impostor impostor = {0};
	kv_client_t *client;
	pthread_t thread;

	impostor_open(&impostor, kv_server_port(server));
	if (accepts)
		CHECK_EQ(pthread_create(&thread, NULL, accept_one, &impostor), 0);
	client = connect_auto(kv_server_port(server), 1000 * (int)TEST_TIME_FACTOR, KV_OK);
	CHECK(is_by(client, "tcp (shm: "));
	CHECK_EQ(kv_client_ping(client, NULL), KV_OK);
	kv_client_destroy(client);
	if (accepts)
		pthread_join(thread, NULL);
	impostor_close(&impostor);
	kv_server_destroy(server);
}

static void test_silent_path(void)
{
	check_impostor(false);
}

static void test_mute_path(void)
{
	check_impostor(true);
}

/* What the server refuses by one path it refuses by all: one answer is enough. */
static void test_wrong_key(void)
{
	char path[300];
	kv_server_t *server;
	kv_client_t *client;
	FILE *file;

	snprintf(path, sizeof(path), "%s/key", test_tmpdir());
	file = fopen(path, "w");
	CHECK(file);
	fputs("a key that is long enough\n", file);
	fclose(file);
	CHECK_EQ(chmod(path, 0600), 0);
	server = start_server("shm,tcp", path);
	client = connect_auto(kv_server_port(server), 0, KV_DENIED);
	CHECK_CONTAINS(kv_client_error(client), "shm: ");
	CHECK(!strstr(kv_client_error(client), "tcp: "));
	kv_client_destroy(client);
	kv_server_destroy(server);
}

/* ------------------------------------------------------------------------------------------
 * And back
 */

static void test_back_to_the_better(void)
{
	kv_server_t *server = start_server("shm,tcp", NULL);
	char name[300], aside[320], value[8];
	size_t length = sizeof(value);
	kv_client_t *client;

	snprintf(name, sizeof(name), "%s/kv-%d.sock", test_tmpdir(), kv_server_port(server));
	snprintf(aside, sizeof(aside), "%s.aside", name);
	CHECK_EQ(rename(name, aside), 0);
	client = connect_auto(kv_server_port(server), 0, KV_OK);
	CHECK(is_by(client, "tcp (shm: "));
	CHECK_EQ(kv_client_put(client, KEY("k"), KEY("v")), KV_OK);
	CHECK_EQ(rename(aside, name), 0);
	/* What is under way keeps its connection. */
	CHECK_EQ(kv_client_submit_put(client, KEY("k"), KEY("w"), NULL, 1), KV_OK);
	CHECK(is_by(client, "tcp"));
	for (kv_result_t result; kv_client_poll(client, &result, 1, -1) == 1;)
		CHECK_EQ(result.status, KV_OK);
	while (!is_by(client, "shm")) {
		length = sizeof(value);
		CHECK_EQ(kv_client_get(client, KEY("k"), value, &length), KV_OK);
		CHECK_EQ(length, 1);
		CHECK_EQ(value[0], 'w');
		test_sleep_ms(20);
	}
	CHECK_STR(kv_client_transport(client), "shm");
	CHECK_EQ(kv_client_put(client, KEY("k"), KEY("x")), KV_OK);
	do {
		length = sizeof(value);
		CHECK_EQ(kv_client_get(client, KEY("k"), value, &length), KV_OK);
	} while (kv_client_last_path(client) != KV_PATH_MAPPED);
	kv_client_destroy(client);
	kv_server_destroy(server);
}

/* A better path that takes the client and then says nothing costs it nothing: it stays with the
 * one that it has. */
static void test_mute_better_path(void)
{
	kv_server_t *server = start_server("tcp", NULL);
	kv_client_t *client = connect_auto(kv_server_port(server), 0, KV_OK);
	struct impostor impostor = {0};
	pthread_t thread;
	char value[8];

	CHECK(is_by(client, "tcp (shm: "));
	impostor_open(&impostor, kv_server_port(server));
	CHECK_EQ(pthread_create(&thread, NULL, accept_one, &impostor), 0);
	for (int left = 20; left > 0; left -= atomic_load(&impostor.has_accepted)) {
		size_t length = sizeof(value);

		CHECK_EQ(kv_client_put(client, KEY("k"), KEY("value")), KV_OK);
		CHECK_EQ(kv_client_get(client, KEY("k"), value, &length), KV_OK);
		CHECK_MEM(value, "value", length);
		test_sleep_ms(20);
	}
	CHECK(is_by(client, "tcp (shm: "));
	kv_client_destroy(client);
	pthread_join(thread, NULL);
	impostor_close(&impostor);
	kv_server_destroy(server);
}

static const struct test tests[] = {
	{"another_user", test_another_user},
	{"silent_path", test_silent_path},
	{"mute_path", test_mute_path},
	{"wrong_key", test_wrong_key},
	{"back_to_the_better", test_back_to_the_better},
	{"mute_better_path", test_mute_better_path},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "kv_paths_test", tests, TEST_COUNT(tests));
}
