/*
 * gzip for messages (grpc-encoding: gzip). See gzip.c.
 */
#ifndef CONTROL_GZIP_H
#define CONTROL_GZIP_H

#include "control/grpc.h"

enum gzip_result {
	GZIP_OK,
	GZIP_BROKEN,	/* not one whole member of gzip */
	GZIP_TOO_LONG,	/* it unpacks to more than is permitted */
	GZIP_NO_MEMORY, /* the budget is used up, or the machine's memory */
};

/* Allocated; `room` of them are counted in the budget. */
struct gzip_bytes {
	uint8_t *bytes;
	size_t length, room;
};

/* Unpacks at most `most` bytes. Nothing is left to free unless it answers GZIP_OK. The budget may
 * be NULL. */
enum gzip_result gzip_unpack(const uint8_t *from, uint32_t length, size_t most,
			     struct grpc_budget *budget, struct gzip_bytes *to);
void gzip_bytes_free(struct gzip_bytes *bytes, struct grpc_budget *budget);

/* Memory to pack with, for any number of messages. NULL: there is none. */
struct gzip_packer *gzip_packer_create(void);
/* Legal on NULL. */
void gzip_packer_destroy(struct gzip_packer *packer);
/* Returns the packed length; 0: it does not fit into `room`. */
size_t gzip_pack(struct gzip_packer *packer, const uint8_t *from, uint32_t length, uint8_t *to,
		 uint32_t room);

#endif
