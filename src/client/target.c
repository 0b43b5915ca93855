/*
 * Targets: what the name of a server means.
 *
 * "HOST" and a mode, or a URL that says by itself which transport is meant. By CONN_MODE_AUTO
 * there are several ways to try, the fastest first: shared memory if the host is this one, then
 * verbs by every adapter, then TCP. Pure but for the questions whether a host is this one, and
 * which adapters there are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/host.h"
#include "client/internal.h"

static struct target *add(struct target_list *list)
{
	if (list->count == CLIENT_MAX_TARGETS)
		return NULL;
	list->targets[list->count] = (struct target){0};
	return &list->targets[list->count++];
}

static void add_network(struct target_list *list, const char *device, const char *options,
			const struct host_name *name)
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
static void add_verbs(struct target_list *list, const char *options, const struct host_name *name)
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

/* A device that was named: "fault:shm" is reached like "shm". */
static void add_named(struct target_list *list, const char *device, const char *options,
		      const struct host_name *name)
{
	const char *inner = strncmp(device, "fault:", 6) == 0 ? device + 6 : device;
	char full[64];

	if (strncmp(inner, "shm", 3) == 0) {
		add_shm(list, device, NULL, name->port);
		return;
	}
	if (strncmp(inner, "ofi", 3) == 0 && (!inner[3] || inner[3] == ':')) {
		add_network(list, device, "", name);
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

static int by_mode(conn_mode_t mode, const struct host_name *name, const char *device,
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
		if (host_is_this(name->host)) {
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

/* "ofi://host" and "ofi:tcp://host" name their device: takes it off. */
static bool take_ofi(const char **server, char *device, size_t size)
{
	const char *mark = strstr(*server, "://");
	size_t length = mark ? (size_t)(mark - *server) : 0;

	if (strncmp(*server, "ofi", 3) != 0 || length < 3 || length >= size ||
	    ((*server)[3] != ':' || length == 4))
		return false;
	snprintf(device, size, "%.*s", (int)length, *server);
	*server = mark + 3;
	return true;
}

int targets_find(conn_mode_t mode, const char *server, int port, const char *device,
		 struct target_list *list)
{
	struct host_name name;
	enum rmr_status status;
	char by_ofi[56];

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
	if (take_ofi(&server, by_ofi, sizeof(by_ofi)))
		device = by_ofi;
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
			  "\"%s\": known are shm:, tcp://, verbs://, verbs+socket://, ofi:...:// "
			  "and kv://; programs that speak gRPC take http:// and https://",
			  server);
		return KV_INVALID;
	}
	status = host_parse(server, port, &name);
	if (status == RMR_OK)
		status = by_mode(mode, &name, device, list);
	return status == RMR_OK ? KV_OK : KV_INVALID;
}
