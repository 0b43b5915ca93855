/*
 * Completions on their way up from the inner device.
 *
 * poll takes what the inner queue has. Completions of works mark their tracks (post.c); messages
 * and immediates are put aside, in nodes of a pool. Each becomes due after its delay, and then goes
 * into the outer ring. There are two streams a connection: its works, and what it receives.
 *
 * The order in which they come out:
 *  - Within one stream always the order from below. Due times never decrease along a stream, so a
 *    short delay does not overtake a long one.
 *  - Without reorder the two streams of a connection share their due times, and so keep their
 *    order too. Connections overtake each other by their delays.
 *  - With reorder whatever is due comes out in random order, some lag behind (decide.c), and the
 *    streams of a connection are independent. The contract allows that: it orders completions of
 *    works among themselves, and messages and immediates among themselves; that a message overtakes
 *    the completion of an earlier SEND happens on hardware.
 *  - DISCONNECT comes when both streams are empty.
 *
 * Memory is bounded: a message that is put aside occupies its slot of the inner queue, and the
 * inner queue is only polled for as many completions as immediates could still be held.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/fault/internal.h"

#define BATCH	  64u
#define NS_PER_S  1000000000u
#define DRAIN_MAX 64 /* rounds of polling before a cut */

static void inner_ready(struct queue_source *source, uint32_t events)
{
	(void)source; /* poll asks the inner queue in any case */
	(void)events;
}

enum rmr_status fault_queue_init(struct rmr_queue *base)
{
	struct fault_queue *queue = (struct fault_queue *)base;
	struct fault_device *device = (struct fault_device *)base->device;
	uint32_t nodes = 2 * base->options.recv_slots;
	enum rmr_status status = rmr_queue_open(device->inner, &base->options, &queue->inner);

	if (status != RMR_OK)
		return status;
	list_init(&queue->active);
	list_init(&queue->free_held);
	queue->rng = fault_rng_stream(~device->plan.seed, atomic_fetch_add(&device->queues, 1));
	queue->held_pool = calloc(nodes, sizeof(*queue->held_pool));
	if (!queue->held_pool) {
		status = error_set(RMR_NO_MEMORY, "no memory for %u held completions", nodes);
		goto close_inner;
	}
	for (uint32_t i = 0; i < nodes; i++)
		list_add_tail(&queue->free_held, &queue->held_pool[i].link);
	queue->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (queue->timer_fd < 0) {
		status = error_errno(RMR_SYSTEM, errno, "no timer for delayed completions");
		goto free_held;
	}
	queue->inner_source.ready = inner_ready;
	queue->timer_source.ready = inner_ready;
	status = queue_watch(base, rmr_queue_fd(queue->inner), EPOLLIN, &queue->inner_source);
	if (status == RMR_OK)
		status = queue_watch(base, queue->timer_fd, EPOLLIN, &queue->timer_source);
	if (status != RMR_OK)
		goto close_timer;
	return RMR_OK;

close_timer:
	close(queue->timer_fd);
free_held:
	free(queue->held_pool);
close_inner:
	rmr_queue_close(queue->inner);
	return status;
}

void fault_queue_fini(struct rmr_queue *base)
{
	struct fault_queue *queue = (struct fault_queue *)base;

	close(queue->timer_fd);
	rmr_queue_close(queue->inner);
	free(queue->held_pool);
}

uint64_t fault_queue_due_ns(struct fault_conn *conn, enum fault_stream stream, uint64_t due_ns)
{
	bool apart = fault_device_of(conn->base.queue)->plan.reorder;
	uint64_t *last_ns = &conn->last_due_ns[apart ? stream : FAULT_STREAM_WORK];

	if (due_ns < *last_ns)
		due_ns = *last_ns;
	*last_ns = due_ns;
	return due_ns;
}

/* Puts a message or an immediate aside. */
static void hold(struct fault_queue *queue, struct fault_conn *conn,
		 const struct rmr_completion *completion, uint64_t now_ns)
{
	const struct fault_plan *plan = &fault_device_of(&queue->base)->plan;
	struct fault_held *held = list_first_entry(&queue->free_held, struct fault_held, link);

	assert(!list_is_empty(&queue->free_held));
	list_remove(&held->link);
	held->completion = *completion;
	held->due_ns = fault_queue_due_ns(conn, FAULT_STREAM_RECV,
					  now_ns + fault_decide_delay(plan, &conn->recv_rng));
	held->order = queue->order++;
	queue->held_imm += completion->op == RMR_OP_RECV_IMM;
	list_add_tail(&conn->held, &held->link);
	if (list_is_empty(&conn->active_link))
		list_add_tail(&queue->active, &conn->active_link);
}

static void unhold(struct fault_queue *queue, struct fault_held *held)
{
	queue->held_imm -= held->completion.op == RMR_OP_RECV_IMM;
	list_remove(&held->link);
	list_add(&queue->free_held, &held->link);
}

/* Takes a batch from the inner queue. Returns how many. */
static int take_inner(struct fault_queue *queue, uint64_t now_ns)
{
	struct rmr_completion batch[BATCH];
	uint32_t room = queue->base.options.recv_slots - queue->held_imm - queue->base.pending_imm;
	int count = rmr_poll(queue->inner, batch, (int)(room < BATCH ? room : BATCH));

	for (int i = 0; i < count; i++) {
		struct fault_conn *conn = rmr_conn_user(batch[i].conn);

		switch (batch[i].op) {
		case RMR_OP_RECV:
		case RMR_OP_RECV_IMM:
			hold(queue, conn, &batch[i], now_ns);
			break;
		case RMR_OP_DISCONNECT:
			fault_conn_inner_lost(conn, batch[i].status, now_ns);
			break;
		default:
			fault_conn_work_done(conn, (uint32_t)batch[i].cookie, batch[i].status,
					     now_ns);
			break;
		}
	}
	return count;
}

/* Cuts the connections whose moment has come. */
static void make_cuts(struct fault_queue *queue, uint64_t now_ns)
{
	bool any = false;

	list_for_each (at, &queue->active)
		any |= fault_conn_is_cut_due(list_entry(at, struct fault_conn, active_link));
	if (!any)
		return;
	/* What has arrived before the cut is delivered: closing would drop it. */
	for (int i = 0; i < DRAIN_MAX && take_inner(queue, now_ns) > 0; i++)
		;
	list_for_each (at, &queue->active) {
		struct fault_conn *conn = list_entry(at, struct fault_conn, active_link);

		if (fault_conn_is_cut_due(conn))
			fault_conn_cut(conn, now_ns);
	}
}

/* The first completion of a stream: when it is due, and its number. False when there is none. */
static bool peek(const struct fault_conn *conn, enum fault_stream stream, uint64_t *due_ns,
		 uint64_t *order)
{
	if (stream == FAULT_STREAM_WORK) {
		const struct fault_track *track = fault_track_at(conn, conn->head);

		*due_ns = track->due_ns;
		*order = track->order;
		return conn->head != conn->done;
	}
	if (list_is_empty(&conn->held))
		return false;
	*due_ns = list_first_entry(&conn->held, struct fault_held, link)->due_ns;
	*order = list_first_entry(&conn->held, struct fault_held, link)->order;
	return true;
}

/* Chooses the stream whose first completion goes up next; NULL when nothing is due. */
static struct fault_conn *choose(struct fault_queue *queue, uint64_t now_ns,
				 enum fault_stream *stream)
{
	bool shuffle = fault_device_of(&queue->base)->plan.reorder;
	uint64_t best_ns = 0, best_order = 0, candidates = 0;
	struct fault_conn *chosen = NULL;

	list_for_each (at, &queue->active) {
		struct fault_conn *conn = list_entry(at, struct fault_conn, active_link);

		for (int i = 0; i < FAULT_STREAMS; i++) {
			uint64_t due_ns, order;
			bool better;

			if (!peek(conn, i, &due_ns, &order) || due_ns > now_ns)
				continue;
			candidates++;
			better = due_ns < best_ns || (due_ns == best_ns && order < best_order);
			if (shuffle)
				better = fault_rng_below(&queue->rng, candidates) == 0;
			if (chosen && !better)
				continue;
			chosen = conn;
			*stream = i;
			best_ns = due_ns;
			best_order = order;
		}
	}
	return chosen;
}

/* Moves the first completion of a stream into the outer ring. */
static void deliver(struct fault_queue *queue, struct fault_conn *conn, enum fault_stream stream)
{
	if (stream == FAULT_STREAM_WORK) {
		const struct fault_track *track = fault_track_at(conn, conn->head);

		conn->head++;
		conn->signaled -= !(track->work.flags & RMR_UNSIGNALED);
		conn_completed(&conn->base, track->work.op, track->work.flags, track->work.cookie,
			       track->work.length, track->status);
	} else {
		struct fault_held *held = list_first_entry(&conn->held, struct fault_held, link);
		const struct rmr_completion *completion = &held->completion;

		unhold(queue, held);
		if (completion->op == RMR_OP_RECV)
			conn_deliver(&conn->base, completion->data, completion->length);
		else
			conn_deliver_imm(&conn->base, completion->immediate, completion->length);
	}
}

/* Moves all that is due into the outer ring. */
static void release(struct fault_queue *queue, uint64_t now_ns)
{
	enum fault_stream stream = FAULT_STREAM_WORK;
	struct fault_conn *conn;

	while ((conn = choose(queue, now_ns, &stream)))
		deliver(queue, conn, stream);
	list_for_each_safe (at, &queue->active) {
		conn = list_entry(at, struct fault_conn, active_link);
		if (conn->head != conn->tail || !list_is_empty(&conn->held))
			continue;
		if (conn->ended)
			conn_lost(&conn->base, conn->end_status);
		list_remove(&conn->active_link);
	}
}

int fault_poll(struct rmr_queue *base, struct rmr_completion *completions, int max)
{
	struct fault_queue *queue = (struct fault_queue *)base;
	uint64_t now_ns = clock_now_ns();

	list_for_each (at, &queue->active)
		fault_conn_issue(list_entry(at, struct fault_conn, active_link), now_ns);
	take_inner(queue, now_ns);
	make_cuts(queue, now_ns);
	release(queue, now_ns);
	return queue_pop(base, completions, max);
}

/* When there is something to do although nothing comes from below. */
static uint64_t next_due_ns(const struct fault_queue *queue)
{
	uint64_t next_ns = CLOCK_NEVER;

	list_for_each (at, (struct list *)&queue->active) {
		struct fault_conn *conn = list_entry(at, struct fault_conn, active_link);
		uint64_t due_ns = fault_conn_next_issue_ns(conn), order;

		if (fault_conn_is_cut_due(conn))
			return 0;
		next_ns = due_ns < next_ns ? due_ns : next_ns;
		for (int i = 0; i < FAULT_STREAMS; i++) {
			if (peek(conn, i, &due_ns, &order) && due_ns < next_ns)
				next_ns = due_ns;
		}
	}
	return next_ns;
}

/* Sets the timer; setting it also takes back that it has fired. */
static enum rmr_status set_timer(struct fault_queue *queue, uint64_t due_ns)
{
	struct itimerspec when = {0};
	uint64_t timer_ns = due_ns == CLOCK_NEVER ? 0 : due_ns;

	if (timer_ns == queue->timer_ns)
		return RMR_OK;
	when.it_value.tv_sec = (time_t)(timer_ns / NS_PER_S);
	when.it_value.tv_nsec = (long)(timer_ns % NS_PER_S);
	if (timerfd_settime(queue->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) < 0)
		return error_errno(RMR_SYSTEM, errno, "setting the timer of a fault queue");
	queue->timer_ns = timer_ns;
	return RMR_OK;
}

enum rmr_status fault_arm(struct rmr_queue *base)
{
	struct fault_queue *queue = (struct fault_queue *)base;
	uint64_t next_ns = next_due_ns(queue);

	if (!completion_ring_is_empty(&base->ring) || next_ns <= clock_now_ns())
		return RMR_AGAIN;
	if (rmr_queue_arm(queue->inner) != RMR_OK)
		return RMR_AGAIN;
	return set_timer(queue, next_ns);
}

void fault_recv_release(struct rmr_queue *base, void *data)
{
	rmr_recv_release(((struct fault_queue *)base)->inner, data);
}

/* The core's conn_forget would put the slots into the outer queue's pool, where they are not. */
static void forget_entry(void *context, const struct rmr_completion *entry)
{
	struct rmr_queue *queue = context;

	if (entry->op == RMR_OP_RECV)
		fault_recv_release(queue, entry->data);
	else if (entry->op == RMR_OP_RECV_IMM)
		queue->pending_imm--;
}

void fault_queue_forget(struct fault_conn *conn)
{
	struct fault_queue *queue = fault_queue_of(conn);

	list_for_each_safe (at, &conn->held) {
		struct fault_held *held = list_entry(at, struct fault_held, link);

		if (held->completion.op == RMR_OP_RECV)
			fault_recv_release(&queue->base, held->completion.data);
		unhold(queue, held);
	}
	completion_ring_forget(&queue->base.ring, &conn->base, forget_entry, &queue->base);
}
