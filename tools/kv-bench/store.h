/*
 * A store that a mix of operations is driven against: ours, by its own protocol or by gRPC, Redis
 * or memcached, each by its own C library.
 *
 * All calls answer with a status of kv.h, whatever the store calls it. A store belongs to one
 * thread. What get gives as a value is valid until the next call, and what poll gives until the
 * next poll: it is wherever the library puts it, so nobody pays for a copy that he does not need.
 *
 * Those of others are modules, loaded when they are asked for: who never compares needs none of
 * their libraries. A module uses nothing of the program but this header.
 */
#ifndef KV_BENCH_STORE_H
#define KV_BENCH_STORE_H

#include <stdio.h>

#include "bench.h"

#define STORE_ERROR_MAX 256

struct store {
	const struct store_ops *ops;
	size_t key_size;
	size_t value_size;	     /* most that is got; the room of a get has as many bytes */
	kv_path_t path;		     /* of the last call that was not submitted */
	char error[STORE_ERROR_MAX]; /* what happened to the last call that failed */
};

/* An operation that was submitted, and is answered. */
struct done {
	uint64_t cookie;
	int status;
	kv_path_t path;
	const uint8_t *value; /* get */
	size_t length;
};

struct store_ops {
	const char *provider; /* "": the transport tells */
	/* Connects. NULL: error tells why. */
	struct store *(*open)(const struct config *config, const struct contestant *contestant,
			      char error[STORE_ERROR_MAX]);
	void (*close)(struct store *store);
	/* How it is connected, in words. */
	const char *(*transport)(struct store *store);
	/* The client of kv.h behind it; NULL: none. */
	kv_client_t *(*client)(struct store *store);

	int (*get)(struct store *store, const uint8_t *key, uint8_t *room, const uint8_t **value,
		   size_t *length);
	int (*put)(struct store *store, const uint8_t *key, const uint8_t *value, size_t length,
		   uint64_t ttl_ms);
	/* Up to `count` keys and their values, from where the last scan ended. *bytes: of the
	 * values. NULL: the store has no scan. */
	int (*scan)(struct store *store, unsigned count, uint64_t *bytes);

	/* Deletes the first `count` keys of a block, if they are there. NULL: the store is never
	 * anybody else's. */
	int (*remove)(struct store *store, const struct block *block, size_t count);

	/* NULL, and so are the next two: there is one call at a time. KV_AGAIN: poll first. The key
	 * and the value of a put are the caller's again at once; the room of a get when it was
	 * polled. */
	int (*submit_get)(struct store *store, const uint8_t *key, uint8_t *room, uint64_t cookie);
	int (*submit_put)(struct store *store, const uint8_t *key, const uint8_t *value,
			  size_t length, uint64_t ttl_ms, uint64_t cookie);
	/* Sends what was submitted, and waits for the first answer up to timeout_ms (negative: the
	 * timeout of the store). Returns how many, or a negative status. */
	int (*poll)(struct store *store, struct done *done, int max, int timeout_ms);
};

/* Each in a file of its own; the last two are found in their modules by these names. */
extern const struct store_ops store_kv_ops, store_grpc_ops, store_redis_ops, store_memcached_ops;

/* store.c. Loads the module if need be. NULL: it cannot be had, and a message tells what to do. */
const struct store_ops *store_ops_of(enum store_kind kind);

/* Notes what went wrong, and passes the status on. */
static inline int store_fail(struct store *store, int status, const char *text)
{
	snprintf(store->error, sizeof(store->error), "%s", text && *text ? text : "no words");
	return status;
}

#endif
