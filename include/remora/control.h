/*
 * The gRPC client: the same keys and values as <remora/kv.h>, over the service that
 * proto/kv_cache.proto describes. For networks where HTTP/2 gets through and nothing else does, for
 * servers behind a proxy, and for those who want calls by gRPC and values by RDMA.
 *
 *	kv_control_options_t options = {.buffer_size = 64 << 20};
 *	kv_control_t *control;
 *	char value[64];
 *	size_t length = sizeof(value);
 *
 *	if (kv_control_connect("http://cache.example:50051", &options, &control) != KV_OK)
 *		errx(1, "%s", kv_control_error(NULL));
 *	kv_control_put(control, "key", 3, "value", 5);
 *	if (kv_control_get(control, "key", 3, value, &length) == KV_OK)
 *		printf("%.*s\n", (int)length, value);
 *	kv_control_close(control);
 *
 * Two ways of a value. Short ones travel inside the messages. For others the client registers with
 * the server, connects a second way to it, the data plane (shared memory on this host, else verbs,
 * else TCP), and tells it of a receive buffer. A get names a place in there, the server WRITEs the
 * value to it, and then answers; of a put the server READs the value. From there to the caller's
 * memory it is copied, unless that is memory of kv_control_alloc(): values travel to and from such
 * memory directly. Without a data plane all values travel inside messages: those that are longer
 * than the server's message limit (4 MiB, unless it was changed) in chunks, by GetStream and
 * PutStream.
 *
 * Heartbeats. The server forgets a registered client that it does not hear of for a while (30 s, if
 * it was not changed). Calls keep the registration up by themselves. A program that makes none for
 * longer calls kv_control_heartbeat() every ten seconds or so; one that does not loses nothing: the
 * next call that needs it registers anew, which takes some milliseconds.
 *
 * Threads. A client belongs to one thread at a time and starts no thread of its own (the TCP
 * transport has its helper, as with kv.h). After fork() the child must not use the parent's.
 *
 * Errors. Calls return KV_OK (0) or a negative status of kv.h. Outputs are written only where the
 * status says so. A lost connection is made again by the next call; calls that change nothing are
 * then made again, others end with KV_UNKNOWN if the server may have carried them out.
 */
#ifndef REMORA_CONTROL_H
#define REMORA_CONTROL_H

#include <remora/kv.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KV_CONTROL_PORT 50051

typedef struct kv_control kv_control_t;

/* 0 or NULL in a field means its default. */
typedef struct kv_control_options {
	int timeout_ms;		/* of each call; of a value that travels in chunks: how long it may
				 * stand still; default 5000 */
	int connect_timeout_ms; /* default 5000 */
	int spin_us;		/* wait awake at most so long; default 400, negative: never */

	/* The data plane. */
	bool no_data_plane;    /* all values inside messages */
	size_t buffer_size;    /* receive buffer; default 16 MiB */
	uint64_t inline_limit; /* values shorter than this inside messages; default what the
				* server suggests (64 KiB) */
	uint32_t client_id;    /* its number when it registers; default a random one */
	const char *devices;   /* as fabric.h names them, with commas: "shm", "tcp,tcp",
				* "verbs:mlx5_0,verbs:mlx5_1"; the kinds are tried in the order
				* shm, verbs, tcp. Default all that there are */

	/* Who we are, and who the server is. */
	const char *key_file;  /* the shared key; default $REMORA_KEY_FILE, else none */
	const char *ca_file;   /* https: who may have signed its certificate, as PEM; default
				* those whom the system trusts */
	const char *cert_file; /* https: our own certificate, as PEM, and its key */
	const char *cert_key_file;
	bool insecure; /* https: do not check the server's certificate; http: send the key to other
			* hosts, though it can be read on its way */

	bool no_reconnect; /* a lost connection stays lost */
} kv_control_options_t;

/* Connects to "http://HOST[:PORT]" or "https://HOST[:PORT]"; without a port 50051. That there is no
 * data plane is no error: kv_control_transport() tells. KV_INVALID, KV_DISCONNECTED, KV_TIMEOUT,
 * KV_DENIED (a wrong key, or a certificate that is not right), KV_PROTOCOL (no server of HTTP/2),
 * KV_NO_MEMORY; KV_UNSUPPORTED: the library was built without what gRPC needs. */
int kv_control_connect(const char *url, const kv_control_options_t *options,
		       kv_control_t **control);

/* Legal on NULL, and at any time. */
void kv_control_close(kv_control_t *control);

/* What happened to the last call that failed, and what to do about it. NULL: of this thread's last
 * kv_control_connect(). */
const char *kv_control_error(const kv_control_t *control);

/* How values travel: "shm", "tcp (shm: ...)", "inline (shm: ...; tcp: ...)". */
const char *kv_control_transport(const kv_control_t *control);

/* ------------------------------------------------------------------------------------------
 * Memory that values travel to and from directly
 */

/* NULL: there is none. Beyond the receive buffer it is registered for itself, at most 15 pieces at
 * a time. Stays valid, also while the connection is lost. */
void *kv_control_alloc(kv_control_t *control, size_t size);
/* Legal on NULL. */
void kv_control_free(kv_control_t *control, void *memory);

/* ------------------------------------------------------------------------------------------
 * Operations, as those of kv.h
 */

/* *length: the room on the way in, the value's length on the way out. KV_BUFFER_TOO_SMALL: *length
 * is what is needed. Unless it answers KV_OK the buffer's bytes mean nothing. */
int kv_control_get(kv_control_t *control, const void *key, size_t key_length, void *value,
		   size_t *length);
/* And tells version and time to live. */
int kv_control_get_with(kv_control_t *control, const void *key, size_t key_length, void *value,
			size_t *length, kv_info_t *info);
/* Allocates the value, with a 0 byte behind it that is not counted; kv_free() frees it. info may be
 * NULL. */
int kv_control_get_alloc(kv_control_t *control, const void *key, size_t key_length, void **value,
			 size_t *length, kv_info_t *info);
/* Version, length and time to live. Without a data plane a value of up to one message travels, too.
 */
int kv_control_stat(kv_control_t *control, const void *key, size_t key_length, kv_info_t *info);

int kv_control_put(kv_control_t *control, const void *key, size_t key_length, const void *value,
		   size_t value_length);
/* options and info may be NULL; of info the version and the length are known. On KV_EXISTS and
 * KV_CAS_FAILED info has the current version. */
int kv_control_put_with(kv_control_t *control, const void *key, size_t key_length,
			const void *value, size_t value_length, const kv_put_options_t *options,
			kv_info_t *info);
/* Replaces the value if its version is `expected`. *version becomes the new one; on KV_CAS_FAILED
 * the current one. KV_NOT_FOUND: no such key. version may be NULL. */
int kv_control_cas(kv_control_t *control, const void *key, size_t key_length, uint64_t expected,
		   const void *value, size_t value_length, uint64_t *version);

/* KV_NOT_FOUND: it was not there. */
int kv_control_delete(kv_control_t *control, const void *key, size_t key_length);
/* version 0: any. Another is KV_CAS_FAILED. */
int kv_control_delete_version(kv_control_t *control, const void *key, size_t key_length,
			      uint64_t version);
/* A new time to live, 0: for ever. The version stays. */
int kv_control_touch(kv_control_t *control, const void *key, size_t key_length, uint64_t ttl_ms);

/* Some keys of the server, about `count`, from *cursor on (0 at first; 0 again when all were seen),
 * which begin with `prefix` (NULL: all). */
int kv_control_scan(kv_control_t *control, const void *prefix, size_t prefix_length,
		    uint64_t *cursor, size_t count, kv_scan_fn fn, void *context);

/* Figures of the server as text, one "name value" a line, allocated; kv_free() frees it. */
int kv_control_stats(kv_control_t *control, char **text);

/* A ping of HTTP/2; *round_trip_ns may be NULL. */
int kv_control_ping(kv_control_t *control, uint64_t *round_trip_ns);

/* Tells the server that we are here, and registers anew if it has forgotten us. KV_OK also if there
 * is no data plane to keep up. */
int kv_control_heartbeat(kv_control_t *control);

/* Which way the value of the last get or put took: KV_PATH_INLINE, KV_PATH_PUSH (get), or
 * KV_PATH_RENDEZVOUS (put: the server READ it). */
kv_path_t kv_control_last_path(const kv_control_t *control);

#ifdef __cplusplus
}
#endif

#endif
