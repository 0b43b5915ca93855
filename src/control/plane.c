/* Messages of the data plane: see plane.h. */
#include "control/plane.h"

#include <string.h>

bool plane_decode(const void *bytes, size_t length, struct plane_message *message)
{
	if (length != PLANE_SHORT && length != sizeof(*message))
		return false;
	memset(message, 0, sizeof(*message));
	memcpy(message, bytes, length);
	if (message->id >= PLANE_MAX_BUFFERS)
		return false;
	switch (message->op) {
	case PLANE_BUFFER:
		return length == sizeof(*message) && message->length > 0 && !message->rkey &&
		       message->ptr <= UINT64_MAX - message->length;
	case PLANE_BUFFER_KEY:
		return length == PLANE_SHORT && message->rkey;
	case PLANE_BUFFER_GONE:
		return length == PLANE_SHORT && !message->rkey;
	default:
		return false;
	}
}
