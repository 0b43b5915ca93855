#include "slab_bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "store/item.h"

void slab_bench_open(struct slab_bench *bench, uint32_t pages, bool zero_freed)
{
	*bench = (struct slab_bench){.pages = pages, .room = pages * STORE_PAGE_SIZE / 64};
	test_rng_init(&bench->rng, pages);
	bench->memory = mmap(NULL, (SLAB_BENCH_FIRST + pages) * STORE_PAGE_SIZE,
			     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(bench->memory != MAP_FAILED);
	bench->table = calloc(SLAB_BENCH_FIRST + pages, sizeof(*bench->table));
	bench->offsets = calloc(bench->room, sizeof(*bench->offsets));
	bench->sizes = calloc(bench->room, sizeof(*bench->sizes));
	CHECK(bench->table && bench->offsets && bench->sizes);
	page_pool_init(&bench->pool, bench->table, SLAB_BENCH_FIRST, SLAB_BENCH_FIRST + pages);
	page_pool_adopt(&bench->pool, SLAB_BENCH_FIRST, pages, PAGE_FREE, 0);
	slab_init(&bench->slab, bench->memory, &bench->pool, zero_freed);
	for (int i = 0; i < SLAB_BENCH_WORKERS; i++) {
		bench->workers[i] = calloc(1, sizeof(*bench->workers[i]));
		CHECK(bench->workers[i]);
		for (unsigned j = 0; j < SLAB_CLASSES; j++)
			spin_lock_init(&bench->workers[i]->caches[j].lock);
	}
}

void slab_bench_close(struct slab_bench *bench)
{
	munmap(bench->memory, (SLAB_BENCH_FIRST + bench->pages) * STORE_PAGE_SIZE);
	free(bench->table);
	free(bench->offsets);
	free(bench->sizes);
	for (int i = 0; i < SLAB_BENCH_WORKERS; i++)
		free(bench->workers[i]);
}

void slab_bench_check(struct slab_bench *bench)
{
	char why[256] = "";

	if (!page_pool_is_valid(&bench->pool, why, sizeof(why)) ||
	    !slab_is_valid(&bench->slab, bench->workers, SLAB_BENCH_WORKERS, why, sizeof(why)))
		TEST_FAIL("not valid: %s", why);
}

struct slab_worker *slab_bench_worker(struct slab_bench *bench)
{
	return bench->workers[test_rng_below(&bench->rng, SLAB_BENCH_WORKERS)];
}

/* What a place is filled with, but for its version: tells it from every other. */
static void mark(struct slab_bench *bench, uint64_t offset, uint64_t size)
{
	uint64_t *words = (uint64_t *)(bench->memory + offset);

	for (uint64_t i = 1; i < size / 8; i++)
		words[i] = offset ^ i;
}

static void check_mark(struct slab_bench *bench, uint64_t offset, uint64_t size)
{
	const uint64_t *words = (const uint64_t *)(bench->memory + offset);

	CHECK_EQ(words[0], 0);
	for (uint64_t i = 1; i < size / 8; i++) {
		if (words[i] != (offset ^ i))
			TEST_FAIL("the place at %lu, of %lu bytes, was written to by another",
				  offset, size);
	}
}

bool slab_bench_take(struct slab_bench *bench, struct slab_worker *worker, uint64_t size)
{
	uint64_t offset = slab_take(&bench->slab, worker, size);

	if (!offset)
		return false;
	CHECK(offset >= SLAB_BENCH_FIRST * STORE_PAGE_SIZE && offset % 8 == 0);
	CHECK(offset + size <= (SLAB_BENCH_FIRST + bench->pages) * STORE_PAGE_SIZE);
	CHECK_EQ(item_version((const struct item *)(bench->memory + offset)), 0);
	CHECK(slab_is_place(&bench->slab, offset));
	CHECK(!slab_is_place(&bench->slab, offset + 8));
	CHECK(bench->count < bench->room);
	mark(bench, offset, size);
	bench->offsets[bench->count] = offset;
	bench->sizes[bench->count++] = size;
	return true;
}

void slab_bench_give(struct slab_bench *bench, struct slab_worker *worker, size_t number)
{
	check_mark(bench, bench->offsets[number], bench->sizes[number]);
	slab_give(&bench->slab, worker, bench->offsets[number], bench->sizes[number]);
	bench->count--;
	bench->offsets[number] = bench->offsets[bench->count];
	bench->sizes[number] = bench->sizes[bench->count];
}

void slab_bench_check_unused(struct slab_bench *bench)
{
	for (unsigned i = 0; i < SLAB_CLASSES; i++) {
		int64_t items = 0, bytes = 0;

		for (int j = 0; j < SLAB_BENCH_WORKERS; j++) {
			items += bench->workers[j]->caches[i].items;
			bytes += bench->workers[j]->caches[i].bytes;
		}
		CHECK_EQ(items, 0);
		CHECK_EQ(bytes, 0);
	}
}

void slab_bench_give_all(struct slab_bench *bench)
{
	while (bench->count)
		slab_bench_give(bench, slab_bench_worker(bench),
				test_rng_below(&bench->rng, bench->count));
	slab_bench_check(bench);
	slab_bench_check_unused(bench);
	for (int i = 0; i < SLAB_BENCH_WORKERS; i++)
		slab_worker_drain(&bench->slab, bench->workers[i]);
	slab_bench_check(bench);
	for (unsigned i = 0; i < SLAB_CLASSES; i++) {
		struct slab_class *class = &bench->slab.classes[i];

		/* Without need a class keeps what its workers ask for at once, in whole spans. */
		CHECK(class->free_places < (uint64_t) class->span_places + class->cache_places ||
		      class->free_places <= class->span_places);
		while (class->ring) {
			uint32_t page = class->ring;

			CHECK(slab_drain_begin(&bench->slab, page, bench->workers,
					       SLAB_BENCH_WORKERS));
			CHECK(slab_drain_end(&bench->slab, page, bench->workers,
					     SLAB_BENCH_WORKERS));
		}
	}
	CHECK_EQ(bench->pool.free_pages, bench->pages);
	slab_bench_check(bench);
}
