/*
 * Hash: XXH3-64, for keys and checksums.
 *
 * The value is the same on every machine and in every version: it may be stored and sent. It is no
 * protection against somebody who chooses the data. The implementation is compiled in from the
 * library's header, so that nothing is needed at run time and a call is not indirect.
 * Pure functions, any thread.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash64(const void *data, size_t length);
uint64_t hash64_seed(const void *data, size_t length, uint64_t seed);

/* The same as hash64() of all that was added, in pieces. */
struct hash_stream {
	_Alignas(64) uint8_t state[640];
};

void hash_stream_begin(struct hash_stream *stream);
void hash_stream_add(struct hash_stream *stream, const void *data, size_t length);
uint64_t hash_stream_end(const struct hash_stream *stream);

#endif
