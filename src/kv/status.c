/* Texts for the statuses and paths of kv.h, and what both ends need beside them. */
#include <remora/kv.h>
#include <stdlib.h>

const char *kv_strerror(int status)
{
	switch (status) {
	case KV_OK:
		return "ok";
	case KV_NOT_FOUND:
		return "not found";
	case KV_EXISTS:
		return "the key exists";
	case KV_CAS_FAILED:
		return "another version is there";
	case KV_KEY_TOO_LONG:
		return "a key has 1 to 4096 bytes";
	case KV_VALUE_TOO_LONG:
		return "the value is longer than the server can ever hold";
	case KV_NO_MEMORY:
		return "the server's memory is full";
	case KV_INTERNAL:
		return "internal error";
	case KV_BUFFER_TOO_SMALL:
		return "the buffer is too small for the value";
	case KV_TIMEOUT:
		return "timeout, nothing was changed";
	case KV_UNKNOWN:
		return "connection lost or timeout: the change may have been made, or not";
	case KV_DISCONNECTED:
		return "not connected";
	case KV_DENIED:
		return "not permitted";
	case KV_BUSY:
		return "the server has too much to do";
	case KV_INVALID:
		return "an argument makes no sense";
	case KV_NOT_A_NUMBER:
		return "the value is not a number";
	case KV_OUT_OF_RANGE:
		return "the number would be out of range";
	case KV_PROTOCOL:
		return "the other end speaks another protocol";
	case KV_UNSUPPORTED:
		return "not possible by this connection";
	case KV_AGAIN:
		return "the window is full";
	case KV_CANCELED:
		return "canceled, nothing was changed";
	default:
		return "unknown status";
	}
}

const char *kv_path_name(kv_path_t path)
{
	static const char *const names[KV_PATH_COUNT] = {
		[KV_PATH_NONE] = "none",
		[KV_PATH_MAPPED] = "mapped",
		[KV_PATH_LOCATION] = "location",
		[KV_PATH_INDEX] = "index",
		[KV_PATH_INLINE] = "inline",
		[KV_PATH_PUSH] = "push",
		[KV_PATH_EAGER] = "eager",
		[KV_PATH_LANDING] = "landing",
		[KV_PATH_RENDEZVOUS] = "rendezvous",
		[KV_PATH_ATOMIC] = "atomic",
	};

	return (unsigned)path < KV_PATH_COUNT ? names[path] : "unknown";
}

void kv_free(void *value)
{
	free(value);
}
