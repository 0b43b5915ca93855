/*
 * Bare: the least that a get in memory can be, to hold the store's get against.
 *
 * An open hash table of the shape that the store has: a bucket is one cache line of slots, a slot
 * is a tag and an offset, an item is a header, the key and the value. Finding a key takes the same
 * hash, one line of the buckets and the lines of the item: two misses when the table is larger than
 * the cache. There are no versions, locks, expiry, overflow, statistics; nothing is ever removed.
 *
 * Its memory is of the same kind as the store's, its items are as long and as far apart, and its
 * buckets are about as full. One thread.
 */
#ifndef STORE_PERF_BARE_H
#define STORE_PERF_BARE_H

#include <remora/fabric.h>

#include "perf.h"

struct bare {
	struct rmr_arena *arena;
	uint64_t *buckets;
	uint64_t bucket_mask;
	uint8_t *items;
	size_t item_size;
	uint64_t item_count;
	uint64_t item_limit;
};

RMR_MUST_CHECK enum rmr_status bare_open(struct bare *bare, const struct perf_config *config,
					 uint64_t keys);
/* Legal on a zeroed one. */
void bare_close(struct bare *bare);

/* Keys must differ, and not be more than bare_open was told. */
void bare_put(struct bare *bare, const void *key, size_t key_length, const void *value,
	      size_t value_length);

/* Copies the value; false: not there, or longer than room. */
bool bare_get(const struct bare *bare, const void *key, size_t key_length, void *value,
	      size_t room);

/* What no get can be spared, and nothing else: reads a word of some bucket, and after that the
 * first word of the value of item `number`, which it answers. zero is 0, but the compiler must not
 * know: then the second read has to wait for the first. Values have 8 bytes at least. */
uint64_t bare_read(const struct bare *bare, uint64_t number, size_t key_length, uint64_t zero);

/* Puts keys 0 to keys - 1. */
RMR_MUST_CHECK enum rmr_status bare_fill(struct bare *bare, const struct perf_config *config,
					 uint64_t keys);

#endif
