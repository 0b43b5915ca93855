/*
 * Many operations in flight: a window that is refilled by the batch.
 *
 *	works	[ done | done | in flight | in flight | in flight | free | free ]
 *			       ^ completed                        ^ posted	      (modulo depth)
 *
 * Completions of one connection come in the order of posting, so the window is a ring and the n-th
 * completion belongs to the n-th operation; its cookie is compared all the same. Whenever a batch
 * has room it is posted with RMR_MORE, and one rmr_flush rings the doorbell for it.
 *
 * The latency of an operation counts from the start of the post call of its batch until its
 * completion is in hand: waiting in the window is part of it. For SEND the completion says that the
 * message has left, not that the server has it; the rate is honest nevertheless, because its time
 * ends with the server's word that all of them arrived.
 */
#include "base/clock.h"
#include "base/error.h"
#include "loops.h"

#define TAKE_MAX 64

/* Posts works[from, from + count); returns how many were taken, or a status. */
static int post_run(struct loop *loop, uint64_t from, uint32_t count)
{
	struct rmr_work *works = &loop->works[from % loop->test.depth];
	uint64_t now = clock_ticks();

	for (uint32_t i = 0; i < count; i++) {
		if (loop->session->config->check)
			verify_before(loop, from + i);
		loop_prepare(loop, &works[i], from + i);
		works[i].cookie = from + i;
		loop->posted_at[(from + i) % loop->test.depth] = now;
	}
	return rmr_post(loop->session->conn, works, (int)count);
}

/* Posts one batch, in two runs where it goes over the end of the ring, and rings the doorbell. */
static enum rmr_status post_batch(struct loop *loop, uint32_t count)
{
	uint32_t depth = loop->test.depth;

	while (count) {
		uint32_t to_end = depth - (uint32_t)(loop->posted % depth);
		uint32_t run = count < to_end ? count : to_end;
		int taken = post_run(loop, loop->posted, run);

		if (taken < 0)
			return session_post_failed(taken);
		loop->posted += (uint32_t)taken;
		count -= (uint32_t)taken;
		if ((uint32_t)taken < run)
			break;
	}
	if (loop->test.batch > 1)
		rmr_flush(loop->session->conn);
	return RMR_OK;
}

static enum rmr_status take_some(struct loop *loop, struct histogram *latency)
{
	struct rmr_completion completions[TAKE_MAX];
	enum rmr_status status;
	uint64_t now;
	int n = 0;

	status = session_take(loop->session, completions, TAKE_MAX, &n);
	if (status != RMR_OK)
		return status;
	now = clock_ticks();
	for (int i = 0; i < n; i++) {
		if (completions[i].cookie != loop->completed)
			return error_set(RMR_PROTOCOL, "completion %llu where %llu was due",
					 (unsigned long long)completions[i].cookie,
					 (unsigned long long)loop->completed);
		histogram_record(latency,
				 now - loop->posted_at[loop->completed % loop->test.depth]);
		if (loop->session->config->check)
			verify_after(loop, loop->completed);
		loop->completed++;
	}
	return RMR_OK;
}

static enum rmr_status run_phase(struct loop *loop, const struct phase *phase,
				 struct histogram *latency)
{
	uint64_t start = clock_ticks(), end = loop->posted + phase->ops;
	enum rmr_status status = RMR_OK;
	bool posting = true;

	if (end < loop->posted)
		end = UINT64_MAX;
	while (status == RMR_OK) {
		posting = posting && loop->posted < end && clock_ticks() - start < phase->ticks;
		while (posting && status == RMR_OK) {
			uint64_t room = loop->test.depth - (loop->posted - loop->completed);
			uint64_t left = end - loop->posted, before = loop->posted;
			uint64_t batch = left < loop->test.batch ? left : loop->test.batch;

			if (!batch || room < batch)
				break;
			status = post_batch(loop, (uint32_t)batch);
			if (loop->posted == before)
				break;
		}
		if (status != RMR_OK || (!posting && loop->completed == loop->posted))
			break;
		status = take_some(loop, latency);
	}
	return status;
}

enum rmr_status stream_measure(struct loop *loop, struct perf_row *row, uint64_t *start_ticks)
{
	const struct perf_config *config = loop->session->config;
	double ticks_per_ns = clock_ticks_per_us() / 1000;
	struct phase warmup = {(uint64_t)((double)config->warmup_ns * ticks_per_ns), UINT64_MAX};
	struct phase main_phase = {(uint64_t)((double)config->duration_ns * ticks_per_ns),
				   UINT64_MAX};
	enum rmr_status status;
	uint64_t before;

	if (config->iterations)
		main_phase = (struct phase){UINT64_MAX, config->iterations};
	status = run_phase(loop, &warmup, &row->latency);
	if (status != RMR_OK)
		return status;
	histogram_reset(&row->latency);
	before = loop->posted;
	*start_ticks = clock_ticks();
	status = run_phase(loop, &main_phase, &row->latency);
	row->ops = loop->posted - before;
	row->elapsed_ns = (double)(clock_ticks() - *start_ticks) / ticks_per_ns;
	row->mean_ns = histogram_mean(&row->latency) / ticks_per_ns;
	return status;
}
