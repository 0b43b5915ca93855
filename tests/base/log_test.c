/* Levels, the sink, and the lines on stderr. */
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/test.h"

struct capture {
	int lines;
	enum log_level level;
	char text[4096];
};

static void capture_line(enum log_level level, const char *text, void *context)
{
	struct capture *capture = context;

	capture->lines++;
	capture->level = level;
	snprintf(capture->text, sizeof(capture->text), "%s", text);
}

static void test_levels(void)
{
	struct capture capture = {0};
	int evaluated = 0;

	log_set_sink(capture_line, &capture);
	log_set_level(LOG_LEVEL_WARN);
	log_info("not shown %d", ++evaluated);
	log_debug("not shown %d", ++evaluated);
	CHECK_EQ(capture.lines, 0);
	CHECK_EQ(evaluated, 0);

	log_error("shown %d", ++evaluated);
	CHECK_EQ(capture.level, LOG_LEVEL_ERROR);
	log_warn("shown %d", ++evaluated);
	CHECK_EQ(capture.level, LOG_LEVEL_WARN);
	CHECK_STR(capture.text, "shown 2");
	CHECK_EQ(capture.lines, 2);

	log_set_level(LOG_LEVEL_TRACE);
	CHECK_EQ(log_get_level(), LOG_LEVEL_TRACE);
	log_info("i");
	log_debug("d");
	log_trace("t");
	CHECK_EQ(capture.lines, 5);
	CHECK_EQ(capture.level, LOG_LEVEL_TRACE);
	log_set_sink(NULL, NULL);
}

static void test_parse(void)
{
	enum log_level level = LOG_LEVEL_INFO;

	for (int i = 0; log_level_names[i] != NULL; i++) {
		CHECK(log_level_parse(log_level_names[i], &level));
		CHECK_EQ(level, i);
	}
	CHECK(log_level_parse("Warn", &level));
	CHECK_EQ(level, LOG_LEVEL_WARN);
	CHECK(!log_level_parse("loud", &level));
	CHECK(!log_level_parse("", &level));
	CHECK_EQ(level, LOG_LEVEL_WARN);
}

static void test_long_line(void)
{
	struct capture capture = {0};
	char text[8192];

	memset(text, 'y', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	log_set_sink(capture_line, &capture);
	errno = EAGAIN;
	log_error("%s", text);
	CHECK_EQ(errno, EAGAIN);
	CHECK_EQ(strlen(capture.text), 2047);
	CHECK_STR(capture.text + 2043, "y...");
	log_set_sink(NULL, NULL);
}

/* Runs `fn` with stderr going to a pipe, and gives back what it wrote. */
static void read_stderr(void (*fn)(void), char *text, size_t size)
{
	int saved = dup(STDERR_FILENO);
	int fds[2];
	ssize_t length;

	CHECK_EQ(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	fn();
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fds[1]);
	length = read(fds[0], text, size - 1);
	CHECK(length >= 0);
	text[length] = '\0';
	close(fds[0]);
}

static void warn_once(void)
{
	log_warn("the answer is %d", 42);
}

static void test_stderr_line(void)
{
	char text[512], expected[128];
	int hour, minute, second, micros, used = 0;

	read_stderr(warn_once, text, sizeof(text));
	CHECK_EQ(sscanf(text, "%2d:%2d:%2d.%6d%n", &hour, &minute, &second, &micros, &used), 4);
	CHECK_EQ(used, 15);
	snprintf(expected, sizeof(expected), " remora[%d] WARN  the answer is 42\n", (int)getpid());
	CHECK_STR(text + used, expected);
	log_set_name("cache-1");
	read_stderr(warn_once, text, sizeof(text));
	snprintf(expected, sizeof(expected), " cache-1[%d] WARN  the answer is 42\n",
		 (int)getpid());
	CHECK_STR(text + used, expected);
}

/* Lines from /bin/sh's child with the environment set: the level is read before main(). */
static void run_self(const char *level, const char *expected)
{
	char command[512], path[256], line[512] = "";
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	FILE *output;

	CHECK(length > 0);
	path[length] = '\0';
	snprintf(command, sizeof(command), "REMORA_LOG=%s LOG_TEST_CHILD=1 %s 2>&1", level, path);
	output = popen(command, "r");
	CHECK(output != NULL);
	if (fgets(line, sizeof(line), output) == NULL)
		line[0] = '\0';
	CHECK_EQ(pclose(output), 0);
	if (expected[0] == '\0')
		CHECK_STR(line, "");
	else
		CHECK_CONTAINS(line, expected);
}

static void test_environment(void)
{
	run_self("debug", "DEBUG from the child");
	run_self("DEBUG", "DEBUG from the child");
	run_self("warn", "");
	run_self("''", "");
	run_self("loud", "WARN  REMORA_LOG: 'loud' is not a level");
}

struct count {
	int lines, notices;
};

static void count_line(enum log_level level, const char *text, void *context)
{
	struct count *count = context;

	CHECK_EQ(level, LOG_LEVEL_WARN);
	if (strstr(text, "left out"))
		count->notices++;
	else
		count->lines++;
}

/* A peer that fails again and again does not fill the log; another place has its own limit. */
static void test_limited(void)
{
	struct count count = {0};

	log_set_level(LOG_LEVEL_WARN);
	log_set_sink(count_line, &count);
	for (int i = 0; i < 1000; i++)
		log_warn_limited("line %d", i);
	CHECK(count.lines >= 1 && count.lines <= 2 * LOG_LIMIT_LINES); /* if a period ended */
	CHECK(count.notices >= 1 && count.notices <= 3);
	count = (struct count){0};
	log_warn_limited("elsewhere");
	CHECK_EQ(count.lines, 1);
	CHECK_EQ(count.notices, 0);
	log_set_sink(NULL, NULL);
}

static const struct test tests[] = {
	{"levels", test_levels},	   {"parse", test_parse},
	{"long_line", test_long_line},	   {"stderr_line", test_stderr_line},
	{"environment", test_environment}, {"limited", test_limited},
};

int main(int argc, char **argv)
{
	if (getenv("LOG_TEST_CHILD") != NULL) {
		log_debug("from the child");
		return 0;
	}
	return test_main(argc, argv, "log_test", tests, TEST_COUNT(tests));
}
