/*
 * Endpoints: made, asked, closed. What they are connected by is in link.c, how in connect.c and
 * accept.c.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "rdma/easy/internal.h"

enum rmr_status conn_create(const RdmaOptions *options, RdmaListener *listener, struct lane *lane,
			    RdmaConn **result)
{
	RdmaConn *conn = calloc(1, sizeof(*conn));
	enum rmr_status status;

	if (!conn)
		return error_set(RMR_NO_MEMORY, "no memory for a connection");
	conn->options = *options;
	conn->listener = listener;
	conn->lane = lane ? lane : &conn->own_lane;
	list_init(&conn->adopt_link);
	list_init(&conn->close_link);
	list_init(&conn->memories);
	list_init(&conn->tellings);
	if (!lane) {
		status = lane_init(&conn->own_lane, options);
		if (status != RMR_OK) {
			free(conn);
			return status;
		}
	}
	runtime_lock();
	if (runtime.is_stopping) {
		pthread_mutex_unlock(&runtime.mutex);
		lane_fini(&conn->own_lane);
		free(conn);
		return error_set(RMR_CANCELED, "the runtime is being stopped");
	}
	list_add_tail(&runtime.conns, &conn->registry_link);
	pthread_mutex_unlock(&runtime.mutex);
	if (listener)
		listener->conn_count++;
	*result = conn;
	return RMR_OK;
}

void conn_free(RdmaConn *conn)
{
	struct waiter *closer;

	/* Sync calls whose operations have just been failed are on their way out. */
	while (atomic_load(&conn->callers) > 0)
		sched_yield();
	pthread_mutex_lock(&runtime.mutex);
	list_remove(&conn->registry_link);
	list_remove(&conn->adopt_link);
	list_remove(&conn->close_link);
	closer = conn->closer;
	pthread_mutex_unlock(&runtime.mutex);
	if (conn->space.memory)
		memory_set_exposed(conn->space.memory, false);
	memory_free_all(conn);
	memory_forget_tellings(conn);
	if (conn->listener)
		conn->listener->conn_count--;
	lane_fini(&conn->own_lane);
	free(conn);
	if (closer)
		waiter_complete(closer);
	runtime_wake(); /* somebody may wait for all to be gone */
}

void conn_set_up(RdmaConn *conn, struct link *link)
{
	struct rmr_conn_info info;

	rmr_conn_get_info(link->fabric, &info);
	snprintf(conn->peer, sizeof(conn->peer), "%s", info.peer);
	snprintf(conn->provider, sizeof(conn->provider), "%s",
		 rmr_device_info(link->lane->device)->name);
	link->conn = conn;
	conn->link = link;
	memory_tell_again(conn);
	/* Release: who sees it connected sees all of it. */
	atomic_store_explicit(&conn->state, CONN_UP, memory_order_release);
}

struct link *conn_link(const RdmaConn *conn)
{
	struct link *link = conn->link;

	/* Relaxed: what matters is a callback that has closed it, on this very thread. */
	if (link && !link->is_ended &&
	    !atomic_load_explicit(&conn->is_closing, memory_order_relaxed))
		return link;
	error_set(RMR_DISCONNECTED, "this endpoint is not connected");
	return NULL;
}

RdmaConn *rdmaConnWithOptions(const RdmaOptions *options)
{
	RdmaOptions filled;
	RdmaConn *conn;

	if (easy_options_take(options, &filled) == RMR_OK &&
	    conn_create(&filled, NULL, NULL, &conn) == RMR_OK)
		return conn;
	easy_fail();
	return NULL;
}

RdmaConn *rdmaConn(void)
{
	return rdmaConnWithOptions(NULL);
}

/* What becomes of an endpoint that is to be closed. */
enum closing { CLOSING_ALREADY, CLOSING_UNUSED, CLOSING_ASKED };

/* In one go under the mutex: as soon as the runtime sees that it is closing it may free it, should
 * its link be lost just now. conn_free takes the mutex before, so it finds the closer and the
 * request; after the mutex is given back the endpoint is not ours any more. */
static enum closing ask_to_close(RdmaConn *conn, struct waiter *closer)
{
	enum closing closing = CLOSING_ALREADY;

	runtime_lock();
	if (!atomic_exchange(&conn->is_closing, true)) {
		closing = runtime.is_running ? CLOSING_ASKED : CLOSING_UNUSED;
		if (closing == CLOSING_ASKED) {
			conn->closer = closer;
			list_add_tail(&runtime.closes, &conn->close_link);
		}
	}
	pthread_mutex_unlock(&runtime.mutex);
	return closing;
}

void rdmaConnClose(RdmaConn *conn)
{
	struct waiter waiter;
	bool waits = !runtime_is_here();
	enum closing closing;

	if (!conn)
		return;
	waiter_init(&waiter);
	closing = ask_to_close(conn, waits ? &waiter : NULL);
	if (closing == CLOSING_ALREADY)
		return; /* the second time in a callback: there it is still in memory */
	if (closing == CLOSING_UNUSED) {
		/* Nobody else has it, and no thread runs that could call it back. */
		conn_free(conn);
		return;
	}
	runtime_wake();
	if (waits)
		waiter_sleep(&waiter);
}

bool rdmaConnIsConnected(const RdmaConn *conn)
{
	return atomic_load_explicit(&conn->state, memory_order_acquire) == CONN_UP;
}

const char *rdmaConnProvider(const RdmaConn *conn)
{
	return conn->provider;
}

const char *rdmaConnPeer(const RdmaConn *conn)
{
	return conn->peer;
}

RdmaListener *rdmaConnListener(const RdmaConn *conn)
{
	return conn->listener;
}

size_t rdmaConnMaxSend(const RdmaConn *conn)
{
	struct lane *lane = conn->lane;
	size_t size = 0;

	lane_lock_take(&lane->lock);
	if (conn->link)
		size = wire_max_payload(conn->link->out_size);
	lane_lock_give(&lane->lock);
	return size;
}

size_t rdmaConnRemoteSize(const RdmaConn *conn)
{
	struct lane *lane = conn->lane;
	size_t size = 0;

	lane_lock_take(&lane->lock);
	if (conn->link && conn->link->space)
		size = rmr_remote_length(conn->link->space);
	lane_lock_give(&lane->lock);
	return size;
}

void rdmaConnSetUserData(RdmaConn *conn, void *data)
{
	conn->user_data = data;
}

void *rdmaConnUserData(const RdmaConn *conn)
{
	return conn->user_data;
}
