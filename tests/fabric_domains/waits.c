/*
 * Waiting: sleeping on the descriptor, waking by another thread, timeouts.
 *
 * What these tests would catch: a descriptor that stays silent although there is something to take,
 * or readable although there is nothing; a wake-up that is lost.
 */
#include <poll.h>
#include <pthread.h>

#include "base/clock.h"
#include "side.h"

/* Waits as an event loop does, with the descriptor alone. */
static struct rmr_link_event loop_next(struct side *side)
{
	struct pollfd fd = {.fd = rmr_domains_fd(side->domains), .events = POLLIN};
	struct rmr_link_event event;

	for (;;) {
		if (rmr_domains_poll(side->domains, &event, 1) == 1)
			return event;
		if (rmr_domains_arm(side->domains) == RMR_OK && poll(&fd, 1, PATIENCE_MS) != 1)
			TEST_FAIL("the descriptor stays silent");
	}
}

static void test_event_loop(void)
{
	struct server server;
	struct side side;
	struct pollfd fd;

	server_start(&server, servant, 2);
	side_open(&side, 2);
	side_connect(&side, &server, NULL);
	for (int i = 0; i < 50; i++) {
		struct rmr_link_work work = side_work(&side, RMR_OP_READ, 0, 5 * STRIPE, 0);

		CHECK_OK(rmr_link_post(side.link, &work));
		CHECK_EQ(loop_next(&side).op, RMR_OP_READ);
	}
	/* Nothing to do: it goes to sleep after a few turns, and stays so. */
	fd = (struct pollfd){.fd = rmr_domains_fd(side.domains), .events = POLLIN};
	for (int i = 0;; i++) {
		CHECK(i < 100);
		CHECK_EQ(rmr_domains_poll(side.domains, &(struct rmr_link_event){0}, 1), 0);
		if (rmr_domains_arm(side.domains) == RMR_OK && poll(&fd, 1, 20) == 0)
			break;
	}
	server_kill(&server);
	CHECK_EQ(loop_next(&side).op, RMR_OP_DISCONNECT);
	side_close(&side);
}

static void *wake_soon(void *arg)
{
	test_sleep_ms(50);
	rmr_domains_wake(arg);
	return NULL;
}

static void test_wake(void)
{
	struct rmr_link_event event;
	pthread_t thread;
	struct side side;
	uint64_t begin_ns = clock_now_ns();

	side_open(&side, 3);
	CHECK_EQ(pthread_create(&thread, NULL, wake_soon, side.domains), 0);
	CHECK_EQ(rmr_domains_wait(side.domains, &event, 1, PATIENCE_MS), 0);
	CHECK((clock_now_ns() - begin_ns) / 1000000 < PATIENCE_MS / 2);
	pthread_join(thread, NULL);
	rmr_domains_wake(side.domains); /* also one that comes before the wait */
	CHECK_EQ(rmr_domains_wait(side.domains, &event, 1, PATIENCE_MS), 0);
	begin_ns = clock_now_ns();
	CHECK_EQ(rmr_domains_wait(side.domains, &event, 1, 100), 0);
	CHECK((clock_now_ns() - begin_ns) / 1000000 >= 99);
	side_close(&side);
}

const struct test wait_tests[] = {
	{"wait_event_loop", test_event_loop},
	{"wait_wake", test_wake},
	{0},
};
