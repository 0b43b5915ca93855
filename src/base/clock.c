/*
 * Calibration of the tick counter. On x86 the rate is measured against CLOCK_MONOTONIC over a
 * millisecond: reading both clocks within a few tens of nanoseconds of each other at both ends
 * bounds the error to about 0.01%. On arm64 the processor tells the rate.
 */
#include "base/clock.h"

#include <limits.h>
#include <stdatomic.h>
#include <sys/stat.h>

#define CALIBRATION_NS 1000000u
#define ANCHOR_US      1000

_Thread_local struct clock_anchor clock_anchor;

static int remaining_ms(uint64_t now_ns, uint64_t deadline_ns)
{
	uint64_t left_ms;

	if (now_ns >= deadline_ns)
		return 0;
	left_ms = (deadline_ns - now_ns - 1) / 1000000u + 1;
	return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

int clock_remaining_ms(uint64_t deadline_ns)
{
	return deadline_ns == CLOCK_NEVER ? -1 : remaining_ms(clock_now_ns(), deadline_ns);
}

int clock_quick_remaining_ms(uint64_t deadline_ns)
{
	return deadline_ns == CLOCK_NEVER ? -1 : remaining_ms(clock_quick_ns(), deadline_ns);
}

uint64_t clock_namespace(void)
{
	struct stat stat_of;

	/* The number of the file is the namespace's. A process cannot change its own. */
	if (stat("/proc/self/ns/time", &stat_of) == 0)
		return stat_of.st_ino;
	/* Kernels before 5.6 have no time namespaces: all clocks are one. */
	return stat("/proc/self/ns", &stat_of) == 0;
}

#if defined(__x86_64__)
struct clock_pair {
	uint64_t ns;
	uint64_t ticks;
};

/* Reads both clocks at the same moment, as nearly as a few tries get them. */
static struct clock_pair read_both(void)
{
	struct clock_pair best = {0};
	uint64_t best_width = UINT64_MAX;

	for (int i = 0; i < 8; i++) {
		uint64_t before = clock_ticks();
		uint64_t ns = clock_now_ns();
		uint64_t width = clock_ticks() - before;

		if (width < best_width) {
			best_width = width;
			best = (struct clock_pair){ns, before + width / 2};
		}
	}
	return best;
}

static double measure(void)
{
	struct clock_pair start = read_both(), end;

	while (clock_now_ns() - start.ns < CALIBRATION_NS)
		cpu_relax();
	end = read_both();
	return (double)(end.ticks - start.ticks) * 1000.0 / (double)(end.ns - start.ns);
}
#elif defined(__aarch64__)
static double measure(void)
{
	uint64_t hertz;

	__asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hertz));
	return (double)hertz / 1e6;
}
#else
static double measure(void)
{
	return 1000.0;
}
#endif

double clock_ticks_per_us(void)
{
	static _Atomic double cached;
	/* Relaxed: the number stands alone. Threads that race measure twice and agree closely. */
	double ticks = atomic_load_explicit(&cached, memory_order_relaxed);

	if (ticks == 0.0) {
		ticks = measure();
		atomic_store_explicit(&cached, ticks, memory_order_relaxed);
	}
	return ticks;
}

uint64_t clock_ticks_to_ns(uint64_t ticks)
{
	return (uint64_t)((double)ticks * 1000.0 / clock_ticks_per_us());
}

uint64_t clock_take_anchor(void)
{
	double per_us = clock_ticks_per_us();

	clock_anchor = (struct clock_anchor){
		.ns = clock_now_ns(),
		.ticks = clock_ticks(),
		.good_for = (uint64_t)(per_us * ANCHOR_US),
		.tick_ns = (uint64_t)(1000.0 / per_us * 4294967296.0),
	};
	return clock_anchor.ns;
}
