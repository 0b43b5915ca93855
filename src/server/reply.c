/*
 * Buffers for replies: a worker's, on one path.
 *
 * A reply is built in a buffer of registered memory, whether it is sent from there or copied into
 * the request for sending (inline), in which case the same buffer serves the next one. The pool
 * grows by chunks when clients are slow to take their replies, to a limit; then replies are built
 * in the stub, which is not registered and only as long as an inline SEND can be: enough to answer
 * whatever does not return much, and to say KV_BUSY to the rest. Before that, clients who have many
 * buffers under way already get no more, so that some are left for the others.
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "server/internal.h"

static enum rmr_status add_chunk(struct server_queue *queue)
{
	struct reply_pool *pool = &queue->pool;
	struct reply_chunk chunk = {
		.bytes = aligned_alloc(64, POOL_CHUNK_REPLIES * queue->reply_size),
		.replies = calloc(POOL_CHUNK_REPLIES, sizeof(*chunk.replies)),
	};
	enum rmr_status status = RMR_NO_MEMORY;

	if (chunk.bytes && chunk.replies)
		status = rmr_region_open(queue->path->device, chunk.bytes,
					 POOL_CHUNK_REPLIES * queue->reply_size, 0, &chunk.region);
	else
		error_set(status, "no memory for replies");
	if (status != RMR_OK) {
		free(chunk.bytes);
		free(chunk.replies);
		return status;
	}
	for (unsigned i = 0; i < POOL_CHUNK_REPLIES; i++) {
		chunk.replies[i] = (struct reply){
			.next = pool->free,
			.region = chunk.region,
			.bytes = chunk.bytes + i * queue->reply_size,
			.room = queue->reply_size,
		};
		pool->free = &chunk.replies[i];
	}
	pool->free_count += POOL_CHUNK_REPLIES;
	pool->chunks[pool->chunk_count++] = chunk;
	return RMR_OK;
}

enum rmr_status reply_pool_open(struct server_queue *queue)
{
	size_t size = (queue->max_inline + 63) & ~(size_t)63;

	queue->stub.bytes = size ? aligned_alloc(64, size) : NULL;
	queue->stub.room = queue->stub.bytes ? queue->max_inline : 0;
	return add_chunk(queue);
}

void reply_pool_close(struct server_queue *queue)
{
	for (unsigned i = 0; i < queue->pool.chunk_count; i++) {
		struct reply_chunk *chunk = &queue->pool.chunks[i];

		rmr_region_close(chunk->region);
		free(chunk->bytes);
		free(chunk->replies);
	}
	free(queue->stub.bytes);
	queue->stub.bytes = NULL;
	queue->pool = (struct reply_pool){0};
}

struct reply *reply_stub(struct server_queue *queue)
{
	return queue->stub.room >= sizeof(struct kv_reply) ? &queue->stub : NULL;
}

struct reply *reply_take(struct server_queue *queue)
{
	struct reply_pool *pool = &queue->pool;
	struct reply *reply;

	if (!pool->free && pool->chunk_count < POOL_MAX_CHUNKS && add_chunk(queue) != RMR_OK)
		log_warn_limited("%s: %s", queue->path->name, error_chain());
	reply = pool->free;
	if (!reply)
		return reply_stub(queue);
	pool->free = reply->next;
	pool->free_count--;
	reply->next = NULL;
	return reply;
}

void reply_give(struct worker *worker, struct server_queue *queue, struct reply *reply)
{
	if (reply->view.item)
		store_unpin(worker->store, &reply->view);
	reply->next = queue->pool.free;
	queue->pool.free = reply;
	queue->pool.free_count++;
}
