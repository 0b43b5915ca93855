/*
 * MPSC ring: a bounded queue from many threads to one, without locks.
 *
 * Dmitry Vyukov's bounded queue, reduced to one consumer. Each cell has a sequence number that
 * says whose turn it is. For the cell of position p, in a ring of n cells:
 *
 *	sequence == p		free: the producer that takes position p may fill it
 *	sequence == p + 1	full: the consumer may take it, and leaves p + n behind
 *
 * Producers take positions by compare-and-swap on `head`. A producer that is interrupted between
 * taking its position and filling the cell delays the consumer at that cell, but no producer;
 * nothing is lost or reordered: elements come out in the order of their positions, and those of
 * one producer in the order it pushed them.
 *
 * Elements are 64-bit words: numbers, or pointers cast to uintptr_t. Any thread may push. One
 * thread at a time pops.
 */
#ifndef BASE_MPSC_RING_H
#define BASE_MPSC_RING_H

#include <remora/status.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mpsc_ring_cell {
	_Atomic uint64_t sequence;
	uint64_t element;
};

struct mpsc_ring {
	/* Constant after init. */
	struct mpsc_ring_cell *cells;
	uint64_t mask;
	/* The next position that a producer takes, and the next that the consumer takes, each in a
	 * cache line of its own. */
	_Alignas(64) _Atomic uint64_t head;
	_Alignas(64) _Atomic uint64_t tail;
};

/* `capacity` is a power of two, at least 2. Fails with RMR_INVALID or RMR_NO_MEMORY. */
RMR_MUST_CHECK enum rmr_status mpsc_ring_init(struct mpsc_ring *ring, size_t capacity);

/* Releases the cells. Legal on a zeroed or already finished ring. */
void mpsc_ring_fini(struct mpsc_ring *ring);

/* False when full. Any thread. */
bool mpsc_ring_push(struct mpsc_ring *ring, uint64_t element);

/* Takes the oldest element; false when there is none, or its producer has not filled it yet. */
bool mpsc_ring_pop(struct mpsc_ring *ring, uint64_t *element);

/* True when a pop would find nothing. Consumer only. */
bool mpsc_ring_is_empty(struct mpsc_ring *ring);

#endif
