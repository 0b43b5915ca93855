/*
 * Operations that are submitted and polled, with a window of them under way.
 *
 * A slice ends when all of its operations are answered, so that its time is all of their time;
 * while the window empties at the end of a slice, the rate is a little less than that of a stream
 * without end.
 *
 * The cookie of an operation is its place in the block. Each get of a slice lands in a room of its
 * own: answers may come in any order, and an early one could stay out while the window moves on.
 */
#include "base/clock.h"
#include "base/error.h"
#include "bench.h"
#include "common/flag_words.h"

#define POLL_MAX 64

static int submit_get(struct bench *bench, size_t i)
{
	const struct config *config = bench->config;

	return kv_client_submit_get(bench->client, block_key(&bench->block, i), config->key_size,
				    bench_room(bench, i), bench->value_size, i);
}

static int submit_put(struct bench *bench, size_t i)
{
	const struct config *config = bench->config;

	value_number(bench->value, bench->block.numbers[i]);
	return kv_client_submit_put(bench->client, block_key(&bench->block, i), config->key_size,
				    bench->value, bench->value_size, NULL, i);
}

/* Takes what has come in, waiting for the first. Returns how many, or a negative status. */
static int take_results(struct bench *bench, bool get)
{
	kv_result_t results[POLL_MAX];
	int count = kv_client_poll(bench->client, results, POLL_MAX, -1);

	if (count <= 0)
		return error_set(RMR_TIMEOUT, "poll: %s: %s", kv_strerror(count),
				 flag_words(kv_client_error(bench->client)));
	for (int i = 0; i < count; i++) {
		uint64_t place = results[i].cookie;

		if (place >= BLOCK_KEYS)
			return error_set(RMR_SYSTEM, "poll: a cookie that was never given");
		if (results[i].status != KV_OK)
			return bench_failed(bench, results[i].status, get ? "get" : "put",
					    bench->block.numbers[place]);
		if (get && results[i].length != bench->value_size)
			return bench_check(bench, bench_room(bench, place), results[i].length,
					   bench->block.numbers[place]);
		if (place % SAMPLE_EVERY == 0)
			histogram_record(
				&bench->slot->latency,
				clock_ticks_to_ns(clock_ticks() - bench->submitted[place]));
	}
	return count;
}

/* The window may be full when nothing of ours is under way: the library has requests of its own,
 * such as what it tells about keys that were read. A poll takes their answers in. */
static bool has_made_room(struct bench *bench, uint64_t *deadline_ns)
{
	kv_result_t result;

	if (!*deadline_ns)
		*deadline_ns = clock_deadline_ns(bench->config->options.timeout_ms);
	(void)kv_client_poll(bench->client, &result, 1, 0);
	return !clock_passed(*deadline_ns);
}

static enum rmr_status slice_async(struct bench *bench, size_t first, size_t count, bool get)
{
	size_t sent = 0, answered = 0;
	uint64_t deadline_ns = 0;

	while (answered < count) {
		int status = KV_OK;

		while (status == KV_OK && sent < count && sent - answered < bench->config->window) {
			size_t i = first + sent;

			if (i % SAMPLE_EVERY == 0)
				bench->submitted[i] = clock_ticks();
			status = get ? submit_get(bench, i) : submit_put(bench, i);
			if (status == KV_OK)
				sent++;
			else if (status != KV_AGAIN ||
				 (sent == answered && !has_made_room(bench, &deadline_ns)))
				return bench_failed(bench, status, "submit",
						    bench->block.numbers[i]);
		}
		if (sent == answered)
			continue;
		deadline_ns = 0;
		status = take_results(bench, get);
		if (status < 0)
			return (enum rmr_status)status;
		answered += (size_t)status;
	}
	return RMR_OK;
}

enum rmr_status slice_async_get(struct bench *bench, size_t first, size_t count)
{
	return slice_async(bench, first, count, true);
}

enum rmr_status slice_async_put(struct bench *bench, size_t first, size_t count)
{
	return slice_async(bench, first, count, false);
}
