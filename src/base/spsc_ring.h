/*
 * SPSC ring: a bounded queue from one thread to one other, without locks or system calls.
 *
 *	        tail (consumer)              head (producer)
 *	          v                            v
 *	  | free | full | full | full | full | free | free | free |
 *
 * head counts the elements ever pushed, tail those ever popped; both only grow (they would wrap
 * after centuries), and the slot of a count is count & mask. Each side keeps a stale copy of the
 * other's counter in its own cache line and looks at the real one only when the copy says full or
 * empty, so in steady flow a line moves between the cores once a lap rather than once an element.
 *
 * Elements of one fixed size are copied in and out. The slots are the caller's memory. One thread
 * pushes, one thread pops, at any time; spsc_ring_count() may be called by either.
 */
#ifndef BASE_SPSC_RING_H
#define BASE_SPSC_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct spsc_ring {
	/* Constant after init. */
	char *slots;
	size_t element_size;
	uint64_t mask;

	/* The producer's line. */
	_Alignas(64) _Atomic uint64_t head;
	uint64_t tail_seen;

	/* The consumer's line. */
	_Alignas(64) _Atomic uint64_t tail;
	uint64_t head_seen;
};

/* `slots` holds `capacity` (a power of two) elements, aligned as the elements need it, and must
 * outlive the ring. There is nothing to release. */
static inline void spsc_ring_init(struct spsc_ring *ring, void *slots, size_t capacity,
				  size_t element_size)
{
	assert(capacity > 0 && (capacity & (capacity - 1)) == 0);
	assert(element_size > 0);
	ring->slots = slots;
	ring->element_size = element_size;
	ring->mask = capacity - 1;
	ring->tail_seen = 0;
	ring->head_seen = 0;
	atomic_init(&ring->head, 0);
	atomic_init(&ring->tail, 0);
}

/* Copies the element in. False when full. Producer only. */
static inline bool spsc_ring_push(struct spsc_ring *ring, const void *element)
{
	/* Relaxed: only this thread writes head. */
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	if (head - ring->tail_seen > ring->mask) {
		/* Acquire, pairs with the release in pop: the consumer has copied the old element
		 * out of the slot before we write over it. */
		ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
		if (head - ring->tail_seen > ring->mask)
			return false;
	}
	memcpy(ring->slots + (head & ring->mask) * ring->element_size, element, ring->element_size);
	/* Release, pairs with the acquire in pop: whoever sees the count sees the element. */
	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
	return true;
}

/* Copies the oldest element out. False when empty. Consumer only. */
static inline bool spsc_ring_pop(struct spsc_ring *ring, void *element)
{
	/* Relaxed: only this thread writes tail. */
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);

	if (tail == ring->head_seen) {
		/* Acquire, pairs with the release in push: the element is there when its count is.
		 */
		ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
		if (tail == ring->head_seen)
			return false;
	}
	memcpy(element, ring->slots + (tail & ring->mask) * ring->element_size, ring->element_size);
	/* Release, pairs with the acquire in push: our copy is made before the slot is reused. */
	atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
	return true;
}

/* How many elements are inside: exact for a side while the other rests, else a recent value. */
static inline size_t spsc_ring_count(struct spsc_ring *ring)
{
	/* Tail first: it never overtakes the head that is read after it, so that the difference is
	 * not negative. Acquire on the first keeps that order; the second needs none. */
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	return (size_t)(head - tail);
}

#endif
