/* Options: their defaults and their limits. Runs once, in kv_server_create(). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "server/internal.h"

#define DEFAULT_MEMORY	       ((size_t)256 << 20)
#define DEFAULT_MAX_CLIENTS    4096u
#define DEFAULT_WINDOW	       64u
#define DEFAULT_EAGER	       8192u
#define DEFAULT_INLINE	       8192u
#define DEFAULT_LANDING	       ((size_t)4 << 20)
#define DEFAULT_LANDING_TOTAL  ((size_t)1 << 30)
#define DEFAULT_PINS	       1024u
#define DEFAULT_CLIENT_TIMEOUT 10000
#define DEFAULT_STOP_TIMEOUT   2000

/* Without an address and without a key. */
#define LOOPBACK "127.0.0.1"

#define MAX_EAGER    (1u << 20)
#define MAX_COUNTERS (1u << 28)
#define MAX_PINS     (1u << 20)
/* The immediate counts places of 64 bytes. */
#define MAX_LANDING ((size_t)1 << 37)

#define DEFAULT_TO(field, value)                                                                   \
	do {                                                                                       \
		if (!(field))                                                                      \
			(field) = (value);                                                         \
	} while (0)

void kv_server_defaults(kv_server_options_t *options)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	DEFAULT_TO(options->port, KV_DEFAULT_PORT);
	DEFAULT_TO(options->memory, DEFAULT_MEMORY);
	DEFAULT_TO(options->workers, cores >= 4 ? (unsigned)cores / 2 : 1);
	DEFAULT_TO(options->max_clients, DEFAULT_MAX_CLIENTS);
	DEFAULT_TO(options->window, DEFAULT_WINDOW);
	DEFAULT_TO(options->eager_limit, DEFAULT_EAGER);
	DEFAULT_TO(options->inline_limit, DEFAULT_INLINE);
	DEFAULT_TO(options->landing_size, DEFAULT_LANDING);
	DEFAULT_TO(options->landing_total, DEFAULT_LANDING_TOTAL);
	DEFAULT_TO(options->max_pins, DEFAULT_PINS);
	DEFAULT_TO(options->client_timeout_ms, DEFAULT_CLIENT_TIMEOUT);
	DEFAULT_TO(options->stop_timeout_ms, DEFAULT_STOP_TIMEOUT);
	if (options->workers > SERVER_MAX_WORKERS)
		options->workers = SERVER_MAX_WORKERS;
	/* Whole places. */
	options->landing_size &= ~(size_t)(KV_PLACE - 1);
}

static int check(const struct kv_server_options *options)
{
	if (options->port > 65535)
		return server_fail(KV_INVALID, "port %d: the highest is 65535", options->port);
	if (options->memory < STORE_MIN_SIZE)
		return server_fail(KV_INVALID, "%zu bytes of memory: the least is %zu",
				   options->memory, STORE_MIN_SIZE);
	if (options->adapters && options->device && *options->device && options->adapters != 1)
		return server_fail(KV_INVALID, "one adapter (%s) and %u adapters: leave out one",
				   options->device, options->adapters);
	if (options->adapters > 1 && options->socket_mode)
		return server_fail(KV_INVALID,
				   "%u adapters by socket: they cannot share a port; leave out "
				   "--socket, or name them with a port each: --listen "
				   "'verbs:NAME,socket://HOST:PORT'",
				   options->adapters);
	if (options->window < KV_MIN_WINDOW)
		return server_fail(KV_INVALID, "a window of %u: the smallest is %u",
				   options->window, KV_MIN_WINDOW);
	if (options->window > KV_MAX_WINDOW)
		return server_fail(KV_INVALID, "a window of %u: the largest is %u", options->window,
				   KV_MAX_WINDOW);
	if (options->eager_limit < KV_MIN_EAGER || options->eager_limit > MAX_EAGER)
		return server_fail(KV_INVALID, "an eager limit of %u: it goes from %u to %u",
				   options->eager_limit, KV_MIN_EAGER, MAX_EAGER);
	if (options->inline_limit > MAX_EAGER)
		return server_fail(KV_INVALID, "an inline limit of %u: the largest is %u",
				   options->inline_limit, MAX_EAGER);
	if (options->landing_size > MAX_LANDING)
		return server_fail(KV_INVALID, "landing buffers of %zu bytes: the largest is %zu",
				   options->landing_size, MAX_LANDING);
	if (options->counters > MAX_COUNTERS)
		return server_fail(KV_INVALID, "%u counters: the most is %u", options->counters,
				   MAX_COUNTERS);
	if (options->max_pins > MAX_PINS)
		return server_fail(KV_INVALID, "%u pins of a client: the most is %u",
				   options->max_pins, MAX_PINS);
	if (options->client_timeout_ms < 0 || options->stop_timeout_ms < 0)
		return server_fail(KV_INVALID, "a time limit below 0");
	return KV_OK;
}

/* Whether nothing was said about who may come: no address, no key, and no adapter by name, which
 * has no address that other hosts cannot reach. */
static bool is_guarded(const struct kv_server_options *options)
{
	return !(options->address && *options->address) && !options->key_file &&
	       !(options->device && *options->device) && !options->adapters &&
	       !options->socket_mode && !(options->listen && strstr(options->listen, "verbs"));
}

int options_take(struct kv_server *server, const struct kv_server_options *options)
{
	static const struct kv_server_options defaults;
	const char *address;
	int status;

	server->options = options ? *options : defaults;
	options = &server->options;
	kv_server_defaults(&server->options);
	server->is_guarded = is_guarded(options);
	address = options->address && *options->address ? options->address : "*";
	if (server->is_guarded)
		address = LOOPBACK;
	if (strlen(address) >= sizeof(server->address) - 8)
		return server_fail(KV_INVALID, "the address '%.40s...' is too long", address);
	/* An IPv6 address by itself needs its brackets before a port can follow. */
	if (strchr(address, ':') && address[0] != '[')
		snprintf(server->address, sizeof(server->address), "[%s]", address);
	else
		snprintf(server->address, sizeof(server->address), "%s", address);
	if (options->node_id && strlen(options->node_id) >= sizeof(server->node_id))
		return server_fail(KV_INVALID, "the node's id is too long; 63 letters at most");
	snprintf(server->node_id, sizeof(server->node_id), "%s",
		 options->node_id ? options->node_id : "");
	status = check(options);
	if (status != KV_OK)
		return status;
	return kv_server_read_keys(server, options->key_file, options->read_key_file);
}
