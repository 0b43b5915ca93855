/*
 * How fast does memcached answer on its Unix socket? The yardstick beside redis-benchmark, which
 * cannot ask memcached; it does as redis-benchmark does, and nothing of Remora is in it.
 *
 *	memcached-loop SOCKET fill|get|set KEYS VALUE_SIZE WINDOW SECONDS
 *
 * Sends WINDOW requests in one write, waits for all of their answers, and so on; keys are drawn at
 * random from key:000000000000 on. `fill` puts each key once, in order. Prints requests a second.
 * An answer other than the wanted one, a miss too, ends it with exit code 1.
 */
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define KEY_LENGTH 16
#define TEXT_MAX   64

static char *request, *reply;
static size_t value_size, reply_length;
static char expected[TEXT_MAX]; /* what an answer begins with */

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* xorshift64* */
static uint64_t draw(uint64_t limit)
{
	static uint64_t state = 88172645463325252u;

	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (uint64_t)((unsigned __int128)(state * 2685821657736338717u) * limit >> 64);
}

static int open_socket(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		err(1, "%s", path);
	return fd;
}

/* Writes one request behind the others, and returns its end. */
static char *add_request(char *at, int is_get, uint64_t number)
{
	if (is_get)
		return at + sprintf(at, "get key:%012llu\r\n", (unsigned long long)number);
	at += sprintf(at, "set key:%012llu 0 0 %zu\r\n", (unsigned long long)number, value_size);
	memset(at, 'x', value_size);
	memcpy(at + value_size, "\r\n", 2);
	return at + value_size + 2;
}

/* All answers to one window have the same length, known before. */
static void exchange(int fd, const char *end, int is_get, unsigned window)
{
	size_t left = (size_t)(end - request), have = 0;

	for (const char *at = request; left;) {
		ssize_t sent = write(fd, at, left);

		if (sent <= 0)
			err(1, "write");
		at += sent;
		left -= (size_t)sent;
	}
	while (have < window * reply_length) {
		ssize_t got = read(fd, reply + have, window * reply_length - have);

		if (got <= 0)
			errx(1, "an answer of another length: %.40s", reply);
		have += (size_t)got;
		/* A miss is shorter, and would be waited for in vain. */
		if (have >= 5 && strncmp(reply, expected, 5))
			errx(1, "unexpected: %.40s", reply);
	}
	for (unsigned i = 0; i < window; i++)
		if (strncmp(reply + i * reply_length, expected, 5) ||
		    strncmp(reply + (i + 1) * reply_length - 2 - (is_get ? 3 : 6),
			    is_get ? "END" : "STORED", is_get ? 3 : 6))
			errx(1, "unexpected answer");
}

int main(int argc, char **argv)
{
	uint64_t keys, done = 0;
	unsigned window;
	double seconds, start;
	int fd, is_get, is_fill;

	if (argc != 7)
		errx(2, "usage: memcached-loop SOCKET fill|get|set KEYS VALUE_SIZE WINDOW SECONDS");
	is_get = !strcmp(argv[2], "get");
	is_fill = !strcmp(argv[2], "fill");
	keys = strtoull(argv[3], NULL, 10);
	value_size = strtoull(argv[4], NULL, 10);
	window = (unsigned)strtoul(argv[5], NULL, 10);
	seconds = strtod(argv[6], NULL);
	if (!keys || !window || (!is_get && !is_fill && strcmp(argv[2], "set")))
		errx(2, "no such thing as %s of %s keys", argv[2], argv[3]);
	/* "VALUE key:... 0 64\r\n", the value, "\r\nEND\r\n"; or "STORED\r\n". */
	reply_length = is_get ? (size_t)snprintf(NULL, 0, "VALUE %*s 0 %zu\r\n\r\nEND\r\n",
						 KEY_LENGTH, "", value_size) +
					value_size
			      : strlen("STORED\r\n");
	strcpy(expected, is_get ? "VALUE" : "STORED");
	request = malloc(window * (value_size + TEXT_MAX));
	reply = calloc(window, reply_length + 1);
	if (!request || !reply)
		errx(1, "no memory");
	fd = open_socket(argv[1]);
	start = now();
	do {
		unsigned count = is_fill && keys - done < window ? (unsigned)(keys - done) : window;
		char *end = request;

		for (unsigned i = 0; i < count; i++)
			end = add_request(end, is_get, is_fill ? done + i : draw(keys));
		exchange(fd, end, is_get, count);
		done += count;
	} while (is_fill ? done < keys : now() - start < seconds);
	printf("%.1f\n", (double)done / (now() - start));
	return 0;
}
