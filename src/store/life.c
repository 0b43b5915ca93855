/*
 * Life: how items begin, move and end, with everything that depends on them.
 *
 * The order in which an item is replaced is what makes reading without asking right: the new one
 * is complete but pending, then the old one is dead, then the new one is confirmed, then the slot
 * points at it, then the lock is given back, then the writer is answered. Whoever reads the old
 * item by a location that it remembered looked before the kill; whoever reads the new one, and be
 * it because an old slot named that place by chance, looks after it; in between there is nothing to
 * be believed, and the reader asks.
 */
#include <string.h>

#include "store/internal.h"
#include "store/probe.h"
#include "store/racy.h"

void life_describe(const struct store *store, const struct item *item, struct store_info *info)
{
	uint64_t lengths = item_get_lengths(item);

	*info = (struct store_info){
		.version = item_version(item) & ~ITEM_PENDING,
		.value_length = item_value_length(lengths),
		.expires_ms = item_expiry(item),
		.offset = offset_of(store, item),
		.cell = STORE_NO_CELL,
	};
	if (item_kind(lengths) == ITEM_COUNTER) {
		char text[24];

		info->cell = cell_of(item);
		info->cell_is_open = !store_cell_is_large(cells_read(store, item));
		info->value_length = cells_format(store, item, text);
	}
}

bool life_is_expired(const struct store *store, const struct item *item)
{
	uint64_t expiry = item_expiry(item);

	return expiry && reader_clock_ms(&store->reader) >= expiry;
}

uint64_t life_expiry(const struct store *store, uint64_t ttl_ms)
{
	uint64_t now;

	if (ttl_ms == 0)
		return 0;
	now = store_clock_ms(store);
	return ttl_ms < ITEM_EXPIRY_MASK - now ? now + ttl_ms : ITEM_EXPIRY_MASK;
}

bool life_lock_key(struct store_worker *worker, uint64_t hash, const void *key, size_t key_length,
		   struct index_lock *lock, struct index_slot *slot)
{
	struct store *store = worker->store;

	*lock = index_lock(&store->index, &worker->guard, hash);
	if (!index_find(&store->index, lock, hash, key, key_length, slot)) {
		index_unlock(lock);
		return false;
	}
	if (!life_is_expired(store, slot_item(store, slot)))
		return true;
	life_end(worker, lock, slot);
	STAT_ADD(worker->stats.expired, 1);
	return false;
}

/*
 * A pin is only added while the bucket is locked, as it is now, so the pins can only become fewer.
 * Whether we or the one who takes away the last pin gives the memory back is decided by the order
 * of two atomic instructions on one word: who comes second sees what the first did.
 */
bool life_kill(struct store_worker *worker, struct item *item)
{
	if (item_kind(item_get_lengths(item)) == ITEM_COUNTER)
		cells_retire(worker->store, item);
	/* Release: not before the new item, if there is one, is complete. */
	atomic_store_explicit(&item->version, 0, memory_order_release);
	if (item_pins(item) == 0)
		return true;
	return (atomic_fetch_or(&item->expiry, ITEM_DEAD) >> 48 & ITEM_MAX_PINS) == 0;
}

void life_free(struct store_worker *worker, uint64_t offset, uint64_t size)
{
	slab_give(&worker->store->slab, &worker->slab, offset, size);
}

void life_end(struct store_worker *worker, struct index_lock *lock, const struct index_slot *slot)
{
	struct store *store = worker->store;
	struct item *item = slot_item(store, slot);
	uint64_t size = item_size_of(item_get_lengths(item));
	bool is_free;

	version_note_removed(store, lock, item_version(item));
	is_free = life_kill(worker, item);
	index_remove(&store->index, lock, slot);
	index_unlock(lock);
	worker_count_key(worker, -1);
	if (is_free)
		life_free(worker, offset_of(store, item), size);
}

bool life_lock_at(struct store_worker *worker, uint64_t offset, struct index_lock *lock,
		  struct index_slot *slot)
{
	struct store *store = worker->store;
	const struct item *item = item_at(store, offset);
	uint8_t key[STORE_MAX_KEY];
	uint64_t length;

	if (item_version(item) == 0)
		return false;
	length = item_key_length(item_get_lengths(item));
	if (length == 0 || length > STORE_MAX_KEY ||
	    length > store->reader.size - offset - sizeof(*item))
		return false;
	/* Whatever these bytes are: only if the index has an item just there it was the right
	 * bucket, and now that it is locked the item stays. */
	racy_copy(key, item->key, length);
	*lock = index_lock(&store->index, &worker->guard, store_hash(store, key, length));
	if (index_find_offset(&store->index, lock, offset, slot))
		return true;
	index_unlock(lock);
	return false;
}

/*
 * The sweep takes the bound away first and then looks at the items. As the item is published before
 * this is called, either the sweep sees the item, or this comes after it took the bound away.
 */
void life_note_expiry(struct store *store, uint64_t offset, uint64_t expires_ms)
{
	uint32_t page = slab_page_of(&store->slab, offset);
	_Atomic uint64_t *soonest = &store->pool.table[page].soonest_ms;
	uint64_t now;

	/* The item's version is stored before the bound is loaded; sweep_page() has the other half.
	 */
	atomic_thread_fence(memory_order_seq_cst);
	now = atomic_load(soonest);
	while (expires_ms < now && !atomic_compare_exchange_weak(soonest, &now, expires_ms))
		;
	/* After the bound: either the pass that takes this back sees the bound, or another one
	 * follows. All of it is sequentially consistent, so that holds as well when it is found set
	 * and about to be taken back. */
	if (!atomic_load(&store->has_expiry))
		atomic_store(&store->has_expiry, true);
}

/* The same item at another place: version and expiry stay, only the checksum tells the place. */
static void move_to(struct store *store, uint64_t from, uint64_t to)
{
	struct item *old = item_at(store, from), *new = item_at(store, to);
	uint64_t version = item_version(old), expiry = item_expiry(old);
	uint64_t lengths = item_get_lengths(old);
	uint64_t body_hash = atomic_load_explicit(&old->checksum, memory_order_relaxed) ^
			     item_checksum(from, version, expiry, lengths, 0);

	atomic_store_explicit(&new->lengths, lengths, memory_order_relaxed);
	memcpy(new->key, old->key, item_size_of(lengths) - sizeof(*old));
	item_publish(new, to, version, expiry, body_hash, true);
	heat_set(store, to, heat_get(store, from));
}

bool life_move(struct store_worker *worker, uint64_t offset)
{
	struct store *store = worker->store;
	struct index_lock lock;
	struct index_slot slot;
	struct item *item;
	uint64_t size, to;

	if (!life_lock_at(worker, offset, &lock, &slot))
		return true;
	item = slot_item(store, &slot);
	size = item_size_of(item_get_lengths(item));
	assert(size <= SLAB_MAX_SIZE);
	to = item_pins(item) ? 0 : slab_take_free(&store->slab, &worker->slab, size);
	if (!to) {
		index_unlock(&lock);
		return false;
	}
	move_to(store, offset, to);
	atomic_store_explicit(&item->version, 0, memory_order_release);
	item_confirm(item_at(store, to));
	atomic_fetch_add_explicit(&store->header->moves, 1, memory_order_release);
	index_replace(&slot, slot_make(slot_tag(slot.slot), slot_class(slot.slot), to));
	if (item_expiry(item_at(store, to)))
		life_note_expiry(store, to, item_expiry(item_at(store, to)));
	index_unlock(&lock);
	life_free(worker, offset, size);
	STAT_ADD(worker->stats.moved, 1);
	return true;
}
