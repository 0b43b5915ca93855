/*
 * Rig: a store in an arena of its own, as a server would have it, and a worker for the main thread.
 */
#ifndef STORE_PERF_RIG_H
#define STORE_PERF_RIG_H

#include <remora/fabric.h>

#include "common/keys.h"
#include "perf.h"
#include "store/store.h"

struct rig {
	struct rmr_arena *arena;
	struct store *store;
	struct store_worker *worker;
};

/* Opens an arena of the kind that --huge asks for, every page touched. */
RMR_MUST_CHECK enum rmr_status rig_memory(const struct perf_config *config, size_t size,
					  struct rmr_arena **arena);

/* Bytes in which so many items of the configured size fit with some room to spare; or --memory. */
size_t rig_size_for(const struct perf_config *config, uint64_t keys);

/* An empty store. Nothing is open when it fails. */
RMR_MUST_CHECK enum rmr_status rig_open(struct rig *rig, const struct perf_config *config,
					size_t size, enum store_on_full on_full);
/* Legal on a zeroed one. */
void rig_close(struct rig *rig);

/* Puts keys first to end - 1. */
RMR_MUST_CHECK enum rmr_status rig_fill(struct rig *rig, const struct perf_config *config,
					uint64_t first, uint64_t end);

/* What the tests do at the end: a benchmark of a broken store is worth nothing. */
RMR_MUST_CHECK enum rmr_status rig_check(struct rig *rig);

/* A failed operation as a status, with what may help. */
RMR_MUST_CHECK enum rmr_status rig_failed(enum store_status status, const char *operation,
					  uint64_t number);

#endif
