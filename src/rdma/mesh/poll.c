/*
 * Polling: the program is told what happened, one thing after the other.
 *
 * A poll tells of what there was when it began: what callbacks bring about is for the next one, so
 * that none goes on for ever. A callback may post: the work that it is told of has left its place
 * before, its slot is free after, and a message's slot is the peer's again after.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "rdma/mesh/internal.h"

static void tell(struct mesh_peer *peer, const struct rmr_mesh_event *event)
{
	struct rmr_mesh *mesh = peer->mesh;

	mesh->in_callback = true;
	mesh->options.callback(mesh, event);
	mesh->in_callback = false;
}

int mesh_tell_works(struct mesh_peer *peer)
{
	uint64_t end = peer->done;
	int count = 0;

	while (peer->head < end) {
		struct mesh_work work = peer->works[peer->head++ & (peer->mesh->works_max - 1)];

		if (work.opcode) {
			struct rmr_mesh_event event = {.opcode = work.opcode,
						       .work = work.id,
						       .peer = peer->id,
						       .data = work.data,
						       .length = work.length,
						       .status = work.status};

			tell(peer, &event);
			count++;
		} else if (peer->is_starved) {
			peer->mesh->is_freed = true; /* room, of which no callback tells */
		}
		if (work.slot >= 0)
			mesh_give_slot(peer, work.slot);
	}
	return count;
}

/* False: what the peer says that it wrote is not in our memory. */
static bool make_written(struct mesh_peer *peer, const char *payload, struct rmr_mesh_event *event)
{
	const struct rmr_mesh *mesh = peer->mesh;
	struct mesh_written written;

	memcpy(&written, payload, sizeof(written));
	if (!mesh->memory_region || written.offset > mesh->options.memory_size ||
	    written.length > mesh->options.memory_size - written.offset)
		return false;
	event->opcode = RMR_MESH_WRITE_IMM;
	event->data = (char *)mesh->options.memory + written.offset;
	event->length = written.length;
	return true;
}

/* The next message. False: it was none that the program could be told of. */
static bool tell_message(struct mesh_peer *peer)
{
	struct rmr_mesh *mesh = peer->mesh;
	uint32_t slot = (uint32_t)peer->consumed & mesh->mask;
	const struct mesh_header *header = &peer->arrivals[slot];
	struct rmr_mesh_event event = {.opcode = RMR_MESH_RECV,
				       .peer = peer->id,
				       .data = peer->ring + slot * mesh->slot_size + MESH_SLOT_HEAD,
				       .length = header->length,
				       .immediate = header->immediate};

	if (header->kind == MESH_KIND_TERMINATE) {
		event.opcode = RMR_MESH_TERMINATE;
		event.data = NULL;
	} else if (header->kind == MESH_KIND_WRITTEN && !make_written(peer, event.data, &event)) {
		return false;
	} else {
		mesh->stats.received++;
	}
	tell(peer, &event);
	return true;
}

static int tell_messages(struct mesh_peer *peer)
{
	uint64_t end = peer->arrived;
	int count = 0;

	while (peer->consumed < end) {
		if (!tell_message(peer)) {
			peer->consumed = peer->arrived; /* what follows is not believed either */
			log_warn_limited("mesh: %d says it wrote where it cannot have", peer->id);
			if (peer->state == MESH_UP)
				mesh_lose(peer, RMR_PROTOCOL,
					  "it says it wrote where our memory is not");
			break;
		}
		count++;
		peer->consumed++;
		mesh_tell_credit(peer);
	}
	return count;
}

/* It is there again, or gone. */
static void tell_change(struct mesh_peer *peer, enum rmr_mesh_opcode opcode)
{
	bool is_down = opcode == RMR_MESH_DOWN;
	struct rmr_mesh_event event = {.opcode = opcode,
				       .peer = peer->id,
				       .data = is_down ? peer->reason : NULL,
				       .length = is_down ? strlen(peer->reason) : 0,
				       .status = is_down ? peer->down_status : RMR_OK};

	*(is_down ? &peer->mesh->stats.downs : &peer->mesh->stats.ups) += 1;
	tell(peer, &event);
}

int mesh_tell_peer(struct mesh_peer *peer)
{
	int count = 0;

	if (peer->state == MESH_DOWN)
		return 0;
	if (peer->is_up_due) {
		peer->is_up_due = false;
		peer->is_told = true;
		tell_change(peer, RMR_MESH_UP);
		count++;
	}
	count += tell_messages(peer);
	/* After all of its works. */
	if (peer->state == MESH_LOST && peer->head == peer->tail) {
		tell_change(peer, RMR_MESH_DOWN);
		count++;
		mesh_forget_loss(peer);
	}
	return count;
}

int mesh_poll_peer(struct mesh_peer *peer)
{
	int count;

	mesh_take(peer);
	if (peer->head == peer->done && peer->arrived == peer->consumed &&
	    peer->state != MESH_LOST && !peer->is_up_due) {
		mesh_catch_up(peer);
		return 0;
	}
	count = mesh_tell_works(peer);
	count += mesh_tell_peer(peer);
	mesh_catch_up(peer);
	return count;
}

/* A callback must not poll: what it would be told is what is being told. */
static enum rmr_status may_poll(struct rmr_mesh *mesh)
{
	if (mesh->in_callback)
		return error_set(RMR_INVALID, "a callback of a mesh does not poll or wait");
	mesh_look(mesh);
	return RMR_OK;
}

int rmr_mesh_poll_sq(struct rmr_mesh *mesh, int peer_id)
{
	struct mesh_peer *peer = mesh_find_peer(mesh, peer_id);
	int count;

	if (!peer || may_poll(mesh) != RMR_OK)
		return RMR_INVALID;
	mesh_take(peer);
	count = mesh_tell_works(peer);
	mesh_catch_up(peer);
	return count;
}

int rmr_mesh_poll_rq(struct rmr_mesh *mesh, int peer_id)
{
	struct mesh_peer *peer = mesh_find_peer(mesh, peer_id);
	int count;

	if (!peer || may_poll(mesh) != RMR_OK)
		return RMR_INVALID;
	mesh_take(peer);
	count = mesh_tell_peer(peer);
	mesh_catch_up(peer);
	return count;
}

int rmr_mesh_poll_sq_all(struct rmr_mesh *mesh)
{
	int count = 0;

	if (may_poll(mesh) != RMR_OK)
		return RMR_INVALID;
	mesh_for_each (peer, mesh) {
		mesh_take(peer);
		count += mesh_tell_works(peer);
		mesh_catch_up(peer);
	}
	return count;
}

int rmr_mesh_poll_rq_all(struct rmr_mesh *mesh)
{
	int count = 0;

	if (may_poll(mesh) != RMR_OK)
		return RMR_INVALID;
	mesh_for_each (peer, mesh) {
		mesh_take(peer);
		count += mesh_tell_peer(peer);
		mesh_catch_up(peer);
	}
	return count;
}

int rmr_mesh_poll(struct rmr_mesh *mesh)
{
	int count = 0;

	if (may_poll(mesh) != RMR_OK)
		return RMR_INVALID;
	mesh_for_each (peer, mesh)
		count += mesh_poll_peer(peer);
	return count;
}
