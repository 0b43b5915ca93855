/*
 * The command lines of `fabric-perf serve` and `fabric-perf run`.
 *
 * Lists ("8,4KB,1MB") are taken as strings by the options table and split here. Everything that can
 * be said without opening a device is checked here, so a wrong command ends before it starts.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "base/size.h"
#include "perf.h"

const char *const perf_op_names[] = {"send", "read", "write", "write_imm", "cas",
				     "fadd", "idle", "all",   NULL};

static const char *const wait_names[] = {"spin", "adapt", "sleep", NULL};
static const char *const target_names[] = {"sleep", "poll", NULL};

static struct {
	const char *device;
	const char *op, *size, *depth;
	uint64_t batch, seconds, warmup, iterations, timeout;
	bool use_inline, arena, plain, huge, check, json, once, socket;
	int wait, target, log_level;
	int64_t cpu, server_cpu;
} args = {
	.device = "shm",
	.op = "all",
	.size = "8",
	.depth = "1",
	.seconds = 1000000000,
	.warmup = 100000000,
	.timeout = 5000000000,
	.cpu = -1,
	.server_cpu = -1,
};

#define CPU_MAX 1023

static const struct option_spec serve_specs[] = {
	OPTION_STRING("device", 'd', &args.device,
		      "device to listen on: shm, tcp, verbs:mlx5_0 ...", .metavar = "NAME"),
	OPTION_FLAG("socket", 'S', &args.socket,
		    "verbs: meet by TCP, not by RDMA CM; NAME may be just an adapter"),
	OPTION_FLAG("once", '1', &args.once, "end when the first client has left"),
	OPTION_CHOICE("log-level", 'l', &args.log_level, log_level_names,
		      "what the library tells on stderr; REMORA_LOG is the default"),
	OPTION_INT("cpu", 'c', &args.cpu, "pin to this core (-1: do not)", .int_min = -1,
		   .int_max = CPU_MAX),
};

static const struct options_program serve_program = {
	.name = "fabric-perf serve",
	.description = "Lends memory to `fabric-perf run` clients and echoes their messages. One "
		       "client is served at a time, others wait. Prints the address it listens on.",
	.specs = serve_specs,
	.spec_count = OPTIONS_COUNT(serve_specs),
	.arguments = "[ADDRESS]",
	.max_arguments = 1,
	.examples =
		"examples:\n"
		"  fabric-perf serve perf -d shm          clients of this host: run perf\n"
		"  fabric-perf serve '*:7471' -d tcp      clients anywhere: run HOST:7471 -d tcp\n",
};

static const struct option_spec run_specs[] = {
	OPTION_STRING("device", 'd', &args.device, "device to measure: shm, tcp, verbs:mlx5_0 ...",
		      .metavar = "NAME"),
	OPTION_FLAG("socket", 'S', &args.socket,
		    "verbs: meet by TCP, not by RDMA CM; NAME may be just an adapter"),
	OPTION_STRING(
		"op", 'o', &args.op,
		"operations: send, read, write, write_imm, cas, fadd, idle, or all (but idle)",
		.metavar = "LIST"),
	OPTION_STRING("size", 's', &args.size, "bytes of an operation; cas and fadd always have 8",
		      .metavar = "LIST"),
	OPTION_STRING("depth", 'q', &args.depth, "operations in flight", .metavar = "LIST"),
	OPTION_UINT("batch", 'b', &args.batch,
		    "operations posted for one doorbell; 0 is half of the depth",
		    .max = PERF_DEPTH_MAX),
	OPTION_DURATION("seconds", 't', &args.seconds, "how long to measure each row",
			.min = 1000000),
	OPTION_DURATION("warmup", 'w', &args.warmup, "how long to run before measuring"),
	OPTION_UINT("iterations", 'n', &args.iterations,
		    "operations to measure instead of a time; 0 goes by time"),
	OPTION_FLAG("inline", 'i', &args.use_inline, "post SEND, WRITE and WRITE_IMM inline"),
	OPTION_FLAG("arena", 'a', &args.arena, "memory from arenas on both sides (the default)"),
	OPTION_FLAG("plain", 'p', &args.plain, "plain memory on both sides, not from arenas"),
	OPTION_FLAG("huge", 'H', &args.huge, "arenas of huge pages"),
	OPTION_CHOICE("wait", 'W', &args.wait, wait_names,
		      "spin: poll all the time; adapt: rmr_wait, spins a little, then sleeps; "
		      "sleep: never spin"),
	OPTION_CHOICE("target", 'T', &args.target, target_names,
		      "what the server does while it is read and written"),
	OPTION_FLAG("check", 'C', &args.check, "verify all data; the figures suffer"),
	OPTION_FLAG("json", 'j', &args.json, "print one JSON object a row"),
	OPTION_CHOICE("log-level", 'l', &args.log_level, log_level_names,
		      "what the library tells on stderr; REMORA_LOG is the default"),
	OPTION_INT("cpu", 'c', &args.cpu, "pin to this core (-1: do not)", .int_min = -1,
		   .int_max = CPU_MAX),
	OPTION_INT("server-cpu", 0, &args.server_cpu, "pin the forked server to this core",
		   .int_min = -1, .int_max = CPU_MAX),
	OPTION_DURATION("timeout", 0, &args.timeout, "how long to try to connect", .min = 1000000,
			.max = UINT64_C(3600000000000)),
};

static const struct options_program run_program = {
	.name = "fabric-perf run",
	.description = "Measures operations against a `fabric-perf serve` at ADDRESS. Without "
		       "ADDRESS it forks a server of its own on this host.",
	.specs = run_specs,
	.spec_count = OPTIONS_COUNT(run_specs),
	.arguments = "[ADDRESS]",
	.max_arguments = 1,
	.examples =
		"examples:\n"
		"  fabric-perf run                               every operation on shm, 8 bytes\n"
		"  fabric-perf run -d tcp -o read -s 8,1MB -q 1,16,128\n"
		"  fabric-perf run server:7471 -d tcp -o send --json\n"
		"exit codes: 0 done, 1 failed or wrong data, 2 wrong usage, 3 server unreachable\n",
};

/* Copies the next word of a list to word and returns what follows it, or NULL at the end. */
static const char *next_word(const char *list, char *word, size_t room, const char *option)
{
	size_t length = strcspn(list, ",");

	if (!length || length >= room)
		options_fail(&run_program, "--%s: empty or overlong word in the list", option);
	memcpy(word, list, length);
	word[length] = 0;
	return list[length] ? list + length + 1 : NULL;
}

static void parse_ops(const char *list, struct perf_config *config)
{
	while (list) {
		char word[32];
		int op = 0;

		list = next_word(list, word, sizeof(word), "op");
		while (perf_op_names[op] && strcmp(perf_op_names[op], word))
			op++;
		if (!perf_op_names[op])
			options_fail(&run_program,
				     "--op: no operation '%s'; there are send, read, write, "
				     "write_imm, cas, fadd, idle, all",
				     word);
		if (op != PERF_ALL) {
			config->ops[op] = true;
			continue;
		}
		config->all = true;
		for (op = 0; op < PERF_IDLE; op++)
			config->ops[op] = true;
	}
}

static uint64_t parse_number(const char *word, const char *option, uint64_t min, uint64_t max)
{
	uint64_t value;

	if (size_parse(word, &value) != RMR_OK)
		options_fail(&run_program, "--%s: %s", option, error_chain());
	if (value < min || value > max)
		options_fail(&run_program, "--%s: %s is not between %llu and %llu", option, word,
			     (unsigned long long)min, (unsigned long long)max);
	return value;
}

static void check_room(int count, const char *option)
{
	if (count == PERF_LIST_MAX)
		options_fail(&run_program, "--%s: more than %d words", option, PERF_LIST_MAX);
}

static void parse_sizes(const char *list, struct perf_config *config)
{
	while (list) {
		char word[32];

		check_room(config->size_count, "size");
		list = next_word(list, word, sizeof(word), "size");
		config->sizes[config->size_count++] = parse_number(word, "size", 0, PERF_SIZE_MAX);
	}
}

static void parse_depths(const char *list, struct perf_config *config)
{
	while (list) {
		char word[32];

		check_room(config->depth_count, "depth");
		list = next_word(list, word, sizeof(word), "depth");
		config->depths[config->depth_count++] =
			(uint32_t)parse_number(word, "depth", 1, PERF_DEPTH_MAX);
	}
}

/* The device's name with what -S asks for: "mlx5_0" becomes "verbs:mlx5_0,socket". */
static const char *device_name(void)
{
	static char name[128];
	const char *instance = args.device;

	if (!args.socket)
		return args.device;
	if (strncmp(instance, "verbs", 5) == 0 && (instance[5] == ':' || instance[5] == '\0'))
		instance += instance[5] ? 6 : 5;
	else if (strcmp(instance, "shm") == 0)
		instance = ""; /* the default */
	snprintf(name, sizeof(name), "verbs:%s%ssocket", instance, *instance ? "," : "");
	return name;
}

static void take_common(const struct options_result *result, struct perf_config *config)
{
	log_set_level((enum log_level)args.log_level);
	*config = (struct perf_config){
		.device = device_name(),
		.address = result->argument_count ? result->arguments[0] : NULL,
		.once = args.once,
		.cpu = (int)args.cpu,
	};
}

void perf_parse_serve(int argc, char **argv, struct perf_config *config)
{
	struct options_result result;

	args.log_level = (int)log_get_level();
	options_parse_or_exit(&serve_program, argc, argv, &result);
	take_common(&result, config);
}

void perf_parse_run(int argc, char **argv, struct perf_config *config)
{
	struct options_result result;

	args.log_level = (int)log_get_level();
	options_parse_or_exit(&run_program, argc, argv, &result);
	if (args.plain && (args.arena || args.huge))
		options_fail(&run_program, "--plain and --%s exclude each other",
			     args.arena ? "arena" : "huge");
	if (args.server_cpu >= 0 && result.argument_count)
		options_fail(&run_program,
			     "--server-cpu is for a forked server; the one at %s has "
			     "its own --cpu",
			     result.arguments[0]);
	take_common(&result, config);
	parse_ops(args.op, config);
	parse_sizes(args.size, config);
	parse_depths(args.depth, config);
	config->batch = (uint32_t)args.batch;
	config->duration_ns = args.seconds;
	config->warmup_ns = args.warmup;
	config->iterations = args.iterations;
	config->use_inline = args.use_inline;
	config->plain = args.plain;
	config->huge = args.huge;
	config->check = args.check;
	config->json = args.json;
	config->target_polls = args.target;
	config->wait = args.wait;
	config->timeout_ms = (int)(args.timeout / 1000000);
	config->server_cpu = (int)args.server_cpu;
}
