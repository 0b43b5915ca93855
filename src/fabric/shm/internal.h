/* The objects of the shm provider, and what its files say to each other. See shm.h for the map. */
#ifndef FABRIC_SHM_INTERNAL_H
#define FABRIC_SHM_INTERNAL_H

#include "fabric/shm/packet.h"
#include "fabric/shm/segment.h"
#include "fabric/shm/shm.h"

#define SHM_MAX_REGIONS 4096u
#define SHM_MAX_INLINE	128u
#define SHM_MAX_DEPTH	16384u
#define SHM_MAX_SLOTS	(1u << 20)
#define SHM_MAX_MESSAGE ((size_t)1 << 30)
#define SHM_MAX_ARENAS	256u /* that one connection can grant, whatever its limits say */
#define SHM_PATH_SIZE	108u /* of a socket's path, as the kernel has it */

/* An entry of the table of regions that every peer of a device has mapped read-only. The key is 0
 * in a free entry; the rest is written before the key and stays as long as the key does. */
struct shm_table_entry {
	_Alignas(64) _Atomic uint64_t key;
	uint64_t arena_id; /* 0: not in an arena; then offset is an address of the process */
	uint64_t offset;
	uint64_t length;
	uint32_t rights;
};
static_assert(sizeof(struct shm_table_entry) == 64, "one cache line");

struct shm_device {
	struct rmr_device base;
	pthread_mutex_t lock; /* guards all but the table */
	struct shm_table_entry *table;
	int table_fd;
	uint16_t free_indexes[SHM_MAX_REGIONS];
	uint32_t free_count;
	struct list conns; /* all connections, of all queues: region_fini looks at them */
	/* What peers have granted, over all connections. */
	uint32_t waiting, mapped_arenas;
	uint64_t mapped_bytes;
};

struct shm_region {
	struct rmr_region base;
	uint32_t index; /* in the device's table */
	uint64_t key;
	uint64_t deadline_ns; /* for peers to leave it; 0: it is open */
	bool closing;	      /* peers that do not leave lose their connection */
};

struct shm_queue {
	struct rmr_queue base;
	struct list hot; /* connections whose rings are looked at by every poll */
	uint32_t hot_count, cold_count;
	uint32_t polls;
	uint64_t dispatched;		      /* ticks when epoll was last asked */
	uint64_t cold_interval, hot_interval; /* ticks until it is asked again */
	bool armed;
};

/* How closely a connection is watched. */
enum shm_heat {
	SHM_OUT = 0, /* not yet connected, or lost: not at all */
	SHM_HOT,     /* every poll looks at its ring */
	SHM_COLD,    /* the peer wakes us through the socket */
};

/* A work that could not be carried out at once. */
struct shm_pending {
	struct rmr_work work;
	size_t sent; /* of a message: bytes already in the ring */
	bool started;
	bool placed; /* of a WRITE_IMM: the data is written, the immediate is not */
	uint8_t inline_data[SHM_MAX_INLINE];
};

/* A peer's arena: its descriptor waits here until a region of it is opened, then it is mapped. */
struct shm_mapping {
	struct list link; /* in the connection's mappings */
	uint64_t arena_id;
	size_t size;
	bool writable;
	bool revoked;	  /* the peer has closed it: goes with its last remote */
	int fd;		  /* -1 once it is mapped */
	void *memory;	  /* NULL until then */
	uint32_t remotes; /* that use it */
};

struct shm_conn {
	struct rmr_conn base;
	struct queue_source source; /* the socket, in the queue's epoll set */
	struct list device_link;
	struct list hot_link;
	int socket;
	int peer_pid;
	unsigned peer_uid;
	int peer_pidfd; /* tells of the peer's death, though a child of it hold the socket; or -1 */

	struct shm_segment *mine;
	const struct shm_segment *theirs;
	const struct shm_table_entry *their_table;
	uint32_t their_regions;
	struct ring_writer writer;
	struct ring_reader reader;
	bool unannounced; /* something went into the ring since the last flush */
	uint32_t woken;	  /* the peer's sleep number that we woke it from last */
	uint32_t idle;	  /* polls in a row that found the ring empty */
	enum shm_heat heat;

	/* A message being put together from fragments, and a buffer of recv_size bytes for it, made
	 * when it is first needed. It takes a slot only when it is complete: a peer that never
	 * finishes holds none. */
	uint8_t *assembly;
	bool assembling;
	size_t message_length, message_filled;

	/* Works that wait, in order: a ring of options.depth entries. */
	struct shm_pending *pending;
	uint32_t pending_head, pending_count;

	uint64_t my_secret, their_secret; /* bind descriptors to this connection: see region.c */
	struct list mappings;
	uint32_t mapping_count;
	uint64_t mapped_bytes; /* of those that are mapped */
	uint64_t *granted;     /* arena ids the peer was given */
	uint32_t granted_count, granted_room;

	/* A bit for each region, under the device's lock: the peer was given it, and may be in it;
	 * we ourselves may be in it, while it is being closed. */
	uint64_t exported[SHM_MAX_REGIONS / 64], in_own[SHM_MAX_REGIONS / 64];
	atomic_bool stuck; /* the peer did not leave our memory when asked to: see access.c */
	bool peer_gone;	   /* the socket has ended: drain the ring, then report */
	enum rmr_status gone_status;
};

struct shm_remote {
	struct rmr_remote base;
	const _Atomic uint64_t *key_cell; /* in the peer's table */
	uint64_t key;
	struct shm_mapping *mapping; /* NULL: memory outside arenas */
	uint8_t *memory;	     /* where the region begins, when mapped */
	uint64_t address;	     /* else: in the peer's address space */
};

struct shm_listener {
	struct rmr_listener base;
	pthread_mutex_t lock; /* guards what follows: any thread may take callers */
	int socket, lock_fd;
	uint64_t resume_ns; /* out of descriptors until then; 0 when not */
	char path[SHM_PATH_SIZE];
	bool listening;	     /* callers in the kernel make base.fd readable */
	struct list callers; /* struct shm_caller: connected, not yet introduced */
	int caller_count;
};

struct shm_request {
	struct rmr_request base;
	int socket;
	struct packet_sender sender;
	struct shm_packet hello;
	int fds[PACKET_FDS];
};

/* address.c */
enum rmr_status shm_address_to_listen(const char *address, char path[SHM_PATH_SIZE]);
/* The index-th path where a listener of that name may be; RMR_AGAIN when there are no more. */
enum rmr_status shm_address_to_connect(const char *address, unsigned index,
				       char path[SHM_PATH_SIZE]);

/* listener.c */
enum rmr_status shm_listener_init(struct rmr_listener *base, const char *address);
void shm_listener_fini(struct rmr_listener *base);
void shm_listener_abandon(struct rmr_listener *base);
enum rmr_status shm_listener_next(struct rmr_listener *base, struct rmr_request *request,
				  int *wait_ms);
void shm_reject(struct rmr_request *base, const char *reason);
enum rmr_status shm_accept(struct rmr_request *base, struct rmr_conn *conn);

/* connect.c */
enum rmr_status shm_connect(struct rmr_conn *base, const char *address, uint64_t deadline_ns);

/* region.c */
enum rmr_status shm_region_init(struct rmr_region *base);
void shm_region_fini(struct rmr_region *base);
bool shm_region_revoke(struct rmr_region *base);
enum rmr_status shm_region_export(struct rmr_region *base, struct rmr_conn *conn,
				  struct descriptor_wire *wire);
enum rmr_status shm_remote_init(struct rmr_remote *base, const struct descriptor_wire *wire);
void shm_remote_fini(struct rmr_remote *base);

/* grant.c */
/* Gives the arena to the peer, unless it has it. */
enum rmr_status shm_grant(struct shm_conn *conn, const struct rmr_arena *arena);
/* Keeps what a GRANT packet brings, and takes over its descriptor: then *fd is -1. RMR_LIMIT: more
 * than the connection takes. */
enum rmr_status shm_take_grant(struct shm_conn *conn, const struct shm_packet *packet, int *fd);
void shm_take_revoke(struct shm_conn *conn, uint64_t arena_id);
/* The arena that the peer granted under this id; NULL when it did not. */
struct shm_mapping *shm_find_mapping(struct shm_conn *conn, uint64_t arena_id);
/* Maps it, unless it is. RMR_LIMIT: beyond the limits of the connection or the device. */
enum rmr_status shm_use_mapping(struct shm_conn *conn, struct shm_mapping *mapping);
/* A remote does not need it any more. */
void shm_put_mapping(struct shm_conn *conn, struct shm_mapping *mapping);
void shm_drop_mappings(struct shm_conn *conn);

/* access.c: carries out a READ, WRITE, the data part of a WRITE_IMM, or an atomic. RMR_OK,
 * RMR_ACCESS, or another error that ends the connection. */
enum rmr_status shm_access(struct shm_conn *conn, const struct rmr_work *work);
/* Around the use of a region of ours by a work that waited: false when it is closed. */
bool shm_enter_own(struct shm_conn *conn, const struct rmr_region *mine);
void shm_leave_own(struct shm_conn *conn);
/* Whether the peer did not leave our memory in time, and its process is not known to be dead. */
bool shm_conn_lingers(const struct rmr_conn *base, int *process);
/* The region with this index was exported to the peer. */
void shm_access_exported(struct shm_conn *conn, uint32_t index);
/* Ends a region: no access to it begins any more. */
void shm_access_revoke(struct shm_device *device, struct shm_region *region);
/* Whether none is under way either. Any thread; does not wait. */
bool shm_access_is_over(struct shm_device *device, struct shm_region *region);
/* Waits for that; peers that do not leave by the region's deadline are stuck. */
void shm_access_quiesce(struct shm_device *device, struct shm_region *region);

/* conn.c */
/* Makes our segment and what else an end needs. Whatever it returns, shm_conn_fini is legal. */
enum rmr_status shm_conn_prepare(struct shm_conn *conn, int *segment_fd);
/* What we say of ourselves in HELLO and ACCEPT. */
void shm_conn_introduce(struct shm_conn *conn, struct shm_packet *packet, enum packet_type type);
/* Maps what the peer passed and enters the connection into queue and device. Takes the socket over
 * on success; fds stay the caller's. */
enum rmr_status shm_conn_establish(struct shm_conn *conn, int socket,
				   const struct shm_packet *packet, const int fds[PACKET_FDS],
				   const struct packet_sender *sender);
/* Undoes prepare, establish or neither. */
void shm_conn_fini(struct rmr_conn *base);
/* In a forked child: see struct rmr_provider. */
void shm_conn_abandon(struct rmr_conn *base);
int shm_post(struct rmr_conn *base, const struct rmr_work *works, int count);
/* Carries out waiting works as far as possible. */
void shm_conn_run_pending(struct shm_conn *conn);
/* Ends the connection from this side because of status: fails all works, tells the peer. */
void shm_conn_break(struct shm_conn *conn, enum rmr_status status);
/* Completes all waiting works with RMR_CANCELED. */
void shm_conn_cancel(struct shm_conn *conn);
/* Cancels all waiting works and reports the loss. */
void shm_conn_end(struct shm_conn *conn, enum rmr_status status);

/* progress.c */
int shm_poll(struct rmr_queue *base, struct rmr_completion *completions, int max);
enum rmr_status shm_arm(struct rmr_queue *base);
void shm_recv_release(struct rmr_queue *base, void *data);
void shm_flush(struct rmr_conn *base);
void shm_conn_ready(struct queue_source *source, uint32_t events);
/* Reads what lies in the socket: grants, farewells, the end. True when there may be more. */
bool shm_conn_read_socket(struct shm_conn *conn);
/* Adds the connection to those that every poll looks at. */
void shm_conn_heat(struct shm_conn *conn);
/* Polls do not look at it any more, for good. */
void shm_conn_remove(struct shm_conn *conn);
enum rmr_status shm_queue_init(struct rmr_queue *base);

#endif
