/*
 * Plane: what a client of the control plane and the server say to each other over the data plane,
 * as messages of <remora/domains.h>. Little, for the calls themselves travel by gRPC:
 *
 *	the link connects	private data: link_token of RegisterClientResponse, 16 bytes
 *	client -> server	PLANE_BUFFER: here is memory of mine, to be written and read
 *	server -> client	PLANE_BUFFER_KEY: its key, which locations have to carry
 *	client -> server	PLANE_BUFFER_GONE: it is going away
 *	server -> client	PLANE_BUFFER_GONE: nothing of it is in use any more
 *
 * All numbers are little-endian, as everywhere in the data plane. Pure; every byte from a peer is
 * checked by plane_decode().
 */
#ifndef CONTROL_PLANE_H
#define CONTROL_PLANE_H

#include <remora/domains.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLANE_TOKEN_SIZE  16u
#define PLANE_MAX_BUFFERS 16u /* of one client */

_Static_assert(PLANE_TOKEN_SIZE <= RMR_LINK_PRIVATE_MAX, "the token travels as private data");

enum plane_op {
	PLANE_BUFFER = 1,
	PLANE_BUFFER_KEY = 2,
	PLANE_BUFFER_GONE = 3,
};

struct plane_message {
	uint32_t op;
	uint32_t id;	 /* of the buffer, of the client's choosing: 0 .. PLANE_MAX_BUFFERS - 1 */
	uint64_t ptr;	 /* where it begins, as in MemoryRegionDescriptor */
	uint64_t length; /* bytes */
	uint64_t rkey;	 /* PLANE_BUFFER_KEY: random, never 0 */
	struct rmr_link_descriptor descriptor; /* PLANE_BUFFER: else left out */
};

/* Bytes of those without a descriptor, which is left out. */
#define PLANE_SHORT 32u

_Static_assert(sizeof(struct plane_message) == PLANE_SHORT + sizeof(struct rmr_link_descriptor),
	       "no holes travel");

/* False: it makes no sense. What was left out is zero. */
bool plane_decode(const void *bytes, size_t length, struct plane_message *message);

#endif
