/* See completion_ring.h. */
#include "fabric/completion_ring.h"

#include <stdlib.h>

#include "base/error.h"

enum rmr_status completion_ring_reserve(struct completion_ring *ring, uint32_t count)
{
	uint32_t capacity = ring->entries ? ring->mask + 1 : 64;
	uint32_t needed = ring->reserved + count;
	struct rmr_completion *entries;

	if (needed < count || needed > 1u << 30)
		return error_set(RMR_LIMIT, "a queue cannot hold %u more completions", count);
	while (capacity < needed)
		capacity *= 2;
	if (!ring->entries || capacity > ring->mask + 1) {
		entries = malloc(capacity * sizeof(*entries));
		if (!entries)
			return error_set(RMR_NO_MEMORY, "no memory for %u completions", capacity);
		for (uint32_t i = ring->head; i != ring->tail; i++)
			entries[i & (capacity - 1)] = ring->entries[i & ring->mask];
		free(ring->entries);
		ring->entries = entries;
		ring->mask = capacity - 1;
	}
	ring->reserved = needed;
	return RMR_OK;
}

void completion_ring_unreserve(struct completion_ring *ring, uint32_t count)
{
	assert(count <= ring->reserved);
	ring->reserved -= count;
}

void completion_ring_fini(struct completion_ring *ring)
{
	free(ring->entries);
	*ring = (struct completion_ring){0};
}

void completion_ring_forget(struct completion_ring *ring, const struct rmr_conn *conn,
			    void (*drop)(void *context, const struct rmr_completion *entry),
			    void *context)
{
	uint32_t to = ring->head;

	for (uint32_t i = ring->head; i != ring->tail; i++) {
		const struct rmr_completion *entry = &ring->entries[i & ring->mask];

		if (entry->conn == conn)
			drop(context, entry);
		else
			ring->entries[to++ & ring->mask] = *entry;
	}
	ring->tail = to;
}
