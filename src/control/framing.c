/*
 * Framing: messages out of a stream of bytes that comes in pieces of any size.
 *
 * Most messages are shorter than GRPC_READER_INLINE and are gathered in the reader itself. A longer
 * one gets memory as its bytes arrive, twice as much each time, never more than it needs: whoever
 * announces four megabytes and sends ten bytes holds a few hundred. The budget counts what is
 * allocated, by all readers that share it.
 */
#include <stdlib.h>
#include <string.h>

#include "control/grpc.h"

bool grpc_budget_take(struct grpc_budget *budget, size_t bytes)
{
	for (const struct grpc_budget *at = budget; at; at = at->above) {
		if (bytes > at->most - at->used)
			return false;
		if (at->above && at->used + bytes > (at->above->most - at->above->used) / at->share)
			return false;
	}
	for (; budget; budget = budget->above)
		budget->used += bytes;
	return true;
}

void grpc_budget_give(struct grpc_budget *budget, size_t bytes)
{
	for (; budget; budget = budget->above)
		budget->used -= bytes;
}

void grpc_reader_init(struct grpc_reader *reader, uint32_t max_length, struct grpc_budget *budget)
{
	reader->budget = budget;
	reader->max_length = max_length;
	reader->takes_compressed = reader->is_compressed = false;
	reader->length = reader->used = 0;
	reader->prefix_used = 0;
	reader->bytes = reader->small;
	reader->room = sizeof(reader->small);
}

static void give_back(struct grpc_reader *reader)
{
	if (!reader->bytes || reader->bytes == reader->small)
		return;
	grpc_budget_give(reader->budget, reader->room);
	free(reader->bytes);
}

void grpc_reader_fini(struct grpc_reader *reader)
{
	give_back(reader);
	reader->bytes = NULL;
	reader->room = 0;
}

void grpc_reader_next(struct grpc_reader *reader)
{
	bool takes_compressed = reader->takes_compressed;

	give_back(reader);
	grpc_reader_init(reader, reader->max_length, reader->budget);
	reader->takes_compressed = takes_compressed;
}

/* Room for `needed` bytes of the message. */
static bool make_room(struct grpc_reader *reader, size_t needed)
{
	size_t room = 2 * reader->room, old = reader->bytes == reader->small ? 0 : reader->room;
	uint8_t *bytes;

	if (needed <= reader->room)
		return true;
	if (room < needed)
		room = needed;
	if (room > reader->length)
		room = reader->length;
	if (!grpc_budget_take(reader->budget, room - old))
		return false;
	bytes = realloc(old ? reader->bytes : NULL, room);
	if (!bytes) {
		grpc_budget_give(reader->budget, room - old);
		return false;
	}
	if (!old)
		memcpy(bytes, reader->small, reader->used);
	reader->bytes = bytes;
	reader->room = room;
	return true;
}

/* The prefix is complete. */
static enum grpc_feed look_at_prefix(struct grpc_reader *reader)
{
	const uint8_t *prefix = reader->prefix;

	reader->length = (uint32_t)prefix[1] << 24 | (uint32_t)prefix[2] << 16 |
			 (uint32_t)prefix[3] << 8 | prefix[4];
	if (prefix[0] > 1)
		return GRPC_FEED_WRONG;
	if (reader->length > reader->max_length)
		return GRPC_FEED_TOO_LONG;
	reader->is_compressed = prefix[0] == 1;
	if (reader->is_compressed && !reader->takes_compressed)
		return GRPC_FEED_COMPRESSED;
	return reader->length ? GRPC_FEED_MORE : GRPC_FEED_MESSAGE;
}

enum grpc_feed grpc_reader_feed(struct grpc_reader *reader, const uint8_t *bytes, size_t length,
				size_t *taken)
{
	size_t left;

	*taken = 0;
	while (reader->prefix_used < GRPC_PREFIX) {
		if (*taken == length)
			return GRPC_FEED_MORE;
		reader->prefix[reader->prefix_used++] = bytes[(*taken)++];
		if (reader->prefix_used == GRPC_PREFIX) {
			enum grpc_feed found = look_at_prefix(reader);

			if (found != GRPC_FEED_MORE)
				return found;
		}
	}
	left = reader->length - reader->used;
	if (left > length - *taken)
		left = length - *taken;
	if (!make_room(reader, reader->used + left))
		return GRPC_FEED_NO_MEMORY;
	memcpy(reader->bytes + reader->used, bytes + *taken, left);
	reader->used += (uint32_t)left;
	*taken += left;
	return reader->used == reader->length ? GRPC_FEED_MESSAGE : GRPC_FEED_MORE;
}
