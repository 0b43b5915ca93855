/*
 * Closing at any moment: with operations in flight, with messages not released, half-built, in the
 * middle of a peer's traffic.
 *
 * What these tests would catch: a completion of a closed connection, a slot that dies with its
 * connection, memory written after its region was closed, a hang in a close.
 */
#include <stdio.h>
#include <string.h>

#include "conformance.h"
#include "puppet.h"

/* Closing nothing is nothing; and what was opened can be closed at once. */
static void test_half_built(void)
{
	struct node node = {0};

	rmr_device_close(NULL);
	rmr_queue_close(NULL);
	rmr_listener_close(NULL);
	rmr_region_close(NULL);
	rmr_arena_close(NULL);
	rmr_remote_close(NULL);
	rmr_conn_close(NULL);
	node_open(&node, NULL);
	node_close(&node);
}

/* The connection is closed after a random number of operations and completions, on a queue that
 * another connection uses: nothing of it comes out afterwards, and the other one goes on. */
static void test_in_flight(void)
{
	enum { ROUNDS = 150 };
	static const enum rmr_op ops[] = {RMR_OP_SEND, RMR_OP_WRITE, RMR_OP_READ, RMR_OP_FETCH_ADD};
	struct pair_options options = {.test = {.size = MIB}, .puppet = {.size = MIB}};
	struct test_rng rng;
	struct puppet puppet;
	struct node node, other;
	struct rmr_completion c;
	int round, i, count, number;

	test_rng_init(&rng, 1);
	pair_open(&puppet, &node, &options);
	for (round = 0; round < ROUNDS; round++) {
		other = node;
		number = pair_connect(&puppet, &other);
		count = (int)test_rng_below(&rng, 100);
		for (i = 0; i < count; i++) {
			enum rmr_op op = ops[test_rng_below(&rng, TEST_COUNT(ops))];
			struct rmr_work work = work_of(&other, op, 0, 8, 0);

			if (op == RMR_OP_READ || op == RMR_OP_WRITE)
				work.length = test_rng_below(&rng, 100000);
			work.flags = test_rng_below(&rng, 2) ? RMR_MORE : 0;
			node_post(&other, &work);
			if (test_rng_below(&rng, 4) == 0)
				rmr_poll(node.queue, &c, 1);
		}
		rmr_conn_close(other.conn);
		CHECK_EQ(rmr_poll(node.queue, &c, 1), 0);
		puppet_drop(&puppet, number);
		node_send(&node, 20, (uint64_t)round);
		puppet_expect_recv(&puppet, 0, 20, (uint64_t)round);
	}
	pair_close(&puppet, &node);
}

/* Messages outlive the connection they came on, until they are released; and a queue may be closed
 * with messages that never were. */
static void test_unreleased(void)
{
	enum { HELD = 10 };
	struct puppet puppet;
	struct node node;
	void *held[HELD];
	uint64_t i;

	pair_open(&puppet, &node, NULL);
	for (i = 0; i < HELD; i++) {
		puppet_send(&puppet, 0, 50, i);
		held[i] = node_expect(&node, RMR_OP_RECV, RMR_OK).data;
	}
	rmr_conn_close(node.conn);
	node.conn = NULL;
	node.remote = NULL;
	puppet_expect_disconnect(&puppet, 0);
	for (i = 0; i < HELD; i++)
		pattern_check(held[i], 50, i, "message of a closed connection");
	for (i = 0; i < HELD / 2; i++)
		rmr_recv_release(node.queue, held[i]);
	pair_close(&puppet, &node);
}

/* Messages that arrived and were not polled go with the connection; their slots do not. */
static void test_unpolled(void)
{
	enum { SLOTS = 4 };
	struct pair_options options = {.test = {.queue = {.recv_slots = SLOTS}}};
	struct puppet puppet;
	struct node node, other;
	struct rmr_completion c;
	int round, number;
	uint64_t i;

	pair_open(&puppet, &node, &options);
	for (round = 0; round < 20; round++) {
		other = node;
		number = pair_connect(&puppet, &other);
		for (i = 0; i < SLOTS; i++)
			puppet_send(&puppet, number, 50, i);
		if (rmr_poll(node.queue, &c, 1) == 1)
			rmr_recv_release(node.queue, c.data);
		rmr_conn_close(other.conn);
		puppet_drop(&puppet, number);
		for (i = 0; i < 2 * SLOTS; i++) {
			puppet_send(&puppet, 0, 50, 100 + i);
			node_recv(&node, 50, 100 + i);
		}
	}
	pair_close(&puppet, &node);
}

/* A region is closed, and its memory used for something else, while our own READs into it are in
 * flight: they fail or are done already, and the memory stays as we left it. */
static void test_own_region(void)
{
	enum { READS = 100, LENGTH = 500000 };
	struct pair_options options = {.test = {.kind = MEMORY_PLAIN, .size = LENGTH},
				       .puppet = {.size = LENGTH}};
	struct puppet puppet;
	struct node node;
	struct rmr_completion c;
	struct rmr_work work;
	bool failed;
	int round, i;

	for (round = 0; round < 10; round++) {
		pair_open(&puppet, &node, &options);
		puppet_set(&puppet, 0, LENGTH, 0x11);
		work = work_of(&node, RMR_OP_READ, 0, LENGTH, 0);
		for (i = 0; i < READS; i++)
			node_post(&node, &work);
		for (i = 0; i < round; i++)
			node_expect(&node, RMR_OP_READ, RMR_OK);
		rmr_region_close(node.memory.region);
		node.memory.region = NULL;
		memset(node.memory.base, 0x99, LENGTH);
		for (failed = false; i < READS; i++) {
			c = node_next(&node);
			CHECK_EQ(c.op, RMR_OP_READ);
			CHECK(c.status != RMR_OK || !failed);
			failed = c.status != RMR_OK;
		}
		if (failed)
			node_expect_disconnect(&node, node.conn);
		guard_check(node.memory.base, LENGTH, 0x99, "memory of a closed region");
		pair_close(&puppet, &node);
	}
}

/* A handle is closed while its operations are in flight: they complete all the same. */
static void test_remote_in_flight(void)
{
	enum { READS = 60, LENGTH = 100000 };
	struct pair_options options = {.test = {.size = LENGTH}, .puppet = {.size = LENGTH}};
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	int round, i;

	for (round = 0; round < 10; round++) {
		pair_open(&puppet, &node, &options);
		puppet_fill(&puppet, 0, LENGTH, 4);
		work = work_of(&node, RMR_OP_READ, 0, LENGTH, 0);
		for (i = 0; i < READS; i++)
			node_post(&node, &work);
		rmr_remote_close(node.remote);
		node.remote = NULL;
		for (i = 0; i < READS; i++)
			node_expect(&node, RMR_OP_READ, RMR_OK);
		pattern_check(node.memory.base, LENGTH, 4, "READ by a closed handle");
		pair_close(&puppet, &node);
	}
}

/* The peer closes while we send and read as fast as we can: all posted ones are told of. */
static void test_peer_closes(void)
{
	struct pair_options options = {.test = {.size = MIB}, .puppet = {.size = MIB}};
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	int round, posted, taken, successes;

	for (round = 0; round < 20; round++) {
		posted = successes = 0;
		pair_open(&puppet, &node, &options);
		do {
			work = work_of(&node, posted % 3 ? RMR_OP_READ : RMR_OP_SEND, 0, 5000, 0);
			taken = rmr_post(node.conn, &work, 1);
			CHECK(taken >= 0);
			posted += taken;
		} while (taken > 0 && posted < 10 * (round + 1));
		puppet_close_conn(&puppet, 0);
		CHECK_EQ(node_drain(&node, &successes), posted);
		pair_close(&puppet, &node);
	}
}

/* A failure of which nobody has heard yet: closing loses it, and nothing else. */
static void test_failed_unpolled(void)
{
	struct pair_options options = {.puppet = {.size = MIB}};
	struct puppet puppet;
	struct node node, other;
	struct rmr_completion c;
	struct rmr_work work;

	pair_open(&puppet, &node, &options);
	for (int i = 0; i < 10; i++) {
		int number, taken;

		other = node;
		number = pair_connect(&puppet, &other);
		for (int k = 0; k < 5; k++) {
			work = work_of(&other, RMR_OP_READ, 0, 64, k == 2 ? MIB : 0);
			work.flags = k % 2 ? RMR_UNSIGNALED : 0;
			taken = rmr_post(other.conn, &work, 1);
			/* One that is lost takes nothing, before that is told and after. */
			CHECK(taken == 1 || k > 2);
			CHECK(taken == 1 || taken == 0 || taken == RMR_DISCONNECTED);
		}
		test_sleep_ms(10 * i); /* not at all, or long enough for the answer to come */
		rmr_conn_close(other.conn);
		CHECK_EQ(rmr_poll(node.queue, &c, 1), 0);
		puppet_expect_disconnect(&puppet, number);
		puppet_close_conn(&puppet, number);
		node_send(&node, 10, (uint64_t)i);
		puppet_expect_recv(&puppet, 0, 10, (uint64_t)i);
	}
	pair_close(&puppet, &node);
}

static void call_twice(struct node *node)
{
	struct rmr_conn *conn;
	char address[128];

	node_open(node, NULL);
	test_recv(node->pipe, TEST_CHILD, address, sizeof(address));
	CHECK_OK(rmr_connect(node->queue, address, PATIENCE_MS, NULL, &node->conn));
	node_send(node, 12, 1);
	test_await(node->pipe, TEST_CHILD);
	CHECK_STATUS(rmr_connect(node->queue, address, PATIENCE_MS, NULL, &conn), RMR_REFUSED);
	test_await(node->pipe, TEST_CHILD);
	node_close(node);
}

/* Who has called is not forgotten with the listener: it can still be accepted, or rejected. */
static void test_listener_before_request(void)
{
	struct rmr_request *request;
	struct peer peer;
	struct node node = {0};
	char address[128];

	peer_start(&peer, call_twice, NULL);
	node_open(&node, NULL);
	CHECK_OK(rmr_listener_open(node.device, fixture_address(address), NULL, &node.listener));
	snprintf(address, sizeof(address), "%s", rmr_listener_address(node.listener));
	test_send(&peer.pipe, TEST_PARENT, address, sizeof(address));
	CHECK_OK(rmr_listener_next(node.listener, PATIENCE_MS, &request));
	rmr_listener_close(node.listener);
	CHECK_OK(rmr_accept(request, node.queue, NULL, &node.conn));
	node_recv(&node, 12, 1);
	node.listener = NULL;
	CHECK_OK(rmr_listener_open(node.device, address, NULL, &node.listener));
	test_signal(&peer.pipe, TEST_PARENT);
	CHECK_OK(rmr_listener_next(node.listener, PATIENCE_MS, &request));
	rmr_listener_close(node.listener);
	node.listener = NULL;
	rmr_reject(request, "too late");
	test_signal(&peer.pipe, TEST_PARENT);
	peer_join(&peer);
	node_close(&node);
}

const struct test close_tests[] = {
	{"close_with_a_failure_unpolled", test_failed_unpolled},
	{"close_listener_before_its_request", test_listener_before_request},
	{"close_half_built", test_half_built},
	{"close_with_operations_in_flight", test_in_flight},
	{"close_with_messages_unreleased", test_unreleased},
	{"close_with_messages_unpolled", test_unpolled},
	{"close_own_region_in_flight", test_own_region},
	{"close_remote_in_flight", test_remote_in_flight},
	{"close_by_the_peer_in_flight", test_peer_closes},
	{NULL},
};
