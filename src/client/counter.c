/*
 * Counters. The server tells the cell of a counter with its first answer; from then on we count in
 * it by an atomic of the adapter, without asking.
 *
 * The rules are those of store.h. A counter that has left its cell has STORE_COUNTER_GONE there, or
 * not much beside it: then the addition went nowhere, and we forget the cell and ask. The server
 * does not use a cell again before all clients said that they have forgotten it (cells_epoch,
 * wheel.c). Large numbers, and large steps, are left to the server, so that no sum leaves the range
 * unnoticed.
 */
#include <string.h>

#include "client/internal.h"
#include "store/store.h"

/* Looks at the link, of which there is one in a millisecond at most, between two additions for
 * which the server is asked though the cell is known. */
#define ASK_EVERY 100u

static void count_take(struct kv_client *client, struct call *call,
		       const struct kv_reply_view *view)
{
	(void)view;
	if (call->status == KV_OK)
		call_learn(client, call);
}

static int ask(struct kv_client *client, unsigned op, const void *key, size_t key_length,
	       uint64_t expected, uint64_t argument, int64_t *number)
{
	struct kv_reply reply;
	struct call *call;
	int status = call_begin(client, op, key, key_length, true, &call);

	if (status != KV_OK)
		return status;
	call->request.version = expected;
	call->request.argument = argument;
	call->take = count_take;
	status = call_finish(client, call, &reply);
	if (number && (status == KV_OK || (op == KV_OP_SWAP && status == KV_CAS_FAILED)))
		*number = (int64_t)reply.number;
	return status;
}

/* ------------------------------------------------------------------------------------------
 * One-sided. A call's `context` is the work to post.
 */

/* Copied at once: the slot may be gone with the link as soon as the wheel stops. */
static void count_done(struct kv_client *client, struct call *call)
{
	memcpy(&call->reply.number, call->slot, sizeof(call->reply.number));
	call_done(client, call, KV_OK);
}

static int count_start(struct kv_client *client, struct call *call)
{
	struct rmr_work *work = call->context;

	/* On another connection the cell is not known to be the same; nor is it in another epoch,
	 * which may have begun since it was looked up. */
	if (client->link->generation != call->cookie || !client->link->cells ||
	    client->link->cells_epoch != call->request.place) {
		call_done(client, call, KV_AGAIN);
		return KV_OK;
	}
	work->remote = client->link->cells;
	work->region = client->link->slots_region;
	work->local = call->slot;
	work->length = sizeof(uint64_t);
	call->path = KV_PATH_ATOMIC;
	call->read_done = count_done;
	return call_post_read(client, call, work, CALL_COUNTING);
}

/* KV_AGAIN: ask. Else KV_OK and what was there before, or the failure. */
static int count_one_sided(struct kv_client *client, const void *key, size_t key_length,
			   struct rmr_work *work, int64_t *before)
{
	uint64_t hash = client_hash(key, key_length), generation, epoch;
	const struct location *place;
	struct call *call;
	bool is_mapped;
	int status;

	if (!life_is_heard(client) || !client->link->cells || call_conflicts(client, NULL, hash))
		return KV_AGAIN;
	/* The server tells of a new epoch when it is asked something. */
	if (client->checks - client->counting_asked >= ASK_EVERY) {
		client->counting_asked = client->checks;
		return KV_AGAIN;
	}
	place = locations_find(&client->locations, hash);
	if (!place || place->cell == LOCATION_NO_CELL ||
	    place->check != hash64_seed(key, key_length, client->instance) ||
	    place->cell >= rmr_remote_length(client->link->cells) / sizeof(uint64_t))
		return KV_AGAIN;
	work->offset = (uint64_t)place->cell * sizeof(uint64_t);
	generation = client->link->generation;
	epoch = client->link->cells_epoch;
	is_mapped = client->link->is_mapped;
	status = call_begin(client, KV_OP_ADD, key, key_length, true, &call);
	if (status != KV_OK)
		return status;
	call->start = count_start;
	call->context = work;
	call->cookie = generation;
	call->request.place = epoch;
	status = call_run(client, call);
	*before = (int64_t)call->reply.number;
	call_finish(client, call, NULL);
	if (status == KV_OK && store_cell_is_gone(*before)) {
		client->totals.stale_locations++;
		locations_forget(&client->locations, hash);
		return KV_AGAIN;
	}
	/* In the memory of a server that is gone everything succeeds. */
	if (status == KV_OK && is_mapped && life_prove(client, generation) != KV_OK)
		return client_fail(client, KV_UNKNOWN,
				   "the server stopped or died meanwhile: the change may have been "
				   "made, or not");
	return status;
}

/* ------------------------------------------------------------------------------------------
 * The calls
 */

int kv_client_incr(kv_client_t *client, const void *key, size_t key_length, int64_t delta,
		   int64_t *sum)
{
	struct rmr_work work = {.op = RMR_OP_FETCH_ADD, .operand = (uint64_t)delta};
	int status = KV_AGAIN;
	int64_t before;

	if (!client)
		return KV_INVALID;
	if (!key_is_right(key, key_length))
		return client_bad_key(client, key_length);
	if (delta > -STORE_CELL_STEP && delta < STORE_CELL_STEP)
		status = count_one_sided(client, key, key_length, &work, &before);
	if (status == KV_AGAIN)
		return ask(client, KV_OP_ADD, key, key_length, 0, (uint64_t)delta, sum);
	if (status != KV_OK)
		return status;
	if (store_cell_is_large(before))
		locations_forget(&client->locations, client_hash(key, key_length));
	/* No overflow: `before` is a cell's number, and delta a small step. */
	if (sum)
		*sum = before + delta;
	return KV_OK;
}

int kv_client_fetch_add(kv_client_t *client, const void *key, size_t key_length, int64_t delta,
			int64_t *before)
{
	int64_t sum;
	int status = kv_client_incr(client, key, key_length, delta, &sum);

	if (status == KV_OK && before)
		*before = (int64_t)((uint64_t)sum - (uint64_t)delta); /* whatever the server says */
	return status;
}

int kv_client_counter_cas(kv_client_t *client, const void *key, size_t key_length, int64_t expected,
			  int64_t desired, int64_t *found)
{
	struct rmr_work work = {.op = RMR_OP_COMPARE_SWAP,
				.compare = (uint64_t)expected,
				.operand = (uint64_t)desired};
	int status = KV_AGAIN;
	int64_t before;

	if (!client)
		return KV_INVALID;
	if (!key_is_right(key, key_length))
		return client_bad_key(client, key_length);
	if (!store_cell_is_large(expected) && !store_cell_is_large(desired))
		status = count_one_sided(client, key, key_length, &work, &before);
	if (status == KV_AGAIN)
		return ask(client, KV_OP_SWAP, key, key_length, (uint64_t)expected,
			   (uint64_t)desired, found);
	if (status != KV_OK)
		return status;
	if (found)
		*found = before;
	return client_ended(client, before == expected ? KV_OK : KV_CAS_FAILED);
}
