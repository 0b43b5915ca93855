/* Hosts and their names: see host.h. */
#include "base/host.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum rmr_status host_parse(const char *text, int port, struct host_name *name)
{
	const char *begin = text, *end, *colon;
	size_t length;

	name->port = port;
	if (*text == '[') {
		begin++;
		end = strchr(text, ']');
		if (!end || (end[1] && end[1] != ':'))
			return error_set(RMR_BAD_ADDRESS, "\"%s\": [v6] or [v6]:port is meant?",
					 text);
		colon = end[1] ? end + 1 : NULL;
	} else {
		colon = strchr(text, ':');
		if (colon && strchr(colon + 1, ':'))
			colon = NULL;
		end = colon ? colon : text + strlen(text);
	}
	length = (size_t)(end - begin);
	if (length >= sizeof(name->host))
		return error_set(RMR_BAD_ADDRESS, "a host name of %zu bytes", length);
	memcpy(name->host, begin, length);
	name->host[length] = 0;
	if (!length)
		strcpy(name->host, "localhost");
	if (colon) {
		char *rest;
		long number = strtol(colon + 1, &rest, 10);

		if (*rest || rest == colon + 1 || number < 1 || number > 65535)
			return error_set(RMR_BAD_ADDRESS, "\"%s\": a port is a number up to 65535",
					 text);
		name->port = (int)number;
	}
	return RMR_OK;
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
	char first[NI_MAXHOST], second[NI_MAXHOST];
	socklen_t length =
		a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	return a->sa_family == b->sa_family &&
	       getnameinfo(a, length, first, sizeof(first), NULL, 0, NI_NUMERICHOST) == 0 &&
	       getnameinfo(b, length, second, sizeof(second), NULL, 0, NI_NUMERICHOST) == 0 &&
	       strcmp(first, second) == 0;
}

bool host_is_this(const char *host)
{
	struct addrinfo *found = NULL;
	struct ifaddrs *own = NULL;
	bool is_own = false;

	if (strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
	    strcmp(host, "::1") == 0)
		return true;
	if (getaddrinfo(host, NULL, NULL, &found) != 0)
		return false;
	if (getifaddrs(&own) == 0) {
		for (struct addrinfo *at = found; at; at = at->ai_next)
			for (struct ifaddrs *mine = own; mine; mine = mine->ifa_next)
				is_own |= mine->ifa_addr &&
					  (mine->ifa_addr->sa_family == AF_INET ||
					   mine->ifa_addr->sa_family == AF_INET6) &&
					  same_address(at->ai_addr, mine->ifa_addr);
		freeifaddrs(own);
	}
	freeaddrinfo(found);
	return is_own;
}
