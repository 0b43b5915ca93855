/*
 * A mesh as a whole: opening, closing, and what it can be asked.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/shared_device.h"
#include "rdma/mesh/internal.h"

#define SPIN_US	      50
#define CLOSE_WAIT_MS 1000
#define HELLO_SIZE    192u /* rounded up to cache lines */
static_assert(HELLO_SIZE >= sizeof(struct mesh_hello), "fits");

/* Bytes of local memory for each peer. */
static size_t local_size(const struct rmr_mesh *mesh)
{
	return HELLO_SIZE + mesh->depth * (MESH_SLOT_HEAD + mesh->slot_size);
}

static enum rmr_status open_memory(struct rmr_mesh *mesh)
{
	struct rmr_mesh_options *options = &mesh->options;
	size_t size = local_size(mesh) * (size_t)mesh->count;
	enum rmr_status status;

	status = rmr_arena_open(size, 0, &mesh->local_arena);
	if (status == RMR_OK)
		status = rmr_region_open(mesh->device, rmr_arena_base(mesh->local_arena), size, 0,
					 &mesh->local_region);
	if (status != RMR_OK || !options->memory_size)
		return status;
	if (!options->memory) {
		status = rmr_arena_open(options->memory_size, RMR_ARENA_PEERS_WRITE,
					&mesh->memory_arena);
		if (status != RMR_OK)
			return status;
		options->memory = rmr_arena_base(mesh->memory_arena);
	}
	status = rmr_region_open(mesh->device, options->memory, options->memory_size,
				 RMR_READ | RMR_WRITE, &mesh->memory_region);
	return error_context(status, "memory that peers may write and read");
}

static enum rmr_status init_peer(struct rmr_mesh *mesh, int id)
{
	struct mesh_peer *peer = &mesh->peers[id];
	char *local = (char *)rmr_arena_base(mesh->local_arena) + local_size(mesh) * (size_t)id;
	enum rmr_status status;

	peer->mesh = mesh;
	peer->id = id;
	peer->held = -1;
	peer->hello = (struct mesh_hello *)local;
	peer->records = local + HELLO_SIZE;
	peer->slots = peer->records + mesh->depth * MESH_SLOT_HEAD;
	/* One work may be two operations. */
	peer->staged = calloc(2 * mesh->batch, sizeof(*peer->staged));
	peer->works = calloc(mesh->works_max, sizeof(*peer->works));
	peer->free_slots = calloc(mesh->depth, sizeof(*peer->free_slots));
	peer->arrivals = calloc(mesh->depth, sizeof(*peer->arrivals));
	if (!peer->staged || !peer->works || !peer->free_slots || !peer->arrivals)
		return error_set(RMR_NO_MEMORY, "no memory for a peer");
	while (peer->free_count < mesh->depth)
		mesh_give_slot(peer, (int)peer->free_count);
	status = rmr_arena_open(mesh->depth * mesh->slot_size, RMR_ARENA_PEERS_WRITE, &peer->arena);
	if (status == RMR_OK)
		peer->ring = rmr_arena_base(peer->arena);
	return status;
}

static void fini_peer(struct mesh_peer *peer)
{
	mesh_link_close(&peer->caller);
	mesh_link_close(&peer->link);
	rmr_arena_close(peer->arena);
	free(peer->arrivals);
	free(peer->free_slots);
	free(peer->works);
	free(peer->staged);
}

static enum rmr_status open_peers(struct rmr_mesh *mesh)
{
	enum rmr_status status = RMR_OK;

	mesh->peers = calloc((size_t)mesh->count, sizeof(*mesh->peers));
	if (!mesh->peers)
		return error_set(RMR_NO_MEMORY, "no memory for %d peers", mesh->count);
	for (int i = 0; i < mesh->count && status == RMR_OK; i++)
		if (i != mesh->options.id)
			status = init_peer(mesh, i);
	return status;
}

static enum rmr_status open_parts(struct rmr_mesh *mesh)
{
	const struct rmr_device_info *info = rmr_device_info(mesh->device);
	enum rmr_status status;

	/* A work is at most two operations, those of `depth` works with a slot. */
	mesh->places = 3 * mesh->depth + MESH_PLACES;
	if (mesh->places > info->max_depth)
		mesh->places = info->max_depth;
	mesh->inline_max = (uint32_t)info->max_inline;
	mesh->transfer_max = info->max_transfer;
	if (mesh->transfer_max < mesh->slot_size || mesh->places < MESH_PLACES + 2)
		return error_set(RMR_LIMIT, "messages of %zu bytes; '%s' takes %zu at once",
				 mesh->options.message_size, info->name, info->max_transfer);
	status = open_memory(mesh);
	if (status == RMR_OK)
		status = open_peers(mesh);
	if (status == RMR_OK)
		status = rmr_listener_open(mesh->device, mesh->addresses[mesh->options.id], NULL,
					   &mesh->listener);
	if (status == RMR_OK)
		status = mesh_watch(mesh, rmr_listener_fd(mesh->listener), NULL);
	return status;
}

/* Legal on one that is half built, but for epoll set and dialer. */
static void destroy(struct rmr_mesh *mesh)
{
	mesh_dialer_fini(mesh);
	rmr_listener_close(mesh->listener);
	if (mesh->peers)
		mesh_for_each (peer, mesh)
			fini_peer(peer); /* also one that init_peer left half built */
	rmr_region_close(mesh->memory_region);
	rmr_region_close(mesh->local_region);
	rmr_arena_close(mesh->memory_arena);
	rmr_arena_close(mesh->local_arena);
	close(mesh->epoll_fd);
	device_give(mesh->device);
	free(mesh->peers);
	free(mesh->addresses);
	free(mesh);
}

enum rmr_status rmr_mesh_open(const struct rmr_mesh_options *options, struct rmr_mesh **out)
{
	struct rmr_mesh *mesh = calloc(1, sizeof(*mesh));
	enum rmr_status status;

	if (!mesh)
		return error_set(RMR_NO_MEMORY, "no memory for a mesh");
	status = mesh_take_options(mesh, options);
	if (status == RMR_OK) {
		mesh->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
		if (mesh->epoll_fd < 0)
			status = error_errno(RMR_SYSTEM, errno, "cannot make an epoll set");
	}
	if (status != RMR_OK) {
		free(mesh->addresses);
		free(mesh);
		return error_context(status, "opening a mesh");
	}
	mesh->spin_limit = mesh->spin_ticks = (uint64_t)(SPIN_US * clock_ticks_per_us());
	status = mesh_dialer_init(mesh);
	if (status == RMR_OK)
		status = device_take(mesh->device_name, &mesh->device);
	if (status == RMR_OK)
		status = open_parts(mesh);
	if (status != RMR_OK) {
		destroy(mesh);
		return error_context(status, "opening a mesh");
	}
	*out = mesh;
	return RMR_OK;
}

/* All have had what we posted, and our goodbye, and are gone. */
static bool is_alone(struct rmr_mesh *mesh)
{
	mesh_for_each (peer, mesh) {
		mesh_take(peer);
		mesh_catch_up(peer);
		mesh_say_goodbye(peer);
	}
	return mesh->up_count == 0;
}

void rmr_mesh_close(struct rmr_mesh *mesh)
{
	uint64_t deadline_ns;

	if (!mesh)
		return;
	if (mesh->in_callback) {
		log_error("mesh: a callback tried to close the mesh that called it; it stays open");
		return;
	}
	deadline_ns = clock_deadline_ns(CLOSE_WAIT_MS);
	while (!is_alone(mesh) && !clock_passed(deadline_ns)) {
		struct mesh_peer *ready[MESH_READY_MAX];

		(void)mesh_sleep(mesh, deadline_ns, ready);
	}
	destroy(mesh);
}

struct mesh_peer *mesh_find_peer(const struct rmr_mesh *mesh, int peer)
{
	if (peer >= 0 && peer < mesh->count && peer != mesh->options.id)
		return &mesh->peers[peer];
	if (peer == mesh->options.id)
		error_set(RMR_INVALID, "peer %d is this process", peer);
	else
		error_set(RMR_INVALID, "peer %d; the mesh has 0 to %d", peer, mesh->count - 1);
	return NULL;
}

int rmr_mesh_id(const struct rmr_mesh *mesh)
{
	return mesh->options.id;
}

int rmr_mesh_size(const struct rmr_mesh *mesh)
{
	return mesh->count;
}

bool rmr_mesh_is_up(const struct rmr_mesh *mesh, int peer_id)
{
	const struct mesh_peer *peer = mesh_find_peer(mesh, peer_id);

	return peer && peer->state == MESH_UP;
}

void *rmr_mesh_memory(const struct rmr_mesh *mesh)
{
	return mesh->options.memory;
}

size_t rmr_mesh_memory_size(const struct rmr_mesh *mesh)
{
	return mesh->options.memory_size;
}

void *rmr_mesh_user(const struct rmr_mesh *mesh)
{
	return mesh->options.user;
}

void rmr_mesh_get_stats(const struct rmr_mesh *mesh, struct rmr_mesh_stats *stats)
{
	*stats = mesh->stats;
}
