/*
 * Registered memory, and descriptors of it.
 *
 * A region is one memory region of the adapter, with just the remote rights that were asked for.
 * Its key is the adapter's: 32 bits that hold for every queue pair of this device (of one
 * protection domain). That is what verbs offer; SECURITY.md says what follows from it. On top
 * of it, so that mistakes are caught before they reach the wire, a descriptor is sealed for its
 * connection: with a hash over all its bytes, seeded by a secret that the owner told the peer when
 * they met. A descriptor that was altered, or granted on another connection, is refused with
 * RMR_ACCESS by the peer's own library. (A peer that breaks the rules can skip this; the adapter
 * then still checks key, bounds and rights.)
 *
 * Large memory: what takes long is making the pages present, one fault each. So a large region that
 * is not an arena's prefaulted memory is touched by several threads before the one call that
 * registers it; splitting the registration itself would give a region several keys.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "fabric/verbs/internal.h"

#define TOUCH_THREADS 8
#define TOUCH_MIN     (64ul << 20) /* below this one thread is as fast */

struct touch {
	pthread_t thread;
	uint8_t *address;
	size_t length;
	bool started;
};

/* Makes pages present without changing them; writable, so that they need not be copied later. */
static void *touch_pages(void *argument)
{
	struct touch *touch = argument;

#ifdef MADV_POPULATE_WRITE
	(void)madvise(touch->address, touch->length, MADV_POPULATE_WRITE);
#endif
	return NULL;
}

/* Best effort: what is left undone here ibv_reg_mr does. */
static void touch_in_parallel(uint8_t *address, size_t length)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	size_t page = (size_t)sysconf(_SC_PAGESIZE), count, part, first;
	struct touch touches[TOUCH_THREADS] = {0};

	if (length < TOUCH_MIN || cores < 2)
		return;
	count = cores < TOUCH_THREADS ? (size_t)cores : TOUCH_THREADS;
	first = (page - (uintptr_t)address % page) % page;
	part = (length - first) / count / page * page;
	for (size_t i = 0; i < count; i++) {
		touches[i].address = address + first + i * part;
		touches[i].length = part;
		touches[i].started =
			pthread_create(&touches[i].thread, NULL, touch_pages, &touches[i]) == 0;
	}
	for (size_t i = 0; i < count; i++) {
		if (touches[i].started)
			pthread_join(touches[i].thread, NULL);
	}
}

static int access_flags(unsigned rights)
{
	int access = IBV_ACCESS_LOCAL_WRITE; /* READs of ours may land here; peers need more */

	if (rights & RMR_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	if (rights & RMR_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (rights & RMR_ATOMIC)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	return access;
}

enum rmr_status verbs_region_init(struct rmr_region *base)
{
	struct verbs_region *region = (struct verbs_region *)base;
	struct verbs_device *device = verbs_device_of(base->device);
	int access = access_flags(base->rights);

	touch_in_parallel(base->address, base->length);
	region->mr = ibv_reg_mr(device->pd, base->address, base->length, access);
	/* Memory that is mapped read-only can still be sent from, and read by peers. */
	if (!region->mr && errno == EFAULT && !(base->rights & (RMR_WRITE | RMR_ATOMIC)))
		region->mr = ibv_reg_mr(device->pd, base->address, base->length,
					access & ~IBV_ACCESS_LOCAL_WRITE);
	if (!region->mr)
		return doctor_register_failed(base->address, base->length, errno);
	region->lkey = region->mr->lkey;
	return RMR_OK;
}

void verbs_region_fini(struct rmr_region *base)
{
	struct verbs_region *region = (struct verbs_region *)base;

	/* Synchronous: afterwards the adapter does not touch the memory. Requests in flight that
	 * name the key fail. */
	(void)ibv_dereg_mr(region->mr);
	region->mr = NULL;
}

/* The hash over a descriptor but for its key, where the hash goes. */
static uint64_t seal_of(const struct descriptor_wire *wire, uint64_t secret)
{
	struct descriptor_wire bytes = *wire;

	bytes.key = 0;
	return hash64_seed(&bytes, sizeof(bytes), secret);
}

enum rmr_status verbs_region_export(struct rmr_region *base, struct rmr_conn *conn,
				    struct descriptor_wire *wire)
{
	struct verbs_region *region = (struct verbs_region *)base;

	wire->word[0] = (uintptr_t)base->address;
	wire->word[1] = region->mr->rkey;
	wire->key = seal_of(wire, ((struct verbs_conn *)conn)->my_secret);
	return RMR_OK;
}

enum rmr_status verbs_remote_init(struct rmr_remote *base, const struct descriptor_wire *wire)
{
	struct verbs_remote *remote = (struct verbs_remote *)base;
	const struct verbs_conn *conn = (const struct verbs_conn *)base->conn;

	if (wire->key != seal_of(wire, conn->peer_secret))
		return error_set(RMR_ACCESS,
				 "the descriptor was not granted on this connection, or altered");
	base->length = wire->length;
	base->rights = wire->rights;
	remote->address = wire->word[0];
	remote->rkey = (uint32_t)wire->word[1];
	return RMR_OK;
}

void verbs_remote_fini(struct rmr_remote *remote)
{
	(void)remote;
}
