/* Keys of regions and secrets of connections: numbers that nobody can guess. */
#include <errno.h>
#include <sys/random.h>

#include "base/error.h"
#include "fabric/provider.h"

enum rmr_status key_random(uint64_t *key)
{
	do {
		if (getrandom(key, sizeof(*key), 0) != sizeof(*key))
			return error_errno(RMR_SYSTEM, errno, "no random numbers from the kernel");
	} while (*key == 0);
	return RMR_OK;
}
