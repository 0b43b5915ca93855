/* Parts of the control server that need no client: addresses, deadlines, scratch, methods. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/server/internal.h"
#include "harness/test.h"

static void test_addresses(void)
{
	static const struct {
		const char *text, *address; /* NULL: it is none */
	} cases[] = {
		{"50051", "127.0.0.1:50051"},
		{"0", "127.0.0.1:0"},
		{":7", "127.0.0.1:7"},
		{"0.0.0.0:50051", "0.0.0.0:50051"},
		{"*:1", "*:1"},
		{"localhost", "localhost:50051"},
		{"cache.example:80", "cache.example:80"},
		{"[::1]:9", "[::1]:9"},
		{"[::1]", "[::1]:50051"},
		{"::1", "[::1]:50051"},
		{"fe80::1:2", "[fe80::1:2]:50051"},
		{"host:", NULL},
		{"host:http", NULL},
		{"host:65536", NULL},
		{"65536", NULL},
		{"123456789012345678901", NULL},
		{"host:-1", NULL},
	};
	char address[CONTROL_ADDRESS], long_name[2 * CONTROL_ADDRESS];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool is_right = control_listen_address(cases[i].text, address);

		if (is_right != (cases[i].address != NULL))
			TEST_FAIL("'%s' is %s", cases[i].text, is_right ? address : "refused");
		if (is_right)
			CHECK_STR(address, cases[i].address);
	}
	memset(long_name, 'x', sizeof(long_name));
	long_name[sizeof(long_name) - 1] = '\0';
	CHECK(!control_listen_address(long_name, address));
}

/* ------------------------------------------------------------------------------------------
 * Deadlines
 */

#define CALLS 500

static void check_heap(const struct deadlines *deadlines)
{
	for (size_t i = 0; i < deadlines->count; i++) {
		CHECK_EQ(deadlines->heap[i]->heap_place, i + 1);
		if (i)
			CHECK(deadlines->heap[(i - 1) / 2]->deadline_ns <=
			      deadlines->heap[i]->deadline_ns);
	}
}

/* They come and go at random; the first is always the earliest. */
static void test_deadlines(void)
{
	struct rpc *calls = calloc(CALLS, sizeof(*calls));
	struct deadlines deadlines = {0};
	uint64_t last_ns = 0;

	CHECK(calls != NULL);
	CHECK_EQ(deadlines_next_ns(&deadlines), CLOCK_NEVER);
	srand(7);
	for (unsigned i = 0; i < 20000; i++) {
		struct rpc *call = &calls[rand() % CALLS];

		if (call->heap_place) {
			deadlines_remove(&deadlines, call);
			CHECK_EQ(call->heap_place, 0);
			deadlines_remove(&deadlines, call);
		} else {
			call->deadline_ns = (uint64_t)(rand() % 1000);
			CHECK(deadlines_add(&deadlines, call));
		}
		if (i % 100 == 0)
			check_heap(&deadlines);
	}
	while (deadlines.count) {
		struct rpc *call = deadlines_passed(&deadlines, 1000);

		CHECK(call && call->deadline_ns >= last_ns);
		CHECK(!deadlines_passed(&deadlines, call->deadline_ns - 1) || !call->deadline_ns);
		last_ns = call->deadline_ns;
		deadlines_remove(&deadlines, call);
	}
	deadlines_fini(&deadlines);
	free(calls);
}

/* ------------------------------------------------------------------------------------------
 * Scratch
 */

static void test_scratch(void)
{
	struct scratch scratch;
	ProtobufCAllocator *allocator = &scratch.allocator;

	CHECK(scratch_init(&scratch, 1 << 20));
	for (unsigned round = 0; round < 3; round++) {
		uint8_t *first = allocator->alloc(allocator->allocator_data, 3);
		uint8_t *second = allocator->alloc(allocator->allocator_data, 5);
		uint8_t *large = allocator->alloc(allocator->allocator_data, 500000);

		CHECK(first && second && large);
		CHECK_EQ((uintptr_t)second % 16, 0);
		CHECK(second - first >= 3);
		memset(large, 1, 500000);
		/* So much is permitted, and no more. */
		CHECK(!allocator->alloc(allocator->allocator_data, 600000));
		CHECK(!allocator->alloc(allocator->allocator_data, SIZE_MAX));
		CHECK(!allocator->alloc(allocator->allocator_data, SIZE_MAX - 8));
		CHECK(allocator->alloc(allocator->allocator_data, 500000) != NULL);
		allocator->free(allocator->allocator_data, large);
		scratch_reset(&scratch);
		CHECK_EQ(scratch.block_bytes, 0);
	}
	scratch_fini(&scratch);
}

/* A message of tiny parts that would need many times its length. */
static void test_message_that_swells(void)
{
	size_t length = 400000;
	uint8_t *bytes = malloc(length);
	struct scratch scratch;

	CHECK(bytes && scratch_init(&scratch, 1 << 20));
	/* Figures without a name: field 1, no bytes. */
	for (size_t i = 0; i < length; i += 2) {
		bytes[i] = 0x0a;
		bytes[i + 1] = 0;
	}
	CHECK(!protobuf_c_message_unpack(&kv_cache__stats_response__descriptor, &scratch.allocator,
					 length, bytes));
	scratch_reset(&scratch);
	CHECK(protobuf_c_message_unpack(&kv_cache__stats_response__descriptor, &scratch.allocator,
					1000, bytes) != NULL);
	scratch_fini(&scratch);
	free(bytes);
}

/* ------------------------------------------------------------------------------------------
 * Methods
 */

static void test_methods(void)
{
	CHECK(!rpc_method_find((const uint8_t *)"", 0));
	CHECK(!rpc_method_find((const uint8_t *)"/kv_cache.KvCacheService/Gets", 29));
	for (unsigned i = 0; i < rpc_method_count; i++) {
		const struct rpc_method *method = &rpc_methods[i];

		CHECK_EQ(strlen(method->path), method->length);
		CHECK(rpc_method_find((const uint8_t *)method->path, method->length) == method);
		CHECK_EQ(rpc_method_number(method), i);
	}
}

static void test_times_to_live(void)
{
	CHECK_EQ(control_ttl_of(0, 0), 0);
	CHECK_EQ(control_ttl_of(3, 0), 3000);
	CHECK_EQ(control_ttl_of(3, 7), 7);
	CHECK_EQ(control_ttl_of(UINT64_MAX, 0), control_ttl_of(0, UINT64_MAX));
	CHECK(control_ttl_of(UINT64_MAX, 0) < UINT64_MAX / 2);
}

static const struct test tests[] = {
	{"addresses", test_addresses}, {"deadlines", test_deadlines},
	{"scratch", test_scratch},     {"message_that_swells", test_message_that_swells},
	{"methods", test_methods},     {"times_to_live", test_times_to_live},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "control_server_parts_test", tests, TEST_COUNT(tests));
}
