/* See segment.h. */
#include "fabric/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/error.h"

enum rmr_status segment_create(size_t size, void **memory, int *fd)
{
	enum rmr_status status;
	void *map;

	*fd = memfd_create("remora-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot make shared memory");
	if (ftruncate(*fd, (off_t)size) != 0) {
		status = error_errno(RMR_NO_MEMORY, errno, "cannot size shared memory");
		goto close_fd;
	}
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (map == MAP_FAILED) {
		status = error_errno(RMR_NO_MEMORY, errno, "cannot map %zu bytes", size);
		goto close_fd;
	}
	if (fcntl(*fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
		status = error_errno(RMR_SYSTEM, errno,
				     "cannot seal shared memory (Linux 5.1 or newer is needed)");
		munmap(map, size);
		goto close_fd;
	}
	*memory = map;
	return RMR_OK;

close_fd:
	close(*fd);
	*fd = -1;
	return status;
}

/* May we map this file? Only a memfd has these seals. Its owner can punch holes into one that is
 * writable. In ordinary pages our next access then fills the hole; in huge pages there may be none
 * to fill it with, and the access is SIGBUS. F_SEAL_FUTURE_WRITE forbids holes. */
static enum rmr_status check_file(int fd, size_t size, unsigned flags)
{
	bool writable = flags & SEGMENT_WRITABLE;
	int wanted = F_SEAL_SHRINK | F_SEAL_GROW | (writable ? 0 : F_SEAL_FUTURE_WRITE);
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs system;
	struct stat stat;

	if (seals < 0 || (seals & wanted) != wanted)
		return error_set(RMR_PROTOCOL, "the peer passed memory that is not sealed");
	if (size == 0 || fstat(fd, &stat) != 0 || (uint64_t)stat.st_size != size)
		return error_set(RMR_PROTOCOL, "the peer passed memory of the wrong size");
	if (fstatfs(fd, &system) != 0)
		return error_errno(RMR_SYSTEM, errno, "cannot examine the peer's memory");
	if (system.f_type == HUGETLBFS_MAGIC && (writable || !(flags & SEGMENT_HUGE)))
		return error_set(RMR_DENIED,
				 "the peer's memory lies in huge pages, which it could take away "
				 "under us; it has to use an arena of ordinary pages");
	return RMR_OK;
}

enum rmr_status segment_map(int fd, size_t size, unsigned flags, void **memory)
{
	int protection = PROT_READ | (flags & SEGMENT_WRITABLE ? PROT_WRITE : 0);
	enum rmr_status status = check_file(fd, size, flags);
	void *map;

	if (status != RMR_OK)
		return status;
	map = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return error_errno(errno == EPERM || errno == EACCES ? RMR_PROTOCOL : RMR_LIMIT,
				   errno, "cannot map %zu bytes of the peer's memory", size);
	*memory = map;
	return RMR_OK;
}

void segment_unmap(const void *memory, size_t size)
{
	if (memory)
		munmap((void *)memory, size);
}
