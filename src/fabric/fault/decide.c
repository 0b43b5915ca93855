/*
 * The choices of the fault plan. Pure functions of plan, seed and operation; see decide.h.
 *
 * Each operation draws one number from its connection's stream and makes a stream of its own from
 * it. So the fate of the hundredth does not depend on how many choices the ones before it needed.
 *
 * Where a READ is cut: at multiples of 8 or of 64 of the remote offset, because hardware reads
 * words and cache lines in one go, and programs may rely on the former (an aligned 8-byte word is
 * never torn here, as on all transports that we know).
 */
#include "fabric/fault/decide.h"

#include <stdlib.h>

#define PPM	   1000000u
#define NS_PER_US  1000u
#define WORD_GRAIN 8u
#define LINE_GRAIN 64u

/* With reorder, one completion in so many lags behind by up to so much, that others overtake it. */
#define LAG_ONE_IN 4u
#define LAG_NS	   50000u

uint64_t fault_decide_delay(const struct fault_plan *plan, struct fault_rng *rng)
{
	bool delayed = fault_rng_chance(rng, plan->delay_percent, 100);
	uint64_t delay_ns = fault_rng_below(rng, plan->delay_us * NS_PER_US + 1);
	bool lags = fault_rng_chance(rng, plan->reorder, LAG_ONE_IN);
	uint64_t lag_ns = fault_rng_below(rng, LAG_NS + 1);

	return (delayed ? delay_ns : 0) + (lags ? lag_ns : 0);
}

static int compare_cuts(const void *a, const void *b)
{
	const size_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Chooses places to cut, sorted and all different, between two grains within the READ. */
static uint32_t choose_cuts(struct fault_rng *rng, uint64_t offset, size_t length, uint32_t grain,
			    size_t cuts[FAULT_PIECES_MAX])
{
	size_t first = grain - (size_t)(offset % grain);
	uint64_t places = length > first ? (length - 1 - first) / grain + 1 : 0;
	uint64_t most = places < FAULT_PIECES_MAX - 1 ? places : FAULT_PIECES_MAX - 1;
	uint32_t wanted, count = 0;

	if (places == 0)
		return 0;
	wanted = 1 + (uint32_t)fault_rng_below(rng, most);
	for (uint32_t i = 0; i < wanted; i++)
		cuts[i] = first + (size_t)fault_rng_below(rng, places) * grain;
	qsort(cuts, wanted, sizeof(cuts[0]), compare_cuts);
	for (uint32_t i = 0; i < wanted; i++) {
		if (count == 0 || cuts[i] != cuts[count - 1])
			cuts[count++] = cuts[i];
	}
	return count;
}

static void tear(const struct fault_plan *plan, struct fault_rng *rng, const struct rmr_work *work,
		 struct fault_decision *decision)
{
	size_t cuts[FAULT_PIECES_MAX];
	uint32_t grain = fault_rng_chance(rng, 1, 2) ? LINE_GRAIN : WORD_GRAIN;
	uint32_t count = choose_cuts(rng, work->offset, work->length, grain, cuts);
	size_t start = 0;

	if (count == 0 && grain == LINE_GRAIN)
		count = choose_cuts(rng, work->offset, work->length, WORD_GRAIN, cuts);
	cuts[count++] = work->length;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t pause_ns = fault_rng_below(rng, plan->tear_us * NS_PER_US + 1);

		decision->pieces[i] =
			(struct fault_piece){start, cuts[i] - start, (uint32_t)pause_ns};
		start = cuts[i];
	}
	decision->piece_count = count;
	for (uint32_t i = count - 1; i > 0; i--) {
		uint32_t other = (uint32_t)fault_rng_below(rng, i + 1);
		struct fault_piece swapped = decision->pieces[i];

		decision->pieces[i] = decision->pieces[other];
		decision->pieces[other] = swapped;
	}
	decision->pieces[0].pause_ns = 0;
}

void fault_decide(const struct fault_plan *plan, struct fault_rng *rng, uint64_t number,
		  const struct rmr_work *work, bool may_tear, struct fault_decision *decision)
{
	struct fault_rng own = {fault_rng_next(rng)};
	bool carried_out = fault_rng_chance(&own, 1, 2);
	bool lost = fault_rng_chance(&own, plan->drop_ppm, PPM) || number == plan->drop_at;

	decision->delay_ns = fault_decide_delay(plan, &own);
	decision->cut = FAULT_CUT_NONE;
	if (lost)
		decision->cut = carried_out ? FAULT_CUT_AFTER : FAULT_CUT_BEFORE;
	decision->piece_count = 1;
	decision->pieces[0] = (struct fault_piece){0, work->length, 0};
	if (work->op == RMR_OP_READ && may_tear && fault_rng_chance(&own, plan->tear_percent, 100))
		tear(plan, &own, work, decision);
}
