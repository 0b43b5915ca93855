/*
 * Bytes out: everything that is ready leaves in one sendmsg.
 *
 *	block:	| header | small payload | header |  (large payload)  | header | ...
 *		+--------- segment 0 --------------+--- segment 1 -----+- segment 2
 *		   bytes of the block itself          region's memory
 *
 * What is to be sent is encoded into a block, taken from the queue's pool when there is
 * something and given back when all of it has left; large payloads are not copied but referred
 * to, as segments of their own. In which order things are encoded:
 *
 *	1. answers to the peer's requests, in order; they never wait for anything of ours
 *	2. the acknowledgment, or the ERROR, when all answers before it are encoded
 *	3. grants
 *	4. our own requests, as far as the windows allow (post.c)
 *
 * So what we say about the peer's messages arrives before our answer to them: the peer sees its
 * SEND completed before it receives the reply.
 *
 * A full socket is noted (`blocked`), and epoll tells when it takes more. The memory of a
 * region is entered for each system call that reads it; if it was closed after its frame was
 * begun, the frame cannot be completed, so the connection fails.
 */
#include <stdlib.h>
#include <string.h>

#include "fabric/tcp/internal.h"

static struct tcp_block *get_block(struct tcp_queue *queue)
{
	struct tcp_block *block = queue->free_blocks;

	if (!block)
		return malloc(sizeof(*block));
	queue->free_blocks = block->next;
	queue->free_block_count--;
	return block;
}

static void put_block(struct tcp_queue *queue, struct tcp_block *block)
{
	if (queue->free_block_count >= TCP_BLOCKS_KEPT) {
		free(block);
		return;
	}
	block->next = queue->free_blocks;
	queue->free_blocks = block;
	queue->free_block_count++;
}

void transmit_free_blocks(struct tcp_queue *queue)
{
	while (queue->free_blocks) {
		struct tcp_block *block = queue->free_blocks;

		queue->free_blocks = block->next;
		free(block);
	}
	queue->free_block_count = 0;
}

/* All is sent, or never will be. */
static void reset(struct tcp_conn *conn)
{
	struct tcp_transmit *transmit = &conn->transmit;

	if (transmit->block)
		put_block(tcp_queue_of(conn), transmit->block);
	transmit->block = NULL;
	transmit->used = transmit->first = transmit->count = 0;
}

static void set_blocked(struct tcp_conn *conn, bool blocked)
{
	struct tcp_queue *queue = tcp_queue_of(conn);

	if (conn->transmit.blocked == blocked)
		return;
	conn->transmit.blocked = blocked;
	queue->blocked += blocked ? 1u : -1u;
	queue->wire->watch(conn);
}

void transmit_drop(struct tcp_conn *conn)
{
	reset(conn);
	set_blocked(conn, false);
	conn->response_head = conn->response_tail;
	conn->error_due = conn->grant_due = false;
	conn->pushing = 0;
}

void transmit_unblock(struct tcp_conn *conn)
{
	set_blocked(conn, false);
	transmit_ready(conn);
}

uint8_t *transmit_reserve(struct tcp_conn *conn, size_t size)
{
	struct tcp_transmit *transmit = &conn->transmit;

	if (!transmit->block) {
		transmit->block = get_block(tcp_queue_of(conn));
		if (!transmit->block) {
			conn_fail(conn, RMR_NO_MEMORY);
			return NULL;
		}
	}
	/* One segment for these bytes, and one for a reference behind them. */
	if (size > TCP_BLOCK_BYTES - transmit->used || transmit->count + 2 > TCP_BLOCK_SEGMENTS)
		return NULL;
	return transmit->block->bytes + transmit->used;
}

void transmit_commit(struct tcp_conn *conn, size_t size)
{
	struct tcp_transmit *transmit = &conn->transmit;
	uint8_t *at = transmit->block->bytes + transmit->used;
	struct tcp_segment *last = transmit->count > transmit->first
					   ? &transmit->block->segments[transmit->count - 1]
					   : NULL;

	transmit->used += (uint32_t)size;
	if (last && !last->slot && last->data + last->length == at)
		last->length += size;
	else
		transmit->block->segments[transmit->count++] =
			(struct tcp_segment){.data = at, .length = size};
}

void transmit_reference(struct tcp_conn *conn, const uint8_t *data, size_t length,
			struct region_slot *slot, uint64_t key)
{
	struct tcp_transmit *transmit = &conn->transmit;

	assert(transmit->count < TCP_BLOCK_SEGMENTS);
	transmit->block->segments[transmit->count++] =
		(struct tcp_segment){.data = data, .length = length, .slot = slot, .key = key};
}

void transmit_later(struct tcp_conn *conn)
{
	if (list_is_empty(&conn->dirty_link))
		list_add_tail(&tcp_queue_of(conn)->dirty, &conn->dirty_link);
}

static bool owes_ack(const struct tcp_conn *conn)
{
	return conn->messages_told != conn->messages_done ||
	       sequence_before(conn->told, conn->writes_end);
}

bool transmit_is_urgent(const struct tcp_conn *conn)
{
	return !conn->transmit.blocked && (conn->transmit.count > conn->transmit.first ||
					   conn->response_head != conn->response_tail ||
					   (conn->error_due && conn->pushing == 0) ||
					   conn->grant_due || post_can_encode(conn));
}

bool transmit_is_due(const struct tcp_conn *conn)
{
	return !conn->transmit.blocked && owes_ack(conn);
}

/* Tells how far we are: by an ACK, or by the ERROR that ends it all. Answers before it are encoded
 * already, so everything that was executed can be told. */
static bool encode_ack(struct tcp_conn *conn)
{
	struct frame frame = {.op = FRAME_ACK, .sequence = conn->told};
	uint8_t *to = transmit_reserve(conn, FRAME_HEADER_MAX);

	if (!to)
		return false;
	if (sequence_before(conn->told, conn->writes_end))
		frame.sequence = conn->writes_end;
	/* What was pushed before is there before the peer hears that it is over. */
	if (conn->error_due && conn->pushing == 0) {
		frame.op = FRAME_ERROR;
		frame.sequence = conn->error_sequence;
		frame.status = conn->error_status;
	}
	frame.messages = conn->messages_done;
	frame.bytes = conn->bytes_done;
	transmit_commit(conn, frame_encode(to, &frame));
	conn->told = frame.sequence;
	conn->messages_told = conn->messages_done;
	conn->error_due = conn->error_due && frame.op != FRAME_ERROR;
	return true;
}

void transmit_greet(struct tcp_conn *conn)
{
	(void)encode_ack(conn);
	transmit_ready(conn);
}

static bool encode_grant(struct tcp_conn *conn)
{
	uint8_t *to = transmit_reserve(conn, FRAME_HEADER_MAX);

	if (!to)
		return false;
	/* A WANT does not count as a request: it has the sequence of the one that is expected. */
	transmit_commit(conn, frame_encode(to, &(struct frame){.op = FRAME_GRANT,
							       .sequence = conn->expected}));
	conn->grant_due = false;
	return true;
}

void transmit_encode(struct tcp_conn *conn)
{
	if (!serve_encode(conn) || (conn->state != CONN_OPEN && conn->state != CONN_CLOSING))
		return;
	if (((conn->error_due && conn->pushing == 0) || owes_ack(conn)) && !encode_ack(conn))
		return;
	if (conn->state != CONN_OPEN)
		return;
	if (conn->grant_due && !encode_grant(conn))
		return;
	post_encode(conn);
}

void transmit_advance(struct tcp_conn *conn, size_t sent)
{
	struct tcp_transmit *transmit = &conn->transmit;

	while (sent > 0) {
		struct tcp_segment *segment = &transmit->block->segments[transmit->first];
		size_t part = sent < segment->length ? sent : segment->length;

		segment->data += part;
		segment->length -= part;
		sent -= part;
		if (segment->length == 0)
			transmit->first++;
	}
}

void transmit_ready(struct tcp_conn *conn)
{
	const struct tcp_wire *wire = tcp_queue_of(conn)->wire;
	struct tcp_transmit *transmit = &conn->transmit;
	size_t total = 0;

	list_remove(&conn->dirty_link);
	for (;;) {
		if ((conn->state != CONN_OPEN && conn->state != CONN_CLOSING) || transmit->blocked)
			return;
		if (transmit->first == transmit->count)
			reset(conn);
		transmit_encode(conn);
		if (conn->state != CONN_OPEN && conn->state != CONN_CLOSING)
			return;
		if (transmit->first == transmit->count) {
			if (conn->response_head == conn->response_tail)
				break;
			/* Data to be pushed, and no room for it. */
			set_blocked(conn, true);
			return;
		}
		if (!wire->send(conn, &total) || total >= TCP_TRANSMIT_MAX) {
			if (conn->state == CONN_OPEN || conn->state == CONN_CLOSING)
				set_blocked(conn, true);
			return;
		}
	}
	reset(conn);
	if (conn->state == CONN_CLOSING && !conn->error_due)
		conn_finish_closing(conn);
}
