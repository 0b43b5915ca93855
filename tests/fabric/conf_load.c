/*
 * A long random run: operations of all kinds, lengths, flags and batch sizes, checked against a
 * model of the target's memory. The seed is shown on failure and can be given again (TEST_SEED).
 *
 * Every operation in flight has a cell of its own on both sides, used again when it is done, so the
 * model of a cell is exact at any time: changed when an operation is made, compared when it is
 * done.
 *
 * What it would catch: whatever the other tests forgot.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "conformance.h"

#define CELL	   (32 * KIB)
#define WINDOW	   64 /* operations in flight at most, each with a cell on both sides */
#define OPERATIONS 100000

/* The target takes messages, checks each, and counts immediates; says in the end how many came. */
static void target(struct node *node)
{
	struct rmr_queue_options options = {.recv_slots = 32, .recv_size = CELL};
	uint64_t messages = 0, immediates = 0;
	struct rmr_completion c;

	node_open(node, &options);
	node_memory(node, MEMORY_ARENA, WINDOW * CELL, memory_rights(node, MEMORY_ARENA));
	node_accept(node, NULL);
	node_export(node);
	while ((c = node_next(node)).op != RMR_OP_DISCONNECT) {
		CHECK_EQ(c.status, RMR_OK);
		if (c.op == RMR_OP_RECV_IMM) {
			CHECK_EQ(c.immediate, (uint32_t)immediates++);
			continue;
		}
		CHECK_EQ(c.op, RMR_OP_RECV);
		pattern_check(c.data, c.length, messages++, "message under load");
		rmr_recv_release(node->queue, c.data);
	}
	test_send(node->pipe, TEST_CHILD, &messages, sizeof(messages));
	test_send(node->pipe, TEST_CHILD, &immediates, sizeof(immediates));
	node_close(node);
}

struct flight {
	enum rmr_op op;
	uint8_t *local;	 /* where a READ or an old value lands */
	uint8_t *remote; /* the model of what is read */
	size_t length;
	uint64_t expected; /* atomics: the old value */
};

struct load {
	struct node node;
	struct test_rng rng;
	uint8_t *model; /* the target's memory */
	struct flight flights[WINDOW];
	uint64_t made, done, messages, immediates;
};

static size_t random_length(struct test_rng *rng)
{
	switch (test_rng_below(rng, 10)) {
	case 0:
		return 0;
	case 1:
		return 1 + test_rng_below(rng, CELL);
	case 2:
		return 1 + test_rng_below(rng, 4 * KIB);
	default:
		return 1 + test_rng_below(rng, 200);
	}
}

/* An atomic on the model: what it finds, and what it leaves. */
static void make_atomic(struct load *load, struct flight *flight, struct rmr_work *work)
{
	uint64_t word;

	memcpy(&word, flight->remote, 8);
	flight->expected = word;
	work->operand = test_rng_next(&load->rng);
	work->compare = test_rng_below(&load->rng, 2) ? word : word + 1;
	if (work->op == RMR_OP_FETCH_ADD)
		word += work->operand;
	else if (work->compare == word)
		word = work->operand;
	memcpy(flight->remote, &word, 8);
}

/* Prepares local memory and brings the model up to date. */
static void make_bytes(struct load *load, struct flight *flight, struct rmr_work *work)
{
	if (work->op == RMR_OP_READ) {
		memset(work->local, 0xee, work->length);
		return;
	}
	if (work->op == RMR_OP_SEND) {
		pattern_fill(work->local, work->length, load->messages++);
	} else {
		pattern_fill(work->local, work->length, load->made);
		memcpy(flight->remote, work->local, work->length);
		if (work->op == RMR_OP_WRITE_IMM)
			work->immediate = (uint32_t)load->immediates++;
	}
	if (work->length <= load->node.info->max_inline && test_rng_below(&load->rng, 2))
		work->flags |= RMR_INLINE;
}

static struct rmr_work make_work(struct load *load)
{
	size_t cell = load->made % WINDOW * CELL, length = random_length(&load->rng), at, from;
	enum rmr_op op = RMR_OP_SEND + (enum rmr_op)test_rng_below(&load->rng, 6);
	struct flight *flight = &load->flights[load->made % WINDOW];
	bool atomic = op >= RMR_OP_COMPARE_SWAP;
	struct rmr_work work;

	length = atomic ? 8 : length;
	at = test_rng_below(&load->rng, CELL - length + 1);
	from = test_rng_below(&load->rng, CELL - length + 1);
	if (atomic) {
		at -= at % 8;
		from -= from % 8;
	}
	work = work_of(&load->node, op, cell + from, length, cell + at);
	work.cookie = load->made;
	work.flags = test_rng_below(&load->rng, 3) == 0 ? RMR_MORE : 0;
	if (load->made % 8 != 7 && test_rng_below(&load->rng, 2))
		work.flags |= RMR_UNSIGNALED;
	*flight = (struct flight){op, work.local, load->model + cell + at, length, 0};
	if (atomic)
		make_atomic(load, flight, &work);
	else
		make_bytes(load, flight, &work);
	load->made++;
	return work;
}

/* The operation with this cookie is done, and so are all before it. */
static void check_done(struct load *load, const struct rmr_completion *c)
{
	uint64_t value;

	CHECK_EQ(c->status, RMR_OK);
	CHECK(c->cookie >= load->done && c->cookie < load->made);
	CHECK_EQ(c->op, load->flights[c->cookie % WINDOW].op);
	for (; load->done <= c->cookie; load->done++) {
		struct flight *flight = &load->flights[load->done % WINDOW];

		if (flight->op == RMR_OP_READ) {
			CHECK_MEM(flight->local, flight->remote, flight->length);
		} else if (flight->op >= RMR_OP_COMPARE_SWAP) {
			memcpy(&value, flight->local, 8);
			CHECK_EQ(value, flight->expected);
		}
	}
}

/* Posts a batch, and takes completions while there is no room. */
static void run_batch(struct load *load, int count)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct rmr_completion c[16];
	struct rmr_work works[16];
	int posted = 0, taken, got, i;

	while (load->made + (uint64_t)count - load->done > WINDOW) {
		got = rmr_wait(load->node.queue, c, 16, PATIENCE_MS);
		CHECK(got > 0);
		for (i = 0; i < got; i++)
			check_done(load, &c[i]);
	}
	for (i = 0; i < count; i++)
		works[i] = make_work(load);
	while (posted < count) {
		taken = rmr_post(load->node.conn, works + posted, count - posted);
		CHECK(taken >= 0);
		posted += taken;
		got = rmr_poll(load->node.queue, c, 16);
		for (i = 0; i < got; i++)
			check_done(load, &c[i]);
		CHECK(!clock_passed(deadline_ns));
	}
}

/* A last READ of everything, and what the target has counted. */
static void check_end(struct load *load, struct peer *peer)
{
	struct rmr_work work = work_of(&load->node, RMR_OP_READ, 0, WINDOW * CELL, 0);
	struct rmr_completion c;
	struct memory all; /* the cells may still be in use */
	uint64_t messages, immediates;
	int taken;

	memory_open(&load->node, &all, MEMORY_ARENA, WINDOW * CELL, 0);
	work.local = all.base;
	work.region = all.region;
	work.cookie = UINT64_MAX;
	while ((taken = rmr_post(load->node.conn, &work, 1)) == 0)
		if (rmr_poll(load->node.queue, &c, 1) == 1)
			check_done(load, &c);
	CHECK_EQ(taken, 1);
	while ((c = node_next(&load->node)).cookie != UINT64_MAX)
		check_done(load, &c);
	CHECK_EQ(c.status, RMR_OK);
	CHECK_MEM(all.base, load->model, WINDOW * CELL);
	rmr_conn_close(load->node.conn);
	load->node.conn = NULL;
	load->node.remote = NULL;
	memory_close(&all);
	test_recv(&peer->pipe, TEST_PARENT, &messages, sizeof(messages));
	test_recv(&peer->pipe, TEST_PARENT, &immediates, sizeof(immediates));
	CHECK_EQ(messages, load->messages);
	CHECK_EQ(immediates, load->immediates);
}

static void run_load(uint64_t stream, uint64_t operations)
{
	struct rmr_conn_options options = {.depth = 48};
	struct load *load = calloc(1, sizeof(*load));
	struct peer peer;

	CHECK(load != NULL);
	test_rng_init(&load->rng, stream);
	peer_start(&peer, target, NULL);
	node_open(&load->node, NULL);
	if (!(load->node.info->capabilities & RMR_CAP_ATOMIC))
		TEST_SKIP("%s has no atomics", load->node.info->name);
	node_memory(&load->node, stream % 2 ? MEMORY_ARENA : MEMORY_PLAIN, WINDOW * CELL, 0);
	node_connect(&load->node, &peer, &options);
	node_import(&load->node);
	load->model = calloc(WINDOW, CELL);
	CHECK(load->model != NULL);
	while (load->made < operations)
		run_batch(load, 1 + (int)test_rng_below(&load->rng, 16));
	check_end(load, &peer);
	peer_join(&peer);
	node_close(&load->node);
	free(load->model);
	free(load);
}

static void test_short(void)
{
	run_load(1, OPERATIONS / 10);
}

static void test_long(void)
{
	/* A slow machine (TEST_TIME_SCALE) does it once. */
	uint64_t last = TEST_TIME_FACTOR == 1 ? 4 : 2, stream;

	for (stream = 2; stream <= last; stream++)
		run_load(stream, OPERATIONS);
}

const struct test load_tests[] = {
	{"load_10_k_mixed_operations", test_short},
	{"load_3_times_100_k_mixed_operations", test_long, TEST_SLOW},
	{NULL},
};
