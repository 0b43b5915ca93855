/*
 * Room: what happens when no page is free.
 *
 * For an item of a slab class there are three ways. Mostly it is the last; every now and then, and
 * when the class has no pages, the others are tried before it:
 *
 * 1. Compaction. A class that has as many free places as a whole span can empty one: its items move
 *    to free places of other spans. Nothing is lost.
 * 2. Balance. If some class has been left alone for much longer than ours takes to go round, that
 *    class's hand goes over one span, and the span is taken from it if most of it is cold. So
 *    memory goes where it is used, whatever was there first, and a class whose items are in use
 *    keeps them, for its hand finds them warm.
 * 3. Eviction in our own class (evict.c).
 *
 * For a long item and for the index pages in a row are needed: a hand goes over the arena's pages
 * and empties what lies in a window of that length, unless it is warm, pinned or part of the index.
 * After a lap it does not ask for warmth any more.
 *
 * With STORE_REJECT only compaction is done.
 */
#include "base/clock.h"
#include "store/internal.h"

/* Tries of a put before it is answered that there is no memory. Others may take what we freed. */
#define TAKE_TRIES   64
#define URGENT_AFTER 8
/* Of these, those that found nothing to evict. */
#define PATIENCE 8
/* Balance is looked at in every so many calls. */
#define BALANCE_EVERY 8u
/* How much older another class has to be to give us memory. */
#define MUCH_OLDER 2u
/* Spans looked at in a class that has to give one. */
#define SPAN_TRIES 64
/* Rounds over all pages until it is clear that no window can be made free. */
#define MAX_LAPS 3
/* Pages of what may be emptied to make room for one page of the index. */
#define SHORT_RUN 16u
/* Calls for a page of the index that are not tried after one that failed. */
#define INDEX_PAUSE 256

static uint64_t age_of(const struct class_pace *pace, uint64_t now)
{
	uint64_t began = pace->lap_began_ns, last = pace->last_lap_ns;
	/* It may have begun after `now` was taken. */
	uint64_t lap = began < now ? now - began : 0;

	return lap > last ? lap : last;
}

/* ------------------------------------------------------------------------------------------
 * Emptying a span
 */

static const struct slab_class *span_class(const struct store *store, uint32_t page)
{
	return &store->slab.classes[store->pool.table[page].size_class];
}

/* Whether at least half of its places are cold; takes heat away from the others. */
static bool cool_span(struct store *store, uint32_t page)
{
	const struct slab_class *class = span_class(store, page);
	uint64_t offset = (uint64_t)page << STORE_PAGE_BITS;
	uint32_t cold = 0;

	for (uint32_t i = 0; i < class->span_places; i++)
		cold += heat_down(store, offset + i * class->size);
	return cold * 2 >= class->span_places;
}

/* Whether all that is used of a span are items that nobody has pinned, but for `others`: else there
 * is a draft, or something dead that views keep, and emptying the rest would be for nothing. */
static bool can_be_emptied(const struct store *store, uint32_t page, uint32_t others)
{
	const struct slab_class *class = span_class(store, page);
	uint64_t begin = (uint64_t)page << STORE_PAGE_BITS;
	uint32_t living = 0;

	for (uint32_t i = 0; i < class->span_places; i++) {
		const struct item *item = item_at(store, begin + i * class->size);

		if (item_version(item) == 0)
			continue;
		if (item_pins(item))
			return false;
		living++;
	}
	return living + others >=
	       __atomic_load_n(&store->pool.table[page].places_used, __ATOMIC_RELAXED);
}

/* Moves the span's items elsewhere, or evicts them if it may. True: its pages are free, or were so
 * already. The reclaim lock is held. */
static bool empty_span(struct store_worker *worker, uint32_t page, bool may_evict)
{
	struct store *store = worker->store;
	const struct slab_class *class = span_class(store, page);
	uint64_t begin = (uint64_t)page << STORE_PAGE_BITS;
	bool going_on;

	if (!slab_drain_begin(&store->slab, page, store->slabs, store->worker_count))
		return true;
	going_on = can_be_emptied(store, page, 0);
	for (uint32_t i = 0; i < class->span_places && going_on; i++) {
		uint64_t offset = begin + i * class->size;

		if (item_version(item_at(store, offset)) == 0)
			continue;
		going_on = life_move(worker, offset) || (may_evict && evict_at(worker, offset));
	}
	if (!slab_drain_end(&store->slab, page, store->slabs, store->worker_count))
		return false;
	STAT_ADD(worker->stats.pages_moved, class->span_pages);
	return true;
}

/* As many free places as a span has: the items of one would fit into the others. What workers keep
 * counts, and is taken from them where it decides. The reclaim lock is held. */
static bool is_sparse(struct store *store, unsigned number)
{
	struct slab_class *class = &store->slab.classes[number];
	uint64_t unused = __atomic_load_n(&class->free_places, __ATOMIC_RELAXED);
	uint64_t pages = __atomic_load_n(&class->pages, __ATOMIC_RELAXED);

	if (pages && unused < class->span_places &&
	    unused + (uint64_t) class->cache_places * store->worker_count >= class->span_places) {
		slab_recall(&store->slab, number, store->slabs, store->worker_count);
		unused = __atomic_load_n(&class->free_places, __ATOMIC_RELAXED);
	}
	/* Spans that became empty just now are gone already. */
	return unused >= class->span_places ||
	       __atomic_load_n(&class->pages, __ATOMIC_RELAXED) < pages;
}

static bool any_is_sparse(struct store *store)
{
	for (unsigned i = 0; i < SLAB_CLASS_COUNT; i++) {
		if (is_sparse(store, i))
			return true;
	}
	return false;
}

static bool compact(struct store_worker *worker)
{
	struct store *store = worker->store;

	for (unsigned i = 0; i < SLAB_CLASS_COUNT; i++) {
		uint32_t page;

		if (!is_sparse(store, i))
			continue;
		page = slab_emptiest(&store->slab, i);
		if (page && empty_span(worker, page, false))
			return true;
	}
	return __atomic_load_n(&store->pool.free_pages, __ATOMIC_RELAXED) > 0;
}

/* ------------------------------------------------------------------------------------------
 * Balance between classes
 */

/* The class that was left alone longest, other than ours; SLAB_CLASSES: none has a page. */
static unsigned find_oldest(const struct store *store, unsigned ours, uint64_t now)
{
	unsigned oldest = SLAB_CLASSES;
	uint64_t most = 0;

	for (unsigned i = 0; i < SLAB_CLASSES; i++) {
		uint64_t age = age_of(&store->paces[i], now);

		if (i == ours || !__atomic_load_n(&store->slab.classes[i].ring, __ATOMIC_RELAXED))
			continue;
		if (oldest == SLAB_CLASSES || age > most) {
			oldest = i;
			most = age;
		}
	}
	return oldest;
}

/* Whether some class was left alone for much longer than ours takes to go round. */
static bool is_behind(const struct store *store, unsigned ours)
{
	uint64_t now = clock_now_ns();
	unsigned oldest = find_oldest(store, ours, now);

	return oldest != SLAB_CLASSES &&
	       age_of(&store->paces[oldest], now) / MUCH_OLDER > age_of(&store->paces[ours], now);
}

/* Takes one span from the class if it is cold, or anyway. */
static bool take_span_from(struct store_worker *worker, unsigned slab_class, bool anyway)
{
	struct store *store = worker->store;
	bool lapped;
	uint32_t page = slab_hand_next_span(&store->slab, slab_class, &lapped);

	if (lapped)
		evict_finish_lap(&store->paces[slab_class]);
	if (!page)
		return false;
	if (slab_class == SLAB_LONG) {
		uint64_t offset = (uint64_t)page << STORE_PAGE_BITS;

		return (heat_down(store, offset) || anyway) && evict_at(worker, offset);
	}
	return (cool_span(store, page) || anyway) && empty_span(worker, page, true);
}

/* Pages from another class. `ours` has none of its own, and must have some, if it is desperate. */
static bool balance(struct store_worker *worker, unsigned ours, bool desperate)
{
	struct store *store = worker->store;
	uint64_t now = clock_now_ns();
	unsigned oldest = find_oldest(store, ours, now);

	if (oldest == SLAB_CLASSES)
		return false;
	if (!desperate)
		return is_behind(store, ours) && take_span_from(worker, oldest, false);
	for (int tries = 0; tries < SPAN_TRIES; tries++) {
		if (take_span_from(worker, oldest, tries > SPAN_TRIES / 2))
			return true;
		oldest = find_oldest(store, ours, clock_now_ns());
		if (oldest == SLAB_CLASSES)
			return false;
	}
	return false;
}

/* ------------------------------------------------------------------------------------------
 * Pages in a row
 */

/* Part of a window: whether it can be made free, as far as can be told without trying. */
static bool is_movable(struct store *store, uint32_t page, bool anyway)
{
	uint64_t offset = (uint64_t)page << STORE_PAGE_BITS;

	switch (page_use(&store->pool, page)) {
	case PAGE_FREE:
		return true;
	case PAGE_LONG:
		/* Without a version it is a draft. */
		return (heat_down(store, offset) || anyway) &&
		       item_version(item_at(store, offset)) &&
		       item_pins(item_at(store, offset)) == 0;
	case PAGE_SPAN:
		/* Workers may keep some of its places. */
		return (cool_span(store, page) || anyway) &&
		       can_be_emptied(store, page,
				      span_class(store, page)->cache_places * store->worker_count);
	default:
		return false;
	}
}

/* The next run that the hand comes to; false: it has come round. */
static bool next_run(struct page_pool *pool, uint32_t *page, uint32_t *end)
{
	bool there;

	spin_lock_take(&pool->lock);
	there = pool->hand < pool->count;
	if (there) {
		*page = pool->hand;
		*end = pool->hand += pool->table[pool->hand].run;
	} else {
		pool->hand = pool->first;
	}
	spin_lock_give(&pool->lock);
	return there;
}

/* From the hand on, the first window of so many pages in which all is movable. 0: none before the
 * end of the arena. What it says may be wrong by the time it says so. */
static uint32_t find_window(struct store *store, uint32_t pages, bool anyway)
{
	uint32_t begin = 0, last_end = 0, page, end;

	while (next_run(&store->pool, &page, &end)) {
		if (!is_movable(store, page, anyway)) {
			last_end = 0;
			continue;
		}
		if (page != last_end)
			begin = page;
		last_end = end;
		if (end - begin >= pages)
			return begin;
	}
	return 0;
}

/* Frees what is in [page, end), run by run. False: something would not go. */
static bool empty_window(struct store_worker *worker, uint32_t page, uint32_t end, bool may_evict)
{
	struct store *store = worker->store;

	while (page < end) {
		enum page_use use;
		uint32_t run;

		spin_lock_take(&store->pool.lock);
		use = page_use(&store->pool, page);
		run = use == PAGE_SPAN || use == PAGE_LONG ? store->pool.table[page].run : 1;
		spin_lock_give(&store->pool.lock);
		if (use == PAGE_SPAN && !empty_span(worker, page, may_evict))
			return false;
		if (use == PAGE_LONG &&
		    !(may_evict && evict_at(worker, (uint64_t)page << STORE_PAGE_BITS)))
			return false;
		if (use == PAGE_BUCKETS || use == PAGE_OVERFLOW)
			return false;
		page += run;
	}
	return true;
}

static bool make_run(struct store_worker *worker, uint32_t pages)
{
	bool may_evict = worker->store->options.on_full == STORE_EVICT;
	int laps = 0;

	/* What is freed here is for us; others would take it page by page. Our caller ends that. */
	page_pool_hold(&worker->store->pool, pages);
	while (laps < MAX_LAPS) {
		uint32_t page = find_window(worker->store, pages, laps > 0 || !may_evict);

		if (!page)
			laps++;
		else if (empty_window(worker, page, page + pages, may_evict))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------------------------------
 * What puts ask for
 */

/* Memory of others for this class, or a long item: whole pages. The reclaim lock is held. */
static bool make_pages(struct store_worker *worker, unsigned class, uint32_t pages, bool has_pages)
{
	struct store *store = worker->store;

	/* Spans that are emptied one by one need not lie side by side. */
	if (pages > 1 && store->options.on_full == STORE_REJECT)
		return any_is_sparse(store) && make_run(worker, pages);
	if (pages > 1)
		return (class == SLAB_LONG || !has_pages || is_behind(store, class)) &&
		       make_run(worker, pages);
	return compact(worker) ||
	       (store->options.on_full == STORE_EVICT && balance(worker, class, !has_pages));
}

/* What puts want: of which class, how long, and what they got. */
struct wish {
	unsigned class;
	uint64_t size;
	uint32_t pages;	 /* in a row, that a span or the long item needs */
	uint64_t offset; /* taken already; 0: to be tried again */
	bool is_urgent;	 /* tried often */
};

/* The same, alone; and takes what it made, where others might be faster. */
static bool make_pages_alone(struct store_worker *worker, struct wish *wish, bool has_pages)
{
	struct store *store = worker->store;
	bool made;

	/* Whoever has the lock may be making room for something long. One who can help himself by
	 * evicting does not wait for that. */
	if (has_pages && wish->class != SLAB_LONG && store->options.on_full == STORE_EVICT) {
		if (!spin_lock_try(&store->reclaim))
			return false;
	} else {
		spin_lock_take(&store->reclaim);
	}
	made = make_pages(worker, wish->class, wish->pages, has_pages);
	/* Now, while nobody can hold pages for something long. One who has pages can wait. */
	if (made && (wish->pages > 1 || !has_pages))
		wish->offset = slab_take(&store->slab, &worker->slab, wish->size);
	page_pool_hold(&store->pool, 0);
	spin_lock_give(&store->reclaim);
	return made;
}

/* The last resort: what other workers keep of our class. */
static bool recall_own(struct store_worker *worker, unsigned class)
{
	struct store *store = worker->store;

	spin_lock_take(&store->reclaim);
	slab_recall(&store->slab, class, store->slabs, store->worker_count);
	spin_lock_give(&store->reclaim);
	return __atomic_load_n(&store->slab.classes[class].free_places, __ATOMIC_RELAXED) > 0;
}

/* True: it is worth trying again, or it is there. */
static bool make_room(struct store_worker *worker, struct wish *wish)
{
	struct store *store = worker->store;
	unsigned class = wish->class;
	bool evicting = store->options.on_full == STORE_EVICT;
	/* What is evicted from a span that somebody is just emptying does not come to us: after a
	 * few tries it is as if we had none. */
	bool has_pages = __atomic_load_n(&store->slab.classes[class].ring, __ATOMIC_RELAXED) &&
			 !wish->is_urgent;
	uint32_t calls = atomic_fetch_add(&store->paces[class].calls, 1);

	if (class == SLAB_LONG)
		return make_pages_alone(worker, wish, has_pages);
	if (evicting && has_pages && calls % BALANCE_EVERY && evict_some(worker, class))
		return true;
	if (make_pages_alone(worker, wish, has_pages))
		return true;
	/* If all that the class has is pinned or being written, others have to give. */
	return (evicting && (evict_some(worker, class) || make_pages_alone(worker, wish, false))) ||
	       recall_own(worker, class);
}

/*
 * Nothing to evict may mean that others have it in their hands just now, as drafts or on its way
 * from one place to another: in a store that evicts it is worth waiting for them a little.
 */
uint64_t room_take(struct store_worker *worker, uint64_t size)
{
	struct slab *slab = &worker->store->slab;
	struct wish wish = {.class = slab_class_of(size), .size = size};
	int patience = worker->store->options.on_full == STORE_EVICT ? PATIENCE : 0;

	wish.pages = wish.class == SLAB_LONG
			     ? (uint32_t)((size + STORE_PAGE_SIZE - 1) >> STORE_PAGE_BITS)
			     : slab->classes[wish.class].span_pages;
	for (int tries = 0; tries < TAKE_TRIES && !wish.offset; tries++) {
		wish.offset = slab_take(slab, &worker->slab, size);
		wish.is_urgent = tries >= URGENT_AFTER;
		if (wish.offset || make_room(worker, &wish))
			continue;
		if (patience-- == 0)
			break;
		sched_yield();
	}
	return wish.offset;
}

/* The page next to those that the index has, so that the rest stays in one piece. Only if it is
 * part of something short. */
static bool make_high_page(struct store_worker *worker)
{
	struct store *store = worker->store;
	uint32_t page, run;

	spin_lock_take(&store->pool.lock);
	page = store->pool.floor - 1;
	page = page < store->pool.first ? 0 : page_head(&store->pool, page);
	run = store->pool.table[page].run;
	spin_lock_give(&store->pool.lock);
	return page && run <= SHORT_RUN &&
	       empty_window(worker, page, page + 1, store->options.on_full == STORE_EVICT);
}

/*
 * An index that cannot grow only gets slower, so growing does not wait for others who make room,
 * nor does it try again and again: each failure lets many calls pass. A key that finds no place at
 * all needs the page now.
 */
bool room_for_index(struct store_worker *worker, bool is_needed)
{
	struct store *store = worker->store;
	bool made;

	if (!is_needed && atomic_load_explicit(&store->index_pause, memory_order_relaxed) > 0) {
		atomic_fetch_sub_explicit(&store->index_pause, 1, memory_order_relaxed);
		return false;
	}
	if (is_needed)
		spin_lock_take(&store->reclaim);
	else if (!spin_lock_try(&store->reclaim))
		return false;
	made = __atomic_load_n(&store->pool.free_pages, __ATOMIC_RELAXED) > 0 ||
	       make_high_page(worker) || compact(worker) ||
	       (store->options.on_full == STORE_EVICT && make_run(worker, 1));
	page_pool_hold(&store->pool, 0);
	spin_lock_give(&store->reclaim);
	if (!made)
		atomic_store_explicit(&store->index_pause, INDEX_PAUSE, memory_order_relaxed);
	return made;
}
