/*
 * gzip: messages packed and unpacked, whole. Pure but for zlib and memory.
 *
 * A peer chooses what is unpacked, and a few kilobytes can unpack to gigabytes. So the result's
 * memory grows as it is written to, within the message limit and within the budget, and the work
 * ends where one of the two does. The same input has to be one complete member of gzip, with its
 * checksum, and nothing behind it.
 */
#define ZLIB_CONST
#include "control/gzip.h"

#include <stdlib.h>
#include <zlib.h>

#define GZIP_WINDOW (15 + 16) /* zlib's number for gzip with a window of 32 KiB */
#define PACK_LEVEL  1	      /* the fastest: the loop's other calls wait meanwhile */
#define PACK_MEMORY 8	      /* zlib's default: 256 KiB for a packer */
#define FIRST_ROOM  4096u

struct gzip_packer {
	z_stream stream;
};

/* ------------------------------------------------------------------------------------------
 * Unpacking
 */

/* Twice the room, as far as `most` permits. */
static enum gzip_result grow(struct gzip_bytes *to, size_t most, struct grpc_budget *budget)
{
	size_t room = to->room ? 2 * to->room : FIRST_ROOM;
	uint8_t *bytes;

	if (to->room == most)
		return GZIP_TOO_LONG;
	if (room > most)
		room = most;
	if (!grpc_budget_take(budget, room - to->room))
		return GZIP_NO_MEMORY;
	bytes = realloc(to->bytes, room);
	if (!bytes) {
		grpc_budget_give(budget, room - to->room);
		return GZIP_NO_MEMORY;
	}
	to->bytes = bytes;
	to->room = room;
	return GZIP_OK;
}

static enum gzip_result unpack(z_stream *stream, size_t most, struct grpc_budget *budget,
			       struct gzip_bytes *to)
{
	for (;;) {
		size_t room = to->room - to->length;
		int code;

		stream->next_out = to->bytes + to->length;
		stream->avail_out = (uInt)room;
		code = inflate(stream, Z_NO_FLUSH);
		to->length += room - stream->avail_out;
		if (code == Z_STREAM_END)
			return stream->avail_in ? GZIP_BROKEN : GZIP_OK;
		if (code == Z_MEM_ERROR)
			return GZIP_NO_MEMORY;
		/* Z_BUF_ERROR: it needs more room, or more input than there is. */
		if (code != Z_OK && code != Z_BUF_ERROR)
			return GZIP_BROKEN;
		if (stream->avail_out)
			return GZIP_BROKEN;
		if (grow(to, most, budget) != GZIP_OK)
			return to->room == most ? GZIP_TOO_LONG : GZIP_NO_MEMORY;
	}
}

enum gzip_result gzip_unpack(const uint8_t *from, uint32_t length, size_t most,
			     struct grpc_budget *budget, struct gzip_bytes *to)
{
	z_stream stream = {.next_in = from, .avail_in = length};
	enum gzip_result result;

	*to = (struct gzip_bytes){0};
	/* One byte more than is permitted tells a message that just fits from a longer one. */
	result = grow(to, most + 1, budget);
	if (result != GZIP_OK)
		return result;
	if (inflateInit2(&stream, GZIP_WINDOW) != Z_OK) {
		gzip_bytes_free(to, budget);
		return GZIP_NO_MEMORY;
	}
	result = unpack(&stream, most + 1, budget, to);
	(void)inflateEnd(&stream);
	if (result == GZIP_OK && to->length > most)
		result = GZIP_TOO_LONG;
	if (result != GZIP_OK)
		gzip_bytes_free(to, budget);
	return result;
}

void gzip_bytes_free(struct gzip_bytes *bytes, struct grpc_budget *budget)
{
	grpc_budget_give(budget, bytes->room);
	free(bytes->bytes);
	*bytes = (struct gzip_bytes){0};
}

/* ------------------------------------------------------------------------------------------
 * Packing
 */

struct gzip_packer *gzip_packer_create(void)
{
	struct gzip_packer *packer = calloc(1, sizeof(*packer));

	if (packer && deflateInit2(&packer->stream, PACK_LEVEL, Z_DEFLATED, GZIP_WINDOW,
				   PACK_MEMORY, Z_DEFAULT_STRATEGY) == Z_OK)
		return packer;
	free(packer);
	return NULL;
}

void gzip_packer_destroy(struct gzip_packer *packer)
{
	if (!packer)
		return;
	(void)deflateEnd(&packer->stream);
	free(packer);
}

size_t gzip_pack(struct gzip_packer *packer, const uint8_t *from, uint32_t length, uint8_t *to,
		 uint32_t room)
{
	z_stream *stream = &packer->stream;

	if (deflateReset(stream) != Z_OK)
		return 0;
	stream->next_in = from;
	stream->avail_in = length;
	stream->next_out = to;
	stream->avail_out = room;
	if (deflate(stream, Z_FINISH) != Z_STREAM_END)
		return 0;
	return room - stream->avail_out;
}
