/*
 * Bytes that tell where they come from. Byte i of pattern `seed` is byte i % 8 of a hash of seed
 * and i / 8, so data that is shifted, repeated, swapped or left over from another transfer is
 * noticed.
 */
#include <string.h>

#include "fixture.h"

static uint64_t pattern_word(uint64_t seed, uint64_t index)
{
	uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u;

	x ^= x >> 32;
	x *= 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 29);
}

void pattern_fill(void *data, size_t length, uint64_t seed)
{
	uint8_t *bytes = data;
	size_t at;

	for (at = 0; at < length; at += 8) {
		uint64_t word = pattern_word(seed, at / 8);

		memcpy(bytes + at, &word, length - at < 8 ? length - at : 8);
	}
}

void pattern_check(const void *data, size_t length, uint64_t seed, const char *what)
{
	const uint8_t *bytes = data;
	size_t at, i;

	for (at = 0; at < length; at += 8) {
		uint64_t word = pattern_word(seed, at / 8);
		uint8_t expected[8];
		size_t part = length - at < 8 ? length - at : 8;

		if (memcmp(bytes + at, &word, part) == 0)
			continue;
		memcpy(expected, &word, 8);
		for (i = 0; i < part - 1 && bytes[at + i] == expected[i];)
			i++;
		TEST_FAIL("%s: byte %zu of %zu is %02x, not %02x (pattern %llu)", what, at + i,
			  length, bytes[at + i], expected[i], (unsigned long long)seed);
	}
}

void guard_check(const void *data, size_t length, uint8_t byte, const char *what)
{
	const uint8_t *bytes = data;
	size_t at;

	for (at = 0; at < length; at++)
		if (bytes[at] != byte)
			TEST_FAIL("%s: guard byte %zu of %zu is %02x, not %02x", what, at, length,
				  bytes[at], byte);
}
