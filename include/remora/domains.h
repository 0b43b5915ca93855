/*
 * Domains: several devices used as one.
 *
 * A host with two adapters has two ways to a peer. This header makes one of them: memory is
 * registered on every device, a link holds a connection over every pair of devices, and a large
 * transfer is cut into stripes that travel over all connections at once. It stands on
 * <remora/fabric.h> alone, so it works with every transport, and the fabric's contract holds.
 *
 *	domains		the devices of this process ("verbs:mlx5_0", ...), a queue on each
 *	region		memory of this process, registered on each device
 *	link		a peer: one connection for each of max(our devices, its devices) pairs; the
 *			i-th joins our device i and its device i, both modulo their number, so every
 *			adapter of both sides is in use, also where one side has more. (Where there
 *			is no way between these two, as on separate rails, the next pair is taken
 *			that has one, with a logged warning)
 *	remote		a peer's region, seen from here, over all connections of the link
 *
 *	server						client
 *	------						------
 *	rmr_domains_open(names, 2, ...)			rmr_domains_open(names, 1, ...)
 *	rmr_domains_region_open				rmr_domains_region_open
 *	rmr_domains_listen
 *	rmr_domains_listener_next  <------------------	rmr_link_connect("10.0.0.1:7,10.1.0.1:7")
 *	rmr_link_accept
 *	rmr_link_export, rmr_link_post(SEND)  ------->	rmr_domains_wait: RMR_OP_RECV
 *							rmr_link_remote_open
 *							rmr_link_post(READ), rmr_domains_wait
 *
 *	struct rmr_link_work get = {RMR_OP_READ, .cookie = 7, .local = buffer, .length = 64 << 20,
 *				    .region = region, .remote = remote};
 *	struct rmr_link_event event;
 *
 *	if (rmr_link_post(link, &get) == RMR_OK)
 *		rmr_domains_wait(domains, &event, 1, -1);	one event, when all of it is there
 *
 * What a link promises beyond the fabric's contract, or otherwise than it:
 *  1. A transfer has one completion, when all its stripes are done: placed, as a completed WRITE
 *     is. Transfers complete in any order; the cookie tells which. They share the connections
 *     evenly, so a short one does not wait for the end of a long one.
 *  2. Messages travel over the link's first connection: they arrive in the order of posting, and
 *     after all transfers that had completed when they were posted. A message does not wait for
 *     transfers that are still in flight.
 *  3. What can be known here is refused here: access outside a remote or beyond its rights is
 *     RMR_ACCESS from rmr_link_post, touches no memory, and the link goes on. If the peer refuses
 *     (its region was closed) the transfer completes with RMR_ACCESS and the link ends; stripes
 *     that were allowed may have been carried out.
 *  4. A link that loses one of its connections ends as a whole: every transfer completes, with the
 *     error of its own or RMR_CANCELED, then comes one RMR_OP_DISCONNECT. The peer is told. When
 *     the other connections are still alive this may take a second: what the peer sent before is
 *     delivered first.
 * There are no atomics over a link: two adapters' atomics are not atomic against each other.
 *
 * Threads. Domains, with their links and listeners, belong to one thread at a time. Regions may be
 * opened and closed by any thread; rmr_domains_wake may be called by any thread.
 *
 * Ownership. As in the fabric: who opens an object closes it, children first: remotes before their
 * link; requests before their listener; links, listeners and regions before their domains. Closing
 * NULL does nothing.
 */
#ifndef REMORA_DOMAINS_H
#define REMORA_DOMAINS_H

#include <remora/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rmr_domains;
struct rmr_domains_region;
struct rmr_domains_listener;
struct rmr_link_request;
struct rmr_link;
struct rmr_link_remote;

#define RMR_DOMAINS_MAX	     16 /* devices of one process, and connections of one link */
#define RMR_LINK_PRIVATE_MAX 16 /* bytes that travel with rmr_link_connect and rmr_link_accept */
#define RMR_LINK_DEPTH_MAX   1024
#define RMR_LINK_WINDOW_MAX  64
#define RMR_LINK_STRIPE_MIN  4096

/* ------------------------------------------------------------------------------------------
 * Domains
 */

struct rmr_domains_options {
	struct rmr_device_options device; /* for each of the devices */
	struct rmr_queue_options queue;	  /* for the queue on each; spin_us: of rmr_domains_wait */
};

/* Opens the devices with these names (1 to RMR_DOMAINS_MAX) and a queue on each: all or none. A
 * name may occur twice. options may be NULL. Statuses are those of rmr_device_open and
 * rmr_queue_open; RMR_LIMIT also for too many names. */
RMR_MUST_CHECK enum rmr_status rmr_domains_open(const char *const *names, int count,
						const struct rmr_domains_options *options,
						struct rmr_domains **domains);
/* Everything opened on them must be closed before; that is asserted. */
void rmr_domains_close(struct rmr_domains *domains);

/* One device and what links have moved over it, as initiators. */
struct rmr_domain_info {
	const struct rmr_device_info *device;
	uint64_t read_bytes, write_bytes; /* of transfers, as far as posted */
	uint64_t stripes;		  /* operations they were made of */
};

struct rmr_domains_info {
	int count;
	struct rmr_domain_info domain[RMR_DOMAINS_MAX];
};
void rmr_domains_get_info(const struct rmr_domains *domains, struct rmr_domains_info *info);

/* Something that happened on a link. */
struct rmr_link_event {
	struct rmr_link *link;
	uint64_t cookie; /* of the posted work; else 0 */
	enum rmr_op op;	 /* READ, WRITE, SEND; RECV: give it back; DISCONNECT: the last one */
	enum rmr_status status;
	void *data; /* RMR_OP_RECV: the message, aligned to 64; ours until released */
	size_t length;
	int domain; /* RMR_OP_RECV: the device that it came by */
};

/* Makes progress on all links and takes up to max events. Returns how many. Never blocks. */
int rmr_domains_poll(struct rmr_domains *domains, struct rmr_link_event *events, int max);

/* The same, but waits up to timeout_ms (negative: for ever) for the first event: spins a little,
 * then sleeps. Returns 0 on timeout and when another thread called rmr_domains_wake. */
int rmr_domains_wait(struct rmr_domains *domains, struct rmr_link_event *events, int max,
		     int timeout_ms);
/* As rmr_queue_wake: any thread, and signal handlers too. */
void rmr_domains_wake(struct rmr_domains *domains);

/* For event loops, as rmr_queue_fd and rmr_queue_arm: arm, and on RMR_OK sleep on the descriptor;
 * on RMR_AGAIN poll first. */
int rmr_domains_fd(const struct rmr_domains *domains);
RMR_MUST_CHECK enum rmr_status rmr_domains_arm(struct rmr_domains *domains);

/* Gives a received message back. Legal after its link was closed, too. */
void rmr_domains_recv_release(struct rmr_domains *domains, const struct rmr_link_event *event);

/* ------------------------------------------------------------------------------------------
 * Memory
 */

/* Registers length bytes at address on every device: all or none. rights are RMR_READ and
 * RMR_WRITE, as of rmr_region_open. */
RMR_MUST_CHECK enum rmr_status rmr_domains_region_open(struct rmr_domains *domains, void *address,
						       size_t length, unsigned rights,
						       struct rmr_domains_region **region);
/* Ends all access, as rmr_region_close. No transfer of ours may be using the region any more. */
void rmr_domains_region_close(struct rmr_domains_region *region);

/* A region as the peer of one link sees it: plain bytes that can be sent, stored or copied. They
 * mean nothing on another link. */
struct rmr_link_descriptor {
	alignas(8) uint8_t bytes[32 + 64 * RMR_DOMAINS_MAX];
};

/* Grants the peer of link the use of region over every connection, and writes the descriptor.
 * RMR_INVALID: the region is of other domains. RMR_DISCONNECTED: the link has ended. Else as
 * rmr_region_export. */
RMR_MUST_CHECK enum rmr_status rmr_link_export(struct rmr_link *link,
					       struct rmr_domains_region *region,
					       struct rmr_link_descriptor *descriptor);

/* Turns a descriptor received from the peer of link into a handle for transfers. RMR_INVALID: no
 * descriptor, or one of another link. Else as rmr_remote_open. */
RMR_MUST_CHECK enum rmr_status rmr_link_remote_open(struct rmr_link *link,
						    const struct rmr_link_descriptor *descriptor,
						    struct rmr_link_remote **remote);
/* Legal while the link is open, alive or lost, once no transfer uses the remote any more; closing
 * the link closes its remotes. */
void rmr_link_remote_close(struct rmr_link_remote *remote);

size_t rmr_link_remote_length(const struct rmr_link_remote *remote);
unsigned rmr_link_remote_rights(const struct rmr_link_remote *remote);

/* ------------------------------------------------------------------------------------------
 * Links
 */

/* Which connections a transfer takes. */
enum rmr_stripe {
	RMR_STRIPE_DEFAULT = 0, /* in a work: as the link says; in a link: round robin */
	RMR_STRIPE_ROUND_ROBIN, /* stripes over all connections in turn; what is no longer than a
				 * stripe goes over one of them, the next in turn */
	RMR_STRIPE_PINNED, /* all of it over one connection: number `pin`, modulo their number */
};

/* 0 in a field means its default. */
struct rmr_link_options {
	enum rmr_stripe policy; /* default round robin */
	uint32_t pin;		/* for RMR_STRIPE_PINNED */
	size_t stripe;		/* bytes; default 256 KiB, at least RMR_LINK_STRIPE_MIN */
	uint32_t depth;		/* works posted whose events were not taken yet; default 64, at most
			    * RMR_LINK_DEPTH_MAX */
	uint32_t window;	/* stripes in flight on each connection; default 8, at most
			    * RMR_LINK_WINDOW_MAX */
	int dead_after_ms;	/* rmr_link_connect: as in the fabric; a listener has its own */
	const void *private_data; /* at most RMR_LINK_PRIVATE_MAX bytes, copied */
	size_t private_length;
	void *user; /* what rmr_link_user returns */
	/* What the peer may grant us over each connection, as in struct rmr_conn_options. NULL: the
	 * default; with rmr_link_accept: as the listener has it. */
	const struct rmr_grant_limits *grants;
};

struct rmr_domains_listener_options {
	struct rmr_listener_options listener; /* for each device. backlog is also how many links may
					       * be half built, handshake_timeout_ms also how long
					       * one of them waits for its next connection */
	int dead_after_ms;		      /* of the links that come from here */
	/* What callers may grant us over each connection until rmr_link_set_grants; copied. NULL:
	 * the default. A listener for callers that must prove themselves first gives {0}. */
	const struct rmr_grant_limits *grants;
};

/* Listens on every device: addresses has one for each, in their order, without commas, such as
 * "10.0.0.1:0" for tcp and verbs or a name for shm. */
RMR_MUST_CHECK enum rmr_status rmr_domains_listen(
	struct rmr_domains *domains, const char *const *addresses,
	const struct rmr_domains_listener_options *options, struct rmr_domains_listener **listener);
/* Drops half-built links, too. Requests that came from it are answered before. */
void rmr_domains_listener_close(struct rmr_domains_listener *listener);

/* What a peer gives to rmr_link_connect: the addresses of all devices, with commas between. */
const char *rmr_domains_listener_address(const struct rmr_domains_listener *listener);

/* Readable when rmr_domains_listener_next may have something to do. */
int rmr_domains_listener_fd(const struct rmr_domains_listener *listener);

/* Takes the next caller, once all but its last connection are accepted. Waits up to timeout_ms (0:
 * not at all, negative: for ever); meanwhile no events are lost, but none are taken either.
 * RMR_TIMEOUT: nobody came. Callers that send nonsense, or too little, are dropped in here. */
RMR_MUST_CHECK enum rmr_status rmr_domains_listener_next(struct rmr_domains_listener *listener,
							 int timeout_ms,
							 struct rmr_link_request **request);

/* As of the fabric's requests. */
const char *rmr_link_request_peer(const struct rmr_link_request *request);
const void *rmr_link_request_private(const struct rmr_link_request *request, size_t *length);

/* Takes the caller as a link; the request is used up whatever the outcome. Does not wait.
 * RMR_DISCONNECTED: the caller did not wait for us. */
RMR_MUST_CHECK enum rmr_status rmr_link_accept(struct rmr_link_request *request,
					       const struct rmr_link_options *options,
					       struct rmr_link **link);
/* Turns the caller down; it gets RMR_REFUSED with this reason. Uses up the request. */
void rmr_link_reject(struct rmr_link_request *request, const char *reason);

/* Connects to a listener by the address that it told. Some of its devices will do, too: then the
 * link uses only these. Waits up to timeout_ms (negative: for ever) for all connections together:
 * all or none. RMR_PROTOCOL: something else listens there. RMR_LIMIT: more than RMR_DOMAINS_MAX
 * addresses. RMR_INVALID: options that make no sense. Else as rmr_connect. */
RMR_MUST_CHECK enum rmr_status rmr_link_connect(struct rmr_domains *domains, const char *addresses,
						int timeout_ms,
						const struct rmr_link_options *options,
						struct rmr_link **link);

/* Changes what the peer may grant us over each connection of the link: see rmr_conn_set_grants. */
void rmr_link_set_grants(struct rmr_link *link, const struct rmr_grant_limits *limits);

/* Closes a link at any moment, as rmr_conn_close does a connection: messages that completed still
 * reach the peer, nothing of the link comes out of rmr_domains_poll afterwards. */
void rmr_link_close(struct rmr_link *link);

struct rmr_link_info {
	const char *peer;	  /* as rmr_request_peer, of the first connection */
	const void *private_data; /* what the peer sent along */
	size_t private_length;
	int connections;
	size_t max_send;   /* longest message */
	size_t max_inline; /* longest one with RMR_INLINE */
	size_t stripe;
	uint32_t depth;
	bool alive; /* false once RMR_OP_DISCONNECT is on its way */
	struct {
		int domain;	/* which of our devices it uses */
		uint64_t bytes; /* of transfers, as far as posted */
	} connection[RMR_DOMAINS_MAX];
};
void rmr_link_get_info(const struct rmr_link *link, struct rmr_link_info *info);

void *rmr_link_user(const struct rmr_link *link);

/* ------------------------------------------------------------------------------------------
 * Works
 */

/* One transfer or message. local..local+length must lie in region (except with RMR_INLINE and for
 * length 0) and stay untouched until completion. Fields that a work does not use are ignored. */
struct rmr_link_work {
	enum rmr_op op; /* RMR_OP_READ, RMR_OP_WRITE or RMR_OP_SEND */
	unsigned flags; /* RMR_UNSIGNALED; for SEND also RMR_INLINE */
	uint64_t cookie;
	union {
		void *local;
		const void *source;
	};
	size_t length; /* transfers: no limit but the regions' */
	struct rmr_domains_region *region;
	struct rmr_link_remote *remote;
	uint64_t offset;	/* in remote */
	enum rmr_stripe policy; /* for this transfer; default as the link's */
	uint32_t pin;		/* with policy RMR_STRIPE_PINNED in this work */
};

/* Posts one work. RMR_AGAIN: depth works are posted, or no message can be taken just now; take
 * events, then try again. RMR_ACCESS: see above. RMR_DISCONNECTED: the link has ended, its event
 * comes or came. RMR_INVALID, RMR_TOO_LONG: the work is wrong. */
RMR_MUST_CHECK enum rmr_status rmr_link_post(struct rmr_link *link,
					     const struct rmr_link_work *work);

#ifdef __cplusplus
}
#endif

#endif
