/*
 * The hash of short keys, inline: the same value as hash64_seed() has.
 *
 * For the few places where the call would take as long as the hash. Longer keys are left to
 * hash64_seed().
 */
#ifndef BASE_HASH_SHORT_H
#define BASE_HASH_SHORT_H

#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HASH_SHORT_MAX 16u

static inline uint64_t hash64_short(const void *data, size_t length, uint64_t seed)
{
	/* What is known of the length here leaves nothing but the case of short ones to inline. */
	if (length <= HASH_SHORT_MAX)
		return XXH3_64bits_withSeed(data, length, seed);
	return hash64_seed(data, length, seed);
}

#endif
