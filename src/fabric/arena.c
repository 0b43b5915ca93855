/*
 * Arenas: memory made to be shared.
 *
 * An arena is a memfd, so that it can be given to another process (shm) and lie in huge pages, and
 * is mapped once. After that map is made the file is sealed: always against shrinking and growing
 * (a peer that maps it must never meet SIGBUS), and, unless peers may write, against any further
 * writable map. The order matters: F_SEAL_FUTURE_WRITE spares the maps that exist already, so
 * the owner's own map stays writable while nobody, the owner included, can make another.
 *
 * All arenas of the process are in one list, so that a region can find out by its address that it
 * lies in one. The list is only walked when regions are opened; arenas are few.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/log.h"
#include "fabric/provider.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define ALL_FLAGS (unsigned)(RMR_ARENA_PEERS_WRITE | RMR_ARENA_HUGE | RMR_ARENA_PREFAULT)

struct rmr_arena {
	struct list link;
	uint64_t id;
	uint8_t *base;
	size_t size;
	size_t page_size;
	int fd;
	bool peers_write;
	atomic_int regions; /* that lie in it */
};

static pthread_mutex_t arenas_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list arenas = {&arenas, &arenas};
static uint64_t last_id;

__attribute__((constructor)) static void guard_arenas(void)
{
	fork_guard(FORK_LOCK_ARENAS, &arenas_lock);
}

/* Touches every page, so that missing memory is missed now and not at some store later. */
static bool populate(uint8_t *base, size_t size, size_t page_size)
{
	if (madvise(base, size, MADV_POPULATE_WRITE) == 0)
		return true;
	if (errno != EINVAL)
		return false;
	for (size_t i = 0; i < size; i += page_size) /* a kernel before 5.14 */
		*(volatile uint8_t *)(base + i) = 0;
	return true;
}

/* Maps size bytes of a new memfd. On failure nothing is left, and errno says why. */
static bool map_memfd(struct rmr_arena *arena, size_t size, size_t page_size, bool prefault)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int errnum;

	if (page_size == HUGE_PAGE)
		flags |= MFD_HUGETLB | MFD_HUGE_2MB;
	size = (size + page_size - 1) & ~(page_size - 1);
	arena->fd = memfd_create("remora-arena", flags);
	if (arena->fd < 0)
		return false;
	if (ftruncate(arena->fd, (off_t)size) != 0)
		goto close_fd;
	arena->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0);
	if (arena->base == MAP_FAILED)
		goto close_fd;
	if (prefault && !populate(arena->base, size, page_size))
		goto unmap;
	arena->size = size;
	arena->page_size = page_size;
	return true;

unmap:
	errnum = errno;
	munmap(arena->base, size);
	errno = errnum;
close_fd:
	errnum = errno;
	close(arena->fd);
	errno = errnum;
	return false;
}

static enum rmr_status map_arena(struct rmr_arena *arena, size_t size, unsigned flags)
{
	bool prefault = flags & RMR_ARENA_PREFAULT;
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);

	if (flags & RMR_ARENA_HUGE) {
		if (map_memfd(arena, size, HUGE_PAGE, prefault))
			return RMR_OK;
		log_warn("no huge pages for %zu bytes, using ordinary ones; %zu more must be free "
			 "(HugePages_Free in /proc/meminfo): raise vm.nr_hugepages",
			 size, (size + HUGE_PAGE - 1) / HUGE_PAGE);
	}
	if (map_memfd(arena, size, page_size, prefault))
		return RMR_OK;
	if (errno == EMFILE || errno == ENFILE)
		return error_set(RMR_LIMIT,
				 "no file descriptor free for an arena; raise ulimit -n");
	return error_errno(RMR_NO_MEMORY, errno, "cannot make an arena of %zu bytes", size);
}

enum rmr_status rmr_arena_open(size_t size, unsigned flags, struct rmr_arena **out)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct rmr_arena *arena;
	enum rmr_status status;

	if (size == 0 || (flags & ~ALL_FLAGS))
		return error_set(RMR_INVALID,
				 "an arena of %zu bytes with flags 0x%x makes no sense", size,
				 flags);
	if (size > (size_t)1 << 46)
		return error_set(RMR_NO_MEMORY, "no machine has %zu bytes", size);
	arena = calloc(1, sizeof(*arena));
	if (!arena)
		return error_set(RMR_NO_MEMORY, "no memory for an arena");
	status = map_arena(arena, size, flags);
	if (status != RMR_OK)
		goto free_arena;
	arena->peers_write = flags & RMR_ARENA_PEERS_WRITE;
	if (!arena->peers_write)
		seals |= F_SEAL_FUTURE_WRITE;
	if (fcntl(arena->fd, F_ADD_SEALS, seals) != 0) {
		status = error_errno(RMR_SYSTEM, errno,
				     "cannot seal an arena (Linux 5.1 or newer is needed)");
		goto unmap;
	}
	pthread_mutex_lock(&arenas_lock);
	arena->id = ++last_id;
	list_add_tail(&arenas, &arena->link);
	pthread_mutex_unlock(&arenas_lock);
	*out = arena;
	return RMR_OK;

unmap:
	munmap(arena->base, arena->size);
	close(arena->fd);
free_arena:
	free(arena);
	return status;
}

void rmr_arena_close(struct rmr_arena *arena)
{
	if (!arena)
		return;
	assert(atomic_load(&arena->regions) == 0);
	pthread_mutex_lock(&arenas_lock);
	list_remove(&arena->link);
	pthread_mutex_unlock(&arenas_lock);
	munmap(arena->base, arena->size);
	close(arena->fd);
	free(arena);
}

void *rmr_arena_base(const struct rmr_arena *arena)
{
	return arena->base;
}

size_t rmr_arena_size(const struct rmr_arena *arena)
{
	return arena->size;
}

size_t rmr_arena_page_size(const struct rmr_arena *arena)
{
	return arena->page_size;
}

struct rmr_arena *arena_find(const void *address, size_t length)
{
	struct rmr_arena *found = NULL;

	pthread_mutex_lock(&arenas_lock);
	list_for_each (link, &arenas) {
		struct rmr_arena *arena = list_entry(link, struct rmr_arena, link);
		size_t offset = (size_t)((const uint8_t *)address - arena->base);

		if ((const uint8_t *)address >= arena->base && offset <= arena->size &&
		    length <= arena->size - offset) {
			found = arena;
			break;
		}
	}
	pthread_mutex_unlock(&arenas_lock);
	return found;
}

bool arena_straddles(const void *address, size_t length)
{
	bool found = false;

	pthread_mutex_lock(&arenas_lock);
	list_for_each (link, &arenas) {
		const struct rmr_arena *arena = list_entry(link, struct rmr_arena, link);

		found |= (const uint8_t *)address < arena->base + arena->size &&
			 arena->base < (const uint8_t *)address + length;
	}
	pthread_mutex_unlock(&arenas_lock);
	return found;
}

void arena_hold(struct rmr_arena *arena)
{
	atomic_fetch_add(&arena->regions, 1);
}

void arena_drop(struct rmr_arena *arena)
{
	atomic_fetch_sub(&arena->regions, 1);
}

bool arena_is_open(uint64_t id)
{
	bool found = false;

	pthread_mutex_lock(&arenas_lock);
	list_for_each (link, &arenas)
		found |= list_entry(link, struct rmr_arena, link)->id == id;
	pthread_mutex_unlock(&arenas_lock);
	return found;
}

int arena_fd(const struct rmr_arena *arena)
{
	return arena->fd;
}

uint64_t arena_id(const struct rmr_arena *arena)
{
	return arena->id;
}

bool arena_peers_write(const struct rmr_arena *arena)
{
	return arena->peers_write;
}
