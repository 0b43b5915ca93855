/*
 * Connections: how they begin and how they end.
 *
 * A connection ends in one of two ways. Either the inner one is lost by itself: it has completed
 * all that was posted on it, its DISCONNECT comes up, and what had not gone down is canceled. Or
 * the plan cuts it at a certain work: when everything before that work (and, for CUT_AFTER, the
 * work itself) has completed below, the inner connection is closed, which the peer sees as a
 * disconnect; the work gets RMR_DISCONNECTED, all later ones RMR_CANCELED.
 *
 * Either way nothing more comes from below. What is held back still comes out in its time, and
 * DISCONNECT is the last.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/fault/internal.h"

/* Streams of the seed that one connection uses. */
#define STREAMS_PER_CONN 4

static enum rmr_status tracks_init(struct fault_conn *conn)
{
	struct fault_device *device = fault_device_of(conn->base.queue);
	uint64_t stream = atomic_fetch_add(&device->conns, 1) * STREAMS_PER_CONN;
	size_t inline_size = device->base.info.max_inline ? device->base.info.max_inline : 1;
	uint32_t capacity = 1;

	while (capacity < conn->base.options.depth)
		capacity *= 2;
	conn->mask = capacity - 1;
	conn->tracks = calloc(capacity, sizeof(*conn->tracks));
	conn->inline_copies = calloc(capacity, inline_size);
	if (!conn->tracks || !conn->inline_copies) {
		free(conn->tracks);
		free(conn->inline_copies);
		return error_set(RMR_NO_MEMORY, "no memory for %u operations", capacity);
	}
	list_init(&conn->active_link);
	list_init(&conn->held);
	conn->work_rng = fault_rng_stream(device->plan.seed, stream);
	conn->recv_rng = fault_rng_stream(device->plan.seed, stream + 1);
	conn->stall_rng = fault_rng_stream(device->plan.seed, stream + 2);
	return RMR_OK;
}

static void tracks_fini(struct fault_conn *conn)
{
	free(conn->tracks);
	free(conn->inline_copies);
}

/* What the inner connection is opened with. */
static struct rmr_conn_options inner_options(struct fault_conn *conn)
{
	struct rmr_conn_options options = conn->base.options;
	uint32_t max_depth = conn->base.queue->device->info.max_depth;

	/* Room for the pieces of one torn READ above what the program has in flight. */
	options.depth = max_depth - options.depth < FAULT_PIECES_MAX
				? max_depth
				: options.depth + FAULT_PIECES_MAX;
	options.auto_flush = options.depth;
	options.private_data = conn->base.my_private;
	options.private_length = conn->base.my_private_length;
	options.user = conn;
	options.grants = &conn->base.grants;
	return options;
}

void fault_grants_changed(struct rmr_conn *base)
{
	struct fault_conn *conn = (struct fault_conn *)base;

	if (conn->inner) /* it may be cut already */
		rmr_conn_set_grants(conn->inner, &base->grants);
}

static void copy_info(struct fault_conn *conn)
{
	struct rmr_conn_info info;

	rmr_conn_get_info(conn->inner, &info);
	conn->base.max_send = info.max_send;
	snprintf(conn->base.peer, sizeof(conn->base.peer), "%s", info.peer);
	if (info.private_length)
		memcpy(conn->base.peer_private, info.private_data, info.private_length);
	conn->base.peer_private_length = (uint8_t)info.private_length;
}

enum rmr_status fault_accept(struct rmr_request *base_request, struct rmr_conn *base)
{
	struct fault_request *request = (struct fault_request *)base_request;
	struct fault_conn *conn = (struct fault_conn *)base;
	struct rmr_conn_options options;
	enum rmr_status status = tracks_init(conn);

	if (status != RMR_OK) {
		rmr_reject(request->inner, rmr_error_message());
		return status;
	}
	options = inner_options(conn);
	status = rmr_accept(request->inner, fault_queue_of(conn)->inner, &options, &conn->inner);
	if (status != RMR_OK) {
		tracks_fini(conn);
		return status;
	}
	copy_info(conn);
	return RMR_OK;
}

static bool is_connect_refused(struct fault_device *device)
{
	uint64_t number = atomic_fetch_add(&device->connects, 1) + 1;
	struct fault_rng rng = fault_rng_stream(device->plan.seed ^ 0xc0c0, number);

	return number == device->plan.refuse_connect ||
	       fault_rng_chance(&rng, device->plan.refuse_connect_percent, 100);
}

enum rmr_status fault_connect(struct rmr_conn *base, const char *address, uint64_t deadline_ns)
{
	struct fault_conn *conn = (struct fault_conn *)base;
	struct rmr_conn_options options;
	enum rmr_status status;

	if (is_connect_refused(fault_device_of(base->queue)))
		return error_set(RMR_REFUSED, "refused by the fault plan");
	status = tracks_init(conn);
	if (status != RMR_OK)
		return status;
	options = inner_options(conn);
	status = rmr_connect(fault_queue_of(conn)->inner, address, clock_remaining_ms(deadline_ns),
			     &options, &conn->inner);
	if (status != RMR_OK) {
		tracks_fini(conn);
		return status;
	}
	copy_info(conn);
	return RMR_OK;
}

void fault_conn_fini(struct rmr_conn *base)
{
	struct fault_conn *conn = (struct fault_conn *)base;

	for (; conn->done != conn->tail; conn->done++)
		fault_track_release(fault_track_at(conn, conn->done));
	rmr_conn_close(conn->inner);
	conn->inner = NULL;
	fault_queue_forget(conn);
	list_remove(&conn->active_link);
	tracks_fini(conn);
}

bool fault_conn_lingers(const struct rmr_conn *base, int *process)
{
	const struct fault_conn *conn = (const struct fault_conn *)base;

	return conn->inner && rmr_conn_lingers(conn->inner, process);
}

/* Nothing comes from below any more: fails the works that are not done. */
static void end(struct fault_conn *conn, enum rmr_status status, uint64_t now_ns)
{
	conn->ended = true;
	conn->end_status = status;
	while (conn->done != conn->tail) {
		struct fault_track *track = fault_track_at(conn, conn->done);

		track->pieces_below = 0;
		if (track->status == RMR_OK)
			track->status = track->next_piece > 0 ? RMR_DISCONNECTED : RMR_CANCELED;
		fault_conn_retire(conn, now_ns);
	}
	if (list_is_empty(&conn->active_link))
		list_add_tail(&fault_queue_of(conn)->active, &conn->active_link);
}

void fault_conn_inner_lost(struct fault_conn *conn, enum rmr_status status, uint64_t now_ns)
{
	end(conn, status, now_ns);
}

bool fault_conn_is_cut_due(const struct fault_conn *conn)
{
	const struct fault_track *track = fault_track_at(conn, conn->done);

	return conn->cutting && !conn->ended && track->decision.cut != FAULT_CUT_NONE &&
	       track->pieces_below == 0;
}

void fault_conn_cut(struct fault_conn *conn, uint64_t now_ns)
{
	struct fault_track *track = fault_track_at(conn, conn->done);

	assert(fault_conn_is_cut_due(conn));
	log_debug("fault: connection to %s cut at operation %llu, which was %s", conn->base.peer,
		  (unsigned long long)(conn->posted - (conn->tail - conn->done) + 1),
		  track->decision.cut == FAULT_CUT_AFTER ? "carried out" : "not carried out");
	if (track->status == RMR_OK)
		track->status = track->cut_status;
	/* Its remotes go with it: fault_remote_fini knows by the NULL. */
	rmr_conn_close(conn->inner);
	conn->inner = NULL;
	end(conn, track->status, now_ns);
}
