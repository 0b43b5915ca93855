/*
 * Buffers for what is too long for a message: ours, into which the server pushes values and from
 * which ours go out; and the landing buffer, the server's, into which we write. Both are made when
 * they are first needed, for most clients never need them.
 */
#include <string.h>
#include <sys/param.h>

#include "base/error.h"
#include "client/internal.h"

/* Tells the server of our buffer. */
static int tell_buffer(struct kv_client *client, const struct rmr_descriptor *descriptor)
{
	struct call *call;
	int status = call_begin(client, KV_OP_BUFFER, NULL, 0, true, &call);

	if (status != KV_OK)
		return status;
	call->request.value_length = sizeof(*descriptor);
	call->source = descriptor;
	return call_finish(client, call, NULL);
}

int link_need_buffer(struct kv_client *client)
{
	struct link *link = client->link;
	struct rmr_descriptor descriptor;
	enum rmr_status status;

	if (link->buffer)
		return KV_OK;
	status = rmr_arena_open(client->options.buffer_size, RMR_ARENA_PEERS_WRITE, &link->buffer);
	if (status == RMR_OK)
		status = rmr_region_open(link->device, rmr_arena_base(link->buffer),
					 rmr_arena_size(link->buffer), RMR_WRITE,
					 &link->buffer_region);
	if (status == RMR_OK)
		status = rmr_region_export(link->buffer_region, link->conn, &descriptor);
	if (status == RMR_OK &&
	    !extents_init(&link->buffer_space, rmr_arena_size(link->buffer), client->window + 1))
		status = error_set(RMR_NO_MEMORY, "places of a buffer");
	if (status != RMR_OK) {
		/* It is of no use then; the next one tries anew. */
		rmr_region_close(link->buffer_region);
		rmr_arena_close(link->buffer);
		link->buffer_region = NULL;
		link->buffer = NULL;
		return client_fail_fabric(client, KV_INTERNAL);
	}
	return tell_buffer(client, &descriptor);
}

static void take_landing(struct kv_client *client, struct call *call,
			 const struct kv_reply_view *view)
{
	struct link *link = client->link;
	struct rmr_descriptor descriptor;
	enum rmr_status status;

	if (call->status != KV_OK) {
		link->has_no_landing = true;
		return;
	}
	if (!view->value || view->value_length != sizeof(descriptor)) {
		call->status = client_fail(client, KV_PROTOCOL, "no landing buffer in the reply");
		return;
	}
	memcpy(&descriptor, view->value, sizeof(descriptor));
	status = rmr_remote_open(link->conn, &descriptor, &link->landing);
	if (status == RMR_OK && !extents_init(&link->landing_space,
					      rmr_remote_length(link->landing), client->window + 1))
		status = error_set(RMR_NO_MEMORY, "places of a buffer");
	if (status != RMR_OK)
		call->status = client_fail_fabric(client, KV_INTERNAL);
}

int link_need_landing(struct kv_client *client)
{
	struct link *link = client->link;
	struct call *call;
	int status;

	if (link->landing)
		return KV_OK;
	if (link->has_no_landing || !link->welcome.landing_size)
		return client_fail(client, KV_BUSY, "the server has no landing buffer for us");
	status = call_begin(client, KV_OP_LANDING, NULL, 0, true, &call);
	if (status != KV_OK)
		return status;
	call->is_change = false; /* asking twice does no harm */
	client->changes_under_way--;
	call->request.argument = MIN(link->welcome.landing_size, client->options.landing_limit);
	call->take = take_landing;
	return call_finish(client, call, NULL);
}

int call_take_space(struct kv_client *client, struct call *call, uint64_t buffer, uint64_t landing)
{
	struct link *link = client->link;

	for (;;) {
		bool is_there = !buffer || extents_take(&link->buffer_space, buffer, &call->buffer);

		if (is_there && landing &&
		    !extents_take(&link->landing_space, landing, &call->landing)) {
			extents_give(&link->buffer_space, &call->buffer);
			is_there = false;
		}
		if (is_there)
			return KV_OK;
		if (clock_passed(call->deadline_ns))
			return client_fail(client, KV_TIMEOUT, "the buffers are full");
		client->turning++;
		call_turn(client, clock_remaining_ms(call->deadline_ns));
		client->turning--;
		if (link->is_lost)
			return client_fail(client, KV_DISCONNECTED, "the connection was lost");
	}
}
