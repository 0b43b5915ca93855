/*
 * How a value is put.
 *
 *	eager		key and value in a message
 *	landing		the same message, written into the landing buffer
 *	rendezvous	where registering memory costs nothing to speak of: the server makes room,
 *			and READs the value from the caller's memory. Else the size, for which the
 *			server makes room; then the value in pieces, the last of which makes the
 *			put happen. The first ones are sent without waiting for the room: if there
 *			is none they are refused, too
 *
 * A reply means: applied. A put is sent once; whether it may be sent again after the connection was
 * lost is decided in call.c.
 */
#include <string.h>
#include <sys/param.h>

#include "client/internal.h"

#define PIECES_AT_ONCE 6u
#define MAX_PIECE      ((size_t)1 << 20)
#define WHOLE_LIMIT    ((size_t)256 << 10)
#define SMALL_PIECE    ((size_t)128 << 10)

/* Bytes of key and value that the landing buffer takes; 0: there is none. */
static size_t landing_limit(const struct kv_client *client)
{
	const struct link *link = client->link;
	size_t landing = MIN(link->welcome.landing_size, client->options.landing_limit);

	/* What was asked for, and what was given. */
	if (link->landing)
		landing = MIN(landing, rmr_remote_length(link->landing));
	landing = MIN(landing, client->options.buffer_size);
	landing = MIN(landing, rmr_device_info(link->device)->max_transfer);
	if (link->has_no_landing || landing < sizeof(struct kv_request))
		return 0;
	return landing - sizeof(struct kv_request);
}

size_t put_limit(const struct kv_client *client)
{
	const struct link *link = client->link;
	size_t landing = landing_limit(client);

	/* Where a round trip costs little, pieces are faster: while one is copied by the server the
	 * next one is on its way. */
	if (client->wants_pieces && (link->is_mapped || link->registers_freely))
		landing = MIN(landing, WHOLE_LIMIT);
	return MAX(link->eager_limit, landing);
}

static void put_take(struct kv_client *client, struct call *call, const struct kv_reply_view *view)
{
	(void)view;
	put_remember(client, call->status, call->hash, call->key, call->request.key_length,
		     &call->reply);
}

/* By whichever way its size needs. */
static int send_value(struct kv_client *client, struct call *call)
{
	struct link *link = client->link;
	uint64_t generation = link->generation;
	size_t size = kv_request_size(&call->request);
	bool is_mapped;
	int status;

	if (size - sizeof(call->request) <= link->eager_limit) {
		call->path = KV_PATH_EAGER;
		return call_ask(client, call);
	}
	/* Both may find the link lost, and another one in its place: then this begins again. */
	status = link_need_landing(client);
	if (status != KV_OK || !client->link || client->link->generation != generation)
		return status;
	is_mapped = rmr_remote_pointer(client->link->landing) != NULL;
	call->is_direct = !call->is_async && link->callers_region;
	if (!is_mapped && !call->is_direct)
		status = link_need_buffer(client);
	if (status != KV_OK || !client->link || client->link->generation != generation)
		return status;
	status = call_take_space(client, call, is_mapped || call->is_direct ? 0 : size, size);
	if (status != KV_OK)
		return status;
	call->path = KV_PATH_LANDING;
	return call_land(client, call);
}

static int put_start(struct kv_client *client, struct call *call)
{
	call->request.touch_count = 0;
	return send_value(client, call);
}

int put_begin(struct kv_client *client, const void *key, size_t key_length, const void *value,
	      size_t value_length, const kv_put_options_t *options, bool may_wait,
	      struct call **result)
{
	struct call *call;
	int status = call_begin(client, KV_OP_PUT, key, key_length, may_wait, &call);

	if (status != KV_OK)
		return status;
	put_set_options(&call->request, options);
	call->request.value_length = value_length;
	call->source = value;
	call->start = put_start;
	call->take = put_take;
	*result = call;
	return KV_OK;
}

/* ------------------------------------------------------------------------------------------
 * Rendezvous. A call's `cookie` is the link on which the put was begun.
 */

/* What belongs to a put that was begun on another link makes no sense on this one. */
static bool is_from_before(struct kv_client *client, struct call *call)
{
	if (client->link->generation == call->cookie)
		return false;
	call_done(client, call, KV_AGAIN);
	return true;
}

static int once_start(struct kv_client *client, struct call *call)
{
	return is_from_before(client, call) ? KV_OK : call_ask(client, call);
}

static int piece_start(struct kv_client *client, struct call *call)
{
	if (is_from_before(client, call))
		return KV_OK;
	call->request.touch_count = 0;
	return send_value(client, call);
}

struct pieces {
	const uint8_t *value;
	size_t length;
	size_t piece;	    /* bytes of one */
	struct call *begin; /* PUT_BEGIN */
	uint64_t draft;	    /* its id */
	uint64_t generation;
	size_t acknowledged; /* pieces, on this link */
	size_t furthest;     /* the most that ever were, on any */
};

static int piece_begin(struct kv_client *client, const struct pieces *pieces, size_t at,
		       struct call **result)
{
	size_t part = MIN(pieces->piece, pieces->length - at);
	struct call *call;
	int status = call_begin(client, KV_OP_PUT_PIECE, NULL, 0, true, &call);

	if (status != KV_OK)
		return status;
	call->start = piece_start;
	call->cookie = pieces->generation;
	call->source = pieces->value + at;
	call->request.value_length = part;
	call->request.argument = pieces->draft;
	call->request.place = at;
	if (at + part == pieces->length) {
		call->request.flags = KV_FINAL;
	} else {
		/* Nothing happens before the last one. */
		call->is_change = false;
		client->changes_under_way--;
	}
	call_launch(client, call);
	call->path = KV_PATH_NONE;
	*result = call;
	return KV_OK;
}

static int finish_piece(struct kv_client *client, struct pieces *pieces, struct call *call,
			struct kv_reply *reply)
{
	int status = call_finish(client, call, reply);

	if (status == KV_OK && ++pieces->acknowledged > pieces->furthest) {
		pieces->furthest = pieces->acknowledged;
		client_progressed(client);
	}
	return status;
}

static int send_pieces(struct kv_client *client, struct pieces *pieces, struct kv_reply *reply)
{
	struct call *calls[PIECES_AT_ONCE] = {0};
	int status = KV_OK, worst = KV_OK;
	unsigned slot = 0;

	pieces->acknowledged = 0;
	/* One at least: even an empty value needs a last piece, which makes the put happen. */
	for (size_t at = 0; at == 0 || at < pieces->length; at += pieces->piece) {
		if (calls[slot])
			status = finish_piece(client, pieces, calls[slot], reply);
		calls[slot] = NULL;
		if (worst == KV_OK)
			worst = status;
		if (worst == KV_OK)
			worst = client_progress(client, at, pieces->length);
		if (worst != KV_OK)
			break;
		worst = piece_begin(client, pieces, at, &calls[slot]);
		if (worst != KV_OK)
			break;
		slot = (slot + 1) % PIECES_AT_ONCE;
	}
	/* The last one ends last. */
	for (unsigned i = 0; i < PIECES_AT_ONCE; i++, slot = (slot + 1) % PIECES_AT_ONCE) {
		if (!calls[slot])
			continue;
		status = finish_piece(client, pieces, calls[slot], reply);
		/* If the last one may have been applied, then that is what counts. */
		if (worst == KV_OK || status == KV_UNKNOWN)
			worst = status;
	}
	return worst;
}

static void cancel(struct kv_client *client, const struct pieces *pieces)
{
	if (client->link && client->link->generation == pieces->generation)
		(void)call_tell(client, KV_OP_PUT_CANCEL, pieces->draft, true);
}

/* How long a piece is, once it is known whether there is a landing buffer. */
static size_t piece_length(const struct kv_client *client)
{
	size_t piece = MIN(landing_limit(client) / PIECES_AT_ONCE, MAX_PIECE) & ~(size_t)63;

	if (client->wants_pieces && (client->link->is_mapped || client->link->registers_freely))
		piece = MIN(piece, SMALL_PIECE);
	return MAX(piece, client->link->eager_limit);
}

/* Sends PUT_BEGIN, and waits for nothing but the landing buffer. */
static int begin_pieces(struct kv_client *client, const void *key, size_t key_length,
			const kv_put_options_t *options, struct pieces *pieces)
{
	struct call *call;
	int status = client_need_link(client);

	if (status != KV_OK)
		return status;
	/* Pieces by landing if there is one, else by messages. */
	pieces->generation = client->link->generation;
	status = link_need_landing(client);
	if (!client->link || client->link->is_lost ||
	    client->link->generation != pieces->generation)
		return KV_AGAIN;
	if (status != KV_OK && status != KV_BUSY)
		return status;
	status = call_begin(client, KV_OP_PUT_BEGIN, key, key_length, true, &call);
	if (status != KV_OK)
		return status;
	/* It can be repeated: nothing is changed by it. */
	call->is_change = false;
	client->changes_under_way--;
	put_set_options(&call->request, options);
	call->request.value_length = pieces->length;
	call->path = KV_PATH_NONE;
	call->start = once_start;
	call->cookie = pieces->generation;
	pieces->begin = call;
	call_launch(client, call);
	if (call->state == CALL_DONE)
		return call->status;
	pieces->draft = call->request.id;
	pieces->piece = piece_length(client);
	(void)link_register(client, (void *)pieces->value, pieces->length);
	return KV_OK;
}

/* One attempt. KV_AGAIN: the link was lost before the last piece was sent. */
static int try_pieces(struct kv_client *client, const void *key, size_t key_length,
		      const kv_put_options_t *options, struct pieces *pieces,
		      struct kv_reply *reply)
{
	struct kv_reply begin_reply = {0};
	int status, begin_status = KV_OK;

	pieces->begin = NULL;
	pieces->draft = 0;
	status = begin_pieces(client, key, key_length, options, pieces);
	if (status == KV_OK)
		status = send_pieces(client, pieces, reply);
	if (pieces->begin)
		begin_status = call_finish(client, pieces->begin, &begin_reply);
	link_unregister(client);
	/* There was no room, or the condition was not met: that is why the pieces were refused. */
	if (begin_status != KV_OK && begin_status != KV_AGAIN && status != KV_UNKNOWN) {
		*reply = begin_reply;
		return begin_status;
	}
	/* It was begun, and is not there any more. */
	if (status == KV_INVALID && begin_status == KV_OK)
		return client_fail(client, KV_TIMEOUT,
				   "the server gave the put up, as the rest of the value did not "
				   "come for too long; nothing was changed");
	if (status != KV_OK && status != KV_UNKNOWN && pieces->draft)
		cancel(client, pieces);
	return status;
}

int put_in_pieces(struct kv_client *client, const void *key, size_t key_length, const void *value,
		  size_t value_length, const kv_put_options_t *options, kv_info_t *info)
{
	uint64_t deadline_ns = clock_deadline_ns(client->options.timeout_ms);
	struct pieces pieces = {.value = value, .length = value_length};
	uint64_t outer_ns = client->deadline_ns;
	struct kv_reply reply = {0};
	unsigned rounds;
	int status;

	if (outer_ns)
		deadline_ns = outer_ns;
	client->deadline_ns = deadline_ns;
	do {
		status = try_pieces(client, key, key_length, options, &pieces, &reply);
	} while (status == KV_AGAIN && !clock_passed(client_later_ns(client, deadline_ns)));
	client->deadline_ns = outer_ns;
	locations_forget(&client->locations, client_hash(key, key_length));
	client->last_path = KV_PATH_RENDEZVOUS;
	/* So often the sender had to wait for an answer. */
	rounds = pieces.piece ? 1 + (unsigned)(value_length / pieces.piece / PIECES_AT_ONCE) : 1;
	client->last_round_trips = rounds;
	client->totals.operations[KV_PATH_RENDEZVOUS]++;
	client->totals.round_trips += rounds;
	(void)client_ended(client, status);
	if (status == KV_AGAIN)
		return client_fail(client, KV_TIMEOUT, "the connection was lost again and again");
	put_inform(status, &reply, info);
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Rendezvous by READ
 */

static bool send_cancel(struct kv_client *client, uint32_t id)
{
	struct call *call;

	if (call_begin(client, KV_OP_PUT_CANCEL, NULL, 0, false, &call) != KV_OK)
		return false;
	call->request.argument = id;
	call->path = KV_PATH_NONE;
	if (!client->link || client->link->is_lost || call_ask(client, call) != KV_OK) {
		call_end(client, call);
		return false;
	}
	call_abandon(client, call);
	return true;
}

/* Runs it. If it is given up it is cancelled, too: what this client puts next must not be replaced
 * by this value when the server has all of it in the end. Requests are carried out in their order,
 * so that is sure from the moment the cancel is sent. */
static int run_pull(struct kv_client *client, struct call *call, struct kv_reply *reply)
{
	uint64_t generation = call->cookie;
	uint32_t id;
	int status = call_run(client, call);

	id = call->request.id;
	*reply = call->reply;
	if (call->state == CALL_DONE || !call->was_sent) {
		call_finish(client, call, NULL);
		return status;
	}
	call_abandon(client, call);
	if (client->link && !client->link->is_lost && client->link->generation == generation &&
	    !send_cancel(client, id) && client->link)
		link_lose(client->link, "a put that was given up could not be cancelled");
	return status;
}

/* KV_AGAIN: it cannot be done, and nothing was. */
static int put_by_pull(struct kv_client *client, const void *key, size_t key_length,
		       const void *value, size_t value_length, const kv_put_options_t *options,
		       kv_info_t *info)
{
	struct link *link = client->link;
	uint64_t generation = link->generation;
	struct rmr_descriptor descriptor;
	struct kv_reply reply = {0};
	struct call *call;
	int status;

	/* How far the server has come with it we do not know: who wants to gets pieces. */
	if (!client->wants_pieces || client->progress ||
	    !(link->welcome.capabilities & KV_CAN_PULL) ||
	    !link_offer(client, value, value_length, &descriptor))
		return KV_AGAIN;
	status = call_begin(client, KV_OP_PUT_PULL, key, key_length, true, &call);
	if (status == KV_OK) {
		put_set_options(&call->request, options);
		call->request.flags |= KV_TELL;
		call->request.value_length = sizeof(descriptor);
		call->request.place = value_length;
		call->source = &descriptor;
		call->start = once_start;
		/* The link may be another one by now: beginning a call can wait. */
		call->cookie = generation;
		call->path = KV_PATH_RENDEZVOUS;
		call->round_trips = 1; /* the READ */
		call->region = client->link ? client->link->callers_region : NULL;
		status = run_pull(client, call, &reply);
	}
	link_unregister(client);
	locations_forget(&client->locations, client_hash(key, key_length));
	put_inform(status, &reply, info);
	return status;
}

/* ------------------------------------------------------------------------------------------
 * The calls
 */

static int put(struct kv_client *client, const void *key, size_t key_length, const void *value,
	       size_t value_length, const kv_put_options_t *options, kv_info_t *info)
{
	struct kv_reply reply;
	struct call *call;
	int status = client_need_link(client);

	if (status != KV_OK)
		return status;
	if (value_length > client->link->welcome.max_value)
		return client_fail(client, KV_VALUE_TOO_LONG,
				   "%zu bytes; the server has room for %llu at most", value_length,
				   (unsigned long long)client->link->welcome.max_value);
	if (key_length + value_length > client->link->eager_limit &&
	    key_length + value_length > put_limit(client)) {
		status = put_by_pull(client, key, key_length, value, value_length, options, info);
		if (status != KV_AGAIN)
			return status;
		return put_in_pieces(client, key, key_length, value, value_length, options, info);
	}
	status = put_begin(client, key, key_length, value, value_length, options, true, &call);
	if (status != KV_OK)
		return status;
	if (client->link && key_length + value_length > client->link->eager_limit)
		(void)link_register(client, (void *)value, value_length);
	status = call_finish(client, call, &reply);
	link_unregister(client);
	/* The server had no landing buffer for us: nothing was changed. */
	if (status == KV_BUSY && client->link && client->link->has_no_landing &&
	    key_length + value_length > client->link->eager_limit)
		return put_in_pieces(client, key, key_length, value, value_length, options, info);
	put_inform(status, &reply, info);
	return status;
}

int kv_client_put_with(kv_client_t *client, const void *key, size_t key_length, const void *value,
		       size_t value_length, const kv_put_options_t *options, kv_info_t *info)
{
	uint64_t outer_ns, outer_instance;
	int status;

	if (!client)
		return KV_INVALID;
	outer_instance = client->version_instance;
	if (!key_is_right(key, key_length))
		return client_bad_key(client, key_length);
	if (!value && value_length)
		return client_fail(client, KV_INVALID, "put: no value");
	if (options && (unsigned)options->condition > KV_IF_VERSION)
		return client_fail(client, KV_INVALID, "put: no such condition");
	client_improve(client);
	status = put_quickly(client, key, key_length, value, value_length, options, info);
	if (status != CALL_NOT_MADE)
		return status;
	/* What is long may take several calls. */
	if (client->link && key_length + value_length > client->link->eager_limit)
		outer_ns = client_begin_operation(client);
	else
		outer_ns = client_begin_connecting(client);
	/* All its calls, whichever link they are made on. */
	if (!outer_instance)
		client->version_instance = client->instance;
	status = put(client, key, key_length, value, value_length, options, info);
	client->version_instance = outer_instance;
	client_end_operation(client, outer_ns);
	return status;
}

int kv_client_put(kv_client_t *client, const void *key, size_t key_length, const void *value,
		  size_t value_length)
{
	return kv_client_put_with(client, key, key_length, value, value_length, NULL, NULL);
}

int kv_client_cas(kv_client_t *client, const void *key, size_t key_length, uint64_t expected,
		  const void *value, size_t value_length, uint64_t *version)
{
	kv_put_options_t options = {.condition = KV_IF_VERSION, .version = expected};
	kv_info_t info = {0};
	int status =
		kv_client_put_with(client, key, key_length, value, value_length, &options, &info);

	if (version && (status == KV_OK || status == KV_CAS_FAILED))
		*version = info.version;
	return status;
}
