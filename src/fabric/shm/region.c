/*
 * Regions, and the arenas behind them.
 *
 * A device publishes its open regions in a table that every peer has mapped read-only. A descriptor
 * names an entry and its key; the key is random and used once, so an entry that was reused, or is
 * free, cannot be taken for the one that was meant. Peers look at the key before each access, which
 * is how closing a region ends access at once, without a message.
 *
 * The table tells where regions are; it gives nobody access. Access is the arena's descriptor,
 * which goes over the socket of the one connection that rmr_region_export names.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/shm/shm.h"

enum rmr_status shm_region_init(struct rmr_region *base)
{
	struct shm_region *region = (struct shm_region *)base;
	struct shm_device *device = (struct shm_device *)base->device;
	struct shm_table_entry *entry;
	enum rmr_status status = key_random(&region->key);

	if (status != RMR_OK)
		return status;
	pthread_mutex_lock(&device->lock);
	assert(device->free_count > 0); /* the core counts against max_regions */
	region->index = device->free_indexes[--device->free_count];
	pthread_mutex_unlock(&device->lock);

	entry = &device->table[region->index];
	entry->arena_id = base->arena ? arena_id(base->arena) : 0;
	entry->offset = base->arena
				? (uint64_t)(base->address - (uint8_t *)rmr_arena_base(base->arena))
				: (uint64_t)(uintptr_t)base->address;
	entry->length = base->length;
	entry->rights = base->rights;
	/* Release: whoever sees the key sees the entry that belongs to it. */
	atomic_store_explicit(&entry->key, region->key, memory_order_release);
	return RMR_OK;
}

void shm_region_fini(struct rmr_region *base)
{
	struct shm_region *region = (struct shm_region *)base;
	struct shm_device *device = (struct shm_device *)base->device;

	/* Sequentially consistent, as is the load of `active` that follows: see access.c. */
	atomic_store(&device->table[region->index].key, 0);
	shm_access_quiesce(device);
	pthread_mutex_lock(&device->lock);
	device->free_indexes[device->free_count++] = (uint16_t)region->index;
	pthread_mutex_unlock(&device->lock);
}

/* Gives the arena to the peer, unless it has it. */
static enum rmr_status grant(struct shm_conn *conn, const struct rmr_arena *arena)
{
	struct shm_packet packet = {.type = PACKET_GRANT,
				    .arena_id = arena_id(arena),
				    .arena_size = rmr_arena_size(arena),
				    .arena_writable = arena_peers_write(arena)};
	int fd = arena_fd(arena);
	enum rmr_status status;

	for (uint32_t i = 0; i < conn->granted_count; i++) {
		if (conn->granted[i] == packet.arena_id)
			return RMR_OK;
	}
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

enum rmr_status shm_region_export(struct rmr_region *base, struct rmr_conn *base_conn,
				  struct descriptor_wire *wire)
{
	struct shm_region *region = (struct shm_region *)base;
	struct shm_conn *conn = (struct shm_conn *)base_conn;

	wire->key = region->key;
	wire->word[0] = region->index;
	return base->arena ? grant(conn, base->arena) : RMR_OK;
}

enum rmr_status shm_take_grant(struct shm_conn *conn, const struct shm_packet *packet, int fd)
{
	struct shm_mapping *mapping;

	if (conn->mapping_count == SHM_MAX_ARENAS)
		return error_set(RMR_PROTOCOL, "the peer grants more than %u arenas",
				 SHM_MAX_ARENAS);
	mapping = calloc(1, sizeof(*mapping));
	if (!mapping)
		return error_set(RMR_NO_MEMORY, "no memory for a grant");
	mapping->arena_id = packet->arena_id;
	mapping->size = packet->arena_size;
	mapping->writable = packet->arena_writable;
	mapping->fd = fd;
	list_add_tail(&conn->mappings, &mapping->link);
	conn->mapping_count++;
	return RMR_OK;
}

static struct shm_mapping *find_mapping(struct shm_conn *conn, uint64_t id)
{
	list_for_each (link, &conn->mappings) {
		struct shm_mapping *mapping = list_entry(link, struct shm_mapping, link);

		if (mapping->arena_id == id)
			return mapping;
	}
	return NULL;
}

/* The arena with this id, mapped. The grant was sent before the descriptor, so it is here. */
static enum rmr_status map_arena(struct shm_conn *conn, uint64_t id, struct shm_mapping **out)
{
	struct shm_mapping *mapping = find_mapping(conn, id);
	enum rmr_status status;

	for (bool more = true; !mapping && more; mapping = find_mapping(conn, id))
		more = shm_conn_read_socket(conn);
	if (!mapping)
		return error_set(RMR_ACCESS, "the region was not granted to this connection");
	if (!mapping->memory) {
		status = segment_map(mapping->fd, mapping->size, mapping->writable,
				     &mapping->memory);
		if (status != RMR_OK)
			return status;
		close(mapping->fd);
		mapping->fd = -1;
	}
	*out = mapping;
	return RMR_OK;
}

/* Makes sure that peer_pid means the peer: the pidfd is opened first, then the socket looked at; as
 * the peer still holds its end, the number was not free to be reused. */
static enum rmr_status know_process(struct shm_conn *conn)
{
	char byte;

	if (conn->peer_pidfd >= 0)
		return RMR_OK;
	if (conn->peer_pid <= 0)
		return error_set(RMR_DENIED, "the peer is in another PID namespace: only arenas "
					     "can be shared with it");
	conn->peer_pidfd = (int)syscall(SYS_pidfd_open, conn->peer_pid, 0);
	if (conn->peer_pidfd < 0)
		return error_errno(RMR_DENIED, errno, "cannot watch process %d", conn->peer_pid);
	if (recv(conn->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		return error_set(RMR_DISCONNECTED, "the peer is gone");
	return RMR_OK;
}

enum rmr_status shm_remote_init(struct rmr_remote *base, const struct descriptor_wire *wire)
{
	struct shm_remote *remote = (struct shm_remote *)base;
	struct shm_conn *conn = (struct shm_conn *)base->conn;
	const volatile struct shm_table_entry *entry;
	uint64_t arena, offset, length;
	unsigned rights;
	enum rmr_status status;

	if (wire->word[0] >= conn->their_regions || wire->key == 0)
		return error_set(RMR_ACCESS, "the descriptor names no region");
	remote->key_cell = &conn->their_table[wire->word[0]].key;
	remote->key = wire->key;
	entry = &conn->their_table[wire->word[0]];
	/* Acquire: with the key we see its entry. The second look at the key proves that the entry
	 * was not reused while we read it. */
	if (atomic_load_explicit(remote->key_cell, memory_order_acquire) != wire->key)
		return error_set(RMR_ACCESS, "the region is closed, or the key is wrong");
	arena = entry->arena_id;
	offset = entry->offset;
	length = entry->length;
	rights = entry->rights;
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(remote->key_cell, memory_order_relaxed) != wire->key)
		return error_set(RMR_ACCESS, "the region was closed just now");
	if (length != wire->length || rights != wire->rights)
		return error_set(RMR_ACCESS, "the descriptor does not fit the region");
	base->length = length;
	base->rights = rights;
	if (arena == 0) {
		remote->address = offset;
		return know_process(conn);
	}
	status = map_arena(conn, arena, &remote->mapping);
	if (status != RMR_OK)
		return status;
	if (offset > remote->mapping->size || length > remote->mapping->size - offset ||
	    ((rights & (RMR_WRITE | RMR_ATOMIC)) && !remote->mapping->writable))
		return error_set(RMR_ACCESS, "the region does not fit its arena");
	remote->memory = (uint8_t *)remote->mapping->memory + offset;
	base->pointer = remote->memory;
	return RMR_OK;
}

/* The arena stays mapped until the connection ends: it was granted once and will not be again. */
void shm_remote_fini(struct rmr_remote *base)
{
	(void)base;
}
