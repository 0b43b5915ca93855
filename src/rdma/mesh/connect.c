/*
 * Connecting: waits until all peers have been there. Callbacks are left for polls: the program may
 * not be ready for them.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/mesh/internal.h"

/* One that came and went again was there as well: for it all was well, and polls will tell. */
static bool is_met(const struct mesh_peer *peer)
{
	return peer->state != MESH_DOWN;
}

static bool all_met(struct rmr_mesh *mesh)
{
	mesh_for_each (peer, mesh)
		if (!is_met(peer))
			return false;
	return true;
}

/* Why a peer is not there, as far as we know. */
static const char *find_reason(struct mesh_peer *peer, char reason[MESH_REASON_SIZE])
{
	if (mesh_dial_reason(peer, reason) != RMR_OK)
		return reason;
	if (peer->reason[0])
		return peer->reason;
	return peer->id > peer->mesh->options.id ? "it has not called" : "it does not answer";
}

static enum rmr_status name_missing(struct rmr_mesh *mesh)
{
	char names[512] = "", reason[MESH_REASON_SIZE];
	size_t length = 0;
	int missing = 0, named = 0;

	mesh_for_each (peer, mesh) {
		int more;

		if (is_met(peer))
			continue;
		missing++;
		more = snprintf(names + length, sizeof(names) - length, "%s%d at %s (%.120s)",
				length ? ", " : "", peer->id, mesh->addresses[peer->id],
				find_reason(peer, reason));
		if ((size_t)more >= sizeof(names) - length) {
			names[length] = 0; /* those that fit */
			break;
		}
		length += (size_t)more;
		named++;
	}
	return error_set(RMR_TIMEOUT, "missing of %d peers: %s%s", mesh->count - 1, names,
			 missing > named ? " and others" : "");
}

/* RMR_PROTOCOL: somebody who is called is no part of this mesh. */
static enum rmr_status find_stranger(struct rmr_mesh *mesh)
{
	char reason[MESH_REASON_SIZE];

	mesh_for_each (peer, mesh)
		if (!is_met(peer) && mesh_dial_reason(peer, reason) == RMR_PROTOCOL)
			return error_set(RMR_PROTOCOL, "peer %d at %s: %s", peer->id,
					 mesh->addresses[peer->id], reason);
	return RMR_OK;
}

static void begin(struct rmr_mesh *mesh)
{
	mesh->is_connecting = true;
	mesh_for_each (peer, mesh) {
		mesh_dial_forget(peer);
		if (peer->state == MESH_DOWN && !peer->caller.conn && peer->id < mesh->options.id)
			mesh_dial(peer, 0);
	}
	mesh_dial_hastily(mesh, true);
}

/* From now on the program knows of those that are there. */
static void end(struct rmr_mesh *mesh)
{
	mesh->is_connecting = false;
	mesh_dial_hastily(mesh, false);
	mesh_for_each (peer, mesh) {
		if (peer->state == MESH_DOWN)
			continue;
		peer->is_told = true;
		peer->is_up_due = false;
	}
}

enum rmr_status rmr_mesh_connect(struct rmr_mesh *mesh, int timeout_ms)
{
	uint64_t deadline_ns = clock_deadline_ns(timeout_ms);
	struct mesh_peer *ready[MESH_READY_MAX];
	enum rmr_status status = RMR_OK;

	if (mesh->in_callback)
		return error_set(RMR_INVALID, "a callback of a mesh does not connect it");
	begin(mesh);
	for (;;) {
		mesh_look_around(mesh);
		mesh_for_each (peer, mesh)
			mesh_take(peer);
		if (all_met(mesh))
			break;
		status = find_stranger(mesh);
		if (status != RMR_OK)
			break;
		if (clock_passed(deadline_ns)) {
			status = name_missing(mesh);
			break;
		}
		(void)mesh_sleep(mesh, deadline_ns, ready);
	}
	end(mesh);
	return status;
}
