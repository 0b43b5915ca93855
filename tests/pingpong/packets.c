/* Packets and FINs, in any order. */
#include <string.h>

#include "ends.h"

static void check_echo(PingpongContext *ctx, uint32_t length)
{
	PingpongPacket sent = {.type = ORDER_ECHO,
			       .key = 0xfedcba98u,
			       .addr = UINT64_MAX - 1,
			       .size = 1ull << 63,
			       .length = length};

	pattern_fill(sent.data, length, length);
	memcpy(&ctx->packet, &sent, sizeof(sent));
	CHECK_DONE(send_packet(ctx));
	CHECK_MEM(&ctx->packet, &sent, sizeof(sent));
	memset(&ctx->packet, 0x55, sizeof(ctx->packet));
	CHECK_DONE(receive_packet(ctx));
	CHECK_EQ(ctx->packet.type, sent.type);
	CHECK_EQ(ctx->packet.key, sent.key);
	CHECK_EQ(ctx->packet.addr, sent.addr);
	CHECK_EQ(ctx->packet.size, sent.size);
	CHECK_EQ(ctx->packet.length, length);
	CHECK_MEM(ctx->packet.data, sent.data, length);
	CHECK_EQ(ctx->packet.data[length], 0);
}

static void test_every_length(void)
{
	static const uint32_t lengths[] = {0, 1, 2, 7, 63, 64, 65, 1000, 4095, PINGPONG_DATA_MAX};
	struct end peer;
	PingpongContext *ctx;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	for (size_t i = 0; i < TEST_COUNT(lengths); i++)
		check_echo(ctx, lengths[i]);
	for (uint32_t length = 0; length <= PINGPONG_DATA_MAX; length += 127)
		check_echo(ctx, length);
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

/* What is too long is not sent, and the connection goes on. */
static void test_too_long(void)
{
	struct end peer;
	PingpongContext *ctx;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	ctx->packet.length = PINGPONG_DATA_MAX + 1;
	CHECK_FAILS(send_packet(ctx), "too-long");
	ctx->packet.length = UINT32_MAX;
	CHECK_FAILS(send_packet(ctx), "4096");
	check_echo(ctx, 10);
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

/* A talk of packets and FINs: heard in the order of packets and in that of FINs. */
static void test_any_order(void)
{
	struct end peer;
	PingpongContext *ctx;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	for (uint32_t seed = 0; seed < 20; seed++) {
		ctx->packet = (PingpongPacket){.type = ORDER_TALK, .key = seed};
		CHECK_DONE(send_packet(ctx));
		hear(ctx, seed, seed % 2);
		CHECK_DONE(receive_packet(ctx));
		CHECK_EQ(ctx->packet.type, ORDER_TALK);
	}
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

static void talk_and_hear(struct end *end)
{
	PingpongContext *ctx;

	end_listen(end);
	ctx = end_accept(end);
	talk(ctx, 1);
	hear(ctx, 2, false);
	CHECK_DONE(RDMA_disconnect(ctx));
}

/* Both say all they have to say before either listens. */
static void test_both_talk(void)
{
	struct end peer;
	PingpongContext *ctx;

	end_start(&peer, talk_and_hear, NULL);
	ctx = end_call(&peer);
	talk(ctx, 2);
	hear(ctx, 1, true);
	end_join(&peer);
	CHECK_FAILS(receive_packet(ctx), "disconnected");
	CHECK_DONE(RDMA_disconnect(ctx));
}

static void send_many(struct end *end)
{
	PingpongContext *ctx;

	char *memory;

	end_listen(end);
	ctx = end_accept(end);
	memory = RDMA_register(ctx, 4096, &ctx->packet.key);
	CHECK(memory != NULL);
	ctx->packet.size = (uintptr_t)memory;
	for (uint64_t i = 0; i < 3 * PINGPONG_KEPT_MAX; i++) {
		ctx->packet.addr = i;
		CHECK_DONE(send_packet(ctx));
	}
	CHECK_DONE(send_fin(ctx));
	CHECK_DONE(receive_packet(ctx));
	CHECK_STR(memory, "while all waits");
	CHECK_DONE(RDMA_disconnect(ctx));
}

/* More packets than can be kept: their sender waits, and a FIN behind them is not waited for. What
 * goes the other way goes on. */
static void test_more_than_can_wait(void)
{
	struct end peer;
	PingpongContext *ctx;
	char text[64];
	void *remote;
	uint32_t key;

	end_start(&peer, send_many, NULL);
	ctx = end_call(&peer);
	CHECK_DONE(receive_packet(ctx));
	CHECK_EQ(ctx->packet.addr, 0);
	remote = (void *)(uintptr_t)ctx->packet.size;
	key = ctx->packet.key;
	CHECK_FAILS(receive_fin(ctx), "receive packets first");
	CHECK_DONE(send_RDMA_write(ctx, "while all waits", remote, key));
	CHECK_DONE(send_RDMA_read(ctx, text, sizeof(text), remote, key));
	CHECK_STR(text, "while all waits");
	CHECK_DONE(send_packet(ctx));
	for (uint64_t i = 1; i < 3 * PINGPONG_KEPT_MAX; i++) {
		CHECK_DONE(receive_packet(ctx));
		CHECK_EQ(ctx->packet.addr, i);
	}
	CHECK_DONE(receive_fin(ctx));
	CHECK_FAILS(receive_fin(ctx), "disconnected");
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

static void talk_and_leave(struct end *end)
{
	PingpongContext *ctx;

	end_listen(end);
	ctx = end_accept(end);
	talk(ctx, 5);
	CHECK_DONE(RDMA_disconnect(ctx));
	test_signal(&end->pipe, TEST_CHILD);
}

/* What was sent arrives although its sender has left, also after a send here has failed. */
static void test_sent_before_leaving(void)
{
	struct end peer;
	PingpongContext *ctx;

	end_start(&peer, talk_and_leave, NULL);
	ctx = end_call(&peer);
	test_await(&peer.pipe, TEST_PARENT);
	end_join(&peer);
	while (send_packet(ctx) == 0)
		;
	CHECK_CONTAINS(RDMA_error(), "disconnected");
	CHECK_DONE(receive_packet_async(ctx));
	hear(ctx, 5, false);
	CHECK_FAILS(receive_packet(ctx), "disconnected");
	CHECK_FAILS(receive_packet_async(ctx), "disconnected");
	CHECK_FAILS(receive_fin(ctx), "disconnected");
	CHECK_FAILS(send_fin(ctx), "disconnected");
	CHECK_DONE(RDMA_disconnect(ctx));
}

/* Receives that are asked for early do not wait, and what comes is there later. */
static void test_async(void)
{
	struct end peer;
	PingpongContext *ctx;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	for (uint64_t i = 0; i < 100; i++) {
		CHECK_DONE(receive_packet_async(ctx));
		ctx->packet = (PingpongPacket){.type = ORDER_ECHO, .addr = i};
		CHECK_DONE(send_packet(ctx));
		CHECK_DONE(receive_packet_async(ctx));
		ctx->packet.addr = 0;
		CHECK_DONE(receive_packet(ctx));
		CHECK_EQ(ctx->packet.addr, i);
	}
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

const struct test packet_tests[] = {
	{"packet_of_every_length", test_every_length},
	{"packet_too_long", test_too_long},
	{"packets_and_fins_in_any_order", test_any_order},
	{"packets_both_ways_at_once", test_both_talk},
	{"packets_more_than_can_wait", test_more_than_can_wait},
	{"packets_sent_before_leaving", test_sent_before_leaving},
	{"packets_asked_for_early", test_async},
	{NULL, NULL},
};
