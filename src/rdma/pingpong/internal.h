/*
 * Ping-pong: <remora/pingpong.h> on the public fabric.
 *
 *	connect.c	listeners, and the life of a context
 *	message.c	what travels by SEND: packets, FINs, news of memory; and waiting
 *	memory.c	memory that the peer may use
 *	transfer.c	reads and writes of the peer's, found by ../peer_memory.h
 *
 * A context has a queue of its own with one connection on it, and no thread: whoever calls takes
 * what has come in meanwhile. All of a context runs in the thread that calls.
 *
 *	caller -- send_packet -------> send buffer -- SEND --> one of the peer's slots
 *	       <- receive_packet ----- kept slots <-- SEND --- the peer
 *	       -- send_RDMA_write ---> bounce ------ WRITE --> its registered memory
 *	       <- send_RDMA_read ----- bounce <----- READ ----- the same
 *
 * What is registered is registered once: the send buffer and the bounce buffer when the context is
 * made, the caller's memory by RDMA_register(). A transfer registers nothing.
 *
 * A packet stays in its receive slot until the caller wants it, so the slots bound how many can
 * wait; a FIN and news of memory are dealt with at once.
 */
#ifndef RDMA_PINGPONG_INTERNAL_H
#define RDMA_PINGPONG_INTERNAL_H

#include <assert.h>

#include <remora/fabric.h>
#include <remora/pingpong.h>

#include "rdma/peer_memory.h"

/* ------------------------------------------------------------------------------------------
 * Wire. Numbers are in the sender's byte order; the hello tells who has another one.
 */
#define HELLO_MAGIC   0x676e6f70676e6970u /* "pingpong" */
#define HELLO_VERSION 1

/* Travels as private data, from both. */
struct hello {
	uint64_t magic;
	uint32_t version;
	uint32_t data_max;
};
static_assert(sizeof(struct hello) <= RMR_PRIVATE_MAX, "fits");

enum message_kind {
	MESSAGE_PACKET = 1,
	MESSAGE_FIN,	/* nothing but the kind */
	MESSAGE_MEMORY, /* news of memory: the data is a struct memory_notice */
};

/* A SEND is a head and `length` bytes of data, no more and no less. */
struct message {
	uint32_t kind;
	uint32_t type;
	uint32_t key;
	uint32_t length;
	uint64_t addr;
	uint64_t size;
	uint8_t data[];
};
static_assert(sizeof(struct message) == 32, "travels as such");

#define MESSAGE_MAX   (sizeof(struct message) + PINGPONG_DATA_MAX)
#define MESSAGE_SLOT  ((MESSAGE_MAX + 63u) & ~63u)
#define BOUNCE_CHUNK  (256u << 10)
#define BOUNCE_CHUNKS 2u

/* ------------------------------------------------------------------------------------------
 * Context
 */

/* Memory of ours that the peer may use. */
struct own_memory {
	struct own_memory *next;
	struct rmr_arena *arena;
	struct rmr_region *region;
	struct memory_notice notice;
	bool is_told; /* the peer knows of it */
};

struct PingpongState {
	PingpongContext context; /* what the caller has */
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn; /* NULL: broken off */
	struct rmr_arena *buffers;
	struct rmr_region *buffers_region;
	uint8_t *send_buffer;
	uint8_t *bounce; /* BOUNCE_CHUNKS times chunk */
	size_t chunk;
	uint64_t posted, done; /* works of ours */

	enum rmr_status lost; /* RMR_OK: it is not. Nothing more is posted */
	bool is_over;	      /* and nothing more comes in */
	char reason[256];

	void *kept[PINGPONG_KEPT_MAX]; /* packets, a ring from first_kept on */
	unsigned first_kept, kept_count;
	uint64_t fins; /* that nobody asked for yet */

	struct own_memory *own;
	unsigned own_count;
	struct peer_memory theirs;
};

/* What a public function returns for a status. */
static inline int pingpong_result(enum rmr_status status)
{
	return status != RMR_OK;
}

/* RMR_INVALID for a context that is none. */
enum rmr_status pingpong_check(const PingpongContext *ctx);
/* RMR_OK, or why nothing can be posted any more. */
enum rmr_status pingpong_check_alive(const PingpongContext *ctx);
/* Notes that the connection is lost, and why: the message of this thread. Returns the status. */
enum rmr_status pingpong_lose(struct PingpongState *state, enum rmr_status status);
/* The same, and ends it from this side. */
enum rmr_status pingpong_break_off(struct PingpongState *state, enum rmr_status status);

/* Takes one thing that has happened; waits up to timeout_ms for it. False: nothing has. */
bool pingpong_poll(struct PingpongState *state, int timeout_ms);
/* Takes what is there. */
void pingpong_poll_all(struct PingpongState *state);
/* Posts a work. Then waits until no more than so many are in flight; deadline_ns is for both. A
 * deadline that passes breaks the connection off: nobody knows then what was done. */
enum rmr_status pingpong_post(struct PingpongState *state, const struct rmr_work *work,
			      uint64_t deadline_ns);
enum rmr_status pingpong_finish(struct PingpongState *state, unsigned in_flight,
				uint64_t deadline_ns);

/* Sends a message, whose data is apart; returns when it is there. */
enum rmr_status pingpong_send(struct PingpongState *state, const struct message *head,
			      const void *data, uint64_t deadline_ns);

/* Tells the peer of memory that it does not know of yet. */
enum rmr_status pingpong_tell_memory(struct PingpongState *state, uint64_t deadline_ns);
/* Frees what is registered. The connection is closed. */
void pingpong_free_memory(struct PingpongState *state);

#endif
