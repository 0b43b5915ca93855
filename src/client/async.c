/*
 * Many at once: submit and poll, and batches, which are made of the same.
 *
 * What is submitted is posted and held back until the caller polls, flushes or waits, so that it
 * leaves together. Where the arena is mapped a get is done at once, and its result waits.
 */
#include <sys/param.h>

#include "client/internal.h"

#define PREFETCH_GROUP 16u
/* How long a poll that does not want to wait may try to connect again. */
#define RECONNECT_NS 50000000u

/* ------------------------------------------------------------------------------------------
 * Submit
 */

static int check(struct kv_client *client, const void *key, size_t key_length)
{
	if (!client)
		return KV_INVALID;
	if (!key_is_right(key, key_length))
		return client_bad_key(client, key_length);
	client_improve(client);
	return client_ended(client, call_may_submit(client) ? KV_OK : KV_AGAIN);
}

int kv_client_submit_get(kv_client_t *client, const void *key, size_t key_length, void *value,
			 size_t room, uint64_t cookie)
{
	struct call *call;
	size_t length = room;
	int status = check(client, key, key_length);

	if (status == KV_OK && !value && room)
		status = client_fail(client, KV_INVALID, "get: no buffer for the value");
	if (status == KV_OK)
		status = get_begin(client, key, key_length, value, room, false, &call);
	if (status != KV_OK)
		return status;
	call->cookie = cookie;
	if (client->link && client->link->is_mapped) {
		kv_info_t info = {0};

		status = get_mapped(client, key, key_length, value ? value : (void *)"", &length,
				    &info);
		if (status != KV_AGAIN) {
			call->length = length;
			call->reply.version = info.version;
			call->status = status;
			call->state = CALL_DONE;
			call->is_async = true;
			client->async_under_way++;
			return KV_OK;
		}
	}
	call_submit(client, call);
	return KV_OK;
}

/* For a value that is too long for a message: whether there is a landing buffer decides how it
 * goes, so that has to be known. */
static int need_landing_for(struct kv_client *client, size_t length)
{
	int status;

	if (length <= client->link->eager_limit || client->link->landing ||
	    client->link->has_no_landing)
		return KV_OK;
	status = link_need_landing(client);
	if (status != KV_OK && status != KV_BUSY)
		return status;
	return client_need_link(client);
}

int kv_client_submit_put(kv_client_t *client, const void *key, size_t key_length, const void *value,
			 size_t value_length, const kv_put_options_t *options, uint64_t cookie)
{
	struct call *call;
	int status = check(client, key, key_length);

	if (status == KV_OK && !value && value_length)
		status = client_fail(client, KV_INVALID, "put: no value");
	if (status == KV_OK && options && (unsigned)options->condition > KV_IF_VERSION)
		status = client_fail(client, KV_INVALID, "put: no such condition");
	if (status == KV_OK)
		status = client_need_link(client);
	if (status == KV_OK)
		status = need_landing_for(client, key_length + value_length);
	if (status == KV_OK)
		status = put_begin(client, key, key_length, value, value_length, options, false,
				   &call);
	if (status != KV_OK)
		return status;
	call->cookie = cookie;
	if (key_length + value_length > put_limit(client)) {
		kv_info_t info = {0};

		/* Done at once: nobody would keep the value. The call only carries the result. */
		call_wait_for_gets(client, call);
		status =
			put_in_pieces(client, key, key_length, value, value_length, options, &info);
		call->reply.version = info.version;
		call->status = status;
		call->state = CALL_DONE;
		call->is_async = true;
		client->async_under_way++;
		return KV_OK;
	}
	call_submit(client, call);
	return KV_OK;
}

int kv_client_submit_delete(kv_client_t *client, const void *key, size_t key_length,
			    uint64_t cookie)
{
	struct call *call;
	int status = check(client, key, key_length);

	if (status == KV_OK)
		status = call_begin(client, KV_OP_DELETE, key, key_length, false, &call);
	if (status != KV_OK)
		return status;
	locations_forget(&client->locations, call->hash);
	call->cookie = cookie;
	call_submit(client, call);
	return KV_OK;
}

int kv_client_submit_incr(kv_client_t *client, const void *key, size_t key_length, int64_t delta,
			  uint64_t cookie)
{
	struct call *call;
	int status = check(client, key, key_length);

	if (status == KV_OK)
		status = call_begin(client, KV_OP_ADD, key, key_length, false, &call);
	if (status != KV_OK)
		return status;
	call->request.argument = (uint64_t)delta;
	call->cookie = cookie;
	call_submit(client, call);
	return KV_OK;
}

int kv_client_submit_flush(kv_client_t *client)
{
	if (!client)
		return KV_INVALID;
	call_turn(client, 0);
	return client->link ? KV_OK : KV_DISCONNECTED;
}

/* ------------------------------------------------------------------------------------------
 * Poll
 */

/* A value that was too long for the buffer is got here and now. */
static void get_rest(struct kv_client *client, struct call *call)
{
	kv_info_t info = {0};
	size_t length = call->room;

	call->status = get_in_pieces(client, call->key, call->request.key_length, call->value,
				     &length, &info);
	call->length = length;
	call->reply.version = info.version;
}

static int take_results(struct kv_client *client, kv_result_t *results, int max)
{
	int count = 0;

	for (unsigned i = 0; i < client->window && count < max; i++) {
		struct call *call = &client->calls[i];

		if (call->state != CALL_DONE || !call->is_async)
			continue;
		if (call->status == CALL_TOO_LONG)
			get_rest(client, call);
		results[count++] = (kv_result_t){.cookie = call->cookie,
						 .status = call->status,
						 .length = call->length,
						 .version = call->reply.version,
						 .number = (int64_t)call->reply.number};
		client->async_under_way--;
		call_end(client, call);
	}
	return count;
}

static bool is_late(const struct call *call, uint64_t now)
{
	return call->state != CALL_FREE && call->state != CALL_DONE && call->is_async &&
	       !call->is_abandoned && now >= call->deadline_ns;
}

static bool some_are_late(const struct kv_client *client, uint64_t now)
{
	for (unsigned i = 0; i < client->window; i++)
		if (is_late(&client->calls[i], now))
			return true;
	return false;
}

/* Those whose time is over are told so, unless the answer has come; what still comes for them is
 * nobody's. */
static int take_late(struct kv_client *client, kv_result_t *results, int max)
{
	uint64_t now = clock_now_ns();
	int count;

	if (!some_are_late(client, now))
		return 0;
	call_take_arrived(client);
	count = take_results(client, results, max);
	for (unsigned i = 0; i < client->window && count < max; i++) {
		struct call *call = &client->calls[i];

		if (!is_late(call, now))
			continue;
		results[count++] = (kv_result_t){
			.cookie = call->cookie,
			.status = call->is_change && call->was_sent ? KV_UNKNOWN : KV_TIMEOUT};
		client->async_under_way--;
		call_abandon(client, call);
	}
	return count;
}

/* Not longer than the caller wants to wait, and not sooner than it makes sense. */
static bool reach_again(struct kv_client *client, uint64_t deadline_ns)
{
	uint64_t now = clock_now_ns();

	if (client->retry_ns > MAX(now, deadline_ns))
		return false;
	return client_reach(client, MAX(deadline_ns, now + RECONNECT_NS)) == KV_OK;
}

int kv_client_poll(kv_client_t *client, kv_result_t *results, int max, int timeout_ms)
{
	uint64_t deadline_ns = 0;

	if (!client || !results || max < 1)
		return 0;
	call_turn(client, 0);
	for (bool is_last = false; client->async_under_way;) {
		int count = take_results(client, results, max);

		if (count)
			return count;
		if (!deadline_ns)
			deadline_ns = clock_deadline_ns(timeout_ms < 0 ? client->options.timeout_ms
								       : timeout_ms);
		/* Whoever waits as long as operations may take is told of those that are late. */
		count = take_late(client, results, max);
		if (count || is_last)
			return count;
		/* What was interrupted goes on as soon as the server is there again. */
		if (client->link || reach_again(client, deadline_ns))
			calls_resume(client);
		call_turn(client, MIN(clock_remaining_ms(deadline_ns), 100));
		is_last = clock_passed(deadline_ns);
	}
	return 0;
}

/* ------------------------------------------------------------------------------------------
 * Batches
 */

struct batch {
	size_t count;
	const void *const *keys;
	const size_t *key_lengths;
	void *const *values;	    /* of gets */
	const void *const *sources; /* of puts */
	size_t *rooms;		    /* of gets: the lengths, on the way out */
	const size_t *lengths;	    /* of puts */
	int *statuses;
	int first_failure;
};

static void settle(struct batch *batch, size_t i, int status)
{
	if (batch->statuses)
		batch->statuses[i] = status;
	if (status != KV_OK && batch->first_failure == KV_OK)
		batch->first_failure = status;
}

static int submit(struct kv_client *client, struct batch *batch, size_t i)
{
	if (batch->sources)
		return kv_client_submit_put(client, batch->keys[i], batch->key_lengths[i],
					    batch->sources[i], batch->lengths[i], NULL, i);
	return kv_client_submit_get(client, batch->keys[i], batch->key_lengths[i], batch->values[i],
				    batch->rooms[i], i);
}

static int run_batch(struct kv_client *client, struct batch *batch)
{
	size_t submitted = 0, settled = 0;
	uint64_t deadline_ns = 0;

	if (client->async_under_way)
		return client_fail(client, KV_AGAIN,
				   "a batch needs the window: poll what was submitted first");
	while (settled < batch->count) {
		kv_result_t results[PREFETCH_GROUP];
		int count;

		while (submitted < batch->count) {
			int status = submit(client, batch, submitted);

			if (status == KV_AGAIN)
				break;
			if (status != KV_OK) {
				settle(batch, submitted, status);
				settled++;
			}
			submitted++;
		}
		count = kv_client_poll(client, results, PREFETCH_GROUP, -1);
		for (int i = 0; i < count; i++) {
			size_t at = (size_t)results[i].cookie;

			if (batch->rooms && (results[i].status == KV_OK ||
					     results[i].status == KV_BUFFER_TOO_SMALL))
				batch->rooms[at] = results[i].length;
			settle(batch, at, results[i].status);
			settled++;
		}
		if (count > 0 || client->async_under_way || settled == batch->count) {
			deadline_ns = 0;
			continue;
		}
		/* The window is full of requests that nobody answers. */
		if (!deadline_ns)
			deadline_ns = clock_deadline_ns(client->options.timeout_ms);
		call_turn(client, clock_remaining_ms(deadline_ns));
		while (clock_passed(deadline_ns) && submitted < batch->count) {
			settle(batch, submitted++, KV_TIMEOUT);
			settled++;
		}
	}
	(void)client_ended(client, batch->first_failure);
	return batch->statuses ? KV_OK : batch->first_failure;
}

/* Settles one key of a batch that was looked up in mapped memory. */
static void settle_mapped(struct kv_client *client, struct batch *batch, size_t at,
			  enum reader_status status, const struct reader_item *item)
{
	client->totals.operations[KV_PATH_MAPPED]++;
	if (status != READER_MISS)
		batch->rooms[at] = item_value_length(item->lengths);
	if (status == READER_FOUND)
		client_touch(client, item->offset, item->version);
	client->unseen_misses += status == READER_MISS;
	settle(batch, at,
	       status == READER_FOUND	  ? KV_OK
	       : status == READER_NO_ROOM ? KV_BUFFER_TOO_SMALL
					  : KV_NOT_FOUND);
}

/* All at once from mapped memory, as far as that goes: their cache misses overlap. Returns how many
 * of the first ones were done. They are settled only when all were copied, and the server is known
 * to have lived then. */
static size_t get_group(struct kv_client *client, struct batch *batch, size_t begin)
{
	const struct bucket *buckets[PREFETCH_GROUP];
	enum reader_status statuses[PREFETCH_GROUP];
	struct reader_item items[PREFETCH_GROUP];
	uint64_t hashes[PREFETCH_GROUP];
	const struct reader *reader = client->reader;
	size_t count = MIN(batch->count - begin, PREFETCH_GROUP), done = 0;

	for (size_t i = 0; i < count; i++) {
		if (!key_is_right(batch->keys[begin + i], batch->key_lengths[begin + i]) ||
		    (!batch->values[begin + i] && batch->rooms[begin + i]))
			return 0;
		hashes[i] =
			reader_hash(reader, batch->keys[begin + i], batch->key_lengths[begin + i]);
		buckets[i] = reader_prefetch_bucket(reader, hashes[i]);
	}
	for (size_t i = 0; i < count; i++)
		reader_prefetch_item(reader, buckets[i], hashes[i]);
	for (; done < count; done++) {
		size_t at = begin + done;

		statuses[done] = reader_get_hashed(
			reader, hashes[done], batch->keys[at], batch->key_lengths[at],
			batch->rooms[at] ? batch->values[at] : (void *)"", batch->rooms[at],
			&items[done]);
		if (statuses[done] == READER_ASK)
			break;
	}
	if (!life_covers(client))
		return 0;
	for (size_t i = 0; i < done; i++)
		settle_mapped(client, batch, begin + i, statuses[i], &items[i]);
	if (client_must_report(client))
		client_report(client, false);
	return done;
}

int kv_client_batch_get(kv_client_t *client, size_t count, const void *const *keys,
			const size_t *key_lengths, void *const *values, size_t *lengths,
			int *statuses)
{
	struct batch batch = {.count = count,
			      .keys = keys,
			      .key_lengths = key_lengths,
			      .values = values,
			      .rooms = lengths,
			      .statuses = statuses};
	size_t done = 0;

	if (!client || (count && (!keys || !key_lengths || !values || !lengths)))
		return client_fail(client, KV_INVALID, "batch_get: an array is missing");
	while (client->link && client->link->is_mapped && life_may_read(client) &&
	       !client->changes_under_way && done < count) {
		size_t group = get_group(client, &batch, done);

		done += group;
		if (!group) {
			/* One of them needs more than a look. */
			int status = kv_client_get(client, keys[done], key_lengths[done],
						   values[done], &lengths[done]);

			settle(&batch, done++, status);
		}
	}
	if (done == count) {
		client->last_path = KV_PATH_MAPPED;
		client->last_round_trips = 0;
		(void)client_ended(client, batch.first_failure);
		return statuses ? KV_OK : batch.first_failure;
	}
	batch.count -= done;
	batch.keys += done;
	batch.key_lengths += done;
	batch.values += done;
	batch.rooms += done;
	batch.statuses = statuses ? statuses + done : NULL;
	return run_batch(client, &batch);
}

int kv_client_batch_put(kv_client_t *client, size_t count, const void *const *keys,
			const size_t *key_lengths, const void *const *values, const size_t *lengths,
			int *statuses)
{
	struct batch batch = {.count = count,
			      .keys = keys,
			      .key_lengths = key_lengths,
			      .sources = values,
			      .lengths = lengths,
			      .statuses = statuses};

	if (!client || (count && (!keys || !key_lengths || !values || !lengths)))
		return client_fail(client, KV_INVALID, "batch_put: an array is missing");
	return run_batch(client, &batch);
}
