/*
 * The checker itself: histories written by hand, of which one can see by looking whether they are
 * legal; random ones that are legal by construction, and the same with one answer changed, such
 * that they are not. The first pass and the search are held against all of them apart.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "checker.h"
#include "generator.h"
#include "handwritten.h"

static enum checker_verdict check(const struct history *history, bool search_only,
				  struct checker_report *report)
{
	struct checker_options options = {.search_only = search_only, .max_states = 200000};

	return checker_run(history, &options, report);
}

static struct history *write_down(const struct handwritten *from)
{
	struct history *history = history_create(8, 32);

	CHECK(history);
	for (size_t i = 0; i < TEST_COUNT(from->ops) && from->ops[i].invoke_ns; i++)
		CHECK(history_add(history, &from->ops[i]));
	return history;
}

static void test_handwritten(void)
{
	for (size_t i = 0; i < handwritten_count; i++) {
		const struct handwritten *from = &handwritten[i];
		enum checker_verdict expected = from->is_legal ? CHECKER_OK : CHECKER_VIOLATION;
		struct history *history = write_down(from);
		struct checker_report report;

		if (check(history, false, &report) != expected)
			TEST_FAIL("'%s' is %s: %s", from->name,
				  from->is_legal ? "legal" : "not legal", report.text);
		if (!from->needs_first_pass && check(history, true, &report) != expected)
			TEST_FAIL("'%s' is %s, by the search alone: %s", from->name,
				  from->is_legal ? "legal" : "not legal", report.text);
		history_destroy(history);
	}
}

/* ------------------------------------------------------------------------------------------
 * Random ones
 */

static struct generator_options random_options(struct test_rng *rng)
{
	return (struct generator_options){
		.processes = 1 + (uint32_t)test_rng_below(rng, 6),
		.keys = 1 + (uint32_t)test_rng_below(rng, 4),
		.operations = 1 + (uint32_t)test_rng_below(rng, 150),
		.lost_ppm = (unsigned)test_rng_below(rng, 3) * 15000,
		.quiet_percent = (unsigned)test_rng_below(rng, 3) * 50,
		.no_deletes = test_rng_below(rng, 3) == 0,
	};
}

/* Nor does it give up: of a million the hardest took 24000 of the 200000 states that it may use. */
static void test_legal_ones_are_accepted(void)
{
	struct test_rng rng;

	test_rng_init(&rng, 1);
	for (unsigned i = 0; i < (TEST_HAS_SANITIZER ? 300 : 2000); i++) {
		struct generator_options options = random_options(&rng);
		struct history *history = generator_run(&options, &rng);
		struct checker_report report;

		for (int search_only = 0; search_only < 2; search_only++)
			if (check(history, search_only, &report) != CHECKER_OK)
				TEST_FAIL("history %u is %s, key %" PRIu32 ": %s", i,
					  report.verdict == CHECKER_GAVE_UP ? "not checked"
									    : "rejected",
					  report.key, report.text);
		history_destroy(history);
	}
}

/* With and without the first pass. Without it the search cannot know that a version was used twice,
 * where not every version was told: a put whose answer was lost may have had it, too. */
static unsigned expect_rejection(const struct history *history, enum generator_spoil how,
				 bool is_quiet)
{
	struct checker_report report;
	unsigned given_up = 0;

	for (int search_only = 0; search_only < 2; search_only++) {
		enum checker_verdict verdict = check(history, search_only, &report);

		if (verdict == CHECKER_GAVE_UP)
			given_up++;
		else if (verdict == CHECKER_OK &&
			 !(how == SPOIL_TWICE_SWAPPED && is_quiet && search_only))
			TEST_FAIL("accepted, though spoilt by way %d, search only %d", how,
				  search_only);
		CHECK(verdict == CHECKER_OK || report.text[0]);
	}
	return given_up;
}

/* It may give up now and then: to find that there is no order takes long when many answers were
 * lost and no version was told. */
static void spoil_many(enum generator_spoil how)
{
	unsigned spoilt = 0, given_up = 0, rounds = TEST_HAS_SANITIZER ? 40 : 150;
	struct test_rng rng;

	test_rng_init(&rng, 100 + how);
	for (unsigned i = 0; i < rounds; i++) {
		struct generator_options options = random_options(&rng);
		struct history *history;

		options.operations += 30;
		options.processes += 1;
		options.no_deletes = how == SPOIL_VANISHED;
		options.only_counting = how == SPOIL_LOST_INCREMENT;
		if (options.only_counting)
			options.lost_ppm = 0;
		history = generator_run(&options, &rng);
		if (generator_spoil(history, how, &rng)) {
			spoilt++;
			given_up += expect_rejection(
				history, how, options.quiet_percent > 0 || options.lost_ppm > 0);
		}
		history_destroy(history);
	}
	CHECK(spoilt > rounds / 3);
	printf("  way %d: %u spoilt, %u given up\n", how, spoilt, given_up);
	CHECK(given_up <= spoilt / 10);
}

static void test_spoilt_ones_are_rejected(void)
{
	for (int how = 0; how < SPOIL_COUNT; how++)
		spoil_many((enum generator_spoil)how);
}

/* ------------------------------------------------------------------------------------------
 * Size
 */

static void check_speed(const struct generator_options *options, const char *name)
{
	struct test_rng rng;
	struct history *history;
	struct checker_report report;
	uint64_t start;

	test_rng_init(&rng, 7);
	history = generator_run(options, &rng);
	start = clock_now_ns();
	if (check(history, false, &report) != CHECKER_OK)
		TEST_FAIL("%s: verdict %d, key %" PRIu32 ": %s", name, report.verdict, report.key,
			  report.text);
	start = clock_now_ns() - start;
	printf("  %s: %" PRIu64 " operations (%" PRIu64 " unknown) in %.0f ms, %" PRIu64
	       " steps, %" PRIu64 " states\n",
	       name, report.operations, report.unknown, (double)start / 1e6, report.steps,
	       report.states);
	/* Some tenths of a second. A search that has lost its way takes hours. */
	CHECK(start < 20000000000ull * TEST_TIME_FACTOR);
	history_destroy(history);
}

static void test_long_histories(void)
{
	check_speed(&(struct generator_options){.processes = 8, .keys = 3, .operations = 1250},
		    "10000 on 3 keys");
	check_speed(
		&(struct generator_options){
			.processes = 8, .keys = 3, .operations = 1250, .quiet_percent = 100},
		"without versions");
	check_speed(&(struct generator_options){.processes = 8,
						.keys = 3,
						.operations = 1250,
						.lost_ppm = 5000,
						.quiet_percent = 10},
		    "with lost answers");
	check_speed(&(struct generator_options){.processes = 8, .keys = 1, .operations = 25000},
		    "200000 on 1 key");
}

#define ROUNDS	    20u
#define LOST_CAS    16u
#define LATE_PUT    1000u
#define ANY_CAS	    2000u
#define FEW	    2000u /* states */
#define ROUND_AT(i) (100 + 10 * (uint64_t)(i))

static void add(struct history *history, enum history_kind kind, uint64_t at_ns, int status,
		uint64_t number)
{
	struct history_op op = {.kind = (uint8_t)kind,
				.status = (int16_t)status,
				.argument = number,
				.invoke_ns = at_ns,
				.return_ns = status == KV_UNKNOWN ? HISTORY_NEVER : at_ns + 1};

	if (kind == HISTORY_CAS)
		op.expected = number;
	if (kind == HISTORY_GET && number) {
		op.found_kind = HISTORY_FOUND_VALUE;
		op.found = number;
	}
	CHECK(history_add(history, &op));
}

/* Puts whose versions nobody was told, each deleted or not, and many lost cas, which may have
 * happened to any of them: each subset is another way. */
static struct history *make_lossy(bool with_deletes)
{
	struct history *history = history_create(1, 2 * ROUNDS + LOST_CAS + 2);

	CHECK(history);
	for (unsigned i = 0; i < LOST_CAS; i++)
		add(history, HISTORY_CAS, 1 + i, KV_UNKNOWN, ANY_CAS + i);
	for (unsigned i = 0; i < ROUNDS; i++) {
		add(history, HISTORY_PUT, ROUND_AT(i), KV_OK, 1 + i);
		if (with_deletes)
			add(history, HISTORY_DELETE, ROUND_AT(i) + 5, KV_OK, 0);
	}
	return history;
}

static void check_few(struct history *history, enum checker_verdict expected)
{
	struct checker_report report;

	if (check(history, false, &report) != expected)
		TEST_FAIL("verdict %d, not %d: %s", report.verdict, expected, report.text);
	printf("  %" PRIu64 " states\n", report.states);
	CHECK(report.states < FEW);
	history_destroy(history);
}

/* That a lost put was tried too early shows only when it is read; not after all those ways. */
static void test_lost_put_is_read_late(void)
{
	struct history *history = make_lossy(false);

	add(history, HISTORY_PUT, 50, KV_UNKNOWN, LATE_PUT);
	add(history, HISTORY_GET, ROUND_AT(ROUNDS), KV_OK, LATE_PUT);
	check_few(history, CHECKER_OK);
}

/* All ways come to the same; something is there at the end nevertheless. */
static void test_lost_ones_are_of_no_use(void)
{
	struct history *history = make_lossy(true);

	add(history, HISTORY_GET, ROUND_AT(ROUNDS), KV_OK, 0);
	check_few(history, CHECKER_VIOLATION);
}

/* Nothing is known then, and it says so. */
static void test_gives_up(void)
{
	struct generator_options options = {.processes = 8, .keys = 1, .operations = 1000};
	struct checker_options limit = {.max_states = 100};
	struct checker_report report;
	struct test_rng rng;
	struct history *history;

	test_rng_init(&rng, 3);
	history = generator_run(&options, &rng);
	CHECK_EQ(checker_run(history, &limit, &report), CHECKER_GAVE_UP);
	CHECK_CONTAINS(report.text, "given up after 100 states");
	history_destroy(history);
}

static void test_report_names_the_operations(void)
{
	const struct handwritten *from = handwritten_find("a stale read");
	struct history *history = write_down(from);
	struct checker_report report;

	CHECK_EQ(check(history, false, &report), CHECKER_VIOLATION);
	CHECK_EQ(report.key, 0);
	CHECK_CONTAINS(report.text, "a version went back");
	CHECK_CONTAINS(report.text, "p1 get -> ok, value 0xa, version 1");
	CHECK_EQ(check(history, true, &report), CHECKER_VIOLATION);
	CHECK_CONTAINS(report.text, "no order explains its operations: after 1 of 3");
	CHECK_CONTAINS(report.text, "it is value 0xa, version 1; none of these can be next:\n"
				    "    p0 put value 0xb -> ok, version 2");
	CHECK_CONTAINS(report.text, "it may not be replaced before this:\n"
				    "    p1 get -> ok, value 0xa, version 1");
	history_destroy(history);
	history = write_down(handwritten_find("a miss of what is there"));
	CHECK_EQ(check(history, false, &report), CHECKER_VIOLATION);
	CHECK_CONTAINS(report.text, "it is a value that nobody read, version 1; none of these");
	CHECK_CONTAINS(report.text, "p1 get -> not found");
	history_destroy(history);
}

/* ------------------------------------------------------------------------------------------
 * Histories
 */

static void test_files(void)
{
	struct generator_options options = {
		.processes = 3, .keys = 2, .operations = 100, .lost_ppm = 50000};
	struct history *history, *copy;
	struct test_rng rng;
	char path[200];
	unsigned line;

	test_rng_init(&rng, 5);
	history = generator_run(&options, &rng);
	snprintf(path, sizeof(path), "%s/history", test_tmpdir());
	CHECK(history_save(history, path));
	copy = history_load(path, &line);
	CHECK(copy);
	CHECK_EQ(copy->processes, 3);
	CHECK_EQ(line, 301);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_EQ(copy->segments[i].count, 100);
		CHECK_MEM(copy->segments[i].ops, history->segments[i].ops,
			  100 * sizeof(struct history_op));
	}
	history_destroy(history);
	history_destroy(copy);
}

static void test_bad_files(void)
{
	static const char *const bad[] = {
		"",
		"something\n",
		"remora-history 1 processes 1 capacity 1\n0 0 0 0 0 0 0 0 0 0\n",
		"remora-history 1 processes 1 capacity 1\n0 0 99 0 0 0 0 0 0 0 0\n",
		"remora-history 1 processes 1 capacity 1\n1 0 0 0 0 0 0 0 0 0 0\n",
		"remora-history 1 processes 1 capacity 0\n0 0 0 0 0 0 0 0 0 0 0\n",
	};
	char path[200];
	unsigned line;

	snprintf(path, sizeof(path), "%s/history", test_tmpdir());
	CHECK(!history_load(path, &line));
	CHECK_EQ(errno, ENOENT);
	for (size_t i = 0; i < TEST_COUNT(bad); i++) {
		FILE *file = fopen(path, "w");

		CHECK(file && fputs(bad[i], file) >= 0);
		CHECK_EQ(fclose(file), 0);
		CHECK(!history_load(path, &line));
		CHECK_EQ(errno, 0);
		CHECK_EQ(line, i < 2 ? 1 : 2);
	}
}

static void record_until_killed(void *context)
{
	for (uint64_t i = 0;; i++) {
		struct history_op asked = {.kind = HISTORY_PUT, .argument = i + 1};
		struct history_op *op = history_begin(context, 1, &asked);

		if (!op)
			pause();
		op->version = i + 1;
		history_end(op, KV_OK);
	}
}

/* Whenever the process that writes it is killed. */
static void test_killed_while_recording(void)
{
	struct test_rng rng;

	test_rng_init(&rng, 9);
	for (unsigned i = 0; i < 20; i++) {
		struct history *history = history_create(2, 1000000);
		struct checker_report report;
		pid_t pid;
		uint32_t count;

		CHECK(history);
		pid = test_spawn(record_until_killed, history);
		while (history_count(history) == 0)
			usleep(100);
		usleep((useconds_t)test_rng_below(&rng, 3000));
		test_kill(pid);
		count = history->segments[1].count;
		for (uint32_t j = 0; j + 1 < count; j++) {
			CHECK_EQ(history->segments[1].ops[j].status, KV_OK);
			CHECK_EQ(history->segments[1].ops[j].version, j + 1);
			CHECK(history->segments[1].ops[j].return_ns != HISTORY_NEVER);
		}
		CHECK_EQ(check(history, false, &report), CHECKER_OK);
		history_destroy(history);
	}
}

static const struct test tests[] = {
	{"handwritten_histories", test_handwritten},
	{"legal_ones_are_accepted", test_legal_ones_are_accepted},
	{"spoilt_ones_are_rejected", test_spoilt_ones_are_rejected},
	{"long_histories", test_long_histories},
	{"a_lost_put_is_read_late", test_lost_put_is_read_late},
	{"lost_ones_are_of_no_use", test_lost_ones_are_of_no_use},
	{"gives_up_and_says_so", test_gives_up},
	{"report_names_the_operations", test_report_names_the_operations},
	{"files", test_files},
	{"bad_files_are_refused", test_bad_files},
	{"killed_while_recording", test_killed_while_recording},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "linear_checker", tests, TEST_COUNT(tests));
}
