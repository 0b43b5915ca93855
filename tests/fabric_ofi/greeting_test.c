/*
 * The first bytes of an ofi connection: what is written can be read, what is cut off is waited for,
 * what is wrong is told from its first byte on. Needs no libfabric.
 */
#include <string.h>

#include "fabric/ofi/greeting.h"
#include "fabric/tcp/limits.h"
#include "harness/test.h"

static void write_hello(uint8_t *to)
{
	struct greeting greeting = {.mode = GREETING_PACKED,
				    .token = 0x1234567890abcdefu,
				    .provider = "tcp;ofi_rxm",
				    .address_length = 16};
	struct handshake shake = {.kind = HANDSHAKE_HELLO,
				  .body_length = 3,
				  .body = "abc",
				  .recv_size = 8192,
				  .depth = 128,
				  .window_messages = 64,
				  .window_bytes = TCP_WINDOW_BYTES};
	uint8_t bytes[HANDSHAKE_SIZE];

	memset(greeting.address, 7, greeting.address_length);
	handshake_encode(bytes, &shake);
	ofi_greeting_encode(to, &greeting, bytes);
}

static void test_there_and_back(void)
{
	uint8_t bytes[GREETING_SIZE];
	struct greeting greeting;
	const char *reason;

	write_hello(bytes);
	for (size_t have = 1; have < sizeof(bytes); have++)
		CHECK_EQ(ofi_greeting_decode(bytes, have, &greeting, &reason), HANDSHAKE_MORE);
	CHECK_EQ(ofi_greeting_decode(bytes, sizeof(bytes), &greeting, &reason), HANDSHAKE_DONE);
	CHECK_EQ(greeting.token, 0x1234567890abcdefu);
	CHECK_STR(greeting.provider, "tcp;ofi_rxm");
	CHECK_EQ(greeting.address_length, 16);
	CHECK_EQ(greeting.address[15], 7);
	CHECK_EQ(greeting.handshake.depth, 128);
	CHECK_EQ(memcmp(greeting.handshake.body, "abc", 3), 0);
}

static void test_wrong(void)
{
	static const struct {
		size_t offset;
		uint8_t value;
	} changes[] = {{0, 'X'}, {3, 'X'},  {6, 0},  {6, 57},	{6, 255}, {7, 0},   {7, 2},
		       {7, 8},	 {39, 'x'}, {16, 0}, {96, 'X'}, {102, 0}, {102, 9}, {103, 99}};
	const char *reason;

	for (size_t i = 0; i < TEST_COUNT(changes); i++) {
		uint8_t bytes[GREETING_SIZE];
		struct greeting greeting;

		write_hello(bytes);
		bytes[changes[i].offset] = changes[i].value;
		if (ofi_greeting_decode(bytes, sizeof(bytes), &greeting, &reason) != HANDSHAKE_BAD)
			TEST_FAIL("byte %zu may be %u", changes[i].offset, changes[i].value);
		CHECK(reason && *reason);
	}
}

static void test_version(void)
{
	uint8_t bytes[GREETING_SIZE];
	struct greeting greeting;
	const char *reason;

	write_hello(bytes);
	bytes[4]++;
	CHECK_EQ(ofi_greeting_decode(bytes, sizeof(bytes), &greeting, &reason),
		 HANDSHAKE_VERSION_DIFFERS);
}

static void test_reject(void)
{
	uint8_t bytes[GREETING_SIZE];
	struct greeting greeting;
	const char *reason;

	ofi_greeting_encode_reject(bytes, "no room");
	CHECK_EQ(ofi_greeting_decode(bytes, sizeof(bytes), &greeting, &reason), HANDSHAKE_DONE);
	CHECK_EQ(greeting.handshake.kind, HANDSHAKE_REJECT);
	CHECK_EQ(memcmp(greeting.handshake.body, "no room", 7), 0);
}

/* Whatever the bytes are: an answer, and no harm. */
static void test_noise(void)
{
	uint8_t bytes[GREETING_SIZE];
	struct greeting greeting;
	struct test_rng rng;
	const char *reason;

	test_rng_init(&rng, 3);
	for (int i = 0; i < 20000; i++) {
		write_hello(bytes);
		for (int k = 0; k < 4; k++)
			bytes[test_rng_below(&rng, sizeof(bytes))] = (uint8_t)test_rng_next(&rng);
		if (ofi_greeting_decode(bytes, sizeof(bytes), &greeting, &reason) ==
			    HANDSHAKE_DONE &&
		    greeting.handshake.kind != HANDSHAKE_REJECT) {
			CHECK(greeting.address_length >= 1);
			CHECK(greeting.address_length <= GREETING_ADDRESS_MAX);
			CHECK(memchr(greeting.provider, 0, sizeof(greeting.provider)) != NULL);
		}
	}
}

static const struct test tests[] = {
	{"greeting_there_and_back", test_there_and_back},
	{"greeting_wrong_bytes", test_wrong},
	{"greeting_other_version", test_version},
	{"greeting_reject", test_reject},
	{"greeting_noise", test_noise},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "ofi_greeting", tests, TEST_COUNT(tests));
}
