/*
 * Arenas given to a peer, and those that a peer gave to us.
 *
 * An arena is granted to a connection once, when the first region of it is exported there. The
 * receiver keeps its descriptor, and maps it when its program opens a region of it: what a peer
 * grants and the program does not ask for costs a descriptor and nothing else. How many a peer may
 * grant, and how many bytes of them are mapped, is limited for each connection and for the device
 * (struct rmr_grant_limits). Bytes count in full, though the file may have holes: pages that we
 * touch there are charged to us. Descriptors that wait are limited to half of what the process may
 * have open, so that peers cannot take them all.
 *
 * The granter does not hear when an arena is closed (arenas know no connections); it looks when it
 * grants the next one, and revokes those that are gone. The receiver unmaps a revoked arena as
 * soon as no remote uses it.
 */
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/shm/internal.h"

/* Tells the peer of arenas that were closed, and forgets them. */
static void revoke_closed(struct shm_conn *conn)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < conn->granted_count; i++) {
		struct shm_packet packet = {.type = PACKET_REVOKE, .arena_id = conn->granted[i]};

		/* If the peer cannot be told now, it will be the next time. */
		if (arena_is_open(conn->granted[i]) ||
		    packet_send(conn->socket, &packet, NULL) != RMR_OK)
			conn->granted[kept++] = conn->granted[i];
	}
	conn->granted_count = kept;
}

static bool has(const struct shm_conn *conn, uint64_t id)
{
	for (uint32_t i = 0; i < conn->granted_count; i++) {
		if (conn->granted[i] == id)
			return true;
	}
	return false;
}

enum rmr_status shm_grant(struct shm_conn *conn, const struct rmr_arena *arena)
{
	struct shm_packet packet = {.type = PACKET_GRANT,
				    .arena_id = arena_id(arena),
				    .arena_size = rmr_arena_size(arena),
				    .arena_writable = arena_peers_write(arena)};
	int fd = arena_fd(arena);
	enum rmr_status status;

	if (has(conn, packet.arena_id))
		return RMR_OK;
	revoke_closed(conn);
	if (conn->granted_count == SHM_MAX_ARENAS)
		return error_set(RMR_LIMIT, "a connection can be granted %u arenas",
				 SHM_MAX_ARENAS);
	if (conn->granted_count == conn->granted_room) {
		uint32_t room = conn->granted_room ? 2 * conn->granted_room : 8;
		uint64_t *granted = realloc(conn->granted, room * sizeof(*granted));

		if (!granted)
			return error_set(RMR_NO_MEMORY, "no memory for a grant");
		conn->granted = granted;
		conn->granted_room = room;
	}
	status = packet_send(conn->socket, &packet, &fd);
	if (status == RMR_OK)
		conn->granted[conn->granted_count++] = packet.arena_id;
	return status;
}

/* Takes one of the device's descriptors that may wait. */
static bool reserve_waiting(struct shm_device *device)
{
	struct rlimit limit;
	bool is_free;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		limit.rlim_cur = 0;
	pthread_mutex_lock(&device->lock);
	is_free = device->waiting < limit.rlim_cur / 2;
	if (is_free)
		device->waiting++;
	pthread_mutex_unlock(&device->lock);
	return is_free;
}

/* The descriptor does not wait any more. */
static void close_waiting(struct shm_device *device, struct shm_mapping *mapping)
{
	close(mapping->fd);
	mapping->fd = -1;
	pthread_mutex_lock(&device->lock);
	device->waiting--;
	pthread_mutex_unlock(&device->lock);
}

enum rmr_status shm_take_grant(struct shm_conn *conn, const struct shm_packet *packet, int *fd)
{
	struct shm_device *device = (struct shm_device *)conn->base.queue->device;
	uint32_t most = conn->base.grants.arenas;
	struct shm_mapping *mapping;

	if (most > SHM_MAX_ARENAS)
		most = SHM_MAX_ARENAS;
	if (shm_find_mapping(conn, packet->arena_id))
		return error_set(RMR_PROTOCOL, "the peer grants an arena twice");
	if (conn->mapping_count >= most)
		return error_set(RMR_LIMIT, "the peer grants more than the %u arenas that it may",
				 most);
	if (!reserve_waiting(device))
		return error_set(RMR_LIMIT,
				 "peers grant more arenas than descriptors are free for");
	mapping = calloc(1, sizeof(*mapping));
	if (!mapping) {
		pthread_mutex_lock(&device->lock);
		device->waiting--;
		pthread_mutex_unlock(&device->lock);
		return error_set(RMR_NO_MEMORY, "no memory for a grant");
	}
	mapping->arena_id = packet->arena_id;
	mapping->size = packet->arena_size;
	mapping->writable = packet->arena_writable;
	mapping->fd = *fd;
	*fd = -1;
	list_add_tail(&conn->mappings, &mapping->link);
	conn->mapping_count++;
	return RMR_OK;
}

/* Takes the arena from what the connection, and the device, may map. */
static enum rmr_status reserve_mapped(struct shm_conn *conn, size_t size)
{
	struct shm_device *device = (struct shm_device *)conn->base.queue->device;
	const struct rmr_grant_limits *mine = &conn->base.grants, *all = &device->base.grants;
	enum rmr_status status = RMR_OK;

	/* Limits may have been lowered below what is mapped. */
	if (conn->mapped_bytes > mine->bytes || size > mine->bytes - conn->mapped_bytes)
		return error_set(RMR_LIMIT,
				 "an arena of %zu bytes: a connection may grant %llu here", size,
				 (unsigned long long)mine->bytes);
	pthread_mutex_lock(&device->lock);
	if (device->mapped_arenas >= all->arenas || device->mapped_bytes > all->bytes ||
	    size > all->bytes - device->mapped_bytes) {
		status = error_set(RMR_LIMIT,
				   "an arena of %zu bytes: all peers together may grant %llu bytes "
				   "in %u arenas here",
				   size, (unsigned long long)all->bytes, all->arenas);
	} else {
		device->mapped_arenas++;
		device->mapped_bytes += size;
		conn->mapped_bytes += size;
	}
	pthread_mutex_unlock(&device->lock);
	return status;
}

static void unreserve_mapped(struct shm_conn *conn, size_t size)
{
	struct shm_device *device = (struct shm_device *)conn->base.queue->device;

	pthread_mutex_lock(&device->lock);
	device->mapped_arenas--;
	device->mapped_bytes -= size;
	pthread_mutex_unlock(&device->lock);
	conn->mapped_bytes -= size;
}

enum rmr_status shm_use_mapping(struct shm_conn *conn, struct shm_mapping *mapping)
{
	unsigned flags = (mapping->writable ? SEGMENT_WRITABLE : 0) |
			 (conn->base.grants.huge ? SEGMENT_HUGE : 0);
	enum rmr_status status;

	if (mapping->memory)
		return RMR_OK;
	status = reserve_mapped(conn, mapping->size);
	if (status != RMR_OK)
		return status;
	status = segment_map(mapping->fd, mapping->size, flags, &mapping->memory);
	if (status != RMR_OK) {
		unreserve_mapped(conn, mapping->size);
		return status;
	}
	close_waiting((struct shm_device *)conn->base.queue->device, mapping);
	return RMR_OK;
}

struct shm_mapping *shm_find_mapping(struct shm_conn *conn, uint64_t arena_id)
{
	list_for_each (link, &conn->mappings) {
		struct shm_mapping *mapping = list_entry(link, struct shm_mapping, link);

		if (mapping->arena_id == arena_id)
			return mapping;
	}
	return NULL;
}

static void drop_mapping(struct shm_conn *conn, struct shm_mapping *mapping)
{
	if (mapping->fd >= 0)
		close_waiting((struct shm_device *)conn->base.queue->device, mapping);
	if (mapping->memory) {
		segment_unmap(mapping->memory, mapping->size);
		unreserve_mapped(conn, mapping->size);
	}
	list_remove(&mapping->link);
	conn->mapping_count--;
	free(mapping);
}

void shm_take_revoke(struct shm_conn *conn, uint64_t arena_id)
{
	struct shm_mapping *mapping = shm_find_mapping(conn, arena_id);

	if (!mapping)
		return;
	mapping->revoked = true;
	if (mapping->remotes == 0)
		drop_mapping(conn, mapping);
}

void shm_put_mapping(struct shm_conn *conn, struct shm_mapping *mapping)
{
	if (--mapping->remotes == 0 && mapping->revoked)
		drop_mapping(conn, mapping);
}

void shm_drop_mappings(struct shm_conn *conn)
{
	list_for_each_safe (link, &conn->mappings)
		drop_mapping(conn, list_entry(link, struct shm_mapping, link));
}
