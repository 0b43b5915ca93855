/*
 * Operations that are one request and one reply, and what is made of several of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "client/internal.h"

#define FIRST_ROOM  512u
#define STATS_LIMIT (1u << 20)
#define MAX_SCAN    ((size_t)1 << 20)
/* Keys that share a place are not that many. */
#define SCAN_LIMIT (16u << 20)

/* Runs a request with a key. */
static int ask_key(struct kv_client *client, unsigned op, const void *key, size_t key_length,
		   uint64_t version, uint64_t argument, struct kv_reply *reply)
{
	struct call *call;
	int status;

	if (!client)
		return KV_INVALID;
	if (!key_is_right(key, key_length))
		return client_bad_key(client, key_length);
	client_improve(client);
	status = call_begin(client, op, key, key_length, true, &call);
	if (status != KV_OK)
		return status;
	call->request.version = version;
	call->request.argument = argument;
	status = call_finish(client, call, reply);
	if (status == KV_NOT_FOUND)
		locations_forget(&client->locations, client_hash(key, key_length));
	return status;
}

int kv_client_delete_version(kv_client_t *client, const void *key, size_t key_length,
			     uint64_t version, kv_info_t *info)
{
	struct kv_reply reply;
	int status = ask_key(client, KV_OP_DELETE, key, key_length, version, 0, &reply);

	if (status == KV_OK)
		locations_forget(&client->locations, client_hash(key, key_length));
	if (status == KV_CAS_FAILED && info)
		info_from_reply(&reply, info);
	return status;
}

int kv_client_delete(kv_client_t *client, const void *key, size_t key_length)
{
	return kv_client_delete_version(client, key, key_length, 0, NULL);
}

int kv_client_touch(kv_client_t *client, const void *key, size_t key_length, uint64_t ttl_ms)
{
	return ask_key(client, KV_OP_EXPIRE, key, key_length, 0, ttl_ms, NULL);
}

int kv_client_stat(kv_client_t *client, const void *key, size_t key_length, kv_info_t *info)
{
	struct kv_reply reply;
	int status = ask_key(client, KV_OP_STAT, key, key_length, 0, 0, &reply);

	if (status == KV_OK && info)
		info_from_reply(&reply, info);
	return status;
}

int kv_client_exists(kv_client_t *client, const void *key, size_t key_length)
{
	return kv_client_stat(client, key, key_length, NULL);
}

int kv_client_ttl(kv_client_t *client, const void *key, size_t key_length, uint64_t *ttl_ms)
{
	kv_info_t info;
	int status = kv_client_stat(client, key, key_length, &info);

	if (status == KV_OK && ttl_ms)
		*ttl_ms = info.ttl_ms;
	return status;
}

static int ask(struct kv_client *client, unsigned op, uint64_t argument, uint64_t place,
	       call_take_fn take, void *context, struct kv_reply *reply)
{
	struct call *call;
	int status;

	client_improve(client);
	status = call_begin(client, op, NULL, 0, true, &call);
	if (status != KV_OK)
		return status;
	call->request.argument = argument;
	call->request.place = place;
	call->take = take;
	call->context = context;
	return call_finish(client, call, reply);
}

int kv_client_flush(kv_client_t *client)
{
	int status;

	if (!client)
		return KV_INVALID;
	status = ask(client, KV_OP_FLUSH, 0, 0, NULL, NULL, NULL);
	locations_clear(&client->locations);
	return status;
}

int kv_client_ping(kv_client_t *client, uint64_t *round_trip_ns)
{
	uint64_t begin = clock_now_ns();
	int status;

	if (!client)
		return KV_INVALID;
	status = ask(client, KV_OP_PING, 0, 0, NULL, NULL, NULL);
	if (status == KV_OK && round_trip_ns)
		*round_trip_ns = clock_now_ns() - begin;
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Answers of several parts: what has come so far is collected, and used when the reply is done
 * with, for the caller's function may use the client.
 */

struct collected {
	char *bytes;
	size_t length;
	bool is_short_of_memory;
};

static void collect(struct kv_client *client, struct call *call, const struct kv_reply_view *view)
{
	struct collected *collected = call->context;
	char *more;

	(void)client;
	if (call->status != KV_OK || !view->value || !collected)
		return;
	more = realloc(collected->bytes, collected->length + view->value_length + 1);
	if (!more) {
		collected->is_short_of_memory = true;
		return;
	}
	memcpy(more + collected->length, view->value, view->value_length);
	collected->bytes = more;
	collected->length += view->value_length;
	more[collected->length] = 0;
}

int kv_client_stats(kv_client_t *client, char **text)
{
	struct collected collected = {0};
	struct kv_reply reply = {0};
	uint64_t outer_ns;
	int status;

	if (!client || !text)
		return client_fail(client, KV_INVALID, "stats: nowhere to put the text");
	outer_ns = client_begin_operation(client);
	/* They count what this client has done by itself, too. */
	if (client->unseen_hits + client->unseen_misses)
		client_report(client, true);
	do {
		status = ask(client, KV_OP_STATS, reply.number, 0, collect, &collected, &reply);
		if (status == KV_OK && collected.is_short_of_memory)
			status = client_fail(client, KV_INTERNAL, "no memory for the figures");
	} while (status == KV_OK && reply.number && collected.length < STATS_LIMIT);
	client_end_operation(client, outer_ns);
	if (status == KV_OK && !collected.bytes)
		status = client_fail(client, KV_PROTOCOL, "no figures in the reply");
	if (status == KV_OK)
		*text = collected.bytes;
	else
		free(collected.bytes);
	return status;
}

/* Asks for keys, behind one of those at the cursor's place unless that is NULL. */
static int ask_scan(struct kv_client *client, uint64_t cursor, size_t count, const uint8_t *behind,
		    size_t behind_length, struct collected *collected, struct kv_reply *reply)
{
	struct call *call;
	int status = call_begin(client, KV_OP_SCAN, behind, behind_length, true, &call);

	if (status != KV_OK)
		return status;
	call->request.flags = KV_GO_BEHIND;
	call->request.argument = cursor;
	call->request.place = count;
	call->take = collect;
	call->context = collected;
	status = call_finish(client, call, reply);
	if (status == KV_OK && collected->is_short_of_memory)
		status = client_fail(client, KV_INTERNAL, "no memory for keys");
	return status;
}

/* Collects entries until the scan is not among keys that share a place: a cursor cannot tell how
 * far among them it has come. *reply is the last one. */
static int collect_entries(struct kv_client *client, uint64_t cursor, size_t count,
			   struct collected *collected, struct kv_reply *reply)
{
	const uint8_t *behind = NULL;
	size_t behind_length = 0, at = 0;

	for (;;) {
		struct kv_reply_view view = {0};
		struct kv_scan_entry entry;
		size_t before = at;
		int status =
			ask_scan(client, cursor, count, behind, behind_length, collected, reply);

		if (status != KV_OK || !(reply->flags & KV_AMONG))
			return status;
		view.value = (const uint8_t *)collected->bytes;
		view.value_length = collected->length;
		while (kv_next_scan_entry(&view, &at, &entry, &behind))
			behind_length = entry.key_length;
		if (at == before || at != collected->length || at > SCAN_LIMIT)
			return client_fail(client, KV_PROTOCOL, "a scan that does not go on");
		cursor = reply->number;
		/* The rest of this place, and no more than comes with it. */
		count = 1;
	}
}

int kv_client_scan(kv_client_t *client, uint64_t *cursor, size_t count, kv_scan_fn fn,
		   void *context)
{
	struct collected collected = {0};
	struct kv_scan_entry entry;
	struct kv_reply_view view = {0};
	struct kv_reply reply;
	const uint8_t *key;
	uint64_t outer_ns;
	size_t at = 0;
	int status;

	if (!client || !cursor || !fn)
		return client_fail(client, KV_INVALID, "scan: no cursor or no function");
	outer_ns = client_begin_operation(client);
	status = collect_entries(client, *cursor, MIN(count, MAX_SCAN), &collected, &reply);
	client_end_operation(client, outer_ns);
	if (status == KV_OK) {
		*cursor = reply.number;
		view.value = (const uint8_t *)collected.bytes;
		view.value_length = collected.length;
		while (kv_next_scan_entry(&view, &at, &entry, &key)) {
			struct kv_reply item = {.version = entry.version,
						.value_length = entry.value_length,
						.expires_ms = entry.expires_ms,
						.server_time_ms = reply.server_time_ms};
			kv_info_t info;

			info_from_reply(&item, &info);
			fn(context, key, entry.key_length, &info);
		}
	}
	free(collected.bytes);
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Made of gets and puts
 */

static int get_growing(struct kv_client *client, const void *key, size_t key_length, void **value,
		       size_t *length, kv_info_t *info)
{
	size_t room = FIRST_ROOM;

	for (;;) {
		/* One more for the 0 behind it. */
		char *bytes = malloc(room + 1);
		size_t found = room;
		int status;

		if (!bytes)
			return client_fail(client, KV_INTERNAL, "no memory for %zu bytes", room);
		status = kv_client_get_with(client, key, key_length, bytes, &found, info);
		if (status == KV_OK) {
			bytes[found] = 0;
			*value = bytes;
			*length = found;
			return KV_OK;
		}
		free(bytes);
		/* It may have grown again meanwhile. */
		if (status != KV_BUFFER_TOO_SMALL)
			return status;
		if (found >= PTRDIFF_MAX)
			return client_fail(client, KV_PROTOCOL, "a value of impossible length");
		room = found;
	}
}

int kv_client_get_alloc(kv_client_t *client, const void *key, size_t key_length, void **value,
			size_t *length, kv_info_t *info)
{
	uint64_t outer_ns;
	int status;

	if (!client || !value || !length)
		return client_fail(client, KV_INVALID, "get: nowhere to put the value");
	outer_ns = client_begin_operation(client);
	status = get_growing(client, key, key_length, value, length, info);
	client_end_operation(client, outer_ns);
	return status;
}

static int update_until_alone(struct kv_client *client, const void *key, size_t key_length,
			      kv_update_fn fn, void *context, kv_info_t *info)
{
	do {
		kv_put_options_t options = {.condition = KV_IF_VERSION};
		size_t length = 0, new_length = 0;
		const void *new_value = NULL;
		kv_info_t current = {0};
		uint64_t instance;
		void *value = NULL;
		int status =
			kv_client_get_alloc(client, key, key_length, &value, &length, &current);

		if (status == KV_NOT_FOUND)
			options.condition = KV_IF_ABSENT;
		else if (status != KV_OK)
			return status;
		options.version = current.version;
		/* If the put has to be sent to another store it fails, and all begins again. (If
		 * the key was absent, what is put is right for a key that is absent there.) */
		instance = client->instance;
		/* What lives on under the same key keeps its time to live. */
		options.ttl_ms = current.ttl_ms;
		status = fn(context, value, length, &new_value, &new_length);
		if (status != KV_OK) {
			free(value);
			return status;
		}
		client->version_instance = instance;
		status = kv_client_put_with(client, key, key_length, new_value, new_length,
					    &options, info);
		client->version_instance = 0;
		free(value);
		if (status != KV_EXISTS && status != KV_CAS_FAILED && status != KV_NOT_FOUND)
			return status;
	} while (!clock_passed(client_later_ns(client, client->deadline_ns)));
	return client_fail(client, KV_TIMEOUT, "others changed it again and again for %d ms",
			   client->options.timeout_ms);
}

int kv_client_update(kv_client_t *client, const void *key, size_t key_length, kv_update_fn fn,
		     void *context, kv_info_t *info)
{
	uint64_t outer_ns;
	int status;

	if (!client || !fn)
		return client_fail(client, KV_INVALID, "update: no function");
	outer_ns = client_begin_operation(client);
	status = update_until_alone(client, key, key_length, fn, context, info);
	client_end_operation(client, outer_ns);
	return status;
}
