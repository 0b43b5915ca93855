/*
 * fabric-perf: how fast is a device? In the manner of perftest and ucx_perftest, through the public
 * API that programs use, on every transport.
 *
 *	fabric-perf serve [ADDRESS] -d DEVICE	lends memory and echoes
 *	fabric-perf run   [ADDRESS] -d DEVICE	measures, and prints a line for each row
 *
 * The exit code says what went wrong: see enum perf_exit.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "perf.h"

static const struct options_program program = {
	.name = "fabric-perf",
	.description =
		"Measures what a fabric device does. `fabric-perf run` is all it takes on one "
		"host; `fabric-perf serve` is the other end on another one. Each command has "
		"its own --help.",
	.arguments = "serve|run [ADDRESS]",
	.min_arguments = 1,
	.max_arguments = 1,
};

enum rmr_status perf_pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return RMR_OK;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return error_errno(RMR_INVALID, errno, "pin to core %d", cpu);
	return RMR_OK;
}

enum perf_exit perf_exit_of(enum rmr_status status)
{
	switch (status) {
	case RMR_OK:
		return PERF_EXIT_OK;
	case RMR_INVALID:
	case RMR_NO_DEVICE:
		return PERF_EXIT_USAGE;
	case RMR_REFUSED:
	case RMR_TIMEOUT:
	case RMR_BAD_ADDRESS:
	case RMR_DISCONNECTED:
	case RMR_CANCELED:
		return PERF_EXIT_UNREACHABLE;
	default:
		return PERF_EXIT_FAILED;
	}
}

int main(int argc, char **argv)
{
	struct options_result result;
	struct perf_config config;
	enum rmr_status status;

	if (argc > 1 && !strcmp(argv[1], "serve")) {
		perf_parse_serve(argc - 1, argv + 1, &config);
		status = perf_serve(&config, -1);
	} else if (argc > 1 && !strcmp(argv[1], "run")) {
		perf_parse_run(argc - 1, argv + 1, &config);
		status = perf_run(&config);
	} else {
		options_parse_or_exit(&program, argc, argv, &result);
		options_fail(&program, "no command '%s'; there are serve and run",
			     result.arguments[0]);
	}
	if (status != RMR_OK)
		fprintf(stderr, "fabric-perf: %s\n", rmr_error_message());
	return perf_exit_of(status);
}
