#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/internal.h"
#include "store/restore.h"

#define GUARD_TRIES 1000 /* looks at a guard that is set */

const char *store_status_text(enum store_status status)
{
	static const char *const texts[] = {
		[-STORE_OK] = "ok",
		[-STORE_NOT_FOUND] = "not found",
		[-STORE_EXISTS] = "the key exists already",
		[-STORE_CONFLICT] = "the version is another one",
		[-STORE_KEY_LENGTH] = "a key has 1 to 4096 bytes",
		[-STORE_VALUE_TOO_LONG] = "the value is longer than the store",
		[-STORE_NO_MEMORY] = "the store is full",
		[-STORE_NO_ROOM] = "the buffer is too small",
		[-STORE_NOT_A_NUMBER] = "the value is not a number",
		[-STORE_OUT_OF_RANGE] = "the number is out of range",
		[-STORE_UNKNOWN] = "it is not known whether the counter was changed",
		[-STORE_TOO_MANY_PINS] = "the item has too many views",
	};

	if (status > 0 || (size_t)-status >= sizeof(texts) / sizeof(texts[0]))
		return "unknown status";
	return texts[-status];
}

/* ------------------------------------------------------------------------------------------
 * Create and destroy
 */

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

/* Where everything lies. The directories have an entry for each page there is: more segments than
 * pages cannot be. */
static void plan(struct store_header *header, size_t size)
{
	uint64_t pages = size >> STORE_PAGE_BITS;

	*header = (struct store_header){
		.layout_version = STORE_LAYOUT_VERSION,
		.page_size = STORE_PAGE_SIZE,
		.size = pages << STORE_PAGE_BITS,
		.page_count = (uint32_t)pages,
	};
	header->directory = round_up(sizeof(*header), 4096);
	header->overflow_directory = round_up(header->directory + pages * 4, 64);
	header->page_table = round_up(header->overflow_directory + pages * 4, 64);
	header->heat = header->page_table + pages * sizeof(struct page_info);
	header->first_page =
		(uint32_t)(round_up(header->heat + heat_size(header->size), STORE_PAGE_SIZE) >>
			   STORE_PAGE_BITS);
}

static enum rmr_status check_options(const struct store_options *options)
{
	if (!options->memory || (uintptr_t)options->memory % 4096)
		return error_set(RMR_INVALID, "the store's memory is not aligned to a page");
	if (options->size < STORE_MIN_SIZE || options->size > STORE_MAX_SIZE)
		return error_set(RMR_INVALID,
				 "a store of %zu bytes: it has to have %zu at least, and %lu at "
				 "most",
				 options->size, STORE_MIN_SIZE, (unsigned long)STORE_MAX_SIZE);
	if (options->cells && (uintptr_t)options->cells % 8)
		return error_set(RMR_INVALID, "the counters' memory is not aligned to 8");
	return RMR_OK;
}

/* Store time goes on as the time of day does now, and does not jump afterwards. */
static int64_t find_clock_offset(void)
{
	struct timespec day;

	clock_gettime(CLOCK_REALTIME, &day);
	return (int64_t)day.tv_sec * 1000 + day.tv_nsec / 1000000 -
	       (int64_t)(clock_now_ns() / 1000000);
}

static enum rmr_status fill_random(void *data, size_t length)
{
	if (getrandom(data, length, 0) != (ssize_t)length)
		return error_errno(RMR_SYSTEM, errno, "getrandom");
	return RMR_OK;
}

/* All but the index and what memory is used for: that is new, or found (restore.c). */
enum rmr_status store_prepare(const struct store_options *options, struct store **result)
{
	enum rmr_status status = check_options(options);
	struct store *store;

	if (status != RMR_OK)
		return status;
	/* The locks want their own cache lines. */
	store = aligned_alloc(64, round_up(sizeof(*store), 64));
	if (!store)
		return error_set(RMR_NO_MEMORY, "the store's own state");
	memset(store, 0, sizeof(*store));
	store->options = *options;
	store->memory = options->memory;
	store->header = options->memory;
	status = cells_init(&store->cells, options);
	store->past_slab = calloc(1, sizeof(*store->past_slab));
	if (status == RMR_OK && !store->past_slab)
		status = error_set(RMR_NO_MEMORY, "the store's own state");
	if (status != RMR_OK) {
		store_destroy(store);
		return status;
	}
	/* For workers_were_seen_outside(), which notices if this has failed. */
	(void)syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	spin_lock_init(&store->reclaim);
	spin_lock_init(&store->workers_lock);
	for (unsigned i = 0; i < SLAB_CLASSES; i++) {
		spin_lock_init(&store->paces[i].evicting);
		store->paces[i].lap_began_ns = clock_now_ns();
	}
	*result = store;
	return RMR_OK;
}

enum rmr_status store_open_parts(struct store *store)
{
	struct store_header *header = store->header;

	header->clock_offset_ms = find_clock_offset();
	header->time_namespace = clock_namespace();
	store->heat = (void *)(store->memory + header->heat);
	page_pool_init(&store->pool, (void *)(store->memory + header->page_table),
		       header->first_page, header->page_count);
	slab_init(&store->slab, store->memory, &store->pool, store->options.zero_freed);
	/* One segment of buckets is always there. */
	store->max_item = (uint64_t)(header->page_count - header->first_page - 1)
			  << STORE_PAGE_BITS;
	if (store->max_item > SIZE_CLASS_MAX_SIZE)
		store->max_item = SIZE_CLASS_MAX_SIZE;
	store->sweep_page = header->first_page;
	return RMR_OK;
}

enum rmr_status store_publish(struct store *store)
{
	enum rmr_status status =
		fill_random(&store->header->instance, sizeof(store->header->instance));

	if (status != RMR_OK)
		return status;
	/* Release: who sees that it is a store sees all of it. */
	__atomic_store_n(&store->header->magic, STORE_MAGIC, __ATOMIC_RELEASE);
	status = reader_init(&store->reader, store->memory, store->options.size);
	store->reader.clock_ms = store->options.clock_ms;
	store->reader.has_clock = true; /* its own */
	return status;
}

enum rmr_status store_create(const struct store_options *options, struct store **result)
{
	struct store *store;
	enum rmr_status status = store_prepare(options, &store);

	if (status != RMR_OK)
		return status;
	plan(store->header, options->size);
	version_start(store);
	status = fill_random(&store->header->hash_seed, sizeof(store->header->hash_seed));
	if (status == RMR_OK)
		status = store_open_parts(store);
	if (status == RMR_OK) {
		page_pool_adopt(&store->pool, store->pool.first,
				store->pool.count - store->pool.first, PAGE_FREE, 0);
		if (!index_init(&store->index, store->memory, store->header, &store->pool,
				SEGMENT_BUCKETS))
			status = error_set(RMR_NO_MEMORY, "no page for the index");
	}
	if (status == RMR_OK)
		status = store_publish(store);
	if (status != RMR_OK) {
		store_destroy(store);
		return status;
	}
	*result = store;
	return RMR_OK;
}

bool store_plan_fits(const struct store_header *header, size_t size)
{
	struct store_header planned;

	if (size < STORE_MIN_SIZE || size > STORE_MAX_SIZE)
		return false;
	plan(&planned, size);
	return header->magic == STORE_MAGIC && header->layout_version == STORE_LAYOUT_VERSION &&
	       header->page_size == planned.page_size && header->size == planned.size &&
	       header->page_count == planned.page_count && header->heat == planned.heat &&
	       header->directory == planned.directory &&
	       header->overflow_directory == planned.overflow_directory &&
	       header->page_table == planned.page_table && header->first_page == planned.first_page;
}

void store_destroy(struct store *store)
{
	if (!store)
		return;
	cells_fini(&store->cells);
	free(store->past_slab);
	free(store);
}

/* ------------------------------------------------------------------------------------------
 * Workers
 */

enum rmr_status store_worker_open(struct store *store, struct store_worker **result)
{
	struct store_worker *worker = aligned_alloc(64, round_up(sizeof(*worker), 64));
	unsigned number = 0;

	if (!worker)
		return error_set(RMR_NO_MEMORY, "a worker");
	memset(worker, 0, sizeof(*worker));
	worker->store = store;
	for (unsigned i = 0; i < SLAB_CLASSES; i++)
		spin_lock_init(&worker->slab.caches[i].lock);
	spin_lock_take(&store->reclaim);
	spin_lock_take(&store->workers_lock);
	while (number < STORE_MAX_WORKERS && store->workers[number])
		number++;
	if (number < STORE_MAX_WORKERS) {
		worker->number = number;
		store->workers[number] = worker;
		store->slabs[number] = &worker->slab;
		if (store->worker_count <= number)
			store->worker_count = number + 1;
	}
	spin_lock_give(&store->workers_lock);
	spin_lock_give(&store->reclaim);
	if (number == STORE_MAX_WORKERS) {
		free(worker);
		return error_set(RMR_LIMIT, "%u workers are open already", STORE_MAX_WORKERS);
	}
	*result = worker;
	return RMR_OK;
}

/* What a worker counted goes on counting after it. workers_lock is held. */
static void keep_counts(struct store *store, struct store_worker *worker)
{
	struct worker_stats *past = &store->past;
	const struct worker_stats *counts = &worker->stats;

	past->hits += counts->hits;
	past->misses += counts->misses;
	past->puts += counts->puts;
	past->deletes += counts->deletes;
	past->expired += counts->expired;
	past->evicted += counts->evicted;
	past->moved += counts->moved;
	past->pages_moved += counts->pages_moved;
	past->no_memory += counts->no_memory;
	for (unsigned i = 0; i < SLAB_CLASSES; i++)
		slab_count(store->past_slab, i, worker->slab.caches[i].items,
			   worker->slab.caches[i].bytes);
	atomic_fetch_add(&store->keys, worker->keys);
}

void store_worker_close(struct store_worker *worker)
{
	struct store *store;

	if (!worker)
		return;
	store = worker->store;
	slab_worker_drain(&store->slab, &worker->slab);
	/* Who empties a span may be looking at our caches. */
	spin_lock_take(&store->reclaim);
	spin_lock_take(&store->workers_lock);
	keep_counts(store, worker);
	store->workers[worker->number] = NULL;
	store->slabs[worker->number] = NULL;
	spin_lock_give(&store->workers_lock);
	spin_lock_give(&store->reclaim);
	free(worker);
}

/* A guard is set for as long as it takes to lock a bucket. If a thread with a set guard does not
 * run just now, the next tick tries again. Without membarrier(2) pages stay retired: an index that
 * has shrunk keeps its memory. */
bool workers_were_seen_outside(void *context)
{
	struct store *store = context;
	bool are_outside = true;

	if (syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
		return false;
	spin_lock_take(&store->workers_lock);
	for (unsigned i = 0; i < store->worker_count && are_outside; i++) {
		struct store_worker *worker = store->workers[i];
		unsigned tries = worker ? GUARD_TRIES : 0;

		/* Acquire: what the worker did to buckets happened before. */
		while (tries && atomic_load_explicit(&worker->guard.is_set, memory_order_acquire)) {
			cpu_relax();
			are_outside = --tries > 0;
		}
	}
	spin_lock_give(&store->workers_lock);
	return are_outside;
}

uint64_t store_clock_ms(const struct store *store)
{
	return reader_clock_ms(&store->reader);
}

uint64_t store_clock_quick_ms(const struct store *store)
{
	if (store->options.clock_ms)
		return store->options.clock_ms();
	return clock_quick_ns() / 1000000 + (uint64_t)store->reader.clock_offset_ms;
}

void worker_count_key(struct store_worker *worker, int change)
{
	int64_t keys = atomic_load_explicit(&worker->keys, memory_order_relaxed) + change;

	if (keys >= KEYS_BLOCK || keys <= -KEYS_BLOCK) {
		atomic_fetch_add_explicit(&worker->store->keys, keys, memory_order_relaxed);
		keys = 0;
	}
	atomic_store_explicit(&worker->keys, keys, memory_order_relaxed);
}
