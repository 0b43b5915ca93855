/*
 * Put and compare-and-swap: a value inside a message, by the data plane, or in chunks where neither
 * will do. A put without a condition is the service's Put, one with a condition its Cas; in chunks
 * both are PutStream.
 *
 * As in values.c, a call with a location is repeated here, after the link was closed, and never by
 * control_ask().
 */
#include <inttypes.h>
#include <string.h>

#include "control/client/internal.h"

#define TRIES	       4
#define MESSAGE_MARGIN 512u /* what a request has beside key and value, at most */

/* A put under way. */
struct deposit {
	ProtobufCBinaryData key;
	const void *value;
	size_t length;
	kv_put_options_t options;
	uint64_t deadline_ns;

	/* What came of it, if the status is KV_OK. */
	bool is_done;
	uint64_t version;
};

static bool is_new(const struct deposit *deposit)
{
	return deposit->options.condition == KV_IF_ABSENT;
}

/* ------------------------------------------------------------------------------------------
 * One call
 */

static bool take_put(void *context, const uint8_t *bytes, size_t length)
{
	struct deposit *deposit = context;
	KvCache__PutResponse *response = kv_cache__put_response__unpack(NULL, length, bytes);

	if (!response)
		return false;
	deposit->is_done = response->success;
	deposit->version = response->version;
	kv_cache__put_response__free_unpacked(response, NULL);
	return true;
}

static bool take_cas(void *context, const uint8_t *bytes, size_t length)
{
	struct deposit *deposit = context;
	KvCache__CasResponse *response = kv_cache__cas_response__unpack(NULL, length, bytes);

	if (!response)
		return false;
	deposit->is_done = response->success;
	deposit->version = response->version;
	kv_cache__cas_response__free_unpacked(response, NULL);
	return true;
}

static bool take_streamed(void *context, const uint8_t *bytes, size_t length)
{
	struct deposit *deposit = context;
	KvCache__PutStreamResponse *response =
		kv_cache__put_stream_response__unpack(NULL, length, bytes);

	if (!response)
		return false;
	deposit->is_done = response->success;
	deposit->version = response->version;
	kv_cache__put_stream_response__free_unpacked(response, NULL);
	return true;
}

/* The value is in the message, or at the location. */
static int ask_put(kv_control_t *control, struct deposit *deposit, KvCache__ValueLocation *location,
		   struct control_ask *result)
{
	ProtobufCBinaryData value = {deposit->length, (uint8_t *)deposit->value};
	struct control_ask ask = {
		.changes_something = true,
		.is_once = location != NULL,
		.context = deposit,
		.deadline_ns = deposit->deadline_ns,
	};
	KvCache__PutRequest put;
	KvCache__CasRequest cas;
	int status;

	kv_cache__put_request__init(&put);
	kv_cache__cas_request__init(&cas);
	if (deposit->options.condition == KV_ALWAYS) {
		put.key = deposit->key;
		put.ttl_ms = deposit->options.ttl_ms;
		put.value_source_case = KV_CACHE__PUT_REQUEST__VALUE_SOURCE_INLINE_VALUE;
		if (location) {
			put.value_source_case = KV_CACHE__PUT_REQUEST__VALUE_SOURCE_RDMA_LOCATION;
			put.rdma_location = location;
		} else {
			put.inline_value = value;
		}
		ask.path = "/kv_cache.KvCacheService/Put";
		ask.request = &put.base;
		ask.take = take_put;
	} else {
		cas.key = deposit->key;
		cas.ttl_ms = deposit->options.ttl_ms;
		cas.expected_version = is_new(deposit) ? 0 : deposit->options.version;
		if (location)
			cas.rdma_location = location;
		else
			cas.value = value;
		ask.path = "/kv_cache.KvCacheService/Cas";
		ask.request = &cas.base;
		ask.take = take_cas;
	}
	status = control_ask(control, &ask);
	ask.request = NULL;
	*result = ask;
	return status;
}

static int put_in_chunks(kv_control_t *control, struct deposit *deposit)
{
	KvCache__PutStreamHeader header = KV_CACHE__PUT_STREAM_HEADER__INIT;
	KvCache__PutStreamRequest request;
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/PutStream",
		.request = &request.base,
		.stream = deposit->value,
		.stream_length = deposit->length,
		.is_stream = true,
		.changes_something = true,
		.take = take_streamed,
		.context = deposit,
		.deadline_ns = deposit->deadline_ns,
	};

	kv_cache__put_stream_request__init(&request);
	header.key = deposit->key;
	header.value_length = deposit->length;
	header.ttl_ms = deposit->options.ttl_ms;
	if (is_new(deposit))
		header.condition = KV_CACHE__PUT_STREAM_HEADER__CONDITION__IF_ABSENT;
	else if (deposit->options.condition == KV_IF_VERSION)
		header.condition = KV_CACHE__PUT_STREAM_HEADER__CONDITION__IF_VERSION;
	header.expected_version = deposit->options.version;
	request.part_case = KV_CACHE__PUT_STREAM_REQUEST__PART_HEADER;
	request.header = &header;
	return control_ask(control, &ask);
}

/* ------------------------------------------------------------------------------------------
 * The way
 */

/* By the data plane. *again: the link was lost before anything was changed. */
static int put_from(kv_control_t *control, struct deposit *deposit,
		    const struct memory_place *place, bool *again)
{
	struct control_location location;
	struct control_ask ask;
	int status;

	status = ask_put(control, deposit,
			 control_location(control, &location, place, deposit->length), &ask);
	*again = control_again(control, &ask, status, deposit->deadline_ns);
	control->path = KV_PATH_RENDEZVOUS;
	return status;
}

static int put_by_messages(kv_control_t *control, struct deposit *deposit)
{
	struct control_ask ask;

	control->path = KV_PATH_INLINE;
	if (deposit->length + deposit->key.len + MESSAGE_MARGIN > control->plane.max_message)
		return put_in_chunks(control, deposit);
	return ask_put(control, deposit, NULL, &ask);
}

static int run_put(kv_control_t *control, struct deposit *deposit)
{
	int status = KV_INTERNAL;

	for (int i = 0; i < TRIES; i++) {
		struct memory_place place;
		bool is_taken = false, again = false;

		if (deposit->length < control_limit(control) ||
		    !plane_is_ready(control, deposit->deadline_ns))
			return put_by_messages(control, deposit);
		if (!plane_memory_find(control, deposit->value, deposit->length, &place)) {
			is_taken = plane_memory_take(control, deposit->length, true,
						     deposit->deadline_ns, &place);
			if (!is_taken)
				return put_by_messages(control, deposit);
			memcpy(place.bytes, deposit->value, deposit->length);
		}
		if (!place.buffer->rkey)
			again = true; /* the link went while it was made */
		else
			status = put_from(control, deposit, &place, &again);
		if (is_taken)
			plane_memory_give(control, &place, deposit->deadline_ns);
		if (!again)
			return status;
	}
	return status;
}

/* ------------------------------------------------------------------------------------------
 * The operations
 */

/* What a condition that did not hold means. */
static int not_done(kv_control_t *control, const struct deposit *deposit)
{
	if (deposit->options.condition == KV_ALWAYS)
		return control_error(control, KV_PROTOCOL, "an answer that makes no sense");
	if (is_new(deposit))
		return control_error(control, KV_EXISTS, "the key is there");
	return deposit->version
		       ? control_error(control, KV_CAS_FAILED, "the key has another version")
		       : control_error(control, KV_NOT_FOUND, "no such key");
}

int kv_control_put_with(kv_control_t *control, const void *key, size_t key_length,
			const void *value, size_t value_length, const kv_put_options_t *options,
			kv_info_t *info)
{
	struct deposit deposit = {
		.key = {key_length, (uint8_t *)key}, .value = value, .length = value_length};
	int status = control_check_key(control, key_length);

	if (status != KV_OK)
		return status;
	if (options)
		deposit.options = *options;
	/* Version 0 would mean that there must be none. No value ever has it. */
	if (deposit.options.condition == KV_IF_VERSION && !deposit.options.version)
		return control_error(control, KV_INVALID, "no value has version 0");
	deposit.deadline_ns = control_deadline(control);
	plane_keep_up(control, deposit.deadline_ns);
	status = run_put(control, &deposit);
	if (status != KV_OK)
		return status;
	if (info && deposit.is_done)
		*info = (kv_info_t){deposit.version, value_length, deposit.options.ttl_ms};
	else if (info && deposit.version)
		*info = (kv_info_t){.version = deposit.version};
	return deposit.is_done ? KV_OK : not_done(control, &deposit);
}

int kv_control_put(kv_control_t *control, const void *key, size_t key_length, const void *value,
		   size_t value_length)
{
	return kv_control_put_with(control, key, key_length, value, value_length, NULL, NULL);
}

int kv_control_cas(kv_control_t *control, const void *key, size_t key_length, uint64_t expected,
		   const void *value, size_t value_length, uint64_t *version)
{
	kv_put_options_t options = {.condition = KV_IF_VERSION, .version = expected};
	kv_info_t info;
	int status =
		kv_control_put_with(control, key, key_length, value, value_length, &options, &info);

	if (version && (status == KV_OK || status == KV_CAS_FAILED))
		*version = info.version;
	return status;
}
