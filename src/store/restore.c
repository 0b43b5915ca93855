/*
 * Restore: a store from nothing but its arena.
 *
 * The page table says where items may be, and items say what they are; index, free lists and counts
 * are made anew. The store that wrote the arena may have ended at any moment, between any two
 * stores to memory. What that can leave behind:
 *
 *	an item that is not complete	its version is 0 or its checksum wrong: a free place
 *	the new and the old item	the one with the higher version stays; its writer had no
 *	of a key			answer yet, so either would have been right; but a counter
 *					stays whose cell was not ended yet
 *	an item that is pending		its writer had done all but say so; it stays
 *	two copies of an item that	they have the same version; one stays
 *	was moved
 *	half-written entries of the	runs are checked before they are taken; what makes no
 *	page table			sense is free
 *
 * This may itself be ended at any moment: until it is done, nothing is overwritten that another
 * try would need.
 *
 * Counters keep their cells if the caller kept that memory too. Everything a reader remembers is
 * worthless afterwards: the store's instance number is another one.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/restore.h"

/* The run as it was, if it can have been one. */
static bool is_run(const struct store *store, const struct page_info *old, uint32_t page)
{
	const struct page_info *info = &old[page];
	uint32_t run = info->run;

	if (run == 0 || run > store->header->page_count - page)
		return false;
	if (info->use == PAGE_LONG)
		return true;
	return info->use == PAGE_SPAN && info->size_class < SLAB_CLASS_COUNT &&
	       run == store->slab.classes[info->size_class].span_pages;
}

static void adopt_free(struct store *store, uint32_t page, uint32_t end)
{
	if (page == end)
		return;
	memset(&store->pool.table[page], 0, (end - page) * sizeof(*store->pool.table));
	page_pool_adopt(&store->pool, page, end - page, PAGE_FREE, 0);
}

/* Takes in all runs: those in use, whose entries stay what they are, and what is between them. */
static void adopt_runs(struct store *store, const struct page_info *old)
{
	uint32_t count = store->header->page_count, free_from = store->header->first_page, run;

	for (uint32_t page = free_from; page < count; page += run) {
		run = 1;
		if (!is_run(store, old, page))
			continue;
		run = old[page].run;
		adopt_free(store, free_from, page);
		page_pool_adopt(&store->pool, page, run, old[page].use,
				old[page].use == PAGE_LONG ? SLAB_LONG : old[page].size_class);
		free_from = page + run;
	}
	adopt_free(store, free_from, count);
}

static bool is_counter(const struct item *item)
{
	return item_kind(item_get_lengths(item)) == ITEM_COUNTER;
}

/* Which of two items of a key stays. A counter whose cell holds a number (cells_adopt() has seen to
 * that) has not been replaced, and peers may have counted on in it; and what a counter replaces is
 * the older one. */
static bool is_newer(const struct item *item, const struct item *other)
{
	if (is_counter(item) != is_counter(other))
		return is_counter(item);
	return item_version(item) > item_version(other);
}

/* Puts the item into the index, instead of an older one of the same key. Returns whether it stays;
 * *loser is an item that does not any more, or 0. */
static bool adopt_item(struct store_worker *worker, uint64_t offset, uint64_t *loser)
{
	struct store *store = worker->store;
	struct item *item = item_at(store, offset);
	uint64_t length = item_key_length(item_get_lengths(item));
	uint64_t hash = store_hash(store, item->key, length);
	uint64_t slot = slot_make(hash_tag(hash),
				  size_class_of(item_size_of(item_get_lengths(item))), offset);
	struct index_lock lock = index_lock(&store->index, &worker->guard, hash);
	struct index_slot old;
	bool stays = true;

	*loser = 0;
	if (index_find(&store->index, &lock, hash, item->key, length, &old)) {
		stays = is_newer(item, slot_item(store, &old));
		if (stays) {
			*loser = slot_offset(old.slot);
			index_replace(&old, slot);
		}
	} else if (!index_add(&store->index, &lock, slot)) {
		stays = false;
	} else {
		worker_count_key(worker, 1);
	}
	index_unlock(&lock);
	return stays;
}

/* The table may say long where a span was, and no version may be given out again, whatever the
 * header says. Ends what is not to stay, and grows the index by its share. */
static bool adopt_place(struct store_worker *worker, uint64_t offset, unsigned slab_class,
			uint64_t room)
{
	struct store *store = worker->store;
	struct item *item = item_at(store, offset);
	uint64_t size = item_size_of(item_get_lengths(item)), loser;
	uint64_t expiry = item_expiry(item);

	if (item_version(item) & ITEM_PENDING && size <= room)
		item_recover(item, offset);
	if (!item_is_complete(item, offset, room) || item_version(item) >= ITEM_MAX_VERSION ||
	    slab_class_of(size) != slab_class || (is_counter(item) && !cells_adopt(store, item))) {
		atomic_store(&item->version, 0);
		return false;
	}
	version_start_above(store, item_version(item));
	if (!adopt_item(worker, offset, &loser)) {
		if (is_counter(item))
			cells_disown(store, item);
		atomic_store(&item->version, 0);
		return false;
	}
	/* Views are gone. */
	atomic_store(&item->expiry, expiry);
	slab_count(&worker->slab, slab_class_of(size), 1, (int64_t)size);
	if (expiry)
		life_note_expiry(store, offset, expiry);
	if (store->keys > (int64_t)(index_bucket_count(&store->index) * INDEX_LOAD))
		index_grow(&store->index, 1);
	if (loser) {
		uint64_t lost = item_size_of(item_get_lengths(item_at(store, loser)));

		if (is_counter(item_at(store, loser)))
			cells_disown(store, item_at(store, loser));
		atomic_store(&item_at(store, loser)->version, 0);
		life_free(worker, loser, lost);
	}
	return true;
}

static void adopt_items(struct store_worker *worker, uint32_t page)
{
	struct store *store = worker->store;
	unsigned number = store->pool.table[page].size_class;
	const struct slab_class *class = &store->slab.classes[number];
	uint64_t room = number == SLAB_LONG
				? (uint64_t)store->pool.table[page].run << STORE_PAGE_BITS
				: class->size;

	slab_adopt(&store->slab, page);
	for (uint32_t i = 0; i < class->span_places; i++) {
		uint64_t offset = ((uint64_t)page << STORE_PAGE_BITS) + i * class->size;

		if (!adopt_place(worker, offset, number, room))
			slab_give_unused(&store->slab, offset);
	}
}

/* As many buckets as there were. With the same hash every one of them then gets the keys it had,
 * and a full store needs not one page more than it had. If the header says nonsense: few, and let
 * them grow. */
static uint64_t find_bucket_count(const struct store *store)
{
	uint64_t count = store->header->bucket_count;

	if (count < SEGMENT_BUCKETS || count > (uint64_t)store->pool.free_pages << SEGMENT_BITS)
		return SEGMENT_BUCKETS;
	return count;
}

/* All runs first, so that nothing new is made where items are; then the index; then the items. */
static enum rmr_status rebuild(struct store *store, const struct page_info *old)
{
	uint32_t first = store->header->first_page, count = store->header->page_count, run;
	struct store_worker *worker;
	enum rmr_status status;

	version_start(store);
	adopt_runs(store, old);
	if (!index_init(&store->index, store->memory, store->header, &store->pool,
			find_bucket_count(store)))
		return error_set(RMR_NO_MEMORY, "no page is left for the index");
	status = store_worker_open(store, &worker);
	if (status != RMR_OK)
		return status;
	for (uint32_t page = first; page < count; page += run) {
		run = is_run(store, old, page) ? old[page].run : 1;
		if (is_run(store, old, page))
			adopt_items(worker, page);
	}
	cells_adopted(store);
	store_worker_close(worker);
	return RMR_OK;
}

/* Why this memory cannot be restored, if so. */
static enum rmr_status check_memory(const struct store_options *options)
{
	const struct store_header *header = options->memory;

	if (!header || options->size < STORE_MIN_SIZE || header->magic != STORE_MAGIC)
		return error_set(RMR_PROTOCOL, "this memory holds no store");
	if (header->layout_version != STORE_LAYOUT_VERSION)
		return error_set(
			RMR_PROTOCOL,
			"this memory holds a store of layout %u, this program knows %u: use "
			"the version that made it, or begin with an empty store",
			header->layout_version, STORE_LAYOUT_VERSION);
	if (header->size != options->size / STORE_PAGE_SIZE * STORE_PAGE_SIZE)
		return error_set(
			RMR_PROTOCOL,
			"this memory holds a store of %lu bytes, not of %zu: restore it with "
			"the size it was made with",
			(unsigned long)header->size, options->size);
	if (!store_plan_fits(header, options->size))
		return error_set(RMR_PROTOCOL, "the store in this memory has a broken header");
	return RMR_OK;
}

enum rmr_status store_restore(const struct store_options *options, struct store **result)
{
	struct store_header *header = options->memory;
	enum rmr_status status = check_memory(options);
	struct page_info *old;
	struct store *store;
	size_t table;

	if (status == RMR_OK)
		status = store_prepare(options, &store);
	if (status != RMR_OK)
		return status;
	table = header->page_count * sizeof(*old);
	old = malloc(table);
	if (!old) {
		store_destroy(store);
		return error_set(RMR_NO_MEMORY, "a copy of the page table");
	}
	header->instance = 0; /* nobody is to read it now */
	memcpy(old, store->memory + header->page_table, table);
	memset(store->memory + header->directory, 0, header->page_table - header->directory);
	memset(store->memory + header->heat, 0, heat_size(header->size));
	status = store_open_parts(store);
	if (status == RMR_OK)
		status = rebuild(store, old);
	if (status == RMR_OK)
		status = store_publish(store);
	free(old);
	if (status != RMR_OK) {
		store_destroy(store);
		return status;
	}
	*result = store;
	return RMR_OK;
}
