/*
 * The wire of the tcp provider: sockets.
 *
 * Asking epoll and then receiving makes two system calls; a program that waits for an answer on
 * one connection should make one. So connections that lately had something are *hot*: at most
 * TCP_HOT_MAX of them, and each poll receives on them directly. They are not watched by epoll
 * meanwhile, which also spares the sender the wake-ups. All others cost a poll nothing: they
 * are looked at through epoll, each time when there is something, ever more seldom when there
 * is not.
 *
 *	cold --has something TCP_HOT_AFTER times--> hot --TCP_COOL_AFTER empty polls--> cold
 *	                                             +--the owner sleeps, or does not poll--> cold
 *
 * Since nobody is woken by a hot connection, a helper that sees the owner poll no more takes
 * over (helper.c).
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/tcp/internal.h"

#define EVENTS_AT_ONCE 32
#define DRAIN_MAX      (4u << 20) /* bytes read away at most before closing */

void socket_update_interest(struct tcp_conn *conn)
{
	struct tcp_queue *queue = tcp_queue_of(conn);
	uint32_t interest = (conn->hot ? 0 : EPOLLIN) | (conn->transmit.blocked ? EPOLLOUT : 0);
	struct epoll_event event = {.events = interest, .data.ptr = conn};

	if (conn->fd < 0 || interest == conn->interest)
		return;
	(void)epoll_ctl(queue->sockets_fd, EPOLL_CTL_MOD, conn->fd, &event);
	conn->interest = interest;
}

static void cool(struct tcp_conn *conn)
{
	struct tcp_queue *queue = tcp_queue_of(conn);

	if (!conn->hot)
		return;
	for (unsigned i = 0; i < queue->hot_count; i++) {
		if (queue->hot[i] == conn) {
			queue->hot[i] = queue->hot[--queue->hot_count];
			break;
		}
	}
	conn->hot = false;
	conn->heat = 0;
	socket_update_interest(conn);
}

static void heat(struct tcp_conn *conn)
{
	struct tcp_queue *queue = tcp_queue_of(conn);

	if (queue->hot_count == TCP_HOT_MAX) {
		/* One that found nothing lately gives way. */
		for (unsigned i = 0; i < TCP_HOT_MAX; i++) {
			if (queue->hot[i]->idle_polls > TCP_DISPATCH_EVERY_MAX) {
				cool(queue->hot[i]);
				break;
			}
		}
		if (queue->hot_count == TCP_HOT_MAX)
			return;
	}
	queue->hot[queue->hot_count++] = conn;
	conn->hot = true;
	conn->idle_polls = 0;
	socket_update_interest(conn);
}

/* A connection found by epoll had something. */
static void warm(struct tcp_conn *conn)
{
	struct tcp_queue *queue = tcp_queue_of(conn);

	if (queue->by_helper || conn->state != CONN_OPEN || conn->hot)
		return;
	if (conn->heat_sleeps != queue->sleeps) {
		conn->heat_sleeps = queue->sleeps;
		conn->heat = 0;
	}
	if (++conn->heat >= TCP_HOT_AFTER)
		heat(conn);
}

static void dispatch(struct tcp_queue *queue)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	int count = epoll_wait(queue->sockets_fd, events, EVENTS_AT_ONCE, 0);
	bool found = false;

	for (int i = 0; i < count; i++) {
		struct tcp_conn *conn = events[i].data.ptr;

		if (events[i].events & EPOLLOUT)
			transmit_unblock(conn);
		if ((events[i].events & ~(uint32_t)EPOLLOUT) && receive_ready(conn)) {
			found = true;
			warm(conn);
		}
	}
	if (found)
		queue->dispatch_every = 1;
	else if (queue->dispatch_every < TCP_DISPATCH_EVERY_MAX)
		queue->dispatch_every *= 2;
	queue->dispatch_in = queue->dispatch_every;
}

static void poll_hot(struct tcp_queue *queue)
{
	/* From the end: one that leaves is replaced by the last, which had its turn. */
	for (unsigned i = queue->hot_count; i-- > 0;) {
		struct tcp_conn *conn = queue->hot[i];

		if (receive_ready(conn))
			conn->idle_polls = 0;
		else if (++conn->idle_polls >= TCP_COOL_AFTER)
			cool(conn);
	}
}

static void cool_all(struct tcp_queue *queue)
{
	while (queue->hot_count)
		cool(queue->hot[0]);
}

static void socket_progress(struct tcp_queue *queue)
{
	if (queue->by_helper)
		cool_all(queue);
	else
		poll_hot(queue);
	if (queue->hot_count == 0 || queue->blocked || --queue->dispatch_in == 0)
		dispatch(queue);
}

static bool socket_arm(struct tcp_queue *queue)
{
	/* What a hot socket holds already makes epoll_fd readable when it is watched again: it is
	 * level-triggered. */
	cool_all(queue);
	return true;
}

static bool socket_needs_polls(const struct tcp_queue *queue)
{
	return queue->hot_count != 0;
}

/* Goes into the regions of the segments, as many as are open. Returns how many segments can be
 * sent. */
static uint32_t enter_segments(struct tcp_segment *segments, uint32_t count, struct iovec *vectors)
{
	for (uint32_t i = 0; i < count; i++) {
		if (segments[i].slot && !region_enter(segments[i].slot, segments[i].key))
			return i;
		vectors[i] = (struct iovec){.iov_base = (void *)(uintptr_t)segments[i].data,
					    .iov_len = segments[i].length};
		if (segments[i].slot)
			vectors[i].iov_base = region_now(segments[i].slot, segments[i].data);
	}
	return count;
}

static void leave_segments(struct tcp_segment *segments, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (segments[i].slot)
			region_leave(segments[i].slot);
	}
}

static size_t total_length(const struct iovec *vectors, size_t count)
{
	size_t total = 0;

	for (size_t i = 0; i < count; i++)
		total += vectors[i].iov_len;
	return total;
}

/* One system call. Adds what was sent to *total. False when the socket takes no more, or failed. */
static bool socket_send_block(struct tcp_conn *conn, size_t *total)
{
	struct tcp_transmit *transmit = &conn->transmit;
	struct tcp_segment *segments = &transmit->block->segments[transmit->first];
	uint32_t count = transmit->count - transmit->first;
	struct iovec vectors[TCP_BLOCK_SEGMENTS];
	struct msghdr message = {.msg_iov = vectors};
	ssize_t sent;

	message.msg_iovlen = enter_segments(segments, count, vectors);
	if (message.msg_iovlen == 0) {
		log_warn_limited("tcp: connection to %s ends: a region was closed while being sent",
				 conn->base.peer);
		conn_fail(conn, RMR_ACCESS);
		return false;
	}
	if (message.msg_iovlen == 1)
		sent = socket_send(conn->fd, vectors[0].iov_base, vectors[0].iov_len);
	else
		sent = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	leave_segments(segments, (uint32_t)message.msg_iovlen);
	if (sent > 0) {
		transmit_advance(conn, (size_t)sent);
		*total += (size_t)sent;
		return (size_t)sent == total_length(vectors, message.msg_iovlen);
	}
	/* The peer is gone; what it said before lies in the socket still. The connection fails when
	 * that has been read to its end, of which this makes sure. */
	if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR &&
	    errno != ENOBUFS)
		(void)shutdown(conn->fd, SHUT_RDWR);
	return false;
}

/* Reads away what is there. */
static void drain_socket(struct tcp_conn *conn)
{
	uint8_t *scratch = tcp_queue_of(conn)->scratch;
	size_t drained = 0;
	ssize_t got;

	do {
		got = recv(conn->fd, scratch, TCP_SCRATCH_BYTES, MSG_DONTWAIT);
		drained += got > 0 ? (size_t)got : 0;
	} while (got > 0 && drained < DRAIN_MAX);
}

static void socket_part(struct tcp_conn *conn)
{
	drain_socket(conn);
	(void)shutdown(conn->fd, SHUT_WR);
}

static void socket_hang_up(struct tcp_conn *conn)
{
	(void)shutdown(conn->fd, SHUT_WR);
}

static void socket_close(struct tcp_conn *conn)
{
	if (conn->fd < 0)
		return;
	cool(conn);
	(void)epoll_ctl(tcp_queue_of(conn)->sockets_fd, EPOLL_CTL_DEL, conn->fd, NULL);
	close(conn->fd);
	conn->fd = -1;
}

const struct tcp_wire socket_wire = {
	.send = socket_send_block,
	.watch = socket_update_interest,
	.hang_up = socket_hang_up,
	.part = socket_part,
	.close = socket_close,
	.progress = socket_progress,
	.arm = socket_arm,
	.needs_polls = socket_needs_polls,
};
