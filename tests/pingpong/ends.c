/* The two ends of a test, and servants: see ends.h. */
#include "ends.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------
 * Processes
 */

static void end_main(void *arg)
{
	struct end *end = arg;

	end->side = TEST_CHILD;
	test_pipe_take(&end->pipe, TEST_CHILD);
	end->role(end);
	RDMA_unlisten(end->listener);
}

void end_start(struct end *end, void (*role)(struct end *end), void *arg)
{
	*end = (struct end){.role = role, .arg = arg, .side = TEST_PARENT};
	test_pipe_open(&end->pipe);
	end->pid = test_spawn(end_main, end);
	test_pipe_take(&end->pipe, TEST_PARENT);
}

void end_join(struct end *end)
{
	test_wait(end->pid);
	test_pipe_close(&end->pipe);
}

void end_kill(struct end *end)
{
	test_kill(end->pid);
	test_pipe_close(&end->pipe);
}

char *raw_name(const char *address, char name[384])
{
	snprintf(name, 384, "%s%s%s", fixture.device, fixture.host ? "://" : ":", address);
	return name;
}

char *fresh_name(char name[384])
{
	char address[128];

	return raw_name(fixture_address(address), name);
}

void end_listen(struct end *end)
{
	char name[384];

	CHECK_DONE(RDMA_listen(fresh_name(name), &end->listener));
	snprintf(name, sizeof(name), "%s", RDMA_address(end->listener));
	test_send(&end->pipe, TEST_CHILD, name, sizeof(name));
}

PingpongContext *end_accept(struct end *end)
{
	PingpongContext *ctx;

	CHECK_DONE(RDMA_accept(end->listener, (int)PATIENCE_MS, &ctx));
	ctx->timeout_ms = (int)PATIENCE_MS;
	return ctx;
}

char *end_name(struct end *end)
{
	if (!end->name[0])
		test_recv(&end->pipe, end->side, end->name, sizeof(end->name));
	return end->name;
}

void end_tell_name(struct end *end, const PingpongListener *listener)
{
	char name[384];

	snprintf(name, sizeof(name), "%s", RDMA_address(listener));
	test_send(&end->pipe, TEST_PARENT, name, sizeof(name));
}

PingpongContext *end_call(struct end *end)
{
	PingpongContext *ctx;

	CHECK_DONE(RDMA_connect(end_name(end), &ctx));
	CHECK_EQ(ctx->timeout_ms, 10000);
	ctx->timeout_ms = (int)PATIENCE_MS;
	return ctx;
}

/* ------------------------------------------------------------------------------------------
 * Servants
 */

/* False: it is to leave. */
static bool obey(PingpongContext *ctx)
{
	PingpongPacket *packet = &ctx->packet;
	void *memory = (void *)(uintptr_t)packet->addr;

	switch ((enum order)packet->type) {
	case ORDER_REGISTER:
		memory = RDMA_register(ctx, packet->size, &packet->key);
		if (!memory)
			TEST_FAIL("RDMA_register: %s", RDMA_error());
		packet->addr = (uintptr_t)memory;
		break;
	case ORDER_DEREGISTER:
		CHECK_DONE(RDMA_deregister(ctx, memory));
		break;
	case ORDER_FILL:
		pattern_fill(memory, packet->size, packet->key);
		break;
	case ORDER_CHECK:
		pattern_check(memory, packet->size, packet->key, "the servant's memory");
		break;
	case ORDER_TALK:
		talk(ctx, packet->key);
		packet->type = ORDER_TALK;
		break;
	case ORDER_FIN:
		for (uint64_t i = 0; i < packet->size; i++)
			CHECK_DONE(receive_fin(ctx));
		break;
	case ORDER_FORGET:
		CHECK_DONE(RDMA_deregister(ctx, memory));
		return true;
	case ORDER_LEAVE:
		return false;
	case ORDER_ECHO:
		break;
	}
	CHECK_DONE(send_packet(ctx));
	return true;
}

void serve(PingpongContext *ctx)
{
	while (receive_packet(ctx) == 0)
		if (!obey(ctx))
			break;
	CHECK_DONE(RDMA_disconnect(ctx));
}

void servant(struct end *end)
{
	end_listen(end);
	serve(end_accept(end));
}

void tell(PingpongContext *ctx, enum order order, uint64_t addr, uint64_t size, uint32_t key)
{
	ctx->packet.type = order;
	ctx->packet.addr = addr;
	ctx->packet.size = size;
	ctx->packet.key = key;
	ctx->packet.length = 0;
	CHECK_DONE(send_packet(ctx));
	CHECK_DONE(receive_packet(ctx));
	CHECK_EQ(ctx->packet.type, order);
}

char *ask_for_memory(PingpongContext *ctx, size_t size)
{
	tell(ctx, ORDER_REGISTER, 0, size, 0);
	CHECK(ctx->packet.addr != 0);
	CHECK(ctx->packet.key != 0);
	return (char *)(uintptr_t)ctx->packet.addr;
}

/* ------------------------------------------------------------------------------------------
 * Talks
 */

/* Whether the i-th is a packet; the last is. */
static bool is_packet(uint64_t seed, int i)
{
	return i == TALK_LENGTH - 1 || (seed * 0x9e3779b97f4a7c15u >> i) % 2;
}

static uint32_t talk_length(uint64_t seed, int i)
{
	return (uint32_t)((seed + 1) * (uint64_t)(i + 1) * 997 % (PINGPONG_DATA_MAX + 1));
}

void talk(PingpongContext *ctx, uint64_t seed)
{
	for (int i = 0; i < TALK_LENGTH; i++) {
		if (!is_packet(seed, i)) {
			CHECK_DONE(send_fin(ctx));
			continue;
		}
		ctx->packet.type = 1000 + (uint32_t)i;
		ctx->packet.addr = seed + (uint64_t)i;
		ctx->packet.length = talk_length(seed, i);
		pattern_fill(ctx->packet.data, ctx->packet.length, seed + (uint64_t)i);
		CHECK_DONE(send_packet(ctx));
	}
}

static void hear_fins(PingpongContext *ctx, uint64_t seed)
{
	for (int i = 0; i < TALK_LENGTH; i++)
		if (!is_packet(seed, i))
			CHECK_DONE(receive_fin(ctx));
}

void hear(PingpongContext *ctx, uint64_t seed, bool fins_last)
{
	if (!fins_last)
		hear_fins(ctx, seed);
	for (int i = 0; i < TALK_LENGTH; i++) {
		if (!is_packet(seed, i))
			continue;
		CHECK_DONE(receive_packet(ctx));
		CHECK_EQ(ctx->packet.type, 1000 + i);
		CHECK_EQ(ctx->packet.addr, seed + (uint64_t)i);
		CHECK_EQ(ctx->packet.length, talk_length(seed, i));
		pattern_check(ctx->packet.data, ctx->packet.length, seed + (uint64_t)i, "a talk");
		CHECK_EQ(ctx->packet.data[ctx->packet.length], 0);
	}
	if (fins_last)
		hear_fins(ctx, seed);
}
