/*
 * The command line of kv-bench. All ways to measure share one table: what one has no use for it
 * ignores, but what it would have to ignore at the user's expense is refused.
 *
 * Some options exist twice: the cache workload has names of its own, which mean
 * `--workload cache` when no other is asked for.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "base/size.h"
#include "store.h"

#define COUNT_MAX     UINT64_C(1000000000)
#define CPU_MAX	      1023
#define CACHED_KEYS   10000 /* of --cached, unless --keys says otherwise */
#define DEFAULT_KEYS  100000
#define CACHE_DEFAULT 65536
#define CACHE_FACTOR  4 /* places remembered for each key of --cached */
#define MILLISECOND   UINT64_C(1000000)
#define SECOND	      (1000 * MILLISECOND)
#define HOUR	      (3600 * SECOND)
#define MEBIBYTE      UINT64_C(1048576)
#define WARM_UP_MOST  SECOND
/* The phases of the cache workload. */
#define CACHE_KEYS    1000
#define CACHE_SIZE    65536
#define CACHE_THREADS 4
#define CACHE_REPEATS 10
#define CACHE_WARM_UP 10

/* In the order of kv_get_mode_t. */
static const char *const mode_names[] = {"auto", "ask", "index", NULL};

static struct {
	const char *url, *keys, *operations, *rate, *sizes, *cpus, *server_cpus, *device, *key_file;
	const char *ca_file;
	const char *workload, *mix, *compare, *plot, *prefix;
	uint64_t port, key_size, seconds, rounds, batch, window, clients, threads, timeout;
	uint64_t eager, landing, buffer, memory, warm_up, think, ttl;
	bool cached, no_fill, keep, json, csv, histogram, spawn, verify, insecure;
	int get_mode, log_level, distribution;
	double skew;
	/* Those of the cache workload. */
	const char *server_address;
	uint64_t buffer_mb, warm_up_count, repeats;
	bool mock;
} args = {
	.url = "",
	.keys = "",
	.operations = "",
	.rate = "",
	.sizes = "",
	.cpus = "",
	.server_cpus = "",
	.device = "",
	.key_file = "",
	.ca_file = "",
	.workload = "",
	.mix = "",
	.compare = "",
	.plot = "",
	.prefix = "",
	.server_address = "",
	.port = KV_DEFAULT_PORT,
	.seconds = 500 * MILLISECOND,
	.rounds = 3,
	.batch = 16,
	.window = 32,
	.clients = 1,
	.threads = 1,
	.timeout = 5000 * MILLISECOND,
	.skew = 0.99,
	.repeats = CACHE_REPEATS,
	.warm_up_count = CACHE_WARM_UP,
};

/* Which options occurred, where that matters. */
static struct {
	bool port, seconds, rounds, window, threads, think, rate, warm_up, operations;
	bool distribution, skew, ttl, histogram, verify, prefix;
	bool seed; /* one that the cache workload alone has */
} given;

static const struct option_spec specs[] = {
	OPTION_STRING("url", 'u', &args.url,
		      "the server: a host, shm:NAME, tcp://HOST:PORT, verbs://HOST:PORT, or "
		      "http://HOST:PORT for its gRPC service; the default is this host, and if "
		      "nothing listens there a server of our own",
		      .metavar = "URL"),
	OPTION_UINT("port", 'p', &args.port, "of a host without one", .min = 1, .max = 65535,
		    .given = &given.port),
	OPTION_STRING("device", 'd', &args.device,
		      "by this provider or device: shm, tcp, verbs:mlx5_0", .metavar = "NAME"),
	OPTION_STRING("key-file", 0, &args.key_file, "the key that the server asks for",
		      .metavar = "FILE"),
	OPTION_STRING("ca-file", 0, &args.ca_file,
		      "https: who signed its certificate (default whom the system trusts)",
		      .metavar = "FILE"),
	OPTION_FLAG("insecure", 0, &args.insecure,
		    "https: do not check the server's certificate; http: send the key to other "
		    "hosts, though it can be read on its way"),
	OPTION_DURATION("timeout", 'T', &args.timeout,
			"how long an operation waits without progress", .min = MILLISECOND,
			.max = HOUR),
	OPTION_FLAG("spawn", 'S', &args.spawn, "start a server of our own for this run"),
	OPTION_SIZE("memory", 0, &args.memory, "of that server (default what the keys need)"),

	OPTION_STRING("workload", 'W', &args.workload,
		      "a to f of YCSB: a is half gets and half puts, b 95% gets, c gets alone, d "
		      "gets of the newest and inserts, e scans, f gets and read-modify-writes; or "
		      "cache: write all keys, then read all of them",
		      .metavar = "NAME"),
	OPTION_STRING(
		"mix", 'm', &args.mix,
		"a workload of your own, such as get:95,put:5; of get, put, insert, rmw, scan",
		.metavar = "LIST"),
	OPTION_CHOICE("distribution", 'D', &args.distribution, distribution_names,
		      "how keys are drawn, whatever the workload says",
		      .given = &given.distribution),
	OPTION_DOUBLE("skew", 0, &args.skew, "of zipf and latest", .real_min = 0.01, .real_max = 10,
		      .given = &given.skew),
	OPTION_STRING("compare", 0, &args.compare,
		      "the same beside these, which are started here: redis,memcached, and grpc, "
		      "the gRPC service of the same server",
		      .metavar = "LIST"),

	OPTION_STRING("keys", 'k', &args.keys,
		      "how many keys, such as 10K or 1M (default 100K, with --cached 10K, and no "
		      "more than --operations)",
		      .metavar = "COUNT"),
	OPTION_STRING(
		"prefix", 0, &args.prefix,
		"what its keys begin with (default kv-bench:, on a server of our own nothing)",
		.metavar = "TEXT", .given = &given.prefix),
	OPTION_FLAG("keep", 0, &args.keep,
		    "leave the keys there, instead of removing them at the end"),
	OPTION_SIZE("key-size", 'K', &args.key_size,
		    "bytes of a key with its prefix (default the prefix and 16)",
		    .min = KEY_SIZE_MIN, .max = KEY_SIZE_MAX),
	OPTION_STRING("value-size", 's', &args.sizes,
		      "bytes of a value (default 64), or several sizes: 64,1KB,64KB",
		      .metavar = "SIZE,..."),
	OPTION_DURATION("seconds", 't', &args.seconds,
			"how long to measure, each and every round (default 500ms, a workload 5s)",
			.min = MILLISECOND, .max = 100 * HOUR, .given = &given.seconds),
	OPTION_STRING("operations", 'o', &args.operations,
		      "measure so many, of all clients together, instead of a time",
		      .metavar = "COUNT", .given = &given.operations),
	OPTION_DURATION("warm-up", 0, &args.warm_up,
			"before it (default a fifth of --seconds, at most 1s)", .max = HOUR,
			.given = &given.warm_up),
	OPTION_UINT("rounds", 'r', &args.rounds,
		    "how many; rates are medians (default 3, a workload 1)", .min = 1,
		    .max = BENCH_ROUNDS_MAX, .given = &given.rounds),
	OPTION_UINT("clients", 'c', &args.clients, "processes that do the same at once", .min = 1,
		    .max = BENCH_CLIENTS_MAX),
	OPTION_UINT("threads", 0, &args.threads, "of each client", .min = 1,
		    .max = BENCH_THREADS_MAX, .given = &given.threads),
	OPTION_UINT(
		"window", 'w', &args.window,
		"operations under way of a thread, submitted and polled (default 32, a workload 1)",
		.min = 1, .max = BENCH_WINDOW_MAX, .given = &given.window),
	OPTION_UINT("batch", 'b', &args.batch, "keys of one call of get-many and put-many",
		    .min = 1, .max = BENCH_BATCH_MAX),
	OPTION_STRING("rate", 'R', &args.rate,
		      "operations a second of all clients; latencies count from when an operation "
		      "was due, sent or not",
		      .metavar = "COUNT", .given = &given.rate),
	OPTION_DURATION("think-time", 0, &args.think, "of a thread between two operations",
			.max = HOUR, .given = &given.think),
	OPTION_DURATION("ttl", 0, &args.ttl, "time to live of what is put (default for ever)",
			.given = &given.ttl),
	OPTION_FLAG("verify", 0, &args.verify, "look at every byte of every value that is got",
		    .given = &given.verify),
	OPTION_CHOICE("get-mode", 'g', &args.get_mode, mode_names,
		      "how gets are made: the fastest way, by asking, or by reading the index"),
	OPTION_FLAG("cached", 0, &args.cached,
		    "get every key before anything is measured, so that all places are known"),
	OPTION_FLAG("no-fill", 'n', &args.no_fill,
		    "all keys are there already, by an earlier run with --keep and the same sizes"),
	OPTION_STRING("cpus", 'C', &args.cpus,
		      "cores that the threads are pinned to, in this order; the default pins "
		      "nobody, with --compare to all but the servers' core",
		      .metavar = "LIST"),
	OPTION_STRING("server-cpus", 0, &args.server_cpus,
		      "cores of the servers that are started here", .metavar = "LIST"),
	OPTION_SIZE("eager-limit", 0, &args.eager,
		    "key and value that are sent in one message (default the library's)"),
	OPTION_SIZE("landing-limit", 0, &args.landing,
		    "what is sent to the landing buffer in one go (default what the server gives)"),
	OPTION_SIZE("buffer-size", 0, &args.buffer,
		    "of a client, for large values on their way in (default 4MiB)"),

	OPTION_FLAG("json", 'j', &args.json, "print one JSON object a row"),
	OPTION_FLAG("csv", 0, &args.csv, "print one line of comma-separated figures a row"),
	OPTION_FLAG("histogram", 0, &args.histogram,
		    "draw the latencies below the table; a workload does unless =no",
		    .given = &given.histogram),
	OPTION_STRING("plot", 0, &args.plot,
		      "a picture by gnuplot, .png or .svg: latencies, and rates by size of values",
		      .metavar = "FILE"),
	OPTION_CHOICE("log-level", 'l', &args.log_level, log_level_names,
		      "what the library tells on stderr; REMORA_LOG is the default"),

	OPTION_STRING("num-keys", 0, &args.keys, "--keys of --workload cache (default 1000)",
		      .metavar = "COUNT", .given = &given.seed),
	OPTION_UINT("num-threads", 0, &args.threads, "its --threads (default 4)", .min = 1,
		    .max = BENCH_THREADS_MAX, .given = &given.seed),
	OPTION_UINT("num-workers", 0, &args.threads, "the same (default 4)", .min = 1,
		    .max = BENCH_THREADS_MAX, .given = &given.seed),
	OPTION_UINT("num-clients", 0, &args.clients, "its --clients", .min = 1,
		    .max = BENCH_CLIENTS_MAX, .given = &given.seed),
	OPTION_UINT("buffer-mb", 0, &args.buffer_mb, "its --buffer-size, in megabytes (default 4)",
		    .max = 65536, .given = &given.seed),
	OPTION_UINT("warmup", 0, &args.warm_up_count, "its reads of a thread before any counts",
		    .max = COUNT_MAX, .given = &given.seed),
	OPTION_UINT("repeat-reads", 0, &args.repeats, "how often it reads each key", .min = 1,
		    .max = 1000000, .given = &given.seed),
	OPTION_STRING("server-addr", 0, &args.server_address, "its --url: http://HOST:PORT",
		      .metavar = "URL", .given = &given.seed),
	OPTION_FLAG("mock", 0, &args.mock, "no hardware wanted: by shm", .given = &given.seed,
		    .takes_word = true),
};

static const struct options_program program = {
	.name = "kv-bench",
	.description =
		"Measures a kv-server through the client library: single operations in tight "
		"loops, or a workload that mixes them. OPERATION is get, put, get-many, put-many, "
		"async-get, async-put, view, incr, ping or idle; without one and without a "
		"workload the first six run.",
	.specs = specs,
	.spec_count = OPTIONS_COUNT(specs),
	.arguments = "[OPERATION...]",
	.max_arguments = OPTIONS_UNLIMITED,
	.examples =
		"On a server that it did not start its keys begin with kv-bench: and are removed\n"
		"at the end, also after Ctrl-C. If that server is full, its own keys are evicted.\n"
		"examples:\n"
		"  kv-bench                                  six operations, in seconds\n"
		"  kv-bench --workload b --seconds 10\n"
		"  kv-bench -u tcp://10.0.0.5 -W a -c 4 -w 16 --rate 100K\n"
		"  kv-bench get put -s 64,1KB,64KB --plot sizes.png\n"
		"  kv-bench --compare redis,memcached\n"
		"exit codes: 0 done, 1 failed or with errors, 2 wrong usage\n",
};

/* ------------------------------------------------------------------------------------------
 * Texts that the table takes as they are
 */

/* 5000, 10K, 1.5M. */
static uint64_t parse_count(const char *name, const char *text)
{
	double value, unit = 1;
	char *end;

	value = strtod(text, &end);
	if (end != text && (*end == 'k' || *end == 'K'))
		unit = 1e3;
	else if (end != text && (*end == 'm' || *end == 'M'))
		unit = 1e6;
	if (end == text || end[unit > 1])
		options_fail(&program, "--%s: '%s' is no count; write 5000, 10K or 1.5M", name,
			     text);
	value = value * unit + 0.5;
	if (!(value >= 1 && value <= (double)COUNT_MAX))
		options_fail(&program, "--%s: %s is not between 1 and %llu", name, text,
			     (unsigned long long)COUNT_MAX);
	return (uint64_t)value;
}

static int parse_cpus(const char *name, const char *text, int cpus[BENCH_CPUS_MAX])
{
	const char *at = text;
	int count = 0;

	while (*at) {
		char *end;
		long cpu = strtol(at, &end, 10);

		if (end == at || (*end && *end != ',') || (*end && !end[1]) || cpu < 0 ||
		    cpu > CPU_MAX)
			options_fail(&program, "--%s: '%s' is no list of cores; write 1,0", name,
				     text);
		if (count == BENCH_CPUS_MAX)
			options_fail(&program, "--%s: more than %d cores", name, BENCH_CPUS_MAX);
		cpus[count++] = (int)cpu;
		at = *end ? end + 1 : end;
	}
	return count;
}

static void parse_sizes(struct config *config, size_t otherwise)
{
	const char *at = args.sizes;

	if (!*at)
		config->value_sizes[config->size_count++] = otherwise;
	while (*at) {
		size_t length = strcspn(at, ",");
		uint64_t bytes;
		char word[32];

		snprintf(word, sizeof(word), "%.*s", length < 31 ? (int)length : 31, at);
		if (size_parse(word, &bytes) != RMR_OK)
			options_fail(&program, "--value-size: %s", error_chain());
		if (bytes < VALUE_SIZE_MIN || bytes > UINT64_C(1) << 30)
			options_fail(&program, "--value-size: %s is not between %u and 1GiB", word,
				     VALUE_SIZE_MIN);
		if (config->size_count == BENCH_SIZES_MAX)
			options_fail(&program, "--value-size: more than %d", BENCH_SIZES_MAX);
		config->value_sizes[config->size_count++] = (size_t)bytes;
		at += length + (at[length] == ',');
	}
}

/* The server that was named. */
static const char *named_address(void)
{
	return *args.url ? args.url : args.server_address;
}

/* http://host:50051 is the gRPC service. */
static bool is_grpc(const char *address)
{
	return !strncmp(address, "http://", 7) || !strncmp(address, "https://", 8);
}

/* Whether gRPC is measured, alone or beside others. */
static bool measures_grpc(const struct config *config)
{
	for (int i = 0; i < config->contestant_count; i++)
		if (config->contestants[i].kind == STORE_GRPC)
			return true;
	return false;
}

static void parse_compare(struct config *config)
{
	const char *at = args.compare;

	config->contestant_count = 1;
	config->contestants[0].kind = is_grpc(named_address()) ? STORE_GRPC : STORE_KV;
	while (*at) {
		size_t length = strcspn(at, ",");
		int kind = STORE_REDIS;

		while (kind < STORE_COUNT && (strlen(store_names[kind]) != length ||
					      memcmp(store_names[kind], at, length)))
			kind++;
		if (kind == STORE_COUNT)
			options_fail(&program,
				     "--compare: no '%.*s'; there are redis, memcached and grpc",
				     (int)length, at);
		for (int i = 1; i < config->contestant_count; i++)
			if ((int)config->contestants[i].kind == kind)
				options_fail(&program, "--compare: %s twice", store_names[kind]);
		if (!store_ops_of((enum store_kind)kind))
			options_fail(&program, "--compare %s: %s", store_names[kind],
				     error_chain());
		config->contestants[config->contestant_count++].kind = (enum store_kind)kind;
		at += length + (at[length] == ',');
	}
}

/* ------------------------------------------------------------------------------------------
 * Passes
 */

/* Whether the options ask for what a tight loop does not do. */
static bool wants_mix(const struct config *config)
{
	return *args.workload || *args.mix || config->contestant_count > 1 ||
	       measures_grpc(config) || given.rate || given.think || given.operations ||
	       given.distribution || given.verify || given.warm_up || given.ttl;
}

static struct pass common_pass(void)
{
	bool is_long = *args.workload || *args.mix;
	struct pass pass = {
		.distribution = (enum distribution)args.distribution,
		.skew = args.skew,
		.window = given.window ? (unsigned)args.window : 1,
		.operations = given.operations ? parse_count("operations", args.operations) : 0,
		.duration_ns = given.seconds ? args.seconds : SECOND,
		.think_ns = args.think,
		.rate = given.rate ? (double)parse_count("rate", args.rate) : 0,
		.ttl_ms = args.ttl / MILLISECOND,
		.verify = args.verify,
	};

	if (is_long && !given.seconds)
		pass.duration_ns = *args.compare ? 2 * SECOND : 5 * SECOND;
	pass.warm_up_ns = pass.duration_ns / 5 < WARM_UP_MOST ? pass.duration_ns / 5 : WARM_UP_MOST;
	if (given.warm_up)
		pass.warm_up_ns = args.warm_up;
	if (pass.operations && given.warm_up)
		options_fail(&program, "--warm-up goes with --seconds, not with --operations");
	if (pass.operations)
		pass.warm_up_ns = 0;
	if (pass.think_ns && pass.window > 1)
		options_fail(&program, "--think-time goes with one operation at a time, not with "
				       "--window");
	if (pass.think_ns && pass.rate > 0)
		options_fail(&program, "--think-time and --rate: one of them sets the pace");
	return pass;
}

/* get, put and their async forms; nothing else is the same in all stores. */
static void add_operation(struct config *config, enum loop loop)
{
	struct pass pass = common_pass();

	if (loop != LOOP_GET && loop != LOOP_PUT && loop != LOOP_ASYNC_GET &&
	    loop != LOOP_ASYNC_PUT)
		options_fail(
			&program,
			"%s is measured in a tight loop alone, without a rate, a distribution, "
			"--operations or --compare",
			loop_names[loop]);
	pass.name = loop_names[loop];
	plan_only(&pass, loop == LOOP_GET || loop == LOOP_ASYNC_GET ? OP_GET : OP_PUT);
	pass.window = loop == LOOP_GET || loop == LOOP_PUT ? 1 : (unsigned)args.window;
	config->passes[config->pass_count++] = pass;
}

/* The cache workload: one thread writes all keys, then each thread reads its part of them, many
 * times. */
static void add_cache(struct config *config)
{
	struct pass pass = common_pass();

	pass.distribution = DIST_SEQUENTIAL;
	pass.name = "cache, writing";
	pass.operations = config->keys;
	pass.warm_up_ns = 0;
	pass.alone = true;
	plan_only(&pass, OP_PUT);
	config->passes[config->pass_count++] = pass;
	pass.name = "cache, reading";
	pass.operations = config->keys * args.repeats;
	pass.warm_up_operations = args.warm_up_count;
	pass.alone = false;
	plan_only(&pass, OP_GET);
	config->passes[config->pass_count++] = pass;
}

static void add_mix(struct config *config)
{
	struct pass pass = common_pass();

	if (*args.workload && *args.mix)
		options_fail(&program, "--workload and --mix: one of them");
	if (*args.mix) {
		pass.name = "mix";
		if (plan_mix(&pass, args.mix) != RMR_OK)
			options_fail(&program, "--mix: %s", error_chain());
	} else if (!plan_workload(&pass, args.workload)) {
		options_fail(&program, "--workload: no '%s'; there are a, b, c, d, e, f and cache",
			     args.workload);
	}
	if (given.distribution)
		pass.distribution = (enum distribution)args.distribution;
	for (int i = 1; i < config->contestant_count; i++)
		if (config->contestants[i].kind == STORE_MEMCACHED &&
		    plan_share(&pass, OP_SCAN) > 0)
			options_fail(&program, "--compare memcached: it has no scan");
	config->passes[config->pass_count++] = pass;
}

static void pick_loops(const struct options_result *result, struct config *config)
{
	for (int i = 0; i < result->argument_count; i++) {
		int loop = 0;

		while (loop_names[loop] && strcmp(loop_names[loop], result->arguments[i]))
			loop++;
		if (!loop_names[loop])
			options_fail(&program, "no operation '%s'; --help lists all",
				     result->arguments[i]);
		config->loops[loop] = true;
	}
	for (int loop = 0; !result->argument_count && loop <= LOOP_ASYNC_PUT; loop++)
		config->loops[loop] = !wants_mix(config) || loop <= LOOP_PUT ||
				      (loop >= LOOP_ASYNC_GET && !measures_grpc(config));
}

static void plan_passes(const struct options_result *result, struct config *config)
{
	bool is_cache = !strcmp(args.workload, "cache");

	if ((*args.workload || *args.mix) && result->argument_count)
		options_fail(&program, "'%s' and a workload: one of them", result->arguments[0]);
	config->workload = *args.workload ? args.workload : *args.mix ? "mix" : "";
	if (is_cache) {
		add_cache(config);
	} else if (*args.workload || *args.mix) {
		add_mix(config);
	} else {
		pick_loops(result, config);
		config->has_loops = !wants_mix(config);
		for (int loop = 0; !config->has_loops && loop < LOOP_COUNT; loop++)
			if (config->loops[loop])
				add_operation(config, (enum loop)loop);
	}
	for (int i = 0; i < config->pass_count; i++)
		if (config->passes[i].window > 1 && measures_grpc(config))
			options_fail(&program, "%s, --window: by gRPC there is one call at a time",
				     config->passes[i].name);
	config->fill = !args.no_fill && !is_cache;
	if (config->has_loops && config->fill) {
		config->fill = false;
		for (int loop = 0; loop <= LOOP_VIEW; loop++)
			config->fill |= config->loops[loop]; /* others need no keys */
	}
}

/* ------------------------------------------------------------------------------------------
 * All of it
 */

/* A window beyond the library's own default has to be asked for. */
static void fill_client_options(struct config *config)
{
	config->options = (kv_client_options_t){
		.timeout_ms = (int)(args.timeout / MILLISECOND),
		.window = (uint32_t)args.window,
		.eager_limit = args.eager,
		.landing_limit = args.landing,
		.buffer_size = args.buffer_mb ? args.buffer_mb * MEBIBYTE : args.buffer,
		.get_mode = (kv_get_mode_t)args.get_mode,
		.device = *args.device ? args.device
			  : args.mock  ? "shm"
				       : NULL,
		.key_file = *args.key_file ? args.key_file : NULL,
	};
	if (args.cached && config->keys * CACHE_FACTOR > CACHE_DEFAULT)
		config->options.cache_entries = config->keys > UINT32_MAX / CACHE_FACTOR - 1
							? UINT32_MAX - 1
							: (uint32_t)config->keys * CACHE_FACTOR;
}

/* Equal cores: the servers share the first that this process may use, the clients have the rest. */
static void share_cores(struct config *config)
{
	cpu_set_t set;

	config->cpu_count = parse_cpus("cpus", args.cpus, config->cpus);
	config->server_cpu_count = parse_cpus("server-cpus", args.server_cpus, config->server_cpus);
	if (config->contestant_count == 1 || sched_getaffinity(0, sizeof(set), &set) ||
	    CPU_COUNT(&set) < 2)
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE && !config->server_cpu_count; cpu++)
		if (CPU_ISSET(cpu, &set))
			config->server_cpus[config->server_cpu_count++] = cpu;
	if (config->cpu_count)
		return;
	for (int i = 0; i < config->server_cpu_count; i++)
		CPU_CLR(config->server_cpus[i], &set);
	for (int cpu = 0; cpu < CPU_SETSIZE && config->cpu_count < BENCH_CPUS_MAX; cpu++)
		if (CPU_ISSET(cpu, &set))
			config->cpus[config->cpu_count++] = cpu;
}

/* No more keys than operations are asked for. */
static uint64_t count_keys(bool is_cache)
{
	uint64_t keys = is_cache ? CACHE_KEYS : args.cached ? CACHED_KEYS : DEFAULT_KEYS;
	uint64_t operations = given.operations ? parse_count("operations", args.operations) : keys;

	if (*args.keys)
		return parse_count("keys", args.keys);
	return operations < keys ? operations : keys;
}

static void name_server(struct config *config)
{
	const char *url = named_address();

	config->ca_file = *args.ca_file ? args.ca_file : NULL;
	config->insecure = args.insecure;
	config->port = (int)args.port;
	config->spawn = args.spawn;
	config->spawn_memory = args.memory;
	config->is_implicit = !*url && !given.port;
	if (args.spawn && !config->is_implicit)
		options_fail(&program, "--spawn starts a server of our own: name no other");
	if (args.cached && is_grpc(url))
		options_fail(&program, "--cached: by gRPC no places are remembered");
	if (config->contestant_count > 1 && !config->is_implicit && measures_grpc(config))
		options_fail(&program,
			     "--compare grpc starts a server of our own: name no other; or "
			     "measure that one by --url http://HOST:PORT");
	if (config->contestant_count > 1 && config->is_implicit)
		config->spawn = true; /* on the same core as the others */
	if (snprintf(config->contestants[0].address, ADDRESS_MAX, "%s", url) >= ADDRESS_MAX)
		options_fail(&program, "--url: longer than %d characters", ADDRESS_MAX - 1);
}

static void fill_how(struct config *config)
{
	bool is_workload = *args.workload || *args.mix;

	if (args.json && args.csv)
		options_fail(&program, "--json and --csv: one of them");
	config->output = args.json ? OUTPUT_JSON : args.csv ? OUTPUT_CSV : OUTPUT_TABLE;
	config->histogram =
		given.histogram ? args.histogram : is_workload && config->contestant_count == 1;
	config->plot = *args.plot ? args.plot : NULL;
	config->rounds = (int)args.rounds;
	if (!given.rounds && (is_workload || given.operations) && config->contestant_count == 1)
		config->rounds = 1;
}

void bench_parse(int argc, char **argv, struct config *config)
{
	struct options_result result;
	bool is_cache;

	args.log_level = (int)log_get_level();
	options_parse_or_exit(&program, argc, argv, &result);
	log_set_level((enum log_level)args.log_level);
	if (given.seed && !*args.workload && !*args.mix && !result.argument_count)
		args.workload = "cache";
	if (given.skew && !given.distribution && !*args.workload) {
		given.distribution = true; /* who gives a skew wants it */
		args.distribution = DIST_ZIPF;
	}
	is_cache = !strcmp(args.workload, "cache");
	if (is_cache && !given.threads && args.threads == 1)
		args.threads = CACHE_THREADS;
	*config = (struct config){
		.keys = count_keys(is_cache),
		.key_size = args.key_size,
		.prefix = given.prefix ? args.prefix : NULL,
		.keep = args.keep,
		.duration_ns = args.seconds,
		.batch = (unsigned)args.batch,
		.window = (unsigned)args.window,
		.clients = (unsigned)args.clients,
		.threads = (unsigned)args.threads,
		.cached = args.cached,
	};
	if (config_slots(config) > BENCH_SLOTS_MAX)
		options_fail(&program, "--clients and --threads: more than %d together",
			     BENCH_SLOTS_MAX);
	parse_sizes(config, is_cache ? CACHE_SIZE : 64);
	parse_compare(config);
	plan_passes(&result, config);
	share_cores(config);
	name_server(config);
	fill_client_options(config);
	fill_how(config);
}
