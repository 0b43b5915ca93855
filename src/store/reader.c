/*
 * How a reader can be sure, although nobody waits for it.
 *
 * What writers do (index.h, item.h): everything that changes a bucket, the buckets that overflow
 * from it, or the life of an item in it happens while the first bucket's lock bit is set, and giving
 * the lock back changes the header's sequence. Memory of an item is given to something else only
 * after the item was taken out of its bucket.
 *
 * 1. A look at a bucket reads the header, then slots and item headers, then the header again. If
 *    both headers are the same and unlocked, no writer was there in between: what was read is how it
 *    was at one moment. The acquire load keeps the reads behind the first header, the acquire fence
 *    before the second; on the writer's side a release fence follows the locking, and a release
 *    store ends it. So a reader that saw anything a writer wrote sees a locked or another header.
 *
 * 2. A miss is one such look at the whole chain: at that moment the key was not there.
 *
 * 3. A hit is a look that found the key at an offset with a version; then a copy; then another look
 *    (cheap: if the header still is the same, it is the same look) that finds the same offset with
 *    the same version. Versions are never used twice, and an item that left the index never comes
 *    back, so it was there all the time, and bytes of an item that is there do not change: the copy
 *    is whole. At the first look it was the key's current value. Bytes that merely look like an
 *    item, in memory that was given to something else, do not help anyone: the second look goes by
 *    the index, not by the bytes.
 *
 * 4. The expiry may change in place. It is one word; each value of it was true when it was read.
 *    Whoever finds it passed asks, for it may have been moved on meanwhile.
 *
 * The sequence has 32 bits: a reader that is stopped within one look while a multiple of 2^32
 * changes, no more and no less, are made to that one bucket (a quarter of an hour of nothing else)
 * would not notice. Nothing else here depends on time.
 */
#include "store/reader.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/item.h"
#include "store/probe.h"
#include "store/racy.h"

/* Looks until somebody is asked. Writers hold a bucket for well under a microsecond. */
#define MAX_LOOKS 64

/* What a look found, and how to look again. */
struct sight {
	const struct bucket *home;
	uint64_t home_header;
	const struct item *item;
	struct reader_item found;
};

enum look {
	LOOK_FOUND,
	LOOK_MISS,
	LOOK_AGAIN, /* a writer was there */
};

enum rmr_status reader_init(struct reader *reader, const void *memory, size_t size)
{
	const struct store_header *header = memory;
	uint64_t directory_size;

	if (size < sizeof(*header) || header->magic != STORE_MAGIC)
		return error_set(RMR_PROTOCOL, "this memory holds no store");
	if (header->layout_version != STORE_LAYOUT_VERSION || header->page_size != STORE_PAGE_SIZE)
		return error_set(RMR_PROTOCOL,
				 "a store of layout %u with pages of %u, not %u with %zu: update "
				 "the older side",
				 header->layout_version, header->page_size, STORE_LAYOUT_VERSION,
				 STORE_PAGE_SIZE);
	directory_size = (uint64_t)header->page_count * sizeof(uint32_t);
	if (header->size > size || header->size >> STORE_PAGE_BITS < header->page_count ||
	    header->first_page == 0 || header->first_page >= header->page_count ||
	    header->directory % 8 || header->overflow_directory % 8 ||
	    header->directory > size - directory_size ||
	    header->overflow_directory > size - directory_size)
		return error_set(RMR_PROTOCOL, "the store's header makes no sense");
	*reader = (struct reader){
		.memory = memory,
		.header = header,
		.directory = (const void *)((const uint8_t *)memory + header->directory),
		.overflow_directory =
			(const void *)((const uint8_t *)memory + header->overflow_directory),
		.hash_seed = header->hash_seed,
		.first_item = (uint64_t)header->first_page << STORE_PAGE_BITS,
		.size = (uint64_t)header->page_count << STORE_PAGE_BITS,
		.page_count = header->page_count,
		.clock_offset_ms = header->clock_offset_ms,
	};
	return RMR_OK;
}

uint64_t reader_clock_ms(const struct reader *reader)
{
	if (reader->clock_ms)
		return reader->clock_ms();
	return clock_now_ns() / 1000000 + (uint64_t)reader->clock_offset_ms;
}

uint64_t reader_hash(const struct reader *reader, const void *key, size_t key_length)
{
	return probe_hash(key, key_length, reader->hash_seed);
}

/* The bucket that the probe wants next, or NULL. */
static inline const struct bucket *find_bucket(const struct reader *reader,
					       const struct probe *probe)
{
	uint64_t offset;

	if (probe->bucket >> SEGMENT_BITS >= reader->page_count)
		return NULL;
	offset = probe_place(probe->in_overflow ? reader->overflow_directory : reader->directory,
			     probe->bucket);
	if (offset < reader->first_item || offset >= reader->size)
		return NULL;
	return (const struct bucket *)(reader->memory + offset);
}

/* Acquire: everything that is read after this is read after the header. */
static inline void read_bucket(const struct bucket *bucket, uint64_t words[BUCKET_SLOTS + 1])
{
	words[0] = atomic_load_explicit(&bucket->header, memory_order_acquire);
	for (unsigned i = 0; i < BUCKET_SLOTS; i++)
		words[i + 1] = atomic_load_explicit(&bucket->slots[i], memory_order_relaxed);
}

/* True if no writer was there since the header was read. */
static inline bool is_unchanged(const struct sight *sight)
{
	/* Acquire: what was read before this is read before the header. */
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&sight->home->header, memory_order_relaxed) ==
	       sight->home_header;
}

/* Whether the slot's item has this key, as far as can be told now. */
static inline bool has_key(const struct reader *reader, uint64_t slot, const void *key,
			   size_t key_length, struct sight *sight)
{
	uint64_t offset = slot_offset(slot);
	const struct item *item = (const struct item *)(reader->memory + offset);
	uint64_t lengths;

	if (offset < reader->first_item || offset > reader->size - sizeof(*item))
		return false;
	sight->found.version = atomic_load_explicit(&item->version, memory_order_acquire);
	lengths = item_get_lengths(item);
	if (sight->found.version == 0 || item_key_length(lengths) != key_length ||
	    item_size_of(lengths) > reader->size - offset ||
	    !racy_equal(key, item->key, key_length))
		return false;
	sight->item = item;
	sight->found.offset = offset;
	sight->found.lengths = lengths;
	sight->found.expires_ms = item_expiry(item);
	return true;
}

static inline enum look look(const struct reader *reader, uint64_t hash, const void *key,
			     size_t key_length, struct sight *sight)
{
	uint64_t words[BUCKET_SLOTS + 1];
	struct probe probe;
	enum probe_step step;

	/* Acquire: the buckets that are counted are there. */
	probe_begin(&probe, hash,
		    atomic_load_explicit(&reader->header->bucket_count, memory_order_acquire) | 1);
	do {
		const struct bucket *bucket = find_bucket(reader, &probe);

		if (!bucket)
			return LOOK_AGAIN;
		read_bucket(bucket, words);
		if (!probe.in_overflow) {
			sight->home = bucket;
			sight->home_header = words[0];
			if (bucket_is_locked(words[0]))
				return LOOK_AGAIN;
		}
		step = probe_look(&probe, words);
		for (unsigned i = 0; i < probe.candidate_count; i++) {
			if (has_key(reader, probe.candidates[i], key, key_length, sight))
				return is_unchanged(sight) ? LOOK_FOUND : LOOK_AGAIN;
		}
	} while (step == PROBE_GO_ON);
	return step == PROBE_END && is_unchanged(sight) ? LOOK_MISS : LOOK_AGAIN;
}

/* After the copy: whether what was seen is still there. */
static inline bool is_still_there(const struct reader *reader, uint64_t hash, const void *key,
				  size_t key_length, const struct sight *sight)
{
	struct sight again;

	if (is_unchanged(sight))
		return true;
	for (int looks = 0; looks < MAX_LOOKS; looks++) {
		enum look seen = look(reader, hash, key, key_length, &again);

		if (seen != LOOK_AGAIN)
			return seen == LOOK_FOUND && again.found.offset == sight->found.offset &&
			       again.found.version == sight->found.version;
		cpu_relax();
	}
	return false;
}

enum reader_status reader_get_hashed(const struct reader *reader, uint64_t hash, const void *key,
				     size_t key_length, void *value, size_t room,
				     struct reader_item *item)
{
	struct sight sight = {0};

	for (int looks = 0; looks < MAX_LOOKS; looks++) {
		enum look seen = look(reader, hash, key, key_length, &sight);
		uint64_t length = item_value_length(sight.found.lengths);

		if (seen == LOOK_AGAIN) {
			cpu_relax();
			continue;
		}
		if (seen == LOOK_MISS)
			return READER_MISS;
		if (item_kind(sight.found.lengths) != ITEM_VALUE ||
		    (sight.found.expires_ms && reader_clock_ms(reader) >= sight.found.expires_ms))
			return READER_ASK;
		if (value && length > room) {
			*item = sight.found;
			return READER_NO_ROOM;
		}
		if (value) {
			racy_copy(value,
				  (const uint8_t *)sight.item +
					  item_value_offset(key_length, length),
				  length);
			if (!is_still_there(reader, hash, key, key_length, &sight))
				continue;
		}
		*item = sight.found;
		return READER_FOUND;
	}
	return READER_ASK;
}

enum reader_status reader_get(const struct reader *reader, const void *key, size_t key_length,
			      void *value, size_t room, struct reader_item *item)
{
	return reader_get_hashed(reader, reader_hash(reader, key, key_length), key, key_length,
				 value, room, item);
}

void reader_prefetch_bucket(const struct reader *reader, uint64_t hash)
{
	const struct bucket *bucket;
	struct probe probe;

	probe_begin(&probe, hash,
		    atomic_load_explicit(&reader->header->bucket_count, memory_order_acquire) | 1);
	bucket = find_bucket(reader, &probe);
	if (bucket)
		__builtin_prefetch(bucket);
}

void reader_prefetch_item(const struct reader *reader, uint64_t hash)
{
	uint64_t words[BUCKET_SLOTS + 1];
	const struct bucket *bucket;
	struct probe probe;

	probe_begin(&probe, hash,
		    atomic_load_explicit(&reader->header->bucket_count, memory_order_acquire) | 1);
	bucket = find_bucket(reader, &probe);
	if (!bucket)
		return;
	read_bucket(bucket, words);
	probe_look(&probe, words);
	for (unsigned i = 0; i < probe.candidate_count; i++) {
		const uint8_t *item = reader->memory + slot_offset(probe.candidates[i]);

		if (slot_offset(probe.candidates[i]) < reader->size) {
			__builtin_prefetch(item);
			__builtin_prefetch(item + 64);
		}
	}
}
