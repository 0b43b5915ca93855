/*
 * Commands that are programs of their own: bench runs kv-bench, doctor runs kv-doctor, with the
 * options by which this program finds its server, then the words of the command. They lie beside
 * our own executable, or somewhere in PATH.
 *
 * From the command line the program takes our place. At the prompt it is a child, and Ctrl-C is its
 * business alone.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

#define ARGUMENTS_MAX (WORDS_MAX + 32)

struct arguments {
	const char *all[ARGUMENTS_MAX];
	int count;
	char address[300], port[16], timeout[32];
};

static void add(struct arguments *arguments, const char *word)
{
	if (arguments->count < ARGUMENTS_MAX - 1)
		arguments->all[arguments->count++] = word;
}

static void add_option(struct arguments *arguments, const char *name, const char *value)
{
	if (!value)
		return;
	add(arguments, name);
	add(arguments, value);
}

static void add_shared(struct arguments *arguments, const struct session *session)
{
	const struct client_config *config = session->config;

	add_option(arguments, "--key-file", config->options.key_file);
	if (config->timeout_given) {
		snprintf(arguments->timeout, sizeof(arguments->timeout), "%dms",
			 config->options.timeout_ms);
		add_option(arguments, "--timeout", arguments->timeout);
	}
	if (session->json)
		add(arguments, "--json");
}

/* ------------------------------------------------------------------------------------------
 * Running
 */

/* Returns only if that failed. */
static void execute(const char *program, char *const *arguments)
{
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *slash;

	if (length > 0) {
		path[length] = '\0';
		slash = strrchr(path, '/');
		if (slash && (size_t)(slash + 1 - path) + strlen(program) < sizeof(path)) {
			memcpy(slash + 1, program, strlen(program) + 1);
			execv(path, arguments);
		}
	}
	execvp(program, arguments);
}

static enum client_exit failed(const struct session *session, const char *program)
{
	if (errno == ENOENT)
		return show_error(
			session, CLIENT_FAILED,
			"%s is neither beside kv-client nor in PATH; install it, or build "
			"all with `make`",
			program);
	return show_error(session, CLIENT_FAILED, "%s: %s", program, strerror(errno));
}

static enum client_exit run_child(const struct session *session, const char *program,
				  char *const *arguments)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child < 0)
		return show_error(session, CLIENT_FAILED, "fork: %s", strerror(errno));
	if (child == 0) {
		execute(program, arguments);
		failed(session, program);
		fflush(stdout);
		_exit(CLIENT_FAILED);
	}
	sigaction(SIGINT, &ignore, &before);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	sigaction(SIGINT, &before, NULL);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? CLIENT_OK : CLIENT_FAILED;
}

static enum client_exit run_program(const struct session *session, struct arguments *arguments)
{
	const char *program = arguments->all[0];
	/* exec promises to change nothing. */
	char *const *words = (char *const *)(void *)arguments->all;

	arguments->all[arguments->count] = NULL;
	if (session->prompt)
		return run_child(session, program, words);
	fflush(stdout);
	execute(program, words);
	return failed(session, program);
}

/* ------------------------------------------------------------------------------------------
 * The two
 */

enum client_exit run_bench(struct session *session, const struct command_words *words)
{
	const struct client_config *config = session->config;
	const char *server = config->server;
	struct arguments arguments = {0};
	int at = 0;

	add(&arguments, "kv-bench");
	if (config->socket_mode && !(server && strstr(server, "://"))) {
		snprintf(arguments.address, sizeof(arguments.address), "verbs+socket://%s",
			 server ? server : "127.0.0.1");
		server = arguments.address;
	}
	add_option(&arguments, "--url", server);
	if (config->port_given) {
		snprintf(arguments.port, sizeof(arguments.port), "%d", config->port);
		add_option(&arguments, "--port", arguments.port);
	}
	add_option(&arguments, "--device", config->options.device);
	add_option(&arguments, "--ca-file", config->ca_file);
	if (config->insecure)
		add(&arguments, "--insecure");
	add_shared(&arguments, session);
	/* "bench 1000", and "bench --ops 1000". */
	if (words->count && words->words[0].text[0] >= '0' && words->words[0].text[0] <= '9')
		add_option(&arguments, "--operations", words->words[at++].text);
	for (; at < words->count; at++)
		add(&arguments, strcmp(words->words[at].text, "--ops") ? words->words[at].text
								       : "--operations");
	return run_program(session, &arguments);
}

/* Which way has to work, by the device that was asked for. NULL: any. */
static const char *wanted_path(const struct client_config *config)
{
	const char *device = config->options.device;

	if (config->socket_mode)
		return "verbs+socket";
	if (!device || strcmp(device, "shm") == 0 || strcmp(device, "tcp") == 0)
		return device;
	if (strncmp(device, "ofi", 3) == 0)
		return "ofi";
	return strstr(device, ",socket") ? "verbs+socket" : "verbs";
}

enum client_exit run_doctor(struct session *session, const struct command_words *words)
{
	const struct client_config *config = session->config;
	const char *host = config->server ? config->server : "127.0.0.1";
	struct arguments arguments = {0};

	if (config->is_grpc)
		return show_error(
			session, CLIENT_USAGE,
			"doctor looks at Remora's own protocol: kv-client -a HOST doctor");
	add(&arguments, "kv-doctor");
	if (config->server || config->port_given) {
		/* A port of its own, or a URL, is enough. */
		if (strchr(host, ':'))
			snprintf(arguments.address, sizeof(arguments.address), "%s", host);
		else
			snprintf(arguments.address, sizeof(arguments.address), "%s:%d", host,
				 config->port);
		add_option(&arguments, "--server", arguments.address);
	}
	add_option(&arguments, "--want", wanted_path(config));
	add_shared(&arguments, session);
	for (int at = 0; at < words->count; at++)
		add(&arguments, words->words[at].text);
	return run_program(session, &arguments);
}
