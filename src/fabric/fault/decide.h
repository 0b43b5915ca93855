/*
 * What shall happen to one operation. Everything is decided when it is posted, from nothing but
 * the plan, the seed's stream of the connection and the operation itself: the same operations in
 * the same order meet the same fate in every run, whatever the timing is.
 */
#ifndef FABRIC_FAULT_DECIDE_H
#define FABRIC_FAULT_DECIDE_H

#include <remora/fabric.h>

#include "fabric/fault/plan.h"
#include "fabric/fault/rng.h"

/* In how many pieces a READ is torn at most. */
#define FAULT_PIECES_MAX 8

/* A piece of a READ. */
struct fault_piece {
	size_t start, length; /* in the READ */
	uint32_t pause_ns;    /* before it is posted */
};

enum fault_cut {
	FAULT_CUT_NONE,
	FAULT_CUT_BEFORE, /* the connection is lost, the operation never happens */
	FAULT_CUT_AFTER,  /* it happens, and its success is never told */
};

struct fault_decision {
	uint64_t delay_ns; /* from the inner completion to the outer one */
	enum fault_cut cut;
	uint32_t piece_count; /* 1: not torn; else in the order in which to post */
	struct fault_piece pieces[FAULT_PIECES_MAX];
};

/* How long a completion is held back: its delay, and what it lags behind to be reordered. */
uint64_t fault_decide_delay(const struct fault_plan *plan, struct fault_rng *rng);

/* Decides about the number-th operation (from 1) of a connection. Draws one number from rng.
 * may_tear: the READ lies within the remote region, so that tearing it changes no outcome. */
void fault_decide(const struct fault_plan *plan, struct fault_rng *rng, uint64_t number,
		  const struct rmr_work *work, bool may_tear, struct fault_decision *decision);

#endif
