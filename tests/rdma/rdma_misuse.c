/* Misuse: what the header says is refused, is refused; with a reason, and no harm done. */
#include <string.h>

#include "fixture.h"

/* Before it is connected, and after it was lost: every call that needs a connection. */
static void check_all_refused(RdmaConn *conn, enum rmr_status status)
{
	uint8_t *memory = rdmaConnRegMem(conn, 4096);
	RdmaMemInfo info;
	uint64_t old;

	CHECK_RDMA(rdmaConnMemInfo(conn, memory, &info));
	CHECK_EQ(rdmaConnSend(conn, "x", 1), RDMA_SEND_ERR);
	CHECK_EQ(rdmaErrorStatus(), status);
	CHECK(rdmaError()[0]);
	CHECK_EQ(rdmaConnSendWithImm(conn, 1, "x", 1), RDMA_SEND_ERR);
	CHECK_EQ(rdmaConnWrite(conn, memory, 8), RDMA_SEND_ERR);
	CHECK_EQ(rdmaErrorStatus(), status);
	CHECK_RDMA_ERR(rdmaConnWriteWithImm(conn, 1, memory, 8), status);
	CHECK_RDMA_ERR(rdmaConnRead(conn, memory, 8), status);
	CHECK_RDMA_ERR(rdmaConnSeek(conn, 0, 0), status);
	CHECK_RDMA_ERR(rdmaPAWriteSignaled(conn, info.addr, info.lkey, 0, 8), status);
	CHECK_RDMA_ERR(rdmaPAReadSignaled(conn, info.addr, info.lkey, 0, 8), status);
	CHECK_RDMA_ERR(rdmaPASyncWriteSignaled(conn, info.addr, info.lkey, 0, 8), status);
	CHECK_RDMA_ERR(rdmaPASyncReadSignaled(conn, info.addr, info.lkey, 0, 8), status);
	CHECK_RDMA_ERR(rdmaSyncWriteSignaled(conn, info.addr, info.lkey, 0, 1, 8), status);
	CHECK_RDMA_ERR(rdmaSyncReadSignaled(conn, info.addr, info.lkey, 0, 1, 8), status);
	CHECK_RDMA_ERR(rdmaConnFetchAdd(conn, 0, 1, &old), status);
	CHECK_RDMA_ERR(rdmaConnCompareSwap(conn, 0, 1, 2, &old), status);
	CHECK_EQ(rdmaConnMaxSend(conn), 0);
	CHECK_EQ(rdmaConnRemoteSize(conn), 0);
	CHECK_RDMA(rdmaConnDeregMem(conn, memory));
}

static void test_before_connect(void)
{
	struct watch watch;
	RdmaConn *conn = client_make(NULL, &watch);

	check_all_refused(conn, RMR_DISCONNECTED);
	rdmaConnClose(conn);
}

static void test_after_loss(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_open(&server, NULL, &watch);
	client_order(conn, ORDER_CLOSE, NULL, 0);
	watch_await(&watch.disconnected, 1);
	check_all_refused(conn, RMR_DISCONNECTED);
	rdmaConnClose(conn);
	server_end(&server);
}

static void test_sizes(void)
{
	static uint8_t data[512 * KIB];
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;
	size_t max;

	server_start(&server, serve_echo, NULL);
	conn = client_open(&server, NULL, &watch);
	max = rdmaConnMaxSend(conn);
	CHECK_EQ(rdmaConnSend(conn, data, max + 1), RDMA_SEND_ERR);
	CHECK_EQ(rdmaErrorStatus(), RMR_TOO_LONG);
	CHECK_CONTAINS(rdmaError(), "262145");
	CHECK_EQ(rdmaConnSendWithImm(conn, 1, data, SIZE_MAX), RDMA_SEND_ERR);
	CHECK_EQ(rdmaErrorStatus(), RMR_TOO_LONG);
	CHECK_EQ(rdmaConnSend(conn, data, 0), RDMA_SEND_ERR);
	CHECK_EQ(rdmaErrorStatus(), RMR_INVALID);
	CHECK_EQ(rdmaConnSend(conn, NULL, 5), RDMA_SEND_ERR);
	CHECK_EQ(rdmaConnSendWithImm(conn, 1, NULL, 5), RDMA_SEND_ERR);
	CHECK_EQ(rdmaConnSend(conn, data, max), max);
	watch_await(&watch.messages, 1);
	CHECK_EQ(watch.last_length, max);
	rdmaConnClose(conn);
	server_end(&server);
}

/* Sync calls and atomics need RDMA_BLOCKING. */
static void test_nonblocking_mode(void)
{
	RdmaOptions options = {.connectTimeoutMs = PATIENCE_MS};
	struct server server = {0};
	struct watch watch;
	RdmaMemInfo info;
	uint8_t *memory;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_open(&server, &options, &watch);
	memory = rdmaConnRegMem(conn, 4096);
	CHECK_RDMA(rdmaConnMemInfo(conn, memory, &info));
	CHECK_RDMA_ERR(rdmaPASyncWriteSignaled(conn, info.addr, info.lkey, 0, 8), RMR_INVALID);
	CHECK_CONTAINS(rdmaError(), "RDMA_BLOCKING");
	CHECK_RDMA_ERR(rdmaSyncReadSignaled(conn, info.addr, info.lkey, 0, 1, 8), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaConnFetchAdd(conn, 0, 1, NULL), RMR_INVALID);
	CHECK_RDMA(rdmaPAWriteSignaled(conn, info.addr, info.lkey, 0, 8));
	watch_await(&watch.writes, 1);
	rdmaConnClose(conn);
	server_end(&server);
}

/* What would wait for the runtime is refused in a callback. */
static atomic_int refusals;

static void try_to_wait(RdmaConn *conn, const void *data, size_t length)
{
	uint8_t *memory = rdmaConnRegMem(conn, 4096);
	RdmaListener *listener;
	RdmaMemInfo info;
	RdmaConn *other;

	(void)data;
	(void)length;
	CHECK_RDMA(rdmaConnMemInfo(conn, memory, &info));
	CHECK_RDMA_ERR(rdmaPASyncWriteSignaled(conn, info.addr, info.lkey, 0, 8), RMR_INVALID);
	CHECK_CONTAINS(rdmaError(), "callback");
	CHECK_RDMA_ERR(rdmaSyncReadSignaled(conn, info.addr, info.lkey, 0, 1, 8), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaConnFetchAdd(conn, 0, 1, NULL), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaConnCompareSwap(conn, 0, 1, 1, NULL), RMR_INVALID);
	other = rdmaConn();
	CHECK_RDMA_ERR(rdmaConnect(other, setup_address(), 7471), RMR_INVALID);
	CHECK_CONTAINS(rdmaError(), "rdmaConnectAsync");
	rdmaConnClose(other);
	CHECK_RDMA(rdmaServer(&listener, setup_address(), 0));
	CHECK_RDMA_ERR(rdmaServerStart(listener), RMR_INVALID);
	CHECK_RDMA(rdmaServerStartAsync(listener));
	rdmaServerRelease(listener);
	rdmaRuntimeStop(); /* says no, and does nothing */
	CHECK_RDMA(rdmaConnDeregMem(conn, memory));
	refusals++;
}

static void test_waiting_in_callbacks(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_open(&server, NULL, &watch);
	rdmaConnSetRecvCallback(conn, try_to_wait);
	client_send(conn, "x", 1);
	AWAIT(refusals == 1);
	client_send(conn, "x", 1);
	AWAIT(refusals == 2);
	rdmaConnClose(conn);
	server_end(&server);
}

/* In a callback an endpoint that it has closed is still there, and is not connected. */
static atomic_int closed;

static void close_and_use(RdmaConn *conn, const void *data, size_t length)
{
	(void)data;
	(void)length;
	rdmaConnClose(conn);
	CHECK_EQ(rdmaConnSend(conn, "x", 1), RDMA_SEND_ERR);
	CHECK_EQ(rdmaErrorStatus(), RMR_DISCONNECTED);
	CHECK_RDMA_ERR(rdmaConnRead(conn, conn, 8), RMR_DISCONNECTED);
	CHECK_RDMA_ERR(rdmaConnectAsync(conn, setup_address(), 1), RMR_INVALID);
	rdmaConnClose(conn);
	closed++;
}

static void test_use_after_close_in_callback(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_open(&server, NULL, &watch);
	rdmaConnSetRecvCallback(conn, close_and_use);
	server_pause(&server); /* the first answer closes it: then we may not use it any more */
	for (int i = 0; i < 10; i++)
		client_send(conn, "x", 1);
	server_resume(&server);
	AWAIT(closed == 1);
	rdmaRuntimeStop();
	CHECK_EQ(closed, 1);
	CHECK_EQ(watch.disconnected, 0);
	server_end(&server);
}

/* An accepted connection cannot be connected by us. */

static void connect_accepted(RdmaListener *listener, RdmaConn *conn)
{
	(void)listener;
	CHECK_RDMA_ERR(rdmaConnectAsync(conn, setup_address(), 1), RMR_INVALID);
	rdmaConnSend(conn, "ok", 2);
}

static void serve_connect(struct server *server)
{
	rdmaServerSetAcceptCallback(server->listener, connect_accepted);
	serve_until_end(server);
}

static void test_connect_accepted(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_connect, NULL);
	conn = client_open(&server, NULL, &watch);
	watch_await(&watch.messages, 1); /* what was sent in the accept callback */
	CHECK_MEM(watch.last, "ok", 2);
	rdmaConnClose(conn);
	server_end(&server);
}

const struct test misuse_tests[] = {
	{"misuse_before_connect", test_before_connect},
	{"misuse_after_loss", test_after_loss},
	{"misuse_sizes", test_sizes},
	{"misuse_nonblocking_mode", test_nonblocking_mode},
	{"misuse_waiting_in_callbacks", test_waiting_in_callbacks},
	{"misuse_use_after_close_in_callback", test_use_after_close_in_callback},
	{"misuse_connect_accepted", test_connect_accepted},
	{0},
};
