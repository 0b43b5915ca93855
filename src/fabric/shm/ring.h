/*
 * The message ring: one writer process, one reader process, and no byte that both may write.
 *
 * Each direction of a connection has a ring of 64-byte cells in memory that its writer owns and
 * its reader has mapped read-only. A message lies in one or more fragments, a fragment in one or
 * more consecutive cells (never across the end of the ring):
 *
 *	 cell 0                    cell 1             cell 2
 *	+------+-------+----------+------------------+------+---
 *	| word | extra | 48 bytes | 64 bytes payload | word | ...
 *	+------+-------+----------+------------------+------+---
 *	   |                                             \__ 0: nothing here yet
 *	    \__ kind, flags, length: not 0
 *
 * The word is the message's doorbell: for a small message the reader learns that it is there and
 * gets it with one cache line moving between the cores, which is all that two cores can do.
 *
 * Why the reader never takes old bytes for a word. The writer, before it publishes a fragment at
 * cell t that ends before cell t+n, stores 0 into the word of cell t+n (which is free, as it always
 * keeps one cell more free than it fills), then stores the word of t with release. A reader
 * that sees the word of t (acquire) thus sees the whole fragment, and 0 at t+n until the next
 * fragment is published there. It looks at no cell before it has consumed the fragments in front.
 *
 * Why the writer never overwrites unread bytes. The reader stores how far it has come (`head`, in
 * its own memory) with release, after it copied the bytes out; the writer loads it with acquire.
 * It is stored once in a quarter of the ring, to keep that cache line quiet; fragments are
 * at most a quarter long, so a writer that waits for a quarter always gets it.
 *
 * The peer may be hostile: whatever is read from its memory is fetched once, checked, then used. A
 * wrong `head` makes a writer overwrite what the peer has not read: the peer's own loss.
 */
#ifndef FABRIC_SHM_RING_H
#define FABRIC_SHM_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RING_CELLS 1024u /* a power of two; 64 KiB a direction */

#define RING_INLINE   48u /* payload bytes of the first cell */
#define RING_FRAGMENT (RING_CELLS / 4)

enum ring_kind {
	RING_MESSAGE = 1, /* extra of the first fragment: length of the whole message */
	RING_IMMEDIATE,	  /* extra: the immediate; payload: 8 bytes, how much was written */
};

enum ring_flag {
	RING_FIRST = 1,
	RING_LAST = 2,
};

struct ring_cell {
	_Atomic uint64_t word; /* kind | flags << 8 | length << 32 */
	uint64_t extra;
	uint8_t payload[RING_INLINE];
};
static_assert(sizeof(struct ring_cell) == 64, "one cache line");

struct ring_writer {
	struct ring_cell *cells;
	const _Atomic uint64_t *reader_head; /* in the reader's memory */
	uint64_t tail;			     /* cells written since the beginning */
	uint64_t head;			     /* reader_head as last seen */
};

struct ring_reader {
	const struct ring_cell *cells; /* in the writer's memory */
	_Atomic uint64_t *my_head;     /* in ours, for the writer */
	uint64_t head;
	uint64_t published; /* *my_head */
};

/* A fragment as found in the ring; payload still lies there. */
struct ring_item {
	unsigned kind, flags;
	uint32_t length;
	uint64_t extra;
	const uint8_t *payload;
};

static inline uint32_t ring_cells_for(size_t length)
{
	return length <= RING_INLINE ? 1 : 1 + (uint32_t)((length - RING_INLINE + 63) / 64);
}

/* Cells that can be filled now, one more than that being free. */
static inline uint64_t ring_writer_room(struct ring_writer *writer, uint64_t wanted)
{
	uint64_t used = writer->tail - writer->head;

	if (used + wanted + 1 > RING_CELLS) {
		/* Acquire: the reader copied out what it says it has consumed. */
		writer->head = atomic_load_explicit(writer->reader_head, memory_order_acquire);
		used = writer->tail - writer->head;
	}
	return used < RING_CELLS ? RING_CELLS - 1 - used : 0;
}

/* Publishes one fragment; the caller has made sure of room and of cells up to the end. */
static inline void ring_publish(struct ring_writer *writer, unsigned kind, unsigned flags,
				uint64_t extra, const void *payload, size_t length)
{
	struct ring_cell *cell = &writer->cells[writer->tail % RING_CELLS];
	struct ring_cell *next;

	cell->extra = extra;
	if (length)
		memcpy((uint8_t *)cell + offsetof(struct ring_cell, payload), payload, length);
	writer->tail += ring_cells_for(length);
	next = &writer->cells[writer->tail % RING_CELLS];
	/* Relaxed: ordered before the release below, by it. */
	atomic_store_explicit(&next->word, 0, memory_order_relaxed);
	/* Release: whoever sees the word sees the fragment, and the 0 behind it. */
	atomic_store_explicit(&cell->word,
			      (uint64_t)kind | (uint64_t)flags << 8 | (uint64_t)length << 32,
			      memory_order_release);
}

/* Writes as much of the message as there is room for, from *sent on, in fragments. True when all of
 * it is in the ring. Call with *started false first; both are kept for the next call. */
static inline bool ring_write_message(struct ring_writer *writer, const uint8_t *data,
				      size_t length, size_t *sent, bool *started)
{
	for (;;) {
		size_t left = length - *sent, bytes = left;
		uint64_t cells = ring_cells_for(
			left < RING_FRAGMENT * 64 - 16 ? left : RING_FRAGMENT * 64 - 16);
		uint64_t to_end = RING_CELLS - writer->tail % RING_CELLS;
		uint64_t room = ring_writer_room(writer, cells);
		unsigned flags = *started ? 0 : RING_FIRST;

		if (room == 0)
			return false;
		if (cells > to_end)
			cells = to_end;
		if (cells > room)
			cells = room;
		if (bytes > cells * 64 - 16)
			bytes = cells * 64 - 16;
		else
			flags |= RING_LAST;
		ring_publish(writer, RING_MESSAGE, flags, length, bytes ? data + *sent : NULL,
			     bytes);
		*sent += bytes;
		*started = true;
		if (flags & RING_LAST)
			return true;
	}
}

/* Writes an immediate; false when there is no room. */
static inline bool ring_write_immediate(struct ring_writer *writer, uint32_t immediate,
					uint64_t length)
{
	if (ring_writer_room(writer, 1) == 0)
		return false;
	ring_publish(writer, RING_IMMEDIATE, RING_FIRST | RING_LAST, immediate, &length,
		     sizeof(length));
	return true;
}

/* Is there something to read? */
static inline bool ring_reader_has(const struct ring_reader *reader)
{
	return atomic_load_explicit(&reader->cells[reader->head % RING_CELLS].word,
				    memory_order_relaxed) != 0;
}

/* Looks at the next fragment. 1: there is one; 0: none; -1: what is there cannot be a fragment. */
static inline int ring_reader_peek(const struct ring_reader *reader, struct ring_item *item)
{
	uint64_t position = reader->head % RING_CELLS;
	const struct ring_cell *cell = &reader->cells[position];
	/* Acquire: with the word we see what was written before it. */
	uint64_t word = atomic_load_explicit(&cell->word, memory_order_acquire);

	if (word == 0)
		return 0;
	item->kind = word & 0xff;
	item->flags = word >> 8 & 0xff;
	item->length = (uint32_t)(word >> 32);
	item->extra = *(const volatile uint64_t *)&cell->extra; /* once: it may change */
	item->payload = (const uint8_t *)cell + offsetof(struct ring_cell, payload);
	if ((item->kind != RING_MESSAGE && item->kind != RING_IMMEDIATE) ||
	    ring_cells_for(item->length) > RING_CELLS - position)
		return -1;
	return 1;
}

/* The fragment is copied out: its cells may be used again. True when the writer was told. */
static inline bool ring_reader_advance(struct ring_reader *reader, const struct ring_item *item)
{
	reader->head += ring_cells_for(item->length);
	if (reader->head - reader->published < RING_FRAGMENT)
		return false;
	/* Release: the copying is over before the writer may overwrite. */
	reader->published = reader->head;
	atomic_store_explicit(reader->my_head, reader->head, memory_order_release);
	return true;
}

#endif
