/*
 * Lanes: a queue of the fabric, its lock, and what came out of it.
 *
 * Whoever holds the lock may poll. Completions are accounted for at once, by whoever polled (a Sync
 * call thus gets its own without waiting for another thread), and what has to be called back
 * becomes an event, which the runtime takes and carries out without the lock.
 *
 * Sleeping. When a lane was quiet for a while the runtime arms it and leaves it to epoll. From then
 * on every call on the queue may use up what its descriptor would have told. So who posts to an
 * armed lane arms it again when it goes (lane_leave), which is cheap, and only if something came
 * in meanwhile it wakes the runtime.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/shared_device.h"
#include "rdma/easy/internal.h"

#define BATCH 32
/* Looks at the queue before the lock is given back. */
#define LOOKS 16
/* Batches of callbacks on one lane before the others have their turn. */
#define ROUNDS 16
/* Long enough for a hello. */
#define RECV_SIZE 256u
/* Arming looks at every connection: with more of them it is cheaper to wake the runtime. */
#define REARM_LINKS 8u

enum rmr_status lane_init(struct lane *lane, const RdmaOptions *options)
{
	*lane = (struct lane){.source.kind = SOURCE_LANE};
	lane_lock_init(&lane->lock);
	list_init(&lane->links);
	list_init(&lane->dirty);
	list_init(&lane->link);
	list_init(&lane->hot_link);
	/* With one processor there is nobody to wait for while we spin. */
	if (options->spinUs > 0 && sysconf(_SC_NPROCESSORS_ONLN) > 1)
		lane->spin_ticks = (uint64_t)(options->spinUs * clock_ticks_per_us());
	lane->events = malloc(LANE_EVENTS * sizeof(*lane->events));
	lane->taken = malloc(LANE_EVENTS * sizeof(*lane->taken));
	if (lane->events && lane->taken)
		return RMR_OK;
	lane_fini(lane);
	return error_set(RMR_NO_MEMORY, "no memory for a queue's events");
}

void lane_fini(struct lane *lane)
{
	free(lane->events);
	free(lane->taken);
	lane->events = lane->taken = NULL;
}

enum rmr_status lane_open_queue(struct rmr_device *device, const RdmaOptions *options,
				struct rmr_queue **queue)
{
	const struct rmr_device_info *info = rmr_device_info(device);
	struct rmr_queue_options wanted = {.recv_slots = options->recvDepth,
					   .recv_size = RECV_SIZE,
					   .spin_us = options->spinUs};

	if (wanted.recv_slots > info->max_slots)
		wanted.recv_slots = info->max_slots;
	return rmr_queue_open(device, &wanted, queue);
}

enum rmr_status lane_open(struct lane *lane, const char *device_name, const RdmaOptions *options)
{
	enum rmr_status status = device_take(device_name, &lane->device);

	if (status != RMR_OK)
		return status;
	status = lane_open_queue(lane->device, options, &lane->queue);
	if (status != RMR_OK) {
		device_give(lane->device);
		lane->device = NULL;
		return status;
	}
	snprintf(lane->device_name, sizeof(lane->device_name), "%s", device_name);
	return RMR_OK;
}

void lane_close(struct lane *lane)
{
	struct rmr_device *device;
	struct rmr_queue *queue;

	lane_lock_take(&lane->lock);
	queue = lane->queue;
	device = lane->device;
	lane->queue = NULL;
	lane->device = NULL;
	lane->is_armed = false;
	lane->event_count = 0;
	lane_lock_give(&lane->lock);
	rmr_queue_close(queue);
	device_give(device);
}

void lane_push(struct lane *lane, struct link *link, enum event_kind kind, uint64_t value)
{
	assert(lane->event_count < LANE_EVENTS);
	lane->events[lane->event_count++] =
		(struct event){.kind = kind, .link = link, .value = value};
}

void lane_collect(struct lane *lane)
{
	struct rmr_completion completions[BATCH];
	int count;

	/* Every completion makes one event at most. */
	if (LANE_EVENTS - lane->event_count < BATCH)
		return;
	count = rmr_poll(lane->queue, completions, BATCH);
	for (int i = 0; i < count; i++)
		easy_link_complete(rmr_conn_user(completions[i].conn), &completions[i]);
}

/* The runtime's: looks a few times before it gives the lock back, unless somebody waits for it. */
static void collect_patiently(struct lane *lane)
{
	for (int i = 0; i < LOOKS && lane->event_count == 0; i++) {
		if (i > 0 && lane_lock_is_wanted(&lane->lock))
			return;
		lane_collect(lane);
	}
}

void lane_flush(struct lane *lane)
{
	list_for_each_safe (at, &lane->dirty) {
		struct link *link = list_entry(at, struct link, dirty_link);

		bool is_clean = memory_try_to_tell(link); /* first: that puts records */

		is_clean &= out_flush(link);
		is_clean &= in_give_credit(link);
		if (is_clean)
			list_remove(&link->dirty_link);
	}
}

void lane_leave(struct lane *lane)
{
	if (lane->is_armed) {
		if (!runtime_is_here() && lane->event_count == 0 && list_is_empty(&lane->dirty) &&
		    lane->link_count <= REARM_LINKS && rmr_queue_arm(lane->queue) == RMR_OK)
			return;
		lane->is_armed = false;
	} else if (lane->event_count == 0) {
		return; /* the runtime polls it */
	}
	/* Release: who sees that it is wanted, sees what for. */
	if (!atomic_exchange_explicit(&lane->is_wanted, true, memory_order_release))
		runtime_wake();
}

static void dispatch(const struct event *event)
{
	struct link *link = event->link;
	RdmaConn *conn = link->conn;

	if (link->is_ended)
		return;
	if (event->kind == EVENT_ENDED) {
		loop_end_link(link, link->status, link->reason);
	} else if (event->kind == EVENT_HELLO) {
		accept_introduced(link);
	} else if (event->kind == EVENT_RECORDS) {
		in_walk(link, event->value);
	} else if (atomic_load_explicit(&conn->is_closing, memory_order_relaxed)) {
		return; /* nothing is called back any more */
	} else if (event->kind == EVENT_SENDABLE) {
		RdmaSendableCallback callback = conn->sendable;

		if (callback)
			callback(conn);
	} else if (event->kind == EVENT_WRITTEN) {
		RdmaWriteCallback callback = conn->written;

		if (callback)
			callback(conn, event->value);
	} else {
		RdmaReadCallback callback = conn->read;

		if (callback)
			callback(conn, event->value);
	}
}

/* Takes the events out, under the lock. From now on the same may come again. */
static unsigned take_events(struct lane *lane)
{
	struct event *events = lane->events;
	unsigned count = lane->event_count;

	lane->events = lane->taken;
	lane->taken = events;
	lane->event_count = 0;
	for (unsigned i = 0; i < count; i++) {
		struct link *link = events[i].link;

		if (events[i].kind == EVENT_RECORDS) {
			events[i].value = link->filled;
			link->has_records = false;
		} else if (events[i].kind == EVENT_SENDABLE) {
			link->is_sendable = false;
		}
	}
	return count;
}

/* One batch: announces, polls, calls back. Returns how many events there were. */
static unsigned run_batch(struct lane *lane, bool *flushed)
{
	unsigned count;

	lane_lock_take_politely(&lane->lock);
	lane->is_armed = false;
	if (!list_is_empty(&lane->dirty)) {
		lane_flush(lane);
		*flushed = true;
	}
	collect_patiently(lane);
	count = lane->event_count ? take_events(lane) : 0;
	lane_lock_give(&lane->lock);
	for (unsigned i = 0; i < count; i++) {
		loop.is_last = i == count - 1;
		dispatch(&lane->taken[i]);
	}
	loop.is_last = false;
	return count;
}

bool lane_turn(struct lane *lane)
{
	unsigned activity = rmr_queue_activity(lane->queue);
	bool is_busy = activity != lane->activity;

	/* Relaxed: a hint. Who drives takes what comes, and wakes us for what is ours. */
	if (atomic_load_explicit(&lane->drivers, memory_order_relaxed) > 0 &&
	    !atomic_load_explicit(&lane->is_wanted, memory_order_relaxed))
		return true;
	/* Acquire: see lane_leave. */
	if (atomic_load_explicit(&lane->is_wanted, memory_order_relaxed))
		atomic_exchange_explicit(&lane->is_wanted, false, memory_order_acquire);
	lane->activity = activity;
	/* What the callbacks sent leaves with the next batch, right away. */
	for (int i = 0; i < ROUNDS && run_batch(lane, &is_busy) > 0; i++) {
		is_busy = true;
		if (!list_is_empty(&loop.ended))
			break;
	}
	return is_busy;
}

bool lane_arm(struct lane *lane)
{
	bool armed;

	lane_lock_take_politely(&lane->lock);
	armed = lane->event_count == 0 && list_is_empty(&lane->dirty) &&
		rmr_queue_arm(lane->queue) == RMR_OK;
	lane->is_armed = armed;
	lane_lock_give(&lane->lock);
	return armed;
}
