/* See fork.h. */
#include "base/fork.h"

#include <assert.h>
#include <stdatomic.h>

#define MAX_GUARDED 8

unsigned fork_generation_now = 1;

static pthread_mutex_t *guarded[MAX_GUARDED];
/* How many of them are there. Release and acquire: with the number its entry is seen. */
static atomic_uint guarded_count;
static unsigned locked_count; /* between before() and after() */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before(void)
{
	locked_count = atomic_load_explicit(&guarded_count, memory_order_acquire);
	for (unsigned i = 0; i < locked_count; i++)
		pthread_mutex_lock(guarded[i]);
}

static void after(void)
{
	for (unsigned i = locked_count; i-- > 0;)
		pthread_mutex_unlock(guarded[i]);
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

void fork_guard(pthread_mutex_t *lock)
{
	unsigned count;

	(void)fork_generation();
	count = atomic_load_explicit(&guarded_count, memory_order_relaxed);
	assert(count < MAX_GUARDED);
	guarded[count] = lock;
	atomic_store_explicit(&guarded_count, count + 1, memory_order_release);
}
