/*
 * Long READs: the initiator lends the memory that the data shall go to, and the target sends it
 * straight out of its region. No byte is copied by us.
 *
 *	initiator				target
 *	fi_recv(piece of memory)
 *	READ_PUSH n, region           ------>	checks, pins the region
 *	the data, as one message      <======	fi_sendmsg(region), FI_DELIVERY_COMPLETE
 *	n is done				placed: unpins the region
 *
 * The target carries out READs in order, so the first message is for the first piece that was lent.
 *
 * Why not fi_read, or fi_write by the target? With these one side's memory is open to the other,
 * and libfabric's software providers look at a key when a transfer begins, not while it lasts: who
 * closes the memory is not told when the last transfer ends, and a peer that lies can go on writing
 * into what the program has back. A receive takes one message, and when it is done, it is done.
 *
 * What is under way must be cut off when the connection ends or a region is closed: by closing the
 * endpoint that it moves by, for libfabric knows no other way. So it does not move by the endpoints
 * of the queues but by a pair of the connection's own, the doors (door.c). Until they are open, and
 * where they cannot be opened, long READs go in packets. Only who has called lends: a READ by the
 * other side goes in packets as well.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/ofi/internal.h"

/* ------------------------------------------------------------------------------------------
 * Asking for doors
 */

/* Target: the peer wants a door. It does without if there is none. */
static void offer_door(struct ofi_conn *conn)
{
	uint16_t port;

	if (door_listen(ofi_queue_of(conn), &port) == RMR_OK &&
	    control_say(conn, GREETING_DOOR, port))
		door_expect(conn);
	else
		log_info("%s: connection to %s: no door for long READs: %s",
			 conn_device_name(&conn->stream), conn->stream.base.peer,
			 rmr_error_message());
}

void lend_take_word(struct ofi_conn *conn, uint32_t port)
{
	bool can = ofi_device_of(ofi_queue_of(conn))->mode & GREETING_PUSHED;

	/* Who was called is asked, once; who has called is answered, if it has asked, once. */
	if (!conn->called && port == 0 && !conn->asked && can) {
		conn->asked = true;
		offer_door(conn);
	} else if (conn->called && conn->asked && port - 1 < UINT16_MAX && !conn->door) {
		if (!list_is_empty(&conn->opening_link) &&
		    door_call(conn, (uint16_t)port) != RMR_OK) {
			log_info("%s: connection to %s: long READs go in packets: %s",
				 conn_device_name(&conn->stream), conn->stream.base.peer,
				 rmr_error_message());
			list_remove(&conn->opening_link);
			conn->lends = false;
			door_close(conn);
		}
	} else {
		conn_violation(&conn->stream, "a door that nobody asked for");
	}
}

/* Is the door open? If there never was one, asks for it. */
static bool has_door(struct ofi_conn *conn)
{
	if (!conn->lends)
		return false;
	if (!conn->asked) {
		conn->asked = true;
		conn->lends = control_say(conn, GREETING_DOOR, 0);
		if (conn->lends)
			door_expect(conn);
	}
	return conn->door && conn->door->is_open;
}

/* ------------------------------------------------------------------------------------------
 * The initiator
 */

/* A free lease; NULL when all are taken. */
static struct ofi_lease *find_lease(struct ofi_queue *queue)
{
	if (!queue->leases)
		queue->leases = calloc(OFI_LEASES, sizeof(*queue->leases));
	for (unsigned i = 0; queue->leases && i < OFI_LEASES; i++) {
		if (!queue->leases[i].conn)
			return &queue->leases[i];
	}
	return NULL;
}

bool lend_memory(struct tcp_conn *base, struct tcp_work *work, uint32_t sequence)
{
	struct ofi_conn *conn = (struct ofi_conn *)base;
	struct ofi_queue *queue = ofi_queue_of(conn);
	struct ofi_lease *lease;

	if (!has_door(conn) ||
	    work->length > ofi_device_of(queue)->door_info->ep_attr->max_msg_size)
		return false;
	lease = find_lease(queue);
	/* A region that is closed already: the stream's way says so, when data comes. */
	if (!lease || !region_pin(work->local_slot, work->local_key))
		return false;
	lease->context.kind = OFI_LEASE;
	if (fi_recv(conn->door->endpoint, work->local, work->length, NULL, FI_ADDR_UNSPEC,
		    &lease->context) != 0) {
		region_unpin(work->local_slot);
		return false;
	}
	door_use(queue, conn->door);
	queue->landing++;
	lease->conn = conn;
	lease->sequence = sequence;
	lease->length = work->length;
	lease->slot = work->local_slot;
	work->lease = (uint32_t)(lease - queue->leases);
	return true;
}

void lend_take_back(struct tcp_conn *base, const struct tcp_work *work)
{
	struct ofi_conn *conn = (struct ofi_conn *)base;
	struct ofi_queue *queue = ofi_queue_of(conn);
	struct ofi_lease *lease = &queue->leases[work->lease];

	if (conn->door)
		door_unuse(queue, conn->door);
	region_unpin(lease->slot);
	lease->conn = NULL;
	queue->landing--;
}

void lend_landed(struct ofi_lease *lease, size_t length, ssize_t code)
{
	struct tcp_conn *conn = &lease->conn->stream;

	if (!conn_is_up(lease->conn))
		return; /* it is taken back with its work */
	if (code == FI_ETRUNC || (code == 0 && length != lease->length)) {
		conn_violation(conn, "too %s bytes by its door, %zu were asked for",
			       code ? "many" : "few", lease->length);
		return;
	}
	if (code != 0) {
		/* It has closed its door, and is about to hang up, or dead. */
		log_info("%s: connection to %s: %s", conn_device_name(conn), conn->base.peer,
			 library_text(code));
		conn_fail(conn, RMR_DISCONNECTED);
		return;
	}
	answer_landed(conn, lease->sequence);
	receive_settle(conn, conn->messages_done); /* there is room for more */
}

/* ------------------------------------------------------------------------------------------
 * The target
 */

static ssize_t send_by_door(struct ofi_door *door, const struct tcp_response *response,
			    struct ofi_push *push)
{
	struct iovec from = {.iov_base = response->slot->address + response->offset,
			     .iov_len = response->length};
	struct fi_msg message = {.msg_iov = &from, .iov_count = 1, .context = &push->context};
	ssize_t code;

	push->context.kind = OFI_PUSH;
	push->conn = door->conn;
	as_adapter_begin();
	code = fi_sendmsg(door->endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
	as_adapter_end();
	return code;
}

bool lend_push(struct tcp_conn *base, const struct tcp_response *response)
{
	struct ofi_conn *conn = (struct ofi_conn *)base;
	struct ofi_door *door = conn->door;
	ssize_t code = -FI_EAGAIN;
	unsigned at = 0;

	while (door && at < OFI_PUSHES_MAX && door->pushes[at].slot)
		at++;
	/* If not now, then with all that are blocked, again and again. */
	if (door && door->is_open && at < OFI_PUSHES_MAX)
		code = send_by_door(door, response, &door->pushes[at]);
	/* Who has no door coming would wait for ever. */
	if (!door && list_is_empty(&conn->opening_link))
		code = -FI_ENOTCONN;
	if (code == 0) {
		door->pushes[at].slot = response->slot;
		door_use(ofi_queue_of(conn), door);
		return true;
	}
	region_unpin(response->slot);
	if (code != -FI_EAGAIN) {
		log_info("%s: connection to %s: %s", conn_device_name(base), base->base.peer,
			 library_text(code));
		conn_fail(base, RMR_DISCONNECTED);
	}
	return false;
}

/* The region is no longer touched on behalf of the push. */
static void drop_push(struct ofi_push *push)
{
	region_unpin(push->slot);
	push->slot = NULL;
}

void lend_pushed(struct ofi_push *push, ssize_t code)
{
	struct ofi_conn *conn = push->conn;

	drop_push(push);
	door_unuse(ofi_queue_of(conn), conn->door);
	conn->stream.pushing--;
	if (!conn_is_up(conn))
		return;
	if (code != 0) {
		log_info("%s: connection to %s: %s", conn_device_name(&conn->stream),
			 conn->stream.base.peer, library_text(code));
		conn_fail(&conn->stream, RMR_DISCONNECTED);
		return;
	}
	if (conn->stream.transmit.blocked)
		transmit_unblock(&conn->stream);
	else
		transmit_ready(&conn->stream);
}

/* ------------------------------------------------------------------------------------------
 * The end of both
 */

/* Data that is here already counts, although the connection has come to its end. */
static void take_landed(struct ofi_conn *conn)
{
	struct fi_cq_msg_entry entry;

	while (fi_cq_read(conn->door->cq, &entry, 1) > 0) {
		const struct ofi_lease *lease = entry.op_context;

		if (lease->context.kind == OFI_LEASE && lease->conn == conn &&
		    entry.len == lease->length)
			answer_landed(&conn->stream, lease->sequence);
	}
}

void lend_recall(struct tcp_conn *base)
{
	struct ofi_conn *conn = (struct ofi_conn *)base;

	if (conn->door && base->lent > 0)
		take_landed(conn);
	door_close(conn);
}

/* Does the connection push something out of the region? */
static bool pushes_from(const struct ofi_conn *conn, const struct region_slot *slot)
{
	for (unsigned i = 0; conn->door && i < OFI_PUSHES_MAX; i++) {
		if (conn->door->pushes[i].slot == slot)
			return true;
	}
	return false;
}

/* Ends what still uses a region, with the connections that do so: our own READs at once, those of
 * peers when they have taken too long. */
static void evict(struct ofi_queue *queue, const struct region_slot *slot, bool impatient)
{
	for (unsigned i = 0; queue->leases && i < OFI_LEASES; i++) {
		struct ofi_lease *lease = &queue->leases[i];

		if (lease->conn && lease->slot == slot && conn_is_up(lease->conn))
			conn_fail_at(&lease->conn->stream, lease->sequence, RMR_ACCESS);
	}
	for (uint32_t i = 0; impatient && i < queue->conn_capacity; i++) {
		if (queue->conns[i] && pushes_from(queue->conns[i], slot))
			conn_fail(&queue->conns[i]->stream, RMR_DISCONNECTED);
	}
}

void ofi_region_fini(struct rmr_region *base)
{
	struct tcp_region *region = (struct tcp_region *)base;
	struct tcp_helper *helper = &tcp_device_of(base->device)->helper;
	uint64_t deadline_ns = clock_now_ns() + OFI_PUSH_PATIENCE_NS;

	region_shut(region);
	while (region_is_used(region)) {
		bool impatient = clock_passed(deadline_ns);

		pthread_mutex_lock(&helper->lock);
		list_for_each (link, &helper->queues) {
			struct tcp_queue *queue = list_entry(link, struct tcp_queue, helper_link);

			queue_lock(queue);
			evict((struct ofi_queue *)queue, region->slot, impatient);
			queue_unlock(queue);
		}
		pthread_mutex_unlock(&helper->lock);
		usleep(OFI_PUSH_LOOK_US);
	}
	region_free(region);
}
