/*
 * Drafts: puts whose value does not come with the request. The item's memory is taken at once, and
 * nobody sees it before all of the value is there. A client has few at a time, as each takes memory
 * from everybody.
 *
 *	PUT_BEGIN	the client sends pieces, which are copied to where they belong. Each begins
 *			where the last one ended: so the first `received` bytes of the value are
 *			there, and when all are received no byte is what the memory held before.
 *			The order costs the client nothing, as requests arrive in the order in
 *			which they were posted
 *	PUT_PULL	the server READs the value from the client's memory to where it belongs,
 *			a few pieces at a time, and hashes each when it is there. It is answered
 *			when the last one is. Such a draft cannot be given up while a READ is under
 *			way: one that is cancelled posts no more of them, and ends with the last
 *			that is under way.
 */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "server/internal.h"

/* Short enough that it is still in the cache when it is hashed. */
#define PULL_PIECE 131072u
/* While it pulls the server tells the client this often how far it has come: the client gives up
 * when it hears of no progress for its timeout. */
#define PROGRESS_MS 20u

static struct draft *find_draft(struct session *session, uint64_t id)
{
	for (unsigned i = 0; i < SERVER_MAX_DRAFTS; i++) {
		if (session->drafts[i].draft.item && session->drafts[i].id == id)
			return &session->drafts[i];
	}
	return NULL;
}

static struct draft *find_free(struct session *session)
{
	for (unsigned i = 0; i < SERVER_MAX_DRAFTS; i++) {
		if (!session->drafts[i].draft.item)
			return &session->drafts[i];
	}
	return NULL;
}

/* NULL: the reply says why. */
static struct draft *begin(struct exchange *exchange, uint64_t value_length)
{
	const struct kv_request *header = &exchange->view.header;
	struct draft *draft = find_free(exchange->session);
	struct store_put put = {
		.key = exchange->key,
		.key_length = header->key_length,
		.value_length = value_length,
		.ttl_ms = header->argument,
		.condition = request_condition(header),
		.version = header->version,
		.may_lose_old = header->flags & KV_MAY_LOSE_OLD,
	};
	enum store_status status;

	if (put.condition > STORE_IF_VERSION) {
		exchange_fail(exchange, KV_INVALID, "no such condition");
		return NULL;
	}
	if (!draft) {
		exchange_fail(exchange, KV_BUSY, "too many puts in pieces at once");
		return NULL;
	}
	status = store_draft_begin(exchange->store, &put, &draft->draft);
	exchange->reply->status = (int16_t)exchange_status(status);
	if (status != STORE_OK) {
		draft->draft.item = NULL;
		exchange_explain_full(exchange, &put, status);
		return NULL;
	}
	store_draft_hash_along(&draft->draft, &draft->stream);
	/* The key is in the item; the copy here is the next request's soon. */
	put.key = NULL;
	draft->put = put;
	draft->id = header->id;
	draft->received = draft->asked = 0;
	draft->source = NULL;
	draft->is_cancelled = false;
	draft->is_told = header->flags & KV_TELL;
	draft->last_ms = draft->told_ms = exchange->worker->now_ms;
	counter_add(&exchange->worker->counters.drafts, 1);
	return draft;
}

void operation_put_begin(struct exchange *exchange)
{
	(void)begin(exchange, exchange->view.header.value_length);
}

static void give_up(struct session *session, struct draft *draft)
{
	store_draft_abort(session->worker->store, &draft->draft);
	draft->source = NULL; /* closed with the connection */
	counter_add(&session->worker->counters.drafts, -1);
}

static void commit(struct exchange *exchange, struct draft *draft)
{
	struct store_info info;
	enum store_status status;

	/* It ends, either way. */
	counter_add(&exchange->worker->counters.drafts, -1);
	if (draft->received != draft->draft.value_length) {
		store_draft_abort(exchange->store, &draft->draft);
		exchange_fail(exchange, KV_INVALID,
			      "the last piece came, and the value is not complete");
		return;
	}
	status = store_draft_commit(exchange->store, &draft->put, &draft->draft, &info);
	exchange->reply->status = (int16_t)exchange_status(status);
	if (status == STORE_OK || status == STORE_EXISTS || status == STORE_CONFLICT)
		exchange_describe(exchange, &info);
}

void operation_put_piece(struct exchange *exchange)
{
	const struct kv_request *header = &exchange->view.header;
	struct draft *draft = find_draft(exchange->session, header->argument);

	if (!draft || draft->source) {
		exchange_fail(exchange, KV_INVALID, "a piece of no put");
		return;
	}
	if (header->place != draft->received ||
	    header->value_length > draft->draft.value_length - header->place) {
		give_up(exchange->session, draft);
		exchange_fail(exchange, KV_INVALID,
			      "a piece that does not begin where the last one ended, or goes "
			      "beyond the end of its value: the put is off");
		return;
	}
	store_draft_fill(&draft->draft, header->place, exchange->view.value, header->value_length);
	draft->received += header->value_length;
	draft->last_ms = exchange->worker->now_ms;
	if (header->flags & KV_FINAL)
		commit(exchange, draft);
}

void operation_put_cancel(struct exchange *exchange)
{
	struct draft *draft = find_draft(exchange->session, exchange->view.header.argument);

	if (!draft) {
		exchange_fail(exchange, KV_INVALID, "no such put is under way");
		return;
	}
	if (draft->source)
		draft->is_cancelled = true; /* answered when the READs under way are done */
	else
		give_up(exchange->session, draft);
}

/* ------------------------------------------------------------------------------------------
 * Pulling
 */

/* Posts as many READs as there may be. */
static void pull(struct session *session, struct draft *draft)
{
	const struct server_path *path = session->queue->path;
	size_t length = draft->draft.value_length;

	while (draft->asked < length &&
	       draft->asked - draft->received < (uint64_t)SERVER_PULLS * PULL_PIECE) {
		size_t left = length - draft->asked;
		struct rmr_work work = {
			.op = RMR_OP_READ,
			.cookie = (uint64_t)(draft - session->drafts),
			.local = (uint8_t *)draft->draft.value + draft->asked,
			.length = left < PULL_PIECE ? left : PULL_PIECE,
			.region = path->arena,
			.remote = draft->source,
			.offset = draft->asked,
		};

		if (!session_post(session, &work))
			return;
		draft->asked += work.length;
	}
}

/* The client's memory, if it may be read and is as long as the value. */
static struct rmr_remote *open_source(struct exchange *exchange, uint64_t length)
{
	struct rmr_descriptor descriptor;
	struct rmr_remote *source;

	if (exchange->view.header.value_length != sizeof(descriptor) || length == 0) {
		exchange_fail(exchange, KV_INVALID, "that is no descriptor of a value");
		return NULL;
	}
	memcpy(&descriptor, exchange->view.value, sizeof(descriptor));
	if (rmr_remote_open(exchange->session->conn, &descriptor, &source) != RMR_OK) {
		exchange_fail(exchange, KV_INVALID, error_chain());
		return NULL;
	}
	if (rmr_remote_rights(source) & RMR_READ && rmr_remote_length(source) >= length)
		return source;
	rmr_remote_close(source);
	exchange_fail(exchange, KV_INVALID, "the value may not be read, or is longer than it says");
	return NULL;
}

void operation_put_pull(struct exchange *exchange)
{
	uint64_t length = exchange->view.header.place;
	struct rmr_remote *source;
	struct draft *draft;

	if (!(exchange->session->capabilities & KV_CAN_PULL)) {
		exchange_fail(exchange, KV_UNSUPPORTED, "values are not read by this path");
		return;
	}
	source = open_source(exchange, length);
	if (!source)
		return;
	draft = begin(exchange, length);
	if (!draft) {
		rmr_remote_close(source);
		return;
	}
	draft->source = source;
	exchange->is_later = true;
	pull(exchange->session, draft);
}

/* Tells the client how much has come, if it was not told lately, and there is plenty of room for
 * answers. */
static void tell_progress(struct session *session, struct draft *draft)
{
	uint64_t now_ms = session->worker->now_ms;
	struct exchange exchange;

	if (!draft->is_told || now_ms < draft->told_ms + PROGRESS_MS ||
	    reply_pool_is_low(&session->queue->pool) ||
	    session->sequence - session->completed >= session->limit / 2)
		return;
	draft->told_ms = now_ms;
	if (!exchange_resume(&exchange, session, KV_OP_PUT_PULL, draft->id))
		return;
	exchange.reply->flags = KV_PROGRESS;
	exchange.reply->number = draft->received;
	exchange_send(&exchange);
}

bool drafts_are_pulled(const struct session *session)
{
	for (unsigned i = 0; i < SERVER_MAX_DRAFTS; i++) {
		if (session->drafts[i].source)
			return true;
	}
	return false;
}

void draft_arrived(struct session *session, uint64_t number)
{
	struct draft *draft = &session->drafts[number];
	struct exchange exchange;
	size_t left, piece;

	/* After the last words nothing is carried out any more. */
	if (session->state != SESSION_READY || !draft->source)
		return;
	/* They complete in the order in which they were posted. */
	left = draft->draft.value_length - draft->received;
	piece = left < PULL_PIECE ? left : PULL_PIECE;
	store_draft_filled(&draft->draft, piece);
	draft->received += piece;
	draft->last_ms = session->last_ms = session->worker->now_ms;
	counter_add(&session->worker->counters.bytes_in, (int64_t)piece);
	if (draft->is_cancelled ? draft->received < draft->asked
				: draft->received < draft->draft.value_length) {
		if (!draft->is_cancelled)
			pull(session, draft);
		tell_progress(session, draft);
		return;
	}
	rmr_remote_close(draft->source);
	draft->source = NULL;
	if (!exchange_resume(&exchange, session, KV_OP_PUT_PULL, draft->id))
		return;
	if (draft->is_cancelled) {
		give_up(session, draft);
		exchange_fail(&exchange, KV_CANCELED, "cancelled by the client");
	} else {
		commit(&exchange, draft);
	}
	exchange_send(&exchange);
}

/* ------------------------------------------------------------------------------------------
 * Giving up
 */

bool drafts_expire(struct session *session, uint64_t now_ms, uint64_t limit_ms)
{
	bool are_left = false;

	for (unsigned i = 0; i < SERVER_MAX_DRAFTS; i++) {
		struct draft *draft = &session->drafts[i];

		if (!draft->draft.item)
			continue;
		are_left |= now_ms <= draft->last_ms + limit_ms;
		if (now_ms <= draft->last_ms + limit_ms)
			continue;
		if (!draft->source) {
			give_up(session, draft);
			continue;
		}
		log_warn_limited("%s: its memory cannot be read; thrown out", session->peer);
		counter_add(&session->worker->counters.timeouts, 1);
		session_end(session);
	}
	return are_left;
}

void drafts_release(struct session *session)
{
	for (unsigned i = 0; i < SERVER_MAX_DRAFTS; i++) {
		if (session->drafts[i].draft.item)
			give_up(session, &session->drafts[i]);
	}
}
