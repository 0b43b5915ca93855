/*
 * A peer that speaks the fabric itself, and says to the easy library whatever a test wants: right
 * or wrong hellos, records, credit. It is the client of a server, or a server of its own.
 */
#ifndef TESTS_RDMA_RAW_H
#define TESTS_RDMA_RAW_H

#include <remora/fabric.h>

#include "fixture.h"
#include "rdma/easy/wire.h"
#include "rdma/peer_memory.h"

#define RAW_RING 4096u

struct raw {
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_listener *listener;
	struct rmr_conn *conn;
	struct rmr_arena *arena; /* our ring */
	struct rmr_region *region;
	uint8_t *ring;
	struct wire_hello mine, theirs;
	struct rmr_remote *remote; /* their ring */
	uint64_t filled;	   /* of theirs */
	uint16_t sequence;
};

void raw_open(struct raw *raw);
void raw_close(struct raw *raw);

/* Calls the server, with a right introduction; mine becomes a right hello. */
void raw_connect(struct raw *raw, const struct server *server);
/* Sends `length` bytes. */
void raw_send(struct raw *raw, const void *data, size_t length);
/* Sends mine, takes theirs, opens their ring. */
void raw_greet(struct raw *raw);
/* Writes bytes into their ring at `filled`, and announces so many. */
void raw_write(struct raw *raw, const void *data, size_t length, size_t announced);
/* A record that is right, but for what the caller changes before it is written. */
struct wire_record raw_record(struct raw *raw, enum wire_kind kind, uint32_t length);
void raw_immediate(struct raw *raw, uint32_t immediate);
/* The connection must end now, and soon. What comes before is dropped. */
void raw_expect_end(struct raw *raw);

/* Listens, tells the port (or number) to call, and takes one caller after the other. */
int raw_listen(struct raw *raw);
void raw_accept(struct raw *raw);

#endif
