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

enum verdict {
	REFUSED, /* by rmr_remote_open, as no descriptor */
	DENIED,	 /* RMR_ACCESS, by rmr_remote_open or at once by the operation */
	BEYOND,	 /* RMR_ACCESS where the region is not as long as the descriptor says */
};

/* Tries one operation with a descriptor. After DENIED or BEYOND *lost tells whether the connection
 * is over. */
static enum verdict try_descriptor(struct node *node, const struct rmr_descriptor *descriptor,
				   enum rmr_op op, bool *lost)
{
	struct rmr_work work = work_of(node, op, 0, 64, 0);
	enum rmr_status status = rmr_remote_open(node->conn, descriptor, &work.remote);
	enum verdict verdict = DENIED;
	struct rmr_completion c;

	*lost = false;
	if (status == RMR_ACCESS)
		return DENIED;
	if (status != RMR_OK) {
		CHECK(status == RMR_INVALID || status == RMR_UNSUPPORTED);
		return REFUSED;
	}
	memset(node->memory.base, 0, 64);
	node_post(node, &work);
	c = node_next(node);
	if (c.status == RMR_OK) {
		if (op == RMR_OP_WRITE)
			TEST_FAIL("an altered descriptor gave the right to write");
		pattern_check(node->memory.base, 64, SEED, "READ by an altered descriptor");
		verdict = BEYOND;
		work.offset = SIZE;
		node_post(node, &work);
		c = node_next(node);
	}
	CHECK_EQ(c.op, op);
	CHECK_EQ(c.status, RMR_ACCESS);
	node_expect_disconnect(node, node->conn);
	*lost = true;
	return verdict;
}

/* Alters each byte in three ways. At least eight bytes are a key, without which nothing goes. */
static void check_altered(enum memory_kind kind, enum rmr_op op)
{
	static const uint8_t flips[] = {0x01, 0x80, 0xff};
	struct pair_options options = {.puppet = {.kind = kind, .size = SIZE, .rights = RMR_READ}};
	struct puppet puppet;
	struct node node;
	size_t position, i;
	int number = 0, keys = 0, denied;
	bool lost;

	pair_open(&puppet, &node, &options);
	puppet_fill(&puppet, 0, SIZE, SEED);
	for (position = 0; position < sizeof(node.descriptor); position++) {
		denied = 0;
		for (i = 0; i < TEST_COUNT(flips); i++) {
			struct rmr_descriptor altered = node.descriptor;

			altered.bytes[position] ^= flips[i];
			denied += try_descriptor(&node, &altered, op, &lost) == DENIED;
			if (!lost)
				continue;
			puppet_expect_disconnect(&puppet, number);
			puppet_close_conn(&puppet, number);
			rmr_conn_close(node.conn);
			number = pair_connect(&puppet, &node);
		}
		keys += denied == (int)TEST_COUNT(flips);
	}
	CHECK(keys >= 8);
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
	bool lost;
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
		CHECK_EQ(try_descriptor(&other, &node.descriptor, RMR_OP_WRITE, &lost), DENIED);
		if (lost)
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

/* The same between two connections to one process, with a region that is granted to both: each has
 * a descriptor of its own. */
static void test_sibling_connection(void)
{
	struct pair_options options = {.puppet = {.size = SIZE}};
	struct puppet puppet;
	struct node node, other;
	bool lost;

	for (int i = 0; i < 3; i++) {
		options.puppet.kind = (enum memory_kind)i;
		pair_open(&puppet, &node, &options);
		if (node.info->capabilities & RMR_CAP_MAP) {
			pair_close(&puppet, &node);
			TEST_SKIP("the right is to the mapped arena");
		}
		other = node;
		CHECK_EQ(pair_connect(&puppet, &other), 1);
		puppet_fill(&puppet, 0, SIZE, SEED + 1); /* a READ of it would fail the test */
		CHECK_EQ(try_descriptor(&other, &node.descriptor, i ? RMR_OP_READ : RMR_OP_WRITE,
					&lost),
			 DENIED);
		if (lost)
			puppet_expect_disconnect(&puppet, 1);
		puppet_check(&puppet, 0, SIZE, SEED + 1);
		rmr_conn_close(other.conn);
		node_do(&node, &(struct rmr_work){.op = RMR_OP_READ,
						  .local = node.memory.base,
						  .length = SIZE,
						  .region = node.memory.region,
						  .remote = node.remote});
		pattern_check(node.memory.base, SIZE, SEED + 1, "READ by its own descriptor");
		pair_close(&puppet, &node);
	}
}

/* A descriptor, or a handle made of it, of a region that was closed, and of one in whose place
 * there is another one now. */
static void check_stale(enum memory_kind kind, bool reopened, bool has_handle)
{
	struct pair_options options = {.puppet = {.kind = kind, .size = SIZE}};
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	bool lost = true;

	pair_open(&puppet, &node, &options);
	puppet_fill(&puppet, 0, SIZE, SEED + 1); /* a READ of it would fail the test */
	puppet_close_region(&puppet);
	if (reopened)
		puppet_open_region(&puppet);
	if (has_handle) {
		work = work_of(&node, RMR_OP_WRITE, 0, 64, 0);
		node_post(&node, &work);
		CHECK_EQ(node_next(&node).status, RMR_ACCESS);
		node_expect_disconnect(&node, node.conn);
	} else {
		CHECK_EQ(try_descriptor(&node, &node.descriptor, RMR_OP_READ, &lost), DENIED);
	}
	if (lost)
		puppet_expect_disconnect(&puppet, 0);
	puppet_check(&puppet, 0, SIZE, SEED + 1);
	pair_close(&puppet, &node);
}

static void test_stale(void)
{
	int i;

	for (i = 0; i < 4; i++) {
		check_stale(MEMORY_ARENA, i & 1, i & 2);
		check_stale(MEMORY_SEALED, i & 1, i & 2);
		check_stale(MEMORY_PLAIN, i & 1, i & 2);
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
	{"descriptor_on_a_sibling_connection", test_sibling_connection},
	{"descriptor_of_a_closed_region", test_stale},
	{"descriptor_many_handles", test_many_handles},
	{NULL},
};
