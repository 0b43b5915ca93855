/*
 * Operations that are submitted, several at once, often on the same key, and polled for. Each has
 * its own entry in the history; it was invoked when it was submitted, and returned when its result
 * was polled. A value's buffer belongs to the client until then, so each has its own.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "value.h"
#include "worker.h"

#define MOST 12u

struct pending {
	struct history_op *op;
	uint8_t *buffer;
};

static int submit(struct worker *me, struct pending *pending, uint64_t cookie)
{
	const struct history_op *op = pending->op;
	const char *key = me->keys[op->key];
	size_t key_length = strlen(key);
	kv_put_options_t options = {.condition = op->kind == HISTORY_CAS	     ? KV_IF_VERSION
						 : op->kind == HISTORY_PUT_IF_ABSENT ? KV_IF_ABSENT
										     : KV_ALWAYS,
				    .version = op->expected};

	switch (op->kind) {
	case HISTORY_GET:
		return kv_client_submit_get(me->client, key, key_length, pending->buffer,
					    VALUE_LONGEST, cookie);
	case HISTORY_DELETE:
		return kv_client_submit_delete(me->client, key, key_length, cookie);
	case HISTORY_INCR:
		return kv_client_submit_incr(me->client, key, key_length, (int64_t)op->argument,
					     cookie);
	default:
		value_fill(op->argument, me->out);
		return kv_client_submit_put(me->client, key, key_length, me->out,
					    value_length(op->argument), &options, cookie);
	}
}

static void ask(struct worker *me, struct history_op *op)
{
	op->key = (uint32_t)test_rng_below(&me->rng, WORKLOAD_KEYS);
	op->kind = (uint8_t)pick_kind(me, op->key);
	/* These cannot be submitted. */
	if (op->kind == HISTORY_DELETE_IF_VERSION || op->kind == HISTORY_COUNTER_CAS)
		op->kind = HISTORY_DELETE;
	if (op->kind == HISTORY_CAS)
		op->expected = me->versions[op->key];
	if (op->kind == HISTORY_INCR)
		op->argument = 1 + test_rng_below(&me->rng, 3);
	else if (op->kind != HISTORY_GET && op->kind != HISTORY_DELETE)
		op->argument = new_value(me);
}

static void take(struct worker *me, struct pending *pending, const kv_result_t *result)
{
	struct history_op *op = pending->op;

	CHECK(op);
	if (result->status == KV_OK && op->kind == HISTORY_GET)
		take_value(me, op, pending->buffer, result->length);
	if (result->status == KV_OK && op->kind == HISTORY_INCR)
		op->found = (uint64_t)result->number;
	if (op->kind != HISTORY_DELETE && op->kind != HISTORY_INCR &&
	    (result->status == KV_OK || result->status == KV_EXISTS ||
	     result->status == KV_CAS_FAILED))
		op->version = result->version;
	history_end_at(op, result->status, me->returned_ns);
	take_status(me, op, result->status);
	if (op->version)
		me->versions[op->key] = op->version;
	pending->op = NULL;
}

/* Those that were submitted. */
static unsigned submit_all(struct worker *me, struct pending *pending, unsigned count,
			   bool *is_full)
{
	unsigned submitted = 0;

	for (unsigned i = 0; i < count; i++) {
		struct history_op asked = {0};
		int status;

		ask(me, &asked);
		pending[i].op = history_begin(me->load->history, me->load->process, &asked);
		*is_full = pending[i].op == NULL;
		if (*is_full)
			break;
		status = submit(me, &pending[i], i);
		if (status == KV_OK) {
			submitted++;
			continue;
		}
		history_end(pending[i].op, status);
		if (status != KV_AGAIN)
			take_status(me, pending[i].op, status);
		pending[i].op = NULL;
	}
	return submitted;
}

bool call_async(struct worker *me)
{
	static struct pending pending[MOST];
	unsigned left;
	kv_result_t results[MOST];
	bool is_full = false;

	for (unsigned i = 0; i < MOST && !pending[i].buffer; i++)
		CHECK((pending[i].buffer = malloc(VALUE_LONGEST)) != NULL);
	left = submit_all(me, pending, 1 + (unsigned)test_rng_below(&me->rng, MOST), &is_full);
	while (left > 0) {
		int got = kv_client_poll(me->client, results, MOST, -1);

		/* Each has a deadline, which is before this poll's. */
		if (got <= 0)
			TEST_FAIL("poll: %d, with %u under way: %s", got, left,
				  kv_client_error(me->client));
		me->returned_ns = clock_now_ns();
		for (int i = 0; i < got; i++) {
			CHECK(results[i].cookie < MOST);
			take(me, &pending[results[i].cookie], &results[i]);
		}
		left -= (unsigned)got;
	}
	return !is_full;
}
