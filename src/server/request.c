/*
 * Requests: from the bytes that arrived to the reply that is posted. All of it runs in the
 * session's worker, at once: a request is answered before the next one is looked at, unless it has
 * to wait for the client's memory (PUT_PULL).
 *
 * The bytes may still be changed by whoever sent them, so the header is copied by the decoder and
 * the key here, before it is hashed. A value is copied once, into the store, and whatever it is at
 * that moment is the value.
 */
#include <string.h>

#include "base/clock.h"
#include "server/internal.h"

static const exchange_fn operations[KV_OP_END_OF_REQUESTS] = {
	[KV_OP_GET] = operation_get,
	[KV_OP_PUT] = operation_put,
	[KV_OP_DELETE] = operation_delete,
	[KV_OP_EXPIRE] = operation_expire,
	[KV_OP_STAT] = operation_stat,
	[KV_OP_ADD] = operation_add,
	[KV_OP_SWAP] = operation_swap,
	[KV_OP_SCAN] = operation_scan,
	[KV_OP_FLUSH] = operation_flush,
	[KV_OP_STATS] = operation_stats,
	[KV_OP_PING] = operation_ping,
	[KV_OP_PIN] = operation_pin,
	[KV_OP_UNPIN] = operation_unpin,
	[KV_OP_PUT_BEGIN] = operation_put_begin,
	[KV_OP_PUT_PIECE] = operation_put_piece,
	[KV_OP_PUT_CANCEL] = operation_put_cancel,
	[KV_OP_LANDING] = operation_landing,
	[KV_OP_BUFFER] = operation_buffer,
	[KV_OP_CELLS] = operation_cells,
	[KV_OP_PUT_PULL] = operation_put_pull,
	[KV_OP_COUNTS] = operation_counts,
};

/* ------------------------------------------------------------------------------------------
 * For the operations
 */

int exchange_status(enum store_status status)
{
	switch (status) {
	case STORE_OK:
		return KV_OK;
	case STORE_NOT_FOUND:
		return KV_NOT_FOUND;
	case STORE_EXISTS:
		return KV_EXISTS;
	case STORE_CONFLICT:
		return KV_CAS_FAILED;
	case STORE_KEY_LENGTH:
		return KV_KEY_TOO_LONG;
	case STORE_VALUE_TOO_LONG:
		return KV_VALUE_TOO_LONG;
	case STORE_NO_MEMORY:
		return KV_NO_MEMORY;
	case STORE_NO_ROOM:
		return KV_BUFFER_TOO_SMALL;
	case STORE_NOT_A_NUMBER:
		return KV_NOT_A_NUMBER;
	case STORE_OUT_OF_RANGE:
		return KV_OUT_OF_RANGE;
	case STORE_TOO_MANY_PINS:
		return KV_BUSY;
	case STORE_UNKNOWN:
		return KV_UNKNOWN;
	}
	return KV_INTERNAL;
}

/* A cell is only told to those who can use it, and it is noted that they know one. */
static void tell_cell(struct exchange *exchange, uint64_t cell)
{
	struct session *session = exchange->session;

	if (!(session->capabilities & KV_CAN_COUNT))
		return;
	/* Relaxed: the housekeeper trusts it only after this worker's next turn, which comes with
	 * a release. */
	if (!atomic_load_explicit(&session->cells_oldest, memory_order_relaxed))
		atomic_store_explicit(&session->cells_oldest, exchange->worker->epoch,
				      memory_order_relaxed);
	exchange->reply->cell = cell;
}

void exchange_describe(struct exchange *exchange, const struct store_info *info)
{
	struct kv_reply *reply = exchange->reply;

	reply->version = info->version;
	reply->value_length = info->value_length;
	reply->offset = info->offset;
	if (info->expires_ms) {
		/* What is left is the difference, so the turn's time will not do. */
		reply->expires_ms = info->expires_ms;
		reply->server_time_ms = store_clock_ms(exchange->worker->server->store);
	}
	if (info->cell != STORE_NO_CELL && info->cell_is_open)
		tell_cell(exchange, info->cell);
}

void exchange_fail(struct exchange *exchange, int status, const char *text)
{
	size_t length = strlen(text);

	exchange->reply->status = (int16_t)status;
	exchange->reply->flags = KV_HAS_VALUE;
	exchange->length = length < exchange->room ? length : exchange->room;
	memcpy(exchange->value, text, exchange->length);
}

void exchange_explain_full(struct exchange *exchange, const struct store_put *put,
			   enum store_status status)
{
	struct store_info info;

	if (status != STORE_NO_MEMORY || put->condition != STORE_ALWAYS || put->may_lose_old ||
	    store_stat(exchange->store, put->key, put->key_length, &info) != STORE_OK)
		return;
	exchange_fail(
		exchange, KV_NO_MEMORY,
		"the memory is full: the old value stays until the new one is complete, and "
		"there is no room for both: delete the old one first, or put with may_lose_old");
}

bool exchange_has_room(struct exchange *exchange, size_t length)
{
	if (length <= exchange->room)
		return true;
	counter_add(&exchange->worker->counters.no_buffer, 1);
	exchange_fail(exchange, KV_BUSY, "no buffer for the reply is free");
	return false;
}

/* ------------------------------------------------------------------------------------------
 * Arriving
 */

/* NULL: the request is as it should be, and in its turn. */
static const char *check(struct session *session, const void *message, size_t length,
			 struct kv_request_view *view)
{
	const char *wrong = kv_decode_request(message, length, view);

	if (wrong)
		return wrong;
	if (view->header.id != session->next_id)
		return "a request out of order";
	if (session->sequence - session->completed >= session->limit)
		return "too many requests under way";
	return NULL;
}

static void note_touches(struct exchange *exchange)
{
	counter_add(&exchange->worker->counters.touches, exchange->view.header.touch_count);
	for (unsigned i = 0; i < exchange->view.header.touch_count; i++) {
		struct kv_touch touch = kv_get_touch(&exchange->view, i);

		store_touch(exchange->store, touch.offset, touch.version);
	}
}

static void begin_reply(struct exchange *exchange, struct reply *buffer)
{
	struct session *session = exchange->session;
	size_t room = buffer->room < session->max_reply ? buffer->room : session->max_reply;

	exchange->buffer = buffer;
	exchange->reply = (struct kv_reply *)buffer->bytes;
	*exchange->reply = (struct kv_reply){
		.op = exchange->view.header.op,
		.id = exchange->view.header.id,
		.cells_epoch = exchange->worker->epoch,
		.server_time_ms = exchange->worker->now_ms,
		.cell = KV_NO_CELL,
	};
	exchange->value = buffer->bytes + sizeof(*exchange->reply);
	exchange->room = room - sizeof(*exchange->reply);
	exchange->length = 0;
	exchange->is_later = false;
}

bool exchange_resume(struct exchange *exchange, struct session *session, unsigned op, uint32_t id)
{
	struct reply *buffer = session_reply(session);

	if (!buffer)
		return false;
	*exchange = (struct exchange){
		.session = session, .worker = session->worker, .store = session->worker->store};
	exchange->view.header.op = (uint8_t)op;
	exchange->view.header.id = id;
	begin_reply(exchange, buffer);
	return true;
}

void exchange_send(struct exchange *exchange)
{
	session_send(exchange->session, exchange->buffer,
		     sizeof(*exchange->reply) + exchange->length);
}

/* Counts it. Returns when it began in ticks, if it is to be timed; else 0. */
static uint64_t count_request(const struct exchange *exchange, size_t length)
{
	struct counters *counters = &exchange->worker->counters;
	_Atomic uint64_t *count =
		&counters->requests[exchange->session->queue->path->kind][exchange->view.header.op];
	/* Relaxed: this thread alone writes it. */
	bool is_timed = atomic_load_explicit(count, memory_order_relaxed) % TIMES_EVERY == 0;

	counter_add(count, 1);
	counter_add(&counters->bytes_in, (int64_t)length);
	return is_timed ? clock_ticks() : 0;
}

void request_arrived(struct session *session, const void *message, size_t length)
{
	struct worker *worker = session->worker;
	struct exchange exchange;
	uint64_t begin;
	const struct kv_request *header = &exchange.view.header;
	const char *wrong = check(session, message, length, &exchange.view);
	struct reply *buffer;

	if (wrong) {
		session_violation(session, wrong);
		return;
	}
	session->next_id++;
	session->last_ms = worker->now_ms;
	buffer = session_reply(session);
	if (!buffer)
		return;
	exchange.session = session;
	exchange.worker = worker;
	exchange.store = worker->store;
	memcpy(worker->key, exchange.view.key, header->key_length);
	exchange.key = worker->key;
	begin_reply(&exchange, buffer);
	begin = count_request(&exchange, length);
	if (header->touch_count)
		note_touches(&exchange);
	if (!(session->capabilities & KV_CAN_WRITE) && kv_op_changes(header->op))
		exchange_fail(&exchange, KV_DENIED, "this key permits reading alone");
	else
		operations[header->op](&exchange);
	/* What is left for later takes as long as the client's memory. */
	if (exchange.is_later)
		return;
	exchange_send(&exchange);
	if (begin)
		times_record(&worker->times, header->op, clock_ticks_to_ns(clock_ticks() - begin));
}

void request_landed(struct session *session, uint32_t immediate)
{
	uint64_t place = (uint64_t)immediate * KV_PLACE, room;
	struct kv_request header;

	if (!session->landing) {
		session_violation(session, "a WRITE_IMM without a landing buffer");
		return;
	}
	room = place < session->landing_size ? session->landing_size - place : 0;
	if (room < sizeof(header)) {
		session_violation(session, "a request outside of its landing buffer");
		return;
	}
	/* A client that has the buffer mapped writes the parts by itself, and the last WRITE is of
	 * the header alone: so the header says how long it is. */
	memcpy(&header, session->landing + place, sizeof(header));
	if ((kv_op_has_value(header.op) && header.value_length > room) ||
	    kv_request_size(&header) > room)
		session_violation(session, "a request outside of its landing buffer");
	else {
		counter_add(&session->worker->counters.landed, 1);
		request_arrived(session, session->landing + place, kv_request_size(&header));
	}
}
