/*
 * What a forked child may do with what its parent opened: nothing but let go of it.
 *
 * Sockets, epoll sets and shared memory are one and the same in both processes. A child that said
 * goodbye on them, took descriptors out of an epoll set or wrote to shared memory would do it to
 * its parent. So objects remember the generation of processes that they were made in; in another
 * one calls on them fail, and closing them closes the child's own descriptors and maps alone.
 *
 * The number is changed in the child alone, by the one thread that is there; reading it costs a
 * load, so that hot paths can look at it, too.
 */
#ifndef BASE_FORK_H
#define BASE_FORK_H

#include <pthread.h>
#include <stdbool.h>

/* Said of every handle that is used in another process than it was opened in. */
#define FORK_MESSAGE "this handle belongs to another process; open a new one after fork()"

extern unsigned fork_generation_now;

/* The number to remember. Counting begins with the first call. */
unsigned fork_generation(void);

/* Is what was opened in this generation another process's? */
static inline bool fork_is_foreign(unsigned generation)
{
	return __builtin_expect(generation != fork_generation_now, 0);
}

/* Locks that are held across fork(), in the order in which a thread may take them: one that holds
 * the first may take the last, which is taken whenever something is logged. */
enum fork_lock { FORK_LOCK_DEVICES, FORK_LOCK_ARENAS, FORK_LOCK_LOG, FORK_LOCKS };

/* Holds the lock across every fork() from now on, so that a child finds it free, and what it guards
 * whole. For locks that live as long as the process, from constructors. */
void fork_guard(enum fork_lock place, pthread_mutex_t *lock);

#endif
