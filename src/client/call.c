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

#define TURN_BATCH     16
#define MIN_BACKOFF_MS 5u
#define MAX_BACKOFF_MS 500u
#define SHORT_LIFE_NS  20000000u

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

int call_begin(struct kv_client *client, unsigned op, const void *key, size_t key_length,
	       bool may_wait, struct call **result)
{
	uint64_t deadline_ns = client->deadline_ns ? client->deadline_ns
						   : clock_deadline_ns(client->options.timeout_ms);
	struct call *call = find_free(client);

	while (!call) {
		if (!may_wait || clock_passed(deadline_ns))
			return client_fail(client, KV_AGAIN, "the window of %u requests is full",
					   window_now(client));
		call_turn(client, clock_remaining_ms(deadline_ns));
		call = find_free(client);
	}
	/* All but what belongs to the slot. */
	*call = (struct call){.number = call->number,
			      .slot = call->slot,
			      .long_key = call->long_key,
			      .start = call_ask,
			      .order = client->next_order++,
			      .deadline_ns = deadline_ns,
			      .path = KV_PATH_INLINE};
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
	free(call->search);
	call->search = NULL;
	call->state = CALL_FREE;
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
	call->take = NULL;
	call->read_done = NULL;
	if (call->state == CALL_BEGUN || call->state == CALL_DONE)
		call_end(client, call);
}

bool call_conflicts(const struct kv_client *client, const struct call *except, uint64_t hash,
		    bool with_reads)
{
	if (!client->changes_under_way && !(with_reads && client->reads_under_way))
		return false;
	for (unsigned i = 0; i < client->window; i++) {
		const struct call *call = &client->calls[i];

		if (call == except || call->state == CALL_FREE || call->state == CALL_DONE ||
		    call->hash != hash)
			continue;
		if (call->is_change ||
		    (with_reads && call->request.op == KV_OP_GET && call->state != CALL_ASKED))
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

static int lost(struct kv_client *client)
{
	return client_fail(client, KV_DISCONNECTED, "the connection was lost: %s",
			   client->link->reason);
}

/* An id for the request, and its place in the table. */
static int take_id(struct kv_client *client, struct call *call)
{
	struct link *link = client->link;

	while (client->by_id[link->next_id % client->id_slots] ||
	       link->asked >= link->welcome.window) {
		if (clock_passed(call->deadline_ns))
			return client_fail(client, KV_TIMEOUT, "too many requests are under way");
		client->turning++;
		call_turn(client, clock_remaining_ms(call->deadline_ns));
		client->turning--;
		if (link->is_lost)
			return lost(client);
	}
	call->request.id = link->next_id++;
	client->by_id[call->request.id % client->id_slots] = call;
	link->asked++;
	return KV_OK;
}

static void was_asked(struct kv_client *client, struct call *call)
{
	if (!client->link->is_mapped)
		call->sent_ms = clock_now_ns() / 1000000;
	call->state = CALL_ASKED;
	call->was_sent = true;
	/* What was submitted is the caller's again. */
	if (call->is_async)
		call->source = NULL;
	call->round_trips++;
}

int call_ask(struct kv_client *client, struct call *call)
{
	struct link *link = client->link;
	unsigned touches = MIN(client->touch_count, KV_MAX_TOUCHES);
	struct rmr_work work = {.op = RMR_OP_SEND, .flags = RMR_UNSIGNALED, .local = call->slot};
	int status = take_id(client, call);

	if (status != KV_OK)
		return status;
	call->request.touch_count = (uint16_t)touches;
	if (touches && kv_request_size(&call->request) > link->max_send)
		call->request.touch_count = 0;
	work.length = (size_t)(kv_encode_request(call->slot, &call->request, call->key,
						 call->source, client->touches) -
			       call->slot);
	client->touch_count = 0;
	if (work.length <= rmr_device_info(link->device)->max_inline)
		work.flags |= RMR_INLINE;
	else
		work.region = link->slots_region;
	/* As soon as it may have gone out it counts as sent. */
	was_asked(client, call);
	return post(client, &work, call->is_async) ? KV_OK : lost(client);
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
			return lost(client);
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
	was_asked(client, call);
	return post(client, &work, call->is_async) ? KV_OK : lost(client);
}

int call_post_read(struct kv_client *client, struct call *call, struct rmr_work *work,
		   enum call_state state)
{
	work->cookie = call->number + 1;
	call->state = state;
	call->round_trips++;
	client->reads_under_way++;
	if (post(client, work, call->is_async))
		return KV_OK;
	return lost(client);
}

int call_post_part(struct kv_client *client, struct rmr_work *work)
{
	return post(client, work, true) ? KV_OK : lost(client);
}

/* ------------------------------------------------------------------------------------------
 * The wheel
 */

static void take_reply(struct kv_client *client, struct call *call,
		       const struct kv_reply_view *view)
{
	struct link *link = client->link;
	int status = view->header.status;

	call->reply = view->header;
	if (!link->is_mapped) {
		link->clock_set_ms = (int64_t)call->sent_ms;
		link->clock_ahead_ms =
			(int64_t)view->header.server_time_ms + 1 - link->clock_set_ms;
	}
	if (view->header.cells_epoch != link->cells_epoch) {
		link->cells_epoch = view->header.cells_epoch;
		link->must_tell_cells = true;
		locations_clear_cells(&client->locations);
	}
	if (status > 0 || status < KV_AGAIN)
		status = KV_INTERNAL;
	call->status = status;
	if (status != KV_OK && view->value && !call->is_abandoned)
		client_fail(client, status, "%.*s", (int)MIN(view->value_length, 500u),
			    (const char *)view->value);
	if (call->take)
		call->take(client, call, view);
	if (call->state == CALL_ASKED)
		call_done(client, call, call->status);
}

static void handle_message(struct kv_client *client, const struct rmr_completion *completion)
{
	struct link *link = client->link;
	struct kv_reply_view view;
	struct call *call;
	const char *wrong = kv_decode_reply(completion->data, completion->length, &view);

	if (wrong) {
		link_lose(link, wrong);
		return;
	}
	if (view.header.op == KV_OP_GOODBYE) {
		char text[200];

		link->said_goodbye = view.header.status == KV_OK;
		snprintf(text, sizeof(text), "the server says: %.*s",
			 (int)MIN(view.value_length, 150u),
			 view.value ? (const char *)view.value : "it stops");
		link_lose(link, text);
		return;
	}
	call = client->by_id[view.header.id % client->id_slots];
	if (!call || call->request.id != view.header.id || call->request.op != view.header.op) {
		link_lose(link, "a reply to no request of ours");
		return;
	}
	client->by_id[view.header.id % client->id_slots] = NULL;
	link->asked--;
	take_reply(client, call, &view);
}

static void handle_read(struct kv_client *client, const struct rmr_completion *completion)
{
	struct call *call;

	if (!completion->cookie || completion->cookie > client->window)
		return;
	call = &client->calls[completion->cookie - 1];
	/* What failed is followed by the loss of the link. */
	if (completion->status != RMR_OK)
		return;
	client->reads_under_way--;
	if (call->read_done)
		call->read_done(client, call);
	else
		call_done(client, call, KV_OK);
}

static void handle(struct kv_client *client, const struct rmr_completion *completion)
{
	struct link *link = client->link;

	switch (completion->op) {
	case RMR_OP_RECV:
		if (!link->is_lost)
			handle_message(client, completion);
		rmr_recv_release(link->queue, completion->data);
		break;
	case RMR_OP_READ:
	case RMR_OP_COMPARE_SWAP:
	case RMR_OP_FETCH_ADD:
		handle_read(client, completion);
		break;
	case RMR_OP_DISCONNECT:
		link_lose(link, "the server closed it, or died");
		break;
	default:
		break;
	}
}

/* Not at once again. Somewhere between half and all of the time, lest all clients come back
 * together. */
static void back_off(struct kv_client *client)
{
	client->backoff_ms = MIN(MAX(client->backoff_ms * 2, MIN_BACKOFF_MS), MAX_BACKOFF_MS);
	client->retry_ns = clock_now_ns() + client->backoff_ms * (500 + clock_ticks() % 500) * 1000;
}

/* What becomes of a call when the link is lost. */
static void call_lost(struct kv_client *client, struct call *call, const struct link *link)
{
	bool is_unsure = call->was_sent && call->is_change && !link->said_goodbye;

	if (call->state == CALL_FREE || call->state == CALL_DONE)
		return;
	call->buffer = call->landing = (struct extent){0};
	if (call->is_abandoned) {
		call_end(client, call);
		return;
	}
	if (call->state == CALL_BEGUN)
		return;
	if (call->state == CALL_COUNTING)
		is_unsure = true;
	if (is_unsure) {
		client_fail(client, KV_UNKNOWN,
			    "the connection was lost (%s) before the answer came: the change may "
			    "have been made, or not",
			    link->reason);
		call_done(client, call, KV_UNKNOWN);
		return;
	}
	if (call->is_async && kv_op_has_value(call->request.op)) {
		/* The value is gone, and with it the means to try again. */
		client_fail(client, KV_DISCONNECTED, "%s: nothing was changed", link->reason);
		call_done(client, call, KV_DISCONNECTED);
		return;
	}
	call->was_sent = false;
	call->state = CALL_BEGUN;
}

static void after_loss(struct kv_client *client)
{
	log_debug("lost the connection: %s", client->link->reason);
	/* One that ends as soon as it is there counts as an attempt that failed. */
	if (clock_now_ns() - client->link->opened_ns < SHORT_LIFE_NS)
		back_off(client);
	else
		client->backoff_ms = 0;
	for (unsigned i = 0; i < client->window; i++)
		call_lost(client, &client->calls[i], client->link);
	for (unsigned i = 0; i < client->id_slots; i++)
		client->by_id[i] = NULL;
	client->reads_under_way = 0;
	link_drop(client);
}

/* Says that all cells are forgotten, once no atomic is under way. */
static void tell_cells(struct kv_client *client)
{
	struct link *link = client->link;
	struct call *call;

	for (unsigned i = 0; i < client->window; i++)
		if (client->calls[i].state == CALL_COUNTING)
			return;
	if (call_begin(client, KV_OP_CELLS, NULL, 0, false, &call) != KV_OK)
		return;
	link->must_tell_cells = false;
	call->request.argument = link->cells_epoch;
	if (call_ask(client, call) == KV_OK)
		call_abandon(client, call);
	else
		call_end(client, call);
}

void call_turn(struct kv_client *client, int timeout_ms)
{
	struct rmr_completion completions[TURN_BATCH];
	struct link *link = client->link;
	int count;

	if (!link)
		return;
	if (client->has_held) {
		client->has_held = false;
		rmr_flush(link->conn);
	}
	client->turning++;
	count = timeout_ms ? rmr_wait(link->queue, completions, TURN_BATCH, timeout_ms)
			   : rmr_poll(link->queue, completions, TURN_BATCH);
	for (int i = 0; i < count; i++)
		handle(client, &completions[i]);
	client->turning--;
	if (client->turning)
		return;
	if (link->is_lost)
		after_loss(client);
	else if (link->must_tell_cells)
		tell_cells(client);
}

/* ------------------------------------------------------------------------------------------
 * Running
 */

static void sleep_until(uint64_t time_ns)
{
	struct timespec time = {.tv_sec = (time_t)(time_ns / 1000000000u),
				.tv_nsec = (long)(time_ns % 1000000000u)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

int client_reach(struct kv_client *client, uint64_t deadline_ns)
{
	for (;;) {
		int status;

		if (client->link && client->link->is_lost && !client->turning)
			after_loss(client);
		if (client->link)
			return client->link->is_lost ? lost(client) : KV_OK;
		if (!client->was_connected)
			return client_fail(client, KV_DISCONNECTED,
					   "not connected: kv_client_connect comes first");
		if (client->options.no_reconnect)
			return client_fail(client, KV_DISCONNECTED, "the connection was lost");
		if (client->retry_ns > clock_now_ns()) {
			if (client->retry_ns >= deadline_ns) {
				sleep_until(deadline_ns);
				client->last_status = KV_DISCONNECTED;
				return KV_DISCONNECTED;
			}
			sleep_until(client->retry_ns);
		}
		status = link_open(
			client,
			MIN(deadline_ns, clock_deadline_ns(client->options.connect_timeout_ms)));
		if (status == KV_OK) {
			client->totals.reconnects++;
			continue;
		}
		if (status == KV_DENIED || status == KV_PROTOCOL || status == KV_INVALID)
			return status;
		back_off(client);
		if (clock_passed(deadline_ns))
			return status;
	}
}

/* One step of a call that is begun: reaches the server, and starts it. */
static void start(struct kv_client *client, struct call *call)
{
	int status = client_reach(client, call->deadline_ns);

	if (status == KV_OK) {
		uint64_t outer_ns = client->deadline_ns;

		/* What it needs to be started has no more time than itself. */
		client->deadline_ns = call->deadline_ns;
		status = call->start(client, call);
		client->deadline_ns = outer_ns;
		if (status == KV_OK)
			return;
		/* Lost meanwhile: whether it can be started again is decided there. */
		if (client->link && client->link->is_lost) {
			if (!client->turning)
				after_loss(client);
			return;
		}
	}
	if (call->state != CALL_DONE)
		call_done(client, call, status);
}

static void time_is_over(struct kv_client *client, struct call *call)
{
	int status = call->is_change && call->was_sent ? KV_UNKNOWN : KV_TIMEOUT;

	client_fail(client, status,
		    status == KV_UNKNOWN ? "no answer within %d ms: the change may have been made, "
					   "or not"
					 : "no answer within %d ms",
		    client->options.timeout_ms);
	call->status = status;
}

void call_launch(struct kv_client *client, struct call *call)
{
	/* Until it was sent the caller's value is needed. */
	while (call->state == CALL_BEGUN)
		start(client, call);
}

int call_run(struct kv_client *client, struct call *call)
{
	/* One that was just begun has all its time: the clock is not looked at until it has been
	 * waited for once. It costs a system call on some machines. */
	bool is_fresh = call->state == CALL_BEGUN && !client->deadline_ns;
	int left_ms = is_fresh ? client->options.timeout_ms : clock_remaining_ms(call->deadline_ns);

	while (call->state != CALL_DONE) {
		if (!left_ms) {
			time_is_over(client, call);
			break;
		}
		if (call->state == CALL_BEGUN)
			start(client, call);
		else
			call_turn(client, left_ms);
		if (call->state == CALL_DONE)
			break;
		if (!is_fresh)
			left_ms = clock_remaining_ms(call->deadline_ns);
		is_fresh = false;
	}
	client->last_status = call->status;
	return call->status;
}

int call_finish(struct kv_client *client, struct call *call, struct kv_reply *reply)
{
	int status = call_run(client, call);

	if (reply)
		*reply = call->reply;
	if (call->state == CALL_DONE)
		call_end(client, call);
	else
		call_abandon(client, call);
	return status;
}

void call_submit(struct kv_client *client, struct call *call)
{
	call->is_async = true;
	client->async_under_way++;
	call_launch(client, call);
}

void calls_resume(struct kv_client *client)
{
	for (;;) {
		struct call *first = NULL;

		for (unsigned i = 0; i < client->window; i++) {
			struct call *call = &client->calls[i];

			if (call->state == CALL_BEGUN && call->is_async &&
			    (!first || call->order < first->order))
				first = call;
		}
		if (!first)
			return;
		start(client, first);
		if (first->state == CALL_BEGUN)
			return;
	}
}

void calls_drop(struct kv_client *client)
{
	for (unsigned i = 0; client->calls && i < client->window; i++) {
		client->calls[i].is_abandoned = true;
		call_end(client, &client->calls[i]);
	}
	for (unsigned i = 0; client->by_id && i < client->id_slots; i++)
		client->by_id[i] = NULL;
	client->reads_under_way = 0;
	client->async_under_way = 0;
}
