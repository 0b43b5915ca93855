/*
 * The housekeeper: a thread that takes back what has expired, and with it gives the sign of life
 * that clients watch who read the mapped store (store_tick); and that gets cells back.
 *
 * Cells. A counter's number lies in a cell, which clients add to by themselves. When the counter is
 * gone its cell may be another's only when no client remembers it any more:
 *
 *	housekeeper: takes a ticket, for all cells retired so far; then begins a new epoch
 *	worker: reads the epoch, then looks up what a request asks for, and tells both
 *	client: sees an epoch that is new to it, forgets all cells, and says so (CELLS)
 *
 * A cell told with the new epoch was found after the ticket was taken, when it was no retired one.
 * So the ticket can be given back when every worker has begun a turn in the new epoch, and no
 * session may know a cell of an older one. A client that is idle cannot be told. By tcp and verbs
 * it is thrown out after a while, and comes back without cells. By shm it may be looking at pinned
 * values, which it would lose: there we wait until it says something or ends.
 */
#include <poll.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/internal.h"

#define TICK_NS	    20000000u
#define TICK_BUDGET 2000
/* Ticks between looks at the cells. */
#define CELLS_EVERY 5
/* The same for how long requests took lately: five seconds. */
#define TIMES_TICKS 250

static bool needs_cells(struct kv_server *server)
{
	struct store_stats stats;

	store_stats(server->store, &stats);
	if (!stats.cells_retired)
		return false;
	return stats.cells_retired > stats.cells / 8 ||
	       stats.cells_used + stats.cells_retired >= stats.cells;
}

static bool session_remembers(const struct session *session, uint32_t epoch)
{
	/* Acquire: pairs with the release in operation_cells; what the client did before it said so
	 * is done. */
	uint32_t oldest = atomic_load_explicit(&session->cells_oldest, memory_order_acquire);

	return oldest && oldest < epoch;
}

/* Does this worker, or one of its clients, remember a cell of an older epoch? */
static bool worker_remembers(struct worker *worker, uint32_t epoch)
{
	bool remembers = false;

	/* Acquire: pairs with the release in the worker's turn: whatever it told its clients in an
	 * older epoch is noted in their sessions. */
	if (atomic_load_explicit(&worker->epoch_seen, memory_order_acquire) < epoch)
		return true;
	pthread_mutex_lock(&worker->lock);
	list_for_each (link, &worker->sessions) {
		if (session_remembers(list_entry(link, struct session, link), epoch)) {
			remembers = true;
			break;
		}
	}
	pthread_mutex_unlock(&worker->lock);
	return remembers;
}

static void begin_epoch(struct kv_server *server)
{
	server->ticket = store_cells_ticket(server->store);
	server->ticket_is_out = true;
	atomic_store(&server->epoch_ns, clock_now_ns());
	/* After the ticket: see above. */
	atomic_fetch_add(&server->cells_epoch, 1);
	for (unsigned i = 0; i < server->worker_count; i++)
		worker_wake(&server->workers[i]);
}

static void look_after_cells(struct kv_server *server)
{
	uint32_t epoch;

	if (!server->ticket_is_out) {
		if (needs_cells(server))
			begin_epoch(server);
		return;
	}
	epoch = atomic_load(&server->cells_epoch);
	for (unsigned i = 0; i < server->worker_count; i++) {
		if (worker_remembers(&server->workers[i], epoch))
			return;
	}
	store_cells_release(server->store, server->ticket);
	server->ticket_is_out = false;
}

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
		if (tick % CELLS_EVERY == 0)
			look_after_cells(server);
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
