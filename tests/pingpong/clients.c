/* Many clients, names, and the header's example. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ends.h"

#define CLIENTS 8

/* ------------------------------------------------------------------------------------------
 * The example in the header, as it is there but for the name
 */

static void example_server(struct end *end)
{
	PingpongContext *ctx;

	end_listen(end);
	CHECK_DONE(RDMA_accept(end->listener, -1, &ctx));
	CHECK_DONE(receive_packet(ctx));
	CHECK_STR(ctx->packet.data, "hello");
	char *memory = RDMA_register(ctx, 1 << 20, &ctx->packet.key);
	ctx->packet.addr = (uintptr_t)memory;
	CHECK_DONE(send_packet(ctx));
	CHECK_DONE(receive_fin(ctx));
	CHECK_STR(memory, "a long text");
	CHECK_DONE(RDMA_disconnect(ctx));
}

static void test_example(void)
{
	struct end peer;
	PingpongContext *ctx;

	end_start(&peer, example_server, NULL);
	CHECK_DONE(RDMA_connect(end_name(&peer), &ctx));
	ctx->packet.length = 5;
	memcpy(ctx->packet.data, "hello", 5);
	CHECK_DONE(send_packet(ctx));
	CHECK_DONE(receive_packet(ctx));
	CHECK_DONE(send_RDMA_write(ctx, "a long text", (void *)(uintptr_t)ctx->packet.addr,
				   ctx->packet.key));
	CHECK_DONE(send_fin(ctx));
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

/* ------------------------------------------------------------------------------------------
 * Many clients
 */

/* A server with all its clients at once: it takes their orders in turn. */
static void serve_all(struct end *end)
{
	PingpongContext *clients[CLIENTS];
	uint32_t keys[CLIENTS];
	char *memory[CLIENTS];

	end_listen(end);
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = end_accept(end);
	for (int i = 0; i < CLIENTS; i++) {
		memory[i] = RDMA_register(clients[i], MIB, &keys[i]);
		CHECK(memory[i] != NULL);
		clients[i]->packet.addr = (uintptr_t)memory[i];
		clients[i]->packet.key = keys[i];
		CHECK_DONE(send_packet(clients[i]));
	}
	for (int round = 0; round < 20; round++) {
		for (int i = CLIENTS - 1; i >= 0; i--) {
			CHECK_DONE(receive_packet(clients[i]));
			CHECK_DONE(receive_fin(clients[i]));
			pattern_check(memory[i], MIB, clients[i]->packet.size, "of a client");
			CHECK_DONE(send_fin(clients[i]));
		}
	}
	/* The listener may go before the contexts. */
	RDMA_unlisten(end->listener);
	end->listener = NULL;
	for (int i = 0; i < CLIENTS; i++) {
		CHECK_FAILS(receive_packet(clients[i]), "disconnected");
		CHECK_DONE(RDMA_disconnect(clients[i]));
	}
}

static void client_of_all(struct end *end)
{
	static char bytes[MIB];
	PingpongContext *ctx;
	uint32_t key;
	char *remote;

	CHECK_DONE(RDMA_connect(end->arg, &ctx));
	ctx->timeout_ms = (int)PATIENCE_MS;
	CHECK_DONE(receive_packet(ctx));
	remote = (char *)(uintptr_t)ctx->packet.addr;
	key = ctx->packet.key;
	for (uint64_t round = 0; round < 20; round++) {
		ctx->packet.size = (uint64_t)getpid() * 100 + round;
		pattern_fill(bytes, sizeof(bytes), ctx->packet.size);
		CHECK_DONE(send_RDMA_write_bytes(ctx, bytes, sizeof(bytes), remote, key));
		CHECK_DONE(send_packet(ctx));
		CHECK_DONE(send_fin(ctx));
		CHECK_DONE(receive_fin(ctx));
	}
	CHECK_DONE(RDMA_disconnect(ctx));
}

static void test_at_once(void)
{
	struct end server, clients[CLIENTS];

	end_start(&server, serve_all, NULL);
	end_name(&server);
	for (int i = 0; i < CLIENTS; i++)
		end_start(&clients[i], client_of_all, server.name);
	for (int i = 0; i < CLIENTS; i++)
		end_join(&clients[i]);
	end_join(&server);
}

static void serve_one_by_one(struct end *end)
{
	end_listen(end);
	for (int i = 0; i < 10; i++)
		serve(end_accept(end));
}

/* One after another at one listener; nothing is left of them. */
static void test_one_after_another(void)
{
	struct end peer;
	int fds = 0, mappings = 0;

	end_start(&peer, serve_one_by_one, NULL);
	for (int i = 0; i < 10; i++) {
		PingpongContext *ctx = end_call(&peer);
		char byte, *remote = ask_for_memory(ctx, 1000);
		uint32_t key;

		CHECK_DONE(send_RDMA_read(ctx, &byte, 1, remote, ctx->packet.key));
		CHECK(RDMA_register(ctx, 1000, &key) != NULL);
		tell(ctx, ORDER_ECHO, 0, 0, 0);
		CHECK_DONE(RDMA_disconnect(ctx));
		/* The first make what stays: libraries of the system, arenas of malloc. */
		if (i == 2)
			mappings = test_mapping_count();
		if (i == 2)
			fds = test_open_fds();
	}
	CHECK_EQ(test_open_fds(), fds);
	if (!TEST_HAS_SANITIZER)
		CHECK(test_mapping_count() <= mappings + 2);
	end_join(&peer);
}

/* ------------------------------------------------------------------------------------------
 * Names
 */

static void test_bad_names(void)
{
	PingpongListener *listener = NULL;
	PingpongContext *ctx = NULL;
	char name[384], long_name[1000];

	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = 0;
	CHECK_FAILS(connect_to("no-such-device://here", &ctx), "no-such-device");
	CHECK_FAILS(listen_at("no-such-device://here", &listener), "no-such-device");
	CHECK_FAILS(connect_to("tcp://127.0.0.1:port", &ctx), "port");
	CHECK_FAILS(connect_to("tcp://127.0.0.1:0", &ctx), "port");
	CHECK_FAILS(connect_to("shm:", &ctx), "shm:NAME");
	CHECK_FAILS(connect_to("://127.0.0.1", &ctx), "device");
	CHECK_FAILS(connect_to(long_name, &ctx), "999 bytes");
	CHECK_FAILS(listen_at(long_name, &listener), "999 bytes");
	CHECK_FAILS(listen_at("tcp://127.0.0.1:99999", &listener), "port");
	CHECK_FAILS(listen_at("tcp://[::1:0", &listener), "v6");
	CHECK(ctx == NULL && listener == NULL);
	/* Nobody listens there any more. */
	CHECK_DONE(RDMA_listen(fresh_name(name), &listener));
	snprintf(name, sizeof(name), "%s", RDMA_address(listener));
	RDMA_unlisten(listener);
	CHECK_EQ(RDMA_connect(name, &ctx), 1);
	CHECK_CONTAINS(RDMA_error(), name);
	CHECK(ctx == NULL);
}

/* A name that is taken; and the one that RDMA_address() tells is the one that was given. */
static void test_name_in_use(void)
{
	PingpongListener *listener, *second = NULL;
	char name[384];

	CHECK_DONE(RDMA_listen(fresh_name(name), &listener));
	if (!fixture.host)
		CHECK_STR(RDMA_address(listener), name);
	snprintf(name, sizeof(name), "%s", RDMA_address(listener));
	CHECK_EQ(RDMA_listen(name, &second), 1);
	CHECK(second == NULL);
	RDMA_unlisten(listener);
	CHECK_DONE(RDMA_listen(name, &second));
	CHECK_STR(RDMA_address(second), name);
	RDMA_unlisten(second);
}

static void default_server(struct end *end)
{
	CHECK_DONE(listen_at(NULL, &end->listener));
	CHECK_STR(RDMA_address(end->listener), "shm:rdma-18515");
	test_signal(&end->pipe, TEST_CHILD);
	serve(end_accept(end));
	serve(end_accept(end));
	serve(end_accept(end));
}

/* The device comes from the environment when the name has none. Names of shm lie in a directory of
 * this test, so that no other run is in the way. */
static void test_environment(void)
{
	static const char *const names[] = {NULL, "localhost", "127.0.0.1:18515"};
	struct end peer;
	PingpongContext *ctx;

	setenv("REMORA_RDMA_DEVICE", "shm", 1);
	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	end_start(&peer, default_server, NULL);
	test_await(&peer.pipe, TEST_PARENT);
	for (size_t i = 0; i < TEST_COUNT(names); i++) {
		CHECK_DONE(connect_to(names[i], &ctx));
		tell(ctx, ORDER_ECHO, 0, 0, 0);
		CHECK_DONE(RDMA_disconnect(ctx));
	}
	end_join(&peer);
	setenv("REMORA_RDMA_DEVICE", "no-such-device", 1);
	CHECK_FAILS(connect_to(NULL, &ctx), "no-such-device");
}

/* Without a device it is tcp. */
static void test_plain_host(void)
{
	static const char *const names[] = {"127.0.0.1:0", "localhost:0", ":0", "*:0", "[::1]:0"};

	for (size_t i = 0; i < TEST_COUNT(names); i++) {
		PingpongListener *listener;

		if (names[i][0] == '[' && listen_at(names[i], &listener) != 0)
			continue; /* a machine without IPv6 */
		if (names[i][0] != '[')
			CHECK_DONE(listen_at(names[i], &listener));
		CHECK_CONTAINS(RDMA_address(listener), "tcp://");
		CHECK(!strstr(RDMA_address(listener), ":0"));
		RDMA_unlisten(listener);
	}
}

const struct test client_tests[] = {
	{"example_of_the_header", test_example},
	{"clients_at_once", test_at_once},
	{"clients_one_after_another", test_one_after_another},
	{"names_that_are_bad", test_bad_names},
	{"names_in_use", test_name_in_use},
	{"names_by_the_environment", test_environment},
	{"names_without_a_device", test_plain_host},
	{NULL, NULL},
};
