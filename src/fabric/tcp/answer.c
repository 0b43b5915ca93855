/*
 * The initiator's incoming side: answers come back, works are completed.
 *
 * A work is done when its data is here (READ, atomics), when the peer has placed it (WRITE), or
 * when it has delivered it (SEND, WRITE_IMM). Works are completed in the order of posting, from
 * `head` on, as far as they are done:
 *
 *	no message	its sequence is below `answered`
 *	a message	its number is within `messages_acked`
 *	lent memory	it has landed: the data came by another way than the answers
 *
 * Everything that the peer claims is checked against what was asked: an answer to a request
 * that was not made, out of order, of the wrong kind or length ends the connection. A peer
 * cannot skip the answer to a READ either: that would complete it without data. (Where data goes
 * another way, the wire sees to it that there is as much as was asked for.)
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/tcp/internal.h"

static struct tcp_work *work_at(struct tcp_conn *conn, uint32_t sequence)
{
	return &conn->works[sequence & conn->work_mask];
}

static bool is_message(const struct tcp_work *work)
{
	return work->op == RMR_OP_SEND || work->op == RMR_OP_WRITE_IMM;
}

static bool is_done(const struct tcp_conn *conn, const struct tcp_work *work)
{
	if (is_message(work))
		return !sequence_before(conn->messages_acked, work->message);
	if (work->lent)
		return work->lent == LENT_LANDED;
	return sequence_before(conn->head, conn->answered);
}

bool answer_is_long(struct tcp_conn *conn)
{
	const struct tcp_work *work;

	if (conn->answered == conn->next)
		return false;
	work = work_at(conn, conn->answered);
	return work->op == RMR_OP_READ && work->length >= TCP_DIRECT_MIN;
}

static void complete_done(struct tcp_conn *conn)
{
	while (conn->head != conn->next) {
		struct tcp_work *work = work_at(conn, conn->head);

		if (!is_done(conn, work))
			return;
		conn_completed(&conn->base, work->op, work->flags, work->cookie, work->length,
			       RMR_OK);
		conn->head++;
		/* Messages leave the FIFO without an answer by sequence. */
		if (sequence_before(conn->answered, conn->head))
			conn->answered = conn->head;
	}
}

/* All requests below `end` that are no messages are done, says the peer. Checks that they were
 * made, and that none of them still waits for data. What we know already is no news: a peer that
 * was sent only messages has nothing to say but 0. */
static bool advance(struct tcp_conn *conn, uint32_t end)
{
	if (!sequence_before(conn->answered, end))
		return true;
	if (sequence_before(conn->next, end)) {
		conn_violation(conn, "it answers request %u, but %u is the next", end, conn->next);
		return false;
	}
	for (uint32_t i = conn->answered; i != end; i++) {
		const struct tcp_work *work = work_at(conn, i);

		if (work->op >= RMR_OP_READ && !work->lent) {
			conn_violation(conn, "it skips the answer to request %u", i);
			return false;
		}
	}
	conn->answered = end;
	return true;
}

/* So many messages are delivered, says the peer. */
static bool advance_messages(struct tcp_conn *conn, const struct frame *frame)
{
	if (sequence_before(frame->messages, conn->messages_acked) ||
	    sequence_before(conn->messages_sent, frame->messages) ||
	    frame->bytes - conn->bytes_acked > conn->bytes_sent - conn->bytes_acked) {
		conn_violation(conn, "it acknowledges messages that were not sent");
		return false;
	}
	conn->messages_acked = frame->messages;
	conn->bytes_acked = frame->bytes;
	return true;
}

/* The work that an answer with data belongs to; NULL, and the connection has failed, if none. */
static struct tcp_work *claim(struct tcp_conn *conn, const struct frame *frame, bool atomic)
{
	struct tcp_work *work;

	if (sequence_before(frame->sequence, conn->answered) ||
	    !sequence_before(frame->sequence, conn->next)) {
		conn_violation(conn, "%s for request %u, which waits for no answer",
			       frame_op_name(frame->op), frame->sequence);
		return NULL;
	}
	if (!advance(conn, frame->sequence))
		return NULL;
	work = work_at(conn, frame->sequence);
	if (atomic ? work->op < RMR_OP_COMPARE_SWAP
		   : work->op != RMR_OP_READ || work->lent || work->length != frame->length) {
		conn_violation(conn, "%s does not fit request %u", frame_op_name(frame->op),
			       frame->sequence);
		return NULL;
	}
	return work;
}

static void take_atomic(struct tcp_conn *conn, const struct frame *frame)
{
	struct tcp_work *work = claim(conn, frame, true);

	if (!work)
		return;
	if (!region_enter(work->local_slot, work->local_key)) {
		conn_fail_at(conn, frame->sequence, RMR_ACCESS);
		return;
	}
	memcpy(region_now(work->local_slot, work->local), &frame->value, sizeof(frame->value));
	region_leave(work->local_slot);
	conn->answered = frame->sequence + 1;
	complete_done(conn);
}

void answer_landed(struct tcp_conn *conn, uint32_t sequence)
{
	struct tcp_work *work = work_at(conn, sequence);

	if (sequence_before(sequence, conn->head) || !sequence_before(sequence, conn->next) ||
	    work->lent != LENT_OUT) {
		conn_violation(conn, "it pushes what was not asked for");
		return;
	}
	tcp_queue_of(conn)->wire->take_back(conn, work);
	work->lent = LENT_LANDED;
	conn->lent--;
	complete_done(conn);
}

static void take_ack(struct tcp_conn *conn, const struct frame *frame)
{
	if (advance(conn, frame->sequence) && advance_messages(conn, frame))
		complete_done(conn);
}

static void take_grant(struct tcp_conn *conn, const struct frame *frame)
{
	if (!conn->wanting || conn->granted || frame->sequence != conn->next) {
		conn_violation(conn, "it grants what was not asked for");
		return;
	}
	conn->granted = true;
}

static void take_error(struct tcp_conn *conn, const struct frame *frame)
{
	enum rmr_status status = (enum rmr_status)(-(int)frame->status);

	if (sequence_before(frame->sequence, conn->head) ||
	    !sequence_before(frame->sequence, conn->next)) {
		conn_violation(conn, "it refuses request %u that was not made", frame->sequence);
		return;
	}
	if (!advance(conn, frame->sequence) || !advance_messages(conn, frame))
		return;
	complete_done(conn);
	if (conn->state == CONN_OPEN || conn->state == CONN_CLOSING)
		conn_fail_at(conn, frame->sequence, status);
}

void answer_take(struct tcp_conn *conn, const struct frame *frame)
{
	struct tcp_work *work;

	switch (frame->op) {
	case FRAME_READ_DATA:
		work = claim(conn, frame, false);
		if (work)
			receive_payload(conn, frame, work->local, work->local_slot,
					work->local_key);
		break;
	case FRAME_ATOMIC_RESULT:
		take_atomic(conn, frame);
		break;
	case FRAME_ACK:
		take_ack(conn, frame);
		break;
	case FRAME_GRANT:
		take_grant(conn, frame);
		break;
	case FRAME_ERROR:
		take_error(conn, frame);
		break;
	default:
		conn_violation(conn, "%s is no answer", frame_op_name(frame->op));
	}
}

void answer_read_done(struct tcp_conn *conn, uint32_t sequence)
{
	conn->answered = sequence + 1;
	complete_done(conn);
}

void answer_fail_all(struct tcp_conn *conn, const uint32_t *culprit, enum rmr_status status)
{
	bool first = true;

	complete_done(conn); /* what has landed in the last moment */
	for (; conn->head != conn->tail; conn->head++) {
		struct tcp_work *work = work_at(conn, conn->head);
		enum rmr_status own = RMR_CANCELED;

		if (culprit && conn->head == *culprit)
			own = status;
		else if (!culprit && first && sequence_before(conn->head, conn->next))
			own = RMR_DISCONNECTED;
		first = false;
		free(work->stash);
		work->stash = NULL;
		if (work->lent == LENT_OUT)
			tcp_queue_of(conn)->wire->take_back(conn, work);
		conn_completed(&conn->base, work->op, work->flags, work->cookie, 0, own);
	}
	conn->next = conn->tail;
	conn->lent = 0;
}
