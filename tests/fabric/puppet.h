/*
 * A peer that does what the test tells it to, and nothing else.
 *
 * The puppet is a process of its own that has memory, exports it to each caller, and then sleeps in
 * read(2) on a pipe: between two commands it calls nothing of the library, so whatever succeeds on
 * its memory meanwhile succeeds without its help.
 *
 *	struct pair_options options = {.puppet = {.kind = MEMORY_PLAIN, .size = 4096}};
 *
 *	pair_open(&puppet, &node, &options);		forks, opens, connects, imports
 *	puppet_fill(&puppet, 0, 4096, SEED);
 *	node_do(&node, &read);
 *	pattern_check(node.memory.base, 4096, SEED, "READ");
 *	pair_close(&puppet, &node);
 */
#ifndef TESTS_FABRIC_PUPPET_H
#define TESTS_FABRIC_PUPPET_H

#include "fixture.h"

struct side_options {
	enum memory_kind kind;
	size_t size;	 /* 0: 64 KiB */
	unsigned rights; /* 0: all that a peer can be given on memory of this kind */
	struct rmr_queue_options queue;
	struct rmr_conn_options conn;
};

struct pair_options {
	struct side_options test, puppet;
};

struct puppet {
	struct peer peer;
	struct side_options options;
};

/* Makes both ends: node.memory, node.conn and node.remote are ready. options may be NULL. */
void pair_open(struct puppet *puppet, struct node *node, const struct pair_options *options);
/* Ends the puppet, which must have nothing to complain of, and closes the node. */
void pair_close(struct puppet *puppet, struct node *node);

/* The same in steps, for tests with several puppets: fork them all, then open, then connect. */
void puppet_start(struct puppet *puppet, const struct side_options *options);
void side_open(struct node *node, const struct side_options *options);
void puppet_connect(struct puppet *puppet, struct node *node,
		    const struct rmr_conn_options *options);
void puppet_quit(struct puppet *puppet);

/* One more connection between the two queues: node->conn, ->remote and ->descriptor become its; so
 * give a copy of the first node. Returns the number by which the puppet knows it: the first
 * connection is 0. */
int pair_connect(struct puppet *puppet, struct node *node);

/* Commands. Each waits until it is done. */
void puppet_fill(struct puppet *puppet, size_t at, size_t length, uint64_t seed);
void puppet_check(struct puppet *puppet, size_t at, size_t length, uint64_t seed);
void puppet_set(struct puppet *puppet, size_t at, size_t length, uint8_t byte);
void puppet_check_guard(struct puppet *puppet, size_t at, size_t length, uint8_t byte);
uint64_t puppet_load(struct puppet *puppet, size_t at);
void puppet_store(struct puppet *puppet, size_t at, uint64_t value);
/* The next completion of the puppet's queue; messages are checked and released. */
void puppet_expect_disconnect(struct puppet *puppet, int conn);
void puppet_expect_recv(struct puppet *puppet, int conn, size_t length, uint64_t seed);
void puppet_expect_imm(struct puppet *puppet, int conn, uint32_t immediate, size_t length);
/* Takes so many messages and immediates, whatever they say. */
void puppet_discard(struct puppet *puppet, int count);
void puppet_expect_silence(struct puppet *puppet, int milliseconds);
void puppet_send(struct puppet *puppet, int conn, size_t length, uint64_t seed);
void puppet_close_region(struct puppet *puppet);
void puppet_detach_region(struct puppet *puppet);
/* A new one over the same memory, that nobody is told of. */
void puppet_open_region(struct puppet *puppet);
void puppet_close_conn(struct puppet *puppet, int conn);
/* Takes all that connection has to say, up to its end, and closes it. */
void puppet_drop(struct puppet *puppet, int conn);

/* A flood: sends `count` messages of `length` bytes with seeds from `seed` on, as fast as they
 * go, while the test does what it likes; puppet_finish waits for its end. */
void puppet_start_flood(struct puppet *puppet, int count, size_t length, uint64_t seed);
/* Takes messages as they come: `count` of them, lengths and seeds as above. */
void puppet_start_sink(struct puppet *puppet, int count, size_t length, uint64_t seed);
void puppet_finish(struct puppet *puppet);

#endif
