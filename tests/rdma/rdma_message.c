/* Messages: of every length, in order, each once; immediates; no room, and room again; rings that
 * wrap again and again. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "raw.h"

static void test_echo(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_open(&server, NULL, &watch);
	CHECK_EQ(rdmaConnSend(conn, "hello", 5), 5);
	watch_await(&watch.messages, 1);
	CHECK_EQ(watch.last_length, 5);
	CHECK_MEM(watch.last, "hello", 5);
	rdmaConnClose(conn);
	server_end(&server);
}

/* Every length around what could matter, there and back. */
static void test_sizes(void)
{
	static const size_t sizes[] = {1,    2,	   15,	 16,   17,   48,    63,	   64,
				       112,  113,  127,	 128,  129,  255,   256,   1000,
				       4095, 4096, 4097, 8192, 9999, 65535, 65536, 262144};
	struct server server = {0};
	static struct watch watch;
	RdmaConn *conn;
	uint8_t *data = malloc(262144);

	server_start(&server, serve_echo, NULL);
	conn = client_open(&server, NULL, &watch);
	CHECK_EQ(rdmaConnMaxSend(conn), 262144);
	for (unsigned i = 0; i < TEST_COUNT(sizes); i++) {
		size_t kept = sizes[i] < WATCH_KEPT ? sizes[i] : WATCH_KEPT;

		numbered_fill(data, sizes[i], i);
		client_send(conn, data, sizes[i]);
		watch_await(&watch.messages, i + 1);
		CHECK_EQ(watch.last_length, sizes[i]);
		CHECK_MEM(watch.last, data, kept);
	}
	free(data);
	rdmaConnClose(conn);
	server_end(&server);
}

static void test_immediates(void)
{
	static const uint32_t imms[] = {1, 0x80000000u, UINT32_MAX, 0x7fffffffu};
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_open(&server, NULL, &watch);
	for (unsigned i = 0; i < TEST_COUNT(imms); i++) {
		CHECK_EQ(rdmaConnSendWithImm(conn, imms[i], "x", i ? 1 : 0), 1);
		watch_await(&watch.imms, i + 1);
		CHECK_EQ(watch.last_imm, imms[i]);
		CHECK_EQ(watch.last_length, i ? 1 : 0);
	}
	CHECK_EQ(watch.messages, 0);
	rdmaConnClose(conn);
	server_end(&server);
}

/* Without a callback for immediates they come to the other one; without any they are dropped. */
static void test_without_callbacks(void)
{
	struct server server = {0};
	struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	conn = client_open(&server, NULL, &watch);
	rdmaConnSetRecvImmCallback(conn, NULL);
	CHECK_EQ(rdmaConnSendWithImm(conn, 5, "five", 4), 4);
	watch_await(&watch.messages, 1);
	CHECK_MEM(watch.last, "five", 4);
	rdmaConnSetRecvCallback(conn, NULL);
	CHECK_EQ(rdmaConnSend(conn, "dropped", 7), 7);
	CHECK_EQ(rdmaConnSendWithImm(conn, 5, "dropped", 7), 7);
	test_sleep_ms(50);
	CHECK_EQ(watch.messages, 1);
	rdmaConnClose(conn);
	server_end(&server);
}

/* Counts on a connection to the sink: asks until it has them all. */
static void await_count(RdmaConn *conn, struct watch *watch, uint64_t count)
{
	uint64_t told = 0;

	for (unsigned asked = 1; told < count; asked++) {
		client_order(conn, ORDER_COUNT, NULL, 0);
		watch_await(&watch->imms, asked);
		memcpy(&told, watch->last, sizeof(told));
	}
	CHECK_EQ(told, count);
}

static void send_numbered(RdmaConn *conn, uint64_t first, uint64_t count, size_t max, void *data)
{
	for (uint64_t i = first; i < first + count; i++) {
		size_t length = numbered_length(i, max);

		numbered_fill(data, length, i);
		client_send(conn, data, length);
	}
}

/* A stream of varying lengths through rings of every size; the smallest wraps all the time. */
static void stream(size_t ring, uint64_t count)
{
	RdmaOptions server_options = {.ringSize = ring};
	struct server server = {.arg = (void *)(ring / 4)};
	static struct watch watch;
	RdmaConn *conn;
	void *data = malloc(ring / 4);

	server_start(&server, serve_sink, &server_options);
	conn = client_open(&server, NULL, &watch);
	CHECK_EQ(rdmaConnMaxSend(conn), ring / 4);
	send_numbered(conn, 0, count, ring / 4, data);
	await_count(conn, &watch, count);
	rdmaConnClose(conn);
	server_end(&server);
	free(data);
}

static void test_stream_small_ring(void)
{
	stream(4096, 20000 / TEST_TIME_FACTOR);
}

static void test_stream_large_ring(void)
{
	stream(1 * MIB, 2000 / TEST_TIME_FACTOR);
}

/* Ten gigabytes through one connection: every byte is looked at. */
static void test_ten_gigabytes(void)
{
	uint64_t total = 10000000000u / (setup_is_shm() ? 1 : 20), sent = 0, number = 0;
	size_t max = 64 * KIB;
	struct server server = {.arg = (void *)max};
	static struct watch watch;
	RdmaConn *conn;
	void *data = malloc(max);

	server_start(&server, serve_sink, NULL);
	conn = client_open(&server, NULL, &watch);
	while (sent < total) {
		size_t length = numbered_length(number, max);

		numbered_fill(data, length, number++);
		client_send(conn, data, length);
		sent += length;
	}
	await_count(conn, &watch, number);
	rdmaConnClose(conn);
	server_end(&server);
	free(data);
}

/* The peer floods from its callbacks, and we take it in order. */
static _Atomic uint64_t flood_next;

static void take_flood(RdmaConn *conn, const void *data, size_t length)
{
	uint64_t number = flood_next;

	(void)conn;
	CHECK_EQ(length, numbered_length(number, 4 * KIB));
	CHECK(numbered_is(data, length, number));
	flood_next = number + 1;
}

static void test_flood_from_callbacks(void)
{
	RdmaOptions options = {.ringSize = 16 * KIB};
	struct flood flood = {.count = 50000 / TEST_TIME_FACTOR};
	struct server server = {0};
	static struct watch watch;
	RdmaConn *conn;

	server_start(&server, serve_echo, NULL);
	flood_next = 0;
	conn = client_make(&options, &watch);
	rdmaConnSetRecvCallback(conn, take_flood);
	CHECK_RDMA(client_connect(conn, &server));
	client_order(conn, ORDER_FLOOD, &flood, sizeof(flood));
	AWAIT(flood_next == flood.count);
	rdmaConnClose(conn);
	server_end(&server);
}

/* A peer that is stopped takes nothing: sends return 0, and when it goes on the callback tells. */
static void test_no_room(void)
{
	RdmaOptions options = {.ringSize = 64 * KIB};
	struct server server = {.arg = (void *)1000};
	static struct watch watch;
	uint8_t data[1000];
	RdmaConn *conn;
	uint64_t number = 0;
	size_t sent;

	server_start(&server, serve_sink, &options);
	conn = client_open(&server, NULL, &watch);
	server_pause(&server);
	do {
		size_t length = numbered_length(number, 1000);

		numbered_fill(data, length, number);
		sent = rdmaConnSend(conn, data, length);
		number += sent > 0;
	} while (sent != 0 && sent != RDMA_SEND_ERR);
	CHECK_EQ(sent, 0);
	CHECK(number > 60);
	test_sleep_ms(20);
	CHECK_EQ(watch.sendable, 0);
	CHECK_EQ(watch.disconnected, 0);
	server_resume(&server);
	watch_await(&watch.sendable, 1);
	send_numbered(conn, number, 1000, 1000, data);
	await_count(conn, &watch, number + 1000);
	CHECK(watch.sendable >= 1);
	rdmaConnClose(conn);
	server_end(&server);
}

/* What was sent before closing arrives, also when the ring is full by then. */
static _Atomic uint64_t last_words;

static void test_close_after_sending(void)
{
	struct server server = {.arg = (void *)(4 * KIB)};
	static struct watch watch, other;
	uint8_t data[4 * KIB];
	uint64_t count = 0;
	RdmaConn *conn, *observer;

	server_start(&server, serve_echo, NULL);
	observer = client_open(&server, NULL, &other);
	last_words = 0;
	conn = client_open(&server, NULL, &watch);
	/* The echo server counts what it was sent, and tells the next who asks by a write. */
	for (; count < 200; count++) {
		numbered_fill(data, sizeof(data), count);
		client_send(conn, data, sizeof(data));
	}
	client_order(conn, ORDER_CLOSE_ALL, NULL, 0); /* the last word: closes the observer */
	rdmaConnClose(conn);
	watch_await(&other.disconnected, 1);
	CHECK_EQ(other.status, RMR_DISCONNECTED);
	CHECK_CONTAINS(other.reason, "closed");
	rdmaConnClose(observer);
	server_end(&server);
}

/* Both directions at once, more than the rings hold: nobody waits for the other for ever. */
static void test_both_ways(void)
{
	RdmaOptions options = {.ringSize = 32 * KIB};
	struct server server = {0};
	static struct watch watch;
	unsigned count = 20000 / TEST_TIME_FACTOR;
	uint8_t data[512];
	RdmaConn *conn;

	server_start(&server, serve_echo, &options);
	/* The echo server must always find room: so ours is larger than what can be under way. */
	conn = client_open(&server, &(RdmaOptions){.ringSize = 1 * MIB}, &watch);
	for (unsigned i = 0; i < count; i++) {
		while (i - watch.messages > 50)
			sched_yield();
		numbered_fill(data, sizeof(data), i);
		client_send(conn, data, 8 + i % 500);
	}
	watch_await(&watch.messages, count);
	rdmaConnClose(conn);
	server_end(&server);
}

/* Waits until the ring is filled up to there. */
static void await_filled(struct raw *raw, size_t offset)
{
	struct rmr_completion completion;

	do {
		CHECK_EQ(rmr_wait(raw->queue, &completion, 1, PATIENCE_MS), 1);
		CHECK_OK(completion.status);
	} while (completion.op != RMR_OP_RECV_IMM || completion.immediate != offset / WIRE_UNIT);
}

#define LONGEST (RAW_RING / 4)

/* After three of the longest messages the fourth does not fit any more at the end of our ring. What
 * is left there is skipped, and not written: it would cost as much as a message. */
static void look_at_end(struct server *server)
{
	size_t size = wire_room(LONGEST), end = 3 * size;
	struct wire_record record;
	struct raw raw;
	int port;

	raw_open(&raw);
	memset(raw.ring, 0xaa, RAW_RING);
	port = raw_listen(&raw);
	test_send(&server->pipe, TEST_CHILD, &port, sizeof(port));
	raw_accept(&raw);
	raw_greet(&raw);
	await_filled(&raw, end);
	raw_immediate(&raw, WIRE_CREDIT | (uint32_t)(end / WIRE_UNIT));
	await_filled(&raw, size);
	memcpy(&record, raw.ring + end, sizeof(record));
	CHECK_EQ(record.kind, RECORD_SKIP);
	CHECK_EQ(record.length, RAW_RING - end - sizeof(record));
	/* Our hello has been before this. */
	for (size_t at = RAW_RING - 512; at < RAW_RING; at++)
		CHECK_EQ(raw.ring[at], 0xaa);
	memcpy(&record, raw.ring, sizeof(record));
	CHECK_EQ(record.kind, RECORD_MESSAGE);
	CHECK_EQ(raw.ring[sizeof(record)], 3);
	raw_close(&raw);
}

static void test_end_of_ring(void)
{
	struct server server = {0};
	static struct watch watch;
	uint8_t data[LONGEST];
	RdmaConn *conn;
	int port;

	server_start(&server, look_at_end, NULL);
	test_recv(&server.pipe, TEST_PARENT, &port, sizeof(port));
	conn = client_make(NULL, &watch);
	CHECK_RDMA(rdmaConnect(conn, setup_address(), port));
	CHECK_EQ(rdmaConnMaxSend(conn), LONGEST);
	for (int i = 0; i < 4; i++) {
		memset(data, i, sizeof(data));
		client_send(conn, data, sizeof(data));
	}
	test_wait(server.pid);
	test_pipe_close(&server.pipe);
	rdmaConnClose(conn);
}

const struct test message_tests[] = {
	{"message_echo", test_echo},
	{"message_sizes", test_sizes},
	{"message_immediates", test_immediates},
	{"message_without_callbacks", test_without_callbacks},
	{"message_stream_small_ring", test_stream_small_ring},
	{"message_stream_large_ring", test_stream_large_ring},
	{"message_end_of_ring", test_end_of_ring},
	{"message_ten_gigabytes", test_ten_gigabytes, TEST_SLOW, 300},
	{"message_flood_from_callbacks", test_flood_from_callbacks},
	{"message_no_room", test_no_room},
	{"message_close_after_sending", test_close_after_sending},
	{"message_both_ways", test_both_ways},
	{0},
};
