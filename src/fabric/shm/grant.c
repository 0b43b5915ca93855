/*
 * Arenas given to a peer, and those that a peer gave to us.
 *
 * An arena is granted to a connection once, when the first region of it is exported there, and is
 * mapped by the receiver at once, so that no descriptor stays open: a peer that grants without end
 * runs into its own limits, not into those of the process.
 *
 * The granter does not hear when an arena is closed (arenas know no connections); it looks when it
 * grants the next one, and revokes those that are gone. The receiver unmaps a revoked arena as
 * soon as no remote uses it.
 */
#include <stdlib.h>
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

enum rmr_status shm_take_grant(struct shm_conn *conn, const struct shm_packet *packet, int fd)
{
	struct shm_mapping *mapping;
	enum rmr_status status;

	if (conn->mapping_count == SHM_MAX_ARENAS || shm_find_mapping(conn, packet->arena_id) ||
	    packet->arena_size > SHM_MAX_GRANTED - conn->mapped_bytes)
		return error_set(RMR_PROTOCOL,
				 "the peer grants an arena twice, more than %u, or too large ones",
				 SHM_MAX_ARENAS);
	mapping = calloc(1, sizeof(*mapping));
	if (!mapping)
		return error_set(RMR_NO_MEMORY, "no memory for a grant");
	mapping->arena_id = packet->arena_id;
	mapping->size = packet->arena_size;
	mapping->writable = packet->arena_writable;
	status = segment_map(fd, mapping->size, mapping->writable, &mapping->memory);
	if (status != RMR_OK) {
		free(mapping);
		return status;
	}
	list_add_tail(&conn->mappings, &mapping->link);
	conn->mapping_count++;
	conn->mapped_bytes += mapping->size;
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

static void unmap(struct shm_conn *conn, struct shm_mapping *mapping)
{
	segment_unmap(mapping->memory, mapping->size);
	list_remove(&mapping->link);
	conn->mapping_count--;
	conn->mapped_bytes -= mapping->size;
	free(mapping);
}

void shm_take_revoke(struct shm_conn *conn, uint64_t arena_id)
{
	struct shm_mapping *mapping = shm_find_mapping(conn, arena_id);

	if (!mapping)
		return;
	mapping->revoked = true;
	if (mapping->remotes == 0)
		unmap(conn, mapping);
}

void shm_put_mapping(struct shm_conn *conn, struct shm_mapping *mapping)
{
	if (--mapping->remotes == 0 && mapping->revoked)
		unmap(conn, mapping);
}

void shm_drop_mappings(struct shm_conn *conn)
{
	list_for_each_safe (link, &conn->mappings)
		unmap(conn, list_entry(link, struct shm_mapping, link));
}
