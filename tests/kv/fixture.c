/* The fixture of the key-value tests: see fixture.h. */
#include "fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct kv_setup setup;

bool setup_is_shm(void)
{
	return strstr(setup.device, "shm") != NULL;
}

/* ------------------------------------------------------------------------------------------
 * Server
 */

static void serve(void *argument)
{
	struct server *server = argument;
	kv_server_t *handle;
	int port;

	if (setup.fault_plan)
		setenv("REMORA_FAULT_PLAN", setup.fault_plan, 1);
	if (kv_server_create(&server->options, &handle) != KV_OK ||
	    kv_server_start(handle) != KV_OK)
		TEST_FAIL("the server: %s", kv_server_error());
	port = kv_server_port(handle);
	test_send(&server->pipe, TEST_CHILD, &port, sizeof(port));
	/* Until the test says so, or is gone. */
	while (read(server->pipe.fds[TEST_CHILD], &port, 1) < 0)
		;
	kv_server_stop(handle);
	kv_server_destroy(handle);
}

static void launch(struct server *server)
{
	int port;

	test_pipe_open(&server->pipe);
	server->pid = test_spawn(serve, server);
	test_recv(&server->pipe, TEST_PARENT, &port, sizeof(port));
	server->port = port ? port : server->options.port;
	server->options.port = server->port;
}

void server_start(struct server *server, const kv_server_options_t *options)
{
	memset(server, 0, sizeof(*server));
	if (options)
		server->options = *options;
	if (!server->options.memory)
		server->options.memory = 64 << 20;
	if (!server->options.workers)
		server->options.workers = 1;
	if (!server->options.listen)
		server->options.listen = setup.device;
	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	/* A free one where the kernel gives one; on shm it is only a part of the name. */
	server->options.port = strstr(setup.device, "tcp") ? -1 : 12345;
	server->options.address = setup.host;
	launch(server);
}

void server_restart(struct server *server)
{
	test_pipe_close(&server->pipe);
	launch(server);
}

void server_stop(struct server *server)
{
	test_signal(&server->pipe, TEST_PARENT);
	test_wait(server->pid);
	server->pid = 0;
}

void stop_process(pid_t pid)
{
	int status;

	CHECK_EQ(kill(pid, SIGSTOP), 0);
	/* The kernel reports a stopped child when its last thread has stopped. */
	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	CHECK(WIFSTOPPED(status));
}

/* ------------------------------------------------------------------------------------------
 * Clients
 */

int client_try(const struct server *server, const kv_client_options_t *options,
	       kv_client_t **client)
{
	kv_client_options_t own = {0};

	if (options)
		own = *options;
	own.device = setup.device;
	/* An emulated machine is slow. */
	if (!own.timeout_ms)
		own.timeout_ms = 5000 * (int)TEST_TIME_FACTOR;
	if (!own.connect_timeout_ms)
		own.connect_timeout_ms = 5000 * (int)TEST_TIME_FACTOR;
	if (setup.fault_plan)
		setenv("REMORA_FAULT_PLAN", setup.fault_plan, 1);
	*client = kv_client_create_with(CONN_MODE_AUTO, &own);
	CHECK(*client);
	return kv_client_connect(*client, setup.host, server->port);
}

kv_client_t *client_open(const struct server *server, const kv_client_options_t *options)
{
	kv_client_t *client;
	int status = client_try(server, options, &client);

	if (status != KV_OK)
		TEST_FAIL("connect: %s: %s", kv_strerror(status), kv_client_error(client));
	return client;
}

uint64_t client_figure(kv_client_t *client, const char *name)
{
	char *text, *line;
	uint64_t figure;
	size_t length = strlen(name);

	CHECK_KV(client, kv_client_stats(client, &text), KV_OK);
	for (line = text; line && !(strncmp(line, name, length) == 0 && line[length] == ' ');
	     line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		;
	if (!line)
		TEST_FAIL("no figure \"%s\" in\n%s", name, text);
	figure = strtoull(line + length, NULL, 10);
	kv_free(text);
	return figure;
}

void check_kv(const char *file, int line, const char *what, kv_client_t *client, int status,
	      int expected)
{
	if (status != expected)
		test_fail(file, line, "%s: %d (%s), not %d (%s): %s", what, status,
			  kv_strerror(status), expected, kv_strerror(expected),
			  kv_client_error(client));
}

/* ------------------------------------------------------------------------------------------
 * Values
 */

static uint64_t word_at(uint64_t number, size_t at)
{
	uint64_t x = number * 0x9e3779b97f4a7c15u + at * 0xbf58476d1ce4e5b9u;

	return x ^ x >> 29;
}

void value_fill(void *value, size_t length, uint64_t number)
{
	uint8_t *bytes = value;
	size_t at = 0;

	for (; at + 8 <= length; at += 8) {
		uint64_t word = word_at(number, at);

		memcpy(bytes + at, &word, 8);
	}
	for (; at < length; at++)
		bytes[at] = (uint8_t)word_at(number, at);
}

bool value_is(const void *value, size_t length, uint64_t number)
{
	const uint8_t *bytes = value;
	size_t at = 0;

	for (; at + 8 <= length; at += 8) {
		uint64_t word = word_at(number, at);

		if (memcmp(bytes + at, &word, 8) != 0)
			return false;
	}
	for (; at < length; at++)
		if (bytes[at] != (uint8_t)word_at(number, at))
			return false;
	return true;
}
