/* Addresses: see address.h. */
#include "rdma/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/host.h"

static struct address *add(struct address_list *list, const char *device)
{
	struct address *address;

	if (list->count == ADDRESS_MAX)
		return NULL;
	address = &list->at[list->count++];
	*address = (struct address){0};
	snprintf(address->device, sizeof(address->device), "%.63s", device);
	return address;
}

static void add_shm(struct address_list *list, const char *device, int port)
{
	struct address *address = add(list, device);

	if (address)
		snprintf(address->address, sizeof(address->address), "rdma-%d", port);
}

static void add_network(struct address_list *list, const char *device, const struct host_name *host)
{
	struct address *address = add(list, device);
	bool is_v6 = strchr(host->host, ':') != NULL;

	if (address)
		snprintf(address->address, sizeof(address->address), is_v6 ? "[%s]:%d" : "%s:%d",
			 host->host, host->port);
}

static void add_verbs(struct address_list *list, const struct host_name *host)
{
	struct rmr_device_entry entries[ADDRESS_MAX];
	size_t count = rmr_device_list(entries, ADDRESS_MAX);

	for (size_t i = 0; i < count && i < ADDRESS_MAX; i++) {
		struct address *address;

		if (strncmp(entries[i].name, "verbs", 5) != 0)
			continue;
		if (entries[i].usable) {
			add_network(list, entries[i].name, host);
			continue;
		}
		address = add(list, entries[i].name);
		if (address)
			memcpy(address->reason, entries[i].reason, sizeof(address->reason));
	}
}

static void add_all(struct address_list *list, const struct host_name *host, enum address_use use)
{
	if (use == ADDRESS_LISTEN || host_is_this(host->host)) {
		add_shm(list, "shm", host->port);
	} else {
		struct address *address = add(list, "shm");

		snprintf(address->reason, sizeof(address->reason), "%.100s is another host",
			 host->host);
	}
	add_verbs(list, host);
	add_network(list, "tcp", host);
}

bool address_device_is_shm(const char *device)
{
	const char *inner = strncmp(device, "fault:", 6) == 0 ? device + 6 : device;

	return strcmp(inner, "shm") == 0 || strncmp(inner, "shm:", 4) == 0;
}

/* Cuts "DEVICE://" off. "": there is none. */
static enum rmr_status take_device(const char **name, char device[64])
{
	const char *end = strstr(*name, "://");
	const char *chosen = getenv(ADDRESS_DEVICE_VARIABLE);
	size_t length;

	device[0] = 0;
	if (end) {
		length = (size_t)(end - *name);
		if (!length || length >= 64)
			return error_set(
				RMR_BAD_ADDRESS,
				"\"%s\": a device such as tcp or verbs is meant before ://", *name);
		memcpy(device, *name, length);
		device[length] = 0;
		*name = end + 3;
	} else if (chosen && *chosen) {
		if (strlen(chosen) >= 64)
			return error_set(RMR_INVALID, "$%s is too long for the name of a device",
					 ADDRESS_DEVICE_VARIABLE);
		strcpy(device, chosen);
	}
	return RMR_OK;
}

/* "HOST:0" or "[v6]:0"; but "fe80::0" is an address. */
static bool ends_with_port_0(const char *name)
{
	const char *colon = strrchr(name, ':');

	return colon && strcmp(colon, ":0") == 0 &&
	       (strchr(name, ':') == colon || (colon > name && colon[-1] == ']'));
}

static enum rmr_status take_host(const char *name, int port, enum address_use use,
				 struct host_name *host)
{
	enum rmr_status status;
	char without_port[256];

	/* The fabric knows "*", and any port if it is 0; names of hosts do not. */
	if (use == ADDRESS_LISTEN && (!*name || strcmp(name, "*") == 0)) {
		*host = (struct host_name){.host = "*", .port = port};
		return RMR_OK;
	}
	if (use == ADDRESS_LISTEN && ends_with_port_0(name)) {
		snprintf(without_port, sizeof(without_port), "%.*s", (int)strlen(name) - 2, name);
		return take_host(without_port, 0, use, host);
	}
	status = host_parse(name, port, host);
	if (status == RMR_OK && use == ADDRESS_LISTEN && *name == ':')
		strcpy(host->host, "*");
	return status;
}

enum rmr_status address_find(const char *name, int port, enum address_use use,
			     struct address_list *list)
{
	struct host_name host;
	enum rmr_status status;
	char device[64];

	list->count = 0;
	if (port < 0 || port > 65535 || (port == 0 && use == ADDRESS_CONNECT && !name))
		return error_set(RMR_INVALID, "port %d; it is a number from 1 to 65535", port);
	if (!name)
		name = "";
	if (strncmp(name, "shm:", 4) == 0 && strncmp(name, "shm://", 6) != 0) {
		struct address *address = add(list, "shm");

		list->is_chosen = true;
		if (!name[4] || strlen(name + 4) >= sizeof(address->address))
			return error_set(RMR_BAD_ADDRESS, "\"%s\": shm:NAME is meant", name);
		strcpy(address->address, name + 4);
		return RMR_OK;
	}
	status = take_device(&name, device);
	if (status == RMR_OK)
		status = take_host(name, port, use, &host);
	if (status != RMR_OK)
		return status;
	list->is_chosen = device[0] != 0;
	if (!list->is_chosen)
		add_all(list, &host, use);
	else if (address_device_is_shm(device))
		add_shm(list, device, host.port);
	else
		add_network(list, device, &host);
	return RMR_OK;
}

void address_default_device(char device[64])
{
	struct rmr_device_entry entries[ADDRESS_MAX];
	const char *chosen = getenv(ADDRESS_DEVICE_VARIABLE);
	size_t count;

	if (chosen && *chosen) {
		snprintf(device, 64, "%s", chosen);
		return;
	}
	count = rmr_device_list(entries, ADDRESS_MAX);
	for (size_t i = 0; i < count && i < ADDRESS_MAX; i++) {
		if (entries[i].usable && strncmp(entries[i].name, "verbs", 5) == 0) {
			memcpy(device, entries[i].name, 64);
			return;
		}
	}
	strcpy(device, "tcp");
}
