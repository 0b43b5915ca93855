/*
 * What kv-perf prints: a line for people, or one JSON object a row for programs. Figures go to
 * stdout, all else to stderr.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median_of(const double *samples, int count)
{
	double sorted[PERF_ROUNDS_MAX];

	memcpy(sorted, samples, (size_t)count * sizeof(sorted[0]));
	qsort(sorted, (size_t)count, sizeof(sorted[0]), compare_doubles);
	return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

/* Operations that one call, or one window, has under way. */
static unsigned width_of(const struct perf_config *config, enum test test)
{
	if (test == TEST_ASYNC_GET || test == TEST_ASYNC_PUT)
		return config->window;
	return test == TEST_GET_MANY || test == TEST_PUT_MANY ? config->batch : 1;
}

static bool carries_value(enum test test)
{
	return test != TEST_INCR && test != TEST_PING && test != TEST_IDLE;
}

/* The transport's words may hold anything; JSON may not. */
static void print_json_text(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		if ((unsigned char)*text >= ' ')
			putchar(*text);
	}
	putchar('"');
}

static void print_json_paths(const struct row *row)
{
	const char *comma = "";

	printf(", \"paths\": {");
	for (int path = 0; path < KV_PATH_COUNT; path++) {
		if (!row->totals.operations[path])
			continue;
		printf("%s\"%s\": %llu", comma, kv_path_name((kv_path_t)path),
		       (unsigned long long)row->totals.operations[path]);
		comma = ", ";
	}
	printf("}, \"round_trips\": %llu, \"stale_locations\": %llu, \"torn_reads\": %llu, "
	       "\"reconnects\": %llu",
	       (unsigned long long)row->totals.round_trips,
	       (unsigned long long)row->totals.stale_locations,
	       (unsigned long long)row->totals.torn_reads,
	       (unsigned long long)row->totals.reconnects);
}

static void print_json(const struct perf_config *config, const struct row *row, double rate)
{
	printf("{\"test\": \"%s\", \"transport\": ", test_names[row->test]);
	print_json_text(row->transport);
	printf(", \"keys\": %llu, \"key_size\": %zu, \"value_size\": %zu, \"clients\": %u, "
	       "\"window\": %u",
	       (unsigned long long)config->keys, config->key_size, config->value_size,
	       config->clients, width_of(config, row->test));
	if (row->test != TEST_IDLE) {
		printf(", \"ops_per_s\": %.1f, \"bytes_per_s\": %.1f, \"p50_ns\": %llu, "
		       "\"p99_ns\": %llu, \"p999_ns\": %llu, \"max_ns\": %llu",
		       rate, carries_value(row->test) ? rate * (double)config->value_size : 0.0,
		       (unsigned long long)histogram_percentile(&row->latency, 50),
		       (unsigned long long)histogram_percentile(&row->latency, 99),
		       (unsigned long long)histogram_percentile(&row->latency, 99.9),
		       (unsigned long long)histogram_max(&row->latency));
		print_json_paths(row);
		printf(", \"samples\": [");
		for (int i = 0; i < row->sample_count; i++)
			printf("%s%.1f", i ? ", " : "", row->samples[i]);
		printf("]");
	}
	printf("}\n");
}

static void print_time(const char *name, uint64_t ns)
{
	if (ns >= 1000000)
		printf("  %s %.2f ms", name, (double)ns / 1e6);
	else if (ns >= 1000)
		printf("  %s %.2f us", name, (double)ns / 1e3);
	else
		printf("  %s %llu ns", name, (unsigned long long)ns);
}

/* "mapped 99%, inline 1%": of what answered. */
static void print_paths(const kv_client_totals_t *totals)
{
	const char *before = "  by ";
	uint64_t all = 0;

	for (int path = 0; path < KV_PATH_COUNT; path++)
		all += totals->operations[path];
	for (int path = 0; path < KV_PATH_COUNT; path++) {
		uint64_t some = totals->operations[path];

		if (!some)
			continue;
		printf("%s%s", before, kv_path_name((kv_path_t)path));
		if (some < all)
			printf(" %.3g%%", 100.0 * (double)some / (double)all);
		before = ", ";
	}
}

static void print_line(const struct perf_config *config, const struct row *row, double rate)
{
	char what[48];

	snprintf(what, sizeof(what), "%s", test_names[row->test]);
	if (width_of(config, row->test) > 1)
		snprintf(what, sizeof(what), "%s of %u", test_names[row->test],
			 width_of(config, row->test));
	printf("%-16s", what);
	if (config->clients > 1)
		printf(" %u clients", config->clients);
	if (row->test == TEST_IDLE) {
		printf(" connected by %s\n", row->transport);
		return;
	}
	if (rate >= 1e5)
		printf(" %8.3f M/s", rate / 1e6);
	else
		printf(" %8.2f k/s", rate / 1e3);
	if (carries_value(row->test))
		printf("  %8.1f MB/s", rate * (double)config->value_size / 1e6);
	print_time("p50", histogram_percentile(&row->latency, 50));
	print_time("p99", histogram_percentile(&row->latency, 99));
	print_paths(&row->totals);
	if (row->totals.stale_locations)
		printf("  stale %llu", (unsigned long long)row->totals.stale_locations);
	if (row->totals.torn_reads)
		printf("  torn %llu", (unsigned long long)row->totals.torn_reads);
	if (row->totals.reconnects)
		printf("  reconnects %llu", (unsigned long long)row->totals.reconnects);
	printf("\n");
}

void row_print(const struct perf_config *config, const struct row *row)
{
	double rate = row->sample_count ? median_of(row->samples, row->sample_count) : 0;

	if (config->json)
		print_json(config, row, rate);
	else
		print_line(config, row, rate);
	fflush(stdout);
}
