/*
 * The test "put": puts a second, on one thread and on several, each pinned to a core of its own.
 *
 *	new		an empty store is filled; the threads share the keys out
 *	overwrite	uniformly drawn keys of a full one get new values
 *	apart		overwrite again, but each thread has a store of its own: what the machine's
 *			cores can do beside one another when they share nothing but its memory
 *
 * Each round does all of them for one thread and for the most there shall be. A thread times itself
 * from the moment that all have started; the rate is the sum of theirs.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "rig.h"

enum kind { NEW, OVERWRITE, APART, KIND_COUNT };

static const char *const kind_names[KIND_COUNT] = {"new", "overwrite", "apart"};

struct writer {
	const struct perf_config *config;
	pthread_t thread;
	unsigned index;
	struct store_worker *worker;
	pthread_barrier_t *start;
	/* New keys from `first` to `end`; or any below `end`, for a time. */
	bool overwrite;
	uint64_t first, end;
	struct dice dice;
	/* What came out. */
	enum rmr_status status;
	char why[256];
	uint64_t count;
	double elapsed_ns;
};

static enum rmr_status put_block(struct writer *writer, const struct block *block, size_t count,
				 uint8_t *value)
{
	for (size_t i = 0; i < count; i++) {
		struct store_put put = {
			.key = block_key(block, i),
			.key_length = writer->config->key_size,
			.value = value,
			.value_length = writer->config->value_size,
		};
		enum store_status status;

		value_number(value, block->numbers[i]);
		status = store_put(writer->worker, &put, NULL);
		if (status != STORE_OK)
			return rig_failed(status, "put", block->numbers[i]);
	}
	writer->count += count;
	return RMR_OK;
}

static enum rmr_status put_new(struct writer *writer, struct block *block, uint8_t *value,
			       uint64_t *ticks)
{
	for (uint64_t first = writer->first; first < writer->end; first += BLOCK_KEYS) {
		size_t left = writer->end - first;
		size_t count = left < BLOCK_KEYS ? left : BLOCK_KEYS;
		enum rmr_status status;
		uint64_t start;

		block_in_order(block, first, count);
		start = clock_ticks();
		status = put_block(writer, block, count, value);
		*ticks += clock_ticks() - start;
		if (status != RMR_OK)
			return status;
	}
	return RMR_OK;
}

static enum rmr_status put_over(struct writer *writer, struct block *block, uint8_t *value,
				uint64_t *ticks)
{
	uint64_t end_ns = clock_now_ns() + writer->config->duration_ns;

	do {
		enum rmr_status status;
		uint64_t start;

		block_at_random(block, &writer->dice, writer->end);
		start = clock_ticks();
		status = put_block(writer, block, BLOCK_KEYS, value);
		*ticks += clock_ticks() - start;
		if (status != RMR_OK)
			return status;
	} while (clock_now_ns() < end_ns);
	return RMR_OK;
}

static enum rmr_status write_all(struct writer *writer)
{
	struct block *block = calloc(1, sizeof(*block));
	uint8_t *value = malloc(writer->config->value_size);
	enum rmr_status status;
	uint64_t ticks = 0;

	if (block && value) {
		block->key_size = writer->config->key_size;
		value_prepare(value, writer->config->value_size);
		status = perf_pin(writer->config, writer->index);
	} else {
		status = error_set(RMR_NO_MEMORY, "a writer");
	}
	/* All wait here, also who failed, or the others would wait for ever. */
	pthread_barrier_wait(writer->start);
	if (status == RMR_OK)
		status = writer->overwrite ? put_over(writer, block, value, &ticks)
					   : put_new(writer, block, value, &ticks);
	writer->elapsed_ns = (double)ticks * 1000 / clock_ticks_per_us();
	free(value);
	free(block);
	return status;
}

static void *writer_main(void *context)
{
	struct writer *writer = context;

	writer->status = write_all(writer);
	if (writer->status != RMR_OK)
		snprintf(writer->why, sizeof(writer->why), "%s", error_chain());
	return NULL;
}

/* Runs the writers, whose workers and keys are set. The sum of their rates. */
static enum rmr_status run_writers(struct writer *writers, unsigned count, double *rate)
{
	enum rmr_status status = RMR_OK;
	pthread_barrier_t start;

	pthread_barrier_init(&start, NULL, count);
	for (unsigned i = 0; i < count; i++) {
		writers[i].start = &start;
		if (pthread_create(&writers[i].thread, NULL, writer_main, &writers[i]))
			abort(); /* the others wait at the barrier, and there is no way on */
	}
	*rate = 0;
	for (unsigned i = 0; i < count; i++) {
		pthread_join(writers[i].thread, NULL);
		if (writers[i].status != RMR_OK)
			status = error_set(writers[i].status, "%s", writers[i].why);
		*rate += (double)writers[i].count * 1e9 / writers[i].elapsed_ns;
	}
	pthread_barrier_destroy(&start);
	return status;
}

/* rigs: one for each thread, or the first for all. */
static enum rmr_status measure(const struct perf_config *config, struct rig *rigs, enum kind kind,
			       unsigned threads, uint64_t keys, uint64_t seed, double *rate)
{
	struct writer *writers = calloc(threads, sizeof(*writers));
	enum rmr_status status = RMR_OK;
	unsigned ready = 0;

	if (!writers)
		return error_set(RMR_NO_MEMORY, "writers");
	for (; status == RMR_OK && ready < threads; ready++) {
		struct writer *writer = &writers[ready];

		*writer = (struct writer){
			.config = config,
			.index = ready,
			.overwrite = kind != NEW,
			.first = keys * ready / threads,
			.end = kind == NEW ? keys * (ready + 1) / threads : keys,
			.dice = {scramble(seed + ready)},
		};
		status = store_worker_open(rigs[kind == APART ? ready : 0].store, &writer->worker);
	}
	if (status == RMR_OK)
		status = run_writers(writers, threads, rate);
	for (unsigned i = 0; i < ready; i++)
		if (writers[i].worker)
			store_worker_close(writers[i].worker);
	free(writers);
	return status;
}

/* A fresh store for new keys, which is then overwritten. */
static enum rmr_status measure_shared(const struct perf_config *config, unsigned threads,
				      uint64_t keys, uint64_t seed, double rates[KIND_COUNT])
{
	enum rmr_status status;
	struct rig rig;

	status = rig_open(&rig, config, rig_size_for(config, keys), STORE_REJECT);
	if (status != RMR_OK)
		return status;
	status = measure(config, &rig, NEW, threads, keys, seed, &rates[NEW]);
	if (status == RMR_OK)
		status = measure(config, &rig, OVERWRITE, threads, keys, seed, &rates[OVERWRITE]);
	if (status == RMR_OK)
		status = rig_check(&rig);
	rig_close(&rig);
	return status;
}

static enum rmr_status measure_apart(const struct perf_config *config, unsigned threads,
				     uint64_t keys, uint64_t seed, double *rate)
{
	struct rig *rigs = calloc(threads, sizeof(*rigs));
	enum rmr_status status = RMR_OK;

	if (!rigs)
		return error_set(RMR_NO_MEMORY, "stores");
	for (unsigned i = 0; status == RMR_OK && i < threads; i++) {
		status = rig_open(&rigs[i], config, rig_size_for(config, keys), STORE_REJECT);
		if (status == RMR_OK)
			status = rig_fill(&rigs[i], config, 0, keys);
	}
	if (status == RMR_OK)
		status = measure(config, rigs, APART, threads, keys, seed, rate);
	for (unsigned i = 0; i < threads; i++)
		rig_close(&rigs[i]);
	free(rigs);
	return status;
}

typedef double samples_t[PERF_ROUNDS_MAX];

static void print_rows(const struct perf_config *config, uint64_t keys,
		       samples_t samples[KIND_COUNT][2])
{
	for (int kind = 0; kind < KIND_COUNT; kind++) {
		for (int several = 0; several < (config->threads > 1 ? 2 : 1); several++) {
			const double *rates = samples[kind][several];
			unsigned threads = several ? config->threads : 1;
			struct row row = {
				.test = "put",
				.subject = kind_names[kind],
				.keys = keys,
				.sample_count = config->rounds,
			};

			memcpy(row.samples, rates, sizeof(row.samples));
			row_add(&row, "threads", FIGURE_COUNT, threads);
			row_add(&row, "ops_per_s", FIGURE_RATE, median_of(rates, config->rounds));
			if (several)
				row_add(&row, "to_one", FIGURE_RATIO,
					median_ratio(rates, samples[kind][0], config->rounds));
			row_print(config, &row);
		}
	}
}

enum rmr_status put_run(const struct perf_config *config)
{
	uint64_t keys = perf_keys(config, 1000000);
	static samples_t samples[KIND_COUNT][2];
	enum rmr_status status = RMR_OK;

	for (int i = 0; status == RMR_OK && i < config->rounds * 2; i++) {
		int round = i / 2;
		/* One first in one round, several first in the next. */
		int several = (i ^ round) & 1;
		unsigned threads = several ? config->threads : 1;
		double rates[KIND_COUNT] = {0};

		if (several && config->threads == 1)
			continue;
		status = measure_shared(config, threads, keys, (uint64_t)i, rates);
		if (status == RMR_OK)
			status = measure_apart(config, threads, keys, (uint64_t)i, &rates[APART]);
		for (int kind = 0; kind < KIND_COUNT; kind++)
			samples[kind][several][round] = rates[kind];
	}
	if (status == RMR_OK)
		print_rows(config, keys, samples);
	return status;
}
