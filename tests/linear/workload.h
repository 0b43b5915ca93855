/*
 * What one client process does: random operations on a few hot keys, by all calls that there are,
 * each recorded in a history. A value with a byte that is not its own fails the test at once.
 */
#ifndef TESTS_LINEAR_WORKLOAD_H
#define TESTS_LINEAR_WORKLOAD_H

#include <remora/kv.h>

#include "harness/test.h"
#include "history.h"

#define WORKLOAD_KEYS 8u

/* Bugs that the driver plants, to show that they are found. */
enum planted {
	PLANTED_NONE,
	PLANTED_STALE_GET,   /* now and then a get tells what an earlier one found */
	PLANTED_LOST_PUT,    /* now and then a put is not done */
	PLANTED_DOUBLE_INCR, /* now and then an incr is done twice, as by a careless retry */
	PLANTED_KINDS,
};

/* Figures of all processes of a run, in shared memory. */
struct workload_figures {
	_Atomic uint64_t operations;
	_Atomic uint64_t nothing_done; /* timeout, no connection, busy, no memory */
	_Atomic uint64_t no_memory;
	char first_failure[200]; /* of those: what it was */
	_Atomic uint64_t paths[KV_PATH_COUNT];
	_Atomic uint64_t stale_locations, torn_reads, reconnects;
};

struct workload {
	struct history *history;
	struct workload_figures *figures;
	const char *server; /* as kv_client_connect takes it */
	int port;
	const char *device;
	const char *fault_plan; /* without its seed; NULL: none */
	kv_get_mode_t get_mode;
	bool is_async;
	enum planted planted;
	uint64_t round;
	uint32_t process;
	uint64_t deadline_ns;
};

/* For test_spawn(): works until the deadline, or until its segment of the history is full. */
void workload_run(void *workload);

#endif
