/*
 * Targets: what the name of a server means.
 *
 * "HOST" and a mode, or a URL that says by itself which transport is meant. By CONN_MODE_AUTO
 * there are several ways to try, the fastest first: shared memory if the host is this one, then
 * verbs by every adapter, then TCP. Pure but for the questions whether a host is this one, and
 * which adapters there are.
 */
#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "client/internal.h"

struct server_name {
	char host[200];
	int port;
};

static struct target *add(struct target_list *list)
{
	if (list->count == CLIENT_MAX_TARGETS)
		return NULL;
	list->targets[list->count] = (struct target){0};
	return &list->targets[list->count++];
}

static void add_network(struct target_list *list, const char *device, const char *options,
			const struct server_name *name)
{
	struct target *target = add(list);
	bool is_v6 = strchr(name->host, ':') != NULL;

	if (!target)
		return;
	snprintf(target->device, sizeof(target->device), "%s%s", device, options);
	snprintf(target->address, sizeof(target->address), is_v6 ? "[%s]:%d" : "%s:%d", name->host,
		 name->port);
}

static void add_shm(struct target_list *list, const char *device, const char *name, int port)
{
	struct target *target = add(list);

	if (!target)
		return;
	snprintf(target->device, sizeof(target->device), "%s", device);
	if (name)
		snprintf(target->address, sizeof(target->address), "%s", name);
	else
		snprintf(target->address, sizeof(target->address), "kv-%d", port);
}

/* Every adapter; those that cannot be used are remembered with the reason. */
static void add_verbs(struct target_list *list, const char *options, const struct server_name *name)
{
	struct rmr_device_entry entries[CLIENT_MAX_TARGETS];
	size_t count = rmr_device_list(entries, CLIENT_MAX_TARGETS);

	if (count > CLIENT_MAX_TARGETS)
		count = CLIENT_MAX_TARGETS;
	for (size_t i = 0; i < count; i++) {
		if (strncmp(entries[i].name, "verbs", 5) != 0)
			continue;
		if (entries[i].usable) {
			add_network(list, entries[i].name, options, name);
		} else {
			struct target *target = add(list);

			if (!target)
				return;
			memcpy(target->device, entries[i].name, sizeof(target->device));
			memcpy(target->reason, entries[i].reason, sizeof(target->reason));
		}
	}
}

/* "host", "host:port", "[v6]:port", "v6". */
static int parse_host(const char *text, int port, struct server_name *name)
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

/* Whether an address of this host is meant. */
static bool is_this_host(const char *host)
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

/* A device that was named: "fault:shm" is reached like "shm". */
static void add_named(struct target_list *list, const char *device, const char *options,
		      const struct server_name *name)
{
	const char *inner = strncmp(device, "fault:", 6) == 0 ? device + 6 : device;
	char full[64];

	if (strncmp(inner, "shm", 3) == 0) {
		add_shm(list, device, NULL, name->port);
		return;
	}
	/* An adapter's bare name is enough. */
	snprintf(full, sizeof(full), "%s%s",
		 strchr(device, ':') || strcmp(device, "tcp") == 0 || strcmp(device, "verbs") == 0
			 ? ""
			 : "verbs:",
		 device);
	add_network(list, full, strstr(full, ",socket") ? "" : options, name);
}

static int by_mode(conn_mode_t mode, const struct server_name *name, const char *device,
		   struct target_list *list)
{
	const char *options = mode == CONN_MODE_SOCKET ? ",socket" : "";

	if (device) {
		add_named(list, device, options, name);
		return RMR_OK;
	}
	switch (mode) {
	case CONN_MODE_SHM:
		add_shm(list, "shm", NULL, name->port);
		break;
	case CONN_MODE_TCP:
		add_network(list, "tcp", "", name);
		break;
	case CONN_MODE_CM:
	case CONN_MODE_SOCKET:
		add_verbs(list, options, name);
		break;
	case CONN_MODE_AUTO:
		if (is_this_host(name->host)) {
			add_shm(list, "shm", NULL, name->port);
		} else {
			struct target *target = add(list);

			strcpy(target->device, "shm");
			snprintf(target->reason, sizeof(target->reason), "%.100s is another host",
				 name->host);
		}
		add_verbs(list, "", name);
		add_network(list, "tcp", "", name);
		break;
	default:
		return error_set(RMR_INVALID, "there is no connection mode %d", (int)mode);
	}
	return RMR_OK;
}

static const struct {
	const char *prefix;
	conn_mode_t mode;
} schemes[] = {
	{"tcp://", CONN_MODE_TCP},
	{"verbs://", CONN_MODE_CM},
	{"verbs+socket://", CONN_MODE_SOCKET},
	{"kv://", CONN_MODE_AUTO},
};

int targets_find(conn_mode_t mode, const char *server, int port, const char *device,
		 struct target_list *list)
{
	struct server_name name;
	enum rmr_status status;

	list->count = 0;
	if (port == 0)
		port = KV_DEFAULT_PORT;
	if (port < 0 || port > 65535) {
		error_set(RMR_INVALID, "port %d; it is a number up to 65535", port);
		return KV_INVALID;
	}
	if (!server)
		server = "localhost";
	if (strncmp(server, "shm:", 4) == 0) {
		const char *shm_name = server[4] ? server + 4 : NULL;

		if (shm_name && strlen(shm_name) >= sizeof(list->targets[0].address)) {
			error_set(RMR_BAD_ADDRESS, "a name of %zu bytes", strlen(shm_name));
			return KV_INVALID;
		}
		add_shm(list, device && strncmp(device, "fault:", 6) == 0 ? device : "shm",
			shm_name, port);
		return KV_OK;
	}
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
		size_t length = strlen(schemes[i].prefix);

		if (strncmp(server, schemes[i].prefix, length) != 0)
			continue;
		server += length;
		mode = schemes[i].mode;
		break;
	}
	if (strstr(server, "://")) {
		error_set(RMR_BAD_ADDRESS,
			  "\"%s\": known are shm:, tcp://, verbs://, verbs+socket:// and kv://",
			  server);
		return KV_INVALID;
	}
	status = parse_host(server, port, &name);
	if (status == RMR_OK)
		status = by_mode(mode, &name, device, list);
	return status == RMR_OK ? KV_OK : KV_INVALID;
}
