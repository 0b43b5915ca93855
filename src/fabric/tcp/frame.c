/*
 * Encoding and decoding of frame headers. See frame.h for the bytes.
 *
 * Pure functions, called by whichever thread holds the queue's lock. Decoding copies the bytes
 * into the struct, puts them into the machine's order (nothing to do on a little-endian one),
 * and checks what can be checked without knowing the connection: that the op exists, that
 * fields it does not use are zero, that lengths are within limits and cannot overflow. What
 * remains are checks against state: sequence, key, bounds, rights, windows (serve.c, answer.c).
 */
#include "fabric/tcp/frame.h"

#include <endian.h>
#include <string.h>

#include <remora/status.h>

static const uint8_t header_sizes[FRAME_OP_END] = {
	[FRAME_SEND] = 16,	[FRAME_WRITE] = 32,	   [FRAME_WRITE_IMM] = 40,
	[FRAME_READ] = 32,	[FRAME_COMPARE_SWAP] = 48, [FRAME_FETCH_ADD] = 40,
	[FRAME_WANT] = 16,	[FRAME_READ_DATA] = 16,	   [FRAME_ATOMIC_RESULT] = 16,
	[FRAME_ACK] = 16,	[FRAME_GRANT] = 16,	   [FRAME_ERROR] = 16,
	[FRAME_READ_PUSH] = 32,
};

static const char *const op_names[FRAME_OP_END] = {
	[FRAME_SEND] = "SEND",
	[FRAME_WRITE] = "WRITE",
	[FRAME_WRITE_IMM] = "WRITE_IMM",
	[FRAME_READ] = "READ",
	[FRAME_COMPARE_SWAP] = "COMPARE_SWAP",
	[FRAME_FETCH_ADD] = "FETCH_ADD",
	[FRAME_WANT] = "WANT",
	[FRAME_READ_DATA] = "READ_DATA",
	[FRAME_ATOMIC_RESULT] = "ATOMIC_RESULT",
	[FRAME_ACK] = "ACK",
	[FRAME_GRANT] = "GRANT",
	[FRAME_ERROR] = "ERROR",
	[FRAME_READ_PUSH] = "READ_PUSH",
};

size_t frame_header_size(uint8_t op)
{
	return op < FRAME_OP_END ? header_sizes[op] : 0;
}

const char *frame_op_name(uint8_t op)
{
	return op < FRAME_OP_END && op_names[op] ? op_names[op] : "unknown";
}

/* From the wire's order to the machine's: on most machines, nothing. */
static void swap_fields(struct frame *frame)
{
	frame->index = le16toh(frame->index);
	frame->sequence = le32toh(frame->sequence);
	if (frame->op == FRAME_ACK || frame->op == FRAME_ERROR) {
		frame->messages = le32toh(frame->messages);
		frame->bytes = le32toh(frame->bytes);
	} else {
		frame->length = le64toh(frame->length);
	}
	frame->key = le64toh(frame->key);
	frame->offset = le64toh(frame->offset);
	if (frame->op == FRAME_WRITE_IMM)
		frame->immediate = le32toh(frame->immediate);
	else
		frame->operand = le64toh(frame->operand);
	frame->compare = le64toh(frame->compare);
}

/* NULL, or what is wrong with the frame. */
static const char *find_fault(const struct frame *frame)
{
	bool has_region = (frame->op >= FRAME_WRITE && frame->op <= FRAME_FETCH_ADD) ||
			  frame->op == FRAME_READ_PUSH;
	bool has_length = frame->op <= FRAME_READ_DATA || frame->op == FRAME_READ_PUSH;

	if (frame->status != 0 && frame->op != FRAME_ERROR)
		return "a status where none belongs";
	if (frame->op == FRAME_ERROR && (frame->status == 0 || frame->status > -RMR_SYSTEM))
		return "an error without a known status";
	if (frame->index != 0 && !has_region)
		return "a region where none belongs";
	if (has_length && frame->length > FRAME_LENGTH_MAX)
		return "a length beyond the limit";
	if (has_region && frame->offset > UINT64_MAX - FRAME_LENGTH_MAX)
		return "an offset beyond the limit";
	if ((frame->op == FRAME_COMPARE_SWAP || frame->op == FRAME_FETCH_ADD) && frame->length != 8)
		return "an atomic that is not of 8 bytes";
	if (frame->op == FRAME_GRANT && frame->length != 0)
		return "a grant with a length";
	if (frame->op == FRAME_WRITE_IMM && frame->zero != 0)
		return "an immediate of more than 32 bits";
	return NULL;
}

int frame_decode(const uint8_t *bytes, size_t available, struct frame *frame, const char **reason)
{
	size_t size;

	if (available == 0)
		return 0;
	size = frame_header_size(bytes[0]);
	if (size == 0) {
		*reason = "a frame of unknown type";
		return -1;
	}
	if (available < size)
		return 0;
	/* The sizes are few and constant, so that each copy is a handful of moves. */
	switch (size) {
	case 16:
		memset((uint8_t *)frame + 16, 0, sizeof(*frame) - 16);
		memcpy(frame, bytes, 16);
		break;
	case 32:
		memset((uint8_t *)frame + 32, 0, sizeof(*frame) - 32);
		memcpy(frame, bytes, 32);
		break;
	case 40:
		frame->compare = 0;
		memcpy(frame, bytes, 40);
		break;
	default:
		memcpy(frame, bytes, sizeof(*frame));
	}
	swap_fields(frame);
	*reason = find_fault(frame);
	return *reason ? -1 : (int)size;
}

static void put32(uint8_t *to, uint32_t value)
{
	value = htole32(value);
	memcpy(to, &value, sizeof(value));
}

static void put64(uint8_t *to, uint64_t value)
{
	value = htole64(value);
	memcpy(to, &value, sizeof(value));
}

/* Field by field, straight to where it goes: copying the struct would load in wide pieces what was
 * just stored in narrow ones, and wait for it. */
size_t frame_encode(uint8_t *to, const struct frame *frame)
{
	size_t size = frame_header_size(frame->op);

	assert(size != 0);
	to[0] = frame->op;
	to[1] = frame->status;
	to[2] = (uint8_t)frame->index;
	to[3] = (uint8_t)(frame->index >> 8);
	put32(to + 4, frame->sequence);
	if (frame->op == FRAME_ACK || frame->op == FRAME_ERROR) {
		put32(to + 8, frame->messages);
		put32(to + 12, frame->bytes);
	} else {
		put64(to + 8, frame->length);
	}
	if (size == 16)
		return size;
	put64(to + 16, frame->key);
	put64(to + 24, frame->offset);
	if (size == 32)
		return size;
	if (frame->op == FRAME_WRITE_IMM) {
		put32(to + 32, frame->immediate);
		put32(to + 36, 0);
	} else {
		put64(to + 32, frame->operand);
	}
	if (size == FRAME_HEADER_MAX)
		put64(to + 40, frame->compare);
	return size;
}
