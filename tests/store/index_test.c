/*
 * The index by itself, over items that lie in pages of their own: growing, shrinking, chains, and
 * what happens when pages run out.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness/test.h"
#include "store/index.h"
#include "store/item.h"
#include "store/probe.h"
#include "store/size_class.h"

#define PAGES	    256u
#define FIRST	    2u /* header and directories lie before it */
#define PLACE	    64u
#define CHAIN_SLOTS (PROBE_MAX_CHAIN * BUCKET_SLOTS)

struct bench {
	struct test_rng rng;
	uint8_t *memory;
	struct store_header *header;
	struct page_info *table;
	struct page_pool pool;
	struct index index;
	struct index_guard guard;
	uint64_t next_place, last_place; /* of items */
	uint64_t next_key;
};

static void open_bench(struct bench *bench)
{
	*bench = (struct bench){0};
	test_rng_init(&bench->rng, 1);
	bench->memory = mmap(NULL, PAGES * STORE_PAGE_SIZE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(bench->memory != MAP_FAILED);
	bench->header = (struct store_header *)bench->memory;
	bench->header->directory = 4096;
	bench->header->overflow_directory = 8192;
	bench->header->page_count = PAGES;
	bench->header->first_page = FIRST;
	bench->header->hash_seed = test_rng_next(&bench->rng);
	bench->table = calloc(PAGES, sizeof(*bench->table));
	CHECK(bench->table);
	page_pool_init(&bench->pool, bench->table, FIRST, PAGES);
	page_pool_adopt(&bench->pool, FIRST, PAGES - FIRST, PAGE_FREE, 0);
	CHECK(index_init(&bench->index, bench->memory, bench->header, &bench->pool,
			 SEGMENT_BUCKETS));
}

static void close_bench(struct bench *bench)
{
	munmap(bench->memory, PAGES * STORE_PAGE_SIZE);
	free(bench->table);
}

static void check_valid(struct bench *bench, uint64_t keys)
{
	char why[256] = "";
	uint64_t counted = 0;

	if (!index_is_valid(&bench->index, &counted, why, sizeof(why)) ||
	    !page_pool_is_valid(&bench->pool, why, sizeof(why)))
		TEST_FAIL("not valid: %s", why);
	CHECK_EQ(counted, keys);
}

/* Memory for so many items. They are never given back. */
static void prepare_items(struct bench *bench, uint32_t count)
{
	uint32_t pages = (uint32_t)(count * PLACE / STORE_PAGE_SIZE + 1);
	uint32_t page = page_pool_take(&bench->pool, pages, PAGE_LONG, 0);

	CHECK(page);
	bench->next_place = (uint64_t)page << STORE_PAGE_BITS;
	bench->last_place = (uint64_t)(page + pages) << STORE_PAGE_BITS;
}

/* An item whose key is a number and whose hash ends in these bits; its offset. */
static uint64_t make_item(struct bench *bench, uint64_t ending, unsigned bits)
{
	struct item *item = (struct item *)(bench->memory + bench->next_place);
	uint64_t offset = bench->next_place, key;

	do {
		key = bench->next_key++;
	} while (hash_bits(probe_hash(&key, sizeof(key), bench->header->hash_seed), bits) !=
		 ending);
	CHECK(bench->next_place < bench->last_place);
	bench->next_place += PLACE;
	item_write_key(item, &key, sizeof(key), 0, ITEM_VALUE);
	item_publish(item, offset, 1 + key, 0, item_body_hash(item), false);
	return offset;
}

static uint64_t hash_at(const struct bench *bench, uint64_t offset)
{
	return index_hash_of(&bench->index, (const struct item *)(bench->memory + offset));
}

static bool add(struct bench *bench, uint64_t offset)
{
	uint64_t hash = hash_at(bench, offset);
	struct index_lock lock = index_lock(&bench->index, &bench->guard, hash);
	bool added = index_add(&bench->index, &lock, slot_make(hash_tag(hash), 0, offset));

	index_unlock(&lock);
	return added;
}

/* By its key and by its offset alike. */
static bool find(struct bench *bench, uint64_t offset)
{
	const struct item *item = (const struct item *)(bench->memory + offset);
	uint64_t hash = hash_at(bench, offset);
	struct index_lock lock = index_lock(&bench->index, &bench->guard, hash);
	struct index_slot by_key, by_offset;
	bool found = index_find(&bench->index, &lock, hash, item->key, 8, &by_key);

	CHECK_EQ(index_find_offset(&bench->index, &lock, offset, &by_offset), found);
	if (found) {
		CHECK_EQ(by_key.slot, slot_make(hash_tag(hash), 0, offset));
		CHECK(by_key.bucket == by_offset.bucket && by_key.number == by_offset.number);
	}
	index_unlock(&lock);
	return found;
}

static void take_out(struct bench *bench, uint64_t offset)
{
	uint64_t hash = hash_at(bench, offset);
	struct index_lock lock = index_lock(&bench->index, &bench->guard, hash);
	struct index_slot slot;

	CHECK(index_find_offset(&bench->index, &lock, offset, &slot));
	index_remove(&bench->index, &lock, &slot);
	index_unlock(&lock);
}

static void grow_to(struct bench *bench, uint64_t count)
{
	while (index_bucket_count(&bench->index) < count)
		CHECK_EQ(index_grow(&bench->index, 1), INDEX_GREW);
}

static void test_empty(void)
{
	struct bench bench;

	open_bench(&bench);
	CHECK_EQ(index_bucket_count(&bench.index), SEGMENT_BUCKETS);
	check_valid(&bench, 0);
	grow_to(&bench, 5000);
	check_valid(&bench, 0);
	CHECK_EQ(bench.index.segments, (5000 + SEGMENT_BUCKETS - 1) / SEGMENT_BUCKETS);
	close_bench(&bench);
}

/* As a store does it, and with a bit set for what is in. */
static void test_grow_and_change(void)
{
	enum { COUNT = 60000 };
	struct bench bench;
	uint64_t *offsets = calloc(COUNT, sizeof(*offsets)), keys = 0;
	bool *in = calloc(COUNT, sizeof(*in));

	CHECK(offsets && in);
	open_bench(&bench);
	prepare_items(&bench, COUNT);
	for (unsigned i = 0; i < COUNT; i++)
		offsets[i] = make_item(&bench, 0, 0);
	for (unsigned step = 0; step < 6 * COUNT; step++) {
		unsigned i = (unsigned)test_rng_below(&bench.rng, 1 + step / 6);

		CHECK_EQ(find(&bench, offsets[i]), in[i]);
		if (!in[i])
			CHECK(add(&bench, offsets[i]));
		else if (step % 3 == 0)
			take_out(&bench, offsets[i]);
		else
			continue;
		in[i] = !in[i];
		keys += in[i] ? 1 : -1;
		if (keys > index_bucket_count(&bench.index) * INDEX_LOAD)
			CHECK_EQ(index_grow(&bench.index, 1), INDEX_GREW);
		if (step % COUNT == 0)
			check_valid(&bench, keys);
	}
	check_valid(&bench, keys);
	CHECK(index_bucket_count(&bench.index) > 6000);
	for (unsigned i = 0; i < COUNT; i++) {
		CHECK_EQ(find(&bench, offsets[i]), in[i]);
		if (in[i])
			take_out(&bench, offsets[i]);
	}
	check_valid(&bench, 0);
	CHECK_EQ(bench.index.overflow_used, 0);
	free(offsets);
	free(in);
	close_bench(&bench);
}

/* One bucket takes as many as a probe follows, and not one more. */
static void test_longest_chain(void)
{
	uint64_t offsets[CHAIN_SLOTS + 1];
	struct bench bench;

	open_bench(&bench);
	prepare_items(&bench, CHAIN_SLOTS + 1);
	for (unsigned i = 0; i <= CHAIN_SLOTS; i++)
		offsets[i] = make_item(&bench, 77, SEGMENT_BITS);
	for (unsigned i = 0; i < CHAIN_SLOTS; i++)
		CHECK(add(&bench, offsets[i]));
	CHECK(!add(&bench, offsets[CHAIN_SLOTS]));
	CHECK(!find(&bench, offsets[CHAIN_SLOTS]));
	check_valid(&bench, CHAIN_SLOTS);
	CHECK_EQ(bench.index.overflow_used, PROBE_MAX_CHAIN - 1);
	/* A hole is used again, wherever it was. */
	take_out(&bench, offsets[5]);
	CHECK(add(&bench, offsets[CHAIN_SLOTS]));
	for (unsigned i = 0; i <= CHAIN_SLOTS; i++)
		CHECK_EQ(find(&bench, offsets[i]), i != 5);
	check_valid(&bench, CHAIN_SLOTS);
	offsets[5] = offsets[CHAIN_SLOTS];
	for (unsigned left = CHAIN_SLOTS; left; left--) {
		unsigned i = (unsigned)test_rng_below(&bench.rng, left);

		take_out(&bench, offsets[i]);
		offsets[i] = offsets[left - 1];
		if (left % 16 == 1)
			check_valid(&bench, left - 1);
	}
	CHECK_EQ(bench.index.overflow_used, 0);
	close_bench(&bench);
}

/* Splitting takes chains apart, and their buckets become free. */
static void test_split_chains(void)
{
	uint64_t offsets[CHAIN_SLOTS];
	struct bench bench;
	uint64_t before;

	open_bench(&bench);
	prepare_items(&bench, CHAIN_SLOTS);
	for (unsigned i = 0; i < CHAIN_SLOTS; i++) {
		offsets[i] = make_item(&bench, 3, SEGMENT_BITS);
		CHECK(add(&bench, offsets[i]));
	}
	before = bench.index.overflow_used;
	/* Eight times as many buckets: all eight have a share. */
	for (uint64_t count = SEGMENT_BUCKETS; count < 8 * SEGMENT_BUCKETS; count++) {
		grow_to(&bench, count + 1);
		if (count % SEGMENT_BUCKETS < 6) {
			check_valid(&bench, CHAIN_SLOTS);
			for (unsigned i = 0; i < CHAIN_SLOTS; i++)
				CHECK(find(&bench, offsets[i]));
		}
	}
	check_valid(&bench, CHAIN_SLOTS);
	CHECK(bench.index.overflow_used <= before + 8);
	close_bench(&bench);
}

/* ------------------------------------------------------------------------------------------
 * Shrinking
 */

static bool answer(void *context)
{
	return *(bool *)context;
}

static void give_retired(struct bench *bench, bool are_clear)
{
	index_give_retired(&bench->index, answer, &are_clear);
}

static void shrink_to(struct bench *bench, uint64_t count)
{
	while (index_bucket_count(&bench->index) > count)
		CHECK_EQ(index_shrink(&bench->index, 1), INDEX_GREW);
}

static void test_shrink_empty(void)
{
	struct bench bench;
	uint32_t pages;

	open_bench(&bench);
	pages = bench.pool.free_pages;
	for (int round = 0; round < 3; round++) {
		grow_to(&bench, 5000);
		shrink_to(&bench, 2500);
		check_valid(&bench, 0);
		grow_to(&bench, 4500);
		check_valid(&bench, 0);
		/* No fewer than the least, however many are asked for. */
		CHECK_EQ(index_shrink(&bench.index, 1000000), INDEX_GREW);
		CHECK_EQ(index_bucket_count(&bench.index), SEGMENT_BUCKETS);
		check_valid(&bench, 0);
		CHECK(bench.pool.free_pages < pages);
		give_retired(&bench, false);
		CHECK(bench.pool.free_pages < pages);
		give_retired(&bench, true);
		CHECK_EQ(bench.pool.free_pages, pages);
		CHECK_EQ(bench.index.segments, 1);
		CHECK_EQ(bench.header->shrinks, (round + 1) * (4 + 2));
	}
	close_bench(&bench);
}

/* To and fro at random, with keys that come and go. */
static void test_shrink_and_grow(void)
{
	enum { COUNT = 20000, MOST = 7000 };
	struct bench bench;
	uint64_t *offsets = calloc(COUNT, sizeof(*offsets)), keys = 0;
	bool *in = calloc(COUNT, sizeof(*in));

	CHECK(offsets && in);
	open_bench(&bench);
	prepare_items(&bench, COUNT);
	for (unsigned i = 0; i < COUNT; i++)
		offsets[i] = make_item(&bench, 0, 0);
	for (unsigned step = 0; step < 300; step++) {
		uint64_t count = SEGMENT_BUCKETS + test_rng_below(&bench.rng, MOST);

		for (unsigned j = 0; j < 400; j++) {
			unsigned i = (unsigned)test_rng_below(&bench.rng, COUNT);

			CHECK_EQ(find(&bench, offsets[i]), in[i]);
			if (in[i])
				take_out(&bench, offsets[i]);
			else
				CHECK(add(&bench, offsets[i]));
			in[i] = !in[i];
			keys += in[i] ? 1 : -1;
		}
		if (count > index_bucket_count(&bench.index))
			grow_to(&bench, count);
		else
			shrink_to(&bench, count);
		give_retired(&bench, step % 3);
		CHECK_EQ(index_bucket_count(&bench.index), count);
		if (step % 10 == 0)
			check_valid(&bench, keys);
	}
	for (unsigned i = 0; i < COUNT; i++) {
		CHECK_EQ(find(&bench, offsets[i]), in[i]);
		if (in[i])
			take_out(&bench, offsets[i]);
	}
	shrink_to(&bench, SEGMENT_BUCKETS);
	give_retired(&bench, true);
	check_valid(&bench, 0);
	CHECK(bench.index.segments > 1);
	index_give_overflow_pages(&bench.index);
	CHECK_EQ(bench.index.segments, 1);
	check_valid(&bench, 0);
	free(offsets);
	free(in);
	close_bench(&bench);
}

/* Two chains that are too long for one bucket stay two. */
static void test_merge_does_not_fit(void)
{
	enum { EACH = CHAIN_SLOTS / 2 + 1 };
	uint64_t offsets[2 * EACH];
	struct bench bench;

	open_bench(&bench);
	grow_to(&bench, SEGMENT_BUCKETS + 4);
	prepare_items(&bench, 2 * EACH);
	for (unsigned i = 0; i < 2 * EACH; i++) {
		offsets[i] = make_item(&bench, i % 2 ? 3 : SEGMENT_BUCKETS + 3, SEGMENT_BITS + 1);
		CHECK(add(&bench, offsets[i]));
	}
	CHECK_EQ(index_shrink(&bench.index, 4), INDEX_FULL);
	CHECK_EQ(index_bucket_count(&bench.index), SEGMENT_BUCKETS + 4);
	check_valid(&bench, 2 * EACH);
	take_out(&bench, offsets[0]);
	take_out(&bench, offsets[1]);
	CHECK_EQ(index_shrink(&bench.index, 4), INDEX_GREW);
	CHECK_EQ(index_bucket_count(&bench.index), SEGMENT_BUCKETS);
	check_valid(&bench, CHAIN_SLOTS);
	for (unsigned i = 2; i < 2 * EACH; i++)
		CHECK(find(&bench, offsets[i]));
	/* Overflow buckets that are in use keep their page. */
	index_give_overflow_pages(&bench.index);
	check_valid(&bench, CHAIN_SLOTS);
	close_bench(&bench);
}

/* ------------------------------------------------------------------------------------------
 * Without pages
 */

static uint32_t take_all_pages(struct bench *bench)
{
	uint32_t count = 0;

	while (page_pool_take(&bench->pool, 1, PAGE_LONG, 0))
		count++;
	return count;
}

/* Gives back one of the pages that take_all_pages() took: the last is the highest. */
static void give_page(struct bench *bench)
{
	uint32_t page = PAGES - 1;

	while (page_use(&bench->pool, page) != PAGE_LONG || bench->table[page].run != 1)
		page--;
	page_pool_give(&bench->pool, page);
}

static void test_no_page_to_grow(void)
{
	struct bench bench;
	uint64_t offset;

	open_bench(&bench);
	prepare_items(&bench, 10);
	offset = make_item(&bench, 0, SEGMENT_BITS);
	CHECK(add(&bench, offset));
	CHECK(take_all_pages(&bench) > 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(index_grow(&bench.index, 1), INDEX_NO_PAGE);
	CHECK_EQ(index_bucket_count(&bench.index), SEGMENT_BUCKETS);
	check_valid(&bench, 1);
	CHECK(find(&bench, offset));
	give_page(&bench);
	grow_to(&bench, 2 * SEGMENT_BUCKETS);
	CHECK_EQ(index_grow(&bench.index, 1), INDEX_NO_PAGE);
	check_valid(&bench, 1);
	CHECK(find(&bench, offset));
	close_bench(&bench);
}

static void test_no_page_to_add(void)
{
	uint64_t offsets[BUCKET_SLOTS + 1];
	struct bench bench;

	open_bench(&bench);
	prepare_items(&bench, BUCKET_SLOTS + 1);
	CHECK(take_all_pages(&bench) > 0);
	for (unsigned i = 0; i <= BUCKET_SLOTS; i++) {
		offsets[i] = make_item(&bench, 9, SEGMENT_BITS);
		CHECK_EQ(add(&bench, offsets[i]), i < BUCKET_SLOTS);
	}
	check_valid(&bench, BUCKET_SLOTS);
	for (unsigned i = 0; i <= BUCKET_SLOTS; i++)
		CHECK_EQ(find(&bench, offsets[i]), i < BUCKET_SLOTS);
	give_page(&bench);
	CHECK(add(&bench, offsets[BUCKET_SLOTS]));
	check_valid(&bench, BUCKET_SLOTS + 1);
	CHECK_EQ(bench.index.overflow_used, 1);
	close_bench(&bench);
}

/* There is a page for the new bucket, but none for those that would overflow from it. */
static void test_split_without_overflow(void)
{
	enum { CHAINS = 16 };
	struct bench bench;
	uint64_t keys = 0;

	open_bench(&bench);
	prepare_items(&bench, (CHAINS + 1) * CHAIN_SLOTS);
	for (uint64_t chain = 0; chain < CHAINS; chain++) {
		for (unsigned i = 0; i < CHAIN_SLOTS; i++, keys++)
			CHECK(add(&bench, make_item(&bench, chain, SEGMENT_BITS)));
	}
	take_all_pages(&bench);
	while (add(&bench, make_item(&bench, CHAINS, SEGMENT_BITS)))
		keys++;
	CHECK_EQ(bench.index.overflow_used, SEGMENT_BUCKETS - 1);
	check_valid(&bench, keys);
	give_page(&bench);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(index_grow(&bench.index, 1), INDEX_FULL);
		check_valid(&bench, keys);
		CHECK_EQ(bench.index.overflow_used, SEGMENT_BUCKETS - 1);
	}
	give_page(&bench);
	grow_to(&bench, 2 * SEGMENT_BUCKETS);
	check_valid(&bench, keys);
	close_bench(&bench);
}

/* Without a page for an overflow bucket what was merged half is taken apart again. */
static void test_merge_without_overflow(void)
{
	uint64_t offsets[BUCKET_SLOTS + 1];
	struct bench bench;

	open_bench(&bench);
	grow_to(&bench, SEGMENT_BUCKETS + 10);
	prepare_items(&bench, BUCKET_SLOTS + 1);
	for (unsigned i = 0; i <= BUCKET_SLOTS; i++) {
		offsets[i] = make_item(&bench, i % 2 ? 9 : SEGMENT_BUCKETS + 9, SEGMENT_BITS + 1);
		CHECK(add(&bench, offsets[i]));
	}
	take_all_pages(&bench);
	CHECK_EQ(index_shrink(&bench.index, 1), INDEX_FULL);
	CHECK_EQ(index_bucket_count(&bench.index), SEGMENT_BUCKETS + 10);
	check_valid(&bench, BUCKET_SLOTS + 1);
	give_page(&bench);
	CHECK_EQ(index_shrink(&bench.index, 1), INDEX_GREW);
	check_valid(&bench, BUCKET_SLOTS + 1);
	for (unsigned i = 0; i <= BUCKET_SLOTS; i++)
		CHECK(find(&bench, offsets[i]));
	close_bench(&bench);
}

/* A lock is nothing but a bit, and every use of it can be seen in the header. */
static void test_lock(void)
{
	struct bench bench;
	struct index_lock lock;
	uint64_t before;

	open_bench(&bench);
	for (int i = 0; i < 10; i++) {
		lock = index_lock_bucket(&bench.index, 5);
		before = lock.header;
		CHECK(!bucket_is_locked(before));
		CHECK_EQ(lock.bucket->header, before | BUCKET_LOCKED);
		index_unlock(&lock);
		CHECK_EQ(lock.bucket->header, before + ((uint64_t)1 << 35));
	}
	/* The sequence begins again without touching the rest. */
	atomic_store(&lock.bucket->header, bucket_header(UINT32_MAX, 0, SEGMENT_BITS));
	lock = index_lock_bucket(&bench.index, 5);
	index_unlock(&lock);
	CHECK_EQ(lock.bucket->header, bucket_header(0, 0, SEGMENT_BITS));
	check_valid(&bench, 0);
	close_bench(&bench);
}

static const struct test tests[] = {
	{"empty", test_empty},
	{"grow_and_change", test_grow_and_change},
	{"the_longest_chain", test_longest_chain},
	{"splitting_chains", test_split_chains},
	{"no_page_to_grow", test_no_page_to_grow},
	{"no_page_to_add", test_no_page_to_add},
	{"splitting_without_overflow", test_split_without_overflow},
	{"shrinking_empty", test_shrink_empty},
	{"shrink_and_grow", test_shrink_and_grow},
	{"merging_what_does_not_fit", test_merge_does_not_fit},
	{"merging_without_overflow", test_merge_without_overflow},
	{"the_lock_bit", test_lock},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "index", tests, TEST_COUNT(tests));
}
