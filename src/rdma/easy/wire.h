/*
 * The bytes that two ends of the easy library exchange. All numbers are little endian.
 *
 *	client					server
 *	connect, with an introduction  ------->	accept, or reject with a reason
 *	SEND hello  -------------------------->	accept callback, then
 *	    <--------------------------------	SEND hello
 *	WRITE_IMM ring  <-------------------->	WRITE_IMM ring
 *
 * Messages are records in a ring of the receiver's memory, which the sender writes:
 *
 *	+--------+------------+-----+--------+---------+---+
 *	| record | payload    | pad | record | payload |   |
 *	+--------+------------+-----+--------+---------+---+
 *
 * Every record begins at a multiple of 16, and none goes across the end of the ring: a RECORD_SKIP
 * fills what is left there.
 *
 * A SEND after the hello is a record too: the receiver puts it behind what the ring has by then.
 * An immediate below 2^31 says how far the ring is filled by now: the offset behind the last
 * record, divided by 16. So one WRITE_IMM can bring many records. The ring is never filled
 * to the last unit, so that "as before" cannot mean "once around". An immediate with the top bit
 * gives credit: the units that the receiver has consumed since the last time, which the sender may
 * fill again.
 */
#ifndef RDMA_EASY_WIRE_H
#define RDMA_EASY_WIRE_H

#include <assert.h>
#include <remora/fabric.h>
#include <stdint.h>

#define WIRE_MAGIC   0x61645245u /* "ERda" */
#define WIRE_VERSION 1u

/* The private data of connecting. */
struct wire_introduction {
	uint32_t magic;
	uint32_t version;
};

/* What each side says of itself, once. */
struct wire_hello {
	uint32_t magic;
	uint32_t version;
	uint32_t ring_size;  /* a power of two */
	uint32_t reserved;   /* 0 */
	uint64_t space_size; /* of what is exposed; 0: nothing */
	struct rmr_descriptor ring;
	struct rmr_descriptor space;
};
static_assert(sizeof(struct wire_hello) == 152, "travels as such");

#define WIRE_UNIT     16u
#define WIRE_CREDIT   (1u << 31)
#define WIRE_RING_MIN 4096u
#define WIRE_RING_MAX (1u << 30)

enum wire_kind {
	RECORD_MESSAGE = 1,
	RECORD_MESSAGE_IMM,
	RECORD_WRITTEN, /* payload: struct wire_written */
	RECORD_NOTICE,	/* payload: struct memory_notice */
	RECORD_SKIP,	/* nothing more up to the end of the ring */
	RECORD_BYE,	/* the sender closes the connection */
};

struct wire_record {
	uint32_t length; /* of the payload */
	uint16_t kind;
	uint16_t sequence; /* of the record: counts from 0 and wraps */
	uint32_t immediate;
	uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct wire_record) == WIRE_UNIT, "a unit");

/* A write with an immediate: where in the receiver's exposed space. */
struct wire_written {
	uint64_t offset;
	uint64_t length;
};

/* Bytes of the ring that a payload takes, with its record. */
static inline uint64_t wire_room(uint64_t length)
{
	return WIRE_UNIT + ((length + WIRE_UNIT - 1) & ~(uint64_t)(WIRE_UNIT - 1));
}

/* The longest payload for a ring of this size. At worst its record has to skip nearly as much at
 * the end of the ring as it takes itself: half the ring together. The receiver never owes more
 * credit than an eighth, and no more than another one waits to be completed: so whoever waits for
 * room always gets it. */
static inline uint64_t wire_max_payload(uint64_t ring_size)
{
	return ring_size / 4;
}

#endif
