/*
 * Scratch: memory for one unpacked message at a time, and for what a method needs while it answers.
 * protobuf-c allocates each part of a message by itself; here that is an addition, and freeing all
 * of it another. What does not fit gets blocks from the heap, as many bytes as `most` permits: a
 * message of a few megabytes can unpack to many times that if it is made of tiny parts.
 */
#include "control/server/internal.h"

#include <stdlib.h>

#define FIRST_ROOM (32u << 10)
#define ALIGNMENT  16u

struct scratch_block {
	struct scratch_block *next;
	size_t size;
	alignas(ALIGNMENT) uint8_t bytes[];
};

static void *take(void *context, size_t size)
{
	struct scratch *scratch = context;
	struct scratch_block *block;

	if (size > scratch->most)
		return NULL;
	size = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
	if (size <= scratch->room - scratch->used) {
		scratch->used += size;
		return scratch->bytes + scratch->used - size;
	}
	if (size > scratch->most - scratch->block_bytes)
		return NULL;
	block = malloc(sizeof(*block) + size);
	if (!block)
		return NULL;
	block->next = scratch->blocks;
	block->size = size;
	scratch->blocks = block;
	scratch->block_bytes += size;
	return block->bytes;
}

static void keep(void *context, void *memory)
{
	(void)context;
	(void)memory;
}

bool scratch_init(struct scratch *scratch, size_t most)
{
	*scratch = (struct scratch){
		.allocator = {.alloc = take, .free = keep, .allocator_data = scratch},
		.bytes = aligned_alloc(ALIGNMENT, FIRST_ROOM),
		.room = FIRST_ROOM,
		.most = most & ~(size_t)(ALIGNMENT - 1),
	};
	return scratch->bytes != NULL;
}

void scratch_reset(struct scratch *scratch)
{
	scratch->used = 0;
	while (scratch->blocks) {
		struct scratch_block *block = scratch->blocks;

		scratch->blocks = block->next;
		free(block);
	}
	scratch->block_bytes = 0;
}

void scratch_fini(struct scratch *scratch)
{
	scratch_reset(scratch);
	free(scratch->bytes);
	scratch->bytes = NULL;
	scratch->room = 0;
}
