/*
 * Calling a listener: connect, introduce ourselves, wait for the answer; all by the deadline.
 *
 * A listener that has too many callers leaves them in the kernel, and hangs up on those that have
 * said nothing for long, as a caller on a busy machine may. So one that was hung up on without an
 * answer calls again.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/shm/internal.h"

#define AGAIN_MS 10 /* between two calls, when the listener hung up */
/* A listener that hangs up within QUICK_MS, MAX_QUICK times in a row, is not busy: it is none of
 * ours. */
#define QUICK_MS  20
#define MAX_QUICK 8

static enum rmr_status connect_error(int errnum, const char *path)
{
	switch (errnum) {
	case ENOENT:
	case ECONNREFUSED:
		return error_set(RMR_REFUSED, "nobody listens at %s", path);
	case EACCES:
	case EPERM:
		return error_errno(RMR_DENIED, errnum,
				   "%s is another user's; run as that user, or have it listen with "
				   "socket_mode and any_user",
				   path);
	case EPROTOTYPE:
	case ENOTSOCK:
		return error_set(RMR_PROTOCOL, "something else listens at %s", path);
	default:
		return error_errno(RMR_REFUSED, errnum, "cannot connect to %s", path);
	}
}

/* A connected socket, or an error. A full backlog (EAGAIN) is waited out. */
static enum rmr_status open_socket(const char *path, uint64_t deadline_ns, int *out)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int on = 1, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot make a socket");
	memcpy(name.sun_path, path, strlen(path) + 1);
	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	while (connect(fd, (struct sockaddr *)&name, sizeof(name)) != 0) {
		int errnum = errno;

		if (errnum == EINTR)
			continue;
		if (errnum == EAGAIN && !clock_passed(deadline_ns)) {
			poll(NULL, 0, 2);
			continue;
		}
		close(fd);
		if (errnum == EAGAIN)
			return error_set(RMR_TIMEOUT, "too many callers wait at %s", path);
		return connect_error(errnum, path);
	}
	*out = fd;
	return RMR_OK;
}

/* Looks through all the places where the listener may be. The last one's failure is reported. */
static enum rmr_status find_listener(const char *address, uint64_t deadline_ns, int *fd)
{
	enum rmr_status status = RMR_REFUSED, next;
	char path[SHM_PATH_SIZE];

	for (unsigned i = 0;; i++) {
		next = shm_address_to_connect(address, i, path);
		if (next == RMR_AGAIN)
			return status;
		status = next == RMR_OK ? open_socket(path, deadline_ns, fd) : next;
		if (status != RMR_REFUSED && status != RMR_DENIED)
			return status;
	}
}

/* Waits for the listener's answer: ACCEPT or REJECT. */
static enum rmr_status await_answer(int fd, uint64_t deadline_ns, struct shm_packet *answer,
				    int fds[PACKET_FDS], struct packet_sender *sender)
{
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	enum rmr_status status;

	for (;;) {
		int wait_ms;

		status = packet_receive(fd, answer, fds, sender);
		if (status != RMR_AGAIN)
			break;
		wait_ms = clock_remaining_ms(deadline_ns);
		if (wait_ms == 0)
			return error_set(RMR_TIMEOUT, "no answer in time");
		(void)poll(&readable, 1, wait_ms);
	}
	if (status != RMR_OK)
		return status;
	if (answer->type == PACKET_REJECT) {
		/* Somebody else's words: they shall not play with the terminal. */
		for (char *c = answer->reason; *c; c++) {
			if ((unsigned char)*c < ' ' || *c == 127)
				*c = '?';
		}
		return error_set(RMR_REFUSED, "the listener said: %s", answer->reason);
	}
	if (answer->type != PACKET_ACCEPT) {
		packet_close_fds(fds);
		return error_set(RMR_PROTOCOL, "the listener answered something else");
	}
	return RMR_OK;
}

/* Calls once. RMR_DISCONNECTED: the listener hung up without an answer. */
static enum rmr_status call(struct shm_conn *conn, int fd, int segment_fd, uint64_t deadline_ns)
{
	struct rmr_conn *base = &conn->base;
	struct shm_device *device = (struct shm_device *)base->queue->device;
	struct packet_sender sender = {0};
	int fds[PACKET_FDS] = {-1, -1};
	struct shm_packet packet;
	enum rmr_status status;

	shm_conn_introduce(conn, &packet, PACKET_HELLO);
	status = packet_send(fd, &packet, (int[]){segment_fd, device->table_fd});
	/* What the listener said before it hung up may be there though it takes nothing. */
	if (status == RMR_OK || status == RMR_DISCONNECTED)
		status = await_answer(fd, deadline_ns, &packet, fds, &sender);
	if (status == RMR_OK) {
		snprintf(base->peer, sizeof(base->peer), "pid %d uid %u", sender.pid, sender.uid);
		status = shm_conn_establish(conn, fd, &packet, fds, &sender);
	}
	packet_close_fds(fds);
	if (status == RMR_OK) {
		base->peer_private_length = packet.private_length;
		memcpy(base->peer_private, packet.private_data, RMR_PRIVATE_MAX);
	}
	return status;
}

enum rmr_status shm_connect(struct rmr_conn *base, const char *address, uint64_t deadline_ns)
{
	struct shm_conn *conn = (struct shm_conn *)base;
	uint64_t quick_ns = clock_deadline_ns(QUICK_MS);
	int fd = -1, segment_fd = -1, quick = 0;
	enum rmr_status status = find_listener(address, deadline_ns, &fd);

	if (status != RMR_OK)
		return status;
	status = shm_conn_prepare(conn, &segment_fd);
	if (status == RMR_OK)
		status = call(conn, fd, segment_fd, deadline_ns);
	while (status == RMR_DISCONNECTED) {
		close(fd);
		fd = -1;
		quick = clock_passed(quick_ns) ? 0 : quick + 1;
		if (quick == MAX_QUICK || clock_passed(deadline_ns)) {
			status = error_set(RMR_REFUSED, "the listener hung up");
			break;
		}
		poll(NULL, 0, AGAIN_MS);
		quick_ns = clock_deadline_ns(QUICK_MS);
		status = find_listener(address, deadline_ns, &fd);
		if (status == RMR_OK)
			status = call(conn, fd, segment_fd, deadline_ns);
	}
	if (status != RMR_OK) {
		shm_conn_fini(base);
		if (fd >= 0)
			close(fd);
	}
	if (segment_fd >= 0)
		close(segment_fd);
	return status;
}
