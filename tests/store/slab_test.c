/*
 * Slabs by themselves: every class filled to its end and given back, what workers keep, emptying of
 * spans, long items.
 */
#include "harness/test.h"
#include "slab_bench.h"
#include "store/slab.h"

static void fill_class(struct slab_bench *bench, unsigned number)
{
	struct slab_class *class = &bench->slab.classes[number];
	uint64_t size = size_class_size(number);
	uint64_t expected = (uint64_t)(bench->pages / class->span_pages) * class->span_places;

	CHECK_EQ(class->size, size);
	CHECK(class->cache_places <= SLAB_CACHE_PLACES);
	/* Each asks until there is none: in the end all places are in use. */
	for (int i = 0; i < SLAB_BENCH_WORKERS; i++) {
		while (slab_bench_take(bench, bench->workers[i], size - i))
			;
	}
	CHECK_EQ(bench->count, expected);
	CHECK_EQ(class->free_places, 0);
	CHECK_EQ(slab_take_free(&bench->slab, bench->workers[0], size), 0);
	slab_bench_check(bench);
	slab_bench_give_all(bench);
}

static void test_every_class(void)
{
	struct slab_bench bench;

	for (unsigned number = 0; number < SLAB_CLASS_COUNT; number++) {
		slab_bench_open(&bench, number % 3 == 0 ? 64 : 37, false);
		fill_class(&bench, number);
		/* The pages are good for any other class. */
		fill_class(&bench, (number + 50) % SLAB_CLASS_COUNT);
		slab_bench_close(&bench);
	}
}

static void test_every_class_in_a_large_pool(void)
{
	struct slab_bench bench;

	slab_bench_open(&bench, 1000, false);
	for (unsigned number = 0; number < SLAB_CLASS_COUNT; number += 4)
		fill_class(&bench, number);
	slab_bench_close(&bench);
}

/* Ends of spans lose little where there is room for long spans. */
static void test_spans_lose_little(void)
{
	struct slab_bench bench;

	slab_bench_open(&bench, 15 * 32, false);
	for (unsigned i = 0; i < SLAB_CLASS_COUNT; i++) {
		const struct slab_class *class = &bench.slab.classes[i];
		uint64_t bytes = class->span_pages * STORE_PAGE_SIZE;
		uint64_t lost = bytes - class->span_places * class->size;

		CHECK(class->span_pages <= 15 && class->span_places >= 1);
		CHECK(lost * 64 <= bytes);
	}
	slab_bench_close(&bench);
}

static void test_random(void)
{
	struct slab_bench bench;

	for (int round = 0; round < 4; round++) {
		slab_bench_open(&bench, 50 << 2 * round, false);
		for (int i = 1; i <= 40000; i++) {
			uint64_t size = 40 + test_rng_below(&bench.rng,
							    64u << test_rng_below(&bench.rng, 15));
			bool filling = i / 3000 % 2 == 0;

			if (test_rng_below(&bench.rng, 100) < (filling ? 80u : 20u))
				slab_bench_take(&bench, slab_bench_worker(&bench), size);
			else if (bench.count)
				slab_bench_give(&bench, slab_bench_worker(&bench),
						test_rng_below(&bench.rng, bench.count));
			if (i % 1000 == 0)
				slab_bench_check(&bench);
		}
		slab_bench_give_all(&bench);
		slab_bench_close(&bench);
	}
}

/* ------------------------------------------------------------------------------------------
 * What workers keep
 */

static void test_caches(void)
{
	struct slab_bench bench;

	slab_bench_open(&bench, 256, false);
	for (unsigned number = 0; number < SLAB_CLASS_COUNT; number++) {
		const struct slab_class *class = &bench.slab.classes[number];
		const struct slab_cache *cache = &bench.workers[1]->caches[number];

		for (int i = 0; i < 100 && slab_bench_take(&bench, bench.workers[0], class->size);
		     i++)
			;
		/* By another worker than the one that took them. */
		while (bench.count) {
			slab_bench_give(&bench, bench.workers[1],
					test_rng_below(&bench.rng, bench.count));
			CHECK(cache->count <= class->cache_places);
			CHECK(cache->count * class->size <= SLAB_CACHE_BYTES);
		}
		slab_bench_check(&bench);
		slab_worker_drain(&bench.slab, bench.workers[1]);
		CHECK_EQ(cache->count, 0);
		slab_bench_check_unused(&bench);
		slab_bench_give_all(&bench);
	}
	slab_bench_close(&bench);
}

/* What one worker keeps another cannot take; once it is given up it can. */
static void test_kept_places(void)
{
	struct slab_bench bench;
	uint64_t size = 20 << 10;
	size_t all;

	slab_bench_open(&bench, 40, false);
	while (slab_bench_take(&bench, bench.workers[0], size))
		;
	all = bench.count;
	slab_bench_give(&bench, bench.workers[1], 0);
	CHECK_EQ(bench.workers[1]->caches[slab_class_of(size)].count, 1);
	CHECK(!slab_bench_take(&bench, bench.workers[0], size));
	CHECK_EQ(slab_take_free(&bench.slab, bench.workers[0], size), 0);
	slab_worker_drain(&bench.slab, bench.workers[1]);
	CHECK(slab_bench_take(&bench, bench.workers[0], size));
	CHECK_EQ(bench.count, all);
	slab_bench_give_all(&bench);
	slab_bench_close(&bench);
}

/* ------------------------------------------------------------------------------------------
 * Emptying spans
 */

/* How many of the places in use, and of those that workers keep, lie in the span. */
static size_t count_in_span(const struct slab_bench *bench, uint32_t page)
{
	size_t count = 0;

	for (size_t i = 0; i < bench->count; i++)
		count += slab_page_of(&bench->slab, bench->offsets[i]) == page;
	return count;
}

static size_t count_kept(const struct slab_bench *bench, unsigned number, uint32_t page)
{
	size_t count = 0;

	for (int i = 0; i < SLAB_BENCH_WORKERS; i++) {
		const struct slab_cache *cache = &bench->workers[i]->caches[number];

		for (uint32_t j = 0; j < cache->count; j++)
			count += slab_page_of(&bench->slab, cache->places[j]) == page;
	}
	return count;
}

static void give_in_span(struct slab_bench *bench, uint32_t page, size_t leave)
{
	for (size_t i = bench->count; i-- > 0;) {
		if (slab_page_of(&bench->slab, bench->offsets[i]) == page &&
		    count_in_span(bench, page) > leave)
			slab_bench_give(bench, slab_bench_worker(bench), i);
	}
}

static void drain_class(unsigned number)
{
	struct slab_bench bench;
	struct slab_class *class;
	uint32_t page;

	slab_bench_open(&bench, 64, false);
	class = &bench.slab.classes[number];
	for (int i = 0; i < 400; i++)
		slab_bench_take(&bench, slab_bench_worker(&bench), class->size);
	for (int i = 0; i < 60 && bench.count > 2; i++)
		slab_bench_give(&bench, slab_bench_worker(&bench),
				test_rng_below(&bench.rng, bench.count));
	page = slab_page_of(&bench.slab, bench.offsets[0]);

	/* Something is left in it: it goes on. */
	CHECK(slab_drain_begin(&bench.slab, page, bench.workers, SLAB_BENCH_WORKERS));
	CHECK_EQ(count_kept(&bench, number, page), 0);
	give_in_span(&bench, page, 1);
	CHECK_EQ(count_kept(&bench, number, page), 0);
	/* Nothing new comes from it, although it has free places. */
	for (int i = 0; i < 100 && slab_bench_take(&bench, slab_bench_worker(&bench), class->size);
	     i++)
		;
	CHECK_EQ(count_in_span(&bench, page), 1);
	CHECK(!slab_drain_end(&bench.slab, page, bench.workers, SLAB_BENCH_WORKERS));
	slab_bench_check(&bench);

	/* The last is given back while it is emptied: the pages are free. */
	CHECK(slab_drain_begin(&bench.slab, page, bench.workers, SLAB_BENCH_WORKERS));
	give_in_span(&bench, page, 0);
	CHECK(slab_drain_end(&bench.slab, page, bench.workers, SLAB_BENCH_WORKERS));
	CHECK_EQ(slab_page_of(&bench.slab, (uint64_t)page << STORE_PAGE_BITS), 0);
	/* Whoever comes later finds no span. */
	CHECK(!slab_drain_begin(&bench.slab, page, bench.workers, SLAB_BENCH_WORKERS));
	slab_bench_check(&bench);
	slab_bench_give_all(&bench);
	slab_bench_close(&bench);
}

static void test_drain(void)
{
	for (unsigned number = 0; number < SLAB_CLASS_COUNT; number += 5)
		drain_class(number);
}

/* The hand comes by every place once a lap. */
static void test_hand(void)
{
	struct slab_bench bench;
	struct slab_class *class;
	uint64_t offsets[16], places = 0, in_use = 0;
	bool lapped = false;

	slab_bench_open(&bench, 64, false);
	class = &bench.slab.classes[slab_class_of(1000)];
	for (int i = 0; i < 500; i++)
		CHECK(slab_bench_take(&bench, bench.workers[0], 1000));
	while (!lapped) {
		unsigned count =
			slab_hand_next(&bench.slab, slab_class_of(1000), offsets, 16, &lapped);

		CHECK(count >= 1 && count <= 16);
		for (unsigned i = 0; i < count; i++) {
			CHECK(slab_is_place(&bench.slab, offsets[i]));
			for (size_t j = 0; j < bench.count; j++)
				in_use += bench.offsets[j] == offsets[i];
		}
		places += count;
	}
	CHECK_EQ(places, class->pages / class->span_pages * class->span_places);
	CHECK_EQ(in_use, 500);
	slab_bench_give_all(&bench);
	CHECK_EQ(slab_hand_next(&bench.slab, slab_class_of(1000), offsets, 16, &lapped), 0);
	CHECK_EQ(slab_hand_next_span(&bench.slab, slab_class_of(1000), &lapped), 0);
	CHECK_EQ(slab_emptiest(&bench.slab, slab_class_of(1000)), 0);
	slab_bench_close(&bench);
}

/* ------------------------------------------------------------------------------------------
 * Long items
 */

static void test_long(void)
{
	struct slab_bench bench;
	uint64_t all, offset;

	slab_bench_open(&bench, 100, false);
	all = bench.pages * STORE_PAGE_SIZE;
	CHECK_EQ(slab_class_of(SLAB_MAX_SIZE), SLAB_CLASS_COUNT - 1);
	CHECK_EQ(slab_class_of(SLAB_MAX_SIZE + 1), SLAB_LONG);
	/* Exactly what there is, and one byte more. */
	CHECK(!slab_bench_take(&bench, bench.workers[0], all + 1));
	CHECK(!slab_bench_take(&bench, bench.workers[0], SIZE_CLASS_MAX_SIZE));
	CHECK(slab_bench_take(&bench, bench.workers[0], all));
	CHECK(!slab_bench_take(&bench, bench.workers[1], 64));
	offset = bench.offsets[0];
	for (uint64_t i = 1; i < bench.pages; i++) {
		CHECK(!slab_is_place(&bench.slab, offset + i * STORE_PAGE_SIZE));
		CHECK_EQ(slab_page_of(&bench.slab, offset + i * STORE_PAGE_SIZE), SLAB_BENCH_FIRST);
	}
	slab_bench_give_all(&bench);
	/* One byte over a page costs a page. */
	CHECK(slab_bench_take(&bench, bench.workers[2], 10 * STORE_PAGE_SIZE + 1));
	CHECK_EQ(bench.slab.classes[SLAB_LONG].pages, 11);
	for (int i = 1; i < 9; i++)
		CHECK(slab_bench_take(&bench, bench.workers[0], 11 * STORE_PAGE_SIZE));
	CHECK(!slab_bench_take(&bench, bench.workers[0], SLAB_MAX_SIZE + 1));
	CHECK_EQ(bench.pool.free_pages, 1);
	slab_bench_give_all(&bench);
	slab_bench_close(&bench);
}

static void test_zero_freed(void)
{
	static const uint64_t sizes[] = {64, 1000, 70000, SLAB_MAX_SIZE + 5000};
	struct slab_bench bench;

	slab_bench_open(&bench, 64, true);
	for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
		const uint64_t *words;

		CHECK(slab_bench_take(&bench, bench.workers[0], sizes[i]));
		words = (const uint64_t *)(bench.memory + bench.offsets[0]);
		slab_bench_give(&bench, bench.workers[0], 0);
		slab_worker_drain(&bench.slab, bench.workers[0]);
		/* The second word may link it to the next free place. */
		for (uint64_t j = 0; j < sizes[i] / 8; j++)
			CHECK(j == 1 || words[j] == 0);
	}
	slab_bench_give_all(&bench);
	slab_bench_close(&bench);
}

/* One thread alone: nothing for the thread sanitizer, which takes its time. */
#define SLOW_IN_TSAN (TEST_HAS_TSAN ? TEST_SLOW : 0)

static const struct test tests[] = {
	{"every_class_to_the_end", test_every_class, SLOW_IN_TSAN},
	{"every_class_in_a_large_pool", test_every_class_in_a_large_pool, TEST_SLOW},
	{"spans_lose_little", test_spans_lose_little},
	{"random_sizes", test_random, SLOW_IN_TSAN},
	{"caches_are_bounded", test_caches},
	{"kept_places", test_kept_places},
	{"drain", test_drain},
	{"the_hand_goes_round", test_hand},
	{"long_items", test_long},
	{"zero_freed", test_zero_freed},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "slab", tests, TEST_COUNT(tests));
}
