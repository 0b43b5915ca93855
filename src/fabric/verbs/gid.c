/*
 * Which of the adapter's GIDs goes with an address.
 *
 * On Ethernet a queue pair is addressed by GIDs, and a port has a table of them: for each IP
 * address of its network interface one of RoCE v1 and one of RoCE v2, and one for its MAC address.
 * Two ends must use the same kind, and one of them that the other can route to. The socket over
 * which they meet has found a way between the hosts already: so the GID is the RoCE v2 one of the
 * address that the socket is bound to. On one host that may be a loopback address, which no
 * adapter has; then any GID will do that both ends find alike.
 *
 * On InfiniBand the LID leads to the peer, and GID 0 is always there.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fabric/rdma_host.h"
#include "fabric/verbs/internal.h"

#define LIST_SIZE 512

static const uint8_t mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};

bool gid_is_ipv4(const uint8_t gid[16])
{
	return rdma_host_gid_is_ipv4(gid);
}

static void format_address(const union ibv_gid *gid, char text[INET6_ADDRSTRLEN])
{
	if (gid_is_ipv4(gid->raw))
		(void)inet_ntop(AF_INET, gid->raw + sizeof(mapped_prefix), text, INET6_ADDRSTRLEN);
	else
		(void)inet_ntop(AF_INET6, gid->raw, text, INET6_ADDRSTRLEN);
}

/* The GIDs of our port. *entries is the caller's to free, also when there are none. */
static enum rmr_status load_table(struct verbs_device *device, struct ibv_gid_entry **entries,
				  size_t *count)
{
	/* One more than there can be: the kernel refuses a table that is just filled. */
	size_t max = (size_t)device->port.gid_tbl_len * device->attr.phys_port_cnt + 1;
	struct ibv_gid_entry *table = calloc(max, sizeof(*table));
	ssize_t found;

	if (!table)
		return error_set(RMR_NO_MEMORY, "no memory for a table of GIDs");
	found = ibv_query_gid_table(device->context, table, max, 0);
	if (found < 0) {
		free(table);
		return error_errno(RMR_SYSTEM, (int)-found, "cannot read the GIDs of %s",
				   ibv_get_device_name(device->context->device));
	}
	*count = 0;
	for (ssize_t i = 0; i < found; i++) {
		if (table[i].port_num == device->port_number)
			table[(*count)++] = table[i];
	}
	*entries = table;
	return RMR_OK;
}

/* "[0] RoCE v1 fe80::1, [1] RoCE v2 10.0.0.1" */
static void list_table(const struct ibv_gid_entry *entries, size_t count, char to[LIST_SIZE])
{
	static const char *const types[] = {"IB", "RoCE v1", "RoCE v2"};
	size_t used = 0;

	snprintf(to, LIST_SIZE, "none");
	for (size_t i = 0; i < count && used < LIST_SIZE; i++) {
		char address[INET6_ADDRSTRLEN];
		uint32_t type = entries[i].gid_type;

		format_address(&entries[i].gid, address);
		used += (size_t)snprintf(to + used, LIST_SIZE - used, "%s[%u] %s %s", i ? ", " : "",
					 entries[i].gid_index, type < 3 ? types[type] : "unknown",
					 address);
	}
}

/* Writes the address as a GID would have it; false when it is none of the Internet. */
static bool gid_of_address(const struct sockaddr *address, union ibv_gid *gid, uint32_t *scope)
{
	*scope = 0;
	if (address->sa_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;

		memcpy(gid->raw, mapped_prefix, sizeof(mapped_prefix));
		memcpy(gid->raw + sizeof(mapped_prefix), &v4->sin_addr, 4);
		return true;
	}
	if (address->sa_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;

		memcpy(gid->raw, &v6->sin6_addr, sizeof(gid->raw));
		*scope = v6->sin6_scope_id;
		return true;
	}
	return false;
}

static bool is_loopback(const union ibv_gid *gid)
{
	static const uint8_t v6[16] = {[15] = 1};

	return (gid_is_ipv4(gid->raw) && gid->raw[12] == 127) ||
	       memcmp(gid->raw, v6, sizeof(v6)) == 0;
}

bool gid_is_address(const union ibv_gid *gid, const struct sockaddr *address)
{
	union ibv_gid wanted;
	uint32_t scope;

	return gid_of_address(address, &wanted, &scope) &&
	       memcmp(&wanted, gid, sizeof(wanted)) == 0;
}

bool gid_is_loopback_address(const struct sockaddr *address)
{
	union ibv_gid gid;
	uint32_t scope;

	return gid_of_address(address, &gid, &scope) && is_loopback(&gid);
}

/* The one of RoCE v2 with this address. The same link-local address may be that of several VLANs:
 * the scope, an index of an interface, tells them apart. */
static const struct ibv_gid_entry *find_address(const struct ibv_gid_entry *entries, size_t count,
						const union ibv_gid *wanted, uint32_t scope)
{
	for (size_t i = 0; i < count; i++) {
		if (entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    memcmp(&entries[i].gid, wanted, sizeof(*wanted)) == 0 &&
		    (scope == 0 || entries[i].ndev_ifindex == 0 ||
		     entries[i].ndev_ifindex == scope))
			return &entries[i];
	}
	return NULL;
}

/* The one of RoCE v2 that is of most use. */
static const struct ibv_gid_entry *find_best(const struct ibv_gid_entry *entries, size_t count)
{
	const struct ibv_gid_entry *best = NULL;
	int best_rank = RDMA_HOST_NO_RANK;

	for (size_t i = 0; i < count; i++) {
		int rank = rdma_host_gid_rank(entries[i].gid.raw);

		if (entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 && rank < best_rank) {
			best = &entries[i];
			best_rank = rank;
		}
	}
	return best;
}

static const struct ibv_gid_entry *find_index(const struct ibv_gid_entry *entries, size_t count,
					      int index)
{
	for (size_t i = 0; i < count; i++) {
		if (entries[i].gid_index == (uint32_t)index)
			return &entries[i];
	}
	return NULL;
}

/* Is it an adapter whose GIDs are IP addresses? */
static bool has_addresses(const struct verbs_device *device)
{
	return device->is_roce;
}

static enum rmr_status complain(const struct verbs_device *device,
				const struct ibv_gid_entry *entries, size_t count,
				const union ibv_gid *wanted)
{
	const char *name = ibv_get_device_name(device->context->device);
	char list[LIST_SIZE], address[INET6_ADDRSTRLEN];
	int index = device->name.gid;

	list_table(entries, count, list);
	if (index >= 0 || !has_addresses(device))
		return error_set(RMR_INVALID, "%s has no GID %d at port %u; it has: %s", name,
				 index >= 0 ? index : 0, device->port_number, list);
	if (is_loopback(wanted))
		return error_set(RMR_UNSUPPORTED,
				 "%s has no GID for RoCE v2; give its network interface an address,"
				 " or choose one of these by gid=N: %s",
				 name, list);
	format_address(wanted, address);
	return error_set(RMR_BAD_ADDRESS,
			 "no GID of %s belongs to %s; use an address of its network interface, or "
			 "give gid=N; it has: %s",
			 name, address, list);
}

enum rmr_status gid_choose(struct verbs_device *device, const struct sockaddr *local, int *index,
			   union ibv_gid *gid)
{
	const struct ibv_gid_entry *found = NULL;
	struct ibv_gid_entry *entries;
	union ibv_gid wanted;
	uint32_t scope;
	enum rmr_status status;
	size_t count;

	if (!gid_of_address(local, &wanted, &scope))
		return error_set(RMR_INVALID, "an address that is not of the Internet");
	status = load_table(device, &entries, &count);
	if (status != RMR_OK)
		return status;
	if (device->name.gid >= 0)
		found = find_index(entries, count, device->name.gid);
	else if (!has_addresses(device))
		found = find_index(entries, count, 0);
	else if (is_loopback(&wanted))
		found = find_best(entries, count);
	else
		found = find_address(entries, count, &wanted, scope);
	if (found) {
		*index = (int)found->gid_index;
		*gid = found->gid;
	} else {
		status = complain(device, entries, count, &wanted);
	}
	free(entries);
	return status;
}

bool gid_is_own(struct verbs_device *device, const union ibv_gid *gid)
{
	struct ibv_gid_entry *entries;
	bool found = false;
	size_t count;

	if (load_table(device, &entries, &count) != RMR_OK)
		return false;
	for (size_t i = 0; i < count && !found; i++)
		found = memcmp(&entries[i].gid, gid, sizeof(*gid)) == 0;
	free(entries);
	return found;
}

bool gid_address(struct verbs_device *device, char *to, size_t size)
{
	const struct ibv_gid_entry *found;
	struct ibv_gid_entry *entries;
	char address[INET6_ADDRSTRLEN];
	bool usable;
	size_t count;

	if (!has_addresses(device) || load_table(device, &entries, &count) != RMR_OK)
		return false;
	found = device->name.gid >= 0 ? find_index(entries, count, device->name.gid)
				      : find_best(entries, count);
	/* A link-local address says nothing without the name of an interface, which is each
	 * host's own. */
	usable = found && !rdma_host_gid_is_link_local(found->gid.raw);
	if (usable) {
		format_address(&found->gid, address);
		snprintf(to, size, "%s", address);
	}
	free(entries);
	return usable;
}
