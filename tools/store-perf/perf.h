/*
 * store-perf: what its files share.
 *
 *	main.c		runs the tests that were asked for
 *	options.c	the command line
 *	rig.c		a store in an arena, filled
 *	bare.c		the yardstick of get: a hash table that does the least
 *	get.c		single gets, gets by the batch and the bare table, in turn
 *	put.c		new keys and overwrites, on one thread and on several
 *	churn.c		overwrite, delete and put again, for long
 *	growth.c	the slowest put while the store grows, beside a loop that does nothing
 *	space.c		bytes for an item, beside Redis and memcached
 *	hit.c		hits of a skewed trace when memory is short, beside Redis and exact LRU
 *	lru.c		what hit.c needs, beside common/zipf.c
 *	common/keys.c	keys and values made from numbers, and the dice
 *	peer.c		Redis and memcached, by pipelined requests on a Unix socket
 *	report.c	lines for people, or JSON rows
 *
 * Everything runs on the main thread but the writers of put.c. Failures travel as enum rmr_status
 * with the message chain of base/error.h, up to main.c.
 */
#ifndef STORE_PERF_PERF_H
#define STORE_PERF_PERF_H

#include <remora/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PERF_LIST_MAX	8
#define PERF_ROUNDS_MAX 64
#define PERF_CPUS_MAX	64
#define PERF_BATCH_MAX	1024

enum perf_exit {
	PERF_EXIT_OK = 0,
	PERF_EXIT_FAILED = 1,
	PERF_EXIT_USAGE = 2,
};

struct perf_config {
	/* As given; 0 and an empty list stand for the test's own default. */
	uint64_t keys[PERF_LIST_MAX];
	int key_count;
	uint64_t operations;
	size_t memory;

	size_t key_size;
	size_t value_size;
	uint64_t duration_ns; /* of one measurement */
	int rounds;
	unsigned batch;		 /* of get's gets by the batch */
	unsigned threads;	 /* at most, of put */
	int cpus[PERF_CPUS_MAX]; /* thread i runs on cpus[i % cpu_count]; none: nobody is pinned */
	int cpu_count;
	double skew;		       /* of hit's trace */
	const char *redis, *memcached; /* sockets; NULL: not asked */
	bool huge;
	bool json;
};

/* ------------------------------------------------------------------------------------------
 * Rows, report.c
 */

enum figure_unit {
	FIGURE_COUNT,
	FIGURE_NS,
	FIGURE_RATE, /* a second */
	FIGURE_RATIO,
	FIGURE_BYTES,
	FIGURE_SHARE, /* shown as a percentage */
};

struct figure {
	const char *name;
	enum figure_unit unit;
	double value;
};

#define FIGURES_MAX 16

/* A row: who did what with how many keys, and the figures that came out. The samples are one figure
 * of each round, for who wants to compare rounds; the row's own figures are medians of them. */
struct row {
	const char *test;
	const char *subject; /* "store", "bare", "redis" ... */
	uint64_t keys;
	struct figure figures[FIGURES_MAX];
	int figure_count;
	double samples[PERF_ROUNDS_MAX];
	int sample_count;
};

void row_add(struct row *row, const char *name, enum figure_unit unit, double value);
void row_print(const struct perf_config *config, const struct row *row);

/* Of the samples; they stay as they are. */
double median_of(const double *samples, int count);
/* The median of the rounds' ratios a / b. */
double median_ratio(const double *a, const double *b, int count);

/* ------------------------------------------------------------------------------------------
 * The tests. Each prints its rows.
 */

typedef enum rmr_status (*perf_test_fn)(const struct perf_config *config);

RMR_MUST_CHECK enum rmr_status get_run(const struct perf_config *config);
RMR_MUST_CHECK enum rmr_status put_run(const struct perf_config *config);
RMR_MUST_CHECK enum rmr_status churn_run(const struct perf_config *config);
RMR_MUST_CHECK enum rmr_status growth_run(const struct perf_config *config);
RMR_MUST_CHECK enum rmr_status space_run(const struct perf_config *config);
RMR_MUST_CHECK enum rmr_status hit_run(const struct perf_config *config);

struct perf_test {
	const char *name;
	perf_test_fn run;
	const char *help;
};

extern const struct perf_test perf_tests[]; /* ended by a NULL name; main.c */

/* The first of --keys, or the test's own default. */
static inline uint64_t perf_keys(const struct perf_config *config, uint64_t otherwise)
{
	return config->key_count ? config->keys[0] : otherwise;
}

/* options.c. Exits on a wrong command line. The tests that were asked for come out in `picked`, the
 * same order as perf_tests. */
void perf_parse(int argc, char **argv, struct perf_config *config, bool *picked);

/* rig.c. Pins the calling thread, the number `index` of a test's threads. */
RMR_MUST_CHECK enum rmr_status perf_pin(const struct perf_config *config, unsigned index);

#endif
