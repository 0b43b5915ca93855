/*
 * Whether spinning pays, learned from how it went.
 *
 * A thread that waits for another one spins, because that answers sooner than the kernel could wake
 * a sleeper. Where the other thread waits for this very processor spinning only keeps it away. The
 * two cannot be told apart beforehand, but afterwards: a spin was won when what it waited for came
 * within its time; it was lost when the time was over, or when the spinning thread was taken off
 * its processor meanwhile, for then others want it.
 *
 * After n lost spins in a row the next 2^n waits do not spin: on a crowded machine one wait in a
 * few hundred tries it, and the first that is won ends that. One thread uses a gauge.
 */
#ifndef BASE_SPIN_GAUGE_H
#define BASE_SPIN_GAUGE_H

#include <stdbool.h>
#include <stdint.h>

#define SPIN_GAUGE_MOST	   8u	/* so the longest pause is 256 waits */
#define SPIN_GAUGE_CROWDED 3u	/* from here on the processors are taken for busy */
#define SPIN_GAUGE_GAP_US  200u /* two looks at the clock so far apart: taken off the processor */

struct spin_gauge {
	uint32_t lost; /* spins in a row, at most SPIN_GAUGE_MOST */
	uint32_t skip; /* waits that do not spin */
};

/* Should this wait spin? */
static inline bool spin_gauge_pays(struct spin_gauge *gauge)
{
	if (__builtin_expect(gauge->skip == 0, 1))
		return true;
	gauge->skip--;
	return false;
}

static inline bool spin_gauge_is_crowded(const struct spin_gauge *gauge)
{
	return gauge->lost >= SPIN_GAUGE_CROWDED;
}

static inline void spin_gauge_won(struct spin_gauge *gauge)
{
	gauge->lost = 0;
	gauge->skip = 0;
}

static inline void spin_gauge_lost(struct spin_gauge *gauge)
{
	if (gauge->lost < SPIN_GAUGE_MOST)
		gauge->lost++;
	gauge->skip = 1u << gauge->lost;
}

/* The thread was taken off its processor while it spun. */
static inline void spin_gauge_preempted(struct spin_gauge *gauge)
{
	if (gauge->lost < SPIN_GAUGE_CROWDED)
		gauge->lost = SPIN_GAUGE_CROWDED;
	spin_gauge_lost(gauge);
}

#endif
