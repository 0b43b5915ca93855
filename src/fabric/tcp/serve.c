/*
 * The target's side of requests: what peers ask of our memory.
 *
 * Requests are executed one after the other as they are parsed. Each names a slot of the region
 * table and a key; region_enter_granted finds out whether that is a region that was exported to
 * this connection, and bounds and rights are checked inside, before a byte of payload is taken.
 * What is not permitted gets an ERROR answer and ends the connection (conn_refuse), and nothing was
 * touched.
 *
 * The answer to a small READ or an atomic is encoded at once into the block that leaves when
 * this batch of requests is done. If there is no room (the peer does not read its answers), or
 * the data is large, it becomes a struct tcp_response, which is encoded later; there are at
 * most as many of them as the peer may have requests in flight.
 *
 * READ_PUSH is a READ whose data the wire writes into memory that the peer lends; it too waits
 * among the responses until the wire takes it.
 *
 * Atomics are the CPU's own, so they are atomic against every thread and process that uses such
 * instructions on the same memory.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/tcp/internal.h"

static struct region_slot *slot_of(struct tcp_conn *conn, const struct frame *frame)
{
	/* Any 16-bit index is a slot: see region.c. */
	return &tcp_device_of(conn->base.queue->device)->regions.slots[frame->index];
}

/* Goes into the region that the frame names, if the peer was granted it with these rights, and
 * tells the region's own key. Otherwise the request is refused. */
static struct region_slot *enter(struct tcp_conn *conn, const struct frame *frame, unsigned rights,
				 uint64_t *key)
{
	struct region_slot *slot = slot_of(conn, frame);
	const char *problem;

	if (!region_enter_granted(slot, &conn->secret, frame->key, key)) {
		problem = "no region that this connection was granted, or it is closed";
	} else if (region_covers(slot, frame->offset, frame->length, rights)) {
		return slot;
	} else {
		problem = (slot->rights & rights) == rights ? "beyond the end of the region"
							    : "the region does not grant that";
		region_leave(slot);
	}
	log_warn_limited("%s: connection to %s ends: %s of %llu bytes at %llu: %s",
			 conn_device_name(conn), conn->base.peer, frame_op_name(frame->op),
			 (unsigned long long)frame->length, (unsigned long long)frame->offset,
			 problem);
	conn_refuse(conn, frame->sequence, RMR_ACCESS);
	return NULL;
}

static bool allocate_responses(struct tcp_conn *conn)
{
	uint32_t capacity = 1;

	while (capacity < conn->served_limit)
		capacity *= 2;
	conn->responses = malloc(capacity * sizeof(*conn->responses));
	conn->response_mask = capacity - 1;
	if (!conn->responses)
		conn_fail(conn, RMR_NO_MEMORY);
	return conn->responses != NULL;
}

static void push_response(struct tcp_conn *conn, const struct tcp_response *response)
{
	if (!conn->responses && !allocate_responses(conn))
		return;
	if (conn->response_tail - conn->response_head >= conn->served_limit) {
		conn_violation(conn, "more than %u requests in flight", conn->served_limit);
		return;
	}
	conn->responses[conn->response_tail++ & conn->response_mask] = *response;
}

/* Room in the block for an answer that can be encoded now, before any other; or NULL. */
static uint8_t *answer_room(struct tcp_conn *conn, size_t payload)
{
	if (conn->response_head != conn->response_tail || payload > TCP_COPY_MAX)
		return NULL;
	return transmit_reserve(conn, FRAME_HEADER_MIN + payload);
}

static void commit_answer(struct tcp_conn *conn, uint8_t *to, uint8_t op, uint32_t sequence,
			  uint64_t length, size_t payload)
{
	size_t size =
		frame_encode(to, &(struct frame){.op = op, .sequence = sequence, .length = length});

	transmit_commit(conn, size + payload);
	conn->told = sequence + 1;
}

static void serve_read(struct tcp_conn *conn, const struct frame *frame)
{
	uint64_t key;
	struct region_slot *slot = enter(conn, frame, RMR_READ, &key);
	uint8_t *to;

	if (!slot)
		return;
	to = answer_room(conn, frame->length);
	if (to)
		memcpy(to + FRAME_HEADER_MIN, region_now(slot, slot->address + frame->offset),
		       frame->length);
	region_leave(slot);
	if (to)
		commit_answer(conn, to, FRAME_READ_DATA, frame->sequence, frame->length,
			      frame->length);
	else if (conn->state == CONN_OPEN)
		push_response(conn, &(struct tcp_response){.op = FRAME_READ_DATA,
							   .sequence = frame->sequence,
							   .slot = slot,
							   .key = key,
							   .offset = frame->offset,
							   .length = frame->length});
}

static void serve_push(struct tcp_conn *conn, const struct frame *frame)
{
	struct region_slot *slot;
	uint64_t key;

	if (!tcp_queue_of(conn)->wire->push) {
		conn_violation(conn, "it lends memory, which is of no use here");
		return;
	}
	slot = enter(conn, frame, RMR_READ, &key);
	if (!slot)
		return;
	region_leave(slot);
	push_response(conn, &(struct tcp_response){.op = FRAME_READ_PUSH,
						   .sequence = frame->sequence,
						   .slot = slot,
						   .key = key,
						   .offset = frame->offset,
						   .length = frame->length});
}

/* Sequentially consistent: the strongest that a program could expect of an atomic. */
static uint64_t run_atomic(uint64_t *cell, const struct frame *frame)
{
	uint64_t old = frame->compare;

	if (frame->op == FRAME_FETCH_ADD)
		return __atomic_fetch_add(cell, frame->operand, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(cell, &old, frame->operand, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
	return old;
}

static void serve_atomic(struct tcp_conn *conn, const struct frame *frame)
{
	uint64_t key, old;
	struct region_slot *slot = enter(conn, frame, RMR_ATOMIC, &key);
	uint8_t *to;

	if (!slot)
		return;
	if ((uintptr_t)(slot->address + frame->offset) % 8 != 0) {
		region_leave(slot);
		log_warn_limited("%s: connection to %s ends: an atomic on an unaligned address",
				 conn_device_name(conn), conn->base.peer);
		conn_refuse(conn, frame->sequence, RMR_ACCESS);
		return;
	}
	old = run_atomic((uint64_t *)region_now(slot, slot->address + frame->offset), frame);
	region_leave(slot);
	to = answer_room(conn, 0);
	if (to)
		commit_answer(conn, to, FRAME_ATOMIC_RESULT, frame->sequence, old, 0);
	else if (conn->state == CONN_OPEN)
		push_response(conn, &(struct tcp_response){.op = FRAME_ATOMIC_RESULT,
							   .sequence = frame->sequence,
							   .length = old});
}

static void serve_write(struct tcp_conn *conn, const struct frame *frame)
{
	struct region_slot *slot;
	uint64_t key;
	uint8_t *to;

	if (frame->op == FRAME_WRITE_IMM && !message_in_window(conn, 0)) {
		conn_violation(conn, "more immediates than the window takes");
		return;
	}
	slot = enter(conn, frame, RMR_WRITE, &key);
	if (!slot)
		return;
	if (frame->op == FRAME_WRITE_IMM)
		conn->messages_taken++;
	to = slot->address + frame->offset;
	region_leave(slot);
	/* The region may be closed from now on; receive.c goes in again for each piece. */
	receive_payload(conn, frame, to, slot, key);
}

void serve_write_done(struct tcp_conn *conn, uint32_t sequence)
{
	conn->writes_end = sequence + 1;
}

void serve_take(struct tcp_conn *conn, const struct frame *frame)
{
	if (frame->sequence != conn->expected) {
		conn_violation(conn, "%s has sequence %u, not %u", frame_op_name(frame->op),
			       frame->sequence, conn->expected);
		return;
	}
	if (frame->op == FRAME_WANT) {
		message_want(conn, frame);
		return;
	}
	conn->expected++;
	queue_served(conn->base.queue);
	switch (frame->op) {
	case FRAME_SEND:
		message_begin(conn, frame);
		break;
	case FRAME_WRITE:
	case FRAME_WRITE_IMM:
		serve_write(conn, frame);
		break;
	case FRAME_READ:
		serve_read(conn, frame);
		break;
	case FRAME_READ_PUSH:
		serve_push(conn, frame);
		break;
	default:
		serve_atomic(conn, frame);
	}
}

/* The region that a response is about was closed meanwhile. Those behind it are void. */
static bool refuse_response(struct tcp_conn *conn, const struct tcp_response *response)
{
	conn->response_head = conn->response_tail;
	conn_refuse(conn, response->sequence, RMR_ACCESS);
	return false;
}

static bool begin_push(struct tcp_conn *conn, const struct tcp_response *response)
{
	if (!region_pin(response->slot, response->key))
		return refuse_response(conn, response);
	if (!tcp_queue_of(conn)->wire->push(conn, response))
		return false;
	conn->pushing++;
	return true;
}

/* Encodes one response. False when there is no room, or its region was closed meanwhile. */
static bool encode_response(struct tcp_conn *conn, const struct tcp_response *response)
{
	bool is_data = response->op == FRAME_READ_DATA;
	size_t copied = is_data && response->length <= TCP_COPY_MAX ? response->length : 0;
	uint8_t *to = transmit_reserve(conn, FRAME_HEADER_MIN + copied);

	if (!to)
		return false;
	if (is_data) {
		const uint8_t *from;

		if (!region_enter(response->slot, response->key))
			return refuse_response(conn, response);
		from = response->slot->address + response->offset;
		memcpy(to + FRAME_HEADER_MIN, region_now(response->slot, from), copied);
		region_leave(response->slot);
		commit_answer(conn, to, response->op, response->sequence, response->length, copied);
		if (response->length > copied)
			transmit_reference(conn, from, response->length, response->slot,
					   response->key);
		return true;
	}
	commit_answer(conn, to, response->op, response->sequence, response->length, 0);
	return true;
}

bool serve_encode(struct tcp_conn *conn)
{
	while (conn->response_head != conn->response_tail) {
		const struct tcp_response *response =
			&conn->responses[conn->response_head & conn->response_mask];

		if (!(response->op == FRAME_READ_PUSH ? begin_push(conn, response)
						      : encode_response(conn, response)))
			break;
		conn->response_head++;
	}
	return conn->response_head == conn->response_tail;
}
