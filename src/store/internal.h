/*
 * What the files of the store share. Who does what:
 *
 *	layout.h	the bytes that readers rely on
 *	size_class.h	classes of sizes			pure
 *	probe		how to find a key in buckets		pure
 *	reader		getting values without a lock		for clients, too
 *	reader_glance.h	its simplest case, inline
 *	item		writing, checking and ending items
 *	pages		runs of pages
 *	span, slab	places for items; slab_drain: emptying spans
 *	index		buckets as writers see them; index_grow: splitting them; index_shrink
 *	life		an item's birth and end, with all that goes with it
 *	version		the numbers that items get
 *	cells		words that peers count in
 *	get, put, expire, counter, scan		operations
 *	evict, room	making room: one item of a class; whole spans and runs
 *	store		create, destroy, workers; restore; stats, and store_is_valid
 *	why.h		the reason why something is not valid
 *
 * Locks, in the order in which they are taken: a class's eviction; reclaim; growing; a bucket; a
 * worker's cache; a class; overflow buckets; pages. The cells' lock is taken within a bucket's,
 * and alone.
 */
#ifndef STORE_INTERNAL_H
#define STORE_INTERNAL_H

#include "base/spin_lock.h"
#include "store/index.h"
#include "store/item.h"
#include "store/layout.h"
#include "store/pages.h"
#include "store/reader.h"
#include "store/slab.h"
#include "store/store.h"

/* Versions that a worker takes at once, at most. A power of two. */
#define VERSION_BLOCK 64u
/* A worker tells the store of its keys when they have changed by so many. */
#define KEYS_BLOCK 16

/* A heat is a number of two bits, four to a byte. There is one for each HEAT_UNIT bytes of the
 * arena: for one item, or two small neighbours. */
#define HEAT_UNIT     128u
#define HEAT_MAX      3u
#define HEAT_BITS     2u
#define HEAT_PER_BYTE 4u

/* What a worker counts. One writer each, read by anyone. */
struct worker_stats {
	_Atomic uint64_t hits, misses, puts, deletes, expired, evicted, moved, pages_moved,
		no_memory;
};

struct store_worker {
	struct store *store;
	unsigned number;
	/* The versions that it has taken and not given out yet, and how many it took. */
	uint64_t next_version, version_end, version_block;
	_Atomic int64_t keys; /* added less removed, that the store was not told of */
	struct index_guard guard;
	struct worker_stats stats;
	struct slab_worker slab;
};

/* How the hand of a class goes round; under the store's `reclaim` lock or relaxed. */
struct class_pace {
	_Atomic uint64_t lap_began_ns;
	_Atomic uint64_t last_lap_ns;
	_Atomic uint64_t evictions;
	_Atomic uint32_t calls; /* for room, since pages of others were looked at */
	struct spin_lock evicting;
};

struct cells {
	_Atomic int64_t *cells;
	uint64_t count;
	bool are_private;
	bool (*swap)(void *argument, uint64_t cell, int64_t expected, int64_t desired,
		     int64_t *found); /* NULL: by the CPU */
	void *argument;
	struct spin_lock lock;
	uint64_t next;	 /* the lowest never used */
	uint32_t *links; /* of each cell that is free or retired: the next one in its list */
	uint32_t free;	 /* the first one */
	uint64_t free_count;
	/* Ended and not yet released, oldest first. */
	uint32_t retired_first, retired_last;
	uint64_t retired_begin, retired_end; /* how many were released, and retired, ever */
	uint64_t barred;		     /* cells below this one are not used again */
	uint64_t lost;			     /* how many of those have been released */
	bool were_missed;
};

struct store {
	/* Constant. */
	uint8_t *memory;
	struct store_header *header;
	_Atomic uint8_t *heat;
	struct store_options options;
	struct reader reader;
	uint64_t max_item; /* the longest that can ever fit */

	_Alignas(64) _Atomic int64_t keys; /* but for what workers did not tell yet */
	/* For each place in a segment of buckets: the highest version that left one (version.c). */
	_Alignas(64) _Atomic uint64_t removed[SEGMENT_BUCKETS];
	struct page_pool pool;
	struct slab slab;
	struct index index;
	struct cells cells;

	struct spin_lock reclaim; /* one thread at a time empties spans */
	struct class_pace paces[SLAB_CLASSES];
	_Atomic uint32_t sweep_page; /* where store_tick() goes on */
	/* Some item may expire that the sweep has not seen; and whether this pass saw one. */
	_Atomic bool has_expiry;
	_Atomic bool pass_has_expiry;
	_Atomic int32_t index_pause; /* calls until making room for the index is tried again */

	struct spin_lock workers_lock;
	unsigned worker_count; /* highest number in use, plus 1 */
	struct store_worker *workers[STORE_MAX_WORKERS];
	struct slab_worker *slabs[STORE_MAX_WORKERS];
	/* What closed workers counted. */
	struct worker_stats past;
	struct slab_worker *past_slab;
};

/* Of a counter with one writer. */
#define STAT_ADD(counter, n)                                                                       \
	atomic_store_explicit(&(counter),                                                          \
			      atomic_load_explicit(&(counter), memory_order_relaxed) + (n),        \
			      memory_order_relaxed)

static inline uint64_t store_hash(const struct store *store, const void *key, size_t key_length)
{
	return probe_hash(key, key_length, store->header->hash_seed);
}

static inline struct item *item_at(const struct store *store, uint64_t offset)
{
	return (struct item *)(store->memory + offset);
}

static inline uint64_t offset_of(const struct store *store, const struct item *item)
{
	return (uint64_t)((const uint8_t *)item - store->memory);
}

/* How many bytes of heat so much memory has. */
static inline uint64_t heat_size(uint64_t size)
{
	return size / HEAT_UNIT / HEAT_PER_BYTE;
}

static inline _Atomic uint8_t *heat_byte(const struct store *store, uint64_t offset)
{
	return &store->heat[offset / HEAT_UNIT / HEAT_PER_BYTE];
}

static inline unsigned heat_shift(uint64_t offset)
{
	return (unsigned)(offset / HEAT_UNIT * HEAT_BITS) % (HEAT_PER_BYTE * HEAT_BITS);
}

static inline unsigned heat_get(const struct store *store, uint64_t offset)
{
	return atomic_load_explicit(heat_byte(store, offset), memory_order_relaxed) >>
		       heat_shift(offset) &
	       HEAT_MAX;
}

/* Who changes a byte does not wait for others: one of two changes at the same moment may be lost,
 * be it of neighbours. It is a guess of what will be used, not an account. */
static inline void heat_set(const struct store *store, uint64_t offset, unsigned heat)
{
	_Atomic uint8_t *byte = heat_byte(store, offset);
	unsigned now = atomic_load_explicit(byte, memory_order_relaxed);
	unsigned shift = heat_shift(offset);

	atomic_store_explicit(byte, (uint8_t)((now & ~(HEAT_MAX << shift)) | heat << shift),
			      memory_order_relaxed);
}

/* Counts a use. */
static inline void heat_up(const struct store *store, uint64_t offset)
{
	_Atomic uint8_t nowhere, *byte = heat_byte(store, offset);
	unsigned now = atomic_load_explicit(byte, memory_order_relaxed);
	unsigned shift = heat_shift(offset);

	/* What is as hot as can be is not written to: its cache line may be in use elsewhere. And
	 * not by a branch, which could not be predicted: the processor would find out only when the
	 * byte comes. Hence a store in any case, for which the compiler selects the address. */
	byte = ~now >> shift & HEAT_MAX ? byte : &nowhere;
	__asm__("" : "+r"(byte));
	atomic_store_explicit(byte, (uint8_t)(now + (1u << shift)), memory_order_relaxed);
}

/* Takes one away; true if there was none. */
static inline bool heat_down(const struct store *store, uint64_t offset)
{
	unsigned now = heat_get(store, offset);

	if (now)
		heat_set(store, offset, now - 1);
	return now == 0;
}

/* version.c */

/* Lets a new or restored store begin at the time of day, or where its memory says if that is above;
 * and above a version that was found in its memory. */
void version_start(struct store *store);
void version_start_above(struct store *store, uint64_t version);

/* A version above this one. */
uint64_t version_next(struct store_worker *worker, uint64_t above);

/* No item that ever left this locked bucket, or one that it was split from, had a version above
 * this. */
uint64_t version_removed(struct store *store, const struct index_lock *lock);

/* An item with this version leaves the locked bucket for good. */
void version_note_removed(struct store *store, const struct index_lock *lock, uint64_t version);

/* store.c */
void worker_count_key(struct store_worker *worker, int change);
/* For index_give_retired(); the context is the store. */
bool workers_were_seen_outside(void *context);

/* life.c */

/* The item of a locked bucket's slot. */
static inline struct item *slot_item(const struct store *store, const struct index_slot *slot)
{
	return item_at(store, slot_offset(slot->slot));
}

void life_describe(const struct store *store, const struct item *item, struct store_info *info);
bool life_is_expired(const struct store *store, const struct item *item);

/* The store time when a time to live ends that begins now; 0: never. */
uint64_t life_expiry(const struct store *store, uint64_t ttl_ms);

/* Finds the key and leaves its bucket locked. An expired item is ended, and not found. */
bool life_lock_key(struct store_worker *worker, uint64_t hash, const void *key, size_t key_length,
		   struct index_lock *lock, struct index_slot *slot);

/* Ends the item, whose bucket is locked, while its slot still is there. Returns whether its memory
 * is to be given back: not if it is pinned, then the last view does it. */
bool life_kill(struct store_worker *worker, struct item *item);

/* After the bucket was unlocked. `size` is that of the item, read before it was killed. */
void life_free(struct store_worker *worker, uint64_t offset, uint64_t size);

/* Kills, takes the slot away, unlocks, gives the memory back. */
void life_end(struct store_worker *worker, struct index_lock *lock, const struct index_slot *slot);

/* Locks the bucket of the item at this offset. The offset is of a place, in which there may be
 * anything. False: no item is there, and nothing is locked. */
bool life_lock_at(struct store_worker *worker, uint64_t offset, struct index_lock *lock,
		  struct index_slot *slot);

/* Tells the item's span that something in it expires then. After the item was published. */
void life_note_expiry(struct store *store, uint64_t offset, uint64_t expires_ms);

/* Moves the item at this offset to another place of its class, if there is a free one. Not one
 * beyond SLAB_MAX_SIZE: those who read from afar rely on it that these stay (client/get.c). */
bool life_move(struct store_worker *worker, uint64_t offset);

/* room.c */

/* Memory for an item, 0: none to be had. May evict; no bucket is locked. */
uint64_t room_take(struct store_worker *worker, uint64_t size);

/* A page for the index, made free if need be. Not needed: only if that is easy now. */
bool room_for_index(struct store_worker *worker, bool is_needed);

/* evict.c */

/* Evicts something of this class, so that it has a free place. False: there is nothing. */
bool evict_some(struct store_worker *worker, unsigned slab_class);

/* The hand of the class has come round. */
void evict_finish_lap(struct class_pace *pace);

/* Ends the item at this offset unless it is pinned. Expired ones are counted as such. */
bool evict_at(struct store_worker *worker, uint64_t offset);

/* put.c */

/* Replaces `old`, whose bucket is locked, by a draft that is published and pending. Unlocks. */
void put_replace(struct store_worker *worker, const struct store_draft *draft,
		 struct index_lock *lock, const struct index_slot *old);

/* cells.c */
enum rmr_status cells_init(struct cells *cells, const struct store_options *options);
void cells_fini(struct cells *cells);
/* The cell of a counter. */
uint64_t cell_of(const struct item *item);
int64_t cells_read(const struct store *store, const struct item *item);
/* STORE_NO_CELL: none is free. */
uint64_t cells_take(struct cells *cells);
/* Of a cell that no peer ever saw. */
void cells_give(struct cells *cells, uint64_t cell);
/* *found is `expected`, or what was there instead. False: it cannot be told what happened. */
bool cells_swap(struct cells *cells, uint64_t cell, int64_t expected, int64_t desired,
		int64_t *found);
void cells_count(struct cells *cells, struct store_cells *look);
/* Ends the cell of a counter that ends. */
void cells_retire(struct store *store, const struct item *item);
/* For restore: a counter was found. False: no such cell, or its counter was ending. */
bool cells_adopt(struct store *store, const struct item *item);
/* An adopted one does not stay. */
void cells_disown(struct store *store, const struct item *item);
void cells_adopted(struct store *store);

/* counter.c */
size_t cells_format(const struct store *store, const struct item *item, char text[24]);

#endif
