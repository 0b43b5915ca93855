/*
 * Access to registered memory, by us for our peers and by us for ourselves, safe against
 * rmr_region_close in another thread.
 *
 * A device has a table of slots that lives as long as it does. A region is a slot and a random
 * key; code that touches memory names both:
 *
 *	if (!region_enter(slot, key))
 *		-> the region is closed, or there never was one
 *	... one system call or memcpy within slot->address, slot->length ...
 *	region_leave(slot);
 *
 * Closing sets the key to 0 and waits until nobody is inside. Since slots are never freed,
 * nothing has to be counted for operations that take long: they keep slot and key, and enter
 * again for each piece. Detaching moves the region to a copy, under those that hold addresses of
 * it: these are names, and region_now() tells where the byte is. Only what is in the hands of a
 * library of others pins a region for longer (region_pin).
 *
 * That key stays in this process. A peer names a region by a key that is derived from it and from
 * the secret of the peer's connection (key_derive), so the key holds on that connection only;
 * region_enter_granted checks it.
 */
#ifndef FABRIC_TCP_REGION_H
#define FABRIC_TCP_REGION_H

#include <pthread.h>

#include "fabric/provider.h"

struct region_slot {
	_Alignas(64) _Atomic uint64_t key; /* 0: none */
	_Atomic uint32_t active;	   /* threads inside, and what has it pinned */
	uint32_t next_free;		   /* while it has no region; guarded by the table's lock */
	unsigned rights;
	uint8_t *address;
	size_t length;
	_Atomic uintptr_t shift; /* from an address of the region to where the byte is now */
};

struct region_table {
	struct region_slot *slots; /* mapped: pages that are never used cost nothing */
	pthread_mutex_t lock;	   /* guards the two below; not taken to enter */
	uint32_t used;		   /* slots above were never used */
	uint32_t first_free;	   /* index + 1; 0: none */
};

struct tcp_region {
	struct rmr_region base;
	struct region_slot *slot;
	uint64_t key;
	uint16_t index;
};

struct tcp_remote {
	struct rmr_remote base;
	uint64_t key;
	uint16_t index;
};

enum rmr_status region_table_init(struct region_table *table);
void region_table_fini(struct region_table *table);

enum rmr_status tcp_region_init(struct rmr_region *region);
void tcp_region_fini(struct rmr_region *region);
void tcp_region_detach(struct rmr_region *region, void *copy);
/* The three steps of it: from now on nobody gets in; is somebody still inside; the end. */
void region_shut(struct tcp_region *region);
bool region_is_used(const struct tcp_region *region);
void region_free(struct tcp_region *region);
enum rmr_status tcp_region_export(struct rmr_region *region, struct rmr_conn *conn,
				  struct descriptor_wire *wire);
enum rmr_status tcp_remote_init(struct rmr_remote *remote, const struct descriptor_wire *wire);
void tcp_remote_fini(struct rmr_remote *remote);

/* To the program, what happens to its memory in here is what a network adapter would do: it is not
 * synchronized with its own accesses, and by contract need not be. The thread sanitizer cannot know
 * that, so it is told to look away while somebody is inside, and while a library of others is at
 * it on our behalf. */
#if defined(__SANITIZE_THREAD__)
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#else
#define AnnotateIgnoreReadsBegin(file, line)  ((void)0)
#define AnnotateIgnoreReadsEnd(file, line)    ((void)0)
#define AnnotateIgnoreWritesBegin(file, line) ((void)0)
#define AnnotateIgnoreWritesEnd(file, line)   ((void)0)
#endif

static inline void as_adapter_begin(void)
{
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static inline void as_adapter_end(void)
{
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

static inline void region_leave(struct region_slot *slot)
{
	as_adapter_end();
	/* Release: our accesses are over before the closer, who reads it by acquire, goes on. */
	atomic_fetch_sub_explicit(&slot->active, 1, memory_order_release);
}

/* True: the memory stays until region_leave.
 *
 * Dekker's argument: we count ourselves in, then look at the key; the closer takes the key away,
 * then looks at the count; all four are sequentially consistent. In their single order either our
 * count comes before the closer's look, and he waits; or his store comes before our look, and
 * we turn back. The fields beside the key were written before the key was stored, and are written
 * again only after the count was seen to be 0 with the key gone. */
static inline bool region_enter(struct region_slot *slot, uint64_t key)
{
	atomic_fetch_add_explicit(&slot->active, 1, memory_order_seq_cst);
	as_adapter_begin();
	if (__builtin_expect(
		    key != 0 && atomic_load_explicit(&slot->key, memory_order_seq_cst) == key, 1))
		return true;
	region_leave(slot);
	return false;
}

/* The same on behalf of a peer, which names the region by the key that its connection was given. On
 * success *key is the region's own, for entering again. */
static inline bool region_enter_granted(struct region_slot *slot, const struct key_secret *secret,
					uint64_t granted, uint64_t *key)
{
	/* As in region_enter. */
	atomic_fetch_add_explicit(&slot->active, 1, memory_order_seq_cst);
	as_adapter_begin();
	*key = atomic_load_explicit(&slot->key, memory_order_seq_cst);
	/* A connection to which nothing was exported has no secret yet. */
	if (__builtin_expect(
		    *key != 0 && secret->word[0] != 0 && key_derive(secret, *key) == granted, 1))
		return true;
	region_leave(slot);
	return false;
}

/* The same for what lasts longer, and for no thread in particular. Whoever holds a region must be
 * able to let go of it when it is closed. */
static inline bool region_pin(struct region_slot *slot, uint64_t key)
{
	/* As in region_enter. */
	atomic_fetch_add_explicit(&slot->active, 1, memory_order_seq_cst);
	if (key != 0 && atomic_load_explicit(&slot->key, memory_order_seq_cst) == key)
		return true;
	atomic_fetch_sub_explicit(&slot->active, 1, memory_order_release);
	return false;
}

static inline void region_unpin(struct region_slot *slot)
{
	atomic_fetch_sub_explicit(&slot->active, 1, memory_order_release);
}

/* Once inside: where the byte at this address of the region is now; valid until region_leave.
 *
 * Sequentially consistent, for the same argument as region_enter: we count ourselves in, then look
 * at the shift; who detaches stores the shift, then looks at the count. */
static inline uint8_t *region_now(const struct region_slot *slot, const uint8_t *address)
{
	return (uint8_t *)((uintptr_t)address +
			   atomic_load_explicit(&slot->shift, memory_order_seq_cst));
}

/* Once inside: do offset and length lie in the region, and does it grant the rights? */
static inline bool region_covers(const struct region_slot *slot, uint64_t offset, uint64_t length,
				 unsigned rights)
{
	return offset <= slot->length && length <= slot->length - offset &&
	       (slot->rights & rights) == rights;
}

#endif
