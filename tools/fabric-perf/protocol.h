/*
 * What the client and the server of fabric-perf say to each other.
 *
 *	client					server
 *	connect, private data: hello	->	opens a queue and memory of the wished size
 *					<-	answer: MEMORY, with the descriptor
 *	command: BEGIN, one test	->	fills the memory anew
 *					<-	answer: READY, with CPU time used so far
 *	... the operations of the test ...	echoes or counts what arrives
 *	immediate PERF_END		->
 *					<-	answer: DONE, with counts and CPU time
 *	... more BEGINs, then close ...		ends the session
 *
 * Within a test every message belongs to the test, so that messages of all lengths can be measured;
 * this is why its end is told by the immediate of a WRITE_IMM of length 0, which arrives after all
 * that was sent before. Immediates of the test itself are sequence numbers below PERF_END.
 *
 * Integers are in the order of the machine. A peer of the other order, or of another version, does
 * not send our magic number and is turned down.
 */
#ifndef FABRIC_PERF_PROTOCOL_H
#define FABRIC_PERF_PROTOCOL_H

#include <assert.h>
#include <remora/fabric.h>

#define PERF_MAGIC 0x31465052u /* "RPF1" */

#define PERF_END	    0x80000000u
#define PERF_IMMEDIATE_MASK 0x7fffffffu

enum perf_hello_flag {
	PERF_HELLO_PLAIN = 1 << 0, /* the server's memory shall not lie in an arena */
	PERF_HELLO_HUGE = 1 << 1,
};

struct perf_hello {
	uint32_t magic;
	uint16_t flags;
	uint16_t wait; /* enum perf_wait, for both sides */
	uint64_t memory_size;
	uint32_t recv_size;
	uint32_t recv_slots;
	uint32_t depth;
	uint32_t reserved;
};
static_assert(sizeof(struct perf_hello) <= RMR_PRIVATE_MAX, "the hello travels with connect");

enum perf_command_flag {
	PERF_BEGIN_ECHO = 1 << 0,    /* send every message back */
	PERF_BEGIN_INLINE = 1 << 1,  /* ... with RMR_INLINE */
	PERF_BEGIN_POLL = 1 << 2,    /* do not sleep while the test runs */
	PERF_BEGIN_CHECK = 1 << 3,   /* compare what arrives with its pattern */
	PERF_BEGIN_COUNTER = 1 << 4, /* the first 8 bytes are a counter: start it at 0 */
};

struct perf_begin {
	uint32_t magic;
	uint32_t flags;
	uint64_t size;
	uint32_t depth;
	uint32_t reserved;
};
static_assert(sizeof(struct perf_begin) == 24, "no padding");

enum perf_answer_kind { PERF_MEMORY = 1, PERF_READY, PERF_DONE };

struct perf_answer {
	uint32_t magic;
	uint32_t kind;
	uint64_t received; /* DONE: messages and immediates of the test */
	uint64_t wrong;	   /* DONE: those that were out of sequence or had wrong bytes */
	uint64_t cpu_ns;   /* of the server's process, all threads */
	struct rmr_descriptor memory;
};
static_assert(sizeof(struct perf_answer) == 96, "no padding");

#endif
