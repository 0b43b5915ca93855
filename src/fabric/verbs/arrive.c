/*
 * Received messages and immediates.
 *
 * All connections of a queue receive from one shared receive queue. Every receive request has a
 * slot of queue->recv; the adapter takes one for each SEND, which lands in it, and one for each
 * WRITE_IMM, which leaves it unused. What has arrived is delivered in the order of its connection:
 *
 *	            SEND or WRITE_IMM arrives       there is room for it
 *	SLOT_POSTED --------------------> SLOT_ARRIVED ----------------> a message: SLOT_HELD
 *	     ^                                              |                        |
 *	     +-------------------- an immediate ------------+        rmr_recv_release |
 *	     +------------------------------------------------------------------------+
 *
 * The program may hold recv_slots messages, and as many immediates may lie in the ring. When that
 * is so what arrives waits in its slot; when all slots are taken, the adapter turns senders away,
 * who try again by themselves (rnr_retry 7: for ever). There are twice recv_slots slots, so that
 * immediates come through although the program holds all its messages. Only if others' messages
 * wait in all the rest does an immediate have to wait with them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "fabric/verbs/internal.h"

static uint8_t *slot_memory(struct verbs_queue *queue, uint32_t index)
{
	return queue->base.recv.memory + index * queue->base.recv.stride;
}

/* Never too short for the length of a long WRITE_IMM (post.c). */
static uint32_t slot_length(const struct verbs_queue *queue)
{
	uint32_t size = queue->base.options.recv_size;

	return size < sizeof(uint64_t) ? sizeof(uint64_t) : size;
}

static void post_slot(struct verbs_queue *queue, uint32_t index)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)slot_memory(queue, index),
		.length = slot_length(queue),
		.lkey = queue->slots_mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = VERBS_WR_RECV | index, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;
	int error = ibv_post_srq_recv(queue->srq, &wr, &bad);

	queue->slots[index].state = SLOT_POSTED;
	queue->slots[index].conn = NULL;
	queue->slots[index].number = ++queue->slots_posted;
	/* It has room for all slots; so this is an adapter that is gone. */
	if (error != 0)
		log_warn_limited("%s: a receive slot is lost: error %d",
				 queue->base.device->info.name, error);
}

enum rmr_status arrive_init(struct verbs_queue *queue)
{
	struct verbs_device *device = verbs_device_of(queue->base.device);
	struct recv_pool *pool = &queue->base.recv;
	struct ibv_srq_init_attr attr = {.srq_context = queue,
					 .attr = {.max_wr = pool->slots, .max_sge = 1}};
	enum rmr_status status;

	queue->slots = calloc(pool->slots, sizeof(*queue->slots));
	if (!queue->slots)
		return error_set(RMR_NO_MEMORY, "no memory for %u slots", pool->slots);
	queue->slots_mr = ibv_reg_mr(device->pd, pool->memory, pool->slots * pool->stride,
				     IBV_ACCESS_LOCAL_WRITE);
	if (!queue->slots_mr) {
		status = doctor_register_failed(pool->memory, pool->slots * pool->stride, errno);
		goto free_slots;
	}
	queue->srq = ibv_create_srq(device->pd, &attr);
	if (!queue->srq) {
		status = doctor_create_failed("shared receive queue", pool->slots, errno);
		goto deregister;
	}
	/* They are ours for good; recv_pool only keeps the memory. */
	while (recv_pool_get(pool))
		;
	for (uint32_t i = 0; i < pool->slots; i++) {
		list_init(&queue->slots[i].link);
		post_slot(queue, i);
	}
	return RMR_OK;

deregister:
	ibv_dereg_mr(queue->slots_mr);
free_slots:
	free(queue->slots);
	return status;
}

void arrive_fini(struct verbs_queue *queue)
{
	ibv_destroy_srq(queue->srq);
	ibv_dereg_mr(queue->slots_mr);
	free(queue->slots);
}

/* Delivers a slot if there is room for what is in it. */
static bool deliver(struct verbs_queue *queue, struct verbs_slot *slot)
{
	uint32_t index = (uint32_t)(slot - queue->slots);
	struct verbs_conn *conn = slot->conn;

	if (slot->is_immediate) {
		if (!queue_takes_imm(&queue->base))
			return false;
		conn_deliver_imm(&conn->base, slot->immediate, slot->length);
		post_slot(queue, index);
		return true;
	}
	if (queue->held >= queue->base.options.recv_slots)
		return false;
	queue->held++;
	slot->state = SLOT_HELD;
	conn_deliver(&conn->base, slot_memory(queue, index), slot->length);
	return true;
}

/* The last request of a long WRITE_IMM is a SEND with the length of the whole (post.c). */
static bool ends_long_write(const struct ibv_wc *wc)
{
	return wc->opcode == IBV_WC_RECV && wc->wc_flags & IBV_WC_WITH_IMM;
}

/* The slot may be a little longer than the program's messages may be. */
static bool is_too_long(const struct verbs_queue *queue, const struct ibv_wc *wc)
{
	return wc->opcode == IBV_WC_RECV && wc->byte_len > queue->base.options.recv_size;
}

void arrive_take(struct verbs_queue *queue, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)(wc->wr_id & ~VERBS_WR_RECV);
	struct verbs_slot *slot = &queue->slots[index];
	struct verbs_conn *conn = queue_find_conn(queue, wc->qp_num);

	if (slot->number > queue->slots_taken)
		queue->slots_taken = slot->number;
	if (conn)
		conn->taken = slot->number;
	if (wc->status != IBV_WC_SUCCESS || !conn) {
		/* The connection ended in the middle of a message, or is closed already. */
		post_slot(queue, index);
		if (conn && wc->status != IBV_WC_WR_FLUSH_ERR) {
			log_warn_limited("%s: receiving from %s failed: %s",
					 queue->base.device->info.name, conn->base.peer,
					 ibv_wc_status_str(wc->status));
			verbs_conn_fail(conn, wc->status == IBV_WC_REM_ACCESS_ERR ? RMR_ACCESS
										  : RMR_PROTOCOL);
		}
		return;
	}
	if (ends_long_write(wc) ? wc->byte_len != sizeof(slot->length) : is_too_long(queue, wc)) {
		/* Not ours; and what the slot holds from before is not this peer's business. */
		post_slot(queue, index);
		log_warn_limited("%s: %s sent %u bytes that it may not",
				 queue->base.device->info.name, conn->base.peer, wc->byte_len);
		verbs_conn_fail(conn, RMR_PROTOCOL);
		return;
	}
	slot->conn = conn;
	slot->state = SLOT_ARRIVED;
	slot->is_immediate = wc->wc_flags & IBV_WC_WITH_IMM;
	slot->immediate = slot->is_immediate ? be32toh(wc->imm_data) : 0;
	slot->length = wc->byte_len;
	if (ends_long_write(wc)) {
		memcpy(&slot->length, slot_memory(queue, index), sizeof(slot->length));
		slot->length = le64toh(slot->length);
	}
	/* What is first of its connection need not go through the list. */
	if (conn->waiting == 0 && deliver(queue, slot))
		return;
	conn->waiting++;
	list_add_tail(&queue->arrived, &slot->link);
}

void arrive_deliver(struct verbs_queue *queue)
{
	list_for_each (link, &queue->arrived)
		list_entry(link, struct verbs_slot, link)->conn->stalled = false;
	list_for_each_safe (link, &queue->arrived) {
		struct verbs_slot *slot = list_entry(link, struct verbs_slot, link);
		struct verbs_conn *conn = slot->conn;

		if (conn->stalled)
			continue; /* its turn comes after what waits before it */
		if (!deliver(queue, slot)) {
			conn->stalled = true;
			continue;
		}
		list_remove(&slot->link);
		conn->waiting--;
		verbs_conn_settle(conn);
	}
}

/*
 * Soft-RoCE of newer kernels (seen with 6.12, not with 6.1) loses the slot of a message that never
 * ends: when its queue pair breaks or is destroyed, nobody hears of the slot again. So we find such
 * slots by reasoning. It takes slots in the order in which they were posted, and a queue pair fills
 * one at a time. A slot that others have overtaken, and that no living queue pair can be filling,
 * because each has filled a later one or was made later, is lost. A connection that has long sent
 * nothing keeps us from knowing; until it does, or ends, the slot stays away.
 */
void arrive_reclaim(struct verbs_queue *queue)
{
	uint64_t known = queue->slots_taken;

	if (!verbs_device_of(queue->base.device)->is_soft)
		return;
	list_for_each (link, &queue->base.conns) {
		struct verbs_conn *conn =
			(struct verbs_conn *)list_entry(link, struct rmr_conn, link);

		if (conn->qp && conn->taken < known)
			known = conn->taken;
	}
	for (uint32_t i = 0; i < queue->base.recv.slots; i++) {
		if (queue->slots[i].state != SLOT_POSTED || queue->slots[i].number > known)
			continue;
		log_debug("%s: receive slot %u was lost and is back", queue->base.device->info.name,
			  i);
		post_slot(queue, i);
	}
}

void arrive_forget(struct verbs_conn *conn)
{
	struct verbs_queue *queue = conn_queue(conn);
	void *data;

	list_for_each_safe (link, &queue->arrived) {
		struct verbs_slot *slot = list_entry(link, struct verbs_slot, link);

		if (slot->conn != conn)
			continue;
		list_remove(&slot->link);
		post_slot(queue, (uint32_t)(slot - queue->slots));
	}
	conn->waiting = 0;
	/* The core puts slots of dropped completions into its pool. */
	conn_forget(&conn->base);
	while ((data = recv_pool_get(&queue->base.recv)))
		verbs_recv_release(&queue->base, data);
	/* Those that the program still holds stay valid, but are nobody's. */
	for (uint32_t i = 0; i < queue->base.recv.slots; i++) {
		if (queue->slots[i].conn == conn)
			queue->slots[i].conn = NULL;
	}
}

void verbs_recv_release(struct rmr_queue *base, void *data)
{
	struct verbs_queue *queue = verbs_queue_of(base);
	size_t distance = (size_t)((uint8_t *)data - base->recv.memory);
	uint32_t index = (uint32_t)(distance / base->recv.stride);

	/* Anything but a held slot is the caller's bug. */
	assert(distance % base->recv.stride == 0 && index < base->recv.slots &&
	       queue->slots[index].state == SLOT_HELD);
	queue->held--;
	post_slot(queue, index);
	if (!list_is_empty(&queue->arrived))
		arrive_deliver(queue);
}
