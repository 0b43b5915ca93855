/*
 * One row: opens a mesh, drives it or answers, and leaves.
 *
 * Works are counted when their event comes: a message is then in the peer's ring. The rings are
 * full all the time, so the rate is that of the slower side. Whoever has nothing to do waits as
 * programs do, by rmr_mesh_wait.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "perf.h"

#define LISTENER	    1 /* the process that answers */
#define WAIT_MS		    100
#define FAREWELL_MS	    2000
#define ROOM_FOR_MEMORY	    64	/* places for writes and reads, in turn */
#define WORKS_BETWEEN_LOOKS 256 /* at the clock */

struct row {
	const struct perf_options *options;
	uint64_t done, posted, received;
	bool is_over;
	enum rmr_status failure;
	char reason[256];
};

static void fail(struct row *row, enum rmr_status status, const char *what)
{
	if (row->failure != RMR_OK)
		return;
	row->failure = status;
	snprintf(row->reason, sizeof(row->reason), "%s", what);
}

static void take_event(struct rmr_mesh *mesh, const struct rmr_mesh_event *event)
{
	struct row *row = rmr_mesh_user(mesh);

	switch (event->opcode) {
	case RMR_MESH_RECV:
		row->received++;
		if (row->options->op == PERF_PINGPONG && row->options->id == LISTENER) {
			if (rmr_mesh_post_send(mesh, event->data, event->length, event->peer, 0) <
			    0)
				fail(row, RMR_LIMIT, "no room for an answer");
			rmr_mesh_flush(mesh, event->peer);
		}
		break;
	case RMR_MESH_TERMINATE:
		row->is_over = true;
		break;
	case RMR_MESH_DOWN:
		/* Others leave when they like, once 0 has said that it is over. */
		if (event->peer == (row->options->id ? 0 : LISTENER) && !row->is_over)
			fail(row, event->status, event->data);
		break;
	case RMR_MESH_UP:
		break;
	default:
		if (event->status != RMR_OK && !row->is_over)
			fail(row, event->status, rmr_status_text(event->status));
		row->done++;
		break;
	}
}

/* Posts one work. RMR_AGAIN: no room. */
static int64_t post(struct rmr_mesh *mesh, struct row *row)
{
	const struct perf_options *options = row->options;
	size_t place = row->posted % ROOM_FOR_MEMORY * options->size;
	char *local = (char *)rmr_mesh_memory(mesh) + place;
	int64_t work;

	if (options->op == PERF_WRITE)
		work = rmr_mesh_post_write(mesh, local, options->size, LISTENER, place,
					   RMR_MESH_OFFSET, 0);
	else if (options->op == PERF_READ)
		work = rmr_mesh_post_read(mesh, local, options->size, LISTENER, place,
					  RMR_MESH_OFFSET);
	else
		work = rmr_mesh_post_send(mesh, NULL, options->size, LISTENER, 0);
	if (work > 0)
		row->posted++;
	return work;
}

/* Keeps the ring full until the time is over. */
static enum rmr_status stream(struct rmr_mesh *mesh, struct row *row, uint64_t deadline_ns)
{
	do {
		for (int i = 0; i < WORKS_BETWEEN_LOOKS && row->failure == RMR_OK; i++) {
			int64_t work = post(mesh, row);

			if (work > 0)
				continue;
			if (work != RMR_AGAIN)
				return (enum rmr_status)work;
			if (rmr_mesh_poll_sq(mesh, LISTENER) == 0)
				rmr_mesh_wait(mesh, WAIT_MS);
		}
	} while (!clock_passed(deadline_ns) && row->failure == RMR_OK);
	return RMR_OK;
}

static enum rmr_status pingpong(struct rmr_mesh *mesh, struct row *row, uint64_t deadline_ns,
				struct perf_result *result)
{
	do {
		uint64_t wanted = row->received + 1, begin = clock_ticks();
		int64_t work;

		while ((work = post(mesh, row)) == RMR_AGAIN)
			rmr_mesh_wait(mesh, WAIT_MS);
		if (work < 0)
			return (enum rmr_status)work;
		while (row->received < wanted && row->failure == RMR_OK)
			rmr_mesh_wait(mesh, WAIT_MS);
		histogram_record(&result->round_trip_ns, clock_ticks_to_ns(clock_ticks() - begin));
	} while (!clock_passed(deadline_ns) && row->failure == RMR_OK);
	return RMR_OK;
}

static enum rmr_status run(struct rmr_mesh *mesh, struct row *row, uint64_t length_ns,
			   struct perf_result *result)
{
	uint64_t deadline_ns = clock_now_ns() + length_ns;

	return row->options->op == PERF_PINGPONG ? pingpong(mesh, row, deadline_ns, result)
						 : stream(mesh, row, deadline_ns);
}

static enum rmr_status drive(struct rmr_mesh *mesh, struct row *row, struct perf_result *result)
{
	struct rmr_mesh_stats before, after;
	enum rmr_status status = run(mesh, row, row->options->warmup_ns, result);
	uint64_t begin_ns, done = row->done;

	histogram_reset(&result->round_trip_ns);
	rmr_mesh_get_stats(mesh, &before);
	begin_ns = clock_now_ns();
	if (status == RMR_OK)
		status = run(mesh, row, row->options->seconds_ns, result);
	result->elapsed_ns = clock_now_ns() - begin_ns;
	result->ops = row->done - done;
	rmr_mesh_get_stats(mesh, &after);
	if (after.doorbells > before.doorbells)
		result->per_doorbell = (double)(after.sends + after.writes + after.reads -
						before.sends - before.writes - before.reads) /
				       (double)(after.doorbells - before.doorbells);
	row->is_over = true;
	rmr_mesh_terminate(mesh, 0);
	for (uint64_t end_ns = clock_deadline_ns(FAREWELL_MS);
	     row->done < row->posted && !clock_passed(end_ns);)
		rmr_mesh_wait(mesh, WAIT_MS);
	return status;
}

static enum rmr_status answer(struct rmr_mesh *mesh, struct row *row)
{
	while (!row->is_over && row->failure == RMR_OK)
		rmr_mesh_wait(mesh, WAIT_MS);
	return RMR_OK;
}

enum rmr_status perf_mesh(const struct perf_options *options, struct perf_result *result)
{
	struct row row = {.options = options};
	bool is_memory = options->op == PERF_WRITE || options->op == PERF_READ;
	struct rmr_mesh_options mesh_options = {
		.hosts = options->hosts,
		.id = options->id,
		.device = options->device,
		.depth = options->depth,
		.batch = options->op == PERF_PINGPONG ? 1 : options->batch,
		.message_size = is_memory ? 64 : options->size,
		.memory_size = is_memory ? ROOM_FOR_MEMORY * options->size : 0,
		.callback = take_event,
		.user = &row,
	};
	enum rmr_status status;
	struct rmr_mesh *mesh;

	histogram_init(&result->round_trip_ns);
	status = rmr_mesh_open(&mesh_options, &mesh);
	if (status != RMR_OK)
		return status;
	status = rmr_mesh_connect(mesh, (int)(options->timeout_ns / 1000000));
	if (status == RMR_OK)
		status = options->id == 0 ? drive(mesh, &row, result) : answer(mesh, &row);
	rmr_mesh_close(mesh);
	if (status == RMR_OK && row.failure != RMR_OK)
		status = error_set(row.failure, "%s", row.reason);
	return status;
}
