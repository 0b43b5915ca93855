/*
 * Others who speak something else, or nothing: as listeners that we call, and as callers that call
 * us. They cost us no more than the deadline, and our other callers nothing.
 *
 * The strangers are plain sockets. shm's address is a Unix socket whose type a stranger has to
 * guess, so both are tried there.
 *
 * What these tests would catch: an answer that is believed before it is checked, a read without a
 * deadline, a listener that serves one caller at a time.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "conformance.h"
#include "puppet.h"

union any_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_un un;
};

/* Reads an address as rmr_listener_address writes it. */
static socklen_t parse_address(const char *text, union any_address *address)
{
	const char *colon = strrchr(text, ':');
	char host[64];

	memset(address, 0, sizeof(*address));
	if (fixture.host == NULL) {
		address->un.sun_family = AF_UNIX;
		snprintf(address->un.sun_path, sizeof(address->un.sun_path), "%s", text);
		return sizeof(address->un);
	}
	CHECK(colon != NULL);
	snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
	if (text[0] == '[') {
		host[strlen(host) - 1] = '\0';
		address->v6.sin6_family = AF_INET6;
		address->v6.sin6_port = htons((uint16_t)atoi(colon + 1));
		CHECK_EQ(inet_pton(AF_INET6, host + 1, &address->v6.sin6_addr), 1);
		return sizeof(address->v6);
	}
	address->v4.sin_family = AF_INET;
	address->v4.sin_port = htons((uint16_t)atoi(colon + 1));
	CHECK_EQ(inet_pton(AF_INET, host, &address->v4.sin_addr), 1);
	return sizeof(address->v4);
}

/* Not everybody can be called by a socket. */
static void need_sockets(void)
{
	if (strncmp(fixture.device, "verbs", 5) == 0 && !strstr(fixture.device, "socket"))
		TEST_SKIP("RDMA CM is no socket; cm_hostile_test has its strangers");
}

/* ------------------------------------------------------------------------------------------
 * Strangers that listen
 */
enum manner {
	SAYS_HTTP,
	SAYS_NOISE,
	SAYS_NOTHING,
	HANGS_UP,
};

struct stranger {
	enum manner manner;
	int type; /* SOCK_STREAM ... */
};

static void say(int fd, enum manner manner)
{
	static const char http[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
	struct test_rng rng;
	char noise[4096];
	ssize_t sent = 0;

	test_rng_init(&rng, 7);
	test_rng_fill(&rng, noise, sizeof(noise));
	if (manner == SAYS_HTTP)
		sent = send(fd, http, sizeof(http) - 1, MSG_NOSIGNAL);
	else if (manner == SAYS_NOISE)
		sent = send(fd, noise, sizeof(noise), MSG_NOSIGNAL);
	else if (manner == HANGS_UP)
		close(fd);
	(void)sent; /* the caller may have hung up already */
}

/* Listens as plain sockets do, at a fresh address that it tells. */
static void stranger_main(struct node *node)
{
	const struct stranger *stranger = node->arg;
	union any_address address;
	char text[128];
	socklen_t length;
	int fd;

	length = parse_address(fixture_address(text), &address);
	fd = socket(address.any.sa_family, stranger->type, 0);
	CHECK(fd >= 0);
	CHECK_EQ(bind(fd, &address.any, length), 0);
	CHECK_EQ(listen(fd, 8), 0);
	if (fixture.host != NULL) {
		CHECK_EQ(getsockname(fd, &address.any, &length), 0);
		/* The port is at the same place in both families. */
		snprintf(text, sizeof(text), "%s:%d", fixture.host, ntohs(address.v4.sin_port));
	}
	test_send(node->pipe, TEST_CHILD, text, sizeof(text));
	for (;;)
		say(accept(fd, NULL, NULL), stranger->manner);
}

static enum rmr_status call_stranger(struct stranger stranger, int timeout_ms, uint64_t *took_ms)
{
	struct rmr_conn *conn;
	struct peer peer;
	struct node node = {0};
	enum rmr_status status;
	uint64_t begin_ns;

	peer_start(&peer, stranger_main, &stranger);
	node_open(&node, NULL);
	test_recv(&peer.pipe, TEST_PARENT, peer.address, sizeof(peer.address));
	begin_ns = clock_now_ns();
	status = rmr_connect(node.queue, peer.address, timeout_ms, NULL, &conn);
	*took_ms = (clock_now_ns() - begin_ns) / 1000000;
	peer_kill(&peer);
	node_close(&node);
	return status;
}

/* Calls strangers of this manner. Those of the wrong socket type may refuse. */
static void check_stranger(enum manner manner, enum rmr_status expected, int timeout_ms)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
	size_t count = fixture.host != NULL ? 1 : 2, i;
	bool seen = false;

	for (i = 0; i < count; i++) {
		struct stranger stranger = {.manner = manner, .type = types[i]};
		uint64_t took_ms;
		enum rmr_status status = call_stranger(stranger, timeout_ms, &took_ms);

		if (status == expected)
			seen = true;
		else if (status != RMR_REFUSED && status != RMR_PROTOCOL)
			TEST_FAIL("manner %d: %s", manner, rmr_status_text(status));
		if (expected == RMR_TIMEOUT && status == expected)
			CHECK(took_ms + 2 >= (uint64_t)timeout_ms);
		CHECK(took_ms < (uint64_t)timeout_ms + 500 * TEST_TIME_FACTOR);
	}
	CHECK(seen || manner == HANGS_UP);
}

static void test_listens(void)
{
	need_sockets();
	check_stranger(SAYS_HTTP, RMR_PROTOCOL, 5000);
	check_stranger(SAYS_NOISE, RMR_PROTOCOL, 5000);
	check_stranger(HANGS_UP, RMR_DISCONNECTED, 5000);
	check_stranger(SAYS_NOTHING, RMR_TIMEOUT, 200);
}

/* ------------------------------------------------------------------------------------------
 * Strangers that call
 */
static int call_plainly(const char *text)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
	union any_address address;
	socklen_t length = parse_address(text, &address);
	size_t i;

	for (i = 0; i < TEST_COUNT(types); i++) {
		int fd = socket(address.any.sa_family, types[i], 0);

		CHECK(fd >= 0);
		if (connect(fd, &address.any, length) == 0)
			return fd;
		close(fd);
	}
	TEST_FAIL("cannot connect a plain socket to %s: %s", text, strerror(errno));
}

/* However many call and say nothing, or nonsense, or hang up: who calls properly is served at
 * once, and connections that exist go on. */
static void test_calls(void)
{
	enum { EACH = 8 };
	struct puppet puppet;
	struct node node, other;
	int fds[4 * EACH], manner, i, count = 0;
	uint64_t begin_ns;

	need_sockets();
	pair_open(&puppet, &node, NULL);
	for (manner = SAYS_HTTP; manner <= HANGS_UP; manner++) {
		for (i = 0; i < EACH; i++) {
			fds[count] = call_plainly(puppet.peer.address);
			say(fds[count++], (enum manner)manner);
		}
	}
	other = node;
	begin_ns = clock_now_ns();
	CHECK_EQ(pair_connect(&puppet, &other), 1);
	CHECK((clock_now_ns() - begin_ns) / 1000000 < 1000 * TEST_TIME_FACTOR);
	node_send(&other, 10, 1);
	puppet_expect_recv(&puppet, 1, 10, 1);
	node_send(&node, 10, 2);
	puppet_expect_recv(&puppet, 0, 10, 2);
	for (i = 0; i < count - EACH; i++) /* the last ones have hung up already */
		close(fds[i]);
	rmr_conn_close(other.conn);
	pair_close(&puppet, &node);
}

/* A silent caller is dropped when its time is over, by whoever waits for callers. */
static void test_silent_is_dropped(void)
{
	struct rmr_listener_options options = {.handshake_timeout_ms = 100};
	struct rmr_request *request;
	struct node node = {0};
	char address[128], byte;
	int fd;

	need_sockets();
	node_open(&node, NULL);
	CHECK_OK(
		rmr_listener_open(node.device, fixture_address(address), &options, &node.listener));
	fd = call_plainly(rmr_listener_address(node.listener));
	CHECK_STATUS(rmr_listener_next(node.listener, 50, &request), RMR_TIMEOUT);
	CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK_STATUS(rmr_listener_next(node.listener, 300, &request), RMR_TIMEOUT);
	CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) != 1);
	CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
	close(fd);
	node_close(&node);
}

const struct test stranger_tests[] = {
	{"stranger_listens", test_listens},
	{"stranger_calls", test_calls},
	{"stranger_is_silent", test_silent_is_dropped},
	{NULL},
};
