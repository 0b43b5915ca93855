/*
 * Spoiling a history. Each way picks operations of which it is certain that they cannot stand
 * beside each other once one answer was changed; see generator.h.
 */
#include "generator.h"

#define TRIES 200000u

static struct history_op *pick(struct history *history, struct test_rng *rng)
{
	struct history_segment *segment =
		&history->segments[test_rng_below(rng, history->processes)];

	return &segment->ops[test_rng_below(rng, segment->count)];
}

static bool is_done(const struct history_op *op, enum history_kind kind, int status)
{
	return op->kind == kind && op->status == status && op->return_ns != HISTORY_NEVER;
}

static bool is_before(const struct history_op *a, const struct history_op *b)
{
	return a->key == b->key && a->return_ns < b->invoke_ns;
}

/* `get` finds what `put` put. */
static bool find_it(struct history_op *get, const struct history_op *put)
{
	get->status = KV_OK;
	get->found_kind = HISTORY_FOUND_VALUE;
	get->found = put->argument;
	get->version = put->version;
	return true;
}

static bool spoil_unwritten(struct history_op *get)
{
	if (!is_done(get, HISTORY_GET, KV_OK) || get->found_kind != HISTORY_FOUND_VALUE)
		return false;
	get->found = (uint64_t)1 << 60;
	get->version = 0;
	return true;
}

/* put, then the other, then get: what was put is gone by then. */
static bool spoil_gone(struct history_op *put, const struct history_op *other,
		       struct history_op *get, enum history_kind by)
{
	if (!is_done(put, HISTORY_PUT, KV_OK) || !is_done(other, by, KV_OK) ||
	    get->kind != HISTORY_GET || get->status == KV_UNKNOWN || !is_before(put, other) ||
	    !is_before(other, get))
		return false;
	return find_it(get, put);
}

/* Versions are unique: what one cas replaced is not there for another. */
static bool spoil_swapped(const struct history_op *one, struct history_op *other)
{
	if (!is_done(one, HISTORY_CAS, KV_OK) || !is_done(other, HISTORY_CAS, KV_CAS_FAILED) ||
	    one->key != other->key || one->expected != other->expected)
		return false;
	other->status = KV_OK;
	other->version = 0;
	return true;
}

static bool spoil_increment(const struct history_op *one, struct history_op *other)
{
	if (one == other || !is_done(one, HISTORY_INCR, KV_OK) ||
	    !is_done(other, HISTORY_INCR, KV_OK) || one->key != other->key)
		return false;
	other->found = one->found;
	return true;
}

static bool spoil_vanished(const struct history_op *put, struct history_op *get)
{
	if (!is_done(put, HISTORY_PUT, KV_OK) || !is_done(get, HISTORY_GET, KV_OK) ||
	    !is_before(put, get))
		return false;
	get->status = KV_NOT_FOUND;
	get->version = 0;
	return true;
}

static bool try_once(struct history *history, enum generator_spoil how, struct test_rng *rng)
{
	struct history_op *a = pick(history, rng), *b = pick(history, rng), *c = pick(history, rng);

	switch (how) {
	case SPOIL_UNWRITTEN:
		return spoil_unwritten(a);
	case SPOIL_STALE:
		return spoil_gone(a, b, c, HISTORY_PUT);
	case SPOIL_DELETED:
		return spoil_gone(a, b, c, HISTORY_DELETE);
	case SPOIL_TWICE_SWAPPED:
		return spoil_swapped(a, b);
	case SPOIL_LOST_INCREMENT:
		return spoil_increment(a, b);
	case SPOIL_VANISHED:
		return spoil_vanished(a, b);
	default:
		return false;
	}
}

bool generator_spoil(struct history *history, enum generator_spoil how, struct test_rng *rng)
{
	for (unsigned i = 0; i < TRIES; i++)
		if (try_once(history, how, rng))
			return true;
	return false;
}
