/*
 * The fault device and what it mostly passes through: regions, remotes, listeners. Here is also
 * the table of the provider's functions.
 *
 * A descriptor is the inner one with our provider's number on it: the inner device knows its own
 * number and puts it back.
 *
 * A remote that maps the peer's memory maps it a second time. The plan may cut a connection, which
 * closes the inner one and all its remotes, but the program's pointer is good until the program
 * closes the remote.
 *
 * Any thread may come here; what changes are atomic counters, and regions with their lock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "fabric/fault/internal.h"

#define PROVIDER_ID 5

/* A silent caller's deadline is known to the inner listener alone; so it is asked that often. */
#define LISTENER_TICK_MS 50

static bool device_entry(unsigned index, struct rmr_device_entry *entry)
{
	(void)index; /* not listed: it is for tests, and exists over every other device */
	(void)entry;
	return false;
}

static enum rmr_status device_init(struct rmr_device *base, const char *instance,
				   const struct rmr_device_options *options)
{
	struct fault_device *device = (struct fault_device *)base;
	const char *text = options->fault_plan ? options->fault_plan : getenv("REMORA_FAULT_PLAN");
	struct rmr_device_info info;
	enum rmr_status status;

	if (!*instance)
		return error_set(RMR_NO_DEVICE, "name the device below: \"fault:shm\"");
	status = fault_plan_parse(text, &device->plan);
	if (status != RMR_OK)
		return status;
	status = rmr_device_open(instance, options, &device->inner);
	if (status != RMR_OK)
		return status;
	info = *rmr_device_info(device->inner);
	memcpy(info.name, base->info.name, sizeof(info.name));
	memcpy(info.provider, base->info.provider, sizeof(info.provider));
	if (device->plan.offload)
		info.capabilities |= RMR_CAP_OFFLOAD;
	base->info = info;
	log_info("%s: fault plan \"%s\", seed %llu", info.name, text ? text : "",
		 (unsigned long long)device->plan.seed);
	return RMR_OK;
}

static void device_fini(struct rmr_device *base)
{
	rmr_device_close(((struct fault_device *)base)->inner);
}

/* ------------------------------------------------------------------------------------------
 * Regions and remotes
 */

static bool is_region_refused(struct fault_device *device)
{
	uint64_t number = atomic_fetch_add(&device->regions, 1) + 1;
	struct fault_rng rng = fault_rng_stream(device->plan.seed ^ 0x4e61, number);

	return number == device->plan.refuse_region ||
	       fault_rng_chance(&rng, device->plan.refuse_region_percent, 100);
}

static enum rmr_status region_init(struct rmr_region *base)
{
	struct fault_region *region = (struct fault_region *)base;
	struct fault_device *device = (struct fault_device *)base->device;
	enum rmr_status status;

	if (is_region_refused(device))
		return error_set(RMR_NO_MEMORY, "refused by the fault plan");
	status = rmr_region_open(device->inner, base->address, base->length, base->rights,
				 &region->inner);
	if (status != RMR_OK)
		return status;
	pthread_mutex_init(&region->lock, NULL);
	return RMR_OK;
}

static bool region_revoke(struct rmr_region *base)
{
	return rmr_region_revoke(((struct fault_region *)base)->inner) == RMR_OK;
}

static void region_fini(struct rmr_region *base)
{
	struct fault_region *region = (struct fault_region *)base;

	pthread_mutex_lock(&region->lock);
	rmr_region_close(region->inner);
	region->inner = NULL;
	pthread_mutex_unlock(&region->lock);
}

static void region_free(struct rmr_region *base)
{
	pthread_mutex_destroy(&((struct fault_region *)base)->lock);
}

enum rmr_status fault_region_export(struct rmr_region *base, struct rmr_conn *base_conn,
				    struct descriptor_wire *wire)
{
	struct fault_region *region = (struct fault_region *)base;
	struct fault_conn *conn = (struct fault_conn *)base_conn;
	struct rmr_descriptor descriptor;
	struct descriptor_wire inner;
	enum rmr_status status;

	if (!conn->inner)
		return error_set(RMR_DISCONNECTED, "the connection is lost");
	status = rmr_region_export(region->inner, conn->inner, &descriptor);
	if (status != RMR_OK)
		return status;
	memcpy(&inner, &descriptor, sizeof(inner));
	inner.provider = wire->provider;
	*wire = inner;
	return RMR_OK;
}

/* Maps what the inner remote maps once more. Where that cannot be (huge pages) there is no pointer,
 * which is always allowed. */
static void map_again(struct fault_remote *remote)
{
	const uint8_t *pointer = rmr_remote_pointer(remote->inner);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t skip = (uintptr_t)pointer % page;
	size_t length = (skip + remote->base.length + page - 1) / page * page;
	void *mapping;

	if (!pointer)
		return;
	/* An old size of 0 asks for a second mapping of the same shared pages, see mremap(2). */
	mapping = mremap((void *)(pointer - skip), 0, length, MREMAP_MAYMOVE);
	if (mapping == MAP_FAILED)
		return;
	remote->mapping = mapping;
	remote->mapping_length = length;
	remote->base.pointer = (uint8_t *)mapping + skip;
}

enum rmr_status fault_remote_init(struct rmr_remote *base, const struct descriptor_wire *wire)
{
	struct fault_remote *remote = (struct fault_remote *)base;
	struct fault_conn *conn = (struct fault_conn *)base->conn;
	struct descriptor_wire inner = *wire;
	struct rmr_descriptor descriptor;
	enum rmr_status status;

	if (!conn->inner)
		return error_set(RMR_DISCONNECTED, "the connection is lost");
	inner.provider = conn->inner->provider->id;
	memcpy(&descriptor, &inner, sizeof(descriptor));
	status = rmr_remote_open(conn->inner, &descriptor, &remote->inner);
	if (status != RMR_OK)
		return status;
	base->length = rmr_remote_length(remote->inner);
	base->rights = rmr_remote_rights(remote->inner);
	map_again(remote);
	return RMR_OK;
}

void fault_remote_fini(struct rmr_remote *base)
{
	struct fault_remote *remote = (struct fault_remote *)base;
	struct fault_conn *conn = (struct fault_conn *)base->conn;

	if (remote->mapping)
		munmap(remote->mapping, remote->mapping_length);
	/* Else it was closed with its connection. */
	if (conn->inner)
		rmr_remote_close(remote->inner);
}

/* ------------------------------------------------------------------------------------------
 * Listeners
 */

static enum rmr_status listener_init(struct rmr_listener *base, const char *address)
{
	struct fault_listener *listener = (struct fault_listener *)base;
	struct fault_device *device = (struct fault_device *)base->device;
	enum rmr_status status =
		rmr_listener_open(device->inner, address, &base->options, &listener->inner);

	if (status != RMR_OK)
		return status;
	snprintf(base->address, sizeof(base->address), "%s", rmr_listener_address(listener->inner));
	base->fd = rmr_listener_fd(listener->inner);
	return RMR_OK;
}

static void listener_fini(struct rmr_listener *base)
{
	rmr_listener_close(((struct fault_listener *)base)->inner);
}

static enum rmr_status listener_next(struct rmr_listener *base, struct rmr_request *base_request,
				     int *wait_ms)
{
	struct fault_listener *listener = (struct fault_listener *)base;
	struct fault_request *request = (struct fault_request *)base_request;
	enum rmr_status status = rmr_listener_next(listener->inner, 0, &request->inner);
	const void *data;
	size_t length;

	if (status == RMR_TIMEOUT) {
		*wait_ms = LISTENER_TICK_MS;
		return RMR_AGAIN;
	}
	if (status != RMR_OK)
		return status;
	snprintf(base_request->peer, sizeof(base_request->peer), "%s",
		 rmr_request_peer(request->inner));
	data = rmr_request_private(request->inner, &length);
	if (length)
		memcpy(base_request->private_data, data, length);
	base_request->private_length = (uint8_t)length;
	return RMR_OK;
}

static void reject(struct rmr_request *base, const char *reason)
{
	rmr_reject(((struct fault_request *)base)->inner, reason);
}

const struct rmr_provider fault_provider = {
	.name = "fault",
	.id = PROVIDER_ID,
	.device_size = sizeof(struct fault_device),
	.region_size = sizeof(struct fault_region),
	.queue_size = sizeof(struct fault_queue),
	.conn_size = sizeof(struct fault_conn),
	.remote_size = sizeof(struct fault_remote),
	.listener_size = sizeof(struct fault_listener),
	.request_size = sizeof(struct fault_request),
	.device_entry = device_entry,
	.device_init = device_init,
	.device_fini = device_fini,
	.region_init = region_init,
	.region_revoke = region_revoke,
	.region_fini = region_fini,
	.region_free = region_free,
	.region_export = fault_region_export,
	.remote_init = fault_remote_init,
	.remote_fini = fault_remote_fini,
	.queue_init = fault_queue_init,
	.queue_fini = fault_queue_fini,
	.listener_init = listener_init,
	.listener_fini = listener_fini,
	.listener_next = listener_next,
	.reject = reject,
	.accept = fault_accept,
	.connect = fault_connect,
	.grants_changed = fault_grants_changed,
	.conn_fini = fault_conn_fini,
	.conn_lingers = fault_conn_lingers,
	.post = fault_post,
	.flush = fault_flush,
	.poll = fault_poll,
	.arm = fault_arm,
	.recv_release = fault_recv_release,
};
