/*
 * Packets: the engine's stream of frames, cut into what libfabric sends as messages, and put
 * together again in order.
 *
 *	block of the engine:	| frames ........................ | long payload | frames |
 *	packets:		| token, 7 | bytes | token, 8 | bytes | token, 9 | bytes |
 *
 * libfabric is asked for no order. A packet carries its number; one that comes too early is kept
 * (a stray) until those before it are here. What a peer can make us keep is bounded; it would have
 * to break the engine's windows to come even near.
 *
 * A packet names its connection by a token that only the peer was told. One with an unknown token
 * is of a connection that was closed, or a stranger's: it is thrown away.
 *
 * Small packets are injected: libfabric copies them, and there is nothing to wait for. Others stay
 * with libfabric until it says that they are sent; a connection may have OFI_SENDS_MAX of these, so
 * that one that does not take in anything cannot use up everybody's memory.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/ofi/internal.h"

static void fill_header(struct ofi_packet *packet, const struct ofi_conn *conn)
{
	packet->token = htole64(conn->peer_token);
	packet->number = htole32(conn->packets_sent);
	packet->taken = htole32(conn->packets_taken);
}

/* ------------------------------------------------------------------------------------------
 * Memory
 */

/* One piece of memory, registered if need be; NULL, with the error set, when there is none. */
static struct ofi_slab *add_slab(struct ofi_queue *queue, size_t size)
{
	struct ofi_slab *slab = calloc(1, sizeof(*slab));
	int code;

	if (!slab)
		goto no_memory;
	slab->memory = aligned_alloc(64, (size + 63) & ~(size_t)63);
	if (!slab->memory)
		goto free_slab;
	memset(slab->memory, 0, size);
	if (queue->needs_local_mr) {
		code = fi_mr_reg(queue->domain, slab->memory, size, FI_SEND | FI_RECV, 0, 0, 0,
				 &slab->mr, NULL);
		if (code != 0) {
			(void)error_set(RMR_SYSTEM, "libfabric: registering memory: %s",
					library_text(code));
			free(slab->memory);
			free(slab);
			return NULL;
		}
	}
	slab->next = queue->slabs;
	queue->slabs = slab;
	return slab;

free_slab:
	free(slab);
no_memory:
	(void)error_set(RMR_NO_MEMORY, "no memory for packets");
	return NULL;
}

static bool add_sends(struct ofi_queue *queue)
{
	struct ofi_slab *slab = add_slab(queue, OFI_SENDS_SLAB * sizeof(struct ofi_send));
	struct ofi_send *sends;

	if (!slab)
		return false;
	sends = slab->memory;
	for (unsigned i = 0; i < OFI_SENDS_SLAB; i++) {
		sends[i].context.kind = OFI_SEND;
		sends[i].descriptor = slab->mr ? fi_mr_desc(slab->mr) : NULL;
		sends[i].next = queue->free_sends;
		queue->free_sends = &sends[i];
	}
	return true;
}

enum rmr_status packet_init(struct ofi_queue *queue)
{
	struct ofi_slab *slab = add_slab(queue, OFI_RECEIVES * sizeof(struct ofi_receive));

	if (!slab || !add_sends(queue))
		return RMR_NO_MEMORY;
	queue->receives = slab->memory;
	queue->receive_descriptor = slab->mr ? fi_mr_desc(slab->mr) : NULL;
	for (unsigned i = 0; i < OFI_RECEIVES; i++) {
		queue->receives[i].context.kind = OFI_RECEIVE;
		packet_repost(queue, &queue->receives[i]);
	}
	return RMR_OK;
}

void packet_fini(struct ofi_queue *queue)
{
	while (queue->slabs) {
		struct ofi_slab *slab = queue->slabs;

		queue->slabs = slab->next;
		if (slab->mr)
			fi_close(&slab->mr->fid);
		free(slab->memory);
		free(slab);
	}
	queue->free_sends = NULL;
	queue->receives = NULL;
}

/* ------------------------------------------------------------------------------------------
 * Out
 */

/* Copies the next bytes of the block. Returns how many; 0 when a region they lie in was closed. */
static size_t copy_segments(struct tcp_conn *conn, uint8_t *to, size_t room)
{
	const struct tcp_transmit *transmit = &conn->transmit;
	size_t copied = 0;

	for (uint32_t i = transmit->first; i < transmit->count && room > copied; i++) {
		const struct tcp_segment *segment = &transmit->block->segments[i];
		size_t part = segment->length < room - copied ? segment->length : room - copied;

		if (segment->slot && !region_enter(segment->slot, segment->key))
			break;
		memcpy(to + copied, segment->data, part);
		if (segment->slot)
			region_leave(segment->slot);
		copied += part;
	}
	return copied;
}

/* Sends one packet. 0, or what libfabric says. */
static ssize_t send_packet(struct ofi_conn *conn, size_t *length)
{
	struct ofi_queue *queue = ofi_queue_of(conn);
	struct ofi_send *send = queue->free_sends;
	ssize_t code;

	fill_header(&send->packet, conn);
	*length = copy_segments(&conn->stream, send->packet.bytes, OFI_PACKET_BYTES);
	if (*length == 0)
		return -FI_EACCES;
	if (OFI_PACKET_HEADER + *length <= queue->inject_max)
		return fi_inject(queue->endpoint, &send->packet, OFI_PACKET_HEADER + *length,
				 conn->peer->number);
	code = fi_send(queue->endpoint, &send->packet, OFI_PACKET_HEADER + *length,
		       send->descriptor, conn->peer->number, &send->context);
	if (code == 0) {
		queue->free_sends = send->next;
		send->token = conn->token;
		conn->sends++;
		queue->sends++;
		queue->busy_ns = clock_quick_ns() + OFI_AWAKE_NS;
	}
	return code;
}

bool packet_send_block(struct tcp_conn *base, size_t *total)
{
	struct ofi_conn *conn = (struct ofi_conn *)base;
	struct ofi_queue *queue = ofi_queue_of(conn);

	while (base->transmit.first < base->transmit.count) {
		size_t length;
		ssize_t code;

		if (conn->sends >= OFI_SENDS_MAX || conn->silent)
			return false;
		if (!queue->free_sends && !add_sends(queue)) {
			conn_fail(base, RMR_NO_MEMORY);
			return false;
		}
		if (!sleep_before_packet(conn))
			return false;
		code = send_packet(conn, &length);
		if (code == -FI_EAGAIN)
			return false;
		if (code != 0) {
			if (code == -FI_EACCES)
				log_warn_limited(
					"%s: connection to %s ends: a region was closed while "
					"being sent",
					conn_device_name(base), base->base.peer);
			conn_fail(base, code == -FI_EACCES ? RMR_ACCESS : RMR_DISCONNECTED);
			return false;
		}
		conn->packets_sent++;
		sleep_after_packet(conn);
		transmit_advance(base, length);
		*total += length;
	}
	return true;
}

void packet_sent(struct ofi_queue *queue, struct ofi_send *send, ssize_t code)
{
	struct ofi_conn *conn = conn_by_token(queue, send->token);

	send->next = queue->free_sends;
	queue->free_sends = send;
	queue->sends--;
	queue->busy_ns = clock_quick_ns() + OFI_AWAKE_NS;
	if (!conn)
		return;
	conn->sends--;
	if (code == 0 || !conn_is_up(conn))
		return;
	log_info("%s: connection to %s: %s", conn_device_name(&conn->stream),
		 conn->stream.base.peer, library_text(code));
	conn_fail(&conn->stream, RMR_DISCONNECTED);
}

/* ------------------------------------------------------------------------------------------
 * In
 */

void packet_repost(struct ofi_queue *queue, struct ofi_receive *receive)
{
	ssize_t code = fi_recv(queue->endpoint, &receive->packet, sizeof(receive->packet),
			       queue->receive_descriptor, FI_ADDR_UNSPEC, &receive->context);

	/* Room for all of them was asked for; should it be missing now, there is one less. */
	if (code != 0)
		log_warn_limited("%s: posting a receive: %s", queue->stream.base.device->info.name,
				 library_text(code));
}

/* Keeps a packet whose turn has not come, in the order of numbers. */
static void keep_stray(struct ofi_conn *conn, const struct ofi_packet *packet, size_t length)
{
	uint32_t number = le32toh(packet->number);
	struct ofi_stray *stray, **at = &conn->strays;

	while (*at && sequence_before((*at)->number, number))
		at = &(*at)->next;
	if (sequence_before(number, conn->packets_taken) || (*at && (*at)->number == number) ||
	    conn->stray_bytes + length + sizeof(*stray) > OFI_STRAY_BYTES) {
		if (conn_is_up(conn))
			conn_violation(&conn->stream, "packet %u instead of %u", number,
				       conn->packets_taken);
		return;
	}
	stray = malloc(sizeof(*stray) + length);
	if (!stray) {
		if (conn_is_up(conn))
			conn_fail(&conn->stream, RMR_NO_MEMORY);
		return;
	}
	stray->number = number;
	stray->length = (uint32_t)length;
	memcpy(stray->bytes, packet->bytes, length);
	stray->next = *at;
	*at = stray;
	conn->stray_bytes += length + sizeof(*stray);
}

/* The next packet in order. A connection that has ended throws it away, but counts it. */
static void take(struct ofi_conn *conn, uint8_t *bytes, size_t length)
{
	conn->packets_taken++;
	if (conn->stream.state == CONN_OPEN)
		receive_feed(&conn->stream, bytes, length);
}

void packet_take_strays(struct ofi_conn *conn)
{
	while (conn->strays && conn->strays->number == conn->packets_taken) {
		struct ofi_stray *stray = conn->strays;

		conn->strays = stray->next;
		conn->stray_bytes -= stray->length + sizeof(*stray);
		take(conn, stray->bytes, stray->length);
		free(stray);
	}
}

void packet_drop_strays(struct ofi_conn *conn)
{
	while (conn->strays) {
		struct ofi_stray *stray = conn->strays;

		conn->strays = stray->next;
		free(stray);
	}
	conn->stray_bytes = 0;
}

struct ofi_conn *packet_arrived(struct ofi_queue *queue, struct ofi_receive *receive, size_t length)
{
	struct ofi_packet *packet = &receive->packet;
	struct ofi_conn *conn = NULL;

	if (length > OFI_PACKET_HEADER && length <= sizeof(*packet))
		conn = conn_by_token(queue, le64toh(packet->token));
	if (conn && conn_is_up(conn)) {
		if (sequence_before(conn->packets_sent, le32toh(packet->taken)))
			conn_violation(&conn->stream, "it has taken in packets that were not sent");
		else
			sleep_take_count(conn, le32toh(packet->taken));
	}
	if (!conn) {
		log_debug("%s: a packet of %zu bytes for nobody",
			  queue->stream.base.device->info.name, length);
	} else if (conn->stream.state == CONN_UNBORN ||
		   le32toh(packet->number) != conn->packets_taken) {
		/* We called, and the answer by the socket has not been read yet; or it is early. */
		keep_stray(conn, packet, length - OFI_PACKET_HEADER);
		conn = NULL;
	} else {
		take(conn, packet->bytes, length - OFI_PACKET_HEADER);
		packet_take_strays(conn);
		if (conn->silent) {
			conn->silent = false;
			if (conn->stream.transmit.blocked)
				transmit_unblock(&conn->stream);
		}
	}
	packet_repost(queue, receive);
	return conn;
}
