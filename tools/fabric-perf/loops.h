/*
 * The two loops that measure, and the checks they share.
 *
 * Both work alike: the work requests are made beforehand, the loop sets what changes from one
 * operation to the next, and nothing is allocated. A loop runs twice, to warm up and to measure.
 */
#ifndef FABRIC_PERF_LOOPS_H
#define FABRIC_PERF_LOOPS_H

#include "session.h"

/* A test while it runs. */
struct loop {
	struct session *session;
	struct perf_case test;
	struct layout layout;
	struct rmr_work *works; /* one for each operation in flight */
	uint64_t *posted_at;	/* ticks, the same */
	uint64_t posted;	/* operations since session_begin */
	uint64_t completed;
	uint64_t signaled; /* pings whose own completion comes, and has come */
	uint64_t acknowledged;
	uint64_t wrong; /* completions with wrong data; --check only */
};

/* When a phase of a loop ends: at so many ticks or operations, what comes first. */
struct phase {
	uint64_t ticks;
	uint64_t ops;
};

RMR_MUST_CHECK enum rmr_status loop_init(struct loop *loop, struct session *session,
					 const struct perf_case *test);
void loop_fini(struct loop *loop);

/* Sets in a work what differs from one operation to the next. */
static inline void loop_prepare(const struct loop *loop, struct rmr_work *work, uint64_t sequence)
{
	switch (loop->test.op) {
	case PERF_WRITE_IMM:
		work->immediate = (uint32_t)sequence & PERF_IMMEDIATE_MASK;
		break;
	case PERF_CAS: /* executed in order, so each finds what the one before it left */
		work->compare = sequence;
		work->operand = sequence + 1;
		break;
	default:
		break;
	}
}

/* --check: before an operation is posted, after it completed, and when all have. */
void verify_before(struct loop *loop, uint64_t sequence);
void verify_after(struct loop *loop, uint64_t sequence);
RMR_MUST_CHECK enum rmr_status verify_end(struct loop *loop, const struct perf_answer *done);

/* latency.c: one operation at a time. Fills row->ops, elapsed_ns, mean_ns and latency. */
RMR_MUST_CHECK enum rmr_status latency_measure(struct loop *loop, struct perf_row *row);

/* stream.c: many in flight. Fills the same, but elapsed_ns starts at *start_ticks: when the server
 * takes part, run.c ends it with the server's answer. */
RMR_MUST_CHECK enum rmr_status stream_measure(struct loop *loop, struct perf_row *row,
					      uint64_t *start_ticks);

#endif
