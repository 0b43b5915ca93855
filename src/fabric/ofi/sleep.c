/*
 * What is slept upon when libfabric has nothing. The owner sleeps on sockets_fd, through
 * base.epoll_fd, and so does the helper.
 *
 * Most providers have a descriptor that tells (FI_WAIT_FD). Before anybody sleeps, libfabric is
 * asked whether it has something already (fi_trywait). While the owner polls all the time the
 * descriptor is taken out again: a packet that arrives would have to go through a chain of epoll
 * sets, for nothing.
 *
 * libfabric's rxm over tcp has such a chain within itself, which costs a fifth of a message's time
 * whether somebody sleeps or not. There it is the peer who wakes us up, by a word through the
 * connection's socket, which lies in sockets_fd (control.c):
 *
 *	sender					receiver
 *	peer_awake is false			asleep
 *	BELL  ------------------------------->	wakes up; the sender is among `rung`
 *	peer_awake is true
 *	packets, without a word ------------->	polls
 *						wants to sleep: for each of `rung`
 *	      <-------------------------------	ASLEEP, packets taken in; it is no more among them
 *	peer_awake is false; it has sent more
 *	than that, or has more to send: BELL
 *
 * Why nothing is slept through: while somebody is among `rung` the helper looks at libfabric every
 * few milliseconds. Else each sender has been told ASLEEP since it rang, or never rang. Take a
 * packet that the receiver has not taken in when it falls asleep. If its sender knows by then that
 * it must ring, it rings before sending. If not, the ASLEEP is still on its way to it; the count
 * therein does not hold the packet, so the sender rings when it reads the word. BELL and ASLEEP
 * take turns, each on an ordered stream, so neither side can mistake an old one for a new one, and
 * there is never more than one of each on its way: the socket always has room.
 *
 * A bell is faster than what it is for. So who was rung for stays awake until he has heard it, but
 * for no longer than OFI_AWAKE_NS. If nothing has come by then he sleeps, and leaves the sender
 * among `rung`, to the helper: a peer that rings for nothing costs no more than that.
 *
 * libfabric sends by itself only while somebody calls it, and neither an injected packet nor one of
 * which it says that it is sent need have left: they may lie in its own buffers. Only the peer can
 * tell, by the count in its packets and words. Who has packets that libfabric has not reported
 * stays awake for a moment, and is then polled for by the helper; for others that the peer has not
 * confirmed (`unsure`) the helper calls libfabric now and then, ever more seldom.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/ofi/internal.h"

void sleep_prepare(struct ofi_device *device)
{
	const char *chosen = getenv("REMORA_OFI_WAKE");
	bool rung = strcmp(device->info->fabric_attr->prov_name, "tcp;ofi_rxm") == 0;

	if (chosen && strcmp(chosen, "descriptor") == 0)
		rung = false;
	if (rung)
		device->mode |= GREETING_RUNG;
}

/* ------------------------------------------------------------------------------------------
 * Bells
 */

/* Rings, for so many packets in all. False: it cannot be said now. */
static bool ring(struct ofi_conn *conn, uint32_t packets)
{
	conn->peer_awake = control_say(conn, GREETING_BELL, packets);
	return conn->peer_awake;
}

bool sleep_before_packet(struct ofi_conn *conn)
{
	return conn->peer_awake || ring(conn, conn->packets_sent + 1);
}

void sleep_after_packet(struct ofi_conn *conn)
{
	struct ofi_queue *queue = ofi_queue_of(conn);

	if (!queue_is_rung_for(queue))
		return;
	if (list_is_empty(&conn->unsure_link))
		list_add_tail(&queue->unsure, &conn->unsure_link);
	queue->unsure_ns = clock_quick_ns();
	helper_want_look(&queue->stream);
}

uint64_t sleep_look_in_ns(const struct ofi_queue *queue)
{
	uint64_t age_ns = clock_quick_ns() - queue->unsure_ns;

	if (list_is_empty(&queue->unsure))
		return CLOCK_NEVER;
	/* So each look is about twice as old as the one before it. */
	if (age_ns < OFI_LOOK_MIN_NS)
		return OFI_LOOK_MIN_NS;
	return age_ns < OFI_LOOK_MAX_NS ? age_ns : OFI_LOOK_MAX_NS;
}

void sleep_take_count(struct ofi_conn *conn, uint32_t packets)
{
	/* Packets and words overtake each other. */
	if (sequence_before(conn->peer_taken, packets))
		conn->peer_taken = packets;
	if (conn->peer_taken == conn->packets_sent)
		list_remove(&conn->unsure_link);
}

void sleep_take_bell(struct ofi_conn *conn, uint32_t packets)
{
	struct ofi_queue *queue = ofi_queue_of(conn);

	if (!queue_is_rung_for(queue) || !list_is_empty(&conn->rung_link)) {
		conn_violation(&conn->stream, "a bell that nobody waits for");
		return;
	}
	conn->rung_for = packets;
	conn->rung_taken = conn->packets_taken;
	conn->rung_ns = clock_now_ns() + OFI_AWAKE_NS;
	list_add_tail(&queue->rung, &conn->rung_link);
	/* What it is for may come when the helper has gone. */
	if (queue->stream.by_helper)
		progress_wake_owner(&queue->stream);
}

void sleep_take_asleep(struct ofi_conn *conn, uint32_t packets)
{
	bool blocked = conn->stream.transmit.blocked;

	if (!conn->rings || !conn->peer_awake || sequence_before(conn->packets_sent, packets)) {
		conn_violation(&conn->stream, "asleep without having been rung for");
		return;
	}
	conn->peer_awake = false;
	sleep_take_count(conn, packets);
	if (conn->packets_sent != conn->peer_taken || blocked)
		(void)ring(conn, conn->packets_sent + blocked); /* or else the next packet does */
}

static bool is_about_to_hear(const struct ofi_conn *conn)
{
	return sequence_before(conn->packets_taken, conn->rung_for) && !clock_passed(conn->rung_ns);
}

/* Rung for, and then nothing came. */
static bool was_rung_in_vain(const struct ofi_conn *conn)
{
	return sequence_before(conn->packets_taken, conn->rung_for) &&
	       conn->packets_taken == conn->rung_taken;
}

/* Tells everybody that he has to ring. False: not yet. Whoever cannot be told stays among those who
 * have rung, and the helper looks for him. */
static bool say_asleep(struct ofi_queue *queue)
{
	struct list *link = queue->rung.next;

	while (link != &queue->rung) {
		struct ofi_conn *conn = list_entry(link, struct ofi_conn, rung_link);

		link = link->next;
		if (is_about_to_hear(conn))
			return false;
		if (!was_rung_in_vain(conn) &&
		    (control_say(conn, GREETING_ASLEEP, conn->packets_taken) || errno == EPIPE ||
		     errno == ECONNRESET))
			list_remove(&conn->rung_link);
	}
	return true;
}

/* Is something about to leave? */
static bool is_sending(const struct ofi_queue *queue)
{
	return (queue->sends > 0 || !list_is_empty(&queue->blocked)) &&
	       !clock_passed(queue->busy_ns);
}

/* ------------------------------------------------------------------------------------------
 * Both ways
 */

bool sleep_watch(struct ofi_queue *queue)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct fid *fid = &queue->cq->fid;

	door_watch_all(queue);
	if (queue_is_rung_for(queue))
		return !is_sending(queue) && say_asleep(queue);
	if (!queue->watched)
		queue->watched = epoll_ctl(queue->stream.sockets_fd, EPOLL_CTL_ADD, queue->cq_fd,
					   &event) == 0;
	return queue->watched && fi_trywait(ofi_device_of(queue)->fabric, &fid, 1) == FI_SUCCESS;
}

void sleep_unwatch(struct ofi_queue *queue)
{
	(void)epoll_ctl(queue->stream.sockets_fd, EPOLL_CTL_DEL, queue->cq_fd, NULL);
	queue->watched = false;
}

bool sleep_needs_polls(const struct ofi_queue *queue)
{
	if (queue_is_rung_for(queue))
		return !list_is_empty(&queue->rung) || queue->sends > 0;
	return !queue->watched;
}

enum rmr_status sleep_init(struct ofi_queue *queue)
{
	if (queue_is_rung_for(queue))
		return RMR_OK;
	if (fi_control(&queue->cq->fid, FI_GETWAIT, &queue->cq_fd) != 0)
		return error_set(RMR_UNSUPPORTED,
				 "this provider of libfabric cannot be slept upon");
	/* Not watched is as good: then the helper looks after it. */
	(void)sleep_watch(queue);
	return RMR_OK;
}
