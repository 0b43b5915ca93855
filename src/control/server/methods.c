/*
 * The table of all methods. It is short, and looked through for each call: the length of the path
 * tells most of them apart before a letter is compared.
 */
#include <string.h>

#include "control/proto/grpc/health/v1/health.pb-c.h"
#include "control/proto/grpc/reflection/v1/reflection.pb-c.h"
#include "control/server/internal.h"
#include "kv/protocol.h"

#define KV(name, message, function, need, figure)                                                  \
	KV_METHOD(name, message, function, need, figure, false)
#define KV_METHOD(name, message, function, need, figure, streams)                                  \
	{                                                                                          \
		.path = "/kv_cache.KvCacheService/" name,                                          \
		.length = sizeof("/kv_cache.KvCacheService/" name) - 1,                            \
		.request = &kv_cache__##message##_request__descriptor, .run = (function),          \
		.needs = (need), .takes_stream = (streams), .op = (figure)                         \
	}
#define OTHER(name, descriptor, function, streams)                                                 \
	{                                                                                          \
		.path = (name), .length = sizeof(name) - 1, .request = &(descriptor),              \
		.run = (function), .needs = NEEDS_NOTHING, .takes_stream = (streams)               \
	}

const struct rpc_method rpc_methods[] = {
	KV("Get", get, method_get, NEEDS_READ, KV_OP_GET),
	KV("Put", put, method_put, NEEDS_WRITE, KV_OP_PUT),
	KV("Delete", delete, method_delete, NEEDS_WRITE, KV_OP_DELETE),
	KV("Cas", cas, method_cas, NEEDS_WRITE, KV_OP_PUT),
	KV("Touch", touch, method_touch, NEEDS_WRITE, KV_OP_EXPIRE),
	KV("Stats", stats, method_stats, NEEDS_READ, KV_OP_STATS),
	KV("GetStream", get_stream, method_get_stream, NEEDS_READ, KV_OP_GET),
	KV_METHOD("PutStream", put_stream, method_put_stream, NEEDS_WRITE, KV_OP_PUT, true),
	KV("Scan", scan, method_scan, NEEDS_READ, KV_OP_SCAN),
	KV("RegisterClient", register_client, method_register, NEEDS_READ, 0),
	KV("Heartbeat", heartbeat, method_heartbeat, NEEDS_READ, KV_OP_PING),
	OTHER("/grpc.health.v1.Health/Check", grpc__health__v1__health_check_request__descriptor,
	      method_health_check, false),
	OTHER("/grpc.health.v1.Health/Watch", grpc__health__v1__health_check_request__descriptor,
	      method_health_watch, false),
	OTHER("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
	      grpc__reflection__v1__server_reflection_request__descriptor, method_reflect, true),
	OTHER("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
	      grpc__reflection__v1__server_reflection_request__descriptor, method_reflect, true),
};

const unsigned rpc_method_count = sizeof(rpc_methods) / sizeof(rpc_methods[0]);

_Static_assert(sizeof(rpc_methods) / sizeof(rpc_methods[0]) <= METHODS_MAX, "figures has room");

const struct rpc_method *rpc_method_find(const uint8_t *path, size_t length)
{
	for (unsigned i = 0; i < rpc_method_count; i++) {
		if (rpc_methods[i].length == length &&
		    memcmp(rpc_methods[i].path, path, length) == 0)
			return &rpc_methods[i];
	}
	return NULL;
}

unsigned rpc_method_number(const struct rpc_method *method)
{
	return (unsigned)(method - rpc_methods);
}
