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

/* Waits for one completion out of the queue itself. */
static struct rmr_completion wait_one(struct node *node)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct rmr_completion c;
	int count;

	/* A wake-up may end a wait early. */
	do {
		count = rmr_wait(node->queue, &c, 1, clock_remaining_ms(deadline_ns));
	} while (count == 0 && !clock_passed(deadline_ns));
	/* One that is found by the last look only was never announced. */
	if (count != 1 || clock_passed(deadline_ns))
		TEST_FAIL("no completion within %d ms (rmr_wait: %d)", PATIENCE_MS, count);
	CHECK(c.conn != NULL);
	return c;
}

static void put_aside(struct aside *aside, const struct rmr_completion *c)
{
	CHECK(aside->count < (int)TEST_COUNT(aside->entries));
	aside->entries[aside->count++] = *c;
}

static struct rmr_completion take_aside(struct aside *aside, int i)
{
	struct rmr_completion c = aside->entries[i];

	aside->count--;
	memmove(&aside->entries[i], &aside->entries[i + 1], (size_t)(aside->count - i) * sizeof(c));
	return c;
}

void node_post(struct node *node, const struct rmr_work *work)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	int taken;

	while ((taken = rmr_post(node->conn, work, 1)) == 0) {
		struct rmr_completion c;

		if (rmr_poll(node->queue, &c, 1) == 1)
			put_aside(node->aside, &c);
		if (clock_passed(deadline_ns))
			TEST_FAIL("no room to post %s", op_name(work->op));
	}
	if (taken != 1)
		TEST_FAIL("rmr_post(%s, %zu bytes) returned %d: %s", op_name(work->op),
			  work->length, taken, rmr_error_message());
}

struct rmr_completion node_next(struct node *node)
{
	return node->aside->count > 0 ? take_aside(node->aside, 0) : wait_one(node);
}

/* The next completion of what was posted, or of what is received; a DISCONNECT in any case. */
static struct rmr_completion next_of_kind(struct node *node, bool posted)
{
	struct aside *aside = node->aside;
	struct rmr_completion c;
	int i;

	for (i = 0; i < aside->count; i++)
		if ((aside->entries[i].op < RMR_OP_RECV) == posted)
			return take_aside(aside, i);
	for (;;) {
		c = wait_one(node);
		if (c.op == RMR_OP_DISCONNECT || (c.op < RMR_OP_RECV) == posted)
			return c;
		put_aside(aside, &c);
	}
}

struct rmr_completion node_expect(struct node *node, enum rmr_op op, enum rmr_status status)
{
	struct rmr_completion c = next_of_kind(node, op < RMR_OP_RECV);

	if (c.op != op || c.status != status)
		TEST_FAIL("completion is %s with %d (%s), expected %s with %d", op_name(c.op),
			  c.status, rmr_status_text(c.status), op_name(op), status);
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

	CHECK_EQ(node->aside->count, 0);
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

	CHECK_EQ(node->aside->count, 0);
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
