/*
 * What fabric-perf prints: a table for people, or one JSON object a row for programs. Remarks go to
 * stderr, so stdout holds figures only.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "perf.h"

static const char *const wait_names[] = {"spin", "adapt", "sleep"};

static double percentile_ns(const struct perf_row *row, double percent)
{
	return (double)histogram_percentile(&row->latency, percent) * 1000 / clock_ticks_per_us();
}

static double rate_of(const struct perf_row *row)
{
	return row->elapsed_ns > 0 ? (double)row->ops * 1e9 / row->elapsed_ns : 0;
}

/* "35 ns", "7.25 us", "1.10 ms": three digits that count. */
static const char *time_text(double ns, char text[SIZE_TEXT_LENGTH])
{
	const char *unit = "ns";

	if (ns >= 1e6) {
		ns /= 1e6;
		unit = "ms";
	} else if (ns >= 1e3) {
		ns /= 1e3;
		unit = "us";
	}
	snprintf(text, SIZE_TEXT_LENGTH, "%.*f %s", ns >= 100 ? 0 : ns >= 10 ? 1 : 2, ns, unit);
	return text;
}

/* With blanks between thousands. */
static const char *count_text(double value, char text[SIZE_TEXT_LENGTH])
{
	char digits[SIZE_TEXT_LENGTH];
	size_t length, at = 0;

	snprintf(digits, sizeof(digits), "%.0f", value);
	length = strlen(digits);
	for (size_t i = 0; i < length && at + 2 < SIZE_TEXT_LENGTH; i++) {
		if (i && (length - i) % 3 == 0)
			text[at++] = ' ';
		text[at++] = digits[i];
	}
	text[at] = 0;
	return text;
}

void report_begin(const struct perf_config *config, const char *server)
{
	FILE *file = config->json ? stderr : stdout;

	fprintf(file, "fabric-perf: %s, %s\n", config->device, server);
	if (config->json)
		return;
	printf("memory: %s; wait: %s; one-sided target: %s%s%s\n",
	       config->plain ? "plain" : "arenas", wait_names[config->wait],
	       config->target_polls ? "polls" : "sleeps", config->use_inline ? "; inline" : "",
	       config->check ? "; data checked, figures are worth little" : "");
	if (config->ops[PERF_SEND])
		printf("send: at depth 1 an operation is a full round trip (ping-pong); deeper it "
		       "is "
		       "one message, and all were acknowledged\n");
	printf("\n%-10s %8s %6s %6s %14s %9s %10s %10s %10s %10s\n", "op", "size", "depth", "batch",
	       "ops/s", "GB/s", "mean", "p50", "p99", "p99.9");
	fflush(stdout);
}

static void print_line(const struct perf_row *row)
{
	char size[SIZE_TEXT_LENGTH], rate[SIZE_TEXT_LENGTH], mean[SIZE_TEXT_LENGTH];
	char p50[SIZE_TEXT_LENGTH], p99[SIZE_TEXT_LENGTH], p999[SIZE_TEXT_LENGTH];

	if (row->test.op == PERF_IDLE) {
		printf("%-10s client %.3f%% of a core, server %.3f%% of a core\n", "idle",
		       row->client_cpu * 100, row->server_cpu * 100);
		return;
	}
	printf("%-10s %8s %6u %6u %14s %9.3f %10s %10s %10s %10s\n", perf_op_names[row->test.op],
	       size_format(row->test.size, size), row->test.depth, row->test.batch,
	       count_text(rate_of(row), rate), rate_of(row) * (double)row->test.size / 1e9,
	       time_text(row->mean_ns, mean), time_text(percentile_ns(row, 50), p50),
	       time_text(percentile_ns(row, 99), p99), time_text(percentile_ns(row, 99.9), p999));
}

static void print_json(const struct perf_config *config, const struct perf_row *row)
{
	double rate = rate_of(row);

	printf("{\"provider\": \"%s\", \"op\": \"%s\", \"size\": %llu, \"depth\": %u, "
	       "\"batch\": %u, \"ops\": %llu, \"ops_per_s\": %.1f, \"bytes_per_s\": %.1f, "
	       "\"mean_ns\": %.1f, \"p50_ns\": %.1f, \"p99_ns\": %.1f, \"p999_ns\": %.1f, "
	       "\"memory\": \"%s\", \"wait\": \"%s\", \"round_trip\": %s",
	       config->device, perf_op_names[row->test.op], (unsigned long long)row->test.size,
	       row->test.depth, row->test.batch, (unsigned long long)row->ops, rate,
	       rate * (double)row->test.size, row->mean_ns, percentile_ns(row, 50),
	       percentile_ns(row, 99), percentile_ns(row, 99.9), config->plain ? "plain" : "arena",
	       wait_names[config->wait],
	       row->test.op == PERF_SEND && row->test.depth == 1 ? "true" : "false");
	if (row->test.op == PERF_IDLE)
		printf(", \"client_cpu\": %.6f, \"server_cpu\": %.6f", row->client_cpu,
		       row->server_cpu);
	printf("}\n");
}

void report_row(const struct perf_config *config, const struct perf_row *row)
{
	if (config->json)
		print_json(config, row);
	else
		print_line(row);
	fflush(stdout);
}
