/*
 * Fuzzes the way of bytes from a client's socket to the methods of the gRPC service: HTTP/2 frames,
 * headers, gRPC's framing, protobuf messages, and the store behind them. The fuzzer is the loop of
 * the control server itself: one connection over a pair of sockets for each input, turned until all
 * of it is eaten. Whatever it is, the key of a witness keeps its value, and all memory comes back.
 *
 * The input's first byte chooses:
 *
 *	0 ..  99	what follows the client's preface and SETTINGS, as raw bytes
 *	100 .. 119	raw bytes from the first one on
 *	120 ..		records: a method, flags, a length of two bytes, and so many bytes as the
 *			body of that call (with a right prefix, or as they are)
 */
#include <remora/control_server.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "control/server/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STREAM_MOST 65536u
#define TURNS_MOST  64
#define RAW_GREETED 100
#define RAW_BARE    120

enum record_flag {
	NO_PREFIX = 1 << 0, /* the body is framed by the input itself */
	NO_END = 1 << 1,
	IN_PIECES = 1 << 2, /* each byte in a DATA frame of its own */
	RESET = 1 << 3,	    /* behind it */
	TIMEOUT = 1 << 4,
	TOKEN = 1 << 5,
	GZIP = 1 << 6, /* the body is a gzip, the input says */
};

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static kv_server_t *server;
static kv_control_server_t *control;
static uint8_t secret_key[24]; /* of the witness; no input can hit it */

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void leave(void)
{
	control_close(control);
	kv_control_server_destroy(control);
	kv_server_destroy(server);
}

static void put_witness(void)
{
	struct store_put put = {.key = secret_key,
				.key_length = sizeof(secret_key),
				.value = "unharmed",
				.value_length = 8};

	require(store_put(control->worker, &put, NULL) == STORE_OK);
}

static void check_witness(void)
{
	struct store_info info;
	char value[8];

	/* It may have been evicted, but then it is not there at all. */
	if (store_get(control->worker, secret_key, sizeof(secret_key), value, sizeof(value),
		      &info) != STORE_OK)
		put_witness();
	else
		require(info.value_length == 8 && memcmp(value, "unharmed", 8) == 0);
}

static void set_up(void)
{
	kv_server_options_t server_options = {.listen = "tcp", .port = -1, .memory = 16 << 20};
	kv_control_server_options_t options = {
		.address = "0", .max_message = 65536, .max_streams = 16, .no_data_plane = true};

	log_set_level(LOG_LEVEL_ERROR);
	require(kv_server_create(&server_options, &server) == KV_OK);
	require(kv_control_server_create(server, &options, &control) == KV_OK);
	require(control_open(control) == KV_OK);
	require(getrandom(secret_key, sizeof(secret_key), 0) == sizeof(secret_key));
	put_witness();
	atexit(leave);
}

/* ------------------------------------------------------------------------------------------
 * From records to frames
 */

struct bytes {
	uint8_t at[STREAM_MOST];
	size_t used;
};

static void add(struct bytes *to, const void *bytes, size_t length)
{
	if (length > sizeof(to->at) - to->used)
		length = sizeof(to->at) - to->used;
	memcpy(to->at + to->used, bytes, length);
	to->used += length;
}

static void add_frame(struct bytes *to, uint8_t type, uint8_t flags, uint32_t stream,
		      const void *payload, size_t length)
{
	uint8_t header[9] = {
		(uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length, type, flags, 0,
		(uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};

	add(to, header, sizeof(header));
	add(to, payload, length);
}

/* A header in the plainest form of HPACK. */
static void add_header(struct bytes *to, const char *name, const char *value)
{
	uint8_t length = (uint8_t)strlen(name);

	add(to, "", 1);
	add(to, &length, 1);
	add(to, name, length);
	length = (uint8_t)strlen(value);
	add(to, &length, 1);
	add(to, value, length);
}

static void add_headers(struct bytes *to, uint32_t stream, const char *path, uint8_t flags)
{
	static struct bytes block;

	block.used = 0;
	add_header(&block, ":method", "POST");
	add_header(&block, ":scheme", "http");
	add_header(&block, ":path", path);
	add_header(&block, "content-type", "application/grpc");
	if (flags & TIMEOUT)
		add_header(&block, "grpc-timeout", "1n");
	if (flags & GZIP) {
		add_header(&block, "grpc-encoding", "gzip");
		add_header(&block, "grpc-accept-encoding", "identity,gzip");
	}
	if (flags & TOKEN)
		add_header(&block, "authorization", "Bearer nothing");
	add_frame(to, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, stream, block.at, block.used);
}

static void add_body(struct bytes *to, uint32_t stream, const uint8_t *body, size_t length,
		     uint8_t flags)
{
	uint8_t prefix[GRPC_PREFIX];

	grpc_prefix_write(prefix, (uint32_t)length);
	prefix[0] = flags & GZIP ? 1 : 0;
	if (!(flags & NO_PREFIX))
		add_frame(to, NGHTTP2_DATA, 0, stream, prefix, sizeof(prefix));
	for (size_t i = 0; flags & IN_PIECES && i < length; i++)
		add_frame(to, NGHTTP2_DATA, 0, stream, body + i, 1);
	if (!(flags & IN_PIECES))
		add_frame(to, NGHTTP2_DATA, 0, stream, body, length);
	if (!(flags & NO_END))
		add_frame(to, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, stream, "", 0);
	if (flags & RESET)
		add_frame(to, NGHTTP2_RST_STREAM, 0, stream, "\0\0\0\x08", 4);
}

static void add_records(struct bytes *to, const uint8_t *data, size_t size)
{
	for (uint32_t stream = 1; size >= 4; stream += 2) {
		const struct rpc_method *method = &rpc_methods[data[0] % rpc_method_count];
		size_t length = (size_t)data[2] << 8 | data[3];

		if (length > size - 4)
			length = size - 4;
		/* Frames have their limit. */
		if (length > 16384)
			length = 16384;
		add_headers(to, stream, method->path, data[1]);
		add_body(to, stream, data + 4, length, data[1]);
		data += 4 + length;
		size -= 4 + length;
	}
}

static void make_stream(struct bytes *to, const uint8_t *data, size_t size)
{
	to->used = 0;
	if (data[0] >= RAW_GREETED && data[0] < RAW_BARE) {
		add(to, data + 1, size - 1);
		return;
	}
	add(to, preface, sizeof(preface) - 1);
	add_frame(to, NGHTTP2_SETTINGS, 0, 0, "", 0);
	if (data[0] < RAW_GREETED)
		add(to, data + 1, size - 1);
	else
		add_records(to, data + 1, size - 1);
}

/* ------------------------------------------------------------------------------------------
 * One input
 */

/* What the server says is taken, and not looked at. */
static void drain(int fd)
{
	static uint8_t bytes[65536];

	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct bytes stream;
	int ends[2];

	if (!server)
		set_up();
	if (size < 2)
		return 0;
	make_stream(&stream, data, size);
	require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
	h2_open(control, ends[0], "fuzz", true);
	/* The pair's buffers hold more than the longest input. */
	require(send(ends[1], stream.at, stream.used, MSG_NOSIGNAL) == (ssize_t)stream.used);
	for (int i = 0; i < TURNS_MOST && loop_turn(control, 0); i++)
		drain(ends[1]);
	close(ends[1]);
	while (control->conn_count)
		(void)loop_turn(control, 0);
	check_witness();
	require(control->budget.used == 0 && control->deadlines.count == 0);
	require(list_is_empty(&control->watchers));
	return 0;
}
