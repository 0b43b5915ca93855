/*
 * The verbs provider's table of functions, and its devices: adapters.
 *
 * A device has an open context and a protection domain of its own, so that two devices of a process
 * on one adapter have nothing in common. RDMA CM opens the adapter once more for itself; we only
 * take from it what it found out about addresses (cm.c).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "fabric/verbs/internal.h"
#include "fabric/verbs/verbs.h"

#define SOFT_ROCE_VENDOR 0xffffff

static bool verbs_device_entry(unsigned index, struct rmr_device_entry *entry)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context;

	if (count == 0) {
		if (list)
			ibv_free_device_list(list);
		if (index != 0)
			return false;
		snprintf(entry->name, sizeof(entry->name), "verbs");
		doctor_no_device(entry->reason, sizeof(entry->reason));
		return true;
	}
	if (index >= (unsigned)count) {
		ibv_free_device_list(list);
		return false;
	}
	snprintf(entry->name, sizeof(entry->name), "verbs:%s", ibv_get_device_name(list[index]));
	errno = 0;
	context = ibv_open_device(list[index]);
	if (context) {
		entry->usable = true;
		ibv_close_device(context);
	} else {
		(void)doctor_open_failed(list[index], errno);
		snprintf(entry->reason, sizeof(entry->reason), "%s", error_chain());
	}
	ibv_free_device_list(list);
	return true;
}

/* The first active port, or the one asked for. */
static bool find_port(struct verbs_device *device)
{
	for (int i = 1; i <= device->attr.phys_port_cnt; i++) {
		if (device->name.port && device->name.port != i)
			continue;
		if (ibv_query_port(device->context, (uint8_t)i, &device->port) != 0)
			continue;
		device->port_number = (uint8_t)i;
		if (device->port.state == IBV_PORT_ACTIVE)
			return true;
	}
	return false;
}

/* Opens the adapter if it is the one that is meant. */
static enum rmr_status try_device(struct verbs_device *device, struct ibv_device *candidate)
{
	const char *name = ibv_get_device_name(candidate);

	device->context = ibv_open_device(candidate);
	if (!device->context)
		return doctor_open_failed(candidate, errno);
	if (ibv_query_device(device->context, &device->attr) == 0 && find_port(device))
		return RMR_OK;
	ibv_close_device(device->context);
	device->context = NULL;
	if (device->name.port && !device->port_number)
		return error_set(RMR_NO_DEVICE, "%s has no port %d", name, device->name.port);
	return error_set(RMR_NO_DEVICE,
			 "no port of %s is active: cable, switch, or 'ip link set NIC up'", name);
}

static enum rmr_status open_context(struct verbs_device *device)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	enum rmr_status status = RMR_NO_DEVICE;
	bool tried = false;
	char text[192];

	for (int i = 0; list && i < count && status != RMR_OK; i++) {
		if (device->name.device[0] &&
		    strcmp(device->name.device, ibv_get_device_name(list[i])) != 0)
			continue;
		tried = true;
		status = try_device(device, list[i]);
	}
	if (list)
		ibv_free_device_list(list);
	if (tried)
		return status;
	if (count == 0) {
		doctor_no_device(text, sizeof(text));
		return error_set(RMR_NO_DEVICE, "%s", text);
	}
	doctor_list_devices(text, sizeof(text));
	return error_set(RMR_NO_DEVICE, "there is no adapter '%s'; there are: %s",
			 device->name.device, text);
}

static uint32_t at_most(uint64_t value, uint64_t limit)
{
	return (uint32_t)(value < limit ? value : limit);
}

/* What a queue pair can be is found out by making one. */
static bool takes(struct verbs_device *device, uint32_t requests, uint32_t inline_bytes)
{
	struct ibv_cq *cq = ibv_create_cq(device->context, 2, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = requests,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = inline_bytes},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = cq ? ibv_create_qp(device->pd, &attr) : NULL;

	if (qp)
		ibv_destroy_qp(qp);
	if (cq)
		ibv_destroy_cq(cq);
	return qp != NULL;
}

static uint32_t find_max_inline(struct verbs_device *device)
{
	uint32_t size = VERBS_INLINE_MAX;

	while (size >= 16 && !takes(device, 1, size))
		size /= 2;
	return size >= 16 ? size : 0;
}

/* With so much inline a long queue may not fit. On soft-RoCE any does, and a try costs 8 MiB. */
static uint32_t find_max_depth(struct verbs_device *device)
{
	uint64_t places = (uint64_t)device->attr.max_qp_wr - VERBS_EXTRA_PLACES;
	uint32_t depth = at_most(places, VERBS_DEPTH_MAX);

	while (!device->is_soft && depth > 1 &&
	       !takes(device, depth + VERBS_EXTRA_PLACES, device->max_inline))
		depth /= 2;
	return depth;
}

static void fill_info(struct verbs_device *device)
{
	const struct ibv_device_attr *attr = &device->attr;
	struct rmr_device_info *info = &device->base.info;

	if (attr->atomic_cap != IBV_ATOMIC_NONE)
		info->capabilities |= RMR_CAP_ATOMIC | RMR_CAP_ATOMIC_PLAIN;
	if (attr->atomic_cap == IBV_ATOMIC_GLOB)
		info->capabilities |= RMR_CAP_ATOMIC_CPU;
	info->capabilities |= RMR_CAP_OFFLOAD;
	device->max_chunk = at_most(device->port.max_msg_sz, 1u << 30);
	info->max_message = device->max_chunk;
	info->max_transfer = VERBS_TRANSFER_MAX;
	info->max_inline = device->max_inline;
	info->max_depth = find_max_depth(device);
	/* Slots are doubled: see arrive.c. */
	info->max_slots = at_most((uint64_t)attr->max_srq_wr / 2, VERBS_SLOTS_MAX);
	info->max_slots =
		at_most(info->max_slots, ((uint64_t)attr->max_cqe - VERBS_CQ_SENDS - 1) / 2);
	info->max_regions = at_most((uint64_t)attr->max_mr / 2, VERBS_REGIONS_MAX);
	device->reads_out = (uint8_t)at_most((uint64_t)attr->max_qp_init_rd_atom, 255);
	device->reads_in = (uint8_t)at_most((uint64_t)attr->max_qp_rd_atom, 255);
}

static enum rmr_status check_device(const struct verbs_device *device)
{
	if (device->context->device->transport_type == IBV_TRANSPORT_IWARP)
		return error_set(RMR_UNSUPPORTED, "iWARP adapters have no WRITE with an immediate; "
						  "use 'tcp'");
	if (device->attr.max_srq < 1 || device->attr.max_srq_wr < 2)
		return error_set(RMR_UNSUPPORTED, "the adapter has no shared receive queues");
	if (device->attr.max_cqe <= (int)VERBS_CQ_SENDS)
		return error_set(RMR_UNSUPPORTED, "its completion queues hold only %d entries",
				 device->attr.max_cqe);
	return RMR_OK;
}

static enum rmr_status verbs_device_init(struct rmr_device *base, const char *instance,
					 const struct rmr_device_options *options)
{
	struct verbs_device *device = verbs_device_of(base);
	enum rmr_status status;

	(void)options;
	/* On kernels that do not copy pinned pages at fork, this keeps a child's writes from
	 * moving the parent's pages away under the adapter. Where it is not needed it does harm:
	 * memory in huge pages could not be registered (see doctor_register_failed). */
	if (ibv_is_fork_initialized() != IBV_FORK_UNNEEDED)
		(void)ibv_fork_init();
	status = name_parse(instance, &device->name);
	if (status == RMR_OK)
		status = open_context(device);
	if (status != RMR_OK)
		return status;
	device->is_roce = device->port.link_layer == IBV_LINK_LAYER_ETHERNET;
	device->is_soft = device->attr.vendor_id == SOFT_ROCE_VENDOR;
	status = check_device(device);
	if (status != RMR_OK)
		goto close_device;
	device->pd = ibv_alloc_pd(device->context);
	if (!device->pd) {
		status = error_errno(RMR_SYSTEM, errno, "no protection domain");
		goto close_device;
	}
	device->max_inline = find_max_inline(device);
	if (device->max_inline < sizeof(uint64_t)) { /* see post.c */
		status = error_set(RMR_UNSUPPORTED, "the adapter takes no inline data");
		goto dealloc_pd;
	}
	fill_info(device);
	pthread_mutex_init(&device->lock, NULL);
	pthread_mutex_init(&device->own_lock, NULL);
	list_init(&device->queues);
	status = async_start(device);
	if (status != RMR_OK)
		goto destroy_lock;
	return RMR_OK;

destroy_lock:
	pthread_mutex_destroy(&device->own_lock);
	pthread_mutex_destroy(&device->lock);
dealloc_pd:
	ibv_dealloc_pd(device->pd);
close_device:
	ibv_close_device(device->context);
	return status;
}

static void verbs_device_fini(struct rmr_device *base)
{
	struct verbs_device *device = verbs_device_of(base);

	own_word_close(device->own);
	async_stop(device);
	pthread_mutex_destroy(&device->own_lock);
	pthread_mutex_destroy(&device->lock);
	ibv_dealloc_pd(device->pd);
	ibv_close_device(device->context);
}

static bool by_socket(const struct rmr_device *device)
{
	return ((const struct verbs_device *)device)->name.socket;
}

static enum rmr_status verbs_listener_init(struct rmr_listener *base, const char *address)
{
	struct verbs_listener *listener = (struct verbs_listener *)base;

	return by_socket(base->device) ? socket_listener_init(listener, address)
				       : cm_listener_init(listener, address);
}

static void verbs_listener_fini(struct rmr_listener *base)
{
	struct verbs_listener *listener = (struct verbs_listener *)base;

	if (by_socket(base->device))
		socket_listener_fini(listener);
	else
		cm_listener_fini(listener);
}

static enum rmr_status verbs_listener_next(struct rmr_listener *base, struct rmr_request *request,
					   int *wait_ms)
{
	struct verbs_listener *listener = (struct verbs_listener *)base;
	struct verbs_request *caller = (struct verbs_request *)request;
	enum rmr_status status = by_socket(base->device)
					 ? socket_listener_next(listener, caller, wait_ms)
					 : cm_listener_next(listener, caller, wait_ms);

	if (status != RMR_AGAIN)
		return status;
	/* Nobody comes any more; and nothing makes the descriptor readable to tell so. */
	if (atomic_load_explicit(&verbs_device_of(base->device)->gone, memory_order_acquire))
		return doctor_adapter_gone(base->device);
	if (*wait_ms < 0 || *wait_ms > ASYNC_LOOK_MS)
		*wait_ms = ASYNC_LOOK_MS;
	return RMR_AGAIN;
}

static void verbs_reject(struct rmr_request *base, const char *reason)
{
	struct verbs_request *request = (struct verbs_request *)base;

	if (by_socket(base->device))
		socket_reject(request, reason ? reason : "");
	else
		cm_reject(request, reason ? reason : "");
}

const struct rmr_provider verbs_provider = {
	.name = "verbs",
	.id = 3,
	.doubles_slots = true,
	.device_size = sizeof(struct verbs_device),
	.region_size = sizeof(struct verbs_region),
	.queue_size = sizeof(struct verbs_queue),
	.conn_size = sizeof(struct verbs_conn),
	.remote_size = sizeof(struct verbs_remote),
	.listener_size = sizeof(struct verbs_listener),
	.request_size = sizeof(struct verbs_request),
	.device_entry = verbs_device_entry,
	.device_init = verbs_device_init,
	.device_fini = verbs_device_fini,
	.region_init = verbs_region_init,
	.region_fini = verbs_region_fini,
	.region_compare_swap = verbs_region_compare_swap,
	.region_export = verbs_region_export,
	.remote_init = verbs_remote_init,
	.remote_fini = verbs_remote_fini,
	.queue_init = verbs_queue_init,
	.queue_fini = verbs_queue_fini,
	.listener_init = verbs_listener_init,
	.listener_fini = verbs_listener_fini,
	.listener_next = verbs_listener_next,
	.reject = verbs_reject,
	.accept = verbs_accept,
	.connect = verbs_connect,
	.conn_fini = verbs_conn_fini,
	.post = verbs_post,
	.flush = verbs_flush,
	.poll = verbs_poll,
	.arm = verbs_arm,
	.recv_release = verbs_recv_release,
};
