/*
 * Redis, by hiredis on a Unix socket. Submitted commands are appended to its output buffer, and
 * answered in order: that is Redis' pipelining.
 */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

#define NUMBER_MAX 24
#define WORDS_MAX  6

struct redis_store {
	struct store store;
	redisContext *context;
	redisReply *reply; /* holds the value that was given last; freed at the next call */
	redisReply *replies[BENCH_WINDOW_MAX]; /* the same for a poll */
	int reply_count;
	char cursor[NUMBER_MAX]; /* of the last scan */
	/* What was submitted, oldest first, in a ring. */
	uint64_t cookies[BENCH_WINDOW_MAX];
	unsigned first, flying;
};

/* A command, word by word. */
struct words {
	int count;
	const char *words[WORDS_MAX];
	size_t lengths[WORDS_MAX];
};

static struct redis_store *redis_of(struct store *store)
{
	return (struct redis_store *)store;
}

static void drop_replies(struct redis_store *redis)
{
	if (redis->reply)
		freeReplyObject(redis->reply);
	redis->reply = NULL;
	while (redis->reply_count)
		freeReplyObject(redis->replies[--redis->reply_count]);
}

static void close_redis(struct store *store)
{
	struct redis_store *redis = redis_of(store);

	drop_replies(redis);
	if (redis->context)
		redisFree(redis->context);
	free(redis);
}

static struct store *open_redis(const struct config *config, const struct contestant *contestant,
				char error[STORE_ERROR_MAX])
{
	struct timeval timeout = {config->options.timeout_ms / 1000,
				  config->options.timeout_ms % 1000 * 1000};
	struct redis_store *redis = calloc(1, sizeof(*redis));

	snprintf(error, STORE_ERROR_MAX, "no memory for a client of Redis");
	if (!redis)
		return NULL;
	strcpy(redis->cursor, "0");
	redis->context = redisConnectUnixWithTimeout(contestant->address, timeout);
	if (redis->context && !redis->context->err &&
	    redisSetTimeout(redis->context, timeout) == REDIS_OK)
		return &redis->store;
	if (redis->context)
		snprintf(error, STORE_ERROR_MAX, "connect to Redis: %s", redis->context->errstr);
	close_redis(&redis->store);
	return NULL;
}

static const char *transport_of(struct store *store)
{
	(void)store;
	return "unix";
}

static void add_word(struct words *words, const void *word, size_t length)
{
	words->words[words->count] = word;
	words->lengths[words->count++] = length;
}

static struct words get_words(const struct store *store, const uint8_t *key)
{
	struct words words = {0};

	add_word(&words, "GET", 3);
	add_word(&words, key, store->key_size);
	return words;
}

static struct words put_words(const struct store *store, const uint8_t *key, const uint8_t *value,
			      size_t length, uint64_t ttl_ms, char number[NUMBER_MAX])
{
	struct words words = {0};

	add_word(&words, "SET", 3);
	add_word(&words, key, store->key_size);
	add_word(&words, value, length);
	if (ttl_ms) {
		int digits = snprintf(number, NUMBER_MAX, "%llu", (unsigned long long)ttl_ms);

		add_word(&words, "PX", 2);
		add_word(&words, number, (size_t)digits);
	}
	return words;
}

static int connection_lost(struct redis_store *redis)
{
	bool is_late = redis->context->err == REDIS_ERR_IO && errno == EAGAIN;

	return store_fail(&redis->store, is_late ? KV_TIMEOUT : KV_DISCONNECTED,
			  redis->context->errstr);
}

static int status_of(struct redis_store *redis, const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_NIL)
		return KV_NOT_FOUND;
	if (reply->type != REDIS_REPLY_ERROR)
		return KV_OK;
	return store_fail(&redis->store, strncmp(reply->str, "OOM", 3) ? KV_INTERNAL : KV_NO_MEMORY,
			  reply->str);
}

/* One command and its reply, which stays in redis->reply. */
static int run(struct redis_store *redis, struct words *words)
{
	drop_replies(redis);
	redis->reply = redisCommandArgv(redis->context, words->count, words->words, words->lengths);
	return redis->reply ? status_of(redis, redis->reply) : connection_lost(redis);
}

static int get_value(struct store *store, const uint8_t *key, uint8_t *room, const uint8_t **value,
		     size_t *length)
{
	struct redis_store *redis = redis_of(store);
	struct words words = get_words(store, key);
	int status = run(redis, &words);

	(void)room;
	if (status == KV_OK) {
		*value = (const uint8_t *)redis->reply->str;
		*length = redis->reply->len;
	}
	return status;
}

static int put_value(struct store *store, const uint8_t *key, const uint8_t *value, size_t length,
		     uint64_t ttl_ms)
{
	char number[NUMBER_MAX];
	struct words words = put_words(store, key, value, length, ttl_ms, number);

	return run(redis_of(store), &words);
}

/* The values of the keys that a SCAN answered. */
static int get_scanned(struct redis_store *redis, const redisReply *keys, uint64_t *bytes)
{
	const char *words[BENCH_SCAN_MAX * 4 + 1] = {"MGET"};
	size_t lengths[BENCH_SCAN_MAX * 4 + 1] = {4};
	redisReply *reply;
	int count = 1, status;

	for (size_t i = 0; i < keys->elements && count <= BENCH_SCAN_MAX * 4; i++) {
		words[count] = keys->element[i]->str;
		lengths[count++] = keys->element[i]->len;
	}
	if (count == 1)
		return KV_OK;
	reply = redisCommandArgv(redis->context, count, words, lengths);
	if (!reply)
		return connection_lost(redis);
	status = status_of(redis, reply);
	for (size_t i = 0; status == KV_OK && i < reply->elements; i++)
		if (reply->element[i]->type == REDIS_REPLY_STRING)
			*bytes += reply->element[i]->len;
	freeReplyObject(reply);
	return status;
}

static int scan_some(struct store *store, unsigned count, uint64_t *bytes)
{
	struct redis_store *redis = redis_of(store);
	struct words words = {0};
	char number[NUMBER_MAX];
	int digits = snprintf(number, sizeof(number), "%u", count), status;
	const redisReply *reply;

	add_word(&words, "SCAN", 4);
	add_word(&words, redis->cursor, strlen(redis->cursor));
	add_word(&words, "COUNT", 5);
	add_word(&words, number, (size_t)digits);
	status = run(redis, &words);
	if (status != KV_OK)
		return status;
	reply = redis->reply;
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
	    reply->element[0]->len >= NUMBER_MAX)
		return store_fail(store, KV_PROTOCOL, "an answer to SCAN of another shape");
	strcpy(redis->cursor, reply->element[0]->str);
	return get_scanned(redis, reply->element[1], bytes);
}

static int submit(struct redis_store *redis, struct words *words, uint64_t cookie)
{
	if (redis->flying == BENCH_WINDOW_MAX)
		return KV_AGAIN;
	if (redisAppendCommandArgv(redis->context, words->count, words->words, words->lengths) !=
	    REDIS_OK)
		return connection_lost(redis);
	redis->cookies[(redis->first + redis->flying++) % BENCH_WINDOW_MAX] = cookie;
	return KV_OK;
}

static int submit_get(struct store *store, const uint8_t *key, uint8_t *room, uint64_t cookie)
{
	struct words words = get_words(store, key);

	(void)room;
	return submit(redis_of(store), &words, cookie);
}

static int submit_put(struct store *store, const uint8_t *key, const uint8_t *value, size_t length,
		      uint64_t ttl_ms, uint64_t cookie)
{
	char number[NUMBER_MAX];
	struct words words = put_words(store, key, value, length, ttl_ms, number);

	return submit(redis_of(store), &words, cookie);
}

/* Waits for the first reply as long as the socket's timeout is, whatever timeout_ms says: whoever
 * asked for less waits for an answer that is on its way. Then takes what has come with it. */
static int poll_answers(struct store *store, struct done *done, int max, int timeout_ms)
{
	struct redis_store *redis = redis_of(store);
	int count = 0;

	(void)timeout_ms;
	drop_replies(redis);
	while (count < max && redis->flying) {
		void *reply = NULL;
		int got = count ? redisGetReplyFromReader(redis->context, &reply)
				: redisGetReply(redis->context, &reply);

		if (got != REDIS_OK)
			return connection_lost(redis);
		if (!reply)
			break;
		redis->replies[redis->reply_count++] = reply;
		done[count++] = (struct done){
			.cookie = redis->cookies[redis->first],
			.status = status_of(redis, reply),
			.value = (const uint8_t *)((redisReply *)reply)->str,
			.length = ((redisReply *)reply)->len,
		};
		redis->first = (redis->first + 1) % BENCH_WINDOW_MAX;
		redis->flying--;
	}
	return count;
}

const struct store_ops store_redis_ops = {
	.provider = "unix",
	.open = open_redis,
	.close = close_redis,
	.transport = transport_of,
	.get = get_value,
	.put = put_value,
	.scan = scan_some,
	.submit_get = submit_get,
	.submit_put = submit_put,
	.poll = poll_answers,
};
