/*
 * LRU: which of the keys 0 to keys - 1 would be there, if exactly `room` were kept and always the
 * one not used for longest had to go. No values, no memory limit: the policy alone, as a yardstick.
 */
#ifndef STORE_PERF_LRU_H
#define STORE_PERF_LRU_H

#include <remora/status.h>
#include <stdbool.h>
#include <stdint.h>

struct lru_link {
	uint32_t newer, older;
};

struct lru {
	struct lru_link *links; /* by key + 1; 0 is the list's head: older is the newest */
	uint64_t count, room;
};

/* room: at least 1. */
RMR_MUST_CHECK enum rmr_status lru_init(struct lru *lru, uint64_t keys, uint64_t room);
void lru_fini(struct lru *lru);

/* Uses a key, and puts it if it is not there. True when it was. */
bool lru_use(struct lru *lru, uint64_t key);

#endif
