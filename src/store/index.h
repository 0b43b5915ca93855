/*
 * Index: the buckets, as writers see them.
 *
 * A writer locks the bucket of its key, finds or adds or removes slots, and gives the lock back;
 * readers never lock (reader.c has the argument). The header word with the lock bit is the only
 * state of a lock: there is nothing to allocate and nothing to clean up.
 *
 * Growing: index_grow() splits the next buckets in line, and is called by whoever added a key when
 * there are INDEX_GROWTH buckets too few for INDEX_LOAD keys each. That is all the work there ever
 * is at once, a few microseconds. Without memory for it the index goes on with longer chains, and
 * index_add() fails only when not even an overflow bucket can be had.
 *
 * Shrinking: index_shrink() undoes the last splits, and is called now and then while there are
 * fewer than INDEX_LOW_LOAD keys a bucket. index_shrink.c says when the pages can be used again.
 *
 * Locks: growing and shrinking share one, taken before any bucket's; overflow buckets have one that
 * is taken within a bucket's; then the pool's. Only the holder of the first one holds two buckets,
 * the lower one first.
 */
#ifndef STORE_INDEX_H
#define STORE_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/spin_lock.h"
#include "store/layout.h"
#include "store/pages.h"
#include "store/probe.h"

#define INDEX_LOAD 4u /* keys a bucket, on average */
/* With fewer keys a bucket it shrinks. Far below INDEX_LOAD: what shrinks does not grow at once. */
#define INDEX_LOW_LOAD	1u
#define INDEX_MAX_SLOTS (PROBE_MAX_CHAIN * BUCKET_SLOTS)
#define INDEX_GROWTH	8u /* buckets that are split in one go */

struct index {
	uint8_t *memory;
	struct store_header *header;
	_Atomic uint32_t *directory;
	_Atomic uint32_t *overflow_directory;
	struct page_pool *pool;
	struct spin_lock growing; /* and shrinking */
	uint32_t retired;	  /* pages of no use any more, a list by their `next`; 0: none */

	_Alignas(64) struct spin_lock overflow_lock;
	uint64_t overflow_free;	 /* number of the first on the list, which goes on in its header */
	uint64_t overflow_next;	 /* the lowest number never used */
	uint64_t overflow_limit; /* those below it have memory */
	uint64_t overflow_used;
	/* Pages taken: for both kinds of bucket. */
	_Atomic uint64_t segments;
};

/* Set while its thread is about to lock a bucket, and may have found the bucket's page in the
 * directory before the page was retired (index_shrink.c). Each thread has its own. */
struct index_guard {
	_Atomic bool is_set;
};

/* A locked bucket. */
struct index_lock {
	struct bucket *bucket;
	uint64_t header; /* as it was when it was locked, without the lock bit */
};

/* A slot of a locked bucket. */
struct index_slot {
	struct bucket *bucket; /* the one of the chain that it is in */
	unsigned number;
	uint64_t slot;
};

/* Makes an empty index of so many buckets, SEGMENT_BUCKETS at least. False: not enough pages. */
bool index_init(struct index *index, uint8_t *memory, struct store_header *header,
		struct page_pool *pool, uint64_t bucket_count);

struct index_lock index_lock(struct index *index, struct index_guard *guard, uint64_t hash);
void index_unlock(struct index_lock *lock);

/* The slot of this key. The items that are compared cannot go away: the bucket is locked. */
bool index_find(struct index *index, const struct index_lock *lock, uint64_t hash, const void *key,
		size_t key_length, struct index_slot *slot);

/* The slot of the item at this offset. */
bool index_find_offset(struct index *index, const struct index_lock *lock, uint64_t offset,
		       struct index_slot *slot);

/* Adds a slot to a locked bucket. False: its chain is full, and no overflow bucket can be had. */
bool index_add(struct index *index, struct index_lock *lock, uint64_t slot);

static inline void index_replace(const struct index_slot *at, uint64_t slot)
{
	/* Release: who sees the slot sees the item. */
	atomic_store_explicit(&at->bucket->slots[at->number], slot, memory_order_release);
}

void index_remove(struct index *index, struct index_lock *lock, const struct index_slot *at);

/* Makes these the slots of a locked bucket, no more than it has now, and gives back the overflow
 * buckets that it does not need any more. */
void index_refill(struct index *index, struct index_lock *lock, const uint64_t *slots,
		  unsigned count);

/* All slots of a chain. */
struct index_chain {
	uint64_t slots[INDEX_MAX_SLOTS];
	unsigned count;
};

void index_collect(struct index *index, const struct index_lock *lock, struct index_chain *chain);

static inline void index_set_depth(struct index_lock *lock, unsigned depth)
{
	lock->header =
		bucket_header(bucket_sequence(lock->header), bucket_overflow(lock->header), depth);
}

/* Locks bucket `number`, which must be there and stay there. */
struct index_lock index_lock_bucket(struct index *index, uint64_t number);

/* A hint to the processor that the bucket of this hash will be locked. */
void index_prefetch(const struct index *index, uint64_t hash);

/* Which bucket of its segment it is: the last SEGMENT_BITS bits of its number. */
static inline unsigned index_place_in_segment(const struct index *index,
					      const struct index_lock *lock)
{
	uint64_t offset = (uint64_t)((const uint8_t *)lock->bucket - index->memory);

	return offset / BUCKET_SIZE % SEGMENT_BUCKETS;
}

enum index_growth {
	INDEX_GREW,
	INDEX_BUSY,    /* another thread is at it */
	INDEX_NO_PAGE, /* for the next segment */
	INDEX_FULL,    /* as large as it can get, or a chain that cannot be split now */
};

/* Splits so many buckets; INDEX_GREW if it could do all. */
enum index_growth index_grow(struct index *index, unsigned splits);

/* Merges so many buckets, if there are that many above the least, into those that they were split
 * from. INDEX_FULL: a chain would be too long, or has no memory to become longer. */
enum index_growth index_shrink(struct index *index, unsigned merges);

/* Gives the pages back that were retired before `were_guards_seen_clear` was called, if that
 * returns true: every guard was clear at some moment during the call. */
void index_give_retired(struct index *index, bool (*were_guards_seen_clear)(void *context),
			void *context);

/* Gives back all pages of overflow buckets, if no such bucket is in use. */
void index_give_overflow_pages(struct index *index);

static inline uint64_t index_bucket_count(const struct index *index)
{
	return atomic_load_explicit(&index->header->bucket_count, memory_order_relaxed);
}

/* Called by the holder of the growing lock. */
static inline void index_set_count(struct index *index, uint64_t count)
{
	/* Relaxed: a hint, which glance_home() does not believe. */
	atomic_store_explicit(&index->header->bucket_mask, mask_of_count(count),
			      memory_order_relaxed);
	/* Release: the buckets that are counted are there. */
	atomic_store_explicit(&index->header->bucket_count, count, memory_order_release);
}

/* The hash of an item's key, which must not change meanwhile. */
uint64_t index_hash_of(const struct index *index, const struct item *item);

/* Nothing else under way: every bucket's keys belong there, depths are right, no bucket is locked,
 * overflow buckets are all used or free. Counts the keys. */
bool index_is_valid(struct index *index, uint64_t *keys, char *why, size_t why_size);

#endif
