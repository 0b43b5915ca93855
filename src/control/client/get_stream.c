/*
 * GetStream: a value in chunks, for values that are longer than a message where there is no data
 * plane. Chunks go straight to the caller's memory. The time limit of the options is how long the
 * stream may stand still.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/client/internal.h"

struct stream_call {
	struct control_stream *stream;
	struct control_ask *ask;
	uint64_t received;
	bool is_begun, is_too_long, is_out_of_memory;
};

/* The first response: how long the value is. False: the stream is of no use. */
static bool begin(struct stream_call *call, const KvCache__GetStreamResponse *response)
{
	struct control_stream *stream = call->stream;

	call->is_begun = true;
	stream->value_length = response->value_length;
	stream->version = response->version;
	stream->ttl_ms = response->ttl_ms;
	if (stream->is_stat) {
		call->ask->is_enough = true;
		return true;
	}
	call->is_too_long = response->value_length > stream->room;
	if (call->is_too_long)
		return false;
	if (!stream->to) {
		stream->to = response->value_length < SIZE_MAX ? malloc(response->value_length + 1)
							       : NULL;
		call->is_out_of_memory = !stream->to;
		if (call->is_out_of_memory)
			return false;
		stream->to[response->value_length] = '\0';
	}
	return true;
}

static bool take_chunk(void *context, const uint8_t *bytes, size_t length)
{
	struct stream_call *call = context;
	KvCache__GetStreamResponse *response =
		kv_cache__get_stream_response__unpack(NULL, length, bytes);
	bool is_right;

	if (!response)
		return false;
	is_right = call->is_begun || begin(call, response);
	if (is_right && !call->stream->is_stat) {
		is_right = response->chunk.len <= call->stream->value_length - call->received;
		if (is_right && response->chunk.len)
			memcpy(call->stream->to + call->received, response->chunk.data,
			       response->chunk.len);
		call->received += response->chunk.len;
	}
	kv_cache__get_stream_response__free_unpacked(response, NULL);
	return is_right;
}

/* What came of it, in the caller's terms. */
static int judge(kv_control_t *control, const struct stream_call *call, int status)
{
	const struct control_stream *stream = call->stream;

	if (call->is_too_long)
		return control_error(control, KV_BUFFER_TOO_SMALL,
				     "the value has %" PRIu64 " bytes, and there is room for %zu",
				     stream->value_length, stream->room);
	if (call->is_out_of_memory)
		return control_error(control, KV_NO_MEMORY, "no memory for %" PRIu64 " bytes",
				     stream->value_length);
	if (status == KV_OK && !stream->is_stat &&
	    (!call->is_begun || call->received != stream->value_length))
		return control_error(control, KV_PROTOCOL, "an answer that makes no sense");
	return status;
}

int control_get_stream(kv_control_t *control, const void *key, size_t key_length,
		       struct control_stream *stream)
{
	KvCache__GetStreamRequest request = KV_CACHE__GET_STREAM_REQUEST__INIT;
	uint8_t *given = stream->to;
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/GetStream",
		.request = &request.base,
		.is_stream = true,
		.take = take_chunk,
	};
	struct stream_call call = {.stream = stream, .ask = &ask};
	int status;

	ask.context = &call;
	request.key = (ProtobufCBinaryData){key_length, (uint8_t *)key};
	request.chunk_size = stream->is_stat;
	stream->value_length = UINT64_MAX;
	status = judge(control, &call, control_ask(control, &ask));
	if (status != KV_OK && !given) {
		free(stream->to);
		stream->to = NULL;
	}
	return status;
}
