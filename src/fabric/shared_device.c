/* Devices of this process: see shared_device.h. */
#include "fabric/shared_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/list.h"

struct shared_device {
	struct list link;
	struct rmr_device *device;
	unsigned users;
	char name[64]; /* as it was asked for */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list devices = {&devices, &devices};
static unsigned owner; /* of the list: a generation of processes */

__attribute__((constructor)) static void guard_devices(void)
{
	fork_guard(FORK_LOCK_DEVICES, &lock);
}

/* What the parent of a fork opened is not ours: it is forgotten, not closed. */
static void look_whose(void)
{
	if (owner == fork_generation())
		return;
	owner = fork_generation();
	list_init(&devices);
}

static struct shared_device *find(const char *name)
{
	list_for_each (at, &devices) {
		struct shared_device *shared = list_entry(at, struct shared_device, link);

		if (strcmp(shared->name, name) == 0)
			return shared;
	}
	return NULL;
}

static enum rmr_status open_shared(const char *name, struct shared_device **result)
{
	struct shared_device *shared = calloc(1, sizeof(*shared));
	enum rmr_status status;

	if (!shared)
		return error_set(RMR_NO_MEMORY, "device '%s'", name);
	if (strlen(name) >= sizeof(shared->name)) {
		free(shared);
		return error_set(RMR_TOO_LONG, "device '%s'", name);
	}
	status = rmr_device_open(name, NULL, &shared->device);
	if (status != RMR_OK) {
		free(shared);
		return status;
	}
	strcpy(shared->name, name);
	list_add(&devices, &shared->link);
	*result = shared;
	return RMR_OK;
}

enum rmr_status device_take(const char *name, struct rmr_device **device)
{
	enum rmr_status status = RMR_OK;
	struct shared_device *shared;

	pthread_mutex_lock(&lock);
	look_whose();
	shared = find(name);
	if (!shared)
		status = open_shared(name, &shared);
	if (status == RMR_OK) {
		shared->users++;
		*device = shared->device;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

void device_give(struct rmr_device *device)
{
	pthread_mutex_lock(&lock);
	look_whose();
	list_for_each_safe (at, &devices) {
		struct shared_device *shared = list_entry(at, struct shared_device, link);

		if (shared->device != device || --shared->users)
			continue;
		list_remove(&shared->link);
		rmr_device_close(shared->device);
		free(shared);
	}
	pthread_mutex_unlock(&lock);
}
