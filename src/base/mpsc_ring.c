/* See the header for how the sequence numbers work. */
#include "base/mpsc_ring.h"

#include <stdlib.h>

#include "base/error.h"

enum rmr_status mpsc_ring_init(struct mpsc_ring *ring, size_t capacity)
{
	struct mpsc_ring_cell *cells;

	if (capacity < 2 || (capacity & (capacity - 1)) != 0)
		return error_set(RMR_INVALID, "ring of %zu cells: must be a power of two",
				 capacity);
	cells = calloc(capacity, sizeof(*cells));
	if (cells == NULL)
		return error_set(RMR_NO_MEMORY, "ring of %zu cells", capacity);
	for (size_t i = 0; i < capacity; i++)
		atomic_init(&cells[i].sequence, i);
	ring->cells = cells;
	ring->mask = capacity - 1;
	atomic_init(&ring->head, 0);
	atomic_init(&ring->tail, 0);
	return RMR_OK;
}

void mpsc_ring_fini(struct mpsc_ring *ring)
{
	free(ring->cells);
	ring->cells = NULL;
}

bool mpsc_ring_push(struct mpsc_ring *ring, uint64_t element)
{
	/* Relaxed here and in the swap: head only hands out positions. What a position is good for
	 * is told by the cell's sequence alone. */
	uint64_t position = atomic_load_explicit(&ring->head, memory_order_relaxed);
	struct mpsc_ring_cell *cell;

	for (;;) {
		int64_t turn;

		cell = &ring->cells[position & ring->mask];
		/* Acquire, pairs with the release in pop: when the cell is free for us, the
		 * consumer has read the old element. */
		turn = (int64_t)(atomic_load_explicit(&cell->sequence, memory_order_acquire) -
				 position);
		if (turn < 0)
			return false; /* a lap behind: the consumer has not been here yet */
		if (turn > 0) {
			/* Another producer took this position already. */
			position = atomic_load_explicit(&ring->head, memory_order_relaxed);
			continue;
		}
		if (atomic_compare_exchange_weak_explicit(&ring->head, &position, position + 1,
							  memory_order_relaxed,
							  memory_order_relaxed))
			break;
	}
	cell->element = element;
	/* Release, pairs with the acquire in pop: whoever sees our sequence sees the element, and
	 * all that we wrote before (what a pointer points to). */
	atomic_store_explicit(&cell->sequence, position + 1, memory_order_release);
	return true;
}

bool mpsc_ring_pop(struct mpsc_ring *ring, uint64_t *element)
{
	/* Relaxed: only the consumer writes tail. */
	uint64_t position = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	struct mpsc_ring_cell *cell = &ring->cells[position & ring->mask];

	/* Acquire, pairs with the release in push: a full cell shows its element. */
	if (atomic_load_explicit(&cell->sequence, memory_order_acquire) != position + 1)
		return false;
	*element = cell->element;
	/* Release, pairs with the acquire in push: we have read before a producer writes again. */
	atomic_store_explicit(&cell->sequence, position + ring->mask + 1, memory_order_release);
	atomic_store_explicit(&ring->tail, position + 1, memory_order_relaxed);
	return true;
}

bool mpsc_ring_is_empty(struct mpsc_ring *ring)
{
	uint64_t position = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	struct mpsc_ring_cell *cell = &ring->cells[position & ring->mask];

	/* Acquire, as in pop: after a "not empty" the caller may rely on what was pushed. */
	return atomic_load_explicit(&cell->sequence, memory_order_acquire) != position + 1;
}
