/*
 * A peer that breaks the rules: by the socket, before and after it was taken; and by packets that a
 * well-behaved endpoint would not send. It costs itself its connection, and nobody else anything: a
 * witness on the same queue goes on.
 *
 * What these tests would catch: a greeting believed before it is checked, a good-bye that makes us
 * wait for ever, a packet that is taken for another connection's, frames that reach an assert.
 */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "fabric/ofi/internal.h"
#include "harness/test.h"

#define PATIENCE_MS (8000 * TEST_TIME_FACTOR)

/* The victim's queue takes callers. The other one is the witness's; its endpoint also sends what is
 * forged, since libfabric knows endpoints alone. */
struct scene {
	struct rmr_device *device;
	struct rmr_queue *victim, *caller;
	struct rmr_listener *listener;
	struct rmr_conn *taken, *witness;
};

static void *take_caller(void *arg)
{
	struct scene *scene = arg;
	struct rmr_request *request;
	struct rmr_conn *conn = NULL;

	if (rmr_listener_next(scene->listener, PATIENCE_MS, &request) == RMR_OK &&
	    rmr_accept(request, scene->victim, NULL, &conn) != RMR_OK)
		conn = NULL;
	return conn;
}

/* A connection of the caller's queue to the victim's; returns the victim's end of it. */
static struct rmr_conn *call(struct scene *scene, struct rmr_conn **calling)
{
	void *taken;
	pthread_t thread;

	CHECK_EQ(pthread_create(&thread, NULL, take_caller, scene), 0);
	CHECK_OK(rmr_connect(scene->caller, rmr_listener_address(scene->listener), PATIENCE_MS,
			     NULL, calling));
	CHECK_EQ(pthread_join(thread, &taken), 0);
	CHECK(taken != NULL);
	return taken;
}

static void scene_open(struct scene *scene)
{
	*scene = (struct scene){0};
	CHECK_OK(rmr_device_open("ofi:tcp", NULL, &scene->device));
	CHECK_OK(rmr_queue_open(scene->device, NULL, &scene->victim));
	CHECK_OK(rmr_queue_open(scene->device, NULL, &scene->caller));
	CHECK_OK(rmr_listener_open(scene->device, "127.0.0.1:0", NULL, &scene->listener));
	scene->taken = call(scene, &scene->witness);
}

/* What comes next on the victim's queue; the other one's makes progress meanwhile. */
static struct rmr_completion victim_next(struct scene *scene)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct rmr_completion c, other;

	while (!clock_passed(deadline_ns)) {
		if (rmr_poll(scene->victim, &c, 1) == 1)
			return c;
		(void)rmr_poll(scene->caller, &other, 1);
	}
	TEST_FAIL("nothing came");
}

/* The witness is heard. */
static void check_witness(struct scene *scene)
{
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_INLINE | RMR_UNSIGNALED,
				.source = "well",
				.length = 4};
	struct rmr_completion c;

	CHECK_EQ(rmr_post(scene->witness, &work, 1), 1);
	c = victim_next(scene);
	CHECK_EQ(c.op, RMR_OP_RECV);
	CHECK(c.conn == scene->taken);
	CHECK_EQ(memcmp(c.data, "well", 4), 0);
	rmr_recv_release(scene->victim, c.data);
}

static void expect_lost(struct scene *scene, struct rmr_conn *conn, enum rmr_status status)
{
	struct rmr_completion c = victim_next(scene);

	CHECK_EQ(c.op, RMR_OP_DISCONNECT);
	CHECK(c.conn == conn);
	CHECK_EQ(c.status, status);
	rmr_conn_close(conn);
}

static void scene_close(struct scene *scene)
{
	check_witness(scene);
	rmr_conn_close(scene->witness);
	rmr_conn_close(scene->taken);
	rmr_listener_close(scene->listener);
	rmr_queue_close(scene->caller);
	rmr_queue_close(scene->victim);
	rmr_device_close(scene->device);
}

/* ------------------------------------------------------------------------------------------
 * By the socket
 */

static int raw_connect(const struct scene *scene)
{
	const char *address = rmr_listener_address(scene->listener);
	struct sockaddr_in to = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0);
	CHECK_EQ(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

/* A good greeting, of an endpoint where nobody is. */
static void raw_greeting(const struct scene *scene, int fd, uint8_t *to)
{
	const struct ofi_queue *queue = (const struct ofi_queue *)scene->victim;
	struct greeting greeting = {
		.mode = GREETING_PACKED, .token = 4711, .provider = "tcp;ofi_rxm"};
	struct handshake shake = {.kind = HANDSHAKE_HELLO,
				  .recv_size = 8192,
				  .depth = 16,
				  .window_messages = 16,
				  .window_bytes = TCP_WINDOW_BYTES};
	struct ofi_address address = queue->address;
	uint8_t bytes[HANDSHAKE_SIZE];

	CHECK_OK(address_own(queue, fd, &address));
	greeting.address_length = address.length;
	memcpy(greeting.address, address.bytes, sizeof(greeting.address));
	greeting.address[2] = 0; /* port 1 */
	greeting.address[3] = 1;
	handshake_encode(bytes, &shake);
	ofi_greeting_encode(to, &greeting, bytes);
}

/* Sends a greeting, changed in one byte, and lets the victim take it if it does. */
static struct rmr_conn *raw_call(struct scene *scene, size_t offset, int value, int patience_ms,
				 int *fd)
{
	uint8_t bytes[GREETING_SIZE];
	struct rmr_request *request;
	struct rmr_conn *conn = NULL;

	*fd = raw_connect(scene);
	raw_greeting(scene, *fd, bytes);
	if (value >= 0)
		bytes[offset] = (uint8_t)value;
	CHECK_EQ(send(*fd, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
	if (rmr_listener_next(scene->listener, patience_ms, &request) != RMR_OK)
		return NULL;
	return rmr_accept(request, scene->victim, NULL, &conn) == RMR_OK ? conn : NULL;
}

/* Reads all until the end; returns how much of it fitted. */
static size_t read_to_end(int fd, uint8_t *to, size_t size)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};
	size_t have = 0;

	for (;;) {
		uint8_t rest[256];
		ssize_t got;

		CHECK_EQ(poll(&pollfd, 1, PATIENCE_MS), 1);
		got = recv(fd, rest, sizeof(rest), 0);
		if (got <= 0)
			return have;
		for (ssize_t i = 0; i < got && have < size; i++)
			to[have++] = rest[i];
	}
}

static void test_greetings(void)
{
	static const struct {
		size_t offset;
		int value;
		bool is_told; /* why not */
	} changes[] = {
		{0, 'X', false}, {4, 99, true},	  {6, 0, false},   {6, 200, false},
		{7, 2, false},	 {7, 9, false},	  {16, 'v', true}, {39, 'x', false},
		{102, 3, false}, {102, 2, false}, {112, 0, false},
	};
	struct scene scene;

	scene_open(&scene);
	for (size_t i = 0; i < TEST_COUNT(changes); i++) {
		uint8_t answer[GREETING_SIZE];
		int fd;

		if (raw_call(&scene, changes[i].offset, changes[i].value, 100, &fd))
			TEST_FAIL("byte %zu as %d was taken", changes[i].offset, changes[i].value);
		CHECK_EQ(read_to_end(fd, answer, sizeof(answer)),
			 changes[i].is_told ? sizeof(answer) : 0);
		close(fd);
	}
	scene_close(&scene);
}

/* Taken, and then silent, gone, or talking nonsense. */
static void test_after_greeting(void)
{
	static const uint8_t nonsense[] = "GET / HT";
	struct greeting_word bye = {.magic = htole32(GREETING_BYE), .value = htole32(99)};
	struct rmr_conn *conn;
	struct scene scene;
	int fd;

	scene_open(&scene);
	conn = raw_call(&scene, 0, -1, PATIENCE_MS, &fd);
	CHECK(conn != NULL);
	close(fd);
	expect_lost(&scene, conn, RMR_DISCONNECTED);

	conn = raw_call(&scene, 0, -1, PATIENCE_MS, &fd);
	CHECK(conn != NULL);
	CHECK_EQ(send(fd, nonsense, 8, MSG_NOSIGNAL), 8);
	expect_lost(&scene, conn, RMR_PROTOCOL);
	close(fd);

	/* It claims to have sent packets that never come. */
	conn = raw_call(&scene, 0, -1, PATIENCE_MS, &fd);
	CHECK(conn != NULL);
	CHECK_EQ(send(fd, &bye, sizeof(bye), MSG_NOSIGNAL), sizeof(bye));
	expect_lost(&scene, conn, RMR_DISCONNECTED);
	close(fd);
	scene_close(&scene);
}

static void say_word(int fd, uint32_t magic, uint32_t value)
{
	struct greeting_word word = {.magic = htole32(magic), .value = htole32(value)};

	CHECK_EQ(send(fd, &word, sizeof(word), MSG_NOSIGNAL), sizeof(word));
}

/* Words about sleep, out of turn. */
static void test_bells(void)
{
	static const struct {
		uint8_t mode;
		uint32_t words[2], values[2];
	} cases[] = {
		/* It rings twice. */
		{GREETING_PACKED, {GREETING_BELL, GREETING_BELL}, {1, 2}},
		/* Need not be rung for, and says that it must. */
		{GREETING_PACKED, {GREETING_BELL, GREETING_ASLEEP}, {1, 0}},
		/* Was not rung for. */
		{GREETING_PACKED | GREETING_RUNG, {GREETING_BELL, GREETING_ASLEEP}, {1, 0}},
		{GREETING_PACKED | GREETING_RUNG, {GREETING_ASLEEP, GREETING_BELL}, {5, 1}},
	};
	struct rmr_conn *conn;
	struct scene scene;
	int fd;

	scene_open(&scene);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		conn = raw_call(&scene, offsetof(struct greeting, mode), cases[i].mode, PATIENCE_MS,
				&fd);
		CHECK(conn != NULL);
		for (int word = 0; word < 2; word++)
			say_word(fd, cases[i].words[word], cases[i].values[word]);
		expect_lost(&scene, conn, RMR_PROTOCOL);
		close(fd);
	}
	scene_close(&scene);
}

static bool is_rung(struct rmr_queue *base)
{
	struct ofi_queue *queue = (struct ofi_queue *)base;
	bool rung;

	queue_lock(&queue->stream);
	rung = !list_is_empty(&queue->rung);
	queue_unlock(&queue->stream);
	return rung;
}

/* It rings, and then nothing comes: one does not stay awake for that. */
static void test_bell_for_nothing(void)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct rmr_completion c;
	struct rmr_conn *conn;
	struct scene scene;
	int fd;

	scene_open(&scene);
	conn = raw_call(&scene, 0, -1, PATIENCE_MS, &fd);
	CHECK(conn != NULL);
	while (is_rung(scene.victim)) /* by the witness */
		CHECK(rmr_queue_arm(scene.victim) == RMR_OK || rmr_poll(scene.victim, &c, 1) == 0);
	say_word(fd, GREETING_BELL, 1000);
	while (!is_rung(scene.victim)) {
		CHECK_EQ(rmr_poll(scene.victim, &c, 1), 0);
		CHECK(!clock_passed(deadline_ns));
	}
	while (rmr_queue_arm(scene.victim) != RMR_OK) {
		CHECK_EQ(rmr_poll(scene.victim, &c, 1), 0);
		CHECK(!clock_passed(deadline_ns));
	}
	CHECK(is_rung(scene.victim)); /* it is not told to ring once more */
	close(fd);
	expect_lost(&scene, conn, RMR_DISCONNECTED);
	scene_close(&scene);
}

/* ------------------------------------------------------------------------------------------
 * By packets
 */

/* The header of a packet. */
struct forged {
	uint64_t token;
	uint32_t number, taken;
};

/* Sends a packet from the caller's endpoint, as if it were of this connection. */
static void forge(struct scene *scene, const struct ofi_conn *like, struct forged header,
		  const void *bytes, size_t length)
{
	struct ofi_queue *queue = (struct ofi_queue *)scene->caller;
	struct ofi_packet whole = {.token = htole64(header.token),
				   .number = htole32(header.number),
				   .taken = htole32(header.taken)};
	uint8_t packet[64];
	struct rmr_completion c;
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	ssize_t code;

	memset(packet, 0, sizeof(packet));
	memcpy(packet, &whole, OFI_PACKET_HEADER);
	memcpy(packet + OFI_PACKET_HEADER, bytes, length);
	do {
		(void)rmr_poll(scene->caller, &c, 0);
		(void)rmr_poll(scene->victim, &c, 0);
		queue_lock(&queue->stream);
		code = fi_inject(queue->endpoint, packet, OFI_PACKET_HEADER + length,
				 like->peer->number);
		queue_unlock(&queue->stream);
	} while (code == -FI_EAGAIN && !clock_passed(deadline_ns));
	CHECK_EQ(code, 0);
}

static void test_packets(void)
{
	struct rmr_conn *taken, *calling;
	struct ofi_conn *conn;
	struct scene scene;

	scene_open(&scene);
	check_witness(&scene);
	taken = call(&scene, &calling);
	conn = (struct ofi_conn *)calling;

	/* For nobody: nothing happens. */
	forge(&scene, conn, (struct forged){0, 0, 0}, "x", 1);
	forge(&scene, conn, (struct forged){conn->peer_token + OFI_CONNS_MAX, 0, 0}, "x", 1);
	forge(&scene, conn, (struct forged){UINT64_MAX, 0, 0}, "x", 1);
	forge(&scene, conn, (struct forged){conn->peer_token, 0, 0}, "", 0);
	check_witness(&scene);

	/* No frame. */
	forge(&scene, conn, (struct forged){conn->peer_token, conn->packets_sent, 0},
	      "\xff\xff\xff\xff", 4);
	expect_lost(&scene, taken, RMR_PROTOCOL);
	rmr_conn_close(calling);

	/* It has taken in more than was sent. */
	taken = call(&scene, &calling);
	conn = (struct ofi_conn *)calling;
	forge(&scene, conn, (struct forged){conn->peer_token, conn->packets_sent, 1000}, "x", 1);
	expect_lost(&scene, taken, RMR_PROTOCOL);
	rmr_conn_close(calling);

	/* A number that was there already. */
	taken = call(&scene, &calling);
	conn = (struct ofi_conn *)calling;
	forge(&scene, conn, (struct forged){conn->peer_token, UINT32_MAX, 0}, "x", 1);
	expect_lost(&scene, taken, RMR_PROTOCOL);
	rmr_conn_close(calling);
	scene_close(&scene);
}

static const struct test tests[] = {
	{"hostile_greetings", test_greetings}, {"hostile_after_the_greeting", test_after_greeting},
	{"hostile_bells", test_bells},	       {"hostile_bell_for_nothing", test_bell_for_nothing},
	{"hostile_packets", test_packets},
};

int main(int argc, char **argv)
{
	if (!getenv("REMORA_LOG"))
		log_set_level(LOG_LEVEL_ERROR);
	return test_main(argc, argv, "ofi_hostile", tests, TEST_COUNT(tests));
}
