/*
 * Listening: callers come, introduce themselves piece by piece, and are handed out.
 *
 *	socket --accept--> pending (bytes of its hello come in) --complete--> struct greeter_caller
 *	                      |
 *	                      +-- nonsense, end of file, or too slow: dropped, with a logged reason
 *
 * The listener's descriptor is an epoll set over the socket and all pending callers, so that a
 * program sleeps on one descriptor. Nothing here blocks and a caller costs a bounded time and
 * one struct pending; at most `backlog` of them are there, and while they are, further
 * callers wait in the kernel. When the process has no descriptor left, accepting pauses for a
 * moment instead of spinning on a caller who cannot be taken.
 *
 * Any thread may call; the greeter's own lock keeps them apart.
 */
#include "fabric/greeter.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/inet.h"

#define PAUSE_NS 100000000ull /* when no descriptor is left */

struct pending {
	struct list link;
	int fd;
	uint64_t deadline_ns;
	size_t have;
	char peer[64];
	uint8_t bytes[]; /* hello_size */
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
static enum rmr_status open_socket(struct greeter *greeter, const char *address)
{
	static const int families[] = {AF_INET6, AF_INET};
	struct addrinfo *list;
	enum rmr_status status = inet_resolve(address, true, &list);
	int error = EADDRNOTAVAIL;

	if (status != RMR_OK)
		return status;
	for (int i = 0; i < 2 && greeter->socket < 0; i++) {
		for (struct addrinfo *at = list; at && greeter->socket < 0; at = at->ai_next) {
			if (at->ai_family != families[i])
				continue;
			greeter->socket = listen_on(at, greeter->listener->options.backlog);
			/* A machine without IPv6 is no reason to complain. */
			if (greeter->socket < 0 && errno != EAFNOSUPPORT)
				error = errno;
			if (error == EADDRINUSE)
				break;
		}
		if (error == EADDRINUSE)
			break;
	}
	freeaddrinfo(list);
	if (greeter->socket >= 0)
		return RMR_OK;
	if (error == EADDRINUSE)
		return error_errno(RMR_ADDRESS_IN_USE, error,
				   "another program listens there; stop it, or take another "
				   "port (0 picks a free one)");
	if (error == EADDRNOTAVAIL)
		return error_errno(RMR_BAD_ADDRESS, error,
				   "this machine has no such address; '*:port' takes all it has");
	if (error == EACCES || error == EPERM)
		return error_errno(RMR_DENIED, error, "ports below 1024 need privileges");
	return error_errno(RMR_SYSTEM, error, "cannot listen");
}

static void watch_socket(struct greeter *greeter, bool on)
{
	struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.ptr = NULL};

	if (greeter->listening == on)
		return;
	(void)epoll_ctl(greeter->listener->fd, EPOLL_CTL_MOD, greeter->socket, &event);
	greeter->listening = on;
}

enum rmr_status greeter_init(struct greeter *greeter, struct rmr_listener *listener,
			     const struct greeter_language *language, const char *address)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
	enum rmr_status status;

	assert(language->hello_size <= GREETER_HELLO_MAX);
	*greeter = (struct greeter){.listener = listener, .language = language, .socket = -1};
	list_init(&greeter->pending);
	status = open_socket(greeter, address);
	if (status != RMR_OK)
		return status;
	listener->fd = epoll_create1(EPOLL_CLOEXEC);
	if (listener->fd < 0 ||
	    epoll_ctl(listener->fd, EPOLL_CTL_ADD, greeter->socket, &event) != 0) {
		status = error_errno(RMR_SYSTEM, errno, "cannot make an epoll set");
		if (listener->fd >= 0)
			close(listener->fd);
		close(greeter->socket);
		return status;
	}
	greeter->listening = true;
	pthread_mutex_init(&greeter->lock, NULL);
	inet_reachable(greeter->socket, listener->address, sizeof(listener->address));
	return RMR_OK;
}

/* Takes a caller off the list; the socket stays. */
static void forget_pending(struct greeter *greeter, struct pending *pending)
{
	(void)epoll_ctl(greeter->listener->fd, EPOLL_CTL_DEL, pending->fd, NULL);
	list_remove(&pending->link);
	greeter->pending_count--;
	free(pending);
}

static void drop_pending(struct greeter *greeter, struct pending *pending, const char *reason)
{
	int fd = pending->fd;

	log_warn_limited("%s: caller %s at %s dropped: %s", greeter->language->name, pending->peer,
			 greeter->listener->address, reason);
	forget_pending(greeter, pending);
	close(fd);
}

void greeter_fini(struct greeter *greeter)
{
	list_for_each_safe (link, &greeter->pending) {
		struct pending *pending = list_entry(link, struct pending, link);
		int fd = pending->fd;

		forget_pending(greeter, pending);
		close(fd);
	}
	close(greeter->listener->fd);
	close(greeter->socket);
	pthread_mutex_destroy(&greeter->lock);
}

/* Makes an accepted socket a pending caller. */
static void add_pending(struct greeter *greeter, int fd, const struct sockaddr *address,
			socklen_t length)
{
	struct pending *pending = calloc(1, sizeof(*pending) + greeter->language->hello_size);
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = pending};

	if (!pending || epoll_ctl(greeter->listener->fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		log_warn_limited("%s: a caller at %s dropped: no memory", greeter->language->name,
				 greeter->listener->address);
		free(pending);
		close(fd);
		return;
	}
	pending->fd = fd;
	pending->deadline_ns = clock_deadline_ns(greeter->listener->options.handshake_timeout_ms);
	inet_format(address, length, pending->peer, sizeof(pending->peer));
	list_add_tail(&greeter->pending, &pending->link);
	greeter->pending_count++;
}

static void accept_callers(struct greeter *greeter)
{
	while (greeter->pending_count < greeter->listener->options.backlog) {
		struct sockaddr_storage address;
		socklen_t length = sizeof(address);
		int fd = accept4(greeter->socket, (struct sockaddr *)&address, &length,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			add_pending(greeter, fd, (struct sockaddr *)&address, length);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			log_warn("%s: cannot take a caller at %s: %s; raise the limit (ulimit -n)",
				 greeter->language->name, greeter->listener->address,
				 strerror(errno));
			watch_socket(greeter, false);
			greeter->resume_ns = clock_now_ns() + PAUSE_NS;
			return;
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			return;
		} else if (errno != EINTR && errno != ECONNABORTED && errno != EPROTO) {
			log_debug("%s: accept at %s: %s", greeter->language->name,
				  greeter->listener->address, strerror(errno));
			return;
		}
	}
	watch_socket(greeter, false); /* until one of them is done */
}

/* Sends a refusal. What the caller sent beyond its hello is read away, as far as it is here:
 * closing a socket with unread bytes resets the connection, and the refusal may be lost. */
static void say_no(const struct greeter_language *language, int fd, const char *reason)
{
	uint8_t bytes[GREETER_REFUSAL_MAX], rest[512];
	size_t length = language->refuse(bytes, reason);

	(void)!send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)shutdown(fd, SHUT_WR);
	(void)!recv(fd, rest, sizeof(rest), MSG_DONTWAIT);
}

void greeter_refuse(const struct greeter_language *language, int fd, const char *reason)
{
	say_no(language, fd, reason);
	close(fd);
}

/* Reads on. True when the introduction is complete: then the caller is in `caller`. */
static bool read_pending(struct greeter *greeter, struct pending *pending,
			 struct greeter_caller *caller)
{
	const struct greeter_language *language = greeter->language;
	const char *reason = "unknown";
	ssize_t got = recv(pending->fd, pending->bytes + pending->have,
			   language->hello_size - pending->have, MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (got <= 0) {
		drop_pending(greeter, pending, got < 0 ? strerror(errno) : "hung up");
		return false;
	}
	pending->have += (size_t)got;
	switch (language->judge(pending->bytes, pending->have, &reason)) {
	case GREETER_MORE:
		assert(pending->have < language->hello_size);
		return false;
	case GREETER_OTHER_VERSION:
		say_no(language, pending->fd,
		       "the listener speaks another version of the protocol; use the same release "
		       "on both sides");
		drop_pending(greeter, pending, "speaks another version of the protocol");
		return false;
	case GREETER_BAD:
		drop_pending(greeter, pending, reason);
		return false;
	case GREETER_DONE:
		break;
	}
	assert(pending->have == language->hello_size);
	caller->fd = pending->fd;
	memcpy(caller->peer, pending->peer, sizeof(caller->peer));
	memcpy(caller->hello, pending->bytes, language->hello_size);
	forget_pending(greeter, pending);
	return true;
}

/* Drops who was silent for too long; returns when to look again. */
static int expire(struct greeter *greeter)
{
	uint64_t next_ns = greeter->resume_ns ? greeter->resume_ns : CLOCK_NEVER;

	while (!list_is_empty(&greeter->pending)) {
		struct pending *oldest = list_first_entry(&greeter->pending, struct pending, link);

		if (!clock_passed(oldest->deadline_ns)) {
			if (oldest->deadline_ns < next_ns)
				next_ns = oldest->deadline_ns;
			break;
		}
		drop_pending(greeter, oldest, "did not introduce itself in time");
	}
	return clock_remaining_ms(next_ns);
}

static enum rmr_status next_locked(struct greeter *greeter, struct greeter_caller *caller,
				   int *wait_ms)
{
	struct epoll_event events[32];
	int count;

	if (greeter->resume_ns && clock_passed(greeter->resume_ns))
		greeter->resume_ns = 0;
	if (!greeter->resume_ns && greeter->pending_count < greeter->listener->options.backlog)
		watch_socket(greeter, true);
	count = epoll_wait(greeter->listener->fd, events, 32, 0);
	/* Each pending caller has its own event, so what one drops is not another's. */
	for (int i = 0; i < count; i++) {
		if (events[i].data.ptr && read_pending(greeter, events[i].data.ptr, caller))
			return RMR_OK;
	}
	for (int i = 0; i < count; i++) {
		if (!events[i].data.ptr)
			accept_callers(greeter);
	}
	*wait_ms = expire(greeter);
	/* Some of those just accepted have surely said hello already: their events are next. */
	return RMR_AGAIN;
}

enum rmr_status greeter_next(struct greeter *greeter, struct greeter_caller *caller, int *wait_ms)
{
	enum rmr_status status;

	pthread_mutex_lock(&greeter->lock);
	status = next_locked(greeter, caller, wait_ms);
	if (status == RMR_AGAIN) /* callers accepted just now may have spoken */
		status = next_locked(greeter, caller, wait_ms);
	pthread_mutex_unlock(&greeter->lock);
	return status;
}
