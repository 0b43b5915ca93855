/* The command line of kv-doctor. */
#include <remora/kv.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "doctor.h"

#define MILLISECOND UINT64_C(1000000)

const char *const path_names[] = {"auto", "shm", "tcp", "verbs", "verbs+socket", "ofi", NULL};

static struct {
	const char *server, *key_file, *root;
	uint64_t port, timeout_ns;
	int want, log_level;
	bool write, json;
} args = {
	.server = "",
	.key_file = "",
	.root = "",
	.port = KV_DEFAULT_PORT,
	.timeout_ns = 5000 * MILLISECOND,
};

static const struct option_spec specs[] = {
	OPTION_STRING("server", 's', &args.server,
		      "check this server too: a host, host:port, or a URL: shm:NAME, "
		      "tcp://HOST:PORT, verbs://HOST:PORT",
		      .metavar = "ADDRESS"),
	OPTION_UINT("port", 'p', &args.port, "the port of servers", .min = 1, .max = 65535),
	OPTION_STRING("key-file", 'k', &args.key_file,
		      "the key that the server asks for; REMORA_KEY_FILE is the default",
		      .metavar = "FILE"),
	OPTION_CHOICE("want", 'w', &args.want, path_names,
		      "the path that has to work; auto is the best that does"),
	OPTION_FLAG("write", 0, &args.write,
		    "with --server: also put, get and delete a key of our own"),
	OPTION_FLAG("json", 'j', &args.json, "print one JSON object a finding"),
	OPTION_DURATION("timeout", 'T', &args.timeout_ns, "of each connection and transfer",
			.min = MILLISECOND, .max = UINT64_C(3600000) * MILLISECOND),
	OPTION_STRING("sysroot", 0, &args.root,
		      "read /sys, /proc, /dev and so on below DIR, where they were copied from "
		      "another machine; nothing is tried then",
		      .metavar = "DIR"),
	OPTION_CHOICE("log-level", 'l', &args.log_level, log_level_names,
		      "what the library tells on stderr; REMORA_LOG is the default"),
};

static const struct options_program program = {
	.name = "kv-doctor",
	.description = "Checks whether this machine can use shm, tcp and verbs, and with --server "
		       "whether it reaches a kv-server; tells how to put right what is wrong.",
	.specs = specs,
	.spec_count = OPTIONS_COUNT(specs),
	.examples = "  kv-doctor                        this machine\n"
		    "  kv-doctor --want verbs           why is there no RDMA?\n"
		    "  kv-doctor --server 10.0.0.5      and the way to that server\n"
		    "exit codes: 0 the wanted path works, 1 it does not, 2 wrong usage\n",
};

void doctor_parse(int argc, char **argv, struct config *config)
{
	struct options_result result;

	args.log_level = (int)log_get_level();
	options_parse_or_exit(&program, argc, argv, &result);
	log_set_level((enum log_level)args.log_level);
	if (*args.server && *args.root)
		options_fail(&program, "--sysroot is about files, and --server about a server: "
				       "give one of them");
	if (args.write && !*args.server)
		options_fail(&program, "--write needs --server");
	*config = (struct config){
		.want = (enum path)args.want,
		.server = *args.server ? args.server : NULL,
		.key_file = *args.key_file ? args.key_file : NULL,
		.root = strcmp(args.root, "/") == 0 ? "" : args.root,
		.port = (int)args.port,
		.timeout_ms = (int)(args.timeout_ns / MILLISECOND),
		.write = args.write,
		.json = args.json,
	};
	if (*config->root && !file_exists(config->root, "/"))
		options_fail(&program, "--sysroot: there is no directory '%s'", config->root);
}
