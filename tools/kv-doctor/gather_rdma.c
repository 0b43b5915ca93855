/*
 * The adapters of a machine, from /sys/class/infiniband, and the cards that could be adapters if
 * their driver were loaded.
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"
#include "fabric/rdma_host.h"

#define CLASS "/sys/class/infiniband"

/* "4: ACTIVE" */
static void read_state(const char *root, const char *path, char *to, size_t size)
{
	char text[64], *colon;

	file_read(root, path, text, sizeof(text));
	colon = strstr(text, ": ");
	snprintf(to, size, "%.*s", (int)size - 1, colon ? colon + 2 : text);
}

static int read_number(const char *root, const char *path, int otherwise)
{
	char text[32];

	return file_read(root, path, text, sizeof(text)) && *text ? atoi(text) : otherwise;
}

/* A table has places without a GID: all zeros, or on newer kernels nothing to be read. */
static bool read_gid(const struct machine *machine, const char *port, const char *index,
		     struct gid *gid)
{
	static const uint8_t none[16];
	char path[FILE_PATH], text[64];

	file_name(path, "%s/gids/%s", port, index);
	if (!file_read(machine->root, path, text, sizeof(text)) ||
	    inet_pton(AF_INET6, text, gid->raw) != 1 || memcmp(gid->raw, none, 16) == 0)
		return false;
	gid->index = atoi(index);
	file_name(path, "%s/gid_attrs/types/%s", port, index);
	file_read(machine->root, path, text, sizeof(text));
	gid->is_v2 = strcmp(text, "RoCE v2") == 0;
	file_name(path, "%s/gid_attrs/ndevs/%s", port, index);
	file_read(machine->root, path, gid->netdev, sizeof(gid->netdev));
	return true;
}

static void read_gids(const struct machine *machine, const char *directory, struct port *port)
{
	char path[FILE_PATH], (*names)[FILE_NAME] = calloc(256, FILE_NAME);
	int count;

	if (!names)
		return;
	file_name(path, "%s/gids", directory);
	count = file_list(machine->root, path, names, 256);
	for (int i = 0; i < count && port->gid_count < MAX_GIDS; i++)
		if (read_gid(machine, directory, names[i], &port->gids[port->gid_count]))
			port->gid_count++;
	free(names);
}

/* The network card of a port: that of its GID, or else of the adapter. */
static void read_netdev(const struct machine *machine, const struct adapter *adapter,
			struct port *port)
{
	const struct gid *gid = port_gid(port);
	char path[FILE_PATH], names[1][FILE_NAME];

	if (gid && gid->netdev[0])
		memcpy(port->netdev, gid->netdev, sizeof(port->netdev));
	file_name(path, CLASS "/%s/device/net", adapter->name);
	if (!port->netdev[0] && file_list(machine->root, path, names, 1) == 1)
		snprintf(port->netdev, sizeof(port->netdev), "%.15s", names[0]);
	file_name(path, CLASS "/%s/parent", adapter->name);
	if (!port->netdev[0])
		file_read(machine->root, path, port->netdev, sizeof(port->netdev));
	if (!port->netdev[0])
		return;
	file_name(path, "/sys/class/net/%s/mtu", port->netdev);
	port->netdev_mtu = read_number(machine->root, path, 0);
}

static void read_port(const struct machine *machine, const struct adapter *adapter,
		      const char *number, struct port *port)
{
	char directory[FILE_PATH], path[FILE_PATH];

	*port = (struct port){.number = atoi(number)};
	file_name(directory, CLASS "/%s/ports/%s", adapter->name, number);
	file_name(path, "%s/state", directory);
	read_state(machine->root, path, port->state, sizeof(port->state));
	file_name(path, "%s/phys_state", directory);
	read_state(machine->root, path, port->phys_state, sizeof(port->phys_state));
	file_name(path, "%s/link_layer", directory);
	file_read(machine->root, path, port->link_layer, sizeof(port->link_layer));
	file_name(path, "%s/rate", directory);
	file_read(machine->root, path, port->rate, sizeof(port->rate));
	read_gids(machine, directory, port);
	read_netdev(machine, adapter, port);
}

/* Software adapters stand on no card; soft-RoCE alone has a file `parent`. */
static const struct driver *find_driver(const struct machine *machine,
					const struct adapter *adapter)
{
	char path[FILE_PATH], name[FILE_NAME];

	file_name(path, CLASS "/%s/device/driver", adapter->name);
	file_link(machine->root, path, name, sizeof(name));
	if (name[0])
		return driver_of_network(name);
	file_name(path, CLASS "/%s/parent", adapter->name);
	if (file_exists(machine->root, path))
		return driver_find("rdma_rxe");
	return adapter->node_type == 4 ? driver_find("siw") : NULL;
}

static void find_uverbs(const struct machine *machine, struct adapter *adapter)
{
	char names[64][FILE_NAME], path[FILE_PATH], text[FILE_NAME];
	int count = file_list(machine->root, "/sys/class/infiniband_verbs", names, 64);

	for (int i = 0; i < count && !adapter->uverbs[0]; i++) {
		file_name(path, "/sys/class/infiniband_verbs/%s/ibdev", names[i]);
		if (file_read(machine->root, path, text, sizeof(text)) &&
		    strcmp(text, adapter->name) == 0)
			memcpy(adapter->uverbs, names[i], sizeof(adapter->uverbs));
	}
	if (!adapter->uverbs[0])
		return;
	file_name(path, "/dev/infiniband/%s", adapter->uverbs);
	adapter->access = machine_access(machine, path);
}

static void read_adapter(const struct machine *machine, const char name[FILE_NAME],
			 struct adapter *adapter)
{
	char path[FILE_PATH], numbers[MAX_PORTS][FILE_NAME];

	*adapter = (struct adapter){.numa_node = -1};
	memcpy(adapter->name, name, sizeof(adapter->name));
	file_name(path, CLASS "/%s/node_type", name);
	adapter->node_type = read_number(machine->root, path, 0);
	file_name(path, CLASS "/%s/device/numa_node", name);
	adapter->numa_node = read_number(machine->root, path, -1);
	adapter->driver = find_driver(machine, adapter);
	find_uverbs(machine, adapter);
	file_name(path, CLASS "/%s/ports", name);
	adapter->port_count = file_list(machine->root, path, numbers, MAX_PORTS);
	for (int i = 0; i < adapter->port_count; i++)
		read_port(machine, adapter, numbers[i], &adapter->ports[i]);
	if (machine->is_live)
		query_ports(adapter);
}

/* ------------------------------------------------------------------------------------------
 * Cards
 */

static unsigned read_hex(const char *root, const char *slot, const char *file)
{
	char path[FILE_PATH], text[32];

	file_name(path, "/sys/bus/pci/devices/%s/%s", slot, file);
	return file_read(root, path, text, sizeof(text)) ? (unsigned)strtoul(text, NULL, 16) : 0;
}

static const struct driver *driver_of_card(const char *root, const char *slot)
{
	unsigned vendor = read_hex(root, slot, "vendor"), device = read_hex(root, slot, "device");
	char path[FILE_PATH], name[FILE_NAME];

	/* Classes 02 (network) and 0c06 (InfiniBand); EFA has a network's, too. */
	if (read_hex(root, slot, "class") >> 16 != 0x02 &&
	    read_hex(root, slot, "class") >> 8 != 0x0c06)
		return NULL;
	file_name(path, "/sys/bus/pci/devices/%s/driver", slot);
	file_link(root, path, name, sizeof(name));
	if (driver_of_network(name))
		return driver_of_network(name);
	for (const struct driver *driver = drivers; driver->module; driver++)
		if (driver->vendor && driver->vendor == vendor && device >= driver->device_low &&
		    device <= driver->device_high)
			return driver;
	return NULL;
}

static void find_cards(struct machine *machine)
{
	char(*slots)[FILE_NAME] = calloc(512, FILE_NAME);
	int count = slots ? file_list(machine->root, "/sys/bus/pci/devices", slots, 512) : 0;

	for (int i = 0; i < count && machine->card_count < MAX_CARDS; i++) {
		struct card *card = &machine->cards[machine->card_count];

		card->driver = driver_of_card(machine->root, slots[i]);
		if (!card->driver)
			continue;
		memcpy(card->slot, slots[i], sizeof(card->slot));
		machine->card_count++;
	}
	free(slots);
}

void gather_rdma(struct machine *machine)
{
	char names[MAX_ADAPTERS][FILE_NAME];
	int count = file_list(machine->root, CLASS, names, MAX_ADAPTERS);

	machine->has_class = file_exists(machine->root, CLASS);
	machine->has_files = file_exists(machine->root, "/dev/infiniband");
	machine->cm = machine_access(machine, "/dev/infiniband/rdma_cm");
	for (int i = 0; i < count; i++)
		read_adapter(machine, names[i], &machine->adapters[i]);
	machine->adapter_count = count;
	find_cards(machine);
}

/* ------------------------------------------------------------------------------------------
 * What follows
 */

bool port_is_active(const struct port *port)
{
	return strcmp(port->state, "ACTIVE") == 0;
}

const struct gid *port_gid(const struct port *port)
{
	const struct gid *best = NULL;
	int best_rank = RDMA_HOST_NO_RANK;

	if (strcmp(port->link_layer, "Ethernet") != 0)
		return port->gid_count && port->gids[0].index == 0 ? &port->gids[0] : NULL;
	for (int i = 0; i < port->gid_count; i++) {
		int rank = rdma_host_gid_rank(port->gids[i].raw);

		if (port->gids[i].is_v2 && rank < best_rank) {
			best = &port->gids[i];
			best_rank = rank;
		}
	}
	return best;
}

void gid_format(const struct gid *gid, char *to, size_t size)
{
	bool v4 = rdma_host_gid_is_ipv4(gid->raw);

	if (!inet_ntop(v4 ? AF_INET : AF_INET6, gid->raw + (v4 ? 12 : 0), to, (socklen_t)size))
		to[0] = '\0';
}
