/*
 * Connections: carrying works out, keeping those that must wait, ending.
 *
 * Most works are done before rmr_post returns. A message or an immediate waits when the ring is
 * full; then everything posted after it waits too, in one FIFO, so completions keep the order of
 * posting. A waiting work holds its region and its remote, which may be closed meanwhile.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "fabric/shm/internal.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

enum rmr_status shm_conn_prepare(struct shm_conn *conn, int *segment_fd)
{
	void *memory;
	enum rmr_status status;

	conn->socket = -1;
	conn->peer_pidfd = -1;
	conn->source.ready = shm_conn_ready;
	list_init(&conn->device_link);
	list_init(&conn->hot_link);
	list_init(&conn->mappings);
	status = key_random(&conn->my_secret);
	if (status != RMR_OK)
		return status;
	conn->pending = calloc(conn->base.options.depth, sizeof(*conn->pending));
	if (!conn->pending)
		return error_set(RMR_NO_MEMORY, "no memory for a connection's works");
	status = segment_create(sizeof(struct shm_segment), &memory, segment_fd);
	if (status != RMR_OK)
		return status;
	conn->mine = memory;
	return RMR_OK;
}

void shm_conn_introduce(struct shm_conn *conn, struct shm_packet *packet, enum packet_type type)
{
	*packet = (struct shm_packet){
		.type = (uint8_t)type,
		.private_length = conn->base.my_private_length,
		.ring_cells = RING_CELLS,
		.recv_size = conn->base.queue->options.recv_size,
		.max_regions = SHM_MAX_REGIONS,
		.secret = conn->my_secret,
	};
	memcpy(packet->private_data, conn->base.my_private, RMR_PRIVATE_MAX);
}

/* A pidfd of the process that connected, from the kernel (6.5 and later): good for peers in other
 * PID namespaces, too. -1: there is none. */
static int ask_pidfd(int socket)
{
	int pidfd = -1;
	socklen_t length = sizeof(pidfd);

	return getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0 ? pidfd : -1;
}

/* Opens a pidfd on the peer, and makes sure that it means the peer: the socket is looked at after,
 * and as the peer still holds its end, its number was not free to be reused. Without one (an old
 * kernel) the socket alone tells of its death. */
static enum rmr_status watch_process(struct shm_conn *conn, int socket)
{
	struct pollfd fd = {.fd = socket, .events = POLLRDHUP};

	if (conn->peer_pid > 0)
		conn->peer_pidfd = (int)syscall(SYS_pidfd_open, conn->peer_pid, 0);
	else
		conn->peer_pidfd = ask_pidfd(socket);
	if (conn->peer_pidfd >= 0 && poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP))) {
		/* Gone already, having said what it had to say; we shall find it in the ring. */
		close(conn->peer_pidfd);
		conn->peer_pidfd = -1;
	}
	if (conn->peer_pidfd < 0)
		return RMR_OK;
	return queue_watch(conn->base.queue, conn->peer_pidfd, EPOLLIN, &conn->source);
}

/* Out of the epoll set by hand: a descriptor that is closed here leaves it only when nobody else
 * holds the file behind it, and a forked child may. */
static void unwatch(struct shm_conn *conn)
{
	epoll_ctl(conn->base.queue->epoll_fd, EPOLL_CTL_DEL, conn->socket, NULL);
	if (conn->peer_pidfd >= 0)
		epoll_ctl(conn->base.queue->epoll_fd, EPOLL_CTL_DEL, conn->peer_pidfd, NULL);
}

enum rmr_status shm_conn_establish(struct shm_conn *conn, int socket,
				   const struct shm_packet *packet, const int fds[PACKET_FDS],
				   const struct packet_sender *sender)
{
	struct shm_device *device = (struct shm_device *)conn->base.queue->device;
	void *segment = NULL, *table = NULL;
	enum rmr_status status;

	status = segment_map(fds[0], sizeof(struct shm_segment), 0, &segment);
	if (status != RMR_OK)
		return status;
	conn->theirs = segment;
	status = segment_map(fds[1], packet->max_regions * sizeof(struct shm_table_entry), 0,
			     &table);
	if (status != RMR_OK)
		return status;
	conn->their_table = table;
	conn->their_regions = packet->max_regions;
	conn->writer =
		(struct ring_writer){.cells = conn->mine->ring, .reader_head = &conn->theirs->head};
	conn->reader =
		(struct ring_reader){.cells = conn->theirs->ring, .my_head = &conn->mine->head};
	conn->base.max_send =
		packet->recv_size < SHM_MAX_MESSAGE ? packet->recv_size : SHM_MAX_MESSAGE;
	conn->their_secret = packet->secret;
	conn->peer_pid = sender->pid;
	conn->peer_uid = sender->uid;
	status = watch_process(conn, socket);
	if (status == RMR_OK)
		status = queue_watch(conn->base.queue, socket, EPOLLIN | EPOLLRDHUP, &conn->source);
	if (status != RMR_OK)
		return status;
	conn->socket = socket;
	pthread_mutex_lock(&device->lock);
	list_add_tail(&device->conns, &conn->device_link);
	pthread_mutex_unlock(&device->lock);
	shm_conn_heat(conn);
	return RMR_OK;
}

static void drop_pending(struct shm_conn *conn)
{
	struct rmr_work *work = &conn->pending[conn->pending_head].work;

	if (work->region)
		region_drop(work->region);
	if (work->remote)
		remote_drop(work->remote);
	conn->pending_head = (conn->pending_head + 1) % conn->base.options.depth;
	conn->pending_count--;
}

void shm_conn_fini(struct rmr_conn *base)
{
	struct shm_conn *conn = (struct shm_conn *)base;
	struct shm_device *device = (struct shm_device *)base->queue->device;

	while (conn->pending_count > 0)
		drop_pending(conn);
	conn_forget(base);
	shm_conn_remove(conn);
	pthread_mutex_lock(&device->lock);
	list_remove(&conn->device_link);
	pthread_mutex_unlock(&device->lock);
	shm_drop_mappings(conn);
	unwatch(conn);
	if (conn->socket >= 0) {
		/* The peer sees the end, whoever else holds the socket. */
		shutdown(conn->socket, SHUT_RDWR);
		close(conn->socket);
	}
	if (conn->peer_pidfd >= 0)
		close(conn->peer_pidfd);
	segment_unmap(conn->mine, sizeof(*conn->mine));
	segment_unmap(conn->theirs, sizeof(*conn->theirs));
	segment_unmap(conn->their_table, conn->their_regions * sizeof(*conn->their_table));
	free(conn->pending);
	free(conn->granted);
	free(conn->assembly);
}

void shm_conn_abandon(struct rmr_conn *base)
{
	struct shm_conn *conn = (struct shm_conn *)base;

	list_for_each_safe (link, &conn->mappings) {
		struct shm_mapping *mapping = list_entry(link, struct shm_mapping, link);

		if (mapping->fd >= 0)
			close(mapping->fd);
		segment_unmap(mapping->memory, mapping->size);
	}
	segment_unmap(conn->mine, sizeof(*conn->mine));
	segment_unmap(conn->theirs, sizeof(*conn->theirs));
	segment_unmap(conn->their_table, conn->their_regions * sizeof(*conn->their_table));
	if (conn->socket >= 0)
		close(conn->socket);
	if (conn->peer_pidfd >= 0)
		close(conn->peer_pidfd);
}

void shm_conn_cancel(struct shm_conn *conn)
{
	while (conn->pending_count > 0) {
		const struct rmr_work work = conn->pending[conn->pending_head].work;

		drop_pending(conn);
		conn_completed(&conn->base, work.op, work.flags, work.cookie, 0, RMR_CANCELED);
	}
}

void shm_conn_end(struct shm_conn *conn, enum rmr_status status)
{
	shm_conn_cancel(conn);
	conn->peer_gone = true;
	unwatch(conn);
	shm_conn_remove(conn);
	conn_lost(&conn->base, status);
}

void shm_conn_break(struct shm_conn *conn, enum rmr_status status)
{
	struct shm_packet packet = {.type = PACKET_BYE, .status = status};

	if (conn->base.lost)
		return;
	(void)!packet_send(conn->socket, &packet, NULL);
	shutdown(conn->socket, SHUT_RDWR);
	shm_conn_end(conn, status);
}

/* Carries a work out as far as possible. RMR_AGAIN: the ring is full; progress is kept. */
static enum rmr_status carry_out(struct shm_conn *conn, struct shm_pending *progress,
				 const struct rmr_work *work)
{
	enum rmr_status status;

	switch (work->op) {
	case RMR_OP_SEND:
		conn->unannounced = true;
		return ring_write_message(&conn->writer, work->source, work->length,
					  &progress->sent, &progress->started)
			       ? RMR_OK
			       : RMR_AGAIN;
	case RMR_OP_WRITE_IMM:
		if (!progress->placed) {
			status = shm_access(conn, work);
			if (status != RMR_OK)
				return status;
			progress->placed = true;
		}
		conn->unannounced = true;
		return ring_write_immediate(&conn->writer, work->immediate, work->length)
			       ? RMR_OK
			       : RMR_AGAIN;
	default:
		return shm_access(conn, work);
	}
}

/* A work failed, and is completed so: the connection ends. */
static void fail(struct shm_conn *conn, enum rmr_status status)
{
	log_warn_limited("%s: an operation failed, the connection ends: %s", conn->base.peer,
			 rmr_status_text(status));
	shm_conn_break(conn, status);
}

/* Appends a work to those that wait. There is room: the FIFO is as deep as the connection. */
static struct shm_pending *append(struct shm_conn *conn, const struct rmr_work *work)
{
	uint32_t at = (conn->pending_head + conn->pending_count) % conn->base.options.depth;
	struct shm_pending *pending = &conn->pending[at];

	conn->pending_count++;
	pending->work = *work;
	pending->sent = 0;
	pending->started = pending->placed = false;
	if (work->flags & RMR_INLINE) {
		pending->work.region = NULL;
		if (work->length > 0)
			memcpy(pending->inline_data, work->local, work->length);
		pending->work.local = pending->inline_data;
	}
	if (work->op == RMR_OP_SEND)
		pending->work.remote = NULL;
	if (pending->work.length == 0)
		pending->work.region = NULL;
	if (pending->work.region)
		region_hold(pending->work.region);
	if (pending->work.remote)
		pending->work.remote->references++;
	return pending;
}

int shm_post(struct rmr_conn *base, const struct rmr_work *works, int count)
{
	struct shm_conn *conn = (struct shm_conn *)base;
	enum rmr_status failed = conn->peer_gone ? RMR_DISCONNECTED : RMR_OK;
	int taken = 0;

	while (taken < count && conn_room(base) > 0) {
		const struct rmr_work *work = &works[taken++];
		struct shm_pending progress;
		enum rmr_status status = RMR_AGAIN;

		base->outstanding++;
		progress.sent = 0;
		progress.started = progress.placed = false;
		if (failed != RMR_OK)
			status = RMR_CANCELED;
		else if (conn->pending_count == 0)
			status = carry_out(conn, &progress, work);
		if (status == RMR_AGAIN) {
			struct shm_pending *pending = append(conn, work);

			pending->sent = progress.sent;
			pending->started = progress.started;
			pending->placed = progress.placed;
			shm_conn_heat(conn);
			continue;
		}
		conn_completed(base, work->op, work->flags, work->cookie, work->length, status);
		if (failed == RMR_OK)
			failed = status;
	}
	if (failed != RMR_OK && !conn->peer_gone)
		fail(conn, failed);
	return taken;
}

void shm_conn_run_pending(struct shm_conn *conn)
{
	while (conn->pending_count > 0 && !conn->base.lost) {
		struct shm_pending *pending = &conn->pending[conn->pending_head];
		const struct rmr_work work = pending->work;
		enum rmr_status status;

		status = RMR_ACCESS;
		if (shm_enter_own(conn, work.region))
			status = carry_out(conn, pending, &pending->work);
		shm_leave_own(conn);
		if (status == RMR_AGAIN)
			break;
		drop_pending(conn);
		conn_completed(&conn->base, work.op, work.flags, work.cookie, work.length, status);
		if (status != RMR_OK)
			fail(conn, status);
	}
	shm_flush(&conn->base);
}
