/* A raw client: see raw.h. */
#include "server/raw.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "harness/test.h"
#include "store/layout.h"

enum rmr_status raw_dial(struct raw *raw, const char *by, const char *address,
			 const struct kv_introduction *introduction)
{
	struct rmr_queue_options queue_options = {.recv_slots = 64, .recv_size = RAW_RECV_SIZE};
	struct rmr_conn_options options = {.depth = 1024};

	*raw = (struct raw){.next_id = 1};
	if (introduction) {
		options.private_data = introduction;
		options.private_length = sizeof(*introduction);
	}
	CHECK_OK(rmr_device_open(by, NULL, &raw->device));
	CHECK_OK(rmr_queue_open(raw->device, &queue_options, &raw->queue));
	return rmr_connect(raw->queue, address, RAW_WAIT_MS, &options, &raw->conn);
}

void raw_connect(struct raw *raw, const char *by, const char *address)
{
	struct kv_introduction introduction = {.magic = KV_PROTOCOL_MAGIC,
					       .version = KV_PROTOCOL_VERSION};

	CHECK_OK(raw_dial(raw, by, address, &introduction));
}

void raw_close(struct raw *raw)
{
	rmr_conn_close(raw->conn);
	rmr_queue_close(raw->queue);
	rmr_device_close(raw->device);
	*raw = (struct raw){0};
}

void raw_send(struct raw *raw, const void *message, size_t length)
{
	uint8_t *copy = malloc(length ? length : 1);
	struct rmr_region *region;
	struct rmr_work work = {.op = RMR_OP_SEND, .source = copy, .length = length, .cookie = 1};
	uint64_t deadline_ns = clock_deadline_ns(RAW_WAIT_MS);

	CHECK(copy);
	memcpy(copy, message, length);
	CHECK_OK(rmr_region_open(raw->device, copy, length ? length : 1, 0, &region));
	work.region = region;
	if (rmr_device_info(raw->device)->max_inline >= length) {
		work.flags = RMR_INLINE | RMR_UNSIGNALED;
		(void)!rmr_post(raw->conn, &work, 1);
	} else if (rmr_post(raw->conn, &work, 1) == 1) {
		/* Messages that come meanwhile would be lost: the tests do not let that happen. */
		struct rmr_completion done = {0};

		while (done.op != RMR_OP_SEND && done.op != RMR_OP_DISCONNECT) {
			CHECK(!clock_passed(deadline_ns));
			if (rmr_wait(raw->queue, &done, 1, 100) == 1 && done.op == RMR_OP_RECV)
				TEST_FAIL("a message while sending");
		}
		raw->is_gone |= done.op == RMR_OP_DISCONNECT;
	}
	rmr_region_close(region);
	free(copy);
}

bool raw_receive(struct raw *raw)
{
	uint64_t deadline_ns = clock_deadline_ns(RAW_WAIT_MS * (int)TEST_TIME_FACTOR);

	while (!raw->is_gone) {
		struct rmr_completion done;

		if (clock_passed(deadline_ns))
			TEST_FAIL("nothing came");
		if (rmr_wait(raw->queue, &done, 1, 100) != 1)
			continue;
		if (done.op == RMR_OP_DISCONNECT)
			raw->is_gone = true;
		if (done.op != RMR_OP_RECV || done.status != RMR_OK)
			continue;
		CHECK(done.length <= sizeof(raw->message));
		memcpy(raw->message, done.data, done.length);
		raw->length = done.length;
		rmr_recv_release(raw->queue, done.data);
		return true;
	}
	return false;
}

bool raw_receive_reply(struct raw *raw)
{
	const char *wrong;

	if (!raw_receive(raw))
		return false;
	wrong = kv_decode_reply(raw->message, raw->length, &raw->reply);
	if (wrong)
		TEST_FAIL("%s", wrong);
	return true;
}

int raw_receive_end(struct raw *raw)
{
	int status = 1;

	while (raw_receive(raw)) {
		if (raw->message[0] == KV_OP_GOODBYE) {
			CHECK(!kv_decode_reply(raw->message, raw->length, &raw->reply));
			status = raw->reply.header.status;
		}
	}
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Greeting
 */

static int receive_greeting(struct raw *raw, void *greeting, size_t size)
{
	int op;

	if (!raw_receive(raw))
		return 0;
	op = kv_decode_greeting(raw->message, raw->length, greeting, size);
	if (op == KV_OP_REFUSE)
		memcpy(&raw->refuse, raw->message, sizeof(raw->refuse));
	return op;
}

int raw_greet(struct raw *raw, const char *key_file, uint32_t window)
{
	struct kv_hello hello = {.op = KV_OP_HELLO, .window = window};
	struct kv_proof proof = {.op = KV_OP_PROOF};
	struct kv_secret secret = {0};
	uint8_t greeting[KV_MAX_GREETING];
	int op;

	CHECK_OK(kv_make_nonce(raw->client_nonce));
	memcpy(hello.nonce, raw->client_nonce, sizeof(hello.nonce));
	memcpy(hello.client_id, raw->client_id, sizeof(hello.client_id));
	hello.session = raw->session;
	raw_send(raw, &hello, sizeof(hello));
	op = receive_greeting(raw, greeting, sizeof(greeting));
	if (op != KV_OP_CHALLENGE)
		return op;
	memcpy(&raw->challenge, greeting, sizeof(raw->challenge));
	memcpy(raw->server_nonce, raw->challenge.nonce, sizeof(raw->server_nonce));
	if (key_file) {
		CHECK_OK(kv_secret_read(&secret, key_file));
		CHECK(kv_prove(&secret, KV_CLIENT_PROVES, raw->client_nonce, raw->server_nonce,
			       proof.proof));
	}
	raw_send(raw, &proof, sizeof(proof));
	op = receive_greeting(raw, greeting, sizeof(greeting));
	if (op == KV_OP_WELCOME) {
		memcpy(&raw->welcome, greeting, sizeof(raw->welcome));
		if (key_file)
			CHECK(kv_proof_is_right(&secret, KV_SERVER_PROVES, raw->client_nonce,
						raw->server_nonce, raw->welcome.proof));
	}
	return op;
}

void raw_enter(struct raw *raw, const char *by, const char *address, const char *key_file)
{
	raw_connect(raw, by, address);
	CHECK_EQ(raw_greet(raw, key_file, 0), KV_OP_WELCOME);
}

/* ------------------------------------------------------------------------------------------
 * Requests
 */

void raw_ask(struct raw *raw, const struct raw_request *request)
{
	struct kv_request header = request->header;
	size_t length = kv_request_size(&header);
	uint8_t *message = malloc(length);

	CHECK(message);
	if (!header.id)
		header.id = raw->next_id++;
	kv_encode_request(message, &header, request->key, request->value, request->touches);
	raw_send(raw, message, length);
	free(message);
}

int raw_call(struct raw *raw, const struct raw_request *request)
{
	uint32_t id = request->header.id ? request->header.id : raw->next_id;

	raw_ask(raw, request);
	if (!raw_receive_reply(raw))
		TEST_FAIL("%s: the connection ended", kv_op_name(request->header.op));
	CHECK_EQ(raw->reply.header.op, request->header.op);
	CHECK_EQ(raw->reply.header.id, id);
	return raw->reply.header.status;
}

int raw_put(struct raw *raw, const char *key, const void *value, size_t length)
{
	return raw_call(raw, &(struct raw_request){
				     .header = {.op = KV_OP_PUT,
						.key_length = (uint16_t)strlen(key),
						.value_length = length},
				     .key = key,
				     .value = value,
			     });
}

int raw_get(struct raw *raw, const char *key, size_t room)
{
	return raw_call(raw, &(struct raw_request){
				     .header = {.op = KV_OP_GET,
						.key_length = (uint16_t)strlen(key),
						.value_length = room},
				     .key = key,
			     });
}

int raw_simple(struct raw *raw, unsigned op, const char *key, uint64_t argument)
{
	return raw_call(raw, &(struct raw_request){
				     .header = {.op = (uint8_t)op,
						.key_length = (uint16_t)(key ? strlen(key) : 0),
						.argument = argument},
				     .key = key,
			     });
}

enum rmr_status raw_transfer(struct raw *raw, const struct rmr_work *work)
{
	struct rmr_completion done = {0};
	uint64_t deadline_ns = clock_deadline_ns(RAW_WAIT_MS);

	CHECK_EQ(rmr_post(raw->conn, work, 1), 1);
	while (done.op != work->op && done.op != RMR_OP_DISCONNECT) {
		CHECK(!clock_passed(deadline_ns));
		(void)rmr_wait(raw->queue, &done, 1, 100);
	}
	raw->is_gone |= done.op == RMR_OP_DISCONNECT;
	return done.status;
}

uint64_t raw_hash_seed(struct raw *raw)
{
	struct store_header header = {0};
	struct rmr_region *region;
	struct rmr_remote *arena;

	CHECK_OK(rmr_remote_open(raw->conn, &raw->welcome.arena, &arena));
	CHECK_OK(rmr_region_open(raw->device, &header, sizeof(header), 0, &region));
	CHECK_OK(raw_transfer(raw, &(struct rmr_work){.op = RMR_OP_READ,
						      .local = &header,
						      .length = sizeof(header),
						      .region = region,
						      .remote = arena}));
	rmr_region_close(region);
	return header.hash_seed;
}
