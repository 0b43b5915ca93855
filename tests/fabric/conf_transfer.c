/*
 * WRITE, WRITE_IMM and READ: every size, every kind of memory on either end, any alignment; every
 * byte is checked on both sides, and so are the bytes around them.
 *
 * What these tests would catch: a copy one byte short or long, a wrong offset, a threshold between
 * two ways of copying (inline, eager, in pieces) that is off by one, an inline payload that is read
 * after the post, a READ that lands late, memory of a kind that one path forgot.
 */
#include <string.h>

#include "conformance.h"
#include "puppet.h"

#define GUARD	   64 /* bytes around each transfer that must stay as they are */
#define GUARD_BYTE 0xa5

/* One WRITE or WRITE_IMM of length bytes from local `at` to remote `offset`. */
static void check_write(struct puppet *puppet, struct node *node, enum rmr_op op, size_t at,
			size_t offset, size_t length, bool is_inline)
{
	struct rmr_work work = work_of(node, op, at, length, offset);
	uint64_t seed = length * 16 + at + op;

	work.cookie = seed;
	work.immediate = (uint32_t)~length;
	work.flags = is_inline ? RMR_INLINE : 0;
	puppet_set(puppet, offset - GUARD, length + 2 * GUARD, GUARD_BYTE);
	pattern_fill(work.local, length, seed);
	node_post(node, &work);
	if (is_inline)
		memset(work.local, 0x11, length);
	CHECK_EQ(node_expect(node, op, RMR_OK).cookie, seed);
	puppet_check(puppet, offset, length, seed);
	puppet_check_guard(puppet, offset - GUARD, GUARD, GUARD_BYTE);
	puppet_check_guard(puppet, offset + length, GUARD, GUARD_BYTE);
	if (op == RMR_OP_WRITE_IMM)
		puppet_expect_imm(puppet, 0, work.immediate, length);
	if (!is_inline)
		pattern_check(work.local, length, seed, "source of a WRITE");
}

static void check_read(struct puppet *puppet, struct node *node, size_t at, size_t offset,
		       size_t length)
{
	struct rmr_work work = work_of(node, RMR_OP_READ, at, length, offset);
	uint64_t seed = length * 16 + offset;

	work.cookie = seed;
	puppet_fill(puppet, offset, length, seed);
	memset(node->memory.base + at - GUARD, GUARD_BYTE, length + 2 * GUARD);
	node_do(node, &work);
	pattern_check(work.local, length, seed, "READ");
	guard_check(node->memory.base + at - GUARD, GUARD, GUARD_BYTE, "before a READ");
	guard_check(node->memory.base + at + length, GUARD, GUARD_BYTE, "after a READ");
	puppet_check(puppet, offset, length, seed);
}

static void check_all(struct puppet *puppet, struct node *node, size_t at, size_t offset,
		      size_t length)
{
	check_write(puppet, node, RMR_OP_WRITE, at, offset, length, false);
	check_write(puppet, node, RMR_OP_WRITE_IMM, at, offset, length, false);
	if (length <= node->info->max_inline) {
		check_write(puppet, node, RMR_OP_WRITE, at, offset, length, true);
		check_write(puppet, node, RMR_OP_WRITE_IMM, at, offset, length, true);
	}
	check_read(puppet, node, at, offset, length);
}

static const struct {
	enum memory_kind test, puppet;
} kinds[] = {
	{MEMORY_ARENA, MEMORY_ARENA},
	{MEMORY_ARENA, MEMORY_PLAIN},
	{MEMORY_PLAIN, MEMORY_ARENA},
	{MEMORY_PLAIN, MEMORY_PLAIN},
};

/* On the first combinations of memories: lengths, each up to the largest. */
static void check_sizes(const size_t *lengths, size_t count, size_t largest, size_t kind_count)
{
	struct pair_options options = {.test.size = largest + 2 * GUARD,
				       .puppet.size = largest + 2 * GUARD};
	struct puppet puppet;
	struct node node;
	size_t i, k;

	for (k = 0; k < kind_count; k++) {
		options.test.kind = kinds[k].test;
		options.puppet.kind = kinds[k].puppet;
		pair_open(&puppet, &node, &options);
		CHECK(largest <= node.info->max_transfer);
		for (i = 0; i < count; i++)
			check_all(&puppet, &node, GUARD, GUARD, lengths[i]);
		pair_close(&puppet, &node);
	}
}

static void test_sizes(void)
{
	struct node node = {0};
	size_t limit;

	node_open(&node, NULL);
	limit = node.info->max_inline;
	node_close(&node);
	CHECK(limit >= 16);

	const size_t lengths[] = {0,	    1,	       2,	 7,	8,	 9,	  limit - 1,
				  limit,    limit + 1, 255,	 256,	4095,	 4 * KIB, 4097,
				  16 * KIB, 65535,     64 * KIB, 65537, MIB - 1, MIB};

	check_sizes(lengths, TEST_COUNT(lengths), MIB, TEST_COUNT(kinds));
}

static void test_sizes_large(void)
{
	static const size_t lengths[] = {64 * MIB};

	/* A slow machine (TEST_TIME_SCALE) does it once. */
	check_sizes(lengths, TEST_COUNT(lengths), 64 * MIB,
		    TEST_TIME_FACTOR == 1 ? TEST_COUNT(kinds) : 1);
}

static void test_unaligned(void)
{
	static const size_t lengths[] = {1, 3, 8, 17, 63, 65, 4093};
	struct pair_options options = {0};
	struct puppet puppet;
	struct node node;
	size_t at, offset, i, k;

	for (k = 0; k < TEST_COUNT(kinds); k++) {
		options.test.kind = kinds[k].test;
		options.puppet.kind = kinds[k].puppet;
		pair_open(&puppet, &node, &options);
		for (at = 0; at < 8; at += 3)
			for (offset = 0; offset < 8; offset += 1 + at % 2)
				for (i = 0; i < TEST_COUNT(lengths); i++)
					check_all(&puppet, &node, GUARD + at, GUARD + offset,
						  lengths[i]);
		/* ... and across a page's end. */
		check_all(&puppet, &node, 4 * KIB - 3, 8 * KIB - 5, 11);
		check_all(&puppet, &node, 4 * KIB - 3, 8 * KIB - 5, 4 * KIB + 11);
		pair_close(&puppet, &node);
	}
}

/* The very first and the very last byte of a region. */
static void test_edges(void)
{
	struct puppet puppet;
	struct node node;
	struct rmr_work work;
	size_t k, last;

	for (k = 0; k < TEST_COUNT(kinds); k++) {
		struct pair_options options = {
			.test = {kinds[k].test, .size = 12345},
			.puppet = {kinds[k].puppet, .size = 12345},
		};

		pair_open(&puppet, &node, &options);
		last = options.puppet.size - 1;
		CHECK_EQ(rmr_remote_length(node.remote), options.puppet.size);
		pattern_fill(node.memory.base, options.test.size, k);
		work = work_of(&node, RMR_OP_WRITE, 0, options.test.size, 0);
		node_do(&node, &work);
		puppet_check(&puppet, 0, options.puppet.size, k);
		puppet_set(&puppet, last, 1, 77);
		work = work_of(&node, RMR_OP_READ, last, 1, last);
		node_do(&node, &work);
		CHECK_EQ(node.memory.base[last], 77);
		/* Length 0 is legal up to the end. */
		work = work_of(&node, RMR_OP_READ, 0, 0, last + 1);
		node_do(&node, &work);
		pair_close(&puppet, &node);
	}
}

/* An operation without bytes needs no local memory at all. */
static void test_empty(void)
{
	static const enum rmr_op ops[] = {RMR_OP_SEND, RMR_OP_WRITE, RMR_OP_WRITE_IMM, RMR_OP_READ};
	struct puppet puppet;
	struct node node;
	size_t i;

	pair_open(&puppet, &node, NULL);
	for (i = 0; i < TEST_COUNT(ops); i++) {
		struct rmr_work work = {.op = ops[i], .remote = node.remote, .immediate = 99};

		node_do(&node, &work);
		if (ops[i] == RMR_OP_SEND)
			puppet_expect_recv(&puppet, 0, 0, 0);
		if (ops[i] == RMR_OP_WRITE_IMM)
			puppet_expect_imm(&puppet, 0, 99, 0);
	}
	pair_close(&puppet, &node);
}

const struct test transfer_tests[] = {
	{"transfer_sizes", test_sizes},
	{"transfer_sizes_64_mib", test_sizes_large, TEST_SLOW},
	{"transfer_unaligned", test_unaligned},
	{"transfer_edges_of_a_region", test_edges},
	{"transfer_nothing", test_empty},
	{NULL},
};
