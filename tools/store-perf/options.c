/*
 * The command line of store-perf.
 *
 * All tests share one table: what a test has no use for it ignores. Lists ("10K,1M") are taken as
 * strings by the table and split here. Counts of keys and operations may have a K, M or G of a
 * thousand, a million, a thousand millions: they count things, not memory.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "common/keys.h"
#include "perf.h"

#define KEYS_MAX       UINT64_C(1000000000)
#define OPERATIONS_MAX UINT64_C(1000000000000)
#define THREADS_MAX    64
#define CPU_MAX	       1023

static struct {
	const char *keys, *operations, *cpus, *redis, *memcached;
	uint64_t memory, key_size, value_size, seconds, rounds, batch, threads;
	double skew;
	bool huge, json;
	int log_level;
} args = {
	.keys = "",
	.operations = "",
	.cpus = "",
	.redis = "",
	.memcached = "",
	.key_size = 16,
	.value_size = 64,
	.seconds = 300000000,
	.rounds = 5,
	.batch = 16,
	.threads = 2,
	.skew = 0.99,
};

static const struct option_spec specs[] = {
	OPTION_STRING("keys", 'k', &args.keys,
		      "how many keys, such as 10K,1M; get takes a list (default 10K,1M,10M), "
		      "others use the first (default 1M for put and churn, else 10M)",
		      .metavar = "LIST"),
	OPTION_STRING("operations", 'n', &args.operations,
		      "operations of churn (default 100M), gets of hit (default 4 for each key)",
		      .metavar = "COUNT"),
	OPTION_SIZE("key-size", 'K', &args.key_size, "bytes of a key", .min = KEY_SIZE_MIN,
		    .max = KEY_SIZE_MAX),
	OPTION_SIZE("value-size", 's', &args.value_size, "bytes of a value", .min = VALUE_SIZE_MIN,
		    .max = 1 << 20),
	OPTION_DURATION("seconds", 't', &args.seconds, "how long to measure, each and every round",
			.min = 1000000, .max = UINT64_C(3600000000000)),
	OPTION_UINT("rounds", 'r', &args.rounds, "how many rounds; figures are medians", .min = 1,
		    .max = PERF_ROUNDS_MAX),
	OPTION_UINT("batch", 'b', &args.batch, "keys of one get by the batch", .min = 1,
		    .max = PERF_BATCH_MAX),
	OPTION_UINT("threads", 'T', &args.threads, "put: writers beside one another at most",
		    .min = 1, .max = THREADS_MAX),
	OPTION_STRING("cpus", 'c', &args.cpus,
		      "cores that the threads are pinned to, in this order; the default is all "
		      "there are, 'none' pins nobody",
		      .metavar = "LIST"),
	OPTION_SIZE("memory", 'm', &args.memory,
		    "of the store; 0: what the keys need (hit: what a tenth of them needs)"),
	OPTION_FLAG("huge", 'H', &args.huge, "memory of huge pages"),
	OPTION_DOUBLE("skew", 'z', &args.skew, "hit: exponent of the Zipf distribution",
		      .real_min = 0.01, .real_max = 5),
	OPTION_STRING("redis", 0, &args.redis,
		      "socket of an empty Redis, for space and hit to compare with; it is filled!",
		      .metavar = "PATH"),
	OPTION_STRING("memcached", 0, &args.memcached,
		      "the same of a memcached, for space to compare with", .metavar = "PATH"),
	OPTION_FLAG("json", 'j', &args.json, "print one JSON object a row"),
	OPTION_CHOICE("log-level", 'l', &args.log_level, log_level_names,
		      "what the library tells on stderr; REMORA_LOG is the default"),
};

static const struct options_program program = {
	.name = "store-perf",
	.description =
		"Measures the store engine in this process, without any network. TEST is get, put, "
		"churn, growth, space or hit; without one, all of them run, which takes minutes.",
	.specs = specs,
	.spec_count = OPTIONS_COUNT(specs),
	.arguments = "[TEST...]",
	.max_arguments = OPTIONS_UNLIMITED,
	.examples =
		"examples:\n"
		"  store-perf get -k 1M                  a get of 64 bytes, beside a bare table\n"
		"  store-perf put churn -n 10M --json\n"
		"  store-perf hit --redis /tmp/redis.sock\n"
		"exit codes: 0 done, 1 failed, 2 wrong usage\n",
};

/* Copies the next word of a list to word and returns what follows it, or NULL at the end. */
static const char *next_word(const char *list, char *word, size_t room, const char *option)
{
	size_t length = strcspn(list, ",");

	if (!length || length >= room)
		options_fail(&program, "--%s: empty or overlong word in the list", option);
	memcpy(word, list, length);
	word[length] = 0;
	return list[length] ? list + length + 1 : NULL;
}

static uint64_t parse_count(const char *word, const char *option, uint64_t min, uint64_t max)
{
	uint64_t unit = 1;
	double value;
	char *end;

	value = strtod(word, &end);
	if (end != word && (*end == 'k' || *end == 'K'))
		unit = 1000;
	else if (end != word && (*end == 'm' || *end == 'M'))
		unit = 1000000;
	else if (end != word && (*end == 'g' || *end == 'G'))
		unit = 1000000000;
	if (end == word || end[unit > 1])
		options_fail(&program, "--%s: '%s' is no count; write 5000, 10K or 1.5M", option,
			     word);
	value *= (double)unit;
	if (!(value >= (double)min && value <= (double)max))
		options_fail(&program, "--%s: %s is not between %llu and %llu", option, word,
			     (unsigned long long)min, (unsigned long long)max);
	return (uint64_t)(value + 0.5);
}

static void parse_keys(const char *list, struct perf_config *config)
{
	while (list && *args.keys) {
		char word[32];

		if (config->key_count == PERF_LIST_MAX)
			options_fail(&program, "--keys: more than %d words", PERF_LIST_MAX);
		list = next_word(list, word, sizeof(word), "keys");
		config->keys[config->key_count++] = parse_count(word, "keys", 100, KEYS_MAX);
	}
}

static void take_all_cpus(struct perf_config *config)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return;
	for (int cpu = 0; cpu <= CPU_MAX && config->cpu_count < PERF_CPUS_MAX; cpu++)
		if (CPU_ISSET(cpu, &set))
			config->cpus[config->cpu_count++] = cpu;
}

static void parse_cpus(const char *list, struct perf_config *config)
{
	if (!*list) {
		take_all_cpus(config);
		return;
	}
	if (!strcmp(list, "none"))
		return;
	while (list) {
		char word[32];
		char *end;
		long cpu;

		if (config->cpu_count == PERF_CPUS_MAX)
			options_fail(&program, "--cpus: more than %d words", PERF_CPUS_MAX);
		list = next_word(list, word, sizeof(word), "cpus");
		cpu = strtol(word, &end, 10);
		if (*end || cpu < 0 || cpu > CPU_MAX)
			options_fail(&program, "--cpus: '%s' is no core; write 1,0 or none", word);
		config->cpus[config->cpu_count++] = (int)cpu;
	}
}

static void pick_tests(const struct options_result *result, bool *picked)
{
	for (int i = 0; i < result->argument_count; i++) {
		int test = 0;

		while (perf_tests[test].name && strcmp(perf_tests[test].name, result->arguments[i]))
			test++;
		if (!perf_tests[test].name)
			options_fail(&program,
				     "no test '%s'; there are get, put, churn, growth, space, hit",
				     result->arguments[i]);
		picked[test] = true;
	}
	for (int test = 0; !result->argument_count && perf_tests[test].name; test++)
		picked[test] = true;
}

void perf_parse(int argc, char **argv, struct perf_config *config, bool *picked)
{
	struct options_result result;

	args.log_level = (int)log_get_level();
	options_parse_or_exit(&program, argc, argv, &result);
	log_set_level((enum log_level)args.log_level);
	pick_tests(&result, picked);
	*config = (struct perf_config){
		.memory = args.memory,
		.key_size = args.key_size,
		.value_size = args.value_size,
		.duration_ns = args.seconds,
		.rounds = (int)args.rounds,
		.batch = (unsigned)args.batch,
		.threads = (unsigned)args.threads,
		.skew = args.skew,
		.redis = *args.redis ? args.redis : NULL,
		.memcached = *args.memcached ? args.memcached : NULL,
		.huge = args.huge,
		.json = args.json,
	};
	parse_keys(args.keys, config);
	parse_cpus(args.cpus, config);
	if (*args.operations)
		config->operations =
			parse_count(args.operations, "operations", 1000, OPERATIONS_MAX);
}
