/*
 * Fault plans and the choices that follow from them: pure functions, no device.
 */
#include <string.h>

#include "fabric/fault/decide.h"
#include "harness/test.h"

static const struct good_plan {
	const char *text;
	struct fault_plan plan;
} good_plans[] = {
	{NULL, {.seed = 1, .delay_percent = 100, .tear_us = 20, .drop_limit = UINT64_MAX}},
	{"", {.seed = 1, .delay_percent = 100, .tear_us = 20, .drop_limit = UINT64_MAX}},
	{"seed=0", {.seed = 0, .delay_percent = 100, .tear_us = 20, .drop_limit = UINT64_MAX}},
	{"seed=0xfFfFfFfFfFfFfFfF",
	 {.seed = UINT64_MAX, .delay_percent = 100, .tear_us = 20, .drop_limit = UINT64_MAX}},
	{"seed=1,delay_us=200,reorder=1,tear=1",
	 {.seed = 1,
	  .delay_us = 200,
	  .delay_percent = 100,
	  .reorder = 1,
	  .tear = 1,
	  .tear_percent = 100,
	  .tear_us = 20,
	  .drop_limit = UINT64_MAX}},
	{"tear=0", {.seed = 1, .delay_percent = 100, .tear_us = 20, .drop_limit = UINT64_MAX}},
	{"tear_us=0,tear_percent=30,delay_percent=5,delay_us=1",
	 {.seed = 1,
	  .delay_us = 1,
	  .delay_percent = 5,
	  .tear_percent = 30,
	  .drop_limit = UINT64_MAX}},
	{"offload=1",
	 {.seed = 1, .delay_percent = 100, .tear_us = 20, .drop_limit = UINT64_MAX, .offload = 1}},
	{"drop_at=3,drop_ppm=100,drop_limit=2,stall_percent=10,stall_us=50",
	 {.seed = 1,
	  .delay_percent = 100,
	  .tear_us = 20,
	  .drop_at = 3,
	  .drop_ppm = 100,
	  .drop_limit = 2,
	  .stall_percent = 10,
	  .stall_us = 50}},
	{"refuse_region=1,refuse_region_percent=2,refuse_connect=3,refuse_connect_percent=4",
	 {.seed = 1,
	  .delay_percent = 100,
	  .tear_us = 20,
	  .drop_limit = UINT64_MAX,
	  .refuse_region = 1,
	  .refuse_region_percent = 2,
	  .refuse_connect = 3,
	  .refuse_connect_percent = 4}},
};

static void test_good_plans(void)
{
	for (size_t i = 0; i < TEST_COUNT(good_plans); i++) {
		struct fault_plan plan;

		CHECK_OK(fault_plan_parse(good_plans[i].text, &plan));
		CHECK_MEM(&plan, &good_plans[i].plan, sizeof(plan));
	}
}

static const struct bad_plan {
	const char *text;
	const char *complaint;
} bad_plans[] = {
	{"delay=5", "no key 'delay'; there are: seed delay_us"},
	{"delay=5", "stall_us"}, /* the list is complete */
	{"Seed=5", "no key 'Seed'"},
	{"seed =5", "no key 'seed '"},
	{" seed=5", "no key ' seed'"},
	{"seed", "write seed=NUMBER"},
	{"seed=", "write seed=NUMBER"},
	{"seed=x", "write seed=NUMBER"},
	{"seed=-1", "write seed=NUMBER"},
	{"seed=+1", "write seed=NUMBER"},
	{"seed= 1", "write seed=NUMBER"},
	{"seed=1 ", "write seed=NUMBER"},
	{"seed=1.5", "write seed=NUMBER"},
	{"seed=0x", "write seed=NUMBER"},
	{"seed=18446744073709551616", "write seed=NUMBER"},
	{"seed=1;tear=1", "write seed=NUMBER"},
	{"seed=1,", "after the last"},
	{",seed=1", "between two commas"},
	{"seed=1,,tear=1", "between two commas"},
	{",", "between two commas"},
	{"=5", "no key ''"},
	{"seed=1,seed=1", "seed is given twice"},
	{"tear=2", "tear goes from 0 to 1"},
	{"tear_percent=101", "tear_percent goes from 0 to 100"},
	{"drop_at=0", "drop_at goes from 1"},
	{"refuse_region=0", "refuse_region goes from 1"},
	{"tear=1,tear_percent=50", "not both"},
	{"delay_percent=50", "no effect without (one of): delay_us"},
	{"stall_us=50", "no effect without (one of): stall_percent"},
	{"drop_limit=1", "no effect without (one of): drop_at drop_ppm"},
	{"tear_us=1", "no effect without (one of): tear tear_percent"},
};

static void test_bad_plans(void)
{
	for (size_t i = 0; i < TEST_COUNT(bad_plans); i++) {
		struct fault_plan plan, before;

		memset(&plan, 0x5a, sizeof(plan));
		before = plan;
		CHECK_STATUS(fault_plan_parse(bad_plans[i].text, &plan), RMR_INVALID);
		CHECK_CONTAINS(rmr_error_message(), bad_plans[i].complaint);
		CHECK_MEM(&plan, &before, sizeof(plan));
	}
}

#define OPERATIONS 500

/* What a plan decides about a sequence of READs of all sizes. */
static void decide_all(const char *text, uint64_t stream, struct fault_decision *decisions)
{
	struct fault_plan plan;
	struct fault_rng rng;

	CHECK_OK(fault_plan_parse(text, &plan));
	rng = fault_rng_stream(plan.seed, stream);
	memset(decisions, 0, OPERATIONS * sizeof(*decisions));
	for (size_t i = 0; i < OPERATIONS; i++) {
		struct rmr_work work = {.op = RMR_OP_READ, .length = i * 7, .offset = i * 3};

		fault_decide(&plan, &rng, i + 1, &work, true, &decisions[i]);
	}
}

static size_t count_different(const struct fault_decision *a, const struct fault_decision *b)
{
	size_t different = 0;

	for (size_t i = 0; i < OPERATIONS; i++)
		different += memcmp(&a[i], &b[i], sizeof(a[i])) != 0;
	return different;
}

static struct fault_decision first[OPERATIONS], second[OPERATIONS];

static void test_same_seed_same_decisions(void)
{
	decide_all("seed=7,delay_us=100,tear_percent=50,drop_ppm=1000", 3, first);
	decide_all("seed=7,delay_us=100,tear_percent=50,drop_ppm=1000", 3, second);
	CHECK_EQ(count_different(first, second), 0u);
}

static void test_other_seed_other_decisions(void)
{
	decide_all("seed=7,delay_us=100,tear_percent=50", 3, first);
	decide_all("seed=8,delay_us=100,tear_percent=50", 3, second);
	CHECK(count_different(first, second) > OPERATIONS * 9 / 10);
	decide_all("seed=7,delay_us=100,tear_percent=50", 4, second);
	CHECK(count_different(first, second) > OPERATIONS * 9 / 10);
}

/* The fate of an operation hangs on its place in the sequence, not on what those before it were. */
static void test_decisions_are_independent(void)
{
	struct fault_plan plan;
	struct fault_rng rng;

	CHECK_OK(fault_plan_parse("seed=7,delay_us=100,tear=1", &plan));
	decide_all("seed=7,delay_us=100,tear=1", 0, first);
	rng = fault_rng_stream(7, 0);
	memset(second, 0, sizeof(second));
	for (size_t i = 0; i < OPERATIONS; i++) {
		struct rmr_work work = {.op = RMR_OP_SEND};

		fault_decide(&plan, &rng, i + 1, &work, false, &second[i]);
		CHECK_EQ(second[i].delay_ns, first[i].delay_ns);
		CHECK_EQ(second[i].piece_count, 1u);
	}
}

static void test_no_faults_without_a_plan(void)
{
	decide_all(NULL, 0, first);
	for (size_t i = 0; i < OPERATIONS; i++) {
		CHECK_EQ(first[i].delay_ns, 0u);
		CHECK_EQ(first[i].cut, FAULT_CUT_NONE);
		CHECK_EQ(first[i].piece_count, 1u);
		CHECK_EQ(first[i].pieces[0].start, 0u);
		CHECK_EQ(first[i].pieces[0].length, i * 7);
	}
}

static void test_shares(void)
{
	size_t delayed = 0, torn = 0, lost = 0, carried_out = 0;

	decide_all("seed=7,delay_us=1000,delay_percent=30,tear_percent=50,drop_ppm=200000", 0,
		   first);
	for (size_t i = 0; i < OPERATIONS; i++) {
		CHECK(first[i].delay_ns <= 1000 * 1000);
		delayed += first[i].delay_ns > 0;
		torn += first[i].piece_count > 1;
		lost += first[i].cut != FAULT_CUT_NONE;
		carried_out += first[i].cut == FAULT_CUT_AFTER;
	}
	CHECK(delayed > OPERATIONS * 2 / 10 && delayed < OPERATIONS * 4 / 10);
	CHECK(torn > OPERATIONS * 4 / 10 && torn < OPERATIONS * 6 / 10);
	CHECK(lost > OPERATIONS * 1 / 10 && lost < OPERATIONS * 3 / 10);
	CHECK(carried_out > lost / 4 && carried_out < lost * 3 / 4);
}

static void test_drop_at(void)
{
	decide_all("drop_at=17", 0, first);
	for (size_t i = 0; i < OPERATIONS; i++)
		CHECK_EQ(first[i].cut != FAULT_CUT_NONE, i + 1 == 17);
}

/* The pieces of every torn READ cover it exactly, and are cut between words. */
static void test_pieces_cover_the_read(void)
{
	size_t backwards = 0, most = 0;

	decide_all("seed=9,tear=1,tear_us=5", 0, first);
	for (size_t i = 0; i < OPERATIONS; i++) {
		uint8_t covered[OPERATIONS * 7] = {0};
		const struct fault_decision *decision = &first[i];

		/* A READ with a word boundary inside is always torn. */
		CHECK_EQ(decision->piece_count > 1, i * 7 > 8 - i * 3 % 8);
		CHECK(decision->piece_count <= FAULT_PIECES_MAX);
		most = decision->piece_count > most ? decision->piece_count : most;
		for (uint32_t k = 0; k < decision->piece_count; k++) {
			const struct fault_piece *piece = &decision->pieces[k];

			CHECK(piece->pause_ns <= 5000);
			CHECK(piece->start == 0 || (i * 3 + piece->start) % 8 == 0);
			CHECK(piece->length > 0 || i == 0);
			for (size_t at = 0; at < piece->length; at++)
				covered[piece->start + at]++;
			backwards += k > 0 && piece->start < decision->pieces[k - 1].start;
		}
		for (size_t at = 0; at < sizeof(covered); at++)
			CHECK_EQ(covered[at], at < i * 7);
	}
	CHECK_EQ(most, (size_t)FAULT_PIECES_MAX);
	CHECK(backwards > OPERATIONS / 2);
}

static const struct test tests[] = {
	{"good_plans", test_good_plans},
	{"bad_plans", test_bad_plans},
	{"same_seed_same_decisions", test_same_seed_same_decisions},
	{"other_seed_other_decisions", test_other_seed_other_decisions},
	{"decisions_are_independent", test_decisions_are_independent},
	{"no_faults_without_a_plan", test_no_faults_without_a_plan},
	{"shares", test_shares},
	{"drop_at", test_drop_at},
	{"pieces_cover_the_read", test_pieces_cover_the_read},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "fault_plan", tests, TEST_COUNT(tests));
}
