/*
 * How a reader can be sure, although nobody waits for it.
 *
 * What writers do (index.h, item.h): everything that changes a bucket, the buckets that overflow
 * from it, or the life of an item in it happens while the first bucket's lock bit is set, and
 * giving the lock back changes the header's sequence. Memory of an item is given to something else
 * only after the item was taken out of its bucket.
 *
 * 1. A look at a bucket reads the header, then slots and item headers, then the header again. If
 *    both headers are the same and unlocked, no writer was there in between: what was read is how
 *    it was at one moment. The acquire load keeps the reads behind the first header, the acquire
 *    fence before the second; on the writer's side a release fence follows the locking, and a
 *    release store ends it. So a reader that saw anything a writer wrote sees a locked or another
 *    header.
 *
 *    Whether it is the right bucket, it says itself: an unlocked one whose number is the last bits
 *    of the hash, as many as its depth, is the key's, however it was found. So the count of buckets
 *    is never believed.
 *
 *    Whether it is a bucket at all, the count of shrinks says. It is read before the directory, and
 *    again with the second header. A page is taken out of the directory, then counted, then used
 *    for something else; so a reader that was led to a page after that had another first count, and
 *    a reader that read anything of the page's new use sees another second count. A page of
 *    overflow buckets needs no count: its buckets were taken out of their chains before, which
 *    changed the header of each chain's first bucket.
 *
 *    A glance (reader_glance.h) copies the value within the look: it is whole,
 *    and current at that moment. What is to be said of a copy that takes longer is point 3.
 *
 * 2. A miss is one such look at the whole chain: at that moment the key was not there.
 *
 * 3. A hit is a look that found the key at an offset with a version; then a copy; then another
 *    look (cheap: if the header still is the same, it is the same look) that finds the same offset
 *    with the same version, while no item was moved. Versions are never used twice, and an item
 *    that left its place comes back to it only by being moved, which is counted; so it was there
 *    all the time, and bytes of an item that is there do not change: the copy is whole. At the
 *    first look it was the key's current value. Bytes that merely look like an item, in memory that
 *    was given to something else, do not help anyone: the second look goes by the index, not by the
 *    bytes. (The count of moves is read after the first look. If the item was moved away and back
 *    before that, the copy is of what came back.)
 *
 * 4. The expiry may change in place. It is one word; each value of it was true when it was read.
 *    Whoever finds it passed asks, for it may have been moved on meanwhile.
 *
 * The sequence has 29 bits: a reader that is stopped within one look while a multiple of 2^29
 * changes, no more and no less, are made to that one bucket (minutes of nothing else)
 * would not notice. Nothing else here depends on time.
 */
#include "store/reader.h"

#include "base/clock.h"
#include "base/error.h"
#include "store/reader_glance.h"
#include "store/size_class.h"

/* Of an item: what comes after is found by the processor itself. */
#define PREFETCH_BYTES 256u
/* Looks until somebody is asked. Writers mostly hold a bucket for less than a microsecond. */
#define MAX_LOOKS 64
/* Copies of a long value that were in vain until somebody is asked. */
#define LONG_VALUE  65536u
#define MAX_SPOILED 3
/* What an item has beside its value, at most. */
#define ITEM_MAX_EXTRA (sizeof(struct item) + STORE_MAX_KEY + ITEM_WIDE_ALIGN)

/* What a look found, and how to look again. */
struct sight {
	uint64_t shrinks;
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

/* The constant part of the header, copied: what is checked must be what is used, and a hostile
 * server may change it between the two. */
struct constants {
	uint64_t magic, size, instance, hash_seed, directory, overflow_directory, time_namespace;
	uint32_t layout_version, page_size, first_page, page_count;
	int64_t clock_offset_ms;
};

static struct constants copy_constants(const struct store_header *header)
{
	const volatile struct store_header *once = header;

	return (struct constants){
		/* Acquire: whoever sees the magic sees the rest. */
		.magic = __atomic_load_n(&header->magic, __ATOMIC_ACQUIRE),
		.size = once->size,
		.instance = once->instance,
		.hash_seed = once->hash_seed,
		.directory = once->directory,
		.overflow_directory = once->overflow_directory,
		.layout_version = once->layout_version,
		.page_size = once->page_size,
		.first_page = once->first_page,
		.page_count = once->page_count,
		.clock_offset_ms = once->clock_offset_ms,
		.time_namespace = once->time_namespace,
	};
}

/* Whether all that a reader will use as an address lies in `size` bytes. */
static bool are_sound(const struct constants *header, size_t size)
{
	uint64_t directory_size = (uint64_t)header->page_count * sizeof(uint32_t);

	return header->size <= size && header->size >> STORE_PAGE_BITS >= header->page_count &&
	       header->first_page > 0 && header->first_page < header->page_count &&
	       header->directory % 8 == 0 && header->overflow_directory % 8 == 0 &&
	       header->directory <= size - directory_size &&
	       header->overflow_directory <= size - directory_size;
}

enum rmr_status reader_init(struct reader *reader, const void *memory, size_t size)
{
	struct constants header;

	if (size < sizeof(struct store_header))
		return error_set(RMR_PROTOCOL, "this memory holds no store");
	header = copy_constants(memory);
	if (header.magic != STORE_MAGIC)
		return error_set(RMR_PROTOCOL, "this memory holds no store");
	if (header.instance == 0)
		return error_set(RMR_PROTOCOL, "this store is being restored; try again later");
	if (header.layout_version != STORE_LAYOUT_VERSION || header.page_size != STORE_PAGE_SIZE)
		return error_set(RMR_PROTOCOL,
				 "a store of layout %u with pages of %u, not %u with %zu: update "
				 "the older side",
				 header.layout_version, header.page_size, STORE_LAYOUT_VERSION,
				 STORE_PAGE_SIZE);
	if (!are_sound(&header, size))
		return error_set(RMR_PROTOCOL, "the store's header makes no sense");
	*reader = (struct reader){
		.memory = memory,
		.header = memory,
		.directory = (const void *)((const uint8_t *)memory + header.directory),
		.overflow_directory =
			(const void *)((const uint8_t *)memory + header.overflow_directory),
		.hash_seed = header.hash_seed,
		.first_item = (uint64_t)header.first_page << STORE_PAGE_BITS,
		.size = (uint64_t)header.page_count << STORE_PAGE_BITS,
		.item_room = (uint64_t)(header.page_count - 1 - header.first_page)
			     << STORE_PAGE_BITS,
		.page_count = header.page_count,
		.first_page = header.first_page,
		.other_pages = header.page_count - header.first_page,
		.clock_offset_ms = header.clock_offset_ms,
		.has_clock = header.time_namespace && header.time_namespace == clock_namespace(),
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

/* Whether the slot's item has this key, as far as can be told now. An item that is dead by now is
 * no concern here: then the header has changed. */
static bool has_key(const struct reader *reader, uint64_t slot, const void *key, size_t key_length,
		    struct sight *sight)
{
	uint64_t offset = slot_offset(slot);
	const struct item *item = (const struct item *)(reader->memory + offset);
	uint64_t lengths;

	/* A header at least, whatever the slot says. */
	if (offset - reader->first_item > reader->size - reader->first_item - sizeof(*item))
		return false;
	lengths = item_get_lengths(item);
	/* The arena's last page is one of buckets: a little more than the item's size does no
	 * harm. */
	if (item_key_length(lengths) != key_length ||
	    item_value_length(lengths) + ITEM_MAX_EXTRA > reader->size - offset ||
	    !racy_equal(key, item->key, key_length))
		return false;
	sight->item = item;
	sight->found = (struct reader_item){.offset = offset,
					    .version = item_version(item),
					    .expires_ms = item_expiry(item),
					    .lengths = lengths};
	return true;
}

static bool is_unchanged(const struct reader *reader, const struct sight *sight)
{
	return reader_is_unchanged(reader, sight->home, sight->home_header, sight->shrinks);
}

static enum look look(const struct reader *reader, uint64_t hash, const void *key,
		      size_t key_length, struct sight *sight)
{
	struct probe probe;
	enum probe_step step;

	sight->shrinks = reader_shrinks(reader);
	probe_begin(&probe, hash, reader_bucket_count(reader));
	do {
		const struct bucket *bucket = reader_bucket(
			reader, probe.in_overflow ? reader->overflow_directory : reader->directory,
			probe.bucket);

		if (!bucket)
			return LOOK_AGAIN;
		if (!probe.in_overflow) {
			sight->home = bucket;
			/* Acquire: as in reader_glance(). */
			sight->home_header = racy_load_acquire(&bucket->header);
			if (bucket_is_locked(sight->home_header))
				return LOOK_AGAIN;
		}
		step = probe_look(&probe, bucket);
		for (unsigned i = 0; i < probe.candidate_count; i++) {
			if (has_key(reader, probe.candidates[i], key, key_length, sight))
				return is_unchanged(reader, sight) ? LOOK_FOUND : LOOK_AGAIN;
		}
	} while (step == PROBE_GO_ON);
	return step == PROBE_END && is_unchanged(reader, sight) ? LOOK_MISS : LOOK_AGAIN;
}

/* After the copy, when somebody was at the bucket: whether what was seen is still there. */
static bool is_still_there(const struct reader *reader, uint64_t hash, const void *key,
			   size_t key_length, const struct sight *sight, uint64_t moves)
{
	struct sight again;

	for (int looks = 0; looks < MAX_LOOKS; looks++) {
		enum look seen = look(reader, hash, key, key_length, &again);

		/* The count of moves comes after the look, which is an acquire. */
		if (seen != LOOK_AGAIN)
			return seen == LOOK_FOUND && again.found.offset == sight->found.offset &&
			       again.found.version == sight->found.version &&
			       atomic_load_explicit(&reader->header->moves, memory_order_acquire) ==
				       moves;
		cpu_relax();
	}
	return false;
}

enum reader_status reader_look(const struct reader *reader, uint64_t hash, const void *key,
			       size_t key_length, void *value, size_t room,
			       struct reader_item *item)
{
	int spoiled = 0;

	for (int looks = 0; looks < MAX_LOOKS; looks++) {
		struct sight sight = {0};
		enum look seen = look(reader, hash, key, key_length, &sight);
		uint64_t length, moves;

		if (seen == LOOK_MISS)
			return READER_MISS;
		if (seen == LOOK_AGAIN) {
			cpu_relax();
			continue;
		}
		length = item_value_length(sight.found.lengths);
		if (item_kind(sight.found.lengths) != ITEM_VALUE ||
		    (sight.found.expires_ms && !reader_is_alive(reader, sight.found.expires_ms)))
			return READER_ASK;
		if (!value || length > room) {
			*item = sight.found;
			return value ? READER_NO_ROOM : READER_FOUND;
		}
		moves = atomic_load_explicit(&reader->header->moves, memory_order_acquire);
		racy_copy(value,
			  (const uint8_t *)sight.item + item_value_offset(key_length, length),
			  length);
		if (is_unchanged(reader, &sight) ||
		    is_still_there(reader, hash, key, key_length, &sight, moves)) {
			*item = sight.found;
			return READER_FOUND;
		}
		/* A long value that changes while it is copied will do so again. */
		if (length > LONG_VALUE && ++spoiled == MAX_SPOILED)
			break;
	}
	return READER_ASK;
}

enum reader_status reader_get_hashed(const struct reader *reader, uint64_t hash, const void *key,
				     size_t key_length, void *value, size_t room,
				     struct reader_item *item)
{
	if (key_length < 1 || key_length > STORE_MAX_KEY)
		return READER_MISS;
	switch (value ? reader_glance(reader, hash, key, key_length, value, room, item)
		      : GLANCE_LOOK) {
	case GLANCE_FOUND:
		return READER_FOUND;
	case GLANCE_MISS:
		return READER_MISS;
	default:
		return reader_look(reader, hash, key, key_length, value, room, item);
	}
}

enum reader_status reader_get(const struct reader *reader, const void *key, size_t key_length,
			      void *value, size_t room, struct reader_item *item)
{
	return reader_get_hashed(reader, glance_hash(reader, key, key_length), key, key_length,
				 value, room, item);
}

const struct bucket *reader_prefetch_bucket(const struct reader *reader, uint64_t hash)
{
	unsigned bits;
	const struct bucket *bucket = reader_bucket(
		reader, reader->directory, probe_home(hash, reader_bucket_count(reader), &bits));

	__builtin_prefetch(bucket);
	return bucket;
}

uint64_t reader_prefetch_item(const struct reader *reader, const struct bucket *bucket,
			      uint64_t hash)
{
	unsigned matches = bucket ? probe_match(bucket, hash_tag(hash)) : 0;
	uint64_t likely = 0;

	for (; matches; matches &= matches - 1) {
		uint64_t slot = probe_slot(bucket, matches);
		uint64_t offset = slot_offset(slot), size = size_class_size(slot_class(slot));
		uint64_t end = offset + (size < PREFETCH_BYTES ? size : PREFETCH_BYTES);

		if (end > reader->size)
			continue;
		likely = offset;
		for (offset &= ~(uint64_t)63; offset < end; offset += 64)
			__builtin_prefetch(reader->memory + offset);
	}
	return likely;
}
