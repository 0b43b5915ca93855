/*
 * rdma-perf: what the easy library adds to the bare fabric, measured side by side.
 *
 *	main.c		command line, the table of tests, rounds
 *	pair.c		two processes for one measurement
 *	easy.c		<remora/rdma.h>: round trips and streams, in callbacks and from a thread
 *	bare.c		the same on <remora/fabric.h>, as bare as it can be written
 *	report.c	the table and the JSON rows
 *
 * Every measurement is made by two processes of its own, forked for it, each bound to its core; so
 * nothing is left over from the one before. Rounds alternate: ours first in one, the bare fabric
 * first in the next. Figures are medians over the rounds, a ratio is the median of the rounds' own.
 */
#ifndef RDMA_PERF_PERF_H
#define RDMA_PERF_PERF_H

#include <remora/fabric.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PERF_ROUNDS_MAX 99

struct perf_config {
	const char *device;
	const char *host; /* where the server listens; NULL: this host's own */
	double seconds;	  /* of one measurement */
	unsigned rounds;
	int cpus[2]; /* of client and server; -1: not bound */
	bool json;
};

/* One measurement. The client's function returns its figure; the server's serves until it is
 * killed, and calls pair_ready with its port, or name, once it can be called. */
struct perf_side {
	const struct perf_config *config;
	size_t size;
	int ready_fd;
	char address[128]; /* what the server told */
};
typedef void perf_server(struct perf_side *side);
typedef double perf_client(struct perf_side *side);

struct perf_way {
	perf_server *serve;
	perf_client *run;
};

enum perf_unit { PERF_NS, PERF_RATE, PERF_BYTES };

/* A row: ours beside the bare fabric's. */
struct perf_test {
	const char *name, *text;
	size_t size;
	enum perf_unit unit;
	struct perf_way ours, bare;
	double limit; /* of the ratio: at most for PERF_NS, else at least; 0: none */
	double least; /* of ours, on shm; 0: none */
};

/* pair.c */
double pair_measure(const struct perf_config *config, const struct perf_way *way, size_t size);
void pair_ready(struct perf_side *side, const char *address);

/* easy.c */
void easy_serve(struct perf_side *side);
double easy_round_trip(struct perf_side *side);
double easy_stream(struct perf_side *side);
double easy_stream_thread(struct perf_side *side);
double easy_bandwidth(struct perf_side *side);

/* bare.c */
void bare_serve(struct perf_side *side);
double bare_round_trip(struct perf_side *side);
void bare_serve_send(struct perf_side *side);
double bare_round_trip_send(struct perf_side *side);
double bare_stream(struct perf_side *side);
double bare_bandwidth(struct perf_side *side);

/* report.c */
void report_begin(const struct perf_config *config);
void report_row(const struct perf_config *config, const struct perf_test *test, const double *ours,
		const double *bare);

#endif
