/*
 * kv-server: the server of server.h as a program.
 *
 *	kv-server [-a HOST] [-p PORT] [-m MEGABYTES] ...
 *
 * The main thread starts the server, tells where it listens, and then waits for signals; all
 * serving is done by threads of the library. The signals are blocked before any of those threads
 * begins, so that sigwait() here is the only one to see them, and no handler is needed.
 *
 * What is printed at the start goes to stdout: programs that start a server read the port from
 * there, and "ready" is the last line of it. Statistics go to stderr, as the log does.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/size.h"
#include "base/version.h"
#include "options.h"

enum { EXIT_FAILED = 1 };

static int failed(void)
{
	fprintf(stderr, "kv-server: %s\n", kv_server_error());
	return EXIT_FAILED;
}

static void print_start(kv_server_t *server, const kv_server_options_t *options)
{
	char size[SIZE_TEXT_LENGTH];

	printf("kv-server (Remora) %s\n", REMORA_VERSION);
	printf("memory: %s, %s pages, when full: %s\n", size_format(options->memory, size),
	       options->huge_pages ? "huge" : "ordinary", options->reject ? "reject" : "evict");
	printf("access: %s\n", options->key_file || options->read_key_file
				       ? "with the shared key"
				       : "everybody who can reach a path below");
	printf("%s", kv_server_paths(server));
	if (kv_server_port(server))
		printf("port: %d\n", kv_server_port(server));
	printf("ready\n");
	fflush(stdout);
}

static void print_statistics(kv_server_t *server)
{
	char *text;

	if (kv_server_stats(server, &text) != KV_OK) {
		failed();
		return;
	}
	fprintf(stderr, "%s", text);
	free(text);
}

/* Every client needs some descriptors: as many as are permitted. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* The signals that are ours. Whoever reads our output may go away: that ends nothing. */
static void take_signals(sigset_t *ours)
{
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(ours);
	sigaddset(ours, SIGTERM);
	sigaddset(ours, SIGINT);
	sigaddset(ours, SIGUSR1);
	sigprocmask(SIG_BLOCK, ours, NULL);
}

/* Returns the signal that asked for the end. */
static int wait_for_end(kv_server_t *server, const sigset_t *ours)
{
	for (;;) {
		int number;

		if (sigwait(ours, &number))
			continue;
		if (number != SIGUSR1)
			return number;
		print_statistics(server);
	}
}

int main(int argc, char **argv)
{
	kv_server_options_t options;
	kv_server_t *server;
	sigset_t ours;
	int number;

	server_parse(argc, argv, &options);
	raise_descriptor_limit();
	take_signals(&ours);
	if (kv_server_create(&options, &server) != KV_OK)
		return failed();
	if (kv_server_start(server) != KV_OK) {
		failed();
		kv_server_destroy(server);
		return EXIT_FAILED;
	}
	print_start(server, &options);
	number = wait_for_end(server, &ours);
	printf("%s: stopping\n", strsignal(number));
	fflush(stdout);
	kv_server_stop(server);
	kv_server_destroy(server);
	return 0;
}
