/* Which key is next: see choose.h. */
#include "choose.h"

#define ZIPF_STALE 64u /* of so many parts of the keys one may be new before ranks are redone */

void choose_init(struct chooser *chooser, const struct pass *pass, uint64_t keys, unsigned index,
		 unsigned count)
{
	*chooser = (struct chooser){
		.distribution = pass->distribution,
		.skew = pass->skew,
		.keys = keys,
		.first = keys * index / count,
		.last = keys * (index + 1) / count,
	};
	chooser->at = chooser->first;
	chooser->zipf_count = keys;
	zipf_init(&chooser->zipf, keys, pass->skew);
}

static uint64_t choose_latest(struct chooser *chooser, struct dice *dice,
			      const struct shared *shared)
{
	uint64_t visible = atomic_load(&shared->visible);

	if (visible < chooser->keys)
		visible = chooser->keys;
	if (visible - chooser->zipf_count > chooser->zipf_count / ZIPF_STALE) {
		chooser->zipf_count = visible;
		zipf_init(&chooser->zipf, visible, chooser->skew);
	}
	return visible - zipf_draw(&chooser->zipf, dice);
}

static uint64_t choose_next(struct chooser *chooser)
{
	uint64_t number = chooser->at++;

	if (chooser->at >= chooser->last)
		chooser->at = chooser->first;
	return number;
}

uint64_t choose_key(struct chooser *chooser, struct dice *dice, const struct shared *shared)
{
	switch (chooser->distribution) {
	case DIST_ZIPF:
		return zipf_draw(&chooser->zipf, dice) - 1;
	case DIST_LATEST:
		return choose_latest(chooser, dice, shared);
	case DIST_SEQUENTIAL:
		return choose_next(chooser);
	default:
		return dice_below(dice, chooser->keys);
	}
}

uint64_t choose_new(struct shared *shared, struct slot *slot)
{
	if (atomic_load(&slot->inserting) == NOT_INSERTING)
		atomic_store(&slot->inserting, atomic_load(&shared->next));
	return atomic_fetch_add(&shared->next, 1);
}

void choose_inserted(struct shared *shared, struct slot *slot, uint64_t oldest)
{
	uint64_t least = atomic_load(&shared->next), visible;

	atomic_store(&slot->inserting, oldest);
	for (unsigned i = 0; i < shared->slot_count; i++) {
		uint64_t bound = atomic_load(&shared->slots[i].inserting);

		if (bound < least)
			least = bound;
	}
	visible = atomic_load(&shared->visible);
	while (visible < least && !atomic_compare_exchange_weak(&shared->visible, &visible, least))
		;
}
