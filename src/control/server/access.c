/*
 * Access: the same keys as in the native protocol, sent as bearer tokens. There the key never
 * travels; here it does, as gRPC's clients have it, so this wants TLS or a network that one trusts.
 */
#include "control/server/internal.h"

/* The keys as they are now. */
static const struct server_keys *find_keys(struct kv_control_server *control)
{
	struct access *access = &control->access;
	unsigned generation = server_keys_generation(control->server);

	/* Should they change between the two lines, the next call takes them again. */
	if (generation != access->generation) {
		keys_copy(control->server, &access->keys);
		access->generation = generation;
	}
	return &access->keys;
}

enum grpc_status access_check(struct kv_control_server *control, const uint8_t *token,
			      size_t length, bool *may_write)
{
	return keys_permit(find_keys(control), token, length, may_write) ? GRPC_OK
									 : GRPC_UNAUTHENTICATED;
}
