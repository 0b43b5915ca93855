/*
 * Calls: operations under way. See internal.h for the whole picture.
 *
 *		 call_begin         start()                 reply, READ done
 *	FREE ---------------> BEGUN ---------> ASKED ... --------------------> DONE --> FREE
 *				^                 |                              call_end
 *				+-----------------+
 *				 link lost, or the remembered place was wrong
 *
 * A call whose time is over is abandoned: its memory may still be written to, so it keeps its place
 * in the window until its reply comes or the link is lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"
#include "client/internal.h"

/* ------------------------------------------------------------------------------------------
 * Beginning and ending
 */

static uint32_t window_now(const struct kv_client *client)
{
	return client->link ? MIN(client->window, client->link->welcome.window) : client->window;
}

bool call_may_submit(const struct kv_client *client)
{
	uint32_t window = window_now(client);

	return client->async_under_way + CLIENT_SPARE < MAX(window, CLIENT_SPARE + 1);
}

static struct call *find_free(struct kv_client *client)
{
	if (client->calls_under_way >= window_now(client))
		return NULL;
	for (unsigned i = 0; i < client->window; i++) {
		unsigned at = (client->first_free + i) % client->window;

		if (client->calls[at].state == CALL_FREE) {
			client->first_free = (at + 1) % client->window;
			return &client->calls[at];
		}
	}
	return NULL;
}

static bool keep_key(struct call *call, const void *key, size_t key_length)
{
	uint8_t *copy = call->small_key;

	if (key_length > sizeof(call->small_key)) {
		if (!call->long_key)
			call->long_key = malloc(KV_MAX_KEY);
		copy = call->long_key;
		if (!copy)
			return false;
	}
	memcpy(copy, key, key_length);
	call->key = copy;
	return true;
}

/* One that begins now. */
static uint64_t fresh_deadline(const struct kv_client *client)
{
	int timeout_ms = client->options.timeout_ms;

	return timeout_ms < 0 ? CLOCK_NEVER : clock_quick_ns() + (uint64_t)timeout_ms * 1000000u;
}

void client_progressed(struct kv_client *client)
{
	client->progress_until_ns = fresh_deadline(client);
}

int call_begin(struct kv_client *client, unsigned op, const void *key, size_t key_length,
	       bool may_wait, struct call **result)
{
	uint64_t deadline_ns = client->deadline_ns ? client_later_ns(client, client->deadline_ns)
						   : fresh_deadline(client);
	struct call *call = find_free(client);

	/* Some may be done, and nobody has looked: those that only tell of what was read. */
	if (!call && !may_wait && !client->turning) {
		call_turn(client, 0);
		call = find_free(client);
	}
	while (!call) {
		if (!may_wait || clock_passed(deadline_ns))
			return client_fail(client, may_wait ? KV_TIMEOUT : KV_AGAIN,
					   "the window of %u requests is full", window_now(client));
		call_turn(client, clock_remaining_ms(deadline_ns));
		call = find_free(client);
	}
	/* All but what belongs to the slot, or is written before it is read. */
	memset(call, 0, offsetof(struct call, slot));
	call->start = call_ask;
	call->order = client->next_order++;
	call->deadline_ns = deadline_ns;
	call->instance = client->version_instance ? client->version_instance : client->instance;
	call->path = KV_PATH_INLINE;
	call->request.op = (uint8_t)op;
	call->is_change = kv_op_changes(op);
	if (key_length) {
		if (!keep_key(call, key, key_length))
			return client_fail(client, KV_INTERNAL, "no memory for a key");
		call->request.key_length = (uint16_t)key_length;
		call->hash = client_hash(key, key_length);
	}
	call->state = CALL_BEGUN;
	client->calls_under_way++;
	client->changes_under_way += call->is_change;
	*result = call;
	return KV_OK;
}

static void give_space(struct kv_client *client, struct call *call)
{
	struct link *link = client->link;

	if (!call->buffer.length && !call->landing.length)
		return;
	if (link) {
		extents_give(&link->buffer_space, &call->buffer);
		extents_give(&link->landing_space, &call->landing);
	}
	call->buffer = call->landing = (struct extent){0};
}

void call_end(struct kv_client *client, struct call *call)
{
	if (call->state == CALL_FREE)
		return;
	give_space(client, call);
	call->state = CALL_FREE;
	if (call->region)
		link_leave_region(client, call);
	free(call->search);
	call->search = NULL;
	client->calls_under_way--;
	client->changes_under_way -= call->is_change;
}

void call_done(struct kv_client *client, struct call *call, int status)
{
	call->status = status;
	call->state = CALL_DONE;
	/* Whatever lay there was taken; others may wait for it. */
	give_space(client, call);
	if (status != CALL_TOO_LONG)
		client_count(client, call);
	if (call->is_abandoned)
		call_end(client, call);
}

void call_abandon(struct kv_client *client, struct call *call)
{
	call->is_abandoned = true;
	call->value = NULL;
	call->source = NULL;
	call->context = NULL;
	call->read_done = NULL;
	/* A landing buffer is given once: whenever it comes it is taken. */
	if (call->request.op != KV_OP_LANDING)
		call->take = NULL;
	if (call->state == CALL_BEGUN || call->state == CALL_DONE)
		call_end(client, call);
}

bool call_conflicts(const struct kv_client *client, const struct call *except, uint64_t hash)
{
	if (!client->changes_under_way)
		return false;
	for (unsigned i = 0; i < client->window; i++) {
		const struct call *call = &client->calls[i];

		if (call != except && call->is_change && call->hash == hash &&
		    call->state != CALL_FREE && call->state != CALL_DONE)
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------------------------------
 * Sending. All of it may find the link lost: then is_lost is set, and the call stays as it is, to
 * be started again.
 */

void link_lose(struct link *link, const char *reason)
{
	if (!link->is_lost)
		snprintf(link->reason, sizeof(link->reason), "%s", reason);
	link->is_lost = true;
}

/* Posts one; waits for room. False: the link is lost. */
static bool post(struct kv_client *client, struct rmr_work *work, bool is_held)
{
	struct link *link = client->link;

	/* Found out by another: there is no need to try. */
	if (link->is_lost)
		return false;
	if (is_held)
		work->flags |= RMR_MORE;
	for (;;) {
		int posted = rmr_post(link->conn, work, 1);

		if (posted == 1)
			break;
		if (posted < 0) {
			link_lose(link, rmr_error_message());
			return false;
		}
		client->turning++;
		call_turn(client, 10);
		client->turning--;
		if (link->is_lost)
			return false;
	}
	client->has_held |= is_held;
	return true;
}

int client_lost(struct kv_client *client)
{
	return client_fail(client, KV_DISCONNECTED, "the connection was lost: %s",
			   client->link->reason);
}

/* Whether the request is to be carried out only if the key has a certain version. */
static bool has_version(const struct kv_request *request)
{
	switch (request->op) {
	case KV_OP_PUT:
	case KV_OP_PUT_BEGIN:
	case KV_OP_PUT_PULL:
	case KV_OP_DELETE:
		return request->version != 0;
	default:
		return false;
	}
}

/*
 * A version is one of a store. On a link to another store, whose versions may by bad luck be the
 * same (its host's clock was set back), the request is sent with a version that no value has. Then
 * the server does nothing, and answers what it answers to a version that is not the current one,
 * with all that is known of the current one. Checking it here is as good as letting the server do
 * it: a connection leads to one store for as long as it lives.
 */
static void check_version(const struct link *link, struct call *call)
{
	if (call->instance && call->instance != link->welcome.instance &&
	    has_version(&call->request))
		call->request.version = KV_NO_VERSION;
}

/* The request has the link's next id, by which the reply finds the call. */
static void give_id(struct kv_client *client, struct call *call)
{
	struct link *link = client->link;

	call->request.id = link->next_id++;
	client->by_id[call->request.id % client->id_slots] = call;
	link->asked++;
}

/* An id for the request, once there is one to be had. */
static int take_id(struct kv_client *client, struct call *call)
{
	struct link *link = client->link;

	if (link->is_lost)
		return client_lost(client);
	while (client->by_id[link->next_id % client->id_slots] ||
	       link->asked >= link->welcome.window) {
		uint64_t deadline_ns = call_deadline_ns(client, call);

		if (clock_passed(deadline_ns))
			return client_fail(client, KV_TIMEOUT, "too many requests are under way");
		client->turning++;
		call_turn(client, clock_remaining_ms(deadline_ns));
		client->turning--;
		if (link->is_lost)
			return client_lost(client);
	}
	check_version(link, call);
	give_id(client, call);
	return KV_OK;
}

static void was_asked(struct kv_client *client, struct call *call)
{
	if (client->link->is_mapped)
		call->sent_ticks = clock_ticks();
	else
		call->sent_ms = clock_quick_ns() / 1000000;
	call->state = CALL_ASKED;
	call->was_sent = true;
	/* What was submitted is the caller's again. */
	if (call->is_async)
		call->source = NULL;
	call->round_trips++;
}

/* Posts what makes the server carry the request out. It counts as sent from before on, as it may go
 * out at once; a post that fails has taken nothing, and then it was not sent after all. This is how
 * a client finds out that the server said goodbye while it had nothing to ask. */
static int post_request(struct kv_client *client, struct call *call, struct rmr_work *work)
{
	was_asked(client, call);
	if (post(client, work, call->is_async))
		return KV_OK;
	call->was_sent = false;
	return client_lost(client);
}

int call_ask(struct kv_client *client, struct call *call)
{
	struct rmr_work work;
	int status;

	/* The slot is shared with the parent, which may have a request of its own there. */
	if (fork_is_foreign(client->process))
		return client_fail(client, KV_INVALID, FORK_MESSAGE);
	status = take_id(client, call);
	if (status != KV_OK)
		return status;
	call_write(client, &call->request, call->key, call->source, call->slot, &work);
	client->touch_count = 0;
	return post_request(client, call, &work);
}

void call_continue(struct kv_client *client, struct call *call, uint64_t sent_ns,
		   uint64_t sent_ticks)
{
	give_id(client, call);
	was_asked(client, call);
	call->sent_ms = sent_ns / 1000000;
	call->sent_ticks = sent_ticks;
	call->deadline_ns = sent_ns + (uint64_t)client->options.timeout_ms * UINT64_C(1000000);
}

/* Header and key. */
static size_t write_head(const struct call *call, uint8_t *to)
{
	memcpy(to, &call->request, sizeof(call->request));
	if (call->request.key_length)
		memcpy(to + sizeof(call->request), call->key, call->request.key_length);
	return sizeof(call->request) + call->request.key_length;
}

static bool write_value(struct kv_client *client, struct call *call)
{
	struct link *link = client->link;
	struct rmr_work work = {.op = RMR_OP_WRITE,
				.flags = RMR_UNSIGNALED,
				.source = call->source,
				.length = call->request.value_length,
				.region = link->callers_region,
				.remote = link->landing,
				.offset = call->landing.begin + sizeof(call->request) +
					  call->request.key_length};

	call->region = link->callers_region;
	return post(client, &work, true);
}

int call_land(struct kv_client *client, struct call *call)
{
	struct link *link = client->link;
	/* Ours by right: the region is for us to write. */
	uint8_t *mapped = (uint8_t *)rmr_remote_pointer(link->landing);
	struct rmr_work work = {.op = RMR_OP_WRITE_IMM,
				.flags = RMR_UNSIGNALED,
				.remote = link->landing,
				.offset = call->landing.begin,
				.immediate = (uint32_t)(call->landing.begin / KV_PLACE)};
	int status = take_id(client, call);
	uint8_t *to;

	if (status != KV_OK)
		return status;
	call->request.touch_count = 0;
	if (mapped) {
		/* Written in place; what is posted is only the header, again. */
		to = mapped + call->landing.begin;
		kv_encode_request(to, &call->request, call->key, call->source, NULL);
		work.flags |= RMR_INLINE;
		work.source = &call->request;
		work.length = sizeof(call->request);
	} else if (call->is_direct) {
		/* The value first, from where it is; what comes behind it arrives behind it. */
		if (!write_value(client, call))
			return client_lost(client);
		work.local = call->slot;
		work.region = link->slots_region;
		work.length = write_head(call, call->slot);
	} else {
		to = (uint8_t *)rmr_arena_base(link->buffer) + call->buffer.begin;
		work.local = to;
		work.region = link->buffer_region;
		work.length = (size_t)(kv_encode_request(to, &call->request, call->key,
							 call->source, NULL) -
				       to);
	}
	return post_request(client, call, &work);
}

int call_post_read(struct kv_client *client, struct call *call, struct rmr_work *work,
		   enum call_state state)
{
	work->cookie = call->number + 1;
	call->state = state;
	call->was_sent |= state == CALL_COUNTING;
	call->round_trips++;
	if (post(client, work, call->is_async))
		return KV_OK;
	call->was_sent = false;
	return client_lost(client);
}

int call_post_part(struct kv_client *client, struct rmr_work *work)
{
	return post(client, work, true) ? KV_OK : client_lost(client);
}

int call_post_piece(struct kv_client *client, const struct call *call, struct rmr_work *work)
{
	work->cookie = (call->number + 1) | CALL_PIECE;
	return call_post_part(client, work);
}
