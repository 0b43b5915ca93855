/*
 * Posting operations and taking completions, as tests do it: whatever is not expected fails the
 * test at once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fixture.h"

#define DRAIN_MS (5000 * TEST_TIME_FACTOR)

const char *op_name(enum rmr_op op)
{
	static const char *const names[] = {[RMR_OP_SEND] = "SEND",
					    [RMR_OP_WRITE] = "WRITE",
					    [RMR_OP_WRITE_IMM] = "WRITE_IMM",
					    [RMR_OP_READ] = "READ",
					    [RMR_OP_COMPARE_SWAP] = "CSWAP",
					    [RMR_OP_FETCH_ADD] = "FADD",
					    [RMR_OP_RECV] = "RECV",
					    [RMR_OP_RECV_IMM] = "RECV_IMM",
					    [RMR_OP_DISCONNECT] = "DISCONNECT"};

	return op >= RMR_OP_SEND && op <= RMR_OP_DISCONNECT ? names[op] : "?";
}

struct rmr_work work_of(struct node *node, enum rmr_op op, size_t at, size_t length,
			uint64_t offset)
{
	return (struct rmr_work){.op = op,
				 .local = node->memory.base + at,
				 .length = length,
				 .region = node->memory.region,
				 .remote = node->remote,
				 .offset = offset};
}

void node_post(struct node *node, const struct rmr_work *work)
{
	int taken = rmr_post(node->conn, work, 1);

	if (taken != 1)
		TEST_FAIL("rmr_post(%s, %zu bytes) returned %d: %s", op_name(work->op),
			  work->length, taken, taken < 0 ? rmr_error_message() : "no room");
}

struct rmr_completion node_next(struct node *node)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct rmr_completion c;
	int count;

	/* A fault device, or a wake-up, may end a wait early. */
	do {
		count = rmr_wait(node->queue, &c, 1, clock_remaining_ms(deadline_ns));
	} while (count == 0 && !clock_passed(deadline_ns));
	if (count != 1)
		TEST_FAIL("no completion within %d ms (rmr_wait: %d)", PATIENCE_MS, count);
	return c;
}

struct rmr_completion node_expect(struct node *node, enum rmr_op op, enum rmr_status status)
{
	struct rmr_completion c = node_next(node);

	if (c.op != op || c.status != status)
		TEST_FAIL("completion is %s with %d (%s), expected %s with %d", op_name(c.op),
			  c.status, rmr_status_text(c.status), op_name(op), status);
	CHECK(c.conn != NULL);
	return c;
}

void node_expect_disconnect(struct node *node, struct rmr_conn *conn)
{
	struct rmr_completion c = node_next(node);

	if (c.op != RMR_OP_DISCONNECT || c.status >= RMR_OK)
		TEST_FAIL("completion is %s with %d (%s), expected DISCONNECT with a reason",
			  op_name(c.op), c.status, rmr_status_text(c.status));
	CHECK(c.conn == conn);
}

void node_do(struct node *node, const struct rmr_work *work)
{
	struct rmr_completion c;

	node_post(node, work);
	c = node_expect(node, work->op, RMR_OK);
	CHECK_EQ(c.cookie, work->cookie);
	CHECK(c.conn == node->conn);
}

void node_expect_silence(struct node *node, int milliseconds)
{
	uint64_t deadline_ns = clock_deadline_ns(milliseconds);
	struct rmr_completion c;

	while (!clock_passed(deadline_ns))
		if (rmr_wait(node->queue, &c, 1, clock_remaining_ms(deadline_ns)) != 0)
			TEST_FAIL("unexpected completion %s with %d (%s)", op_name(c.op), c.status,
				  rmr_status_text(c.status));
}

int node_drain(struct node *node, int *successes)
{
	uint64_t deadline_ns = clock_deadline_ns(DRAIN_MS);
	struct rmr_completion c = {0};
	bool failing = false;
	int count = 0;

	while (c.op != RMR_OP_DISCONNECT) {
		if (rmr_wait(node->queue, &c, 1, clock_remaining_ms(deadline_ns)) != 1) {
			if (clock_passed(deadline_ns))
				TEST_FAIL("no DISCONNECT within %d ms, after %d completions",
					  DRAIN_MS, count);
			continue;
		}
		if (c.op == RMR_OP_RECV)
			rmr_recv_release(node->queue, c.data);
		if (c.op >= RMR_OP_RECV)
			continue;
		count++;
		if (c.status == RMR_OK && failing)
			TEST_FAIL("%s succeeded after an earlier one failed", op_name(c.op));
		failing = failing || c.status != RMR_OK;
		*successes += c.status == RMR_OK;
	}
	node_expect_silence(node, 20);
	return count;
}

void node_send(struct node *node, size_t length, uint64_t seed)
{
	uint8_t small[64];
	struct rmr_work work = {.op = RMR_OP_SEND, .length = length, .region = node->memory.region};

	if (length <= sizeof(small) && length <= node->info->max_inline) {
		work.flags = RMR_INLINE;
		work.local = small;
	} else {
		CHECK(length <= node->memory.size);
		work.local = node->memory.base;
	}
	pattern_fill(work.local, length, seed);
	node_do(node, &work);
}

void node_recv(struct node *node, size_t length, uint64_t seed)
{
	struct rmr_completion c = node_expect(node, RMR_OP_RECV, RMR_OK);

	CHECK(c.conn == node->conn);
	CHECK_EQ(c.length, length);
	pattern_check(c.data, length, seed, "message");
	rmr_recv_release(node->queue, c.data);
}
