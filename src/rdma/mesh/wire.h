/*
 * What processes of a mesh say to each other, byte by byte. All hosts are little-endian, as for all
 * of this library.
 *
 *	caller (the higher id)				listener
 *	----------------------				--------
 *	connect, introduction		---------->	looks at it: of this mesh? else refused
 *					<----------	accept, introduction
 *	hello (SEND)			---------->	its ring, its memory; now it is up
 *					<----------	hello (SEND); now we are up
 *	WRITE, slots 0 to 14 of the ring ---------->	headers and messages
 *	WRITE_IMM, slot 15		---------->	the same, and that they are there
 *	...
 *					<----------	WRITE_IMM of nothing: so many are consumed
 *
 * The 32 bits of a WRITE_IMM are either the number of the slot that was written, which is the last
 * of a batch: all from the one that is next up to it are there; or, with MESH_IMM_CREDIT, how many
 * messages the writer has consumed since the beginning. The last message of a batch tells that,
 * too, so that where messages go both ways none is needed for that alone.
 */
#ifndef RDMA_MESH_WIRE_H
#define RDMA_MESH_WIRE_H

#include <assert.h>
#include <remora/fabric.h>

#define MESH_MAGIC   0x6873656du /* "mesh" */
#define MESH_VERSION 1u

/* Begins the reason of everyone who is refused, so that a caller can tell this from a refusal by
 * the fabric or the kernel: it will never be let in. */
#define MESH_REFUSAL "not of this mesh: "

/* Private data of connect and accept. */
struct mesh_introduction {
	uint32_t magic;
	uint16_t version;
	uint16_t hosts;
	uint16_t from, to; /* ids: who speaks, and whom it means */
	uint32_t thread;
	uint32_t depth;
	uint32_t message_size;
	uint64_t zero; /* for later versions */
};
static_assert(sizeof(struct mesh_introduction) == RMR_PRIVATE_MAX, "travels as private data");

/* The first message of each. */
struct mesh_hello {
	uint32_t magic;
	uint32_t has_memory;
	struct rmr_descriptor ring;
	struct rmr_descriptor memory; /* zeros, if there is none */
	uint64_t memory_address;      /* as its owner sees it */
	uint64_t memory_size;
};
static_assert(sizeof(struct mesh_hello) == 152, "travels as such");

enum mesh_kind {
	MESH_KIND_MESSAGE = 1,
	MESH_KIND_WRITTEN,   /* the payload is a struct mesh_written */
	MESH_KIND_TERMINATE, /* no payload */
	MESH_KIND_CLOSING,   /* the last one, no payload: the receiver closes the connection */
};

/* Beside the kind: `consumed` counts (it never decreases); and the lower bits of the message's
 * number, so that what lies in a slot from the lap before is not taken for new. */
#define MESH_KIND_MASK	    0xffu
#define MESH_KIND_CREDITED  0x100u
#define MESH_SEQUENCE_SHIFT 16

/* Stands right before the payload of a slot. */
struct mesh_header {
	uint32_t length;    /* of the payload */
	uint32_t kind;	    /* and its number: see below */
	uint32_t immediate; /* the user's */
	uint32_t consumed;  /* messages of the other direction, since the beginning */
};
static_assert(sizeof(struct mesh_header) == 16, "travels as such");

/* Something was written into the receiver's memory, before this. */
struct mesh_written {
	uint64_t offset;
	uint64_t length;
};

#define MESH_IMM_CREDIT	  0x80000000u
#define MESH_COUNTER_MASK 0x7fffffffu

/* A slot: 48 unused bytes, the header, the payload; so the payload is aligned to 64. */
#define MESH_SLOT_HEAD	 64u
#define MESH_HEADER_AT	 (MESH_SLOT_HEAD - sizeof(struct mesh_header))
#define MESH_MESSAGE_MAX (1u << 30)
/* The least room for a payload: what is written needs it. */
#define MESH_PAYLOAD_MIN 64u

#endif
