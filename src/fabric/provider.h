/*
 * What the fabric's core and its providers say to each other.
 *
 * The core (the files of src/fabric/) checks arguments, allocates and frees every object and keeps
 * the lists between them; a provider (src/fabric/shm, tcp, ...) moves the bytes. A provider is one
 * constant struct rmr_provider: sizes of its objects, and functions on them. Each of its objects
 * begins with the core's, so that a pointer to one is a pointer to the other:
 *
 *	struct shm_conn {
 *		struct rmr_conn base;	 <- the core's part, filled before the provider is called
 *		...
 *	};
 *
 * The core allocates xxx_size zeroed bytes and calls xxx_init. When that fails the core frees
 * the object without calling xxx_fini; so an init undoes what it did. Otherwise xxx_fini is
 * called exactly once, and the core frees the memory.
 *
 * How the contract of <remora/fabric.h> is divided:
 *
 *	guarantee				kept by
 *	---------				-------
 *	arguments make sense, regions		core: rmr_post
 *	  cover local memory
 *	depth					provider: conn_room / conn_completed
 *	completion order, no lost completion	provider: one FIFO a connection
 *	room for every completion		core: reserved when a connection is attached
 *	remote access is checked		whoever touches the memory: the initiator on shm,
 *						whose mapping is the limit; the target elsewhere
 *	messages wait for a free slot		provider: takes a slot from queue->recv or leaves
 *						the message where it is
 *	one DISCONNECT, as the last		provider: conn_lost, after failing all its works
 *
 * Threads: post, flush, poll, arm, recv_release and everything on connections run in the thread
 * that owns the queue. Device, region and listener functions may run in any thread, also
 * beside those of queues. A provider that has a thread of its own (tcp) takes queue->lock in all
 * of these and in its thread; the core takes it when it attaches and detaches connections, and
 * otherwise touches a queue's ring and slots only from within provider calls.
 */
#ifndef FABRIC_PROVIDER_H
#define FABRIC_PROVIDER_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include <remora/fabric.h>

#include "base/fork.h"
#include "base/list.h"
#include "base/spin_gauge.h"
#include "base/spin_lock.h"
#include "fabric/completion_ring.h"
#include "fabric/recv_pool.h"

/* The bytes of struct rmr_descriptor. The core checks the first three fields, the provider the
 * rest: they come from the peer's program by any way, so they are only claims. */
struct descriptor_wire {
	uint32_t magic;
	uint16_t version;
	uint8_t provider; /* struct rmr_provider's id */
	uint8_t rights;
	uint64_t length;
	uint64_t key;
	uint64_t word[5]; /* the provider's own */
};
static_assert(sizeof(struct descriptor_wire) == sizeof(struct rmr_descriptor), "travels as such");

#define DESCRIPTOR_MAGIC   0x64726d52u /* "Rmrd" */
#define DESCRIPTOR_VERSION 1

struct rmr_device {
	const struct rmr_provider *provider;
	struct rmr_device_info info; /* the provider fills all but name and provider */
	atomic_int children;	     /* open regions, queues and listeners */
	atomic_uint regions;
	unsigned generation;		/* of processes: see base/fork.h */
	struct rmr_grant_limits grants; /* of all its connections together */
};

/* A region lives until it is closed and no operation refers to it any more. */
struct rmr_region {
	struct rmr_device *device;
	uint8_t *address;
	size_t length;
	unsigned rights;
	struct rmr_arena *arena; /* that address lies in, or NULL */
	void *copy;		 /* of the memory, once it is detached; or NULL */
	atomic_int references;
	atomic_bool closed; /* set before region_fini: operations in hand must fail */
};

struct rmr_queue {
	struct rmr_device *device;
	const struct rmr_provider *provider;
	unsigned generation;		  /* the device's */
	struct rmr_queue_options options; /* defaults filled in */
	int epoll_fd;			  /* rmr_queue_fd; providers add their sources */
	int wake_fd;			  /* eventfd of rmr_queue_wake; -1: never_woken */
	atomic_bool wake;
	struct spin_lock lock; /* guards conns, ring and recv against a provider's own thread */
	struct list conns;
	struct list held;    /* connections with operations held back by RMR_MORE */
	uint64_t spin_limit; /* what spin_us says, in ticks */
	uint64_t spin_ticks; /* how long rmr_wait spins now: between 0 and that */
	uint64_t spin_gap;   /* SPIN_GAUGE_GAP_US in ticks */
	struct spin_gauge gauge;
	uint32_t spins_won;
	/* By the provider: peers' operations that were carried out here, and pieces of long
	 * transfers that came in. */
	atomic_uint served;
	uint32_t pending_imm; /* RMR_OP_RECV_IMM completions in the ring: at most recv_slots */
	struct completion_ring ring;
	struct recv_pool recv;
};

struct rmr_conn {
	struct rmr_queue *queue;
	const struct rmr_provider *provider;
	struct list link;      /* in queue->conns */
	struct list held_link; /* in queue->held while held > 0 */
	struct list remotes;
	struct rmr_conn_options options; /* defaults filled in; the pointers in it are NULL */
	struct rmr_grant_limits grants;	 /* what the peer may grant us */
	uint32_t held;			 /* posted since the last flush */
	uint32_t outstanding;		 /* posted, and neither polled nor silently done */
	unsigned generation;		 /* the device's */
	atomic_bool lost;		 /* a provider's thread may set it */
	size_t max_send;		 /* by the provider at connect and accept */
	char peer[64];			 /* the same */
	void *user;
	uint8_t my_private[RMR_PRIVATE_MAX], peer_private[RMR_PRIVATE_MAX];
	uint8_t my_private_length, peer_private_length;
};

/* Like a region, a remote lives until closed and no operation refers to it. */
struct rmr_remote {
	struct rmr_conn *conn;
	struct list link; /* in conn->remotes */
	size_t length;
	unsigned rights;
	const void *pointer;
	int references;
};

struct rmr_listener {
	struct rmr_device *device;
	struct rmr_listener_options options;
	char address[128];	 /* the provider writes the one to connect to */
	int fd;			 /* rmr_listener_fd */
	struct greeter *greeter; /* that takes its callers; NULL: it has none */
};

struct rmr_request {
	struct rmr_device *device;
	char peer[64];
	uint8_t private_data[RMR_PRIVATE_MAX];
	uint8_t private_length;
};

struct rmr_provider {
	const char *name; /* of its devices: "tcp", and "tcp:..." */
	uint8_t id;	  /* in descriptors */
	/* queue->recv has twice as many slots as the program asked for: messages land before it is
	 * known whether the program may have another one. */
	bool doubles_slots;

	size_t device_size, region_size, queue_size, conn_size, remote_size, listener_size,
		request_size;

	/* Writes the entry of the index-th device of this provider on this machine and returns
	 * true, or returns false when there are no more. Unusable ones say why. */
	bool (*device_entry)(unsigned index, struct rmr_device_entry *entry);

	/* Opens the device; instance is what follows the colon in its name, or "". Fills
	 * device->info. May start threads; fini ends them. */
	enum rmr_status (*device_init)(struct rmr_device *device, const char *instance,
				       const struct rmr_device_options *options);
	void (*device_fini)(struct rmr_device *device);

	/* Makes a region usable. Rights and arena are compatible already. fini must not return
	 * while an access by a peer is under way, and none may begin after it; it does not free
	 * what operations in hand refer to: for that there is region_free, called when the last
	 * reference is gone (optional). */
	enum rmr_status (*region_init)(struct rmr_region *region);
	/* Optional: rmr_region_revoke. True: fini will not wait. May be called again. */
	bool (*region_revoke)(struct rmr_region *region);
	void (*region_fini)(struct rmr_region *region);
	void (*region_free)(struct rmr_region *region);

	/* Optional: from now on, for every address of the region, the byte at the same distance
	 * from the beginning of `copy` is used. Must not return while the memory itself is being
	 * accessed. Operations keep naming the region's own addresses. Any thread. */
	void (*region_detach)(struct rmr_region *region, void *copy);

	/* Optional, for devices without RMR_CAP_ATOMIC_CPU: rmr_region_compare_swap, done by the
	 * adapter. The word is one of the region's. Any thread; waits. */
	enum rmr_status (*region_compare_swap)(struct rmr_region *region, size_t offset,
					       uint64_t compare, uint64_t operand, uint64_t *found);

	/* Grants and describes the region to the peer of conn: fills key and word[]. The owner of
	 * conn calls. The grant holds for this connection alone: an access by any other one, with
	 * the same descriptor, is refused as one with a wrong key is. Where the program's memory is
	 * guarded by something else than the provider (verbs: the adapter; shm: the arena's
	 * descriptor), docs/providers.md says what that promises. The grant ends when the region or
	 * the connection is closed. */
	enum rmr_status (*region_export)(struct rmr_region *region, struct rmr_conn *conn,
					 struct descriptor_wire *wire);

	/* Takes a descriptor: fills length, rights, pointer with what can be relied upon. fini is
	 * called when the remote is closed and no operation refers to it any more: at the latest
	 * from within conn_fini. */
	enum rmr_status (*remote_init)(struct rmr_remote *remote,
				       const struct descriptor_wire *wire);
	void (*remote_fini)(struct rmr_remote *remote);

	/* The core has opened epoll_fd, ring and recv. */
	enum rmr_status (*queue_init)(struct rmr_queue *queue);
	void (*queue_fini)(struct rmr_queue *queue);

	/* Listens at address, fills listener->address and ->fd. */
	enum rmr_status (*listener_init)(struct rmr_listener *listener, const char *address);
	void (*listener_fini)(struct rmr_listener *listener);

	/* Fills a request with the next caller whose introduction is complete and good. Never
	 * blocks: RMR_AGAIN when there is none now; then *wait_ms is when to call again although fd
	 * did not become readable (a silent caller's deadline), or -1. */
	enum rmr_status (*listener_next)(struct rmr_listener *listener, struct rmr_request *request,
					 int *wait_ms);
	/* Ends a request with a reason for the caller (NULL: none). Never blocks. */
	void (*reject)(struct rmr_request *request, const char *reason);

	/* Make conn (attached to its queue, my_private filled) a connection; fill max_send, peer
	 * and peer_private. accept never blocks and takes over what the request holds, also when it
	 * fails; connect blocks until the deadline (clock_now_ns). */
	enum rmr_status (*accept)(struct rmr_request *request, struct rmr_conn *conn);
	enum rmr_status (*connect)(struct rmr_conn *conn, const char *address,
				   uint64_t deadline_ns);
	/* Optional: conn->grants has changed. */
	void (*grants_changed)(struct rmr_conn *conn);
	/* Closes at any moment, in any state. Completed messages still arrive. The provider drops
	 * what operations refer to, and calls conn_forget (under its lock if it has one). */
	void (*conn_fini)(struct rmr_conn *conn);

	/* Optional: the same in a forked child of the process that opened it. Closes the child's
	 * descriptors and maps; takes no lock, tells no peer, writes to no shared memory, and
	 * leaves epoll sets alone, which are the parent's, too. Without it the object stays as it
	 * is. */
	void (*conn_abandon)(struct rmr_conn *conn);
	void (*listener_abandon)(struct rmr_listener *listener);

	/* Optional: rmr_conn_lingers. Without it closing a region has ended all access. */
	bool (*conn_lingers)(const struct rmr_conn *conn, int *process);

	/* Takes as many of the count checked works as conn_room allows, in order, and returns
	 * how many. May start them or keep them until flush. Remote errors are completions. */
	int (*post)(struct rmr_conn *conn, const struct rmr_work *works, int count);
	/* Starts what was kept back. Called after each post that was not RMR_MORE. */
	void (*flush)(struct rmr_conn *conn);

	/* Progress on all connections of the queue; then queue_pop. */
	int (*poll)(struct rmr_queue *queue, struct rmr_completion *completions, int max);

	/* Prepares for sleeping on epoll_fd: RMR_OK when every event from now on makes it readable,
	 * RMR_AGAIN when there is something to poll already. The next poll ends that state. */
	enum rmr_status (*arm)(struct rmr_queue *queue);

	/* Gives a slot of queue->recv back (recv_pool_put) and lets stalled peers go on. */
	void (*recv_release)(struct rmr_queue *queue, void *data);
};

/* The providers that were built in, NULL-terminated; the first is the default. */
extern const struct rmr_provider *const fabric_providers[];
/* Those that were not, and why; the last one has an empty name. */
extern const struct rmr_device_entry fabric_missing[];

/* A source of events in a queue's epoll set: epoll_event.data.ptr points to it. */
struct queue_source {
	void (*ready)(struct queue_source *source, uint32_t events);
};

/* For providers: adds fd to the queue's epoll set. */
enum rmr_status queue_watch(struct rmr_queue *queue, int fd, uint32_t events,
			    struct queue_source *source);
/* Asks epoll once, without waiting, and runs what is ready. Returns how many were. A source may
 * remove itself, but must not free another one. */
int queue_dispatch(struct rmr_queue *queue);

/* How many more works this connection may take. */
static inline uint32_t conn_room(const struct rmr_conn *conn)
{
	return conn->options.depth - conn->outstanding;
}

/* A work is done. Pushes a completion if it is due one. */
static inline void conn_completed(struct rmr_conn *conn, enum rmr_op op, unsigned flags,
				  uint64_t cookie, size_t length, enum rmr_status status)
{
	if ((flags & RMR_UNSIGNALED) && status == RMR_OK) {
		conn->outstanding--;
		return;
	}
	completion_ring_push(&conn->queue->ring, &(struct rmr_completion){.conn = conn,
									  .cookie = cookie,
									  .op = op,
									  .status = status,
									  .length = length});
}

/* Something was done for a peer of which the program learns nothing: rmr_wait stays awake for it.
 * Called under the provider's lock, so no other thread counts at the same time. */
static inline void queue_served(struct rmr_queue *queue)
{
	atomic_store_explicit(&queue->served,
			      atomic_load_explicit(&queue->served, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/* May an RMR_OP_RECV_IMM be delivered now? (A message needs recv_pool_get to succeed instead.) */
static inline bool queue_takes_imm(const struct rmr_queue *queue)
{
	return queue->pending_imm < queue->options.recv_slots;
}

/* Delivers a message that lies in a slot of queue->recv, or an immediate. */
void conn_deliver(struct rmr_conn *conn, void *data, size_t length);
void conn_deliver_imm(struct rmr_conn *conn, uint32_t immediate, size_t length);

/* The connection is lost and all its works are completed: reports it, once. */
void conn_lost(struct rmr_conn *conn, enum rmr_status status);

/* Takes completions out of the ring and accounts for them. */
int queue_pop(struct rmr_queue *queue, struct rmr_completion *completions, int max);

/* Drops what the ring holds of a connection that is being closed, slots included. */
void conn_forget(struct rmr_conn *conn);

static inline void region_hold(struct rmr_region *region)
{
	/* Relaxed: whoever holds one reference may make another; nothing is published by it. */
	atomic_fetch_add_explicit(&region->references, 1, memory_order_relaxed);
}
void region_drop(struct rmr_region *region);
void remote_drop(struct rmr_remote *remote);

/* For calls on handles that a parent process opened. */
__attribute__((cold)) enum rmr_status foreign_handle(void);

/* The arena that holds all of address..address+length, or NULL. */
struct rmr_arena *arena_find(const void *address, size_t length);
/* Does the memory reach into an arena, though not all of it lies there? */
bool arena_straddles(const void *address, size_t length);
/* A region refers to the arena, which must not be closed before. */
void arena_hold(struct rmr_arena *arena);
void arena_drop(struct rmr_arena *arena);
int arena_fd(const struct rmr_arena *arena);
uint64_t arena_id(const struct rmr_arena *arena); /* unique in this process, never reused */
bool arena_is_open(uint64_t id);
bool arena_peers_write(const struct rmr_arena *arena);

/* A 64-bit number that a peer cannot guess, never 0. */
enum rmr_status key_random(uint64_t *key);

/* What makes the keys of one connection its own; see key.c. */
struct key_secret {
	uint64_t word[2];
};
/* The key by which the peer of the connection with this secret names the region with this key. */
uint64_t key_derive(const struct key_secret *secret, uint64_t key);

#endif
