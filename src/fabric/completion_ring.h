/*
 * The ring that holds a queue's completions between the provider that makes them and rmr_poll.
 *
 * It never overflows: every connection reserves its depth and one for its end when it is attached,
 * and the queue reserves what can be received. So a push cannot fail, and no completion is lost.
 * Not thread-safe; a provider with a thread of its own locks around it.
 */
#ifndef FABRIC_COMPLETION_RING_H
#define FABRIC_COMPLETION_RING_H

#include <assert.h>

#include <remora/fabric.h>

struct completion_ring {
	struct rmr_completion *entries;
	uint32_t mask;	     /* capacity - 1; the capacity is a power of two */
	uint32_t head, tail; /* free-running: entries head..tail-1 are in it */
	uint32_t reserved;   /* what may be in it at most; never above the capacity */
};

/* Makes room for count more. Entries keep their order. */
enum rmr_status completion_ring_reserve(struct completion_ring *ring, uint32_t count);
/* Takes a reservation back. */
void completion_ring_unreserve(struct completion_ring *ring, uint32_t count);
void completion_ring_fini(struct completion_ring *ring);

/* Takes the entries of conn out; drop is called for each of them. */
void completion_ring_forget(struct completion_ring *ring, const struct rmr_conn *conn,
			    void (*drop)(void *context, const struct rmr_completion *entry),
			    void *context);

static inline bool completion_ring_is_empty(const struct completion_ring *ring)
{
	return ring->head == ring->tail;
}

/* Field by field: a struct assignment becomes wide loads of what was just written by narrow stores,
 * which seems to defeat store forwarding: an 8-byte READ on shm took 73 ns with it, 29 without. */
static inline void completion_copy(struct rmr_completion *to, const struct rmr_completion *from)
{
	to->conn = from->conn;
	to->cookie = from->cookie;
	to->op = from->op;
	to->status = from->status;
	to->data = from->data;
	to->length = from->length;
	to->immediate = from->immediate;
}

static inline void completion_ring_push(struct completion_ring *ring,
					const struct rmr_completion *completion)
{
	assert(ring->tail - ring->head < ring->reserved);
	completion_copy(&ring->entries[ring->tail++ & ring->mask], completion);
}

#endif
