/*
 * Operations that change nothing: get, stat, views. They read without a lock, as anyone can
 * (reader.c), and lock the bucket where the reader would have to ask.
 */
#include <string.h>

#include "store/internal.h"
#include "store/reader_glance.h"

/* How many keys ahead of the one that is copied their items are fetched. */
#define MANY_AT_ONCE 16
/* Values longer than this are not copied with the bucket locked. */
#define LONG_COPY 4096u

static void describe(const struct reader_item *found, struct store_info *info)
{
	*info = (struct store_info){
		.version = found->version,
		.value_length = item_value_length(found->lengths),
		.expires_ms = found->expires_ms,
		.offset = found->offset,
		.cell = STORE_NO_CELL,
	};
}

/* A long value: it is pinned while it is copied, so that nobody waits for the bucket. It is
 * locked, and unlocked afterwards. */
static void copy_pinned(struct store_worker *worker, struct index_lock *lock, struct item *item,
			void *value, size_t length)
{
	struct store_view view = {.item = item};

	atomic_fetch_add(&item->expiry, ITEM_PIN);
	index_unlock(lock);
	memcpy(value, item_value(item), length);
	store_unpin(worker, &view);
}

/* As store_get, with the bucket locked: whatever it is, this is certain. */
static enum store_status get_locked(struct store_worker *worker, uint64_t hash, const void *key,
				    size_t key_length, void *value, size_t room,
				    struct store_info *info)
{
	struct store *store = worker->store;
	struct index_lock lock;
	struct index_slot slot;
	struct store_info found;
	struct item *item;
	char text[24];

	if (!life_lock_key(worker, hash, key, key_length, &lock, &slot)) {
		STAT_ADD(worker->stats.misses, 1);
		return STORE_NOT_FOUND;
	}
	STAT_ADD(worker->stats.hits, 1);
	item = slot_item(store, &slot);
	life_describe(store, item, &found);
	/* Read once: peers count on meanwhile. */
	if (found.cell != STORE_NO_CELL)
		found.value_length = cells_format(store, item, text);
	heat_up(store, found.offset);
	if (info)
		*info = found;
	if (found.value_length > room) {
		index_unlock(&lock);
		return STORE_NO_ROOM;
	}
	if (found.value_length > LONG_COPY && item_pins(item) < ITEM_MAX_PINS) {
		copy_pinned(worker, &lock, item, value, found.value_length);
		return STORE_OK;
	}
	memcpy(value, found.cell == STORE_NO_CELL ? (char *)item_value(item) : text,
	       found.value_length);
	index_unlock(&lock);
	return STORE_OK;
}

/* What a glance neither found nor found missing. */
static __attribute__((noinline)) enum store_status get_carefully(struct store_worker *worker,
								 uint64_t hash, const void *key,
								 size_t key_length, void *value,
								 size_t room,
								 struct store_info *info)
{
	static uint8_t nowhere[1];
	struct store *store = worker->store;
	enum store_status status = STORE_OK;
	struct reader_item found;

	if (!value)
		value = nowhere, room = 0;
	switch (reader_look(&store->reader, hash, key, key_length, value, room, &found)) {
	case READER_FOUND:
		heat_up(store, found.offset);
		break;
	case READER_NO_ROOM:
		status = STORE_NO_ROOM;
		break;
	case READER_MISS:
		STAT_ADD(worker->stats.misses, 1);
		return STORE_NOT_FOUND;
	default:
		return get_locked(worker, hash, key, key_length, value, room, info);
	}
	STAT_ADD(worker->stats.hits, 1);
	if (info)
		describe(&found, info);
	return status;
}

static inline __attribute__((always_inline)) enum store_status get_hashed(
	struct store_worker *worker, uint64_t hash, const void *key, size_t key_length, void *value,
	size_t room, struct store_info *info)
{
	struct store *store = worker->store;
	struct reader_item found;

	switch (value ? reader_glance(&store->reader, hash, key, key_length, value, room, &found)
		      : GLANCE_LOOK) {
	case GLANCE_FOUND:
		heat_up(store, found.offset);
		STAT_ADD(worker->stats.hits, 1);
		if (info)
			describe(&found, info);
		return STORE_OK;
	case GLANCE_MISS:
		STAT_ADD(worker->stats.misses, 1);
		return STORE_NOT_FOUND;
	default:
		return get_carefully(worker, hash, key, key_length, value, room, info);
	}
}

static bool is_key_length(size_t key_length)
{
	return key_length >= 1 && key_length <= STORE_MAX_KEY;
}

enum store_status store_get(struct store_worker *worker, const void *key, size_t key_length,
			    void *value, size_t room, struct store_info *info)
{
	uint64_t hash;

	if (!is_key_length(key_length))
		return STORE_KEY_LENGTH;
	hash = glance_hash(&worker->store->reader, key, key_length);
	return get_hashed(worker, hash, key, key_length, value, room, info);
}

/*
 * Three passes over a group: the first asks for all buckets, the second for all items, the third
 * finds them in the cache. Each pass waits for memory about once, instead of once a key.
 */
void store_get_many(struct store_worker *worker, struct store_get *gets, size_t count)
{
	const struct reader *reader = &worker->store->reader;

	for (size_t begin = 0; begin < count; begin += MANY_AT_ONCE) {
		size_t group = count - begin < MANY_AT_ONCE ? count - begin : MANY_AT_ONCE;
		const struct bucket *buckets[MANY_AT_ONCE];
		uint64_t hashes[MANY_AT_ONCE];

		for (size_t i = 0; i < group; i++) {
			const struct store_get *get = &gets[begin + i];

			hashes[i] = 0;
			buckets[i] = NULL;
			if (!is_key_length(get->key_length))
				continue;
			hashes[i] = store_hash(worker->store, get->key, get->key_length);
			buckets[i] = reader_prefetch_bucket(reader, hashes[i]);
		}
		for (size_t i = 0; i < group; i++)
			__builtin_prefetch(
				heat_byte(worker->store,
					  reader_prefetch_item(reader, buckets[i], hashes[i])),
				1);
		for (size_t i = 0; i < group; i++) {
			struct store_get *get = &gets[begin + i];

			get->status =
				is_key_length(get->key_length)
					? get_hashed(worker, hashes[i], get->key, get->key_length,
						     get->value, get->room, &get->info)
					: STORE_KEY_LENGTH;
		}
	}
}

enum store_status store_stat(struct store_worker *worker, const void *key, size_t key_length,
			     struct store_info *info)
{
	struct store *store = worker->store;
	uint64_t hash;
	struct reader_item found;
	struct index_lock lock;
	struct index_slot slot;

	if (!is_key_length(key_length))
		return STORE_KEY_LENGTH;
	hash = store_hash(store, key, key_length);
	switch (reader_look(&store->reader, hash, key, key_length, NULL, 0, &found)) {
	case READER_FOUND:
		describe(&found, info);
		return STORE_OK;
	case READER_MISS:
		return STORE_NOT_FOUND;
	default:
		break;
	}
	if (!life_lock_key(worker, hash, key, key_length, &lock, &slot))
		return STORE_NOT_FOUND;
	life_describe(store, slot_item(store, &slot), info);
	index_unlock(&lock);
	return STORE_OK;
}

/* ------------------------------------------------------------------------------------------
 * Views
 */

enum store_status store_pin(struct store_worker *worker, const void *key, size_t key_length,
			    struct store_view *view)
{
	struct store *store = worker->store;
	struct index_lock lock;
	struct index_slot slot;
	struct item *item;

	if (!is_key_length(key_length))
		return STORE_KEY_LENGTH;
	if (!life_lock_key(worker, store_hash(store, key, key_length), key, key_length, &lock,
			   &slot)) {
		STAT_ADD(worker->stats.misses, 1);
		return STORE_NOT_FOUND;
	}
	STAT_ADD(worker->stats.hits, 1);
	item = slot_item(store, &slot);
	if (item_pins(item) == ITEM_MAX_PINS) {
		index_unlock(&lock);
		return STORE_TOO_MANY_PINS;
	}
	/* The lock keeps it alive until it is pinned; life_kill() says why this is enough. */
	atomic_fetch_add(&item->expiry, ITEM_PIN);
	life_describe(store, item, &view->info);
	view->item = item;
	view->value = item_value(item);
	view->length = item_value_length(item_get_lengths(item));
	heat_up(store, view->info.offset);
	index_unlock(&lock);
	return STORE_OK;
}

void store_unpin(struct store_worker *worker, struct store_view *view)
{
	struct item *item = view->item;
	uint64_t size = item_size_of(item_get_lengths(item));
	uint64_t before = atomic_fetch_sub(&item->expiry, ITEM_PIN);

	if (before & ITEM_DEAD && (before >> 48 & ITEM_MAX_PINS) == 1)
		life_free(worker, offset_of(worker->store, item), size);
	*view = (struct store_view){0};
}
