/*
 * A server of one's own: see spawn.c.
 */
#ifndef FABRIC_PERF_SPAWN_H
#define FABRIC_PERF_SPAWN_H

#include <sys/types.h>

#include "perf.h"

struct spawned {
	pid_t pid; /* 0: there is none */
	char address[256];
};

/* Forks a process that serves one client on an address of its own, and learns the address. Call it
 * before anything of the fabric is opened. */
RMR_MUST_CHECK enum rmr_status spawn_server(const struct perf_config *config,
					    struct spawned *spawned);

/* Waits for the server to end by itself after its client has left; helps it after a while, or at
 * once when no client ever came. Returns its exit code, or -1 when it did not end well. */
int spawn_reap(struct spawned *spawned, bool had_client);

#endif
