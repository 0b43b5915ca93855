/* The line that tells how far something has come, at all widths. */
#include <string.h>

#include "common/progress.h"
#include "harness/test.h"

static const struct progress copying = {
	.title = "writing photo.jpg", .total = 64 << 20, .unit = PROGRESS_BYTES};

static void test_wide_terminal_shows_all(void)
{
	char line[PROGRESS_LINE];

	progress_format(&copying, 32 << 20, 100000000, 79, line);
	CHECK_STR(line,
		  "writing photo.jpg [===============>              ]  50%  32.0MiB  320MiB/s");
	progress_format(&copying, 64 << 20, 1000000000, 79, line);
	CHECK_STR(line,
		  "writing photo.jpg [==============================] 100%  64.0MiB  64.0MiB/s");
}

static void test_narrow_terminal_leaves_out(void)
{
	char line[PROGRESS_LINE];

	progress_format(&copying, 32 << 20, 100000000, 45, line);
	CHECK_STR(line, "writing photo.jpg  50%  32.0MiB  320MiB/s");
	progress_format(&copying, 32 << 20, 100000000, 30, line);
	CHECK_STR(line, " 50%  32.0MiB  320MiB/s");
	progress_format(&copying, 32 << 20, 100000000, 5, line);
	CHECK_STR(line, " 50%");
}

static void test_never_longer_than_the_terminal(void)
{
	char line[PROGRESS_LINE];

	for (int width = 1; width < 300; width++)
		for (uint64_t done = 0; done <= 80 << 20; done += 1 << 20) {
			progress_format(&copying, done, 12345678, width, line);
			CHECK((int)strlen(line) <= width);
		}
}

static void test_units(void)
{
	struct progress counting = {.title = "filling", .total = 1000000, .unit = PROGRESS_COUNT};
	struct progress waiting = {.title = "read", .total = 10000000000, .unit = PROGRESS_SECONDS};
	struct progress endless = {.title = "taking", .unit = PROGRESS_BYTES};
	char line[PROGRESS_LINE];

	progress_format(&counting, 999950, 1000000000, 79, line);
	CHECK(strstr(line, "100%  1.0M  1.0M/s"));
	progress_format(&waiting, 2500000000, 2500000000, 79, line);
	CHECK(strstr(line, " 25%  2s"));
	progress_format(&endless, 1023, 1000000000, 79, line);
	CHECK_STR(line, "taking 1.0KiB  1.0KiB/s");
}

static void test_silent_without_a_terminal(void)
{
	struct progress progress;

	progress_begin(&progress, "quiet", 10, PROGRESS_COUNT);
	progress_show(&progress, 5);
	progress_end(&progress);
	progress_end(&progress);
	CHECK(!progress.is_drawn);
}

static const struct test tests[] = {
	{"wide_terminal_shows_all", test_wide_terminal_shows_all},
	{"narrow_terminal_leaves_out", test_narrow_terminal_leaves_out},
	{"never_longer_than_the_terminal", test_never_longer_than_the_terminal},
	{"units", test_units},
	{"silent_without_a_terminal", test_silent_without_a_terminal},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "progress_test", tests, TEST_COUNT(tests));
}
