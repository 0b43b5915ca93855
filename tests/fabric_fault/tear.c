/*
 * Torn READs: that they are torn, and that nothing else changes by it.
 */
#include <stdatomic.h>
#include <string.h>

#include "pair.h"
#include "tests.h"

#define AREA  4096u
#define WORDS (AREA / 8)
#define STOP  (2 * AREA) /* where the reader tells the writer to stop */

/* Both halves of a word are the generation: a torn word would show. */
static uint64_t word_of(uint32_t generation)
{
	return (uint64_t)generation << 32 | generation;
}

/* Writes one generation after another over the whole area, with a rest after each. */
static void serve_flips(struct end *end)
{
	_Atomic uint64_t *words = (_Atomic uint64_t *)end->memory;
	_Atomic uint64_t *stop = (_Atomic uint64_t *)(end->memory + STOP);

	test_signal(end->pipe, end->side);
	for (uint32_t generation = 1; !atomic_load(stop); generation++) {
		for (size_t i = 0; i < WORDS; i++)
			atomic_store_explicit(&words[i], word_of(generation), memory_order_relaxed);
		test_sleep_ms(1);
	}
}

/* READs the area again and again; returns how many READs had words of several generations. */
static int count_torn(const char *plan, int reads)
{
	struct rmr_work work;
	struct peer peer;
	struct end end;
	int torn = 0;

	peer_start(&peer, "seed=1", 1, serve_flips);
	end_connect(&end, &peer, plan);
	test_await(&peer.pipe, TEST_PARENT);
	for (int i = 0; i < reads; i++) {
		const uint64_t *words = (const uint64_t *)end.memory;
		bool mixed = false;

		work = end_work(&end, RMR_OP_READ, 0, AREA, 0);
		end_do(&end, &work);
		for (size_t k = 0; k < WORDS; k++) {
			CHECK_EQ(words[k] >> 32, words[k] & UINT32_MAX);
			mixed |= words[k] != words[0];
		}
		torn += mixed;
		test_sleep_ms(1);
	}
	*(uint64_t *)(end.memory + STOP) = 1;
	work = end_work(&end, RMR_OP_WRITE, STOP, 8, STOP);
	end_do(&end, &work);
	peer_join(&peer);
	end_close(&end);
	return torn;
}

void test_torn_reads_are_seen(void)
{
	int with = count_torn("seed=1,tear=1,tear_us=3000", 100);
	int without = count_torn("seed=1", 100);

	/* Pieces lie milliseconds apart, generations one; a plain READ takes about a microsecond.
	 */
	CHECK(with > 60);
	CHECK(without < 20);
}

static void serve_pattern(struct end *end)
{
	for (size_t i = 0; i < MEMORY_SIZE; i++)
		end->memory[i] = (uint8_t)(i * 131 + (i >> 8));
	test_signal(end->pipe, end->side);
	test_await(end->pipe, end->side);
}

/* Memory that nobody changes reads as it is, at every offset and length, and nothing beside. */
void test_torn_read_of_still_memory(void)
{
	struct peer peer;
	struct end end;

	peer_start(&peer, "seed=1", 1, serve_pattern);
	end_connect(&end, &peer, "seed=5,tear=1,tear_us=2");
	test_await(&peer.pipe, TEST_PARENT);
	for (size_t i = 0; i < 600; i++) {
		size_t at = i % 67 + 64, length = i * i % 5000, offset = i * 37 % 8192;
		struct rmr_work work = end_work(&end, RMR_OP_READ, at, length, offset);

		memset(end.memory, 0xee, 8192);
		end_do(&end, &work);
		for (size_t k = 0; k < 8192; k++) {
			size_t source = offset + k - at;
			bool inside = k >= at && k < at + length;

			CHECK_EQ(end.memory[k],
				 inside ? (uint8_t)(source * 131 + (source >> 8)) : 0xee);
		}
	}
	test_signal(&peer.pipe, TEST_PARENT);
	peer_join(&peer);
	end_close(&end);
}

/* A WRITE that is posted behind a torn READ is not seen by it, where the inner device does so. The
 * contract does not promise it: tcp takes what it answers from memory when it transmits. */
void test_torn_read_before_write(void)
{
	struct peer peer;
	struct end end;

	if (strcmp(FAULT_INNER, "shm") != 0)
		TEST_SKIP("%s lets a WRITE overtake a READ", FAULT_INNER);
	peer_start(&peer, "seed=1", 1, serve_pattern);
	end_connect(&end, &peer, "seed=5,tear=1,tear_us=100");
	test_await(&peer.pipe, TEST_PARENT);
	for (uint64_t round = 1; round <= 50; round++) {
		uint64_t *source = (uint64_t *)(end.memory + AREA);
		const uint64_t *result = (const uint64_t *)end.memory;
		struct rmr_work works[2];

		for (size_t i = 0; i < WORDS; i++)
			source[i] = round;
		works[0] = end_work(&end, RMR_OP_READ, 0, AREA, AREA);
		works[1] = end_work(&end, RMR_OP_WRITE, AREA, AREA, AREA);
		end_post(&end, 0, works, 2);
		end_expect(&end, 0, RMR_OP_READ, RMR_OK);
		end_expect(&end, 0, RMR_OP_WRITE, RMR_OK);
		for (size_t i = 0; i < WORDS && round > 1; i++)
			CHECK_EQ(result[i], round - 1);
	}
	test_signal(&peer.pipe, TEST_PARENT);
	peer_join(&peer);
	end_close(&end);
}

static void serve_victim(struct end *end)
{
	struct rmr_completion completion = end_next(end);

	CHECK_EQ(completion.op, RMR_OP_DISCONNECT);
}

/* A READ that reaches past the end fails as a whole. */
void test_bad_read_is_not_torn(void)
{
	struct rmr_work work;
	struct peer peer;
	struct end end;

	peer_start(&peer, "seed=1", 1, serve_victim);
	end_connect(&end, &peer, "seed=5,tear=1");
	memset(end.memory, 0xee, AREA);
	work = end_work(&end, RMR_OP_READ, 0, AREA, MEMORY_SIZE - AREA + 8);
	end_post(&end, 0, &work, 1);
	end_expect(&end, 0, RMR_OP_READ, RMR_ACCESS);
	CHECK_EQ(end_next(&end).op, RMR_OP_DISCONNECT);
	for (size_t i = 0; i < AREA; i++)
		CHECK_EQ(end.memory[i], 0xee);
	peer_join(&peer);
	end_close(&end);
}
