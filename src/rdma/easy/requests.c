/*
 * What the runtime is asked to do, and how things end.
 *
 * Other threads, and callbacks, only leave requests: to take over an endpoint that is connected
 * now, to close one, to release a listener, to stop. The runtime carries them out between two
 * turns, when it walks no events; so nothing that a callback closes is gone before that callback,
 * and the batch that it is part of, are over.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "rdma/easy/internal.h"

#define FAREWELL_MS	1000		   /* a peer that takes nothing for so long gets no more */
#define FAREWELL_MAX_MS (10 * FAREWELL_MS) /* nor one that takes it by drops */

static bool is_closing(const RdmaConn *conn)
{
	return atomic_load_explicit(&conn->is_closing, memory_order_relaxed);
}

/* The endpoint has lost its link: tells the program, or frees what nobody will. */
static void tell_lost(RdmaConn *conn, enum rmr_status status, const char *reason)
{
	RdmaDisconnectCallback callback =
		atomic_load_explicit(&conn->disconnected, memory_order_acquire);

	if (!is_closing(conn) && callback)
		callback(conn, status, reason);
	else if (is_closing(conn) || conn->listener)
		conn_free(conn);
}

static void bury(struct link *link)
{
	RdmaConn *conn = link->conn;
	struct lane *lane = link->lane;
	enum rmr_status status = link->status;
	char reason[sizeof(link->reason)];

	memcpy(reason, link->reason, sizeof(reason));
	if (conn) {
		lane_lock_take(&lane->lock);
		conn->link = NULL;
		atomic_store_explicit(&conn->state, CONN_IDLE, memory_order_release);
		lane_lock_give(&lane->lock);
	}
	easy_link_destroy(link);
	if (conn && lane == &conn->own_lane) {
		loop_remove_lane(lane);
		lane_close(lane);
	}
	if (conn)
		tell_lost(conn, status, reason);
}

void requests_bury_ended(void)
{
	while (!list_is_empty(&loop.ended))
		bury(list_first_entry(&loop.ended, struct link, ended_link));
}

/* When a link that is leaving ends, if its peer takes nothing from now on. */
static uint64_t farewell_ns(const struct link *link)
{
	uint64_t next_ns = clock_deadline_ns(FAREWELL_MS);

	return next_ns < link->leaving_until_ns ? next_ns : link->leaving_until_ns;
}

static void begin_close(RdmaConn *conn)
{
	struct waiter *closer;
	struct link *link;

	if (atomic_load(&conn->state) == CONN_DIALING) {
		/* Freed when the dialer comes back; nobody needs to wait for that. */
		pthread_mutex_lock(&runtime.mutex);
		closer = conn->closer;
		conn->closer = NULL;
		pthread_mutex_unlock(&runtime.mutex);
		if (closer)
			waiter_complete(closer);
		return;
	}
	link = conn->link; /* only we take it away */
	if (!link) {
		conn_free(conn);
		return;
	}
	if (link->is_ended)
		return;
	if (!link->is_introduced) {
		loop_end_link(link, RMR_REFUSED, "refused by the accept callback");
		return;
	}
	lane_lock_take(&link->lane->lock);
	easy_link_say_bye(link);
	link->leaving_credited = link->credited;
	lane_lock_give(&link->lane->lock);
	loop_heat(link->lane);
	/* One that was dialing comes here a second time, and gets no more time for it. */
	if (!link->leaving_until_ns)
		link->leaving_until_ns = clock_deadline_ns(FAREWELL_MAX_MS);
	loop_set_timer(link, farewell_ns(link));
}

void requests_time_out(struct link *link)
{
	uint64_t credited;

	lane_lock_take(&link->lane->lock);
	credited = link->credited;
	lane_lock_give(&link->lane->lock);
	if (link->is_leaving && credited != link->leaving_credited &&
	    !clock_passed(link->leaving_until_ns)) {
		link->leaving_credited = credited;
		link->deadline_ns = farewell_ns(link);
		return;
	}
	loop_end_link(link, RMR_TIMEOUT,
		      link->is_leaving ? "the peer takes nothing, or too slowly"
				       : "the caller said nothing for too long");
}

/* A dialer is done with this one, for better or worse. */
static void adopt(RdmaConn *conn)
{
	RdmaConnectedCallback callback =
		atomic_load_explicit(&conn->connected, memory_order_acquire);

	if (conn->dial_status != RMR_OK) {
		atomic_store_explicit(&conn->state, CONN_IDLE, memory_order_release);
		tell_lost(conn, conn->dial_status, conn->dial_reason);
	} else if (loop_add_lane(conn->lane) != RMR_OK) {
		loop_end_link(conn->link, RMR_SYSTEM, error_chain());
	} else if (is_closing(conn)) {
		begin_close(conn); /* it was closed while it was dialing */
	} else if (callback) {
		callback(conn);
	}
}

/* All of a listener's endpoints, or simply all. */
static void close_all(const RdmaListener *listener)
{
	struct list mine;
	RdmaConn *conn;

	list_init(&mine);
	pthread_mutex_lock(&runtime.mutex);
	list_for_each (at, &runtime.conns) {
		conn = list_entry(at, RdmaConn, registry_link);
		if ((listener && conn->listener != listener) ||
		    atomic_exchange(&conn->is_closing, true))
			continue;
		list_add_tail(&mine, &conn->close_link);
	}
	pthread_mutex_unlock(&runtime.mutex);
	while (!list_is_empty(&mine)) {
		conn = list_first_entry(&mine, RdmaConn, close_link);
		list_remove(&conn->close_link);
		begin_close(conn);
	}
}

/* Nobody calls any more; who is connected is sent away. */
static void begin_release(RdmaListener *listener)
{
	for (unsigned i = 0; i < listener->path_count; i++) {
		struct path *path = &listener->paths[i];

		loop_watch_path(path, false);
		rmr_listener_close(path->listener);
		path->listener = NULL;
		/* Callers that have not introduced themselves. */
		list_for_each (at, &path->lane.links) {
			struct link *link = list_entry(at, struct link, lane_link);

			if (!link->conn)
				loop_end_link(link, RMR_CANCELED, "the server ends");
		}
	}
	close_all(listener);
}

static bool has_links(const RdmaListener *listener)
{
	for (unsigned i = 0; i < listener->path_count; i++) {
		if (listener->paths[i].lane.link_count)
			return true;
	}
	return false;
}

void requests_finish_releases(void)
{
	list_for_each_safe (at, &loop.releasing) {
		RdmaListener *listener = list_entry(at, RdmaListener, request_link);

		if (listener->conn_count > 0 || has_links(listener) ||
		    atomic_load(&listener->starters) > 0)
			continue;
		list_remove(&listener->request_link);
		listener_free(listener);
	}
}

static void splice(struct list *from, struct list *to)
{
	list_init(to);
	if (list_is_empty(from))
		return;
	*to = *from;
	to->next->prev = to;
	to->prev->next = to;
	list_init(from);
}

static void release_all(void)
{
	pthread_mutex_lock(&runtime.mutex);
	list_for_each (at, &runtime.listeners) {
		RdmaListener *listener = list_entry(at, RdmaListener, registry_link);

		if (listener_begin_end(listener))
			list_add_tail(&runtime.releases, &listener->request_link);
	}
	pthread_mutex_unlock(&runtime.mutex);
}

static void look_at_listeners(void)
{
	struct list *at;

	/* The list changes only at its end, or by us: but its links are the mutex's. */
	pthread_mutex_lock(&runtime.mutex);
	for (at = runtime.listeners.next; at != &runtime.listeners; at = at->next)
		listener_look(list_entry(at, RdmaListener, registry_link));
	pthread_mutex_unlock(&runtime.mutex);
}

static void heat_wanted(void)
{
	list_for_each (at, &loop.lanes) {
		struct lane *lane = list_entry(at, struct lane, link);

		if (atomic_load_explicit(&lane->is_wanted, memory_order_relaxed))
			loop_heat(lane);
	}
}

void requests_handle(void)
{
	struct list adopts, closes, releases;
	bool is_stopping;

	pthread_mutex_lock(&runtime.mutex);
	is_stopping = runtime.is_stopping;
	pthread_mutex_unlock(&runtime.mutex);
	if (is_stopping)
		release_all();
	pthread_mutex_lock(&runtime.mutex);
	splice(&runtime.adopts, &adopts);
	splice(&runtime.closes, &closes);
	splice(&runtime.releases, &releases);
	pthread_mutex_unlock(&runtime.mutex);
	heat_wanted();
	while (!list_is_empty(&adopts)) {
		RdmaConn *conn = list_first_entry(&adopts, RdmaConn, adopt_link);

		list_remove(&conn->adopt_link);
		adopt(conn);
	}
	while (!list_is_empty(&closes)) {
		RdmaConn *conn = list_first_entry(&closes, RdmaConn, close_link);

		list_remove(&conn->close_link);
		begin_close(conn);
	}
	while (!list_is_empty(&releases)) {
		RdmaListener *listener = list_first_entry(&releases, RdmaListener, request_link);

		list_remove(&listener->request_link);
		begin_release(listener);
		list_add_tail(&loop.releasing, &listener->request_link);
	}
	if (is_stopping)
		close_all(NULL);
	look_at_listeners();
}
