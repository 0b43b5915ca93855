/*
 * The test "churn": does the store get slower with age?
 *
 * A store is filled; then keys are drawn uniformly, and each that is there is overwritten (two
 * times of three) or deleted (one of three), each that is not is put again. The rate of the last
 * tenth of all operations stands beside that of the first. What is done is settled by the block
 * before the clock starts, from a plain table of which keys are there; the store's answers must
 * agree with it.
 *
 * Ten samples, one for each tenth, whatever --rounds says: here the rounds are the store's ages.
 * Each tenth has its mean and the median of its blocks of 1024 operations; what else goes on in
 * the machine moves the mean more than the median.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/histogram.h"
#include "rig.h"

#define TENTHS 10

enum action { OVERWRITE, DELETE, PUT_AGAIN };

struct churn {
	const struct perf_config *config;
	uint64_t keys;
	struct rig rig;
	struct dice dice;
	struct block block;
	uint8_t actions[BLOCK_KEYS];
	bool *present; /* by number */
	uint8_t *value;
	struct histogram blocks; /* ticks of the blocks of a tenth */
	double rates[TENTHS];
	double median_ns[TENTHS];
	uint64_t memory[TENTHS]; /* in use at the end of it */
};

static void plan_block(struct churn *churn)
{
	block_at_random(&churn->block, &churn->dice, churn->keys);
	for (size_t i = 0; i < BLOCK_KEYS; i++) {
		bool *present = &churn->present[churn->block.numbers[i]];

		churn->actions[i] = !*present			      ? PUT_AGAIN
				    : dice_below(&churn->dice, 3) > 0 ? OVERWRITE
								      : DELETE;
		*present = churn->actions[i] != DELETE;
	}
}

static enum rmr_status run_block(struct churn *churn)
{
	const struct perf_config *config = churn->config;

	for (size_t i = 0; i < BLOCK_KEYS; i++) {
		const uint8_t *key = block_key(&churn->block, i);
		struct store_put put = {
			.key = key,
			.key_length = config->key_size,
			.value = churn->value,
			.value_length = config->value_size,
			.condition =
				churn->actions[i] == PUT_AGAIN ? STORE_IF_ABSENT : STORE_ALWAYS,
		};
		enum store_status status;

		value_number(churn->value, churn->block.numbers[i]);
		if (churn->actions[i] == DELETE)
			status = store_delete(churn->rig.worker, key, config->key_size, 0, NULL);
		else
			status = store_put(churn->rig.worker, &put, NULL);
		if (status != STORE_OK)
			return rig_failed(status, churn->actions[i] == DELETE ? "delete" : "put",
					  churn->block.numbers[i]);
	}
	return RMR_OK;
}

static enum rmr_status run_tenth(struct churn *churn, int tenth, uint64_t operations)
{
	struct store_stats stats;

	histogram_init(&churn->blocks);
	for (uint64_t done = 0; done < operations; done += BLOCK_KEYS) {
		enum rmr_status status;
		uint64_t start;

		plan_block(churn);
		start = clock_ticks();
		status = run_block(churn);
		histogram_record(&churn->blocks, clock_ticks() - start);
		if (status != RMR_OK)
			return status;
	}
	churn->rates[tenth] =
		1e6 * clock_ticks_per_us() * BLOCK_KEYS / histogram_mean(&churn->blocks);
	churn->median_ns[tenth] = (double)histogram_percentile(&churn->blocks, 50) * 1000 /
				  clock_ticks_per_us() / BLOCK_KEYS;
	store_stats(churn->rig.store, &stats);
	churn->memory[tenth] = stats.size - stats.free;
	return RMR_OK;
}

/* The table of what is there, and the store, must agree in the end. */
static enum rmr_status check_end(struct churn *churn)
{
	struct store_stats stats;
	uint64_t present = 0;

	for (uint64_t i = 0; i < churn->keys; i++)
		present += churn->present[i];
	store_stats(churn->rig.store, &stats);
	if (stats.keys != present)
		return error_set(RMR_SYSTEM, "the store has %llu keys, it should have %llu",
				 (unsigned long long)stats.keys, (unsigned long long)present);
	return rig_check(&churn->rig);
}

static void print_churn(const struct churn *churn, uint64_t operations)
{
	struct row row = {
		.test = "churn",
		.subject = "store",
		.keys = churn->keys,
		.sample_count = TENTHS,
	};
	double time = 0;

	for (int i = 0; i < TENTHS; i++)
		time += 1 / churn->rates[i] / TENTHS;
	memcpy(row.samples, churn->rates, sizeof(churn->rates));
	row_add(&row, "ops", FIGURE_COUNT, (double)operations);
	row_add(&row, "ops_per_s", FIGURE_RATE, 1 / time);
	row_add(&row, "first_per_s", FIGURE_RATE, churn->rates[0]);
	row_add(&row, "last_per_s", FIGURE_RATE, churn->rates[TENTHS - 1]);
	row_add(&row, "last_to_first", FIGURE_RATIO, churn->rates[TENTHS - 1] / churn->rates[0]);
	row_add(&row, "first_median_ns", FIGURE_NS, churn->median_ns[0]);
	row_add(&row, "last_median_ns", FIGURE_NS, churn->median_ns[TENTHS - 1]);
	row_add(&row, "first_memory", FIGURE_BYTES, (double)churn->memory[0]);
	row_add(&row, "last_memory", FIGURE_BYTES, (double)churn->memory[TENTHS - 1]);
	row_print(churn->config, &row);
}

enum rmr_status churn_run(const struct perf_config *config)
{
	uint64_t operations = config->operations ? config->operations : 100000000;
	static struct churn churn;
	enum rmr_status status;

	churn.config = config;
	churn.keys = perf_keys(config, 1000000);
	churn.block.key_size = config->key_size;
	churn.present = malloc(churn.keys * sizeof(*churn.present));
	churn.value = malloc(config->value_size);
	if (!churn.present || !churn.value) {
		status = error_set(RMR_NO_MEMORY, "a table of %llu keys",
				   (unsigned long long)churn.keys);
		goto free_tables;
	}
	memset(churn.present, true, churn.keys * sizeof(*churn.present));
	value_prepare(churn.value, config->value_size);
	status = rig_open(&churn.rig, config, rig_size_for(config, churn.keys), STORE_REJECT);
	if (status == RMR_OK)
		status = rig_fill(&churn.rig, config, 0, churn.keys);
	for (int tenth = 0; status == RMR_OK && tenth < TENTHS; tenth++)
		status = run_tenth(&churn, tenth, operations / TENTHS);
	if (status == RMR_OK)
		status = check_end(&churn);
	if (status == RMR_OK)
		print_churn(&churn, operations);
	rig_close(&churn.rig);
free_tables:
	free(churn.value);
	free(churn.present);
	return status;
}
