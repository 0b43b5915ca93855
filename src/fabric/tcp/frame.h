/*
 * The bytes of a tcp connection after its handshake: frames, little-endian, back to back.
 *
 * struct frame is both the decoded frame and, on a little-endian machine, its bytes. A frame's
 * header is a prefix of this picture, as long as its op needs it:
 *
 *	 0        1        2                 4                                8
 *	+--------+--------+-----------------+--------------------------------+
 *	|   op   | status |      index      |            sequence            |
 *	+--------+--------+-----------------+--------------------------------+
 *	|      length  (ACK, ERROR: messages, bytes; ATOMIC_RESULT: value)   |  all others: 16
 *	+--------------------------------------------------------------------+
 *	|                                 key                                |
 *	+--------------------------------------------------------------------+
 *	|                                offset                              |  READ, WRITE: 32
 *	+--------------------------------------------------------------------+
 *	|                 operand  (WRITE_IMM: immediate, zero)              |  and FETCH_ADD: 40
 *	+--------------------------------------------------------------------+
 *	|                               compare                              |  COMPARE_SWAP: 48
 *	+--------------------------------------------------------------------+
 *	| length bytes of payload: SEND, WRITE, WRITE_IMM, READ_DATA         |
 *
 * Requests of one direction are numbered by `sequence`, from 0, without gaps; the target
 * executes them in that order. SEND and WRITE_IMM are *messages*: they are also counted
 * separately, because they may wait for a receive slot while later READs and WRITEs go on.
 *
 *	READ_DATA n,		answers n, and says that every request below n that is no message
 *	  ATOMIC_RESULT n	is done
 *	ACK n, m, b		every request below n that is no message is done; so are the first m
 *				messages, with b bytes of eager SENDs (both counted modulo 2^32)
 *	ERROR n, status, m, b	as ACK, and n failed: the connection ends here
 *	WANT n, length		the SEND n is too long to be sent unasked
 *	GRANT n			a slot is reserved for it: send
 *	READ_PUSH n		as READ, but the data goes by another way into memory that the
 *				initiator lends, and tells by itself that it is there (struct
 *				tcp_wire): there is no answer
 *
 * Nothing here knows of sockets: bytes in, frame out. That is what the fuzzer drives.
 */
#ifndef FABRIC_TCP_FRAME_H
#define FABRIC_TCP_FRAME_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum frame_op {
	/* Requests. */
	FRAME_SEND = 1,
	FRAME_WRITE,
	FRAME_WRITE_IMM,
	FRAME_READ,
	FRAME_COMPARE_SWAP,
	FRAME_FETCH_ADD,
	FRAME_WANT,
	/* Answers. */
	FRAME_READ_DATA,
	FRAME_ATOMIC_RESULT,
	FRAME_ACK,
	FRAME_GRANT,
	FRAME_ERROR,
	/* A request, only where the wire lends memory. */
	FRAME_READ_PUSH,
	FRAME_OP_END,
};

struct frame {
	uint8_t op;
	uint8_t status; /* ERROR: an rmr_status, negated */
	uint16_t index; /* of the region in its device's table */
	uint32_t sequence;
	union {
		uint64_t length;
		uint64_t value;
		struct {
			uint32_t messages;
			uint32_t bytes;
		};
	};
	uint64_t key;
	uint64_t offset;
	union {
		uint64_t operand;
		struct {
			uint32_t immediate;
			uint32_t zero;
		};
	};
	uint64_t compare;
};

#define FRAME_HEADER_MIN 16
#define FRAME_HEADER_MAX 48
static_assert(sizeof(struct frame) == FRAME_HEADER_MAX, "a frame is its bytes");
static_assert(offsetof(struct frame, sequence) == 4 && offsetof(struct frame, length) == 8 &&
		      offsetof(struct frame, key) == 16 && offsetof(struct frame, offset) == 24 &&
		      offsetof(struct frame, operand) == 32 &&
		      offsetof(struct frame, compare) == 40,
	      "the diagram above");

/* The longest payload, and what READ may ask for. */
#define FRAME_LENGTH_MAX (1ull << 40)

/* Decodes the header at the start of `available` bytes. Returns its size; 0 when there are not yet
 * enough bytes; -1 when no byte that may follow makes it a frame: then *reason says why. On
 * success every field that the op does not have is zero. */
int frame_decode(const uint8_t *bytes, size_t available, struct frame *frame, const char **reason);

/* Writes the header and returns its size, at most FRAME_HEADER_MAX. `to` needs that much room. */
size_t frame_encode(uint8_t *to, const struct frame *frame);

/* The size of the header of a frame with this op; 0 for an op that does not exist. */
size_t frame_header_size(uint8_t op);

/* The name of an op, for messages. */
const char *frame_op_name(uint8_t op);

static inline bool frame_is_request(uint8_t op)
{
	return op <= FRAME_WANT || op == FRAME_READ_PUSH;
}

/* Does `length` count bytes that follow the header? */
static inline bool frame_has_payload(uint8_t op)
{
	return op == FRAME_SEND || op == FRAME_WRITE || op == FRAME_WRITE_IMM ||
	       op == FRAME_READ_DATA;
}

#endif
