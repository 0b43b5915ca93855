/*
 * The client as an object: creating it, its options, connecting, what it says about itself.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/error.h"
#include "base/hash.h"
#include "client/internal.h"

#define DEFAULT_TIMEOUT_MS 5000
#define DEFAULT_WINDOW	   32u
#define DEFAULT_BUFFER	   ((size_t)4 << 20)
#define DEFAULT_LANDING	   ((size_t)4 << 20)
#define DEFAULT_ENTRIES	   65536u
#define MIN_BUFFER	   65536u
/* One of so many one-sided gets is told to the server. */
#define TOUCH_INTERVAL 8u
/* Gets that the server did not see are told when there are this many, and one of this many of all
 * that it was told of. */
#define REPORT_LEAST 16u
#define REPORT_SHARE 256u

/* ------------------------------------------------------------------------------------------
 * Errors
 */

int client_fail(struct kv_client *client, int status, const char *format, ...)
{
	va_list arguments;

	if (!client)
		return status;
	va_start(arguments, format);
	vsnprintf(client->error, sizeof(client->error), format, arguments);
	va_end(arguments);
	client->error_status = client->last_status = status;
	return status;
}

int client_bad_key(struct kv_client *client, size_t key_length)
{
	return client_fail(client, KV_KEY_TOO_LONG, "a key of %zu bytes: it has 1 to %u",
			   key_length, KV_MAX_KEY);
}

int client_fail_fabric(struct kv_client *client, int status)
{
	return client_fail(client, status, "%s", error_chain());
}

const char *kv_client_error(const kv_client_t *client)
{
	if (!client)
		return "no client: kv_client_create() makes one";
	/* last_status is that of the last call that failed, whatever succeeded since. */
	if (client->last_status == client->error_status && client->error[0])
		return client->error;
	return kv_strerror(client->last_status);
}

/* ------------------------------------------------------------------------------------------
 * Creating
 */

static void set_defaults(kv_client_options_t *options)
{
	if (options->timeout_ms == 0)
		options->timeout_ms = DEFAULT_TIMEOUT_MS;
	if (options->connect_timeout_ms == 0)
		options->connect_timeout_ms = DEFAULT_TIMEOUT_MS;
	if (options->window == 0)
		options->window = DEFAULT_WINDOW;
	options->window = MIN(options->window, KV_MAX_WINDOW - CLIENT_SPARE);
	if (options->buffer_size == 0)
		options->buffer_size = DEFAULT_BUFFER;
	options->buffer_size = MAX(options->buffer_size, MIN_BUFFER);
	if (options->landing_limit == 0)
		options->landing_limit = DEFAULT_LANDING;
	if (options->cache_entries == 0)
		options->cache_entries = DEFAULT_ENTRIES;
	if (!options->key_file)
		options->key_file = getenv("REMORA_KEY_FILE");
}

static bool copy_text(const char **text, char **copy)
{
	if (!*text)
		return true;
	*copy = strdup(*text);
	*text = *copy;
	return *copy != NULL;
}

static bool make_window(struct kv_client *client)
{
	client->window = client->options.window + CLIENT_SPARE;
	client->id_slots = 1;
	while (client->id_slots < 4 * client->window)
		client->id_slots *= 2;
	client->calls = calloc(client->window, sizeof(*client->calls));
	client->by_id = calloc(client->id_slots, sizeof(struct call *));
	if (!client->calls || !client->by_id)
		return false;
	for (unsigned i = 0; i < client->window; i++)
		client->calls[i].number = i;
	return true;
}

kv_client_t *kv_client_create_with(conn_mode_t mode, const kv_client_options_t *options)
{
	struct kv_client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	client->mode = mode;
	client->process = fork_generation();
	if (options)
		client->options = *options;
	client->wants_pieces = client->options.landing_limit == 0;
	set_defaults(&client->options);
	life_init(client);
	client->report_at = REPORT_LEAST;
	client->better_ns = CLOCK_NEVER;
	if (!copy_text(&client->options.device, &client->device) ||
	    !copy_text(&client->options.key_file, &client->key_file) || !make_window(client) ||
	    (client->options.cache_entries != UINT32_MAX &&
	     !locations_init(&client->locations, client->options.cache_entries))) {
		kv_client_destroy(client);
		return NULL;
	}
	return client;
}

kv_client_t *kv_client_create(conn_mode_t mode)
{
	return kv_client_create_with(mode, NULL);
}

void kv_client_destroy(kv_client_t *client)
{
	if (!client)
		return;
	kv_client_disconnect(client);
	link_close_all(client);
	for (unsigned i = 0; client->calls && i < client->window; i++)
		free(client->calls[i].long_key);
	locations_fini(&client->locations);
	kv_secret_wipe(&client->secret);
	free(client->by_id);
	free(client->calls);
	free(client->device);
	free(client->key_file);
	free(client);
}

/* ------------------------------------------------------------------------------------------
 * Connecting
 */

static int connect_by(struct kv_client *client, conn_mode_t mode, const char *server, int port,
		      const char *device)
{
	int status;

	if (fork_is_foreign(client->process))
		return client_fail(client, KV_INVALID, FORK_MESSAGE);
	kv_client_disconnect(client);
	status = targets_find(mode, server, port, device, &client->targets);
	if (status != KV_OK)
		return client_fail_fabric(client, status);
	if (client->options.key_file &&
	    kv_secret_read(&client->secret, client->options.key_file) != RMR_OK)
		return client_fail_fabric(client, KV_DENIED);
	return link_open(client, clock_deadline_ns(client->options.connect_timeout_ms));
}

int kv_client_connect(kv_client_t *client, const char *server, int port)
{
	if (!client)
		return KV_INVALID;
	return connect_by(client, client->mode, server, port, client->options.device);
}

int kv_client_connect_socket(kv_client_t *client, const char *host, int port, const char *device)
{
	if (!client)
		return KV_INVALID;
	return connect_by(client, CONN_MODE_SOCKET, host, port,
			  device ? device : client->options.device);
}

void kv_client_disconnect(kv_client_t *client)
{
	if (!client)
		return;
	client->was_connected = false;
	client->backoff_ms = 0;
	client->retry_ns = 0;
	client->better_ns = CLOCK_NEVER;
	if (client->unseen_hits + client->unseen_misses)
		client_report(client, false);
	calls_drop(client);
	link_drop(client);
	client->transport[0] = 0;
}

const char *kv_client_transport(const kv_client_t *client)
{
	return client && client->link ? client->transport : "";
}

/* ------------------------------------------------------------------------------------------
 * Figures
 */

kv_path_t kv_client_last_path(const kv_client_t *client)
{
	return client ? client->last_path : KV_PATH_NONE;
}

unsigned kv_client_last_round_trips(const kv_client_t *client)
{
	return client ? client->last_round_trips : 0;
}

void kv_client_get_totals(const kv_client_t *client, kv_client_totals_t *totals)
{
	if (totals)
		*totals = client ? client->totals : (kv_client_totals_t){0};
}

void client_count(struct kv_client *client, const struct call *call)
{
	/* Part of something else. */
	if (call->path == KV_PATH_NONE)
		return;
	client->totals.operations[call->path]++;
	client->totals.round_trips += call->round_trips;
	if (call->is_async)
		return;
	client->last_path = call->path;
	client->last_round_trips = call->round_trips;
}

void kv_client_set_progress(kv_client_t *client, kv_progress_fn fn, void *context)
{
	if (!client)
		return;
	client->progress = fn;
	client->progress_context = context;
}

int client_progress(struct kv_client *client, uint64_t done, uint64_t total)
{
	if (!client->progress || client->progress(client->progress_context, done, total))
		return KV_OK;
	return client_fail(client, KV_CANCELED, "canceled after %llu of %llu bytes",
			   (unsigned long long)done, (unsigned long long)total);
}

void client_report(struct kv_client *client, bool may_wait)
{
	uint64_t count = client->unseen_hits + client->unseen_misses;
	struct call *call;

	/* If it cannot be done now, it is tried again a little later. */
	client->report_at = count + REPORT_LEAST;
	if (!client->link || client->link->is_lost ||
	    call_begin(client, KV_OP_COUNTS, NULL, 0, may_wait, &call) != KV_OK)
		return;
	call->path = KV_PATH_NONE;
	call->request.argument = client->unseen_hits;
	call->request.place = client->unseen_misses;
	if (!client->link || client->link->is_lost || call_ask(client, call) != KV_OK) {
		call_end(client, call);
		return;
	}
	call_abandon(client, call);
	client->unseen_hits = client->unseen_misses = 0;
	client->told += count;
	client->report_at = REPORT_LEAST + client->told / REPORT_SHARE;
}

void client_touch(struct kv_client *client, uint64_t offset, uint64_t version)
{
	client->unseen_hits++;
	if (++client->get_count % TOUCH_INTERVAL)
		return;
	/* When nothing is asked for long, the newest ones count. */
	client->touches[client->touch_count % KV_MAX_TOUCHES] =
		(struct kv_touch){.offset = offset, .version = version};
	client->touch_count++;
}
