/*
 * The command line of kv-server: see options.h.
 *
 * The short flags are those of seed 001. One of them asks for care: -m counts megabytes when it is
 * a bare number, as everywhere where a cache is started by hand, while all other sizes in this
 * project are bytes then. So it is taken as text, and read here.
 *
 * 0 is the default of most fields of kv_server_options_t, and --help should tell the number that
 * it stands for. Those numbers are written down in the help texts, beside server.h's own comments.
 */
#include "options.h"

#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "base/size.h"
#include "kv/protocol.h"

#define MEBIBYTE	 UINT64_C(1048576)
#define MEMORY_MAX	 (UINT64_C(1) << 46)
#define WORKERS_MAX	 1024
#define CLIENTS_MAX	 1000000
#define MESSAGE_MAX	 (UINT64_C(1) << 24)
#define LANDING_MAX	 (UINT64_C(1) << 40)
#define EMPTY_TO_NULL(s) (*(s) ? (s) : NULL)

static const char *const on_full_names[] = {"evict", "reject", NULL};

static struct {
	const char *address, *memory, *device, *listen, *key_file, *read_key_file;
	uint64_t port, table, workers, max_clients, window, eager, inlined, landing;
	bool huge, socket, any_user, zero_freed, prefault;
	int on_full, log_level;
} args = {
	.address = "",
	.memory = "256",
	.device = "",
	.listen = "",
	.key_file = "",
	.read_key_file = "",
	.port = KV_DEFAULT_PORT,
};

static const struct option_spec specs[] = {
	OPTION_STRING("address", 'a', &args.address,
		      "listen at this host or IP address; the default is every one",
		      .metavar = "HOST"),
	OPTION_UINT("port", 'p', &args.port, "listen at this port; 0 picks a free one",
		    .max = 65535),
	OPTION_STRING("memory", 'm', &args.memory,
		      "memory of the store, its index included: a number of megabytes, or 1GiB",
		      .metavar = "SIZE"),
	OPTION_FLAG("hugepages", 'H', &args.huge, "huge pages, or ordinary ones with a warning"),
	OPTION_FLAG("socket", 'S', &args.socket,
		    "verbs: connect by exchanging queue pair numbers over TCP, instead of RDMA CM"),
	OPTION_STRING("device", 'd', &args.device, "verbs: this adapter alone, such as mlx5_0",
		      .metavar = "NAME"),
	OPTION_UINT("table", 't', &args.table,
		    "how many keys to expect; nothing follows from it, for the index grows by "
		    "itself, without a pause"),
	OPTION_UINT("workers", 'w', &args.workers,
		    "threads that serve clients; 0 means half the cores, at least 1",
		    .max = WORKERS_MAX),
	OPTION_STRING("listen", 'L', &args.listen,
		      "the paths to listen by, such as shm,tcp or shm:NAME,tcp://HOST:PORT or "
		      "verbs:mlx5_0; of these all must work. The default is all that are here",
		      .metavar = "LIST"),
	OPTION_CHOICE("on-full", 0, &args.on_full, on_full_names,
		      "when memory is full: drop what was not used lately, or refuse to put"),
	OPTION_STRING("key-file", 'k', &args.key_file,
		      "clients must know the key in the first line of this file",
		      .metavar = "FILE"),
	OPTION_STRING("read-key-file", 0, &args.read_key_file,
		      "clients that know this other key may read, and change nothing",
		      .metavar = "FILE"),
	OPTION_FLAG("any-user", 0, &args.any_user, "shm: clients of other users of this host, too"),
	OPTION_FLAG("zero-freed", 0, &args.zero_freed, "overwrite memory when it is freed"),
	OPTION_FLAG("prefault", 0, &args.prefault, "touch all memory now, not at its first use"),
	OPTION_UINT("max-clients", 0, &args.max_clients, "more are refused; 0 means 4096",
		    .max = CLIENTS_MAX),
	OPTION_UINT("window", 0, &args.window,
		    "requests of one client that may be under way; 0 means 64",
		    .max = KV_MAX_WINDOW),
	OPTION_SIZE("eager-limit", 0, &args.eager,
		    "key and value of a request in one message; 0 means 8KB", .max = MESSAGE_MAX),
	OPTION_SIZE("inline-limit", 0, &args.inlined, "of a value in a reply; 0 means 8KB",
		    .max = MESSAGE_MAX),
	OPTION_SIZE("landing-size", 0, &args.landing,
		    "buffer for one client's longer puts; 0 means 4MB", .max = LANDING_MAX),
	OPTION_CHOICE("log-level", 'l', &args.log_level, log_level_names,
		      "what is told on stderr; REMORA_LOG is the default"),
};

static const struct options_program program = {
	.name = "kv-server",
	.description = "Keeps keys and values in memory, for clients on this host through shared "
		       "memory, for others through RDMA or TCP.",
	.specs = specs,
	.spec_count = OPTIONS_COUNT(specs),
	.examples = "signals:\n"
		    "  SIGTERM, SIGINT   finish what is under way, tell the clients, and end\n"
		    "  SIGUSR1           print statistics\n"
		    "examples:\n"
		    "  kv-server -m 1024                     a gigabyte, port 12345\n"
		    "  kv-server -a 10.0.0.5 -m 64GiB -H -w 8\n"
		    "  kv-server --listen shm,tcp://127.0.0.1 --key-file /etc/remora.key\n"
		    "exit codes: 0 ended by a signal, 1 failed, 2 wrong usage\n",
};

static uint64_t parse_memory(const char *text)
{
	uint64_t bytes;

	if (size_parse(text, &bytes) != RMR_OK)
		options_fail(&program, "--memory: %s", error_chain());
	if (text[strspn(text, "0123456789")] == 0)
		bytes = bytes > MEMORY_MAX / MEBIBYTE ? MEMORY_MAX + 1 : bytes * MEBIBYTE;
	if (!bytes || bytes > MEMORY_MAX)
		options_fail(&program, "--memory: no memory of %s; write 1024 or 1GiB", text);
	return bytes;
}

void server_parse(int argc, char **argv, kv_server_options_t *options)
{
	struct options_result result;

	args.log_level = (int)log_get_level();
	options_parse_or_exit(&program, argc, argv, &result);
	log_set_level((enum log_level)args.log_level);
	*options = (kv_server_options_t){
		.listen = EMPTY_TO_NULL(args.listen),
		.address = EMPTY_TO_NULL(args.address),
		.port = args.port ? (int)args.port : -1,
		.socket_mode = args.socket,
		.device = EMPTY_TO_NULL(args.device),
		.any_user = args.any_user,
		.memory = parse_memory(args.memory),
		.huge_pages = args.huge,
		.prefault = args.prefault,
		.reject = args.on_full == 1,
		.zero_freed = args.zero_freed,
		.workers = (unsigned)args.workers,
		.max_clients = (uint32_t)args.max_clients,
		.window = (uint32_t)args.window,
		.eager_limit = (uint32_t)args.eager,
		.inline_limit = (uint32_t)args.inlined,
		.landing_size = args.landing,
		.key_file = EMPTY_TO_NULL(args.key_file),
		.read_key_file = EMPTY_TO_NULL(args.read_key_file),
	};
}
