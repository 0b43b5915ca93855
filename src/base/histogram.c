/* The slow half of the histogram: merging and asking. Recording is in the header. */
#include "base/histogram.h"

#include <string.h>

void histogram_init(struct histogram *histogram)
{
	memset(histogram, 0, sizeof(*histogram));
	histogram->min = UINT64_MAX;
}

void histogram_reset(struct histogram *histogram)
{
	histogram_init(histogram);
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
	into->count += from->count;
	into->sum += from->sum;
	if (from->min < into->min)
		into->min = from->min;
	if (from->max > into->max)
		into->max = from->max;
}

uint64_t histogram_bucket_middle(unsigned bucket)
{
	const unsigned sub_buckets = 1u << HISTOGRAM_SUB_BITS;
	unsigned shift;
	uint64_t lowest;

	if (bucket < 2 * sub_buckets)
		return bucket;
	shift = (bucket >> HISTOGRAM_SUB_BITS) - 1;
	lowest = (uint64_t)(sub_buckets + (bucket & (sub_buckets - 1))) << shift;
	return lowest + (UINT64_C(1) << shift) / 2;
}

uint64_t histogram_percentile(const struct histogram *histogram, double percent)
{
	double exact_rank = percent / 100.0 * (double)histogram->count;
	uint64_t rank = (uint64_t)exact_rank;
	uint64_t seen = 0;

	if (histogram->count == 0)
		return 0;
	if (percent <= 0.0)
		return histogram->min;
	if ((double)rank < exact_rank)
		rank++;
	if (rank >= histogram->count)
		return histogram->max;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += histogram->buckets[i];
		if (seen >= rank) {
			uint64_t value = histogram_bucket_middle(i);

			/* The middle of an outer bucket may lie beyond what was recorded. */
			if (value < histogram->min)
				return histogram->min;
			return value > histogram->max ? histogram->max : value;
		}
	}
	return histogram->max;
}

uint64_t histogram_count(const struct histogram *histogram)
{
	return histogram->count;
}

uint64_t histogram_min(const struct histogram *histogram)
{
	return histogram->count == 0 ? 0 : histogram->min;
}

uint64_t histogram_max(const struct histogram *histogram)
{
	return histogram->max;
}

double histogram_mean(const struct histogram *histogram)
{
	if (histogram->count == 0)
		return 0.0;
	return (double)histogram->sum / (double)histogram->count;
}
