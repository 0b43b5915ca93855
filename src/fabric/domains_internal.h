/*
 * Domains from inside: <remora/domains.h> says what they are for.
 *
 *	domains.c		devices and queues; polling and waiting over all of them
 *	domains_region.c	regions, descriptor sets, remotes
 *	domains_link.c		a link's life: what its connections say, its end
 *	domains_connect.c	connecting to a listener
 *	domains_listen.c	callers' connections, put together to links
 *	domains_transfer.c	works, cut into stripes and posted
 *
 * They know the fabric by <remora/fabric.h> alone.
 *
 * A link has lanes, one for each connection; the connection's user pointer is its lane. A work
 * takes one of the link's `depth` slots, from rmr_link_post until its event is taken: so nothing is
 * allocated on the way, and nothing grows. A transfer's stripes are dealt out to the lanes when it
 * is posted: what one lane has to do for it is a strand.
 *
 *	link ─┬─ lane 0 ── strands: [A 0 3 6]		A has stripes 0 to 6, then came B with
 *	      ├─ lane 1 ── strands: [A 1 4] [B 0]	0 and 1: it goes on where A ended
 *	      └─ lane 2 ── strands: [A 2 5] [B 1]
 *
 * A lane posts one stripe of each of its strands in turn, `window` of them at a time. Every stripe
 * is posted signaled, with its slot as cookie. The slot's last stripe moves the slot to the
 * domains' list of what is done, and rmr_domains_poll takes it from there.
 *
 * The end. No connection is closed while completions of its queue are being looked at: a link that
 * goes wrong is put on the `failing` list and ends after that, see domains_link.c.
 */
#ifndef FABRIC_DOMAINS_INTERNAL_H
#define FABRIC_DOMAINS_INTERNAL_H

#include <assert.h>
#include <stdatomic.h>

#include <remora/domains.h>

#include "base/list.h"

/* What a caller sends along with each connection of a link, and the listener answers: these, and
 * then the user's own. Little endian. */
struct link_hello {
	uint32_t magic;
	uint8_t version;
	uint8_t index;	     /* of this connection */
	uint8_t connections; /* of the link */
	uint8_t zero;
	uint64_t id; /* of the link: random, so that nobody else can join it */
};
static_assert(sizeof(struct link_hello) + RMR_LINK_PRIVATE_MAX == RMR_PRIVATE_MAX, "fits exactly");

#define LINK_HELLO_MAGIC   0x6c726d52u /* "Rmrl" */
#define LINK_HELLO_VERSION 1

struct domain {
	struct rmr_device *device;
	struct rmr_queue *queue;
	bool drained; /* the last pass of rmr_domains_poll found the queue's end */
	uint64_t read_bytes, write_bytes, stripes;
};

struct rmr_domains {
	int count;
	struct domain domain[RMR_DOMAINS_MAX];
	int epoll_fd; /* the queues' descriptors and timer_fd */
	int timer_fd; /* when the first of the failing links has waited enough */
	int wake_fd;
	atomic_bool wake;
	int spin_us;
	uint64_t spin_ticks; /* how long rmr_domains_wait spins now */
	int turn;	     /* the queue that is polled first */
	struct list done;    /* slots whose events wait to be taken */
	struct list failing; /* links */
	struct list dirty;   /* lanes that may have room for more */
	atomic_int children; /* links, requests, listeners, regions */
};

struct rmr_domains_region {
	struct rmr_domains *domains;
	uint8_t *address;
	size_t length;
	unsigned rights;
	struct rmr_region *regions[RMR_DOMAINS_MAX]; /* one for each domain */
};

struct rmr_link_remote {
	struct rmr_link *link;
	struct list list_link; /* in link->remotes */
	size_t length;
	unsigned rights;
	struct rmr_remote *remotes[RMR_DOMAINS_MAX]; /* one for each lane; NULL after its end */
};

/* One lane's part of a transfer: `left` stripes, the next one at `next`, then each `step` on. */
struct strand {
	struct list link; /* in lane->strands while left > 0 */
	struct slot *slot;
	uint64_t next, step, left;
};

/* A work between its post and its event. */
struct slot {
	struct list link; /* in link->free, link->active or domains->done */
	struct rmr_link *owner;
	struct rmr_link_work work;
	enum rmr_status status; /* the first error of its stripes that says why, else the first */
	uint64_t open;		/* stripes that are not done */
	struct strand *strands; /* one for each lane */
};

struct lane {
	struct rmr_link *link;
	int domain;
	struct rmr_conn *conn; /* NULL before and after */
	bool lost;
	uint32_t inflight; /* stripes */
	uint64_t bytes;
	struct list strands;
	struct list dirty_link; /* in domains->dirty */
};

enum link_state {
	LINK_BUILDING, /* connections are missing */
	LINK_OFFERED,  /* the last one waits for rmr_link_accept */
	LINK_OPEN,
	LINK_ENDED, /* all connections closed; if it was open, the farewell is on its way */
};

struct rmr_link {
	struct rmr_domains *domains;
	enum link_state state;
	uint64_t id;
	int count; /* of lanes */
	struct lane lanes[RMR_DOMAINS_MAX];
	struct rmr_link_options options; /* defaults filled in; no private data */
	size_t max_send, max_inline;
	char peer[64];
	uint8_t peer_private[RMR_LINK_PRIVATE_MAX];
	size_t peer_private_length;

	struct list failing_link; /* in domains->failing: it is about to end */
	enum rmr_status cause;
	uint64_t end_ns; /* no later than this */

	int turn; /* the lane for the next stripe */
	struct slot *slots;
	struct strand *strands;
	struct list free, active;
	struct slot farewell; /* the disconnect event */
	struct list remotes;

	/* While being built by a listener. */
	struct rmr_domains_listener *listener;
	struct list building_link; /* in listener->building */
	uint64_t deadline_ns;
	int arrived;
};

/* On which terms a listener's connections are accepted. */
struct link_terms {
	int dead_after_ms;
	bool limits_grants; /* else by default */
	struct rmr_grant_limits grants;
};

struct rmr_domains_listener {
	struct rmr_domains *domains;
	struct link_terms terms;
	struct rmr_listener *listeners[RMR_DOMAINS_MAX];
	struct rmr_domains_listener_options options; /* defaults filled in */
	int epoll_fd;
	int turn;
	struct list building;
	int building_count;
	char address[RMR_DOMAINS_MAX * 128];
};

/* Is the link on its way to the end, or there? */
static inline bool link_is_ending(const struct rmr_link *link)
{
	return link->state == LINK_ENDED || !list_is_empty(&link->failing_link);
}

/* domains_link.c */

/* A link in state LINK_BUILDING with so many lanes, none of them connected. */
enum rmr_status link_create(struct rmr_domains *domains, int count, struct rmr_link **link);
/* Frees a link in any state, with its connections; nothing of it remains anywhere. */
void link_destroy(struct rmr_link *link);
/* Checks the options, fills in the defaults; allocates slots. */
enum rmr_status link_configure(struct rmr_link *link, const struct rmr_link_options *options);

/* Looks at one completion of a queue. Returns whether it is an event by itself, and writes it. */
bool link_take(struct rmr_domains *domains, int domain, const struct rmr_completion *completion,
	       struct rmr_link_event *event);
/* Something went wrong for good: the link is going to end. The first cause that says why counts. */
void link_fail(struct rmr_link *link, enum rmr_status cause);
/* Ends those of the failing links whose time has come. */
void link_end_failing(struct rmr_domains *domains);

/* domains_connect.c */

/* All lanes are connected. */
void link_opened(struct rmr_link *link);

/* Writes what travels with connection `index`: the hello, and user's bytes. Returns the length. */
size_t link_hello_write(uint8_t bytes[RMR_PRIVATE_MAX], const struct rmr_link *link, int index,
			const void *user, size_t user_length);
/* Reads it. False when it is no hello of our version that makes sense. */
bool link_hello_read(struct link_hello *hello, const void *bytes, size_t length);
/* Keeps the user's bytes of what the peer sent along. */
void link_keep_private(struct rmr_link *link, const void *bytes, size_t length);

/* domains_transfer.c */

/* Posts stripes on the lane as far as its window goes. */
void lane_pump(struct lane *lane);
/* The slot's work is done, with slot->status: its event waits, or the slot is free again. */
void slot_finish(struct slot *slot);

/* domains_region.c: the link's connections are being closed, and with them the remotes. */
void link_forget_remotes(struct rmr_link *link);

/* domains_listen.c: takes the link off its listener's list. */
void listener_forget(struct rmr_link *link);

#endif
