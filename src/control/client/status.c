/* What the server's answers mean as statuses of kv.h. Pure. */
#include <string.h>

#include "control/client/internal.h"

/* One status of gRPC stands for several of ours; the text, which is the server's own, tells. */
static int exhausted(const struct control_ask *ask)
{
	if (ask->value_length != UINT64_MAX || strstr(ask->text, "can ever hold"))
		return KV_VALUE_TOO_LONG;
	if (strstr(ask->text, "under way") || strstr(ask->text, "registered"))
		return KV_BUSY;
	return KV_NO_MEMORY;
}

int control_status_of(const struct control_ask *ask)
{
	switch (ask->status) {
	case GRPC_OK:
		return KV_OK;
	case GRPC_NOT_FOUND:
		return KV_NOT_FOUND;
	case GRPC_ALREADY_EXISTS:
		return KV_EXISTS;
	case GRPC_ABORTED:
		return KV_CAS_FAILED;
	case GRPC_INVALID_ARGUMENT:
	case GRPC_FAILED_PRECONDITION:
		return KV_INVALID;
	case GRPC_OUT_OF_RANGE:
		return KV_BUFFER_TOO_SMALL;
	case GRPC_RESOURCE_EXHAUSTED:
		return exhausted(ask);
	case GRPC_UNAUTHENTICATED:
	case GRPC_PERMISSION_DENIED:
		return KV_DENIED;
	case GRPC_UNIMPLEMENTED:
		return KV_UNSUPPORTED;
	/* Whoever said so may not know what became of it. */
	case GRPC_DEADLINE_EXCEEDED:
		return ask->changes_something ? KV_UNKNOWN : KV_TIMEOUT;
	case GRPC_UNAVAILABLE:
	case GRPC_CANCELLED:
		return ask->changes_something ? KV_UNKNOWN : KV_DISCONNECTED;
	default:
		return KV_INTERNAL;
	}
}
