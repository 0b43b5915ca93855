/* No wider registers are known on this machine: see hash_wide.h. */
#include <stdlib.h>

#include "base/hash_wide.h"

bool hash_wide_is_usable(void)
{
	return false;
}

uint64_t hash_wide64(const void *data, size_t length)
{
	(void)data;
	(void)length;
	abort();
}

void hash_wide_stream_add(struct hash_stream *stream, const void *data, size_t length)
{
	(void)stream;
	(void)data;
	(void)length;
	abort();
}
