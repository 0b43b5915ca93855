/*
 * kv-bench: what its files share.
 *
 *	main.c		the order of things: servers, clients, measuring, printing
 *	options.c	the command line
 *	plan.c		workloads and mixes: what the passes of a run are
 *	spawn.c		servers that it starts itself: ours, Redis, memcached
 *	crew.c		forks the clients, gives them orders, shows how far they are
 *	worker.c	one client: a process with its threads, takes orders from crew.c
 *	loops.c		single operations in tight loops: a slice of each loop
 *	pipeline.c	the same for operations that are submitted and polled
 *	drive.c		a mix of operations, one after the other
 *	drive_window.c	the same with a window of them under way
 *	pace.c		when an operation is due; waiting for it
 *	choose.c	which key is next: uniform, Zipf, latest, in order
 *	store.h		what a mix is driven against: store_kv.c, store_grpc.c, and the modules
 *			store_redis.c and store_memcached.c, which store.c loads
 *	clean.c		removes what was written to a server that is not its own
 *	rows.c		adds up what the clients counted
 *	report.c	JSON, CSV, and the words around the table
 *	table.c		the table for people, also on a narrow terminal
 *	picture.c	the histogram drawn in the terminal
 *	plot.c		the same for gnuplot
 *	common/keys.c, common/zipf.c	keys and values made from numbers; skewed ranks
 *
 * Two ways to measure. An *operation* (get, put-many, async-get ...) is measured in a tight loop:
 * keys are drawn beforehand and every eighth latency is taken, so that nothing but the call is
 * seen; its figures are medians over rounds. A *mix* (the workloads a to f of YCSB and the like)
 * draws each operation by lot, takes every latency, may keep to a rate, and can be driven against
 * Redis, memcached and the gRPC service, too.
 *
 * A client is a process of its own, as it is in real life, with one or more threads that have a
 * connection each. Orders go down by a pipe and a short answer comes up; whoever finds a pipe at
 * its end knows that the other is gone. What is counted lies in memory that all processes share,
 * one slot for each thread, so that the parent can show how far they are.
 */
#ifndef KV_BENCH_BENCH_H
#define KV_BENCH_BENCH_H

#include <remora/kv.h>
#include <remora/status.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/histogram.h"
#include "common/keys.h"

#define BENCH_ROUNDS_MAX  64
#define BENCH_CLIENTS_MAX 1024
#define BENCH_THREADS_MAX 256
#define BENCH_SLOTS_MAX	  4096 /* threads of all clients */
#define BENCH_CPUS_MAX	  64
#define BENCH_SIZES_MAX	  16
#define BENCH_BATCH_MAX	  BLOCK_KEYS
#define BENCH_WINDOW_MAX  1024
#define BENCH_SCAN_MAX	  100 /* keys of one scan, as YCSB has it */
#define TRANSPORT_MAX	  320
#define ADDRESS_MAX	  256

enum bench_exit {
	BENCH_EXIT_OK = 0,
	BENCH_EXIT_FAILED = 1,
	BENCH_EXIT_USAGE = 2,
};

/* What is measured in a tight loop. */
enum loop {
	LOOP_GET,
	LOOP_PUT,
	LOOP_GET_MANY,
	LOOP_PUT_MANY,
	LOOP_ASYNC_GET,
	LOOP_ASYNC_PUT,
	LOOP_VIEW,
	LOOP_INCR,
	LOOP_PING,
	LOOP_IDLE,
	LOOP_COUNT,
};

extern const char *const loop_names[]; /* ended by NULL; plan.c */

/* What a mix is made of. */
enum op {
	OP_GET,
	OP_PUT,	   /* of a key that is there */
	OP_INSERT, /* of a new key */
	OP_RMW,	   /* get, then put: read, modify, write */
	OP_SCAN,   /* some keys with their values, from where the last scan ended */
	OP_COUNT,
};

extern const char *const op_names[]; /* ended by NULL; plan.c */

enum distribution {
	DIST_UNIFORM,
	DIST_ZIPF,
	DIST_LATEST,	 /* Zipf, counted from the newest key */
	DIST_SEQUENTIAL, /* each thread its part of the keys, in order */
};

extern const char *const distribution_names[]; /* ended by NULL; plan.c */

/* One measurement of a mix. Goes through a pipe: the pointer is the same in all processes. */
struct pass {
	const char *name;	  /* of the operation or the workload; "fill" */
	double weights[OP_COUNT]; /* cumulated, the last is 1 */
	enum distribution distribution;
	double skew;
	unsigned window;     /* operations under way of one thread; 1: one after the other */
	uint64_t operations; /* of all threads together; 0: for duration_ns */
	uint64_t duration_ns;
	uint64_t warm_up_ns;	     /* done before, and not counted */
	uint64_t warm_up_operations; /* of each thread */
	uint64_t think_ns;	     /* between two operations of a thread */
	double rate;		     /* operations a second of all threads; 0: as fast as it goes */
	uint64_t ttl_ms;
	bool alone;  /* by one thread */
	bool verify; /* every byte of what is got */
};

#define PASSES_MAX 8

enum store_kind {
	STORE_KV,
	STORE_REDIS,
	STORE_MEMCACHED,
	STORE_GRPC, /* ours, by its gRPC service */
	STORE_COUNT,
};

extern const char *const store_names[]; /* ended by NULL; store.c */

/* Who is measured, and where he is. */
struct contestant {
	enum store_kind kind;
	char address[ADDRESS_MAX]; /* of ours: the URL, "" for this host; else a Unix socket */
};

enum output { OUTPUT_TABLE, OUTPUT_JSON, OUTPUT_CSV };

struct config {
	/* What. */
	bool loops[LOOP_COUNT]; /* tight loops; none: the passes */
	bool has_loops;
	struct pass passes[PASSES_MAX];
	int pass_count;
	const char *workload; /* its name; "" when it is no workload */
	bool fill;
	bool cached; /* every place is known before anything is measured */
	uint64_t keys;
	size_t key_size;    /* with the prefix; 0 until plan_keys() */
	const char *prefix; /* of all keys; NULL until plan_keys() unless one was given */
	bool keep;	    /* the keys stay when the run is over */
	size_t value_sizes[BENCH_SIZES_MAX];
	int size_count;
	uint64_t duration_ns; /* of one tight loop */
	int rounds;
	unsigned batch;	 /* keys of get-many and put-many */
	unsigned window; /* operations under way of async-get and async-put */
	/* By whom. */
	unsigned clients, threads;
	int cpus[BENCH_CPUS_MAX]; /* thread i runs on cpus[i % cpu_count]; none: all are free */
	int cpu_count;
	/* Against whom. The first contestant is always ours, by its own protocol or by gRPC. */
	struct contestant contestants[STORE_COUNT];
	int contestant_count;
	char server[ADDRESS_MAX + 32]; /* the first one, in words */
	int port;
	kv_client_options_t options;
	const char *ca_file; /* https: NULL: whom the system trusts */
	bool insecure;
	bool spawn;	     /* start a server of our own */
	bool is_connected;   /* all clients were: keys may have been written */
	bool is_implicit;    /* no server was named: look, and spawn if there is none */
	size_t spawn_memory; /* of such a server; 0: what the data needs */
	int server_cpus[BENCH_CPUS_MAX];
	int server_cpu_count;
	/* How it is shown. */
	enum output output;
	bool histogram;
	const char *plot; /* a file; NULL: none */
};

static inline unsigned config_slots(const struct config *config)
{
	return config->clients * config->threads;
}

#define COUNTERS_MAX  1000u
#define COUNTER_FIRST (UINT64_C(1) << 48) /* no key of another loop has such a number */

/* How many counters the incr loop counts. */
static inline uint64_t config_counters(const struct config *config)
{
	return config->keys < COUNTERS_MAX ? config->keys : COUNTERS_MAX;
}

static inline size_t config_largest_value(const struct config *config)
{
	size_t largest = 0;

	for (int i = 0; i < config->size_count; i++)
		if (config->value_sizes[i] > largest)
			largest = config->value_sizes[i];
	return largest;
}

/* options.c. Exits on a wrong command line. */
void bench_parse(int argc, char **argv, struct config *config);

/* ------------------------------------------------------------------------------------------
 * plan.c
 */

/* Sets weights and distribution of a workload, a to f. False: there is no such. */
bool plan_workload(struct pass *pass, const char *name);
/* Reads "get:95,put:5"; the numbers are shares, and need not add up to 100. On failure a message
 * is set. */
RMR_MUST_CHECK enum rmr_status plan_mix(struct pass *pass, const char *text);
/* Nothing but this. */
void plan_only(struct pass *pass, enum op op);
/* What fills a store: every key once, in order. */
struct pass plan_fill(const struct config *config);
/* Settles the prefix and the size of keys, when it is known whose server it is: on a server that
 * is not our own the keys have a prefix, so that they are none of its users'. */
RMR_MUST_CHECK enum rmr_status plan_keys(struct config *config);
/* How often the mix draws this. */
double plan_share(const struct pass *pass, enum op op);

/* ------------------------------------------------------------------------------------------
 * What threads count, in shared memory
 */

/* Why an operation failed: the negated status, or one of ours. */
#define KIND_WRONG_VALUE 32
#define KIND_COUNT	 33

/* Operations of one sort that were answered by one path. */
struct cell {
	uint64_t bytes;
	struct histogram latency; /* nanoseconds; of all */
};

/* Of one thread, which alone writes to it. The parent reads `done` at any time, and all else when
 * the order was answered. */
struct slot {
	_Atomic uint64_t done;	    /* operations so far, of the order under way */
	_Atomic uint64_t inserting; /* no key from this number on is known to be there */
	char transport[STORE_COUNT][TRANSPORT_MAX];
	uint64_t operations; /* that were measured */
	uint64_t time_ns;    /* that they took, without the drawing of keys */
	/* Tight loops. */
	kv_client_totals_t totals; /* what this measurement added */
	struct histogram latency;  /* of some of the operations, nanoseconds */
	/* Mixes. */
	uint64_t first_ticks, last_ticks; /* when the first one began and the last one ended */
	uint64_t unbegun;		  /* were due, and not begun when time was over */
	uint64_t misses[OP_COUNT];
	uint64_t errors[OP_COUNT][KIND_COUNT];
	char first_error[320];
	struct cell cells[OP_COUNT][KV_PATH_COUNT];
};

/* What all threads of all clients look at. */
struct shared {
	_Atomic uint64_t next;	  /* number of the next key that is inserted */
	_Atomic uint64_t visible; /* all keys below were inserted */
	unsigned slot_count;
	struct slot slots[];
};

/* ------------------------------------------------------------------------------------------
 * Orders and answers between crew.c and worker.c
 */

enum order_kind {
	ORDER_SIZE = 1, /* from now on values of this size */
	ORDER_FILL,	/* tight loops: put every key */
	ORDER_WARM,	/* get every key, so that its place is known */
	ORDER_LOOP,
	ORDER_PASS,
	ORDER_END,
};

struct order {
	enum order_kind kind;
	enum loop loop;
	uint64_t duration_ns;
	size_t value_size;
	int contestant;
	uint64_t start_ns; /* the same moment for all threads */
	struct pass pass;
};

struct answer {
	enum rmr_status status; /* not RMR_OK: the message tells */
	char message[512];
};

/* worker.c. Serves orders from one pipe by answers into the other, until ORDER_END or the end of
 * the pipe. index: which client it is. Returns the exit code. */
int crew_work(const struct config *config, struct shared *shared, unsigned index, int orders,
	      int answers);

/* Whole structs through a pipe. False: the other end is gone. */
bool pipe_read(int fd, void *to, size_t length);
bool pipe_write(int fd, const void *from, size_t length);

/* ------------------------------------------------------------------------------------------
 * crew.c
 */

/* Forks the clients, which connect. */
RMR_MUST_CHECK enum rmr_status crew_start(const struct config *config);
/* Ends them all; at_once: whatever they are doing. */
void crew_end(bool at_once);
/* Gives the first `count` clients an order and waits for their answers. title: of the line that
 * shows progress; NULL: none. */
RMR_MUST_CHECK enum rmr_status crew_order(const struct order *order, unsigned count,
					  const char *title);
struct shared *crew_shared(void);
/* From now on SIGINT and SIGTERM are noted, and end what is waited for. */
void crew_take_signals(void);
/* SIGINT or SIGTERM came. */
bool crew_is_interrupted(void);
/* How many of them. */
int crew_signals(void);

/* ------------------------------------------------------------------------------------------
 * clean.c
 */

/* After the clients have ended. False: keys may be left, which has been said. */
bool clean_up(const struct config *config);

/* ------------------------------------------------------------------------------------------
 * spawn.c
 */

/* Starts what the configuration asks for, and writes down where. */
RMR_MUST_CHECK enum rmr_status spawn_servers(struct config *config);
/* Ends them, and removes what they left. Legal at any time. */
void spawn_end(void);
/* The directory that bin/ with this program is in. */
const char *spawn_home(void);
/* Where a program of the PATH is. path has room for PATH_MAX bytes. */
bool spawn_find(const char *name, char *path);

/* ------------------------------------------------------------------------------------------
 * The measured loops
 */

#define SAMPLE_EVERY 8u /* operation whose own time is taken */

struct store;

/* What a thread works with. */
struct bench {
	const struct config *config;
	struct shared *shared;
	struct slot *slot;
	unsigned index;	     /* of this thread, of those of all clients */
	kv_client_t *client; /* of the first store */
	struct store *stores[STORE_COUNT];
	size_t value_size;
	struct dice dice;
	struct block block; /* keys drawn; the slices of a block use them one after the other */
	size_t next;	    /* of the block's keys; BLOCK_KEYS: draw again */
	uint8_t *value;	    /* to put */
	uint8_t *room;	    /* where gets land: `room_count` values, one for each of a slice */
	size_t room_count;
	uint64_t submitted[BLOCK_KEYS]; /* when the sampled operations were */
	const void *batch_keys[BENCH_BATCH_MAX];
	void *batch_values[BENCH_BATCH_MAX];
	size_t batch_key_lengths[BENCH_BATCH_MAX], batch_lengths[BENCH_BATCH_MAX];
	int batch_statuses[BENCH_BATCH_MAX];
};

static inline uint8_t *bench_room(const struct bench *bench, size_t i)
{
	return bench->room + i % bench->room_count * bench->value_size;
}

/* Starts the message of a failed call on a key. */
enum rmr_status bench_failed(const struct bench *bench, int status, const char *what,
			     uint64_t number);
/* Whether what was got is the value of this number: its length, and all of its bytes. */
RMR_MUST_CHECK enum rmr_status bench_check(const struct bench *bench, const uint8_t *value,
					   size_t length, uint64_t number);

/* Runs `count` operations on the block's keys from `first` on. */
typedef enum rmr_status (*slice_fn)(struct bench *bench, size_t first, size_t count);

/* loops.c. NULL: there is none. */
slice_fn slice_of(enum loop loop);
/* Operations between two looks at the clock. */
size_t slice_count(const struct config *config, enum loop loop, size_t value_size);
/* Measures a loop for so long. */
RMR_MUST_CHECK enum rmr_status loop_measure(struct bench *bench, enum loop loop,
					    uint64_t duration_ns);

/* pipeline.c */
enum rmr_status slice_async_get(struct bench *bench, size_t first, size_t count);
enum rmr_status slice_async_put(struct bench *bench, size_t first, size_t count);

/* drive.c. Measures a mix against a store. */
RMR_MUST_CHECK enum rmr_status drive_run(struct bench *bench, struct store *store,
					 const struct order *order);

#endif
