/*
 * Drafts: puts whose value comes in pieces. The item's memory is taken at PUT_BEGIN and the pieces
 * are copied to where they belong; nobody sees it before the last one. A client has few at a time,
 * as each takes memory from everybody.
 */
#include <string.h>

#include "server/internal.h"

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

void operation_put_begin(struct exchange *exchange)
{
	const struct kv_request *header = &exchange->view.header;
	struct draft *draft = find_free(exchange->session);
	struct store_put put = {
		.key = exchange->key,
		.key_length = header->key_length,
		.value_length = header->value_length,
		.ttl_ms = header->argument,
		.condition = request_condition(header),
		.version = header->version,
	};
	enum store_status status;

	if (put.condition > STORE_IF_VERSION) {
		exchange_fail(exchange, KV_INVALID, "no such condition");
		return;
	}
	if (!draft) {
		exchange_fail(exchange, KV_BUSY, "too many puts in pieces at once");
		return;
	}
	status = store_draft_begin(exchange->store, &put, &draft->draft);
	exchange->reply->status = (int16_t)exchange_status(status);
	if (status != STORE_OK) {
		draft->draft.item = NULL;
		return;
	}
	store_draft_hash_along(&draft->draft, &draft->stream);
	/* The key is in the item; the copy here is the next request's soon. */
	put.key = NULL;
	draft->put = put;
	draft->id = header->id;
	draft->received = 0;
	draft->last_ms = exchange->worker->now_ms;
	counter_add(&exchange->worker->counters.drafts, 1);
}

static void commit(struct exchange *exchange, struct draft *draft)
{
	struct store_info info;
	enum store_status status;

	/* It ends, either way. */
	counter_add(&exchange->worker->counters.drafts, -1);
	if (draft->received != draft->draft.value_length) {
		store_draft_abort(exchange->store, &draft->draft);
		exchange_fail(exchange, KV_INVALID, "the last piece came before the others");
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

	if (!draft) {
		exchange_fail(exchange, KV_INVALID, "a piece of no put");
		return;
	}
	if (header->place > draft->draft.value_length ||
	    header->value_length > draft->draft.value_length - header->place) {
		exchange_fail(exchange, KV_INVALID, "a piece beyond the end of its value");
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
	store_draft_abort(exchange->store, &draft->draft);
	counter_add(&exchange->worker->counters.drafts, -1);
}

bool drafts_expire(struct session *session, uint64_t now_ms, uint64_t limit_ms)
{
	bool are_left = false;

	for (unsigned i = 0; i < SERVER_MAX_DRAFTS; i++) {
		struct draft *draft = &session->drafts[i];

		if (!draft->draft.item)
			continue;
		are_left |= now_ms <= draft->last_ms + limit_ms;
		if (now_ms > draft->last_ms + limit_ms) {
			store_draft_abort(session->worker->store, &draft->draft);
			counter_add(&session->worker->counters.drafts, -1);
		}
	}
	return are_left;
}

void drafts_release(struct session *session)
{
	for (unsigned i = 0; i < SERVER_MAX_DRAFTS; i++) {
		if (!session->drafts[i].draft.item)
			continue;
		store_draft_abort(session->worker->store, &session->drafts[i].draft);
		counter_add(&session->worker->counters.drafts, -1);
	}
}
