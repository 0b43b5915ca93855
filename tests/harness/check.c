/* The checks: how a test says what went wrong, and ends. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/internal.h"
#include "harness/test.h"

struct report *test_report;

/* Only the first report of a test counts; the failures that follow from it are printed alone. */
static void report(enum report_state state, const char *reason)
{
	int running = REPORT_RUNNING;

	if (test_report == NULL)
		return;
	/* Acquire-release: the claim is exclusive. The release below publishes the reason to the
	 * runner, which loads the state with acquire. */
	if (!atomic_compare_exchange_strong_explicit(&test_report->state, &running, REPORT_CLAIMED,
						     memory_order_acq_rel, memory_order_relaxed))
		return;
	snprintf(test_report->reason, sizeof(test_report->reason), "%s", reason);
	/* A report is one line. */
	for (char *at = test_report->reason; *at != '\0'; at++) {
		if (*at == '\n')
			*at = ' ';
	}
	atomic_store_explicit(&test_report->state, state, memory_order_release);
}

void test_fail(const char *file, int line, const char *format, ...)
{
	const char *base = strrchr(file, '/');
	char reason[REASON_SIZE];
	va_list args;
	int used;

	used = snprintf(reason, sizeof(reason), "%s:%d: ", base != NULL ? base + 1 : file, line);
	va_start(args, format);
	vsnprintf(reason + used, sizeof(reason) - (size_t)used, format, args);
	va_end(args);
	report(REPORT_FAILED, reason);
	fprintf(stderr, "[%d] %s:%d: %s\n", (int)getpid(), file, line, reason + used);
	fflush(NULL);
	_exit(1);
}

void test_skip(const char *format, ...)
{
	char reason[REASON_SIZE];
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	report(REPORT_SKIPPED, reason);
	fflush(NULL);
	_exit(SKIPPED_EXIT);
}

/* 64-bit numbers of either sign, as text. */
static const char *format_integer(__int128 number, char text[32])
{
	if (number < 0)
		snprintf(text, 32, "%lld", (long long)number);
	else
		snprintf(text, 32, "%llu", (unsigned long long)number);
	return text;
}

void test_fail_eq(const char *file, int line, const char *actual, const char *expected, __int128 a,
		  __int128 b)
{
	char a_text[32], b_text[32];

	test_fail(file, line, "CHECK_EQ(%s, %s): %s != %s", actual, expected,
		  format_integer(a, a_text), format_integer(b, b_text));
}

void test_check_str(const char *file, int line, const char *what, const char *actual,
		    const char *expected)
{
	if (actual == NULL || strcmp(actual, expected) != 0)
		test_fail(file, line, "CHECK_STR(%s): \"%s\" is not \"%s\"", what,
			  actual != NULL ? actual : "(null)", expected);
}

void test_check_contains(const char *file, int line, const char *what, const char *whole,
			 const char *part)
{
	if (whole == NULL || strstr(whole, part) == NULL)
		test_fail(file, line, "CHECK_CONTAINS(%s): \"%s\" does not contain \"%s\"", what,
			  whole != NULL ? whole : "(null)", part);
}

void test_check_mem(const char *file, int line, const char *what, const void *actual,
		    const void *expected, size_t length)
{
	const unsigned char *a = actual, *b = expected;
	size_t i = 0, differing = 0, first = 0;

	if (length == 0 || memcmp(a, b, length) == 0)
		return;
	for (i = length; i-- > 0;) {
		if (a[i] != b[i]) {
			first = i;
			differing++;
		}
	}
	test_fail(
		file, line,
		"CHECK_MEM(%s): %zu of %zu bytes differ, the first at %zu: 0x%02x, expected 0x%02x",
		what, differing, length, first, a[first], b[first]);
}

void test_check_status(const char *file, int line, const char *what, enum rmr_status actual,
		       enum rmr_status expected)
{
	if (actual == expected)
		return;
	if (expected == RMR_OK)
		test_fail(file, line, "CHECK_OK(%s): %s [message: %s]", what,
			  rmr_status_text(actual), rmr_error_message());
	test_fail(file, line, "CHECK_STATUS(%s): %s, expected %s [message: %s]", what,
		  rmr_status_text(actual), rmr_status_text(expected),
		  actual == RMR_OK ? "" : rmr_error_message());
}
