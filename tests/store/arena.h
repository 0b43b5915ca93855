/*
 * What the store's tests share: a store in memory of its own, and short calls.
 */
#ifndef TESTS_STORE_ARENA_H
#define TESTS_STORE_ARENA_H

#include "harness/test.h"
#include "store/store.h"

#define MIB ((size_t)1 << 20)

struct test_store {
	int fd; /* of the memory; other processes can map it */
	void *memory;
	size_t size;
	void *cells;
	size_t cells_size;
	struct store_options options;
	struct store *store;
	struct store_worker *worker;
};

/* A store of `size` bytes in a memfd, with 1024 counters and a worker. */
void test_store_open(struct test_store *test, size_t size, enum store_on_full on_full);
void test_store_close(struct test_store *test);

/* The same memory, as another store finds it: closes this one and restores. */
void test_store_restart(struct test_store *test);

/* store_is_valid, with the reason. */
void test_store_check(struct test_store *test);

/* Keys and values that are strings. */
enum store_status put_text(struct store_worker *worker, const char *key, const char *value,
			   struct store_info *info);
enum store_status get_text(struct store_worker *worker, const char *key, char *value, size_t room,
			   struct store_info *info);

/* Store time of tests that set it. */
extern uint64_t test_now_ms;
uint64_t test_clock_ms(void);

#endif
