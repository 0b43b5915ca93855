/*
 * The model: what one key of a store is, and what each operation makes of it, one at a time.
 *
 *	absent | a value, with its id and version | a counter, with its number and version
 *
 * It says what kv.h says. A version is above the one it replaces; a key that is put anew after it
 * was deleted may get any. Counting may give a counter a new version, or not. The driver puts no
 * value that is the text of a number, so a value never becomes a counter.
 *
 * Not every version is told: that of a counter is not, nor that of a put whose answer was lost.
 * Such a version is 0, for unknown, until something sees it; from then on it is that one. What
 * cannot be known is permitted, so that no legal history is ever refused.
 *
 * Pure.
 */
#ifndef TESTS_LINEAR_MODEL_H
#define TESTS_LINEAR_MODEL_H

#include <assert.h>

#include "history.h"

enum model_kind {
	MODEL_ABSENT,
	MODEL_VALUE,
	MODEL_COUNTER,
};

/* No padding: states are compared and hashed as bytes. */
struct model_state {
	uint32_t kind;
	uint32_t mark;	  /* the search's own */
	uint64_t content; /* id or number; 0 when absent */
	uint64_t version; /* 0: unknown, or absent */
	uint64_t floor;	  /* the version is above this, if unknown, else it is this */
};

static_assert(sizeof(struct model_state) == 32, "no padding");

/* An operation as the search knows it. */
struct model_op {
	const struct history_op *from; /* as it was recorded */
	uint64_t invoke_ns, return_ns;
	uint64_t argument; /* as in the history; 0 for a value that nobody ever saw */
	uint64_t version;  /* of what it puts or sees, 0: unknown */
	uint32_t gets;	   /* that found the value it puts */
	bool is_blind;	   /* its answer is not known: it is carried out, whatever it says */
	bool is_owned;	   /* what it expects is the known version of a put: of nothing else */
};

/* What the operation makes of the state. False: it cannot have answered as it did, or, if it is
 * blind, it would change nothing; the state is then undefined. */
bool model_apply(const struct model_op *op, struct model_state *state);

/* A state in words. */
int model_describe(const struct model_state *state, char *text, size_t size);

#endif
