/*
 * One operation at a time: post, wait for its completion, again.
 *
 * What one operation is: from rmr_post until its completion is in hand. For SEND it is a round
 * trip: from posting the message until the server's echo is in hand; the full round trip is
 * reported, not half of it.
 *
 * How it is timed. Nothing is subtracted. Reading the processor's counter costs 10 to 20 ns, which
 * does not matter for an operation of microseconds: there every operation is timed. A READ on shm
 * takes tens of nanoseconds, so the clock would be a good part of what is measured, and in between
 * the processor could not overlap one operation with the next as it does in a program. There the
 * mean comes from blocks of BLOCK operations with the clock read around the block only, and the
 * percentiles from SAMPLE operations after each block, timed singly; these include one reading of
 * the clock. Which of the two it is, the warm-up decides.
 */
#include "base/clock.h"
#include "base/error.h"
#include "loops.h"

#define BLOCK	     64
#define SAMPLE	     8
#define CHEAP_NS     1000
#define SIGNAL_EVERY 32 /* pings: the others go unsignaled, their echo is completion enough */

static inline enum rmr_status ping(struct loop *loop)
{
	struct session *session = loop->session;
	struct rmr_work *work = loop->works;
	struct rmr_completion completion;
	int result, n;

	work->flags |= RMR_UNSIGNALED;
	if (loop->posted % SIGNAL_EVERY == 0) {
		work->flags &= ~(unsigned)RMR_UNSIGNALED;
		loop->signaled++;
	}
	result = rmr_post(session->conn, work, 1);
	if (result != 1)
		return session_post_failed(result);
	loop->posted++;
	for (;;) {
		enum rmr_status status = session_take(session, &completion, 1, &n);

		if (status != RMR_OK)
			return status;
		if (completion.op == RMR_OP_RECV)
			break;
		loop->acknowledged++;
	}
	if (loop->session->config->check &&
	    (completion.length != loop->test.size ||
	     !pattern_matches(completion.data, completion.length, PATTERN_CLIENT)))
		loop->wrong++;
	rmr_recv_release(session->queue, completion.data);
	loop->completed++;
	return RMR_OK;
}

static inline enum rmr_status access_once(struct loop *loop)
{
	struct session *session = loop->session;
	struct rmr_work *work = loop->works;
	struct rmr_completion completion;
	enum rmr_status status;
	int result, n;

	if (session->config->check)
		verify_before(loop, loop->posted);
	loop_prepare(loop, work, loop->posted);
	result = rmr_post(session->conn, work, 1);
	if (result != 1)
		return session_post_failed(result);
	loop->posted++;
	status = session_take(session, &completion, 1, &n);
	if (status != RMR_OK)
		return status;
	if (session->config->check)
		verify_after(loop, loop->completed);
	loop->completed++;
	return RMR_OK;
}

static inline enum rmr_status operation(struct loop *loop)
{
	return loop->test.op == PERF_SEND ? ping(loop) : access_once(loop);
}

static enum rmr_status run_block(struct loop *loop, uint64_t count, uint64_t *ticks)
{
	uint64_t start = clock_ticks();

	for (uint64_t i = 0; i < count; i++) {
		enum rmr_status status = operation(loop);

		if (status != RMR_OK)
			return status;
	}
	*ticks += clock_ticks() - start;
	return RMR_OK;
}

static enum rmr_status run_samples(struct loop *loop, uint64_t count, struct histogram *latency,
				   uint64_t *ticks)
{
	uint64_t before = clock_ticks();

	for (uint64_t i = 0; i < count; i++) {
		enum rmr_status status = operation(loop);
		uint64_t now = clock_ticks();

		if (status != RMR_OK)
			return status;
		histogram_record(latency, now - before);
		*ticks += now - before;
		before = now;
	}
	return RMR_OK;
}

/* Leaves nothing in the queue for the next test to stumble over. */
static enum rmr_status take_acknowledgements(struct loop *loop)
{
	enum rmr_status status = RMR_OK;

	while (status == RMR_OK && loop->acknowledged < loop->signaled) {
		struct rmr_completion completion;
		int n;

		status = session_take(loop->session, &completion, 1, &n);
		loop->acknowledged++;
	}
	return status;
}

static enum rmr_status run_phase(struct loop *loop, const struct phase *phase, bool cheap,
				 struct perf_row *row)
{
	uint64_t start = clock_ticks();
	uint64_t ops = 0, ticks = 0, unused = 0;

	histogram_reset(&row->latency);
	do {
		uint64_t count = phase->ops - ops < BLOCK ? phase->ops - ops : BLOCK;
		enum rmr_status status;

		if (cheap) {
			status = run_block(loop, count, &ticks);
			if (status == RMR_OK)
				status = run_samples(loop, SAMPLE, &row->latency, &unused);
		} else {
			count = count < SAMPLE ? count : SAMPLE;
			status = run_samples(loop, count, &row->latency, &ticks);
		}
		if (status != RMR_OK)
			return status;
		ops += count;
	} while (ops < phase->ops && clock_ticks() - start < phase->ticks);
	row->ops = ops;
	row->elapsed_ns = (double)ticks * 1000 / clock_ticks_per_us();
	row->mean_ns = row->elapsed_ns / (double)ops;
	return RMR_OK;
}

enum rmr_status latency_measure(struct loop *loop, struct perf_row *row)
{
	const struct perf_config *config = loop->session->config;
	double ticks_per_ns = clock_ticks_per_us() / 1000;
	struct phase warmup = {(uint64_t)((double)config->warmup_ns * ticks_per_ns), UINT64_MAX};
	struct phase main_phase = {(uint64_t)((double)config->duration_ns * ticks_per_ns),
				   UINT64_MAX};
	enum rmr_status status;

	if (config->iterations)
		main_phase = (struct phase){UINT64_MAX, config->iterations};
	status = run_phase(loop, &warmup, false, row);
	if (status != RMR_OK)
		return status;
	status = run_phase(loop, &main_phase, row->mean_ns < CHEAP_NS, row);
	return status == RMR_OK ? take_acknowledgements(loop) : status;
}
