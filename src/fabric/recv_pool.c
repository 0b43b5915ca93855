/* See recv_pool.h. */
#include "fabric/recv_pool.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/error.h"

#define CACHE_LINE 64

enum rmr_status recv_pool_init(struct recv_pool *pool, uint32_t slots, size_t size)
{
	size_t stride = (size + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
	size_t total;

	*pool = (struct recv_pool){.stride = stride, .slots = slots};
	if (__builtin_mul_overflow(stride, slots, &total))
		goto no_memory;
	pool->free_stack = calloc(slots, sizeof(*pool->free_stack));
	pool->taken = calloc(slots, sizeof(*pool->taken));
	/* Mapped, not allocated: slots that are never used cost no memory. */
	pool->memory =
		mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pool->memory == MAP_FAILED)
		pool->memory = NULL;
	if (!pool->free_stack || !pool->taken || !pool->memory)
		goto no_memory;
	/* The lowest slot on top: a queue that is never busy touches only a few. */
	for (uint32_t i = 0; i < slots; i++)
		pool->free_stack[i] = slots - 1 - i;
	pool->free_count = slots;
	return RMR_OK;

no_memory:
	recv_pool_fini(pool);
	return error_set(RMR_NO_MEMORY, "no memory for %u receive slots of %zu bytes", slots, size);
}

void recv_pool_fini(struct recv_pool *pool)
{
	if (pool->memory)
		munmap(pool->memory, pool->stride * pool->slots);
	free(pool->free_stack);
	free(pool->taken);
	*pool = (struct recv_pool){0};
}
