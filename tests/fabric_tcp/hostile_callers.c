/*
 * Callers that are none, or never finish saying who they are. Honest ones are taken meanwhile.
 */
#include "hostile.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raw.h"
#include "victim.h"

/* One byte at a time is slow, but honest. */
static void test_slow_greeting(void)
{
	struct handshake hello = raw_greeting(HANDSHAKE_HELLO);
	uint8_t bytes[HANDSHAKE_SIZE];
	struct victim victim;
	int fd;

	victim_start(&victim);
	fd = raw_connect(victim.board->address);
	handshake_encode(bytes, &hello);
	for (size_t i = 0; i < sizeof(bytes); i++)
		raw_send(fd, bytes + i, 1);
	CHECK(raw_read(fd, bytes, sizeof(bytes)));
	CHECK_EQ(bytes[6], HANDSHAKE_ACCEPT);
	close(fd);
	victim_check(&victim);
	victim_stop(&victim);
}

/* Half a greeting: dropped when the time is over. */
static void test_half_greeting(void)
{
	struct handshake hello = raw_greeting(HANDSHAKE_HELLO);
	uint8_t bytes[HANDSHAKE_SIZE];
	struct victim victim;
	int fd;

	victim_start(&victim);
	fd = raw_connect(victim.board->address);
	handshake_encode(bytes, &hello);
	raw_send(fd, bytes, sizeof(bytes) - 1);
	victim_check(&victim);
	raw_expect_end(fd);
	victim_check(&victim);
	victim_stop(&victim);
}

static void test_nonsense(void)
{
	static const struct {
		size_t offset;
		uint8_t value;
	} changes[] = {{0, 'X'}, {6, 0},   {6, HANDSHAKE_ACCEPT},
		       {6, 9},	 {7, 200}, {15, 1},
		       {19, 1},	 {23, 1},  {27, 0xff},
		       {28, 1}};
	struct handshake hello = raw_greeting(HANDSHAKE_HELLO);
	struct victim victim;

	victim_start(&victim);
	for (size_t i = 0; i < TEST_COUNT(changes); i++) {
		uint8_t bytes[HANDSHAKE_SIZE];
		int fd = raw_connect(victim.board->address);

		handshake_encode(bytes, &hello);
		bytes[changes[i].offset] = changes[i].value;
		raw_send(fd, bytes, sizeof(bytes));
		raw_expect_end(fd);
	}
	CHECK_EQ(atomic_load(&victim.board->accepted), 1);
	victim_check(&victim);
	victim_stop(&victim);
}

/* Another version is told so. */
static void test_other_version(void)
{
	struct handshake hello = raw_greeting(HANDSHAKE_HELLO), answer;
	uint8_t bytes[HANDSHAKE_SIZE];
	struct victim victim;
	const char *reason;
	int fd;

	victim_start(&victim);
	fd = raw_connect(victim.board->address);
	handshake_encode(bytes, &hello);
	bytes[4] = 9;
	raw_send(fd, bytes, sizeof(bytes));
	CHECK(raw_read(fd, bytes, sizeof(bytes)));
	CHECK_EQ(handshake_decode(bytes, sizeof(bytes), &answer, &reason), HANDSHAKE_DONE);
	CHECK_EQ(answer.kind, HANDSHAKE_REJECT);
	raw_expect_end(fd);
	victim_stop(&victim);
}

/* More silent callers than the backlog takes: they time out, and an honest one gets through. */
static void test_silent_crowd(void)
{
	struct victim victim;
	int fds[40];

	victim_start(&victim);
	for (int i = 0; i < 40; i++)
		fds[i] = raw_connect(victim.board->address);
	victim_check(&victim);
	close(raw_call(victim.board->address, RAW_DEPTH));
	for (int i = 0; i < 40; i++)
		raw_expect_end(fds[i]);
	victim_check(&victim);
	victim_stop(&victim);
}

const struct test caller_tests[] = {
	{"caller_slow_greeting", test_slow_greeting}, {"caller_half_greeting", test_half_greeting},
	{"caller_nonsense", test_nonsense},	      {"caller_other_version", test_other_version},
	{"caller_silent_crowd", test_silent_crowd},   {NULL},
};
