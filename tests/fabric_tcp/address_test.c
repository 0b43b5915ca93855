/* Addresses as people write them, and what is done when both ends have the same one. */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include <remora/fabric.h>

#include "fabric/inet.h"
#include "harness/test.h"

static void test_numeric(void)
{
	static const struct {
		const char *given, *formatted;
	} cases[] = {
		{"127.0.0.1:80", "127.0.0.1:80"},   {"[::1]:65535", "[::1]:65535"},
		{"[fe80::1:2]:1", "[fe80::1:2]:1"}, {"[::ffff:10.1.2.3]:9", "10.1.2.3:9"},
		{"1.2.3.4:0", "1.2.3.4:0"},
	};

	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct addrinfo *list;
		char text[64];

		CHECK_OK(inet_resolve(cases[i].given, false, &list));
		inet_format(list->ai_addr, list->ai_addrlen, text, sizeof(text));
		CHECK_STR(text, cases[i].formatted);
		freeaddrinfo(list);
	}
}

static void test_bad(void)
{
	static const char *const cases[] = {
		"localhost",
		"localhost:",
		"localhost:http",
		"localhost:65536",
		"localhost:-1",
		"127.0.0.1: 80",
		"::1:80",
		"[::1]",
		"[::1]80",
		"[::1:80",
		":",
		"[:80",
		"]:80",
		"no such host:1",
		"[]x:1",
		"1.2.3.4:99999999999999999999",
	};

	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct addrinfo *list;

		CHECK_STATUS(inet_resolve(cases[i], false, &list), RMR_BAD_ADDRESS);
	}
}

static void test_wildcard(void)
{
	static const char *const cases[] = {"*:7", ":7"};

	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		struct addrinfo *list;

		CHECK_OK(inet_resolve(cases[i], true, &list));
		freeaddrinfo(list);
	}
}

/* A listener on all addresses tells one that can be connected to, and takes both families. */
static void test_listen_everywhere(void)
{
	static const char *const hosts[] = {"127.0.0.1", "[::1]"};
	struct rmr_device *device;
	struct rmr_listener *listener;
	const char *port;

	CHECK_OK(rmr_device_open("tcp", NULL, &device));
	CHECK_OK(rmr_listener_open(device, "*:0", NULL, &listener));
	port = strrchr(rmr_listener_address(listener), ':');
	CHECK(port != NULL && strcmp(port, ":0") != 0);
	CHECK(strncmp(rmr_listener_address(listener), "0.0.0.0", 7) != 0);
	for (size_t i = 0; i < TEST_COUNT(hosts); i++) {
		struct addrinfo *list;
		char address[64] = "";
		int fd;

		strcat(strcpy(address, hosts[i]), port);
		CHECK_OK(inet_resolve(address, false, &list));
		fd = socket(list->ai_family, SOCK_STREAM, 0);
		if (fd >= 0 || i == 0) /* a machine may lack IPv6 */
			CHECK_EQ(connect(fd, list->ai_addr, list->ai_addrlen), 0);
		freeaddrinfo(list);
	}
	rmr_listener_close(listener);
	rmr_device_close(device);
}

static void get_control(int fd, char name[32])
{
	socklen_t length = 31;

	memset(name, 0, 32);
	CHECK_EQ(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
}

/* Both ends of a connection from one address to another. */
static void connect_from(const char *from, const char *to, int ends[2])
{
	struct sockaddr_in own = {.sin_family = AF_INET}, peer = own;
	socklen_t length = sizeof(peer);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, from, &own.sin_addr);
	inet_pton(AF_INET, to, &peer.sin_addr);
	CHECK_EQ(bind(listener, (struct sockaddr *)&peer, sizeof(peer)), 0);
	CHECK_EQ(listen(listener, 1), 0);
	CHECK_EQ(getsockname(listener, (struct sockaddr *)&peer, &length), 0);
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ(bind(ends[0], (struct sockaddr *)&own, sizeof(own)), 0);
	CHECK_EQ(connect(ends[0], (struct sockaddr *)&peer, sizeof(peer)), 0);
	ends[1] = accept(listener, NULL, NULL);
	CHECK(ends[1] >= 0);
	close(listener);
}

/* Two addresses of this host stand for two hosts here: they are not taken for one. */
static void test_plain_control(void)
{
	static const char *const from[] = {"127.0.0.1", "127.0.0.2"};

	for (size_t i = 0; i < TEST_COUNT(from); i++) {
		int ends[2];

		connect_from(from[i], "127.0.0.1", ends);
		for (int end = 0; end < 2; end++) {
			char before[32], after[32];

			get_control(ends[end], before);
			inet_use_plain_control(ends[end]);
			get_control(ends[end], after);
			CHECK_STR(after, i == 0 ? "reno" : before);
			close(ends[end]);
		}
	}
}

static const struct test tests[] = {
	{"address_numeric", test_numeric},
	{"address_bad", test_bad},
	{"address_wildcard", test_wildcard},
	{"address_listen_everywhere", test_listen_everywhere},
	{"address_plain_control", test_plain_control},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "tcp_address", tests, TEST_COUNT(tests));
}
