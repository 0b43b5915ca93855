/*
 * Waiter: one thread waits once for another one.
 *
 * It lies on the stack of who waits; whoever completes it touches it for the last time by one
 * atomic exchange. A futex, so that nothing has to be made or destroyed.
 */
#ifndef RDMA_EASY_WAITER_H
#define RDMA_EASY_WAITER_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WAITER_WAITING, WAITER_DONE, WAITER_ASLEEP };

struct waiter {
	_Atomic uint32_t state;
};

static inline void waiter_init(struct waiter *waiter)
{
	atomic_init(&waiter->state, WAITER_WAITING);
}

/* Acquire: what the completing thread did before is seen. */
static inline bool waiter_is_done(struct waiter *waiter)
{
	return atomic_load_explicit(&waiter->state, memory_order_acquire) == WAITER_DONE;
}

static inline void waiter_sleep(struct waiter *waiter)
{
	uint32_t expected = WAITER_WAITING;

	/* Acquire as above, should it be done by now. */
	atomic_compare_exchange_strong_explicit(&waiter->state, &expected, WAITER_ASLEEP,
						memory_order_acquire, memory_order_acquire);
	while (!waiter_is_done(waiter))
		syscall(SYS_futex, &waiter->state, FUTEX_WAIT_PRIVATE, WAITER_ASLEEP, NULL, NULL,
			0);
}

/* Legal in signal handlers. Should the waiter's memory be in other use by the time of the wake-up,
 * somebody there wakes in vain, which every user of futexes expects. */
static inline void waiter_complete(struct waiter *waiter)
{
	/* Release: see waiter_is_done. */
	if (atomic_exchange_explicit(&waiter->state, WAITER_DONE, memory_order_acq_rel) ==
	    WAITER_ASLEEP)
		syscall(SYS_futex, &waiter->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#endif
