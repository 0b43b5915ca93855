/*
 * Scan and flush: going over all keys in an order that does not change.
 *
 * A key's place is its hash with the bits in opposite order. The keys of a bucket of depth d have
 * the last d bits of the hash in common, so their places are a range, of 2^(64 - d) places. A split
 * cuts the range in two, a merge joins two neighbours; no key gets another place. So going from the
 * first place up to the last comes by every key that stays, once, whether the index grows or
 * shrinks meanwhile.
 *
 * The cursor is the place to go on with. Its last bit is always 1, so that it is never 0, which is
 * the end; two neighbouring places count as one. Keys that share a place are visited in the order
 * of their bytes, which never change either: whoever has to stop among them goes on behind a key.
 * An order by anything that a put changes would show a key that is put again and again for ever,
 * and one by number would miss a key when one before it is deleted.
 */
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"

/* Buckets that a call looks at, beyond one for each key that is wanted: many may be empty. */
#define MIN_BUCKETS 1024

static_assert(STORE_SCAN_TOGETHER == INDEX_MAX_SLOTS, "as many as a chain can have");

/* A scan on its way. */
struct scan {
	struct store_worker *worker;
	uint64_t place; /* from which on */
	/* Of the keys at this place only those behind this one; NULL: all. */
	const void *behind;
	size_t behind_length;
	size_t shown;
	store_scan_fn fn;
	void *context;
};

struct placed {
	uint64_t place;
	const struct item *item;
};

static uint64_t reverse_bits(uint64_t word)
{
	word = (word & 0x5555555555555555u) << 1 | (word >> 1 & 0x5555555555555555u);
	word = (word & 0x3333333333333333u) << 2 | (word >> 2 & 0x3333333333333333u);
	word = (word & 0x0f0f0f0f0f0f0f0fu) << 4 | (word >> 4 & 0x0f0f0f0f0f0f0f0fu);
	return __builtin_bswap64(word);
}

static uint64_t place_of_hash(uint64_t hash)
{
	return reverse_bits(hash) & ~(uint64_t)1;
}

/* Locks the bucket of this place. *next is the first place behind it; 0: it is the last bucket. */
static struct index_lock lock_place(struct store_worker *worker, uint64_t place, uint64_t *next)
{
	struct index_lock lock =
		index_lock(&worker->store->index, &worker->guard, reverse_bits(place));
	uint64_t length = (uint64_t)1 << (64 - bucket_depth(lock.header));

	*next = (place & ~(length - 1)) + length;
	return lock;
}

static int compare_keys(const void *left, size_t left_length, const void *right,
			size_t right_length)
{
	if (left_length != right_length)
		return left_length < right_length ? -1 : 1;
	return memcmp(left, right, left_length);
}

static int by_place_and_key(const void *a, const void *b)
{
	const struct placed *left = a, *right = b;

	if (left->place != right->place)
		return left->place < right->place ? -1 : 1;
	return compare_keys(left->item->key, item_key_length(item_get_lengths(left->item)),
			    right->item->key, item_key_length(item_get_lengths(right->item)));
}

/* Whether it was shown before this call. */
static bool is_before(const struct scan *scan, const struct placed *key)
{
	if (key->place != scan->place)
		return key->place < scan->place;
	return scan->behind &&
	       compare_keys(key->item->key, item_key_length(item_get_lengths(key->item)),
			    scan->behind, scan->behind_length) <= 0;
}

/* The keys of a locked bucket, in the order in which they are shown. */
static unsigned sort_bucket(struct store *store, const struct index_lock *lock,
			    struct placed keys[INDEX_MAX_SLOTS])
{
	struct index_chain chain;

	index_collect(&store->index, lock, &chain);
	for (unsigned i = 0; i < chain.count; i++) {
		const struct item *item = item_at(store, slot_offset(chain.slots[i]));

		keys[i] = (struct placed){place_of_hash(index_hash_of(&store->index, item)), item};
	}
	qsort(keys, chain.count, sizeof(*keys), by_place_and_key);
	return chain.count;
}

/* Shows what is left of the bucket. True if the function ended the scan: at scan->place, and
 * *is_among says whether keys of that place have been shown, by this call or before. Otherwise
 * scan->place is the first one behind the bucket, 0: it was the last one. */
static bool scan_bucket(struct scan *scan, bool *is_among)
{
	struct store *store = scan->worker->store;
	struct placed keys[INDEX_MAX_SLOTS];
	uint64_t next, shown_at = scan->place;
	struct index_lock lock = lock_place(scan->worker, scan->place, &next);
	unsigned count = sort_bucket(store, &lock, keys);
	bool is_shown = scan->behind, is_stopped = false;

	for (unsigned i = 0; i < count && !is_stopped; i++) {
		const struct item *item = keys[i].item;
		struct store_info info;

		if (is_before(scan, &keys[i]) || life_is_expired(store, item))
			continue;
		life_describe(store, item, &info);
		if (scan->fn(scan->context, item->key, item_key_length(item_get_lengths(item)),
			     &info)) {
			scan->shown++;
			is_shown = true;
			shown_at = keys[i].place;
		} else {
			is_stopped = true;
			next = keys[i].place;
		}
	}
	index_unlock(&lock);
	*is_among = is_stopped && is_shown && shown_at == next;
	scan->place = next;
	scan->behind = NULL;
	return is_stopped;
}

bool store_scan_behind(struct store_worker *worker, const void *key, size_t key_length,
		       uint64_t *cursor, size_t count, store_scan_fn fn, void *context)
{
	struct scan scan = {.worker = worker,
			    .place = *cursor & ~(uint64_t)1,
			    .behind = *cursor ? key : NULL,
			    .behind_length = key_length,
			    .fn = fn,
			    .context = context};

	for (uint64_t i = 0; i < MIN_BUCKETS + count && scan.shown < count; i++) {
		bool is_among;

		if (scan_bucket(&scan, &is_among)) {
			*cursor = scan.place | 1;
			return is_among;
		}
		if (scan.place == 0) {
			*cursor = 0;
			return false;
		}
	}
	*cursor = scan.place | 1;
	return false;
}

void store_scan(struct store_worker *worker, uint64_t *cursor, size_t count, store_scan_fn fn,
		void *context)
{
	(void)store_scan_behind(worker, NULL, 0, cursor, count, fn, context);
}

void store_flush(struct store_worker *worker)
{
	uint64_t place = 0, next;

	do {
		for (;;) {
			struct index_lock lock = lock_place(worker, place, &next);
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
		place = next;
	} while (place);
}
