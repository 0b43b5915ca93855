/*
 * Greeting: who calls, and is it one of us? From a connection, called or accepted, to the peer's.
 *
 * What can be said by the introduction is said before there is a connection: a stranger is turned
 * down with a reason. The rest is in the hello: where the ring is, and the memory. The caller says
 * hello first, and gets one back when the listener has taken it in. Nobody says it before nothing
 * is left of the connection before, for with it the ring is the peer's to write.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "rdma/mesh/internal.h"

/* Callers taken at a time. */
#define CALLERS_MAX 64
#define LOOK_MS	    1
/* When all are there, one that comes back early may wait a little. */
#define LOOK_SELDOM_MS 20

void mesh_introduce(const struct rmr_mesh *mesh, int to, struct mesh_introduction *introduction)
{
	*introduction = (struct mesh_introduction){
		.magic = MESH_MAGIC,
		.version = MESH_VERSION,
		.hosts = (uint16_t)mesh->count,
		.from = (uint16_t)mesh->options.id,
		.to = (uint16_t)to,
		.thread = (uint32_t)mesh->options.thread,
		.depth = mesh->depth,
		.message_size = (uint32_t)mesh->options.message_size,
	};
}

const char *mesh_find_fault(const struct rmr_mesh *mesh, const void *data, size_t length, int from,
			    char text[MESH_REASON_SIZE])
{
	struct mesh_introduction theirs, ours;

	if (length < sizeof(theirs))
		return MESH_REFUSAL "this is a mesh, and you are something else";
	memcpy(&theirs, data, sizeof(theirs));
	mesh_introduce(mesh, 0, &ours);
#define DIFFER(field, what)                                                                        \
	do {                                                                                       \
		if (theirs.field == ours.field)                                                    \
			break;                                                                     \
		snprintf(text, MESH_REASON_SIZE, MESH_REFUSAL what " %u here, %u there",           \
			 (unsigned)ours.field, (unsigned)theirs.field);                            \
		return text;                                                                       \
	} while (0)
	if (theirs.magic != ours.magic)
		return MESH_REFUSAL "this is a mesh, and you are something else";
	DIFFER(version, "version of the protocol");
	DIFFER(hosts, "number of hosts");
	DIFFER(depth, "depth");
	DIFFER(message_size, "message size");
	DIFFER(thread, "thread");
#undef DIFFER
	if (theirs.to != mesh->options.id) {
		snprintf(text, MESH_REASON_SIZE, MESH_REFUSAL "id %d here, %u was called",
			 mesh->options.id, theirs.to);
		return text;
	}
	/* Of two the higher id calls. */
	if (theirs.from >= mesh->count ||
	    (from >= 0 ? theirs.from != from : theirs.from <= mesh->options.id)) {
		snprintf(text, MESH_REASON_SIZE, MESH_REFUSAL "id %d has nothing to say to %d",
			 theirs.from, mesh->options.id);
		return text;
	}
	return NULL;
}

static void drop_caller(struct mesh_peer *peer, const char *reason)
{
	bool is_ours = peer->caller.is_ours;

	log_info("mesh: %d and %d: no connection: %s", peer->mesh->options.id, peer->id, reason);
	if (peer->state == MESH_DOWN)
		snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
	mesh_link_close(&peer->caller);
	peer->mesh->callers--;
	if (is_ours)
		mesh_dial(peer, peer->mesh->options.redial_ms);
}

static void take_caller(struct mesh_peer *peer, struct mesh_link *link)
{
	struct rmr_mesh *mesh = peer->mesh;

	if (peer->caller.conn)
		drop_caller(peer, "it called again");
	link->deadline_ns = clock_deadline_ns(mesh->options.dead_after_ms);
	peer->caller = *link;
	mesh->callers++;
	if (mesh_watch(mesh, rmr_queue_fd(peer->caller.queue), peer) != RMR_OK)
		drop_caller(peer, error_chain());
}

/* Tells whom it may concern: who waits for this peer, and wonders. */
static void turn_down(struct rmr_mesh *mesh, struct rmr_request *request, const char *fault)
{
	struct mesh_introduction theirs;
	const void *data;
	size_t length;

	log_warn_limited("mesh: %d turns %s down: %s", mesh->options.id, rmr_request_peer(request),
			 fault);
	data = rmr_request_private(request, &length);
	if (length >= sizeof(theirs)) {
		memcpy(&theirs, data, sizeof(theirs));
		if (theirs.magic == MESH_MAGIC && theirs.from < mesh->count &&
		    mesh->peers[theirs.from].state == MESH_DOWN)
			snprintf(mesh->peers[theirs.from].reason, MESH_REASON_SIZE,
				 "turned down: %s", fault);
	}
	rmr_reject(request, fault);
}

static void accept_request(struct rmr_mesh *mesh, struct rmr_request *request)
{
	struct mesh_introduction theirs, ours;
	struct rmr_conn_options options;
	struct mesh_link link = {0};
	char text[MESH_REASON_SIZE];
	const char *fault;
	const void *data;
	size_t length;

	data = rmr_request_private(request, &length);
	fault = mesh_find_fault(mesh, data, length, -1, text);
	if (fault) {
		turn_down(mesh, request, fault);
		return;
	}
	memcpy(&theirs, data, sizeof(theirs));
	mesh_introduce(mesh, theirs.from, &ours);
	mesh_conn_options(mesh, &ours, &options);
	if (mesh_open_queue(mesh, &link.queue) != RMR_OK) {
		log_warn_limited("mesh: %d turns %d down: %s", mesh->options.id, theirs.from,
				 error_chain());
		rmr_reject(request, "no queue for another connection");
		return;
	}
	if (rmr_accept(request, link.queue, &options, &link.conn) != RMR_OK) {
		log_warn_limited("mesh: %s", rmr_error_message());
		rmr_queue_close(link.queue);
		return;
	}
	take_caller(&mesh->peers[theirs.from], &link);
}

/* Gives the peer its ring, and says hello. RMR_AGAIN: later. */
static enum rmr_status say_hello(struct mesh_peer *peer)
{
	struct rmr_mesh *mesh = peer->mesh;
	struct mesh_link *link = &peer->caller;
	struct mesh_hello *hello = peer->hello;
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_UNSIGNALED,
				.source = hello,
				.length = sizeof(*hello),
				.region = mesh->local_region};
	enum rmr_status status = RMR_OK;
	int taken;

	*hello = (struct mesh_hello){.magic = MESH_MAGIC,
				     .has_memory = mesh->memory_region != NULL,
				     .memory_address = (uintptr_t)mesh->options.memory,
				     .memory_size = mesh->options.memory_size};
	if (!link->region)
		status = rmr_region_open(mesh->device, peer->ring, mesh->depth * mesh->slot_size,
					 RMR_WRITE, &link->region);
	if (status == RMR_OK)
		status = rmr_region_export(link->region, link->conn, &hello->ring);
	if (status == RMR_OK && mesh->memory_region)
		status = rmr_region_export(mesh->memory_region, link->conn, &hello->memory);
	if (status != RMR_OK)
		return status;
	taken = rmr_post(link->conn, &work, 1);
	if (taken < 0)
		return (enum rmr_status)taken;
	link->said = taken == 1;
	return link->said ? RMR_OK : RMR_AGAIN;
}

static enum rmr_status hear_hello(struct mesh_peer *peer, const void *data, size_t length)
{
	struct rmr_mesh *mesh = peer->mesh;
	struct mesh_link *link = &peer->caller;
	struct mesh_hello hello;
	enum rmr_status status;

	if (length != sizeof(hello))
		return error_set(RMR_PROTOCOL, "a hello of %zu bytes", length);
	memcpy(&hello, data, sizeof(hello));
	if (hello.magic != MESH_MAGIC || hello.has_memory > 1)
		return error_set(RMR_PROTOCOL, "that is no hello");
	link->heard = true;
	status = rmr_remote_open(link->conn, &hello.ring, &link->ring);
	/* It said hello, perhaps more, and left: what it said is heard, then its end. */
	if (status == RMR_DISCONNECTED)
		return RMR_OK;
	if (status != RMR_OK)
		return error_context(status, "the peer's ring");
	if (rmr_remote_length(link->ring) < mesh->depth * mesh->slot_size ||
	    !(rmr_remote_rights(link->ring) & RMR_WRITE))
		return error_set(RMR_PROTOCOL,
				 "the peer's ring is too short, or not to be written");
	if (hello.has_memory) {
		status = rmr_remote_open(link->conn, &hello.memory, &link->memory);
		if (status == RMR_DISCONNECTED)
			return RMR_OK;
		if (status != RMR_OK)
			return error_context(status, "the peer's memory");
		if (rmr_remote_length(link->memory) < hello.memory_size ||
		    hello.memory_address + hello.memory_size < hello.memory_address)
			return error_set(RMR_PROTOCOL, "the peer's memory is not as it says");
		link->memory_address = hello.memory_address;
		link->memory_size = hello.memory_size;
	}
	return RMR_OK;
}

/* The peer is there. */
static void take_in(struct mesh_peer *peer)
{
	struct rmr_mesh *mesh = peer->mesh;

	peer->link = peer->caller;
	peer->caller = (struct mesh_link){0};
	mesh->callers--;
	peer->sent = peer->credited = peer->ops = peer->ops_done = 0;
	peer->arrived = peer->consumed = peer->told = 0;
	peer->credits_underway = 0;
	peer->unsignaled = 0;
	peer->failure = RMR_OK;
	peer->is_starved = peer->is_closing = false;
	peer->state = MESH_UP;
	peer->is_up_due = !mesh->is_connecting;
	peer->is_told = false;
	peer->reason[0] = 0;
	mesh->up_count++;
	log_info("mesh: %d and %d are connected", mesh->options.id, peer->id);
}

/* What the caller's connection has to say, up to its hello: what follows is for take.c. */
static enum rmr_status listen_to(struct mesh_peer *peer)
{
	struct mesh_link *link = &peer->caller;
	enum rmr_status status = RMR_OK;
	struct rmr_completion c;

	while (!link->heard && status == RMR_OK && rmr_poll(link->queue, &c, 1) == 1) {
		if (c.op == RMR_OP_DISCONNECT) {
			status = error_set(RMR_DISCONNECTED, "it left before it said hello");
		} else if (c.op == RMR_OP_RECV && c.status == RMR_OK) {
			status = hear_hello(peer, c.data, c.length);
			rmr_recv_release(link->queue, c.data);
		} else if (c.op == RMR_OP_RECV_IMM) {
			status = error_set(RMR_PROTOCOL, "it said something before hello");
		}
	}
	return status;
}

static void greet(struct mesh_peer *peer)
{
	struct mesh_link *link = &peer->caller;
	enum rmr_status status = listen_to(peer);

	if (status == RMR_OK && link->heard && peer->state == MESH_UP)
		mesh_lose(peer, RMR_DISCONNECTED, "it came back by another connection");
	if (status == RMR_OK && peer->state == MESH_DOWN && !link->said &&
	    (link->is_ours || link->heard))
		status = say_hello(peer);
	if (status == RMR_AGAIN)
		status = RMR_OK;
	if (status == RMR_OK && peer->state == MESH_DOWN && link->said && link->heard)
		take_in(peer);
	else if (status != RMR_OK)
		drop_caller(peer, error_chain());
	else if (!link->heard && clock_passed(link->deadline_ns))
		drop_caller(peer, "it does not say hello");
}

static void take_dialed(struct rmr_mesh *mesh)
{
	struct mesh_link link;
	uint64_t count;

	/* Acquire: what was made ready before is seen. Taken before the peers are looked at: one
	 * that comes meanwhile is counted again. */
	if (!atomic_exchange_explicit(&mesh->dialer.ready, 0, memory_order_acquire))
		return;
	if (read(mesh->dialer.event_fd, &count, sizeof(count)) < 0)
		count = 0; /* it will be told again */
	mesh_for_each (peer, mesh)
		if (mesh_dial_take(peer, &link))
			take_caller(peer, &link);
}

void mesh_look_around(struct rmr_mesh *mesh)
{
	struct rmr_request *request;

	mesh->looked = clock_ticks();
	take_dialed(mesh);
	for (int i = 0; i < CALLERS_MAX; i++) {
		if (rmr_listener_next(mesh->listener, 0, &request) != RMR_OK)
			break;
		accept_request(mesh, request);
	}
	if (mesh->callers)
		mesh_for_each (peer, mesh)
			if (peer->caller.conn)
				greet(peer);
	mesh->look_ticks =
		(uint64_t)(clock_ticks_per_us() * 1000 *
			   (mesh->up_count == mesh->count - 1 ? LOOK_SELDOM_MS : LOOK_MS));
}

void mesh_look(struct rmr_mesh *mesh)
{
	if (clock_ticks() - mesh->looked >= mesh->look_ticks)
		mesh_look_around(mesh);
}
