/*
 * Store: a key-value table in one piece of memory, that others read while it changes.
 *
 * The caller gives the memory (an arena that peers can map or read by RDMA, but not write) and the
 * threads; the store starts none, knows no network, and allocates nothing after store_create() but
 * its workers. Everything that counts lies in that memory, the index included, and the store never
 * needs more than it was given.
 *
 * Any number of threads work on a store at once. Each opens a worker of its own, and hands it to
 * every call; a worker is used by one thread at a time. Operations on one key are atomic and
 * linearizable, also for those who read one-sidedly (reader.h, probe.h). A writer never waits for
 * one who reads one-sidedly; two operations that change something wait for each other when their
 * keys share a bucket, and for a moment when both need memory that has to be made free. Somebody
 * has to call store_tick() every now and then; without it expired items keep their memory until
 * they are asked for or pushed out.
 *
 *	struct store_worker *worker;
 *	struct store_put put = {.key = "k", .key_length = 1, .value = "v", .value_length = 1};
 *	struct store_info info;
 *
 *	if (store_worker_open(store, &worker) == RMR_OK &&
 *	    store_put(worker, &put, &info) == STORE_OK)
 *		printf("version %" PRIu64 "\n", info.version);
 *
 * Versions come from one sequence of the whole store: none is used twice, and a key's new version
 * is above the one it replaces. Times to live are milliseconds; an item is gone from the moment
 * that its time is over, whether its memory was taken back or not.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <remora/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "store/size_class.h"

struct store;
struct store_worker;
struct item;

#define STORE_MIN_SIZE	  ((size_t)1 << 20)
#define STORE_MAX_WORKERS 256u

enum store_status {
	STORE_OK = 0,
	STORE_NOT_FOUND = -1,
	STORE_EXISTS = -2,	   /* put-if-absent: the key is there; info describes it */
	STORE_CONFLICT = -3,	   /* put-, delete-if-version: another version; info describes it */
	STORE_KEY_LENGTH = -4,	   /* not 1 to STORE_MAX_KEY bytes */
	STORE_VALUE_TOO_LONG = -5, /* can never fit into this store */
	STORE_NO_MEMORY = -6,	 /* full, and nothing may or can be evicted; nothing was changed */
	STORE_NO_ROOM = -7,	 /* the caller's buffer is too small; info tells the length */
	STORE_NOT_A_NUMBER = -8, /* the value cannot be counted with */
	STORE_OUT_OF_RANGE = -9, /* the sum would be no int64 */
	STORE_TOO_MANY_PINS = -10, /* on one item */
	STORE_UNKNOWN = -11,	   /* cell_swap failed: a counter was changed, or not */
};

/* A short text for a message: "not found" ... Never NULL. */
const char *store_status_text(enum store_status status);

enum store_on_full {
	STORE_EVICT,  /* make room by dropping what was not used lately */
	STORE_REJECT, /* STORE_NO_MEMORY; nothing is ever lost */
};

struct store_options {
	/* Aligned to a page of the machine, and all zero. STORE_MIN_SIZE or more; an odd rest is
	 * not used. */
	void *memory;
	size_t size;
	/* Memory for cells of counters, 8 bytes each, aligned to 8 and zero; peers may be given
	 * atomic rights to it. NULL: none. Counters beyond it the store counts by itself. */
	void *cells;
	size_t cells_size;
	/* Nobody outside uses cells: they may be given to another key at once. */
	bool cells_are_private;
	/* How cells are changed that peers change by something that is not atomic with the CPU:
	 * sets the cell to `desired` if it is `expected`, and tells what it was. False: it cannot
	 * be told whether that was done. Called by any worker, with a bucket locked. NULL: by the
	 * CPU's own atomics. */
	bool (*cell_swap)(void *argument, uint64_t cell, int64_t expected, int64_t desired,
			  int64_t *found);
	void *cell_argument;
	enum store_on_full on_full;
	/* Overwrites memory with zeroes when it is freed. */
	bool zero_freed;
	/* Store time in milliseconds, for tests; NULL: that of the host (store_clock_ms). */
	uint64_t (*clock_ms)(void);
};

/* RMR_INVALID: memory too small, too large or not aligned. RMR_NO_MEMORY. */
RMR_MUST_CHECK enum rmr_status store_create(const struct store_options *options,
					    struct store **store);

/* The same on memory that holds the items of an earlier store, of which nothing else is left: finds
 * all complete items, and builds index and free lists anew. RMR_PROTOCOL: it holds no store of this
 * layout and size. Takes about a microsecond an item. */
RMR_MUST_CHECK enum rmr_status store_restore(const struct store_options *options,
					     struct store **store);

/* All workers must be closed. The memory stays the caller's. Legal on NULL. */
void store_destroy(struct store *store);

/* RMR_LIMIT: STORE_MAX_WORKERS are open. */
RMR_MUST_CHECK enum rmr_status store_worker_open(struct store *store, struct store_worker **worker);
void store_worker_close(struct store_worker *worker);

/* ------------------------------------------------------------------------------------------
 * Operations. Outputs are written only where the status says so.
 */

struct store_info {
	uint64_t version;
	uint64_t value_length;
	uint64_t expires_ms; /* store time, 0: never */
	/* Where the item lies, for readers who come back without asking. For a counter `cell` is
	 * its number, the byte offset in `cells` divided by 8; else it is STORE_NO_CELL. */
	uint64_t offset;
	uint64_t cell;
	bool cell_is_open; /* peers may be told the cell: its number is not large */
};

#define STORE_NO_CELL UINT64_MAX

/* Copies the value. info may be NULL. STORE_NO_ROOM: nothing was copied, info is written. A counter
 * reads as decimal text. */
RMR_MUST_CHECK enum store_status store_get(struct store_worker *worker, const void *key,
					   size_t key_length, void *value, size_t room,
					   struct store_info *info);

struct store_get {
	const void *key;
	size_t key_length;
	void *value;
	size_t room;
	enum store_status status; /* out, as of store_get */
	struct store_info info;
};

/* Many at once: their cache misses overlap. Not one atomic operation. */
void store_get_many(struct store_worker *worker, struct store_get *gets, size_t count);

/* All of info, without the value. For exists and ttl. */
RMR_MUST_CHECK enum store_status store_stat(struct store_worker *worker, const void *key,
					    size_t key_length, struct store_info *info);

/* A value in place: bytes that stay as they are, whatever happens to the key, until unpinned. A
 * counter's view is its cell number, not its value. */
struct store_view {
	const void *value;
	size_t length;
	struct store_info info;
	struct item *item;
};

/* STORE_TOO_MANY_PINS: 32767 are held already. Whatever is pinned keeps its memory. */
RMR_MUST_CHECK enum store_status store_pin(struct store_worker *worker, const void *key,
					   size_t key_length, struct store_view *view);
/* By any worker. */
void store_unpin(struct store_worker *worker, struct store_view *view);

enum store_condition {
	STORE_ALWAYS,
	STORE_IF_ABSENT,
	STORE_IF_VERSION, /* the key is there and has this version */
};

struct store_put {
	const void *key;
	size_t key_length;
	const void *value;
	size_t value_length;
	uint64_t ttl_ms; /* 0: for ever */
	enum store_condition condition;
	uint64_t version;  /* for STORE_IF_VERSION */
	bool keeps_expiry; /* of what it replaces; ttl_ms is of no account then */
	/* In a store that rejects: if there is no room for the new value beside the old one, that
	 * goes first, and if the put then fails the key is gone. Only with STORE_ALWAYS. In a
	 * store that evicts this is always so. (With a condition the old one never goes first, and
	 * the answer is STORE_NO_MEMORY.) */
	bool may_lose_old;
};

/* info may be NULL; it describes the new item, on STORE_EXISTS and STORE_CONFLICT the current one.
 * STORE_NOT_FOUND: STORE_IF_VERSION and no such key. */
RMR_MUST_CHECK enum store_status store_put(struct store_worker *worker, const struct store_put *put,
					   struct store_info *info);

/* A put in three steps, for values that arrive piece by piece. Nobody sees the item before the
 * commit. Between begin and end the memory is taken, so drafts must be bounded by their owner.
 * `put` is as for store_put, but for the value, which the caller writes to draft->value itself, or
 * lets store_draft_fill() write. */
struct store_draft {
	void *value;
	size_t value_length;
	/* The store's own. */
	struct item *item;
	uint64_t hash;
	unsigned size_class;
	struct hash_stream *stream; /* of key and value; NULL: the commit does it all */
	size_t hashed;		    /* bytes of the value */
};

RMR_MUST_CHECK enum store_status store_draft_begin(struct store_worker *worker,
						   const struct store_put *put,
						   struct store_draft *draft);
/* Lets store_draft_fill() compute the checksum along the way, while the bytes are in the cache. The
 * stream is the caller's, and used until the draft ends. */
void store_draft_hash_along(struct store_draft *draft, struct hash_stream *stream);
/* Copies a piece of the value to its place, which must lie inside. */
void store_draft_fill(struct store_draft *draft, size_t at, const void *bytes, size_t length);
/* The next piece of the value has been written to its place by others, who are done with it. */
void store_draft_filled(struct store_draft *draft, size_t length);

/* Ends the draft, whatever it answers. ttl, condition and version are taken from put. */
RMR_MUST_CHECK enum store_status store_draft_commit(struct store_worker *worker,
						    const struct store_put *put,
						    struct store_draft *draft,
						    struct store_info *info);
void store_draft_abort(struct store_worker *worker, struct store_draft *draft);

/* version 0: any. STORE_CONFLICT: info, which may be NULL, describes the current item. */
RMR_MUST_CHECK enum store_status store_delete(struct store_worker *worker, const void *key,
					      size_t key_length, uint64_t version,
					      struct store_info *info);

/* A new time to live, 0: for ever. Version and value stay. info may be NULL. */
RMR_MUST_CHECK enum store_status store_expire(struct store_worker *worker, const void *key,
					      size_t key_length, uint64_t ttl_ms,
					      struct store_info *info);

/* Counters: numbers of type int64. A key that is not there counts from 0, and a value that is the
 * decimal text of such a number is one. A number is kept in a cell, or as text; get shows both as
 * text. Counting in a cell leaves the version as it is; whatever changes the form, and counting on
 * text, gives a new one.
 *
 * Peers count in cells by atomics, beside us, under these rules: they add and subtract less than
 * STORE_CELL_STEP, and swap only numbers that are not large. A peer that finds a large number
 * forgets the cell, and asks the next time. A peer that finds that the counter has gone has changed
 * nothing: it forgets the cell, and asks now. */
#define STORE_CELL_STEP	   ((int64_t)1 << 32)
#define STORE_CELL_LARGE   ((int64_t)1 << 61)
#define STORE_CELL_MAX	   ((int64_t)1 << 62)
#define STORE_COUNTER_GONE INT64_MIN

static inline bool store_cell_is_large(int64_t number)
{
	return number > STORE_CELL_LARGE || number < -STORE_CELL_LARGE;
}

/* On both sides: late additions to STORE_COUNTER_GONE may wrap around. */
static inline bool store_cell_is_gone(int64_t number)
{
	return number > STORE_CELL_MAX || number < -STORE_CELL_MAX;
}

/* Adds, and answers the sum. STORE_OUT_OF_RANGE: it is no int64, and nothing was changed. info may
 * be NULL. */
RMR_MUST_CHECK enum store_status store_add(struct store_worker *worker, const void *key,
					   size_t key_length, int64_t delta, int64_t *sum,
					   struct store_info *info);

/* Sets a number to `desired` if it is `expected`; *found becomes what it was. STORE_CONFLICT. */
RMR_MUST_CHECK enum store_status store_swap(struct store_worker *worker, const void *key,
					    size_t key_length, int64_t expected, int64_t desired,
					    int64_t *found);

/* Cells whose keys are gone are not used again while a peer may add to them. The caller knows when
 * none can: it takes a ticket, waits until no peer has an older location, and gives it back. */
uint64_t store_cells_ticket(struct store *store);
void store_cells_release(struct store *store, uint64_t ticket);

/* Of a peer that has locations it will never be known to have lost: no cell that was ever used
 * until now is used again once its counter ends. */
void store_cells_bar(struct store *store);

struct store_cells {
	uint64_t count, used, retired;
	uint64_t lost;	  /* barred and retired, for good */
	bool were_missed; /* since the last look some number would have had a cell, and got none */
};
void store_cells_look(struct store *store, struct store_cells *look);

/* Called for each key, with the bucket locked: it must be short and not call the store. False ends
 * the scan before this key. */
typedef bool (*store_scan_fn)(void *context, const void *key, size_t key_length,
			      const struct store_info *info);

/* Goes on at *cursor, 0 at first, with about `count` keys at most, and leaves the place to go on
 * at; 0 when the end is reached. A key that is there from the first call to the last is seen. The
 * function sees keys in the order of their places, which follow from their hashes; if it ends the
 * scan, the next call begins with the first key of that place, so it has to have room for all keys
 * that share a place: nearly always one, STORE_SCAN_TOGETHER if somebody wants to make trouble. */
void store_scan(struct store_worker *worker, uint64_t *cursor, size_t count, store_scan_fn fn,
		void *context);
#define STORE_SCAN_TOGETHER 448u

/* The same for who has less room: one key will do. Returns true when the function ended the scan
 * between two keys that share a place: then the next call needs the last key that it took, now or
 * earlier, to go on behind it. Otherwise key is NULL. */
bool store_scan_behind(struct store_worker *worker, const void *key, size_t key_length,
		       uint64_t *cursor, size_t count, store_scan_fn fn, void *context);

/* Removes every key that is there when it begins. Others may put at the same time. */
void store_flush(struct store_worker *worker);

/* What a one-sided reader says it used: counts like a get. Wrong claims do nothing. */
void store_touch(struct store_worker *worker, uint64_t offset, uint64_t version);

/* Housekeeping: takes back expired items, by at most about `budget` items looked at. Returns how
 * many it took back. Call it every 10 ms or so. */
size_t store_tick(struct store_worker *worker, size_t budget);

/* ------------------------------------------------------------------------------------------
 * Figures
 */

struct store_class_stats {
	uint64_t item_size; /* 0 for the last, long items */
	uint64_t items;	    /* with drafts, and what is dead but pinned */
	uint64_t pages;
	uint64_t used;	 /* bytes asked for */
	uint64_t wasted; /* bytes given beyond those */
	uint64_t free;	 /* bytes of free places, and ends of spans that hold no item */
	uint64_t evictions;
};

#define STORE_CLASS_STATS (SLAB_CLASS_COUNT + 1)

struct store_stats {
	uint64_t size;	/* all of it */
	uint64_t fixed; /* header, directories, page table, heat */
	uint64_t index; /* buckets */
	uint64_t free;	/* pages that nobody has */
	uint64_t keys;
	uint64_t buckets;
	uint64_t overflow_buckets;
	uint64_t shrinks; /* pages of buckets that were given back, ever */
	uint64_t cells, cells_used, cells_retired, cells_lost;
	uint64_t next_version;
	/* Since the start. */
	uint64_t gets, hits, puts, deletes, expired, evicted, moved, pages_moved;
	uint64_t no_memory;
	struct store_class_stats classes[STORE_CLASS_STATS];
};

/* Exact when nothing else is under way: size = fixed + index + free + the pages of all classes, and
 * the pages of a class = used + wasted + free. */
void store_stats(struct store *store, struct store_stats *stats);

/* Store time: that of the host. */
uint64_t store_clock_ms(const struct store *store);
/* The same by clock_quick_ns(): a millisecond off at most. Not for what decides whether an item is
 * alive, on which all threads have to agree. */
uint64_t store_clock_quick_ms(const struct store *store);

/* Looks at everything: that each key is where it belongs, once, and that all counts are right. Only
 * when nothing else is under way; slow. Writes what is wrong to `why`. */
bool store_is_valid(struct store *store, char *why, size_t why_size);

#endif
