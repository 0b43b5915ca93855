/*
 * What the files of the workload share: workload.c is the process and its choices, calls.c the
 * calls one by one, async.c those that are submitted.
 */
#ifndef TESTS_LINEAR_WORKER_H
#define TESTS_LINEAR_WORKER_H

#include "workload.h"

struct worker {
	const struct workload *load;
	kv_client_t *client;
	struct test_rng rng;
	uint64_t serial; /* of the ids of values */
	uint8_t *out, *in;
	uint64_t returned_ns; /* when the client returned what is looked through now; 0: not told */
	uint64_t reconnects;
	char keys[WORKLOAD_KEYS][32];
	/* What it saw last of each key. */
	uint64_t versions[WORKLOAD_KEYS];
	int64_t numbers[WORKLOAD_KEYS];
	struct history_op last_get[WORKLOAD_KEYS]; /* for PLANTED_STALE_GET */
};

static inline bool one_in(struct worker *me, uint64_t count)
{
	return test_rng_below(&me->rng, count) == 0;
}

/* calls.c: one operation of this kind, recorded. False: the history is full. */
bool call(struct worker *me, enum history_kind kind, uint32_t key);

/* Writes down what a get found. */
void take_value(struct worker *me, struct history_op *op, const void *value, size_t length);

/* Counts the answer, and fails the test if it is none that there should be. */
void take_status(struct worker *me, const struct history_op *op, int status);

/* async.c: several operations at once. False: the history is full. */
bool call_async(struct worker *me);

/* workload.c */
enum history_kind pick_kind(struct worker *me, uint32_t key);
uint64_t new_value(struct worker *me);

#endif
