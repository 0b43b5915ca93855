/*
 * Devices by name. The part before the first colon names the provider, the rest is the provider's
 * business: "tcp", "verbs:mlx5_0", "fault:shm".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fabric/provider.h"

static const struct rmr_provider *find_provider(const char *name, const char **instance)
{
	size_t length = strcspn(name, ":");

	for (int i = 0; fabric_providers[i]; i++) {
		const struct rmr_provider *provider = fabric_providers[i];

		if (strlen(provider->name) == length && memcmp(provider->name, name, length) == 0) {
			*instance = name[length] == ':' ? name + length + 1 : "";
			return provider;
		}
	}
	return NULL;
}

static enum rmr_status no_such_device(const char *name)
{
	struct rmr_device_entry entries[32];
	size_t count = rmr_device_list(entries, 32), used = 0, length = strcspn(name, ":");
	char text[256] = "";

	for (int i = 0; fabric_missing[i].name[0]; i++) {
		if (strlen(fabric_missing[i].name) == length &&
		    memcmp(fabric_missing[i].name, name, length) == 0)
			return error_set(RMR_NO_DEVICE, "'%s': %s", name, fabric_missing[i].reason);
	}
	for (size_t i = 0; i < count && i < 32 && used < sizeof(text); i++) {
		if (entries[i].usable)
			used += (size_t)snprintf(text + used, sizeof(text) - used, " %s",
						 entries[i].name);
	}
	return error_set(RMR_NO_DEVICE, "there is no device '%s'; there are:%s", name, text);
}

/* Every slot that is not optional must be there: a provider that lacks one is our bug. */
static void check_provider(const struct rmr_provider *p)
{
	assert(p->name && p->id && p->device_entry && p->device_init && p->device_fini);
	assert(p->region_init && p->region_fini && p->region_export && p->remote_init &&
	       p->remote_fini);
	assert(p->queue_init && p->queue_fini && p->listener_init && p->listener_fini &&
	       p->listener_next);
	assert(p->accept && p->reject && p->connect && p->conn_fini);
	assert(p->post && p->flush && p->poll && p->arm && p->recv_release);
	assert(p->device_size >= sizeof(struct rmr_device) &&
	       p->region_size >= sizeof(struct rmr_region) &&
	       p->queue_size >= sizeof(struct rmr_queue) &&
	       p->conn_size >= sizeof(struct rmr_conn) &&
	       p->remote_size >= sizeof(struct rmr_remote) &&
	       p->listener_size >= sizeof(struct rmr_listener) &&
	       p->request_size >= sizeof(struct rmr_request));
}

enum rmr_status rmr_device_open(const char *name, const struct rmr_device_options *options,
				struct rmr_device **out)
{
	static const struct rmr_device_options defaults;
	static const struct rmr_grant_limits default_grants = {.arenas = 1u << 16,
							       .bytes = (uint64_t)1 << 46};
	const struct rmr_provider *provider;
	struct rmr_device *device;
	const char *instance;
	enum rmr_status status;

	if (!name || !out)
		return error_set(RMR_INVALID,
				 "rmr_device_open: no name, or nowhere to put the device");
	provider = find_provider(name, &instance);
	if (!provider || strlen(name) >= sizeof(device->info.name))
		return no_such_device(name);
	check_provider(provider);
	device = calloc(1, provider->device_size);
	if (!device)
		return error_set(RMR_NO_MEMORY, "no memory for device '%s'", name);
	device->provider = provider;
	device->generation = fork_generation();
	snprintf(device->info.name, sizeof(device->info.name), "%s", name);
	snprintf(device->info.provider, sizeof(device->info.provider), "%s", provider->name);
	device->grants = options && options->grants ? *options->grants : default_grants;
	status = provider->device_init(device, instance, options ? options : &defaults);
	if (status != RMR_OK) {
		free(device);
		return error_context(status, "opening device '%s'", name);
	}
	*out = device;
	return RMR_OK;
}

void rmr_device_close(struct rmr_device *device)
{
	if (!device)
		return;
	if (fork_is_foreign(device->generation))
		return; /* its memory and its threads are the parent's */
	assert(atomic_load(&device->children) == 0);
	device->provider->device_fini(device);
	free(device);
}

enum rmr_status foreign_handle(void)
{
	return error_set(RMR_INVALID, FORK_MESSAGE);
}

const struct rmr_device_info *rmr_device_info(const struct rmr_device *device)
{
	return &device->info;
}

size_t rmr_device_list(struct rmr_device_entry *entries, size_t max)
{
	size_t count = 0;

	for (int i = 0; fabric_providers[i]; i++) {
		struct rmr_device_entry entry = {0};

		for (unsigned k = 0; fabric_providers[i]->device_entry(k, &entry); k++) {
			if (count < max)
				entries[count] = entry;
			count++;
			entry = (struct rmr_device_entry){0};
		}
	}
	for (int i = 0; fabric_missing[i].name[0]; i++) {
		if (count < max)
			entries[count] = fabric_missing[i];
		count++;
	}
	return count;
}
