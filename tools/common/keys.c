/* Keys and values: see keys.h. Pure functions on the caller's memory. */
#include "keys.h"

#define VALUE_FILLER 0x5a

void key_write(uint8_t *key, size_t size, uint64_t number)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t scrambled = scramble(number);

	for (int i = 0; i < 16; i++)
		key[i] = (uint8_t)digits[scrambled >> (60 - 4 * i) & 15];
	memset(key + 16, '.', size - 16);
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
		key_write(block->keys + i * block->key_size, block->key_size, block->numbers[i]);
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
