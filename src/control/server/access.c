/*
 * Access: the same keys as in the native protocol, sent as bearer tokens. There the key never
 * travels; here it does, as gRPC's clients have it. So a key is taken only over TLS or from this
 * host, unless the options say otherwise.
 *
 * A call remembers the id of its key. When a key was removed, open calls and clients of the data
 * plane that came with it end.
 */
#include "base/log.h"
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

bool access_needs_key(struct kv_control_server *control)
{
	return find_keys(control)->write.count > 0;
}

enum grpc_status access_check(struct kv_control_server *control, const uint8_t *token,
			      size_t length, bool *may_write, uint64_t *key_id)
{
	return keys_permit(find_keys(control), token, length, may_write, key_id)
		       ? GRPC_OK
		       : GRPC_UNAUTHENTICATED;
}

void access_recheck(struct kv_control_server *control)
{
	const struct server_keys *keys;

	if (control->access.rechecked == server_keys_generation(control->server))
		return;
	keys = find_keys(control);
	control->access.rechecked = control->access.generation;
	list_for_each (at, &control->conns) {
		struct h2_conn *conn = list_entry(at, struct h2_conn, link);

		list_for_each_safe (link, &conn->calls) {
			struct rpc *rpc = list_entry(link, struct rpc, link);

			if (rpc->method && rpc->method->needs != NEEDS_NOTHING &&
			    !rpc->is_finished && !keys_have(keys, rpc->key_id))
				rpc_end_early(rpc, GRPC_UNAUTHENTICATED,
					      "the key of this call was removed");
		}
	}
	if (control->plane)
		data_plane_revoke(control->plane, keys);
}
