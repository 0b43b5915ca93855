/*
 * Taking: what comes out of a peer's queue is sorted, and kept until the program asks for its kind.
 *
 * Works that are done need no list: they are done in order, and so are messages: they lie in the
 * ring, in order. Their headers are copied at once, checked, and only the copies are used: the peer
 * can change the ring at any moment. A peer that breaks the rules loses its connection.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "rdma/mesh/internal.h"

#define TAKE_AT_ONCE 32

/* The peer has consumed so many of our messages, since the beginning. */
static enum rmr_status take_credit(struct mesh_peer *peer, uint32_t consumed)
{
	uint32_t more = (consumed - (uint32_t)peer->credited) & MESH_COUNTER_MASK;

	if (more > peer->sent - peer->credited)
		return error_set(RMR_PROTOCOL, "it says it has had messages that were never sent");
	peer->credited += more;
	if (more && peer->is_starved) {
		peer->is_starved = false;
		peer->mesh->is_freed = true;
	}
	return RMR_OK;
}

static enum rmr_status check_header(const struct mesh_peer *peer, const struct mesh_header *header)
{
	const struct rmr_mesh *mesh = peer->mesh;

	switch (header->kind) {
	case MESH_KIND_MESSAGE:
		if (header->length <= mesh->options.message_size)
			return RMR_OK;
		break;
	case MESH_KIND_WRITTEN:
		if (header->length == sizeof(struct mesh_written) && header->immediate)
			return RMR_OK;
		break;
	case MESH_KIND_TERMINATE:
	case MESH_KIND_CLOSING:
		if (header->length == 0)
			return RMR_OK;
		break;
	default:
		break;
	}
	return error_set(RMR_PROTOCOL, "a message of kind %u with %u bytes", header->kind,
			 header->length);
}

/* The next message, which is there if the peer tells the truth. */
static enum rmr_status take_message(struct mesh_peer *peer)
{
	struct rmr_mesh *mesh = peer->mesh;
	uint32_t number = (uint32_t)peer->arrived, slot = number & mesh->mask;
	struct mesh_header *header = &peer->arrivals[slot];
	enum rmr_status status = RMR_OK;

	memcpy(header, peer->ring + slot * mesh->slot_size + MESH_HEADER_AT, sizeof(*header));
	if (header->kind >> MESH_SEQUENCE_SHIFT != (number & 0xffffu))
		return error_set(RMR_PROTOCOL, "slot %u has another message than number %u", slot,
				 number);
	if (header->kind & MESH_KIND_CREDITED)
		status = take_credit(peer, header->consumed);
	header->kind &= MESH_KIND_MASK;
	if (status == RMR_OK)
		status = check_header(peer, header);
	/* We end the connection, not the peer: so nothing of ours is on its way into memory that is
	 * no more, and what it has sent is here. */
	if (status == RMR_OK && header->kind == MESH_KIND_CLOSING)
		status = error_set(RMR_DISCONNECTED, "it left");
	if (status == RMR_OK)
		peer->arrived++;
	return status;
}

/* All up to this slot are there. */
static enum rmr_status take_slots(struct mesh_peer *peer, uint32_t slot)
{
	struct rmr_mesh *mesh = peer->mesh;
	uint32_t count = ((slot - (uint32_t)peer->arrived) & mesh->mask) + 1;
	enum rmr_status status = RMR_OK;

	if (slot > mesh->mask || peer->arrived + count - peer->consumed > mesh->depth)
		return error_set(RMR_PROTOCOL, "it wrote slot %u out of turn", slot);
	while (count-- && status == RMR_OK)
		status = take_message(peer);
	return status;
}

/* Something of ours. */
static void take_done(struct mesh_peer *peer, const struct rmr_completion *c)
{
	const struct rmr_mesh *mesh = peer->mesh;
	uint64_t number = c->cookie - 1;

	if (c->cookie == MESH_COOKIE_CREDIT) {
		peer->credits_underway--;
		return;
	}
	if (c->cookie == MESH_COOKIE_NONE || peer->failure != RMR_OK)
		return;
	if (c->status != RMR_OK) {
		/* All before it are done: unsignaled ones tell only of failures. */
		peer->done = number;
		peer->failure = c->status;
		return;
	}
	peer->done = peer->works[number & (mesh->works_max - 1)].last + 1;
	peer->ops_done = peer->works[number & (mesh->works_max - 1)].ops;
}

static enum rmr_status take_one(struct mesh_peer *peer, const struct rmr_completion *c)
{
	switch (c->op) {
	case RMR_OP_RECV_IMM:
		if (c->immediate & MESH_IMM_CREDIT)
			return take_credit(peer, c->immediate & MESH_COUNTER_MASK);
		return take_slots(peer, c->immediate);
	case RMR_OP_RECV:
		if (c->status == RMR_OK)
			rmr_recv_release(peer->link.queue, c->data);
		return error_set(RMR_PROTOCOL, "it said hello twice");
	case RMR_OP_DISCONNECT:
		return error_set(c->status, "%s",
				 c->status == RMR_DISCONNECTED ? "it closed the connection, or died"
							       : rmr_status_text(c->status));
	default:
		take_done(peer, c);
		return RMR_OK;
	}
}

void mesh_take(struct mesh_peer *peer)
{
	struct rmr_completion completions[TAKE_AT_ONCE];
	enum rmr_status status = RMR_OK;
	int count;

	if (peer->state != MESH_UP)
		return;
	count = rmr_poll(peer->link.queue, completions, TAKE_AT_ONCE);
	for (int i = 0; i < count; i++) {
		if (status == RMR_OK)
			status = take_one(peer, &completions[i]);
		else if (completions[i].op <= RMR_OP_FETCH_ADD)
			take_done(peer, &completions[i]); /* done is done */
	}
	if (status == RMR_OK)
		return;
	if (status == RMR_PROTOCOL)
		log_warn_limited("mesh: %d broke the rules: %s", peer->id, error_chain());
	mesh_lose(peer, status, error_chain());
}
