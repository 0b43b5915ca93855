/*
 * raw-tcp-pingpong: what a bare TCP socket does, as a yardstick for the tcp provider.
 *
 *	pingpong	the client sends SIZE bytes, the target sends them back
 *	bandwidth	the client sends 8 bytes, the target answers with SIZE bytes; DEPTH requests
 *			are kept in flight, in the manner of READs
 *
 * The socket is as fast as sockets get: TCP_NODELAY, not blocking, and both sides call recv in a
 * loop on a core of their own, so nobody is ever woken. Each side makes one send and (when spinning
 * was in vain) several recv calls a message. The same two buffers are used all the time, so the
 * memory is in cache as it is in the contestants' loops.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define REQUEST_SIZE 8
#define MAX_DEPTH    4096

static void send_all(int fd, const char *bytes, size_t length)
{
	while (length) {
		ssize_t n = send(fd, bytes, length, MSG_NOSIGNAL);

		if (n > 0) {
			bytes += n;
			length -= (size_t)n;
		} else if (errno != EAGAIN && errno != EINTR) {
			pair_die("send");
		}
	}
}

/* Returns how many bytes came; 0 when the peer is gone. */
static size_t recv_some(int fd, char *bytes, size_t room)
{
	for (unsigned turn = 1;; turn++) {
		ssize_t n = recv(fd, bytes, room, 0);

		if (n >= 0)
			return (size_t)n;
		if (errno != EAGAIN && errno != EINTR)
			return 0;
		pair_yield(turn);
	}
}

static bool recv_all(int fd, char *bytes, size_t length)
{
	while (length) {
		size_t n = recv_some(fd, bytes, length);

		if (!n)
			return false;
		bytes += n;
		length -= n;
	}
	return true;
}

static void make_fast(int fd)
{
	int on = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
	    fcntl(fd, F_SETFL, O_NONBLOCK))
		pair_die("socket options");
}

static char *make_buffer(size_t size)
{
	char *buffer = aligned_alloc(4096, (size + 4095) & ~(size_t)4095);

	if (!buffer)
		pair_die("memory");
	memset(buffer, 0x5a, size);
	return buffer;
}

static void serve_pingpong(int fd, char *buffer, size_t size)
{
	while (recv_all(fd, buffer, size))
		send_all(fd, buffer, size);
}

/* Several requests may come in one recv; each is answered in full. */
static void serve_bandwidth(int fd, const char *buffer, size_t size)
{
	char requests[REQUEST_SIZE * MAX_DEPTH];
	size_t have = 0, n;

	while ((n = recv_some(fd, requests, sizeof(requests))) > 0) {
		for (have += n; have >= REQUEST_SIZE; have -= REQUEST_SIZE)
			send_all(fd, buffer, size);
	}
}

static void measure_pingpong(int fd, char *buffer, size_t size, double seconds,
			     struct pair_result *result)
{
	uint64_t start = pair_now_ns(), before = start, now = start;
	uint64_t limit = (uint64_t)(seconds * 1e9);

	pair_result_reset(result);
	while (now - start < limit) {
		send_all(fd, buffer, size);
		if (!recv_all(fd, buffer, size))
			pair_die("the target is gone");
		now = pair_now_ns();
		pair_result_add(result, now - before);
		before = now;
	}
	result->elapsed_ns = now - start;
}

static void measure_bandwidth(int fd, char *buffer, const struct pair_options *options,
			      double seconds, struct pair_result *result)
{
	static const char request[REQUEST_SIZE];
	uint64_t start = pair_now_ns(), now = start, limit = (uint64_t)(seconds * 1e9);
	uint64_t sent_at[MAX_DEPTH] = {0};
	uint64_t sent = 0, done = 0;

	pair_result_reset(result);
	while (now - start < limit || done < sent) {
		while (now - start < limit && sent - done < (uint64_t)options->depth) {
			sent_at[sent++ % MAX_DEPTH] = now;
			send_all(fd, request, sizeof(request));
		}
		if (!recv_all(fd, buffer, options->size))
			pair_die("the target is gone");
		now = pair_now_ns();
		pair_result_add(result, now - sent_at[done++ % MAX_DEPTH]);
	}
	result->elapsed_ns = now - start;
}

static int listen_on_loopback(struct sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*address = (struct sockaddr_in){.sin_family = AF_INET};
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)address, length) || listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)address, &length))
		pair_die("listening on loopback");
	return fd;
}

static void serve(int listener, const struct pair_options *options)
{
	char *buffer = make_buffer(options->size);
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	pair_pin(options->server_cpu);
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		pair_die("accept");
	make_fast(fd);
	if (!strcmp(options->mode, "pingpong"))
		serve_pingpong(fd, buffer, options->size);
	else
		serve_bandwidth(fd, buffer, options->size);
	close(fd);
	free(buffer);
}

static void measure(const struct sockaddr_in *address, const struct pair_options *options)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char *buffer = make_buffer(options->size);
	bool pingpong = !strcmp(options->mode, "pingpong");
	struct pair_result result;

	pair_pin(options->client_cpu);
	pair_result_init(&result);
	if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)))
		pair_die("connect");
	make_fast(fd);
	for (int pass = 0; pass < 2; pass++) {
		double seconds = pass ? options->seconds : options->warmup;

		if (pingpong)
			measure_pingpong(fd, buffer, options->size, seconds, &result);
		else
			measure_bandwidth(fd, buffer, options, seconds, &result);
	}
	pair_result_print(&result, "raw-tcp", options->mode, options);
	close(fd);
	free(buffer);
}

int main(int argc, char **argv)
{
	static const char *const modes[] = {"pingpong", "bandwidth", NULL};
	struct pair_options options;
	struct sockaddr_in address;
	int listener;
	pid_t pid;

	pair_parse(argc, argv, modes, &options);
	listener = listen_on_loopback(&address);
	pid = fork();
	if (pid < 0)
		pair_die("fork");
	if (!pid) {
		serve(listener, &options);
		_exit(0);
	}
	close(listener);
	measure(&address, &options);
	waitpid(pid, NULL, 0);
	return 0;
}
