/*
 * Racy reads: copies of memory that somebody may be overwriting.
 *
 * Whoever reads without a lock may get any mixture of bytes, and finds out afterwards whether to
 * throw them away (reader.c says how). The thread sanitizer would be right to call that a race, so
 * its builds read by functions that it does not watch; writers are watched as ever.
 */
#ifndef STORE_RACY_H
#define STORE_RACY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)

__attribute__((no_sanitize("thread"), noinline, unused)) static void racy_copy(void *to,
									       const void *from,
									       size_t length)
{
	const volatile uint8_t *bytes = from;

	for (size_t i = 0; i < length; i++)
		((volatile uint8_t *)to)[i] = bytes[i];
}

__attribute__((no_sanitize("thread"), noinline, unused)) static bool racy_equal(const void *key,
										const void *bytes,
										size_t length)
{
	const volatile uint8_t *a = key, *b = bytes;
	bool equal = true;

	for (size_t i = 0; i < length; i++)
		equal &= a[i] == b[i];
	return equal;
}

#else

static inline void racy_copy(void *to, const void *from, size_t length)
{
	memcpy(to, from, length);
}

static inline bool racy_equal(const void *key, const void *bytes, size_t length)
{
	return memcmp(key, bytes, length) == 0;
}

#endif

#endif
