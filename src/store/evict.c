/*
 * Eviction: which item has to go.
 *
 * CLOCK, for each class by itself: a hand goes round over the places of the class. An item that
 * was used since has a heat above 0; the hand takes one away and passes on. One without heat is
 * evicted, and its place is what a new item gets, so that new items are visited last. Heat grows
 * by one with each get, and each use that a one-sided reader reports, up to HEAT_MAX, so what is
 * used often survives a few laps without being used. A new item has none: to stay it must be used
 * once within a lap. The hand reads nothing but heat until it finds a 0.
 */
#include "base/clock.h"
#include "store/internal.h"

/* Places that the hand passes in one call before it takes the next best item, hot or not: what a
 * put may cost is bounded. */
#define MAX_VISITS	2048
#define TOO_MANY_VISITS (16 * MAX_VISITS)
#define AT_ONCE		16u

bool evict_at(struct store_worker *worker, uint64_t offset)
{
	struct store *store = worker->store;
	struct index_lock lock;
	struct index_slot slot;
	unsigned class;
	bool expired;

	if (!life_lock_at(worker, offset, &lock, &slot))
		return false;
	if (item_pins(slot_item(store, &slot))) {
		index_unlock(&lock);
		return false;
	}
	expired = life_is_expired(store, slot_item(store, &slot));
	class = slab_class_of(item_size_of(item_get_lengths(slot_item(store, &slot))));
	life_end(worker, &lock, &slot);
	if (expired) {
		STAT_ADD(worker->stats.expired, 1);
	} else {
		STAT_ADD(worker->stats.evicted, 1);
		atomic_fetch_add_explicit(&store->paces[class].evictions, 1, memory_order_relaxed);
	}
	return true;
}

void evict_finish_lap(struct class_pace *pace)
{
	uint64_t now = clock_now_ns(), began = pace->lap_began_ns;

	pace->last_lap_ns = began < now ? now - began : 0;
	pace->lap_began_ns = now;
}

/* How many to evict at once: a quarter of what a worker keeps, and one at least. */
static unsigned batch_of(const struct store *store, unsigned slab_class)
{
	unsigned batch = store->slab.classes[slab_class].cache_places / 4;

	return batch ? batch : 1;
}

bool evict_some(struct store_worker *worker, unsigned slab_class)
{
	struct store *store = worker->store;
	struct class_pace *pace = &store->paces[slab_class];
	unsigned wanted = batch_of(store, slab_class), evicted = 0, visits = 0, limit = 0;
	uint64_t offsets[AT_ONCE];
	bool lapped;

	spin_lock_take(&pace->evicting);
	/* Twice round, or for long, and nothing could be evicted: all is pinned, or not an item.
	 * The next call goes on from here. */
	while (evicted < wanted && limit < 2 && visits < TOO_MANY_VISITS) {
		/* Not more than are wanted, for all of them may be cold. */
		unsigned missing = wanted - evicted;
		unsigned count = slab_hand_next(&store->slab, slab_class, offsets,
						missing < AT_ONCE ? missing : AT_ONCE, &lapped);

		if (count == 0)
			break;
		for (unsigned i = 0; i < count; i++) {
			if (heat_down(store, offsets[i]) || visits >= MAX_VISITS)
				evicted += evict_at(worker, offsets[i]);
			visits++;
		}
		if (lapped) {
			evict_finish_lap(pace);
			limit += visits >= MAX_VISITS;
		}
	}
	spin_lock_give(&pace->evicting);
	return evicted > 0;
}
