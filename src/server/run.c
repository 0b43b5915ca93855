/*
 * run_server(): a server with hardly an option in the calling thread's program, until a signal ends
 * it. The signals are blocked and waited for, so that no handler runs anywhere.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/internal.h"

static void print_stats(struct kv_server *server)
{
	char *text;

	if (kv_server_stats(server, &text) != KV_OK) {
		fprintf(stderr, "%s\n", kv_server_error());
		return;
	}
	fputs(text, stderr);
	free(text);
}

static void serve(struct kv_server *server, const sigset_t *signals)
{
	int signal;

	fputs(kv_server_paths(server), stderr);
	while (sigwait(signals, &signal) == 0 && signal == SIGUSR1)
		print_stats(server);
	kv_server_stop(server);
}

/* Values of 1 GiB are welcome, and an old one stays until the new one is there. Memory that is
 * not used is not taken from the machine. */
static size_t choose_memory(void)
{
	const size_t wanted = (size_t)2304 << 20;
	long pages = sysconf(_SC_PHYS_PAGES), page_size = sysconf(_SC_PAGESIZE);
	size_t half = pages > 0 && page_size > 0 ? (size_t)pages / 2 * (size_t)page_size : 0;

	if (half >= wanted)
		return wanted;
	return half > ((size_t)256 << 20) ? half : 0; /* 0: the default */
}

int run_server(void)
{
	const char *key_file = getenv("REMORA_KEY_FILE");
	const kv_server_options_t options = {.memory = choose_memory(),
					     .key_file = key_file && *key_file ? key_file : NULL};
	kv_server_t *server = NULL;
	sigset_t signals, before;
	int result = 1;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &signals, &before);
	if (kv_server_create(&options, &server) != KV_OK || kv_server_start(server) != KV_OK) {
		fprintf(stderr, "%s\n", kv_server_error());
	} else {
		serve(server, &signals);
		result = 0;
	}
	kv_server_destroy(server);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return result;
}
