/*
 * Buffers for what is too long for a message: ours, into which the server pushes values and from
 * which ours go out; and the landing buffer, the server's, into which we write. Both are made when
 * they are first needed, for most clients never need them.
 */
#include <string.h>
#include <sys/param.h>

#include "base/error.h"
#include "client/internal.h"

/* From here on a value is not copied if there is another way. */
#define DIRECT_LENGTH 32768u
/* A copy of the caller's memory is made when a call is given up, if it is no longer than this. */
#define DETACH_MAX ((size_t)64 << 20)

/* ------------------------------------------------------------------------------------------
 * Requests that concern one link alone: `cookie` says which. On another one they end.
 */

static int once_start(struct kv_client *client, struct call *call)
{
	if (client->link->generation == call->cookie)
		return call_ask(client, call);
	call_done(client, call, KV_AGAIN);
	return KV_OK;
}

static int once_begin(struct kv_client *client, unsigned op, struct call **result)
{
	struct call *call;
	int status = call_begin(client, op, NULL, 0, true, &call);

	if (status != KV_OK)
		return status;
	/* Asking twice does no harm. */
	client->changes_under_way -= call->is_change;
	call->is_change = false;
	call->path = KV_PATH_NONE;
	call->start = once_start;
	call->cookie = client->generation;
	*result = call;
	return KV_OK;
}

/* KV_OK as well when the link is another one by now. */
static int once_finish(struct kv_client *client, struct call *call)
{
	uint64_t generation = call->cookie;
	int status = call_finish(client, call, NULL);

	if (!client->link || client->link->generation != generation)
		return KV_OK;
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Ours
 */

static void close_buffer(struct link *link)
{
	rmr_region_close(link->buffer_region);
	rmr_arena_close(link->buffer);
	extents_fini(&link->buffer_space);
	link->buffer_region = NULL;
	link->buffer = NULL;
}

static enum rmr_status open_buffer(struct kv_client *client, struct link *link,
				   struct rmr_descriptor *descriptor)
{
	enum rmr_status status;

	status = rmr_arena_open(client->options.buffer_size, RMR_ARENA_PEERS_WRITE, &link->buffer);
	if (status == RMR_OK)
		status = rmr_region_open(link->device, rmr_arena_base(link->buffer),
					 rmr_arena_size(link->buffer), RMR_WRITE,
					 &link->buffer_region);
	if (status == RMR_OK)
		status = rmr_region_export(link->buffer_region, link->conn, descriptor);
	if (status == RMR_OK &&
	    !extents_init(&link->buffer_space, rmr_arena_size(link->buffer), client->window + 1))
		status = error_set(RMR_NO_MEMORY, "places of a buffer");
	return status;
}

/* The fabric failed: because the link is lost, or for a reason of its own. */
static int failed(struct kv_client *client, struct link *link, enum rmr_status status)
{
	struct rmr_conn_info info;

	rmr_conn_get_info(link->conn, &info);
	if (status != RMR_DISCONNECTED && info.alive)
		return client_fail_fabric(client, KV_INTERNAL);
	link_lose(link, rmr_error_message());
	return client_fail_fabric(client, KV_DISCONNECTED);
}

int link_need_buffer(struct kv_client *client)
{
	struct link *link = client->link;
	uint64_t generation = link->generation;
	struct rmr_descriptor descriptor;
	enum rmr_status opened;
	struct call *call;
	int status;

	if (link->buffer)
		return KV_OK;
	if (link->has_no_buffer)
		return KV_BUSY;
	opened = open_buffer(client, link, &descriptor);
	if (opened != RMR_OK) {
		status = failed(client, link, opened);
		close_buffer(link);
		return status;
	}
	status = once_begin(client, KV_OP_BUFFER, &call);
	if (status == KV_OK) {
		call->request.value_length = sizeof(descriptor);
		call->source = &descriptor;
		status = once_finish(client, call);
	}
	/* The server does not know of it: then it is of no use. */
	if (status != KV_OK && client->link && client->link->generation == generation) {
		close_buffer(link);
		link->has_no_buffer = status == KV_BUSY;
	}
	return status;
}

/* ------------------------------------------------------------------------------------------
 * The server's
 */

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
		call->status = failed(client, link, status);
}

int link_need_landing(struct kv_client *client)
{
	struct link *link = client->link;
	uint64_t size = MIN(link->welcome.landing_size, client->options.landing_limit);
	struct call *call;
	int status;

	if (link->landing)
		return KV_OK;
	if (link->has_no_landing || size < KV_PLACE)
		return client_fail(client, KV_BUSY, "the server has no landing buffer for us");
	status = once_begin(client, KV_OP_LANDING, &call);
	if (status != KV_OK)
		return status;
	call->request.argument = size;
	call->take = take_landing;
	return once_finish(client, call);
}

/* ------------------------------------------------------------------------------------------
 * Parts of both
 */

bool link_register(struct kv_client *client, void *memory, size_t length)
{
	struct link *link = client->link;

	if (!link->registers_freely || link->callers_region || length < DIRECT_LENGTH)
		return false;
	link->callers_length = length;
	return rmr_region_open(link->device, memory, length, 0, &link->callers_region) == RMR_OK;
}

bool link_offer(struct kv_client *client, const void *value, size_t length,
		struct rmr_descriptor *descriptor)
{
	struct link *link = client->link;

	if (!link->registers_freely || link->callers_region)
		return false;
	link->callers_length = length;
	if (rmr_region_open(link->device, (void *)value, length, RMR_READ, &link->callers_region) !=
	    RMR_OK)
		return false;
	if (rmr_region_export(link->callers_region, link->conn, descriptor) == RMR_OK)
		return true;
	link_unregister(client);
	return false;
}

static bool is_used(const struct kv_client *client, const struct rmr_region *region)
{
	for (unsigned i = 0; i < client->window; i++) {
		const struct call *call = &client->calls[i];

		if (call->region == region && call->state != CALL_FREE && call->state != CALL_DONE)
			return true;
	}
	return false;
}

/* False: it has to be closed at once. */
static bool detach(struct link *link, struct rmr_region *region, size_t length)
{
	for (unsigned i = 0; i < LINK_MAX_DETACHED && length <= DETACH_MAX; i++) {
		if (link->detached[i])
			continue;
		if (rmr_region_detach(region) != RMR_OK)
			return false;
		link->detached[i] = region;
		return true;
	}
	return false;
}

void link_unregister(struct kv_client *client)
{
	struct link *link = client->link;
	struct rmr_region *region;

	if (!link || !link->callers_region)
		return;
	region = link->callers_region;
	link->callers_region = NULL;
	if (is_used(client, region) && detach(link, region, link->callers_length))
		return;
	rmr_region_close(region);
}

void link_leave_region(struct kv_client *client, struct call *call)
{
	struct rmr_region *region = call->region;

	call->region = NULL;
	for (unsigned i = 0; client->link && region && i < LINK_MAX_DETACHED; i++) {
		if (client->link->detached[i] == region && !is_used(client, region)) {
			rmr_region_close(region);
			client->link->detached[i] = NULL;
		}
	}
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
		if (link->is_lost)
			return client_lost(client);
		if (clock_passed(call_deadline_ns(client, call)))
			return client_fail(client, KV_TIMEOUT, "the buffers are full");
		client->turning++;
		call_turn(client, clock_remaining_ms(call_deadline_ns(client, call)));
		client->turning--;
	}
}
