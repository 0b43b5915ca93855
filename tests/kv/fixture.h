/*
 * What the tests of the key-value service share: a server in a process of its own, and clients.
 *
 * The program's command line says by which device both talk; the same tests run on every one.
 */
#ifndef TESTS_KV_FIXTURE_H
#define TESTS_KV_FIXTURE_H

#include <remora/kv.h>
#include <remora/server.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "harness/test.h"

/* From the command line. */
extern struct kv_setup {
	const char *device; /* "shm", "tcp", "fault:tcp", "verbs:rxe0,socket" */
	const char *host;
	const char *fault_plan;
} setup;

struct server {
	pid_t pid;
	int port;
	struct test_pipe pipe;
	kv_server_options_t options;
};

bool setup_is_shm(void);

/* Starts one with these options; NULL: 64 MiB. Where it listens is filled in. */
void server_start(struct server *server, const kv_server_options_t *options);
/* The same one again, at the same place, after it was stopped or killed. */
void server_restart(struct server *server);
/* Graceful, and checks that it ends well. */
void server_stop(struct server *server);
/* Stops a child with SIGSTOP and waits until all of its threads have stopped. */
void stop_process(pid_t pid);

/* A client that is connected; NULL: default options. Fails the test if it cannot be. */
kv_client_t *client_open(const struct server *server, const kv_client_options_t *options);
/* The same, but returns what connecting said. */
int client_try(const struct server *server, const kv_client_options_t *options,
	       kv_client_t **client);

/* A figure of the server's statistics. */
uint64_t client_figure(kv_client_t *client, const char *name);

/* That a call of the client returns this; tells kv_client_error() if not. */
#define CHECK_KV(client, call, expected) check_kv(__FILE__, __LINE__, #call, client, call, expected)
void check_kv(const char *file, int line, const char *what, kv_client_t *client, int status,
	      int expected);

/* Values that carry their number: every byte depends on it. */
void value_fill(void *value, size_t length, uint64_t number);
/* False: some byte is wrong. */
bool value_is(const void *value, size_t length, uint64_t number);

/* Ended by one without a name. */
extern const struct test basic_tests[];
extern const struct test size_tests[];
extern const struct test many_tests[];
extern const struct test counter_tests[];
extern const struct test failure_tests[];
extern const struct test life_tests[];
extern const struct test trust_tests[];
extern const struct test progress_tests[];
extern const struct test handle_tests[];

#endif
