#include "store/span.h"

void span_list(struct slab *slab, struct slab_class *class, uint32_t page)
{
	struct page_info *info = span_info(slab, page);

	info->previous = 0;
	info->next = class->listed;
	if (info->next)
		span_info(slab, info->next)->previous = page;
	class->listed = page;
	info->is_listed = true;
}

void span_unlist(struct slab *slab, struct slab_class *class, uint32_t page)
{
	struct page_info *info = span_info(slab, page);

	if (!info->is_listed)
		return;
	if (info->previous)
		span_info(slab, info->previous)->next = info->next;
	else
		class->listed = info->next;
	if (info->next)
		span_info(slab, info->next)->previous = info->previous;
	info->is_listed = false;
}

void span_ring_add(struct slab *slab, struct slab_class *class, uint32_t page)
{
	struct page_info *info = span_info(slab, page);
	uint32_t next = class->ring ? class->ring : page;
	uint32_t previous = class->ring ? span_info(slab, next)->ring_previous : page;

	info->ring_next = next;
	info->ring_previous = previous;
	span_info(slab, previous)->ring_next = page;
	span_info(slab, next)->ring_previous = page;
	SHOWN_SET(class->ring, next);
	SHOWN_SET(class->pages, class->pages + info->run);
}

void span_ring_remove(struct slab *slab, struct slab_class *class, uint32_t page)
{
	struct page_info *info = span_info(slab, page);

	span_info(slab, info->ring_previous)->ring_next = info->ring_next;
	span_info(slab, info->ring_next)->ring_previous = info->ring_previous;
	if (class->ring == page) {
		SHOWN_SET(class->ring, info->ring_next == page ? 0 : info->ring_next);
		class->hand_place = 0;
	}
	SHOWN_SET(class->pages, class->pages - info->run);
}

void span_push(struct slab *slab, struct slab_class *class, uint32_t page, uint64_t offset)
{
	struct page_info *info = span_info(slab, page);

	span_set_next(slab, offset, info->free_list);
	info->free_list = offset;
	SHOWN_SET(info->places_used, info->places_used - 1);
	SHOWN_SET(class->free_places, class->free_places + 1);
}

void span_release(struct slab *slab, struct slab_class *class, uint32_t page)
{
	span_unlist(slab, class, page);
	span_ring_remove(slab, class, page);
	SHOWN_SET(class->free_places, class->free_places - span_info(slab, page)->place_count);
	page_pool_give(slab->pool, page);
}

void span_return(struct slab *slab, struct slab_class *class, uint64_t offset)
{
	uint32_t page = page_head(slab->pool, (uint32_t)(offset >> STORE_PAGE_BITS));
	struct page_info *info = span_info(slab, page);

	span_push(slab, class, page, offset);
	if (info->is_draining)
		return;
	if (info->places_used == 0 &&
	    class->free_places >= (uint64_t)info->place_count + class->cache_places)
		span_release(slab, class, page);
	else if (!info->is_listed)
		span_list(slab, class, page);
}

bool span_add(struct slab *slab, struct slab_class *class)
{
	unsigned number = (unsigned)(class - slab->classes);
	uint32_t page = page_pool_take(slab->pool, class->span_pages, PAGE_SPAN, number);
	struct page_info *info;

	if (!page)
		return false;
	info = span_info(slab, page);
	info->place_count = class->span_places;
	SHOWN_SET(info->places_used, class->span_places);
	for (uint32_t i = class->span_places; i-- > 0;) {
		uint64_t offset = span_offset(page) + i * class->size;

		atomic_store_explicit(&span_place(slab, offset)->version, 0, memory_order_relaxed);
		span_push(slab, class, page, offset);
	}
	span_ring_add(slab, class, page);
	span_list(slab, class, page);
	return true;
}
