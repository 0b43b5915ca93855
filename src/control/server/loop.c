/*
 * The loop: the one thread of the control server.
 *
 *	wait for descriptors, the next deadline, or the next look at everybody
 *	-> descriptors: connections read and run calls, the listener takes connections in
 *	-> the data plane: completions, which answer calls
 *	-> deadlines that have passed
 *	-> all connections that have something to send
 *	-> connections that are over
 *
 * While transfers of the data plane are under way, or shortly after calls came, it looks again
 * without sleeping for SPIN_NS: who asks one call after the other need not wait for a wake-up.
 * An idle server makes two system calls a second while clients are connected, or registered with
 * the data plane, and shortly after somebody came to it; and none else.
 *
 * Stopping: health says NOT_SERVING, the listener closes, everybody gets a first GOAWAY that
 * refuses nothing yet, and NOTICE_NS later the one that does: so calls that were on their way are
 * served. Then it waits for the calls under way, as long as the options say.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/server/internal.h"

#define EVENTS	  64
#define CHECK_NS  UINT64_C(500000000)
#define SPIN_NS	  UINT64_C(20000)
#define NOTICE_NS UINT64_C(50000000)

bool control_watch_add(struct kv_control_server *control, struct control_watch *watch,
		       uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = watch};

	return epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) == 0;
}

bool control_watch_change(struct kv_control_server *control, struct control_watch *watch,
			  uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = watch};

	return epoll_ctl(control->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) == 0;
}

void control_watch_remove(struct kv_control_server *control, struct control_watch *watch)
{
	(void)epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
}

void loop_wake(struct kv_control_server *control)
{
	uint64_t one = 1;

	if (write(control->wake_fd, &one, sizeof(one)) < 0)
		return; /* it is full, and wakes as well */
}

/* ------------------------------------------------------------------------------------------
 * Parts of a turn
 */

/* Once: between the parts of a long transfer the others have their turn. */
static int poll_plane(struct kv_control_server *control)
{
	return control->plane ? data_plane_poll(control->plane) : 0;
}

static void expire(struct kv_control_server *control)
{
	struct rpc *rpc;
	uint64_t now_ns;

	if (!control->deadlines.count)
		return;
	now_ns = clock_now_ns();
	while ((rpc = deadlines_passed(&control->deadlines, now_ns)) != NULL)
		rpc_expire(rpc);
}

static void flush(struct kv_control_server *control)
{
	while (!list_is_empty(&control->dirty)) {
		struct h2_conn *conn =
			list_first_entry(&control->dirty, struct h2_conn, dirty_link);

		list_remove(&conn->dirty_link);
		h2_flush(conn);
	}
	while (!list_is_empty(&control->over))
		h2_destroy(list_first_entry(&control->over, struct h2_conn, over_link));
}

/* Looks at everybody, if it is time. */
static void check(struct kv_control_server *control)
{
	uint64_t now_ns = clock_quick_ns();

	if (now_ns < control->next_check_ns)
		return;
	control->next_check_ns = now_ns + CHECK_NS;
	now_ns = clock_now_ns();
	list_for_each (at, &control->conns)
		h2_check(list_entry(at, struct h2_conn, link), now_ns);
	access_recheck(control);
	if (control->plane)
		data_plane_tick(control->plane, now_ns);
	control_listen_resume(control);
}

/* How long there is nothing to do. */
static int find_timeout_ms(struct kv_control_server *control)
{
	uint64_t until_ns = deadlines_next_ns(&control->deadlines);

	if (!list_is_empty(&control->hungry))
		return 0;
	if (!list_is_empty(&control->conns) || control->accept_paused ||
	    (control->plane && data_plane_needs_ticks(control->plane))) {
		if (until_ns > control->next_check_ns)
			until_ns = control->next_check_ns;
	}
	if (control->is_stopping && until_ns > control->stop_ns)
		until_ns = control->stop_ns;
	return clock_remaining_ms(until_ns);
}

/* Those who had more to do than their part of the last turn. */
static void feed(struct kv_control_server *control)
{
	struct list *last = control->hungry.prev;

	while (!list_is_empty(&control->hungry)) {
		struct list *at = control->hungry.next;

		h2_feed(list_entry(at, struct h2_conn, hungry_link));
		if (at == last)
			break;
	}
}

/* TLS has bytes that no descriptor tells of. */
static bool read_rests(struct kv_control_server *control)
{
	bool any = false;

	if (!control->uses_tls)
		return false;
	list_for_each (at, &control->conns) {
		struct h2_conn *conn = list_entry(at, struct h2_conn, link);

		if (conn->has_rest && conn->state != H2_OVER) {
			h2_read_rest(conn);
			any = true;
		}
	}
	return any;
}

bool loop_turn(struct kv_control_server *control, int timeout_ms)
{
	struct epoll_event events[EVENTS];
	int count = epoll_wait(control->epoll_fd, events, EVENTS, timeout_ms);
	bool found = count > 0 || !list_is_empty(&control->hungry);

	feed(control);
	for (int i = 0; i < count; i++) {
		struct control_watch *watch = events[i].data.ptr;

		watch->ready(watch, events[i].events);
	}
	found |= read_rests(control);
	found |= poll_plane(control) > 0;
	expire(control);
	check(control);
	flush(control);
	return found;
}

/* ------------------------------------------------------------------------------------------
 * The thread
 */

static void serve(struct kv_control_server *control)
{
	uint64_t busy_ns = 0;

	/* Acquire: pairs with the release in kv_control_server_stop. */
	while (!atomic_load_explicit(&control->stop, memory_order_acquire)) {
		bool spins = clock_quick_ns() < busy_ns;
		int timeout_ms = spins ? 0 : find_timeout_ms(control);

		if (timeout_ms && control->plane && !data_plane_arm(control->plane))
			timeout_ms = 0;
		if (loop_turn(control, timeout_ms) ||
		    (control->plane && data_plane_is_busy(control->plane)))
			busy_ns = clock_quick_ns() + SPIN_NS;
	}
}

static void finish(struct kv_control_server *control)
{
	uint64_t limit_ns = clock_deadline_ns(control->options.stop_timeout_ms);

	control_listen_close(control);
	health_tell(control);
	list_for_each (at, &control->conns) {
		struct h2_conn *conn = list_entry(at, struct h2_conn, link);

		if (conn->state == H2_OPEN)
			(void)nghttp2_submit_shutdown_notice(conn->session);
		h2_touch(conn);
	}
	control->stop_ns = clock_now_ns() + NOTICE_NS;
	while (control->conn_count && !clock_passed(control->stop_ns))
		(void)loop_turn(control, clock_remaining_ms(control->stop_ns));
	control->is_stopping = true;
	control->stop_ns = limit_ns;
	list_for_each (at, &control->conns)
		h2_leave(list_entry(at, struct h2_conn, link), NGHTTP2_NO_ERROR,
			 "the server stops");
	flush(control);
	while (control->conn_count && !clock_passed(limit_ns)) {
		int timeout_ms = find_timeout_ms(control);

		if (control->plane && !data_plane_arm(control->plane))
			timeout_ms = 0;
		(void)loop_turn(control, timeout_ms);
	}
	list_for_each (at, &control->conns)
		h2_end(list_entry(at, struct h2_conn, link), "the server stops");
	flush(control);
}

void *loop_run(void *argument)
{
	struct kv_control_server *control = argument;

	serve(control);
	finish(control);
	return NULL;
}
