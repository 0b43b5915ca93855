/*
 * Life and end of a connection: its queue pair, and what ends it. How two ends meet is in cm.c and
 * socket.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/verbs/internal.h"

#define RNR_TIMER    12	 /* 0.64 ms: how long a sender waits that found no slot */
#define FLUSH_MS     500 /* a queue pair that needs longer to stop is broken */
#define LAST_SLOT_MS 50

static enum rmr_status make_qp(struct verbs_conn *conn)
{
	struct verbs_device *device = conn_device(conn);
	struct verbs_queue *queue = conn_queue(conn);
	struct ibv_qp_init_attr attr = {
		.qp_context = conn,
		.send_cq = queue->cq,
		.recv_cq = queue->cq,
		.srq = queue->srq,
		.cap = {.max_send_wr = conn->base.options.depth + VERBS_EXTRA_PLACES,
			.max_send_sge = 1,
			.max_inline_data = device->max_inline},
		.qp_type = IBV_QPT_RC,
	};

	conn->qp = ibv_create_qp(device->pd, &attr);
	if (!conn->qp)
		return doctor_create_failed("queue pair", conn->base.options.depth, errno);
	conn->qpn = conn->qp->qp_num;
	conn->send_max = conn->base.options.depth;
	return RMR_OK;
}

static bool allocate_works(struct verbs_conn *conn)
{
	uint32_t capacity = 16;

	while (capacity < conn->base.options.depth)
		capacity *= 2;
	conn->works = malloc(capacity * sizeof(*conn->works));
	conn->work_mask = capacity - 1;
	return conn->works != NULL;
}

enum rmr_status verbs_conn_prepare(struct verbs_conn *conn)
{
	enum rmr_status status;

	list_init(&conn->starved_link);
	list_init(&conn->ending_link);
	if (atomic_load_explicit(&conn_queue(conn)->adapter_failed, memory_order_acquire))
		return doctor_adapter_gone(conn->base.queue->device);
	status = key_random(&conn->my_secret);
	if (status != RMR_OK)
		return status;
	if (!allocate_works(conn))
		return error_set(RMR_NO_MEMORY, "no memory for a connection");
	status = make_qp(conn);
	if (status != RMR_OK)
		goto free_works;
	conn->taken = conn_queue(conn)->slots_taken;
	status = queue_add_conn(conn_queue(conn), conn);
	if (status != RMR_OK)
		goto destroy_qp;
	return RMR_OK;

destroy_qp:
	ibv_destroy_qp(conn->qp);
	conn->qp = NULL;
free_works:
	free(conn->works);
	conn->works = NULL;
	return status;
}

/* Finds out how far a queue pair got that was stopped: whatever it had not done is flushed, and so
 * is a last request, behind everything. What was unsignaled and is not among the
 * flushed ones has succeeded. */
static void flush_qp(struct verbs_conn *conn, uint64_t until_ns)
{
	struct ibv_send_wr wr = {
		.wr_id = conn->posted,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	queue_drain(conn_queue(conn));
	if (conn->broken || ibv_post_send(conn->qp, &wr, &bad) != 0)
		return;
	/* It is not counted: the completion queue has an entry for it. */
	while (!conn->broken && !clock_passed(until_ns))
		queue_drain(conn_queue(conn));
}

/* A queue pair that is stopped may still be filling a slot of the shared receive queue; the adapter
 * says when it has given up the last one. Some forget to: so not for ever. */
static void await_last_slot(struct verbs_conn *conn)
{
	uint64_t until_ns = clock_deadline_ns(LAST_SLOT_MS);

	if (conn_device(conn)->is_soft) /* arrive_reclaim does it */
		return;
	while (!atomic_load_explicit(&conn->last_slot, memory_order_acquire) &&
	       !clock_passed(until_ns))
		queue_drain(conn_queue(conn));
}

/* Gets rid of the queue pair. What it completed before is taken in; nothing comes after. */
static void drop_qp(struct verbs_conn *conn, uint64_t until_ns)
{
	struct verbs_queue *queue = conn_queue(conn);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (!conn->qp)
		return;
	/* Some adapters forget the completions of a queue pair that is destroyed: so it is stopped
	 * first, and what it has to say is heard. Others leave them there: so once more after. */
	if (ibv_modify_qp(conn->qp, &attr, IBV_QP_STATE) == 0 &&
	    !atomic_load_explicit(&queue->adapter_failed, memory_order_relaxed)) {
		if (conn->state == CONN_ENDING)
			flush_qp(conn, until_ns);
		if (conn->connected)
			await_last_slot(conn);
	}
	queue_drain(queue);
	ibv_destroy_qp(conn->qp);
	conn->qp = NULL;
	queue_drain(queue);
	queue_remove_conn(queue, conn);
	keepalive_update(queue);
}

void verbs_conn_unprepare(struct verbs_conn *conn)
{
	drop_qp(conn, 0);
	/* A hasty peer may have sent already. */
	list_remove(&conn->ending_link);
	arrive_forget(conn);
	free(conn->works);
	conn->works = NULL;
	/* Another address may be tried with it. */
	conn->state = CONN_MEETING;
	conn->has_culprit = conn->broken = conn->connected = false;
	conn->probes = 0;
	atomic_store_explicit(&conn->adapter_failed, false, memory_order_relaxed);
	atomic_store_explicit(&conn->last_slot, false, memory_order_relaxed);
}

static uint8_t at_most(uint8_t value, uint8_t limit)
{
	return value < limit ? value : limit;
}

/* The adapter's time for one try, as an exponent: so that all tries take a quarter of
 * dead_after_ms. Adapters may take up to four times as long as they are told. */
static uint8_t timeout_of(const struct verbs_conn *conn)
{
	const struct verbs_name *name = &conn_device(conn)->name;
	double try_us = conn->base.options.dead_after_ms * 1000.0 / 4 / (name->retry + 1);
	uint8_t exponent = 8; /* a millisecond: below it a busy host would be dead */

	if (name->timeout >= 0)
		return (uint8_t)name->timeout;
	while (exponent < 20 && 4.096 * (double)(2u << exponent) <= try_us)
		exponent++;
	return exponent;
}

enum rmr_status verbs_conn_move(struct verbs_conn *conn, struct ibv_qp_attr *attr, int mask)
{
	const struct verbs_device *device = conn_device(conn);
	const char *state = "INIT";
	int error;

	switch (attr->qp_state) {
	case IBV_QPS_INIT:
		/* What peers may do is up to each region. */
		attr->qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
		if (device->base.info.capabilities & RMR_CAP_ATOMIC)
			attr->qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
		mask |= IBV_QP_ACCESS_FLAGS;
		break;
	case IBV_QPS_RTR:
		state = "RTR";
		attr->min_rnr_timer = RNR_TIMER;
		attr->max_dest_rd_atomic = at_most(attr->max_dest_rd_atomic, device->reads_in);
		mask |= IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC;
		break;
	default:
		state = "RTS";
		attr->timeout = timeout_of(conn);
		attr->retry_cnt = (uint8_t)device->name.retry;
		attr->rnr_retry = 7; /* for ever: a receiver may take its time */
		attr->max_rd_atomic = at_most(attr->max_rd_atomic, device->reads_out);
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	}
	error = ibv_modify_qp(conn->qp, attr, mask | IBV_QP_STATE);
	if (error != 0)
		return error_errno(RMR_SYSTEM, error, "the queue pair does not go to %s", state);
	return RMR_OK;
}

void verbs_conn_greeting(struct verbs_conn *conn, struct greeting *greeting)
{
	greeting->recv_size = conn->base.queue->options.recv_size;
	greeting->secret = conn->my_secret;
	greeting->private_length = conn->base.my_private_length;
	memcpy(greeting->private_data, conn->base.my_private, sizeof(greeting->private_data));
}

void verbs_conn_take_greeting(struct verbs_conn *conn, const struct greeting *greeting)
{
	conn->base.max_send = greeting->recv_size < conn_device(conn)->max_chunk
				      ? greeting->recv_size
				      : conn_device(conn)->max_chunk;
	conn->peer_secret = greeting->secret;
	conn->base.peer_private_length = greeting->private_length;
	memcpy(conn->base.peer_private, greeting->private_data, sizeof(conn->base.peer_private));
}

void verbs_conn_open(struct verbs_conn *conn, bool peer_ready)
{
	conn->connected = true;
	conn->last_probe_ns = clock_now_ns();
	if (conn->state == CONN_MEETING && peer_ready)
		conn->state = CONN_OPEN;
	keepalive_update(conn_queue(conn));
}

void verbs_conn_peer_ready(struct verbs_conn *conn)
{
	if (conn->state != CONN_MEETING)
		return;
	conn->state = CONN_OPEN;
	if (conn->next != conn->tail)
		post_start(conn);
}

void verbs_conn_fail(struct verbs_conn *conn, enum rmr_status status)
{
	if (conn->state >= CONN_ENDING)
		return;
	conn->failure = status;
	conn->state = CONN_ENDING;
	list_add_tail(&conn_queue(conn)->ending, &conn->ending_link);
}

static void close_control(struct verbs_conn *conn)
{
	if (conn->id)
		cm_close(conn);
	if (conn->socket)
		socket_close(conn);
}

void verbs_conn_end_all(struct verbs_queue *queue)
{
	uint64_t until_ns = clock_deadline_ns(FLUSH_MS); /* for all of them together */

	while (!list_is_empty(&queue->ending)) {
		struct verbs_conn *conn =
			list_first_entry(&queue->ending, struct verbs_conn, ending_link);

		list_remove(&conn->ending_link);
		list_remove(&conn->starved_link);
		drop_qp(conn, until_ns);
		complete_rest(conn);
		conn->state = CONN_ENDED;
		close_control(conn);
		verbs_conn_settle(conn);
	}
}

void verbs_conn_settle(struct verbs_conn *conn)
{
	if (conn->state != CONN_ENDED || conn->waiting > 0)
		return;
	conn->state = CONN_LOST;
	conn_lost(&conn->base, conn->failure);
}

enum rmr_status verbs_accept(struct rmr_request *base, struct rmr_conn *conn)
{
	struct verbs_request *request = (struct verbs_request *)base;

	return verbs_device_of(conn->queue->device)->name.socket
		       ? socket_accept(request, (struct verbs_conn *)conn)
		       : cm_accept(request, (struct verbs_conn *)conn);
}

enum rmr_status verbs_connect(struct rmr_conn *conn, const char *address, uint64_t deadline_ns)
{
	return verbs_device_of(conn->queue->device)->name.socket
		       ? socket_connect((struct verbs_conn *)conn, address, deadline_ns)
		       : cm_connect((struct verbs_conn *)conn, address, deadline_ns);
}

void verbs_conn_fini(struct rmr_conn *base)
{
	struct verbs_conn *conn = (struct verbs_conn *)base;
	struct verbs_queue *queue = conn_queue(conn);

	/* What is still heard of it while it goes must neither end it nor start anything. */
	conn->state = CONN_LOST;
	list_remove(&conn->ending_link);
	list_remove(&conn->starved_link);
	drop_qp(conn, 0);
	queue->send_room += conn->posted - conn->done;
	close_control(conn);
	arrive_forget(conn);
	free(conn->stash);
	free(conn->works);
}
