/*
 * SEND: sizes up to what the receiver takes, and not a byte more; slots that are handed out in
 * place and given back in any order.
 *
 * What these tests would catch: a length truncated to 16 bits, a slot handed out twice or
 * overwritten before its release, a limit checked at the wrong end, an inline payload that is
 * read after the post.
 */
#include <string.h>

#include "conformance.h"
#include "puppet.h"

/* Sends from the test to the puppet. A long message may need both sides' help: the puppet receives
 * while we wait for the completion. */
static void send_one(struct puppet *puppet, struct node *node, const struct rmr_work *work,
		     uint64_t seed)
{
	pattern_fill(work->local, work->length, seed);
	puppet_start_sink(puppet, 1, work->length, seed);
	node_post(node, work);
	if (work->flags & RMR_INLINE)
		memset(work->local, 0x22, work->length);
	node_expect(node, RMR_OP_SEND, RMR_OK);
	puppet_finish(puppet);
}

/* ... and inline as well where that fits. */
static void check_send(struct puppet *puppet, struct node *node, size_t at, size_t length)
{
	struct rmr_work work = work_of(node, RMR_OP_SEND, at, length, 0);

	send_one(puppet, node, &work, length + at);
	if (length > node->info->max_inline)
		return;
	work.flags = RMR_INLINE;
	work.region = NULL;
	send_one(puppet, node, &work, length + at + 1);
}

static void test_sizes(void)
{
	struct pair_options options = {.test = {.size = MIB + 64},
				       .puppet = {.queue = {.recv_slots = 4, .recv_size = MIB}}};
	enum memory_kind kind;
	struct puppet puppet;
	struct node node;
	size_t i;

	for (kind = MEMORY_ARENA; kind <= MEMORY_PLAIN; kind++) {
		options.test.kind = kind;
		pair_open(&puppet, &node, &options);

		const size_t limit = node.info->max_inline;
		const size_t lengths[] = {0,	     1,	       7,	  8,	   9,
					  limit - 1, limit,    limit + 1, 1000,	   4 * KIB,
					  65535,     64 * KIB, 65537,	  MIB - 1, MIB};

		for (i = 0; i < TEST_COUNT(lengths); i++)
			check_send(&puppet, &node, i % 9, lengths[i]);
		pair_close(&puppet, &node);
	}
}

static void test_huge(void)
{
	size_t length = 64 * MIB;
	struct pair_options options = {.test = {.size = length + 1},
				       .puppet = {.queue = {.recv_slots = 2}}};
	struct puppet puppet;
	struct node node = {0};

	node_open(&node, NULL);
	if (node.info->max_message < length)
		length = node.info->max_message;
	node_close(&node);
	options.puppet.queue.recv_size = (uint32_t)length;
	pair_open(&puppet, &node, &options);
	check_send(&puppet, &node, 1, length);
	check_send(&puppet, &node, 0, length - 1);
	check_send(&puppet, &node, 0, 1);
	pair_close(&puppet, &node);
}

/* One byte more than the receiver takes is refused here, and nothing else happens. */
static void test_too_long(void)
{
	static const uint32_t sizes[] = {64, 100, 8192, 100000};
	struct rmr_conn_info info;
	struct puppet puppet;
	struct node node;
	size_t i;

	for (i = 0; i < TEST_COUNT(sizes); i++) {
		struct pair_options options = {
			.test = {.size = MIB, .queue = {.recv_size = 64}},
			.puppet = {.queue = {.recv_size = sizes[i]}},
		};
		struct rmr_work work;

		pair_open(&puppet, &node, &options);
		rmr_conn_get_info(node.conn, &info);
		CHECK(info.max_send >= sizes[i]);
		CHECK(info.max_send <= node.info->max_message);
		CHECK_EQ(info.max_send, sizes[i]);
		work = work_of(&node, RMR_OP_SEND, 0, info.max_send + 1, 0);
		CHECK_EQ(rmr_post(node.conn, &work, 1), RMR_TOO_LONG);
		check_send(&puppet, &node, 0, info.max_send);
		pair_close(&puppet, &node);
	}
}

/* Holds as many messages as there are slots; none may change before its release, in whatever order
 * they are given back, although more are waiting to come in. */
static void test_slots(void)
{
	enum { SLOTS = 32, ROUNDS = 50, LENGTH = 1000 };
	struct pair_options options = {
		.test = {.queue = {.recv_slots = SLOTS, .recv_size = 4096}},
		.puppet = {.size = MIB},
	};
	struct {
		void *data;
		uint64_t seed;
	} held[SLOTS];
	struct test_rng rng;
	struct puppet puppet;
	struct node node;
	uint64_t seed = 0;
	size_t left, pick;
	int round;

	test_rng_init(&rng, 1);
	pair_open(&puppet, &node, &options);
	puppet_start_flood(&puppet, SLOTS * ROUNDS, LENGTH, 0);
	for (round = 0; round < ROUNDS; round++) {
		for (left = 0; left < SLOTS; left++) {
			struct rmr_completion c = node_expect(&node, RMR_OP_RECV, RMR_OK);

			CHECK_EQ(c.length, LENGTH);
			held[left].data = c.data;
			held[left].seed = seed++;
		}
		for (; left > 0; left--) {
			pick = test_rng_below(&rng, left);
			pattern_check(held[pick].data, LENGTH, held[pick].seed, "held message");
			rmr_recv_release(node.queue, held[pick].data);
			held[pick] = held[left - 1];
		}
	}
	puppet_finish(&puppet);
	pair_close(&puppet, &node);
}

/* A window of held messages from which random ones are released: slots come back one by one and
 * out of order while the flood goes on. */
static void test_window(void)
{
	enum { SLOTS = 16, MESSAGES = 4000, LENGTH = 333 };
	struct pair_options options = {
		.test = {.queue = {.recv_slots = SLOTS, .recv_size = 512}},
	};
	struct {
		void *data;
		uint64_t seed;
	} held[SLOTS];
	struct test_rng rng;
	struct puppet puppet;
	struct node node;
	size_t count = 0, pick;
	uint64_t seed;

	test_rng_init(&rng, 2);
	pair_open(&puppet, &node, &options);
	puppet_start_flood(&puppet, MESSAGES, LENGTH, 0);
	for (seed = 0; seed < MESSAGES; seed++) {
		held[count].data = node_expect(&node, RMR_OP_RECV, RMR_OK).data;
		held[count++].seed = seed;
		while (count == SLOTS || (count > 0 && test_rng_below(&rng, 4) == 0)) {
			pick = test_rng_below(&rng, count);
			pattern_check(held[pick].data, LENGTH, held[pick].seed, "held message");
			rmr_recv_release(node.queue, held[pick].data);
			held[pick] = held[--count];
		}
	}
	while (count > 0)
		rmr_recv_release(node.queue, held[--count].data);
	puppet_finish(&puppet);
	pair_close(&puppet, &node);
}

/* Floods of messages of the maximum length, one way and then the other. */
static void test_both_ways(void)
{
	enum { MESSAGES = 300, LENGTH = 32 * KIB };
	struct side_options side = {.size = MIB, .queue = {.recv_slots = 8, .recv_size = LENGTH}};
	struct pair_options options = {side, side};
	struct puppet puppet;
	struct node node;
	int sent, received;

	pair_open(&puppet, &node, &options);
	puppet_start_flood(&puppet, MESSAGES, LENGTH, 5000);
	for (received = 0; received < MESSAGES; received++)
		node_recv(&node, LENGTH, 5000 + (uint64_t)received);
	puppet_finish(&puppet);
	puppet_start_sink(&puppet, MESSAGES, LENGTH, 9000);
	for (sent = 0; sent < MESSAGES; sent++)
		node_send(&node, LENGTH, 9000 + (uint64_t)sent);
	puppet_finish(&puppet);
	pair_close(&puppet, &node);
}

const struct test message_tests[] = {
	{"message_sizes", test_sizes},
	{"message_64_mib", test_huge, TEST_SLOW},
	{"message_too_long", test_too_long},
	{"message_slots_all_held", test_slots},
	{"message_slots_out_of_order", test_window},
	{"message_longest_both_ways", test_both_ways},
	{NULL},
};
