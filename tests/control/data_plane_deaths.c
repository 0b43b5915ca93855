/*
 * Clients that die or stop in the middle of a transfer, or whose callers lose patience: what they
 * held comes back, values are there as a whole or not at all, and others go on.
 *
 * The test's own process has no data plane, and so no thread of it: it can fork.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/server/data_plane_internal.h"
#include "data_plane_raw.h"

struct victim {
	const struct service *service;
	struct test_pipe pipe;
	bool does_put;
};

/* Gets or puts without end. */
static void be_killed(void *argument)
{
	struct victim *victim = argument;
	kv_control_options_t options = {.buffer_size = 2 * LONG};
	kv_control_t *control = client_open(victim->service, &options);
	uint8_t *value = kv_control_alloc(control, LONG);

	CHECK(value);
	value_fill(value, LONG, 9);
	test_signal(&victim->pipe, TEST_CHILD);
	for (;;) {
		size_t length = LONG;

		if (victim->does_put)
			(void)kv_control_put(control, "victim", 6, value, LONG);
		else
			(void)kv_control_get(control, "there", 5, value, &length);
	}
}

static kv_control_t *plain_open(const struct service *service)
{
	kv_control_options_t inline_only = {.no_data_plane = true};

	return client_open(service, &inline_only);
}

static void test_killed(void)
{
	static uint8_t room[LONG];
	struct service service;
	kv_control_t *control;
	struct test_rng rng;
	size_t length;

	test_rng_init(&rng, 1);
	service_start(&service, NULL, NULL);
	control = plain_open(&service);
	put_there(control, LONG);
	for (int i = 0; i < 16; i++) {
		struct victim victim = {.service = &service, .does_put = i % 2};
		pid_t pid;

		test_pipe_open(&victim.pipe);
		pid = test_spawn(be_killed, &victim);
		test_await(&victim.pipe, TEST_PARENT);
		usleep((useconds_t)test_rng_below(&rng, 12000));
		test_kill(pid);
		test_pipe_close(&victim.pipe);
		/* Others go on. */
		length = LONG;
		CHECK_KV(control, kv_control_get(control, "there", 5, room, &length), KV_OK);
		CHECK(value_is(room, length, 7));
	}
	control_await_figure(control, "control.plane.clients", 0);
	CHECK_EQ(control_figure(control, "control.plane.bytes_held"), 0);
	CHECK_EQ(control_figure(control, "control.plane.transfers"), 0);
	/* All of a value, or none. */
	length = LONG;
	if (kv_control_get(control, "victim", 6, room, &length) == KV_OK)
		CHECK(value_is(room, length, 9));
	kv_control_close(control);
	service_stop(&service);
}

/* One whose memory others name, and that stands still. */
struct sleeper {
	const struct service *service;
	struct test_pipe pipe;
};

static void be_asleep(void *argument)
{
	struct sleeper *sleeper = argument;
	kv_control_options_t options = {.buffer_size = 2 * LONG};
	kv_control_t *control = client_open(sleeper->service, &options);
	struct place place = place_of(control, 0, LONG);

	value_fill(control->plane.buffers[0].base, LONG, 11);
	test_send(&sleeper->pipe, TEST_CHILD, &place, sizeof(place));
	for (;;) {
		pause_ms(50);
		plane_poll(control);
	}
}

static pid_t start_sleeper(struct sleeper *sleeper, const struct service *service,
			   struct place *place)
{
	pid_t pid;
	int status;

	sleeper->service = service;
	test_pipe_open(&sleeper->pipe);
	pid = test_spawn(be_asleep, sleeper);
	test_recv(&sleeper->pipe, TEST_PARENT, place, sizeof(*place));
	CHECK_EQ(kill(pid, SIGSTOP), 0);
	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	CHECK(WIFSTOPPED(status));
	return pid;
}

/* By shm the server does all of it, whoever sleeps; by tcp nothing moves: the call's deadline
 * passes, the value stays held, and is given back when the client is thrown out. */
static void test_stopped(void)
{
	kv_control_server_options_t brief = {.stall_ms = 3000 + 500 * (int)TEST_TIME_FACTOR};
	struct service service;
	kv_control_t *control;
	struct sleeper sleeper;
	struct place place;
	kv_info_t info;
	pid_t pid;

	service_start(&service, NULL, &brief);
	control = plain_open(&service);
	put_there(control, LONG);
	for (int does_put = 0; does_put < 2; does_put++) {
		enum grpc_status status;
		uint64_t timeout_ms = 500;

		pid = start_sleeper(&sleeper, &service, &place);
		if (setup_is_shm())
			timeout_ms = 0; /* the default */
		status = does_put ? raw_put(control, "late", &place, timeout_ms)
				  : raw_get(control, "there", &place, timeout_ms, NULL);
		if (setup_is_shm()) {
			CHECK_EQ(status, GRPC_OK);
		} else {
			CHECK(status == GRPC_DEADLINE_EXCEEDED || status == GRPC_CANCELLED);
			control_await_figure(control, "control.plane.transfers", 1);
			CHECK_EQ(control_figure(control, "control.plane.bytes_held"), LONG);
			/* Others go on. */
			put_there(control, LONG);
			/* With a longer deadline it is told that the client cannot be reached. */
			status = does_put ? raw_put(control, "late", &place, 0)
					  : raw_get(control, "there", &place, 0, NULL);
			CHECK_EQ(status, GRPC_UNAVAILABLE);
			CHECK_KV(control, kv_control_stat(control, "late", 4, &info), KV_NOT_FOUND);
		}
		control_await_figure(control, "control.plane.bytes_held", 0);
		test_kill(pid);
		test_pipe_close(&sleeper.pipe);
		control_await_figure(control, "control.plane.clients", 0);
	}
	kv_control_close(control);
	service_stop(&service);
}

/* A put whose call has gone while it was pulled is given up, although its memory comes back. */
static void test_cancelled(void)
{
	struct service service;
	kv_control_t *control;
	struct sleeper sleeper;
	struct place place;
	kv_info_t info;
	pid_t pid;

	if (setup_is_shm())
		TEST_SKIP("by shm a transfer does not wait for anybody");
	service_start(&service, NULL, NULL);
	control = plain_open(&service);
	put_there(control, LONG);
	pid = start_sleeper(&sleeper, &service, &place);
	CHECK_EQ(raw_put(control, "late", &place, 200u * TEST_TIME_FACTOR) == GRPC_OK, false);
	CHECK_EQ(raw_get(control, "there", &place, 200u * TEST_TIME_FACTOR, NULL) == GRPC_OK,
		 false);
	CHECK_EQ(control_figure(control, "control.plane.transfers"), 2);
	CHECK_EQ(kill(pid, SIGCONT), 0);
	control_await_figure(control, "control.plane.transfers", 0);
	CHECK_EQ(control_figure(control, "control.plane.bytes_held"), 0);
	CHECK_KV(control, kv_control_stat(control, "late", 4, &info), KV_NOT_FOUND);
	/* The client is what it was: its memory can be named again. */
	CHECK_EQ(raw_get(control, "there", &place, 0, NULL), GRPC_OK);
	CHECK_EQ(raw_put(control, "later", &place, 0), GRPC_OK);
	CHECK_KV(control, kv_control_stat(control, "later", 5, &info), KV_OK);
	CHECK_EQ(info.length, LONG);
	test_kill(pid);
	kv_control_close(control);
	service_stop(&service);
}

/* What transfers that hang can hold: so many of one client, and a part of the store of all. */
static void test_limits(void)
{
	struct service service;
	kv_control_t *control;
	struct sleeper sleeper;
	struct place place, small;
	enum grpc_status status = GRPC_OK;
	pid_t pid;

	if (setup_is_shm())
		TEST_SKIP("by shm a transfer does not wait for anybody");
	service_start(&service, NULL, NULL);
	control = plain_open(&service);
	put_there(control, LONG);
	pid = start_sleeper(&sleeper, &service, &place);
	small = place;
	small.length = 65536;
	for (int i = 0;
	     i < 500 && control_figure(control, "control.plane.transfers") < PLANE_CLIENT_TRANSFERS;
	     i++)
		(void)raw_put(control, "late", &small, 50);
	CHECK_EQ(raw_put(control, "late", &small, 0), GRPC_RESOURCE_EXHAUSTED);
	CHECK_CONTAINS(kv_control_error(control), "too many transfers");
	test_kill(pid);
	test_pipe_close(&sleeper.pipe);
	control_await_figure(control, "control.plane.transfers", 0);
	pid = start_sleeper(&sleeper, &service, &place);
	for (int i = 0; i < 500 && status != GRPC_RESOURCE_EXHAUSTED; i++)
		status = raw_get(control, "there", &place, 50, NULL);
	CHECK_EQ(status, GRPC_RESOURCE_EXHAUSTED);
	CHECK_CONTAINS(kv_control_error(control), "too much memory");
	CHECK(control_figure(control, "control.plane.bytes_held") <=
	      service.options.memory / PLANE_HELD_PART);
	test_kill(pid);
	control_await_figure(control, "control.plane.bytes_held", 0);
	CHECK_EQ(control_figure(control, "pins"), 0);
	kv_control_close(control);
	service_stop(&service);
}

/* The server stops while transfers hang. */
static void test_server_stops(void)
{
	kv_control_server_options_t brief = {.stop_timeout_ms = 200};
	struct service service;
	kv_control_t *control;
	struct sleeper sleeper;
	struct place place;
	pid_t pid;

	service_start(&service, NULL, &brief);
	control = plain_open(&service);
	put_there(control, LONG);
	pid = start_sleeper(&sleeper, &service, &place);
	(void)raw_get(control, "there", &place, 100, NULL);
	(void)raw_put(control, "late", &place, 100);
	test_kill(pid);
	service_stop(&service);
	kv_control_close(control);
}

const struct test death_tests[] = {
	{"killed", test_killed}, {"stopped", test_stopped},	      {"cancelled", test_cancelled},
	{"limits", test_limits}, {"server_stops", test_server_stops}, {0},
};
