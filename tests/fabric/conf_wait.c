/*
 * Waiting: timeouts are kept, wake-ups are not lost, a sleeping pair costs nothing.
 *
 * What these tests would catch: a wait that returns early or late, an event between the last look
 * and the sleep, a wake that is forgotten because nobody slept yet, a process that spins for ever.
 */
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "conformance.h"
#include "puppet.h"

static void test_timeout(void)
{
	static const int timeouts_ms[] = {0, 1, 10, 100, 250};
	struct rmr_completion c;
	struct puppet puppet;
	struct node node;
	uint64_t begin_ns, took_us;
	size_t i;

	pair_open(&puppet, &node, NULL);
	for (i = 0; i < TEST_COUNT(timeouts_ms); i++) {
		begin_ns = clock_now_ns();
		CHECK_EQ(rmr_wait(node.queue, &c, 1, timeouts_ms[i]), 0);
		took_us = (clock_now_ns() - begin_ns) / 1000;
		if (took_us + 100 < (uint64_t)timeouts_ms[i] * 1000 ||
		    took_us > (uint64_t)(timeouts_ms[i] + 100 * TEST_TIME_FACTOR) * 1000)
			TEST_FAIL("rmr_wait(%d ms) took %llu us", timeouts_ms[i],
				  (unsigned long long)took_us);
	}
	pair_close(&puppet, &node);
}

/* ------------------------------------------------------------------------------------------
 * rmr_queue_wake
 */
static void *wake_later(void *queue)
{
	test_sleep_ms(30);
	rmr_queue_wake(queue);
	return NULL;
}

static void test_wake(void)
{
	struct rmr_completion c;
	struct puppet puppet;
	struct node node;
	pthread_t thread;
	uint64_t begin_ns;
	int i;

	pair_open(&puppet, &node, NULL);
	for (i = 0; i < 5; i++) {
		/* One that sleeps comes back ... */
		CHECK_EQ(pthread_create(&thread, NULL, wake_later, node.queue), 0);
		begin_ns = clock_now_ns();
		CHECK_EQ(rmr_wait(node.queue, &c, 1, PATIENCE_MS), 0);
		CHECK(clock_now_ns() - begin_ns < 2000000000ull * TEST_TIME_FACTOR);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		/* ... and one that is about to sleep does not even begin, once. */
		rmr_queue_wake(node.queue);
		begin_ns = clock_now_ns();
		CHECK_EQ(rmr_wait(node.queue, &c, 1, PATIENCE_MS), 0);
		CHECK(clock_now_ns() - begin_ns < 1000000000ull * TEST_TIME_FACTOR);
		begin_ns = clock_now_ns();
		CHECK_EQ(rmr_wait(node.queue, &c, 1, 40), 0);
		CHECK(clock_now_ns() - begin_ns >= 39000000u);
	}
	/* What there is to take is taken all the same. */
	puppet_send(&puppet, 0, 10, 1);
	rmr_queue_wake(node.queue);
	node_recv(&node, 10, 1);
	pair_close(&puppet, &node);
}

/* ------------------------------------------------------------------------------------------
 * rmr_queue_fd and rmr_queue_arm
 */
#define PING_PONGS (20000 / TEST_TIME_FACTOR)

/* Sleeps in poll(2) as an event loop would, every time. */
static struct rmr_completion next_by_fd(struct node *node)
{
	struct pollfd pollfd = {.fd = rmr_queue_fd(node->queue), .events = POLLIN};
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct rmr_completion c;
	enum rmr_status status;

	while (rmr_poll(node->queue, &c, 1) == 0) {
		status = rmr_queue_arm(node->queue);
		CHECK(status == RMR_OK || status == RMR_AGAIN);
		if (status == RMR_OK)
			poll(&pollfd, 1, clock_remaining_ms(deadline_ns));
		if (clock_passed(deadline_ns))
			TEST_FAIL("a wake-up was lost");
	}
	return c;
}

/* Both sides: now by poll(2), now by rmr_wait, in turns of different length. */
static struct rmr_completion next_either_way(struct node *node, uint64_t i, uint64_t turn)
{
	return i / turn % 3 == 0 ? node_next(node) : next_by_fd(node);
}

static void ping(struct node *node, uint64_t number)
{
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_INLINE | RMR_UNSIGNALED,
				.local = &number,
				.length = sizeof(number)};

	node_post(node, &work);
}

static void pong(struct node *node, const struct rmr_completion *c, uint64_t expected)
{
	uint64_t number;

	CHECK_EQ(c->op, RMR_OP_RECV);
	CHECK_EQ(c->length, sizeof(number));
	memcpy(&number, c->data, sizeof(number));
	CHECK_EQ(number, expected);
	rmr_recv_release(node->queue, c->data);
}

static void answer_pings(struct node *node)
{
	struct rmr_queue_options options = {.spin_us = -1};
	struct rmr_completion c;
	uint64_t i;

	node_open(node, &options);
	node_accept(node, NULL);
	for (i = 0; i < PING_PONGS; i++) {
		c = next_either_way(node, i, 7);
		pong(node, &c, i);
		ping(node, i);
	}
	node_expect_disconnect(node, node->conn);
	node_close(node);
}

static void test_event_loop(void)
{
	struct rmr_queue_options options = {.spin_us = -1};
	struct rmr_completion c;
	struct peer peer;
	struct node node = {0};
	uint64_t i;

	peer_start(&peer, answer_pings, NULL);
	node_open(&node, &options);
	node_connect(&node, &peer, NULL);
	for (i = 0; i < PING_PONGS; i++) {
		ping(&node, i);
		c = next_either_way(&node, i, 5);
		pong(&node, &c, i);
	}
	rmr_conn_close(node.conn);
	node.conn = NULL;
	peer_join(&peer);
	node_close(&node);
}

/* Armed, and nothing happens: the descriptor becomes quiet. Peers that go to sleep themselves may
 * have something to say about that, but not again and again. */
static void fall_quiet(struct node *node)
{
	struct pollfd pollfd = {.fd = rmr_queue_fd(node->queue), .events = POLLIN};
	struct rmr_completion c;

	for (int i = 0; i < 4; i++) {
		while (rmr_queue_arm(node->queue) == RMR_AGAIN)
			CHECK_EQ(rmr_poll(node->queue, &c, 1), 0);
		if (poll(&pollfd, 1, 50) == 0)
			return;
		CHECK_EQ(rmr_poll(node->queue, &c, 1), 0);
	}
	TEST_FAIL("it is not quiet");
}

/* A message and a lost peer make it readable. */
static void test_quiet_fd(void)
{
	struct pollfd pollfd = {.events = POLLIN};
	struct rmr_completion c;
	struct puppet puppet;
	struct node node;

	pair_open(&puppet, &node, NULL);
	pollfd.fd = rmr_queue_fd(node.queue);
	CHECK_EQ(rmr_poll(node.queue, &c, 1), 0);
	fall_quiet(&node);
	puppet_send(&puppet, 0, 10, 1);
	CHECK_EQ(poll(&pollfd, 1, PATIENCE_MS), 1);
	node_recv(&node, 10, 1);
	fall_quiet(&node);
	peer_kill(&puppet.peer);
	CHECK_EQ(poll(&pollfd, 1, PATIENCE_MS), 1);
	node_expect_disconnect(&node, node.conn);
	node_close(&node);
}

/* ------------------------------------------------------------------------------------------
 * Idle
 */
#define IDLE_MS 2000

static uint64_t cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* Sleeps for a while and checks that this cost less than 1% of a core. */
static void check_idle(struct node *node, bool in_wait)
{
	uint64_t before_us = cpu_us(), deadline_ns = clock_deadline_ns(IDLE_MS), used_us;
	struct rmr_completion c;

	if (!in_wait)
		test_sleep_ms(IDLE_MS);
	while (!clock_passed(deadline_ns))
		CHECK_EQ(rmr_wait(node->queue, &c, 1, clock_remaining_ms(deadline_ns)), 0);
	used_us = cpu_us() - before_us;
	if (used_us > IDLE_MS * 1000 / 100)
		TEST_FAIL("idle for %d ms took %llu us of CPU (%s)", IDLE_MS,
			  (unsigned long long)used_us, in_wait ? "in rmr_wait" : "asleep");
}

static void idle_role(struct node *node)
{
	node_open(node, NULL);
	node_accept(node, NULL);
	node_recv(node, 10, 1);
	test_signal(node->pipe, TEST_CHILD);
	check_idle(node, *(bool *)node->arg);
	test_await(node->pipe, TEST_CHILD);
	node_close(node);
}

static void check_idle_pair(bool in_wait)
{
	struct peer peer;
	struct node node = {0};

	peer_start(&peer, idle_role, &in_wait);
	node_open(&node, NULL);
	node_connect(&node, &peer, NULL);
	node_send(&node, 10, 1);
	test_await(&peer.pipe, TEST_PARENT);
	check_idle(&node, in_wait);
	test_signal(&peer.pipe, TEST_PARENT);
	peer_join(&peer);
	node_close(&node);
}

static void test_idle_asleep(void)
{
	check_idle_pair(false);
}

static void test_idle_in_wait(void)
{
	check_idle_pair(true);
}

const struct test wait_tests[] = {
	{"wait_timeout", test_timeout},
	{"wait_wake", test_wake},
	{"wait_event_loop_loses_nothing", test_event_loop},
	{"wait_quiet_descriptor", test_quiet_fd},
	{"wait_idle_asleep", test_idle_asleep, TEST_SLOW},
	{"wait_idle_in_rmr_wait", test_idle_in_wait, TEST_SLOW},
	{NULL},
};
