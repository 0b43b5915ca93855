/*
 * The control server inside the test's own process, with a client that speaks gRPC by nghttp2: for
 * what sanitizers should see, and for its life. What clients of others see of it is tested in
 * Python.
 */
#include <pthread.h>
#include <remora/control_server.h>
#include <remora/kv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/caller.h"
#include "control/proto/grpc/health/v1/health.pb-c.h"
#include "control/proto/kv_cache.pb-c.h"
#include "harness/test.h"
#include "server/raw.h"
#include "server/subject.h"
#include "store/collide.h"

#define GET  "/kv_cache.KvCacheService/Get"
#define SCAN "/kv_cache.KvCacheService/Scan"

struct fixture {
	struct subject subject;
	kv_control_server_t *control;
	struct caller caller;
};

static void start(struct fixture *fixture, const kv_server_options_t *server_options,
		  const kv_control_server_options_t *given)
{
	kv_control_server_options_t options = given ? *given : (kv_control_server_options_t){0};

	if (!options.address)
		options.address = "0";
	subject_start(&fixture->subject, server_options);
	CHECK_EQ(kv_control_server_create(fixture->subject.server, &options, &fixture->control),
		 KV_OK);
	CHECK_STR(kv_control_server_address(fixture->control), "");
	if (kv_control_server_start(fixture->control) != KV_OK)
		TEST_FAIL("%s", kv_control_server_error());
	caller_open(&fixture->caller, kv_control_server_address(fixture->control));
}

static void stop(struct fixture *fixture)
{
	caller_close(&fixture->caller);
	kv_control_server_destroy(fixture->control);
	subject_stop(&fixture->subject);
}

/* ------------------------------------------------------------------------------------------
 * Calls
 */

static int put(struct caller *caller, const char *key, const void *value, size_t length)
{
	KvCache__PutRequest request;

	kv_cache__put_request__init(&request);
	request.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)key};
	request.value_source_case = KV_CACHE__PUT_REQUEST__VALUE_SOURCE_INLINE_VALUE;
	request.inline_value = (ProtobufCBinaryData){length, (uint8_t *)value};
	return caller_ask(caller, "Put", &request.base, NULL, NULL);
}

/* The status; *value is the caller's to free. */
static int get(struct caller *caller, const char *key, char **value, size_t *length)
{
	KvCache__GetRequest request = KV_CACHE__GET_REQUEST__INIT;
	ProtobufCMessage *message = NULL;
	const KvCache__GetResponse *response;
	int status;

	request.key = (ProtobufCBinaryData){strlen(key), (uint8_t *)key};
	status = caller_ask(caller, "Get", &request.base, &kv_cache__get_response__descriptor,
			    &message);
	CHECK(message != NULL);
	response = (const KvCache__GetResponse *)message;
	CHECK_EQ(response->success, status == GRPC_OK);
	*length = response->value.len;
	*value = malloc(*length + 1);
	memcpy(*value, response->value.data ? response->value.data : (const uint8_t *)"", *length);
	(*value)[*length] = '\0';
	protobuf_c_message_free_unpacked(message, NULL);
	return status;
}

static void check_value(struct caller *caller, const char *key, const void *expected, size_t length)
{
	size_t got;
	char *value;

	CHECK_EQ(get(caller, key, &value, &got), GRPC_OK);
	CHECK_EQ(got, length);
	CHECK_MEM(value, expected, length);
	free(value);
}

static void test_values_of_all_lengths(void)
{
	static const size_t lengths[] = {0,	1,     100,   1000,    8000,   16384,
					 65535, 65536, 65537, 1000000, 4194000};
	uint8_t *bytes = malloc((size_t)4 << 20);
	struct fixture fixture;

	start(&fixture, NULL, NULL);
	for (size_t i = 0; i < (size_t)4 << 20; i++)
		bytes[i] = (uint8_t)(i * 31 >> 3);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		CHECK_EQ(put(&fixture.caller, "k", bytes, lengths[i]), GRPC_OK);
		check_value(&fixture.caller, "k", bytes, lengths[i]);
	}
	CHECK_EQ(put(&fixture.caller, "k", bytes, (size_t)4 << 20), GRPC_RESOURCE_EXHAUSTED);
	check_value(&fixture.caller, "k", bytes, 4194000);
	free(bytes);
	stop(&fixture);
}

static void test_missing_key(void)
{
	struct fixture fixture;
	size_t length;
	char *value;

	start(&fixture, NULL, NULL);
	CHECK_EQ(get(&fixture.caller, "none", &value, &length), GRPC_NOT_FOUND);
	CHECK_EQ(length, 0);
	free(value);
	stop(&fixture);
}

static void test_counters_read_as_text(void)
{
	struct fixture fixture;
	kv_client_t *client = kv_client_create(CONN_MODE_SHM);
	int64_t sum;

	start(&fixture, NULL, NULL);
	CHECK_EQ(kv_client_connect(client, "shm:subject", 0), KV_OK);
	CHECK_EQ(kv_client_incr(client, "count", 5, 42, &sum), KV_OK);
	check_value(&fixture.caller, "count", "42", 2);
	kv_client_destroy(client);
	stop(&fixture);
}

static void fill(struct caller *caller, unsigned keys)
{
	for (unsigned i = 0; i < keys; i++) {
		char key[32];

		snprintf(key, sizeof(key), "key:%u", i);
		CHECK_EQ(put(caller, key, "v", 1), GRPC_OK);
	}
}

static void test_scan(void)
{
	KvCache__ScanRequest request = KV_CACHE__SCAN_REQUEST__INIT;
	ProtobufCMessage *message;
	struct fixture fixture;
	unsigned found = 0;
	struct call call;

	start(&fixture, NULL, NULL);
	fill(&fixture.caller, 500);
	request.batch = 7;
	call_start(&fixture.caller, &call, SCAN, &request.base, NULL);
	call_wait(&fixture.caller, &call);
	CHECK_EQ(call.status, GRPC_OK);
	while ((message = call_message(&call, &kv_cache__scan_response__descriptor)) != NULL) {
		found += (unsigned)((KvCache__ScanResponse *)message)->n_entries;
		protobuf_c_message_free_unpacked(message, NULL);
	}
	CHECK(found >= 500 && found < 600);
	call_free(&call);
	stop(&fixture);
}

#define COLLIDING 60u

/* So many keys of one place that they fill more than a response should have: all of them come, also
 * to who wants one at a time and goes on by the cursor. */
static void test_scan_of_colliding_keys(void)
{
	unsigned seen[COLLIDING] = {0}, calls = 0;
	KvCache__ScanRequest request = KV_CACHE__SCAN_REQUEST__INIT;
	kv_client_t *client = kv_client_create(CONN_MODE_SHM);
	ProtobufCMessage *message;
	struct fixture fixture;
	struct raw raw;
	uint64_t seed;

	start(&fixture, NULL, NULL);
	raw_enter(&raw, "shm", subject_address(&fixture.subject, "shm"), NULL);
	seed = raw_hash_seed(&raw);
	raw_close(&raw);
	CHECK_EQ(kv_client_connect(client, "shm:subject", 0), KV_OK);
	for (uint32_t i = 0; i < COLLIDING; i++) {
		uint8_t key[KV_MAX_KEY];

		collide_key(key, seed, 'x', i);
		CHECK_EQ(kv_client_put(client, key, sizeof(key), "v", 1), KV_OK);
	}
	kv_client_destroy(client);
	request.limit = request.batch = 1;
	do {
		struct call call;

		CHECK(++calls < 10 * COLLIDING);
		call_start(&fixture.caller, &call, SCAN, &request.base, NULL);
		call_wait(&fixture.caller, &call);
		CHECK_EQ(call.status, GRPC_OK);
		while ((message = call_message(&call, &kv_cache__scan_response__descriptor))) {
			const KvCache__ScanResponse *response = (KvCache__ScanResponse *)message;

			for (size_t i = 0; i < response->n_entries; i++) {
				uint32_t number;

				memcpy(&number, response->entries[i]->key.data + 4, sizeof(number));
				CHECK(number < COLLIDING);
				seen[number]++;
			}
			request.cursor = response->cursor;
			protobuf_c_message_free_unpacked(message, NULL);
		}
		call_free(&call);
	} while (request.cursor);
	for (unsigned i = 0; i < COLLIDING; i++)
		CHECK_EQ(seen[i], 1);
	stop(&fixture);
}

/* In the middle of everything: the server has nothing left of them. */
static void test_cancelled_scans(void)
{
	KvCache__ScanRequest request = KV_CACHE__SCAN_REQUEST__INIT;
	struct fixture fixture;
	struct call calls[8];

	start(&fixture, NULL, NULL);
	fill(&fixture.caller, 300);
	request.batch = 1;
	for (unsigned round = 0; round < 20; round++) {
		for (unsigned i = 0; i < 8; i++)
			call_start(&fixture.caller, &calls[i], SCAN, &request.base, NULL);
		for (unsigned i = 0; i < round % 4; i++)
			caller_turn(&fixture.caller, 1);
		for (unsigned i = 0; i < 8; i++) {
			if (!calls[i].is_done)
				call_cancel(&fixture.caller, &calls[i]);
			call_wait(&fixture.caller, &calls[i]);
			call_free(&calls[i]);
		}
	}
	check_value(&fixture.caller, "key:7", "v", 1);
	stop(&fixture);
}

static void ask_with(struct fixture *fixture, const struct call_options *options, int expected)
{
	KvCache__GetRequest request = KV_CACHE__GET_REQUEST__INIT;
	struct call call;

	request.key = (ProtobufCBinaryData){1, (uint8_t *)"k"};
	call_start(&fixture->caller, &call, GET, &request.base, options);
	call_wait(&fixture->caller, &call);
	CHECK_EQ(call.status, expected);
	call_free(&call);
}

static void test_headers(void)
{
	struct fixture fixture;

	start(&fixture, NULL, NULL);
	CHECK_EQ(put(&fixture.caller, "k", "v", 1), GRPC_OK);
	ask_with(&fixture, NULL, GRPC_OK);
	ask_with(&fixture, &(struct call_options){.timeout = "10S"}, GRPC_OK);
	ask_with(&fixture, &(struct call_options){.timeout = "0n"}, GRPC_DEADLINE_EXCEEDED);
	ask_with(&fixture, &(struct call_options){.timeout = "never"}, GRPC_INTERNAL);
	ask_with(&fixture, &(struct call_options){.encoding = "identity"}, GRPC_OK);
	/* Each message tells for itself whether it is compressed. */
	ask_with(&fixture, &(struct call_options){.encoding = "gzip"}, GRPC_OK);
	ask_with(&fixture, &(struct call_options){.encoding = "br"}, GRPC_UNIMPLEMENTED);
	ask_with(&fixture, &(struct call_options){.token = "Bearer whatever"}, GRPC_OK);
	stop(&fixture);
}

static void test_tokens(void)
{
	kv_server_options_t options = {.key_file = subject_key_file('w'),
				       .read_key_file = subject_key_file('r')};
	struct fixture fixture;
	FILE *file = fopen(options.key_file, "r");
	char key[256] = "Bearer ";

	CHECK(file && fgets(key + 7, sizeof(key) - 7, file));
	fclose(file);
	key[strcspn(key, "\n")] = '\0';
	start(&fixture, &options, NULL);
	ask_with(&fixture, NULL, GRPC_UNAUTHENTICATED);
	ask_with(&fixture, &(struct call_options){.token = "Bearer none"}, GRPC_UNAUTHENTICATED);
	ask_with(&fixture, &(struct call_options){.token = key}, GRPC_NOT_FOUND);
	key[7]++;
	ask_with(&fixture, &(struct call_options){.token = key}, GRPC_UNAUTHENTICATED);
	stop(&fixture);
}

/* ------------------------------------------------------------------------------------------
 * Deadlines, and the end
 */

static void watch(struct fixture *fixture, struct call *call, const char *timeout)
{
	Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;

	call_start(&fixture->caller, call, "/grpc.health.v1.Health/Watch", &request.base,
		   &(struct call_options){.timeout = timeout});
}

/* Many at once, in no order; each ends when its time has come, and none before. */
static void test_deadlines(void)
{
	uint64_t begin_ns;
	struct fixture fixture;
	struct call calls[64];

	start(&fixture, NULL, NULL);
	begin_ns = clock_now_ns();
	for (unsigned i = 0; i < 64; i++) {
		char timeout[16];

		snprintf(timeout, sizeof(timeout), "%um", 20 + i * 37 % 64 * 4);
		watch(&fixture, &calls[i], timeout);
	}
	for (unsigned i = 0; i < 64; i++) {
		call_wait(&fixture.caller, &calls[i]);
		CHECK_EQ(calls[i].status, GRPC_DEADLINE_EXCEEDED);
		CHECK(clock_now_ns() - begin_ns >= (20 + i * 37 % 64 * 4) * UINT64_C(1000000));
		call_free(&calls[i]);
	}
	stop(&fixture);
}

/* Those who watch are told, the connection ends, and it can be started again. */
static void test_stop_and_start(void)
{
	struct fixture fixture;
	struct call call;

	start(&fixture, NULL, NULL);
	CHECK_EQ(put(&fixture.caller, "k", "v", 1), GRPC_OK);
	for (unsigned i = 0; i < 3; i++) {
		watch(&fixture, &call, NULL);
		while (!call.response_length)
			caller_turn(&fixture.caller, 100);
		kv_control_server_stop(fixture.control);
		call_wait(&fixture.caller, &call);
		CHECK(call.is_done);
		CHECK_EQ(call.status, GRPC_UNAVAILABLE);
		CHECK(fixture.caller.sees_away);
		call_free(&call);
		caller_close(&fixture.caller);
		CHECK_STR(kv_control_server_address(fixture.control), "");
		CHECK_EQ(kv_control_server_start(fixture.control), KV_OK);
		CHECK_EQ(kv_control_server_start(fixture.control), KV_INVALID);
		caller_open(&fixture.caller, kv_control_server_address(fixture.control));
		check_value(&fixture.caller, "k", "v", 1);
	}
	stop(&fixture);
}

/* With calls under way that never end by themselves, and clients that read nothing. */
static void test_stop_in_the_middle(void)
{
	KvCache__ScanRequest request = KV_CACHE__SCAN_REQUEST__INIT;
	kv_control_server_options_t options = {.stop_timeout_ms = 200};
	struct fixture fixture;
	struct call calls[20];

	start(&fixture, NULL, &options);
	fill(&fixture.caller, 300);
	request.batch = 1;
	for (unsigned i = 0; i < 20; i++)
		call_start(&fixture.caller, &calls[i], SCAN, &request.base, NULL);
	caller_turn(&fixture.caller, 1);
	kv_control_server_stop(fixture.control);
	for (unsigned i = 0; i < 20; i++)
		call_free(&calls[i]);
	stop(&fixture);
}

static void test_wrong_options(void)
{
	static const kv_control_server_options_t wrong[] = {
		{.address = "nonsense:port"}, {.address = "1:2:3:4:5:6:7:8:9:x"},
		{.max_message = 10},	      {.max_headers = 10},
		{.max_streams = 1 << 30},     {.stall_ms = -1},
		{.tls_cert = "/nowhere"},     {.tls_cert = "/nowhere", .tls_key = "/nowhere"},
	};
	kv_control_server_t *control;
	struct subject subject;

	subject_start(&subject, NULL);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		bool is_refused = kv_control_server_check(&wrong[i]) != KV_OK;

		if (i == 1)
			continue; /* a name that cannot be resolved: found out at the start */
		CHECK(is_refused);
		CHECK(kv_control_server_create(subject.server, &wrong[i], &control) != KV_OK);
		CHECK(strlen(kv_control_server_error()) > 10);
	}
	CHECK_EQ(kv_control_server_check(NULL), KV_OK);
	kv_control_server_destroy(NULL);
	subject_stop(&subject);
}

/* ------------------------------------------------------------------------------------------
 * Threads
 */

static void *call_much(void *argument)
{
	struct fixture *fixture = argument;
	struct caller caller;

	caller_open(&caller, kv_control_server_address(fixture->control));
	for (unsigned i = 0; i < 200; i++) {
		char key[32], value[32];
		size_t length;
		char *got;

		snprintf(key, sizeof(key), "key:%u", i % 10);
		snprintf(value, sizeof(value), "value:%u", i % 10);
		CHECK_EQ(put(&caller, key, value, strlen(value)), GRPC_OK);
		CHECK_EQ(get(&caller, key, &got, &length), GRPC_OK);
		CHECK_STR(got, value);
		free(got);
	}
	caller_close(&caller);
	return NULL;
}

static void *call_natively(void *argument)
{
	kv_client_t *client = kv_client_create(CONN_MODE_SHM);

	(void)argument;
	CHECK_EQ(kv_client_connect(client, "shm:subject", 0), KV_OK);
	for (unsigned i = 0; i < 1000; i++) {
		char key[32], value[32];

		snprintf(key, sizeof(key), "key:%u", i % 10);
		snprintf(value, sizeof(value), "value:%u", i % 10);
		CHECK_EQ(kv_client_put(client, key, strlen(key), value, strlen(value)), KV_OK);
	}
	kv_client_destroy(client);
	return NULL;
}

/* Clients by gRPC and by shared memory on the same keys, while figures and keys are read. */
static void test_threads(void)
{
	kv_server_options_t options = {0};
	struct fixture fixture;
	pthread_t threads[5];

	start(&fixture, &options, NULL);
	for (unsigned i = 0; i < 5; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, i < 4 ? call_much : call_natively,
					&fixture),
			 0);
	for (unsigned i = 0; i < 50; i++) {
		char *text;

		CHECK_EQ(kv_control_server_stats(fixture.control, &text), KV_OK);
		CHECK_CONTAINS(text, "control.connections ");
		free(text);
		CHECK_EQ(kv_server_read_keys(fixture.subject.server, NULL, NULL), KV_OK);
		test_sleep_ms(2);
	}
	for (unsigned i = 0; i < 5; i++)
		pthread_join(threads[i], NULL);
	stop(&fixture);
}

static const struct test tests[] = {
	{"values_of_all_lengths", test_values_of_all_lengths},
	{"missing_key", test_missing_key},
	{"counters_read_as_text", test_counters_read_as_text},
	{"scan", test_scan},
	{"scan_of_colliding_keys", test_scan_of_colliding_keys},
	{"cancelled_scans", test_cancelled_scans},
	{"headers", test_headers},
	{"tokens", test_tokens},
	{"deadlines", test_deadlines},
	{"stop_and_start", test_stop_and_start},
	{"stop_in_the_middle", test_stop_in_the_middle},
	{"wrong_options", test_wrong_options},
	{"threads", test_threads},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "control_server_test", tests, TEST_COUNT(tests));
}
