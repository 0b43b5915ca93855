/* Peers that die, stop, or leave; time that is over; misuse. */
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ends.h"

/* ------------------------------------------------------------------------------------------
 * Death
 */

/* All that is left to do on a lost connection fails at once, and does no harm. */
static void check_lost(PingpongContext *ctx, const char *why)
{
	char byte = 0;
	uint32_t key;

	ctx->timeout_ms = -1;
	ctx->packet.length = 0;
	CHECK_FAILS(send_packet(ctx), why);
	CHECK_FAILS(receive_packet(ctx), why);
	CHECK_FAILS(receive_packet_async(ctx), why);
	CHECK_FAILS(send_fin(ctx), why);
	CHECK_FAILS(receive_fin(ctx), why);
	CHECK_FAILS(send_RDMA_read(ctx, &byte, 1, NULL, 1), why);
	CHECK_FAILS(send_RDMA_write(ctx, "x", NULL, 1), why);
	CHECK_FAILS(send_RDMA_write_bytes(ctx, "x", 1, NULL, 1), why);
	CHECK(RDMA_register(ctx, 1, &key) == NULL);
	CHECK_CONTAINS(RDMA_error(), why);
}

static void test_death_while_receiving(void)
{
	struct end peer;
	PingpongContext *ctx;
	uint32_t key;
	void *memory;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	memory = RDMA_register(ctx, 100000, &key);
	CHECK(memory != NULL);
	tell(ctx, ORDER_ECHO, 0, 0, 0);
	end_kill(&peer);
	CHECK_FAILS(receive_packet(ctx), "disconnected");
	check_lost(ctx, "disconnected");
	/* What is ours can still be given back. */
	CHECK_DONE(RDMA_deregister(ctx, memory));
	CHECK_DONE(RDMA_disconnect(ctx));
}

struct killer {
	pid_t pid;
	unsigned after_ms;
};

static void kill_later(void *arg)
{
	const struct killer *killer = arg;

	test_sleep_ms(killer->after_ms);
	kill(killer->pid, SIGKILL);
}

/* The peer dies while its memory is written and read. */
static void test_death_while_writing(void)
{
	static char bytes[4 * MIB];
	struct end peer;
	PingpongContext *ctx;
	struct killer killer;
	uint32_t key;
	char *remote;
	pid_t pid;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	remote = ask_for_memory(ctx, sizeof(bytes));
	key = ctx->packet.key;
	killer = (struct killer){peer.pid, 100};
	pid = test_spawn(kill_later, &killer);
	while (send_RDMA_write_bytes(ctx, bytes, sizeof(bytes), remote, key) == 0 &&
	       send_RDMA_read(ctx, bytes, sizeof(bytes), remote, key) == 0)
		;
	CHECK(RDMA_error()[0] != 0);
	while (receive_packet(ctx) == 0)
		;
	CHECK_EQ(send_packet(ctx), 1);
	CHECK_DONE(RDMA_disconnect(ctx));
	test_wait(pid);
	end_kill(&peer);
}

/* A client that is killed is noticed by the server, which goes on with the next. */
static void doomed(struct end *end)
{
	PingpongContext *ctx;
	uint32_t key;

	CHECK_DONE(RDMA_connect(end_name(end), &ctx));
	CHECK(RDMA_register(ctx, MIB, &key) != NULL);
	CHECK_DONE(send_packet(ctx));
	receive_packet(ctx);
	TEST_FAIL("was to be killed: %s", RDMA_error());
}

static void test_death_of_clients(void)
{
	PingpongListener *listener;
	struct end clients[3];
	char name[384];

	for (int i = 0; i < 3; i++)
		end_start(&clients[i], doomed, NULL);
	CHECK_DONE(RDMA_listen(fresh_name(name), &listener));
	for (int i = 0; i < 3; i++) {
		PingpongContext *ctx;

		end_tell_name(&clients[i], listener);
		CHECK_DONE(RDMA_accept(listener, (int)PATIENCE_MS, &ctx));
		ctx->timeout_ms = (int)PATIENCE_MS;
		CHECK_DONE(receive_packet(ctx));
		end_kill(&clients[i]);
		CHECK_FAILS(receive_fin(ctx), "disconnected");
		check_lost(ctx, "disconnected");
		CHECK_DONE(RDMA_disconnect(ctx));
	}
	RDMA_unlisten(listener);
}

/* ------------------------------------------------------------------------------------------
 * Time
 */

/* Receives that are in vain, at a peer that says nothing and at one that is stopped: they end in
 * time, and the connection goes on. */
static void test_nothing_comes(void)
{
	struct end peer;
	PingpongContext *ctx;
	uint64_t began_ns;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	for (int i = 0; i < 2; i++) {
		ctx->timeout_ms = 100;
		began_ns = clock_now_ns();
		CHECK_FAILS(receive_packet(ctx), "timeout");
		CHECK(clock_now_ns() - began_ns >= 100000000u);
		CHECK_FAILS(receive_fin(ctx), "100 ms");
		ctx->timeout_ms = 0;
		CHECK_FAILS(receive_packet(ctx), "timeout");
		CHECK_DONE(receive_packet_async(ctx));
		if (i == 0)
			kill(peer.pid, SIGSTOP);
	}
	kill(peer.pid, SIGCONT);
	ctx->timeout_ms = (int)PATIENCE_MS;
	tell(ctx, ORDER_ECHO, 0, 0, 0);
	ctx->timeout_ms = -1;
	tell(ctx, ORDER_ECHO, 0, 0, 0);
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

/* A stopped peer takes only so many packets; then the time of a send is over, for good. */
static void test_nobody_takes(void)
{
	struct end peer;
	PingpongContext *ctx;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	tell(ctx, ORDER_ECHO, 0, 0, 0);
	ctx->timeout_ms = 300;
	ctx->packet.type = ORDER_ECHO;
	ctx->packet.length = PINGPONG_DATA_MAX;
	kill(peer.pid, SIGSTOP);
	while (send_packet(ctx) == 0)
		;
	CHECK_CONTAINS(RDMA_error(), "timeout");
	CHECK_CONTAINS(RDMA_error(), "300 ms");
	check_lost(ctx, "timeout");
	CHECK_DONE(RDMA_disconnect(ctx));
	end_kill(&peer);
}

static void test_nobody_calls(void)
{
	PingpongListener *listener;
	PingpongContext *ctx = NULL;
	char name[384];

	CHECK_DONE(RDMA_listen(fresh_name(name), &listener));
	CHECK_FAILS(RDMA_accept(listener, 0, &ctx), "timeout");
	CHECK_FAILS(RDMA_accept(listener, 50, &ctx), "50 ms");
	CHECK(ctx == NULL);
	RDMA_unlisten(listener);
}

/* ------------------------------------------------------------------------------------------
 * Leaving, and misuse
 */

static void test_leaving(void)
{
	struct end peer;
	PingpongContext *ctx;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	ctx->packet.type = ORDER_LEAVE;
	CHECK_DONE(send_packet(ctx));
	CHECK_FAILS(receive_packet(ctx), "disconnected");
	check_lost(ctx, "disconnected");
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

/* Calls with nothing to work on. */
static void test_nulls(void)
{
	PingpongListener *listener;
	char name[384], byte;
	uint32_t key;
	struct end peer;
	PingpongContext *ctx;

	CHECK_DONE(RDMA_disconnect(NULL));
	RDMA_unlisten(NULL);
	CHECK_STR(RDMA_address(NULL), "");
	CHECK_FAILS(connect_to("shm:x", NULL), "invalid");
	CHECK_FAILS(listen_at("shm:x", NULL), "invalid");
	CHECK_FAILS(RDMA_accept(NULL, 0, &ctx), "invalid");
	CHECK_DONE(RDMA_listen(fresh_name(name), &listener));
	CHECK_FAILS(RDMA_accept(listener, 0, NULL), "invalid");
	RDMA_unlisten(listener);
	CHECK_FAILS(send_packet(NULL), "invalid");
	CHECK_FAILS(receive_packet(NULL), "invalid");
	CHECK_FAILS(receive_packet_async(NULL), "invalid");
	CHECK_FAILS(send_fin(NULL), "invalid");
	CHECK_FAILS(receive_fin(NULL), "invalid");
	CHECK_FAILS(send_RDMA_read(NULL, &byte, 1, &byte, 1), "invalid");
	CHECK_FAILS(send_RDMA_write(NULL, "x", &byte, 1), "invalid");
	CHECK_FAILS(send_RDMA_write_bytes(NULL, "x", 1, &byte, 1), "invalid");
	CHECK_FAILS(RDMA_deregister(NULL, &byte), "invalid");
	CHECK(RDMA_register(NULL, 1, &key) == NULL);

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	CHECK_FAILS(send_RDMA_read(ctx, NULL, 1, &byte, 1), "NULL");
	CHECK_FAILS(send_RDMA_write(ctx, NULL, &byte, 1), "NULL");
	CHECK_FAILS(send_RDMA_write_bytes(ctx, NULL, 1, &byte, 1), "NULL");
	tell(ctx, ORDER_ECHO, 0, 0, 0);
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

const struct test failure_tests[] = {
	{"death_while_receiving", test_death_while_receiving},
	{"death_while_writing", test_death_while_writing},
	{"death_of_clients", test_death_of_clients},
	{"time_nothing_comes", test_nothing_comes},
	{"time_nobody_takes", test_nobody_takes},
	{"time_nobody_calls", test_nobody_calls},
	{"leaving", test_leaving},
	{"misuse", test_nulls},
	{NULL, NULL},
};
