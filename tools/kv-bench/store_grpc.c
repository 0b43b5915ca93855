/*
 * Our own store by gRPC, by control.h: calls over HTTP/2, values by the data plane.
 *
 * A get lands in memory of the library, where the server writes it, and stays there: that is what
 * the data plane is for. A put is from the caller's memory, as programs have it. There is one call
 * at a time, so nothing is submitted.
 */
#include <remora/control.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/flag_words.h"
#include "store.h"

struct grpc_store {
	struct store store;
	kv_control_t *control;
	size_t value_max; /* of all sizes that are measured */
	uint8_t *room;	  /* value_max bytes, of the library */
	char transport[TRANSPORT_MAX];
	/* Scans. */
	uint64_t cursor;
	unsigned wanted, found;
	uint8_t scan_keys[BENCH_SCAN_MAX][KEY_SIZE_MAX];
	size_t key_lengths[BENCH_SCAN_MAX];
};

static struct grpc_store *grpc_of(struct store *store)
{
	return (struct grpc_store *)store;
}

static int result_of(struct grpc_store *grpc, int status)
{
	grpc->store.path = kv_control_last_path(grpc->control);
	if (status < 0 && status != KV_NOT_FOUND)
		store_fail(&grpc->store, status, flag_words(kv_control_error(grpc->control)));
	return status;
}

static void close_grpc(struct store *store)
{
	struct grpc_store *grpc = grpc_of(store);

	kv_control_close(grpc->control);
	free(grpc);
}

static struct store *open_grpc(const struct config *config, const struct contestant *contestant,
			       char error[STORE_ERROR_MAX])
{
	kv_control_options_t options = {
		.timeout_ms = config->options.timeout_ms,
		.buffer_size = config->options.buffer_size,
		.devices = config->options.device,
		.key_file = config->options.key_file,
		.ca_file = config->ca_file,
		.insecure = config->insecure,
	};
	struct grpc_store *grpc = calloc(1, sizeof(*grpc));
	int status;

	snprintf(error, STORE_ERROR_MAX, "no memory for a client of gRPC");
	if (!grpc)
		return NULL;
	status = kv_control_connect(contestant->address, &options, &grpc->control);
	if (status != KV_OK) {
		snprintf(error, STORE_ERROR_MAX, "connect: %s: %s", kv_strerror(status),
			 flag_words(kv_control_error(NULL)));
		free(grpc);
		return NULL;
	}
	grpc->value_max = config_largest_value(config);
	grpc->room = kv_control_alloc(grpc->control, grpc->value_max);
	snprintf(grpc->transport, sizeof(grpc->transport), "grpc+%s",
		 kv_control_transport(grpc->control));
	if (grpc->room)
		return &grpc->store;
	close_grpc(&grpc->store);
	return NULL;
}

static const char *transport_of(struct store *store)
{
	return grpc_of(store)->transport;
}

static kv_client_t *no_client(struct store *store)
{
	(void)store;
	return NULL;
}

static int get_value(struct store *store, const uint8_t *key, uint8_t *room, const uint8_t **value,
		     size_t *length)
{
	struct grpc_store *grpc = grpc_of(store);

	(void)room;
	*length = store->value_size;
	*value = grpc->room;
	return result_of(grpc,
			 kv_control_get(grpc->control, key, store->key_size, grpc->room, length));
}

static int put_value(struct store *store, const uint8_t *key, const uint8_t *value, size_t length,
		     uint64_t ttl_ms)
{
	struct grpc_store *grpc = grpc_of(store);
	kv_put_options_t options = {.ttl_ms = ttl_ms};

	return result_of(grpc, kv_control_put_with(grpc->control, key, store->key_size, value,
						   length, ttl_ms ? &options : NULL, NULL));
}

static void note_key(void *context, const void *key, size_t key_length, const kv_info_t *info)
{
	struct grpc_store *grpc = context;

	(void)info;
	if (grpc->found >= grpc->wanted || key_length > KEY_SIZE_MAX)
		return;
	memcpy(grpc->scan_keys[grpc->found], key, key_length);
	grpc->key_lengths[grpc->found++] = key_length;
}

/* Values of strangers may be longer than ours: those are left out. */
static int scan_some(struct store *store, unsigned count, uint64_t *bytes)
{
	struct grpc_store *grpc = grpc_of(store);
	int status;

	grpc->found = 0;
	grpc->wanted = count;
	status = kv_control_scan(grpc->control, NULL, 0, &grpc->cursor, count, note_key, grpc);
	for (unsigned i = 0; status == KV_OK && i < grpc->found; i++) {
		size_t length = grpc->value_max;
		int got = kv_control_get(grpc->control, grpc->scan_keys[i], grpc->key_lengths[i],
					 grpc->room, &length);

		if (got == KV_OK)
			*bytes += length;
		else if (got != KV_NOT_FOUND && got != KV_BUFFER_TOO_SMALL)
			status = got;
	}
	return result_of(grpc, status);
}

static int remove_keys(struct store *store, const struct block *block, size_t count)
{
	struct grpc_store *grpc = grpc_of(store);
	int status = KV_OK;

	for (size_t i = 0; (status == KV_OK || status == KV_NOT_FOUND) && i < count; i++)
		status = kv_control_delete(grpc->control, block_key(block, i), store->key_size);
	return result_of(grpc, status == KV_NOT_FOUND ? KV_OK : status);
}

const struct store_ops store_grpc_ops = {
	.provider = "",
	.open = open_grpc,
	.close = close_grpc,
	.transport = transport_of,
	.client = no_client,
	.get = get_value,
	.put = put_value,
	.scan = scan_some,
	.remove = remove_keys,
};
