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
 * overlap it by some nanoseconds.
 *
 * clock_now_ns() takes 20 ns where the kernel lets programs read the processor's counter, and
 * several microseconds where it does not, as in many virtual machines. clock_quick_ns() is for
 * what happens at every operation and may be a few microseconds off, such as the beginning of a
 * timeout.
 *
 * Everything here may be called from any thread.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

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
	return __builtin_ia32_rdtsc(); /* <x86intrin.h> has it too, and 60,000 lines with it */
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

/* Both clocks at one moment of this thread's life. */
struct clock_anchor {
	uint64_t ns;
	uint64_t ticks;
	uint64_t good_for; /* ticks, after which it is taken anew; 0: it never was */
	uint64_t tick_ns;  /* nanoseconds of a tick, times 2^32 */
};

extern _Thread_local struct clock_anchor clock_anchor;

/* Takes the anchor anew, and returns clock_now_ns(). */
uint64_t clock_take_anchor(void);

/* About what clock_now_ns() would say: by the processor's counter, from a time that it said less
 * than a millisecond ago. Off by at most that millisecond whatever the counter does: should it
 * jump, it jumps out of the anchor's span. Two threads may see each other's times in the wrong
 * order. */
static inline uint64_t clock_quick_ns(void)
{
	uint64_t ticks = clock_ticks() - clock_anchor.ticks;

	if (__builtin_expect(ticks >= clock_anchor.good_for, 0))
		return clock_take_anchor();
	return clock_anchor.ns + (ticks * clock_anchor.tick_ns >> 32);
}

/* As clock_remaining_ms(), by clock_quick_ns(). */
int clock_quick_remaining_ms(uint64_t deadline_ns);

/* Which clock this process's CLOCK_MONOTONIC is: two processes of a host for which this is the same
 * number see the same times. 0: it cannot be told (no /proc). */
uint64_t clock_namespace(void);

/* Tells the processor that this is a spin loop: saves power, and lets the other hyperthread run. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

#endif
