/*
 * Scan: all keys, a batch of them in each response. The next batch is made when the client has
 * taken the one before: a scan of a large store that nobody reads costs one batch of memory.
 *
 * The store calls us back with a bucket locked, so keys are copied there and packed afterwards. It
 * hands out all keys of a bucket that share a tag together, and begins with the first of them again
 * if we stop at another: room for all of them is there beyond what a batch should have. Mostly they
 * are one or two, and memory that nobody writes to costs nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "control/server/internal.h"

#define BATCH_DEFAULT 256u
#define BATCH_MOST    4096u
#define BATCH_BYTES   (64u << 10) /* of keys */
#define SPARE	      STORE_SCAN_TOGETHER
#define TRIES	      4u /* batches of which no key has the prefix, before others get a turn */

struct scan {
	uint64_t cursor, left;
	unsigned batch;
	size_t prefix_length;
	uint8_t *prefix;
	/* The batch that is being made. */
	struct kv_control_server *control;
	unsigned count, seen;
	size_t bytes_used;
	KvCache__ScanEntry *entries;
	KvCache__ScanEntry **pointers;
	uint8_t *bytes; /* BATCH_BYTES, and room for SPARE keys */
};

static bool add_key(void *context, const void *key, size_t key_length,
		    const struct store_info *info)
{
	struct scan *scan = context;
	KvCache__ScanEntry *entry = &scan->entries[scan->count];

	scan->seen++;
	if (key_length < scan->prefix_length || memcmp(key, scan->prefix, scan->prefix_length) != 0)
		return true;
	if (scan->count == scan->batch + SPARE ||
	    scan->bytes_used + key_length > BATCH_BYTES + SPARE * KV_MAX_KEY)
		return false;
	kv_cache__scan_entry__init(entry);
	entry->key.data = memcpy(scan->bytes + scan->bytes_used, key, key_length);
	entry->key.len = key_length;
	entry->version = info->version;
	entry->value_length = info->value_length;
	/* When it ends, for now; the clock is not asked while a bucket is locked. */
	entry->ttl_ms = info->expires_ms;
	scan->pointers[scan->count++] = entry;
	scan->bytes_used += key_length;
	return true;
}

/* Gathers a batch. */
static void fill(struct scan *scan)
{
	scan->count = 0;
	scan->bytes_used = 0;
	for (unsigned i = 0; i < TRIES; i++) {
		unsigned wanted = scan->batch - scan->count;

		scan->seen = 0;
		store_scan(scan->control->worker, &scan->cursor, wanted, add_key, scan);
		if (!scan->cursor || scan->count >= scan->batch || scan->bytes_used >= BATCH_BYTES)
			break;
	}
	for (unsigned i = 0; i < scan->count; i++) {
		struct store_info info = {.expires_ms = scan->entries[i].ttl_ms};

		scan->entries[i].ttl_ms = control_ttl_ms(scan->control, &info);
	}
}

static void more(struct rpc *rpc, void *context)
{
	KvCache__ScanResponse response = KV_CACHE__SCAN_RESPONSE__INIT;
	struct scan *scan = context;
	bool is_last;

	if (scan->left < scan->batch)
		scan->batch = (unsigned)scan->left;
	fill(scan);
	scan->left -= scan->count < scan->left ? scan->count : scan->left;
	is_last = !scan->cursor || !scan->left;
	response.entries = scan->pointers;
	response.n_entries = scan->count;
	response.cursor = scan->cursor;
	if (!scan->count && !is_last)
		rpc_ask_again(rpc);
	else if (rpc_send(rpc, &response.base) && is_last)
		rpc_finish(rpc, GRPC_OK, "%s", "");
}

static void done(void *context)
{
	struct scan *scan = context;

	free(scan->prefix);
	free(scan->entries);
	free(scan->pointers);
	free(scan->bytes);
	free(scan);
}

void method_scan(struct rpc *rpc, const ProtobufCMessage *message)
{
	const KvCache__ScanRequest *request = (const KvCache__ScanRequest *)message;
	struct scan *scan = calloc(1, sizeof(*scan));
	size_t places;

	if (!scan)
		goto no_memory;
	scan->control = rpc->control;
	scan->cursor = request->cursor;
	scan->left = request->limit ? request->limit : UINT64_MAX;
	scan->batch = request->batch ? request->batch : BATCH_DEFAULT;
	if (scan->batch > BATCH_MOST)
		scan->batch = BATCH_MOST;
	places = scan->batch + SPARE;
	scan->prefix_length = request->prefix.len;
	scan->prefix = malloc(scan->prefix_length + 1);
	scan->entries = calloc(places, sizeof(*scan->entries));
	scan->pointers = calloc(places, sizeof(KvCache__ScanEntry *));
	scan->bytes = malloc(BATCH_BYTES + SPARE * KV_MAX_KEY);
	if (!scan->prefix || !scan->entries || !scan->pointers || !scan->bytes)
		goto no_memory;
	if (scan->prefix_length)
		memcpy(scan->prefix, request->prefix.data, scan->prefix_length);
	rpc_stream(rpc, more, done, scan);
	return;
no_memory:
	if (scan)
		done(scan);
	rpc_finish(rpc, GRPC_RESOURCE_EXHAUSTED, "no memory for a scan");
}
