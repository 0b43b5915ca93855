/*
 * The target's side of messages: SENDs and immediates, delivered in order, never in anybody's
 * way.
 *
 * A SEND goes straight into a receive slot of the queue if one is free. If none is, it is kept
 * in memory of its own (`waiting`) until the program gives a slot back, and so is everything
 * that comes behind it on this connection; the socket is read on meanwhile, because answers to
 * our own READs may come behind it, and what peers READ and WRITE has nothing to do with our
 * slots.
 *
 *	peer's window: messages_taken - messages_done <= offered_messages, and so for bytes
 *
 * A message is acknowledged when it is delivered, not when it is taken in; so the window bounds
 * what waits here, and a sender whose receiver does not keep up is held back, as it should be.
 *
 * A message too long to be kept (TCP_EAGER_MAX) is announced by WANT, takes its turn among
 * those that wait, and is granted a slot when there is one; then it is streamed into that.
 */
#include <stdlib.h>
#include <string.h>

#include "fabric/tcp/internal.h"

bool message_in_window(const struct tcp_conn *conn, uint64_t bytes)
{
	return conn->messages_taken - conn->messages_done < conn->offered_messages &&
	       conn->bytes_taken - conn->bytes_done + bytes <= conn->offered_bytes;
}

static bool is_eager(uint64_t length)
{
	return length <= TCP_EAGER_MAX;
}

/* A message is with the program: its acknowledgment is owed. */
static void count_delivered(struct tcp_conn *conn, uint64_t bytes)
{
	conn->messages_done++;
	conn->bytes_done += (uint32_t)bytes;
}

static void append(struct tcp_conn *conn, struct tcp_message *message)
{
	message->next = NULL;
	*conn->waiting_end = message;
	conn->waiting_end = &message->next;
	if (list_is_empty(&conn->starved_link))
		list_add_tail(&tcp_queue_of(conn)->starved, &conn->starved_link);
}

static struct tcp_message *allocate(struct tcp_conn *conn, uint8_t op, uint64_t length)
{
	struct tcp_message *message =
		malloc(sizeof(*message) + (op == FRAME_SEND ? (size_t)length : 0));

	if (!message) {
		conn_fail(conn, RMR_NO_MEMORY);
		return NULL;
	}
	*message = (struct tcp_message){.op = op, .length = length};
	return message;
}

/* The slot that was granted to the long message that begins now. */
static void begin_granted(struct tcp_conn *conn, const struct frame *frame)
{
	struct tcp_receive *receive = &conn->receive;

	if (!conn->granted_slot || conn->grant_due || frame->length != conn->granted_length) {
		conn_violation(conn, "a SEND of %llu bytes that was not granted",
			       (unsigned long long)frame->length);
		return;
	}
	conn->messages_taken++;
	receive->recv_slot = conn->granted_slot;
	conn->granted_slot = NULL;
	conn->want_waits = false;
	receive_payload(conn, frame, receive->recv_slot, NULL, 0);
}

void message_begin(struct tcp_conn *conn, const struct frame *frame)
{
	struct tcp_receive *receive = &conn->receive;
	struct tcp_queue *queue = tcp_queue_of(conn);
	uint8_t *to;

	if (frame->length > queue->base.options.recv_size) {
		conn_violation(conn, "a SEND of %llu bytes, we take %u",
			       (unsigned long long)frame->length, queue->base.options.recv_size);
		return;
	}
	if (!is_eager(frame->length)) {
		begin_granted(conn, frame);
		return;
	}
	if (conn->want_waits) {
		conn_violation(conn, "a SEND overtakes the one announced before it");
		return;
	}
	if (!message_in_window(conn, frame->length)) {
		conn_violation(conn, "more messages than the window takes");
		return;
	}
	conn->messages_taken++;
	conn->bytes_taken += (uint32_t)frame->length;
	receive->recv_slot = conn->waiting ? NULL : recv_pool_get(&queue->base.recv);
	to = receive->recv_slot;
	if (!to) {
		receive->message = allocate(conn, FRAME_SEND, frame->length);
		if (!receive->message)
			return;
		to = receive->message->data;
	}
	receive_payload(conn, frame, to, NULL, 0);
}

void message_end(struct tcp_conn *conn)
{
	struct tcp_receive *receive = &conn->receive;
	void *slot = receive->recv_slot;

	if (slot) {
		receive->recv_slot = NULL;
		conn_deliver(&conn->base, slot, receive->length);
		count_delivered(conn, is_eager(receive->length) ? receive->length : 0);
		return;
	}
	append(conn, receive->message);
	receive->message = NULL;
	message_drain(tcp_queue_of(conn));
}

void message_immediate(struct tcp_conn *conn, uint32_t immediate, uint64_t length)
{
	struct tcp_message *message;

	if (!conn->waiting && queue_takes_imm(conn->base.queue)) {
		conn_deliver_imm(&conn->base, immediate, length);
		count_delivered(conn, 0);
		return;
	}
	message = allocate(conn, FRAME_WRITE_IMM, length);
	if (!message)
		return;
	message->immediate = immediate;
	append(conn, message);
}

void message_want(struct tcp_conn *conn, const struct frame *frame)
{
	struct tcp_message *message;

	if (conn->want_waits || is_eager(frame->length) || !message_in_window(conn, 0) ||
	    frame->length > conn->base.queue->options.recv_size) {
		conn_violation(conn, "it wants to send %llu bytes, which it may not",
			       (unsigned long long)frame->length);
		return;
	}
	message = allocate(conn, FRAME_WANT, frame->length);
	if (!message)
		return;
	conn->want_waits = true;
	append(conn, message);
	message_drain(tcp_queue_of(conn));
}

/* Delivers the first message that waits. False when it has to wait on. */
static bool deliver_first(struct tcp_conn *conn, struct tcp_message *message)
{
	struct rmr_queue *queue = conn->base.queue;
	void *slot;

	if (message->op == FRAME_WRITE_IMM) {
		if (!queue_takes_imm(queue))
			return false;
		conn_deliver_imm(&conn->base, message->immediate, message->length);
		count_delivered(conn, 0);
		return true;
	}
	if (message->op == FRAME_WANT && conn->state != CONN_OPEN)
		return true; /* it will never come */
	slot = recv_pool_get(&queue->recv);
	if (!slot)
		return false;
	if (message->op == FRAME_WANT) {
		conn->granted_slot = slot;
		conn->granted_length = message->length;
		conn->grant_due = true;
		return true;
	}
	memcpy(slot, message->data, message->length);
	conn_deliver(&conn->base, slot, message->length);
	count_delivered(conn, message->length);
	return true;
}

/* Delivers what waits on one connection. Returns whether it could deliver anything. */
static bool drain_conn(struct tcp_conn *conn)
{
	bool some = false;

	while (conn->waiting) {
		struct tcp_message *message = conn->waiting;

		if (!deliver_first(conn, message))
			break;
		conn->waiting = message->next;
		if (!conn->waiting)
			conn->waiting_end = &conn->waiting;
		free(message);
		some = true;
	}
	if (some && (conn->state == CONN_OPEN || conn->state == CONN_CLOSING))
		transmit_later(conn);
	return some;
}

void message_drain(struct tcp_queue *queue)
{
	struct list fed, hungry;

	queue->drain_due = false;
	if (list_is_empty(&queue->starved))
		return;
	list_init(&fed);
	list_init(&hungry);
	while (!list_is_empty(&queue->starved)) {
		struct tcp_conn *conn =
			list_first_entry(&queue->starved, struct tcp_conn, starved_link);
		bool some;

		list_remove(&conn->starved_link);
		some = drain_conn(conn);
		if (conn->waiting)
			list_add_tail(some ? &fed : &hungry, &conn->starved_link);
		else
			conn_settle_failure(conn);
	}
	/* Who got nothing is first the next time. */
	list_move_all(&hungry, &queue->starved);
	list_move_all(&fed, &queue->starved);
}

void message_abandon(struct tcp_conn *conn)
{
	struct tcp_receive *receive = &conn->receive;
	struct tcp_queue *queue = tcp_queue_of(conn);

	if (receive->recv_slot)
		recv_pool_put(&queue->base.recv, receive->recv_slot);
	if (conn->granted_slot)
		recv_pool_put(&queue->base.recv, conn->granted_slot);
	free(receive->message);
	receive->recv_slot = conn->granted_slot = NULL;
	receive->message = NULL;
	conn->grant_due = false;
	queue->drain_due = true; /* for others, and for what waits here and will never come */
}

void message_drop_all(struct tcp_conn *conn)
{
	while (conn->waiting) {
		struct tcp_message *message = conn->waiting;

		conn->waiting = message->next;
		free(message);
	}
	conn->waiting_end = &conn->waiting;
	list_remove(&conn->starved_link);
}
