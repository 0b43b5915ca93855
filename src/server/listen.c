/*
 * Listening: devices, the memory that clients reach through them, and listeners.
 *
 * Devices are opened and the store's memory is registered when the server is created, so that a
 * start is quick; listeners come and go with start and stop. What was not asked for by name and
 * does not work is left out, with its reason, which kv_server_paths() tells.
 *
 * All paths share one port number. If none was given, tcp (or verbs by socket or ofi, which need a
 * TCP port as well) picks one, so it listens first; shm has it in its name, "kv-12345".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "server/internal.h"

/* Of a path that must work. */
static int path_fails(const struct server_path *path, enum rmr_status status)
{
	return server_fail_rmr(error_context(status, "listening by %s", path->name));
}

/* It does not work: fatal if it was named, else only noted. */
static int path_give_up(struct server_path *path, enum rmr_status status)
{
	snprintf(path->reason, sizeof(path->reason), "%s", error_chain());
	if (path->named)
		return path_fails(path, status);
	log_info("not listening by %s: %s", path->name, path->reason);
	return KV_OK;
}

int listen_plan(struct kv_server *server, const struct kv_server_options *options)
{
	static const struct rmr_grant_limits grants = {.arenas = SERVER_ALL_ARENAS,
						       .bytes = SERVER_ALL_BYTES};
	const struct rmr_device_options device_options = {.grants = &grants};
	int status = listen_parse(server, options);

	for (unsigned i = 0; i < server->path_count && status == KV_OK; i++) {
		struct server_path *path = &server->paths[i];
		enum rmr_status opened;

		if (path->reason[0])
			continue; /* known not to be usable */
		opened = rmr_device_open(path->name, &device_options, &path->device);
		if (opened == RMR_OK)
			path->info = rmr_device_info(path->device);
		else
			status = path_give_up(path, opened);
	}
	return status;
}

static void path_close(struct server_path *path)
{
	rmr_region_close(path->cells);
	rmr_region_close(path->arena);
	rmr_device_close(path->device);
	path->cells = NULL;
	path->arena = NULL;
	path->device = NULL;
}

/* Which clients may change the cells of counters by themselves: all who are atomic with the CPU.
 * Or, where there is an adapter that is atomic with itself alone, as most are, the clients of this
 * one adapter: then we too go through it (swap_cell in server.c), for its clients gain most by not
 * asking. */
void listen_choose_counting(struct kv_server *server)
{
	for (unsigned i = 0; i < server->path_count && !server->options.counters_by_cpu; i++) {
		struct server_path *path = &server->paths[i];
		unsigned has;

		if (!path->device || path->kind != PATH_VERBS)
			continue;
		has = path->info->capabilities & (RMR_CAP_ATOMIC | RMR_CAP_ATOMIC_CPU);
		if (has == RMR_CAP_ATOMIC) {
			server->counting = path;
			return;
		}
	}
}

bool listen_path_counts(const struct kv_server *server, const struct server_path *path)
{
	unsigned needed = RMR_CAP_ATOMIC | RMR_CAP_ATOMIC_CPU;

	if (server->counting)
		return path == server->counting;
	return (path->info->capabilities & needed) == needed;
}

static enum rmr_status path_register(struct kv_server *server, struct server_path *path)
{
	enum rmr_status status =
		rmr_region_open(path->device, rmr_arena_base(server->arena),
				rmr_arena_size(server->arena), RMR_READ, &path->arena);

	if (status != RMR_OK || !listen_path_counts(server, path))
		return status;
	return rmr_region_open(path->device, rmr_arena_base(server->cells_arena),
			       rmr_arena_size(server->cells_arena), RMR_ATOMIC, &path->cells);
}

int listen_register(struct kv_server *server)
{
	uint64_t size = rmr_arena_size(server->arena), done = 0, total = 0;

	for (unsigned i = 0; i < server->path_count; i++)
		total += server->paths[i].device && server->paths[i].kind == PATH_VERBS ? size : 0;
	for (unsigned i = 0; i < server->path_count; i++) {
		struct server_path *path = &server->paths[i];
		enum rmr_status status;
		char what[SERVER_ADDRESS];

		if (!path->device)
			continue;
		snprintf(what, sizeof(what), "registering memory with %s", path->name);
		if (path->kind == PATH_VERBS && memory_progress(server, what, done, total) != KV_OK)
			return KV_TIMEOUT;
		done += path->kind == PATH_VERBS ? size : 0;
		status = path_register(server, path);
		if (status != RMR_OK) {
			int failed = path_give_up(path, status);

			path_close(path);
			if (failed != KV_OK)
				return failed;
		}
	}
	return KV_OK;
}

/* ------------------------------------------------------------------------------------------
 * Listeners
 */

/* Has it a port of its own, "host:port"? */
static bool has_port(const char *address)
{
	const char *colon = strrchr(address, ':'), *bracket = strrchr(address, ']');

	return colon && (!bracket || colon > bracket);
}

static void find_address(const struct kv_server *server, const struct server_path *path,
			 char address[2 * SERVER_ADDRESS])
{
	size_t size = 2 * SERVER_ADDRESS;

	if (path->kind == PATH_SHM && path->address[0])
		snprintf(address, size, "%s", path->address);
	else if (path->kind == PATH_SHM && server->port)
		snprintf(address, size, "kv-%d", server->port);
	else if (path->kind == PATH_SHM)
		/* No port anywhere, and none wanted: a name that nobody else has. */
		snprintf(address, size, "kv-pid-%d", (int)getpid());
	else if (has_port(path->address))
		snprintf(address, size, "%s", path->address);
	else
		snprintf(address, size, "%s:%d", path->address[0] ? path->address : server->address,
			 server->port);
}

/* The port of the first that has one is the server's, if it could be any. */
static void note_port(struct kv_server *server, const struct server_path *path)
{
	const char *address = rmr_listener_address(path->listener);
	const char *colon = strrchr(address, ':');

	if (path->kind != PATH_SHM && server->port == 0 && colon)
		server->port = atoi(colon + 1);
}

/* The tcp path that has the port which verbs by socket, or ofi, wants, too: callers of both come in
 * there.
 * NULL: there is none. */
static struct rmr_listener *find_host(struct kv_server *server, const struct server_path *path)
{
	char wanted[2 * SERVER_ADDRESS], address[2 * SERVER_ADDRESS];

	if (path->kind != PATH_OFI && (path->kind != PATH_VERBS || !path->by_socket))
		return NULL;
	find_address(server, path, wanted);
	for (unsigned i = 0; i < server->path_count; i++) {
		struct server_path *other = &server->paths[i];

		if (!other->listener || other->kind != PATH_TCP)
			continue;
		find_address(server, other, address);
		if (strcmp(address, wanted) == 0)
			return other->listener;
	}
	return NULL;
}

/* By RDMA CM every address at once ("*") takes the port from the other adapters. Is there one? */
static bool is_in_the_way(const struct kv_server *server, const struct server_path *path)
{
	if (path->kind != PATH_VERBS || path->by_socket || path->address[0] ||
	    strcmp(server->address, "*") != 0)
		return false;
	for (unsigned i = 0; i < server->path_count; i++) {
		const struct server_path *other = &server->paths[i];

		if (other != path && other->device && other->kind == PATH_VERBS &&
		    !other->by_socket)
			return true;
	}
	return false;
}

/* Opens the listener; at the adapter's own address where several adapters share the port. That is
 * asked for by listening at any port for a moment. */
static enum rmr_status open_listener(struct kv_server *server, struct server_path *path,
				     const char *address)
{
	struct rmr_listener_options options = {.any_user = server->options.any_user,
					       .socket_mode = server->options.any_user ? 0666 : 0,
					       .beside = find_host(server, path)};
	const char *told;
	char own[2 * SERVER_ADDRESS];
	enum rmr_status status;

	if (!is_in_the_way(server, path))
		return rmr_listener_open(path->device, address, &options, &path->listener);
	status = rmr_listener_open(path->device, "*:0", &options, &path->listener);
	if (status != RMR_OK)
		return status;
	told = rmr_listener_address(path->listener);
	snprintf(own, sizeof(own), "%.*s:%d", (int)(strrchr(told, ':') - told), told, server->port);
	rmr_listener_close(path->listener);
	path->listener = NULL;
	return rmr_listener_open(path->device, own, &options, &path->listener);
}

static int path_listen(struct kv_server *server, struct server_path *path)
{
	char address[2 * SERVER_ADDRESS];
	enum rmr_status status;

	if (!path->device || path->listener)
		return KV_OK;
	find_address(server, path, address);
	status = open_listener(server, path, address);
	if (status != RMR_OK)
		return path_give_up(path, status);
	path->reason[0] = '\0';
	note_port(server, path);
	log_info("listening by %s at %s", path->name, rmr_listener_address(path->listener));
	return KV_OK;
}

/* In which order: who picks the port comes first, and those who share it next. */
static unsigned turn_of(const struct server_path *path)
{
	if (path->kind == PATH_OFI)
		return 1;
	if (path->kind == PATH_VERBS)
		return path->by_socket ? 1 : 2;
	return path->kind == PATH_TCP ? 0 : 3;
}

static int check_listeners(const struct kv_server *server)
{
	unsigned verbs = 0;
	bool any = false;
	const char *reason = NULL, *verbs_reason = "there is no adapter";

	for (unsigned i = 0; i < server->path_count; i++) {
		const struct server_path *path = &server->paths[i];

		any |= path->listener != NULL;
		verbs += path->listener && path->kind == PATH_VERBS;
		if (!path->listener && path->kind == PATH_VERBS)
			verbs_reason = path->reason;
		/* Of tcp if it can be: that is there, so something can be done about it. */
		if (!path->listener && (!reason || path->kind == PATH_TCP))
			reason = path->reason;
	}
	if (server->verbs_wanted && !verbs)
		return server_fail(KV_UNSUPPORTED, "cannot listen by verbs: %s", verbs_reason);
	if (verbs < server->options.adapters)
		return server_fail(KV_UNSUPPORTED,
				   "%u adapters are wanted, and %u can be listened at: %s",
				   server->options.adapters, verbs, verbs_reason);
	if (!any)
		return server_fail(KV_INTERNAL, "there is nothing to listen by: %s",
				   reason ? reason : "");
	return KV_OK;
}

int listen_start(struct kv_server *server)
{
	int status = KV_OK;

	server->port = server->options.port > 0 ? server->options.port : 0;
	for (unsigned turn = 0; turn < 4; turn++) {
		for (unsigned i = 0; i < server->path_count && status == KV_OK; i++) {
			if (turn_of(&server->paths[i]) == turn)
				status = path_listen(server, &server->paths[i]);
		}
	}
	return status == KV_OK ? check_listeners(server) : status;
}

/* Whether some path listens at an address that was named: then a server may have been there before
 * that clients take us for. */
bool listen_may_succeed(const struct kv_server *server)
{
	for (unsigned i = 0; i < server->path_count; i++) {
		const struct server_path *path = &server->paths[i];

		if (path->listener && (server->options.port > 0 || path->address[0]))
			return true;
	}
	return false;
}

/* Guests before their hosts. */
void listen_stop(struct kv_server *server)
{
	for (unsigned turn = 4; turn-- > 0;) {
		for (unsigned i = 0; i < server->path_count; i++) {
			if (turn_of(&server->paths[i]) != turn)
				continue;
			rmr_listener_close(server->paths[i].listener);
			server->paths[i].listener = NULL;
		}
	}
}

void listen_close(struct kv_server *server)
{
	listen_stop(server);
	for (unsigned i = 0; i < server->path_count; i++)
		path_close(&server->paths[i]);
}

/* Whether it listens at all addresses of the host. */
static bool is_everywhere(const struct kv_server *server, const struct server_path *path)
{
	char address[2 * SERVER_ADDRESS];

	if (!path->listener || path->kind != PATH_TCP)
		return false;
	find_address(server, path, address);
	return address[0] == '*' || address[0] == ':';
}

static bool is_loopback(const char *address)
{
	return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0 ||
	       strncmp(address, "localhost", 9) == 0;
}

bool listen_is_open(const struct kv_server *server)
{
	for (unsigned i = 0; i < server->path_count; i++) {
		const struct server_path *path = &server->paths[i];
		char address[2 * SERVER_ADDRESS];

		if (!path->listener || path->kind == PATH_SHM)
			continue;
		find_address(server, path, address);
		if (!is_loopback(address))
			return true;
	}
	return false;
}

const char *kv_server_paths(kv_server_t *server)
{
	size_t size = 1, used = 0;

	for (unsigned i = 0; i < server->path_count; i++)
		size += sizeof(server->paths[i].name) + SERVER_REASON + 2 * SERVER_ADDRESS;
	free(server->paths_text);
	server->paths_text = calloc(1, size);
	if (!server->paths_text)
		return "";
	for (unsigned i = 0; i < server->path_count; i++) {
		const struct server_path *path = &server->paths[i];
		const char *why = path->reason[0] ? path->reason : "the server is not started";

		used += (size_t)snprintf(
			server->paths_text + used, size - used, "%s: %s%s%.511s\n", path->name,
			path->listener ? "listening at " : "not listening: ",
			is_everywhere(server, path) ? "every address, such as " : "",
			path->listener ? rmr_listener_address(path->listener) : why);
	}
	return server->paths_text;
}
