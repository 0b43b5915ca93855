/*
 * --plot: a picture by gnuplot, which is looked for when it is needed and fed through a pipe.
 *
 * To the left the share of operations that were answered within a time; to the right the rate by
 * the size of values when several were measured, else a bar for each operation and store.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"
#include "rows.h"

#define PART_MAX 4096

static bool is_program(const char *name)
{
	const char *search = getenv("PATH");

	while (search && *search) {
		int part = (int)strcspn(search, ":");
		char path[PART_MAX];

		snprintf(path, sizeof(path), "%.*s/%s", part, search, name);
		if (!access(path, X_OK))
			return true;
		search += part + (search[part] == ':');
	}
	return false;
}

static const char *extension_of(const char *file)
{
	const char *dot = strrchr(file, '.');

	return dot ? dot + 1 : "";
}

enum rmr_status plot_check(const char *file)
{
	FILE *probe;

	if (strcmp(extension_of(file), "png") && strcmp(extension_of(file), "svg"))
		return error_set(RMR_INVALID, "--plot: '%s' is neither .png nor .svg", file);
	if (!is_program("gnuplot"))
		return error_set(RMR_UNSUPPORTED,
				 "--plot needs gnuplot, which is not in the PATH; apt-get install "
				 "gnuplot-nox");
	probe = fopen(file, "a"); /* said now, not when all is measured */
	if (!probe)
		return error_errno(RMR_SYSTEM, errno, "--plot: %s", file);
	fclose(probe);
	return RMR_OK;
}

/* Sums of mixes, and rows of a single operation: what is worth a line. */
static bool is_shown(const struct rows *rows, int i)
{
	const struct row *row = rows->rows[i];

	if (!row->latency.count)
		return false;
	for (int j = 0; !row->is_sum && j < rows->count; j++)
		if (rows->rows[j]->is_sum && rows->rows[j]->store == row->store &&
		    rows->rows[j]->value_size == row->value_size)
			return false;
	return true;
}

static void write_name(FILE *to, const struct config *config, const struct row *row)
{
	char label[32], size[SIZE_TEXT_LENGTH];

	fprintf(to, "%s%s%s", config->contestant_count > 1 ? store_names[row->store] : "",
		config->contestant_count > 1 ? " " : "",
		row->is_sum ? "all operations" : row_label(row, label));
	if (config->size_count > 1)
		fprintf(to, " %s", size_format(row->value_size, size));
}

/* Microseconds, and the share that took no longer. */
static void write_shares(FILE *to, const struct row *row, int block)
{
	uint64_t seen = 0;

	fprintf(to, "$shares%d << EOD\n", block);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		if (!row->latency.buckets[i])
			continue;
		seen += row->latency.buckets[i];
		fprintf(to, "%.4f %.8f\n", (double)histogram_bucket_middle(i) / 1e3,
			100.0 * (double)seen / (double)row->latency.count);
	}
	fprintf(to, "EOD\n");
}

static void plot_shares(FILE *to, const struct config *config, const struct rows *rows)
{
	const char *comma = "plot ";

	fprintf(to, "set title 'latency'\nset logscale x\nset xlabel 'microseconds'\n"
		    "set ylabel '%% of operations answered'\nset key bottom right\n"
		    "set yrange [0:100]\nset grid\n");
	for (int i = 0; i < rows->count; i++) {
		if (!is_shown(rows, i))
			continue;
		fprintf(to, "%s$shares%d using 1:2 with lines lw 2 title '", comma, i);
		write_name(to, config, rows->rows[i]);
		fprintf(to, "'");
		comma = ", ";
	}
	fprintf(to, "\nreset\n");
}

/* A line for each operation and store, over all sizes. */
static void plot_sizes(FILE *to, const struct config *config, const struct rows *rows)
{
	const char *comma = "plot ";

	fprintf(to, "set title 'throughput by size of values'\nset logscale xy\n"
		    "set xlabel 'bytes of a value'\nset ylabel 'MB/s'\nset key top left\n"
		    "set grid\n");
	for (int i = 0; i < rows->count; i++) {
		const struct row *row = rows->rows[i];
		char label[32];

		if (!is_shown(rows, i) || row->value_size != config->value_sizes[0])
			continue;
		fprintf(to, "%s'-' using 1:2 with linespoints lw 2 title '%s%s%s'", comma,
			config->contestant_count > 1 ? store_names[row->store] : "",
			config->contestant_count > 1 ? " " : "",
			row->is_sum ? "all operations" : row_label(row, label));
		comma = ", ";
	}
	fprintf(to, "\n");
	for (int i = 0; i < rows->count; i++) {
		const struct row *row = rows->rows[i];

		if (!is_shown(rows, i) || row->value_size != config->value_sizes[0])
			continue;
		for (int j = 0; j < rows->count; j++) {
			const struct row *other = rows->rows[j];

			if (is_shown(rows, j) && other->store == row->store &&
			    other->window == row->window && !strcmp(other->op, row->op))
				fprintf(to, "%zu %.6f\n", other->value_size,
					row_bytes_rate(other) / 1e6);
		}
		fprintf(to, "e\n");
	}
}

static void plot_bars(FILE *to, const struct config *config, const struct rows *rows)
{
	fprintf(to, "set title 'operations a second'\nset style fill solid 0.6\nunset key\n"
		    "set boxwidth 0.7\nset logscale y\nset yrange [1:*]\nset grid y\n"
		    "set xtics rotate by -35 noenhanced\n"
		    "plot '-' using 0:2:($0+1):xtic(1) with boxes lc variable\n");
	for (int i = 0; i < rows->count; i++) {
		if (!is_shown(rows, i))
			continue;
		fprintf(to, "\"");
		write_name(to, config, rows->rows[i]);
		fprintf(to, "\" %.1f\n", row_rate(rows->rows[i]) > 1 ? row_rate(rows->rows[i]) : 1);
	}
	fprintf(to, "e\n");
}

/* In gnuplot a quote within quotes is written twice. */
static void write_quoted(FILE *to, const char *text)
{
	fputc('\'', to);
	for (; *text; text++)
		fprintf(to, *text == '\'' ? "''" : "%c", *text);
	fprintf(to, "'\n");
}

enum rmr_status plot_write(const struct config *config, const struct rows *rows)
{
	FILE *to = popen("gnuplot", "w");
	int result;

	if (!to)
		return error_errno(RMR_SYSTEM, errno, "gnuplot");
	if (!strcmp(extension_of(config->plot), "svg"))
		fprintf(to, "set terminal svg size 1200,500\n");
	else
		fprintf(to, "if (strstrt(GPVAL_TERMINALS, 'pngcairo')) {\n"
			    "set terminal pngcairo size 1200,500\n} else {\n"
			    "set terminal png size 1200,500\n}\n");
	fprintf(to, "set output ");
	write_quoted(to, config->plot);
	for (int i = 0; i < rows->count; i++)
		if (is_shown(rows, i))
			write_shares(to, rows->rows[i], i);
	fprintf(to, "set multiplot layout 1,2\n");
	plot_shares(to, config, rows);
	if (config->size_count > 1)
		plot_sizes(to, config, rows);
	else
		plot_bars(to, config, rows);
	fprintf(to, "unset multiplot\n");
	result = pclose(to);
	if (result == -1 || !WIFEXITED(result) || WEXITSTATUS(result))
		return error_set(RMR_SYSTEM, "gnuplot failed; its words are above");
	return RMR_OK;
}
