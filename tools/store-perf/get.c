/*
 * The test "get": what a get of one key costs when keys are drawn uniformly.
 *
 * Subjects: the bare table (bare.h), the store's single gets, and its gets by the batch. All tables
 * of all sizes are filled first; then every round measures each subject on each size once, in an
 * order that turns around from round to round, so that whatever else goes on in the machine meets
 * all alike. Each measurement begins with a fifth of its time untimed, to fill the caches.
 *
 * The bare table and the single gets are measured twice. In a row, the processor may begin a get
 * while the misses of the one before are under way, as far as its window reaches. In a chain, the
 * address of a key depends on the value before it, so that each get waits for the whole of the last
 * one: this is how long a get takes. Beside them, in such a chain as well, are the two reads of
 * memory alone that no get can be spared: what this machine's memory makes of more keys.
 *
 * Keys are drawn and written by the block before the clock starts. What is timed is the caller's
 * whole work: the structs of a batch are filled in inside the measured loop.
 */
#include <stdlib.h>

#include "bare.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/histogram.h"
#include "rig.h"

enum subject { BARE, SINGLE, MANY, READ_CHAIN, BARE_CHAIN, SINGLE_CHAIN, SUBJECT_COUNT };

static const char *const subject_names[SUBJECT_COUNT] = {
	"bare", "store", "store-many", "reads-chain", "bare-chain", "store-chain"};

struct table {
	uint64_t keys;
	struct rig rig;
	struct bare bare;
	double samples[SUBJECT_COUNT][PERF_ROUNDS_MAX]; /* nanoseconds a key */
};

/* What the measured loops work with; one of it, reused. */
struct bench {
	const struct perf_config *config;
	struct dice dice;
	struct block block;
	uint64_t zero;	 /* 0, which only we know */
	uint8_t *values; /* one for each key of a batch; the last ones of a block stay here */
	struct store_get gets[PERF_BATCH_MAX];
};

static size_t slot_count(const struct bench *bench)
{
	return bench->config->batch;
}

static uint8_t *slot_of(const struct bench *bench, size_t i)
{
	return bench->values + i % slot_count(bench) * bench->config->value_size;
}

/* What to add to the next key's address: nothing, but the processor has to wait for the value to
 * find that out. */
static uint64_t link_of(const struct bench *bench, const uint8_t *value)
{
	uint64_t word;

	memcpy(&word, value, sizeof(word));
	return word & bench->zero;
}

static enum rmr_status block_bare(struct bench *bench, const struct table *table, bool chain)
{
	const struct perf_config *config = bench->config;
	uint64_t link = 0;

	for (size_t i = 0; i < BLOCK_KEYS; i++) {
		uint8_t *value = slot_of(bench, i);

		if (!bare_get(&table->bare, block_key(&bench->block, i) + link, config->key_size,
			      value, config->value_size))
			return error_set(RMR_SYSTEM, "a key of the bare table is not there");
		if (chain)
			link = link_of(bench, value);
	}
	return RMR_OK;
}

/* One word of a bucket, one of an item: wherever they are. */
static enum rmr_status block_reads(struct bench *bench, const struct table *table)
{
	uint64_t link = 0;

	for (size_t i = 0; i < BLOCK_KEYS; i++)
		link = bare_read(&table->bare, bench->block.numbers[i] + link,
				 bench->config->key_size, bench->zero) &
		       bench->zero;
	/* The chain is used, so it is made. */
	__asm__ volatile("" : : "r"(link));
	return RMR_OK;
}

static enum rmr_status block_single(struct bench *bench, const struct table *table, bool chain)
{
	const struct perf_config *config = bench->config;
	uint64_t link = 0;

	for (size_t i = 0; i < BLOCK_KEYS; i++) {
		uint8_t *value = slot_of(bench, i);
		enum store_status status =
			store_get(table->rig.worker, block_key(&bench->block, i) + link,
				  config->key_size, value, config->value_size, NULL);

		if (status != STORE_OK)
			return rig_failed(status, "get", bench->block.numbers[i]);
		if (chain)
			link = link_of(bench, value);
	}
	return RMR_OK;
}

static enum rmr_status block_many(struct bench *bench, const struct table *table)
{
	const struct perf_config *config = bench->config;

	for (size_t first = 0; first < BLOCK_KEYS; first += config->batch) {
		size_t left = BLOCK_KEYS - first;
		size_t count = left < config->batch ? left : config->batch;

		for (size_t i = 0; i < count; i++) {
			bench->gets[i].key = block_key(&bench->block, first + i);
			bench->gets[i].key_length = config->key_size;
			bench->gets[i].value = slot_of(bench, first + i);
			bench->gets[i].room = config->value_size;
		}
		store_get_many(table->rig.worker, bench->gets, count);
		for (size_t i = 0; i < count; i++)
			if (bench->gets[i].status != STORE_OK)
				return rig_failed(bench->gets[i].status, "get",
						  bench->block.numbers[first + i]);
	}
	return RMR_OK;
}

/* The last values of a block are still there: are they right? */
static enum rmr_status check_values(const struct bench *bench)
{
	for (size_t i = BLOCK_KEYS - slot_count(bench); i < BLOCK_KEYS; i++)
		if (!value_is(slot_of(bench, i), bench->config->value_size,
			      bench->block.numbers[i]))
			return error_set(RMR_SYSTEM, "get of key number %llu: a wrong value",
					 (unsigned long long)bench->block.numbers[i]);
	return RMR_OK;
}

/* Runs blocks for so long. The time of one key, by the median of the blocks: each is the mean of
 * many gets, and the few that the machine interrupts do not count. */
static enum rmr_status run_for(struct bench *bench, const struct table *table, enum subject subject,
			       uint64_t duration_ns, double *key_ns)
{
	uint64_t end_ns = clock_now_ns() + duration_ns;
	static struct histogram blocks;

	histogram_init(&blocks);
	do {
		enum rmr_status status;
		uint64_t start;

		block_at_random(&bench->block, &bench->dice, table->keys);
		start = clock_ticks();
		if (subject == MANY)
			status = block_many(bench, table);
		else if (subject == READ_CHAIN)
			status = block_reads(bench, table);
		else if (subject == BARE || subject == BARE_CHAIN)
			status = block_bare(bench, table, subject == BARE_CHAIN);
		else
			status = block_single(bench, table, subject == SINGLE_CHAIN);
		histogram_record(&blocks, clock_ticks() - start);
		if (status == RMR_OK && subject != READ_CHAIN)
			status = check_values(bench);
		if (status != RMR_OK)
			return status;
	} while (clock_now_ns() < end_ns);
	*key_ns = (double)histogram_percentile(&blocks, 50) * 1000 / clock_ticks_per_us() /
		  BLOCK_KEYS;
	return RMR_OK;
}

static enum rmr_status measure_round(struct bench *bench, struct table *tables, int table_count,
				     int round)
{
	int count = table_count * SUBJECT_COUNT;

	for (int i = 0; i < count; i++) {
		int at = round % 2 ? count - 1 - i : i;
		struct table *table = &tables[at / SUBJECT_COUNT];
		enum subject subject = at % SUBJECT_COUNT;
		double *sample = &table->samples[subject][round];
		enum rmr_status status;

		status = run_for(bench, table, subject, bench->config->duration_ns / 5, sample);
		if (status == RMR_OK)
			status = run_for(bench, table, subject, bench->config->duration_ns, sample);
		if (status != RMR_OK)
			return status;
	}
	return RMR_OK;
}

static void print_rows(const struct perf_config *config, const struct table *table)
{
	for (int subject = 0; subject < SUBJECT_COUNT; subject++) {
		const double *samples = table->samples[subject];
		struct row row = {
			.test = "get",
			.subject = subject_names[subject],
			.keys = table->keys,
			.sample_count = config->rounds,
		};
		double key_ns = median_of(samples, config->rounds);

		memcpy(row.samples, samples, sizeof(row.samples));
		row_add(&row, "get_ns", FIGURE_NS, key_ns);
		row_add(&row, "ops_per_s", FIGURE_RATE, 1e9 / key_ns);
		if (subject == SINGLE)
			row_add(&row, "to_bare", FIGURE_RATIO,
				median_ratio(samples, table->samples[BARE], config->rounds));
		if (subject == SINGLE_CHAIN)
			row_add(&row, "to_bare", FIGURE_RATIO,
				median_ratio(samples, table->samples[BARE_CHAIN], config->rounds));
		if (subject == MANY)
			row_add(&row, "batch", FIGURE_COUNT, config->batch);
		if (subject == MANY)
			row_add(&row, "speedup", FIGURE_RATIO,
				median_ratio(table->samples[SINGLE], samples, config->rounds));
		row_print(config, &row);
	}
}

static enum rmr_status table_open(struct table *table, const struct perf_config *config,
				  uint64_t keys)
{
	enum rmr_status status;

	table->keys = keys;
	status = bare_open(&table->bare, config, keys);
	if (status == RMR_OK)
		status = bare_fill(&table->bare, config, keys);
	if (status == RMR_OK)
		status = rig_open(&table->rig, config, rig_size_for(config, keys), STORE_REJECT);
	if (status == RMR_OK)
		status = rig_fill(&table->rig, config, 0, keys);
	return status;
}

enum rmr_status get_run(const struct perf_config *config)
{
	static const uint64_t default_keys[] = {10000, 1000000, 10000000};
	const uint64_t *keys = config->key_count ? config->keys : default_keys;
	int count = config->key_count ? config->key_count : 3;
	static struct table tables[PERF_LIST_MAX];
	static struct bench bench;
	enum rmr_status status = RMR_OK;

	__asm__ volatile("" : "=r"(bench.zero) : "0"(UINT64_C(0)));
	bench.config = config;
	bench.block.key_size = config->key_size;
	bench.values = malloc(config->batch * config->value_size);
	if (!bench.values)
		return error_set(RMR_NO_MEMORY, "values of a batch");
	for (int i = 0; status == RMR_OK && i < count; i++)
		status = table_open(&tables[i], config, keys[i]);
	for (int round = 0; status == RMR_OK && round < config->rounds; round++)
		status = measure_round(&bench, tables, count, round);
	for (int i = 0; status == RMR_OK && i < count; i++)
		print_rows(config, &tables[i]);
	for (int i = 0; i < count; i++) {
		rig_close(&tables[i].rig);
		bare_close(&tables[i].bare);
	}
	free(bench.values);
	return status;
}
