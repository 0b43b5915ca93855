/* The shm provider itself: what it can do, and its table of functions. */
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/shm/internal.h"

static bool device_entry(unsigned index, struct rmr_device_entry *entry)
{
	if (index > 0)
		return false;
	snprintf(entry->name, sizeof(entry->name), "shm");
	entry->usable = true;
	return true;
}

static enum rmr_status device_init(struct rmr_device *base, const char *instance,
				   const struct rmr_device_options *options)
{
	struct shm_device *device = (struct shm_device *)base;
	enum rmr_status status;
	void *table;

	(void)options;
	if (*instance)
		return error_set(RMR_NO_DEVICE, "there is only one shm device: 'shm'");
	status = segment_create(SHM_MAX_REGIONS * sizeof(struct shm_table_entry), &table,
				&device->table_fd);
	if (status != RMR_OK)
		return status;
	device->table = table;
	pthread_mutex_init(&device->lock, NULL);
	list_init(&device->conns);
	for (uint32_t i = 0; i < SHM_MAX_REGIONS; i++)
		device->free_indexes[device->free_count++] = (uint16_t)(SHM_MAX_REGIONS - 1 - i);
	base->info.capabilities =
		RMR_CAP_ATOMIC | RMR_CAP_ATOMIC_CPU | RMR_CAP_MAP | RMR_CAP_OFFLOAD;
	base->info.max_message = SHM_MAX_MESSAGE;
	base->info.max_transfer = (size_t)1 << 46;
	base->info.max_inline = SHM_MAX_INLINE;
	base->info.max_depth = SHM_MAX_DEPTH;
	base->info.max_slots = SHM_MAX_SLOTS;
	base->info.max_regions = SHM_MAX_REGIONS;
	base->info.max_arenas = SHM_MAX_ARENAS;
	return RMR_OK;
}

static void device_fini(struct rmr_device *base)
{
	struct shm_device *device = (struct shm_device *)base;

	segment_unmap(device->table, SHM_MAX_REGIONS * sizeof(struct shm_table_entry));
	close(device->table_fd);
	pthread_mutex_destroy(&device->lock);
}

static void queue_fini(struct rmr_queue *base)
{
	(void)base;
}

const struct rmr_provider shm_provider = {
	.name = "shm",
	.id = 1,
	.device_size = sizeof(struct shm_device),
	.region_size = sizeof(struct shm_region),
	.queue_size = sizeof(struct shm_queue),
	.conn_size = sizeof(struct shm_conn),
	.remote_size = sizeof(struct shm_remote),
	.listener_size = sizeof(struct shm_listener),
	.request_size = sizeof(struct shm_request),
	.device_entry = device_entry,
	.device_init = device_init,
	.device_fini = device_fini,
	.region_init = shm_region_init,
	.region_revoke = shm_region_revoke,
	.region_fini = shm_region_fini,
	.region_export = shm_region_export,
	.remote_init = shm_remote_init,
	.remote_fini = shm_remote_fini,
	.queue_init = shm_queue_init,
	.queue_fini = queue_fini,
	.listener_init = shm_listener_init,
	.listener_fini = shm_listener_fini,
	.listener_next = shm_listener_next,
	.reject = shm_reject,
	.accept = shm_accept,
	.connect = shm_connect,
	.conn_fini = shm_conn_fini,
	.conn_abandon = shm_conn_abandon,
	.listener_abandon = shm_listener_abandon,
	.conn_lingers = shm_conn_lingers,
	.post = shm_post,
	.flush = shm_flush,
	.poll = shm_poll,
	.arm = shm_arm,
	.recv_release = shm_recv_release,
};
