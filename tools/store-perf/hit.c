/*
 * The test "hit": which share of gets hits when memory is short?
 *
 * A trace of keys, drawn by Zipf's law; each is asked for, and put when it is not there. The store
 * has memory for a tenth of the keys, at the 56 bytes beyond key and value that an item may need,
 * and evicts. The first half of the trace fills it, the second half counts.
 *
 * The same trace goes to Redis, if there is one, whose maxmemory should be the same (it is only
 * looked at, and remarked on when it differs), and to an exact LRU list that holds as many keys as
 * the store did at the end, and one that holds as many as Redis: the difference between a row and
 * its list is the policy's, the difference between the lists is the memory's.
 *
 * All get the trace in the same batches, for Redis's sake: what a batch misses is put after it.
 * Redis's clock for the age of keys ticks once a second, so the trace should take a good deal
 * longer than the keys that it keeps need to be replaced; with the defaults it does.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "common/zipf.h"
#include "lru.h"
#include "peer.h"
#include "rig.h"

#define SEED		7u
#define KEPT_PART	10u
#define ITEM_OVERHEAD	56u
#define TRACE_PER_KEY	4u
#define LIMIT_TOLERANCE 0.01

struct trace {
	const struct perf_config *config;
	uint64_t keys;
	uint64_t length;
	struct zipf zipf;
};

struct outcome {
	uint64_t gets, hits; /* of the second half */
	uint64_t kept;	     /* keys at the end */
	double elapsed_ns;
};

/* A contestant: asks for `count` keys of the block from `first` on, and puts those it missed. */
typedef enum rmr_status (*use_fn)(void *context, const struct trace *trace,
				  const struct block *block, size_t first, size_t count, bool *hit);

/* ------------------------------------------------------------------------------------------
 * Contestants
 */

static enum rmr_status use_store(void *context, const struct trace *trace,
				 const struct block *block, size_t first, size_t count, bool *hit)
{
	static uint8_t value[1 << 20];
	size_t key_size = trace->config->key_size, value_size = trace->config->value_size;
	struct rig *rig = context;
	enum store_status status;

	for (size_t i = 0; i < count; i++) {
		status = store_get(rig->worker, block_key(block, first + i), key_size, value,
				   value_size, NULL);
		hit[i] = status == STORE_OK;
		if (hit[i] && !value_is(value, value_size, block->numbers[first + i]))
			return error_set(RMR_SYSTEM, "the store gave a wrong value");
		if (!hit[i] && status != STORE_NOT_FOUND)
			return rig_failed(status, "get", block->numbers[first + i]);
	}
	value_prepare(value, value_size);
	for (size_t i = 0; i < count; i++) {
		struct store_put put = {
			.key = block_key(block, first + i),
			.key_length = key_size,
			.value = value,
			.value_length = value_size,
		};

		if (hit[i])
			continue;
		value_number(value, block->numbers[first + i]);
		status = store_put(rig->worker, &put, NULL);
		if (status != STORE_OK)
			return rig_failed(status, "put", block->numbers[first + i]);
	}
	return RMR_OK;
}

static enum rmr_status use_redis(void *context, const struct trace *trace,
				 const struct block *block, size_t first, size_t count, bool *hit)
{
	enum rmr_status status = peer_get(context, block, first, count, hit);

	(void)trace;
	if (status == RMR_OK)
		status = peer_set(context, block, first, count, hit);
	return status;
}

static enum rmr_status use_lru(void *context, const struct trace *trace, const struct block *block,
			       size_t first, size_t count, bool *hit)
{
	(void)trace;
	for (size_t i = 0; i < count; i++)
		hit[i] = lru_use(context, block->numbers[first + i]);
	return RMR_OK;
}

/* ------------------------------------------------------------------------------------------
 * The trace
 */

static enum rmr_status play(const struct trace *trace, use_fn use, void *context,
			    struct outcome *outcome)
{
	struct dice dice = {SEED};
	uint64_t start_ns = clock_now_ns();
	static struct block block;

	*outcome = (struct outcome){0};
	block.key_size = trace->config->key_size;
	for (uint64_t done = 0; done < trace->length; done += BLOCK_KEYS) {
		for (size_t i = 0; i < BLOCK_KEYS; i++)
			block.numbers[i] = zipf_draw(&trace->zipf, &dice) - 1;
		block_make_keys(&block, BLOCK_KEYS);
		for (size_t first = 0; first < BLOCK_KEYS; first += PEER_BATCH) {
			bool hit[PEER_BATCH];
			enum rmr_status status;

			status = use(context, trace, &block, first, PEER_BATCH, hit);
			if (status != RMR_OK)
				return status;
			for (size_t i = 0; done >= trace->length / 2 && i < PEER_BATCH; i++) {
				outcome->gets++;
				outcome->hits += hit[i];
			}
		}
	}
	outcome->elapsed_ns = (double)(clock_now_ns() - start_ns);
	return RMR_OK;
}

static void print_outcome(const struct trace *trace, const char *subject,
			  const struct outcome *outcome, uint64_t memory)
{
	struct row row = {.test = "hit", .subject = subject, .keys = trace->keys};

	row_add(&row, "hit_ratio", FIGURE_SHARE, (double)outcome->hits / (double)outcome->gets);
	row_add(&row, "kept", FIGURE_COUNT, (double)outcome->kept);
	row_add(&row, "memory", FIGURE_BYTES, (double)memory);
	row_add(&row, "ops", FIGURE_COUNT, (double)trace->length);
	row_add(&row, "elapsed_ns", FIGURE_NS, outcome->elapsed_ns);
	row_print(trace->config, &row);
}

static enum rmr_status run_store(const struct trace *trace, size_t memory, uint64_t *kept)
{
	struct outcome outcome;
	struct store_stats stats;
	enum rmr_status status;
	struct rig rig;

	status = rig_open(&rig, trace->config, memory, STORE_EVICT);
	if (status != RMR_OK)
		return status;
	status = play(trace, use_store, &rig, &outcome);
	if (status == RMR_OK)
		status = rig_check(&rig);
	if (status == RMR_OK) {
		store_stats(rig.store, &stats);
		*kept = outcome.kept = stats.keys;
		print_outcome(trace, "store", &outcome, memory);
	}
	rig_close(&rig);
	return status;
}

static enum rmr_status run_redis(const struct trace *trace, size_t memory, uint64_t *kept)
{
	struct peer_usage before, after;
	struct outcome outcome;
	enum rmr_status status;
	struct peer peer;

	status = peer_open(&peer, PEER_REDIS, trace->config->redis, trace->config);
	if (status != RMR_OK)
		return status;
	status = peer_usage(&peer, &before);
	if (status == RMR_OK && before.items)
		status = error_set(RMR_INVALID, "the Redis at %s is not empty",
				   trace->config->redis);
	if (status == RMR_OK && ((double)before.limit < (double)memory * (1 - LIMIT_TOLERANCE) ||
				 (double)before.limit > (double)memory * (1 + LIMIT_TOLERANCE)))
		fprintf(stderr, "store-perf: hit: Redis's maxmemory is %llu, the store has %zu\n",
			(unsigned long long)before.limit, memory);
	if (status == RMR_OK)
		status = play(trace, use_redis, &peer, &outcome);
	if (status == RMR_OK)
		status = peer_usage(&peer, &after);
	if (status == RMR_OK) {
		*kept = outcome.kept = after.items;
		print_outcome(trace, "redis", &outcome, after.memory);
	}
	peer_close(&peer);
	return status;
}

static enum rmr_status run_lru(const struct trace *trace, const char *subject, uint64_t room)
{
	struct outcome outcome;
	enum rmr_status status;
	struct lru lru;

	status = lru_init(&lru, trace->keys, room ? room : 1);
	if (status != RMR_OK)
		return status;
	status = play(trace, use_lru, &lru, &outcome);
	outcome.kept = lru.count;
	if (status == RMR_OK)
		print_outcome(trace, subject, &outcome, 0);
	lru_fini(&lru);
	return status;
}

enum rmr_status hit_run(const struct perf_config *config)
{
	struct trace trace = {.config = config, .keys = perf_keys(config, 10000000)};
	size_t item = config->key_size + config->value_size + ITEM_OVERHEAD;
	size_t memory = config->memory ? config->memory : trace.keys / KEPT_PART * item;
	uint64_t kept = 0, redis_kept = 0;
	enum rmr_status status;

	if (memory < STORE_MIN_SIZE)
		memory = STORE_MIN_SIZE;
	trace.length = config->operations ? config->operations : trace.keys * TRACE_PER_KEY;
	zipf_init(&trace.zipf, trace.keys, config->skew);
	status = run_store(&trace, memory, &kept);
	if (status == RMR_OK)
		status = run_lru(&trace, "lru-store", kept);
	if (status == RMR_OK && config->redis)
		status = run_redis(&trace, memory, &redis_kept);
	if (status == RMR_OK && config->redis)
		status = run_lru(&trace, "lru-redis", redis_kept);
	return status;
}
