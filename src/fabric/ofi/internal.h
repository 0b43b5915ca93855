/*
 * The objects of the ofi provider, and what its files say to each other.
 *
 *	device.c	the provider's table	name.c		"ofi:tcp", what there is here
 *	library.c	libfabric, loaded late	endpoint.c	a queue's endpoint and its peers
 *	greeting.h	bytes of the bootstrap	listener.c	callers introduce themselves
 *	conn.c		connect, accept, close	control.c	the socket that stays: bye, death
 *	queue.c		polling			sleep.c		what is slept upon
 *	packet.c	frames in packets	lend.c		long READs, without packets
 *	door.c		endpoints for these
 *	address.c	what a peer is told	limits.h	every limit
 *
 * Each object begins with the engine's (src/fabric/tcp/internal.h), which holds its rules: locks,
 * life of a connection, memory. Functions below that take a queue or a connection expect that the
 * queue's lock is held, unless they are slots of struct rmr_provider. libfabric is only called
 * under the lock of the queue whose endpoint it is about, and each queue has domains of its own, so
 * libfabric is told that it need not lock (FI_THREAD_DOMAIN).
 *
 * Memory of a queue, besides the engine's and libfabric's: OFI_RECEIVES and a few packets more, 1.5
 * MiB. Of a connection: at most OFI_SENDS_MAX packets in flight, and packets that came too early,
 * at most OFI_STRAY_BYTES; and an endpoint, once it has read something long.
 */
#ifndef FABRIC_OFI_INTERNAL_H
#define FABRIC_OFI_INTERNAL_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/types.h>

#include "fabric/ofi/greeting.h"
#include "fabric/ofi/limits.h"
#include "fabric/tcp/internal.h"

/* The API that we are written for. */
#define OFI_API_VERSION FI_VERSION(1, 14)

/* What is a symbol of libfabric. */
struct ofi_library {
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	const char *(*strerror)(int code);
};

struct ofi_device {
	struct tcp_device stream;
	const struct ofi_library *library;
	struct fi_info *info;
	struct fid_fabric *fabric;
	uint8_t mode;		   /* GREETING_PACKED and others */
	struct fi_info *door_info; /* with GREETING_PUSHED */
};

/* Where an endpoint is, as libfabric writes it. */
struct ofi_address {
	_Alignas(8) uint8_t bytes[GREETING_ADDRESS_MAX];
	uint8_t length;
};

/* What an operation of libfabric was: its context begins with what the provider may scribble on. */
enum ofi_kind {
	OFI_RECEIVE,
	OFI_SEND,
	OFI_PUSH,
	OFI_LEASE,
};

struct ofi_context {
	struct fi_context2 scratch;
	enum ofi_kind kind;
};

/* A packet: this, and a part of the connection's stream of frames. */
struct ofi_packet {
	uint64_t token;	 /* the receiver's, of the greeting */
	uint32_t number; /* from 0, by connection and direction */
	uint32_t taken;	 /* how many the sender has taken in */
	uint8_t bytes[OFI_PACKET_BYTES];
};
#define OFI_PACKET_HEADER offsetof(struct ofi_packet, bytes)
static_assert(OFI_PACKET_HEADER == 16, "no holes");

struct ofi_receive {
	struct ofi_context context;
	/* For receive_feed, which writes what was carried over before the bytes. Together with the
	 * packet's header that is room enough. */
	uint8_t carry[FRAME_HEADER_MAX];
	struct ofi_packet packet;
};

struct ofi_send {
	struct ofi_context context;
	struct ofi_send *next; /* while free */
	void *descriptor;
	uint64_t token; /* of the connection that it was for */
	struct ofi_packet packet;
};

/* What the doors of a queue have in common; all NULL until the first is wanted. */
struct ofi_station {
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_pep *listener;
};

/* Target: data that is with libfabric. */
struct ofi_push {
	struct ofi_context context;
	struct ofi_conn *conn;
	struct region_slot *slot; /* NULL: none */
};

/* Initiator: memory that a READ has lent to libfabric. */
struct ofi_lease {
	struct ofi_context context;
	struct ofi_conn *conn; /* whose work it is; NULL: free */
	uint32_t sequence;     /* of the work */
	size_t length;
	struct region_slot *slot;
};

/* An endpoint of one connection, beside the queue's; see door.c. */
struct ofi_door {
	struct ofi_conn *conn;
	struct fid_ep *endpoint;
	struct fid_cq *cq;
	int cq_fd;
	bool is_open;
	bool watched;	  /* cq_fd lies in sockets_fd */
	uint32_t wakes;	  /* times that somebody went to sleep since something came */
	uint32_t uses;	  /* works that need it now */
	struct list link; /* in queue->busy_doors while there are such */
	struct ofi_push pushes[OFI_PUSHES_MAX];
};

/* A piece of memory for packets, registered where the provider wants that. */
struct ofi_slab {
	struct ofi_slab *next;
	void *memory;
	struct fid_mr *mr;
};

/* An endpoint that connections lead to. */
struct ofi_peer {
	struct list link;
	fi_addr_t number;
	uint32_t references;
	struct ofi_address address;
};

/* A packet that came too early. */
struct ofi_stray {
	struct ofi_stray *next;
	uint32_t number;
	uint32_t length;
	uint8_t carry[FRAME_HEADER_MAX];
	uint8_t bytes[];
};

struct ofi_queue {
	struct tcp_queue stream;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *endpoint;
	struct ofi_address address; /* the endpoint's */
	bool needs_local_mr;
	size_t inject_max; /* bytes that can be sent without keeping them; 0: none */
	int control_fd;	   /* epoll set of the connections' sockets; lies in sockets_fd */
	unsigned control_in, control_each;
	int cq_fd;	  /* libfabric's; lies in sockets_fd while it is watched */
	bool watched;	  /* what comes in makes sockets_fd readable */
	unsigned polls;	  /* since the owner last slept */
	struct list rung; /* connections that have rung, and will not do so again for the time */

	struct ofi_slab *slabs;
	struct ofi_receive *receives; /* OFI_RECEIVES, all posted but the one in hand */
	void *receive_descriptor;
	struct ofi_send *free_sends;
	unsigned sends;	    /* packets in the hands of libfabric */
	uint64_t busy_ns;   /* they may be on their way until then */
	struct list unsure; /* connections whose peer may not have all packets */
	uint64_t unsure_ns; /* when the last of these was sent */
	struct list peers;
	struct list blocked; /* connections that wait for room to send */
	struct list leaving; /* connections whose peer has hung up */

	struct ofi_lease *leases; /* OFI_LEASES, from the first on */
	struct ofi_station station;
	unsigned landing; /* leases that are taken */
	struct list busy_doors;
	struct list opening; /* connections that wait for their door, the oldest first */

	/* By the lower 16 bits of their token. */
	struct ofi_conn **conns;
	uint32_t conn_capacity;
};

struct ofi_conn {
	struct tcp_conn stream;
	struct ofi_peer *peer;
	uint64_t token, peer_token;
	uint32_t packets_sent, packets_taken;
	uint32_t peer_taken;	 /* of those sent, as far as the peer has said */
	struct list unsure_link; /* in queue->unsure while that is not all */
	bool rings;		 /* the peer must be rung for */
	bool peer_awake;	 /* but not now: it takes in what comes */
	struct list rung_link;	 /* in queue->rung while the peer thinks so of us */
	uint32_t rung_for;	 /* how many packets there will be */
	uint32_t rung_taken;	 /* packets_taken at that time */
	uint64_t rung_ns;	 /* they are not waited for any more after this */
	uint32_t sends;		 /* packets in the hands of libfabric */
	bool silent;		 /* sends nothing before it has heard something */
	bool called;		 /* it was us who called */
	bool lends;		 /* long READs */
	bool asked;		 /* for a door, or was */
	struct ofi_door *door;
	struct list opening_link;
	uint64_t door_ns;  /* opening: no longer than this */
	uint64_t reach_ns; /* the first packet must be sent by then */
	struct ofi_stray *strays;
	size_t stray_bytes;
	struct list blocked_link;
	struct list leaving_link;
	uint64_t leave_ns;	/* leaving: do not wait for packets after this */
	uint32_t leave_packets; /* ... nor when so many are here */
	uint8_t heard[sizeof(struct greeting_word)]; /* by the socket */
	uint8_t heard_length;
};

static inline struct ofi_device *ofi_device_of(const struct ofi_queue *queue)
{
	return (struct ofi_device *)queue->stream.base.device;
}

static inline struct ofi_queue *ofi_queue_of(struct ofi_conn *conn)
{
	return (struct ofi_queue *)conn->stream.base.queue;
}

/* Must peers ring for it? */
static inline bool queue_is_rung_for(const struct ofi_queue *queue)
{
	return ofi_device_of(queue)->mode & GREETING_RUNG;
}

static inline bool conn_is_up(const struct ofi_conn *conn)
{
	return conn->stream.state == CONN_OPEN || conn->stream.state == CONN_CLOSING;
}

/* library.c ------------------------------------------------------------------------------- */
enum rmr_status library_load(const struct ofi_library **library);
/* A cheap look. */
bool library_is_there(void);
/* What libfabric says to an error code of either sign. The library is loaded. */
const char *library_text(ssize_t code);

/* name.c ---------------------------------------------------------------------------------- */
bool ofi_device_entry(unsigned index, struct rmr_device_entry *entry);
/* Finds what a device's name means: fills device->info. */
enum rmr_status name_resolve(struct ofi_device *device, const char *instance);

/* address.c ------------------------------------------------------------------------------- */
/* Makes the address of an endpoint of ours one by which it can be reached by whoever is at the
 * other end of the socket. */
enum rmr_status address_own(const struct ofi_queue *queue, int fd, struct ofi_address *address);
/* Makes the address of a peer's endpoint one that ours understand. */
enum rmr_status address_adapt(const struct ofi_queue *queue, struct ofi_address *address);
/* Another port of whoever is at the other end of the socket. */
enum rmr_status address_peer(const struct ofi_queue *queue, int fd, uint16_t port,
			     struct ofi_address *address);

/* endpoint.c ------------------------------------------------------------------------------ */
enum rmr_status endpoint_open(struct ofi_queue *queue);
void endpoint_close(struct ofi_queue *queue);
/* A peer with this address, new or known; NULL, with the error set, when libfabric does not like
 * it. */
struct ofi_peer *endpoint_peer(struct ofi_queue *queue, const struct ofi_address *address);
void endpoint_drop_peer(struct ofi_queue *queue, struct ofi_peer *peer);

/* door.c ---------------------------------------------------------------------------------- */
/* Finds out whether there can be doors: adds to device->mode, and fills in device->door_info. */
void door_prepare(struct ofi_device *device);
void door_release(struct ofi_device *device);
/* Target: has the queue listen for callers at doors, and tells where. */
enum rmr_status door_listen(struct ofi_queue *queue, uint16_t *port);
/* A door of the connection is about to open; after dead_after_ms it is not waited for any more. */
void door_expect(struct ofi_conn *conn);
/* Initiator: connects to the peer's. */
enum rmr_status door_call(struct ofi_conn *conn, uint16_t port);
/* Sees to the doors that are opening. */
void door_attend(struct ofi_queue *queue);
/* When it returns, nothing that was under way by it touches any memory. None is legal. */
void door_close(struct ofi_conn *conn);
/* The last of a queue's connections is closed. */
void door_close_station(struct ofi_queue *queue);
/* From the first use on, until the last ends, what it has is taken in. */
void door_use(struct ofi_queue *queue, struct ofi_door *door);
void door_unuse(struct ofi_queue *queue, struct ofi_door *door);
/* What comes in by one in use makes sockets_fd readable. */
void door_watch_all(struct ofi_queue *queue);
/* Would nobody but who polls see what comes in by one of them? */
bool door_needs_polls(const struct ofi_queue *queue);

/* sleep.c --------------------------------------------------------------------------------- */
/* Finds out who wakes up those who sleep, libfabric or the peer: adds to device->mode. */
void sleep_prepare(struct ofi_device *device);
enum rmr_status sleep_init(struct ofi_queue *queue);
/* Has what comes in from now on make sockets_fd readable. False: something has already, or is
 * about to. */
bool sleep_watch(struct ofi_queue *queue);
/* Nobody need be woken. */
void sleep_unwatch(struct ofi_queue *queue);
/* Would nobody but who polls see what comes in? */
bool sleep_needs_polls(const struct ofi_queue *queue);
/* A packet is about to be sent. False: not now. */
bool sleep_before_packet(struct ofi_conn *conn);
/* It was sent, or is with libfabric. */
void sleep_after_packet(struct ofi_conn *conn);
/* In how long libfabric ought to be called for the sake of what the peer has not confirmed. */
uint64_t sleep_look_in_ns(const struct ofi_queue *queue);
/* The peer has taken in so many. */
void sleep_take_count(struct ofi_conn *conn, uint32_t packets);
/* Words by the socket: the peer rings; the peer wants to be rung for, and has taken in so many
 * packets. */
void sleep_take_bell(struct ofi_conn *conn, uint32_t packets);
void sleep_take_asleep(struct ofi_conn *conn, uint32_t packets);

/* packet.c -------------------------------------------------------------------------------- */
/* Memory for packets, of which the receiving ones are posted. */
enum rmr_status packet_init(struct ofi_queue *queue);
void packet_fini(struct ofi_queue *queue); /* after the endpoint is closed */
/* Something arrived: takes it in, or keeps it until its turn, and posts the buffer again. Returns
 * the connection that it was for, if it was taken in. */
struct ofi_conn *packet_arrived(struct ofi_queue *queue, struct ofi_receive *receive,
				size_t length);
/* libfabric is done with a packet; code tells how it went. */
void packet_sent(struct ofi_queue *queue, struct ofi_send *send, ssize_t code);
void packet_repost(struct ofi_queue *queue, struct ofi_receive *receive);
/* Takes in what came too early and can be taken in now. */
void packet_take_strays(struct ofi_conn *conn);
void packet_drop_strays(struct ofi_conn *conn);
/* The engine's wire: sends what the block holds. */
bool packet_send_block(struct tcp_conn *conn, size_t *total);

/* lend.c ---------------------------------------------------------------------------------- */
/* Slots of the engine's wire. */
bool lend_memory(struct tcp_conn *conn, struct tcp_work *work, uint32_t sequence);
void lend_take_back(struct tcp_conn *conn, const struct tcp_work *work);
/* Also of what we push. Legal at any time. */
void lend_recall(struct tcp_conn *conn);
bool lend_push(struct tcp_conn *conn, const struct tcp_response *response);
/* By the socket: the peer wants a door, or says at which port its own is. */
void lend_take_word(struct ofi_conn *conn, uint32_t port);
/* libfabric is done with something of a door. */
void lend_landed(struct ofi_lease *lease, size_t length, ssize_t code);
void lend_pushed(struct ofi_push *push, ssize_t code);
void ofi_region_fini(struct rmr_region *region);

/* conn.c ---------------------------------------------------------------------------------- */
enum rmr_status ofi_connect(struct rmr_conn *conn, const char *address, uint64_t deadline_ns);
enum rmr_status ofi_accept(struct rmr_request *request, struct rmr_conn *conn);
void ofi_conn_fini(struct rmr_conn *conn);
/* The connection that packets with this token are for, or NULL. */
struct ofi_conn *conn_by_token(struct ofi_queue *queue, uint64_t token);

/* control.c ------------------------------------------------------------------------------- */
/* Says one of the words of greeting.h. False: it cannot be said; errno tells why. */
bool control_say(struct ofi_conn *conn, uint32_t magic, uint32_t value);
/* Nothing is heard by the socket any more, and nobody waits for the connection. */
void control_forget(struct ofi_conn *conn);
/* Looks at the sockets of all connections. Returns whether one of them had something. */
bool control_dispatch(struct ofi_queue *queue);
/* Ends connections whose peer has hung up and whose packets are all here. */
void control_settle(struct ofi_queue *queue);
enum rmr_status control_watch(struct ofi_conn *conn);
void control_hang_up(struct tcp_conn *conn);
void control_part(struct tcp_conn *conn);
void control_end(struct tcp_conn *conn);

/* queue.c --------------------------------------------------------------------------------- */
enum rmr_status ofi_queue_init(struct rmr_queue *queue);
void ofi_queue_fini(struct rmr_queue *queue);
/* Takes in all that libfabric has. */
void queue_take_all(struct ofi_queue *queue);

/* listener.c ------------------------------------------------------------------------------ */
struct ofi_listener {
	struct rmr_listener base;
	struct greeter greeter;
};

struct ofi_request {
	struct rmr_request base;
	int fd;
	struct greeting hello;
};

enum rmr_status ofi_listener_init(struct rmr_listener *listener, const char *address);
void ofi_listener_fini(struct rmr_listener *listener);
enum rmr_status ofi_listener_next(struct rmr_listener *listener, struct rmr_request *request,
				  int *wait_ms);
void ofi_reject(struct rmr_request *request, const char *reason);

#endif
