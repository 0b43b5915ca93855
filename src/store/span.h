/*
 * Spans: the runs of pages that a slab class cuts into places. Private to the slabs; unless said
 * otherwise the class is locked.
 *
 * A span is in the ring of its class as long as it exists, and in the class's list as long as it
 * has free places and is not being emptied.
 */
#ifndef STORE_SPAN_H
#define STORE_SPAN_H

#include "store/item.h"
#include "store/slab.h"

static inline struct page_info *span_info(const struct slab *slab, uint32_t page)
{
	return &slab->pool->table[page];
}

static inline uint64_t span_offset(uint32_t page)
{
	return (uint64_t)page << STORE_PAGE_BITS;
}

/* The two words of a free place that mean something: the version, and the next free place. */
static inline struct item *span_place(const struct slab *slab, uint64_t offset)
{
	return (struct item *)(slab->memory + offset);
}

static inline uint64_t span_next(const struct slab *slab, uint64_t offset)
{
	return atomic_load_explicit(&span_place(slab, offset)->checksum, memory_order_relaxed);
}

static inline void span_set_next(struct slab *slab, uint64_t offset, uint64_t next)
{
	atomic_store_explicit(&span_place(slab, offset)->checksum, next, memory_order_relaxed);
}

/* With free places, or without. */
void span_list(struct slab *slab, struct slab_class *class, uint32_t page);
void span_unlist(struct slab *slab, struct slab_class *class, uint32_t page);

/* Puts a span, or a long item, at the end of the ring as the hand sees it. */
void span_ring_add(struct slab *slab, struct slab_class *class, uint32_t page);
void span_ring_remove(struct slab *slab, struct slab_class *class, uint32_t page);

/* A used place becomes a free one. */
void span_push(struct slab *slab, struct slab_class *class, uint32_t page, uint64_t offset);

/* Gives a span without used places to the pool. */
void span_release(struct slab *slab, struct slab_class *class, uint32_t page);

/* A place comes back to its span. A span that is free altogether goes back to the pool, unless the
 * class would be left without places to give. */
void span_return(struct slab *slab, struct slab_class *class, uint64_t offset);

/* Takes a run from the pool and cuts it into places, the first in memory to be given first. */
bool span_add(struct slab *slab, struct slab_class *class);

#endif
