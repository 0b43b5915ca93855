/* The hash is stored and sent: its values must never change. */
#include "base/hash_short.h"

#include "harness/test.h"

static void test_known_values(void)
{
	/* From the XXH3 specification and its reference program (xxhsum -H3). */
	CHECK(hash64("", 0) == UINT64_C(0x2d06800538d394c2));
	CHECK(hash64("a", 1) == UINT64_C(0xe6c632b61e964e1f));
	CHECK(hash64("abc", 3) == UINT64_C(0x78af5f94892f3950));
	CHECK(hash64_seed("abc", 3, 0) == hash64("abc", 3));
	CHECK(hash64_seed("abc", 3, 1) != hash64("abc", 3));
}

/* Inline or not, it is the same. */
static void test_short_keys(void)
{
	unsigned char data[64];
	struct test_rng rng;

	test_rng_init(&rng, 2);
	for (int i = 0; i < 1000; i++) {
		uint64_t seed = i % 4 ? test_rng_next(&rng) : 0;

		test_rng_fill(&rng, data, sizeof(data));
		for (size_t length = 0; length <= sizeof(data); length++)
			CHECK(hash64_short(data, length, seed) == hash64_seed(data, length, seed));
	}
}

/* Every length class of the algorithm: the hash depends on each byte, and not on alignment. */
static void test_every_byte_counts(void)
{
	unsigned char data[1100], shifted[1101];
	struct test_rng rng;

	test_rng_init(&rng, 0);
	test_rng_fill(&rng, data, sizeof(data));
	for (size_t length = 1; length <= sizeof(data); length += length < 300 ? 1 : 97) {
		uint64_t hash = hash64(data, length);

		for (size_t i = 0; i < length; i++)
			shifted[i + 1] = data[i];
		CHECK(hash64(shifted + 1, length) == hash);
		for (size_t i = 0; i < length; i++) {
			data[i] ^= 0x10;
			CHECK(hash64(data, length) != hash);
			data[i] ^= 0x10;
		}
	}
}

/* In pieces of any size it is the same. */
static void test_streams(void)
{
	static unsigned char data[70000];
	struct hash_stream stream;
	struct test_rng rng;

	test_rng_init(&rng, 1);
	test_rng_fill(&rng, data, sizeof(data));
	for (int i = 0; i < 300; i++) {
		size_t length = test_rng_below(&rng, i < 200 ? 2000 : sizeof(data)), at = 0;

		hash_stream_begin(&stream);
		while (at < length) {
			size_t part = 1 + test_rng_below(&rng, length - at);

			hash_stream_add(&stream, data + at, part);
			at += part;
		}
		CHECK(hash_stream_end(&stream) == hash64(data, length));
	}
}

static const struct test tests[] = {
	{"streams", test_streams},
	{"known_values", test_known_values},
	{"short_keys", test_short_keys},
	{"every_byte_counts", test_every_byte_counts},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "hash_test", tests, TEST_COUNT(tests));
}
