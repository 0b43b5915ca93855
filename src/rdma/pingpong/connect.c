/*
 * Listeners, and the life of a context.
 *
 * Both ends say hello in the private data of connect and accept; who says something else is turned
 * down, and the listener goes on to the next. Each context takes the device of its own accord, so
 * that it outlives the listener it came from.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/shared_device.h"
#include "rdma/address.h"
#include "rdma/pingpong/internal.h"

#define DEFAULT_TIMEOUT_MS 10000
#define DEPTH		   16u

static const struct hello hello = {HELLO_MAGIC, HELLO_VERSION, PINGPONG_DATA_MAX};

struct PingpongListener {
	struct address address; /* its device, and where it listens */
	struct rmr_device *device;
	struct rmr_listener *listener;
	char name[384]; /* for RDMA_connect */
};

/* ------------------------------------------------------------------------------------------
 * Names
 */

/* A name without a device is for the one of the environment, or tcp. */
static enum rmr_status find_address(const char *name, enum address_use use, struct address *address)
{
	const char *chosen = getenv(ADDRESS_DEVICE_VARIABLE);
	struct address_list list;
	enum rmr_status status;
	char full[512];

	if (!name)
		name = "";
	if (!strstr(name, "://") && strncmp(name, "shm:", 4) != 0 && !(chosen && *chosen)) {
		if (snprintf(full, sizeof(full), "tcp://%s", name) >= (int)sizeof(full))
			return error_set(RMR_BAD_ADDRESS, "a name of %zu bytes", strlen(name));
		name = full;
	}
	status = address_find(name, PINGPONG_PORT, use, &list);
	if (status == RMR_OK)
		*address = list.at[0];
	return status;
}

/* "shm:NAME" or "DEVICE://HOST:PORT" of where it listens. */
static void make_name(struct PingpongListener *listener, const char *given)
{
	const char *address = rmr_listener_address(listener->listener);

	if (strcmp(listener->address.device, "shm") == 0)
		snprintf(listener->name, sizeof(listener->name), "shm:%s",
			 listener->address.address);
	else if (address_device_is_shm(listener->address.device))
		snprintf(listener->name, sizeof(listener->name), "%.300s", given ? given : "");
	else
		snprintf(listener->name, sizeof(listener->name), "%s://%s",
			 listener->address.device, address);
}

/* ------------------------------------------------------------------------------------------
 * Contexts
 */

static void context_close(struct PingpongState *state)
{
	rmr_conn_close(state->conn); /* and its remotes */
	peer_memory_forget(&state->theirs);
	pingpong_free_memory(state);
	rmr_region_close(state->buffers_region);
	rmr_arena_close(state->buffers);
	rmr_queue_close(state->queue);
	if (state->device)
		device_give(state->device);
	free(state);
}

static enum rmr_status open_buffers(struct PingpongState *state)
{
	enum rmr_status status;

	state->chunk = MIN(BOUNCE_CHUNK, rmr_device_info(state->device)->max_transfer);
	status = rmr_arena_open(MESSAGE_SLOT + BOUNCE_CHUNKS * state->chunk, 0, &state->buffers);
	if (status != RMR_OK)
		return status;
	state->send_buffer = rmr_arena_base(state->buffers);
	state->bounce = state->send_buffer + MESSAGE_SLOT;
	return rmr_region_open(state->device, state->send_buffer, rmr_arena_size(state->buffers), 0,
			       &state->buffers_region);
}

/* All but the connection. */
static enum rmr_status context_open(const char *device, struct PingpongState **result)
{
	const struct rmr_queue_options options = {
		.recv_slots = PINGPONG_KEPT_MAX,
		.recv_size = MESSAGE_SLOT,
	};
	struct PingpongState *state = calloc(1, sizeof(*state));
	enum rmr_status status;

	if (!state)
		return error_set(RMR_NO_MEMORY, "a context");
	state->context.timeout_ms = DEFAULT_TIMEOUT_MS;
	state->context.state = state;
	peer_memory_init(&state->theirs);
	status = device_take(device, &state->device);
	if (status == RMR_OK)
		status = rmr_queue_open(state->device, &options, &state->queue);
	if (status == RMR_OK)
		status = open_buffers(state);
	if (status != RMR_OK) {
		context_close(state);
		return status;
	}
	*result = state;
	return RMR_OK;
}

static struct rmr_conn_options conn_options(void)
{
	return (struct rmr_conn_options){
		.depth = DEPTH, .private_data = &hello, .private_length = sizeof(hello)};
}

static bool is_hello(const void *data, size_t length)
{
	return length == sizeof(hello) && memcmp(data, &hello, sizeof(hello)) == 0;
}

/* That what is at the other end is ping-pong, and takes our messages. */
static enum rmr_status check_peer(const struct PingpongState *state)
{
	struct rmr_conn_info info;

	rmr_conn_get_info(state->conn, &info);
	if (!is_hello(info.private_data, info.private_length))
		return error_set(RMR_PROTOCOL, "it does not speak this version of ping-pong");
	if (info.max_send < MESSAGE_MAX)
		return error_set(RMR_PROTOCOL, "it takes messages of %zu bytes only",
				 info.max_send);
	return RMR_OK;
}

int RDMA_connect(char *servername, PingpongContext **save_ctx)
{
	struct rmr_conn_options options = conn_options();
	struct PingpongState *state = NULL;
	struct address address;
	enum rmr_status status;

	if (!save_ctx)
		return pingpong_result(error_set(RMR_INVALID, "RDMA_connect: save_ctx is NULL"));
	status = find_address(servername, ADDRESS_CONNECT, &address);
	if (status == RMR_OK)
		status = context_open(address.device, &state);
	if (status == RMR_OK)
		status = rmr_connect(state->queue, address.address, DEFAULT_TIMEOUT_MS, &options,
				     &state->conn);
	if (status == RMR_OK)
		status = check_peer(state);
	if (status == RMR_OK) {
		*save_ctx = &state->context;
		return 0;
	}
	if (state)
		context_close(state);
	return pingpong_result(error_context(status, "RDMA_connect to %.200s",
					     servername ? servername : "this host"));
}

int RDMA_disconnect(PingpongContext *ctx)
{
	if (ctx)
		context_close(ctx->state);
	return 0;
}

/* ------------------------------------------------------------------------------------------
 * Listeners
 */

int RDMA_listen(char *servername, PingpongListener **listener)
{
	struct PingpongListener *made;
	enum rmr_status status;

	if (!listener)
		return pingpong_result(error_set(RMR_INVALID, "RDMA_listen: listener is NULL"));
	made = calloc(1, sizeof(*made));
	if (!made)
		return pingpong_result(error_set(RMR_NO_MEMORY, "RDMA_listen"));
	status = find_address(servername, ADDRESS_LISTEN, &made->address);
	if (status == RMR_OK)
		status = device_take(made->address.device, &made->device);
	if (status == RMR_OK)
		status = rmr_listener_open(made->device, made->address.address, NULL,
					   &made->listener);
	if (status != RMR_OK) {
		RDMA_unlisten(made);
		return pingpong_result(error_context(status, "RDMA_listen at %.200s",
						     servername ? servername : "this host"));
	}
	make_name(made, servername);
	*listener = made;
	return 0;
}

const char *RDMA_address(const PingpongListener *listener)
{
	return listener ? listener->name : "";
}

void RDMA_unlisten(PingpongListener *listener)
{
	if (!listener)
		return;
	rmr_listener_close(listener->listener);
	if (listener->device)
		device_give(listener->device);
	free(listener);
}

/* RMR_AGAIN: this caller is none of ours, or gone; others may come. */
static enum rmr_status take_caller(const PingpongListener *listener, struct rmr_request *request,
				   struct PingpongState **result)
{
	struct rmr_conn_options options = conn_options();
	struct PingpongState *state;
	enum rmr_status status;
	const void *data;
	size_t length;

	data = rmr_request_private(request, &length);
	if (!is_hello(data, length)) {
		rmr_reject(request, "here is a server of ping-pong, of another version perhaps");
		return RMR_AGAIN;
	}
	status = context_open(listener->address.device, &state);
	if (status != RMR_OK) {
		rmr_reject(request, "the server has no room");
		return status;
	}
	if (rmr_accept(request, state->queue, &options, &state->conn) != RMR_OK ||
	    check_peer(state) != RMR_OK) {
		context_close(state);
		return RMR_AGAIN;
	}
	*result = state;
	return RMR_OK;
}

int RDMA_accept(PingpongListener *listener, int timeout_ms, PingpongContext **save_ctx)
{
	uint64_t deadline_ns = clock_deadline_ns(timeout_ms);
	struct PingpongState *state = NULL;
	struct rmr_request *request;
	enum rmr_status status;

	if (!listener || !save_ctx)
		return pingpong_result(error_set(RMR_INVALID, "RDMA_accept: %s is NULL",
						 listener ? "save_ctx" : "the listener"));
	do {
		status = rmr_listener_next(listener->listener, clock_remaining_ms(deadline_ns),
					   &request);
		if (status == RMR_OK)
			status = take_caller(listener, request, &state);
	} while (status == RMR_AGAIN && !clock_passed(deadline_ns));
	if (status == RMR_TIMEOUT || status == RMR_AGAIN)
		status = error_set(RMR_TIMEOUT, "nobody came within %d ms", timeout_ms);
	if (status != RMR_OK)
		return pingpong_result(error_context(status, "RDMA_accept"));
	*save_ctx = &state->context;
	return 0;
}

const char *RDMA_error(void)
{
	return rmr_error_message();
}
