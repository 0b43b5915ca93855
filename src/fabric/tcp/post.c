/*
 * The initiator's outgoing side: works are taken into the FIFO, and encoded as requests.
 *
 *	            head              next              tail
 *	   done      |  in flight      |   waiting       |      free
 *	-------------+-----------------+-----------------+-----------
 *
 * Usually a work is encoded as soon as it is posted, so `next` follows `tail` at once. It waits
 * when the block is full, when the peer serves no more requests at a time, or, for SEND and
 * WRITE_IMM, when the peer's window for messages is full; then all works behind it wait as
 * well, since the target executes in order (just as RC does when the receiver is not ready).
 *
 * An inline payload is free again for the caller when post returns. So a work that has to wait
 * takes a copy of it along (stash); a work that does not needs none.
 */
#include <stdlib.h>
#include <string.h>

#include "fabric/tcp/internal.h"

#define OFFSET_MAX (UINT64_MAX - FRAME_LENGTH_MAX)

static bool is_message(const struct tcp_work *work)
{
	return work->op == RMR_OP_SEND || work->op == RMR_OP_WRITE_IMM;
}

static bool has_payload(const struct tcp_work *work)
{
	return work->op <= RMR_OP_WRITE_IMM && work->length != 0;
}

/* Must this SEND ask for a slot first? */
static bool needs_grant(const struct tcp_work *work)
{
	return work->op == RMR_OP_SEND && work->length > TCP_EAGER_MAX;
}

static bool window_takes(const struct tcp_conn *conn, const struct tcp_work *work)
{
	if (!is_message(work))
		return true;
	if (conn->messages_sent - conn->messages_acked >= conn->window_messages)
		return false;
	if (work->op != RMR_OP_SEND || needs_grant(work))
		return true;
	return conn->bytes_sent - conn->bytes_acked + work->length <= conn->window_bytes;
}

bool post_can_encode(const struct tcp_conn *conn)
{
	const struct tcp_work *work;

	if (conn->next == conn->tail || conn->next - conn->head >= conn->requests_limit)
		return false;
	work = &conn->works[conn->next & conn->work_mask];
	if (!window_takes(conn, work))
		return false;
	return !needs_grant(work) || conn->granted || !conn->wanting;
}

static struct frame request_of(const struct tcp_work *work, uint32_t sequence)
{
	static const uint8_t ops[] = {
		[RMR_OP_SEND] = FRAME_SEND,
		[RMR_OP_WRITE] = FRAME_WRITE,
		[RMR_OP_WRITE_IMM] = FRAME_WRITE_IMM,
		[RMR_OP_READ] = FRAME_READ,
		[RMR_OP_COMPARE_SWAP] = FRAME_COMPARE_SWAP,
		[RMR_OP_FETCH_ADD] = FRAME_FETCH_ADD,
	};

	return (struct frame){
		.op = ops[work->op],
		.index = work->remote_index,
		.sequence = sequence,
		.length = work->length,
		.key = work->remote_key,
		.offset = work->offset,
		.operand = work->operand,
		.compare = work->compare,
	};
}

/* Asks for a slot for the SEND at next. */
static void encode_want(struct tcp_conn *conn, const struct tcp_work *work)
{
	uint8_t *to = transmit_reserve(conn, FRAME_HEADER_MAX);

	if (!to)
		return;
	transmit_commit(conn, frame_encode(to, &(struct frame){.op = FRAME_WANT,
							       .sequence = conn->next,
							       .length = work->length}));
	conn->wanting = true;
}

/* Copies a payload behind its header. False when its region is closed. */
static bool copy_payload(uint8_t *to, const struct tcp_work *work)
{
	const uint8_t *from = work->stash ? work->stash : work->local;

	if (!work->local_slot) {
		memcpy(to, from, work->length);
		return true;
	}
	if (!region_enter(work->local_slot, work->local_key))
		return false;
	memcpy(to, work->stash ? from : region_now(work->local_slot, from), work->length);
	region_leave(work->local_slot);
	return true;
}

/* A long READ, on a wire that has a better way for its data. */
static void try_to_lend(struct tcp_conn *conn, struct tcp_work *work, struct frame *frame)
{
	const struct tcp_wire *wire = tcp_queue_of(conn)->wire;

	if (work->op != RMR_OP_READ || work->length < TCP_LEND_MIN || !wire->lend ||
	    !wire->lend(conn, work, frame->sequence))
		return;
	frame->op = FRAME_READ_PUSH;
	work->lent = LENT_OUT;
	conn->lent++;
}

/* Encodes one work. False when the block has no room, or the connection has failed. */
static bool encode_work(struct tcp_conn *conn, struct tcp_work *work)
{
	bool copied = has_payload(work) && (!work->local_slot || work->length <= TCP_COPY_MAX);
	struct frame frame = request_of(work, conn->next);
	uint8_t *to = transmit_reserve(conn, FRAME_HEADER_MAX + (copied ? work->length : 0));
	size_t size;

	if (!to)
		return false;
	try_to_lend(conn, work, &frame);
	size = frame_encode(to, &frame);
	if (copied) {
		if (!copy_payload(to + size, work)) {
			conn_fail_at(conn, conn->next, RMR_ACCESS);
			return false;
		}
		size += work->length;
	}
	transmit_commit(conn, size);
	if (has_payload(work) && !copied)
		transmit_reference(conn, work->local, work->length, work->local_slot,
				   work->local_key);
	if (is_message(work)) {
		work->message = ++conn->messages_sent;
		if (work->op == RMR_OP_SEND && !needs_grant(work))
			conn->bytes_sent += (uint32_t)work->length;
	}
	if (work->stash) {
		free(work->stash);
		work->stash = NULL;
	}
	return true;
}

void post_encode(struct tcp_conn *conn)
{
	while (post_can_encode(conn)) {
		struct tcp_work *work = &conn->works[conn->next & conn->work_mask];

		if (needs_grant(work) && !conn->granted) {
			encode_want(conn, work);
			return;
		}
		if (!encode_work(conn, work))
			return;
		conn->wanting = conn->granted = false;
		conn->next++;
	}
}

static bool allocate_works(struct tcp_conn *conn)
{
	uint32_t capacity = 16;

	while (capacity < conn->base.options.depth)
		capacity *= 2;
	conn->works = malloc(capacity * sizeof(*conn->works));
	conn->work_mask = capacity - 1;
	return conn->works != NULL;
}

static void fill_work(struct tcp_work *to, const struct rmr_work *from)
{
	const struct tcp_remote *remote = (const struct tcp_remote *)from->remote;
	const struct tcp_region *region = (const struct tcp_region *)from->region;
	bool touches = from->length != 0 && !(from->flags & RMR_INLINE);

	to->cookie = from->cookie;
	to->local = from->local;
	to->length = from->length;
	to->local_slot = touches ? region->slot : NULL;
	to->local_key = touches ? region->key : 0;
	to->stash = NULL;
	to->op = (uint8_t)from->op;
	to->flags = (uint8_t)from->flags;
	to->lent = LENT_NOT;
	to->remote_index = 0;
	to->remote_key = to->offset = to->operand = to->compare = 0;
	if (from->op == RMR_OP_SEND)
		return;
	to->remote_index = remote->index;
	to->remote_key = remote->key;
	/* Beyond any region in either case, and within what a frame may say. */
	to->offset = from->offset < OFFSET_MAX ? from->offset : OFFSET_MAX;
	if (from->op == RMR_OP_WRITE_IMM) {
		to->operand = from->immediate;
	} else if (from->op >= RMR_OP_COMPARE_SWAP) {
		to->operand = from->operand;
		to->compare = from->op == RMR_OP_COMPARE_SWAP ? from->compare : 0;
	}
}

/* Keeps the payload of the work just posted, if it is inline and had to wait. */
static void keep_inline(struct tcp_conn *conn)
{
	struct tcp_work *work = &conn->works[(conn->tail - 1) & conn->work_mask];

	if (conn->next == conn->tail || conn->state != CONN_OPEN)
		return;
	work->stash = malloc(work->length);
	if (!work->stash)
		conn_fail(conn, RMR_NO_MEMORY);
	else
		memcpy(work->stash, work->local, work->length);
}

int tcp_post(struct rmr_conn *base, const struct rmr_work *works, int count)
{
	struct tcp_conn *conn = (struct tcp_conn *)base;
	struct tcp_queue *queue = tcp_queue_of(conn);
	int room, wanted = count;

	queue_lock(queue);
	room = (int)conn_room(base);
	if (count > room)
		count = room;
	if (!conn->works && !allocate_works(conn)) {
		conn_fail(conn, RMR_NO_MEMORY);
		count = 0;
	}
	for (int i = 0; i < count; i++) {
		const struct rmr_work *work = &works[i];

		if (conn->state == CONN_LOST) {
			/* DISCONNECT is in the ring, and it is the last. */
			count = i;
			break;
		}
		base->outstanding++;
		if (conn->state != CONN_OPEN) {
			conn_completed(base, work->op, work->flags, work->cookie, 0, RMR_CANCELED);
			continue;
		}
		fill_work(&conn->works[conn->tail++ & conn->work_mask], work);
		if ((work->flags & RMR_INLINE) && work->length) {
			transmit_encode(conn);
			keep_inline(conn);
		}
	}
	/* What is not held back leaves at once, under the same lock; the flush that follows then
	 * has nothing to do. */
	conn->flush_due =
		conn->state == CONN_OPEN && count == wanted && (works[count - 1].flags & RMR_MORE);
	if (conn->flush_due)
		transmit_encode(conn);
	else
		transmit_ready(conn);
	queue_unlock(queue);
	return count;
}

void tcp_flush(struct rmr_conn *base)
{
	struct tcp_conn *conn = (struct tcp_conn *)base;
	struct tcp_queue *queue = tcp_queue_of(conn);

	if (!conn->flush_due)
		return;
	queue_lock(queue);
	conn->flush_due = false;
	transmit_ready(conn);
	queue_unlock(queue);
}
