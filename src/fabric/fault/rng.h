/*
 * The random numbers behind a fault plan (splitmix64). The same seed and stream give the same
 * numbers on every machine. Every connection has streams of its own, so that what one of them does
 * changes nothing for the others.
 */
#ifndef FABRIC_FAULT_RNG_H
#define FABRIC_FAULT_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct fault_rng {
	uint64_t state;
};

static inline uint64_t fault_rng_next(struct fault_rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* The generator of one stream of a seed. */
static inline struct fault_rng fault_rng_stream(uint64_t seed, uint64_t stream)
{
	struct fault_rng rng = {seed};

	rng.state = fault_rng_next(&rng) ^ stream * 0xd1342543de82ef95u;
	rng.state = fault_rng_next(&rng);
	return rng;
}

/* A number from 0 to limit - 1; 0 when limit is 0. The bias is below limit / 2^64. */
static inline uint64_t fault_rng_below(struct fault_rng *rng, uint64_t limit)
{
	return (uint64_t)(((unsigned __int128)fault_rng_next(rng) * limit) >> 64);
}

/* True in `share` of `whole` cases. Always draws one number. */
static inline bool fault_rng_chance(struct fault_rng *rng, uint64_t share, uint64_t whole)
{
	return fault_rng_below(rng, whole) < share;
}

#endif
