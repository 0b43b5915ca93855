/*
 * Index: shrinking. It undoes the splits of index_grow.c, the last one first.
 *
 * A merge of the last bucket n, of depth d + 1, into the bucket b = n - 2^d that it was split from:
 *
 *	lock b and n
 *	add n's slots to b; empty n
 *	b gets depth d, n depth 0
 *	lower the count
 *	unlock b, unlock n
 *
 * A reader with an old count that looks at n finds it locked or of depth 0, and looks again with a
 * new count. One that looked at b or n before sees that the header changed.
 *
 * When a segment has no buckets left, its entry in the directory becomes 0 and its page is retired.
 * It can be given back when no thread will write to it any more. A thread that read the entry
 * before may still be about to set the lock bit of a bucket in the page; each such thread has a
 * guard (index_lock):
 *
 *	the thread			who gives back
 *
 *	guard = set			entry = 0
 *	(fence for the compiler)	barrier in all threads
 *	page = entry			wait until guard is clear
 *	lock a bucket of the page	give the page back
 *	guard = clear
 *
 * The barrier, membarrier(2), takes effect at some moment in each thread. If the thread set its
 * guard before that moment, the guard is seen set until the thread is done with the page. If it
 * sets the guard later, it reads the entry later, too, and finds 0. So the threads, which lock
 * often, need no fence; shrinking, which is seldom, pays for it. A thread that has locked a bucket
 * to which its key belongs needs no guard: the bucket cannot be merged before it is unlocked.
 *
 * Readers have no guard. They may read a page that was given back, and find it out by the count of
 * shrinks (reader.c).
 */
#include "store/index.h"

/* Moves all slots of `upper` to `lower`. False: they do not fit, nothing has changed. */
static bool unite(struct index *index, struct index_lock *lower, struct index_lock *upper)
{
	struct index_chain moving, staying;

	index_collect(index, upper, &moving);
	index_collect(index, lower, &staying);
	if (moving.count + staying.count > INDEX_MAX_SLOTS)
		return false;
	for (unsigned i = 0; i < moving.count; i++) {
		if (!index_add(index, lower, moving.slots[i])) {
			index_refill(index, lower, staying.slots, staying.count);
			return false;
		}
	}
	index_refill(index, upper, NULL, 0);
	return true;
}

/* The segment's buckets are all gone. The growing lock is held. */
static void retire_segment(struct index *index, uint64_t first)
{
	_Atomic uint32_t *entry = &index->directory[first >> SEGMENT_BITS];
	uint32_t page = atomic_load_explicit(entry, memory_order_relaxed);

	/* Relaxed: give_page() and the barrier order it before the page's next use. */
	atomic_store_explicit(entry, 0, memory_order_relaxed);
	index->pool->table[page].next = index->retired;
	index->retired = page;
}

/* Merges the last of `count` buckets. The growing lock is held. */
static bool merge_last(struct index *index, uint64_t count)
{
	uint64_t last = count - 1;
	unsigned depth = depth_of_count(last);
	struct index_lock lower = index_lock_bucket(index, last - ((uint64_t)1 << depth));
	struct index_lock upper = index_lock_bucket(index, last);
	bool done = unite(index, &lower, &upper);

	if (done) {
		index_set_depth(&lower, depth);
		index_set_depth(&upper, 0);
		/* Before they are unlocked: a reader that looks again shall find the new count. */
		index_set_count(index, last);
	}
	index_unlock(&lower);
	index_unlock(&upper);
	if (done && last % SEGMENT_BUCKETS == 0)
		retire_segment(index, last);
	return done;
}

enum index_growth index_shrink(struct index *index, unsigned merges)
{
	enum index_growth result = INDEX_GREW;

	if (!spin_lock_try(&index->growing))
		return INDEX_BUSY;
	while (merges-- && result == INDEX_GREW && index_bucket_count(index) > SEGMENT_BUCKETS) {
		if (!merge_last(index, index_bucket_count(index)))
			result = INDEX_FULL;
	}
	spin_lock_give(&index->growing);
	return result;
}

static void give_page(struct index *index, uint32_t page)
{
	/* Release: a reader that sees the new count sees the entry of 0. And whatever is written to
	 * the page comes after this, so a reader that saw any of it sees the new count. */
	atomic_fetch_add_explicit(&index->header->shrinks, 1, memory_order_release);
	page_pool_give(index->pool, page);
	atomic_fetch_sub_explicit(&index->segments, 1, memory_order_relaxed);
}

/* Which pages are retired does not change before their guards were looked at: the lock is held. */
void index_give_retired(struct index *index, bool (*were_guards_seen_clear)(void *context),
			void *context)
{
	if (!spin_lock_try(&index->growing))
		return;
	if (index->retired && were_guards_seen_clear(context)) {
		while (index->retired) {
			uint32_t page = index->retired;

			index->retired = index->pool->table[page].next;
			give_page(index, page);
		}
	}
	spin_lock_give(&index->growing);
}
