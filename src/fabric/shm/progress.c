/*
 * Polling, sleeping and waking.
 *
 * Every poll looks at the rings of the hot connections: one load of a cache line each that is
 * already in our cache, unless something came. Connections that have been quiet for long cool down
 * when there are many, and then cost nothing: their peer must wake us. The sockets are asked once
 * in a while (by epoll, one system call for all), for wake-ups, grants and the death of peers.
 *
 * Why no wake-up is lost. Each end has a number in its segment, odd while it sleeps:
 *
 *	sleeper					writer
 *	sleep = next odd number			publish a message
 *	fence					fence
 *	look at the ring			look at sleep: if odd, send WAKE
 *
 * Of the two looks at least one sees the other side's store, because of the fences between store
 * and load on both sides: either the sleeper finds the message and stays up, or the writer finds it
 * asleep and wakes it. The writer remembers the number, so that it sends one WAKE for one sleep
 * however much it writes. The same holds with "publish how far I read" for a writer that waits for
 * room, and says so in wants_space.
 *
 * Wake-ups go over the socket and not through an eventfd: an eventfd is one object that both ends
 * hold, and a hostile peer could fill it and make it blocking, so that waking it hangs us.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/shm/internal.h"

#define POLLS_BETWEEN_LOOKS 64	 /* polls before the clock is looked at */
#define COLD_INTERVAL_US    20	 /* between looks at the sockets, with cold connections */
#define HOT_INTERVAL_US	    500	 /* and without */
#define HOT_LIMIT	    8	 /* so many may stay hot although they are quiet */
#define IDLE_LIMIT	    4096 /* quiet polls before a connection cools down */
#define READ_BUDGET	    64	 /* fragments taken from one ring in one poll */
#define SOCKET_BUDGET	    16	 /* packets taken from one socket in one go */

static void set_asleep(struct shm_conn *conn, bool asleep)
{
	uint32_t number = atomic_load_explicit(&conn->mine->sleep, memory_order_relaxed);

	/* Relaxed: going to sleep is followed by a fence; being awake needs no order, as a WAKE too
	 * many does no harm. */
	if ((number & 1) != asleep)
		atomic_store_explicit(&conn->mine->sleep, number + 1, memory_order_relaxed);
}

void shm_conn_heat(struct shm_conn *conn)
{
	struct shm_queue *queue = (struct shm_queue *)conn->base.queue;

	conn->idle = 0;
	if (conn->heat == SHM_HOT || conn->base.lost)
		return;
	if (conn->heat == SHM_COLD)
		queue->cold_count--;
	conn->heat = SHM_HOT;
	list_add_tail(&queue->hot, &conn->hot_link);
	queue->hot_count++;
	set_asleep(conn, queue->armed);
}

void shm_conn_remove(struct shm_conn *conn)
{
	struct shm_queue *queue = (struct shm_queue *)conn->base.queue;

	if (conn->heat == SHM_HOT) {
		list_remove(&conn->hot_link);
		queue->hot_count--;
	} else if (conn->heat == SHM_COLD) {
		queue->cold_count--;
	}
	conn->heat = SHM_OUT;
}

/* A quiet connection goes to sleep, unless something came just now. */
static void cool(struct shm_conn *conn)
{
	struct shm_queue *queue = (struct shm_queue *)conn->base.queue;

	set_asleep(conn, true);
	atomic_thread_fence(memory_order_seq_cst); /* see above */
	if (ring_reader_has(&conn->reader)) {
		set_asleep(conn, false);
		conn->idle = 0;
		return;
	}
	list_remove(&conn->hot_link);
	queue->hot_count--;
	conn->heat = SHM_COLD;
	queue->cold_count++;
}

static void send_wake(struct shm_conn *conn, uint32_t number)
{
	struct shm_packet packet = {.type = PACKET_WAKE};

	/* A full socket means that the peer has enough there to wake up by; a dead one is noticed
	 * elsewhere. */
	if (packet_send(conn->socket, &packet, NULL) == RMR_OK || errno == EAGAIN)
		conn->woken = number;
}

/* Wakes the peer if it sleeps; `wanted` false: only if it waits for room. */
static void wake_peer(struct shm_conn *conn, bool wanted)
{
	uint32_t number;

	/* Between what was just published and the look at the peer's number: see above. */
	atomic_thread_fence(memory_order_seq_cst);
	number = atomic_load_explicit(&conn->theirs->sleep, memory_order_relaxed);
	if (!(number & 1) || number == conn->woken)
		return;
	if (wanted || atomic_load_explicit(&conn->theirs->wants_space, memory_order_relaxed))
		send_wake(conn, number);
}

void shm_flush(struct rmr_conn *base)
{
	struct shm_conn *conn = (struct shm_conn *)base;

	if (!conn->unannounced || base->lost)
		return;
	conn->unannounced = false;
	wake_peer(conn, true);
}

static void end_for(struct shm_conn *conn, enum rmr_status status, const char *why)
{
	log_warn_limited("%s: %s; the connection ends", conn->base.peer, why);
	shm_conn_break(conn, status);
}

static void broke_the_rules(struct shm_conn *conn, const char *how)
{
	end_for(conn, RMR_PROTOCOL, how);
}

/* A message in one piece, as nearly all are: straight into a slot. */
static bool take_whole(struct shm_conn *conn, const struct ring_item *item)
{
	uint8_t *slot = recv_pool_get(&conn->base.queue->recv);

	if (!slot)
		return false;
	if (item->length > 0)
		memcpy(slot, item->payload, item->length);
	conn_deliver(&conn->base, slot, item->length);
	return true;
}

/* The beginning of a message in several. */
static bool begin_assembly(struct shm_conn *conn, uint64_t length)
{
	if (!conn->assembly)
		conn->assembly = malloc(conn->base.queue->options.recv_size);
	if (!conn->assembly) {
		log_error("%s: no memory for a message; the connection ends", conn->base.peer);
		shm_conn_break(conn, RMR_NO_MEMORY);
		return false;
	}
	conn->assembling = true;
	conn->message_length = length;
	conn->message_filled = 0;
	return true;
}

/* The end of a message: its last fragment stays in the ring until there is a slot. */
static bool end_assembly(struct shm_conn *conn, const struct ring_item *item)
{
	uint8_t *slot;

	if (conn->message_filled + item->length != conn->message_length) {
		broke_the_rules(conn, "a message that is shorter than it said");
		return false;
	}
	slot = recv_pool_get(&conn->base.queue->recv);
	if (!slot)
		return false;
	memcpy(slot, conn->assembly, conn->message_filled);
	if (item->length > 0)
		memcpy(slot + conn->message_filled, item->payload, item->length);
	conn->assembling = false;
	conn_deliver(&conn->base, slot, conn->message_length);
	return true;
}

/* A fragment of a message. False when it has to wait for a free slot, or broke the rules. */
static bool take_message(struct shm_conn *conn, const struct ring_item *item)
{
	bool first = item->flags & RING_FIRST, last = item->flags & RING_LAST;

	if (first && (conn->assembling || item->extra > conn->base.queue->options.recv_size)) {
		broke_the_rules(conn, "a message that is too long or inside another");
		return false;
	}
	if (first && last && item->length == item->extra)
		return take_whole(conn, item);
	if (first && !begin_assembly(conn, item->extra))
		return false;
	if (!conn->assembling || item->length > conn->message_length - conn->message_filled) {
		broke_the_rules(conn, "a fragment that does not belong to its message");
		return false;
	}
	if (last)
		return end_assembly(conn, item);
	memcpy(conn->assembly + conn->message_filled, item->payload, item->length);
	conn->message_filled += item->length;
	return true;
}

static bool take_immediate(struct shm_conn *conn, const struct ring_item *item)
{
	uint64_t length;

	if (item->length != sizeof(length)) {
		broke_the_rules(conn, "an immediate of the wrong size");
		return false;
	}
	if (!queue_takes_imm(conn->base.queue))
		return false;
	memcpy(&length, item->payload, sizeof(length));
	conn_deliver_imm(&conn->base, (uint32_t)item->extra, length);
	return true;
}

/* Takes what is in the ring. True when something was taken or is left: the ring is not quiet. */
static bool read_ring(struct shm_conn *conn)
{
	bool freed = false, taken = true;
	struct ring_item item;
	int found = 0;

	for (int budget = READ_BUDGET; budget > 0 && taken; budget--) {
		found = ring_reader_peek(&conn->reader, &item);
		if (found <= 0)
			break;
		taken = item.kind == RING_MESSAGE ? take_message(conn, &item)
						  : take_immediate(conn, &item);
		if (taken)
			freed |= ring_reader_advance(&conn->reader, &item);
	}
	if (found < 0)
		broke_the_rules(conn, "something in the ring that is no message");
	if (freed && !conn->base.lost && !conn->peer_gone)
		wake_peer(conn, false);
	return found > 0;
}

/* What a packet asks for. RMR_OK: go on; otherwise the connection ends with it. */
static enum rmr_status take_packet(struct shm_conn *conn, const struct shm_packet *packet,
				   int fds[PACKET_FDS])
{
	switch (packet->type) {
	case PACKET_WAKE:
		return RMR_OK;
	case PACKET_GRANT:
		return shm_take_grant(conn, packet, &fds[0]);
	case PACKET_REVOKE:
		shm_take_revoke(conn, packet->arena_id);
		return RMR_OK;
	case PACKET_BYE:
		return packet->status == RMR_ACCESS ? RMR_ACCESS : RMR_DISCONNECTED;
	default:
		return error_set(RMR_PROTOCOL, "it introduced itself again");
	}
}

/* The peer has ended the connection, or died. What waits to be done will not be; what the peer
 * wrote before is in the ring, and is delivered first. */
static void peer_is_gone(struct shm_conn *conn, enum rmr_status status)
{
	conn->peer_gone = true;
	conn->gone_status = status;
	shm_conn_cancel(conn); /* at once: works posted from now on must not overtake these */
	epoll_ctl(conn->base.queue->epoll_fd, EPOLL_CTL_DEL, conn->socket, NULL);
	if (conn->peer_pidfd >= 0)
		epoll_ctl(conn->base.queue->epoll_fd, EPOLL_CTL_DEL, conn->peer_pidfd, NULL);
}

bool shm_conn_read_socket(struct shm_conn *conn)
{
	for (int budget = SOCKET_BUDGET; budget > 0 && !conn->peer_gone; budget--) {
		struct shm_packet packet;
		int fds[PACKET_FDS];
		enum rmr_status status = packet_receive(conn->socket, &packet, fds, NULL);

		if (status == RMR_AGAIN)
			return false;
		if (status == RMR_OK)
			status = take_packet(conn, &packet, fds);
		packet_close_fds(fds);
		/* Whatever it was, the peer may have meant to wake us by it. */
		shm_conn_heat(conn);
		if (status == RMR_DISCONNECTED || status == RMR_ACCESS) {
			peer_is_gone(conn, status);
		} else if (status == RMR_PROTOCOL || status == RMR_LIMIT) {
			end_for(conn, status, error_chain());
		} else if (status != RMR_OK) {
			log_error("%s: %s; the connection ends", conn->base.peer, error_chain());
			shm_conn_break(conn, status);
		}
	}
	return !conn->peer_gone;
}

/* The socket has something, or the process of the peer has ended. */
void shm_conn_ready(struct queue_source *source, uint32_t events)
{
	struct shm_conn *conn =
		(struct shm_conn *)((char *)source - offsetof(struct shm_conn, source));
	struct pollfd process = {.fd = conn->peer_pidfd, .events = POLLIN};

	(void)events;
	shm_conn_read_socket(conn);
	if (!conn->peer_gone && poll(&process, 1, 0) > 0)
		peer_is_gone(conn, RMR_DISCONNECTED);
	shm_conn_heat(conn);
}

/* Progress on a hot connection. */
static void progress(struct shm_queue *queue, struct shm_conn *conn)
{
	bool busy = false;

	if (atomic_load_explicit(&conn->stuck, memory_order_relaxed)) {
		broke_the_rules(conn, "it did not leave our memory when a region was closed");
		return;
	}
	if (ring_reader_has(&conn->reader))
		busy = read_ring(conn);
	if (conn->base.lost)
		return;
	if (conn->peer_gone) {
		if (!ring_reader_has(&conn->reader))
			shm_conn_end(conn, conn->gone_status);
		return;
	}
	if (conn->pending_count > 0) {
		shm_conn_run_pending(conn);
		busy = true;
	}
	conn->idle = busy ? 0 : conn->idle + 1;
	if (conn->idle > IDLE_LIMIT && queue->hot_count > HOT_LIMIT)
		cool(conn);
}

/* Asks the sockets, if it is time to. */
static void look_at_sockets(struct shm_queue *queue)
{
	uint64_t now = clock_ticks();

	if (now - queue->dispatched <
	    (queue->cold_count > 0 ? queue->cold_interval : queue->hot_interval))
		return;
	queue->dispatched = now;
	queue_dispatch(&queue->base);
}

static void disarm(struct shm_queue *queue)
{
	queue->armed = false;
	list_for_each (link, &queue->hot) {
		struct shm_conn *conn = list_entry(link, struct shm_conn, hot_link);

		set_asleep(conn, false);
		atomic_store_explicit(&conn->mine->wants_space, 0, memory_order_relaxed);
	}
}

int shm_poll(struct rmr_queue *base, struct rmr_completion *completions, int max)
{
	struct shm_queue *queue = (struct shm_queue *)base;

	if (queue->armed) {
		disarm(queue);
		queue->dispatched = clock_ticks();
		queue_dispatch(base);
	} else if (++queue->polls % POLLS_BETWEEN_LOOKS == 0) {
		look_at_sockets(queue);
	}
	list_for_each_safe (link, &queue->hot)
		progress(queue, list_entry(link, struct shm_conn, hot_link));
	if (completion_ring_is_empty(&base->ring))
		look_at_sockets(queue); /* there is time for it */
	return queue_pop(base, completions, max);
}

/* Could a poll do something for this connection now? A message that waits for a slot does not
 * count: only rmr_recv_release helps it. */
static bool has_work(struct shm_conn *conn)
{
	struct ring_item item;
	int found = ring_reader_peek(&conn->reader, &item);

	if (found < 0 || (found > 0 && (item.kind == RING_IMMEDIATE || !(item.flags & RING_LAST) ||
					!recv_pool_is_empty(&conn->base.queue->recv))))
		return true;
	if (conn->peer_gone)
		return found == 0;
	return conn->pending_count > 0 && ring_writer_room(&conn->writer, 1) > 0;
}

enum rmr_status shm_arm(struct rmr_queue *base)
{
	struct shm_queue *queue = (struct shm_queue *)base;

	queue->armed = true;
	list_for_each (link, &queue->hot) {
		struct shm_conn *conn = list_entry(link, struct shm_conn, hot_link);

		atomic_store_explicit(&conn->mine->wants_space, conn->pending_count > 0,
				      memory_order_relaxed);
		set_asleep(conn, true);
	}
	/* Between going to sleep and the last look at the rings: see above. */
	atomic_thread_fence(memory_order_seq_cst);
	if (!completion_ring_is_empty(&base->ring))
		return RMR_AGAIN;
	list_for_each (link, &queue->hot) {
		if (has_work(list_entry(link, struct shm_conn, hot_link)))
			return RMR_AGAIN;
	}
	return RMR_OK;
}

void shm_recv_release(struct rmr_queue *base, void *data)
{
	recv_pool_put(&base->recv, data);
}

enum rmr_status shm_queue_init(struct rmr_queue *base)
{
	struct shm_queue *queue = (struct shm_queue *)base;

	list_init(&queue->hot);
	queue->cold_interval = (uint64_t)(COLD_INTERVAL_US * clock_ticks_per_us());
	queue->hot_interval = (uint64_t)(HOT_INTERVAL_US * clock_ticks_per_us());
	return RMR_OK;
}
