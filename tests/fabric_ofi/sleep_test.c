/*
 * Sleeping on ofi queues, where the peer wakes one up (fabric/ofi/sleep.c): two threads send each
 * other messages in turn, and before each turn either polls, sleeps at once, after a while, or does
 * something else first. Whoever sleeps through a message fails the test.
 *
 * What these tests would catch: a word that is not said, or said with the wrong count; a packet
 * that stays with libfabric while its sender sleeps; one side that must be rung for, and another
 * one that need not.
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "fabric/ofi/internal.h"
#include "harness/test.h"

#define PATIENCE_MS (8000 * (int)TEST_TIME_FACTOR)

enum { LONGEST = 256, MOST = 24 };

/* One end: a thread with a device, and so with a helper, of its own. */
struct end {
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct test_rng rng;
	unsigned turns;
	unsigned naps; /* times that it went to sleep */
	uint64_t sent, heard;
	pthread_t thread;
};

static void end_open(struct end *end, const char *wake, uint64_t seed, unsigned turns)
{
	struct rmr_queue_options options = {.spin_us = -1};

	*end = (struct end){.turns = turns};
	test_rng_init(&end->rng, seed);
	CHECK_EQ(setenv("REMORA_OFI_WAKE", wake, 1), 0);
	CHECK_OK(rmr_device_open("ofi:tcp", NULL, &end->device));
	CHECK_EQ(unsetenv("REMORA_OFI_WAKE"), 0);
	CHECK_OK(rmr_queue_open(end->device, &options, &end->queue));
}

static void end_close(struct end *end)
{
	rmr_conn_close(end->conn);
	rmr_queue_close(end->queue);
	rmr_device_close(end->device);
}

struct call {
	struct end *end;
	struct rmr_listener *listener;
};

static void *take_call(void *arg)
{
	struct call *call = arg;
	struct rmr_request *request;

	CHECK_OK(rmr_listener_next(call->listener, PATIENCE_MS, &request));
	CHECK_OK(rmr_accept(request, call->end->queue, NULL, &call->end->conn));
	return NULL;
}

static void connect_ends(struct end *caller, struct end *called)
{
	struct call call = {.end = called};
	pthread_t thread;

	CHECK_OK(rmr_listener_open(called->device, "127.0.0.1:0", NULL, &call.listener));
	CHECK_EQ(pthread_create(&thread, NULL, take_call, &call), 0);
	CHECK_OK(rmr_connect(caller->queue, rmr_listener_address(call.listener), PATIENCE_MS, NULL,
			     &caller->conn));
	CHECK_EQ(pthread_join(thread, NULL), 0);
	rmr_listener_close(call.listener);
}

/* Counts what was heard. Returns whether it was the last of a turn. */
static bool hear(struct end *end, const struct rmr_completion *c)
{
	uint64_t number;
	bool is_last;

	if (c->op == RMR_OP_SEND) {
		CHECK_EQ(c->status, RMR_OK);
		return false;
	}
	CHECK_EQ(c->op, RMR_OP_RECV);
	CHECK(c->length >= 9);
	memcpy(&number, c->data, sizeof(number));
	CHECK_EQ(number, end->heard);
	end->heard++;
	is_last = ((const uint8_t *)c->data)[8];
	rmr_recv_release(end->queue, c->data);
	return is_last;
}

/* Takes what there is. Returns whether the turn is ours. */
static bool look(struct end *end)
{
	struct rmr_completion completions[16];
	int count = rmr_poll(end->queue, completions, 16);
	bool ours = false;

	for (int i = 0; i < count; i++)
		ours |= hear(end, &completions[i]);
	return ours;
}

static bool look_for_us(struct end *end, unsigned us)
{
	uint64_t until_ns = clock_now_ns() + us * 1000ull;
	bool ours = false;

	while (!ours && !clock_passed(until_ns))
		ours = look(end);
	return ours;
}

static void sleep_until_ours(struct end *end)
{
	struct pollfd pollfd = {.fd = rmr_queue_fd(end->queue), .events = POLLIN};

	while (!look(end)) {
		if (rmr_queue_arm(end->queue) != RMR_OK)
			continue;
		end->naps++;
		if (poll(&pollfd, 1, PATIENCE_MS) != 1)
			TEST_FAIL("slept through message %lu", (unsigned long)end->heard);
	}
}

static void await_turn(struct end *end)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);

	switch (test_rng_below(&end->rng, 4)) {
	case 0:
		while (!look(end))
			CHECK(!clock_passed(deadline_ns));
		return;
	case 1:
		if (look_for_us(end, (unsigned)test_rng_below(&end->rng, 150)))
			return;
		break;
	case 2:
		usleep((useconds_t)test_rng_below(&end->rng, 300));
		break;
	}
	sleep_until_ours(end);
}

static void send_turn(struct end *end)
{
	unsigned count = test_rng_below(&end->rng, 4) ? 1 : 1 + test_rng_below(&end->rng, MOST);

	for (unsigned i = 0; i < count; i++) {
		static _Thread_local uint8_t text[LONGEST];
		struct rmr_work work = {.op = RMR_OP_SEND,
					.flags = RMR_INLINE | RMR_UNSIGNALED,
					.source = text,
					.length = 9};
		uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);

		if (test_rng_below(&end->rng, 4) == 0)
			work.length += test_rng_below(&end->rng, 200);
		memcpy(text, &end->sent, sizeof(end->sent));
		text[8] = i + 1 == count;
		end->sent++;
		while (rmr_post(end->conn, &work, 1) != 1) {
			CHECK(!look(end)); /* there is no room; the other side does not speak */
			CHECK(!clock_passed(deadline_ns));
		}
	}
}

static void *play(void *arg)
{
	struct end *end = arg;

	for (unsigned turn = 0; turn < end->turns; turn++) {
		send_turn(end);
		await_turn(end);
	}
	return NULL;
}

/* Two ends that send in turn; the second one begins by listening. */
static void play_both(const char *one, const char *other, unsigned turns)
{
	struct end caller, called;

	end_open(&caller, one, 1, turns);
	end_open(&called, other, 2, turns);
	connect_ends(&caller, &called);
	CHECK_EQ(pthread_create(&caller.thread, NULL, play, &caller), 0);
	for (unsigned turn = 0; turn < turns; turn++) {
		await_turn(&called);
		send_turn(&called);
	}
	CHECK_EQ(pthread_join(caller.thread, NULL), 0);
	CHECK_EQ(caller.heard, called.sent);
	CHECK_EQ(called.heard, caller.sent);
	/* Of the turns 22 to 60% were; were it hardly any, it would be no test. */
	CHECK(caller.naps > turns / 20 && called.naps > turns / 20);
	end_close(&caller);
	end_close(&called);
}

/* ------------------------------------------------------------------------------------------
 * One sleeps or does nothing at all, the other one polls and never says a word about that
 */

struct bulk {
	struct end *end;
	const void *source;
	size_t length;
	struct rmr_region *region;
	struct rmr_remote *remote;
};

static void *poll_until_told(void *arg)
{
	struct end *end = arg;
	bool told = false;

	while (!told)
		told = look(end);
	return NULL;
}

static void write_and_sleep(struct bulk *bulk)
{
	struct pollfd pollfd = {.fd = rmr_queue_fd(bulk->end->queue), .events = POLLIN};
	struct rmr_work work = {.op = RMR_OP_WRITE,
				.local = (void *)(uintptr_t)bulk->source,
				.length = bulk->length,
				.region = bulk->region,
				.remote = bulk->remote};
	struct rmr_completion c;

	CHECK_EQ(rmr_post(bulk->end->conn, &work, 1), 1);
	/* No poll before the first sleep. */
	for (;;) {
		if (rmr_queue_arm(bulk->end->queue) == RMR_OK)
			CHECK_EQ(poll(&pollfd, 1, 500 * (int)TEST_TIME_FACTOR), 1);
		if (rmr_poll(bulk->end->queue, &c, 1) == 1)
			break;
	}
	CHECK_EQ(c.op, RMR_OP_WRITE);
	CHECK_EQ(c.status, RMR_OK);
}

/* Long WRITEs leave, although who has posted them sleeps, and who takes them in never does. */
static void test_bulk(void)
{
	enum { LENGTH = 3 << 20, ROUNDS = 30 };
	struct bulk bulk = {.length = LENGTH};
	struct rmr_descriptor descriptor;
	struct rmr_region *target;
	struct end caller, called;
	uint8_t *from = calloc(1, LENGTH), *to = calloc(1, LENGTH);
	pthread_t poller;

	end_open(&caller, "bells", 1, 0);
	end_open(&called, "bells", 2, 0);
	connect_ends(&caller, &called);
	CHECK(from && to);
	CHECK_OK(rmr_region_open(caller.device, from, LENGTH, 0, &bulk.region));
	CHECK_OK(rmr_region_open(called.device, to, LENGTH, RMR_WRITE, &target));
	CHECK_OK(rmr_region_export(target, called.conn, &descriptor));
	CHECK_OK(rmr_remote_open(caller.conn, &descriptor, &bulk.remote));
	bulk.end = &caller;
	bulk.source = from;
	CHECK_EQ(pthread_create(&poller, NULL, poll_until_told, &called), 0);
	for (int round = 0; round < ROUNDS; round++) {
		bulk.length = LENGTH - (size_t)round * 1000;
		memset(from, round, bulk.length);
		write_and_sleep(&bulk);
	}
	send_turn(&caller); /* that is all */
	CHECK_EQ(pthread_join(poller, NULL), 0);
	CHECK_EQ(to[0], ROUNDS - 1);
	CHECK_EQ(to[bulk.length - 1], ROUNDS - 1);
	rmr_remote_close(bulk.remote);
	rmr_region_close(bulk.region);
	rmr_region_close(target);
	end_close(&caller);
	end_close(&called);
	free(from);
	free(to);
}

/* Who has called calls nothing any more; who was called polls, and reads its memory. */
static void test_idle_caller(void)
{
	struct rmr_work work = {.op = RMR_OP_READ, .length = 8};
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct rmr_descriptor descriptor;
	struct rmr_region *source, *local;
	uint64_t from = 4711, to = 0;
	struct end caller, called;
	struct rmr_completion c;

	end_open(&caller, "bells", 1, 0);
	end_open(&called, "bells", 2, 0);
	CHECK_OK(rmr_region_open(caller.device, &from, sizeof(from), RMR_READ, &source));
	CHECK_OK(rmr_region_open(called.device, &to, sizeof(to), 0, &local));
	connect_ends(&caller, &called);
	CHECK_OK(rmr_region_export(source, caller.conn, &descriptor));
	CHECK_OK(rmr_remote_open(called.conn, &descriptor, &work.remote));
	work.local = &to;
	work.region = local;
	CHECK_EQ(rmr_post(called.conn, &work, 1), 1);
	while (rmr_poll(called.queue, &c, 1) == 0)
		CHECK(!clock_passed(deadline_ns));
	CHECK_EQ(c.op, RMR_OP_READ);
	CHECK_EQ(c.status, RMR_OK);
	CHECK_EQ(to, from);
	rmr_remote_close(work.remote);
	rmr_region_close(local);
	rmr_region_close(source);
	end_close(&caller);
	end_close(&called);
}

static void test_bells(void)
{
	play_both("bells", "bells", TEST_HAS_TSAN ? 1000 : 6000);
}

static void test_descriptor(void)
{
	play_both("descriptor", "descriptor", 1000);
}

static void test_mixed(void)
{
	play_both("bells", "descriptor", 1000);
	play_both("descriptor", "bells", 1000);
}

static const struct test tests[] = {
	{"sleep_bells", test_bells},
	{"sleep_descriptor", test_descriptor},
	{"sleep_mixed", test_mixed},
	{"sleep_bulk", test_bulk},
	{"sleep_idle_caller", test_idle_caller},
};

int main(int argc, char **argv)
{
	if (!getenv("REMORA_LOG"))
		log_set_level(LOG_LEVEL_ERROR);
	return test_main(argc, argv, "ofi_sleep", tests, TEST_COUNT(tests));
}
