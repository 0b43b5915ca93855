/*
 * The objects of the tcp provider, and what its files say to each other.
 *
 *	device.c	the provider's table	region.c	registered memory
 *	connect.c	calling a listener	listener.c	callers introduce themselves
 *	conn.c		life and end of a connection
 *	post.c		initiator: works in	answer.c	initiator: answers come back
 *	serve.c		target: requests	message.c	target: messages, slots, waiting
 *	transmit.c	frames out		receive.c	frames in
 *	socket.c	the wire: sockets	limits.h	every limit
 *	progress.c	polling, sleeping	helper.c	the thread that stands in
 *
 * Locks. base.lock of a queue guards the queue and all its connections; every provider call on
 * them takes it, and so does the helper. Order: helper->lock, then a queue's lock. Functions
 * below that take a struct tcp_conn or struct tcp_queue expect the lock to be held, unless they
 * are slots of struct rmr_provider. No call under the lock blocks.
 *
 * Life of a connection:
 *
 *	          access error by the peer
 *	  OPEN -------------------------> CLOSING	reads nothing more; sends what it owes, and
 *	   |                                 |		the ERROR frame
 *	   | socket or protocol error        | all is sent, or the socket fails
 *	   v                                 v
 *	 FAILED <----------------------------+		works are completed; messages that wait for
 *	   |						a slot are still delivered
 *	   | none waits
 *	   v
 *	  LOST						DISCONNECT is in the ring
 *
 * Memory of a connection, besides its socket: sizeof(struct tcp_conn), less than 1 KiB; works,
 * depth x 96 bytes, from the first post on; responses, at most TCP_SERVED_MAX x 40 bytes and no
 * more than the peer's depth, from the first READ of the peer on; one block of 66 KiB while
 * there is something to send that the socket does not take; copies of inline payloads, at most
 * depth x TCP_INLINE_MAX, while they cannot be encoded; and messages without a slot, at most
 * the window offered (TCP_WINDOW_BYTES, and 40 bytes for each of at most
 * TCP_WINDOW_MESSAGES_MAX). An idle connection has the first of these, one that was used the
 * first three: a thousand of them at the default depth take 20 MiB at most. A peer cannot make
 * us hold more, whatever it sends.
 */
#ifndef FABRIC_TCP_INTERNAL_H
#define FABRIC_TCP_INTERNAL_H

#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fabric/greeter.h"
#include "fabric/provider.h"
#include "fabric/tcp/frame.h"
#include "fabric/tcp/handshake.h"
#include "fabric/tcp/limits.h"
#include "fabric/tcp/region.h"

struct tcp_conn;
struct tcp_queue;
struct tcp_response;
struct tcp_work;

/*
 * What carries the bytes of a queue's connections. Everything else in this folder is the engine:
 * it turns works into frames and frames into access to memory, whoever carries them. Here it is
 * sockets (socket_wire); the packets of libfabric are another one (src/fabric/ofi). All are called
 * under the queue's lock, and none blocks.
 */
struct tcp_wire {
	/* Sends of the block what it can, with transmit_advance, and adds that to *total. False:
	 * it takes no more for now, or the connection has failed. */
	bool (*send)(struct tcp_conn *conn, size_t *total);
	/* conn->transmit.blocked has changed: when it takes more, transmit_unblock is wanted. */
	void (*watch)(struct tcp_conn *conn);
	/* No more is sent: tells the peer, which shall get all that was sent before. */
	void (*hang_up)(struct tcp_conn *conn);
	/* The connection is being closed: what the peer still sends is of no interest. */
	void (*part)(struct tcp_conn *conn);
	/* Nothing more goes in or out, from now on, also of what was lent. Legal twice. */
	void (*close)(struct tcp_conn *conn);
	/* Takes in what there is on all connections of the queue; by_helper tells for whom. */
	void (*progress)(struct tcp_queue *queue);
	/* Has what comes in from now on make sockets_fd readable. False: something did already. */
	bool (*arm)(struct tcp_queue *queue);
	/* Is there something that nobody sees unless the owner polls? */
	bool (*needs_polls)(const struct tcp_queue *queue);
	/* Ought somebody to look now and then, although most likely for nothing? In how many
	 * nanoseconds; CLOCK_NEVER: no. NULL: never. */
	uint64_t (*look_in_ns)(const struct tcp_queue *queue);

	/* Long READs, where the wire has a better way for them than its stream; all NULL where it
	 * has not. Initiator: lends the memory that the data of the READ with this sequence goes
	 * to. False: the stream will do. */
	bool (*lend)(struct tcp_conn *conn, struct tcp_work *work, uint32_t sequence);
	/* Initiator: the work has lent memory, and is done with it. */
	void (*take_back)(struct tcp_conn *conn, const struct tcp_work *work);
	/* When it returns nothing touches what conn has lent or pushes, and nothing will. */
	void (*recall)(struct tcp_conn *conn);
	/* Target: begins to write what the READ asks for, out of a region that is held until then
	 * (region_unpin). False: not now, or the connection has failed; the region is not held
	 * then. */
	bool (*push)(struct tcp_conn *conn, const struct tcp_response *response);
};

struct tcp_helper {
	pthread_mutex_t lock; /* guards queues, and keeps a queue alive while it is served */
	struct list queues;
	uint64_t next_id;
	int epoll_fd; /* kick_fd, and each queue's sockets_fd as a one-shot */
	int kick_fd;  /* a queue wants to be looked after, or the thread is to end */
	atomic_bool stop;
	bool started; /* guarded by lock */
	pthread_t thread;
};

struct tcp_device {
	struct rmr_device base;
	struct region_table regions;
	struct tcp_helper helper;
};

/* A piece of what is to be sent: bytes of the block itself, or of a region. */
struct tcp_segment {
	const uint8_t *data;
	size_t length;
	struct region_slot *slot; /* NULL: in the block */
	uint64_t key;
};

struct tcp_block {
	struct tcp_block *next; /* while free */
	struct tcp_segment segments[TCP_BLOCK_SEGMENTS];
	uint8_t bytes[TCP_BLOCK_BYTES];
};

struct tcp_queue {
	struct rmr_queue base;
	const struct tcp_wire *wire;
	struct queue_source source; /* of sockets_fd and notify_fd in base.epoll_fd: does nothing */
	int sockets_fd;		    /* epoll set of the connections' sockets */
	int notify_fd;		    /* eventfd: the helper made completions while the owner slept */
	bool armed;		    /* the owner sleeps on base.epoll_fd, or is about to */
	bool notified;		    /* notify_fd is set */
	uint8_t *scratch;	    /* TCP_SCRATCH_BYTES, for whoever receives */
	struct tcp_block *free_blocks;
	unsigned free_block_count;

	struct list dirty;   /* connections with something to send that may wait a little */
	struct list starved; /* connections with messages that wait for a slot */
	bool drain_due;	     /* slots came free by a failure: see whom they serve */
	unsigned blocked;    /* connections whose socket takes no more */

	/* Polling: see progress.c. */
	struct tcp_conn *hot[TCP_HOT_MAX];
	unsigned hot_count;
	uint32_t sleeps; /* times that the owner went to sleep */
	unsigned dispatch_every, dispatch_in;
	unsigned ring_polls;
	bool by_helper; /* the helper makes progress now: nothing gets hot */

	/* The helper's view: see helper.c. */
	uint64_t polls;	     /* by the owner */
	uint64_t polls_seen; /* polls at the helper's last look */
	bool dormant;	     /* the owner did not poll: served at once, without waiting for it */
	/* The helper looks at the queue every interval_ns. Set by any thread under the lock,
	 * cleared by the helper under the lock, read by the helper without it. Relaxed, since the
	 * lock or the kick_fd orders what matters. */
	atomic_bool ticking;
	uint64_t tick_ns;     /* when it looks next */
	uint64_t interval_ns; /* TCP_HELPER_AFTER_NS and more */
	bool leisurely;	      /* that look can wait; who wants another one has to say so */
	uint64_t id;
	struct list helper_link;
};

/* Is the memory that a READ goes to lent to the peer? */
enum tcp_lent {
	LENT_NOT,
	LENT_OUT,
	LENT_LANDED, /* was, and the data is there */
};

/* An operation between post and completion. Its number is its request's sequence. */
struct tcp_work {
	uint64_t cookie;
	uint8_t *local;
	uint64_t length;
	struct region_slot *local_slot; /* NULL: inline, or nothing to touch */
	uint64_t local_key;
	uint64_t remote_key;
	uint64_t offset;
	uint64_t operand; /* or the immediate */
	uint64_t compare;
	uint8_t *stash; /* an inline payload that could not be encoded at once */
	union {
		uint32_t message; /* which message it is, counted from 1, once sent */
		uint32_t lease;	  /* the wire's, while it is lent */
	};
	uint16_t remote_index;
	uint8_t op; /* enum rmr_op */
	uint8_t flags;
	uint8_t lent; /* enum tcp_lent */
};

/* An answer that has not been encoded yet, or data that has not begun to be pushed. */
struct tcp_response {
	uint8_t op; /* FRAME_READ_DATA or FRAME_ATOMIC_RESULT; or FRAME_READ_PUSH */
	uint32_t sequence;
	struct region_slot *slot;
	uint64_t key;
	uint64_t offset;
	uint64_t length; /* or the value */
};

/* A message that waits for a slot. */
struct tcp_message {
	struct tcp_message *next;
	uint8_t op; /* FRAME_SEND, FRAME_WRITE_IMM or FRAME_WANT */
	uint32_t immediate;
	uint64_t length;
	uint8_t data[]; /* SEND */
};

/* What the next bytes of the stream are. */
struct tcp_receive {
	uint8_t carry[FRAME_HEADER_MAX]; /* the beginning of a header */
	uint8_t carried;
	bool in_payload;
	uint8_t op; /* of the frame whose payload it is */
	uint32_t sequence;
	uint32_t immediate;
	uint64_t length;
	uint8_t *to; /* where the rest goes */
	uint64_t rest;
	struct region_slot *slot; /* that `to` lies in; NULL: memory of ours */
	uint64_t key;
	void *recv_slot;	     /* SEND: where it lands, one of these two */
	struct tcp_message *message; /* ... */
};

struct tcp_transmit {
	struct tcp_block *block; /* NULL: nothing is encoded */
	uint32_t used;		 /* bytes of the block */
	uint32_t first, count;	 /* segments not yet sent: first..count-1 */
	bool blocked;		 /* the socket takes no more: wait for EPOLLOUT */
};

enum conn_state {
	CONN_UNBORN,
	CONN_OPEN,
	CONN_CLOSING,
	CONN_FAILED,
	CONN_LOST,
};

struct tcp_conn {
	struct rmr_conn base;
	enum conn_state state;
	int fd;		   /* -1: closed already */
	uint32_t interest; /* what epoll watches for */
	enum rmr_status failure;
	bool discarding; /* our end is shut: input is thrown away */
	bool hot;
	uint8_t heat;	      /* times that it had something since the owner last slept */
	uint32_t heat_sleeps; /* queue->sleeps when heat was last counted */
	uint32_t idle_polls;  /* hot, and polls that found nothing since */
	struct list dirty_link, starved_link;

	/* Initiator. Sequences: head..next-1 are sent, next..tail-1 wait. */
	struct tcp_work *works;
	uint32_t work_mask;
	uint32_t head, next, tail;
	uint32_t answered;			/* all below that are no messages are done */
	uint32_t requests_limit;		/* how many the peer serves at once */
	uint32_t window_messages, window_bytes; /* the peer's */
	uint32_t messages_sent, messages_acked, bytes_sent, bytes_acked;
	bool flush_due;	       /* posted with RMR_MORE, not flushed; only the owner looks */
	bool wanting, granted; /* the SEND at next asked for a slot; and has it */
	uint32_t lent;	       /* works whose memory is lent out */

	/* Target. */
	struct key_secret secret; /* of the keys that the peer was given; zero: no region was */
	uint32_t expected;	  /* sequence of the peer's next request */
	uint32_t told;		  /* the peer knows that all below that are no messages are done */
	uint32_t writes_end;	  /* one past the last WRITE placed */
	uint32_t served_limit;
	struct tcp_response *responses; /* served_limit of them, rounded up */
	uint32_t response_mask, response_head, response_tail;
	uint32_t pushing;			  /* READs whose data is being pushed */
	uint32_t offered_messages, offered_bytes; /* the windows */
	uint32_t messages_taken, bytes_taken;	  /* received, wherever they are */
	uint32_t messages_done, bytes_done;	  /* delivered */
	uint32_t messages_told;
	struct tcp_message *waiting, **waiting_end;
	bool want_waits;    /* among them a WANT, or it was granted and has not come */
	void *granted_slot; /* reserved for the SEND that the peer announced */
	uint64_t granted_length;
	bool grant_due, error_due;
	uint8_t error_status;
	uint32_t error_sequence;

	struct tcp_receive receive;
	struct tcp_transmit transmit;
};

static inline struct tcp_device *tcp_device_of(struct rmr_device *device)
{
	return (struct tcp_device *)device;
}

static inline struct tcp_queue *tcp_queue_of(struct tcp_conn *conn)
{
	return (struct tcp_queue *)conn->base.queue;
}

/* For the log. */
static inline const char *conn_device_name(const struct tcp_conn *conn)
{
	return conn->base.queue->device->info.name;
}

static inline void queue_lock(struct tcp_queue *queue)
{
	spin_lock_take(&queue->base.lock);
}

static inline void queue_unlock(struct tcp_queue *queue)
{
	spin_lock_give(&queue->base.lock);
}

/* recv(2) and send(2) that never block. Not by the C library's functions: those are cancellation
 * points, which in a process with threads cost more than all we do for a small message. */
static inline ssize_t socket_recv(int fd, void *to, size_t length)
{
	return syscall(SYS_recvfrom, fd, to, length, MSG_DONTWAIT, NULL, NULL);
}

static inline ssize_t socket_send(int fd, const void *from, size_t length)
{
	return syscall(SYS_sendto, fd, from, length, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0);
}

/* Does sequence a come before b? They wrap around; windows are far below 2^31. */
static inline bool sequence_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* device.c -------------------------------------------------------------------------------- */
/* The engine's part of a device, for any wire. */
enum rmr_status tcp_device_begin(struct rmr_device *device);
void tcp_device_end(struct rmr_device *device);

/* listener.c ------------------------------------------------------------------------------ */
struct tcp_listener {
	struct rmr_listener base;
	struct greeter greeter;
};

struct tcp_request {
	struct rmr_request base;
	int fd;
	struct handshake hello;
};

enum rmr_status tcp_listener_init(struct rmr_listener *listener, const char *address);
void tcp_listener_fini(struct rmr_listener *listener);
enum rmr_status tcp_listener_next(struct rmr_listener *listener, struct rmr_request *request,
				  int *wait_ms);
void tcp_reject(struct rmr_request *request, const char *reason);

/* connect.c ------------------------------------------------------------------------------- */
enum rmr_status tcp_connect(struct rmr_conn *conn, const char *address, uint64_t deadline_ns);

/* An answer of a listener, of this wire or another. Its version is where a handshake has it. */
#define CONNECT_ANSWER_MAX 256
struct connect_form {
	size_t size; /* at most CONNECT_ANSWER_MAX */
	unsigned version;
	enum handshake_result (*decode)(const uint8_t *bytes, size_t available, void *answer,
					const char **reason);
};
/* Reads the answer, and no byte of what may follow it. */
enum rmr_status connect_hear(int fd, uint64_t deadline_ns, const struct connect_form *form,
			     void *answer);
/* RMR_OK for one that takes us. */
enum rmr_status connect_judge(struct handshake *answer);

/* conn.c ---------------------------------------------------------------------------------- */
enum rmr_status tcp_accept(struct rmr_request *request, struct rmr_conn *conn);
void tcp_conn_fini(struct rmr_conn *conn);

/* What we say of ourselves in a handshake. */
void conn_greeting(const struct tcp_conn *conn, enum handshake_kind kind, uint8_t *to);
/* Makes conn, over a connected socket, OPEN with what the peer said. Takes the lock itself. Does
 * not own the socket unless it succeeds. */
enum rmr_status conn_open(struct tcp_conn *conn, int fd, const struct handshake *peer);

/* The connection is over: completes all works and reports the loss. In flight: DISCONNECTED; not
 * yet sent: CANCELED. Legal in any state. */
void conn_fail(struct tcp_conn *conn, enum rmr_status status);
/* The same, because of the work `sequence`, which gets the status; the others are CANCELED. */
void conn_fail_at(struct tcp_conn *conn, uint32_t sequence, enum rmr_status status);
/* The peer broke the rules: logs it, and fails with RMR_PROTOCOL. */
__attribute__((cold, format(printf, 2, 3))) void conn_violation(struct tcp_conn *conn,
								const char *format, ...);
/* The peer's request `sequence` failed: CLOSING. */
void conn_refuse(struct tcp_conn *conn, uint32_t sequence, enum rmr_status status);
/* CLOSING, and all is sent: FAILED. The socket stays, to take in what the peer still sends; were
 * it closed now, the kernel would answer that by a reset that may overtake the ERROR frame. */
void conn_finish_closing(struct tcp_conn *conn);
/* FAILED, and no message waits any more: LOST. */
void conn_settle_failure(struct tcp_conn *conn);
/* The engine's part of conn_open: for any wire, under the lock. */
void conn_begin(struct tcp_conn *conn, int fd, const struct handshake *peer);

/* socket.c -------------------------------------------------------------------------------- */
extern const struct tcp_wire socket_wire;
/* Tells epoll what we want to know now. */
void socket_update_interest(struct tcp_conn *conn);

/* post.c ---------------------------------------------------------------------------------- */
int tcp_post(struct rmr_conn *conn, const struct rmr_work *works, int count);
void tcp_flush(struct rmr_conn *conn);

/* Encodes works that wait, as far as windows and the block allow. */
void post_encode(struct tcp_conn *conn);
/* Would post_encode find a work that may go? */
bool post_can_encode(const struct tcp_conn *conn);

/* answer.c -------------------------------------------------------------------------------- */
/* An answer to one of our requests. */
void answer_take(struct tcp_conn *conn, const struct frame *frame);
/* Is what we wait for next the data of a long READ? */
bool answer_is_long(struct tcp_conn *conn);
/* The data of a READ has arrived. */
void answer_read_done(struct tcp_conn *conn, uint32_t sequence);
/* ... by the other way, in memory that was lent for it. */
void answer_landed(struct tcp_conn *conn, uint32_t sequence);
/* Completes works of a connection that has ended; see conn_fail_at. */
void answer_fail_all(struct tcp_conn *conn, const uint32_t *culprit, enum rmr_status status);

/* serve.c --------------------------------------------------------------------------------- */
/* A request of the peer. */
void serve_take(struct tcp_conn *conn, const struct frame *frame);
/* The payload of a WRITE is placed. */
void serve_write_done(struct tcp_conn *conn, uint32_t sequence);
/* Encodes responses that wait, as far as the block allows. False when some are left. */
bool serve_encode(struct tcp_conn *conn);

/* message.c ------------------------------------------------------------------------------- */
/* A SEND begins: finds the place for its payload and sets up conn->receive. */
void message_begin(struct tcp_conn *conn, const struct frame *frame);
/* The payload of a SEND has arrived. */
void message_end(struct tcp_conn *conn);
/* A WRITE_IMM is placed. */
void message_immediate(struct tcp_conn *conn, uint32_t immediate, uint64_t length);
/* The peer wants to send a long message. */
void message_want(struct tcp_conn *conn, const struct frame *frame);
/* May one more message, with so many bytes that count, be under way to us? */
bool message_in_window(const struct tcp_conn *conn, uint64_t bytes);
/* Delivers what waits on the queue, as far as slots allow. */
void message_drain(struct tcp_queue *queue);
/* Drops the messages of a connection that is being closed. */
void message_drop_all(struct tcp_conn *conn);
/* Gives back what a message that will never be complete had taken. */
void message_abandon(struct tcp_conn *conn);

/* receive.c ------------------------------------------------------------------------------- */
/* Takes in what the socket has, or a part of it (the rest is reported again), and answers. Returns
 * whether there was something. */
bool receive_ready(struct tcp_conn *conn);
/* Takes in bytes that another wire brought. Before them there are FRAME_HEADER_MAX bytes that may
 * be written to. */
void receive_feed(struct tcp_conn *conn, uint8_t *bytes, size_t length);
/* Answers what was taken in; delivered is what messages_done was before. */
void receive_settle(struct tcp_conn *conn, uint32_t delivered);
/* The payload of the frame follows and goes to `to`. */
void receive_payload(struct tcp_conn *conn, const struct frame *frame, uint8_t *to,
		     struct region_slot *slot, uint64_t key);

/* transmit.c ------------------------------------------------------------------------------ */
/* Room for `size` bytes in the block, behind what is there; NULL when it is full (or the connection
 * has failed for want of memory). The bytes count only after transmit_commit. */
uint8_t *transmit_reserve(struct tcp_conn *conn, size_t size);
void transmit_commit(struct tcp_conn *conn, size_t size);
/* Appends bytes that are sent from where they lie. The room for it comes with transmit_reserve. */
void transmit_reference(struct tcp_conn *conn, const uint8_t *data, size_t length,
			struct region_slot *slot, uint64_t key);
/* Encodes what can be encoded now, in its order. */
void transmit_encode(struct tcp_conn *conn);
/* Encodes and sends all that can be sent now. */
void transmit_ready(struct tcp_conn *conn);
/* Says something that says nothing: for a wire that needs the caller to speak first. */
void transmit_greet(struct tcp_conn *conn);
/* The wire takes more again. */
void transmit_unblock(struct tcp_conn *conn);
/* The connection owes the peer something that cannot wait for the next poll. */
bool transmit_is_urgent(const struct tcp_conn *conn);
/* ... or that can. */
bool transmit_is_due(const struct tcp_conn *conn);
/* Puts the connection among those that have something to send. */
void transmit_later(struct tcp_conn *conn);
/* So many bytes of the block are sent. */
void transmit_advance(struct tcp_conn *conn, size_t sent);
/* Gives the block back. */
void transmit_drop(struct tcp_conn *conn);
void transmit_free_blocks(struct tcp_queue *queue);

/* progress.c ------------------------------------------------------------------------------ */
enum rmr_status tcp_queue_init(struct rmr_queue *queue);
void tcp_queue_fini(struct rmr_queue *queue);
int tcp_poll(struct rmr_queue *queue, struct rmr_completion *completions, int max);
enum rmr_status tcp_arm(struct rmr_queue *queue);
void tcp_recv_release(struct rmr_queue *queue, void *data);

/* What queue_init and queue_fini do for any wire. The device's helper looks after the queue. */
enum rmr_status progress_init(struct tcp_queue *queue, const struct tcp_wire *wire);
void progress_fini(struct tcp_queue *queue);
/* Is something left to do for which nobody would be woken? */
bool progress_needs_polls(const struct tcp_queue *queue);
/* The same for what can wait; see struct tcp_wire. */
uint64_t progress_look_in_ns(const struct tcp_queue *queue);
/* Wakes up the owner, if he sleeps on descriptors that the helper has made quiet. */
void progress_wake_owner(struct tcp_queue *queue);
/* The helper's turn: serves all that is ready, and wakes the owner if he sleeps and has to know. */
void progress_by_helper(struct tcp_queue *queue);

/* helper.c -------------------------------------------------------------------------------- */
enum rmr_status helper_init(struct tcp_helper *helper);
void helper_fini(struct tcp_helper *helper);
/* Puts a queue under the helper's care, and ends that. The lock is not held. */
enum rmr_status helper_add(struct tcp_helper *helper, struct tcp_queue *queue);
void helper_remove(struct tcp_helper *helper, struct tcp_queue *queue);
/* Has the helper look at the queue within a millisecond, if it does not already. */
void helper_want_ticks(struct tcp_queue *queue);
/* The same for what can wait (look_in_ns), which there is now. */
void helper_want_look(struct tcp_queue *queue);

#endif
