/* A client for tests; see caller.h. What should not happen fails the test. */
#include "control/caller.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/inet.h"
#include "harness/test.h"

#define WAIT_MS 20000

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_length, const uint8_t *value, size_t length, uint8_t flags,
		     void *user)
{
	struct call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	(void)flags;
	(void)user;
	if (!call)
		return 0;
	if (name_length == 11 && memcmp(name, "grpc-status", 11) == 0)
		call->status = (int)grpc_status_parse(value, length);
	if (name_length == 12 && memcmp(name, "grpc-message", 12) == 0)
		(void)grpc_percent_decode(value, length, call->text, sizeof(call->text));
	if (name_length == 15 && memcmp(name, "kv-value-length", 15) == 0)
		call->value_length = strtoull((const char *)value, NULL, 10);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes,
		   size_t length, void *user)
{
	struct call *call = nghttp2_session_get_stream_user_data(session, stream);

	(void)flags;
	(void)user;
	CHECK(call && length <= CALL_BYTES - call->response_length);
	memcpy(call->response + call->response_length, bytes, length);
	call->response_length += length;
	return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *user)
{
	struct call *call = nghttp2_session_get_stream_user_data(session, stream);

	(void)user;
	if (call) {
		call->is_done = true;
		call->reset = error;
	}
	return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct caller *caller = user;

	(void)session;
	caller->sees_away |= frame->hd.type == NGHTTP2_GOAWAY;
	return 0;
}

static enum rmr_status try_connect(void *context, const struct addrinfo *at, uint64_t deadline_ns)
{
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)deadline_ns;
	CHECK(fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0);
	inet_keep_alive(fd, WAIT_MS);
	*(int *)context = fd;
	return RMR_OK;
}

void caller_open(struct caller *caller, const char *address)
{
	nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 20},
		{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
	};
	nghttp2_session_callbacks *callbacks;

	*caller = (struct caller){.fd = -1};
	CHECK_OK(inet_try_each(address, clock_deadline_ns(WAIT_MS), try_connect, &caller->fd));
	CHECK_EQ(nghttp2_session_callbacks_new(&callbacks), 0);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	CHECK_EQ(nghttp2_session_client_new(&caller->session, callbacks, caller), 0);
	nghttp2_session_callbacks_del(callbacks);
	CHECK_EQ(nghttp2_submit_settings(caller->session, 0, settings, 2), 0);
	CHECK_EQ(nghttp2_session_set_local_window_size(caller->session, 0, 0, 1 << 24), 0);
}

void caller_close(struct caller *caller)
{
	nghttp2_session_del(caller->session);
	close(caller->fd);
}

static void send_all(struct caller *caller)
{
	const uint8_t *bytes;
	ssize_t length;

	while ((length = nghttp2_session_mem_send(caller->session, &bytes)) > 0) {
		while (length > 0) {
			ssize_t sent = send(caller->fd, bytes, (size_t)length, MSG_NOSIGNAL);

			if (sent <= 0) {
				caller->is_over = true;
				return;
			}
			bytes += sent;
			length -= sent;
		}
	}
	CHECK_EQ(length, 0);
}

void caller_turn(struct caller *caller, int timeout_ms)
{
	struct pollfd wait = {.fd = caller->fd, .events = POLLIN};
	uint8_t bytes[65536];
	ssize_t length;

	send_all(caller);
	if (caller->is_over || poll(&wait, 1, timeout_ms) <= 0)
		return;
	length = recv(caller->fd, bytes, sizeof(bytes), 0);
	if (length <= 0) {
		caller->is_over = true;
		return;
	}
	CHECK_EQ(nghttp2_session_mem_recv(caller->session, bytes, (size_t)length), length);
	send_all(caller);
}

static ssize_t read_request(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room,
			    uint32_t *flags, nghttp2_data_source *source, void *user)
{
	struct call *call = source->ptr;
	size_t length = call->request_length - call->request_sent;

	(void)session;
	(void)stream;
	(void)user;
	if (length > room)
		length = room;
	memcpy(to, call->request + call->request_sent, length);
	call->request_sent += length;
	if (call->request_sent == call->request_length)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)length;
}

static nghttp2_nv header(const char *name, const char *value)
{
	return (nghttp2_nv){.name = (uint8_t *)name,
			    .value = (uint8_t *)value,
			    .namelen = strlen(name),
			    .valuelen = strlen(value)};
}

void call_start(struct caller *caller, struct call *call, const char *path,
		const ProtobufCMessage *request, const struct call_options *options)
{
	static const struct call_options none;
	nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_request};
	size_t length = protobuf_c_message_get_packed_size(request), count = 6;
	nghttp2_nv headers[9] = {
		header(":method", "POST"), header(":scheme", "http"),
		header(":path", path),	   header(":authority", "test"),
		header("te", "trailers"),  header("content-type", "application/grpc"),
	};

	if (!options)
		options = &none;
	if (options->token)
		headers[count++] = header("authorization", options->token);
	if (options->timeout)
		headers[count++] = header("grpc-timeout", options->timeout);
	if (options->encoding)
		headers[count++] = header("grpc-encoding", options->encoding);
	*call = (struct call){.status = -1, .value_length = UINT64_MAX};
	call->request_length = GRPC_PREFIX + length;
	call->request = malloc(call->request_length);
	call->response = malloc(CALL_BYTES);
	CHECK(call->request && call->response);
	grpc_prefix_write(call->request, (uint32_t)length);
	protobuf_c_message_pack(request, call->request + GRPC_PREFIX);
	call->stream =
		nghttp2_submit_request(caller->session, NULL, headers, count, &provider, call);
	CHECK(call->stream > 0);
}

void call_cancel(struct caller *caller, struct call *call)
{
	CHECK_EQ(nghttp2_submit_rst_stream(caller->session, 0, call->stream, NGHTTP2_CANCEL), 0);
	send_all(caller);
}

void call_wait(struct caller *caller, struct call *call)
{
	uint64_t deadline_ns = clock_deadline_ns((int)(WAIT_MS * TEST_TIME_FACTOR));

	while (!call->is_done && !caller->is_over) {
		CHECK(!clock_passed(deadline_ns));
		caller_turn(caller, 100);
	}
}

void call_free(struct call *call)
{
	free(call->request);
	free(call->response);
}

ProtobufCMessage *call_message(struct call *call, const ProtobufCMessageDescriptor *descriptor)
{
	const uint8_t *at = call->response + call->response_used;
	size_t left = call->response_length - call->response_used, length;
	ProtobufCMessage *message;

	if (left < GRPC_PREFIX)
		return NULL;
	length = (size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4];
	if (left - GRPC_PREFIX < length)
		return NULL;
	message = protobuf_c_message_unpack(descriptor, NULL, length, at + GRPC_PREFIX);
	CHECK(message != NULL);
	call->response_used += GRPC_PREFIX + length;
	return message;
}

int caller_ask(struct caller *caller, const char *method, const ProtobufCMessage *request,
	       const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **response)
{
	struct call call;
	char path[128];
	int status;

	snprintf(path, sizeof(path), "/kv_cache.KvCacheService/%s", method);
	call_start(caller, &call, path, request, NULL);
	call_wait(caller, &call);
	CHECK(call.is_done);
	if (response)
		*response = call_message(&call, descriptor);
	status = call.status;
	call_free(&call);
	return status;
}
