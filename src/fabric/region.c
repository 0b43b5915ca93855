/*
 * Regions (memory that peers may use) and remotes (a peer's region, seen from here).
 *
 * A region that is closed while own operations still refer to it stays allocated until the last of
 * them is done; its `closed` flag makes them fail. The same holds for remotes, which belong to
 * one thread and need no atomics.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/log.h"
#include "fabric/provider.h"

static enum rmr_status check_region(struct rmr_device *device, const struct rmr_arena *arena,
				    const void *address, size_t length, unsigned rights)
{
	unsigned need = arena ? RMR_CAP_ATOMIC : RMR_CAP_ATOMIC_PLAIN;

	if (!address || length == 0 || (uintptr_t)address + length < (uintptr_t)address)
		return error_set(RMR_INVALID, "a region of %zu bytes at %p makes no sense", length,
				 address);
	if (rights & ~(unsigned)(RMR_READ | RMR_WRITE | RMR_ATOMIC))
		return error_set(RMR_INVALID, "unknown rights 0x%x", rights);
	if ((rights & RMR_ATOMIC) && (uintptr_t)address % 8)
		return error_set(RMR_INVALID,
				 "a region with atomics must begin at a multiple of 8");
	if (!arena && arena_straddles(address, length))
		return error_set(RMR_INVALID, "the region reaches beyond its arena");
	if (arena && !arena_peers_write(arena) && (rights & (RMR_WRITE | RMR_ATOMIC)))
		return error_set(RMR_DENIED, "peers may only read this arena; open it with "
					     "RMR_ARENA_PEERS_WRITE to grant more");
	if ((rights & RMR_ATOMIC) && !(device->info.capabilities & need))
		return error_set(RMR_UNSUPPORTED, "device '%s' has no atomics on %s memory",
				 device->info.name, arena ? "any" : "memory outside arenas");
	return RMR_OK;
}

enum rmr_status rmr_region_open(struct rmr_device *device, void *address, size_t length,
				unsigned rights, struct rmr_region **out)
{
	struct rmr_arena *arena = arena_find(address, length);
	struct rmr_region *region;
	enum rmr_status status = check_region(device, arena, address, length, rights);

	if (fork_is_foreign(device->generation))
		return foreign_handle();
	if (status != RMR_OK)
		return status;
	if (atomic_fetch_add(&device->regions, 1) >= device->info.max_regions) {
		status = error_set(RMR_LIMIT, "device '%s' has %u regions open, its limit",
				   device->info.name, device->info.max_regions);
		goto uncount;
	}
	region = calloc(1, device->provider->region_size);
	if (!region) {
		status = error_set(RMR_NO_MEMORY, "no memory for a region");
		goto uncount;
	}
	region->device = device;
	region->address = address;
	region->length = length;
	region->rights = rights;
	region->arena = arena;
	atomic_init(&region->references, 1);
	status = device->provider->region_init(region);
	if (status != RMR_OK) {
		status = error_context(status, "registering %zu bytes on '%s'", length,
				       device->info.name);
		goto free_region;
	}
	atomic_fetch_add(&device->children, 1);
	if (arena)
		arena_hold(arena);
	*out = region;
	return RMR_OK;

free_region:
	free(region);
uncount:
	atomic_fetch_sub(&device->regions, 1);
	return status;
}

void region_drop(struct rmr_region *region)
{
	/* Release: our use of the region is over before whoever frees it sees the count; acquire:
	 * so for the one who does. */
	if (atomic_fetch_sub_explicit(&region->references, 1, memory_order_acq_rel) != 1)
		return;
	if (region->device->provider->region_free)
		region->device->provider->region_free(region);
	if (region->copy)
		munmap(region->copy, region->length);
	free(region);
}

enum rmr_status rmr_region_revoke(struct rmr_region *region)
{
	const struct rmr_provider *provider = region->device->provider;

	if (fork_is_foreign(region->device->generation))
		return RMR_OK;
	atomic_store(&region->closed, true);
	return !provider->region_revoke || provider->region_revoke(region) ? RMR_OK : RMR_AGAIN;
}

enum rmr_status rmr_region_detach(struct rmr_region *region)
{
	const struct rmr_device *device = region->device;
	void *copy;

	if (region->arena || region->copy)
		return error_set(RMR_INVALID, "a region %s cannot be detached",
				 region->arena ? "of an arena" : "that is detached");
	if (!device->provider->region_detach)
		return error_set(RMR_UNSUPPORTED, "regions of '%s' cannot be detached",
				 device->info.name);
	copy = mmap(NULL, region->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	if (copy == MAP_FAILED)
		return error_errno(RMR_NO_MEMORY, errno, "no memory for a copy of %zu bytes",
				   region->length);
	memcpy(copy, region->address, region->length);
	region->copy = copy;
	device->provider->region_detach(region, copy);
	return RMR_OK;
}

void rmr_region_close(struct rmr_region *region)
{
	struct rmr_device *device;

	if (!region)
		return;
	device = region->device;
	if (fork_is_foreign(device->generation)) {
		if (region->arena)
			arena_drop(region->arena);
		return; /* peers go on using the parent's */
	}
	atomic_store(&region->closed, true);
	device->provider->region_fini(region);
	if (region->arena)
		arena_drop(region->arena);
	atomic_fetch_sub(&device->regions, 1);
	atomic_fetch_sub(&device->children, 1);
	region_drop(region);
}

enum rmr_status rmr_region_compare_swap(struct rmr_region *region, size_t offset, uint64_t compare,
					uint64_t operand, uint64_t *found)
{
	const struct rmr_device *device = region->device;
	uint64_t expected = compare;

	if (!(region->rights & RMR_ATOMIC))
		return error_set(RMR_INVALID, "a region without RMR_ATOMIC has no atomic words");
	if (offset % 8 || region->length < 8 || offset > region->length - 8)
		return error_set(RMR_INVALID,
				 "%zu is not the offset of a word of a region of %zu "
				 "bytes",
				 offset, region->length);
	if (device->info.capabilities & RMR_CAP_ATOMIC_CPU) {
		/* Sequentially consistent, as peers' atomics are. */
		__atomic_compare_exchange_n((uint64_t *)((uint8_t *)region->address + offset),
					    &expected, operand, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
		*found = expected;
		return RMR_OK;
	}
	if (!device->provider->region_compare_swap)
		return error_set(RMR_UNSUPPORTED, "'%s' cannot change its own memory atomically",
				 device->info.name);
	return device->provider->region_compare_swap(region, offset, compare, operand, found);
}

enum rmr_status rmr_region_export(struct rmr_region *region, struct rmr_conn *conn,
				  struct rmr_descriptor *descriptor)
{
	struct descriptor_wire wire = {
		.magic = DESCRIPTOR_MAGIC,
		.version = DESCRIPTOR_VERSION,
		.provider = conn->provider->id,
		.rights = (uint8_t)region->rights,
		.length = region->length,
	};
	enum rmr_status status;

	if (fork_is_foreign(conn->generation))
		return foreign_handle();
	if (region->device != conn->queue->device)
		return error_set(RMR_INVALID,
				 "the region is of device '%s', the connection of '%s'",
				 region->device->info.name, conn->queue->device->info.name);
	if (conn->lost)
		return error_set(RMR_DISCONNECTED, "the connection to %s is lost", conn->peer);
	status = conn->provider->region_export(region, conn, &wire);
	if (status != RMR_OK)
		return error_context(status, "exporting a region to %s", conn->peer);
	memcpy(descriptor, &wire, sizeof(wire));
	log_debug("%s: exported %zu bytes to %s", region->device->info.name, region->length,
		  conn->peer);
	return RMR_OK;
}

enum rmr_status rmr_remote_open(struct rmr_conn *conn, const struct rmr_descriptor *descriptor,
				struct rmr_remote **out)
{
	struct descriptor_wire wire;
	struct rmr_remote *remote;
	enum rmr_status status;

	if (fork_is_foreign(conn->generation))
		return foreign_handle();
	memcpy(&wire, descriptor, sizeof(wire));
	if (wire.magic != DESCRIPTOR_MAGIC || wire.version != DESCRIPTOR_VERSION ||
	    wire.provider != conn->provider->id)
		return error_set(RMR_INVALID, "this is not a descriptor of a '%s' region",
				 conn->provider->name);
	if (conn->lost)
		return error_set(RMR_DISCONNECTED, "the connection to %s is lost", conn->peer);
	remote = calloc(1, conn->provider->remote_size);
	if (!remote)
		return error_set(RMR_NO_MEMORY, "no memory for a remote region");
	remote->conn = conn;
	remote->length = wire.length;
	remote->rights = wire.rights;
	remote->references = 1;
	status = conn->provider->remote_init(remote, &wire);
	if (status != RMR_OK) {
		free(remote);
		return error_context(status, "opening a remote region of %s", conn->peer);
	}
	list_add_tail(&conn->remotes, &remote->link);
	*out = remote;
	return RMR_OK;
}

void remote_drop(struct rmr_remote *remote)
{
	if (--remote->references > 0)
		return;
	remote->conn->provider->remote_fini(remote);
	free(remote);
}

void rmr_remote_close(struct rmr_remote *remote)
{
	if (!remote || fork_is_foreign(remote->conn->generation))
		return; /* a child lets go of it with the connection */
	list_remove(&remote->link);
	remote_drop(remote);
}

size_t rmr_remote_length(const struct rmr_remote *remote)
{
	return remote->length;
}

unsigned rmr_remote_rights(const struct rmr_remote *remote)
{
	return remote->rights;
}

const void *rmr_remote_pointer(const struct rmr_remote *remote)
{
	return remote->pointer;
}
