/* What only an open adapter tells: its ports' MTUs, which the kernel has in no file. */
#include <infiniband/verbs.h>
#include <string.h>

#include "doctor.h"

static int bytes_of(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0;
}

static void ask(struct ibv_context *context, struct adapter *adapter)
{
	for (int i = 0; i < adapter->port_count; i++) {
		struct port *port = &adapter->ports[i];
		struct ibv_port_attr attr;

		if (ibv_query_port(context, (uint8_t)port->number, &attr) != 0)
			continue;
		port->active_mtu = bytes_of(attr.active_mtu);
		port->max_mtu = bytes_of(attr.max_mtu);
	}
}

void query_ports(struct adapter *adapter)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	for (int i = 0; list && i < count; i++) {
		struct ibv_context *context;

		if (strcmp(ibv_get_device_name(list[i]), adapter->name) != 0)
			continue;
		context = ibv_open_device(list[i]);
		if (!context)
			break;
		ask(context, adapter);
		ibv_close_device(context);
	}
	if (list)
		ibv_free_device_list(list);
}
