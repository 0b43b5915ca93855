/*
 * The test "growth": does any put pause while the store grows?
 *
 * A store that holds 1000 keys is given all others; each put is timed by itself. Not every pause is
 * the store's: there are interrupts, other processes, a virtual machine that is not run. Two things
 * help to tell. Of a slow put we ask the kernel how much of the time this thread did not have the
 * core; the time that it had is a row of its own, "store-running". And each round ends with a loop
 * that does nothing but look at the clock, for as long as the puts took, "spin": what it sees as
 * the longest gap is the machine's, and a put that took no longer says nothing against the store.
 */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/histogram.h"
#include "rig.h"

#define KEYS_BEFORE 1000u
#define LONG_NS	    1000000u /* what a put must stay below */
/* A gap of the idle loop that was not the loop's own. */
#define GAP_NS 1000u
/* A put that is worth asking the kernel about. */
#define SLOW_NS 20000u

enum subject { PUTS, RUNNING, SPIN, SUBJECT_COUNT };

static const char *const subject_names[SUBJECT_COUNT] = {"store", "store-running", "spin"};

/* When the kernel was asked last: the time on the wall, and that of this thread. */
struct watch {
	uint64_t ticks;
	uint64_t running_ns;
};

struct growth {
	const struct perf_config *config;
	uint64_t keys;
	struct watch watch;
	struct histogram times[SUBJECT_COUNT]; /* ticks, of all rounds */
	double worst_ns[SUBJECT_COUNT][PERF_ROUNDS_MAX];
	double worst_of_all_ns[SUBJECT_COUNT];
	double worst_at[SUBJECT_COUNT]; /* how many keys there were then */
	double long_count[SUBJECT_COUNT];
};

static double to_ns(uint64_t ticks)
{
	return (double)ticks * 1000 / clock_ticks_per_us();
}

/* How long this thread was without a core since the last call. */
static double off_core_ns(struct watch *watch)
{
	struct timespec running;
	struct watch now;
	double gone;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &running);
	now.ticks = clock_ticks();
	now.running_ns = (uint64_t)running.tv_sec * 1000000000 + (uint64_t)running.tv_nsec;
	gone = to_ns(now.ticks - watch->ticks) - (double)(now.running_ns - watch->running_ns);
	*watch = now;
	return gone > 0 ? gone : 0;
}

static void note(struct growth *growth, enum subject subject, int round, double ns, uint64_t keys)
{
	growth->long_count[subject] += ns > LONG_NS;
	if (ns > growth->worst_ns[subject][round])
		growth->worst_ns[subject][round] = ns;
	if (ns > growth->worst_of_all_ns[subject]) {
		growth->worst_of_all_ns[subject] = ns;
		growth->worst_at[subject] = (double)keys;
	}
}

/* The kernel is asked at the beginning of each block and after each slow put: time without a core
 * since then was within the put, or nearly always, as there is little between puts. */
static void note_put(struct growth *growth, int round, uint64_t ticks, uint64_t keys)
{
	double ns = to_ns(ticks), running_ns = ns;

	if (ns > SLOW_NS) {
		double gone = off_core_ns(&growth->watch);

		running_ns = gone < ns ? ns - gone : 0;
	}
	histogram_record(&growth->times[PUTS], ticks);
	histogram_record(&growth->times[RUNNING],
			 (uint64_t)(running_ns * clock_ticks_per_us() / 1000));
	note(growth, PUTS, round, ns, keys);
	note(growth, RUNNING, round, running_ns, keys);
}

static enum rmr_status put_block(struct growth *growth, struct rig *rig, const struct block *block,
				 size_t count, uint8_t *value, int round)
{
	for (size_t i = 0; i < count; i++) {
		struct store_put put = {
			.key = block_key(block, i),
			.key_length = growth->config->key_size,
			.value = value,
			.value_length = growth->config->value_size,
		};
		enum store_status status;
		uint64_t start;

		value_number(value, block->numbers[i]);
		start = clock_ticks();
		status = store_put(rig->worker, &put, NULL);
		note_put(growth, round, clock_ticks() - start, block->numbers[i]);
		if (status != STORE_OK)
			return rig_failed(status, "put", block->numbers[i]);
	}
	return RMR_OK;
}

static enum rmr_status grow(struct growth *growth, struct rig *rig, int round)
{
	const struct perf_config *config = growth->config;
	uint8_t *value = malloc(config->value_size);
	enum rmr_status status = RMR_OK;
	static struct block block;

	if (!value)
		return error_set(RMR_NO_MEMORY, "a value");
	block.key_size = config->key_size;
	value_prepare(value, config->value_size);
	for (uint64_t first = KEYS_BEFORE; status == RMR_OK && first < growth->keys;) {
		uint64_t left = growth->keys - first;
		size_t count = left < BLOCK_KEYS ? left : BLOCK_KEYS;

		block_in_order(&block, first, count);
		off_core_ns(&growth->watch);
		status = put_block(growth, rig, &block, count, value, round);
		first += count;
	}
	free(value);
	return status;
}

/* The machine alone: a loop that should never take long between two looks at the clock. */
static void spin(struct growth *growth, int round, uint64_t duration_ns)
{
	uint64_t gap = (uint64_t)(GAP_NS * clock_ticks_per_us() / 1000);
	uint64_t last = clock_ticks();
	uint64_t end = last + (uint64_t)((double)duration_ns * clock_ticks_per_us() / 1000);

	while (last < end) {
		uint64_t now = clock_ticks();
		uint64_t ticks = now - last;

		last = now;
		if (ticks < gap)
			continue;
		histogram_record(&growth->times[SPIN], ticks);
		note(growth, SPIN, round, to_ns(ticks), 0);
	}
}

static enum rmr_status measure_round(struct growth *growth, int round)
{
	const struct perf_config *config = growth->config;
	enum rmr_status status;
	uint64_t start_ns;
	struct rig rig;

	status = rig_open(&rig, config, rig_size_for(config, growth->keys), STORE_REJECT);
	if (status != RMR_OK)
		return status;
	status = rig_fill(&rig, config, 0, KEYS_BEFORE);
	start_ns = clock_now_ns();
	if (status == RMR_OK)
		status = grow(growth, &rig, round);
	if (status == RMR_OK)
		spin(growth, round, clock_now_ns() - start_ns);
	if (status == RMR_OK && !round)
		status = rig_check(&rig);
	rig_close(&rig);
	return status;
}

static double smallest_of(const double *samples, int count)
{
	double smallest = samples[0];

	for (int i = 1; i < count; i++)
		smallest = samples[i] < smallest ? samples[i] : smallest;
	return smallest;
}

static void print_row(const struct growth *growth, enum subject subject)
{
	const double *worst_ns = growth->worst_ns[subject];
	const struct histogram *times = &growth->times[subject];
	int rounds = growth->config->rounds;
	struct row row = {
		.test = "growth",
		.subject = subject_names[subject],
		.keys = growth->keys,
		.sample_count = rounds,
	};

	memcpy(row.samples, worst_ns, sizeof(row.samples));
	row_add(&row, "worst_ns", FIGURE_NS, median_of(worst_ns, rounds));
	row_add(&row, "least_worst_ns", FIGURE_NS, smallest_of(worst_ns, rounds));
	row_add(&row, "worst_of_all_ns", FIGURE_NS, growth->worst_of_all_ns[subject]);
	row_add(&row, "over_1ms", FIGURE_COUNT, growth->long_count[subject]);
	if (subject == SPIN) {
		row_add(&row, "gaps_over_1us", FIGURE_COUNT, (double)histogram_count(times));
	} else {
		row_add(&row, "at_keys", FIGURE_COUNT, growth->worst_at[subject]);
		row_add(&row, "mean_ns", FIGURE_NS,
			histogram_mean(times) * 1000 / clock_ticks_per_us());
		row_add(&row, "p99_ns", FIGURE_NS, to_ns(histogram_percentile(times, 99)));
		row_add(&row, "p9999_ns", FIGURE_NS, to_ns(histogram_percentile(times, 99.99)));
	}
	row_print(growth->config, &row);
}

enum rmr_status growth_run(const struct perf_config *config)
{
	static struct growth growth;
	enum rmr_status status = RMR_OK;

	growth.config = config;
	growth.keys = perf_keys(config, 10000000);
	if (growth.keys <= KEYS_BEFORE)
		return error_set(RMR_INVALID, "--keys must be more than %u, where growth begins",
				 KEYS_BEFORE);
	for (int subject = 0; subject < SUBJECT_COUNT; subject++)
		histogram_init(&growth.times[subject]);
	for (int round = 0; status == RMR_OK && round < config->rounds; round++)
		status = measure_round(&growth, round);
	for (int subject = 0; status == RMR_OK && subject < SUBJECT_COUNT; subject++)
		print_row(&growth, subject);
	return status;
}
