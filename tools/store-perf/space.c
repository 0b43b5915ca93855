/*
 * The test "space": how many bytes does an item need beyond its key and value?
 *
 * The store is filled, and says exactly what its memory is used for. Everything counts that is not
 * a free page: the items' headers, places longer than their items, places and ends of spans that
 * are free, the index; and of the fixed part, which grows with the arena, the share of the pages in
 * use. Each shows up as a figure of its own, in bytes an item.
 *
 * Redis and memcached, where there is one, are filled with the same keys and values. Redis counts
 * what its allocator gave (used_memory, less what it used when empty), memcached the pages of its
 * slabs and its hash table. Beside it is what their processes have grown by.
 */
#include "base/error.h"
#include "peer.h"
#include "rig.h"

static void add_breakdown(struct row *row, const struct perf_config *config,
			  const struct store_stats *stats)
{
	uint64_t used = 0, wasted = 0, idle = 0;
	double keys = (double)stats->keys;
	double payload = (double)(config->key_size + config->value_size);
	double in_use = (double)(stats->size - stats->fixed - stats->free);
	double fixed = (double)stats->fixed * in_use / (double)(stats->size - stats->fixed);

	for (unsigned i = 0; i < STORE_CLASS_STATS; i++) {
		used += stats->classes[i].used;
		wasted += stats->classes[i].wasted;
		idle += stats->classes[i].free;
	}
	row_add(row, "overhead", FIGURE_BYTES, (in_use + fixed) / keys - payload);
	row_add(row, "headers", FIGURE_BYTES, (double)used / keys - payload);
	row_add(row, "index", FIGURE_BYTES, (double)stats->index / keys);
	row_add(row, "wasted", FIGURE_BYTES, (double)wasted / keys);
	row_add(row, "free_places", FIGURE_BYTES, (double)idle / keys);
	row_add(row, "fixed", FIGURE_BYTES, fixed / keys);
	row_add(row, "slots_used", FIGURE_SHARE,
		keys / (double)(7 * (stats->buckets + stats->overflow_buckets)));
	row_add(row, "overflow_buckets", FIGURE_COUNT, (double)stats->overflow_buckets);
	row_add(row, "bytes", FIGURE_BYTES, in_use + fixed);
}

static enum rmr_status measure_store(const struct perf_config *config, uint64_t keys)
{
	struct row row = {.test = "space", .subject = "store", .keys = keys};
	struct store_stats stats;
	enum rmr_status status;
	struct rig rig;

	status = rig_open(&rig, config, rig_size_for(config, keys), STORE_REJECT);
	if (status != RMR_OK)
		return status;
	status = rig_fill(&rig, config, 0, keys);
	if (status == RMR_OK) {
		store_stats(rig.store, &stats);
		add_breakdown(&row, config, &stats);
		row_print(config, &row);
	}
	rig_close(&rig);
	return status;
}

static enum rmr_status fill_peer(struct peer *peer, uint64_t keys)
{
	static struct block block;
	enum rmr_status status = RMR_OK;

	block.key_size = peer->key_size;
	for (uint64_t first = 0; status == RMR_OK && first < keys; first += BLOCK_KEYS) {
		size_t count = keys - first < BLOCK_KEYS ? keys - first : BLOCK_KEYS;

		block_in_order(&block, first, count);
		for (size_t i = 0; status == RMR_OK && i < count; i += PEER_BATCH)
			status = peer_set(peer, &block, i,
					  count - i < PEER_BATCH ? count - i : PEER_BATCH, NULL);
	}
	return status;
}

static enum rmr_status measure_peer(const struct perf_config *config, enum peer_kind kind,
				    const char *path, const char *name, uint64_t keys)
{
	double payload = (double)(config->key_size + config->value_size);
	struct row row = {.test = "space", .subject = name, .keys = keys};
	struct peer_usage before, after;
	enum rmr_status status;
	struct peer peer;

	status = peer_open(&peer, kind, path, config);
	if (status != RMR_OK)
		return status;
	status = peer_usage(&peer, &before);
	if (status == RMR_OK && before.items)
		status = error_set(RMR_INVALID, "the %s at %s is not empty", name, path);
	if (status == RMR_OK)
		status = fill_peer(&peer, keys);
	if (status == RMR_OK)
		status = peer_usage(&peer, &after);
	peer_close(&peer);
	if (status != RMR_OK)
		return status;
	if (after.items != keys)
		return error_set(RMR_SYSTEM, "%s kept %llu of %llu keys; give it more memory", name,
				 (unsigned long long)after.items, (unsigned long long)keys);
	row_add(&row, "overhead", FIGURE_BYTES,
		(double)(after.memory - before.memory) / (double)keys - payload);
	if (after.resident && before.resident)
		row_add(&row, "resident_overhead", FIGURE_BYTES,
			(double)(after.resident - before.resident) / (double)keys - payload);
	row_add(&row, "bytes", FIGURE_BYTES, (double)(after.memory - before.memory));
	row_print(config, &row);
	return RMR_OK;
}

enum rmr_status space_run(const struct perf_config *config)
{
	uint64_t keys = perf_keys(config, 10000000);
	enum rmr_status status;

	status = measure_store(config, keys);
	if (status == RMR_OK && config->redis)
		status = measure_peer(config, PEER_REDIS, config->redis, "redis", keys);
	if (status == RMR_OK && config->memcached)
		status = measure_peer(config, PEER_MEMCACHED, config->memcached, "memcached", keys);
	return status;
}
