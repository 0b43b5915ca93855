/*
 * What store-perf prints: a line for people, or one JSON object a row for programs. Figures go to
 * stdout, all else to stderr.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

void row_add(struct row *row, const char *name, enum figure_unit unit, double value)
{
	assert(row->figure_count < FIGURES_MAX);
	row->figures[row->figure_count++] = (struct figure){name, unit, value};
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median_of(const double *samples, int count)
{
	double sorted[PERF_ROUNDS_MAX];

	assert(count > 0 && count <= PERF_ROUNDS_MAX);
	memcpy(sorted, samples, (size_t)count * sizeof(sorted[0]));
	qsort(sorted, (size_t)count, sizeof(sorted[0]), compare_doubles);
	return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

double median_ratio(const double *a, const double *b, int count)
{
	double ratios[PERF_ROUNDS_MAX];

	for (int i = 0; i < count; i++)
		ratios[i] = a[i] / b[i];
	return median_of(ratios, count);
}

static void print_time(const char *name, double ns)
{
	const char *unit = "ns";

	if (ns >= 1e9) {
		ns /= 1e9;
		unit = "s";
	} else if (ns >= 1e6) {
		ns /= 1e6;
		unit = "ms";
	} else if (ns >= 1e4) {
		ns /= 1e3;
		unit = "us";
	}
	printf("  %s %.*f %s", name, ns >= 100 ? 0 : 1, ns, unit);
}

static void print_count(const char *name, double value, const char *unit)
{
	if (value >= 1e5)
		printf("  %s %.2f M%s", name, value / 1e6, unit);
	else
		printf("  %s %.*f%s", name, value == (double)(long long)value ? 0 : 1, value, unit);
}

static void print_figure(const struct figure *figure)
{
	/* People read "mean 74 ns", not "mean_ns". */
	char name[64];
	size_t length;

	snprintf(name, sizeof(name), "%s", figure->name);
	length = strlen(name);
	if (figure->unit == FIGURE_NS && length > 3 && !strcmp(name + length - 3, "_ns"))
		name[length - 3] = 0;
	for (char *c = name; *c; c++)
		if (*c == '_')
			*c = ' ';
	switch (figure->unit) {
	case FIGURE_NS:
		print_time(name, figure->value);
		break;
	case FIGURE_RATE:
		print_count(name, figure->value, "/s");
		break;
	case FIGURE_RATIO:
		printf("  %s %.3f", name, figure->value);
		break;
	case FIGURE_BYTES:
		print_count(name, figure->value, " B");
		break;
	case FIGURE_SHARE:
		printf("  %s %.2f%%", name, figure->value * 100);
		break;
	default:
		print_count(name, figure->value, "");
	}
}

static void print_json(const struct perf_config *config, const struct row *row)
{
	printf("{\"test\": \"%s\", \"subject\": \"%s\", \"keys\": %llu, \"key_size\": %zu, "
	       "\"value_size\": %zu",
	       row->test, row->subject, (unsigned long long)row->keys, config->key_size,
	       config->value_size);
	for (int i = 0; i < row->figure_count; i++)
		printf(", \"%s\": %.*f", row->figures[i].name,
		       row->figures[i].unit == FIGURE_COUNT ? 0 : 4, row->figures[i].value);
	if (row->sample_count) {
		printf(", \"samples\": [");
		for (int i = 0; i < row->sample_count; i++)
			printf("%s%.4f", i ? ", " : "", row->samples[i]);
		printf("]");
	}
	printf("}\n");
}

void row_print(const struct perf_config *config, const struct row *row)
{
	if (config->json) {
		print_json(config, row);
	} else {
		printf("%-7s %-13s %9llu keys:", row->test, row->subject,
		       (unsigned long long)row->keys);
		for (int i = 0; i < row->figure_count; i++)
			print_figure(&row->figures[i]);
		printf("\n");
	}
	fflush(stdout);
}
