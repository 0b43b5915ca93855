/*
 * The table for people. As wide as its words ask for; when the terminal is narrower, each row
 * becomes a few short lines.
 */
#include <stdio.h>
#include <string.h>

#include "rows.h"

#define INDENT 2

static const struct {
	const char *name;
	double percent;
} percentiles[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}, {"p99.99", 99.99}};

#define PERCENTILES ((int)(sizeof(percentiles) / sizeof(percentiles[0])))

/* 1.23, 12.3, 123: three digits. */
static int decimals_of(double value)
{
	return value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
}

const char *table_time(uint64_t ns, char text[TABLE_CELL])
{
	double value = (double)ns;

	if (ns < 1000)
		snprintf(text, TABLE_CELL, "%uns", (unsigned)ns);
	else if (value < 999.5e3)
		snprintf(text, TABLE_CELL, "%.*fus", decimals_of(value / 1e3), value / 1e3);
	else if (value < 999.5e6)
		snprintf(text, TABLE_CELL, "%.*fms", decimals_of(value / 1e6), value / 1e6);
	else
		snprintf(text, TABLE_CELL, "%.*fs", decimals_of(value / 1e9), value / 1e9);
	return text;
}

const char *table_amount(double amount, char text[TABLE_CELL])
{
	static const char *const units[] = {"", "k", "M", "G", "T"};
	int power = 0;

	while (amount >= 999.5 && power < 4) {
		amount /= 1e3;
		power++;
	}
	snprintf(text, TABLE_CELL, "%.*f%s", power ? decimals_of(amount) : (amount < 9.95), amount,
		 units[power]);
	return text;
}

const char *row_label(const struct row *row, char label[32])
{
	if (row->window > 1)
		snprintf(label, 32, "%s x%u", row->op, row->window);
	else
		snprintf(label, 32, "%s", row->op);
	return label;
}

struct widths {
	int store, label, path; /* 0: no such column */
};

static int larger(int a, int b)
{
	return a > b ? a : b;
}

static struct widths measure(const struct rows *rows, int first, bool has_store)
{
	struct widths widths = {.store = has_store ? 5 : 0, .label = 2, .path = 4};
	char label[32];

	for (int i = first; i < rows->count; i++) {
		const struct row *row = rows->rows[i];

		if (has_store)
			widths.store = larger(widths.store, (int)strlen(store_names[row->store]));
		widths.label = larger(widths.label, (int)strlen(row_label(row, label)));
		widths.path = larger(widths.path, (int)strlen(row->path));
	}
	return widths;
}

/* The label's columns, then two of figures, then the percentiles. */
static int width_of(const struct widths *widths)
{
	return (widths->store ? widths->store + 2 : 0) + widths->label + 2 + widths->path + 2 * 8 +
	       PERCENTILES * 8;
}

static void print_head(const struct widths *widths)
{
	if (widths->store)
		printf("%-*s  ", widths->store, "store");
	printf("%-*s  %-*s%8s%8s", widths->label, "op", widths->path, "path", "ops/s", "B/s");
	for (int i = 0; i < PERCENTILES; i++)
		printf("%8s", percentiles[i].name);
	printf("\n");
}

static void print_row(const struct widths *widths, const struct row *row)
{
	char label[32], text[TABLE_CELL];

	if (widths->store)
		printf("%-*s  ", widths->store, store_names[row->store]);
	printf("%-*s  %-*s", widths->label, row_label(row, label), widths->path, row->path);
	printf("%8s", table_amount(row_rate(row), text));
	printf("%8s", row->bytes ? table_amount(row_bytes_rate(row), text) : "");
	for (int i = 0; i < PERCENTILES; i++)
		printf("%8s",
		       table_time(histogram_percentile(&row->latency, percentiles[i].percent),
				  text));
	printf("\n");
}

static void print_narrow(const struct row *row, bool has_store, int width)
{
	char label[32], text[TABLE_CELL], part[48];
	int column = INDENT;

	printf("%s%s%s%s%s\n", has_store ? store_names[row->store] : "", has_store ? " " : "",
	       row_label(row, label), *row->path ? ", " : "", row->path);
	printf("%*s%s ops/s", INDENT, "", table_amount(row_rate(row), text));
	if (row->bytes)
		printf("  %sB/s", table_amount(row_bytes_rate(row), text));
	printf("\n%*s", INDENT, "");
	for (int i = 0; i < PERCENTILES; i++) {
		int length = snprintf(
			part, sizeof(part), "%s %s", percentiles[i].name,
			table_time(histogram_percentile(&row->latency, percentiles[i].percent),
				   text));

		if (i && column + 2 + length > width) {
			printf("\n%*s", INDENT, "");
			column = INDENT;
		} else if (i) {
			printf("  ");
			column += 2;
		}
		printf("%s", part);
		column += length;
	}
	printf("\n");
}

void table_print(const struct rows *rows, int first, bool has_store, int width)
{
	struct widths widths = measure(rows, first, has_store);
	bool is_narrow = width_of(&widths) > width;

	if (!is_narrow)
		print_head(&widths);
	for (int i = first; i < rows->count; i++) {
		if (is_narrow)
			print_narrow(rows->rows[i], has_store, width);
		else
			print_row(&widths, rows->rows[i]);
	}
}
