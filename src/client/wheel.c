/*
 * The wheel: everything that comes in, for all calls under way, and what becomes of them when the
 * link is lost. Nobody else waits: whoever wants something to happen turns it.
 *
 * It may be turned while it is turning, by somebody who needs room to post or space in a buffer.
 * Then only the outermost turn draws the consequences of a lost link, as the others still use it.
 */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/log.h"
#include "client/internal.h"

#define TURN_BATCH     16u
#define MIN_BACKOFF_MS 5u
#define MAX_BACKOFF_MS 500u
/* A link that did not live longer counts as an attempt that failed. */
#define SHORT_LIFE_NS 20000000u

/* What a call that nobody waits for any more has got on the server is given back. */
static void keep_leftover(struct kv_client *client, const struct call *call)
{
	struct leftover leftover = {0};

	if (call->request.op == KV_OP_PIN)
		leftover = (struct leftover){KV_OP_UNPIN, call->reply.number};
	else if (call->request.op == KV_OP_PUT_BEGIN)
		leftover = (struct leftover){KV_OP_PUT_CANCEL, call->request.id};
	else
		return;
	/* Should there ever be more, a new connection is the better way. */
	if (client->leftover_count == CLIENT_MAX_LEFTOVERS)
		link_lose(client->link, "too much was left lying on the server");
	else
		client->leftovers[client->leftover_count++] = leftover;
}

static void take_reply(struct kv_client *client, struct call *call,
		       const struct kv_reply_view *view)
{
	struct link *link = client->link;
	int status = call_status(&view->header);

	call->reply = view->header;
	link_take_time(link, &view->header, call->sent_ms, call->sent_ticks);
	if (view->header.cells_epoch != link->cells_epoch) {
		link->cells_epoch = view->header.cells_epoch;
		link->must_tell_cells = true;
		locations_clear_cells(&client->locations);
	}
	call->status = status;
	/* Why a piece belongs to no put was in the reply to its PUT_BEGIN. */
	if (status != KV_OK && view->value && !call->is_abandoned &&
	    !(status == KV_INVALID && call->request.op == KV_OP_PUT_PIECE))
		client_fail(client, status, "%.*s", (int)MIN(view->value_length, 500u),
			    (const char *)view->value);
	if (call->is_abandoned && status == KV_OK)
		keep_leftover(client, call);
	if (call->take)
		call->take(client, call, view);
	if (call->state == CALL_ASKED)
		call_done(client, call, call->status);
}

/* The server READs the value of a put, and tells how far it has come. */
static void take_progress(struct kv_client *client, struct call *call, const struct kv_reply *reply)
{
	if (reply->number <= call->reached || reply->number > call->request.place) {
		client->link->is_deaf = true;
		link_lose(client->link, "it tells of progress that cannot be");
		return;
	}
	call->reached = reply->number;
	if (!call->is_abandoned)
		client_progressed(client);
}

static void handle_message(struct kv_client *client, const struct rmr_completion *completion)
{
	struct link *link = client->link;
	struct kv_reply_view view;
	struct call *call;
	const char *wrong = kv_decode_reply(completion->data, completion->length, &view);

	if (wrong) {
		link->is_deaf = true;
		link_lose(link, wrong);
		return;
	}
	if (view.header.op == KV_OP_GOODBYE) {
		char text[200];

		link->said_goodbye = true;
		link->is_deaf = true;
		snprintf(text, sizeof(text), "the server says: %.*s",
			 (int)MIN(view.value_length, 150u),
			 view.value ? (const char *)view.value : "it stops");
		link_lose(link, text);
		return;
	}
	call = client->by_id[view.header.id % client->id_slots];
	if (!call || call->request.id != view.header.id || call->request.op != view.header.op) {
		link->is_deaf = true;
		link_lose(link, "a reply to no request of ours");
		return;
	}
	if (view.header.flags & KV_PROGRESS && call->request.op == KV_OP_PUT_PULL) {
		take_progress(client, call, &view.header);
		return;
	}
	client->by_id[view.header.id % client->id_slots] = NULL;
	link->asked--;
	take_reply(client, call, &view);
}

static void handle_read(struct kv_client *client, const struct rmr_completion *completion)
{
	uint64_t number = completion->cookie & ~CALL_PIECE;
	struct call *call;

	if (!number || number > client->window)
		return;
	call = &client->calls[number - 1];
	/* What failed is followed by the loss of the link. */
	if (completion->status != RMR_OK)
		return;
	if (completion->cookie & CALL_PIECE) {
		if (call->read_done)
			get_take_piece(client, call);
	} else if (call->read_done)
		call->read_done(client, call);
	else
		call_done(client, call, KV_OK);
}

static void handle(struct kv_client *client, const struct rmr_completion *completion)
{
	struct link *link = client->link;

	switch (completion->op) {
	case RMR_OP_RECV:
		/* There is no message then; that the link is lost is told next. */
		if (completion->status != RMR_OK)
			break;
		if (!link->is_deaf)
			handle_message(client, completion);
		link_release_spent(link);
		link->spent = completion->data;
		break;
	case RMR_OP_READ:
	case RMR_OP_COMPARE_SWAP:
	case RMR_OP_FETCH_ADD:
		handle_read(client, completion);
		break;
	case RMR_OP_DISCONNECT:
		link->is_over = true;
		link_lose(link, "the server closed it, or died");
		break;
	default:
		break;
	}
}

/* Not at once again. Somewhere between half and all of the time, lest all clients come back
 * together. */
void client_back_off(struct kv_client *client)
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
	call->region = NULL; /* closed with the link */
	if (call->is_abandoned) {
		call_end(client, call);
		return;
	}
	if (call->state == CALL_BEGUN)
		return;
	/* An atomic is carried out without the server, whatever that says. */
	if (call->state == CALL_COUNTING)
		is_unsure = call->was_sent;
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

/* A post, or a message, may tell that the link is lost while answers that came before, and atomics
 * that are done, lie in the queue. They count: what they tell of was done. A server that does not
 * stop talking is not listened to for longer than it can have to say. */
static void take_arrived(struct kv_client *client)
{
	struct rmr_completion completions[TURN_BATCH];
	struct link *link = client->link;
	/* For each call a reply and a READ, each way some to spare. */
	unsigned left = 4 * client->window + 64;
	int count = 1;

	client->turning++;
	while (!link->is_over && count > 0 && left) {
		link_release_spent(link);
		count = rmr_poll(link->queue, completions, (int)MIN(left, TURN_BATCH));
		for (int i = 0; i < count; i++)
			handle(client, &completions[i]);
		left -= (unsigned)MAX(count, 0);
	}
	client->turning--;
}

void calls_after_loss(struct kv_client *client)
{
	take_arrived(client);
	log_debug("lost the connection: %s", client->link->reason);
	if (clock_now_ns() - client->link->opened_ns < SHORT_LIFE_NS)
		client_back_off(client);
	else
		client->backoff_ms = 0;
	for (unsigned i = 0; i < client->window; i++)
		call_lost(client, &client->calls[i], client->link);
	for (unsigned i = 0; i < client->id_slots; i++)
		client->by_id[i] = NULL;
	client->leftover_count = 0;
	link_drop(client);
}

bool call_tell(struct kv_client *client, unsigned op, uint64_t argument, bool may_wait)
{
	struct call *call;

	if (call_begin(client, op, NULL, 0, may_wait, &call) != KV_OK)
		return false;
	call->request.argument = argument;
	call->path = KV_PATH_NONE;
	if (client->link && !client->link->is_lost && call_ask(client, call) == KV_OK)
		call_abandon(client, call);
	else
		call_end(client, call);
	return true;
}

/* Says that all cells are forgotten, once no atomic is under way. */
static void tell_cells(struct kv_client *client)
{
	struct link *link = client->link;

	for (unsigned i = 0; i < client->window; i++)
		if (client->calls[i].state == CALL_COUNTING)
			return;
	/* The link may be lost on the way. */
	if (call_tell(client, KV_OP_CELLS, link->cells_epoch, false) && client->link == link)
		link->must_tell_cells = false;
}

static void tell_leftovers(struct kv_client *client)
{
	while (client->leftover_count) {
		/* Taken out first: while it is told others may come. */
		struct leftover last = client->leftovers[--client->leftover_count];

		if (!call_tell(client, last.op, last.argument, false)) {
			client->leftovers[client->leftover_count++] = last;
			return;
		}
	}
}

/* What came in may call for more; that is for the outermost turn. */
static void draw_consequences(struct kv_client *client)
{
	struct link *link = client->link;

	if (client->turning)
		return;
	if (link->is_lost) {
		calls_after_loss(client);
		return;
	}
	if (link->must_tell_cells)
		tell_cells(client);
	if (client->leftover_count)
		tell_leftovers(client);
	if (client_must_report(client))
		client_report(client, false);
}

void call_turn(struct kv_client *client, int timeout_ms)
{
	struct rmr_completion completions[TURN_BATCH];
	struct link *link = client->link;
	int count;

	if (!link)
		return;
	if (link->is_lost && !client->turning) {
		calls_after_loss(client);
		return;
	}
	if (client->has_held) {
		client->has_held = false;
		rmr_flush(link->conn);
	}
	client->turning++;
	link_release_spent(link);
	count = timeout_ms ? rmr_wait(link->queue, completions, TURN_BATCH, timeout_ms)
			   : rmr_poll(link->queue, completions, TURN_BATCH);
	for (int i = 0; i < count; i++)
		handle(client, &completions[i]);
	client->turning--;
	draw_consequences(client);
}

void call_take_arrived(struct kv_client *client)
{
	if (!client->link)
		return;
	take_arrived(client);
	draw_consequences(client);
}

void call_handle(struct kv_client *client, const struct rmr_completion *completion)
{
	client->turning++;
	handle(client, completion);
	client->turning--;
	draw_consequences(client);
}
