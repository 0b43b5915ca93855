/*
 * Doors: a pair of connected endpoints beside those of the queues, by which the data of one
 * connection's long READs moves (lend.c). They are there to be closed: that is the only way to make
 * libfabric let go of memory.
 *
 *	initiator, who has called		target, who was called
 *	asks for a door               ----->	its queue listens, if it does not yet
 *	                              <-----	the port
 *	door_call: connects there, and  ---->	door_attend: whose token is it? accepts
 *	shows the token of the connection
 *	door_attend: open			door_attend: open
 *
 * The words go by the connection's socket (control.c), and so does the address: it is the socket's,
 * so that nobody can be sent elsewhere. Until the doors are open long READs go in packets, and so
 * they do for ever where that fails.
 *
 * Doors are of the type that is connected (FI_EP_MSG), not of the queues' (FI_EP_RDM): libfabric's
 * ofi_rxm, which makes the one out of the other, takes 17 MiB and more for each, and forgets to
 * take a closed one out of what is slept upon. So there are doors where the queues' provider is a
 * layer on such endpoints that need no registered memory: over TCP.
 *
 * A queue has its own instance of libfabric's fabric for them: libfabric makes progress for all of
 * a fabric at once, also for what is under other queues' locks. And the listener stays as long as
 * the queue: when it is closed, libfabric 1.17 forgets those who have knocked but said nothing yet,
 * and falls over them later.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/ofi/internal.h"

#define TOKEN_SIZE sizeof(uint64_t)

static enum rmr_status failed(const char *what, ssize_t code)
{
	return error_set(RMR_SYSTEM, "libfabric: %s: %s", what, library_text(code));
}

/* ------------------------------------------------------------------------------------------
 * The device's part
 */

static struct fi_info *make_hints(const struct ofi_device *device)
{
	const struct fi_info *like = device->info;
	struct fi_info *hints = device->library->dupinfo(NULL);
	const char *name = like->fabric_attr->prov_name;

	if (!hints)
		return NULL;
	hints->caps = FI_MSG;
	hints->addr_format = like->addr_format;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->tx_attr->size = OFI_PUSHES_MAX;
	hints->rx_attr->size = OFI_LEASES;
	hints->fabric_attr->prov_name = strndup(name, strcspn(name, ";"));
	hints->src_addr = malloc(like->src_addrlen);
	if (hints->src_addr) {
		memcpy(hints->src_addr, like->src_addr, like->src_addrlen);
		hints->src_addrlen = like->src_addrlen;
	}
	return hints;
}

void door_prepare(struct ofi_device *device)
{
	const char *chosen = getenv("REMORA_OFI_LONG_READS");
	struct fi_info *hints;
	int code;

	if (!strstr(device->info->fabric_attr->prov_name, ";ofi_rxm") || !device->info->src_addr ||
	    (chosen && strcmp(chosen, "packets") == 0))
		return;
	hints = make_hints(device);
	if (!hints)
		return;
	code = device->library->getinfo(OFI_API_VERSION, NULL, NULL, 0, hints, &device->door_info);
	device->library->freeinfo(hints);
	if (code == 0)
		device->mode |= GREETING_PUSHED;
	else
		log_debug("%s: no doors: %s", device->stream.base.info.name, library_text(code));
}

void door_release(struct ofi_device *device)
{
	if (device->door_info)
		device->library->freeinfo(device->door_info);
}

/* ------------------------------------------------------------------------------------------
 * The queue's part
 */

static enum rmr_status open_station(struct ofi_queue *queue)
{
	struct ofi_device *device = ofi_device_of(queue);
	struct ofi_station *station = &queue->station;
	struct fi_eq_attr attr = {.wait_obj = FI_WAIT_NONE};
	int code;

	if (station->eq)
		return RMR_OK;
	code = device->library->fabric(device->door_info->fabric_attr, &station->fabric, NULL);
	if (code != 0)
		return failed("opening a fabric", code);
	code = fi_domain(station->fabric, device->door_info, &station->domain, NULL);
	if (code == 0)
		code = fi_eq_open(station->fabric, &attr, &station->eq, NULL);
	if (code == 0)
		return RMR_OK;
	door_close_station(queue);
	return failed("opening a domain", code);
}

enum rmr_status door_listen(struct ofi_queue *queue, uint16_t *port)
{
	struct ofi_station *station = &queue->station;
	struct sockaddr_storage address;
	size_t length = sizeof(address);
	enum rmr_status status = open_station(queue);
	int code = 0;

	if (status != RMR_OK)
		return status;
	if (!station->listener) {
		code = fi_passive_ep(station->fabric, ofi_device_of(queue)->door_info,
				     &station->listener, NULL);
		if (code == 0)
			code = fi_pep_bind(station->listener, &station->eq->fid, 0);
		if (code == 0)
			code = fi_listen(station->listener);
	}
	if (code == 0)
		code = fi_getname(&station->listener->fid, &address, &length);
	if (code != 0)
		return failed("listening", code);
	/* At the same place in both families. */
	*port = ntohs(((struct sockaddr_in *)&address)->sin_port);
	return RMR_OK;
}

void door_close_station(struct ofi_queue *queue)
{
	struct ofi_station *station = &queue->station;

	if (station->listener)
		fi_close(&station->listener->fid);
	if (station->eq)
		fi_close(&station->eq->fid);
	if (station->domain)
		fi_close(&station->domain->fid);
	if (station->fabric)
		fi_close(&station->fabric->fid);
	*station = (struct ofi_station){0};
}

/* ------------------------------------------------------------------------------------------
 * One door
 */

static void unwatch(struct ofi_queue *queue, struct ofi_door *door)
{
	if (door->watched)
		(void)epoll_ctl(queue->stream.sockets_fd, EPOLL_CTL_DEL, door->cq_fd, NULL);
	door->watched = false;
}

void door_close(struct ofi_conn *conn)
{
	struct ofi_door *door = conn->door;

	if (!door)
		return;
	unwatch(ofi_queue_of(conn), door);
	list_remove(&door->link);
	if (door->endpoint)
		fi_close(&door->endpoint->fid);
	if (door->cq)
		fi_close(&door->cq->fid);
	/* What it has completed, and nobody has taken in, is gone with it. */
	for (unsigned i = 0; i < OFI_PUSHES_MAX; i++) {
		if (door->pushes[i].slot)
			region_unpin(door->pushes[i].slot);
	}
	free(door);
	conn->door = NULL;
}

/* Makes the door, whose info says where it leads to. */
static enum rmr_status make_door(struct ofi_conn *conn, struct fi_info *info)
{
	struct ofi_queue *queue = ofi_queue_of(conn);
	struct ofi_station *station = &queue->station;
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD, .size = 2 * OFI_LEASES};
	struct ofi_door *door = calloc(1, sizeof(*door));
	int code;

	if (!door)
		return error_set(RMR_NO_MEMORY, "no memory for an endpoint");
	list_init(&door->link);
	door->conn = conn;
	conn->door = door;
	code = fi_cq_open(station->domain, &attr, &door->cq, NULL);
	if (code == 0)
		code = fi_control(&door->cq->fid, FI_GETWAIT, &door->cq_fd);
	if (code == 0)
		code = fi_endpoint(station->domain, info, &door->endpoint, NULL);
	if (code == 0)
		code = fi_ep_bind(door->endpoint, &station->eq->fid, 0);
	if (code == 0)
		code = fi_ep_bind(door->endpoint, &door->cq->fid, FI_TRANSMIT | FI_RECV);
	if (code == 0)
		code = fi_enable(door->endpoint);
	if (code == 0)
		return RMR_OK;
	door_close(conn);
	return failed("opening an endpoint", code);
}

void door_expect(struct ofi_conn *conn)
{
	struct ofi_queue *queue = ofi_queue_of(conn);

	conn->door_ns = clock_deadline_ns(conn->stream.base.options.dead_after_ms);
	list_add_tail(&queue->opening, &conn->opening_link);
	helper_want_ticks(&queue->stream);
}

enum rmr_status door_call(struct ofi_conn *conn, uint16_t port)
{
	struct ofi_queue *queue = ofi_queue_of(conn);
	const struct ofi_device *device = ofi_device_of(queue);
	uint64_t token = htole64(conn->peer_token);
	struct ofi_address address;
	struct fi_info *info;
	int code = -FI_ENOMEM;
	enum rmr_status status = address_peer(queue, conn->stream.fd, port, &address);

	if (status == RMR_OK)
		status = open_station(queue);
	if (status != RMR_OK)
		return status;
	info = device->library->dupinfo(device->door_info);
	if (info) {
		free(info->src_addr); /* whichever leads there */
		info->src_addr = NULL;
		info->src_addrlen = 0;
		info->dest_addr = malloc(address.length);
	}
	if (info && info->dest_addr) {
		memcpy(info->dest_addr, address.bytes, address.length);
		info->dest_addrlen = address.length;
		status = make_door(conn, info);
		code = status == RMR_OK
			       ? fi_connect(conn->door->endpoint, address.bytes, &token, TOKEN_SIZE)
			       : 0;
	}
	if (info)
		device->library->freeinfo(info);
	return code == 0 ? status : failed("connecting", code);
}

/* ------------------------------------------------------------------------------------------
 * What happens to them
 */

/* Somebody knocks, and has to show the token of a connection that expects it. */
static void take_caller(struct ofi_queue *queue, struct fi_info *info, const uint8_t *data,
			size_t length)
{
	struct ofi_conn *conn = NULL;
	uint64_t token;

	if (length >= TOKEN_SIZE) {
		memcpy(&token, data, TOKEN_SIZE);
		conn = conn_by_token(queue, le64toh(token));
	}
	if (!conn || conn->called || conn->door || list_is_empty(&conn->opening_link) ||
	    make_door(conn, info) != RMR_OK)
		(void)fi_reject(queue->station.listener, info->handle, NULL, 0);
	else if (fi_accept(conn->door->endpoint, NULL, 0) != 0)
		door_close(conn);
	ofi_device_of(queue)->library->freeinfo(info);
}

static struct ofi_conn *conn_of_endpoint(struct ofi_queue *queue, const struct fid *fid)
{
	for (uint32_t i = 0; i < queue->conn_capacity; i++) {
		struct ofi_conn *conn = queue->conns[i];

		if (conn && conn->door && conn->door->endpoint && &conn->door->endpoint->fid == fid)
			return conn;
	}
	return NULL;
}

/* There will be no door, or no more. Whoever needs it now has lost his connection. */
static void give_up(struct ofi_conn *conn, const char *why)
{
	bool needed = conn->stream.lent > 0 || conn->stream.pushing > 0;

	log_info("%s: connection to %s: long READs go in packets: %s",
		 conn_device_name(&conn->stream), conn->stream.base.peer, why);
	conn->lends = false;
	list_remove(&conn->opening_link);
	if (needed)
		conn_fail(&conn->stream, RMR_DISCONNECTED);
	else
		door_close(conn);
}

/* One event. Returns whether there was one. */
static bool take_event(struct ofi_queue *queue)
{
	_Alignas(8) uint8_t bytes[sizeof(struct fi_eq_cm_entry) + 64];
	const struct fi_eq_cm_entry *entry = (const struct fi_eq_cm_entry *)bytes;
	struct fi_eq_err_entry error = {0};
	struct ofi_conn *conn;
	uint32_t kind;
	ssize_t got;

	as_adapter_begin(); /* it makes progress for open doors as well */
	got = fi_eq_read(queue->station.eq, &kind, bytes, sizeof(bytes), 0);
	as_adapter_end();
	if (got == -FI_EAVAIL) {
		(void)fi_eq_readerr(queue->station.eq, &error, 0);
		conn = conn_of_endpoint(queue, error.fid);
		if (conn)
			give_up(conn, library_text(error.err));
		return true;
	}
	if (got < (ssize_t)sizeof(*entry))
		return false;
	if (kind == FI_CONNREQ) {
		take_caller(queue, entry->info, entry->data, (size_t)got - sizeof(*entry));
		return true;
	}
	conn = conn_of_endpoint(queue, entry->fid);
	if (conn && kind == FI_CONNECTED) {
		conn->door->is_open = true;
		list_remove(&conn->opening_link);
	} else if (conn) {
		give_up(conn, "the peer has closed its door");
	}
	return true;
}

void door_attend(struct ofi_queue *queue)
{
	struct ofi_conn *first;

	while (queue->station.eq && take_event(queue))
		;
	if (list_is_empty(&queue->opening))
		return;
	first = list_first_entry(&queue->opening, struct ofi_conn, opening_link);
	if (clock_passed(first->door_ns))
		give_up(first, "the other end cannot be reached; is there a firewall?");
}

/* ------------------------------------------------------------------------------------------
 * Who looks at them: nobody, while there is nothing to come. In use, a door is polled with the
 * queue's endpoint and slept upon with it. That is put right when somebody is about to sleep; until
 * then the helper looks after the queue.
 */

void door_use(struct ofi_queue *queue, struct ofi_door *door)
{
	if (door->uses++ > 0)
		return;
	list_add_tail(&queue->busy_doors, &door->link);
	helper_want_ticks(&queue->stream);
}

void door_unuse(struct ofi_queue *queue, struct ofi_door *door)
{
	if (--door->uses > 0)
		return;
	list_remove(&door->link);
	unwatch(queue, door);
}

void door_watch_all(struct ofi_queue *queue)
{
	list_for_each (link, &queue->busy_doors) {
		struct ofi_door *door = list_entry(link, struct ofi_door, link);
		struct epoll_event event = {.events = EPOLLIN};

		/* A descriptor that has been readable may stay so: libfabric 1.17 has no
		 * fi_trywait for it. Who is woken for nothing again and again leaves the door
		 * to the helper's ticks. */
		if (++door->wakes > OFI_DOOR_WAKES)
			unwatch(queue, door);
		else if (!door->watched)
			door->watched = epoll_ctl(queue->stream.sockets_fd, EPOLL_CTL_ADD,
						  door->cq_fd, &event) == 0;
	}
}

bool door_needs_polls(const struct ofi_queue *queue)
{
	list_for_each (link, &queue->busy_doors) {
		if (!list_entry(link, struct ofi_door, link)->watched)
			return true;
	}
	return !list_is_empty(&queue->opening);
}
