/*
 * The model. Each kind of operation is a function that takes the state before it to the one after
 * it, or says that its answer does not fit.
 */
#include "model.h"

#include <inttypes.h>

/* Something tells the version of what is there; 0: it does not. */
static bool see_version(struct model_state *state, uint64_t version)
{
	if (version == 0)
		return true;
	if (state->version)
		return state->version == version;
	if (version <= state->floor)
		return false;
	state->version = state->floor = version;
	return true;
}

static bool set(struct model_state *state, enum model_kind kind, uint64_t content, uint64_t version)
{
	state->kind = kind;
	state->content = content;
	state->version = version;
	if (version && version <= state->floor)
		return false;
	if (version)
		state->floor = version;
	return true;
}

/* A counter may keep its version, or get a higher one. */
static void count_on(struct model_state *state, uint64_t number)
{
	state->content = number;
	if (state->version)
		state->floor = state->version - 1;
	state->version = 0;
}

static bool clear(struct model_state *state)
{
	*state = (struct model_state){.kind = MODEL_ABSENT, .mark = state->mark};
	return true;
}

static bool apply_get(const struct model_op *op, struct model_state *state)
{
	const struct history_op *from = op->from;

	if (from->status == KV_NOT_FOUND)
		return state->kind == MODEL_ABSENT;
	if (from->status != KV_OK || state->kind == MODEL_ABSENT)
		return false;
	if (from->found_kind == HISTORY_FOUND_VALUE &&
	    (state->kind != MODEL_VALUE || state->content != from->found))
		return false;
	if (from->found_kind == HISTORY_FOUND_NUMBER &&
	    (state->kind != MODEL_COUNTER || state->content != from->found))
		return false;
	return see_version(state, op->version);
}

static bool apply_put(const struct model_op *op, struct model_state *state)
{
	if (!op->is_blind && op->from->status != KV_OK)
		return false;
	return set(state, MODEL_VALUE, op->argument, op->version);
}

static bool apply_put_if_absent(const struct model_op *op, struct model_state *state)
{
	if (!op->is_blind && op->from->status == KV_EXISTS)
		return state->kind != MODEL_ABSENT && see_version(state, op->version);
	if (!op->is_blind && op->from->status != KV_OK)
		return false;
	return state->kind == MODEL_ABSENT && set(state, MODEL_VALUE, op->argument, op->version);
}

/* The answers of all that depends on the version. *pass: it is the one that was expected. */
static bool check_version(const struct model_op *op, struct model_state *state, bool *pass)
{
	uint64_t expected = op->from->expected;
	int status = op->is_blind ? KV_OK : op->from->status;

	*pass = status == KV_OK;
	if (status == KV_NOT_FOUND)
		return state->kind == MODEL_ABSENT;
	if (state->kind == MODEL_ABSENT)
		return false;
	/* 0 is no version. */
	if (status == KV_OK)
		return expected != 0 && !(op->is_owned && state->version == 0) &&
		       see_version(state, expected);
	if (expected && (op->version == expected || state->version == expected))
		return false;
	return status == KV_CAS_FAILED && see_version(state, op->version);
}

static bool apply_cas(const struct model_op *op, struct model_state *state)
{
	bool pass;

	return check_version(op, state, &pass) &&
	       (!pass || set(state, MODEL_VALUE, op->argument, op->version));
}

static bool apply_delete(const struct model_op *op, struct model_state *state)
{
	if (!op->is_blind && op->from->status == KV_NOT_FOUND)
		return state->kind == MODEL_ABSENT;
	if (!op->is_blind && op->from->status != KV_OK)
		return false;
	return state->kind != MODEL_ABSENT && clear(state);
}

static bool apply_delete_if_version(const struct model_op *op, struct model_state *state)
{
	bool pass;

	return check_version(op, state, &pass) && (!pass || clear(state));
}

static bool apply_incr(const struct model_op *op, struct model_state *state)
{
	int64_t before = state->kind == MODEL_COUNTER ? (int64_t)state->content : 0, sum;
	bool overflow = __builtin_add_overflow(before, (int64_t)op->argument, &sum);
	int status = op->is_blind ? KV_OK : op->from->status;

	if (status == KV_NOT_A_NUMBER)
		return state->kind == MODEL_VALUE;
	if (state->kind == MODEL_VALUE)
		return false;
	if (status == KV_OUT_OF_RANGE)
		return overflow;
	if (status != KV_OK || overflow || (!op->is_blind && op->from->found != (uint64_t)sum))
		return false;
	if (state->kind == MODEL_ABSENT)
		return set(state, MODEL_COUNTER, (uint64_t)sum, 0);
	count_on(state, (uint64_t)sum);
	return true;
}

static bool apply_counter_cas(const struct model_op *op, struct model_state *state)
{
	int status = op->is_blind ? KV_OK : op->from->status;

	if (status == KV_NOT_FOUND)
		return state->kind == MODEL_ABSENT;
	if (status == KV_NOT_A_NUMBER)
		return state->kind == MODEL_VALUE;
	if (state->kind != MODEL_COUNTER || (!op->is_blind && op->from->found != state->content))
		return false;
	if (status == KV_CAS_FAILED)
		return state->content != op->from->expected;
	if (status != KV_OK || state->content != op->from->expected)
		return false;
	count_on(state, op->argument);
	return true;
}

bool model_apply(const struct model_op *op, struct model_state *state)
{
	static bool (*const apply[HISTORY_KINDS])(const struct model_op *, struct model_state *) = {
		[HISTORY_GET] = apply_get,
		[HISTORY_PUT] = apply_put,
		[HISTORY_PUT_IF_ABSENT] = apply_put_if_absent,
		[HISTORY_CAS] = apply_cas,
		[HISTORY_DELETE] = apply_delete,
		[HISTORY_DELETE_IF_VERSION] = apply_delete_if_version,
		[HISTORY_INCR] = apply_incr,
		[HISTORY_COUNTER_CAS] = apply_counter_cas,
	};

	return apply[op->from->kind](op, state);
}

int model_describe(const struct model_state *state, char *text, size_t size)
{
	if (state->kind == MODEL_ABSENT)
		return snprintf(text, size, "absent");
	if (state->kind == MODEL_COUNTER)
		return snprintf(text, size, "a counter at %" PRId64 ", version %" PRIu64,
				(int64_t)state->content, state->version);
	if (state->content == 0)
		return snprintf(text, size, "a value that nobody read, version %" PRIu64,
				state->version);
	return snprintf(text, size, "value %#" PRIx64 ", version %" PRIu64, state->content,
			state->version);
}
