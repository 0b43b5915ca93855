#include "store/pages.h"

#include "store/why.h"

/* Bin of runs of exactly this many pages or more, up to the next bin's. */
static unsigned bin_of(uint32_t pages)
{
	unsigned bits;

	if (pages < 4)
		return pages;
	bits = 31 - (unsigned)__builtin_clz(pages);
	return (bits - 1) * 4 + (pages >> (bits - 2) & 3);
}

static void set_use(struct page_info *info, enum page_use use)
{
	/* Release: who finds the use by page_use() sees what was written about the page before. */
	atomic_store_explicit(&info->use, (uint8_t)use, memory_order_release);
}

static void bin_add(struct page_pool *pool, uint32_t page, uint32_t pages)
{
	struct page_info *info = &pool->table[page];
	unsigned bin = bin_of(pages);

	info->run = pages;
	info->previous = 0;
	info->next = pool->bins[bin];
	if (info->next)
		pool->table[info->next].previous = page;
	pool->bins[bin] = page;
	pool->bitmap[bin / 64] |= (uint64_t)1 << bin % 64;
	if (pages > 1) {
		pool->table[page + pages - 1].head = page;
		set_use(&pool->table[page + pages - 1], PAGE_FREE_LAST);
	}
	set_use(info, PAGE_FREE);
	SHOWN_SET(pool->free_pages, pool->free_pages + pages);
}

static void bin_remove(struct page_pool *pool, uint32_t page)
{
	struct page_info *info = &pool->table[page];
	unsigned bin = bin_of(info->run);

	if (info->previous)
		pool->table[info->previous].next = info->next;
	else
		pool->bins[bin] = info->next;
	if (info->next)
		pool->table[info->next].previous = info->previous;
	if (!pool->bins[bin])
		pool->bitmap[bin / 64] &= ~((uint64_t)1 << bin % 64);
	SHOWN_SET(pool->free_pages, pool->free_pages - info->run);
}

void page_pool_init(struct page_pool *pool, struct page_info *table, uint32_t first, uint32_t count)
{
	*pool = (struct page_pool){
		.table = table, .first = first, .count = count, .floor = count, .hand = first};
	spin_lock_init(&pool->lock);
}

/* Writes down that pages [page, page + pages) are one run in use. */
static void mark_used(struct page_pool *pool, uint32_t page, uint32_t pages, enum page_use use,
		      unsigned size_class)
{
	struct page_info *info = &pool->table[page];

	for (uint32_t i = 1; i < pages; i++) {
		pool->table[page + i].head = page;
		set_use(&pool->table[page + i], PAGE_BODY);
	}
	info->size_class = (uint8_t)size_class;
	info->is_draining = false;
	info->is_listed = false;
	info->run = pages;
	info->next = info->previous = 0;
	info->ring_next = info->ring_previous = 0;
	info->place_count = 0;
	SHOWN_SET(info->places_used, 0);
	info->free_list = 0;
	atomic_store_explicit(&info->soonest_ms, UINT64_MAX, memory_order_relaxed);
	set_use(info, use);
}

void page_pool_adopt(struct page_pool *pool, uint32_t page, uint32_t pages, enum page_use use,
		     unsigned size_class)
{
	if (use == PAGE_FREE)
		bin_add(pool, page, pages);
	else
		mark_used(pool, page, pages, use, size_class);
}

/* A free run of at least `pages`: of the first bin in which all are long enough, or else the first
 * one that is in the bin where some are. */
static uint32_t find_run(const struct page_pool *pool, uint32_t pages)
{
	unsigned bin = bin_of(pages);

	for (unsigned i = bin + 1; i < PAGE_BINS; i = (i / 64 + 1) * 64) {
		uint64_t rest = pool->bitmap[i / 64] >> i % 64;

		if (rest)
			return pool->bins[i + (unsigned)__builtin_ctzll(rest)];
	}
	for (uint32_t page = pool->bins[bin]; page; page = pool->table[page].next) {
		if (pool->table[page].run >= pages)
			return page;
	}
	return 0;
}

uint32_t page_pool_take(struct page_pool *pool, uint32_t pages, enum page_use use,
			unsigned size_class)
{
	uint32_t page = 0, run;

	spin_lock_take(&pool->lock);
	/* An exact fit first, for the common single page. */
	if (pages < pool->least)
		page = 0;
	else if (pages < 4 && pool->bins[pages])
		page = pool->bins[pages];
	else if (pages && pages <= pool->free_pages)
		page = find_run(pool, pages);
	if (page) {
		run = pool->table[page].run;
		bin_remove(pool, page);
		if (run > pages)
			bin_add(pool, page + pages, run - pages);
		mark_used(pool, page, pages, use, size_class);
	}
	spin_lock_give(&pool->lock);
	return page;
}

uint32_t page_pool_take_high(struct page_pool *pool, enum page_use use)
{
	uint32_t page = 0, head, run;
	enum page_use below;

	spin_lock_take(&pool->lock);
	below = pool->floor > pool->first ? page_use(pool, pool->floor - 1) : PAGE_BODY;
	if (pool->least <= 1 && (below == PAGE_FREE || below == PAGE_FREE_LAST)) {
		page = pool->floor - 1;
		head = below == PAGE_FREE ? page : pool->table[page].head;
		run = pool->table[head].run;
		bin_remove(pool, head);
		if (run > 1)
			bin_add(pool, head, run - 1);
		mark_used(pool, page, 1, use, 0);
		pool->floor = page;
	}
	spin_lock_give(&pool->lock);
	return page ? page : page_pool_take(pool, 1, use, 0);
}

void page_pool_hold(struct page_pool *pool, uint32_t least)
{
	spin_lock_take(&pool->lock);
	pool->least = least;
	spin_lock_give(&pool->lock);
}

void page_pool_give(struct page_pool *pool, uint32_t page)
{
	uint32_t start = page, pages, end;

	spin_lock_take(&pool->lock);
	pages = pool->table[page].run;
	end = page + pages;
	for (uint32_t i = page; i < end; i++)
		set_use(&pool->table[i], PAGE_FREE_BODY);
	if (end < pool->count && page_use(pool, end) == PAGE_FREE) {
		pages += pool->table[end].run;
		bin_remove(pool, end);
		set_use(&pool->table[end], PAGE_FREE_BODY);
	}
	if (start > pool->first) {
		enum page_use before = page_use(pool, start - 1);

		if (before == PAGE_FREE || before == PAGE_FREE_LAST) {
			start = before == PAGE_FREE ? start - 1 : pool->table[start - 1].head;
			pages += pool->table[start].run;
			bin_remove(pool, start);
			set_use(&pool->table[page - 1], PAGE_FREE_BODY);
		}
	}
	if (pool->hand > start && pool->hand < start + pages)
		pool->hand = start;
	if (pool->floor >= start && pool->floor < start + pages)
		pool->floor = start + pages;
	bin_add(pool, start, pages);
	spin_lock_give(&pool->lock);
}

static bool is_in_bin(const struct page_pool *pool, uint32_t page)
{
	uint32_t found = pool->bins[bin_of(pool->table[page].run)];

	while (found && found != page)
		found = pool->table[found].next;
	return found == page;
}

/* Whether page `i` of the run is marked as it should be; 0 is the first. */
static bool is_inner(const struct page_pool *pool, uint32_t page, uint32_t i)
{
	enum page_use use = page_use(pool, page + i);

	if (page_use(pool, page) != PAGE_FREE)
		return use == PAGE_BODY && page_head(pool, page + i) == page;
	if (i == pool->table[page].run - 1)
		return use == PAGE_FREE_LAST && pool->table[page + i].head == page;
	return use == PAGE_FREE_BODY;
}

bool page_pool_is_valid(struct page_pool *pool, char *why, size_t why_size)
{
	uint32_t free_pages = 0;
	bool after_free = false, hand_seen = false;

	for (uint32_t page = pool->first; page < pool->count; page += pool->table[page].run) {
		const struct page_info *info = &pool->table[page];
		enum page_use use = page_use(pool, page);

		if (info->run == 0 || info->run > pool->count - page)
			return invalid(why, why_size, "page %u: run of %u", page, info->run);
		if (use == PAGE_FREE_LAST || use == PAGE_FREE_BODY || use == PAGE_BODY)
			return invalid(why, why_size, "page %u begins no run", page);
		if (use == PAGE_FREE && after_free)
			return invalid(why, why_size, "page %u: free runs not joined", page);
		if (use == PAGE_FREE && !is_in_bin(pool, page))
			return invalid(why, why_size, "page %u: not in its bin", page);
		for (uint32_t i = 1; i < info->run; i++) {
			if (!is_inner(pool, page, i))
				return invalid(why, why_size, "page %u: wrong head or use",
					       page + i);
		}
		after_free = use == PAGE_FREE;
		free_pages += after_free ? info->run : 0;
		hand_seen |= page == pool->hand;
	}
	if (free_pages != pool->free_pages)
		return invalid(why, why_size, "%u free pages, %u counted", pool->free_pages,
			       free_pages);
	if (!hand_seen)
		return invalid(why, why_size, "the hand is inside a run");
	return true;
}
