/*
 * A client's life: options, connecting, connecting again, and what is said when something fails.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "control/client/internal.h"

#define DEFAULT_TIMEOUT 5000
#define DEFAULT_SPIN	400
#define DEFAULT_BUFFER	((size_t)16 << 20)
#define DEFAULT_INLINE	65536u
#define DEFAULT_MESSAGE ((uint64_t)4 << 20)

/* Of this thread's last connect. */
static _Thread_local char connect_error[CONTROL_ERROR];

int control_error(kv_control_t *control, int status, const char *format, ...)
{
	char text[CONTROL_ERROR];
	va_list args;

	/* The old text may be an argument of the new. */
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	memcpy(control->error, text, sizeof(text));
	return status;
}

const char *kv_control_error(const kv_control_t *control)
{
	return control ? control->error : connect_error;
}

const char *kv_control_transport(const kv_control_t *control)
{
	return control->plane.transport;
}

kv_path_t kv_control_last_path(const kv_control_t *control)
{
	return control->path;
}

uint64_t control_deadline(const kv_control_t *control)
{
	return clock_now_ns() + (uint64_t)control->options.timeout_ms * 1000000u;
}

int control_check_key(kv_control_t *control, size_t key_length)
{
	if (key_length > 0 && key_length <= KV_MAX_KEY)
		return KV_OK;
	return control_error(control, KV_KEY_TOO_LONG, "a key has 1 to %u bytes, not %zu",
			     KV_MAX_KEY, key_length);
}

/* ------------------------------------------------------------------------------------------
 * Options
 */

static bool keep_text(const char **text)
{
	if (!*text || !**text) {
		*text = NULL;
		return true;
	}
	*text = strdup(*text);
	return *text != NULL;
}

static void free_options(kv_control_options_t *options)
{
	free((char *)options->devices);
	free((char *)options->key_file);
	free((char *)options->ca_file);
	free((char *)options->cert_file);
	free((char *)options->cert_key_file);
}

static int fill_options(kv_control_t *control, const kv_control_options_t *given)
{
	kv_control_options_t *options = &control->options;
	const char *texts[5] = {0};
	bool is_kept = true;

	if (given)
		*options = *given;
	if (!options->key_file)
		options->key_file = getenv("REMORA_KEY_FILE");
	texts[0] = options->devices;
	texts[1] = options->key_file;
	texts[2] = options->ca_file;
	texts[3] = options->cert_file;
	texts[4] = options->cert_key_file;
	for (unsigned i = 0; i < 5; i++) {
		bool is_there = keep_text(&texts[i]);

		if (!is_there)
			texts[i] = NULL;
		is_kept &= is_there;
	}
	options->devices = texts[0];
	options->key_file = texts[1];
	options->ca_file = texts[2];
	options->cert_file = texts[3];
	options->cert_key_file = texts[4];
	if (!is_kept)
		return control_error(control, KV_NO_MEMORY, "no memory for a client");
	if (options->timeout_ms <= 0)
		options->timeout_ms = DEFAULT_TIMEOUT;
	if (options->connect_timeout_ms <= 0)
		options->connect_timeout_ms = DEFAULT_TIMEOUT;
	if (!options->spin_us)
		options->spin_us = DEFAULT_SPIN;
	if (!options->buffer_size)
		options->buffer_size = DEFAULT_BUFFER;
	return KV_OK;
}

static int read_key(kv_control_t *control)
{
	if (!control->options.key_file)
		return KV_OK;
	if (kv_secret_read(&control->secret, control->options.key_file) != RMR_OK)
		return control_error(control, KV_DENIED, "%s", error_chain());
	/* It travels as a header. */
	for (size_t i = 0; i < control->secret.length; i++) {
		if (control->secret.bytes[i] < ' ' || control->secret.bytes[i] > '~')
			return control_error(control, KV_INVALID,
					     "%s: a key for gRPC has letters, digits and signs of "
					     "ASCII alone",
					     control->options.key_file);
	}
	return KV_OK;
}

int control_make_id(kv_control_t *control)
{
	control->plane.id = control->options.client_id;
	if (!control->plane.id && getrandom(&control->plane.id, sizeof(control->plane.id), 0) !=
					  sizeof(control->plane.id))
		return control_error(control, KV_INTERNAL, "there are no random numbers");
	return KV_OK;
}

/* ------------------------------------------------------------------------------------------
 * Connecting
 */

int control_revive(kv_control_t *control, uint64_t deadline_ns)
{
	struct control_channel *channel = &control->channel;

	channel_look(channel);
	if (!channel->is_lost && !channel->is_leaving)
		return KV_OK;
	if (control->options.no_reconnect)
		return control_error(control, KV_DISCONNECTED, "%s: %s", control->url.authority,
				     channel->why[0] ? channel->why : "the server leaves");
	return channel_connect(control, deadline_ns);
}

/* That it is a server of ours, and lets us in: asks for something that needs the key. */
static bool take_nothing(void *context, const uint8_t *bytes, size_t length)
{
	(void)context;
	(void)bytes;
	(void)length;
	return true;
}

static int greet(kv_control_t *control, uint64_t deadline_ns)
{
	KvCache__StatsRequest request = KV_CACHE__STATS_REQUEST__INIT;
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/Stats",
		.request = &request.base,
		.take = take_nothing,
		.deadline_ns = deadline_ns,
	};

	request.prefix = (char *)"uptime";
	return control_ask(control, &ask);
}

static int open_all(kv_control_t *control, const char *url, const kv_control_options_t *options)
{
	uint64_t deadline_ns;
	int status = fill_options(control, options);

	if (status == KV_OK && (!url || !control_url_parse(url, &control->url)))
		status = control_error(control, KV_INVALID,
				       "'%s' is no address; write http://HOST:PORT or "
				       "https://HOST:PORT",
				       url ? url : "");
	if (status == KV_OK)
		status = read_key(control);
	if (status == KV_OK)
		status = control_make_id(control);
	if (status != KV_OK)
		return status;
	if (nghttp2_session_callbacks_new(&control->callbacks))
		return control_error(control, KV_NO_MEMORY, "no memory for a client");
	ask_callbacks(control->callbacks);
	control->plane.inline_limit = DEFAULT_INLINE;
	control->plane.max_message = DEFAULT_MESSAGE;
	deadline_ns = clock_deadline_ns(control->options.connect_timeout_ms);
	status = channel_connect(control, deadline_ns);
	if (status == KV_OK)
		status = greet(control, deadline_ns);
	if (status != KV_OK)
		return status;
	snprintf(control->plane.transport, sizeof(control->plane.transport), "inline");
	if (control->options.no_data_plane)
		return KV_OK;
	if (!plane_memory_open(control, control->options.buffer_size))
		return control_error(control, KV_NO_MEMORY, "no memory for a buffer: %s",
				     error_chain());
	plane_open(control, deadline_ns);
	return KV_OK;
}

int kv_control_connect(const char *url, const kv_control_options_t *options, kv_control_t **result)
{
	kv_control_t *control = calloc(1, sizeof(*control));
	int status;

	if (!control) {
		snprintf(connect_error, sizeof(connect_error), "no memory for a client");
		return KV_NO_MEMORY;
	}
	control->channel.fd = -1;
	control->channel.is_lost = true;
	status = open_all(control, url, options);
	if (status == KV_OK) {
		*result = control;
		return KV_OK;
	}
	memcpy(connect_error, control->error, sizeof(connect_error));
	kv_control_close(control);
	return status;
}

void kv_control_close(kv_control_t *control)
{
	if (!control)
		return;
	plane_close(control);
	plane_memory_close(control);
	channel_close(control);
	free(control->channel.input);
	nghttp2_session_callbacks_del(control->callbacks);
	kv_secret_wipe(&control->secret);
	free_options(&control->options);
	free(control);
}
