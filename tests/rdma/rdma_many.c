/* Many connections, listeners and threads at once; and what is left when they are gone. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "fixture.h"

#define SERVERS 4
#define CLIENTS 16 /* of each */

/* Several servers, each with many clients of one process; all busy at once. */
static void test_connections(void)
{
	static struct watch watches[SERVERS * CLIENTS];
	struct server servers[SERVERS] = {0};
	RdmaConn *conns[SERVERS * CLIENTS];
	RdmaOptions options = {.ringSize = 64 * KIB, .connectTimeoutMs = PATIENCE_MS};
	uint8_t data[200];

	for (int i = 0; i < SERVERS; i++)
		server_start(&servers[i], serve_echo, &options);
	for (int i = 0; i < SERVERS * CLIENTS; i++)
		conns[i] = client_open(&servers[i % SERVERS], &options, &watches[i]);
	for (unsigned round = 1; round <= 5 + 50 / TEST_TIME_FACTOR; round++) {
		for (int i = 0; i < SERVERS * CLIENTS; i++) {
			numbered_fill(data, sizeof(data), (uint64_t)i * 1000 + round);
			client_send(conns[i], data, sizeof(data));
		}
		for (int i = 0; i < SERVERS * CLIENTS; i++) {
			watch_await(&watches[i].messages, round);
			CHECK(numbered_is(watches[i].last, sizeof(data),
					  (uint64_t)i * 1000 + round));
		}
	}
	for (int i = 0; i < SERVERS * CLIENTS; i++)
		rdmaConnClose(conns[i]);
	for (int i = 0; i < SERVERS; i++)
		server_end(&servers[i]);
}

/* Several listeners in one process, one of which is released while the others are used. */
static atomic_uint heard[3];

static void hear(RdmaConn *conn, const void *data, size_t length)
{
	(void)data;
	(void)length;
	atomic_fetch_add((atomic_uint *)rdmaServerUserData(rdmaConnListener(conn)), 1);
}

static void hear_all(RdmaListener *listener, RdmaConn *conn)
{
	(void)listener;
	rdmaConnSetRecvCallback(conn, hear);
}

static void test_listeners(void)
{
	RdmaListener *listeners[3];
	struct watch watches[3];
	RdmaConn *conns[3];

	for (int i = 0; i < 3; i++) {
		CHECK_RDMA(rdmaServer(&listeners[i], setup_address(), 0));
		rdmaServerSetUserData(listeners[i], &heard[i]);
		rdmaServerSetAcceptCallback(listeners[i], hear_all);
		CHECK_RDMA(rdmaServerStartAsync(listeners[i]));
		conns[i] = client_make(NULL, &watches[i]);
		CHECK_RDMA(rdmaConnect(conns[i], setup_address(), rdmaServerPort(listeners[i])));
		client_send(conns[i], "x", 1);
		watch_await(&heard[i], 1);
	}
	rdmaServerRelease(listeners[1]);
	watch_await(&watches[1].disconnected, 1);
	client_send(conns[0], "x", 1);
	client_send(conns[2], "x", 1);
	watch_await(&heard[0], 2);
	watch_await(&heard[2], 2);
	CHECK_EQ(heard[1], 1);
	for (int i = 0; i < 3; i++)
		rdmaConnClose(conns[i]);
	rdmaServerRelease(listeners[0]);
	rdmaServerRelease(listeners[2]);
}

/* Threads that send, write, read and count on one connection, all at once. */
#define THREADS 4
#define TURNS	(1500u / TEST_TIME_FACTOR)

static RdmaConn *hammered;
static bool has_atomics;

static void *hammer(void *arg)
{
	uint64_t number = (uint64_t)(uintptr_t)arg;
	uint8_t *memory = rdmaConnRegMem(hammered, 4096);
	uint32_t at = (uint32_t)number * 8192;
	RdmaMemInfo info;

	CHECK(memory != NULL);
	CHECK_RDMA(rdmaConnMemInfo(hammered, memory, &info));
	for (unsigned i = 0; i < TURNS; i++) {
		numbered_fill(memory, 64, number * TURNS + i);
		client_send(hammered, memory, 64);
		CHECK_RDMA(rdmaPASyncWriteSignaled(hammered, info.addr, info.lkey, 8192 + at, 64));
		CHECK_RDMA(rdmaPASyncReadSignaled(hammered, info.addr + 1024, info.lkey, 8192 + at,
						  64));
		CHECK(numbered_is(memory + 1024, 64, number * TURNS + i));
		if (has_atomics)
			CHECK_RDMA(rdmaConnFetchAdd(hammered, 0, 1, NULL));
	}
	return NULL;
}

static void test_threads(void)
{
	struct server server = {0};
	struct watch watch;
	pthread_t threads[THREADS];
	uint64_t total = 0;

	server_start(&server, serve_echo, NULL);
	hammered = client_open(&server, NULL, &watch);
	has_atomics = rdmaConnFetchAdd(hammered, 0, 0, NULL) == RDMA_OK;
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, hammer, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	watch_await(&watch.messages, THREADS * TURNS);
	if (has_atomics)
		CHECK_RDMA(rdmaConnFetchAdd(hammered, 0, 0, &total));
	CHECK_EQ(total, has_atomics ? THREADS * TURNS : 0);
	rdmaConnClose(hammered);
	server_end(&server);
}

/* Threads that open and close connections at the same time. */
static struct server *busy_server;

static void *come_and_go(void *arg)
{
	(void)arg;
	for (int i = 0; i < 10; i++) {
		struct watch *watch = calloc(1, sizeof(*watch));
		RdmaConn *conn = client_open(busy_server, NULL, watch);

		client_send(conn, "x", 1);
		if (i % 2)
			watch_await(&watch->messages, 1);
		rdmaConnClose(conn);
		free(watch);
	}
	return NULL;
}

static void test_come_and_go(void)
{
	struct server server = {0};
	pthread_t threads[THREADS];

	server_start(&server, serve_echo, NULL);
	busy_server = &server;
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, come_and_go, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	server_end(&server);
}

/* Nothing is left of connections that were closed. */
static void test_leaks(void)
{
	struct server server = {0};
	struct watch watch;
	int fds = 0, mappings = 0;

	server_start(&server, serve_echo, NULL);
	for (int i = 0; i < 30; i++) {
		RdmaConn *conn = client_open(&server, NULL, &watch);
		uint8_t *memory = rdmaConnRegMem(conn, 4096);

		CHECK_EQ(rdmaConnWrite(conn, memory, 4096), 4096);
		watch_await(&watch.writes, 1);
		rdmaConnClose(conn);
		if (i == 9) { /* by then everything that stays is there */
			fds = test_open_fds();
			mappings = test_mapping_count();
		}
	}
	CHECK_EQ(test_open_fds(), fds);
	if (!TEST_HAS_SANITIZER) /* those keep what was freed */
		CHECK(test_mapping_count() <= mappings + 4);
	server_end(&server);
}

/* Connected, and nothing to do: the runtime sleeps. */
static uint64_t cpu_ms(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

static void test_idle(void)
{
	struct server server = {0};
	static struct watch watches[10];
	RdmaConn *conns[10];
	uint64_t before;

	server_start(&server, serve_echo, NULL);
	for (int i = 0; i < 10; i++) {
		conns[i] = client_open(&server, NULL, &watches[i]);
		client_send(conns[i], "x", 1);
		watch_await(&watches[i].messages, 1);
	}
	test_sleep_ms(50);
	before = cpu_ms();
	test_sleep_ms(1000);
	CHECK(cpu_ms() - before < 300);
	/* And it wakes up again. */
	for (int i = 0; i < 10; i++) {
		client_send(conns[i], "y", 1);
		watch_await(&watches[i].messages, 2);
		rdmaConnClose(conns[i]);
	}
	server_end(&server);
}

const struct test many_tests[] = {
	{"many_connections", test_connections},
	{"many_listeners", test_listeners},
	{"many_threads", test_threads},
	{"many_come_and_go", test_come_and_go},
	{"many_leaks", test_leaks},
	{"many_idle", test_idle},
	{0},
};
