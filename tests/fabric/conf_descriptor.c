/*
 * Descriptors come from the peer's program by any way, so they are only claims. Whatever the 64
 * bytes are, rmr_remote_open answers with a status, or the operation fails with RMR_ACCESS, or it
 * works as the untouched one would; never a crash, never other memory.
 *
 * What these tests would catch: a length, an offset or rights believed as they are; a key that is
 * only partly compared; a grant that holds on every connection.
 */
#include <string.h>

#include "conformance.h"
#include "puppet.h"

#define SIZE 8192
#define SEED 99

/* Tries one operation with an altered descriptor. Returns whether the connection survived it. */
static bool try_descriptor(struct node *node, const struct rmr_descriptor *descriptor,
			   enum rmr_op op, size_t position)
{
	struct rmr_work work = work_of(node, op, 0, 64, 0);
	struct rmr_remote *remote;
	enum rmr_status status = rmr_remote_open(node->conn, descriptor, &remote);
	struct rmr_completion c;

	if (status != RMR_OK) {
		CHECK(status == RMR_INVALID || status == RMR_ACCESS || status == RMR_LIMIT ||
		      status == RMR_UNSUPPORTED);
		return true;
	}
	memset(node->memory.base, 0, 64);
	work.remote = remote;
	node_post(node, &work);
	c = node_next(node);
	CHECK_EQ(c.op, op);
	if (c.status == RMR_OK) {
		if (op == RMR_OP_WRITE)
			TEST_FAIL("byte %zu altered gave the right to write", position);
		pattern_check(node->memory.base, 64, SEED, "READ by an altered descriptor");
		/* A longer region than there is must not become reachable either. */
		if (rmr_remote_length(remote) > SIZE) {
			work.offset = SIZE;
			node_post(node, &work);
			c = node_next(node);
		}
	}
	if (c.status == RMR_OK) {
		rmr_remote_close(remote);
		return true;
	}
	CHECK_EQ(c.status, RMR_ACCESS);
	node_expect_disconnect(node, node->conn);
	return false;
}

static void check_altered(enum memory_kind kind, enum rmr_op op)
{
	static const uint8_t flips[] = {0x01, 0x80, 0xff};
	struct pair_options options = {.puppet = {.kind = kind, .size = SIZE, .rights = RMR_READ}};
	struct puppet puppet;
	struct node node;
	size_t position, i;
	int number = 0;

	pair_open(&puppet, &node, &options);
	puppet_fill(&puppet, 0, SIZE, SEED);
	for (position = 0; position < sizeof(node.descriptor); position++) {
		for (i = 0; i < TEST_COUNT(flips); i++) {
			struct rmr_descriptor altered = node.descriptor;

			altered.bytes[position] ^= flips[i];
			if (try_descriptor(&node, &altered, op, position))
				continue;
			puppet_expect_disconnect(&puppet, number);
			puppet_close_conn(&puppet, number);
			rmr_conn_close(node.conn);
			number = pair_connect(&puppet, &node);
		}
	}
	puppet_check(&puppet, 0, SIZE, SEED);
	pair_close(&puppet, &node);
}

static void test_altered_sealed(void)
{
	check_altered(MEMORY_SEALED, RMR_OP_READ);
	check_altered(MEMORY_SEALED, RMR_OP_WRITE);
}

static void test_altered_plain(void)
{
	check_altered(MEMORY_PLAIN, RMR_OP_READ);
	check_altered(MEMORY_PLAIN, RMR_OP_WRITE);
}

static void test_garbage(void)
{
	struct rmr_descriptor garbage = {0};
	struct rmr_remote *remote;
	struct test_rng rng;
	struct puppet puppet;
	struct node node;
	int i;

	test_rng_init(&rng, 1);
	pair_open(&puppet, &node, NULL);
	for (i = 0; i < 1000; i++) {
		CHECK_STATUS(rmr_remote_open(node.conn, &garbage, &remote), RMR_INVALID);
		test_rng_fill(&rng, &garbage, sizeof(garbage));
	}
	node_send(&node, 10, 1);
	puppet_expect_recv(&puppet, 0, 10, 1);
	pair_close(&puppet, &node);
}

/* What was granted to one connection is of no use on another one, even of the same process. */
static void test_other_connection(void)
{
	struct pair_options options = {.puppet = {.kind = MEMORY_PLAIN, .size = SIZE}};
	struct puppet granted, stranger;
	struct node node = {0}, other;
	int i;

	/* The puppets are copies of one process: their memory lies at the same address. */
	for (i = 0; i < 3; i++) {
		options.puppet.kind = (enum memory_kind)i;
		puppet_start(&granted, &options.puppet);
		puppet_start(&stranger, &options.puppet);
		side_open(&node, &options.test);
		other = node;
		puppet_connect(&granted, &node, NULL);
		puppet_connect(&stranger, &other, NULL);
		puppet_fill(&stranger, 0, SIZE, SEED + 1);
		puppet_fill(&granted, 0, SIZE, SEED + 1);
		if (!try_descriptor(&other, &node.descriptor, RMR_OP_WRITE, 0))
			puppet_expect_disconnect(&stranger, 0);
		puppet_check(&stranger, 0, SIZE, SEED + 1);
		puppet_check(&granted, 0, SIZE, SEED + 1);
		node_send(&node, 10, 1);
		puppet_expect_recv(&granted, 0, 10, 1);
		puppet_quit(&granted);
		puppet_quit(&stranger);
		rmr_conn_close(other.conn);
		node_close(&node);
	}
}

/* A descriptor of a region that was closed before anyone used it. */
static void test_stale(void)
{
	struct pair_options options = {.puppet = {.size = SIZE}};
	struct puppet puppet;
	struct node node;
	int kind;

	for (kind = MEMORY_ARENA; kind <= MEMORY_PLAIN; kind++) {
		options.puppet.kind = (enum memory_kind)kind;
		pair_open(&puppet, &node, &options);
		rmr_remote_close(node.remote);
		node.remote = NULL;
		puppet_fill(&puppet, 0, SIZE, SEED + 1); /* a READ of it would fail the test */
		puppet_close_region(&puppet);
		if (!try_descriptor(&node, &node.descriptor, RMR_OP_READ, 0))
			puppet_expect_disconnect(&puppet, 0);
		pair_close(&puppet, &node);
	}
}

/* One region given to several connections, and several handles to one region. */
static void test_many_handles(void)
{
	enum { CONNS = 4 };
	struct rmr_remote *remotes[CONNS][3];
	struct puppet puppet;
	struct node nodes[CONNS];
	int i, k;

	pair_open(&puppet, &nodes[0], NULL);
	for (i = 1; i < CONNS; i++) {
		nodes[i] = nodes[0];
		CHECK_EQ(pair_connect(&puppet, &nodes[i]), i);
	}
	for (i = 0; i < CONNS; i++)
		for (k = 0; k < 3; k++)
			CHECK_OK(rmr_remote_open(nodes[i].conn, &nodes[i].descriptor,
						 &remotes[i][k]));
	for (i = 0; i < CONNS; i++) {
		for (k = 0; k < 3; k++) {
			struct rmr_work work = work_of(&nodes[i], RMR_OP_READ, 0, 4096, 0);

			puppet_fill(&puppet, 0, 4096, (uint64_t)i * 3 + (uint64_t)k);
			work.remote = remotes[i][k];
			node_do(&nodes[i], &work);
			pattern_check(work.local, 4096, (uint64_t)i * 3 + (uint64_t)k, "READ");
			rmr_remote_close(remotes[i][k]);
		}
		if (i > 0)
			rmr_conn_close(nodes[i].conn);
	}
	pair_close(&puppet, &nodes[0]);
}

const struct test descriptor_tests[] = {
	{"descriptor_altered_arena", test_altered_sealed},
	{"descriptor_altered_plain", test_altered_plain},
	{"descriptor_garbage", test_garbage},
	{"descriptor_on_another_connection", test_other_connection},
	{"descriptor_of_a_closed_region", test_stale},
	{"descriptor_many_handles", test_many_handles},
	{NULL},
};
