/*
 * The hash of long data by wider registers than every machine has: the same values, about twice as
 * fast. hash.c asks once whether they can be used. The build takes hash_wide.c, with the compiler's
 * leave to use them, where such machines exist, and hash_narrow.c elsewhere.
 */
#ifndef BASE_HASH_WIDE_H
#define BASE_HASH_WIDE_H

#include <stdbool.h>

#include "base/hash.h"

/* The others must not be called if this is false. */
bool hash_wide_is_usable(void);

uint64_t hash_wide64(const void *data, size_t length);
void hash_wide_stream_add(struct hash_stream *stream, const void *data, size_t length);

#endif
