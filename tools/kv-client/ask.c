/*
 * What commands ask the server for, by whichever way it is connected: Remora's own protocol (kv.h),
 * or the gRPC service (control.h) when the address begins with http:// or https://. The service has
 * fewer operations; what it has not is refused with a sentence that says what to do instead.
 */
#include "client.h"
#include "common/flag_words.h"

static char refusal[256];

/* The gRPC service has no such thing. */
static int refuse(const char *what)
{
	snprintf(refusal, sizeof(refusal),
		 "%s: the gRPC service has no such call; ask the server by its own protocol: "
		 "kv-client -a HOST %s",
		 what, what);
	return KV_UNSUPPORTED;
}

const char *ask_error(const struct session *session)
{
	if (*refusal)
		return refusal;
	if (session->config->is_grpc)
		return flag_words(kv_control_error(session->control));
	return flag_words(kv_client_error(session->client));
}

int ask_connect(struct session *session)
{
	const struct client_config *config = session->config;
	kv_control_options_t options = {
		.timeout_ms = config->options.timeout_ms,
		.connect_timeout_ms = config->options.connect_timeout_ms,
		.buffer_size = config->options.buffer_size,
		.devices = config->options.device,
		.key_file = config->options.key_file,
		.ca_file = config->ca_file,
		.insecure = config->insecure,
	};

	if (config->is_grpc)
		return kv_control_connect(config->server, &options, &session->control);
	session->client = kv_client_create_with(config->mode, &config->options);
	if (!session->client)
		return KV_NO_MEMORY;
	if (config->socket_mode)
		return kv_client_connect_socket(session->client, config->server, config->port,
						config->options.device);
	return kv_client_connect(session->client, config->server, config->port);
}

void ask_close(struct session *session)
{
	kv_control_close(session->control);
	kv_client_destroy(session->client);
}

const char *ask_transport(const struct session *session)
{
	static char text[600];

	if (!session->control)
		return flag_words(kv_client_transport(session->client));
	snprintf(text, sizeof(text), "grpc+%s", kv_control_transport(session->control));
	return text;
}

/* ------------------------------------------------------------------------------------------
 * Keys
 */

int ask_put(struct session *session, const void *key, size_t key_length, const void *value,
	    size_t length, const kv_put_options_t *options, kv_info_t *info)
{
	if (session->control && options->may_lose_old)
		return refuse("put --replace");
	if (session->control)
		return kv_control_put_with(session->control, key, key_length, value, length,
					   options, info);
	return kv_client_put_with(session->client, key, key_length, value, length, options, info);
}

int ask_get(struct session *session, const void *key, size_t key_length, void **value,
	    size_t *length, kv_info_t *info)
{
	if (session->control)
		return kv_control_get_alloc(session->control, key, key_length, value, length, info);
	return kv_client_get_alloc(session->client, key, key_length, value, length, info);
}

int ask_delete(struct session *session, const void *key, size_t key_length)
{
	if (session->control)
		return kv_control_delete(session->control, key, key_length);
	return kv_client_delete(session->client, key, key_length);
}

int ask_incr(struct session *session, const void *key, size_t key_length, int64_t delta,
	     int64_t *sum)
{
	if (session->control)
		return refuse("incr");
	return kv_client_incr(session->client, key, key_length, delta, sum);
}

int ask_stat(struct session *session, const void *key, size_t key_length, kv_info_t *info)
{
	if (session->control)
		return kv_control_stat(session->control, key, key_length, info);
	return kv_client_stat(session->client, key, key_length, info);
}

int ask_touch(struct session *session, const void *key, size_t key_length, uint64_t ttl_ms)
{
	if (session->control)
		return kv_control_touch(session->control, key, key_length, ttl_ms);
	return kv_client_touch(session->client, key, key_length, ttl_ms);
}

/* ------------------------------------------------------------------------------------------
 * The server
 */

int ask_scan(struct session *session, const struct word *prefix, uint64_t *cursor, size_t count,
	     kv_scan_fn fn, void *context)
{
	if (session->control)
		return kv_control_scan(session->control, prefix->text, prefix->length, cursor,
				       count, fn, context);
	return kv_client_scan(session->client, cursor, count, fn, context);
}

int ask_flush(struct session *session)
{
	return session->control ? refuse("flush") : kv_client_flush(session->client);
}

int ask_ping(struct session *session, uint64_t *round_trip_ns)
{
	return session->control ? kv_control_ping(session->control, round_trip_ns)
				: kv_client_ping(session->client, round_trip_ns);
}

int ask_stats(struct session *session, char **text)
{
	return session->control ? kv_control_stats(session->control, text)
				: kv_client_stats(session->client, text);
}

void ask_begin(void)
{
	refusal[0] = '\0';
}
