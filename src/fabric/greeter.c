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
 * callers wait in the kernel, and silent ones get a fraction of their time. When the process has no
 * descriptor left, accepting pauses for a moment instead of spinning on a caller who cannot be
 * taken.
 *
 * A guest has no socket to watch: its pending callers come from its host, after the few bytes that
 * tell whose they are. The rest is still in their socket, so that the guest's epoll set notices
 * them.
 *
 * Any thread may call; the greeter's own lock keeps them apart.
 */
#include "fabric/greeter.h"

#include <errno.h>
#include <fcntl.h>
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

#define PAUSE_NS       100000000ull /* when no descriptor is left */
#define PATIENCE_PART  4	    /* of the time a silent caller has, while too many wait */
#define KERNEL_BACKLOG 1024	    /* callers that wait in the kernel, at least */

struct pending {
	struct list link;
	int fd;
	uint64_t deadline_ns;
	uint64_t patience_ns; /* the deadline while too many wait */
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
	int error = EADDRNOTAVAIL, backlog = greeter->listener->options.backlog;

	if (backlog < KERNEL_BACKLOG)
		backlog = KERNEL_BACKLOG;

	if (status != RMR_OK)
		return status;
	for (int i = 0; i < 2 && greeter->socket < 0; i++) {
		for (struct addrinfo *at = list; at && greeter->socket < 0; at = at->ai_next) {
			if (at->ai_family != families[i])
				continue;
			greeter->socket = listen_on(at, backlog);
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

	if (greeter->listening == on || greeter->host)
		return;
	(void)epoll_ctl(greeter->listener->fd, EPOLL_CTL_MOD, greeter->socket, &event);
	greeter->listening = on;
}

static enum rmr_status join_host(struct greeter *greeter, struct greeter *host)
{
	if (!host || host->host || host->language == greeter->language)
		return error_set(RMR_INVALID, "%s cannot listen beside that listener",
				 greeter->language->name);
	greeter->socket = fcntl(host->socket, F_DUPFD_CLOEXEC, 0);
	if (greeter->socket < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot share a listener's socket");
	greeter->host = host;
	return RMR_OK;
}

/* Makes a guest one to whom callers are handed; or makes an end of it. False: there is one
 * already. */
static bool set_guest(struct greeter *host, struct greeter *guest)
{
	bool is_free;

	pthread_mutex_lock(&host->lock);
	is_free = !guest || !host->guest;
	if (is_free)
		host->guest = guest;
	pthread_mutex_unlock(&host->lock);
	return is_free;
}

/* Closes what greeter_init has opened, and returns the status. */
static enum rmr_status undo_init(struct greeter *greeter, enum rmr_status status)
{
	if (greeter->listener->fd >= 0)
		close(greeter->listener->fd);
	close(greeter->socket);
	return status;
}

enum rmr_status greeter_init(struct greeter *greeter, struct rmr_listener *listener,
			     const struct greeter_language *language, const char *address)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
	enum rmr_status status;

	assert(language->hello_size <= GREETER_HELLO_MAX);
	assert(language->hello_size > GREETER_TELLING);
	*greeter = (struct greeter){.listener = listener, .language = language, .socket = -1};
	list_init(&greeter->pending);
	status = listener->options.beside ? join_host(greeter, listener->options.beside->greeter)
					  : open_socket(greeter, address);
	if (status != RMR_OK)
		return status;
	listener->fd = epoll_create1(EPOLL_CLOEXEC);
	if (listener->fd < 0 || (!greeter->host && epoll_ctl(listener->fd, EPOLL_CTL_ADD,
							     greeter->socket, &event) != 0))
		return undo_init(greeter, error_errno(RMR_SYSTEM, errno, "no epoll set"));
	greeter->listening = !greeter->host;
	pthread_mutex_init(&greeter->lock, NULL);
	if (greeter->host && !set_guest(greeter->host, greeter)) {
		pthread_mutex_destroy(&greeter->lock);
		return undo_init(greeter, error_set(RMR_ADDRESS_IN_USE,
						    "two listeners share that port already"));
	}
	listener->greeter = greeter;
	inet_reachable(greeter->socket, listener->address, sizeof(listener->address));
	return RMR_OK;
}

/* Takes a caller off the list; the socket stays. */
static void detach_pending(struct greeter *greeter, struct pending *pending)
{
	(void)epoll_ctl(greeter->listener->fd, EPOLL_CTL_DEL, pending->fd, NULL);
	list_remove(&pending->link);
	greeter->pending_count--;
}

static void forget_pending(struct greeter *greeter, struct pending *pending)
{
	detach_pending(greeter, pending);
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
	/* Nobody hands anybody over any more. */
	if (greeter->host)
		(void)set_guest(greeter->host, NULL);
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

/* Makes a socket a pending caller. NULL: there is no memory, and it is closed. */
static struct pending *add_pending(struct greeter *greeter, int fd)
{
	struct pending *pending = calloc(1, sizeof(*pending) + greeter->language->hello_size);
	int timeout_ms = greeter->listener->options.handshake_timeout_ms;
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = pending};

	if (!pending || epoll_ctl(greeter->listener->fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		log_warn_limited("%s: a caller at %s dropped: no memory", greeter->language->name,
				 greeter->listener->address);
		free(pending);
		close(fd);
		return NULL;
	}
	pending->fd = fd;
	pending->deadline_ns = clock_deadline_ns(timeout_ms);
	pending->patience_ns = clock_deadline_ns(timeout_ms / PATIENCE_PART);
	list_add_tail(&greeter->pending, &pending->link);
	greeter->pending_count++;
	return pending;
}

static void accept_callers(struct greeter *greeter)
{
	while (greeter->pending_count < greeter->listener->options.backlog) {
		struct sockaddr_storage address;
		socklen_t length = sizeof(address);
		int fd = accept4(greeter->socket, (struct sockaddr *)&address, &length,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			struct pending *pending = add_pending(greeter, fd);

			if (pending)
				inet_format((struct sockaddr *)&address, length, pending->peer,
					    sizeof(pending->peer));
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			log_warn_limited(
				"%s: cannot take a caller at %s: %s; raise the limit (ulimit -n)",
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

/* To the guest, if it is one of its callers. */
static bool hand_over(struct greeter *greeter, struct pending *pending)
{
	struct greeter *guest = greeter->guest;
	struct pending *handed;
	const char *reason;

	if (!guest || pending->have > GREETER_TELLING ||
	    guest->language->judge(pending->bytes, pending->have, &reason) == GREETER_BAD)
		return false;
	pthread_mutex_lock(&guest->lock);
	/* Its own limit; beyond it callers are dropped, as nobody else can keep them. */
	if (guest->pending_count >= guest->listener->options.backlog) {
		pthread_mutex_unlock(&guest->lock);
		return false;
	}
	detach_pending(greeter, pending);
	handed = add_pending(guest, pending->fd);
	if (handed) {
		handed->have = pending->have;
		memcpy(handed->bytes, pending->bytes, pending->have);
		memcpy(handed->peer, pending->peer, sizeof(handed->peer));
	}
	pthread_mutex_unlock(&guest->lock);
	free(pending);
	return true;
}

/* How much to read next. With a guest no more than tells whose it is: the rest is to be read by
 * whoever that is. */
static size_t wanted_bytes(const struct greeter *greeter, const struct pending *pending)
{
	size_t most = greeter->language->hello_size;

	if (greeter->guest && pending->have < GREETER_TELLING)
		most = GREETER_TELLING;
	return most - pending->have;
}

/* Reads on. True when the introduction is complete: then the caller is in `caller`. */
static bool read_pending(struct greeter *greeter, struct pending *pending,
			 struct greeter_caller *caller)
{
	const struct greeter_language *language = greeter->language;
	const char *reason = "unknown";
	ssize_t got = recv(pending->fd, pending->bytes + pending->have,
			   wanted_bytes(greeter, pending), MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (got == 0 && pending->have == 0) {
		int fd = pending->fd;

		/* Somebody who only looked whether the port is open. */
		log_debug("%s: caller %s said nothing", language->name, pending->peer);
		forget_pending(greeter, pending);
		close(fd);
		return false;
	}
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
		if (!hand_over(greeter, pending))
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
		bool is_full = greeter->pending_count >= greeter->listener->options.backlog;
		uint64_t deadline_ns = is_full ? oldest->patience_ns : oldest->deadline_ns;

		if (!clock_passed(deadline_ns)) {
			if (deadline_ns < next_ns)
				next_ns = deadline_ns;
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
