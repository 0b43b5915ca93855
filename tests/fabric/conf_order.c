/*
 * Order: messages arrive as they were posted; what was written before a message or an immediate is
 * there when it arrives; completions come in the order of posting, and one success speaks for all
 * before it; held-back operations leave with the flush.
 *
 * What these tests would catch: a small message that overtakes a large one on a faster path, an
 * immediate delivered before the last bytes are placed, completions per kind of operation
 * instead of per connection, a lost flush.
 */
#include <string.h>

#include "base/clock.h"
#include "conformance.h"
#include "puppet.h"

/* ------------------------------------------------------------------------------------------
 * Messages of mixed lengths, in order
 */
#define SEQUENCE_MESSAGES 5000
#define SEQUENCE_LONGEST  (20 * KIB)

static size_t sequence_length(uint64_t i)
{
	static const size_t lengths[] = {0, 1, 8, 64, 65, 300, 4096, SEQUENCE_LONGEST, 5, 1000};

	return lengths[(i * 7 + i / 10) % TEST_COUNT(lengths)];
}

static void receive_sequence(struct node *node)
{
	struct rmr_queue_options options = {.recv_slots = 16, .recv_size = SEQUENCE_LONGEST};
	uint64_t i;

	node_open(node, &options);
	node_accept(node, NULL);
	for (i = 0; i < SEQUENCE_MESSAGES; i++)
		node_recv(node, sequence_length(i), i);
	node_close(node);
}

static void test_sequence(void)
{
	enum { PLACES = 32 };
	struct peer peer;
	struct node node = {0};
	uint64_t posted = 0, done = 0;

	peer_start(&peer, receive_sequence, NULL);
	node_open(&node, NULL);
	node_memory(&node, MEMORY_ARENA, PLACES * SEQUENCE_LONGEST, 0);
	node_connect(&node, &peer, NULL);
	while (done < SEQUENCE_MESSAGES) {
		struct rmr_work work =
			work_of(&node, RMR_OP_SEND, posted % PLACES * SEQUENCE_LONGEST,
				sequence_length(posted), 0);

		work.cookie = posted;
		if (work.length <= node.info->max_inline && posted % 3 == 0)
			work.flags = RMR_INLINE;
		if (posted < SEQUENCE_MESSAGES && posted - done < PLACES) {
			pattern_fill(work.local, work.length, posted);
			if (rmr_post(node.conn, &work, 1) == 1) {
				posted++;
				continue;
			}
		}
		CHECK_EQ(node_expect(&node, RMR_OP_SEND, RMR_OK).cookie, done++);
	}
	peer_join(&peer);
	node_close(&node);
}

/* ------------------------------------------------------------------------------------------
 * What was written before is there
 */
static void check_visible(enum rmr_op signal)
{
	enum { ROUNDS = 40, PIECES = 5 };
	size_t piece = 200 * KIB + 13, all = piece * PIECES;
	struct pair_options options = {.test = {.size = all}, .puppet = {.size = all}};
	struct puppet puppet;
	struct node node;
	struct rmr_work works[PIECES + 1];
	uint64_t round;
	int i;

	pair_open(&puppet, &node, &options);
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < PIECES; i++) {
			works[i] = work_of(&node, RMR_OP_WRITE, i * piece, piece, i * piece);
			works[i].flags = RMR_UNSIGNALED | RMR_MORE;
			pattern_fill(works[i].local, piece, round * 8 + (uint64_t)i);
		}
		works[i] = work_of(&node, signal, 0, 0, 0);
		works[i].immediate = (uint32_t)round;
		CHECK_EQ(rmr_post(node.conn, works, PIECES + 1), PIECES + 1);
		if (signal == RMR_OP_SEND)
			puppet_expect_recv(&puppet, 0, 0, 0);
		else
			puppet_expect_imm(&puppet, 0, (uint32_t)round, 0);
		for (i = 0; i < PIECES; i++)
			puppet_check(&puppet, i * piece, piece, round * 8 + (uint64_t)i);
		node_expect(&node, signal, RMR_OK);
	}
	pair_close(&puppet, &node);
}

static void test_write_then_send(void)
{
	check_visible(RMR_OP_SEND);
}

static void test_write_then_immediate(void)
{
	check_visible(RMR_OP_WRITE_IMM);
}

/* Immediates and messages keep their order among each other. */
static void test_mixed_arrival(void)
{
	enum { COUNT = 1000 };
	struct pair_options options = {.puppet = {.queue = {.recv_slots = 8}}};
	struct puppet puppet;
	struct node node;
	uint32_t i, batch;

	pair_open(&puppet, &node, &options);
	for (i = 0; i < COUNT; i += batch) {
		batch = 1 + i % 6;
		for (uint32_t j = i; j < i + batch; j++) {
			bool send = j % 3 == 0;
			struct rmr_work work = work_of(&node, send ? RMR_OP_SEND : RMR_OP_WRITE_IMM,
						       j % 8 * 64, 8, 0);

			work.flags = RMR_UNSIGNALED | (j % 5 ? RMR_MORE : 0);
			work.immediate = j;
			pattern_fill(work.local, 8, j);
			node_post(&node, &work);
		}
		rmr_flush(node.conn);
		for (uint32_t j = i; j < i + batch; j++) {
			if (j % 3 == 0)
				puppet_expect_recv(&puppet, 0, 8, j);
			else
				puppet_expect_imm(&puppet, 0, j, 8);
		}
	}
	pair_close(&puppet, &node);
}

/* ------------------------------------------------------------------------------------------
 * Completions
 */

/* A mix of fast and slow operations completes in the order of posting, with its cookies. */
static void test_completion_order(void)
{
	static const struct {
		enum rmr_op op;
		size_t length;
	} mix[] = {
		{RMR_OP_WRITE, 300000},	  {RMR_OP_READ, 1},  {RMR_OP_SEND, 10},
		{RMR_OP_READ, 500000},	  {RMR_OP_WRITE, 1}, {RMR_OP_FETCH_ADD, 8},
		{RMR_OP_WRITE_IMM, 3},	  {RMR_OP_READ, 0},  {RMR_OP_COMPARE_SWAP, 8},
		{RMR_OP_WRITE_IMM, 4096}, {RMR_OP_SEND, 0},  {RMR_OP_READ, 4096},
	};
	enum { MIX = TEST_COUNT(mix), ROUNDS = 30 };
	struct pair_options options = {.test = {.size = MIB}, .puppet = {.size = MIB}};
	struct rmr_completion c;
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	uint64_t round, i;

	pair_open(&puppet, &node, &options);
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < MIX; i++) {
			work = work_of(&node, mix[i].op, 0, mix[i].length, 0);
			work.cookie = round * MIX + i;
			node_post(&node, &work);
		}
		for (i = 0; i < MIX; i++) {
			c = node_expect(&node, mix[i].op, RMR_OK);
			CHECK_EQ(c.cookie, round * MIX + i);
			CHECK(c.conn == node.conn);
		}
		puppet_discard(&puppet, 4);
	}
	pair_close(&puppet, &node);
}

/* One signaled operation after many that are not: only it completes, and all are placed. */
static void test_unsignaled(void)
{
	enum { ROUNDS = 200, BATCH = 60, LENGTH = 700 };
	struct pair_options options = {.test = {.size = MIB}, .puppet = {.size = MIB}};
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	int round, i;

	pair_open(&puppet, &node, &options);
	for (round = 0; round < ROUNDS; round++) {
		size_t all = (size_t)BATCH * LENGTH;

		pattern_fill(node.memory.base, all, (uint64_t)round);
		for (i = 0; i < BATCH; i++) {
			size_t at = (size_t)i * LENGTH;

			work = work_of(&node, RMR_OP_WRITE, at, LENGTH, at);
			work.flags = i < BATCH - 1 ? RMR_UNSIGNALED : 0;
			work.cookie = (uint64_t)i;
			node_post(&node, &work);
		}
		CHECK_EQ(node_expect(&node, RMR_OP_WRITE, RMR_OK).cookie, BATCH - 1);
		puppet_check(&puppet, 0, all, (uint64_t)round);
	}
	node_expect_silence(&node, 10);
	pair_close(&puppet, &node);
}

/* Unsignaled READs are there when a later operation completes. */
static void test_unsignaled_reads(void)
{
	enum { ROUNDS = 100, BATCH = 20, LENGTH = 3000 };
	struct pair_options options = {.test = {.size = MIB}, .puppet = {.size = MIB}};
	size_t all = (size_t)BATCH * LENGTH;
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	int round, i;

	pair_open(&puppet, &node, &options);
	for (round = 0; round < ROUNDS; round++) {
		puppet_fill(&puppet, 0, all, (uint64_t)round);
		for (i = 0; i < BATCH; i++) {
			size_t at = (size_t)i * LENGTH;

			work = work_of(&node, RMR_OP_READ, at, LENGTH, at);
			work.flags = RMR_UNSIGNALED | RMR_MORE;
			node_post(&node, &work);
		}
		work = work_of(&node, RMR_OP_WRITE, all, 1, all);
		node_do(&node, &work);
		pattern_check(node.memory.base, all, (uint64_t)round, "unsignaled READs");
	}
	pair_close(&puppet, &node);
}

/* Everything unsignaled, far more than the depth: room comes back without a completion. */
static void test_all_unsignaled(void)
{
	enum { COUNT = 20000, DEPTH = 16 };
	struct pair_options options = {.test = {.conn = {.depth = DEPTH}}};
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct puppet puppet;
	struct node node;
	struct rmr_completion c;
	struct rmr_work work;
	int posted = 0, taken;

	pair_open(&puppet, &node, &options);
	while (posted < COUNT) {
		work = work_of(&node, RMR_OP_FETCH_ADD, 0, 8, 64);
		work.flags = RMR_UNSIGNALED;
		work.operand = 3;
		taken = rmr_post(node.conn, &work, 1);
		CHECK(taken >= 0);
		posted += taken;
		if (taken == 0)
			CHECK_EQ(rmr_poll(node.queue, &c, 1), 0);
		CHECK(!clock_passed(deadline_ns));
	}
	work = work_of(&node, RMR_OP_READ, 8, 8, 64);
	while ((taken = rmr_post(node.conn, &work, 1)) == 0)
		CHECK_EQ(rmr_poll(node.queue, &c, 1), 0);
	CHECK_EQ(taken, 1);
	node_expect(&node, RMR_OP_READ, RMR_OK);
	CHECK_EQ(*(uint64_t *)(node.memory.base + 8), (uint64_t)COUNT * 3);
	pair_close(&puppet, &node);
}

/* ------------------------------------------------------------------------------------------
 * RMR_MORE and the doorbell
 */

enum doorbell {
	BY_FLUSH,
	BY_LAST_POST, /* one without RMR_MORE */
	BY_COUNT,     /* auto_flush of them */
	BY_WAIT,      /* the poster goes to sleep */
	DOORBELLS,
};

/* Held operations start with any of these, and reach a receiver that sleeps. */
static void test_more(void)
{
	struct pair_options options = {.test = {.conn = {.auto_flush = 4}}};
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	int way, i, round;

	pair_open(&puppet, &node, &options);
	for (round = 0; round < 5 * DOORBELLS; round++) {
		int count;

		way = round % DOORBELLS;
		count = way == BY_COUNT ? 4 : 3;
		puppet_start_sink(&puppet, count, 8, (uint64_t)round);
		test_sleep_ms(2); /* the puppet goes to sleep */
		for (i = 0; i < count; i++) {
			work = work_of(&node, RMR_OP_SEND, (size_t)i * 8, 8, 0);
			work.flags = way == BY_LAST_POST && i == count - 1 ? 0 : RMR_MORE;
			pattern_fill(work.local, 8, (uint64_t)(round + i));
			node_post(&node, &work);
		}
		if (way == BY_FLUSH)
			rmr_flush(node.conn);
		if (way != BY_WAIT)
			puppet_finish(&puppet);
		for (i = 0; i < count; i++)
			node_expect(&node, RMR_OP_SEND, RMR_OK);
		node_expect_silence(&node, 1);
		if (way == BY_WAIT)
			puppet_finish(&puppet);
	}
	rmr_flush(node.conn); /* with nothing held: nothing */
	node_expect_silence(&node, 5);
	pair_close(&puppet, &node);
}

const struct test order_tests[] = {
	{"order_of_messages", test_sequence},
	{"order_write_then_send", test_write_then_send},
	{"order_write_then_immediate", test_write_then_immediate},
	{"order_messages_and_immediates", test_mixed_arrival},
	{"order_of_completions", test_completion_order},
	{"order_unsignaled_writes", test_unsignaled},
	{"order_unsignaled_reads", test_unsignaled_reads},
	{"order_all_unsignaled", test_all_unsignaled},
	{"order_more_and_flush", test_more},
	{NULL},
};
