/*
 * linear_replay FILE...: looks again at histories that were kept. Exits 1 if one is not legal, 2 if
 * one could not be checked.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checker.h"

static int replay(const char *path)
{
	static const char *const names[] = {"legal", "NOT LEGAL", "not checked"};
	static struct checker_report report;
	struct history *history;
	unsigned line;

	history = history_load(path, &line);
	if (!history) {
		fprintf(stderr, "%s: line %u: %s\n", path, line,
			errno ? strerror(errno) : "not an operation");
		return 2;
	}
	checker_run(history, NULL, &report);
	printf("%s: %s: %" PRIu64 " operations, %" PRIu64 " unknown, %" PRIu64 " steps, %" PRIu64
	       " states\n",
	       path, names[report.verdict], report.operations, report.unknown, report.steps,
	       report.states);
	if (report.verdict != CHECKER_OK)
		printf("key %" PRIu32 ": %s", report.key, report.text);
	history_destroy(history);
	return (int)report.verdict;
}

int main(int argc, char **argv)
{
	int worst = 0;

	for (int i = 1; i < argc; i++) {
		int result = replay(argv[i]);

		worst = result > worst ? result : worst;
	}
	return worst;
}
