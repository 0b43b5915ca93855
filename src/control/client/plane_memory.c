/*
 * Memory that the server may write and read: buffers, each an arena of its own, and pieces of them.
 * The first buffer is the receive buffer of the options; more are made for what does not fit, and
 * go when nothing of them is in use. Pieces are found by looking at all of a buffer: there are few.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "control/client/internal.h"

#define GRAIN	  4096u
#define GROW_STEP ((size_t)2 << 20)

/* ------------------------------------------------------------------------------------------
 * Buffers
 */

static struct memory_block *add_block(struct list *before, size_t offset, size_t size)
{
	struct memory_block *block = calloc(1, sizeof(*block));

	if (!block)
		return NULL;
	block->offset = offset;
	block->size = size;
	list_add_tail(before, &block->link);
	return block;
}

static bool buffer_make(struct memory_buffer *buffer, size_t size)
{
	struct rmr_arena *arena;

	if (rmr_arena_open(size, RMR_ARENA_PEERS_WRITE, &arena) != RMR_OK)
		return false;
	*buffer = (struct memory_buffer){
		.base = rmr_arena_base(arena),
		.size = rmr_arena_size(arena),
	};
	list_init(&buffer->blocks);
	if (!add_block(&buffer->blocks, 0, buffer->size)) {
		rmr_arena_close(arena);
		error_set(RMR_NO_MEMORY, "no memory for a buffer");
		return false;
	}
	buffer->arena = arena;
	return true;
}

static void buffer_unmake(struct memory_buffer *buffer)
{
	if (!buffer->arena)
		return;
	list_for_each_safe (at, &buffer->blocks)
		free(list_entry(at, struct memory_block, link));
	rmr_domains_region_close(buffer->region);
	rmr_arena_close(buffer->arena);
	memset(buffer, 0, sizeof(*buffer));
}

bool plane_memory_open(kv_control_t *control, size_t size)
{
	return buffer_make(&control->plane.buffers[0], size);
}

void plane_memory_close(kv_control_t *control)
{
	for (unsigned i = 0; i < PLANE_MAX_BUFFERS; i++)
		buffer_unmake(&control->plane.buffers[i]);
	rmr_arena_close(control->plane.letters);
	control->plane.letters = NULL;
}

void plane_memory_forget_regions(kv_control_t *control)
{
	for (unsigned i = 0; i < PLANE_MAX_BUFFERS; i++) {
		struct memory_buffer *buffer = &control->plane.buffers[i];

		rmr_domains_region_close(buffer->region);
		buffer->region = NULL;
		buffer->rkey = 0;
	}
}

/* ------------------------------------------------------------------------------------------
 * What the server is told of them
 */

static enum rmr_status send_message(kv_control_t *control, const struct plane_message *message,
				    size_t length, uint64_t deadline_ns)
{
	struct control_plane *plane = &control->plane;
	uint8_t *place = (uint8_t *)rmr_arena_base(plane->letters) + message->id * sizeof(*message);
	struct rmr_link_work work = {
		.op = RMR_OP_SEND,
		.flags = RMR_UNSIGNALED,
		.source = place,
		.length = length,
		.region = plane->letters_region,
	};
	enum rmr_status status;

	/* The last one from here was answered: it is not in use any more. */
	memcpy(place, message, length);
	while ((status = rmr_link_post(plane->link, &work)) == RMR_AGAIN) {
		if (clock_passed(deadline_ns))
			return error_set(RMR_TIMEOUT, "the link takes no message");
		plane_poll(control);
	}
	return status;
}

static enum rmr_status announce(kv_control_t *control, struct memory_buffer *buffer,
				uint64_t deadline_ns)
{
	struct control_plane *plane = &control->plane;
	struct plane_message message = {
		.op = PLANE_BUFFER,
		.id = (uint32_t)(buffer - plane->buffers),
		.ptr = (uintptr_t)buffer->base,
		.length = buffer->size,
	};
	enum rmr_status status = rmr_domains_region_open(plane->domains, buffer->base, buffer->size,
							 RMR_READ | RMR_WRITE, &buffer->region);

	if (status != RMR_OK)
		return status;
	while ((status = rmr_link_export(plane->link, buffer->region, &message.descriptor)) ==
	       RMR_AGAIN) {
		if (clock_passed(deadline_ns))
			return error_set(RMR_TIMEOUT, "the server does not take our memory");
		plane_poll(control);
	}
	if (status == RMR_OK)
		status = send_message(control, &message, sizeof(message), deadline_ns);
	return status;
}

bool plane_memory_announce(kv_control_t *control, struct memory_buffer *buffer,
			   uint64_t deadline_ns)
{
	buffer->rkey = 0;
	return announce(control, buffer, deadline_ns) == RMR_OK &&
	       plane_await(control, &buffer->rkey, true, deadline_ns);
}

void plane_memory_take_message(kv_control_t *control, const void *bytes, size_t length)
{
	struct plane_message message;

	if (!plane_decode(bytes, length, &message)) {
		control->plane.is_lost = true; /* no server of ours */
		return;
	}
	control->plane.buffers[message.id].rkey = message.op == PLANE_BUFFER_KEY ? message.rkey : 0;
}

/* Takes it back from the server, and waits until nothing of it is in use. */
static void buffer_retire(kv_control_t *control, struct memory_buffer *buffer, uint64_t deadline_ns)
{
	struct plane_message message = {
		.op = PLANE_BUFFER_GONE,
		.id = (uint32_t)(buffer - control->plane.buffers),
	};

	if (buffer->rkey && !control->plane.is_lost &&
	    (send_message(control, &message, PLANE_SHORT, deadline_ns) != RMR_OK ||
	     !plane_await(control, &buffer->rkey, false, deadline_ns)))
		plane_close(control); /* ends all access, too */
	buffer_unmake(buffer);
}

/* ------------------------------------------------------------------------------------------
 * Pieces
 */

static size_t round_up(size_t size, size_t step)
{
	size = size ? size : 1;
	return size > SIZE_MAX - step ? 0 : (size + step - 1) / step * step;
}

/* The shortest that is long enough. */
static struct memory_block *find_block(struct memory_buffer *buffer, size_t size)
{
	struct memory_block *found = NULL;

	if (!buffer->arena)
		return NULL;
	list_for_each (at, &buffer->blocks) {
		struct memory_block *block = list_entry(at, struct memory_block, link);

		if (!block->is_used && block->size >= size && (!found || block->size < found->size))
			found = block;
	}
	return found;
}

static bool take_from(struct memory_buffer *buffer, size_t size, struct memory_place *place)
{
	struct memory_block *block = find_block(buffer, size);

	if (!block)
		return false;
	if (block->size > size) {
		if (!add_block(block->link.next, block->offset + size, block->size - size))
			return false;
		block->size = size;
	}
	block->is_used = true;
	*place = (struct memory_place){buffer, block->offset, buffer->base + block->offset};
	return true;
}

static struct memory_buffer *grow(kv_control_t *control, size_t size, uint64_t deadline_ns)
{
	struct control_plane *plane = &control->plane;
	struct memory_buffer *buffer = plane->buffers;

	while (buffer < plane->buffers + PLANE_MAX_BUFFERS && buffer->arena)
		buffer++;
	size = round_up(size, GROW_STEP);
	if (buffer == plane->buffers + PLANE_MAX_BUFFERS || !size || !buffer_make(buffer, size))
		return NULL;
	if (plane->link && !plane->is_lost && !plane_memory_announce(control, buffer, deadline_ns))
		plane_close(control);
	return buffer;
}

bool plane_memory_take(kv_control_t *control, size_t size, bool may_grow, uint64_t deadline_ns,
		       struct memory_place *place)
{
	struct memory_buffer *buffer;

	size = round_up(size, GRAIN);
	if (!size)
		return false;
	for (unsigned i = 0; i < PLANE_MAX_BUFFERS; i++) {
		if (take_from(&control->plane.buffers[i], size, place))
			return true;
	}
	buffer = may_grow ? grow(control, size, deadline_ns) : NULL;
	return buffer && take_from(buffer, size, place);
}

/* Joins it with the one behind it, if both are free. */
static void join(struct memory_buffer *buffer, struct memory_block *block)
{
	struct memory_block *next = list_entry(block->link.next, struct memory_block, link);

	if (block->link.next == &buffer->blocks || block->is_used || next->is_used)
		return;
	block->size += next->size;
	list_remove(&next->link);
	free(next);
}

static struct memory_block *block_at(struct memory_buffer *buffer, size_t offset)
{
	list_for_each (at, &buffer->blocks) {
		struct memory_block *block = list_entry(at, struct memory_block, link);

		if (block->offset == offset && block->is_used)
			return block;
	}
	return NULL;
}

void plane_memory_give(kv_control_t *control, struct memory_place *place, uint64_t deadline_ns)
{
	struct memory_buffer *buffer = place->buffer;
	struct memory_block *block = buffer ? block_at(buffer, place->offset) : NULL;

	if (!block)
		return;
	place->buffer = NULL;
	block->is_used = false;
	join(buffer, block);
	if (block->link.prev != &buffer->blocks)
		join(buffer, list_entry(block->link.prev, struct memory_block, link));
	block = list_first_entry(&buffer->blocks, struct memory_block, link);
	if (buffer != control->plane.buffers && !block->is_used && block->size == buffer->size)
		buffer_retire(control, buffer, deadline_ns);
}

size_t plane_memory_longest(const kv_control_t *control)
{
	size_t longest = 0;

	for (unsigned i = 0; i < PLANE_MAX_BUFFERS; i++) {
		const struct memory_buffer *buffer = &control->plane.buffers[i];

		if (!buffer->arena)
			continue;
		list_for_each (at, &buffer->blocks) {
			const struct memory_block *block =
				list_entry(at, struct memory_block, link);

			if (!block->is_used && block->size > longest)
				longest = block->size;
		}
	}
	return longest;
}

static struct memory_buffer *buffer_of(kv_control_t *control, const void *bytes)
{
	const uint8_t *at = bytes;

	for (unsigned i = 0; i < PLANE_MAX_BUFFERS; i++) {
		struct memory_buffer *buffer = &control->plane.buffers[i];

		if (buffer->arena && at >= buffer->base && at < buffer->base + buffer->size)
			return buffer;
	}
	return NULL;
}

bool plane_memory_find(kv_control_t *control, const void *bytes, size_t length,
		       struct memory_place *place)
{
	struct memory_buffer *buffer = buffer_of(control, bytes);
	size_t offset;

	if (!buffer || !buffer->rkey)
		return false;
	offset = (size_t)((const uint8_t *)bytes - buffer->base);
	if (length > buffer->size - offset)
		return false;
	*place = (struct memory_place){buffer, offset, buffer->base + offset};
	return true;
}

void *kv_control_alloc(kv_control_t *control, size_t size)
{
	struct memory_place place;

	return plane_memory_take(control, size, true, control_deadline(control), &place)
		       ? place.bytes
		       : NULL;
}

void kv_control_free(kv_control_t *control, void *memory)
{
	struct memory_place place = {.buffer = memory ? buffer_of(control, memory) : NULL};

	if (!place.buffer)
		return;
	place.offset = (size_t)((uint8_t *)memory - place.buffer->base);
	plane_memory_give(control, &place, control_deadline(control));
}
