/* What rdmaError() says: kept apart from the fabric's message, which calls that went well in the
 * end may have changed on their way. One a thread. */
#include <stdio.h>

#include "base/error.h"
#include "rdma/easy/internal.h"

static _Thread_local char text[ERROR_CHAIN_SIZE + 64];
static _Thread_local enum rmr_status last;

int easy_fail(void)
{
	last = error_status();
	snprintf(text, sizeof(text), "%s", rmr_error_message());
	return RDMA_ERR;
}

const char *rdmaError(void)
{
	return text;
}

enum rmr_status rdmaErrorStatus(void)
{
	return last;
}
