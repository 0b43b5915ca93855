/*
 * COMPARE_SWAP and FETCH_ADD: what they answer, what they leave, and that nothing is lost when many
 * processes use them on one word at once.
 *
 * What these tests would catch: an atomic that is a READ and a WRITE, an old value that lands in
 * the wrong place, a swap that swaps always or never, one that is atomic only within a connection.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
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
#define CLIENTS	   8
#define CONTEST_MS 400 /* long enough for all to be running at once, on few cores too */
#define SUM	   0   /* where FETCH_ADDs go */
#define SHARED_SUM 64  /* the same, and the owner's CPU adds as well */
#define SWAP_SUM   128 /* where COMPARE_SWAP loops count */

struct score {
	uint64_t sum, shared_sum, swaps;
};

/* Adds to both sums, unsignaled, as fast as the connection takes it. */
static void add_many(struct node *node, int count, struct score *score)
{
	struct rmr_work work = work_of(node, RMR_OP_FETCH_ADD, 0, 8, 0);
	int i;

	work.flags = RMR_UNSIGNALED;
	for (i = 0; i < count; i++) {
		work.operand = 1 + (uint64_t)i % 3;
		work.offset = i % 2 ? SUM : SHARED_SUM;
		*(i % 2 ? &score->sum : &score->shared_sum) += work.operand;
		node_post(node, &work);
	}
	/* A READ behind them all: when it is done, so are they. */
	work = work_of(node, RMR_OP_READ, 0, 8, SUM);
	node_do(node, &work);
}

/* A client: gets the address, connects, waits for the start, and tells what it has added. */
static void contend(struct node *node)
{
	uint64_t deadline_ns, seen = 0, old;
	struct peer server = {0};
	struct score score = {0};
	int i;

	test_recv(node->pipe, TEST_CHILD, server.address, sizeof(server.address));
	node_open(node, NULL);
	node_memory(node, MEMORY_ARENA, 4096, 0);
	node_connect(node, &server, NULL);
	node_import(node);
	test_signal(node->pipe, TEST_CHILD);
	test_await(node->pipe, TEST_CHILD);
	deadline_ns = clock_deadline_ns(CONTEST_MS);
	while (!clock_passed(deadline_ns)) {
		add_many(node, 1000, &score);
		for (i = 0; i < 50; i++) {
			while ((old = compare_swap(node, SWAP_SUM, seen, seen + 1)) != seen)
				seen = old;
			seen++;
			score.swaps++;
		}
	}
	test_send(node->pipe, TEST_CHILD, &score, sizeof(score));
	node_close(node);
}

/* Counts on by one, as the clients do, but on memory of our own. */
static void swap_own(struct node *node, struct score *score)
{
	uint64_t seen = *(volatile uint64_t *)(node->memory.base + SWAP_SUM), found = seen;

	do {
		seen = found;
		CHECK_OK(rmr_region_compare_swap(node->memory.region, SWAP_SUM, seen, seen + 1,
						 &found));
	} while (found != seen);
	score->swaps++;
}

/* Starts the contest, takes part in it meanwhile (with the plain CPU where that is allowed), and
 * sums up. */
static struct score run_contest(struct node *node, struct peer clients[CLIENTS])
{
	uint64_t deadline_ns = clock_deadline_ns(CONTEST_MS);
	struct score total = {0}, score;
	int i;

	for (i = 0; i < CLIENTS; i++)
		test_signal(&clients[i].pipe, TEST_PARENT);
	while (!clock_passed(deadline_ns)) {
		swap_own(node, &total);
		if (!(node->info->capabilities & RMR_CAP_ATOMIC_CPU))
			continue;
		__atomic_fetch_add((uint64_t *)(node->memory.base + SHARED_SUM), 1,
				   __ATOMIC_RELAXED);
		total.shared_sum++;
	}
	for (i = 0; i < CLIENTS; i++) {
		test_recv(&clients[i].pipe, TEST_PARENT, &score, sizeof(score));
		total.sum += score.sum;
		total.shared_sum += score.shared_sum;
		total.swaps += score.swaps;
		peer_join(&clients[i]);
	}
	return total;
}

/* The test's process is the target; it calls nothing while the contest lasts. */
static void test_contended(void)
{
	struct rmr_conn *conns[CLIENTS];
	struct peer clients[CLIENTS];
	struct node node = {0};
	struct score total;
	char address[128];
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
	total = run_contest(&node, clients);
	CHECK_EQ(*(uint64_t *)(node.memory.base + SUM), total.sum);
	CHECK_EQ(*(uint64_t *)(node.memory.base + SHARED_SUM), total.shared_sum);
	CHECK_EQ(*(uint64_t *)(node.memory.base + SWAP_SUM), total.swaps);
	for (i = 0; i < CLIENTS; i++)
		rmr_conn_close(conns[i]);
	node.conn = NULL;
	node_close(&node);
}

/* The owner's own: what it answers, and what is refused. */
static void test_own_word(void)
{
	struct node node = {0};
	struct rmr_region *plain;
	uint64_t *word, found;

	node_open(&node, NULL);
	need_atomics(&node);
	node_memory(&node, MEMORY_ARENA, 4096, memory_rights(&node, MEMORY_ARENA));
	word = (uint64_t *)(node.memory.base + 4088);
	*word = 5;
	CHECK_OK(rmr_region_compare_swap(node.memory.region, 4088, 4, 9, &found));
	CHECK_EQ(found, 5);
	CHECK_EQ(*(volatile uint64_t *)word, 5);
	CHECK_OK(rmr_region_compare_swap(node.memory.region, 4088, 5, UINT64_MAX, &found));
	CHECK_EQ(found, 5);
	CHECK_EQ(*(volatile uint64_t *)word, UINT64_MAX);
	CHECK_STATUS(rmr_region_compare_swap(node.memory.region, 4096, 0, 1, &found), RMR_INVALID);
	CHECK_STATUS(rmr_region_compare_swap(node.memory.region, 4, 0, 1, &found), RMR_INVALID);
	CHECK_OK(rmr_region_open(node.device, node.memory.base, 64, RMR_READ, &plain));
	CHECK_STATUS(rmr_region_compare_swap(plain, 0, 0, 1, &found), RMR_INVALID);
	rmr_region_close(plain);
	node_close(&node);
}

const struct test atomic_tests[] = {
	{"atomic_own_word", test_own_word},
	{"atomic_values", test_values},
	{"atomic_old_value_lands", test_landing},
	{"atomic_contended_by_8_processes", test_contended},
	{NULL},
};
