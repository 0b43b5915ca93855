/* See raw.h. Every wait has a deadline, so that a provider that does not react fails the test. */
#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabric/tcp/limits.h"

#define PATIENCE_MS (5000 * TEST_TIME_FACTOR)

int raw_connect(const char *address)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0);
	CHECK_EQ(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

int raw_listen(char address[64])
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t length = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(fd >= 0);
	CHECK_EQ(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	CHECK_EQ(listen(fd, 8), 0);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&at, &length), 0);
	snprintf(address, 64, "127.0.0.1:%u", ntohs(at.sin_port));
	return fd;
}

struct handshake raw_greeting(enum handshake_kind kind)
{
	return (struct handshake){
		.kind = (uint8_t)kind,
		.recv_size = 8192,
		.depth = RAW_DEPTH,
		.window_messages = 64,
		.window_bytes = TCP_WINDOW_BYTES,
	};
}

int raw_call(const char *address, uint32_t depth)
{
	struct handshake hello = raw_greeting(HANDSHAKE_HELLO), answer;
	uint8_t bytes[HANDSHAKE_SIZE];
	const char *reason;
	int fd = raw_connect(address);

	hello.depth = depth;
	handshake_encode(bytes, &hello);
	raw_send(fd, bytes, sizeof(bytes));
	CHECK(raw_read(fd, bytes, sizeof(bytes)));
	CHECK_EQ(handshake_decode(bytes, sizeof(bytes), &answer, &reason), HANDSHAKE_DONE);
	CHECK_EQ(answer.kind, HANDSHAKE_ACCEPT);
	return fd;
}

void raw_send(int fd, const void *bytes, size_t length)
{
	CHECK_EQ(send(fd, bytes, length, MSG_NOSIGNAL), (ssize_t)length);
}

void raw_frame(int fd, const struct frame *frame)
{
	/* Not by frame_encode, which refuses what is wrong. On a little-endian machine. */
	size_t size = frame_header_size(frame->op);

	raw_send(fd, frame, size ? size : FRAME_HEADER_MIN);
}

bool raw_read(int fd, void *bytes, size_t length)
{
	size_t have = 0;

	while (have < length) {
		struct pollfd pollfd = {.fd = fd, .events = POLLIN};
		ssize_t got;

		if (poll(&pollfd, 1, PATIENCE_MS) != 1)
			TEST_FAIL("nothing came within %d ms", PATIENCE_MS);
		got = recv(fd, (char *)bytes + have, length - have, 0);
		if (got == 0 || (got < 0 && (errno == ECONNRESET || errno == EPIPE)))
			return false;
		CHECK(got > 0);
		have += (size_t)got;
	}
	return true;
}

bool raw_read_frame(int fd, struct frame *frame)
{
	uint8_t bytes[FRAME_HEADER_MAX];
	const char *reason;
	size_t size;

	if (!raw_read(fd, bytes, FRAME_HEADER_MIN))
		return false;
	size = frame_header_size(bytes[0]);
	CHECK(size >= FRAME_HEADER_MIN);
	CHECK(raw_read(fd, bytes + FRAME_HEADER_MIN, size - FRAME_HEADER_MIN));
	CHECK_EQ(frame_decode(bytes, size, frame, &reason), (int)size);
	return true;
}

void raw_expect_end(int fd)
{
	char byte;

	while (raw_read(fd, &byte, 1))
		;
	close(fd);
}

void raw_expect_error(int fd, uint32_t sequence, enum rmr_status status)
{
	struct frame frame;

	do {
		CHECK(raw_read_frame(fd, &frame));
	} while (frame.op == FRAME_ACK);
	CHECK_EQ(frame.op, FRAME_ERROR);
	CHECK_EQ(frame.sequence, sequence);
	CHECK_EQ(-(int)frame.status, (int)status);
	raw_expect_end(fd);
}
