/*
 * The gRPC client library as control.h promises it: server and clients are separate processes, and
 * values travel by the device that the command line names.
 *
 *	control_client_test [--provider shm|tcp|fault:tcp]
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/client/internal.h"
#include "control_fixture.h"

#define GUARD 64u
#define KIB   ((size_t)1 << 10)
#define MIB   ((size_t)1 << 20)

/* For all tests: each runs in a process of its own. */
static uint8_t from[64 * MIB], room[64 * MIB + 2 * GUARD];

/* ------------------------------------------------------------------------------------------
 * Values
 */

static void check_guard(const uint8_t *bytes)
{
	for (unsigned i = 0; i < GUARD; i++)
		CHECK_EQ(bytes[i], 0xa5);
}

/* Puts a value, and gets it into memory with guards on both sides. */
static void put_and_get_in(kv_control_t *control, uint8_t *source, uint8_t *target, size_t length)
{
	size_t got = length;
	char key[32];
	int key_length = snprintf(key, sizeof(key), "size-%zu", length);
	bool is_long = length >= 64 * KIB;

	value_fill(source, length, length + 1);
	CHECK_KV(control, kv_control_put(control, key, (size_t)key_length, source, length), KV_OK);
	CHECK_EQ(kv_control_last_path(control), is_long ? KV_PATH_RENDEZVOUS : KV_PATH_INLINE);
	memset(target, 0xa5, length + 2 * GUARD);
	CHECK_KV(control, kv_control_get(control, key, (size_t)key_length, target + GUARD, &got),
		 KV_OK);
	CHECK_EQ(kv_control_last_path(control), is_long ? KV_PATH_PUSH : KV_PATH_INLINE);
	CHECK_EQ(got, length);
	CHECK(value_is(target + GUARD, length, length + 1));
	check_guard(target);
	check_guard(target + GUARD + length);
}

static void put_and_get(kv_control_t *control, size_t length)
{
	put_and_get_in(control, from, room, length);
}

static const size_t sizes[] = {
	0,
	1,
	7,
	100,
	4 * KIB,
	64 * KIB - 1,
	64 * KIB,
	64 * KIB + 1,
	128 * KIB,
	128 * KIB + 1,
	512 * KIB,
	MIB - 1,
	MIB,
	MIB + 7,
	3 * MIB,
	5 * MIB + 3,
	17 * MIB + 1,
};

static void test_sizes(void)
{
	kv_server_options_t options = {.memory = 256 << 20};
	struct service service;
	kv_control_t *control;

	service_start(&service, &options, NULL);
	control = client_open(&service, NULL);
	CHECK_CONTAINS(setup.device, kv_control_transport(control));
	for (size_t i = 0; i < TEST_COUNT(sizes); i++)
		put_and_get(control, sizes[i]);
	kv_control_close(control);
	service_stop(&service);
}

/* Memory of the library, to and from which values travel without a copy. */
static void test_own_memory(void)
{
	kv_server_options_t options = {.memory = 256 << 20};
	struct service service;
	kv_control_t *control;
	uint8_t *source, *target, *other;

	service_start(&service, &options, NULL);
	control = client_open(&service, NULL);
	for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
		source = kv_control_alloc(control, sizes[i] + 1);
		target = kv_control_alloc(control, sizes[i] + 2 * GUARD);
		other = kv_control_alloc(control, 100);
		CHECK(source && target && other);
		put_and_get_in(control, source, target, sizes[i]);
		kv_control_free(control, source);
		kv_control_free(control, other);
		kv_control_free(control, target);
	}
	CHECK_EQ(control_figure(control, "control.plane.buffers"), 1);
	kv_control_free(control, NULL);
	kv_control_close(control);
	service_stop(&service);
}

static void test_sixty_four_mib(void)
{
	kv_server_options_t options = {.memory = 400 << 20};
	struct service service;
	kv_control_t *control;
	void *value;
	size_t length;

	service_start(&service, &options, NULL);
	control = client_open(&service, NULL);
	put_and_get(control, 64 * MIB);
	CHECK_KV(control, kv_control_get_alloc(control, "size-67108864", 13, &value, &length, NULL),
		 KV_OK);
	CHECK_EQ(length, 64 * MIB);
	CHECK(value_is(value, length, 64 * MIB + 1));
	kv_free(value);
	kv_control_close(control);
	service_stop(&service);
}

/* A value that is longer than the caller's room, or than the receive buffer. */
static void test_room(void)
{
	kv_control_options_t small = {.buffer_size = MIB};
	struct service service;
	kv_control_t *control;
	kv_info_t info;
	size_t length;
	void *found;

	service_start(&service, NULL, NULL);
	control = client_open(&service, &small);
	value_fill(from, 9 * MIB, 9);
	CHECK_KV(control, kv_control_put(control, "long", 4, from, 9 * MIB), KV_OK);
	CHECK_KV(control, kv_control_put(control, "short", 5, from, 1000), KV_OK);
	for (size_t have = 0; have < 9 * MIB; have = have ? have * 8 : 1) {
		memset(room, 0xa5, 9 * MIB);
		length = have;
		CHECK_KV(control, kv_control_get(control, "long", 4, room, &length),
			 KV_BUFFER_TOO_SMALL);
		CHECK_EQ(length, 9 * MIB);
		check_guard(room + have);
	}
	length = 999;
	CHECK_KV(control, kv_control_get(control, "short", 5, room, &length), KV_BUFFER_TOO_SMALL);
	CHECK_EQ(length, 1000);
	length = 9 * MIB;
	CHECK_KV(control, kv_control_get_with(control, "long", 4, room, &length, &info), KV_OK);
	CHECK(value_is(room, length, 9));
	CHECK_EQ(info.length, 9 * MIB);
	CHECK_KV(control, kv_control_get_alloc(control, "long", 4, &found, &length, &info), KV_OK);
	CHECK_EQ(length, 9 * MIB);
	CHECK(value_is(found, length, 9));
	kv_free(found);
	CHECK_KV(control, kv_control_get_alloc(control, "short", 5, &found, &length, &info), KV_OK);
	CHECK_EQ(length, 1000);
	CHECK_EQ(((char *)found)[1000], 0);
	kv_free(found);
	kv_control_close(control);
	service_stop(&service);
}

/* ------------------------------------------------------------------------------------------
 * The other operations
 */

static void test_versions(void)
{
	kv_put_options_t absent = {.condition = KV_IF_ABSENT};
	struct service service;
	kv_control_t *control;
	uint64_t version;
	kv_info_t info, now;

	service_start(&service, NULL, NULL);
	control = client_open(&service, NULL);
	CHECK_KV(control, kv_control_put_with(control, "k", 1, "one", 3, &absent, &info), KV_OK);
	CHECK_KV(control, kv_control_put_with(control, "k", 1, "two", 3, &absent, &now), KV_EXISTS);
	CHECK_EQ(now.version, info.version);
	version = 0;
	CHECK_KV(control, kv_control_cas(control, "k", 1, info.version, "two", 3, &version), KV_OK);
	CHECK(version > info.version);
	CHECK_KV(control, kv_control_cas(control, "k", 1, info.version, "tre", 3, &info.version),
		 KV_CAS_FAILED);
	CHECK_EQ(info.version, version);
	CHECK_KV(control, kv_control_cas(control, "none", 4, 5, "x", 1, NULL), KV_NOT_FOUND);
	CHECK_KV(control, kv_control_cas(control, "k", 1, 0, "x", 1, NULL), KV_INVALID);
	CHECK_KV(control, kv_control_delete_version(control, "k", 1, version + 1), KV_CAS_FAILED);
	CHECK_KV(control, kv_control_delete_version(control, "k", 1, version), KV_OK);
	CHECK_KV(control, kv_control_delete(control, "k", 1), KV_NOT_FOUND);
	CHECK_KV(control, kv_control_stat(control, "k", 1, &info), KV_NOT_FOUND);
	kv_control_close(control);
	service_stop(&service);
}

static void test_time_to_live(void)
{
	kv_put_options_t brief = {.ttl_ms = 50}, long_time = {.ttl_ms = 100000};
	struct service service;
	kv_control_t *control;
	kv_info_t info;
	size_t length = 10;

	service_start(&service, NULL, NULL);
	control = client_open(&service, NULL);
	CHECK_KV(control, kv_control_put_with(control, "b", 1, "x", 1, &brief, NULL), KV_OK);
	CHECK_KV(control, kv_control_put_with(control, "l", 1, from, MIB, &long_time, &info),
		 KV_OK);
	pause_ms(80);
	CHECK_KV(control, kv_control_get(control, "b", 1, from, &length), KV_NOT_FOUND);
	CHECK_KV(control, kv_control_stat(control, "l", 1, &info), KV_OK);
	CHECK(info.ttl_ms > 1000 && info.ttl_ms <= 100000);
	CHECK_EQ(info.length, MIB);
	CHECK_KV(control, kv_control_touch(control, "l", 1, 0), KV_OK);
	CHECK_KV(control, kv_control_stat(control, "l", 1, &info), KV_OK);
	CHECK_EQ(info.ttl_ms, 0);
	CHECK_KV(control, kv_control_touch(control, "none", 4, 1), KV_NOT_FOUND);
	/* Nothing of the value has travelled. */
	CHECK_EQ(control_figure(control, "control.plane.pushes"), 0);
	kv_control_close(control);
	service_stop(&service);
}

struct seen {
	unsigned keys, others;
	uint64_t length;
};

static void see(void *context, const void *key, size_t key_length, const kv_info_t *info)
{
	struct seen *seen = context;

	if (key_length == 8 && memcmp(key, "scan-", 5) == 0)
		seen->keys++;
	else
		seen->others++;
	seen->length += info->length;
}

static void test_scan_and_stats(void)
{
	struct service service;
	kv_control_t *control;
	struct seen seen = {0};
	uint64_t cursor = 0, round_trip_ns = 0;
	char key[16];

	service_start(&service, NULL, NULL);
	control = client_open(&service, NULL);
	for (unsigned i = 0; i < 500; i++) {
		snprintf(key, sizeof(key), "scan-%03u", i);
		CHECK_KV(control, kv_control_put(control, key, 8, key, 3), KV_OK);
	}
	CHECK_KV(control, kv_control_put(control, "other", 5, "x", 1), KV_OK);
	do {
		CHECK_KV(control, kv_control_scan(control, NULL, 0, &cursor, 100, see, &seen),
			 KV_OK);
	} while (cursor);
	CHECK(seen.keys >= 500 && seen.others >= 1);
	seen = (struct seen){0};
	CHECK_KV(control, kv_control_scan(control, "scan-00", 7, &cursor, 1000, see, &seen), KV_OK);
	CHECK(seen.keys >= 10 && seen.keys < 30);
	CHECK_EQ(seen.others, 0);
	CHECK_EQ(control_figure(control, "keys"), 501);
	CHECK_KV(control, kv_control_ping(control, &round_trip_ns), KV_OK);
	CHECK(round_trip_ns > 0);
	kv_control_close(control);
	service_stop(&service);
}

static void test_wrong_arguments(void)
{
	static char key[KV_MAX_KEY + 1];
	struct service service;
	kv_control_t *control;
	size_t length = 10;
	char value[10];

	service_start(&service, NULL, NULL);
	CHECK_EQ(kv_control_connect("10.0.0.1:50051", NULL, &control), KV_INVALID);
	CHECK_CONTAINS(kv_control_error(NULL), "http://HOST:PORT");
	CHECK_EQ(kv_control_connect(NULL, NULL, &control), KV_INVALID);
	CHECK_EQ(kv_control_connect("http://127.0.0.1:1", NULL, &control), KV_DISCONNECTED);
	CHECK_CONTAINS(kv_control_error(NULL), "nobody listens");
	control = client_open(&service, NULL);
	CHECK_KV(control, kv_control_get(control, key, 0, value, &length), KV_KEY_TOO_LONG);
	CHECK_KV(control, kv_control_get(control, key, sizeof(key), value, &length),
		 KV_KEY_TOO_LONG);
	CHECK_KV(control, kv_control_put(control, key, 0, value, 1), KV_KEY_TOO_LONG);
	CHECK_KV(control, kv_control_get(control, key, KV_MAX_KEY, value, &length), KV_NOT_FOUND);
	CHECK_KV(control, kv_control_delete(control, key, sizeof(key)), KV_KEY_TOO_LONG);
	kv_control_close(NULL);
	kv_control_close(control);
	service_stop(&service);
}

/* A server of something else. */
static void test_no_grpc_there(void)
{
	kv_control_options_t options = {.connect_timeout_ms = 2000};
	struct service service;
	kv_control_t *control;
	char url[64];

	if (setup_is_shm())
		TEST_SKIP("by shm there is no port of another protocol");
	service_start(&service, NULL, NULL);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", service.port);
	CHECK(kv_control_connect(url, &options, &control) < 0);
	CHECK(strlen(kv_control_error(NULL)) > 10);
	service_stop(&service);
}

/* ------------------------------------------------------------------------------------------
 * Without a data plane
 */

static void check_inline(kv_control_t *control, kv_control_t *other)
{
	size_t length = 6 * MIB;
	kv_info_t info;

	CHECK_CONTAINS(kv_control_transport(control), "inline");
	value_fill(room, 3 * MIB, 3);
	CHECK_KV(control, kv_control_put(control, "k", 1, room, 3 * MIB), KV_OK);
	memset(room, 0, 3 * MIB);
	CHECK_KV(control, kv_control_get_with(control, "k", 1, room, &length, &info), KV_OK);
	CHECK_EQ(kv_control_last_path(control), KV_PATH_INLINE);
	CHECK_EQ(length, 3 * MIB);
	CHECK(value_is(room, length, 3));
	length = MIB;
	CHECK_KV(control, kv_control_get(control, "k", 1, room, &length), KV_BUFFER_TOO_SMALL);
	CHECK_EQ(length, 3 * MIB);
	check_chunks(control);
	if (other) {
		value_fill(room, 5 * MIB, 5);
		CHECK_KV(other, kv_control_put(other, "long", 4, room, 5 * MIB), KV_OK);
		memset(room, 0, 5 * MIB);
		length = 6 * MIB;
		CHECK_KV(control, kv_control_get(control, "long", 4, room, &length), KV_OK);
		CHECK_EQ(length, 5 * MIB);
		CHECK(value_is(room, length, 5));
		length = MIB;
		CHECK_KV(control, kv_control_get(control, "long", 4, room, &length),
			 KV_BUFFER_TOO_SMALL);
		CHECK_EQ(length, 5 * MIB);
	}
}

static void test_inline_only(void)
{
	kv_control_options_t plain = {.no_data_plane = true};
	kv_control_options_t verbs = {.devices = "verbs:nothing_of_that_name"};
	struct service service;
	kv_control_t *control, *other;

	service_start(&service, NULL, NULL);
	other = client_open(&service, NULL);
	control = client_open(&service, &plain);
	check_inline(control, other);
	CHECK_KV(control, kv_control_heartbeat(control), KV_OK);
	kv_control_close(control);
	/* A data plane that cannot be had. */
	control = client_open(&service, &verbs);
	check_inline(control, other);
	CHECK_CONTAINS(kv_control_transport(control), "verbs: ");
	kv_control_close(control);
	kv_control_close(other);
	service_stop(&service);
}

static void test_server_without_plane(void)
{
	kv_control_server_options_t control_options = {.no_data_plane = true};
	kv_control_options_t options = {.devices = setup.device};
	struct service service;
	kv_control_t *control;

	service_start(&service, NULL, &control_options);
	control = client_open(&service, &options);
	check_inline(control, NULL);
	CHECK_CONTAINS(kv_control_transport(control), "no data plane");
	CHECK_KV(control, kv_control_heartbeat(control), KV_OK);
	kv_control_close(control);
	service_stop(&service);
}

/* Several lanes to one device. */
static void test_two_lanes(void)
{
	kv_control_options_t options = {0};
	char devices[64];
	struct service service;
	kv_control_t *control;

	snprintf(devices, sizeof(devices), "%s,%s", setup.device, setup.device);
	options.devices = devices;
	service_start(&service, NULL, NULL);
	control = client_open(&service, &options);
	CHECK_CONTAINS(setup.device, kv_control_transport(control));
	put_and_get(control, 9 * MIB);
	put_and_get(control, 300 * KIB + 5);
	kv_control_close(control);
	service_stop(&service);
}

/* ------------------------------------------------------------------------------------------
 * Who may
 */

static void test_keys(void)
{
	kv_server_options_t options = {0};
	kv_control_options_t with = {0};
	struct service service;
	kv_control_t *control;
	char write_key[512], read_key[512];
	size_t length = MIB;

	snprintf(write_key, sizeof(write_key), "%s",
		 write_file("write", "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww\n"));
	snprintf(read_key, sizeof(read_key), "%s",
		 write_file("read", "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr\n"));
	options.key_file = write_key;
	options.read_key_file = read_key;
	service_start(&service, &options, NULL);
	CHECK_EQ(client_try(&service, NULL, &control), KV_DENIED);
	with.key_file = write_file("wrong", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n");
	CHECK_EQ(client_try(&service, &with, &control), KV_DENIED);
	with.key_file = write_key;
	control = client_open(&service, &with);
	CHECK_KV(control, kv_control_put(control, "k", 1, room, MIB), KV_OK);
	kv_control_close(control);
	with.key_file = read_key;
	control = client_open(&service, &with);
	CHECK_KV(control, kv_control_put(control, "k", 1, room, MIB), KV_DENIED);
	CHECK_KV(control, kv_control_put(control, "k", 1, room, 1), KV_DENIED);
	CHECK_KV(control, kv_control_delete(control, "k", 1), KV_DENIED);
	CHECK_KV(control, kv_control_get(control, "k", 1, room, &length), KV_OK);
	CHECK_EQ(length, MIB);
	kv_control_close(control);
	service_stop(&service);
}

static const char *make_certificate(const char *name)
{
	static char base[512];
	char command[2048];

	snprintf(base, sizeof(base), "%s/%s", test_tmpdir(), name);
	snprintf(command, sizeof(command),
		 "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
		 "-subj /CN=%s -addext subjectAltName=IP:127.0.0.1 -keyout %s.key -out %s.pem "
		 "2>/dev/null",
		 name, base, base);
	if (system(command) != 0)
		TEST_SKIP("openssl cannot make a certificate");
	return base;
}

static void test_tls(void)
{
	kv_control_server_options_t server = {0};
	kv_control_options_t options = {0};
	char cert[600], key[600], stranger[600];
	struct service service;
	kv_control_t *control;

	snprintf(cert, sizeof(cert), "%s.pem", make_certificate("server"));
	snprintf(key, sizeof(key), "%s/server.key", test_tmpdir());
	snprintf(stranger, sizeof(stranger), "%s.pem", make_certificate("stranger"));
	server.tls_cert = cert;
	server.tls_key = key;
	service_start(&service, NULL, &server);
	CHECK_EQ(client_try(&service, NULL, &control), KV_DENIED);
	CHECK_CONTAINS(kv_control_error(NULL), "certificate");
	options.ca_file = stranger;
	CHECK_EQ(client_try(&service, &options, &control), KV_DENIED);
	options.ca_file = cert;
	control = client_open(&service, &options);
	put_and_get(control, 100);
	put_and_get(control, 60000);
	put_and_get(control, 9 * MIB);
	kv_control_close(control);
	options.ca_file = NULL;
	options.insecure = true;
	options.no_data_plane = true;
	control = client_open(&service, &options);
	check_inline(control, NULL);
	kv_control_close(control);
	/* Without TLS, to one that wants it. */
	memcpy(service.url, "http://", 7);
	memmove(service.url + 7, service.url + 8, strlen(service.url + 8) + 1);
	options.connect_timeout_ms = 2000;
	CHECK(client_try(&service, &options, &control) < 0);
	service_stop(&service);
}

/* ------------------------------------------------------------------------------------------
 * When something is lost
 */

static void test_server_restarts(void)
{
	kv_control_options_t once = {.no_reconnect = true};
	struct service service;
	kv_control_t *control, *other;
	size_t length = MIB;

	if (TEST_HAS_TSAN && !setup_is_shm())
		TEST_SKIP("the thread sanitizer does not permit threads after fork");
	service_start(&service, NULL, NULL);
	control = client_open(&service, NULL);
	other = client_open(&service, &once);
	put_and_get(control, MIB);
	for (int i = 0; i < 3; i++) {
		if (i == 1)
			test_kill(service.pid);
		else
			service_stop(&service);
		service_restart(&service);
		if (i == 2) /* a get first, then a put */
			CHECK_KV(control, kv_control_get(control, "k", 1, room, &length),
				 KV_NOT_FOUND);
		else
			/* Of the old connection nothing was sent: it is made anew. */
			put_and_get(control, i ? 100 : MIB);
		put_and_get(control, 2 * MIB);
		CHECK_CONTAINS(setup.device, kv_control_transport(control));
	}
	CHECK_KV(other, kv_control_get(other, "k", 1, room, &length), KV_DISCONNECTED);
	test_kill(service.pid);
	CHECK_KV(control, kv_control_get(control, "k", 1, room, &length), KV_DISCONNECTED);
	CHECK_KV(control, kv_control_put(control, "k", 1, room, MIB), KV_DISCONNECTED);
	CHECK_KV(control, kv_control_put(control, "k", 1, room, 9 * MIB), KV_DISCONNECTED);
	service_restart(&service);
	put_and_get(control, 9 * MIB);
	service_stop(&service);
	kv_control_close(other);
	kv_control_close(control);
}

/* A server that is stopped: calls end in time, and what they left behind harms nothing. */
static void test_server_stops_answering(void)
{
	kv_control_options_t options = {.timeout_ms = 300};
	struct service service;
	kv_control_t *control;
	size_t length = 2 * MIB;
	uint64_t begun_ns;
	int status;

	options.timeout_ms *= (int)TEST_TIME_FACTOR;
	service_start(&service, NULL, NULL);
	control = client_open(&service, &options);
	put_and_get(control, 2 * MIB);
	CHECK_EQ(kill(service.pid, SIGSTOP), 0);
	CHECK_EQ(waitpid(service.pid, &status, WUNTRACED), service.pid);
	begun_ns = clock_now_ns();
	CHECK_KV(control, kv_control_get(control, "size-2097152", 12, room, &length), KV_TIMEOUT);
	status = kv_control_put(control, "size-2097152", 12, from, 2 * MIB);
	CHECK(status == KV_UNKNOWN || status == KV_TIMEOUT || status == KV_VALUE_TOO_LONG);
	CHECK_KV(control, kv_control_put(control, "s", 1, from, 100), KV_UNKNOWN);
	CHECK(clock_now_ns() - begun_ns < 5000000000ull * TEST_TIME_FACTOR);
	memset(from, 0, 2 * MIB); /* the caller's again */
	CHECK_EQ(kill(service.pid, SIGCONT), 0);
	for (int i = 0; i < 50; i++) {
		length = 2 * MIB;
		if (kv_control_get(control, "size-2097152", 12, room, &length) == KV_OK)
			break;
		pause_ms(20);
	}
	CHECK_EQ(length, 2 * MIB);
	CHECK(value_is(room, length, 2 * MIB + 1));
	kv_control_close(control);
	service_stop(&service);
}

/* Keeps one client up until another is forgotten. */
static void beat_until_expired(kv_control_t *beating, kv_control_t *plain, uint64_t expired)
{
	uint64_t deadline_ns = clock_deadline_ns(20000 * (int)TEST_TIME_FACTOR);

	for (unsigned i = 0; control_figure(plain, "control.plane.clients_expired") < expired;
	     i++) {
		/* Calls that name nobody keep it up, too, as does the heartbeat itself. */
		if (i % 2)
			CHECK_KV(beating, kv_control_heartbeat(beating), KV_OK);
		else
			CHECK_KV(beating, kv_control_touch(beating, "size-1048576", 12, 0), KV_OK);
		if (clock_passed(deadline_ns))
			TEST_FAIL("a client that is silent is not forgotten");
		pause_ms(50);
	}
	CHECK_EQ(control_figure(plain, "control.plane.clients_expired"), expired);
}

static void test_heartbeats(void)
{
	kv_control_server_options_t brief = {.client_expiry_ms = 2500 * (int)TEST_TIME_FACTOR};
	struct service service;
	kv_control_t *idle, *beating, *plain;
	kv_control_options_t inline_only = {.no_data_plane = true};

	service_start(&service, NULL, &brief);
	idle = client_open(&service, NULL);
	beating = client_open(&service, NULL);
	plain = client_open(&service, &inline_only);
	CHECK_EQ(control_figure(plain, "control.plane.clients"), 2);
	put_and_get(idle, MIB);
	beat_until_expired(beating, plain, 1);
	CHECK_EQ(control_figure(plain, "control.plane.clients"), 1);
	CHECK_EQ(control_figure(plain, "control.plane.clients_total"), 2);
	put_and_get(beating, MIB);
	/* The one that was forgotten registers anew. */
	put_and_get(idle, MIB + 1);
	CHECK_EQ(control_figure(plain, "control.plane.clients"), 2);
	CHECK_EQ(control_figure(plain, "control.plane.clients_total"), 3);
	beat_until_expired(beating, plain, 2);
	CHECK_KV(idle, kv_control_heartbeat(idle), KV_OK);
	CHECK_EQ(control_figure(plain, "control.plane.clients"), 2);
	kv_control_close(idle);
	kv_control_close(beating);
	control_await_figure(plain, "control.plane.clients", 0);
	kv_control_close(plain);
	service_stop(&service);
}

/* ------------------------------------------------------------------------------------------
 * Many at once
 */

struct crowd {
	const struct service *service;
	unsigned number;
};

/* A value that begins with its number. */
static void fill_numbered(uint8_t *value, size_t length, uint64_t number)
{
	value_fill(value, length, number);
	memcpy(value, &number, sizeof(number));
}

/* Few keys: they write over each other's values, each of one number. */
static void be_one_of_many(void *argument)
{
	const struct crowd *crowd = argument;
	kv_control_t *control = client_open(crowd->service, NULL);
	uint8_t *value = kv_control_alloc(control, MIB), *expected = malloc(MIB);
	struct test_rng rng;

	CHECK(value && expected);
	test_rng_init(&rng, crowd->number);
	for (unsigned i = 0; i < 60; i++) {
		size_t length = 8 + test_rng_below(&rng, MIB - 8);
		uint64_t number = 1000 * (uint64_t)crowd->number + i;
		char key = (char)('a' + test_rng_below(&rng, 3));

		fill_numbered(value, length, number);
		CHECK_KV(control, kv_control_put(control, &key, 1, value, length), KV_OK);
		key = (char)('a' + test_rng_below(&rng, 3));
		length = MIB;
		if (kv_control_get(control, &key, 1, value, &length) != KV_OK)
			continue;
		memcpy(&number, value, sizeof(number));
		fill_numbered(expected, length, number);
		CHECK_MEM(value, expected, length);
	}
	free(expected);
	kv_control_close(control);
}

static void test_many_clients(void)
{
	struct service service;
	struct crowd crowd[4];
	pid_t pids[4];

	service_start(&service, NULL, NULL);
	for (unsigned i = 0; i < 4; i++) {
		crowd[i] = (struct crowd){&service, i};
		pids[i] = test_spawn(be_one_of_many, &crowd[i]);
	}
	for (unsigned i = 0; i < 4; i++)
		test_wait(pids[i]);
	service_stop(&service);
}

/* ------------------------------------------------------------------------------------------
 * Addresses
 */

static void test_urls(void)
{
	static const struct {
		const char *text, *host, *port, *authority;
		bool is_right, is_tls;
	} rows[] = {
		{"http://a", "a", "50051", "a:50051", true, false},
		{"https://a.b:1/", "a.b", "1", "a.b:1", true, true},
		{"http://[::1]:80", "::1", "80", "[::1]:80", true, false},
		{"http://[fe80::1]", "fe80::1", "50051", "[fe80::1]:50051", true, false},
		{.text = "http://"},
		{.text = "http://:80"},
		{.text = "http://a:"},
		{.text = "http://a:0"},
		{.text = "http://a:65536"},
		{.text = "http://a:8x"},
		{.text = "http://a:123456"},
		{.text = "http://a/path"},
		{.text = "http://[::1"},
		{.text = "http://[::1]x"},
		{.text = "tcp://a"},
		{.text = "a:50051"},
		{.text = ""},
	};
	struct control_url url;

	for (size_t i = 0; i < TEST_COUNT(rows); i++) {
		bool is_right = control_url_parse(rows[i].text, &url);

		if (is_right != rows[i].is_right)
			TEST_FAIL("'%s' is %s", rows[i].text, is_right ? "taken" : "refused");
		if (!is_right)
			continue;
		CHECK_STR(url.host, rows[i].host);
		CHECK_STR(url.port, rows[i].port);
		CHECK_STR(url.authority, rows[i].authority);
		CHECK_EQ(url.is_tls, rows[i].is_tls);
	}
}

static const struct test tests[] = {
	{"sizes", test_sizes},
	{"own_memory", test_own_memory},
	{"sixty_four_mib", test_sixty_four_mib, TEST_SLOW},
	{"room", test_room},
	{"versions", test_versions},
	{"time_to_live", test_time_to_live},
	{"scan_and_stats", test_scan_and_stats},
	{"wrong_arguments", test_wrong_arguments},
	{"no_grpc_there", test_no_grpc_there},
	{"inline_only", test_inline_only},
	{"server_without_plane", test_server_without_plane},
	{"two_lanes", test_two_lanes},
	{"keys", test_keys},
	{"tls", test_tls},
	{"server_restarts", test_server_restarts},
	{"server_stops_answering", test_server_stops_answering},
	{"heartbeats", test_heartbeats},
	{"many_clients", test_many_clients},
	{"urls", test_urls},
};

int main(int argc, char **argv)
{
	argc = setup_take(argc, argv);
	return test_main(argc, argv, "control_client", tests, TEST_COUNT(tests));
}
