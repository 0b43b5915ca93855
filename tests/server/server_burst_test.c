/*
 * Many clients at once, on a machine whose processors are busy: all of them get in.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/test.h"
#include "remora/kv.h"
#include "server/subject.h"

#define CLIENTS	   (TEST_HAS_SANITIZER ? 60 : 300)
#define BUSY_LOOPS 2

static int starting_line[2]; /* readers wait until its writer closes it */
static conn_mode_t mode;
static char server_name[64];

static void wait_for_the_start(void)
{
	char byte;

	close(starting_line[1]);
	CHECK_EQ(read(starting_line[0], &byte, 1), 0);
}

static void be_busy(void *unused)
{
	(void)unused;
	for (volatile unsigned i = 0;; i = i + 1)
		;
}

static void come(void *number)
{
	kv_client_options_t options = {.connect_timeout_ms = 15000 * (int)TEST_TIME_FACTOR,
				       .timeout_ms = 15000 * (int)TEST_TIME_FACTOR};
	kv_client_t *client = kv_client_create_with(mode, &options);
	char key[32];

	CHECK(client);
	wait_for_the_start();
	if (kv_client_connect(client, server_name, 0) != KV_OK)
		TEST_FAIL("%s", kv_client_error(client));
	snprintf(key, sizeof(key), "key-%p", number);
	if (kv_client_put(client, key, strlen(key), "value", 5) != KV_OK)
		TEST_FAIL("%s", kv_client_error(client));
	kv_client_destroy(client);
}

static void burst(const char *by)
{
	static pid_t clients[300], busy[BUSY_LOOPS];
	struct subject subject;

	if (TEST_HAS_SANITIZER)
		TEST_SKIP("sanitizers cannot live with a fork() beside threads");
	mode = strcmp(by, "shm") == 0 ? CONN_MODE_SHM : CONN_MODE_TCP;
	subject_start(&subject, &(kv_server_options_t){.workers = 2});
	snprintf(server_name, sizeof(server_name), "%s%s",
		 mode == CONN_MODE_SHM ? "shm:" : "tcp://", subject_address(&subject, by));
	for (int i = 0; i < BUSY_LOOPS; i++)
		busy[i] = test_spawn(be_busy, NULL);
	CHECK_EQ(pipe(starting_line), 0);
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = test_spawn(come, &clients[i]);
	close(starting_line[0]);
	close(starting_line[1]);
	for (int i = 0; i < CLIENTS; i++)
		test_wait(clients[i]);
	for (int i = 0; i < BUSY_LOOPS; i++)
		test_kill(busy[i]);
	CHECK_EQ(subject_figure(&subject, "items"), CLIENTS);
	subject_await(&subject, "clients", 0);
	subject_stop(&subject);
}

static void test_burst_shm(void)
{
	burst("shm");
}

static void test_burst_tcp(void)
{
	burst("tcp");
}

static const struct test tests[] = {
	{"burst_shm", test_burst_shm, 0, 120},
	{"burst_tcp", test_burst_tcp, 0, 120},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "server_burst", tests, TEST_COUNT(tests));
}
