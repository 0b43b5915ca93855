/*
 * The data plane of the control server, by peers that do as they like: calls with locations that
 * are wrong, stale or somebody else's; links with the wrong words; clients that die, stop or lose
 * patience in the middle of a transfer. Whatever they do, no memory is touched that they have not
 * named rightly, nothing of the store stays held, and others go on.
 *
 *	data_plane_test [--provider shm|tcp]
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "control/server/data_plane_internal.h"
#include "data_plane_raw.h"

#define MAX_TESTS 64
#define ROOM	  (4 * MIB)

static bool take_nothing(void *context, const uint8_t *bytes, size_t length)
{
	(void)context;
	(void)bytes;
	(void)length;
	return true;
}

/* ------------------------------------------------------------------------------------------
 * Locations
 */

static void fill_guard(kv_control_t *control)
{
	memset(control->plane.buffers[0].base, 0xa5, ROOM);
}

static void check_guard(kv_control_t *control)
{
	const uint8_t *bytes = control->plane.buffers[0].base;

	for (size_t i = 0; i < ROOM; i++) {
		if (bytes[i] != 0xa5)
			TEST_FAIL("byte %zu was touched", i);
	}
}

/* Neither get nor put does anything with this place. */
static void check_refused(kv_control_t *control, const struct place *place, const char *what)
{
	kv_info_t info;
	enum grpc_status status = raw_get(control, "there", place, 0, NULL);

	if (status != GRPC_INVALID_ARGUMENT)
		TEST_FAIL("%s: get: %s", what, grpc_status_name(status));
	status = raw_put(control, "new", place, 0);
	if (status != GRPC_INVALID_ARGUMENT)
		TEST_FAIL("%s: put: %s", what, grpc_status_name(status));
	CHECK_KV(control, kv_control_stat(control, "new", 3, &info), KV_NOT_FOUND);
	check_guard(control);
}

static void test_wrong_places(void)
{
	kv_control_options_t options = {.buffer_size = ROOM};
	struct service service;
	kv_control_t *control, *other;
	struct place right, place;

	service_start(&service, NULL, NULL);
	control = client_open(&service, &options);
	other = client_open(&service, &options);
	put_there(control, MIB);
	fill_guard(control);
	fill_guard(other);
	right = place_of(control, MIB, MIB);
#define WRONG(change)                                                                              \
	do {                                                                                       \
		place = right;                                                                     \
		change;                                                                            \
		check_refused(control, &place, #change);                                           \
	} while (0)
	WRONG(place.rkey++);
	WRONG(place.rkey = 0);
	WRONG(place.rkey ^= UINT64_C(1) << 63);
	WRONG(place.keys = 0);
	WRONG((place.keys = 2, place.second_rkey = right.rkey + 1));
	WRONG(place.ptr++);
	WRONG(place.ptr = 0);
	WRONG(place.offset = ROOM - MIB + 1);
	WRONG(place.offset = ROOM + 1);
	WRONG(place.offset = UINT64_MAX);
	WRONG(place.offset = UINT64_MAX - MIB + 1);
	WRONG(place.length = ROOM);
	WRONG(place.length = UINT64_MAX);
	WRONG((place.length = UINT64_MAX, place.offset = 1));
	WRONG(place.node_id++);
	WRONG(place.node_id = 0);
	/* Another client, with the key of this one. */
	WRONG(place.node_id = other->plane.id);
#undef WRONG
	check_guard(other);
	/* And the right one. */
	right.keys = 2;
	right.second_rkey = right.rkey;
	CHECK_EQ(raw_get(control, "there", &right, 0, NULL), GRPC_OK);
	CHECK(value_is(control->plane.buffers[0].base + MIB, MIB, 7));
	kv_control_close(other);
	kv_control_close(control);
	service_stop(&service);
}

/* Of a location without memory, which no client of ours sends. */
static void test_no_memory_named(void)
{
	struct service service;
	kv_control_t *control;
	KvCache__GetRequest request = KV_CACHE__GET_REQUEST__INIT;
	KvCache__ValueLocation location = KV_CACHE__VALUE_LOCATION__INIT;
	struct control_ask ask = {
		.path = "/kv_cache.KvCacheService/Get",
		.request = &request.base,
		.take = take_nothing,
	};

	service_start(&service, NULL, NULL);
	control = client_open(&service, NULL);
	location.node_id = control->plane.id;
	request.key = (ProtobufCBinaryData){1, (uint8_t *)"k"};
	request.response_location = &location;
	CHECK_EQ(control_ask(control, &ask), KV_INVALID);
	CHECK_EQ(ask.status, GRPC_INVALID_ARGUMENT);
	kv_control_close(control);
	service_stop(&service);
}

static void test_stale_places(void)
{
	kv_control_options_t options = {.buffer_size = ROOM};
	struct service service;
	kv_control_t *control;
	struct place old, large;
	uint8_t *memory;

	service_start(&service, NULL, NULL);
	control = client_open(&service, &options);
	put_there(control, MIB);
	old = place_of(control, 0, MIB);
	/* A buffer of its own, that is taken back. */
	memory = kv_control_alloc(control, 2 * ROOM);
	CHECK(memory);
	CHECK(control->plane.buffers[1].rkey);
	large = old;
	large.ptr = (uintptr_t)control->plane.buffers[1].base;
	large.rkey = control->plane.buffers[1].rkey;
	CHECK_EQ(raw_get(control, "there", &large, 0, NULL), GRPC_OK);
	CHECK(value_is(memory, MIB, 7));
	kv_control_free(control, memory);
	CHECK(!control->plane.buffers[1].arena);
	fill_guard(control);
	check_refused(control, &large, "a buffer that was taken back");
	/* The registration is made anew: its old key is worth nothing. */
	plane_close(control);
	control_await_figure(control, "control.plane.links", 0);
	check_refused(control, &old, "a link that was closed");
	CHECK(plane_is_ready(control, control_deadline(control)));
	CHECK(old.rkey != control->plane.buffers[0].rkey);
	check_refused(control, &old, "a key of an earlier registration");
	kv_control_close(control);
	service_stop(&service);
}

static void test_too_long(void)
{
	kv_control_options_t options = {.buffer_size = ROOM};
	KvCache__GetResponse *response = NULL;
	struct service service;
	kv_control_t *control;
	struct place place;

	service_start(&service, NULL, NULL);
	control = client_open(&service, &options);
	put_there(control, 2 * MIB);
	fill_guard(control);
	for (uint64_t length = 0; length < 2 * MIB; length = length * 16 + 1) {
		place = place_of(control, 4096, length);
		CHECK_EQ(raw_get(control, "there", &place, 0, &response), GRPC_OUT_OF_RANGE);
		CHECK(response && !response->success && !response->pushed);
		CHECK_EQ(response->value_length, 2 * MIB);
		CHECK_EQ(told_length, 2 * MIB);
		CHECK_CONTAINS(response->error_message, "2097152");
		check_guard(control);
	}
	place = place_of(control, 4096, 2 * MIB - 1);
	CHECK_EQ(raw_get(control, "there", &place, 0, &response), GRPC_OUT_OF_RANGE);
	check_guard(control);
	place.length++;
	CHECK_EQ(raw_get(control, "there", &place, 0, &response), GRPC_OK);
	CHECK(response->pushed);
	CHECK(value_is(control->plane.buffers[0].base + 4096, 2 * MIB, 7));
	CHECK_EQ(control->plane.buffers[0].base[4095], 0xa5);
	CHECK_EQ(control->plane.buffers[0].base[4096 + 2 * MIB], 0xa5);
	kv_cache__get_response__free_unpacked(response, NULL);
	kv_control_close(control);
	service_stop(&service);
}

/* ------------------------------------------------------------------------------------------
 * Registrations
 */

static void test_registrations(void)
{
	struct registered first = {0}, second = {0};
	struct service service;
	kv_control_t *control, *plain;

	service_start(&service, NULL, NULL);
	control = client_open(&service, NULL);
	plain = client_open(&service, &(kv_control_options_t){.no_data_plane = true});
	CHECK_EQ(raw_register(control, 1, NULL, &first), GRPC_OK);
	CHECK_EQ(first.token_length, PLANE_TOKEN_SIZE);
	/* One connection has one registration of a number that waits; another may have one, too. */
	CHECK_EQ(raw_register(control, 1, NULL, &second), GRPC_OK);
	CHECK(memcmp(first.token, second.token, PLANE_TOKEN_SIZE) != 0);
	CHECK_EQ(control_figure(control, "control.plane.clients"), 2);
	CHECK_EQ(raw_register(plain, 1, NULL, &first), GRPC_OK);
	CHECK_EQ(control_figure(control, "control.plane.clients"), 3);
	CHECK_EQ(raw_register(plain, 1, &first, &first), GRPC_OK);
	CHECK_EQ(control_figure(control, "control.plane.clients"), 3);
	/* The number of one that is linked is its own. */
	CHECK_EQ(raw_register(plain, control->plane.id, NULL, &second), GRPC_ALREADY_EXISTS);
	CHECK_EQ(raw_register(plain, control->plane.id, &first, &second), GRPC_ALREADY_EXISTS);
	CHECK_CONTAINS(kv_control_error(plain), "is in use");
	put_there(control, LONG);
	CHECK_EQ(kv_control_last_path(control), KV_PATH_RENDEZVOUS);
	kv_control_close(plain);
	kv_control_close(control);
	service_stop(&service);
}

/* The answer to a registration was lost: the server knows the number, and we know no token. */
static void test_lost_registration(void)
{
	kv_control_options_t numbered = {.client_id = 77};
	struct registered registered = {0};
	struct service service;
	kv_control_t *control, *other;

	service_start(&service, NULL, NULL);
	control = client_open(&service, NULL);
	for (int has_token = 0; has_token < 2; has_token++) {
		plane_close(control);
		control_await_figure(control, "control.plane.links", 0);
		CHECK_EQ(raw_register(control, control->plane.id, NULL, &registered), GRPC_OK);
		control->plane.has_token = has_token;
		CHECK(plane_is_ready(control, control_deadline(control)));
		put_there(control, LONG);
		CHECK_EQ(kv_control_last_path(control), KV_PATH_RENDEZVOUS);
	}
	kv_control_close(control);
	/* If another has the number, one that we made up is replaced, the caller's is not. */
	control = client_open(&service, &numbered);
	CHECK_EQ(control->plane.id, 77);
	CHECK_EQ(client_try(&service, &numbered, &other), KV_OK);
	CHECK_CONTAINS(kv_control_transport(other), "is in use");
	CHECK_EQ(other->plane.id, 77);
	other->options.client_id = 0;
	plane_open(other, control_deadline(other));
	CHECK_STR(kv_control_transport(other), kv_control_transport(control));
	CHECK(other->plane.id != 77);
	kv_control_close(other);
	kv_control_close(control);
	service_stop(&service);
}

/* All that is done for one call has the time of one call, the heartbeat before it as well. */
static void test_one_deadline(void)
{
	kv_control_options_t options = {.timeout_ms = 2000, .buffer_size = MIB};
	struct service service;
	kv_control_t *control;
	uint64_t begun_ns, limit_ns;
	size_t length;
	void *value;
	int status;

	options.timeout_ms *= (int)TEST_TIME_FACTOR;
	limit_ns = (uint64_t)options.timeout_ms * 1900000u;
	service_start(&service, NULL, NULL);
	control = client_open(&service, &options);
	/* More than there is in the buffer: the one that is made for it has to go, too. */
	put_there(control, LONG);
	CHECK_EQ(kill(service.pid, SIGSTOP), 0);
	CHECK_EQ(waitpid(service.pid, &status, WUNTRACED), service.pid);
	control->plane.named_ns = 0;
	begun_ns = clock_now_ns();
	status = kv_control_get_alloc(control, "there", 5, &value, &length, NULL);
	CHECK(clock_now_ns() - begun_ns < limit_ns);
	CHECK_EQ(status, KV_TIMEOUT);
	CHECK_EQ(kill(service.pid, SIGCONT), 0);
	CHECK_KV(control, kv_control_get_alloc(control, "there", 5, &value, &length, NULL), KV_OK);
	free(value);
	kv_control_close(control);
	service_stop(&service);
}

static kv_control_t *plain_open(const struct service *service)
{
	kv_control_options_t inline_only = {.no_data_plane = true};

	return client_open(service, &inline_only);
}

/* So many on one connection, whose links have not come. */
static void register_crowd(kv_control_t *control, unsigned crowd)
{
	struct registered registered = {0};
	uint32_t id = 0;

	for (unsigned i = 0; i < PLANE_CONN_WAITING; i++) {
		id = 1000 * crowd + i;
		CHECK_EQ(raw_register(control, id, NULL, &registered), GRPC_OK);
	}
	/* One that is there may begin anew; it is no more than before. */
	CHECK_EQ(raw_register(control, id, &registered, &registered), GRPC_OK);
}

static void test_too_many_registrations(void)
{
	static kv_control_t *plain[PLANE_MAX_CLIENTS / PLANE_CONN_WAITING];
	struct registered registered = {0};
	struct service service;
	kv_control_t *control;

	service_start(&service, NULL, NULL);
	for (unsigned i = 0; i < TEST_COUNT(plain); i++) {
		plain[i] = plain_open(&service);
		register_crowd(plain[i], i);
	}
	CHECK_EQ(control_figure(plain[0], "control.plane.clients"), PLANE_MAX_CLIENTS);
	/* Others go on, without a data plane. */
	CHECK_EQ(client_try(&service, NULL, &control), KV_OK);
	CHECK_CONTAINS(kv_control_transport(control), "registered already");
	CHECK_KV(control, kv_control_put(control, "k", 1, "v", 1), KV_OK);
	kv_control_close(control);
	/* When a connection ends, there is room again. */
	for (unsigned i = 1; i < TEST_COUNT(plain); i++)
		kv_control_close(plain[i]);
	control_await_figure(plain[0], "control.plane.clients", PLANE_CONN_WAITING);
	CHECK_EQ(raw_register(plain[0], 999999, NULL, &registered), GRPC_RESOURCE_EXHAUSTED);
	CHECK_CONTAINS(kv_control_error(plain[0]), "no link yet");
	/* Whose link has come is counted no more, and outlives other connections. */
	control = client_open(&service, NULL);
	for (unsigned i = 0; i <= PLANE_CONN_WAITING; i++) {
		plane_close(control);
		CHECK(plane_is_ready(control, control_deadline(control)));
	}
	kv_control_close(plain[0]);
	control_await_figure(control, "control.plane.clients", 1);
	put_there(control, LONG);
	CHECK_EQ(kv_control_last_path(control), KV_PATH_RENDEZVOUS);
	kv_control_close(control);
	service_stop(&service);
}

/* How often the control server's thread has slept. */
static unsigned long count_sleeps(const struct service *service)
{
	char path[96], line[128];
	unsigned long count = 0;
	struct dirent *entry;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)service->pid);
	tasks = opendir(path);
	CHECK(tasks);
	while ((entry = readdir(tasks)) != NULL) {
		bool is_it = false;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/status", (int)service->pid,
			 entry->d_name);
		file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		while (file && fgets(line, sizeof(line), file)) {
			is_it |= strcmp(line, "Name:\tkv-control\n") == 0;
			if (is_it && strncmp(line, "voluntary_ctxt_switches:", 24) == 0)
				count += strtoul(line + 24, NULL, 10);
		}
		if (file)
			fclose(file);
	}
	closedir(tasks);
	return count;
}

/* Nobody is there: nothing wakes it. */
static void test_idle(void)
{
	struct service service;
	unsigned long count, last;
	int tries = 0;

	service_start(&service, NULL, NULL);
	count = count_sleeps(&service);
	do {
		last = count;
		pause_ms(1700);
		count = count_sleeps(&service);
	} while ((count != last || !count) && ++tries < 10);
	CHECK(count);
	CHECK_EQ(count, last);
	/* Who comes is served nevertheless, and forgotten when he has gone. */
	kv_control_close(client_open(&service, NULL));
	service_stop(&service);
}

static const struct test tests[] = {
	{"wrong_places", test_wrong_places},
	{"no_memory_named", test_no_memory_named},
	{"stale_places", test_stale_places},
	{"too_long", test_too_long},
	{"registrations", test_registrations},
	{"lost_registration", test_lost_registration},
	{"one_deadline", test_one_deadline},
	{"too_many_registrations", test_too_many_registrations},
	{"idle", test_idle},
	{0},
};

int main(int argc, char **argv)
{
	static const struct test *const tables[] = {tests, link_tests, lie_tests, death_tests};
	static struct test all[MAX_TESTS];
	size_t count = 0;

	argc = setup_take(argc, argv);
	for (size_t i = 0; i < TEST_COUNT(tables); i++)
		for (const struct test *test = tables[i]; test->name && count < MAX_TESTS; test++)
			all[count++] = *test;
	return test_main(argc, argv, "data_plane", all, count);
}
