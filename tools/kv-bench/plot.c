/*
 * --plot: a picture by gnuplot, which is looked for when it is needed and fed through a pipe.
 *
 * To the left the share of operations that were answered within a time; to the right the rate by
 * the size of values when several were measured, else a bar for each operation and store.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"
#include "rows.h"

#define LEGEND "set key below vertical maxrows 2 samplen 3 height 1 font \",9\"\n"
/* Half of the last number below the axis stands to the right of it. */
#define MARGIN "set rmargin 4\n"

static const char *extension_of(const char *file)
{
	const char *dot = strrchr(file, '.');

	return dot ? dot + 1 : "";
}

enum rmr_status plot_check(const char *file)
{
	char path[PATH_MAX];
	FILE *probe;

	if (strcmp(extension_of(file), "png") && strcmp(extension_of(file), "svg"))
		return error_set(RMR_INVALID, "--plot: '%s' is neither .png nor .svg", file);
	if (!spawn_find("gnuplot", path))
		return error_set(RMR_UNSUPPORTED,
				 "--plot needs gnuplot, which is not in the PATH; apt-get install "
				 "gnuplot-nox");
	probe = fopen(file, "a"); /* said now, not when all is measured */
	if (!probe)
		return error_errno(RMR_SYSTEM, errno, "--plot: %s", file);
	fclose(probe);
	return RMR_OK;
}

/* Whether a row is worth a line: it has figures, and no sum stands for it. */
static bool is_shown(const struct rows *rows, int i)
{
	const struct row *row = rows->rows[i];

	for (int j = 0; !row->is_sum && j < rows->count; j++) {
		const struct row *sum = rows->rows[j];

		if (sum->is_sum && sum->store == row->store && sum->value_size == row->value_size &&
		    sum->window == row->window &&
		    (!strcmp(sum->op, row->op) || !strcmp(sum->op, "all")))
			return false;
	}
	return row->latency.count > 0;
}

/* Whether these two are points of one line: only the size of the values may differ. */
static bool is_one_line(const struct row *a, const struct row *b)
{
	return a->store == b->store && a->window == b->window && !strcmp(a->op, b->op);
}

/* Whether a row begins a line: no earlier one belongs to it. */
static bool is_first(const struct rows *rows, int at)
{
	for (int i = 0; i < at; i++)
		if (is_shown(rows, i) && is_one_line(rows->rows[i], rows->rows[at]))
			return false;
	return is_shown(rows, at);
}

static void write_name(FILE *to, const struct config *config, const struct row *row)
{
	char label[32];

	fprintf(to, "%s%s%s", config->contestant_count > 1 ? store_names[row->store] : "",
		config->contestant_count > 1 ? " " : "", row_label(row, label));
}

/* The same colour for the same operation, another kind of line for another store. */
static void write_style(FILE *to, const struct rows *rows, int at)
{
	int colour = 1;

	for (int i = 0; i < at; i++)
		colour += is_first(rows, i) && rows->rows[i]->store == STORE_KV;
	for (int i = 0; rows->rows[at]->store != STORE_KV && i < at; i++)
		if (is_first(rows, i) && rows->rows[i]->store == STORE_KV &&
		    rows->rows[i]->window == rows->rows[at]->window &&
		    !strcmp(rows->rows[i]->op, rows->rows[at]->op)) {
			write_style(to, rows, i);
			fprintf(to, " dt %d", (int)rows->rows[at]->store + 1);
			return;
		}
	fprintf(to, "lw 2 lc %d", colour);
}

/* A line for each row that begins one, from the block of its number. */
static void write_lines(FILE *to, const struct config *config, const struct rows *rows,
			const char *block, const char *kind)
{
	const char *comma = "plot ";

	for (int i = 0; i < rows->count; i++) {
		if (!is_first(rows, i))
			continue;
		fprintf(to, "%s$%s%d using 1:2 with %s ", comma, block, i, kind);
		write_style(to, rows, i);
		fprintf(to, " title '");
		write_name(to, config, rows->rows[i]);
		fprintf(to, "'");
		comma = ", ";
	}
	fprintf(to, "\n");
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

/* Of the smallest values alone when there are several sizes: a line for each would be a thicket. */
static void plot_shares(FILE *to, const struct config *config, const struct rows *rows)
{
	char size[SIZE_TEXT_LENGTH];

	fprintf(to,
		"set title 'latency, values of %s%s'\nset logscale x\nset xlabel 'microseconds'\n"
		"set ylabel '%% of operations answered'\n" LEGEND MARGIN
		"set yrange [0:100]\nset grid\n",
		size_format(config->value_sizes[0], size),
		config->value_sizes[0] < 1024 ? " bytes" : "");
	for (int i = 0; i < rows->count; i++)
		if (is_first(rows, i))
			write_shares(to, rows->rows[i], i);
	write_lines(to, config, rows, "shares", "lines");
	fprintf(to, "reset\n");
}

/* A line for each operation and store, over all sizes. */
static void plot_sizes(FILE *to, const struct config *config, const struct rows *rows)
{
	fprintf(to,
		"set title 'throughput by size of values'\nset logscale xy\n"
		"set xlabel 'bytes of a value'\nset ylabel 'MB/s'\n" LEGEND MARGIN "set grid\n");
	for (int i = 0; i < rows->count; i++) {
		if (!is_first(rows, i))
			continue;
		fprintf(to, "$sizes%d << EOD\n", i);
		for (int j = i; j < rows->count; j++)
			if (is_shown(rows, j) && is_one_line(rows->rows[i], rows->rows[j]))
				fprintf(to, "%zu %.6f\n", rows->rows[j]->value_size,
					row_bytes_rate(rows->rows[j]) / 1e6);
		fprintf(to, "EOD\n");
	}
	write_lines(to, config, rows, "sizes", "linespoints");
}

/* The rate of one store at what a row of ours has measured, by whatever path; 1 if none. */
static double rate_beside(const struct rows *rows, const struct row *ours, enum store_kind store)
{
	double rate = 0;

	for (int i = 0; i < rows->count; i++)
		if (is_shown(rows, i) && rows->rows[i]->store == store &&
		    rows->rows[i]->window == ours->window && !strcmp(rows->rows[i]->op, ours->op))
			rate += row_rate(rows->rows[i]);
	return rate > 1 ? rate : 1;
}

/* A group of bars for each operation, a bar for each store. */
static void plot_bars(FILE *to, const struct config *config, const struct rows *rows)
{
	const char *last = "";
	char label[32];

	fprintf(to, "$bars << EOD\noperation");
	for (int i = 0; i < config->contestant_count; i++)
		fprintf(to, " %s", store_names[config->contestants[i].kind]);
	fprintf(to, "\n");
	for (int i = 0; i < rows->count; i++) {
		const struct row *row = rows->rows[i];

		if (!is_first(rows, i) || row->store != STORE_KV || !strcmp(row->op, last))
			continue;
		last = row->op;
		fprintf(to, "\"%s\"", row_label(row, label));
		for (int j = 0; j < config->contestant_count; j++)
			fprintf(to, " %.1f", rate_beside(rows, row, config->contestants[j].kind));
		fprintf(to, "\n");
	}
	fprintf(to,
		"EOD\nset title 'operations a second'\nset style data histograms\n"
		"set style histogram clustered gap 1\nset style fill solid 0.7\n"
		"set logscale y\nset yrange [1:*]\nset format y '%%.0s%%c'\nset grid y\n"
		"set key below\nset xtics rotate by -20 noenhanced\n"
		"plot for [i=2:%d] $bars using i:xtic(1) title columnheader(i)\n",
		config->contestant_count + 1);
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
		fprintf(to, "set terminal svg size 1200,600\n");
	else
		fprintf(to, "if (strstrt(GPVAL_TERMINALS, 'pngcairo')) {\n"
			    "set terminal pngcairo size 1200,600\n} else {\n"
			    "set terminal png size 1200,600\n}\n");
	fprintf(to, "set output ");
	write_quoted(to, config->plot);
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
