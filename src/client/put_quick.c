/*
 * The put that is made most: of a short value, in a message, when nothing else is under way. The
 * request is written to the slot of the call that would be begun, sent, and its answer waited for,
 * with none of what a call has to remember in case that something goes wrong. Should something go
 * wrong, or anything else come in first, the call is made after all, in the state that it would be
 * in by now, and goes on from there.
 *
 * A put must not be made twice. Up to the post nothing was sent and nothing of the client has
 * changed, so that all of it can be left to put.c. From then on there are two ways out: the answer,
 * or the call, which counts as sent. What becomes of that is decided where it is for all others: if
 * the link is lost, or the time is over, it ends with KV_UNKNOWN (wheel.c, run.c); it is only sent
 * again if the server said that it had not carried it out.
 */
#include "client/internal.h"

struct put {
	const void *key;
	size_t key_length;
	const void *value;
	size_t value_length;
	const kv_put_options_t *options;
	kv_info_t *info;
};

/* Whether it goes like this. No call is under way, so nobody waits for an answer: ids, slots and
 * the window are free, the first message that comes should be ours, and there is nothing on the
 * same key whose order would have to be kept. */
static inline bool is_possible(const struct kv_client *client, size_t key_length,
			       size_t value_length)
{
	const struct link *link = client->link;

	if (!link || link->is_lost || client->calls_under_way || client->deadline_ns)
		return false;
	/* The slot that it would be written to is shared with the parent. */
	if (fork_is_foreign(client->process))
		return false;
	/* Only the wheel sees to these. */
	if (link->must_tell_cells || client->leftover_count)
		return false;
	return client->options.timeout_ms >= 0 && key_length <= CALL_SMALL_KEY &&
	       value_length <= link->welcome.max_value &&
	       key_length + value_length <= link->eager_limit;
}

/* Whether this is the answer to the put of this id, and there is no more to it than the header. A
 * text is for the caller to read, and with a new epoch all cells are forgotten: wheel.c does that.
 */
static inline bool is_plain_answer(const struct link *link, const struct rmr_completion *completion,
				   uint32_t id, struct kv_reply_view *view)
{
	const struct kv_reply *reply = &view->header;

	return completion->op == RMR_OP_RECV && completion->status == RMR_OK &&
	       !kv_decode_reply(completion->data, completion->length, view) &&
	       reply->op == KV_OP_PUT && reply->id == id &&
	       reply->cells_epoch == link->cells_epoch && (reply->status == KV_OK || !view->value);
}

/* Goes on as a call that was sent at this time. The completion, if there is one, is the first to
 * come in since; it finds the call as if the wheel had brought it. */
__attribute__((noinline, cold)) static int put_as_call(struct kv_client *client,
						       const struct put *put, uint64_t sent_ns,
						       uint64_t sent_ticks,
						       const struct rmr_completion *completion)
{
	struct kv_reply reply;
	struct call *call;
	int status = put_begin(client, put->key, put->key_length, put->value, put->value_length,
			       put->options, true, &call);

	/* It cannot fail: all calls are free, and the key is short. It is the call whose slot was
	 * sent from, so that nobody else writes there. */
	if (status != KV_OK)
		return status;
	call->path = KV_PATH_EAGER;
	call_continue(client, call, sent_ns, sent_ticks);
	if (completion)
		call_handle(client, completion);
	status = call_finish(client, call, &reply);
	put_inform(status, &reply, put->info);
	return status;
}

int put_quickly(struct kv_client *client, const void *key, size_t key_length, const void *value,
		size_t value_length, const kv_put_options_t *options, kv_info_t *info)
{
	struct kv_request request = {.op = KV_OP_PUT};
	struct link *link = client->link;
	struct rmr_completion completion;
	struct kv_reply_view view;
	struct rmr_work work;
	uint64_t hash, sent_ns, sent_ticks;
	int status, count;

	if (!is_possible(client, key_length, value_length))
		return CALL_NOT_MADE;
	/* The id is taken when it was posted: here, or by the call. */
	request.id = link->next_id;
	request.key_length = (uint16_t)key_length;
	request.value_length = value_length;
	put_set_options(&request, options);
	call_write(client, &request, key, value, call_first_free(client)->slot, &work);
	/* Before it leaves: what the server's clock says in the answer is later. */
	sent_ns = clock_quick_ns();
	sent_ticks = clock_ticks();
	if (rmr_post(link->conn, &work, 1) != 1)
		return CALL_NOT_MADE;
	/* It is on its way: now there is time for the rest. */
	client->touch_count = 0;
	link_release_spent(link);
	hash = client_hash(key, key_length);
	count = rmr_wait(link->queue, &completion, 1, client->options.timeout_ms);
	if (count != 1 || !is_plain_answer(link, &completion, request.id, &view)) {
		struct put put = {key, key_length, value, value_length, options, info};

		return put_as_call(client, &put, sent_ns, sent_ticks,
				   count == 1 ? &completion : NULL);
	}
	link->next_id++;
	link->spent = completion.data;
	link_take_time(link, &view.header, sent_ns / 1000000, sent_ticks);
	status = call_status(&view.header);
	put_remember(client, status, hash, key, key_length, &view.header);
	put_inform(status, &view.header, info);
	client->totals.operations[KV_PATH_EAGER]++;
	client->totals.round_trips++;
	client->last_path = KV_PATH_EAGER;
	client->last_round_trips = 1;
	return client_ended(client, status);
}
