/*
 * When completions come out, and in which order.
 */
#include <poll.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "fabric/fault/decide.h"
#include "pair.h"
#include "tests.h"

static void serve_nothing(struct end *end)
{
	test_await(end->pipe, end->side);
}

static void finish(struct end *end, struct peer *peer)
{
	test_signal(&peer->pipe, TEST_PARENT);
	peer_join(peer);
	end_close(end);
}

/* Not a nanosecond earlier than the seed says, and not by as much later as to be something else. */
void test_delays_are_honoured(void)
{
	const char *text = "seed=3,delay_us=10000";
	struct fault_rng rng = fault_rng_stream(3, 0);
	uint64_t late_ns = 0;
	struct fault_plan plan;
	struct peer peer;
	struct end end;

	CHECK_OK(fault_plan_parse(text, &plan));
	peer_start(&peer, "seed=1", 1, serve_nothing);
	end_connect(&end, &peer, text);
	for (uint64_t i = 1; i <= 50; i++) {
		struct rmr_work work = end_work(&end, RMR_OP_READ, 0, 64, 0);
		struct fault_decision decision;
		uint64_t start_ns = clock_now_ns(), taken_ns;

		fault_decide(&plan, &rng, i, &work, true, &decision);
		end_do(&end, &work);
		taken_ns = clock_now_ns() - start_ns;
		CHECK(taken_ns >= decision.delay_ns);
		late_ns += taken_ns - decision.delay_ns;
	}
	CHECK(late_ns < 50 * 10000000ull * TEST_TIME_FACTOR);
	finish(&end, &peer);
}

static uint64_t cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* Whoever waits for a completion that is held back sleeps until it is due. */
void test_waiting_sleeps(void)
{
	uint64_t start_ns, start_us, wall_us;
	struct peer peer;
	struct end end;

	peer_start(&peer, "seed=1", 1, serve_nothing);
	end_connect(&end, &peer, "seed=3,delay_us=50000");
	start_ns = clock_now_ns();
	start_us = cpu_us();
	for (int i = 0; i < 20; i++) {
		struct rmr_work work = end_work(&end, RMR_OP_READ, 0, 64, 0);

		end_do(&end, &work);
	}
	wall_us = (clock_now_ns() - start_ns) / 1000;
	CHECK(wall_us > 100000);
	CHECK(cpu_us() - start_us < wall_us / 4);
	finish(&end, &peer);
}

/* The same through the descriptor, as an event loop does it. */
void test_event_loop_is_woken(void)
{
	struct peer peer;
	struct end end;

	peer_start(&peer, "seed=1", 1, serve_nothing);
	end_connect(&end, &peer, "seed=4,delay_us=20000,tear=1,tear_us=1000");
	for (int i = 0; i < 20; i++) {
		struct rmr_work work = end_work(&end, RMR_OP_READ, 0, 4096, 0);
		struct rmr_completion completion;
		int wakeups = 0;

		end_post(&end, 0, &work, 1);
		while (rmr_poll(end.queue, &completion, 1) == 0) {
			struct pollfd fd = {.fd = rmr_queue_fd(end.queue), .events = POLLIN};

			if (rmr_queue_arm(end.queue) != RMR_OK)
				continue;
			CHECK_EQ(poll(&fd, 1, PATIENCE_MS), 1);
			CHECK(++wakeups <= 40);
		}
		CHECK_STATUS(completion.status, RMR_OK);
	}
	finish(&end, &peer);
}

#define MANY 600 /* more than RECV_SLOTS */

/* Sends MANY numbered messages. */
static void serve_numbers(struct end *end)
{
	uint64_t sent = 0, completed = 0;

	while (completed < MANY) {
		struct rmr_completion completion;

		if (sent < MANY) {
			struct rmr_work work = end_work(end, RMR_OP_SEND, 0, sizeof(sent), 0);
			int taken;

			work.local = &sent;
			work.flags = RMR_INLINE;
			work.cookie = sent;
			taken = rmr_post(end->conns[0], &work, 1);
			CHECK(taken >= 0);
			sent += (uint64_t)taken;
		}
		while (rmr_poll(end->queue, &completion, 1) == 1) {
			CHECK_STATUS(completion.status, RMR_OK);
			CHECK_EQ(completion.op, RMR_OP_SEND);
			CHECK_EQ(completion.cookie, completed++);
		}
	}
	test_await(end->pipe, end->side);
}

/* Works complete in their order and messages come in theirs, at both ends, under the worst plan
 * there is. */
void test_order_within_a_connection(void)
{
	const char *plan = "seed=11,delay_us=300,reorder=1,tear=1,stall_percent=20,stall_us=50";
	uint64_t posted = 0, completed = 0, received = 0;
	struct peer peer;
	struct end end;

	peer_start(&peer, plan, 1, serve_numbers);
	end_connect(&end, &peer, plan);
	while (completed < MANY || received < MANY) {
		struct rmr_work work = end_work(&end, posted % 3 ? RMR_OP_READ : RMR_OP_WRITE,
						posted % 64 * 64, 64, posted % 64 * 64);
		struct rmr_completion completion;

		work.cookie = posted;
		if (posted < MANY) {
			int taken = rmr_post(end.conns[0], &work, 1);

			CHECK(taken >= 0);
			posted += (uint64_t)taken;
			if (taken == 1)
				continue;
		}
		completion = end_next(&end);
		CHECK_STATUS(completion.status, RMR_OK);
		if (completion.op == RMR_OP_RECV) {
			CHECK_EQ(completion.length, sizeof(received));
			CHECK_MEM(completion.data, &received, sizeof(received));
			rmr_recv_release(end.queue, completion.data);
			received++;
		} else {
			CHECK_EQ(completion.cookie, completed++);
		}
	}
	finish(&end, &peer);
}

static void serve_echo(struct end *end)
{
	struct rmr_completion completion;

	while ((completion = end_next(end)).op != RMR_OP_DISCONNECT) {
		if (completion.op == RMR_OP_RECV) {
			struct rmr_work work = end_work(end, RMR_OP_SEND, 0, 8, 0);

			rmr_recv_release(end->queue, completion.data);
			end_post(end, 0, &work, 1);
		}
	}
}

/* Sends and receives the echo, 100 times; returns how often the echo came out first. */
static int count_early_echoes(const char *plan)
{
	struct peer peer;
	struct end end;
	int early = 0;

	peer_start(&peer, "seed=1", 1, serve_echo);
	end_connect(&end, &peer, plan);
	for (int i = 0; i < 100; i++) {
		struct rmr_work work = end_work(&end, RMR_OP_SEND, 0, 8, 0);
		struct rmr_completion pair[2];

		end_post(&end, 0, &work, 1);
		for (int k = 0; k < 2; k++) {
			pair[k] = end_next(&end);
			CHECK_STATUS(pair[k].status, RMR_OK);
			if (pair[k].op == RMR_OP_RECV)
				rmr_recv_release(end.queue, pair[k].data);
		}
		CHECK(pair[0].op != pair[1].op);
		early += pair[0].op == RMR_OP_RECV;
	}
	end_close(&end);
	peer_join(&peer);
	return early;
}

/* Only with reorder may a message overtake the completion of a SEND before it. */
void test_sends_and_receives(void)
{
	CHECK(count_early_echoes("seed=8,delay_us=1000,reorder=1") > 10);
	/* Not every transport keeps that order by itself. */
	if (strcmp(FAULT_INNER, "shm") == 0)
		CHECK_EQ(count_early_echoes("seed=8,delay_us=1000"), 0);
}

/* Posts two works on each of four connections and returns the order in which the connections'
 * first completions came, as digits; the two of each connection must come in order. */
static unsigned one_round(struct end *end)
{
	unsigned seen[CONNS_MAX] = {0}, order = 0;

	for (int i = 0; i < end->count; i++) {
		struct rmr_work works[2];

		works[0] = works[1] = end_work(end, RMR_OP_WRITE, 0, 8, (uint64_t)i * 8);
		works[0].remote = works[1].remote = end->remotes[i];
		works[1].cookie = 1;
		end_post(end, i, works, 2);
	}
	for (int left = end->count * 2; left > 0; left--) {
		struct rmr_completion completion = end_next(end);
		int i = 0;

		while (end->conns[i] != completion.conn)
			i++;
		CHECK_STATUS(completion.status, RMR_OK);
		CHECK_EQ(completion.cookie, seen[i]++);
		if (completion.cookie == 0)
			order = order * 10 + (unsigned)i;
	}
	return order;
}

/* How many different orders there are in so many rounds, or that there are `enough`. */
static int count_orders(const char *plan, int rounds, int enough)
{
	unsigned orders[24];
	int different = 0;
	struct peer peer;
	struct end end;

	peer_start(&peer, "seed=1", 4, serve_nothing);
	end_connect(&end, &peer, plan);
	for (int i = 0; i < rounds && different < enough; i++) {
		unsigned order = one_round(&end);
		int k = 0;

		while (k < different && orders[k] != order)
			k++;
		if (k == different)
			orders[different++] = order;
	}
	finish(&end, &peer);
	return different;
}

void test_reorder_between_connections(void)
{
	/* Of 24. Where completions are farther apart than they may lag it takes many rounds. */
	CHECK_EQ(count_orders("seed=2,reorder=1", 3000, 11), 11);
	/* Without it shm completes in the order of posting; other transports need not. */
	if (strcmp(FAULT_INNER, "shm") == 0)
		CHECK_EQ(count_orders("seed=2", 100, 2), 1);
}

static void serve_immediates(struct end *end)
{
	for (uint32_t i = 0; i < MANY; i++) {
		struct rmr_completion completion = end_expect(end, 0, RMR_OP_RECV_IMM, RMR_OK);

		CHECK_EQ(completion.immediate, i);
		CHECK_EQ(completion.length, 8u);
	}
	test_signal(end->pipe, end->side);
	test_await(end->pipe, end->side);
}

/* Immediates that are held back count against the receiver's limit, and none is lost. */
void test_immediates_are_bounded(void)
{
	struct peer peer;
	struct end end;
	uint32_t completed = 0;

	peer_start(&peer, "seed=6,delay_us=500,reorder=1", 1, serve_immediates);
	end_connect(&end, &peer, "seed=1");
	for (uint32_t posted = 0; completed < MANY;) {
		struct rmr_work work = end_work(&end, RMR_OP_WRITE_IMM, 0, 8, 0);
		struct rmr_completion completion;

		work.immediate = posted;
		if (posted < MANY) {
			int taken = rmr_post(end.conns[0], &work, 1);

			CHECK(taken >= 0);
			posted += (uint32_t)taken;
		}
		while (rmr_poll(end.queue, &completion, 1) == 1) {
			CHECK_STATUS(completion.status, RMR_OK);
			completed++;
		}
	}
	test_await(&peer.pipe, TEST_PARENT);
	finish(&end, &peer);
}
