/*
 * Slabs: places for items, by size class.
 *
 * A class takes pages from the pool in spans, runs of as few pages as it needs to lose little at
 * their end, cuts them into places of its size, and gives a span back when all its places are free.
 * Each worker keeps a few free places of each class, so that taking and giving mostly touch nothing
 * that other workers use. Items beyond SLAB_MAX_SIZE get a run of pages each ("long").
 *
 * Nothing here looks at items, but for this: the version word of every free place is 0, so whoever
 * walks over a span can tell where items are.
 *
 * Locks: a cache's own; within it a class's; within that the pool's. A cache is only contended
 * while somebody empties a span.
 */
#ifndef STORE_SLAB_H
#define STORE_SLAB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/spin_lock.h"
#include "store/pages.h"
#include "store/size_class.h"

#define SLAB_LONG	  SLAB_CLASS_COUNT /* stands for the class of long items */
#define SLAB_CLASSES	  (SLAB_CLASS_COUNT + 1)
#define SLAB_CACHE_PLACES 32u
#define SLAB_CACHE_BYTES  ((uint64_t)64 << 10) /* of one class, at most, but for one place */

struct slab_class {
	/* Constant. */
	uint64_t size;
	uint32_t span_pages;
	uint32_t span_places;
	uint32_t cache_places; /* that a worker keeps; 0: none */

	_Alignas(64) struct spin_lock lock;
	uint32_t listed; /* spans with free places */
	/* All spans, or long items: the one that the hand points at, and the place in it. The hand
	 * goes round to find what can be evicted (evict.c). */
	uint32_t ring;
	uint32_t hand_place;
	uint64_t hand_visits; /* places since the lap began */
	uint64_t pages;
	uint64_t free_places; /* on the spans' lists */
};

/* What a worker has of a class. The counts are of all that went through this worker; only the sum
 * over all workers makes sense. Written by the worker, read by anyone. */
struct slab_cache {
	struct spin_lock lock;
	uint32_t count;
	_Atomic int64_t items;
	_Atomic int64_t bytes; /* that were asked for */
	uint64_t places[SLAB_CACHE_PLACES];
};

struct slab_worker {
	struct slab_cache caches[SLAB_CLASSES];
};

struct slab {
	uint8_t *memory;
	struct page_pool *pool;
	bool zero_freed;
	struct slab_class classes[SLAB_CLASSES];
};

void slab_init(struct slab *slab, uint8_t *memory, struct page_pool *pool, bool zero_freed);

/* The class of a size, SLAB_LONG included. */
static inline unsigned slab_class_of(uint64_t size)
{
	return size <= SLAB_MAX_SIZE ? size_class_of(size) : SLAB_LONG;
}

/* Room for `size` bytes: the offset of a place whose version word is 0, or 0 if there is none
 * without making room. */
uint64_t slab_take(struct slab *slab, struct slab_worker *worker, uint64_t size);

/* The same from the free places alone, without a new span. Not for long items. */
uint64_t slab_take_free(struct slab *slab, struct slab_worker *worker, uint64_t size);

/* Gives back what was taken with this size, by any worker. The version word is 0. */
void slab_give(struct slab *slab, struct slab_worker *worker, uint64_t offset, uint64_t size);

/* Gives all that the worker keeps to the classes. */
void slab_worker_drain(struct slab *slab, struct slab_worker *worker);

/* The page of the span or long item that this offset lies in; 0 when it is something else. */
uint32_t slab_page_of(const struct slab *slab, uint64_t offset);

/* Whether a place of a span, or a long item, begins at this offset, whoever claims so. */
bool slab_is_place(const struct slab *slab, uint64_t offset);

/* Takes from all workers what they keep of a class, and gives it to the class. */
void slab_recall(struct slab *slab, unsigned slab_class, struct slab_worker *const *workers,
		 unsigned worker_count);

/* Emptying a span. begin: false if the page is no span any more; else nothing is taken from it any
 * more, and what workers keep of it is taken from them. Then the caller moves or ends its items.
 * end: gives the pages back if all places are free (true), or goes on using the span. One span at
 * a time. */
bool slab_drain_begin(struct slab *slab, uint32_t page, struct slab_worker *const *workers,
		      unsigned worker_count);
bool slab_drain_end(struct slab *slab, uint32_t page, struct slab_worker *const *workers,
		    unsigned worker_count);

/* Moves the hand of a class on by up to `count` places and writes their offsets, whatever is there.
 * *lapped: it has come round. */
unsigned slab_hand_next(struct slab *slab, unsigned slab_class, uint64_t *offsets, unsigned count,
			bool *lapped);

/* The span that the hand points at, which moves on to the next one; 0: there is none. */
uint32_t slab_hand_next_span(struct slab *slab, unsigned slab_class, bool *lapped);

/* Of some spans with free places the one that has most; 0: there is none. */
uint32_t slab_emptiest(struct slab *slab, unsigned slab_class);

/* For rebuilding: takes in a span, all of whose places count as used, or a long item; and gives
 * back a place, or a long item, that turned out to hold nothing. */
void slab_adopt(struct slab *slab, uint32_t page);
void slab_give_unused(struct slab *slab, uint64_t offset);

/* Counts items that were not taken by this worker. */
void slab_count(struct slab_worker *worker, unsigned slab_class, int64_t items, int64_t bytes);

/* Nothing else under way: lists, rings and counts fit each other. */
bool slab_is_valid(struct slab *slab, struct slab_worker *const *workers, unsigned worker_count,
		   char *why, size_t why_size);

#endif
