/*
 * Remote access that must fail: outside the region, beyond its rights, after its end. It fails with
 * RMR_ACCESS, both sides get RMR_OP_DISCONNECT, no byte is touched, and another connection between
 * the same queues goes on.
 *
 * What these tests would catch: bounds checked by an addition that overflows, a right that is
 * checked at one end only or not at all, memory touched before the check, an error that takes down
 * the queue or the target instead of the connection.
 */
#include <string.h>

#include "conformance.h"
#include "puppet.h"

#define SIZE 8192 /* of the target's region */

struct trespass {
	const char *what;
	enum memory_kind kind;
	unsigned rights;
	enum rmr_op op;
	uint64_t offset;
	size_t length;
};

#define ALL (RMR_READ | RMR_WRITE)

static const struct trespass trespasses[] = {
	{"READ one byte past the end", MEMORY_ARENA, ALL, RMR_OP_READ, SIZE, 1},
	{"READ across the end", MEMORY_ARENA, ALL, RMR_OP_READ, SIZE - 7, 8},
	{"READ far away", MEMORY_ARENA, ALL, RMR_OP_READ, 1ul << 40, 64},
	{"READ at an offset that wraps", MEMORY_ARENA, ALL, RMR_OP_READ, UINT64_MAX - 7, 8},
	{"READ that wraps into the region", MEMORY_ARENA, ALL, RMR_OP_READ, UINT64_MAX - 7, 64},
	{"READ of everything and one more", MEMORY_ARENA, ALL, RMR_OP_READ, 0, SIZE + 1},
	{"WRITE one byte past the end", MEMORY_ARENA, ALL, RMR_OP_WRITE, SIZE, 1},
	{"WRITE across the end", MEMORY_ARENA, ALL, RMR_OP_WRITE, SIZE - 1, 2},
	{"WRITE far away", MEMORY_ARENA, ALL, RMR_OP_WRITE, 1ul << 46, 8},
	{"WRITE that wraps into the region", MEMORY_ARENA, ALL, RMR_OP_WRITE, UINT64_MAX - 63, 128},
	{"WRITE_IMM across the end", MEMORY_ARENA, ALL, RMR_OP_WRITE_IMM, SIZE - 8, 16},
	{"READ past the end of plain memory", MEMORY_PLAIN, ALL, RMR_OP_READ, SIZE, 1},
	{"WRITE past the end of plain memory", MEMORY_PLAIN, ALL, RMR_OP_WRITE, SIZE - 4, 5},
	{"WRITE that wraps, plain memory", MEMORY_PLAIN, ALL, RMR_OP_WRITE, UINT64_MAX, 2},
	{"WRITE without the right", MEMORY_ARENA, RMR_READ, RMR_OP_WRITE, 0, 8},
	{"WRITE to a sealed arena", MEMORY_SEALED, RMR_READ, RMR_OP_WRITE, 0, 8},
	{"WRITE without the right, plain", MEMORY_PLAIN, RMR_READ, RMR_OP_WRITE, 16, 8},
	{"WRITE_IMM without the right", MEMORY_ARENA, RMR_READ, RMR_OP_WRITE_IMM, 0, 8},
	{"READ without the right", MEMORY_ARENA, RMR_WRITE, RMR_OP_READ, 0, 8},
	{"READ without the right, plain", MEMORY_PLAIN, RMR_WRITE, RMR_OP_READ, 0, 8},
	{"FETCH_ADD without the right", MEMORY_ARENA, ALL, RMR_OP_FETCH_ADD, 0, 8},
	{"COMPARE_SWAP without the right", MEMORY_ARENA, ALL, RMR_OP_COMPARE_SWAP, 8, 8},
	{"FETCH_ADD in a sealed arena", MEMORY_SEALED, RMR_READ, RMR_OP_FETCH_ADD, 0, 8},
	{"FETCH_ADD past the end", MEMORY_ARENA, ALL | RMR_ATOMIC, RMR_OP_FETCH_ADD, SIZE, 8},
	{"COMPARE_SWAP far away", MEMORY_ARENA, ALL | RMR_ATOMIC, RMR_OP_COMPARE_SWAP,
	 UINT64_MAX - 7, 8},
	{"FETCH_ADD on plain memory", MEMORY_PLAIN, ALL, RMR_OP_FETCH_ADD, 0, 8},
};

/* Connection 0 is over on both sides, and only that one; the target's memory is as it was. */
static void check_aftermath(struct puppet *puppet, struct node *node, struct node *other)
{
	struct rmr_work work = work_of(node, RMR_OP_READ, 0, 0, 0);
	struct rmr_conn_info info;

	node_expect_disconnect(node, node->conn);
	rmr_conn_get_info(node->conn, &info);
	CHECK(!info.alive);
	CHECK_EQ(rmr_post(node->conn, &work, 1), RMR_DISCONNECTED);
	puppet_expect_disconnect(puppet, 0);
	puppet_check_guard(puppet, 0, puppet->options.size, 0xcc);
	node_send(other, 32, 5);
	puppet_expect_recv(puppet, 1, 32, 5);
	puppet_send(puppet, 1, 32, 6);
	node_recv(other, 32, 6);
}

static void check_trespass(const struct trespass *t)
{
	struct pair_options options = {
		.test = {.size = 2 * SIZE},
		.puppet = {.kind = t->kind, .size = SIZE, .rights = t->rights},
	};
	struct puppet puppet;
	struct node node, other;
	struct rmr_work work;
	struct rmr_completion c;

	pair_open(&puppet, &node, &options);
	other = node;
	CHECK_EQ(pair_connect(&puppet, &other), 1);
	puppet_set(&puppet, 0, SIZE, 0xcc);
	memset(node.memory.base, 0x33, node.memory.size);
	work = work_of(&node, t->op, 0, t->length, t->offset);
	work.cookie = 4711;
	work.compare = 0xccccccccccccccccu;
	node_post(&node, &work);
	c = node_next(&node);
	if (c.op != t->op || c.status != RMR_ACCESS)
		TEST_FAIL("%s: %s completed with %d (%s), not RMR_ACCESS", t->what, op_name(c.op),
			  c.status, rmr_status_text(c.status));
	CHECK_EQ(c.cookie, 4711);
	guard_check(node.memory.base, node.memory.size, 0x33, t->what);
	check_aftermath(&puppet, &node, &other);
	rmr_conn_close(other.conn);
	pair_close(&puppet, &node);
}

static void test_trespasses(void)
{
	size_t i;

	for (i = 0; i < TEST_COUNT(trespasses); i++)
		check_trespass(&trespasses[i]);
}

/* What is posted behind the failing operation is canceled or not even taken, what is before it is
 * done, and all that was taken is told: signaled ones, and unsignaled ones that fail. */
static void test_neighbours(void)
{
	struct pair_options options = {.puppet = {.size = SIZE}};
	struct puppet puppet;
	struct node node, other;
	struct rmr_work works[8];
	struct rmr_completion c;
	uint64_t i;
	int taken;

	pair_open(&puppet, &node, &options);
	other = node;
	CHECK_EQ(pair_connect(&puppet, &other), 1);
	puppet_set(&puppet, 0, SIZE, 0xcc);
	memset(node.memory.base, 0xcc, SIZE);
	for (i = 0; i < TEST_COUNT(works); i++) {
		works[i] = work_of(&node, RMR_OP_WRITE, 0, 8, i * 8);
		works[i].cookie = i;
	}
	works[2].flags = RMR_UNSIGNALED; /* done: not told */
	works[3].offset = SIZE;		 /* fails */
	works[3].flags = RMR_UNSIGNALED; /* told all the same */
	works[6].flags = RMR_UNSIGNALED; /* canceled: told */
	taken = rmr_post(node.conn, works, (int)TEST_COUNT(works));
	CHECK(taken > 3);
	for (i = 0; i < (uint64_t)taken; i++) {
		if (i == 2)
			continue;
		c = node_next(&node);
		CHECK_EQ(c.op, RMR_OP_WRITE);
		CHECK_EQ(c.cookie, i);
		if (i > 3)
			CHECK_EQ(c.status, RMR_CANCELED);
		else
			CHECK_EQ(c.status, i == 3 ? RMR_ACCESS : RMR_OK);
	}
	check_aftermath(&puppet, &node, &other);
	rmr_conn_close(other.conn);
	pair_close(&puppet, &node);
}

/* A region that was closed: its handle is of no use any more, whether opened before or after. */
static void check_closed_region(enum memory_kind kind, enum rmr_op op)
{
	struct pair_options options = {.puppet = {.kind = kind, .size = SIZE}};
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	struct rmr_completion c;

	pair_open(&puppet, &node, &options);
	work = work_of(&node, op, 0, 8, 64);
	if (op >= RMR_OP_COMPARE_SWAP && !(rmr_remote_rights(node.remote) & RMR_ATOMIC)) {
		pair_close(&puppet, &node);
		return;
	}
	puppet_set(&puppet, 0, SIZE, 0);
	node_do(&node, &work);
	puppet_set(&puppet, 0, SIZE, 0xcc);
	puppet_close_region(&puppet);
	pattern_fill(node.memory.base, 8, 1);
	node_post(&node, &work);
	c = node_next(&node);
	CHECK_EQ(c.op, op);
	CHECK_EQ(c.status, RMR_ACCESS);
	node_expect_disconnect(&node, node.conn);
	puppet_expect_disconnect(&puppet, 0);
	puppet_check_guard(&puppet, 0, SIZE, 0xcc);
	pair_close(&puppet, &node);
}

static void test_closed_region(void)
{
	static const enum rmr_op ops[] = {RMR_OP_READ, RMR_OP_WRITE, RMR_OP_FETCH_ADD,
					  RMR_OP_COMPARE_SWAP};
	size_t i;

	for (i = 0; i < TEST_COUNT(ops); i++) {
		check_closed_region(MEMORY_ARENA, ops[i]);
		check_closed_region(MEMORY_PLAIN, ops[i]);
	}
}

/* The region is closed while READs and WRITEs are under way: after rmr_region_close returns no byte
 * changes any more. */
static void test_close_races(void)
{
	enum { ROUNDS = 20 };
	struct pair_options options = {.puppet = {.size = MIB}, .test = {.size = MIB}};
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	int round, i;

	for (round = 0; round < ROUNDS; round++) {
		options.puppet.kind = round % 2 ? MEMORY_PLAIN : MEMORY_ARENA;
		pair_open(&puppet, &node, &options);
		memset(node.memory.base, 0x77, MIB);
		for (i = 0; i < 64; i++) {
			work = work_of(&node, RMR_OP_WRITE, 0, 64 * KIB, (size_t)i % 16 * 64 * KIB);
			node_post(&node, &work);
		}
		puppet_close_region(&puppet);
		puppet_set(&puppet, 0, MIB, 0xcc);
		puppet_check_guard(&puppet, 0, MIB, 0xcc);
		for (i = 0; i < 64 && node_next(&node).status == RMR_OK;)
			i++;
		puppet_check_guard(&puppet, 0, MIB, 0xcc);
		pair_close(&puppet, &node);
	}
}

const struct test access_tests[] = {
	{"access_trespasses", test_trespasses},
	{"access_neighbours_of_a_failure", test_neighbours},
	{"access_closed_region", test_closed_region},
	{"access_region_closed_under_way", test_close_races},
	{NULL},
};
