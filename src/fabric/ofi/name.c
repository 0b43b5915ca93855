/*
 * Names of devices: "ofi", "ofi:PROVIDER" or "ofi:PROVIDER:DOMAIN".
 *
 * PROVIDER is a word of the table below, or any name that libfabric knows ("udp;ofi_rxd"); DOMAIN
 * is an adapter as libfabric names it (fi_info shows both). "ofi" alone takes what is here of the
 * table, the first of it.
 *
 * Listing devices must not load libfabric (library.c), so it goes by what can be seen in files.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/ofi/internal.h"

struct known {
	const char *word, *provider;
	const char *advice; /* how to get it */
};

static const struct known table[] = {
	{"efa", "efa",
	 "it needs an EC2 instance with an Elastic Fabric Adapter; see docs/providers.md"},
	{"cxi", "cxi", "it needs a Slingshot adapter and HPE's libfabric"},
	{"opx", "opx", "it needs an Omni-Path adapter"},
	{"psm3", "psm3", "it needs an Ethernet or Omni-Path adapter of Intel"},
	{"verbs", "verbs;ofi_rxm", "it needs an RDMA adapter with an IP address; or use 'verbs'"},
	{"tcp", "tcp;ofi_rxm", "it needs a network interface"},
};
#define TABLE_SIZE (sizeof(table) / sizeof(table[0]))

/* ------------------------------------------------------------------------------------------
 * Listing
 */

/* Is there an RDMA device whose driver has this name? NULL: any. */
static bool has_rdma_device(const char *driver)
{
	DIR *directory = opendir("/sys/class/infiniband");
	struct dirent *entry;
	bool found = false;

	while (directory && !found && (entry = readdir(directory))) {
		char path[512], target[256];
		ssize_t length;

		if (entry->d_name[0] == '.')
			continue;
		if (!driver) {
			found = true;
			break;
		}
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/driver",
			 entry->d_name);
		length = readlink(path, target, sizeof(target) - 1);
		if (length <= 0)
			continue;
		target[length] = 0;
		found = strcmp(strrchr(target, '/') ? strrchr(target, '/') + 1 : target, driver) ==
			0;
	}
	if (directory)
		closedir(directory);
	return found;
}

bool ofi_device_entry(unsigned index, struct rmr_device_entry *entry)
{
	static const char *const words[] = {"tcp", "efa", "verbs"};
	const char *word;

	if (index >= sizeof(words) / sizeof(words[0]))
		return false;
	word = words[index];
	snprintf(entry->name, sizeof(entry->name), "ofi:%s", word);
	entry->usable = strcmp(word, "tcp") == 0 ||
			has_rdma_device(strcmp(word, "efa") == 0 ? "efa" : NULL);
	for (size_t i = 0; i < TABLE_SIZE; i++) {
		if (!entry->usable && strcmp(table[i].word, word) == 0)
			snprintf(entry->reason, sizeof(entry->reason), "%s", table[i].advice);
	}
	if (!library_is_there()) {
		entry->usable = false;
		snprintf(entry->reason, sizeof(entry->reason),
			 "libfabric cannot be loaded; install libfabric1");
	}
	return true;
}

/* ------------------------------------------------------------------------------------------
 * Finding
 */

/* What we ask of a provider. */
static struct fi_info *make_hints(const struct ofi_library *library, const char *provider)
{
	struct fi_info *hints = library->dupinfo(NULL);

	if (!hints)
		return NULL;
	hints->caps = FI_MSG;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode =
		FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	/* What is asked for is allocated: by default rxm would take 50 MiB for a queue. */
	hints->tx_attr->size = OFI_TX_SIZE;
	hints->rx_attr->size = OFI_RECEIVES;
	hints->fabric_attr->prov_name = strdup(provider);
	return hints;
}

/* Asks libfabric for a provider, and takes what it names first; of the domain, if one is given. */
static int find(struct ofi_device *device, const char *provider, const char *domain)
{
	const struct ofi_library *library = device->library;
	struct fi_info *hints = make_hints(library, provider), *list = NULL, *at;
	bool over_ip = strncmp(provider, "tcp", 3) == 0 && !*domain;
	int code;

	if (!hints)
		return -FI_ENOMEM;
	if (over_ip) {
		/* All interfaces, by IPv6, which takes IPv4 as well; see address.c for the address
		 * that peers are told. Hosts without IPv6 have the other. */
		hints->addr_format = FI_SOCKADDR_IN6;
		code = library->getinfo(OFI_API_VERSION, "::", NULL, FI_SOURCE, hints, &list);
		if (code != 0) {
			hints->addr_format = FI_SOCKADDR_IN;
			code = library->getinfo(OFI_API_VERSION, "0.0.0.0", NULL, FI_SOURCE, hints,
						&list);
		}
	} else {
		if (*domain)
			hints->domain_attr->name = strdup(domain);
		if (strstr(provider, "ofi_rxm"))
			hints->addr_format = FI_SOCKADDR_IN;
		code = library->getinfo(OFI_API_VERSION, NULL, NULL, 0, hints, &list);
	}
	library->freeinfo(hints);
	if (code != 0)
		return code;
	/* Not every provider minds the hint. */
	for (at = list; at && *domain; at = at->next) {
		if (strcmp(at->domain_attr->name, domain) == 0)
			break;
	}
	if (at)
		device->info = library->dupinfo(at);
	library->freeinfo(list);
	return !at ? -FI_ENODATA : device->info ? 0 : -FI_ENOMEM;
}

static enum rmr_status find_any(struct ofi_device *device)
{
	for (size_t i = 0; i < TABLE_SIZE; i++) {
		if (find(device, table[i].provider, "") == 0)
			return RMR_OK;
	}
	return error_set(RMR_NO_DEVICE, "libfabric has no provider here that could be used; "
					"'fi_info' shows what it finds");
}

enum rmr_status name_resolve(struct ofi_device *device, const char *instance)
{
	const char *colon = strchr(instance, ':'), *domain = colon ? colon + 1 : "", *advice = NULL;
	char provider[64];
	int code;

	if (!*instance)
		return find_any(device);
	snprintf(provider, sizeof(provider), "%.*s",
		 colon ? (int)(colon - instance) : (int)sizeof(provider) - 1, instance);
	for (size_t i = 0; i < TABLE_SIZE; i++) {
		if (strcmp(table[i].word, provider) != 0)
			continue;
		snprintf(provider, sizeof(provider), "%s", table[i].provider);
		advice = table[i].advice;
		break;
	}
	code = find(device, provider, domain);
	if (code == 0)
		return RMR_OK;
	return error_set(RMR_NO_DEVICE, "libfabric has no '%s' here%s%s (%s)%s%s", provider,
			 *domain ? " on " : "", domain, library_text(code), advice ? "; " : "",
			 advice ? advice : ", fi_info shows what it has");
}
