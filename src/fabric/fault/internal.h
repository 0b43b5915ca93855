/*
 * The objects of the fault provider and what its files say to each other. See fault.h for the map.
 *
 * The life of a posted work is a walk through its connection's ring of tracks:
 *
 *	  head        done        issued      flushed     tail
 *	   |  held back |  below    |  waiting  |  held by  |
 *	   |  on the    |  in the   |  to go    |  RMR_MORE |
 *	   |  way up    |  inner    |  down     |           |
 *
 * head <= done <= issued <= flushed <= tail always holds: works go down in order, and because the
 * inner device completes them in order, they come up in order.
 *
 * Everything here belongs to the thread that owns the queue, except the device and the regions.
 */
#ifndef FABRIC_FAULT_INTERNAL_H
#define FABRIC_FAULT_INTERNAL_H

#include <pthread.h>

#include "fabric/fault/decide.h"
#include "fabric/fault/fault.h"

struct fault_device {
	struct rmr_device base;
	struct rmr_device *inner;
	struct fault_plan plan;
	/* How many there were so far: the N of the plan's N-ths, and the number of a stream. */
	atomic_uint_fast64_t queues, conns, connects, regions, drops;
};

struct fault_region {
	struct rmr_region base;
	/* Between posting a work of this region and closing it: after the inner region is closed
	 * its pointer must not be used, and works that waited here until then have to fail. */
	pthread_mutex_t lock;
	struct rmr_region *inner; /* NULL once closed */
};

struct fault_remote {
	struct rmr_remote base;
	struct rmr_remote *inner; /* dies with the inner connection */
	void *mapping;		  /* our own view of what the inner one maps, or NULL */
	size_t mapping_length;
};

struct fault_listener {
	struct rmr_listener base;
	struct rmr_listener *inner;
};

struct fault_request {
	struct rmr_request base;
	struct rmr_request *inner;
};

/* Which way a completion goes up. */
enum fault_stream {
	FAULT_STREAM_WORK, /* completions of posted works */
	FAULT_STREAM_RECV, /* messages and immediates */
	FAULT_STREAMS,
};

/* A posted work between rmr_post and its completion in the outer ring. */
struct fault_track {
	struct rmr_work work; /* as posted; local of an inline one is our copy */
	struct fault_decision decision;
	uint32_t next_piece;	    /* to post */
	uint32_t pieces_below;	    /* posted, not completed */
	enum rmr_status status;	    /* the first failure */
	enum rmr_status cut_status; /* what the work gets when the connection is cut at it */
	uint64_t start_ns;	    /* not before that goes the next piece down */
	uint64_t due_ns, order;	    /* when done: not before that it goes up; see fault_queue */
};

/* A message or immediate that is held back. */
struct fault_held {
	struct list link; /* in the connection's held, or the queue's free_held */
	struct rmr_completion completion;
	uint64_t due_ns, order;
};

struct fault_queue {
	struct rmr_queue base;
	struct rmr_queue *inner;
	struct fault_rng rng; /* for shuffling */
	uint64_t order;	      /* numbers the completions as they come up from below */
	struct list active;   /* connections that hold anything back, or have to end */
	struct list free_held;
	struct fault_held *held_pool;
	uint32_t held_imm; /* immediates held back */
	int timer_fd;	   /* for the next thing that becomes due */
	uint64_t timer_ns; /* what it is set to; 0 is off */
	struct queue_source inner_source, timer_source;
};

struct fault_conn {
	struct rmr_conn base;
	struct rmr_conn *inner; /* NULL once cut */
	struct list active_link;
	struct fault_rng work_rng, recv_rng, stall_rng;
	uint64_t posted; /* works so far */

	struct fault_track *tracks;
	uint8_t *inline_copies; /* max_inline bytes a track */
	uint32_t mask;
	uint32_t head, done, issued, flushed, tail; /* free-running */
	uint32_t signaled; /* works of head..flushed that will be heard of in any case */
	uint64_t stalled_until_ns;

	struct list held;
	uint64_t last_due_ns[FAULT_STREAMS];
	bool cut_planned; /* some track has a cut */
	bool cutting;	  /* ... and it is the next to happen: nothing goes down any more */
	bool broken; /* the inner connection has failed a work: the same, its end will follow */
	bool ended;  /* nothing comes from below any more; end_status is why */
	enum rmr_status end_status;
};

static inline struct fault_device *fault_device_of(const struct rmr_queue *queue)
{
	return (struct fault_device *)queue->device;
}

static inline struct fault_queue *fault_queue_of(const struct fault_conn *conn)
{
	return (struct fault_queue *)conn->base.queue;
}

static inline struct fault_track *fault_track_at(const struct fault_conn *conn, uint32_t index)
{
	return &conn->tracks[index & conn->mask];
}

/* device.c */
enum rmr_status fault_remote_init(struct rmr_remote *remote, const struct descriptor_wire *wire);
void fault_remote_fini(struct rmr_remote *remote);
enum rmr_status fault_region_export(struct rmr_region *region, struct rmr_conn *conn,
				    struct descriptor_wire *wire);

/* conn.c */
enum rmr_status fault_accept(struct rmr_request *request, struct rmr_conn *conn);
enum rmr_status fault_connect(struct rmr_conn *conn, const char *address, uint64_t deadline_ns);
void fault_grants_changed(struct rmr_conn *conn);
void fault_conn_fini(struct rmr_conn *conn);
bool fault_conn_lingers(const struct rmr_conn *conn, int *process);
/* The inner connection is lost: whatever was not completed by it never will be. */
void fault_conn_inner_lost(struct fault_conn *conn, enum rmr_status status, uint64_t now_ns);
/* Is the moment come to cut this connection? */
bool fault_conn_is_cut_due(const struct fault_conn *conn);
/* Cuts it. What came from below must have been taken. */
void fault_conn_cut(struct fault_conn *conn, uint64_t now_ns);

/* post.c */
int fault_post(struct rmr_conn *conn, const struct rmr_work *works, int count);
void fault_flush(struct rmr_conn *conn);
/* Hands down whatever may go now. */
void fault_conn_issue(struct fault_conn *conn, uint64_t now_ns);
/* When the next piece of a torn READ is to go down; CLOCK_NEVER if none waits for its time. */
uint64_t fault_conn_next_issue_ns(const struct fault_conn *conn);
/* The inner device completed a work, or a piece of one. */
void fault_conn_work_done(struct fault_conn *conn, uint32_t index, enum rmr_status status,
			  uint64_t now_ns);
/* Marks the oldest work that is not done as done, with its status. */
void fault_conn_retire(struct fault_conn *conn, uint64_t now_ns);
/* Drops what a work refers to. */
void fault_track_release(struct fault_track *track);
/* The works up to `to` are no longer held by RMR_MORE. */
void fault_conn_mark_flushed(struct fault_conn *conn, uint32_t to);

/* queue.c */
enum rmr_status fault_queue_init(struct rmr_queue *queue);
void fault_queue_fini(struct rmr_queue *queue);
int fault_poll(struct rmr_queue *queue, struct rmr_completion *completions, int max);
enum rmr_status fault_arm(struct rmr_queue *queue);
void fault_recv_release(struct rmr_queue *queue, void *data);
/* The moment from which a completion of this stream may come up, in order with those before. */
uint64_t fault_queue_due_ns(struct fault_conn *conn, enum fault_stream stream, uint64_t due_ns);
/* Drops all that is held back of a connection, and what its queue's ring has of it. */
void fault_queue_forget(struct fault_conn *conn);

#endif
