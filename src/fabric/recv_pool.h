/*
 * The receive slots of a queue: messages land in them, the program reads them in place and gives
 * them back in any order. One block of memory, a stack of free slots. Not thread-safe; a provider
 * with a thread of its own locks around it.
 */
#ifndef FABRIC_RECV_POOL_H
#define FABRIC_RECV_POOL_H

#include <assert.h>
#include <stdint.h>

#include <remora/fabric.h>

struct recv_pool {
	uint8_t *memory;
	size_t stride; /* slot size rounded up to cache lines */
	uint32_t slots;
	uint32_t free_count;
	uint32_t *free_stack;
	bool *taken; /* catches a slot that is given back twice */
};

enum rmr_status recv_pool_init(struct recv_pool *pool, uint32_t slots, size_t size);
void recv_pool_fini(struct recv_pool *pool);

/* A free slot, or NULL. */
static inline void *recv_pool_get(struct recv_pool *pool)
{
	uint32_t slot;

	if (pool->free_count == 0)
		return NULL;
	slot = pool->free_stack[--pool->free_count];
	pool->taken[slot] = true;
	return pool->memory + slot * pool->stride;
}

static inline bool recv_pool_is_empty(const struct recv_pool *pool)
{
	return pool->free_count == 0;
}

/* Gives a slot back; anything but a taken slot is the caller's bug and ends the program. */
static inline void recv_pool_put(struct recv_pool *pool, const void *data)
{
	size_t distance = (size_t)((const uint8_t *)data - pool->memory);
	uint32_t slot = (uint32_t)(distance / pool->stride);

	assert(distance % pool->stride == 0 && slot < pool->slots && pool->taken[slot]);
	pool->taken[slot] = false;
	pool->free_stack[pool->free_count++] = slot;
}

#endif
