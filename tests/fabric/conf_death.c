/*
 * Peers that die, leave, or do nothing at all.
 *
 * Whatever moment a peer dies at: every operation posted is told of, successes first, then errors,
 * then one DISCONNECT, and all of it soon. A peer that closes properly has delivered what it had
 * completed. A peer that merely sleeps, computes or is stopped does not hinder one-sided access.
 *
 * What these tests would catch: operations forgotten in a ring, a DISCONNECT that overtakes the
 * errors or comes twice, messages lost because the end was noticed first, a target whose help is
 * needed after all.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "conformance.h"
#include "puppet.h"

/* ------------------------------------------------------------------------------------------
 * Killed
 */

struct tally {
	uint64_t posted, completed;
	bool failing, over;
};

/* Takes what there is, and checks that nothing is out of order. */
static void take(struct node *node, struct tally *tally)
{
	struct rmr_completion c;

	while (!tally->over && rmr_poll(node->queue, &c, 1) == 1) {
		if (c.op == RMR_OP_DISCONNECT) {
			CHECK(c.status != RMR_OK);
			CHECK_EQ(tally->completed, tally->posted);
			tally->over = true;
			continue;
		}
		CHECK_EQ(c.cookie, tally->completed++);
		if (tally->failing)
			CHECK_EQ(c.status, RMR_CANCELED);
		else if (c.status != RMR_OK)
			CHECK(c.status == RMR_DISCONNECTED || c.status == RMR_CANCELED);
		tally->failing = c.status != RMR_OK;
	}
}

/* Keeps the connection full of operations, kills the puppet after a while, and goes on posting
 * until that is refused. */
static void check_killed(enum rmr_op op, size_t length, unsigned after_us)
{
	struct pair_options options = {.test = {.size = MIB}, .puppet = {.size = MIB}};
	uint64_t kill_ns, end_ns;
	struct tally tally = {0};
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	bool killed = false;
	int taken = 0;

	pair_open(&puppet, &node, &options);
	kill_ns = clock_now_ns() + after_us * 1000u;
	end_ns = clock_deadline_ns(5000 * TEST_TIME_FACTOR);
	while (!tally.over) {
		work = work_of(&node, op, 0, length, 0);
		work.cookie = tally.posted;
		taken = taken >= 0 ? rmr_post(node.conn, &work, 1) : taken;
		CHECK(taken >= 0 || taken == RMR_DISCONNECTED);
		tally.posted += taken == 1;
		take(&node, &tally);
		if (!killed && clock_passed(kill_ns)) {
			peer_kill(&puppet.peer);
			killed = true;
		}
		if (clock_passed(end_ns))
			TEST_FAIL("%s: no end; %llu posted, %llu completed", op_name(op),
				  (unsigned long long)tally.posted,
				  (unsigned long long)tally.completed);
	}
	CHECK(killed);
	CHECK_EQ(rmr_post(node.conn, &work, 1), RMR_DISCONNECTED);
	node_expect_silence(&node, 5);
	node_close(&node);
}

static void test_killed(void)
{
	static const struct {
		enum rmr_op op;
		size_t length;
	} ops[] = {
		{RMR_OP_READ, 8},    {RMR_OP_READ, MIB},       {RMR_OP_WRITE, 8},
		{RMR_OP_WRITE, MIB}, {RMR_OP_FETCH_ADD, 8},    {RMR_OP_SEND, 8192},
		{RMR_OP_SEND, 16},   {RMR_OP_WRITE_IMM, 4096},
	};
	size_t i;

	for (i = 0; i < TEST_COUNT(ops); i++) {
		check_killed(ops[i].op, ops[i].length, 0);
		check_killed(ops[i].op, ops[i].length, 700);
		check_killed(ops[i].op, ops[i].length, 5000);
	}
}

/* The same for one who only sleeps: all is posted, nothing polled, then the peer dies. */
static void test_killed_asleep(void)
{
	struct pair_options options = {.puppet = {.queue = {.recv_slots = 4, .recv_size = 4096}}};
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	int posted = 0, successes = 0, taken;

	pair_open(&puppet, &node, &options);
	do {
		work = work_of(&node, RMR_OP_SEND, 0, 4096, 0);
		taken = rmr_post(node.conn, &work, 1);
		CHECK(taken >= 0);
		posted += taken;
	} while (taken == 1);
	peer_kill(&puppet.peer);
	CHECK_EQ(node_drain(&node, &successes), posted);
	node_close(&node);
}

static void flood_for_ever(struct node *node)
{
	struct rmr_completion c;
	uint64_t i = 0;

	node_open(node, NULL);
	node_accept(node, NULL);
	for (;;) {
		struct rmr_work work = {.op = RMR_OP_SEND,
					.flags = RMR_INLINE | RMR_UNSIGNALED,
					.local = &i,
					.length = sizeof(i)};

		if (rmr_post(node->conn, &work, 1) == 1)
			i++;
		else
			rmr_poll(node->queue, &c, 1);
	}
}

/* A sender dies in the middle: its messages are in sequence up to the end. */
static void test_sender_killed(void)
{
	struct peer peer;
	struct node node = {0};
	struct rmr_completion c;
	uint64_t i, number;
	int round;

	for (round = 0; round < 10; round++) {
		peer_start(&peer, flood_for_ever, NULL);
		node_open(&node, NULL);
		node_connect(&node, &peer, NULL);
		for (i = 0;; i++) {
			c = node_next(&node);
			if (c.op == RMR_OP_DISCONNECT)
				break;
			CHECK_EQ(c.op, RMR_OP_RECV);
			CHECK_EQ(c.length, 8);
			memcpy(&number, c.data, 8);
			CHECK_EQ(number, i);
			rmr_recv_release(node.queue, c.data);
			if (i == (uint64_t)round * 500)
				peer_kill(&peer);
		}
		CHECK(i > (uint64_t)round * 500);
		CHECK(c.status != RMR_OK);
		node_expect_silence(&node, 5);
		node_close(&node);
	}
}

/* Of several peers on one queue one dies; the others do not notice. */
static void test_one_of_three(void)
{
	static const struct side_options defaults;
	struct puppet puppets[3];
	struct node nodes[3] = {0};
	int i, round;

	for (i = 0; i < 3; i++)
		puppet_start(&puppets[i], &defaults);
	side_open(&nodes[0], &defaults);
	nodes[2] = nodes[1] = nodes[0];
	for (i = 0; i < 3; i++)
		puppet_connect(&puppets[i], &nodes[i], NULL);
	peer_kill(&puppets[1].peer);
	node_expect_disconnect(&nodes[1], nodes[1].conn);
	rmr_conn_close(nodes[1].conn);
	for (round = 0; round < 100; round++) {
		for (i = 0; i < 3; i += 2) {
			struct rmr_work work = work_of(&nodes[i], RMR_OP_READ, 0, 1000, 0);

			puppet_fill(&puppets[i], 0, 1000, (uint64_t)round);
			node_do(&nodes[i], &work);
			pattern_check(work.local, 1000, (uint64_t)round, "READ");
			puppet_send(&puppets[i], 0, 20, (uint64_t)round);
			node_recv(&nodes[i], 20, (uint64_t)round);
		}
	}
	puppet_quit(&puppets[0]);
	puppet_quit(&puppets[2]);
	rmr_conn_close(nodes[2].conn);
	node_close(&nodes[0]);
}

/* ------------------------------------------------------------------------------------------
 * Gone of their own will
 */
#define LAST_WORDS 300

/* Sends, waits until all is completed, and leaves at once. */
static void say_farewell(struct node *node)
{
	size_t *length = node->arg;
	uint64_t i;

	node_open(node, NULL);
	node_memory(node, MEMORY_ARENA, 64 * KIB, 0);
	node_accept(node, NULL);
	for (i = 0; i < LAST_WORDS; i++)
		node_send(node, *length, i);
	node_close(node);
}

/* All that was completed before the close is received before the DISCONNECT, also by one who is
 * slow and has few slots. */
static void check_farewell(size_t length)
{
	struct rmr_queue_options options = {.recv_slots = 8};
	struct peer peer;
	struct node node = {0};
	uint64_t i;

	peer_start(&peer, say_farewell, &length);
	node_open(&node, &options);
	node_connect(&node, &peer, NULL);
	for (i = 0; i < LAST_WORDS; i++) {
		if (i == 3 || i == LAST_WORDS - 10)
			test_sleep_ms(20); /* let it pile up, and let the peer be gone */
		node_recv(&node, length, i);
	}
	node_expect_disconnect(&node, node.conn);
	peer_join(&peer);
	node_expect_silence(&node, 5);
	node_close(&node);
}

static void test_closed(void)
{
	check_farewell(10);
	check_farewell(8000);
}

static void accept_and_exit(struct node *node)
{
	node_open(node, NULL);
	node_accept(node, NULL);
	node_send(node, 10, 1);
	_exit(0);
}

/* Nothing closed, just gone. */
static void test_exited(void)
{
	struct peer peer;
	struct node node = {0};
	int successes = 0;

	peer_start(&peer, accept_and_exit, NULL);
	node_open(&node, NULL);
	node_connect(&node, &peer, NULL);
	CHECK_EQ(node_drain(&node, &successes), 0);
	peer_join(&peer);
	node_close(&node);
}

/* ------------------------------------------------------------------------------------------
 * Doing nothing
 */
static void sleep_role(struct node *node)
{
	node_open(node, NULL);
	node_memory(node, MEMORY_ARENA, MIB, memory_rights(node, MEMORY_ARENA));
	pattern_fill(node->memory.base, MIB, 3);
	node_accept(node, NULL);
	node_export(node);
	for (;;)
		pause();
}

static void compute_role(struct node *node)
{
	volatile uint64_t x = 0;

	node_open(node, NULL);
	node_memory(node, MEMORY_ARENA, MIB, memory_rights(node, MEMORY_ARENA));
	pattern_fill(node->memory.base, MIB, 3);
	node_accept(node, NULL);
	node_export(node);
	for (;;)
		x++;
}

/* READ, WRITE and both atomics on memory of a target that does not help. */
static void check_onesided(struct node *node)
{
	uint64_t begin_ns = clock_now_ns();
	struct rmr_work work;
	uint64_t i;

	for (i = 0; i < 200; i++) {
		work = work_of(node, RMR_OP_READ, 0, 100 * KIB, 0);
		node_do(node, &work);
		pattern_check(work.local, 100 * KIB, 3, "READ");
		pattern_fill(node->memory.base, 3000, i);
		work = work_of(node, RMR_OP_WRITE, 0, 3000, 500 * KIB);
		node_do(node, &work);
		work = work_of(node, RMR_OP_READ, 4000, 3000, 500 * KIB);
		node_do(node, &work);
		pattern_check(work.local, 3000, i, "READ of what was written");
	}
	work = work_of(node, RMR_OP_WRITE, 0, 8, 600 * KIB);
	memset(work.local, 0, 8);
	node_do(node, &work);
	for (i = 0; i < 200 && node->info->capabilities & RMR_CAP_ATOMIC; i++) {
		work = work_of(node, i % 2 ? RMR_OP_COMPARE_SWAP : RMR_OP_FETCH_ADD, 0, 8,
			       600 * KIB);
		work.compare = i;
		work.operand = i % 2 ? i + 1 : 1;
		node_do(node, &work);
		CHECK_EQ(*(uint64_t *)work.local, i);
	}
	if (clock_now_ns() - begin_ns > 2000000000ull * TEST_TIME_FACTOR)
		TEST_FAIL("one-sided operations took %llu ms",
			  (unsigned long long)(clock_now_ns() - begin_ns) / 1000000);
}

static void check_idle_target(role_function *role)
{
	struct peer peer;
	struct node node = {0};

	peer_start(&peer, role, NULL);
	node_open(&node, NULL);
	node_memory(&node, MEMORY_ARENA, MIB, 0);
	node_connect(&node, &peer, NULL);
	node_import(&node);
	check_onesided(&node);
	peer_kill(&peer);
	node_expect_disconnect(&node, node.conn);
	node_close(&node);
}

static void test_sleeping_target(void)
{
	check_idle_target(sleep_role);
}

static void test_computing_target(void)
{
	check_idle_target(compute_role);
}

/* Not even a process that is stopped matters where its processor is not needed; and a map outlives
 * it. */
static void test_stopped_target(void)
{
	struct peer peer;
	struct node node = {0};
	const void *pointer;

	peer_start(&peer, sleep_role, NULL);
	node_open(&node, NULL);
	if (!(node.info->capabilities & RMR_CAP_OFFLOAD))
		TEST_SKIP("%s needs the target's processor", node.info->name);
	node_memory(&node, MEMORY_ARENA, MIB, 0);
	node_connect(&node, &peer, NULL);
	node_import(&node);
	CHECK_EQ(kill(peer.pid, SIGSTOP), 0);
	check_onesided(&node);
	pointer = rmr_remote_pointer(node.remote);
	CHECK_EQ(pointer != NULL, (node.info->capabilities & RMR_CAP_MAP) != 0);
	peer_kill(&peer);
	node_expect_disconnect(&node, node.conn);
	if (pointer != NULL)
		pattern_check(pointer, 100 * KIB, 3, "memory of a dead peer");
	node_close(&node);
}

const struct test death_tests[] = {
	{"death_killed_in_flight", test_killed},
	{"death_killed_while_asleep", test_killed_asleep},
	{"death_of_a_sender", test_sender_killed},
	{"death_of_one_of_three", test_one_of_three},
	{"death_closed_after_last_words", test_closed},
	{"death_exited_without_closing", test_exited},
	{"idle_target_sleeps", test_sleeping_target},
	{"idle_target_computes", test_computing_target},
	{"idle_target_is_stopped", test_stopped_target},
	{NULL},
};
