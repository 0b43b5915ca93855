/* The codec of the handshake: greetings, answers, and everything else that calls a port. */
#include "fabric/tcp/handshake.h"

#include <string.h>

#include "fabric/tcp/limits.h"
#include "harness/test.h"

static struct handshake greeting(void)
{
	return (struct handshake){
		.kind = HANDSHAKE_HELLO,
		.body_length = 3,
		.recv_size = 8192,
		.depth = 128,
		.window_messages = 64,
		.window_bytes = TCP_WINDOW_BYTES,
		.body = "abc",
	};
}

static void test_round_trip(void)
{
	struct handshake sent = greeting(), got;
	uint8_t bytes[HANDSHAKE_SIZE];
	const char *reason;

	handshake_encode(bytes, &sent);
	CHECK_MEM(bytes, "Rmrt\1\0\1\3", 8);
	for (size_t have = 0; have < sizeof(bytes); have++)
		CHECK_EQ(handshake_decode(bytes, have, &got, &reason), HANDSHAKE_MORE);
	CHECK_EQ(handshake_decode(bytes, sizeof(bytes), &got, &reason), HANDSHAKE_DONE);
	sent.magic = HANDSHAKE_MAGIC;
	sent.version = HANDSHAKE_VERSION;
	CHECK_MEM(&got, &sent, sizeof(got));
}

static void test_reject(void)
{
	char text[300];
	struct handshake got;
	uint8_t bytes[HANDSHAKE_SIZE];
	const char *reason;

	handshake_encode_reject(bytes, "full");
	CHECK_EQ(handshake_decode(bytes, sizeof(bytes), &got, &reason), HANDSHAKE_DONE);
	CHECK_EQ(got.kind, HANDSHAKE_REJECT);
	CHECK_EQ(got.body_length, 4);
	CHECK_MEM(got.body, "full", 4);

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	handshake_encode_reject(bytes, text);
	CHECK_EQ(handshake_decode(bytes, sizeof(bytes), &got, &reason), HANDSHAKE_DONE);
	CHECK_EQ(got.body_length, HANDSHAKE_BODY_MAX);
	handshake_encode_reject(bytes, "");
	CHECK_EQ(handshake_decode(bytes, sizeof(bytes), &got, &reason), HANDSHAKE_DONE);
}

/* A stranger is told by its first bytes; there is no need to wait for more. */
static void test_strangers(void)
{
	static const char *const strangers[] = {
		"SSH-2.0-OpenSSH", "GET / HTTP/1.1\r\n",  "R", "Rmr", "Rmrd",
		"\x16\x03\x01",	   "*1\r\n$4\r\nPING\r\n"};
	static const enum handshake_result results[] = {
		HANDSHAKE_BAD, HANDSHAKE_BAD, HANDSHAKE_MORE, HANDSHAKE_MORE,
		HANDSHAKE_BAD, HANDSHAKE_BAD, HANDSHAKE_BAD};

	for (size_t i = 0; i < TEST_COUNT(strangers); i++) {
		struct handshake got;
		const char *reason;

		CHECK_EQ(handshake_decode((const uint8_t *)strangers[i], strlen(strangers[i]), &got,
					  &reason),
			 results[i]);
		CHECK(results[i] != HANDSHAKE_BAD || reason != NULL);
	}
}

/* Writes `size` bytes of value at `offset` of a good greeting; that makes it what is expected. */
static void check_altered(size_t offset, uint64_t value, size_t size, enum handshake_result result)
{
	struct handshake sent = greeting(), got;
	uint8_t bytes[HANDSHAKE_SIZE];
	const char *reason;

	handshake_encode(bytes, &sent);
	memcpy(bytes + offset, &value, size); /* on a little-endian machine */
	CHECK_EQ(handshake_decode(bytes, sizeof(bytes), &got, &reason), result);
	CHECK_EQ(result == HANDSHAKE_BAD, reason != NULL);
}

static void test_limits(void)
{
	check_altered(4, 2, 2, HANDSHAKE_VERSION_DIFFERS);
	check_altered(4, 0, 2, HANDSHAKE_VERSION_DIFFERS);
	check_altered(6, 0, 1, HANDSHAKE_BAD);
	check_altered(6, 4, 1, HANDSHAKE_BAD);
	check_altered(7, RMR_PRIVATE_MAX, 1, HANDSHAKE_DONE);
	check_altered(7, RMR_PRIVATE_MAX + 1, 1, HANDSHAKE_BAD);
	check_altered(7, 255, 1, HANDSHAKE_BAD);
	check_altered(8, TCP_MESSAGE_MAX, 8, HANDSHAKE_DONE);
	check_altered(8, TCP_MESSAGE_MAX + 1ull, 8, HANDSHAKE_BAD);
	check_altered(8, UINT64_MAX, 8, HANDSHAKE_BAD);
	check_altered(16, 0, 4, HANDSHAKE_BAD);
	check_altered(16, TCP_DEPTH_MAX, 4, HANDSHAKE_DONE);
	check_altered(16, TCP_DEPTH_MAX + 1, 4, HANDSHAKE_BAD);
	check_altered(20, 0, 4, HANDSHAKE_BAD);
	check_altered(20, TCP_WINDOW_MESSAGES_MAX + 1, 4, HANDSHAKE_BAD);
	check_altered(24, TCP_EAGER_MAX - 1, 4, HANDSHAKE_BAD);
	check_altered(24, UINT32_MAX, 4, HANDSHAKE_BAD);
	check_altered(28, 1, 4, HANDSHAKE_BAD);
}

static const struct test tests[] = {
	{"handshake_round_trip", test_round_trip},
	{"handshake_reject", test_reject},
	{"handshake_strangers", test_strangers},
	{"handshake_limits", test_limits},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "tcp_handshake", tests, TEST_COUNT(tests));
}
