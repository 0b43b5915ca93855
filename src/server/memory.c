/*
 * The server's memory: whether there is as much, of what pages it is, and touching all of it.
 *
 * An arena is taken without its pages. They come at their first use, or here: if the program asked
 * for it, and if an adapter is going to register the memory, which needs every page anyway. That
 * takes a second for every few gigabytes, so several threads do it, piece by piece, and the program
 * is told how far they are.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"
#include "server/internal.h"

#define HUGE_PAGE      ((uint64_t)2 << 20)
#define HUGE_DIRECTORY "/sys/kernel/mm/hugepages/hugepages-2048kB"
#define TOUCH_PIECE    ((size_t)32 << 20)
#define TOUCH_THREADS  8

#define CELL_FOR_BYTES	     256u /* of the store */
#define MIN_CELLS	     65536u
#define MAX_CELLS	     (1u << 28)
#define MAX_REGISTERED_CELLS (1u << 20) /* 8 MiB */

/* ------------------------------------------------------------------------------------------
 * What the machine has
 */

/* A figure of /proc/meminfo in bytes; 0: there is none. */
static uint64_t meminfo(const char *name)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128], found[64];
	uint64_t kilobytes, bytes = 0;

	while (file && !bytes && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%63[^:]: %" SCNu64 " kB", found, &kilobytes) == 2 &&
		    strcmp(found, name) == 0)
			bytes = kilobytes * 1024;
	}
	if (file)
		fclose(file);
	return bytes;
}

/* A number in a file of the huge pages; false: this kernel has none. */
static bool huge_figure(const char *name, uint64_t *figure)
{
	char path[128];
	FILE *file;
	bool good;

	snprintf(path, sizeof(path), HUGE_DIRECTORY "/%s", name);
	file = fopen(path, "re");
	good = file && fscanf(file, "%" SCNu64, figure) == 1;
	if (file)
		fclose(file);
	return good;
}

int memory_check(const struct kv_server_options *options)
{
	uint64_t all = meminfo("MemTotal") + meminfo("SwapTotal"), now = meminfo("MemAvailable");
	char wanted[SIZE_TEXT_LENGTH];

	size_format(options->memory, wanted);
	if (all && options->memory > all)
		return server_fail(KV_NO_MEMORY,
				   "%s of memory are wanted, and this machine has %" PRIu64
				   "MB in all; ask for less",
				   wanted, all >> 20);
	/* Huge pages were set aside before, and do not count as available. */
	if (now && options->prefault && !options->huge_pages && options->memory > now)
		return server_fail(KV_NO_MEMORY,
				   "%s of memory are wanted now, and %" PRIu64
				   "MB are free; ask for less, or do not touch all of it at start",
				   wanted, now >> 20);
	return KV_OK;
}

/* ------------------------------------------------------------------------------------------
 * Touching
 */

struct touching {
	uint8_t *base;
	size_t size, page_size;
	atomic_size_t next, done;
	atomic_int error; /* errno of the first that failed */
};

int memory_progress(const struct kv_server *server, const char *what, uint64_t done, uint64_t total)
{
	const struct kv_server_options *options = &server->options;

	if (options->progress && !options->progress(options->progress_argument, what, done, total))
		return server_fail(KV_TIMEOUT, "%s: given up", what);
	return KV_OK;
}

/* Touches the next piece. False: there is none, or something is wrong. */
static bool touch_piece(struct touching *touching)
{
	size_t offset = atomic_fetch_add(&touching->next, TOUCH_PIECE);
	size_t length = TOUCH_PIECE;
	int error = 0;

	if (offset >= touching->size || atomic_load(&touching->error))
		return false;
	if (length > touching->size - offset)
		length = touching->size - offset;
	if (madvise(touching->base + offset, length, MADV_POPULATE_WRITE) != 0)
		error = errno;
	if (error == EINVAL) {
		/* A kernel before 5.14. Nobody has this memory yet: zeros change nothing. */
		for (size_t i = 0; i < length; i += touching->page_size)
			*(volatile uint8_t *)(touching->base + offset + i) = 0;
		error = 0;
	}
	if (error)
		atomic_store(&touching->error, error);
	else
		atomic_fetch_add(&touching->done, length);
	return !error;
}

static void *touch_run(void *argument)
{
	while (touch_piece(argument))
		;
	return NULL;
}

/* Signals are the program's: none of our threads takes one. */
static unsigned start_helpers(struct touching *touching, pthread_t threads[TOUCH_THREADS])
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned count = 0;
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (count < TOUCH_THREADS && (long)count + 1 < cores &&
	       (count + 1) * TOUCH_PIECE < touching->size &&
	       pthread_create(&threads[count], NULL, touch_run, touching) == 0)
		count++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return count;
}

static int touch_all(struct kv_server *server)
{
	struct touching touching = {
		.base = rmr_arena_base(server->arena),
		.size = rmr_arena_size(server->arena),
		.page_size = rmr_arena_page_size(server->arena),
	};
	pthread_t threads[TOUCH_THREADS];
	unsigned count = start_helpers(&touching, threads);
	int error, told;

	do {
		told = memory_progress(server, "touching memory", atomic_load(&touching.done),
				       touching.size);
	} while (told == KV_OK && touch_piece(&touching));
	if (told != KV_OK)
		atomic_store(&touching.error, ECANCELED);
	for (unsigned i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	error = atomic_load(&touching.error);
	if (told != KV_OK)
		return told;
	if (error)
		return server_fail(KV_NO_MEMORY,
				   "touching %zu bytes of memory: %s; there is not as much free, "
				   "ask for less",
				   touching.size, strerror(error));
	return memory_progress(server, "touching memory", touching.size, touching.size);
}

/* Some adapter will register the memory, and so need all of its pages. */
static bool is_registered(const struct kv_server *server)
{
	for (unsigned i = 0; i < server->path_count; i++) {
		if (server->paths[i].device && server->paths[i].kind == PATH_VERBS)
			return true;
	}
	return false;
}

/* How many cells, if the program does not say. Memory of cells comes page by page with their use,
 * so there may be as many as the store could hold counters of some length. What an adapter
 * registers is there from the start, and kept small. The server counts what is beyond. */
static uint32_t default_cells(const struct kv_server *server)
{
	uint64_t cells = server->options.memory / CELL_FOR_BYTES;

	if (cells < MIN_CELLS)
		cells = MIN_CELLS;
	if (cells > MAX_REGISTERED_CELLS && is_registered(server))
		cells = MAX_REGISTERED_CELLS;
	return cells < MAX_CELLS ? (uint32_t)cells : MAX_CELLS;
}

int memory_open(struct kv_server *server)
{
	struct kv_server_options *options = &server->options;
	enum rmr_status status;
	int checked = memory_check(options);

	if (checked != KV_OK)
		return checked;
	status = rmr_arena_open(options->memory, options->huge_pages ? RMR_ARENA_HUGE : 0,
				&server->arena);
	if (status != RMR_OK)
		return server_fail_rmr(error_context(status, "memory of the store"));
	if (!options->counters)
		options->counters = default_cells(server);
	status = rmr_arena_open((size_t)options->counters * sizeof(uint64_t), RMR_ARENA_PEERS_WRITE,
				&server->cells_arena);
	if (status != RMR_OK)
		return server_fail_rmr(error_context(status, "memory of the counters"));
	return options->prefault || is_registered(server) ? touch_all(server) : KV_OK;
}

/* ------------------------------------------------------------------------------------------
 * Telling
 */

/* Why there are none, and how to have some. */
static void describe_missing(uint64_t needed, char *text, size_t size)
{
	uint64_t all, spare, reserved = 0;

	if (!huge_figure("nr_hugepages", &all) || !huge_figure("free_hugepages", &spare)) {
		snprintf(text, size, "; this kernel has no huge ones of 2MiB");
		return;
	}
	(void)huge_figure("resv_hugepages", &reserved);
	spare = spare > reserved ? spare - reserved : 0;
	if (spare >= needed) /* set aside since we asked, or kept from us by a control group */
		snprintf(text, size,
			 "; huge ones of 2MiB were not to be had, though %" PRIu64
			 " are free now: start again",
			 spare);
	else
		snprintf(text, size,
			 "; %" PRIu64 " huge ones of 2MiB are free, %" PRIu64
			 " are needed: sysctl -w vm.nr_hugepages=%" PRIu64,
			 spare, needed, all - spare + needed);
}

const char *kv_server_summary(kv_server_t *server)
{
	const struct kv_server_options *options = &server->options;
	char size[SIZE_TEXT_LENGTH], page[SIZE_TEXT_LENGTH], missing[256] = "";
	uint64_t total = rmr_arena_size(server->arena);
	uint64_t page_size = rmr_arena_page_size(server->arena);
	bool huge = page_size >= HUGE_PAGE;
	struct server_keys keys;

	if (options->huge_pages && !huge)
		describe_missing((total + HUGE_PAGE - 1) / HUGE_PAGE, missing, sizeof(missing));
	keys_copy(server, &keys);
	snprintf(server->summary, sizeof(server->summary),
		 "memory: %s, when full: %s\n"
		 "pages: %" PRIu64 " %s of %s%s%s\n"
		 "workers: %u thread%s\n"
		 "access: %s\n",
		 size_format(options->memory, size), options->reject ? "reject" : "evict",
		 total / page_size, huge ? "huge ones" : "ordinary ones",
		 size_format(page_size, page), options->prefault ? ", all touched" : "", missing,
		 options->workers, options->workers == 1 ? "" : "s",
		 !keys.write.count && server->is_guarded && !listen_is_open(server)
			 ? "this host alone, without a key; to open: -a ADDRESS --key-file FILE"
		 : !keys.write.count ? "everybody who can reach a path below"
		 : keys.read.count   ? "with the shared key, or with another one to read"
				     : "with the shared key");
	keys_wipe(&keys);
	return server->summary;
}
