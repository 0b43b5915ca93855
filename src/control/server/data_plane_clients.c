/*
 * Registered clients: their names and tokens, their links, and the memory they have told us of.
 * The control server's loop runs it. See data_plane_internal.h for the life of a client.
 *
 * Who may. A registration is made by a call, whose sender has shown his key if the server has one.
 * The token in its answer is what proves that a link is of the same client, once; and the key that
 * a buffer gets, over that link, is what proves that a location is. Both are random, and compared
 * without telling by the time how far they were right.
 */
#include <assert.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "control/server/data_plane_internal.h"

/* Room for every piece of every transfer, and every letter. */
#define LINK_DEPTH (PLANE_CLIENT_TRANSFERS * PLANE_WINDOW + PLANE_MAX_BUFFERS * PLANE_LETTERS)

_Static_assert(LINK_DEPTH <= RMR_LINK_DEPTH_MAX, "one link can have them all under way");

/* ------------------------------------------------------------------------------------------
 * The table
 */

bool plane_clients_open(struct data_plane *plane)
{
	plane->all_clients = calloc(PLANE_MAX_CLIENTS, sizeof(*plane->all_clients));
	if (!plane->all_clients)
		return false;
	list_init(&plane->free_clients);
	for (unsigned i = 0; i < PLANE_BUCKETS; i++)
		list_init(&plane->buckets[i]);
	for (unsigned i = 0; i < PLANE_MAX_CLIENTS; i++) {
		struct plane_client *client = &plane->all_clients[i];

		list_init(&client->link);
		list_init(&client->hash_link);
		list_init(&client->transfers);
		list_add_tail(&plane->free_clients, &client->link);
	}
	return true;
}

static struct list *bucket_of(struct data_plane *plane, uint32_t id)
{
	return &plane->buckets[hash64(&id, sizeof(id)) % PLANE_BUCKETS];
}

struct plane_client *plane_client_find(struct data_plane *plane, uint32_t id)
{
	struct plane_client *found = NULL;

	list_for_each (at, bucket_of(plane, id)) {
		struct plane_client *client = list_entry(at, struct plane_client, hash_link);

		if (client->id == id && (!found || client->state == PLANE_LINKED))
			found = client;
	}
	return found;
}

/* NULL: there are too many. Its token is for the caller to fill in. */
static struct plane_client *client_create(struct data_plane *plane, uint32_t id,
					  struct h2_conn *conn)
{
	struct plane_client *client;

	if (list_is_empty(&plane->free_clients))
		return NULL;
	client = list_first_entry(&plane->free_clients, struct plane_client, link);
	list_remove(&client->link);
	client->state = PLANE_WAITING;
	client->heard_ns = clock_now_ns();
	client->posted = 0;
	client->conn = conn;
	conn->waiting++;
	client->id = id;
	list_add_tail(&plane->clients, &client->link);
	list_add(bucket_of(plane, id), &client->hash_link);
	figure_add(&plane->figures.clients, 1);
	figure_add(&plane->figures.registered, 1);
	return client;
}

/* ------------------------------------------------------------------------------------------
 * The end
 */

static struct data_plane *plane_of(const struct plane_client *client)
{
	return client->kind->plane;
}

/* Its link has come, or never will. */
static void stop_waiting(struct plane_client *client)
{
	if (client->conn)
		client->conn->waiting--;
	client->conn = NULL;
}

static void client_end(struct data_plane *plane, struct plane_client *client, const char *why)
{
	if (client->state == PLANE_ENDING)
		return;
	if (why)
		log_warn_limited("client %u of the data plane: %s", client->id, why);
	client->state = PLANE_ENDING;
	stop_waiting(client);
	list_remove(&client->hash_link);
	list_remove(&client->link);
	list_add_tail(&plane->ending, &client->link);
}

void plane_client_end(struct plane_client *client, const char *why)
{
	client_end(plane_of(client), client, why);
}

static void client_destroy(struct data_plane *plane, struct plane_client *client)
{
	if (client->rmr_link) {
		/* Ends all READs and WRITEs: what they used can be given back after that. */
		rmr_link_close(client->rmr_link);
		client->kind->links--;
		figure_add(&plane->figures.links, -1);
	}
	list_for_each_safe (at, &client->transfers)
		plane_transfer_drop(plane, list_entry(at, struct plane_transfer, link));
	for (unsigned i = 0; i < PLANE_MAX_BUFFERS; i++)
		figure_add(&plane->figures.buffers, client->buffers[i].remote ? -1 : 0);
	assert(!client->transfer_count);
	memset(client->buffers, 0, sizeof(client->buffers));
	OPENSSL_cleanse(client->token, sizeof(client->token));
	client->rmr_link = NULL;
	client->kind = NULL;
	client->state = PLANE_FREE;
	list_remove(&client->link);
	/* Behind the others: its letters may still be on their way for a moment. */
	list_add_tail(&plane->free_clients, &client->link);
	figure_add(&plane->figures.clients, -1);
}

void plane_reap(struct data_plane *plane)
{
	while (!list_is_empty(&plane->ending))
		client_destroy(plane, list_first_entry(&plane->ending, struct plane_client, link));
}

void plane_clients_close(struct data_plane *plane)
{
	list_for_each_safe (at, &plane->clients)
		client_end(plane, list_entry(at, struct plane_client, link), NULL);
	plane_reap(plane);
}

void data_plane_forget(struct data_plane *plane, struct h2_conn *conn)
{
	if (!conn->waiting)
		return;
	list_for_each_safe (at, &plane->clients) {
		struct plane_client *client = list_entry(at, struct plane_client, link);

		if (client->conn == conn)
			client_end(plane, client, NULL);
	}
	plane_reap(plane);
}

void data_plane_revoke(struct data_plane *plane, const struct server_keys *keys)
{
	list_for_each_safe (at, &plane->clients) {
		struct plane_client *client = list_entry(at, struct plane_client, link);

		if (!keys_have(keys, client->key_id))
			client_end(plane, client, "its key was removed; sent away");
	}
	plane_reap(plane);
}

/* A long transfer completes late, but its parts go on. */
static bool comes_on(struct plane_client *client)
{
	struct rmr_link_info info;
	uint64_t posted = 0;
	bool has_changed;

	rmr_link_get_info(client->rmr_link, &info);
	for (int i = 0; i < info.connections; i++)
		posted += info.connection[i].bytes;
	has_changed = posted != client->posted;
	client->posted = posted;
	return has_changed;
}

/* The client's memory cannot be reached: its program is stopped, or its host. */
static bool stands_still(struct plane_client *client, uint64_t now_ns, uint64_t limit_ns)
{
	if (list_is_empty(&client->transfers))
		return false;
	if (comes_on(client)) {
		list_for_each (at, &client->transfers)
			list_entry(at, struct plane_transfer, link)->moved_ns = now_ns;
		client->heard_ns = now_ns;
		return false;
	}
	list_for_each (at, &client->transfers) {
		if (now_ns > list_entry(at, struct plane_transfer, link)->moved_ns + limit_ns)
			return true;
	}
	return false;
}

void plane_clients_check(struct data_plane *plane, uint64_t now_ns)
{
	const kv_control_server_options_t *options = &plane->control->options;
	uint64_t expiry_ns = (uint64_t)options->client_expiry_ms * 1000000u;
	uint64_t stall_ns = (uint64_t)options->stall_ms * 1000000u;

	list_for_each_safe (at, &plane->clients) {
		struct plane_client *client = list_entry(at, struct plane_client, link);

		if (stands_still(client, now_ns, stall_ns)) {
			figure_add(&plane->figures.expired, 1);
			client_end(plane, client, "its memory cannot be reached; thrown out");
		} else if (now_ns > client->heard_ns + expiry_ns) {
			log_info("client %u of the data plane: not heard of for %d ms", client->id,
				 options->client_expiry_ms);
			figure_add(&plane->figures.expired, 1);
			client_end(plane, client, NULL);
		}
	}
}

/* ------------------------------------------------------------------------------------------
 * Links
 */

/* The client that waits for a link with this token. */
static struct plane_client *find_token(struct data_plane *plane, const void *token, size_t length)
{
	struct plane_client *found = NULL;

	if (length != PLANE_TOKEN_SIZE)
		return NULL;
	list_for_each (at, &plane->clients) {
		struct plane_client *client = list_entry(at, struct plane_client, link);

		if (client->state == PLANE_WAITING &&
		    CRYPTO_memcmp(client->token, token, PLANE_TOKEN_SIZE) == 0)
			found = client;
	}
	return found;
}

void plane_link_arrived(struct plane_kind *kind, struct rmr_link_request *request)
{
	struct data_plane *plane = kind->plane;
	static const struct rmr_grant_limits grants = {.arenas = PLANE_MAX_BUFFERS,
						       .bytes = PLANE_CLIENT_BYTES};
	struct rmr_link_options options = {.depth = LINK_DEPTH, .grants = &grants};
	size_t length;
	const void *token = rmr_link_request_private(request, &length);
	struct plane_client *client = find_token(plane, token, length), *found;

	if (!client) {
		log_warn_limited("%s: a link without a token of RegisterClient",
				 rmr_link_request_peer(request));
		figure_add(&plane->figures.refused, 1);
		rmr_link_reject(request, "not the token of a registered client, or used already");
		return;
	}
	found = plane_client_find(plane, client->id);
	if (found && found->state == PLANE_LINKED) {
		figure_add(&plane->figures.refused, 1);
		rmr_link_reject(request, "another client with this client_id has a link");
		client_end(plane, client, NULL);
		return;
	}
	options.user = client;
	if (rmr_link_accept(request, &options, &client->rmr_link) != RMR_OK) {
		log_debug("client %u: %s", client->id, error_chain());
		return;
	}
	stop_waiting(client);
	client->state = PLANE_LINKED;
	client->kind = kind;
	client->heard_ns = clock_now_ns();
	kind->links++;
	figure_add(&plane->figures.links, 1);
	log_debug("client %u is linked by %s", client->id, kind->name);
}

/* ------------------------------------------------------------------------------------------
 * Buffers
 */

/* Each buffer has a place for its key and one for its end: a client that follows the rules gets
 * each once. One that does not spoils its own letters. */
static void send_letter(struct plane_client *client, unsigned id, enum plane_op op)
{
	struct data_plane *plane = plane_of(client);
	const struct plane_buffer *buffer = &client->buffers[id];
	size_t number =
		((size_t)(client - plane->all_clients) * PLANE_MAX_BUFFERS + id) * PLANE_LETTERS +
		(op == PLANE_BUFFER_GONE);
	uint8_t *place = (uint8_t *)rmr_arena_base(plane->letters) + number * PLANE_SHORT;
	struct plane_message message = {
		.op = op,
		.id = id,
		.ptr = buffer->ptr,
		.length = buffer->length,
		.rkey = op == PLANE_BUFFER_KEY ? buffer->rkey : 0,
	};
	struct rmr_link_work work = {
		.op = RMR_OP_SEND,
		.flags = RMR_UNSIGNALED,
		.source = place,
		.length = PLANE_SHORT,
		.region = client->kind->letters,
	};

	memcpy(place, &message, PLANE_SHORT);
	if (rmr_link_post(client->rmr_link, &work) != RMR_OK)
		plane_client_end(client, "it does not take what it is sent");
}

static void buffer_close(struct plane_client *client, struct plane_buffer *buffer)
{
	rmr_link_remote_close(buffer->remote);
	buffer->remote = NULL;
	buffer->is_leaving = false;
	figure_add(&plane_of(client)->figures.buffers, -1);
	send_letter(client, (unsigned)(buffer - client->buffers), PLANE_BUFFER_GONE);
}

void plane_buffer_release(struct plane_client *client, struct plane_buffer *buffer)
{
	buffer->transfers--;
	if (buffer->is_leaving && !buffer->transfers && client->state == PLANE_LINKED)
		buffer_close(client, buffer);
}

static void buffer_open(struct plane_client *client, const struct plane_message *message)
{
	struct plane_buffer *buffer = &client->buffers[message->id];
	struct rmr_link_remote *remote;

	if (buffer->remote) {
		plane_client_end(client, "a second buffer of one number; thrown out");
		return;
	}
	if (rmr_link_remote_open(client->rmr_link, &message->descriptor, &remote) != RMR_OK) {
		plane_client_end(client, error_chain());
		return;
	}
	if (message->length > rmr_link_remote_length(remote)) {
		plane_client_end(client, "a buffer that is longer than its memory; thrown out");
		return;
	}
	*buffer = (struct plane_buffer){
		.remote = remote,
		.ptr = message->ptr,
		.length = message->length,
	};
	figure_add(&plane_of(client)->figures.buffers, 1);
	do {
		if (getrandom(&buffer->rkey, sizeof(buffer->rkey), 0) != sizeof(buffer->rkey)) {
			plane_client_end(client, "there are no random numbers");
			return;
		}
	} while (!buffer->rkey);
	send_letter(client, message->id, PLANE_BUFFER_KEY);
}

static void buffer_leave(struct plane_client *client, const struct plane_message *message)
{
	struct plane_buffer *buffer = &client->buffers[message->id];

	if (!buffer->remote || buffer->is_leaving) {
		plane_client_end(client, "the end of a buffer that is none; thrown out");
		return;
	}
	buffer->is_leaving = true;
	if (!buffer->transfers)
		buffer_close(client, buffer);
}

void plane_client_message(struct plane_client *client, const void *bytes, size_t length)
{
	struct plane_message message;

	client->heard_ns = clock_now_ns();
	if (!plane_decode(bytes, length, &message)) {
		plane_client_end(client, "a message that makes no sense; thrown out");
		return;
	}
	switch ((enum plane_op)message.op) {
	case PLANE_BUFFER:
		buffer_open(client, &message);
		break;
	case PLANE_BUFFER_GONE:
		buffer_leave(client, &message);
		break;
	default:
		plane_client_end(client, "a message that only servers send; thrown out");
	}
}

/* ------------------------------------------------------------------------------------------
 * RegisterClient and Heartbeat
 */

/* Whether the client has devices that could connect by this kind. Who names none has all. */
static bool has_kind(const KvCache__RegisterClientRequest *request, const char *kind)
{
	size_t length = strlen(kind);

	for (size_t i = 0; i < request->n_domain_addresses; i++) {
		const ProtobufCBinaryData *name = &request->domain_addresses[i];
		size_t skip = name->len > 6 && memcmp(name->data, "fault:", 6) == 0 ? 6 : 0;

		if (name->len - skip >= length && memcmp(name->data + skip, kind, length) == 0)
			return true;
	}
	return !request->n_domain_addresses;
}

static void answer_registered(struct data_plane *plane, struct rpc *call,
			      const KvCache__RegisterClientRequest *request,
			      struct plane_client *client)
{
	const kv_control_server_options_t *options = &plane->control->options;
	KvCache__RegisterClientResponse response = KV_CACHE__REGISTER_CLIENT_RESPONSE__INIT;
	ProtobufCBinaryData addresses[PLANE_MAX_KINDS];

	response.success = true;
	response.server_id = plane->control->server_id;
	response.server_name = plane->control->server_name;
	response.server_domain_addresses = addresses;
	for (unsigned i = 0; i < plane->kind_count; i++) {
		struct plane_kind *kind = &plane->kinds[i];

		if (has_kind(request, kind->name))
			addresses[response.n_server_domain_addresses++] = (ProtobufCBinaryData){
				strlen(kind->address), (uint8_t *)kind->address};
	}
	response.link_token = (ProtobufCBinaryData){PLANE_TOKEN_SIZE, client->token};
	response.expires_after_ms = (uint64_t)options->client_expiry_ms;
	response.inline_limit = options->inline_limit;
	response.max_message_size = options->max_message;
	rpc_reply(call, &response.base, GRPC_OK, "%s", "");
}

/* Ends registrations that this one is to replace: the one whose token the call carries, and one of
 * the same connection whose link has not come. False: a linked client has the number. */
static bool replace(struct data_plane *plane, const struct rpc *call,
		    const KvCache__RegisterClientRequest *request)
{
	bool is_free = true;

	list_for_each_safe (at, bucket_of(plane, request->client_id)) {
		struct plane_client *client = list_entry(at, struct plane_client, hash_link);

		if (client->id != request->client_id)
			continue;
		if ((client->state == PLANE_WAITING && client->conn == call->conn) ||
		    (request->link_token.len == PLANE_TOKEN_SIZE &&
		     CRYPTO_memcmp(request->link_token.data, client->token, PLANE_TOKEN_SIZE) == 0))
			client_end(plane, client, NULL);
		else if (client->state == PLANE_LINKED)
			is_free = false;
	}
	plane_reap(plane);
	return is_free;
}

void data_plane_register(struct data_plane *plane, struct rpc *call,
			 const KvCache__RegisterClientRequest *request)
{
	struct plane_client *client;

	if (!replace(plane, call, request)) {
		rpc_reply(call, NULL, GRPC_ALREADY_EXISTS,
			  "client_id %u is in use; choose another, or send its link_token",
			  request->client_id);
		return;
	}
	if (call->conn->waiting >= PLANE_CONN_WAITING) {
		rpc_reply(
			call, NULL, GRPC_RESOURCE_EXHAUSTED,
			"%u clients that this connection has registered have no link yet; connect "
			"theirs first",
			call->conn->waiting);
		return;
	}
	client = client_create(plane, request->client_id, call->conn);
	if (!client) {
		rpc_reply(call, NULL, GRPC_RESOURCE_EXHAUSTED, "%u clients are registered already",
			  PLANE_MAX_CLIENTS);
		return;
	}
	client->key_id = call->key_id;
	if (getrandom(client->token, PLANE_TOKEN_SIZE, 0) != PLANE_TOKEN_SIZE) {
		client_end(plane, client, NULL);
		plane_reap(plane);
		rpc_reply(call, NULL, GRPC_INTERNAL, "there are no random numbers");
		return;
	}
	answer_registered(plane, call, request, client);
}

void data_plane_heartbeat(struct data_plane *plane, struct rpc *call,
			  const KvCache__HeartbeatRequest *request)
{
	KvCache__HeartbeatResponse response = KV_CACHE__HEARTBEAT_RESPONSE__INIT;
	uint64_t now_ns = clock_now_ns();

	/* Clients that wait for their link may share a number. */
	list_for_each (at, bucket_of(plane, request->client_id)) {
		struct plane_client *client = list_entry(at, struct plane_client, hash_link);

		if (client->id != request->client_id)
			continue;
		client->heard_ns = now_ns;
		response.alive = true;
		response.linked |= client->state == PLANE_LINKED;
	}
	rpc_reply(call, &response.base, GRPC_OK, "%s", "");
}
