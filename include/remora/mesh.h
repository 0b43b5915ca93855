/*
 * Mesh: every process talks to every other, by messages and by remote memory, in batches.
 *
 * A mesh is one thread's part in it: thread i of each process is connected to thread i of every
 * other. Per peer there is a ring of slots for messages to it, and a ring for those from it.
 * Nothing runs in the background but the dialing of peers that are gone: work is posted, flushed
 * and polled for by the thread that owns the mesh, and callbacks run inside its polls.
 *
 *	static void message(struct rmr_mesh *mesh, const struct rmr_mesh_event *event)
 *	{
 *		if (event->opcode == RMR_MESH_RECV)
 *			printf("%d says %.*s\n", event->peer, (int)event->length,
 *			       (char *)event->data);
 *	}
 *
 *	struct rmr_mesh_options options = {
 *		.hosts = "10.0.0.1:7500,10.0.0.2:7500,10.0.0.3:7500", .id = 1, .callback = message};
 *	struct rmr_mesh *mesh;
 *
 *	if (rmr_mesh_open(&options, &mesh) != RMR_OK || rmr_mesh_connect(mesh, 10000) != RMR_OK)
 *		errx(1, "%s", rmr_error_message());
 *	char *buf = rmr_mesh_get_send_buf(mesh, 2);	NULL when all are in flight: poll
 *	memcpy(buf, "hello", 5);
 *	if (rmr_mesh_post_send(mesh, buf, 5, 2, 0) < 0)
 *		errx(1, "%s", rmr_error_message());
 *	rmr_mesh_flush(mesh, 2);
 *	while (!done)
 *		rmr_mesh_poll(mesh);
 *
 * Doorbells. What is posted waits until `batch` works for that peer are together, or
 * rmr_mesh_flush(), or a post that finds no room; then all of it leaves at once: one doorbell, one
 * system call. A poll does not flush; rmr_mesh_wait() does.
 *
 * Peers. The hosts are a list, a peer is a place in it, from 0; `id` is our own. Of two processes
 * the one with the higher id calls. A peer that dies, closes or falls silent is reported
 * (RMR_MESH_DOWN) after all of its works were, with an error, and all of its messages; others go
 * on. It may come back: it is called again, or calls, by itself, and RMR_MESH_UP tells. Works are
 * not carried over: what was posted before is done or failed; one that failed because the peer
 * left may have been carried out all the same. What a slot of a lost peer held is gone.
 * A process takes part in greeting others inside its polls, so one that never polls is not joined.
 *
 * Errors. Posts return a work id, above 0, or an enum rmr_status, below; rmr_error_message() says
 * more. RMR_AGAIN: no slot, or the queue is full: poll, then try again; rmr_mesh_wait() returns
 * when there is room. RMR_DISCONNECTED: the peer is down. An unknown peer, or the own id, is
 * RMR_INVALID. What goes wrong later comes as an event with a status.
 *
 * Trust. All processes of a mesh trust each other with their exposed memory, and with nothing
 * else: whatever a peer says is checked, and one that breaks the rules loses its connection (DOWN,
 * with RMR_PROTOCOL). The bytes of a message may change under the callback's eyes if the peer is
 * malicious: copy what you check. There are no keys: whoever reaches the port and knows the form of
 * the mesh can call himself any peer with a higher id, and takes its place. Use it where you trust
 * the network.
 *
 * Threads. A mesh belongs to one thread at a time. Many can be open in one process.
 */
#ifndef REMORA_MESH_H
#define REMORA_MESH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <remora/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rmr_mesh;

#define RMR_MESH_MAX_HOSTS 1024
#define RMR_MESH_MAX_DEPTH 4096

/* ------------------------------------------------------------------------------------------
 * Opening and connecting
 */

enum rmr_mesh_opcode {
	/* Works of ours that are done, or failed: work, status. From rmr_mesh_poll_sq. */
	RMR_MESH_SEND = 1, /* the peer has it in its ring; data is the send slot, as it was */
	RMR_MESH_WRITE,	   /* placed in the peer's memory; data, length are our end */
	RMR_MESH_READ,	   /* here: data, length */
	/* What peers did. From rmr_mesh_poll_rq. */
	RMR_MESH_RECV,	    /* a message: data, length, immediate; valid during the callback */
	RMR_MESH_WRITE_IMM, /* the peer wrote into our memory: data, length, immediate */
	RMR_MESH_TERMINATE, /* the peer called rmr_mesh_terminate; immediate is its reason */
	RMR_MESH_DOWN,	    /* the peer is gone; status and data, a sentence, say why */
	RMR_MESH_UP,	    /* the peer is there again (not told of by rmr_mesh_connect) */
};

struct rmr_mesh_event {
	enum rmr_mesh_opcode opcode;
	int64_t work; /* what the post returned; 0 for what peers did */
	int peer;
	void *data;
	size_t length;
	uint32_t immediate;
	enum rmr_status status; /* if not RMR_OK, only opcode, work and peer count otherwise */
};

/* Called inside polls, for one event after another. In it everything is legal but polling,
 * waiting, connecting (RMR_INVALID) and closing (logged, and nothing happens): posts, flushes,
 * terminate. What it posts never disturbs what is being polled: the slot of the work or message
 * that it is told of is free again only when it has returned. */
typedef void (*rmr_mesh_callback)(struct rmr_mesh *mesh, const struct rmr_mesh_event *event);

/* 0 and NULL in a field mean its default. Strings and memory are not copied: they stay. */
struct rmr_mesh_options {
	/* All processes in the same order, with commas between: "HOST:PORT,..."; for shm names:
	 * "mesh0,mesh1". Thread i of a process listens at PORT + i, or at NAME-i; the host is an
	 * address of its machine. */
	const char *hosts;
	int id;	    /* which of them we are */
	int thread; /* i; default 0 */
	/* A device of <remora/fabric.h>: "tcp", "shm", "verbs:mlx5_0". Default: the environment
	 * variable REMORA_RDMA_DEVICE; else verbs if this machine has a device, else tcp. All
	 * processes need the same kind. */
	const char *device;

	uint32_t depth;	     /* slots of the send ring and of the receive ring of each peer;
			       * default 128, a power of two */
	size_t message_size; /* of a slot: the longest message; default 1024 */
	uint32_t batch;	     /* works that ring the doorbell together; default 16, more than depth
			       * counts as depth */
	void *memory;	     /* what peers may write and read; NULL and a size: it is made here, in
			       * the kind of memory that is fastest on shm */
	size_t memory_size;  /* 0: none */
	int dead_after_ms;   /* default 10000 */
	int redial_ms;	     /* a lost peer is called so often; default 500 */
	rmr_mesh_callback callback;
	void *user;
};

/* Takes memory and listens; connects to nobody yet. All processes have the same number of hosts,
 * the same depth and message size: a peer for which that is not so is refused. RMR_INVALID,
 * RMR_BAD_ADDRESS, RMR_NO_DEVICE, RMR_ADDRESS_IN_USE. */
RMR_MUST_CHECK enum rmr_status rmr_mesh_open(const struct rmr_mesh_options *options,
					     struct rmr_mesh **mesh);

/* Connects to all peers, in whatever order they start, again and again until the deadline
 * (negative: none). Calls back for nothing; what happens meanwhile is told by polls. A peer that
 * was there and left again counts as met: RMR_MESH_DOWN will tell. RMR_TIMEOUT: some are missing,
 * the message names them, and why; those that are there can be used, and the others may still
 * come. RMR_PROTOCOL: at the address of a peer is something that is no part of this mesh, or one
 * with other options: the message says what differs. */
RMR_MUST_CHECK enum rmr_status rmr_mesh_connect(struct rmr_mesh *mesh, int timeout_ms);

/* Leaves. What was posted is flushed, and waited for until the peers have it and have seen that it
 * was the last, for at most a second in all: one that does not poll makes it last so long. Peers
 * get RMR_MESH_DOWN after it. A call to a peer that does not answer can take another two seconds.
 * What peers have under way to us may fail there, though it was carried out. Memory that was made
 * here is freed. Not in a callback. NULL is legal. */
void rmr_mesh_close(struct rmr_mesh *mesh);

/* Our place in the list of hosts. */
int rmr_mesh_id(const struct rmr_mesh *mesh);
int rmr_mesh_size(const struct rmr_mesh *mesh); /* processes, with us */
/* Can it be posted to? False also for an unknown one. */
bool rmr_mesh_is_up(const struct rmr_mesh *mesh, int peer);
/* Exposed memory: the options', or what was made; NULL for none. */
void *rmr_mesh_memory(const struct rmr_mesh *mesh);
size_t rmr_mesh_memory_size(const struct rmr_mesh *mesh);
/* The options'. */
void *rmr_mesh_user(const struct rmr_mesh *mesh);

/* ------------------------------------------------------------------------------------------
 * Posting
 */

/* A free slot for that peer, message_size bytes, aligned to 64: fill it and post it. Until then the
 * same one is returned, and no other post touches it. NULL: all are in flight, or the peer has no
 * room (poll; what is held back was flushed), or it is down. */
char *rmr_mesh_get_send_buf(struct rmr_mesh *mesh, int peer);

/* Sends `size` bytes to the peer's callback, with 32 bits beside. buf is what
 * rmr_mesh_get_send_buf returned, or NULL for the same; or any other memory, which is copied. A
 * size of 0 is legal. A slot is in use until RMR_MESH_SEND was told. RMR_TOO_LONG: beyond
 * message_size. */
RMR_MUST_CHECK int64_t rmr_mesh_post_send(struct rmr_mesh *mesh, const char *buf, size_t size,
					  int peer, uint32_t immediate);

/* Where something lies in the peer's memory. */
enum rmr_mesh_where {
	RMR_MESH_OFFSET = 0, /* from the beginning of its exposed memory */
	RMR_MESH_ADDRESS,    /* as the peer itself names it: a pointer of its process */
};

/* Writes `size` bytes of our exposed memory, or of the slot that rmr_mesh_get_send_buf returned
 * (which is used up by it), into the peer's. With an immediate other than 0 the peer's callback is
 * told (RMR_MESH_WRITE_IMM), once it is placed; that takes one of the slots for messages. local
 * stays untouched until RMR_MESH_WRITE. RMR_ACCESS: outside of the peer's memory; nothing happens.
 * */
RMR_MUST_CHECK int64_t rmr_mesh_post_write(struct rmr_mesh *mesh, const char *local, size_t size,
					   int peer, uint64_t remote, enum rmr_mesh_where where,
					   uint32_t immediate);
/* Reads from the peer's memory into our exposed one; RMR_MESH_READ tells when it is here. */
RMR_MUST_CHECK int64_t rmr_mesh_post_read(struct rmr_mesh *mesh, char *local, size_t size, int peer,
					  uint64_t remote, enum rmr_mesh_where where);

/* Rings the doorbell for what is posted to this peer; to all. Nothing to do is fine, and so is a
 * peer that does not exist. */
void rmr_mesh_flush(struct rmr_mesh *mesh, int peer);
void rmr_mesh_flush_all(struct rmr_mesh *mesh);

/* Tells all peers that we are about to end, and why: RMR_MESH_TERMINATE there. Flushed at once.
 * Peers that are down are left out, those without a free slot get it as soon as there is one.
 * Returns how many get it. */
int rmr_mesh_terminate(struct rmr_mesh *mesh, uint32_t reason);

/* ------------------------------------------------------------------------------------------
 * Polling
 */

/* Each calls back for what there is, and returns how many times. They never wait. sq: our own works
 * with this peer; rq: what it did. What one of them finds for the other is kept; so a program that
 * polls one kind only has to stop posting, or the peer sending, when that is full. RMR_MESH_DOWN is
 * told by rq, and only when sq has told of all works. All forms with a peer make progress with this
 * one alone. RMR_INVALID, below 0: no such peer, or called inside a callback. */
int rmr_mesh_poll_sq(struct rmr_mesh *mesh, int peer);
int rmr_mesh_poll_rq(struct rmr_mesh *mesh, int peer);
int rmr_mesh_poll_sq_all(struct rmr_mesh *mesh);
int rmr_mesh_poll_rq_all(struct rmr_mesh *mesh);
/* Both, for all. */
int rmr_mesh_poll(struct rmr_mesh *mesh);

/* Flushes all, then as rmr_mesh_poll, but waits up to timeout_ms (negative: for ever) for
 * something to happen: spins a little, then sleeps. It also returns, with 0, when there is room
 * for a post that was answered with RMR_AGAIN. */
int rmr_mesh_wait(struct rmr_mesh *mesh, int timeout_ms);

/* Counts since the mesh was opened. */
struct rmr_mesh_stats {
	uint64_t sends, writes, reads; /* posted */
	uint64_t received;	       /* messages, and writes with an immediate */
	uint64_t doorbells;	       /* of the program's works */
	uint64_t downs, ups;
};
void rmr_mesh_get_stats(const struct rmr_mesh *mesh, struct rmr_mesh_stats *stats);

/* ------------------------------------------------------------------------------------------
 * Slabs: memory manager over memory of the caller's, such as that of a mesh
 *
 *	struct rmr_slabs *slabs;
 *	rmr_slabs_open(rmr_mesh_memory(mesh), rmr_mesh_memory_size(mesh), 1, 1 << 20, &slabs);
 *	int class = rmr_slabs_class(slabs, 0, 40);
 *	char *item = rmr_slabs_alloc(slabs, 0, class);
 *	...
 *	rmr_slabs_free(slabs, 0, item, class);
 *
 * The memory is cut into partitions, these into slabs, these into items of one class: sizes from
 * 64 bytes to a slab, each about an eighth larger than the one before. A partition has a lock of
 * its own: threads that use different partitions never meet. All in constant time. A slab whose
 * items are all free goes back to its partition, for any class. Nothing is written into the memory
 * itself: it may be written and read by peers.
 */
struct rmr_slabs;

/* partitions from 1 to 1024, slab_size a power of two from 4 KiB, at most a partition. What is left
 * at the end of each is not used. The books take 4 bytes for each 64 of the memory, and only where
 * items are. Any thread. RMR_INVALID, RMR_NO_MEMORY, RMR_LIMIT. */
RMR_MUST_CHECK enum rmr_status rmr_slabs_open(void *memory, size_t size, unsigned partitions,
					      size_t slab_size, struct rmr_slabs **slabs);
/* Items need not be freed before; the memory stays the caller's. NULL is legal. */
void rmr_slabs_close(struct rmr_slabs *slabs);

/* The smallest class whose items have at least size bytes. RMR_TOO_LONG: none has. RMR_INVALID:
 * size is 0, or there is no such partition. */
int rmr_slabs_class(const struct rmr_slabs *slabs, unsigned partition, size_t size);
/* Bytes of an item of that class; 0: no such class. */
size_t rmr_slabs_item_size(const struct rmr_slabs *slabs, int slab_class);
/* An item, aligned to 64; NULL: the partition is full (or no such partition or class). */
char *rmr_slabs_alloc(struct rmr_slabs *slabs, unsigned partition, int slab_class);
/* RMR_INVALID: it is no item of that partition and class that is in use (freed twice, a pointer
 * into the middle, of another partition); nothing happens. */
enum rmr_status rmr_slabs_free(struct rmr_slabs *slabs, unsigned partition, char *item,
			       int slab_class);

/* What is in use now. */
struct rmr_slabs_stats {
	size_t slabs, free_slabs; /* of all partitions */
	size_t items;		  /* in use */
	size_t item_bytes;	  /* of those */
};
void rmr_slabs_get_stats(const struct rmr_slabs *slabs, struct rmr_slabs_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
