/*
 * The tcp provider's table of functions, and its device.
 *
 * There is one device, "tcp": routing decides which adapter is used. Opening it costs a mapping
 * for the table of regions; the helper thread starts with the first queue.
 */
#include <stdio.h>

#include "base/error.h"
#include "fabric/tcp/internal.h"
#include "fabric/tcp/tcp.h"

static bool tcp_device_entry(unsigned index, struct rmr_device_entry *entry)
{
	if (index != 0)
		return false;
	snprintf(entry->name, sizeof(entry->name), "tcp");
	entry->usable = true;
	return true;
}

enum rmr_status tcp_device_begin(struct rmr_device *base)
{
	struct tcp_device *device = tcp_device_of(base);
	enum rmr_status status = region_table_init(&device->regions);

	if (status != RMR_OK)
		return status;
	status = helper_init(&device->helper);
	if (status != RMR_OK) {
		region_table_fini(&device->regions);
		return status;
	}
	base->info.capabilities = RMR_CAP_ATOMIC | RMR_CAP_ATOMIC_PLAIN | RMR_CAP_ATOMIC_CPU;
	base->info.max_message = TCP_MESSAGE_MAX;
	base->info.max_transfer = TCP_TRANSFER_MAX;
	base->info.max_inline = TCP_INLINE_MAX;
	base->info.max_depth = TCP_DEPTH_MAX;
	base->info.max_slots = TCP_SLOTS_MAX;
	base->info.max_regions = TCP_REGIONS_MAX;
	return RMR_OK;
}

static enum rmr_status tcp_device_init(struct rmr_device *base, const char *instance,
				       const struct rmr_device_options *options)
{
	(void)options;
	if (*instance)
		return error_set(RMR_NO_DEVICE,
				 "tcp has one device, 'tcp', and no '%s'; the address "
				 "that you listen at or connect to selects the "
				 "network",
				 instance);
	return tcp_device_begin(base);
}

void tcp_device_end(struct rmr_device *base)
{
	struct tcp_device *device = tcp_device_of(base);

	helper_fini(&device->helper);
	region_table_fini(&device->regions);
}

static_assert(TCP_TRANSFER_MAX == FRAME_LENGTH_MAX, "what is posted can be encoded");
static_assert(TCP_INLINE_MAX <= TCP_BLOCK_BYTES - FRAME_HEADER_MAX &&
		      TCP_COPY_MAX <= TCP_BLOCK_BYTES - FRAME_HEADER_MAX,
	      "an empty block takes any frame");

/* In a forked child, where the helper's thread is not. */
static void conn_abandon(struct rmr_conn *base)
{
	struct tcp_conn *conn = (struct tcp_conn *)base;

	if (conn->fd >= 0)
		close(conn->fd);
}

static void listener_abandon(struct rmr_listener *base)
{
	close(base->greeter->socket);
	close(base->fd);
}

const struct rmr_provider tcp_provider = {
	.name = "tcp",
	.id = 2,
	.device_size = sizeof(struct tcp_device),
	.region_size = sizeof(struct tcp_region),
	.queue_size = sizeof(struct tcp_queue),
	.conn_size = sizeof(struct tcp_conn),
	.remote_size = sizeof(struct tcp_remote),
	.listener_size = sizeof(struct tcp_listener),
	.request_size = sizeof(struct tcp_request),
	.device_entry = tcp_device_entry,
	.device_init = tcp_device_init,
	.device_fini = tcp_device_end,
	.region_init = tcp_region_init,
	.region_fini = tcp_region_fini,
	.region_detach = tcp_region_detach,
	.region_export = tcp_region_export,
	.remote_init = tcp_remote_init,
	.remote_fini = tcp_remote_fini,
	.queue_init = tcp_queue_init,
	.queue_fini = tcp_queue_fini,
	.listener_init = tcp_listener_init,
	.listener_fini = tcp_listener_fini,
	.listener_next = tcp_listener_next,
	.reject = tcp_reject,
	.accept = tcp_accept,
	.connect = tcp_connect,
	.conn_abandon = conn_abandon,
	.listener_abandon = listener_abandon,
	.conn_fini = tcp_conn_fini,
	.post = tcp_post,
	.flush = tcp_flush,
	.poll = tcp_poll,
	.arm = tcp_arm,
	.recv_release = tcp_recv_release,
};
