/*
 * Connecting: resolve, connect to one of the addresses, say HELLO, read the answer.
 *
 * Runs in the caller's thread, which waits; nothing of the queue is touched before conn_open.
 * One deadline covers all steps but the resolution of a name. If a name has several addresses
 * each gets its share of the time left, so that a dead one cannot use it all up.
 *
 * What can go wrong is told apart, because people do different things about it: nobody listens
 * (REFUSED), nobody answers (TIMEOUT), the name is wrong (BAD_ADDRESS), it is somebody else
 * (PROTOCOL).
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/tcp/internal.h"

/* Waits until the socket is ready, or the deadline comes. */
static enum rmr_status await(int fd, short events, uint64_t deadline_ns, const char *what)
{
	struct pollfd pollfd = {.fd = fd, .events = events};

	for (;;) {
		int ready = poll(&pollfd, 1, clock_remaining_ms(deadline_ns));

		if (ready > 0)
			return RMR_OK;
		if (ready < 0 && errno != EINTR)
			return error_errno(RMR_SYSTEM, errno, "cannot wait for a socket");
		if (ready == 0 && clock_passed(deadline_ns))
			return error_set(RMR_TIMEOUT,
					 "no answer %s; is the host up, does a firewall let "
					 "the port through, and is it a Remora that has time?",
					 what);
	}
}

/* A socket that asks a local port where nobody listens may be given just that port as its own, and
 * then finds itself. */
static bool is_own_echo(int fd)
{
	struct sockaddr_storage a = {0}, b = {0};
	socklen_t a_length = sizeof(a), b_length = sizeof(b);

	return getsockname(fd, (struct sockaddr *)&a, &a_length) == 0 &&
	       getpeername(fd, (struct sockaddr *)&b, &b_length) == 0 && a_length == b_length &&
	       memcmp(&a, &b, a_length) == 0;
}

static enum rmr_status connect_error(int error)
{
	if (error == ECONNREFUSED)
		return error_errno(RMR_REFUSED, error, "nobody listens there; is it running?");
	if (error == ETIMEDOUT)
		return error_errno(RMR_TIMEOUT, error, "the host does not answer");
	if (error == EHOSTUNREACH || error == ENETUNREACH || error == EADDRNOTAVAIL)
		return error_errno(RMR_REFUSED, error, "no way to that host from here");
	return error_errno(RMR_SYSTEM, error, "cannot connect");
}

/* Connects a socket to one address. */
static enum rmr_status connect_one(const struct addrinfo *at, uint64_t deadline_ns, int *out)
{
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	enum rmr_status status = RMR_OK;
	socklen_t length = sizeof(int);
	int error = 0;

	if (fd < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot make a socket");
	if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
		error = errno;
		if (error == EINPROGRESS || error == EINTR) {
			status = await(fd, POLLOUT, deadline_ns, "from the host");
			if (status == RMR_OK)
				(void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
			else
				error = 0;
		}
	}
	if (status == RMR_OK && error == 0 && is_own_echo(fd))
		error = ECONNREFUSED;
	if (error != 0)
		status = connect_error(error);
	if (status != RMR_OK) {
		close(fd);
		return status;
	}
	*out = fd;
	return RMR_OK;
}

static enum rmr_status connect_any(const char *address, uint64_t deadline_ns, int *fd)
{
	struct addrinfo *list;
	enum rmr_status status = address_resolve(address, false, &list);
	unsigned left = 0;

	if (status != RMR_OK)
		return status;
	for (struct addrinfo *at = list; at; at = at->ai_next)
		left++;
	for (struct addrinfo *at = list; at; at = at->ai_next, left--) {
		uint64_t now_ns = clock_now_ns(), until_ns = deadline_ns;

		if (deadline_ns != CLOCK_NEVER && now_ns < deadline_ns)
			until_ns = now_ns + (deadline_ns - now_ns) / left;
		status = connect_one(at, until_ns, fd);
		if (status == RMR_OK)
			break;
	}
	freeaddrinfo(list);
	return status;
}

static enum rmr_status say_hello(struct tcp_conn *conn, int fd)
{
	uint8_t bytes[HANDSHAKE_SIZE];

	conn_greeting(conn, HANDSHAKE_HELLO, bytes);
	/* The buffer of a fresh socket takes 128 bytes. */
	if (send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) != sizeof(bytes))
		return error_errno(RMR_REFUSED, errno, "the listener hung up");
	return RMR_OK;
}

/* Reads the listener's answer, and no byte of the frames that may follow it. */
static enum rmr_status hear_answer(int fd, uint64_t deadline_ns, struct handshake *answer)
{
	uint8_t bytes[HANDSHAKE_SIZE];
	size_t have = 0;

	for (;;) {
		const char *reason;
		enum rmr_status status = await(fd, POLLIN, deadline_ns, "from the listener");
		ssize_t got;

		if (status != RMR_OK)
			return status;
		got = recv(fd, bytes + have, sizeof(bytes) - have, 0);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (got <= 0)
			return error_errno(RMR_REFUSED, got < 0 ? errno : ECONNRESET,
					   "the listener hung up without an answer; its log may "
					   "say why, or it is no Remora");
		have += (size_t)got;
		switch (handshake_decode(bytes, have, answer, &reason)) {
		case HANDSHAKE_MORE:
			continue;
		case HANDSHAKE_DONE:
			return RMR_OK;
		case HANDSHAKE_VERSION_DIFFERS:
			return error_set(RMR_PROTOCOL,
					 "the listener speaks version %u, we speak %u; use the "
					 "same release on both sides",
					 answer->version, HANDSHAKE_VERSION);
		case HANDSHAKE_BAD:
			return error_set(RMR_PROTOCOL, "%s: something else listens at this port",
					 reason);
		}
	}
}

static enum rmr_status shake_hands(struct tcp_conn *conn, int fd, uint64_t deadline_ns)
{
	struct handshake answer;
	enum rmr_status status = say_hello(conn, fd);

	if (status == RMR_OK)
		status = hear_answer(fd, deadline_ns, &answer);
	if (status != RMR_OK)
		return status;
	for (int i = 0; i < answer.body_length && answer.kind == HANDSHAKE_REJECT; i++) {
		if (answer.body[i] < ' ' || answer.body[i] > '~')
			answer.body[i] = '?'; /* a stranger's text goes to somebody's terminal */
	}
	if (answer.kind == HANDSHAKE_REJECT)
		return error_set(RMR_REFUSED, "the listener said no: %.*s", answer.body_length,
				 (const char *)answer.body);
	if (answer.kind != HANDSHAKE_ACCEPT)
		return error_set(RMR_PROTOCOL, "a greeting instead of an answer");
	memcpy(conn->base.peer_private, answer.body, answer.body_length);
	conn->base.peer_private_length = answer.body_length;
	return conn_open(conn, fd, &answer);
}

enum rmr_status tcp_connect(struct rmr_conn *base, const char *address, uint64_t deadline_ns)
{
	struct tcp_conn *conn = (struct tcp_conn *)base;
	struct sockaddr_storage peer;
	socklen_t length = sizeof(peer);
	enum rmr_status status;
	int fd = -1;

	status = connect_any(address, deadline_ns, &fd);
	if (status != RMR_OK)
		return status;
	if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0)
		address_format((struct sockaddr *)&peer, length, base->peer, sizeof(base->peer));
	status = shake_hands(conn, fd, deadline_ns);
	if (status != RMR_OK)
		close(fd);
	return status;
}
