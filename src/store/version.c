/*
 * Versions: which number a new item gets.
 *
 * A version is given out once by a store, and the versions of a key only grow, over replacing,
 * deleting, expiry and eviction. Clients compare versions, and replication orders changes by them.
 *
 * The start. A store begins at the time of day, counted in units of VERSION_UNIT_NS, so a store
 * that begins empty after another one has ended begins above all versions of the other. That holds
 * as long as the other one has used up less than one version per unit, 4 million a second, on
 * average since its start, and the time of day was not set back. A store that gives them out faster
 * runs ahead of the clock, and works; only if it is then restarted without its memory, before the
 * clock has caught up, can versions of that lead be given out again. A restored store goes on above
 * both the clock and everything in its memory (restore.c).
 *
 * Blocks. The sequence is one number in the arena's header. Workers take versions from it in
 * blocks, so that they seldom meet there. A worker drops what is left of a block when it needs a
 * version above that. The next block is twice as large if the last one was used up, and half as
 * large if it was dropped. So for each block of 2 s versions that is dropped there is one of s
 * versions that was used up to get there: at most two versions are lost for each one that is given
 * out, however many workers change the same key in turn.
 *
 * Why a key's versions grow. A change of a key happens while its bucket is locked, so for one key
 * all changes are in one order, and each sees what the earlier ones stored.
 *
 *	A replacement gets a version above that of the item it replaces.
 *
 *	A key that is not there: its last item of version v, if there ever was one, left the index
 *	by life_end(), which stores in `removed`, before it unlocks, a number that is not below v.
 *	The number is that of the key's stripe: the last SEGMENT_BITS bits of its hash. Those are
 *	also the last bits of the bucket's number, at any depth, for there are never fewer than
 *	SEGMENT_BUCKETS buckets; so a key keeps its stripe when buckets are split. The numbers of
 *	a stripe only grow. The new item gets a version above the number.
 *
 *	A new block is above both, if what is left of the worker's is not: both versions came from
 *	blocks that were taken before, and what took them happened before the lock was taken now.
 *
 * A stripe instead of each key: a number of a stripe may be too high for a key. That costs the rest
 * of a block at most.
 */
#include <time.h>

#include "store/internal.h"

#define VERSION_UNIT_NS 250
/* 2020-01-01, in seconds since 1970. 53 bits of units last until 2091. */
#define VERSION_EPOCH_S 1577836800

/* The version that the clock shows, at least 1. A clock outside of the years above is wrong. */
static uint64_t clock_version(void)
{
	struct timespec day;
	uint64_t seconds;

	clock_gettime(CLOCK_REALTIME, &day);
	seconds = (uint64_t)day.tv_sec - VERSION_EPOCH_S;
	if (seconds >= ITEM_MAX_VERSION / (1000000000 / VERSION_UNIT_NS))
		return 1;
	return seconds * (1000000000 / VERSION_UNIT_NS) + (uint64_t)day.tv_nsec / VERSION_UNIT_NS +
	       1;
}

void version_start(struct store *store)
{
	uint64_t next = atomic_load(&store->header->next_version), clock = clock_version();

	if (next >= ITEM_MAX_VERSION || next < clock)
		atomic_store(&store->header->next_version, clock);
}

void version_start_above(struct store *store, uint64_t version)
{
	if (atomic_load(&store->header->next_version) <= version)
		atomic_store(&store->header->next_version, version + 1);
}

static __attribute__((noinline)) void take_block(struct store_worker *worker)
{
	if (worker->next_version != worker->version_end)
		worker->version_block /= 2;
	else if (worker->version_block < VERSION_BLOCK)
		worker->version_block *= 2;
	if (worker->version_block == 0)
		worker->version_block = 1;
	/* Relaxed: which versions were given out before is ordered by the bucket's lock. */
	worker->next_version = atomic_fetch_add_explicit(
		&worker->store->header->next_version, worker->version_block, memory_order_relaxed);
	worker->version_end = worker->next_version + worker->version_block;
}

uint64_t version_next(struct store_worker *worker, uint64_t above)
{
	if (worker->next_version == worker->version_end || worker->next_version <= above)
		take_block(worker);
	return worker->next_version++;
}

static _Atomic uint64_t *stripe_of(struct store *store, const struct index_lock *lock)
{
	return &store->removed[index_place_in_segment(&store->index, lock)];
}

uint64_t version_removed(struct store *store, const struct index_lock *lock)
{
	/* Relaxed: what the bucket's last holder stored is seen because of the lock. */
	return atomic_load_explicit(stripe_of(store, lock), memory_order_relaxed);
}

void version_note_removed(struct store *store, const struct index_lock *lock, uint64_t version)
{
	_Atomic uint64_t *removed = stripe_of(store, lock);
	uint64_t now = atomic_load_explicit(removed, memory_order_relaxed);

	/* Other buckets of the stripe are not locked, hence the exchange. Relaxed: unlocking the
	 * bucket is a release. */
	while (now < version &&
	       !atomic_compare_exchange_weak_explicit(removed, &now, version, memory_order_relaxed,
						      memory_order_relaxed))
		;
}
