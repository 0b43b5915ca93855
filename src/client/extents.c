/* Extents: see extents.h. */
#include "client/extents.h"

#include <stdlib.h>
#include <string.h>

bool extents_init(struct extents *extents, uint64_t size, unsigned limit)
{
	*extents = (struct extents){.size = size, .limit = limit};
	extents->held = calloc(limit, sizeof(*extents->held));
	return extents->held != NULL;
}

void extents_fini(struct extents *extents)
{
	free(extents->held);
	*extents = (struct extents){0};
}

bool extents_take(struct extents *extents, uint64_t length, struct extent *extent)
{
	uint64_t begin = 0;
	unsigned at;

	if (length == 0 || length > extents->size || extents->count == extents->limit)
		return false;
	length = (length + EXTENT_UNIT - 1) & ~(uint64_t)(EXTENT_UNIT - 1);
	for (at = 0; at < extents->count; at++) {
		if (extents->held[at].begin - begin >= length)
			break;
		begin = extents->held[at].begin + extents->held[at].length;
	}
	if (extents->size - begin < length)
		return false;
	memmove(&extents->held[at + 1], &extents->held[at],
		(extents->count - at) * sizeof(*extents->held));
	extents->held[at] = *extent = (struct extent){begin, length};
	extents->count++;
	return true;
}

void extents_give(struct extents *extents, struct extent *extent)
{
	for (unsigned at = 0; extent->length && at < extents->count; at++) {
		if (extents->held[at].begin != extent->begin)
			continue;
		extents->count--;
		memmove(&extents->held[at], &extents->held[at + 1],
			(extents->count - at) * sizeof(*extents->held));
		break;
	}
	*extent = (struct extent){0};
}

bool extents_is_valid(const struct extents *extents)
{
	uint64_t end = 0;

	for (unsigned at = 0; at < extents->count; at++) {
		const struct extent *held = &extents->held[at];

		if (held->begin < end || held->length == 0 || held->begin % EXTENT_UNIT)
			return false;
		end = held->begin + held->length;
	}
	return extents->count <= extents->limit && end <= extents->size;
}
