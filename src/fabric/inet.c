/*
 * Addresses: "host:port" as people write them, and the other way round.
 *
 * A host is a name, an IPv4 address or an IPv6 address in brackets; "*" or nothing means all
 * addresses of this machine when listening, and this machine itself when connecting. Resolution
 * is getaddrinfo's, which may ask name servers and then takes as long as they do: that is the
 * one step of connecting that keeps no deadline.
 */
#include "fabric/inet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

#define HOST_MAX 256

/* Splits "host:port"; false when it is not of that form. */
static bool split(const char *address, char host[HOST_MAX], char port[16])
{
	const char *colon = strrchr(address, ':'), *from = address, *to = colon;
	size_t port_length;

	if (!colon)
		return false;
	port_length = strlen(colon + 1);
	if (port_length == 0 || port_length >= 16 || strspn(colon + 1, "0123456789") != port_length)
		return false;
	if (*from == '[') {
		if (to - from < 2 || to[-1] != ']')
			return false;
		from++;
		to--;
	} else if (memchr(from, ':', (size_t)(to - from))) {
		return false; /* an IPv6 address without brackets: which colon is it? */
	}
	if (to - from >= HOST_MAX)
		return false;
	memcpy(host, from, (size_t)(to - from));
	host[to - from] = '\0';
	memcpy(port, colon + 1, port_length + 1);
	return true;
}

enum rmr_status inet_resolve(const char *address, bool passive, struct addrinfo **list)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
				 .ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0)};
	char host[HOST_MAX], port[16];
	const char *node = host;
	int error;

	if (!split(address, host, port) || strtoul(port, NULL, 10) > 65535)
		return error_set(RMR_BAD_ADDRESS,
				 "'%s' is no address; write host:port, 1.2.3.4:port or [v6]:port",
				 address);
	if (host[0] == '\0' || strcmp(host, "*") == 0)
		node = NULL;
	error = getaddrinfo(node, port, &hints, list);
	if (error != 0 && strcmp(host, "localhost") == 0) {
		/* Without /etc/hosts, as in a bare chroot, nobody knows it; but it is always us. */
		hints.ai_flags &= ~AI_PASSIVE;
		error = getaddrinfo(NULL, port, &hints, list);
	}
	if (error == EAI_SYSTEM)
		return error_errno(RMR_BAD_ADDRESS, errno, "cannot resolve '%s'", host);
	if (error != 0)
		return error_set(RMR_BAD_ADDRESS, "cannot resolve '%s': %s; check the name", host,
				 gai_strerror(error));
	return RMR_OK;
}

void inet_format(const struct sockaddr *address, socklen_t length, char *to, size_t size)
{
	char host[HOST_MAX], port[16];

	if (getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
		snprintf(to, size, "unknown");
		return;
	}
	/* A peer that came by IPv4 to a socket for both families. */
	if (strncmp(host, "::ffff:", 7) == 0 && strchr(host, '.'))
		snprintf(to, size, "%s:%s", host + 7, port);
	else if (strchr(host, ':'))
		snprintf(to, size, "[%s]:%s", host, port);
	else
		snprintf(to, size, "%s:%s", host, port);
}

/* The address by which this machine reaches the world: what a socket to there would be bound to. No
 * packet is sent. Without such a route, this machine is alone: 127.0.0.1. */
static struct in_addr own_address(void)
{
	struct sockaddr_in world = {.sin_family = AF_INET, .sin_port = htons(9)};
	struct sockaddr_in own = {.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in found;
	socklen_t length = sizeof(found);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	world.sin_addr.s_addr = htonl(0xc6336401); /* 198.51.100.1, kept for documentation */
	if (fd < 0)
		return own.sin_addr;
	if (connect(fd, (struct sockaddr *)&world, sizeof(world)) == 0 &&
	    getsockname(fd, (struct sockaddr *)&found, &length) == 0 &&
	    found.sin_addr.s_addr != htonl(INADDR_ANY))
		own = found;
	close(fd);
	return own.sin_addr;
}

bool inet_is_loopback(const struct sockaddr *address)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;

	switch (address->sa_family) {
	case AF_INET:
		return ntohl(four->sin_addr.s_addr) >> 24 == 127;
	case AF_INET6:
		if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
			return six->sin6_addr.s6_addr[12] == 127;
		return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
	default:
		return address->sa_family == AF_UNIX;
	}
}

void inet_reachable(int fd, char *to, size_t size)
{
	struct sockaddr_storage bound;
	socklen_t length = sizeof(bound);
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&bound;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&bound;
	struct sockaddr_in any = {.sin_family = AF_INET};
	bool wildcard = false;

	if (getsockname(fd, (struct sockaddr *)&bound, &length) != 0) {
		snprintf(to, size, "unknown");
		return;
	}
	if (bound.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)) {
		wildcard = true;
		any.sin_port = v6->sin6_port;
	} else if (bound.ss_family == AF_INET && v4->sin_addr.s_addr == htonl(INADDR_ANY)) {
		wildcard = true;
		any.sin_port = v4->sin_port;
	}
	if (wildcard) {
		any.sin_addr = own_address();
		inet_format((struct sockaddr *)&any, sizeof(any), to, size);
		return;
	}
	inet_format((struct sockaddr *)&bound, length, to, size);
}

void inet_keep_alive(int fd, int dead_after_ms)
{
	int one = 1, count = 3;
	int idle_s = dead_after_ms / 2000 > 0 ? dead_after_ms / 2000 : 1;
	int interval_s = dead_after_ms / 6000 > 0 ? dead_after_ms / 6000 : 1;
	unsigned user_timeout_ms = (unsigned)dead_after_ms;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms,
			 sizeof(user_timeout_ms));
}

static bool is_within_host(int fd)
{
	struct sockaddr_storage own = {0}, peer = {0};
	socklen_t own_length = sizeof(own), peer_length = sizeof(peer);

	if (getsockname(fd, (struct sockaddr *)&own, &own_length) != 0 ||
	    getpeername(fd, (struct sockaddr *)&peer, &peer_length) != 0 ||
	    own.ss_family != peer.ss_family)
		return false;
	if (own.ss_family == AF_INET)
		return ((struct sockaddr_in *)&own)->sin_addr.s_addr ==
		       ((struct sockaddr_in *)&peer)->sin_addr.s_addr;
	return own.ss_family == AF_INET6 &&
	       memcmp(&((struct sockaddr_in6 *)&own)->sin6_addr,
		      &((struct sockaddr_in6 *)&peer)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

void inet_use_plain_control(int fd)
{
	/* The one that every kernel has and every program may choose. */
	static const char plain[] = "reno";

	if (is_within_host(fd))
		(void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, plain, sizeof(plain) - 1);
}

enum rmr_status inet_try_each(const char *address, uint64_t deadline_ns, inet_try *try_one,
			      void *context)
{
	struct addrinfo *list;
	enum rmr_status status = inet_resolve(address, false, &list);
	unsigned left = 0;

	if (status != RMR_OK)
		return status;
	for (struct addrinfo *at = list; at; at = at->ai_next)
		left++;
	for (struct addrinfo *at = list; at; at = at->ai_next, left--) {
		uint64_t now_ns = clock_now_ns(), until_ns = deadline_ns;

		if (deadline_ns != CLOCK_NEVER && now_ns < deadline_ns)
			until_ns = now_ns + (deadline_ns - now_ns) / left;
		status = try_one(context, at, until_ns);
		if (status == RMR_OK)
			break;
	}
	freeaddrinfo(list);
	return status;
}
