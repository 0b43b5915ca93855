/*
 * Birth, failure and end of a connection. See internal.h for its states.
 *
 * Failing is separate from closing: a connection fails by itself, at any place of the data
 * path, in the owner's thread or the helper's; from then on every function of the data path
 * finds that it is not OPEN and does nothing. The owner closes it, at any moment, and after
 * that nobody has a pointer to it: it is taken out of every list and out of the epoll set under
 * the queue's lock.
 *
 * What has been completed has been acknowledged by the peer's provider, that is, the peer has
 * read it from its socket. So closing loses nothing that anybody was told is done. Beyond that
 * we try to be kind: what we owe is sent if the socket takes it, and what the peer has sent
 * meanwhile is read away, because closing a socket with unread bytes resets the connection.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "fabric/inet.h"
#include "fabric/tcp/internal.h"

void conn_greeting(const struct tcp_conn *conn, enum handshake_kind kind, uint8_t *to)
{
	const struct rmr_queue_options *options = &conn->base.queue->options;
	struct handshake greeting = {
		.kind = (uint8_t)kind,
		.body_length = conn->base.my_private_length,
		.recv_size = options->recv_size,
		.depth = conn->base.options.depth,
		.window_messages = options->recv_slots,
		.window_bytes = TCP_WINDOW_BYTES,
	};

	if (greeting.window_messages < TCP_WINDOW_MESSAGES_MIN)
		greeting.window_messages = TCP_WINDOW_MESSAGES_MIN;
	if (greeting.window_messages > TCP_WINDOW_MESSAGES_MAX)
		greeting.window_messages = TCP_WINDOW_MESSAGES_MAX;
	memcpy(greeting.body, conn->base.my_private, conn->base.my_private_length);
	handshake_encode(to, &greeting);
}

static void take_greeting(struct tcp_conn *conn, const struct handshake *peer)
{
	uint8_t bytes[HANDSHAKE_SIZE];
	struct handshake own;
	const char *reason;

	/* What we offered: read it from our own greeting, so that both sides count alike. */
	conn_greeting(conn, HANDSHAKE_HELLO, bytes);
	(void)handshake_decode(bytes, sizeof(bytes), &own, &reason);
	conn->offered_messages = own.window_messages;
	conn->offered_bytes = own.window_bytes;
	conn->requests_limit = own.depth < TCP_SERVED_MAX ? own.depth : TCP_SERVED_MAX;
	conn->served_limit = peer->depth < TCP_SERVED_MAX ? peer->depth : TCP_SERVED_MAX;
	conn->window_messages = peer->window_messages;
	conn->window_bytes = peer->window_bytes;
	conn->base.max_send = peer->recv_size;
}

void conn_begin(struct tcp_conn *conn, int fd, const struct handshake *peer)
{
	list_init(&conn->dirty_link);
	list_init(&conn->starved_link);
	conn->waiting_end = &conn->waiting;
	take_greeting(conn, peer);
	conn->fd = fd;
	conn->state = CONN_OPEN;
}

enum rmr_status conn_open(struct tcp_conn *conn, int fd, const struct handshake *peer)
{
	struct tcp_queue *queue = tcp_queue_of(conn);
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
	enum rmr_status status = RMR_OK;

	/* Buffers are left to the kernel, which sizes them by what the connection needs. Fixed ones
	 * of 256 KiB to 4 MiB were measured: no faster for single READs of 1 MiB, and 15% slower
	 * for eight at once. */
	inet_keep_alive(fd, conn->base.options.dead_after_ms);
	inet_use_plain_control(fd);
	queue_lock(queue);
	conn_begin(conn, fd, peer);
	conn->interest = EPOLLIN;
	if (epoll_ctl(queue->sockets_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		status = error_errno(RMR_SYSTEM, errno, "cannot watch a socket");
		conn->state = CONN_UNBORN;
	}
	queue_unlock(queue);
	return status;
}

enum rmr_status tcp_accept(struct rmr_request *base, struct rmr_conn *conn_base)
{
	struct tcp_request *request = (struct tcp_request *)base;
	struct tcp_conn *conn = (struct tcp_conn *)conn_base;
	uint8_t bytes[HANDSHAKE_SIZE];
	enum rmr_status status;

	/* Our ACCEPT goes first into the socket: as soon as the connection is open the helper might
	 * send on it. */
	conn_greeting(conn, HANDSHAKE_ACCEPT, bytes);
	if (send(request->fd, bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(bytes)) {
		status = error_errno(RMR_DISCONNECTED, errno, "the caller hung up");
		close(request->fd);
		return status;
	}
	status = conn_open(conn, request->fd, &request->hello);
	if (status != RMR_OK)
		close(request->fd);
	return status;
}

void conn_settle_failure(struct tcp_conn *conn)
{
	if (conn->state != CONN_FAILED || conn->waiting)
		return;
	conn->state = CONN_LOST;
	conn_lost(&conn->base, conn->failure);
}

/* Into FAILED. */
static void fail(struct tcp_conn *conn, const uint32_t *culprit, enum rmr_status status)
{
	if (conn->state != CONN_OPEN && conn->state != CONN_CLOSING)
		return;
	if (conn->state == CONN_CLOSING)
		status = conn->failure; /* what it closes for counts, not how that went */
	conn->state = CONN_FAILED;
	conn->failure = status;
	log_debug("%s: connection to %s ends: %s", conn_device_name(conn), conn->base.peer,
		  rmr_status_text(status));
	transmit_drop(conn);
	list_remove(&conn->dirty_link);
	message_abandon(conn);
	if (conn->lent)
		tcp_queue_of(conn)->wire->recall(conn);
	answer_fail_all(conn, culprit, status);
	conn_settle_failure(conn);
}

void conn_fail(struct tcp_conn *conn, enum rmr_status status)
{
	fail(conn, NULL, status);
	tcp_queue_of(conn)->wire->close(conn);
}

void conn_fail_at(struct tcp_conn *conn, uint32_t sequence, enum rmr_status status)
{
	fail(conn, &sequence, status);
	tcp_queue_of(conn)->wire->close(conn);
}

void conn_violation(struct tcp_conn *conn, const char *format, ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	log_warn_limited("%s: connection to %s ended, it broke the protocol: %s",
			 conn_device_name(conn), conn->base.peer, text);
	conn_fail(conn, RMR_PROTOCOL);
}

void conn_refuse(struct tcp_conn *conn, uint32_t sequence, enum rmr_status status)
{
	/* An earlier one counts: what comes behind it is void. */
	if (conn->state == CONN_CLOSING && sequence_before(sequence, conn->error_sequence))
		conn->error_sequence = sequence;
	if (conn->state != CONN_OPEN)
		return;
	conn->state = CONN_CLOSING;
	conn->failure = status;
	conn->error_due = true;
	conn->error_sequence = sequence;
	conn->error_status = (uint8_t)-status;
}

void conn_finish_closing(struct tcp_conn *conn)
{
	fail(conn, NULL, conn->failure);
	conn->discarding = true;
	tcp_queue_of(conn)->wire->hang_up(conn);
}

void tcp_conn_fini(struct rmr_conn *base)
{
	struct tcp_conn *conn = (struct tcp_conn *)base;
	struct tcp_queue *queue = tcp_queue_of(conn);

	queue_lock(queue);
	if (conn->state == CONN_OPEN || conn->state == CONN_CLOSING)
		transmit_ready(conn);
	if (conn->fd >= 0)
		queue->wire->part(conn);
	transmit_drop(conn);
	list_remove(&conn->dirty_link);
	message_abandon(conn);
	message_drop_all(conn);
	tcp_queue_of(conn)->wire->close(conn);
	conn->state = CONN_LOST;
	for (uint32_t i = conn->head; i != conn->tail; i++) {
		struct tcp_work *work = &conn->works[i & conn->work_mask];

		free(work->stash);
		if (work->lent == LENT_OUT)
			queue->wire->take_back(conn, work);
	}
	free(conn->works);
	free(conn->responses);
	conn_forget(base);
	message_drain(queue); /* slots that we had are free for others */
	queue_unlock(queue);
}
