#include "store/index.h"

#include <string.h>

#include "store/item.h"
#include "store/probe.h"

/* Tries before giving the processor to whoever holds the bucket. */
#define LOCK_TRIES 200

static struct bucket *bucket_at(const struct index *index, const _Atomic uint32_t *directory,
				uint64_t number)
{
	return (struct bucket *)(index->memory + probe_place(directory, number));
}

static uint64_t load_header(const struct bucket *bucket)
{
	return atomic_load_explicit(&bucket->header, memory_order_relaxed);
}

static uint64_t load_slot(const struct bucket *bucket, unsigned number)
{
	return atomic_load_explicit(&bucket->slots[number], memory_order_relaxed);
}

static void store_slot(struct bucket *bucket, unsigned number, uint64_t slot)
{
	atomic_store_explicit(&bucket->slots[number], slot, memory_order_release);
}

static struct bucket *next_of(const struct index *index, uint64_t header)
{
	uint64_t number = bucket_overflow(header);

	return number ? bucket_at(index, index->overflow_directory, number) : NULL;
}

/* A segment whose buckets are those from `first` on, as they are when there are `count`. */
static bool init_segment(struct index *index, uint64_t first, uint64_t count)
{
	uint32_t page = page_pool_take_high(index->pool, PAGE_BUCKETS);
	unsigned depth = depth_of_count(count);
	uint64_t half = (uint64_t)1 << depth;
	struct bucket *buckets;

	if (!page)
		return false;
	buckets = (struct bucket *)(index->memory + ((uint64_t)page << STORE_PAGE_BITS));
	memset(buckets, 0, STORE_PAGE_SIZE);
	for (uint64_t i = first; i < first + SEGMENT_BUCKETS && i < count; i++) {
		bool was_split = i < count - half || i >= half;

		atomic_store_explicit(&buckets[i - first].header,
				      bucket_header(0, 0, depth + was_split), memory_order_relaxed);
	}
	atomic_fetch_add_explicit(&index->segments, 1, memory_order_relaxed);
	atomic_store_explicit(&index->directory[first >> SEGMENT_BITS], page, memory_order_release);
	return true;
}

bool index_init(struct index *index, uint8_t *memory, struct store_header *header,
		struct page_pool *pool, uint64_t bucket_count)
{
	*index = (struct index){
		.memory = memory,
		.header = header,
		.directory = (void *)(memory + header->directory),
		.overflow_directory = (void *)(memory + header->overflow_directory),
		.pool = pool,
		.overflow_next = 1, /* 0 means none */
	};
	spin_lock_init(&index->growing);
	spin_lock_init(&index->overflow_lock);
	for (uint64_t first = 0; first < bucket_count; first += SEGMENT_BUCKETS) {
		if (!init_segment(index, first, bucket_count))
			return false;
	}
	index_set_count(index, bucket_count);
	return true;
}

/* ------------------------------------------------------------------------------------------
 * Locking
 */

/* Acquire, and a release fence: what the last holder did is seen, and nothing that we do is seen
 * before the lock bit. */
static struct index_lock lock_bucket(struct bucket *bucket)
{
	for (int tries = 1;; tries++) {
		uint64_t header = load_header(bucket);

		if (!bucket_is_locked(header) &&
		    atomic_compare_exchange_weak_explicit(
			    &bucket->header, &header, header | BUCKET_LOCKED, memory_order_acquire,
			    memory_order_relaxed)) {
			atomic_thread_fence(memory_order_release);
			return (struct index_lock){.bucket = bucket, .header = header};
		}
		cpu_relax();
		if (tries % LOCK_TRIES == 0)
			sched_yield();
	}
}

struct index_lock index_lock_bucket(struct index *index, uint64_t number)
{
	return lock_bucket(bucket_at(index, index->directory, number));
}

/* The header carries the overflow link and depth, which may have changed, and a new sequence. */
void index_unlock(struct index_lock *lock)
{
	uint64_t header = bucket_header(bucket_sequence(lock->header) + 1,
					bucket_overflow(lock->header), bucket_depth(lock->header));

	atomic_store_explicit(&lock->bucket->header, header, memory_order_release);
}

/* Follows the depths from the bucket that the count leads to. False: the index is shrinking, and
 * the bucket has gone. The guard is set. */
static bool lock_home(struct index *index, uint64_t hash, struct index_lock *lock)
{
	struct probe probe;

	/* Acquire: the buckets that are counted are there. */
	probe_begin(&probe, hash,
		    atomic_load_explicit(&index->header->bucket_count, memory_order_acquire));
	for (;;) {
		uint64_t place = probe_place(index->directory, probe.bucket);
		unsigned depth;

		if (!place)
			return false;
		*lock = lock_bucket((struct bucket *)(index->memory + place));
		depth = bucket_depth(lock->header);
		if (hash_bits(hash, depth) == probe.bucket)
			return true;
		index_unlock(lock);
		if (probe_redirect(&probe, depth) == PROBE_CONFUSED ||
		    probe.bucket >> SEGMENT_BITS >= index->header->page_count)
			return false;
	}
}

/*
 * The count may have changed since it was read, but a bucket is split and merged only while it is
 * locked: once we have the lock its depth says whether the key belongs here, and goes on saying so.
 *
 * The guard is set before the count and the directory are read, and cleared when the bucket is
 * locked. index_shrink.c says what that is for, and why a plain store and a fence for the compiler
 * are enough.
 */
struct index_lock index_lock(struct index *index, struct index_guard *guard, uint64_t hash)
{
	struct index_lock lock;

	atomic_store_explicit(&guard->is_set, true, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	while (!lock_home(index, hash, &lock))
		cpu_relax();
	/* Release: a thread that sees it clear sees all that was done to buckets found before. */
	atomic_store_explicit(&guard->is_set, false, memory_order_release);
	return lock;
}

/* ------------------------------------------------------------------------------------------
 * Slots of a locked bucket
 */

static bool is_key(const struct index *index, uint64_t slot, const void *key, size_t key_length)
{
	const struct item *item = (const struct item *)(index->memory + slot_offset(slot));

	return item_key_length(item_get_lengths(item)) == key_length &&
	       memcmp(item->key, key, key_length) == 0;
}

bool index_find(struct index *index, const struct index_lock *lock, uint64_t hash, const void *key,
		size_t key_length, struct index_slot *slot)
{
	uint16_t tag = hash_tag(hash);
	struct bucket *bucket = lock->bucket;
	uint64_t header = lock->header;

	for (;;) {
		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			uint64_t found = load_slot(bucket, i);

			if (found && slot_tag(found) == tag &&
			    is_key(index, found, key, key_length)) {
				*slot = (struct index_slot){bucket, i, found};
				return true;
			}
		}
		bucket = next_of(index, header);
		if (!bucket)
			return false;
		header = load_header(bucket);
	}
}

bool index_find_offset(struct index *index, const struct index_lock *lock, uint64_t offset,
		       struct index_slot *slot)
{
	struct bucket *bucket = lock->bucket;
	uint64_t header = lock->header;

	for (;;) {
		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			uint64_t found = load_slot(bucket, i);

			if (found && slot_offset(found) == offset) {
				*slot = (struct index_slot){bucket, i, found};
				return true;
			}
		}
		bucket = next_of(index, header);
		if (!bucket)
			return false;
		header = load_header(bucket);
	}
}

void index_collect(struct index *index, const struct index_lock *lock, struct index_chain *chain)
{
	struct bucket *bucket = lock->bucket;
	uint64_t header = lock->header;

	chain->count = 0;
	while (bucket) {
		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			uint64_t slot = load_slot(bucket, i);

			if (slot)
				chain->slots[chain->count++] = slot;
		}
		bucket = next_of(index, header);
		header = bucket ? load_header(bucket) : 0;
	}
}

/* ------------------------------------------------------------------------------------------
 * Overflow buckets
 */

/* Memory for more of them. The overflow lock is held. */
static bool add_overflow_segment(struct index *index)
{
	uint64_t number = index->overflow_limit >> SEGMENT_BITS;
	uint32_t page;

	if (index->overflow_limit >= MAX_OVERFLOW_COUNT || number >= index->header->page_count)
		return false;
	page = page_pool_take_high(index->pool, PAGE_OVERFLOW);
	if (!page)
		return false;
	memset(index->memory + ((uint64_t)page << STORE_PAGE_BITS), 0, STORE_PAGE_SIZE);
	atomic_store_explicit(&index->overflow_directory[number], page, memory_order_release);
	index->overflow_limit += SEGMENT_BUCKETS;
	atomic_fetch_add_explicit(&index->segments, 1, memory_order_relaxed);
	return true;
}

/* An empty bucket, or 0. */
static uint64_t take_overflow(struct index *index)
{
	struct bucket *bucket;
	uint64_t number;

	spin_lock_take(&index->overflow_lock);
	number = index->overflow_free;
	if (number) {
		bucket = bucket_at(index, index->overflow_directory, number);
		index->overflow_free = bucket_overflow(load_header(bucket));
	} else if (index->overflow_next < index->overflow_limit || add_overflow_segment(index)) {
		number = index->overflow_next++;
	}
	SHOWN_SET(index->overflow_used, index->overflow_used + (number != 0));
	spin_lock_give(&index->overflow_lock);
	if (number) {
		bucket = bucket_at(index, index->overflow_directory, number);
		atomic_store_explicit(&bucket->header, 0, memory_order_relaxed);
	}
	return number;
}

static void give_overflow(struct index *index, uint64_t number)
{
	struct bucket *bucket = bucket_at(index, index->overflow_directory, number);

	spin_lock_take(&index->overflow_lock);
	atomic_store_explicit(&bucket->header, bucket_header(0, index->overflow_free, 0),
			      memory_order_relaxed);
	index->overflow_free = number;
	SHOWN_SET(index->overflow_used, index->overflow_used - 1);
	spin_lock_give(&index->overflow_lock);
}

void index_give_overflow_pages(struct index *index)
{
	spin_lock_take(&index->overflow_lock);
	for (uint64_t first = 0; index->overflow_used == 0 && first < index->overflow_limit;
	     first += SEGMENT_BUCKETS) {
		_Atomic uint32_t *entry = &index->overflow_directory[first >> SEGMENT_BITS];
		uint32_t page = atomic_load_explicit(entry, memory_order_relaxed);

		/* Relaxed: the chains that led there changed their first bucket's header. */
		atomic_store_explicit(entry, 0, memory_order_relaxed);
		page_pool_give(index->pool, page);
		atomic_fetch_sub_explicit(&index->segments, 1, memory_order_relaxed);
	}
	if (index->overflow_used == 0) {
		index->overflow_free = 0;
		index->overflow_next = 1;
		index->overflow_limit = 0;
	}
	spin_lock_give(&index->overflow_lock);
}

/* Hangs bucket `number` (0: nothing) behind `bucket`, which is the lock's own or further on. */
static void set_next(struct index_lock *lock, struct bucket *bucket, uint64_t number)
{
	if (bucket == lock->bucket) {
		lock->header = bucket_header(bucket_sequence(lock->header), number,
					     bucket_depth(lock->header));
		/* Now, and still locked: readers do not trust it, growing and adding do. */
		atomic_store_explicit(&bucket->header, lock->header | BUCKET_LOCKED,
				      memory_order_release);
	} else {
		atomic_store_explicit(&bucket->header, bucket_header(0, number, 0),
				      memory_order_release);
	}
}

bool index_add(struct index *index, struct index_lock *lock, uint64_t slot)
{
	struct bucket *bucket = lock->bucket, *last = NULL;
	uint64_t header = lock->header, number;
	unsigned length = 0;

	while (bucket) {
		for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
			if (load_slot(bucket, i) == 0) {
				store_slot(bucket, i, slot);
				return true;
			}
		}
		last = bucket;
		length++;
		bucket = next_of(index, header);
		header = bucket ? load_header(bucket) : 0;
	}
	number = length < PROBE_MAX_CHAIN ? take_overflow(index) : 0;
	if (!number)
		return false;
	store_slot(bucket_at(index, index->overflow_directory, number), 0, slot);
	set_next(lock, last, number);
	return true;
}

/*
 * Fills the hole with the last slot of the chain, so that only the last bucket has holes and they
 * are at its end, and gives an overflow bucket back when it is empty.
 */
void index_remove(struct index *index, struct index_lock *lock, const struct index_slot *at)
{
	struct bucket *last = lock->bucket, *before = NULL;
	uint64_t header = lock->header, number = 0;
	unsigned end = BUCKET_SLOTS;

	while (bucket_overflow(header)) {
		before = last;
		number = bucket_overflow(header);
		last = bucket_at(index, index->overflow_directory, number);
		header = load_header(last);
	}
	while (end > 1 && load_slot(last, end - 1) == 0)
		end--;
	store_slot(at->bucket, at->number, load_slot(last, end - 1));
	store_slot(last, end - 1, 0);
	if (end == 1 && before) {
		set_next(lock, before, 0);
		give_overflow(index, number);
	}
}

void index_refill(struct index *index, struct index_lock *lock, const uint64_t *slots,
		  unsigned count)
{
	struct bucket *bucket = lock->bucket;
	uint64_t header = lock->header;
	unsigned at = 0;

	for (;;) {
		uint64_t next = bucket_overflow(header);

		for (unsigned i = 0; i < BUCKET_SLOTS; i++, at++)
			store_slot(bucket, i, at < count ? slots[at] : 0);
		if (next && at >= count)
			set_next(lock, bucket, 0);
		/* The rest of the chain: one by one, each before its link is overwritten. */
		while (next && at >= count) {
			bucket = bucket_at(index, index->overflow_directory, next);
			header = load_header(bucket);
			for (unsigned i = 0; i < BUCKET_SLOTS; i++)
				store_slot(bucket, i, 0);
			give_overflow(index, next);
			next = bucket_overflow(header);
		}
		if (!next)
			return;
		bucket = bucket_at(index, index->overflow_directory, next);
		header = load_header(bucket);
	}
}

void index_prefetch(const struct index *index, uint64_t hash)
{
	unsigned bits;

	__builtin_prefetch(bucket_at(index, index->directory,
				     probe_home(hash, index_bucket_count(index), &bits)),
			   1);
}

uint64_t index_hash_of(const struct index *index, const struct item *item)
{
	return probe_hash(item->key, item_key_length(item_get_lengths(item)),
			  index->header->hash_seed);
}
