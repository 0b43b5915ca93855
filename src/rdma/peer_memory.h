/*
 * Memory of a peer, by 32-bit keys.
 *
 * A program that never saw verbs names remote memory by an address and a key, as the peer told it:
 * "write to 0x7f12a0000040, key 17". The fabric wants a handle and an offset. This is the table
 * between the two. Who registers memory announces it to the peer by a notice, which travels as
 * whoever uses this likes, before anything that tells the peer's program of the key:
 *
 *	owner					peer
 *	-----					----
 *	memory_announce -> notice  ---------->	peer_memory_take
 *	(address and key, by the program) --->	peer_memory_find(key, address, length) -> remote
 *	memory_withdraw -> notice  ---------->	peer_memory_take: the key is gone
 *
 * A key is a name and no secret: what may be accessed was granted by the fabric, to this connection
 * alone. Notices come from the peer, so everything in them is checked; a range that is not all
 * inside what was announced is refused here, before it could cost the connection.
 *
 * No locking: the table belongs to who owns the connection. The remotes in it die with the
 * connection; call peer_memory_fini before closing that, or peer_memory_forget after it.
 */
#ifndef RDMA_PEER_MEMORY_H
#define RDMA_PEER_MEMORY_H

#include <assert.h>
#include <remora/fabric.h>

#include "base/list.h"

/* The bytes of a notice. Both ends are little endian. */
struct memory_notice {
	uint32_t key; /* not 0 */
	uint32_t is_withdrawn;
	uint64_t address; /* as the owner knows it */
	uint64_t length;
	struct rmr_descriptor descriptor;
};
static_assert(sizeof(struct memory_notice) == 88, "travels as such");

/* A peer that announces more than this breaks the rules. */
#define PEER_MEMORY_MAX	    4096u
#define PEER_MEMORY_BUCKETS 64u

struct peer_memory {
	struct list buckets[PEER_MEMORY_BUCKETS];
	unsigned count;
};

/* A key for memory of this process that no other memory of it has had yet (but for two that are
 * four billion apart). Any thread. */
uint32_t memory_new_key(void);

/* Grants the peer of conn the use of region, and says so in notice. address is where the region
 * begins. As rmr_region_export(). */
RMR_MUST_CHECK enum rmr_status memory_announce(struct rmr_region *region, struct rmr_conn *conn,
					       uint32_t key, const void *address, size_t length,
					       struct memory_notice *notice);
/* The peer may forget it. */
void memory_withdraw(uint32_t key, struct memory_notice *notice);

void peer_memory_init(struct peer_memory *memory);
/* Closes all remotes. Legal on a zeroed one. */
void peer_memory_fini(struct peer_memory *memory);
/* The same for a connection that is closed already: its remotes are gone. */
void peer_memory_forget(struct peer_memory *memory);

/* Takes a notice of the peer of conn: bytes as they came, which need no alignment. RMR_PROTOCOL: it
 * is none, or says what cannot be. Memory that the system does not let us access is no breach: it
 * is kept, and peer_memory_find() says why it cannot be used. RMR_NO_MEMORY. */
RMR_MUST_CHECK enum rmr_status peer_memory_take(struct peer_memory *memory, struct rmr_conn *conn,
						const void *bytes, size_t length);

/* The remote and the offset in it of length bytes at address. RMR_ACCESS: no such key, the range is
 * not all inside, or the rights (enum rmr_right) do not cover it; the message says which. */
RMR_MUST_CHECK enum rmr_status peer_memory_find(const struct peer_memory *memory, uint32_t key,
						uint64_t address, uint64_t length, unsigned rights,
						struct rmr_remote **remote, uint64_t *offset);

#endif
