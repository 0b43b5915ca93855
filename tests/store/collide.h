/*
 * Keys that share a hash, as somebody makes them who wants trouble: all of them lie in one bucket,
 * with one tag, however the index grows.
 *
 * XXH3 takes long data in stripes of eight words. Of each word it adds two things to its sums: the
 * word itself, and the product of both halves of the word xor a secret, which comes from the seed.
 * A word whose low half is the secret's makes the product 0, whatever its high half is; so what one
 * such word has more and another one less changes nothing. The two are the first words of the first
 * and second stripe.
 */
#ifndef TESTS_STORE_COLLIDE_H
#define TESTS_STORE_COLLIDE_H

#include <remora/kv.h>
#include <stdint.h>
#include <string.h>

#define COLLIDE_STRIPE 64u

/* Makes key `number` of those with this filling; all of them have KV_MAX_KEY bytes. */
static inline void collide_key(uint8_t key[KV_MAX_KEY], uint64_t seed, uint8_t filling,
			       uint32_t number)
{
	uint64_t first = UINT64_C(0xbe4ba423396cfeb8) + seed;
	uint64_t second = UINT64_C(0x1cad21f72c81017c) - seed;

	first = (first & UINT32_MAX) | (uint64_t)number << 32;
	second = (second & UINT32_MAX) | (uint64_t)(UINT32_MAX - number) << 32;
	memset(key, filling, KV_MAX_KEY);
	memcpy(key, &first, sizeof(first));
	memcpy(key + COLLIDE_STRIPE, &second, sizeof(second));
}

#endif
