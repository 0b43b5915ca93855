/* XXH3, compiled here: the header is large, and inlined as a whole. (hash_short.h takes of it what
 * short keys need.) */
#include "base/hash.h"

#include <assert.h>

#include "base/hash_wide.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Below this the wider registers gain nothing. */
#define WIDE_LENGTH 1024u

static bool is_wide;

__attribute__((constructor)) static void find_width(void)
{
	is_wide = hash_wide_is_usable();
}

uint64_t hash64(const void *data, size_t length)
{
	if (length >= WIDE_LENGTH && is_wide)
		return hash_wide64(data, length);
	return XXH3_64bits(data, length);
}

uint64_t hash64_seed(const void *data, size_t length, uint64_t seed)
{
	return XXH3_64bits_withSeed(data, length, seed);
}

static_assert(sizeof(XXH3_state_t) <= sizeof(struct hash_stream), "room for the state");
static_assert(_Alignof(XXH3_state_t) <= _Alignof(struct hash_stream), "and in its place");

void hash_stream_begin(struct hash_stream *stream)
{
	XXH3_64bits_reset((XXH3_state_t *)stream->state);
}

void hash_stream_add(struct hash_stream *stream, const void *data, size_t length)
{
	if (length >= WIDE_LENGTH && is_wide)
		hash_wide_stream_add(stream, data, length);
	else
		XXH3_64bits_update((XXH3_state_t *)stream->state, data, length);
}

uint64_t hash_stream_end(const struct hash_stream *stream)
{
	return XXH3_64bits_digest((const XXH3_state_t *)stream->state);
}
