/*
 * Regions: memory of ours that peers use, and memory of theirs that we use.
 *
 * A device publishes its open regions in a table that every peer has mapped read-only. A descriptor
 * names an entry and its key; the key is random and used once, so an entry that was reused, or is
 * free, cannot be taken for the one that was meant. Peers look at the key before each access, which
 * is how closing a region ends access at once, without a message.
 *
 * A descriptor is good for the connection that it was exported to: it carries a tag made from key
 * and a secret of that connection, and our library opens no other. That binds honest programs. What
 * binds a hostile one, which can read the table and needs no library, is the kernel: it has only
 * the arenas whose descriptors were sent over its socket, and other memory only as far as it may
 * trace this process.
 */
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "fabric/shm/internal.h"

#define READ_ROUNDS 256 /* of a socket, in search of a grant */

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

bool shm_region_revoke(struct rmr_region *base)
{
	struct shm_region *region = (struct shm_region *)base;
	struct shm_device *device = (struct shm_device *)base->device;

	if (region->deadline_ns == 0)
		shm_access_revoke(device, region);
	return shm_access_is_over(device, region);
}

void shm_region_fini(struct rmr_region *base)
{
	struct shm_region *region = (struct shm_region *)base;
	struct shm_device *device = (struct shm_device *)base->device;

	if (!shm_region_revoke(base))
		shm_access_quiesce(device, region);
	pthread_mutex_lock(&device->lock);
	device->free_indexes[device->free_count++] = (uint16_t)region->index;
	pthread_mutex_unlock(&device->lock);
}

static uint64_t tag_of(uint64_t key, uint64_t index, uint64_t secret)
{
	return hash64_seed((uint64_t[]){key, index}, 2 * sizeof(uint64_t), secret);
}

enum rmr_status shm_region_export(struct rmr_region *base, struct rmr_conn *base_conn,
				  struct descriptor_wire *wire)
{
	struct shm_region *region = (struct shm_region *)base;
	struct shm_conn *conn = (struct shm_conn *)base_conn;

	wire->key = region->key;
	wire->word[0] = region->index;
	wire->word[1] = tag_of(region->key, region->index, conn->my_secret);
	shm_access_exported(conn, region->index);
	return base->arena ? shm_grant(conn, base->arena) : RMR_OK;
}

/* Maps the arena with this id. The grant was sent before the descriptor, so it is here, maybe
 * behind other packets, of which a peer may send any number: we do not read for ever. */
static enum rmr_status use_arena(struct shm_conn *conn, uint64_t id, struct shm_mapping **out)
{
	struct shm_mapping *mapping = shm_find_mapping(conn, id);
	bool more = true;

	for (int round = 0; !mapping && more && round < READ_ROUNDS; round++) {
		more = shm_conn_read_socket(conn);
		mapping = shm_find_mapping(conn, id);
	}
	if (!mapping)
		return error_set(RMR_ACCESS, "the region was not granted to this connection");
	*out = mapping;
	return shm_use_mapping(conn, mapping);
}

/* May we access memory of the peer that is not in an arena? Only if it is of our own user: for
 * others the kernel's permission would be the only guard, and that of a privileged process guards
 * nothing: a peer could become another program (exec) and let us work on that one's memory. */
static enum rmr_status check_process(const struct shm_conn *conn)
{
	if (conn->peer_pid <= 0 || conn->peer_pidfd < 0)
		return error_set(RMR_DENIED, "the peer is in another PID namespace, or the kernel "
					     "has no pidfd: only arenas can be shared with it");
	if (conn->peer_uid != geteuid())
		return error_set(RMR_DENIED, "the peer is of another user: only arenas can be "
					     "shared with it");
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
	if (wire->word[1] != tag_of(wire->key, wire->word[0], conn->their_secret))
		return error_set(RMR_ACCESS, "the region was not exported to this connection");
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
	if ((rights & RMR_ATOMIC) && offset % 8)
		return error_set(RMR_ACCESS, "the region has atomics, but is not aligned");
	if (arena == 0) {
		remote->address = offset;
		return check_process(conn);
	}
	status = use_arena(conn, arena, &remote->mapping);
	if (status != RMR_OK)
		return status;
	if (offset > remote->mapping->size || length > remote->mapping->size - offset ||
	    ((rights & (RMR_WRITE | RMR_ATOMIC)) && !remote->mapping->writable))
		return error_set(RMR_ACCESS, "the region does not fit its arena");
	remote->mapping->remotes++;
	remote->memory = (uint8_t *)remote->mapping->memory + offset;
	base->pointer = remote->memory;
	return RMR_OK;
}

void shm_remote_fini(struct rmr_remote *base)
{
	struct shm_remote *remote = (struct shm_remote *)base;

	if (remote->mapping)
		shm_put_mapping((struct shm_conn *)base->conn, remote->mapping);
}
