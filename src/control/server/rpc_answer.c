/*
 * Answers: what a call sends back.
 *
 * An answer goes through `output`, which nghttp2 asks for more whenever the client has room: so
 * nothing is made before the client takes what was made before it. A method that streams is asked
 * for more when output is empty. The status goes into the trailers behind it, or, without any
 * output, takes the headers' place.
 *
 * Messages of a client that compresses its requests are compressed, too, if they are long enough to
 * gain by it and short enough not to keep other calls waiting.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/gzip.h"
#include "control/server/internal.h"

#define OUTPUT_LEAST 1024u
#define GZIP_LEAST   512u	  /* shorter messages gain nothing */
#define GZIP_MOST    (256u << 10) /* longer ones take milliseconds */

#define NV_FLAGS (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)
/* Of texts that stay where they are. */
#define CONSTANT_NV(name_text, value_text)                                                         \
	{                                                                                          \
		.name = (uint8_t *)(name_text), .value = (uint8_t *)(value_text),                  \
		.namelen = sizeof(name_text) - 1, .valuelen = sizeof(value_text) - 1,              \
		.flags = NV_FLAGS                                                                  \
	}

void rpc_output_free(struct rpc *call)
{
	if (!call->output.bytes)
		return;
	grpc_budget_give(&call->conn->budget, call->output.room);
	free(call->output.bytes);
	call->output = (struct rpc_output){0};
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
			nv[count++] =
				(nghttp2_nv)CONSTANT_NV("grpc-accept-encoding", "identity,gzip");
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
		rpc_output_free(call);
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

static bool packs_answers(const struct rpc *call)
{
	return call->accepts_gzip && call->reader.takes_compressed;
}

static void submit_headers(struct rpc *call)
{
	static const nghttp2_nv headers[] = {
		CONSTANT_NV(":status", "200"),
		CONSTANT_NV("content-type", "application/grpc"),
		/* Only for clients that compress. */
		CONSTANT_NV("grpc-accept-encoding", "identity,gzip"),
		CONSTANT_NV("grpc-encoding", "gzip"),
	};
	nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_output};
	size_t count = packs_answers(call) ? 4 : call->reader.takes_compressed ? 3 : 2;

	call->has_headers = true;
	(void)nghttp2_submit_response(call->conn->session, call->stream_id, headers, count,
				      &provider);
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

/* Packs a message in place, if that makes it shorter by an eighth. Returns its length. */
static size_t pack_in_place(struct rpc *call, uint8_t *prefix, size_t length)
{
	struct kv_control_server *control = call->control;
	size_t packed;

	if (!control->packer) {
		control->packer = gzip_packer_create();
		control->packed = malloc(GZIP_MOST);
	}
	if (!control->packer || !control->packed)
		return length;
	packed = gzip_pack(control->packer, prefix + GRPC_PREFIX, (uint32_t)length, control->packed,
			   (uint32_t)(length - length / 8));
	if (!packed)
		return length;
	memcpy(prefix + GRPC_PREFIX, control->packed, packed);
	grpc_prefix_write(prefix, (uint32_t)packed);
	prefix[0] = 1;
	return packed;
}

bool rpc_send(struct rpc *call, const ProtobufCMessage *message)
{
	size_t length = protobuf_c_message_get_packed_size(message);
	uint8_t *to;

	if (length > call->control->options.max_message) {
		rpc_finish(call, GRPC_RESOURCE_EXHAUSTED,
			   "the answer has %zu bytes, and a message at most %u; get long values by "
			   "GetStream, or start kv-server with a higher --grpc-max-message",
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
	if (packs_answers(call) && length >= GZIP_LEAST && length <= GZIP_MOST)
		length = pack_in_place(call, to, length);
	call->output.end += GRPC_PREFIX + length;
	/* A unary answer goes with its status, in one piece. */
	if (call->method->takes_stream || call->more)
		go_on(call);
	return true;
}

__attribute__((format(printf, 3, 0))) static void finish(struct rpc *call, enum grpc_status status,
							 const char *format, va_list arguments)
{
	/* The first answer counts. */
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
	if (call->begun_ns && call->method->op)
		server_count_request(call->control->server, call->method->op,
				     clock_quick_ns() - call->begun_ns);
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

void rpc_attach(struct rpc *call, void (*done)(void *context), void *context)
{
	call->done = done;
	call->context = context;
}

bool rpc_limit(struct rpc *call, uint64_t limit_ns, const char *text)
{
	uint64_t limit = clock_now_ns() + limit_ns;

	if (limit >= call->deadline_ns)
		return true;
	deadlines_remove(&call->control->deadlines, call);
	call->deadline_ns = limit;
	call->late_text = text;
	if (deadlines_add(&call->control->deadlines, call))
		return true;
	rpc_finish(call, GRPC_RESOURCE_EXHAUSTED, "no memory for another deadline");
	return false;
}

void rpc_tell_length(struct rpc *call, uint64_t length)
{
	call->value_length = length;
}

void rpc_end_early(struct rpc *call, enum grpc_status status, const char *text)
{
	rpc_cancel(call);
	/* Output that was not taken in time is dropped: the status is what counts now. */
	if (!call->has_headers)
		rpc_output_free(call);
	else
		call->output.end = call->output.begin;
	rpc_finish(call, status, "%s", text);
}

void rpc_expire(struct rpc *call)
{
	rpc_end_early(call, GRPC_DEADLINE_EXCEEDED,
		      call->late_text ? call->late_text : "the deadline has passed");
}

/* An answer of HTTP, to what is no gRPC. */
void rpc_http_error(struct rpc *call, const char status[4])
{
	nghttp2_nv header = CONSTANT_NV(":status", "");

	header.flags = NGHTTP2_NV_FLAG_NO_COPY_NAME;
	header.value = (uint8_t *)status;
	header.valuelen = 3;
	call->is_finished = call->has_headers = true;
	(void)nghttp2_submit_response(call->conn->session, call->stream_id, &header, 1, NULL);
	h2_touch(call->conn);
}
