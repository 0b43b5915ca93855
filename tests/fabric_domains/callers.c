/*
 * Connecting: callers at once, private data, refusals, deadlines; and nothing is left behind.
 */
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "side.h"

/* ------------------------------------------------------------------------------------------
 * Several callers at once
 */
#define CALLERS 5

static char callee[ADDRESSES_MAX];

struct caller {
	uint32_t who;
	pid_t pid;
	struct test_pipe pipe;
};

static void call(void *arg)
{
	struct caller *caller = arg;
	uint32_t who = caller->who;
	struct rmr_link_options options = {.private_data = &who, .private_length = sizeof(who)};
	struct side side;
	uint32_t back;

	test_recv(&caller->pipe, TEST_CHILD, callee, sizeof(callee));
	side_open(&side, 1 + (int)who % 3);
	CHECK_OK(rmr_link_connect(side.domains, callee, PATIENCE_MS, &options, &side.link));
	side_send(&side, &who, sizeof(who));
	side_recv(&side, &back, sizeof(back));
	CHECK_EQ(back, who + 100);
	side_close(&side);
}

/* Takes one caller; tells by its private data who it is. */
static void take_one(struct side *side, struct rmr_link *links[CALLERS])
{
	struct rmr_link_request *request;
	struct rmr_link_info info;
	const void *bytes;
	size_t length;
	uint32_t who;

	CHECK_OK(rmr_domains_listener_next(side->listener, PATIENCE_MS, &request));
	bytes = rmr_link_request_private(request, &length);
	CHECK_EQ(length, sizeof(who));
	memcpy(&who, bytes, sizeof(who));
	CHECK(who < CALLERS && links[who] == NULL);
	CHECK(rmr_link_request_peer(request)[0] != '\0');
	CHECK_OK(rmr_link_accept(request, NULL, &links[who]));
	rmr_link_get_info(links[who], &info);
	CHECK_EQ(info.connections, who % 3 == 2 ? 3 : 2);
}

static void test_at_once(void)
{
	struct rmr_link *links[CALLERS] = {NULL};
	struct caller callers[CALLERS];
	struct side side;
	int ended = 0;

	for (uint32_t i = 0; i < CALLERS; i++) { /* before we have threads */
		callers[i].who = i;
		test_pipe_open(&callers[i].pipe);
		callers[i].pid = test_spawn(call, &callers[i]);
	}
	side_open(&side, 2);
	side_listen(&side, NULL);
	snprintf(callee, sizeof(callee), "%s", rmr_domains_listener_address(side.listener));
	for (int i = 0; i < CALLERS; i++)
		test_send(&callers[i].pipe, TEST_PARENT, callee, sizeof(callee));
	for (int i = 0; i < CALLERS; i++)
		take_one(&side, links);
	while (ended < CALLERS) {
		struct rmr_link_event event = side_next(&side);
		uint32_t who;

		if (event.op == RMR_OP_DISCONNECT) {
			ended++;
			continue;
		}
		if (event.op == RMR_OP_SEND && event.status != RMR_OK)
			continue; /* it has the answer, and closed before we learned it */
		CHECK_EQ(event.op, RMR_OP_RECV);
		memcpy(&who, event.data, sizeof(who));
		rmr_domains_recv_release(side.domains, &event);
		CHECK(who < CALLERS && event.link == links[who]);
		who += 100;
		side.link = event.link;
		side_send(&side, &who, sizeof(who));
	}
	for (int i = 0; i < CALLERS; i++) {
		rmr_link_close(links[i]);
		test_wait(callers[i].pid);
		test_pipe_close(&callers[i].pipe);
	}
	side.link = NULL;
	side_close(&side);
}

/* ------------------------------------------------------------------------------------------
 * Answers
 */

/* Turns two callers down, gives the third all the private bytes. */
static void answer(struct server *server)
{
	struct rmr_link_options options = {.private_data = "sixteen bytes...",
					   .private_length = 16};
	struct rmr_link_request *request;
	struct side side;

	side_open(&side, server->domains);
	side_listen(&side, NULL);
	server_tell(server, rmr_domains_listener_address(side.listener));
	for (int i = 0; i < 2; i++) {
		CHECK_OK(rmr_domains_listener_next(side.listener, PATIENCE_MS, &request));
		rmr_link_reject(request, "not on a Sunday");
	}
	side_accept(&side, &options);
	serve_link(&side);
	side_close(&side);
}

static void test_answers(void)
{
	struct rmr_link_options options = {.user = &callee};
	struct rmr_link_info info;
	struct server server;
	struct side side;
	int fds = 0;

	server_start(&server, answer, 2);
	side_open(&side, 3);
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(rmr_link_connect(side.domains, server_address(&server), PATIENCE_MS,
					      NULL, &side.link),
			     RMR_REFUSED);
		CHECK_CONTAINS(rmr_error_message(), "not on a Sunday");
		test_sleep_ms(20); /* a provider may close behind the scenes */
		if (i == 0)	   /* ... and open something at the first call */
			fds = test_open_fds();
	}
	CHECK_EQ(test_open_fds(), fds);
	side_connect(&side, &server, &options);
	rmr_link_get_info(side.link, &info);
	CHECK_EQ(info.private_length, 16);
	CHECK_MEM(info.private_data, "sixteen bytes...", 16);
	CHECK_EQ(info.stripe, 256 * KIB);
	CHECK_EQ(info.depth, 64);
	CHECK(info.peer[0] != '\0');
	CHECK(rmr_link_user(side.link) == &callee);
	side_close(&side);
	server_join(&server);
}

static void check_options(struct side *side, struct rmr_link_options options,
			  enum rmr_status status)
{
	CHECK_STATUS(rmr_link_connect(side->domains, callee, 1000, &options, &side->link), status);
}

static void test_wrong_arguments(void)
{
	const char *names[RMR_DOMAINS_MAX + 1], *commas[] = {"a,b"};
	char many[RMR_DOMAINS_MAX * 2 + 2];
	struct rmr_domains *domains;
	struct side side;
	int fds = test_open_fds();

	for (int i = 0; i <= RMR_DOMAINS_MAX; i++) {
		names[i] = setup.devices[0];
		memcpy(many + 2 * i, "a,", 2);
	}
	many[sizeof(many) - 1] = '\0';
	CHECK_STATUS(rmr_domains_open(names, 0, NULL, &domains), RMR_INVALID);
	CHECK_STATUS(rmr_domains_open(names, RMR_DOMAINS_MAX + 1, NULL, &domains), RMR_LIMIT);
	names[1] = "nonsense";
	CHECK_STATUS(rmr_domains_open(names, 2, NULL, &domains), RMR_NO_DEVICE);
	CHECK_EQ(test_open_fds(), fds);

	side_open(&side, 1);
	side_listen(&side, NULL);
	CHECK_STATUS(rmr_domains_listen(side.domains, commas, NULL, &side.listener),
		     RMR_BAD_ADDRESS);
	CHECK_STATUS(rmr_link_connect(side.domains, "", 1000, NULL, &side.link), RMR_BAD_ADDRESS);
	CHECK_STATUS(rmr_link_connect(side.domains, "a,,b", 1000, NULL, &side.link),
		     RMR_BAD_ADDRESS);
	CHECK_STATUS(rmr_link_connect(side.domains, many, 1000, NULL, &side.link), RMR_LIMIT);
	snprintf(callee, sizeof(callee), "%s", rmr_domains_listener_address(side.listener));
	check_options(&side, (struct rmr_link_options){.stripe = 100}, RMR_INVALID);
	check_options(&side, (struct rmr_link_options){.stripe = SIZE_MAX}, RMR_INVALID);
	check_options(&side, (struct rmr_link_options){.policy = 9}, RMR_INVALID);
	check_options(&side, (struct rmr_link_options){.depth = RMR_LINK_DEPTH_MAX + 1}, RMR_LIMIT);
	check_options(&side, (struct rmr_link_options){.window = RMR_LINK_WINDOW_MAX + 1},
		      RMR_LIMIT);
	check_options(&side, (struct rmr_link_options){.private_data = many, .private_length = 17},
		      RMR_TOO_LONG);
	side_close(&side);
}

/* An address to which there is no way: the lane takes another, and both lanes work. */
static void test_no_way(void)
{
	char addresses[ADDRESSES_MAX + 256], nonsense[200];
	struct rmr_link_info info;
	struct rmr_link_work work;
	struct server server;
	struct side side;

	memset(nonsense, 'x', sizeof(nonsense)); /* no port, and too long for a socket's name */
	nonsense[sizeof(nonsense) - 1] = '\0';
	server_start(&server, servant, 1);
	side_open(&side, 1);
	snprintf(addresses, sizeof(addresses), "%s,%s", server_address(&server), nonsense);
	CHECK_OK(rmr_link_connect(side.domains, addresses, PATIENCE_MS, NULL, &side.link));
	side_import(&side);
	work = side_work(&side, RMR_OP_READ, 0, MIB, 0);
	side_do(&side, &work);
	rmr_link_get_info(side.link, &info);
	CHECK_EQ(info.connections, 2);
	CHECK_EQ(info.connection[1].bytes, MIB / 2);
	side_close(&side);
	server_join(&server);
}

/* A listener where nobody takes callers; and one that is no longer there. */
static void sleep_at_listener(struct server *server)
{
	struct side side;

	side_open(&side, server->domains);
	side_listen(&side, NULL);
	server_tell(server, rmr_domains_listener_address(side.listener));
	test_await(&server->pipe, TEST_CHILD);
	side_close(&side);
}

static void test_nobody(void)
{
	struct server server;
	struct side side;
	uint64_t begin_ns, took_ms;

	server_start(&server, sleep_at_listener, 2);
	side_open(&side, 2);
	(void)server_address(&server);
	begin_ns = clock_now_ns();
	CHECK_STATUS(rmr_link_connect(side.domains, server.address, 300, NULL, &side.link),
		     RMR_TIMEOUT);
	took_ms = (clock_now_ns() - begin_ns) / 1000000;
	CHECK(took_ms >= 290 && took_ms < 2000 * TEST_TIME_FACTOR);
	test_signal(&server.pipe, TEST_PARENT);
	server_join(&server);
	CHECK_STATUS(rmr_link_connect(side.domains, server.address, PATIENCE_MS, NULL, &side.link),
		     RMR_REFUSED);
	CHECK_CONTAINS(rmr_error_message(), "connection 1 of 2");
	side_close(&side);
}

/* ------------------------------------------------------------------------------------------
 * Leaks
 */
#define WARM_UP	   10
#define RECONNECTS 50

struct usage {
	int fds;
	size_t bytes;
};

/* After a pause in which a provider's helper thread, if there is one, has had its turn: what it
 * allocates once is no leak. */
static struct usage usage_settled(void)
{
	struct usage usage;

	test_sleep_ms(20);
	usage = (struct usage){test_open_fds(), 0};
	/* A sanitizer's allocator has no such figure; asan finds leaks by itself. */
	if (!TEST_HAS_SANITIZER)
		usage.bytes = mallinfo2().uordblks;
	return usage;
}

static void check_usage(struct usage before, const char *who)
{
	struct usage now = usage_settled();

	/* The C library counts what its threads keep for reuse, some KiB; a leak would be more: an
	 * object that is forgotten is one of fifty links, or 150 connections. */
	if (now.fds != before.fds || now.bytes > before.bytes + 16384)
		TEST_FAIL("%s leaks: descriptors %d -> %d, bytes %zu -> %zu", who, before.fds,
			  now.fds, before.bytes, now.bytes);
}

static void serve_again_and_again(struct server *server)
{
	struct usage before = {0};
	struct side side;

	side_open(&side, server->domains);
	side_listen(&side, NULL);
	server_tell(server, rmr_domains_listener_address(side.listener));
	for (int i = 0; i < WARM_UP + RECONNECTS; i++) {
		if (i == WARM_UP)
			before = usage_settled();
		side_accept(&side, NULL);
		serve_link(&side);
	}
	check_usage(before, "the server");
	side_close(&side);
}

static void test_reconnect(void)
{
	struct usage before = {0};
	struct server server;
	struct side side;

	server_start(&server, serve_again_and_again, 2);
	side_open(&side, 3);
	(void)server_address(&server);
	for (int i = 0; i < WARM_UP + RECONNECTS; i++) {
		struct rmr_link_work work;

		if (i == WARM_UP)
			before = usage_settled();
		side_connect(&side, &server, NULL);
		work = side_work(&side, RMR_OP_READ, 0, 4 * STRIPE, 0);
		side_do(&side, &work);
		if (i % 2) /* in the middle of something */
			CHECK_OK(rmr_link_post(side.link, &work));
		rmr_link_close(side.link);
		side.link = NULL;
		side.remote = NULL;
	}
	check_usage(before, "the client");
	server_join(&server);
	side_close(&side);
}

const struct test caller_tests[] = {
	{"caller_several_at_once", test_at_once},
	{"caller_answers", test_answers},
	{"caller_wrong_arguments", test_wrong_arguments},
	{"caller_no_way", test_no_way},
	{"caller_nobody_there", test_nobody},
	{"caller_reconnects", test_reconnect},
	{0},
};
