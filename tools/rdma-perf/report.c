/* What rdma-perf prints: a table for people, or one JSON object a row for programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(const double *values, unsigned count)
{
	double sorted[PERF_ROUNDS_MAX];

	memcpy(sorted, values, count * sizeof(*values));
	qsort(sorted, count, sizeof(*sorted), compare);
	return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

static const char *show(double value, enum perf_unit unit, char text[32])
{
	if (unit == PERF_NS)
		snprintf(text, 32, value < 1000 ? "%.0f ns" : "%.2f us",
			 value < 1000 ? value : value / 1000);
	else if (unit == PERF_RATE)
		snprintf(text, 32, "%.2f M/s", value / 1e6);
	else
		snprintf(text, 32, value < 1e9 ? "%.1f MB/s" : "%.2f GB/s",
			 value < 1e9 ? value / 1e6 : value / 1e9);
	return text;
}

void report_begin(const struct perf_config *config)
{
	if (config->json)
		return;
	printf("rdma-perf: %s, %u rounds of %g s\n\n", config->device, config->rounds,
	       config->seconds);
	printf("%-44s %12s %12s %7s %10s\n", "test", "ours", "bare fabric", "ratio", "wanted");
	fflush(stdout);
}

static void print_json(const struct perf_config *config, const struct perf_test *test, double ours,
		       double bare, double ratio)
{
	static const char *const units[] = {"ns", "ops/s", "B/s"};

	printf("{\"test\": \"%s\", \"device\": \"%s\", \"size\": %zu, \"unit\": \"%s\", "
	       "\"ours\": %.1f, \"bare\": %.1f, \"ratio\": %.4f, \"limit\": %g, \"least\": %g}\n",
	       test->name, config->device, test->size, units[test->unit], ours, bare, ratio,
	       test->limit, test->least);
}

void report_row(const struct perf_config *config, const struct perf_test *test, const double *ours,
		const double *bare)
{
	double ratios[PERF_ROUNDS_MAX], ratio;
	char first[32], second[32], wanted[48] = "";
	double a = median(ours, config->rounds), b = median(bare, config->rounds);

	for (unsigned i = 0; i < config->rounds; i++)
		ratios[i] = ours[i] / bare[i];
	ratio = median(ratios, config->rounds);
	if (test->limit > 0)
		snprintf(wanted, sizeof(wanted), "%s %g",
			 test->unit == PERF_NS ? "<=" : ">=", test->limit);
	else if (test->least > 0)
		snprintf(wanted, sizeof(wanted), ">= %s", show(test->least, test->unit, first));
	if (config->json)
		print_json(config, test, a, b, ratio);
	else
		printf("%-44s %12s %12s %7.2f %10s\n", test->text, show(a, test->unit, first),
		       show(b, test->unit, second), ratio, wanted);
	fflush(stdout);
}
