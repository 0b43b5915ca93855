/*
 * kv_server_check(): what can be known of a server before there is one. It goes the way that
 * kv_server_create() goes, but for the memory, and tries each address by binding a socket to it,
 * at any port, without listening.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/inet.h"
#include "server/internal.h"

/* Does this host have it? Sets errno if not. */
static bool can_bind(const struct addrinfo *at)
{
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), error;
	bool good = fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0;

	error = errno;
	if (fd >= 0)
		close(fd);
	errno = error;
	return good;
}

/* `host` may have a port, which is replaced by 0. */
static int check_host(const char *host)
{
	const char *colon = strrchr(host, ':'), *bracket = strrchr(host, ']');
	size_t length =
		colon && (!bracket || colon > bracket) ? (size_t)(colon - host) : strlen(host);
	char address[SERVER_ADDRESS + 8];
	struct addrinfo *list;
	bool good = false;
	int error;

	snprintf(address, sizeof(address), "%.*s:0", (int)length, host);
	if (inet_resolve(address, true, &list) != RMR_OK)
		return server_fail_rmr(error_status());
	for (const struct addrinfo *at = list; at && !good; at = at->ai_next)
		good = can_bind(at);
	error = errno;
	freeaddrinfo(list);
	if (good)
		return KV_OK;
	return server_fail(KV_INVALID,
			   "cannot listen at '%.*s': %s; 'ip address' lists what this "
			   "machine has",
			   (int)length, host, strerror(error));
}

static int check_paths(const struct kv_server *server)
{
	const char *reason = "no RDMA device";
	bool has_verbs = false;
	int status = KV_OK;

	for (unsigned i = 0; i < server->path_count && status == KV_OK; i++) {
		const struct server_path *path = &server->paths[i];

		if (path->device && path->kind != PATH_SHM)
			status = check_host(path->address[0] ? path->address : server->address);
		has_verbs |= path->device && path->kind == PATH_VERBS;
		if (!path->device && path->kind == PATH_VERBS)
			reason = path->reason;
	}
	if (status == KV_OK && server->verbs_wanted && !has_verbs)
		return server_fail(KV_UNSUPPORTED, "cannot listen by verbs: %s", reason);
	return status;
}

int kv_server_check(const kv_server_options_t *options)
{
	struct kv_server *server = calloc(1, sizeof(*server));
	int status;

	if (!server)
		return server_fail(KV_NO_MEMORY, "no memory for a server");
	server->stop_fd = server->keep_stop_fd = -1;
	pthread_mutex_init(&server->times_past.lock, NULL);
	pthread_mutex_init(&server->keys_lock, NULL);
	status = options_take(server, options);
	if (status == KV_OK)
		status = memory_check(&server->options);
	if (status == KV_OK)
		status = listen_plan(server, &server->options);
	if (status == KV_OK)
		status = check_paths(server);
	kv_server_destroy(server);
	return status;
}
