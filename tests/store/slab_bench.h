/*
 * Slabs in memory that holds nothing else, with a few workers, and a list of the places in use.
 * Each place is filled with words that tell it from all others, and looked at when it is given
 * back.
 */
#ifndef TESTS_STORE_SLAB_BENCH_H
#define TESTS_STORE_SLAB_BENCH_H

#include "harness/test.h"
#include "store/slab.h"

#define SLAB_BENCH_FIRST   1u
#define SLAB_BENCH_WORKERS 3

struct slab_bench {
	struct test_rng rng;
	uint8_t *memory;
	uint32_t pages;
	struct page_info *table;
	struct page_pool pool;
	struct slab slab;
	struct slab_worker *workers[SLAB_BENCH_WORKERS];
	/* Places in use. */
	uint64_t *offsets;
	uint64_t *sizes;
	size_t count, room;
};

void slab_bench_open(struct slab_bench *bench, uint32_t pages, bool zero_freed);
void slab_bench_close(struct slab_bench *bench);

/* That pool and slabs are valid. */
void slab_bench_check(struct slab_bench *bench);

/* One of the workers. */
struct slab_worker *slab_bench_worker(struct slab_bench *bench);

/* Takes a place; false: there is none. */
bool slab_bench_take(struct slab_bench *bench, struct slab_worker *worker, uint64_t size);

/* Gives back one of those in use; the last of them gets its number. */
void slab_bench_give(struct slab_bench *bench, struct slab_worker *worker, size_t number);

/* That no item and no byte is counted any more. */
void slab_bench_check_unused(struct slab_bench *bench);

/* Gives everything back; what classes keep is taken from them, too. */
void slab_bench_give_all(struct slab_bench *bench);

#endif
