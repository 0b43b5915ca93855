/*
 * The search for an order of a key's operations: Wing and Gong's, with Lowe's memory.
 *
 * It goes forward by carrying out an operation that may come next, because none that is still to
 * come had returned before it was invoked, and whose answer fits the state; where there is none it
 * goes back and tries another. Where it went in vain it never goes again: it remembers which
 * operations were carried out and the state that they left; nor does it go where it has no more
 * left to choose from than there (memo.c). Lowe keeps the set of operations as bits, and those that
 * are left in a linked list. Here operations are dealt to lanes in which one follows the other
 * (checker_internal.h), so the place in each lane is the set, whatever the length of the history,
 * and the next operation of each lane is all that can be next.
 *
 * Four things keep it narrow.
 *
 * A get, or an operation that was refused, that may come next and fits the state as it is, is
 * carried out at once, and nothing else is tried in its stead: if there is an order in which it
 * comes later, then the same order with this one first is good, too. (Not so a put that happens to
 * leave the state as it is: later it might be needed.)
 *
 * An operation that may have happened or not is used only if it changes something. Those that do
 * the same are used in the order of their invocation.
 *
 * Between two certain operations the optional ones do no detours: a value that is written only to
 * be deleted or overwritten by another optional operation need not have been written. may_follow()
 * says which may follow which; the state's mark tells the last one.
 *
 * A value that gets still to come have found is not replaced: each value is put once, so it would
 * be gone for good. Without this a put whose answer was lost, and which was read long after its
 * invocation, is tried too early, and that it was wrong comes to light only at that get, after
 * every way of using the optional operations in between.
 *
 * exhaustive_test.c holds all this against a search that does none of it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checker_internal.h"

#define SHOWN 8 /* operations before, and after, the point where it got stuck */
/* For each state that may be remembered: steps, of which the forced ones are not, and comparisons
 * with states that are. */
#define STEPS_PER_STATE	      50u
#define COMPARISONS_PER_STATE 300u

enum mark {
	MARK_CERTAIN, /* the last operation was a certain one */
	MARK_DELETE,
	MARK_WRITE,
	MARK_COUNT,
};

struct frame {
	struct model_state before;
	uint32_t awaited_before;
	uint32_t lane;
	bool is_forced; /* nothing else is to be tried */
};

/* Where it got stuck after the most operations. */
struct stuck {
	uint32_t done;
	uint32_t awaited;
	struct model_state state;
	const struct history_op *last[SHOWN], *next[SHOWN];
	uint32_t last_count, next_count;
};

struct search {
	const struct plan *plan;
	struct memo memo;
	struct model_state state;
	uint32_t awaited; /* gets still to come that found the value which is there */
	uint32_t *places;
	struct frame *frames;
	uint32_t depth;
	uint32_t done; /* certain operations carried out */
	uint64_t steps;
	bool no_memory;
	struct stuck stuck;
};

static enum mark mark_of(const struct model_op *op)
{
	if (op_is_put(op->from))
		return MARK_WRITE;
	return op_is_delete(op->from) ? MARK_DELETE : MARK_COUNT;
}

/*
 * Whether an optional operation is of use after another one. A delete before a put is, because
 * versions may begin anew then. A counter before a cas or a delete of a version is, because it may
 * have the version: counting may give it a new one. But what was written or counted need not have
 * been if it is overwritten or deleted whatever it is.
 */
static bool may_follow(const struct model_op *op, enum mark last)
{
	switch (op->from->kind) {
	case HISTORY_PUT:
	case HISTORY_PUT_IF_ABSENT:
		return last == MARK_CERTAIN || last == MARK_DELETE;
	case HISTORY_CAS:
		return last == MARK_CERTAIN || last == MARK_COUNT;
	case HISTORY_DELETE_IF_VERSION:
		return last != MARK_DELETE;
	case HISTORY_INCR:
	case HISTORY_COUNTER_CAS:
		return last != MARK_WRITE;
	default:
		return last == MARK_CERTAIN;
	}
}

static const struct model_op *next_of(const struct search *search, uint32_t lane)
{
	const struct lane *at = &search->plan->lanes[lane];

	return search->places[lane] < at->count ? &at->ops[search->places[lane]] : NULL;
}

/* What was invoked after this moment cannot be next. */
static uint64_t find_limit(const struct search *search)
{
	uint64_t limit = HISTORY_NEVER;

	for (uint32_t i = 0; i < search->plan->certain_lanes; i++) {
		const struct model_op *op = next_of(search, i);

		if (op && op->return_ns < limit)
			limit = op->return_ns;
	}
	return limit;
}

static bool is_same(const struct model_state *a, const struct model_state *b)
{
	return a->kind == b->kind && a->content == b->content && a->version == b->version &&
	       a->floor == b->floor;
}

/* The state after the lane's next operation, if it can be next. */
static bool try_lane(const struct search *search, uint32_t lane, uint64_t limit,
		     struct model_state *after)
{
	const struct model_op *op = next_of(search, lane);
	bool is_optional = lane >= search->plan->certain_lanes;

	if (!op || op->invoke_ns > limit || (search->awaited && op_replaces(op)) ||
	    (is_optional && !may_follow(op, (enum mark)search->state.mark)))
		return false;
	*after = search->state;
	after->mark = is_optional ? mark_of(op) : MARK_CERTAIN;
	return model_apply(op, after) && !(is_optional && is_same(after, &search->state));
}

static void go_forward(struct search *search, uint32_t lane, const struct model_state *after,
		       bool is_forced)
{
	const struct model_op *op = next_of(search, lane);

	search->frames[search->depth++] = (struct frame){.before = search->state,
							 .awaited_before = search->awaited,
							 .lane = lane,
							 .is_forced = is_forced};
	search->state = *after;
	search->awaited += op->gets;
	search->awaited -= op_saw_value(op->from);
	search->places[lane]++;
	search->done += lane < search->plan->certain_lanes;
	search->steps++;
}

/* The first lane that may be tried then; all were tried before. */
static uint32_t go_back(struct search *search)
{
	const struct frame *frame = &search->frames[--search->depth];

	search->state = frame->before;
	search->awaited = frame->awaited_before;
	search->places[frame->lane]--;
	search->done -= frame->lane < search->plan->certain_lanes;
	return frame->is_forced ? search->plan->lane_count : frame->lane + 1;
}

/* An operation that did not change anything, whatever the state was. */
static bool is_passive(const struct model_op *op)
{
	return !op->is_blind && (op->from->kind == HISTORY_GET || op->from->status != KV_OK);
}

/* By an operation that changes nothing, if there is one; not even a version becomes known. */
static bool go_where_nothing_changes(struct search *search, uint64_t limit)
{
	struct model_state after;

	for (uint32_t i = 0; i < search->plan->certain_lanes; i++) {
		const struct model_op *op = next_of(search, i);

		if (op && is_passive(op) && try_lane(search, i, limit, &after) &&
		    is_same(&after, &search->state)) {
			go_forward(search, i, &after, true);
			return true;
		}
	}
	return false;
}

/* The next lane from `first` on that leads where it has not been yet. */
static bool go_somewhere(struct search *search, uint32_t first)
{
	uint64_t limit;
	struct model_state after;

	if (first >= search->plan->lane_count)
		return false;
	limit = find_limit(search);
	if (first == 0 && go_where_nothing_changes(search, limit))
		return true;
	for (uint32_t i = first; i < search->plan->lane_count; i++) {
		enum memo_answer answer;

		if (!try_lane(search, i, limit, &after))
			continue;
		search->places[i]++;
		answer = memo_add(&search->memo, search->places, &after);
		search->places[i]--;
		search->no_memory = answer == MEMO_NO_MEMORY;
		if (answer == MEMO_OLD)
			continue;
		go_forward(search, i, &after, false);
		return true;
	}
	return false;
}

/* Keeps what is to be shown, if it never came further. */
static void note_stuck(struct search *search)
{
	struct stuck *stuck = &search->stuck;
	uint32_t *places = search->places, depth = search->depth;

	if (search->done < stuck->done || (stuck->done == search->done && stuck->next_count))
		return;
	*stuck = (struct stuck){
		.done = search->done, .awaited = search->awaited, .state = search->state};
	for (uint32_t i = 0; i < search->plan->lane_count && stuck->next_count < SHOWN; i++) {
		const struct model_op *op = next_of(search, i);

		if (op && op->invoke_ns <= find_limit(search))
			stuck->next[stuck->next_count++] = op->from;
	}
	while (depth > 0 && stuck->last_count < SHOWN) {
		uint32_t lane = search->frames[--depth].lane;

		stuck->last[stuck->last_count++] =
			search->plan->lanes[lane].ops[--places[lane]].from;
	}
	for (; depth < search->depth; depth++)
		places[search->frames[depth].lane]++;
}

/* The last get that found the value. While one is still to come this one is. */
static const struct history_op *last_get(const struct plan *plan, uint64_t value)
{
	const struct history_op *last = NULL;

	for (uint32_t i = 0; i < plan->certain; i++) {
		const struct history_op *op = plan->ops[i].from;

		if (op_saw_value(op) && op->found == value &&
		    (!last || last->invoke_ns < op->invoke_ns))
			last = op;
	}
	return last;
}

static void explain(const struct search *search, struct checker_report *report)
{
	const struct stuck *stuck = &search->stuck;
	char state[120];

	model_describe(&stuck->state, state, sizeof(state));
	report_add(report, "no order explains its operations: after %" PRIu32 " of %" PRIu32 ",\n",
		   stuck->done, search->plan->certain);
	for (uint32_t i = stuck->last_count; i-- > 0;)
		report_add_op(report, "    ", stuck->last[i], search->plan->origin_ns);
	report_add(report, "  it is %s; none of these can be next:\n", state);
	for (uint32_t i = 0; i < stuck->next_count; i++)
		report_add_op(report, "    ", stuck->next[i], search->plan->origin_ns);
	if (stuck->awaited) {
		report_add(report, "  it may not be replaced before this:\n");
		report_add_op(report, "    ", last_get(search->plan, stuck->state.content),
			      search->plan->origin_ns);
	}
}

static bool is_exhausted(const struct search *search, uint64_t max_states)
{
	uint64_t most = max_states + search->plan->count;

	return search->memo.count >= max_states || search->no_memory ||
	       search->steps / STEPS_PER_STATE > most ||
	       search->memo.compared / COMPARISONS_PER_STATE > most;
}

static enum checker_verdict walk(struct search *search, uint64_t max_states)
{
	uint32_t first = 0;

	while (search->done < search->plan->certain) {
		if (is_exhausted(search, max_states))
			return CHECKER_GAVE_UP;
		if (go_somewhere(search, first)) {
			first = 0;
			continue;
		}
		if (first == 0)
			note_stuck(search);
		if (search->depth == 0)
			return CHECKER_VIOLATION;
		first = go_back(search);
	}
	return CHECKER_OK;
}

enum checker_verdict search_run(const struct plan *plan, uint64_t max_states,
				struct checker_report *report)
{
	struct search search = {.plan = plan};
	enum checker_verdict verdict = CHECKER_GAVE_UP;

	memo_init(&search.memo, plan->lane_count, plan->certain_lanes);
	search.places = calloc(plan->lane_count + 1, sizeof(*search.places));
	search.frames = calloc(plan->count + 1, sizeof(*search.frames));
	if (search.places && search.frames)
		verdict = walk(&search, max_states);
	if (verdict != CHECKER_OK)
		explain(&search, report);
	if (verdict == CHECKER_GAVE_UP)
		report_add(report, "  (given up after %" PRIu32 " states, %" PRIu64 " steps%s)\n",
			   search.memo.count, search.steps, search.no_memory ? ": no memory" : "");
	report->steps += search.steps;
	report->states += search.memo.count;
	memo_fini(&search.memo);
	free(search.places);
	free(search.frames);
	return verdict;
}
