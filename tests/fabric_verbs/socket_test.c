/*
 * Meeting by TCP, with adapters that move nothing: two ends of ours, and an end of ours with one
 * that says whatever it likes. After each, no descriptor and no queue pair is left.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/verbs/exchange.h"
#include "fake_adapter.h"
#include "harness/test.h"

#define ADDRESS	     "10.77.0.1"
#define HANDSHAKE_MS (300 * TEST_TIME_FACTOR) /* where that is what is waited for */
#define PATIENCE_MS  (10000 * TEST_TIME_FACTOR)

/* Both ends, each with an adapter and a queue. */
static struct end {
	struct fake_adapter adapter;
	struct rmr_queue *queue;
} listening, calling;
static struct rmr_listener *listener;
static int descriptors;

static int count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void end_open(struct end *end, const char *name, uint32_t gid_index)
{
	fake_adapter_init(&end->adapter, name);
	fake_adapter_add_gid(&end->adapter, gid_index, IBV_GID_TYPE_ROCE_V2, ADDRESS);
	CHECK_OK(rmr_queue_open(&end->adapter.device.base, NULL, &end->queue));
}

static void setup_for(int handshake_timeout_ms)
{
	struct rmr_listener_options options = {.handshake_timeout_ms = handshake_timeout_ms};

	end_open(&listening, "fake0", 3);
	end_open(&calling, "fake1", 5);
	CHECK_OK(rmr_listener_open(&listening.adapter.device.base, "127.0.0.1:0", &options,
				   &listener));
	descriptors = count_descriptors();
}

static void setup(void)
{
	setup_for(PATIENCE_MS);
}

/* All connections are closed: nothing is left of them. */
static void teardown(void)
{
	CHECK_EQ(count_descriptors(), descriptors);
	CHECK_EQ(listening.adapter.queue_pairs, 0);
	CHECK_EQ(calling.adapter.queue_pairs, 0);
	rmr_listener_close(listener);
	rmr_queue_close(listening.queue);
	rmr_queue_close(calling.queue);
	CHECK_EQ(atomic_load(&listening.adapter.device.base.children), 0);
	CHECK_EQ(atomic_load(&calling.adapter.device.base.children), 0);
}

static struct verbs_conn *inside(struct rmr_conn *conn)
{
	return (struct verbs_conn *)conn;
}

/* A call of ours, in a thread, for it waits. */
struct call {
	pthread_t thread;
	char address[128];
	int timeout_ms;
	struct rmr_conn *conn;
	enum rmr_status status;
	char message[1024];
};

static void *call_main(void *arg)
{
	struct call *call = arg;
	struct rmr_conn_options options = {
		.private_data = "from the caller", .private_length = 15, .dead_after_ms = 400};

	call->status =
		rmr_connect(calling.queue, call->address, call->timeout_ms, &options, &call->conn);
	snprintf(call->message, sizeof(call->message), "%s", rmr_error_message());
	return NULL;
}

static void call_begin(struct call *call, const char *address)
{
	*call = (struct call){.timeout_ms = PATIENCE_MS};
	snprintf(call->address, sizeof(call->address), "%s", address);
	CHECK_EQ(pthread_create(&call->thread, NULL, call_main, call), 0);
}

static enum rmr_status call_end(struct call *call)
{
	CHECK_EQ(pthread_join(call->thread, NULL), 0);
	return call->status;
}

static enum rmr_status accept_next(struct rmr_conn **conn)
{
	struct rmr_conn_options options = {
		.private_data = "hi", .private_length = 2, .dead_after_ms = 400};
	struct rmr_request *request;

	CHECK_OK(rmr_listener_next(listener, PATIENCE_MS, &request));
	return rmr_accept(request, listening.queue, &options, conn);
}

/* Waits until the end comes; says why. */
static enum rmr_status await_end(struct rmr_queue *queue, struct rmr_conn *conn)
{
	struct rmr_completion c;

	do {
		CHECK_EQ(rmr_wait(queue, &c, 1, PATIENCE_MS), 1);
		CHECK(c.conn == conn);
	} while (c.op != RMR_OP_DISCONNECT);
	return c.status;
}

static void await_open(struct rmr_conn *conn)
{
	struct rmr_completion c;

	for (int i = 0; i < 1000 && inside(conn)->state == CONN_MEETING; i++)
		CHECK_EQ(rmr_wait(conn->queue, &c, 1, 10), 0);
	CHECK_EQ(inside(conn)->state, CONN_OPEN);
}

static void post_something(struct rmr_conn *conn)
{
	struct rmr_work work = {
		.op = RMR_OP_SEND, .flags = RMR_INLINE, .source = "abc", .length = 3};

	CHECK_EQ(rmr_post(conn, &work, 1), 1);
}

/* ------------------------------------------------------------------------------------------
 * Two ends of ours
 */

static void check_joined(struct rmr_conn *from, struct rmr_conn *to)
{
	const struct fake_qp *a = fake_qp_of(from), *b = fake_qp_of(to);
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff, 10, 77, 0, 1}};

	CHECK_EQ(a->state, IBV_QPS_RTS);
	CHECK_EQ(a->init.port_num, 1);
	CHECK_EQ(a->init.pkey_index, 0);
	CHECK_EQ(a->rtr.dest_qp_num, b->base.qp_num);
	CHECK_EQ(a->rtr.rq_psn, b->rts.sq_psn);
	CHECK(a->rts.sq_psn < 1u << 24);
	CHECK_EQ(a->rtr.path_mtu, IBV_MTU_512);
	CHECK_EQ(a->rtr.ah_attr.is_global, 1);
	CHECK_EQ(a->rtr.ah_attr.port_num, 1);
	CHECK_EQ(a->rtr.ah_attr.grh.hop_limit, 64);
	CHECK_MEM(&a->rtr.ah_attr.grh.dgid, &gid, sizeof(gid));
	CHECK_EQ(a->rts.max_rd_atomic, b->rtr.max_dest_rd_atomic);
}

static void test_meet(void)
{
	struct rmr_conn *accepted;
	struct rmr_conn_info info;
	struct call call;

	setup();
	calling.adapter.device.name.mtu = 1000;	 /* 512, then */
	calling.adapter.device.reads_out = 4;	 /* the listener could serve 32 */
	listening.adapter.device.reads_out = 40; /* the caller serves 32 */
	call_begin(&call, rmr_listener_address(listener));
	CHECK_OK(accept_next(&accepted));
	post_something(accepted); /* waits until the caller is ready */
	CHECK_EQ(listening.adapter.sends, 0);
	CHECK_OK(call_end(&call));
	CHECK_EQ(inside(call.conn)->state, CONN_OPEN);
	await_open(accepted);
	CHECK(listening.adapter.sends > 0);
	check_joined(accepted, call.conn);
	check_joined(call.conn, accepted);
	CHECK_EQ(fake_qp_of(call.conn)->rts.max_rd_atomic, 4);
	CHECK_EQ(fake_qp_of(accepted)->rts.max_rd_atomic, 32);
	CHECK_EQ(fake_qp_of(accepted)->rtr.ah_attr.grh.sgid_index, 3);
	CHECK_EQ(fake_qp_of(call.conn)->rtr.ah_attr.grh.sgid_index, 5);
	rmr_conn_get_info(accepted, &info);
	CHECK_EQ(info.private_length, 15);
	CHECK_MEM(info.private_data, "from the caller", 15);
	CHECK_EQ(info.max_send, 8192);
	CHECK_CONTAINS(info.peer, "127.0.0.1:");
	rmr_conn_get_info(call.conn, &info);
	CHECK_EQ(info.private_length, 2);
	CHECK_STR(info.peer, rmr_listener_address(listener));
	CHECK_EQ(inside(accepted)->peer_secret, inside(call.conn)->my_secret);
	rmr_conn_close(call.conn);
	CHECK_STATUS(await_end(listening.queue, accepted), RMR_DISCONNECTED);
	rmr_conn_close(accepted);
	teardown();
}

static void test_listener_closes(void)
{
	struct rmr_conn *accepted;
	struct call call;

	setup();
	call_begin(&call, rmr_listener_address(listener));
	CHECK_OK(accept_next(&accepted));
	CHECK_OK(call_end(&call));
	rmr_conn_close(accepted); /* READY was not read yet */
	CHECK_STATUS(await_end(calling.queue, call.conn), RMR_DISCONNECTED);
	rmr_conn_close(call.conn);
	teardown();
}

static void test_reject(void)
{
	struct rmr_request *request;
	struct call call;

	setup();
	call_begin(&call, rmr_listener_address(listener));
	CHECK_OK(rmr_listener_next(listener, PATIENCE_MS, &request));
	rmr_reject(request, "come back tomorrow");
	CHECK_STATUS(call_end(&call), RMR_REFUSED);
	CHECK_CONTAINS(call.message, "the listener said no: come back tomorrow");
	teardown();
}

/* The adapter fails at any step, at either end. */
static void test_failing_steps(void)
{
	static const enum ibv_qp_state steps[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
						  IBV_QPS_RTS};

	setup();
	for (size_t i = 0; i < TEST_COUNT(steps); i++) {
		struct rmr_conn *accepted;
		struct call call;

		listening.adapter.fail_create = steps[i] == IBV_QPS_RESET;
		listening.adapter.fail_at = steps[i];
		call_begin(&call, rmr_listener_address(listener));
		CHECK(accept_next(&accepted) != RMR_OK);
		CHECK_STATUS(call_end(&call), RMR_REFUSED);
		CHECK_CONTAINS(call.message, "queue pair");
		listening.adapter.fail_create = false;
		listening.adapter.fail_at = IBV_QPS_RESET;
	}
	for (size_t i = 0; i < TEST_COUNT(steps); i++) {
		struct rmr_conn *accepted;
		struct call call;

		calling.adapter.fail_create = steps[i] == IBV_QPS_RESET;
		calling.adapter.fail_at = steps[i];
		call_begin(&call, rmr_listener_address(listener));
		if (steps[i] >= IBV_QPS_RTR) { /* it fails with the answer in hand */
			CHECK_OK(accept_next(&accepted));
			CHECK(call_end(&call) != RMR_OK);
			CHECK_STATUS(await_end(listening.queue, accepted), RMR_DISCONNECTED);
			rmr_conn_close(accepted);
		} else {
			struct rmr_request *request;

			CHECK(call_end(&call) != RMR_OK);
			CHECK_STATUS(rmr_listener_next(listener, 50, &request), RMR_TIMEOUT);
		}
		calling.adapter.fail_create = false;
		calling.adapter.fail_at = IBV_QPS_RESET;
	}
	teardown();
}

/* Who listens everywhere tells the adapter's address, not the machine's. */
static void test_own_address(void)
{
	struct rmr_listener *everywhere;

	setup();
	CHECK_OK(rmr_listener_open(&listening.adapter.device.base, "*:0", NULL, &everywhere));
	CHECK_CONTAINS(rmr_listener_address(everywhere), ADDRESS ":");
	rmr_listener_close(everywhere);
	teardown();
}

/* ------------------------------------------------------------------------------------------
 * Callers that say what they like
 */

static struct exchange good_exchange(enum greeting_kind kind)
{
	return (struct exchange){
		.greeting = {.kind = (uint8_t)kind, .recv_size = 100},
		.qpn = 99,
		.psn = 1,
		.mtu = 2,
		.reads_out = 1,
		.reads_in = 1,
		.link = EXCHANGE_ETHERNET,
		.gid_type = EXCHANGE_GID_ROCE_V2,
		.gid = {[10] = 0xff, [11] = 0xff, 10, 77, 0, 1},
	};
}

static int raw_connect(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	const char *port = strrchr(rmr_listener_address(listener), ':') + 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
	CHECK_EQ(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void raw_send(int fd, const void *bytes, size_t length)
{
	CHECK_EQ(send(fd, bytes, length, MSG_NOSIGNAL), (ssize_t)length);
}

static void raw_hello(int fd, const struct exchange *hello)
{
	uint8_t bytes[EXCHANGE_SIZE];

	exchange_encode(bytes, hello);
	raw_send(fd, bytes, sizeof(bytes));
}

/* A caller whose HELLO is good, and was accepted. */
static int raw_accepted(struct rmr_conn **conn)
{
	struct exchange hello = good_exchange(GREETING_HELLO);
	uint8_t bytes[EXCHANGE_SIZE];
	int fd = raw_connect();

	raw_hello(fd, &hello);
	CHECK_OK(accept_next(conn));
	CHECK_EQ(recv(fd, bytes, sizeof(bytes), MSG_WAITALL), (ssize_t)sizeof(bytes));
	return fd;
}

static void check_refused(const struct exchange *hello, const char *text)
{
	uint8_t bytes[REFUSAL_SIZE];
	char reason[GREETING_TEXT_MAX + 1];
	struct rmr_conn *conn;
	ssize_t length;
	int fd = raw_connect();

	raw_hello(fd, hello);
	CHECK_STATUS(accept_next(&conn), RMR_REFUSED);
	length = recv(fd, bytes, sizeof(bytes), MSG_WAITALL);
	CHECK(length > 0 && refusal_decode(bytes, (size_t)length, reason));
	CHECK_CONTAINS(reason, text);
	close(fd);
}

static void test_misfits(void)
{
	struct exchange hello;

	setup();
	hello = good_exchange(GREETING_HELLO);
	hello.link = EXCHANGE_INFINIBAND;
	hello.lid = 5;
	hello.gid_type = EXCHANGE_GID_IB;
	check_refused(&hello, "one end is on InfiniBand, the other on Ethernet");
	hello = good_exchange(GREETING_HELLO);
	hello.gid_type = EXCHANGE_GID_ROCE_V1;
	check_refused(&hello, "one end uses RoCE v1, the other v2");
	hello = good_exchange(GREETING_HELLO);
	hello.gid[10] = 0;
	check_refused(&hello, "IPv6");
	/* The kernel would look for that one, for a second. */
	hello = good_exchange(GREETING_HELLO);
	hello.gid[15] = 9;
	check_refused(&hello, "is not the caller's address");
	teardown();
}

static void test_no_ready(void)
{
	struct rmr_conn *conn;
	int fd;

	setup_for(HANDSHAKE_MS);
	fd = raw_accepted(&conn);
	CHECK_STATUS(await_end(listening.queue, conn), RMR_TIMEOUT);
	rmr_conn_close(conn);
	close(fd);
	teardown();
}

static void test_ready_in_pieces(void)
{
	uint8_t ready[EXCHANGE_READY_SIZE];
	struct rmr_completion c;
	struct rmr_conn *conn;
	int fd;

	setup();
	fd = raw_accepted(&conn);
	exchange_encode_ready(ready);
	for (size_t i = 0; i < sizeof(ready); i++) {
		CHECK_EQ(inside(conn)->state, CONN_MEETING);
		raw_send(fd, ready + i, 1);
		CHECK_EQ(rmr_wait(listening.queue, &c, 1, 5), 0);
	}
	await_open(conn);
	raw_send(fd, ready, 1); /* too much */
	CHECK_STATUS(await_end(listening.queue, conn), RMR_PROTOCOL);
	rmr_conn_close(conn);
	close(fd);
	teardown();
}

static void test_babble(void)
{
	static const char *const babble[] = {"x", "Rmrv\1\1", "Rmrv\1\4\0\0x",
					     "GET / HTTP/1.1\r\n\r\n"};
	static const size_t lengths[] = {1, 6, 9, 18};

	setup();
	for (size_t i = 0; i < TEST_COUNT(babble); i++) {
		struct rmr_conn *conn;
		int fd = raw_accepted(&conn);

		raw_send(fd, babble[i], lengths[i]);
		CHECK_STATUS(await_end(listening.queue, conn), RMR_PROTOCOL);
		rmr_conn_close(conn);
		close(fd);
	}
	teardown();
}

/* Callers that never are: none of them is handed out, and an honest one is. */
static void test_strangers(void)
{
	uint8_t bytes[EXCHANGE_SIZE], refusal[REFUSAL_SIZE], got[REFUSAL_SIZE];
	struct exchange accept = good_exchange(GREETING_ACCEPT);
	char text[GREETING_TEXT_MAX + 1] = "";
	struct rmr_request *request;
	struct rmr_conn *conn;
	int fds[6];

	setup_for(HANDSHAKE_MS);
	for (int i = 0; i < 6; i++)
		fds[i] = raw_connect();
	exchange_encode(bytes, &accept);
	raw_send(fds[1], "HELO\r\n", 6);
	raw_send(fds[2], bytes, sizeof(bytes));
	raw_send(fds[3], bytes, sizeof(bytes) / 2);
	memset(text, 'x', sizeof(text) - 1); /* longer than a greeting */
	raw_send(fds[4], refusal, refusal_encode(refusal, text));
	raw_send(fds[5], "Rmrv\7\1and so on", 15);
	CHECK_STATUS(rmr_listener_next(listener, 2 * HANDSHAKE_MS, &request), RMR_TIMEOUT);
	for (int i = 0; i < 6; i++) {
		ssize_t length = recv(fds[i], got, sizeof(got), MSG_WAITALL);

		if (i == 5) /* another version is told so */
			CHECK(length > 0 && got[5] == GREETING_REJECT);
		else
			CHECK(length <= 0);
		close(fds[i]);
	}
	fds[0] = raw_accepted(&conn);
	close(fds[0]);
	CHECK_STATUS(await_end(listening.queue, conn), RMR_DISCONNECTED);
	rmr_conn_close(conn);
	teardown();
}

/* ------------------------------------------------------------------------------------------
 * Listeners that say what they like
 */

struct answer {
	const uint8_t *bytes;
	size_t length;
	bool hang_up;
};

/* Calls a socket that answers so. */
static void check_answer(struct answer answer, enum rmr_status status, const char *text)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t length = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;
	uint8_t hello[EXCHANGE_SIZE];
	char address[64];
	struct call call;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK_EQ(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	CHECK_EQ(listen(fd, 1), 0);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&at, &length), 0);
	snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(at.sin_port));
	call = (struct call){.timeout_ms = answer.length || answer.hang_up ? PATIENCE_MS : 100};
	snprintf(call.address, sizeof(call.address), "%s", address);
	CHECK_EQ(pthread_create(&call.thread, NULL, call_main, &call), 0);
	peer = accept(fd, NULL, NULL);
	CHECK(peer >= 0);
	CHECK_EQ(recv(peer, hello, sizeof(hello), MSG_WAITALL), (ssize_t)sizeof(hello));
	for (size_t i = 0; i < answer.length; i++) /* as slow as it gets */
		(void)!send(peer, answer.bytes + i, 1, MSG_NOSIGNAL);
	if (answer.hang_up)
		close(peer);
	CHECK_STATUS(call_end(&call), status);
	CHECK_CONTAINS(call.message, text);
	if (!answer.hang_up)
		close(peer);
	close(fd);
}

static void test_answers(void)
{
	struct exchange hello = good_exchange(GREETING_HELLO);
	struct exchange other = good_exchange(GREETING_ACCEPT);
	uint8_t bytes[EXCHANGE_SIZE], refusal[REFUSAL_SIZE];
	size_t length = refusal_encode(refusal, "not \x1b you");

	setup();
	check_answer((struct answer){.length = 0}, RMR_TIMEOUT, "no answer");
	check_answer((struct answer){.hang_up = true}, RMR_REFUSED, "hung up");
	check_answer((struct answer){(const uint8_t *)"HTTP/1.1 400\r\n", 14, false}, RMR_PROTOCOL,
		     "something else listens");
	check_answer((struct answer){refusal, length, true}, RMR_REFUSED, "said no: not ? you");
	refusal[4] = 9; /* whatever version says no */
	check_answer((struct answer){refusal, length, true}, RMR_REFUSED, "said no: not ? you");
	exchange_encode(bytes, &hello);
	check_answer((struct answer){bytes, sizeof(bytes), false}, RMR_PROTOCOL, "instead of an");
	bytes[4] = 9;
	check_answer((struct answer){bytes, sizeof(bytes), false}, RMR_PROTOCOL, "another version");
	other.gid_type = EXCHANGE_GID_ROCE_V1;
	exchange_encode(bytes, &other);
	check_answer((struct answer){bytes, sizeof(bytes), false}, RMR_REFUSED, "RoCE v1");
	check_answer((struct answer){bytes, sizeof(bytes) / 2, true}, RMR_REFUSED, "hung up");
	teardown();
}

static const struct test tests[] = {
	{"socket_meet", test_meet},
	{"socket_listener_closes", test_listener_closes},
	{"socket_reject", test_reject},
	{"socket_failing_steps", test_failing_steps},
	{"socket_own_address", test_own_address},
	{"socket_misfits", test_misfits},
	{"socket_no_ready", test_no_ready},
	{"socket_ready_in_pieces", test_ready_in_pieces},
	{"socket_babble", test_babble},
	{"socket_strangers", test_strangers},
	{"socket_answers", test_answers},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "verbs_socket", tests, TEST_COUNT(tests));
}
