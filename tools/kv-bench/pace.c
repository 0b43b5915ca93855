/* When an operation is due: see pace.h. */
#include "pace.h"

#include <time.h>

#include "base/clock.h"

#define SPIN_NS 100000 /* of the end of a wait */

uint64_t pace_ticks_of(uint64_t ns)
{
	return (uint64_t)((double)ns * clock_ticks_per_us() / 1e3);
}

void pace_init(struct pace *pace, double rate, uint64_t think_ns, uint64_t start, unsigned index,
	       unsigned count)
{
	double each = rate > 0 ? clock_ticks_per_us() * 1e6 / rate : 0;

	pace->interval = each * count;
	pace->next = (double)start + each * index;
	pace->think = pace_ticks_of(think_ns);
}

uint64_t pace_left(const struct pace *pace, uint64_t end)
{
	if (!pace_has_rate(pace) || pace->next >= (double)end)
		return 0;
	return (uint64_t)(((double)end - pace->next) / pace->interval) + 1;
}

void pace_wait(uint64_t until)
{
	uint64_t now = clock_ticks();

	while (now < until) {
		uint64_t left_ns = clock_ticks_to_ns(until - now);

		if (left_ns > SPIN_NS) {
			uint64_t sleep_ns = left_ns - SPIN_NS;
			struct timespec pause = {(time_t)(sleep_ns / 1000000000),
						 (long)(sleep_ns % 1000000000)};

			nanosleep(&pause, NULL);
		} else {
			cpu_relax();
		}
		now = clock_ticks();
	}
}
