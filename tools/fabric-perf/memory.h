/*
 * Memory of fabric-perf: where it comes from, how a test lays its buffers out in it, and which
 * bytes are in them. See memory.c.
 */
#ifndef FABRIC_PERF_MEMORY_H
#define FABRIC_PERF_MEMORY_H

#include <remora/fabric.h>

struct memory {
	struct rmr_arena *arena; /* or NULL: */
	void *plain;
	char *base;
	size_t size;
	struct rmr_region *region;
};

enum memory_flag { MEMORY_PLAIN = 1 << 0, MEMORY_HUGE = 1 << 1 };

/* Gets size bytes and registers them on device with rights for peers; atomic rights are left out
 * where the device cannot give them. */
RMR_MUST_CHECK enum rmr_status memory_open(struct memory *memory, struct rmr_device *device,
					   size_t size, unsigned rights, unsigned flags);
/* Legal on a zeroed one. */
void memory_close(struct memory *memory);

/* The buffers of a test: operation number i uses buffer i % slots, at slot * stride. */
struct layout {
	uint32_t slots;
	size_t stride;
	size_t total;
};

struct layout layout_of(uint64_t size, uint32_t depth);

static inline size_t layout_offset(const struct layout *layout, uint64_t sequence)
{
	return (size_t)(sequence % layout->slots) * layout->stride;
}

/* Bytes that tell whose they are: pattern PATTERN_SERVER lies in the server's memory when a test
 * begins, PATTERN_CLIENT is what clients write and send. */
enum pattern { PATTERN_SERVER = 1, PATTERN_CLIENT = 2 };

void pattern_fill(void *bytes, size_t length, enum pattern pattern);
bool pattern_matches(const void *bytes, size_t length, enum pattern pattern);

#endif
