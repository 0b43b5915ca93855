/* See fork.h. */
#include "base/fork.h"

#include <stdatomic.h>
#include <stddef.h>

unsigned fork_generation_now = 1;

/* NULL: not yet, for constructors of a library that is loaded late run beside other threads. */
static _Atomic(pthread_mutex_t *) guarded[FORK_LOCKS];
static pthread_mutex_t *locked[FORK_LOCKS]; /* between before() and after() */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* In the order in which threads take them: else a thread that holds one, and waits for another that
 * is held here, would never give it back. */
static void before(void)
{
	for (unsigned i = 0; i < FORK_LOCKS; i++) {
		pthread_mutex_t *lock = atomic_load_explicit(&guarded[i], memory_order_acquire);

		if (lock)
			pthread_mutex_lock(lock);
		locked[i] = lock;
	}
}

static void after(void)
{
	for (unsigned i = FORK_LOCKS; i-- > 0;) {
		if (locked[i])
			pthread_mutex_unlock(locked[i]);
	}
}

static void after_in_child(void)
{
	fork_generation_now++;
	after();
}

static void begin(void)
{
	pthread_atfork(before, after, after_in_child);
}

unsigned fork_generation(void)
{
	pthread_once(&once, begin);
	return fork_generation_now;
}

void fork_guard(enum fork_lock place, pthread_mutex_t *lock)
{
	(void)fork_generation();
	/* Release: code that sees the lock sees it initialized. */
	atomic_store_explicit(&guarded[place], lock, memory_order_release);
}
