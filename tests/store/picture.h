/*
 * Pictures: all that a store holds, in a form that can be compared, and work that changes it.
 *
 * Keys and values are those of witness.h, each value with a pattern that shows any wrong byte.
 */
#ifndef TESTS_STORE_PICTURE_H
#define TESTS_STORE_PICTURE_H

#include "arena.h"

struct record {
	bool exists;
	struct store_info info;
	uint64_t sequence; /* of a value */
	int64_t count;	   /* of a counter */
};

struct picture {
	uint64_t keys;
	struct record *records;
	struct store_stats stats;
};

/* Puts the next value of key `number`. */
enum store_status picture_put(struct store_worker *worker, uint64_t number, size_t length,
			      uint64_t ttl_ms);

/* One random operation of any kind on one of so many keys. Times to live are a millisecond, or an
 * hour: wait before looking. */
void picture_work(struct test_store *test, struct test_rng *rng, uint64_t keys, size_t longest);

/* Everything, by scanning; the store must be valid, and all values whole. Returns how many keys
 * there are. */
uint64_t picture_take(struct test_store *test, uint64_t keys, struct picture *picture);
void picture_free(struct picture *picture);

/* That all is the same, but for where it lies. */
void picture_compare(const struct picture *before, const struct picture *after);

#endif
