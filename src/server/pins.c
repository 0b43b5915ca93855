/*
 * Pins: items that a client looks at in place, which keep their memory until it says that it has
 * done, or is gone. A handle is a place in the session's table and that place's generation, so
 * that one that was given back means nothing any more.
 *
 * What is pinned is bounded, for each client and for all. When a pin is refused for want of memory,
 * clients by the network that hold views and have been silent for long are sent away.
 */
#include <stdlib.h>
#include <string.h>

#include "server/internal.h"

#define FIRST_CAPACITY 16u
/* Times client_timeout_ms: how long a client by the network may be silent with views that others
 * need. A long get is silent while it READs. */
#define PATIENCE 6u

static bool grow(struct session *session)
{
	uint32_t most = session->worker->server->options.max_pins;
	uint32_t capacity = session->pin_capacity ? 2 * session->pin_capacity : FIRST_CAPACITY;
	struct pin *pins;

	if (session->pin_capacity >= most)
		return false;
	if (capacity > most)
		capacity = most;
	pins = realloc(session->pins, capacity * sizeof(*pins));
	if (!pins)
		return false;
	memset(pins + session->pin_capacity, 0, (capacity - session->pin_capacity) * sizeof(*pins));
	session->pins = pins;
	session->pin_capacity = capacity;
	return true;
}

/* A free place. NULL: all that it may have are taken. */
static struct pin *find_free(struct session *session)
{
	if (session->pin_count == session->pin_capacity && !grow(session))
		return NULL;
	/* Mostly the next one is free, as views are given back in the order they were taken or in
	 * the opposite one. */
	for (uint32_t i = 0; i < session->pin_capacity; i++) {
		struct pin *pin = &session->pins[(session->pin_count + i) % session->pin_capacity];

		if (!pin->view.item)
			return pin;
	}
	return NULL;
}

/* Memory that is pinned cannot be used for anything else. So a client may hold views of an eighth
 * of the store, and all clients of a quarter. Each may hold one, however long, as a long get needs
 * it, while less than half of the store is pinned. */
static bool take_bytes(struct session *session, uint64_t length)
{
	struct kv_server *server = session->worker->server;
	uint64_t size = rmr_arena_size(server->arena);
	bool is_first = session->pin_count == 0;
	uint64_t used = atomic_load_explicit(&server->pinned_bytes, memory_order_relaxed);

	if (!is_first && session->pinned_bytes + length > size / 8)
		return false;
	/* Relaxed: only the sum counts. */
	do {
		if (used && used + length > (is_first ? size / 2 : size / 4))
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&server->pinned_bytes, &used, used + length,
							memory_order_relaxed,
							memory_order_relaxed));
	session->pinned_bytes += length;
	return true;
}

static void give_bytes(struct session *session, uint64_t length)
{
	session->pinned_bytes -= length;
	atomic_fetch_sub_explicit(&session->worker->server->pinned_bytes, length,
				  memory_order_relaxed);
}

bool pins_are_overdue(const struct session *session, uint64_t now_ms)
{
	const struct kv_server *server = session->worker->server;
	uint64_t limit_ms = PATIENCE * (uint64_t)server->options.client_timeout_ms;
	uint64_t wanted_ms = atomic_load_explicit(&server->pins_wanted_ms, memory_order_relaxed);

	/* By shm it may be looking at something, which it would lose. */
	if (!session->pin_count || session->queue->path->kind == PATH_SHM || !wanted_ms)
		return false;
	return now_ms < wanted_ms + limit_ms && now_ms > session->last_ms + limit_ms;
}

void operation_pin(struct exchange *exchange)
{
	struct session *session = exchange->session;
	struct pin *pin = find_free(session);
	struct store_view view;
	enum store_status status;

	if (!pin) {
		exchange_fail(exchange, KV_BUSY, "too many views are held");
		return;
	}
	status = store_pin(exchange->store, exchange->key, exchange->view.header.key_length, &view);
	if (status == STORE_OK && view.info.cell != STORE_NO_CELL) {
		/* There is nothing to look at: the number is in its cell. */
		exchange_fail(exchange, KV_UNSUPPORTED, "a counter cannot be viewed; get it");
		exchange_describe(exchange, &view.info);
		store_unpin(exchange->store, &view);
		return;
	}
	exchange->reply->status = (int16_t)exchange_status(status);
	if (status != STORE_OK)
		return;
	if (!take_bytes(session, view.length)) {
		store_unpin(exchange->store, &view);
		/* Relaxed: a hint for the other workers. */
		atomic_store_explicit(&exchange->worker->server->pins_wanted_ms,
				      exchange->worker->now_ms, memory_order_relaxed);
		exchange_fail(exchange, KV_BUSY,
			      "views hold too much of the store's memory: release some");
		return;
	}
	pin->view = view;
	/* Never 0: no handle is. */
	if (++pin->generation == 0)
		pin->generation = 1;
	session->pin_count++;
	counter_add(&exchange->worker->counters.pins, 1);
	exchange->reply->number = (uint64_t)pin->generation << 32 | (uint32_t)(pin - session->pins);
	exchange_describe(exchange, &view.info);
}

void operation_unpin(struct exchange *exchange)
{
	struct session *session = exchange->session;
	uint64_t handle = exchange->view.header.argument;
	uint32_t index = (uint32_t)handle;
	struct pin *pin = index < session->pin_capacity ? &session->pins[index] : NULL;

	if (!pin || !pin->view.item || pin->generation != handle >> 32) {
		exchange_fail(exchange, KV_INVALID, "no such view is held");
		return;
	}
	give_bytes(session, pin->view.length);
	store_unpin(exchange->store, &pin->view);
	session->pin_count--;
	counter_add(&exchange->worker->counters.pins, -1);
}

void pins_release(struct session *session)
{
	for (uint32_t i = 0; i < session->pin_capacity; i++) {
		if (session->pins[i].view.item)
			store_unpin(session->worker->store, &session->pins[i].view);
	}
	counter_add(&session->worker->counters.pins, -(int64_t)session->pin_count);
	give_bytes(session, session->pinned_bytes);
	free(session->pins);
	session->pins = NULL;
	session->pin_capacity = session->pin_count = 0;
}
