/* Registered memory: reads and writes of all sizes, wrong keys and bounds, and memory that is taken
 * back. */
#include <stdlib.h>
#include <string.h>

#include "ends.h"

#define CHUNK (256 * KIB) /* of the bounce buffer */

/* Writes and reads `size` bytes at an offset; what lies around stays. */
static void check_size(PingpongContext *ctx, char *remote, uint32_t key, size_t size, size_t offset)
{
	uint8_t *bytes = malloc(size + 2);

	CHECK(bytes != NULL);
	memset(bytes, 0x77, size + 2);
	pattern_fill(bytes + 1, size, size);
	CHECK_DONE(send_RDMA_write_bytes(ctx, bytes + 1, size, remote + offset, key));
	tell(ctx, ORDER_CHECK, (uintptr_t)remote + offset, size, (uint32_t)size);
	tell(ctx, ORDER_FILL, (uintptr_t)remote + offset, size, (uint32_t)size + 1);
	CHECK_DONE(send_RDMA_read(ctx, (char *)bytes + 1, size, remote + offset, key));
	pattern_check(bytes + 1, size, size + 1, "a read");
	CHECK_EQ(bytes[0], 0x77);
	CHECK_EQ(bytes[size + 1], 0x77);
	free(bytes);
}

static void check_sizes(const size_t *sizes, size_t count, size_t room)
{
	struct end peer;
	PingpongContext *ctx;
	uint32_t key;
	char *remote;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	remote = ask_for_memory(ctx, room);
	key = ctx->packet.key;
	for (size_t i = 0; i < count; i++) {
		check_size(ctx, remote, key, sizes[i], 0);
		if (room > sizes[i])
			check_size(ctx, remote, key, sizes[i], room - sizes[i]);
	}
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

static void test_sizes(void)
{
	static const size_t sizes[] = {
		0,
		1,
		8,
		4095,
		4097,
		CHUNK - 1,
		CHUNK,
		CHUNK + 1,
		2 * CHUNK - 1,
		2 * CHUNK,
		2 * CHUNK + 1,
		3 * CHUNK,
		3 * CHUNK + 5,
		5 * MIB + 3,
	};

	check_sizes(sizes, TEST_COUNT(sizes), 8 * MIB + 11);
}

static void test_long(void)
{
	static const size_t sizes[] = {64 * MIB};

	check_sizes(sizes, TEST_COUNT(sizes), 64 * MIB);
}

static void test_very_long(void)
{
	static const size_t sizes[] = {300 * MIB + 5};

	check_sizes(sizes, TEST_COUNT(sizes), 300 * MIB + 5);
}

/* Memory is zeroed at first; strings are written with their end. */
static void test_strings(void)
{
	char text[32], zeros[32] = "";
	struct end peer;
	PingpongContext *ctx;
	uint32_t key;
	char *remote;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	remote = ask_for_memory(ctx, 32);
	key = ctx->packet.key;
	CHECK_DONE(send_RDMA_read(ctx, text, 32, remote, key));
	CHECK_MEM(text, zeros, 32);
	CHECK_DONE(send_RDMA_write(ctx, "0123456789012345678901234567890", remote, key));
	CHECK_DONE(send_RDMA_read(ctx, text, 32, remote, key));
	CHECK_STR(text, "0123456789012345678901234567890");
	CHECK_DONE(send_RDMA_write(ctx, "abc", remote + 4, key));
	CHECK_DONE(send_RDMA_write(ctx, "", remote + 31, key));
	CHECK_DONE(send_RDMA_read(ctx, text, 32, remote, key));
	CHECK_MEM(text,
		  "0123abc\0"
		  "89012345678901234567890",
		  32);
	/* One byte too long, with its end. */
	CHECK_FAILS(send_RDMA_write(ctx, "01234567890123456789012345678901", remote, key),
		    "access");
	CHECK_FAILS(send_RDMA_write(ctx, "a", remote + 31, key), "access");
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

/* What is wrong with key or range is told here, and the connection goes on. */
static void test_wrong_keys_and_bounds(void)
{
	char byte[8] = "";
	struct end peer;
	PingpongContext *ctx;
	uint32_t key, other;
	char *remote;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	CHECK_FAILS(send_RDMA_read(ctx, byte, 1, byte, 0), "no memory with key");
	ask_for_memory(ctx, 100);
	other = ctx->packet.key;
	remote = ask_for_memory(ctx, 100);
	key = ctx->packet.key;
	CHECK(key != other);
	CHECK_FAILS(send_RDMA_read(ctx, byte, 1, remote, key + 1), "no memory with key");
	CHECK_FAILS(send_RDMA_read(ctx, byte, 1, remote, other), "access");
	CHECK_FAILS(send_RDMA_read(ctx, byte, 1, remote - 1, key), "access");
	CHECK_FAILS(send_RDMA_read(ctx, byte, 1, remote + 100, key), "access");
	CHECK_FAILS(send_RDMA_read(ctx, byte, 2, remote + 99, key), "access");
	CHECK_FAILS(send_RDMA_read(ctx, byte, ~0ul, remote + 1, key), "access");
	CHECK_FAILS(send_RDMA_read(ctx, byte, 1, NULL, key), "access");
	CHECK_FAILS(send_RDMA_write_bytes(ctx, byte, 8, remote + 93, key), "access");
	CHECK_FAILS(send_RDMA_write_bytes(ctx, byte, 1, (void *)UINTPTR_MAX, key), "access");
	CHECK_DONE(send_RDMA_write_bytes(ctx, byte, 0, remote + 100, key));
	CHECK_DONE(send_RDMA_write_bytes(ctx, byte, 8, remote + 92, key));
	CHECK_DONE(send_RDMA_read(ctx, byte, 1, remote + 99, key));
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

/* Memory that is taken back cannot be used any more, and the connection goes on. */
static void test_taken_back(void)
{
	char byte[1];
	struct end peer;
	PingpongContext *ctx;
	uint32_t key, kept_key;
	char *remote, *kept;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	kept = ask_for_memory(ctx, 4096);
	kept_key = ctx->packet.key;
	for (int i = 0; i < 5; i++) {
		remote = ask_for_memory(ctx, 100000);
		key = ctx->packet.key;
		CHECK_DONE(send_RDMA_read(ctx, byte, 1, remote, key));
		tell(ctx, ORDER_DEREGISTER, (uintptr_t)remote, 0, 0);
		CHECK_FAILS(send_RDMA_read(ctx, byte, 1, remote, key), "no memory with key");
		CHECK_DONE(send_RDMA_read(ctx, byte, 1, kept, kept_key));
	}
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

/* Own memory, on a context whose peer obeys. */
static void test_own_memory(void)
{
	struct end peer;
	PingpongContext *ctx;
	uint32_t key = 0;
	char *memory, outside;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	CHECK(RDMA_register(ctx, 0, &key) == NULL);
	CHECK_CONTAINS(RDMA_error(), "invalid");
	CHECK(RDMA_register(ctx, 10, NULL) == NULL);
	CHECK(RDMA_register(ctx, (size_t)1 << 60, &key) == NULL);
	CHECK_EQ(key, 0);
	memory = RDMA_register(ctx, 10, &key);
	CHECK(memory != NULL && key != 0);
	CHECK_EQ((uintptr_t)memory % 4096, 0);
	CHECK_FAILS(RDMA_deregister(ctx, memory + 1), "no memory at");
	CHECK_FAILS(RDMA_deregister(ctx, &outside), "no memory at");
	CHECK_FAILS(RDMA_deregister(ctx, NULL), "no memory at");
	tell(ctx, ORDER_ECHO, 0, 0, 0);
	CHECK_DONE(RDMA_deregister(ctx, memory));
	CHECK_FAILS(RDMA_deregister(ctx, memory), "no memory at");
	/* One that the peer never heard of. */
	memory = RDMA_register(ctx, 10, &key);
	CHECK_DONE(RDMA_deregister(ctx, memory));
	tell(ctx, ORDER_ECHO, 0, 0, 0);
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

/* As many pieces as there can be, and one more; each is its own. */
static void test_many_pieces(void)
{
	static char *remotes[PINGPONG_MEMORY_MAX];
	static uint32_t keys[PINGPONG_MEMORY_MAX];
	struct end peer;
	PingpongContext *ctx;
	uint32_t key;
	char byte;
	void *own = NULL;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	for (int i = 0; i < PINGPONG_MEMORY_MAX; i++) {
		remotes[i] = ask_for_memory(ctx, 100);
		keys[i] = ctx->packet.key;
		byte = (char)i;
		CHECK_DONE(send_RDMA_write_bytes(ctx, &byte, 1, remotes[i], keys[i]));
	}
	for (int i = 0; i < PINGPONG_MEMORY_MAX; i++) {
		CHECK_DONE(send_RDMA_read(ctx, &byte, 1, remotes[i], keys[i]));
		CHECK_EQ(byte, (char)i);
		own = RDMA_register(ctx, 100, &key);
		CHECK(own != NULL);
	}
	CHECK(RDMA_register(ctx, 100, &key) == NULL);
	CHECK_CONTAINS(RDMA_error(), "limit");
	CHECK_DONE(RDMA_deregister(ctx, own));
	CHECK(RDMA_register(ctx, 100, &key) != NULL);
	/* All of these are told of before this. */
	tell(ctx, ORDER_ECHO, 0, 0, 0);
	tell(ctx, ORDER_DEREGISTER, (uintptr_t)remotes[7], 0, 0);
	CHECK_FAILS(send_RDMA_read(ctx, &byte, 1, remotes[7], keys[7]), "no memory with key");
	CHECK_DONE(send_RDMA_read(ctx, &byte, 1, remotes[8], keys[8]));
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

/* A rendezvous as the first seed has it, both ways: metadata, write, FIN; metadata, read, FIN. */
static void test_rendezvous(void)
{
	size_t size = 3 * MIB + 1;
	char *bytes = malloc(size);
	struct end peer;
	PingpongContext *ctx;
	uint32_t key;
	char *remote;

	CHECK(bytes != NULL);
	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	for (uint32_t i = 0; i < 10; i++) {
		remote = ask_for_memory(ctx, size);
		key = ctx->packet.key;
		pattern_fill(bytes, size, i);
		CHECK_DONE(send_RDMA_write_bytes(ctx, bytes, size, remote, key));
		CHECK_DONE(send_fin(ctx));
		tell(ctx, ORDER_FIN, 0, 1, 0);
		tell(ctx, ORDER_CHECK, (uintptr_t)remote, size, i);
		memset(bytes, 0, size);
		CHECK_DONE(send_RDMA_read(ctx, bytes, size, remote, key));
		pattern_check(bytes, size, i, "the value");
		tell(ctx, ORDER_DEREGISTER, (uintptr_t)remote, 0, 0);
	}
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
	free(bytes);
}

/* Packets that arrive during a transfer are kept. */
static void test_packets_during_transfers(void)
{
	static char bytes[2 * MIB];
	struct end peer;
	PingpongContext *ctx;
	uint32_t key;
	char *remote;

	end_start(&peer, servant, NULL);
	ctx = end_call(&peer);
	remote = ask_for_memory(ctx, sizeof(bytes));
	key = ctx->packet.key;
	for (uint32_t seed = 0; seed < 10; seed++) {
		ctx->packet = (PingpongPacket){.type = ORDER_TALK, .key = seed};
		CHECK_DONE(send_packet(ctx));
		for (int i = 0; i < 3; i++) {
			CHECK_DONE(send_RDMA_write_bytes(ctx, bytes, sizeof(bytes), remote, key));
			CHECK_DONE(send_RDMA_read(ctx, bytes, sizeof(bytes), remote, key));
		}
		hear(ctx, seed, seed % 2);
		CHECK_DONE(receive_packet(ctx));
	}
	CHECK_DONE(RDMA_disconnect(ctx));
	end_join(&peer);
}

const struct test memory_tests[] = {
	{"memory_of_all_sizes", test_sizes},
	{"memory_64_mib", test_long},
	{"memory_300_mib", test_very_long, TEST_SLOW, 120},
	{"memory_strings", test_strings},
	{"memory_wrong_keys_and_bounds", test_wrong_keys_and_bounds},
	{"memory_taken_back", test_taken_back},
	{"memory_of_our_own", test_own_memory},
	{"memory_of_many_pieces", test_many_pieces},
	{"memory_rendezvous", test_rendezvous},
	{"memory_packets_during_transfers", test_packets_during_transfers},
	{NULL, NULL},
};
