/*
 * Back-pressure: a full connection refuses politely, a receiver that keeps its slots stalls its
 * senders and nobody else, and nothing is lost when it goes on.
 *
 * What these tests would catch: depth not kept or counted wrong, a message dropped or doubled when
 * a ring or a socket is full, a stalled receiver whose own operations hang behind the stall, a
 * sender that is never woken again.
 */
#include <string.h>

#include "base/clock.h"
#include "conformance.h"
#include "puppet.h"

/* Posts until refused: exactly depth operations are taken while none is polled, in batches as
 * well, and there is room again as completions are taken. */
static void test_depth(void)
{
	static const uint32_t depths[] = {1, 2, 7, 128};
	struct puppet puppet;
	struct node node;
	size_t d;

	for (d = 0; d < TEST_COUNT(depths); d++) {
		struct pair_options options = {.test = {.conn = {.depth = depths[d]}}};
		int depth = (int)depths[d], i, taken;
		struct rmr_work works[200];
		struct rmr_conn_info info;

		pair_open(&puppet, &node, &options);
		rmr_conn_get_info(node.conn, &info);
		CHECK_EQ(info.depth, depths[d]);
		CHECK(info.alive);
		for (i = 0; i < (int)TEST_COUNT(works); i++) {
			works[i] = work_of(&node, RMR_OP_READ, 0, 8, 0);
			works[i].cookie = (uint64_t)i;
		}
		/* Signaled ones count until they are polled. */
		CHECK_EQ(rmr_post(node.conn, works, (int)TEST_COUNT(works)), depth);
		CHECK_EQ(rmr_post(node.conn, works + depth, 1), 0);
		CHECK_EQ(node_expect(&node, RMR_OP_READ, RMR_OK).cookie, 0);
		taken = rmr_post(node.conn, works + depth, 2);
		CHECK_EQ(taken, 1);
		for (i = 1; i < depth + 1; i++)
			CHECK_EQ(node_expect(&node, RMR_OP_READ, RMR_OK).cookie, (uint64_t)i);
		CHECK_EQ(rmr_post(node.conn, works, depth), depth);
		for (i = 0; i < depth; i++)
			node_expect(&node, RMR_OP_READ, RMR_OK);
		pair_close(&puppet, &node);
	}
}

/* Sends as much as is taken, without the receiver doing anything; then lets it receive. Nothing is
 * lost, nothing doubled, everything in order. */
static void check_stall(size_t length, uint32_t slots)
{
	enum { MESSAGES = 400 };
	struct pair_options options = {
		.test = {.size = (MESSAGES + 1) * length},
		.puppet = {.queue = {.recv_slots = slots, .recv_size = (uint32_t)length}},
	};
	uint64_t quiet_ns = CLOCK_NEVER; /* refused until then: no more is taken */
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	struct rmr_completion c;
	int posted = 0, done = 0;

	pair_open(&puppet, &node, &options);
	pattern_fill(node.memory.base, length, 0);
	while (posted < MESSAGES && !clock_passed(quiet_ns)) {
		work = work_of(&node, RMR_OP_SEND, (size_t)posted * length, length, 0);
		work.cookie = (uint64_t)posted;
		if (rmr_post(node.conn, &work, 1) == 1) {
			posted++;
			pattern_fill((uint8_t *)work.local + length, length, (uint64_t)posted);
			quiet_ns = CLOCK_NEVER;
		} else if (quiet_ns == CLOCK_NEVER) {
			quiet_ns = clock_deadline_ns(50);
		}
		if (rmr_poll(node.queue, &c, 1) == 1) {
			CHECK_EQ(c.status, RMR_OK);
			CHECK_EQ(c.cookie, (uint64_t)done++);
		}
	}
	CHECK(posted >= 128);
	puppet_start_sink(&puppet, posted, length, 0);
	while (done < posted)
		CHECK_EQ(node_expect(&node, RMR_OP_SEND, RMR_OK).cookie, (uint64_t)done++);
	puppet_finish(&puppet);
	puppet_expect_silence(&puppet, 10);
	pair_close(&puppet, &node);
}

static void test_stall(void)
{
	check_stall(8, 4);
	check_stall(1000, 16);
	check_stall(30000, 4);
	check_stall(300000, 2);
}

/* We keep all slots while the puppet sends: it stalls. Our own operations towards it go on all the
 * same, and when the slots come back so do the messages. */
static void test_stalled_reads(void)
{
	enum { SLOTS = 4, MESSAGES = 500, LENGTH = 2000 };
	struct pair_options options = {
		.test = {.queue = {.recv_slots = SLOTS, .recv_size = LENGTH}},
		.puppet = {.size = MIB},
	};
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	void *held[SLOTS];
	int i;

	pair_open(&puppet, &node, &options);
	puppet_start_flood(&puppet, MESSAGES, LENGTH, 0);
	for (i = 0; i < SLOTS; i++)
		held[i] = node_expect(&node, RMR_OP_RECV, RMR_OK).data;
	node_expect_silence(&node, 20);
	for (i = 0; i < 200; i++) {
		work = work_of(&node, i % 2 ? RMR_OP_READ : RMR_OP_FETCH_ADD, 0, 8, MIB - 64);
		work.operand = 1;
		node_do(&node, &work);
	}
	CHECK_EQ(*(uint64_t *)node.memory.base, 100);
	for (i = 0; i < SLOTS; i++) {
		pattern_check(held[i], LENGTH, (uint64_t)i, "held message");
		rmr_recv_release(node.queue, held[i]);
	}
	for (; i < MESSAGES; i++)
		node_recv(&node, LENGTH, (uint64_t)i);
	puppet_finish(&puppet);
	pair_close(&puppet, &node);
}

/* Immediates take no slot: they arrive even if all slots are kept, up to what the queue holds. */
static void test_immediates(void)
{
	enum { COUNT = 1000, LENGTH = 16 };
	struct pair_options options = {.puppet = {.queue = {.recv_slots = 8}}};
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	struct rmr_completion c;
	int posted = 0, done = 0, taken, seen = 0;

	/* The puppet is not polling: the immediates pile up, and the sender stalls at most. */
	pair_open(&puppet, &node, &options);
	while (done < COUNT) {
		work = work_of(&node, RMR_OP_WRITE_IMM, 0, LENGTH, 0);
		work.cookie = work.immediate = (uint32_t)posted;
		taken = posted < COUNT ? rmr_post(node.conn, &work, 1) : 0;
		CHECK(taken >= 0);
		posted += taken;
		if (rmr_poll(node.queue, &c, 1) == 1) {
			CHECK_EQ(c.status, RMR_OK);
			CHECK_EQ(c.cookie, (uint64_t)done++);
		} else if (taken == 0 && seen < posted) {
			puppet_expect_imm(&puppet, 0, (uint32_t)seen++, LENGTH);
		}
	}
	while (seen < COUNT)
		puppet_expect_imm(&puppet, 0, (uint32_t)seen++, LENGTH);
	pair_close(&puppet, &node);
}

/* A stalled connection does not stop another one of the same sender. */
static void test_stall_is_private(void)
{
	static const struct side_options small = {.queue = {.recv_slots = 2, .recv_size = 4096}};
	struct puppet stalled, lively;
	struct node node = {0}, other;
	struct rmr_work work;
	uint64_t i;
	int taken;

	puppet_start(&stalled, &small);
	puppet_start(&lively, &small);
	side_open(&node, &small);
	other = node;
	puppet_connect(&stalled, &node, NULL);
	puppet_connect(&lively, &other, NULL);
	do {
		work = work_of(&node, RMR_OP_SEND, 0, 4096, 0);
		work.flags = RMR_UNSIGNALED;
		taken = rmr_post(node.conn, &work, 1);
		CHECK(taken >= 0);
	} while (taken > 0);
	for (i = 0; i < 200; i++) {
		node_send(&other, 48, i);
		puppet_expect_recv(&lively, 0, 48, i);
	}
	puppet_quit(&lively);
	rmr_conn_close(other.conn);
	peer_kill(&stalled.peer);
	node_close(&node);
}

const struct test flow_tests[] = {
	{"flow_depth", test_depth},
	{"flow_stalled_receiver", test_stall},
	{"flow_stalled_receiver_reads", test_stalled_reads},
	{"flow_immediates_pile_up", test_immediates},
	{"flow_stall_is_private", test_stall_is_private},
	{NULL},
};
