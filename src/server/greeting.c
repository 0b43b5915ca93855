/*
 * The greeting: HELLO, CHALLENGE, PROOF, WELCOME. Nothing is granted before the proof was right,
 * and the key that it was made with decides what: with a read key a client reads the store's
 * memory, but has no cells and changes nothing. WELCOME waits until older sessions of the same
 * client have ended (identity.c).
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "server/internal.h"

static bool send_greeting(struct session *session, const void *greeting, size_t length)
{
	struct reply *reply = session_reply(session);

	if (!reply)
		return false;
	if (length > reply->room || length > session->max_reply) {
		session_end(session);
		return false;
	}
	memcpy(reply->bytes, greeting, length);
	session_send(session, reply, length);
	return session->state != SESSION_OVER;
}

static uint32_t agree_on_window(const struct session *session, uint32_t wanted)
{
	uint32_t most = session->worker->server->options.window;
	/* Two windows of replies, and some slack: see session_open. */
	uint32_t fits = session->limit > SERVER_SLACK + 2 ? (session->limit - SERVER_SLACK) / 2 : 1;

	if (wanted == 0 || wanted > most)
		wanted = most;
	return wanted < fits ? wanted : fits;
}

static void take_hello(struct session *session, const struct kv_hello *hello)
{
	struct kv_challenge challenge = {.op = KV_OP_CHALLENGE};
	struct server_keys keys;

	keys_copy(session->worker->server, &keys);
	challenge.needs_proof = keys.write.count > 0;
	keys_wipe(&keys);
	if (session->max_reply < KV_MIN_REPLY) {
		session_violation(session, "a client that cannot take long enough replies");
		return;
	}
	if (kv_make_nonce(session->server_nonce) != RMR_OK) {
		log_error("%s", error_chain());
		session_leave(session, KV_INTERNAL, "the server has no random bytes");
		return;
	}
	memcpy(session->client_nonce, hello->nonce, sizeof(hello->nonce));
	memcpy(session->client_id, hello->client_id, sizeof(hello->client_id));
	session->number = hello->session;
	memcpy(challenge.nonce, session->server_nonce, sizeof(challenge.nonce));
	session->window = agree_on_window(session, hello->window);
	session->limit = 2 * session->window + SERVER_SLACK;
	if (send_greeting(session, &challenge, sizeof(challenge)))
		session->state = SESSION_PROOF;
}

/* The secret of the ring that the client knows; NULL: none. */
static const struct kv_secret *find_proved(const struct session *session,
					   const struct kv_proof *proof,
					   const struct kv_keyring *ring)
{
	for (unsigned i = 0; i < ring->count; i++) {
		if (kv_proof_is_right(&ring->secrets[i], KV_CLIENT_PROVES, session->client_nonce,
				      session->server_nonce, proof->proof))
			return &ring->secrets[i];
	}
	return NULL;
}

/* The cells. What a client has mapped by shm stays mapped when we close the connection, but it asks
 * before each access whether the region is still there: so each has one that can be closed. */
static enum rmr_status grant_cells(struct session *session, struct rmr_descriptor *descriptor)
{
	const struct kv_server *server = session->worker->server;
	const struct server_path *path = session->queue->path;
	enum rmr_status status;

	if (path->kind != PATH_SHM)
		return rmr_region_export(path->cells, session->conn, descriptor);
	status = rmr_region_open(path->device, rmr_arena_base(server->cells_arena),
				 rmr_arena_size(server->cells_arena), RMR_ATOMIC, &session->cells);
	if (status != RMR_OK)
		return status;
	return rmr_region_export(session->cells, session->conn, descriptor);
}

/* What cannot be granted is not: the client then has to ask instead. */
static void grant(struct session *session, struct kv_welcome *welcome)
{
	const struct server_path *path = session->queue->path;

	if (rmr_region_export(path->arena, session->conn, &welcome->arena) == RMR_OK)
		session->capabilities |= KV_CAN_READ;
	else
		log_warn_limited("%s: cannot read by itself: %s", session->peer, error_chain());
	if (!path->cells || !(session->capabilities & KV_CAN_WRITE))
		return;
	if (grant_cells(session, &welcome->cells) == RMR_OK)
		session->capabilities |= KV_CAN_COUNT;
	else
		log_warn_limited("%s: cannot count by itself: %s", session->peer, error_chain());
}

void greeting_welcome(struct session *session)
{
	bool writes = session->writes;
	struct kv_server *server = session->worker->server;
	struct kv_welcome message = {
		.op = KV_OP_WELCOME,
		.window = session->window,
		.cells_epoch = session->worker->epoch,
		.eager_limit = server->options.eager_limit,
		.instance = server->instance,
		.server_time_ms = store_clock_ms(server->store),
		.max_value = server->max_value,
		.landing_size = writes ? server->options.landing_size : 0,
		.max_pins = server->options.max_pins,
	};

	if (!session_admit(session)) {
		char text[128];

		snprintf(text, sizeof(text), KV_TOO_MANY_CLIENTS ": the server takes %u",
			 server->options.max_clients);
		counter_add(&session->worker->counters.refused, 1);
		session_leave(session, KV_BUSY, text);
		return;
	}
	session->capabilities = writes ? KV_CAN_WRITE : 0;
	/* Through shared memory the server would read with its own hands, and could be held up for
	 * ever by memory whose pages somebody else has to fill in. By verbs nobody asks for it, as
	 * the client's memory would have to be registered first. */
	if (writes &&
	    (session->queue->path->kind == PATH_TCP || session->queue->path->kind == PATH_OFI))
		session->capabilities |= KV_CAN_PULL;
	grant(session, &message);
	/* From now on it may give us its buffer. */
	rmr_conn_set_grants(session->conn, &(struct rmr_grant_limits){
						   .arenas = SERVER_CLIENT_ARENAS,
						   .bytes = SERVER_CLIENT_BYTES,
					   });
	message.capabilities = session->capabilities;
	memcpy(message.proof, session->proof, sizeof(message.proof));
	if (!send_greeting(session, &message, sizeof(message)))
		return;
	session->state = SESSION_READY;
	log_debug("%s: welcome%s", session->peer, writes ? "" : ", to read");
}

/* The client has proved itself, by this secret if one was needed. Now we do. */
static void accept_proof(struct session *session, const struct kv_secret *secret, bool writes)
{
	session->key_id = secret ? secret->id : 0;
	session->writes = writes;
	if (secret && !kv_prove(secret, KV_SERVER_PROVES, session->client_nonce,
				session->server_nonce, session->proof)) {
		log_error("%s", error_chain());
		session_leave(session, KV_INTERNAL, "the server cannot prove itself");
		return;
	}
	switch (identity_enter(session)) {
	case IDENTITY_ALONE:
		greeting_welcome(session);
		break;
	case IDENTITY_WAITS:
		session->state = SESSION_WAITING;
		break;
	case IDENTITY_OLD:
		counter_add(&session->worker->counters.refused, 1);
		session_leave(session, KV_BUSY, "a newer connection of the same client is there");
		break;
	}
}

static void take_proof(struct session *session, const struct kv_proof *proof)
{
	const struct kv_secret *secret = NULL;
	struct server_keys keys;
	bool writes;

	keys_copy(session->worker->server, &keys);
	if (keys.write.count)
		secret = find_proved(session, proof, &keys.write);
	writes = secret || keys.write.count == 0;
	if (!writes)
		secret = find_proved(session, proof, &keys.read);
	if (!writes && !secret) {
		log_warn_limited("%s: does not know the key", session->peer);
		counter_add(&session->worker->counters.refused, 1);
		session_leave(session, KV_DENIED, "the key is wrong, or there is none");
	} else {
		accept_proof(session, secret, writes);
	}
	keys_wipe(&keys);
}

void greeting_arrived(struct session *session, const void *message, size_t length)
{
	_Alignas(8) uint8_t greeting[KV_MAX_GREETING];
	int op = kv_decode_greeting(message, length, greeting, sizeof(greeting));

	if (op == KV_OP_HELLO && session->state == SESSION_HELLO)
		take_hello(session, (const struct kv_hello *)greeting);
	else if (op == KV_OP_PROOF && session->state == SESSION_PROOF)
		take_proof(session, (const struct kv_proof *)greeting);
	else
		session_violation(session,
				  op ? "a greeting out of turn" : "something that is no greeting");
}
