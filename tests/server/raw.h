/*
 * A client that speaks the protocol raw, message by message, right or wrong: on the fabric alone,
 * without the client library. Whatever goes wrong that should not fails the test.
 */
#ifndef TESTS_SERVER_RAW_H
#define TESTS_SERVER_RAW_H

#include <remora/fabric.h>
#include <remora/server.h>

#include "kv/auth.h"
#include "kv/protocol.h"

#define RAW_RECV_SIZE 16384u
#define RAW_WAIT_MS   8000

struct raw {
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	/* For HELLO; may be set between connecting and greeting. */
	uint8_t client_id[KV_CLIENT_ID_SIZE];
	uint64_t session;
	uint8_t client_nonce[KV_NONCE_SIZE];
	uint8_t server_nonce[KV_NONCE_SIZE];
	struct kv_challenge challenge;
	struct kv_welcome welcome;
	struct kv_refuse refuse;
	uint32_t next_id;
	bool is_gone; /* the server has closed the connection */
	/* The last message. */
	uint8_t message[RAW_RECV_SIZE];
	size_t length;
	struct kv_reply_view reply;
};

/* What a request is made of. */
struct raw_request {
	struct kv_request header; /* id 0: the next one */
	const void *key;
	const void *value;
	const struct kv_touch *touches;
};

/* Connects. RMR_REFUSED ... are the caller's to check. */
enum rmr_status raw_dial(struct raw *raw, const char *by, const char *address,
			 const struct kv_introduction *introduction);
/* Connects, and introduces itself as it should. */
void raw_connect(struct raw *raw, const char *by, const char *address);
void raw_close(struct raw *raw);

/* HELLO and PROOF, with the first line of this file as key, or none. Returns the op of what the
 * server said in the end: KV_OP_WELCOME, KV_OP_REFUSE, or 0 when it closed. */
int raw_greet(struct raw *raw, const char *key_file, uint32_t window);
/* Connects and is welcome. */
void raw_enter(struct raw *raw, const char *by, const char *address, const char *key_file);

void raw_send(struct raw *raw, const void *message, size_t length);
/* Waits for a message. False: the connection ended instead. */
bool raw_receive(struct raw *raw);
/* Waits for a reply, which it decodes. False: the connection ended. */
bool raw_receive_reply(struct raw *raw);
/* Waits until the connection ends, whatever else comes. Returns the status of the GOODBYE before;
 * 1 if there was none. */
int raw_receive_end(struct raw *raw);

/* Posts a request. */
void raw_ask(struct raw *raw, const struct raw_request *request);
/* Posts one, waits for its reply, and returns its status. */
int raw_call(struct raw *raw, const struct raw_request *request);

/* The usual ones. */
int raw_put(struct raw *raw, const char *key, const void *value, size_t length);
int raw_get(struct raw *raw, const char *key, size_t room);
int raw_simple(struct raw *raw, unsigned op, const char *key, uint64_t argument);

/* Transfers, and waits. The status of the completion. */
enum rmr_status raw_transfer(struct raw *raw, const struct rmr_work *work);

/* The seed of the store's hashes, from its memory: what somebody needs to make keys collide. */
uint64_t raw_hash_seed(struct raw *raw);

#endif
