/*
 * The housekeeper: a thread that takes back what has expired, and with it gives the sign of life
 * that clients watch who read the mapped store (store_tick); and that gets cells back (cells.c).
 */
#include <poll.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/internal.h"

#define TICK_NS	    20000000u
#define TICK_BUDGET 2000
/* Between looks at how long requests took lately: five seconds. */
#define TIMES_TICKS 250

void *housekeeper_run(void *argument)
{
	struct kv_server *server = argument;
	struct pollfd stop = {.fd = server->keep_stop_fd, .events = POLLIN};
	struct store_worker *worker;
	uint64_t next_ns = clock_now_ns();

	if (store_worker_open(server->store, &worker) != RMR_OK) {
		log_error("no worker of the store for the housekeeper: %s", rmr_error_message());
		return NULL;
	}
	for (unsigned tick = 0;; tick++) {
		struct timespec wait = {0};
		uint64_t now_ns;

		(void)store_tick(worker, TICK_BUDGET);
		cells_look_after(server);
		if (tick % TIMES_TICKS == TIMES_TICKS - 1)
			times_turn(server);
		now_ns = clock_now_ns();
		next_ns += TICK_NS;
		if (next_ns < now_ns)
			next_ns = now_ns; /* late: what was missed is not made up for */
		wait.tv_nsec = (long)(next_ns - now_ns);
		if (ppoll(&stop, 1, &wait, NULL) > 0)
			break;
	}
	store_worker_close(worker);
	return NULL;
}
