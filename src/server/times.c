/*
 * How long requests take in the server: from the moment that one is taken up to the moment that its
 * reply is posted. What the network takes is not in it, nor what a request waits for others.
 *
 * Each worker has a histogram for each operation, which it alone writes: no lock, and no
 * read-modify-write. One request in sixteen is timed, so that it costs next to nothing.
 *
 * Histograms only grow. What counts is how it is now, so the housekeeper keeps what they were five
 * and ten seconds ago, and the difference to the older one is what is shown.
 */
#include <string.h>

#include "server/internal.h"

#define SUB_BUCKETS (1u << TIMES_SUB_BITS)

/* As histogram_bucket() does it, with wider buckets. */
static unsigned bucket_of(uint64_t value)
{
	unsigned bits = 63u - (unsigned)__builtin_clzll(value | 1);
	unsigned shift = bits > TIMES_SUB_BITS ? bits - TIMES_SUB_BITS : 0;

	return (shift << TIMES_SUB_BITS) + (unsigned)(value >> shift);
}

static uint64_t bucket_middle(unsigned bucket)
{
	unsigned shift;

	if (bucket < 2 * SUB_BUCKETS)
		return bucket;
	shift = (bucket >> TIMES_SUB_BITS) - 1;
	return ((uint64_t)(SUB_BUCKETS + (bucket & (SUB_BUCKETS - 1))) << shift) +
	       (UINT64_C(1) << shift) / 2;
}

void times_record(struct times *times, unsigned op, uint64_t ns)
{
	const uint64_t most = (UINT64_C(1) << TIMES_BITS) - 1;

	counter_add(&times->buckets[op - KV_OP_GET][bucket_of(ns < most ? ns : most)], 1);
}

static void sum_up(const struct kv_server *server, unsigned row, uint64_t sums[TIMES_BUCKETS])
{
	memset(sums, 0, TIMES_BUCKETS * sizeof(sums[0]));
	for (unsigned i = 0; i <= server->worker_count; i++) {
		const struct times *times =
			i < server->worker_count ? &server->workers[i].times : &server->above_times;

		/* Relaxed: figures, ordered with nothing. */
		for (unsigned bucket = 0; bucket < TIMES_BUCKETS; bucket++)
			sums[bucket] += atomic_load_explicit(&times->buckets[row][bucket],
							     memory_order_relaxed);
	}
}

void times_turn(struct kv_server *server)
{
	struct times_past *past = &server->times_past;

	pthread_mutex_lock(&past->lock);
	memcpy(past->older, past->newer, sizeof(past->older));
	for (unsigned row = 0; row < TIMES_OPS; row++)
		sum_up(server, row, past->newer[row]);
	pthread_mutex_unlock(&past->lock);
}

void times_forget(struct kv_server *server)
{
	struct times_past *past = &server->times_past;

	pthread_mutex_lock(&past->lock);
	memset(past->older, 0, sizeof(past->older));
	memset(past->newer, 0, sizeof(past->newer));
	pthread_mutex_unlock(&past->lock);
}

static uint64_t percentile(const uint64_t counts[TIMES_BUCKETS], uint64_t total, unsigned permille)
{
	uint64_t rank = (total * permille + 999) / 1000, seen = 0;

	for (unsigned bucket = 0; bucket < TIMES_BUCKETS; bucket++) {
		seen += counts[bucket];
		if (seen >= rank)
			return bucket_middle(bucket);
	}
	return 0;
}

void times_summarize(struct kv_server *server, unsigned op, struct times_summary *summary)
{
	struct times_past *past = &server->times_past;
	unsigned row = op - KV_OP_GET;
	uint64_t counts[TIMES_BUCKETS];

	*summary = (struct times_summary){0};
	sum_up(server, row, counts);
	pthread_mutex_lock(&past->lock);
	for (unsigned bucket = 0; bucket < TIMES_BUCKETS; bucket++) {
		counts[bucket] -= past->older[row][bucket];
		summary->samples += counts[bucket];
	}
	pthread_mutex_unlock(&past->lock);
	if (!summary->samples)
		return;
	summary->p50_ns = percentile(counts, summary->samples, 500);
	summary->p99_ns = percentile(counts, summary->samples, 990);
	summary->p999_ns = percentile(counts, summary->samples, 999);
}
