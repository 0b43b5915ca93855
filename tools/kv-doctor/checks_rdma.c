/*
 * Checks of adapters: ports, GIDs, MTU and NUMA; and whether verbs can work with one, as far as
 * files tell. Pure.
 *
 * An adapter whose port is down beside one that is up is nothing to worry about: that is a warning.
 */
#include <inttypes.h>
#include <string.h>

#include "doctor.h"
#include "fabric/rdma_host.h"

#define GROUP "Adapters"

/* Of an Ethernet frame, what the headers of RoCE v2 with all extensions take at most. */
#define ROCE_HEADERS 96
#define ROCE_MTU_MAX 4096
#define FRAME_MTU    4200 /* makes room for the largest */

static bool is_ethernet(const struct port *port)
{
	return strcmp(port->link_layer, "Ethernet") == 0;
}

static bool has_active_port(const struct adapter *adapter)
{
	for (int i = 0; i < adapter->port_count; i++)
		if (port_is_active(&adapter->ports[i]))
			return true;
	return false;
}

/* The one that verbs take: the first that is active. */
static const struct port *used_port(const struct adapter *adapter)
{
	for (int i = 0; i < adapter->port_count; i++)
		if (port_is_active(&adapter->ports[i]))
			return &adapter->ports[i];
	return NULL;
}

static const char *kind_fault(const struct adapter *adapter)
{
	if (adapter->driver && adapter->driver->fault)
		return adapter->driver->fault;
	if (adapter->node_type == 4)
		return "iWARP adapters have no WRITE with an immediate; use tcp";
	return NULL;
}

bool adapter_is_broken(const struct machine *machine, const struct adapter *adapter, char *reason,
		       size_t size)
{
	const struct port *port = used_port(adapter);
	const char *kind = kind_fault(adapter);

	if (kind)
		snprintf(reason, size, "%s", kind);
	else if (!adapter->uverbs[0] || adapter->access == ACCESS_MISSING)
		snprintf(reason, size, "%s has no file in /dev/infiniband; modprobe ib_uverbs",
			 adapter->name);
	else if (adapter->access == ACCESS_DENIED)
		snprintf(reason, size, "no permission for %s", adapter->name);
	else if (!machine->has_libibverbs)
		snprintf(reason, size, "libibverbs is not installed");
	else if (!adapter->has_library)
		snprintf(reason, size, "lib%s is not installed", adapter->driver->library);
	else if (!port)
		snprintf(reason, size,
			 "no port of %s is active: cable, switch, or 'ip link set NIC up'",
			 adapter->name);
	else if (is_ethernet(port) && !port_gid(port))
		snprintf(reason, size, "%s has no GID for RoCE v2", adapter->name);
	else if (!memlock_is_unlimited(machine) && machine->memlock < MEMLOCK_LEAST)
		snprintf(reason, size, "only %" PRIu64 " KiB may be locked",
			 machine->memlock >> 10);
	else
		return false;
	return true;
}

/* ------------------------------------------------------------------------------------------
 * Ports
 */

/* What brings a port up, by what it says of itself. */
static void fix_port(const struct port *port, struct finding *finding)
{
	const char *netdev = port->netdev[0] ? port->netdev : "NIC";

	if (!is_ethernet(port) && strcmp(port->state, "INIT") == 0)
		report_fix(finding, "systemctl start opensm # a subnet manager, on one host");
	else if (!is_ethernet(port))
		report_fix(finding, "ibstat # then the cable, or the switch's port");
	else if (strcmp(port->phys_state, "Polling") == 0)
		report_fix(finding, "ethtool %s # nothing answers: the cable, or the switch's port",
			   netdev);
	else
		report_fix(finding, "ip link set dev %s up", netdev);
}

static void check_state(const struct adapter *adapter, const struct port *port, const char *name,
			struct report *report)
{
	struct finding *finding;

	if (port_is_active(port)) {
		report_add(report, GROUP, name, VERDICT_OK, "active, %s, %s%s%s", port->link_layer,
			   port->rate, port->netdev[0] ? ", network card " : "", port->netdev);
		return;
	}
	finding = report_add(report, GROUP, name,
			     has_active_port(adapter) ? VERDICT_WARN : VERDICT_FAIL,
			     "not active but %s, the link is %s", port->state, port->phys_state);
	fix_port(port, finding);
}

static void check_gid(const struct port *port, const char *name, struct report *report)
{
	const struct gid *gid = port_gid(port);
	struct finding *finding;
	char address[64];

	if (!gid) {
		finding = report_add(report, GROUP, name,
				     is_ethernet(port) ? VERDICT_FAIL : VERDICT_WARN,
				     is_ethernet(port) ? "no GID of RoCE v2: the network card has "
							 "no address"
						       : "no GID 0");
		if (is_ethernet(port))
			report_fix(finding, "ip address add ADDRESS/24 dev %s",
				   port->netdev[0] ? port->netdev : "NIC");
		else
			report_fix(finding, "ibstat # a subnet manager gives GIDs");
		return;
	}
	gid_format(gid, address, sizeof(address));
	if (!is_ethernet(port)) {
		report_add(report, GROUP, name, VERDICT_OK, "%d, %s, is used", gid->index, address);
		return;
	}
	if (rdma_host_gid_is_link_local(gid->raw)) {
		finding = report_add(report, GROUP, name, VERDICT_WARN,
				     "only link-local ones: %d, RoCE v2, %s", gid->index, address);
		report_fix(finding, "ip address add ADDRESS/24 dev %s",
			   port->netdev[0] ? port->netdev : "NIC");
		return;
	}
	report_add(report, GROUP, name, VERDICT_OK,
		   "%d, RoCE v2, %s, is used, unless peers meet at another address of the card "
		   "(%d in the table)",
		   gid->index, address, port->gid_count);
}

static int mtu_for(int frame)
{
	int mtu = ROCE_MTU_MAX;

	while (mtu > 256 && mtu > frame - ROCE_HEADERS)
		mtu /= 2;
	return mtu;
}

static void check_mtu(const struct port *port, const char *name, struct report *report)
{
	int most = port->max_mtu ? port->max_mtu : ROCE_MTU_MAX;
	int active = port->active_mtu;
	struct finding *finding;

	if (!active && is_ethernet(port) && port->netdev_mtu)
		active = mtu_for(port->netdev_mtu);
	if (!active) {
		report_add(report, GROUP, name, VERDICT_NONE, "not known");
	} else if (active >= most || !is_ethernet(port)) {
		report_add(report, GROUP, name, VERDICT_OK, "%d bytes", active);
	} else {
		finding = report_add(report, GROUP, name, VERDICT_WARN,
				     "%d bytes, for frames of %s have %d; %d would be faster",
				     active, port->netdev, port->netdev_mtu, most);
		report_fix(finding, "ip link set dev %s mtu %d # on all hosts, and the switch",
			   port->netdev[0] ? port->netdev : "NIC", FRAME_MTU);
	}
}

static void check_port(const struct adapter *adapter, const struct port *port,
		       struct report *report)
{
	char name[48];

	snprintf(name, sizeof(name), "%.24s port %d", adapter->name, port->number);
	check_state(adapter, port, name, report);
	if (!port_is_active(port))
		return;
	snprintf(name, sizeof(name), "%.24s port %d GID", adapter->name, port->number);
	check_gid(port, name, report);
	snprintf(name, sizeof(name), "%.24s port %d MTU", adapter->name, port->number);
	check_mtu(port, name, report);
}

/* ------------------------------------------------------------------------------------------
 * NUMA
 */

/* Whether a list such as "0-3,8" has the number. */
static bool list_has(const char *list, int number)
{
	int low, high, length;

	while (sscanf(list, "%d%n", &low, &length) == 1) {
		list += length;
		high = low;
		if (sscanf(list, "-%d%n", &high, &length) == 1)
			list += length;
		if (number >= low && number <= high)
			return true;
		list += *list == ',';
	}
	return false;
}

/* The node from which this process may have memory that is farthest from the adapter's; -1: none
 * is another one. */
static int farthest(const struct machine *machine, int own, int *distance)
{
	int found = -1;

	*distance = 0;
	for (int i = 0; i < machine->node_count; i++) {
		if (i == own || !list_has(machine->memories, machine->nodes[i]))
			continue;
		if (machine->distances[own][i] > *distance) {
			*distance = machine->distances[own][i];
			found = machine->nodes[i];
		}
	}
	return found;
}

static void check_numa(const struct machine *machine, const struct adapter *adapter,
		       struct report *report)
{
	struct finding *finding;
	char name[48];
	int own = -1, far, distance;

	snprintf(name, sizeof(name), "%.30s NUMA", adapter->name);
	for (int i = 0; i < machine->node_count; i++)
		if (machine->nodes[i] == adapter->numa_node)
			own = i;
	if (machine->node_count < 2 || own < 0) {
		report_add(
			report, GROUP, name, machine->node_count == 1 ? VERDICT_OK : VERDICT_NONE,
			machine->node_count == 1 ? "one node has all the memory"
						 : "the kernel does not say at which node it is");
		return;
	}
	far = farthest(machine, own, &distance);
	if (far < 0) {
		report_add(report, GROUP, name, VERDICT_OK,
			   "node %d, and memory comes from there alone (distance %d)",
			   adapter->numa_node, machine->distances[own][own]);
		return;
	}
	finding = report_add(report, GROUP, name, VERDICT_WARN,
			     "node %d; memory may come from node %d, at distance %d instead of %d",
			     adapter->numa_node, far, distance, machine->distances[own][own]);
	report_fix(finding, "numactl --cpunodebind=%d --membind=%d kv-server ...",
		   adapter->numa_node, adapter->numa_node);
}

/* ------------------------------------------------------------------------------------------
 * All of them
 */

static void add_no_adapter(const struct machine *machine, enum path want, struct report *report)
{
	bool matters = rdma_matters(machine, want);
	struct finding *finding =
		report_add(report, GROUP, "adapters", matters ? VERDICT_FAIL : VERDICT_NONE, "%s",
			   rdma_host_no_adapter(machine->has_class, machine->has_files));

	if (!matters)
		return;
	if (machine->card_count)
		report_fix(finding, "modprobe -a %s ib_uverbs rdma_ucm",
			   machine->cards[0].driver->module);
	else
		report_fix(finding, "modprobe -a rdma_rxe ib_uverbs rdma_ucm && "
				    "rdma link add rxe0 type rxe netdev NIC");
}

void check_adapters(const struct machine *machine, enum path want, struct report *report)
{
	if (machine->adapter_count == 0)
		add_no_adapter(machine, want, report);
	for (int i = 0; i < machine->adapter_count; i++) {
		const struct adapter *adapter = &machine->adapters[i];
		const char *fault = kind_fault(adapter);
		enum verdict verdict = VERDICT_OK;
		struct finding *finding;

		if (fault)
			verdict = want == PATH_VERBS || want == PATH_SOCKET ? VERDICT_FAIL
									    : VERDICT_WARN;
		finding = report_add(report, GROUP, adapter->name, verdict, "driver %s%s%s",
				     adapter->driver ? adapter->driver->module : "unknown",
				     fault ? "; " : "", fault ? fault : "");
		if (fault)
			report_fix(finding, "kv-doctor --want tcp");
		for (int k = 0; k < adapter->port_count; k++)
			check_port(adapter, &adapter->ports[k], report);
		check_numa(machine, adapter, report);
	}
}
