/* See segment.h. */
#include "fabric/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

enum rmr_status segment_map(int fd, size_t size, bool writable, void **memory)
{
	int wanted = F_SEAL_SHRINK | F_SEAL_GROW | (writable ? 0 : F_SEAL_FUTURE_WRITE);
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat stat;
	void *map;

	/* Without the seals the peer could shrink the file, or, in huge pages, punch a hole that
	 * cannot be filled again, and our next access would be SIGBUS. */
	if (seals < 0 || (seals & wanted) != wanted)
		return error_set(RMR_PROTOCOL, "the peer passed memory that is not sealed");
	if (size == 0 || fstat(fd, &stat) != 0 || (uint64_t)stat.st_size != size)
		return error_set(RMR_PROTOCOL, "the peer passed memory of the wrong size");
	map = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
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
