/*
 * Get and stat: values inside messages, by the data plane, or in chunks where neither will do.
 *
 * A call with a location is never repeated by control_ask(): what an earlier one left under way
 * could still write to the same place. It is repeated here, after the link was closed, and with it
 * all access (see internal.h).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/client/internal.h"

#define TRIES 4

/* A get under way. */
struct fetch {
	const void *key;
	size_t key_length;
	uint64_t deadline_ns;
	size_t room;		   /* of the caller; SIZE_MAX: as much as it takes */
	uint8_t *to;		   /* the caller's memory; NULL: to be allocated */
	size_t wanted;		   /* room to take, once it is known how long the value is */
	bool is_stat;		   /* the value itself is not wanted */
	struct memory_place place; /* .buffer NULL: none */
	bool is_taken;		   /* the place is ours, to be given back */
	bool has_location;
	uint64_t offered; /* the room that the location named */
	KvCache__GetResponse *response;
	uint64_t value_length; /* UINT64_MAX: not known */
	bool is_answered;
	bool is_streamed; /* the value is in `to` already */
};

uint64_t control_limit(const kv_control_t *control)
{
	return control->options.inline_limit ? control->options.inline_limit
					     : control->plane.inline_limit;
}

/* ------------------------------------------------------------------------------------------
 * Locations
 */

KvCache__ValueLocation *control_location(kv_control_t *control, struct control_location *location,
					 const struct memory_place *place, uint64_t length)
{
	kv_cache__value_location__init(&location->location);
	kv_cache__memory_region_descriptor__init(&location->mr);
	kv_cache__domain_address_key__init(&location->key);
	location->key.rkey = place->buffer->rkey;
	location->keys[0] = &location->key;
	location->mr.ptr = (uintptr_t)place->buffer->base;
	location->mr.addr_rkey_list = location->keys;
	location->mr.n_addr_rkey_list = 1;
	location->location.node_id = control->plane.id;
	location->location.mr_descriptor = &location->mr;
	location->location.offset = place->offset;
	location->location.length = length;
	return &location->location;
}

/* Whether the answer says that nothing of the call is under way any more. Not DEADLINE_EXCEEDED,
 * for one: the server says so when the time is over, whatever its WRITE does. */
static bool is_settled(const struct control_ask *ask)
{
	if (!ask->is_answered || ask->is_nonsense)
		return false;
	switch (ask->status) {
	case GRPC_OK:
	case GRPC_NOT_FOUND:
	case GRPC_OUT_OF_RANGE:
	case GRPC_RESOURCE_EXHAUSTED:
	case GRPC_UNAUTHENTICATED:
	case GRPC_PERMISSION_DENIED:
	case GRPC_UNIMPLEMENTED:
		return true;
	default:
		return false;
	}
}

bool control_again(kv_control_t *control, const struct control_ask *ask, int status,
		   uint64_t deadline_ns)
{
	if (is_settled(ask) && status != KV_PROTOCOL) {
		control->plane.named_ns = clock_quick_ns();
		return false;
	}
	/* The server does not know us any more, or it may still use our memory. */
	plane_close(control);
	control->plane.retry_ns = 0;
	if (control->options.no_reconnect && !ask->is_answered)
		return false;
	return !clock_passed(deadline_ns) && (status == KV_INVALID || status == KV_DISCONNECTED);
}

/* ------------------------------------------------------------------------------------------
 * Get
 */

static bool take_value(void *context, const uint8_t *bytes, size_t length)
{
	struct fetch *fetch = context;

	if (fetch->response)
		return false; /* a second one */
	fetch->response = kv_cache__get_response__unpack(NULL, length, bytes);
	return fetch->response != NULL;
}

static void drop_response(struct fetch *fetch)
{
	if (fetch->response)
		kv_cache__get_response__free_unpacked(fetch->response, NULL);
	fetch->response = NULL;
}

static void drop_place(kv_control_t *control, struct fetch *fetch)
{
	if (fetch->is_taken)
		plane_memory_give(control, &fetch->place, fetch->deadline_ns);
	fetch->is_taken = false;
	fetch->place.buffer = NULL;
}

/* Where the value may be written, and how much. */
static uint64_t find_place(kv_control_t *control, struct fetch *fetch)
{
	size_t length = fetch->wanted, longest;

	if (fetch->is_stat || fetch->room < control_limit(control)) {
		/* What is longer does not fit anyway: its length is asked for by no room. */
		fetch->place = (struct memory_place){.buffer = &control->plane.buffers[0]};
		return 0;
	}
	if (fetch->to && plane_memory_find(control, fetch->to, fetch->room, &fetch->place))
		return fetch->room;
	if (!length) {
		longest = plane_memory_longest(control);
		length = fetch->room < longest ? fetch->room : longest;
	}
	fetch->is_taken = length && plane_memory_take(control, length, true, fetch->deadline_ns,
						      &fetch->place);
	if (fetch->is_taken && fetch->place.buffer->rkey)
		return length;
	drop_place(control, fetch);
	fetch->place = (struct memory_place){.buffer = &control->plane.buffers[0]};
	return 0;
}

/* Whether an answer that says OK can be true. */
static bool makes_sense(const struct fetch *fetch)
{
	const KvCache__GetResponse *response = fetch->response;

	if (!response)
		return false;
	/* What was pushed lies within the place, and nowhere else. */
	if (response->pushed)
		return fetch->has_location && response->value_length <= fetch->offered;
	return response->value.len == response->value_length;
}

/* One try. */
static int ask_get(kv_control_t *control, struct fetch *fetch, bool *again)
{
	KvCache__GetRequest request = KV_CACHE__GET_REQUEST__INIT;
	struct control_location location;
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/Get",
		.request = &request.base,
		.take = take_value,
		.context = fetch,
		.deadline_ns = fetch->deadline_ns,
	};
	int status;

	request.key = (ProtobufCBinaryData){fetch->key_length, (uint8_t *)fetch->key};
	fetch->has_location = false;
	fetch->offered = 0;
	if (plane_is_ready(control, fetch->deadline_ns)) {
		fetch->offered = find_place(control, fetch);
		fetch->has_location = fetch->place.buffer->rkey != 0;
		request.inline_limit = fetch->is_stat ? 0 : control_limit(control) - 1;
		if (fetch->has_location)
			request.response_location =
				control_location(control, &location, &fetch->place, fetch->offered);
		ask.is_once = fetch->has_location;
	}
	status = control_ask(control, &ask);
	if (status == KV_OK && !makes_sense(fetch))
		status = control_error(control, KV_PROTOCOL, "an answer that makes no sense");
	*again = fetch->has_location && control_again(control, &ask, status, fetch->deadline_ns);
	fetch->is_answered = ask.is_answered;
	fetch->value_length = ask.value_length;
	if (fetch->response && fetch->response->value_length)
		fetch->value_length = fetch->response->value_length;
	return status;
}

/* The value did not fit. Whether there is more room to be had. */
static bool take_more(const kv_control_t *control, struct fetch *fetch)
{
	if (!fetch->has_location || fetch->is_stat || fetch->value_length == UINT64_MAX ||
	    fetch->value_length > fetch->room || fetch->room < control_limit(control))
		return false;
	if (fetch->wanted >= fetch->value_length)
		return false; /* it was taken, and could not be had */
	fetch->wanted = fetch->value_length;
	return true;
}

/* What it means for the caller that the value is too long. */
static int too_long(kv_control_t *control, const struct fetch *fetch, int status)
{
	if (fetch->value_length == UINT64_MAX)
		return status;
	if (fetch->value_length > fetch->room)
		return control_error(control, KV_BUFFER_TOO_SMALL,
				     "the value has %" PRIu64 " bytes, and there is room for %zu",
				     fetch->value_length, fetch->room);
	return status;
}

/* The value is longer than a message: once more, in chunks. */
static int get_in_chunks(kv_control_t *control, struct fetch *fetch)
{
	struct control_stream stream = {
		.to = fetch->to, .room = fetch->room, .is_stat = fetch->is_stat};
	int status = control_get_stream(control, fetch->key, fetch->key_length, &stream);

	fetch->value_length = stream.value_length;
	if (status != KV_OK)
		return status;
	drop_response(fetch);
	fetch->response = malloc(sizeof(*fetch->response));
	if (!fetch->response) {
		if (!fetch->to)
			free(stream.to);
		return control_error(control, KV_NO_MEMORY, "no memory for an answer");
	}
	kv_cache__get_response__init(fetch->response);
	fetch->response->value_length = stream.value_length;
	fetch->response->version = stream.version;
	fetch->response->ttl_ms = stream.ttl_ms;
	fetch->to = stream.to;
	fetch->is_streamed = true;
	return KV_OK;
}

static int run_fetch(kv_control_t *control, struct fetch *fetch)
{
	int status = KV_INTERNAL;

	for (int i = 0; i < TRIES; i++) {
		bool again;

		drop_response(fetch);
		drop_place(control, fetch);
		status = ask_get(control, fetch, &again);
		if (again || (status == KV_BUFFER_TOO_SMALL && take_more(control, fetch)))
			continue;
		break;
	}
	control->path = fetch->has_location && fetch->response && fetch->response->pushed
				? KV_PATH_PUSH
				: KV_PATH_INLINE;
	if (status == KV_BUFFER_TOO_SMALL && fetch->is_stat && fetch->response)
		return KV_OK;
	if (status == KV_BUFFER_TOO_SMALL || status == KV_VALUE_TOO_LONG)
		status = too_long(control, fetch, status);
	if (status == KV_VALUE_TOO_LONG)
		status = get_in_chunks(control, fetch);
	return status;
}

static void fill_info(const struct fetch *fetch, kv_info_t *info)
{
	if (!info)
		return;
	info->version = fetch->response->version;
	info->length = fetch->response->value_length;
	info->ttl_ms = fetch->response->ttl_ms;
}

/* The bytes of the value, wherever they are. If it has none it may be NULL. */
static const uint8_t *value_of(const struct fetch *fetch)
{
	return fetch->response->pushed ? fetch->place.bytes : fetch->response->value.data;
}

/* Into the caller's memory. */
static int hand_over(kv_control_t *control, struct fetch *fetch, size_t *length)
{
	const uint8_t *value = value_of(fetch);
	uint64_t needed = fetch->response->value_length;

	*length = needed;
	if (fetch->is_streamed)
		return KV_OK;
	if (needed > fetch->room)
		return control_error(control, KV_BUFFER_TOO_SMALL,
				     "the value has %" PRIu64 " bytes, and there is room for %zu",
				     needed, fetch->room);
	if (!fetch->to) {
		fetch->to = needed < SIZE_MAX ? malloc(needed + 1) : NULL;
		if (!fetch->to)
			return control_error(control, KV_NO_MEMORY,
					     "no memory for %" PRIu64 " bytes", needed);
		fetch->to[needed] = '\0';
	}
	if (needed && value != fetch->to)
		memcpy(fetch->to, value, needed);
	return KV_OK;
}

static int get(kv_control_t *control, struct fetch *fetch, size_t *length, kv_info_t *info)
{
	int status = control_check_key(control, fetch->key_length);

	if (status != KV_OK)
		return status;
	fetch->deadline_ns = control_deadline(control);
	plane_keep_up(control, fetch->deadline_ns);
	status = run_fetch(control, fetch);
	if (status == KV_OK) {
		status = hand_over(control, fetch, length);
		if (status == KV_OK)
			fill_info(fetch, info);
	} else if (status == KV_BUFFER_TOO_SMALL && fetch->value_length != UINT64_MAX) {
		*length = fetch->value_length;
	}
	drop_response(fetch);
	drop_place(control, fetch);
	return status;
}

int kv_control_get_with(kv_control_t *control, const void *key, size_t key_length, void *value,
			size_t *length, kv_info_t *info)
{
	struct fetch fetch = {.key = key, .key_length = key_length, .room = *length, .to = value};
	uint8_t nothing;

	if (!value)
		fetch.to = &nothing, fetch.room = 0;
	return get(control, &fetch, length, info);
}

int kv_control_get(kv_control_t *control, const void *key, size_t key_length, void *value,
		   size_t *length)
{
	return kv_control_get_with(control, key, key_length, value, length, NULL);
}

int kv_control_get_alloc(kv_control_t *control, const void *key, size_t key_length, void **value,
			 size_t *length, kv_info_t *info)
{
	struct fetch fetch = {.key = key, .key_length = key_length, .room = SIZE_MAX};
	int status = get(control, &fetch, length, info);

	if (status == KV_OK)
		*value = fetch.to;
	return status;
}

int kv_control_stat(kv_control_t *control, const void *key, size_t key_length, kv_info_t *info)
{
	struct fetch fetch = {
		.key = key, .key_length = key_length, .room = SIZE_MAX, .is_stat = true};
	int status = control_check_key(control, key_length);

	if (status != KV_OK)
		return status;
	fetch.deadline_ns = control_deadline(control);
	plane_keep_up(control, fetch.deadline_ns);
	status = run_fetch(control, &fetch);
	if (status == KV_OK)
		fill_info(&fetch, info);
	drop_response(&fetch);
	drop_place(control, &fetch);
	return status;
}
