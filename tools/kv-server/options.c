/*
 * The command line of kv-server, and its configuration file, which has the same names.
 *
 * Some flags have two names, such as --memory-mb and --worker-threads: other names for the same
 * variables, for those who know them from other caches. One asks for care: -m counts megabytes
 * when it is a bare number, as everywhere where a cache is started by hand, while all other sizes
 * in this project are bytes then. So it is taken as text, and read here.
 *
 * The command line is parsed to find the file, then the file, then the command line again: so it
 * wins, whatever the order.
 *
 * 0 is the default of most fields of kv_server_options_t, and --help should tell the number that
 * it stands for. Those numbers are written down in the help texts, beside server.h's own comments.
 */
#include <ctype.h>
#include <string.h>

#include "base/config.h"
#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "base/size.h"
#include "base/version.h"
#include "kv/protocol.h"
#include "server.h"

#define MEBIBYTE	 UINT64_C(1048576)
#define MEMORY_MAX	 (UINT64_C(1) << 46)
#define WORKERS_MAX	 1024
#define CLIENTS_MAX	 1000000
#define MESSAGE_MAX	 (UINT64_C(1) << 24)
#define LANDING_MAX	 (UINT64_C(1) << 40)
#define NODE_ID_MAX	 63
#define GRPC_MESSAGE_MAX (UINT64_C(1) << 30)
#define DURATION_MAX	 UINT64_C(86400000000000)
#define MILLISECOND	 UINT64_C(1000000)
#define EMPTY_TO_NULL(s) (*(s) ? (s) : NULL)

static const char *const on_full_names[] = {"evict", "reject", NULL};
static const char *const counters_by_names[] = {"adapter", "cpu", NULL};

static struct {
	const char *address, *memory, *device, *listen, *key_file, *read_key_file;
	const char *config, *node_id, *pid_file, *user;
	const char *grpc, *tls_cert, *tls_key, *tls_client_ca;
	uint64_t port, table, workers, max_clients, clients_per_peer, window, eager, inlined,
		landing, domains;
	bool huge, socket, mock, any_user, zero_freed, prefault, check_config;
	uint64_t grpc_connections, grpc_streams, grpc_message, grpc_headers, grpc_buffered;
	uint64_t grpc_keepalive, grpc_stall, grpc_expiry, grpc_inline;
	uint64_t data_port;
	bool grpc_no_push, grpc_insecure;
	int on_full, counters_by, log_level;
} args = {
	.address = "",
	.memory = "256",
	.device = "",
	.listen = "",
	.key_file = "",
	.read_key_file = "",
	.config = "",
	.node_id = "",
	.pid_file = "",
	.user = "",
	.grpc = "",
	.tls_cert = "",
	.tls_key = "",
	.tls_client_ca = "",
	.port = KV_DEFAULT_PORT,
};

/* Bytes; a bare number counts megabytes. False, and a message is set. */
static bool parse_memory(const char *text, uint64_t *bytes)
{
	if (size_parse(text, bytes) != RMR_OK)
		return false;
	if (text[strspn(text, "0123456789")] == 0)
		*bytes = *bytes > MEMORY_MAX / MEBIBYTE ? MEMORY_MAX + 1 : *bytes * MEBIBYTE;
	if (*bytes && *bytes <= MEMORY_MAX)
		return true;
	(void)!error_set(RMR_INVALID, "no memory of %s; write 1024 or 1GiB", text);
	return false;
}

static const char *memory_fault(const char *text)
{
	uint64_t bytes;

	return parse_memory(text, &bytes) ? NULL : error_chain();
}

static const char *node_id_fault(const char *text)
{
	if (strlen(text) > NODE_ID_MAX)
		return "a name has at most 63 letters";
	for (; *text; text++)
		if (!isgraph((unsigned char)*text))
			return "a name has no blanks and no control characters";
	return NULL;
}

static const struct option_spec specs[] = {
	OPTION_STRING("config", 'c', &args.config,
		      "read options from this file, as lines 'name = value' with the long names; "
		      "what the command line says counts more",
		      .metavar = "FILE"),
	OPTION_FLAG("check-config", 0, &args.check_config,
		    "check options, key files and addresses, print what would be in effect, and "
		    "end: with 0, or with 2 if something is wrong"),
	OPTION_STRING("address", 'a', &args.address,
		      "listen at this host or IP address; the default is every one with a key "
		      "file or a named adapter, else this host alone",
		      .metavar = "HOST"),
	OPTION_UINT("port", 'p', &args.port, "listen at this port; 0 picks a free one",
		    .max = 65535),
	OPTION_STRING("memory", 'm', &args.memory,
		      "memory of the store, its index included: a number of megabytes, or 1GiB",
		      .metavar = "SIZE", .fault = memory_fault),
	OPTION_STRING("memory-mb", 0, &args.memory, "the same as --memory", .metavar = "SIZE",
		      .fault = memory_fault),
	OPTION_FLAG("hugepages", 'H', &args.huge, "huge pages, or ordinary ones with a warning"),
	OPTION_FLAG("socket", 'S', &args.socket,
		    "verbs: connect by exchanging queue pair numbers over TCP, instead of RDMA CM"),
	OPTION_STRING("device", 'd', &args.device, "verbs: this adapter alone, such as mlx5_0",
		      .metavar = "NAME"),
	OPTION_FLAG("mock", 0, &args.mock,
		    "no RDMA hardware is wanted: listen by shared memory and TCP alone",
		    .takes_word = true),
	OPTION_UINT("num-domains", 0, &args.domains,
		    "verbs: use so many adapters, each a path of its own, and do not start with "
		    "fewer (default all that work)"),
	OPTION_UINT("table", 't', &args.table,
		    "how many keys to expect; nothing follows from it, for the index grows by "
		    "itself, without a pause"),
	OPTION_UINT("workers", 'w', &args.workers,
		    "threads that serve clients (default half the cores, at least 1)",
		    .max = WORKERS_MAX),
	OPTION_UINT("worker-threads", 0, &args.workers,
		    "the same as --workers (default half the cores)", .max = WORKERS_MAX),
	OPTION_STRING("listen", 'L', &args.listen,
		      "the paths to listen by, such as shm,tcp or shm:NAME,tcp://HOST:PORT or "
		      "verbs:mlx5_0; of these all must work. The default is all that are here",
		      .metavar = "LIST"),
	OPTION_STRING("listen-addr", 0, &args.grpc,
		      "serve gRPC here, too; without a host this machine alone is served, without "
		      "a port 50051 is used; not served unless asked for",
		      .metavar = "[HOST:]PORT"),
	OPTION_STRING("tls-cert", 0, &args.tls_cert,
		      "gRPC by TLS: the certificate, and its chain, as PEM", .metavar = "FILE"),
	OPTION_STRING("tls-key", 0, &args.tls_key, "and its key, as PEM", .metavar = "FILE"),
	OPTION_STRING("tls-client-ca", 0, &args.tls_client_ca,
		      "and clients need a certificate that one of these has signed",
		      .metavar = "FILE"),
	OPTION_UINT("grpc-max-connections", 0, &args.grpc_connections,
		    "gRPC: more are turned away (default 1024)", .max = CLIENTS_MAX),
	OPTION_UINT("grpc-max-streams", 0, &args.grpc_streams,
		    "gRPC: calls under way of one connection (default 128)", .max = 65536),
	OPTION_SIZE("grpc-max-message", 0, &args.grpc_message,
		    "gRPC: bytes of one message (default 4MiB)", .max = GRPC_MESSAGE_MAX),
	OPTION_SIZE("grpc-max-headers", 0, &args.grpc_headers,
		    "gRPC: bytes of a call's headers (default 64KiB)", .max = 131072),
	OPTION_SIZE("grpc-max-buffered", 0, &args.grpc_buffered,
		    "gRPC: bytes of all messages that are incomplete or not taken (default 64MiB)",
		    .max = LANDING_MAX),
	OPTION_DURATION("grpc-keepalive", 0, &args.grpc_keepalive,
			"gRPC: who is silent for so long is asked (default 60s)",
			.max = DURATION_MAX),
	OPTION_DURATION("grpc-stall", 0, &args.grpc_stall,
			"gRPC: who takes nothing for so long is cut off (default 20s)",
			.max = DURATION_MAX),
	OPTION_UINT("data-port", 0, &args.data_port,
		    "gRPC: the data plane listens at this port, of the host of --listen-addr; "
		    "further devices at the next ones (default free ones)",
		    .max = 65535),
	OPTION_FLAG("grpc-insecure", 0, &args.grpc_insecure,
		    "gRPC: take keys from other hosts without TLS, where they can be read on "
		    "their way"),
	OPTION_FLAG("grpc-no-push", 0, &args.grpc_no_push,
		    "gRPC: values inside of messages alone, no data plane"),
	OPTION_SIZE("grpc-inline-limit", 0, &args.grpc_inline,
		    "gRPC: clients are told to push longer values (default 64KiB)",
		    .max = GRPC_MESSAGE_MAX),
	OPTION_DURATION("grpc-client-expiry", 0, &args.grpc_expiry,
			"gRPC: a registered client not heard of is forgotten (default 30s)",
			.max = DURATION_MAX),
	OPTION_CHOICE("on-full", 0, &args.on_full, on_full_names,
		      "when memory is full: drop what was not used lately, or refuse to put"),
	OPTION_CHOICE(
		"counters-by", 0, &args.counters_by, counters_by_names,
		"who adds to counters without asking: clients of the adapter, where one needs "
		"that, or those by shm and tcp (cpu)"),
	OPTION_STRING("key-file", 'k', &args.key_file,
		      "clients must know a key of this file: one a line", .metavar = "FILE"),
	OPTION_STRING("read-key-file", 0, &args.read_key_file,
		      "clients that know this other key may read, and change nothing",
		      .metavar = "FILE"),
	OPTION_FLAG("any-user", 0, &args.any_user, "shm: clients of other users of this host, too"),
	OPTION_FLAG("zero-freed", 0, &args.zero_freed, "overwrite memory when it is freed"),
	OPTION_FLAG("prefault", 0, &args.prefault, "touch all memory now, not at its first use"),
	OPTION_UINT("max-clients-per-peer", 0, &args.clients_per_peer,
		    "of one address, or one user of this host (default any number)",
		    .max = CLIENTS_MAX),
	OPTION_UINT("max-clients", 0, &args.max_clients, "more are refused (default 4096)",
		    .max = CLIENTS_MAX),
	OPTION_UINT("window", 0, &args.window,
		    "requests of one client that may be under way (default 64)",
		    .max = KV_MAX_WINDOW),
	OPTION_SIZE("eager-limit", 0, &args.eager,
		    "key and value of a request in one message (default 8KiB)", .max = MESSAGE_MAX),
	OPTION_SIZE("inline-limit", 0, &args.inlined, "of a value in a reply (default 8KiB)",
		    .max = MESSAGE_MAX),
	OPTION_SIZE("landing-size", 0, &args.landing,
		    "buffer for one client's longer puts (default 4MiB)", .max = LANDING_MAX),
	OPTION_STRING("node-id", 0, &args.node_id,
		      "the name of this server in its log, its statistics and its first screen",
		      .metavar = "NAME", .fault = node_id_fault),
	OPTION_STRING("pid-file", 0, &args.pid_file,
		      "write the process's number here while serving; refused if another server "
		      "that lives has the file",
		      .metavar = "FILE"),
	OPTION_STRING("user", 'u', &args.user,
		      "become this user when memory, keys and ports are had; for root",
		      .metavar = "NAME[:GROUP]"),
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
		    "  SIGHUP            read the key files anew\n"
		    "examples:\n"
		    "  kv-server -m 1024                     a gigabyte, port 12345\n"
		    "  kv-server -a 10.0.0.5 -m 64GiB -H -w 8\n"
		    "  kv-server --listen shm,tcp://127.0.0.1 --key-file /etc/remora.key\n"
		    "  kv-server --listen-addr 50051         gRPC for this machine\n"
		    "  kv-server --config /etc/remora/kv-server.conf --check-config\n"
		    "exit codes: 0 ended by a signal, 1 failed, 2 wrong usage or configuration\n",
};

/* Not in a file: they are about files. */
static const char *const command_line_only[] = {"config", "check-config", NULL};
/* Nor shown: other names. */
static const char *const not_shown[] = {"config", "check-config", "memory-mb", "worker-threads",
					NULL};

/* What the table cannot express. */
static void check_settings(void)
{
	if (args.mock && (args.socket || *args.device || args.domains || *args.listen))
		options_fail(&program, "--mock: no adapter is used then: leave out --socket, "
				       "--device, --num-domains and --listen");
	if (!*args.grpc && (*args.tls_cert || *args.tls_key || *args.tls_client_ca))
		options_fail(&program, "--tls-cert and such are for gRPC: give --listen-addr, too");
	if (args.domains > UINT16_MAX)
		options_fail(&program, "--num-domains: no machine has %llu adapters",
			     (unsigned long long)args.domains);
}

static void read_config(void)
{
	static char *text; /* the options' strings point into it */
	char message[OPTIONS_MESSAGE_SIZE];

	if (*args.config && !config_read(&program, command_line_only, args.config, &text, message))
		options_fail(&program, "%s", message);
}

static void fill_in(kv_server_options_t *options)
{
	uint64_t memory = 0;

	/* It was looked at when it was read. */
	if (!parse_memory(args.memory, &memory))
		options_fail(&program, "--memory: %s", error_chain());
	*options = (kv_server_options_t){
		.listen = args.mock ? "shm,tcp" : EMPTY_TO_NULL(args.listen),
		.address = EMPTY_TO_NULL(args.address),
		.port = args.port ? (int)args.port : -1,
		.socket_mode = args.socket,
		.device = EMPTY_TO_NULL(args.device),
		.adapters = (unsigned)args.domains,
		.any_user = args.any_user,
		.memory = memory,
		.huge_pages = args.huge,
		.prefault = args.prefault,
		.reject = args.on_full == 1,
		.zero_freed = args.zero_freed,
		.counters_by_cpu = args.counters_by == 1,
		.workers = (unsigned)args.workers,
		.max_clients = (uint32_t)args.max_clients,
		.max_clients_per_peer = (uint32_t)args.clients_per_peer,
		.window = (uint32_t)args.window,
		.eager_limit = (uint32_t)args.eager,
		.inline_limit = (uint32_t)args.inlined,
		.landing_size = args.landing,
		.key_file = EMPTY_TO_NULL(args.key_file),
		.read_key_file = EMPTY_TO_NULL(args.read_key_file),
		.node_id = EMPTY_TO_NULL(args.node_id),
	};
}

/* 0: nothing, or as good as that, was given. */
static int milliseconds(uint64_t ns)
{
	return (int)((ns + MILLISECOND - 1) / MILLISECOND);
}

static void fill_in_control(kv_control_server_options_t *options)
{
	*options = (kv_control_server_options_t){
		.address = EMPTY_TO_NULL(args.grpc),
		.tls_cert = EMPTY_TO_NULL(args.tls_cert),
		.tls_key = EMPTY_TO_NULL(args.tls_key),
		.tls_client_ca = EMPTY_TO_NULL(args.tls_client_ca),
		.max_connections = (uint32_t)args.grpc_connections,
		.max_streams = (uint32_t)args.grpc_streams,
		.max_message = (uint32_t)args.grpc_message,
		.max_headers = (uint32_t)args.grpc_headers,
		.max_buffered = args.grpc_buffered,
		.keepalive_ms = milliseconds(args.grpc_keepalive),
		.stall_ms = milliseconds(args.grpc_stall),
		.no_data_plane = args.grpc_no_push,
		.data_port = (uint16_t)args.data_port,
		.insecure_tokens = args.grpc_insecure,
		.inline_limit = args.grpc_inline,
		.client_expiry_ms = milliseconds(args.grpc_expiry),
	};
}

void server_parse(int argc, char **argv, struct server_settings *settings)
{
	struct options_result result;

	args.log_level = (int)log_get_level();
	options_parse_or_exit(&program, argc, argv, &result);
	read_config();
	options_parse_or_exit(&program, argc, argv, &result);
	check_settings();
	log_set_level((enum log_level)args.log_level);
	*settings = (struct server_settings){
		.node_id = EMPTY_TO_NULL(args.node_id),
		.pid_file = EMPTY_TO_NULL(args.pid_file),
		.user = EMPTY_TO_NULL(args.user),
		.check_config = args.check_config,
	};
	if (settings->node_id)
		log_set_name(settings->node_id);
	fill_in(&settings->server);
	fill_in_control(&settings->control);
}

/* Writes the settings, with their defaults, back to where the table finds them. */
void server_print_settings(const struct server_settings *settings)
{
	static char memory[SIZE_TEXT_LENGTH];
	kv_server_options_t server = settings->server;
	kv_control_server_options_t control = settings->control;

	kv_server_defaults(&server);
	kv_control_server_defaults(&control);
	args.memory = size_format(server.memory, memory);
	args.workers = server.workers;
	args.max_clients = server.max_clients;
	args.window = server.window;
	args.eager = server.eager_limit;
	args.inlined = server.inline_limit;
	args.landing = server.landing_size;
	args.grpc_connections = control.max_connections;
	args.grpc_streams = control.max_streams;
	args.grpc_message = control.max_message;
	args.grpc_headers = control.max_headers;
	args.grpc_buffered = control.max_buffered;
	args.grpc_keepalive = (uint64_t)control.keepalive_ms * MILLISECOND;
	args.grpc_stall = (uint64_t)control.stall_ms * MILLISECOND;
	args.grpc_inline = control.inline_limit;
	args.grpc_expiry = (uint64_t)control.client_expiry_ms * MILLISECOND;
	printf("# kv-server %s: all is well. In force would be:\n", REMORA_VERSION);
	config_write(&program, not_shown, stdout);
}
