/*
 * Works: many at once, messages among them, and works that are wrong.
 *
 * What these tests would catch: a completion that is lost or comes twice, a slot that is not given
 * back, messages out of order or ahead of what was written before them, a transfer that begins
 * although its end is out of bounds, a descriptor that is believed.
 */
#include <string.h>

#include "side.h"

#define WORKS 48

/* Posts; takes events while there is no room, and counts how often each cookie came. */
static void post_busily(struct side *side, const struct rmr_link_work *work, int *seen)
{
	enum rmr_status status;

	while ((status = rmr_link_post(side->link, work)) == RMR_AGAIN) {
		struct rmr_link_event event = side_next(side);

		CHECK_EQ(event.status, RMR_OK);
		seen[event.cookie]++;
	}
	CHECK_OK(status);
}

/* Takes events until each of the reads has completed, once. */
static void await_all(struct side *side, int *seen, int count)
{
	int left = count;

	for (int i = 0; i < count; i++)
		left -= seen[i];
	for (; left > 0; left--)
		seen[side_expect(side, RMR_OP_READ, RMR_OK).cookie]++;
	for (int i = 0; i < count; i++)
		CHECK_EQ(seen[i], 1);
}

/* Reads of all lengths at once, more than the depth, each into its own place. */
static void test_in_flight(void)
{
	struct rmr_link_options options = {.stripe = STRIPE, .depth = 16, .window = 3};
	struct server server;
	struct side side;
	size_t places[WORKS], lengths[WORKS], at = 0;
	int seen[WORKS] = {0};

	server_start(&server, servant, 2);
	side_open(&side, 3);
	side_connect(&side, &server, &options);
	servant_fill(&side, 0, side.size, 7);
	for (int i = 0; i < WORKS; i++) {
		lengths[i] = i % 3 == 0 ? 100 + (size_t)i : (size_t)i * 9973 % (5 * STRIPE) + 1;
		places[i] = at;
		at += lengths[i];
		CHECK(at <= side.size);
	}
	for (int i = 0; i < WORKS; i++) {
		struct rmr_link_work work =
			side_work(&side, RMR_OP_READ, places[i], lengths[i], places[i]);

		work.cookie = (uint64_t)i;
		post_busily(&side, &work, seen);
	}
	await_all(&side, seen, WORKS);
	pattern_check(side.memory, at, 7, "many reads");
	side_close(&side);
	server_join(&server);
}

/* A short read does not wait for the end of a long one that was posted before it. */
static void test_fair(void)
{
	struct rmr_link_options options = {.stripe = RMR_LINK_STRIPE_MIN, .window = 1};
	struct server server;
	struct side side;
	struct rmr_link_work work;

	server_start(&server, servant, 1);
	side_open(&side, 1);
	side_connect(&side, &server, &options);
	work = side_work(&side, RMR_OP_READ, 0, setup.large, 0);
	work.cookie = 1;
	CHECK_OK(rmr_link_post(side.link, &work));
	work.length = 8;
	work.cookie = 2;
	CHECK_OK(rmr_link_post(side.link, &work));
	CHECK_EQ(side_expect(&side, RMR_OP_READ, RMR_OK).cookie, 2);
	CHECK_EQ(side_expect(&side, RMR_OP_READ, RMR_OK).cookie, 1);
	side_close(&side);
	server_join(&server);
}

/* The depth is a limit, unsignaled works count, and their slots come back without an event. */
static void test_depth(void)
{
	struct rmr_link_options options = {.stripe = STRIPE, .depth = 4};
	struct server server;
	struct side side;
	struct rmr_link_work work;
	struct rmr_link_event event;

	server_start(&server, servant, 2);
	side_open(&side, 2);
	side_connect(&side, &server, &options);
	work = side_work(&side, RMR_OP_WRITE, 0, 3 * STRIPE, 0);
	for (int i = 0; i < 4; i++)
		CHECK_OK(rmr_link_post(side.link, &work));
	CHECK_STATUS(rmr_link_post(side.link, &work), RMR_AGAIN);
	for (int i = 0; i < 4; i++)
		(void)side_expect(&side, RMR_OP_WRITE, RMR_OK);
	work.flags = RMR_UNSIGNALED;
	for (int i = 0; i < 100; i++) {
		enum rmr_status status;

		while ((status = rmr_link_post(side.link, &work)) == RMR_AGAIN)
			CHECK_EQ(rmr_domains_poll(side.domains, &event, 1), 0);
		CHECK_OK(status);
	}
	work.flags = 0;
	work.cookie = 99;
	while (rmr_link_post(side.link, &work) == RMR_AGAIN)
		CHECK_EQ(rmr_domains_poll(side.domains, &event, 1), 0);
	CHECK_EQ(side_expect(&side, RMR_OP_WRITE, RMR_OK).cookie, 99);
	side_close(&side);
	server_join(&server);
}

/* No connection has more stripes in flight than the window says. */
static void test_window(void)
{
	struct rmr_link_options options = {.stripe = RMR_LINK_STRIPE_MIN, .window = 3};
	struct rmr_link_info info;
	struct rmr_link_work work;
	struct server server;
	struct side side;

	server_start(&server, servant, 2);
	side_open(&side, 2);
	side_connect(&side, &server, &options);
	work = side_work(&side, RMR_OP_READ, 0, 100 * RMR_LINK_STRIPE_MIN, 0);
	for (int i = 0; i < 3; i++)
		CHECK_OK(rmr_link_post(side.link, &work));
	rmr_link_get_info(side.link, &info);
	for (int i = 0; i < 2; i++) /* nothing has been polled yet */
		CHECK_EQ(info.connection[i].bytes, 3 * RMR_LINK_STRIPE_MIN);
	for (int i = 0; i < 3; i++)
		(void)side_expect(&side, RMR_OP_READ, RMR_OK);
	side_close(&side);
	server_join(&server);
}

/* ------------------------------------------------------------------------------------------
 * Messages
 */
#define MESSAGES 300

/* Each message says what was written before it; in order. */
static void check_numbers(struct server *server)
{
	struct side side;

	side_open(&side, server->domains);
	side_listen(&side, NULL);
	server_tell(server, rmr_domains_listener_address(side.listener));
	side_accept(&side, NULL);
	side_export(&side);
	for (uint64_t i = 0; i < MESSAGES; i++) {
		uint64_t number;

		side_recv(&side, &number, sizeof(number));
		CHECK_EQ(number, i);
		if (i % 10 == 0)
			pattern_check(side.memory, 3 * STRIPE, i, "written before the message");
		if (i % 10 == 0)
			side_send(&side, &number, sizeof(number));
	}
	(void)side_expect(&side, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
	side_close(&side);
}

/* The first message is answered, the second says that all is written. */
static void check_first_number(struct server *server)
{
	struct side side;
	uint64_t number;

	side_open(&side, server->domains);
	side_listen(&side, NULL);
	server_tell(server, rmr_domains_listener_address(side.listener));
	side_accept(&side, NULL);
	side_export(&side);
	side_recv(&side, &number, sizeof(number));
	CHECK_EQ(number, 1);
	side_send(&side, &number, sizeof(number));
	side_recv(&side, &number, sizeof(number));
	CHECK_EQ(number, 2);
	pattern_check(side.memory, setup.large, 5, "written among messages");
	side_close(&side);
}

static void test_messages(void)
{
	struct server server;
	struct side side;

	server_start(&server, check_numbers, 3);
	side_open(&side, 2);
	side_connect(&side, &server, NULL);
	for (uint64_t i = 0; i < MESSAGES; i++) {
		struct rmr_link_work write = side_work(&side, RMR_OP_WRITE, 0, 3 * STRIPE, 0);
		struct rmr_link_work send = {.op = RMR_OP_SEND,
					     .flags = RMR_INLINE,
					     .cookie = i,
					     .source = &i,
					     .length = sizeof(i)};

		if (i % 10 == 0) {
			pattern_fill(side.memory, 3 * STRIPE, i);
			side_do(&side, &write);
		}
		side_do(&side, &send);
		if (i % 10 == 0) {
			uint64_t number;

			side_recv(&side, &number, sizeof(number));
			CHECK_EQ(number, i);
		}
	}
	side_close(&side);
	server_join(&server);
}

/* Messages go there and back while a transfer is in flight, and all of it arrives. */
static void test_message_among_transfers(void)
{
	uint64_t number = 1;
	struct rmr_link_work work;
	struct server server;
	struct side side;
	bool written = false, answered = false;

	server_start(&server, check_first_number, 2);
	side_open(&side, 2);
	side_connect(&side, &server, NULL);
	pattern_fill(side.memory, setup.large, 5);
	work = side_work(&side, RMR_OP_WRITE, 0, setup.large, 0);
	CHECK_OK(rmr_link_post(side.link, &work));
	side_send(&side, &number, sizeof(number));
	while (!written || !answered) {
		struct rmr_link_event event = side_next(&side);

		CHECK_EQ(event.status, RMR_OK);
		if (event.op == RMR_OP_RECV)
			rmr_domains_recv_release(side.domains, &event);
		*(event.op == RMR_OP_RECV ? &answered : &written) = true;
	}
	number = 2;
	side_send(&side, &number, sizeof(number)); /* now it can be looked at */
	server_join(&server);
	side_close(&side);
}

/* ------------------------------------------------------------------------------------------
 * Works that are wrong
 */

static void test_bounds(void)
{
	struct server server;
	struct side side;
	struct rmr_link_work work;

	server_start(&server, servant, 2);
	side_open(&side, 2);
	side_connect(&side, &server, NULL);
	servant_fill(&side, 0, side.size, 3);
	work = side_work(&side, RMR_OP_WRITE, 0, 4 * STRIPE, side.size - 4 * STRIPE + 1);
	CHECK_STATUS(rmr_link_post(side.link, &work), RMR_ACCESS);
	CHECK_CONTAINS(rmr_error_message(), "the remote region has");
	work.offset = side.size + 1;
	work.length = 0;
	CHECK_STATUS(rmr_link_post(side.link, &work), RMR_ACCESS);
	work.offset = UINT64_MAX;
	work.length = 2;
	CHECK_STATUS(rmr_link_post(side.link, &work), RMR_ACCESS);
	/* Nothing was written, the link goes on, and up to the last byte all is well. */
	servant_check(&side, 0, side.size, 3);
	work = side_work(&side, RMR_OP_READ, 0, 4 * STRIPE, side.size - 4 * STRIPE);
	side_do(&side, &work);
	side_close(&side);
	server_join(&server);
}

static void serve_read_only(struct server *server)
{
	struct side side;

	side_open(&side, server->domains);
	rmr_domains_region_close(side.region);
	CHECK_OK(rmr_domains_region_open(side.domains, side.memory, side.size, RMR_READ,
					 &side.region));
	side_listen(&side, NULL);
	server_tell(server, rmr_domains_listener_address(side.listener));
	side_accept(&side, NULL);
	serve_link(&side);
	side_close(&side);
}

static void test_rights(void)
{
	struct server server;
	struct side side;
	struct rmr_link_work work;

	server_start(&server, serve_read_only, 2);
	side_open(&side, 2);
	CHECK_STATUS(rmr_domains_region_open(side.domains, side.memory, 64, RMR_ATOMIC,
					     &(struct rmr_domains_region *){NULL}),
		     RMR_INVALID);
	side_connect(&side, &server, NULL);
	CHECK_EQ(rmr_link_remote_rights(side.remote), RMR_READ);
	work = side_work(&side, RMR_OP_WRITE, 0, 8, 0);
	CHECK_STATUS(rmr_link_post(side.link, &work), RMR_ACCESS);
	work.op = RMR_OP_READ;
	side_do(&side, &work);
	side_close(&side);
	server_join(&server);
}

static void check_wrong(struct side *side, struct rmr_link_work work, enum rmr_status status)
{
	CHECK_STATUS(rmr_link_post(side->link, &work), status);
}

static void test_wrong_works(void)
{
	static uint8_t elsewhere[64];
	struct server server;
	struct side side;
	struct rmr_link_work good, bad;
	struct rmr_link_info info;

	server_start(&server, servant, 1);
	side_open(&side, 2);
	side_connect(&side, &server, NULL);
	rmr_link_get_info(side.link, &info);
	good = side_work(&side, RMR_OP_READ, 0, 64, 0);
	bad = good, bad.op = RMR_OP_FETCH_ADD;
	check_wrong(&side, bad, RMR_INVALID);
	bad = good, bad.flags = RMR_INLINE;
	check_wrong(&side, bad, RMR_INVALID);
	bad = good, bad.policy = (enum rmr_stripe)17;
	check_wrong(&side, bad, RMR_INVALID);
	bad = good, bad.remote = NULL;
	check_wrong(&side, bad, RMR_INVALID);
	bad = good, bad.region = NULL;
	check_wrong(&side, bad, RMR_INVALID);
	bad = good, bad.local = elsewhere;
	check_wrong(&side, bad, RMR_INVALID);
	bad = good, bad.local = side.memory + side.size - 63;
	check_wrong(&side, bad, RMR_INVALID);
	bad = good, bad.op = RMR_OP_SEND, bad.length = info.max_send + 1;
	check_wrong(&side, bad, RMR_TOO_LONG);
	bad = good, bad.op = RMR_OP_SEND, bad.region = NULL;
	check_wrong(&side, bad, RMR_INVALID);
	bad = good, bad.op = RMR_OP_SEND, bad.flags = RMR_MORE;
	check_wrong(&side, bad, RMR_INVALID);
	side_do(&side, &good);
	side_close(&side);
	server_join(&server);
}

/* ------------------------------------------------------------------------------------------
 * Descriptors
 */

static void check_refused(struct side *side, size_t at, uint8_t flip)
{
	struct rmr_link_descriptor wrong = side->descriptor;
	struct rmr_link_remote *remote;

	wrong.bytes[at] ^= flip;
	if (rmr_link_remote_open(side->link, &wrong, &remote) == RMR_OK)
		TEST_FAIL("a descriptor with byte %zu changed was taken", at);
}

/* Has two links at once, until both have ended. */
static void serve_two(struct server *server)
{
	struct rmr_link *first;
	struct side side;

	side_open(&side, server->domains);
	side_listen(&side, NULL);
	server_tell(server, rmr_domains_listener_address(side.listener));
	side_accept(&side, NULL);
	side_export(&side);
	first = side.link;
	side_accept(&side, NULL);
	side_export(&side);
	(void)side_expect(&side, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
	(void)side_expect(&side, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
	rmr_link_close(first);
	side_close(&side);
}

static void test_descriptors(void)
{
	struct rmr_link_descriptor noise;
	struct rmr_link_remote *remote;
	struct server server;
	struct side side, first;
	struct test_rng rng;
	struct rmr_link_work work;

	server_start(&server, serve_two, 2);
	side_open(&side, 2);
	side_connect(&side, &server, NULL);
	first = side;
	side_connect(&side, &server, NULL);
	test_rng_init(&rng, 1);
	test_rng_fill(&rng, &noise, sizeof(noise));
	CHECK_STATUS(rmr_link_remote_open(side.link, &noise, &remote), RMR_INVALID);
	memset(&noise, 0, sizeof(noise));
	CHECK_STATUS(rmr_link_remote_open(side.link, &noise, &remote), RMR_INVALID);
	CHECK_STATUS(rmr_link_remote_open(side.link, &first.descriptor, &remote), RMR_INVALID);
	CHECK_CONTAINS(rmr_error_message(), "another link");
	for (size_t at = 0; at < 24; at++) /* the whole header, up to what is reserved */
		check_refused(&side, at, 1);
	check_refused(&side, 32, 0xff);	     /* the magic of the first descriptor */
	check_refused(&side, 32 + 64, 0xff); /* and of the second: the first is closed again */
	work = side_work(&side, RMR_OP_READ, 0, 5 * STRIPE, 0);
	side_do(&side, &work);
	work.remote = first.remote;
	CHECK_STATUS(rmr_link_post(side.link, &work), RMR_INVALID);
	rmr_link_close(side.link);
	side.link = first.link;
	side.remote = NULL; /* closed with its link, as the other one will be */
	side_close(&side);
	server_join(&server);
}

const struct test work_tests[] = {
	{"work_in_flight", test_in_flight},
	{"work_fair", test_fair},
	{"work_depth", test_depth},
	{"work_window", test_window},
	{"work_messages", test_messages},
	{"work_message_among_transfers", test_message_among_transfers},
	{"work_bounds", test_bounds},
	{"work_rights", test_rights},
	{"work_wrong", test_wrong_works},
	{"work_descriptors", test_descriptors},
	{0},
};
