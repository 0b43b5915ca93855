/* Callbacks that post, close themselves and others, and connect again. */
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

/* A ball: each callback sends it back, many times; several at once on one connection. */
static atomic_uint returns;

static void return_ball(RdmaConn *conn, const void *data, size_t length)
{
	if (atomic_fetch_add(&returns, 1) < 20000)
		CHECK_EQ(rdmaConnSend(conn, data, length), length);
}

static void test_ping_pong(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_make(NULL, &watch);
	rdmaConnSetRecvCallback(conn, return_ball);
	CHECK_RDMA(client_connect(conn, &server));
	for (int i = 0; i < 8; i++)
		client_send(conn, "ball", 4);
	AWAIT(returns >= 20000);
	rdmaConnClose(conn);
	server_end(&server);
}

/* Everything that may be posted is posted from callbacks, each by the one before. */
struct chain {
	uint8_t *memory;
	atomic_int steps;
};

static void chain_read(RdmaConn *conn, size_t bytes)
{
	struct watch *watch = rdmaConnUserData(conn);
	struct chain *chain = watch->arg;

	CHECK_EQ(bytes, 1000);
	CHECK(numbered_is(chain->memory + 4096, 1000, 9));
	chain->steps++;
	CHECK_EQ(rdmaConnSend(conn, "done", 4), 4);
}

static void chain_written(RdmaConn *conn, size_t bytes)
{
	struct watch *watch = rdmaConnUserData(conn);
	struct chain *chain = watch->arg;

	CHECK_EQ(bytes, 1000);
	chain->steps++;
	CHECK_RDMA(rdmaConnRead(conn, chain->memory + 4096, 1000));
}

static void chain_begin(RdmaConn *conn)
{
	struct watch *watch = rdmaConnUserData(conn);
	struct chain *chain = watch->arg;

	chain->memory = rdmaConnRegMem(conn, 8192);
	numbered_fill(chain->memory, 1000, 9);
	CHECK_EQ(rdmaConnWrite(conn, chain->memory, 1000), 1000);
}

static void test_chain(void)
{
	struct server server = {0};
	struct chain chain = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_make(NULL, &watch);
	watch.arg = &chain;
	rdmaConnSetConnectedCallback(conn, chain_begin);
	rdmaConnSetWriteCallback(conn, chain_written);
	rdmaConnSetReadCallback(conn, chain_read);
	CHECK_RDMA(rdmaConnectAsync(conn, setup_address(), server.port));
	watch_await(&watch.messages, 1);
	CHECK_EQ(chain.steps, 2);
	CHECK_MEM(watch.last, "done", 4);
	rdmaConnClose(conn);
	server_end(&server);
}

/* One closes all others in its callback, while they are busy. */
static RdmaConn *group[16];
static atomic_int group_closed;

static void close_the_others(RdmaConn *conn, uint32_t imm, const void *data, size_t length)
{
	(void)imm;
	(void)data;
	(void)length;
	for (int i = 0; i < 16; i++) {
		if (group[i] == conn)
			continue;
		rdmaConnClose(group[i]);
		group[i] = NULL;
	}
	group_closed++;
}

static void test_close_others(void)
{
	struct server server = {0};
	static struct watch watches[16];

	server_start(&server, serve_echo, NULL);
	for (int i = 0; i < 16; i++) {
		group[i] = client_open(&server, NULL, &watches[i]);
		rdmaConnSetRecvCallback(group[i], return_ball);
		rdmaConnSetRecvImmCallback(group[i], close_the_others);
	}
	returns = 0;
	for (int i = 0; i < 16; i++)
		client_send(group[i], "busy", 4);
	client_order(group[5], ORDER_COUNT, NULL, 0);
	AWAIT(group_closed == 1);
	for (int i = 0; i < 16; i++)
		CHECK_EQ(watches[i].disconnected, 0);
	CHECK(rdmaConnIsConnected(group[5]));
	rdmaConnClose(group[5]);
	server_end(&server);
}

/* The server's callback closes others of its own listener, and then itself. */
static void test_server_closes(void)
{
	struct server server = {0};
	static struct watch watches[5];
	RdmaConn *conns[5];

	server_start(&server, serve_echo, NULL);
	for (int i = 0; i < 5; i++)
		conns[i] = client_open(&server, NULL, &watches[i]);
	client_order(conns[2], ORDER_CLOSE_ALL, NULL, 0);
	watch_await(&watches[2].imms, 1);
	for (int i = 0; i < 5; i++) {
		if (i == 2)
			continue;
		watch_await(&watches[i].disconnected, 1);
		CHECK_EQ(watches[i].status, RMR_DISCONNECTED);
	}
	client_order(conns[2], ORDER_CLOSE, NULL, 0);
	watch_await(&watches[2].disconnected, 1);
	test_sleep_ms(20);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(watches[i].disconnected, 1); /* once */
		rdmaConnClose(conns[i]);
	}
	server_end(&server);
}

/* Connected again by the disconnect callback, as often as it is lost. */
static int again_port;

static void connect_again(RdmaConn *conn, enum rmr_status status, const char *reason)
{
	struct watch *watch = rdmaConnUserData(conn);

	(void)status;
	(void)reason;
	watch->disconnected++;
	CHECK_RDMA(rdmaConnectAsync(conn, setup_address(), again_port));
}

static void test_reconnect_in_callback(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	again_port = server.port;
	conn = client_make(NULL, &watch);
	rdmaConnSetDisconnectCallback(conn, connect_again);
	CHECK_RDMA(client_connect(conn, &server));
	for (unsigned i = 1; i <= 10; i++) {
		watch_await(&watch.connected, i);
		client_send(conn, "x", 1);
		watch_await(&watch.messages, i);
		client_order(conn, ORDER_CLOSE, NULL, 0);
		watch_await(&watch.disconnected, i);
	}
	watch_await(&watch.connected, 11);
	rdmaConnClose(conn);
	server_end(&server);
}

/* Closed by its own disconnect callback, and freed there: a client that lives only in callbacks. */
static atomic_int orphans;

static void close_own(RdmaConn *conn, enum rmr_status status, const char *reason)
{
	(void)status;
	(void)reason;
	rdmaConnClose(conn);
	orphans++;
}

static void test_close_in_disconnect(void)
{
	struct server server = {0};
	static struct watch watches[8];

	server_start(&server, serve_echo, NULL);
	for (int i = 0; i < 8; i++) {
		RdmaConn *conn = client_open(&server, NULL, &watches[i]);

		rdmaConnSetDisconnectCallback(conn, close_own);
	}
	server_kill(&server);
	AWAIT(orphans == 8);
	rdmaRuntimeStop();
	CHECK_EQ(orphans, 8);
}

/* A listener with busy connections is released in a callback of another connection. */
static RdmaListener *released;
static atomic_int releases;

static void release_other(RdmaConn *conn, const void *data, size_t length)
{
	(void)conn;
	(void)data;
	(void)length;
	rdmaServerRelease(released);
	releases++;
}

static void test_release_in_callback(void)
{
	struct server server = {0};
	static struct watch watch, inner;
	RdmaConn *conn, *busy;

	server_start(&server, serve_echo, NULL);
	CHECK_RDMA(rdmaServer(&released, setup_address(), 0));
	CHECK_RDMA(rdmaServerStartAsync(released));
	busy = client_make(NULL, &inner); /* to ourselves: one runtime is both ends */
	CHECK_RDMA(rdmaConnect(busy, setup_address(), rdmaServerPort(released)));
	conn = client_open(&server, NULL, &watch);
	rdmaConnSetRecvCallback(conn, release_other);
	client_send(conn, "x", 1);
	AWAIT(releases == 1);
	watch_await(&inner.disconnected, 1);
	rdmaConnClose(conn);
	rdmaConnClose(busy);
	server_end(&server);
}

const struct test callback_tests[] = {
	{"callback_ping_pong", test_ping_pong},
	{"callback_chain", test_chain},
	{"callback_close_others", test_close_others},
	{"callback_server_closes", test_server_closes},
	{"callback_reconnect", test_reconnect_in_callback},
	{"callback_close_in_disconnect", test_close_in_disconnect},
	{"callback_release", test_release_in_callback},
	{0},
};
