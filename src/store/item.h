/*
 * Items: how one is written, checked and ended.
 *
 * The checksum of an item is hash(key .. end of value) ^ hash(offset, version, expiry, lengths).
 * The first part takes as long as the value is; it is made outside of any lock, before the version
 * is known. The second is made again when only the expiry changes, or the item moves. Bytes between
 * key and value are 0 and counted.
 *
 * The upper bits of the expiry word belong to the store alone: how many views pin the item, and
 * whether it died under them. They are not in the checksum.
 *
 *	 63     62         48 47                                  0
 *	+------+-------------+-------------------------------------+
 *	| dead | pins        | expiry                              |
 *	+------+-------------+-------------------------------------+
 */
#ifndef STORE_ITEM_H
#define STORE_ITEM_H

#include <stdbool.h>
#include <stdint.h>

#include "store/layout.h"
#include "store/racy.h"

#define ITEM_PIN      ((uint64_t)1 << 48)
#define ITEM_MAX_PINS 32767u
#define ITEM_DEAD     ((uint64_t)1 << 63)

static inline uint64_t item_expiry(const struct item *item)
{
	return racy_load(&item->expiry) & ITEM_EXPIRY_MASK;
}

/* Acquire: who finds no pins may give the memory away, after all that was read through views. */
static inline unsigned item_pins(const struct item *item)
{
	return atomic_load_explicit(&item->expiry, memory_order_acquire) >> 48 & ITEM_MAX_PINS;
}

static inline uint64_t item_version(const struct item *item)
{
	return racy_load_acquire(&item->version);
}

static inline uint64_t item_get_lengths(const struct item *item)
{
	return racy_load(&item->lengths);
}

static inline uint8_t *item_value(struct item *item)
{
	uint64_t lengths = item_get_lengths(item);

	return (uint8_t *)item +
	       item_value_offset(item_key_length(lengths), item_value_length(lengths));
}

/* Writes lengths, key and the gap behind it; the version must be 0. */
void item_write_key(struct item *item, const void *key, size_t key_length, uint64_t value_length,
		    unsigned kind);

/* The part of the checksum that key and value make. */
uint64_t item_body_hash(const struct item *item);

/* Completes the item: expiry, checksum, and last the version, from when on it is alive; pending, if
 * there is another one to be killed before anybody may believe it. */
void item_publish(struct item *item, uint64_t offset, uint64_t version, uint64_t expiry,
		  uint64_t body_hash, bool is_pending);

/* It is pending no more. */
void item_confirm(struct item *item);

/* For restore: what was pending when its writer ended is taken as it is. */
void item_recover(struct item *item, uint64_t offset);

/* Changes the expiry of a living item. The bucket is locked. */
void item_set_expiry(struct item *item, uint64_t offset, uint64_t expiry);

/* The checksum that an item with this header and body at this offset has. For readers that fetched
 * the bytes, too. */
uint64_t item_checksum(uint64_t offset, uint64_t version, uint64_t expiry, uint64_t lengths,
		       uint64_t body_hash);

/*
 * The header of an item, copied. Each word is loaded once, and all checks of an item use this
 * copy from then on: the memory may belong to a server that changes it meanwhile, and a length that
 * is loaded again after it was checked may be another one.
 */
struct item_header {
	uint64_t version, checksum;
	uint64_t expiry; /* without the bits that are the store's own */
	uint64_t lengths;
};

/* There must be sizeof(struct item) bytes. */
static inline struct item_header item_take_header(const struct item *item)
{
	return (struct item_header){.version = item_version(item),
				    .checksum = racy_load(&item->checksum),
				    .expiry = item_expiry(item),
				    .lengths = item_get_lengths(item)};
}

/* The two halves of item_take(), for callers that hash the body themselves: whether the header
 * makes sense and the item fits into `room` bytes, and then whether the checksum is right. */
bool item_is_plausible(const struct item_header *header, uint64_t room);
bool item_has_checksum(const struct item_header *header, uint64_t offset, uint64_t body_hash);

/* Whether the `room` bytes at `item`, which lie or lay at `offset`, are a complete item. *header is
 * what was checked; it is written only if true. The bytes may change meanwhile: then the answer
 * means nothing, but nothing beyond `room` is read. */
bool item_take(const struct item *item, uint64_t offset, uint64_t room, struct item_header *header);
/* The same, for memory that does not change. */
bool item_is_complete(const struct item *item, uint64_t offset, uint64_t room);

#endif
