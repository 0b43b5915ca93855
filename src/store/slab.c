#include "store/slab.h"

#include <string.h>

#include "store/span.h"

/* A span loses at most this part of itself at its end, in 1/64. */
#define MAX_LOST 1u
/* Longer spans than the smallest are not made in a store that has no room for this many. */
#define MIN_SPANS 32u

/* As every class is an odd number up to 15 times a power of two, 15 pages always end evenly. A
 * small store rather loses something at the end of spans than to have only a few of them. */
static uint32_t pages_for_span(uint64_t size, uint32_t all_pages)
{
	uint32_t pages = (uint32_t)((size + STORE_PAGE_SIZE - 1) >> STORE_PAGE_BITS);

	while ((pages * STORE_PAGE_SIZE) % size * 64 > pages * STORE_PAGE_SIZE * MAX_LOST &&
	       pages < all_pages / MIN_SPANS)
		pages++;
	return pages;
}

void slab_init(struct slab *slab, uint8_t *memory, struct page_pool *pool, bool zero_freed)
{
	*slab = (struct slab){.memory = memory, .pool = pool, .zero_freed = zero_freed};
	for (unsigned i = 0; i < SLAB_CLASS_COUNT; i++) {
		struct slab_class *class = &slab->classes[i];
		uint64_t fit;

		class->size = size_class_size(i);
		class->span_pages = pages_for_span(class->size, pool->count - pool->first);
		class->span_places = (uint32_t)(class->span_pages * STORE_PAGE_SIZE / class->size);
		fit = SLAB_CACHE_BYTES / class->size / 2;
		class->cache_places = (uint32_t)(fit < SLAB_CACHE_PLACES ? fit : SLAB_CACHE_PLACES);
		spin_lock_init(&class->lock);
	}
	/* As if a long item were a span with one place. */
	slab->classes[SLAB_LONG].span_pages = 1;
	slab->classes[SLAB_LONG].span_places = 1;
	spin_lock_init(&slab->classes[SLAB_LONG].lock);
}

/* Up to `wanted` places; from a new span if there are none and `may_grow`. */
static uint32_t take_places(struct slab *slab, struct slab_class *class, uint64_t *places,
			    uint32_t wanted, bool may_grow)
{
	uint32_t count = 0;

	spin_lock_take(&class->lock);
	while (count < wanted &&
	       (class->listed || (may_grow && count == 0 && span_add(slab, class)))) {
		struct page_info *info = span_info(slab, class->listed);

		while (count < wanted && info->free_list) {
			places[count++] = info->free_list;
			info->free_list = span_next(slab, info->free_list);
			SHOWN_SET(info->places_used, info->places_used + 1);
			SHOWN_SET(class->free_places, class->free_places - 1);
		}
		if (!info->free_list)
			span_unlist(slab, class, class->listed);
	}
	spin_lock_give(&class->lock);
	return count;
}

static void return_places(struct slab *slab, struct slab_class *class, const uint64_t *places,
			  uint32_t count)
{
	spin_lock_take(&class->lock);
	for (uint32_t i = 0; i < count; i++)
		span_return(slab, class, places[i]);
	spin_lock_give(&class->lock);
}

/* ------------------------------------------------------------------------------------------
 * What workers do
 */

void slab_count(struct slab_worker *worker, unsigned slab_class, int64_t items, int64_t bytes)
{
	struct slab_cache *cache = &worker->caches[slab_class];

	/* One writer: no atomic addition is needed, only that nobody reads half a number. */
	atomic_store_explicit(&cache->items,
			      atomic_load_explicit(&cache->items, memory_order_relaxed) + items,
			      memory_order_relaxed);
	atomic_store_explicit(&cache->bytes,
			      atomic_load_explicit(&cache->bytes, memory_order_relaxed) + bytes,
			      memory_order_relaxed);
}

static uint64_t take_place(struct slab *slab, struct slab_worker *worker, unsigned number,
			   bool may_grow)
{
	struct slab_class *class = &slab->classes[number];
	struct slab_cache *cache = &worker->caches[number];
	uint64_t offset = 0;

	if (class->cache_places == 0) {
		take_places(slab, class, &offset, 1, may_grow);
		return offset;
	}
	spin_lock_take(&cache->lock);
	if (cache->count == 0) {
		uint64_t places[SLAB_CACHE_PLACES];
		uint32_t count =
			take_places(slab, class, places, (class->cache_places + 1) / 2, may_grow);

		/* Last in, first out: the first in memory comes out first. */
		for (uint32_t i = 0; i < count; i++)
			cache->places[count - 1 - i] = places[i];
		cache->count = count;
	}
	if (cache->count)
		offset = cache->places[--cache->count];
	spin_lock_give(&cache->lock);
	return offset;
}

static uint64_t take_long(struct slab *slab, uint64_t size)
{
	struct slab_class *class = &slab->classes[SLAB_LONG];
	uint64_t pages = (size + STORE_PAGE_SIZE - 1) >> STORE_PAGE_BITS;
	uint32_t page;

	if (pages > slab->pool->count)
		return 0;
	spin_lock_take(&class->lock);
	page = page_pool_take(slab->pool, (uint32_t)pages, PAGE_LONG, SLAB_LONG);
	if (page) {
		atomic_store_explicit(&span_place(slab, span_offset(page))->version, 0,
				      memory_order_relaxed);
		span_ring_add(slab, class, page);
	}
	spin_lock_give(&class->lock);
	return span_offset(page);
}

uint64_t slab_take(struct slab *slab, struct slab_worker *worker, uint64_t size)
{
	unsigned number = slab_class_of(size);
	uint64_t offset = number == SLAB_LONG ? take_long(slab, size)
					      : take_place(slab, worker, number, true);

	if (offset)
		slab_count(worker, number, 1, (int64_t)size);
	return offset;
}

uint64_t slab_take_free(struct slab *slab, struct slab_worker *worker, uint64_t size)
{
	unsigned number = slab_class_of(size);
	uint64_t offset = take_place(slab, worker, number, false);

	if (offset)
		slab_count(worker, number, 1, (int64_t)size);
	return offset;
}

static void give_long(struct slab *slab, uint64_t offset)
{
	struct slab_class *class = &slab->classes[SLAB_LONG];
	uint32_t page = (uint32_t)(offset >> STORE_PAGE_BITS);

	spin_lock_take(&class->lock);
	span_ring_remove(slab, class, page);
	page_pool_give(slab->pool, page);
	spin_lock_give(&class->lock);
}

static void give_place(struct slab *slab, struct slab_worker *worker, unsigned number,
		       uint64_t offset)
{
	struct slab_class *class = &slab->classes[number];
	struct slab_cache *cache = &worker->caches[number];
	uint32_t page = page_head(slab->pool, (uint32_t)(offset >> STORE_PAGE_BITS));

	/* Of a span that is being emptied nothing is kept. Who misses that it has just begun is
	 * found by slab_drain_end(). */
	if (class->cache_places == 0 ||
	    atomic_load_explicit(&span_info(slab, page)->is_draining, memory_order_relaxed)) {
		return_places(slab, class, &offset, 1);
		return;
	}
	spin_lock_take(&cache->lock);
	if (cache->count == class->cache_places) {
		uint32_t half = (cache->count + 1) / 2;

		return_places(slab, class, cache->places, half);
		memmove(cache->places, cache->places + half,
			(cache->count - half) * sizeof(*cache->places));
		cache->count -= half;
	}
	cache->places[cache->count++] = offset;
	spin_lock_give(&cache->lock);
}

void slab_give(struct slab *slab, struct slab_worker *worker, uint64_t offset, uint64_t size)
{
	unsigned number = slab_class_of(size);

	slab_count(worker, number, -1, -(int64_t)size);
	if (slab->zero_freed)
		memset(slab->memory + offset, 0, size);
	if (number == SLAB_LONG)
		give_long(slab, offset);
	else
		give_place(slab, worker, number, offset);
}

void slab_worker_drain(struct slab *slab, struct slab_worker *worker)
{
	for (unsigned i = 0; i < SLAB_CLASS_COUNT; i++) {
		struct slab_cache *cache = &worker->caches[i];

		spin_lock_take(&cache->lock);
		return_places(slab, &slab->classes[i], cache->places, cache->count);
		cache->count = 0;
		spin_lock_give(&cache->lock);
	}
}

/* ------------------------------------------------------------------------------------------
 * What is at an offset
 */

uint32_t slab_page_of(const struct slab *slab, uint64_t offset)
{
	uint64_t page = offset >> STORE_PAGE_BITS;
	enum page_use use;

	if (page < slab->pool->first || page >= slab->pool->count)
		return 0;
	page = page_head(slab->pool, (uint32_t)page);
	use = page_use(slab->pool, (uint32_t)page);
	return use == PAGE_SPAN || use == PAGE_LONG ? (uint32_t)page : 0;
}

bool slab_is_place(const struct slab *slab, uint64_t offset)
{
	uint32_t page = slab_page_of(slab, offset);
	uint64_t within = offset - span_offset(page);
	unsigned number;

	if (!page)
		return false;
	if (page_use(slab->pool, page) == PAGE_LONG)
		return within == 0;
	number = span_info(slab, page)->size_class;
	if (number >= SLAB_CLASS_COUNT)
		return false;
	return within % slab->classes[number].size == 0 &&
	       within / slab->classes[number].size < slab->classes[number].span_places;
}
