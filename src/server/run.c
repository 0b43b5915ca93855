/*
 * run_server(): a server with default options in the calling thread's program, until a signal ends
 * it. The signals are blocked and waited for, so that no handler runs anywhere.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

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

int run_server(void)
{
	kv_server_t *server = NULL;
	sigset_t signals, before;
	int result = 1;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &signals, &before);
	if (kv_server_create(NULL, &server) != KV_OK || kv_server_start(server) != KV_OK) {
		fprintf(stderr, "%s\n", kv_server_error());
	} else {
		serve(server, &signals);
		result = 0;
	}
	kv_server_destroy(server);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return result;
}
