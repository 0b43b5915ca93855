/*
 * register-memory: how long it takes to make memory present, and to register it.
 *
 *	register-memory fault MIB THREADS	a new arena is made present by so many threads, as
 *						the verbs provider does before it registers
 *	register-memory DEVICE MIB PIECE	a new arena is registered on a device, in regions of
 *						PIECE MiB: below 64 the verbs provider leaves the
 *						faults to the kernel, which has one thread for it
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <remora/fabric.h>

#include "base/clock.h"

#define MIB	    ((size_t)1 << 20)
#define THREADS_MAX 64
#define PIECES_MAX  65536

struct part {
	pthread_t thread;
	uint8_t *address;
	size_t length;
};

static void check(enum rmr_status status)
{
	if (status == RMR_OK)
		return;
	fprintf(stderr, "register-memory: %s\n", rmr_error_message());
	exit(1);
}

static void *touch(void *argument)
{
	struct part *part = argument;

	if (madvise(part->address, part->length, MADV_POPULATE_WRITE) != 0)
		perror("register-memory: madvise");
	return NULL;
}

static void fault(uint8_t *memory, size_t size, size_t threads)
{
	struct part parts[THREADS_MAX];

	for (size_t i = 0; i < threads; i++) {
		parts[i].address = memory + i * (size / threads);
		parts[i].length = size / threads;
		if (pthread_create(&parts[i].thread, NULL, touch, &parts[i]) != 0)
			exit(1);
	}
	for (size_t i = 0; i < threads; i++)
		pthread_join(parts[i].thread, NULL);
}

/* Returns how many regions it opened. */
static size_t enroll(struct rmr_device *device, uint8_t *memory, size_t size, size_t piece,
		     struct rmr_region *regions[PIECES_MAX])
{
	size_t count = 0;

	for (size_t at = 0; at < size; at += piece)
		check(rmr_region_open(device, memory + at, size - at < piece ? size - at : piece,
				      RMR_READ, &regions[count++]));
	return count;
}

int main(int argc, char **argv)
{
	static struct rmr_region *regions[PIECES_MAX];
	struct rmr_device *device = NULL;
	size_t size, number, count = 0;
	struct rmr_arena *arena;
	uint64_t begin_ns;

	size = argc == 4 ? strtoul(argv[2], NULL, 10) * MIB : 0;
	number = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	if (size == 0 || number == 0 || size / MIB / number >= PIECES_MAX) {
		fprintf(stderr, "usage: register-memory fault MIB THREADS | DEVICE MIB PIECE\n");
		return 2;
	}
	check(rmr_arena_open(size, 0, &arena));
	if (strcmp(argv[1], "fault") != 0)
		check(rmr_device_open(argv[1], NULL, &device));
	begin_ns = clock_now_ns();
	if (device)
		count = enroll(device, rmr_arena_base(arena), size, number * MIB, regions);
	else
		fault(rmr_arena_base(arena), size, number < THREADS_MAX ? number : THREADS_MAX);
	printf("%s %s %s: %.0f ms\n", argv[1], argv[2], argv[3],
	       (double)(clock_now_ns() - begin_ns) / 1e6);
	while (count > 0)
		rmr_region_close(regions[--count]);
	if (device)
		rmr_device_close(device);
	rmr_arena_close(arena);
	return 0;
}
