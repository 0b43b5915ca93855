/*
 * Queues: what libfabric has completed is taken in here, by whoever holds the queue's lock.
 *
 * While the owner polls, he asks libfabric each time and looks at the sockets now and then. Nobody
 * is woken by what comes in (sleep.c), so the helper looks after the queue (needs_polls).
 *
 * The answers to a batch of packets leave after the batch, so that many requests get one packet of
 * answers.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/ofi/internal.h"

#define LINGER_NS 200000000u /* for packets that libfabric still has when a queue is closed */

/* A connection that got packets in this batch. */
struct touched {
	struct ofi_conn *conn;
	uint32_t delivered;
};

static void take_error(struct ofi_queue *queue, struct fid_cq *cq)
{
	struct fi_cq_err_entry error = {0};
	struct ofi_context *context;

	if (fi_cq_readerr(cq, &error, 0) <= 0)
		return;
	context = error.op_context;
	if (!context)
		return;
	switch (context->kind) {
	case OFI_RECEIVE: /* too long, a stranger's: nothing is lost */
		packet_repost(queue, (struct ofi_receive *)context);
		break;
	case OFI_SEND:
		packet_sent(queue, (struct ofi_send *)context, error.err);
		break;
	case OFI_PUSH:
		lend_pushed((struct ofi_push *)context, error.err);
		break;
	case OFI_LEASE:
		lend_landed((struct ofi_lease *)context, 0, error.err);
		break;
	}
}

/* What messages_done was when the first packet of this batch came. */
static void touch(struct touched *touched, int *count, struct ofi_conn *conn, uint32_t delivered)
{
	for (int i = 0; i < *count; i++) {
		if (touched[i].conn == conn)
			return;
	}
	touched[(*count)++] = (struct touched){.conn = conn, .delivered = delivered};
}

static uint32_t delivered_to(struct ofi_queue *queue, const struct ofi_receive *receive)
{
	struct ofi_conn *conn = conn_by_token(queue, le64toh(receive->packet.token));

	return conn ? conn->stream.messages_done : 0;
}

/* One round. Returns whether there was something. */
static bool take_completions(struct ofi_queue *queue)
{
	struct fi_cq_msg_entry entries[OFI_EVENTS];
	struct touched touched[OFI_EVENTS];
	ssize_t count = fi_cq_read(queue->cq, entries, OFI_EVENTS);
	int touched_count = 0;

	if (count == -FI_EAVAIL) {
		take_error(queue, queue->cq);
		return true;
	}
	for (ssize_t i = 0; i < count; i++) {
		struct ofi_context *context = entries[i].op_context;
		struct ofi_receive *receive = (struct ofi_receive *)context;
		uint32_t delivered;
		struct ofi_conn *conn;

		switch (context->kind) {
		case OFI_RECEIVE:
			delivered = delivered_to(queue, receive);
			conn = packet_arrived(queue, receive, entries[i].len);
			if (conn)
				touch(touched, &touched_count, conn, delivered);
			break;
		case OFI_SEND:
			packet_sent(queue, (struct ofi_send *)context, 0);
			break;
		case OFI_PUSH:
		case OFI_LEASE: /* they have doors of their own */
			break;
		}
	}
	for (int i = 0; i < touched_count; i++)
		receive_settle(&touched[i].conn->stream, touched[i].delivered);
	return count > 0;
}

/* The same for a door. What is taken in may close it, and with it goes what it has completed: so it
 * is taken one by one. */
static bool take_from_door(struct ofi_queue *queue, struct ofi_door *door)
{
	struct fi_cq_msg_entry entry;
	struct ofi_context *context;
	ssize_t count;

	as_adapter_begin();
	count = fi_cq_read(door->cq, &entry, 1);
	as_adapter_end();
	if (count == -FI_EAVAIL) {
		take_error(queue, door->cq);
		return true;
	}
	if (count <= 0)
		return false;
	door->wakes = 0;
	context = entry.op_context;
	if (context->kind == OFI_LEASE)
		lend_landed((struct ofi_lease *)context, entry.len, 0);
	else
		lend_pushed((struct ofi_push *)context, 0);
	return true;
}

static void take_doors(struct ofi_queue *queue)
{
	struct list taken;

	list_init(&taken);
	while (!list_is_empty(&queue->busy_doors)) {
		struct ofi_door *door = list_first_entry(&queue->busy_doors, struct ofi_door, link);
		const struct ofi_conn *conn;

		list_remove(&door->link);
		list_add_tail(&taken, &door->link);
		conn = door->conn;
		for (int i = 0; i < OFI_EVENTS && conn->door == door; i++) {
			if (!take_from_door(queue, door))
				break;
		}
	}
	list_move_all(&taken, &queue->busy_doors);
}

/* Data that comes by a door has to be fetched as it comes, piece by piece: who fetches it late
 * keeps the sender waiting. The queue's endpoint, which takes longer to ask, has its turn after a
 * few. */
static void ask_doors(struct ofi_queue *queue)
{
	int turns = queue->landing > 0 ? OFI_DOOR_TURNS : 1;

	while (turns-- > 0 && !list_is_empty(&queue->busy_doors)) {
		take_doors(queue);
		if (!completion_ring_is_empty(&queue->stream.base.ring))
			return;
	}
}

void queue_take_all(struct ofi_queue *queue)
{
	for (int i = 0; i < OFI_DRAIN_ROUNDS && take_completions(queue); i++)
		;
	take_doors(queue);
}

/* The socket is connected, but libfabric has not got a single packet through. */
static void cannot_reach(struct ofi_conn *conn)
{
	log_warn_limited(
		"%s: connection to %s ends: libfabric cannot reach its endpoint; does a firewall "
		"let only the port pass that was connected to?",
		conn_device_name(&conn->stream), conn->stream.base.peer);
	conn_fail(&conn->stream, RMR_DISCONNECTED);
}

static bool has_unsent(const struct ofi_conn *conn)
{
	return conn->stream.transmit.first < conn->stream.transmit.count;
}

/* Connections that could not send: again. */
static void retry_blocked(struct ofi_queue *queue)
{
	struct list waiting;

	list_init(&waiting);
	list_move_all(&queue->blocked, &waiting);
	while (!list_is_empty(&waiting)) {
		struct ofi_conn *conn = list_first_entry(&waiting, struct ofi_conn, blocked_link);

		list_remove(&conn->blocked_link);
		if (conn->packets_sent == 0 && has_unsent(conn) && clock_passed(conn->reach_ns))
			cannot_reach(conn);
		else
			transmit_unblock(&conn->stream); /* puts it back if need be: ofi_watch */
	}
}

/* The engine's wire: a connection has begun or ceased to wait for room. */
static void ofi_watch(struct tcp_conn *base)
{
	struct ofi_conn *conn = (struct ofi_conn *)base;

	list_remove(&conn->blocked_link);
	if (!base->transmit.blocked)
		return;
	list_add_tail(&ofi_queue_of(conn)->blocked, &conn->blocked_link);
	helper_want_ticks(&ofi_queue_of(conn)->stream);
}

static void look_at_sockets(struct ofi_queue *queue)
{
	if (control_dispatch(queue))
		queue->control_each = OFI_CONTROL_EACH_MIN;
	else if (queue->control_each < OFI_CONTROL_EACH_MAX)
		queue->control_each *= 2;
	queue->control_in = queue->control_each;
}

static void ofi_progress(struct tcp_queue *base)
{
	struct ofi_queue *queue = (struct ofi_queue *)base;

	if (queue->watched && !base->by_helper && ++queue->polls > OFI_HOT_AFTER)
		sleep_unwatch(queue);
	if (!list_is_empty(&queue->blocked))
		retry_blocked(queue);
	if (base->by_helper) {
		queue_take_all(queue);
	} else {
		(void)take_completions(queue);
		ask_doors(queue);
	}
	if (!list_is_empty(&queue->opening))
		door_attend(queue);
	if (base->by_helper || queue->control_in-- == 0)
		look_at_sockets(queue);
	if (!list_is_empty(&queue->leaving))
		control_settle(queue);
}

static bool ofi_arm(struct tcp_queue *base)
{
	struct ofi_queue *queue = (struct ofi_queue *)base;

	/* A peer that has to ring does not do so for what is here. */
	if (take_completions(queue) || !sleep_watch(queue))
		return false;
	queue->polls = 0;
	queue->control_in = 0; /* who wakes looks at the sockets too */
	return true;
}

static bool ofi_needs_polls(const struct tcp_queue *base)
{
	const struct ofi_queue *queue = (const struct ofi_queue *)base;

	/* Who is blocked or leaving waits for something of which no descriptor tells. */
	return sleep_needs_polls(queue) || !list_is_empty(&queue->blocked) ||
	       !list_is_empty(&queue->leaving) || door_needs_polls(queue);
}

static uint64_t ofi_look_in_ns(const struct tcp_queue *base)
{
	return sleep_look_in_ns((const struct ofi_queue *)base);
}

static const struct tcp_wire ofi_wire = {
	.send = packet_send_block,
	.watch = ofi_watch,
	.hang_up = control_hang_up,
	.part = control_part,
	.close = control_end,
	.progress = ofi_progress,
	.arm = ofi_arm,
	.needs_polls = ofi_needs_polls,
	.look_in_ns = ofi_look_in_ns,
	.lend = lend_memory,
	.take_back = lend_take_back,
	.recall = lend_recall,
	.push = lend_push,
};

/* Puts the set of sockets among what is slept upon, and libfabric's descriptor if there is one. */
static enum rmr_status watch_sources(struct ofi_queue *queue)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (epoll_ctl(queue->stream.sockets_fd, EPOLL_CTL_ADD, queue->control_fd, &event) != 0)
		return error_errno(RMR_SYSTEM, errno, "cannot watch a descriptor");
	return sleep_init(queue);
}

enum rmr_status ofi_queue_init(struct rmr_queue *base)
{
	struct ofi_queue *queue = (struct ofi_queue *)base;
	enum rmr_status status;

	list_init(&queue->blocked);
	list_init(&queue->leaving);
	list_init(&queue->busy_doors);
	list_init(&queue->opening);
	list_init(&queue->rung);
	list_init(&queue->unsure);
	queue->control_each = OFI_CONTROL_EACH_MIN;
	queue->control_fd = epoll_create1(EPOLL_CLOEXEC);
	if (queue->control_fd < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot make an epoll set");
	status = endpoint_open(queue);
	if (status != RMR_OK)
		goto close_control;
	status = packet_init(queue);
	if (status != RMR_OK)
		goto close_endpoint;
	status = progress_init(&queue->stream, &ofi_wire);
	if (status != RMR_OK)
		goto close_endpoint;
	status = watch_sources(queue);
	if (status == RMR_OK)
		return RMR_OK;
	progress_fini(&queue->stream);
close_endpoint:
	endpoint_close(queue);
close_control:
	close(queue->control_fd);
	return status;
}

void ofi_queue_fini(struct rmr_queue *base)
{
	struct ofi_queue *queue = (struct ofi_queue *)base;
	uint64_t deadline_ns = clock_now_ns() + LINGER_NS;

	/* Last words, of connections that were closed just now: let them leave. */
	queue_lock(&queue->stream);
	while (queue->sends > 0 && !clock_passed(deadline_ns))
		queue_take_all(queue);
	queue_unlock(&queue->stream);
	progress_fini(&queue->stream);
	endpoint_close(queue);
	free(queue->leases);
	close(queue->control_fd);
	free(queue->conns);
}
