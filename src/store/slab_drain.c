/*
 * Slabs: emptying spans, taking them in again, and checking them. Apart from slab.c because none of
 * this is on the way of a put.
 */

#include "store/span.h"
#include "store/why.h"

/* Takes from the workers what they keep of the class, or of one of its spans alone. */
static void recall_places(struct slab *slab, unsigned number, uint32_t page,
			  struct slab_worker *const *workers, unsigned worker_count)
{
	struct slab_class *class = &slab->classes[number];

	for (unsigned i = 0; i < worker_count; i++) {
		struct slab_cache *cache = workers[i] ? &workers[i]->caches[number] : NULL;
		uint32_t kept = 0;

		if (!cache)
			continue;
		spin_lock_take(&cache->lock);
		for (uint32_t j = 0; j < cache->count; j++) {
			uint64_t offset = cache->places[j];

			if (page &&
			    page_head(slab->pool, (uint32_t)(offset >> STORE_PAGE_BITS)) != page) {
				cache->places[kept++] = offset;
				continue;
			}
			spin_lock_take(&class->lock);
			span_return(slab, class, offset);
			spin_lock_give(&class->lock);
		}
		cache->count = kept;
		spin_lock_give(&cache->lock);
	}
}

void slab_recall(struct slab *slab, unsigned slab_class, struct slab_worker *const *workers,
		 unsigned worker_count)
{
	recall_places(slab, slab_class, 0, workers, worker_count);
}

bool slab_drain_begin(struct slab *slab, uint32_t page, struct slab_worker *const *workers,
		      unsigned worker_count)
{
	struct page_info *info = span_info(slab, page);
	unsigned number = info->size_class;
	struct slab_class *class = &slab->classes[number];
	bool is_span;

	/* Whoever frees its last place gives the span back, with the class locked. */
	spin_lock_take(&class->lock);
	is_span = page_use(slab->pool, page) == PAGE_SPAN && info->size_class == number;
	if (is_span) {
		span_unlist(slab, class, page);
		info->is_draining = true;
	}
	spin_lock_give(&class->lock);
	if (is_span)
		recall_places(slab, number, page, workers, worker_count);
	return is_span;
}

bool slab_drain_end(struct slab *slab, uint32_t page, struct slab_worker *const *workers,
		    unsigned worker_count)
{
	struct page_info *info = span_info(slab, page);
	struct slab_class *class = &slab->classes[info->size_class];
	bool empty;

	recall_places(slab, info->size_class, page, workers, worker_count);
	spin_lock_take(&class->lock);
	info->is_draining = false;
	empty = info->places_used == 0;
	if (empty)
		span_release(slab, class, page);
	else if (info->free_list)
		span_list(slab, class, page);
	spin_lock_give(&class->lock);
	return empty;
}

/* ------------------------------------------------------------------------------------------
 * The hand
 */

#define EMPTIEST_OF 32 /* spans looked at */

/* The class is locked. */
static bool hand_count(struct slab_class *class, uint32_t places)
{
	class->hand_visits += places;
	if (class->hand_visits < class->pages / class->span_pages * class->span_places)
		return false;
	class->hand_visits = 0;
	return true;
}

unsigned slab_hand_next(struct slab *slab, unsigned slab_class, uint64_t *offsets, unsigned count,
			bool *lapped)
{
	struct slab_class *class = &slab->classes[slab_class];
	unsigned visited = 0;

	*lapped = false;
	spin_lock_take(&class->lock);
	while (class->ring && visited < count && !*lapped) {
		const struct page_info *info = span_info(slab, class->ring);

		offsets[visited++] = span_offset(class->ring) + class->hand_place * class->size;
		if (++class->hand_place >= class->span_places) {
			class->hand_place = 0;
			SHOWN_SET(class->ring, info->ring_next);
		}
		*lapped = hand_count(class, slab_class == SLAB_LONG ? info->run : 1);
	}
	spin_lock_give(&class->lock);
	return visited;
}

uint32_t slab_hand_next_span(struct slab *slab, unsigned slab_class, bool *lapped)
{
	struct slab_class *class = &slab->classes[slab_class];
	uint32_t page;

	*lapped = false;
	spin_lock_take(&class->lock);
	page = class->ring;
	if (page) {
		const struct page_info *info = span_info(slab, page);

		*lapped = hand_count(class, slab_class == SLAB_LONG
						    ? info->run
						    : class->span_places - class->hand_place);
		class->hand_place = 0;
		SHOWN_SET(class->ring, info->ring_next);
	}
	spin_lock_give(&class->lock);
	return page;
}

uint32_t slab_emptiest(struct slab *slab, unsigned slab_class)
{
	struct slab_class *class = &slab->classes[slab_class];
	uint32_t best = 0, page, seen = 0;

	spin_lock_take(&class->lock);
	for (page = class->listed; page && seen < EMPTIEST_OF; seen++) {
		if (!best ||
		    span_info(slab, page)->places_used < span_info(slab, best)->places_used)
			best = page;
		page = span_info(slab, page)->next;
	}
	spin_lock_give(&class->lock);
	return best;
}

/* ------------------------------------------------------------------------------------------
 * Rebuilding
 */

void slab_adopt(struct slab *slab, uint32_t page)
{
	struct page_info *info = span_info(slab, page);
	struct slab_class *class = &slab->classes[info->size_class];

	if (info->size_class != SLAB_LONG)
		info->place_count = info->places_used = class->span_places;
	span_ring_add(slab, class, page);
}

void slab_give_unused(struct slab *slab, uint64_t offset)
{
	uint32_t page = slab_page_of(slab, offset);
	struct slab_class *class = &slab->classes[span_info(slab, page)->size_class];

	spin_lock_take(&class->lock);
	if (page_use(slab->pool, page) == PAGE_LONG) {
		span_ring_remove(slab, class, page);
		page_pool_give(slab->pool, page);
	} else {
		span_return(slab, class, offset);
	}
	spin_lock_give(&class->lock);
}

/* ------------------------------------------------------------------------------------------
 * Checks
 */

/* Counts the span's free list, which may hold each place once, and only its own. */
static bool span_is_valid(const struct slab *slab, const struct slab_class *class, uint32_t page,
			  char *why, size_t why_size)
{
	const struct page_info *info = span_info(slab, page);
	uint32_t count = 0;

	for (uint64_t at = info->free_list; at; at = span_next(slab, at)) {
		if (++count > info->place_count)
			return invalid(why, why_size, "span %u: free list has a loop", page);
		if (page_head(slab->pool, (uint32_t)(at >> STORE_PAGE_BITS)) != page ||
		    (at - span_offset(page)) % class->size)
			return invalid(why, why_size, "span %u: strange free place", page);
		if (item_version(span_place(slab, at)))
			return invalid(why, why_size, "span %u: a free place has a version", page);
	}
	if (count + info->places_used != info->place_count ||
	    info->place_count != class->span_places)
		return invalid(why, why_size, "span %u: %u free and %u used of %u", page, count,
			       info->places_used, info->place_count);
	if (info->is_listed != (count > 0) || info->is_draining)
		return invalid(why, why_size, "span %u: wrongly listed", page);
	return true;
}

static bool class_is_valid(struct slab *slab, unsigned number, uint64_t *used, char *why,
			   size_t why_size)
{
	struct slab_class *class = &slab->classes[number];
	uint64_t pages = 0, free_places = 0;
	uint32_t page = class->ring;

	*used = 0;
	if (page) {
		do {
			const struct page_info *info = span_info(slab, page);

			if (number != SLAB_LONG && !span_is_valid(slab, class, page, why, why_size))
				return false;
			pages += info->run;
			free_places += info->place_count - info->places_used;
			*used += number == SLAB_LONG ? 1 : info->places_used;
			page = info->ring_next;
		} while (page != class->ring && pages <= slab->pool->count);
	}
	if (pages != class->pages)
		return invalid(why, why_size, "class %u: %lu pages, %lu in the ring", number,
			       class->pages, pages);
	if (free_places != class->free_places)
		return invalid(why, why_size, "class %u: %lu places free, %lu counted", number,
			       class->free_places, free_places);
	return true;
}

bool slab_is_valid(struct slab *slab, struct slab_worker *const *workers, unsigned worker_count,
		   char *why, size_t why_size)
{
	for (unsigned number = 0; number < SLAB_CLASSES; number++) {
		int64_t items = 0;
		uint64_t used, kept = 0;

		if (!class_is_valid(slab, number, &used, why, why_size))
			return false;
		for (unsigned i = 0; i < worker_count; i++) {
			if (!workers[i])
				continue;
			items += atomic_load(&workers[i]->caches[number].items);
			kept += workers[i]->caches[number].count;
		}
		if (items < 0 || (uint64_t)items + kept != used)
			return invalid(why, why_size,
				       "class %u: %lu places used, %ld by items, %lu kept", number,
				       used, items, kept);
	}
	return true;
}
