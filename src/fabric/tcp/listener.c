/*
 * Listening: callers come, introduce themselves piece by piece, and are handed out.
 *
 *	socket --accept--> pending (bytes of its HELLO come in) --complete--> struct tcp_request
 *	                      |
 *	                      +-- nonsense, end of file, or too slow: dropped, with a logged reason
 *
 * The listener's descriptor is an epoll set over the socket and all pending callers, so that a
 * program sleeps on one descriptor. Nothing here blocks and a caller costs a bounded time and
 * one struct tcp_pending; at most `backlog` of them are there, and while they are, further
 * callers wait in the kernel. When the process has no descriptor left, accepting pauses for a
 * moment instead of spinning on a caller who cannot be taken.
 *
 * Any thread may call; the listener's own lock keeps them apart.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/tcp/internal.h"

#define PAUSE_NS 100000000ull /* when no descriptor is left */

struct tcp_pending {
	struct list link;
	int fd;
	uint64_t deadline_ns;
	uint32_t have;
	uint8_t bytes[HANDSHAKE_SIZE];
	char peer[64];
};

static int listen_on(const struct addrinfo *at, int backlog)
{
	int one = 1, zero = 0, saved;
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (at->ai_family == AF_INET6) /* "*" means IPv4 too */
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, backlog) == 0)
		return fd;
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

/* Tries the addresses until one works, those of IPv6 first: the wildcard of IPv6 serves both. */
static enum rmr_status open_socket(struct tcp_listener *listener, const char *address)
{
	static const int families[] = {AF_INET6, AF_INET};
	struct addrinfo *list;
	enum rmr_status status = address_resolve(address, true, &list);
	int error = EADDRNOTAVAIL;

	if (status != RMR_OK)
		return status;
	for (int i = 0; i < 2 && listener->socket < 0; i++) {
		for (struct addrinfo *at = list; at && listener->socket < 0; at = at->ai_next) {
			if (at->ai_family != families[i])
				continue;
			listener->socket = listen_on(at, listener->base.options.backlog);
			/* A machine without IPv6 is no reason to complain. */
			if (listener->socket < 0 && errno != EAFNOSUPPORT)
				error = errno;
			if (error == EADDRINUSE)
				break;
		}
		if (error == EADDRINUSE)
			break;
	}
	freeaddrinfo(list);
	if (listener->socket >= 0)
		return RMR_OK;
	if (error == EADDRINUSE)
		return error_errno(RMR_ADDRESS_IN_USE, error, "another program listens there");
	if (error == EADDRNOTAVAIL)
		return error_errno(RMR_BAD_ADDRESS, error,
				   "this machine has no such address; '*:port' takes all it has");
	if (error == EACCES || error == EPERM)
		return error_errno(RMR_DENIED, error, "ports below 1024 need privileges");
	return error_errno(RMR_SYSTEM, error, "cannot listen");
}

static void watch_socket(struct tcp_listener *listener, bool on)
{
	struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.ptr = NULL};

	if (listener->listening == on)
		return;
	(void)epoll_ctl(listener->base.fd, EPOLL_CTL_MOD, listener->socket, &event);
	listener->listening = on;
}

enum rmr_status tcp_listener_init(struct rmr_listener *base, const char *address)
{
	struct tcp_listener *listener = (struct tcp_listener *)base;
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
	enum rmr_status status;

	listener->socket = -1;
	list_init(&listener->pending);
	status = open_socket(listener, address);
	if (status != RMR_OK)
		return status;
	base->fd = epoll_create1(EPOLL_CLOEXEC);
	if (base->fd < 0 || epoll_ctl(base->fd, EPOLL_CTL_ADD, listener->socket, &event) != 0) {
		status = error_errno(RMR_SYSTEM, errno, "cannot make an epoll set");
		if (base->fd >= 0)
			close(base->fd);
		close(listener->socket);
		return status;
	}
	listener->listening = true;
	pthread_mutex_init(&listener->lock, NULL);
	address_reachable(listener->socket, base->address, sizeof(base->address));
	return RMR_OK;
}

/* Takes a caller off the list; the socket stays. */
static void forget_pending(struct tcp_listener *listener, struct tcp_pending *pending)
{
	(void)epoll_ctl(listener->base.fd, EPOLL_CTL_DEL, pending->fd, NULL);
	list_remove(&pending->link);
	listener->pending_count--;
	free(pending);
}

static void drop_pending(struct tcp_listener *listener, struct tcp_pending *pending,
			 const char *reason)
{
	int fd = pending->fd;

	log_warn("tcp: caller %s at %s dropped: %s", pending->peer, listener->base.address, reason);
	forget_pending(listener, pending);
	close(fd);
}

void tcp_listener_fini(struct rmr_listener *base)
{
	struct tcp_listener *listener = (struct tcp_listener *)base;

	list_for_each_safe (link, &listener->pending) {
		struct tcp_pending *pending = list_entry(link, struct tcp_pending, link);
		int fd = pending->fd;

		forget_pending(listener, pending);
		close(fd);
	}
	close(base->fd);
	close(listener->socket);
	pthread_mutex_destroy(&listener->lock);
}

/* Makes an accepted socket a pending caller. */
static void add_pending(struct tcp_listener *listener, int fd, const struct sockaddr *address,
			socklen_t length)
{
	struct tcp_pending *pending = calloc(1, sizeof(*pending));
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = pending};

	if (!pending || epoll_ctl(listener->base.fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		log_warn("tcp: a caller at %s dropped: no memory", listener->base.address);
		free(pending);
		close(fd);
		return;
	}
	pending->fd = fd;
	pending->deadline_ns = clock_deadline_ns(listener->base.options.handshake_timeout_ms);
	address_format(address, length, pending->peer, sizeof(pending->peer));
	list_add_tail(&listener->pending, &pending->link);
	listener->pending_count++;
}

static void accept_callers(struct tcp_listener *listener)
{
	while (listener->pending_count < listener->base.options.backlog) {
		struct sockaddr_storage address;
		socklen_t length = sizeof(address);
		int fd = accept4(listener->socket, (struct sockaddr *)&address, &length,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			add_pending(listener, fd, (struct sockaddr *)&address, length);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			log_warn("tcp: cannot take a caller at %s: %s; raise the limit (ulimit -n)",
				 listener->base.address, strerror(errno));
			watch_socket(listener, false);
			listener->resume_ns = clock_now_ns() + PAUSE_NS;
			return;
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			return;
		} else if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) {
			log_debug("tcp: accept at %s: %s", listener->base.address, strerror(errno));
			return;
		}
	}
	watch_socket(listener, false); /* until one of them is done */
}

static void answer_other_version(struct tcp_listener *listener, struct tcp_pending *pending)
{
	uint8_t bytes[HANDSHAKE_SIZE];

	handshake_encode_reject(bytes, "the listener speaks another version of the protocol; "
				       "use the same release on both sides");
	(void)!send(pending->fd, bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
	drop_pending(listener, pending, "speaks another version of the protocol");
}

/* Reads on. True when the introduction is complete: then the caller is in request. */
static bool read_pending(struct tcp_listener *listener, struct tcp_pending *pending,
			 struct tcp_request *request)
{
	const char *reason = NULL;
	ssize_t got = recv(pending->fd, pending->bytes + pending->have,
			   sizeof(pending->bytes) - pending->have, MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (got <= 0) {
		drop_pending(listener, pending, got < 0 ? strerror(errno) : "hung up");
		return false;
	}
	pending->have += (uint32_t)got;
	switch (handshake_decode(pending->bytes, pending->have, &request->hello, &reason)) {
	case HANDSHAKE_MORE:
		return false;
	case HANDSHAKE_VERSION_DIFFERS:
		answer_other_version(listener, pending);
		return false;
	case HANDSHAKE_BAD:
		drop_pending(listener, pending, reason);
		return false;
	case HANDSHAKE_DONE:
		break;
	}
	if (request->hello.kind != HANDSHAKE_HELLO) {
		drop_pending(listener, pending, "an answer instead of a greeting");
		return false;
	}
	request->fd = pending->fd;
	memcpy(request->base.peer, pending->peer, sizeof(request->base.peer));
	request->base.private_length = request->hello.body_length;
	memcpy(request->base.private_data, request->hello.body, request->hello.body_length);
	forget_pending(listener, pending);
	return true;
}

/* Drops who was silent for too long; returns when to look again. */
static int expire(struct tcp_listener *listener)
{
	uint64_t next_ns = listener->resume_ns ? listener->resume_ns : CLOCK_NEVER;

	while (!list_is_empty(&listener->pending)) {
		struct tcp_pending *oldest =
			list_first_entry(&listener->pending, struct tcp_pending, link);

		if (!clock_passed(oldest->deadline_ns)) {
			if (oldest->deadline_ns < next_ns)
				next_ns = oldest->deadline_ns;
			break;
		}
		drop_pending(listener, oldest, "did not introduce itself in time");
	}
	return clock_remaining_ms(next_ns);
}

static enum rmr_status next_locked(struct tcp_listener *listener, struct tcp_request *request,
				   int *wait_ms)
{
	struct epoll_event events[32];
	int count;

	if (listener->resume_ns && clock_passed(listener->resume_ns))
		listener->resume_ns = 0;
	if (!listener->resume_ns && listener->pending_count < listener->base.options.backlog)
		watch_socket(listener, true);
	count = epoll_wait(listener->base.fd, events, 32, 0);
	/* Each pending caller has its own event, so what one drops is not another's. */
	for (int i = 0; i < count; i++) {
		if (events[i].data.ptr && read_pending(listener, events[i].data.ptr, request))
			return RMR_OK;
	}
	for (int i = 0; i < count; i++) {
		if (!events[i].data.ptr)
			accept_callers(listener);
	}
	*wait_ms = expire(listener);
	/* Some of those just accepted have surely said hello already: their events are next. */
	return RMR_AGAIN;
}

enum rmr_status tcp_listener_next(struct rmr_listener *base, struct rmr_request *request,
				  int *wait_ms)
{
	struct tcp_listener *listener = (struct tcp_listener *)base;
	enum rmr_status status;

	pthread_mutex_lock(&listener->lock);
	status = next_locked(listener, (struct tcp_request *)request, wait_ms);
	if (status == RMR_AGAIN) /* callers accepted just now may have spoken */
		status = next_locked(listener, (struct tcp_request *)request, wait_ms);
	pthread_mutex_unlock(&listener->lock);
	return status;
}

void tcp_reject(struct rmr_request *base, const char *reason)
{
	struct tcp_request *request = (struct tcp_request *)base;
	uint8_t bytes[HANDSHAKE_SIZE];

	handshake_encode_reject(bytes, reason ? reason : "");
	(void)!send(request->fd, bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
	close(request->fd);
	request->fd = -1;
}
