/*
 * Removes what a run wrote to a server that is not its own.
 *
 * Keys are made from numbers, so what was written is known: the keys from 0 to the last one that
 * was inserted, and the counters. They are deleted by a connection of the parent, after the clients
 * have ended: also after Ctrl-C, and when a measurement failed. A second Ctrl-C ends it here, too,
 * and what may be left is said.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "common/progress.h"
#include "store.h"

/* Whether anything of the run puts a key. */
static bool has_written(const struct config *config)
{
	static const enum loop writers[] = {LOOP_PUT, LOOP_PUT_MANY, LOOP_ASYNC_PUT, LOOP_INCR};

	if (config->fill)
		return true;
	for (size_t i = 0; config->has_loops && i < sizeof(writers) / sizeof(writers[0]); i++)
		if (config->loops[writers[i]])
			return true;
	for (int i = 0; i < config->pass_count; i++)
		if (plan_share(&config->passes[i], OP_PUT) > 0 ||
		    plan_share(&config->passes[i], OP_INSERT) > 0 ||
		    plan_share(&config->passes[i], OP_RMW) > 0)
			return true;
	return false;
}

/* The keys with numbers first to last - 1. `signals`: how many had come before. */
static enum rmr_status remove_range(struct store *store, struct block *block, uint64_t first,
				    uint64_t last, int signals)
{
	enum rmr_status status = RMR_OK;
	struct progress progress;

	progress_begin(&progress, "removing the keys", last - first, PROGRESS_COUNT);
	for (uint64_t at = first; status == RMR_OK && at < last; at += BLOCK_KEYS) {
		size_t count = last - at < BLOCK_KEYS ? (size_t)(last - at) : BLOCK_KEYS;

		block_in_order(block, at, count);
		if (crew_signals() > signals)
			status = error_set(RMR_SYSTEM, "interrupted");
		else if (store->ops->remove(store, block, count) != KV_OK)
			status = error_set(RMR_SYSTEM, "%s", store->error);
		progress_show(&progress, at + count - first);
	}
	progress_end(&progress);
	return status;
}

static enum rmr_status remove_keys(const struct config *config)
{
	const struct contestant *contestant = &config->contestants[0];
	const struct store_ops *ops = store_ops_of(contestant->kind);
	struct block *block = calloc(1, sizeof(*block));
	uint64_t keys = atomic_load(&crew_shared()->next); /* no client runs any more */
	int signals = crew_signals();
	char error[STORE_ERROR_MAX];
	enum rmr_status status;
	struct store *store;

	if (!block)
		return error_set(RMR_NO_MEMORY, "keys");
	block->key_size = config->key_size;
	block->prefix = config->prefix;
	store = ops->open(config, contestant, error);
	if (!store) {
		free(block);
		return error_set(RMR_REFUSED, "%s", error);
	}
	store->ops = ops;
	store->key_size = config->key_size;
	status = remove_range(store, block, 0, keys, signals);
	if (status == RMR_OK && config->loops[LOOP_INCR])
		status = remove_range(store, block, COUNTER_FIRST,
				      COUNTER_FIRST + config_counters(config), signals);
	ops->close(store);
	free(block);
	return status;
}

bool clean_up(const struct config *config)
{
	/* A server of our own ends with us; without clients nothing was written. */
	if (config->spawn || config->keep || !config->is_connected || !has_written(config) ||
	    remove_keys(config) == RMR_OK)
		return true;
	fprintf(stderr,
		"kv-bench: keys that begin with '%s' are left on %s: %s: run the same command "
		"again, it removes them at its end\n",
		config->prefix, config->server, error_chain());
	return false;
}
