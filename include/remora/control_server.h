/*
 * The gRPC service of a key-value server: for every language that has gRPC, and for clients that
 * let values be pushed into their memory. It stands above <remora/server.h>, which does not know
 * of it, and works on the same store.
 *
 *	kv_control_server_options_t options = {.address = "127.0.0.1:50051"};
 *	kv_control_server_t *control;
 *
 *	if (kv_control_server_create(server, &options, &control) != KV_OK ||
 *	    kv_control_server_start(control) != KV_OK)
 *		errx(1, "%s", kv_control_server_error());
 *	printf("gRPC at %s\n", kv_control_server_address(control));
 *	...
 *	kv_control_server_stop(control);
 *	kv_control_server_destroy(control);
 *	kv_server_destroy(server);
 *
 * It runs on one thread of its own, beside the server's workers. It is stopped and destroyed before
 * the server is. The service is described in proto/kv_cache.proto.
 *
 * Errors. Calls return KV_OK (0) or a negative status of kv.h; kv_control_server_error() tells in
 * words what happened to the last call of this thread that failed.
 */
#ifndef REMORA_CONTROL_SERVER_H
#define REMORA_CONTROL_SERVER_H

#include <remora/server.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kv_control_server kv_control_server_t;

/* 0, NULL and false in a field mean its default. */
typedef struct kv_control_server_options {
	/* "HOST:PORT", "[V6]:PORT", "PORT" or "HOST"; without a host 127.0.0.1, without a port
	 * 50051; port 0 picks a free one, host "*" is every address. */
	const char *address;

	/* TLS, with HTTP/2 by ALPN: certificate (and its chain) and key, as PEM files; both or
	 * none. Who has no certificate signed by tls_client_ca is turned away, if that is given. */
	const char *tls_cert;
	const char *tls_key;
	const char *tls_client_ca;

	/* If the server has keys, calls that need one are taken only over TLS or from this host:
	 * the key travels with them. True: from everywhere, in a network that is trusted. */
	bool insecure_tokens;

	uint32_t max_connections; /* more are turned away; default 1024 */
	uint32_t max_streams;	  /* calls under way of one connection; default 128 */
	uint32_t max_message;	  /* bytes of one, either way; default 4 MiB */
	uint32_t max_headers;	  /* bytes of one call's; default 64 KiB, at most 128 */
	size_t max_buffered;	  /* messages that are not complete, or not taken yet, of all
				   * connections; default 64 MiB */
	int keepalive_ms;    /* a connection that is silent for so long is asked; default 60000 */
	int stall_ms;	     /* who takes nothing, or says nothing back, for so long is cut off;
			      * default 20000 */
	int stop_timeout_ms; /* how long stop waits for calls under way; default 2000 */

	/* The data plane: clients that registered may have values pushed and pulled. */
	bool no_data_plane;
	uint16_t data_port;    /* tcp and verbs listen there, at the host of `address`; each further
				* device at the next port; default free ones */
	uint64_t inline_limit; /* values that are shorter clients send inside messages; default
				* 64 KiB */
	int client_expiry_ms;  /* a registered client that is not heard of; default 30000 */
} kv_control_server_options_t;

/* Says whether it could be created with these options: limits, files, addresses. Ports are not
 * looked at. */
int kv_control_server_check(const kv_control_server_options_t *options);

/* Puts its default in the place of every 0 that stands for one, but of the address. */
void kv_control_server_defaults(kv_control_server_options_t *options);

/* Checks the options and reads certificate and key; listens nowhere yet. The server may be started
 * or not. KV_INVALID, KV_NO_MEMORY, KV_DENIED (a file that cannot be read); KV_UNSUPPORTED: the
 * library was built without what gRPC needs. */
int kv_control_server_create(kv_server_t *server, const kv_control_server_options_t *options,
			     kv_control_server_t **control);

/* Listens, and serves from now on. KV_BUSY: somebody else has the port. */
int kv_control_server_start(kv_control_server_t *control);

/* Takes no new connections and no new calls, finishes those under way, tells everybody (GOAWAY),
 * and ends the thread. Legal when not started. It can be started again. */
void kv_control_server_stop(kv_control_server_t *control);

/* Stops it if need be. Legal on NULL. */
void kv_control_server_destroy(kv_control_server_t *control);

/* "HOST:PORT" where it listens, with the port that was picked; "" before the start. Valid until the
 * next call of start or destroy. */
const char *kv_control_server_address(const kv_control_server_t *control);

/* Where the data plane listens: "tcp:127.0.0.1:40123", several with blanks between; "": nowhere.
 * Valid as the address is. */
const char *kv_control_server_data_addresses(const kv_control_server_t *control);

/* Reads certificate, key and authorities anew, for connections that come from now on. When it fails
 * the old ones stay. Legal while it runs. */
int kv_control_server_read_certificates(kv_control_server_t *control);

/* Figures, one "name value" a line, allocated; free() frees it. */
int kv_control_server_stats(kv_control_server_t *control, char **text);

/* What happened to the last call of this thread that failed. */
const char *kv_control_server_error(void);

#ifdef __cplusplus
}
#endif

#endif
