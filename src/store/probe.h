/*
 * Probe: how to find a key, given buckets one by one.
 *
 * Pure: it is told the bytes of a bucket, wherever they come from (the mapped arena, or an RDMA
 * READ), and says what to do next. Store and clients, near and far, all look up by this.
 *
 *	probe_begin(&probe, hash, bucket_count);
 *	do {
 *		fetch 64 bytes at probe_place(directory or overflow_directory, probe.bucket);
 *		step = probe_look(&probe, bytes);
 *		for each of probe.candidates: is it an item with our key?
 *	} while (step == PROBE_GO_ON);
 *
 * The bucket count may be as old as you like. While the index grows, all buckets have the depth d
 * or d + 1 of their time; whoever finds a depth D above the bits he came by knows that all buckets
 * have at least D - 1 now, goes on with that many bits, and needs one more step if that bucket was
 * split as well. So it is two wrong buckets at most, unless the index grows again meanwhile. A
 * count from before the index shrank may lead to a bucket that is not there any more:
 * PROBE_CONFUSED, or bytes of something else.
 *
 * Candidates are hints, until something says otherwise: the bucket may have been changed while it
 * was fetched. reader.h turns hints into certainty in mapped memory. Far away, an item that is
 * complete by its checksum, with this key and a version that is not 0, is the current one, for an
 * item dies before it is replaced; and whoever finds nothing asks the server.
 */
#ifndef STORE_PROBE_H
#define STORE_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/hash.h"
#include "store/layout.h"
#include "store/racy.h"

/* Buckets of a chain. Longer ones are not made. */
#define PROBE_MAX_CHAIN 64u
/* All steps of one search. Only who reads a changing index needs as many. */
#define PROBE_MAX_STEPS (PROBE_MAX_CHAIN + 8u)

enum probe_step {
	PROBE_END,	/* the chain ends here */
	PROBE_GO_ON,	/* look at the candidates, then fetch the next bucket */
	PROBE_CONFUSED, /* this makes no sense: begin again, or ask the server */
};

struct probe {
	uint64_t hash;
	/* The bucket to fetch next: number `bucket`, of the overflow buckets if `in_overflow`. */
	uint64_t bucket;
	bool in_overflow;
	unsigned bits;
	unsigned steps;
	unsigned candidate_count;
	/* The slots of the bucket that was looked at last that have the right tag. */
	uint64_t candidates[BUCKET_SLOTS];
};

static inline uint64_t probe_hash(const void *key, size_t key_length, uint64_t hash_seed)
{
	return hash64_seed(key, key_length, hash_seed);
}

/* The bucket of a hash when there are so many; *bits is how many bits of the hash count there. */
static inline uint64_t probe_home(uint64_t hash, uint64_t bucket_count, unsigned *bits)
{
	unsigned depth = depth_of_count(bucket_count);
	uint64_t upper = (uint64_t)1 << depth, number = hash_bits(hash, depth);
	/* It was split if its other half is there. Which hash that is cannot be predicted: hence no
	 * branch. */
	uint64_t is_split = (number | upper) < bucket_count;

	*bits = depth + (unsigned)is_split;
	return number | (hash & is_split << depth);
}

/* bucket_count: at any time of this store's life; at least 1. */
static inline void probe_begin(struct probe *probe, uint64_t hash, uint64_t bucket_count)
{
	probe->hash = hash;
	probe->bucket = probe_home(hash, bucket_count, &probe->bits);
	probe->in_overflow = false;
	probe->steps = 0;
	probe->candidate_count = 0;
}

/* The bucket has this depth, and the key does not belong to it: goes on with as many bits as are
 * certain to lead to a bucket that exists. Each step asks for more bits than the last one did, so
 * a bucket that lies about its depth again and again is found out at MAX_DEPTH. */
static inline enum probe_step probe_redirect(struct probe *probe, unsigned depth)
{
	if (depth == 0 || depth > MAX_DEPTH || probe->bits >= MAX_DEPTH)
		return PROBE_CONFUSED;
	probe->bits = depth - 1 > probe->bits ? depth - 1 : probe->bits + 1;
	probe->bucket = hash_bits(probe->hash, probe->bits);
	return PROBE_GO_ON;
}

/* Which slots have this tag: of slot i, bit PROBE_SLOT_BIT(i) says so, and no others are set. Empty
 * slots may be among them. Without a branch for each slot: which one it is cannot be predicted. */
#define PROBE_SLOT_BIT(i) (4 * (i) + 7)
#define PROBE_SLOT_BITS	  0x88888880u

#if defined(__SSE2__) && !RACY_IS_WATCHED
static inline unsigned probe_match(const struct bucket *bucket, uint16_t tag)
{
	const __m128i *pairs = (const __m128i *)bucket;
	__m128i wanted = _mm_set1_epi16((short)tag);
	/* Compared are quarters of words, of which the fourth is a tag; each then becomes one bit.
	 * The first word is the header. */
	__m128i a = _mm_cmpeq_epi16(_mm_load_si128(pairs), wanted);
	__m128i b = _mm_cmpeq_epi16(_mm_load_si128(pairs + 1), wanted);
	__m128i c = _mm_cmpeq_epi16(_mm_load_si128(pairs + 2), wanted);
	__m128i d = _mm_cmpeq_epi16(_mm_load_si128(pairs + 3), wanted);
	unsigned lower = (unsigned)_mm_movemask_epi8(_mm_packs_epi16(a, b));
	unsigned upper = (unsigned)_mm_movemask_epi8(_mm_packs_epi16(c, d));

	return (lower | upper << 16) & PROBE_SLOT_BITS;
}
#else
static inline unsigned probe_match(const struct bucket *bucket, uint16_t tag)
{
	unsigned matches = 0;

	for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
		uint64_t slot = racy_load(&bucket->slots[i]);

		matches |= (unsigned)(slot_tag(slot) == tag) << PROBE_SLOT_BIT(i);
	}
	return matches;
}
#endif

static_assert(PROBE_SLOT_BIT(BUCKET_SLOTS - 1) == 31, "probe_match");

/* The first slot that matches; `matches &= matches - 1` goes on to the next one. */
static inline uint64_t probe_slot(const struct bucket *bucket, unsigned matches)
{
	/* Counted in words of the bucket, of which the first is the header. */
	size_t word = (size_t)__builtin_ctz(matches) / 4;

	return racy_load(&bucket->slots[word - 1]);
}

/* Looks at a bucket, or a copy of one. PROBE_GO_ON with no candidates may also mean that the key
 * belongs elsewhere. */
enum probe_step probe_look(struct probe *probe, const struct bucket *bucket);

/* The page of the segment that bucket `number` lies in; 0: it is not there yet. */
static inline uint32_t probe_page(const _Atomic uint32_t *directory, uint64_t number)
{
	/* Acquire: who sees a segment sees it as it was prepared. */
	return atomic_load_explicit(&directory[number >> SEGMENT_BITS], memory_order_acquire);
}

static inline uint64_t probe_offset(uint32_t page, uint64_t number)
{
	return ((uint64_t)page << STORE_PAGE_BITS) + (number & (SEGMENT_BUCKETS - 1)) * BUCKET_SIZE;
}

/* Where bucket `number` lies; 0: its segment is not there yet. */
static inline uint64_t probe_place(const _Atomic uint32_t *directory, uint64_t number)
{
	uint32_t page = probe_page(directory, number);

	return page == 0 ? 0 : probe_offset(page, number);
}

#endif
