/*
 * What the layer above may use of a server besides its public functions: the store, its memory, and
 * who may do what. Everything is constant while the server exists, but for the keys.
 */
#ifndef SERVER_EMBED_H
#define SERVER_EMBED_H

#include <remora/fabric.h>
#include <remora/server.h>

#include "kv/auth.h"
#include "store/store.h"

/* Who wants to work on it opens a store_worker of its own, and closes it before the server is
 * destroyed. */
struct store *server_store(const struct kv_server *server);
/* The memory that all values lie in: to be registered with devices. Peers may only read it. */
struct rmr_arena *server_arena(const struct kv_server *server);
/* The longest value that could ever be there. */
uint64_t server_max_value(const struct kv_server *server);
/* "": none was given. */
const char *server_node_id(const struct kv_server *server);
/* A random number, of this server and no other. */
uint64_t server_instance(const struct kv_server *server);
/* The host of its options, "*": every one. */
const char *server_address(const struct kv_server *server);
/* shm: clients of other users, too. */
bool server_takes_any_user(const struct kv_server *server);

/* The devices that it has opened: "shm", "tcp", "verbs:mlx5_0". NULL: there are no more. */
const char *server_device_name(const struct kv_server *server, unsigned number);

struct server_keys {
	struct kv_keyring write; /* to read and write; none: every client may */
	struct kv_keyring read;	 /* to read */
};

/* What the keys are now. Any thread. Wipe the copy. */
void keys_copy(struct kv_server *server, struct server_keys *keys);
void keys_wipe(struct server_keys *keys);
/* Whether a client that sends this token (NULL: none) is let in, whether it may write, and the id
 * of its key (0: no key is needed). Takes as long whatever the token is. */
bool keys_permit(const struct server_keys *keys, const uint8_t *token, size_t length,
		 bool *may_write, uint64_t *key_id);
/* Whether a key with this id still lets clients in. */
bool keys_have(const struct server_keys *keys, uint64_t key_id);
/* Another number each time that the keys have changed. Any thread. */
unsigned server_keys_generation(const struct kv_server *server);

/* Figures of the layer above, which count with the server's own, as of path "grpc". One thread
 * calls these. */

/* A request was carried out, in so many nanoseconds. `op` is one of kv/protocol.h. */
void server_count_request(struct kv_server *server, unsigned op, uint64_t ns);
/* A get has looked its key up once more: the store has counted two hits. */
void server_count_again(struct kv_server *server);
void server_count_bytes(struct kv_server *server, int64_t in, int64_t out);
/* Connections that came, or went. */
void server_count_clients(struct kv_server *server, int64_t change);

#endif
