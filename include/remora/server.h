/*
 * The key-value server, to be run inside a program of your own. kv-server is one such program.
 *
 *	kv_server_options_t options = {.memory = 1 << 30};
 *	kv_server_t *server;
 *
 *	if (kv_server_create(&options, &server) != KV_OK || kv_server_start(server) != KV_OK)
 *		errx(1, "%s", kv_server_error());
 *	...
 *	kv_server_stop(server);
 *	kv_server_destroy(server);
 *
 * It runs on threads of its own: workers, each of which serves the clients given to it; one that
 * takes new clients in; one that keeps house. The program's threads only start and stop it.
 *
 * Errors. Calls return KV_OK (0) or a negative status of kv.h; kv_server_error() tells in words
 * what happened to the last call of this thread that failed.
 */
#ifndef REMORA_SERVER_H
#define REMORA_SERVER_H

#include <remora/kv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kv_server kv_server_t;

/* 0, NULL and false in a field mean its default. */
typedef struct kv_server_options {
	/* Where to listen: a list such as "shm,tcp,verbs", each with an address of its own if
	 * wanted: "shm:NAME", "tcp://HOST:PORT", "verbs:mlx5_0", "verbs:mlx5_0,socket",
	 * "verbs:mlx5_0://HOST:PORT", "verbs:mlx5_0,socket://HOST:PORT". Default:
	 * all that this machine has; of those that were named, all must work. */
	const char *listen;
	/* The host or IP to listen at. Default: every one if there is a key file or an adapter is
	 * named; else this host alone, 127.0.0.1 and ::1, and no adapter. */
	const char *address;
	int port;	    /* default KV_DEFAULT_PORT; negative: any that is free */
	bool socket_mode;   /* verbs: queue pair numbers over TCP instead of RDMA CM */
	const char *device; /* verbs: this adapter alone, such as "mlx5_0" */
	unsigned adapters;  /* verbs: so many, no more and no less; default: all that work */
	bool any_user;	    /* shm: clients of other users, too */

	size_t memory;	 /* of the store, its index included; default 256 MiB */
	bool huge_pages; /* or ordinary ones, with a warning */
	bool prefault;	 /* touch all memory at start */
	bool reject;	 /* when full: KV_NO_MEMORY, instead of dropping what was not used lately */
	bool zero_freed; /* overwrite memory when it is freed */
	/* How many counters clients can add to by themselves at once; default: one for each 256
	 * bytes of `memory`, 65536 at least (where an adapter registers them, 1048576 at most). For
	 * others clients ask the server, which takes longer. */
	uint32_t counters;
	/* Who adds to counters without asking. An adapter that is atomic with itself alone, as most
	 * are, gets this right only if everybody goes through it: so where there is one, its
	 * clients do, and the server goes through it for all others. True: clients by shm and tcp
	 * do, and those of such adapters ask. */
	bool counters_by_cpu;

	const char *node_id;  /* its name in the figures, of at most 63 letters; default: none */
	unsigned workers;     /* threads; default: half the cores, at least 1 */
	uint32_t max_clients; /* default 4096 */
	uint32_t max_clients_per_peer; /* of one address, or by shm one user; default: any number */
	uint32_t window;      /* requests under way of one client; default 64, at most 1024 */
	uint32_t eager_limit; /* key and value of a request in one message; default 8192 */
	uint32_t
		inline_limit; /* of a value in a reply, if the client takes as much; default 8192 */
	size_t landing_size;  /* buffer for one client's longer puts; default 4 MiB */
	size_t landing_total; /* of all clients; default 1 GiB */
	uint32_t max_pins;    /* views of one client; default 1024 */
	int client_timeout_ms; /* a client that takes no replies is thrown out; default 10000 */
	int stop_timeout_ms;   /* how long stop waits for what is under way; default 2000 */

	/* Files that hold the shared keys; none: every client may do everything. Each line is a key
	 * of at least 16 bytes, at most eight of them; empty lines and those that begin with '#' do
	 * not count. The file should be readable by its owner alone. */
	const char *key_file;	   /* to read and write */
	const char *read_key_file; /* to read */

	/* Told how far kv_server_create() has come with what takes long where memory is large:
	 * touching it, and registering it with adapters. In bytes; called in the thread that
	 * creates, after every few megabytes. False gives up: creating fails with KV_TIMEOUT. */
	bool (*progress)(void *argument, const char *what, uint64_t done, uint64_t total);
	void *progress_argument;
} kv_server_options_t;

/* Says whether a server could be created and started with these options, as far as can be known
 * without taking memory and listening: limits, key files, adapters, addresses. Whether a port is
 * free is not looked at, so that a server that runs does not make its own options wrong. Fails as
 * kv_server_create() would. */
int kv_server_check(const kv_server_options_t *options);

/* Puts its default in the place of every 0 that stands for one. */
void kv_server_defaults(kv_server_options_t *options);

/* Checks the options and takes the memory; listens nowhere yet. options may be NULL. KV_INVALID,
 * KV_NO_MEMORY, KV_DENIED (a key file that cannot be read). */
int kv_server_create(const kv_server_options_t *options, kv_server_t **server);

/* Listens, and serves from now on. A server that was stopped can be started again: it has kept its
 * keys and values.
 *
 * At an address that was named (a port, the name of a shm socket) it takes its first client 120 ms
 * after it began to listen, and returns then: by that time no client of a server that was killed at
 * the same address answers from that one's memory any more. With a port that is picked there is no
 * such wait. */
int kv_server_start(kv_server_t *server);

/* Takes no new clients, finishes requests that have arrived, tells the clients, ends all threads,
 * and gives its addresses back. Legal when not started. */
void kv_server_stop(kv_server_t *server);

/* Stops it if need be. Legal on NULL. */
void kv_server_destroy(kv_server_t *server);

/* The port that was picked; 0 before the start, or when listening by shm alone. */
int kv_server_port(const kv_server_t *server);

/* Reads the files anew, NULL: none. Clients that come from now on must know one of these keys.
 * Clients whose key is in its file no more are sent away with KV_DENIED; the others stay. When it
 * fails the old keys stay. Legal while the server runs, but not beside start and stop. */
int kv_server_read_keys(kv_server_t *server, const char *key_file, const char *read_key_file);

/* Lines "memory: ", "pages: ", "workers: " and "access: " with what is in effect; "pages: " tells
 * also why there are no huge ones, if they were wanted, and what to do. Valid until the next call
 * on this server. */
const char *kv_server_summary(kv_server_t *server);

/* One line for each path: where it listens, or why it does not and what to do about it. Valid until
 * the next call on this server. */
const char *kv_server_paths(kv_server_t *server);

/* Figures, one "name value" a line, allocated; free() frees it. Values are numbers, but for those
 * of `version` and `node_id`. */
int kv_server_stats(kv_server_t *server, char **text);

/* What happened to the last call of this thread that failed. */
const char *kv_server_error(void);

/* Serves until SIGINT or SIGTERM; SIGUSR1 prints statistics to stderr. All options are the default
 * but memory: 2.25 GiB, or half of what the machine has if that is less, so that values of 1 GiB
 * can be stored; and the key file, which the environment variable REMORA_KEY_FILE names, as for
 * clients. Without a key this host alone is served. Returns 0, or 1 on error, which it prints. */
int run_server(void);

#ifdef __cplusplus
}
#endif

#endif
