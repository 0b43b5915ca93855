/*
 * Scan and flush: going over all buckets by their numbers.
 *
 * A key moves only when its bucket is split, and then to a bucket with a higher number. So whoever
 * goes from 0 up to the last number, including those that are added meanwhile, comes by every key
 * that stays. Within a bucket keys are visited in the order of their tags, which never change:
 * the cursor is the bucket's number and the tag to go on with, plus 1, so that the first place of
 * all is not 0, which is the end. Keys that share both lie at one place. They are visited in the
 * order of their bytes, which never change either: whoever has to stop among them goes on behind a
 * key. An order by anything that a put changes would show a key that is put again and again for
 * ever, and one by number would miss a key when one before it is deleted.
 *
 *	 63              17 16       0
 *	+------------------+----------+
 *	| bucket           | tag + 1  |
 *	+------------------+----------+
 */
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"

/* Buckets that a call looks at, beyond one for each key that is wanted: many may be empty. */
#define MIN_BUCKETS 1024
#define TAG_BITS    17 /* one more than a tag has */

static_assert(STORE_SCAN_TOGETHER == INDEX_MAX_SLOTS, "as many as a chain can have");

/* A scan on its way. */
struct scan {
	struct store *store;
	uint64_t number; /* of the bucket */
	uint32_t tag;	 /* of that bucket, from which on */
	/* Of the keys of this bucket and tag only those behind this one; NULL: all. */
	const void *behind;
	size_t behind_length;
	size_t shown;
	store_scan_fn fn;
	void *context;
};

static int compare_keys(const void *left, size_t left_length, const void *right,
			size_t right_length)
{
	if (left_length != right_length)
		return left_length < right_length ? -1 : 1;
	return memcmp(left, right, left_length);
}

static int by_tag_and_key(const void *a, const void *b, void *context)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
	const struct item *left_item, *right_item;

	if (slot_tag(left) != slot_tag(right))
		return slot_tag(left) < slot_tag(right) ? -1 : 1;
	left_item = item_at(context, slot_offset(left));
	right_item = item_at(context, slot_offset(right));
	return compare_keys(left_item->key, item_key_length(item_get_lengths(left_item)),
			    right_item->key, item_key_length(item_get_lengths(right_item)));
}

/* Whether it was shown before this call. */
static bool is_before(const struct scan *scan, uint64_t slot, const struct item *item)
{
	if (slot_tag(slot) != scan->tag)
		return slot_tag(slot) < scan->tag;
	return scan->behind && compare_keys(item->key, item_key_length(item_get_lengths(item)),
					    scan->behind, scan->behind_length) <= 0;
}

/* Shows what is left of the bucket. Returns the tag to go on with, plus 1; 0 when all has been
 * shown. *is_among: some keys of that tag have been shown, by this call or before. */
static uint32_t scan_bucket(struct scan *scan, bool *is_among)
{
	struct store *store = scan->store;
	struct index_lock lock = index_lock_bucket(&store->index, scan->number);
	struct index_chain chain;
	/* Of the last key that was shown, plus 1. */
	uint32_t shown_at = scan->behind ? scan->tag + 1 : 0, stopped_at = 0;

	index_collect(&store->index, &lock, &chain);
	qsort_r(chain.slots, chain.count, sizeof(uint64_t), by_tag_and_key, store);
	for (unsigned i = 0; i < chain.count && !stopped_at; i++) {
		const struct item *item = item_at(store, slot_offset(chain.slots[i]));
		uint32_t place = slot_tag(chain.slots[i]) + 1;
		struct store_info info;

		if (is_before(scan, chain.slots[i], item) || life_is_expired(store, item))
			continue;
		life_describe(store, item, &info);
		if (scan->fn(scan->context, item->key, item_key_length(item_get_lengths(item)),
			     &info)) {
			scan->shown++;
			shown_at = place;
		} else {
			stopped_at = place;
		}
	}
	index_unlock(&lock);
	*is_among = stopped_at && stopped_at == shown_at;
	return stopped_at;
}

/* Whether the bucket is there. Before it says no, it waits for whoever is just splitting buckets:
 * keys are in the new ones before these are counted. */
static bool is_bucket(struct store *store, uint64_t number)
{
	return number < index_bucket_count(&store->index) ||
	       number < index_settled_count(&store->index);
}

bool store_scan_behind(struct store_worker *worker, const void *key, size_t key_length,
		       uint64_t *cursor, size_t count, store_scan_fn fn, void *context)
{
	uint32_t place = *cursor & (((uint32_t)1 << TAG_BITS) - 1);
	struct scan scan = {.store = worker->store,
			    .number = *cursor >> TAG_BITS,
			    .tag = place ? place - 1 : 0,
			    .behind = place ? key : NULL,
			    .behind_length = key_length,
			    .fn = fn,
			    .context = context};
	uint64_t end = scan.number + MIN_BUCKETS + count;

	while (scan.number < end && scan.shown < count && is_bucket(scan.store, scan.number)) {
		bool is_among;
		uint32_t stopped_at = scan_bucket(&scan, &is_among);

		if (stopped_at) {
			*cursor = scan.number << TAG_BITS | stopped_at;
			return is_among;
		}
		scan.number++;
		scan.tag = 0;
		scan.behind = NULL;
	}
	*cursor = is_bucket(scan.store, scan.number) ? scan.number << TAG_BITS : 0;
	return false;
}

void store_scan(struct store_worker *worker, uint64_t *cursor, size_t count, store_scan_fn fn,
		void *context)
{
	(void)store_scan_behind(worker, NULL, 0, cursor, count, fn, context);
}

void store_flush(struct store_worker *worker)
{
	struct store *store = worker->store;

	for (uint64_t i = 0; is_bucket(store, i); i++) {
		for (;;) {
			struct index_lock lock = index_lock_bucket(&store->index, i);
			struct index_slot first = {.bucket = lock.bucket};

			/* Chains are kept without holes: the first slot is the last to be empty. */
			first.slot =
				atomic_load_explicit(&lock.bucket->slots[0], memory_order_relaxed);
			if (!first.slot) {
				index_unlock(&lock);
				break;
			}
			life_end(worker, &lock, &first);
		}
	}
}
