/*
 * What is measured: slices of operations, one function for each loop.
 *
 * Keys are drawn and written by the block, outside of the measured time; a block is used up slice
 * by slice, and the clock is looked at between slices. Rates come from the time of whole slices.
 * Latencies are of every eighth operation, so that taking the time twice costs a nanosecond or two
 * of each, even where an operation is a few dozen.
 *
 * Every operation must succeed. Of what was got, the number in front of it is compared at once, and
 * the last value of each slice byte by byte, outside of the measured time.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "bench.h"
#include "common/flag_words.h"

#define SLICE	    256u
#define LONG_VALUE  65536u /* from here on, fewer operations between two looks at the clock */
#define LONG_SLICE  8u
#define LONG_STREAM 32u

enum rmr_status bench_failed(const struct bench *bench, int status, const char *what,
			     uint64_t number)
{
	const char *text = flag_words(kv_client_error(bench->client));

	return error_set(RMR_SYSTEM, "%s of key number %llu: %s%s%s", what,
			 (unsigned long long)number, kv_strerror(status), text && *text ? ": " : "",
			 text ? text : "");
}

enum rmr_status bench_check(const struct bench *bench, const uint8_t *value, size_t length,
			    uint64_t number)
{
	if (length == bench->value_size && value_is(value, length, number))
		return RMR_OK;
	return error_set(RMR_SYSTEM,
			 "get of key number %llu: a wrong value, or one of another length; was the "
			 "server filled with --value-size %zu?",
			 (unsigned long long)number, bench->value_size);
}

/* Begins the sample of operation i, and ends it. */
static inline uint64_t sample_begin(size_t i)
{
	return i % SAMPLE_EVERY ? 0 : clock_ticks();
}

static inline void sample_end(struct bench *bench, uint64_t begin)
{
	if (begin)
		histogram_record(&bench->slot->latency, clock_ticks_to_ns(clock_ticks() - begin));
}

/* A quick look; bench_check() is the thorough one. */
static bool looks_right(const struct bench *bench, const void *value, size_t length,
			uint64_t number)
{
	return length == bench->value_size && memcmp(value, &number, sizeof(number)) == 0;
}

static enum rmr_status slice_get(struct bench *bench, size_t first, size_t count)
{
	const struct config *config = bench->config;

	for (size_t i = first; i < first + count; i++) {
		size_t length = bench->value_size;
		uint64_t begin = sample_begin(i);
		int status = kv_client_get(bench->client, block_key(&bench->block, i),
					   config->key_size, bench->room, &length);

		sample_end(bench, begin);
		if (status != KV_OK)
			return bench_failed(bench, status, "get", bench->block.numbers[i]);
		if (!looks_right(bench, bench->room, length, bench->block.numbers[i]))
			return bench_check(bench, bench->room, length, bench->block.numbers[i]);
	}
	return RMR_OK;
}

static enum rmr_status slice_put(struct bench *bench, size_t first, size_t count)
{
	const struct config *config = bench->config;

	for (size_t i = first; i < first + count; i++) {
		uint64_t begin;
		int status;

		value_number(bench->value, bench->block.numbers[i]);
		begin = sample_begin(i);
		status = kv_client_put(bench->client, block_key(&bench->block, i), config->key_size,
				       bench->value, bench->value_size);
		sample_end(bench, begin);
		if (status != KV_OK)
			return bench_failed(bench, status, "put", bench->block.numbers[i]);
	}
	return RMR_OK;
}

/* The time of a batch counts as the latency of each of its operations. */
static enum rmr_status get_batch(struct bench *bench, size_t first, size_t count)
{
	const struct config *config = bench->config;
	size_t *key_lengths = bench->batch_key_lengths, *lengths = bench->batch_lengths;
	const void **keys = bench->batch_keys;
	void **values = bench->batch_values;
	int *statuses = bench->batch_statuses;
	uint64_t begin = clock_ticks();
	int status;

	for (size_t i = 0; i < count; i++) {
		keys[i] = block_key(&bench->block, first + i);
		key_lengths[i] = config->key_size;
		values[i] = bench_room(bench, first + i);
		lengths[i] = bench->value_size;
	}
	status = kv_client_batch_get(bench->client, count, keys, key_lengths, values, lengths,
				     statuses);
	histogram_record(&bench->slot->latency, clock_ticks_to_ns(clock_ticks() - begin));
	for (size_t i = 0; i < count; i++) {
		uint64_t number = bench->block.numbers[first + i];

		if (status != KV_OK || statuses[i] != KV_OK)
			return bench_failed(bench, status ? status : statuses[i], "get", number);
		if (!looks_right(bench, values[i], lengths[i], number))
			return bench_check(bench, values[i], lengths[i], number);
	}
	return RMR_OK;
}

static enum rmr_status slice_get_many(struct bench *bench, size_t first, size_t count)
{
	enum rmr_status status = RMR_OK;

	for (size_t done = 0; status == RMR_OK && done < count; done += bench->config->batch) {
		size_t left = count - done;

		status = get_batch(bench, first + done,
				   left < bench->config->batch ? left : bench->config->batch);
	}
	return status;
}

static enum rmr_status put_batch(struct bench *bench, size_t first, size_t count)
{
	const struct config *config = bench->config;
	size_t *key_lengths = bench->batch_key_lengths, *lengths = bench->batch_lengths;
	const void **keys = bench->batch_keys;
	void **values = bench->batch_values;
	int *statuses = bench->batch_statuses;
	uint64_t begin = clock_ticks();
	int status;

	for (size_t i = 0; i < count; i++) {
		keys[i] = block_key(&bench->block, first + i);
		key_lengths[i] = config->key_size;
		value_number(bench_room(bench, first + i), bench->block.numbers[first + i]);
		values[i] = bench_room(bench, first + i);
		lengths[i] = bench->value_size;
	}
	status = kv_client_batch_put(bench->client, count, keys, key_lengths,
				     (const void *const *)values, lengths, statuses);
	histogram_record(&bench->slot->latency, clock_ticks_to_ns(clock_ticks() - begin));
	for (size_t i = 0; i < count; i++)
		if (status != KV_OK || statuses[i] != KV_OK)
			return bench_failed(bench, status ? status : statuses[i], "put",
					    bench->block.numbers[first + i]);
	return RMR_OK;
}

static enum rmr_status slice_put_many(struct bench *bench, size_t first, size_t count)
{
	enum rmr_status status = RMR_OK;

	for (size_t done = 0; status == RMR_OK && done < count; done += bench->config->batch) {
		size_t left = count - done;

		status = put_batch(bench, first + done,
				   left < bench->config->batch ? left : bench->config->batch);
	}
	return status;
}

static enum rmr_status slice_view(struct bench *bench, size_t first, size_t count)
{
	const struct config *config = bench->config;

	for (size_t i = first; i < first + count; i++) {
		uint64_t number = bench->block.numbers[i], begin = sample_begin(i);
		kv_view_t view;
		bool right;
		int status = kv_client_view(bench->client, block_key(&bench->block, i),
					    config->key_size, &view);

		if (status != KV_OK)
			return bench_failed(bench, status, "view", number);
		right = looks_right(bench, view.value, view.length, number);
		kv_client_release(bench->client, &view);
		sample_end(bench, begin);
		if (!right)
			return error_set(RMR_SYSTEM, "view of key number %llu: a wrong value",
					 (unsigned long long)number);
	}
	return RMR_OK;
}

static enum rmr_status slice_incr(struct bench *bench, size_t first, size_t count)
{
	const struct config *config = bench->config;

	for (size_t i = first; i < first + count; i++) {
		uint64_t begin = sample_begin(i);
		int64_t sum;
		int status = kv_client_incr(bench->client, block_key(&bench->block, i),
					    config->key_size, 1, &sum);

		sample_end(bench, begin);
		if (status != KV_OK)
			return bench_failed(bench, status, "incr", bench->block.numbers[i]);
	}
	return RMR_OK;
}

static enum rmr_status slice_ping(struct bench *bench, size_t first, size_t count)
{
	for (size_t i = first; i < first + count; i++) {
		uint64_t begin = sample_begin(i);
		int status = kv_client_ping(bench->client, NULL);

		sample_end(bench, begin);
		if (status != KV_OK)
			return error_set(RMR_SYSTEM, "%s",
					 flag_words(kv_client_error(bench->client)));
	}
	return RMR_OK;
}

slice_fn slice_of(enum loop loop)
{
	static const slice_fn slices[LOOP_COUNT] = {
		[LOOP_GET] = slice_get,
		[LOOP_PUT] = slice_put,
		[LOOP_GET_MANY] = slice_get_many,
		[LOOP_PUT_MANY] = slice_put_many,
		[LOOP_ASYNC_GET] = slice_async_get,
		[LOOP_ASYNC_PUT] = slice_async_put,
		[LOOP_VIEW] = slice_view,
		[LOOP_INCR] = slice_incr,
		[LOOP_PING] = slice_ping,
	};

	return slices[loop];
}

/* Batches and windows want long slices: at the end of each, no operation is under way. */
size_t slice_count(const struct config *config, enum loop loop, size_t value_size)
{
	bool stream = loop == LOOP_GET_MANY || loop == LOOP_PUT_MANY || loop == LOOP_ASYNC_GET ||
		      loop == LOOP_ASYNC_PUT;
	unsigned most = config->window > config->batch ? config->window : config->batch;

	if (value_size < LONG_VALUE)
		return stream ? BLOCK_KEYS : SLICE;
	if (!stream)
		return LONG_SLICE;
	return most > LONG_STREAM ? most : LONG_STREAM;
}

static void draw(struct bench *bench, enum loop loop)
{
	uint64_t keys = bench->config->keys;

	if (loop != LOOP_INCR) {
		block_at_random(&bench->block, &bench->dice, keys);
	} else {
		for (size_t i = 0; i < BLOCK_KEYS; i++)
			bench->block.numbers[i] =
				COUNTER_FIRST +
				dice_below(&bench->dice, config_counters(bench->config));
		block_make_keys(&bench->block, BLOCK_KEYS);
	}
	bench->next = 0;
}

/* Of the slice's last value; where the loop leaves it in the room. */
static enum rmr_status check_last(const struct bench *bench, enum loop loop, size_t last)
{
	if (loop != LOOP_GET && loop != LOOP_GET_MANY && loop != LOOP_ASYNC_GET)
		return RMR_OK;
	return bench_check(bench, loop == LOOP_GET ? bench->room : bench_room(bench, last),
			   bench->value_size, bench->block.numbers[last]);
}

enum rmr_status loop_measure(struct bench *bench, enum loop loop, uint64_t duration_ns)
{
	size_t count = slice_count(bench->config, loop, bench->value_size);
	uint64_t end_ns = clock_now_ns() + duration_ns, ticks = 0;
	slice_fn slice = slice_of(loop);

	histogram_reset(&bench->slot->latency);
	bench->next = BLOCK_KEYS;
	bench->slot->operations = 0;
	do {
		enum rmr_status status;
		uint64_t begin;

		if (bench->next + count > BLOCK_KEYS)
			draw(bench, loop);
		begin = clock_ticks();
		status = slice(bench, bench->next, count);
		ticks += clock_ticks() - begin;
		if (status == RMR_OK)
			status = check_last(bench, loop, bench->next + count - 1);
		if (status != RMR_OK)
			return status;
		bench->slot->operations += count;
		bench->next += count;
	} while (clock_now_ns() < end_ns);
	bench->slot->time_ns = clock_ticks_to_ns(ticks);
	return RMR_OK;
}
