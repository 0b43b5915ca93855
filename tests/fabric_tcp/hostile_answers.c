/*
 * Listeners that break the rules: they accept us, and then answer what nobody asked. Our
 * operations fail, nothing is completed that was not done, and no memory beyond what was asked
 * for is touched.
 */
#include "hostile.h"

#include <remora/fabric.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/provider.h"
#include "raw.h"

#define PATIENCE_MS (5000 * TEST_TIME_FACTOR)

struct script {
	const char *name;
	struct frame answer;  /* to two READs of 64 bytes, a FETCH_ADD, a SEND and a WRITE */
	size_t payload;	      /* bytes sent behind it */
	int successes;	      /* works that complete well before the connection ends */
	enum rmr_status lost; /* what the DISCONNECT says */
};

static const struct script scripts[] = {
	{"data for another request", {.op = FRAME_READ_DATA, .sequence = 5, .length = 64}},
	{"data of another length", {.op = FRAME_READ_DATA, .length = 65}, 65},
	{"data without end", {.op = FRAME_READ_DATA, .length = FRAME_LENGTH_MAX}, 4096},
	{"data for an atomic", {.op = FRAME_READ_DATA, .sequence = 2, .length = 8}, 8},
	{"a skipped READ", {.op = FRAME_READ_DATA, .sequence = 1, .length = 64}, 64},
	{"a value for a READ", {.op = FRAME_ATOMIC_RESULT, .sequence = 0, .value = 1}},
	{"an ACK over READs", {.op = FRAME_ACK, .sequence = 5}},
	{"an ACK from the future", {.op = FRAME_ACK, .sequence = 6}},
	{"two messages acknowledged", {.op = FRAME_ACK, .messages = 2, .bytes = 10}},
	{"more bytes acknowledged", {.op = FRAME_ACK, .messages = 1, .bytes = 11}},
	{"a grant", {.op = FRAME_GRANT, .sequence = 5}},
	{"an error from the future", {.op = FRAME_ERROR, .sequence = 5, .status = 7}},
	{"a refusal", {.op = FRAME_ERROR, .sequence = 0, .status = 7}, 0, 0, RMR_ACCESS},
	{"one READ, then the end", {.op = FRAME_READ_DATA, .length = 64}, 64, 1, RMR_DISCONNECTED},
	{"a READ cut short", {.op = FRAME_READ_DATA, .length = 64}, 63, 0, RMR_DISCONNECTED},
};

static void answer_as(int listener, const struct script *script)
{
	struct handshake accept_greeting = raw_greeting(HANDSHAKE_ACCEPT);
	uint8_t bytes[HANDSHAKE_SIZE], payload[4096];
	struct frame frame;
	int fd = accept(listener, NULL, NULL);

	CHECK(fd >= 0);
	CHECK(raw_read(fd, bytes, sizeof(bytes)));
	handshake_encode(bytes, &accept_greeting);
	raw_send(fd, bytes, sizeof(bytes));
	for (int i = 0; i < 5; i++) { /* the requests */
		CHECK(raw_read_frame(fd, &frame));
		CHECK_EQ(frame.sequence, (uint32_t)i);
		if (frame_has_payload(frame.op))
			CHECK(raw_read(fd, payload, frame.length));
	}
	memset(payload, 0x77, sizeof(payload));
	raw_frame(fd, &script->answer);
	if (script->payload)
		(void)!send(fd, payload, script->payload, MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	raw_expect_end(fd);
}

struct listener {
	char address[64];
	int fd;
};

static void listen_for_all(void *arg)
{
	const struct listener *listener = arg;

	for (size_t i = 0; i < TEST_COUNT(scripts); i++)
		answer_as(listener->fd, &scripts[i]);
}

/* 64 bytes are asked for, between guards. */
struct local {
	_Alignas(8) uint8_t before[64];
	uint8_t data[128];
	uint8_t after[64];
};

static void check_script(struct rmr_queue *queue, struct rmr_region *region, struct local *local,
			 const char *address, const struct script *script)
{
	struct descriptor_wire wire = {.magic = DESCRIPTOR_MAGIC,
				       .version = DESCRIPTOR_VERSION,
				       .provider = 2,
				       .rights = RMR_READ | RMR_WRITE | RMR_ATOMIC,
				       .length = 4096,
				       .key = 1};
	struct rmr_descriptor descriptor;
	struct rmr_remote *remote;
	struct rmr_conn *conn;
	struct rmr_completion c;
	int successes = 0, failures = 0;

	memset(local, 0x11, sizeof(*local));
	memcpy(&descriptor, &wire, sizeof(wire));
	CHECK_OK(rmr_connect(queue, address, PATIENCE_MS, NULL, &conn));
	CHECK_OK(rmr_remote_open(conn, &descriptor, &remote));
	struct rmr_work work = {.region = region, .remote = remote, .local = local->data};
	const struct {
		enum rmr_op op;
		size_t length;
	} works[] = {{RMR_OP_READ, 64},
		     {RMR_OP_READ, 64},
		     {RMR_OP_FETCH_ADD, 8},
		     {RMR_OP_SEND, 10},
		     {RMR_OP_WRITE, 64}};

	for (size_t i = 0; i < TEST_COUNT(works); i++) {
		work.op = works[i].op;
		work.length = works[i].length;
		work.cookie = i;
		CHECK_EQ(rmr_post(conn, &work, 1), 1);
	}
	for (;;) {
		CHECK_EQ(rmr_wait(queue, &c, 1, PATIENCE_MS), 1);
		if (c.op == RMR_OP_DISCONNECT)
			break;
		CHECK_EQ(c.cookie, (uint64_t)(successes + failures));
		successes += c.status == RMR_OK;
		failures += c.status != RMR_OK;
	}
	if (successes != script->successes ||
	    c.status != (script->lost ? script->lost : RMR_PROTOCOL))
		TEST_FAIL("%s: %d successes, then %s", script->name, successes,
			  rmr_status_text(c.status));
	CHECK_EQ(successes + failures, 5);
	for (int i = 0; i < 64; i++) {
		CHECK_EQ(local->before[i], 0x11);
		CHECK_EQ(local->data[64 + i], 0x11);
		CHECK_EQ(local->after[i], 0x11);
	}
	rmr_conn_close(conn);
}

static void test_answers(void)
{
	static struct local local;
	struct listener listener;
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_region *region;
	pid_t pid;

	listener.fd = raw_listen(listener.address);
	pid = test_spawn(listen_for_all, &listener);
	CHECK_OK(rmr_device_open("tcp", NULL, &device));
	CHECK_OK(rmr_queue_open(device, NULL, &queue));
	CHECK_OK(rmr_region_open(device, &local, sizeof(local), 0, &region));
	for (size_t i = 0; i < TEST_COUNT(scripts); i++)
		check_script(queue, region, &local, listener.address, &scripts[i]);
	test_wait(pid);
	rmr_region_close(region);
	rmr_queue_close(queue);
	rmr_device_close(device);
	close(listener.fd);
}

const struct test answer_tests[] = {
	{"answers_that_nobody_asked_for", test_answers},
	{NULL},
};
