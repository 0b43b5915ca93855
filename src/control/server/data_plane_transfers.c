/*
 * Pushes and pulls: values between the store and the memory of registered clients. The control
 * server's loop runs it.
 *
 *	push	check the place - pin the value - WRITE - unpin - answer
 *	pull	check the place - begin a draft - READ pieces, hash them - commit - answer
 *
 * A pinned value, and the memory of a draft, stay what they are until the last READ or WRITE has
 * completed or the link is closed, whatever becomes of the call. A pull whose call has gone by then
 * is given up: nobody waits for it, and who cancels a put does not want it.
 */
#include <assert.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "control/server/data_plane_internal.h"

#define COUNTER_TEXT   32u
#define MESSAGE_MARGIN 1024u /* what a response has beside its value, at most */

/* ------------------------------------------------------------------------------------------
 * Answers
 */

__attribute__((format(printf, 4, 5))) static void answer_get(struct rpc *call,
							     KvCache__GetResponse *response,
							     enum grpc_status status,
							     const char *format, ...)
{
	char text[CONTROL_TEXT];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	response->success = status == GRPC_OK;
	if (status != GRPC_OK)
		response->error_message = text;
	rpc_reply(call, &response->base, status, "%s", text);
}

__attribute__((format(printf, 4, 5))) static void answer_put(struct rpc *call,
							     KvCache__PutResponse *response,
							     enum grpc_status status,
							     const char *format, ...)
{
	char text[CONTROL_TEXT];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	response->success = status == GRPC_OK;
	if (status != GRPC_OK)
		response->error_message = text;
	rpc_reply(call, &response->base, status, "%s", text);
}

enum answer_kind { ANSWER_GET, ANSWER_PUT, ANSWER_CAS };

/* Of a call of any kind, that failed. */
static void refuse(struct rpc *call, enum answer_kind kind, uint64_t request_id,
		   enum grpc_status status, const char *text)
{
	KvCache__GetResponse get = KV_CACHE__GET_RESPONSE__INIT;
	KvCache__PutResponse put = KV_CACHE__PUT_RESPONSE__INIT;

	get.request_id = put.request_id = request_id;
	if (kind == ANSWER_GET)
		answer_get(call, &get, status, "%s", text);
	else if (kind == ANSWER_PUT)
		answer_put(call, &put, status, "%s", text);
	else
		rpc_finish(call, status, "%s", text);
}

static enum answer_kind kind_of_put(const struct store_put *put)
{
	return put->condition == STORE_ALWAYS ? ANSWER_PUT : ANSWER_CAS;
}

/* ------------------------------------------------------------------------------------------
 * Places
 */

/* A place that a call has named, once it was found to be right. */
struct place {
	struct plane_client *client;
	struct plane_buffer *buffer;
	uint64_t offset, length;
};

/* The buffer with this key. All are looked at, and each for the same time. */
static struct plane_buffer *find_buffer(struct plane_client *client,
					const KvCache__MemoryRegionDescriptor *mr)
{
	struct plane_buffer *found = NULL;
	uint64_t rkey = mr->n_addr_rkey_list ? mr->addr_rkey_list[0]->rkey : 0;

	for (unsigned i = 0; i < PLANE_MAX_BUFFERS; i++) {
		struct plane_buffer *buffer = &client->buffers[i];
		bool is_right = CRYPTO_memcmp(&buffer->rkey, &rkey, sizeof(rkey)) == 0;

		if (is_right && buffer->remote && buffer->ptr == mr->ptr && !buffer->is_leaving)
			found = buffer;
	}
	for (size_t i = 1; i < mr->n_addr_rkey_list; i++) {
		if (mr->addr_rkey_list[i]->rkey != rkey)
			found = NULL;
	}
	return found;
}

/* NULL, or what is wrong. The text does not tell whether a client of that number is there. */
static const char *check_place(struct data_plane *plane, const KvCache__ValueLocation *location,
			       unsigned right, struct place *place)
{
	struct plane_client *client = plane_client_find(plane, location->node_id);
	struct plane_buffer *buffer = NULL;

	if (client && client->state == PLANE_LINKED && location->mr_descriptor)
		buffer = find_buffer(client, location->mr_descriptor);
	if (!buffer)
		return "no such memory: node_id, ptr and rkey must be those of a buffer that its "
		       "client has told of, and not taken back";
	if (location->offset > buffer->length ||
	    location->length > buffer->length - location->offset)
		return "offset and length do not lie within the buffer";
	if (!(rmr_link_remote_rights(buffer->remote) & right))
		return right == RMR_WRITE ? "the buffer may not be written"
					  : "the buffer may not be read";
	*place = (struct place){client, buffer, location->offset, location->length};
	client->heard_ns = clock_now_ns();
	return NULL;
}

/* ------------------------------------------------------------------------------------------
 * Transfers
 */

bool plane_transfers_open(struct data_plane *plane)
{
	/* Aligned, for the streams in it. */
	plane->all_transfers =
		aligned_alloc(64, PLANE_MAX_TRANSFERS * sizeof(*plane->all_transfers));
	if (!plane->all_transfers)
		return false;
	list_init(&plane->free_transfers);
	for (unsigned i = 0; i < PLANE_MAX_TRANSFERS; i++)
		list_add_tail(&plane->free_transfers, &plane->all_transfers[i].link);
	return true;
}

/* What stands against one more; NULL: nothing. One alone may be of any length. */
static const char *check_limits(const struct data_plane *plane, const struct plane_client *client,
				uint64_t bytes)
{
	if (list_is_empty(&plane->free_transfers))
		return "too many transfers are under way; try again";
	if (client->transfer_count == PLANE_CLIENT_TRANSFERS)
		return "this client has too many transfers under way; wait for some";
	if (plane->held &&
	    bytes > plane->held_most -
			    (plane->held < plane->held_most ? plane->held : plane->held_most))
		return "transfers that are under way hold too much memory; try again";
	return NULL;
}

static struct plane_transfer *transfer_create(struct data_plane *plane, const struct place *place,
					      uint64_t bytes)
{
	struct plane_transfer *transfer =
		list_first_entry(&plane->free_transfers, struct plane_transfer, link);

	list_remove(&transfer->link);
	/* But for the stream, which is large, and begun anew by whoever uses it. */
	memset(transfer, 0, offsetof(struct plane_transfer, stream));
	transfer->client = place->client;
	transfer->buffer = place->buffer;
	transfer->offset = place->offset;
	transfer->moved_ns = plane->moved_ns = clock_now_ns();
	transfer->held = bytes;
	list_add_tail(&place->client->transfers, &transfer->link);
	place->client->transfer_count++;
	place->buffer->transfers++;
	plane->transfer_count++;
	plane->held += bytes;
	figure_add(&plane->figures.transfers, 1);
	figure_add(&plane->figures.held, (int64_t)bytes);
	return transfer;
}

/* What it held of the store is given back before. */
static void transfer_destroy(struct data_plane *plane, struct plane_transfer *transfer)
{
	struct plane_client *client = transfer->client;

	list_remove(&transfer->link);
	list_add(&plane->free_transfers, &transfer->link);
	client->transfer_count--;
	plane->transfer_count--;
	plane->held -= transfer->held;
	figure_add(&plane->figures.transfers, -1);
	figure_add(&plane->figures.held, -(int64_t)transfer->held);
	plane_buffer_release(client, transfer->buffer);
}

/* The client is gone, or its deadline has passed. */
static void on_cancelled(struct rpc *call, void *context)
{
	struct plane_transfer *transfer = context;

	assert(transfer->call == call);
	transfer->call = NULL;
}

static void transfer_defer(struct plane_transfer *transfer, struct rpc *call, uint64_t request_id)
{
	transfer->call = call;
	transfer->request_id = request_id;
	rpc_defer(call, on_cancelled, transfer);
}

/* Nothing of it is under way. Gives back what it holds, and tells that it failed. */
static void transfer_fail(struct data_plane *plane, struct plane_transfer *transfer,
			  enum grpc_status status, const char *text)
{
	struct rpc *call = transfer->call;
	enum answer_kind kind = transfer->is_push ? ANSWER_GET : kind_of_put(&transfer->put);
	uint64_t request_id = transfer->request_id;

	if (transfer->is_push)
		store_unpin(plane->control->worker, &transfer->view);
	else
		store_draft_abort(plane->control->worker, &transfer->draft);
	figure_add(&plane->figures.failed, 1);
	transfer_destroy(plane, transfer);
	if (call)
		refuse(call, kind, request_id, status, text);
}

void plane_transfer_drop(struct data_plane *plane, struct plane_transfer *transfer)
{
	transfer_fail(plane, transfer, GRPC_UNAVAILABLE,
		      "the link to the client was lost while the value travelled");
}

/* A READ or WRITE went wrong; the end of the link follows. */
static void transfer_broke(struct data_plane *plane, struct plane_transfer *transfer)
{
	if (transfer->status == RMR_ACCESS)
		transfer_fail(plane, transfer, GRPC_INVALID_ARGUMENT,
			      "the memory that the location names is gone");
	else
		plane_transfer_drop(plane, transfer);
}

/* ------------------------------------------------------------------------------------------
 * Push
 */

static void push_done(struct data_plane *plane, struct plane_transfer *transfer)
{
	KvCache__GetResponse response = KV_CACHE__GET_RESPONSE__INIT;
	struct rpc *call = transfer->call;

	response.request_id = transfer->request_id;
	response.value_length = transfer->view.length;
	response.version = transfer->view.info.version;
	response.ttl_ms = control_ttl_ms(plane->control, &transfer->view.info);
	response.pushed = true;
	figure_add(&plane->figures.pushes, 1);
	figure_add(&plane->figures.bytes_out, (int64_t)transfer->view.length);
	store_unpin(plane->control->worker, &transfer->view);
	transfer_destroy(plane, transfer);
	if (call)
		answer_get(call, &response, GRPC_OK, "%s", "");
}

/* The value is pinned, and fits. */
static void push(struct data_plane *plane, struct rpc *call, const struct place *place,
		 struct store_view *view, uint64_t request_id)
{
	struct plane_transfer *transfer;
	const char *busy = check_limits(plane, place->client, view->length);
	struct rmr_link_work work = {
		.op = RMR_OP_WRITE,
		.source = view->value,
		.length = view->length,
		.region = place->client->kind->arena,
		.remote = place->buffer->remote,
		.offset = place->offset,
	};
	enum rmr_status status;

	if (busy) {
		store_unpin(plane->control->worker, view);
		refuse(call, ANSWER_GET, request_id, GRPC_RESOURCE_EXHAUSTED, busy);
		return;
	}
	transfer = transfer_create(plane, place, view->length);
	transfer->is_push = true;
	transfer->view = *view;
	work.cookie = (uint64_t)(transfer - plane->all_transfers);
	transfer_defer(transfer, call, request_id);
	status = rmr_link_post(place->client->rmr_link, &work);
	if (status != RMR_OK) {
		transfer->status = status;
		transfer_broke(plane, transfer);
	}
}

/* A value that comes in the response. */
static void answer_inline(struct data_plane *plane, struct rpc *call, KvCache__GetResponse *answer,
			  const struct store_info *info, const void *value, size_t length)
{
	answer->value = (ProtobufCBinaryData){length, (uint8_t *)value};
	answer->value_length = length;
	answer->version = info->version;
	answer->ttl_ms = control_ttl_ms(plane->control, info);
	answer_get(call, answer, GRPC_OK, "%s", "");
}

/* A counter has no bytes in place. */
static void get_counter(struct data_plane *plane, struct rpc *call, KvCache__GetResponse *answer,
			const KvCache__GetRequest *request)
{
	char text[COUNTER_TEXT];
	struct store_info info;
	enum store_status status = store_get(plane->control->worker, request->key.data,
					     request->key.len, text, sizeof(text), &info);

	if (status == STORE_OK)
		answer_inline(plane, call, answer, &info, text, info.value_length);
	else if (status == STORE_NO_ROOM) /* it was replaced just now */
		answer_get(call, answer, GRPC_UNAVAILABLE, "the key changes; try again");
	else
		answer_get(call, answer, control_store_status(status), "%s",
			   control_store_text(status));
}

/* How long a value may be that comes in the response. */
static uint64_t inline_limit(const struct data_plane *plane, const KvCache__GetRequest *request)
{
	uint64_t most = plane->control->options.max_message;

	most = most > MESSAGE_MARGIN ? most - MESSAGE_MARGIN : 0;
	return request->inline_limit < most ? request->inline_limit : most;
}

void data_plane_get(struct data_plane *plane, struct rpc *call, const KvCache__GetRequest *request)
{
	KvCache__GetResponse response = KV_CACHE__GET_RESPONSE__INIT;
	struct store_worker *worker = plane->control->worker;
	struct store_view view;
	struct place place;
	const char *wrong = check_place(plane, request->response_location, RMR_WRITE, &place);
	enum store_status status;

	response.request_id = request->request_id;
	if (wrong) {
		answer_get(call, &response, GRPC_INVALID_ARGUMENT, "response_location: %s", wrong);
		return;
	}
	status = store_pin(worker, request->key.data, request->key.len, &view);
	if (status != STORE_OK) {
		answer_get(call, &response, control_store_status(status), "%s",
			   control_store_text(status));
		return;
	}
	if (view.info.cell != STORE_NO_CELL) {
		store_unpin(worker, &view);
		server_count_again(plane->control->server);
		get_counter(plane, call, &response, request);
	} else if (view.length <= inline_limit(plane, request)) {
		answer_inline(plane, call, &response, &view.info, view.value, view.length);
		store_unpin(worker, &view);
	} else if (view.length > place.length) {
		response.value_length = view.length;
		response.version = view.info.version;
		response.ttl_ms = control_ttl_ms(plane->control, &view.info);
		store_unpin(worker, &view);
		rpc_tell_length(call, response.value_length);
		answer_get(call, &response, GRPC_OUT_OF_RANGE,
			   "the value has %" PRIu64 " bytes, the location %" PRIu64,
			   response.value_length, place.length);
	} else {
		push(plane, call, &place, &view, request->request_id);
	}
}

/* ------------------------------------------------------------------------------------------
 * Pull
 */

/* Posts as many READs as there may be. */
static void pull_more(struct plane_transfer *transfer)
{
	struct plane_client *client = transfer->client;
	struct data_plane *plane = client->kind->plane;
	uint64_t length = transfer->draft.value_length;

	while (transfer->status == RMR_OK && transfer->asked < length &&
	       transfer->asked - transfer->received < (uint64_t)PLANE_WINDOW * PLANE_PIECE) {
		uint64_t left = length - transfer->asked;
		struct rmr_link_work work = {
			.op = RMR_OP_READ,
			.cookie = (uint64_t)(transfer - plane->all_transfers) |
				  transfer->asked / PLANE_PIECE << 32,
			.local = (uint8_t *)transfer->draft.value + transfer->asked,
			.length = left < PLANE_PIECE ? left : PLANE_PIECE,
			.region = client->kind->arena,
			.remote = transfer->buffer->remote,
			.offset = transfer->offset + transfer->asked,
		};

		transfer->status = rmr_link_post(client->rmr_link, &work);
		if (transfer->status == RMR_OK) {
			transfer->asked += work.length;
			transfer->flying++;
		}
	}
}

static void pull_done(struct data_plane *plane, struct plane_transfer *transfer)
{
	KvCache__PutResponse response = KV_CACHE__PUT_RESPONSE__INIT;
	uint64_t length = transfer->draft.value_length;
	struct rpc *call = transfer->call;
	enum store_status status;
	enum answer_kind kind;
	struct store_info info;

	if (!call) {
		transfer_fail(plane, transfer, GRPC_CANCELLED, "");
		return;
	}
	kind = kind_of_put(&transfer->put);
	status =
		store_draft_commit(plane->control->worker, &transfer->put, &transfer->draft, &info);
	response.request_id = transfer->request_id;
	transfer_destroy(plane, transfer);
	figure_add(status == STORE_OK ? &plane->figures.pulls : &plane->figures.failed, 1);
	if (status == STORE_OK) {
		figure_add(&plane->figures.bytes_in, (int64_t)length);
		response.version = info.version;
	}
	if (kind == ANSWER_CAS)
		control_answer_cas(call, status, &info, response.request_id);
	else
		answer_put(call, &response, control_store_status(status), "%s",
			   control_store_text(status));
}

/* Hashes the pieces that are there, as far as none is missing before them. */
static void take_pieces(struct plane_transfer *transfer)
{
	while (transfer->early & 1) {
		uint64_t left = transfer->draft.value_length - transfer->received;
		uint64_t length = left < PLANE_PIECE ? left : PLANE_PIECE;

		store_draft_filled(&transfer->draft, length);
		transfer->received += length;
		transfer->early >>= 1;
	}
}

static void pull_arrived(struct data_plane *plane, struct plane_transfer *transfer, uint64_t piece)
{
	transfer->flying--;
	if (transfer->status == RMR_OK) {
		transfer->early |= 1u << (piece - transfer->received / PLANE_PIECE);
		take_pieces(transfer);
		/* Who has gone needs no more of it. */
		if (transfer->call)
			pull_more(transfer);
	}
	if (transfer->flying)
		return;
	if (transfer->status != RMR_OK)
		transfer_broke(plane, transfer);
	else
		pull_done(plane, transfer);
}

static void pull(struct data_plane *plane, struct rpc *call, const struct place *place,
		 struct store_put *put, struct store_draft *draft, uint64_t request_id)
{
	struct plane_transfer *transfer = transfer_create(plane, place, put->value_length);

	transfer->draft = *draft;
	transfer->put = *put;
	transfer->put.key = NULL; /* it is in the item; the request's is gone soon */
	store_draft_hash_along(&transfer->draft, &transfer->stream);
	transfer_defer(transfer, call, request_id);
	pull_more(transfer);
	if (transfer->flying)
		return;
	if (transfer->status != RMR_OK)
		transfer_broke(plane, transfer);
	else
		pull_done(plane, transfer); /* nothing to READ */
}

void data_plane_put(struct data_plane *plane, struct rpc *call,
		    const KvCache__ValueLocation *location, const struct store_put *given,
		    uint64_t request_id)
{
	enum answer_kind kind = kind_of_put(given);
	struct place place;
	const char *wrong = check_place(plane, location, RMR_READ, &place), *busy;
	struct store_put put = *given;
	struct store_draft draft;
	enum store_status status;
	char text[CONTROL_TEXT];

	if (wrong) {
		snprintf(text, sizeof(text), "rdma_location: %s", wrong);
		refuse(call, kind, request_id, GRPC_INVALID_ARGUMENT, text);
		return;
	}
	busy = check_limits(plane, place.client, place.length);
	if (busy) {
		refuse(call, kind, request_id, GRPC_RESOURCE_EXHAUSTED, busy);
		return;
	}
	put.value_length = place.length;
	status = store_draft_begin(plane->control->worker, &put, &draft);
	if (status != STORE_OK) {
		refuse(call, kind, request_id, control_store_status(status),
		       control_store_text(status));
		return;
	}
	pull(plane, call, &place, &put, &draft, request_id);
}

/* ------------------------------------------------------------------------------------------
 * Completions
 */

void plane_transfer_done(struct data_plane *plane, const struct rmr_link_event *event)
{
	struct plane_transfer *transfer = &plane->all_transfers[event->cookie & UINT32_MAX];

	transfer->moved_ns = transfer->client->heard_ns = plane->moved_ns = clock_now_ns();
	if (transfer->status == RMR_OK)
		transfer->status = event->status;
	if (!transfer->is_push)
		pull_arrived(plane, transfer, event->cookie >> 32);
	else if (transfer->status != RMR_OK)
		transfer_broke(plane, transfer);
	else
		push_done(plane, transfer);
}
