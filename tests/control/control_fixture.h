/*
 * What the C tests of the control plane share: a server in a process of its own, with gRPC, and
 * clients of <remora/control.h>. The program's command line says by which device values travel.
 */
#ifndef TESTS_CONTROL_CONTROL_FIXTURE_H
#define TESTS_CONTROL_CONTROL_FIXTURE_H

#include <remora/control.h>
#include <remora/control_server.h>
#include <sys/types.h>

#include "harness/test.h"

/* From the command line: "shm", "tcp", "verbs:rxe0", "fault:tcp" ... */
extern struct control_setup {
	const char *device;
	const char *host; /* where the data plane listens */
	const char *fault_plan;
} setup;

bool setup_is_shm(void);
/* Takes our options away. */
int setup_take(int argc, char **argv);

struct service {
	pid_t pid;
	struct test_pipe pipe;
	kv_server_options_t options;
	kv_control_server_options_t control;
	int port;	   /* of the native protocol */
	char address[128]; /* "127.0.0.1:40123" */
	char url[160];
};

/* options and control may be NULL; what is 0 in them has a default that suits tests. */
void service_start(struct service *service, const kv_server_options_t *options,
		   const kv_control_server_options_t *control);
/* The same one again, at the same address, after it was stopped or killed. */
void service_restart(struct service *service);
/* Graceful. The server's process checks that the store is in order, and nothing is held. */
void service_stop(struct service *service);

/* By the device of the command line. Fails the test if it cannot be. */
kv_control_t *client_open(const struct service *service, const kv_control_options_t *options);
int client_try(const struct service *service, const kv_control_options_t *options,
	       kv_control_t **control);
/* A figure of the server; fails if there is none. */
uint64_t control_figure(kv_control_t *control, const char *name);
/* Waits until it has this value. */
void control_await_figure(kv_control_t *control, const char *name, uint64_t value);

#define CHECK_KV(control, call, expected)                                                          \
	check_kv(__FILE__, __LINE__, #call, control, call, expected)
void check_kv(const char *file, int line, const char *what, const kv_control_t *control, int status,
	      int expected);

/* Values that carry their number: every byte depends on it. */
void value_fill(void *value, size_t length, uint64_t number);
/* False: some byte is wrong. */
bool value_is(const void *value, size_t length, uint64_t number);

/* A file in the test's directory. */
const char *write_file(const char *name, const char *text);

void pause_ms(int ms);

/* control_client_chunks.c: puts and gets such values. */
void check_chunks(kv_control_t *control);

#endif
