/*
 * The shared memory of one end of a connection: what this end writes and the other only reads.
 *
 *	0      +--------------------------------+
 *	       | head: how far I read your ring |  a cache line each
 *	       | sleep, wants_space             |
 *	       | active: I am in your memory    |
 *	4096   +--------------------------------+
 *	       | my ring: messages for you      |  RING_CELLS * 64 bytes
 *	       +--------------------------------+
 *
 * Each end makes its own segment, maps it writable, seals it and passes it to the other end, who
 * can only map it read-only. So every shared byte has exactly one process that can write it, and a
 * hostile peer can lie to us, but not change what we have written.
 */
#ifndef FABRIC_SHM_SEGMENT_H
#define FABRIC_SHM_SEGMENT_H

#include <stddef.h>

#include <remora/status.h>

#include "fabric/shm/ring.h"

struct shm_segment {
	/* Read by the peer when its ring looks full to it. */
	_Alignas(64) _Atomic uint64_t head;

	/* Odd while this end sleeps, and another number each time: the peer wakes it once for each.
	 * See progress.c for why no wake-up is lost. */
	_Alignas(64) _Atomic uint32_t sleep;
	_Atomic uint32_t wants_space; /* 1 while this end has works that wait for room */

	/* 1 while this end accesses the other's memory: see shm/access.c. */
	_Alignas(64) _Atomic uint32_t active;

	_Alignas(4096) struct ring_cell ring[RING_CELLS];
};
static_assert(offsetof(struct shm_segment, ring) == 4096, "the ring starts on its own page");

/* Makes and maps a segment of our own, sealed. Also used for the region table: size is free. */
enum rmr_status segment_create(size_t size, void **memory, int *fd);

/* How memory of a peer is mapped. */
enum segment_flag {
	SEGMENT_WRITABLE = 1,
	SEGMENT_HUGE = 2, /* may lie in huge pages, if it is not writable */
};

/* Maps what a peer passed, after checking that it has the size it should have and cannot shrink
 * under us; and, unless writable, that the peer can neither change it by other means than the map
 * it has nor punch holes. RMR_PROTOCOL when it is not so; RMR_DENIED: huge pages. */
enum rmr_status segment_map(int fd, size_t size, unsigned flags, void **memory);

void segment_unmap(const void *memory, size_t size);

#endif
