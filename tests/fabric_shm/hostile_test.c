/*
 * Hostile peers on shm: whatever they pass or write costs them their connection, and nobody else
 * anything. In every test an honest client in a process of its own plays ping-pong with the server
 * before, during and after the attack.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/shm/internal.h"
#include "fabric_shm/impostor.h"
#include "harness/test.h"

/* The server under attack: one listener, one queue, an honest client. */
struct server {
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_listener *listener;
	struct rmr_conn *honest;
	char path[108];
	pid_t client;
};

static void honest_client(void *context)
{
	struct rmr_completion completion;
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;

	CHECK_OK(rmr_device_open("shm", NULL, &device));
	CHECK_OK(rmr_queue_open(device, NULL, &queue));
	CHECK_OK(rmr_connect(queue, context, 5000, NULL, &conn));
	/* Echoes until the server hangs up. */
	for (;;) {
		struct rmr_work work = {.op = RMR_OP_SEND, .flags = RMR_INLINE | RMR_UNSIGNALED};

		CHECK_EQ(rmr_wait(queue, &completion, 1, 30000), 1);
		if (completion.op == RMR_OP_DISCONNECT)
			break;
		CHECK_EQ(completion.op, RMR_OP_RECV);
		work.source = completion.data;
		work.length = completion.length;
		CHECK_EQ(rmr_post(conn, &work, 1), 1);
		rmr_recv_release(queue, completion.data);
	}
	rmr_conn_close(conn);
	rmr_queue_close(queue);
	rmr_device_close(device);
}

static struct rmr_conn *accept_one(struct server *server)
{
	struct rmr_request *request;
	struct rmr_conn *conn;

	CHECK_OK(rmr_listener_next(server->listener, 5000, &request));
	CHECK_OK(rmr_accept(request, server->queue, NULL, &conn));
	return conn;
}

static void server_open(struct server *server)
{
	snprintf(server->path, sizeof(server->path), "%s/victim.sock", test_tmpdir());
	server->client = -1;
	CHECK_OK(rmr_device_open("shm", NULL, &server->device));
	CHECK_OK(rmr_queue_open(server->device, NULL, &server->queue));
	CHECK_OK(rmr_listener_open(server->device, server->path,
				   &(struct rmr_listener_options){.handshake_timeout_ms = 300},
				   &server->listener));
	server->client = test_spawn(honest_client, server->path);
	server->honest = accept_one(server);
}

/* One round trip with the honest client. Other completions are counted and, if they are the end of
 * conn, their status returned. */
static enum rmr_status still_served(struct server *server, struct rmr_conn *watched)
{
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_INLINE | RMR_UNSIGNALED,
				.source = "ping",
				.length = 4};
	enum rmr_status ended = RMR_OK;
	bool answered = false;

	CHECK_EQ(rmr_post(server->honest, &work, 1), 1);
	while (!answered) {
		struct rmr_completion completion;

		CHECK_EQ(rmr_wait(server->queue, &completion, 1, 5000), 1);
		if (completion.conn == server->honest) {
			CHECK_EQ(completion.op, RMR_OP_RECV);
			CHECK_EQ(completion.length, 4);
			CHECK_MEM(completion.data, "ping", 4);
			rmr_recv_release(server->queue, completion.data);
			answered = true;
		} else if (completion.op == RMR_OP_RECV) {
			rmr_recv_release(server->queue, completion.data);
		} else if (completion.op == RMR_OP_DISCONNECT) {
			CHECK(completion.conn == watched);
			ended = completion.status;
		}
	}
	return ended;
}

static void server_close(struct server *server)
{
	still_served(server, NULL);
	rmr_conn_close(server->honest);
	test_wait(server->client);
	rmr_listener_close(server->listener);
	rmr_queue_close(server->queue);
	rmr_device_close(server->device);
}

/* The connection ends with this status, soon, while the honest client is served. */
static void ends_with(struct server *server, struct rmr_conn *conn, enum rmr_status expected)
{
	uint64_t deadline = clock_deadline_ns(5000);
	enum rmr_status status;

	do {
		CHECK(!clock_passed(deadline));
		status = still_served(server, conn);
	} while (status == RMR_OK);
	CHECK_EQ(status, expected);
	rmr_conn_close(conn);
}

static void test_bad_introductions(void)
{
	struct server server;
	struct rmr_request *request;

	server_open(&server);
	for (int kind = 0; kind < 9; kind++) {
		struct impostor impostor;
		struct shm_packet hello = impostor_hello();
		int unsealed = impostor_memory(sizeof(struct shm_segment), false);
		int small = impostor_memory(64, true), fds[3];
		int before;

		CHECK(impostor_open(&impostor, server.path));
		before = test_open_fds();
		fds[0] = kind == 5 ? unsealed : kind == 6 ? small : impostor.segment_fd;
		fds[1] = kind == 7 ? unsealed : kind == 8 ? small : impostor.table_fd;
		fds[2] = impostor.table_fd;
		if (kind == 1)
			hello.version++;
		if (kind == 2)
			hello.type = PACKET_ACCEPT;
		CHECK(impostor_send(&impostor, &hello, kind == 0 ? 7 : sizeof(hello), fds,
				    kind == 3	? 1
				    : kind == 4 ? 3
						: 2));
		if (kind < 5) {
			CHECK_STATUS(rmr_listener_next(server.listener, 50, &request), RMR_TIMEOUT);
		} else {
			struct rmr_conn *conn;
			struct shm_packet answer;

			CHECK_OK(rmr_listener_next(server.listener, 1000, &request));
			CHECK_STATUS(rmr_accept(request, server.queue, NULL, &conn), RMR_PROTOCOL);
			CHECK_EQ(recv(impostor.socket, &answer, sizeof(answer), 0), sizeof(answer));
			CHECK_EQ(answer.type, PACKET_REJECT);
			CHECK_CONTAINS(answer.reason, kind == 5 || kind == 7 ? "sealed" : "size");
		}
		CHECK_EQ(test_open_fds(), before);
		CHECK_EQ(still_served(&server, NULL), RMR_OK);
		impostor_close(&impostor);
		close(unsealed);
		close(small);
	}
	server_close(&server);
}

static void test_silent_callers(void)
{
	struct impostor silent[20], good;
	struct rmr_request *request;
	struct server server;
	uint64_t start;
	int before;

	server_open(&server);
	before = test_open_fds();
	for (int i = 0; i < 20; i++)
		CHECK(impostor_open(&silent[i], server.path));
	CHECK(impostor_open(&good, server.path));
	CHECK(impostor_introduce(&good));
	start = clock_now_ns();
	CHECK_OK(rmr_listener_next(server.listener, 5000, &request));
	CHECK(clock_now_ns() - start < UINT64_C(250000000));
	rmr_reject(request, "that is enough");
	/* After handshake_timeout_ms they are dropped. */
	CHECK_STATUS(rmr_listener_next(server.listener, 1000, &request), RMR_TIMEOUT);
	for (int i = 0; i < 20; i++) {
		CHECK_EQ(recv(silent[i].socket, &(char){0}, 1, MSG_DONTWAIT), 0);
		impostor_close(&silent[i]);
	}
	impostor_close(&good);
	CHECK_EQ(test_open_fds(), before);
	server_close(&server);
}

/* A fragment as a hostile writer would lay it out: any word, any extra. */
struct bad_cell {
	const char *what;
	unsigned kind, flags;
	uint32_t length;
	uint64_t extra;
};

static void put(struct impostor *impostor, unsigned at, const struct bad_cell *bad)
{
	struct ring_cell *cell = &impostor->segment->ring[at];

	cell->extra = bad->extra;
	atomic_store(&cell->word,
		     (uint64_t)bad->kind | (uint64_t)bad->flags << 8 | (uint64_t)bad->length << 32);
}

static void test_bad_rings(void)
{
	static const struct bad_cell cases[] = {
		{"no kind", 99, 3, 8, 8},
		{"beyond the end", RING_MESSAGE, 3, RING_CELLS * 64, RING_CELLS * 64},
		{"far beyond the end", RING_MESSAGE, 3, UINT32_MAX, UINT32_MAX},
		{"longer than a slot", RING_MESSAGE, 3, 100, 8193},
		{"endless", RING_MESSAGE, 1, 100, UINT64_MAX},
		{"longer than it said", RING_MESSAGE, 3, 100, 99},
		{"shorter than it said", RING_MESSAGE, 3, 100, 101},
		{"a continuation of nothing", RING_MESSAGE, 2, 10, 10},
		{"an immediate that is too long", RING_IMMEDIATE, 3, 9, 0},
		{"an immediate that is too short", RING_IMMEDIATE, 3, 0, 0},
	};
	struct server server;

	server_open(&server);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct impostor impostor;
		struct rmr_conn *conn;

		CHECK(impostor_open(&impostor, server.path));
		CHECK(impostor_introduce(&impostor));
		conn = accept_one(&server);
		put(&impostor, 0, &cases[i]);
		ends_with(&server, conn, RMR_PROTOCOL);
		impostor_close(&impostor);
	}
	server_close(&server);
}

/* A message inside a message: the first fragment twice. */
static void test_nested_message(void)
{
	struct bad_cell first = {
		.kind = RING_MESSAGE, .flags = RING_FIRST, .length = 8, .extra = 99};
	struct impostor impostor;
	struct rmr_conn *conn;
	struct server server;

	server_open(&server);
	CHECK(impostor_open(&impostor, server.path));
	CHECK(impostor_introduce(&impostor));
	conn = accept_one(&server);
	put(&impostor, 1, &first);
	put(&impostor, 0, &first);
	ends_with(&server, conn, RMR_PROTOCOL);
	impostor_close(&impostor);
	server_close(&server);
}

/* It lies about how far it has read, in every way. We write on, and harm only what it has. */
static void test_lying_head(void)
{
	static const uint64_t lies[] = {UINT64_MAX, 1, RING_CELLS, RING_CELLS + 1, 1ull << 63};
	struct server server;

	server_open(&server);
	for (size_t i = 0; i < TEST_COUNT(lies); i++) {
		struct rmr_work work = {.op = RMR_OP_SEND,
					.flags = RMR_INLINE | RMR_UNSIGNALED,
					.source = "hello",
					.length = 5};
		struct impostor impostor;
		struct rmr_conn *conn;

		CHECK(impostor_open(&impostor, server.path));
		CHECK(impostor_introduce(&impostor));
		conn = accept_one(&server);
		atomic_store(&impostor.segment->head, lies[i]);
		for (int k = 0; k < 5000; k++)
			CHECK(rmr_post(conn, &work, 1) >= 0);
		CHECK_EQ(still_served(&server, conn), RMR_OK);
		impostor_close(&impostor);
		ends_with(&server, conn, RMR_DISCONNECTED);
	}
	server_close(&server);
}

static void test_floods_on_the_socket(void)
{
	struct shm_packet wake = {
		.magic = PACKET_MAGIC, .version = PACKET_VERSION, .type = PACKET_WAKE};
	struct impostor impostor;
	struct rmr_conn *conn;
	struct server server;
	int before;

	server_open(&server);
	before = test_open_fds();
	CHECK(impostor_open(&impostor, server.path));
	CHECK(impostor_introduce(&impostor));
	conn = accept_one(&server);
	/* Wake-ups nobody asked for: useless, but no offence. */
	for (int i = 0; i < 20000; i++) {
		impostor_send(&impostor, &wake, sizeof(wake), NULL, 0);
		if (i % 100 == 0)
			CHECK_EQ(still_served(&server, conn), RMR_OK);
	}
	/* More arenas than a connection may grant. */
	for (uint64_t id = 1; id <= SHM_MAX_ARENAS;) {
		if (impostor_grant(&impostor, id))
			id++;
		CHECK_EQ(still_served(&server, conn), RMR_OK);
	}
	/* Each is a descriptor that waits, here or still in the socket. */
	CHECK(test_open_fds() < before + (int)SHM_MAX_ARENAS + 10);
	while (!impostor_grant(&impostor, SHM_MAX_ARENAS + 1)) /* the socket is full */
		CHECK_EQ(still_served(&server, conn), RMR_OK);
	ends_with(&server, conn, RMR_LIMIT);
	impostor_close(&impostor);
	CHECK_EQ(test_open_fds(), before);
	server_close(&server);
}

static void test_bad_packets_later(void)
{
	static const enum packet_type types[] = {PACKET_HELLO, PACKET_ACCEPT, PACKET_REJECT};
	struct server server;

	server_open(&server);
	for (size_t i = 0; i < TEST_COUNT(types); i++) {
		struct shm_packet packet = impostor_hello();
		struct impostor impostor;
		struct rmr_conn *conn;
		int before = test_open_fds();

		CHECK(impostor_open(&impostor, server.path));
		CHECK(impostor_introduce(&impostor));
		conn = accept_one(&server);
		packet.type = (uint8_t)types[i];
		CHECK(impostor_send(&impostor, &packet, sizeof(packet),
				    (int[]){impostor.segment_fd, impostor.table_fd},
				    packet_fds(types[i])));
		ends_with(&server, conn, RMR_PROTOCOL);
		impostor_close(&impostor);
		CHECK_EQ(test_open_fds(), before);
	}
	server_close(&server);
}

/* What a peer is given, it can read and never write: neither our segment, nor the region table,
 * nor an arena that was opened for reading. */
static void test_given_memory_is_read_only(void)
{
	struct rmr_descriptor descriptor;
	struct impostor impostor;
	struct rmr_region *region;
	struct rmr_arena *arena;
	struct rmr_conn *conn;
	struct shm_packet packet;
	struct server server;
	int fds[PACKET_FDS], given[3];

	server_open(&server);
	CHECK_OK(rmr_arena_open(4096, 0, &arena));
	CHECK_OK(rmr_region_open(server.device, rmr_arena_base(arena), 64, RMR_READ, &region));
	CHECK(impostor_open(&impostor, server.path));
	CHECK(impostor_introduce(&impostor));
	conn = accept_one(&server);
	CHECK_OK(rmr_region_export(region, conn, &descriptor));
	CHECK_OK(packet_receive(impostor.socket, &packet, fds, NULL));
	CHECK_EQ(packet.type, PACKET_ACCEPT);
	given[0] = fds[0];
	given[1] = fds[1];
	CHECK_OK(packet_receive(impostor.socket, &packet, fds, NULL));
	CHECK_EQ(packet.type, PACKET_GRANT);
	given[2] = fds[0];
	for (int i = 0; i < 3; i++) {
		void *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, given[i], 0);
		char path[64];

		CHECK(map != MAP_FAILED);
		CHECK(mprotect(map, 4096, PROT_READ | PROT_WRITE) != 0);
		CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, given[i], 0) ==
		      MAP_FAILED);
		CHECK(pwrite(given[i], "x", 1, 0) < 0);
		CHECK(ftruncate(given[i], 0) != 0);
		/* Nor by opening the file anew, which its mode would permit. */
		snprintf(path, sizeof(path), "/proc/self/fd/%d", given[i]);
		int again = open(path, O_RDWR);
		CHECK(again < 0 ||
		      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
		CHECK(again < 0 || pwrite(again, "x", 1, 0) < 0);
		munmap(map, 4096);
	}
	impostor_close(&impostor);
	rmr_conn_close(conn);
	rmr_region_close(region);
	rmr_arena_close(arena);
	server_close(&server);
}

static const struct test tests[] = {
	{"bad_introductions", test_bad_introductions},
	{"silent_callers", test_silent_callers},
	{"bad_rings", test_bad_rings},
	{"nested_message", test_nested_message},
	{"lying_head", test_lying_head},
	{"floods_on_the_socket", test_floods_on_the_socket},
	{"bad_packets_later", test_bad_packets_later},
	{"given_memory_is_read_only", test_given_memory_is_read_only},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "shm_hostile", tests, TEST_COUNT(tests));
}
