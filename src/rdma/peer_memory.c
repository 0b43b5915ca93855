/* Memory of a peer: see peer_memory.h. */
#include "rdma/peer_memory.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct entry {
	struct list link; /* in its bucket */
	uint32_t key;
	enum rmr_status status; /* RMR_OK: it can be used */
	uint64_t address, length;
	struct rmr_remote *remote; /* NULL: it cannot */
};

uint32_t memory_new_key(void)
{
	static atomic_uint last;
	uint32_t key;

	/* Relaxed: that no two are the same is all that matters. */
	do
		key = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
	while (key == 0);
	return key;
}

enum rmr_status memory_announce(struct rmr_region *region, struct rmr_conn *conn, uint32_t key,
				const void *address, size_t length, struct memory_notice *notice)
{
	struct memory_notice made = {
		.key = key, .address = (uint64_t)(uintptr_t)address, .length = length};
	enum rmr_status status = rmr_region_export(region, conn, &made.descriptor);

	if (status == RMR_OK)
		*notice = made;
	return status;
}

void memory_withdraw(uint32_t key, struct memory_notice *notice)
{
	*notice = (struct memory_notice){.key = key, .is_withdrawn = 1};
}

void peer_memory_init(struct peer_memory *memory)
{
	for (unsigned i = 0; i < PEER_MEMORY_BUCKETS; i++)
		list_init(&memory->buckets[i]);
	memory->count = 0;
}

static void drop(struct peer_memory *memory, struct entry *entry, bool is_open)
{
	list_remove(&entry->link);
	memory->count--;
	if (is_open)
		rmr_remote_close(entry->remote);
	free(entry);
}

static void drop_all(struct peer_memory *memory, bool is_open)
{
	for (unsigned i = 0; memory->count > 0 && i < PEER_MEMORY_BUCKETS; i++) {
		list_for_each_safe (at, &memory->buckets[i])
			drop(memory, list_entry(at, struct entry, link), is_open);
	}
}

void peer_memory_fini(struct peer_memory *memory)
{
	drop_all(memory, true);
}

void peer_memory_forget(struct peer_memory *memory)
{
	drop_all(memory, false);
}

static struct entry *look_up(const struct peer_memory *memory, uint32_t key)
{
	const struct list *bucket = &memory->buckets[key % PEER_MEMORY_BUCKETS];

	list_for_each (at, bucket) {
		struct entry *entry = list_entry(at, struct entry, link);

		if (entry->key == key)
			return entry;
	}
	return NULL;
}

/* Opens the remote that an entry stands for. */
static enum rmr_status open_remote(struct entry *entry, struct rmr_conn *conn,
				   const struct rmr_descriptor *descriptor)
{
	entry->status = rmr_remote_open(conn, descriptor, &entry->remote);
	if (entry->status == RMR_INVALID)
		return error_set(RMR_PROTOCOL, "the peer announces memory by a bad descriptor");
	if (entry->status != RMR_OK) {
		entry->remote = NULL;
		return RMR_OK;
	}
	if (rmr_remote_length(entry->remote) == entry->length)
		return RMR_OK;
	rmr_remote_close(entry->remote);
	return error_set(RMR_PROTOCOL, "the peer announces %" PRIu64 " bytes where there are not",
			 entry->length);
}

static enum rmr_status add(struct peer_memory *memory, struct rmr_conn *conn,
			   const struct memory_notice *notice)
{
	struct entry *entry;
	enum rmr_status status;

	if (memory->count == PEER_MEMORY_MAX)
		return error_set(RMR_PROTOCOL, "the peer announces more than %u pieces of memory",
				 PEER_MEMORY_MAX);
	if (notice->length == 0 || notice->address + notice->length < notice->address)
		return error_set(RMR_PROTOCOL, "the peer announces memory that cannot be");
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return error_set(RMR_NO_MEMORY, "no memory for a peer's key");
	entry->key = notice->key;
	entry->address = notice->address;
	entry->length = notice->length;
	status = open_remote(entry, conn, &notice->descriptor);
	if (status != RMR_OK) {
		free(entry);
		return status;
	}
	list_add(&memory->buckets[entry->key % PEER_MEMORY_BUCKETS], &entry->link);
	memory->count++;
	return RMR_OK;
}

enum rmr_status peer_memory_take(struct peer_memory *memory, struct rmr_conn *conn,
				 const void *bytes, size_t length)
{
	struct memory_notice notice;
	struct entry *entry;

	if (length != sizeof(notice))
		return error_set(RMR_PROTOCOL, "%zu bytes are no notice of memory", length);
	memcpy(&notice, bytes, sizeof(notice)); /* the peer may change them while we look */
	if (notice.key == 0 || notice.is_withdrawn > 1)
		return error_set(RMR_PROTOCOL, "this is no notice of memory");
	entry = look_up(memory, notice.key);
	if (!notice.is_withdrawn)
		return entry ? error_set(RMR_PROTOCOL, "the peer announces key %u twice",
					 notice.key)
			     : add(memory, conn, &notice);
	if (!entry)
		return error_set(RMR_PROTOCOL,
				 "the peer withdraws key %u, which it never announced", notice.key);
	drop(memory, entry, true);
	return RMR_OK;
}

enum rmr_status peer_memory_find(const struct peer_memory *memory, uint32_t key, uint64_t address,
				 uint64_t length, unsigned rights, struct rmr_remote **remote,
				 uint64_t *offset)
{
	const struct entry *entry = look_up(memory, key);

	if (!entry)
		return error_set(RMR_ACCESS, "the peer has announced no memory with key %u", key);
	/* In this order nothing can overflow. */
	if (address < entry->address || address - entry->address > entry->length ||
	    length > entry->length - (address - entry->address))
		return error_set(RMR_ACCESS,
				 "%" PRIu64 " bytes at 0x%" PRIx64 " do not lie in the %" PRIu64
				 " at 0x%" PRIx64 " that key %u is for",
				 length, address, entry->length, entry->address, key);
	if (!entry->remote)
		return error_set(entry->status, "the memory of key %u cannot be used from here",
				 key);
	if (rights & ~rmr_remote_rights(entry->remote))
		return error_set(RMR_ACCESS, "the peer does not grant that on key %u", key);
	*remote = entry->remote;
	*offset = address - entry->address;
	return RMR_OK;
}
