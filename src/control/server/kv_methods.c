/*
 * The methods of the store. Each makes its answer at once, from the store, in the loop's thread;
 * those with a place in the client's memory are handed to the data plane.
 *
 * A failure is told twice, in the response and as the call's status: clients that know the one
 * need not know the other.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/server/internal.h"

#define TTL_MOST_MS (UINT64_MAX / 4)

enum grpc_status control_store_status(enum store_status status)
{
	switch (status) {
	case STORE_OK:
		return GRPC_OK;
	case STORE_NOT_FOUND:
		return GRPC_NOT_FOUND;
	case STORE_EXISTS:
		return GRPC_ALREADY_EXISTS;
	case STORE_CONFLICT:
		return GRPC_ABORTED;
	case STORE_KEY_LENGTH:
	case STORE_NOT_A_NUMBER:
		return GRPC_INVALID_ARGUMENT;
	case STORE_VALUE_TOO_LONG:
	case STORE_NO_MEMORY:
	case STORE_TOO_MANY_PINS:
		return GRPC_RESOURCE_EXHAUSTED;
	case STORE_NO_ROOM:
	case STORE_OUT_OF_RANGE:
		return GRPC_OUT_OF_RANGE;
	case STORE_UNKNOWN:
		return GRPC_UNKNOWN;
	}
	return GRPC_INTERNAL;
}

const char *control_store_text(enum store_status status)
{
	switch (status) {
	case STORE_NOT_FOUND:
		return "no such key";
	case STORE_CONFLICT:
		return "the key has another version";
	case STORE_KEY_LENGTH:
		return "a key has 1 to 4096 bytes";
	case STORE_VALUE_TOO_LONG:
		return "the value is longer than the store can ever hold; give it more memory";
	case STORE_NO_MEMORY:
		return "the store is full, and nothing may or can be evicted";
	default:
		return status == STORE_OK ? "" : store_status_text(status);
	}
}

uint64_t control_ttl_ms(const struct kv_control_server *control, const struct store_info *info)
{
	uint64_t now_ms;

	if (!info->expires_ms)
		return 0;
	now_ms = store_clock_ms(control->store);
	/* It was alive when it was found. */
	return info->expires_ms > now_ms ? info->expires_ms - now_ms : 1;
}

uint64_t control_ttl_of(uint64_t ttl_seconds, uint64_t ttl_ms)
{
	if (!ttl_ms)
		ttl_ms = ttl_seconds > TTL_MOST_MS / 1000 ? TTL_MOST_MS : ttl_seconds * 1000;
	return ttl_ms < TTL_MOST_MS ? ttl_ms : TTL_MOST_MS;
}

/* ------------------------------------------------------------------------------------------
 * Get
 */

static void fill_get(const struct rpc *rpc, KvCache__GetResponse *response,
		     const struct store_info *info)
{
	response->success = true;
	response->value_length = info->value_length;
	response->version = info->version;
	response->ttl_ms = control_ttl_ms(rpc->control, info);
}

/* The value is longer than the buffer for short ones: it is packed from where it lies. */
static enum store_status get_long(struct rpc *rpc, const ProtobufCBinaryData *key,
				  KvCache__GetResponse *response)
{
	struct store_view view;
	enum store_status status = store_pin(rpc->control->worker, key->data, key->len, &view);

	/* Found before, and once more. */
	server_count_again(rpc->control->server);
	if (status != STORE_OK)
		return status;
	if (view.info.cell != STORE_NO_CELL) {
		/* It has become a counter meanwhile: short, but not to be looked at in place. */
		store_unpin(rpc->control->worker, &view);
		status = store_get(rpc->control->worker, key->data, key->len, rpc->control->value,
				   SHORT_VALUE, &view.info);
		if (status != STORE_OK)
			return status == STORE_NO_ROOM ? STORE_TOO_MANY_PINS : status;
		response->value.data = rpc->control->value;
		response->value.len = view.info.value_length;
		fill_get(rpc, response, &view.info);
		rpc_reply(rpc, &response->base, GRPC_OK, "%s", "");
		return STORE_OK;
	}
	fill_get(rpc, response, &view.info);
	response->value.data = (uint8_t *)view.value;
	response->value.len = view.length;
	if (view.length > rpc->control->options.max_message - GET_MARGIN)
		rpc_tell_length(rpc, view.length);
	rpc_reply(rpc, &response->base, GRPC_OK, "%s", "");
	store_unpin(rpc->control->worker, &view);
	return STORE_OK;
}

void method_get(struct rpc *rpc, const ProtobufCMessage *message)
{
	const KvCache__GetRequest *request = (const KvCache__GetRequest *)message;
	struct kv_control_server *control = rpc->control;
	KvCache__GetResponse response = KV_CACHE__GET_RESPONSE__INIT;
	struct store_info info;
	enum store_status status;

	if (request->response_location) {
		if (control->plane)
			data_plane_get(control->plane, rpc, request);
		else
			rpc_finish(rpc, GRPC_UNIMPLEMENTED, "this server pushes no values");
		return;
	}
	response.request_id = request->request_id;
	status = store_get(control->worker, request->key.data, request->key.len, control->value,
			   SHORT_VALUE, &info);
	if (status == STORE_NO_ROOM) {
		status = get_long(rpc, &request->key, &response);
		if (status == STORE_OK)
			return;
	} else if (status == STORE_OK) {
		response.value.data = control->value;
		response.value.len = info.value_length;
		fill_get(rpc, &response, &info);
	}
	if (status != STORE_OK)
		response.error_message = (char *)control_store_text(status);
	rpc_reply(rpc, &response.base, control_store_status(status), "%s",
		  control_store_text(status));
}

/* ------------------------------------------------------------------------------------------
 * What changes something
 */

/* Whether the request has a value that Get can answer. */
static bool check_value(struct rpc *rpc, const KvCache__PutRequest *request)
{
	uint32_t most = rpc->control->options.max_message - GET_MARGIN;

	if (request->value_source_case != KV_CACHE__PUT_REQUEST__VALUE_SOURCE_INLINE_VALUE) {
		rpc_finish(rpc, GRPC_INVALID_ARGUMENT,
			   "the request has no value: set inline_value, also if it is empty, or "
			   "rdma_location");
		return false;
	}
	if (request->inline_value.len <= most)
		return true;
	rpc_finish(rpc, GRPC_RESOURCE_EXHAUSTED,
		   "the value has %zu bytes, and inside a message at most %u; use PutStream",
		   request->inline_value.len, most);
	return false;
}

void method_put(struct rpc *rpc, const ProtobufCMessage *message)
{
	const KvCache__PutRequest *request = (const KvCache__PutRequest *)message;
	struct kv_control_server *control = rpc->control;
	KvCache__PutResponse response = KV_CACHE__PUT_RESPONSE__INIT;
	struct store_put put = {
		.key = request->key.data,
		.key_length = request->key.len,
		.ttl_ms = control_ttl_of(request->ttl_seconds, request->ttl_ms),
	};
	struct store_info info;
	enum store_status status;

	if (request->value_source_case == KV_CACHE__PUT_REQUEST__VALUE_SOURCE_RDMA_LOCATION) {
		if (control->plane)
			data_plane_put(control->plane, rpc, request->rdma_location, &put,
				       request->request_id);
		else
			rpc_finish(rpc, GRPC_UNIMPLEMENTED, "this server pulls no values");
		return;
	}
	if (!check_value(rpc, request))
		return;
	put.value = request->inline_value.data;
	put.value_length = request->inline_value.len;
	status = store_put(control->worker, &put, &info);
	response.request_id = request->request_id;
	response.success = status == STORE_OK;
	if (status == STORE_OK)
		response.version = info.version;
	else
		response.error_message = (char *)control_store_text(status);
	rpc_reply(rpc, &response.base, control_store_status(status), "%s",
		  control_store_text(status));
}

void method_delete(struct rpc *rpc, const ProtobufCMessage *message)
{
	const KvCache__DeleteRequest *request = (const KvCache__DeleteRequest *)message;
	KvCache__DeleteResponse response = KV_CACHE__DELETE_RESPONSE__INIT;
	enum store_status status = store_delete(rpc->control->worker, request->key.data,
						request->key.len, request->version, NULL);

	response.request_id = request->request_id;
	response.key_existed = status == STORE_OK || status == STORE_CONFLICT;
	if (status == STORE_NOT_FOUND)
		status = STORE_OK;
	response.success = status == STORE_OK;
	if (status != STORE_OK)
		response.error_message = (char *)control_store_text(status);
	rpc_reply(rpc, &response.base, control_store_status(status), "%s",
		  control_store_text(status));
}

void control_answer_cas(struct rpc *rpc, enum store_status status, const struct store_info *info,
			uint64_t request_id)
{
	KvCache__CasResponse response = KV_CACHE__CAS_RESPONSE__INIT;

	response.request_id = request_id;
	response.success = status == STORE_OK;
	if (status == STORE_OK || status == STORE_EXISTS || status == STORE_CONFLICT)
		response.version = info->version;
	if (status == STORE_EXISTS)
		response.error_message = (char *)"the key is there";
	else if (status != STORE_OK)
		response.error_message = (char *)control_store_text(status);
	/* Answers, not errors. */
	if (status == STORE_EXISTS || status == STORE_CONFLICT || status == STORE_NOT_FOUND)
		status = STORE_OK;
	rpc_reply(rpc, &response.base, control_store_status(status), "%s",
		  control_store_text(status));
}

void method_cas(struct rpc *rpc, const ProtobufCMessage *message)
{
	const KvCache__CasRequest *request = (const KvCache__CasRequest *)message;
	struct kv_control_server *control = rpc->control;
	struct store_put put = {
		.key = request->key.data,
		.key_length = request->key.len,
		.value = request->value.data,
		.value_length = request->value.len,
		.ttl_ms = control_ttl_of(request->ttl_seconds, request->ttl_ms),
		.condition = request->expected_version ? STORE_IF_VERSION : STORE_IF_ABSENT,
		.version = request->expected_version,
	};
	struct store_info info;
	enum store_status status;

	if (request->rdma_location && request->value.len) {
		rpc_finish(rpc, GRPC_INVALID_ARGUMENT,
			   "the request has a value and an rdma_location; send one of the two");
	} else if (request->rdma_location && !control->plane) {
		rpc_finish(rpc, GRPC_UNIMPLEMENTED, "this server pulls no values");
	} else if (request->rdma_location) {
		data_plane_put(control->plane, rpc, request->rdma_location, &put,
			       request->request_id);
	} else if (request->value.len > control->options.max_message - GET_MARGIN) {
		rpc_finish(rpc, GRPC_RESOURCE_EXHAUSTED,
			   "the value has %zu bytes, and inside a message at most %u; use "
			   "PutStream",
			   request->value.len, control->options.max_message - GET_MARGIN);
	} else {
		status = store_put(control->worker, &put, &info);
		control_answer_cas(rpc, status, &info, request->request_id);
	}
}

void method_touch(struct rpc *rpc, const ProtobufCMessage *message)
{
	const KvCache__TouchRequest *request = (const KvCache__TouchRequest *)message;
	KvCache__TouchResponse response = KV_CACHE__TOUCH_RESPONSE__INIT;
	struct store_info info;
	enum store_status status =
		store_expire(rpc->control->worker, request->key.data, request->key.len,
			     control_ttl_of(request->ttl_seconds, request->ttl_ms), &info);

	response.request_id = request->request_id;
	response.success = status == STORE_OK;
	if (status == STORE_OK)
		response.version = info.version;
	else
		response.error_message = (char *)control_store_text(status);
	rpc_reply(rpc, &response.base, control_store_status(status), "%s",
		  control_store_text(status));
}

/* ------------------------------------------------------------------------------------------
 * Clients with a data plane
 */

void method_register(struct rpc *rpc, const ProtobufCMessage *message)
{
	if (rpc->control->plane)
		data_plane_register(rpc->control->plane, rpc,
				    (const KvCache__RegisterClientRequest *)message);
	else
		rpc_finish(rpc, GRPC_UNIMPLEMENTED, "this server has no data plane");
}

void method_heartbeat(struct rpc *rpc, const ProtobufCMessage *message)
{
	if (rpc->control->plane)
		data_plane_heartbeat(rpc->control->plane, rpc,
				     (const KvCache__HeartbeatRequest *)message);
	else
		rpc_finish(rpc, GRPC_UNIMPLEMENTED, "this server has no data plane");
}
