/* Locations: see location.h. */
#include "client/location.h"

#include <stdlib.h>
#include <string.h>

/* Sets to begin with: 256 entries, 12 KB. */
#define FIRST_SETS 64u

bool locations_init(struct locations *locations, uint32_t entries)
{
	uint32_t sets = 1;

	while (sets < UINT32_MAX / LOCATION_WAYS / 4 && sets * LOCATION_WAYS < entries)
		sets *= 2;
	*locations = (struct locations){.max_sets = sets};
	if (sets > FIRST_SETS)
		sets = FIRST_SETS;
	locations->set_mask = sets - 1;
	locations->entries = calloc((size_t)sets * LOCATION_WAYS, sizeof(*locations->entries));
	return locations->entries != NULL;
}

uint32_t locations_capacity(const struct locations *locations)
{
	return locations->entries ? (locations->set_mask + 1) * LOCATION_WAYS : 0;
}

void locations_fini(struct locations *locations)
{
	free(locations->entries);
	*locations = (struct locations){0};
}

static struct location *set_of(struct locations *locations, uint64_t hash)
{
	return &locations->entries[(size_t)(hash & locations->set_mask) * LOCATION_WAYS];
}

static struct location *find(struct locations *locations, uint64_t hash)
{
	struct location *set;

	if (!locations->entries)
		return NULL;
	set = set_of(locations, hash);
	for (unsigned i = 0; i < LOCATION_WAYS; i++) {
		if (set[i].hash == hash && set[i].used)
			return &set[i];
	}
	return NULL;
}

/* Doubles the number of sets. Each set becomes two, told apart by one more bit of the hash, and an
 * entry keeps its way: so none finds its new place taken. Returns false and changes nothing when
 * there is no memory. */
static bool grow(struct locations *locations)
{
	size_t count = locations_capacity(locations);
	uint64_t bit = (uint64_t)locations->set_mask + 1;
	struct location *entries =
		realloc(locations->entries, 2 * count * sizeof(*locations->entries));

	if (!entries)
		return false;
	memset(entries + count, 0, count * sizeof(*entries));
	for (size_t i = 0; i < count; i++) {
		if (!entries[i].used || !(entries[i].hash & bit))
			continue;
		entries[count + i] = entries[i];
		entries[i] = (struct location){0};
	}
	locations->entries = entries;
	locations->set_mask = (uint32_t)(2 * bit - 1);
	return true;
}

/* Returns an unused entry of the hash's set, else the one whose last use is longest ago. */
static struct location *find_oldest(struct locations *locations, uint64_t hash)
{
	struct location *set = set_of(locations, hash), *found = set;

	for (unsigned i = 1; i < LOCATION_WAYS; i++) {
		/* The count of uses wraps around, so ages are compared. */
		if (!found->used ||
		    (set[i].used && locations->now - set[i].used <= locations->now - found->used))
			continue;
		found = &set[i];
	}
	return found;
}

/* Returns the entry of this hash. Without one it makes one, by growing or in place of another. */
static struct location *find_or_make(struct locations *locations, uint64_t hash)
{
	struct location *found = find(locations, hash);

	if (found || !locations->entries)
		return found;
	found = find_oldest(locations, hash);
	/* Growing pays when an entry is about to be lost, unless half of all are unused: then this
	 * set has more than its share, and others have room. */
	if (found->used && locations->set_mask + 1 < locations->max_sets &&
	    locations->used_count >= locations_capacity(locations) / 2 && grow(locations))
		found = find_oldest(locations, hash);
	locations->used_count += !found->used;
	*found = (struct location){.hash = hash, .cell = LOCATION_NO_CELL};
	return found;
}

static void use(struct locations *locations, struct location *location)
{
	if (++locations->now == 0)
		locations->now = 1;
	location->used = locations->now;
}

void locations_clear(struct locations *locations)
{
	if (!locations->entries)
		return;
	memset(locations->entries, 0, locations_capacity(locations) * sizeof(*locations->entries));
	locations->used_count = 0;
}

void locations_clear_cells(struct locations *locations)
{
	if (!locations->entries)
		return;
	for (size_t i = 0; i < locations_capacity(locations); i++)
		locations->entries[i].cell = LOCATION_NO_CELL;
}

const struct location *locations_find(struct locations *locations, uint64_t hash)
{
	struct location *found = find(locations, hash);

	if (!found)
		return NULL;
	use(locations, found);
	if (found->cell != LOCATION_NO_CELL)
		return found;
	if (!found->offset)
		return NULL;
	if (found->doubt >= LOCATION_DOUBTFUL) {
		/* Asked for this time; after some times it is tried again. */
		found->doubt--;
		return NULL;
	}
	return found;
}

struct location *locations_peek(struct locations *locations, uint64_t hash)
{
	struct location *found = find(locations, hash);

	return found && found->offset && found->doubt < LOCATION_DOUBTFUL ? found : NULL;
}

void locations_learn(struct locations *locations, const struct location *place)
{
	struct location *found = find_or_make(locations, place->hash);

	if (!found)
		return;
	found->offset = place->offset;
	found->version = place->version;
	found->size = place->size;
	found->cell = place->cell;
	found->check = place->check;
	use(locations, found);
}

void locations_confirm_found(struct locations *locations, struct location *found, uint64_t version)
{
	found->version = version;
	use(locations, found);
	found->doubt -= found->doubt > 0;
}

void locations_confirm(struct locations *locations, uint64_t hash, uint64_t offset,
		       uint64_t version)
{
	struct location *found = find(locations, hash);

	/* Another one may have been learned meanwhile. */
	if (found)
		locations_confirm_found(locations, found,
					found->offset == offset ? version : found->version);
}

void locations_doubt(struct locations *locations, uint64_t hash)
{
	struct location *found = find(locations, hash);

	if (!found)
		return;
	found->offset = 0;
	found->cell = LOCATION_NO_CELL;
	found->doubt =
		found->doubt + 3 < LOCATION_MAX_DOUBT ? found->doubt + 3 : LOCATION_MAX_DOUBT;
}

void locations_forget(struct locations *locations, uint64_t hash)
{
	struct location *found = find(locations, hash);

	if (!found)
		return;
	found->offset = 0;
	found->cell = LOCATION_NO_CELL;
}
