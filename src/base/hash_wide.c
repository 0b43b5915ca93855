/* Hashing by AVX2: see hash_wide.h. This file alone is compiled for it. */
#include "base/hash_wide.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

bool hash_wide_is_usable(void)
{
	return __builtin_cpu_supports("avx2");
}

uint64_t hash_wide64(const void *data, size_t length)
{
	return XXH3_64bits(data, length);
}

void hash_wide_stream_add(struct hash_stream *stream, const void *data, size_t length)
{
	XXH3_64bits_update((XXH3_state_t *)stream->state, data, length);
}
