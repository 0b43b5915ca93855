/*
 * The program under attack: a process that listens on rxe0, serves memory and takes messages; and a
 * witness, a well-behaved client of the same queue, which must notice nothing.
 *
 * The memory has guards that are in no region:
 *
 *	| guard | writable, all rights | guard | readable | guard |
 *
 * The witness uses the last VICTIM_WITNESS bytes of the writable part. All the rest keeps its
 * VICTIM_BYTE, unless a test says otherwise.
 */
#ifndef TESTS_FABRIC_VERBS_VICTIM_H
#define TESTS_FABRIC_VERBS_VICTIM_H

#include <remora/fabric.h>
#include <stdatomic.h>

#include "fabric/provider.h"
#include "harness/test.h"

#define VICTIM_GUARD	  (64u << 10)
#define VICTIM_WRITABLE	  (256u << 10)
#define VICTIM_READABLE	  (64u << 10)
#define VICTIM_MEMORY	  (3 * VICTIM_GUARD + VICTIM_WRITABLE + VICTIM_READABLE)
#define VICTIM_WITNESS	  64
#define VICTIM_BYTE	  0x5a
#define VICTIM_SLOTS	  8
#define VICTIM_SLOTS_ALL  (2 * VICTIM_SLOTS) /* that the adapter has: see verbs/arrive.c */
#define VICTIM_RECV_SIZE  (64u << 10)
#define VICTIM_DEAD_AFTER 4000 /* ms, unless the board says otherwise */

/* Shared between the victim and the test. */
struct victim_board {
	atomic_int accepted, lost, messages, immediates;
	atomic_int last_status;	    /* of the last DISCONNECT */
	atomic_ullong last_length;  /* of the last immediate */
	atomic_uint last_immediate; /* itself */
	atomic_bool hold;	    /* keep received messages */
	atomic_bool stop;
	atomic_int dead_after_ms; /* of those who call from now on */
	char address[128];
	struct descriptor_wire readable, writable;
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
	uint8_t local[VICTIM_WITNESS];
};

/* In two steps for tests that fork others: these must be forked before the witness is opened. */
void victim_spawn(struct victim *victim);
void victim_open_witness(struct victim *victim);
void victim_start(struct victim *victim);

/* That the witness can still read, and write, and send; that another can connect at once; that no
 * byte of the memory has changed. */
void victim_check(struct victim *victim);
/* The witness alone. */
void victim_check_witness(struct victim *victim);
/* That one more can connect, at once. */
void victim_check_caller(struct victim *victim);
void victim_check_memory(const struct victim *victim);
/* That so many connections have been lost, beside those of victim_check, the last one for this
 * reason; RMR_OK: for any. */
void victim_expect_lost(struct victim *victim, int lost, enum rmr_status status);
/* How many receive slots the adapter has, found out by filling them. Nobody else may send. */
int victim_count_slots(struct victim *victim);
void victim_stop(struct victim *victim);

/* Waits until the counter is at least that. */
void victim_await(const atomic_int *counter, int least);

#endif
