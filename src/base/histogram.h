/*
 * Histogram: latencies with bounded relative error.
 *
 * Log-linear buckets, as HdrHistogram has them: values below 256 are counted exactly, and every
 * power of two above is divided into 128 buckets, so that a bucket is less than 0.8% wide and the
 * middle of it, which is what is reported, is less than 0.4% away from any value in it.
 *
 *	value     0 .. 255      256 .. 511     512 .. 1023    ...   2^41 .. 2^42-1
 *	buckets   256 of 1      128 of 2       128 of 4             128 of 2^34
 *
 * Values of 2^42 (73 minutes in nanoseconds) and more count as the largest one. Recording is a few
 * instructions and allocates nothing. One thread records into a histogram; give each thread its
 * own and merge them afterwards.
 */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_VALUE_BITS 42
#define HISTOGRAM_LARGEST    ((UINT64_C(1) << HISTOGRAM_VALUE_BITS) - 1)
/* Each power of two has 2^HISTOGRAM_SUB_BITS buckets. */
#define HISTOGRAM_SUB_BITS 7
#define HISTOGRAM_BUCKETS  ((HISTOGRAM_VALUE_BITS - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

struct histogram {
	uint64_t count;
	uint64_t sum;
	uint64_t min; /* exact; UINT64_MAX when empty */
	uint64_t max; /* exact */
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

/* An empty histogram. There is nothing to release. */
void histogram_init(struct histogram *histogram);
void histogram_reset(struct histogram *histogram);

/* The bucket of a value up to HISTOGRAM_LARGEST. With `shift` the power of two that the buckets
 * around it are wide, the index is shift * 128 plus the value's leading eight bits. */
static inline unsigned histogram_bucket(uint64_t value)
{
	unsigned bits = 63u - (unsigned)__builtin_clzll(value | 1);
	unsigned shift = bits > HISTOGRAM_SUB_BITS ? bits - HISTOGRAM_SUB_BITS : 0;

	return (shift << HISTOGRAM_SUB_BITS) + (unsigned)(value >> shift);
}

/* The middle of a bucket: the inverse. */
uint64_t histogram_bucket_middle(unsigned bucket);

static inline void histogram_record(struct histogram *histogram, uint64_t value)
{
	if (value > HISTOGRAM_LARGEST)
		value = HISTOGRAM_LARGEST;
	histogram->buckets[histogram_bucket(value)]++;
	histogram->count++;
	histogram->sum += value;
	if (value < histogram->min)
		histogram->min = value;
	if (value > histogram->max)
		histogram->max = value;
}

/* Adds everything that `from` has recorded. */
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The value that `percent` (0 to 100) of all values do not exceed; 0 when empty. 0 gives the
 * smallest value and 100 the largest, both exact. */
uint64_t histogram_percentile(const struct histogram *histogram, double percent);

uint64_t histogram_count(const struct histogram *histogram);
uint64_t histogram_min(const struct histogram *histogram); /* 0 when empty */
uint64_t histogram_max(const struct histogram *histogram); /* 0 when empty */
double histogram_mean(const struct histogram *histogram);  /* 0 when empty */

#endif
