/* The server that is tested: inside the test's own process, listening by shm and tcp. */
#ifndef TESTS_SERVER_SUBJECT_H
#define TESTS_SERVER_SUBJECT_H

#include <remora/server.h>

struct subject {
	kv_server_t *server;
	char tcp[64];
};

/* Starts one. listen, port and memory have defaults of the tests' own. */
void subject_start(struct subject *subject, const kv_server_options_t *options);
void subject_stop(struct subject *subject);

/* Where to connect by "shm" or "tcp". */
const char *subject_address(const struct subject *subject, const char *by);

/* A figure of its statistics. */
uint64_t subject_figure(const struct subject *subject, const char *name);
/* Waits until a figure has a value. */
void subject_await(const struct subject *subject, const char *name, uint64_t value);

/* A file with a key, made of this letter. */
const char *subject_key_file(char letter);

/* Calls it for each way to connect. */
void subject_for_each(void (*function)(const char *by));

#endif
