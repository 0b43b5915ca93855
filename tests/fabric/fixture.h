/*
 * What every conformance test starts from.
 *
 * The suite runs on one device, given on the command line and kept in `fixture`. A test is a
 * function without arguments that plays one end of a connection; the other end is a process of its
 * own, forked before either of them opens a device. All that a process has open is a `struct node`.
 *
 *	static void greet(struct node *node)			the other process
 *	{
 *		node_open(node, NULL);
 *		node_accept(node, NULL);
 *		node_send(node, 100, SEED);
 *		node_close(node);
 *	}
 *
 *	static void test_greeting(void)				the test
 *	{
 *		struct peer peer;
 *		struct node node;
 *
 *		peer_start(&peer, greet, NULL);
 *		node_open(&node, NULL);
 *		node_connect(&node, &peer, NULL);
 *		node_recv(&node, 100, SEED);
 *		peer_join(&peer);
 *		node_close(&node);
 *	}
 *
 * Most tests need no role function of their own: their peer is a puppet (puppet.h), led through a
 * pipe by the test, so that a test reads from top to bottom like a script.
 *
 * Bytes are patterns: `pattern_fill(p, n, seed)` writes n bytes that only this seed makes, and
 * `pattern_check` compares every one of them. Every wait ends by itself: PATIENCE_MS, or the test's
 * time limit.
 */
#ifndef TESTS_FABRIC_FIXTURE_H
#define TESTS_FABRIC_FIXTURE_H

#include <remora/fabric.h>

#include "harness/test.h"

/* How long a test waits for what must come. Far more than is needed, also on a loaded machine. */
#define PATIENCE_MS (8000 * TEST_TIME_FACTOR)

#define KIB (1ul << 10)
#define MIB (1ul << 20)

/* What this run is about. Set by main, the same in all processes. */
struct fixture {
	const char *device;	/* as rmr_device_open takes it */
	const char *host;	/* tcp: where to listen, "127.0.0.1" or "[::1]"; NULL on shm */
	const char *fault_plan; /* "fault:..." devices; else NULL */
};
extern struct fixture fixture;

/* A fresh address to listen at: a port to be picked, or a socket file in the test's directory. */
const char *fixture_address(char address[128]);

/* ------------------------------------------------------------------------------------------
 * The other process
 */
struct node;
typedef void role_function(struct node *node);

struct peer {
	pid_t pid;
	struct test_pipe pipe;
	role_function *role;
	void *arg;
	char address[128];
};

/* Runs role in a new process. arg is node->arg there. */
void peer_start(struct peer *peer, role_function *role, void *arg);
/* Waits for its end, which must be a success. */
void peer_join(struct peer *peer);
/* Ends it by SIGKILL. */
void peer_kill(struct peer *peer);

/* ------------------------------------------------------------------------------------------
 * What a process has open
 */
enum memory_kind {
	MEMORY_ARENA,  /* an arena that peers may write */
	MEMORY_SEALED, /* an arena that they may only read */
	MEMORY_PLAIN,  /* malloc */
};

struct memory {
	uint8_t *base;
	size_t size;
	struct rmr_arena *arena;
	struct rmr_region *region;
};

/* Completions that came while another kind was waited for. What was posted and what was received
 * are ordered in themselves, but not among each other. */
struct aside {
	struct rmr_completion entries[256];
	int count;
};

struct node {
	void *arg; /* of peer_start */
	struct test_pipe *pipe;
	struct rmr_device *device;
	const struct rmr_device_info *info;
	struct rmr_queue *queue;
	struct aside *aside; /* of the queue: shared by copies of the node */
	struct rmr_listener *listener;
	struct rmr_conn *conn;
	struct memory memory;
	struct rmr_remote *remote;
	struct rmr_descriptor descriptor; /* that remote was made of */
};

/* Opens device and queue; options may be NULL. */
void node_open(struct node *node, const struct rmr_queue_options *options);
/* Closes all that is open, in the right order. */
void node_close(struct node *node);
/* The queue alone, for threads that share a device. */
void node_open_queue(struct node *node, const struct rmr_queue_options *options);
void node_close_queue(struct node *node);

/* Listens at a fresh address and tells it to the parent. */
void node_listen(struct node *node);
/* Takes one caller as node->conn; listens first if need be. */
void node_accept(struct node *node, const struct rmr_conn_options *options);
/* Calls the peer, once it has told its address. */
void node_connect(struct node *node, struct peer *peer, const struct rmr_conn_options *options);

/* Opens node->memory with a region over all of it. */
void node_memory(struct node *node, enum memory_kind kind, size_t size, unsigned rights);
/* The same for any memory. */
void memory_open(struct node *node, struct memory *memory, enum memory_kind kind, size_t size,
		 unsigned rights);
void memory_close(struct memory *memory);
/* What rights a peer can be given on memory of this kind with this device. */
unsigned memory_rights(const struct node *node, enum memory_kind kind);

/* Sends the descriptor of node->memory to the peer, who takes it as node->remote. */
void node_export(struct node *node);
void node_import(struct node *node);

/* ------------------------------------------------------------------------------------------
 * Operations
 */

/* An operation on node->memory at `at` and node->remote at offset. Fields can be changed before
 * node_post. */
struct rmr_work work_of(struct node *node, enum rmr_op op, size_t at, size_t length,
			uint64_t offset);

/* Posts; waits for room if need be. */
void node_post(struct node *node, const struct rmr_work *work);
/* Posts one signaled operation and waits for its success. */
void node_do(struct node *node, const struct rmr_work *work);

/* The next completion, whatever it is. */
struct rmr_completion node_next(struct node *node);
/* The next completion of its kind (posted or received), which must be of this operation and with
 * this status. */
struct rmr_completion node_expect(struct node *node, enum rmr_op op, enum rmr_status status);
/* The next completion, which must be the end of conn; a reason is given with it. */
void node_expect_disconnect(struct node *node, struct rmr_conn *conn);
/* That nothing comes for so long. */
void node_expect_silence(struct node *node, int milliseconds);
/* Takes all that the lost connection still has to say and checks that it is in order: errors only
 * after successes, one DISCONNECT, as the last, within 5 s. Returns how many completions of posted
 * operations came, and adds up their successes. */
int node_drain(struct node *node, int *successes);

/* Messages with a pattern: sends inline or from node->memory, at its start; waits for success. */
void node_send(struct node *node, size_t length, uint64_t seed);
/* Takes the next completion, which must be such a message, and releases it. */
void node_recv(struct node *node, size_t length, uint64_t seed);

/* ------------------------------------------------------------------------------------------
 * Patterns
 */
void pattern_fill(void *data, size_t length, uint64_t seed);
/* Fails the test at the first wrong byte; what says where we are. */
void pattern_check(const void *data, size_t length, uint64_t seed, const char *what);
/* That all bytes are `byte`. */
void guard_check(const void *data, size_t length, uint8_t byte, const char *what);

const char *op_name(enum rmr_op op);

#endif
