/*
 * Values. Their lengths are chosen for the paths: one message, the landing buffer, pieces; a reply,
 * one READ, the client's own buffer.
 */
#include "value.h"

#include <string.h>

#define SIZE_BITS 4u

static const uint32_t sizes[] = {24, 40, 200, 1000, 4000, 5000, 9000, 20000, 80000, VALUE_LONGEST};

uint64_t value_make_id(uint32_t process, uint64_t serial, struct test_rng *rng)
{
	uint64_t dice = test_rng_below(rng, 100), size;

	if (dice < 65)
		size = test_rng_below(rng, 4);
	else if (dice < 95)
		size = 4 + test_rng_below(rng, 4);
	else
		size = 8 + test_rng_below(rng, 2);
	return (((uint64_t)process + 1) << 40 | serial) << SIZE_BITS | size;
}

size_t value_length(uint64_t id)
{
	uint64_t size = id & ((1u << SIZE_BITS) - 1);

	return size < TEST_COUNT(sizes) ? sizes[size] : 0;
}

static uint64_t word_at(uint64_t id, size_t at)
{
	return (id + at) * 0x9e3779b97f4a7c15u;
}

void value_fill(uint64_t id, void *value)
{
	size_t length = value_length(id);
	uint8_t *bytes = value;

	for (size_t at = 0; at + sizeof(id) <= length; at += sizeof(id)) {
		uint64_t word = word_at(id, at);

		memcpy(bytes + at, &word, sizeof(word));
	}
	memcpy(bytes, &id, sizeof(id));
	memcpy(bytes + length - sizeof(id), &id, sizeof(id));
}

uint64_t value_parse(const void *value, size_t length, size_t *at)
{
	const uint8_t *bytes = value;
	uint64_t id = 0, word, last = 0;

	*at = 0;
	if (length <= VALUE_NUMBER)
		return 0;
	memcpy(&id, bytes, sizeof(id));
	memcpy(&last, bytes + length - sizeof(id), sizeof(id));
	if (value_length(id) != length)
		return 0;
	for (*at = sizeof(id); *at + 2 * sizeof(id) <= length; *at += sizeof(id)) {
		memcpy(&word, bytes + *at, sizeof(word));
		if (word != word_at(id, *at))
			return 0;
	}
	return last == id ? id : 0;
}
