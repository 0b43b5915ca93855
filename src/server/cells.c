/*
 * Cells: getting those of ended counters back. The housekeeper's, but for cells_part().
 *
 * A counter's number lies in a cell, which clients add to by themselves. When the counter is gone
 * its cell may be another's only when no client remembers it any more:
 *
 *	housekeeper: takes a ticket, for all cells retired so far; then begins a new epoch
 *	worker: reads the epoch, then looks up what a request asks for, and tells both
 *	client: sees an epoch that is new to it, forgets all cells, and says so (CELLS)
 *
 * A cell told with the new epoch was found after the ticket was taken, when it was no retired one.
 * So the ticket can be given back when every worker has begun a turn in the new epoch, and no
 * session may know a cell of an older one.
 *
 * A client that is silent cannot be told. Others do not wait for it: while no cell is free the
 * store counts by itself. If cells are missed for long, the client's session is ended
 * (session_check), and it comes back without cells; not if it holds views by shm, which it would
 * lose.
 *
 * When a session ends, its client can reach the cells no more: by tcp and verbs the connection is
 * what it reaches them by; by shm the region is closed, and a client looks at that before each
 * access. What is left is a client by shm that was stopped in the middle of an access, between that
 * look and the addition. It makes the addition whenever it continues. So what its session may have
 * known outlives the session, as a ghost, until its process is dead. If that cannot be found out,
 * or there are too many ghosts, no cell that was ever used before is used again.
 */
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/internal.h"

/* So many retired cells, and a quarter of those in use, are worth an epoch, though none is missed:
 * clients have to ask for each counter again. */
#define MANY_RETIRED 4096u

static bool needs_cells(struct kv_server *server)
{
	struct store_cells look;

	store_cells_look(server->store, &look);
	/* Relaxed: a hint for session_check. */
	if (look.were_missed)
		atomic_store_explicit(&server->cells_missed, true, memory_order_relaxed);
	if (!look.retired)
		return false;
	return look.were_missed || look.used + look.retired + look.lost >= look.count ||
	       (look.retired >= MANY_RETIRED && look.retired >= look.used / 4);
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

/* ------------------------------------------------------------------------------------------
 * Ghosts
 */

void cells_part(struct session *session)
{
	struct kv_server *server = session->worker->server;
	uint32_t oldest = atomic_load_explicit(&session->cells_oldest, memory_order_relaxed);
	bool is_kept = false;
	int process;

	if (!oldest || !rmr_conn_lingers(session->conn, &process))
		return;
	pthread_mutex_lock(&server->ghosts_lock);
	if (process >= 0 && server->ghost_count < SERVER_MAX_GHOSTS) {
		server->ghosts[server->ghost_count++] = (struct ghost){process, oldest};
		is_kept = true;
	}
	pthread_mutex_unlock(&server->ghosts_lock);
	if (!is_kept) {
		store_cells_bar(server->store);
		if (process >= 0)
			close(process);
	}
	log_warn_limited("%s: stopped in the middle of counting; the cells that it knows are not "
			 "used again %s",
			 session->peer, is_kept ? "before its process ends" : "at all");
}

/* Gives up ghosts whose processes are dead. Does one of the others remember an older epoch? */
static bool ghosts_remember(struct kv_server *server, uint32_t epoch)
{
	bool remembers = false;

	pthread_mutex_lock(&server->ghosts_lock);
	for (unsigned i = 0; i < server->ghost_count;) {
		struct ghost *ghost = &server->ghosts[i];
		struct pollfd process = {.fd = ghost->process, .events = POLLIN};

		if (poll(&process, 1, 0) > 0) {
			close(ghost->process);
			*ghost = server->ghosts[--server->ghost_count];
			continue;
		}
		remembers |= ghost->oldest < epoch;
		i++;
	}
	pthread_mutex_unlock(&server->ghosts_lock);
	return remembers;
}

void cells_close(struct kv_server *server)
{
	while (server->ghost_count)
		close(server->ghosts[--server->ghost_count].process);
}

/* ------------------------------------------------------------------------------------------
 * Epochs
 */

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

void cells_look_after(struct kv_server *server)
{
	bool is_needed = needs_cells(server);
	uint32_t epoch;

	if (!server->ticket_is_out) {
		if (is_needed)
			begin_epoch(server);
		return;
	}
	epoch = atomic_load(&server->cells_epoch);
	for (unsigned i = 0; i < server->worker_count; i++) {
		if (worker_remembers(&server->workers[i], epoch))
			return;
	}
	/* After the sessions: a session becomes a ghost before it is taken out of its list. */
	if (ghosts_remember(server, epoch))
		return;
	store_cells_release(server->store, server->ticket);
	server->ticket_is_out = false;
	atomic_store_explicit(&server->cells_missed, false, memory_order_relaxed);
}
