/*
 * memcached, by libmemcached on a Unix socket.
 *
 * The library has no requests in flight that could be polled for. What it has is used: gets that
 * were submitted wait for the poll and go out as one multi-get; puts are made at once, one by one,
 * and their answers handed out by the poll.
 */
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

struct waiting {
	uint64_t cookie;
	bool is_put, is_answered;
	int status;
	char *value; /* of a get, copied by us: the library reuses its own */
	size_t length;
};

struct memcached_store {
	struct store store;
	memcached_st *client;
	char *value; /* that was given last */
	/* Submitted, in the order of their submission. */
	struct waiting waiting[BENCH_WINDOW_MAX];
	uint8_t waiting_keys[BENCH_WINDOW_MAX][KEY_SIZE_MAX];
	unsigned waiting_count;
	char *held[BENCH_WINDOW_MAX]; /* values that may still be looked at */
	unsigned held_count;
	unsigned given; /* of those, answered and given to the caller by the last polls */
	memcached_result_st result;
	bool has_result;
};

static struct memcached_store *memcached_of(struct store *store)
{
	return (struct memcached_store *)store;
}

/* What was given before the last call. */
static void drop_values(struct memcached_store *memcached)
{
	free(memcached->value);
	memcached->value = NULL;
	while (memcached->held_count)
		free(memcached->held[--memcached->held_count]);
}

/* When all answers were taken, begins anew. Their values are still looked at: submitting is part of
 * that. They stay until the next poll. */
static void begin_anew(struct memcached_store *memcached)
{
	if (memcached->given < memcached->waiting_count)
		return;
	for (unsigned i = 0; i < memcached->waiting_count; i++)
		if (memcached->waiting[i].value)
			memcached->held[memcached->held_count++] = memcached->waiting[i].value;
	memcached->waiting_count = memcached->given = 0;
}

static void close_memcached(struct store *store)
{
	struct memcached_store *memcached = memcached_of(store);

	memcached->given = memcached->waiting_count;
	drop_values(memcached);
	begin_anew(memcached);
	drop_values(memcached);
	if (memcached->has_result)
		memcached_result_free(&memcached->result);
	memcached_free(memcached->client);
	free(memcached);
}

static struct store *open_memcached(const struct config *config,
				    const struct contestant *contestant,
				    char error[STORE_ERROR_MAX])
{
	struct memcached_store *memcached = calloc(1, sizeof(*memcached));
	memcached_return_t got;

	snprintf(error, STORE_ERROR_MAX, "no memory for a client of memcached");
	if (memcached)
		memcached->client = memcached_create(NULL);
	if (!memcached || !memcached->client) {
		free(memcached);
		return NULL;
	}
	got = memcached_server_add_unix_socket(memcached->client, contestant->address);
	if (got == MEMCACHED_SUCCESS)
		got = memcached_behavior_set(memcached->client, MEMCACHED_BEHAVIOR_POLL_TIMEOUT,
					     (uint64_t)config->options.timeout_ms);
	if (got == MEMCACHED_SUCCESS)
		got = memcached_version(memcached->client);
	if (got == MEMCACHED_SUCCESS) {
		memcached->has_result =
			memcached_result_create(memcached->client, &memcached->result);
		return &memcached->store;
	}
	snprintf(error, STORE_ERROR_MAX, "connect to memcached: %s",
		 memcached_strerror(memcached->client, got));
	close_memcached(&memcached->store);
	return NULL;
}

static const char *transport_of(struct store *store)
{
	(void)store;
	return "unix";
}

static int status_of(struct memcached_store *memcached, memcached_return_t got)
{
	int status;

	switch (got) {
	case MEMCACHED_SUCCESS:
	case MEMCACHED_STORED:
	case MEMCACHED_BUFFERED:
		return KV_OK;
	case MEMCACHED_NOTFOUND:
		return KV_NOT_FOUND;
	case MEMCACHED_TIMEOUT:
		status = KV_TIMEOUT;
		break;
	case MEMCACHED_E2BIG:
		status = KV_VALUE_TOO_LONG;
		break;
	case MEMCACHED_SERVER_MEMORY_ALLOCATION_FAILURE:
		status = KV_NO_MEMORY;
		break;
	case MEMCACHED_CONNECTION_FAILURE:
	case MEMCACHED_SERVER_MARKED_DEAD:
	case MEMCACHED_SERVER_TEMPORARILY_DISABLED:
		status = KV_DISCONNECTED;
		break;
	default:
		status = KV_INTERNAL;
	}
	return store_fail(&memcached->store, status, memcached_strerror(memcached->client, got));
}

static int get_value(struct store *store, const uint8_t *key, uint8_t *room, const uint8_t **value,
		     size_t *length)
{
	struct memcached_store *memcached = memcached_of(store);
	memcached_return_t got;
	uint32_t flags;

	(void)room;
	drop_values(memcached);
	memcached->value = memcached_get(memcached->client, (const char *)key, store->key_size,
					 length, &flags, &got);
	*value = (const uint8_t *)memcached->value;
	return status_of(memcached, got);
}

/* It counts the time to live in seconds: rounded up. */
static int put_value(struct store *store, const uint8_t *key, const uint8_t *value, size_t length,
		     uint64_t ttl_ms)
{
	struct memcached_store *memcached = memcached_of(store);

	return status_of(memcached, memcached_set(memcached->client, (const char *)key,
						  store->key_size, (const char *)value, length,
						  (time_t)((ttl_ms + 999) / 1000), 0));
}

/* Once an answer was given, all must be taken before more is submitted. */
static bool is_full(const struct memcached_store *memcached)
{
	return memcached->given || memcached->waiting_count == BENCH_WINDOW_MAX;
}

static int submit_get(struct store *store, const uint8_t *key, uint8_t *room, uint64_t cookie)
{
	struct memcached_store *memcached = memcached_of(store);

	(void)room;
	begin_anew(memcached);
	if (is_full(memcached))
		return KV_AGAIN;
	memcpy(memcached->waiting_keys[memcached->waiting_count], key, store->key_size);
	memcached->waiting[memcached->waiting_count++] =
		(struct waiting){.cookie = cookie, .status = KV_NOT_FOUND};
	return KV_OK;
}

static int submit_put(struct store *store, const uint8_t *key, const uint8_t *value, size_t length,
		      uint64_t ttl_ms, uint64_t cookie)
{
	struct memcached_store *memcached = memcached_of(store);

	begin_anew(memcached);
	if (is_full(memcached))
		return KV_AGAIN;
	memcached->waiting[memcached->waiting_count++] =
		(struct waiting){.cookie = cookie,
				 .is_put = true,
				 .is_answered = true,
				 .status = put_value(store, key, value, length, ttl_ms)};
	return KV_OK;
}

/* Gives a result to the first get of this key that has none; the same key may be asked twice. */
static void hand_out(struct memcached_store *memcached)
{
	memcached_result_st *result = &memcached->result;
	size_t length = memcached_result_key_length(result);

	for (unsigned i = 0; i < memcached->waiting_count; i++) {
		struct waiting *get = &memcached->waiting[i];

		if (get->is_answered || length != memcached->store.key_size ||
		    memcmp(memcached->waiting_keys[i], memcached_result_key_value(result), length))
			continue;
		get->is_answered = true;
		get->status = KV_OK;
		get->length = memcached_result_length(result);
		get->value = memcached_result_take_value(result);
		return;
	}
}

/* All gets that wait, at once. */
static int get_waiting(struct memcached_store *memcached)
{
	const char *keys[BENCH_WINDOW_MAX];
	size_t lengths[BENCH_WINDOW_MAX], count = 0;
	memcached_return_t got;

	for (unsigned i = 0; i < memcached->waiting_count; i++) {
		if (memcached->waiting[i].is_answered)
			continue;
		keys[count] = (const char *)memcached->waiting_keys[i];
		lengths[count++] = memcached->store.key_size;
	}
	if (!count)
		return KV_OK;
	got = memcached_mget(memcached->client, keys, lengths, count);
	if (got != MEMCACHED_SUCCESS)
		return status_of(memcached, got);
	while (memcached_fetch_result(memcached->client, &memcached->result, &got))
		hand_out(memcached);
	return got == MEMCACHED_END || got == MEMCACHED_NOTFOUND ? KV_OK
								 : status_of(memcached, got);
}

static int poll_answers(struct store *store, struct done *done, int max, int timeout_ms)
{
	struct memcached_store *memcached = memcached_of(store);
	int count = 0, status = KV_OK;

	(void)timeout_ms;
	drop_values(memcached);
	begin_anew(memcached);
	if (!memcached->given)
		status = get_waiting(memcached);
	if (status != KV_OK)
		return status;
	while (count < max && memcached->given < memcached->waiting_count) {
		struct waiting *one = &memcached->waiting[memcached->given++];

		done[count++] = (struct done){.cookie = one->cookie,
					      .status = one->status,
					      .value = (const uint8_t *)one->value,
					      .length = one->length};
	}
	return count;
}

const struct store_ops store_memcached_ops = {
	.provider = "unix",
	.open = open_memcached,
	.close = close_memcached,
	.transport = transport_of,
	.get = get_value,
	.put = put_value,
	.submit_get = submit_get,
	.submit_put = submit_put,
	.poll = poll_answers,
};
