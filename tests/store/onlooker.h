/*
 * Onlookers: processes that read a store without asking, in a mapping of their own that they cannot
 * write to, and hold what they get against the witness. There are three kinds, for the three ways
 * in which clients read.
 */
#ifndef TESTS_STORE_ONLOOKER_H
#define TESTS_STORE_ONLOOKER_H

#include "witness.h"

enum onlooker_kind {
	ONLOOKER_NEAR,	    /* reader_get() in mapped memory */
	ONLOOKER_FAR,	    /* fetches buckets and items one by one, as by RDMA: copies that tear */
	ONLOOKER_REMEMBERS, /* goes to where the item was, and asks the index when it is not */
};

#define ONLOOKER_KINDS 3

/* In memory that all processes share. */
struct onlooker_counts {
	_Atomic uint64_t hits;
	_Atomic uint64_t misses;
	_Atomic uint64_t asks; /* a client would have to ask the server */
	_Atomic uint64_t torn; /* copies that were thrown away */
};

struct onlooker_job {
	enum onlooker_kind kind;
	struct witness *witness;
	int fd; /* of the store's memory */
	void *memory;
	size_t size;
	size_t longest; /* value */
	uint64_t stream;
	struct onlooker_counts *counts;
};

/* For test_spawn(): reads until witness->stop, then waits for witness->is_still, and reads all keys
 * once more, which must be as they were answered now. */
void onlooker_run(void *job);

#endif
