#include "store/probe.h"

enum probe_step probe_look(struct probe *probe, const struct bucket *bucket)
{
	/* Acquire: in a bucket that is changing, the slots are not older than the header. */
	uint64_t header = racy_load_acquire(&bucket->header);
	unsigned depth = bucket_depth(header), matches;

	probe->candidate_count = 0;
	if (++probe->steps > PROBE_MAX_STEPS)
		return PROBE_CONFUSED;
	/* A bucket that is not there was not split off yet, or was merged. */
	if (!probe->in_overflow && depth == 0)
		return PROBE_CONFUSED;
	if (!probe->in_overflow && hash_bits(probe->hash, depth) != probe->bucket)
		return probe_redirect(probe, depth);
	matches = probe_match(bucket, hash_tag(probe->hash));
	for (; matches; matches &= matches - 1) {
		uint64_t slot = probe_slot(bucket, matches);

		if (slot)
			probe->candidates[probe->candidate_count++] = slot;
	}
	if (bucket_overflow(header) == 0)
		return PROBE_END;
	probe->bucket = bucket_overflow(header);
	probe->in_overflow = true;
	return PROBE_GO_ON;
}
