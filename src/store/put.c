/*
 * Operations that put and delete. See life.c for the order of things.
 */
#include <string.h>

#include "store/internal.h"

/* Tries to find room in the index for a new key. */
#define ADD_TRIES 4
/* Values that are hashed while they are copied, block by block, each in the first level cache. */
#define FILL_LONG  32768u
#define FILL_BLOCK 8192u

/* ------------------------------------------------------------------------------------------
 * Room for the new value. The old one of the same key stays until the new one is complete, if there
 * is room for both: eviction must not take it, though it may be cold. So it is pinned meanwhile.
 */

/* Pins the key's item. NULL: there is none, or it has as many pins as it can have. */
static struct item *pin_old(struct store_worker *worker, const struct store_put *put, uint64_t hash)
{
	struct index_lock lock;
	struct index_slot slot;
	struct item *item = NULL;

	if (!life_lock_key(worker, hash, put->key, put->key_length, &lock, &slot))
		return NULL;
	if (item_pins(slot_item(worker->store, &slot)) < ITEM_MAX_PINS) {
		item = slot_item(worker->store, &slot);
		/* While the bucket is locked: see life_kill(). */
		atomic_fetch_add(&item->expiry, ITEM_PIN);
	}
	index_unlock(&lock);
	return item;
}

/* Ends the key's item, unless somebody looks at it. */
static bool lose_old(struct store_worker *worker, const struct store_put *put, uint64_t hash)
{
	struct index_lock lock;
	struct index_slot slot;

	if (!life_lock_key(worker, hash, put->key, put->key_length, &lock, &slot))
		return false;
	if (item_pins(slot_item(worker->store, &slot))) {
		index_unlock(&lock);
		return false;
	}
	life_end(worker, &lock, &slot);
	STAT_ADD(worker->stats.evicted, 1);
	return true;
}

static __attribute__((noinline)) uint64_t make_room(struct store_worker *worker,
						    const struct store_put *put, uint64_t hash,
						    uint64_t size)
{
	bool evicts = worker->store->options.on_full == STORE_EVICT;
	struct store_view old = {.item = evicts ? pin_old(worker, put, hash) : NULL};
	uint64_t offset = room_take(worker, size);

	if (old.item)
		store_unpin(worker, &old);
	/* A condition has to find the old value when the new one is complete. */
	if (!offset && put->condition == STORE_ALWAYS && (evicts || put->may_lose_old) &&
	    lose_old(worker, put, hash))
		offset = room_take(worker, size);
	return offset;
}

enum store_status store_draft_begin(struct store_worker *worker, const struct store_put *put,
				    struct store_draft *draft)
{
	struct store *store = worker->store;
	uint64_t size, offset;

	if (put->key_length < 1 || put->key_length > STORE_MAX_KEY)
		return STORE_KEY_LENGTH;
	if (put->value_length > ITEM_MAX_VALUE)
		return STORE_VALUE_TOO_LONG;
	size = item_size(put->key_length, put->value_length);
	if (size > store->max_item)
		return STORE_VALUE_TOO_LONG;
	draft->hash = store_hash(store, put->key, put->key_length);
	index_prefetch(&store->index, draft->hash);
	offset = slab_take(&store->slab, &worker->slab, size);
	if (!offset)
		offset = make_room(worker, put, draft->hash, size);
	if (!offset) {
		STAT_ADD(worker->stats.no_memory, 1);
		return STORE_NO_MEMORY;
	}
	draft->item = item_at(store, offset);
	item_write_key(draft->item, put->key, put->key_length, put->value_length, ITEM_VALUE);
	draft->size_class = size_class_of(size);
	draft->value = item_value(draft->item);
	draft->value_length = put->value_length;
	draft->stream = NULL;
	draft->hashed = 0;
	return STORE_OK;
}

void store_draft_hash_along(struct store_draft *draft, struct hash_stream *stream)
{
	const uint8_t *key = draft->item->key;

	draft->stream = stream;
	hash_stream_begin(stream);
	hash_stream_add(stream, key, (size_t)((const uint8_t *)draft->value - key));
}

void store_draft_fill(struct store_draft *draft, size_t at, const void *bytes, size_t length)
{
	uint8_t *to = (uint8_t *)draft->value + at;
	const uint8_t *from = bytes;

	/* Only what follows on what was hashed before can be. */
	if (!draft->stream || at != draft->hashed) {
		if (length)
			memcpy(to, from, length);
		/* If that was hashed before, it is not true any more. */
		if (at < draft->hashed)
			draft->stream = NULL;
		return;
	}
	while (length) {
		size_t block = length < FILL_BLOCK ? length : FILL_BLOCK;

		/* What is hashed is the copy: whoever has the original may still change it. */
		memcpy(to, from, block);
		hash_stream_add(draft->stream, to, block);
		to += block;
		from += block;
		length -= block;
		draft->hashed += block;
	}
}

void store_draft_filled(struct store_draft *draft, size_t length)
{
	if (draft->stream)
		hash_stream_add(draft->stream, (uint8_t *)draft->value + draft->hashed, length);
	draft->hashed += length;
}

void store_draft_abort(struct store_worker *worker, struct store_draft *draft)
{
	life_free(worker, offset_of(worker->store, draft->item),
		  item_size_of(item_get_lengths(draft->item)));
	*draft = (struct store_draft){0};
}

/* Whether the put may replace what is there: `old` is NULL if nothing is. */
static enum store_status check_condition(const struct store_put *put, const struct item *old)
{
	switch (put->condition) {
	case STORE_IF_ABSENT:
		return old ? STORE_EXISTS : STORE_OK;
	case STORE_IF_VERSION:
		if (!old)
			return STORE_NOT_FOUND;
		return item_version(old) == put->version ? STORE_OK : STORE_CONFLICT;
	default:
		return STORE_OK;
	}
}

/* After one more key: a few buckets more, when it is time. */
static void grow(struct store_worker *worker)
{
	struct store *store = worker->store;
	int64_t keys = atomic_load_explicit(&store->keys, memory_order_relaxed);
	uint64_t buckets = index_bucket_count(&store->index) + INDEX_GROWTH;

	if (keys > (int64_t)(buckets * INDEX_LOAD) &&
	    index_grow(&store->index, INDEX_GROWTH) == INDEX_NO_PAGE &&
	    room_for_index(worker, false))
		index_grow(&store->index, INDEX_GROWTH);
}

/* The item is complete then, and in the index instead of the old one. The bucket is locked. */
static bool swing(struct store_worker *worker, const struct store_draft *draft,
		  struct index_lock *lock, const struct index_slot *old, uint64_t expiry,
		  uint64_t body_hash)
{
	struct store *store = worker->store;
	uint64_t offset = offset_of(store, draft->item);
	uint64_t slot = slot_make(hash_tag(draft->hash), draft->size_class, offset);
	unsigned heat = 0;

	if (old) {
		struct item *item = slot_item(store, old);

		heat = heat_get(store, slot_offset(old->slot));
		item_publish(draft->item, offset, version_next(worker, item_version(item)), expiry,
			     body_hash, true);
	} else {
		/* The other order would do as well, as long as nobody is answered. This one needs
		 * no way back when there is no slot: readers see a locked bucket. */
		if (!index_add(&store->index, lock, slot))
			return false;
		item_publish(draft->item, offset,
			     version_next(worker, version_removed(store, lock)), expiry, body_hash,
			     false);
	}
	heat_set(store, offset, heat);
	if (expiry)
		life_note_expiry(store, offset, expiry);
	return true;
}

void put_replace(struct store_worker *worker, const struct store_draft *draft,
		 struct index_lock *lock, const struct index_slot *old)
{
	struct store *store = worker->store;
	struct item *item = slot_item(store, old);
	uint64_t size = item_size_of(item_get_lengths(item));
	bool is_free = life_kill(worker, item);

	item_confirm(draft->item);
	index_replace(old, slot_make(hash_tag(draft->hash), draft->size_class,
				     offset_of(store, draft->item)));
	index_unlock(lock);
	if (is_free)
		life_free(worker, slot_offset(old->slot), size);
}

/* One try: STORE_NO_MEMORY means that the index had no room, and may be tried again. */
static enum store_status commit(struct store_worker *worker, const struct store_put *put,
				struct store_draft *draft, uint64_t body_hash,
				struct store_info *info)
{
	struct store *store = worker->store;
	const uint8_t *key = draft->item->key;
	struct index_lock lock = index_lock(&store->index, &worker->guard, draft->hash);
	struct index_slot old;
	bool found = index_find(&store->index, &lock, draft->hash, key, put->key_length, &old);
	bool expired = found && life_is_expired(store, slot_item(store, &old));
	uint64_t expiry = life_expiry(store, put->ttl_ms);
	enum store_status status;

	if (put->keeps_expiry && found)
		expiry = item_expiry(slot_item(store, &old));
	/* An expired item does not count as being there, but its slot and its version do. */
	status = check_condition(put, found && !expired ? slot_item(store, &old) : NULL);
	if (status == STORE_EXISTS || status == STORE_CONFLICT) {
		if (info)
			life_describe(store, slot_item(store, &old), info);
	}
	if (status == STORE_OK &&
	    !swing(worker, draft, &lock, found ? &old : NULL, expiry, body_hash))
		status = STORE_NO_MEMORY;
	if (status == STORE_OK && info)
		life_describe(store, draft->item, info);
	if (status == STORE_OK && found)
		put_replace(worker, draft, &lock, &old);
	else
		index_unlock(&lock);
	if (status == STORE_OK && !found)
		worker_count_key(worker, 1);
	return status;
}

enum store_status store_draft_commit(struct store_worker *worker, const struct store_put *put,
				     struct store_draft *draft, struct store_info *info)
{
	uint64_t body_hash = draft->stream && draft->hashed == draft->value_length
				     ? hash_stream_end(draft->stream)
				     : item_body_hash(draft->item);
	enum store_status status;

	for (int tries = 0; tries < ADD_TRIES; tries++) {
		status = commit(worker, put, draft, body_hash, info);
		if (status != STORE_NO_MEMORY || !room_for_index(worker, true))
			break;
	}
	if (status != STORE_OK) {
		store_draft_abort(worker, draft);
		if (status == STORE_NO_MEMORY)
			STAT_ADD(worker->stats.no_memory, 1);
		return status;
	}
	STAT_ADD(worker->stats.puts, 1);
	*draft = (struct store_draft){0};
	grow(worker);
	return STORE_OK;
}

/* Apart from store_put(), whose stack is small without the stream. */
static __attribute__((noinline)) enum store_status put_long(struct store_worker *worker,
							    const struct store_put *put,
							    struct store_draft *draft,
							    struct store_info *info)
{
	struct hash_stream stream;

	store_draft_hash_along(draft, &stream);
	store_draft_fill(draft, 0, put->value, put->value_length);
	return store_draft_commit(worker, put, draft, info);
}

enum store_status store_put(struct store_worker *worker, const struct store_put *put,
			    struct store_info *info)
{
	struct store_draft draft;
	enum store_status status = store_draft_begin(worker, put, &draft);

	if (status != STORE_OK)
		return status;
	if (put->value_length >= FILL_LONG)
		return put_long(worker, put, &draft, info);
	if (put->value_length)
		memcpy(draft.value, put->value, put->value_length);
	return store_draft_commit(worker, put, &draft, info);
}

enum store_status store_delete(struct store_worker *worker, const void *key, size_t key_length,
			       uint64_t version, struct store_info *info)
{
	struct store *store = worker->store;
	struct index_lock lock;
	struct index_slot slot;

	if (key_length < 1 || key_length > STORE_MAX_KEY)
		return STORE_KEY_LENGTH;
	if (!life_lock_key(worker, store_hash(store, key, key_length), key, key_length, &lock,
			   &slot))
		return STORE_NOT_FOUND;
	if (info)
		life_describe(store, slot_item(store, &slot), info);
	if (version && item_version(slot_item(store, &slot)) != version) {
		index_unlock(&lock);
		return STORE_CONFLICT;
	}
	life_end(worker, &lock, &slot);
	STAT_ADD(worker->stats.deletes, 1);
	return STORE_OK;
}
