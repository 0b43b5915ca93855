/*
 * Links: a connection with its queue, from its making to its end.
 *
 * The end of the peer's own link leaves the messages that had arrived in the ring, and its works,
 * failed, in their places: the program is told of them, and only then can another link take its
 * place (see internal.h).
 */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "base/error.h"
#include "base/log.h"
#include "rdma/mesh/internal.h"

enum rmr_status mesh_open_queue(struct rmr_mesh *mesh, struct rmr_queue **queue)
{
	/* A slot for each message that may arrive, or on some adapters they would have to be
	 * repeated; of the size of a hello, for messages themselves land in the ring. */
	struct rmr_queue_options options = {.recv_slots = mesh->depth + MESH_PLACES,
					    .recv_size = sizeof(struct mesh_hello)};
	uint32_t most = rmr_device_info(mesh->device)->max_slots;

	if (options.recv_slots > most)
		options.recv_slots = most;
	return rmr_queue_open(mesh->device, &options, queue);
}

void mesh_conn_options(struct rmr_mesh *mesh, const struct mesh_introduction *introduction,
		       struct rmr_conn_options *options)
{
	*options = (struct rmr_conn_options){.depth = mesh->places,
					     .dead_after_ms = mesh->options.dead_after_ms,
					     .private_data = introduction,
					     .private_length = sizeof(*introduction)};
}

enum rmr_status mesh_watch(struct rmr_mesh *mesh, int fd, struct mesh_peer *peer)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};

	if (epoll_ctl(mesh->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		return error_errno(RMR_SYSTEM, errno, "cannot watch a descriptor");
	return RMR_OK;
}

void mesh_link_close(struct mesh_link *link)
{
	/* With the connection go its remotes, with the queue's descriptor its being watched. The
	 * region after the connection, or what the peer has under way would look like a breach;
	 * before the ring is used again in any case: from then on nobody writes. */
	rmr_conn_close(link->conn);
	rmr_region_close(link->region);
	rmr_queue_close(link->queue);
	*link = (struct mesh_link){0};
}

/* All works that are left, in order. The first had the failure that the fabric told of. */
static void fail_works(struct mesh_peer *peer, enum rmr_status status)
{
	const struct rmr_mesh *mesh = peer->mesh;

	for (uint64_t i = peer->done; i < peer->tail; i++) {
		struct mesh_work *work = &peer->works[i & (mesh->works_max - 1)];

		work->status = i < peer->posted ? status : RMR_CANCELED;
		if (i == peer->done && peer->failure != RMR_OK)
			work->status = peer->failure;
	}
	peer->done = peer->posted = peer->tail;
	peer->staged_count = peer->staged_works = 0;
	peer->last_slot = NULL;
	peer->is_short = false;
}

void mesh_lose(struct mesh_peer *peer, enum rmr_status status, const char *reason)
{
	log_info("mesh: %d lost %d: %s", peer->mesh->options.id, peer->id, reason);
	/* In this order: nobody reads our slots when the program is told that it may use them. */
	mesh_link_close(&peer->link);
	fail_works(peer, peer->failure != RMR_OK ? RMR_CANCELED : RMR_DISCONNECTED);
	peer->state = MESH_LOST;
	peer->is_terminate_due = false;
	peer->down_status = status;
	snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
	peer->mesh->up_count--;
}

void mesh_forget_loss(struct mesh_peer *peer)
{
	peer->state = MESH_DOWN;
	peer->is_told = peer->is_up_due = false;
	/* One that broke the rules may do so again, and not as fast as it can. */
	if (peer->id < peer->mesh->options.id)
		mesh_dial(peer, peer->down_status == RMR_DISCONNECTED
					? 0
					: peer->mesh->options.redial_ms);
}
