/*
 * Expiry: items whose time is over are not found any more (the operations see to that), and are
 * taken back by a sweep.
 *
 * Each span and long item has a bound: nothing in it expires before. The sweep goes over the page
 * table and looks into those whose bound has passed, so items that live for ever cost nothing, and
 * those that live long little. A bound may be too early, when what it stood for was deleted; then
 * one look corrects it. It is never too late (life_note_expiry).
 */
#include "store/internal.h"

/* Entries of the page table that cost as much as looking at an item. */
#define ENTRIES_PER_ITEM 8
/* Buckets that a tick takes from the index at most: a page of them, in about 0.1 ms. */
#define SHRINK_MERGES SEGMENT_BUCKETS

enum store_status store_expire(struct store_worker *worker, const void *key, size_t key_length,
			       uint64_t ttl_ms, struct store_info *info)
{
	struct store *store = worker->store;
	struct index_lock lock;
	struct index_slot slot;
	uint64_t expiry;

	if (key_length < 1 || key_length > STORE_MAX_KEY)
		return STORE_KEY_LENGTH;
	if (!life_lock_key(worker, store_hash(store, key, key_length), key, key_length, &lock,
			   &slot))
		return STORE_NOT_FOUND;
	expiry = life_expiry(store, ttl_ms);
	item_set_expiry(slot_item(store, &slot), slot_offset(slot.slot), expiry);
	if (expiry)
		life_note_expiry(store, slot_offset(slot.slot), expiry);
	if (info)
		life_describe(store, slot_item(store, &slot), info);
	index_unlock(&lock);
	return STORE_OK;
}

/* Ends the item if it has expired. Otherwise its bound is noted again. */
static bool sweep_item(struct store_worker *worker, uint64_t offset, uint64_t now)
{
	struct store *store = worker->store;
	uint64_t expiry = item_expiry(item_at(store, offset));
	struct index_lock lock;
	struct index_slot slot;

	if (item_version(item_at(store, offset)) == 0 || expiry == 0)
		return false;
	if (expiry > now) {
		/* Whatever was read: a bound that is too early does no harm. */
		life_note_expiry(store, offset, expiry);
		return false;
	}
	if (!life_lock_at(worker, offset, &lock, &slot))
		return false;
	if (!life_is_expired(store, slot_item(store, &slot))) {
		uint64_t later = item_expiry(slot_item(store, &slot));

		if (later)
			life_note_expiry(store, offset, later);
		index_unlock(&lock);
		return false;
	}
	life_end(worker, &lock, &slot);
	STAT_ADD(worker->stats.expired, 1);
	return true;
}

/* Looks at all places of the span, or the long item. Returns how many it ended. */
static size_t sweep_page(struct store_worker *worker, uint32_t page, uint64_t now,
			 size_t *looked_at)
{
	struct store *store = worker->store;
	struct page_info *info = &store->pool.table[page];
	unsigned number = info->size_class;
	const struct slab_class *class = &store->slab.classes[number];
	size_t ended = 0;

	atomic_store(&info->soonest_ms, UINT64_MAX);
	/* The bound is stored before the versions are loaded: of a writer and us at least one sees
	 * what the other did (life_note_expiry). */
	atomic_thread_fence(memory_order_seq_cst);
	for (uint32_t i = 0; i < class->span_places; i++)
		ended += sweep_item(worker, ((uint64_t)page << STORE_PAGE_BITS) + i * class->size,
				    now);
	/* If it became another span meanwhile, that one is looked at next time. */
	if (info->size_class != number)
		atomic_store(&info->soonest_ms, now);
	*looked_at += class->span_places;
	return ended;
}

/* Makes the index smaller while there are few keys, a little at a time. */
static void shrink_index(struct store *store)
{
	int64_t keys = atomic_load_explicit(&store->keys, memory_order_relaxed);
	struct index *index = &store->index;

	if (keys < (int64_t)(index_bucket_count(index) * INDEX_LOW_LOAD)) {
		(void)index_shrink(index, SHRINK_MERGES);
		index_give_overflow_pages(index);
	}
	index_give_retired(index, workers_were_seen_outside, store);
}

/* A pass over all pages begins. False: the last one found no item that expires, and none came
 * since: there is nothing to look for. */
static bool begin_pass(struct store *store)
{
	/* Whatever is noted from here on asks for another pass. What was noted before is in the
	 * page table, where this one finds it. */
	bool was_noted = atomic_exchange(&store->has_expiry, false);
	bool is_needed = was_noted || store->pass_has_expiry;

	store->pass_has_expiry = false;
	return is_needed;
}

size_t store_tick(struct store_worker *worker, size_t budget)
{
	struct store *store = worker->store;
	uint64_t now = store_clock_ms(store), soonest;
	uint32_t pages = store->pool.count - store->pool.first;
	uint32_t page = store->sweep_page;
	size_t looked_at = 0, ended = 0;

	/* Relaxed: it says nothing about anything else. */
	atomic_store_explicit(&store->header->tick_ms, now, memory_order_relaxed);
	shrink_index(store);
	for (uint32_t i = 0; i < pages && looked_at < budget; i++) {
		enum page_use use;

		if (page == store->pool.first && !begin_pass(store))
			break;
		use = page_use(&store->pool, page);
		soonest = atomic_load(&store->pool.table[page].soonest_ms);
		if (use == PAGE_SPAN || use == PAGE_LONG) {
			if (soonest != UINT64_MAX)
				store->pass_has_expiry = true;
			if (soonest <= now)
				ended += sweep_page(worker, page, now, &looked_at);
		}
		looked_at += i % ENTRIES_PER_ITEM == 0;
		if (++page == store->pool.count)
			page = store->pool.first;
	}
	store->sweep_page = page;
	return ended;
}

void store_touch(struct store_worker *worker, uint64_t offset, uint64_t version)
{
	struct store *store = worker->store;

	if (version && slab_is_place(&store->slab, offset) &&
	    item_version(item_at(store, offset)) == version)
		heat_up(store, offset);
}
