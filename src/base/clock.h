/*
 * Clock: time for measuring and for deadlines.
 *
 * All times are nanoseconds of CLOCK_MONOTONIC: they never jump, mean the same in every process of
 * a host, and say nothing about the time of day. A deadline is such a time too; CLOCK_NEVER is the
 * deadline that never comes. A call with a timeout turns it into a deadline once, at the top, and
 * hands the deadline down, so that retries do not stretch it:
 *
 *	uint64_t deadline_ns = clock_deadline_ns(timeout_ms);
 *	while (!ready())
 *		poll(&fd, 1, clock_remaining_ms(deadline_ns));
 *
 * clock_ticks() reads the processor's own counter: a few nanoseconds against about 20 for
 * clock_now_ns(), good for timing single operations. It has no barrier: operations around it may
 * overlap it by some nanoseconds. Everything here may be called from any thread.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define CLOCK_NEVER UINT64_MAX

static inline uint64_t clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The deadline `timeout_ms` from now; negative means never. */
static inline uint64_t clock_deadline_ns(int timeout_ms)
{
	if (timeout_ms < 0)
		return CLOCK_NEVER;
	return clock_now_ns() + (uint64_t)timeout_ms * 1000000u;
}

/* True when the deadline has come. */
static inline bool clock_passed(uint64_t deadline_ns)
{
	return deadline_ns != CLOCK_NEVER && clock_now_ns() >= deadline_ns;
}

/* Milliseconds until the deadline as poll(2) wants them: rounded up, so that a poll does not wake
 * just before it; 0 when it has come; -1 for never; INT_MAX at most. */
int clock_remaining_ms(uint64_t deadline_ns);

/* The processor's counter. It runs at a constant rate, the same on all cores. */
static inline uint64_t clock_ticks(void)
{
#if defined(__x86_64__)
	return __rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return clock_now_ns();
#endif
}

/* How many ticks make a microsecond. The first call measures it, which takes about a millisecond
 * on x86; call it once before anything that is timed. */
double clock_ticks_per_us(void);

/* A count of ticks in nanoseconds. */
uint64_t clock_ticks_to_ns(uint64_t ticks);

/* Tells the processor that this is a spin loop: saves power, and lets the other hyperthread run. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	_mm_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

#endif
