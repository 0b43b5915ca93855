/*
 * What the files of the client share.
 *
 *	client.c	creating, options, errors, figures
 *	target.c	what a server's name means: which transports to try, and where
 *	link.c		one connection: device, greeting, what the server lets us reach
 *	call.c		operations under way: beginning, sending, ending
 *	wheel.c		what comes in: replies, READs that are done, lost connections
 *	run.c		reaching the server, starting calls, waiting for them, deadlines
 *	life.c		whether the server of mapped memory is alive
 *	buffer.c	memory that the other end may write to, on both ends
 *	get.c		how a value is got: mapped, remembered place, asking
 *	get_quick.c	a short value by its remembered place, when nothing else is under way
 *	get_long.c	values that do not fit into the buffer
 *	get_index.c	looking a key up by READs
 *	put.c		how a value is put: in a message, in the landing buffer, in pieces
 *	put_quick.c	a short value in a message, when nothing else is under way
 *	operations.c	everything that is one request and one reply
 *	counter.c	counters
 *	view.c		values in place
 *	async.c		submit and poll; batches
 *	five.c		the five-call store
 *	example.c	run_client(), which tries that
 *	compat.c	calls of other libraries, for <remora/compat/>
 *	location.h	where items were seen last; pure
 *	extents.h	a small allocator of buffer space; pure
 *
 * Everything runs on the caller's thread. An operation that needs the server is a call; the window
 * is an array of them. A blocking operation starts a call and turns the wheel, call_turn(), until
 * it is done; others that are under way go on meanwhile. Nothing here waits but call_turn().
 *
 * A connection is a link. When it is lost, answers that came before still count, whoever found out
 * first. Then calls that changed nothing, or whose request was never sent, begin again on the next
 * link; of the others nobody can know, and they end with KV_UNKNOWN.
 */
#ifndef CLIENT_INTERNAL_H
#define CLIENT_INTERNAL_H

#include <remora/fabric.h>
#include <remora/kv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/hash.h"
#include "client/extents.h"
#include "client/location.h"
#include "kv/auth.h"
#include "kv/protocol.h"
#include "store/item.h"
#include "store/reader.h"

#define CLIENT_ERROR_SIZE     1024
#define CLIENT_TRANSPORT_SIZE 1200
#define CLIENT_MAX_TARGETS    20
/* Calls beside those that the caller submits: our own, and what is needed to start others. */
#define CLIENT_SPARE	  8u
#define LINK_MAX_DETACHED 4u
#define LINK_MAX_TIME_MS  ((uint64_t)1 << 48) /* as an item's expiry */

/* ------------------------------------------------------------------------------------------
 * Targets
 */

/* One way to reach a server. */
struct target {
	char device[64];   /* as rmr_device_open takes it */
	char address[256]; /* as rmr_connect does */
	char reason[192];  /* why it cannot be tried at all; "": it can */
};

struct target_list {
	int count;
	struct target targets[CLIENT_MAX_TARGETS];
};

/* What kv_client_connect's arguments mean. device: NULL, or the one to use. Returns KV_OK, or
 * KV_INVALID with the reason in rmr_error_message(). */
int targets_find(conn_mode_t mode, const char *server, int port, const char *device,
		 struct target_list *list);

/* ------------------------------------------------------------------------------------------
 * Links
 */

struct link {
	struct kv_client *client;
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	bool is_lost;
	bool is_over;	     /* its last completion was taken: nothing more lies in the queue */
	bool is_deaf;	     /* no message counts any more: the last one was, or made no sense */
	bool said_goodbye;   /* what the server has not answered it has not carried out */
	uint32_t view_count; /* views keep a lost link's memory mapped */
	struct link *next;   /* of the lost ones */

	/* Memory of ours: a slot for each call; and one into which the server may write. The slots
	 * serve as local ends only: no arena is needed, which takes a descriptor. */
	uint8_t *slots;
	size_t slots_size;
	struct rmr_region *slots_region;
	struct rmr_arena *buffer; /* NULL until it is needed */
	struct rmr_region *buffer_region;
	struct extents buffer_space;

	/* Where registering memory costs nothing to speak of, the caller's own is used for long
	 * values: from where a put is sent, or to where a get is read. NULL: not now. */
	bool registers_freely;
	struct rmr_region *callers_region;
	size_t callers_length;
	/* Such regions whose memory the caller has back, while calls that were given up still use
	 * their copies; NULL: none. */
	struct rmr_region *detached[LINK_MAX_DETACHED];

	/* What the server lets us reach. */
	struct kv_welcome welcome;
	uint64_t generation;
	uint64_t opened_ns;
	struct rmr_remote *arena;
	size_t arena_length;
	struct rmr_remote *cells;
	struct rmr_remote *landing; /* NULL until it is needed */
	struct extents landing_space;
	bool has_no_landing;  /* was asked for, in vain */
	bool has_no_buffer;   /* the server takes none of ours: it has mapped as much as it may */
	struct reader reader; /* if mapped */
	bool is_mapped;
	/* If mapped: signs of the server's life (life.c), in ticks of our clock. */
	uint64_t alive_ticks;  /* it lived after this */
	uint64_t looked_ticks; /* at the arena's tick, for the last time */
	uint64_t tick_seen;    /* what it was then */

	size_t max_send;    /* bytes of a SEND */
	size_t max_inline;  /* of these, without a region */
	size_t eager_limit; /* key and value of a request in a SEND */
	size_t reply_room;  /* of a value in a reply */
	uint32_t next_id;
	uint32_t asked; /* requests that wait for their reply */
	uint32_t cells_epoch;
	bool must_tell_cells; /* all cells are forgotten: the server has to know */
	/* Store time is at most local time (ms) plus this; INT64_MAX: not known. */
	int64_t clock_ahead_ms;
	int64_t clock_set_ms; /* when that was found out, local time */
	void *spent;	      /* a message that was read, its slot not given back yet */
	char reason[256];     /* why it was lost */
};

/* Connects by the first target that works; on failure the message is the client's error. */
int link_open(struct kv_client *client, uint64_t deadline_ns);
/* Goes over to a better path, if it is time to look for one, nothing is under way, and there is
 * one. Takes 50 ms for each such path at most. */
void link_seek_better(struct kv_client *client);
/* Not to be used any more; calls begin again on the next one. */
void link_lose(struct link *link, const char *reason);
/* Closes the client's link; what has views stays mapped until they are released. */
void link_drop(struct kv_client *client);
/* A view of it was released: closes it if it was the last one, and the link is lost. */
void link_release(struct link *link);
void link_close_all(struct kv_client *client);

/* ------------------------------------------------------------------------------------------
 * Calls
 */

struct call;
struct index_search;
struct index_picture;

enum call_state {
	CALL_FREE,
	CALL_BEGUN,    /* set up; to be started, or started again */
	CALL_READING,  /* a READ at a remembered place */
	CALL_LOOKING,  /* READs of the index */
	CALL_COUNTING, /* an atomic */
	CALL_ASKED,    /* waits for a reply */
	CALL_DONE,
};

/* What a reply brought, beside the header. Called while the message is there; may change status. */
typedef void (*call_take_fn)(struct kv_client *client, struct call *call,
			     const struct kv_reply_view *view);
/* Starts a call on the present link, the first time or again, and sets its state. KV_OK, or why it
 * ends. If the link is lost meanwhile the call is started once more on the next. */
typedef int (*call_start_fn)(struct kv_client *client, struct call *call);
/* What a call's READ or atomic brought is in its slot or buffer. */
typedef void (*call_read_fn)(struct kv_client *client, struct call *call);

#define CALL_SMALL_KEY 64
/* A status that never leaves the client: the value is too long for the buffer. */
#define CALL_TOO_LONG 1
/* Another one: nothing was done, so it can be done in another way. */
#define CALL_NOT_MADE 2

struct call {
	enum call_state state;
	bool is_abandoned; /* nobody waits: freed when it ends */
	bool is_async;
	bool is_change; /* must not be done twice */
	bool was_sent;
	uint64_t order; /* of beginning */
	call_start_fn start;
	call_take_fn take;
	call_read_fn read_done;
	struct kv_request request;
	uint64_t instance; /* of the store that the request's version came from; 0: not known */
	uint64_t hash;	   /* of the key; 0 if it has none */
	const uint8_t *key;
	const void *source; /* PUT: the value, until it is sent */
	void *value;	    /* GET: where it shall go */
	size_t room;
	void *context; /* of take */
	struct extent buffer, landing;
	struct rmr_region *region; /* of the caller's memory, if it is used; compared only */
	uint64_t deadline_ns;
	uint64_t sent_ms;    /* on a link that is not mapped */
	uint64_t sent_ticks; /* on one that is */
	uint64_t cookie;
	/* How far a GET has come. */
	struct index_search *search;
	bool must_ask;
	bool is_direct;	      /* the value goes from or to the caller's own memory */
	bool is_confirmed;    /* what was read is an item, whatever its checksum */
	uint64_t push_length; /* room for a push that is known to be needed; 0: not known */
	uint64_t reached;     /* PUT_PULL: bytes that the server says it has */
	/* What came of it. */
	int status;
	size_t length;
	struct kv_reply reply;
	kv_path_t path;
	unsigned round_trips;
	/* From here on nothing is cleared when it begins. */
	uint8_t *slot;
	unsigned number;   /* of its slot */
	uint8_t *long_key; /* allocated */
	uint8_t small_key[CALL_SMALL_KEY];
	struct location place;
};

/* In a READ's cookie: others of the same call follow. */
#define CALL_PIECE ((uint64_t)1 << 32)

/* A long value that is read to where the caller wants it, in pieces, each of which is hashed while
 * the next one is on its way. There is one at a time, as there is one callers_region. */
struct direct_read {
	struct hash_stream stream;
	uint64_t piece;	 /* bytes of each, but for the last, which is longer */
	uint64_t hashed; /* bytes of the value */
};

/* To be given back on the server: a pin or a draft that came too late. */
struct leftover {
	uint8_t op;
	uint64_t argument;
};

#define CLIENT_MAX_LEFTOVERS 8u

struct kv_client {
	conn_mode_t mode;
	unsigned process; /* the generation that it was created in: see base/fork.h */
	kv_client_options_t options;
	char *device, *key_file;
	bool wants_pieces; /* nobody said from when on values are put in pieces */
	struct kv_secret secret;
	/* What the server knows the client by, over connections. Of this process: a forked child is
	 * another client. */
	uint8_t id[KV_CLIENT_ID_SIZE];
	pid_t id_pid; /* 0: none yet */
	uint64_t session_number;
	bool has_proved; /* in the last greeting: its server may have ended the session before */
	struct target_list targets;
	struct link *link;
	struct link *lost_links; /* that views keep */
	int target;		 /* which of the targets the link goes by */
	uint64_t better_ns; /* try the targets before it again then; CLOCK_NEVER: there is none */
	uint32_t better_wait_ms;
	bool was_connected;
	uint64_t retry_ns; /* do not try to connect again before */
	uint32_t backoff_ms;
	uint64_t instance; /* of the store that locations are of: the present or the last link's */
	/* Of the store that the version of the operation under way came from; 0: that of `instance`
	 * when a call begins. */
	uint64_t version_instance;

	struct call *calls;  /* the window */
	uint32_t window;     /* of the options, and CLIENT_SPARE more */
	struct call **by_id; /* id % id_slots */
	uint32_t id_slots;
	struct leftover leftovers[CLIENT_MAX_LEFTOVERS];
	unsigned leftover_count;
	uint64_t next_order;
	uint64_t deadline_ns; /* of what is under way, for calls that are part of it; 0: none */
	uint64_t progress_until_ns; /* a part of a long value moved: until then the operation that
				     * is under way is not given up, whatever its deadline */
	unsigned first_free;	    /* where to look for one */
	unsigned calls_under_way;   /* not free */
	unsigned changes_under_way; /* of these, changing something */
	unsigned async_under_way;   /* submitted, and their result not polled yet */
	bool has_held;		    /* posted with RMR_MORE */
	int turning;		    /* call_turn() is at work: links stay */
	uint64_t generation;	    /* of links */

	/* Mapped gets. */
	const struct reader *reader; /* NULL: not mapped, or not to be trusted now */
	bool is_silent;		     /* the server is not known to live */
	uint64_t check_ticks;	     /* looked after the connection then */
	uint32_t checks;	     /* how often it did */
	uint32_t counting_asked;     /* `checks` when an addition last asked though it need not */
	uint64_t check_span;	     /* in ticks: for how long that is good */
	uint64_t check_interval;     /* in ticks: the longest check_span */
	uint64_t silence;	     /* KV_SILENCE_MS in ticks */
	uint32_t get_count;
	/* Gets of this client that the server did not see, and has not been told of. */
	uint64_t unseen_hits, unseen_misses;
	uint64_t told;	    /* of these the server was told so far */
	uint64_t report_at; /* tell it when there are so many */
	struct kv_touch touches[KV_MAX_TOUCHES];
	unsigned touch_count;

	struct direct_read direct;
	struct locations locations;
	struct index_picture *picture; /* get_index.c */

	kv_progress_fn progress; /* NULL: nobody wants to know */
	void *progress_context;

	int last_status, error_status; /* of the last call that failed; that the text is about */
	kv_path_t last_path;
	unsigned last_round_trips;
	kv_client_totals_t totals;
	char error[CLIENT_ERROR_SIZE];
	char transport[CLIENT_TRANSPORT_SIZE];
};

/* link_seek_better(), without a call when there is nothing better. */
static inline void client_improve(struct kv_client *client)
{
	if (__builtin_expect(client->better_ns != CLOCK_NEVER, 0))
		link_seek_better(client);
}

/* Whether there is room for one more that is submitted. */
bool call_may_submit(const struct kv_client *client);

/* A free call, set up for this request; the key is copied. KV_AGAIN: the window is full; with
 * may_wait only after the client's timeout. */
int call_begin(struct kv_client *client, unsigned op, const void *key, size_t key_length,
	       bool may_wait, struct call **call);
void call_end(struct kv_client *client, struct call *call);
/* The one that call_begin() takes next, if none is under way. */
static inline struct call *call_first_free(const struct kv_client *client)
{
	return &client->calls[client->first_free];
}

/* Runs a call until it is done, and returns its status. It stays until call_end(). */
int call_run(struct kv_client *client, struct call *call);
/* The same, and copies the reply's header (unless NULL) and ends it. */
int call_finish(struct kv_client *client, struct call *call, struct kv_reply *reply);
/* Starts it, and does not wait; it goes on when the wheel is turned. */
void call_launch(struct kv_client *client, struct call *call);
/* The same for what the caller will poll for. */
void call_submit(struct kv_client *client, struct call *call);
/* For a change that is submitted: gets of the same key that still look by themselves come first. */
void call_wait_for_gets(struct kv_client *client, const struct call *call);
/* Sends a request whose answer nobody needs. False: the window is full. */
bool call_tell(struct kv_client *client, unsigned op, uint64_t argument, bool may_wait);
/* Nobody waits for it any more. */
void call_abandon(struct kv_client *client, struct call *call);
void call_done(struct kv_client *client, struct call *call, int status);

/* For start functions: sends the request as a SEND; as a WRITE_IMM to its place in the landing
 * buffer; posts a READ or an atomic. Each sets the state. */
int call_ask(struct kv_client *client, struct call *call);
int call_land(struct kv_client *client, struct call *call);
int call_post_read(struct kv_client *client, struct call *call, struct rmr_work *work,
		   enum call_state state);
/* The same for a part that tells nothing when it is done; another one follows. */
int call_post_part(struct kv_client *client, struct rmr_work *work);
/* The same for a piece of a direct read, which get_take_piece() is told of. */
int call_post_piece(struct kv_client *client, const struct call *call, struct rmr_work *work);

/* Writes a request, and what was touched as far as it fits, to a slot; *work sends it. The touches
 * are the client's until that is posted. */
static inline void call_write(const struct kv_client *client, struct kv_request *request,
			      const void *key, const void *value, uint8_t *slot,
			      struct rmr_work *work)
{
	const struct link *link = client->link;
	unsigned touches = client->touch_count;

	request->touch_count = (uint16_t)(touches < KV_MAX_TOUCHES ? touches : KV_MAX_TOUCHES);
	if (touches && kv_request_size(request) > link->max_send)
		request->touch_count = 0;
	*work = (struct rmr_work){.op = RMR_OP_SEND, .flags = RMR_UNSIGNALED, .local = slot};
	work->length =
		(size_t)(kv_encode_request(slot, request, key, value, client->touches) - slot);
	if (work->length <= link->max_inline)
		work->flags |= RMR_INLINE;
	else
		work->region = link->slots_region;
}

/* Makes a call that was just begun one whose request, with the link's next id, went out then. */
void call_continue(struct kv_client *client, struct call *call, uint64_t sent_ns,
		   uint64_t sent_ticks);

/* What a reply says; what makes no sense is KV_INTERNAL. */
static inline int call_status(const struct kv_reply *reply)
{
	return reply->status > 0 || reply->status < KV_AGAIN ? KV_INTERNAL : reply->status;
}

/* The server lived after this time. */
static inline void life_note(struct link *link, uint64_t ticks)
{
	if ((int64_t)(ticks - link->alive_ticks) > 0)
		link->alive_ticks = ticks;
}

/* What a reply says of time. The server told its own after the request had left, at sent_ms: then
 * it was no later. And it lived after sent_ticks. Of both times only the one that concerns such a
 * link counts. */
static inline void link_take_time(struct link *link, const struct kv_reply *reply, uint64_t sent_ms,
				  uint64_t sent_ticks)
{
	if (link->is_mapped) {
		life_note(link, sent_ticks);
		return;
	}
	/* A time beyond all reason is not calculated with. */
	if (reply->server_time_ms >= LINK_MAX_TIME_MS)
		return;
	link->clock_set_ms = (int64_t)sent_ms;
	link->clock_ahead_ms = (int64_t)reply->server_time_ms + 1 - link->clock_set_ms;
}

/* A message's slot is given back when there is nothing better to do: while the next answer is
 * waited for, or another message comes. There are some more slots than answers. */
static inline void link_release_spent(struct link *link)
{
	if (link->spent)
		rmr_recv_release(link->queue, link->spent);
	link->spent = NULL;
}

/* Says that the link is lost; returns KV_DISCONNECTED. */
int client_lost(struct kv_client *client);

/*
 * Deadlines. timeout_ms is how long the caller waits without progress. A deadline is that long
 * after the operation began; each part of a long value that is acknowledged, or has come, moves
 * progress_until_ns to that long from now, and the later of the two counts. A progress_until_ns of
 * an operation before does no harm: it lies before the deadline of a call that began later.
 * So that a connection that is lost again and again does not count as progress, a part counts only
 * the first time that it moves.
 */
void client_progressed(struct kv_client *client);

static inline uint64_t client_later_ns(const struct kv_client *client, uint64_t deadline_ns)
{
	return deadline_ns < client->progress_until_ns ? client->progress_until_ns : deadline_ns;
}

/* When a call is given up. Those that the caller polls for have no parts. */
static inline uint64_t call_deadline_ns(const struct kv_client *client, const struct call *call)
{
	return call->is_async ? call->deadline_ns : client_later_ns(client, call->deadline_ns);
}

/* wheel.c: takes what has come in; waits up to timeout_ms for the first. */
void call_turn(struct kv_client *client, int timeout_ms);
/* The same for one that somebody else has taken in. */
void call_handle(struct kv_client *client, const struct rmr_completion *completion);
/* Takes in all that has come, and waits for nothing: before a call is given up. */
void call_take_arrived(struct kv_client *client);
/* The link is lost: decides about all calls, and drops it. */
void calls_after_loss(struct kv_client *client);
/* Not at once again. */
void client_back_off(struct kv_client *client);
/* Starts again what was interrupted, in the order in which it was begun. */
void calls_resume(struct kv_client *client);
/* Ends all calls: the caller disconnects. */
void calls_drop(struct kv_client *client);
/* Connects again if need be, until the deadline. */
int client_reach(struct kv_client *client, uint64_t deadline_ns);
/* The same within the client's timeout; without a look at the clock if it is there. */
static inline int client_need_link(struct kv_client *client)
{
	if (client->link && !client->link->is_lost)
		return KV_OK;
	return client_reach(client, client->deadline_ns
					    ? client_later_ns(client, client->deadline_ns)
					    : clock_deadline_ns(client->options.timeout_ms));
}

/* For operations of several calls: all of them end by one deadline. Returns what to hand to
 * client_end_operation(). */
static inline uint64_t client_begin_operation(struct kv_client *client)
{
	uint64_t outer_ns = client->deadline_ns;

	if (!outer_ns)
		client->deadline_ns = clock_deadline_ns(client->options.timeout_ms);
	return outer_ns;
}

/* The same for what is one call, but may have to connect first. */
static inline uint64_t client_begin_connecting(struct kv_client *client)
{
	if (client->link && !client->link->is_lost)
		return client->deadline_ns;
	return client_begin_operation(client);
}

static inline void client_end_operation(struct kv_client *client, uint64_t outer_ns)
{
	client->deadline_ns = outer_ns;
}

/* Whether another call that changes this key is under way. */
bool call_conflicts(const struct kv_client *client, const struct call *except, uint64_t hash);

/* ------------------------------------------------------------------------------------------
 * The rest
 */

/* Keeps status and text for kv_client_error(), and returns the status. */
__attribute__((cold, format(printf, 3, 4))) int client_fail(struct kv_client *client, int status,
							    const char *format, ...);
/* The same with the message of the fabric. */
int client_fail_fabric(struct kv_client *client, int status);

/* Keeps the status of a call if it failed, and returns it. */
static inline int client_ended(struct kv_client *client, int status)
{
	if (status < 0)
		client->last_status = status;
	return status;
}

/* What is wrong with a key that is not right. */
int client_bad_key(struct kv_client *client, size_t key_length);

static inline bool key_is_right(const void *key, size_t key_length)
{
	return key && key_length >= 1 && key_length <= KV_MAX_KEY;
}

static inline uint64_t client_hash(const void *key, size_t key_length)
{
	return hash64(key, key_length);
}

/* Counts a one-sided read of an item, now and then, for the server to know. */
/* Tells the caller how far a long value has come. KV_CANCELED: he wants no more of it. */
int client_progress(struct kv_client *client, uint64_t done, uint64_t total);
void client_touch(struct kv_client *client, uint64_t offset, uint64_t version);

void client_count(struct kv_client *client, const struct call *call);

/* Whether the server has to be told of gets that it did not see: so few stay untold that its hit
 * ratio is right within half a percent. */
static inline bool client_must_report(const struct kv_client *client)
{
	return client->unseen_hits + client->unseen_misses >= client->report_at;
}
/* Tells it, and does not wait for an answer; with may_wait for room in the window. */
void client_report(struct kv_client *client, bool may_wait);

/* life.c: for a client that is made; for a link that is new. */
void life_init(struct kv_client *client);
void life_begin(struct kv_client *client);
/* Looks after the link. Whether mapped memory can be trusted now: then client->reader is there. */
bool life_check(struct kv_client *client);
/* Whether the server was still there lately, as far as can be told without asking. */
bool life_is_heard(struct kv_client *client);
/* After something that was done in mapped memory, on the link of this generation: KV_OK if the
 * server lived then. Asks, if need be. KV_AGAIN: the link was lost. */
int life_prove(struct kv_client *client, uint64_t generation);

/* After a copy from mapped memory: whether the server lived so short a time ago that the copy
 * counts. If not, client->reader is NULL, and so may client->link be. */
static inline bool life_covers(struct kv_client *client)
{
	/* The compiler reads the clock after all that was copied. How far the processor may be from
	 * that does not matter: life.c says why. */
	__asm__ volatile("" ::: "memory");
	if (__builtin_expect(clock_ticks() - client->check_ticks < client->check_span, 1))
		return true;
	return life_check(client);
}

/* Before a copy: whether mapped memory may be looked at. */
static inline bool life_may_read(struct kv_client *client)
{
	if (__builtin_expect(client->reader != NULL, 1))
		return true;
	return clock_ticks() - client->check_ticks >= client->check_span && life_check(client);
}

/* get_long.c */
/* The item of a reply keeps its place no longer. Does not wait. */
void client_unpin(struct kv_client *client, uint64_t handle);
/* Where the value of a pinned item lies in the arena. False: that makes no sense. */
bool pinned_place(const struct kv_client *client, const struct kv_reply *reply, size_t key_length,
		  uint64_t *offset);

/* get.c */

/* Begins a get; what came of it is in the call. */
int get_begin(struct kv_client *client, const void *key, size_t key_length, void *value,
	      size_t room, bool may_wait, struct call **call);
/* After CALL_TOO_LONG: gets it in pieces, blocking. */
int get_in_pieces(struct kv_client *client, const void *key, size_t key_length, void *value,
		  size_t *length, kv_info_t *info);
/* From mapped memory. KV_AGAIN: the server has to be asked. */
int get_mapped(struct kv_client *client, const void *key, size_t key_length, void *value,
	       size_t *length, kv_info_t *info);
/* Whether the item in the call's memory is what the key names. False: ask. */
bool get_accept(struct kv_client *client, struct call *call, const uint8_t *bytes);

/* A get by a remembered place in one go, on a link that is not mapped. KV_AGAIN: it was not made;
 * or it goes on as *call, if that is not NULL. */
int get_quickly(struct kv_client *client, const void *key, size_t key_length, void *value,
		size_t *length, kv_info_t *info, struct call **call);
/* Makes a call that was just begun one whose READ of this place has been posted. */
void get_continue(struct call *call, const struct location *place);
/* Whether an item that ends at this time, which is not 0, surely has not yet. */
bool get_is_alive(const struct kv_client *client, uint64_t expires_ms);
/* Whether this item, which is complete and had this header, is the one of this key, a value, and
 * surely alive. */
static inline bool get_is_wanted(const struct kv_client *client, const struct item *item,
				 const struct item_header *header, const void *key,
				 size_t key_length)
{
	return item_kind(header->lengths) == ITEM_VALUE &&
	       item_key_length(header->lengths) == key_length &&
	       memcmp(item->key, key, key_length) == 0 &&
	       (!header->expiry || get_is_alive(client, header->expiry));
}
/* Store time, for the time left of what was read without a reply. */
void get_set_time(const struct kv_client *client, struct kv_reply *reply);
/* A piece of a direct read is there, and more follow. */
void get_take_piece(struct kv_client *client, const struct call *call);

/* buffer.c: the buffer into which the server may write, and the one of the server into which we
 * may; made if need be. KV_OK with another link than before: it was lost meanwhile. */
int link_need_buffer(struct kv_client *client);
int link_need_landing(struct kv_client *client);
/* Registers the caller's memory, for long values, where that is cheap. False: it is copied. At most
 * one at a time: for what blocks. */
bool link_register(struct kv_client *client, void *memory, size_t length);
/* The same for a value that the server READs from there. */
bool link_offer(struct kv_client *client, const void *value, size_t length,
		struct rmr_descriptor *descriptor);
/* The caller gets its memory back. If calls that were given up still use it, they go on with a
 * copy; if there can be none, as the memory is too long for one or the device cannot do that, the
 * link is lost. */
void link_unregister(struct kv_client *client);
/* A call that uses the region ends: closes it if it is detached and was the last one. */
void link_leave_region(struct kv_client *client, struct call *call);
/* Parts of both, for a call; waits until they are free. 0 bytes: none. */
int call_take_space(struct kv_client *client, struct call *call, uint64_t buffer, uint64_t landing);

/* get_index.c */
int index_start(struct kv_client *client, struct call *call);
void index_forget(struct kv_client *client);

/* put.c */
int put_begin(struct kv_client *client, const void *key, size_t key_length, const void *value,
	      size_t value_length, const kv_put_options_t *options, bool may_wait,
	      struct call **call);
int put_in_pieces(struct kv_client *client, const void *key, size_t key_length, const void *value,
		  size_t value_length, const kv_put_options_t *options, kv_info_t *info);
/* Longest key and value together that go in one request. */
size_t put_limit(const struct kv_client *client);
/* A put in one go, of what goes in a message, when nothing else is under way. CALL_NOT_MADE, or its
 * status. */
int put_quickly(struct kv_client *client, const void *key, size_t key_length, const void *value,
		size_t value_length, const kv_put_options_t *options, kv_info_t *info);

void info_from_reply(const struct kv_reply *reply, kv_info_t *info);
/* What a reply says of the place of this key's item. */
void client_learn(struct kv_client *client, uint64_t hash, const void *key, size_t key_length,
		  const struct kv_reply *reply);

static inline void call_learn(struct kv_client *client, const struct call *call)
{
	client_learn(client, call->hash, call->key, call->request.key_length, &call->reply);
}

static inline void put_set_options(struct kv_request *request, const kv_put_options_t *options)
{
	if (!options)
		return;
	request->argument = options->ttl_ms;
	request->version = options->version;
	request->flags |= (uint8_t)(options->condition << KV_CONDITION_SHIFT);
	if (options->may_lose_old)
		request->flags |= KV_MAY_LOSE_OLD;
}

/* Where the item is now; if the put failed, nobody knows. */
static inline void put_remember(struct kv_client *client, int status, uint64_t hash,
				const void *key, size_t key_length, const struct kv_reply *reply)
{
	if (status == KV_OK)
		client_learn(client, hash, key, key_length, reply);
	else
		locations_forget(&client->locations, hash);
}

/* Tells of the item that is there now; info: NULL, or the caller's. */
static inline void put_inform(int status, const struct kv_reply *reply, kv_info_t *info)
{
	if (info && (status == KV_OK || status == KV_EXISTS || status == KV_CAS_FAILED))
		info_from_reply(reply, info);
}

#endif
