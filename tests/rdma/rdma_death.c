/* Peers that die, stop, or vanish in the middle of something. */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "fixture.h"

/* kill -9: the disconnect callback comes once, with a reason, and the endpoint is good again. */
static void test_killed(void)
{
	struct server servers[3] = {0};
	struct watch watch;
	RdmaConn *conn;

	for (int i = 0; i < 3; i++) /* before there are threads: a child of those can have none */
		server_start(&servers[i], serve_echo, NULL);
	conn = client_make(NULL, &watch);
	for (int i = 0; i < 3; i++) {
		watch.disconnected = 0;
		CHECK_RDMA(client_connect(conn, &servers[i]));
		client_send(conn, "x", 1);
		watch_await(&watch.messages, (unsigned)i + 1);
		server_kill(&servers[i]);
		watch_await(&watch.disconnected, 1);
		CHECK(watch.status != RMR_OK);
		CHECK(watch.reason[0]);
		test_sleep_ms(10);
		CHECK_EQ(watch.disconnected, 1);
		CHECK_EQ(rdmaConnSend(conn, "x", 1), RDMA_SEND_ERR);
	}
	rdmaConnClose(conn);
}

/* A client that is killed costs the server nothing, and is closed there. */
struct victim {
	struct server *server;
	struct test_pipe pipe;
};

static void be_a_victim(void *arg)
{
	struct victim *victim = arg;
	static struct watch watch;
	RdmaConn *conn = client_open(victim->server, NULL, &watch);

	test_signal(&victim->pipe, TEST_CHILD);
	for (;;) {
		rdmaConnSend(conn, "0123456789", 10);
		sched_yield();
	}
}

/* Without callbacks: messages are dropped, and the library closes what is lost. */
static void serve_dropping(struct server *server)
{
	serve_until_end(server);
}

static void test_client_killed(void)
{
	struct server server = {0};
	struct victim victim = {.server = &server};
	struct watch watch;
	RdmaConn *conn;
	pid_t pid;

	server_start(&server, serve_dropping, NULL);
	for (int i = 0; i < 5; i++) {
		test_pipe_open(&victim.pipe);
		pid = test_spawn(be_a_victim, &victim);
		test_await(&victim.pipe, TEST_PARENT);
		test_kill(pid);
		test_pipe_close(&victim.pipe);
	}
	conn = client_open(&server, NULL, &watch);
	client_send(conn, "alive", 5);
	rdmaConnClose(conn);
	server_end(&server);
}

/* Stopped, not dead: nothing is lost, and after SIGCONT all goes on. */
static void test_stopped(void)
{
	struct server server = {0};
	struct watch watch;
	uint8_t *memory;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_open(&server, NULL, &watch);
	memory = rdmaConnRegMem(conn, 4096);
	server_pause(&server);
	for (int i = 0; i < 20; i++)
		client_send(conn, "patience", 8);
	strcpy((char *)memory, "written to a sleeper");
	CHECK_EQ(rdmaConnWrite(conn, memory, 4096), 4096);
	test_sleep_ms(100);
	CHECK_EQ(watch.messages, 0);
	CHECK_EQ(watch.disconnected, 0);
	server_resume(&server);
	watch_await(&watch.messages, 20);
	watch_await(&watch.writes, 1);
	memset(memory, 0, 4096);
	CHECK_RDMA(rdmaConnRead(conn, memory, 4096));
	watch_await(&watch.reads, 1);
	CHECK_STR((char *)memory, "written to a sleeper");
	rdmaConnClose(conn);
	server_end(&server);
}

/* Closing does not wait for a peer that takes nothing for longer than a second. */
static void test_close_with_a_stopped_peer(void)
{
	struct server server = {.arg = (void *)1000};
	struct watch watch;
	uint8_t data[1000] = {0};
	uint64_t begin;
	RdmaConn *conn;

	server_start(&server, serve_sink, NULL);
	conn = client_open(&server, NULL, &watch);
	server_pause(&server);
	while (rdmaConnSend(conn, data, sizeof(data)) > 0)
		;
	begin = clock_now_ns();
	rdmaConnClose(conn);
	CHECK((clock_now_ns() - begin) / 1000000 < 3000 * TEST_TIME_FACTOR);
	server_kill(&server);
}

/* A Sync call whose peer dies returns, with an error. */
static void *read_for_ever(void *arg)
{
	RdmaConn *conn = arg;
	uint8_t *memory = rdmaConnRegMem(conn, 64 * KIB);
	RdmaMemInfo info;

	CHECK_RDMA(rdmaConnMemInfo(conn, memory, &info));
	while (rdmaPASyncReadSignaled(conn, info.addr, info.lkey, 0, 64 * KIB) == RDMA_OK)
		;
	CHECK(rdmaErrorStatus() != RMR_OK);
	CHECK(rdmaError()[0]);
	return NULL;
}

static void test_sync_when_killed(void)
{
	struct server server = {0};
	struct watch watch;
	pthread_t threads[3];
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_open(&server, NULL, &watch);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, read_for_ever, conn), 0);
	test_sleep_ms(30);
	server_kill(&server);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	watch_await(&watch.disconnected, 1);
	rdmaConnClose(conn);
}

/* Counts up a word of its own. What is told of the old value is true, or the call fails. */
struct counter {
	RdmaConn *conn;
	uint64_t at;
};

static void *count_for_ever(void *arg)
{
	struct counter *counter = arg;
	uint64_t expected = 7, old = 0;

	if (rdmaConnCompareSwap(counter->conn, counter->at, 0, expected, NULL) != RDMA_OK)
		return NULL;
	while (rdmaConnFetchAdd(counter->conn, counter->at, 1, &old) == RDMA_OK) {
		CHECK_EQ(old, expected);
		expected++;
	}
	CHECK(rdmaErrorStatus() != RMR_OK);
	return NULL;
}

static void test_atomics_when_killed(void)
{
	struct server servers[4] = {0};
	struct counter counters[4];
	struct watch watch;
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		server_start(&servers[i], serve_echo, NULL);
	for (int i = 0; i < 4; i++) {
		RdmaConn *conn = client_open(&servers[i], NULL, &watch);

		for (uint64_t t = 0; t < 4; t++) {
			counters[t] = (struct counter){.conn = conn, .at = 64 * t};
			CHECK_EQ(pthread_create(&threads[t], NULL, count_for_ever, &counters[t]),
				 0);
		}
		test_sleep_ms(20);
		server_kill(&servers[i]);
		for (int t = 0; t < 4; t++)
			pthread_join(threads[t], NULL);
		rdmaConnClose(conn);
	}
}

/* The server is killed while it is being called, again and again. */
static void test_killed_while_connecting(void)
{
	RdmaOptions options = {.connectTimeoutMs = 2000};
	struct server servers[5] = {0};
	struct watch watch;
	RdmaConn *conn;

	for (int i = 0; i < 5; i++)
		server_start(&servers[i], serve_echo, NULL);
	conn = client_make(&options, &watch);
	for (int i = 0; i < 5; i++) {
		CHECK_RDMA(rdmaConnectAsync(conn, setup_address(), servers[i].port));
		if (i % 2)
			test_sleep_ms((unsigned)i);
		server_kill(&servers[i]);
		watch_await(&watch.disconnected, (unsigned)i + 1);
	}
	rdmaConnClose(conn);
}

/* Callers that wait when a server is released are told so. */
static void test_server_ends(void)
{
	struct server server = {0};
	static struct watch watches[10];
	RdmaConn *conns[10];

	server_start(&server, serve_echo, NULL);
	for (int i = 0; i < 10; i++)
		conns[i] = client_open(&server, NULL, &watches[i]);
	server_end(&server);
	for (int i = 0; i < 10; i++) {
		watch_await(&watches[i].disconnected, 1);
		CHECK_EQ(watches[i].status, RMR_DISCONNECTED);
		CHECK_CONTAINS(watches[i].reason, "closed the connection");
		rdmaConnClose(conns[i]);
	}
}

const struct test death_tests[] = {
	{"death_killed", test_killed},
	{"death_client_killed", test_client_killed},
	{"death_stopped", test_stopped},
	{"death_close_with_a_stopped_peer", test_close_with_a_stopped_peer},
	{"death_sync_when_killed", test_sync_when_killed},
	{"death_atomics_when_killed", test_atomics_when_killed},
	{"death_killed_while_connecting", test_killed_while_connecting},
	{"death_server_ends", test_server_ends},
	{0},
};
