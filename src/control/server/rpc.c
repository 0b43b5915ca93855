/*
 * Calls: a stream of HTTP/2 as a call of gRPC.
 *
 * The request comes first. Its headers decide whether it is looked at at all; what is wrong with
 * them is answered at once, and what follows is thrown away. A method that takes one message gets
 * it when the client has ended its side; one that takes a stream gets each when it is complete.
 *
 * The answer goes through `output`, which nghttp2 asks for more whenever the client has room: so
 * nothing is made that nobody takes. A method that streams is asked for more when output is empty.
 * The status goes into the trailers behind it, or, without any output, takes the headers' place.
 *
 * A call belongs to its stream: it is destroyed when nghttp2 says that the stream is closed, or
 * with the connection, and never earlier. So whatever a method does, the call is still there after
 * it.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/server/internal.h"

#define OUTPUT_LEAST 1024u

#define NV_FLAGS (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)
/* Of texts that stay where they are. */
#define CONSTANT_NV(name_text, value_text)                                                         \
	{                                                                                          \
		.name = (uint8_t *)(name_text), .value = (uint8_t *)(value_text),                  \
		.namelen = sizeof(name_text) - 1, .valuelen = sizeof(value_text) - 1,              \
		.flags = NV_FLAGS                                                                  \
	}

/* ------------------------------------------------------------------------------------------
 * Life
 */

struct rpc *rpc_create(struct h2_conn *conn, int32_t stream_id)
{
	struct kv_control_server *control = conn->control;
	struct rpc *call = control->spare_calls;

	if (call) {
		control->spare_calls = call->next_spare;
		control->spare_count--;
	} else {
		call = malloc(sizeof(*call));
		if (!call)
			return NULL;
	}
	/* All but the reader's bytes. */
	memset(call, 0, offsetof(struct rpc, reader));
	call->conn = conn;
	call->control = control;
	call->stream_id = stream_id;
	call->deadline_ns = CLOCK_NEVER;
	call->value_length = UINT64_MAX;
	call->heard_ns = clock_quick_ns();
	grpc_reader_init(&call->reader, control->options.max_message, &conn->budget);
	list_add_tail(&conn->calls, &call->link);
	conn->call_count++;
	return call;
}

static void output_free(struct rpc *call)
{
	if (!call->output.bytes)
		return;
	grpc_budget_give(&call->conn->budget, call->output.room);
	free(call->output.bytes);
	call->output = (struct rpc_output){0};
}

/* Nobody waits for the answer any more. */
static void cancel(struct rpc *call)
{
	if (!call->is_deferred)
		return;
	call->is_deferred = false;
	call->cancelled(call, call->context);
}

void rpc_destroy(struct rpc *call)
{
	struct kv_control_server *control = call->control;

	cancel(call);
	if (call->done)
		call->done(call->context);
	deadlines_remove(&control->deadlines, call);
	grpc_reader_fini(&call->reader);
	output_free(call);
	if (!call->is_finished)
		figure_add(&control->figures.statuses[GRPC_CANCELLED], 1);
	list_remove(&call->link);
	call->conn->call_count--;
	h2_touch(call->conn);
	if (control->spare_count < CALLS_SPARE) {
		call->next_spare = control->spare_calls;
		control->spare_calls = call;
		control->spare_count++;
	} else {
		free(call);
	}
}

/* ------------------------------------------------------------------------------------------
 * The answer
 */

/* Submits the trailers, or headers that are trailers as well. */
static void submit_status(struct rpc *call, bool is_all)
{
	char status[8], length[24], text[3 * CONTROL_TEXT];
	nghttp2_nv nv[6];
	size_t count = 0;
	nghttp2_session *session = call->conn->session;

	if (is_all) {
		nv[count++] = (nghttp2_nv)CONSTANT_NV(":status", "200");
		nv[count++] = (nghttp2_nv)CONSTANT_NV("content-type", "application/grpc");
		if (call->status == GRPC_UNIMPLEMENTED)
			nv[count++] = (nghttp2_nv)CONSTANT_NV("grpc-accept-encoding", "identity");
	}
	if (call->status == GRPC_OK) {
		nv[count++] = (nghttp2_nv)CONSTANT_NV("grpc-status", "0");
	} else {
		nv[count] = (nghttp2_nv)CONSTANT_NV("grpc-status", "");
		nv[count].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
		nv[count].value = (uint8_t *)status;
		nv[count++].valuelen =
			(size_t)snprintf(status, sizeof(status), "%d", (int)call->status);
		nv[count] = (nghttp2_nv)CONSTANT_NV("grpc-message", "");
		nv[count].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
		nv[count].value = (uint8_t *)text;
		nv[count++].valuelen = grpc_percent_encode(call->text, text, sizeof(text));
	}
	if (call->value_length != UINT64_MAX) {
		nv[count] = (nghttp2_nv)CONSTANT_NV("kv-value-length", "");
		nv[count].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
		nv[count].value = (uint8_t *)length;
		nv[count++].valuelen =
			(size_t)snprintf(length, sizeof(length), "%" PRIu64, call->value_length);
	}
	if (is_all)
		(void)nghttp2_submit_response(session, call->stream_id, nv, count, NULL);
	else
		(void)nghttp2_submit_trailer(session, call->stream_id, nv, count);
}

/* Each connection gets so much of a turn, and no more. */
static void ask_for_more(struct rpc *call)
{
	call->output.begin = call->output.end = 0;
	if (!call->conn->mores_left) {
		call->is_hungry = true;
		return;
	}
	call->conn->mores_left--;
	call->more(call, call->context);
}

/* nghttp2 wants up to `room` bytes of the answer. */
static ssize_t read_output(nghttp2_session *session, int32_t stream_id, uint8_t *to, size_t room,
			   uint32_t *flags, nghttp2_data_source *source, void *user)
{
	struct rpc *call = source->ptr;
	struct rpc_output *output = &call->output;
	size_t length;

	(void)session;
	(void)stream_id;
	(void)user;
	if (output->begin == output->end && !call->is_finished && call->more)
		ask_for_more(call);
	length = output->end - output->begin;
	if (length > room)
		length = room;
	if (length) {
		memcpy(to, output->bytes + output->begin, length);
		output->begin += length;
		call->heard_ns = clock_quick_ns();
	}
	if (output->begin == output->end && call->is_finished) {
		output_free(call);
		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		submit_status(call, false);
	} else if (!length) {
		call->is_paused = true;
		if (call->is_hungry)
			h2_hunger(call->conn);
		return NGHTTP2_ERR_DEFERRED;
	}
	return (ssize_t)length;
}

static void submit_headers(struct rpc *call)
{
	static const nghttp2_nv headers[] = {
		CONSTANT_NV(":status", "200"),
		CONSTANT_NV("content-type", "application/grpc"),
	};
	nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_output};

	call->has_headers = true;
	(void)nghttp2_submit_response(call->conn->session, call->stream_id, headers, 2, &provider);
	h2_touch(call->conn);
}

/* There is something new for the client. */
static void go_on(struct rpc *call)
{
	if (!call->has_headers) {
		submit_headers(call);
	} else if (call->is_paused) {
		call->is_paused = false;
		(void)nghttp2_session_resume_data(call->conn->session, call->stream_id);
		h2_touch(call->conn);
	}
}

void rpc_resume(struct rpc *call)
{
	call->is_hungry = false;
	go_on(call);
}

void rpc_ask_again(struct rpc *call)
{
	call->is_hungry = true;
}

static bool make_room(struct rpc *call, size_t needed)
{
	struct rpc_output *output = &call->output;
	size_t room = output->room ? output->room : OUTPUT_LEAST;
	uint8_t *bytes;

	if (needed <= output->room - output->end)
		return true;
	while (room - output->end < needed)
		room *= 2;
	if (!grpc_budget_take(&call->conn->budget, room - output->room))
		return false;
	bytes = realloc(output->bytes, room);
	if (!bytes) {
		grpc_budget_give(&call->conn->budget, room - output->room);
		return false;
	}
	output->bytes = bytes;
	output->room = room;
	return true;
}

bool rpc_send(struct rpc *call, const ProtobufCMessage *message)
{
	size_t length = protobuf_c_message_get_packed_size(message);
	uint8_t *to;

	if (length > call->control->options.max_message) {
		rpc_finish(call, GRPC_RESOURCE_EXHAUSTED,
			   "the answer has %zu bytes, and a message at most %u; let the value be "
			   "pushed, or start kv-server with a higher --grpc-max-message",
			   length, call->control->options.max_message);
		return false;
	}
	if (!make_room(call, GRPC_PREFIX + length)) {
		rpc_finish(call, GRPC_RESOURCE_EXHAUSTED,
			   "too many answers wait to be taken; try again later");
		return false;
	}
	to = call->output.bytes + call->output.end;
	grpc_prefix_write(to, (uint32_t)length);
	(void)protobuf_c_message_pack(message, to + GRPC_PREFIX);
	call->output.end += GRPC_PREFIX + length;
	/* A unary answer goes with its status, in one piece. */
	if (call->method->takes_stream || call->more)
		go_on(call);
	return true;
}

__attribute__((format(printf, 3, 0))) static void finish(struct rpc *call, enum grpc_status status,
							 const char *format, va_list arguments)
{
	/* The one who answered first was right. */
	if (call->is_finished)
		return;
	call->is_finished = true;
	call->is_deferred = false;
	call->status = status;
	call->text[0] = '\0';
	if (status != GRPC_OK)
		vsnprintf(call->text, sizeof(call->text), format, arguments);
	deadlines_remove(&call->control->deadlines, call);
	figure_add(&call->control->figures.statuses[status], 1);
	if (call->has_headers || call->output.end > call->output.begin) {
		go_on(call);
		return;
	}
	call->has_headers = true;
	submit_status(call, true);
	h2_touch(call->conn);
}

void rpc_finish(struct rpc *call, enum grpc_status status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	finish(call, status, format, arguments);
	va_end(arguments);
}

void rpc_reply(struct rpc *call, const ProtobufCMessage *response, enum grpc_status status,
	       const char *format, ...)
{
	va_list arguments;

	if (response && !rpc_send(call, response))
		return;
	va_start(arguments, format);
	finish(call, status, format, arguments);
	va_end(arguments);
}

void rpc_defer(struct rpc *call, void (*cancelled)(struct rpc *call, void *context), void *context)
{
	call->is_deferred = true;
	call->cancelled = cancelled;
	call->context = context;
}

void rpc_stream(struct rpc *call, void (*more)(struct rpc *call, void *context),
		void (*done)(void *context), void *context)
{
	call->more = more;
	call->done = done;
	call->context = context;
	go_on(call);
}

void rpc_tell_length(struct rpc *call, uint64_t length)
{
	call->value_length = length;
}

void rpc_expire(struct rpc *call)
{
	cancel(call);
	/* Output that nobody took in time is dropped: the status is what counts now. */
	if (!call->has_headers)
		output_free(call);
	else
		call->output.end = call->output.begin;
	rpc_finish(call, GRPC_DEADLINE_EXCEEDED, "the deadline has passed");
}

/* ------------------------------------------------------------------------------------------
 * The request
 */

/* An answer of HTTP, to what is no gRPC. */
static void submit_http_error(struct rpc *call, const char status[4])
{
	nghttp2_nv header = CONSTANT_NV(":status", "");

	header.flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
	header.value = (uint8_t *)status;
	header.valuelen = 3;
	call->is_finished = call->has_headers = true;
	(void)nghttp2_submit_response(call->conn->session, call->stream_id, &header, 1, NULL);
	h2_touch(call->conn);
}

/* Whether the call may go on. */
static bool check_access(struct rpc *call)
{
	enum method_need needs = call->method->needs;

	if (needs == NEEDS_NOTHING)
		return true;
	if (!call->saw_token)
		call->access = access_check(call->control, NULL, 0, &call->may_write);
	if (call->access != GRPC_OK) {
		rpc_finish(call, call->access,
			   call->saw_token ? "the token is not the server's key"
					   : "send the server's key: 'authorization: Bearer KEY'");
		return false;
	}
	if (needs == NEEDS_WRITE && !call->may_write) {
		rpc_finish(call, GRPC_PERMISSION_DENIED, "this key may only read");
		return false;
	}
	return true;
}

static void begin_deadline(struct rpc *call)
{
	uint64_t now_ns;

	if (!call->has_timeout)
		return;
	now_ns = clock_now_ns();
	call->deadline_ns = now_ns + call->timeout_ns;
	if (!call->timeout_ns)
		rpc_expire(call);
	else if (!deadlines_add(&call->control->deadlines, call))
		rpc_finish(call, GRPC_RESOURCE_EXHAUSTED, "no memory for another deadline");
}

void rpc_headers_done(struct rpc *call, bool is_ended)
{
	call->is_ended = is_ended;
	if (!call->saw_post)
		submit_http_error(call, "405");
	else if (!call->saw_type)
		submit_http_error(call, "415");
	else if (call->early != GRPC_OK)
		rpc_finish(call, call->early, "%s", call->early_text);
	else if (!call->method)
		rpc_finish(call, GRPC_UNIMPLEMENTED, "there is no such method");
	else if (call->control->is_stopping)
		rpc_finish(call, GRPC_UNAVAILABLE, "the server stops");
	else if (check_access(call))
		begin_deadline(call);
	if (call->is_finished)
		return;
	figure_add(&call->control->figures.calls[rpc_method_number(call->method)], 1);
	if (is_ended)
		rpc_ended(call);
}

static void run(struct rpc *call)
{
	struct kv_control_server *control = call->control;
	const ProtobufCMessageDescriptor *descriptor = call->method->request;
	ProtobufCMessage *request = protobuf_c_message_unpack(
		descriptor, &control->scratch.allocator, call->reader.used, call->reader.bytes);

	/* The bytes are needed no more; the call may stay for long. */
	grpc_reader_next(&call->reader);
	if (request)
		call->method->run(call, request);
	else
		rpc_finish(call, GRPC_INVALID_ARGUMENT, "the request is no %s", descriptor->name);
	scratch_reset(&control->scratch);
}

static void complain(struct rpc *call, enum grpc_feed found)
{
	switch (found) {
	case GRPC_FEED_TOO_LONG:
		rpc_finish(call, GRPC_RESOURCE_EXHAUSTED,
			   "the request has %u bytes, and a message at most %u; let the value be "
			   "pulled, or start kv-server with a higher --grpc-max-message",
			   call->reader.length, call->control->options.max_message);
		break;
	case GRPC_FEED_COMPRESSED:
		rpc_finish(call, GRPC_UNIMPLEMENTED,
			   "the request is compressed, which is not understood here");
		break;
	case GRPC_FEED_NO_MEMORY:
		rpc_finish(call, GRPC_RESOURCE_EXHAUSTED,
			   "too many requests are on their way; try again later");
		break;
	default:
		rpc_finish(call, GRPC_INTERNAL, "the request is no message of gRPC");
		break;
	}
	grpc_reader_next(&call->reader);
}

void rpc_data(struct rpc *call, const uint8_t *bytes, size_t length)
{
	call->heard_ns = clock_quick_ns();
	while (length && !call->is_finished) {
		size_t taken;
		enum grpc_feed found;

		if (call->has_message) {
			rpc_finish(call, GRPC_INTERNAL, "the method takes one message");
			return;
		}
		found = grpc_reader_feed(&call->reader, bytes, length, &taken);
		bytes += taken;
		length -= taken;
		if (found == GRPC_FEED_MESSAGE && call->method->takes_stream)
			run(call);
		else if (found == GRPC_FEED_MESSAGE)
			call->has_message = true;
		else if (found != GRPC_FEED_MORE)
			complain(call, found);
	}
}

void rpc_ended(struct rpc *call)
{
	call->is_ended = true;
	if (call->is_finished)
		return;
	if (call->method->takes_stream && !grpc_reader_is_inside(&call->reader))
		call->method->run(call, NULL);
	else if (call->has_message)
		run(call);
	else
		rpc_finish(call, GRPC_INTERNAL, "the request ends before its message does");
}
