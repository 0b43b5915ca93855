/* Which stores there are: see store.h. Redis and memcached are there when their libraries are. */
#include "store.h"

#include <stdio.h>

const char *const store_names[] = {
	[STORE_KV] = "remora",
	[STORE_REDIS] = "redis",
	[STORE_MEMCACHED] = "memcached",
	[STORE_COUNT] = NULL,
};

const struct store_ops *store_ops_of(enum store_kind kind)
{
	static const struct store_ops *const all[STORE_COUNT] = {
		[STORE_KV] = &store_kv_ops,
#ifdef KV_BENCH_HAVE_REDIS
		[STORE_REDIS] = &store_redis_ops,
#endif
#ifdef KV_BENCH_HAVE_MEMCACHED
		[STORE_MEMCACHED] = &store_memcached_ops,
#endif
	};

	return all[kind];
}

const char *store_advice(enum store_kind kind)
{
	static const char *const advice[STORE_COUNT] = {
		[STORE_KV] = "",
		[STORE_REDIS] = "apt-get install libhiredis-dev",
		[STORE_MEMCACHED] = "apt-get install libmemcached-dev",
	};

	return advice[kind];
}

int store_fail(struct store *store, int status, const char *text)
{
	snprintf(store->error, sizeof(store->error), "%s", text && *text ? text : "no words");
	return status;
}
