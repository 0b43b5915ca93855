/*
 * The get that is made most: of a short value, by its remembered place, when nothing else is under
 * way. One READ is posted and waited for, with none of what a call has to remember in case that
 * something goes wrong. Should something go wrong, or anything else come in first, the call is made
 * after all, in the state that it would be in by now, and goes on from there: get.c knows the rest.
 */
#include <string.h>

#include "client/internal.h"
#include "store/item.h"

/* A READ of a remembered place. */
struct quick {
	const void *key;
	size_t key_length;
	void *value;
	size_t room;
	struct location *place;
	struct call *call; /* whose slot is read to, and which is made if need be */
	uint64_t begun_ns;
};

/* Where the key's item is, if that can be read like this. */
static struct location *find_place(struct kv_client *client, const struct link *link,
				   const void *key, size_t key_length)
{
	struct location *place;

	if (client->calls_under_way || client->deadline_ns || client->options.timeout_ms < 0 ||
	    client->options.get_mode == KV_GET_ASK || !link->arena || link->is_lost ||
	    key_length > CALL_SMALL_KEY)
		return NULL;
	place = locations_peek(&client->locations, client_hash(key, key_length));
	if (!place || place->size > link->max_send || place->offset > link->arena_length ||
	    place->size > link->arena_length - place->offset)
		return NULL;
	return place;
}

/* What was read, if it is what was wanted: its length, version and status. KV_AGAIN: it is not. */
static inline int accept(struct kv_client *client, const struct quick *quick, size_t *length,
			 uint64_t *version, kv_info_t *info)
{
	const struct item *item = (const struct item *)quick->call->slot;
	struct item_header header;

	if (!item_take(item, quick->place->offset, quick->place->size, &header) ||
	    !get_is_wanted(client, item, &header, quick->key, quick->key_length))
		return KV_AGAIN;
	*version = header.version;
	*length = item_value_length(header.lengths);
	if (*length > quick->room)
		return KV_BUFFER_TOO_SMALL;
	memcpy(quick->value, (const uint8_t *)item + item_value_offset(quick->key_length, *length),
	       *length);
	client_touch(client, quick->place->offset, header.version);
	if (info) {
		struct kv_reply reply = {.version = header.version,
					 .value_length = *length,
					 .expires_ms = header.expiry};

		get_set_time(client, &reply);
		info_from_reply(&reply, info);
	}
	return KV_OK;
}

/* A call in the middle of its READ. The caller runs it. */
static int make_call(struct kv_client *client, const struct quick *quick,
		     const struct rmr_completion *completion, struct call **call)
{
	struct location place = *quick->place;
	int status = get_begin(client, quick->key, quick->key_length, quick->value, quick->room,
			       true, call);

	/* It cannot fail: all calls are free, and the key is short. */
	if (status != KV_OK)
		return status;
	get_continue(*call, &place);
	(*call)->deadline_ns =
		quick->begun_ns + (uint64_t)client->options.timeout_ms * UINT64_C(1000000);
	if (completion)
		call_handle(client, completion);
	return KV_AGAIN;
}

int get_quickly(struct kv_client *client, const void *key, size_t key_length, void *value,
		size_t *length, kv_info_t *info, struct call **call)
{
	struct link *link = client->link;
	struct quick quick = {.key = key,
			      .key_length = key_length,
			      .value = value,
			      .room = *length,
			      .place = find_place(client, link, key, key_length),
			      .call = call_first_free(client)};
	struct rmr_completion completion;
	struct rmr_work work = {.op = RMR_OP_READ,
				.cookie = quick.call->number + 1,
				.local = quick.call->slot,
				.region = link->slots_region,
				.remote = link->arena};
	int count, status = KV_AGAIN;
	uint64_t version = 0;

	*call = NULL;
	if (!quick.place)
		return KV_AGAIN;
	work.offset = quick.place->offset;
	work.length = quick.place->size;
	quick.begun_ns = clock_quick_ns();
	if (rmr_post(link->conn, &work, 1) != 1)
		return KV_AGAIN;
	count = rmr_wait(link->queue, &completion, 1, client->options.timeout_ms);
	if (count == 1 && completion.op == RMR_OP_READ && completion.status == RMR_OK &&
	    completion.cookie == work.cookie)
		status = accept(client, &quick, length, &version, info);
	if (status == KV_AGAIN)
		return make_call(client, &quick, count == 1 ? &completion : NULL, call);
	locations_confirm_found(&client->locations, quick.place, version);
	client->totals.operations[KV_PATH_LOCATION]++;
	client->totals.round_trips++;
	client->last_path = KV_PATH_LOCATION;
	client->last_round_trips = 1;
	if (__builtin_expect(client_must_report(client), 0))
		client_report(client, false);
	return client_ended(client, status);
}
