/*
 * Options of a mesh: checked, defaults filled in, and the list of hosts taken apart into addresses
 * of the fabric, those of our thread in each process.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/host.h"
#include "rdma/address.h"
#include "rdma/mesh/internal.h"

#define DEFAULT_DEPTH	      128
#define DEFAULT_MESSAGE_SIZE  1024
#define DEFAULT_BATCH	      16
#define DEFAULT_DEAD_AFTER_MS 10000
#define DEFAULT_REDIAL_MS     500
#define THREAD_MAX	      65535

/* One entry of the list, as the fabric takes it. */
static enum rmr_status make_address(struct rmr_mesh *mesh, const char *entry,
				    char address[MESH_ADDRESS_SIZE])
{
	int thread = mesh->options.thread;
	enum rmr_status status;
	struct host_name host;
	int length;

	if (!*entry)
		return error_set(RMR_BAD_ADDRESS, "the list of hosts \"%s\" has an empty place",
				 mesh->options.hosts);
	if (address_device_is_shm(mesh->device_name)) {
		length = snprintf(address, MESH_ADDRESS_SIZE, "%s-%d", entry, thread);
		if (length >= MESH_ADDRESS_SIZE)
			return error_set(RMR_TOO_LONG, "the name \"%s\" of a host", entry);
		return RMR_OK;
	}
	status = host_parse(entry, 0, &host);
	if (status != RMR_OK)
		return status;
	if (host.port == 0 || host.port + thread > 65535)
		return error_set(RMR_BAD_ADDRESS,
				 "\"%s\": HOST:PORT is meant, and PORT + %d is where thread %d "
				 "listens: at most 65535",
				 entry, thread, thread);
	snprintf(address, MESH_ADDRESS_SIZE, strchr(host.host, ':') ? "[%s]:%d" : "%s:%d",
		 host.host, host.port + thread);
	return RMR_OK;
}

static enum rmr_status take_hosts(struct rmr_mesh *mesh)
{
	char *copy = strdup(mesh->options.hosts), *at = copy, *entry;
	enum rmr_status status = RMR_OK;

	mesh->count = 1;
	for (const char *c = mesh->options.hosts; *c; c++)
		mesh->count += *c == ',';
	if (mesh->count > RMR_MESH_MAX_HOSTS) {
		free(copy);
		return error_set(RMR_LIMIT, "%d hosts; a mesh has at most %d", mesh->count,
				 RMR_MESH_MAX_HOSTS);
	}
	mesh->addresses = calloc((size_t)mesh->count, sizeof(*mesh->addresses));
	if (!copy || !mesh->addresses)
		status = error_set(RMR_NO_MEMORY, "no memory for a list of hosts");
	for (int i = 0; status == RMR_OK && (entry = strsep(&at, ",")) != NULL; i++)
		status = make_address(mesh, entry, mesh->addresses[i]);
	for (int i = 0; status == RMR_OK && i < mesh->count; i++)
		for (int j = 0; j < i; j++)
			if (strcmp(mesh->addresses[i], mesh->addresses[j]) == 0)
				status = error_set(RMR_BAD_ADDRESS,
						   "hosts %d and %d are the same: %s", j, i,
						   mesh->addresses[i]);
	free(copy);
	return status;
}

static enum rmr_status check(const struct rmr_mesh_options *options)
{
	if (!options->hosts || !*options->hosts)
		return error_set(RMR_INVALID, "a mesh needs a list of hosts");
	if (!options->callback)
		return error_set(RMR_INVALID, "a mesh needs a callback");
	if (options->thread < 0 || options->thread > THREAD_MAX)
		return error_set(RMR_INVALID, "thread %d; they count from 0 to %d", options->thread,
				 THREAD_MAX);
	if (options->depth & (options->depth - 1) || options->depth > RMR_MESH_MAX_DEPTH)
		return error_set(RMR_INVALID, "depth %u; it is a power of two up to %d",
				 options->depth, RMR_MESH_MAX_DEPTH);
	if (options->message_size > MESH_MESSAGE_MAX)
		return error_set(RMR_INVALID, "messages of %zu bytes; they can have up to %u",
				 options->message_size, MESH_MESSAGE_MAX);
	if (options->memory && !options->memory_size)
		return error_set(RMR_INVALID, "memory of 0 bytes");
	if (options->dead_after_ms < 0 || options->redial_ms < 0)
		return error_set(RMR_INVALID, "dead_after_ms and redial_ms are not below 0");
	return RMR_OK;
}

static void fill(struct rmr_mesh *mesh)
{
	struct rmr_mesh_options *options = &mesh->options;

	if (!options->depth)
		options->depth = DEFAULT_DEPTH;
	if (!options->message_size)
		options->message_size = DEFAULT_MESSAGE_SIZE;
	if (!options->batch)
		options->batch = DEFAULT_BATCH;
	if (options->batch > options->depth)
		options->batch = options->depth;
	if (!options->dead_after_ms)
		options->dead_after_ms = DEFAULT_DEAD_AFTER_MS;
	if (!options->redial_ms)
		options->redial_ms = DEFAULT_REDIAL_MS;
	mesh->depth = options->depth;
	mesh->mask = options->depth - 1;
	mesh->batch = options->batch;
	mesh->half = options->depth > 2 ? options->depth / 2 : 1;
	/* As many sends as there are slots, and as many other works. */
	mesh->works_max = 2 * options->depth;
	mesh->slot_size =
		options->message_size > MESH_PAYLOAD_MIN ? options->message_size : MESH_PAYLOAD_MIN;
	mesh->slot_size = MESH_SLOT_HEAD + ((mesh->slot_size + 63) & ~(size_t)63);
}

enum rmr_status mesh_take_options(struct rmr_mesh *mesh, const struct rmr_mesh_options *options)
{
	enum rmr_status status = check(options);

	if (status != RMR_OK)
		return status;
	mesh->options = *options;
	fill(mesh);
	if (!options->device)
		address_default_device(mesh->device_name);
	else if (strlen(options->device) < sizeof(mesh->device_name))
		strcpy(mesh->device_name, options->device);
	else
		return error_set(RMR_NO_DEVICE, "no device has a name as long as \"%s\"",
				 options->device);
	status = take_hosts(mesh);
	if (status == RMR_OK && (options->id < 0 || options->id >= mesh->count))
		status = error_set(RMR_INVALID, "id %d; the list has hosts 0 to %d", options->id,
				   mesh->count - 1);
	return status;
}
