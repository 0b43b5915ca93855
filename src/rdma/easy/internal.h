/*
 * The easy library inside: <remora/rdma.h> on the public fabric.
 *
 *	file		what it does				thread
 *	----		------------				------
 *	wire.h		bytes between two ends
 *	waiter.h	one thread waits for another
 *	lane_lock.h	the lock of a lane
 *	error.c		what rdmaError() says			any
 *	options.c	defaults and limits of RdmaOptions	any
 *	runtime.c	the thread: its life, its requests	any; the loop is the runtime
 *	loop.c		what the thread does all day		runtime
 *	requests.c	what it is asked for, and all ends	runtime
 *	lane.c		a queue of the fabric with its lock	runtime, and any under the lock
 *	link.c		a connection of the fabric: made, 	dialer or runtime
 *			introduced, ended
 *	out.c		our records to the peer's ring		any, under the lock
 *	in.c		the peer's records in our ring		runtime
 *	conn.c		endpoints: made, closed, asked		any
 *	connect.c	calling a server			caller, or a dialer thread
 *	listener.c	servers: made, started, released	any
 *	accept.c	callers become connections		runtime
 *	callback.c	callbacks are set			any
 *	send.c		messages				any
 *	memory.c	registered memory, and who knows of it	any
 *	transfer.c	writes and reads that call back		any
 *	sync.c		those that wait, and atomics		any but the runtime
 *
 * Objects. A lane is a queue of the fabric with a lock: an endpoint that calls has one of its own,
 * so that calling, which blocks, holds up nobody; connections that a listener accepts share one a
 * device. A link is one connection of the fabric with its rings; an endpoint (RdmaConn) that is
 * connected again gets a new link. The lane of an endpoint never changes, so its lock is always
 * there to be taken, whatever becomes of the link:
 *
 *	RdmaListener -- path (device) -- lane ---+--- link --- RdmaConn (accepted)
 *						 +--- link --- RdmaConn (accepted)
 *	RdmaConn (calls) -------------- lane ------- link
 *
 * The life of an endpoint:
 *
 *	            rdmaConnect                      hello of the server
 *	CONN_IDLE ---------------> CONN_DIALING ---------------------------> CONN_UP
 *	  ^  ^                          |  fails                                | lost, or the peer
 *	  |  +--------------------------+                                       | broke the rules
 *	  +---------------------------------------------------------------------+
 *	                                           link destroyed, then the disconnect callback
 *
 *	an accepted one is made in CONN_UP, when the caller's hello has come
 *
 *	rdmaConnClose in CONN_UP:	is_closing; the link says RECORD_BYE, and ends when the peer
 *					has taken it and ends in turn, or has taken nothing for a
 *					second, or not all in ten; then the endpoint is freed
 *		in CONN_DIALING:	is_closing; freed when the dialer has come back
 *		in CONN_IDLE:		freed
 *
 * The ring of a link that is being closed must stay until the peer has noticed: else something that
 * the peer sends meanwhile fails, which ends the connection there, with our last words unread.
 *
 * Only the runtime destroys links that it has been given, and frees endpoints: never while it walks
 * events (a callback may close what the next event is about), but when a batch of them is over.
 * While is_closing nothing is called back.
 *
 * Locks, outermost first: runtime.mutex (lists and requests), a lane's lock (its queue, links and
 * their connections), memory's own (tables of registered memory). None is held in a callback.
 */
#ifndef RDMA_EASY_INTERNAL_H
#define RDMA_EASY_INTERNAL_H

#include <pthread.h>
#include <remora/fabric.h>
#include <remora/rdma.h>
#include <stdatomic.h>

#include "base/list.h"
#include "rdma/easy/lane_lock.h"
#include "rdma/easy/waiter.h"
#include "rdma/easy/wire.h"
#include "rdma/peer_memory.h"

/* ------------------------------------------------------------------------------------------
 * Objects
 */

/* What the runtime's epoll set points to. */
enum source_kind { SOURCE_WAKE, SOURCE_LANE, SOURCE_PATH };
struct source {
	enum source_kind kind;
};

/* Something that the runtime has to call back, or to do without the lock. */
enum event_kind {
	EVENT_HELLO,	/* the peer introduced itself */
	EVENT_RECORDS,	/* value: how far the ring is filled */
	EVENT_SENDABLE, /* there is room again */
	EVENT_WRITTEN,	/* value: bytes */
	EVENT_READ,	/* value: bytes */
	EVENT_ENDED,	/* the link is lost: see its status */
};

struct event {
	enum event_kind kind;
	struct link *link;
	uint64_t value;
};

#define LANE_EVENTS 256u

struct lane {
	struct source source;
	struct lane_lock lock;	 /* guards all up to `events` */
	struct rmr_queue *queue; /* NULL: none now */
	struct rmr_device *device;
	char device_name[64]; /* as it was taken */
	struct list links;
	unsigned link_count;
	struct list dirty; /* links with something to announce, or to give credit for */
	bool is_armed;	   /* the runtime sleeps on its descriptor, or soon will */
	unsigned event_count;
	struct event *events; /* LANE_EVENTS, to be taken by the runtime */

	struct event *taken;  /* the other LANE_EVENTS: the runtime's own, as all below */
	struct list link;     /* in loop.lanes; in no list: the runtime does not have it */
	struct list hot_link; /* in loop.hot while it is polled all the time */
	unsigned idle_turns;  /* in a row */
	uint64_t quiet_ticks; /* since when */
	uint64_t slept_ticks; /* when it went to sleep */
	unsigned patience;    /* it spins for spin_ticks << patience: see loop.c */
	uint64_t spin_ticks;
	unsigned activity;
	atomic_bool is_wanted; /* somebody has work here for the runtime: poll it */
	atomic_uint drivers;   /* threads in Sync calls that poll it themselves */
};

/* What a signaled operation's cookie says: the low three bits are this. */
enum cookie_tag {
	COOKIE_RING,  /* records up to the position above are written */
	COOKIE_WRITE, /* a write of that many bytes, to be called back */
	COOKIE_READ,
	COOKIE_OPERATION, /* struct operation */
	COOKIE_HELLO,
};

/* A Sync call under way, on its thread's stack. */
struct operation {
	_Alignas(8) struct waiter waiter;
	struct list link; /* in link->operations */
	enum rmr_status status;
	bool is_read; /* it counts for maxReads */
	int word;     /* of the link, where an atomic's old value arrives; -1: none */
	uint64_t old; /* taken from there when it is done: the link may be gone when we wake */
};

#define LINK_STAGE 128u

/* Our end of a connection of the fabric. Fields are the lane's (under its lock) unless it says
 * otherwise. */
struct link {
	struct list lane_link;
	struct list dirty_link;
	struct list timer_link; /* in loop.timers: the runtime's */
	struct list ended_link; /* in loop.ended: the runtime's */
	uint64_t deadline_ns;	/* for the timer */
	struct lane *lane;
	RdmaConn *conn;		       /* NULL: a caller that has not introduced itself */
	struct RdmaListener *listener; /* that it called; or NULL */
	struct rmr_conn *fabric;
	uint32_t depth;	       /* of operations of the program, together */
	uint32_t works, reads; /* of those, in flight */
	struct list operations;
	struct wire_hello hello; /* the peer's, as it came */
	bool has_hello;
	bool is_introduced;	   /* our hello has left: records may follow */
	bool is_leaving;	   /* our end is being closed */
	bool is_saying_bye;	   /* ... and that is in the ring, by now */
	uint64_t leaving_credited; /* what the peer had taken when we last looked */
	uint64_t leaving_until_ns; /* however much it takes: then it ends; 0: not leaving */
	bool is_ended;		   /* nothing more of it is called back */
	enum rmr_status status;	   /* why it ended */
	char reason[256];

	/* in.c: our ring, that the peer writes. */
	struct rmr_arena *arena;
	struct rmr_region *ring_region;
	uint8_t *ring;
	uint64_t in_size;
	uint64_t filled;      /* position up to which the peer has written */
	bool has_records;     /* EVENT_RECORDS waits */
	uint64_t consumed;    /* the runtime's: position of the next record */
	uint64_t returned;    /* the runtime's: up to where credit was given */
	uint16_t in_sequence; /* the runtime's */

	/* out.c: the peer's ring, that we write. Positions count bytes and never wrap; credited <=
	 * announced <= written <= head <= credited + out_size - WIRE_UNIT. */
	struct rmr_remote *ring_remote;
	uint8_t *target; /* where records are put: the peer's ring itself where it is mapped,
			      * else our image of it, which is then written */
	bool is_mapped;
	_Alignas(16) uint8_t stage[LINK_STAGE];
	uint32_t staged;    /* bytes of a record there, at `announced`; 0: none */
	uint32_t max_short; /* of such a record; 0: all go into the ring */
	uint64_t out_size;
	uint64_t head;	     /* records are put up to here */
	uint64_t written;    /* are in the peer's ring up to here (mapped: head) */
	uint64_t announced;  /* the peer was told of them up to here */
	uint64_t skipped;    /* bytes at the end of the ring, between written and head, that
			      * mean nothing */
	uint64_t credited;   /* the peer has consumed up to here */
	uint64_t completed;  /* the image may be reused up to here */
	uint64_t signaled;   /* the position of the last signaled write */
	uint32_t unsignaled; /* writes since */
	uint32_t signal_every;
	uint32_t max_inline;
	uint64_t wanted;  /* room that a send was refused for; 0: none */
	bool is_sendable; /* EVENT_SENDABLE waits */
	bool has_to_tell; /* a send was refused for a notice that the peer takes no grant for */
	uint16_t out_sequence;

	/* Memory of ours for the local side: the hello, words of atomics, and the image. */
	uint8_t *local;
	struct rmr_region *local_region;
	uint8_t *image;
	struct rmr_region *image_region;
	uint64_t free_words; /* a bit for each word that is free */

	/* The peer's memory. */
	struct rmr_remote *space;     /* NULL: none */
	enum rmr_status space_status; /* why not */
	uint64_t write_position, read_position;
	struct peer_memory memory;
	struct rmr_region *space_region; /* ours, if it is of the link's own making */
};

#define LINK_LOCAL_SIZE 4096u
#define LINK_WORDS_AT	256u /* in local; the hello is before */
#define LINK_WORDS	64u
#define LINK_RESERVE	16u /* operations beyond depth: for rings, credit and farewells */

enum conn_state { CONN_IDLE, CONN_DIALING, CONN_UP };

struct RdmaConn {
	struct list registry_link;	    /* in runtime.conns */
	struct list adopt_link, close_link; /* in the runtime's lists of requests */
	RdmaOptions options;		    /* defaults filled in */
	RdmaListener *listener;		    /* that accepted it; NULL: it calls */
	struct lane *lane;		    /* never changes */
	struct lane own_lane;		    /* for one that calls */
	atomic_int state;		    /* enum conn_state; changed under the lane's lock */
	struct link *link;		    /* while CONN_UP; under the lane's lock */
	atomic_bool is_closing;
	struct waiter *closer; /* under runtime.mutex: who waits until it is closed */
	atomic_uint callers;   /* threads in Sync calls */
	char provider[64], peer[64];

	/* A failed rdmaConnectAsync, for the callback. */
	enum rmr_status dial_status;
	char dial_reason[256];

	struct {
		void *data;
		size_t size;
		struct memory *memory; /* that it lies in; NULL: the caller's own */
	} space;
	struct list memories; /* under memory's lock */
	struct list tellings; /* under the lane's lock */
	bool has_tellings;    /* some were not told yet */

	/* Acquire and release: who sees a callback sees what was there when it was set. */
	_Atomic(void *) user_data;
	_Atomic(RdmaConnectedCallback) connected;
	_Atomic(RdmaDisconnectCallback) disconnected;
	_Atomic(RdmaRecvCallback) received;
	_Atomic(RdmaRecvImmCallback) received_imm;
	_Atomic(RdmaSendableCallback) sendable;
	_Atomic(RdmaWriteCallback) written;
	_Atomic(RdmaReadCallback) read;
	_Atomic(RdmaRecvCallbackFunc) received_func;
	_Atomic(RdmaDisconnectCallbackFunc) disconnected_func;
};

/* One device that a listener listens on. */
struct path {
	struct source source;
	RdmaListener *owner;
	struct rmr_listener *listener;
	struct lane lane;
	bool is_watched; /* the runtime's: in its epoll set */
	bool is_gone;	 /* the same: nobody will call any more, for the device is gone */
};

#define PATHS_MAX 8u

enum serving { SERVING_NOT, SERVING, SERVING_STOPPED_EARLY };

struct RdmaListener {
	struct list registry_link; /* in runtime.listeners */
	struct list request_link;
	RdmaOptions options;
	int port;
	char *addresses;
	unsigned path_count;
	struct path *paths;
	_Atomic uint32_t serving; /* enum serving; a futex for rdmaServerStart */
	atomic_bool is_releasing;
	atomic_uint starters;	 /* threads in rdmaServerStart: not freed while there are some */
	struct waiter *releaser; /* under runtime.mutex */
	unsigned conn_count;	 /* the runtime's: endpoints that are not freed */
	_Atomic(void *) user_data;
	_Atomic(RdmaAcceptCallback) accepted;
	_Atomic(RdmaAcceptCallbackFunc) accepted_func;
};

/* ------------------------------------------------------------------------------------------
 * error.c, options.c
 */

/* The last error of the fabric's kind becomes the one of rdmaError(). Returns RDMA_ERR. */
int easy_fail(void);

/* Checks them and fills in defaults. options may be NULL. */
RMR_MUST_CHECK enum rmr_status easy_options_take(const RdmaOptions *options, RdmaOptions *result);
/* The device with what it has to know: how often verbs repeats is a part of its name. */
void easy_options_name_device(const RdmaOptions *options, const char *wanted, char name[64]);

/* ------------------------------------------------------------------------------------------
 * runtime.c: requests to the thread
 */
struct runtime {
	pthread_mutex_t mutex; /* guards all but the atomics */
	pthread_cond_t changed;
	bool is_running, is_stopping;
	pthread_t thread;
	unsigned dialers;
	struct list conns, listeners; /* all there are */
	/* Requests. */
	struct list adopts; /* endpoints that a dialer has connected, or failed to */
	struct list closes;
	struct list releases;
	int wake_fd;
	/* Of these two each side sets its own and then looks at the other's: see runtime_wake. */
	atomic_bool has_requests;
	atomic_bool is_asleep;
};
extern struct runtime runtime;

/* Takes the mutex. */
void runtime_lock(void);
/* Starts the thread if there is none, with its CPU from options. RMR_SYSTEM; RMR_CANCELED while it
 * is being stopped. */
RMR_MUST_CHECK enum rmr_status runtime_need(const RdmaOptions *options);
/* The runtime looks for requests soon. Any thread, signal handlers too. */
void runtime_wake(void);
/* Is this the runtime's thread, so that a callback is running? */
bool runtime_is_here(void);

/* ------------------------------------------------------------------------------------------
 * loop.c: the runtime's thread
 */
struct loop {
	int epoll_fd;
	struct list lanes;     /* all that it has */
	struct list hot;       /* those that it polls */
	struct list timers;    /* links that end at some time */
	struct list ended;     /* links to be destroyed */
	struct list releasing; /* listeners to be freed when their connections are */
	uint64_t looked_ticks, timed_ticks;
	uint64_t wake_ticks; /* what it takes to wake up */
	unsigned rounds;
	bool is_last; /* this callback is the last of its batch: what it sends need not wait */
	uint64_t resume_ns; /* a listener failed: when it is tried again */
};
extern struct loop loop;

/* The thread that needs the runtime makes and ends it; loop_work is the runtime's life. */
RMR_MUST_CHECK enum rmr_status loop_init(void);
void loop_fini(void);
void loop_work(void);
/* The runtime has the lane from now on, polls it, and sleeps on it. */
RMR_MUST_CHECK enum rmr_status loop_add_lane(struct lane *lane);
/* Not any more. Legal for one that it does not have. */
void loop_remove_lane(struct lane *lane);
void loop_heat(struct lane *lane);
/* The link ends at the deadline, unless it has by then. */
void loop_set_timer(struct link *link, uint64_t deadline_ns);
/* The link is over: destroyed when this batch of events is. Calls nothing back. */
void loop_end_link(struct link *link, enum rmr_status status, const char *reason);
/* Watches the descriptor of a listener, or not. */
void loop_watch_path(struct path *path, bool is_wanted);

/* requests.c: the runtime's, between two turns. */
/* The link's time is over: it ends, unless its peer is only slow in taking our last words. */
void requests_time_out(struct link *link);
void requests_handle(void);
void requests_bury_ended(void);
void requests_finish_releases(void);

/* ------------------------------------------------------------------------------------------
 * lane.c. Under the lock, if it does not say otherwise.
 */
RMR_MUST_CHECK enum rmr_status lane_init(struct lane *lane, const RdmaOptions *options);
/* Gives it a queue on that device; no lock needed, nobody has it yet. */
RMR_MUST_CHECK enum rmr_status lane_open(struct lane *lane, const char *device_name,
					 const RdmaOptions *options);
/* Closes queue and device; all its links are gone. Takes the lock itself. */
void lane_close(struct lane *lane);
void lane_fini(struct lane *lane);
/* Opens a queue for connections with these options. */
RMR_MUST_CHECK enum rmr_status lane_open_queue(struct rmr_device *device,
					       const RdmaOptions *options,
					       struct rmr_queue **queue);
/* Takes completions; what is to be called back becomes events. */
void lane_collect(struct lane *lane);
void lane_push(struct lane *lane, struct link *link, enum event_kind kind, uint64_t value);
/* Announces what its dirty links have. */
void lane_flush(struct lane *lane);
/* Who posted or polled here goes: makes sure that the runtime sees what follows. */
void lane_leave(struct lane *lane);
/* The runtime's, without the lock: polls once, calls back. True: something happened. */
bool lane_turn(struct lane *lane);
/* The same: false, and it is not armed, when there is something to do. */
bool lane_arm(struct lane *lane);

/* ------------------------------------------------------------------------------------------
 * link.c
 */
struct link *easy_link_create(struct lane *lane, uint32_t depth);
/* Memory for our side of what options say; before anything is sent. No lock. */
RMR_MUST_CHECK enum rmr_status easy_link_prepare(struct link *link, struct rmr_device *device,
						 const RdmaOptions *options);
/* Opens what the peer's hello describes, under the lock. RMR_PROTOCOL: it lies. RMR_LIMIT: it has a
 * larger ring than is allowed here. */
RMR_MUST_CHECK enum rmr_status easy_link_take_hello(struct link *link,
						    const struct rmr_device *device,
						    const RdmaOptions *options);
/* Then our memory for what goes there. No lock: nobody sends there yet. */
RMR_MUST_CHECK enum rmr_status easy_link_prepare_image(struct link *link,
						       struct rmr_device *device);
/* Sends ours, under the lock. */
RMR_MUST_CHECK enum rmr_status easy_link_say_hello(struct link *link);
/* A completion of the fabric, under the lock. */
void easy_link_complete(struct link *link, const struct rmr_completion *completion);
/* Under the lock: says farewell, as soon as there is room. The peer ends the connection then. */
void easy_link_say_bye(struct link *link);
/* Takes the lock itself; fails the Sync calls under way. Legal on a half-built one. */
void easy_link_destroy(struct link *link);

/* What connecting says of us. */
struct rmr_conn_options easy_link_conn_options(struct link *link, const RdmaOptions *options,
					       const struct rmr_device *device);

/* ------------------------------------------------------------------------------------------
 * out.c. Under the lock.
 */

/* Puts a record. False: no room. */
bool out_put(struct link *link, enum wire_kind kind, uint32_t immediate, const void *payload,
	     size_t length);
/* Would it fit? */
bool out_has_room(const struct link *link, size_t length);
/* The program wants that much room, and is to be told when it is there. */
void out_want(struct link *link, size_t length);
/* Records wait to be announced: now, or, in a callback, when the callbacks are over. */
void out_touch(struct link *link);
/* Announces what was put, as far as the connection takes it. True: nothing is left. */
bool out_flush(struct link *link);
/* Our writes up to that position are complete. */
void out_complete(struct link *link, uint64_t position);
/* The peer gives credit. */
void out_credit(struct link *link, uint32_t units);

/* ------------------------------------------------------------------------------------------
 * transfer.c. Under the lock.
 */

/* Does it lie in the space that the peer exposes, and is it allowed (enum rmr_right)? */
RMR_MUST_CHECK enum rmr_status transfer_in_space(const struct link *link, uint64_t offset,
						 uint64_t length, unsigned right);
/* May one more operation be posted? */
bool transfer_has_room(const struct link *link, enum rmr_op op, const RdmaOptions *options);

/* ------------------------------------------------------------------------------------------
 * in.c. The runtime's.
 */

/* Calls back for the records up to that position. */
void in_walk(struct link *link, uint64_t filled);
/* Gives credit for what was consumed, if it is worth it. Under the lock. */
bool in_give_credit(struct link *link);

/* ------------------------------------------------------------------------------------------
 * conn.c, accept.c, listener.c
 */

/* An endpoint that is known to the runtime. */
RMR_MUST_CHECK enum rmr_status conn_create(const RdmaOptions *options, RdmaListener *listener,
					   struct lane *lane, RdmaConn **result);
/* The runtime's: frees it. Its link is gone. */
void conn_free(RdmaConn *conn);
/* Makes it connected by this link, under the lane's lock. */
void conn_set_up(RdmaConn *conn, struct link *link);
/* NULL, with an error set, unless it is connected; under the lane's lock. */
struct link *conn_link(const RdmaConn *conn);

/* The runtime's. */
void accept_callers(struct path *path);
void accept_introduced(struct link *link);
void listener_free(RdmaListener *listener);
/* It is being released from now on; threads in rdmaServerStart() are on their way out. False: it
 * was before. */
bool listener_begin_end(RdmaListener *listener);
/* Watches its descriptors or not, as its state says. */
void listener_look(RdmaListener *listener);

/* ------------------------------------------------------------------------------------------
 * memory.c
 */
struct memory; /* registered by the program */

/* The memory of conn, or of all, that has all of data..data+size; NULL: none. */
struct memory *memory_find(RdmaConn *conn, const void *data, size_t size);
struct memory *memory_find_key(RdmaConn *conn, uint32_t key, uint64_t address, size_t size);
/* Its region on a device. */
RMR_MUST_CHECK enum rmr_status memory_region(struct memory *memory, const struct lane *lane,
					     struct rmr_region **region);
/* A region of a part of it, for peers alone; kept until the memory is freed. */
RMR_MUST_CHECK enum rmr_status memory_expose(struct memory *memory, const struct lane *lane,
					     void *data, size_t size, struct rmr_region **region);
void memory_set_exposed(struct memory *memory, bool is_exposed);
void memory_free_all(RdmaConn *conn);
/* Rights that a device can give on memory of ours, in an arena or not. */
unsigned memory_rights(const struct rmr_device *device, bool is_arena);

/* Tells the peer what it was not told yet; under the lane's lock, as the next. RMR_AGAIN: not now,
 * and the sendable callback will come. Other errors: some memory cannot be told of, RMR_LIMIT. */
RMR_MUST_CHECK enum rmr_status memory_tell(RdmaConn *conn, struct link *link);
/* The runtime's: tries again if that is due. False: it is due still. */
bool memory_try_to_tell(struct link *link);
/* A new peer knows of nothing. */
void memory_tell_again(RdmaConn *conn);
void memory_forget_tellings(RdmaConn *conn);

#endif
