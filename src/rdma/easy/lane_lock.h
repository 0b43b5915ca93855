/*
 * The lock of a lane: the runtime polls under it, all threads post under it.
 *
 * The runtime takes it again as soon as it has given it back, thousands of times while nothing
 * happens, and a spin lock has no queue: others would hardly ever get it. So those who find it
 * taken count themselves, and the runtime steps aside while somebody waits. Where the runtime is
 * alone, it costs one exchange and one store, as the bare spin lock.
 */
#ifndef RDMA_EASY_LANE_LOCK_H
#define RDMA_EASY_LANE_LOCK_H

#include "base/spin_lock.h"

/* How long the runtime steps aside at most: those who wait may not be running at all. */
#define LANE_LOCK_ASIDE 200

struct lane_lock {
	struct spin_lock lock;
	atomic_uint waiting;
};

static inline void lane_lock_init(struct lane_lock *lock)
{
	spin_lock_init(&lock->lock);
	atomic_init(&lock->waiting, 0);
}

/* For all but the runtime's polling. */
static inline void lane_lock_take(struct lane_lock *lock)
{
	if (spin_lock_try(&lock->lock))
		return;
	/* Relaxed: a hint, that orders nothing. */
	atomic_fetch_add_explicit(&lock->waiting, 1, memory_order_relaxed);
	spin_lock_take(&lock->lock);
	atomic_fetch_sub_explicit(&lock->waiting, 1, memory_order_relaxed);
}

/* Does somebody wait for it? Relaxed: a hint. */
static inline bool lane_lock_is_wanted(const struct lane_lock *lock)
{
	return atomic_load_explicit(&lock->waiting, memory_order_relaxed) > 0;
}

/* For who polls again and again. */
static inline void lane_lock_take_politely(struct lane_lock *lock)
{
	for (int i = 0;
	     i < LANE_LOCK_ASIDE && atomic_load_explicit(&lock->waiting, memory_order_relaxed) > 0;
	     i++)
		cpu_relax();
	lane_lock_take(lock);
}

static inline void lane_lock_give(struct lane_lock *lock)
{
	spin_lock_give(&lock->lock);
}

#endif
