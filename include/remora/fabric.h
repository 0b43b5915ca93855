/*
 * The fabric: remote memory and messages, the same on every transport.
 *
 * Six kinds of object:
 *
 *	device		one transport on one adapter: "shm", "tcp", "verbs:mlx5_0", "ofi:efa"
 *	arena		memory that peers can reach fastest (a memfd, huge pages on request)
 *	region		memory of this process that a device may use, with rights for peers
 *	queue		where completions, received messages and connection events come out
 *	listener	an address where peers connect
 *	connection	a reliable, ordered link between two queues
 *
 * and one way to work with them: post operations on a connection, poll its queue.
 *
 *	server				client
 *	------				------
 *	rmr_device_open			rmr_device_open
 *	rmr_queue_open			rmr_queue_open
 *	rmr_listener_open
 *	rmr_listener_next  <---------	rmr_connect
 *	rmr_accept
 *	rmr_region_export  -- SEND -->	rmr_remote_open
 *					rmr_post(READ), rmr_wait	no call on the server's side
 *
 * Threads. A queue and the connections on it belong to one thread at a time. Devices, arenas,
 * regions and listeners may be used by any thread; rmr_queue_wake may be called by any thread.
 * After fork() the child cannot use what the parent opened: calls on it fail with RMR_INVALID,
 * rmr_poll and rmr_wait bring nothing, and closing lets go of the child's descriptors and maps
 * without telling peers (on verbs and ofi it does nothing). The child may open its own.
 *
 * Ownership. Who opens an object closes it. Close children first: remotes and connections before
 * their queue; queues, listeners and regions before their device; regions before their arena.
 * Closing NULL does nothing.
 *
 * What every transport guarantees (the contract; src/fabric/provider.h says how it is kept):
 *  1. READ, WRITE, COMPARE_SWAP and FETCH_ADD complete although the target program calls nothing.
 *     (The initiator polls. A SEND needs the receiver to poll as well, and a free slot there; so
 *     does a WRITE_IMM, but for the slot.)
 *  2. A completed WRITE is placed: whoever reads the memory later sees it. A message, or the
 *     immediate of a WRITE_IMM, is delivered after all that was written before it on the same
 *     connection is placed. Messages and immediates arrive in the order they were posted.
 *  3. Completions of one connection come in the order of posting; a success means that everything
 *     posted before it on that connection succeeded too, so most operations can go unsignaled.
 *  4. Access outside a region, with a stale key or beyond the rights fails with RMR_ACCESS and ends
 *     that connection (both sides are told); it touches no memory and no other connection.
 *  5. When a peer dies, operations in flight complete with an error and RMR_OP_DISCONNECT follows,
 *     in bounded time.
 *  6. No limit is silent: all are in struct rmr_device_info and struct rmr_conn_info.
 * A READ is not atomic: bytes may be of different moments. Only the two atomics are. And a READ may
 * see what is written behind it on the same connection; where that matters, wait for the READ.
 */
#ifndef REMORA_FABRIC_H
#define REMORA_FABRIC_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <remora/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rmr_device;
struct rmr_arena;
struct rmr_region;
struct rmr_remote;
struct rmr_queue;
struct rmr_listener;
struct rmr_request;
struct rmr_conn;

/* ------------------------------------------------------------------------------------------
 * Devices
 */

/* What a device can do beyond the contract. */
enum rmr_capability {
	RMR_CAP_ATOMIC = 1 << 0,       /* COMPARE_SWAP and FETCH_ADD on memory of arenas */
	RMR_CAP_ATOMIC_PLAIN = 1 << 1, /* ... and on the caller's own memory */
	RMR_CAP_ATOMIC_CPU = 1 << 2,   /* ... and atomic against the CPU's own atomics as well: the
					* owner may read and change such words by those */
	RMR_CAP_MAP = 1 << 3,	       /* a peer's arena can be mapped: rmr_remote_pointer */
	RMR_CAP_OFFLOAD = 1 << 4,      /* READ, WRITE and atomics cost the target's processor
					* nothing: they go on even if its program is stopped */
};

struct rmr_device_info {
	char name[64];	       /* as rmr_device_open takes it */
	char provider[16];     /* "shm", "tcp", ... */
	unsigned capabilities; /* enum rmr_capability */
	size_t max_message;    /* longest SEND, given slots of that size at the receiver */
	size_t max_transfer;   /* longest READ, WRITE or WRITE_IMM */
	size_t max_inline;     /* longest RMR_INLINE payload */
	uint32_t max_depth;    /* operations in flight on one connection */
	uint32_t max_slots;    /* receive slots of one queue */
	uint32_t max_regions;  /* regions open at once */
	uint32_t max_arenas;   /* arenas whose regions one connection can be given; 0: any number */
};

/* How much memory peers may grant us. Only shm maps a peer's memory, so only there it counts.
 *
 * A peer grants an arena by passing its descriptor, which waits, unmapped, until rmr_remote_open
 * asks for a region of it. A peer that grants more than `arenas` loses its connection; an arena
 * beyond `bytes`, which counts in full when it is mapped, is refused by rmr_remote_open. A program
 * that does not trust its callers yet accepts them with limits of 0 (a pointer to a zeroed struct),
 * and raises them with rmr_conn_set_grants once a caller has proved who it is. */
struct rmr_grant_limits {
	uint32_t arenas; /* at once, mapped or waiting; 0: none */
	uint64_t bytes;	 /* of all arenas that are mapped, together */
	/* Map arenas in huge pages too, if peers cannot write to them: from others their owner can
	 * take pages away, and our next access is SIGBUS. For peers that this program chose itself:
	 * pages that were never touched count against the huge pages of our own cgroup, and beyond
	 * its limit the access is SIGBUS as well. */
	bool huge;
};

struct rmr_device_options {
	const char *fault_plan; /* for "fault:..." devices; NULL takes REMORA_FAULT_PLAN */
	/* For what is mapped by all connections of the device together: then rmr_remote_open
	 * answers RMR_LIMIT. `huge` does not count here. NULL: 65536 arenas, 64 TiB. */
	const struct rmr_grant_limits *grants;
};

/* Opens a device by name. options may be NULL.
 * RMR_NO_DEVICE: no such provider or adapter here; the message lists those there are. */
RMR_MUST_CHECK enum rmr_status rmr_device_open(const char *name,
					       const struct rmr_device_options *options,
					       struct rmr_device **device);

/* Closes a device. Everything opened on it must be closed before; that is asserted. */
void rmr_device_close(struct rmr_device *device);

const struct rmr_device_info *rmr_device_info(const struct rmr_device *device);

/* One device that exists on this machine, or could. */
struct rmr_device_entry {
	char name[64];
	bool usable;
	char reason[192]; /* why it is not usable, and how to get it; "" when it is */
};

/* Lists the devices of this machine, unusable ones included. Returns how many there are and writes
 * at most max of them. */
size_t rmr_device_list(struct rmr_device_entry *entries, size_t max);

/* ------------------------------------------------------------------------------------------
 * Memory: arenas and regions
 */

enum rmr_arena_flag {
	RMR_ARENA_PEERS_WRITE = 1 << 0, /* peers may be given write and atomic rights */
	RMR_ARENA_HUGE = 1 << 1,	/* huge pages, or ordinary ones with a logged warning */
	RMR_ARENA_PREFAULT = 1 << 2,	/* touch every page now instead of at first use */
};

/* Makes an arena of at least size bytes (rounded up to pages), zeroed, mapped in this process.
 *
 * Unless RMR_ARENA_PEERS_WRITE is given the memory is sealed: no other process can ever map it
 * writable, not even one that breaks every rule of this library. On shm the arena is the unit of
 * trust: a peer that was given one region of a writable arena could reach all of that arena. */
RMR_MUST_CHECK enum rmr_status rmr_arena_open(size_t size, unsigned flags,
					      struct rmr_arena **arena);
void rmr_arena_close(struct rmr_arena *arena);

void *rmr_arena_base(const struct rmr_arena *arena);
size_t rmr_arena_size(const struct rmr_arena *arena);
size_t rmr_arena_page_size(const struct rmr_arena *arena); /* tells whether huge pages were had */

/* What peers may do with a region. Its owner may always use it as the local side of operations. */
enum rmr_right {
	RMR_READ = 1 << 0,
	RMR_WRITE = 1 << 1,
	RMR_ATOMIC = 1 << 2,
};

/* Makes length bytes at address usable by device, and by peers as far as rights go. The memory may
 * lie in an arena (fastest, all rights) or be any other memory of the caller, who keeps it alive
 * until the region is closed. rights may be 0: then it serves only local ends. With RMR_ATOMIC the
 * address must be a multiple of 8.
 *
 * RMR_DENIED: write or atomic rights on an arena without RMR_ARENA_PEERS_WRITE.
 * RMR_UNSUPPORTED: atomic rights where the device has no RMR_CAP_ATOMIC(_PLAIN).
 * RMR_LIMIT: max_regions are open. */
RMR_MUST_CHECK enum rmr_status rmr_region_open(struct rmr_device *device, void *address,
					       size_t length, unsigned rights,
					       struct rmr_region **region);

/* Ends all access. When it returns no operation of a well-behaved peer touches the memory any more,
 * and later ones fail with RMR_ACCESS. Own operations that still use the region fail, and with them
 * their connection. By shm a peer that was stopped in the middle of an access is waited for a tenth
 * of a second, and then loses its connection: rmr_conn_lingers() tells. */
void rmr_region_close(struct rmr_region *region);

/* The first half of rmr_region_close(), for programs that must not wait: from now on no access
 * begins. RMR_OK: none is under way either, and rmr_region_close() will return at once. RMR_AGAIN:
 * a peer is inside; ask again, or close the region: that waits for the rest of the tenth of a
 * second since the first call. */
RMR_MUST_CHECK enum rmr_status rmr_region_revoke(struct rmr_region *region);

/* Gives the memory back to its owner while operations still use the region, and keeps their
 * connections: from now on these operations, and those of peers, use a copy of the memory, which
 * the region owns. What they write after this is lost. When it returns nothing touches the memory
 * itself any more. The region stays open, with its keys, until rmr_region_close(), and no operation
 * may be posted with it any more. For memory outside of arenas. RMR_UNSUPPORTED: this device
 * cannot; then rmr_region_close() is the way, which ends the connections. RMR_NO_MEMORY: no copy
 * can be made. */
RMR_MUST_CHECK enum rmr_status rmr_region_detach(struct rmr_region *region);

/* COMPARE_SWAP on a word of our own region, which has RMR_ATOMIC; offset is a multiple of 8. It is
 * atomic with what peers do by this device, also where that has no RMR_CAP_ATOMIC_CPU: then its
 * adapter does it, which takes some microseconds, and the caller spins. *found becomes what was
 * there before: if that is `compare`, `operand` is there now. Any thread.
 * RMR_INVALID: no such word. RMR_UNSUPPORTED: the device cannot. RMR_NO_DEVICE, RMR_SYSTEM,
 * RMR_TIMEOUT: the adapter has failed; it may have been done or not. */
RMR_MUST_CHECK enum rmr_status rmr_region_compare_swap(struct rmr_region *region, size_t offset,
						       uint64_t compare, uint64_t operand,
						       uint64_t *found);

/* A region as a peer sees it: plain bytes that can be sent, stored or copied. */
struct rmr_descriptor {
	alignas(8) uint8_t bytes[64];
};

/* Grants the peer of conn the use of region and writes the descriptor that the peer hands to
 * rmr_remote_open on that connection. Nothing is granted without this call, and the descriptor is
 * of no use on another connection, not even one of the same peer: export the region on each. (shm
 * is the exception: there an arena that a peer was given is mapped, and all of it is granted.) The
 * grant ends when the region or the connection is closed.
 * RMR_AGAIN: the peer has not polled for long and cannot take more. RMR_LIMIT: too many arenas. */
RMR_MUST_CHECK enum rmr_status rmr_region_export(struct rmr_region *region, struct rmr_conn *conn,
						 struct rmr_descriptor *descriptor);

/* Turns a descriptor received from the peer of conn into a handle for operations.
 * RMR_INVALID: not a descriptor of this transport. RMR_ACCESS: not granted to this connection,
 * or closed again, where that can be told by now; elsewhere the first operation fails with it.
 * RMR_DENIED: memory outside arenas of a process that we may not access, or in huge pages where
 * struct rmr_grant_limits does not let us map it. RMR_LIMIT: beyond the limits of that struct.
 * RMR_DISCONNECTED: the peer is gone. */
RMR_MUST_CHECK enum rmr_status rmr_remote_open(struct rmr_conn *conn,
					       const struct rmr_descriptor *descriptor,
					       struct rmr_remote **remote);
/* Legal while the connection is open, alive or lost; closing the connection closes its remotes. */
void rmr_remote_close(struct rmr_remote *remote);

size_t rmr_remote_length(const struct rmr_remote *remote);
unsigned rmr_remote_rights(const struct rmr_remote *remote);

/* The peer's memory as mapped here, where RMR_CAP_MAP and an arena make that possible, else NULL.
 * Valid until the remote is closed; the bytes change under the reader, and stay readable after the
 * peer is gone. Read only, unless the region has write rights. */
const void *rmr_remote_pointer(const struct rmr_remote *remote);

/* ------------------------------------------------------------------------------------------
 * Queues
 */

struct rmr_queue_options {
	uint32_t recv_slots; /* messages that can wait to be released; default 64 */
	uint32_t recv_size;  /* longest message that can be received; default 8192 */
	int spin_us;	     /* rmr_wait: spin at most so long before sleeping; default 50,
			      * negative: never spin */
	bool never_woken;    /* true: rmr_queue_wake is not called for this queue (which is
			      * asserted); saves a descriptor */
};

/* options may be NULL, and 0 in a field means its default. RMR_LIMIT: beyond the device's. */
RMR_MUST_CHECK enum rmr_status rmr_queue_open(struct rmr_device *device,
					      const struct rmr_queue_options *options,
					      struct rmr_queue **queue);
/* Closes a queue. Its connections must be closed before; that is asserted. */
void rmr_queue_close(struct rmr_queue *queue);

enum rmr_op {
	RMR_OP_SEND = 1,     /* a message into one of the peer's receive slots */
	RMR_OP_WRITE,	     /* local memory to the peer's */
	RMR_OP_WRITE_IMM,    /* the same, and 32 bits that the peer receives */
	RMR_OP_READ,	     /* the peer's memory to local */
	RMR_OP_COMPARE_SWAP, /* if (*p == compare) *p = operand; the old *p lands in local */
	RMR_OP_FETCH_ADD,    /* *p += operand; the old *p lands in local */
	/* These are never posted; they come out of rmr_poll: */
	RMR_OP_RECV,	   /* a message: data, length. Give it back with rmr_recv_release */
	RMR_OP_RECV_IMM,   /* a peer's WRITE_IMM is placed: immediate, and length as the peer says;
			    * there is no slot to release */
	RMR_OP_DISCONNECT, /* the connection is lost; the last one of it. status says why:
			    * RMR_DISCONNECTED when the peer closed it or died, RMR_NO_DEVICE
			    * when the adapter here was removed or has failed: then close all
			    * that is open on the device, so that it can go */
};

/* Something that happened. */
struct rmr_completion {
	struct rmr_conn *conn;
	uint64_t cookie; /* of the posted operation; else 0 */
	enum rmr_op op;
	enum rmr_status status; /* if not RMR_OK, only conn, cookie and op count otherwise */
	void *data;		/* RMR_OP_RECV: the message, aligned to 64; ours until released */
	size_t length;
	uint32_t immediate;
};

/* Makes progress and takes up to max completions. Returns how many, never less than 0. Never
 * blocks; on a busy shm or verbs queue it makes no system call. */
int rmr_poll(struct rmr_queue *queue, struct rmr_completion *completions, int max);

/* As rmr_poll, but waits up to timeout_ms (negative: for ever) for the first completion: spins a
 * little (spin_us, less when that was in vain lately), then sleeps. Operations held back by
 * RMR_MORE on this queue's connections are flushed before sleeping. Returns 0 on timeout and when
 * another thread called rmr_queue_wake. */
int rmr_wait(struct rmr_queue *queue, struct rmr_completion *completions, int max, int timeout_ms);

/* Makes a thread that is, or next goes, into rmr_wait on this queue come back. Any thread, and
 * signal handlers too. It does not make rmr_queue_fd readable. */
void rmr_queue_wake(struct rmr_queue *queue);

/* For event loops: a descriptor that becomes readable once there may be something to poll. Before
 * sleeping on it call rmr_queue_arm: RMR_OK means that it is safe to sleep, RMR_AGAIN that
 * something came in meanwhile: poll first. It must be the last call before sleeping: any other on
 * the queue or its connections may use up what the descriptor would have told. */
int rmr_queue_fd(const struct rmr_queue *queue);
RMR_MUST_CHECK enum rmr_status rmr_queue_arm(struct rmr_queue *queue);

/* Counts what peers did by themselves (READ, WRITE, atomics) where that goes by our polling, as
 * over tcp: an event loop that sees it change does well to go on polling before it sleeps.
 * rmr_wait does so by itself. */
unsigned rmr_queue_activity(const struct rmr_queue *queue);

/* Gives the slot of a received message back. data is the completion's. Order does not matter.
 * Messages that are never given back in the end stall all peers of the queue. */
void rmr_recv_release(struct rmr_queue *queue, void *data);

/* ------------------------------------------------------------------------------------------
 * Connections
 */

/* Bytes that travel with connect and accept. */
#define RMR_PRIVATE_MAX 32

struct rmr_listener_options {
	int backlog;		  /* requests that may wait; default 128 */
	int handshake_timeout_ms; /* a silent caller is dropped after this; default 2000 */
	unsigned socket_mode;	  /* shm: permissions of the socket file; default 0600 */
	bool any_user;		  /* shm: take callers of other users too */
	/* tcp, and verbs by socket: listens where this one does, which is of another transport and
	 * has to stay open as long; callers are told apart by what they say first. The address is
	 * not looked at then. NULL: for itself. */
	struct rmr_listener *beside;
};

/* Listens at an address. tcp: "host:port", "[v6]:port", "*:port" or ":port"; port 0 picks one. shm:
 * a name such as "cache", or the path of a socket file. A name lies in $REMORA_SHM_DIR if that is
 * set; else in /run/remora for root, in $XDG_RUNTIME_DIR/remora or /tmp/remora-UID for other users,
 * who also find root's. */
RMR_MUST_CHECK enum rmr_status rmr_listener_open(struct rmr_device *device, const char *address,
						 const struct rmr_listener_options *options,
						 struct rmr_listener **listener);
void rmr_listener_close(struct rmr_listener *listener);

/* The address that a peer can give to rmr_connect (with the port that was picked). */
const char *rmr_listener_address(const struct rmr_listener *listener);

/* Readable when rmr_listener_next may have something to do. */
int rmr_listener_fd(const struct rmr_listener *listener);

/* Takes the next caller that has introduced itself. Waits up to timeout_ms (0: not at all,
 * negative: for ever). RMR_TIMEOUT: nobody came. RMR_NO_DEVICE: nobody will, for the adapter is
 * gone. Callers that send nonsense or nothing are dropped in here. */
RMR_MUST_CHECK enum rmr_status rmr_listener_next(struct rmr_listener *listener, int timeout_ms,
						 struct rmr_request **request);

/* Who calls: "127.0.0.1:40312", or "pid 4711 uid 1000". Valid as long as the request. */
const char *rmr_request_peer(const struct rmr_request *request);
/* What the caller sent along (may be NULL when *length is 0). */
const void *rmr_request_private(const struct rmr_request *request, size_t *length);

struct rmr_conn_options {
	uint32_t depth;		  /* operations in flight; default 128 */
	uint32_t auto_flush;	  /* ring the doorbell after so many held ones; default depth */
	int dead_after_ms;	  /* a silent host is dead after this; default 10000 */
	const void *private_data; /* at most RMR_PRIVATE_MAX bytes, copied */
	size_t private_length;
	void *user; /* what rmr_conn_user returns */
	/* What the peer may grant us; copied. NULL: 256 arenas, 8 TiB, no huge pages. */
	const struct rmr_grant_limits *grants;
};

/* Takes the request as a connection on queue; the request is used up whatever the outcome. Does not
 * wait. May run in another thread than rmr_listener_next. */
RMR_MUST_CHECK enum rmr_status rmr_accept(struct rmr_request *request, struct rmr_queue *queue,
					  const struct rmr_conn_options *options,
					  struct rmr_conn **conn);
/* Turns the caller down; it gets RMR_REFUSED with this reason. Uses up the request. */
void rmr_reject(struct rmr_request *request, const char *reason);

/* Connects to a listener; waits for its answer up to timeout_ms (negative: for ever). RMR_REFUSED,
 * RMR_TIMEOUT, RMR_BAD_ADDRESS, RMR_PROTOCOL (something else listens there), RMR_DENIED (not for
 * us), RMR_LIMIT (options beyond the device's limits). */
RMR_MUST_CHECK enum rmr_status rmr_connect(struct rmr_queue *queue, const char *address,
					   int timeout_ms, const struct rmr_conn_options *options,
					   struct rmr_conn **conn);

/* Changes what the peer may grant us. What is mapped stays. The owner of the queue calls. */
void rmr_conn_set_grants(struct rmr_conn *conn, const struct rmr_grant_limits *limits);

/* Closes a connection at any moment. What was sent and completed still reaches the peer, who then
 * gets RMR_OP_DISCONNECT; what had not completed is dropped. What the peer has in flight fails
 * there, even if it was carried out here: a peer that must know lets its operations complete.
 * Nothing of the connection comes out of the queue afterwards. Slots not yet released stay valid.
 */
void rmr_conn_close(struct rmr_conn *conn);

struct rmr_conn_info {
	const char *peer;	  /* as rmr_request_peer */
	const void *private_data; /* what the peer sent along */
	size_t private_length;
	size_t max_send; /* longest SEND: the peer's recv_size, or the device's limit */
	uint32_t depth;
	bool alive; /* false once RMR_OP_DISCONNECT is on its way */
};
void rmr_conn_get_info(const struct rmr_conn *conn, struct rmr_conn_info *info);

/* To be asked after rmr_region_close(), and before rmr_conn_close(): true if the peer may still be
 * in the middle of an access to that memory. That happens on shm alone, where the peer's process
 * makes the access by itself and may be stopped within it. *process then is a descriptor that
 * becomes readable when that process is dead; the caller closes it. -1: there is none (an old
 * kernel), and the end of that process cannot be told. */
bool rmr_conn_lingers(const struct rmr_conn *conn, int *process);

void *rmr_conn_user(const struct rmr_conn *conn);
void rmr_conn_set_user(struct rmr_conn *conn, void *user);
struct rmr_queue *rmr_conn_queue(const struct rmr_conn *conn);

/* ------------------------------------------------------------------------------------------
 * Operations
 */

enum rmr_flag {
	RMR_UNSIGNALED = 1 << 0, /* no completion, unless it fails */
	RMR_INLINE = 1 << 1,	 /* copied at once: local is free again, and needs no region */
	RMR_MORE = 1 << 2,	 /* more follows: need not start before a flush */
};

/* One operation. Fields that an operation does not use are ignored. local..local+length must lie in
 * region (except with RMR_INLINE and for length 0) and stay untouched until completion. */
struct rmr_work {
	enum rmr_op op;
	unsigned flags;
	uint64_t cookie; /* comes back in the completion */
	union {
		void *local;	    /* where READ lands; and, aligned to 8, an atomic's old value */
		const void *source; /* what SEND and WRITE take; the same field */
	};
	size_t length; /* atomics: 8 */
	struct rmr_region *region;
	struct rmr_remote *remote; /* all but SEND */
	uint64_t offset;	   /* in remote; atomics: a multiple of 8 */
	uint32_t immediate;	   /* WRITE_IMM */
	uint64_t operand;	   /* what to add, or to swap in */
	uint64_t compare;	   /* COMPARE_SWAP */
};

/* Posts count operations in order. Returns how many were taken: fewer than count, or 0, when depth
 * operations are in flight (poll, then go on). Negative, and nothing of the rest taken, when the
 * first one left is wrong: RMR_INVALID, RMR_TOO_LONG, RMR_UNSUPPORTED, or RMR_DISCONNECTED.
 *
 * A call whose last operation has no RMR_MORE rings the doorbell for all that was held back. */
RMR_MUST_CHECK int rmr_post(struct rmr_conn *conn, const struct rmr_work *works, int count);

/* Starts everything held back by RMR_MORE: one doorbell, one system call, one wake-up. */
void rmr_flush(struct rmr_conn *conn);

#ifdef __cplusplus
}
#endif

#endif
