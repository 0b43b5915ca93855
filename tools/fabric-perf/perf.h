/*
 * fabric-perf: what its files share.
 *
 *	main.c		serve or run
 *	options.c	the command lines
 *	protocol.h	what client and server say to each other
 *	memory.c	the memory that operations work on, and the patterns in it
 *	serve.c		the server: it lends memory, echoes, counts
 *	spawn.c		a server of one's own, forked
 *	session.c	the client's side of the connection
 *	run.c		the client: one row for each op, size and depth
 *	latency.c	the loop for one operation at a time
 *	stream.c	the loop for many operations in flight
 *	verify.c	--check
 *	report.c	the table and the JSON rows
 *
 * One thread in each process. Failures travel as enum rmr_status with the message chain of
 * base/error.h, up to main.c, which turns them into an exit code.
 */
#ifndef FABRIC_PERF_PERF_H
#define FABRIC_PERF_PERF_H

#include <remora/fabric.h>

#include "base/histogram.h"

#define PERF_LIST_MAX  16
#define PERF_DEPTH_MAX 65536
#define PERF_SIZE_MAX  (UINT64_C(1) << 32)

enum perf_exit {
	PERF_EXIT_OK = 0,
	PERF_EXIT_FAILED = 1, /* an operation failed, or --check found wrong data */
	PERF_EXIT_USAGE = 2,
	PERF_EXIT_UNREACHABLE = 3, /* no server there, or lost on the way */
};

enum perf_op {
	PERF_SEND,
	PERF_READ,
	PERF_WRITE,
	PERF_WRITE_IMM,
	PERF_CAS,
	PERF_FADD,
	PERF_IDLE,
	PERF_OP_COUNT,
	PERF_ALL = PERF_OP_COUNT, /* every one but idle */
};

extern const char *const perf_op_names[]; /* with "all" at the end */

/* How a process waits for completions. */
enum perf_wait {
	PERF_WAIT_SPIN,	 /* rmr_poll in a loop */
	PERF_WAIT_ADAPT, /* rmr_wait: spins a little, then sleeps */
	PERF_WAIT_SLEEP, /* rmr_wait that never spins */
};

struct perf_config {
	const char *device;
	const char *address; /* NULL: run forks a server, serve picks an address */
	bool ops[PERF_OP_COUNT];
	bool all; /* then what a device cannot do is left out with a remark */
	uint64_t sizes[PERF_LIST_MAX];
	int size_count;
	uint32_t depths[PERF_LIST_MAX];
	int depth_count;
	uint32_t batch; /* 0: half of the depth */
	uint64_t duration_ns;
	uint64_t warmup_ns;
	uint64_t iterations; /* 0: as many as fit into the duration */
	bool use_inline;
	bool plain;
	bool huge;
	bool check;
	bool json;
	bool once;
	bool target_polls; /* the server polls during one-sided operations too */
	int wait;	   /* enum perf_wait */
	int timeout_ms;
	int cpu;	/* -1: not pinned */
	int server_cpu; /* of the forked server */
};

/* One measurement: a line of the table. */
struct perf_case {
	enum perf_op op;
	uint64_t size;
	uint32_t depth;
	uint32_t batch;
};

struct perf_row {
	struct perf_case test;
	uint64_t ops;
	double elapsed_ns;	  /* that the ops took */
	double mean_ns;		  /* of one operation, from post to completion */
	struct histogram latency; /* in ticks */
	double client_cpu;	  /* idle: share of a core, 1.0 is all of it */
	double server_cpu;
};

/* True for operations that the server's program takes part in. */
static inline bool perf_op_is_two_sided(enum perf_op op)
{
	return op == PERF_SEND || op == PERF_WRITE_IMM;
}

static inline bool perf_op_is_atomic(enum perf_op op)
{
	return op == PERF_CAS || op == PERF_FADD;
}

/* options.c. Both exit on a wrong command line. */
void perf_parse_serve(int argc, char **argv, struct perf_config *config);
void perf_parse_run(int argc, char **argv, struct perf_config *config);

/* serve.c. address_fd: where the address is written to for the parent, or -1. */
RMR_MUST_CHECK enum rmr_status perf_serve(const struct perf_config *config, int address_fd);

/* run.c */
RMR_MUST_CHECK enum rmr_status perf_run(const struct perf_config *config);

/* report.c */
void report_begin(const struct perf_config *config, const char *server);
void report_row(const struct perf_config *config, const struct perf_row *row);

/* main.c */
enum perf_exit perf_exit_of(enum rmr_status status);

/* Pins the calling process to a core; -1 does nothing. */
RMR_MUST_CHECK enum rmr_status perf_pin(int cpu);

#endif
