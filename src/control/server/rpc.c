/*
 * Calls: a stream of HTTP/2 as a call of gRPC.
 *
 * The request comes first. Its headers decide whether it is looked at at all; what is wrong with
 * them is answered at once, and what follows is thrown away. A method that takes one message gets
 * it when the client has ended its side; one that takes a stream gets each when it is complete.
 *
 * The answer is made in rpc_answer.c.
 *
 * A call belongs to its stream: it is destroyed when nghttp2 says that the stream is closed, or
 * with the connection, and never earlier. So whatever a method does, the call is still there after
 * it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/gzip.h"
#include "control/server/internal.h"

#define ANONYMOUS_MESSAGE 4096u
#define ANONYMOUS_CALLS	  16u

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

/* The client waits for the answer no more. */
void rpc_cancel(struct rpc *call)
{
	if (!call->is_deferred)
		return;
	call->is_deferred = false;
	call->cancelled(call, call->context);
}

void rpc_destroy(struct rpc *call)
{
	struct kv_control_server *control = call->control;

	rpc_cancel(call);
	if (call->done)
		call->done(call->context);
	deadlines_remove(&control->deadlines, call);
	grpc_reader_fini(&call->reader);
	rpc_output_free(call);
	if (!call->is_finished)
		figure_add(&control->figures.statuses[GRPC_CANCELLED], 1);
	list_remove(&call->link);
	call->conn->call_count--;
	call->conn->anonymous -= call->is_anonymous;
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
 * The request
 */

/* Health and reflection, which need no key: short messages, and few calls of a client without one.
 * False: the call is finished. */
static bool check_anonymous(struct rpc *call)
{
	call->reader.max_length = ANONYMOUS_MESSAGE;
	if (!access_needs_key(call->control) || (call->saw_token && call->access == GRPC_OK))
		return true;
	if (call->conn->anonymous == ANONYMOUS_CALLS) {
		rpc_finish(call, GRPC_RESOURCE_EXHAUSTED,
			   "%u calls without a key are under way on this connection; wait for some",
			   ANONYMOUS_CALLS);
		return false;
	}
	call->is_anonymous = true;
	call->conn->anonymous++;
	return true;
}

/* Whether a key may travel by this connection. False: the call is finished. */
static bool check_path(struct rpc *call)
{
	if (call->conn->is_private || call->control->options.insecure_tokens ||
	    !access_needs_key(call->control))
		return true;
	log_warn_limited("gRPC: %s: a call that needs a key came without TLS: refused; start "
			 "with --tls-cert and --tls-key",
			 call->conn->peer);
	rpc_finish(call, GRPC_FAILED_PRECONDITION,
		   "without TLS the key can be read on its way: start kv-server with --tls-cert "
		   "and --tls-key, or in a network that you trust with --grpc-insecure");
	return false;
}

/* Whether the call may go on. */
static bool check_access(struct rpc *call)
{
	enum method_need needs = call->method->needs;

	if (needs == NEEDS_NOTHING)
		return check_anonymous(call);
	if (!check_path(call))
		return false;
	if (!call->saw_token)
		call->access =
			access_check(call->control, NULL, 0, &call->may_write, &call->key_id);
	if (call->access != GRPC_OK) {
		if (call->saw_token)
			log_warn_limited("gRPC: %s: a wrong key", call->conn->peer);
		rpc_finish(call, call->access,
			   call->saw_token ? "the token is not the server's key"
					   : "send the server's key: 'authorization: Bearer KEY'");
		return false;
	}
	call->conn->has_key |= call->key_id != 0;
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
	/* Headers beyond the limit were not looked at: what is missing may be among them. */
	if (call->has_long_headers)
		rpc_finish(call, GRPC_RESOURCE_EXHAUSTED,
			   "the headers have more than %u bytes; send less metadata",
			   call->control->options.max_headers);
	else if (!call->saw_post)
		rpc_http_error(call, "405");
	else if (!call->saw_type)
		rpc_http_error(call, "415");
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
	call->begun_ns = clock_quick_ns();
	if (is_ended)
		rpc_ended(call);
}

static void complain(struct rpc *call, enum grpc_feed found);

/* Unpacks the message in the reader. False: the call is finished. */
static bool unpack(struct rpc *call, struct gzip_bytes *unpacked)
{
	switch (gzip_unpack(call->reader.bytes, call->reader.used, call->reader.max_length,
			    &call->conn->budget, unpacked)) {
	case GZIP_OK:
		return true;
	case GZIP_TOO_LONG:
		rpc_finish(call, GRPC_RESOURCE_EXHAUSTED,
			   "the request unpacks to more than %u bytes; send long values by "
			   "PutStream",
			   call->reader.max_length);
		return false;
	case GZIP_NO_MEMORY:
		complain(call, GRPC_FEED_NO_MEMORY);
		return false;
	default:
		rpc_finish(call, GRPC_INTERNAL, "the request is no gzip");
		return false;
	}
}

static void run(struct rpc *call)
{
	struct kv_control_server *control = call->control;
	const ProtobufCMessageDescriptor *descriptor = call->method->request;
	ProtobufCMessage *request = NULL;
	struct gzip_bytes unpacked = {0};

	if (!call->method->takes_stream)
		call->begun_ns = clock_quick_ns();
	if (!call->reader.is_compressed)
		request = protobuf_c_message_unpack(descriptor, &control->scratch.allocator,
						    call->reader.used, call->reader.bytes);
	else if (unpack(call, &unpacked))
		request = protobuf_c_message_unpack(descriptor, &control->scratch.allocator,
						    unpacked.length, unpacked.bytes);
	/* The bytes are needed no more; the call may stay for long. */
	grpc_reader_next(&call->reader);
	if (unpacked.bytes)
		gzip_bytes_free(&unpacked, &call->conn->budget);
	if (request)
		call->method->run(call, request);
	else if (!call->is_finished)
		rpc_finish(call, GRPC_INVALID_ARGUMENT, "the request is no %s", descriptor->name);
	scratch_reset(&control->scratch);
}

static void complain(struct rpc *call, enum grpc_feed found)
{
	switch (found) {
	case GRPC_FEED_TOO_LONG:
		rpc_finish(call, GRPC_RESOURCE_EXHAUSTED,
			   "the request has %u bytes, and this one may have %u; send long values "
			   "by PutStream, or start kv-server with a higher --grpc-max-message",
			   call->reader.length, call->reader.max_length);
		break;
	case GRPC_FEED_COMPRESSED:
		rpc_finish(call, GRPC_INTERNAL,
			   "the request is compressed, and its grpc-encoding is not");
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
