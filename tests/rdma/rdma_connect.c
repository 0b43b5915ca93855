/* Connecting: what works, what is refused and how soon, again after a loss, starting and stopping
 * servers and the runtime. */
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fixture.h"

static void test_states(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_make(NULL, &watch);
	CHECK(!rdmaConnIsConnected(conn));
	CHECK_STR(rdmaConnProvider(conn), "");
	CHECK_STR(rdmaConnPeer(conn), "");
	CHECK_EQ(rdmaConnMaxSend(conn), 0);
	CHECK_EQ(rdmaConnRemoteSize(conn), 0);
	CHECK(rdmaConnListener(conn) == NULL);
	CHECK(rdmaConnUserData(conn) == &watch);
	CHECK_RDMA(client_connect(conn, &server));
	CHECK(rdmaConnIsConnected(conn));
	CHECK_EQ(strncmp(rdmaConnProvider(conn), setup.device, 3), 0);
	CHECK(rdmaConnPeer(conn)[0]);
	CHECK_EQ(rdmaConnMaxSend(conn), 256 * KIB);
	CHECK_EQ(rdmaConnRemoteSize(conn), SPACE_SIZE);
	watch_await(&watch.connected, 1);
	CHECK_RDMA_ERR(client_connect(conn, &server), RMR_INVALID);
	CHECK_CONTAINS(rdmaError(), "already");
	rdmaConnClose(conn);
	rdmaConnClose(NULL);
	server_end(&server);
}

static void test_nobody_there(void)
{
	RdmaOptions options = {.connectTimeoutMs = 500};
	struct server server = {0};
	struct watch watch;
	uint64_t begin;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	server_end(&server); /* now nobody listens at its port */
	conn = client_make(&options, &watch);
	begin = clock_now_ns();
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(client_connect(conn, &server), RDMA_ERR);
		CHECK(rdmaErrorStatus() == RMR_REFUSED || rdmaErrorStatus() == RMR_TIMEOUT);
		CHECK(rdmaError()[0]);
	}
	CHECK((clock_now_ns() - begin) / 1000000 < 4000 * TEST_TIME_FACTOR);
	CHECK_EQ(watch.disconnected, 0);
	CHECK(!rdmaConnIsConnected(conn));
	rdmaConnClose(conn);
}

static void test_bad_addresses(void)
{
	struct watch watch;
	RdmaConn *conn = client_make(NULL, &watch);
	RdmaListener *listener;

	setup_address();
	CHECK_RDMA_ERR(rdmaConnect(conn, "no-such-device://127.0.0.1", 7471), RMR_NO_DEVICE);
	CHECK_RDMA_ERR(rdmaConnect(conn, "tcp://127.0.0.1", 70000), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaConnect(conn, "tcp://no.such.host.invalid", 7471), RMR_BAD_ADDRESS);
	CHECK_RDMA_ERR(rdmaServer(&listener, "no-such-device://127.0.0.1", 0), RMR_NO_DEVICE);
	CHECK_RDMA_ERR(rdmaServer(&listener, "tcp://127.0.0.1", -1), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaServer(&listener, "tcp://203.0.113.1", 0), RMR_BAD_ADDRESS);
	rdmaConnClose(conn);
}

/* Nobody gets a part of a port: by shm alone it would look as if all were well. */
static void test_port_of_another_program(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	RdmaListener *listener = NULL;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	unsetenv("REMORA_RDMA_DEVICE");
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, 1) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
	CHECK_EQ(rdmaServer(&listener, "127.0.0.1", ntohs(address.sin_port)), RDMA_ERR);
	CHECK_STATUS(rdmaErrorStatus(), RMR_ADDRESS_IN_USE);
	CHECK_EQ(rdmaServer(&listener, "192.0.2.1", 0), RDMA_ERR);
	CHECK(!listener);
	close(fd);
}

/* Two servers cannot have one port; rdmaError() names it. */
static void test_port_in_use(void)
{
	RdmaListener *first, *second;

	CHECK_RDMA(rdmaServer(&first, setup_address(), 0));
	CHECK(rdmaServerPort(first) > 0);
	CHECK_CONTAINS(rdmaServerAddresses(first), setup_is_shm() ? "rdma-" : ":");
	CHECK_RDMA_ERR(rdmaServer(&second, setup_address(), rdmaServerPort(first)),
		       RMR_ADDRESS_IN_USE);
	rdmaServerRelease(first);
	rdmaServerRelease(NULL);
}

static void refuse(RdmaListener *listener, RdmaConn *conn)
{
	(void)listener;
	rdmaConnClose(conn);
}

static void serve_refusals(struct server *server)
{
	rdmaServerSetAcceptCallback(server->listener, refuse);
	serve_until_end(server);
}

/* Refused by the accept callback: the caller is told, and the server goes on. */
static void test_refused(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_refusals, NULL);
	conn = client_make(NULL, &watch);
	for (int i = 0; i < 5; i++)
		CHECK_RDMA_ERR(client_connect(conn, &server), RMR_REFUSED);
	CHECK_EQ(watch.connected, 0);
	CHECK_EQ(watch.disconnected, 0);
	rdmaConnClose(conn);
	server_end(&server);
}

/* Callers of a server that is not started wait, at most as long as they want. */
static void serve_late(struct server *server)
{
	test_await(&server->pipe, TEST_CHILD);
	serve_echo(server);
}

static void test_not_started(void)
{
	RdmaOptions options = {.connectTimeoutMs = 200 * (int)TEST_TIME_FACTOR};
	struct server server = {0};
	struct watch watch, patient;
	RdmaConn *conn, *other;

	server_start(&server, serve_late, NULL);
	conn = client_make(&options, &watch);
	CHECK_RDMA_ERR(client_connect(conn, &server), RMR_TIMEOUT);
	other = client_make(NULL, &patient);
	CHECK_RDMA(rdmaConnectAsync(other, setup_address(), server.port));
	test_sleep_ms(50);
	CHECK_EQ(patient.connected, 0);
	test_signal(&server.pipe, TEST_PARENT);
	watch_await(&patient.connected, 1);
	CHECK_RDMA(client_connect(conn, &server));
	rdmaConnClose(conn);
	rdmaConnClose(other);
	server_end(&server);
}

static void test_async(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_make(NULL, &watch);
	CHECK_RDMA(rdmaConnectAsync(conn, setup_address(), server.port));
	watch_await(&watch.connected, 1);
	CHECK(rdmaConnIsConnected(conn));
	CHECK_RDMA_ERR(rdmaConnectAsync(conn, setup_address(), server.port), RMR_INVALID);
	client_send(conn, "there", 5);
	watch_await(&watch.messages, 1);
	rdmaConnClose(conn);
	server_end(&server);
	/* And when nobody is there, the disconnect callback tells, with the reason. */
	conn = client_make(NULL, &watch);
	CHECK_RDMA(rdmaConnectAsync(conn, setup_address(), server.port));
	watch_await(&watch.disconnected, 1);
	CHECK(watch.status == RMR_REFUSED || watch.status == RMR_TIMEOUT);
	CHECK(watch.reason[0]);
	CHECK_EQ(watch.connected, 0);
	rdmaConnClose(conn);
}

/* Closed while it is being connected: nothing is called back, and nothing is left. */
static void test_close_while_connecting(void)
{
	struct server server = {0};
	struct watch watch;

	server_start(&server, serve_echo, NULL);
	for (int i = 0; i < 20; i++) {
		RdmaConn *conn = client_make(NULL, &watch);

		CHECK_RDMA(rdmaConnectAsync(conn, setup_address(), server.port));
		if (i % 4)
			test_sleep_ms((unsigned)i % 4);
		rdmaConnClose(conn);
		CHECK_EQ(watch.disconnected, 0);
	}
	rdmaRuntimeStop();
	server_end(&server);
}

/* The same endpoint, connected again and again: callbacks, options and memory stay. */
static void test_again(void)
{
	struct server server = {0};
	struct watch watch;
	uint8_t *memory;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_make(NULL, &watch);
	memory = rdmaConnRegMem(conn, 4096);
	for (unsigned i = 1; i <= 5; i++) {
		CHECK_RDMA(client_connect(conn, &server));
		memset(memory, (int)i, 4096);
		CHECK_EQ(rdmaConnWrite(conn, memory, 4096), 4096);
		watch_await(&watch.writes, i);
		client_send(conn, &i, sizeof(i));
		watch_await(&watch.messages, i);
		client_order(conn, ORDER_CLOSE, NULL, 0);
		watch_await(&watch.disconnected, i);
		CHECK_EQ(watch.status, RMR_DISCONNECTED);
		CHECK_CONTAINS(watch.reason, "closed");
		CHECK_EQ(rdmaConnSend(conn, "x", 1), RDMA_SEND_ERR);
		CHECK_EQ(rdmaErrorStatus(), RMR_DISCONNECTED);
	}
	watch_await(&watch.connected, 5);
	rdmaConnClose(conn);
	server_end(&server);
}

/* ------------------------------------------------------------------------------------------
 * Starting and stopping
 */

static RdmaListener *signaled;

static void stop_by_signal(int number)
{
	(void)number;
	rdmaServerStop(signaled);
}

static void *stop_soon(void *arg)
{
	test_sleep_ms(20);
	rdmaServerStop(arg);
	return NULL;
}

/* rdmaServerStart returns by a thread, by a signal, and at once when it was stopped before. */
static void test_start_and_stop(void)
{
	RdmaListener *listener;
	pthread_t thread;

	CHECK_RDMA(rdmaServer(&listener, setup_address(), 0));
	CHECK_EQ(pthread_create(&thread, NULL, stop_soon, listener), 0);
	CHECK_RDMA(rdmaServerStart(listener));
	pthread_join(thread, NULL);
	CHECK_RDMA(rdmaServerStop(listener));
	CHECK_RDMA(rdmaServerStart(listener)); /* at once */
	signaled = listener;
	signal(SIGALRM, stop_by_signal);
	ualarm(20000, 0);
	CHECK_RDMA(rdmaServerStart(listener));
	CHECK_RDMA(rdmaServerStartAsync(listener));
	CHECK_RDMA_ERR(rdmaServerStartAsync(listener), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaServerStart(listener), RMR_INVALID);
	rdmaServerRelease(listener);
}

static void serve_twice(struct server *server)
{
	for (int i = 0; i < 2; i++) {
		serve_echo(server);
		test_signal(&server->pipe, TEST_CHILD);
		test_await(&server->pipe, TEST_CHILD);
	}
}

/* A stopped server keeps its connections; started again it takes new ones. */
static void test_stop_keeps_connections(void)
{
	RdmaOptions hasty = {.connectTimeoutMs = 100};
	struct server server = {0};
	struct watch watch, later;
	RdmaConn *conn, *other;

	server_start(&server, serve_twice, NULL);
	conn = client_open(&server, NULL, &watch);
	test_signal(&server.pipe, TEST_PARENT);
	test_await(&server.pipe, TEST_PARENT);
	client_send(conn, "still", 5);
	watch_await(&watch.messages, 1);
	other = client_make(&hasty, &later);
	CHECK_RDMA_ERR(client_connect(other, &server), RMR_TIMEOUT);
	test_signal(&server.pipe, TEST_PARENT);
	rdmaConnClose(other);
	other = client_open(&server, NULL, &later);
	client_send(conn, "again", 5);
	watch_await(&watch.messages, 2);
	test_signal(&server.pipe, TEST_PARENT);
	test_await(&server.pipe, TEST_PARENT);
	CHECK_EQ(watch.disconnected, 0);
	server_end(&server);
	watch_await(&watch.disconnected, 1);
	watch_await(&later.disconnected, 1);
	rdmaConnClose(other);
	rdmaConnClose(conn);
}

/* The runtime ends with all that is open, and what is used next starts it anew. */
static void test_runtime_again(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaListener *listener;
	int fds = 0;

	server_start(&server, serve_echo, NULL);
	rdmaRuntimeStop(); /* never started */
	for (int i = 0; i < 5; i++) {
		RdmaConn *conn = client_open(&server, NULL, &watch);

		CHECK_RDMA(rdmaServer(&listener, setup_address(), 0));
		CHECK(rdmaConn() != NULL); /* never connected */
		client_send(conn, "x", 1);
		watch_await(&watch.messages, 1);
		rdmaRuntimeStop();
		rdmaRuntimeStop();
		CHECK_EQ(watch.disconnected, 0);
		if (i == 0) /* some libraries keep what they open once */
			fds = test_open_fds();
	}
	CHECK_EQ(test_open_fds(), fds);
	server_end(&server);
}

/* The runtime is stopped while a thread connects, in vain, and while another one does so well. */
static void *connect_in_vain(void *arg)
{
	struct watch watch;
	RdmaConn *conn = client_make(&(RdmaOptions){.connectTimeoutMs = 300}, &watch);

	CHECK_EQ(client_connect(conn, arg), RDMA_ERR); /* and now the endpoint is gone */
	return NULL;
}

static void test_stop_while_connecting(void)
{
	struct server server = {0};
	pthread_t thread;

	server_start(&server, serve_late, NULL);
	CHECK_EQ(pthread_create(&thread, NULL, connect_in_vain, &server), 0);
	test_sleep_ms(100);
	rdmaRuntimeStop();
	pthread_join(thread, NULL);
	test_signal(&server.pipe, TEST_PARENT);
	server_end(&server);
}

/* A plain host and port: the fastest way that works. REMORA_RDMA_DEVICE chooses. */
static void serve_plain(struct server *server)
{
	RdmaListener *listener;
	int port;

	CHECK_RDMA(rdmaServer(&listener, NULL, 0));
	rdmaServerSetUserData(listener, server);
	port = rdmaServerPort(listener);
	CHECK_CONTAINS(rdmaServerAddresses(listener), "tcp");
	CHECK_CONTAINS(rdmaServerAddresses(listener), "shm");
	CHECK_RDMA(rdmaServerStartAsync(listener));
	test_send(&server->pipe, TEST_CHILD, &port, sizeof(port));
	test_await(&server->pipe, TEST_CHILD);
	rdmaServerRelease(listener);
}

static void test_plain_host(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;
	int port;

	setup_address();
	server_start(&server, serve_plain, NULL);
	test_recv(&server.pipe, TEST_PARENT, &port, sizeof(port));
	conn = client_make(NULL, &watch);
	CHECK_RDMA(rdmaConnect(conn, "localhost", port));
	CHECK_STR(rdmaConnProvider(conn), "shm");
	rdmaConnClose(conn);
	setenv("REMORA_RDMA_DEVICE", "tcp", 1);
	conn = client_make(NULL, &watch);
	CHECK_RDMA(rdmaConnect(conn, NULL, port));
	CHECK_STR(rdmaConnProvider(conn), "tcp");
	rdmaConnClose(conn);
	unsetenv("REMORA_RDMA_DEVICE");
	server_end(&server);
}

static void test_options(void)
{
	static const RdmaOptions bad[] = {
		{.mode = (enum RdmaMode)7},
		{.ringSize = 100},
		{.ringSize = 1ull << 40},
		{.maxPeerRing = 100},
		{.maxPeerRing = 1ull << 40},
		{.backlog = -1},
		{.connectTimeoutMs = -5},
		{.deadAfterMs = -1},
		{.sendDepth = 1u << 30},
		{.retryCount = 8},
		{.cpu = 100000},
	};
	RdmaOptions good = {.mode = RDMA_BLOCKING,
			    .ringSize = 5000, /* becomes 8192 */
			    .sendDepth = 4,
			    .recvDepth = 32,
			    .maxInline = 16,
			    .signalEvery = 1,
			    .maxReads = 100, /* at most sendDepth */
			    .retryCount = 5,
			    .spinUs = -1,
			    .cpu = 1};
	struct server server = {0};
	struct watch watch;
	RdmaListener *listener;
	RdmaConn *conn;

	server_start(&server, serve_echo, &good);
	for (unsigned i = 0; i < TEST_COUNT(bad); i++) {
		CHECK(rdmaConnWithOptions(&bad[i]) == NULL);
		CHECK_EQ(rdmaErrorStatus(), RMR_INVALID);
		CHECK_RDMA_ERR(rdmaServerWithOptions(&listener, setup_address(), 0, &bad[i]),
			       RMR_INVALID);
	}
	good.connectTimeoutMs = PATIENCE_MS;
	conn = client_open(&server, &good, &watch);
	CHECK_EQ(rdmaConnMaxSend(conn), 2048);
	for (unsigned i = 1; i <= 300; i++) {
		client_send(conn, "0123456789abcdefghijklmnop", 5 + i % 20);
		watch_await(&watch.messages, i);
	}
	rdmaConnClose(conn);
	server_end(&server);
}

/* A peer with a larger ring than is allowed is refused, on either side. */
static void test_max_peer_ring(void)
{
	RdmaOptions strict = {.maxPeerRing = 64 * KIB, .ringSize = 128 * KIB};
	RdmaOptions large = {.ringSize = 128 * KIB}, small = {.ringSize = 64 * KIB};
	struct server server = {0}, generous = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, &strict);
	server_start(&generous, serve_echo, &large);
	conn = client_make(&large, &watch);
	CHECK_RDMA_ERR(client_connect(conn, &server), RMR_REFUSED);
	rdmaConnClose(conn);
	conn = client_open(&server, &small, &watch);
	rdmaConnClose(conn);
	conn = client_make(&strict, &watch);
	CHECK_RDMA_ERR(client_connect(conn, &generous), RMR_LIMIT);
	rdmaConnClose(conn);
	server_end(&server);
	server_end(&generous);
}

const struct test connect_tests[] = {
	{"connect_states", test_states},
	{"connect_nobody_there", test_nobody_there},
	{"connect_bad_addresses", test_bad_addresses},
	{"connect_port_in_use", test_port_in_use},
	{"connect_port_of_another_program", test_port_of_another_program},
	{"connect_refused", test_refused},
	{"connect_not_started", test_not_started},
	{"connect_async", test_async},
	{"connect_close_while_connecting", test_close_while_connecting},
	{"connect_max_peer_ring", test_max_peer_ring},
	{"connect_again", test_again},
	{"connect_start_and_stop", test_start_and_stop},
	{"connect_stop_keeps_connections", test_stop_keeps_connections},
	{"connect_runtime_again", test_runtime_again},
	{"connect_stop_while_connecting", test_stop_while_connecting},
	{"connect_plain_host", test_plain_host},
	{"connect_options", test_options},
	{0},
};
