/*
 * Reader: gets values out of a mapped arena without a lock and without asking anybody.
 *
 * For the store's own threads and for processes that map its memory read-only alike. An answer is
 * the current value, a clean miss, or "ask": never torn, never stale. The proof is in reader.c.
 *
 * A reader is constant after reader_init() and may be used by any number of threads. What it finds
 * is checked against the arena's bounds: a broken arena makes it ask or miss, not crash.
 */
#ifndef STORE_READER_H
#define STORE_READER_H

#include <remora/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/layout.h"

struct reader {
	const uint8_t *memory;
	const struct store_header *header;
	const _Atomic uint32_t *directory;
	const _Atomic uint32_t *overflow_directory;
	uint64_t hash_seed;
	uint64_t size;
	uint64_t first_item; /* offset of the first page that is not fixed */
	uint64_t item_room;  /* from there to the last page, which is one of buckets */
	uint32_t page_count;
	uint32_t first_page;  /* that is not fixed */
	uint32_t other_pages; /* from that one on */
	int64_t clock_offset_ms;
	bool has_clock; /* store time can be told here: the store's clock is this process's, too */
	uint64_t (*clock_ms)(void); /* NULL: the host's */
};

enum reader_status {
	READER_FOUND,
	READER_MISS,	/* the key was not there at some moment during the call */
	READER_NO_ROOM, /* found, but longer than room; value holds nothing */
	READER_ASK,	/* only the server can tell: the item has expired or may have, or is a
			 * counter; or writers were at it all the time */
};

struct reader_item {
	uint64_t offset;
	uint64_t version;
	uint64_t expires_ms;
	uint64_t lengths;
};

/* RMR_PROTOCOL: no store, one of another layout, or one whose parts do not lie in `size`. */
RMR_MUST_CHECK enum rmr_status reader_init(struct reader *reader, const void *memory, size_t size);

/* Store time as this host sees it; meaningless without has_clock. */
uint64_t reader_clock_ms(const struct reader *reader);

/* Whether an item that expires then is known not to have expired yet. In a time namespace of
 * another clock that cannot be told: then it is not known of any. */
static inline bool reader_is_alive(const struct reader *reader, uint64_t expires_ms)
{
	return reader->has_clock && reader_clock_ms(reader) < expires_ms;
}

/* A number that changes with each store_tick(), the sign of life of the store's process. What
 * number it is means nothing: clocks may differ. */
static inline uint64_t reader_tick(const struct reader *reader)
{
	/* Relaxed: it says nothing about anything else. */
	return atomic_load_explicit(&reader->header->tick_ms, memory_order_relaxed);
}

/* `item` is written unless it answers READER_MISS or READER_ASK. value may be NULL: nothing is
 * copied then, and room does not count. */
enum reader_status reader_get(const struct reader *reader, const void *key, size_t key_length,
			      void *value, size_t room, struct reader_item *item);

/* The same in pieces, for many keys at once: the hash; a hint to the processor that the bucket will
 * be needed, which is returned, NULL if it cannot be told now; that the item will be, if that
 * bucket has one with this tag, whose offset is returned, 0 if there is none. */
uint64_t reader_hash(const struct reader *reader, const void *key, size_t key_length);
const struct bucket *reader_prefetch_bucket(const struct reader *reader, uint64_t hash);
uint64_t reader_prefetch_item(const struct reader *reader, const struct bucket *bucket,
			      uint64_t hash);
enum reader_status reader_get_hashed(const struct reader *reader, uint64_t hash, const void *key,
				     size_t key_length, void *value, size_t room,
				     struct reader_item *item);

/* The careful half of it, for who has tried a glance (reader_glance.h): it looks wherever the key
 * may be, and again while writers are there. The key must have 1 to STORE_MAX_KEY bytes. */
enum reader_status reader_look(const struct reader *reader, uint64_t hash, const void *key,
			       size_t key_length, void *value, size_t room,
			       struct reader_item *item);

#endif
