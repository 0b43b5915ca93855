/* Bare: see bare.h. A bucket that is full goes on in its neighbour. */
#include "bare.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "common/keys.h"
#include "rig.h"
#include "store/layout.h"

#define SLOTS	    8u
#define SEED	    UINT64_C(0x2545f4914f6cdd1d)
#define OFFSET_BITS 48
#define OFFSET_MASK ((UINT64_C(1) << OFFSET_BITS) - 1)
/* Slots in use, on average, of a bucket: between this and twice as many, as the number of buckets
 * is a power of two. */
#define MIN_FILL 3u

/* As long as the store's header of an item. */
struct bare_item {
	uint64_t key_length;
	uint64_t value_length;
	uint64_t unused[2];
	uint8_t key[];
};

static_assert(sizeof(struct bare_item) == sizeof(struct item), "as long as the store's");

enum rmr_status bare_open(struct bare *bare, const struct perf_config *config, uint64_t keys)
{
	uint64_t wanted = item_size(config->key_size, config->value_size);
	uint64_t buckets = 1;
	enum rmr_status status;

	*bare = (struct bare){.item_limit = keys};
	while (buckets * 2 * MIN_FILL <= keys)
		buckets *= 2;
	bare->item_size = size_class_size(size_class_of(wanted));
	status = rig_memory(config, buckets * 64 + keys * bare->item_size, &bare->arena);
	if (status != RMR_OK)
		return status;
	bare->buckets = rmr_arena_base(bare->arena);
	bare->bucket_mask = buckets - 1;
	bare->items = (uint8_t *)(bare->buckets + buckets * SLOTS);
	return RMR_OK;
}

void bare_close(struct bare *bare)
{
	rmr_arena_close(bare->arena);
	*bare = (struct bare){0};
}

static uint64_t slot_of(uint64_t hash, uint64_t offset)
{
	/* The first item is at 0: + 1 keeps a slot in use from looking empty. */
	return hash >> OFFSET_BITS << OFFSET_BITS | (offset + 1);
}

void bare_put(struct bare *bare, const void *key, size_t key_length, const void *value,
	      size_t value_length)
{
	uint64_t hash = hash64_seed(key, key_length, SEED);
	uint64_t offset = bare->item_count++ * bare->item_size;
	struct bare_item *item = (struct bare_item *)(bare->items + offset);

	assert(bare->item_count <= bare->item_limit);
	item->key_length = key_length;
	item->value_length = value_length;
	memcpy(item->key, key, key_length);
	memcpy(item->key + (key_length + 7) / 8 * 8, value, value_length);
	for (uint64_t at = hash;; at++) {
		uint64_t *bucket = bare->buckets + (at & bare->bucket_mask) * SLOTS;

		for (unsigned i = 0; i < SLOTS; i++) {
			if (!bucket[i]) {
				bucket[i] = slot_of(hash, offset);
				return;
			}
		}
	}
}

bool bare_get(const struct bare *bare, const void *key, size_t key_length, void *value, size_t room)
{
	uint64_t hash = hash64_seed(key, key_length, SEED);
	uint64_t tag = hash >> OFFSET_BITS;

	for (uint64_t at = hash;; at++) {
		const uint64_t *bucket = bare->buckets + (at & bare->bucket_mask) * SLOTS;

		for (unsigned i = 0; i < SLOTS; i++) {
			const struct bare_item *item;

			if (!bucket[i])
				return false;
			if (bucket[i] >> OFFSET_BITS != tag)
				continue;
			item = (const void *)(bare->items + (bucket[i] & OFFSET_MASK) - 1);
			if (item->key_length != key_length || memcmp(item->key, key, key_length))
				continue;
			if (item->value_length > room)
				return false;
			memcpy(value, item->key + (key_length + 7) / 8 * 8, item->value_length);
			return true;
		}
	}
}

uint64_t bare_read(const struct bare *bare, uint64_t number, size_t key_length, uint64_t zero)
{
	uint64_t bucket = number * SEED >> 16 & bare->bucket_mask;
	uint64_t offset = (number + (bare->buckets[bucket * SLOTS] & zero)) * bare->item_size;
	uint64_t word;

	memcpy(&word, bare->items + offset + item_value_offset(key_length, sizeof(word)),
	       sizeof(word));
	return word;
}

enum rmr_status bare_fill(struct bare *bare, const struct perf_config *config, uint64_t keys)
{
	static struct block block;
	uint8_t *value = malloc(config->value_size);

	if (!value)
		return error_set(RMR_NO_MEMORY, "a value");
	block.key_size = config->key_size;
	value_prepare(value, config->value_size);
	for (uint64_t first = 0; first < keys; first += BLOCK_KEYS) {
		size_t count = keys - first < BLOCK_KEYS ? keys - first : BLOCK_KEYS;

		block_in_order(&block, first, count);
		for (size_t i = 0; i < count; i++) {
			value_number(value, block.numbers[i]);
			bare_put(bare, block_key(&block, i), config->key_size, value,
				 config->value_size);
		}
	}
	free(value);
	return RMR_OK;
}
