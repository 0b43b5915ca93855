/*
 * Operations on the store: each makes the reply to one request.
 *
 * A GET reads straight into the reply. A value that is too long for that is pushed, if the client
 * has a buffer for it: the item is pinned, so that its memory is nobody else's meanwhile, WRITTEN
 * from where it lies, and let go when the reply behind it has completed.
 */
#include <string.h>

#include "server/internal.h"

#define SCAN_MOST   1024u
#define COUNTS_MOST (INT64_C(1) << 32)
/* Bytes that are pushed for one batch of requests: by shm the worker copies them itself. */
#define PUSH_MOST (32u << 20)

static void finish(struct exchange *exchange, enum store_status status,
		   const struct store_info *info)
{
	exchange->reply->status = (int16_t)exchange_status(status);
	/* Only these wrote it. */
	if (status == STORE_OK || status == STORE_EXISTS || status == STORE_CONFLICT)
		exchange_describe(exchange, info);
}

/* ------------------------------------------------------------------------------------------
 * GET
 */

/* How long a value in a reply may be. */
static size_t inline_room(const struct exchange *exchange)
{
	size_t limit = exchange->worker->server->options.inline_limit;

	return exchange->room < limit ? exchange->room : limit;
}

static void too_small(struct exchange *exchange, const struct store_info *info)
{
	exchange->reply->status = KV_BUFFER_TOO_SMALL;
	exchange_describe(exchange, info);
}

static void give_value(struct exchange *exchange, const struct store_info *info)
{
	exchange->reply->flags = KV_HAS_VALUE;
	exchange->length = info->value_length;
	exchange_describe(exchange, info);
}

/* Whether the WRITEs are posted. If not, the connection is lost or overrun. */
static bool post_push(struct session *session, const struct store_view *view, uint64_t place)
{
	const struct server_path *path = session->queue->path;
	size_t done = 0;

	while (done < view->length) {
		size_t left = view->length - done, most = path->info->max_transfer;
		struct rmr_work work = {
			.op = RMR_OP_WRITE,
			.flags = RMR_UNSIGNALED | RMR_MORE,
			.source = (const uint8_t *)view->value + done,
			.length = left < most ? left : most,
			.region = path->arena,
			.remote = session->buffer,
			.offset = place + done,
		};

		if (rmr_post(session->conn, &work, 1) != 1)
			return false;
		done += work.length;
	}
	return true;
}

/* Writes the pinned value into the client's buffer; the pin goes with the reply. */
static void push(struct exchange *exchange, const struct store_view *view)
{
	struct session *session = exchange->session;

	exchange->buffer->view = *view;
	exchange->reply->flags = KV_PUSHED;
	exchange_describe(exchange, &view->info);
	exchange->worker->turn_pushed += view->length;
	counter_add(&exchange->worker->counters.pushes, 1);
	counter_add(&exchange->worker->counters.pushed_bytes, (int64_t)view->length);
	if (!post_push(session, view, exchange->view.header.place))
		session_end(session);
}

/* Whether the client has room for so much at the place that it says. */
static bool fits_buffer(const struct exchange *exchange, uint64_t length)
{
	uint64_t size = rmr_remote_length(exchange->session->buffer);
	uint64_t place = exchange->view.header.place;

	return place <= size && length <= size - place;
}

/* The value is longer than the reply, or was. `info` is of the value that was found. */
static void get_long(struct exchange *exchange, const struct store_info *info)
{
	const struct kv_request *header = &exchange->view.header;
	struct store_view view;
	enum store_status status;

	if (info->value_length > header->value_length) {
		too_small(exchange, info);
		return;
	}
	/* With a buffer of the usual length it might fit; and a push needs one as well. */
	if (!exchange->buffer->region) {
		(void)exchange_has_room(exchange, SIZE_MAX);
		return;
	}
	if (!(header->flags & KV_PUSH) || !exchange->session->buffer ||
	    info->cell != STORE_NO_CELL) {
		too_small(exchange, info);
		return;
	}
	status = store_pin(exchange->store, exchange->key, header->key_length, &view);
	if (status != STORE_OK) {
		exchange->reply->status = (int16_t)exchange_status(status);
		return;
	}
	/* It may be another value by now. */
	if (view.info.value_length > header->value_length || view.info.cell != STORE_NO_CELL) {
		too_small(exchange, &view.info);
	} else if (view.length <= inline_room(exchange)) {
		memcpy(exchange->value, view.value, view.length);
		give_value(exchange, &view.info);
	} else if (view.length + exchange->worker->turn_pushed > PUSH_MOST) {
		/* Others wait meanwhile. The client can READ by itself. */
		too_small(exchange, &view.info);
	} else if (!fits_buffer(exchange, view.length)) {
		exchange_fail(exchange, KV_INVALID, "the value does not fit at that place");
	} else {
		push(exchange, &view);
		return;
	}
	store_unpin(exchange->store, &view);
}

void operation_get(struct exchange *exchange)
{
	const struct kv_request *header = &exchange->view.header;
	size_t limit = inline_room(exchange);
	size_t room = limit < header->value_length ? limit : header->value_length;
	struct store_info info;
	enum store_status status = store_get(exchange->store, exchange->key, header->key_length,
					     exchange->value, room, &info);

	if (status == STORE_OK)
		give_value(exchange, &info);
	else if (status == STORE_NO_ROOM)
		get_long(exchange, &info);
	else
		exchange->reply->status = (int16_t)exchange_status(status);
}

/* ------------------------------------------------------------------------------------------
 * The others
 */

void operation_put(struct exchange *exchange)
{
	const struct kv_request *header = &exchange->view.header;
	struct store_put put = {
		.key = exchange->key,
		.key_length = header->key_length,
		.value = exchange->view.value,
		.value_length = header->value_length,
		.ttl_ms = header->argument,
		.condition = request_condition(header),
		.version = header->version,
		.may_lose_old = header->flags & KV_MAY_LOSE_OLD,
	};
	struct store_info info;
	enum store_status status;

	if (put.condition > STORE_IF_VERSION) {
		exchange_fail(exchange, KV_INVALID, "no such condition");
		return;
	}
	status = store_put(exchange->store, &put, &info);
	finish(exchange, status, &info);
	exchange_explain_full(exchange, &put, status);
}

void operation_delete(struct exchange *exchange)
{
	const struct kv_request *header = &exchange->view.header;
	struct store_info info;
	enum store_status status = store_delete(exchange->store, exchange->key, header->key_length,
						header->version, &info);

	exchange->reply->status = (int16_t)exchange_status(status);
	if (status == STORE_CONFLICT)
		exchange_describe(exchange, &info);
	else if (status == STORE_OK)
		exchange->reply->version = info.version; /* of what is gone; it lies nowhere */
}

void operation_expire(struct exchange *exchange)
{
	const struct kv_request *header = &exchange->view.header;
	struct store_info info;

	finish(exchange,
	       store_expire(exchange->store, exchange->key, header->key_length, header->argument,
			    &info),
	       &info);
}

void operation_stat(struct exchange *exchange)
{
	struct store_info info;

	finish(exchange,
	       store_stat(exchange->store, exchange->key, exchange->view.header.key_length, &info),
	       &info);
}

void operation_add(struct exchange *exchange)
{
	const struct kv_request *header = &exchange->view.header;
	struct store_info info;
	int64_t sum = 0;
	enum store_status status = store_add(exchange->store, exchange->key, header->key_length,
					     (int64_t)header->argument, &sum, &info);

	finish(exchange, status, &info);
	exchange->reply->number = (uint64_t)sum;
}

void operation_swap(struct exchange *exchange)
{
	const struct kv_request *header = &exchange->view.header;
	struct store_info info;
	int64_t found = 0;
	enum store_status status =
		store_swap(exchange->store, exchange->key, header->key_length,
			   (int64_t)header->version, (int64_t)header->argument, &found);

	exchange->reply->status = (int16_t)exchange_status(status);
	exchange->reply->number = (uint64_t)found;
	/* Where the counter is, for the next time: wherever it is now. */
	if ((status == STORE_OK || status == STORE_CONFLICT) &&
	    store_stat(exchange->store, exchange->key, header->key_length, &info) == STORE_OK)
		exchange_describe(exchange, &info);
}

static bool add_entry(void *context, const void *key, size_t key_length,
		      const struct store_info *info)
{
	struct exchange *exchange = context;
	struct kv_scan_entry entry = {
		.version = info->version,
		.value_length = info->value_length,
		.expires_ms = info->expires_ms,
		.key_length = (uint32_t)key_length,
	};
	size_t used = kv_add_scan_entry(exchange->value + exchange->length,
					exchange->room - exchange->length, &entry, key);

	exchange->length += used;
	return used > 0;
}

void operation_scan(struct exchange *exchange)
{
	const struct kv_request *header = &exchange->view.header;
	uint64_t keys = header->place < SCAN_MOST ? header->place : SCAN_MOST;
	size_t one = sizeof(struct kv_scan_entry) + KV_MAX_KEY;
	bool can_go_behind = header->flags & KV_GO_BEHIND, is_among;

	if (!exchange_has_room(exchange, can_go_behind ? one : 2 * one))
		return;
	exchange->reply->flags = KV_HAS_VALUE;
	exchange->reply->number = header->argument;
	exchange->reply->server_time_ms = store_clock_ms(exchange->worker->server->store);
	is_among = store_scan_behind(exchange->store, header->key_length ? exchange->key : NULL,
				     header->key_length, &exchange->reply->number, keys ? keys : 1,
				     add_entry, exchange);
	if (!is_among)
		return;
	/* A client that cannot say behind which key begins with the first of this place again. Of
	 * the longest two fit; with three it must not go on for ever. */
	if (can_go_behind)
		exchange->reply->flags |= KV_AMONG;
	else if (exchange->reply->number == header->argument)
		exchange_fail(exchange, KV_INTERNAL,
			      "so many keys share a place that they do not fit into a reply; a "
			      "newer client can be told of them");
}

void operation_flush(struct exchange *exchange)
{
	store_flush(exchange->store);
}

static int64_t bounded(uint64_t count)
{
	return count < COUNTS_MOST ? (int64_t)count : COUNTS_MOST;
}

/* What a client tells of its own gets. It is believed up to a bound: a lie spoils figures, and
 * nothing else. */
void operation_counts(struct exchange *exchange)
{
	const struct kv_request *header = &exchange->view.header;
	struct counters *counters = &exchange->worker->counters;

	counter_add(&counters->client_hits, bounded(header->argument));
	counter_add(&counters->client_misses, bounded(header->place));
}

void operation_ping(struct exchange *exchange)
{
	exchange->reply->server_time_ms = store_clock_ms(exchange->worker->server->store);
}
