/*
 * Scan and flush: going over all buckets by their numbers.
 *
 * A key moves only when its bucket is split, and then to a bucket with a higher number. So whoever
 * goes from 0 up to the last number, including those that are added meanwhile, comes by every key
 * that stays. Within a bucket keys are visited in the order of their tags, which never change:
 * the cursor is the bucket's number and the tag to go on with, plus 1, so that the first place of
 * all is not 0, which is the end.
 *
 *	 63              17 16       0
 *	+------------------+----------+
 *	| bucket           | tag + 1  |
 *	+------------------+----------+
 */
#include <stdlib.h>

#include "store/internal.h"

/* Buckets that a call looks at, beyond one for each key that is wanted: many may be empty. */
#define MIN_BUCKETS 1024
#define TAG_BITS    17 /* one more than a tag has */

static int by_tag(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

/* Shows what is left of the bucket from `tag` on. Returns the tag to go on with, plus 1; 0 when all
 * has been shown. A group of keys with the same tag may be shown again from its start. */
static uint32_t scan_bucket(struct store *store, uint64_t number, uint32_t tag, size_t *shown,
			    store_scan_fn fn, void *context)
{
	struct index_lock lock = index_lock_bucket(&store->index, number);
	struct index_chain chain;
	uint32_t stopped_at = 0;

	index_collect(&store->index, &lock, &chain);
	qsort(chain.slots, chain.count, sizeof(uint64_t), by_tag);
	for (unsigned i = 0; i < chain.count && !stopped_at; i++) {
		const struct item *item = item_at(store, slot_offset(chain.slots[i]));
		struct store_info info;

		if (slot_tag(chain.slots[i]) < tag || life_is_expired(store, item))
			continue;
		life_describe(store, item, &info);
		if (fn(context, item->key, item_key_length(item_get_lengths(item)), &info))
			*shown += 1;
		else
			stopped_at = slot_tag(chain.slots[i]) + 1;
	}
	index_unlock(&lock);
	return stopped_at;
}

/* Whether the bucket is there. Before it says no, it waits for whoever is just splitting buckets:
 * keys are in the new ones before these are counted. */
static bool is_bucket(struct store *store, uint64_t number)
{
	return number < index_bucket_count(&store->index) ||
	       number < index_settled_count(&store->index);
}

void store_scan(struct store_worker *worker, uint64_t *cursor, size_t count, store_scan_fn fn,
		void *context)
{
	struct store *store = worker->store;
	uint64_t number = *cursor >> TAG_BITS;
	uint32_t place = *cursor & (((uint32_t)1 << TAG_BITS) - 1);
	uint32_t tag = place ? place - 1 : 0;
	uint64_t end = number + MIN_BUCKETS + count;
	size_t shown = 0;

	while (number < end && shown < count && is_bucket(store, number)) {
		uint32_t stopped_at = scan_bucket(store, number, tag, &shown, fn, context);

		if (stopped_at) {
			*cursor = number << TAG_BITS | stopped_at;
			return;
		}
		number++;
		tag = 0;
	}
	*cursor = is_bucket(store, number) ? number << TAG_BITS : 0;
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
