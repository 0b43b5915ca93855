/*
 * Glance: what nearly every get is, inline.
 *
 * Nearly always nobody is at the bucket that the key belongs to, the key is in it and not in one
 * that overflows from it, and the value is short. Then this is all: one bucket, one slot, one try,
 * and nothing handed from function to function. In memory that no cache holds a get mostly waits,
 * and the processor begins the next ones meanwhile, as many as its window has instructions for:
 * each one less counts there.
 *
 * Whatever is not so simple is answered by GLANCE_LOOK, and reader_look() finds out. Why a glance
 * can be trusted is said in reader.c.
 */
#ifndef STORE_READER_GLANCE_H
#define STORE_READER_GLANCE_H

#include "base/hash_short.h"
#include "store/item.h"
#include "store/probe.h"
#include "store/racy.h"
#include "store/reader.h"

/* As probe_hash(), which is a call. */
static inline uint64_t glance_hash(const struct reader *reader, const void *key, size_t key_length)
{
	return hash64_short(key, key_length, reader->hash_seed);
}

enum glance {
	GLANCE_FOUND,
	GLANCE_MISS,
	GLANCE_LOOK,
};

static inline uint64_t reader_bucket_count(const struct reader *reader)
{
	/* Acquire: the buckets that are counted are there. */
	uint64_t count = atomic_load_explicit(&reader->header->bucket_count, memory_order_acquire);

	/* Within bounds, whatever the arena says. One too many leads to a bucket that is not
	 * there. */
	return is_bucket_count(count) ? count : 1;
}

/* NULL: there is none of this number. */
static inline const struct bucket *reader_bucket(const struct reader *reader,
						 const _Atomic uint32_t *directory, uint64_t number)
{
	uint32_t page;

	if (number >> SEGMENT_BITS >= reader->page_count)
		return NULL;
	page = probe_page(directory, number);
	if (page - reader->first_page >= reader->other_pages)
		return NULL;
	return (const struct bucket *)(reader->memory + probe_offset(page, number));
}

/* To be read before the directory is: which pages have buckets changes with it. */
static inline uint64_t reader_shrinks(const struct reader *reader)
{
	/* Acquire: the directory is read after it, and no page is found there that was given back
	 * before. */
	return atomic_load_explicit(&reader->header->shrinks, memory_order_acquire);
}

/* True if no writer was at the bucket since its header was read, and the bucket is one: no page of
 * buckets was given back since `shrinks` was read. */
static inline bool reader_is_unchanged(const struct reader *reader, const struct bucket *home,
				       uint64_t header, uint64_t shrinks)
{
	/* Acquire: what was read before this is read before the header and the count. */
	atomic_thread_fence(memory_order_acquire);
	/* One branch for both: they are nearly always the same. */
	return ((racy_load(&home->header) ^ header) |
		(atomic_load_explicit(&reader->header->shrinks, memory_order_relaxed) ^ shrinks)) ==
	       0;
}

/* The bucket that the key is probably in. Count and mask may be of different moments, and then it
 * may be another one. Relaxed, for neither is believed: the directory's acquire brings the segment
 * at least as it was prepared, and the bucket's header tells whether the key belongs there. */
static inline uint64_t glance_home(const struct reader *reader, uint64_t hash)
{
	uint64_t count = atomic_load_explicit(&reader->header->bucket_count, memory_order_relaxed);
	uint64_t mask = atomic_load_explicit(&reader->header->bucket_mask, memory_order_relaxed);
	uint64_t number = hash & mask, lower = hash & mask >> 1;

	return number < count ? number : lower;
}

/* Copies the value, if this slot is of the key's item, and it is a simple one. What is read here
 * may be anything, if a writer is at it: that is found out afterwards. */
static inline __attribute__((always_inline)) bool glance_item(const struct reader *reader,
							      uint64_t slot, const void *key,
							      size_t key_length, void *value,
							      size_t room,
							      struct reader_item *found)
{
	uint64_t offset = slot_offset(slot), length;
	const struct item *item = (const struct item *)(reader->memory + offset);

	/* The last page is one of buckets: a short item that begins before it ends in the arena. */
	if (offset - reader->first_item >= reader->item_room)
		return false;
	found->offset = offset;
	found->lengths = item_get_lengths(item);
	length = item_plain_length(found->lengths, key_length);
	if (__builtin_expect(length >= ITEM_WIDE, 0))
		return false;
	if (__builtin_expect(length > room, 0) || !racy_equal(key, item->key, key_length))
		return false;
	found->version = item_version(item);
	found->expires_ms = item_expiry(item);
	if (found->expires_ms && !reader_is_alive(reader, found->expires_ms))
		return false;
	/* Where it is does not depend on its length, for which the processor need not wait. */
	racy_copy(value, (const uint8_t *)item + item_value_offset(key_length, 0), length);
	return true;
}

static_assert(sizeof(struct item) + STORE_MAX_KEY + ITEM_WIDE < STORE_PAGE_SIZE, "glance_item");

/* As reader_get_hashed(). The key must have 1 to STORE_MAX_KEY bytes, and value not be NULL. */
static inline __attribute__((always_inline)) enum glance reader_glance(
	const struct reader *reader, uint64_t hash, const void *key, size_t key_length, void *value,
	size_t room, struct reader_item *found)
{
	const struct bucket *bucket;
	struct reader_item seen;
	uint64_t number, header, shrinks = reader_shrinks(reader);
	unsigned matches;

	number = glance_home(reader, hash);
	bucket = reader_bucket(reader, reader->directory, number);
	if (__builtin_expect(!bucket, 0))
		return GLANCE_LOOK;
	/* Acquire: everything that is read after this is read after the header. */
	header = racy_load_acquire(&bucket->header);
	/* By its depth the key belongs here. (One that is not there has the depth 0, by which none
	 * does: bucket 0 is always there.) */
	if (__builtin_expect(bucket_is_locked(header), 0) ||
	    __builtin_expect(hash_bits(hash, bucket_depth(header)) != number, 0))
		return GLANCE_LOOK;
	matches = probe_match(bucket, hash_tag(hash));
	if (matches == 0)
		return !bucket_overflow(header) &&
				       reader_is_unchanged(reader, bucket, header, shrinks)
			       ? GLANCE_MISS
			       : GLANCE_LOOK;
	/* Another key may have the same tag, one in ten thousand. */
	if (__builtin_expect(!glance_item(reader, probe_slot(bucket, matches), key, key_length,
					  value, room, &seen),
			     0))
		return GLANCE_LOOK;
	if (__builtin_expect(!reader_is_unchanged(reader, bucket, header, shrinks), 0))
		return GLANCE_LOOK;
	*found = seen;
	return GLANCE_FOUND;
}

#endif
