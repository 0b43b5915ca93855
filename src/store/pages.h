/*
 * Pages: the arena's pages, given out in runs.
 *
 * A run is one or more pages in a row: a span of a slab class, a long item, a segment of buckets.
 * Free neighbours are always joined. Free runs hang in bins by length, four to a doubling, with a
 * bitmap of those that are not empty: taking and giving back cost the same however many pages there
 * are. Segments of buckets, which are seldom given back, are taken from the upper end, so that they
 * do not cut the rest in pieces.
 *
 * The table lies in the arena, one entry a page, and says enough to find all items without the
 * index.
 *
 * Locks: the pool's own protects everything but what page_info says of spans, which belongs to the
 * lock of the span's class. It is the innermost lock.
 */
#ifndef STORE_PAGES_H
#define STORE_PAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/spin_lock.h"
#include "store/layout.h"

enum page_use {
	PAGE_FREE_BODY, /* inside a free run */
	PAGE_FREE,	/* its first */
	PAGE_FREE_LAST, /* its last, if that is another */
	PAGE_BODY,	/* of a run in use, but not the first: head says which that is */
	PAGE_SPAN,
	PAGE_LONG, /* one item */
	PAGE_BUCKETS,
	PAGE_OVERFLOW,
};

struct page_info {
	_Atomic uint8_t use; /* enum page_use */
	_Atomic uint8_t size_class;
	_Atomic bool is_draining; /* a span: its items are being moved out */
	bool is_listed;		  /* a span: in its class's list of those with free places */
	uint32_t run;		  /* pages, in the first one */
	_Atomic uint32_t head;	  /* the run's first page, in the others */
	/* A free run: its bin. A span: the list of spans with free places. Buckets: the list of
	 * retired pages. 0 ends them. */
	uint32_t next;
	uint32_t previous;
	/* A span: the ring of all spans of the class. A long item: of all long items. */
	uint32_t ring_next;
	uint32_t ring_previous;
	/* A span: its places, those given out, and the list of the others. */
	uint32_t place_count;
	uint32_t places_used;
	uint32_t reserved[3];
	uint64_t free_list; /* offset of a free place, whose second word is that of the next */
	/* No item in it expires before this; UINT64_MAX: none at all. */
	_Atomic uint64_t soonest_ms;
};

static_assert(sizeof(struct page_info) == 64, "a cache line");

#define PAGE_BINS 128

/* Sets what others look at without the lock under which it is changed. */
#define SHOWN_SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

struct page_pool {
	struct page_info *table;
	uint32_t first; /* page that can be used */
	uint32_t count; /* of all pages: the end */
	struct spin_lock lock;
	uint32_t free_pages;
	uint32_t least; /* shorter runs are not given out just now */
	uint32_t floor; /* taking from the upper end goes on below this page */
	uint32_t hand;	/* the head of a run, where making room goes on */
	uint32_t bins[PAGE_BINS];
	uint64_t bitmap[PAGE_BINS / 64];
};

/* The table must be zero. Each page from first to count - 1 is then taken in, once, as part of a
 * run that is in use, or free (PAGE_FREE); two free runs do not touch. */
void page_pool_init(struct page_pool *pool, struct page_info *table, uint32_t first,
		    uint32_t count);
void page_pool_adopt(struct page_pool *pool, uint32_t page, uint32_t pages, enum page_use use,
		     unsigned size_class);

/* A run of `pages` in a row, or 0. `use` is not PAGE_FREE. */
uint32_t page_pool_take(struct page_pool *pool, uint32_t pages, enum page_use use,
			unsigned size_class);

/* One page, as high as possible. */
uint32_t page_pool_take_high(struct page_pool *pool, enum page_use use);

/* Until it is called with 0, only runs of at least so many pages are given out: somebody is about
 * to take one that is just being made free. */
void page_pool_hold(struct page_pool *pool, uint32_t least);

/* Of a run in use, its first page. */
void page_pool_give(struct page_pool *pool, uint32_t page);

/* The first page of the run in use that this page is part of. */
static inline uint32_t page_head(const struct page_pool *pool, uint32_t page)
{
	const struct page_info *info = &pool->table[page];

	return atomic_load_explicit(&info->use, memory_order_acquire) == PAGE_BODY ? info->head
										   : page;
}

static inline enum page_use page_use(const struct page_pool *pool, uint32_t page)
{
	return atomic_load_explicit(&pool->table[page].use, memory_order_acquire);
}

/* Nothing else under way: every page belongs to one run, free runs are joined and in their bins. */
bool page_pool_is_valid(struct page_pool *pool, char *why, size_t why_size);

#endif
