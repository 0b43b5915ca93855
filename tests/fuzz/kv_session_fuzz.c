/*
 * Fuzzes a live server: a client that connects by shared memory, and after a good or a bad greeting
 * sends what the input says, by message or into its landing buffer. Whatever it is, another client
 * goes on being served, and keeps its values.
 *
 * The input: a byte of choices; then records of a length byte, an offset byte and so many bytes,
 * which are laid (xor) over a good request at that offset. The lowest bits of the length choose the
 * request.
 */
#include <remora/server.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "kv/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum choice {
	BAD_HELLO = 1 << 0,
	BAD_PROOF = 1 << 1,
	EARLY = 1 << 2,	  /* requests before the greeting is over */
	LANDING = 1 << 3, /* asks for a landing buffer, and uses it */
	HASTY = 1 << 4,	  /* does not wait for replies */
};

#define MAX_RECORDS 24
#define ANSWER_MS   20

static kv_server_t *server;
static kv_client_t *witness;
static struct rmr_device *device;
static struct rmr_queue *queue;
static struct rmr_region *region;
static uint8_t *memory;
static char directory[64];
static uint8_t secret_key[24]; /* of the witness; no input can hit it */

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void leave(void)
{
	kv_client_destroy(witness);
	kv_server_destroy(server);
	rmdir(directory);
}

static void put_witness(void)
{
	require(kv_client_put(witness, secret_key, sizeof(secret_key), "unharmed", 8) == KV_OK);
}

static void set_up(void)
{
	kv_server_options_t options = {
		.listen = "shm", .port = 12345, .memory = 16 << 20, .workers = 1};
	struct rmr_arena *arena;

	log_set_level(LOG_LEVEL_ERROR);
	snprintf(directory, sizeof(directory), "/tmp/remora-fuzz-%d", getpid());
	mkdir(directory, 0700);
	setenv("REMORA_SHM_DIR", directory, 1);
	require(kv_server_create(&options, &server) == KV_OK);
	require(kv_server_start(server) == KV_OK);
	witness = kv_client_create(CONN_MODE_SHM);
	require(kv_client_connect(witness, NULL, 12345) == KV_OK);
	require(getrandom(secret_key, sizeof(secret_key), 0) == sizeof(secret_key));
	put_witness();
	require(rmr_device_open("shm", NULL, &device) == RMR_OK);
	require(rmr_queue_open(device,
			       &(struct rmr_queue_options){.recv_slots = 64, .recv_size = 8320},
			       &queue) == RMR_OK);
	require(rmr_arena_open(1 << 20, 0, &arena) == RMR_OK);
	memory = rmr_arena_base(arena);
	require(rmr_region_open(device, memory, 1 << 20, 0, &region) == RMR_OK);
	atexit(leave);
}

/* The next message of the server, copied; its length, 0: none, or it hung up. */
static size_t hear(void *to, size_t room)
{
	struct rmr_completion completion;
	uint64_t deadline = clock_deadline_ns(ANSWER_MS);

	while (!clock_passed(deadline)) {
		if (rmr_wait(queue, &completion, 1, ANSWER_MS) != 1)
			continue;
		if (completion.op == RMR_OP_DISCONNECT)
			return 0;
		if (completion.op != RMR_OP_RECV)
			continue;
		if (completion.length <= room)
			memcpy(to, completion.data, completion.length);
		rmr_recv_release(queue, completion.data);
		return completion.length;
	}
	return 0;
}

static bool say(struct rmr_conn *conn, const void *message, size_t length)
{
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_UNSIGNALED,
				.local = memory,
				.length = length,
				.region = region};

	memmove(memory, message, length);
	return rmr_post(conn, &work, 1) == 1;
}

static void greet(struct rmr_conn *conn, unsigned choices, const uint8_t *data, size_t size)
{
	struct kv_hello hello = {.op = KV_OP_HELLO, .window = 16};
	struct kv_proof proof = {.op = KV_OP_PROOF};
	uint8_t answer[KV_MAX_GREETING];

	for (size_t i = 0; choices & BAD_HELLO && i < sizeof(hello) && i < size; i++)
		((uint8_t *)&hello)[i] ^= data[i];
	if (!say(conn, &hello, sizeof(hello)))
		return;
	if (choices & EARLY)
		return;
	(void)hear(answer, sizeof(answer));
	for (size_t i = 0; choices & BAD_PROOF && i < sizeof(proof) && i < size; i++)
		((uint8_t *)&proof)[i] ^= data[i];
	if (say(conn, &proof, sizeof(proof)))
		(void)hear(answer, sizeof(answer));
}

/* A good request of some kind, in `memory`; its length. */
static size_t compose(unsigned kind, uint32_t id)
{
	struct kv_request request = {
		.op = (uint8_t)(KV_OP_GET + kind % (KV_OP_END_OF_REQUESTS - KV_OP_GET)), .id = id};

	request.key_length = kv_op_has_key(request.op) ? 7 : 0;
	request.value_length = kv_op_has_value(request.op) ? 64 : 100;
	return (size_t)(kv_encode_request(memory, &request, "fuzzing", memory + 4096, NULL) -
			memory);
}

static struct rmr_remote *ask_for_landing(struct rmr_conn *conn, uint32_t id)
{
	struct kv_request request = {.op = KV_OP_LANDING, .id = id, .argument = 65536};
	struct rmr_remote *remote = NULL;
	struct rmr_descriptor descriptor;
	_Alignas(8) uint8_t reply[8320];

	if (!say(conn, &request, sizeof(request)) ||
	    hear(reply, sizeof(reply)) != sizeof(struct kv_reply) + sizeof(descriptor))
		return NULL;
	memcpy(&descriptor, reply + sizeof(struct kv_reply), sizeof(descriptor));
	return rmr_remote_open(conn, &descriptor, &remote) == RMR_OK ? remote : NULL;
}

static void talk(struct rmr_conn *conn, const uint8_t *data, size_t size)
{
	unsigned choices = data[0];
	struct rmr_remote *landing = NULL;
	uint8_t reply[8320];
	uint32_t id = 1;

	greet(conn, choices, data + 1, size - 1);
	if (choices & LANDING)
		landing = ask_for_landing(conn, id++);
	for (size_t at = 1, records = 0; at + 2 < size && records < MAX_RECORDS; records++) {
		size_t bytes = data[at], offset = data[at + 1], length = compose(data[at] + at, id);
		struct rmr_work work = {.op = RMR_OP_SEND,
					.flags = RMR_UNSIGNALED,
					.local = memory,
					.region = region};

		at += 2;
		for (size_t i = 0; i < bytes && at < size; i++, at++)
			memory[(offset + i) % (length + 16)] ^= data[at];
		work.length = length + (offset == 255 ? 16 : 0);
		if (landing && offset & 1) {
			work.op = RMR_OP_WRITE_IMM;
			work.remote = landing;
			work.immediate = bytes & 2 ? (uint32_t)(offset * 37) : 0;
		}
		if (rmr_post(conn, &work, 1) != 1)
			return;
		id++;
		if (!(choices & HASTY) && !hear(reply, sizeof(reply)))
			return;
	}
}

static void check_witness(void)
{
	char value[16];
	size_t length = sizeof(value);
	int status = kv_client_get(witness, secret_key, sizeof(secret_key), value, &length);

	/* Flushing is permitted. */
	if (status == KV_NOT_FOUND)
		put_witness();
	else
		require(status == KV_OK && length == 8 && memcmp(value, "unharmed", 8) == 0);
	require(kv_client_ping(witness, NULL) == KV_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kv_introduction introduction = {KV_PROTOCOL_MAGIC, KV_PROTOCOL_VERSION, 0};
	struct rmr_conn_options options = {.private_data = &introduction,
					   .private_length = sizeof(introduction)};
	struct rmr_conn *conn;

	if (!server)
		set_up();
	if (size == 0)
		return 0;
	if (rmr_connect(queue, "kv-12345", 5000, &options, &conn) == RMR_OK) {
		talk(conn, data, size);
		rmr_conn_close(conn);
	}
	check_witness();
	return 0;
}
