/*
 * Spin lock: for what is held shortly and is almost never contended.
 *
 * Taking it is one atomic exchange, and giving it back one store; a mutex needs an atomic
 * instruction for each, and two calls, which one who polls all the time notices. Whoever finds it
 * taken spins a little and then yields the processor, so that a holder on the same one can go on.
 * No fairness, no recursion. Pointless where the holder may sleep.
 */
#ifndef BASE_SPIN_LOCK_H
#define BASE_SPIN_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"

#define SPIN_LOCK_TRIES 100

struct spin_lock {
	atomic_bool taken;
};

static inline void spin_lock_init(struct spin_lock *lock)
{
	atomic_init(&lock->taken, false);
}

/* Acquire: what the last holder did is seen. */
static inline bool spin_lock_try(struct spin_lock *lock)
{
	return !atomic_exchange_explicit(&lock->taken, true, memory_order_acquire);
}

static inline void spin_lock_take(struct spin_lock *lock)
{
	for (int tries = 1; !spin_lock_try(lock); tries++) {
		/* Looking is cheaper than trying, which takes the cache line away. */
		while (atomic_load_explicit(&lock->taken, memory_order_relaxed)) {
			cpu_relax();
			if (tries++ % SPIN_LOCK_TRIES == 0)
				sched_yield();
		}
	}
}

/* Release: what we did is seen by the next holder. */
static inline void spin_lock_give(struct spin_lock *lock)
{
	atomic_store_explicit(&lock->taken, false, memory_order_release);
}

#endif
