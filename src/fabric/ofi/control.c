/*
 * The socket by which a connection began. It carries little more but the end: when a side hangs
 * up it says how many packets it has sent, and closes its half; when its process dies the kernel
 * closes it; when its host dies keep-alive finds out. libfabric's endpoints tell nothing of that
 * kind as long as nobody sends.
 *
 * The socket may be faster than the packets. So a connection whose peer has hung up is `leaving`:
 * it ends when all packets are here, or when they have not come within OFI_LEAVE_NS. One whose peer
 * died takes in what libfabric has by now.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/ofi/internal.h"

#define EVENTS_AT_ONCE 32

bool control_say(struct ofi_conn *conn, uint32_t magic, uint32_t value)
{
	struct greeting_word word = {.magic = htole32(magic), .value = htole32(value)};

	/* Hardly anything is ever on its way by this socket: it fits. */
	return socket_send(conn->stream.fd, &word, sizeof(word)) == sizeof(word);
}

enum rmr_status control_watch(struct ofi_conn *conn)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};

	if (epoll_ctl(ofi_queue_of(conn)->control_fd, EPOLL_CTL_ADD, conn->stream.fd, &event) != 0)
		return error_errno(RMR_SYSTEM, errno, "cannot watch a socket");
	return RMR_OK;
}

/* Nothing more will be heard by the socket. */
static void stop_listening(struct ofi_conn *conn)
{
	(void)epoll_ctl(ofi_queue_of(conn)->control_fd, EPOLL_CTL_DEL, conn->stream.fd, NULL);
}

void control_forget(struct ofi_conn *conn)
{
	list_remove(&conn->leaving_link);
	list_remove(&conn->blocked_link);
	list_remove(&conn->opening_link);
	list_remove(&conn->rung_link);
	list_remove(&conn->unsure_link);
	if (conn->stream.fd >= 0)
		stop_listening(conn);
	conn->stream.fd = -1;
}

/* The peer has hung up, having sent so many packets. */
static void leave(struct ofi_conn *conn, uint32_t packets, uint64_t wait_ns)
{
	stop_listening(conn);
	conn->leave_packets = packets;
	conn->leave_ns = clock_now_ns() + wait_ns;
	if (list_is_empty(&conn->leaving_link))
		list_add_tail(&ofi_queue_of(conn)->leaving, &conn->leaving_link);
}

static void understand(struct ofi_conn *conn)
{
	struct greeting_word word;

	memcpy(&word, conn->heard, sizeof(word));
	conn->heard_length = 0;
	if (le32toh(word.magic) == GREETING_BYE)
		leave(conn, le32toh(word.value), OFI_LEAVE_NS);
	else if (le32toh(word.magic) == GREETING_DOOR)
		lend_take_word(conn, le32toh(word.value));
	else if (le32toh(word.magic) == GREETING_BELL)
		sleep_take_bell(conn, le32toh(word.value));
	else if (le32toh(word.magic) == GREETING_ASLEEP)
		sleep_take_asleep(conn, le32toh(word.value));
	else
		conn_violation(&conn->stream, "nonsense by the socket");
}

/* The socket has something, or its end. */
static void read_socket(struct ofi_conn *conn)
{
	struct tcp_conn *base = &conn->stream;
	bool deaf = base->discarding || !conn_is_up(conn);
	ssize_t got;

	/* Words that it said before it heard our good-bye do not matter. */
	if (deaf)
		got = socket_recv(base->fd, tcp_queue_of(base)->scratch, TCP_SCRATCH_BYTES);
	else
		got = socket_recv(base->fd, conn->heard + conn->heard_length,
				  sizeof(conn->heard) - conn->heard_length);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (deaf) {
		if (got <= 0)
			control_end(base);
		return;
	}
	if (got <= 0) {
		/* It died. All that it could send is with libfabric, or lost. */
		queue_take_all(ofi_queue_of(conn));
		if (conn_is_up(conn))
			leave(conn, conn->packets_taken, 0);
		return;
	}
	conn->heard_length += (uint8_t)got;
	if (conn->heard_length == sizeof(conn->heard))
		understand(conn);
}

bool control_dispatch(struct ofi_queue *queue)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	int count = epoll_wait(queue->control_fd, events, EVENTS_AT_ONCE, 0);

	for (int i = 0; i < count; i++) {
		struct ofi_conn *conn = events[i].data.ptr;

		/* One before it may have closed it (queue_take_all). */
		if (conn->stream.fd >= 0)
			read_socket(conn);
	}
	return count > 0;
}

void control_settle(struct ofi_queue *queue)
{
	struct list *link = queue->leaving.next;

	while (link != &queue->leaving) {
		struct ofi_conn *conn = list_entry(link, struct ofi_conn, leaving_link);

		link = link->next;
		if (conn->packets_taken != conn->leave_packets && !clock_passed(conn->leave_ns))
			continue;
		list_remove(&conn->leaving_link);
		conn_fail(&conn->stream, RMR_DISCONNECTED);
	}
}

/* Says good-bye. */
static void say_bye(struct ofi_conn *conn)
{
	(void)control_say(conn, GREETING_BYE, conn->packets_sent);
	(void)shutdown(conn->stream.fd, SHUT_WR);
}

void control_hang_up(struct tcp_conn *base)
{
	if (base->fd >= 0)
		say_bye((struct ofi_conn *)base);
}

void control_part(struct tcp_conn *base)
{
	uint8_t rest[64];

	if (!base->discarding)
		say_bye((struct ofi_conn *)base);
	/* Closing a socket with unread bytes would reset the connection, good-bye and all. */
	(void)socket_recv(base->fd, rest, sizeof(rest));
}

void control_end(struct tcp_conn *base)
{
	struct ofi_conn *conn = (struct ofi_conn *)base;
	int fd = base->fd;

	packet_drop_strays(conn);
	control_forget(conn);
	lend_recall(base);
	if (fd >= 0)
		close(fd);
}
