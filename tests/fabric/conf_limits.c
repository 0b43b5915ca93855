/*
 * Limits and misuse: what a device says of itself is true, and a wrong call is answered with a
 * status and takes no effect.
 *
 * What these tests would catch: a limit that is stated but not kept or kept but not stated, a check
 * that comes after the effect, a wrong operation in a batch that takes good ones with it.
 */
#include <stdio.h>
#include <string.h>

#include "conformance.h"
#include "puppet.h"

static void test_device(void)
{
	struct rmr_device_entry entries[32];
	struct rmr_device *device;
	struct node node = {0};
	size_t count, i;

	node_open(&node, NULL);
	CHECK_STR(node.info->name, fixture.device);
	CHECK(strlen(node.info->provider) > 0);
	CHECK(node.info->max_message >= 8192);
	CHECK(node.info->max_transfer >= 64 * MIB);
	CHECK(node.info->max_inline >= 64);
	CHECK(node.info->max_depth >= 128);
	CHECK(node.info->max_slots >= 64);
	CHECK(node.info->max_regions >= 16);
	node_close(&node);

	count = rmr_device_list(entries, TEST_COUNT(entries));
	CHECK(count > 0);
	CHECK_EQ(rmr_device_list(NULL, 0), count);
	for (i = 0; i < count && i < TEST_COUNT(entries); i++) {
		CHECK(strlen(entries[i].name) > 0);
		CHECK_EQ(strlen(entries[i].reason) == 0, entries[i].usable);
	}
	CHECK_STATUS(rmr_device_open("", NULL, &device), RMR_NO_DEVICE);
	CHECK_STATUS(rmr_device_open("no-such-device", NULL, &device), RMR_NO_DEVICE);
	CHECK_CONTAINS(rmr_error_message(), "shm");
}

/* One more than the limit is refused, the limit itself works. */
static void test_options(void)
{
	struct rmr_queue_options queue_options = {.recv_slots = 64};
	struct rmr_conn_options conn_options = {0};
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct rmr_conn_info info;
	enum rmr_status status;
	struct puppet puppet;
	struct node node;

	pair_open(&puppet, &node, NULL);
	if (node.info->max_slots < UINT32_MAX) {
		queue_options = (struct rmr_queue_options){.recv_slots = node.info->max_slots + 1,
							   .recv_size = 64};
		status = rmr_queue_open(node.device, &queue_options, &queue);
		CHECK(status == RMR_LIMIT || status == RMR_INVALID);
	}
	if (node.info->max_message < UINT32_MAX) {
		queue_options = (struct rmr_queue_options){
			.recv_size = (uint32_t)node.info->max_message + 1, .recv_slots = 1};
		status = rmr_queue_open(node.device, &queue_options, &queue);
		CHECK(status == RMR_LIMIT || status == RMR_INVALID || status == RMR_TOO_LONG);
	}
	conn_options.depth = node.info->max_depth + 1;
	if (conn_options.depth != 0) {
		status = rmr_connect(node.queue, puppet.peer.address, 1000, &conn_options, &conn);
		CHECK(status == RMR_LIMIT || status == RMR_INVALID);
	}
	rmr_conn_get_info(node.conn, &info);
	CHECK_EQ(info.depth, 128);
	CHECK_EQ(info.max_send, 8192);
	node_send(&node, 10, 1);
	puppet_expect_recv(&puppet, 0, 10, 1);
	pair_close(&puppet, &node);
}

static void test_max_depth(void)
{
	struct pair_options options = {0};
	struct puppet puppet;
	struct node node = {0};
	struct rmr_work work;
	uint32_t i, depth;

	node_open(&node, NULL);
	depth = node.info->max_depth;
	node_close(&node);
	if (depth > 65536)
		depth = 65536;
	options.test.conn.depth = depth;
	pair_open(&puppet, &node, &options);
	for (i = 0; i < depth; i++) {
		work = work_of(&node, RMR_OP_WRITE, 0, 8, 0);
		work.cookie = i;
		node_post(&node, &work);
	}
	for (i = 0; i < depth; i++)
		CHECK_EQ(node_expect(&node, RMR_OP_WRITE, RMR_OK).cookie, i);
	pair_close(&puppet, &node);
}

/* ------------------------------------------------------------------------------------------
 * Wrong works
 */
struct wrong {
	const char *what;
	enum rmr_status expected;
	struct rmr_work work; /* what is not given is that of a good WRITE of 8 bytes */
	bool no_region, no_remote, other_remote;
	int64_t shift; /* of local */
};

static const struct wrong wrongs[] = {
	{"no operation", RMR_INVALID, {.op = (enum rmr_op)0}},
	{"RECV", RMR_INVALID, {.op = RMR_OP_RECV}},
	{"DISCONNECT", RMR_INVALID, {.op = RMR_OP_DISCONNECT}},
	{"unknown operation", RMR_INVALID, {.op = (enum rmr_op)1000}},
	{"no region", RMR_INVALID, {.op = RMR_OP_WRITE}, .no_region = true},
	{"SEND without region", RMR_INVALID, {.op = RMR_OP_SEND}, .no_region = true},
	{"READ without region", RMR_INVALID, {.op = RMR_OP_READ}, .no_region = true},
	{"no remote", RMR_INVALID, {.op = RMR_OP_WRITE}, .no_remote = true},
	{"READ without remote", RMR_INVALID, {.op = RMR_OP_READ}, .no_remote = true},
	{"remote of another connection", RMR_INVALID, {.op = RMR_OP_READ}, .other_remote = true},
	{"local before the region", RMR_INVALID, {.op = RMR_OP_WRITE}, .shift = -1},
	{"local past the region", RMR_INVALID, {.op = RMR_OP_READ}, .shift = 64 * KIB - 7},
	{"local far off", RMR_INVALID, {.op = RMR_OP_SEND}, .shift = 1l << 40},
	{"longer than the region", RMR_INVALID, {.op = RMR_OP_WRITE, .length = 64 * KIB + 1}},
	{"atomic of 4 bytes", RMR_INVALID, {.op = RMR_OP_FETCH_ADD, .length = 4}},
	{"atomic of 16 bytes", RMR_INVALID, {.op = RMR_OP_COMPARE_SWAP, .length = 16}},
	{"atomic at 4", RMR_INVALID, {.op = RMR_OP_FETCH_ADD, .offset = 4}},
	{"atomic at 1", RMR_INVALID, {.op = RMR_OP_COMPARE_SWAP, .offset = 1}},
	{"longer than the peer takes", RMR_TOO_LONG, {.op = RMR_OP_SEND, .length = 8193}},
};

static void check_wrong(struct node *node, struct rmr_remote *other, const struct wrong *wrong)
{
	struct rmr_work works[3];
	struct rmr_completion c;
	int result;

	works[0] = works[1] = works[2] = work_of(node, RMR_OP_WRITE, 0, 8, 8);
	works[1].op = wrong->work.op;
	works[1].length = wrong->work.length ? wrong->work.length : 8;
	works[1].offset = wrong->work.offset;
	works[1].local = (uint8_t *)((uintptr_t)works[1].local + (uintptr_t)wrong->shift);
	works[1].region = wrong->no_region ? NULL : works[1].region;
	works[1].remote = wrong->no_remote ? NULL : wrong->other_remote ? other : node->remote;
	result = rmr_post(node->conn, &works[1], 1);
	if (result != (int)wrong->expected)
		TEST_FAIL("%s: rmr_post returned %d, not %d", wrong->what, result, wrong->expected);
	CHECK(strlen(rmr_error_message()) > 0);
	/* In a batch the good one before it is taken, and nothing of the rest. */
	CHECK_EQ(rmr_post(node->conn, works, 3), 1);
	node_expect(node, RMR_OP_WRITE, RMR_OK);
	CHECK_EQ(rmr_poll(node->queue, &c, 1), 0);
}

static void test_wrong_works(void)
{
	struct puppet puppet;
	struct node node, other;
	struct rmr_work work;
	size_t i;

	pair_open(&puppet, &node, NULL);
	other = node;
	CHECK_EQ(pair_connect(&puppet, &other), 1);
	for (i = 0; i < TEST_COUNT(wrongs); i++)
		check_wrong(&node, other.remote, &wrongs[i]);
	work = work_of(&node, RMR_OP_WRITE, 0, node.info->max_inline + 1, 0);
	work.flags = RMR_INLINE;
	CHECK(rmr_post(node.conn, &work, 1) == RMR_TOO_LONG ||
	      rmr_post(node.conn, &work, 1) == RMR_INVALID);
	work = work_of(&node, RMR_OP_READ, 0, 8, 0);
	work.flags = RMR_INLINE;
	CHECK_EQ(rmr_post(node.conn, &work, 1), RMR_INVALID);
	puppet_expect_silence(&puppet, 5);
	rmr_conn_close(other.conn);
	pair_close(&puppet, &node);
}

/* A region of another device is none of ours. */
static void test_foreign_region(void)
{
	struct puppet puppet;
	struct node node, foreign = {0};
	struct rmr_work work;

	pair_open(&puppet, &node, NULL);
	node_open(&foreign, NULL);
	node_memory(&foreign, MEMORY_ARENA, 4096, 0);
	work = work_of(&node, RMR_OP_READ, 0, 8, 0);
	work.local = foreign.memory.base;
	work.region = foreign.memory.region;
	CHECK_EQ(rmr_post(node.conn, &work, 1), RMR_INVALID);
	node_close(&foreign);
	pair_close(&puppet, &node);
}

const struct test limit_tests[] = {
	{"limit_device", test_device},
	{"limit_options", test_options},
	{"limit_max_depth", test_max_depth},
	{"limit_wrong_works", test_wrong_works},
	{"limit_foreign_region", test_foreign_region},
	{NULL},
};
