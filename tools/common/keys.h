/*
 * Keys and values, made from numbers: key number n is the same in every test, for every contestant.
 *
 * A key is a prefix, if there is one, 16 hexadecimal digits of a scrambled n, so that protocols
 * made of text can carry it, and dots behind it when longer keys are asked for. A value begins with
 * n in 8 bytes; what follows is always the same. So a test can tell whether it got the right one at
 * almost no cost.
 *
 * Tests work by the block: the keys of a block are made first, in memory that stays in the nearest
 * cache, and then used; only the use is timed.
 */
#ifndef TOOLS_COMMON_KEYS_H
#define TOOLS_COMMON_KEYS_H

#include <remora/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KEY_SIZE_MIN   16u  /* without a prefix */
#define KEY_SIZE_MAX   250u /* memcached's limit */
#define VALUE_SIZE_MIN 8u
#define BLOCK_KEYS     1024u

/* Random numbers, good enough to pick keys by. The same seed gives the same numbers. */
struct dice {
	uint64_t state;
};

/* A permutation of the 64-bit numbers without visible order. */
static inline uint64_t scramble(uint64_t x)
{
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
	return x ^ x >> 32;
}

static inline uint64_t dice_next(struct dice *dice)
{
	dice->state += 0x9e3779b97f4a7c15u;
	return scramble(dice->state);
}

/* 0 to limit - 1. */
static inline uint64_t dice_below(struct dice *dice, uint64_t limit)
{
	return (uint64_t)((unsigned __int128)dice_next(dice) * limit >> 64);
}

/* 0 to 1, without 1. */
static inline double dice_real(struct dice *dice)
{
	return (double)(dice_next(dice) >> 11) * 0x1p-53;
}

/* `size` counts the prefix, which is "" or NULL for none. */
void key_write(uint8_t *key, size_t size, const char *prefix, uint64_t number);

/* A value for every number: write the number into the first 8 bytes. */
void value_prepare(uint8_t *value, size_t size);

static inline void value_number(uint8_t *value, uint64_t number)
{
	memcpy(value, &number, sizeof(number));
}

bool value_is(const uint8_t *value, size_t size, uint64_t number);

struct block {
	size_t key_size;
	const char *prefix; /* of its keys; NULL: none */
	uint64_t numbers[BLOCK_KEYS];
	uint8_t keys[BLOCK_KEYS * KEY_SIZE_MAX];
};

static inline const uint8_t *block_key(const struct block *block, size_t i)
{
	return block->keys + i * block->key_size;
}

/* Makes the keys of the numbers that are there. */
void block_make_keys(struct block *block, size_t count);
/* Numbers first, first + 1 ...; and numbers below limit. With their keys. */
void block_in_order(struct block *block, uint64_t first, size_t count);
void block_at_random(struct block *block, struct dice *dice, uint64_t limit);

#endif
