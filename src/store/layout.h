/*
 * Layout: the bytes of the arena that a reader relies on.
 *
 * The store lives in one piece of memory, the arena, which other processes map read-only or read by
 * RDMA at any moment without asking. This header is what they and the store agree on; nothing here
 * knows who runs it. All numbers are little-endian; offsets count bytes from the arena's first.
 *
 *	0 +-------------------------+
 *	  | struct store_header     |  where everything is; how many buckets there are
 *	  +-------------------------+  directory
 *	  | directory               |  u32 a segment of buckets: the page it lies in, 0: none yet
 *	  +-------------------------+  overflow_directory
 *	  | overflow directory      |  the same for segments of overflow buckets
 *	  +-------------------------+  page_table
 *	  | struct page_info [...]  |  what each page is used for; the store's own, and for rebuild
 *	  +-------------------------+  heat
 *	  | two bits for each 128   |  how often what begins there was used lately; the store's own
 *	  +-------------------------+  first_page * 64 KiB
 *	  | pages                   |  spans of items, long items, and from the end of buckets
 *	  +-------------------------+  size
 *
 * A bucket is one cache line: a header and seven slots. A slot names an item:
 *
 *	 63     48 47   40 39                0	  63          35 34        7 6   1 0
 *	+---------+-------+-------------------+	 +--------------+-----------+-----+------+
 *	|   tag   | class | item's offset / 8 |	 |   sequence   | overflow  |depth| lock |
 *	+---------+-------+-------------------+	 +--------------+-----------+-----+------+
 *		      a slot				     a bucket's header
 *
 * The tag is the upper end of the key's hash, the bucket's number comes from the lower end. The
 * class bounds the item's length (size_class.h), so that a remote reader knows how much to fetch.
 * An empty slot is 0. What does not fit goes on in an overflow bucket, whose number is in the
 * header (0: none); only the first bucket of such a chain has lock, depth and sequence, for all of
 * it. The sequence grows whenever a writer gives the lock back.
 *
 * The index grows by linear hashing. A bucket of depth d holds the keys whose hash ends in the same
 * d bits as the bucket's number. Splitting it moves the keys with bit d set to bucket number + 2^d,
 * and both have depth d + 1 then. Buckets are split in the order of their numbers, one after
 * another, so that at any time all depths are d or d + 1; a depth of 0 is that of a bucket which
 * is not there. A reader may use any old count of buckets: the depth that it finds tells it when it
 * has to look further (probe.h). The index shrinks in the opposite order: the last bucket's keys go
 * back to the bucket that it was split from. A page whose buckets are all gone becomes something
 * else; `shrinks` in the header tells readers.
 *
 * An item:
 *
 *	 0          8          16                    32            32 + key, rounded up
 *	+----------+----------+----------+----------+-------------+-----------------+
 *	| version  | checksum | expiry   | lengths  | key         | value           |
 *	+----------+----------+----------+----------+-------------+-----------------+
 *
 * A version of 0 means that there is no item: never was, not complete yet, or dead. The checksum is
 * of everything else, its place included (item.h). Key and value never change while the version
 * is not 0; expiry and checksum do when somebody changes the time to live. An item whose version
 * has the bit ITEM_PENDING is not to be believed yet: it is replacing another one that is still
 * alive, or is just being changed. The checksum is that of the version without the bit.
 */
#ifndef STORE_LAYOUT_H
#define STORE_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the layout is little-endian, and no big-endian machine was ever tried"
#endif

#define STORE_MAGIC	     0x31305f61726f6d65u /* "emora_01" */
#define STORE_LAYOUT_VERSION 4u

#define STORE_PAGE_BITS 16
#define STORE_PAGE_SIZE ((size_t)1 << STORE_PAGE_BITS)

/* 40 bits in units of 8. */
#define STORE_MAX_SIZE ((uint64_t)8 << 40)
#define STORE_MAX_KEY  4096u

struct store_header {
	/* Constant from before anybody may look. */
	uint64_t magic;
	uint32_t layout_version;
	uint32_t page_size;
	uint64_t size;		 /* of the arena */
	uint64_t instance;	 /* random: another store, or the same one rebuilt, has another */
	uint64_t hash_seed;	 /* random as well */
	int64_t clock_offset_ms; /* store time is CLOCK_MONOTONIC in ms plus this */
	uint64_t directory;
	uint64_t overflow_directory;
	uint64_t page_table;
	uint64_t heat;
	uint32_t first_page;
	uint32_t page_count; /* including those before first_page */
	/* clock_namespace() of the store's process: in another one clock_offset_ms is wrong. 0: not
	 * known. */
	uint64_t time_namespace;
	uint64_t reserved[4];
	/* Changes while everybody reads. */
	_Alignas(64) _Atomic uint64_t bucket_count;
	/* As many bits as the deepest buckets have when there are so many. */
	_Atomic uint64_t bucket_mask;
	/* Counts items that were moved to another place with their version (reader.c). */
	_Atomic uint64_t moves;
	/* Counts pages of buckets that were given back to be used for something else (reader.c). */
	_Atomic uint64_t shrinks;
	/* All versions below this one may have been given out. */
	_Alignas(64) _Atomic uint64_t next_version;
	/* Store time of the last store_tick(). A process with the arena mapped sees by its changing
	 * that the store's process lives and runs. 0: there was none yet. */
	_Atomic uint64_t tick_ms;
};

static_assert(offsetof(struct store_header, directory) == 48, "layout");
static_assert(offsetof(struct store_header, first_page) == 80, "layout");
static_assert(offsetof(struct store_header, bucket_count) == 128, "layout");
static_assert(offsetof(struct store_header, bucket_mask) == 136, "layout");
static_assert(offsetof(struct store_header, moves) == 144, "layout");
static_assert(offsetof(struct store_header, shrinks) == 152, "layout");
static_assert(offsetof(struct store_header, tick_ms) == 200, "layout");
static_assert(sizeof(struct store_header) == 256, "layout");

/* ------------------------------------------------------------------------------------------
 * Buckets
 */

#define BUCKET_SLOTS	   7
#define BUCKET_SIZE	   64
#define SEGMENT_BITS	   10 /* buckets of a segment, which is a page */
#define SEGMENT_BUCKETS	   ((uint64_t)1 << SEGMENT_BITS)
#define MAX_DEPTH	   40u
#define MAX_OVERFLOW_BITS  28
#define MAX_OVERFLOW_COUNT ((uint64_t)1 << MAX_OVERFLOW_BITS)

struct bucket {
	_Alignas(64) _Atomic uint64_t header;
	_Atomic uint64_t slots[BUCKET_SLOTS];
};

static_assert(sizeof(struct bucket) == BUCKET_SIZE, "a bucket is a cache line");
static_assert(SEGMENT_BUCKETS * BUCKET_SIZE == STORE_PAGE_SIZE, "a segment is a page");

#define BUCKET_LOCKED ((uint64_t)1)

static inline bool bucket_is_locked(uint64_t header)
{
	return header & BUCKET_LOCKED;
}

static inline unsigned bucket_depth(uint64_t header)
{
	return header >> 1 & 63;
}

static inline uint64_t bucket_overflow(uint64_t header)
{
	return header >> 7 & (MAX_OVERFLOW_COUNT - 1);
}

static inline uint32_t bucket_sequence(uint64_t header)
{
	return (uint32_t)(header >> 35);
}

static inline uint64_t bucket_header(uint32_t sequence, uint64_t overflow, unsigned depth)
{
	return (uint64_t)sequence << 35 | overflow << 7 | (uint64_t)depth << 1;
}

static inline uint64_t slot_make(uint16_t tag, unsigned size_class, uint64_t offset)
{
	return (uint64_t)tag << 48 | (uint64_t)size_class << 40 | offset >> 3;
}

static inline uint16_t slot_tag(uint64_t slot)
{
	return slot >> 48;
}

static inline unsigned slot_class(uint64_t slot)
{
	return slot >> 40 & 255;
}

static inline uint64_t slot_offset(uint64_t slot)
{
	return slot << 24 >> 21;
}

static inline uint16_t hash_tag(uint64_t hash)
{
	return hash >> 48;
}

/* The last `bits` bits of the hash. */
static inline uint64_t hash_bits(uint64_t hash, unsigned bits)
{
	return hash & (((uint64_t)1 << bits) - 1);
}

/* Whether there can be so many buckets. */
static inline bool is_bucket_count(uint64_t count)
{
	return count - 1 < (uint64_t)1 << MAX_DEPTH;
}

/* How many bits of a hash count when there are so many buckets, at least 1: all buckets have this
 * depth or one more. */
static inline unsigned depth_of_count(uint64_t bucket_count)
{
	/* The highest bit; for 63 - x the compiler would not see that it is one instruction. */
	return 63 ^ (unsigned)__builtin_clzll(bucket_count);
}

/* The bits of a hash by which the deepest of so many buckets are found: one more than above. */
static inline uint64_t mask_of_count(uint64_t bucket_count)
{
	return ((uint64_t)2 << depth_of_count(bucket_count)) - 1;
}

/* ------------------------------------------------------------------------------------------
 * Items
 */

enum item_kind {
	ITEM_VALUE = 0,
	ITEM_COUNTER = 1, /* the value is the number of a cell, in 8 bytes */
};

struct item {
	_Atomic uint64_t version;
	_Atomic uint64_t checksum;
	/* Bits 0 to 47: milliseconds of store time, 0: never. The rest is the store's own (item.h),
	 * and not in the checksum. */
	_Atomic uint64_t expiry;
	/* Bits 0 to 39: length of the value; 40 to 55: of the key; 56 to 63: kind. */
	_Atomic uint64_t lengths;
	uint8_t key[];
};

static_assert(sizeof(struct item) == 32, "layout");

/* Versions are below this (version.c): 53 bits, which a double holds, too, and which leave room for
 * the number of a node below them. */
#define ITEM_MAX_VERSION ((uint64_t)1 << 53)
#define ITEM_PENDING	 ((uint64_t)1 << 63) /* of the version */
#define ITEM_EXPIRY_MASK (((uint64_t)1 << 48) - 1)
#define ITEM_MAX_VALUE	 (((uint64_t)1 << 40) - 1)
#define ITEM_ALIGN	 8u
#define ITEM_WIDE_ALIGN	 64u /* of values of at least ITEM_WIDE bytes */
#define ITEM_WIDE	 4096u

static inline uint64_t item_value_length(uint64_t lengths)
{
	return lengths & ITEM_MAX_VALUE;
}

static inline uint64_t item_key_length(uint64_t lengths)
{
	return lengths >> 40 & 0xffff;
}

static inline unsigned item_kind(uint64_t lengths)
{
	return lengths >> 56;
}

static inline uint64_t item_lengths(uint64_t key_length, uint64_t value_length, unsigned kind)
{
	return value_length | key_length << 40 | (uint64_t)kind << 56;
}

/* The length of a plain value whose key has this length; of any other item more than
 * ITEM_MAX_VALUE. */
static inline uint64_t item_plain_length(uint64_t lengths, uint64_t key_length)
{
	return lengths - item_lengths(key_length, 0, ITEM_VALUE);
}

/* Where the value begins, counted from the item. Long values get a cache line's alignment, for the
 * copy, and for those who use them in place. */
static inline uint64_t item_value_offset(uint64_t key_length, uint64_t value_length)
{
	uint64_t align = value_length >= ITEM_WIDE ? ITEM_WIDE_ALIGN : ITEM_ALIGN;

	return (sizeof(struct item) + key_length + align - 1) & ~(align - 1);
}

/* From the item's first byte to its value's last. */
static inline uint64_t item_size(uint64_t key_length, uint64_t value_length)
{
	return item_value_offset(key_length, value_length) + value_length;
}

static inline uint64_t item_size_of(uint64_t lengths)
{
	return item_size(item_key_length(lengths), item_value_length(lengths));
}

#endif
