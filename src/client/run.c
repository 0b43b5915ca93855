/*
 * Running calls: reaching the server, starting, waiting until the time is over, submitting.
 */
#include <string.h>
#include <sys/param.h>
#include <time.h>

#include "base/error.h"
#include "client/internal.h"

static void sleep_until(uint64_t time_ns)
{
	struct timespec time = {.tv_sec = (time_t)(time_ns / 1000000000u),
				.tv_nsec = (long)(time_ns % 1000000000u)};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

int client_reach(struct kv_client *client, uint64_t deadline_ns)
{
	if (fork_is_foreign(client->process))
		return client_fail(client, KV_INVALID, FORK_MESSAGE);
	for (;;) {
		int status;

		if (client->link && client->link->is_lost && !client->turning)
			calls_after_loss(client);
		if (client->link)
			return client->link->is_lost ? client_lost(client) : KV_OK;
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
		client_back_off(client);
		if (clock_passed(deadline_ns))
			return status;
	}
}

/* One step of a call that is begun: reaches the server, and starts it. */
static void start(struct kv_client *client, struct call *call)
{
	uint64_t deadline_ns = call_deadline_ns(client, call);
	int status = client_reach(client, deadline_ns);

	if (status == KV_OK) {
		uint64_t outer_ns = client->deadline_ns;

		/* What it needs to be started has no more time than itself. */
		client->deadline_ns = deadline_ns;
		status = call->start(client, call);
		client->deadline_ns = outer_ns;
		if (status == KV_OK)
			return;
		/* Lost meanwhile: whether it can be started again is decided there. */
		if (client->link && client->link->is_lost) {
			if (!client->turning)
				calls_after_loss(client);
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
	while (call->state != CALL_DONE) {
		int left_ms = clock_quick_remaining_ms(call_deadline_ns(client, call));

		if (!left_ms) {
			/* An answer that is there counts, though nobody took it in time. */
			call_take_arrived(client);
			if (call->state != CALL_DONE)
				time_is_over(client, call);
			break;
		}
		if (call->state == CALL_BEGUN)
			start(client, call);
		else
			call_turn(client, left_ms);
	}
	return client_ended(client, call->status);
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

/* One that was begun before, on the same key, and has not been sent to the server. */
static struct call *find_earlier_get(const struct kv_client *client, const struct call *call)
{
	for (unsigned i = 0; i < client->window; i++) {
		struct call *other = &client->calls[i];

		if (other->hash == call->hash && other->request.op == KV_OP_GET &&
		    other->order < call->order && !other->is_abandoned &&
		    (other->state == CALL_BEGUN || other->state == CALL_READING ||
		     other->state == CALL_LOOKING))
			return other;
	}
	return NULL;
}

void call_wait_for_gets(struct kv_client *client, const struct call *call)
{
	struct call *get;

	if (client->async_under_way <= 1)
		return;
	while ((get = find_earlier_get(client, call)) && !clock_passed(call->deadline_ns)) {
		if (get->state == CALL_BEGUN)
			start(client, get);
		else
			call_turn(client, clock_remaining_ms(call->deadline_ns));
	}
}

void call_submit(struct kv_client *client, struct call *call)
{
	call->is_async = true;
	client->async_under_way++;
	if (call->is_change)
		call_wait_for_gets(client, call);
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
		struct call *call = &client->calls[i];

		/* What was submitted has a result, which the caller will poll for. */
		if (call->state != CALL_FREE && call->is_async && !call->is_abandoned) {
			if (call->state != CALL_DONE)
				call_done(client, call,
					  call->is_change && call->was_sent ? KV_UNKNOWN
									    : KV_DISCONNECTED);
			continue;
		}
		call->is_abandoned = true;
		call_end(client, call);
	}
	for (unsigned i = 0; client->by_id && i < client->id_slots; i++)
		client->by_id[i] = NULL;
}
