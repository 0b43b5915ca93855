/* What the tests of the easy library share: see fixture.h. */
#include "fixture.h"

#include <sched.h>
#include <signal.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct rdma_setup setup;

bool setup_is_shm(void)
{
	return strstr(setup.device, "shm") != NULL;
}

char *setup_address(void)
{
	static char address[256];

	/* The first call is made before there are threads. */
	if (!address[0]) {
		snprintf(address, sizeof(address), "%s://%s", setup.device,
			 setup.host ? setup.host : "127.0.0.1");
		setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	}
	return address;
}

void check_rdma(const char *file, int line, const char *what, long result)
{
	if (result != RDMA_OK)
		test_fail(file, line, "%s: %ld (%s)", what, result, rdmaError());
}

void check_rdma_err(const char *file, int line, const char *what, long result,
		    enum rmr_status status)
{
	if (result != RDMA_ERR)
		test_fail(file, line, "%s: %ld, but it should fail", what, result);
	if (rdmaErrorStatus() != status)
		test_fail(file, line, "%s: %s, but it should say %s", what, rdmaError(),
			  rmr_status_text(status));
	if (!rdmaError()[0])
		test_fail(file, line, "%s: no reason is given", what);
}

/* ------------------------------------------------------------------------------------------
 * Patterns
 */

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

void numbered_fill(void *data, size_t length, uint64_t number)
{
	uint64_t word = mix(number + 1);
	uint8_t *at = data;

	for (; length >= 8; at += 8, length -= 8, word += 0x9e3779b97f4a7c15u)
		memcpy(at, &word, 8);
	memcpy(at, &word, length);
}

bool numbered_is(const void *data, size_t length, uint64_t number)
{
	uint64_t word = mix(number + 1);
	const uint8_t *at = data;

	for (; length >= 8; at += 8, length -= 8, word += 0x9e3779b97f4a7c15u) {
		if (memcmp(at, &word, 8) != 0)
			return false;
	}
	return memcmp(at, &word, length) == 0;
}

size_t numbered_length(uint64_t number, size_t max)
{
	uint64_t random = mix(number * 7 + 3);

	/* Mostly short ones, some of every size. */
	if (random % 8)
		return 8 + random / 8 % 256 % (max - 7);
	return 8 + random / 8 % (max - 7);
}

/* ------------------------------------------------------------------------------------------
 * Servers
 */

static void run_server(void *arg)
{
	struct server *server = arg;
	RdmaOptions defaults = {.mode = RDMA_BLOCKING};

	test_pipe_take(&server->pipe, TEST_CHILD);
	CHECK_RDMA(rdmaServerWithOptions(&server->listener, setup_address(), server->port,
					 server->options ? server->options : &defaults));
	rdmaServerSetUserData(server->listener, server);
	server->port = rdmaServerPort(server->listener);
	CHECK(server->port > 0);
	test_send(&server->pipe, TEST_CHILD, &server->port, sizeof(server->port));
	server->role(server);
	rdmaServerRelease(server->listener);
	rdmaRuntimeStop();
}

void server_start(struct server *server, server_role *role, const RdmaOptions *options)
{
	server->role = role;
	server->options = options;
	setup_address();
	test_pipe_open(&server->pipe);
	server->pid = test_spawn(run_server, server);
	test_pipe_take(&server->pipe, TEST_PARENT);
	test_recv(&server->pipe, TEST_PARENT, &server->port, sizeof(server->port));
}

void server_end(struct server *server)
{
	test_signal(&server->pipe, TEST_PARENT);
	test_wait(server->pid);
	test_pipe_close(&server->pipe);
}

void server_pause(struct server *server)
{
	siginfo_t info;

	CHECK_EQ(kill(server->pid, SIGSTOP), 0);
	CHECK_EQ(waitid(P_PID, (id_t)server->pid, &info, WSTOPPED), 0);
}

void server_resume(struct server *server)
{
	CHECK_EQ(kill(server->pid, SIGCONT), 0);
}

void server_kill(struct server *server)
{
	test_kill(server->pid);
	test_pipe_close(&server->pipe);
}

void serve_until_end(struct server *server)
{
	uint8_t byte;

	CHECK_RDMA(rdmaServerStartAsync(server->listener));
	/* As long as the test takes. */
	while (read(server->pipe.fds[TEST_CHILD], &byte, 1) < 0)
		;
	CHECK_RDMA(rdmaServerStop(server->listener));
}

/* What the echo server knows of a connection. */
struct client {
	struct client *next;
	RdmaConn *conn;
	uint8_t *space, *memory;
	uint64_t count;
	struct flood flood;
	uint64_t flooded;
};

static struct client *clients;

static void forget(struct client *client)
{
	struct client **at = &clients;

	while (*at != client)
		at = &(*at)->next;
	*at = client->next;
	free(client);
}

static void must_send(RdmaConn *conn, uint32_t imm, const void *data, size_t length)
{
	size_t sent = imm ? rdmaConnSendWithImm(conn, imm, data, length)
			  : rdmaConnSend(conn, data, length);

	if (sent == RDMA_SEND_ERR)
		TEST_FAIL("%s", rdmaError());
	CHECK(sent != 0);
}

static void go_on_flooding(RdmaConn *conn)
{
	struct client *client = rdmaConnUserData(conn);
	static uint8_t data[64 * KIB];
	size_t length, sent;

	for (; client->flooded < client->flood.count; client->flooded++) {
		length = client->flood.length;
		if (!length)
			length = numbered_length(client->flooded, 4 * KIB);
		numbered_fill(data, length, client->flooded);
		sent = rdmaConnSend(conn, data, length);
		if (sent == 0)
			return;
		CHECK_EQ(sent, length);
	}
}

static void tell_memory(RdmaConn *conn, struct client *client)
{
	RdmaMemInfo info;

	client->memory = rdmaConnRegMem(conn, 64 * KIB);
	CHECK(client->memory != NULL);
	numbered_fill(client->memory, 64 * KIB, 77);
	CHECK_RDMA(rdmaConnMemInfo(conn, client->memory, &info));
	must_send(conn, ORDER_TELL_MEMORY, &info, sizeof(info));
}

static void obey(RdmaConn *conn, struct client *client, enum order order, const void *data,
		 size_t length)
{
	switch (order) {
	case ORDER_CLOSE:
		forget(client);
		rdmaConnClose(conn);
		break;
	case ORDER_CLOSE_ALL:
		for (struct client *at = clients, *next; at; at = next) {
			next = at->next;
			if (at == client)
				continue;
			rdmaConnClose(at->conn);
			forget(at);
		}
		must_send(conn, order, NULL, 0);
		break;
	case ORDER_TELL_MEMORY:
		tell_memory(conn, client);
		break;
	case ORDER_DROP_MEMORY:
		CHECK_RDMA(rdmaConnDeregMem(conn, client->memory));
		must_send(conn, order, NULL, 0);
		break;
	case ORDER_COUNT:
		must_send(conn, order, &client->count, sizeof(client->count));
		break;
	case ORDER_WRITE_BACK:
		memcpy(client->space, data, length);
		CHECK_RDMA(rdmaConnWriteWithImm(conn, 4711, client->space, length));
		break;
	case ORDER_FLOOD:
		memcpy(&client->flood, data, sizeof(client->flood));
		client->flooded = 0;
		go_on_flooding(conn);
		break;
	default:
		must_send(conn, (uint32_t)order, data, length);
	}
}

static void echo_imm(RdmaConn *conn, uint32_t imm, const void *data, size_t length)
{
	struct client *client = rdmaConnUserData(conn);

	obey(conn, client, (enum order)imm, data, length);
}

static void echo(RdmaConn *conn, const void *data, size_t length)
{
	struct client *client = rdmaConnUserData(conn);

	client->count++;
	must_send(conn, 0, data, length);
}

static void echo_lost(RdmaConn *conn, enum rmr_status status, const char *reason)
{
	CHECK(status != RMR_OK);
	CHECK(reason[0]);
	forget(rdmaConnUserData(conn));
	rdmaConnClose(conn);
}

static void echo_accept(RdmaListener *listener, RdmaConn *conn)
{
	struct client *client = calloc(1, sizeof(*client));

	CHECK(rdmaConnListener(conn) == listener);
	CHECK(rdmaConnPeer(conn)[0]);
	client->conn = conn;
	client->next = clients;
	clients = client;
	client->space = rdmaConnRegMem(conn, SPACE_SIZE);
	CHECK(client->space != NULL);
	CHECK_RDMA(rdmaConnExpose(conn, client->space, SPACE_SIZE));
	rdmaConnSetUserData(conn, client);
	rdmaConnSetRecvCallback(conn, echo);
	rdmaConnSetRecvImmCallback(conn, echo_imm);
	rdmaConnSetSendableCallback(conn, go_on_flooding);
	rdmaConnSetDisconnectCallback(conn, echo_lost);
}

void serve_echo(struct server *server)
{
	rdmaServerSetAcceptCallback(server->listener, echo_accept);
	serve_until_end(server);
}

/* The sink: `arg` says the longest message. */
static void swallow(RdmaConn *conn, const void *data, size_t length)
{
	struct server *server = rdmaServerUserData(rdmaConnListener(conn));
	uint64_t *next = rdmaConnUserData(conn);
	size_t max = (size_t)(uintptr_t)server->arg;

	CHECK_EQ(length, numbered_length(*next, max));
	if (!numbered_is(data, length, *next))
		TEST_FAIL("message %ju is not what was sent", (uintmax_t)*next);
	++*next;
}

static void tell_count(RdmaConn *conn, uint32_t imm, const void *data, size_t length)
{
	uint64_t *next = rdmaConnUserData(conn);

	(void)data;
	(void)length;
	must_send(conn, imm, next, sizeof(*next));
}

static void sink_lost(RdmaConn *conn, enum rmr_status status, const char *reason)
{
	(void)status;
	(void)reason;
	free(rdmaConnUserData(conn));
	rdmaConnClose(conn);
}

static void sink_accept(RdmaListener *listener, RdmaConn *conn)
{
	(void)listener;
	rdmaConnSetUserData(conn, calloc(1, sizeof(uint64_t)));
	rdmaConnSetRecvCallback(conn, swallow);
	rdmaConnSetRecvImmCallback(conn, tell_count);
	rdmaConnSetDisconnectCallback(conn, sink_lost);
}

void serve_sink(struct server *server)
{
	rdmaServerSetAcceptCallback(server->listener, sink_accept);
	serve_until_end(server);
}

/* ------------------------------------------------------------------------------------------
 * Clients
 */

void watch_await_at(const char *file, int line, const char *what, atomic_uint *counter,
		    unsigned at_least)
{
	for (int left = PATIENCE_MS; atomic_load(counter) < at_least; left--) {
		if (left <= 0)
			test_fail(file, line, "%s is %u, and should become %u", what,
				  atomic_load(counter), at_least);
		test_sleep_ms(1);
	}
}

static void saw_connected(RdmaConn *conn)
{
	struct watch *watch = rdmaConnUserData(conn);

	watch->connected++;
}

static void saw_lost(RdmaConn *conn, enum rmr_status status, const char *reason)
{
	struct watch *watch = rdmaConnUserData(conn);

	watch->status = status;
	snprintf(watch->reason, sizeof(watch->reason), "%s", reason);
	CHECK(!rdmaConnIsConnected(conn));
	watch->disconnected++;
}

static void keep(struct watch *watch, const void *data, size_t length)
{
	size_t kept = length < WATCH_KEPT ? length : WATCH_KEPT;

	if (kept)
		memcpy(watch->last, data, kept);
	watch->last_length = length;
	watch->bytes += length;
}

static void saw_message(RdmaConn *conn, const void *data, size_t length)
{
	struct watch *watch = rdmaConnUserData(conn);

	CHECK_EQ((uintptr_t)data % 16, 0);
	keep(watch, data, length);
	watch->messages++;
}

static void saw_imm(RdmaConn *conn, uint32_t imm, const void *data, size_t length)
{
	struct watch *watch = rdmaConnUserData(conn);

	keep(watch, data, length);
	watch->last_imm = imm;
	watch->imms++;
}

static void saw_sendable(RdmaConn *conn)
{
	struct watch *watch = rdmaConnUserData(conn);

	watch->sendable++;
}

static void saw_written(RdmaConn *conn, size_t bytes)
{
	struct watch *watch = rdmaConnUserData(conn);

	watch->written_bytes += bytes;
	watch->writes++;
}

static void saw_read(RdmaConn *conn, size_t bytes)
{
	struct watch *watch = rdmaConnUserData(conn);

	watch->read_bytes += bytes;
	watch->reads++;
}

RdmaConn *client_make(const RdmaOptions *options, struct watch *watch)
{
	RdmaOptions defaults = {.mode = RDMA_BLOCKING};
	RdmaConn *conn;

	defaults.connectTimeoutMs = PATIENCE_MS;
	conn = rdmaConnWithOptions(options ? options : &defaults);
	if (!conn)
		TEST_FAIL("%s", rdmaError());
	memset(watch, 0, sizeof(*watch));
	rdmaConnSetUserData(conn, watch);
	rdmaConnSetConnectedCallback(conn, saw_connected);
	rdmaConnSetDisconnectCallback(conn, saw_lost);
	rdmaConnSetRecvCallback(conn, saw_message);
	rdmaConnSetRecvImmCallback(conn, saw_imm);
	rdmaConnSetSendableCallback(conn, saw_sendable);
	rdmaConnSetWriteCallback(conn, saw_written);
	rdmaConnSetReadCallback(conn, saw_read);
	return conn;
}

int client_connect(RdmaConn *conn, const struct server *server)
{
	return rdmaConnect(conn, setup_address(), server->port);
}

RdmaConn *client_open(const struct server *server, const RdmaOptions *options, struct watch *watch)
{
	RdmaConn *conn = client_make(options, watch);

	CHECK_RDMA(client_connect(conn, server));
	CHECK(rdmaConnIsConnected(conn));
	return conn;
}

void client_send(RdmaConn *conn, const void *data, size_t length)
{
	size_t sent;

	while ((sent = rdmaConnSend(conn, data, length)) == 0)
		sched_yield();
	if (sent == RDMA_SEND_ERR)
		TEST_FAIL("%s", rdmaError());
	CHECK_EQ(sent, length);
}

void client_order(RdmaConn *conn, enum order order, const void *data, size_t length)
{
	size_t sent;

	while ((sent = rdmaConnSendWithImm(conn, order, data, length)) == 0)
		sched_yield();
	if (sent == RDMA_SEND_ERR)
		TEST_FAIL("%s", rdmaError());
	CHECK_EQ(sent, length ? length : 1);
}
