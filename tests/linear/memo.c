/*
 * Memo: a hash table with open addressing, of numbers of entries, which lie one after the other in
 * an array that grows. Entries are compared as bytes: it is exact, nothing is taken for seen
 * because its hash was.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "checker_internal.h"

#define FIRST_ROOM 1024u

void memo_init(struct memo *memo, uint32_t words)
{
	size_t size = words * sizeof(uint32_t) + sizeof(struct model_state);

	*memo = (struct memo){.words = words, .entry_size = (size + 7) & ~(size_t)7};
}

void memo_fini(struct memo *memo)
{
	free(memo->entries);
	free(memo->table);
	*memo = (struct memo){0};
}

static uint8_t *entry_at(const struct memo *memo, uint32_t number)
{
	return memo->entries + number * memo->entry_size;
}

/* Where an entry like this one is, or should be. */
static uint32_t *find(const struct memo *memo, const uint8_t *entry)
{
	uint32_t at = (uint32_t)hash64(entry, memo->entry_size);

	for (;; at++) {
		uint32_t *slot = &memo->table[at & memo->table_mask];

		if (*slot == 0 || memcmp(entry_at(memo, *slot - 1), entry, memo->entry_size) == 0)
			return slot;
	}
}

/* Twice the room, and a table of twice as many slots as that. */
static bool grow(struct memo *memo)
{
	uint32_t room = memo->room ? memo->room * 2 : FIRST_ROOM;
	uint32_t *table = calloc((size_t)room * 2, sizeof(*table));
	uint8_t *entries = table ? realloc(memo->entries, room * memo->entry_size) : NULL;

	if (!entries) {
		free(table);
		return false;
	}
	free(memo->table);
	memo->table = table;
	memo->table_mask = room * 2 - 1;
	memo->entries = entries;
	memo->room = room;
	for (uint32_t i = 0; i < memo->count; i++)
		*find(memo, entry_at(memo, i)) = i + 1;
	return true;
}

enum memo_answer memo_add(struct memo *memo, const uint32_t *places,
			  const struct model_state *state)
{
	size_t places_size = memo->words * sizeof(*places);
	uint8_t *entry;
	uint32_t *slot;

	if (memo->count == memo->room && !grow(memo))
		return MEMO_NO_MEMORY;
	entry = entry_at(memo, memo->count);
	memset(entry + memo->entry_size - 8, 0, 8);
	memcpy(entry, places, places_size);
	memcpy(entry + places_size, state, sizeof(*state));
	slot = find(memo, entry);
	if (*slot)
		return MEMO_OLD;
	*slot = ++memo->count;
	return MEMO_NEW;
}
