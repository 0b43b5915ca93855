/*
 * Peers that are not ping-pong, and those that lie. They are raw ends of the fabric that speak the
 * bytes themselves. What they do costs them their connection, and nobody else anything.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "ends.h"
#include "rdma/pingpong/internal.h"

static const struct hello good_hello = {HELLO_MAGIC, HELLO_VERSION, PINGPONG_DATA_MAX};

/* The address that the fabric wants, from a name. */
static const char *raw_address(const char *name)
{
	const char *address = strstr(name, "://");

	return address ? address + 3 : name + strlen("shm:");
}

static enum rmr_status raw_connect(struct node *node, const char *name, const void *hello,
				   size_t length)
{
	struct rmr_conn_options options = {.private_data = hello, .private_length = length};

	return rmr_connect(node->queue, raw_address(name), (int)PATIENCE_MS, &options, &node->conn);
}

/* ------------------------------------------------------------------------------------------
 * Hellos
 */

static void bad_callers(struct end *end)
{
	static const struct hello bad[] = {
		{HELLO_MAGIC + 1, HELLO_VERSION, PINGPONG_DATA_MAX},
		{HELLO_MAGIC, HELLO_VERSION + 1, PINGPONG_DATA_MAX},
		{HELLO_MAGIC, HELLO_VERSION, 1 << 20},
	};
	uint8_t zeros[RMR_PRIVATE_MAX] = {0};
	const char *name = end_name(end);
	struct node node = {0};

	node_open(&node, NULL);
	for (size_t i = 0; i < TEST_COUNT(bad); i++) {
		CHECK_STATUS(raw_connect(&node, name, &bad[i], sizeof(bad[i])), RMR_REFUSED);
		CHECK_CONTAINS(rmr_error_message(), "ping-pong");
	}
	CHECK_STATUS(raw_connect(&node, name, NULL, 0), RMR_REFUSED);
	CHECK_STATUS(raw_connect(&node, name, zeros, sizeof(zeros)), RMR_REFUSED);
	CHECK_STATUS(raw_connect(&node, name, &good_hello, sizeof(good_hello) - 1), RMR_REFUSED);
	node_close(&node);
	/* One that takes short messages only: it is let in and thrown out. */
	node_open(&node, &(struct rmr_queue_options){.recv_size = 256});
	if (raw_connect(&node, name, &good_hello, sizeof(good_hello)) == RMR_OK)
		node_expect_disconnect(&node, node.conn);
	node_close(&node);
}

static void good_caller(struct end *end)
{
	PingpongContext *ctx;

	CHECK_DONE(RDMA_connect(end_name(end), &ctx));
	ctx->timeout_ms = (int)PATIENCE_MS;
	CHECK_DONE(send_packet(ctx));
	CHECK_DONE(receive_packet(ctx));
	CHECK_DONE(RDMA_disconnect(ctx));
}

/* One RDMA_accept() turns all of them down, and returns the one that is right. */
static void test_bad_callers(void)
{
	PingpongListener *listener;
	PingpongContext *ctx;
	struct end bad, good;
	siginfo_t ended = {0};
	char name[384];

	end_start(&bad, bad_callers, NULL);
	end_start(&good, good_caller, NULL);
	CHECK_DONE(RDMA_listen(fresh_name(name), &listener));
	end_tell_name(&bad, listener);
	CHECK_FAILS(RDMA_accept(listener, 500, &ctx), "timeout");
	end_tell_name(&good, listener);
	CHECK_DONE(RDMA_accept(listener, (int)PATIENCE_MS, &ctx));
	ctx->timeout_ms = (int)PATIENCE_MS;
	CHECK_DONE(receive_packet(ctx));
	CHECK_DONE(send_packet(ctx));
	CHECK_FAILS(receive_packet(ctx), "disconnected");
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&good);
	/* Those that are late are turned down as well. */
	while (waitid(P_PID, (id_t)bad.pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       !ended.si_pid)
		CHECK_FAILS(RDMA_accept(listener, 10, &ctx), "timeout");
	end_join(&bad);
	RDMA_unlisten(listener);
}

static void strange_server(struct node *node)
{
	node_open(node, NULL);
	node_accept(node, NULL); /* which says no hello */
	node_expect_disconnect(node, node->conn);
	node_close(node);
}

static void test_bad_server(void)
{
	PingpongContext *ctx = NULL;
	struct peer peer;
	char name[384];

	peer_start(&peer, strange_server, NULL);
	test_recv(&peer.pipe, TEST_PARENT, peer.address, sizeof(peer.address));
	raw_name(peer.address, name);
	CHECK_FAILS(RDMA_connect(name, &ctx), "ping-pong");
	CHECK(ctx == NULL);
	peer_join(&peer);
}

/* ------------------------------------------------------------------------------------------
 * Messages
 */

/* What a liar sends, and what its victim says to it; "": nothing, for it is no harm. */
struct lie {
	size_t length; /* of the message */
	struct message head;
	struct memory_notice notice;
	int times;
	const char *answer;
};

#define HEAD sizeof(struct message)
#define NOTICE(...)                                                                                \
	HEAD + sizeof(struct memory_notice),                                                       \
		{.kind = MESSAGE_MEMORY, .length = sizeof(struct memory_notice)},                  \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

static const struct lie lies[] = {
	{0, {0}, {0}, 1, "protocol"},
	{HEAD - 1, {.kind = MESSAGE_FIN}, {0}, 1, "protocol"},
	{HEAD, {.kind = 0}, {0}, 1, "protocol"},
	{HEAD, {.kind = MESSAGE_MEMORY + 1}, {0}, 1, "protocol"},
	{HEAD, {.kind = UINT32_MAX}, {0}, 1, "protocol"},
	/* Lengths that are not what comes. */
	{HEAD, {.kind = MESSAGE_PACKET, .length = 1}, {0}, 1, "protocol"},
	{HEAD, {.kind = MESSAGE_PACKET, .length = UINT32_MAX}, {0}, 1, "protocol"},
	{HEAD + 8, {.kind = MESSAGE_PACKET, .length = 7}, {0}, 1, "protocol"},
	{MESSAGE_SLOT, {.kind = MESSAGE_PACKET, .length = MESSAGE_SLOT - HEAD}, {0}, 1, "protocol"},
	{HEAD + 1, {.kind = MESSAGE_FIN, .length = 1}, {0}, 1, "protocol"},
	{HEAD, {.kind = MESSAGE_MEMORY}, {0}, 1, "protocol"},
	{HEAD + 64, {.kind = MESSAGE_MEMORY, .length = 64}, {0}, 1, "protocol"},
	/* Memory that cannot be. */
	{NOTICE(.key = 0, .address = 4096, .length = 4096), 1, "protocol"},
	{NOTICE(.key = 1, .address = 4096, .length = 0), 1, "protocol"},
	{NOTICE(.key = 1, .address = UINT64_MAX - 5, .length = 4096), 1, "protocol"},
	{NOTICE(.key = 1, .address = 4096, .length = 4096), 1, "protocol"},
	{NOTICE(.key = 1, .is_withdrawn = 1), 1, "protocol"},
	{NOTICE(.key = 1, .is_withdrawn = 2), 1, "protocol"},
	/* As many FINs as one likes, if anyone wants them. */
	{HEAD, {.kind = MESSAGE_FIN}, {0}, 1000, ""},
};

static void liar(struct end *end)
{
	struct {
		struct message head;
		uint8_t data[MESSAGE_SLOT - HEAD];
	} message = {0};
	const struct lie *lie = end->arg;
	struct node node = {0};
	const char *name = end_name(end);

	node_open(&node, NULL);
	node_memory(&node, MEMORY_PLAIN, sizeof(message), 0);
	CHECK_OK(raw_connect(&node, name, &good_hello, sizeof(good_hello)));
	message.head = lie->head;
	memcpy(message.data, &lie->notice, sizeof(lie->notice));
	memcpy(node.memory.base, &message, sizeof(message));
	for (int i = 0; i < lie->times; i++) {
		struct rmr_work work = work_of(&node, RMR_OP_SEND, 0, lie->length, 0);

		if (!lie->length)
			work.flags = RMR_INLINE;
		node_do(&node, &work);
	}
	/* The victim ends it, or does so after all was heard. */
	while (node_next(&node).op != RMR_OP_DISCONNECT)
		;
	node_close(&node);
}

static void check_lie(PingpongListener *listener, struct end *peer, const struct lie *lie)
{
	PingpongContext *ctx;

	end_tell_name(peer, listener);
	CHECK_DONE(RDMA_accept(listener, (int)PATIENCE_MS, &ctx));
	ctx->timeout_ms = (int)PATIENCE_MS;
	if (lie->answer[0]) {
		CHECK_FAILS(receive_packet(ctx), lie->answer);
		CHECK_FAILS(send_packet(ctx), lie->answer);
		CHECK_FAILS(receive_fin(ctx), lie->answer);
	} else {
		for (int i = 0; i < lie->times; i++)
			CHECK_DONE(receive_fin(ctx));
	}
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(peer);
}

static void test_lies(void)
{
	struct end liars[TEST_COUNT(lies)];
	PingpongListener *listener;
	char name[384];

	for (size_t i = 0; i < TEST_COUNT(lies); i++)
		end_start(&liars[i], liar, (void *)&lies[i]);
	CHECK_DONE(RDMA_listen(fresh_name(name), &listener));
	for (size_t i = 0; i < TEST_COUNT(lies); i++)
		check_lie(listener, &liars[i], &lies[i]);
	RDMA_unlisten(listener);
}

/* ------------------------------------------------------------------------------------------
 * Memory
 */

/* A server by hand: says hello, takes news of memory, and tells of its own. */
static void raw_accept(struct node *node)
{
	struct rmr_conn_options options = {.private_data = &good_hello,
					   .private_length = sizeof(good_hello)};

	node_accept(node, &options);
}

static void raw_tell_memory(struct node *node, uint64_t length)
{
	struct {
		struct message head;
		struct memory_notice notice;
	} news = {.head = {.kind = MESSAGE_MEMORY, .length = sizeof(news.notice)}};
	struct rmr_work work;

	CHECK_OK(memory_announce(node->memory.region, node->conn, 77, (void *)4096, length,
				 &news.notice));
	memcpy(node->memory.base, &news, sizeof(news));
	work = work_of(node, RMR_OP_SEND, 0, sizeof(news), 0);
	node_do(node, &work);
}

static void raw_send_packet(struct node *node)
{
	struct message packet = {.kind = MESSAGE_PACKET};
	struct rmr_work work = work_of(node, RMR_OP_SEND, 0, sizeof(packet), 0);

	memcpy(node->memory.base, &packet, sizeof(packet));
	node_do(node, &work);
}

/* Grants memory, and closes it without a word when it is asked for the first time. */
static void turncoat(struct node *node)
{
	node_open(node, NULL);
	node_memory(node, MEMORY_ARENA, 64 * KIB, RMR_READ | RMR_WRITE);
	raw_accept(node);
	raw_tell_memory(node, 64 * KIB);
	raw_send_packet(node);
	rmr_recv_release(node->queue, node_expect(node, RMR_OP_RECV, RMR_OK).data);
	rmr_region_close(node->memory.region);
	node->memory.region = NULL;
	test_signal(node->pipe, TEST_CHILD);
	while (node_next(node).op != RMR_OP_DISCONNECT)
		;
	node_close(node);
}

static PingpongContext *call_raw(struct peer *peer)
{
	PingpongContext *ctx;
	char name[384];

	test_recv(&peer->pipe, TEST_PARENT, peer->address, sizeof(peer->address));
	raw_name(peer->address, name);
	CHECK_DONE(RDMA_connect(name, &ctx));
	ctx->timeout_ms = (int)PATIENCE_MS;
	return ctx;
}

/* What the peer refuses ends the connection, and is told as such. */
static void test_memory_gone_without_a_word(void)
{
	struct peer peer;
	PingpongContext *ctx;
	char byte = 1;

	peer_start(&peer, turncoat, NULL);
	ctx = call_raw(&peer);
	CHECK_DONE(receive_packet(ctx));
	CHECK_DONE(send_RDMA_write_bytes(ctx, &byte, 1, (void *)5000, 77));
	CHECK_DONE(send_packet(ctx));
	test_await(&peer.pipe, TEST_PARENT);
	CHECK_FAILS(send_RDMA_write_bytes(ctx, &byte, 1, (void *)5000, 77), "access");
	CHECK_FAILS(send_packet(ctx), "access");
	CHECK_DONE(RDMA_disconnect(ctx));
	peer_join(&peer);
}

/* Says that its memory is longer than it is. */
static void boaster(struct node *node)
{
	node_open(node, NULL);
	node_memory(node, MEMORY_ARENA, 64 * KIB, RMR_READ | RMR_WRITE);
	raw_accept(node);
	raw_tell_memory(node, 1 << 30);
	while (node_next(node).op != RMR_OP_DISCONNECT)
		;
	node_close(node);
}

static void test_memory_shorter_than_told(void)
{
	struct peer peer;
	PingpongContext *ctx;

	peer_start(&peer, boaster, NULL);
	ctx = call_raw(&peer);
	CHECK_FAILS(receive_packet(ctx), "protocol");
	CHECK_DONE(RDMA_disconnect(ctx));
	peer_join(&peer);
}

/* Grants reading only. */
static void reader_only(struct node *node)
{
	node_open(node, NULL);
	node_memory(node, MEMORY_SEALED, 64 * KIB, RMR_READ);
	raw_accept(node);
	raw_tell_memory(node, 64 * KIB);
	raw_send_packet(node);
	while (node_next(node).op != RMR_OP_DISCONNECT)
		;
	node_close(node);
}

static void test_memory_read_only(void)
{
	struct peer peer;
	PingpongContext *ctx;
	char byte = 1;

	peer_start(&peer, reader_only, NULL);
	ctx = call_raw(&peer);
	CHECK_DONE(receive_packet(ctx));
	CHECK_FAILS(send_RDMA_write_bytes(ctx, &byte, 1, (void *)5000, 77), "access");
	CHECK_DONE(send_RDMA_read(ctx, &byte, 1, (void *)5000, 77));
	CHECK_EQ(byte, 0);
	CHECK_DONE(RDMA_disconnect(ctx));
	peer_join(&peer);
}

/* Takes news of our memory, and writes there with an immediate, which ping-pong has not. */
static void immediate_writer(struct node *node)
{
	struct rmr_completion c;
	struct rmr_work work;
	const struct memory_notice *notice;

	node_open(node, NULL);
	node_memory(node, MEMORY_ARENA, 64 * KIB, RMR_READ);
	raw_accept(node);
	c = node_expect(node, RMR_OP_RECV, RMR_OK);
	CHECK_EQ(c.length, HEAD + sizeof(*notice));
	notice = (const void *)((const struct message *)c.data)->data;
	CHECK_OK(rmr_remote_open(node->conn, &notice->descriptor, &node->remote));
	rmr_recv_release(node->queue, c.data);
	work = work_of(node, RMR_OP_WRITE_IMM, 0, 8, 0);
	node_post(node, &work);
	while (node_next(node).op != RMR_OP_DISCONNECT)
		;
	node_close(node);
}

static void test_immediate(void)
{
	struct peer peer;
	PingpongContext *ctx;
	uint32_t key;

	peer_start(&peer, immediate_writer, NULL);
	ctx = call_raw(&peer);
	CHECK(RDMA_register(ctx, 4096, &key) != NULL);
	/* The news alone are enough for the peer: it may be here before the packet is there. */
	if (send_packet(ctx) != 0)
		CHECK_CONTAINS(RDMA_error(), "protocol");
	CHECK_FAILS(receive_packet(ctx), "protocol");
	CHECK_DONE(RDMA_disconnect(ctx));
	peer_join(&peer);
}

const struct test hostile_tests[] = {
	{"hostile_callers", test_bad_callers},
	{"hostile_server", test_bad_server},
	{"hostile_messages", test_lies},
	{"hostile_memory_gone_without_a_word", test_memory_gone_without_a_word},
	{"hostile_memory_shorter_than_told", test_memory_shorter_than_told},
	{"hostile_memory_for_reading_only", test_memory_read_only},
	{"hostile_immediate", test_immediate},
	{NULL, NULL},
};
