/* The fixture of the control plane's C tests: see control_fixture.h. */
#include "control_fixture.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/embed.h"
#include "store/store.h"

#define FIGURE_WAIT_MS 10000

struct control_setup setup;

bool setup_is_shm(void)
{
	return strstr(setup.device, "shm") != NULL;
}

int setup_take(int argc, char **argv)
{
	int to = 1;

	if (!getenv("REMORA_LOG"))
		log_set_level(LOG_LEVEL_ERROR); /* the warnings here are what a test is about */
	setup.device = "shm";
	setup.host = "127.0.0.1";
	for (int from = 1; from < argc; from++) {
		if (strcmp(argv[from], "--provider") == 0 && from + 1 < argc)
			setup.device = argv[++from];
		else if (strcmp(argv[from], "--host") == 0 && from + 1 < argc)
			setup.host = argv[++from];
		else if (strcmp(argv[from], "--fault-plan") == 0 && from + 1 < argc)
			setup.fault_plan = argv[++from];
		else
			argv[to++] = argv[from];
	}
	argv[to] = NULL;
	return to;
}

void pause_ms(int ms)
{
	poll(NULL, 0, ms);
}

const char *write_file(const char *name, const char *text)
{
	static char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", test_tmpdir(), name);
	file = fopen(path, "w");
	CHECK(file);
	CHECK(fputs(text, file) >= 0);
	CHECK_EQ(fclose(file), 0);
	CHECK_EQ(chmod(path, 0600), 0);
	return path;
}

/* ------------------------------------------------------------------------------------------
 * Server
 */

static void check_store(kv_server_t *server)
{
	char why[256] = "";

	if (!store_is_valid(server_store(server), why, sizeof(why)))
		TEST_FAIL("the store: %s", why);
}

static void check_nothing_held(kv_control_server_t *control)
{
	char *text, *at;

	CHECK_EQ(kv_control_server_stats(control, &text), KV_OK);
	at = strstr(text, "control.plane.bytes_held ");
	if (at)
		CHECK_EQ(strtoull(at + strlen("control.plane.bytes_held "), NULL, 10), 0);
	free(text);
}

static void serve(void *argument)
{
	struct service *service = argument;
	kv_control_server_t *control;
	kv_server_t *server;
	char address[128] = "";
	char byte;
	int port;

	if (setup.fault_plan)
		setenv("REMORA_FAULT_PLAN", setup.fault_plan, 1);
	if (kv_server_create(&service->options, &server) != KV_OK ||
	    kv_server_start(server) != KV_OK)
		TEST_FAIL("the server: %s", kv_server_error());
	if (kv_control_server_create(server, &service->control, &control) != KV_OK ||
	    kv_control_server_start(control) != KV_OK)
		TEST_FAIL("the gRPC server: %s", kv_control_server_error());
	snprintf(address, sizeof(address), "%s", kv_control_server_address(control));
	port = kv_server_port(server);
	test_send(&service->pipe, TEST_CHILD, &port, sizeof(port));
	test_send(&service->pipe, TEST_CHILD, address, sizeof(address));
	/* Until the test says so, or is gone. */
	while (read(service->pipe.fds[TEST_CHILD], &byte, 1) < 0)
		;
	/* What clients leave behind goes with them, which may take a moment. */
	for (int i = 0; i < 50 * (int)TEST_TIME_FACTOR; i++)
		pause_ms(1);
	check_nothing_held(control);
	kv_control_server_destroy(control);
	kv_server_stop(server);
	check_store(server);
	kv_server_destroy(server);
}

static void launch(struct service *service)
{
	test_pipe_open(&service->pipe);
	service->pid = test_spawn(serve, service);
	test_recv(&service->pipe, TEST_PARENT, &service->port, sizeof(service->port));
	test_recv(&service->pipe, TEST_PARENT, service->address, sizeof(service->address));
	snprintf(service->url, sizeof(service->url), "%s://%s",
		 service->control.tls_cert ? "https" : "http", service->address);
	service->control.address = service->address;
}

void service_start(struct service *service, const kv_server_options_t *options,
		   const kv_control_server_options_t *control)
{
	memset(service, 0, sizeof(*service));
	if (options)
		service->options = *options;
	if (control)
		service->control = *control;
	if (!service->options.memory)
		service->options.memory = 64 << 20;
	service->options.workers = 1;
	service->options.listen = setup.device;
	service->options.address = setup_is_shm() ? NULL : setup.host;
	service->options.port = strstr(setup.device, "tcp") ? -1 : 12345;
	/* The data plane listens at gRPC's host, and no adapter leads to the loopback. */
	snprintf(service->address, sizeof(service->address), "%s:0",
		 strncmp(setup.device, "verbs", 5) == 0 && setup.host ? setup.host : "127.0.0.1");
	if (!service->control.address)
		service->control.address = service->address;
	setenv("REMORA_SHM_DIR", test_tmpdir(), 1);
	launch(service);
}

void service_restart(struct service *service)
{
	test_pipe_close(&service->pipe);
	launch(service);
}

void service_stop(struct service *service)
{
	test_signal(&service->pipe, TEST_PARENT);
	test_wait(service->pid);
	service->pid = 0;
}

/* ------------------------------------------------------------------------------------------
 * Clients
 */

int client_try(const struct service *service, const kv_control_options_t *options,
	       kv_control_t **control)
{
	kv_control_options_t own = {0};

	if (options)
		own = *options;
	if (!own.devices)
		own.devices = setup.device;
	if (!own.timeout_ms)
		own.timeout_ms = 20000 * (int)TEST_TIME_FACTOR;
	if (!own.connect_timeout_ms)
		own.connect_timeout_ms = 20000 * (int)TEST_TIME_FACTOR;
	if (setup.fault_plan)
		setenv("REMORA_FAULT_PLAN", setup.fault_plan, 1);
	return kv_control_connect(service->url, &own, control);
}

kv_control_t *client_open(const struct service *service, const kv_control_options_t *options)
{
	kv_control_t *control;
	int status = client_try(service, options, &control);

	if (status != KV_OK)
		TEST_FAIL("connect: %s: %s", kv_strerror(status), kv_control_error(NULL));
	if (!(options && (options->no_data_plane || options->devices)) &&
	    strncmp(kv_control_transport(control), "inline", 6) == 0)
		TEST_FAIL("no data plane: %s", kv_control_transport(control));
	return control;
}

uint64_t control_figure(kv_control_t *control, const char *name)
{
	char *text, *line;
	uint64_t figure;
	size_t length = strlen(name);

	CHECK_KV(control, kv_control_stats(control, &text), KV_OK);
	for (line = text; line && !(strncmp(line, name, length) == 0 && line[length] == ' ');
	     line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		;
	if (!line)
		TEST_FAIL("no figure \"%s\" in\n%s", name, text);
	figure = strtoull(line + length, NULL, 10);
	kv_free(text);
	return figure;
}

void control_await_figure(kv_control_t *control, const char *name, uint64_t value)
{
	uint64_t deadline_ns = clock_deadline_ns(FIGURE_WAIT_MS * (int)TEST_TIME_FACTOR);
	uint64_t found;

	while ((found = control_figure(control, name)) != value) {
		if (clock_passed(deadline_ns))
			TEST_FAIL("%s is %llu, not %llu", name, (unsigned long long)found,
				  (unsigned long long)value);
		pause_ms(10);
	}
}

void check_kv(const char *file, int line, const char *what, const kv_control_t *control, int status,
	      int expected)
{
	if (status != expected)
		test_fail(file, line, "%s: %d (%s), not %d (%s): %s", what, status,
			  kv_strerror(status), expected, kv_strerror(expected),
			  kv_control_error(control));
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

	for (size_t at = 0; at < length; at += 8) {
		uint64_t word = word_at(number, at);

		memcpy(bytes + at, &word, length - at < 8 ? length - at : 8);
	}
}

bool value_is(const void *value, size_t length, uint64_t number)
{
	const uint8_t *bytes = value;

	for (size_t at = 0; at < length; at += 8) {
		uint64_t word = word_at(number, at);

		if (memcmp(bytes + at, &word, length - at < 8 ? length - at : 8) != 0)
			return false;
	}
	return true;
}
