/*
 * store-perf: how fast is the store engine, and how much memory does it need? In one process,
 * without network; each test stands beside a yardstick that is measured in the same run.
 *
 *	store-perf [TEST...]
 *
 * The exit code says what went wrong: see enum perf_exit.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "perf.h"

const struct perf_test perf_tests[] = {
	{"get", get_run, "gets of uniformly drawn keys, beside a bare hash table and by the batch"},
	{"put", put_run, "puts of new keys, and overwrites, on one thread and on several"},
	{"churn", churn_run, "overwrite, delete and put again: is it still as fast at the end?"},
	{"growth", growth_run, "the slowest put while the store grows from 1000 keys"},
	{"space", space_run, "bytes that an item needs beyond its key and value"},
	{"hit", hit_run, "share of gets that hit when memory holds a tenth of the keys"},
	{NULL, NULL, NULL},
};

#define TEST_COUNT (sizeof(perf_tests) / sizeof(perf_tests[0]) - 1)

static enum perf_exit exit_of(enum rmr_status status)
{
	if (status == RMR_OK)
		return PERF_EXIT_OK;
	return status == RMR_INVALID ? PERF_EXIT_USAGE : PERF_EXIT_FAILED;
}

int main(int argc, char **argv)
{
	enum rmr_status status = RMR_OK;
	struct perf_config config;
	bool picked[TEST_COUNT] = {false};

	perf_parse(argc, argv, &config, picked);
	clock_ticks_per_us();
	for (size_t i = 0; status == RMR_OK && i < TEST_COUNT; i++) {
		if (!picked[i])
			continue;
		status = perf_pin(&config, 0);
		if (status == RMR_OK)
			status =
				error_context(perf_tests[i].run(&config), "%s", perf_tests[i].name);
	}
	if (status != RMR_OK)
		fprintf(stderr, "store-perf: %s\n", rmr_error_message());
	return exit_of(status);
}
