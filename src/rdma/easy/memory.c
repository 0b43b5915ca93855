/*
 * Memory that the program registered, and what peers were told of it.
 *
 * Each piece is an arena of its own that peers may write: on shm an arena is the unit of trust, so
 * a peer that is given one piece can reach no other. It is registered on a device when it is first
 * used there, and stays so. A piece belongs to an endpoint, or to all of them.
 *
 * A peer is told of a piece when the program asks for its keys, for it is then that the peer's
 * program may hear of them; before any message that is sent afterwards. A new connection of the
 * same endpoint is told again. No message overtakes a notice: one that cannot go now makes sends
 * return 0, and one that never can makes them fail, until that piece is deregistered.
 *
 * One mutex guards all pieces. What peers were told is the lane's, under its lock.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fabric/shared_device.h"
#include "rdma/easy/internal.h"

struct memory {
	struct list link;
	struct rmr_arena *arena;
	uint8_t *base;
	size_t size;
	uint32_t key;
	unsigned exposures; /* endpoints that expose a part of it */
	struct list regions;
};

/* All of a piece, or a part that is exposed, on one device. */
struct part {
	struct list link;
	struct rmr_device *device;
	uint8_t *base;
	size_t size;
	struct rmr_region *region;
};

/* A piece that a peer was told of, or has to be. By its key alone: it may be gone. */
struct telling {
	struct list link; /* in conn->tellings */
	uint32_t key;
	enum { TELLING_NEW, TELLING_TOLD, TELLING_GONE } state;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list everybodys = {&everybodys, &everybodys};

/* ------------------------------------------------------------------------------------------
 * Pieces
 */

static struct memory *create(size_t size)
{
	struct memory *memory = calloc(1, sizeof(*memory));

	if (!memory) {
		error_set(RMR_NO_MEMORY, "no memory for registered memory");
		return NULL;
	}
	if (rmr_arena_open(size, RMR_ARENA_PEERS_WRITE, &memory->arena) != RMR_OK) {
		free(memory);
		return NULL;
	}
	memory->base = rmr_arena_base(memory->arena);
	memory->size = size;
	memory->key = memory_new_key();
	list_init(&memory->regions);
	return memory;
}

static void destroy(struct memory *memory)
{
	list_for_each_safe (at, &memory->regions) {
		struct part *part = list_entry(at, struct part, link);

		rmr_region_close(part->region);
		device_give(part->device);
		free(part);
	}
	rmr_arena_close(memory->arena);
	free(memory);
}

static bool holds(const struct memory *memory, uint64_t address, size_t size)
{
	uint64_t base = (uint64_t)(uintptr_t)memory->base;

	return address >= base && address - base <= memory->size &&
	       size <= memory->size - (address - base);
}

/* With key 0: by the address alone. */
static struct memory *search(const struct list *memories, uint32_t key, uint64_t address,
			     size_t size)
{
	list_for_each (at, memories) {
		struct memory *memory = list_entry(at, struct memory, link);

		if ((!key || memory->key == key) && holds(memory, address, size))
			return memory;
	}
	return NULL;
}

struct memory *memory_find_key(RdmaConn *conn, uint32_t key, uint64_t address, size_t size)
{
	struct memory *memory = NULL;

	pthread_mutex_lock(&lock);
	if (conn)
		memory = search(&conn->memories, key, address, size);
	if (!memory)
		memory = search(&everybodys, key, address, size);
	pthread_mutex_unlock(&lock);
	return memory;
}

struct memory *memory_find(RdmaConn *conn, const void *data, size_t size)
{
	return memory_find_key(conn, 0, (uint64_t)(uintptr_t)data, size);
}

unsigned memory_rights(const struct rmr_device *device, bool is_arena)
{
	unsigned can = rmr_device_info(device)->capabilities;
	unsigned needed = is_arena ? RMR_CAP_ATOMIC : RMR_CAP_ATOMIC_PLAIN;

	return RMR_READ | RMR_WRITE | (can & needed ? RMR_ATOMIC : 0);
}

static enum rmr_status open_part(struct memory *memory, const struct lane *lane, uint8_t *base,
				 size_t size, struct part **result)
{
	struct part *part = calloc(1, sizeof(*part));
	unsigned rights = memory_rights(lane->device, true);
	enum rmr_status status;

	if (!part)
		return error_set(RMR_NO_MEMORY, "no memory for a region");
	/* Our own hold on the device: the piece may outlive the connection. */
	status = device_take(lane->device_name, &part->device);
	if (status != RMR_OK)
		goto free_part;
	if ((uintptr_t)base % 8)
		rights &= ~(unsigned)RMR_ATOMIC;
	status = rmr_region_open(part->device, base, size, rights, &part->region);
	if (status != RMR_OK)
		goto give_device;
	part->base = base;
	part->size = size;
	list_add_tail(&memory->regions, &part->link);
	*result = part;
	return RMR_OK;

give_device:
	device_give(part->device);
free_part:
	free(part);
	return status;
}

static enum rmr_status find_part(struct memory *memory, const struct lane *lane, uint8_t *base,
				 size_t size, struct rmr_region **region)
{
	struct part *found = NULL;
	enum rmr_status status = RMR_OK;

	pthread_mutex_lock(&lock);
	list_for_each (at, &memory->regions) {
		struct part *part = list_entry(at, struct part, link);

		if (part->device == lane->device && part->base == base && part->size == size) {
			found = part;
			break;
		}
	}
	if (!found)
		status = open_part(memory, lane, base, size, &found);
	pthread_mutex_unlock(&lock);
	if (status == RMR_OK)
		*region = found->region;
	return status;
}

enum rmr_status memory_region(struct memory *memory, const struct lane *lane,
			      struct rmr_region **region)
{
	return find_part(memory, lane, memory->base, memory->size, region);
}

enum rmr_status memory_expose(struct memory *memory, const struct lane *lane, void *data,
			      size_t size, struct rmr_region **region)
{
	return find_part(memory, lane, data, size, region);
}

void memory_set_exposed(struct memory *memory, bool is_exposed)
{
	pthread_mutex_lock(&lock);
	memory->exposures += is_exposed ? 1 : -1u;
	pthread_mutex_unlock(&lock);
}

void memory_free_all(RdmaConn *conn)
{
	while (!list_is_empty(&conn->memories)) {
		struct memory *memory = list_first_entry(&conn->memories, struct memory, link);

		list_remove(&memory->link);
		destroy(memory);
	}
}

void *rdmaConnRegMem(RdmaConn *conn, size_t size)
{
	struct memory *memory;

	if (size == 0) {
		error_set(RMR_INVALID, "no memory of 0 bytes");
		easy_fail();
		return NULL;
	}
	memory = create(size);
	if (!memory) {
		easy_fail();
		return NULL;
	}
	pthread_mutex_lock(&lock);
	list_add(conn ? &conn->memories : &everybodys, &memory->link);
	pthread_mutex_unlock(&lock);
	return memory->base;
}

int rdmaConnDeregMem(RdmaConn *conn, void *data)
{
	struct memory *memory;

	pthread_mutex_lock(&lock);
	memory = search(conn ? &conn->memories : &everybodys, 0, (uint64_t)(uintptr_t)data, 1);
	if (!memory || memory->base != data) {
		pthread_mutex_unlock(&lock);
		error_set(RMR_INVALID, "%p is not what rdmaConnRegMem() returned for this one",
			  data);
		return easy_fail();
	}
	if (memory->exposures) {
		pthread_mutex_unlock(&lock);
		error_set(RMR_INVALID, "it is exposed: close those connections first");
		return easy_fail();
	}
	list_remove(&memory->link);
	pthread_mutex_unlock(&lock);
	destroy(memory);
	return RDMA_OK;
}

/* ------------------------------------------------------------------------------------------
 * What peers are told
 */

static bool exists(RdmaConn *conn, uint32_t key)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	list_for_each (at, &conn->memories)
		found |= list_entry(at, struct memory, link)->key == key;
	list_for_each (at, &everybodys)
		found |= list_entry(at, struct memory, link)->key == key;
	pthread_mutex_unlock(&lock);
	return found;
}

static void drop(struct telling *telling)
{
	list_remove(&telling->link);
	free(telling);
}

/* The peer has to forget what is gone. */
static void sweep(RdmaConn *conn)
{
	list_for_each_safe (at, &conn->tellings) {
		struct telling *telling = list_entry(at, struct telling, link);

		if (exists(conn, telling->key))
			continue;
		if (telling->state == TELLING_NEW) {
			drop(telling);
			continue;
		}
		telling->state = TELLING_GONE;
		conn->has_tellings = true;
	}
}

static enum rmr_status remember(RdmaConn *conn, uint32_t key)
{
	struct telling *telling;

	list_for_each (at, &conn->tellings) {
		if (list_entry(at, struct telling, link)->key == key)
			return RMR_OK;
	}
	telling = calloc(1, sizeof(*telling));
	if (!telling)
		return error_set(RMR_NO_MEMORY, "no memory for a key");
	telling->key = key;
	list_add_tail(&conn->tellings, &telling->link);
	conn->has_tellings = true;
	return RMR_OK;
}

void memory_tell_again(RdmaConn *conn)
{
	list_for_each_safe (at, &conn->tellings) {
		struct telling *telling = list_entry(at, struct telling, link);

		if (telling->state == TELLING_GONE)
			drop(telling);
		else
			telling->state = TELLING_NEW;
	}
	conn->has_tellings = !list_is_empty(&conn->tellings);
}

void memory_forget_tellings(RdmaConn *conn)
{
	while (!list_is_empty(&conn->tellings))
		drop(list_first_entry(&conn->tellings, struct telling, link));
}

static struct memory *find_told(RdmaConn *conn, uint32_t key)
{
	struct memory *memory = NULL;

	pthread_mutex_lock(&lock);
	list_for_each (at, &conn->memories) {
		if (list_entry(at, struct memory, link)->key == key)
			memory = list_entry(at, struct memory, link);
	}
	list_for_each (at, &everybodys) {
		if (list_entry(at, struct memory, link)->key == key)
			memory = list_entry(at, struct memory, link);
	}
	pthread_mutex_unlock(&lock);
	return memory;
}

/* Puts the notice for one piece; there is room. RMR_AGAIN: the peer takes no grant now. */
static enum rmr_status tell(RdmaConn *conn, struct link *link, struct telling *telling)
{
	struct memory *memory = find_told(conn, telling->key);
	struct memory_notice notice;
	struct rmr_region *region;
	enum rmr_status status;

	if (!memory && telling->state == TELLING_NEW) {
		drop(telling); /* it never heard of it */
		return RMR_OK;
	}
	if (telling->state == TELLING_GONE) {
		memory_withdraw(telling->key, &notice);
		out_put(link, RECORD_NOTICE, 0, &notice, sizeof(notice));
		drop(telling);
		return RMR_OK;
	}
	status = memory_region(memory, link->lane, &region);
	if (status == RMR_OK)
		status = memory_announce(region, link->fabric, telling->key, memory->base,
					 memory->size, &notice);
	if (status != RMR_OK)
		return status;
	out_put(link, RECORD_NOTICE, 0, &notice, sizeof(notice));
	telling->state = TELLING_TOLD;
	return RMR_OK;
}

/* As far as it goes. RMR_AGAIN: no room, or the peer takes no grant now. */
static enum rmr_status tell_all(RdmaConn *conn, struct link *link)
{
	list_for_each_safe (at, &conn->tellings) {
		struct telling *telling = list_entry(at, struct telling, link);
		enum rmr_status status;

		if (telling->state == TELLING_TOLD)
			continue;
		if (!out_has_room(link, sizeof(struct memory_notice)))
			return RMR_AGAIN;
		status = tell(conn, link, telling);
		if (status != RMR_OK)
			return status;
	}
	conn->has_tellings = false;
	return RMR_OK;
}

enum rmr_status memory_tell(RdmaConn *conn, struct link *link)
{
	enum rmr_status status = conn->has_tellings ? tell_all(conn, link) : RMR_OK;

	link->has_to_tell = false;
	if (status != RMR_AGAIN)
		return status;
	if (!out_has_room(link, sizeof(struct memory_notice))) {
		out_want(link, sizeof(struct memory_notice));
		return status;
	}
	/* Nobody tells us when the peer takes grants again: the runtime tries, and then says that
	 * it can be sent to. */
	link->has_to_tell = true;
	if (list_is_empty(&link->dirty_link))
		list_add_tail(&link->lane->dirty, &link->dirty_link);
	return status;
}

bool memory_try_to_tell(struct link *link)
{
	struct lane *lane = link->lane;

	if (!link->has_to_tell || link->is_ended || link->is_leaving)
		return true;
	if (lane->event_count == LANE_EVENTS)
		return false;
	/* What fails for good fails the program's next send. */
	if (memory_tell(link->conn, link) != RMR_AGAIN && !link->is_sendable) {
		link->is_sendable = true;
		lane_push(lane, link, EVENT_SENDABLE, 0);
	}
	return !link->has_to_tell;
}

/* Tells of it at once if it is connected, so that who asks hears when that cannot be. If it only
 * takes time, messages wait for it. */
static enum rmr_status tell_now(RdmaConn *conn, uint32_t key)
{
	struct link *link = conn_link(conn);
	enum rmr_status status;

	if (!link || !conn->has_tellings)
		return RMR_OK;
	status = tell_all(conn, link);
	if (status == RMR_OK || status == RMR_AGAIN) {
		out_touch(link);
		lane_leave(link->lane);
		return RMR_OK;
	}
	if (status == RMR_DISCONNECTED)
		return RMR_OK; /* just lost: the next peer is told */
	/* The peer does not know of it, and is not to: the keys are not handed out. */
	list_for_each_safe (at, &conn->tellings) {
		struct telling *telling = list_entry(at, struct telling, link);

		if (telling->key == key && telling->state == TELLING_NEW)
			drop(telling);
	}
	return status;
}

int rdmaConnMemInfo(RdmaConn *conn, const void *data, RdmaMemInfo *info)
{
	struct memory *memory = memory_find(conn, data, 1);
	struct lane *lane = conn->lane;
	enum rmr_status status;

	if (!memory) {
		error_set(RMR_INVALID, "%p lies in no memory of rdmaConnRegMem()", data);
		return easy_fail();
	}
	lane_lock_take(&lane->lock);
	sweep(conn);
	status = remember(conn, memory->key);
	if (status == RMR_OK)
		status = tell_now(conn, memory->key);
	lane_lock_give(&lane->lock);
	if (status != RMR_OK)
		return easy_fail();
	*info = (RdmaMemInfo){.addr = (uint64_t)(uintptr_t)data,
			      .length =
				      memory->size - (size_t)((const uint8_t *)data - memory->base),
			      .lkey = memory->key,
			      .rkey = memory->key};
	return RDMA_OK;
}

int rdmaConnExpose(RdmaConn *conn, void *data, size_t size)
{
	struct memory *memory = memory_find(conn, data, size);
	struct lane *lane = conn->lane;
	bool is_late;

	lane_lock_take(&lane->lock);
	is_late = conn->link ? conn->link->is_introduced : atomic_load(&conn->state) != CONN_IDLE;
	if (!is_late && data && size) {
		if (conn->space.memory)
			memory_set_exposed(conn->space.memory, false);
		conn->space.data = data;
		conn->space.size = size;
		conn->space.memory = memory;
		if (memory)
			memory_set_exposed(memory, true);
	}
	lane_lock_give(&lane->lock);
	if (!is_late && data && size)
		return RDMA_OK;
	error_set(RMR_INVALID, is_late ? "expose memory before rdmaConnect(), or in the accept "
					 "callback: it is connected by now"
				       : "there is no memory to expose");
	return easy_fail();
}
