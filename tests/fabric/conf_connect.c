/*
 * Finding each other: addresses, private data, refusals, deadlines.
 *
 * What these tests would catch: a connect that hangs on nobody, private data cut or mixed up, a
 * reason that does not arrive, a live listener's address stolen, a dead one's kept.
 */
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "conformance.h"
#include "puppet.h"

static bool on_tcp(void)
{
	return fixture.host != NULL;
}

static bool on_adapter(void)
{
	return strncmp(fixture.device, "verbs", 5) == 0;
}

static uint64_t elapsed_ms(uint64_t begin_ns)
{
	return (clock_now_ns() - begin_ns) / 1000000;
}

/* ------------------------------------------------------------------------------------------
 * Private data and names
 */

/* Accepts callers and answers each with its own private data, reversed. */
static void answer_private(struct node *node)
{
	uint8_t reversed[RMR_PRIVATE_MAX];
	size_t length, i, n;

	node_open(node, NULL);
	node_listen(node);
	for (n = 0; n <= RMR_PRIVATE_MAX; n++) {
		struct rmr_conn_options options = {.private_data = reversed, .user = node};
		struct rmr_conn_info info;
		struct rmr_request *request;
		const uint8_t *data;

		CHECK_OK(rmr_listener_next(node->listener, PATIENCE_MS, &request));
		CHECK(strlen(rmr_request_peer(request)) > 0);
		data = rmr_request_private(request, &length);
		CHECK_EQ(length, n);
		pattern_check(data, n, n, "the caller's private data");
		for (i = 0; i < length; i++)
			reversed[i] = data[length - 1 - i];
		options.private_length = length;
		CHECK_OK(rmr_accept(request, node->queue, &options, &node->conn));
		CHECK(rmr_conn_user(node->conn) == node);
		CHECK(rmr_conn_queue(node->conn) == node->queue);
		rmr_conn_get_info(node->conn, &info);
		CHECK_EQ(info.private_length, n);
		pattern_check(info.private_data, n, n, "private data of a connection");
		CHECK(info.peer != NULL && info.peer[0] != '\0');
		node_expect_disconnect(node, node->conn);
		rmr_conn_close(node->conn);
	}
	node->conn = NULL;
	node_close(node);
}

static void test_private_data(void)
{
	uint8_t data[RMR_PRIVATE_MAX + 1];
	struct rmr_conn_options options = {.private_data = data};
	struct rmr_conn_info info;
	struct rmr_conn *conn;
	enum rmr_status status;
	struct peer peer;
	struct node node = {0};
	size_t n, i;

	peer_start(&peer, answer_private, NULL);
	node_open(&node, NULL);
	for (n = 0; n <= RMR_PRIVATE_MAX; n++) {
		pattern_fill(data, n, n);
		options.private_length = n;
		node_connect(&node, &peer, &options);
		rmr_conn_get_info(node.conn, &info);
		CHECK_EQ(info.private_length, n);
		for (i = 0; i < n; i++)
			CHECK_EQ(((const uint8_t *)info.private_data)[i], data[n - 1 - i]);
		CHECK(info.alive);
		rmr_conn_set_user(node.conn, &node);
		CHECK(rmr_conn_user(node.conn) == &node);
		rmr_conn_close(node.conn);
	}
	node.conn = NULL;
	options.private_length = n;
	status = rmr_connect(node.queue, peer.address, PATIENCE_MS, &options, &conn);
	CHECK(status == RMR_TOO_LONG || status == RMR_INVALID);
	peer_join(&peer);
	node_close(&node);
}

/* A listener and a caller in one process: the address it tells is one that works. */
static void check_address(struct node *node, const char *address)
{
	struct rmr_listener *listener;
	struct rmr_request *request;
	struct pollfd pollfd;
	char told[128];

	CHECK_OK(rmr_listener_open(node->device, address, NULL, &listener));
	CHECK_STATUS(rmr_listener_next(listener, 0, &request), RMR_TIMEOUT);
	pollfd = (struct pollfd){.fd = rmr_listener_fd(listener), .events = POLLIN};
	CHECK_EQ(poll(&pollfd, 1, 0), 0);
	snprintf(told, sizeof(told), "%s", rmr_listener_address(listener));
	test_send(node->pipe, TEST_PARENT, told, sizeof(told));
	CHECK_EQ(poll(&pollfd, 1, PATIENCE_MS), 1);
	CHECK_OK(rmr_listener_next(listener, PATIENCE_MS, &request));
	CHECK_OK(rmr_accept(request, node->queue, NULL, &node->conn));
	node_recv(node, 12, 1);
	rmr_conn_close(node->conn);
	node->conn = NULL;
	rmr_listener_close(listener);
}

static void call_addresses(struct node *node)
{
	int *count = node->arg, i;

	node_open(node, NULL);
	for (i = 0; i < *count; i++) {
		struct peer server = {0};

		test_recv(node->pipe, TEST_CHILD, server.address, sizeof(server.address));
		node_connect(node, &server, NULL);
		node_send(node, 12, 1);
		node_expect_disconnect(node, node->conn);
		rmr_conn_close(node->conn);
		node->conn = NULL;
	}
	node_close(node);
}

/* A bare machine may have no /etc/hosts. */
static bool knows_localhost(void)
{
	struct addrinfo *list;

	if (getaddrinfo("localhost", NULL, NULL, &list) != 0)
		return false;
	freeaddrinfo(list);
	return true;
}

static void test_addresses(void)
{
	char name[128], path[128], host[128];
	const char *tcp[] = {"127.0.0.1:0", "*:0", ":0", "[::1]:0",
			     knows_localhost() ? "localhost:0" : "127.0.0.2:0"};
	/* Adapters have addresses of their own, and none of the loopback device's. */
	const char *adapter[] = {fixture_address(host), "*:0", ":0"};
	const char *shm[] = {name, path, name};
	const char **addresses = !on_tcp() ? shm : on_adapter() ? adapter : tcp;
	int count = !on_tcp()	   ? (int)TEST_COUNT(shm)
		    : on_adapter() ? (int)TEST_COUNT(adapter)
				   : (int)TEST_COUNT(tcp);
	int i;
	struct peer peer;
	struct node node = {0};

	snprintf(name, sizeof(name), "conformance-%d", getpid());
	snprintf(path, sizeof(path), "%s/socket", test_tmpdir());
	peer_start(&peer, call_addresses, &count);
	node.pipe = &peer.pipe;
	node_open(&node, NULL);
	for (i = 0; i < count; i++)
		check_address(&node, addresses[i]);
	peer_join(&peer);
	node_close(&node);
}

/* ------------------------------------------------------------------------------------------
 * Refusals
 */

/* Addresses that were right and at which nobody listens. */
static void test_nobody(void)
{
	struct rmr_listener *listener;
	struct rmr_conn *conn;
	struct node node = {0};
	char address[128];
	uint64_t begin_ns;
	int i;

	node_open(&node, NULL);
	for (i = 0; i < 3; i++) {
		CHECK_OK(rmr_listener_open(node.device, fixture_address(address), NULL, &listener));
		snprintf(address, sizeof(address), "%s", rmr_listener_address(listener));
		rmr_listener_close(listener);
		begin_ns = clock_now_ns();
		CHECK_STATUS(rmr_connect(node.queue, address, PATIENCE_MS, NULL, &conn),
			     RMR_REFUSED);
		CHECK(strlen(rmr_error_message()) > 0);
		CHECK(elapsed_ms(begin_ns) < 1000 * TEST_TIME_FACTOR);
		if (!on_tcp())
			CHECK(access(address, F_OK) != 0); /* the socket file is gone */
	}
	node_close(&node);
}

static void test_bad_addresses(void)
{
	static const char *const tcp[] = {"",
					  "127.0.0.1",
					  "127.0.0.1:",
					  "127.0.0.1:abc",
					  "127.0.0.1:1x",
					  "127.0.0.1:65536",
					  "127.0.0.1:-1",
					  "[::1:80",
					  "[::1]80",
					  "300.1.2.3.4:80"};
	static char longest[300];
	static const char *const shm[] = {"", longest};
	const char *const *bad = on_tcp() ? tcp : shm;
	size_t count = on_tcp() ? TEST_COUNT(tcp) : TEST_COUNT(shm), i;
	struct rmr_listener *listener;
	struct rmr_conn *conn;
	struct node node = {0};

	memset(longest, 'x', sizeof(longest) - 1);
	longest[0] = '/';
	node_open(&node, NULL);
	for (i = 0; i < count; i++) {
		enum rmr_status status = rmr_connect(node.queue, bad[i], 1000, NULL, &conn);

		if (status != RMR_BAD_ADDRESS)
			TEST_FAIL("connect to '%.40s': %s", bad[i], rmr_status_text(status));
		status = rmr_listener_open(node.device, bad[i], NULL, &listener);
		if (status != RMR_BAD_ADDRESS)
			TEST_FAIL("listen at '%.40s': %s", bad[i], rmr_status_text(status));
	}
	node_close(&node);
}

/* A second listener at the address is turned away, and the first one goes on. */
static void test_in_use(void)
{
	struct rmr_listener *second;
	struct puppet puppet;
	struct node node, other;

	pair_open(&puppet, &node, NULL);
	CHECK_STATUS(rmr_listener_open(node.device, puppet.peer.address, NULL, &second),
		     RMR_ADDRESS_IN_USE);
	other = node;
	CHECK_EQ(pair_connect(&puppet, &other), 1);
	node_send(&other, 10, 1);
	puppet_expect_recv(&puppet, 1, 10, 1);
	rmr_conn_close(other.conn);
	pair_close(&puppet, &node);
}

/* A listener that was killed leaves its address behind; the next one takes it over. */
static void test_stale_address(void)
{
	struct rmr_request *request;
	struct puppet puppet;
	struct node node;
	int i;

	for (i = 0; i < 3; i++) {
		pair_open(&puppet, &node, NULL);
		peer_kill(&puppet.peer);
		node_expect_disconnect(&node, node.conn);
		if (!on_tcp())
			CHECK_EQ(access(puppet.peer.address, F_OK), 0);
		CHECK_OK(rmr_listener_open(node.device, puppet.peer.address, NULL, &node.listener));
		CHECK_STATUS(rmr_listener_next(node.listener, 1, &request), RMR_TIMEOUT);
		node_close(&node);
	}
}

/* What the listener says when it turns a caller down reaches the caller. */
static void reject_all(struct node *node)
{
	struct rmr_request *request;
	int i;

	node_open(node, NULL);
	node_listen(node);
	for (i = 0; i < 20; i++) {
		CHECK_OK(rmr_listener_next(node->listener, PATIENCE_MS, &request));
		rmr_reject(request, "the house is full of remoras");
	}
	node_close(node);
}

static void test_rejected(void)
{
	struct rmr_conn *conn;
	struct peer peer;
	struct node node = {0};
	int i;

	peer_start(&peer, reject_all, NULL);
	node_open(&node, NULL);
	test_recv(&peer.pipe, TEST_PARENT, peer.address, sizeof(peer.address));
	for (i = 0; i < 20; i++) {
		CHECK_STATUS(rmr_connect(node.queue, peer.address, PATIENCE_MS, NULL, &conn),
			     RMR_REFUSED);
		CHECK_CONTAINS(rmr_error_message(), "the house is full of remoras");
	}
	peer_join(&peer);
	node_close(&node);
}

/* ------------------------------------------------------------------------------------------
 * Deadlines
 */

/* Listens, and takes nobody; ends as the test wants it. */
static void never_answer(struct node *node)
{
	node_open(node, NULL);
	node_listen(node);
	test_await(node->pipe, TEST_CHILD);
	node_close(node);
}

static void test_deadline(void)
{
	static const int timeouts_ms[] = {0, 50, 300};
	struct rmr_conn *conn;
	struct peer peer;
	struct node node = {0};
	uint64_t begin_ns, took_ms;
	size_t i;

	peer_start(&peer, never_answer, NULL);
	node_open(&node, NULL);
	test_recv(&peer.pipe, TEST_PARENT, peer.address, sizeof(peer.address));
	for (i = 0; i < TEST_COUNT(timeouts_ms); i++) {
		begin_ns = clock_now_ns();
		CHECK_STATUS(rmr_connect(node.queue, peer.address, timeouts_ms[i], NULL, &conn),
			     RMR_TIMEOUT);
		took_ms = elapsed_ms(begin_ns);
		CHECK(took_ms + 2 >= (uint64_t)timeouts_ms[i]);
		CHECK(took_ms < (uint64_t)timeouts_ms[i] + 250 * TEST_TIME_FACTOR);
	}
	test_signal(&peer.pipe, TEST_PARENT);
	peer_join(&peer);
	node_close(&node);
}

/* A caller waits for the answer, and the listener closes, or dies: the caller is told at once. */
static void close_soon(struct node *node)
{
	node_open(node, NULL);
	node_listen(node);
	test_sleep_ms(100);
	if (*(bool *)node->arg)
		_exit(0);
	node_close(node);
}

static void test_listener_goes(void)
{
	bool die;
	int i;

	for (i = 0; i < 2; i++) {
		struct rmr_conn *conn;
		struct peer peer;
		struct node node = {0};
		enum rmr_status status;
		uint64_t begin_ns;

		die = i == 1;
		peer_start(&peer, close_soon, &die);
		node_open(&node, NULL);
		test_recv(&peer.pipe, TEST_PARENT, peer.address, sizeof(peer.address));
		begin_ns = clock_now_ns();
		status = rmr_connect(node.queue, peer.address, PATIENCE_MS, NULL, &conn);
		CHECK(status == RMR_REFUSED || status == RMR_DISCONNECTED);
		CHECK(elapsed_ms(begin_ns) < 2000 * TEST_TIME_FACTOR);
		peer_join(&peer);
		node_close(&node);
	}
}

static void test_next_deadline(void)
{
	struct rmr_request *request;
	struct node node = {0};
	char address[128];
	uint64_t begin_ns, took_ms;

	node_open(&node, NULL);
	CHECK_OK(rmr_listener_open(node.device, fixture_address(address), NULL, &node.listener));
	begin_ns = clock_now_ns();
	CHECK_STATUS(rmr_listener_next(node.listener, 0, &request), RMR_TIMEOUT);
	CHECK(elapsed_ms(begin_ns) < 50 * TEST_TIME_FACTOR);
	begin_ns = clock_now_ns();
	CHECK_STATUS(rmr_listener_next(node.listener, 120, &request), RMR_TIMEOUT);
	took_ms = elapsed_ms(begin_ns);
	CHECK(took_ms >= 118 && took_ms < 120 + 250 * TEST_TIME_FACTOR);
	node_close(&node);
}

const struct test connect_tests[] = {
	{"connect_private_data", test_private_data},
	{"connect_addresses", test_addresses},
	{"connect_to_nobody", test_nobody},
	{"connect_bad_addresses", test_bad_addresses},
	{"connect_address_in_use", test_in_use},
	{"connect_address_of_a_dead_listener", test_stale_address},
	{"connect_rejected", test_rejected},
	{"connect_deadline", test_deadline},
	{"connect_listener_goes_away", test_listener_goes},
	{"connect_next_deadline", test_next_deadline},
	{NULL},
};
