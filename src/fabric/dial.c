/*
 * Dialling: resolve, and connect to one of the addresses.
 *
 * One deadline covers all steps but the resolution of a name. If a name has several addresses each
 * gets its share of the time left, so that a dead one cannot use it all up.
 */
#include "fabric/dial.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/inet.h"

enum rmr_status dial_await(int fd, short events, uint64_t deadline_ns, const char *what)
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
	if (error == EHOSTUNREACH)
		return error_errno(RMR_REFUSED, error, "the host cannot be reached from here");
	if (error == ENETUNREACH || error == EADDRNOTAVAIL)
		return error_errno(RMR_BAD_ADDRESS, error, "no network leads there from here");
	return error_errno(RMR_SYSTEM, error, "cannot connect");
}

/* Connects a socket to one address. */
static enum rmr_status connect_one(void *context, const struct addrinfo *at, uint64_t deadline_ns)
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
			status = dial_await(fd, POLLOUT, deadline_ns, "from the host");
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
	*(int *)context = fd;
	return RMR_OK;
}

enum rmr_status dial(const char *address, uint64_t deadline_ns, int *fd)
{
	return inet_try_each(address, deadline_ns, connect_one, fd);
}
