/*
 * The calls. Of most kinds there are several that do the same; which one is taken is chosen by
 * chance. What is recorded is what the caller was told, no more: some calls tell no version.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "value.h"
#include "worker.h"

/* The share of calls in which a planted bug shows. */
#define PLANTED_ONE_IN 50

void take_status(struct worker *me, const struct history_op *op, int status)
{
	struct workload_figures *figures = me->load->figures;

	atomic_fetch_add_explicit(&figures->operations, 1, memory_order_relaxed);
	switch (status) {
	case KV_OK:
	case KV_NOT_FOUND:
	case KV_EXISTS:
	case KV_CAS_FAILED:
	case KV_NOT_A_NUMBER:
	case KV_UNKNOWN:
		break;
	case KV_NO_MEMORY:
		atomic_fetch_add(&figures->no_memory, 1);
		/* fallthrough */
	case KV_TIMEOUT:
	case KV_DISCONNECTED:
	case KV_BUSY:
		if (atomic_fetch_add(&figures->nothing_done, 1) == 0)
			snprintf(figures->first_failure, sizeof(figures->first_failure),
				 "kind %u of %zu bytes: status %d after %" PRIu64 " ms: %s",
				 op->kind, value_length(op->argument), status,
				 (clock_now_ns() - op->invoke_ns) / 1000000,
				 kv_client_error(me->client));
		break;
	default:
		TEST_FAIL("round %" PRIu64 ", process %" PRIu32 ", kind %u of key %" PRIu32
			  ": status %d: %s",
			  me->load->round, me->load->process, op->kind, op->key, status,
			  kv_client_error(me->client));
	}
}

void take_value(struct worker *me, struct history_op *op, const void *value, size_t length)
{
	size_t at;

	if (!me->returned_ns)
		me->returned_ns = clock_now_ns();
	if (length <= VALUE_NUMBER) {
		char text[VALUE_NUMBER + 1] = "", *end;

		memcpy(text, value, length);
		op->found_kind = HISTORY_FOUND_NUMBER;
		op->found = (uint64_t)strtoll(text, &end, 10);
		if (length == 0 || *end)
			TEST_FAIL("round %" PRIu64 ", key %" PRIu32 ": '%s' is no counter's text",
				  me->load->round, op->key, text);
		me->numbers[op->key] = (int64_t)op->found;
		return;
	}
	op->found_kind = HISTORY_FOUND_VALUE;
	op->found = value_parse(value, length, &at);
	if (op->found == 0)
		TEST_FAIL("round %" PRIu64 ", process %" PRIu32 ", key %" PRIu32
			  ": torn at byte %zu of %zu; it came by path %s",
			  me->load->round, me->load->process, op->key, at, length,
			  kv_path_name(kv_client_last_path(me->client)));
}

/* ------------------------------------------------------------------------------------------
 * Gets
 */

static int get_plain(struct worker *me, const char *key, struct history_op *op)
{
	size_t length = VALUE_LONGEST;
	kv_info_t info;
	int status;

	if (one_in(me, 4)) {
		status = kv_client_get(me->client, key, strlen(key), me->in, &length);
	} else {
		status = kv_client_get_with(me->client, key, strlen(key), me->in, &length, &info);
		if (status == KV_OK)
			op->version = info.version;
	}
	if (status == KV_OK)
		take_value(me, op, me->in, length);
	return status;
}

static int get_alloc(struct worker *me, const char *key, struct history_op *op)
{
	void *value;
	size_t length;
	kv_info_t info;
	int status = kv_client_get_alloc(me->client, key, strlen(key), &value, &length, &info);

	if (status == KV_OK) {
		op->version = info.version;
		take_value(me, op, value, length);
		kv_free(value);
	}
	return status;
}

/* KV_UNSUPPORTED: not by this transport. */
static int get_view(struct worker *me, const char *key, struct history_op *op)
{
	kv_view_t view;
	int status = kv_client_view(me->client, key, strlen(key), &view);

	if (status == KV_OK) {
		op->version = view.version;
		take_value(me, op, view.value, view.length);
		kv_client_release(me->client, &view);
	}
	return status;
}

static int get_stat(struct worker *me, const char *key, struct history_op *op)
{
	kv_info_t info;
	int status;

	if (one_in(me, 2))
		return kv_client_exists(me->client, key, strlen(key));
	status = kv_client_stat(me->client, key, strlen(key), &info);
	if (status == KV_OK)
		op->version = info.version;
	return status;
}

static int do_get(struct worker *me, const char *key, struct history_op *op)
{
	uint64_t dice = test_rng_below(&me->rng, 100);
	int status = KV_UNSUPPORTED;

	if (dice < 5)
		status = get_view(me, key, op);
	else if (dice < 15)
		status = get_alloc(me, key, op);
	else if (dice < 25)
		status = get_stat(me, key, op);
	if (status == KV_UNSUPPORTED)
		status = get_plain(me, key, op);
	return status;
}

/* The same, but with a cache that nobody ever told of changes. */
static int do_get_planted(struct worker *me, const char *key, struct history_op *op)
{
	struct history_op *last = &me->last_get[op->key];
	int status;

	if (me->load->planted == PLANTED_STALE_GET && last->found && one_in(me, PLANTED_ONE_IN)) {
		op->found_kind = last->found_kind;
		op->found = last->found;
		op->version = last->version;
		return KV_OK;
	}
	status = do_get(me, key, op);
	if (status == KV_OK && op->found_kind != HISTORY_FOUND_SOMETHING)
		*last = *op;
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Changes
 */

static int do_put(struct worker *me, const char *key, struct history_op *op)
{
	size_t length = value_length(op->argument);
	kv_put_options_t options = {
		.condition = op->kind == HISTORY_PUT_IF_ABSENT ? KV_IF_ABSENT
			     : op->kind == HISTORY_CAS	       ? KV_IF_VERSION
							       : KV_ALWAYS,
		.version = op->expected,
	};
	kv_info_t info = {0};
	int status;

	value_fill(op->argument, me->out);
	if (me->load->planted == PLANTED_LOST_PUT && op->kind == HISTORY_PUT &&
	    one_in(me, PLANTED_ONE_IN))
		return KV_OK;
	if (op->kind == HISTORY_PUT && one_in(me, 4))
		return kv_client_put(me->client, key, strlen(key), me->out, length);
	if (op->kind == HISTORY_CAS && one_in(me, 2)) {
		status = kv_client_cas(me->client, key, strlen(key), op->expected, me->out, length,
				       &info.version);
		if (status == KV_OK || status == KV_CAS_FAILED)
			op->version = info.version;
		return status;
	}
	status = kv_client_put_with(me->client, key, strlen(key), me->out, length, &options, &info);
	if (status == KV_OK || status == KV_EXISTS || status == KV_CAS_FAILED)
		op->version = info.version;
	return status;
}

static int do_delete(struct worker *me, const char *key, struct history_op *op)
{
	kv_info_t info = {0};
	int status;

	if (op->kind == HISTORY_DELETE)
		return kv_client_delete(me->client, key, strlen(key));
	status = kv_client_delete_version(me->client, key, strlen(key), op->expected, &info);
	if (status == KV_CAS_FAILED)
		op->version = info.version;
	return status;
}

static int do_incr(struct worker *me, const char *key, struct history_op *op)
{
	int64_t number = 0, delta = (int64_t)op->argument;
	int status;

	if (me->load->planted == PLANTED_DOUBLE_INCR && one_in(me, PLANTED_ONE_IN))
		(void)kv_client_incr(me->client, key, strlen(key), delta, &number);
	if (one_in(me, 4)) {
		status = kv_client_fetch_add(me->client, key, strlen(key), delta, &number);
		number += delta;
	} else {
		status = kv_client_incr(me->client, key, strlen(key), delta, &number);
	}
	if (status == KV_OK) {
		op->found = (uint64_t)number;
		me->numbers[op->key] = number;
	}
	return status;
}

static int do_counter_cas(struct worker *me, const char *key, struct history_op *op)
{
	int64_t found = 0;
	int status = kv_client_counter_cas(me->client, key, strlen(key), (int64_t)op->expected,
					   (int64_t)op->argument, &found);

	if (status == KV_OK || status == KV_CAS_FAILED) {
		op->found = (uint64_t)found;
		me->numbers[op->key] = status == KV_OK ? (int64_t)op->argument : found;
	}
	return status;
}

static void ask(struct worker *me, struct history_op *op)
{
	switch (op->kind) {
	case HISTORY_CAS:
	case HISTORY_DELETE_IF_VERSION:
		op->expected = me->versions[op->key];
		break;
	case HISTORY_INCR:
		op->argument = 1 + test_rng_below(&me->rng, 3);
		break;
	case HISTORY_COUNTER_CAS:
		op->expected = (uint64_t)me->numbers[op->key];
		op->argument = test_rng_below(&me->rng, 1000);
		break;
	default:
		break;
	}
	if (op->kind == HISTORY_PUT || op->kind == HISTORY_PUT_IF_ABSENT || op->kind == HISTORY_CAS)
		op->argument = new_value(me);
}

bool call(struct worker *me, enum history_kind kind, uint32_t key)
{
	static int (*const calls[HISTORY_KINDS])(struct worker *, const char *,
						 struct history_op *) = {
		[HISTORY_GET] = do_get_planted,	  [HISTORY_PUT] = do_put,
		[HISTORY_PUT_IF_ABSENT] = do_put, [HISTORY_CAS] = do_put,
		[HISTORY_DELETE] = do_delete,	  [HISTORY_DELETE_IF_VERSION] = do_delete,
		[HISTORY_INCR] = do_incr,	  [HISTORY_COUNTER_CAS] = do_counter_cas,
	};
	struct history_op asked = {.kind = (uint8_t)kind, .key = key}, *op;
	int status;

	ask(me, &asked);
	op = history_begin(me->load->history, me->load->process, &asked);
	if (!op)
		return false;
	me->returned_ns = 0;
	status = calls[kind](me, me->keys[key], op);
	history_end_at(op, status, me->returned_ns ? me->returned_ns : clock_now_ns());
	take_status(me, op, status);
	if (op->version)
		me->versions[key] = op->version;
	return true;
}
