/* Peer: see peer.h. Redis's protocol is RESP 2, memcached's the one made of text lines. */
#include "peer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"

#define REQUEST_EXTRA 128u /* of a request, beside key and value */
#define LINE_MAX_SIZE 512u
#define STATS_ROOM    65536u
#define TIMEOUT_S     60

static const char *const kind_names[] = {"Redis", "memcached"};

static enum rmr_status peer_failed(const struct peer *peer, const char *what)
{
	return error_set(RMR_PROTOCOL, "%s: %s", kind_names[peer->kind], what);
}

/* ------------------------------------------------------------------------------------------
 * Bytes
 */

static void add_bytes(struct peer *peer, const void *bytes, size_t length)
{
	if (peer->out_length + length > peer->out_room)
		abort(); /* the room is for PEER_BATCH requests */
	memcpy(peer->out + peer->out_length, bytes, length);
	peer->out_length += length;
}

__attribute__((format(printf, 2, 3))) static void add_text(struct peer *peer, const char *format,
							   ...)
{
	char text[LINE_MAX_SIZE];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	add_bytes(peer, text, (size_t)length);
}

static enum rmr_status send_all(struct peer *peer)
{
	size_t sent = 0;

	while (sent < peer->out_length) {
		ssize_t n = send(peer->fd, peer->out + sent, peer->out_length - sent, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_errno(RMR_DISCONNECTED, errno, "send to %s",
					   kind_names[peer->kind]);
		sent += (size_t)n;
	}
	peer->out_length = 0;
	return RMR_OK;
}

/* Takes in more, behind what is there and not yet used. */
static enum rmr_status receive_more(struct peer *peer)
{
	ssize_t n;

	memmove(peer->in, peer->in + peer->in_at, peer->in_length - peer->in_at);
	peer->in_length -= peer->in_at;
	peer->in_at = 0;
	if (peer->in_length == peer->in_room)
		return peer_failed(peer, "an answer is longer than expected");
	do
		n = recv(peer->fd, peer->in + peer->in_length, peer->in_room - peer->in_length, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return error_errno(RMR_DISCONNECTED, errno, "receive from %s",
				   kind_names[peer->kind]);
	if (!n)
		return peer_failed(peer, "the server has closed the connection");
	peer->in_length += (size_t)n;
	return RMR_OK;
}

/* The next line of an answer, without its end. Valid until the next call. */
static enum rmr_status take_line(struct peer *peer, const char **line)
{
	for (;;) {
		char *start = peer->in + peer->in_at;
		char *end = memmem(start, peer->in_length - peer->in_at, "\r\n", 2);
		enum rmr_status status;

		if (end) {
			*end = 0;
			peer->in_at += (size_t)(end - start) + 2;
			*line = start;
			return RMR_OK;
		}
		status = receive_more(peer);
		if (status != RMR_OK)
			return status;
	}
}

/* So many bytes and the end of line behind them. */
static enum rmr_status take_bytes(struct peer *peer, size_t length, const char **bytes)
{
	while (peer->in_length - peer->in_at < length + 2) {
		enum rmr_status status = receive_more(peer);

		if (status != RMR_OK)
			return status;
	}
	*bytes = peer->in + peer->in_at;
	peer->in_at += length + 2;
	return RMR_OK;
}

/* ------------------------------------------------------------------------------------------
 * Connection
 */

static enum rmr_status connect_to(struct peer *peer, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval timeout = {.tv_sec = TIMEOUT_S};
	struct ucred owner;
	socklen_t length = sizeof(owner);

	if (strlen(path) >= sizeof(address.sun_path))
		return error_set(RMR_BAD_ADDRESS, "%s: too long for a socket's path", path);
	memcpy(address.sun_path, path, strlen(path));
	peer->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (peer->fd < 0)
		return error_errno(RMR_SYSTEM, errno, "socket");
	if (connect(peer->fd, (struct sockaddr *)&address, sizeof(address)))
		return error_errno(RMR_REFUSED, errno, "connect to %s at %s",
				   kind_names[peer->kind], path);
	setsockopt(peer->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	if (!getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &owner, &length))
		peer->pid = owner.pid;
	return RMR_OK;
}

enum rmr_status peer_open(struct peer *peer, enum peer_kind kind, const char *path,
			  const struct perf_config *config)
{
	enum rmr_status status;

	*peer = (struct peer){
		.kind = kind,
		.fd = -1,
		.key_size = config->key_size,
		.value_size = config->value_size,
	};
	peer->out_room = peer->in_room =
		PEER_BATCH * (config->key_size + config->value_size + REQUEST_EXTRA) + STATS_ROOM;
	peer->value = malloc(config->value_size);
	peer->out = malloc(peer->out_room);
	peer->in = malloc(peer->in_room);
	if (!peer->value || !peer->out || !peer->in) {
		peer_close(peer);
		return error_set(RMR_NO_MEMORY, "buffers");
	}
	value_prepare(peer->value, config->value_size);
	status = connect_to(peer, path);
	if (status != RMR_OK)
		peer_close(peer);
	return status;
}

void peer_close(struct peer *peer)
{
	if (peer->out && peer->fd >= 0)
		close(peer->fd);
	free(peer->value);
	free(peer->out);
	free(peer->in);
	*peer = (struct peer){0};
}

/* ------------------------------------------------------------------------------------------
 * Operations
 */

static void add_set(struct peer *peer, const uint8_t *key, uint64_t number)
{
	if (peer->kind == PEER_REDIS)
		add_text(peer, "*3\r\n$3\r\nSET\r\n$%zu\r\n%.*s\r\n$%zu\r\n", peer->key_size,
			 (int)peer->key_size, (const char *)key, peer->value_size);
	else
		add_text(peer, "set %.*s 0 0 %zu\r\n", (int)peer->key_size, (const char *)key,
			 peer->value_size);
	value_number(peer->value, number);
	add_bytes(peer, peer->value, peer->value_size);
	add_bytes(peer, "\r\n", 2);
}

enum rmr_status peer_set(struct peer *peer, const struct block *block, size_t first, size_t count,
			 const bool *skip)
{
	const char *wanted = peer->kind == PEER_REDIS ? "+OK" : "STORED";
	enum rmr_status status;
	size_t sent = 0;

	for (size_t i = 0; i < count; i++) {
		if (skip && skip[i])
			continue;
		add_set(peer, block_key(block, first + i), block->numbers[first + i]);
		sent++;
	}
	status = send_all(peer);
	while (status == RMR_OK && sent--) {
		const char *line;

		status = take_line(peer, &line);
		if (status == RMR_OK && strcmp(line, wanted))
			status = peer_failed(peer, line);
	}
	return status;
}

enum rmr_status peer_get(struct peer *peer, const struct block *block, size_t first, size_t count,
			 bool *hit)
{
	enum rmr_status status;

	for (size_t i = 0; i < count; i++)
		add_text(peer, "*2\r\n$3\r\nGET\r\n$%zu\r\n%.*s\r\n", peer->key_size,
			 (int)peer->key_size, (const char *)block_key(block, first + i));
	status = send_all(peer);
	for (size_t i = 0; status == RMR_OK && i < count; i++) {
		const char *line, *value;

		status = take_line(peer, &line);
		if (status != RMR_OK)
			break;
		hit[i] = strcmp(line, "$-1") != 0;
		if (!hit[i])
			continue;
		if (line[0] != '$' || strtoull(line + 1, NULL, 10) != peer->value_size)
			return peer_failed(peer, line);
		status = take_bytes(peer, peer->value_size, &value);
		if (status == RMR_OK &&
		    !value_is((const uint8_t *)value, peer->value_size, block->numbers[first + i]))
			status = peer_failed(peer, "a wrong value");
	}
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Statistics
 */

/* Reads "NAMEvalue" of a line into *value, if it is this name. */
static void match_number(const char *line, const char *name, uint64_t *value)
{
	size_t length = strlen(name);

	if (!strncmp(line, name, length))
		*value = strtoull(line + length, NULL, 10);
}

static enum rmr_status redis_usage(struct peer *peer, struct peer_usage *usage)
{
	enum rmr_status status;
	const char *line;
	size_t end, left;

	add_text(peer, "*1\r\n$6\r\nDBSIZE\r\n*2\r\n$4\r\nINFO\r\n$6\r\nmemory\r\n");
	status = send_all(peer);
	if (status == RMR_OK)
		status = take_line(peer, &line);
	if (status != RMR_OK)
		return status;
	if (line[0] != ':')
		return peer_failed(peer, line);
	usage->items = strtoull(line + 1, NULL, 10);
	status = take_line(peer, &line);
	if (status != RMR_OK)
		return status;
	if (line[0] != '$')
		return peer_failed(peer, line);
	for (left = strtoull(line + 1, NULL, 10); left > 0; left -= end) {
		status = take_line(peer, &line);
		if (status != RMR_OK)
			return status;
		match_number(line, "used_memory:", &usage->memory);
		match_number(line, "maxmemory:", &usage->limit);
		end = strlen(line) + 2 < left ? strlen(line) + 2 : left;
	}
	return take_line(peer, &line);
}

/* Lines "STAT name value", until END. */
static enum rmr_status memcached_usage(struct peer *peer, struct peer_usage *usage)
{
	uint64_t pages = 0, table = 0;
	enum rmr_status status;
	int ends = 0;

	add_text(peer, "stats\r\nstats slabs\r\n");
	status = send_all(peer);
	while (status == RMR_OK && ends < 2) {
		const char *line;

		status = take_line(peer, &line);
		if (status != RMR_OK)
			break;
		ends += !strcmp(line, "END");
		match_number(line, "STAT curr_items ", &usage->items);
		match_number(line, "STAT hash_bytes ", &table);
		match_number(line, "STAT total_malloced ", &pages);
	}
	usage->memory = pages + table;
	return status;
}

static uint64_t resident_bytes(int pid)
{
	unsigned long long resident = 0;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	file = fopen(path, "r");
	if (!file)
		return 0;
	if (fscanf(file, "%*u %llu", &resident) != 1)
		resident = 0;
	fclose(file);
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

enum rmr_status peer_usage(struct peer *peer, struct peer_usage *usage)
{
	*usage = (struct peer_usage){.resident = peer->pid ? resident_bytes(peer->pid) : 0};
	return peer->kind == PEER_REDIS ? redis_usage(peer, usage) : memcached_usage(peer, usage);
}
