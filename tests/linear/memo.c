/*
 * Memo: a hash table of numbers of entries, which lie one after the other in an array that grows;
 * those of one slot are linked. Entries are compared in full: it is exact, nothing is taken for
 * seen because its hash was.
 *
 * An entry covers another if the certain operations and the state are the same, and it has used no
 * more of each optional lane. From there everything can be done that can be done from the other:
 * what is next in an optional lane does the same as what comes after it, and may come as early. So
 * where the one was in vain the other is, too, and the search need not go there. Without this many
 * lost answers would be fatal: each that was used for nothing on the way makes a place of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "checker_internal.h"

#define FIRST_ROOM 1024u

struct entry {
	uint32_t next; /* of the slot: its number + 1; 0: none */
	uint32_t hash; /* of the state and the certain places */
	struct model_state state;
	uint32_t places[]; /* in the certain lanes, then in the optional ones */
};

void memo_init(struct memo *memo, uint32_t lanes, uint32_t certain_lanes)
{
	size_t size = sizeof(struct entry) + lanes * sizeof(uint32_t);

	*memo = (struct memo){
		.lanes = lanes,
		.certain_lanes = certain_lanes,
		.entry_size = (size + 7) & ~(size_t)7,
	};
}

void memo_fini(struct memo *memo)
{
	free(memo->entries);
	free(memo->table);
	*memo = (struct memo){0};
}

static struct entry *entry_at(const struct memo *memo, uint32_t number)
{
	return (void *)(memo->entries + number * memo->entry_size);
}

static bool covers(const struct memo *memo, const struct entry *old, const struct entry *entry)
{
	if (old->hash != entry->hash ||
	    memcmp(&old->state, &entry->state, sizeof(old->state)) != 0 ||
	    memcmp(old->places, entry->places, memo->certain_lanes * sizeof(uint32_t)) != 0)
		return false;
	for (uint32_t i = memo->certain_lanes; i < memo->lanes; i++)
		if (old->places[i] > entry->places[i])
			return false;
	return true;
}

/* Puts the entry, which is in the array, into the table. */
static void link_entry(struct memo *memo, uint32_t number)
{
	struct entry *entry = entry_at(memo, number);
	uint32_t *slot = &memo->table[entry->hash & memo->table_mask];

	entry->next = *slot;
	*slot = number + 1;
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
		link_entry(memo, i);
	return true;
}

enum memo_answer memo_add(struct memo *memo, const uint32_t *places,
			  const struct model_state *state)
{
	struct entry *entry;
	uint64_t hash;

	if (memo->count == memo->room && !grow(memo))
		return MEMO_NO_MEMORY;
	entry = entry_at(memo, memo->count);
	entry->state = *state;
	memcpy(entry->places, places, memo->lanes * sizeof(*places));
	hash = hash64(&entry->state, sizeof(*state) + memo->certain_lanes * sizeof(*places));
	entry->hash = (uint32_t)hash;
	for (uint32_t at = memo->table[entry->hash & memo->table_mask]; at;
	     at = entry_at(memo, at - 1)->next) {
		memo->compared++;
		if (covers(memo, entry_at(memo, at - 1), entry))
			return MEMO_OLD;
	}
	link_entry(memo, memo->count++);
	return MEMO_NEW;
}
