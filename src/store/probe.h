/*
 * Probe: how to find a key, given buckets one by one.
 *
 * Pure: it is told the bytes of a bucket, wherever they come from (the mapped arena, or an RDMA
 * READ), and says what to do next. Store and clients, near and far, all look up by this.
 *
 *	probe_begin(&probe, hash, bucket_count);
 *	do {
 *		fetch 64 bytes at probe_offset(&probe, directory, overflow_directory);
 *		step = probe_look(&probe, bytes);
 *		for each of probe.candidates: is it an item with our key?
 *	} while (step == PROBE_GO_ON);
 *
 * The bucket count may be as old as you like. All buckets have the depth d or d + 1 of their time;
 * whoever finds a depth D above the bits he came by knows that all buckets have at least D - 1 now,
 * goes on with that many bits, and needs one more step if that bucket was split as well. So it is
 * two wrong buckets at most, unless the index grows again meanwhile.
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

#include "base/hash.h"
#include "store/layout.h"

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
	/* Which slots of the bucket that was looked at last have the right tag. */
	uint8_t candidate_slots[BUCKET_SLOTS];
	uint64_t candidates[BUCKET_SLOTS];
};

static inline uint64_t probe_hash(const void *key, size_t key_length, uint64_t hash_seed)
{
	return hash64_seed(key, key_length, hash_seed);
}

/* bucket_count: at any time of this store's life; at least 1. */
static inline void probe_begin(struct probe *probe, uint64_t hash, uint64_t bucket_count)
{
	unsigned bits = depth_of_count(bucket_count);

	/* Those before the one to be split next, and their other halves, have a bit more. */
	bits += hash_bits(hash, bits + 1) < bucket_count &&
		hash_bits(hash, bits) != hash_bits(hash, bits + 1);
	probe->hash = hash;
	probe->bucket = hash_bits(hash, bits);
	probe->in_overflow = false;
	probe->bits = bits;
	probe->steps = 0;
	probe->candidate_count = 0;
}

/* Looks at the eight words of the bucket. PROBE_GO_ON with no candidates may also mean that the key
 * belongs elsewhere. */
enum probe_step probe_look(struct probe *probe, const uint64_t words[BUCKET_SLOTS + 1]);

/* The bucket has this depth, and the key does not belong to it: goes on with as many bits as are
 * certain to lead to a bucket that exists. */
enum probe_step probe_redirect(struct probe *probe, unsigned depth);

/* Where bucket `number` lies; 0: its segment is not there yet. */
static inline uint64_t probe_place(const _Atomic uint32_t *directory, uint64_t number)
{
	/* Acquire: who sees a segment sees it as it was prepared. */
	uint64_t page =
		atomic_load_explicit(&directory[number >> SEGMENT_BITS], memory_order_acquire);

	if (page == 0)
		return 0;
	return (page << STORE_PAGE_BITS) + (number & (SEGMENT_BUCKETS - 1)) * BUCKET_SIZE;
}

#endif
