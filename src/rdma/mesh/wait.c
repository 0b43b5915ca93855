/*
 * Waiting: polls for a little while, then sleeps on the descriptors of all queues, the listener and
 * the dialer together.
 *
 * How long it polls it learns, as rmr_wait does: what came while it polled doubles the time, a
 * sleep halves it. A queue is armed right before the sleep, which is asked of it again each time;
 * one that has something then is polled first.
 *
 * A slot that comes free makes no callback. Whoever was refused one and waits is woken all the
 * same: the credit comes with an immediate, and is_freed ends the wait. It stays set until then,
 * for it may have been a poll before that took the credit in; so a wait may also end for room that
 * was used meanwhile.
 */
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/mesh/internal.h"

/* Deadlines of callers, and of those that are silent at the listener, have no descriptor. */
#define NAP_MS	    500
#define NAP_BUSY_MS 50

static bool arm(struct mesh_link *link)
{
	return !link->queue || rmr_queue_arm(link->queue) == RMR_OK;
}

/* False: something came in meanwhile. */
static bool arm_all(struct rmr_mesh *mesh)
{
	bool is_armed = true;

	mesh_for_each (peer, mesh)
		is_armed = is_armed && arm(&peer->link) && arm(&peer->caller);
	return is_armed;
}

static int find_nap(const struct rmr_mesh *mesh, uint64_t deadline_ns)
{
	int left_ms = clock_remaining_ms(deadline_ns);
	int nap_ms = mesh->callers ? NAP_BUSY_MS : NAP_MS;

	return left_ms < 0 || left_ms > nap_ms ? nap_ms : left_ms;
}

int mesh_sleep(struct rmr_mesh *mesh, uint64_t deadline_ns, struct mesh_peer *ready[MESH_READY_MAX])
{
	struct epoll_event events[MESH_READY_MAX];
	int count;

	if (!arm_all(mesh))
		return 0;
	count = epoll_wait(mesh->epoll_fd, events, MESH_READY_MAX, find_nap(mesh, deadline_ns));
	for (int i = 0; i < count; i++)
		ready[i] = events[i].data.ptr;
	if (count <= 0) {
		ready[0] = NULL;
		return 1;
	}
	return count;
}

/* What peers do by themselves counts as a reason to stay awake: see rmr_queue_activity. */
static unsigned find_activity(const struct rmr_mesh *mesh)
{
	unsigned sum = 0;

	mesh_for_each (peer, mesh)
		if (peer->state == MESH_UP)
			sum += rmr_queue_activity(peer->link.queue);
	return sum;
}

static int spin(struct rmr_mesh *mesh, uint64_t deadline_ns)
{
	uint64_t start = clock_ticks();
	unsigned activity = find_activity(mesh), now;
	int count;

	do {
		for (int i = 0; i < 8; i++) {
			count = rmr_mesh_poll(mesh);
			if (count || mesh->is_freed) {
				mesh->spin_ticks = mesh->spin_ticks * 2 + 1;
				if (mesh->spin_ticks > mesh->spin_limit)
					mesh->spin_ticks = mesh->spin_limit;
				return count;
			}
		}
		cpu_relax();
		now = find_activity(mesh);
		if (now != activity) {
			activity = now;
			start = clock_ticks();
			mesh->spin_ticks = mesh->spin_limit;
		}
		if (clock_passed(deadline_ns))
			return 0;
	} while (clock_ticks() - start < mesh->spin_ticks);
	mesh->spin_ticks /= 2;
	return 0;
}

/* Sleeps once, and polls those it may have happened with. */
static int sleep_and_poll(struct rmr_mesh *mesh, uint64_t deadline_ns)
{
	struct mesh_peer *ready[MESH_READY_MAX];
	int count = 0, woken = mesh_sleep(mesh, deadline_ns, ready);
	bool is_all = woken == 0;

	for (int i = 0; i < woken; i++)
		is_all = is_all || !ready[i] || ready[i]->caller.conn;
	if (is_all) {
		mesh_look_around(mesh);
		return rmr_mesh_poll(mesh);
	}
	for (int i = 0; i < woken; i++)
		count += mesh_poll_peer(ready[i]);
	return count;
}

int rmr_mesh_wait(struct rmr_mesh *mesh, int timeout_ms)
{
	uint64_t begin, deadline_ns;
	bool slept = false;
	int count;

	if (mesh->in_callback)
		return error_set(RMR_INVALID, "a callback of a mesh does not poll or wait");
	rmr_mesh_flush_all(mesh);
	count = rmr_mesh_poll(mesh);
	if (count || mesh->is_freed || timeout_ms == 0) {
		mesh->is_freed = false;
		return count;
	}
	begin = clock_ticks();
	deadline_ns = clock_deadline_ns(timeout_ms);
	count = spin(mesh, deadline_ns);
	while (!count && !mesh->is_freed && !clock_passed(deadline_ns)) {
		count = sleep_and_poll(mesh, deadline_ns);
		slept = true;
	}
	mesh->is_freed = false;
	/* A sleep that was hardly longer than the longest spin was not worth it. */
	if (slept && count && clock_ticks() - begin < 2 * mesh->spin_limit)
		mesh->spin_ticks = mesh->spin_limit;
	return count;
}
