/*
 * Rows: what a run has found, ready to be shown. rows.c adds them up from what the threads counted;
 * report.c, table.c, picture.c and plot.c show them.
 */
#ifndef KV_BENCH_ROWS_H
#define KV_BENCH_ROWS_H

#include <stdio.h>

#include "bench.h"

/* One sort of operation by one path, of all rounds and clients. */
struct row {
	enum store_kind store;
	const char *op;
	const char *path; /* "all" in a sum; "" when there is none */
	char transport[TRANSPORT_MAX];
	size_t value_size;
	unsigned window;
	bool is_loop; /* a tight loop: totals are there, and latencies are samples */
	bool is_sum;  /* of the rows before it */
	double samples[BENCH_ROUNDS_MAX]; /* operations a second of each round, of all clients */
	int sample_count;
	uint64_t operations, bytes;
	struct histogram latency; /* nanoseconds */
	uint64_t misses, unbegun;
	uint64_t errors[KIND_COUNT]; /* by kind */
	char first_error[320];
	kv_client_totals_t totals;
};

struct rows {
	struct row **rows; /* in the order in which they are shown */
	int count;
};

/* Adds a row of no figures. Never NULL: ends the program when there is no memory. */
struct row *rows_add(struct rows *rows, enum store_kind store, const char *op, const char *path);
void rows_fini(struct rows *rows);

/* Adds what the threads have counted in this round of a tight loop. */
void rows_take_loop(struct row *row, const struct config *config, enum loop loop, int round);

/* The same for a pass: to the rows from `first` on, adding those that are not there. */
void rows_take_pass(struct rows *rows, int first, const struct config *config,
		    const struct pass *pass, int contestant, size_t value_size, int round);
/* Once all rounds are in: adds a sum to those from `first` on, if they are several. Its operation
 * is theirs, or "all"; its path "all". */
void rows_sum(struct rows *rows, int first);

double row_rate(const struct row *row); /* median of the rounds */
double row_bytes_rate(const struct row *row);
uint64_t row_errors(const struct row *row);
const char *row_kind_name(int kind);
/* The first word of the transport: shm, tcp, unix. */
void row_provider(const struct row *row, char provider[16]);

/* report.c */
void report_begin(const struct config *config);
/* Says what was measured; pass: NULL for tight loops. row: the first. */
void report_heading(const struct config *config, const struct pass *pass, const struct row *row);
void report_row(const struct config *config, const struct row *row); /* JSON and CSV */
/* Rows from `first` on. */
void report_rows(const struct config *config, const struct rows *rows, int first);
void report_ratios(const struct config *config, const struct rows *rows);
int report_width(void); /* columns of the terminal on stdout; 80 if it is none */

/* table.c */
void table_print(const struct rows *rows, int first, bool has_store, int width);
/* Three digits and a unit, such as 12.3us or 6.12M: at most 6 characters. */
#define TABLE_CELL 16
const char *table_time(uint64_t ns, char text[TABLE_CELL]);
const char *table_amount(double amount, char text[TABLE_CELL]);
const char *row_label(const struct row *row, char label[32]); /* "async-get x32" */

/* picture.c. A histogram in lines of at most `width` characters. */
void picture_print(FILE *file, const struct histogram *latency, const char *title, int width);

/* plot.c. Whether gnuplot is there, and the extension known; a message otherwise. */
RMR_MUST_CHECK enum rmr_status plot_check(const char *file);
RMR_MUST_CHECK enum rmr_status plot_write(const struct config *config, const struct rows *rows);

#endif
