/*
 * The operations without a value: one call each.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/client/internal.h"

/* ------------------------------------------------------------------------------------------
 * Delete and touch
 */

static bool take_deleted(void *context, const uint8_t *bytes, size_t length)
{
	KvCache__DeleteResponse *response = kv_cache__delete_response__unpack(NULL, length, bytes);

	if (!response)
		return false;
	*(bool *)context = response->key_existed;
	kv_cache__delete_response__free_unpacked(response, NULL);
	return true;
}

int kv_control_delete_version(kv_control_t *control, const void *key, size_t key_length,
			      uint64_t version)
{
	KvCache__DeleteRequest request = KV_CACHE__DELETE_REQUEST__INIT;
	bool was_there = false;
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/Delete",
		.request = &request.base,
		.changes_something = true,
		.take = take_deleted,
		.context = &was_there,
	};
	int status = control_check_key(control, key_length);

	if (status != KV_OK)
		return status;
	ask.deadline_ns = control_deadline(control);
	plane_keep_up(control, ask.deadline_ns);
	request.key = (ProtobufCBinaryData){key_length, (uint8_t *)key};
	request.version = version;
	status = control_ask(control, &ask);
	if (status != KV_OK)
		return status;
	return was_there ? KV_OK : control_error(control, KV_NOT_FOUND, "no such key");
}

int kv_control_delete(kv_control_t *control, const void *key, size_t key_length)
{
	return kv_control_delete_version(control, key, key_length, 0);
}

static bool take_any(void *context, const uint8_t *bytes, size_t length)
{
	(void)context;
	(void)bytes;
	(void)length;
	return true;
}

int kv_control_touch(kv_control_t *control, const void *key, size_t key_length, uint64_t ttl_ms)
{
	KvCache__TouchRequest request = KV_CACHE__TOUCH_REQUEST__INIT;
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/Touch",
		.request = &request.base,
		.changes_something = true,
		.take = take_any,
	};
	int status = control_check_key(control, key_length);

	if (status != KV_OK)
		return status;
	ask.deadline_ns = control_deadline(control);
	plane_keep_up(control, ask.deadline_ns);
	request.key = (ProtobufCBinaryData){key_length, (uint8_t *)key};
	request.ttl_ms = ttl_ms;
	return control_ask(control, &ask);
}

/* ------------------------------------------------------------------------------------------
 * Scan
 */

struct scan {
	kv_scan_fn fn;
	void *context;
	uint64_t cursor;
};

static bool take_keys(void *context, const uint8_t *bytes, size_t length)
{
	struct scan *scan = context;
	KvCache__ScanResponse *response = kv_cache__scan_response__unpack(NULL, length, bytes);

	if (!response)
		return false;
	for (size_t i = 0; i < response->n_entries; i++) {
		const KvCache__ScanEntry *entry = response->entries[i];
		kv_info_t info = {entry->version, entry->value_length, entry->ttl_ms};

		scan->fn(scan->context, entry->key.data, entry->key.len, &info);
	}
	scan->cursor = response->cursor;
	kv_cache__scan_response__free_unpacked(response, NULL);
	return true;
}

int kv_control_scan(kv_control_t *control, const void *prefix, size_t prefix_length,
		    uint64_t *cursor, size_t count, kv_scan_fn fn, void *context)
{
	KvCache__ScanRequest request = KV_CACHE__SCAN_REQUEST__INIT;
	struct scan scan = {.fn = fn, .context = context};
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/Scan",
		.request = &request.base,
		.take = take_keys,
		.context = &scan,
	};
	int status;

	if (!count)
		return control_error(control, KV_INVALID, "no key is to be told");
	ask.deadline_ns = control_deadline(control);
	plane_keep_up(control, ask.deadline_ns);
	request.prefix = (ProtobufCBinaryData){prefix ? prefix_length : 0, (uint8_t *)prefix};
	request.cursor = *cursor;
	request.limit = count;
	status = control_ask(control, &ask);
	if (status == KV_OK)
		*cursor = scan.cursor;
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Stats
 */

static bool take_figures(void *context, const uint8_t *bytes, size_t length)
{
	FILE *file = context;
	KvCache__StatsResponse *response = kv_cache__stats_response__unpack(NULL, length, bytes);

	if (!response)
		return false;
	for (size_t i = 0; i < response->n_figures; i++) {
		const KvCache__Figure *figure = response->figures[i];

		if (figure->value_case == KV_CACHE__FIGURE__VALUE_TEXT)
			fprintf(file, "%s %s\n", figure->name, figure->text);
		else
			fprintf(file, "%s %" PRIu64 "\n", figure->name, figure->number);
	}
	kv_cache__stats_response__free_unpacked(response, NULL);
	return true;
}

int kv_control_stats(kv_control_t *control, char **text)
{
	KvCache__StatsRequest request = KV_CACHE__STATS_REQUEST__INIT;
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/Stats",
		.request = &request.base,
		.take = take_figures,
	};
	char *all = NULL;
	size_t length;
	FILE *file = open_memstream(&all, &length);
	int status;

	if (!file)
		return control_error(control, KV_NO_MEMORY, "no memory for figures");
	ask.deadline_ns = control_deadline(control);
	plane_keep_up(control, ask.deadline_ns);
	ask.context = file;
	status = control_ask(control, &ask);
	if (fclose(file) && status == KV_OK)
		status = control_error(control, KV_NO_MEMORY, "no memory for figures");
	if (status == KV_OK)
		*text = all;
	else
		free(all);
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Ping
 */

int control_ping(kv_control_t *control, uint64_t deadline_ns, uint64_t *round_trip_ns)
{
	uint64_t begun_ns;
	int status = control_revive(control, deadline_ns);

	if (status != KV_OK)
		return status;
	plane_keep_up(control, deadline_ns);
	control->channel.is_ponged = false;
	begun_ns = clock_now_ns();
	if (nghttp2_submit_ping(control->channel.session, NGHTTP2_FLAG_NONE, NULL))
		return control_error(control, KV_NO_MEMORY, "no memory for a ping");
	while (!control->channel.is_ponged && channel_turn(control, begun_ns, deadline_ns))
		;
	if (!control->channel.is_ponged)
		return control->channel.is_lost
			       ? control_error(control, KV_DISCONNECTED, "%s: %s",
					       control->url.authority, control->channel.why)
			       : control_error(control, KV_TIMEOUT, "%s: no answer in time",
					       control->url.authority);
	if (round_trip_ns)
		*round_trip_ns = clock_now_ns() - begun_ns;
	return KV_OK;
}

int kv_control_ping(kv_control_t *control, uint64_t *round_trip_ns)
{
	return control_ping(control, control_deadline(control), round_trip_ns);
}
