/*
 * What a client is given, and what it gives: the landing buffer for its longer requests, its own
 * buffer that values are pushed into, and its word that it has forgotten cells.
 *
 * A landing buffer is an arena of its own, for on shm a client that may write to one region of an
 * arena could write to all of it. All landing buffers together are bounded; when somebody gets
 * none, clients who have one and have been silent for long are sent away (session_check). They
 * come back by themselves when they have something to say. / */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "server/internal.h"

/* ------------------------------------------------------------------------------------------
 * Landing buffers
 */

/* Takes its size from what all clients have together. */
static bool reserve(struct kv_server *server, size_t size)
{
	size_t used = atomic_load_explicit(&server->landing_used, memory_order_relaxed);

	/* Relaxed: only the sum counts. */
	do {
		if (used > server->options.landing_total ||
		    size > server->options.landing_total - used)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&server->landing_used, &used, used + size,
							memory_order_relaxed,
							memory_order_relaxed));
	return true;
}

static void unreserve(struct kv_server *server, size_t size)
{
	atomic_fetch_sub_explicit(&server->landing_used, size, memory_order_relaxed);
}

static enum rmr_status open_landing(struct session *session, size_t size,
				    struct rmr_descriptor *descriptor)
{
	enum rmr_status status =
		rmr_arena_open(size, RMR_ARENA_PEERS_WRITE, &session->landing_arena);

	if (status != RMR_OK)
		return status;
	status = rmr_region_open(session->queue->path->device,
				 rmr_arena_base(session->landing_arena), size, RMR_WRITE,
				 &session->landing_region);
	if (status != RMR_OK)
		goto close_arena;
	status = rmr_region_export(session->landing_region, session->conn, descriptor);
	if (status != RMR_OK)
		goto close_region;
	session->landing = rmr_arena_base(session->landing_arena);
	session->landing_size = size;
	return RMR_OK;

close_region:
	rmr_region_close(session->landing_region);
	session->landing_region = NULL;
close_arena:
	rmr_arena_close(session->landing_arena);
	session->landing_arena = NULL;
	return status;
}

void operation_landing(struct exchange *exchange)
{
	struct session *session = exchange->session;
	struct kv_server *server = exchange->worker->server;
	uint64_t size = exchange->view.header.argument & ~(uint64_t)(KV_PLACE - 1);
	struct rmr_descriptor descriptor;

	if (size > server->options.landing_size)
		size = server->options.landing_size;
	if (size == 0 || session->landing) {
		exchange_fail(exchange, KV_INVALID,
			      size ? "there is a landing buffer already"
				   : "a landing buffer has to have some bytes");
		return;
	}
	if (!exchange_has_room(exchange, sizeof(descriptor)))
		return;
	if (!reserve(server, size)) {
		/* Relaxed: a hint for the other workers. */
		atomic_store_explicit(&server->landing_wanted_ms, exchange->worker->now_ms,
				      memory_order_relaxed);
		exchange_fail(exchange, KV_BUSY, "all memory for landing buffers is in use");
		return;
	}
	if (open_landing(session, size, &descriptor) != RMR_OK) {
		unreserve(server, size);
		log_warn_limited("%s: no landing buffer: %s", session->peer, error_chain());
		exchange_fail(exchange, KV_BUSY, error_chain());
		return;
	}
	memcpy(exchange->value, &descriptor, sizeof(descriptor));
	exchange->length = sizeof(descriptor);
	exchange->reply->flags = KV_HAS_VALUE;
	exchange->reply->number = size;
}

void landing_release(struct session *session)
{
	if (!session->landing)
		return;
	rmr_region_close(session->landing_region);
	rmr_arena_close(session->landing_arena);
	unreserve(session->worker->server, session->landing_size);
	session->landing = NULL;
}

/* ------------------------------------------------------------------------------------------
 * The client's buffer
 */

void operation_buffer(struct exchange *exchange)
{
	struct session *session = exchange->session;
	struct rmr_descriptor descriptor;
	struct rmr_remote *remote;
	enum rmr_status status;

	if (exchange->view.header.value_length != sizeof(descriptor)) {
		exchange_fail(exchange, KV_INVALID, "that is no descriptor of a buffer");
		return;
	}
	if (session->pushes) {
		exchange_fail(exchange, KV_BUSY, "values are on their way to the old buffer");
		return;
	}
	memcpy(&descriptor, exchange->view.value, sizeof(descriptor));
	status = rmr_remote_open(session->conn, &descriptor, &remote);
	if (status != RMR_OK) {
		exchange_fail(exchange, status == RMR_LIMIT ? KV_BUSY : KV_INVALID, error_chain());
		return;
	}
	if (!(rmr_remote_rights(remote) & RMR_WRITE)) {
		rmr_remote_close(remote);
		exchange_fail(exchange, KV_INVALID, "the buffer may not be written");
		return;
	}
	/* What is not mapped here would be written through the kernel, which could be held up for
	 * ever by memory whose pages somebody else has to fill in. */
	if (session->queue->path->kind == PATH_SHM && !rmr_remote_pointer(remote)) {
		rmr_remote_close(remote);
		exchange_fail(exchange, KV_INVALID, "by shm the buffer has to lie in an arena");
		return;
	}
	rmr_remote_close(session->buffer);
	session->buffer = remote;
}

/* ------------------------------------------------------------------------------------------
 * Cells
 */

void operation_cells(struct exchange *exchange)
{
	struct session *session = exchange->session;
	uint64_t epoch = exchange->view.header.argument;
	uint32_t oldest = atomic_load_explicit(&session->cells_oldest, memory_order_relaxed);

	if (epoch == 0 || epoch > exchange->worker->epoch) {
		exchange_fail(exchange, KV_INVALID, "an epoch that has not begun");
		return;
	}
	/* It may know cells that were told in this epoch and later. Release: see
	 * session_remembers. */
	if (oldest && oldest < epoch)
		atomic_store_explicit(&session->cells_oldest, (uint32_t)epoch,
				      memory_order_release);
}
