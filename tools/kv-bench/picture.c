/*
 * A histogram of latencies, drawn in the terminal:
 *
 *	  100ns |                              0.02%
 *	  150ns |##########################   61.40%
 *	  200ns |#########                    21.17%
 *
 * A line counts the operations that took from its time up to the next line's. The steps are 1, 1.5,
 * 2, 3, 5, 7 of each power of ten; when that gives too many lines, 1, 2, 5, or 1 alone. What is
 * rare still shows as a dot, for it is the rare ones that people look for. Behind the last line
 * with a hundredth of a percent the rest is one line, so that the table stays on the screen:
 *
 *	  500us and more: 0.01%, at most 5.20ms
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "rows.h"

#define LINES_MAX   20
#define STEPS_MAX   96
#define LEFT	    10 /* " 100ns |" and a blank */
#define RIGHT	    9  /* "  61.40%" */
#define LEAST_BAR   4
#define MOST_BAR    60
#define SHARE_LEAST 0.00005 /* what is shown as 0.01% */

/* Boundaries in nanoseconds, from 10 ns to 1000 s; the first line takes what is below, too. */
static int make_steps(int fineness, uint64_t steps[STEPS_MAX])
{
	static const double fractions[3][6] = {{1, 1.5, 2, 3, 5, 7}, {1, 2, 5}, {1}};
	static const int counts[3] = {6, 3, 1};
	int count = 0;

	for (double power = 10; power < 1e12; power *= 10)
		for (int i = 0; i < counts[fineness] && count < STEPS_MAX; i++)
			steps[count++] = (uint64_t)(power * fractions[fineness][i]);
	return count;
}

static int step_of(const uint64_t *steps, int count, uint64_t value)
{
	int step = 0;

	while (step + 1 < count && steps[step + 1] <= value)
		step++;
	return step;
}

static void print_time(FILE *file, uint64_t ns)
{
	static const char *const units[] = {"ns", "us", "ms", "s"};
	double value = (double)ns;
	int unit = 0;

	for (; value >= 1e3 && unit < 3; unit++)
		value /= 1e3;
	fprintf(file, "%5g%-2s ", value, units[unit]);
}

static void print_bar(FILE *file, double share, double most, int room)
{
	int length = most > 0 ? (int)lround(share / most * room) : 0;

	for (int i = 0; i < room; i++)
		fputc(i < length ? '#' : i == 0 && share > 0 ? '.' : ' ', file);
}

/* The last line that has a share worth a line; those behind it are told of together. */
static int last_of_note(const uint64_t *counts, int low, int high, uint64_t all)
{
	int last = high;

	while (last > low && (double)counts[last] < SHARE_LEAST * (double)all)
		last--;
	return last;
}

static void print_tail(FILE *file, const struct histogram *latency, uint64_t from_ns,
		       uint64_t count)
{
	char most[TABLE_CELL];

	print_time(file, from_ns);
	fprintf(file, "and more: %.2f%%, at most %s\n",
		100.0 * (double)count / (double)latency->count, table_time(latency->max, most));
}

void picture_print(FILE *file, const struct histogram *latency, const char *title, int width)
{
	uint64_t steps[STEPS_MAX], counts[STEPS_MAX] = {0}, most = 0, rest = 0;
	int room = width - LEFT - RIGHT, fineness = 0, count, low, high, last;

	if (!latency->count)
		return;
	do {
		count = make_steps(fineness, steps);
		low = step_of(steps, count, latency->min);
		high = step_of(steps, count, latency->max);
	} while (high - low >= LINES_MAX && ++fineness < 3);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		if (latency->buckets[i])
			counts[step_of(steps, count, histogram_bucket_middle(i))] +=
				latency->buckets[i];
	for (int i = 0; i < count; i++)
		most = counts[i] > most ? counts[i] : most;
	room = room < LEAST_BAR ? LEAST_BAR : room > MOST_BAR ? MOST_BAR : room;
	fprintf(file, "%s\n", title);
	last = last_of_note(counts, low, high, latency->count);
	for (int i = low; i <= last; i++) {
		print_time(file, steps[i]);
		fputc('|', file);
		print_bar(file, (double)counts[i], (double)most, room);
		fprintf(file, " %6.2f%%\n", 100.0 * (double)counts[i] / (double)latency->count);
	}
	for (int i = last + 1; i <= high; i++)
		rest += counts[i];
	if (last < high)
		print_tail(file, latency, steps[last + 1], rest);
}
