/*
 * The probe: from any old count of buckets it comes to the right one by two wrong ones at most.
 * Over pictures of an index that are only depths, and over a copy of a real arena, bucket by
 * bucket.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "store/item.h"
#include "store/probe.h"
#include "store/size_class.h"

#define MAX_WRONG 2

/* At the words of a bucket. */
static enum probe_step look(struct probe *probe, const uint64_t words[BUCKET_SLOTS + 1])
{
	struct bucket bucket;

	memcpy(&bucket, words, sizeof(bucket));
	return probe_look(probe, &bucket);
}

/* The depth of a bucket when there are `count`. */
static unsigned depth_at(uint64_t number, uint64_t count)
{
	unsigned depth = depth_of_count(count);
	uint64_t half = (uint64_t)1 << depth;

	return depth + (number < count - half || number >= half);
}

/* The bucket that a hash belongs to when there are `count`: the plain definition. */
static uint64_t home_of(uint64_t hash, uint64_t count)
{
	unsigned depth = depth_of_count(count);
	uint64_t wide = hash_bits(hash, depth + 1);

	return wide < count ? wide : hash_bits(hash, depth);
}

/* Searches with an old count in an index of `count` buckets, all of them empty. */
static void search(uint64_t hash, uint64_t old_count, uint64_t count)
{
	uint64_t words[BUCKET_SLOTS + 1] = {0}, home = home_of(hash, count);
	struct probe probe;
	int wrong = 0;

	probe_begin(&probe, hash, old_count);
	CHECK_EQ(probe.bucket, home_of(hash, old_count));
	CHECK_EQ(probe.bits, depth_at(probe.bucket, old_count));
	for (;;) {
		enum probe_step step;
		uint64_t bucket = probe.bucket;

		CHECK(!probe.in_overflow && bucket < count);
		words[0] = bucket_header(7, 0, depth_at(bucket, count));
		step = look(&probe, words);
		CHECK_EQ(probe.candidate_count, 0);
		if (bucket == home) {
			CHECK_EQ(step, PROBE_END);
			return;
		}
		CHECK_EQ(step, PROBE_GO_ON);
		if (++wrong > MAX_WRONG)
			TEST_FAIL("hash %lx: %d wrong buckets from %lu to %lu", hash, wrong,
				  old_count, count);
	}
}

/* Every count after every other, in a small range. From two buckets on: a depth of 0 says that
 * there is none. */
static void test_all_counts(void)
{
	struct test_rng rng;

	test_rng_init(&rng, 1);
	for (uint64_t count = 2; count <= 300; count++) {
		for (uint64_t old = 2; old <= count; old++) {
			for (int i = 0; i < 20; i++)
				search(test_rng_next(&rng), old, count);
		}
	}
}

static void test_borders_of_counts(void)
{
	struct test_rng rng;

	test_rng_init(&rng, 2);
	for (unsigned bits = 2; bits < MAX_DEPTH - 1; bits++) {
		for (uint64_t around = 0; around < 5; around++) {
			uint64_t count = ((uint64_t)1 << bits) + around - 2;

			for (unsigned old = 1; old <= bits; old++) {
				uint64_t old_count = ((uint64_t)1 << old) + around % 3;

				for (int i = 0; i < 100 && old_count <= count; i++)
					search(test_rng_next(&rng), old_count, count);
			}
		}
	}
}

static void test_random_counts(void)
{
	struct test_rng rng;

	test_rng_init(&rng, 3);
	for (int i = 0; i < 2000000; i++) {
		uint64_t count = 2 + test_rng_below(&rng, (uint64_t)1 << test_rng_below(&rng, 39));

		search(test_rng_next(&rng), 2 + test_rng_below(&rng, count - 1), count);
	}
}

/* ------------------------------------------------------------------------------------------
 * What makes no sense
 */

static void test_absent(void)
{
	uint64_t words[BUCKET_SLOTS + 1] = {0};
	struct probe probe;

	/* A bucket of depth 0 is not there yet. */
	probe_begin(&probe, 0x1235, 1024);
	CHECK_EQ(look(&probe, words), PROBE_CONFUSED);
	/* Deeper than anything can be. */
	for (unsigned depth = MAX_DEPTH + 1; depth < 64; depth++) {
		probe_begin(&probe, UINT64_MAX, 1024);
		words[0] = bucket_header(0, 0, depth);
		CHECK_EQ(look(&probe, words), PROBE_CONFUSED);
	}
}

/* Chains without an end are given up. */
static void test_hop_limit(void)
{
	uint64_t words[BUCKET_SLOTS + 1] = {bucket_header(0, 5, 10)};
	struct probe probe;
	unsigned steps = 0;

	probe_begin(&probe, 0x155, 1024);
	while (look(&probe, words) == PROBE_GO_ON) {
		CHECK(probe.in_overflow && probe.bucket == 5);
		steps++;
	}
	CHECK_EQ(steps, PROBE_MAX_STEPS);
	CHECK(steps >= PROBE_MAX_CHAIN + MAX_WRONG);
}

/* A bucket that sends the reader on at each step, always to a place that it can't be in. */
static void test_lying_depths(void)
{
	uint64_t words[BUCKET_SLOTS + 1] = {0};
	struct probe probe;
	unsigned steps = 0;

	probe_begin(&probe, UINT64_MAX, 1024);
	do {
		/* One bit less than the reader went by: its place is never the right one. */
		words[0] = bucket_header(0, 0, probe.bits - 1);
		CHECK(probe.bits <= MAX_DEPTH);
		CHECK(++steps <= MAX_DEPTH + 1);
	} while (look(&probe, words) == PROBE_GO_ON);
	CHECK(steps > 1);
}

/* Headers of any kind: it ends. */
static void test_garbage(void)
{
	struct test_rng rng;

	test_rng_init(&rng, 4);
	for (int i = 0; i < 100000; i++) {
		uint64_t words[BUCKET_SLOTS + 1];
		struct probe probe;
		unsigned steps = 0;

		probe_begin(&probe, test_rng_next(&rng), 1 + test_rng_below(&rng, 1 << 20));
		do {
			test_rng_fill(&rng, words, sizeof(words));
			CHECK(probe.bits <= MAX_DEPTH);
			CHECK(++steps <= PROBE_MAX_STEPS + 1);
		} while (look(&probe, words) == PROBE_GO_ON);
		CHECK(probe.candidate_count <= BUCKET_SLOTS);
	}
}

/* Candidates are the slots with the right tag, in any place; empty slots never are. */
static void test_candidates(void)
{
	static const uint16_t tags[] = {0, 1, 0x7fff, 0x8000, 0xffff, 0x1234};

	for (size_t t = 0; t < TEST_COUNT(tags); t++) {
		for (unsigned mask = 0; mask < 1u << BUCKET_SLOTS; mask++) {
			uint64_t words[BUCKET_SLOTS + 1] = {bucket_header(9, 0, 10)};
			uint64_t hash = (uint64_t)tags[t] << 48 | 77;
			struct probe probe;
			unsigned expected = 0;

			for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
				uint16_t tag = mask >> i & 1 ? tags[t] : tags[t] ^ (1u << i);

				words[i + 1] = slot_make(tag, 3, 4096 + 64 * i);
				/* Some of the others are empty. */
				if (!(mask >> i & 1) && i % 2)
					words[i + 1] = 0;
			}
			probe_begin(&probe, hash, 1024);
			CHECK_EQ(look(&probe, words), PROBE_END);
			for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
				if (mask >> i & 1)
					CHECK_EQ(probe.candidates[expected++], words[i + 1]);
			}
			CHECK_EQ(probe.candidate_count, expected);
		}
	}
}

/* ------------------------------------------------------------------------------------------
 * A copy of an arena
 */

struct picture {
	uint8_t *bytes;
	const struct store_header *header;
	uint64_t hash_seed;
};

/* What a READ of 64 bytes brings; false: the bucket's segment is not there. */
static bool fetch(const struct picture *picture, const struct probe *probe,
		  uint64_t words[BUCKET_SLOTS + 1])
{
	uint64_t directory = probe->in_overflow ? picture->header->overflow_directory
						: picture->header->directory;
	uint64_t offset =
		probe_place((const _Atomic uint32_t *)(picture->bytes + directory), probe->bucket);

	if (offset)
		memcpy(words, picture->bytes + offset, BUCKET_SIZE);
	return offset;
}

/* Whether the key is found; counts wrong buckets. */
static bool find(const struct picture *picture, const char *key, uint64_t old_count)
{
	uint64_t words[BUCKET_SLOTS + 1], hash = probe_hash(key, strlen(key), picture->hash_seed);
	struct probe probe;
	enum probe_step step;
	int homes = 0;

	probe_begin(&probe, hash, old_count);
	do {
		homes += !probe.in_overflow;
		CHECK(homes <= 1 + MAX_WRONG);
		CHECK(fetch(picture, &probe, words));
		step = look(&probe, words);
		for (unsigned i = 0; i < probe.candidate_count; i++) {
			uint64_t offset = slot_offset(probe.candidates[i]);
			const struct item *item = (const struct item *)(picture->bytes + offset);

			CHECK(item_is_complete(item, offset,
					       size_class_size(slot_class(probe.candidates[i]))));
			if (item_key_length(item_get_lengths(item)) == strlen(key) &&
			    memcmp(item->key, key, strlen(key)) == 0)
				return true;
		}
	} while (step == PROBE_GO_ON);
	CHECK_EQ(step, PROBE_END);
	return false;
}

static void take_picture(struct test_store *test, struct picture *picture)
{
	picture->bytes = aligned_alloc(64, test->size);
	CHECK(picture->bytes);
	memcpy(picture->bytes, test->memory, test->size);
	picture->header = (const struct store_header *)picture->bytes;
	picture->hash_seed = picture->header->hash_seed;
}

static void probe_arena(size_t size, unsigned keys)
{
	struct picture picture;
	struct test_store test;
	struct test_rng rng;
	uint64_t count;
	char key[32];

	test_rng_init(&rng, keys);
	test_store_open(&test, size, STORE_REJECT);
	for (unsigned i = 0; i < keys; i++) {
		snprintf(key, sizeof(key), "key %u", i);
		CHECK_EQ(put_text(test.worker, key, "a value", NULL), STORE_OK);
	}
	take_picture(&test, &picture);
	count = picture.header->bucket_count;
	CHECK(count * 5 + 1000 >= keys);
	for (unsigned i = 0; i < keys; i++) {
		snprintf(key, sizeof(key), "key %u", i);
		CHECK(find(&picture, key, count));
	}
	for (uint64_t old = SEGMENT_BUCKETS; old <= count; old++) {
		for (int i = 0; i < 10; i++) {
			snprintf(key, sizeof(key), "key %u", (unsigned)test_rng_below(&rng, keys));
			CHECK(find(&picture, key, old));
			snprintf(key, sizeof(key), "no key %lu", test_rng_below(&rng, keys));
			CHECK(!find(&picture, key, old));
		}
	}
	free(picture.bytes);
	test_store_close(&test);
}

static void test_arena(void)
{
	probe_arena(32 * MIB, 60000);
}

static void test_large_arena(void)
{
	probe_arena(128 * MIB, 300000);
}

/* Chains: an arena so small that its index cannot grow. */
static void test_chains(void)
{
	struct picture picture;
	struct test_store test;
	struct store_stats stats;
	unsigned keys = 0;
	char key[32];

	test_store_open(&test, STORE_MIN_SIZE, STORE_REJECT);
	do {
		snprintf(key, sizeof(key), "%u", keys++);
	} while (put_text(test.worker, key, "", NULL) == STORE_OK);
	store_stats(test.store, &stats);
	CHECK(stats.overflow_buckets > 100);
	take_picture(&test, &picture);
	for (unsigned i = 0; i < keys; i++) {
		snprintf(key, sizeof(key), "%u", i);
		CHECK_EQ(find(&picture, key, stats.buckets), i + 1 < keys);
		CHECK_EQ(find(&picture, key, SEGMENT_BUCKETS), i + 1 < keys);
	}
	free(picture.bytes);
	test_store_close(&test);
}

/* One thread alone: nothing for the thread sanitizer, which takes its time. */
#define SLOW_IN_TSAN (TEST_HAS_TSAN ? TEST_SLOW : 0)

static const struct test tests[] = {
	{"all_counts", test_all_counts, SLOW_IN_TSAN},
	{"borders_of_counts", test_borders_of_counts},
	{"random_counts", test_random_counts, SLOW_IN_TSAN},
	{"absent_buckets", test_absent},
	{"hop_limit", test_hop_limit},
	{"lying_depths", test_lying_depths},
	{"garbage", test_garbage},
	{"candidates", test_candidates},
	{"a_copied_arena", test_arena, SLOW_IN_TSAN},
	{"a_large_copied_arena", test_large_arena, TEST_SLOW},
	{"chains", test_chains},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "probe", tests, TEST_COUNT(tests));
}
