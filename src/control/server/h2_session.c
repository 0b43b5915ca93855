/*
 * HTTP/2 sessions: what nghttp2 tells us of, and what we put up with.
 *
 * nghttp2 parses frames and headers, keeps the windows, and limits by itself: the length of a
 * header block, of CONTINUATION chains, acknowledgments that wait to be sent, entries of SETTINGS.
 * What it does not know is what a call costs here. So each connection has two purses:
 *
 *	pings	64, one more each second, and all of them back whenever we send an answer; so a
 *		client that has something to do may ping as it likes (some measure by it)
 *	resets	500, 33 more each second: opening and resetting streams is work for us alone
 *
 * Who has spent one gets GOAWAY with ENHANCE_YOUR_CALM, and "too_many_pings" where gRPC's clients
 * expect it.
 *
 * The windows that we give are constant: messages are gathered as they come, within a budget, so it
 * is the budget and not the window that limits what a client can make us hold.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/server/internal.h"

#define STREAM_WINDOW	  (256 << 10)
#define CONNECTION_WINDOW (1 << 20)
#define PINGS_MOST	  64u
#define RESETS_MOST	  500u
#define RESETS_PER_SECOND 33u
#define ACKS_MOST	  256u
#define HEADER_EXTRA	  32u /* what the standard counts for each header */

/* ------------------------------------------------------------------------------------------
 * Headers
 */

static bool is_text(const uint8_t *bytes, size_t length, const char *text)
{
	return length == strlen(text) && memcmp(bytes, text, length) == 0;
}

static void fail_early(struct rpc *rpc, enum grpc_status status, const char *text)
{
	rpc->early = status;
	rpc->early_text = text;
}

static void take_token(struct rpc *rpc, const uint8_t *value, size_t length)
{
	static const char scheme[] = "bearer ";
	size_t prefix = sizeof(scheme) - 1;

	rpc->saw_token = true;
	rpc->access = GRPC_UNAUTHENTICATED;
	if (length < prefix)
		return;
	for (size_t i = 0; i < prefix; i++) {
		if ((value[i] | 0x20) != (scheme[i] | 0x20))
			return;
	}
	rpc->access = access_check(rpc->control, value + prefix, length - prefix, &rpc->may_write,
				   &rpc->key_id);
}

static void take_header(struct rpc *rpc, const uint8_t *name, size_t name_length,
			const uint8_t *value, size_t length)
{
	if (is_text(name, name_length, ":path")) {
		rpc->method = rpc_method_find(value, length);
	} else if (is_text(name, name_length, ":method")) {
		rpc->saw_post = is_text(value, length, "POST");
	} else if (is_text(name, name_length, "content-type")) {
		rpc->saw_type = grpc_content_type_is_right(value, length);
	} else if (is_text(name, name_length, "authorization")) {
		take_token(rpc, value, length);
	} else if (is_text(name, name_length, "grpc-timeout")) {
		rpc->has_timeout = grpc_timeout_parse(value, length, &rpc->timeout_ns);
		if (!rpc->has_timeout)
			fail_early(rpc, GRPC_INTERNAL, "grpc-timeout is no time");
	} else if (is_text(name, name_length, "grpc-encoding")) {
		rpc->reader.takes_compressed = is_text(value, length, "gzip");
		if (!rpc->reader.takes_compressed && !is_text(value, length, "identity"))
			fail_early(rpc, GRPC_UNIMPLEMENTED,
				   "grpc-encoding: requests may be compressed by gzip alone");
	} else if (is_text(name, name_length, "grpc-accept-encoding")) {
		rpc->accepts_gzip = grpc_list_has(value, length, "gzip");
	}
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct h2_conn *conn = user;
	struct rpc *rpc;

	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	rpc = rpc_create(conn, frame->hd.stream_id);
	if (!rpc)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, rpc);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_length, const uint8_t *value, size_t length, uint8_t flags,
		     void *user)
{
	struct h2_conn *conn = user;
	struct rpc *rpc = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	size_t size = name_length + length + HEADER_EXTRA;

	(void)flags;
	if (!rpc || frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	if (size > conn->control->options.max_headers - rpc->header_bytes) {
		rpc->header_bytes = conn->control->options.max_headers;
		rpc->has_long_headers = true;
		return 0;
	}
	rpc->header_bytes += (uint32_t)size;
	if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
		take_header(rpc, name, name_length, value, length);
	return 0;
}

/* ------------------------------------------------------------------------------------------
 * Frames
 */

/* Fills the purses by the time that has passed. */
static void refill(struct h2_conn *conn)
{
	uint64_t now_ns = clock_quick_ns(), seconds = (now_ns - conn->tokens_ns) / 1000000000u;
	uint64_t resets;

	if (!seconds)
		return;
	conn->tokens_ns += seconds * 1000000000u;
	if (seconds > RESETS_MOST)
		seconds = RESETS_MOST;
	resets = conn->reset_tokens + seconds * RESETS_PER_SECOND;
	conn->reset_tokens = resets < RESETS_MOST ? (uint32_t)resets : RESETS_MOST;
	conn->ping_tokens += (uint32_t)seconds;
	if (conn->ping_tokens > PINGS_MOST)
		conn->ping_tokens = PINGS_MOST;
}

static int spend(struct h2_conn *conn, uint32_t *tokens, const char *what)
{
	refill(conn);
	if (*tokens) {
		(*tokens)--;
		return 0;
	}
	log_warn_limited("gRPC: %s: %s; cut off", conn->peer, what);
	figure_add(&conn->control->figures.floods, 1);
	h2_leave(conn, NGHTTP2_ENHANCE_YOUR_CALM, what);
	/* What it has sent beyond that is not looked at. */
	return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct h2_conn *conn = user;
	struct rpc *rpc;

	switch (frame->hd.type) {
	case NGHTTP2_PING:
		if (frame->hd.flags & NGHTTP2_FLAG_ACK)
			return 0;
		return spend(conn, &conn->ping_tokens, "too_many_pings");
	case NGHTTP2_RST_STREAM:
		return spend(conn, &conn->reset_tokens, "too_many_resets");
	case NGHTTP2_DATA:
	case NGHTTP2_HEADERS:
		break;
	default:
		return 0;
	}
	rpc = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (!rpc)
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
		rpc_headers_done(rpc, frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
	else if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		rpc_ended(rpc);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *bytes,
		   size_t length, void *user)
{
	struct rpc *rpc = nghttp2_session_get_stream_user_data(session, stream_id);

	(void)flags;
	(void)user;
	if (rpc)
		rpc_data(rpc, bytes, length);
	return 0;
}

static int on_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code, void *user)
{
	struct rpc *rpc = nghttp2_session_get_stream_user_data(session, stream_id);

	(void)error_code;
	(void)user;
	if (rpc)
		rpc_destroy(rpc);
	return 0;
}

/* An answer that came before the end of its request: the rest is not wanted. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct h2_conn *conn = user;

	if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
		return 0;
	conn->ping_tokens = PINGS_MOST;
	if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM &&
	    nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0)
		return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
						 NGHTTP2_NO_ERROR);
	return 0;
}

/* ------------------------------------------------------------------------------------------
 * Opening
 */

bool h2_session_prepare(struct kv_control_server *control)
{
	if (nghttp2_session_callbacks_new(&control->callbacks) != 0 ||
	    nghttp2_option_new(&control->nghttp2_options) != 0)
		return false;
	nghttp2_session_callbacks_set_on_begin_headers_callback(control->callbacks,
								on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(control->callbacks, on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(control->callbacks, on_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(control->callbacks, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(control->callbacks, on_close);
	nghttp2_session_callbacks_set_on_frame_send_callback(control->callbacks, on_sent);
	nghttp2_option_set_max_outbound_ack(control->nghttp2_options, ACKS_MOST);
	/* Streams that are closed need not be remembered: there are no priorities here. */
	nghttp2_option_set_no_closed_streams(control->nghttp2_options, 1);
	return true;
}

void h2_session_forget(struct kv_control_server *control)
{
	nghttp2_session_callbacks_del(control->callbacks);
	nghttp2_option_del(control->nghttp2_options);
	control->callbacks = NULL;
	control->nghttp2_options = NULL;
}

bool h2_session_open(struct h2_conn *conn)
{
	const kv_control_server_options_t *options = &conn->control->options;
	nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, options->max_streams},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, options->max_headers},
		{NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
	};

	conn->ping_tokens = PINGS_MOST;
	conn->reset_tokens = RESETS_MOST;
	conn->tokens_ns = clock_quick_ns();
	if (nghttp2_session_server_new2(&conn->session, conn->control->callbacks, conn,
					conn->control->nghttp2_options) != 0)
		return false;
	return nghttp2_submit_settings(conn->session, NGHTTP2_FLAG_NONE, settings,
				       sizeof(settings) / sizeof(settings[0])) == 0 &&
	       nghttp2_session_set_local_window_size(conn->session, NGHTTP2_FLAG_NONE, 0,
						     CONNECTION_WINDOW) == 0;
}
