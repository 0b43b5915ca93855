/*
 * The program under attack: a process that listens, serves memory and takes messages; and a
 * witness, a well-behaved client of the same queue, which must notice nothing.
 */
#ifndef TESTS_FABRIC_TCP_VICTIM_H
#define TESTS_FABRIC_TCP_VICTIM_H

#include <remora/fabric.h>
#include <stdatomic.h>

#include "fabric/provider.h"
#include "harness/test.h"

#define VICTIM_MEMORY	 (1u << 20)
#define VICTIM_SLOTS	 8
#define VICTIM_RECV_SIZE (256u << 10)

/* Shared between the victim and the test. */
struct victim_board {
	atomic_int accepted, lost, messages;
	atomic_int last_status; /* of the last DISCONNECT */
	atomic_bool hold;	/* keep received messages */
	atomic_bool stop;
	atomic_long peak_kib; /* resident memory */
	char address[128];
	struct descriptor_wire readable, writable; /* two regions over the same memory */
};

struct victim {
	pid_t pid;
	struct victim_board *board;
	uint8_t *memory; /* the victim's, shared with the test */
	/* The witness. */
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct rmr_region *region;
	struct rmr_remote *remote;
	uint8_t local[64];
};

void victim_start(struct victim *victim);
/* That the witness can still read, and write, and send; and that the victim lives. */
void victim_check(struct victim *victim);
/* That so many connections have been lost, the last one for this reason. */
void victim_expect_lost(struct victim *victim, int lost, enum rmr_status status);
void victim_stop(struct victim *victim);

#endif
