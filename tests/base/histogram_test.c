/* The error bound, percentiles against sorted values, and the edges. */
#include "base/histogram.h"

#include <stdlib.h>

#include "harness/test.h"

static struct histogram histogram;

static double relative_error(uint64_t actual, uint64_t expected)
{
	double difference = (double)actual - (double)expected;

	if (difference < 0)
		difference = -difference;
	return expected == 0 ? difference : difference / (double)expected;
}

static void test_empty(void)
{
	histogram_init(&histogram);
	CHECK_EQ(histogram_count(&histogram), 0);
	CHECK_EQ(histogram_min(&histogram), 0);
	CHECK_EQ(histogram_max(&histogram), 0);
	CHECK_EQ(histogram_percentile(&histogram, 50), 0);
	CHECK(histogram_mean(&histogram) == 0.0);
}

static void test_buckets(void)
{
	unsigned last = 0;

	/* Around every power of two the index grows without a gap, and stays inside. */
	for (uint64_t value = 0; value < 4096; value++) {
		unsigned bucket = histogram_bucket(value);

		CHECK(bucket == last || bucket == last + 1);
		last = bucket;
	}
	for (unsigned bits = 8; bits <= HISTOGRAM_VALUE_BITS; bits++) {
		uint64_t power = UINT64_C(1) << bits;

		if (power <= HISTOGRAM_LARGEST)
			CHECK_EQ(histogram_bucket(power), histogram_bucket(power - 1) + 1);
	}
	CHECK_EQ(histogram_bucket(HISTOGRAM_LARGEST), HISTOGRAM_BUCKETS - 1);
}

/* A single value between two others is reported within the bound, whatever its size. */
static void test_error_bound(void)
{
	struct test_rng rng;

	test_rng_init(&rng, 0);
	for (int i = 0; i < 20000; i++) {
		uint64_t value = test_rng_next(&rng) >> (22 + test_rng_below(&rng, 42));

		histogram.count = 0;
		histogram.sum = 0;
		histogram.min = UINT64_MAX;
		histogram.max = 0;
		histogram_record(&histogram, 0);
		histogram_record(&histogram, value);
		histogram_record(&histogram, HISTOGRAM_LARGEST);
		CHECK(relative_error(histogram_percentile(&histogram, 50), value) < 0.01);
		histogram.buckets[0] = 0;
		histogram.buckets[histogram_bucket(value)] = 0;
		histogram.buckets[HISTOGRAM_BUCKETS - 1] = 0;
	}
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void test_percentiles(void)
{
	static const double percents[] = {0, 1, 10, 25, 50, 75, 90, 99, 99.9, 99.99, 100};
	static uint64_t values[50000];
	const size_t count = TEST_COUNT(values);
	struct test_rng rng;
	double sum = 0;

	test_rng_init(&rng, 0);
	histogram_init(&histogram);
	for (size_t i = 0; i < count; i++) {
		values[i] = 100 + test_rng_below(&rng, 1000) * test_rng_below(&rng, 5000);
		histogram_record(&histogram, values[i]);
		sum += (double)values[i];
	}
	qsort(values, count, sizeof(values[0]), compare);
	CHECK_EQ(histogram_count(&histogram), count);
	CHECK_EQ(histogram_min(&histogram), values[0]);
	CHECK_EQ(histogram_max(&histogram), values[count - 1]);
	CHECK(relative_error((uint64_t)histogram_mean(&histogram), (uint64_t)(sum / count)) < 1e-6);
	for (size_t i = 0; i < TEST_COUNT(percents); i++) {
		size_t rank = (size_t)(percents[i] / 100.0 * count + 0.999999);
		uint64_t expected = values[rank == 0 ? 0 : rank - 1];

		CHECK(relative_error(histogram_percentile(&histogram, percents[i]), expected) <
		      0.01);
	}
	CHECK_EQ(histogram_percentile(&histogram, -5), values[0]);
	CHECK_EQ(histogram_percentile(&histogram, 200), values[count - 1]);
}

static void test_saturation(void)
{
	histogram_init(&histogram);
	histogram_record(&histogram, UINT64_MAX);
	histogram_record(&histogram, HISTOGRAM_LARGEST + 1);
	CHECK_EQ(histogram_count(&histogram), 2);
	CHECK_EQ(histogram_min(&histogram), HISTOGRAM_LARGEST);
	CHECK_EQ(histogram_max(&histogram), HISTOGRAM_LARGEST);
	CHECK_EQ(histogram_percentile(&histogram, 50), HISTOGRAM_LARGEST);
}

static void test_merge(void)
{
	static struct histogram other;

	histogram_init(&histogram);
	histogram_init(&other);
	histogram_merge(&histogram, &other);
	CHECK_EQ(histogram_count(&histogram), 0);
	CHECK_EQ(histogram_min(&histogram), 0);
	for (uint64_t i = 0; i < 100; i++) {
		histogram_record(&histogram, i);
		histogram_record(&other, 100 + i);
	}
	histogram_merge(&histogram, &other);
	CHECK_EQ(histogram_count(&histogram), 200);
	CHECK_EQ(histogram_min(&histogram), 0);
	CHECK_EQ(histogram_max(&histogram), 199);
	CHECK_EQ(histogram_percentile(&histogram, 50), 99);
	CHECK(histogram_mean(&histogram) == 99.5);
	histogram_reset(&histogram);
	CHECK_EQ(histogram_count(&histogram), 0);
	CHECK_EQ(histogram_percentile(&histogram, 100), 0);
}

static const struct test tests[] = {
	{"empty", test_empty},
	{"buckets", test_buckets},
	{"error_bound", test_error_bound},
	{"percentiles", test_percentiles},
	{"saturation", test_saturation},
	{"merge", test_merge},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "histogram_test", tests, TEST_COUNT(tests));
}
