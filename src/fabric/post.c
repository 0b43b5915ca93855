/*
 * The fast path: checking and handing over works, and what providers say when they are done.
 *
 * All checks that need only the caller's side are here, so that a provider sees nothing but sound
 * works: known operation, local memory inside a region of the same device, lengths within the
 * limits. What concerns the peer's memory is checked by whoever touches it.
 */
#include "base/error.h"
#include "base/log.h"
#include "fabric/provider.h"

/* The flags that make sense with each operation. */
static const unsigned flags_of[] = {
	[RMR_OP_SEND] = RMR_UNSIGNALED | RMR_INLINE | RMR_MORE,
	[RMR_OP_WRITE] = RMR_UNSIGNALED | RMR_INLINE | RMR_MORE,
	[RMR_OP_WRITE_IMM] = RMR_UNSIGNALED | RMR_INLINE | RMR_MORE,
	[RMR_OP_READ] = RMR_UNSIGNALED | RMR_MORE,
	[RMR_OP_COMPARE_SWAP] = RMR_UNSIGNALED | RMR_MORE,
	[RMR_OP_FETCH_ADD] = RMR_UNSIGNALED | RMR_MORE,
};

static enum rmr_status wrong_flags(const struct rmr_work *work)
{
	unsigned unknown = work->flags & ~flags_of[RMR_OP_SEND];

	if (unknown)
		return error_set(RMR_INVALID, "unknown flags 0x%x", work->flags);
	return error_set(RMR_INVALID, "only SEND and WRITE can be inline");
}

static enum rmr_status check_atomic(const struct rmr_device *device, const struct rmr_work *work)
{
	if (!(device->info.capabilities & RMR_CAP_ATOMIC))
		return error_set(RMR_UNSUPPORTED, "device '%s' has no atomics", device->info.name);
	if (work->length != 8 || work->offset % 8 || (uintptr_t)work->local % 8)
		return error_set(RMR_INVALID, "an atomic works on 8 aligned bytes on both sides");
	return RMR_OK;
}

static enum rmr_status check_inline(const struct rmr_device *device, const struct rmr_work *work)
{
	if (work->length > device->info.max_inline)
		return error_set(RMR_TOO_LONG, "%zu bytes inline, but '%s' takes at most %zu",
				 work->length, device->info.name, device->info.max_inline);
	return RMR_OK;
}

static enum rmr_status check_local(const struct rmr_device *device, const struct rmr_work *work)
{
	const struct rmr_region *region = work->region;
	size_t offset;

	if (!region || region->device != device)
		return error_set(RMR_INVALID, "local memory needs a region of the same device");
	/* Memory before the region is, by the wrap around, far behind it. */
	offset = (uintptr_t)work->local - (uintptr_t)region->address;
	if (offset > region->length || work->length > region->length - offset)
		return error_set(
			RMR_INVALID, "%zu bytes at %p do not lie in the region of %zu at %p",
			work->length, work->local, region->length, (void *)region->address);
	return RMR_OK;
}

static enum rmr_status check_work(const struct rmr_conn *conn, const struct rmr_work *work)
{
	const struct rmr_device *device = conn->queue->device;
	size_t limit = device->info.max_transfer;
	enum rmr_status status;

	if (work->op < RMR_OP_SEND || work->op > RMR_OP_FETCH_ADD)
		return error_set(RMR_INVALID, "%d is no operation to post", (int)work->op);
	if (work->flags & ~flags_of[work->op])
		return wrong_flags(work);
	if (work->op == RMR_OP_SEND)
		limit = conn->max_send;
	else if (!work->remote || work->remote->conn != conn)
		return error_set(RMR_INVALID, "the operation needs a remote of this connection");
	if (work->op >= RMR_OP_COMPARE_SWAP) {
		status = check_atomic(device, work);
		if (status != RMR_OK)
			return status;
	}
	if (work->length > limit)
		return error_set(RMR_TOO_LONG, "%zu bytes, but %s takes at most %zu", work->length,
				 work->op == RMR_OP_SEND ? "the peer" : device->info.name, limit);
	if (work->flags & RMR_INLINE)
		return check_inline(device, work);
	return work->length ? check_local(device, work) : RMR_OK;
}

int rmr_post(struct rmr_conn *conn, const struct rmr_work *works, int count)
{
	enum rmr_status status = RMR_OK;
	int good = 0, taken;

	if (fork_is_foreign(conn->generation))
		return foreign_handle();
	if (atomic_load_explicit(&conn->lost, memory_order_relaxed))
		return error_set(RMR_DISCONNECTED, "the connection to %s is lost", conn->peer);
	for (; good < count; good++) {
		status = check_work(conn, &works[good]);
		if (__builtin_expect(status != RMR_OK, 0))
			break;
	}
	if (good == 0)
		return status;
	taken = conn->provider->post(conn, works, good);
	if (taken == 0) {
		/* Room comes from what is done, so what was held back must not wait any longer. */
		rmr_flush(conn);
		return 0;
	}
	conn->held += (uint32_t)taken;
	if (!(works[taken - 1].flags & RMR_MORE) || conn->held >= conn->options.auto_flush ||
	    taken < count)
		rmr_flush(conn);
	else if (list_is_empty(&conn->held_link))
		list_add_tail(&conn->queue->held, &conn->held_link);
	return taken;
}

void rmr_flush(struct rmr_conn *conn)
{
	if (conn->held == 0 || fork_is_foreign(conn->generation))
		return;
	conn->held = 0;
	if (!list_is_empty(&conn->held_link))
		list_remove(&conn->held_link);
	conn->provider->flush(conn);
}

void conn_deliver(struct rmr_conn *conn, void *data, size_t length)
{
	completion_ring_push(&conn->queue->ring, &(struct rmr_completion){.conn = conn,
									  .op = RMR_OP_RECV,
									  .data = data,
									  .length = length});
}

void conn_deliver_imm(struct rmr_conn *conn, uint32_t immediate, size_t length)
{
	conn->queue->pending_imm++;
	completion_ring_push(&conn->queue->ring, &(struct rmr_completion){.conn = conn,
									  .op = RMR_OP_RECV_IMM,
									  .immediate = immediate,
									  .length = length});
}

void conn_lost(struct rmr_conn *conn, enum rmr_status status)
{
	if (atomic_exchange_explicit(&conn->lost, true, memory_order_relaxed))
		return;
	log_info("%s: connection to %s ended: %s", conn->queue->device->info.name, conn->peer,
		 rmr_status_text(status));
	completion_ring_push(
		&conn->queue->ring,
		&(struct rmr_completion){.conn = conn, .op = RMR_OP_DISCONNECT, .status = status});
}

static void drop_entry(void *context, const struct rmr_completion *entry)
{
	struct rmr_queue *queue = context;

	if (entry->op == RMR_OP_RECV)
		recv_pool_put(&queue->recv, entry->data);
	else if (entry->op == RMR_OP_RECV_IMM)
		queue->pending_imm--;
}

void conn_forget(struct rmr_conn *conn)
{
	completion_ring_forget(&conn->queue->ring, conn, drop_entry, conn->queue);
}
