/*
 * Hosts that fall silent.
 *
 * While something is in flight the adapter itself notices: it repeats a request a few times and
 * then fails it. How long that takes is set from dead_after_ms when the queue pair is brought up
 * (conn.c). On a connection where nothing is in flight nobody would notice, so a request of no
 * length is sent every quarter of dead_after_ms: a WRITE of nothing, which the peer's adapter
 * acknowledges without its program, also if that is stopped.
 *
 * It is sent, too, when something has been under way for so long and no request was done. Soft-RoCE
 * may have forgotten to send the rest of what it was given, and goes on when it is given more
 * (docs/rationale.md). A transfer that is merely slow takes no harm from it; but giving it more is
 * what may make soft-RoCE forget, so it is done again, a few times.
 *
 * A timer of the queue makes its descriptor readable for that, so that one who sleeps wakes up; one
 * who polls sees the timer when he looks at his descriptors. With no connection it is off.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/verbs/internal.h"

#define TICK_MIN_MS 10

static int interval_ms(const struct verbs_conn *conn)
{
	int quarter = conn->base.options.dead_after_ms / 4;

	return quarter < TICK_MIN_MS ? TICK_MIN_MS : quarter;
}

static void probe(struct verbs_conn *conn, uint64_t now_ns, bool is_stuck)
{
	if (post_probe(conn, is_stuck))
		conn->last_probe_ns = now_ns;
}

/* Something is under way, and nothing was done since the last tick. */
static bool is_stuck(struct verbs_conn *conn)
{
	bool stuck = conn->posted != conn->done && conn->done == conn->done_before;

	conn->done_before = conn->done;
	return stuck;
}

/* The caller was accepted, but has not come to meet us. RDMA CM itself asks it for more than a
 * minute. */
static bool is_overdue(const struct verbs_conn *conn, uint64_t now_ns)
{
	uint64_t patience_ns = (uint64_t)conn->base.options.dead_after_ms * 1000000u;

	if (conn->state != CONN_MEETING)
		return false;
	return conn->socket ? socket_is_overdue(conn, now_ns)
			    : now_ns - conn->last_probe_ns >= patience_ns;
}

static void tick(struct queue_source *source, uint32_t events)
{
	struct verbs_queue *queue =
		(struct verbs_queue *)((char *)source - offsetof(struct verbs_queue, timer_source));
	uint64_t now_ns = clock_now_ns(), count;

	(void)events;
	if (read(queue->timer_fd, &count, sizeof(count)) < 0)
		return;
	arrive_reclaim(queue);
	list_for_each (link, &queue->base.conns) {
		struct verbs_conn *conn =
			(struct verbs_conn *)list_entry(link, struct rmr_conn, link);

		if (is_overdue(conn, now_ns))
			verbs_conn_fail(conn, RMR_TIMEOUT);
		if (conn->state == CONN_OPEN &&
		    now_ns - conn->last_probe_ns >= (uint64_t)interval_ms(conn) * 1000000u)
			probe(conn, now_ns, is_stuck(conn));
	}
}

enum rmr_status keepalive_init(struct verbs_queue *queue)
{
	enum rmr_status status;

	queue->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (queue->timer_fd < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot make a timer");
	queue->timer_source.ready = tick;
	status = queue_watch(&queue->base, queue->timer_fd, EPOLLIN, &queue->timer_source);
	if (status != RMR_OK)
		close(queue->timer_fd);
	return status;
}

void keepalive_fini(struct verbs_queue *queue)
{
	close(queue->timer_fd);
}

void keepalive_update(struct verbs_queue *queue)
{
	struct itimerspec when = {0};
	int period_ms = 0;

	list_for_each (link, &queue->base.conns) {
		struct verbs_conn *conn =
			(struct verbs_conn *)list_entry(link, struct rmr_conn, link);

		if (conn->qp && (period_ms == 0 || interval_ms(conn) < period_ms))
			period_ms = interval_ms(conn);
	}
	if (period_ms == queue->tick_ms)
		return;
	queue->tick_ms = period_ms;
	when.it_interval.tv_sec = when.it_value.tv_sec = period_ms / 1000;
	when.it_interval.tv_nsec = when.it_value.tv_nsec = period_ms % 1000 * 1000000l;
	(void)timerfd_settime(queue->timer_fd, 0, &when, NULL);
}

void keepalive_probe_all(struct verbs_queue *queue)
{
	uint64_t now_ns = clock_now_ns();

	list_for_each (link, &queue->base.conns)
		probe((struct verbs_conn *)list_entry(link, struct rmr_conn, link), now_ns, false);
}
