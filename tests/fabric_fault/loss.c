/*
 * Lost connections: those that the plan cuts, and those that end otherwise while works are held
 * back.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "pair.h"
#include "tests.h"

#define WORKS	8
#define DROP_AT 5 /* the plan's: works 0..3 succeed */
#define SEEDS	12

#define READ_LENGTH 4096
#define MESSAGES    200 /* more than a batch, fewer than RECV_SLOTS */

/* Sees the connection end, then tells what was written. */
static void serve_writes(struct end *end)
{
	end_expect(end, 0, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
	test_send(end->pipe, end->side, end->memory, WORKS * 8);
	test_await(end->pipe, end->side);
}

/* Checks that a cut connection says exactly what it should, and nothing after it. */
static void expect_cut(struct end *end, enum rmr_op op)
{
	struct rmr_completion completion;
	struct rmr_conn_info info;

	for (uint64_t i = 0; i < WORKS; i++) {
		enum rmr_status expected = i + 1 < DROP_AT ? RMR_OK : RMR_CANCELED;

		if (i + 1 == DROP_AT)
			expected = RMR_DISCONNECTED;
		completion = end_expect(end, 0, op, expected);
		CHECK_EQ(completion.cookie, i);
	}
	end_expect(end, 0, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
	CHECK_EQ(rmr_wait(end->queue, &completion, 1, 20), 0);
	rmr_conn_get_info(end->conns[0], &info);
	CHECK(!info.alive);
}

/* One connection that is lost at a WRITE. Returns whether that WRITE was carried out. */
static bool lose_a_write(unsigned seed)
{
	struct rmr_work works[WORKS];
	uint64_t written[WORKS];
	struct peer peer;
	struct end end;
	char plan[64];

	snprintf(plan, sizeof(plan), "seed=%u,drop_at=%d,delay_us=100", seed, DROP_AT);
	peer_start(&peer, "seed=1", 1, serve_writes);
	end_connect(&end, &peer, plan);
	for (uint64_t i = 0; i < WORKS; i++) {
		((uint64_t *)end.memory)[i] = i + 1;
		works[i] = end_work(&end, RMR_OP_WRITE, i * 8, 8, i * 8);
		works[i].cookie = i;
		works[i].flags = RMR_MORE;
	}
	works[WORKS - 1].flags = 0;
	end_post(&end, 0, works, WORKS);
	expect_cut(&end, RMR_OP_WRITE);
	CHECK_EQ(rmr_post(end.conns[0], works, 1), RMR_DISCONNECTED);
	test_recv(&peer.pipe, TEST_PARENT, written, sizeof(written));
	for (uint64_t i = 0; i < WORKS; i++) {
		if (i + 1 != DROP_AT)
			CHECK_EQ(written[i], i + 1 < DROP_AT ? i + 1 : 0);
	}
	test_signal(&peer.pipe, TEST_PARENT);
	peer_join(&peer);
	end_close(&end);
	return written[DROP_AT - 1] != 0;
}

void test_drop_at_write(void)
{
	int carried_out = 0;

	for (unsigned seed = 1; seed <= SEEDS; seed++)
		carried_out += lose_a_write(seed);
	CHECK(carried_out > 0 && carried_out < SEEDS);
}

/* Counts messages until the connection ends, and tells how many. */
static void serve_messages(struct end *end)
{
	struct rmr_completion completion;
	uint64_t count = 0;

	while ((completion = end_next(end)).op != RMR_OP_DISCONNECT) {
		CHECK_EQ(completion.op, RMR_OP_RECV);
		CHECK_MEM(completion.data, &count, sizeof(count));
		rmr_recv_release(end->queue, completion.data);
		count++;
	}
	test_send(end->pipe, end->side, &count, sizeof(count));
	test_await(end->pipe, end->side);
}

void test_drop_at_send(void)
{
	int carried_out = 0;

	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		struct rmr_work works[WORKS];
		struct peer peer;
		struct end end;
		uint64_t count;
		char plan[64];

		snprintf(plan, sizeof(plan), "seed=%u,drop_at=%d", seed, DROP_AT);
		peer_start(&peer, "seed=1", 1, serve_messages);
		end_connect(&end, &peer, plan);
		for (uint64_t i = 0; i < WORKS; i++) {
			((uint64_t *)end.memory)[i] = i;
			works[i] = end_work(&end, RMR_OP_SEND, i * 8, 8, 0);
			works[i].cookie = i;
		}
		end_post(&end, 0, works, WORKS);
		expect_cut(&end, RMR_OP_SEND);
		test_recv(&peer.pipe, TEST_PARENT, &count, sizeof(count));
		CHECK(count == DROP_AT - 1 || count == DROP_AT);
		carried_out += count == DROP_AT;
		test_signal(&peer.pipe, TEST_PARENT);
		peer_join(&peer);
		end_close(&end);
	}
	CHECK(carried_out > 0 && carried_out < SEEDS);
}

static void serve_many_messages(struct end *end)
{
	for (uint64_t i = 0; i < MESSAGES; i++) {
		struct rmr_work work = end_work(end, RMR_OP_SEND, 0, 8, 0);

		*(uint64_t *)end->memory = i;
		end_do(end, &work);
	}
	test_signal(end->pipe, end->side);
	end_expect(end, 0, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
}

/* What had arrived before the loss comes out before the disconnect. */
void test_drop_keeps_what_arrived(void)
{
	struct rmr_completion completion;
	uint64_t received = 0;
	struct rmr_work work;
	struct peer peer;
	struct end end;
	int failed = 0;

	peer_start(&peer, "seed=1", 1, serve_many_messages);
	end_connect(&end, &peer, "seed=1,drop_at=1,delay_us=3000,reorder=1");
	test_await(&peer.pipe, TEST_PARENT);
	work = end_work(&end, RMR_OP_WRITE, 0, 8, 0);
	end_post(&end, 0, &work, 1);
	while ((completion = end_next(&end)).op != RMR_OP_DISCONNECT) {
		if (completion.op == RMR_OP_RECV) {
			CHECK_MEM(completion.data, &received, sizeof(received));
			rmr_recv_release(end.queue, completion.data);
			received++;
		} else {
			CHECK_STATUS(completion.status, RMR_DISCONNECTED);
			failed++;
		}
	}
	CHECK_EQ(received, (uint64_t)MESSAGES);
	CHECK_EQ(failed, 1);
	peer_join(&peer);
	end_close(&end);
}

static void serve_value(struct end *end)
{
	memset(end->memory, 0x77, MEMORY_SIZE);
	test_signal(end->pipe, end->side);
	end_expect(end, 0, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
}

/* A mapped remote can be read until it is closed, although its connection was cut. */
void test_drop_keeps_mappings(void)
{
	const uint8_t *mapped;
	struct rmr_work work;
	struct peer peer;
	struct end end;

	peer_start(&peer, "seed=1", 1, serve_value);
	end_connect(&end, &peer, "seed=1,drop_at=1");
	test_await(&peer.pipe, TEST_PARENT);
	mapped = rmr_remote_pointer(end.remotes[0]);
	if (!(rmr_device_info(end.device)->capabilities & RMR_CAP_MAP))
		TEST_SKIP("%s maps nothing", FAULT_INNER);
	CHECK(mapped != NULL);
	work = end_work(&end, RMR_OP_READ, 0, 8, 0);
	end_post(&end, 0, &work, 1);
	end_expect(&end, 0, RMR_OP_READ, RMR_DISCONNECTED);
	end_expect(&end, 0, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
	peer_join(&peer);
	for (size_t i = 0; i < MEMORY_SIZE; i++)
		CHECK_EQ(mapped[i], 0x77);
	rmr_remote_close(end.remotes[0]);
	end_close(&end);
}

static void serve_two(struct end *end)
{
	end_expect(end, 0, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
	test_await(end->pipe, end->side);
}

/* Whoever posts on and on learns of the end all the same, however late completions come. */
void test_drop_while_posting(void)
{
	uint64_t end_ns = clock_deadline_ns(PATIENCE_MS);
	struct rmr_completion completion = {0};
	struct peer peer;
	struct end end;
	int taken = 0;

	peer_start(&peer, "seed=1", 1, serve_writes);
	end_connect(&end, &peer, "seed=1,drop_at=1,delay_us=2000");
	while (completion.op != RMR_OP_DISCONNECT) {
		struct rmr_work work = end_work(&end, RMR_OP_WRITE, 0, 8, 0);

		taken = taken >= 0 ? rmr_post(end.conns[0], &work, 1) : taken;
		CHECK(taken >= 0 || taken == RMR_DISCONNECTED);
		(void)rmr_poll(end.queue, &completion, 1);
		CHECK(!clock_passed(end_ns));
	}
	test_recv(&peer.pipe, TEST_PARENT, (uint64_t[WORKS]){0}, WORKS * 8);
	test_signal(&peer.pipe, TEST_PARENT);
	peer_join(&peer);
	end_close(&end);
}

void test_drop_limit(void)
{
	struct rmr_work work;
	struct peer peer;
	struct end end;

	peer_start(&peer, "seed=1", 2, serve_two);
	end_connect(&end, &peer, "seed=1,drop_at=1,drop_limit=1");
	work = end_work(&end, RMR_OP_WRITE, 0, 8, 0);
	end_post(&end, 0, &work, 1);
	end_expect(&end, 0, RMR_OP_WRITE, RMR_DISCONNECTED);
	end_expect(&end, 0, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
	work.remote = end.remotes[1];
	for (int i = 0; i < 20; i++) {
		end_post(&end, 1, &work, 1);
		end_expect(&end, 1, RMR_OP_WRITE, RMR_OK);
	}
	test_signal(&peer.pipe, TEST_PARENT);
	peer_join(&peer);
	end_close(&end);
}

static void serve_until_lost(struct end *end)
{
	end_expect(end, 0, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
}

/* How many operations succeed before the plan loses the connection. */
static int count_until_lost(unsigned seed)
{
	struct rmr_work work;
	struct peer peer;
	struct end end;
	char plan[64];
	int count = 0;

	snprintf(plan, sizeof(plan), "seed=%u,drop_ppm=20000", seed);
	peer_start(&peer, "seed=1", 1, serve_until_lost);
	end_connect(&end, &peer, plan);
	work = end_work(&end, RMR_OP_READ, 0, 8, 0);
	for (;; count++) {
		end_post(&end, 0, &work, 1);
		if (end_next(&end).status != RMR_OK)
			break;
	}
	end_expect(&end, 0, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
	peer_join(&peer);
	end_close(&end);
	return count;
}

void test_same_seed_same_losses(void)
{
	int counts[4];

	for (unsigned i = 0; i < 4; i++) {
		counts[i] = count_until_lost(40 + i);
		CHECK_EQ(count_until_lost(40 + i), counts[i]);
	}
	CHECK(counts[0] != counts[1] || counts[1] != counts[2] || counts[2] != counts[3]);
}

static void serve_death(struct end *end)
{
	(void)end;
	test_sleep_ms(1000000);
}

void test_peer_killed(void)
{
	struct rmr_completion completion;
	uint64_t expected = 0;
	bool failed = false;
	struct peer peer;
	struct end end;

	peer_start(&peer, "seed=1", 1, serve_death);
	end_connect(&end, &peer, "seed=1,delay_us=2000,reorder=1,tear=1,tear_us=3000");
	for (uint64_t i = 0; i < 50; i++) {
		struct rmr_work work = end_work(&end, RMR_OP_READ, 0, READ_LENGTH, 0);

		work.cookie = i;
		end_post(&end, 0, &work, 1);
	}
	test_kill(peer.pid);
	while ((completion = end_next(&end)).op != RMR_OP_DISCONNECT) {
		CHECK_EQ(completion.cookie, expected++);
		CHECK(!failed || completion.status != RMR_OK);
		failed |= completion.status != RMR_OK;
	}
	CHECK(failed);
	CHECK_EQ(expected, 50u);
	test_pipe_close(&peer.pipe);
	end_close(&end);
}

static void serve_one_message_each(struct end *end)
{
	struct rmr_completion completion;

	for (int i = 0; i < end->count; i++) {
		struct rmr_work work = end_work(end, RMR_OP_SEND, 0, 64, 0);

		end_post(end, i, &work, 1);
	}
	for (int i = 0; i < end->count; i++)
		CHECK_STATUS(end_next(end).status, RMR_OK);
	test_signal(end->pipe, end->side);
	for (int i = 0; i < end->count - 1; i++) {
		completion = end_next(end);
		CHECK_EQ(completion.op, RMR_OP_DISCONNECT);
	}
	test_await(end->pipe, end->side);
}

/* Connections are closed while works wait to go down, are below, and are held back; the one that
 * stays open does not notice. */
void test_close_with_works_held_back(void)
{
	struct rmr_completion completion;
	int left = 17;
	struct peer peer;
	struct end end;

	peer_start(&peer, "seed=1", CONNS_MAX, serve_one_message_each);
	end_connect(&end, &peer, "seed=1,delay_us=4000,reorder=1,tear_percent=20,tear_us=5000");
	test_await(&peer.pipe, TEST_PARENT);
	for (int i = 0; i < CONNS_MAX; i++) {
		for (uint64_t k = 0; k < 16; k++) {
			struct rmr_work work = end_work(&end, k % 3 ? RMR_OP_READ : RMR_OP_WRITE,
							k * 256, 256, k * 256);

			work.remote = end.remotes[i];
			work.flags = k % 5 ? 0 : RMR_MORE;
			end_post(&end, i, &work, 1);
		}
		if (i % 2)
			CHECK(rmr_poll(end.queue, &completion, 0) == 0);
	}
	test_sleep_ms(2);
	CHECK(rmr_poll(end.queue, &completion, 0) == 0);
	for (int i = 0; i < CONNS_MAX - 1; i++)
		rmr_conn_close(end.conns[i]);
	end.conns[0] = end.conns[CONNS_MAX - 1];
	end.count = 1;
	for (; left > 0; left--) {
		completion = end_next(&end);
		CHECK(completion.conn == end.conns[0]);
		CHECK_STATUS(completion.status, RMR_OK);
		if (completion.op == RMR_OP_RECV)
			rmr_recv_release(end.queue, completion.data);
	}
	test_signal(&peer.pipe, TEST_PARENT);
	peer_join(&peer);
	end_close(&end);
}

static void serve_disconnect(struct end *end)
{
	CHECK_EQ(end_next(end).op, RMR_OP_DISCONNECT);
}

/* A WRITE waits behind a torn READ; its region is closed before it could go down. */
void test_region_closed_under_a_waiting_work(void)
{
	static uint64_t source[8];
	struct rmr_region *region;
	struct rmr_work works[2];
	struct peer peer;
	struct end end;

	peer_start(&peer, "seed=1", 1, serve_disconnect);
	end_connect(&end, &peer, "seed=2,tear=1,tear_us=200000");
	CHECK_OK(rmr_region_open(end.device, source, sizeof(source), 0, &region));
	works[0] = end_work(&end, RMR_OP_READ, 0, READ_LENGTH, 0);
	works[1] = end_work(&end, RMR_OP_WRITE, 0, sizeof(source), 0);
	works[1].local = source;
	works[1].region = region;
	end_post(&end, 0, works, 2);
	rmr_region_close(region);
	end_expect(&end, 0, RMR_OP_READ, RMR_OK);
	end_expect(&end, 0, RMR_OP_WRITE, RMR_ACCESS);
	CHECK_EQ(end_next(&end).op, RMR_OP_DISCONNECT);
	peer_join(&peer);
	end_close(&end);
}
