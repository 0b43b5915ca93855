/*
 * Figures, and looking whether everything is as it should be.
 */
#include <string.h>

#include "store/internal.h"
#include "store/why.h"

static void add_worker(struct store_stats *stats, const struct worker_stats *counts)
{
	stats->gets += counts->hits + counts->misses;
	stats->hits += counts->hits;
	stats->puts += counts->puts;
	stats->deletes += counts->deletes;
	stats->expired += counts->expired;
	stats->evicted += counts->evicted;
	stats->moved += counts->moved;
	stats->pages_moved += counts->pages_moved;
	stats->no_memory += counts->no_memory;
}

static void add_slab(struct store_stats *stats, const struct slab_worker *slab)
{
	for (unsigned i = 0; i < SLAB_CLASSES; i++) {
		/* Single ones may be negative; their sum is not. */
		stats->classes[i].items += (uint64_t)slab->caches[i].items;
		stats->classes[i].used += (uint64_t)slab->caches[i].bytes;
	}
}

static void add_classes(const struct store *store, struct store_stats *stats)
{
	for (unsigned i = 0; i < SLAB_CLASSES; i++) {
		struct store_class_stats *class = &stats->classes[i];
		uint64_t pages = __atomic_load_n(&store->slab.classes[i].pages, __ATOMIC_RELAXED);
		uint64_t bytes = pages << STORE_PAGE_BITS;

		class->item_size = store->slab.classes[i].size;
		class->pages = pages;
		class->evictions = store->paces[i].evictions;
		/* Long items have their pages to themselves. */
		class->wasted =
			(i == SLAB_LONG ? bytes : class->items * class->item_size) - class->used;
		class->free = bytes - class->used - class->wasted;
	}
}

void store_stats(struct store *store, struct store_stats *stats)
{
	struct store_cells cells;
	int64_t keys;

	memset(stats, 0, sizeof(*stats));
	stats->size = store->header->size;
	stats->fixed = (uint64_t)store->header->first_page << STORE_PAGE_BITS;
	stats->index = store->index.segments << STORE_PAGE_BITS;
	stats->free = (uint64_t)__atomic_load_n(&store->pool.free_pages, __ATOMIC_RELAXED)
		      << STORE_PAGE_BITS;
	stats->buckets = index_bucket_count(&store->index);
	stats->overflow_buckets = __atomic_load_n(&store->index.overflow_used, __ATOMIC_RELAXED);
	stats->shrinks = store->header->shrinks;
	stats->next_version = store->header->next_version;
	cells_count(&store->cells, &cells);
	stats->cells = cells.count;
	stats->cells_used = cells.used;
	stats->cells_retired = cells.retired;
	stats->cells_lost = cells.lost;
	spin_lock_take(&store->workers_lock);
	keys = store->keys;
	add_worker(stats, &store->past);
	add_slab(stats, store->past_slab);
	for (unsigned i = 0; i < store->worker_count; i++) {
		if (!store->workers[i])
			continue;
		keys += store->workers[i]->keys;
		add_worker(stats, &store->workers[i]->stats);
		add_slab(stats, &store->workers[i]->slab);
	}
	spin_lock_give(&store->workers_lock);
	stats->keys = keys > 0 ? (uint64_t)keys : 0;
	add_classes(store, stats);
}

static bool sums_are_right(const struct store_stats *stats, char *why, size_t why_size)
{
	uint64_t size = stats->fixed + stats->index + stats->free;

	for (unsigned i = 0; i < STORE_CLASS_STATS; i++)
		size += stats->classes[i].pages << STORE_PAGE_BITS;
	if (size == stats->size)
		return true;
	return invalid(why, why_size, "%lu bytes are accounted for, of %lu", size, stats->size);
}

bool store_is_valid(struct store *store, char *why, size_t why_size)
{
	struct slab_worker *slabs[STORE_MAX_WORKERS + 1];
	struct store_stats stats;
	uint64_t keys = 0;

	store_stats(store, &stats);
	memcpy(slabs, store->slabs, sizeof(store->slabs));
	slabs[STORE_MAX_WORKERS] = store->past_slab;
	if (!page_pool_is_valid(&store->pool, why, why_size) ||
	    !slab_is_valid(&store->slab, slabs, STORE_MAX_WORKERS + 1, why, why_size) ||
	    !index_is_valid(&store->index, &keys, why, why_size) ||
	    !sums_are_right(&stats, why, why_size))
		return false;
	if (keys != stats.keys)
		return invalid(why, why_size, "%lu keys are in the index, %lu counted", keys,
			       stats.keys);
	return true;
}
