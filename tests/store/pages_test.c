/*
 * The pool of pages against a plain array that says who has each page.
 *
 * The array also knows the longest free run there is, so it knows for every request whether it must
 * be granted: the pool may neither refuse what is there nor give anything twice. Pages of buckets
 * are never given back, as in the store.
 */
#include <stdlib.h>

#include "harness/test.h"
#include "store/pages.h"

#define FIRST	 3u /* pages before it are not the pool's */
#define MAX_RUNS 4096

struct model {
	struct test_rng rng;
	struct page_pool pool;
	struct page_info *table;
	uint32_t count;
	bool *used; /* by page */
	/* Runs in use. */
	uint32_t pages[MAX_RUNS];
	uint32_t lengths[MAX_RUNS];
	unsigned runs;
};

static void check_valid(struct model *model)
{
	char why[256] = "";

	if (!page_pool_is_valid(&model->pool, why, sizeof(why)))
		TEST_FAIL("the pool is not valid: %s", why);
}

/* A pool in which all pages, or none, are free. */
static void open_pool(struct model *model, uint32_t usable, bool free_all)
{
	*model = (struct model){.count = FIRST + usable};
	test_rng_init(&model->rng, usable);
	model->table = calloc(model->count, sizeof(*model->table));
	model->used = calloc(model->count, sizeof(*model->used));
	CHECK(model->table && model->used);
	page_pool_init(&model->pool, model->table, FIRST, model->count);
	if (free_all) {
		page_pool_adopt(&model->pool, FIRST, usable, PAGE_FREE, 0);
		check_valid(model);
	}
}

static void close_pool(struct model *model)
{
	free(model->table);
	free(model->used);
}

static uint32_t longest_free(const struct model *model)
{
	uint32_t longest = 0, run = 0;

	for (uint32_t i = FIRST; i < model->count; i++) {
		run = model->used[i] ? 0 : run + 1;
		longest = run > longest ? run : longest;
	}
	return longest;
}

static uint32_t count_free(const struct model *model)
{
	uint32_t count = 0;

	for (uint32_t i = FIRST; i < model->count; i++)
		count += !model->used[i];
	return count;
}

/* The pool says that [page, page + pages) is ours now. */
static void note_taken(struct model *model, uint32_t page, uint32_t pages, enum page_use use)
{
	CHECK(page >= FIRST && pages >= 1 && pages <= model->count - page);
	for (uint32_t i = page; i < page + pages; i++) {
		CHECK(!model->used[i]);
		model->used[i] = true;
		CHECK_EQ(page_head(&model->pool, i), page);
		CHECK_EQ(page_use(&model->pool, i), i == page ? use : PAGE_BODY);
	}
	CHECK_EQ(model->table[page].run, pages);
	if (use == PAGE_BUCKETS)
		return;
	CHECK(model->runs < MAX_RUNS);
	model->pages[model->runs] = page;
	model->lengths[model->runs++] = pages;
}

/* Returns 0 if nothing was to be had, which the model agrees with. */
static uint32_t take(struct model *model, uint32_t pages)
{
	enum page_use use = test_rng_below(&model->rng, 2) ? PAGE_SPAN : PAGE_LONG;
	unsigned size_class = (unsigned)test_rng_below(&model->rng, 100);
	uint32_t longest = longest_free(model);
	uint32_t page = page_pool_take(&model->pool, pages, use, size_class);

	CHECK_EQ(page != 0, pages >= 1 && pages <= longest);
	if (page) {
		note_taken(model, page, pages, use);
		CHECK_EQ(model->table[page].size_class, size_class);
		CHECK_EQ(model->table[page].soonest_ms, UINT64_MAX);
	}
	return page;
}

static uint32_t take_high(struct model *model)
{
	bool any = longest_free(model) > 0;
	uint32_t page = page_pool_take_high(&model->pool, PAGE_BUCKETS);

	CHECK_EQ(page != 0, any);
	if (page)
		note_taken(model, page, 1, PAGE_BUCKETS);
	return page;
}

static void give(struct model *model, unsigned run)
{
	for (uint32_t i = 0; i < model->lengths[run]; i++)
		model->used[model->pages[run] + i] = false;
	page_pool_give(&model->pool, model->pages[run]);
	model->runs--;
	model->pages[run] = model->pages[model->runs];
	model->lengths[run] = model->lengths[model->runs];
}

static void give_all(struct model *model)
{
	while (model->runs)
		give(model, (unsigned)test_rng_below(&model->rng, model->runs));
	check_valid(model);
}

/* Everything is one run again: all of it can be had at once. */
static void check_joined(struct model *model)
{
	uint32_t all = model->count - FIRST;

	CHECK_EQ(model->pool.free_pages, all);
	CHECK_EQ(take(model, all), FIRST);
	CHECK_EQ(take(model, 1), 0);
	check_valid(model);
	give_all(model);
}

/* `high`: how many pages of buckets are taken meanwhile. */
static void run_random(uint32_t usable, uint32_t longest, unsigned steps, unsigned check_every,
		       unsigned high)
{
	struct model model;

	open_pool(&model, usable, true);
	for (unsigned i = 1; i <= steps; i++) {
		uint64_t kind = test_rng_below(&model.rng, 100);

		/* Now and then it fills up, and now and then it becomes nearly empty. */
		bool filling = i / 200 % 2;

		if (high && test_rng_below(&model.rng, steps / high) == 0)
			take_high(&model);
		else if (kind < (filling ? 65u : 40u) || model.runs == 0)
			take(&model, 1 + (uint32_t)test_rng_below(&model.rng, longest));
		else
			give(&model, (unsigned)test_rng_below(&model.rng, model.runs));
		CHECK_EQ(model.pool.free_pages, count_free(&model));
		if (i % check_every == 0)
			check_valid(&model);
	}
	give_all(&model);
	if (!high)
		check_joined(&model);
	close_pool(&model);
}

static void test_random_small(void)
{
	run_random(1, 2, 1000, 1, 0);
	run_random(2, 3, 2000, 1, 0);
	run_random(13, 6, 20000, 1, 0);
	run_random(61, 20, 50000, 1, 0);
}

static void test_random_single_pages(void)
{
	run_random(300, 1, 20000, 7, 0);
}

static void test_random_large(void)
{
	run_random(1500, 40, 30000, 50, 0);
	run_random(1500, 1500, 10000, 50, 0);
	run_random(1500, 40, 30000, 50, 300);
}

static void test_random_with_buckets(void)
{
	run_random(13, 6, 5000, 1, 10);
	run_random(100, 20, 20000, 1, 50);
	run_random(100, 1, 20000, 1, 100);
}

static void test_every_length(void)
{
	struct model model;

	for (uint32_t all = 1; all <= 70; all++) {
		open_pool(&model, all, true);
		for (uint32_t pages = 0; pages <= all + 2; pages++) {
			take(&model, pages);
			check_valid(&model);
			give_all(&model);
		}
		CHECK_EQ(page_pool_take(&model.pool, UINT32_MAX, PAGE_LONG, 0), 0);
		check_joined(&model);
		close_pool(&model);
	}
}

static void test_exhaustion(void)
{
	struct model model;

	open_pool(&model, 50, true);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 50; i++)
			CHECK(take(&model, 1));
		CHECK_EQ(take(&model, 1), 0);
		CHECK_EQ(take_high(&model), 0);
		CHECK_EQ(model.pool.free_pages, 0);
		check_valid(&model);
		give_all(&model);
		check_joined(&model);
	}
	close_pool(&model);
}

/* Every second page is free: half of the memory, and no two in a row. */
static void test_fragments(void)
{
	struct model model;

	open_pool(&model, 100, true);
	for (int i = 0; i < 100; i++)
		take(&model, 1);
	for (unsigned run = 0; run < model.runs;) {
		if (model.pages[run] % 2)
			give(&model, run);
		else
			run++;
	}
	CHECK_EQ(model.pool.free_pages, 50);
	CHECK_EQ(take(&model, 2), 0);
	check_valid(&model);
	/* One page between two free ones joins the three. */
	for (unsigned run = 0; run < model.runs; run++) {
		if (model.pages[run] == 50)
			give(&model, run);
	}
	CHECK_EQ(longest_free(&model), 3);
	CHECK_EQ(take(&model, 3), 49);
	check_valid(&model);
	give_all(&model);
	check_joined(&model);
	close_pool(&model);
}

/* Segments of buckets come from the end, one below the other, while others come from the start. */
static void test_high_and_low(void)
{
	struct model model;

	open_pool(&model, 60, true);
	for (uint32_t i = 0; i < 20; i++) {
		CHECK_EQ(take_high(&model), model.count - 1 - i);
		CHECK_EQ(take(&model, 2), FIRST + 2 * i);
	}
	CHECK_EQ(take_high(&model), 0);
	check_valid(&model);
	give_all(&model);
	CHECK_EQ(take(&model, 40), FIRST);
	close_pool(&model);
}

/* Runs that are taken in from elsewhere, in any order. */
static void test_adopt(void)
{
	static const struct {
		uint32_t page, pages;
		enum page_use use;
	} runs[] = {{3, 4, PAGE_FREE},	{7, 1, PAGE_SPAN},  {20, 13, PAGE_FREE},
		    {8, 12, PAGE_LONG}, {33, 2, PAGE_SPAN}, {35, 1, PAGE_FREE}};
	struct model model;

	open_pool(&model, 33, false);
	for (size_t i = 0; i < TEST_COUNT(runs); i++) {
		page_pool_adopt(&model.pool, runs[i].page, runs[i].pages, runs[i].use, 5);
		if (runs[i].use != PAGE_FREE)
			note_taken(&model, runs[i].page, runs[i].pages, runs[i].use);
	}
	check_valid(&model);
	CHECK_EQ(model.pool.free_pages, 18);
	CHECK_EQ(take(&model, 14), 0);
	CHECK_EQ(take(&model, 13), 20);
	CHECK_EQ(take(&model, 4), 3);
	CHECK_EQ(take(&model, 1), 35);
	CHECK_EQ(take_high(&model), 0);
	check_valid(&model);
	give_all(&model);
	check_joined(&model);
	close_pool(&model);
}

/* The check itself finds what is wrong. */
static void test_invalid_is_found(void)
{
	struct model model;
	uint32_t page;
	char why[256];

	open_pool(&model, 20, true);
	page = take(&model, 3);
	model.pool.free_pages++;
	CHECK(!page_pool_is_valid(&model.pool, why, sizeof(why)));
	CHECK_CONTAINS(why, "free pages");
	model.pool.free_pages--;
	model.table[page + 1].head = page + 2;
	CHECK(!page_pool_is_valid(&model.pool, why, sizeof(why)));
	CHECK_CONTAINS(why, "wrong head or use");
	model.table[page + 1].head = page;
	model.table[page].run = 2;
	CHECK(!page_pool_is_valid(&model.pool, why, sizeof(why)));
	CHECK_CONTAINS(why, "run of 0");
	model.table[page].run = 3;
	check_valid(&model);
	close_pool(&model);
}

static const struct test tests[] = {
	{"random_in_small_pools", test_random_small},
	{"random_single_pages", test_random_single_pages},
	{"random_with_buckets", test_random_with_buckets},
	{"random_in_large_pools", test_random_large, TEST_SLOW},
	{"every_length", test_every_length},
	{"exhaustion", test_exhaustion},
	{"fragments", test_fragments},
	{"high_and_low", test_high_and_low},
	{"adopt", test_adopt},
	{"invalid_is_found", test_invalid_is_found},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "pages", tests, TEST_COUNT(tests));
}
