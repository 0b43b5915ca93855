/*
 * Index: growing, and checking. See layout.h for linear hashing.
 *
 * A split goes like this, for bucket b of depth d, with the bucket n = b + 2^d that comes to be:
 *
 *	lock b
 *	fill n with those of b's slots that have bit d of the hash set; n still has depth 0
 *	n gets depth d + 1, locked		nobody finds it by the count yet, readers may by b
 *	take them out of b; b gets depth d + 1
 *	unlock b, unlock n
 *	count n					from now on everybody goes there by himself
 *
 * A reader with an old count looks at b. Before it was locked it finds its key there; while it is
 * locked it looks again; afterwards the depth sends it to n. One with a new count goes to n, which
 * is complete since before it was counted. (A glance does not wait for that: it may find n with a
 * depth of 0, or no n at all, and leaves it to a look.)
 *
 * If memory for n's overflow buckets is missing, nothing has been changed yet, and n is left empty.
 */
#include <string.h>

#include "store/index.h"
#include "store/item.h"
#include "store/probe.h"
#include "store/size_class.h"
#include "store/why.h"

/* The segment of bucket `number` is there afterwards, all its buckets of depth 0. */
static bool add_segment(struct index *index, uint64_t number)
{
	_Atomic uint32_t *entry = &index->directory[number >> SEGMENT_BITS];
	uint32_t page = atomic_load_explicit(entry, memory_order_relaxed);

	if (page)
		return true;
	page = page_pool_take_high(index->pool, PAGE_BUCKETS);
	if (!page)
		return false;
	memset(index->memory + ((uint64_t)page << STORE_PAGE_BITS), 0, STORE_PAGE_SIZE);
	atomic_fetch_add_explicit(&index->segments, 1, memory_order_relaxed);
	atomic_store_explicit(entry, page, memory_order_release);
	return true;
}

/* Moves to `upper`, which is empty, what belongs there. False: no memory, nothing has changed. */
static bool redistribute(struct index *index, struct index_lock *lower, struct index_lock *upper)
{
	unsigned depth = bucket_depth(lower->header);
	struct index_chain all, staying;

	staying.count = 0;
	index_collect(index, lower, &all);
	for (unsigned i = 0; i < all.count; i++) {
		uint64_t slot = all.slots[i];
		uint64_t hash = index_hash_of(
			index, (const struct item *)(index->memory + slot_offset(slot)));

		if (!(hash >> depth & 1)) {
			staying.slots[staying.count++] = slot;
		} else if (!index_add(index, upper, slot)) {
			index_refill(index, upper, NULL, 0);
			return false;
		}
	}
	index_refill(index, lower, staying.slots, staying.count);
	return true;
}

/* What the next split will need, a few puts from now. Hints only: nothing is locked. */
static void prefetch_next(struct index *index, uint64_t number, unsigned depth)
{
	uint64_t after = hash_bits(number + 1, depth);
	const struct bucket *bucket =
		(const struct bucket *)(index->memory + probe_place(index->directory, after));

	__builtin_prefetch(bucket + 1);
	for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
		uint64_t slot = atomic_load_explicit(&bucket->slots[i], memory_order_relaxed);

		if (slot)
			__builtin_prefetch(index->memory + slot_offset(slot));
	}
}

/* Splits the bucket whose turn it is when there are `count`. The growing lock is held. */
static enum index_growth split_next(struct index *index, uint64_t count)
{
	unsigned depth = depth_of_count(count);
	uint64_t number = count - ((uint64_t)1 << depth);
	struct index_lock lower, upper;
	bool done;

	if (depth + 1 > MAX_DEPTH || count >> SEGMENT_BITS >= index->header->page_count)
		return INDEX_FULL;
	if (!add_segment(index, count))
		return INDEX_NO_PAGE;
	lower = index_lock_bucket(index, number);
	upper = index_lock_bucket(index, count);
	done = redistribute(index, &lower, &upper);
	if (done) {
		index_set_depth(&lower, depth + 1);
		index_set_depth(&upper, depth + 1);
		/* Visible before lower is unlocked, which sends readers there. */
		atomic_store_explicit(&upper.bucket->header, upper.header | BUCKET_LOCKED,
				      memory_order_release);
	}
	index_unlock(&lower);
	index_unlock(&upper);
	if (!done)
		return INDEX_FULL;
	prefetch_next(index, number, depth);
	return INDEX_GREW;
}

/* The count is told once for all: every change of it takes a cache line from all other threads. */
enum index_growth index_grow(struct index *index, unsigned splits)
{
	enum index_growth growth = INDEX_GREW;
	uint64_t before, count;

	/* Looking first: who is at it needs the cache line less than all others together. */
	if (atomic_load_explicit(&index->growing.taken, memory_order_relaxed) ||
	    !spin_lock_try(&index->growing))
		return INDEX_BUSY;
	before = count = index_bucket_count(index);
	while (splits-- && (growth = split_next(index, count)) == INDEX_GREW)
		count++;
	if (count > before)
		index_set_count(index, count);
	spin_lock_give(&index->growing);
	return growth;
}

/* ------------------------------------------------------------------------------------------
 * Checks
 */

struct check {
	struct index *index;
	uint64_t bucket;
	unsigned depth;
	uint64_t keys;
	char *why;
	size_t why_size;
	bool is_valid;
};

/* Only the first reason is kept. */
#define NOT_VALID(check, ...)                                                                      \
	do {                                                                                       \
		if ((check)->is_valid)                                                             \
			(check)->is_valid = invalid((check)->why, (check)->why_size, __VA_ARGS__); \
	} while (0)

static void check_slot(struct check *check, uint64_t slot)
{
	uint64_t offset = slot_offset(slot);
	const struct item *item = (const struct item *)(check->index->memory + offset);
	uint64_t hash = index_hash_of(check->index, item);

	check->keys++;
	if (!item_is_complete(item, offset, size_class_size(slot_class(slot))))
		NOT_VALID(check, "bucket %lu: the item at %lu is not complete", check->bucket,
			  offset);
	else if (slot_tag(slot) != hash_tag(hash))
		NOT_VALID(check, "bucket %lu: wrong tag", check->bucket);
	else if (hash_bits(hash, check->depth) != check->bucket)
		NOT_VALID(check, "bucket %lu of depth %u: the item at %lu belongs to %lu",
			  check->bucket, check->depth, offset, hash_bits(hash, check->depth));
}

/* Only the last bucket of a chain has empty slots, at its end. */
static uint64_t check_chain(struct check *check, const struct index_lock *lock)
{
	const struct bucket *bucket = lock->bucket;
	uint64_t header = lock->header, length = 0;
	bool hole = false;

	for (;;) {
		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			bool empty = !atomic_load_explicit(&bucket->slots[i], memory_order_relaxed);

			if (hole && !empty)
				NOT_VALID(check, "bucket %lu: a slot behind a hole", check->bucket);
			hole |= empty;
		}
		if (!bucket_overflow(header))
			return length;
		if (hole || ++length > PROBE_MAX_CHAIN)
			NOT_VALID(check, "bucket %lu: a chain of %lu", check->bucket, length);
		if (!check->is_valid)
			return length;
		bucket = (const struct bucket *)(check->index->memory +
						 probe_place(check->index->overflow_directory,
							     bucket_overflow(header)));
		header = atomic_load_explicit(&bucket->header, memory_order_relaxed);
	}
}

bool index_is_valid(struct index *index, uint64_t *keys, char *why, size_t why_size)
{
	struct check check = {.index = index, .why = why, .why_size = why_size, .is_valid = true};
	uint64_t count = index_bucket_count(index), overflow = 0;
	unsigned depth = depth_of_count(count);
	uint64_t split = count - ((uint64_t)1 << depth);

	for (uint64_t i = 0; i < count && check.is_valid; i++) {
		struct index_chain chain;
		struct index_lock lock;

		check.bucket = i;
		check.depth = depth + (i < split || i >= (uint64_t)1 << depth);
		lock = index_lock_bucket(index, i);
		if (bucket_depth(lock.header) != check.depth)
			NOT_VALID(&check, "bucket %lu: depth %u, not %u", i,
				  bucket_depth(lock.header), check.depth);
		overflow += check_chain(&check, &lock);
		/* A chain that is too long is not collected. */
		chain.count = 0;
		if (check.is_valid)
			index_collect(index, &lock, &chain);
		for (unsigned j = 0; j < chain.count && check.is_valid; j++)
			check_slot(&check, chain.slots[j]);
		index_unlock(&lock);
	}
	if (index->header->bucket_mask != mask_of_count(count))
		NOT_VALID(&check, "%lu buckets, but a mask of %lx", count,
			  (uint64_t)index->header->bucket_mask);
	if (overflow != index->overflow_used)
		NOT_VALID(&check, "%lu overflow buckets used, %lu found", index->overflow_used,
			  overflow);
	*keys = check.keys;
	return check.is_valid;
}
