/*
 * --plot: a picture by gnuplot, which is looked for when it is needed and fed through a pipe.
 *
 * A column for each operation, so that a get is never drawn over a put. Above, how long operations
 * took: the percentile runs to the right, each nine as wide as the one before, so that the slowest
 * ones are as visible as the others. Below, the rate by the size of values when several were
 * measured, else a bar for each store.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"
#include "rows.h"

#define COLUMNS_MAX  4
#define COLUMN_WIDTH 640
#define PICTURE_HIGH 960
#define FONT	     "font 'sans,13'"
#define LEGEND	     "set key top left samplen 2\nset grid\n"
/* Half of the last number below the axis stands to the right of it. */
#define MARGIN "set rmargin 5\nset lmargin 12\n"
#define TIMES                                                                                      \
	"'10 ns' 0.01, '100 ns' 0.1, '1 us' 1, '10 us' 10, '100 us' 100, '1 ms' 1000, "            \
	"'10 ms' 10000, '100 ms' 1e5, '1 s' 1e6, '10 s' 1e7"
/* In a format of printf, of formats of gnuplot: %%%% is a percent sign. */
#define PERCENTILES                                                                                \
	"'50%%%%' 0.30103, '90%%%%' 1, '99%%%%' 2, '99.9%%%%' 3, '99.99%%%%' 4, "                  \
	"'99.999%%%%' 5"

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

/* Whether a row belongs to the column of another: the same operation, with as many under way. */
static bool is_in_column(const struct row *row, const struct row *column)
{
	return row->window == column->window && !strcmp(row->op, column->op);
}

/* The rows that begin a column each, in their order. Returns how many there are. */
static int find_columns(const struct rows *rows, const struct row *columns[COLUMNS_MAX])
{
	int count = 0;

	for (int i = 0; i < rows->count && count < COLUMNS_MAX; i++) {
		bool is_new = is_shown(rows, i);

		for (int j = 0; j < count; j++)
			is_new &= !is_in_column(rows->rows[i], columns[j]);
		if (is_new)
			columns[count++] = rows->rows[i];
	}
	return count;
}

/* Every store has a colour of its own, in all columns. */
static void write_lines(FILE *to, const struct rows *rows, const struct row *column,
			const char *block, const char *kind)
{
	const char *comma = "plot ";

	for (int i = 0; i < rows->count; i++) {
		const struct row *row = rows->rows[i];

		if (!is_first(rows, i) || !is_in_column(row, column))
			continue;
		fprintf(to, "%s$%s%d using 1:2 with %s lw 2.5 lc %d title '%s'", comma, block, i,
			kind, (int)row->store + 1, store_names[row->store]);
		comma = ", ";
	}
	fprintf(to, "\n");
}

/* The percentile, as minus the logarithm of the share that took longer, and microseconds. Of the
 * last one half an operation is said to have taken longer: it has to end somewhere. */
static void write_percentiles(FILE *to, const struct row *row, int block)
{
	double count = (double)row->latency.count;
	uint64_t seen = 0;

	fprintf(to, "$percentiles%d << EOD\n", block);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		double longer = (count - (double)seen) / count;

		if (!row->latency.buckets[i])
			continue;
		fprintf(to, "%.6f %.4f\n", -log10(longer),
			(double)histogram_bucket_middle(i) / 1e3);
		seen += row->latency.buckets[i];
		longer = (count - (double)seen + 0.5) / count;
		fprintf(to, "%.6f %.4f\n", -log10(longer < 1 ? longer : 1),
			(double)histogram_bucket_middle(i) / 1e3);
	}
	fprintf(to, "EOD\n");
}

/* Of the smallest values alone when there are several sizes. */
static void plot_latency(FILE *to, const struct config *config, const struct rows *rows,
			 const struct row *column)
{
	char size[SIZE_TEXT_LENGTH], label[32];

	fprintf(to,
		"set title '%s: latency, values of %s%s'\nset logscale y\nset xlabel 'percentile'\n"
		"set ylabel 'latency'\nset ytics (" TIMES ")\nset xtics (" PERCENTILES ")\n"
		"set xrange [0:5]\n" LEGEND MARGIN,
		row_label(column, label), size_format(config->value_sizes[0], size),
		config->value_sizes[0] < 1024 ? " bytes" : "");
	for (int i = 0; i < rows->count; i++)
		if (is_first(rows, i) && is_in_column(rows->rows[i], column))
			write_percentiles(to, rows->rows[i], i);
	write_lines(to, rows, column, "percentiles", "lines");
	fprintf(to, "reset\n");
}

/* A line for each store, over all sizes. */
static void plot_sizes(FILE *to, const struct config *config, const struct rows *rows,
		       const struct row *column)
{
	char size[SIZE_TEXT_LENGTH], label[32];

	fprintf(to,
		"set title '%s: operations a second'\nset logscale xy\nset format y '%%.0s%%c'\n",
		row_label(column, label));
	fprintf(to, "set xlabel 'size of a value'\nset ylabel 'operations a second'\nset xtics (");
	for (int i = 0; i < config->size_count; i++)
		fprintf(to, "%s'%s%s' %zu", i ? ", " : "",
			size_format(config->value_sizes[i], size),
			config->value_sizes[i] < 1024 ? " B" : "", config->value_sizes[i]);
	fprintf(to, ")\n" LEGEND MARGIN "set key top right\n");
	for (int i = 0; i < rows->count; i++) {
		if (!is_first(rows, i) || !is_in_column(rows->rows[i], column))
			continue;
		fprintf(to, "$sizes%d << EOD\n", i);
		for (int j = i; j < rows->count; j++)
			if (is_shown(rows, j) && is_one_line(rows->rows[i], rows->rows[j]))
				fprintf(to, "%zu %.6f\n", rows->rows[j]->value_size,
					row_rate(rows->rows[j]));
		fprintf(to, "EOD\n");
	}
	write_lines(to, rows, column, "sizes", "linespoints");
	fprintf(to, "reset\n");
}

/* The rate of one store at what a column shows, by all paths; 1 if none. */
static double rate_of(const struct rows *rows, const struct row *column, enum store_kind store)
{
	double rate = 0;

	for (int i = 0; i < rows->count; i++)
		if (is_shown(rows, i) && rows->rows[i]->store == store &&
		    is_in_column(rows->rows[i], column))
			rate += row_rate(rows->rows[i]);
	return rate > 1 ? rate : 1;
}

/* A bar for each store. */
static void plot_bars(FILE *to, const struct config *config, const struct rows *rows,
		      const struct row *column)
{
	char label[32];

	fprintf(to, "$bars << EOD\n");
	for (int i = 0; i < config->contestant_count; i++) {
		enum store_kind kind = config->contestants[i].kind;

		fprintf(to, "%d \"%s\" %.1f %d\n", i, store_names[kind],
			rate_of(rows, column, kind), (int)kind + 1);
	}
	fprintf(to,
		"EOD\nset title '%s: operations a second'\nset style fill solid 0.8\n"
		"set boxwidth 0.6\nset logscale y\nset yrange [1:*]\nset format y '%%.0s%%c'\n"
		"set ylabel 'operations a second'\nset grid y\nunset key\n" MARGIN
		"set xrange [-0.7:%d.7]\n"
		"plot $bars using 1:3:4:xtic(2) with boxes lc variable\nreset\n",
		row_label(column, label), config->contestant_count - 1);
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
	const struct row *columns[COLUMNS_MAX];
	int count = find_columns(rows, columns), result;
	FILE *to;

	if (!count)
		return error_set(RMR_INVALID, "--plot: nothing was measured that has a latency");
	to = popen("gnuplot", "w");
	if (!to)
		return error_errno(RMR_SYSTEM, errno, "gnuplot");
	if (!strcmp(extension_of(config->plot), "svg"))
		fprintf(to, "set terminal svg size %d,%d " FONT "\n", count * COLUMN_WIDTH,
			PICTURE_HIGH);
	else
		fprintf(to,
			"if (strstrt(GPVAL_TERMINALS, 'pngcairo')) {\n"
			"set terminal pngcairo size %d,%d " FONT "\n} else {\n"
			"set terminal png size %d,%d\n}\n",
			count * COLUMN_WIDTH, PICTURE_HIGH, count * COLUMN_WIDTH, PICTURE_HIGH);
	fprintf(to, "set output ");
	write_quoted(to, config->plot);
	fprintf(to, "set multiplot layout 2,%d\n", count);
	for (int i = 0; i < count; i++)
		plot_latency(to, config, rows, columns[i]);
	for (int i = 0; i < count; i++)
		if (config->size_count > 1)
			plot_sizes(to, config, rows, columns[i]);
		else
			plot_bars(to, config, rows, columns[i]);
	fprintf(to, "unset multiplot\n");
	result = pclose(to);
	if (result == -1 || !WIFEXITED(result) || WEXITSTATUS(result))
		return error_set(RMR_SYSTEM, "gnuplot failed; its words are above");
	return RMR_OK;
}
