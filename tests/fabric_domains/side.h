/*
 * What the tests of domains start from: two sides of a link, each a process of its own.
 *
 * A side is all that a process has open: domains on so many devices, memory with a region over it,
 * a link. The devices are given on the command line; a side with more domains than were given opens
 * them again from the first on.
 *
 * The other side is mostly a servant: it serves its memory to one caller and does what it is told
 * by messages over the link, so that these are tested as well.
 *
 *	server_start(&server, servant, 2);	forks; two devices
 *	side_open(&side, 1);			one device
 *	side_connect(&side, &server, NULL);	and takes the descriptor that the servant sends
 *	servant_fill(&side, 0, 4096, SEED);
 *	side_do(&side, &read);
 */
#ifndef TESTS_FABRIC_DOMAINS_SIDE_H
#define TESTS_FABRIC_DOMAINS_SIDE_H

#include <remora/domains.h>

#include "fabric/fixture.h"

#define STRIPE	      (64 * KIB)
#define ADDRESSES_MAX 2304

/* Given on the command line. */
struct setup {
	const char *devices[RMR_DOMAINS_MAX];
	const char *addresses[RMR_DOMAINS_MAX]; /* where each listens; NULL: as suits the device */
	int count;
	size_t large; /* length of the large transfers */
};
extern struct setup setup;

struct server {
	pid_t pid;
	struct test_pipe pipe;
	void (*role)(struct server *server);
	int domains;
	void *arg;
	char address[ADDRESSES_MAX];
};

struct side {
	struct rmr_domains *domains;
	int count;
	struct rmr_arena *arena;
	uint8_t *memory;
	size_t size;
	struct rmr_domains_region *region;
	struct rmr_domains_listener *listener;
	struct rmr_link *link;
	struct rmr_link_remote *remote;
	struct rmr_link_descriptor descriptor; /* that remote was made of */
	/* Messages that came while a completion was waited for, and the other way round: those are
	 * ordered in themselves, but not among each other. */
	struct rmr_link_event aside[64];
	int aside_count;
};

/* The other process. */
void server_start(struct server *server, void (*role)(struct server *server), int domains);
void server_join(struct server *server);
void server_kill(struct server *server);
/* For roles: tells the address to the parent. */
void server_tell(struct server *server, const char *address);
/* For the parent: waits for that. */
const char *server_address(struct server *server);

/* A fresh address to listen at on the index-th device. */
const char *fresh_address(int index, char address[128]);

/* Opens domains and memory: 2 * setup.large at least, readable and writable for peers. */
void side_open(struct side *side, int count);
void side_close(struct side *side);
void side_listen(struct side *side, const struct rmr_domains_listener_options *options);
void side_accept(struct side *side, const struct rmr_link_options *options);
/* Exports side->region over the link and sends the descriptor; takes such a one. */
void side_export(struct side *side);
void side_import(struct side *side);
/* Calls the server; NULL as options: stripes of STRIPE. Imports what it sends. */
void side_connect(struct side *side, struct server *server, const struct rmr_link_options *options);

/* The next event, whatever it is. */
struct rmr_link_event side_next(struct side *side);
/* The next event of its kind (posted or received), which must be this. */
struct rmr_link_event side_expect(struct side *side, enum rmr_op op, enum rmr_status status);
/* A work on side->memory at `at` and the remote at offset. */
struct rmr_link_work side_work(struct side *side, enum rmr_op op, size_t at, size_t length,
			       uint64_t offset);
/* Posts, and waits for success. */
void side_do(struct side *side, const struct rmr_link_work *work);
/* A short message, inline. */
void side_send(struct side *side, const void *data, size_t length);
/* Takes the next message, which must be of this length, and releases it. */
void side_recv(struct side *side, void *data, size_t length);

/* A role: exports its memory, and obeys until the link ends. */
void servant(struct server *server);
/* The same on a side that is open, for one link. */
void serve_link(struct side *side);
void servant_fill(struct side *side, size_t at, size_t length, uint64_t seed);
void servant_check(struct side *side, size_t at, size_t length, uint64_t seed);
void servant_close_region(struct side *side);

/* The tests, by file; each table ends with an entry without a name. */
extern const struct test shape_tests[], work_tests[], caller_tests[], raw_tests[], end_tests[],
	wait_tests[];

#endif
