/* Keys and values: see keys.h. Pure functions on the caller's memory. */
#include "keys.h"

#include <endian.h>

#define VALUE_FILLER 0x5a

/* Eight hexadecimal digits, in memory the first one first: all at once, for keys are made between
 * the operations that are measured. */
static uint64_t digits_of(uint32_t number)
{
	uint64_t digits = number, letters;

	digits = (digits | digits << 16) & 0x0000ffff0000ffff;
	digits = (digits | digits << 8) & 0x00ff00ff00ff00ff;
	digits = (digits | digits << 4) & 0x0f0f0f0f0f0f0f0f;
	letters = (digits + 0x0606060606060606) >> 4 & 0x0101010101010101; /* 1 in those above 9 */
	return htobe64(digits + 0x3030303030303030 + letters * ('a' - '0' - 10));
}

void key_write(uint8_t *key, size_t size, const char *prefix, uint64_t number)
{
	size_t length = prefix ? strlen(prefix) : 0;
	uint64_t scrambled = scramble(number);
	uint64_t digits[] = {digits_of((uint32_t)(scrambled >> 32)),
			     digits_of((uint32_t)scrambled)};

	if (length)
		memcpy(key, prefix, length);
	memcpy(key + length, digits, sizeof(digits));
	memset(key + length + sizeof(digits), '.', size - length - sizeof(digits));
}

void value_prepare(uint8_t *value, size_t size)
{
	memset(value, VALUE_FILLER, size);
}

bool value_is(const uint8_t *value, size_t size, uint64_t number)
{
	if (memcmp(value, &number, sizeof(number)))
		return false;
	for (size_t i = sizeof(number); i < size; i++)
		if (value[i] != VALUE_FILLER)
			return false;
	return true;
}

void block_make_keys(struct block *block, size_t count)
{
	for (size_t i = 0; i < count; i++)
		key_write(block->keys + i * block->key_size, block->key_size, block->prefix,
			  block->numbers[i]);
}

void block_in_order(struct block *block, uint64_t first, size_t count)
{
	for (size_t i = 0; i < count; i++)
		block->numbers[i] = first + i;
	block_make_keys(block, count);
}

void block_at_random(struct block *block, struct dice *dice, uint64_t limit)
{
	for (size_t i = 0; i < BLOCK_KEYS; i++)
		block->numbers[i] = dice_below(dice, limit);
	block_make_keys(block, BLOCK_KEYS);
}
