/* The bytes of the socket exchange: greetings, answers, and everything else that calls a port. */
#include "fabric/verbs/exchange.h"

#include <string.h>

#include "harness/test.h"

static const uint8_t v4_gid[16] = {[10] = 0xff, [11] = 0xff, 10, 1, 2, 3};

static struct exchange ethernet(void)
{
	struct exchange exchange = {
		.greeting = {.kind = GREETING_HELLO,
			     .private_length = 3,
			     .recv_size = 8192,
			     .secret = 0x1122334455667788,
			     .private_data = "abc"},
		.qpn = 0x123456,
		.psn = 0xabcdef,
		.mtu = 3,
		.reads_out = 16,
		.reads_in = 128,
		.link = EXCHANGE_ETHERNET,
		.gid_type = EXCHANGE_GID_ROCE_V2,
	};

	memcpy(exchange.gid, v4_gid, sizeof(v4_gid));
	return exchange;
}

static struct exchange infiniband(void)
{
	struct exchange exchange = ethernet();

	exchange.greeting.kind = GREETING_ACCEPT;
	exchange.link = EXCHANGE_INFINIBAND;
	exchange.gid_type = EXCHANGE_GID_IB;
	exchange.lid = 7;
	exchange.gid[0] = 0xfe;
	return exchange;
}

static void check_same(const struct exchange *a, const struct exchange *b)
{
	CHECK_EQ(a->qpn, b->qpn);
	CHECK_EQ(a->psn, b->psn);
	CHECK_EQ(a->lid, b->lid);
	CHECK_EQ(a->mtu, b->mtu);
	CHECK_EQ(a->reads_out, b->reads_out);
	CHECK_EQ(a->reads_in, b->reads_in);
	CHECK_EQ(a->link, b->link);
	CHECK_EQ(a->gid_type, b->gid_type);
	CHECK_MEM(a->gid, b->gid, sizeof(a->gid));
	CHECK_EQ(a->greeting.kind, b->greeting.kind);
	CHECK_EQ(a->greeting.secret, b->greeting.secret);
	CHECK_EQ(a->greeting.recv_size, b->greeting.recv_size);
	CHECK_EQ(a->greeting.private_length, b->greeting.private_length);
	CHECK_MEM(a->greeting.private_data, b->greeting.private_data, RMR_PRIVATE_MAX);
}

static void test_round_trip(void)
{
	struct exchange cases[] = {ethernet(), infiniband()};

	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		uint8_t bytes[EXCHANGE_SIZE + 1] = {0};
		struct exchange got;
		const char *reason;

		exchange_encode(bytes, &cases[i]);
		CHECK_MEM(bytes, "Rmrv\1", 5);
		for (size_t have = 0; have < EXCHANGE_SIZE; have++)
			CHECK_EQ(exchange_decode(bytes, have, &got, &reason), EXCHANGE_MORE);
		CHECK_EQ(exchange_decode(bytes, EXCHANGE_SIZE, &got, &reason), EXCHANGE_DONE);
		check_same(&got, &cases[i]);
		/* There is nothing behind it. */
		CHECK_EQ(exchange_decode(bytes, EXCHANGE_SIZE + 1, &got, &reason), EXCHANGE_BAD);
	}
}

/* The numbers stand where they should, the lowest byte first. */
static void test_layout(void)
{
	struct exchange sent = ethernet();
	uint8_t bytes[EXCHANGE_SIZE];

	exchange_encode(bytes, &sent);
	CHECK_MEM(bytes + 56, "\x56\x34\x12\0\xef\xcd\xab\0", 8);
	CHECK_MEM(bytes + 64, "\0\0\3\x10\x80\2\2\0", 8);
	CHECK_MEM(bytes + 72, v4_gid, 16);
	CHECK_MEM(bytes + 88, "\0\0\0\0\0\0\0\0", 8);
}

/* Every byte, changed to every value: it is refused, or it is what was written. */
static void test_altered(void)
{
	struct exchange cases[] = {ethernet(), infiniband()};

	for (size_t i = 0; i < TEST_COUNT(cases) * EXCHANGE_SIZE * 256; i++) {
		size_t which = i / (EXCHANGE_SIZE * 256), at = i / 256 % EXCHANGE_SIZE;
		uint8_t bytes[EXCHANGE_SIZE], again[EXCHANGE_SIZE];
		enum exchange_result result;
		struct exchange got;
		const char *reason;

		exchange_encode(bytes, &cases[which]);
		bytes[at] = (uint8_t)i;
		result = exchange_decode(bytes, sizeof(bytes), &got, &reason);
		CHECK_EQ(result == EXCHANGE_BAD, reason != NULL);
		if (at < 4 && bytes[at] != (uint8_t) "Rmrv"[at])
			CHECK_EQ(result, EXCHANGE_BAD);
		if (at == 4 && bytes[at] != GREETING_VERSION)
			CHECK_EQ(result, EXCHANGE_OTHER_VERSION);
		if (result != EXCHANGE_DONE)
			continue;
		exchange_encode(again, &got);
		CHECK_MEM(again, bytes, sizeof(bytes));
	}
}

/* Writes `size` bytes of value at `offset` of a good greeting; that makes it what is expected. */
static void check_altered(struct exchange sent, size_t offset, uint64_t value, size_t size,
			  enum exchange_result result)
{
	uint8_t bytes[EXCHANGE_SIZE];
	struct exchange got;
	const char *reason;

	exchange_encode(bytes, &sent);
	memcpy(bytes + offset, &value, size); /* on a little-endian machine */
	CHECK_EQ(exchange_decode(bytes, sizeof(bytes), &got, &reason), result);
}

static void test_limits(void)
{
	struct exchange e = ethernet(), i = infiniband();

	check_altered(e, 5, 0, 1, EXCHANGE_BAD); /* kind */
	check_altered(e, 5, 4, 1, EXCHANGE_BAD);
	check_altered(e, 6, RMR_PRIVATE_MAX, 1, EXCHANGE_DONE);
	check_altered(e, 6, RMR_PRIVATE_MAX + 1, 1, EXCHANGE_BAD);
	check_altered(e, 7, 1, 1, EXCHANGE_BAD);
	check_altered(e, 8, 0, 4, EXCHANGE_BAD); /* recv_size */
	check_altered(e, 12, 1, 4, EXCHANGE_BAD);
	check_altered(e, 56, 1, 4, EXCHANGE_BAD); /* qpn */
	check_altered(e, 56, 2, 4, EXCHANGE_DONE);
	check_altered(e, 56, 0xffffff, 4, EXCHANGE_DONE);
	check_altered(e, 56, 0x1000000, 4, EXCHANGE_BAD);
	check_altered(e, 60, 0, 4, EXCHANGE_DONE); /* psn */
	check_altered(e, 60, 0x1000000, 4, EXCHANGE_BAD);
	check_altered(e, 64, 1, 2, EXCHANGE_BAD); /* lid */
	check_altered(i, 64, 0, 2, EXCHANGE_BAD);
	check_altered(i, 64, 0xbfff, 2, EXCHANGE_DONE);
	check_altered(i, 64, 0xc000, 2, EXCHANGE_BAD);
	check_altered(e, 66, 0, 1, EXCHANGE_BAD); /* mtu */
	check_altered(e, 66, 1, 1, EXCHANGE_DONE);
	check_altered(e, 66, 5, 1, EXCHANGE_DONE);
	check_altered(e, 66, 6, 1, EXCHANGE_BAD);
	check_altered(e, 67, 0, 1, EXCHANGE_BAD); /* reads */
	check_altered(e, 68, 0, 1, EXCHANGE_BAD);
	check_altered(e, 68, 255, 1, EXCHANGE_DONE);
	check_altered(e, 69, 0, 1, EXCHANGE_BAD); /* link layer */
	check_altered(e, 69, 1, 1, EXCHANGE_BAD);
	check_altered(i, 69, 2, 1, EXCHANGE_BAD);
	check_altered(e, 69, 3, 1, EXCHANGE_BAD);
	check_altered(e, 70, 0, 1, EXCHANGE_BAD); /* gid type */
	check_altered(e, 70, 1, 1, EXCHANGE_DONE);
	check_altered(e, 70, 3, 1, EXCHANGE_BAD);
	check_altered(i, 70, 2, 1, EXCHANGE_BAD);
	check_altered(e, 71, 1, 1, EXCHANGE_BAD);
	check_altered(e, 72, 0xff, 1, EXCHANGE_BAD); /* gid: a group */
	check_altered(e, 88, 1ull << 63, 8, EXCHANGE_BAD);
}

static void test_nobodys_gid(void)
{
	struct exchange sent = ethernet();
	uint8_t bytes[EXCHANGE_SIZE];
	struct exchange got;
	const char *reason;

	exchange_encode(bytes, &sent);
	memset(bytes + 72, 0, 16);
	CHECK_EQ(exchange_decode(bytes, sizeof(bytes), &got, &reason), EXCHANGE_BAD);
}

/* Another version is known by its beginning, whatever its length; but a refusal is understood. */
static void test_other_version(void)
{
	uint8_t bytes[REFUSAL_SIZE] = "Rmrv\2\1";
	struct exchange got;
	const char *reason;
	size_t length;

	CHECK_EQ(exchange_decode(bytes, 5, &got, &reason), EXCHANGE_MORE);
	CHECK_EQ(exchange_decode(bytes, 6, &got, &reason), EXCHANGE_OTHER_VERSION);
	length = refusal_encode(bytes, "another version");
	bytes[4] = 2;
	CHECK_EQ(exchange_decode(bytes, length, &got, &reason), EXCHANGE_REFUSED);
}

static void test_refusal(void)
{
	static const char *const reasons[] = {"", "full", "bell \a and \x1b[2J"};
	static const char *const shown[] = {"", "full", "bell ? and ?[2J"};
	uint8_t bytes[REFUSAL_SIZE];
	char text[GREETING_TEXT_MAX + 1], longest[300];
	struct exchange got;
	const char *reason;
	size_t length;

	for (size_t i = 0; i < TEST_COUNT(reasons); i++) {
		length = refusal_encode(bytes, reasons[i]);
		CHECK(length <= sizeof(bytes));
		for (size_t have = 0; have < length; have++)
			CHECK_EQ(exchange_decode(bytes, have, &got, &reason), EXCHANGE_MORE);
		CHECK_EQ(exchange_decode(bytes, length, &got, &reason), EXCHANGE_REFUSED);
		CHECK(refusal_decode(bytes, length, text));
		CHECK_STR(text, shown[i]);
	}
	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	CHECK_EQ(refusal_encode(bytes, longest), REFUSAL_SIZE);
	CHECK_EQ(exchange_decode(bytes, REFUSAL_SIZE, &got, &reason), EXCHANGE_REFUSED);
	bytes[6] = GREETING_TEXT_MAX + 1; /* says more than there can be */
	CHECK_EQ(exchange_decode(bytes, REFUSAL_SIZE, &got, &reason), EXCHANGE_BAD);
	CHECK(reason != NULL);
}

/* A stranger is told by its first bytes; there is no need to wait for more. */
static void test_strangers(void)
{
	static const struct {
		const char *says;
		enum exchange_result result;
	} cases[] = {
		{"SSH-2.0-OpenSSH", EXCHANGE_BAD},
		{"GET / HTTP/1.1\r\n", EXCHANGE_BAD},
		{"R", EXCHANGE_MORE},
		{"Rmr", EXCHANGE_MORE},
		{"Rmrt\1", EXCHANGE_BAD},
		{"\x16\x03\x01", EXCHANGE_BAD},
		{"Rmrv", EXCHANGE_MORE},
		{"Rmrv\1", EXCHANGE_MORE},
	};

	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct exchange got;
		const char *reason;

		CHECK_EQ(exchange_decode((const uint8_t *)cases[i].says, strlen(cases[i].says),
					 &got, &reason),
			 cases[i].result);
		CHECK_EQ(cases[i].result == EXCHANGE_BAD, reason != NULL);
	}
}

static void test_garbage(void)
{
	struct test_rng rng;

	test_rng_init(&rng, 11);
	for (int i = 0; i < 200000; i++) {
		uint8_t bytes[REFUSAL_SIZE], again[EXCHANGE_SIZE];
		struct exchange got;
		const char *reason;
		size_t have;

		test_rng_fill(&rng, bytes, sizeof(bytes));
		have = bytes[0] % (sizeof(bytes) + 1);
		if (i % 4) /* most get past the magic, and some past the kind */
			memcpy(bytes, "Rmrv\1\1\3", (size_t)(4 + i % 4));
		if (exchange_decode(bytes, have, &got, &reason) != EXCHANGE_DONE)
			continue;
		exchange_encode(again, &got);
		CHECK_MEM(again, bytes, sizeof(again));
	}
}

static void test_ready(void)
{
	uint8_t bytes[EXCHANGE_READY_SIZE + 1] = {0};

	exchange_encode_ready(bytes);
	for (size_t have = 0; have < EXCHANGE_READY_SIZE; have++)
		CHECK_EQ(exchange_decode_ready(bytes, have), EXCHANGE_MORE);
	CHECK_EQ(exchange_decode_ready(bytes, EXCHANGE_READY_SIZE), EXCHANGE_DONE);
	CHECK_EQ(exchange_decode_ready(bytes, EXCHANGE_READY_SIZE + 1), EXCHANGE_BAD);
	for (size_t at = 0; at < EXCHANGE_READY_SIZE; at++) {
		bytes[at] ^= 1;
		CHECK_EQ(exchange_decode_ready(bytes, at), EXCHANGE_MORE);
		for (size_t have = at + 1; have <= EXCHANGE_READY_SIZE; have++)
			CHECK_EQ(exchange_decode_ready(bytes, have), EXCHANGE_BAD);
		bytes[at] ^= 1;
	}
}

static const struct test tests[] = {
	{"exchange_round_trip", test_round_trip},   {"exchange_layout", test_layout},
	{"exchange_altered", test_altered},	    {"exchange_limits", test_limits},
	{"exchange_nobodys_gid", test_nobodys_gid}, {"exchange_other_version", test_other_version},
	{"exchange_refusal", test_refusal},	    {"exchange_strangers", test_strangers},
	{"exchange_garbage", test_garbage},	    {"exchange_ready", test_ready},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "verbs_exchange", tests, TEST_COUNT(tests));
}
