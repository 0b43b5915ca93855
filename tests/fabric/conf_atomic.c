/*
 * COMPARE_SWAP and FETCH_ADD: what they answer, what they leave, and that nothing is lost when many
 * processes use them on one word at once.
 *
 * What these tests would catch: an atomic that is a READ and a WRITE, an old value that lands in
 * the wrong place, a swap that swaps always or never, one that is atomic only within a connection.
 */
#include <stdio.h>
#include <string.h>

#include "conformance.h"
#include "puppet.h"

static void need_atomics(const struct node *node)
{
	if (!(node->info->capabilities & RMR_CAP_ATOMIC))
		TEST_SKIP("%s has no atomics", node->info->name);
}

static uint64_t fetch_add(struct node *node, uint64_t offset, uint64_t operand)
{
	struct rmr_work work = work_of(node, RMR_OP_FETCH_ADD, 16, 8, offset);

	work.operand = operand;
	node_do(node, &work);
	return *(uint64_t *)(node->memory.base + 16);
}

static uint64_t compare_swap(struct node *node, uint64_t offset, uint64_t compare, uint64_t operand)
{
	struct rmr_work work = work_of(node, RMR_OP_COMPARE_SWAP, 16, 8, offset);

	work.compare = compare;
	work.operand = operand;
	node_do(node, &work);
	return *(uint64_t *)(node->memory.base + 16);
}

static void check_values(enum memory_kind test, enum memory_kind kind)
{
	struct pair_options options = {.test = {.kind = test}, .puppet = {.kind = kind}};
	struct puppet puppet;
	struct node node;
	uint64_t last = 64 * KIB - 8;

	pair_open(&puppet, &node, &options);
	need_atomics(&node);
	if (!(rmr_remote_rights(node.remote) & RMR_ATOMIC)) {
		pair_close(&puppet, &node);
		return;
	}
	puppet_set(&puppet, 0, 64 * KIB, 0x5a);
	puppet_store(&puppet, 512, 40);
	CHECK_EQ(fetch_add(&node, 512, 2), 40);
	CHECK_EQ(fetch_add(&node, 512, UINT64_MAX), 42); /* that is -1 */
	CHECK_EQ(fetch_add(&node, 512, 0), 41);
	CHECK_EQ(compare_swap(&node, 512, 40, 7), 41);
	CHECK_EQ(puppet_load(&puppet, 512), 41);
	CHECK_EQ(compare_swap(&node, 512, 41, 0x8000000000000001u), 41);
	CHECK_EQ(puppet_load(&puppet, 512), 0x8000000000000001u);
	CHECK_EQ(fetch_add(&node, 512, 0x8000000000000000u), 0x8000000000000001u);
	CHECK_EQ(puppet_load(&puppet, 512), 1); /* wraps around */
	puppet_check_guard(&puppet, 0, 512, 0x5a);
	puppet_check_guard(&puppet, 520, 64 * KIB - 520, 0x5a);
	puppet_store(&puppet, last, 1);
	CHECK_EQ(fetch_add(&node, last, 1), 1);
	CHECK_EQ(puppet_load(&puppet, last), 2);
	pair_close(&puppet, &node);
}

static void test_values(void)
{
	check_values(MEMORY_ARENA, MEMORY_ARENA);
	check_values(MEMORY_PLAIN, MEMORY_ARENA);
	check_values(MEMORY_ARENA, MEMORY_PLAIN);
}

/* The old value lands where it was asked to, and only its 8 bytes. */
static void test_landing(void)
{
	struct puppet puppet;
	struct node node;
	size_t at;

	pair_open(&puppet, &node, NULL);
	need_atomics(&node);
	for (at = 64; at < 128; at += 8) {
		struct rmr_work work = work_of(&node, RMR_OP_FETCH_ADD, at, 8, 128);

		puppet_fill(&puppet, 128, 8, at);
		work.operand = 1;
		memset(node.memory.base, 0xa5, 256);
		node_do(&node, &work);
		pattern_check(node.memory.base + at, 8, at, "old value");
		guard_check(node.memory.base, at, 0xa5, "before the old value");
		guard_check(node.memory.base + at + 8, 100, 0xa5, "after the old value");
	}
	pair_close(&puppet, &node);
}

/* ------------------------------------------------------------------------------------------
 * Contention: several processes, one word
 */
#define CLIENTS	  8
#define ADDS	  (20000 / TEST_TIME_FACTOR)
#define SWAPS	  (1000 / TEST_TIME_FACTOR)
#define SUM	  0   /* where FETCH_ADDs go, at offset */
#define SWAP_SUM  64  /* where COMPARE_SWAP loops count */
#define LOCAL_SUM 128 /* as SUM, and the owner's CPU adds as well */

/* Adds to both sums, unsignaled, as fast as the connection takes it. */
static void add_many(struct node *node)
{
	struct rmr_work work = work_of(node, RMR_OP_FETCH_ADD, 0, 8, SUM);
	struct rmr_completion c;
	int posted = 0, taken;

	work.flags = RMR_UNSIGNALED;
	while (posted < 2 * ADDS) {
		work.offset = posted % 2 ? SUM : LOCAL_SUM;
		work.operand = 1 + (posted / 2) % 3;
		taken = rmr_post(node->conn, &work, 1);
		CHECK(taken >= 0);
		posted += taken;
		if (taken == 0)
			CHECK_EQ(rmr_poll(node->queue, &c, 1), 0);
	}
	/* A READ behind them all: when it is done, so are they. */
	work = work_of(node, RMR_OP_READ, 0, 8, SUM);
	while ((taken = rmr_post(node->conn, &work, 1)) == 0)
		CHECK_EQ(rmr_poll(node->queue, &c, 1), 0);
	CHECK_EQ(taken, 1);
	node_expect(node, RMR_OP_READ, RMR_OK);
}

/* A client: gets the address, connects, waits for the start. */
static void contend(struct node *node)
{
	struct peer server = {0};
	uint64_t seen = 0, old;
	int i;

	test_recv(node->pipe, TEST_CHILD, server.address, sizeof(server.address));
	node_open(node, NULL);
	node_memory(node, MEMORY_ARENA, 4096, 0);
	node_connect(node, &server, NULL);
	node_import(node);
	test_signal(node->pipe, TEST_CHILD);
	test_await(node->pipe, TEST_CHILD);
	add_many(node);
	for (i = 0; i < SWAPS; i++) {
		while ((old = compare_swap(node, SWAP_SUM, seen, seen + 1)) != seen)
			seen = old;
		seen++;
	}
	node_close(node);
}

/* The test's process is the target. While the clients add, so does its CPU where that is allowed;
 * otherwise it calls nothing. */
static void test_contended(void)
{
	struct rmr_conn *conns[CLIENTS];
	struct peer clients[CLIENTS];
	struct node node = {0};
	char address[128] = "";
	uint64_t expected = 0, cpu = 0, *words;
	int i;

	for (i = 0; i < CLIENTS; i++)
		peer_start(&clients[i], contend, NULL);
	node_open(&node, NULL);
	need_atomics(&node);
	node_memory(&node, MEMORY_ARENA, 4096, memory_rights(&node, MEMORY_ARENA));
	CHECK_OK(rmr_listener_open(node.device, fixture_address(address), NULL, &node.listener));
	snprintf(address, sizeof(address), "%s", rmr_listener_address(node.listener));
	for (i = 0; i < CLIENTS; i++) {
		test_send(&clients[i].pipe, TEST_PARENT, address, sizeof(address));
		node_accept(&node, NULL);
		node_export(&node);
		conns[i] = node.conn;
		test_await(&clients[i].pipe, TEST_PARENT);
	}
	for (i = 0; i < CLIENTS; i++)
		test_signal(&clients[i].pipe, TEST_PARENT);
	words = (uint64_t *)node.memory.base;
	if (node.info->capabilities & RMR_CAP_ATOMIC_CPU)
		for (; cpu < 20000; cpu++)
			__atomic_fetch_add(&words[LOCAL_SUM / 8], 1, __ATOMIC_RELAXED);
	for (i = 0; i < CLIENTS; i++)
		peer_join(&clients[i]);
	for (i = 0; i < ADDS; i++)
		expected += CLIENTS * (1 + (uint64_t)i % 3);
	CHECK_EQ(__atomic_load_n(&words[SUM / 8], __ATOMIC_SEQ_CST), expected);
	CHECK_EQ(__atomic_load_n(&words[LOCAL_SUM / 8], __ATOMIC_SEQ_CST), expected + cpu);
	CHECK_EQ(__atomic_load_n(&words[SWAP_SUM / 8], __ATOMIC_SEQ_CST), CLIENTS * SWAPS);
	for (i = 0; i < CLIENTS; i++)
		rmr_conn_close(conns[i]);
	node.conn = NULL;
	node_close(&node);
}

const struct test atomic_tests[] = {
	{"atomic_values", test_values},
	{"atomic_old_value_lands", test_landing},
	{"atomic_contended_by_8_processes", test_contended},
	{NULL},
};
