/*
 * Extents: who has which part of a buffer. First fit, in units of EXTENT_UNIT; few are held at
 * once. Pure: it knows numbers, no memory.
 */
#ifndef CLIENT_EXTENTS_H
#define CLIENT_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXTENT_UNIT 64u

struct extent {
	uint64_t begin;
	uint64_t length; /* 0: none */
};

struct extents {
	uint64_t size;
	unsigned limit; /* held at once */
	unsigned count;
	struct extent *held; /* in order */
};

/* False: no memory. */
bool extents_init(struct extents *extents, uint64_t size, unsigned limit);
/* Legal on a zeroed one. */
void extents_fini(struct extents *extents);

/* False: no gap is large enough, or too many are held. */
bool extents_take(struct extents *extents, uint64_t length, struct extent *extent);
/* Legal on one that is none; *extent is none afterwards. */
void extents_give(struct extents *extents, struct extent *extent);

bool extents_is_valid(const struct extents *extents);

#endif
