/*
 * Deadlines watch progress, not total time; and an operation that was given up costs neither the
 * connection nor the caller's memory.
 *
 * A value takes longer than timeout_ms because the test makes it wait, so nothing here depends on
 * how fast the machine is.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fixture.h"

#define KEY(text)   text, sizeof(text) - 1
#define LONG_LENGTH ((size_t)256 << 20)
#define HUGE_LENGTH ((size_t)1 << 30)
#define TIMEOUT_MS  ((int)(2000 * TEST_TIME_FACTOR))
#define PAUSE_MS    (TIMEOUT_MS / 4)

static bool setup_is_tcp(void)
{
	return strcmp(setup.device, "tcp") == 0;
}

static void *allocate(size_t length)
{
	void *memory = malloc(length);

	CHECK(memory != NULL);
	return memory;
}

/* ------------------------------------------------------------------------------------------
 * Given up
 */

/* Waits until the server answers again. */
static void wait_until_heard(kv_client_t *client)
{
	while (kv_client_ping(client, NULL) != KV_OK)
		test_sleep_ms(10);
}

static void check_same_connection(kv_client_t *client)
{
	kv_client_totals_t totals;

	kv_client_get_totals(client, &totals);
	CHECK_EQ(totals.reconnects, 0);
}

/* The put is given up, its memory is used for something else, and the server goes on. */
static void give_up_put(struct server *server, kv_client_t *client, size_t length, uint64_t number)
{
	uint8_t *value = allocate(length), *found = allocate(length);
	size_t found_length = length;
	int status;

	value_fill(value, length, number);
	stop_process(server->pid);
	status = kv_client_put(client, KEY("key"), value, length);
	if (status != KV_UNKNOWN && status != KV_TIMEOUT)
		TEST_FAIL("put to a stopped server: %d: %s", status, kv_client_error(client));
	memset(value, 0xee, length);
	kill(server->pid, SIGCONT);
	wait_until_heard(client);
	status = kv_client_get(client, KEY("key"), found, &found_length);
	if (status == KV_OK)
		CHECK(found_length == length && value_is(found, length, number));
	else
		CHECK_EQ(status, KV_NOT_FOUND);
	/* What is put now stays: the one that was given up does not come after it. */
	value_fill(value, length, number + 1);
	CHECK_KV(client, kv_client_put(client, KEY("key"), value, length), KV_OK);
	for (int i = 0; i < 20; i++) {
		test_sleep_ms(5);
		found_length = length;
		CHECK_KV(client, kv_client_get(client, KEY("key"), found, &found_length), KV_OK);
		CHECK(found_length == length && value_is(found, length, number + 1));
	}
	CHECK_KV(client, kv_client_delete(client, KEY("key")), KV_OK);
	free(value);
	free(found);
}

static void test_put_given_up(void)
{
	static const size_t lengths[] = {100, 100000, 1 << 20, 5 << 20, 20 << 20};
	const kv_client_options_t options = {.timeout_ms = 300};
	struct server server;
	kv_client_t *client;

	if (strncmp(setup.device, "fault", 5) == 0)
		TEST_SKIP("the fault provider's connections end with a region that is used");
	server_start(&server, NULL);
	for (unsigned i = 0; i < TEST_COUNT(lengths); i++) {
		client = client_open(&server, &options);
		give_up_put(&server, client, lengths[i], 2 * i);
		give_up_put(&server, client, lengths[i], 2 * i + 1);
		if (setup_is_tcp() || setup_is_shm())
			check_same_connection(client);
		kv_client_destroy(client);
	}
	server_stop(&server);
}

/* A get whose READs are on their way to the caller's memory when it is given up. */
static void test_get_given_up(void)
{
	const kv_client_options_t options = {.timeout_ms = 300};
	const size_t length = 3 << 20;
	uint8_t *value = allocate(length);
	struct server server;
	kv_client_t *client;
	size_t found;

	if (!setup_is_tcp())
		TEST_SKIP("the caller's memory is not read into by this device");
	server_start(&server, NULL);
	client = client_open(&server, &options);
	value_fill(value, length, 1);
	CHECK_KV(client, kv_client_put(client, KEY("key"), value, length), KV_OK);
	for (int i = 0; i < 3; i++) { /* by asking, and then by the place that is remembered */
		found = length;
		CHECK_KV(client, kv_client_get(client, KEY("key"), value, &found), KV_OK);
	}
	stop_process(server.pid);
	found = length;
	CHECK_KV(client, kv_client_get(client, KEY("key"), value, &found), KV_TIMEOUT);
	memset(value, 0xee, length);
	kill(server.pid, SIGCONT);
	wait_until_heard(client);
	test_sleep_ms(100);
	for (size_t i = 0; i < length; i++)
		CHECK_EQ(value[i], 0xee);
	found = length;
	CHECK_KV(client, kv_client_get(client, KEY("key"), value, &found), KV_OK);
	CHECK(found == length && value_is(value, length, 1));
	check_same_connection(client);
	kv_client_destroy(client);
	server_stop(&server);
	free(value);
}

/* ------------------------------------------------------------------------------------------
 * Slow, but it goes on
 */

struct stopper {
	pid_t pid;
	unsigned stops;
};

static void *continue_later(void *argument)
{
	const struct stopper *stopper = argument;

	test_sleep_ms(PAUSE_MS);
	kill(stopper->pid, SIGCONT);
	return NULL;
}

/* Stops the server for a while, at every eighth of the value. */
static bool stop_now_and_then(void *context, uint64_t done, uint64_t total)
{
	struct stopper *stopper = context;
	pthread_t thread;

	if (done < (stopper->stops + 1) * (total / 8))
		return true;
	stopper->stops++;
	stop_process(stopper->pid);
	CHECK_EQ(pthread_create(&thread, NULL, continue_later, stopper), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	return true;
}

static void test_slow_pieces(void)
{
	const size_t length = TEST_HAS_SANITIZER ? LONG_LENGTH / 8 : LONG_LENGTH;
	const kv_server_options_t server_options = {.memory = length + (32 << 20)};
	const kv_client_options_t options = {.timeout_ms = TIMEOUT_MS};
	uint8_t *value = allocate(length);
	struct stopper stopper = {0};
	struct server server;
	kv_client_t *client;
	size_t found = length;
	uint64_t begin_ns;

	server_start(&server, &server_options);
	client = client_open(&server, &options);
	stopper.pid = server.pid;
	value_fill(value, length, 7);
	kv_client_set_progress(client, stop_now_and_then, &stopper);
	begin_ns = clock_now_ns();
	CHECK_KV(client, kv_client_put(client, KEY("key"), value, length), KV_OK);
	CHECK(clock_now_ns() - begin_ns > (uint64_t)TIMEOUT_MS * 1000000u);
	memset(value, 0, length);
	stopper.stops = 0;
	CHECK_KV(client, kv_client_get(client, KEY("key"), value, &found), KV_OK);
	CHECK(found == length && value_is(value, length, 7));
	kv_client_destroy(client);
	server_stop(&server);
	free(value);
}

/* ------------------------------------------------------------------------------------------
 * Through a wire that stops now and then
 */

struct wire {
	int listener, port;
	int server_port;
	size_t pause_after; /* bytes in one direction */
	int pause_ms;	    /* negative: for ever */
};

static void wire_open(struct wire *wire)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);

	wire->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_EQ(bind(wire->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	CHECK_EQ(listen(wire->listener, 8), 0);
	CHECK_EQ(getsockname(wire->listener, (struct sockaddr *)&address, &length), 0);
	wire->port = ntohs(address.sin_port);
}

static int wire_dial(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				      .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	CHECK_EQ(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* Moves what there is. False: the end. */
static bool wire_move(const struct wire *wire, int from, int to, size_t *moved)
{
	static uint8_t bytes[1 << 16];
	ssize_t got = read(from, bytes, sizeof(bytes));

	for (ssize_t at = 0; at < got;) {
		ssize_t put = write(to, bytes + at, (size_t)(got - at));

		if (put <= 0)
			return false;
		at += put;
	}
	if (got <= 0)
		return false;
	*moved += (size_t)got;
	if (*moved >= wire->pause_after) {
		*moved = 0;
		if (wire->pause_ms < 0)
			pause();
		test_sleep_ms((unsigned)wire->pause_ms);
	}
	return true;
}

/* One connection: a process with one thread, so while one direction pauses, both do. */
static void wire_run(void *argument)
{
	const struct wire *wire = argument;
	int one = 1, near = accept(wire->listener, NULL, NULL), far = wire_dial(wire->server_port);
	struct pollfd ends[2] = {{.fd = near, .events = POLLIN}, {.fd = far, .events = POLLIN}};
	size_t moved[2] = {0};

	setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (;;) {
		CHECK(poll(ends, 2, -1) > 0);
		if (ends[0].revents && !wire_move(wire, near, far, &moved[0]))
			return;
		if (ends[1].revents && !wire_move(wire, far, near, &moved[1]))
			return;
	}
}

static kv_client_t *open_through(const struct wire *wire, int timeout_ms)
{
	const kv_client_options_t options = {.timeout_ms = timeout_ms, .no_reconnect = true};
	kv_client_t *client = kv_client_create_with(CONN_MODE_TCP, &options);

	CHECK_KV(client, kv_client_connect(client, "127.0.0.1", wire->port), KV_OK);
	return client;
}

static void test_slow_wire(void)
{
	const size_t length = TEST_HAS_SANITIZER ? LONG_LENGTH / 8 : LONG_LENGTH;
	const kv_server_options_t server_options = {.memory = length + (32 << 20)};
	struct wire wire = {.pause_after = length / 8, .pause_ms = PAUSE_MS};
	uint8_t *value = allocate(length);
	struct server server;
	kv_client_t *client;
	size_t found = length;
	uint64_t begin_ns;
	pid_t pid;

	if (!setup_is_tcp())
		TEST_SKIP("a wire that can be slowed down is TCP");
	server_start(&server, &server_options);
	wire.server_port = server.port;
	wire_open(&wire);
	pid = test_spawn(wire_run, &wire);
	client = open_through(&wire, TIMEOUT_MS);
	value_fill(value, length, 9);
	begin_ns = clock_now_ns();
	CHECK_KV(client, kv_client_put(client, KEY("key"), value, length), KV_OK);
	CHECK(clock_now_ns() - begin_ns > (uint64_t)TIMEOUT_MS * 1000000u);
	memset(value, 0, length);
	begin_ns = clock_now_ns();
	CHECK_KV(client, kv_client_get(client, KEY("key"), value, &found), KV_OK);
	CHECK(found == length && value_is(value, length, 9));
	CHECK(clock_now_ns() - begin_ns > (uint64_t)TIMEOUT_MS * 1000000u);
	kv_client_destroy(client);
	test_wait(pid);
	server_stop(&server);
	free(value);
}

/* A wire that stops for good: the put ends, timeout_ms after the last piece came through. */
static void test_dead_wire(void)
{
	const size_t length = 32 << 20;
	struct wire wire = {.pause_after = length / 4, .pause_ms = -1};
	const int timeout_ms = 500;
	uint8_t *value = allocate(length);
	struct server server;
	kv_client_t *client;
	uint64_t begin_ns;
	pid_t pid;

	if (!setup_is_tcp())
		TEST_SKIP("a wire that can be stopped is TCP");
	server_start(&server, NULL);
	wire.server_port = server.port;
	wire_open(&wire);
	pid = test_spawn(wire_run, &wire);
	client = open_through(&wire, timeout_ms);
	value_fill(value, length, 11);
	begin_ns = clock_now_ns();
	CHECK_KV(client, kv_client_put(client, KEY("key"), value, length), KV_UNKNOWN);
	CHECK(clock_now_ns() - begin_ns >= (uint64_t)timeout_ms * 1000000u);
	memset(value, 0xee, length);
	kv_client_destroy(client);
	kill(pid, SIGKILL);
	client = client_open(&server, NULL);
	CHECK_KV(client, kv_client_exists(client, KEY("key")), KV_NOT_FOUND);
	kv_client_destroy(client);
	server_stop(&server);
	free(value);
}

/* ------------------------------------------------------------------------------------------
 * A gibibyte
 */

static size_t free_memory(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	unsigned long long kilobytes = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %llu", &kilobytes) == 1)
			break;
	if (file)
		fclose(file);
	return (size_t)kilobytes << 10;
}

/* Strings of the longest length by the five calls; a second one in place of the first. */
static void test_gibibyte(void)
{
	const kv_server_options_t server_options = {.memory = 2 * HUGE_LENGTH + (64 << 20)};
	char *value = NULL, *found, url[64];
	struct server server;
	void *handle;

	if (TEST_HAS_SANITIZER || free_memory() < 6 * HUGE_LENGTH)
		TEST_SKIP("it takes 6 GiB of memory, and is too slow with a sanitizer");
	if (strcmp(setup.device, "shm") != 0 && !setup_is_tcp())
		TEST_SKIP("kv_open() takes an address, not a device");
	server_start(&server, &server_options);
	value = allocate(HUGE_LENGTH);
	memset(value, 'a', HUGE_LENGTH - 1);
	value[HUGE_LENGTH - 1] = '\0';
	if (setup_is_shm())
		snprintf(url, sizeof(url), "shm:kv-%d", server.port);
	else
		snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", server.port);
	CHECK_EQ(kv_open(url, &handle), 0);
	for (int i = 0; i < 2; i++) {
		value[12345678] = (char)('b' + i);
		CHECK_EQ(kv_set(handle, "key", value), 0);
		CHECK_EQ(kv_get(handle, "key", &found), 0);
		CHECK(strcmp(found, value) == 0);
		kv_release(found);
	}
	CHECK_EQ(kv_close(handle), 0);
	server_stop(&server);
	free(value);
}

const struct test progress_tests[] = {
	{"put_given_up", test_put_given_up},
	{"get_given_up", test_get_given_up},
	{"slow_pieces", test_slow_pieces, TEST_SLOW, 240},
	{"slow_wire", test_slow_wire, TEST_SLOW, 240},
	{"dead_wire", test_dead_wire},
	{"gibibyte", test_gibibyte, TEST_SLOW, 240},
	{NULL},
};
