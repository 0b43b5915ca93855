/*
 * Listeners, requests and connections: the slow path of the fabric. The fast one is in post.c.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/provider.h"

#define DEFAULT_BACKLOG		     128
#define DEFAULT_HANDSHAKE_TIMEOUT_MS 2000
#define DEFAULT_SOCKET_MODE	     0600
#define DEFAULT_DEPTH		     128
#define DEFAULT_DEAD_AFTER_MS	     10000

static const struct rmr_grant_limits default_grants = {.arenas = 256, .bytes = (uint64_t)1 << 43};

enum rmr_status rmr_listener_open(struct rmr_device *device, const char *address,
				  const struct rmr_listener_options *options,
				  struct rmr_listener **out)
{
	struct rmr_listener *listener;
	enum rmr_status status;

	if (!address || !*address)
		return error_set(RMR_BAD_ADDRESS, "no address to listen at");
	if (fork_is_foreign(device->generation))
		return foreign_handle();
	listener = calloc(1, device->provider->listener_size);
	if (!listener)
		return error_set(RMR_NO_MEMORY, "no memory for a listener");
	listener->device = device;
	listener->fd = -1;
	if (options)
		listener->options = *options;
	if (listener->options.backlog <= 0)
		listener->options.backlog = DEFAULT_BACKLOG;
	if (listener->options.handshake_timeout_ms <= 0)
		listener->options.handshake_timeout_ms = DEFAULT_HANDSHAKE_TIMEOUT_MS;
	if (listener->options.socket_mode == 0)
		listener->options.socket_mode = DEFAULT_SOCKET_MODE;
	status = device->provider->listener_init(listener, address);
	if (status != RMR_OK) {
		free(listener);
		return error_context(status, "listening at '%s' on '%s'", address,
				     device->info.name);
	}
	atomic_fetch_add(&device->children, 1);
	log_info("%s: listening at %s", device->info.name, listener->address);
	*out = listener;
	return RMR_OK;
}

void rmr_listener_close(struct rmr_listener *listener)
{
	if (!listener)
		return;
	if (fork_is_foreign(listener->device->generation)) {
		if (listener->device->provider->listener_abandon)
			listener->device->provider->listener_abandon(listener);
		return;
	}
	listener->device->provider->listener_fini(listener);
	atomic_fetch_sub(&listener->device->children, 1);
	free(listener);
}

const char *rmr_listener_address(const struct rmr_listener *listener)
{
	return listener->address;
}

int rmr_listener_fd(const struct rmr_listener *listener)
{
	return listener->fd;
}

/* The shorter of two waits in milliseconds, where negative means for ever. */
static int shorter_ms(int a, int b)
{
	if (a < 0)
		return b;
	return b < 0 || a < b ? a : b;
}

enum rmr_status rmr_listener_next(struct rmr_listener *listener, int timeout_ms,
				  struct rmr_request **out)
{
	const struct rmr_provider *provider = listener->device->provider;
	uint64_t deadline_ns = clock_deadline_ns(timeout_ms);
	struct pollfd fd = {.fd = listener->fd, .events = POLLIN};
	struct rmr_request *request;
	enum rmr_status status;

	if (fork_is_foreign(listener->device->generation))
		return foreign_handle();
	request = calloc(1, provider->request_size);
	if (!request)
		return error_set(RMR_NO_MEMORY, "no memory for a request");
	request->device = listener->device;
	for (;;) {
		int wait_ms = -1, left_ms;

		status = provider->listener_next(listener, request, &wait_ms);
		if (status != RMR_AGAIN)
			break;
		left_ms = clock_remaining_ms(deadline_ns);
		if (left_ms == 0) {
			status = RMR_TIMEOUT;
			break;
		}
		(void)poll(&fd, 1, shorter_ms(left_ms, wait_ms));
	}
	if (status != RMR_OK) {
		free(request);
		return status == RMR_TIMEOUT
			       ? error_set(status, "nobody called at '%s'", listener->address)
			       : error_context(status, "taking callers at '%s'", listener->address);
	}
	atomic_fetch_add(&listener->device->children, 1); /* until accepted or rejected */
	*out = request;
	return RMR_OK;
}

const char *rmr_request_peer(const struct rmr_request *request)
{
	return request->peer;
}

const void *rmr_request_private(const struct rmr_request *request, size_t *length)
{
	*length = request->private_length;
	return request->private_length ? request->private_data : NULL;
}

void rmr_reject(struct rmr_request *request, const char *reason)
{
	if (!request)
		return;
	request->device->provider->reject(request, reason);
	atomic_fetch_sub(&request->device->children, 1);
	free(request);
}

static enum rmr_status take_options(struct rmr_conn *conn, const struct rmr_conn_options *options)
{
	const struct rmr_device_info *info = &conn->queue->device->info;

	if (options)
		conn->options = *options;
	if (conn->options.depth == 0)
		conn->options.depth =
			DEFAULT_DEPTH < info->max_depth ? DEFAULT_DEPTH : info->max_depth;
	if (conn->options.auto_flush == 0)
		conn->options.auto_flush = conn->options.depth;
	if (conn->options.dead_after_ms <= 0)
		conn->options.dead_after_ms = DEFAULT_DEAD_AFTER_MS;
	if (conn->options.depth > info->max_depth)
		return error_set(RMR_LIMIT, "depth %u: '%s' has at most %u", conn->options.depth,
				 info->name, info->max_depth);
	if (conn->options.private_length > RMR_PRIVATE_MAX)
		return error_set(RMR_TOO_LONG, "%zu bytes of private data, at most %d fit",
				 conn->options.private_length, RMR_PRIVATE_MAX);
	if (conn->options.private_length)
		memcpy(conn->my_private, conn->options.private_data, conn->options.private_length);
	conn->my_private_length = (uint8_t)conn->options.private_length;
	conn->options.private_data = NULL;
	conn->grants = conn->options.grants ? *conn->options.grants : default_grants;
	conn->options.grants = NULL;
	conn->user = conn->options.user;
	return RMR_OK;
}

/* A connection on its queue, with room for its completions, not yet connected to anything. */
static enum rmr_status conn_attach(struct rmr_queue *queue, const struct rmr_conn_options *options,
				   struct rmr_conn **out)
{
	struct rmr_conn *conn = calloc(1, queue->provider->conn_size);
	enum rmr_status status;

	if (!conn)
		return error_set(RMR_NO_MEMORY, "no memory for a connection");
	conn->queue = queue;
	conn->provider = queue->provider;
	conn->generation = queue->generation;
	list_init(&conn->held_link);
	list_init(&conn->remotes);
	status = take_options(conn, options);
	if (status != RMR_OK)
		goto free_conn;
	/* Each work in flight, and the disconnect. */
	spin_lock_take(&queue->lock);
	status = completion_ring_reserve(&queue->ring, conn->options.depth + 1);
	if (status == RMR_OK)
		list_add_tail(&queue->conns, &conn->link);
	spin_lock_give(&queue->lock);
	if (status != RMR_OK)
		goto free_conn;
	*out = conn;
	return RMR_OK;

free_conn:
	free(conn);
	return status;
}

static void conn_detach(struct rmr_conn *conn)
{
	spin_lock_take(&conn->queue->lock);
	list_remove(&conn->link);
	completion_ring_unreserve(&conn->queue->ring, conn->options.depth + 1);
	spin_lock_give(&conn->queue->lock);
	list_remove(&conn->held_link);
	free(conn);
}

enum rmr_status rmr_accept(struct rmr_request *request, struct rmr_queue *queue,
			   const struct rmr_conn_options *options, struct rmr_conn **out)
{
	struct rmr_conn *conn = NULL;
	enum rmr_status status;

	if (queue->device != request->device)
		status = error_set(RMR_INVALID, "request and queue are of different devices");
	else
		status = conn_attach(queue, options, &conn);
	if (status != RMR_OK) {
		char reason[128];

		snprintf(reason, sizeof(reason), "%s", error_chain());
		rmr_reject(request, reason);
		return error_set(status, "%s", reason);
	}
	memcpy(conn->peer, request->peer, sizeof(conn->peer));
	memcpy(conn->peer_private, request->private_data, sizeof(conn->peer_private));
	conn->peer_private_length = request->private_length;
	status = queue->provider->accept(request, conn);
	atomic_fetch_sub(&request->device->children, 1);
	free(request);
	if (status != RMR_OK) {
		status = error_context(status, "accepting %s", conn->peer);
		conn_detach(conn);
		return status;
	}
	log_info("%s: connection from %s", queue->device->info.name, conn->peer);
	*out = conn;
	return RMR_OK;
}

enum rmr_status rmr_connect(struct rmr_queue *queue, const char *address, int timeout_ms,
			    const struct rmr_conn_options *options, struct rmr_conn **out)
{
	struct rmr_conn *conn;
	enum rmr_status status;

	if (!address || !*address)
		return error_set(RMR_BAD_ADDRESS, "no address to connect to");
	if (fork_is_foreign(queue->generation))
		return foreign_handle();
	status = conn_attach(queue, options, &conn);
	if (status == RMR_OK) {
		status = queue->provider->connect(conn, address, clock_deadline_ns(timeout_ms));
		if (status != RMR_OK)
			conn_detach(conn);
	}
	if (status != RMR_OK)
		return error_context(status, "connecting to '%s' on '%s'", address,
				     queue->device->info.name);
	log_info("%s: connected to %s (%s)", queue->device->info.name, address, conn->peer);
	*out = conn;
	return RMR_OK;
}

void rmr_conn_close(struct rmr_conn *conn)
{
	if (!conn)
		return;
	if (fork_is_foreign(conn->generation)) {
		if (conn->provider->conn_abandon)
			conn->provider->conn_abandon(conn);
		return;
	}
	if (!conn->lost)
		rmr_flush(conn);
	list_for_each_safe (link, &conn->remotes)
		rmr_remote_close(list_entry(link, struct rmr_remote, link));
	conn->provider->conn_fini(conn);
	conn_detach(conn);
}

void rmr_conn_set_grants(struct rmr_conn *conn, const struct rmr_grant_limits *limits)
{
	conn->grants = *limits;
	if (conn->provider->grants_changed)
		conn->provider->grants_changed(conn);
}

void rmr_conn_get_info(const struct rmr_conn *conn, struct rmr_conn_info *info)
{
	*info = (struct rmr_conn_info){
		.peer = conn->peer,
		.private_data = conn->peer_private_length ? conn->peer_private : NULL,
		.private_length = conn->peer_private_length,
		.max_send = conn->max_send,
		.depth = conn->options.depth,
		.alive = !conn->lost,
	};
}

bool rmr_conn_lingers(const struct rmr_conn *conn, int *process)
{
	return conn->provider->conn_lingers && conn->provider->conn_lingers(conn, process);
}

void *rmr_conn_user(const struct rmr_conn *conn)
{
	return conn->user;
}

void rmr_conn_set_user(struct rmr_conn *conn, void *user)
{
	conn->user = user;
}

struct rmr_queue *rmr_conn_queue(const struct rmr_conn *conn)
{
	return conn->queue;
}
