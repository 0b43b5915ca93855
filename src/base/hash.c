/* XXH3, compiled here and nowhere else: the header is large, and inlined as a whole. */
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t hash64(const void *data, size_t length)
{
	return XXH3_64bits(data, length);
}

uint64_t hash64_seed(const void *data, size_t length, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, length, seed);
}
