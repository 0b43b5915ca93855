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
 * Why nothing is slept through: the receiver sleeps only while nobody is among `rung`, so each
 * sender has been told ASLEEP since it rang, or never rang. Take a packet that the receiver has not
 * taken in when it falls asleep. If its sender knows by then that it must ring, it rings before
 * sending. If not, the ASLEEP is still on its way to it; the count therein does not hold the
 * packet, so the sender rings when it reads the word. BELL and ASLEEP take turns, each on an
 * ordered stream, so neither side can mistake an old one for a new one, and there is never more
 * than one of each on its way: the socket always has room.
 *
 * A bell is faster than what it is for. So who was rung for stays awake until he has heard it,
 * though not for longer than OFI_BELL_NS: then he says ASLEEP, and is rung for once more. That also
 * has the sender take a look at what is left with its libfabric.
 *
 * libfabric sends by itself only while somebody calls it. Who has packets with it is polled for by
 * the helper (sleep_needs_polls). Injected packets cannot be seen, so they are injected only where
 * the kernel is sure to take them at once: when the peer has all but a few short ones (packet.c).
 */
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

void sleep_ring(struct ofi_conn *conn)
{
	if (conn->peer_awake)
		return;
	/* Should it fail, the socket has ended, and so will the connection. */
	conn->peer_awake = control_say(conn, GREETING_BELL, conn->packets_sent + 1);
}

void sleep_take_bell(struct ofi_conn *conn, uint32_t packets)
{
	struct ofi_queue *queue = ofi_queue_of(conn);

	if (!queue_is_rung_for(queue) || !list_is_empty(&conn->rung_link)) {
		conn_violation(&conn->stream, "a bell that nobody waits for");
		return;
	}
	conn->rung_for = packets;
	conn->rung_ns = clock_now_ns() + OFI_BELL_NS;
	list_add_tail(&queue->rung, &conn->rung_link);
}

void sleep_take_asleep(struct ofi_conn *conn, uint32_t packets)
{
	if (!conn->rings || !conn->peer_awake || sequence_before(conn->packets_sent, packets)) {
		conn_violation(&conn->stream, "asleep without having been rung for");
		return;
	}
	conn->peer_awake = false;
	conn->peer_taken = packets;
	if (conn->packets_sent != packets || conn->stream.transmit.blocked)
		sleep_ring(conn);
}

static bool is_about_to_hear(const struct ofi_conn *conn)
{
	return sequence_before(conn->packets_taken, conn->rung_for) && !clock_passed(conn->rung_ns);
}

/* Tells everybody that he has to ring. False: not yet. */
static bool say_asleep(struct ofi_queue *queue)
{
	while (!list_is_empty(&queue->rung)) {
		struct ofi_conn *conn = list_first_entry(&queue->rung, struct ofi_conn, rung_link);

		if (is_about_to_hear(conn))
			return false;
		list_remove(&conn->rung_link);
		(void)control_say(conn, GREETING_ASLEEP, conn->packets_taken);
	}
	return true;
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
		return say_asleep(queue);
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
