/*
 * The table of regions: opening, closing, exporting. See region.h for how memory is entered.
 *
 * Any thread may open and close; a mutex guards the free list. Lookup takes no lock: the index
 * comes from the wire, is 16 bits, and the table has that many slots, so every index is a slot.
 * What protects a region is its key. Exporting the region tells the peer a key that is derived from
 * it for this connection: 64 bits that look random to every other peer. A wrong guess costs the
 * peer its connection.
 */
#include "fabric/tcp/region.h"

#include <errno.h>
#include <sched.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/tcp/internal.h"
#include "fabric/tcp/limits.h"

static_assert(TCP_REGIONS_MAX == 1u << 16, "every 16-bit index is a slot");

static const size_t table_size = TCP_REGIONS_MAX * sizeof(struct region_slot);

enum rmr_status region_table_init(struct region_table *table)
{
	table->slots = mmap(NULL, table_size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (table->slots == MAP_FAILED) {
		table->slots = NULL;
		return error_errno(RMR_NO_MEMORY, errno, "no memory for the table of regions");
	}
	pthread_mutex_init(&table->lock, NULL);
	return RMR_OK;
}

void region_table_fini(struct region_table *table)
{
	if (!table->slots)
		return;
	pthread_mutex_destroy(&table->lock);
	munmap(table->slots, table_size);
	table->slots = NULL;
}

/* A slot without a region. The core has checked that there is one. */
static struct region_slot *take_slot(struct region_table *table)
{
	struct region_slot *slot;

	pthread_mutex_lock(&table->lock);
	if (table->first_free) {
		slot = &table->slots[table->first_free - 1];
		table->first_free = slot->next_free;
	} else {
		assert(table->used < TCP_REGIONS_MAX);
		slot = &table->slots[table->used++];
	}
	pthread_mutex_unlock(&table->lock);
	return slot;
}

enum rmr_status tcp_region_init(struct rmr_region *base)
{
	struct tcp_region *region = (struct tcp_region *)base;
	struct region_table *table = &tcp_device_of(base->device)->regions;
	struct region_slot *slot;
	enum rmr_status status = key_random(&region->key);

	if (status != RMR_OK)
		return status;
	slot = take_slot(table);
	slot->address = base->address;
	slot->length = base->length;
	slot->rights = base->rights;
	/* Relaxed: the key, which is stored last, lets in those who read it. */
	atomic_store_explicit(&slot->shift, 0, memory_order_relaxed);
	region->slot = slot;
	region->index = (uint16_t)(slot - table->slots);
	/* The key opens the slot; see region_enter. */
	atomic_store_explicit(&slot->key, region->key, memory_order_seq_cst);
	return RMR_OK;
}

/* See region_enter. */
void region_shut(struct tcp_region *region)
{
	atomic_store_explicit(&region->slot->key, 0, memory_order_seq_cst);
}

bool region_is_used(const struct tcp_region *region)
{
	return atomic_load_explicit(&region->slot->active, memory_order_seq_cst) != 0;
}

void region_free(struct tcp_region *region)
{
	struct region_table *table = &tcp_device_of(region->base.device)->regions;

	pthread_mutex_lock(&table->lock);
	region->slot->next_free = table->first_free;
	table->first_free = region->index + 1u;
	pthread_mutex_unlock(&table->lock);
}

/* Returns when everybody who was inside has left: none stays for longer than one non-blocking
 * system call. */
static void wait_until_unused(const struct tcp_region *region)
{
	for (unsigned rounds = 0; region_is_used(region); rounds++) {
		if (rounds < 64)
			cpu_relax();
		else
			sched_yield();
	}
}

void tcp_region_detach(struct rmr_region *base, void *copy)
{
	struct tcp_region *region = (struct tcp_region *)base;

	/* Who comes in from now on uses the copy: see region_now. */
	atomic_store_explicit(&region->slot->shift, (uintptr_t)copy - (uintptr_t)base->address,
			      memory_order_seq_cst);
	wait_until_unused(region);
}

void tcp_region_fini(struct rmr_region *base)
{
	struct tcp_region *region = (struct tcp_region *)base;

	region_shut(region); /* who comes in now turns back at once */
	wait_until_unused(region);
	region_free(region);
}

/* Gives the connection its secret, before the first region is exported to its peer. */
static enum rmr_status draw_secret(struct tcp_conn *conn)
{
	struct key_secret secret;
	enum rmr_status status = key_random(&secret.word[0]);

	if (status == RMR_OK)
		status = key_random(&secret.word[1]);
	if (status != RMR_OK)
		return status;
	queue_lock(tcp_queue_of(conn)); /* the helper may serve the peer meanwhile */
	conn->secret = secret;
	queue_unlock(tcp_queue_of(conn));
	return RMR_OK;
}

enum rmr_status tcp_region_export(struct rmr_region *base, struct rmr_conn *base_conn,
				  struct descriptor_wire *wire)
{
	const struct tcp_region *region = (const struct tcp_region *)base;
	struct tcp_conn *conn = (struct tcp_conn *)base_conn;
	enum rmr_status status = RMR_OK;

	/* Only the owner of the connection, which is the caller, writes the secret. */
	if (conn->secret.word[0] == 0)
		status = draw_secret(conn);
	if (status != RMR_OK)
		return status;
	wire->key = key_derive(&conn->secret, region->key);
	wire->word[0] = region->index;
	return RMR_OK;
}

enum rmr_status tcp_remote_init(struct rmr_remote *base, const struct descriptor_wire *wire)
{
	struct tcp_remote *remote = (struct tcp_remote *)base;

	if (wire->word[0] >= TCP_REGIONS_MAX || wire->length == 0)
		return error_set(RMR_INVALID, "the descriptor is damaged");
	/* Length and rights are claims; the peer checks each access against the truth. */
	remote->key = wire->key;
	remote->index = (uint16_t)wire->word[0];
	return RMR_OK;
}

void tcp_remote_fini(struct rmr_remote *remote)
{
	(void)remote;
}
