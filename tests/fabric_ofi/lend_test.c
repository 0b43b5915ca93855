/*
 * Long READs by lent memory (src/fabric/ofi/lend.c): that libfabric touches nobody's memory when it
 * may no longer do so, whoever ends what at whatever moment; and that a peer who breaks the rules
 * costs itself its connection, while a witness between the same two queues goes on.
 *
 * Memory that must not be touched is unmapped at once. What these tests would catch: a work that is
 * completed, or a region that is closed, while data still streams in or out: that ends in a
 * segmentation fault.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "fabric/ofi/internal.h"
#include "harness/test.h"

#define PATIENCE_MS (20000 * TEST_TIME_FACTOR)
#define MIB	    ((size_t)1 << 20)

/* The server has memory, which the client reads. Two devices, as in two processes. */
struct scene {
	struct rmr_device *server_device, *client_device;
	struct rmr_queue *server, *client;
	struct rmr_listener *listener;
	struct rmr_region *region; /* the server's */
	uint8_t *memory;
	size_t size;
	const struct rmr_conn_options *options; /* of new connections; NULL: the usual ones */
};

/* A connection between the two. */
struct line {
	struct rmr_conn *taken, *calling;
	struct rmr_remote *remote;
};

static void *take_caller(void *arg)
{
	struct scene *scene = arg;
	struct rmr_request *request;
	struct rmr_conn *conn = NULL;

	if (rmr_listener_next(scene->listener, PATIENCE_MS, &request) == RMR_OK &&
	    rmr_accept(request, scene->server, NULL, &conn) != RMR_OK)
		conn = NULL;
	return conn;
}

/* libfabric 1.17 leaks what it has of a connection that is closed before it is made: so it is used
 * first (line_open). */
static void line_connect(struct scene *scene, struct line *line)
{
	struct rmr_descriptor descriptor;
	pthread_t thread;
	void *taken;

	CHECK_EQ(pthread_create(&thread, NULL, take_caller, scene), 0);
	CHECK_OK(rmr_connect(scene->client, rmr_listener_address(scene->listener), PATIENCE_MS,
			     scene->options, &line->calling));
	CHECK_EQ(pthread_join(thread, &taken), 0);
	CHECK(taken != NULL);
	line->taken = taken;
	CHECK_OK(rmr_region_export(scene->region, line->taken, &descriptor));
	CHECK_OK(rmr_remote_open(line->calling, &descriptor, &line->remote));
}

static void line_close(struct line *line)
{
	rmr_remote_close(line->remote);
	rmr_conn_close(line->calling);
	rmr_conn_close(line->taken);
}

static uint8_t pattern(size_t at)
{
	return (uint8_t)(at * 31 + (at % MIB >> 12)); /* the same in each MiB */
}

static void *map(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

static void scene_open(struct scene *scene, size_t size)
{
	*scene = (struct scene){.size = size};
	scene->memory = map(size);
	for (size_t i = 0; i < size && i < MIB; i++)
		scene->memory[i] = pattern(i);
	for (size_t i = MIB; i < size; i += MIB)
		memcpy(scene->memory + i, scene->memory, MIB);
	CHECK_OK(rmr_device_open("ofi:tcp", NULL, &scene->server_device));
	CHECK_OK(rmr_device_open("ofi:tcp", NULL, &scene->client_device));
	CHECK_OK(rmr_queue_open(scene->server_device, NULL, &scene->server));
	CHECK_OK(rmr_queue_open(scene->client_device, NULL, &scene->client));
	CHECK_OK(rmr_listener_open(scene->server_device, "127.0.0.1:0", NULL, &scene->listener));
	CHECK_OK(rmr_region_open(scene->server_device, scene->memory, size, RMR_READ,
				 &scene->region));
}

static void scene_close(struct scene *scene)
{
	rmr_listener_close(scene->listener);
	rmr_queue_close(scene->client);
	rmr_queue_close(scene->server);
	rmr_region_close(scene->region);
	rmr_device_close(scene->client_device);
	rmr_device_close(scene->server_device);
	munmap(scene->memory, scene->size);
}

/* Memory of the client. */
struct buffer {
	uint8_t *memory;
	size_t size;
	struct rmr_region *region;
};

static void buffer_open(struct scene *scene, struct buffer *buffer, size_t size)
{
	buffer->memory = map(size);
	buffer->size = size;
	CHECK_OK(rmr_region_open(scene->client_device, buffer->memory, size, 0, &buffer->region));
}

static void buffer_close(struct buffer *buffer)
{
	rmr_region_close(buffer->region);
	CHECK_EQ(munmap(buffer->memory, buffer->size), 0);
}

static void post_read(const struct line *line, const struct buffer *buffer, uint64_t cookie)
{
	struct rmr_work work = {.op = RMR_OP_READ,
				.local = buffer->memory,
				.length = buffer->size,
				.region = buffer->region,
				.remote = line->remote,
				.cookie = cookie};

	CHECK_EQ(rmr_post(line->calling, &work, 1), 1);
}

/* What comes next on a queue; the other one makes progress meanwhile. */
static struct rmr_completion next(struct rmr_queue *queue, struct rmr_queue *other)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct rmr_completion c, unused;

	while (!clock_passed(deadline_ns)) {
		if (rmr_poll(queue, &c, 1) == 1)
			return c;
		(void)rmr_poll(other, &unused, 0);
	}
	TEST_FAIL("nothing came");
}

static void line_open(struct scene *scene, struct line *line)
{
	struct buffer buffer;

	line_connect(scene, line);
	buffer_open(scene, &buffer, 8);
	post_read(line, &buffer, 1);
	CHECK_EQ(next(scene->client, scene->server).status, RMR_OK);
	buffer_close(&buffer);
}

/* A long READ that is all right. */
static void check_witness(struct scene *scene, const struct line *line)
{
	struct rmr_completion c;
	struct buffer buffer;

	buffer_open(scene, &buffer, 300000);
	post_read(line, &buffer, 77);
	c = next(scene->client, scene->server);
	CHECK_EQ(c.op, RMR_OP_READ);
	CHECK_EQ(c.status, RMR_OK);
	CHECK_EQ(c.cookie, 77);
	for (size_t i = 0; i < buffer.size; i++) {
		if (buffer.memory[i] != pattern(i))
			TEST_FAIL("byte %zu is %u", i, buffer.memory[i]);
	}
	buffer_close(&buffer);
}

static bool has_open_door(const struct rmr_conn *base)
{
	struct ofi_conn *conn = (struct ofi_conn *)base;
	bool open;

	queue_lock(tcp_queue_of(&conn->stream));
	open = conn->door && conn->door->is_open;
	queue_unlock(tcp_queue_of(&conn->stream));
	return open;
}

static void line_open_doors(struct scene *scene, struct line *line)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct rmr_completion c;

	line_open(scene, line);
	check_witness(scene, line);
	while (!has_open_door(line->calling) || !has_open_door(line->taken)) {
		CHECK_EQ(rmr_poll(scene->client, &c, 1), 0);
		CHECK_EQ(rmr_poll(scene->server, &c, 1), 0);
		CHECK(!clock_passed(deadline_ns));
	}
}

static bool is_lent(const struct line *line)
{
	struct tcp_conn *conn = (struct tcp_conn *)line->calling;
	bool lent;

	queue_lock(tcp_queue_of(conn));
	lent = conn->lent > 0;
	queue_unlock(tcp_queue_of(conn));
	return lent;
}

static bool is_pushed(const struct line *line)
{
	struct tcp_conn *conn = (struct tcp_conn *)line->taken;
	bool pushed;

	queue_lock(tcp_queue_of(conn));
	pushed = conn->pushing > 0;
	queue_unlock(tcp_queue_of(conn));
	return pushed;
}

/* ------------------------------------------------------------------------------------------
 * Ends
 */

/* Takes what may come of a line that has ended, until its DISCONNECT. */
static void drain(struct scene *scene, struct rmr_queue *queue, const struct rmr_conn *conn)
{
	for (;;) {
		struct rmr_completion c =
			next(queue, queue == scene->client ? scene->server : scene->client);

		CHECK(c.conn == conn);
		if (c.op == RMR_OP_DISCONNECT)
			return;
	}
}

/* The server hears of lines that the client has closed. */
static void drain_if_any(struct scene *scene)
{
	struct rmr_completion c;

	while (rmr_poll(scene->server, &c, 1) == 1)
		;
}

enum { CLIENT_READS = 3 };

/* What has become of the READs of one round. */
struct tally {
	unsigned done;
	bool failed;
};

static void tally_take(struct tally *tally, const struct rmr_completion *c)
{
	CHECK_EQ(c->op, RMR_OP_READ);
	tally->done++;
	tally->failed |= c->status != RMR_OK;
}

/* The memory of READs is closed. Those that were not done by then have failed, and the connection
 * with them; the helpers may have done all of them. */
static void close_buffers(struct scene *scene, const struct line *line, struct buffer *buffers,
			  struct tally *tally)
{
	for (int i = CLIENT_READS - 1; i >= 0; i--)
		buffer_close(&buffers[i]);
	while (tally->done < CLIENT_READS) {
		struct rmr_completion c = next(scene->client, scene->server);

		CHECK(c.conn == line->calling);
		tally_take(tally, &c);
	}
	if (tally->failed)
		drain(scene, scene->client, line->calling);
}

/* Connection or region closed by the client, at any moment of its READs. */
static void test_client_ends(void)
{
	enum { ROUNDS = TEST_HAS_TSAN ? 30 : 60 };
	struct line line, witness;
	struct test_rng rng;
	struct scene scene;
	unsigned lent = 0;

	test_rng_init(&rng, 1);
	scene_open(&scene, 8 * MIB);
	line_open_doors(&scene, &witness);
	for (int round = 0; round < ROUNDS; round++) {
		struct buffer buffers[CLIENT_READS];
		struct tally tally = {0};
		struct rmr_completion c;
		uint64_t until_ns;

		line_open_doors(&scene, &line);
		for (int i = 0; i < CLIENT_READS; i++) {
			buffer_open(&scene, &buffers[i], 8 * MIB);
			post_read(&line, &buffers[i], (uint64_t)i);
		}
		until_ns = clock_now_ns() + test_rng_below(&rng, 6000000);
		while (!clock_passed(until_ns)) {
			if (rmr_poll(scene.client, &c, 1) == 1)
				tally_take(&tally, &c);
			(void)rmr_poll(scene.server, &c, 0);
		}
		lent += is_lent(&line);
		if (round % 2 == 0)
			close_buffers(&scene, &line, buffers, &tally);
		rmr_remote_close(line.remote);
		rmr_conn_close(line.calling);
		for (int i = 0; round % 2 && i < CLIENT_READS; i++)
			buffer_close(&buffers[i]);
		drain(&scene, scene.server, line.taken);
		rmr_conn_close(line.taken);
		check_witness(&scene, &witness);
	}
	CHECK(lent > ROUNDS / 4); /* else it was no test */
	line_close(&witness);
	scene_close(&scene);
}

/* The region closed by the server, at any moment: what goes on goes on, the next READ fails. */
static void test_server_ends(void)
{
	enum { ROUNDS = TEST_HAS_TSAN ? 8 : 25 };
	struct test_rng rng;

	test_rng_init(&rng, 2);
	for (int round = 0; round < ROUNDS; round++) {
		struct rmr_completion c;
		struct buffer buffer;
		struct scene scene;
		struct line line;
		uint64_t until_ns;

		scene_open(&scene, 8 * MIB);
		line_open_doors(&scene, &line);
		buffer_open(&scene, &buffer, 8 * MIB);
		post_read(&line, &buffer, 1);
		until_ns = clock_now_ns() + test_rng_below(&rng, 6000000);
		while (!clock_passed(until_ns)) {
			(void)rmr_poll(scene.client, &c, 0);
			(void)rmr_poll(scene.server, &c, 0);
		}
		rmr_region_close(scene.region);
		scene.region = NULL;
		CHECK_EQ(mprotect(scene.memory, scene.size, PROT_NONE), 0);
		c = next(scene.client, scene.server);
		CHECK_EQ(c.op, RMR_OP_READ);
		CHECK(c.status == RMR_OK || c.status == RMR_ACCESS);
		if (c.status == RMR_OK) {
			CHECK_EQ(buffer.memory[buffer.size - 1], pattern(buffer.size - 1));
			post_read(&line, &buffer, 2);
			CHECK_EQ(next(scene.client, scene.server).status, RMR_ACCESS);
		}
		line_close(&line);
		buffer_close(&buffer);
		scene_close(&scene);
	}
}

/* The connection closed by the server, at any moment: that is no breach of rules. */
static void test_server_hangs_up(void)
{
	enum { ROUNDS = 25 };
	struct test_rng rng;
	struct scene scene;
	unsigned cut = 0;

	test_rng_init(&rng, 3);
	scene_open(&scene, 8 * MIB);
	for (int round = 0; round < ROUNDS; round++) {
		struct rmr_completion c;
		struct buffer buffer;
		struct line line;
		uint64_t until_ns;

		line_open_doors(&scene, &line);
		buffer_open(&scene, &buffer, 8 * MIB);
		post_read(&line, &buffer, 1);
		until_ns = clock_now_ns() + test_rng_below(&rng, 3000000);
		while (!clock_passed(until_ns)) {
			(void)rmr_poll(scene.client, &c, 0);
			(void)rmr_poll(scene.server, &c, 0);
		}
		rmr_conn_close(line.taken);
		line.taken = NULL;
		c = next(scene.client, scene.server);
		CHECK_EQ(c.op, RMR_OP_READ);
		CHECK(c.status == RMR_OK || c.status == RMR_DISCONNECTED);
		cut += c.status != RMR_OK;
		c = next(scene.client, scene.server);
		CHECK_EQ(c.op, RMR_OP_DISCONNECT);
		CHECK_EQ(c.status, RMR_DISCONNECTED);
		line_close(&line);
		buffer_close(&buffer);
	}
	CHECK(cut > 0); /* else it was no test */
	scene_close(&scene);
}

static void *close_region(void *arg)
{
	struct scene *scene = arg;

	rmr_region_close(scene->region);
	CHECK_EQ(mprotect(scene->memory, scene->size, PROT_NONE), 0);
	return NULL;
}

/* ... while the client takes in nothing: it is not waited for for ever. */
static void test_server_ends_stuck(void)
{
	struct ofi_queue *client;
	struct rmr_completion c;
	struct buffer buffer;
	struct scene scene;
	struct line line;
	pthread_t thread;
	uint64_t begin_ns;

	scene_open(&scene, 64 * MIB);
	line_open_doors(&scene, &line);
	client = (struct ofi_queue *)scene.client;
	buffer_open(&scene, &buffer, 64 * MIB);
	post_read(&line, &buffer, 1);
	/* Nobody makes progress on a queue whose lock is held. */
	queue_lock(&client->stream);
	while (!is_pushed(&line))
		(void)rmr_poll(scene.server, &c, 0);
	begin_ns = clock_now_ns();
	CHECK_EQ(pthread_create(&thread, NULL, close_region, &scene), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	scene.region = NULL;
	CHECK(clock_now_ns() - begin_ns >= OFI_PUSH_PATIENCE_NS / 2);
	queue_unlock(&client->stream);
	c = next(scene.client, scene.server);
	CHECK_EQ(c.op, RMR_OP_READ);
	CHECK_EQ(c.status, RMR_DISCONNECTED);
	drain(&scene, scene.client, line.calling);
	drain(&scene, scene.server, line.taken);
	line_close(&line);
	buffer_close(&buffer);
	scene_close(&scene);
}

/* ------------------------------------------------------------------------------------------
 * Rules that are broken
 */

/* The server ends the connection for that. */
static void expect_thrown_out(struct scene *scene, struct line *line, enum rmr_status status)
{
	struct rmr_completion c = next(scene->server, scene->client);

	CHECK_EQ(c.op, RMR_OP_DISCONNECT);
	CHECK(c.conn == line->taken);
	CHECK_EQ(c.status, status);
	drain(scene, scene->client, line->calling);
	line_close(line);
}

/* Says something by the socket of an end that it would not. */
static void say_word(struct rmr_conn *base, uint32_t port)
{
	struct greeting_word word = {.magic = htole32(GREETING_DOOR), .value = htole32(port)};
	struct tcp_conn *conn = (struct tcp_conn *)base;

	queue_lock(tcp_queue_of(conn));
	CHECK_EQ(socket_send(conn->fd, &word, sizeof(word)), sizeof(word));
	queue_unlock(tcp_queue_of(conn));
}

/* Puts a frame among those that the connection sends. */
static void say_frame(struct rmr_conn *conn, const struct frame *frame)
{
	struct tcp_conn *stream = (struct tcp_conn *)conn;
	struct tcp_queue *queue = tcp_queue_of(stream);
	uint8_t *to;

	queue_lock(queue);
	to = transmit_reserve(stream, FRAME_HEADER_MAX);
	CHECK(to != NULL);
	transmit_commit(stream, frame_encode(to, frame));
	transmit_ready(stream);
	queue_unlock(queue);
}

static void test_words(void)
{
	static const uint32_t ports[] = {1, 65535, 65536, UINT32_MAX};
	struct line line, witness;
	struct scene scene;

	scene_open(&scene, MIB);
	line_open_doors(&scene, &witness);
	/* Who was called is told a port. */
	for (size_t i = 0; i < TEST_COUNT(ports); i++) {
		line_open(&scene, &line);
		say_word(line.calling, ports[i]);
		expect_thrown_out(&scene, &line, RMR_PROTOCOL);
		check_witness(&scene, &witness);
	}
	/* ... is asked twice. */
	line_open_doors(&scene, &line);
	say_word(line.calling, 0);
	expect_thrown_out(&scene, &line, RMR_PROTOCOL);
	check_witness(&scene, &witness);
	line_close(&witness);
	scene_close(&scene);
}

/* A caller is told of doors that it has not asked for. */
static void test_unwanted(void)
{
	static const uint32_t ports[] = {0, 1, 65536};
	struct rmr_completion c;
	struct scene scene;
	struct line line;

	scene_open(&scene, MIB);
	for (size_t i = 0; i < TEST_COUNT(ports); i++) {
		line_open(&scene, &line);
		say_word(line.taken, ports[i]);
		c = next(scene.client, scene.server);
		CHECK_EQ(c.op, RMR_OP_DISCONNECT);
		CHECK_EQ(c.status, RMR_PROTOCOL);
		drain(&scene, scene.server, line.taken);
		line_close(&line);
	}
	scene_close(&scene);
}

/* A port where nobody listens: all goes in packets. */
static void test_no_door(void)
{
	struct ofi_conn *conn;
	struct scene scene;
	struct line line;

	scene_open(&scene, MIB);
	line_open(&scene, &line);
	conn = (struct ofi_conn *)line.calling;
	queue_lock(tcp_queue_of(&conn->stream));
	conn->asked = true;
	door_expect(conn);
	lend_take_word(conn, 1);
	queue_unlock(tcp_queue_of(&conn->stream));
	for (int i = 0; i < 5; i++)
		check_witness(&scene, &line);
	CHECK(!has_open_door(line.calling));
	line_close(&line);
	scene_close(&scene);
}

/* Somebody else knocks, says nothing or the wrong thing, and goes. */
static void test_strangers(void)
{
	struct line line, witness;
	struct sockaddr_in to = {.sin_family = AF_INET};
	struct ofi_queue *server;
	struct scene scene;
	uint16_t port;
	int fds[4];

	scene_open(&scene, MIB);
	line_open_doors(&scene, &witness);
	server = (struct ofi_queue *)scene.server;
	queue_lock(&server->stream);
	CHECK_OK(door_listen(server, &port));
	queue_unlock(&server->stream);
	to.sin_port = htons(port);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (size_t i = 0; i < TEST_COUNT(fds); i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		CHECK_EQ(connect(fds[i], (struct sockaddr *)&to, sizeof(to)), 0);
	}
	CHECK_EQ(send(fds[0], "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
	CHECK_EQ(send(fds[1], "x", 1, MSG_NOSIGNAL), 1);
	close(fds[2]);
	for (int i = 0; i < 5; i++) {
		line_open_doors(&scene, &line);
		check_witness(&scene, &line);
		line_close(&line);
		drain_if_any(&scene);
	}
	close(fds[0]);
	close(fds[1]);
	close(fds[3]);
	/* Also so that libfabric sees that they have gone: it leaks those who stay to the end. */
	for (int i = 0; i < 5; i++) {
		line_open_doors(&scene, &line);
		check_witness(&scene, &witness);
		line_close(&line);
		drain_if_any(&scene);
	}
	line_close(&witness);
	scene_close(&scene);
}

static struct frame push_request(const struct line *line, uint64_t length)
{
	const struct tcp_remote *remote = (const struct tcp_remote *)line->remote;

	return (struct frame){.op = FRAME_READ_PUSH,
			      .index = remote->index,
			      .sequence = ((struct tcp_conn *)line->calling)->next,
			      .length = length,
			      .key = remote->key};
}

static void test_requests(void)
{
	struct line line, witness;
	struct scene scene;
	struct frame frame;

	scene_open(&scene, MIB);
	line_open_doors(&scene, &witness);

	/* With no memory lent: it stays in the wire, and nobody else notices. */
	line_open_doors(&scene, &line);
	frame = push_request(&line, 100000);
	say_frame(line.calling, &frame);
	for (int i = 0; i < 3; i++)
		check_witness(&scene, &witness);
	line_close(&line);
	drain_if_any(&scene);

	/* Of more than there is. */
	line_open_doors(&scene, &line);
	frame = push_request(&line, 2 * MIB);
	say_frame(line.calling, &frame);
	expect_thrown_out(&scene, &line, RMR_ACCESS);
	check_witness(&scene, &witness);

	/* With no door. */
	line_open(&scene, &line);
	frame = push_request(&line, 100000);
	say_frame(line.calling, &frame);
	expect_thrown_out(&scene, &line, RMR_DISCONNECTED);
	check_witness(&scene, &witness);
	line_close(&witness);
	scene_close(&scene);
}

/* As many READs in flight as the connection takes, all the time; and more than can be lent. */
static void test_window(void)
{
	enum { LENGTH = 70000, ALL = 2000 };
	struct rmr_conn_options options = {.depth = 100};
	struct rmr_completion c;
	struct buffer buffer;
	struct scene scene;
	struct line line;
	int posted = 0, done = 0;

	scene_open(&scene, MIB);
	scene.options = &options;
	line_open_doors(&scene, &line);
	buffer_open(&scene, &buffer, LENGTH);
	while (done < ALL) {
		while (posted < ALL && posted - done < 100)
			post_read(&line, &buffer, (uint64_t)posted++);
		c = next(scene.client, scene.server);
		CHECK_EQ(c.op, RMR_OP_READ);
		CHECK_EQ(c.status, RMR_OK);
		CHECK_EQ(c.cookie, (uint64_t)done++);
	}
	line_close(&line);
	buffer_close(&buffer);
	scene_close(&scene);
}

/* READs that the owner of the queue posts and then leaves alone. */
static void test_nobody_polls(void)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct buffer buffer;
	struct scene scene;
	struct line line;

	scene_open(&scene, MIB);
	line_open_doors(&scene, &line);
	buffer_open(&scene, &buffer, 300000);
	post_read(&line, &buffer, 1);
	/* The helpers of both sides do it. */
	while (is_lent(&line)) {
		CHECK(!clock_passed(deadline_ns));
		usleep(1000);
	}
	CHECK_EQ(buffer.memory[299999], pattern(299999));
	CHECK_EQ(next(scene.client, scene.server).status, RMR_OK);
	line_close(&line);
	buffer_close(&buffer);
	scene_close(&scene);
}

/* A READ that fails behind others: those before it are done. */
static void test_error_behind(void)
{
	enum { ROUNDS = TEST_HAS_TSAN ? 6 : 20, READS = 6 };

	for (int round = 0; round < ROUNDS; round++) {
		struct rmr_work work;
		struct buffer buffer;
		struct scene scene;
		struct line line;

		scene_open(&scene, MIB);
		line_open_doors(&scene, &line);
		buffer_open(&scene, &buffer, 200000);
		work = (struct rmr_work){.op = RMR_OP_READ,
					 .local = buffer.memory,
					 .length = 8,
					 .region = buffer.region,
					 .remote = line.remote,
					 .offset = MIB};
		for (int i = 0; i < READS; i++)
			post_read(&line, &buffer, (uint64_t)i);
		CHECK_EQ(rmr_post(line.calling, &work, 1), 1);
		for (int i = 0; i < READS; i++)
			CHECK_EQ(next(scene.client, scene.server).status, RMR_OK);
		CHECK_EQ(next(scene.client, scene.server).status, RMR_ACCESS);
		line_close(&line);
		buffer_close(&buffer);
		scene_close(&scene);
	}
}

static const struct test tests[] = {
	{"lend_client_ends", test_client_ends},
	{"lend_server_ends", test_server_ends},
	{"lend_server_ends_stuck", test_server_ends_stuck},
	{"lend_server_hangs_up", test_server_hangs_up},
	{"lend_words", test_words},
	{"lend_unwanted", test_unwanted},
	{"lend_no_door", test_no_door},
	{"lend_strangers", test_strangers},
	{"lend_window", test_window},
	{"lend_nobody_polls", test_nobody_polls},
	{"lend_error_behind", test_error_behind},
	{"lend_requests", test_requests},
};

int main(int argc, char **argv)
{
	if (!getenv("REMORA_LOG"))
		log_set_level(LOG_LEVEL_ERROR);
	return test_main(argc, argv, "ofi_lend", tests, TEST_COUNT(tests));
}
