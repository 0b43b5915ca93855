/* Sizes and durations: what is understood, and what is refused. */
#include "base/size.h"

#include "harness/test.h"

#define KB UINT64_C(1024)

struct example {
	const char *text;
	uint64_t value;
};

static void test_sizes(void)
{
	static const struct example examples[] = {
		{"0", 0},
		{"512", 512},
		{"512B", 512},
		{"4k", 4 * KB},
		{"64KB", 64 * KB},
		{"64 KB", 64 * KB},
		{"64kib", 64 * KB},
		{"1M", KB * KB},
		{"1GiB", KB * KB * KB},
		{"1.5GiB", 3 * KB * KB * KB / 2},
		{"0.5k", 512},
		{"2TB", 2 * KB * KB * KB * KB},
		{"18446744073709551615", UINT64_MAX},
	};

	for (size_t i = 0; i < TEST_COUNT(examples); i++) {
		uint64_t bytes = 1;

		CHECK_OK(size_parse(examples[i].text, &bytes));
		CHECK_EQ(bytes, examples[i].value);
	}
}

static void test_wrong_sizes(void)
{
	static const char *const wrong[] = {
		"",
		" ",
		"x",
		"12x",
		"-1",
		"+1",
		"1.2.3KB",
		".5K",
		"1.",
		"1.K",
		"0.3",
		"KB",
		"1 K ",
		"1e3",
		"0x10",
		"1KBB",
		"inf",
		"16383.5PB",
		"1,5GiB",
		"1.1KB",
		"18446744073709551616",
		"16777216T",
		"99999999999999999999999999",
		"0.00000000000000000000000000001T",
	};

	for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
		uint64_t bytes = 77;

		CHECK_STATUS(size_parse(wrong[i], &bytes), RMR_INVALID);
		CHECK_EQ(bytes, 77);
	}
	CHECK_CONTAINS(rmr_error_message(), "is not a size; use e.g. 64KiB or 1GiB");
}

static void test_durations(void)
{
	static const struct example examples[] = {
		{"10", 10000000000},
		{"10s", 10000000000},
		{"250ms", 250000000},
		{"5us", 5000},
		{"7ns", 7},
		{"0", 0},
		{"1.5", 1500000000},
		{"0.1s", 100000000},
		{"2m", 120000000000},
		{"2min", 120000000000},
		{"1h", 3600000000000},
	};
	static const char *const wrong[] = {"", "s", "10x", "-1s", "0.5ns", "10 s s"};

	for (size_t i = 0; i < TEST_COUNT(examples); i++) {
		uint64_t duration_ns = 1;

		CHECK_OK(duration_parse(examples[i].text, &duration_ns));
		CHECK_EQ(duration_ns, examples[i].value);
	}
	for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
		uint64_t duration_ns;

		CHECK_STATUS(duration_parse(wrong[i], &duration_ns), RMR_INVALID);
	}
	CHECK_CONTAINS(rmr_error_message(), "is not a duration; use e.g. 10s or 250ms");
}

static void test_formats(void)
{
	char text[SIZE_TEXT_LENGTH];

	CHECK_STR(size_format(0, text), "0");
	CHECK_STR(size_format(1023, text), "1023");
	CHECK_STR(size_format(1024, text), "1KiB");
	CHECK_STR(size_format(1536, text), "1536");
	CHECK_STR(size_format(64 * KB, text), "64KiB");
	CHECK_STR(size_format(KB * KB * KB, text), "1GiB");
	CHECK_STR(size_format(UINT64_MAX, text), "18446744073709551615");
	CHECK_STR(duration_format(0, text), "0s");
	CHECK_STR(duration_format(10000000000, text), "10s");
	CHECK_STR(duration_format(250000000, text), "250ms");
	CHECK_STR(duration_format(1500000, text), "1500us");
	CHECK_STR(duration_format(7, text), "7ns");
}

/* What is formatted reads back as the same number. */
static void test_round_trip(void)
{
	char text[SIZE_TEXT_LENGTH];
	struct test_rng rng;

	test_rng_init(&rng, 0);
	for (int i = 0; i < 10000; i++) {
		uint64_t value = test_rng_next(&rng) >> test_rng_below(&rng, 64);
		uint64_t back;

		value <<= test_rng_below(&rng, 20);
		CHECK_OK(size_parse(size_format(value, text), &back));
		CHECK(back == value);
		CHECK_OK(duration_parse(duration_format(value, text), &back));
		CHECK(back == value);
	}
}

static const struct test tests[] = {
	{"sizes", test_sizes},	   {"wrong_sizes", test_wrong_sizes}, {"durations", test_durations},
	{"formats", test_formats}, {"round_trip", test_round_trip},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "size_test", tests, TEST_COUNT(tests));
}
