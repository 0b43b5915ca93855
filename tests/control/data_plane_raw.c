/* Calls as nobody should send them: see data_plane_raw.h. */
#include "data_plane_raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static bool take_get(void *context, const uint8_t *bytes, size_t length)
{
	KvCache__GetResponse **response = context;

	if (*response)
		kv_cache__get_response__free_unpacked(*response, NULL);
	*response = kv_cache__get_response__unpack(NULL, length, bytes);
	return *response != NULL;
}

static bool take_nothing(void *context, const uint8_t *bytes, size_t length)
{
	(void)context;
	(void)bytes;
	(void)length;
	return true;
}

struct place place_of(kv_control_t *control, size_t offset, size_t length)
{
	const struct memory_buffer *buffer = &control->plane.buffers[0];
	struct place place = {
		.node_id = control->plane.id,
		.ptr = (uintptr_t)buffer->base,
		.rkey = buffer->rkey,
		.offset = offset,
		.length = length,
		.keys = 1,
	};

	return place;
}

struct raw_location {
	KvCache__ValueLocation location;
	KvCache__MemoryRegionDescriptor mr;
	KvCache__DomainAddressKey keys[2], *pointers[2];
};

static KvCache__ValueLocation *raw_location(struct raw_location *raw, const struct place *place)
{
	kv_cache__value_location__init(&raw->location);
	kv_cache__memory_region_descriptor__init(&raw->mr);
	for (unsigned i = 0; i < 2; i++) {
		kv_cache__domain_address_key__init(&raw->keys[i]);
		raw->pointers[i] = &raw->keys[i];
	}
	raw->keys[0].rkey = place->rkey;
	raw->keys[1].rkey = place->second_rkey;
	raw->mr.ptr = place->ptr;
	raw->mr.addr_rkey_list = raw->pointers;
	raw->mr.n_addr_rkey_list = place->keys;
	raw->location.node_id = place->node_id;
	raw->location.mr_descriptor = &raw->mr;
	raw->location.offset = place->offset;
	raw->location.length = place->length;
	return &raw->location;
}

uint64_t told_length;

enum grpc_status raw_get(kv_control_t *control, const char *key, const struct place *place,
			 uint64_t timeout_ms, KvCache__GetResponse **response)
{
	KvCache__GetRequest request = KV_CACHE__GET_REQUEST__INIT;
	KvCache__GetResponse *own = NULL;
	struct raw_location raw;
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/Get",
		.request = &request.base,
		.is_once = true,
		.take = take_get,
		.context = response ? response : &own,
		.deadline_ns = timeout_ms ? clock_now_ns() + timeout_ms * 1000000u : 0,
	};

	request.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)key};
	request.response_location = raw_location(&raw, place);
	(void)control_ask(control, &ask);
	told_length = ask.value_length;
	if (own)
		kv_cache__get_response__free_unpacked(own, NULL);
	return ask.is_answered ? ask.status : GRPC_CANCELLED;
}

enum grpc_status raw_put(kv_control_t *control, const char *key, const struct place *place,
			 uint64_t timeout_ms)
{
	KvCache__PutRequest request;
	struct raw_location raw;
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/Put",
		.request = &request.base,
		.is_once = true,
		.take = take_nothing,
		.deadline_ns = timeout_ms ? clock_now_ns() + timeout_ms * 1000000u : 0,
	};

	kv_cache__put_request__init(&request);
	request.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)key};
	request.value_source_case = KV_CACHE__PUT_REQUEST__VALUE_SOURCE_RDMA_LOCATION;
	request.rdma_location = raw_location(&raw, place);
	(void)control_ask(control, &ask);
	return ask.is_answered ? ask.status : GRPC_CANCELLED;
}

static bool take_registered(void *context, const uint8_t *bytes, size_t length)
{
	struct registered *registered = context;
	KvCache__RegisterClientResponse *response =
		kv_cache__register_client_response__unpack(NULL, length, bytes);

	if (!response)
		return false;
	registered->token_length = response->link_token.len;
	memcpy(registered->token, response->link_token.data, response->link_token.len);
	for (size_t i = 0; i < response->n_server_domain_addresses; i++) {
		const ProtobufCBinaryData *address = &response->server_domain_addresses[i];
		const char *colon = memchr(address->data, ':', address->len);

		snprintf(registered->address, sizeof(registered->address), "%.*s",
			 (int)(address->len - (size_t)(colon + 1 - (const char *)address->data)),
			 colon + 1);
	}
	kv_cache__register_client_response__free_unpacked(response, NULL);
	return true;
}

enum grpc_status raw_register(kv_control_t *control, uint32_t id, const struct registered *before,
			      struct registered *registered)
{
	KvCache__RegisterClientRequest request = KV_CACHE__REGISTER_CLIENT_REQUEST__INIT;
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/RegisterClient",
		.request = &request.base,
		.take = take_registered,
		.context = registered,
	};

	request.client_id = id;
	if (before)
		request.link_token =
			(ProtobufCBinaryData){PLANE_TOKEN_SIZE, (uint8_t *)before->token};
	(void)control_ask(control, &ask);
	return ask.status;
}

void put_there(kv_control_t *control, size_t length)
{
	uint8_t *value = malloc(length);

	CHECK(value);
	value_fill(value, length, 7);
	CHECK_KV(control, kv_control_put(control, "there", 5, value, length), KV_OK);
	free(value);
}
