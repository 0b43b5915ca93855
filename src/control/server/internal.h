/*
 * The server's side of the control plane: gRPC on nghttp2, in one thread. The map:
 *
 *	server.c	create, start, stop, destroy; options
 *	listen.c	the address, the socket, and who is let in
 *	tls.c		certificates; ALPN
 *	loop.c		the thread: waits for descriptors and deadlines, and serves both
 *	deadlines.c	a heap of calls by their deadline
 *	h2.c		a connection: bytes between the socket (or TLS) and nghttp2
 *	h2_session.c	nghttp2's callbacks: headers, data, resets, pings; what floods are
 *	rpc.c		a call: its request put together, its end
 *	rpc_answer.c	its answer: messages, status, compression
 *	scratch.c	memory for unpacked messages
 *	access.c	who may call what: bearer tokens
 *	methods.c	the table of all methods
 *	kv_methods.c	Get, Put, Delete, Cas, Touch, Stats, RegisterClient, Heartbeat
 *	kv_scan.c	Scan
 *	kv_stream.c	GetStream and PutStream
 *	health.c	grpc.health.v1
 *	reflection.c	grpc.reflection.v1 and v1alpha
 *	figures.c	what is counted
 *	data_plane.h	push and pull: fabric links to registered clients (its own files)
 *
 * Thread. Everything but server.c, listen.c and tls.c runs in the loop's thread alone: nothing is
 * locked. The store is used by a worker of its own, as the server's workers do.
 *
 * A call from its first byte to its last:
 *
 *	HEADERS		rpc_create: path, authority, time limit, token     (h2_session.c)
 *	DATA		grpc_reader puts the message together		     (rpc.c)
 *	END_STREAM	the message is unpacked, the method runs
 *	method		rpc_send() any number of times, then rpc_finish(); or rpc_defer(), and
 *			both later
 *	stream closed	rpc_destroy: also after RST_STREAM, the deadline, a lost connection
 *
 * What a peer can make us hold: the number of connections and of calls on each is limited, headers
 * are counted and forgotten, messages (coming and going) share one budget, and who takes nothing
 * for a while is cut off. A connection has a buffer only while its socket takes nothing.
 */
#ifndef CONTROL_SERVER_INTERNAL_H
#define CONTROL_SERVER_INTERNAL_H

#include <nghttp2/nghttp2.h>
#include <openssl/types.h>
#include <protobuf-c/protobuf-c.h>
#include <pthread.h>
#include <remora/control_server.h>
#include <stdatomic.h>

#include "base/list.h"
#include "control/grpc.h"
#include "control/proto/kv_cache.pb-c.h"
#include "control/server/data_plane.h"
#include "server/embed.h"
#include "store/store.h"

#define CONTROL_ADDRESS 256u
#define CONTROL_TEXT	256u /* of a message that explains a status */
#define H2_BUFFER	65536u
#define H2_PEER		64u

struct kv_control_server;
struct h2_conn;
struct rpc;
struct rpc_method;

/* ------------------------------------------------------------------------------------------
 * The loop (loop.c)
 */

/* A descriptor that the loop looks at. Embed it; `ready` gets it back. */
struct control_watch {
	int fd;
	void (*ready)(struct control_watch *watch, uint32_t events); /* EPOLLIN ... */
};

/* Loop's thread, or before it runs. False: errno tells. */
bool control_watch_add(struct kv_control_server *control, struct control_watch *watch,
		       uint32_t events);
bool control_watch_change(struct kv_control_server *control, struct control_watch *watch,
			  uint32_t events);
/* Its function may still be called in this turn; what it is in must live until the next. */
void control_watch_remove(struct kv_control_server *control, struct control_watch *watch);

void *loop_run(void *control);
/* One turn of it: waits so long for something to do, does it, and tells whether there was any. For
 * tests that are the loop themselves. */
bool loop_turn(struct kv_control_server *control, int timeout_ms);
/* Any thread: the loop looks what there is. */
void loop_wake(struct kv_control_server *control);

/* ------------------------------------------------------------------------------------------
 * Deadlines (deadlines.c)
 */

struct deadlines {
	struct rpc **heap; /* the earliest first */
	size_t count, room;
};

/* False: no memory. */
bool deadlines_add(struct deadlines *deadlines, struct rpc *call);
/* Legal if it is not in there. */
void deadlines_remove(struct deadlines *deadlines, struct rpc *call);
/* The first, if its time has come; else NULL. It stays. */
struct rpc *deadlines_passed(const struct deadlines *deadlines, uint64_t now_ns);
/* CLOCK_NEVER: there is none. */
uint64_t deadlines_next_ns(const struct deadlines *deadlines);
void deadlines_fini(struct deadlines *deadlines);

/* ------------------------------------------------------------------------------------------
 * Connections (h2.c, h2_session.c)
 */

enum h2_state {
	H2_HANDSHAKE, /* TLS */
	H2_OPEN,
	H2_LEAVING, /* GOAWAY is sent or queued: no new calls; ends with the last one */
	H2_OVER,    /* closed at the end of the turn */
};

struct h2_conn {
	struct control_watch watch; /* the first */
	struct kv_control_server *control;
	enum h2_state state;
	bool waits_to_write; /* EPOLLOUT is asked for */
	bool has_rest;	     /* TLS has decrypted more than was read */
	bool is_cut_off;     /* LEAVING for what it did: calls are not waited for */
	bool asked;	     /* a keepalive ping is on its way */
	bool is_private;     /* TLS, or of this host: keys may travel by it */
	bool has_key;	     /* a call of it has shown a key */
	unsigned anonymous;  /* calls under way without a key */
	unsigned mores_left; /* this turn: how often its calls may still be asked for more */
	nghttp2_session *session;
	SSL *tls;		 /* NULL: plain */
	struct list link;	 /* control->conns */
	struct list dirty_link;	 /* control->dirty: has something to send */
	struct list over_link;	 /* control->over */
	struct list hungry_link; /* control->hungry: goes on in the next turn */
	struct list calls;
	unsigned call_count;
	unsigned waiting; /* clients of the data plane that it registered, without a link */
	struct grpc_budget budget; /* its share of the server's */
	uint64_t held;		   /* bytes of the store that its streams hold */

	/* What the socket did not take; NULL: it took all. */
	uint8_t *output;
	size_t output_used, output_sent;

	uint64_t opened_ns;
	uint64_t heard_ns;     /* when bytes last came */
	uint64_t moved_ns;     /* when bytes last went, or there was nothing to send */
	uint64_t asked_ns;     /* when the keepalive ping left */
	uint64_t tokens_ns;    /* when ping and reset tokens were last filled up */
	uint32_t ping_tokens;  /* pings that it may still send; see h2_session.c */
	uint32_t reset_tokens; /* streams that it may still reset */
	char peer[H2_PEER];
};

/* Takes over the socket. is_local: the peer is on this host. */
void h2_open(struct kv_control_server *control, int fd, const char *peer, bool is_local);
/* Something is to be sent: at the end of the turn. */
void h2_touch(struct h2_conn *conn);
/* Sends what there is, as much as the socket takes. */
void h2_flush(struct h2_conn *conn);
/* It ends at the end of this turn; `reason` is logged if it is not NULL. */
void h2_end(struct h2_conn *conn, const char *reason);
/* GOAWAY, and the end when the last call has ended. */
void h2_leave(struct h2_conn *conn, uint32_t error_code, const char *why);
/* It has more to do than one turn permits: its next part comes in the next one. */
void h2_hunger(struct h2_conn *conn);
/* The next turn has come. */
void h2_feed(struct h2_conn *conn);
/* Frees it, and its calls. At the end of a turn. */
void h2_destroy(struct h2_conn *conn);
/* What TLS has decrypted already. */
void h2_read_rest(struct h2_conn *conn);
/* Keepalive, handshakes and stalls. Every now and then. */
void h2_check(struct h2_conn *conn, uint64_t now_ns);

/* h2_session.c: nghttp2's session with all callbacks. False: no memory. */
bool h2_session_open(struct h2_conn *conn);
/* For all connections of a server. */
bool h2_session_prepare(struct kv_control_server *control);
void h2_session_forget(struct kv_control_server *control);

/* ------------------------------------------------------------------------------------------
 * Calls (rpc.c)
 */

/* Answers that wait to be taken. */
struct rpc_output {
	uint8_t *bytes;
	size_t room, begin, end;
};

struct rpc {
	struct h2_conn *conn;
	struct kv_control_server *control;
	struct rpc *next_spare;
	struct list link; /* conn->calls */
	int32_t stream_id;
	const struct rpc_method *method; /* NULL: there is none of that name */
	bool is_ended;			 /* the client sends no more */
	bool has_message;		 /* of a method that takes one; it is in the reader */
	bool is_finished;		 /* status is known; trailers follow the output */
	bool has_headers;		 /* response headers are submitted */
	bool is_paused;			 /* nghttp2 waits to be told of more output */
	bool is_hungry;			 /* ... which is made in the next turn */
	bool is_deferred;

	/* Of the request's headers. */
	bool saw_post, saw_type, saw_token, has_timeout;
	bool has_long_headers; /* more than permitted; the rest was not looked at */
	bool accepts_gzip;
	bool may_write;		 /* it has the key for that */
	bool is_anonymous;	 /* it has no key, and the server has some: counted */
	uint64_t key_id;	 /* of its key; 0: none */
	enum grpc_status access; /* what the token is good for */
	enum grpc_status early;	 /* what is wrong with the headers; GRPC_OK: nothing */
	const char *early_text;
	uint32_t header_bytes;
	uint64_t timeout_ns;
	uint64_t deadline_ns;  /* CLOCK_NEVER: none */
	const char *late_text; /* why the deadline is ours; NULL: it is the client's */
	size_t heap_place;     /* in deadlines, plus 1; 0: not there */
	uint64_t heard_ns;     /* when bytes last came, or were taken */
	uint64_t begun_ns;     /* when the method began; 0: it did not */

	struct rpc_output output;
	enum grpc_status status;
	char text[CONTROL_TEXT];
	uint64_t value_length; /* trailer kv-value-length; UINT64_MAX: none */

	/* rpc_defer */
	void (*cancelled)(struct rpc *call, void *context);
	/* rpc_stream: makes more output. */
	void (*more)(struct rpc *call, void *context);
	void (*done)(void *context); /* frees the context of `more` */
	void *context;
	struct list watch_link; /* control->watchers */

	struct grpc_reader reader; /* the last: its bytes are not zeroed */
};

/* Adds a message to the answer. False: it is too long, or memory is short; the call is finished
 * with that status then. */
bool rpc_send(struct rpc *call, const ProtobufCMessage *message);
/* Ends the call with a status and, if it is not GRPC_OK, a text that says why (printf). The call
 * must not be touched afterwards. Legal after rpc_defer() and after rpc_stream(). */
__attribute__((format(printf, 3, 4))) void rpc_finish(struct rpc *call, enum grpc_status status,
						      const char *format, ...);
/* The same for a unary method: sends the response, if it is not NULL, then ends. */
__attribute__((format(printf, 4, 5))) void rpc_reply(struct rpc *call,
						     const ProtobufCMessage *response,
						     enum grpc_status status, const char *format,
						     ...);

/* The method will answer later, in the loop's thread. If the client is gone first, or its deadline
 * has passed, or the server stops, `cancelled` is called, once, and the call is gone when it
 * returns: nobody may touch it after that, nor answer. What was begun for it must be finished, or
 * undone, without it. Not called after rpc_finish(). */
void rpc_defer(struct rpc *call, void (*cancelled)(struct rpc *call, void *context), void *context);

/* The method streams: `more` is called whenever the client has taken what there was; it calls
 * rpc_send() and rpc_finish(), or neither if there is nothing now: rpc_resume() asks again, and
 * rpc_ask_again(), from within `more`, does so in the next turn, when others have had theirs. It
 * should take less than a millisecond. `done` is called with the context when the call ends,
 * however. */
void rpc_stream(struct rpc *call, void (*more)(struct rpc *call, void *context),
		void (*done)(void *context), void *context);
void rpc_resume(struct rpc *call);
void rpc_ask_again(struct rpc *call);

/* The method works on a stream of requests: `done` is called with the context when the call ends,
 * however. */
void rpc_attach(struct rpc *call, void (*done)(void *context), void *context);

/* Ends the call with DEADLINE_EXCEEDED and this text (a constant) if it is not finished after
 * limit_ns. An earlier deadline of the client stays. False: no memory, and the call is finished. */
bool rpc_limit(struct rpc *call, uint64_t limit_ns, const char *text);

/* The trailer kv-value-length. Before rpc_finish(). */
void rpc_tell_length(struct rpc *call, uint64_t length);

/* For h2_session.c. */
struct rpc *rpc_create(struct h2_conn *conn, int32_t stream_id);
void rpc_headers_done(struct rpc *call, bool is_ended);
void rpc_data(struct rpc *call, const uint8_t *bytes, size_t length);
void rpc_ended(struct rpc *call);
/* The stream is closed, or its connection. */
void rpc_destroy(struct rpc *call);
/* The deadline has passed. */
void rpc_expire(struct rpc *call);
/* Ends a call at any time; output that was not taken is dropped. */
void rpc_end_early(struct rpc *call, enum grpc_status status, const char *text);

/* Between rpc.c and rpc_answer.c. */
void rpc_cancel(struct rpc *call);
void rpc_output_free(struct rpc *call);
/* An answer of HTTP, to what is no gRPC. */
void rpc_http_error(struct rpc *call, const char status[4]);

/* ------------------------------------------------------------------------------------------
 * Memory for unpacked messages (scratch.c)
 */

struct scratch {
	ProtobufCAllocator allocator; /* hands out of here; frees nothing */
	uint8_t *bytes;
	size_t used, room;
	struct scratch_block *blocks; /* what did not fit */
	size_t block_bytes, most;
};

bool scratch_init(struct scratch *scratch, size_t most);
void scratch_fini(struct scratch *scratch);
/* All of it is free again. */
void scratch_reset(struct scratch *scratch);

/* ------------------------------------------------------------------------------------------
 * Methods (methods.c)
 */

enum method_need { NEEDS_NOTHING, NEEDS_READ, NEEDS_WRITE };

/* The request is gone when the method returns: what is needed later is copied. */
typedef void (*method_fn)(struct rpc *call, const ProtobufCMessage *request);

struct rpc_method {
	const char *path; /* "/kv_cache.KvCacheService/Get" */
	size_t length;	  /* of that */
	const ProtobufCMessageDescriptor *request;
	method_fn run;
	enum method_need needs;
	bool takes_stream; /* runs for each message; with NULL when the client has ended */
	unsigned op;	   /* how the server's figures count it: kv/protocol.h; 0: not */
};

#define METHODS_MAX 24u

const struct rpc_method *rpc_method_find(const uint8_t *path, size_t length);
unsigned rpc_method_number(const struct rpc_method *method);
extern const struct rpc_method rpc_methods[];
extern const unsigned rpc_method_count;

/* kv_methods.c, kv_scan.c, health.c, reflection.c */
void method_get(struct rpc *call, const ProtobufCMessage *request);
void method_put(struct rpc *call, const ProtobufCMessage *request);
void method_delete(struct rpc *call, const ProtobufCMessage *request);
void method_cas(struct rpc *call, const ProtobufCMessage *request);
void method_touch(struct rpc *call, const ProtobufCMessage *request);
void method_stats(struct rpc *call, const ProtobufCMessage *request);
void method_get_stream(struct rpc *call, const ProtobufCMessage *request);
void method_put_stream(struct rpc *call, const ProtobufCMessage *request);
void method_scan(struct rpc *call, const ProtobufCMessage *request);
void method_register(struct rpc *call, const ProtobufCMessage *request);
void method_heartbeat(struct rpc *call, const ProtobufCMessage *request);
void method_health_check(struct rpc *call, const ProtobufCMessage *request);
void method_health_watch(struct rpc *call, const ProtobufCMessage *request);
void method_reflect(struct rpc *call, const ProtobufCMessage *request);

/* Answers a put on a condition, as CasResponse. PutStreamResponse has the same fields, by the same
 * numbers, and is answered by it, too. */
void control_answer_cas(struct rpc *call, enum store_status status, const struct store_info *info,
			uint64_t request_id);
/* For the data plane's answers, too: what the store says as a status of gRPC and in words. */
enum grpc_status control_store_status(enum store_status status);
const char *control_store_text(enum store_status status);
/* What is left of a time to live, as responses tell it. */
uint64_t control_ttl_ms(const struct kv_control_server *control, const struct store_info *info);
/* ttl_ms if it is not 0, else the seconds, as far as they can be counted. */
uint64_t control_ttl_of(uint64_t ttl_seconds, uint64_t ttl_ms);

/* health.c: the server stops; whoever watches is told. */
void health_tell(struct kv_control_server *control);

/* ------------------------------------------------------------------------------------------
 * Who may (access.c)
 */

/* The keys as they are now, taken anew when they have changed. */
struct access {
	struct server_keys keys;
	unsigned generation, rechecked; /* which they are; for which open calls were looked at */
};

/* Whether calls need a key at all. */
bool access_needs_key(struct kv_control_server *control);
/* `token` NULL: none was sent. What it permits: *may_write. GRPC_OK or GRPC_UNAUTHENTICATED. */
enum grpc_status access_check(struct kv_control_server *control, const uint8_t *token,
			      size_t length, bool *may_write, uint64_t *key_id);
/* Ends calls and data plane clients whose key was removed. Every now and then. */
void access_recheck(struct kv_control_server *control);

/* ------------------------------------------------------------------------------------------
 * TLS (tls.c)
 */

/* *result NULL: it was not asked for. KV status. */
int tls_create(const kv_control_server_options_t *options, SSL_CTX **result);

/* ------------------------------------------------------------------------------------------
 * Figures (figures.c)
 */

/* Written by the loop's thread, read by any. */
struct figures {
	_Atomic uint64_t calls[METHODS_MAX];
	_Atomic uint64_t statuses[GRPC_STATUS_COUNT];
	_Atomic uint64_t connections, connections_total, connections_refused;
	_Atomic uint64_t bytes_in, bytes_out;
	_Atomic uint64_t floods; /* connections cut off for what they sent */
	_Atomic uint64_t stalls; /* ... for what they did not take */
};

static inline void figure_add(_Atomic uint64_t *figure, int64_t amount)
{
	/* Relaxed: one thread writes it, and it is ordered with nothing. */
	atomic_store_explicit(figure,
			      atomic_load_explicit(figure, memory_order_relaxed) + (uint64_t)amount,
			      memory_order_relaxed);
}

/* Lines "name value"; returns their length, as snprintf does. */
size_t figures_write(const struct kv_control_server *control, char *text, size_t room);

/* ------------------------------------------------------------------------------------------
 * The whole
 */

struct kv_control_server {
	struct kv_server *server;
	kv_control_server_options_t options;	  /* without strings */
	char address[CONTROL_ADDRESS];		  /* as wanted */
	char bound[CONTROL_ADDRESS];		  /* as it is; "": not started */
	char data_addresses[3 * CONTROL_ADDRESS]; /* of the data plane, with blanks between */
	char *tls_cert, *tls_key, *tls_client_ca;
	char server_name[64]; /* --node-id, or one that was made up */
	uint32_t server_id;   /* the same as a number */
	bool uses_tls;
	pthread_mutex_t tls_lock; /* of the pointer, which may change while it runs */
	SSL_CTX *tls;

	pthread_t thread;
	bool runs;
	atomic_bool stop;
	bool has_open_parts; /* start has begun: stop has something to do */
	int epoll_fd, wake_fd;
	struct control_watch listener, wake;

	/* The loop's. */
	struct store *store;
	struct store_worker *worker;
	struct data_plane *plane; /* NULL: there is none */
	struct access access;
	struct scratch scratch;
	struct grpc_budget budget;
	uint64_t held;		    /* bytes of the store that streams hold: kv_stream.c */
	struct gzip_packer *packer; /* made when it is first needed */
	uint8_t *packed;	    /* with it: what it packs to */
	struct deadlines deadlines;
	struct list conns, dirty, over, hungry;
	struct list watchers; /* calls of Health.Watch */
	unsigned conn_count;
	bool is_unhealthy, is_stopping, accept_paused;
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *nghttp2_options;
	struct rpc *spare_calls;
	unsigned spare_count;
	uint8_t *input, *output; /* of whichever connection reads or writes: H2_BUFFER bytes */
	uint8_t *value;		 /* for short values: SHORT_VALUE bytes */
	uint64_t next_check_ns, stop_ns;
	struct figures figures;
};

#define SHORT_VALUE 65536u
/* What a GetResponse has beside its value, at most. So every value that Put takes can be got. */
#define GET_MARGIN  64u
#define CALLS_SPARE 1024u /* kept for the next ones */

/* What kv_control_server_error() says. Returns `status`. */
__attribute__((cold, format(printf, 2, 3))) int control_fail(int status, const char *format, ...);
__attribute__((cold)) int control_fail_rmr(enum rmr_status status);

/* What the loop needs: everything that start opens but the listener and the thread. KV status. For
 * start, and for tests that are the loop themselves. */
int control_open(struct kv_control_server *control);
void control_close(struct kv_control_server *control);

/* listen.c: "50051" and such as "HOST:PORT". False: it is none. */
bool control_listen_address(const char *text, char address[CONTROL_ADDRESS]);
int control_listen_open(struct kv_control_server *control);
void control_listen_close(struct kv_control_server *control);
/* If it paused for want of descriptors. */
void control_listen_resume(struct kv_control_server *control);

#endif
