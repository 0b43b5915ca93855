/*
 * One call: headers and message to the server, messages and trailers back.
 *
 * A call can end in three ways: the server says how (a status in the trailers); the server, or what
 * is between, says that it was not looked at (a refused stream); or nobody says anything, because
 * the connection is lost or the time is over. In the last case a call that changes something may
 * have been carried out: KV_UNKNOWN, unless nothing of it has left.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/version.h"
#include "control/client/internal.h"

#define MESSAGE_MOST (1u << 30)
#define TRIES	     3
#define CHUNK	     (256u << 10)
#define CHUNK_TAG    (2u << 3 | 2u) /* PutStreamRequest.chunk: field 2, bytes */

_Static_assert(GRPC_PREFIX + 1 + 5 <= CONTROL_FRAME, "a frame has room");

/* ------------------------------------------------------------------------------------------
 * nghttp2's callbacks
 */

static struct control_ask *find_ask(nghttp2_session *session, int32_t stream_id)
{
	/* NULL: of a call that was given up. */
	return nghttp2_session_get_stream_user_data(session, stream_id);
}

static bool is_name(const uint8_t *name, size_t length, const char *wanted)
{
	return length == strlen(wanted) && memcmp(name, wanted, length) == 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_length, const uint8_t *value, size_t value_length, uint8_t flags,
		     void *user)
{
	struct control_ask *ask = find_ask(session, frame->hd.stream_id);
	char number[24];

	(void)flags;
	(void)user;
	if (!ask || ask->is_over)
		return 0;
	snprintf(number, sizeof(number), "%.*s", value_length < 23 ? (int)value_length : 23,
		 (const char *)value);
	if (is_name(name, name_length, ":status")) {
		ask->http_status = (unsigned)strtoul(number, NULL, 10);
	} else if (is_name(name, name_length, "grpc-status")) {
		ask->status = grpc_status_parse(value, value_length);
		ask->is_answered = true;
	} else if (is_name(name, name_length, "grpc-message")) {
		grpc_percent_decode(value, value_length, ask->text, sizeof(ask->text));
	} else if (is_name(name, name_length, "kv-value-length")) {
		ask->value_length = strtoull(number, NULL, 10);
	}
	return 0;
}

/* Takes the messages out of what has come. What is wrong ends the call. */
static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
		   size_t length, void *user)
{
	struct control_ask *ask = find_ask(session, stream_id);

	(void)flags;
	(void)user;
	while (ask && length && !ask->is_over) {
		size_t taken;
		enum grpc_feed fed = grpc_reader_feed(&ask->reader, data, length, &taken);

		data += taken;
		length -= taken;
		if (fed == GRPC_FEED_MORE)
			continue;
		if (fed == GRPC_FEED_MESSAGE &&
		    ask->take(ask->context, ask->reader.bytes, ask->reader.length)) {
			ask->messages++;
			grpc_reader_next(&ask->reader);
			if (!ask->is_enough)
				continue;
			ask->status = GRPC_OK;
			ask->is_answered = ask->is_over = true;
			break;
		}
		snprintf(ask->text, sizeof(ask->text), "the answer makes no sense");
		ask->status = fed == GRPC_FEED_NO_MEMORY ? GRPC_RESOURCE_EXHAUSTED : GRPC_INTERNAL;
		ask->is_answered = ask->is_nonsense = ask->is_over = true;
	}
	return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error, void *user)
{
	struct control_ask *ask = find_ask(session, stream_id);

	(void)user;
	if (!ask)
		return 0;
	ask->is_over = true;
	ask->is_refused = error == NGHTTP2_REFUSED_STREAM;
	if (!ask->is_answered && !ask->text[0])
		snprintf(ask->text, sizeof(ask->text), "the server has ended the call: %s",
			 nghttp2_http2_strerror(error));
	return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	kv_control_t *control = user;

	(void)session;
	if (frame->hd.type == NGHTTP2_GOAWAY)
		control->channel.is_leaving = true;
	if (frame->hd.type == NGHTTP2_PING && frame->hd.flags & NGHTTP2_FLAG_ACK)
		control->channel.is_ponged = true;
	return 0;
}

int ask_callbacks(nghttp2_session_callbacks *callbacks)
{
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	return KV_OK;
}

/* ------------------------------------------------------------------------------------------
 * The request
 */

/* The frame of the next chunk: prefix, and PutStreamRequest.chunk's tag and length. */
static void begin_chunk(struct control_ask *ask)
{
	size_t left = ask->stream_length - ask->stream_sent;
	uint32_t length = left < CHUNK ? (uint32_t)left : CHUNK, number = length;
	size_t used = GRPC_PREFIX;

	ask->frame[used++] = CHUNK_TAG;
	for (; number > 127; number >>= 7)
		ask->frame[used++] = (uint8_t)(number | 128);
	ask->frame[used++] = (uint8_t)number;
	grpc_prefix_write(ask->frame, (uint32_t)(used - GRPC_PREFIX) + length);
	ask->frame_length = used;
	ask->frame_sent = 0;
	ask->chunk_left = length;
}

/* The next bytes of the request: the message, then frames and chunks. NULL: that was all. */
static const uint8_t *next_bytes(struct control_ask *ask, size_t room, size_t *length)
{
	const uint8_t *bytes;
	size_t left, *sent;

	if (ask->body_sent == ask->body_length && ask->frame_sent == ask->frame_length &&
	    !ask->chunk_left && ask->stream_sent < ask->stream_length)
		begin_chunk(ask);
	if (ask->body_sent < ask->body_length) {
		bytes = ask->body + ask->body_sent;
		left = ask->body_length - ask->body_sent;
		sent = &ask->body_sent;
	} else if (ask->frame_sent < ask->frame_length) {
		bytes = ask->frame + ask->frame_sent;
		left = ask->frame_length - ask->frame_sent;
		sent = &ask->frame_sent;
	} else if (ask->chunk_left) {
		bytes = ask->stream + ask->stream_sent;
		left = ask->chunk_left;
		sent = &ask->stream_sent;
	} else {
		return NULL;
	}
	*length = left < room ? left : room;
	*sent += *length;
	if (sent == &ask->stream_sent)
		ask->chunk_left -= *length;
	return bytes;
}

static ssize_t read_body(nghttp2_session *session, int32_t stream_id, uint8_t *to, size_t room,
			 uint32_t *flags, nghttp2_data_source *source, void *user)
{
	struct control_ask *ask = find_ask(session, stream_id);
	const uint8_t *bytes;
	size_t used = 0, length;

	(void)source;
	(void)user;
	if (!ask)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	while (used < room && (bytes = next_bytes(ask, room - used, &length)) != NULL) {
		memcpy(to + used, bytes, length);
		used += length;
	}
	ask->is_sent = true;
	if (ask->body_sent == ask->body_length && ask->stream_sent == ask->stream_length)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)used;
}

static bool pack(struct control_ask *ask)
{
	size_t length = protobuf_c_message_get_packed_size(ask->request);

	if (length > UINT32_MAX - GRPC_PREFIX)
		return false;
	ask->body = malloc(GRPC_PREFIX + length);
	if (!ask->body)
		return false;
	grpc_prefix_write(ask->body, (uint32_t)length);
	protobuf_c_message_pack(ask->request, ask->body + GRPC_PREFIX);
	ask->body_length = GRPC_PREFIX + length;
	return true;
}

static nghttp2_nv header(const char *name, const char *value, uint8_t flags)
{
	return (nghttp2_nv){
		.name = (uint8_t *)name,
		.value = (uint8_t *)value,
		.namelen = strlen(name),
		.valuelen = strlen(value),
		.flags = flags,
	};
}

static int submit(kv_control_t *control, struct control_ask *ask)
{
	nghttp2_data_provider provider = {.read_callback = read_body};
	char timeout[GRPC_TIMEOUT_TEXT], bearer[sizeof("Bearer ") + KV_MAX_SECRET];
	uint64_t now_ns = clock_now_ns();
	nghttp2_nv headers[10];
	size_t count = 0;

	grpc_timeout_format(ask->deadline_ns > now_ns ? ask->deadline_ns - now_ns : 1, timeout);
	headers[count++] = header(":method", "POST", 0);
	headers[count++] = header(":scheme", control->url.is_tls ? "https" : "http", 0);
	headers[count++] = header(":path", ask->path, 0);
	headers[count++] = header(":authority", control->url.authority, 0);
	headers[count++] = header("content-type", "application/grpc", 0);
	headers[count++] = header("te", "trailers", 0);
	headers[count++] = header("user-agent", "remora/" REMORA_VERSION, 0);
	/* It differs each time: not worth a place in the table of headers. */
	if (!ask->is_stream)
		headers[count++] = header("grpc-timeout", timeout, NGHTTP2_NV_FLAG_NO_INDEX);
	if (control->secret.length) {
		snprintf(bearer, sizeof(bearer), "Bearer %.*s", (int)control->secret.length,
			 (const char *)control->secret.bytes);
		headers[count++] = header("authorization", bearer, NGHTTP2_NV_FLAG_NO_INDEX);
	}
	ask->stream_id = nghttp2_submit_request(control->channel.session, NULL, headers, count,
						&provider, ask);
	return ask->stream_id;
}

/* ------------------------------------------------------------------------------------------
 * The call
 */

/* After this nghttp2 does not touch `ask`. */
static void let_go(kv_control_t *control, struct control_ask *ask)
{
	nghttp2_session *session = control->channel.session;

	if (!session || ask->stream_id <= 0)
		return;
	nghttp2_session_set_stream_user_data(session, ask->stream_id, NULL);
	if ((!ask->is_over || ask->is_enough) && !control->channel.is_lost) {
		nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, ask->stream_id,
					  NGHTTP2_CANCEL);
		/* Sent at once, as far as it can be: the server need not go on. */
		(void)channel_turn(control, 0, 0);
	}
}

/* No answer has come. */
static int give_up(kv_control_t *control, struct control_ask *ask)
{
	bool is_late = !control->channel.is_lost && !ask->is_over;
	const char *why = control->channel.is_lost ? control->channel.why : ask->text;

	if (is_late)
		why = "no answer in time";
	if (ask->changes_something && ask->is_sent && !ask->is_refused)
		return control_error(control, KV_UNKNOWN,
				     "%s: %s; the change may have been made, or not",
				     control->url.authority, why);
	return control_error(control, is_late ? KV_TIMEOUT : KV_DISCONNECTED, "%s: %s",
			     control->url.authority, why);
}

/* A stream that has moved gets new time. */
static void extend(const kv_control_t *control, struct control_ask *ask, uint64_t *moved)
{
	uint64_t now_moved = (uint64_t)ask->stream_sent + ask->messages;

	if (!ask->is_stream || now_moved == *moved)
		return;
	*moved = now_moved;
	ask->deadline_ns = control_deadline(control);
}

static int try_once(kv_control_t *control, struct control_ask *ask)
{
	uint64_t moved = 0;
	int status = control_revive(control, ask->deadline_ns);

	if (status != KV_OK)
		return status;
	grpc_reader_init(&ask->reader, MESSAGE_MOST, NULL);
	ask->is_over = ask->is_sent = ask->is_refused = ask->is_answered = false;
	ask->is_nonsense = false;
	ask->value_length = UINT64_MAX;
	ask->status = GRPC_UNKNOWN;
	ask->text[0] = '\0';
	ask->body_sent = ask->messages = ask->http_status = 0;
	ask->frame_length = ask->frame_sent = ask->chunk_left = ask->stream_sent = 0;
	ask->begun_ns = clock_quick_ns();
	if (submit(control, ask) < 0)
		return control_error(control, KV_NO_MEMORY, "HTTP/2: %s",
				     nghttp2_strerror(ask->stream_id));
	while (!ask->is_over && channel_turn(control, ask->begun_ns, ask->deadline_ns))
		extend(control, ask, &moved);
	let_go(control, ask);
	grpc_reader_fini(&ask->reader);
	if (ask->is_over && ask->http_status && ask->http_status != 200) {
		ask->is_answered = false;
		return control_error(control, KV_PROTOCOL, "%s: HTTP status %u: no gRPC there",
				     control->url.authority, ask->http_status);
	}
	if (!ask->is_answered)
		return give_up(control, ask);
	channel_learn(control, ask->begun_ns);
	status = control_status_of(ask);
	return status == KV_OK
		       ? KV_OK
		       : control_error(control, status, "%s",
				       ask->text[0] ? ask->text : grpc_status_name(ask->status));
}

/* Whether it is worth another try: nothing was changed, and another connection may do. */
static bool may_try_again(const kv_control_t *control, const struct control_ask *ask, int status)
{
	if (ask->is_answered || ask->messages || ask->is_once || control->options.no_reconnect ||
	    clock_passed(ask->deadline_ns))
		return false;
	return status == KV_DISCONNECTED && ask->stream_id > 0;
}

int control_ask(kv_control_t *control, struct control_ask *ask)
{
	int status = KV_INTERNAL;

	if (!ask->deadline_ns)
		ask->deadline_ns = control_deadline(control);
	if (!pack(ask))
		return control_error(control, KV_NO_MEMORY, "no memory for a message");
	for (int i = 0; i < TRIES; i++) {
		ask->stream_id = 0;
		status = try_once(control, ask);
		if (status == KV_OK || !may_try_again(control, ask, status))
			break;
	}
	free(ask->body);
	ask->body = NULL;
	return status;
}
