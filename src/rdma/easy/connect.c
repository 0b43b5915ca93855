/*
 * Calling a server.
 *
 * rmr_connect blocks, so it runs in the thread that calls rdmaConnect(), or in one that lives as
 * long as the attempt (rdmaConnectAsync), on a queue that nobody else has yet. When both sides have
 * introduced themselves the queue becomes the endpoint's lane, and the runtime is asked to take it
 * over.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/shared_device.h"
#include "rdma/address.h"
#include "rdma/easy/internal.h"

/* An attempt by one device. */
struct attempt {
	RdmaConn *conn;
	uint64_t deadline_ns;
	char device_name[64];
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct link *link;
};

/* The next word of the server must be its hello. What follows stays in the queue. */
static enum rmr_status await_hello(struct attempt *attempt)
{
	struct link *link = attempt->link;

	while (!link->has_hello) {
		struct rmr_completion completion;
		int left_ms = clock_remaining_ms(attempt->deadline_ns);

		if (left_ms == 0 || rmr_wait(attempt->queue, &completion, 1, left_ms) == 0) {
			if (!clock_passed(attempt->deadline_ns))
				continue;
			return error_set(RMR_TIMEOUT,
					 "the server did not introduce itself in time");
		}
		if (completion.op == RMR_OP_DISCONNECT || completion.status != RMR_OK)
			return error_set(RMR_REFUSED, "the server refuses us, or has just ended");
		if (completion.op == RMR_OP_SEND)
			continue; /* ours */
		if (completion.op != RMR_OP_RECV || completion.length != sizeof(link->hello)) {
			if (completion.op == RMR_OP_RECV)
				rmr_recv_release(attempt->queue, completion.data);
			return error_set(RMR_PROTOCOL, "the server sends something that is no "
						       "hello");
		}
		memcpy(&link->hello, completion.data, sizeof(link->hello));
		link->has_hello = true;
		rmr_recv_release(attempt->queue, completion.data);
	}
	return RMR_OK;
}

static enum rmr_status introduce(struct attempt *attempt, const char *address)
{
	struct link *link = attempt->link;
	const RdmaOptions *options = &attempt->conn->options;
	struct rmr_conn_options conn_options =
		easy_link_conn_options(link, options, attempt->device);
	enum rmr_status status;

	status = rmr_connect(attempt->queue, address, clock_remaining_ms(attempt->deadline_ns),
			     &conn_options, &link->fabric);
	if (status == RMR_OK)
		status = easy_link_prepare(link, attempt->device, options);
	if (status == RMR_OK)
		status = easy_link_say_hello(link);
	if (status == RMR_OK)
		status = await_hello(attempt);
	if (status == RMR_OK)
		status = easy_link_take_hello(link, attempt->device, options);
	if (status == RMR_OK)
		status = easy_link_prepare_image(link, attempt->device);
	return status;
}

/* The endpoint is connected from now on. */
static void hand_over(struct attempt *attempt)
{
	RdmaConn *conn = attempt->conn;
	struct lane *lane = conn->lane;

	lane_lock_take(&lane->lock);
	lane->queue = attempt->queue;
	lane->is_armed = false;
	list_add_tail(&lane->links, &attempt->link->lane_link);
	lane->link_count = 1;
	conn_set_up(conn, attempt->link);
	lane_lock_give(&lane->lock);
}

static enum rmr_status try_way(RdmaConn *conn, const struct address *way, uint64_t deadline_ns)
{
	struct attempt attempt = {.conn = conn, .deadline_ns = deadline_ns};
	struct lane *lane = conn->lane;
	enum rmr_status status;

	easy_options_name_device(&conn->options, way->device, attempt.device_name);
	status = device_take(attempt.device_name, &attempt.device);
	if (status != RMR_OK)
		return status;
	status = lane_open_queue(attempt.device, &conn->options, &attempt.queue);
	if (status != RMR_OK)
		goto give_device;
	attempt.link = easy_link_create(lane, conn->options.sendDepth);
	if (!attempt.link) {
		status = RMR_NO_MEMORY;
		goto close_queue;
	}
	/* What the link's functions look for in its lane; nobody else has it now. */
	lane_lock_take(&lane->lock);
	lane->device = attempt.device;
	memcpy(lane->device_name, attempt.device_name, sizeof(lane->device_name));
	lane_lock_give(&lane->lock);
	attempt.link->conn = conn;
	status = introduce(&attempt, way->address);
	if (status == RMR_OK) {
		hand_over(&attempt);
		return RMR_OK;
	}
	lane_lock_take(&lane->lock);
	lane->device = NULL;
	lane_lock_give(&lane->lock);
	easy_link_destroy(attempt.link);
close_queue:
	rmr_queue_close(attempt.queue);
give_device:
	device_give(attempt.device);
	return status;
}

/* Tries one way after the other. The message in the end has all that went wrong. */
static enum rmr_status dial(RdmaConn *conn, const char *host, int port)
{
	uint64_t deadline_ns = clock_deadline_ns(conn->options.connectTimeoutMs);
	struct address_list list;
	char text[640] = "";
	size_t length = 0;
	enum rmr_status status = address_find(host, port, ADDRESS_CONNECT, &list);

	if (status != RMR_OK)
		return status;
	status = error_set(RMR_NO_DEVICE, "no device leads there");
	for (unsigned i = 0; i < list.count; i++) {
		const struct address *way = &list.at[i];
		const char *why = way->reason;

		if (!way->reason[0]) {
			status = try_way(conn, way, deadline_ns);
			if (status == RMR_OK)
				return RMR_OK;
			why = error_chain();
		}
		if (length < sizeof(text))
			length += (size_t)snprintf(text + length, sizeof(text) - length,
						   "%s%.40s: %s", i ? "; " : "", way->device, why);
	}
	return error_set(status, "%s", text);
}

static void hand_in(RdmaConn *conn, enum rmr_status status)
{
	conn->dial_status = status;
	runtime_lock();
	list_add_tail(&runtime.adopts, &conn->adopt_link);
	pthread_mutex_unlock(&runtime.mutex);
	runtime_wake();
}

/* It is as before; or the runtime's to free, if that was stopped meanwhile. After the mutex is
 * given back it may be gone. */
static void give_up(RdmaConn *conn, enum rmr_status status)
{
	runtime_lock();
	if (atomic_load(&conn->is_closing)) {
		conn->dial_status = status;
		list_add_tail(&runtime.adopts, &conn->adopt_link);
	} else {
		atomic_store(&conn->state, CONN_IDLE);
	}
	pthread_mutex_unlock(&runtime.mutex);
	runtime_wake();
}

/* May it be connected? Then it is dialing from now on. */
static enum rmr_status begin(RdmaConn *conn)
{
	enum rmr_status status;
	int idle = CONN_IDLE;

	if (conn->listener)
		return error_set(RMR_INVALID, "this connection was accepted: its peer calls again");
	status = runtime_need(&conn->options);
	if (status != RMR_OK)
		return status;
	if (atomic_load(&conn->is_closing) ||
	    !atomic_compare_exchange_strong(&conn->state, &idle, CONN_DIALING))
		return error_set(RMR_INVALID, "it is connected already, or is being connected");
	return RMR_OK;
}

int rdmaConnect(RdmaConn *conn, const char *serverip, int port)
{
	enum rmr_status status;

	if (runtime_is_here()) {
		error_set(RMR_INVALID, "rdmaConnect() waits, which a callback must not; use "
				       "rdmaConnectAsync()");
		return easy_fail();
	}
	if (begin(conn) != RMR_OK)
		return easy_fail();
	status = dial(conn, serverip, port);
	if (status != RMR_OK) {
		easy_fail();
		give_up(conn, status);
		return RDMA_ERR;
	}
	hand_in(conn, RMR_OK);
	return RDMA_OK;
}

struct call {
	RdmaConn *conn;
	int port;
	bool has_host;
	char host[];
};

static void *run_dialer(void *argument)
{
	struct call *call = argument;
	RdmaConn *conn = call->conn;
	enum rmr_status status = dial(conn, call->has_host ? call->host : NULL, call->port);

	if (status != RMR_OK)
		snprintf(conn->dial_reason, sizeof(conn->dial_reason), "%s", error_chain());
	hand_in(conn, status);
	free(call);
	runtime_lock();
	runtime.dialers--;
	pthread_mutex_unlock(&runtime.mutex);
	runtime_wake();
	return NULL;
}

static int start_dialer(struct call *call)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	runtime_lock();
	runtime.dialers++;
	pthread_mutex_unlock(&runtime.mutex);
	error = pthread_create(&thread, &attributes, run_dialer, call);
	if (error) {
		runtime_lock();
		runtime.dialers--;
		pthread_mutex_unlock(&runtime.mutex);
	}
	pthread_attr_destroy(&attributes);
	return error;
}

int rdmaConnectAsync(RdmaConn *conn, const char *serverip, int port)
{
	size_t length = serverip ? strlen(serverip) : 0;
	struct call *call = malloc(sizeof(*call) + length + 1);
	int error;

	if (!call) {
		error_set(RMR_NO_MEMORY, "no memory for a call");
		return easy_fail();
	}
	call->conn = conn;
	call->port = port;
	call->has_host = serverip != NULL;
	memcpy(call->host, serverip ? serverip : "", length + 1);
	if (begin(conn) != RMR_OK) {
		free(call);
		return easy_fail();
	}
	error = start_dialer(call);
	if (error) {
		atomic_store(&conn->state, CONN_IDLE);
		free(call);
		error_errno(RMR_SYSTEM, error, "cannot start a thread");
		return easy_fail();
	}
	return RDMA_OK;
}
