/*
 * The objects of the verbs provider, and what its files say to each other.
 *
 *	device.c	the provider's table	name.c		"mlx5_0,socket,gid=3"
 *	doctor.c	why it does not work	async.c		the adapter's own events
 *	region.c	registered memory	gid.c		which GID belongs to an address
 *	queue.c		polling, sleeping	arrive.c	received messages, slots
 *	post.c		works become requests	complete.c	requests are done
 *	conn.c		life and end		keepalive.c	silent hosts
 *	greeting.c	what two ends tell each other when they meet
 *	cm.c		meeting by RDMA CM	socket.c	meeting by TCP
 *	path.c		joins two queue pairs	exchange.c	what must be said for that
 *	own_word.c	atomics on own memory, by the adapter
 *
 * Threads. A queue, its connections and everything below them are touched by the owner of the queue
 * alone, without locks. The one thread of ours (async.c) waits for events of the adapter; it sets
 * atomic flags and writes to an eventfd of the queue, nothing else.
 *
 * Life of a connection:
 *
 *	        the peer is ready        failure, or the peer is gone
 *	MEETING ----------------> OPEN --------------------------------> ENDING
 *	 works wait in the FIFO    works go to the queue pair              | at the next poll
 *	                                                                   | the queue pair goes
 *	                                                                   v
 *	                                  LOST <----------------------- ENDED
 *	                            DISCONNECT is told   none waits     messages that wait for a
 *	                                                                slot are still delivered
 *
 * Ending finds out how far the adapter got (flush_qp in conn.c), and then destroys the queue pair,
 * which is synchronous: afterwards the adapter touches none of our memory for it.
 */
#ifndef FABRIC_VERBS_INTERNAL_H
#define FABRIC_VERBS_INTERNAL_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "fabric/provider.h"
#include "fabric/verbs/greeting.h"

#define VERBS_INLINE_MAX   256u /* more is not worth its copy */
#define VERBS_DEPTH_MAX	   8192u
#define VERBS_CQ_SENDS	   4096u /* requests of all connections of a queue in flight */
#define VERBS_SLOTS_MAX	   16384u
#define VERBS_REGIONS_MAX  16384u
#define VERBS_TRANSFER_MAX (1ull << 40)
#define VERBS_CHAIN_MAX	   32 /* requests handed over with one doorbell */
#define VERBS_POLL_BATCH   16
#define VERBS_PROBES_MAX   4 /* of one connection under way: keepalive.c */
/* Places of a queue pair beyond the depth: for probes, and for the last request (flush_qp). */
#define VERBS_EXTRA_PLACES (VERBS_PROBES_MAX + 1)

/* wr_id: of a receive request this bit and the slot's number; of a send request its number. */
#define VERBS_WR_RECV (1ull << 63)

/* name.c ---------------------------------------------------------------------------------- */

/* What follows "verbs:" in a device's name, separated by commas. */
struct verbs_name {
	char device[IBV_SYSFS_NAME_MAX]; /* "": the first one that has an active port */
	bool socket;			 /* "socket": meet by TCP instead of RDMA CM */
	int gid;			 /* "gid=N": index of the GID; -1: chosen by address */
	int port;			 /* "port=N" of the adapter; 0: the first active one */
	int mtu;			 /* "mtu=N": bytes, at most; 0: the port's */
	int timeout; /* "timeout=N": 4.096 us * 2^N a try; -1: by dead_after_ms */
	int retry;   /* "retry=N": tries, 0 to 7 */
};
enum rmr_status name_parse(const char *text, struct verbs_name *name);

/* device.c -------------------------------------------------------------------------------- */
struct verbs_device {
	struct rmr_device base;
	struct verbs_name name;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	uint8_t port_number;
	bool is_roce;		     /* Ethernet: addressed by GID, not by LID */
	bool is_soft;		     /* soft-RoCE, which is made of the kernel's memory */
	uint32_t max_inline;	     /* what a queue pair of ours takes */
	uint32_t max_chunk;	     /* longest single request */
	uint8_t reads_out, reads_in; /* READs and atomics in flight on one connection */

	/* async.c */
	pthread_t async_thread;
	int async_stop_fd;
	atomic_bool gone;     /* the adapter was removed, or has failed: nothing works any more */
	uint64_t entry;	      /* its inode in sysfs; 0: unknown */
	pthread_mutex_t lock; /* guards queues */
	struct list queues;

	/* own_word.c */
	pthread_mutex_t own_lock; /* guards own */
	struct own_word *own;	  /* NULL: not needed yet, or it has failed */
};

static inline struct verbs_device *verbs_device_of(struct rmr_device *device)
{
	return (struct verbs_device *)device;
}

/* doctor.c -------------------------------------------------------------------------------- */

/* No adapter at all: says what is missing on this machine, and how to get it. */
void doctor_no_device(char *to, size_t size);
/* The adapters there are, as "rxe0 (active), mlx5_1 (down)". */
void doctor_list_devices(char *to, size_t size);
/* An adapter that cannot be opened. */
enum rmr_status doctor_open_failed(struct ibv_device *adapter, int error);
/* RDMA CM cannot be used. */
enum rmr_status doctor_no_cm(struct ibv_device *adapter, int error);
/* A queue of so many entries that cannot be made. */
enum rmr_status doctor_create_failed(const char *what, unsigned entries, int error);
/* The adapter was removed, or has failed. */
enum rmr_status doctor_adapter_gone(const struct rmr_device *device);
/* Memory that cannot be registered. */
enum rmr_status doctor_register_failed(const void *address, size_t length, int error);

/* async.c --------------------------------------------------------------------------------- */
#define ASYNC_LOOK_MS 1000 /* how often it is looked whether the adapter is there */
enum rmr_status async_start(struct verbs_device *device);
void async_stop(struct verbs_device *device);
/* All connections of the device end, with RMR_NO_DEVICE. Any thread. */
void async_adapter_gone(struct verbs_device *device, const char *reason);

/* region.c -------------------------------------------------------------------------------- */
struct verbs_region {
	struct rmr_region base;
	struct ibv_mr *mr; /* NULL: closed */
	uint32_t lkey;
};

struct verbs_remote {
	struct rmr_remote base;
	uint64_t address;
	uint32_t rkey;
};

enum rmr_status verbs_region_init(struct rmr_region *region);
void verbs_region_fini(struct rmr_region *region);
enum rmr_status verbs_region_export(struct rmr_region *region, struct rmr_conn *conn,
				    struct descriptor_wire *wire);
enum rmr_status verbs_remote_init(struct rmr_remote *remote, const struct descriptor_wire *wire);
void verbs_remote_fini(struct rmr_remote *remote);

/* own_word.c ------------------------------------------------------------------------------ */
enum rmr_status verbs_region_compare_swap(struct rmr_region *region, size_t offset,
					  uint64_t compare, uint64_t operand, uint64_t *found);
/* With the device. Legal on NULL. */
void own_word_close(struct own_word *own);

/* queue.c --------------------------------------------------------------------------------- */
struct verbs_conn;

/* A receive slot. Its number is the wr_id of its receive request. */
enum slot_state {
	SLOT_POSTED,  /* the adapter may write to it */
	SLOT_ARRIVED, /* a message or an immediate that waits to be delivered */
	SLOT_HELD,    /* the program has it, or its completion is in the ring */
};

struct verbs_slot {
	struct list link; /* in queue->arrived */
	struct verbs_conn *conn;
	enum slot_state state;
	bool is_immediate;
	uint32_t immediate;
	uint64_t length;
	uint64_t number; /* counts what was posted: the adapter takes slots in this order */
};

struct verbs_queue {
	struct rmr_queue base;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *slots_mr;
	struct rdma_event_channel *cm; /* NULL with "socket" */
	struct queue_source cq_source, cm_source, async_source, timer_source;
	int async_fd; /* eventfd: async.c has set one of these flags, or a connection's */
	atomic_bool adapter_failed, probe_due;
	int timer_fd; /* keepalive.c */
	struct list device_link;
	uint32_t send_room; /* entries of cq left for send requests */
	unsigned cq_events; /* not acknowledged yet */
	bool armed;
	unsigned polls;
	uint64_t looked, look_interval; /* at descriptors: ticks */
	int tick_ms;			/* the timer's period; 0: off */

	struct verbs_slot *slots; /* as many as base.recv has */
	uint32_t held;		  /* slots in state SLOT_HELD: at most recv_slots */
	struct list arrived;	  /* slots in the order of arrival */
	uint64_t slots_posted;	  /* number of the last slot posted */
	uint64_t slots_taken;	  /* all up to this number have been taken by a queue pair */

	struct verbs_conn **by_qpn; /* hash table, open addressing */
	uint32_t by_qpn_mask, by_qpn_count;
	struct list starved; /* connections that wait for send_room */
	struct list ending;
};

static inline struct verbs_queue *verbs_queue_of(struct rmr_queue *queue)
{
	return (struct verbs_queue *)queue;
}

enum rmr_status verbs_queue_init(struct rmr_queue *queue);
void verbs_queue_fini(struct rmr_queue *queue);
int verbs_poll(struct rmr_queue *queue, struct rmr_completion *completions, int max);
enum rmr_status verbs_arm(struct rmr_queue *queue);

/* Takes in all that lies in the completion queue. */
void queue_drain(struct verbs_queue *queue);
enum rmr_status queue_add_conn(struct verbs_queue *queue, struct verbs_conn *conn);
void queue_remove_conn(struct verbs_queue *queue, struct verbs_conn *conn);

/* arrive.c -------------------------------------------------------------------------------- */
enum rmr_status arrive_init(struct verbs_queue *queue);
void arrive_fini(struct verbs_queue *queue);
/* A receive request is done. */
void arrive_take(struct verbs_queue *queue, const struct ibv_wc *wc);
/* Delivers what waits, as far as there is room for it. */
void arrive_deliver(struct verbs_queue *queue);
/* Drops what waits of a connection, and what the ring holds of it. */
void arrive_forget(struct verbs_conn *conn);
/* Posts slots again that a broken adapter has lost. */
void arrive_reclaim(struct verbs_queue *queue);
void verbs_recv_release(struct rmr_queue *queue, void *data);

/* conn.c ---------------------------------------------------------------------------------- */
enum conn_state {
	CONN_MEETING,
	CONN_OPEN,
	CONN_ENDING,
	CONN_ENDED,
	CONN_LOST,
};

/* A work between post and completion. Once it was handed over only cookie, length, started, first,
 * last, op and flags count: start_now() sets no others. */
struct verbs_work {
	uint64_t cookie;
	uint8_t *local;
	uint64_t length;
	uint64_t address; /* remote */
	uint64_t operand; /* or the immediate */
	uint64_t compare;
	uint64_t started; /* bytes of it that were handed to the adapter */
	uint32_t lkey, rkey;
	uint32_t first; /* number of its first request, once started */
	uint32_t last;	/* number of its last request, once all are handed over */
	uint8_t op;	/* enum rmr_op */
	uint8_t flags;
	bool stashed; /* the payload lies in conn->stash */
	bool waited;  /* it was not started when it was posted */
};

struct verbs_conn {
	struct rmr_conn base;
	enum conn_state state;
	enum rmr_status failure; /* why it ends */
	bool has_culprit;	 /* the failure is that of the first work left */
	bool broken;		 /* a request has failed; those behind it tell nothing new */
	struct ibv_qp *qp;	 /* NULL: not yet, or no more */
	uint32_t qpn;
	struct list starved_link, ending_link;
	uint32_t waiting; /* slots in queue->arrived that are ours */
	uint64_t taken;	  /* no slot up to this number is being filled by our queue pair */
	bool stalled;	  /* one of them cannot be delivered now; scratch of arrive_deliver */

	uint64_t my_secret, peer_secret; /* see region.c */

	/* Works: head..next-1 are with the adapter, next..tail-1 wait. */
	struct verbs_work *works;
	uint32_t work_mask;
	uint32_t head, next, tail;
	uint8_t *stash; /* max_inline bytes for each of works; NULL until needed */

	/* Requests: done..posted-1 are with the adapter, at most send_max. */
	uint32_t done, posted, send_max;
	uint32_t unsignaled;	    /* since the last signaled one */
	uint64_t last_probe_ns;	    /* keepalive.c */
	uint32_t done_before;	    /* `done` at the last tick of keepalive.c */
	unsigned probes;	    /* under way ... */
	uint32_t last_probe;	    /* ... and the number of the last one */
	bool connected;		    /* the queue pair was up */
	atomic_bool adapter_failed; /* by async.c */
	atomic_bool last_slot;	    /* by async.c: the stopped queue pair fills no slot any more */

	/* The control channel: one of these. */
	struct rdma_cm_id *id;
	struct verbs_socket *socket;
};

static inline struct verbs_queue *conn_queue(const struct verbs_conn *conn)
{
	return (struct verbs_queue *)conn->base.queue;
}

/* Where a connection is, or would be, in the queue's table. Adapters count up, and some keep a
 * constant in the low bits. */
static inline uint32_t queue_place_of(const struct verbs_queue *queue, uint32_t qpn)
{
	return (qpn * 2654435761u >> 8) & queue->by_qpn_mask;
}

/* The connection that a completion is of; NULL: it is gone. */
static inline struct verbs_conn *queue_find_conn(const struct verbs_queue *queue, uint32_t qpn)
{
	uint32_t place;

	if (!queue->by_qpn)
		return NULL;
	place = queue_place_of(queue, qpn);
	while (queue->by_qpn[place] && queue->by_qpn[place]->qpn != qpn)
		place = (place + 1) & queue->by_qpn_mask;
	return queue->by_qpn[place];
}

static inline struct verbs_device *conn_device(const struct verbs_conn *conn)
{
	return (struct verbs_device *)conn->base.queue->device;
}

/* Allocates what a connection needs, and its queue pair, in state RESET. */
enum rmr_status verbs_conn_prepare(struct verbs_conn *conn);
/* Undoes it; for connections that never opened. */
void verbs_conn_unprepare(struct verbs_conn *conn);
/* Moves the queue pair to INIT, RTR or RTS (attr->qp_state). What is ours to choose is put into
 * attr: access flags, timers, retries, READs in flight within what the adapter can. */
enum rmr_status verbs_conn_move(struct verbs_conn *conn, struct ibv_qp_attr *attr, int mask);
/* What we tell the peer when we meet, and what it told us. */
void verbs_conn_greeting(struct verbs_conn *conn, struct greeting *greeting);
void verbs_conn_take_greeting(struct verbs_conn *conn, const struct greeting *greeting);
/* The queue pair is in RTS: the connection is OPEN, or MEETING until verbs_conn_peer_ready. */
void verbs_conn_open(struct verbs_conn *conn, bool peer_ready);
void verbs_conn_peer_ready(struct verbs_conn *conn);
/* It is over, at the next poll. The first status counts. */
void verbs_conn_fail(struct verbs_conn *conn, enum rmr_status status);
/* ENDING ones become ENDED, and LOST as soon as nothing waits. */
void verbs_conn_end_all(struct verbs_queue *queue);
/* ENDED, and nothing waits any more: LOST. */
void verbs_conn_settle(struct verbs_conn *conn);

enum rmr_status verbs_accept(struct rmr_request *request, struct rmr_conn *conn);
enum rmr_status verbs_connect(struct rmr_conn *conn, const char *address, uint64_t deadline_ns);
void verbs_conn_fini(struct rmr_conn *conn);

/* post.c ---------------------------------------------------------------------------------- */
int verbs_post(struct rmr_conn *conn, const struct rmr_work *works, int count);
void verbs_flush(struct rmr_conn *conn);
/* Hands over what waits, as far as there is room. */
void post_start(struct verbs_conn *conn);
/* A request that does nothing but ask whether the peer's adapter is there. is_stuck: also if others
 * are under way, and up to VERBS_PROBES_MAX of them. */
bool post_probe(struct verbs_conn *conn, bool is_stuck);

/* complete.c ------------------------------------------------------------------------------ */
/* A send request is done. */
void complete_take(struct verbs_queue *queue, const struct ibv_wc *wc);
/* The queue pair is gone: all works that are left fail. */
void complete_rest(struct verbs_conn *conn);

/* keepalive.c ----------------------------------------------------------------------------- */
enum rmr_status keepalive_init(struct verbs_queue *queue);
void keepalive_fini(struct verbs_queue *queue);
/* A connection was opened or closed. */
void keepalive_update(struct verbs_queue *queue);
/* Asks all peers now: the port went down, say. */
void keepalive_probe_all(struct verbs_queue *queue);

/* gid.c ----------------------------------------------------------------------------------- */
/* The GID of the device that belongs to a local address, or the one that the device's name asks
 * for. On InfiniBand: index 0. */
enum rmr_status gid_choose(struct verbs_device *device, const struct sockaddr *local, int *index,
			   union ibv_gid *gid);
/* An IP address under which the device can be reached from elsewhere, without brackets; false when
 * it has none. */
bool gid_address(struct verbs_device *device, char *to, size_t size);
/* Is it an IPv4 address? The GID of this address? One of this device's? */
bool gid_is_ipv4(const uint8_t gid[16]);
bool gid_is_address(const union ibv_gid *gid, const struct sockaddr *address);
bool gid_is_loopback_address(const struct sockaddr *address);
bool gid_is_own(struct verbs_device *device, const union ibv_gid *gid);

/* Meeting. Each way has a listener, a request and a control channel of its own; cm.c and socket.c
 * are chosen by device->name.socket. ------------------------------------------------------- */
struct verbs_listener {
	struct rmr_listener base;
	struct cm_channel *cm;
	struct rdma_cm_id *id;
	struct socket_listener *socket;
};

struct verbs_request {
	struct rmr_request base;
	struct greeting greeting;
	struct cm_channel *cm; /* that id is on: the listener may be closed before */
	struct rdma_cm_id *id;
	uint8_t reads_out, reads_in; /* that the caller can take from us, and wants from us */
	struct socket_caller *caller;
};

/* cm.c */
/* A channel for events, which never blocks. */
enum rmr_status cm_open_channel(const struct verbs_device *device,
				struct rdma_event_channel **channel);
enum rmr_status cm_listener_init(struct verbs_listener *listener, const char *address);
void cm_listener_fini(struct verbs_listener *listener);
enum rmr_status cm_listener_next(struct verbs_listener *listener, struct verbs_request *request,
				 int *wait_ms);
void cm_reject(struct verbs_request *request, const char *reason);
enum rmr_status cm_accept(struct verbs_request *request, struct verbs_conn *conn);
enum rmr_status cm_connect(struct verbs_conn *conn, const char *address, uint64_t deadline_ns);
/* Events of the connections of a queue. */
void cm_ready(struct queue_source *source, uint32_t events);
/* Tells the peer that it is over, and closes the control channel. */
void cm_close(struct verbs_conn *conn);

/* socket.c: the same */
enum rmr_status socket_listener_init(struct verbs_listener *listener, const char *address);
void socket_listener_fini(struct verbs_listener *listener);
enum rmr_status socket_listener_next(struct verbs_listener *listener, struct verbs_request *request,
				     int *wait_ms);
void socket_reject(struct verbs_request *request, const char *reason);
enum rmr_status socket_accept(struct verbs_request *request, struct verbs_conn *conn);
enum rmr_status socket_connect(struct verbs_conn *conn, const char *address, uint64_t deadline_ns);
void socket_close(struct verbs_conn *conn);
/* The caller did not come to meet us in time. */
bool socket_is_overdue(const struct verbs_conn *conn, uint64_t now_ns);

#endif
