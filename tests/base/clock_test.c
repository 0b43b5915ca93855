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

static const struct test tests[] = {
	{"deadlines", test_deadlines},
	{"never", test_never},
	{"rounding", test_rounding},
	{"ticks", test_ticks},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "clock_test", tests, TEST_COUNT(tests));
}
