/*
 * The mesh: what its files share.
 *
 *	wire.h		bytes that travel
 *	mesh.c		opening, closing, what a mesh can be asked
 *	options.c	options checked, defaults filled in, hosts taken apart
 *	link.c		a connection with its queue: making it, ending it
 *	dialer.c	the thread that calls peers
 *	greet.c		callers, introductions, hellos; a connection becomes the peer's
 *	connect.c	rmr_mesh_connect
 *	post.c		posting: slots, batches, the doorbell
 *	take.c		what comes out of a queue: works done, messages, credits, the end
 *	poll.c		callbacks
 *	wait.c		sleeping
 *	slabs.c		memory manager; slabs_check.c: what always holds in it (slabs_internal.h)
 *
 * A peer has two places for connections. `link` is the one that is used. `caller` is one that is
 * being greeted; it takes the other's place once the peer has said hello by it, and nothing of the
 * old one is left to tell the program. So one who says nothing right harms nobody, and one who
 * comes back before his death was noticed gets in.
 *
 *	DOWN --hello--> UP --lost--> LOST --all works, messages and DOWN told--> DOWN
 *
 * Each connection has a queue of its own: rmr_connect blocks, so it runs in the dialer on a queue
 * that nobody else uses, and then both are handed over. And a poll for one peer touches no other.
 *
 * Memory. `local` is for all: records and send slots of each peer, which nobody else can reach.
 * Each peer has an arena for its receive ring, for on shm an arena is the unit of trust. The ring's
 * region is opened for each connection anew: whoever had the old one cannot write any more.
 *
 * Counting. Slots and works are counted from the beginning, and a count taken modulo the depth is
 * the place: nothing to link, nothing to allocate.
 *
 *	ring to the peer:	credited <= sent <= credited + depth
 *	ring from the peer:	told <= consumed <= arrived <= consumed + depth
 *	works:			head <= done <= posted <= tail <= head + works_max
 *
 * Threads: all of it in the thread that owns the mesh, but dialer.c, whose part of a peer is
 * `dial`, under the dialer's lock.
 */
#ifndef RDMA_MESH_INTERNAL_H
#define RDMA_MESH_INTERNAL_H

#include <pthread.h>
#include <remora/fabric.h>
#include <remora/mesh.h>
#include <stdatomic.h>

#include "rdma/mesh/wire.h"

#define MESH_ADDRESS_SIZE 256
#define MESH_REASON_SIZE  256
/* Places of a connection for what is not a work: hello, credits. */
#define MESH_CREDITS_MAX 8u
#define MESH_PLACES	 (MESH_CREDITS_MAX + 2)
/* Cookies: a work's is its number plus one. */
#define MESH_COOKIE_NONE   UINT64_C(0)
#define MESH_COOKIE_CREDIT (UINT64_C(1) << 63)

enum mesh_state { MESH_DOWN, MESH_UP, MESH_LOST };

/* A connection with its queue. All NULL: none. */
struct mesh_link {
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct rmr_region *region; /* our ring, for this peer */
	struct rmr_remote *ring, *memory;
	uint64_t memory_address, memory_size;
	uint64_t deadline_ns; /* of the hello */
	bool is_ours;	      /* we called */
	bool said, heard;     /* hello */
};

/* A work, from its post until its event. */
struct mesh_work {
	int64_t id;
	void *data;
	size_t length;
	uint64_t ops;		     /* posted on this connection, up to this work */
	uint64_t last;		     /* the last work of the same operation */
	enum rmr_mesh_opcode opcode; /* 0: of our own, nobody is told */
	int slot;		     /* send slot that it holds; -1: none */
	enum rmr_status status;
};

/* What dialer.c knows of a peer, under the dialer's lock. */
struct mesh_dial {
	bool is_wanted, is_ready;
	uint64_t next_ns;
	int timeout_ms;
	struct rmr_queue *queue; /* the result, if is_ready */
	struct rmr_conn *conn;
	enum rmr_status status; /* of the last failure; RMR_OK: none yet */
	char reason[MESH_REASON_SIZE];
};

struct mesh_peer {
	struct rmr_mesh *mesh;
	int id;
	enum mesh_state state;
	bool is_told;	 /* the program knows that it was up */
	bool is_up_due;	 /* RMR_MESH_UP is to be told */
	bool is_starved; /* a post was refused since the last slot came free */
	bool is_short;	 /* the fabric took less than all of a batch */
	bool is_terminate_due;
	bool is_closing; /* our last message was sent */
	uint32_t terminate_reason;
	struct mesh_link link, caller;

	/* To the peer. */
	uint64_t sent, credited;   /* slots */
	uint64_t ops, ops_done;	   /* of the fabric, for works */
	uint32_t credits_underway; /* WRITEs of ours that tell what was consumed */
	uint32_t unsignaled;	   /* works since the last signaled one */
	struct rmr_work *staged;   /* not yet handed to the fabric */
	uint32_t staged_count, staged_works;
	struct rmr_work *last_slot; /* the last one staged that writes slots; NULL: none does */
	struct mesh_header *last_header; /* of the last slot that it writes */
	struct mesh_work *works;
	uint64_t head, done, posted, tail;
	uint16_t *free_slots; /* a ring, so that they come round in order */
	uint32_t free_head, free_count;
	int held; /* the slot that rmr_mesh_get_send_buf returned; -1: none */
	char *records, *slots;
	struct mesh_hello *hello; /* ours, in local memory */

	/* From the peer. */
	uint64_t arrived, consumed, told;
	struct rmr_arena *arena;
	char *ring;
	struct mesh_header *arrivals; /* headers, copied and checked */

	enum rmr_status failure; /* of the work done + 0, when the connection fails */
	enum rmr_status down_status;
	char reason[MESH_REASON_SIZE]; /* why it is down */
	struct mesh_dial dial;
};

struct mesh_dialer {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	bool is_running, is_stopping, is_hasty;
	int event_fd;	   /* readable: something is ready, or has failed */
	atomic_uint ready; /* results to be taken */
};

struct rmr_mesh {
	struct rmr_mesh_options options; /* defaults filled in */
	char device_name[64];
	int count; /* hosts */
	char (*addresses)[MESH_ADDRESS_SIZE];
	size_t slot_size;
	uint32_t depth, mask, batch, half;
	uint32_t works_max, places;
	uint32_t inline_max;
	size_t transfer_max;
	struct rmr_device *device;
	struct rmr_arena *local_arena, *memory_arena;
	struct rmr_region *local_region, *memory_region;
	struct rmr_listener *listener;
	struct mesh_peer *peers; /* by id; our own place is not used */
	struct mesh_dialer dialer;
	int epoll_fd;
	int up_count;
	int callers; /* being greeted */
	int64_t next_work;
	bool in_callback, is_connecting;
	bool is_freed; /* a slot came free for a starved peer */
	uint64_t looked, look_ticks;
	uint64_t spin_ticks, spin_limit;
	struct rmr_mesh_stats stats;
};

/* options.c */
RMR_MUST_CHECK enum rmr_status mesh_take_options(struct rmr_mesh *mesh,
						 const struct rmr_mesh_options *options);

/* NULL, with a message: unknown, or ourselves. */
struct mesh_peer *mesh_find_peer(const struct rmr_mesh *mesh, int peer);

/* All peers, without us. */
#define mesh_for_each(peer, mesh)                                                                  \
	for (struct mesh_peer *peer = (mesh)->peers, *peer##_end = peer + (mesh)->count;           \
	     peer < peer##_end; peer++)                                                            \
		if (peer->mesh)

/* link.c */
RMR_MUST_CHECK enum rmr_status mesh_open_queue(struct rmr_mesh *mesh, struct rmr_queue **queue);
void mesh_conn_options(struct rmr_mesh *mesh, const struct mesh_introduction *introduction,
		       struct rmr_conn_options *options);
/* Makes mesh_sleep end for this descriptor. peer: NULL for what is nobody's. */
RMR_MUST_CHECK enum rmr_status mesh_watch(struct rmr_mesh *mesh, int fd, struct mesh_peer *peer);
/* Legal on one that is not there. */
void mesh_link_close(struct mesh_link *link);
/* The peer's connection is over: what is left of its works has failed. */
void mesh_lose(struct mesh_peer *peer, enum rmr_status status, const char *reason);
/* Once all is told. */
void mesh_forget_loss(struct mesh_peer *peer);

/* dialer.c */
RMR_MUST_CHECK enum rmr_status mesh_dialer_init(struct rmr_mesh *mesh);
void mesh_dialer_fini(struct rmr_mesh *mesh);
/* The peer is to be called, after a while, again and again until it is there. */
void mesh_dial(struct mesh_peer *peer, int delay_ms);
/* hasty: not every redial_ms, but as soon as it makes sense. */
void mesh_dial_hastily(struct rmr_mesh *mesh, bool hasty);
/* Takes a connection that came about. False: there is none. */
bool mesh_dial_take(struct mesh_peer *peer, struct mesh_link *link);
/* Why the last call failed, if it did. */
enum rmr_status mesh_dial_reason(struct mesh_peer *peer, char reason[MESH_REASON_SIZE]);
/* Forgets why. */
void mesh_dial_forget(struct mesh_peer *peer);

/* greet.c */
void mesh_introduce(const struct rmr_mesh *mesh, int to, struct mesh_introduction *introduction);
/* NULL: the peer `from`, any if negative, speaks to us. Else what is wrong. */
const char *mesh_find_fault(const struct rmr_mesh *mesh, const void *data, size_t length, int from,
			    char text[MESH_REASON_SIZE]);
/* Takes callers and the dialer's results, goes on with hellos. */
void mesh_look_around(struct rmr_mesh *mesh);
/* The same, when it is time. */
void mesh_look(struct rmr_mesh *mesh);

/* post.c */
/* Hands what is staged to the fabric. */
void mesh_ring(struct mesh_peer *peer);
/* Tells the peer what was consumed, if that is due. */
void mesh_tell_credit(struct mesh_peer *peer);
/* The last message: everything before it has arrived when the peer ends the connection. */
void mesh_say_goodbye(struct mesh_peer *peer);
/* What could not be done before, for want of room. */
void mesh_catch_up(struct mesh_peer *peer);

/* take.c: all that there is of this peer's connection. */
void mesh_take(struct mesh_peer *peer);

/* poll.c */
int mesh_tell_works(struct mesh_peer *peer);
int mesh_tell_peer(struct mesh_peer *peer);
int mesh_poll_peer(struct mesh_peer *peer);

/* wait.c: sleeps until something may have happened, at most until the deadline, and returns how
 * many peers, written to ready, it may have happened with. NULL among them: look around. */
#define MESH_READY_MAX 64
int mesh_sleep(struct rmr_mesh *mesh, uint64_t deadline_ns,
	       struct mesh_peer *ready[MESH_READY_MAX]);

static inline char *mesh_slot(const struct mesh_peer *peer, uint32_t slot)
{
	return peer->slots + slot * peer->mesh->slot_size;
}

static inline int mesh_take_slot(struct mesh_peer *peer)
{
	if (!peer->free_count)
		return -1;
	peer->free_count--;
	return peer->free_slots[peer->free_head++ & peer->mesh->mask];
}

static inline void mesh_give_slot(struct mesh_peer *peer, int slot)
{
	peer->free_slots[(peer->free_head + peer->free_count++) & peer->mesh->mask] =
		(uint16_t)slot;
}

static inline uint64_t mesh_in_flight(const struct mesh_peer *peer)
{
	return peer->ops - peer->ops_done;
}

#endif
