/*
 * A library that takes static TLS when it is loaded. library_load_test loads copies of it until
 * there is no static TLS left for libraries that are loaded later.
 */
#include <stddef.h>

char *filler_touch(size_t index);

static _Thread_local char block[64] __attribute__((tls_model("initial-exec")));

char *filler_touch(size_t index)
{
	return &block[index % sizeof(block)];
}
