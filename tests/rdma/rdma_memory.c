/* Registered memory, the exposed space, writes and reads that call back, Sync calls and atomics. */
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

/* A client of the echo server with 64 KiB of memory. */
struct user {
	struct server server;
	struct watch watch;
	RdmaConn *conn;
	uint8_t *memory;
	RdmaMemInfo info;
};

#define SIZE (64 * KIB)

static struct user user;

static void user_open(void)
{
	server_start(&user.server, serve_echo, NULL);
	user.conn = client_open(&user.server, NULL, &user.watch);
	user.memory = rdmaConnRegMem(user.conn, SIZE);
	CHECK(user.memory != NULL);
	CHECK_RDMA(rdmaConnMemInfo(user.conn, user.memory, &user.info));
}

static void user_close(void)
{
	CHECK_EQ(user.watch.disconnected, 0);
	rdmaConnClose(user.conn);
	server_end(&user.server);
}

static void test_registered(void)
{
	struct watch watch;
	RdmaConn *conn = client_make(NULL, &watch);
	RdmaMemInfo info;
	uint8_t *memory = rdmaConnRegMem(conn, 10000);

	CHECK(memory != NULL);
	CHECK_EQ((uintptr_t)memory % 4096, 0);
	for (unsigned i = 0; i < 10000; i++)
		CHECK_EQ(memory[i], 0);
	CHECK_RDMA(rdmaConnMemInfo(conn, memory + 100, &info));
	CHECK_EQ(info.addr, (uint64_t)(uintptr_t)memory + 100);
	CHECK_EQ(info.length, 9900);
	CHECK(info.lkey != 0);
	CHECK(info.rkey != 0);
	CHECK_RDMA_ERR(rdmaConnMemInfo(conn, &info, &info), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaConnDeregMem(conn, memory + 1), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaConnDeregMem(NULL, memory), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaConnDeregMem(conn, &info), RMR_INVALID);
	CHECK(rdmaConnRegMem(conn, 0) == NULL);
	CHECK(rdmaConnRegMem(conn, SIZE_MAX / 2) == NULL);
	CHECK(rdmaError()[0]);
	CHECK_RDMA(rdmaConnExpose(conn, memory, 4096));
	CHECK_RDMA_ERR(rdmaConnDeregMem(conn, memory), RMR_INVALID);
	CHECK_CONTAINS(rdmaError(), "exposed");
	rdmaConnClose(conn);
	memory = rdmaConnRegMem(NULL, 5000);
	CHECK(memory != NULL);
	CHECK_RDMA(rdmaConnDeregMem(NULL, memory));
}

/* As into a file: each write goes on where the one before it ended. */
static void test_write_and_read(void)
{
	user_open();
	for (unsigned i = 0; i < 4; i++) {
		numbered_fill(user.memory + i * 4096, 4096, i);
		CHECK_EQ(rdmaConnWrite(user.conn, user.memory + i * 4096, 4096), 4096);
	}
	watch_await(&user.watch.writes, 4);
	CHECK_EQ(user.watch.written_bytes, 4 * 4096);
	memset(user.memory, 0, SIZE);
	for (unsigned i = 0; i < 4; i++)
		CHECK_RDMA(rdmaConnRead(user.conn, user.memory + i * 4096, 4096));
	watch_await(&user.watch.reads, 4);
	CHECK_EQ(user.watch.read_bytes, 4 * 4096);
	for (unsigned i = 0; i < 4; i++)
		CHECK(numbered_is(user.memory + i * 4096, 4096, i));
	CHECK_RDMA(rdmaConnSeek(user.conn, 0, 8192));
	CHECK_RDMA(rdmaConnRead(user.conn, user.memory, 4096));
	watch_await(&user.watch.reads, 5);
	CHECK(numbered_is(user.memory, 4096, 2));
	/* Up to the end of the space, and not beyond. */
	CHECK_RDMA(rdmaConnSeek(user.conn, SPACE_SIZE - 100, SPACE_SIZE));
	CHECK_EQ(rdmaConnWrite(user.conn, user.memory, 101), RDMA_SEND_ERR);
	CHECK_EQ(rdmaErrorStatus(), RMR_ACCESS);
	CHECK_EQ(rdmaConnWrite(user.conn, user.memory, 100), 100);
	CHECK_RDMA_ERR(rdmaConnRead(user.conn, user.memory, 1), RMR_ACCESS);
	CHECK_RDMA_ERR(rdmaConnSeek(user.conn, SPACE_SIZE + 1, 0), RMR_ACCESS);
	watch_await(&user.watch.writes, 5);
	user_close();
}

/* Refused here: the connection goes on. */
static void test_write_refusals(void)
{
	uint8_t plain[100];

	user_open();
	CHECK_EQ(rdmaConnWrite(user.conn, plain, 100), RDMA_SEND_ERR);
	CHECK_EQ(rdmaErrorStatus(), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaConnRead(user.conn, plain, 100), RMR_INVALID);
	CHECK_EQ(rdmaConnWrite(user.conn, user.memory + SIZE - 10, 11), RDMA_SEND_ERR);
	CHECK_EQ(rdmaConnWrite(user.conn, user.memory, 0), RDMA_SEND_ERR);
	CHECK_RDMA_ERR(rdmaConnWriteWithImm(user.conn, 1, plain, 100), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaPAWriteSignaled(user.conn, user.info.addr, user.info.lkey + 1, 0, 8),
		       RMR_INVALID);
	CHECK_RDMA_ERR(
		rdmaPAWriteSignaled(user.conn, user.info.addr, user.info.lkey, SPACE_SIZE - 7, 8),
		RMR_ACCESS);
	CHECK_RDMA_ERR(rdmaPAReadSignaled(user.conn, user.info.addr, user.info.lkey, UINT64_MAX, 8),
		       RMR_ACCESS);
	client_send(user.conn, "alive", 5);
	watch_await(&user.watch.messages, 1);
	user_close();
}

/* More than may be in flight: 0 and RDMA_AGAIN, and all that was taken is called back. */
static void test_no_room(void)
{
	RdmaOptions options = {.sendDepth = 8, .maxReads = 2};
	unsigned writes = 0, reads = 0, full = 0;
	struct server server = {0};
	struct watch watch;
	uint8_t *memory;
	RdmaConn *conn;

	options.connectTimeoutMs = PATIENCE_MS;
	server_start(&server, serve_echo, NULL);
	conn = client_open(&server, &options, &watch);
	memory = rdmaConnRegMem(conn, SIZE);
	for (unsigned i = 0; i < 1000; i++) {
		size_t written;
		int read;

		CHECK_RDMA(rdmaConnSeek(conn, 0, 0));
		written = rdmaConnWrite(conn, memory, 2048);
		CHECK(written == 2048 || written == 0);
		writes += written > 0;
		full += written == 0;
		read = rdmaConnRead(conn, memory, 2048);
		CHECK(read == RDMA_OK || read == RDMA_AGAIN);
		reads += read == RDMA_OK;
	}
	CHECK(writes > 0 && reads > 0);
	watch_await(&watch.writes, writes);
	watch_await(&watch.reads, reads);
	CHECK_EQ(watch.written_bytes, writes * 2048ul);
	rdmaConnClose(conn);
	server_end(&server);
}

static void test_pa(void)
{
	user_open();
	numbered_fill(user.memory, 1000, 5);
	CHECK_RDMA(rdmaPAWriteSignaled(user.conn, user.info.addr, user.info.lkey, 5000, 1000));
	watch_await(&user.watch.writes, 1);
	CHECK_RDMA(
		rdmaPAReadSignaled(user.conn, user.info.addr + 2000, user.info.lkey, 5000, 1000));
	watch_await(&user.watch.reads, 1);
	CHECK(numbered_is(user.memory + 2000, 1000, 5));
	numbered_fill(user.memory, 1000, 6);
	CHECK_RDMA(rdmaPASyncWriteSignaled(user.conn, user.info.addr, user.info.lkey,
					   SPACE_SIZE - 1000, 1000));
	CHECK_RDMA(rdmaPASyncReadSignaled(user.conn, user.info.addr + 4000, user.info.lkey,
					  SPACE_SIZE - 1000, 1000));
	CHECK(numbered_is(user.memory + 4000, 1000, 6));
	CHECK_RDMA_ERR(rdmaPASyncReadSignaled(user.conn, user.info.addr, user.info.lkey,
					      SPACE_SIZE - 999, 1000),
		       RMR_ACCESS);
	CHECK_EQ(user.watch.writes, 1);
	CHECK_EQ(user.watch.reads, 1);
	user_close();
}

/* Between memory that both have registered, by addresses and keys that came in a message. */
static void test_sync_by_key(void)
{
	RdmaMemInfo theirs;
	uint64_t at;

	user_open();
	at = user.info.addr;
	client_order(user.conn, ORDER_TELL_MEMORY, NULL, 0);
	watch_await(&user.watch.imms, 1);
	memcpy(&theirs, user.watch.last, sizeof(theirs));
	CHECK_RDMA(rdmaSyncReadSignaled(user.conn, at, user.info.lkey, theirs.addr, theirs.rkey,
					(uint32_t)SIZE));
	CHECK(numbered_is(user.memory, SIZE, 77));
	numbered_fill(user.memory, 100, 1);
	CHECK_RDMA(rdmaSyncWriteSignaled(user.conn, at, user.info.lkey, theirs.addr + 50,
					 theirs.rkey, 100));
	CHECK_RDMA(rdmaSyncReadSignaled(user.conn, at + 1000, user.info.lkey, theirs.addr + 50,
					theirs.rkey, 100));
	CHECK(numbered_is(user.memory + 1000, 100, 1));
	/* Wrong keys and ranges are refused here, and the connection goes on. */
	CHECK_RDMA_ERR(rdmaSyncReadSignaled(user.conn, at, user.info.lkey, theirs.addr,
					    theirs.rkey + 1, 8),
		       RMR_ACCESS);
	CHECK_RDMA_ERR(rdmaSyncReadSignaled(user.conn, at, user.info.lkey, theirs.addr - 1,
					    theirs.rkey, 8),
		       RMR_ACCESS);
	CHECK_RDMA_ERR(rdmaSyncWriteSignaled(user.conn, at, user.info.lkey, theirs.addr + SIZE - 7,
					     theirs.rkey, 8),
		       RMR_ACCESS);
	CHECK_RDMA_ERR(rdmaSyncWriteSignaled(user.conn, at + SIZE - 7, user.info.lkey, theirs.addr,
					     theirs.rkey, 8),
		       RMR_INVALID);
	CHECK_RDMA_ERR(rdmaSyncWriteSignaled(user.conn, at, 0, theirs.addr, theirs.rkey, 8),
		       RMR_INVALID);
	CHECK_RDMA_ERR(
		rdmaSyncWriteSignaled(user.conn, at, user.info.lkey, theirs.addr, theirs.rkey, 0),
		RMR_INVALID);
	user_close();
}

/* Memory that the peer has deregistered: the access fails, and ends the connection. */
static void test_deregistered(void)
{
	RdmaMemInfo theirs;

	user_open();
	client_order(user.conn, ORDER_TELL_MEMORY, NULL, 0);
	watch_await(&user.watch.imms, 1);
	memcpy(&theirs, user.watch.last, sizeof(theirs));
	client_order(user.conn, ORDER_DROP_MEMORY, NULL, 0);
	watch_await(&user.watch.imms, 2);
	CHECK_RDMA_ERR(rdmaSyncReadSignaled(user.conn, user.info.addr, user.info.lkey, theirs.addr,
					    theirs.rkey, 8),
		       RMR_ACCESS);
	watch_await(&user.watch.disconnected, 1);
	CHECK_EQ(user.watch.status, RMR_ACCESS);
	CHECK(!rdmaConnIsConnected(user.conn));
	rdmaConnClose(user.conn);
	server_end(&user.server);
}

static void test_write_with_imm(void)
{
	uint8_t *space;
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_make(NULL, &watch);
	space = rdmaConnRegMem(conn, 8192);
	CHECK_RDMA(rdmaConnExpose(conn, space, 8192));
	CHECK_RDMA(client_connect(conn, &server));
	client_order(conn, ORDER_WRITE_BACK, "twelve bytes", 12);
	watch_await(&watch.imms, 1);
	CHECK_EQ(watch.last_imm, 4711);
	CHECK_EQ(watch.last_length, 12);
	CHECK_MEM(watch.last, "twelve bytes", 12);
	CHECK_MEM(space, "twelve bytes", 12);
	rdmaConnClose(conn);
	server_end(&server);
}

/* The caller's own memory can be exposed as well. */
static uint8_t plain[3 * 4096];

static void test_expose_plain(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_make(NULL, &watch);
	CHECK_RDMA_ERR(rdmaConnExpose(conn, NULL, 100), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaConnExpose(conn, plain, 0), RMR_INVALID);
	CHECK_RDMA(rdmaConnExpose(conn, plain + 1, sizeof(plain) - 1));
	CHECK_RDMA(client_connect(conn, &server));
	CHECK_RDMA_ERR(rdmaConnExpose(conn, plain, sizeof(plain)), RMR_INVALID);
	client_order(conn, ORDER_WRITE_BACK, "plain", 5);
	watch_await(&watch.imms, 1);
	CHECK_MEM(plain + 1, "plain", 5);
	CHECK_EQ(plain[0], 0);
	rdmaConnClose(conn);
	server_end(&server);
}

static void expose_nothing(RdmaListener *listener, RdmaConn *conn)
{
	(void)listener;
	(void)conn;
}

static void serve_nothing(struct server *server)
{
	rdmaServerSetAcceptCallback(server->listener, expose_nothing);
	serve_until_end(server);
}

static void test_nothing_exposed(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaMemInfo info;
	uint8_t *memory;
	RdmaConn *conn;

	server_start(&server, serve_nothing, NULL);
	conn = client_open(&server, NULL, &watch);
	memory = rdmaConnRegMem(conn, 4096);
	CHECK_RDMA(rdmaConnMemInfo(conn, memory, &info));
	CHECK_EQ(rdmaConnRemoteSize(conn), 0);
	CHECK_EQ(rdmaConnWrite(conn, memory, 8), RDMA_SEND_ERR);
	CHECK_EQ(rdmaErrorStatus(), RMR_ACCESS);
	CHECK_CONTAINS(rdmaError(), "exposes no memory");
	CHECK_RDMA_ERR(rdmaConnRead(conn, memory, 8), RMR_ACCESS);
	CHECK_RDMA_ERR(rdmaConnSeek(conn, 0, 0), RMR_ACCESS);
	CHECK_RDMA_ERR(rdmaPASyncReadSignaled(conn, info.addr, info.lkey, 0, 8), RMR_ACCESS);
	CHECK_RDMA_ERR(rdmaConnFetchAdd(conn, 0, 1, NULL), RMR_ACCESS);
	rdmaConnClose(conn);
	server_end(&server);
}

static void test_atomics(void)
{
	uint64_t old = 99;

	user_open();
	if (rdmaConnFetchAdd(user.conn, 0, 5, &old) != RDMA_OK &&
	    rdmaErrorStatus() == RMR_UNSUPPORTED)
		TEST_SKIP("%s", rdmaError());
	CHECK_EQ(old, 0);
	CHECK_RDMA(rdmaConnFetchAdd(user.conn, 0, 7, NULL));
	CHECK_RDMA(rdmaConnCompareSwap(user.conn, 0, 12, 100, &old));
	CHECK_EQ(old, 12);
	CHECK_RDMA(rdmaConnCompareSwap(user.conn, 0, 12, 200, &old));
	CHECK_EQ(old, 100);
	CHECK_RDMA(rdmaConnFetchAdd(user.conn, SPACE_SIZE - 8, 1, &old));
	CHECK_EQ(old, 0);
	CHECK_RDMA_ERR(rdmaConnFetchAdd(user.conn, SPACE_SIZE, 1, NULL), RMR_ACCESS);
	CHECK_RDMA_ERR(rdmaConnFetchAdd(user.conn, 4, 1, NULL), RMR_INVALID);
	CHECK_RDMA_ERR(rdmaConnCompareSwap(user.conn, 1, 1, 1, NULL), RMR_INVALID);
	user_close();
}

/* Memory of nobody is everybody's: two connections write from the same. */
static void test_shared_memory(void)
{
	uint8_t *shared = NULL;
	struct server server = {0};
	struct watch watches[2];
	RdmaConn *conns[2];
	RdmaMemInfo infos[2];

	server_start(&server, serve_echo, NULL);
	shared = rdmaConnRegMem(NULL, 4096);
	CHECK(shared != NULL);
	strcpy((char *)shared, "for all");
	for (int i = 0; i < 2; i++) {
		conns[i] = client_open(&server, NULL, &watches[i]);
		CHECK_EQ(rdmaConnWrite(conns[i], shared, 4096), 4096);
		watch_await(&watches[i].writes, 1);
		CHECK_RDMA(rdmaConnMemInfo(conns[i], shared, &infos[i]));
	}
	CHECK_EQ(infos[0].lkey, infos[1].lkey);
	rdmaConnClose(conns[0]);
	rdmaConnClose(conns[1]);
	CHECK_RDMA(rdmaConnDeregMem(NULL, shared));
	server_end(&server);
}

/* Registered and given back many times, told to the peer each time. */
static void test_many_times(void)
{
	user_open();
	for (unsigned i = 1; i <= 300 / TEST_TIME_FACTOR; i++) {
		uint8_t *memory = rdmaConnRegMem(user.conn, 4096);
		RdmaMemInfo info;

		CHECK(memory != NULL);
		CHECK_RDMA(rdmaConnMemInfo(user.conn, memory, &info));
		client_send(user.conn, &info, sizeof(info));
		watch_await(&user.watch.messages, i);
		CHECK_RDMA(rdmaPASyncWriteSignaled(user.conn, info.addr, info.lkey, 0, 4096));
		CHECK_RDMA(rdmaConnDeregMem(user.conn, memory));
	}
	user_close();
}

/* More pieces than the device can tell a peer of: keys are refused, and the connection goes on. */
static void test_too_many(void)
{
	unsigned told = 0;
	RdmaMemInfo info;

	if (!setup_is_shm())
		TEST_SKIP("only shm has a limit that is reached soon");
	user_open();
	for (;;) {
		uint8_t *memory = rdmaConnRegMem(user.conn, 4096);

		CHECK(memory != NULL);
		if (rdmaConnMemInfo(user.conn, memory, &info) != RDMA_OK)
			break;
		client_send(user.conn, &info, sizeof(info));
		watch_await(&user.watch.messages, ++told);
		CHECK(told < 1000);
	}
	CHECK_EQ(rdmaErrorStatus(), RMR_LIMIT);
	CHECK(told > 100);
	client_send(user.conn, "on", 2);
	watch_await(&user.watch.messages, told + 1);
	CHECK_EQ(user.watch.disconnected, 0);
	user_close();
}

/* A peer that polls nothing takes no grants on shm after some. Sends wait for it, as for room, and
 * are told when it goes on; no message comes before the notice of what it speaks of. */
static void test_told_late(void)
{
	unsigned refused = 0, sent = 0;
	RdmaMemInfo info;

	user_open();
	server_pause(&user.server);
	/* Given back each time, so that it is no matter of how many there are. */
	for (; sent < 600 && !refused; sent += !refused) {
		uint8_t *memory = rdmaConnRegMem(user.conn, 4096);
		size_t length;

		CHECK(memory != NULL);
		CHECK_RDMA(rdmaConnMemInfo(user.conn, memory, &info));
		length = rdmaConnSend(user.conn, &info, sizeof(info));
		refused += length == 0;
		CHECK(length == 0 || length == sizeof(info));
		if (length)
			CHECK_RDMA(rdmaConnDeregMem(user.conn, memory));
	}
	if (setup_is_shm())
		CHECK_EQ(refused, 1);
	if (refused)
		CHECK_EQ(rdmaConnSend(user.conn, "x", 1), 0);
	server_resume(&user.server);
	watch_await(&user.watch.sendable, refused);
	client_send(user.conn, &info, sizeof(info));
	watch_await(&user.watch.messages, sent + 1);
	user_close();
}

const struct test memory_tests[] = {
	{"memory_registered", test_registered},
	{"memory_write_and_read", test_write_and_read},
	{"memory_write_refusals", test_write_refusals},
	{"memory_no_room", test_no_room},
	{"memory_pa", test_pa},
	{"memory_sync_by_key", test_sync_by_key},
	{"memory_deregistered", test_deregistered},
	{"memory_write_with_imm", test_write_with_imm},
	{"memory_expose_plain", test_expose_plain},
	{"memory_nothing_exposed", test_nothing_exposed},
	{"memory_atomics", test_atomics},
	{"memory_shared", test_shared_memory},
	{"memory_many_times", test_many_times},
	{"memory_too_many", test_too_many},
	{"memory_told_late", test_told_late},
	{0},
};
