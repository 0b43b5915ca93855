/*
 * mesh-perf: how fast is a mesh, and what do doorbells cost? One command forks the processes and
 * prints a row for each combination of size and batch; with --hosts and --id it is one process of a
 * mesh that spans hosts, and is started with the same options on each.
 *
 * Exit codes: 0, 1 when something failed, 2 for a wrong command line.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "perf.h"

#define PROCESSES_MAX 64
#define LIST_MAX      16

const char *const perf_op_names[] = {"send", "pingpong", "write", "read", NULL};

static struct {
	const char *device, *host, *hosts, *sizes, *batches;
	uint64_t depth, seconds, warmup, timeout, processes;
	int64_t id;
	int op;
	bool json, pin;
} args = {
	.device = "shm",
	.host = "127.0.0.1",
	.sizes = "64",
	.batches = "1,16",
	.depth = 128,
	.seconds = 1000000000,
	.warmup = 100000000,
	.timeout = 10000000000,
	.processes = 2,
	.id = -1,
};

static const struct option_spec specs[] = {
	OPTION_STRING("device", 'd', &args.device, "device: shm, tcp, verbs:mlx5_0 ...",
		      .metavar = "NAME"),
	OPTION_CHOICE("op", 'o', &args.op, perf_op_names,
		      "send: a stream of messages from process 0 to 1; pingpong: there and back; "
		      "write, read: memory of process 1"),
	OPTION_STRING("size", 's', &args.sizes, "bytes of a message, or of a write or read",
		      .metavar = "LIST"),
	OPTION_STRING("batch", 'b', &args.batches, "works that ring the doorbell together",
		      .metavar = "LIST"),
	OPTION_UINT("depth", 'q', &args.depth, "slots of a ring, a power of two", .min = 1,
		    .max = RMR_MESH_MAX_DEPTH),
	OPTION_DURATION("seconds", 't', &args.seconds, "how long to measure each row",
			.min = 1000000),
	OPTION_DURATION("warmup", 'w', &args.warmup, "how long to run before measuring"),
	OPTION_UINT("processes", 'n', &args.processes, "processes to fork", .min = 2,
		    .max = PROCESSES_MAX),
	OPTION_STRING("host", 'H', &args.host,
		      "address of this host, for forked processes: verbs needs an adapter's",
		      .metavar = "ADDRESS"),
	OPTION_STRING("hosts", 0, &args.hosts,
		      "all processes as HOST:PORT,... and fork none; then --id says which is this",
		      .metavar = "LIST"),
	OPTION_INT("id", 0, &args.id, "place of this process in --hosts, from 0", .int_min = -1,
		   .int_max = RMR_MESH_MAX_HOSTS - 1),
	OPTION_DURATION("timeout", 0, &args.timeout, "how long to wait for the others",
			.min = 1000000, .max = UINT64_C(3600000000000)),
	OPTION_FLAG("pin", 'p', &args.pin, "pin process i to core i"),
	OPTION_FLAG("json", 'j', &args.json, "print one JSON object a row"),
};

static const struct options_program program = {
	.name = "mesh-perf",
	.description = "Measures a mesh of processes: messages, writes and reads from process 0 to "
		       "process 1, in batches.",
	.specs = specs,
	.spec_count = OPTIONS_COUNT(specs),
	.examples = "  mesh-perf                              messages of 64 bytes on shm\n"
		    "  mesh-perf -d tcp -b 1,4,16,64          what a doorbell costs on tcp\n"
		    "  mesh-perf -o pingpong -s 8,1KB         round trips\n"
		    "  mesh-perf -d tcp --hosts a:7500,b:7500 --id 0    on a; on b with --id 1\n",
};

/* ------------------------------------------------------------------------------------------
 * Lists
 */

static int split(const char *option, const char *text, uint64_t most, uint64_t values[LIST_MAX])
{
	char copy[256], *at = copy, *word;
	int count = 0;

	snprintf(copy, sizeof(copy), "%s", text);
	while ((word = strsep(&at, ",")) != NULL) {
		if (count == LIST_MAX)
			options_fail(&program, "--%s: at most %d values", option, LIST_MAX);
		if (size_parse(word, &values[count]) != RMR_OK || values[count] == 0 ||
		    values[count] > most)
			options_fail(&program, "--%s: '%s' is not a number from 1 to %llu", option,
				     word, (unsigned long long)most);
		count++;
	}
	return count;
}

/* A port that is free now. All are held until all are found, so that none is found twice. */
static int find_port(int *fd)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t length = sizeof(address);

	*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0 || bind(*fd, (struct sockaddr *)&address, sizeof(address)) ||
	    getsockname(*fd, (struct sockaddr *)&address, &length))
		return 0;
	return ntohs(address.sin_port);
}

static void make_hosts(char *hosts, size_t size)
{
	int fds[PROCESSES_MAX], count = (int)args.processes;
	bool is_shm = strstr(args.device, "shm") != NULL;
	size_t length = 0;

	for (int i = 0; i < count; i++) {
		const char *comma = i ? "," : "";
		int more;

		if (is_shm)
			more = snprintf(hosts + length, size - length, "%smesh-perf-%d-%d", comma,
					(int)getpid(), i);
		else
			more = snprintf(hosts + length, size - length, "%s%s:%d", comma, args.host,
					find_port(&fds[i]));
		length += (size_t)more;
		if (length >= size)
			options_fail(&program, "--host %s is too long", args.host);
	}
	for (int i = 0; i < count && !is_shm; i++)
		close(fds[i]);
}

/* ------------------------------------------------------------------------------------------
 * Rows
 */

static void print_row(const struct perf_options *options, const struct perf_result *result)
{
	double rate = (double)result->ops * 1e9 / (double)result->elapsed_ns;
	const struct histogram *times = &result->round_trip_ns;
	char size[SIZE_TEXT_LENGTH];

	if (args.json)
		printf("{\"device\": \"%s\", \"op\": \"%s\", \"size\": %zu, \"depth\": %u, "
		       "\"batch\": %u, \"processes\": %d, \"ops_per_s\": %.0f, "
		       "\"bytes_per_s\": %.0f, \"works_per_doorbell\": %.2f, \"p50_ns\": %llu, "
		       "\"p99_ns\": %llu}\n",
		       options->device, perf_op_names[options->op], options->size, options->depth,
		       options->batch, options->count, rate, rate * (double)options->size,
		       result->per_doorbell, (unsigned long long)histogram_percentile(times, 50),
		       (unsigned long long)histogram_percentile(times, 99));
	else if (options->op == PERF_PINGPONG)
		printf("%-9s %8s %6s %14.0f/s  p50 %.2f us  p99 %.2f us\n",
		       perf_op_names[options->op], size_format(options->size, size), "-", rate,
		       (double)histogram_percentile(times, 50) / 1000,
		       (double)histogram_percentile(times, 99) / 1000);
	else
		printf("%-9s %8s %6u %14.0f/s %10.1f MB/s  %.1f works a doorbell\n",
		       perf_op_names[options->op], size_format(options->size, size), options->batch,
		       rate, rate * (double)options->size / 1e6, result->per_doorbell);
	fflush(stdout);
}

static void pin(int id)
{
	cpu_set_t set;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	CPU_ZERO(&set);
	CPU_SET(id % (int)cores, &set);
	if (args.pin && sched_setaffinity(0, sizeof(set), &set))
		fprintf(stderr, "mesh-perf: core %d: %s\n", id % (int)cores, strerror(errno));
}

/* This process's part of a row. */
static int be(const struct perf_options *options)
{
	static struct perf_result result;

	pin(options->id);
	if (perf_mesh(options, &result) != RMR_OK) {
		fprintf(stderr, "mesh-perf: process %d: %s\n", options->id, rmr_error_message());
		return 1;
	}
	if (options->id == 0)
		print_row(options, &result);
	return 0;
}

/* All processes, this one is 0. Those that are left when it ends are ended. */
static int fork_row(struct perf_options *options)
{
	pid_t children[PROCESSES_MAX] = {0}, parent = getpid();
	char hosts[PROCESSES_MAX * 96];
	int code, status;

	make_hosts(hosts, sizeof(hosts));
	options->hosts = hosts;
	options->count = (int)args.processes;
	fflush(NULL);
	for (int i = 1; i < options->count; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			options->id = i;
			_exit(getppid() == parent ? be(options) : 1);
		}
		if (children[i] < 0) {
			fprintf(stderr, "mesh-perf: fork: %s\n", strerror(errno));
			break;
		}
	}
	options->id = 0;
	code = be(options);
	for (int i = 1; i < options->count; i++) {
		if (children[i] <= 0)
			continue;
		if (code)
			kill(children[i], SIGKILL);
		if (waitpid(children[i], &status, 0) == children[i] && !code)
			code = !WIFEXITED(status) || WEXITSTATUS(status);
	}
	return code;
}

static int run_row(uint64_t size, uint64_t batch)
{
	struct perf_options options = {.device = args.device,
				       .hosts = args.hosts,
				       .id = (int)args.id,
				       .op = (enum perf_op)args.op,
				       .size = size,
				       .depth = (uint32_t)args.depth,
				       .batch = (uint32_t)batch,
				       .seconds_ns = args.seconds,
				       .warmup_ns = args.warmup,
				       .timeout_ns = args.timeout};

	if (!args.hosts)
		return fork_row(&options);
	options.count = 1;
	for (const char *c = args.hosts; *c; c++)
		options.count += *c == ',';
	return be(&options);
}

int main(int argc, char **argv)
{
	uint64_t sizes[LIST_MAX], batches[LIST_MAX];
	struct options_result result;
	int size_count, batch_count, code = 0;

	options_parse_or_exit(&program, argc, argv, &result);
	size_count = split("size", args.sizes, 1u << 30, sizes);
	batch_count = split("batch", args.batches, RMR_MESH_MAX_DEPTH, batches);
	if (args.op == PERF_PINGPONG)
		batch_count = 1;
	if ((args.hosts == NULL) != (args.id < 0))
		options_fail(&program, "--hosts and --id belong together");
	if (args.depth & (args.depth - 1))
		options_fail(&program, "--depth: %llu is no power of two",
			     (unsigned long long)args.depth);
	for (int i = 0; i < size_count && code == 0; i++)
		for (int j = 0; j < batch_count && code == 0; j++)
			code = run_row(sizes[i], batches[j]);
	return code;
}
