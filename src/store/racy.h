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

/* Values of 16 to 64 bytes are copied before a call would have begun: two or four parts, of which
 * the last ones may overlap the first. */
static inline void racy_copy(void *to, const void *from, size_t length)
{
	const uint8_t *source = from;
	uint8_t *target = to;

	if (length < 16 || length > 64) {
		memcpy(to, from, length);
		return;
	}
	memcpy(target, source, 16);
	if (length > 32) {
		memcpy(target + 16, source + 16, 16);
		memcpy(target + length - 32, source + length - 32, 16);
	}
	memcpy(target + length - 16, source + length - 16, 16);
}

static inline uint64_t racy_word(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

/* Keys mostly have 8 to 32 bytes: comparing words, of which the last two may overlap, is done
 * before a call would have begun. */
static inline bool racy_equal(const void *key, const void *bytes, size_t length)
{
	const uint8_t *a = key, *b = bytes;
	size_t at = 0;

	if (length < 8 || length > 64)
		return memcmp(a, b, length) == 0;
	for (; at + 8 < length; at += 8) {
		if (racy_word(a + at) != racy_word(b + at))
			return false;
	}
	return racy_word(a + length - 8) == racy_word(b + length - 8);
}

#endif

#endif
