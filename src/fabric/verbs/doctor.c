/*
 * Why verbs do not work here, and what to do about it. Whoever meets one of these messages has
 * probably never set up RDMA before, so each says the next step.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/rdma_host.h"
#include "fabric/verbs/internal.h"

void doctor_no_device(char *to, size_t size)
{
	snprintf(to, size, "%s",
		 rdma_host_no_adapter(access("/sys/class/infiniband", F_OK) == 0,
				      access("/dev/infiniband", F_OK) == 0));
}

static const char *port_state(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_device_attr attr;
	const char *state = "down";

	if (!context)
		return "cannot be opened";
	if (ibv_query_device(context, &attr) != 0)
		attr.phys_port_cnt = 0;
	for (uint8_t i = 1; i <= attr.phys_port_cnt; i++) {
		struct ibv_port_attr port;

		if (ibv_query_port(context, i, &port) == 0 && port.state == IBV_PORT_ACTIVE)
			state = "active";
	}
	ibv_close_device(context);
	return state;
}

void doctor_list_devices(char *to, size_t size)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	size_t used = 0;

	to[0] = '\0';
	for (int i = 0; list && i < count && used < size; i++)
		used += (size_t)snprintf(to + used, size - used, "%s%s (%s)", i ? ", " : "",
					 ibv_get_device_name(list[i]), port_state(list[i]));
	if (count == 0)
		snprintf(to, size, "none");
	if (list)
		ibv_free_device_list(list);
}

/* Is there a file that this user may not use? libibverbs and librdmacm try several ways to open
 * it, and report how the last one failed. */
static bool is_forbidden(const char *file)
{
	char path[IBV_SYSFS_PATH_MAX];

	snprintf(path, sizeof(path), "/dev/infiniband/%s", file);
	return euidaccess(path, F_OK) == 0 && euidaccess(path, R_OK | W_OK) != 0;
}

enum rmr_status doctor_open_failed(struct ibv_device *adapter, int error)
{
	const char *device = ibv_get_device_name(adapter);

	if (is_forbidden(adapter->dev_name))
		error = EACCES;
	if (error == EACCES || error == EPERM)
		return error_errno(RMR_DENIED, error,
				   "no permission for %s: its file in /dev/infiniband must be "
				   "readable and writable for this user (a group 'rdma' and a udev "
				   "rule; in a container --device=/dev/infiniband)",
				   device);
	if (error == ENOENT || error == ENXIO || error == ENODEV)
		return error_errno(RMR_NO_DEVICE, error,
				   "%s has no file in /dev/infiniband; modprobe ib_uverbs", device);
	return error_errno(RMR_SYSTEM, error, "cannot open %s", device);
}

enum rmr_status doctor_no_cm(struct ibv_device *adapter, int error)
{
	bool forbidden = is_forbidden("rdma_cm");

	return error_errno(forbidden ? RMR_DENIED : RMR_NO_DEVICE, forbidden ? EACCES : error,
			   "no RDMA CM: modprobe rdma_ucm, and /dev/infiniband/rdma_cm must be "
			   "readable and writable for this user; or meet by TCP: 'verbs:%s,socket'",
			   ibv_get_device_name(adapter));
}

enum rmr_status doctor_adapter_gone(const struct rmr_device *device)
{
	return error_set(RMR_NO_DEVICE,
			 "the adapter of '%s' was removed or has failed: close all that is open "
			 "on the device, and when the adapter is back ('rdma link') open it again",
			 device->info.name);
}

/* What the process has pinned already, in bytes. */
static unsigned long long pinned_bytes(void)
{
	unsigned long long kib = 0;
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "VmPin: %llu kB", &kib) == 1)
			break;
	}
	if (file)
		fclose(file);
	return kib << 10;
}

enum rmr_status doctor_create_failed(const char *what, unsigned entries, int error)
{
	struct rlimit limit;

	if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
	    limit.rlim_cur != RLIM_INFINITY)
		return error_errno(
			RMR_NO_MEMORY, error,
			"no %s of %u entries: the adapter or the kernel has no room, or "
			"the memory that may be locked is too small (%llu KiB; ulimit -l)",
			what, entries, (unsigned long long)limit.rlim_cur >> 10);
	return error_errno(error == ENOMEM ? RMR_NO_MEMORY : RMR_LIMIT, error,
			   "no %s of %u entries: the adapter has no room, or other programs use "
			   "it up",
			   what, entries);
}

enum rmr_status doctor_register_failed(const void *address, size_t length, int error)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = (uintptr_t)address / page * page;
	uintptr_t end = ((uintptr_t)address + length + page - 1) / page * page;
	unsigned long long needed = pinned_bytes() + (end - first);
	struct rlimit limit;

	if ((error == ENOMEM || error == EAGAIN || error == EPERM) &&
	    getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    needed > limit.rlim_cur)
		return error_errno(
			RMR_NO_MEMORY, error,
			"the adapter must pin %llu KiB in all, and %llu KiB are allowed: raise the "
			"limit to at least %llu (ulimit -l, LimitMEMLOCK= of a systemd unit, "
			"/etc/security/limits.conf, --ulimit memlock=-1 of a container)",
			needed >> 10, (unsigned long long)limit.rlim_cur >> 10, needed >> 10);
	if (error == EFAULT)
		return error_errno(RMR_INVALID, error,
				   "the memory is not mapped, or not writable although it must be");
	if (error == ENOMEM)
		return error_errno(RMR_NO_MEMORY, error,
				   "the adapter or the kernel has no room for this region");
	if (error == EINVAL && ibv_is_fork_initialized() == IBV_FORK_ENABLED)
		return error_errno(RMR_SYSTEM, error,
				   "the adapter does not take this region; if it lies in huge "
				   "pages, set RDMAV_HUGEPAGES_SAFE=1 in the environment, which "
				   "kernels before 5.12 need");
	return error_errno(RMR_SYSTEM, error, "the adapter does not take this region");
}
