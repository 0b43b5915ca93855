/* Deadlines, and the calibration of ticks. */
#include "base/clock.h"

#include <limits.h>

#include "harness/test.h"

static void test_deadlines(void)
{
	uint64_t deadline_ns = clock_deadline_ns(1000);
	int remaining_ms = clock_remaining_ms(deadline_ns);

	CHECK(remaining_ms > 0 && remaining_ms <= 1000);
	CHECK(!clock_passed(deadline_ns));
	CHECK_EQ(clock_remaining_ms(clock_deadline_ns(0)), 0);
	CHECK(clock_passed(clock_deadline_ns(0)));
	CHECK_EQ(clock_remaining_ms(0), 0);
	CHECK_EQ(clock_remaining_ms(clock_now_ns() + UINT64_C(1000000000000000000)), INT_MAX);
}

static void test_never(void)
{
	CHECK(clock_deadline_ns(-1) == CLOCK_NEVER);
	CHECK(clock_deadline_ns(INT_MIN) == CLOCK_NEVER);
	CHECK_EQ(clock_remaining_ms(CLOCK_NEVER), -1);
	CHECK(!clock_passed(CLOCK_NEVER));
}

/* Rounded up: a poll that returns by its timeout finds the deadline passed. */
static void test_rounding(void)
{
	uint64_t now_ns = clock_now_ns();

	CHECK_EQ(clock_remaining_ms(now_ns + UINT64_C(60000000000)), 60000);
	for (int i = 0; i < 5; i++) {
		uint64_t deadline_ns = clock_now_ns() + 1500000;

		test_sleep_ms((unsigned)clock_remaining_ms(deadline_ns));
		CHECK(clock_passed(deadline_ns));
		CHECK_EQ(clock_remaining_ms(deadline_ns), 0);
	}
}

static void test_ticks(void)
{
	double rate = clock_ticks_per_us();
	double best = 1.0;

	CHECK(rate > 0.9);
	CHECK(clock_ticks_per_us() == rate);
	/* The two clocks agree. A busy machine may come between two reads: the best try counts. */
	for (int i = 0; i < 20; i++) {
		uint64_t ns = clock_now_ns(), ticks = clock_ticks();
		double error;

		test_sleep_ms(5);
		ticks = clock_ticks() - ticks;
		ns = clock_now_ns() - ns;
		error = (double)clock_ticks_to_ns(ticks) / (double)ns - 1.0;
		if (error < 0)
			error = -error;
		if (error < best)
			best = error;
	}
	CHECK(best < 0.005);
}

/* It never strays from the other clock, neither between two anchors nor after a pause, and does not
 * run backwards in one thread by more than a new anchor mends. */
static void test_quick(void)
{
	uint64_t last_ns = clock_quick_ns();

	for (int i = 0; i < 200000; i++) {
		uint64_t before_ns = clock_now_ns();
		uint64_t quick_ns = clock_quick_ns();
		uint64_t after_ns = clock_now_ns();

		CHECK(quick_ns + 100000 > before_ns);
		CHECK(quick_ns < after_ns + 100000);
		CHECK(quick_ns + 100000 > last_ns);
		last_ns = quick_ns;
	}
	for (int i = 0; i < 5; i++) {
		uint64_t before_ns = clock_now_ns();

		test_sleep_ms(3);
		CHECK(clock_quick_ns() >= before_ns + 2900000);
	}
}

/* A counter that jumps, either way, is noticed. */
static void test_quick_after_a_jump(void)
{
	uint64_t span = (uint64_t)(clock_ticks_per_us() * 1000);
	const int64_t jumps[] = {(int64_t)span, -(int64_t)span, INT64_C(1) << 60,
				 -(INT64_C(1) << 60)};

	for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
		uint64_t before_ns = clock_take_anchor();

		clock_anchor.ticks += (uint64_t)jumps[i];
		CHECK(clock_quick_ns() >= before_ns);
		CHECK(clock_quick_ns() <= clock_now_ns() + 100000);
	}
}

static const struct test tests[] = {
	{"deadlines", test_deadlines}, {"never", test_never},
	{"rounding", test_rounding},   {"ticks", test_ticks},
	{"quick", test_quick},	       {"quick_after_a_jump", test_quick_after_a_jump},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "clock_test", tests, TEST_COUNT(tests));
}
