/*
 * Views: values in place, where the arena is mapped. The server pins the item; it keeps its bytes
 * until it is released, or until the connection ends, whichever end does that. After a lost
 * connection the memory stays mapped here, but a server that lives on may use it for something
 * else.
 */
#include "client/internal.h"

static int take_view(struct kv_client *client, const void *key, size_t key_length, kv_view_t *view)
{
	struct kv_reply reply;
	struct call *call;
	uint64_t offset;
	int status = client_need_link(client);

	if (status != KV_OK)
		return status;
	if (!client->link->is_mapped)
		return client_fail(client, KV_UNSUPPORTED,
				   "views need shared memory; this connection is by %s",
				   client->transport);
	status = call_begin(client, KV_OP_PIN, key, key_length, true, &call);
	if (status != KV_OK)
		return status;
	status = call_finish(client, call, &reply);
	if (status != KV_OK)
		return status;
	if (!client->link || !client->link->is_mapped)
		return client_fail(client, KV_DISCONNECTED, "the connection was lost");
	if (reply.cell != KV_NO_CELL) {
		client_unpin(client, reply.number);
		return client_fail(client, KV_UNSUPPORTED, "a counter has no bytes to look at");
	}
	if (!pinned_place(client, &reply, key_length, &offset)) {
		client_unpin(client, reply.number);
		return client_fail(client, KV_PROTOCOL, "an item that lies outside the arena");
	}
	client->link->view_count++;
	*view = (kv_view_t){.value = client->link->reader.memory + offset,
			    .length = reply.value_length,
			    .version = reply.version,
			    .handle = reply.number,
			    .owner = client->link};
	return KV_OK;
}

int kv_client_view(kv_client_t *client, const void *key, size_t key_length, kv_view_t *view)
{
	uint64_t outer_ns;
	int status;

	if (!client || !view)
		return client_fail(client, KV_INVALID, "view: nowhere to put it");
	if (!key_is_right(key, key_length))
		return client_bad_key(client, key_length);
	outer_ns = client_begin_connecting(client);
	status = take_view(client, key, key_length, view);
	client_end_operation(client, outer_ns);
	return status;
}

void kv_client_release(kv_client_t *client, kv_view_t *view)
{
	struct link *link = view ? view->owner : NULL;

	if (!client || !link)
		return;
	if (link == client->link)
		client_unpin(client, view->handle);
	link_release(link);
	*view = (kv_view_t){0};
}
