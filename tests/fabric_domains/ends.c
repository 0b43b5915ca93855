/*
 * How links end: the peer is killed, closes, takes its memory back.
 *
 * What these tests would catch: a work without a completion, one with two, a second disconnect, a
 * wait that never ends, a last message that is lost because another connection closed sooner.
 */
#include <string.h>

#include "base/clock.h"
#include "side.h"

#define IN_FLIGHT 16

/* Posts transfers as long as the link takes them, so that IN_FLIGHT are on their way. Returns how
 * many were posted. */
static int top_up(struct side *side, enum rmr_op op, int in_flight)
{
	struct rmr_link_work work = side_work(side, op, 0, 20 * STRIPE + 1, 0);
	int posted = 0;

	while (in_flight + posted < IN_FLIGHT) {
		enum rmr_status status = rmr_link_post(side->link, &work);

		if (status == RMR_DISCONNECTED)
			break;
		CHECK_OK(status);
		posted++;
	}
	return posted;
}

/* Takes all that the lost link has to say: errors, one disconnect, as the last. */
static void check_end(struct side *side, int in_flight, uint64_t deadline_ns)
{
	for (;;) {
		struct rmr_link_event event = side_next(side);

		CHECK(event.link == side->link);
		CHECK(!clock_passed(deadline_ns));
		if (event.op == RMR_OP_DISCONNECT)
			break;
		in_flight--;
	}
	CHECK_EQ(in_flight, 0);
	CHECK_EQ(rmr_domains_wait(side->domains, &(struct rmr_link_event){0}, 1, 100), 0);
	CHECK_STATUS(rmr_link_post(side->link, &(struct rmr_link_work){.op = RMR_OP_SEND}),
		     RMR_DISCONNECTED);
}

static void check_killed(int ours, int theirs, enum rmr_op op)
{
	struct server server;
	struct side side;
	uint64_t deadline_ns;
	int in_flight = 0;

	server_start(&server, servant, theirs);
	side_open(&side, ours);
	side_connect(&side, &server, NULL);
	for (int taken = 0; taken < 40; taken++) {
		in_flight += top_up(&side, op, in_flight);
		(void)side_expect(&side, op, RMR_OK);
		in_flight--;
	}
	in_flight += top_up(&side, op, in_flight);
	server_kill(&server);
	deadline_ns = clock_deadline_ns(5000 * TEST_TIME_FACTOR);
	/* On shm the dead one's memory can be used until its death is noticed. */
	for (;;) {
		struct rmr_link_event event = side_next(&side);

		CHECK(!clock_passed(deadline_ns));
		CHECK_EQ(event.op, op);
		in_flight--;
		if (event.status != RMR_OK)
			break;
		in_flight += top_up(&side, op, in_flight);
	}
	check_end(&side, in_flight, deadline_ns);
	side_close(&side);
}

static void test_killed(void)
{
	check_killed(2, 2, RMR_OP_READ);
	check_killed(1, 3, RMR_OP_WRITE);
	check_killed(3, 2, RMR_OP_READ);
}

/* The peer is killed while nothing is going on: one disconnect. */
static void test_killed_idle(void)
{
	struct server server;
	struct side side;

	server_start(&server, servant, 3);
	side_open(&side, 2);
	side_connect(&side, &server, NULL);
	server_kill(&server);
	check_end(&side, 0, clock_deadline_ns(5000 * TEST_TIME_FACTOR));
	rmr_link_remote_close(side.remote); /* legal on a lost link */
	side.remote = NULL;
	side_close(&side);
}

/* Says goodbye and closes. */
static void say_goodbye(struct server *server)
{
	struct side side;

	side_open(&side, server->domains);
	side_listen(&side, NULL);
	server_tell(server, rmr_domains_listener_address(side.listener));
	for (int i = 0; i < 20; i++) {
		side_accept(&side, NULL);
		for (int k = 0; k < 3; k++) {
			struct rmr_link_work send = side_work(&side, RMR_OP_SEND, 0, 1000, 0);

			pattern_fill(side.memory, 1000, (uint64_t)k);
			side_do(&side, &send);
		}
		rmr_link_close(side.link);
		side.link = NULL;
	}
	side_close(&side);
}

static void test_goodbye(void)
{
	uint8_t message[1000];
	struct server server;
	struct side side;

	server_start(&server, say_goodbye, 3);
	side_open(&side, 2);
	for (int i = 0; i < 20; i++) {
		CHECK_OK(rmr_link_connect(side.domains, server_address(&server), PATIENCE_MS, NULL,
					  &side.link));
		if (i % 2)
			test_sleep_ms(5); /* all is there before we look */
		for (uint64_t k = 0; k < 3; k++) {
			side_recv(&side, message, sizeof(message));
			pattern_check(message, sizeof(message), k, "goodbye");
		}
		(void)side_expect(&side, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
		rmr_link_close(side.link);
		side.link = NULL;
	}
	side_close(&side);
	server_join(&server);
}

/* The peer's region is closed: the transfers fail, and the link ends on both sides, soon. */
static void test_region_closed(void)
{
	struct server server;
	struct side side;
	struct rmr_link_work work;
	uint64_t begin_ns;

	server_start(&server, servant, 2);
	side_open(&side, 3);
	side_connect(&side, &server, NULL);
	servant_close_region(&side);
	begin_ns = clock_now_ns();
	work = side_work(&side, RMR_OP_WRITE, 0, 7 * STRIPE, 0);
	work.cookie = 5;
	CHECK_OK(rmr_link_post(side.link, &work));
	CHECK_EQ(side_expect(&side, RMR_OP_WRITE, RMR_ACCESS).cookie, 5);
	(void)side_expect(&side, RMR_OP_DISCONNECT, RMR_ACCESS);
	CHECK((clock_now_ns() - begin_ns) / 1000000 < 900 * TEST_TIME_FACTOR);
	server_join(&server); /* it has seen one disconnect, and closed */
	side_close(&side);
}

/* Closing in the middle of transfers: nothing comes out afterwards, memory is ours again. */
static void test_close_busy(void)
{
	struct server server;
	struct side side;
	struct rmr_link_event event;

	server_start(&server, servant, 2);
	side_open(&side, 2);
	side_connect(&side, &server, NULL);
	(void)top_up(&side, RMR_OP_READ, 0);
	(void)rmr_domains_poll(side.domains, &event, 1);
	rmr_link_close(side.link);
	side.link = NULL;
	side.remote = NULL;
	memset(side.memory, 0x5a, side.size);
	CHECK_EQ(rmr_domains_wait(side.domains, &event, 1, 50), 0);
	guard_check(side.memory, side.size, 0x5a, "after closing");
	server_join(&server);
	side_close(&side);
}

const struct test end_tests[] = {
	{"end_killed", test_killed},	     {"end_killed_idle", test_killed_idle},
	{"end_goodbye", test_goodbye},	     {"end_region_closed", test_region_closed},
	{"end_close_busy", test_close_busy}, {0},
};
