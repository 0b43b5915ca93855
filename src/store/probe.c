#include "store/probe.h"

enum probe_step probe_redirect(struct probe *probe, unsigned depth)
{
	unsigned bits = depth - 1 > probe->bits ? depth - 1 : probe->bits + 1;

	if (depth > MAX_DEPTH)
		return PROBE_CONFUSED;
	probe->bits = bits;
	probe->bucket = hash_bits(probe->hash, bits);
	return PROBE_GO_ON;
}

enum probe_step probe_look(struct probe *probe, const uint64_t words[BUCKET_SLOTS + 1])
{
	uint16_t tag = hash_tag(probe->hash);
	uint64_t overflow = bucket_overflow(words[0]);

	probe->candidate_count = 0;
	if (++probe->steps > PROBE_MAX_STEPS)
		return PROBE_CONFUSED;
	if (!probe->in_overflow) {
		unsigned depth = bucket_depth(words[0]);

		/* A bucket that is not there yet was never split off. */
		if (depth == 0)
			return PROBE_CONFUSED;
		if (hash_bits(probe->hash, depth) != probe->bucket)
			return probe_redirect(probe, depth);
	}
	for (unsigned i = 0; i < BUCKET_SLOTS; i++) {
		if (slot_tag(words[i + 1]) == tag && words[i + 1]) {
			probe->candidate_slots[probe->candidate_count] = (uint8_t)i;
			probe->candidates[probe->candidate_count++] = words[i + 1];
		}
	}
	if (overflow == 0)
		return PROBE_END;
	probe->bucket = overflow;
	probe->in_overflow = true;
	return PROBE_GO_ON;
}
