/*
 * Reads and writes of the peer's memory, from and to any memory of the caller.
 *
 * They go by the bounce buffer, a chunk at a time, two chunks in flight: while one is on its way
 * the other is copied. So nothing is registered for a transfer, and memory that the caller frees
 * afterwards was never known to an adapter.
 *
 *	WRITE	copy chunk i in, post it, wait until only one is in flight
 *	READ	post chunk i, wait until only one is in flight, copy chunk i - 1 out
 *
 * The time that a call may take counts from one chunk to the next: a long transfer is not a silent
 * one.
 */
#include <string.h>
#include <sys/param.h>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/pingpong/internal.h"

struct transfer {
	enum rmr_op op;
	char *target;	    /* READ */
	const char *source; /* WRITE */
	size_t size;
	struct rmr_remote *remote;
	uint64_t offset;
};

/* The piece of a transfer that chunk number i is. */
static size_t chunk_length(const struct PingpongState *state, const struct transfer *transfer,
			   size_t i)
{
	return MIN(state->chunk, transfer->size - i * state->chunk);
}

static uint8_t *chunk_buffer(const struct PingpongState *state, size_t i)
{
	return state->bounce + i % BOUNCE_CHUNKS * state->chunk;
}

static void copy_out(const struct PingpongState *state, const struct transfer *transfer, size_t i)
{
	if (transfer->op == RMR_OP_READ)
		memcpy(transfer->target + i * state->chunk, chunk_buffer(state, i),
		       chunk_length(state, transfer, i));
}

static enum rmr_status post_chunk(struct PingpongState *state, const struct transfer *transfer,
				  size_t i)
{
	struct rmr_work work = {
		.op = transfer->op,
		.local = chunk_buffer(state, i),
		.length = chunk_length(state, transfer, i),
		.region = state->buffers_region,
		.remote = transfer->remote,
		.offset = transfer->offset + i * state->chunk,
	};

	if (transfer->op == RMR_OP_WRITE)
		memcpy(work.local, transfer->source + i * state->chunk, work.length);
	return pingpong_post(state, &work, clock_deadline_ns(state->context.timeout_ms));
}

static enum rmr_status carry_out(struct PingpongState *state, const struct transfer *transfer)
{
	size_t count = (transfer->size + state->chunk - 1) / state->chunk;
	enum rmr_status status = RMR_OK;

	for (size_t i = 0; i <= count && status == RMR_OK; i++) {
		if (i < count)
			status = post_chunk(state, transfer, i);
		if (status == RMR_OK)
			status = pingpong_finish(state, i < count,
						 clock_deadline_ns(state->context.timeout_ms));
		if (status == RMR_OK && i > 0)
			copy_out(state, transfer, i - 1);
	}
	return status;
}

static enum rmr_status run(PingpongContext *ctx, struct transfer *transfer, const void *remote_addr,
			   uint32_t remote_key)
{
	struct PingpongState *state = ctx->state;
	enum rmr_status status;

	pingpong_poll_all(state); /* the peer may have taken it back meanwhile */
	status = pingpong_check_alive(ctx);
	if (status == RMR_OK)
		status = peer_memory_find(&state->theirs, remote_key, (uintptr_t)remote_addr,
					  transfer->size,
					  transfer->op == RMR_OP_READ ? RMR_READ : RMR_WRITE,
					  &transfer->remote, &transfer->offset);
	if (status == RMR_OK)
		status = carry_out(state, transfer);
	return status;
}

int send_RDMA_read(PingpongContext *ctx, char *target, unsigned long size, void *remote_addr,
		   uint32_t remote_key)
{
	struct transfer transfer = {.op = RMR_OP_READ, .target = target, .size = size};
	enum rmr_status status = pingpong_check_alive(ctx);

	if (status == RMR_OK && !target && size)
		status = error_set(RMR_INVALID, "the target is NULL");
	if (status == RMR_OK)
		status = run(ctx, &transfer, remote_addr, remote_key);
	return pingpong_result(error_context(status, "send_RDMA_read"));
}

int send_RDMA_write_bytes(PingpongContext *ctx, const void *value, unsigned long size,
			  void *remote_addr, uint32_t remote_key)
{
	struct transfer transfer = {.op = RMR_OP_WRITE, .source = value, .size = size};
	enum rmr_status status = pingpong_check_alive(ctx);

	if (status == RMR_OK && !value && size)
		status = error_set(RMR_INVALID, "the value is NULL");
	if (status == RMR_OK)
		status = run(ctx, &transfer, remote_addr, remote_key);
	return pingpong_result(error_context(status, "send_RDMA_write"));
}

int send_RDMA_write(PingpongContext *ctx, const char *value, void *remote_addr, uint32_t remote_key)
{
	return send_RDMA_write_bytes(ctx, value, value ? strlen(value) + 1 : 1, remote_addr,
				     remote_key);
}
