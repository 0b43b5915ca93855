/*
 * The command line of kv-perf. All tests share one table: what a test has no use for it ignores.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "perf.h"

#define KEYS_MAX      UINT64_C(1000000000)
#define CPU_MAX	      1023
#define CACHED_KEYS   10000 /* of --cached, unless --keys says otherwise */
#define DEFAULT_KEYS  100000
#define CACHE_DEFAULT 65536
#define CACHE_FACTOR  4 /* places remembered for each key of --cached */
#define MILLISECOND   UINT64_C(1000000)

const char *const test_names[] = {
	[TEST_GET] = "get",
	[TEST_PUT] = "put",
	[TEST_GET_MANY] = "get-many",
	[TEST_PUT_MANY] = "put-many",
	[TEST_ASYNC_GET] = "async-get",
	[TEST_ASYNC_PUT] = "async-put",
	[TEST_VIEW] = "view",
	[TEST_INCR] = "incr",
	[TEST_PING] = "ping",
	[TEST_IDLE] = "idle",
	[TEST_COUNT] = NULL,
};

/* In the order of kv_get_mode_t. */
static const char *const mode_names[] = {"auto", "ask", "index", NULL};

static struct {
	const char *url, *keys, *cpus, *device, *key_file;
	uint64_t port, key_size, value_size, seconds, rounds, batch, window, clients, timeout;
	uint64_t eager, landing;
	bool cached, no_fill, json;
	int get_mode, log_level;
} args = {
	.url = "",
	.keys = "",
	.cpus = "",
	.device = "",
	.key_file = "",
	.port = KV_DEFAULT_PORT,
	.key_size = 16,
	.value_size = 64,
	.seconds = 500 * MILLISECOND,
	.rounds = 3,
	.batch = 16,
	.window = 32,
	.clients = 1,
	.timeout = 5000 * MILLISECOND,
};

static const struct option_spec specs[] = {
	OPTION_STRING("url", 'u', &args.url,
		      "the server: a host, shm:NAME, tcp://HOST:PORT, verbs://HOST:PORT; the "
		      "default is this host",
		      .metavar = "URL"),
	OPTION_UINT("port", 'p', &args.port, "of a host without one", .min = 1, .max = 65535),
	OPTION_STRING("keys", 'k', &args.keys,
		      "how many keys, such as 10K or 1M (default 100K, with --cached 10K)",
		      .metavar = "COUNT"),
	OPTION_SIZE("key-size", 'K', &args.key_size, "bytes of a key", .min = KEY_SIZE_MIN,
		    .max = KEY_SIZE_MAX),
	OPTION_SIZE("value-size", 's', &args.value_size, "bytes of a value", .min = VALUE_SIZE_MIN,
		    .max = UINT64_C(1) << 30),
	OPTION_DURATION("seconds", 't', &args.seconds, "how long to measure, each and every round",
			.min = MILLISECOND, .max = UINT64_C(3600000) * MILLISECOND),
	OPTION_UINT("rounds", 'r', &args.rounds, "how many rounds; rates are medians", .min = 1,
		    .max = PERF_ROUNDS_MAX),
	OPTION_UINT("batch", 'b', &args.batch, "keys of one call of get-many and put-many",
		    .min = 1, .max = PERF_BATCH_MAX),
	OPTION_UINT("window", 'w', &args.window, "operations under way of async-get and async-put",
		    .min = 1, .max = PERF_WINDOW_MAX),
	OPTION_UINT("clients", 'c', &args.clients, "processes that do the same at once", .min = 1,
		    .max = PERF_CLIENTS_MAX),
	OPTION_STRING(
		"cpus", 'C', &args.cpus,
		"cores that the clients are pinned to, in this order; the default pins nobody",
		.metavar = "LIST"),
	OPTION_CHOICE("get-mode", 'g', &args.get_mode, mode_names,
		      "how gets are made: the fastest way, by asking, or by reading the index"),
	OPTION_FLAG("cached", 0, &args.cached,
		    "get every key before anything is measured, so that all places are known"),
	OPTION_FLAG("no-fill", 'n', &args.no_fill,
		    "all keys are there already, by an earlier run with the same sizes"),
	OPTION_STRING("device", 'd', &args.device, "by this device, such as verbs:mlx5_0",
		      .metavar = "NAME"),
	OPTION_SIZE("eager-limit", 0, &args.eager,
		    "key and value that are sent in one message; 0: the library's default"),
	OPTION_SIZE("landing-limit", 0, &args.landing,
		    "what is sent to the landing buffer in one go; 0: what the server gives"),
	OPTION_STRING("key-file", 0, &args.key_file, "the key that the server asks for",
		      .metavar = "FILE"),
	OPTION_DURATION("timeout", 'T', &args.timeout, "of each operation", .min = MILLISECOND,
			.max = UINT64_C(3600000) * MILLISECOND),
	OPTION_FLAG("json", 'j', &args.json, "print one JSON object a row"),
	OPTION_CHOICE("log-level", 'l', &args.log_level, log_level_names,
		      "what the library tells on stderr; REMORA_LOG is the default"),
};

static const struct options_program program = {
	.name = "kv-perf",
	.description =
		"Measures a running kv-server through the client library. TEST is get, put, "
		"get-many, put-many, async-get, async-put, view, incr, ping or idle; without one, "
		"get and put and their many and async forms run.",
	.specs = specs,
	.spec_count = OPTIONS_COUNT(specs),
	.arguments = "[TEST...]",
	.max_arguments = OPTIONS_UNLIMITED,
	.examples = "It overwrites keys of 16 hexadecimal digits on that server.\n"
		    "examples:\n"
		    "  kv-perf get put -k 1M\n"
		    "  kv-perf --url tcp://127.0.0.1:12345 async-put -w 32 -s 1KB\n"
		    "  kv-perf --url verbs://10.0.0.5 get --cached\n"
		    "exit codes: 0 done, 1 failed, 2 wrong usage\n",
};

static uint64_t parse_keys(void)
{
	double value, unit = 1;
	char *end;

	if (!*args.keys)
		return args.cached ? CACHED_KEYS : DEFAULT_KEYS;
	value = strtod(args.keys, &end);
	if (end != args.keys && (*end == 'k' || *end == 'K'))
		unit = 1e3;
	else if (end != args.keys && (*end == 'm' || *end == 'M'))
		unit = 1e6;
	if (end == args.keys || end[unit > 1])
		options_fail(&program, "--keys: '%s' is no count; write 5000, 10K or 1.5M",
			     args.keys);
	value = value * unit + 0.5;
	if (!(value >= 1 && value <= (double)KEYS_MAX))
		options_fail(&program, "--keys: %s is not between 1 and %llu", args.keys,
			     (unsigned long long)KEYS_MAX);
	return (uint64_t)value;
}

static void parse_cpus(struct perf_config *config)
{
	const char *at = args.cpus;

	while (*at) {
		char *end;
		long cpu = strtol(at, &end, 10);

		if (end == at || (*end && *end != ',') || (*end && !end[1]) || cpu < 0 ||
		    cpu > CPU_MAX)
			options_fail(&program, "--cpus: '%s' is no list of cores; write 1,0",
				     args.cpus);
		if (config->cpu_count == PERF_CPUS_MAX)
			options_fail(&program, "--cpus: more than %d cores", PERF_CPUS_MAX);
		config->cpus[config->cpu_count++] = (int)cpu;
		at = *end ? end + 1 : end;
	}
}

static void pick_tests(const struct options_result *result, struct perf_config *config)
{
	for (int i = 0; i < result->argument_count; i++) {
		int test = 0;

		while (test_names[test] && strcmp(test_names[test], result->arguments[i]))
			test++;
		if (!test_names[test])
			options_fail(&program, "no test '%s'; --help lists all",
				     result->arguments[i]);
		config->tests[test] = true;
	}
	for (int test = 0; !result->argument_count && test <= TEST_ASYNC_PUT; test++)
		config->tests[test] = true;
}

/* A window beyond the library's own default has to be asked for. */
static void fill_client_options(struct perf_config *config)
{
	config->options = (kv_client_options_t){
		.timeout_ms = (int)(args.timeout / MILLISECOND),
		.window = (uint32_t)args.window,
		.eager_limit = args.eager,
		.landing_limit = args.landing,
		.get_mode = (kv_get_mode_t)args.get_mode,
		.device = *args.device ? args.device : NULL,
		.key_file = *args.key_file ? args.key_file : NULL,
	};
	if (args.cached && config->keys * CACHE_FACTOR > CACHE_DEFAULT)
		config->options.cache_entries = config->keys > UINT32_MAX / CACHE_FACTOR - 1
							? UINT32_MAX - 1
							: (uint32_t)config->keys * CACHE_FACTOR;
}

void perf_parse(int argc, char **argv, struct perf_config *config)
{
	struct options_result result;

	args.log_level = (int)log_get_level();
	options_parse_or_exit(&program, argc, argv, &result);
	log_set_level((enum log_level)args.log_level);
	*config = (struct perf_config){
		.url = *args.url ? args.url : NULL,
		.port = (int)args.port,
		.keys = parse_keys(),
		.key_size = args.key_size,
		.value_size = args.value_size,
		.duration_ns = args.seconds,
		.rounds = (int)args.rounds,
		.batch = (unsigned)args.batch,
		.window = (unsigned)args.window,
		.clients = (unsigned)args.clients,
		.cached = args.cached,
		.json = args.json,
	};
	pick_tests(&result, config);
	for (int test = 0; !args.no_fill && test <= TEST_VIEW; test++)
		config->fill |= config->tests[test]; /* others need no keys */
	parse_cpus(config);
	fill_client_options(config);
}
