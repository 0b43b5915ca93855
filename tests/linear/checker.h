/*
 * The checker: is there an order of all operations of a history, each at a moment between its
 * invocation and its return, in which every answer is the one that a single thread with the whole
 * store to itself would have got? Then the history is linearizable.
 *
 * Keys are looked at apart: a history is linearizable exactly if what it did to each key is. First
 * come the cheap conditions of versions.c, which find most of what can be wrong and name the two
 * operations that do not fit; then a search for the order, key by key (search.c).
 *
 * Operations that were refused, or whose status says that nothing was changed (KV_TIMEOUT,
 * KV_DISCONNECTED, KV_BUSY, KV_NO_MEMORY, KV_AGAIN), did nothing and are left out. Those of which
 * nobody knows what became (KV_UNKNOWN, or the process was killed) may happen at any time after
 * their invocation, or never.
 *
 * All keys are absent at first. The ids of values that are put must differ, and none is 0.
 */
#ifndef TESTS_LINEAR_CHECKER_H
#define TESTS_LINEAR_CHECKER_H

#include "history.h"

enum checker_verdict {
	CHECKER_OK,
	CHECKER_VIOLATION,
	CHECKER_GAVE_UP, /* nothing is known: too many states, no memory, ids that are the same */
};

struct checker_options {
	uint64_t max_states; /* remembered for one key; 0: CHECKER_MAX_STATES */
	bool search_only;    /* for tests: without the first pass */
};

#define CHECKER_MAX_STATES 1000000u

struct checker_report {
	enum checker_verdict verdict;
	uint32_t key;	     /* of a violation, or where it gave up */
	uint64_t operations; /* that were looked at */
	uint64_t unknown;    /* of them, those of which nobody knows what became */
	uint64_t steps;	     /* of the search */
	uint64_t states;     /* that it remembered, over all keys */
	char text[6000];     /* what is wrong: some lines */
};

/* options may be NULL. */
enum checker_verdict checker_run(const struct history *history,
				 const struct checker_options *options,
				 struct checker_report *report);

#endif
