/*
 * Racy reads: copies of memory that somebody may be overwriting.
 *
 * Whoever reads without a lock may get any mixture of bytes, and finds out afterwards whether to
 * throw them away (reader.c says how). The thread sanitizer would be right to call that a race, so
 * its builds read by functions that it does not watch; writers are watched as ever.
 */
#ifndef STORE_RACY_H
#define STORE_RACY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define RACY_IS_WATCHED 1
#else
#define RACY_IS_WATCHED 0
#endif

#if RACY_IS_WATCHED

/* A word of an item's header, in memory that may be somebody's value by now. */
__attribute__((no_sanitize("thread"), noinline, unused)) static uint64_t racy_load(
	const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

__attribute__((no_sanitize("thread"), noinline, unused)) static uint64_t racy_load_acquire(
	const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

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

static inline uint64_t racy_load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static inline uint64_t racy_load_acquire(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

typedef uint8_t racy_part __attribute__((vector_size(16), aligned(1), may_alias));

/* Values of 16 to 64 bytes are copied before a call would have begun: two or four parts, of which
 * the last ones may overlap the first. */
static inline void racy_copy(void *to, const void *from, size_t length)
{
	const racy_part *source = from, *source_end = (const void *)((const char *)from + length);
	racy_part *target = to, *target_end = (void *)((char *)to + length);

	if (length < 16 || length > 64) {
		memcpy(to, from, length);
		return;
	}
	target[0] = source[0];
	if (length > 32) {
		target[1] = source[1];
		target_end[-2] = source_end[-2];
	}
	target_end[-1] = source_end[-1];
}

static inline uint64_t racy_word(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

/* Keys of 8 to 16 bytes are two words, which may overlap, and compared before a call would have
 * begun. */
static inline bool racy_equal(const void *key, const void *bytes, size_t length)
{
	const uint8_t *a = key, *b = bytes;

	if (length < 8 || length > 16)
		return memcmp(a, b, length) == 0;
	return racy_word(a) == racy_word(b) &&
	       racy_word(a + length - 8) == racy_word(b + length - 8);
}

#endif

#endif
