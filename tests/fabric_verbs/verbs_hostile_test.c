/*
 * Peers that meet us as they should, and then break the rules with a queue pair of their own. Their
 * connection ends, with a DISCONNECT; nobody else on the same queue notices, no memory outside what
 * was granted changes, and no receive slot is lost.
 *
 * Runs in the lab's guest (scripts/lab/suite.py). What an adapter does with such peers is the
 * adapter's business: here it is soft-RoCE.
 *
 * What these tests would catch: an error entry of the completion queue that is not understood, a
 * slot that is not posted again, an end that is only seen when the peer says goodbye.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "stranger.h"
#include "victim.h"

#define PACKET 4096u /* of rxe0: its network card has jumbo frames */

/* ------------------------------------------------------------------------------------------
 * Messages
 */

/* What the sender is told is not looked at: with soft-RoCE it sometimes hears nothing at all, and
 * repeats its message for ever. */
static void test_send_too_long(void)
{
	static const uint32_t lengths[] = {VICTIM_RECV_SIZE + 1, VICTIM_RECV_SIZE + PACKET,
					   2 * VICTIM_RECV_SIZE, STRANGER_MEMORY};
	struct stranger stranger;
	struct victim victim;

	victim_start(&victim);
	for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
		struct stranger_work work = {IBV_WR_SEND, .length = lengths[i]};

		stranger_open(&stranger);
		stranger_meet(&stranger, victim.board->address);
		CHECK_EQ(stranger_post(&stranger, &work), 0);
		victim_expect_lost(&victim, (int)i + 1, RMR_PROTOCOL);
		victim_check(&victim);
		stranger_close(&stranger);
	}
	CHECK_EQ(victim_count_slots(&victim), VICTIM_SLOTS_ALL);
	victim_stop(&victim);
}

/* The longest that is allowed is no offence. */
static void test_send_just_fits(void)
{
	struct stranger_work work = {IBV_WR_SEND, .length = VICTIM_RECV_SIZE};
	struct stranger stranger;
	struct victim victim;

	victim_start(&victim);
	stranger_open(&stranger);
	stranger_meet(&stranger, victim.board->address);
	CHECK_EQ(stranger_post(&stranger, &work), 0);
	CHECK_EQ(stranger_poll(&stranger), IBV_WC_SUCCESS);
	victim_await(&victim.board->messages, 1);
	work.length = 0;
	CHECK_EQ(stranger_post(&stranger, &work), 0);
	CHECK_EQ(stranger_poll(&stranger), IBV_WC_SUCCESS);
	victim_await(&victim.board->messages, 2);
	victim_check(&victim);
	CHECK_EQ(atomic_load(&victim.board->lost), 0);
	stranger_close(&stranger);
	victim_expect_lost(&victim, 1, RMR_DISCONNECTED);
	victim_stop(&victim);
}

/* As fast as they go, while the program keeps all its slots: he waits, and nobody else does but
 * those who send messages themselves. */
static void test_flood(void)
{
	struct stranger_work work = {IBV_WR_SEND, .length = 100};
	struct stranger stranger;
	struct victim victim;
	int done = 0;

	victim_start(&victim);
	atomic_store(&victim.board->hold, true);
	stranger_open(&stranger);
	stranger_meet(&stranger, victim.board->address);
	for (int i = 0; i < STRANGER_DEPTH; i++)
		CHECK_EQ(stranger_post(&stranger, &work), 0);
	for (int i = 0; i < 20; i++)
		victim_check(&victim);
	done = stranger_poll_all(&stranger);
	CHECK_EQ(done, VICTIM_SLOTS_ALL);
	CHECK_EQ(atomic_load(&victim.board->messages), VICTIM_SLOTS);
	atomic_store(&victim.board->hold, false);
	for (; done < STRANGER_DEPTH; done++)
		CHECK_EQ(stranger_poll(&stranger), IBV_WC_SUCCESS);
	victim_await(&victim.board->messages, STRANGER_DEPTH);
	victim_check(&victim);
	CHECK_EQ(atomic_load(&victim.board->lost), 0);
	stranger_close(&stranger);
	victim_expect_lost(&victim, 1, RMR_DISCONNECTED);
	CHECK_EQ(victim_count_slots(&victim), VICTIM_SLOTS_ALL);
	victim_stop(&victim);
}

/* The same, and he goes away while his messages wait for slots: those that were taken are still
 * delivered, and then comes his end. */
static void test_flood_and_go(void)
{
	struct stranger_work work = {IBV_WR_SEND, .length = 100};
	struct stranger stranger;
	struct victim victim;

	victim_start(&victim);
	atomic_store(&victim.board->hold, true);
	stranger_open(&stranger);
	stranger_meet(&stranger, victim.board->address);
	for (int i = 0; i < STRANGER_DEPTH; i++)
		CHECK_EQ(stranger_post(&stranger, &work), 0);
	for (int i = 0; i < VICTIM_SLOTS_ALL; i++)
		CHECK_EQ(stranger_poll(&stranger), IBV_WC_SUCCESS);
	stranger_close(&stranger);
	victim_check(&victim);
	CHECK_EQ(atomic_load(&victim.board->lost), 0);
	atomic_store(&victim.board->hold, false);
	victim_expect_lost(&victim, 1, RMR_DISCONNECTED);
	CHECK_EQ(atomic_load(&victim.board->messages), VICTIM_SLOTS_ALL);
	CHECK_EQ(victim_count_slots(&victim), VICTIM_SLOTS_ALL);
	victim_stop(&victim);
}

/* A SEND with an immediate ends a long WRITE_IMM, and says its length in 8 bytes. What has another
 * length is nothing of ours: what a slot holds from before must not be taken for its bytes. */
static void test_send_with_immediate(void)
{
	static const uint32_t lengths[] = {0, 1, 7, 9, 100, 2 * PACKET};
	struct stranger_work work = {IBV_WR_SEND_WITH_IMM, .length = 8, .immediate = 0xabcdef01};
	struct stranger stranger;
	struct victim victim;

	victim_start(&victim);
	for (size_t i = 0; i < TEST_COUNT(lengths); i++) {
		stranger_open(&stranger);
		stranger_meet(&stranger, victim.board->address);
		memset(stranger.memory, 0x11, 8);
		work.length = 8;
		CHECK_EQ(stranger_post(&stranger, &work), 0);
		CHECK_EQ(stranger_poll(&stranger), IBV_WC_SUCCESS);
		victim_await(&victim.board->immediates, (int)i + 1);
		CHECK_EQ(atomic_load(&victim.board->last_length), 0x1111111111111111);
		CHECK_EQ(atomic_load(&victim.board->last_immediate), 0xabcdef01);
		work.length = lengths[i];
		CHECK_EQ(stranger_post(&stranger, &work), 0);
		victim_expect_lost(&victim, (int)i + 1, RMR_PROTOCOL);
		CHECK_EQ(atomic_load(&victim.board->immediates), (int)i + 1);
		victim_check(&victim);
		stranger_close(&stranger);
	}
	/* None of them was a message. The witness sent one in each round. */
	victim_await(&victim.board->messages, (int)TEST_COUNT(lengths));
	CHECK_EQ(atomic_load(&victim.board->messages), (int)TEST_COUNT(lengths));
	CHECK_EQ(victim_count_slots(&victim), VICTIM_SLOTS_ALL);
	victim_stop(&victim);
}

/* ------------------------------------------------------------------------------------------
 * Memory
 */

/* What a stranger tries with a region that he knows. */
struct attempt {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	bool readable;	 /* the region without rights but to read */
	int64_t offset;	 /* from the start of the region */
	uint32_t change; /* of the key, by exclusive or */
	uint32_t key;	 /* instead of it; 0: the region's */
};

#define END	 ((int64_t)VICTIM_WRITABLE)
#define READ	 IBV_WR_RDMA_READ
#define WRITE	 IBV_WR_RDMA_WRITE
#define WRITEIMM IBV_WR_RDMA_WRITE_WITH_IMM
#define ADD	 IBV_WR_ATOMIC_FETCH_AND_ADD
#define SWAP	 IBV_WR_ATOMIC_CMP_AND_SWP

static const struct attempt attempts[] = {
	{"READ behind the end", READ, 8, .offset = END},
	{"READ over the end", READ, 8, .offset = END - 7},
	{"READ before the start", READ, 8, .offset = -8},
	{"READ over the start", READ, 16, .offset = -8},
	{"READ of too much", READ, VICTIM_WRITABLE + 1},
	{"READ at the top of all memory", READ, 8, .offset = INT64_MIN},
	{"READ of several packets over the end", READ, 2 * PACKET, .offset = END - PACKET},
	{"WRITE behind the end", WRITE, 8, .offset = END},
	{"WRITE over the end", WRITE, 8, .offset = END - 7},
	{"WRITE before the start", WRITE, 8, .offset = -1},
	{"WRITE of several packets over the end", WRITE, 3 * PACKET, .offset = END - PACKET},
	{"WRITE_IMM over the end", WRITEIMM, 8, .offset = END - 7},
	{"WRITE_IMM of several packets over the end", WRITEIMM, 3 * PACKET, .offset = END - 1},
	{"FETCH_ADD behind the end", ADD, 8, .offset = END},
	{"FETCH_ADD before the start", ADD, 8, .offset = -8},
	{"COMPARE_SWAP behind the end", SWAP, 8, .offset = END},
	{"WRITE without the right", WRITE, 8, true},
	{"WRITE of several packets without the right", WRITE, 3 * PACKET, true},
	{"WRITE_IMM without the right", WRITEIMM, 8, true},
	{"FETCH_ADD without the right", ADD, 8, true},
	{"COMPARE_SWAP without the right", SWAP, 8, true},
	{"READ with the key's neighbour", READ, 8, .change = 1},
	{"READ with the next region's key", READ, 8, .change = 0x100},
	{"READ with another key", READ, 8, .change = 0x300},
	{"WRITE with the key's neighbour", WRITE, 8, .change = 1},
	{"WRITE with the next region's key", WRITE, 8, .change = 0x100},
	{"WRITE_IMM with another key", WRITEIMM, 8, .change = 0x200},
	{"FETCH_ADD with another key", ADD, 8, .change = 0x80},
	{"READ with the key of all memory", READ, 8, .key = UINT32_MAX},
	{"WRITE with key 1", WRITE, 8, .key = 1},
};

static void try(struct victim *victim, struct stranger *stranger, const struct attempt *attempt)
{
	const struct descriptor_wire *region =
		attempt->readable ? &victim->board->readable : &victim->board->writable;
	struct stranger_work work = {
		.opcode = attempt->opcode,
		.length = attempt->length,
		.address = region->word[0] + (uint64_t)attempt->offset,
		.rkey = (attempt->key ? attempt->key : (uint32_t)region->word[1]) ^ attempt->change,
		.immediate = 1,
	};
	enum ibv_wc_status status;

	memset(stranger->memory, 0xee, STRANGER_MEMORY);
	CHECK_EQ(stranger_post(stranger, &work), 0);
	if (attempt->opcode == WRITEIMM)
		return; /* he may be told nothing, see test_send_too_long */
	status = stranger_poll(stranger);
	if (status != IBV_WC_REM_ACCESS_ERR)
		TEST_FAIL("%s: %s", attempt->name, ibv_wc_status_str(status));
	if (attempt->opcode != READ && attempt->opcode != ADD && attempt->opcode != SWAP)
		return;
	for (uint32_t i = 0; i < attempt->length; i++) {
		if (stranger->memory[i] != 0xee)
			TEST_FAIL("%s: byte %u was read", attempt->name, i);
	}
}

static void test_access(void)
{
	struct stranger stranger;
	struct victim victim;

	victim_start(&victim);
	/* Not every adapter says that it has refused something: the next question whether the peer
	 * lives then finds the queue pair broken. */
	atomic_store(&victim.board->dead_after_ms, VICTIM_DEAD_AFTER / 2);
	for (size_t i = 0; i < TEST_COUNT(attempts); i++) {
		stranger_open(&stranger);
		stranger_meet(&stranger, victim.board->address);
		victim_await(&victim.board->accepted, (int)i + 2); /* and so it has exported */
		try(&victim, &stranger, &attempts[i]);
		/* He does not say goodbye: the victim sees it by itself. */
		victim_expect_lost(&victim, (int)i + 1, RMR_OK);
		victim_check(&victim);
		stranger_close(&stranger);
	}
	CHECK_EQ(atomic_load(&victim.board->immediates), 0);
	CHECK_EQ(victim_count_slots(&victim), VICTIM_SLOTS_ALL);
	victim_stop(&victim);
}

/* Asks for everything again and again, from several connections: nobody starves. */
static void test_flood_of_reads(void)
{
	struct stranger strangers[4];
	struct victim victim;

	victim_start(&victim);
	for (int i = 0; i < 4; i++) {
		struct stranger_work work = {READ, .length = VICTIM_READABLE};

		stranger_open(&strangers[i]);
		stranger_meet(&strangers[i], victim.board->address);
		victim_await(&victim.board->accepted, i + 2);
		work.address = victim.board->readable.word[0];
		work.rkey = (uint32_t)victim.board->readable.word[1];
		for (int j = 0; j < 64; j++)
			CHECK_EQ(stranger_post(&strangers[i], &work), 0);
	}
	for (int i = 0; i < 10; i++)
		victim_check(&victim);
	CHECK_EQ(atomic_load(&victim.board->lost), 0);
	for (int i = 0; i < 4; i++)
		stranger_close(&strangers[i]);
	victim_expect_lost(&victim, 4, RMR_DISCONNECTED);
	victim_check(&victim);
	victim_stop(&victim);
}

/* ------------------------------------------------------------------------------------------
 * Ends
 */

/* Breaks off in the middle of a message of several packets. It has a slot as long as its connection
 * lives, and not longer. */
static void test_torn_send(void)
{
	struct stranger stranger;
	struct victim victim;

	victim_start(&victim);
	/* He does not answer any more either, and shall not be found dead while we count. */
	atomic_store(&victim.board->dead_after_ms, 100000);
	for (int i = 0; i < VICTIM_SLOTS_ALL + 4; i++) {
		struct stranger_work work = {IBV_WR_SEND, .length = 8 * PACKET,
					     .torn_after = (uint32_t)(1 + i % 6) * PACKET};

		stranger_open(&stranger);
		stranger_meet(&stranger, victim.board->address);
		CHECK_EQ(stranger_post(&stranger, &work), 0);
		CHECK(stranger_poll(&stranger) != IBV_WC_SUCCESS);
		if (i == 0)
			CHECK_EQ(victim_count_slots(&victim), VICTIM_SLOTS_ALL - 1);
		stranger_close(&stranger);
		victim_expect_lost(&victim, i + 1, RMR_DISCONNECTED);
		if (i == 0)
			CHECK_EQ(victim_count_slots(&victim), VICTIM_SLOTS_ALL);
		victim_check(&victim);
	}
	CHECK_EQ(victim_count_slots(&victim), VICTIM_SLOTS_ALL);
	victim_stop(&victim);
}

/* The queue pair is destroyed at some moment while messages are under way. */
static void test_destroyed_in_the_middle(void)
{
	struct stranger_work work = {IBV_WR_SEND, .length = VICTIM_RECV_SIZE};
	struct stranger stranger;
	struct victim victim;
	struct test_rng rng;

	victim_start(&victim);
	test_rng_init(&rng, 1);
	for (int i = 0; i < 200; i++) {
		stranger_open(&stranger);
		stranger_meet(&stranger, victim.board->address);
		for (int j = 0; j < 4; j++)
			CHECK_EQ(stranger_post(&stranger, &work), 0);
		usleep((useconds_t)test_rng_below(&rng, 3000));
		stranger_close(&stranger);
		victim_expect_lost(&victim, i + 1, RMR_DISCONNECTED);
		if (i % 10 == 0)
			victim_check(&victim);
	}
	victim_check(&victim);
	CHECK_EQ(victim_count_slots(&victim), VICTIM_SLOTS_ALL);
	victim_stop(&victim);
}

/* The queue pair goes, but RDMA CM is not told: nothing is heard of him any more, and so he is dead
 * after a while. */
static void test_qp_vanishes(void)
{
	struct stranger stranger;
	struct victim victim;
	uint64_t before_ns, after_ms;

	victim_start(&victim);
	stranger_open(&stranger);
	stranger_meet(&stranger, victim.board->address);
	victim_await(&victim.board->accepted, 2);
	stranger_destroy_qp(&stranger);
	before_ns = clock_now_ns();
	victim_expect_lost(&victim, 1, RMR_DISCONNECTED);
	after_ms = (clock_now_ns() - before_ns) / 1000000;
	if (after_ms > VICTIM_DEAD_AFTER * 3 / 2)
		TEST_FAIL("it took %d ms", (int)after_ms);
	victim_check(&victim);
	stranger_close(&stranger);
	victim_stop(&victim);
}

struct flooder {
	struct victim *victim;
	struct test_pipe pipe;
	enum ibv_wr_opcode opcode;
};

/* Works until it is killed. */
static void flood(void *arg)
{
	struct flooder *flooder = arg;
	struct stranger stranger;
	struct stranger_work work = {flooder->opcode, .length = VICTIM_READABLE};
	int room = STRANGER_DEPTH;

	test_await(&flooder->pipe, TEST_CHILD);
	stranger_open(&stranger);
	stranger_meet(&stranger, flooder->victim->board->address);
	victim_await(&flooder->victim->board->accepted, 2);
	work.address = flooder->victim->board->readable.word[0];
	work.rkey = (uint32_t)flooder->victim->board->readable.word[1];
	test_signal(&flooder->pipe, TEST_CHILD);
	for (;;) {
		while (room > 0) {
			CHECK_EQ(stranger_post(&stranger, &work), 0);
			room--;
		}
		room += stranger_poll_all(&stranger);
	}
}

/* His process is killed while his works are under way. */
static void kill_flooders(enum ibv_wr_opcode opcode, int rounds)
{
	struct flooder flooders[8];
	struct victim victim;
	pid_t pids[8];

	victim_spawn(&victim);
	for (int i = 0; i < rounds; i++) {
		flooders[i] = (struct flooder){.victim = &victim, .opcode = opcode};
		test_pipe_open(&flooders[i].pipe);
		pids[i] = test_spawn(flood, &flooders[i]);
	}
	victim_open_witness(&victim);
	for (int i = 0; i < rounds; i++) {
		test_signal(&flooders[i].pipe, TEST_PARENT);
		test_await(&flooders[i].pipe, TEST_PARENT);
		test_sleep_ms(20 + 7 * (unsigned)i);
		victim_check(&victim);
		test_kill(pids[i]);
		victim_expect_lost(&victim, i + 1, RMR_DISCONNECTED);
		victim_check(&victim);
	}
	CHECK_EQ(victim_count_slots(&victim), VICTIM_SLOTS_ALL);
	victim_stop(&victim);
}

static void test_killed_while_sending(void)
{
	kill_flooders(IBV_WR_SEND, 8);
}

static void test_killed_while_reading(void)
{
	kill_flooders(READ, 8);
}

static const struct test tests[] = {
	{"send_too_long", test_send_too_long},
	{"send_just_fits", test_send_just_fits},
	{"flood", test_flood},
	{"flood_and_go", test_flood_and_go},
	{"send_with_immediate", test_send_with_immediate},
	{"access", test_access, .timeout_s = 240},
	{"flood_of_reads", test_flood_of_reads},
	{"torn_send", test_torn_send, .timeout_s = 120},
	{"destroyed_in_the_middle", test_destroyed_in_the_middle, TEST_SLOW, 240},
	{"qp_vanishes", test_qp_vanishes},
	{"killed_while_sending", test_killed_while_sending, .timeout_s = 120},
	{"killed_while_reading", test_killed_while_reading, .timeout_s = 120},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "verbs_hostile", tests, TEST_COUNT(tests));
}
