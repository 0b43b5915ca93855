/*
 * A client process forks. Whatever the child does with the client that it inherited, the parent's
 * goes on working; and the child can have one of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/internal.h"
#include "harness/test.h"
#include "remora/fabric.h"
#include "remora/kv.h"
#include "server/subject.h"

static struct subject subject;
static conn_mode_t mode;
static char server_name[64];

static kv_client_t *connect_client(void)
{
	kv_client_options_t options = {.timeout_ms = 5000 * (int)TEST_TIME_FACTOR};
	kv_client_t *client = kv_client_create_with(mode, &options);

	CHECK(client);
	if (kv_client_connect(client, server_name, 0) != KV_OK)
		TEST_FAIL("%s", kv_client_error(client));
	return client;
}

/* Parent and child use the store at the same time, each under a key of its own. */
static void use(kv_client_t *client, const char *key, int round)
{
	char value[32], found[32], *long_value = malloc(1 << 17);
	size_t length = sizeof(found);
	int64_t count;

	CHECK(long_value);
	memset(long_value, round, 1 << 17);
	snprintf(value, sizeof(value), "value %d", round);
	CHECK_EQ(kv_client_put(client, key, strlen(key), value, strlen(value)), KV_OK);
	CHECK_EQ(kv_client_get(client, key, strlen(key), found, &length), KV_OK);
	CHECK_EQ(length, strlen(value));
	CHECK_MEM(found, value, length);
	CHECK_EQ(kv_client_put(client, "long", 4, long_value, 1 << 17), KV_OK);
	CHECK_EQ(kv_client_incr(client, "count", 5, 1, &count), KV_OK);
	free(long_value);
}

/* What the child does with the parent's client. */
static void try_everything(kv_client_t *client)
{
	char found[32];
	size_t length = sizeof(found);
	int64_t count;

	usleep(5000); /* longer than what was heard of the server is good for */
	CHECK_EQ(kv_client_put(client, "key", 3, "child", 5), KV_INVALID);
	CHECK_CONTAINS(kv_client_error(client), "another process");
	CHECK_EQ(kv_client_get(client, "key", 3, found, &length), KV_INVALID);
	CHECK_EQ(kv_client_incr(client, "count", 5, 1, &count), KV_INVALID);
	CHECK_EQ(kv_client_connect(client, server_name, 0), KV_INVALID);
}

enum deed { USES, DESTROYS, BOTH, LEAVES, DEEDS };

static void child(kv_client_t *client, enum deed deed)
{
	if (deed == USES || deed == BOTH)
		try_everything(client);
	if (deed == DESTROYS || deed == BOTH)
		kv_client_destroy(client);
	if (deed != LEAVES) {
		kv_client_t *own = connect_client();

		use(own, "child", 99);
		kv_client_destroy(own);
	}
	_exit(0);
}

static void client_that_forks(void *unused)
{
	kv_client_t *client = connect_client();

	(void)unused;
	for (int round = 0; round < 2 * DEEDS; round++) {
		int status;
		pid_t pid;

		use(client, "key", round);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			child(client, (enum deed)(round % DEEDS));
		use(client, "key", 100 + round); /* beside it */
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		use(client, "key", 200 + round);
	}
	CHECK_EQ(kv_client_get(client, "nothing", 7, NULL, &(size_t){0}), KV_NOT_FOUND);
	kv_client_destroy(client);
}

/* A client that has gets to report writes no request to the memory that it shares with its parent,
 * which may have one of its own there. */
static void client_with_gets_to_report(void *unused)
{
	kv_client_t *client = connect_client();
	char before[64], found[8];
	size_t length = sizeof(found);
	int status;
	pid_t pid;

	(void)unused;
	CHECK_EQ(kv_client_put(client, "key", 3, "value", 5), KV_OK);
	CHECK_EQ(kv_client_get(client, "key", 3, found, &length), KV_OK);
	CHECK_EQ(kv_client_last_path(client), KV_PATH_MAPPED);
	CHECK(client->unseen_hits > 0);
	memset(client->calls[0].slot, 'x', sizeof(before));
	memcpy(before, client->calls[0].slot, sizeof(before));
	for (unsigned i = 1; i < client->window; i++)
		memcpy(client->calls[i].slot, before, sizeof(before));
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		kv_client_destroy(client);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	for (unsigned i = 0; i < client->window; i++)
		CHECK_MEM(client->calls[i].slot, before, sizeof(before));
	kv_client_destroy(client);
}

static void run(const char *by)
{
	if (TEST_HAS_SANITIZER)
		TEST_SKIP("sanitizers cannot live with a fork() beside threads");
	mode = strcmp(by, "shm") == 0 ? CONN_MODE_SHM : CONN_MODE_TCP;
	subject_start(&subject, NULL);
	snprintf(server_name, sizeof(server_name), "%s%s",
		 mode == CONN_MODE_SHM ? "shm:" : "tcp://", subject_address(&subject, by));
	test_wait(test_spawn(client_that_forks, NULL));
	if (mode == CONN_MODE_SHM)
		test_wait(test_spawn(client_with_gets_to_report, NULL));
	subject_await(&subject, "clients", 0);
	subject_stop(&subject);
}

static void test_fork_shm(void)
{
	run("shm");
}

static void test_fork_tcp(void)
{
	run("tcp");
}

/* The server's own process forks, and the child lets go of what it inherited. */
static void test_server_forks(void)
{
	int status;
	pid_t pid;

	for (int i = 0; i < 2; i++) {
		struct rmr_listener *listener;
		struct rmr_device *device;
		struct rmr_queue *queue;
		struct rmr_region *region;
		struct rmr_conn *conn;
		static char memory[64];
		char path[128];

		snprintf(path, sizeof(path), "%s/forks.sock", test_tmpdir());
		CHECK_OK(rmr_device_open(i ? "tcp" : "shm", NULL, &device));
		CHECK_OK(rmr_queue_open(device, NULL, &queue));
		CHECK_OK(rmr_listener_open(device, i ? "127.0.0.1:0" : path, NULL, &listener));
		CHECK_OK(rmr_region_open(device, memory, 64, RMR_READ, &region));
		pid = fork();
		if (pid == 0) {
			struct rmr_completion completion;

			CHECK_STATUS(rmr_connect(queue, path, 100, NULL, &conn), RMR_INVALID);
			CHECK_CONTAINS(rmr_error_message(), "after fork()");
			CHECK_EQ(rmr_wait(queue, &completion, 1, -1), 0);
			rmr_region_close(region);
			rmr_listener_close(listener);
			rmr_queue_close(queue);
			rmr_device_close(device);
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		CHECK(i || access(path, F_OK) == 0); /* the socket is still there */
		rmr_region_close(region);
		rmr_listener_close(listener);
		rmr_queue_close(queue);
		rmr_device_close(device);
	}
}

static const struct test tests[] = {
	{"fork_shm", test_fork_shm},
	{"fork_tcp", test_fork_tcp},
	{"server_forks", test_server_forks},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "server_fork", tests, TEST_COUNT(tests));
}
