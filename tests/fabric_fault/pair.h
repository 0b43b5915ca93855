/*
 * Two processes joined by one or more connections of a fault device over FAULT_INNER, each with a
 * plan of its own.
 *
 *	static void serve(struct end *end)		the other process, already connected
 *	{
 *		end_expect(end, 0, RMR_OP_DISCONNECT, RMR_DISCONNECTED);
 *	}
 *
 *	peer_start(&peer, "seed=1", 1, serve);		the test
 *	end_connect(&end, &peer, "drop_at=5");
 *	...
 *	peer_join(&peer);
 *	end_close(&end);
 *
 * Both ends have MEMORY_SIZE bytes in an arena, granted to the other with all rights. Descriptors
 * go through a pipe, so that the first operation on a connection is the test's own.
 */
#ifndef TESTS_FABRIC_FAULT_PAIR_H
#define TESTS_FABRIC_FAULT_PAIR_H

#include <remora/fabric.h>

#include "harness/test.h"

#define MEMORY_SIZE (256u << 10)
#define CONNS_MAX   8
#define RECV_SLOTS  256

#define DEVICE_NAME "fault:" FAULT_INNER

#define PATIENCE_MS (10000 * TEST_TIME_FACTOR)

struct end {
	struct test_pipe *pipe;
	enum test_side side;
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_listener *listener;
	struct rmr_arena *arena;
	uint8_t *memory;
	struct rmr_region *region;
	struct rmr_conn *conns[CONNS_MAX];
	struct rmr_remote *remotes[CONNS_MAX];
	int count;
};

struct peer {
	pid_t pid;
	struct test_pipe pipe;
	const char *plan;
	int conns;
	void (*body)(struct end *end);
};

/* Starts the other process: it listens, accepts conns callers, then runs body, then closes. */
void peer_start(struct peer *peer, const char *plan, int conns, void (*body)(struct end *end));
void peer_join(struct peer *peer);

/* Opens this end: device, queue, memory. */
void end_open(struct end *end, const char *plan);
/* Opens the other's memory on every connection; returns when both ends have. */
void end_exchange(struct end *end);
/* All of this: opens, connects to the peer, exchanges. */
void end_connect(struct end *end, struct peer *peer, const char *plan);
void end_close(struct end *end);

/* A signaled operation of connection 0 on this end's memory at `at` and the peer's at offset. */
struct rmr_work end_work(struct end *end, enum rmr_op op, size_t at, size_t length,
			 uint64_t offset);
/* Posts all on connection `index`; goes on trying while there is no room. */
void end_post(struct end *end, int index, const struct rmr_work *works, int count);

/* The next completion; fails the test if none comes. */
struct rmr_completion end_next(struct end *end);
/* The next completion, which must be this. */
struct rmr_completion end_expect(struct end *end, int index, enum rmr_op op,
				 enum rmr_status status);
/* Posts one operation on connection 0 and waits for its success. */
void end_do(struct end *end, const struct rmr_work *work);

#endif
