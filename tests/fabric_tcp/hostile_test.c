/*
 * Peers that break the rules once they are connected. Each costs its own connection, with a
 * reason in the log; memory is as it was, and the witness, on the same queue, goes on.
 */
#include "hostile.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/tcp/limits.h"
#include "raw.h"
#include "victim.h"

static struct frame on_region(const struct descriptor_wire *wire, uint8_t op, uint64_t length,
			      uint64_t offset)
{
	return (struct frame){.op = op,
			      .index = (uint16_t)wire->word[0],
			      .length = length,
			      .key = wire->key,
			      .offset = offset};
}

/* A connection, to which the regions on the board were exported. */
static int call(struct victim *victim)
{
	int accepted = atomic_load(&victim->board->accepted);
	int fd = raw_call(victim->board->address, RAW_DEPTH);

	while (atomic_load(&victim->board->accepted) == accepted)
		test_sleep_ms(1);
	return fd;
}

/* Frames that are wrong in themselves or at this moment: the first one ends the connection. */
static const struct frame broken[] = {
	{.op = 0},
	{.op = 13},
	{.op = 0xff, .status = 0xff, .index = 0xffff, .sequence = ~0u},
	{.op = FRAME_SEND, .status = 1},
	{.op = FRAME_SEND, .sequence = 1, .length = 8},
	{.op = FRAME_SEND, .sequence = ~0u, .length = 8},
	{.op = FRAME_SEND, .length = VICTIM_RECV_SIZE + 1},
	{.op = FRAME_SEND, .length = FRAME_LENGTH_MAX},
	{.op = FRAME_SEND, .length = ~0ull},
	{.op = FRAME_SEND, .length = TCP_EAGER_MAX + 1}, /* not granted */
	{.op = FRAME_WANT, .length = 8},		 /* needs no grant */
	{.op = FRAME_WANT, .length = VICTIM_RECV_SIZE + 1},
	{.op = FRAME_READ, .length = ~0ull, .key = 1},
	{.op = FRAME_READ, .length = 8, .key = 1, .offset = ~0ull},
	{.op = FRAME_FETCH_ADD, .length = 16, .key = 1},
	{.op = FRAME_READ_DATA, .length = 8},
	{.op = FRAME_ATOMIC_RESULT, .value = 1},
	{.op = FRAME_ACK, .sequence = 1},
	{.op = FRAME_ACK, .messages = 1},
	{.op = FRAME_ACK, .messages = ~0u},
	{.op = FRAME_ACK, .bytes = 1},
	{.op = FRAME_GRANT},
	{.op = FRAME_ERROR},
	{.op = FRAME_ERROR, .status = 7},
};

static void test_broken_frames(void)
{
	struct victim victim;

	victim_start(&victim);
	for (size_t i = 0; i < TEST_COUNT(broken); i++) {
		int fd = call(&victim);

		raw_frame(fd, &broken[i]);
		raw_expect_end(fd);
		victim_expect_lost(&victim, (int)i + 1, RMR_PROTOCOL);
		victim_check(&victim);
	}
	victim_stop(&victim);
}

static void test_garbage(void)
{
	struct victim victim;
	struct test_rng rng;

	victim_start(&victim);
	test_rng_init(&rng, 1);
	for (int i = 0; i < 50; i++) {
		uint8_t bytes[4096];
		int fd = call(&victim);

		test_rng_fill(&rng, bytes, sizeof(bytes));
		(void)!send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		shutdown(fd, SHUT_WR);
		raw_expect_end(fd);
		victim_check(&victim);
	}
	victim_stop(&victim);
}

/* A frame cut off at every byte: the connection just ends. */
static void test_truncated(void)
{
	struct victim victim;
	int lost = 0;

	victim_start(&victim);
	for (size_t cut = 1; cut < 32 + 16; cut += 5) {
		int fd = call(&victim);
		struct frame frame = on_region(&victim.board->writable, FRAME_WRITE, 16, 0);
		uint8_t bytes[32 + 16];

		memcpy(bytes, &frame, 32);
		memset(bytes + 32, 0xee, 16);
		raw_send(fd, bytes, cut);
		shutdown(fd, SHUT_WR);
		raw_expect_end(fd);
		victim_expect_lost(&victim, ++lost, RMR_DISCONNECTED);
	}
	victim_check(&victim);
	victim_stop(&victim);
}

/* Half a frame, then silence: nobody else waits for the rest. When it comes, it counts. */
static void test_half_then_silence(void)
{
	struct victim victim;
	struct frame frame;
	uint8_t bytes[64];
	int fd;

	victim_start(&victim);
	fd = call(&victim);
	frame = on_region(&victim.board->writable, FRAME_WRITE, 16, 0);
	raw_send(fd, &frame, 20);
	for (int i = 0; i < 5; i++)
		victim_check(&victim);
	raw_send(fd, (uint8_t *)&frame + 20, 12);
	raw_send(fd, "0123456", 7);
	victim_check(&victim);
	raw_send(fd, "789abcdef", 9);
	CHECK(raw_read_frame(fd, &frame));
	CHECK_EQ(frame.op, FRAME_ACK);
	CHECK_EQ(frame.sequence, 1);
	memcpy(bytes, victim.memory, 16);
	CHECK_MEM(bytes, "0123456789abcdef", 16);
	close(fd);
	victim_stop(&victim);
}

/* What is beyond the rights is refused with a status, and nothing was touched. */
static void test_access(void)
{
	struct victim victim;
	int lost = 0;

	victim_start(&victim);
	for (int i = 0; i < 10; i++) {
		int fd = call(&victim);
		const struct descriptor_wire *readable = &victim.board->readable,
					     *writable = &victim.board->writable;
		struct frame frames[10] = {
			on_region(writable, FRAME_READ, 8, VICTIM_MEMORY - 7),
			on_region(writable, FRAME_READ, VICTIM_MEMORY + 1, 0),
			on_region(writable, FRAME_WRITE, 8, VICTIM_MEMORY),
			on_region(writable, FRAME_WRITE, FRAME_LENGTH_MAX, 0),
			on_region(writable, FRAME_READ, 1, UINT64_MAX - FRAME_LENGTH_MAX),
			on_region(readable, FRAME_WRITE, 8, 0),
			on_region(readable, FRAME_FETCH_ADD, 8, 0),
			on_region(writable, FRAME_FETCH_ADD, 8, 4), /* not aligned */
			on_region(writable, FRAME_READ, 8, 0),
			on_region(writable, FRAME_WRITE_IMM, 8, 0),
		};

		frames[8].key ^= 1;
		frames[9].key = 0;
		frames[i].operand = 0;
		raw_frame(fd, &frames[i]);
		raw_expect_error(fd, 0, RMR_ACCESS);
		victim_expect_lost(&victim, ++lost, RMR_ACCESS);
		victim_check(&victim);
	}
	for (size_t i = 0; i < VICTIM_MEMORY - 64; i++)
		CHECK_EQ(victim.memory[i], 0x5a);
	victim_stop(&victim);
}

/* Keys that another connection was given are worthless here: a key that leaked, or that a peer knew
 * before its right was taken away, opens nothing. The connection that has them goes on. */
static void test_keys_of_another_connection(void)
{
	static const uint8_t ops[] = {FRAME_READ, FRAME_WRITE, FRAME_WRITE_IMM, FRAME_FETCH_ADD,
				      FRAME_COMPARE_SWAP};
	struct descriptor_wire readable, writable;
	struct victim victim;
	uint8_t bytes[64];
	struct frame frame, answer;
	int granted;

	victim_start(&victim);
	granted = call(&victim);
	readable = victim.board->readable;
	writable = victim.board->writable;
	for (size_t i = 0; i < TEST_COUNT(ops); i++) {
		int fd = call(&victim);

		frame = on_region(ops[i] == FRAME_READ ? &readable : &writable, ops[i], 8, 0);
		raw_frame(fd, &frame);
		raw_expect_error(fd, 0, RMR_ACCESS);
		victim_expect_lost(&victim, (int)i + 1, RMR_ACCESS);
	}
	frame = on_region(&readable, FRAME_READ, sizeof(bytes), 0);
	raw_frame(granted, &frame);
	CHECK(raw_read_frame(granted, &answer));
	CHECK_EQ(answer.op, FRAME_READ_DATA);
	CHECK(raw_read(granted, bytes, sizeof(bytes)));
	for (size_t i = 0; i < sizeof(bytes); i++)
		CHECK_EQ(bytes[i], 0x5a);
	victim_check(&victim);
	close(granted);
	victim_stop(&victim);
}

/* What was asked before the refused request is still answered, what comes behind is not. */
static void test_access_behind_others(void)
{
	struct victim victim;
	struct frame frame;
	uint8_t *data = malloc(1 << 19);
	int fd;

	victim_start(&victim);
	fd = call(&victim);
	for (uint32_t i = 0; i < 8; i++) {
		frame = on_region(&victim.board->readable, FRAME_READ, 1 << 19, 0);
		frame.sequence = i;
		if (i == 6)
			frame.key++;
		raw_frame(fd, &frame);
	}
	test_sleep_ms(100);
	for (uint32_t i = 0; i < 6; i++) {
		CHECK(raw_read_frame(fd, &frame));
		CHECK_EQ(frame.op, FRAME_READ_DATA);
		CHECK_EQ(frame.sequence, i);
		CHECK(raw_read(fd, data, frame.length));
	}
	raw_expect_error(fd, 6, RMR_ACCESS);
	victim_check(&victim);
	victim_stop(&victim);
	free(data);
}

/* Asks for ever more and reads nothing: at some point it has asked for too much. */
static void test_too_many_requests(void)
{
	struct victim victim;
	struct frame frame;
	long before;
	int fd;

	victim_start(&victim);
	fd = call(&victim);
	frame = on_region(&victim.board->readable, FRAME_READ, VICTIM_MEMORY, 0);
	before = atomic_load(&victim.board->peak_kib);
	for (uint32_t i = 0; i < 200; i++) {
		frame.sequence = i;
		if (send(fd, &frame, 32, MSG_NOSIGNAL) != 32)
			break;
	}
	victim_expect_lost(&victim, 1, RMR_PROTOCOL);
	CHECK(atomic_load(&victim.board->peak_kib) - before < 4096 * TEST_TIME_FACTOR);
	victim_check(&victim);
	raw_expect_end(fd);
	victim_stop(&victim);
}

/* Within its limits, but never reads the answers: nobody else is held up. */
static void test_never_reads(void)
{
	struct victim victim;
	struct frame frame;
	int fds[4];

	victim_start(&victim);
	for (int i = 0; i < 4; i++) {
		fds[i] = call(&victim);
		frame = on_region(&victim.board->readable, FRAME_READ, VICTIM_MEMORY, 0);
		for (frame.sequence = 0; frame.sequence < RAW_DEPTH; frame.sequence++)
			raw_frame(fds[i], &frame);
	}
	for (int i = 0; i < 50; i++)
		victim_check(&victim);
	CHECK_EQ(atomic_load(&victim.board->lost), 0);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	victim_check(&victim);
	victim_stop(&victim);
}

/* Messages beyond the window, while the program keeps all its slots. */
static void test_flood_of_messages(void)
{
	struct victim victim;
	struct frame frame = {.op = FRAME_SEND, .length = 100};
	uint8_t bytes[FRAME_HEADER_MIN + 100] = {0};
	int fd;

	victim_start(&victim);
	atomic_store(&victim.board->hold, true);
	fd = call(&victim);
	/* 8 go into slots; the window takes 16 more, and then it is enough. */
	for (frame.sequence = 0; frame.sequence < VICTIM_SLOTS + TCP_WINDOW_MESSAGES_MIN;
	     frame.sequence++) {
		memcpy(bytes, &frame, FRAME_HEADER_MIN);
		raw_send(fd, bytes, sizeof(bytes));
	}
	victim_check(&victim);
	CHECK_EQ(atomic_load(&victim.board->lost), 0);
	memcpy(bytes, &frame, FRAME_HEADER_MIN);
	raw_send(fd, bytes, sizeof(bytes));
	raw_expect_end(fd);
	victim_check(&victim);
	CHECK_EQ(atomic_load(&victim.board->messages), VICTIM_SLOTS);
	/* Those that were taken in are delivered before the loss is told. */
	atomic_store(&victim.board->hold, false);
	victim_expect_lost(&victim, 1, RMR_PROTOCOL);
	CHECK_EQ(atomic_load(&victim.board->messages), VICTIM_SLOTS + TCP_WINDOW_MESSAGES_MIN);
	victim_check(&victim);
	victim_stop(&victim);
}

/* The same by bytes: five of 64 KiB do not fit into 256 KiB. */
static void test_flood_of_bytes(void)
{
	struct victim victim;
	struct frame frame = {.op = FRAME_SEND, .length = TCP_EAGER_MAX};
	uint8_t *bytes = calloc(1, FRAME_HEADER_MIN + TCP_EAGER_MAX);
	int fd;

	victim_start(&victim);
	atomic_store(&victim.board->hold, true);
	fd = call(&victim);
	for (frame.sequence = 0; frame.sequence < VICTIM_SLOTS + 4; frame.sequence++) {
		memcpy(bytes, &frame, FRAME_HEADER_MIN);
		raw_send(fd, bytes, FRAME_HEADER_MIN + TCP_EAGER_MAX);
	}
	victim_check(&victim);
	CHECK_EQ(atomic_load(&victim.board->lost), 0);
	memcpy(bytes, &frame, FRAME_HEADER_MIN);
	(void)!send(fd, bytes, FRAME_HEADER_MIN + TCP_EAGER_MAX, MSG_NOSIGNAL);
	raw_expect_end(fd);
	victim_check(&victim);
	victim_stop(&victim);
	free(bytes);
}

/* A long message is announced, granted, and may then be nothing but what was announced. */
static void test_grants(void)
{
	struct frame want = {.op = FRAME_WANT, .length = 100000};
	struct frame send_frame = {.op = FRAME_SEND, .length = 100000}, frame;
	uint8_t *bytes = calloc(1, 100000);
	struct victim victim;
	int fd;

	victim_start(&victim);
	fd = call(&victim);
	raw_frame(fd, &want);
	CHECK(raw_read_frame(fd, &frame));
	CHECK_EQ(frame.op, FRAME_GRANT);
	CHECK_EQ(frame.sequence, 0);
	raw_frame(fd, &send_frame);
	raw_send(fd, bytes, 100000);
	CHECK(raw_read_frame(fd, &frame));
	CHECK_EQ(frame.op, FRAME_ACK);
	CHECK_EQ(frame.messages, 1);
	close(fd);
	victim_expect_lost(&victim, 1, RMR_DISCONNECTED);

	fd = call(&victim); /* another length */
	raw_frame(fd, &want);
	CHECK(raw_read_frame(fd, &frame));
	send_frame.length--;
	raw_frame(fd, &send_frame);
	raw_expect_end(fd);
	victim_expect_lost(&victim, 2, RMR_PROTOCOL);

	fd = call(&victim); /* a short one overtakes */
	raw_frame(fd, &want);
	CHECK(raw_read_frame(fd, &frame));
	send_frame.length = 8;
	raw_frame(fd, &send_frame);
	raw_expect_end(fd);
	victim_expect_lost(&victim, 3, RMR_PROTOCOL);

	fd = call(&victim); /* twice */
	raw_frame(fd, &want);
	raw_frame(fd, &want);
	raw_expect_end(fd);
	victim_expect_lost(&victim, 4, RMR_PROTOCOL);

	for (int i = 0; i < 20; i++) { /* granted slots come back */
		fd = call(&victim);
		raw_frame(fd, &want);
		CHECK(raw_read_frame(fd, &frame));
		close(fd);
		victim_check(&victim);
	}
	victim_stop(&victim);
	free(bytes);
}

static const struct test peer_tests[] = {
	{"peer_broken_frames", test_broken_frames},
	{"peer_garbage", test_garbage},
	{"peer_truncated", test_truncated},
	{"peer_half_then_silence", test_half_then_silence},
	{"peer_access", test_access},
	{"peer_keys_of_another_connection", test_keys_of_another_connection},
	{"peer_access_behind_others", test_access_behind_others},
	{"peer_too_many_requests", test_too_many_requests},
	{"peer_never_reads", test_never_reads},
	{"peer_flood_of_messages", test_flood_of_messages},
	{"peer_flood_of_bytes", test_flood_of_bytes},
	{"peer_grants", test_grants},
	{NULL},
};

int main(int argc, char **argv)
{
	const struct test *const tables[] = {peer_tests, answer_tests, caller_tests};
	struct test tests[64];
	size_t count = 0;

	for (size_t i = 0; i < TEST_COUNT(tables); i++) {
		for (const struct test *test = tables[i]; test->name; test++) {
			CHECK(count < TEST_COUNT(tests));
			tests[count++] = *test;
		}
	}
	return test_main(argc, argv, "tcp_hostile", tests, count);
}
