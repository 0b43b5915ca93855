/*
 * Nothing is left behind: file descriptors, mappings and bytes are the same after a thousand
 * connections as after the first fifty, on both sides.
 *
 * What these tests would catch: a descriptor or a mapping that an error path or a close forgets, an
 * object that is never freed, a table that only grows.
 */
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "conformance.h"
#include "puppet.h"

#define WARM_UP	   50
#define RECONNECTS 1000

struct usage {
	int fds, mappings;
	size_t bytes;
};

static struct usage usage_now(void)
{
	struct usage usage = {test_open_fds(), test_mapping_count(), 0};

	/* A sanitizer's allocator has no such figure; asan finds leaks by itself. */
	if (!TEST_HAS_SANITIZER)
		usage.bytes = mallinfo2().uordblks;
	return usage;
}

/* The same after a pause in which a provider's helper thread, if there is one, has had its turn:
 * what it allocates once is no leak. */
static struct usage usage_settled(void)
{
	test_sleep_ms(20);
	return usage_now();
}

/* Bytes that may be lost without being a leak of ours: libfabric 1.17 loses some 30 with each
 * endpoint that is opened and closed, in a bare loop too. */
static size_t tolerance(void)
{
	return strncmp(fixture.device, "ofi", 3) == 0 ? 16384 : 4096;
}

static void check_usage(const struct usage *before, const char *who)
{
	struct usage now = usage_now();

	/* A mapping more or less may be the C library's own; a leak would be hundreds. */
	if (now.fds != before->fds || now.mappings > before->mappings + 5 ||
	    now.bytes > before->bytes + tolerance())
		TEST_FAIL("%s leaks: descriptors %d -> %d, mappings %d -> %d, bytes %zu -> %zu",
			  who, before->fds, now.fds, before->mappings, now.mappings, before->bytes,
			  now.bytes);
}

/* Serves one caller after the other: exports, gets a message, and closes, or sees the end. Who
 * closes does so when the other one's operations are done: what is in flight then may fail. */
static void serve_callers(struct node *node)
{
	int *count = node->arg, i;
	struct memory memories[2];
	struct usage before = {0};

	node_open(node, NULL);
	memory_open(node, &memories[0], MEMORY_ARENA, 64 * KIB, RMR_READ);
	memory_open(node, &memories[1], MEMORY_PLAIN, 64 * KIB, RMR_READ);
	node_listen(node);
	for (i = 0; i < WARM_UP + *count; i++) {
		if (i == WARM_UP)
			before = usage_settled();
		node_accept(node, NULL);
		node->memory = memories[i / 2 % 2];
		node_export(node);
		node_recv(node, 100, 1);
		if (i % 2) {
			test_signal(node->pipe, TEST_CHILD);
			node_expect_disconnect(node, node->conn);
		} else {
			test_await(node->pipe, TEST_CHILD);
		}
		rmr_conn_close(node->conn);
		node->conn = NULL;
	}
	check_usage(&before, "the server");
	memory_close(&memories[0]);
	node->memory = memories[1];
	node_close(node);
}

static void check_reconnects(int count)
{
	struct usage before = {0};
	struct peer peer;
	struct node node = {0};
	struct rmr_work work;
	int i;

	peer_start(&peer, serve_callers, &count);
	node_open(&node, NULL);
	node_memory(&node, MEMORY_ARENA, 4096, 0);
	for (i = 0; i < WARM_UP + count; i++) {
		if (i == WARM_UP)
			before = usage_settled();
		node_connect(&node, &peer, NULL);
		node_import(&node);
		work = work_of(&node, RMR_OP_READ, 0, 4096, 0);
		node_do(&node, &work);
		node_send(&node, 100, 1);
		if (i % 2 == 0) {
			test_signal(&peer.pipe, TEST_PARENT);
			node_expect_disconnect(&node, node.conn);
		} else {
			test_await(&peer.pipe, TEST_PARENT);
		}
		rmr_conn_close(node.conn); /* and with it the remote */
		node.conn = NULL;
		node.remote = NULL;
	}
	check_usage(&before, "the client");
	peer_join(&peer);
	node_close(&node);
}

static void test_reconnect(void)
{
	check_reconnects(100);
}

static void test_reconnect_1000(void)
{
	check_reconnects(RECONNECTS);
}

/* Everything that one process can open alone, opened and closed over and over. */
static void test_objects(void)
{
	struct usage before = {0};
	struct rmr_listener *listener;
	struct memory memory;
	struct node node = {0};
	char address[128];
	int i, k;

	for (i = 0; i < WARM_UP + 200; i++) {
		if (i == WARM_UP)
			before = usage_settled();
		node_open(&node, NULL);
		for (k = 0; k < 3; k++) {
			memory_open(&node, &memory, (enum memory_kind)k, 10000,
				    memory_rights(&node, (enum memory_kind)k));
			memory_close(&memory);
		}
		CHECK_OK(rmr_listener_open(node.device, fixture_address(address), NULL, &listener));
		rmr_listener_close(listener);
		node_close(&node);
	}
	check_usage(&before, "opening and closing");
}

/* Calls that fail leave nothing behind either. */
static void test_failures(void)
{
	struct usage before = {0};
	struct rmr_listener *listener;
	struct rmr_conn *conn;
	struct rmr_device *device;
	struct rmr_descriptor garbage = {0};
	struct rmr_remote *remote;
	struct puppet puppet;
	struct node node;
	char nobody[128];
	int i;

	pair_open(&puppet, &node, NULL);
	for (i = 0; i < WARM_UP + 200; i++) {
		if (i == WARM_UP)
			before = usage_settled();
		CHECK_STATUS(rmr_device_open("no-such-device", NULL, &device), RMR_NO_DEVICE);
		CHECK_STATUS(rmr_listener_open(node.device, puppet.peer.address, NULL, &listener),
			     RMR_ADDRESS_IN_USE);
		CHECK_OK(rmr_listener_open(node.device, fixture_address(nobody), NULL, &listener));
		snprintf(nobody, sizeof(nobody), "%s", rmr_listener_address(listener));
		rmr_listener_close(listener);
		CHECK_STATUS(rmr_connect(node.queue, nobody, PATIENCE_MS, NULL, &conn),
			     RMR_REFUSED);
		CHECK_STATUS(rmr_connect(node.queue, "", PATIENCE_MS, NULL, &conn),
			     RMR_BAD_ADDRESS);
		CHECK_STATUS(rmr_remote_open(node.conn, &garbage, &remote), RMR_INVALID);
	}
	check_usage(&before, "failing");
	pair_close(&puppet, &node);
}

const struct test leak_tests[] = {
	{"leak_reconnect_100_times", test_reconnect},
	{"leak_reconnect_1000_times", test_reconnect_1000, TEST_SLOW},
	{"leak_open_and_close", test_objects},
	{"leak_failing_calls", test_failures},
	{NULL},
};
