/*
 * Restoring from memory that holds no store of this kind, which is refused, and from memory that is
 * broken, which does no harm: what is not whole any more is dropped, and what is left is a store.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "picture.h"
#include "store/layout.h"
#include "store/pages.h"
#include "store/reader.h"
#include "witness.h"

#define GUARD 4096u

static void check_refused(const struct test_store *test, size_t size, const char *part)
{
	struct store_options options = test->options;
	struct store *store;

	options.size = size;
	CHECK_STATUS(store_restore(&options, &store), RMR_PROTOCOL);
	CHECK_CONTAINS(rmr_error_message(), part);
}

static void test_refused(void)
{
	struct test_store test;
	struct store_header *header;
	struct picture picture;

	test_store_open(&test, 2 * MIB, STORE_REJECT);
	header = test.memory;
	CHECK_EQ(picture_put(test.worker, 1, 100, 0), STORE_OK);
	check_refused(&test, MIB, "size");
	check_refused(&test, 2 * MIB - STORE_PAGE_SIZE, "size");
	header->layout_version++;
	check_refused(&test, 2 * MIB, "store");
	header->layout_version--;
	header->page_size *= 2;
	check_refused(&test, 2 * MIB, "store");
	header->page_size /= 2;
	header->page_table += 64;
	check_refused(&test, 2 * MIB, "store");
	header->page_table -= 64;
	header->magic ^= 1;
	check_refused(&test, 2 * MIB, "no store");
	header->magic ^= 1;
	/* None of that has changed anything. */
	test_store_restart(&test);
	CHECK_EQ(picture_take(&test, 2, &picture), 1);
	picture_free(&picture);
	memset(test.memory, 0, test.size);
	check_refused(&test, 2 * MIB, "no store");
	test_store_close(&test);
}

enum damage {
	IN_HEADER,
	IN_PAGE_TABLE,
	IN_ITEMS,
	GARBAGE_ENTRIES, /* of the page table */
	EVERYWHERE,
	DAMAGES,
};

static void flip(struct test_rng *rng, uint8_t *memory, uint64_t begin, uint64_t end,
		 uint64_t count)
{
	while (count-- > 0)
		memory[begin + test_rng_below(rng, end - begin)] ^=
			(uint8_t)(1 << test_rng_below(rng, 8));
}

/* Returns how many items can be lost by it, at most. */
static uint64_t damage(struct test_rng *rng, uint8_t *memory, enum damage kind)
{
	const struct store_header header = *(const struct store_header *)memory;
	uint64_t pages = (uint64_t)header.first_page << STORE_PAGE_BITS;
	uint64_t count = 1 + test_rng_below(rng, test_rng_below(rng, 4) ? 8 : 500);

	switch (kind) {
	case IN_HEADER:
		flip(rng, memory, 8, sizeof(header), 1 + count % 2);
		return 0;
	case IN_PAGE_TABLE:
		flip(rng, memory, header.page_table, header.heat, count);
		return UINT64_MAX;
	case IN_ITEMS:
		flip(rng, memory, pages, header.size, count);
		return count;
	case GARBAGE_ENTRIES:
		for (; count > 0; count--) {
			uint64_t page = test_rng_below(rng, header.page_count);
			struct page_info *info =
				(struct page_info *)(memory + header.page_table) + page;

			test_rng_fill(rng, info, sizeof(*info));
			info->use = (uint8_t)test_rng_below(rng, PAGE_OVERFLOW + 2);
			info->size_class = (uint8_t)test_rng_below(rng, SLAB_CLASS_COUNT + 2);
			info->run = (uint32_t)test_rng_below(rng, 20);
		}
		return UINT64_MAX;
	default:
		flip(rng, memory, sizeof(header), header.size, count);
		return UINT64_MAX;
	}
}

/* What is left can be used, and nothing of it is wrong. */
static void check_survivor(struct test_store *test, struct test_rng *rng, uint64_t keys,
			   uint64_t at_least)
{
	uint64_t found, highest = 0;
	struct store_info info;
	struct picture picture;
	struct store_stats stats;

	CHECK_OK(store_worker_open(test->store, &test->worker));
	found = picture_take(test, keys, &picture);
	if (found < at_least)
		TEST_FAIL("%" PRIu64 " keys are left of at least %" PRIu64, found, at_least);
	for (uint64_t i = 0; i < keys; i++) {
		if (picture.records[i].info.version > highest)
			highest = picture.records[i].info.version;
	}
	picture_free(&picture);
	CHECK_EQ(put_text(test->worker, "new", "value", &info), STORE_OK);
	CHECK(info.version > highest);
	CHECK_EQ(store_delete(test->worker, "new", 3, 0, NULL), STORE_OK);
	for (int i = 0; i < 200; i++)
		picture_work(test, rng, keys, 100000);
	test_store_check(test);
	store_flush(test->worker);
	test_store_check(test);
	store_stats(test->store, &stats);
	CHECK_EQ(stats.keys, 0);
	for (unsigned i = 0; i < STORE_CLASS_STATS; i++)
		CHECK_EQ(stats.classes[i].items + stats.classes[i].used, 0);
	store_worker_close(test->worker);
	store_destroy(test->store);
}

/* Memory between pages that nobody may touch. */
static void fence_in(struct test_store *test)
{
	uint8_t *outer =
		mmap(NULL, test->size + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(outer != MAP_FAILED);
	store_worker_close(test->worker);
	store_destroy(test->store);
	munmap(test->memory, test->size);
	test->memory = outer + GUARD;
	CHECK_EQ(mprotect(test->memory, test->size, PROT_READ | PROT_WRITE), 0);
	test->options.memory = test->memory;
	CHECK_OK(store_create(&test->options, &test->store));
	CHECK_OK(store_worker_open(test->store, &test->worker));
}

static void run_damages(uint64_t rounds)
{
	uint64_t keys = 800, total, refused = 0;
	struct test_store test;
	struct picture picture;
	uint8_t *image, *cells;
	struct test_rng rng;

	test_rng_init(&rng, 31);
	test_store_open(&test, 4 * MIB, STORE_EVICT);
	fence_in(&test);
	for (int i = 0; i < 5000; i++)
		picture_work(&test, &rng, keys, 700000);
	CHECK_EQ(picture_put(test.worker, 0, 600000, 0), STORE_OK);
	test_sleep_ms(5);
	store_tick(test.worker, SIZE_MAX);
	total = picture_take(&test, keys, &picture);
	picture_free(&picture);
	store_worker_close(test.worker);
	store_destroy(test.store);
	image = malloc(test.size);
	cells = malloc(test.cells_size);
	CHECK(image && cells);
	memcpy(image, test.memory, test.size);
	memcpy(cells, test.cells, test.cells_size);
	for (uint64_t i = 0; i < rounds; i++) {
		uint64_t lost;
		enum rmr_status status;

		memcpy(test.memory, image, test.size);
		memcpy(test.cells, cells, test.cells_size);
		lost = damage(&rng, test.memory, (enum damage)(i % DAMAGES));
		status = store_restore(&test.options, &test.store);
		if (status == RMR_OK)
			check_survivor(&test, &rng, keys, lost < total ? total - lost : 0);
		else
			CHECK(status == RMR_PROTOCOL || status == RMR_NO_MEMORY);
		refused += status != RMR_OK;
	}
	CHECK(refused < rounds / 2);
	free(image);
	free(cells);
}

/* Turns every slot of the index into one that names an item at this offset, with the same tag. */
static void point_all_at(uint8_t *memory, uint64_t offset)
{
	const struct store_header *header = (const struct store_header *)memory;
	const uint32_t *directory = (const uint32_t *)(memory + header->directory);

	for (uint32_t i = 0; i < header->page_count && directory[i]; i++) {
		struct bucket *buckets =
			(struct bucket *)(memory + ((uint64_t)directory[i] << STORE_PAGE_BITS));

		for (unsigned j = 0; j < SEGMENT_BUCKETS * BUCKET_SLOTS; j++) {
			_Atomic uint64_t *slot = &buckets[j / BUCKET_SLOTS].slots[j % BUCKET_SLOTS];

			if (*slot)
				*slot = slot_make(slot_tag(*slot), slot_class(*slot), offset);
		}
	}
}

/* Who reads a broken arena gets nothing, and lives. */
static void test_reader_of_damages(void)
{
	static const int64_t ends[] = {8, 16, 24, 32, 40, 64, 100, 4096, -8, -4096};
	struct test_store test;
	uint8_t value[64], key[WITNESS_MAX_KEY];

	test_store_open(&test, 2 * MIB, STORE_REJECT);
	fence_in(&test);
	for (uint64_t i = 0; i < 100; i++)
		CHECK_EQ(picture_put(test.worker, i, 40, 0), STORE_OK);
	for (size_t i = 0; i < TEST_COUNT(ends); i++) {
		struct reader_item item;
		struct reader reader;

		point_all_at(test.memory, test.size - (uint64_t)ends[i]);
		CHECK_OK(reader_init(&reader, test.memory, test.size));
		for (uint64_t j = 0; j < 100; j++) {
			size_t length = witness_make_key(j, key);
			enum reader_status status =
				reader_get(&reader, key, length, value, sizeof(value), &item);

			CHECK(status == READER_MISS || status == READER_ASK);
		}
	}
	store_worker_close(test.worker);
	store_destroy(test.store);
}

static void test_damages(void)
{
	run_damages(TEST_HAS_TSAN ? 50 : 500);
}

static void test_many_damages(void)
{
	run_damages(2500);
}

static const struct test tests[] = {
	{"refused", test_refused},
	{"reader_of_damages", test_reader_of_damages},
	{"damages", test_damages},
	{"many_damages", test_many_damages, TEST_SLOW, 120},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "store_damage", tests, TEST_COUNT(tests));
}
