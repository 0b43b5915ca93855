/*
 * Peers that break the rules of links: plain connections of the fabric that say what they like in
 * their private data. They cost us no more than their deadline, and our other callers nothing.
 *
 * What these tests would catch: a half-built link that stays for ever, a caller that can join or
 * spoil somebody else's link, messages taken from a lane where none may come, a link that goes on
 * after one of its connections is gone.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "fabric/domains_internal.h"
#include "side.h"

#define ID 4711u

/* A caller without domains: one device, one queue. */
struct raw {
	struct rmr_device *device;
	struct rmr_queue *queue;
	char addresses[2][ADDRESSES_MAX]; /* of the two devices that are listened on */
	struct rmr_conn *conns[8];
	int count;
};

static void raw_open(struct raw *raw, struct server *server)
{
	const char *both = server_address(server), *comma = strchr(both, ',');

	memset(raw, 0, sizeof(*raw));
	CHECK(comma != NULL);
	snprintf(raw->addresses[0], ADDRESSES_MAX, "%.*s", (int)(comma - both), both);
	snprintf(raw->addresses[1], ADDRESSES_MAX, "%s", comma + 1);
	CHECK_OK(rmr_device_open(setup.devices[0], NULL, &raw->device));
	CHECK_OK(rmr_queue_open(raw->device, NULL, &raw->queue));
}

static void raw_close(struct raw *raw)
{
	for (int i = 0; i < raw->count; i++)
		rmr_conn_close(raw->conns[i]);
	rmr_queue_close(raw->queue);
	rmr_device_close(raw->device);
}

static enum rmr_status raw_connect(struct raw *raw, const void *bytes, size_t length)
{
	struct rmr_conn_options options = {.private_data = bytes, .private_length = length};
	enum rmr_status status = rmr_connect(raw->queue, raw->addresses[0], PATIENCE_MS, &options,
					     &raw->conns[raw->count]);

	raw->count += status == RMR_OK;
	return status;
}

static enum rmr_status raw_hello(struct raw *raw, uint64_t id, uint8_t index, uint8_t connections)
{
	struct link_hello hello = {
		.magic = LINK_HELLO_MAGIC,
		.version = LINK_HELLO_VERSION,
		.index = index,
		.connections = connections,
		.id = id,
	};

	return raw_connect(raw, &hello, sizeof(hello));
}

/* Waits for so many ends of connections. */
static void raw_expect_disconnects(struct raw *raw, int count, int within_ms)
{
	uint64_t deadline_ns = clock_deadline_ns(within_ms);
	struct rmr_completion completion;

	while (count > 0) {
		if (clock_passed(deadline_ns))
			TEST_FAIL("%d connections were not closed in %d ms", count, within_ms);
		if (rmr_wait(raw->queue, &completion, 1, 100) == 1)
			count -= completion.op == RMR_OP_DISCONNECT;
	}
}

/* Takes callers with little patience, as many as the test says, and serves each. */
static void serve_impatiently(struct server *server)
{
	struct rmr_domains_listener_options options = {
		.listener = {.backlog = 3, .handshake_timeout_ms = 300 * TEST_TIME_FACTOR}};
	struct side side;

	side_open(&side, 2);
	side_listen(&side, &options);
	server_tell(server, rmr_domains_listener_address(side.listener));
	side_accept(&side, NULL);
	serve_link(&side);
	/* Gives half-built links time to be dropped; a last caller ends this. */
	side_accept(&side, NULL);
	serve_link(&side);
	CHECK_EQ(side.listener->building_count, 0);
	side_close(&side);
}

/* A good caller among them. */
static void call_well(struct server *server)
{
	struct rmr_link_work work;
	struct side side;

	side_open(&side, 2);
	side_connect(&side, server, NULL);
	work = side_work(&side, RMR_OP_READ, 0, 5 * STRIPE, 0);
	side_do(&side, &work);
	side_close(&side);
}

static void test_garbage(void)
{
	struct server server;
	struct test_rng rng;
	uint8_t noise[RMR_PRIVATE_MAX];
	struct raw raw;

	server_start(&server, serve_impatiently, 2);
	raw_open(&raw, &server);
	test_rng_init(&rng, 3);
	test_rng_fill(&rng, noise, sizeof(noise));
	CHECK_STATUS(raw_connect(&raw, NULL, 0), RMR_REFUSED);
	CHECK_CONTAINS(rmr_error_message(), "rmr_link_connect");
	CHECK_STATUS(raw_connect(&raw, noise, sizeof(noise)), RMR_REFUSED);
	CHECK_STATUS(raw_connect(&raw, noise, 15), RMR_REFUSED);
	CHECK_STATUS(raw_hello(&raw, ID, 0, 0), RMR_REFUSED);
	CHECK_STATUS(raw_hello(&raw, ID, 3, 3), RMR_REFUSED);
	CHECK_STATUS(raw_hello(&raw, ID, 0, RMR_DOMAINS_MAX + 1), RMR_REFUSED);
	/* Half-built links: two connections of one, and others that contradict it. */
	CHECK_OK(raw_hello(&raw, ID, 0, 3));
	CHECK_STATUS(raw_hello(&raw, ID, 0, 3), RMR_REFUSED);
	CHECK_STATUS(raw_hello(&raw, ID, 1, 4), RMR_REFUSED);
	CHECK_OK(raw_hello(&raw, ID, 2, 3));
	call_well(&server);
	raw_close(&raw);
	call_well(&server);
	server_join(&server);
}

/* Half-built links end after a while, and there are never more than the backlog says. */
static void test_half_built(void)
{
	struct server server;
	struct raw raw;

	server_start(&server, serve_impatiently, 2);
	raw_open(&raw, &server);
	call_well(&server);
	for (unsigned i = 0; i < 3; i++)
		CHECK_OK(raw_hello(&raw, ID + i, 0, 2));
	CHECK_STATUS(raw_hello(&raw, ID + 3, 0, 2), RMR_REFUSED);
	CHECK_CONTAINS(rmr_error_message(), "too many");
	raw_expect_disconnects(&raw, 3, PATIENCE_MS);
	call_well(&server);
	raw_close(&raw);
	server_join(&server);
}

/* ------------------------------------------------------------------------------------------
 * Links whose other end is made by hand
 */

/* Has a link with two raw connections, which must end in the time given, with this status. */
static void see_its_end(struct server *server)
{
	const enum rmr_status *status = server->arg;
	struct rmr_link_info info;
	struct side side;
	uint64_t begin_ns;

	side_open(&side, 2);
	side_listen(&side, NULL);
	server_tell(server, rmr_domains_listener_address(side.listener));
	side_accept(&side, NULL);
	test_signal(&server->pipe, TEST_CHILD);
	begin_ns = clock_now_ns();
	(void)side_expect(&side, RMR_OP_DISCONNECT, *status);
	CHECK((clock_now_ns() - begin_ns) / 1000000 < 5000 * TEST_TIME_FACTOR);
	rmr_link_get_info(side.link, &info);
	CHECK(!info.alive);
	CHECK_STATUS(rmr_link_export(side.link, side.region, &side.descriptor), RMR_DISCONNECTED);
	CHECK_EQ(rmr_domains_wait(side.domains, &(struct rmr_link_event){0}, 1, 50), 0);
	side_close(&side);
}

static void raw_link(struct raw *raw, struct server *server, enum rmr_status *status)
{
	server->arg = status;
	server_start(server, see_its_end, 2);
	raw_open(raw, server);
	CHECK_OK(raw_hello(raw, ID, 1, 2)); /* in any order */
	CHECK_OK(raw_hello(raw, ID, 0, 2));
	test_await(&server->pipe, TEST_PARENT);
}

/* One connection alone is lost: the link ends as a whole. */
static void test_one_lost(void)
{
	enum rmr_status status = RMR_DISCONNECTED;
	struct server server;
	struct raw raw;

	raw_link(&raw, &server, &status);
	rmr_conn_close(raw.conns[0]); /* lane 1 */
	raw.conns[0] = NULL;
	raw_expect_disconnects(&raw, 1, 5000 * TEST_TIME_FACTOR);
	server_join(&server);
	raw_close(&raw);
}

/* A message on a lane where none may come. */
static void test_message_on_a_lane(void)
{
	struct rmr_work send = {.op = RMR_OP_SEND, .flags = RMR_INLINE, .source = "?", .length = 1};
	enum rmr_status status = RMR_PROTOCOL;
	struct server server;
	struct raw raw;

	raw_link(&raw, &server, &status);
	CHECK_EQ(rmr_post(raw.conns[0], &send, 1), 1); /* lane 1 */
	raw_expect_disconnects(&raw, 2, 5000 * TEST_TIME_FACTOR);
	server_join(&server);
	raw_close(&raw);
}

/* Sends before its link is complete: it is dropped, and polling the domains is what does it. */
static void drop_early_speaker(struct server *server)
{
	struct rmr_link_request *request;
	struct rmr_link_event event;
	struct side side;

	side_open(&side, 2);
	side_listen(&side, NULL);
	server_tell(server, rmr_domains_listener_address(side.listener));
	while (side.listener->building_count == 0)
		CHECK_STATUS(rmr_domains_listener_next(side.listener, 10, &request), RMR_TIMEOUT);
	for (int i = 0; side.listener->building_count > 0; i++) {
		CHECK(i < (int)PATIENCE_MS / 10);
		CHECK_EQ(rmr_domains_wait(side.domains, &event, 1, 10), 0);
	}
	side_close(&side);
}

static void test_early_speaker(void)
{
	struct rmr_work send = {.op = RMR_OP_SEND, .flags = RMR_INLINE, .source = "?", .length = 1};
	struct server server;
	struct raw raw;

	server_start(&server, drop_early_speaker, 2);
	raw_open(&raw, &server);
	CHECK_OK(raw_hello(&raw, ID, 0, 2));
	CHECK_EQ(rmr_post(raw.conns[0], &send, 1), 1);
	raw_expect_disconnects(&raw, 1, PATIENCE_MS);
	server_join(&server);
	raw_close(&raw);
}

/* A caller that hangs up before it is answered. */
static void accept_late(struct server *server)
{
	struct rmr_link_request *request;
	struct rmr_link_event event;
	struct rmr_link *link;
	struct side side;

	side_open(&side, 2);
	side_listen(&side, NULL);
	server_tell(server, rmr_domains_listener_address(side.listener));
	CHECK_OK(rmr_domains_listener_next(side.listener, PATIENCE_MS, &request));
	test_await(&server->pipe, TEST_CHILD); /* the caller has given up */
	CHECK_EQ(rmr_domains_wait(side.domains, &event, 1, 300 * TEST_TIME_FACTOR), 0);
	CHECK_STATUS(rmr_link_accept(request, NULL, &link), RMR_DISCONNECTED);
	side_close(&side);
}

static void test_hung_up(void)
{
	struct server server;
	struct side side;

	server_start(&server, accept_late, 2);
	side_open(&side, 2);
	CHECK_STATUS(rmr_link_connect(side.domains, server_address(&server), 300 * TEST_TIME_FACTOR,
				      NULL, &side.link),
		     RMR_TIMEOUT);
	test_signal(&server.pipe, TEST_PARENT);
	server_join(&server);
	side_close(&side);
}

/* We call a listener of the plain fabric. */
static void listen_plainly(struct server *server)
{
	struct rmr_listener *listener;
	struct rmr_request *request;
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	char address[128];

	CHECK_OK(rmr_device_open(setup.devices[0], NULL, &device));
	CHECK_OK(rmr_queue_open(device, NULL, &queue));
	CHECK_OK(rmr_listener_open(device, fresh_address(0, address), NULL, &listener));
	server_tell(server, rmr_listener_address(listener));
	CHECK_OK(rmr_listener_next(listener, PATIENCE_MS, &request));
	CHECK_OK(rmr_accept(request, queue, NULL, &conn));
	test_await(&server->pipe, TEST_CHILD);
	rmr_conn_close(conn);
	rmr_listener_close(listener);
	rmr_queue_close(queue);
	rmr_device_close(device);
}

static void test_plain_listener(void)
{
	struct server server;
	struct side side;

	server_start(&server, listen_plainly, 1);
	side_open(&side, 1);
	CHECK_STATUS(rmr_link_connect(side.domains, server_address(&server), PATIENCE_MS, NULL,
				      &side.link),
		     RMR_PROTOCOL);
	test_signal(&server.pipe, TEST_PARENT);
	server_join(&server);
	side_close(&side);
}

const struct test raw_tests[] = {
	{"raw_garbage", test_garbage},
	{"raw_half_built", test_half_built},
	{"raw_one_connection_lost", test_one_lost},
	{"raw_message_on_a_lane", test_message_on_a_lane},
	{"raw_early_speaker", test_early_speaker},
	{"raw_hung_up", test_hung_up},
	{"raw_plain_listener", test_plain_listener},
	{0},
};
