/*
 * The server's own structures, and who may touch them.
 *
 *	acceptor		one thread; takes callers from the listeners, hands them to workers
 *	worker 1 .. n		each has a queue on every path, and the sessions given to it
 *	housekeeper		one thread; the store's ticks, and the cells that come back
 *
 * A session is one client. It belongs to its worker alone from the moment that it is taken out of
 * the worker's mail; the acceptor makes it, and the housekeeper looks at the one atomic in it that
 * concerns it, under the worker's lock. On a request's way nothing is locked and nothing
 * allocated: poll, decode, store, SEND.
 *
 *	listener -> acceptor -> mail of a worker -> session: greeting -> requests -> last words
 *
 * What a session may hold, all of it given back when it ends, in this order: its connection (after
 * that nobody reads or writes for the client any more), reply buffers and the values pinned for
 * pushes, pins, drafts, the landing buffer.
 */
#ifndef SERVER_INTERNAL_H
#define SERVER_INTERNAL_H

#include <pthread.h>
#include <remora/fabric.h>
#include <remora/server.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/spin_gauge.h"
#include "kv/auth.h"
#include "kv/protocol.h"
#include "server/embed.h"
#include "store/store.h"

#define SERVER_MAX_PATHS   16u
#define SERVER_MAX_WORKERS 64u
#define SERVER_MAX_DRAFTS  4u
#define SERVER_MAX_GHOSTS  64u
#define SERVER_ADDRESS	   256u
#define SERVER_REASON	   512u
#define SERVER_SUMMARY	   1024u

/* Of one connection: replies that may be posted and not completed beyond two windows, as not every
 * one is signaled; and operations beyond four, for the pushes among them. */
#define SERVER_SLACK 32u
/* What one client may grant us by shm: its buffer, the next one when that has to grow, and old ones
 * that it has not told us the end of yet. And what all clients may grant. */
#define SERVER_CLIENT_ARENAS 8u
#define SERVER_CLIENT_BYTES  ((uint64_t)128 << 20)
#define SERVER_ALL_ARENAS    65536u
#define SERVER_ALL_BYTES     ((uint64_t)4 << 30)
/* READs of values under way, of each draft. */
#define SERVER_PULLS 4u

/* ------------------------------------------------------------------------------------------
 * Paths: where clients come from (listen.c)
 */

/* PATH_GRPC: only in figures, of the layer above (embed.h). */
enum path_kind { PATH_SHM, PATH_TCP, PATH_VERBS, PATH_OFI, PATH_GRPC, PATH_KINDS };

struct server_path {
	enum path_kind kind;
	char name[64];		      /* of the device: "shm", "verbs:mlx5_0,socket" */
	char address[SERVER_ADDRESS]; /* as given; "": the server's host and port */
	bool named;		      /* must work */
	bool by_socket;		      /* verbs that takes a TCP port */
	struct rmr_device *device;    /* NULL: not to be had */
	const struct rmr_device_info *info;
	struct rmr_region *arena;
	struct rmr_region *cells; /* NULL: its atomics are not good enough */
	struct rmr_listener *listener;
	char reason[SERVER_REASON]; /* why it does not listen */
};

/* ------------------------------------------------------------------------------------------
 * Replies (reply.c)
 */

/* A buffer that a reply is built in and sent from. */
struct reply {
	struct reply *next;
	uint64_t sequence;	   /* of the SEND that it waits for */
	struct store_view view;	   /* a pushed value, pinned until then; .item NULL: none */
	struct rmr_region *region; /* NULL: the stub, for inline sends alone */
	uint8_t *bytes;		   /* aligned to 64 */
	size_t room;
};

#define POOL_CHUNK_REPLIES 256u
#define POOL_MAX_CHUNKS	   32u
/* The last ones are for sessions that have not more than a few. */
#define POOL_RESERVE	2048u
#define POOL_FAIR_SHARE 8u

struct reply_pool {
	struct reply *free;
	unsigned free_count;
	unsigned chunk_count;
	struct reply_chunk {
		uint8_t *bytes;
		struct rmr_region *region;
		struct reply *replies;
	} chunks[POOL_MAX_CHUNKS];
};

/* A worker's queue on one path. */
struct server_queue {
	struct server_path *path;
	struct rmr_queue *queue; /* NULL: the path does not listen */
	struct reply_pool pool;
	struct reply *spare; /* the next reply is built here; NULL: take one */
	struct reply stub;   /* when the pool is exhausted: as much as can be sent inline */
	size_t reply_size;
	size_t max_inline;
	unsigned sessions;
	unsigned quiet;	   /* polls in a row that brought nothing */
	unsigned activity; /* rmr_queue_activity */
};

/* ------------------------------------------------------------------------------------------
 * Workers (worker.c)
 */

/* Written by one thread, read by any: no read-modify-write is needed. */
struct counters {
	_Atomic uint64_t requests[PATH_KINDS][KV_OP_END_OF_REQUESTS];
	_Atomic uint64_t present[PATH_KINDS]; /* sessions now */
	_Atomic uint64_t bytes_in, bytes_out;
	_Atomic uint64_t pushes, pushed_bytes;
	_Atomic uint64_t landed; /* requests that came by the landing buffer */
	/* Gets that clients made by themselves, as they tell. */
	_Atomic uint64_t client_hits, client_misses;
	_Atomic uint64_t again;	  /* hits that the store counted twice for one get */
	_Atomic uint64_t touches; /* samples of gets that clients made by themselves */
	_Atomic uint64_t sessions, refused, violations, timeouts;
	_Atomic uint64_t no_buffer;
	_Atomic uint64_t pins, drafts; /* held now */
};

static inline void counter_add(_Atomic uint64_t *counter, int64_t amount)
{
	/* Relaxed: a figure, ordered with nothing. */
	atomic_store_explicit(
		counter, atomic_load_explicit(counter, memory_order_relaxed) + (uint64_t)amount,
		memory_order_relaxed);
}

/* ------------------------------------------------------------------------------------------
 * How long requests take (times.c)
 */

#define TIMES_OPS      (KV_OP_END_OF_REQUESTS - KV_OP_GET)
#define TIMES_SUB_BITS 3  /* each power of two has eight buckets: 12% wide */
#define TIMES_BITS     36 /* a minute in nanoseconds; what takes longer counts as that */
#define TIMES_BUCKETS  ((TIMES_BITS - TIMES_SUB_BITS + 1) << TIMES_SUB_BITS)
#define TIMES_EVERY    16 /* of each operation, one in so many is timed, and the first one */

/* Written by one worker, read by any thread. */
struct times {
	_Atomic uint64_t buckets[TIMES_OPS][TIMES_BUCKETS];
};

/* Sums of all workers: five to ten seconds ago, and up to five. */
struct times_past {
	pthread_mutex_t lock;
	uint64_t older[TIMES_OPS][TIMES_BUCKETS];
	uint64_t newer[TIMES_OPS][TIMES_BUCKETS];
};

/* Of one operation, lately. */
struct times_summary {
	uint64_t samples, p50_ns, p99_ns, p999_ns;
};

void times_record(struct times *times, unsigned op, uint64_t ns);
/* Housekeeper, every five seconds. */
void times_turn(struct kv_server *server);
/* The workers are gone, and what they had timed. */
void times_forget(struct kv_server *server);
void times_summarize(struct kv_server *server, unsigned op, struct times_summary *summary);

struct worker {
	struct kv_server *server;
	struct store_worker *store;
	struct server_queue queues[SERVER_MAX_PATHS]; /* one for each path, by its number */

	/* This turn's. */
	uint32_t epoch;		 /* of the cells; read before anything is looked up */
	uint64_t now_ms;	 /* store time */
	struct session *touched; /* have something to be flushed */
	uint64_t turn_pushed;	 /* bytes that were pushed in this batch */
	bool is_alone;		 /* the request in hand came alone: its reply leaves at once */
	struct session *over;	 /* to be closed at the end of the batch */
	uint64_t next_check_ns;
	unsigned keys_seen;  /* generation of the keys that the sessions were checked against */
	bool unsettled;	     /* some session waits for something that has a deadline */
	uint64_t spin_ticks; /* polls so long for more before it sleeps; see be_idle */
	uint64_t idle_since, spin_since, mean_gap;
	uint64_t last_look; /* at the clock, while it spins */
	uint64_t gap_ticks; /* SPIN_GAUGE_GAP_US */
	struct spin_gauge gauge;
	bool spins_long; /* all of spin_ticks, this time */

	struct counters counters;
	struct times times;
	uint8_t key[KV_MAX_KEY]; /* the request's, where the client cannot change it */

	pthread_t thread;
	bool runs;
	int wake_fd;
	atomic_bool has_mail;	     /* mail, or stop, or something to look at */
	atomic_bool has_identities;  /* something was changed in the sessions: see identity.c */
	atomic_bool stop;	     /* finish, and end */
	_Atomic uint32_t epoch_seen; /* nothing older is being looked up */
	atomic_uint session_count;   /* with those in the mail */
	pthread_mutex_t lock;	     /* of mail, and of changes in sessions */
	struct list mail;
	struct list sessions;
};

/* Opens queues on all paths that listen. KV status. */
int worker_open(struct worker *worker, struct kv_server *server);
/* Legal on a zeroed one. The thread has ended. */
void worker_close(struct worker *worker);
/* Any thread. */
void worker_wake(struct worker *worker);
/* Hands over a session that was not accepted yet. Acceptor. */
void worker_give(struct worker *worker, struct session *session);
void *worker_run(void *worker);

/* ------------------------------------------------------------------------------------------
 * Sessions (session.c)
 */

enum session_state {
	SESSION_HELLO,	 /* waits for HELLO */
	SESSION_PROOF,	 /* waits for PROOF */
	SESSION_WAITING, /* has proved itself; waits until older ones of its client have ended */
	SESSION_READY,	 /* takes requests */
	SESSION_LEAVING, /* last words are posted; takes nothing any more */
	SESSION_OVER,	 /* closed at the end of the batch */
};

struct pin {
	struct store_view view; /* .item NULL: free */
	uint32_t generation;
};

struct draft {
	struct hash_stream stream;
	struct store_draft draft; /* .item NULL: free */
	struct store_put put;
	uint32_t id;
	uint64_t received;
	/* What the server reads by itself. */
	struct rmr_remote *source; /* the client's memory; NULL: the client sends pieces */
	uint64_t asked;		   /* bytes for which READs are posted */
	uint64_t last_ms;	   /* when something of it came; store time */
	bool is_told;		   /* the client wants to know how much has come */
	uint64_t told_ms;	   /* when it was told */
	bool is_cancelled;	   /* no more is read; ends when the READs under way are done */
};

struct session {
	/* For every request. */
	struct rmr_conn *conn;
	struct worker *worker;
	struct server_queue *queue;
	enum session_state state;
	bool is_touched;
	bool is_client; /* it was welcome, and counts as a client; else as a stranger */
	uint32_t capabilities;
	uint32_t next_id;
	uint32_t limit;	    /* sequence - completed */
	uint64_t sequence;  /* replies posted */
	uint64_t signaled;  /* the last one that will complete */
	uint64_t completed; /* the last one that did */
	struct session *next_touched;
	struct session *next_over;
	uint64_t over_deadline_ns;	    /* to leave our memory; 0: it was not looked at yet */
	struct reply *flying, **flying_end; /* posted, in order */
	uint32_t flying_count;
	size_t max_reply;
	const uint8_t *landing;
	size_t landing_size;
	struct rmr_remote *buffer;

	/* The oldest epoch of whose cells the client may still know some; 0: it was told of none.
	 * Written by the worker, read by the housekeeper. */
	_Atomic uint32_t cells_oldest;

	/* For everything else. */
	struct list link; /* in worker->sessions, or in its mail */
	struct rmr_request *request;
	unsigned path; /* number */
	char peer[64];
	uint64_t key_id;	      /* of the key that it proved to know; 0: none was needed */
	bool writes;		      /* by that key */
	uint8_t proof[KV_PROOF_SIZE]; /* for WELCOME */
	/* Which client it is of (identity.c). */
	uint8_t client_id[KV_CLIENT_ID_SIZE];
	uint64_t number;
	struct list identity; /* in server->identities */
	bool is_entered;      /* it is there */
	atomic_bool is_superseded;
	uint32_t window;
	uint8_t client_nonce[KV_NONCE_SIZE];
	uint8_t server_nonce[KV_NONCE_SIZE];
	uint64_t deadline_ns;	 /* of greeting, and of leaving */
	uint64_t last_words;	 /* their sequence */
	uint64_t stuck_since_ns; /* no reply has completed; 0: not so */
	uint64_t seen_completed;
	uint64_t last_ms; /* when the last request came; store time */
	struct rmr_region
		*cells; /* shm: a region of its own, as closing it is what keeps the client
				   * from the cells, not closing the connection */
	struct rmr_arena *landing_arena;
	struct rmr_region *landing_region;
	unsigned pushes; /* under way */
	struct pin *pins;
	uint32_t pin_capacity, pin_count;
	uint64_t pinned_bytes;
	struct draft drafts[SERVER_MAX_DRAFTS];
};

/* Connections that have not proved themselves: no more are taken until one is welcome or ended.
 * While there are as many, each has less time. */
#define SERVER_MAX_STRANGERS 256u

/* Counts the session among the clients. False: there are too many. */
bool session_admit(struct session *session);

/* Accepts, or turns down and frees. */
void session_open(struct session *session, struct worker *worker);
/* Of one that was not accepted yet. */
void session_refuse(struct session *session, const char *reason);
/* Ends it at the end of this batch, without a word. */
void session_end(struct session *session);
/* Says why, then ends: GOODBYE, or REFUSE during the greeting. */
void session_leave(struct session *session, int status, const char *reason);
/* The client broke the rules. */
void session_violation(struct session *session, const char *reason);
/* A SEND and all before it are done. */
void session_completed(struct session *session, uint64_t sequence);
/* Looks at the deadlines. Returns whether there are any. */
bool session_check(struct session *session, uint64_t now_ns);
/* At the end of a batch. */
void sessions_flush(struct worker *worker);
/* `waits`: also for clients that have not left our memory; else they are tried again next time. */
void sessions_close_over(struct worker *worker, bool waits);

/* Where the next reply is built. NULL: nowhere; the session is ended then. */
struct reply *session_reply(struct session *session);
/* Sends the first `length` bytes of that reply. */
void session_send(struct session *session, struct reply *reply, size_t length);
/* Posts something that goes out at the end of the batch. False: the session ends. */
bool session_post(struct session *session, struct rmr_work *work);

/* greeting.c: a message before WELCOME. */
void greeting_arrived(struct session *session, const void *message, size_t length);
/* To one that has waited: from now on it takes requests. */
void greeting_welcome(struct session *session);

/* identity.c */
enum identity_answer {
	IDENTITY_ALONE, /* no older session of the client is there */
	IDENTITY_WAITS, /* older ones are being ended: identities_look() goes on with it */
	IDENTITY_OLD,	/* a newer one is there */
};

enum identity_answer identity_enter(struct session *session);
/* The connection is closed, and the session is no client any more. */
void identity_leave(struct session *session);
/* Ends the worker's sessions whose client has come back; welcomes those that need not wait now. */
void identities_look(struct worker *worker);

/* keys.c: ends the sessions whose key is gone, if the keys have changed. */
void keys_check_sessions(struct worker *worker);

/* ------------------------------------------------------------------------------------------
 * Replies (reply.c)
 */

RMR_MUST_CHECK enum rmr_status reply_pool_open(struct server_queue *queue);
/* All replies are back. */
void reply_pool_close(struct server_queue *queue);
/* The stub when there is none; NULL if that cannot even hold a header. */
struct reply *reply_take(struct server_queue *queue);
struct reply *reply_stub(struct server_queue *queue);
/* Gives it back, and the value that was pushed with it. */
void reply_give(struct worker *worker, struct server_queue *queue, struct reply *reply);

/* Whether there are so few left that not everybody may have more. */
static inline bool reply_pool_is_low(const struct reply_pool *pool)
{
	return pool->free_count < POOL_RESERVE && pool->chunk_count == POOL_MAX_CHUNKS;
}

/* ------------------------------------------------------------------------------------------
 * Requests (request.c)
 */

/* A request and the reply that is being made to it. */
struct exchange {
	struct session *session;
	struct worker *worker;
	struct store_worker *store;
	const uint8_t *key; /* a copy */
	struct kv_request_view view;
	struct reply *buffer;
	struct kv_reply *reply;
	uint8_t *value; /* behind the header */
	size_t room;	/* there */
	size_t length;	/* used of it */
	bool is_later;	/* the reply is sent when something else has happened */
};

void request_arrived(struct session *session, const void *message, size_t length);
/* In the landing buffer. */
void request_landed(struct session *session, uint32_t immediate);

/* Of a request whose reply was left for later: what to make the reply with, and sending it. False:
 * there is no buffer; the session ends. */
bool exchange_resume(struct exchange *exchange, struct session *session, unsigned op, uint32_t id);
void exchange_send(struct exchange *exchange);

int exchange_status(enum store_status status);
/* Tells where the item lies, and all else that is known of it. */
void exchange_describe(struct exchange *exchange, const struct store_info *info);
/* A failure, and why. */
__attribute__((cold)) void exchange_fail(struct exchange *exchange, int status, const char *text);
/* If that is why the put failed: that there is no room for the value beside the old one. */
void exchange_explain_full(struct exchange *exchange, const struct store_put *put,
			   enum store_status status);
/* Whether the reply has room for `length` bytes; else it becomes KV_BUSY. */
bool exchange_has_room(struct exchange *exchange, size_t length);

typedef void (*exchange_fn)(struct exchange *exchange);

/* operations.c: what the store does. */
void operation_get(struct exchange *exchange);
void operation_put(struct exchange *exchange);
void operation_delete(struct exchange *exchange);
void operation_expire(struct exchange *exchange);
void operation_stat(struct exchange *exchange);
void operation_add(struct exchange *exchange);
void operation_swap(struct exchange *exchange);
void operation_scan(struct exchange *exchange);
void operation_flush(struct exchange *exchange);
void operation_counts(struct exchange *exchange);
void operation_ping(struct exchange *exchange);

/* stats.c */
void operation_stats(struct exchange *exchange);

/* grants.c: what a client is given, or gives. */
void operation_landing(struct exchange *exchange);
void operation_buffer(struct exchange *exchange);
void operation_cells(struct exchange *exchange);
/* The connection is closed. */
void landing_release(struct session *session);

/* pins.c */
void operation_pin(struct exchange *exchange);
void operation_unpin(struct exchange *exchange);
void pins_release(struct session *session);
/* Whether a client by the network holds views that others need, and has been silent for long. */
bool pins_are_overdue(const struct session *session, uint64_t now_ms);

/* drafts.c */
void operation_put_begin(struct exchange *exchange);
void operation_put_piece(struct exchange *exchange);
void operation_put_cancel(struct exchange *exchange);
void operation_put_pull(struct exchange *exchange);
/* Whether a value of it is being read. */
bool drafts_are_pulled(const struct session *session);
/* A READ of a value is done; `number` is its draft's. */
void draft_arrived(struct session *session, uint64_t number);
void drafts_release(struct session *session);
/* Gives up those of which nothing came for so long. Returns whether some are left. */
bool drafts_expire(struct session *session, uint64_t now_ms, uint64_t limit_ms);

static inline enum store_condition request_condition(const struct kv_request *header)
{
	/* The values are the same; 3 is none, and was refused. */
	return (enum store_condition)(header->flags >> KV_CONDITION_SHIFT & 3);
}

/* ------------------------------------------------------------------------------------------
 * The server (server.c, options.c, keys.c, listen.c, acceptor.c, housekeeper.c)
 */

#define IDENTITY_BUCKETS 256u

/* Sessions by their client's id. */
struct identities {
	pthread_mutex_t lock;
	struct list buckets[IDENTITY_BUCKETS];
};

void identities_init(struct identities *identities);
void identities_fini(struct identities *identities);

struct kv_server {
	struct identities identities;
	/* The keys may change while the server runs. */
	pthread_mutex_t keys_lock;
	struct server_keys keys;
	uint64_t last_key_id;
	atomic_uint keys_generation;

	/* Constant after create. The strings are gone: listen_plan() has used them. */
	struct kv_server_options options;
	char address[SERVER_ADDRESS];
	char node_id[64]; /* "": none */
	struct rmr_arena *arena;
	struct rmr_arena *cells_arena;
	struct store *store;
	uint64_t instance;
	uint64_t max_value;
	struct server_path paths[SERVER_MAX_PATHS];
	unsigned path_count;
	bool verbs_wanted; /* one of them must work */
	bool is_guarded;   /* no address, key or adapter was given: serves this host alone */
	struct server_path *counting; /* by whose adapter all change cells; NULL: by the CPU */

	struct worker *workers; /* NULL: not started */
	unsigned worker_count;
	int port;
	uint64_t started_ns;
	uint64_t listening_ns; /* since when all addresses are ours */
	struct counters past;  /* of workers that have ended */
	struct times_past times_past;
	/* Of the layer above, in one thread of its own: embed.h. */
	struct counters above;
	struct times above_times;

	pthread_t acceptor, housekeeper;
	bool acceptor_runs, housekeeper_runs;
	int stop_fd;	  /* eventfd: the acceptor ends */
	int keep_stop_fd; /* and the housekeeper */

	atomic_uint clients;		  /* that were welcome */
	atomic_uint strangers;		  /* connected, and not yet welcome */
	_Atomic uint64_t clients_refused; /* by the acceptor */
	_Atomic size_t landing_used;
	_Atomic uint64_t pinned_bytes;	    /* of all clients */
	_Atomic uint64_t pins_wanted_ms;    /* when a pin was last refused for them; 0: never */
	_Atomic uint64_t landing_wanted_ms; /* when somebody last got none; store time, 0: never */

	/* Cells of counters that are gone: see cells.c. */
	_Atomic uint32_t cells_epoch;
	_Atomic uint64_t epoch_ns; /* when it began */
	bool ticket_is_out;
	uint64_t ticket;
	atomic_bool cells_missed; /* in this epoch some counter got none */
	pthread_mutex_t ghosts_lock;
	unsigned ghost_count;
	struct ghost {
		int process; /* a descriptor that is readable when the client's process is dead */
		uint32_t oldest; /* as a session's cells_oldest */
	} ghosts[SERVER_MAX_GHOSTS];

	char *paths_text; /* of the last kv_server_paths() */
	char summary[SERVER_SUMMARY];
};

/* What kv_server_error() says. Return `status`. */
__attribute__((cold, format(printf, 2, 3))) int server_fail(int status, const char *format, ...);
__attribute__((cold)) int server_fail_rmr(enum rmr_status status);

/* Fills in defaults and checks. Reads the keys. */
int options_take(struct kv_server *server, const struct kv_server_options *options);

/* memory.c: whether this machine has as much. */
int memory_check(const struct kv_server_options *options);
/* Takes the memory, and touches it if that was asked for or is needed anyway. */
int memory_open(struct kv_server *server);
/* Tells the program, if it wants to know. KV_TIMEOUT: it gives up. */
int memory_progress(const struct kv_server *server, const char *what, uint64_t done,
		    uint64_t total);

/* Finds out which paths there are to be, and opens their devices. */
int listen_plan(struct kv_server *server, const struct kv_server_options *options);
/* Decides by what the cells of counters are changed: after listen_plan(), before the store. */
void listen_choose_counting(struct kv_server *server);
/* Whether clients of that path may do so by themselves. */
bool listen_path_counts(const struct kv_server *server, const struct server_path *path);
/* Registers the store's memory with each device. */
int listen_register(struct kv_server *server);
/* Opens listeners; some may fail. */
int listen_start(struct kv_server *server);
/* True if clients may take this server for one that listened at the same address before. */
bool listen_may_succeed(const struct kv_server *server);
/* Whether other hosts can reach it by some path that listens. */
bool listen_is_open(const struct kv_server *server);
void listen_stop(struct kv_server *server);
void listen_close(struct kv_server *server);

/* listen_names.c: turns the list into paths, without opening any. */
int listen_parse(struct kv_server *server, const struct kv_server_options *options);

void *acceptor_run(void *server);
void *housekeeper_run(void *server);

/* cells.c: begins an epoch, or ends one. Housekeeper, every tick. */
void cells_look_after(struct kv_server *server);
/* Of a session whose region of cells was closed, and whose connection will be. */
void cells_part(struct session *session);
/* The server ends. */
void cells_close(struct kv_server *server);

/* Writes part `part`, returns its length; *next is the next part, 0: there is none. */
size_t stats_write(struct kv_server *server, uint64_t part, char *text, size_t room,
		   uint64_t *next);
void stats_add(struct counters *into, const struct counters *from);

#endif
