/*
 * What kv-bench prints: a table for people, or one JSON object or CSV line a row for programs.
 * Figures go to stdout, all else to stderr.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/size.h"
#include "rows.h"

#define WIDTH_DEFAULT 80
#define WIDTH_LEAST   30
#define HEADING_MAX   512

int report_width(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize window;
	int width = WIDTH_DEFAULT;

	if (columns && atoi(columns) > 0)
		width = atoi(columns);
	else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
		width = window.ws_col;
	return width < WIDTH_LEAST ? WIDTH_LEAST : width;
}

/* ------------------------------------------------------------------------------------------
 * For programs
 */

/* The transport's words may hold anything; JSON may not. */
static void print_json_text(const char *name, const char *text)
{
	printf("\"%s\": \"", name);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		if ((unsigned char)*text >= ' ')
			putchar(*text);
	}
	printf("\", ");
}

static void print_json_counts(const struct row *row)
{
	const char *comma = "";

	printf(", \"errors\": %llu, \"misses\": %llu, \"error_kinds\": {",
	       (unsigned long long)row_errors(row), (unsigned long long)row->misses);
	for (int kind = 0; kind < KIND_COUNT; kind++) {
		if (!row->errors[kind])
			continue;
		printf("%s\"%s\": %llu", comma, row_kind_name(kind),
		       (unsigned long long)row->errors[kind]);
		comma = ", ";
	}
	printf("}");
}

/* What the library counts beside, of tight loops. */
static void print_json_totals(const kv_client_totals_t *totals)
{
	const char *comma = "";

	printf(", \"paths\": {");
	for (int path = 0; path < KV_PATH_COUNT; path++) {
		if (!totals->operations[path])
			continue;
		printf("%s\"%s\": %llu", comma, kv_path_name((kv_path_t)path),
		       (unsigned long long)totals->operations[path]);
		comma = ", ";
	}
	printf("}, \"round_trips\": %llu, \"stale_locations\": %llu, \"torn_reads\": %llu, "
	       "\"reconnects\": %llu",
	       (unsigned long long)totals->round_trips, (unsigned long long)totals->stale_locations,
	       (unsigned long long)totals->torn_reads, (unsigned long long)totals->reconnects);
}

static const struct {
	const char *name;
	double percent;
} percentiles[] = {{"p50_ns", 50},    {"p90_ns", 90},	   {"p99_ns", 99},
		   {"p999_ns", 99.9}, {"p9999_ns", 99.99}, {"max_ns", 100}};

#define PERCENTILES ((int)(sizeof(percentiles) / sizeof(percentiles[0])))

static void print_json(const struct config *config, const struct row *row)
{
	char provider[16];

	row_provider(row, provider);
	printf("{");
	print_json_text("store", store_names[row->store]);
	print_json_text("workload", config->workload);
	print_json_text("op", row->op);
	print_json_text("path", row->path);
	print_json_text("server", config->server);
	print_json_text("provider", provider);
	print_json_text("transport", row->transport);
	printf("\"keys\": %llu, \"key_size\": %zu, \"value_size\": %zu, \"clients\": %u, "
	       "\"threads\": %u, \"window\": %u, \"operations\": %llu, \"ops_per_s\": %.1f, "
	       "\"bytes_per_s\": %.1f",
	       (unsigned long long)config->keys, config->key_size, row->value_size, config->clients,
	       config->threads, row->window, (unsigned long long)row->operations, row_rate(row),
	       row_bytes_rate(row));
	for (int i = 0; i < PERCENTILES; i++)
		printf(", \"%s\": %llu", percentiles[i].name,
		       (unsigned long long)histogram_percentile(&row->latency,
								percentiles[i].percent));
	print_json_counts(row);
	if (row->is_loop)
		print_json_totals(&row->totals);
	printf(", \"samples\": [");
	for (int i = 0; i < row->sample_count; i++)
		printf("%s%.1f", i ? ", " : "", row->samples[i]);
	printf("]}\n");
}

static void print_csv(const struct config *config, const struct row *row)
{
	char provider[16];

	row_provider(row, provider);
	printf("%s,%s,%s,%s,%s,%llu,%zu,%zu,%u,%u,%u,%llu,%.1f,%.1f", store_names[row->store],
	       config->workload, row->op, row->path, provider, (unsigned long long)config->keys,
	       config->key_size, row->value_size, config->clients, config->threads, row->window,
	       (unsigned long long)row->operations, row_rate(row), row_bytes_rate(row));
	for (int i = 0; i < PERCENTILES; i++)
		printf(",%llu", (unsigned long long)histogram_percentile(&row->latency,
									 percentiles[i].percent));
	printf(",%llu,%llu\n", (unsigned long long)row_errors(row),
	       (unsigned long long)row->misses);
}

void report_begin(const struct config *config)
{
	if (config->output != OUTPUT_CSV)
		return;
	printf("store,workload,op,path,provider,keys,key_size,value_size,clients,threads,window,"
	       "operations,ops_per_s,bytes_per_s");
	for (int i = 0; i < PERCENTILES; i++)
		printf(",%s", percentiles[i].name);
	printf(",errors,misses\n");
	fflush(stdout);
}

void report_row(const struct config *config, const struct row *row)
{
	if (config->output == OUTPUT_JSON)
		print_json(config, row);
	else if (config->output == OUTPUT_CSV)
		print_csv(config, row);
	fflush(stdout);
}

/* ------------------------------------------------------------------------------------------
 * For people
 */

/* Words in lines of the terminal's width. */
static void print_wrapped(const char *text, int width)
{
	int column = 0;

	while (*text) {
		int length = (int)strcspn(text, " ");

		if (column && column + 1 + length > width) {
			printf("\n");
			column = 0;
		}
		printf("%s%.*s", column ? " " : "", length, text);
		column += length + (column ? 1 : 0);
		text += length;
		text += strspn(text, " ");
	}
	printf("\n");
}

/* Adds to a text that ends at *used. */
__attribute__((format(printf, 3, 4))) static void add(char text[HEADING_MAX], int *used,
						      const char *format, ...)
{
	va_list list;

	va_start(list, format);
	*used += vsnprintf(text + *used, (size_t)(HEADING_MAX - *used), format, list);
	va_end(list);
	if (*used >= HEADING_MAX)
		*used = HEADING_MAX - 1;
}

static void add_mix(char text[HEADING_MAX], int *used, const struct config *config,
		    const struct pass *pass)
{
	const char *comma = "";

	if (*config->workload)
		add(text, used, "workload ");
	add(text, used, "%s: ", pass->name);
	for (int op = 0; op < OP_COUNT; op++) {
		double share = plan_share(pass, (enum op)op);

		if (share <= 0)
			continue;
		add(text, used, "%s%.3g%% %s", comma, 100 * share, op_names[op]);
		comma = ", ";
	}
	add(text, used, "; %s over ", distribution_names[pass->distribution]);
}

void report_heading(const struct config *config, const struct pass *pass, const struct row *row)
{
	static bool has_headings;
	unsigned clients = pass && pass->alone ? 1 : config->clients;
	char text[HEADING_MAX], size[SIZE_TEXT_LENGTH];
	int used = 0;

	if (config->output != OUTPUT_TABLE)
		return;
	if (pass)
		add_mix(text, &used, config, pass);
	add(text, &used, "%llu keys of %zu bytes, values of %s%s; %u client%s",
	    (unsigned long long)config->keys, config->key_size, size_format(row->value_size, size),
	    row->value_size < 1024 ? " bytes" : "", clients, clients == 1 ? "" : "s");
	if (config->threads > 1 && !(pass && pass->alone))
		add(text, &used, " of %u threads", config->threads);
	if (pass && pass->window > 1)
		add(text, &used, ", window %u", pass->window);
	if (pass && pass->rate > 0)
		add(text, &used, ", %.6g operations a second due", pass->rate);
	add(text, &used, "; %s%s by %s", config->contestant_count > 1 ? "remora: " : "",
	    config->server, row->transport);
	if (has_headings)
		printf("\n");
	has_headings = true;
	print_wrapped(text, report_width());
}

/* What the table has no column for. */
static void print_remarks(const struct row *row, int width)
{
	char text[512];

	for (int kind = 0; kind < KIND_COUNT; kind++) {
		if (!row->errors[kind])
			continue;
		snprintf(text, sizeof(text), "errors: %s: %llu times: %s", row->op,
			 (unsigned long long)row->errors[kind], row_kind_name(kind));
		print_wrapped(text, width);
	}
	if (row->misses) {
		snprintf(text, sizeof(text), "%s: %llu found no key (evicted or expired)", row->op,
			 (unsigned long long)row->misses);
		print_wrapped(text, width);
	}
	if (row->unbegun) {
		snprintf(text, sizeof(text),
			 "the rate was not reached: %llu operations that were due had not begun "
			 "when time was over, and are missing above",
			 (unsigned long long)row->unbegun);
		print_wrapped(text, width);
	}
	if (row->is_loop && (row->totals.torn_reads || row->totals.reconnects)) {
		snprintf(text, sizeof(text), "%s: %llu torn reads, %llu reconnects", row->op,
			 (unsigned long long)row->totals.torn_reads,
			 (unsigned long long)row->totals.reconnects);
		print_wrapped(text, width);
	}
}

void report_rows(const struct config *config, const struct rows *rows, int first)
{
	int width = report_width();

	if (config->output != OUTPUT_TABLE) {
		for (int i = first; i < rows->count; i++)
			report_row(config, rows->rows[i]);
		return;
	}
	table_print(rows, first, config->contestant_count > 1, width);
	for (int i = first; i < rows->count; i++)
		if (!rows->rows[i]->is_sum)
			print_remarks(rows->rows[i], width);
	if (config->histogram && rows->count > first)
		for (int i = first; i < rows->count; i++) {
			const struct row *row = rows->rows[i];
			char title[128], label[32];

			/* The sum stands for its parts. */
			if (!row->is_sum && rows->rows[rows->count - 1]->is_sum)
				continue;
			snprintf(title, sizeof(title), "\nlatency of %s%s%s",
				 strcmp(row->op, "all") ? row_label(row, label) : "all operations",
				 config->contestant_count > 1 ? ", " : "",
				 config->contestant_count > 1 ? store_names[row->store] : "");
			picture_print(stdout, &row->latency, title, width);
		}
	fflush(stdout);
}

/* The row of another store that measures the same. */
static bool is_same(const struct row *ours, const struct row *theirs)
{
	return theirs->store != STORE_KV && theirs->value_size == ours->value_size &&
	       theirs->window == ours->window && !strcmp(theirs->op, ours->op);
}

/* All of ours by one operation, whatever path: their sum counts them again. */
static double rate_of(const struct rows *rows, const struct row *like)
{
	double rate = 0;

	for (int i = 0; i < rows->count; i++) {
		const struct row *row = rows->rows[i];
		bool counts_again = row->is_sum && strcmp(row->op, "all");

		if (row->store == like->store && row->value_size == like->value_size &&
		    row->window == like->window && !strcmp(row->op, like->op) && !counts_again)
			rate += row_rate(row);
	}
	return rate;
}

/* The first row of ours with this operation tells for all of its paths. */
static bool is_first_of_op(const struct rows *rows, int at)
{
	for (int i = 0; i < at; i++)
		if (rows->rows[i]->store == STORE_KV &&
		    rows->rows[i]->value_size == rows->rows[at]->value_size &&
		    rows->rows[i]->window == rows->rows[at]->window &&
		    !strcmp(rows->rows[i]->op, rows->rows[at]->op))
			return false;
	return rows->rows[at]->store == STORE_KV;
}

void report_ratios(const struct config *config, const struct rows *rows)
{
	char size[SIZE_TEXT_LENGTH], label[64];
	bool has_slow_window = false;

	if (config->output != OUTPUT_TABLE || config->contestant_count < 2)
		return;
	printf("\nremora beside the others (rate, p50)\n");
	for (int i = 0; i < rows->count; i++)
		has_slow_window |=
			rows->rows[i]->store == STORE_MEMCACHED && rows->rows[i]->window > 1;
	for (int i = 0; i < rows->count; i++) {
		const struct row *ours = rows->rows[i];
		char name[32];

		if (!is_first_of_op(rows, i))
			continue;
		snprintf(label, sizeof(label), "%s%s%s", row_label(ours, name),
			 config->size_count > 1 ? " " : "",
			 config->size_count > 1 ? size_format(ours->value_size, size) : "");
		for (int j = 0; j < rows->count; j++) {
			const struct row *theirs = rows->rows[j];
			double mine = (double)histogram_percentile(&ours->latency, 50);

			if (!is_same(ours, theirs) || row_rate(theirs) <= 0 || mine <= 0)
				continue;
			printf("%-14s %6.3gx %-9s %6.3gx\n", label,
			       rate_of(rows, ours) / row_rate(theirs), store_names[theirs->store],
			       (double)histogram_percentile(&theirs->latency, 50) / mine);
		}
	}
	if (has_slow_window)
		print_wrapped("libmemcached has no puts under way: in a window it makes them one "
			      "by one, and gets as one multi-get.",
			      report_width());
}
