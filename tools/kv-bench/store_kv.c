/*
 * Our own store, by kv.h.
 *
 * The library tells the path of a call that was not submitted, but of those that were it only
 * counts the paths. So the counts are looked at after every poll: what was added is given to the
 * answers that came, gets from the paths of gets and puts from those of puts. Within one poll two
 * gets by different paths may be mistaken for each other; the numbers of each path are right.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/flag_words.h"
#include "store.h"

#define POLL_MAX   64
#define COOKIE_PUT (UINT64_C(1) << 63) /* marks the cookies of puts */

struct kv_store {
	struct store store;
	kv_client_t *client;
	kv_client_totals_t counted;   /* when the paths were last given out */
	uint64_t owed[KV_PATH_COUNT]; /* paths that no answer was given yet */
	unsigned flying;	      /* submitted, not answered */
	const uint8_t **rooms;	      /* of gets under way, by cookie */
	/* Scans. */
	uint64_t cursor;
	unsigned wanted, found;
	uint8_t scan_keys[BENCH_SCAN_MAX][KEY_SIZE_MAX];
	const void *keys[BENCH_SCAN_MAX];
	size_t key_lengths[BENCH_SCAN_MAX], lengths[BENCH_SCAN_MAX];
	void *values[BENCH_SCAN_MAX];
	int statuses[BENCH_SCAN_MAX];
	size_t value_max;   /* of all sizes that are measured */
	uint8_t *scan_room; /* BENCH_SCAN_MAX values; NULL until the first scan */
};

static struct kv_store *kv_of(struct store *store)
{
	return (struct kv_store *)store;
}

static int result_of(struct kv_store *kv, int status)
{
	if (status < 0 && status != KV_NOT_FOUND)
		store_fail(&kv->store, status, flag_words(kv_client_error(kv->client)));
	return status;
}

static void close_client(struct store *store)
{
	struct kv_store *kv = kv_of(store);

	kv_client_destroy(kv->client);
	free(kv->scan_room);
	free((void *)kv->rooms);
	free(kv);
}

static struct store *open_client(const struct config *config, const struct contestant *contestant,
				 char error[STORE_ERROR_MAX])
{
	const char *url = *contestant->address ? contestant->address : NULL;
	struct kv_store *kv = calloc(1, sizeof(*kv));
	int status = KV_INTERNAL;

	snprintf(error, STORE_ERROR_MAX, "no memory for a client");
	if (!kv)
		return NULL;
	kv->value_max = config_largest_value(config);
	kv->rooms = calloc(BENCH_WINDOW_MAX, sizeof(kv->rooms[0]));
	kv->client = kv_client_create_with(CONN_MODE_AUTO, &config->options);
	if (kv->client && kv->rooms) {
		status = kv_client_connect(kv->client, url, config->port);
		snprintf(error, STORE_ERROR_MAX, "connect: %s: %s", kv_strerror(status),
			 flag_words(kv_client_error(kv->client)));
	}
	if (status == KV_OK)
		return &kv->store;
	close_client(&kv->store);
	return NULL;
}

static const char *transport_of(struct store *store)
{
	return flag_words(kv_client_transport(kv_of(store)->client));
}

static kv_client_t *client_behind(struct store *store)
{
	return kv_of(store)->client;
}

static int get_value(struct store *store, const uint8_t *key, uint8_t *room, const uint8_t **value,
		     size_t *length)
{
	struct kv_store *kv = kv_of(store);
	int status;

	*length = store->value_size;
	status = kv_client_get(kv->client, key, store->key_size, room, length);
	store->path = kv_client_last_path(kv->client);
	*value = room;
	return result_of(kv, status);
}

static int put_value(struct store *store, const uint8_t *key, const uint8_t *value, size_t length,
		     uint64_t ttl_ms)
{
	struct kv_store *kv = kv_of(store);
	kv_put_options_t options = {.ttl_ms = ttl_ms};
	int status = kv_client_put_with(kv->client, key, store->key_size, value, length,
					ttl_ms ? &options : NULL, NULL);

	store->path = kv_client_last_path(kv->client);
	return result_of(kv, status);
}

static void note_key(void *context, const void *key, size_t key_length, const kv_info_t *info)
{
	struct kv_store *kv = context;

	(void)info;
	if (kv->found >= kv->wanted || key_length > KEY_SIZE_MAX)
		return;
	memcpy(kv->scan_keys[kv->found], key, key_length);
	kv->keys[kv->found] = kv->scan_keys[kv->found];
	kv->key_lengths[kv->found++] = key_length;
}

/* Values of strangers may be longer than ours: those are left out. */
static int scan_some(struct store *store, unsigned count, uint64_t *bytes)
{
	struct kv_store *kv = kv_of(store);
	int status;

	if (!kv->scan_room)
		kv->scan_room = malloc(BENCH_SCAN_MAX * kv->value_max);
	if (!kv->scan_room)
		return store_fail(store, KV_NO_MEMORY, "no memory for the values of a scan");
	kv->found = 0;
	kv->wanted = count;
	status = kv_client_scan(kv->client, &kv->cursor, count, note_key, kv);
	if (status != KV_OK)
		return result_of(kv, status);
	for (unsigned i = 0; i < kv->found; i++) {
		kv->values[i] = kv->scan_room + i * store->value_size;
		kv->lengths[i] = store->value_size;
	}
	status = kv_client_batch_get(kv->client, kv->found, kv->keys, kv->key_lengths, kv->values,
				     kv->lengths, kv->statuses);
	store->path = kv_client_last_path(kv->client);
	for (unsigned i = 0; status == KV_OK && i < kv->found; i++)
		if (kv->statuses[i] == KV_OK)
			*bytes += kv->lengths[i];
	return result_of(kv, status);
}

static int submitted(struct kv_store *kv, int status)
{
	kv->flying += status == KV_OK;
	return result_of(kv, status);
}

/* Calls that were not submitted are counted by the library, too: they are left out here. */
static void begin_to_count(struct kv_store *kv)
{
	if (kv->flying)
		return;
	kv_client_get_totals(kv->client, &kv->counted);
	memset(kv->owed, 0, sizeof(kv->owed));
}

static int submit_get(struct store *store, const uint8_t *key, uint8_t *room, uint64_t cookie)
{
	struct kv_store *kv = kv_of(store);

	begin_to_count(kv);
	kv->rooms[cookie] = room;
	return submitted(kv, kv_client_submit_get(kv->client, key, store->key_size, room,
						  store->value_size, cookie));
}

static int submit_put(struct store *store, const uint8_t *key, const uint8_t *value, size_t length,
		      uint64_t ttl_ms, uint64_t cookie)
{
	struct kv_store *kv = kv_of(store);
	kv_put_options_t options = {.ttl_ms = ttl_ms};

	begin_to_count(kv);
	return submitted(kv, kv_client_submit_put(kv->client, key, store->key_size, value, length,
						  ttl_ms ? &options : NULL, cookie | COOKIE_PUT));
}

/* A path that nobody was given yet, of those that such an operation can take. */
static kv_path_t take_path(struct kv_store *kv, bool is_put)
{
	static const kv_path_t of_gets[] = {KV_PATH_MAPPED, KV_PATH_LOCATION, KV_PATH_INDEX,
					    KV_PATH_INLINE, KV_PATH_PUSH,     KV_PATH_RENDEZVOUS};
	static const kv_path_t of_puts[] = {KV_PATH_EAGER, KV_PATH_LANDING, KV_PATH_RENDEZVOUS};
	const kv_path_t *paths = is_put ? of_puts : of_gets;
	size_t count = is_put ? sizeof(of_puts) / sizeof(of_puts[0])
			      : sizeof(of_gets) / sizeof(of_gets[0]);

	for (size_t i = 0; i < count; i++) {
		if (!kv->owed[paths[i]])
			continue;
		kv->owed[paths[i]]--;
		return paths[i];
	}
	return KV_PATH_NONE;
}

static void count_paths(struct kv_store *kv)
{
	kv_client_totals_t now;

	kv_client_get_totals(kv->client, &now);
	for (int path = 0; path < KV_PATH_COUNT; path++)
		kv->owed[path] += now.operations[path] - kv->counted.operations[path];
	kv->counted = now;
}

static int poll_answers(struct store *store, struct done *done, int max, int timeout_ms)
{
	struct kv_store *kv = kv_of(store);
	kv_result_t results[POLL_MAX];
	int count =
		kv_client_poll(kv->client, results, max < POLL_MAX ? max : POLL_MAX, timeout_ms);

	if (count <= 0)
		return result_of(kv, count);
	kv->flying -= (unsigned)count;
	count_paths(kv);
	for (int i = 0; i < count; i++) {
		bool is_put = results[i].cookie & COOKIE_PUT;

		done[i] = (struct done){
			.cookie = results[i].cookie & ~COOKIE_PUT,
			.status = results[i].status,
			.length = results[i].length,
			.path = take_path(kv, is_put),
		};
		if (!is_put)
			done[i].value = kv->rooms[done[i].cookie];
		result_of(kv, results[i].status);
	}
	return count;
}

/* Takes at least one answer. A key that is not there is as good as deleted. */
static int poll_removed(struct kv_store *kv, size_t *flying)
{
	kv_result_t results[POLL_MAX];
	int count = kv_client_poll(kv->client, results, POLL_MAX, -1);

	if (count <= 0)
		return count < 0 ? count : KV_TIMEOUT;
	*flying -= (size_t)count;
	for (int i = 0; i < count; i++)
		if (results[i].status != KV_OK && results[i].status != KV_NOT_FOUND)
			return results[i].status;
	return KV_OK;
}

static int remove_keys(struct store *store, const struct block *block, size_t count)
{
	struct kv_store *kv = kv_of(store);
	int status = KV_OK;
	size_t flying = 0;

	for (size_t i = 0; status == KV_OK && i < count;) {
		status = kv_client_submit_delete(kv->client, block_key(block, i), store->key_size,
						 i);
		if (status == KV_OK) {
			flying++;
			i++;
		} else if (status == KV_AGAIN) {
			status = poll_removed(kv, &flying);
		}
	}
	while (status == KV_OK && flying)
		status = poll_removed(kv, &flying);
	return result_of(kv, status);
}

const struct store_ops store_kv_ops = {
	.provider = "",
	.open = open_client,
	.close = close_client,
	.transport = transport_of,
	.client = client_behind,
	.get = get_value,
	.put = put_value,
	.scan = scan_some,
	.remove = remove_keys,
	.submit_get = submit_get,
	.submit_put = submit_put,
	.poll = poll_answers,
};
