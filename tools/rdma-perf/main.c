/*
 * rdma-perf: what the easy library adds to the bare fabric. See perf.h for the map.
 *
 *	rdma-perf [-d DEVICE] [TEST...]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "perf.h"

#define KIB 1024u

static const struct perf_test tests[] = {
	{"roundtrip",
	 "round trip 8 B, beside WRITE_IMM",
	 8,
	 PERF_NS,
	 {easy_serve, easy_round_trip},
	 {bare_serve, bare_round_trip},
	 1.3,
	 0},
	{"roundtrip-send",
	 "round trip 8 B, beside SEND",
	 8,
	 PERF_NS,
	 {easy_serve, easy_round_trip},
	 {bare_serve_send, bare_round_trip_send},
	 0,
	 0},
	{"roundtrip-4k",
	 "round trip 4 KiB, beside WRITE_IMM",
	 4 * KIB,
	 PERF_NS,
	 {easy_serve, easy_round_trip},
	 {bare_serve, bare_round_trip},
	 0,
	 0},
	{"stream",
	 "64 B messages from callbacks",
	 64,
	 PERF_RATE,
	 {easy_serve, easy_stream},
	 {bare_serve, bare_stream},
	 0,
	 5e6},
	{"stream-thread",
	 "64 B messages from a thread",
	 64,
	 PERF_RATE,
	 {easy_serve, easy_stream_thread},
	 {bare_serve, bare_stream},
	 0,
	 0},
	{"bandwidth",
	 "64 KiB messages from callbacks",
	 64 * KIB,
	 PERF_BYTES,
	 {easy_serve, easy_bandwidth},
	 {bare_serve, bare_bandwidth},
	 0.9,
	 0},
};

#define TEST_COUNT (sizeof(tests) / sizeof(tests[0]))

static struct {
	const char *device, *host;
	uint64_t seconds, rounds;
	int64_t cpu, server_cpu;
	bool json, list;
	int log_level;
} args = {.device = "shm", .seconds = 500000000, .rounds = 5, .cpu = -1, .server_cpu = -1};

static const struct option_spec specs[] = {
	OPTION_STRING("device", 'd', &args.device, "device to measure: shm, tcp, verbs:mlx5_0 ...",
		      .metavar = "NAME"),
	OPTION_STRING("host", 0, &args.host,
		      "this host's address to listen at (default 127.0.0.1); verbs needs one of "
		      "the adapter",
		      .metavar = "ADDRESS"),
	OPTION_DURATION("seconds", 't', &args.seconds, "how long each measurement takes",
			.min = 1000000),
	OPTION_UINT("rounds", 'r', &args.rounds, "measurements of each; medians are shown",
		    .min = 1, .max = PERF_ROUNDS_MAX),
	OPTION_INT("cpu", 'c', &args.cpu, "bind the client to this core (-1: do not)",
		   .int_min = -1, .int_max = 1023),
	OPTION_INT("server-cpu", 0, &args.server_cpu, "and the server to this one", .int_min = -1,
		   .int_max = 1023),
	OPTION_FLAG("json", 'j', &args.json, "print one JSON object a row"),
	OPTION_FLAG("list", 0, &args.list, "name the tests"),
	OPTION_CHOICE("log-level", 'l', &args.log_level, log_level_names,
		      "what the library tells on stderr; REMORA_LOG is the default"),
};

static const struct options_program program = {
	.name = "rdma-perf",
	.description = "Measures the easy RDMA library beside the bare fabric, in alternating "
		       "rounds between two processes of this host. Without a TEST it runs all.",
	.specs = specs,
	.spec_count = OPTIONS_COUNT(specs),
	.arguments = "[TEST...]",
	.max_arguments = OPTIONS_UNLIMITED,
	.examples = "examples:\n"
		    "  rdma-perf                                    everything on shm\n"
		    "  rdma-perf -d tcp roundtrip bandwidth --json\n"
		    "  rdma-perf -d verbs --host 10.0.0.1 -c 0 --server-cpu 1\n",
};

static bool is_wanted(const struct options_result *result, const char *name)
{
	for (int i = 0; i < result->argument_count; i++) {
		if (strcmp(result->arguments[i], name) == 0)
			return true;
	}
	return result->argument_count == 0;
}

static void check_names(const struct options_result *result)
{
	for (int i = 0; i < result->argument_count; i++) {
		bool found = false;

		for (size_t j = 0; j < TEST_COUNT; j++)
			found |= strcmp(tests[j].name, result->arguments[i]) == 0;
		if (!found)
			options_fail(&program, "no test '%s'; --list names them",
				     result->arguments[i]);
	}
}

static void measure(const struct perf_config *config, const struct perf_test *test)
{
	double ours[PERF_ROUNDS_MAX], bare[PERF_ROUNDS_MAX];

	for (unsigned i = 0; i < config->rounds; i++) {
		if (i % 2)
			bare[i] = pair_measure(config, &test->bare, test->size);
		ours[i] = pair_measure(config, &test->ours, test->size);
		if (i % 2 == 0)
			bare[i] = pair_measure(config, &test->bare, test->size);
	}
	report_row(config, test, ours, bare);
}

int main(int argc, char **argv)
{
	struct options_result result;
	struct perf_config config;

	args.log_level = (int)log_get_level();
	options_parse_or_exit(&program, argc, argv, &result);
	log_set_level((enum log_level)args.log_level);
	check_names(&result);
	if (args.list) {
		for (size_t i = 0; i < TEST_COUNT; i++)
			printf("%-16s %s\n", tests[i].name, tests[i].text);
		return 0;
	}
	config = (struct perf_config){.device = args.device,
				      .host = args.host,
				      .seconds = (double)args.seconds / 1e9,
				      .rounds = (unsigned)args.rounds,
				      .cpus = {(int)args.cpu, (int)args.server_cpu},
				      .json = args.json};
	report_begin(&config);
	for (size_t i = 0; i < TEST_COUNT; i++) {
		if (is_wanted(&result, tests[i].name))
			measure(&config, &tests[i]);
	}
	return 0;
}
