/*
 * mesh-perf: how fast a mesh is.
 *
 *	main.c		the command line, processes, rows
 *	mesh.c		one row: a mesh, in which process 0 drives and 1 answers
 *
 * Process 0 measures; process 1 takes messages or answers them; others are only there. When 0 is
 * done it says so (rmr_mesh_terminate), and all leave.
 */
#ifndef MESH_PERF_H
#define MESH_PERF_H

#include <remora/mesh.h>
#include <stdint.h>

#include "base/histogram.h"

enum perf_op {
	PERF_SEND,     /* a stream of messages, one way */
	PERF_PINGPONG, /* one message there, one back */
	PERF_WRITE,
	PERF_READ,
};

extern const char *const perf_op_names[];

struct perf_options {
	const char *device;
	const char *hosts;
	int id, count;
	enum perf_op op;
	size_t size;
	uint32_t depth, batch;
	uint64_t seconds_ns, warmup_ns, timeout_ns;
};

/* Of process 0 only. */
struct perf_result {
	uint64_t ops, elapsed_ns;
	double per_doorbell;		/* works */
	struct histogram round_trip_ns; /* pingpong only */
};

/* Runs one row as one of its processes. */
RMR_MUST_CHECK enum rmr_status perf_mesh(const struct perf_options *options,
					 struct perf_result *result);

#endif
