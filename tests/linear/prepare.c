/*
 * What is done to the operations of a key before the search.
 *
 * Ids of values are unique, so that whoever saw a value tells about the one who put it: that it did
 * happen, although its answer was lost, and before that get returned; which version it got; and how
 * many gets must come before anything replaces it. So a put whose answer was lost is as good as any
 * other once its value was seen, and what remains uncertain is only what nobody saw. Values that
 * nobody saw are all the same to everybody: they lose their id. All this keeps the search narrow.
 *
 * Then the operations are dealt out to lanes.
 */
#include <stdlib.h>
#include <string.h>

#include "checker_internal.h"

/* What gets tell of a value. */
struct sighting {
	uint64_t id;
	uint64_t version;
	uint64_t return_ns; /* the first get that had it by then */
	uint32_t gets;	    /* that had it */
};

struct sightings {
	struct sighting *sightings;
	size_t count;
};

static int compare_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int compare_sightings(const void *a, const void *b)
{
	return compare_u64(((const struct sighting *)a)->id, ((const struct sighting *)b)->id);
}

static bool collect_sightings(struct sightings *seen, const struct op_list *list)
{
	size_t kept = 0;

	seen->sightings = calloc(list->count + 1, sizeof(*seen->sightings));
	if (!seen->sightings)
		return false;
	for (size_t i = 0; i < list->count; i++)
		if (op_saw_value(list->ops[i]))
			seen->sightings[seen->count++] =
				(struct sighting){list->ops[i]->found, list->ops[i]->version,
						  list->ops[i]->return_ns, 1};
	qsort(seen->sightings, seen->count, sizeof(*seen->sightings), compare_sightings);
	for (size_t i = 0; i < seen->count; i++) {
		struct sighting *next = &seen->sightings[i], *last = &seen->sightings[kept - 1];

		if (kept == 0 || last->id != next->id) {
			seen->sightings[kept++] = *next;
			continue;
		}
		last->gets++;
		if (next->return_ns < last->return_ns)
			last->return_ns = next->return_ns;
		if (last->version == 0)
			last->version = next->version;
	}
	seen->count = kept;
	return true;
}

static const struct sighting *find_sighting(const struct sightings *seen, uint64_t id)
{
	struct sighting key = {.id = id};

	return bsearch(&key, seen->sightings, seen->count, sizeof(key), compare_sightings);
}

/* A put, in the light of what others saw of it. False: it may not have happened. */
static bool resolve_put(struct model_op *op, const struct sightings *seen)
{
	const struct sighting *sighting = find_sighting(seen, op->from->argument);

	if (!sighting) {
		op->argument = 0;
		return !op->is_blind;
	}
	op->gets = sighting->gets;
	if (op->version == 0)
		op->version = sighting->version;
	if (sighting->return_ns < op->return_ns)
		op->return_ns = sighting->return_ns;
	return true;
}

/* False: it may not have happened. */
static bool resolve(struct model_op *op, const struct history_op *from,
		    const struct sightings *seen)
{
	bool is_unknown = history_is_unknown(from);

	*op = (struct model_op){
		.from = from,
		.invoke_ns = from->invoke_ns,
		.return_ns = is_unknown ? HISTORY_NEVER : from->return_ns,
		.argument = from->argument,
		.version = is_unknown ? 0 : from->version,
		.is_blind = is_unknown,
	};
	if (op_is_put(from) && (is_unknown || from->status == KV_OK))
		return resolve_put(op, seen);
	return !is_unknown;
}

static int compare_numbers(const void *a, const void *b)
{
	return compare_u64(*(const uint64_t *)a, *(const uint64_t *)b);
}

/* Marks those that expect a version that is known to be that of a certain put. */
static bool mark_owned(struct plan *plan, uint32_t certain)
{
	uint64_t *versions = calloc(certain + 1, sizeof(*versions));
	size_t count = 0;

	if (!versions)
		return false;
	for (uint32_t i = 0; i < certain; i++) {
		const struct model_op *op = &plan->ops[i];

		if (op_is_put(op->from) && op->version &&
		    (op->is_blind || op->from->status == KV_OK))
			versions[count++] = op->version;
	}
	qsort(versions, count, sizeof(*versions), compare_numbers);
	for (uint32_t i = 0; i < plan->count; i++) {
		struct model_op *op = &plan->ops[i];

		op->is_owned = bsearch(&op->from->expected, versions, count, sizeof(*versions),
				       compare_numbers) != NULL;
	}
	free(versions);
	return true;
}

/* ------------------------------------------------------------------------------------------
 * Lanes
 */

static int compare_invocation(const void *a, const void *b)
{
	return compare_u64(((const struct model_op *)a)->invoke_ns,
			   ((const struct model_op *)b)->invoke_ns);
}

/* What an optional operation does; equal for those that do the same. */
static int compare_effect(const struct model_op *a, const struct model_op *b)
{
	int order = compare_u64(a->from->kind, b->from->kind);

	if (order == 0)
		order = compare_u64(a->argument, b->argument);
	if (order == 0)
		order = compare_u64(a->from->expected, b->from->expected);
	return order;
}

static int compare_optional(const void *a, const void *b)
{
	int order = compare_effect(a, b);

	return order ? order : compare_invocation(a, b);
}

/* The first lane whose last operation had returned by then, or a new one. */
static uint32_t pick_lane(uint64_t *lane_ends, uint32_t *lanes, uint64_t invoke_ns)
{
	for (uint32_t i = 0; i < *lanes; i++)
		if (lane_ends[i] < invoke_ns)
			return i;
	return (*lanes)++;
}

/* Deals out the `count` operations, which are sorted by invocation. */
static bool deal_certain(struct plan *plan, uint32_t count)
{
	uint64_t *ends = calloc(count + 1, sizeof(*ends));
	uint32_t *lane_of = calloc(count + 1, sizeof(*lane_of));
	struct model_op *sorted = calloc(count + 1, sizeof(*sorted));
	bool well = ends && lane_of && sorted;
	uint32_t lanes = 0, start = 0;

	for (uint32_t i = 0; well && i < count; i++) {
		lane_of[i] = pick_lane(ends, &lanes, plan->ops[i].invoke_ns);
		ends[lane_of[i]] = plan->ops[i].return_ns;
		plan->lanes[lane_of[i]].count++;
	}
	for (uint32_t i = 0; well && i < lanes; i++) {
		plan->lanes[i].ops = &plan->ops[start];
		start += plan->lanes[i].count;
		plan->lanes[i].count = 0;
	}
	if (well)
		memcpy(sorted, plan->ops, count * sizeof(*sorted));
	for (uint32_t i = 0; well && i < count; i++) {
		struct lane *lane = &plan->lanes[lane_of[i]];

		lane->ops[lane->count++] = sorted[i];
	}
	plan->lane_count = plan->certain_lanes = lanes;
	plan->certain = count;
	free(ends);
	free(lane_of);
	free(sorted);
	return well;
}

/* One lane for each effect. */
static void deal_optional(struct plan *plan)
{
	for (uint32_t i = plan->certain; i < plan->count; i++) {
		struct model_op *op = &plan->ops[i];

		if (i == plan->certain || compare_effect(op - 1, op) != 0)
			plan->lanes[plan->lane_count++].ops = op;
		plan->lanes[plan->lane_count - 1].count++;
	}
}

bool plan_init(struct plan *plan, const struct op_list *list)
{
	struct sightings seen = {0};
	struct model_op *optional;
	uint32_t certain = 0, end = (uint32_t)list->count;
	bool well;

	*plan = (struct plan){.origin_ns = list->origin_ns};
	plan->ops = calloc(list->count + 1, sizeof(*plan->ops));
	plan->lanes = calloc(list->count + 1, sizeof(*plan->lanes));
	well = plan->ops && plan->lanes && collect_sightings(&seen, list);
	/* The certain ones from the front, the optional ones from the back. */
	for (size_t i = 0; well && i < list->count; i++) {
		struct model_op op;

		if (op_is_void(list->ops[i]))
			continue;
		if (resolve(&op, list->ops[i], &seen))
			plan->ops[certain++] = op;
		else
			plan->ops[--end] = op;
	}
	if (well) {
		optional = &plan->ops[end];
		plan->count = certain + (uint32_t)list->count - end;
		memmove(&plan->ops[certain], optional, (list->count - end) * sizeof(*optional));
		qsort(plan->ops, certain, sizeof(*plan->ops), compare_invocation);
		qsort(&plan->ops[certain], plan->count - certain, sizeof(*plan->ops),
		      compare_optional);
		well = mark_owned(plan, certain) && deal_certain(plan, certain);
	}
	if (well)
		deal_optional(plan);
	free(seen.sightings);
	if (!well)
		plan_fini(plan);
	return well;
}

void plan_fini(struct plan *plan)
{
	free(plan->ops);
	free(plan->lanes);
	*plan = (struct plan){0};
}
