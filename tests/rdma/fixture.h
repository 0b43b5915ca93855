/*
 * What the tests of <remora/rdma.h> share: a server in a process of its own, clients, and what
 * their callbacks saw.
 *
 * The program's command line says by which device both talk; the same tests run on every one. The
 * server of most tests echoes (roles in fixture.c): it sends back what it is sent, with the same
 * immediate, and exposes a space of SPACE_SIZE. Its messages are also orders: see enum order.
 *
 *	struct server server;
 *	struct watch watch;
 *	RdmaConn *conn;
 *
 *	server_start(&server, serve_echo, NULL);
 *	conn = client_open(&server, NULL, &watch);		connected, callbacks set
 *	CHECK_EQ(rdmaConnSend(conn, "hello", 5), 5);
 *	watch_await(&watch.messages, 1);			an echo has come
 *	rdmaConnClose(conn);
 *	server_end(&server);
 */
#ifndef TESTS_RDMA_FIXTURE_H
#define TESTS_RDMA_FIXTURE_H

#include <remora/rdma.h>
#include <stdatomic.h>

#include "harness/test.h"

/* From the command line. */
extern struct rdma_setup {
	const char *device; /* "shm", "tcp", "verbs:rxe0" */
	const char *host;
} setup;

/* How long a test waits for what must come. */
#define PATIENCE_MS (8000 * TEST_TIME_FACTOR)
#define KIB	    1024ul
#define MIB	    (1024 * KIB)
#define SPACE_SIZE  (256 * KIB)

bool setup_is_shm(void);
/* "tcp://127.0.0.1": where servers listen and clients call. */
char *setup_address(void);

/* ------------------------------------------------------------------------------------------
 * Servers
 */
struct server;
typedef void server_role(struct server *server);

struct server {
	pid_t pid;
	int port;
	struct test_pipe pipe;
	server_role *role;
	const RdmaOptions *options; /* NULL: defaults, with RDMA_BLOCKING */
	void *arg;
	RdmaListener *listener; /* in its process */
};

/* Starts a process that makes a listener and runs role, which serves. */
void server_start(struct server *server, server_role *role, const RdmaOptions *options);
/* Asks it to end, as roles below understand, and checks that it ends well. */
void server_end(struct server *server);
/* SIGSTOP, and waits until it has stopped; SIGCONT. */
void server_pause(struct server *server);
void server_resume(struct server *server);
/* SIGKILL. */
void server_kill(struct server *server);

/* Messages that the echo server understands as orders, by their immediate. */
enum order {
	ORDER_ECHO = 0,
	ORDER_CLOSE = 0x1000, /* close this connection */
	ORDER_CLOSE_ALL,      /* every connection but this one */
	ORDER_TELL_MEMORY,    /* answer with RdmaMemInfo of 64 KiB that it registers */
	ORDER_DROP_MEMORY,    /* and deregister it */
	ORDER_COUNT,	      /* answer with the count of messages that came by now */
	ORDER_WRITE_BACK, /* write the first bytes of the own space into the caller's, with imm */
	ORDER_FLOOD,	  /* payload: struct flood; send so many messages */
};

struct flood {
	uint64_t count;
	uint32_t length; /* of each; 0: varying */
};

void serve_echo(struct server *server);
/* Takes and checks numbered messages (numbered_fill), and answers the last with its count. */
void serve_sink(struct server *server);

/* Runs until the test asks for the end. */
void serve_until_end(struct server *server);

/* ------------------------------------------------------------------------------------------
 * What callbacks saw. A watch is the user data of its connection.
 */
#define WATCH_KEPT 4096u

struct watch {
	atomic_uint connected, disconnected, messages, imms, sendable, writes, reads;
	_Atomic uint64_t bytes, written_bytes, read_bytes;
	_Atomic int status; /* of the disconnect callback */
	char reason[256];
	_Atomic uint32_t last_imm;
	atomic_size_t last_length;
	uint8_t last[WATCH_KEPT]; /* the beginning of the last message */
	void *arg;		  /* the test's own */
};

/* Waits until the counter is at least so much. */
void watch_await_at(const char *file, int line, const char *what, atomic_uint *counter,
		    unsigned at_least);
#define watch_await(counter, at_least)                                                             \
	watch_await_at(__FILE__, __LINE__, #counter, counter, at_least)

/* Waits until a condition holds. */
#define AWAIT(condition)                                                                           \
	do {                                                                                       \
		int await_left = PATIENCE_MS;                                                      \
		while (!(condition) && await_left-- > 0)                                           \
			test_sleep_ms(1);                                                          \
		CHECK(condition);                                                                  \
	} while (0)

/* ------------------------------------------------------------------------------------------
 * Clients
 */

/* An endpoint with callbacks that write into the watch; not connected. */
RdmaConn *client_make(const RdmaOptions *options, struct watch *watch);
/* The same, connected to the server. Options NULL: RDMA_BLOCKING. */
RdmaConn *client_open(const struct server *server, const RdmaOptions *options, struct watch *watch);
/* What rdmaConnect says. */
int client_connect(RdmaConn *conn, const struct server *server);

/* Sends, and waits while there is no room. */
void client_send(RdmaConn *conn, const void *data, size_t length);
void client_order(RdmaConn *conn, enum order order, const void *data, size_t length);

/* Bytes that depend on their number. */
void numbered_fill(void *data, size_t length, uint64_t number);
bool numbered_is(const void *data, size_t length, uint64_t number);
/* The length of message `number` of a stream of varying lengths, at least 8. */
size_t numbered_length(uint64_t number, size_t max);

/* That a call returns RDMA_OK, telling rdmaError() if not; or RDMA_ERR with this status. */
#define CHECK_RDMA(call)	     check_rdma(__FILE__, __LINE__, #call, call)
#define CHECK_RDMA_ERR(call, status) check_rdma_err(__FILE__, __LINE__, #call, call, status)
void check_rdma(const char *file, int line, const char *what, long result);
void check_rdma_err(const char *file, int line, const char *what, long result,
		    enum rmr_status status);

/* Ended by one without a name. */
extern const struct test connect_tests[];
extern const struct test message_tests[];
extern const struct test memory_tests[];
extern const struct test misuse_tests[];
extern const struct test callback_tests[];
extern const struct test death_tests[];
extern const struct test ends_tests[];
extern const struct test many_tests[];
extern const struct test hostile_tests[];

#endif
