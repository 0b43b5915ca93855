/*
 * Bytes in: one call takes in as many frames as there are, or up to the end of a long payload that
 * the program waits for.
 *
 * The queue has one scratch buffer, into which whoever holds its lock receives; frames are
 * parsed from there. What is left at its end is at most the beginning of a header, which the
 * connection keeps (`carry`): so idle connections need no buffer. A payload is not parsed but
 * moved, to where it belongs:
 *
 *	header | payload ...		in scratch: copied to its destination
 *	         ... rest		next call: readv straight into the destination, and what
 *					comes behind it into the scratch buffer
 *
 * so that of a large transfer only the first and last few KiB are copied by us. (When the next
 * answer that we wait for is a long one, we take in only a little at first.) The destination
 * is memory of a region, which may be closed at any moment by another thread: it is entered for
 * each piece and each system call (region.h).
 *
 * When the batch is done, all that is owed leaves in one sendmsg. Acknowledgments of messages
 * wait a little more: the program has got the messages and will probably answer, and then the
 * answer takes them along. If it does not, its next poll sends them, or the helper.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/tcp/internal.h"

static void payload_done(struct tcp_conn *conn)
{
	struct tcp_receive *receive = &conn->receive;

	receive->in_payload = false;
	switch (receive->op) {
	case FRAME_SEND:
		message_end(conn);
		break;
	case FRAME_WRITE:
		serve_write_done(conn, receive->sequence);
		break;
	case FRAME_WRITE_IMM:
		message_immediate(conn, receive->immediate, receive->length);
		break;
	default:
		answer_read_done(conn, receive->sequence);
	}
}

void receive_payload(struct tcp_conn *conn, const struct frame *frame, uint8_t *to,
		     struct region_slot *slot, uint64_t key)
{
	struct tcp_receive *receive = &conn->receive;

	receive->in_payload = true;
	receive->op = frame->op;
	receive->sequence = frame->sequence;
	receive->immediate = frame->immediate;
	receive->length = frame->length;
	receive->to = to;
	receive->rest = frame->length;
	receive->slot = slot;
	receive->key = key;
	if (frame->length == 0)
		payload_done(conn);
}

/* The region that a payload goes to was closed. Whose it was decides who is told what. */
static void destination_closed(struct tcp_conn *conn)
{
	struct tcp_receive *receive = &conn->receive;

	receive->in_payload = false;
	if (receive->op == FRAME_READ_DATA) {
		conn_fail_at(conn, receive->sequence, RMR_ACCESS);
		return;
	}
	log_warn_limited("%s: connection to %s ends: %s into a region that was closed meanwhile",
			 conn_device_name(conn), conn->base.peer, frame_op_name(receive->op));
	conn_refuse(conn, receive->sequence, RMR_ACCESS);
}

/* Before and after touching the destination; false when it is no more. */
static bool enter_destination(struct tcp_conn *conn)
{
	struct tcp_receive *receive = &conn->receive;

	if (!receive->slot || region_enter(receive->slot, receive->key))
		return true;
	destination_closed(conn);
	return false;
}

/* Once inside: where the next byte goes. */
static uint8_t *destination(const struct tcp_receive *receive)
{
	return receive->slot ? region_now(receive->slot, receive->to) : receive->to;
}

static void leave_destination(struct tcp_conn *conn)
{
	if (conn->receive.slot)
		region_leave(conn->receive.slot);
}

static void payload_advance(struct tcp_conn *conn, size_t count)
{
	struct tcp_receive *receive = &conn->receive;

	receive->to += count;
	receive->rest -= count;
	if (receive->rest == 0)
		payload_done(conn);
}

/* Moves payload from the scratch buffer. Returns how many bytes it took. */
static size_t take_payload(struct tcp_conn *conn, const uint8_t *from, size_t available)
{
	struct tcp_receive *receive = &conn->receive;
	size_t count = receive->rest < available ? (size_t)receive->rest : available;

	if (!enter_destination(conn))
		return 0;
	memcpy(destination(receive), from, count);
	leave_destination(conn);
	payload_advance(conn, count);
	return count;
}

/* Parses the frames in the scratch buffer, until it is used up or the connection is not OPEN. */
static void parse(struct tcp_conn *conn, const uint8_t *at, const uint8_t *end)
{
	struct tcp_receive *receive = &conn->receive;

	receive->carried = 0;
	while (at < end && conn->state == CONN_OPEN) {
		struct frame frame;
		const char *reason;
		int size;

		if (receive->in_payload) {
			at += take_payload(conn, at, (size_t)(end - at));
			continue;
		}
		size = frame_decode(at, (size_t)(end - at), &frame, &reason);
		if (size < 0) {
			conn_violation(conn, "%s", reason);
			return;
		}
		if (size == 0) {
			receive->carried = (uint8_t)(end - at);
			memcpy(receive->carry, at, receive->carried);
			return;
		}
		at += size;
		if (frame_is_request(frame.op))
			serve_take(conn, &frame);
		else
			answer_take(conn, &frame);
	}
}

/* One system call: the rest of a payload, then the scratch buffer. *wanted is what it could have
 * returned. */
static ssize_t receive_bytes(struct tcp_conn *conn, size_t *direct, size_t *wanted)
{
	struct tcp_receive *receive = &conn->receive;
	uint8_t *scratch = tcp_queue_of(conn)->scratch;
	struct iovec vectors[2];
	ssize_t got;

	*direct = 0;
	if (!receive->in_payload) {
		memcpy(scratch, receive->carry, receive->carried);
		*wanted = answer_is_long(conn) ? TCP_SCRATCH_BEHIND : TCP_SCRATCH_BYTES;
		*wanted -= receive->carried;
		return socket_recv(conn->fd, scratch + receive->carried, *wanted);
	}
	*direct = receive->rest < TCP_DIRECT_MAX ? (size_t)receive->rest : TCP_DIRECT_MAX;
	vectors[0] = (struct iovec){.iov_len = *direct};
	vectors[1] = (struct iovec){.iov_base = scratch, .iov_len = TCP_SCRATCH_BYTES};
	/* Behind a long payload comes, as likely as not, another one: take in little more than its
	 * header, so that little has to be copied. */
	if (receive->rest >= TCP_DIRECT_MIN)
		vectors[1].iov_len = TCP_SCRATCH_BEHIND;
	if (!enter_destination(conn)) {
		errno = EAGAIN;
		return -1;
	}
	vectors[0].iov_base = destination(receive);
	/* Far from its end the payload alone is asked for, which is the cheaper call. */
	if (receive->rest > TCP_DIRECT_ALONE) {
		*wanted = *direct;
		got = socket_recv(conn->fd, vectors[0].iov_base, *direct);
	} else {
		*wanted = *direct + vectors[1].iov_len;
		got = readv(conn->fd, vectors, 2);
	}
	leave_destination(conn);
	return got;
}

/* Returns whether there may be more. */
static bool receive_once(struct tcp_conn *conn, bool *some)
{
	uint8_t *scratch = tcp_queue_of(conn)->scratch;
	size_t direct, wanted, carried = conn->receive.carried;
	ssize_t got = receive_bytes(conn, &direct, &wanted);

	if (got <= 0) {
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
			return false;
		if (got < 0 && errno != ECONNRESET && errno != EPIPE)
			log_info("tcp: connection to %s: %s", conn->base.peer, strerror(errno));
		*some = true;
		conn_fail(conn, RMR_DISCONNECTED);
		return false;
	}
	*some = true;
	if (direct) {
		size_t moved = (size_t)got < direct ? (size_t)got : direct;
		bool was_long_rest = moved >= TCP_DIRECT_MIN && moved == conn->receive.rest;

		/* The rest is on its way: no time to sleep. */
		queue_served(conn->base.queue);
		payload_advance(conn, moved);
		if ((size_t)got > moved && conn->state == CONN_OPEN)
			parse(conn, scratch, scratch + ((size_t)got - moved));
		/* If the program waits for it, it shall have it while it is in the cache, and ask
		 * for the next one before the last one is here. */
		if (was_long_rest && !completion_ring_is_empty(&conn->base.queue->ring))
			return false;
	} else {
		parse(conn, scratch, scratch + carried + got);
	}
	return (size_t)got == wanted;
}

/* After a refused request: reads away what the peer still sends, until it hangs up. */
static bool discard(struct tcp_conn *conn)
{
	ssize_t got = socket_recv(conn->fd, tcp_queue_of(conn)->scratch, TCP_SCRATCH_BYTES);

	if (got > 0)
		return true;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (conn->discarding)
		tcp_queue_of(conn)->wire->close(conn);
	else
		conn_fail(conn, RMR_DISCONNECTED);
	return true;
}

void receive_settle(struct tcp_conn *conn, uint32_t delivered)
{
	if (conn->state != CONN_OPEN && conn->state != CONN_CLOSING)
		return;
	if (transmit_is_urgent(conn) || (conn->messages_done == delivered && transmit_is_due(conn)))
		transmit_ready(conn);
	else if (transmit_is_due(conn))
		transmit_later(conn);
}

void receive_feed(struct tcp_conn *conn, uint8_t *bytes, size_t length)
{
	struct tcp_receive *receive = &conn->receive;
	uint8_t *begin = bytes - receive->carried;

	assert(receive->carried == 0 || !receive->in_payload);
	memcpy(begin, receive->carry, receive->carried);
	parse(conn, begin, bytes + length);
}

bool receive_ready(struct tcp_conn *conn)
{
	uint32_t delivered = conn->messages_done;
	bool some = false;

	if (conn->fd < 0)
		return false;
	if (conn->discarding || conn->state == CONN_CLOSING)
		return discard(conn);
	for (int i = 0; i < TCP_RECEIVE_ROUNDS && conn->state == CONN_OPEN; i++) {
		if (!receive_once(conn, &some))
			break;
	}
	receive_settle(conn, delivered);
	return some;
}
