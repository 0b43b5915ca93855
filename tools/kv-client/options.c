/*
 * The command line of kv-client.
 *
 * Options come first, then the command with all that follows it: a value or a number that begins
 * with a dash is none of our options. So the command is looked for here, by the table that the
 * parser uses too, and only what stands before it is handed to the parser.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "client.h"

#define MILLISECOND UINT64_C(1000000)

#define MEGABYTE (UINT64_C(1) << 20)

static struct {
	const char *address, *server_addr, *device, *key_file, *ca_file;
	uint64_t port, timeout_ns, buffer_mb;
	bool socket, mock, insecure, json, port_given, timeout_given;
	int log_level;
} args = {
	.address = "",
	.server_addr = "",
	.device = "",
	.key_file = "",
	.ca_file = "",
	.port = KV_DEFAULT_PORT,
	.timeout_ns = 5000 * MILLISECOND,
};

static const struct option_spec specs[] = {
	OPTION_STRING("address", 'a', &args.address,
		      "the server's host, or a URL: shm:NAME, tcp://HOST:PORT, verbs://HOST:PORT, "
		      "http://HOST:PORT for its gRPC service; the default is this host",
		      .metavar = "HOST"),
	OPTION_UINT("port", 'p', &args.port, "the server's port", .min = 1, .max = 65535,
		    .given = &args.port_given),
	OPTION_STRING("server-addr", 0, &args.server_addr, "the same as --address, with a port",
		      .metavar = "HOST:PORT"),
	OPTION_FLAG("socket", 'S', &args.socket,
		    "verbs: connect by exchanging queue pair numbers over TCP, instead of RDMA CM"),
	OPTION_STRING("device", 'd', &args.device,
		      "by this device: an adapter such as mlx5_0, or shm, or tcp",
		      .metavar = "NAME"),
	OPTION_STRING("key-file", 'k', &args.key_file,
		      "the key that the server asks for; REMORA_KEY_FILE is the default",
		      .metavar = "FILE"),
	OPTION_STRING("ca-file", 0, &args.ca_file,
		      "https: who signed its certificate; the default is whom the system trusts",
		      .metavar = "FILE"),
	OPTION_FLAG("insecure", 0, &args.insecure,
		    "https: do not check the server's certificate; http: send the key to other "
		    "hosts, though it can be read on its way"),
	OPTION_DURATION("timeout", 'T', &args.timeout_ns,
			"how long to wait without progress, and for a connection",
			.min = MILLISECOND, .max = UINT64_C(86400000) * MILLISECOND,
			.given = &args.timeout_given),
	OPTION_UINT("buffer-mb", 0, &args.buffer_mb,
		    "megabytes that large values come in by (default 4, by gRPC 16)", .max = 65536),
	OPTION_FLAG("mock", 0, &args.mock, "no RDMA hardware: by shared memory, as --device shm",
		    .takes_word = true),
	OPTION_FLAG("json", 'j', &args.json, "answers as JSON, one object a line"),
	OPTION_CHOICE("log-level", 'l', &args.log_level, log_level_names,
		      "what the library tells on stderr; REMORA_LOG is the default"),
};

static struct options_program program = {
	.name = "kv-client",
	.description =
		"Asks a kv-server. Without a command, or with `repl`, it reads commands from "
		"stdin, and on a terminal shows a prompt.",
	.specs = specs,
	.spec_count = OPTIONS_COUNT(specs),
	.arguments = "[COMMAND [WORD...]]",
	.max_arguments = OPTIONS_UNLIMITED,
};

/* Whether the value of this option is the next word. */
static bool takes_next(const char *text, const char *next)
{
	if (text[1] == '-') {
		for (size_t i = 0; i < program.spec_count; i++)
			if (strcmp(text + 2, specs[i].name) == 0)
				return option_takes(&specs[i], next);
		return false;
	}
	for (const char *letter = text + 1; *letter; letter++)
		for (size_t i = 0; i < program.spec_count; i++)
			if (specs[i].letter == *letter && specs[i].kind != OPTION_KIND_FLAG)
				return !letter[1];
	return false;
}

/* Where the command stands; argc: nowhere. */
static int find_command_word(int argc, char **argv)
{
	for (int at = 1; at < argc; at++) {
		if (argv[at][0] != '-' || !argv[at][1])
			return at;
		if (strcmp(argv[at], "--") == 0)
			return at + 1 < argc ? at + 1 : argc;
		if (takes_next(argv[at], at + 1 < argc ? argv[at + 1] : NULL))
			at++;
	}
	return argc;
}

/* The help of the commands comes out of their table. */
static void make_help(void)
{
	char *text = NULL;
	size_t length;
	FILE *file = open_memstream(&text, &length);

	if (!file)
		return;
	fputs("commands:\n", file);
	command_list(file, options_terminal_width());
	fputs("\nexamples:\n"
	      "  kv-client put greeting hello\n"
	      "  kv-client get greeting\n"
	      "  kv-client -a 10.0.0.5 put photo @photo.jpg --ttl 1h\n"
	      "  kv-client get photo --output photo.jpg\n"
	      "  kv-client --server-addr http://10.0.0.5:50051 get greeting   by gRPC\n"
	      "exit codes: 0 done, 1 not found or another version, 2 wrong usage, 3 failed\n",
	      file);
	fclose(file);
	program.examples = text; /* until the program ends */
}

/* The server's address, and what makes no sense about it. */
static const char *pick_address(void)
{
	const char *address = *args.server_addr ? args.server_addr : args.address;

	if (*args.server_addr && *args.address)
		options_fail(&program, "--address and --server-addr mean the same: give one");
	return *address ? address : NULL;
}

/* http:// and https:// are the gRPC service. */
static bool is_grpc(const char *server)
{
	if (!server || (strncmp(server, "http://", 7) != 0 && strncmp(server, "https://", 8) != 0))
		return false;
	if (args.socket)
		options_fail(&program, "--socket is of Remora's own protocol, not of gRPC");
	if (args.port_given)
		options_fail(&program, "--port: write it behind the host, %s:%u", server,
			     (unsigned)args.port);
	return true;
}

void client_parse(int argc, char **argv, struct client_config *config)
{
	struct options_result result;
	int command;

	command = find_command_word(argc, argv);
	make_help();
	args.log_level = (int)log_get_level();
	options_parse_or_exit(&program, command, argv, &result);
	log_set_level((enum log_level)args.log_level);
	if (args.mock && !*args.device)
		args.device = "shm";
	*config = (struct client_config){
		.mode = args.socket ? CONN_MODE_SOCKET : CONN_MODE_AUTO,
		.options.device = *args.device ? args.device : NULL,
		.options.timeout_ms = (int)(args.timeout_ns / MILLISECOND),
		.options.connect_timeout_ms = (int)(args.timeout_ns / MILLISECOND),
		.options.key_file = *args.key_file ? args.key_file : NULL,
		.options.buffer_size = (size_t)(args.buffer_mb * MEGABYTE),
		.server = pick_address(),
		.port = (int)args.port,
		.port_given = args.port_given,
		.timeout_given = args.timeout_given,
		.socket_mode = args.socket,
		.ca_file = *args.ca_file ? args.ca_file : NULL,
		.insecure = args.insecure,
		.json = args.json,
		.words = argv + command,
		.word_count = argc - command,
	};
	config->is_grpc = is_grpc(config->server);
}
