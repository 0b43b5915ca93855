/*
 * The search beside one that leaves nothing out. Short histories with answers made up at random,
 * legal and not, are checked by trying every order, every choice of those operations that may not
 * have happened, and every version that something may have got: without lanes, memory, short cuts,
 * or what values tell about each other. What is legal by that must be legal by the checker: that is
 * all that keeps it from crying wolf. An order that the search finds must be among all orders of
 * the operations as prepare.c left them. The checker may let pass what is not legal only where
 * versions that nobody was told leave room; that is counted, and seldom.
 */
#include <inttypes.h>
#include <string.h>

#include "checker_internal.h"
#include "harness/test.h"

#define MOST	 7u
#define VERSIONS 4u	       /* that are told: 1 to 4 */
#define UNTOLD	 HISTORY_NEVER /* a version that nobody was ever told */

struct trial {
	struct model_op ops[MOST];
	bool is_optional[MOST], is_used[MOST];
	uint32_t count, certain_left;
	bool guesses; /* versions that are not known; else the model learns them */
	bool is_taken[VERSIONS + 1];
};

static bool try_all(struct trial *trial, const struct model_state *state);

static bool go_on(struct trial *trial, uint32_t i, const struct model_state *after)
{
	bool found;

	trial->is_used[i] = true;
	trial->certain_left -= !trial->is_optional[i];
	found = try_all(trial, after);
	trial->certain_left += !trial->is_optional[i];
	trial->is_used[i] = false;
	return found;
}

/* With a version that nothing had before. */
static bool go_on_with(struct trial *trial, uint32_t i, struct model_state *after, uint64_t version)
{
	bool found;

	if (trial->is_taken[version])
		return false;
	trial->is_taken[version] = true;
	after->version = after->floor = version;
	found = go_on(trial, i, after);
	trial->is_taken[version] = false;
	return found;
}

static bool try_one(struct trial *trial, uint32_t i, const struct model_state *state)
{
	struct model_state after = *state;

	if (!model_apply(&trial->ops[i], &after))
		return false;
	if (!trial->guesses || after.kind == MODEL_ABSENT ||
	    (after.version && after.version == state->version))
		return go_on(trial, i, &after);
	if (after.version)
		return go_on_with(trial, i, &after, after.version);
	for (uint64_t version = after.floor + 1; version <= VERSIONS; version++) {
		struct model_state guess = after;

		if (go_on_with(trial, i, &guess, version))
			return true;
	}
	after.version = UNTOLD;
	return go_on(trial, i, &after);
}

static bool try_all(struct trial *trial, const struct model_state *state)
{
	uint64_t limit = HISTORY_NEVER;

	if (trial->certain_left == 0)
		return true;
	for (uint32_t i = 0; i < trial->count; i++)
		if (!trial->is_used[i] && !trial->is_optional[i] && trial->ops[i].return_ns < limit)
			limit = trial->ops[i].return_ns;
	for (uint32_t i = 0; i < trial->count; i++)
		if (!trial->is_used[i] && trial->ops[i].invoke_ns <= limit &&
		    try_one(trial, i, state))
			return true;
	return false;
}

/* As it was recorded. */
static bool is_legal(const struct history *history)
{
	struct trial trial = {.guesses = true};
	struct model_state state = {0};

	for (uint32_t i = 0; i < history->segments[0].count; i++) {
		const struct history_op *op = &history->segments[0].ops[i];
		bool is_unknown = history_is_unknown(op);

		if (op_is_void(op))
			continue;
		trial.is_optional[trial.count] = is_unknown;
		trial.certain_left += !is_unknown;
		trial.ops[trial.count++] = (struct model_op){
			.from = op,
			.invoke_ns = op->invoke_ns,
			.return_ns = is_unknown ? HISTORY_NEVER : op->return_ns,
			.argument = op->argument,
			.version = is_unknown ? 0 : op->version,
			.is_blind = is_unknown,
		};
	}
	return try_all(&trial, &state);
}

/* As it is prepared for the search. */
static bool is_legal_prepared(const struct history *history)
{
	const struct history_op *ops[MOST];
	struct op_list list = {.ops = ops, .count = history->segments[0].count};
	struct trial trial = {0};
	struct model_state state = {0};
	struct plan plan;

	for (size_t i = 0; i < list.count; i++)
		ops[i] = &history->segments[0].ops[i];
	CHECK(plan_init(&plan, &list));
	trial.count = plan.count;
	trial.certain_left = plan.certain;
	memcpy(trial.ops, plan.ops, plan.count * sizeof(*plan.ops));
	for (uint32_t i = plan.certain; i < plan.count; i++)
		trial.is_optional[i] = true;
	plan_fini(&plan);
	return try_all(&trial, &state);
}

/* ------------------------------------------------------------------------------------------
 * Answers made up
 */

static int make_up_status(enum history_kind kind, struct test_rng *rng)
{
	static const int statuses[HISTORY_KINDS][4] = {
		[HISTORY_GET] = {KV_OK, KV_OK, KV_OK, KV_NOT_FOUND},
		[HISTORY_PUT] = {KV_OK, KV_OK, KV_OK, KV_OK},
		[HISTORY_PUT_IF_ABSENT] = {KV_OK, KV_OK, KV_OK, KV_EXISTS},
		[HISTORY_CAS] = {KV_OK, KV_OK, KV_CAS_FAILED, KV_NOT_FOUND},
		[HISTORY_DELETE] = {KV_OK, KV_OK, KV_OK, KV_NOT_FOUND},
		[HISTORY_DELETE_IF_VERSION] = {KV_OK, KV_OK, KV_CAS_FAILED, KV_NOT_FOUND},
		[HISTORY_INCR] = {KV_OK, KV_OK, KV_OK, KV_NOT_A_NUMBER},
		[HISTORY_COUNTER_CAS] = {KV_OK, KV_OK, KV_CAS_FAILED, KV_NOT_FOUND},
	};

	return statuses[kind][test_rng_below(rng, 4)];
}

static void make_up_answer(struct history_op *op, uint32_t count, struct test_rng *rng)
{
	op->status = (int16_t)make_up_status((enum history_kind)op->kind, rng);
	if (op->kind == HISTORY_GET && op->status == KV_OK) {
		op->found_kind = (uint8_t)test_rng_below(rng, 3);
		op->found = op->found_kind == HISTORY_FOUND_VALUE ? 1 + test_rng_below(rng, count)
								  : test_rng_below(rng, 4);
	}
	if (op->kind == HISTORY_INCR || op->kind == HISTORY_COUNTER_CAS)
		op->found = test_rng_below(rng, 4);
	if ((op->kind == HISTORY_GET || op->status == KV_CAS_FAILED || op->status == KV_EXISTS ||
	     op_is_put(op)) &&
	    op->kind != HISTORY_COUNTER_CAS && op->status != KV_NOT_FOUND && test_rng_below(rng, 2))
		op->version = 1 + test_rng_below(rng, VERSIONS);
}

static void make_up(struct history *history, unsigned unknown_percent, struct test_rng *rng)
{
	static const uint8_t kinds[] = {HISTORY_GET,	HISTORY_GET,	HISTORY_GET,
					HISTORY_GET,	HISTORY_PUT,	HISTORY_PUT,
					HISTORY_CAS,	HISTORY_DELETE, HISTORY_PUT_IF_ABSENT,
					HISTORY_DELETE, HISTORY_INCR,	HISTORY_DELETE_IF_VERSION,
					HISTORY_INCR,	HISTORY_PUT,	HISTORY_COUNTER_CAS};
	uint32_t count = 2 + (uint32_t)test_rng_below(rng, MOST - 1);

	history_clear(history);
	for (uint32_t i = 0; i < count; i++) {
		struct history_op op = {.kind = kinds[test_rng_below(rng, TEST_COUNT(kinds))]};

		op.invoke_ns = 1 + test_rng_below(rng, 20);
		op.return_ns = op.invoke_ns + test_rng_below(rng, 12);
		op.argument = op_is_put(&op) ? i + 1 : 1 + test_rng_below(rng, 2);
		op.expected = op.kind == HISTORY_COUNTER_CAS ? test_rng_below(rng, 3)
							     : 1 + test_rng_below(rng, VERSIONS);
		if (test_rng_below(rng, 100) < unknown_percent) {
			op.status = KV_UNKNOWN;
			op.return_ns = HISTORY_NEVER;
		} else {
			make_up_answer(&op, count, rng);
		}
		CHECK(history_add(history, &op));
	}
}

static void compare(unsigned unknown_percent, unsigned trials)
{
	struct history *history = history_create(1, MOST);
	unsigned legal = 0, passed = 0;
	struct test_rng rng;

	CHECK(history);
	test_rng_init(&rng, unknown_percent);
	for (unsigned i = 0; i < trials; i++) {
		struct checker_options only = {.search_only = true};
		struct checker_report report;
		enum checker_verdict searched, verdict;
		bool prepared, recorded;

		make_up(history, unknown_percent, &rng);
		recorded = is_legal(history);
		prepared = is_legal_prepared(history);
		searched = checker_run(history, &only, &report);
		verdict = checker_run(history, NULL, &report);
		if ((recorded && verdict != CHECKER_OK) || (recorded && searched != CHECKER_OK) ||
		    (searched == CHECKER_OK && !prepared))
			TEST_FAIL("trial %u: by trying all %d, prepared %d; search %d, checker "
				  "%d: %s",
				  i, recorded, prepared, searched, verdict, report.text);
		legal += recorded;
		passed += verdict == CHECKER_OK && !recorded;
	}
	printf("  %u of %u are legal, %u others pass\n", legal, trials, passed);
	CHECK(legal > trials / 20);
	CHECK(passed < legal / 20);
	history_destroy(history);
}

static void test_all_known(void)
{
	compare(0, TEST_HAS_SANITIZER ? 10000 : 100000);
}

static void test_some_unknown(void)
{
	compare(25, TEST_HAS_SANITIZER ? 10000 : 100000);
}

static void test_most_unknown(void)
{
	compare(60, TEST_HAS_SANITIZER ? 10000 : 100000);
}

static const struct test tests[] = {
	{"all_answers_are_known", test_all_known},
	{"some_answers_are_lost", test_some_unknown},
	{"most_answers_are_lost", test_most_unknown},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "linear_exhaustive", tests, TEST_COUNT(tests));
}
