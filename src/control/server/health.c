/*
 * grpc.health.v1: whether the server serves. It does from its start to its stop, as a whole; those
 * who watch are told at the start, and when it stops.
 */
#include <string.h>

#include "control/proto/grpc/health/v1/health.pb-c.h"
#include "control/server/internal.h"

static bool is_known(const char *service)
{
	return !service[0] || strcmp(service, "kv_cache.KvCacheService") == 0;
}

static Grpc__Health__V1__HealthCheckResponse__ServingStatus state_of(
	const struct kv_control_server *control)
{
	return control->is_unhealthy
		       ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
		       : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
}

void method_health_check(struct rpc *rpc, const ProtobufCMessage *message)
{
	const Grpc__Health__V1__HealthCheckRequest *request =
		(const Grpc__Health__V1__HealthCheckRequest *)message;
	Grpc__Health__V1__HealthCheckResponse response =
		GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

	if (!is_known(request->service)) {
		rpc_finish(rpc, GRPC_NOT_FOUND, "there is no such service");
		return;
	}
	response.status = state_of(rpc->control);
	rpc_reply(rpc, &response.base, GRPC_OK, "%s", "");
}

/* Nothing more until somebody says so. */
static void wait(struct rpc *rpc, void *context)
{
	(void)rpc;
	(void)context;
}

static void forget(void *context)
{
	list_remove(&((struct rpc *)context)->watch_link);
}

void method_health_watch(struct rpc *rpc, const ProtobufCMessage *message)
{
	const Grpc__Health__V1__HealthCheckRequest *request =
		(const Grpc__Health__V1__HealthCheckRequest *)message;
	Grpc__Health__V1__HealthCheckResponse response =
		GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

	response.status = state_of(rpc->control);
	list_init(&rpc->watch_link);
	if (is_known(request->service))
		list_add_tail(&rpc->control->watchers, &rpc->watch_link);
	else
		response.status =
			GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
	rpc_stream(rpc, wait, forget, rpc);
	(void)rpc_send(rpc, &response.base);
}

void health_tell(struct kv_control_server *control)
{
	Grpc__Health__V1__HealthCheckResponse response =
		GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

	control->is_unhealthy = true;
	response.status = state_of(control);
	list_for_each (at, &control->watchers) {
		struct rpc *rpc = list_entry(at, struct rpc, watch_link);

		if (!rpc->is_finished && rpc_send(rpc, &response.base))
			rpc_finish(rpc, GRPC_UNAVAILABLE, "the server stops");
	}
}
