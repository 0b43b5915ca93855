/*
 * The key-value client: put and get in the memory of a server, near or far.
 *
 *	kv_client_t *client = kv_client_create(CONN_MODE_AUTO);
 *	uint64_t version;
 *	char value[64];
 *	size_t length = sizeof(value);
 *
 *	if (kv_client_connect(client, "cache.example", 12345) != KV_OK)
 *		errx(1, "%s", kv_client_error(client));
 *	kv_client_put(client, "key", 3, "value", 5);
 *	if (kv_client_get(client, "key", 3, value, &length) == KV_OK)
 *		printf("%.*s\n", (int)length, value);
 *	kv_client_destroy(client);
 *
 * Keys have 1 to 4096 bytes, values 0 bytes to the size of the server's memory; both may hold any
 * bytes. Every value has a version, a number that no other value of the server ever had. The
 * versions of a key only grow, also when it was deleted, expired or evicted in between. A server
 * that starts begins at the time of day, so they also grow when a server is restarted, unless the
 * host's clock was set back. A client that finds another server at the same place does not let it
 * compare versions of the one before: cas and delete_version end with KV_CAS_FAILED then.
 *
 * Where it is faster the client reads the server's memory by itself, without the server's doing
 * anything; where it is not, it asks. Either way the answer is the same: operations on a key are
 * linearizable, whoever else works on it by whichever path.
 *
 * Threads. A client belongs to one thread at a time and starts no thread of its own; make as many
 * clients as you like. After fork() the child cannot use the parent's: calls fail with KV_INVALID,
 * and kv_client_destroy() lets go of it without harm to the parent; it may create its own.
 *
 * Deadlines. A call ends when it has waited timeout_ms without progress. Progress is the answer to
 * a request, and of a value that does not travel in one go each piece, of 4 MiB at most, that
 * the server has acknowledged or that has come in; so a value may take as long as it needs, at any
 * speed above a piece in timeout_ms. Pieces that are repeated after a connection was lost are no
 * progress. What is put or got in one go (by default up to 4 MiB, by shm and tcp 256 KiB) has
 * timeout_ms for all of it. The caller's memory is the caller's again when a call returns, also
 * when it was given up; the connection goes on then, and only if more than 64 MiB of the caller's
 * memory were being read or written by tcp it is lost, and made anew.
 *
 * Errors. Calls return KV_OK (0) or a negative status. Outputs are written only where the status
 * says so. kv_client_error() tells in words what happened to the last call that failed. Without a
 * client (NULL), or where an output that must be there is NULL, they return KV_INVALID, and those
 * that return no status do nothing.
 */
#ifndef REMORA_KV_H
#define REMORA_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KV_MAX_KEY	4096u
#define KV_DEFAULT_PORT 12345

typedef enum kv_status {
	KV_OK = 0,
	KV_NOT_FOUND = -1,
	KV_EXISTS = -2,		  /* put-if-absent: the key is there */
	KV_CAS_FAILED = -3,	  /* another version, or another number */
	KV_KEY_TOO_LONG = -4,	  /* or empty */
	KV_VALUE_TOO_LONG = -5,	  /* longer than the server can ever hold */
	KV_NO_MEMORY = -6,	  /* the server is full and may not, or cannot, evict */
	KV_INTERNAL = -7,	  /* should not happen; see the message */
	KV_BUFFER_TOO_SMALL = -8, /* get: *length is what is needed */
	KV_TIMEOUT = -9,	  /* the deadline passed; nothing was changed */
	KV_UNKNOWN = -10,	  /* lost or late: the change may have been made, or not */
	KV_DISCONNECTED = -11,	  /* no connection, and none to be had; nothing was changed */
	KV_DENIED = -12,	  /* wrong key, or not permitted to write */
	KV_BUSY = -13,	       /* the server has too many clients, or this one asks for too much */
	KV_INVALID = -14,      /* an argument makes no sense */
	KV_NOT_A_NUMBER = -15, /* the value cannot be counted with */
	KV_OUT_OF_RANGE = -16, /* the number would become too large or small */
	KV_PROTOCOL = -17,     /* the other end is no server of ours, or of another version */
	KV_UNSUPPORTED = -18,  /* not by this connection */
	KV_AGAIN = -19,	       /* asynchronous: the window is full; poll first */
	KV_CANCELED = -20,     /* by the caller's progress function; nothing was changed */
} kv_status_t;

/* A few words for each status. Never NULL. */
const char *kv_strerror(int status);

typedef struct kv_client kv_client_t;

/* ------------------------------------------------------------------------------------------
 * Connecting
 */

typedef enum conn_mode {
	CONN_MODE_CM,	  /* verbs, by RDMA CM */
	CONN_MODE_SOCKET, /* verbs, by exchanging queue pair numbers over TCP */
	CONN_MODE_AUTO,	  /* the first that works: shared memory on this host, verbs, TCP */
	CONN_MODE_SHM,
	CONN_MODE_TCP,
} conn_mode_t;

typedef enum kv_get_mode {
	KV_GET_AUTO = 0, /* the fastest that is right */
	KV_GET_ASK,	 /* always ask the server */
	KV_GET_INDEX,	 /* READ bucket and item; ask only if in doubt */
} kv_get_mode_t;

/* 0 or NULL in a field means its default. */
typedef struct kv_client_options {
	int timeout_ms;		/* how long a call waits without progress; default 5000. See
				 * "Deadlines" above */
	int connect_timeout_ms; /* default 5000 */
	uint32_t window;	/* requests in flight; default 32, at most what the server grants */
	size_t eager_limit;	/* key and value together, sent in one message; default, and at
				 * most, what the server takes (8192) */
	size_t landing_limit;	/* sent in one go to the landing buffer; default what the server
				 * gives, by shm and tcp 256 KiB: beyond it pieces are faster */
	size_t buffer_size;	/* for large values on their way in; default 4 MiB */
	kv_get_mode_t get_mode;
	uint32_t cache_entries; /* places of items remembered; default 65536, UINT32_MAX: none */
	const char *device;   /* as fabric.h names them, such as "verbs:mlx5_0"; default by mode */
	const char *key_file; /* the shared key; default $REMORA_KEY_FILE, else none */
	bool no_reconnect;    /* a lost connection stays lost */
} kv_client_options_t;

/* NULL: no memory. Nothing is connected yet. */
kv_client_t *kv_client_create(conn_mode_t mode);
kv_client_t *kv_client_create_with(conn_mode_t mode, const kv_client_options_t *options);

/* Connects to a server on a host; port 0 means KV_DEFAULT_PORT. `server` may also be a URL, which
 * then says more than the mode: "shm:NAME", "tcp://HOST[:PORT]", "verbs://HOST[:PORT]",
 * "verbs+socket://HOST[:PORT]"; NULL: this host. */
int kv_client_connect(kv_client_t *client, const char *server, int port);

/* By CONN_MODE_SOCKET, on this adapter; NULL: the first that fits. */
int kv_client_connect_socket(kv_client_t *client, const char *host, int port, const char *device);

/* Ends the connection; the client can connect again. What was submitted and is not done yet ends
 * with KV_DISCONNECTED, or KV_UNKNOWN if it may have changed something: kv_client_poll() tells. */
void kv_client_disconnect(kv_client_t *client);

/* Legal on NULL, and at any time. */
void kv_client_destroy(kv_client_t *client);

/* What happened to the last call that failed, and what to do about it; calls that succeed leave it
 * as it is. Never NULL. */
const char *kv_client_error(const kv_client_t *client);

/* Which transport is in use, and why not the ones before it: "shm", "tcp (shm: ...; verbs: ...)".
 * "" when not connected.
 *
 * By CONN_MODE_AUTO the next transport is tried whatever fails on one, except that the server
 * itself refuses the client (a wrong key, too many clients): it would by any other. Each may take
 * half of the time that is left. A client that had to take a slower one tries the better ones
 * again, at the beginning of a call when nothing is under way: after a second, then after twice the
 * time, up to a minute. Such a call may take 50 ms longer for each of them. */
const char *kv_client_transport(const kv_client_t *client);

/* ------------------------------------------------------------------------------------------
 * Operations
 */

int kv_client_put(kv_client_t *client, const void *key, size_t key_length, const void *value,
		  size_t value_length);

/* *length: the room on the way in, the value's length on the way out. KV_BUFFER_TOO_SMALL:
 * *length is what is needed. Unless it answers KV_OK the buffer's bytes mean nothing. */
int kv_client_get(kv_client_t *client, const void *key, size_t key_length, void *value,
		  size_t *length);

int kv_client_delete(kv_client_t *client, const void *key, size_t key_length);

/* Replaces the value if its version is `expected`. *version becomes the new one; on KV_CAS_FAILED
 * the current one. KV_NOT_FOUND: no such key. version may be NULL. */
int kv_client_cas(kv_client_t *client, const void *key, size_t key_length, uint64_t expected,
		  const void *value, size_t value_length, uint64_t *version);

/* Many at once. statuses[i] is of keys[i]; the call returns KV_OK if all were tried, whatever came
 * of them. lengths of batch_get as of get. statuses may be NULL: then the first failure is
 * returned. */
int kv_client_batch_get(kv_client_t *client, size_t count, const void *const *keys,
			const size_t *key_lengths, void *const *values, size_t *lengths,
			int *statuses);
int kv_client_batch_put(kv_client_t *client, size_t count, const void *const *keys,
			const size_t *key_lengths, const void *const *values, const size_t *lengths,
			int *statuses);

/* What is known of a value beside its bytes. */
typedef struct kv_info {
	uint64_t version;
	uint64_t length;
	uint64_t ttl_ms; /* left; 0: for ever */
} kv_info_t;

typedef enum kv_condition {
	KV_ALWAYS = 0,
	KV_IF_ABSENT,  /* else KV_EXISTS */
	KV_IF_VERSION, /* else KV_CAS_FAILED, or KV_NOT_FOUND */
} kv_condition_t;

typedef struct kv_put_options {
	uint64_t ttl_ms; /* 0: for ever */
	kv_condition_t condition;
	uint64_t version;
	/* The old value stays until the new one is complete. If the memory does not suffice for
	 * both, a server that rejects answers KV_NO_MEMORY. With this set the old value goes first
	 * then; if the put fails after that, the key is gone. Only with KV_ALWAYS. A server that
	 * evicts does so in any case. */
	bool may_lose_old;
} kv_put_options_t;

/* options and info may be NULL. info describes the new value; on KV_EXISTS and KV_CAS_FAILED the
 * current one. */
int kv_client_put_with(kv_client_t *client, const void *key, size_t key_length, const void *value,
		       size_t value_length, const kv_put_options_t *options, kv_info_t *info);

/* As get, and tells version and time to live. */
int kv_client_get_with(kv_client_t *client, const void *key, size_t key_length, void *value,
		       size_t *length, kv_info_t *info);

/* Allocates the value, with a 0 byte behind it that is not counted; kv_free() frees it. info may be
 * NULL. */
int kv_client_get_alloc(kv_client_t *client, const void *key, size_t key_length, void **value,
			size_t *length, kv_info_t *info);
void kv_free(void *value);

/* Values that do not travel in one go (on most paths those of some megabytes) come and go in
 * pieces. Between them fn is called, by the thread that called: `done` of `total` bytes have been
 * sent, or are here. If it returns false the call ends with KV_CANCELED: a put leaves what was
 * there, unless the old value had to go first (may_lose_old above). It must not use the client.
 * NULL, the default: no function is called. */
typedef bool (*kv_progress_fn)(void *context, uint64_t done, uint64_t total);
void kv_client_set_progress(kv_client_t *client, kv_progress_fn fn, void *context);

/* A value in place, without a copy: on shm. It stays as it is until it is released, whatever
 * becomes of the key; the server keeps the memory for as long. KV_UNSUPPORTED elsewhere. */
typedef struct kv_view {
	const void *value;
	size_t length;
	uint64_t version;
	/* The library's. */
	uint64_t handle;
	void *owner;
} kv_view_t;
int kv_client_view(kv_client_t *client, const void *key, size_t key_length, kv_view_t *view);
void kv_client_release(kv_client_t *client, kv_view_t *view);

/* version 0: any. KV_CAS_FAILED: info, which may be NULL, describes the current value. */
int kv_client_delete_version(kv_client_t *client, const void *key, size_t key_length,
			     uint64_t version, kv_info_t *info);

/* A new time to live, 0: for ever. The version stays. */
int kv_client_touch(kv_client_t *client, const void *key, size_t key_length, uint64_t ttl_ms);

/* Version, length and time to live, without the value. */
int kv_client_stat(kv_client_t *client, const void *key, size_t key_length, kv_info_t *info);
/* KV_OK or KV_NOT_FOUND. */
int kv_client_exists(kv_client_t *client, const void *key, size_t key_length);
/* *ttl_ms: what is left, 0: for ever. */
int kv_client_ttl(kv_client_t *client, const void *key, size_t key_length, uint64_t *ttl_ms);

/* Counters: numbers of 64 bits, INT64_MIN to INT64_MAX. A key that is not there counts from 0; a
 * value that is the decimal text of such a number counts on from it. get shows a counter as decimal
 * text. KV_OUT_OF_RANGE: the sum would leave the range; nothing was changed. KV_NOT_A_NUMBER.
 *
 * Counting may change the version, or leave it as it is: do not compare versions of what is counted
 * (cas, update, delete_version), but numbers, by kv_client_counter_cas(). */
int kv_client_incr(kv_client_t *client, const void *key, size_t key_length, int64_t delta,
		   int64_t *sum);
/* The same; *before is what it was. */
int kv_client_fetch_add(kv_client_t *client, const void *key, size_t key_length, int64_t delta,
			int64_t *before);
/* Sets an existing counter to `desired` if it is `expected`. *found is what it was. KV_CAS_FAILED:
 * it is another number, which *found is. Whatever can be counted can be compared. */
int kv_client_counter_cas(kv_client_t *client, const void *key, size_t key_length, int64_t expected,
			  int64_t desired, int64_t *found);

/* An atomic read, change and write: calls fn with the current value (NULL if there is none) until
 * no one else came between. fn sets *value, which must stay valid until the next call of fn or the
 * return of update, and returns KV_OK to write it, or another status to give up with. */
typedef int (*kv_update_fn)(void *context, const void *current, size_t current_length,
			    const void **value, size_t *length);
int kv_client_update(kv_client_t *client, const void *key, size_t key_length, kv_update_fn fn,
		     void *context, kv_info_t *info);

/* Some keys of the server, from *cursor on (0 at first; 0 again when all were seen), about `count`
 * of them. fn is called for each. A key that is there all the time is seen at least once. */
typedef void (*kv_scan_fn)(void *context, const void *key, size_t key_length,
			   const kv_info_t *info);
int kv_client_scan(kv_client_t *client, uint64_t *cursor, size_t count, kv_scan_fn fn,
		   void *context);

/* Removes all keys. */
int kv_client_flush(kv_client_t *client);

/* Asks for nothing; *round_trip_ns may be NULL. */
int kv_client_ping(kv_client_t *client, uint64_t *round_trip_ns);

/* Figures of the server as text, one "name value" a line, allocated; kv_free() frees it. Values are
 * numbers, but for those of `version` and `node_id`. */
int kv_client_stats(kv_client_t *client, char **text);

/* ------------------------------------------------------------------------------------------
 * Many at once, asynchronously
 *
 *	kv_client_submit_get(client, key, key_length, buffer, room, cookie);
 *	...
 *	while ((n = kv_client_poll(client, results, 16, timeout_ms)) > 0)
 *		...
 *
 * Submitted operations are sent together when the caller polls, or flushes, or the window is full;
 * they may be carried out in any order, except that those on one key keep theirs. Keys and values
 * of puts are copied or sent before submit returns; the buffer of a get is the client's until its
 * result is polled.
 */

typedef struct kv_result {
	uint64_t cookie;
	int status;
	size_t length; /* get: of the value */
	uint64_t version;
	int64_t number; /* incr: the sum */
} kv_result_t;

/* KV_AGAIN: the window is full. */
int kv_client_submit_get(kv_client_t *client, const void *key, size_t key_length, void *value,
			 size_t room, uint64_t cookie);
int kv_client_submit_put(kv_client_t *client, const void *key, size_t key_length, const void *value,
			 size_t value_length, const kv_put_options_t *options, uint64_t cookie);
int kv_client_submit_delete(kv_client_t *client, const void *key, size_t key_length,
			    uint64_t cookie);
int kv_client_submit_incr(kv_client_t *client, const void *key, size_t key_length, int64_t delta,
			  uint64_t cookie);
int kv_client_submit_flush(kv_client_t *client);

/* Up to max results; waits for the first up to timeout_ms (0: not at all, negative: the client's
 * timeout). Returns how many; 0 also when nothing is under way. */
int kv_client_poll(kv_client_t *client, kv_result_t *results, int max, int timeout_ms);

/* ------------------------------------------------------------------------------------------
 * How it went
 */

typedef enum kv_path {
	KV_PATH_NONE = 0,
	KV_PATH_MAPPED,	    /* get: from mapped memory, no round trip */
	KV_PATH_LOCATION,   /* get: READ at a remembered place; a long one's header twice */
	KV_PATH_INDEX,	    /* get: READ of buckets and item */
	KV_PATH_INLINE,	    /* the server answered, with the value if there is one in the reply */
	KV_PATH_PUSH,	    /* get: the server wrote the value into our buffer, then replied */
	KV_PATH_EAGER,	    /* put: in one message */
	KV_PATH_LANDING,    /* put: WRITE_IMM into the landing buffer */
	KV_PATH_RENDEZVOUS, /* in pieces */
	KV_PATH_ATOMIC,	    /* counter: by an atomic of the adapter */
	KV_PATH_COUNT,
} kv_path_t;

const char *kv_path_name(kv_path_t path);

typedef struct kv_client_totals {
	uint64_t operations[KV_PATH_COUNT]; /* by the path that answered */
	uint64_t round_trips;
	uint64_t stale_locations; /* remembered places that were not true any more */
	uint64_t torn_reads;	  /* READs that had to be repeated, or asked for */
	uint64_t reconnects;
} kv_client_totals_t;

/* Of the last operation that was not asynchronous. */
kv_path_t kv_client_last_path(const kv_client_t *client);
unsigned kv_client_last_round_trips(const kv_client_t *client);
void kv_client_get_totals(const kv_client_t *client, kv_client_totals_t *totals);

/* ------------------------------------------------------------------------------------------
 * The five-call store: strings, blocking, 0 on success and 1 on error
 */

/* server: a host, host:port, or a URL as above; NULL: this machine. */
int kv_open(char *server, void **handle);
int kv_set(void *handle, const char *key, const char *value);
/* A missing key: 1, and *value is NULL. */
int kv_get(void *handle, const char *key, char **value);
void kv_release(char *value);
int kv_close(void *handle);

/* An example client: sets, gets and misses keys by the five calls, short values and a long one, and
 * prints what it does. The keys are its own, and gone afterwards. servername as for kv_open().
 * 0: all went as it should; 1: something did not, and it is printed. */
int run_client(char *servername);

#ifdef __cplusplus
}
#endif

#endif
