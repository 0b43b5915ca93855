/*
 * The two ends of a test of ping-pong, each a process of its own.
 *
 *	end_start(&peer, servant, NULL);	forks
 *	ctx = end_call(&peer);			connects, once the peer has told its name
 *	tell(ctx, ORDER_REGISTER, 0, 4096, 0);	its answer is in ctx->packet
 *	...
 *	RDMA_disconnect(ctx);
 *	end_join(&peer);
 *
 * Most peers are servants, that do what packets tell them; so a test reads from top to bottom. What
 * a device is called, and hosts, patterns and raw ends come from the fabric's tests.
 *
 *	ends.c			these
 *	packets.c		packets and FINs, in any order
 *	memory.c		registered memory, reads and writes
 *	clients.c		many of them, names, and the header's example
 *	failure.c		peers that die, stop, or leave; time that is over; misuse
 *	hostile.c		peers that are not ping-pong, and those that lie
 */
#ifndef TESTS_PINGPONG_ENDS_H
#define TESTS_PINGPONG_ENDS_H

#include <remora/pingpong.h>

#include "fabric/fixture.h"

struct end {
	pid_t pid;
	struct test_pipe pipe;
	void (*role)(struct end *end);
	void *arg;
	enum test_side side;
	PingpongListener *listener;
	char name[384];
};

/* Runs role in a new process. */
void end_start(struct end *end, void (*role)(struct end *end), void *arg);
void end_join(struct end *end);
void end_kill(struct end *end);

/* For roles: listens and tells the name; takes the next client. */
void end_listen(struct end *end);
PingpongContext *end_accept(struct end *end);
/* The other side's name, waited for: in the test, or in a role that is a client. */
char *end_name(struct end *end);
/* For tests that are servers: tells the name to such a one. It was started before anything was
 * opened here, as after fork() a child can use nothing of its parent's. */
void end_tell_name(struct end *end, const PingpongListener *listener);
/* A connection to the peer. */
PingpongContext *end_call(struct end *end);

/* A name of this run's device to listen at. */
char *fresh_name(char name[384]);
/* The name for an address of the fabric. */
char *raw_name(const char *address, char name[384]);
/* For literals: the names' type is the seed's. */
static inline int connect_to(const char *name, PingpongContext **ctx)
{
	return RDMA_connect((char *)name, ctx);
}
static inline int listen_at(const char *name, PingpongListener **listener)
{
	return RDMA_listen((char *)name, listener);
}

/* What a servant does when it gets such a packet; then it answers with one of the same type. */
enum order {
	ORDER_ECHO = 1,	  /* sends it back as it is */
	ORDER_REGISTER,	  /* size; the answer has addr and key */
	ORDER_DEREGISTER, /* addr */
	ORDER_FILL,	  /* addr, size, key: fills with this pattern */
	ORDER_CHECK,	  /* addr, size, key: checks that it is this pattern */
	ORDER_TALK,	  /* key: says what talk() says, before it answers */
	ORDER_FIN,	  /* waits for so many FINs: size */
	ORDER_FORGET,	  /* addr: deregisters it, and does not answer */
	ORDER_LEAVE,	  /* disconnects at once, without an answer */
};

/* A role: serves one client until that goes. */
void servant(struct end *end);
/* The same on a context, which is freed. */
void serve(PingpongContext *ctx);
void tell(PingpongContext *ctx, enum order order, uint64_t addr, uint64_t size, uint32_t key);
/* ORDER_REGISTER. Returns the address; the key is in ctx->packet. */
char *ask_for_memory(PingpongContext *ctx, size_t size);

/* A talk: packets and FINs in an order that the seed makes, TALK_LENGTH of them together. listen()
 * receives it, all packets first if fins_last, else each FIN before the packets. */
#define TALK_LENGTH 60
void talk(PingpongContext *ctx, uint64_t seed);
void hear(PingpongContext *ctx, uint64_t seed, bool fins_last);

/* That a call returns 0; that it returns 1, and the message has this part. */
#define CHECK_DONE(call)                                                                           \
	do {                                                                                       \
		if ((call) != 0)                                                                   \
			TEST_FAIL("%s: %s", #call, RDMA_error());                                  \
	} while (0)
#define CHECK_FAILS(call, part)                                                                    \
	do {                                                                                       \
		CHECK_EQ(call, 1);                                                                 \
		CHECK_CONTAINS(RDMA_error(), part);                                                \
	} while (0)

/* The tests, by file; each table ends with an entry without a name. */
extern const struct test packet_tests[], memory_tests[], client_tests[], failure_tests[],
	hostile_tests[];

#endif
