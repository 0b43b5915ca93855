/*
 * Listening and accepting.
 *
 * A listener holds a lock on PATH.lock as long as it lives; the kernel lets go of it when the
 * process dies, however it dies. So whoever gets the lock knows that a socket file found at PATH
 * is a dead process's, and removes it; whoever does not get it, is told that the address is in use.
 *
 * Callers that have connected but not yet introduced themselves wait in a list of at most
 * `backlog`, each with a deadline. While the list is full further callers wait in the kernel, and
 * silent ones get less time: an honest caller speaks at once, so that silent ones hold up others
 * for a fraction of the deadline only. A caller that was dropped though it meant well was hung up
 * on, and calls again (connect.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/shm/internal.h"
#include "fabric/shm_directory.h"

#define LOCK_ATTEMPTS  20
#define LOCK_PAUSE_NS  1000000
#define PAUSE_MS       100  /* before accepting again, when there was no descriptor free */
#define PATIENCE_PART  4    /* of the deadline: what a silent caller has while the list is full */
#define KERNEL_BACKLOG 1024 /* callers that wait in the kernel, at least */

struct shm_caller {
	struct list link;
	int socket;
	uint64_t deadline_ns;
	uint64_t patience_ns; /* the deadline while the list is full */
};

/* Takes the lock beside the socket. The file may be unlinked by its last owner between our open and
 * our flock; then the name means another file, and we try again. So we do for a moment when it is
 * held: another listener that starts looks whether the socket is a dead one's. */
static enum rmr_status take_lock(struct shm_listener *listener)
{
	char path[SHM_PATH_SIZE + 8];
	struct stat named, opened;

	snprintf(path, sizeof(path), "%s.lock", listener->path);
	for (int attempt = 0; attempt < 100; attempt++) {
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

		if (fd < 0)
			return error_errno(errno == ENOENT ? RMR_BAD_ADDRESS : RMR_DENIED, errno,
					   "cannot open %s", path);
		if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
			close(fd);
			if (attempt < LOCK_ATTEMPTS) {
				nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
				continue;
			}
			return error_set(RMR_ADDRESS_IN_USE, "another process listens at %s",
					 listener->path);
		}
		if (fstat(fd, &opened) == 0 && stat(path, &named) == 0 &&
		    opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
			listener->lock_fd = fd;
			return RMR_OK;
		}
		close(fd);
	}
	return error_set(RMR_ADDRESS_IN_USE, "others keep taking %s", path);
}

static void release_lock(struct shm_listener *listener)
{
	char path[SHM_PATH_SIZE + 8];

	snprintf(path, sizeof(path), "%s.lock", listener->path);
	unlink(path); /* while we still hold it */
	close(listener->lock_fd);
}

/* Removes a socket file that nobody listens at. We hold the lock, so it is not one of ours; but it
 * might be another program's, or no socket at all. */
static enum rmr_status remove_stale(const struct shm_listener *listener,
				    const struct sockaddr_un *name)
{
	struct stat stat;
	int probe, result;

	if (lstat(listener->path, &stat) != 0)
		return RMR_OK;
	if (!S_ISSOCK(stat.st_mode))
		return error_set(RMR_ADDRESS_IN_USE, "%s exists and is not a socket",
				 listener->path);
	probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	result = connect(probe, (const struct sockaddr *)name, sizeof(*name));
	if (result != 0 && errno == ECONNREFUSED)
		result = unlink(listener->path) == 0 || errno == ENOENT;
	else
		result = 0;
	close(probe);
	if (!result)
		return error_set(RMR_ADDRESS_IN_USE, "another program listens at %s",
				 listener->path);
	log_info("removed %s, left behind by a process that died", listener->path);
	return RMR_OK;
}

static enum rmr_status bind_socket(struct shm_listener *listener)
{
	int backlog = listener->base.options.backlog;
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	enum rmr_status status;
	int on = 1;

	memcpy(name.sun_path, listener->path, strlen(listener->path) + 1);
	status = remove_stale(listener, &name);
	if (status != RMR_OK)
		return status;
	listener->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->socket < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot make a socket");
	/* Accepted sockets inherit it: the kernel then says who sent a packet. */
	setsockopt(listener->socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	if (bind(listener->socket, (struct sockaddr *)&name, sizeof(name)) != 0) {
		status = error_errno(errno == EADDRINUSE ? RMR_ADDRESS_IN_USE : RMR_DENIED, errno,
				     "cannot bind %s", listener->path);
		goto close_socket;
	}
	/* The mode is right before anyone can connect, as that takes listen. */
	if (chmod(listener->path, listener->base.options.socket_mode) != 0 ||
	    listen(listener->socket, backlog > KERNEL_BACKLOG ? backlog : KERNEL_BACKLOG) != 0) {
		status = error_errno(RMR_SYSTEM, errno, "cannot listen at %s", listener->path);
		unlink(listener->path);
		goto close_socket;
	}
	return RMR_OK;

close_socket:
	close(listener->socket);
	return status;
}

static bool watch(struct shm_listener *listener, int fd)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};

	return epoll_ctl(listener->base.fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Whether a caller in the kernel makes the listener's descriptor readable. */
static bool watch_socket(struct shm_listener *listener, bool on)
{
	struct epoll_event event = {.events = on ? EPOLLIN : 0};

	if (listener->listening != on &&
	    epoll_ctl(listener->base.fd, EPOLL_CTL_MOD, listener->socket, &event) != 0)
		return false;
	listener->listening = on;
	return true;
}

/* Removes what killed listeners left beside our own socket. */
static void sweep(const char *path)
{
	char directory[SHM_PATH_SIZE], first[SHM_PATH_SIZE];
	unsigned count;

	snprintf(directory, sizeof(directory), "%.*s", (int)(strrchr(path, '/') - path), path);
	count = shm_directory_stale(directory, true, first, sizeof(first));
	if (count)
		log_info("removed %s%s, left behind by processes that died", first,
			 count > 1 ? " and others" : "");
}

enum rmr_status shm_listener_init(struct rmr_listener *base, const char *address)
{
	struct shm_listener *listener = (struct shm_listener *)base;
	enum rmr_status status = shm_address_to_listen(address, listener->path);

	if (status != RMR_OK)
		return status;
	list_init(&listener->callers);
	pthread_mutex_init(&listener->lock, NULL);
	snprintf(base->address, sizeof(base->address), "%s", listener->path);
	status = take_lock(listener);
	if (status != RMR_OK)
		return status;
	status = bind_socket(listener);
	if (status != RMR_OK)
		goto release;
	if (!strchr(address, '/'))
		sweep(listener->path);
	base->fd = epoll_create1(EPOLL_CLOEXEC);
	if (base->fd < 0 || !watch(listener, listener->socket)) {
		status = error_errno(RMR_SYSTEM, errno, "cannot watch a socket");
		goto close_all;
	}
	listener->listening = true;
	return RMR_OK;

close_all:
	if (base->fd >= 0)
		close(base->fd);
	unlink(listener->path);
	close(listener->socket);
release:
	release_lock(listener);
	return status;
}

static void drop_caller(struct shm_listener *listener, struct shm_caller *caller, bool close_it)
{
	epoll_ctl(listener->base.fd, EPOLL_CTL_DEL, caller->socket, NULL);
	if (close_it)
		close(caller->socket);
	list_remove(&caller->link);
	listener->caller_count--;
	free(caller);
	if (listener->resume_ns == 0)
		(void)watch_socket(listener, true); /* there is room again */
}

void shm_listener_fini(struct rmr_listener *base)
{
	struct shm_listener *listener = (struct shm_listener *)base;

	list_for_each_safe (link, &listener->callers)
		drop_caller(listener, list_entry(link, struct shm_caller, link), true);
	unlink(listener->path);
	close(listener->socket);
	close(base->fd);
	release_lock(listener);
	pthread_mutex_destroy(&listener->lock);
}

/* The socket file and the lock stay: closing a copy of the lock's descriptor keeps it. */
void shm_listener_abandon(struct rmr_listener *base)
{
	struct shm_listener *listener = (struct shm_listener *)base;

	list_for_each (link, &listener->callers)
		close(list_entry(link, struct shm_caller, link)->socket);
	close(listener->socket);
	close(base->fd);
	close(listener->lock_fd);
}

/* Out of descriptors: an unaccepted caller would keep the listening socket readable, and us busy.
 * So it is left alone for a while. */
static void pause_accepting(struct shm_listener *listener, int errnum)
{
	if (listener->resume_ns == 0)
		log_error("%s: cannot accept: %s", listener->path, strerror(errnum));
	(void)watch_socket(listener, false);
	listener->resume_ns = clock_deadline_ns(PAUSE_MS);
}

static bool is_full(const struct shm_listener *listener)
{
	return listener->caller_count >= listener->base.options.backlog;
}

static void take_callers(struct shm_listener *listener)
{
	int timeout_ms = listener->base.options.handshake_timeout_ms;

	if (listener->resume_ns != 0 && !clock_passed(listener->resume_ns))
		return;
	while (!is_full(listener)) {
		int fd = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		struct shm_caller *caller;

		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
			pause_accepting(listener, errno);
			return;
		}
		if (fd < 0)
			break;
		caller = calloc(1, sizeof(*caller));
		if (!caller || !watch(listener, fd)) {
			close(fd);
			free(caller);
			break;
		}
		caller->socket = fd;
		caller->deadline_ns = clock_deadline_ns(timeout_ms);
		caller->patience_ns = clock_deadline_ns(timeout_ms / PATIENCE_PART);
		list_add_tail(&listener->callers, &caller->link);
		listener->caller_count++;
	}
	listener->resume_ns = 0;
	(void)watch_socket(listener, !is_full(listener));
}

/* Does this caller make a good request? RMR_AGAIN: it has said nothing yet. */
static enum rmr_status hear(struct shm_listener *listener, struct shm_caller *caller,
			    struct shm_request *request)
{
	struct packet_sender *sender = &request->sender;
	enum rmr_status status;

	*sender = (struct packet_sender){.pid = 0, .uid = (unsigned)-1};
	status = packet_receive(caller->socket, &request->hello, request->fds, sender);

	if (status != RMR_OK)
		return status;
	if (request->hello.type != PACKET_HELLO) {
		packet_close_fds(request->fds);
		return error_set(RMR_PROTOCOL, "the caller did not begin with HELLO");
	}
	if (!listener->base.options.any_user && sender->uid != geteuid() && sender->uid != 0) {
		packet_close_fds(request->fds);
		return error_set(
			RMR_DENIED,
			"user %u may not connect here; a listener for any user would let it",
			sender->uid);
	}
	request->socket = caller->socket;
	request->base.private_length = request->hello.private_length;
	memcpy(request->base.private_data, request->hello.private_data, RMR_PRIVATE_MAX);
	snprintf(request->base.peer, sizeof(request->base.peer), "pid %d uid %u", sender->pid,
		 sender->uid);
	return RMR_OK;
}

/* Drops a caller, and tells it why if it has said something. */
static void turn_away(struct shm_listener *listener, struct shm_caller *caller,
		      enum rmr_status status)
{
	struct shm_packet packet = {.type = PACKET_REJECT};

	if (status == RMR_PROTOCOL || status == RMR_DENIED) {
		snprintf(packet.reason, sizeof(packet.reason), "%s", error_chain());
		(void)!packet_send(caller->socket, &packet, NULL);
	}
	log_warn_limited("%s: dropped a caller: %s", listener->path, rmr_error_message());
	drop_caller(listener, caller, true);
}

/* The first caller that makes a good request; those that never will are dropped. */
static enum rmr_status hear_all(struct shm_listener *listener, struct shm_request *request,
				uint64_t *nearest_ns)
{
	list_for_each_safe (link, &listener->callers) {
		struct shm_caller *caller = list_entry(link, struct shm_caller, link);
		enum rmr_status status = hear(listener, caller, request);

		if (status == RMR_OK) {
			drop_caller(listener, caller, false);
			return RMR_OK;
		}
		if (status == RMR_AGAIN) {
			uint64_t deadline_ns =
				is_full(listener) ? caller->patience_ns : caller->deadline_ns;

			if (!clock_passed(deadline_ns)) {
				if (deadline_ns < *nearest_ns)
					*nearest_ns = deadline_ns;
				continue;
			}
			status = error_set(RMR_TIMEOUT, "it said nothing in time");
		}
		turn_away(listener, caller, status);
	}
	return RMR_AGAIN;
}

enum rmr_status shm_listener_next(struct rmr_listener *base, struct rmr_request *request,
				  int *wait_ms)
{
	struct shm_listener *listener = (struct shm_listener *)base;
	uint64_t nearest_ns = CLOCK_NEVER;
	enum rmr_status status;

	pthread_mutex_lock(&listener->lock);
	status = hear_all(listener, (struct shm_request *)request, &nearest_ns);
	if (status == RMR_AGAIN) {
		take_callers(listener);
		nearest_ns = CLOCK_NEVER;
		status = hear_all(listener, (struct shm_request *)request, &nearest_ns);
	}
	if (listener->resume_ns != 0 && listener->resume_ns < nearest_ns)
		nearest_ns = listener->resume_ns;
	pthread_mutex_unlock(&listener->lock);
	*wait_ms = clock_remaining_ms(nearest_ns);
	return status;
}

void shm_reject(struct rmr_request *base, const char *reason)
{
	struct shm_request *request = (struct shm_request *)base;
	struct shm_packet packet = {.type = PACKET_REJECT};

	snprintf(packet.reason, sizeof(packet.reason), "%s", reason ? reason : "");
	(void)!packet_send(request->socket, &packet, NULL);
	packet_close_fds(request->fds);
	close(request->socket);
}

enum rmr_status shm_accept(struct rmr_request *base, struct rmr_conn *base_conn)
{
	struct shm_request *request = (struct shm_request *)base;
	struct shm_conn *conn = (struct shm_conn *)base_conn;
	struct shm_packet packet;
	int segment_fd = -1;
	enum rmr_status status = shm_conn_prepare(conn, &segment_fd);

	if (status == RMR_OK)
		status = shm_conn_establish(conn, request->socket, &request->hello, request->fds,
					    &request->sender);
	if (status != RMR_OK) {
		char reason[sizeof(packet.reason)];

		snprintf(reason, sizeof(reason), "%s", error_chain());
		shm_reject(base, reason);
		error_set(status, "%s", reason);
	} else {
		struct shm_device *device = (struct shm_device *)base->device;

		shm_conn_introduce(conn, &packet, PACKET_ACCEPT);
		status = packet_send(conn->socket, &packet, (int[]){segment_fd, device->table_fd});
		packet_close_fds(request->fds);
	}
	if (segment_fd >= 0)
		close(segment_fd);
	if (status != RMR_OK)
		shm_conn_fini(base_conn);
	return status;
}
