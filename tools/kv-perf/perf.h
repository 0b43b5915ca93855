/*
 * kv-perf: what its files share.
 *
 *	main.c		forks the clients, has them measure by turns, adds up what they answer
 *	options.c	the command line
 *	worker.c	one client: connects, fills the server, takes orders from main.c
 *	loops.c		what is measured: a slice of operations of each test
 *	pipeline.c	the same for operations that are submitted and polled
 *	report.c	lines for people, or JSON rows
 *	store-perf/keys.c	keys and values made from numbers
 *
 * A client is a process of its own, as it is in real life. Processes talk by pipes: an order goes
 * down, an answer comes up, and whoever finds a pipe at its end knows that the other is gone.
 */
#ifndef KV_PERF_PERF_H
#define KV_PERF_PERF_H

#include <remora/kv.h>
#include <remora/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../store-perf/keys.h"
#include "base/histogram.h"

#define PERF_ROUNDS_MAX	 64
#define PERF_CLIENTS_MAX 1024
#define PERF_CPUS_MAX	 64
#define PERF_BATCH_MAX	 BLOCK_KEYS
#define PERF_WINDOW_MAX	 1024
#define TRANSPORT_MAX	 160

enum perf_exit {
	PERF_EXIT_OK = 0,
	PERF_EXIT_FAILED = 1,
	PERF_EXIT_USAGE = 2,
};

enum test {
	TEST_GET,
	TEST_PUT,
	TEST_GET_MANY,
	TEST_PUT_MANY,
	TEST_ASYNC_GET,
	TEST_ASYNC_PUT,
	TEST_VIEW,
	TEST_INCR,
	TEST_PING,
	TEST_IDLE,
	TEST_COUNT,
};

extern const char *const test_names[]; /* ended by NULL; options.c */

struct perf_config {
	const char *url;
	int port;
	kv_client_options_t options;
	bool tests[TEST_COUNT];
	uint64_t keys;
	size_t key_size;
	size_t value_size;
	uint64_t duration_ns; /* of one measurement */
	int rounds;
	unsigned batch;	 /* keys of get-many and put-many */
	unsigned window; /* operations under way of async-get and async-put */
	unsigned clients;
	int cpus[PERF_CPUS_MAX]; /* client i runs on cpus[i % cpu_count]; none: nobody is pinned */
	int cpu_count;
	bool cached; /* every place is known before anything is measured */
	bool fill;
	bool json;
};

/* options.c. Exits on a wrong command line. */
void perf_parse(int argc, char **argv, struct perf_config *config);

/* ------------------------------------------------------------------------------------------
 * Orders and answers between main.c and worker.c
 */

enum order_kind {
	ORDER_FILL = 1,
	ORDER_WARM, /* get every key, so that its place is known */
	ORDER_MEASURE,
	ORDER_END,
};

struct order {
	enum order_kind kind;
	enum test test;
	uint64_t duration_ns;
};

/* Of one measurement by one client. */
struct answer {
	enum rmr_status status; /* not RMR_OK: only the message counts */
	char message[512];
	char transport[TRANSPORT_MAX];
	uint64_t operations;
	uint64_t time_ns;	   /* that they took, without the drawing of keys */
	kv_client_totals_t totals; /* what this measurement added */
	struct histogram latency;  /* of some of the operations, nanoseconds */
};

/* worker.c. Serves orders from one pipe by answers into the other, until ORDER_END or the end of
 * the pipe. index: which client it is. Returns the exit code. */
int worker_run(const struct perf_config *config, unsigned index, int orders, int answers);

/* Whole structs through a pipe. False: the other end is gone. */
bool pipe_read(int fd, void *to, size_t length);
bool pipe_write(int fd, const void *from, size_t length);

/* ------------------------------------------------------------------------------------------
 * The measured loops
 */

#define SAMPLE_EVERY 8u /* operation whose own time is taken */

/* What a client works with. */
struct bench {
	const struct perf_config *config;
	kv_client_t *client;
	struct dice dice;
	struct block block; /* keys drawn; the slices of a block use them one after the other */
	size_t next;	    /* of the block's keys; BLOCK_KEYS: draw again */
	uint8_t *value;	    /* to put */
	uint8_t *room;	    /* where gets land: `room_count` values, one for each of a slice */
	size_t room_count;
	struct histogram latency; /* nanoseconds */
};

static inline uint8_t *bench_room(const struct bench *bench, size_t i)
{
	return bench->room + i % bench->room_count * bench->config->value_size;
}

/* Starts the message of a failed call on a key. */
enum rmr_status bench_failed(const struct bench *bench, int status, const char *what,
			     uint64_t number);
/* Whether what was got is the value of this number: its length, and all of its bytes. */
RMR_MUST_CHECK enum rmr_status bench_check(const struct bench *bench, const uint8_t *value,
					   size_t length, uint64_t number);

/* Runs `count` operations on the block's keys from `first` on. */
typedef enum rmr_status (*slice_fn)(struct bench *bench, size_t first, size_t count);

/* loops.c. NULL: the test is no loop. */
slice_fn slice_of(enum test test);
/* Operations between two looks at the clock. */
size_t slice_count(const struct perf_config *config, enum test test);
/* Measures a test for so long. */
RMR_MUST_CHECK enum rmr_status loop_run(struct bench *bench, enum test test, uint64_t duration_ns,
					struct answer *answer);

/* pipeline.c */
enum rmr_status slice_async_get(struct bench *bench, size_t first, size_t count);
enum rmr_status slice_async_put(struct bench *bench, size_t first, size_t count);

/* ------------------------------------------------------------------------------------------
 * Rows, report.c
 */

/* A test, all rounds and clients together. */
struct row {
	enum test test;
	const char *transport;
	double samples[PERF_ROUNDS_MAX]; /* operations a second of each round, of all clients */
	int sample_count;
	struct histogram latency; /* nanoseconds */
	kv_client_totals_t totals;
};

void row_print(const struct perf_config *config, const struct row *row);

#endif
