#include "store/item.h"

#include <string.h>

#include "base/hash.h"

void item_write_key(struct item *item, const void *key, size_t key_length, uint64_t value_length,
		    unsigned kind)
{
	uint64_t value_offset = item_value_offset(key_length, value_length);

	atomic_store_explicit(&item->lengths, item_lengths(key_length, value_length, kind),
			      memory_order_relaxed);
	memcpy(item->key, key, key_length);
	memset(item->key + key_length, 0, value_offset - sizeof(*item) - key_length);
}

uint64_t item_body_hash(const struct item *item)
{
	return hash64(item->key, item_size_of(item_get_lengths(item)) - sizeof(*item));
}

uint64_t item_checksum(uint64_t offset, uint64_t version, uint64_t expiry, uint64_t lengths,
		       uint64_t body_hash)
{
	const uint64_t words[4] = {offset, version, expiry, lengths};

	return hash64(words, sizeof(words)) ^ body_hash;
}

void item_publish(struct item *item, uint64_t offset, uint64_t version, uint64_t expiry,
		  uint64_t body_hash, bool is_pending)
{
	uint64_t checksum =
		item_checksum(offset, version, expiry, item_get_lengths(item), body_hash);

	atomic_store_explicit(&item->expiry, expiry, memory_order_relaxed);
	atomic_store_explicit(&item->checksum, checksum, memory_order_relaxed);
	/* Release: who sees the version sees all of the item. */
	atomic_store_explicit(&item->version, is_pending ? version | ITEM_PENDING : version,
			      memory_order_release);
}

void item_confirm(struct item *item)
{
	uint64_t version = atomic_load_explicit(&item->version, memory_order_relaxed);

	/* Release: what had to be done before is done. */
	atomic_store_explicit(&item->version, version & ~ITEM_PENDING, memory_order_release);
}

void item_recover(struct item *item, uint64_t offset)
{
	uint64_t version = item_version(item) & ~ITEM_PENDING;

	atomic_store_explicit(&item->checksum,
			      item_checksum(offset, version, item_expiry(item),
					    item_get_lengths(item), item_body_hash(item)),
			      memory_order_relaxed);
	atomic_store_explicit(&item->version, version, memory_order_release);
}

/*
 * Expiry and checksum change one after the other, and meanwhile the item is pending: a reader that
 * fetched it asks, one in the arena sees that the bucket is locked. Whoever is killed in between
 * leaves an item that restore can mend.
 */
void item_set_expiry(struct item *item, uint64_t offset, uint64_t expiry)
{
	uint64_t version = item_version(item);
	uint64_t lengths = item_get_lengths(item);
	uint64_t word = atomic_load_explicit(&item->expiry, memory_order_relaxed);
	uint64_t checksum = atomic_load_explicit(&item->checksum, memory_order_relaxed);

	checksum ^= item_checksum(offset, version, word & ITEM_EXPIRY_MASK, lengths, 0);
	checksum ^= item_checksum(offset, version, expiry, lengths, 0);
	atomic_store_explicit(&item->version, version | ITEM_PENDING, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	/* Views may be unpinned meanwhile, which changes the upper bits. */
	while (!atomic_compare_exchange_weak_explicit(&item->expiry, &word,
						      (word & ~ITEM_EXPIRY_MASK) | expiry,
						      memory_order_relaxed, memory_order_relaxed))
		;
	atomic_store_explicit(&item->checksum, checksum, memory_order_relaxed);
	item_confirm(item);
}

bool item_is_plausible(const struct item_header *header, uint64_t room)
{
	uint64_t key_length = item_key_length(header->lengths);

	return header->version && header->version < ITEM_PENDING && key_length >= 1 &&
	       key_length <= STORE_MAX_KEY && item_kind(header->lengths) <= ITEM_COUNTER &&
	       item_size_of(header->lengths) <= room;
}

bool item_has_checksum(const struct item_header *header, uint64_t offset, uint64_t body_hash)
{
	return header->checksum ==
	       item_checksum(offset, header->version, header->expiry, header->lengths, body_hash);
}

bool item_take(const struct item *item, uint64_t offset, uint64_t room, struct item_header *header)
{
	if (room < sizeof(*item))
		return false;
	*header = item_take_header(item);
	return item_is_plausible(header, room) &&
	       item_has_checksum(header, offset,
				 hash64(item->key, item_size_of(header->lengths) - sizeof(*item)));
}

bool item_is_complete(const struct item *item, uint64_t offset, uint64_t room)
{
	struct item_header header;

	return item_take(item, offset, room, &header);
}
