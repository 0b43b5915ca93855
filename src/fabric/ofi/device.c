/*
 * The ofi provider's table of functions, and its device: one provider of libfabric, or one adapter
 * of it. Endpoints are opened with the queues.
 */
#include <signal.h>

#include "base/error.h"
#include "base/log.h"
#include "fabric/ofi/internal.h"
#include "fabric/ofi/ofi.h"

/* libfabric's shm provider, which we do not use, takes these signals from the program when the
 * library is loaded or asked for anything the first time. They are given back. */
static const int taken_signals[] = {SIGINT, SIGTERM, SIGSEGV, SIGBUS};
#define TAKEN_SIGNALS (sizeof(taken_signals) / sizeof(taken_signals[0]))

static enum rmr_status find_quietly(struct ofi_device *device, const char *instance)
{
	struct sigaction before[TAKEN_SIGNALS];
	enum rmr_status status;

	for (size_t i = 0; i < TAKEN_SIGNALS; i++)
		(void)sigaction(taken_signals[i], NULL, &before[i]);
	status = library_load(&device->library);
	if (status == RMR_OK)
		status = name_resolve(device, instance);
	for (size_t i = 0; i < TAKEN_SIGNALS; i++)
		(void)sigaction(taken_signals[i], &before[i], NULL);
	return status;
}

static enum rmr_status open_fabric(struct ofi_device *device, const char *instance)
{
	enum rmr_status status = find_quietly(device, instance);
	int code;

	if (status != RMR_OK)
		return status;
	code = device->library->fabric(device->info->fabric_attr, &device->fabric, NULL);
	if (code != 0) {
		device->library->freeinfo(device->info);
		return error_set(RMR_SYSTEM, "libfabric: opening a fabric: %s", library_text(code));
	}
	device->mode = GREETING_PACKED;
	door_prepare(device);
	sleep_prepare(device);
	log_debug("ofi: %s on %s", device->info->fabric_attr->prov_name,
		  device->info->domain_attr->name);
	return RMR_OK;
}

static void close_fabric(struct ofi_device *device)
{
	door_release(device);
	fi_close(&device->fabric->fid);
	device->library->freeinfo(device->info);
}

static enum rmr_status ofi_device_init(struct rmr_device *base, const char *instance,
				       const struct rmr_device_options *options)
{
	struct ofi_device *device = (struct ofi_device *)base;
	enum rmr_status status;

	(void)options;
	status = open_fabric(device, instance);
	if (status != RMR_OK)
		return status;
	status = tcp_device_begin(base);
	if (status != RMR_OK)
		close_fabric(device);
	return status;
}

static void ofi_device_fini(struct rmr_device *base)
{
	tcp_device_end(base);
	close_fabric((struct ofi_device *)base);
}

const struct rmr_provider ofi_provider = {
	.name = "ofi",
	.id = 4,
	.device_size = sizeof(struct ofi_device),
	.region_size = sizeof(struct tcp_region),
	.queue_size = sizeof(struct ofi_queue),
	.conn_size = sizeof(struct ofi_conn),
	.remote_size = sizeof(struct tcp_remote),
	.listener_size = sizeof(struct ofi_listener),
	.request_size = sizeof(struct ofi_request),
	.device_entry = ofi_device_entry,
	.device_init = ofi_device_init,
	.device_fini = ofi_device_fini,
	.region_init = tcp_region_init,
	.region_fini = ofi_region_fini,
	.region_export = tcp_region_export,
	.remote_init = tcp_remote_init,
	.remote_fini = tcp_remote_fini,
	.queue_init = ofi_queue_init,
	.queue_fini = ofi_queue_fini,
	.listener_init = ofi_listener_init,
	.listener_fini = ofi_listener_fini,
	.listener_next = ofi_listener_next,
	.reject = ofi_reject,
	.accept = ofi_accept,
	.connect = ofi_connect,
	.conn_fini = ofi_conn_fini,
	.post = tcp_post,
	.flush = tcp_flush,
	.poll = tcp_poll,
	.arm = tcp_arm,
	.recv_release = tcp_recv_release,
};
