/*
 * GetStream and PutStream: values of any length in chunks.
 *
 * A get pins the value, and makes the next chunk when the client has taken the one before: of the
 * messages' memory it uses one chunk. A put begins a draft as soon as its header has come, and
 * copies each chunk to its place there. The key is set when the client has ended its side.
 *
 * Both hold memory of the store while the client moves, so both are bounded:
 *
 *	time	LEAST_RATE bytes a second on average, and the stall time of the options once more
 *	bytes	all streams together a HELD_PART of the store's memory, those of one connection
 *		half of that; but one alone may be of any length
 *
 * The loop's thread runs all of it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "control/server/internal.h"

#define CHUNK_DEFAULT (256u << 10)
#define COUNTER_TEXT  32u
#define HELD_PART     2u
#define LEAST_RATE    65536u /* bytes a second */

/* ------------------------------------------------------------------------------------------
 * Bounds
 */

static bool fits(uint64_t held, uint64_t bytes, uint64_t most)
{
	return !held || (held < most && bytes <= most - held);
}

/* Counts bytes that a stream holds. False: there are too many, and the call is finished. */
static bool hold(struct rpc *rpc, uint64_t bytes)
{
	struct kv_control_server *control = rpc->control;
	uint64_t most = rmr_arena_size(server_arena(control->server)) / HELD_PART;

	if (!fits(control->held, bytes, most) || !fits(rpc->conn->held, bytes, most / 2)) {
		rpc_finish(rpc, GRPC_RESOURCE_EXHAUSTED,
			   "streams that are under way hold too much memory; try again later");
		return false;
	}
	control->held += bytes;
	rpc->conn->held += bytes;
	return true;
}

static void let_go(struct h2_conn *conn, uint64_t *bytes)
{
	conn->control->held -= *bytes;
	conn->held -= *bytes;
	*bytes = 0;
}

static bool limit_time(struct rpc *rpc, uint64_t bytes)
{
	uint64_t stall_ns = (uint64_t)rpc->control->options.stall_ms * 1000000u;

	return rpc_limit(rpc, stall_ns + bytes / LEAST_RATE * 1000000000u,
			 "less than 64 KiB a second: the value's memory is needed; be faster");
}

/* ------------------------------------------------------------------------------------------
 * GetStream
 */

struct get_stream {
	struct kv_control_server *control;
	struct h2_conn *conn;
	struct store_view view;
	bool is_pinned;
	bool is_told; /* the first response was sent */
	uint64_t held, sent, request_id;
	uint32_t chunk;
	char text[COUNTER_TEXT]; /* a counter's value, which has no bytes in place */
};

static void get_unpin(struct get_stream *get)
{
	if (get->is_pinned)
		store_unpin(get->control->worker, &get->view);
	get->is_pinned = false;
	let_go(get->conn, &get->held);
}

static void get_done(void *context)
{
	get_unpin(context);
	free(context);
}

static void get_more(struct rpc *rpc, void *context)
{
	KvCache__GetStreamResponse response = KV_CACHE__GET_STREAM_RESPONSE__INIT;
	struct get_stream *get = context;
	uint64_t left = get->view.length - get->sent;

	response.chunk.data = (uint8_t *)get->view.value + get->sent;
	response.chunk.len = left < get->chunk ? left : get->chunk;
	if (!get->is_told) {
		response.value_length = get->view.length;
		response.version = get->view.info.version;
		response.ttl_ms = control_ttl_ms(get->control, &get->view.info);
		response.request_id = get->request_id;
	}
	get->is_told = true;
	get->sent += response.chunk.len;
	if (!rpc_send(rpc, &response.base))
		return;
	if (get->sent < get->view.length)
		return;
	/* The last chunk is copied: the client may take its time. */
	get_unpin(get);
	rpc_finish(rpc, GRPC_OK, "%s", "");
}

/* Pins the value, or copies a counter's. */
static enum store_status get_pin(struct get_stream *get, const ProtobufCBinaryData *key)
{
	struct store_worker *worker = get->control->worker;
	enum store_status status = store_pin(worker, key->data, key->len, &get->view);

	get->is_pinned = status == STORE_OK;
	if (status != STORE_OK || get->view.info.cell == STORE_NO_CELL)
		return status;
	get_unpin(get);
	server_count_again(get->control->server);
	status = store_get(worker, key->data, key->len, get->text, sizeof(get->text),
			   &get->view.info);
	get->view.value = get->text;
	get->view.length = get->view.info.value_length;
	/* It has become something else just now. */
	return status == STORE_NO_ROOM ? STORE_TOO_MANY_PINS : status;
}

void method_get_stream(struct rpc *rpc, const ProtobufCMessage *message)
{
	const KvCache__GetStreamRequest *request = (const KvCache__GetStreamRequest *)message;
	uint32_t most = rpc->control->options.max_message - GET_MARGIN;
	struct get_stream *get = calloc(1, sizeof(*get));
	enum store_status status;

	if (!get) {
		rpc_finish(rpc, GRPC_RESOURCE_EXHAUSTED, "no memory for a stream");
		return;
	}
	get->control = rpc->control;
	get->conn = rpc->conn;
	get->request_id = request->request_id;
	get->chunk = request->chunk_size ? request->chunk_size : CHUNK_DEFAULT;
	if (get->chunk > most)
		get->chunk = most;
	rpc_attach(rpc, get_done, get);
	status = get_pin(get, &request->key);
	if (status != STORE_OK) {
		rpc_finish(rpc, control_store_status(status), "%s", control_store_text(status));
		return;
	}
	if (!hold(rpc, get->view.length)) {
		/* Now: the client may leave the answer untaken for long. */
		get_unpin(get);
		return;
	}
	get->held = get->view.length;
	if (limit_time(rpc, get->view.length))
		rpc_stream(rpc, get_more, get_done, get);
}

/* ------------------------------------------------------------------------------------------
 * PutStream
 */

struct put_stream {
	struct hash_stream stream; /* the first: it is aligned */
	struct kv_control_server *control;
	struct h2_conn *conn;
	struct store_put put;
	struct store_draft draft;
	bool is_drafted;
	uint64_t held, received, request_id;
};

static void put_done(void *context)
{
	struct put_stream *put = context;

	if (put->is_drafted)
		store_draft_abort(put->control->worker, &put->draft);
	let_go(put->conn, &put->held);
	free(put);
}

static enum store_condition condition_of(const KvCache__PutStreamHeader *header)
{
	switch (header->condition) {
	case KV_CACHE__PUT_STREAM_HEADER__CONDITION__IF_ABSENT:
		return STORE_IF_ABSENT;
	case KV_CACHE__PUT_STREAM_HEADER__CONDITION__IF_VERSION:
		return STORE_IF_VERSION;
	default:
		return STORE_ALWAYS;
	}
}

/* What is wrong with a header; NULL: nothing. */
static const char *check_header(const KvCache__PutStreamHeader *header)
{
	if ((unsigned)header->condition > KV_CACHE__PUT_STREAM_HEADER__CONDITION__IF_VERSION)
		return "there is no such condition";
	if (header->condition == KV_CACHE__PUT_STREAM_HEADER__CONDITION__IF_VERSION &&
	    !header->expected_version)
		return "expected_version: no value has version 0; IF_ABSENT may be meant";
	return NULL;
}

/* The first message. */
static void put_begin(struct rpc *rpc, const KvCache__PutStreamHeader *header)
{
	const char *wrong = check_header(header);
	struct put_stream *put;
	enum store_status status;

	if (wrong) {
		rpc_finish(rpc, GRPC_INVALID_ARGUMENT, "%s", wrong);
		return;
	}
	put = aligned_alloc(_Alignof(struct put_stream), sizeof(*put));
	if (!put) {
		rpc_finish(rpc, GRPC_RESOURCE_EXHAUSTED, "no memory for a stream");
		return;
	}
	memset(put, 0, sizeof(*put));
	put->control = rpc->control;
	put->conn = rpc->conn;
	put->request_id = header->request_id;
	put->put = (struct store_put){
		.key = header->key.data,
		.key_length = header->key.len,
		.value_length = header->value_length,
		.ttl_ms = control_ttl_of(header->ttl_seconds, header->ttl_ms),
		.condition = condition_of(header),
		.version = header->expected_version,
	};
	rpc_attach(rpc, put_done, put);
	if (!hold(rpc, header->value_length))
		return;
	put->held = header->value_length;
	status = store_draft_begin(rpc->control->worker, &put->put, &put->draft);
	if (status != STORE_OK) {
		let_go(put->conn, &put->held);
		rpc_finish(rpc, control_store_status(status), "%s", control_store_text(status));
		return;
	}
	put->is_drafted = true;
	put->put.key = NULL; /* it is in the item; the request's is gone soon */
	store_draft_hash_along(&put->draft, &put->stream);
	(void)limit_time(rpc, header->value_length);
}

static void put_chunk(struct rpc *rpc, struct put_stream *put, const ProtobufCBinaryData *chunk)
{
	if (chunk->len > put->draft.value_length - put->received) {
		rpc_finish(rpc, GRPC_INVALID_ARGUMENT,
			   "the chunks have more than the %zu bytes that the header announced",
			   put->draft.value_length);
		return;
	}
	if (!chunk->len)
		return;
	store_draft_fill(&put->draft, put->received, chunk->data, chunk->len);
	put->received += chunk->len;
}

/* The client has ended its side. */
static void put_end(struct rpc *rpc, struct put_stream *put)
{
	struct store_info info;
	enum store_status status;

	if (put->received < put->draft.value_length) {
		rpc_finish(rpc, GRPC_INVALID_ARGUMENT,
			   "the chunks have %" PRIu64 " bytes, and the header announced %zu",
			   put->received, put->draft.value_length);
		return;
	}
	put->is_drafted = false;
	status = store_draft_commit(rpc->control->worker, &put->put, &put->draft, &info);
	let_go(put->conn, &put->held);
	control_answer_cas(rpc, status, &info, put->request_id);
}

void method_put_stream(struct rpc *rpc, const ProtobufCMessage *message)
{
	const KvCache__PutStreamRequest *request = (const KvCache__PutStreamRequest *)message;
	struct put_stream *put = rpc->context;
	bool is_header = request && request->part_case == KV_CACHE__PUT_STREAM_REQUEST__PART_HEADER;

	if (!put && is_header)
		put_begin(rpc, request->header);
	else if (!put || is_header)
		rpc_finish(rpc, GRPC_INVALID_ARGUMENT,
			   "the first message is the header, and all others are chunks");
	else if (request && request->part_case != KV_CACHE__PUT_STREAM_REQUEST__PART_CHUNK)
		rpc_finish(rpc, GRPC_INVALID_ARGUMENT, "a message has neither header nor chunk");
	else if (request)
		put_chunk(rpc, put, &request->chunk);
	else
		put_end(rpc, put);
}
