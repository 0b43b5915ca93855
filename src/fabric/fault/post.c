/*
 * Works on their way down to the inner device.
 *
 * rmr_post only puts them into the connection's ring of tracks, with all that is decided about
 * them. They go down when they are flushed, in order, as far as the inner connection has room; the
 * rest follows from poll. All are signaled below, because we must know when each is done.
 *
 * A torn READ goes down as several READs, each at its own time. Works behind it wait until its last
 * piece is posted: where the inner device carries operations out in order (shm does), a later WRITE
 * stays unseen by an earlier READ. What is injected here is tearing and nothing else.
 *
 * At a track with a cut the way down ends: CUT_BEFORE is not posted at all, CUT_AFTER is the
 * last that is. conn.c makes the cut when everything posted has completed.
 */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/fault/internal.h"

#define NS_PER_US 1000u

void fault_track_release(struct fault_track *track)
{
	if (track->work.region)
		region_drop(track->work.region);
	if (track->work.remote)
		remote_drop(track->work.remote);
	track->work.region = NULL;
	track->work.remote = NULL;
}

void fault_conn_mark_flushed(struct fault_conn *conn, uint32_t to)
{
	for (; conn->flushed != to; conn->flushed++)
		conn->signaled +=
			!(fault_track_at(conn, conn->flushed)->work.flags & RMR_UNSIGNALED);
}

void fault_conn_retire(struct fault_conn *conn, uint64_t now_ns)
{
	struct fault_track *track = fault_track_at(conn, conn->done);

	assert(conn->done != conn->tail && track->pieces_below == 0);
	track->due_ns =
		fault_queue_due_ns(conn, FAULT_STREAM_WORK, now_ns + track->decision.delay_ns);
	track->order = fault_queue_of(conn)->order++;
	fault_track_release(track);
	/* A work that fails without having gone down skips the stages in between. */
	if (conn->flushed == conn->done)
		fault_conn_mark_flushed(conn, conn->done + 1);
	if (conn->issued == conn->done)
		conn->issued++;
	conn->done++;
}

/* Puts one checked work into the ring. */
static void track_work(struct fault_conn *conn, const struct rmr_work *work)
{
	struct fault_device *device = fault_device_of(conn->base.queue);
	struct fault_track *track = fault_track_at(conn, conn->tail);
	struct rmr_remote *remote = work->op == RMR_OP_SEND ? NULL : work->remote;
	bool may_tear = remote && work->offset <= remote->length &&
			work->length <= remote->length - work->offset;

	*track = (struct fault_track){.work = *work, .cut_status = RMR_DISCONNECTED};
	fault_decide(&device->plan, &conn->work_rng, ++conn->posted, work, may_tear,
		     &track->decision);
	if (track->decision.cut != FAULT_CUT_NONE &&
	    (conn->cut_planned || atomic_fetch_add(&device->drops, 1) >= device->plan.drop_limit))
		track->decision.cut = FAULT_CUT_NONE;
	conn->cut_planned |= track->decision.cut != FAULT_CUT_NONE;

	/* What the operation does not use may be anything. */
	track->work.remote = remote;
	if (remote)
		remote->references++;
	if ((work->flags & RMR_INLINE) && work->length) {
		size_t slot = device->base.info.max_inline;

		track->work.local = conn->inline_copies + (conn->tail & conn->mask) * slot;
		memcpy(track->work.local, work->local, work->length);
	}
	if ((work->flags & RMR_INLINE) || work->length == 0)
		track->work.region = NULL;
	else
		region_hold(track->work.region);
	conn->tail++;
}

/* How many of the works that there is room for are taken. A caller that is sent away waits for a
 * completion before it tries again: unless one will come for certain, one work is taken. */
static uint32_t stall(struct fault_conn *conn, uint32_t room)
{
	const struct fault_plan *plan = &fault_device_of(conn->base.queue)->plan;
	uint32_t least = conn->signaled == 0, take;
	uint64_t now_ns;

	if (plan->stall_percent == 0 || room <= least)
		return room;
	now_ns = clock_now_ns();
	if (now_ns < conn->stalled_until_ns)
		return least;
	if (!fault_rng_chance(&conn->stall_rng, plan->stall_percent, 100))
		return room;
	conn->stalled_until_ns =
		now_ns + fault_rng_below(&conn->stall_rng, plan->stall_us * NS_PER_US + 1);
	take = (uint32_t)fault_rng_below(&conn->stall_rng, room);
	return take > least ? take : least;
}

int fault_post(struct rmr_conn *base, const struct rmr_work *works, int count)
{
	struct fault_conn *conn = (struct fault_conn *)base;
	uint32_t take = conn_room(base);

	/* The end is reported when all that was taken is completed, which may be late. Were more
	 * taken meanwhile, a program that always has something to post would never learn of it. */
	if (conn->ended)
		return 0;
	if (take > (uint32_t)count)
		take = (uint32_t)count;
	take = stall(conn, take);
	for (uint32_t i = 0; i < take; i++)
		track_work(conn, &works[i]);
	base->outstanding += take;
	if (take > 0 && list_is_empty(&conn->active_link))
		list_add_tail(&fault_queue_of(conn)->active, &conn->active_link);
	return (int)take;
}

void fault_flush(struct rmr_conn *base)
{
	struct fault_conn *conn = (struct fault_conn *)base;

	fault_conn_mark_flushed(conn, conn->tail);
	fault_conn_issue(conn, clock_now_ns());
}

/* Posts the next piece of a work. RMR_AGAIN when the inner connection takes nothing now. */
static enum rmr_status post_piece(struct fault_conn *conn, struct fault_track *track)
{
	const struct fault_piece *piece = &track->decision.pieces[track->next_piece];
	struct fault_region *region = (struct fault_region *)track->work.region;
	struct fault_remote *remote = (struct fault_remote *)track->work.remote;
	struct rmr_work work = track->work;
	int posted;

	work.flags = (work.flags & RMR_INLINE) | RMR_MORE;
	work.cookie = conn->issued;
	work.remote = remote ? remote->inner : NULL;
	if (track->decision.piece_count > 1) {
		work.local = (uint8_t *)work.local + piece->start;
		work.offset += piece->start;
		work.length = piece->length;
	}
	if (region) {
		pthread_mutex_lock(&region->lock);
		work.region = region->inner;
		posted = region->inner ? rmr_post(conn->inner, &work, 1)
				       : (int)error_set(RMR_ACCESS, "the local region is closed");
		pthread_mutex_unlock(&region->lock);
	} else {
		posted = rmr_post(conn->inner, &work, 1);
	}
	/* A lost connection tells so by its queue, after what else it has to say. */
	if (posted == 0 || posted == RMR_DISCONNECTED)
		return RMR_AGAIN;
	return posted < 0 ? (enum rmr_status)posted : RMR_OK;
}

static bool may_issue(const struct fault_conn *conn)
{
	return conn->issued != conn->flushed && !conn->cutting && !conn->broken && !conn->ended;
}

void fault_conn_issue(struct fault_conn *conn, uint64_t now_ns)
{
	bool any = false;

	while (may_issue(conn)) {
		struct fault_track *track = fault_track_at(conn, conn->issued);
		struct fault_decision *decision = &track->decision;
		enum rmr_status status;

		if (decision->cut == FAULT_CUT_BEFORE) {
			conn->cutting = true;
			break;
		}
		if (now_ns < track->start_ns)
			break;
		status = post_piece(conn, track);
		if (status == RMR_AGAIN)
			break;
		if (status != RMR_OK) {
			/* It fails, and the connection with it, when those before it are done. */
			decision->cut = FAULT_CUT_BEFORE;
			track->cut_status = status;
			continue;
		}
		any = true;
		track->pieces_below++;
		if (++track->next_piece < decision->piece_count) {
			track->start_ns = now_ns + decision->pieces[track->next_piece].pause_ns;
			continue;
		}
		conn->cutting = decision->cut == FAULT_CUT_AFTER;
		conn->issued++;
	}
	if (any)
		rmr_flush(conn->inner);
}

uint64_t fault_conn_next_issue_ns(const struct fault_conn *conn)
{
	const struct fault_track *track = fault_track_at(conn, conn->issued);

	/* A work that was not begun waits for room, and completions below will tell. */
	return may_issue(conn) && track->next_piece > 0 ? track->start_ns : CLOCK_NEVER;
}

void fault_conn_work_done(struct fault_conn *conn, uint32_t index, enum rmr_status status,
			  uint64_t now_ns)
{
	struct fault_track *track = fault_track_at(conn, index);

	assert(track->pieces_below > 0);
	track->pieces_below--;
	if (status != RMR_OK && track->status == RMR_OK) {
		track->status = status;
		conn->broken = true;
	}
	while (conn->done != conn->tail) {
		bool complete;

		track = fault_track_at(conn, conn->done);
		complete =
			track->next_piece == track->decision.piece_count || track->status != RMR_OK;
		/* One with a cut is left to fault_conn_cut. */
		if (!complete || track->pieces_below > 0 || track->decision.cut != FAULT_CUT_NONE)
			break;
		fault_conn_retire(conn, now_ns);
	}
}
