/* LRU: see lru.h. A ring of links through the head; a key whose link points to itself is not there.
 * Key numbers are below 2^32 - 1 (options.c allows fewer). */
#include "lru.h"

#include <stdlib.h>

#include "base/error.h"

enum rmr_status lru_init(struct lru *lru, uint64_t keys, uint64_t room)
{
	*lru = (struct lru){.room = room};
	lru->links = malloc((keys + 1) * sizeof(*lru->links));
	if (!lru->links)
		return error_set(RMR_NO_MEMORY, "a list of %llu keys", (unsigned long long)keys);
	for (uint64_t i = 0; i <= keys; i++)
		lru->links[i] = (struct lru_link){(uint32_t)i, (uint32_t)i};
	return RMR_OK;
}

void lru_fini(struct lru *lru)
{
	free(lru->links);
	*lru = (struct lru){0};
}

static void take_out(struct lru *lru, uint32_t at)
{
	struct lru_link *link = &lru->links[at];

	lru->links[link->newer].older = link->older;
	lru->links[link->older].newer = link->newer;
	*link = (struct lru_link){at, at};
}

bool lru_use(struct lru *lru, uint64_t key)
{
	uint32_t at = (uint32_t)key + 1;
	bool there = lru->links[at].newer != at;

	if (there)
		take_out(lru, at);
	else if (lru->count < lru->room)
		lru->count++;
	else
		take_out(lru, lru->links[0].newer); /* the ring closes there: the oldest */
	lru->links[at] = (struct lru_link){.newer = 0, .older = lru->links[0].older};
	lru->links[lru->links[0].older].newer = at;
	lru->links[0].older = at;
	return there;
}
