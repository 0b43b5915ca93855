/* The codec of frames: what is encoded is decoded again, and what is no frame is told from one. */
#include "fabric/tcp/frame.h"

#include <string.h>

#include "harness/test.h"

static const struct frame good[] = {
	{.op = FRAME_SEND, .sequence = 7, .length = 0},
	{.op = FRAME_SEND, .sequence = UINT32_MAX, .length = FRAME_LENGTH_MAX},
	{.op = FRAME_WRITE, .index = 65535, .sequence = 1, .length = 9, .key = 2, .offset = 3},
	{.op = FRAME_WRITE_IMM,
	 .index = 1,
	 .length = 8,
	 .key = UINT64_MAX,
	 .immediate = UINT32_MAX},
	{.op = FRAME_READ, .index = 2, .length = FRAME_LENGTH_MAX, .key = 1, .offset = 1ull << 63},
	{.op = FRAME_COMPARE_SWAP, .length = 8, .key = 5, .offset = 8, .operand = 6, .compare = 7},
	{.op = FRAME_FETCH_ADD, .length = 8, .key = 5, .offset = 16, .operand = UINT64_MAX},
	{.op = FRAME_WANT, .sequence = 3, .length = 1 << 20},
	{.op = FRAME_READ_DATA, .sequence = 4, .length = 100},
	{.op = FRAME_ATOMIC_RESULT, .sequence = 5, .value = UINT64_MAX},
	{.op = FRAME_ACK, .sequence = 6, .messages = 1, .bytes = 0xfffffff0},
	{.op = FRAME_GRANT, .sequence = 7},
	{.op = FRAME_ERROR, .sequence = 8, .status = 7, .messages = 0x80000000, .bytes = 1},
};

static void test_round_trip(void)
{
	for (size_t i = 0; i < TEST_COUNT(good); i++) {
		uint8_t bytes[FRAME_HEADER_MAX];
		const char *reason = NULL;
		struct frame frame;
		size_t size = frame_encode(bytes, &good[i]);

		CHECK_EQ(size, frame_header_size(good[i].op));
		memset(&frame, 0xaa, sizeof(frame));
		CHECK_EQ(frame_decode(bytes, size, &frame, &reason), (int)size);
		CHECK(reason == NULL);
		CHECK_MEM(&frame, &good[i], sizeof(frame));
	}
}

/* Fewer bytes than the header has are not a frame yet, however few. */
static void test_piecemeal(void)
{
	for (size_t i = 0; i < TEST_COUNT(good); i++) {
		uint8_t bytes[FRAME_HEADER_MAX];
		const char *reason = NULL;
		struct frame frame;
		size_t size = frame_encode(bytes, &good[i]);

		for (size_t have = 0; have < size; have++)
			CHECK_EQ(frame_decode(bytes, have, &frame, &reason), 0);
	}
}

/* The bytes are those of the diagram, whatever the machine. */
static void test_layout(void)
{
	static const uint8_t expected[] = {
		6, 0, 0x34, 0x12, 4,	3,    2,    1,	  8,	0,    0,    0,	  0, 0,
		0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x40, 0,	  0, 0,
		0, 0, 0,    0,	  9,	0,    0,    0,	  0,	0,    0,    0x80,
	};
	struct frame frame = {.op = FRAME_FETCH_ADD,
			      .index = 0x1234,
			      .sequence = 0x01020304,
			      .length = 8,
			      .key = 0x1122334455667788,
			      .offset = 0x40,
			      .operand = 0x8000000000000009};
	uint8_t bytes[FRAME_HEADER_MAX];

	CHECK_EQ(frame_encode(bytes, &frame), sizeof(expected));
	CHECK_MEM(bytes, expected, sizeof(expected));
}

struct bad {
	const char *reason;
	struct frame frame;
};

static const struct bad bad[] = {
	{"unknown type", {.op = 0}},
	{"unknown type", {.op = FRAME_OP_END}},
	{"unknown type", {.op = 255}},
	{"status", {.op = FRAME_SEND, .status = 1}},
	{"status", {.op = FRAME_ACK, .status = 7}},
	{"known status", {.op = FRAME_ERROR}},
	{"known status", {.op = FRAME_ERROR, .status = 18}},
	{"known status", {.op = FRAME_ERROR, .status = 255}},
	{"region", {.op = FRAME_SEND, .index = 1}},
	{"region", {.op = FRAME_READ_DATA, .index = 9}},
	{"length", {.op = FRAME_SEND, .length = FRAME_LENGTH_MAX + 1}},
	{"length", {.op = FRAME_READ, .length = UINT64_MAX}},
	{"length", {.op = FRAME_WANT, .length = 1ull << 63}},
	{"length", {.op = FRAME_GRANT, .length = 1}},
	{"offset", {.op = FRAME_READ, .length = 8, .offset = UINT64_MAX}},
	{"offset", {.op = FRAME_WRITE, .length = 8, .offset = UINT64_MAX - 7}},
	{"8 bytes", {.op = FRAME_FETCH_ADD, .length = 4}},
	{"8 bytes", {.op = FRAME_COMPARE_SWAP, .length = 0}},
	{"32 bits", {.op = FRAME_WRITE_IMM, .length = 4, .zero = 1}},
};

static void test_refused(void)
{
	for (size_t i = 0; i < TEST_COUNT(bad); i++) {
		const char *reason = NULL;
		uint8_t bytes[FRAME_HEADER_MAX];
		struct frame frame;

		memcpy(bytes, &bad[i].frame, sizeof(bytes)); /* on a little-endian machine */
		CHECK_EQ(frame_decode(bytes, sizeof(bytes), &frame, &reason), -1);
		CHECK(reason != NULL);
		CHECK_CONTAINS(reason, bad[i].reason);
	}
}

/* Any bytes: the answer is always one of three, and what is accepted encodes to the same bytes. */
static void test_random(void)
{
	struct test_rng rng;
	int accepted = 0;

	test_rng_init(&rng, 1);
	for (int i = 0; i < 200000; i++) {
		uint8_t bytes[FRAME_HEADER_MAX], again[FRAME_HEADER_MAX];
		const char *reason = NULL;
		struct frame frame;
		int size;

		test_rng_fill(&rng, bytes, sizeof(bytes));
		bytes[0] %= FRAME_OP_END + 1;
		if (i % 2) /* most fields are small in life */
			memset(bytes + 1, 0, 3 + test_rng_below(&rng, 20));
		size = frame_decode(bytes, sizeof(bytes), &frame, &reason);
		CHECK(size == -1 || size == (int)frame_header_size(bytes[0]));
		if (size == -1)
			continue;
		accepted++;
		CHECK_EQ(frame_encode(again, &frame), (size_t)size);
		CHECK_MEM(again, bytes, (size_t)size);
	}
	CHECK(accepted > 1000);
}

static void test_names(void)
{
	CHECK_STR(frame_op_name(FRAME_SEND), "SEND");
	CHECK_STR(frame_op_name(FRAME_ERROR), "ERROR");
	CHECK_STR(frame_op_name(0), "unknown");
	CHECK_STR(frame_op_name(FRAME_OP_END), "unknown");
	for (uint8_t op = 1; op < FRAME_OP_END; op++)
		CHECK(frame_header_size(op) >= FRAME_HEADER_MIN);
}

static const struct test tests[] = {
	{"frame_round_trip", test_round_trip}, {"frame_piecemeal", test_piecemeal},
	{"frame_layout", test_layout},	       {"frame_refused", test_refused},
	{"frame_random", test_random},	       {"frame_names", test_names},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "tcp_frame", tests, TEST_COUNT(tests));
}
