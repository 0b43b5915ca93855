/*
 * When an operation is due, and how long it took from then.
 *
 * With a target rate the operations of a thread are due at moments that are fixed beforehand, one
 * interval after the other, whatever the server does. An operation's latency counts from the moment
 * it was due, not from when it was sent. The difference is all when a server stalls: a client that
 * waits for each answer sends nothing during a stall of a second, and would count one slow
 * operation where at a thousand a second a thousand users waited. (This is called coordinated
 * omission: the server's silence decides which latencies are never taken.) Here those thousand are
 * sent late, one after the other, and each counts the time that it was late, too.
 *
 * The threads' moments are spread over the interval, so that they do not all call at once.
 *
 * Without a rate an operation begins when it is sent: that measures how fast it goes when nobody
 * waits for his turn.
 *
 * Times are ticks of clock_ticks().
 */
#ifndef KV_BENCH_PACE_H
#define KV_BENCH_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {
	double interval; /* ticks between two operations of this thread; 0: no rate */
	double next;	 /* when the next is due */
	uint64_t think;	 /* ticks between the end of one and the beginning of the next */
};

/* rate: of all threads. The first moment is at or after `start`. */
void pace_init(struct pace *pace, double rate, uint64_t think_ns, uint64_t start, unsigned index,
	       unsigned count);

static inline bool pace_has_rate(const struct pace *pace)
{
	return pace->interval > 0;
}

/* When the next operation is due; it is counted as taken. */
static inline uint64_t pace_take(struct pace *pace)
{
	uint64_t due = (uint64_t)pace->next;

	pace->next += pace->interval;
	return due;
}

/* How many are due before `end`. */
uint64_t pace_left(const struct pace *pace, uint64_t end);

/* Sleeps, and spins at last: a sleep ends some ten microseconds late. */
void pace_wait(uint64_t until);

uint64_t pace_ticks_of(uint64_t ns);

#endif
