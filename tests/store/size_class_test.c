/*
 * Size classes: every border, and every size up to a few megabytes against a walk through the
 * classes.
 */
#include "harness/test.h"
#include "store/size_class.h"

#define EXHAUSTIVE_UP_TO ((uint64_t)4 << 20)

static void test_known_classes(void)
{
	static const struct {
		unsigned number;
		uint64_t size;
	} known[] = {{0, 64},	    {1, 72},
		     {7, 120},	    {8, 128},
		     {9, 144},	    {15, 240},
		     {16, 256},	    {48, 4096},
		     {49, 4608},    {56, 8192},
		     {80, 65536},   {103, 491520},
		     {104, 524288}, {255, SIZE_CLASS_MAX_SIZE}};

	for (size_t i = 0; i < TEST_COUNT(known); i++) {
		CHECK_EQ(size_class_size(known[i].number), known[i].size);
		CHECK_EQ(size_class_of(known[i].size), known[i].number);
	}
}

/* A class holds its own size, and nothing that the class before it would hold. */
static void test_borders(void)
{
	for (unsigned i = 0; i < SIZE_CLASS_COUNT; i++) {
		uint64_t size = size_class_size(i);

		CHECK_EQ(size_class_of(size), i);
		if (i + 1 < SIZE_CLASS_COUNT)
			CHECK_EQ(size_class_of(size + 1), i + 1);
		if (i > 0) {
			CHECK_EQ(size_class_of(size - 1), i);
			CHECK_EQ(size_class_of(size_class_size(i - 1) + 1), i);
		}
	}
}

static void test_smallest(void)
{
	for (uint64_t size = 0; size <= 64; size++)
		CHECK_EQ(size_class_of(size), 0);
	CHECK_EQ(size_class_of(65), 1);
}

static void test_largest(void)
{
	CHECK_EQ(size_class_size(SIZE_CLASS_COUNT - 1), SIZE_CLASS_MAX_SIZE);
	CHECK_EQ(size_class_of(SIZE_CLASS_MAX_SIZE), SIZE_CLASS_COUNT - 1);
	CHECK_EQ(size_class_of(SIZE_CLASS_MAX_SIZE - 1), SIZE_CLASS_COUNT - 1);
	CHECK_EQ(size_class_of(size_class_size(SIZE_CLASS_COUNT - 2)), SIZE_CLASS_COUNT - 2);
}

/* The number of a slab class is below SLAB_CLASS_COUNT for exactly the sizes that slabs hold. */
static void test_slab_limit(void)
{
	CHECK_EQ(size_class_of(SLAB_MAX_SIZE), SLAB_CLASS_COUNT - 1);
	CHECK_EQ(size_class_size(SLAB_CLASS_COUNT - 1), SLAB_MAX_SIZE);
	CHECK_EQ(size_class_of(SLAB_MAX_SIZE + 1), SLAB_CLASS_COUNT);
}

/* Neighbours are 6 to 12.5% apart, and every place is aligned for an item. */
static void test_spacing(void)
{
	for (unsigned i = 0; i + 1 < SIZE_CLASS_COUNT; i++) {
		uint64_t size = size_class_size(i), next = size_class_size(i + 1);

		CHECK(next > size);
		CHECK(size % 8 == 0);
		if ((next - size) * 1000 > size * 125)
			TEST_FAIL("class %u: %lu to %lu is more than 12.5%%", i, size, next);
		if ((next - size) * 100 < size * 6)
			TEST_FAIL("class %u: %lu to %lu is less than 6%%", i, size, next);
	}
}

static void test_every_size(void)
{
	unsigned expected = 0;

	for (uint64_t size = 1; size <= EXHAUSTIVE_UP_TO; size++) {
		expected += size > size_class_size(expected);
		if (size_class_of(size) != expected)
			TEST_FAIL("size %lu: class %u, not %u", size, size_class_of(size),
				  expected);
	}
}

static void test_random_sizes(void)
{
	struct test_rng rng;

	test_rng_init(&rng, 1);
	for (int i = 0; i < 1000000; i++) {
		uint64_t size =
			1 + test_rng_below(&rng, SIZE_CLASS_MAX_SIZE >> test_rng_below(&rng, 30));
		unsigned number = size_class_of(size);

		CHECK(number < SIZE_CLASS_COUNT);
		CHECK(size <= size_class_size(number));
		CHECK(number == 0 || size > size_class_size(number - 1));
	}
}

static const struct test tests[] = {
	{"known_classes", test_known_classes},
	{"borders", test_borders},
	{"the_smallest", test_smallest},
	{"the_largest", test_largest},
	{"the_limit_of_slabs", test_slab_limit},
	{"spacing", test_spacing},
	{"every_size_up_to_4_mib", test_every_size},
	{"random_sizes", test_random_sizes},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "size_class", tests, TEST_COUNT(tests));
}
