/*
 * Random histories of a store that does not exist, for tests of the checker.
 *
 * Each operation gets a moment between its invocation and its return, and all are carried out in
 * the order of these moments on a plain array of keys: so the history is linearizable, by
 * construction. This simulation shares no code with the checker's model. Some answers are lost: of
 * these operations some never happen, some happen long after the process has gone on.
 *
 * generator_spoil() changes an answer so that no order can explain the history any more.
 */
#ifndef TESTS_LINEAR_GENERATOR_H
#define TESTS_LINEAR_GENERATOR_H

#include "harness/test.h"
#include "history.h"

struct generator_options {
	uint32_t processes;
	uint32_t keys;
	uint32_t operations;	/* of each process */
	unsigned lost_ppm;	/* of all answers */
	unsigned quiet_percent; /* puts and gets that do not tell the version */
	bool no_deletes;
	bool only_counting; /* incr by at least 1, and get; nothing is lost */
};

struct history *generator_run(const struct generator_options *options, struct test_rng *rng);

enum generator_spoil {
	SPOIL_UNWRITTEN,      /* a get finds a value that was never put */
	SPOIL_STALE,	      /* a get finds a value that was replaced before it began */
	SPOIL_DELETED,	      /* a get finds a value that was deleted before it began */
	SPOIL_TWICE_SWAPPED,  /* two cas succeed on the same version */
	SPOIL_LOST_INCREMENT, /* two incrs get the same sum; only_counting */
	SPOIL_VANISHED,	      /* a get finds nothing; no_deletes */
	SPOIL_COUNT,
};

/* False: there is no operation in it to which this could be done. */
bool generator_spoil(struct history *history, enum generator_spoil how, struct test_rng *rng);

#endif
