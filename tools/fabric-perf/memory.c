/*
 * Memory of fabric-perf; the same on both sides.
 *
 * Layout. What is measured should be the transport, not the memory behind it, and all contestants
 * of scripts/bench-fabric reuse the same buffers over and over. So here: operations in flight at
 * the same time have buffers of their own (a cache line apart at least) as long as all of them
 * together stay in the second-level cache, and share buffers beyond that. A megabyte READ always
 * lands in the same megabyte.
 */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define CACHE_LINE   64u
#define PAGE	     4096u
#define SPREAD_BYTES (256u << 10)

static size_t round_up(size_t size, size_t unit)
{
	return (size + unit - 1) / unit * unit;
}

static enum rmr_status get_bytes(struct memory *memory, size_t size, unsigned flags)
{
	unsigned arena_flags = RMR_ARENA_PEERS_WRITE | RMR_ARENA_PREFAULT;
	enum rmr_status status;

	if (flags & MEMORY_PLAIN) {
		memory->plain = aligned_alloc(PAGE, round_up(size, PAGE));
		if (!memory->plain)
			return error_set(RMR_NO_MEMORY, "%zu bytes of plain memory", size);
		memset(memory->plain, 0, size);
		memory->base = memory->plain;
		return RMR_OK;
	}
	if (flags & MEMORY_HUGE)
		arena_flags |= RMR_ARENA_HUGE;
	status = rmr_arena_open(size, arena_flags, &memory->arena);
	if (status == RMR_OK)
		memory->base = rmr_arena_base(memory->arena);
	return status;
}

enum rmr_status memory_open(struct memory *memory, struct rmr_device *device, size_t size,
			    unsigned rights, unsigned flags)
{
	unsigned needed = flags & MEMORY_PLAIN ? RMR_CAP_ATOMIC_PLAIN : RMR_CAP_ATOMIC;
	enum rmr_status status;

	*memory = (struct memory){.size = size};
	if (!(rmr_device_info(device)->capabilities & needed))
		rights &= ~(unsigned)RMR_ATOMIC;
	status = get_bytes(memory, size, flags);
	if (status == RMR_OK)
		status = rmr_region_open(device, memory->base, size, rights, &memory->region);
	if (status != RMR_OK)
		memory_close(memory);
	return status;
}

void memory_close(struct memory *memory)
{
	rmr_region_close(memory->region);
	rmr_arena_close(memory->arena);
	free(memory->plain);
	*memory = (struct memory){0};
}

struct layout layout_of(uint64_t size, uint32_t depth)
{
	struct layout layout = {.slots = 1, .stride = round_up(size ? size : 1, CACHE_LINE)};
	size_t fit = SPREAD_BYTES / layout.stride;

	if (fit > 1)
		layout.slots = depth < fit ? depth : (uint32_t)fit;
	layout.total = layout.slots * layout.stride;
	return layout;
}

static uint64_t pattern_word(size_t index, enum pattern pattern)
{
	/* An odd multiplier near 2^64 divided by the golden ratio: every byte changes with index.
	 */
	return (index * 2 + (size_t)pattern) * UINT64_C(0x9e3779b97f4a7c15);
}

void pattern_fill(void *bytes, size_t length, enum pattern pattern)
{
	char *to = bytes;

	for (size_t i = 0; i < length; i += 8) {
		uint64_t word = pattern_word(i / 8, pattern);

		memcpy(to + i, &word, length - i < 8 ? length - i : 8);
	}
}

bool pattern_matches(const void *bytes, size_t length, enum pattern pattern)
{
	const char *from = bytes;

	for (size_t i = 0; i < length; i += 8) {
		uint64_t word = pattern_word(i / 8, pattern);

		if (memcmp(from + i, &word, length - i < 8 ? length - i : 8))
			return false;
	}
	return true;
}
