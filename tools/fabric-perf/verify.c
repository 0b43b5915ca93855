/*
 * A test's work requests, and --check: is what arrives what was sent?
 *
 *	send		the echo has the client's pattern; without echo the server compares
 *	read		the buffer is cleared, and afterwards has the server's pattern
 *	write		the server's memory is read back at the end, and has the client's pattern
 *	write_imm	the same, and the server compares at each immediate: it must find the bytes
 *			in place by then
 *	cas, fadd	old values come in sequence without a gap
 *
 * Messages and immediates are counted by the server with and without --check, and have to be as
 * many as were posted; immediates have to come in sequence.
 */
#include <stdlib.h>

#include "base/error.h"
#include "loops.h"

static const enum rmr_op fabric_ops[PERF_IDLE] = {
	[PERF_SEND] = RMR_OP_SEND,	  [PERF_READ] = RMR_OP_READ,
	[PERF_WRITE] = RMR_OP_WRITE,	  [PERF_WRITE_IMM] = RMR_OP_WRITE_IMM,
	[PERF_CAS] = RMR_OP_COMPARE_SWAP, [PERF_FADD] = RMR_OP_FETCH_ADD,
};

static bool is_inline(const struct loop *loop)
{
	enum perf_op op = loop->test.op;

	return loop->session->config->use_inline &&
	       (op == PERF_SEND || op == PERF_WRITE || op == PERF_WRITE_IMM);
}

enum rmr_status loop_init(struct loop *loop, struct session *session, const struct perf_case *test)
{
	*loop = (struct loop){
		.session = session, .test = *test, .layout = layout_of(test->size, test->depth)};
	loop->works = calloc(test->depth, sizeof(*loop->works));
	loop->posted_at = calloc(test->depth, sizeof(*loop->posted_at));
	if (!loop->works || !loop->posted_at) {
		loop_fini(loop);
		return error_set(RMR_NO_MEMORY, "%u work requests", test->depth);
	}
	for (uint32_t i = 0; i < test->depth; i++) {
		size_t offset = layout_offset(&loop->layout, i);

		loop->works[i] = (struct rmr_work){
			.op = fabric_ops[test->op],
			.flags = (test->batch > 1 ? RMR_MORE : 0) |
				 (is_inline(loop) ? RMR_INLINE : 0),
			.local = session->memory.base + offset,
			.length = test->size,
			.region = session->memory.region,
			.remote = session->remote,
			.offset = perf_op_is_atomic(test->op) ? 0 : offset,
			.operand = 1,
		};
		pattern_fill(session->memory.base + offset, test->size, PATTERN_CLIENT);
	}
	return RMR_OK;
}

void loop_fini(struct loop *loop)
{
	free(loop->works);
	free(loop->posted_at);
	*loop = (struct loop){0};
}

void verify_before(struct loop *loop, uint64_t sequence)
{
	/* A buffer that several operations in flight share must not be cleared under one of them.
	 */
	if (loop->layout.slots < loop->test.depth)
		return;
	if (loop->test.op == PERF_READ || perf_op_is_atomic(loop->test.op))
		memset(loop->works[sequence % loop->test.depth].local, 0xee, loop->test.size);
}

void verify_after(struct loop *loop, uint64_t sequence)
{
	const char *bytes = loop->works[sequence % loop->test.depth].local;
	uint64_t old;

	if (loop->test.op == PERF_READ) {
		if (!pattern_matches(bytes, loop->test.size, PATTERN_SERVER))
			loop->wrong++;
	} else if (perf_op_is_atomic(loop->test.op) && loop->layout.slots == loop->test.depth) {
		memcpy(&old, bytes, sizeof(old));
		if (old != sequence)
			loop->wrong++;
	}
}

/* Reads every buffer of the test back from the server, and compares. */
static enum rmr_status read_back(struct loop *loop)
{
	struct session *session = loop->session;
	uint64_t used = loop->posted < loop->layout.slots ? loop->posted : loop->layout.slots;

	for (uint64_t i = 0; i < used; i++) {
		size_t offset = layout_offset(&loop->layout, i);
		struct rmr_work work = {
			.op = RMR_OP_READ,
			.local = session->scratch,
			.length = loop->test.size,
			.region = session->memory.region,
			.remote = session->remote,
			.offset = offset,
		};
		struct rmr_completion completion;
		enum rmr_status status;
		int result = rmr_post(session->conn, &work, 1), n;

		if (result != 1)
			return session_post_failed(result);
		status = session_take(session, &completion, 1, &n);
		if (status != RMR_OK)
			return status;
		if (!pattern_matches(session->scratch, loop->test.size, PATTERN_CLIENT))
			loop->wrong++;
	}
	return RMR_OK;
}

enum rmr_status verify_end(struct loop *loop, const struct perf_answer *done)
{
	bool is_write = loop->test.op == PERF_WRITE || loop->test.op == PERF_WRITE_IMM;
	enum rmr_status status = RMR_OK;

	if (perf_op_is_two_sided(loop->test.op) && done->received != loop->posted)
		return error_set(RMR_PROTOCOL, "%s: the server got %llu of %llu",
				 perf_op_names[loop->test.op], (unsigned long long)done->received,
				 (unsigned long long)loop->posted);
	if (loop->session->config->check && is_write)
		status = read_back(loop);
	if (status == RMR_OK && loop->wrong + done->wrong)
		return error_set(RMR_PROTOCOL,
				 "%s, %llu bytes, depth %u: wrong data in %llu of %llu",
				 perf_op_names[loop->test.op], (unsigned long long)loop->test.size,
				 loop->test.depth, (unsigned long long)(loop->wrong + done->wrong),
				 (unsigned long long)loop->posted);
	return status;
}
