/*
 * Reader: the way of a get, inline, for reader.c, where the proof is, and for the store's own get,
 * which would otherwise spend as much on handing things from function to function as on looking
 * them up.
 *
 * reader_look() is what nearly all gets need: the right bucket at once, and the key in it. For the
 * rest, when the index has just grown or the bucket overflows, there is reader_look_further().
 */
#ifndef STORE_READER_LOOK_H
#define STORE_READER_LOOK_H

#include "base/clock.h"
#include "store/item.h"
#include "store/probe.h"
#include "store/racy.h"
#include "store/reader.h"

/* Looks until somebody is asked. Writers mostly hold a bucket for less than a
 * microsecond. */
#define READER_MAX_LOOKS 64
/* Copies of a long value that were in vain until somebody is asked. */
#define READER_LONG	   65536u
#define READER_MAX_SPOILED 3
/* What an item has beside its value, at most. */
#define ITEM_MAX_EXTRA (sizeof(struct item) + STORE_MAX_KEY + ITEM_WIDE_ALIGN)

/* What a look found, and how to look again. */
struct sight {
	const struct bucket *home;
	uint64_t home_header;
	const struct item *item;
	uint64_t offset;
	uint64_t version;
	uint64_t expires_ms;
	uint64_t lengths;
};

enum look {
	LOOK_FOUND,
	LOOK_MISS,
	LOOK_AGAIN, /* a writer was there */
};

enum look reader_look_further(const struct reader *reader, uint64_t hash, const void *key,
			      size_t key_length, struct sight *sight);

/* After the copy, when somebody was at the bucket: whether what was seen is still there. */
bool reader_is_still_there(const struct reader *reader, uint64_t hash, const void *key,
			   size_t key_length, const struct sight *sight, uint64_t moves);

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
	uint64_t offset;

	if (number >> SEGMENT_BITS >= reader->page_count)
		return NULL;
	offset = probe_place(directory, number);
	if (offset - reader->first_item >= reader->size - reader->first_item)
		return NULL;
	return (const struct bucket *)(reader->memory + offset);
}

/* True if no writer was there since the header was read. */
static inline bool reader_is_unchanged(const struct sight *sight)
{
	/* Acquire: what was read before this is read before the header. */
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&sight->home->header, memory_order_relaxed) ==
	       sight->home_header;
}

/* Whether the slot's item has this key, as far as can be told now. An item that is dead by now is
 * no concern here: then the header has changed. */
static inline bool reader_has_key(const struct reader *reader, uint64_t slot, const void *key,
				  size_t key_length, struct sight *sight)
{
	uint64_t offset = slot_offset(slot);
	const struct item *item = (const struct item *)(reader->memory + offset);
	uint64_t lengths;

	/* A header at least, whatever the slot says. */
	if (offset - reader->first_item > reader->size - reader->first_item - sizeof(*item))
		return false;
	lengths = item_get_lengths(item);
	/* The arena's last page is one of buckets: a little more than the item's size does no harm,
	 * and is sooner known. */
	if (item_key_length(lengths) != key_length ||
	    item_value_length(lengths) + ITEM_MAX_EXTRA > reader->size - offset ||
	    !racy_equal(key, item->key, key_length))
		return false;
	sight->item = item;
	sight->offset = offset;
	sight->lengths = lengths;
	sight->version = item_version(item);
	sight->expires_ms = item_expiry(item);
	return true;
}

static inline __attribute__((always_inline)) enum look reader_look(const struct reader *reader,
								   uint64_t hash, const void *key,
								   size_t key_length,
								   struct sight *sight)
{
	const struct bucket *bucket;
	uint64_t number, header;
	unsigned bits, matches;

	number = probe_home(hash, reader_bucket_count(reader), &bits);
	bucket = reader_bucket(reader, reader->directory, number);
	if (__builtin_expect(!bucket, 0))
		return LOOK_AGAIN;
	/* Acquire: everything that is read after this is read after the header. */
	header = atomic_load_explicit(&bucket->header, memory_order_acquire);
	if (__builtin_expect(bucket_is_locked(header), 0))
		return LOOK_AGAIN;
	if (__builtin_expect(hash_bits(hash, bucket_depth(header)) != number ||
				     bucket_depth(header) == 0,
			     0))
		return reader_look_further(reader, hash, key, key_length, sight);
	sight->home = bucket;
	sight->home_header = header;
	for (matches = probe_match(bucket, hash_tag(hash)); matches; matches &= matches - 1) {
		uint64_t slot = atomic_load_explicit(&bucket->slots[__builtin_ctz(matches)],
						     memory_order_relaxed);

		if (reader_has_key(reader, slot, key, key_length, sight))
			return reader_is_unchanged(sight) ? LOOK_FOUND : LOOK_AGAIN;
	}
	if (bucket_overflow(header))
		return reader_look_further(reader, hash, key, key_length, sight);
	return reader_is_unchanged(sight) ? LOOK_MISS : LOOK_AGAIN;
}

/* Where the value is. The processor guesses that it is a short one, and fetches it while the length
 * is still on its way; item_value_offset() alone would wait for it. */
static inline const uint8_t *reader_value(const struct sight *sight, size_t key_length,
					  uint64_t length)
{
	if (__builtin_expect(length < ITEM_WIDE, 1))
		return (const uint8_t *)sight->item + item_value_offset(key_length, 0);
	/* Without this the compiler would make one expression of both. */
	__asm__ volatile("");
	return (const uint8_t *)sight->item + item_value_offset(key_length, ITEM_WIDE);
}

/* As reader_get_hashed(); what was found is in *sight. */
static inline __attribute__((always_inline)) enum reader_status reader_try(
	const struct reader *reader, uint64_t hash, const void *key, size_t key_length, void *value,
	size_t room, struct sight *sight)
{
	int spoiled = 0;

	for (int looks = 0; looks < READER_MAX_LOOKS; looks++) {
		enum look seen = reader_look(reader, hash, key, key_length, sight);
		uint64_t length, moves;

		if (seen == LOOK_MISS)
			return READER_MISS;
		if (__builtin_expect(seen == LOOK_AGAIN, 0)) {
			cpu_relax();
			continue;
		}
		length = item_value_length(sight->lengths);
		if (item_kind(sight->lengths) != ITEM_VALUE ||
		    (sight->expires_ms && reader_clock_ms(reader) >= sight->expires_ms))
			return READER_ASK;
		if (!value)
			return READER_FOUND;
		if (length > room)
			return READER_NO_ROOM;
		moves = atomic_load_explicit(&reader->header->moves, memory_order_acquire);
		racy_copy(value, reader_value(sight, key_length, length), length);
		if (reader_is_unchanged(sight) ||
		    reader_is_still_there(reader, hash, key, key_length, sight, moves))
			return READER_FOUND;
		/* A long value that changes while it is copied will do so again. */
		if (length > READER_LONG && ++spoiled == READER_MAX_SPOILED)
			break;
	}
	return READER_ASK;
}

#endif
