/* What client and server of the control plane share: framing and metadata of gRPC. */
#include <stdlib.h>
#include <string.h>

#include "control/grpc.h"
#include "control/gzip.h"
#include "harness/test.h"

/* ------------------------------------------------------------------------------------------
 * Framing
 */

/* Two messages, of 3 and 2000 bytes, and an empty one. */
static size_t make_stream(uint8_t *to)
{
	size_t length = 0;

	grpc_prefix_write(to, 3);
	memcpy(to + 5, "abc", 3);
	length = 8;
	grpc_prefix_write(to + length, 2000);
	for (size_t i = 0; i < 2000; i++)
		to[length + 5 + i] = (uint8_t)(i * 7);
	length += 2005;
	grpc_prefix_write(to + length, 0);
	return length + 5;
}

static void check_message(const struct grpc_reader *reader, unsigned number)
{
	static const uint32_t lengths[] = {3, 2000, 0};

	CHECK(number < 3);
	CHECK_EQ(reader->length, lengths[number]);
	CHECK_EQ(reader->used, lengths[number]);
	if (number == 0)
		CHECK_MEM(reader->bytes, "abc", 3);
	for (size_t i = 0; number == 1 && i < 2000; i++)
		CHECK_EQ(reader->bytes[i], (uint8_t)(i * 7));
}

static void test_messages_in_pieces(void)
{
	uint8_t stream[4096];
	size_t length = make_stream(stream);

	for (size_t piece = 1; piece <= length; piece = piece < 20 ? piece + 1 : piece * 3 / 2) {
		struct grpc_budget budget = {.most = 4096};
		struct grpc_reader reader;
		unsigned found = 0;

		grpc_reader_init(&reader, 4096, &budget);
		for (size_t at = 0; at < length;) {
			size_t left = length - at < piece ? length - at : piece, taken;
			enum grpc_feed what = grpc_reader_feed(&reader, stream + at, left, &taken);

			at += taken;
			CHECK(what == GRPC_FEED_MORE || what == GRPC_FEED_MESSAGE);
			if (what == GRPC_FEED_MORE) {
				CHECK_EQ(taken, left);
				continue;
			}
			check_message(&reader, found++);
			CHECK(grpc_reader_is_inside(&reader));
			grpc_reader_next(&reader);
			CHECK(!grpc_reader_is_inside(&reader));
		}
		CHECK_EQ(found, 3);
		grpc_reader_fini(&reader);
		CHECK_EQ(budget.used, 0);
	}
}

static enum grpc_feed feed_once(const uint8_t *bytes, size_t length, uint32_t most)
{
	struct grpc_reader reader;
	enum grpc_feed found;
	size_t taken;

	grpc_reader_init(&reader, most, NULL);
	found = grpc_reader_feed(&reader, bytes, length, &taken);
	grpc_reader_fini(&reader);
	return found;
}

static void test_wrong_prefixes(void)
{
	CHECK_EQ(feed_once((const uint8_t[]){2, 0, 0, 0, 0}, 5, 100), GRPC_FEED_WRONG);
	CHECK_EQ(feed_once((const uint8_t[]){1, 0, 0, 0, 1}, 5, 100), GRPC_FEED_COMPRESSED);
	CHECK_EQ(feed_once((const uint8_t[]){0, 0, 0, 0, 101}, 5, 100), GRPC_FEED_TOO_LONG);
	CHECK_EQ(feed_once((const uint8_t[]){0, 255, 255, 255, 255}, 5, 100), GRPC_FEED_TOO_LONG);
	CHECK_EQ(feed_once((const uint8_t[]){0, 0, 0, 0, 100}, 5, 100), GRPC_FEED_MORE);
	CHECK_EQ(feed_once((const uint8_t[]){0, 0, 0, 0}, 4, 100), GRPC_FEED_MORE);
}

/* Memory grows with what has come, not with what was announced. */
static void test_announced_is_not_held(void)
{
	struct grpc_budget budget = {.most = (size_t)1 << 20};
	uint8_t prefix[GRPC_PREFIX], bytes[1000] = {0};
	struct grpc_reader reader;
	size_t taken;

	grpc_prefix_write(prefix, 1 << 20);
	grpc_reader_init(&reader, 1 << 20, &budget);
	CHECK_EQ(grpc_reader_feed(&reader, prefix, sizeof(prefix), &taken), GRPC_FEED_MORE);
	CHECK_EQ(budget.used, 0);
	for (size_t sent = 1000; sent <= 100000; sent += 1000) {
		CHECK_EQ(grpc_reader_feed(&reader, bytes, sizeof(bytes), &taken), GRPC_FEED_MORE);
		CHECK(budget.used <= 2 * sent + 1024);
	}
	grpc_reader_fini(&reader);
	CHECK_EQ(budget.used, 0);
}

static void test_budget(void)
{
	struct grpc_budget whole = {.most = 1000};
	struct grpc_budget first = {.most = 1000, .above = &whole, .share = 2};
	struct grpc_budget second = first;

	/* Half of what is left: 500, then nothing more, as what it has counts. */
	CHECK(!grpc_budget_take(&first, 501));
	CHECK(grpc_budget_take(&first, 330));
	CHECK(!grpc_budget_take(&first, 10));
	/* The second gets its share of the rest, and cannot take the last either. */
	CHECK(grpc_budget_take(&second, 200));
	CHECK(!grpc_budget_take(&second, 100));
	CHECK_EQ(whole.used, 530);
	grpc_budget_give(&first, 330);
	CHECK(grpc_budget_take(&second, 150));
	grpc_budget_give(&second, 350);
	CHECK_EQ(whole.used, 0);
	CHECK_EQ(second.used, 0);
}

static void test_no_budget_left(void)
{
	struct grpc_budget budget = {.most = 1000};
	uint8_t bytes[3000] = {0};
	struct grpc_reader reader;
	size_t taken;

	grpc_prefix_write(bytes, 2000);
	grpc_reader_init(&reader, 4096, &budget);
	CHECK_EQ(grpc_reader_feed(&reader, bytes, sizeof(bytes), &taken), GRPC_FEED_NO_MEMORY);
	grpc_reader_next(&reader);
	CHECK_EQ(budget.used, 0);
	/* A short one needs none of it. */
	grpc_prefix_write(bytes, GRPC_READER_INLINE);
	CHECK_EQ(grpc_reader_feed(&reader, bytes, sizeof(bytes), &taken), GRPC_FEED_MESSAGE);
	CHECK_EQ(taken, GRPC_PREFIX + GRPC_READER_INLINE);
	CHECK_EQ(budget.used, 0);
	grpc_reader_fini(&reader);
}

/* ------------------------------------------------------------------------------------------
 * Metadata
 */

static void check_escapes(const char *text, const char *encoded)
{
	char to[64];
	size_t length = grpc_percent_encode(text, to, sizeof(to));
	char back[64];

	CHECK_EQ(length, strlen(encoded));
	CHECK_MEM(to, encoded, length);
	CHECK_EQ(grpc_percent_decode((const uint8_t *)to, length, back, sizeof(back)),
		 strlen(text));
	CHECK_STR(back, text);
}

static void test_percent(void)
{
	char to[8];

	check_escapes("", "");
	check_escapes("no such key", "no such key");
	check_escapes("100%", "100%25");
	check_escapes("a\nb\x7f", "a%0Ab%7F");
	check_escapes("gr\xc3\xbc\xc3\x9f", "gr%C3%BC%C3%9F");
	/* Cut between letters. */
	CHECK_EQ(grpc_percent_encode("ab%%%", to, 7), 5);
	CHECK_MEM(to, "ab%25", 5);
	/* What is no escape stays. */
	CHECK_EQ(grpc_percent_decode((const uint8_t *)"%zz%4", 5, to, sizeof(to)), 5);
	CHECK_STR(to, "%zz%4");
	CHECK_EQ(grpc_percent_decode((const uint8_t *)"abcdefghij", 10, to, sizeof(to)), 7);
	CHECK_STR(to, "abcdefg");
}

static void check_timeout(const char *text, bool is_right, uint64_t expected)
{
	uint64_t timeout_ns = 1;

	CHECK_EQ(grpc_timeout_parse((const uint8_t *)text, strlen(text), &timeout_ns), is_right);
	if (is_right)
		CHECK_EQ(timeout_ns, expected);
}

static void test_timeouts(void)
{
	static const char *const wrong[] = {"",	    "1",   "S",		 "1s", "-1S",
					    "1.5S", "1 S", "123456789S", "S1", "1SS"};
	char text[GRPC_TIMEOUT_TEXT];

	check_timeout("0n", true, 0);
	check_timeout("1n", true, 1);
	check_timeout("20u", true, 20000);
	check_timeout("100m", true, 100000000);
	check_timeout("3S", true, UINT64_C(3000000000));
	check_timeout("2M", true, UINT64_C(120000000000));
	check_timeout("1H", true, UINT64_C(3600000000000));
	check_timeout("99999999H", true, UINT64_MAX / 2);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		check_timeout(wrong[i], false, 0);
	/* Written and read again it is the same, or a little more. */
	for (uint64_t ns = 1; ns < UINT64_MAX / 16; ns = ns * 7 + 3) {
		uint64_t back;

		CHECK_EQ(grpc_timeout_format(ns, text), strlen(text));
		CHECK(grpc_timeout_parse((const uint8_t *)text, strlen(text), &back));
		CHECK(back >= ns);
		CHECK(back - ns <= ns / 50000);
	}
}

static void test_statuses(void)
{
	CHECK_STR(grpc_status_name(GRPC_NOT_FOUND), "NOT_FOUND");
	CHECK_STR(grpc_status_name(GRPC_UNAUTHENTICATED), "UNAUTHENTICATED");
	CHECK_STR(grpc_status_name(1000), "UNKNOWN");
	CHECK_EQ(grpc_status_parse((const uint8_t *)"0", 1), GRPC_OK);
	CHECK_EQ(grpc_status_parse((const uint8_t *)"16", 2), GRPC_UNAUTHENTICATED);
	CHECK_EQ(grpc_status_parse((const uint8_t *)"17", 2), GRPC_UNKNOWN);
	CHECK_EQ(grpc_status_parse((const uint8_t *)"", 0), GRPC_UNKNOWN);
	CHECK_EQ(grpc_status_parse((const uint8_t *)"-1", 2), GRPC_UNKNOWN);
	CHECK_EQ(grpc_status_parse((const uint8_t *)"005", 3), GRPC_UNKNOWN);
}

static bool is_grpc(const char *type)
{
	return grpc_content_type_is_right((const uint8_t *)type, strlen(type));
}

static void test_content_types(void)
{
	CHECK(is_grpc("application/grpc"));
	CHECK(is_grpc("application/grpc+proto"));
	CHECK(is_grpc("application/grpc;charset=utf-8"));
	CHECK(is_grpc("application/grpc+proto;x"));
	CHECK(!is_grpc("application/grpc+json"));
	CHECK(!is_grpc("application/grpc-web"));
	CHECK(!is_grpc("application/json"));
	CHECK(!is_grpc(""));
}

static void test_lists(void)
{
	static const struct {
		const char *list;
		bool has;
	} cases[] = {
		{"gzip", true},
		{"identity,gzip", true},
		{"identity, deflate, gzip", true},
		{"gzip ,identity", true},
		{"", false},
		{"identity", false},
		{"gzipped", false},
		{"xgzip", false},
		{",,", false},
	};

	for (size_t i = 0; i < TEST_COUNT(cases); i++)
		CHECK_EQ(grpc_list_has((const uint8_t *)cases[i].list, strlen(cases[i].list),
				       "gzip"),
			 cases[i].has);
}

#define GZIP_TEXT 100000u

static void test_gzip(void)
{
	static uint8_t text[GZIP_TEXT], packed[GZIP_TEXT];
	struct grpc_budget budget = {.most = 2 * GZIP_TEXT};
	struct gzip_packer *packer = gzip_packer_create();
	struct gzip_bytes bytes;
	size_t length;

	CHECK(packer);
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(i / 100);
	for (size_t size = 0; size <= sizeof(text); size += 12500) {
		length = gzip_pack(packer, text, (uint32_t)size, packed, sizeof(packed));
		CHECK(length > 0);
		/* A message that just fits, and one that has one byte too many. */
		CHECK_EQ(gzip_unpack(packed, (uint32_t)length, size, &budget, &bytes), GZIP_OK);
		CHECK(bytes.length == size && memcmp(bytes.bytes, text, size) == 0);
		CHECK_EQ(budget.used, bytes.room);
		gzip_bytes_free(&bytes, &budget);
		CHECK_EQ(budget.used, 0);
		if (size)
			CHECK_EQ(gzip_unpack(packed, (uint32_t)length, size - 1, &budget, &bytes),
				 GZIP_TOO_LONG);
		CHECK_EQ(gzip_pack(packer, text, (uint32_t)size, packed, 10), 0);
	}
	length = gzip_pack(packer, text, sizeof(text), packed, sizeof(packed));
	budget.most = 50000;
	CHECK_EQ(gzip_unpack(packed, (uint32_t)length, sizeof(text), &budget, &bytes),
		 GZIP_NO_MEMORY);
	CHECK_EQ(budget.used, 0);
	budget.most = 2 * GZIP_TEXT;
	/* Cut anywhere, spoiled anywhere, and with something behind it. */
	for (size_t cut = 0; cut < length; cut++) {
		CHECK_EQ(gzip_unpack(packed, (uint32_t)cut, sizeof(text), &budget, &bytes),
			 GZIP_BROKEN);
		CHECK_EQ(budget.used, 0);
	}
	CHECK_EQ(gzip_unpack(packed, (uint32_t)length + 1, sizeof(text), &budget, &bytes),
		 GZIP_BROKEN);
	packed[length - 6] ^= 1;
	CHECK_EQ(gzip_unpack(packed, (uint32_t)length, sizeof(text), &budget, &bytes), GZIP_BROKEN);
	CHECK_EQ(budget.used, 0);
	gzip_packer_destroy(packer);
}

static const struct test tests[] = {
	{"messages_in_pieces", test_messages_in_pieces},
	{"wrong_prefixes", test_wrong_prefixes},
	{"announced_is_not_held", test_announced_is_not_held},
	{"budget", test_budget},
	{"no_budget_left", test_no_budget_left},
	{"percent", test_percent},
	{"timeouts", test_timeouts},
	{"statuses", test_statuses},
	{"content_types", test_content_types},
	{"lists", test_lists},
	{"gzip", test_gzip},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "control_parts_test", tests, TEST_COUNT(tests));
}
