/*
 * Posting: works are staged, a peer's own, and leave together when there are `batch` of them, or
 * when the program says so: one call of the fabric, one doorbell.
 *
 * Room. A work needs a place in `works`, where it stays until its event was told; a place or two of
 * the connection's; a send also a slot of the peer's ring and one of ours. Places are counted here,
 * so the fabric always takes all that is staged. Whoever finds no room rings the doorbell first:
 * else a batch larger than what there is room for would wait for itself.
 *
 * Signals. The last of a batch is signaled, and one in between for each half of the ring, so
 * that slots come back while the rest is under way. The fabric's completions come in order, so one
 * of them completes all works up to it.
 *
 * Messages are WRITEs, and only the last of a batch is a WRITE_IMM: it tells the peer that all are
 * there. So the peer has one completion a batch, not one a message. Messages that nearly fill
 * their slots, in slots that follow one another on both sides, leave as one WRITE; what is between
 * them is zeroed first, for it is not the peer's to see.
 *
 * Credits. What was consumed of the peer's messages is told with the last message of a batch, at
 * the moment when it leaves; if half of the ring was consumed and nothing went, by a WRITE_IMM
 * of nothing, for which places are set aside. It comes with an immediate so that a peer who sleeps
 * because it has no slot is woken.
 */
#include <string.h>

#include "base/error.h"
#include "rdma/mesh/internal.h"

/* Messages that become one WRITE: so much may be between two, and so long may it become. */
#define GAP_MAX	  256u
#define MERGE_MAX (16u << 10)

/* ------------------------------------------------------------------------------------------
 * Staging
 */

static bool has_room(const struct mesh_peer *peer, uint32_t ops)
{
	const struct rmr_mesh *mesh = peer->mesh;

	return !peer->is_short && peer->tail - peer->head < mesh->works_max &&
	       mesh_in_flight(peer) + ops <= mesh->places - MESH_PLACES;
}

static bool has_slot(const struct mesh_peer *peer)
{
	return peer->sent - peer->credited < peer->mesh->depth;
}

/* RMR_AGAIN: what is held back leaves, for room comes from what is done. */
static int64_t no_room(struct mesh_peer *peer)
{
	peer->is_starved = true;
	mesh_ring(peer);
	return RMR_AGAIN;
}

static int64_t is_down(const struct mesh_peer *peer)
{
	return error_set(RMR_DISCONNECTED, "peer %d is down%s%s", peer->id,
			 peer->reason[0] ? ": " : "", peer->reason);
}

/* An operation of the fabric, with what all have in common. */
static struct rmr_work *stage(struct mesh_peer *peer, enum rmr_op op)
{
	struct rmr_work *work = &peer->staged[peer->staged_count++];

	work->op = op;
	work->flags = RMR_UNSIGNALED | RMR_MORE;
	work->cookie = peer->tail + 1;
	work->region = peer->mesh->local_region;
	peer->ops++;
	return work;
}

/* The operation that can take another slot behind its own, which begins with this header here and
 * is this one there. NULL: there is none. */
static struct rmr_work *find_mergeable(struct mesh_peer *peer, const struct mesh_header *header,
				       uint32_t slot, size_t length)
{
	struct rmr_work *work = peer->last_slot;
	char *end;
	size_t gap;

	if (!work || work != &peer->staged[peer->staged_count - 1] || slot == 0 ||
	    (char *)header != (char *)peer->last_header + peer->mesh->slot_size)
		return NULL;
	end = (char *)(peer->last_header + 1) + peer->last_header->length;
	gap = (size_t)((char *)header - end);
	if (gap > GAP_MAX || work->length + gap + sizeof(*header) + length > MERGE_MAX)
		return NULL;
	memset(end, 0, gap);
	work->length += gap;
	work->flags &= ~(unsigned)RMR_INLINE;
	/* Its cookie stays that of its first work: if it fails, all of them have. */
	peer->works[(work->cookie - 1) & (peer->mesh->works_max - 1)].last = peer->tail;
	return work;
}

/* A slot of the peer's ring, from a header of ours with its payload. */
static void stage_slot(struct mesh_peer *peer, struct mesh_header *header, enum mesh_kind kind,
		       size_t length, uint32_t immediate)
{
	struct rmr_mesh *mesh = peer->mesh;
	uint32_t number = (uint32_t)peer->sent++, slot = number & mesh->mask;
	struct rmr_work *work = find_mergeable(peer, header, slot, length);

	*header = (struct mesh_header){.length = (uint32_t)length,
				       .kind = kind | number << MESH_SEQUENCE_SHIFT,
				       .immediate = immediate};
	if (work) {
		work->length += sizeof(*header) + length;
	} else {
		work = stage(peer, RMR_OP_WRITE);
		work->source = header;
		work->length = sizeof(*header) + length;
		work->remote = peer->link.ring;
		work->offset = slot * mesh->slot_size + MESH_HEADER_AT;
		if (work->length <= mesh->inline_max)
			work->flags |= RMR_INLINE;
	}
	work->immediate = slot;
	peer->last_slot = work;
	peer->last_header = header;
}

/* The work is complete: all its operations are staged. */
static int64_t finish(struct mesh_peer *peer, enum rmr_mesh_opcode opcode, void *data,
		      size_t length, int slot)
{
	struct rmr_mesh *mesh = peer->mesh;
	int64_t id = ++mesh->next_work;

	peer->works[peer->tail & (mesh->works_max - 1)] = (struct mesh_work){
		.id = id,
		.data = data,
		.length = length,
		.ops = peer->ops,
		.last = peer->tail,
		.opcode = opcode,
		.slot = slot,
		.status = RMR_OK,
	};
	peer->tail++;
	if (++peer->unsignaled >= mesh->half) {
		peer->staged[peer->staged_count - 1].flags &= ~(unsigned)RMR_UNSIGNALED;
		peer->unsignaled = 0;
	}
	if (++peer->staged_works >= mesh->batch)
		mesh_ring(peer);
	return id;
}

void mesh_ring(struct mesh_peer *peer)
{
	struct rmr_work *last;
	int taken;

	if (!peer->staged_count || peer->state != MESH_UP)
		return;
	last = &peer->staged[peer->staged_count - 1];
	last->flags &= ~(unsigned)(RMR_UNSIGNALED | RMR_MORE);
	peer->unsignaled = 0;
	if (peer->last_slot) {
		struct mesh_header *header = peer->last_header;

		peer->last_slot->op = RMR_OP_WRITE_IMM;
		header->kind |= MESH_KIND_CREDITED;
		header->consumed = (uint32_t)peer->consumed;
		peer->told = peer->consumed;
		peer->last_slot = NULL;
	}
	taken = rmr_post(peer->link.conn, peer->staged, (int)peer->staged_count);
	if (taken < 0)
		return; /* it is lost; the next poll finds that, and the works have failed */
	peer->mesh->stats.doorbells++;
	peer->staged_count -= (uint32_t)taken;
	peer->is_short = peer->staged_count > 0;
	if (peer->is_short) {
		memmove(peer->staged, peer->staged + taken,
			peer->staged_count * sizeof(*peer->staged));
		return;
	}
	peer->staged_works = 0;
	peer->posted = peer->tail;
}

/* ------------------------------------------------------------------------------------------
 * Sends
 */

char *rmr_mesh_get_send_buf(struct rmr_mesh *mesh, int peer_id)
{
	struct mesh_peer *peer = mesh_find_peer(mesh, peer_id);

	if (!peer)
		return NULL;
	if (peer->state != MESH_UP) {
		(void)is_down(peer);
		return NULL;
	}
	if (!has_slot(peer) || !has_room(peer, 1) || (peer->held < 0 && !peer->free_count)) {
		(void)no_room(peer);
		return NULL;
	}
	if (peer->held < 0)
		peer->held = mesh_take_slot(peer);
	return mesh_slot(peer, (uint32_t)peer->held) + MESH_SLOT_HEAD;
}

/* The slot for a message at buf; -1: there is none. */
static int find_slot(struct mesh_peer *peer, const char *buf, size_t size)
{
	bool is_held = peer->held >= 0 &&
		       (!buf || buf == mesh_slot(peer, (uint32_t)peer->held) + MESH_SLOT_HEAD);
	int slot;

	if (is_held) {
		slot = peer->held;
		peer->held = -1;
		return slot;
	}
	slot = mesh_take_slot(peer);
	if (slot >= 0 && buf && size)
		memcpy(mesh_slot(peer, (uint32_t)slot) + MESH_SLOT_HEAD, buf, size);
	return slot;
}

int64_t rmr_mesh_post_send(struct rmr_mesh *mesh, const char *buf, size_t size, int peer_id,
			   uint32_t immediate)
{
	struct mesh_peer *peer = mesh_find_peer(mesh, peer_id);
	char *data;
	int slot;

	if (!peer)
		return RMR_INVALID;
	if (size > mesh->options.message_size)
		return error_set(RMR_TOO_LONG, "a message of %zu bytes; slots have %zu", size,
				 mesh->options.message_size);
	if (peer->state != MESH_UP)
		return is_down(peer);
	if (!has_slot(peer) || !has_room(peer, 1))
		return no_room(peer);
	slot = find_slot(peer, buf, size);
	if (slot < 0)
		return no_room(peer);
	data = mesh_slot(peer, (uint32_t)slot) + MESH_SLOT_HEAD;
	mesh->stats.sends++;
	stage_slot(peer, (struct mesh_header *)(data - sizeof(struct mesh_header)),
		   MESH_KIND_MESSAGE, size, immediate);
	return finish(peer, RMR_MESH_SEND, data, size, slot);
}

/* A record: header and payload of a slot that is not one of the program's. */
static struct mesh_header *next_record(const struct mesh_peer *peer)
{
	return (struct mesh_header *)(peer->records +
				      (peer->sent & peer->mesh->mask) * MESH_SLOT_HEAD);
}

/* A message of our own, at once. False: there is no room for it yet. */
static bool send_record(struct mesh_peer *peer, enum mesh_kind kind, uint32_t immediate)
{
	if (!has_slot(peer) || !has_room(peer, 1)) {
		mesh_ring(peer);
		return false;
	}
	stage_slot(peer, next_record(peer), kind, 0, immediate);
	(void)finish(peer, 0, NULL, 0, -1);
	mesh_ring(peer);
	return true;
}

static void send_terminate(struct mesh_peer *peer)
{
	peer->is_terminate_due = !send_record(peer, MESH_KIND_TERMINATE, peer->terminate_reason);
}

void mesh_say_goodbye(struct mesh_peer *peer)
{
	if (peer->state != MESH_UP || peer->is_closing || peer->is_terminate_due)
		return;
	peer->is_closing = send_record(peer, MESH_KIND_CLOSING, 0);
}

int rmr_mesh_terminate(struct rmr_mesh *mesh, uint32_t reason)
{
	int count = 0;

	mesh_for_each (peer, mesh) {
		if (peer->state != MESH_UP)
			continue;
		peer->terminate_reason = reason;
		send_terminate(peer);
		count++;
	}
	return count;
}

/* ------------------------------------------------------------------------------------------
 * Remote memory
 */

/* Whose our end is: sets work->region, and the slot that goes with the work. */
static enum rmr_status find_local(struct mesh_peer *peer, const char *local, size_t size,
				  bool is_source, struct rmr_region **region, int *slot)
{
	const struct rmr_mesh *mesh = peer->mesh;
	uintptr_t at = (uintptr_t)local, base = (uintptr_t)mesh->options.memory;

	*slot = -1;
	*region = mesh->memory_region;
	if (!size || (mesh->memory_region && at >= base && at - base <= mesh->options.memory_size &&
		      size <= mesh->options.memory_size - (at - base)))
		return RMR_OK;
	if (is_source && peer->held >= 0) {
		base = (uintptr_t)mesh_slot(peer, (uint32_t)peer->held) + MESH_SLOT_HEAD;
		if (at >= base && at - base <= mesh->options.message_size &&
		    size <= mesh->options.message_size - (at - base)) {
			*region = mesh->local_region;
			*slot = peer->held;
			return RMR_OK;
		}
	}
	return error_set(RMR_INVALID, "%zu bytes at %p are not in our exposed memory%s", size,
			 local, is_source ? ", nor in the send slot last got" : "");
}

/* Where it is in the peer's memory. */
static enum rmr_status find_remote(const struct mesh_peer *peer, size_t size, uint64_t remote,
				   enum rmr_mesh_where where, uint64_t *offset)
{
	const struct mesh_link *link = &peer->link;

	if (where != RMR_MESH_OFFSET && where != RMR_MESH_ADDRESS)
		return error_set(RMR_INVALID, "%d is neither an offset nor an address", (int)where);
	if (!link->memory)
		return error_set(RMR_ACCESS, "peer %d exposes no memory", peer->id);
	*offset = where == RMR_MESH_ADDRESS ? remote - link->memory_address : remote;
	if (*offset > link->memory_size || size > link->memory_size - *offset)
		return error_set(RMR_ACCESS, "%zu bytes at %s %#llx: peer %d exposes %llu at %#llx",
				 size, where == RMR_MESH_ADDRESS ? "address" : "offset",
				 (unsigned long long)remote, peer->id,
				 (unsigned long long)link->memory_size,
				 (unsigned long long)link->memory_address);
	return RMR_OK;
}

/* Both ends of a write or read. */
struct ends {
	struct rmr_region *region; /* of local */
	int slot;		   /* that local lies in; -1: none */
	uint64_t offset;	   /* in the peer's memory */
};

static enum rmr_status find_ends(struct mesh_peer *peer, const char *local, size_t size,
				 bool is_source, uint64_t remote, enum rmr_mesh_where where,
				 struct ends *ends)
{
	enum rmr_status status;

	if (peer->state != MESH_UP)
		return (enum rmr_status)is_down(peer);
	if (size > peer->mesh->transfer_max)
		return error_set(RMR_TOO_LONG, "%zu bytes at once; the device takes %zu", size,
				 peer->mesh->transfer_max);
	status = find_local(peer, local, size, is_source, &ends->region, &ends->slot);
	if (status != RMR_OK)
		return status;
	return find_remote(peer, size, remote, where, &ends->offset);
}

/* Stages the work between them; what is local is set by the caller. */
static struct rmr_work *stage_transfer(struct mesh_peer *peer, enum rmr_op op, size_t size,
				       const struct ends *ends)
{
	struct rmr_work *work = stage(peer, op);

	work->length = size;
	work->region = ends->region;
	work->remote = peer->link.memory;
	work->offset = ends->offset;
	return work;
}

int64_t rmr_mesh_post_write(struct rmr_mesh *mesh, const char *local, size_t size, int peer_id,
			    uint64_t remote, enum rmr_mesh_where where, uint32_t immediate)
{
	struct mesh_peer *peer = mesh_find_peer(mesh, peer_id);
	enum rmr_status status;
	struct ends ends;

	if (!peer)
		return RMR_INVALID;
	status = find_ends(peer, local, size, true, remote, where, &ends);
	if (status != RMR_OK)
		return status;
	if (!has_room(peer, immediate ? 2 : 1) || (immediate && !has_slot(peer)))
		return no_room(peer);
	if (ends.slot >= 0)
		peer->held = -1;
	mesh->stats.writes++;
	stage_transfer(peer, RMR_OP_WRITE, size, &ends)->source = local;
	if (immediate) {
		struct mesh_header *header = next_record(peer);

		*(struct mesh_written *)(header + 1) =
			(struct mesh_written){.offset = ends.offset, .length = size};
		stage_slot(peer, header, MESH_KIND_WRITTEN, sizeof(struct mesh_written), immediate);
	}
	return finish(peer, RMR_MESH_WRITE, (void *)(uintptr_t)local, size, ends.slot);
}

int64_t rmr_mesh_post_read(struct rmr_mesh *mesh, char *local, size_t size, int peer_id,
			   uint64_t remote, enum rmr_mesh_where where)
{
	struct mesh_peer *peer = mesh_find_peer(mesh, peer_id);
	enum rmr_status status;
	struct ends ends;

	if (!peer)
		return RMR_INVALID;
	status = find_ends(peer, local, size, false, remote, where, &ends);
	if (status != RMR_OK)
		return status;
	if (!has_room(peer, 1))
		return no_room(peer);
	mesh->stats.reads++;
	stage_transfer(peer, RMR_OP_READ, size, &ends)->local = local;
	return finish(peer, RMR_MESH_READ, local, size, -1);
}

/* ------------------------------------------------------------------------------------------
 * Doorbells
 */

void rmr_mesh_flush(struct rmr_mesh *mesh, int peer_id)
{
	struct mesh_peer *peer = mesh_find_peer(mesh, peer_id);

	if (peer)
		mesh_ring(peer);
}

void rmr_mesh_flush_all(struct rmr_mesh *mesh)
{
	mesh_for_each (peer, mesh)
		mesh_ring(peer);
}

void mesh_tell_credit(struct mesh_peer *peer)
{
	struct rmr_work work = {.op = RMR_OP_WRITE_IMM,
				.cookie = MESH_COOKIE_CREDIT,
				.remote = peer->link.ring,
				.immediate = MESH_IMM_CREDIT |
					     ((uint32_t)peer->consumed & MESH_COUNTER_MASK)};

	if (peer->state != MESH_UP || peer->is_closing ||
	    peer->consumed - peer->told < peer->mesh->half)
		return;
	/* What a batch that was cut short says of it must come before. */
	if (peer->credits_underway == MESH_CREDITS_MAX || peer->is_short)
		return;
	if (rmr_post(peer->link.conn, &work, 1) != 1)
		return; /* lost, or the next time */
	peer->credits_underway++;
	peer->told = peer->consumed;
}

void mesh_catch_up(struct mesh_peer *peer)
{
	if (peer->is_short)
		mesh_ring(peer);
	if (peer->is_terminate_due && peer->state == MESH_UP)
		send_terminate(peer);
	mesh_tell_credit(peer);
}
