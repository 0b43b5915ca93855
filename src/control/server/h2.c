/*
 * Connections: bytes between a socket, or TLS upon it, and nghttp2.
 *
 * Reading takes one buffer's worth a turn, so that a busy client does not keep the others waiting.
 * Writing happens at the end of the turn: all frames that nghttp2 has for a connection go out
 * together. Both use buffers of the loop. Only what the socket does not take is kept, in memory of
 * the connection, and as long as there is such a rest nghttp2 is not asked for more: so a client
 * that does not read holds one buffer, and its answers wait where they count in the budget.
 *
 * A connection ends at the end of a turn (h2_end), as it may be in use up the stack before.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/server/internal.h"
#include "fabric/inet.h"

#define HANDSHAKE_NS   UINT64_C(10000000000)
#define FRAME_MOST     (16384u + 9u)
#define BUDGET_SHARE   4u    /* one connection may use a fourth of what is left */
#define DEAD_AFTER_MS  60000 /* of the socket: for hosts that vanish without a word */
#define TLS_READS_MOST 8
/* What one connection gets of a turn, so that the others have theirs. */
#define TURN_BYTES (256u << 10)
#define TURN_MORES 4u

/* ------------------------------------------------------------------------------------------
 * The socket, or TLS
 */

/* As recv and send: -1 with EAGAIN if it has to wait, other errors are final. */
static ssize_t tls_result(struct h2_conn *conn, int result)
{
	int error;

	if (result > 0)
		return result;
	error = SSL_get_error(conn->tls, result);
	ERR_clear_error();
	if (error == SSL_ERROR_ZERO_RETURN)
		return 0;
	errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
	return -1;
}

static ssize_t read_bytes(struct h2_conn *conn, void *to, size_t room)
{
	if (conn->tls)
		return tls_result(conn, SSL_read(conn->tls, to, (int)room));
	return recv(conn->watch.fd, to, room, 0);
}

static ssize_t write_bytes(struct h2_conn *conn, const void *bytes, size_t length)
{
	if (conn->tls)
		return tls_result(conn, SSL_write(conn->tls, bytes, (int)length));
	return send(conn->watch.fd, bytes, length, MSG_NOSIGNAL);
}

static void want_to_write(struct h2_conn *conn, bool wanted)
{
	if (conn->waits_to_write == wanted)
		return;
	conn->waits_to_write = wanted;
	if (!control_watch_change(conn->control, &conn->watch, EPOLLIN | (wanted ? EPOLLOUT : 0u)))
		h2_end(conn, strerror(errno));
}

/* ------------------------------------------------------------------------------------------
 * Opening and ending
 */

static void handshake(struct h2_conn *conn)
{
	const unsigned char *protocol = NULL;
	unsigned length = 0;
	int result = SSL_accept(conn->tls);

	if (result != 1) {
		int error = SSL_get_error(conn->tls, result);
		unsigned long code = ERR_peek_error();
		const char *reason = code ? ERR_reason_error_string(code) : NULL;

		if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
			want_to_write(conn, error == SSL_ERROR_WANT_WRITE);
		else
			h2_end(conn, reason ? reason : "it went away during the TLS handshake");
		ERR_clear_error();
		return;
	}
	SSL_get0_alpn_selected(conn->tls, &protocol, &length);
	if (length != 2 || memcmp(protocol, "h2", 2) != 0) {
		h2_end(conn, "it did not ask for HTTP/2 (ALPN h2)");
		return;
	}
	conn->state = H2_OPEN;
	want_to_write(conn, false);
	h2_touch(conn);
}

static void read_some(struct h2_conn *conn)
{
	struct kv_control_server *control = conn->control;
	int reads = 0;

	do {
		ssize_t got = read_bytes(conn, control->input, H2_BUFFER), taken;

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got <= 0) {
			h2_end(conn, NULL);
			return;
		}
		conn->heard_ns = clock_quick_ns();
		conn->asked = false;
		figure_add(&control->figures.bytes_in, got);
		server_count_bytes(control->server, got, 0);
		taken = nghttp2_session_mem_recv(conn->session, control->input, (size_t)got);
		h2_touch(conn);
		/* Cut off: the flush sends GOAWAY, and ends it. */
		if (taken < 0 && conn->is_cut_off)
			return;
		if (taken < 0) {
			log_debug("gRPC: %s: %s", conn->peer, nghttp2_strerror((int)taken));
			if (taken == NGHTTP2_ERR_FLOODED)
				figure_add(&control->figures.floods, 1);
			h2_end(conn, nghttp2_strerror((int)taken));
			return;
		}
		/* What TLS has decrypted already nobody would wake us for. */
	} while (conn->tls && SSL_pending(conn->tls) > 0 && ++reads < TLS_READS_MOST);
	if (conn->tls && SSL_pending(conn->tls) > 0)
		conn->has_rest = true;
}

static void ready(struct control_watch *watch, uint32_t events)
{
	struct h2_conn *conn = (struct h2_conn *)watch;

	if (conn->state == H2_OVER)
		return;
	if (conn->state == H2_HANDSHAKE) {
		handshake(conn);
		return;
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		read_some(conn);
	if (events & EPOLLOUT && conn->state != H2_OVER)
		h2_touch(conn);
}

void h2_read_rest(struct h2_conn *conn)
{
	conn->has_rest = false;
	read_some(conn);
}

static SSL *make_tls(struct kv_control_server *control, int fd)
{
	SSL *tls;

	pthread_mutex_lock(&control->tls_lock);
	tls = SSL_new(control->tls);
	pthread_mutex_unlock(&control->tls_lock);
	if (tls && SSL_set_fd(tls, fd) == 1) {
		SSL_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE |
					  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					  SSL_MODE_RELEASE_BUFFERS);
		return tls;
	}
	SSL_free(tls);
	return NULL;
}

void h2_open(struct kv_control_server *control, int fd, const char *peer, bool is_local)
{
	struct h2_conn *conn = calloc(1, sizeof(*conn));

	if (!conn) {
		close(fd);
		return;
	}
	inet_keep_alive(fd, DEAD_AFTER_MS);
	conn->watch = (struct control_watch){.fd = fd, .ready = ready};
	conn->control = control;
	conn->is_private = is_local || control->uses_tls;
	conn->opened_ns = conn->heard_ns = conn->moved_ns = clock_now_ns();
	conn->budget = (struct grpc_budget){
		.most = control->budget.most, .above = &control->budget, .share = BUDGET_SHARE};
	snprintf(conn->peer, sizeof(conn->peer), "%s", peer);
	list_init(&conn->calls);
	list_init(&conn->dirty_link);
	list_init(&conn->over_link);
	list_init(&conn->hungry_link);
	list_add_tail(&control->conns, &conn->link);
	control->conn_count++;
	figure_add(&control->figures.connections, 1);
	figure_add(&control->figures.connections_total, 1);
	server_count_clients(control->server, 1);
	conn->state = control->uses_tls ? H2_HANDSHAKE : H2_OPEN;
	if (control->uses_tls)
		conn->tls = make_tls(control, fd);
	if ((control->uses_tls && !conn->tls) || !h2_session_open(conn) ||
	    !control_watch_add(control, &conn->watch, EPOLLIN)) {
		conn->watch.ready = NULL;
		h2_end(conn, "no memory for another connection");
		return;
	}
	if (conn->tls)
		SSL_set_accept_state(conn->tls);
	else
		h2_touch(conn);
}

void h2_end(struct h2_conn *conn, const char *reason)
{
	if (conn->state == H2_OVER)
		return;
	if (reason)
		log_info("gRPC: %s: %s", conn->peer, reason);
	conn->state = H2_OVER;
	list_add_tail(&conn->control->over, &conn->over_link);
}

void h2_destroy(struct h2_conn *conn)
{
	struct kv_control_server *control = conn->control;

	while (!list_is_empty(&conn->calls))
		rpc_destroy(list_first_entry(&conn->calls, struct rpc, link));
	if (control->plane)
		data_plane_forget(control->plane, conn);
	list_remove(&conn->dirty_link);
	list_remove(&conn->over_link);
	list_remove(&conn->hungry_link);
	list_remove(&conn->link);
	control->conn_count--;
	figure_add(&control->figures.connections, -1);
	server_count_clients(control->server, -1);
	nghttp2_session_del(conn->session);
	if (conn->watch.ready)
		control_watch_remove(control, &conn->watch);
	if (conn->tls) {
		/* One last word; whoever does not take it is not waited for. */
		(void)SSL_shutdown(conn->tls);
		ERR_clear_error();
	}
	SSL_free(conn->tls);
	close(conn->watch.fd);
	free(conn->output);
	free(conn);
}

void h2_leave(struct h2_conn *conn, uint32_t error_code, const char *why)
{
	int32_t last;

	if (conn->state == H2_HANDSHAKE) {
		h2_end(conn, NULL);
		return;
	}
	if (conn->state != H2_OPEN)
		return;
	conn->state = H2_LEAVING;
	last = nghttp2_session_get_last_proc_stream_id(conn->session);
	(void)nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE, last, error_code,
				    (const uint8_t *)why, strlen(why));
	conn->is_cut_off = error_code != NGHTTP2_NO_ERROR;
	h2_touch(conn);
}

/* ------------------------------------------------------------------------------------------
 * Sending
 */

void h2_touch(struct h2_conn *conn)
{
	if (list_is_empty(&conn->dirty_link))
		list_add_tail(&conn->control->dirty, &conn->dirty_link);
}

/* Sends what was left over. True: nothing is left. */
static bool send_rest(struct h2_conn *conn)
{
	while (conn->output_sent < conn->output_used) {
		ssize_t sent = write_bytes(conn, conn->output + conn->output_sent,
					   conn->output_used - conn->output_sent);

		if (sent <= 0) {
			if (sent < 0 && (errno == EAGAIN || errno == EINTR))
				want_to_write(conn, true);
			else
				h2_end(conn, NULL);
			return false;
		}
		conn->output_sent += (size_t)sent;
		conn->moved_ns = clock_quick_ns();
		figure_add(&conn->control->figures.bytes_out, sent);
		server_count_bytes(conn->control->server, 0, sent);
	}
	free(conn->output);
	conn->output = NULL;
	conn->output_used = conn->output_sent = 0;
	want_to_write(conn, false);
	return true;
}

/* Sends `length` bytes of the loop's buffer, and keeps what is not taken. */
static bool send_or_keep(struct h2_conn *conn, size_t length)
{
	const uint8_t *bytes = conn->control->output;
	ssize_t sent = length ? write_bytes(conn, bytes, length) : 0;

	if (sent < 0 && errno != EAGAIN && errno != EINTR) {
		h2_end(conn, NULL);
		return false;
	}
	if (sent < 0)
		sent = 0;
	figure_add(&conn->control->figures.bytes_out, sent);
	server_count_bytes(conn->control->server, 0, sent);
	if (sent)
		conn->moved_ns = clock_quick_ns();
	if ((size_t)sent == length)
		return true;
	conn->output_used = length - (size_t)sent;
	conn->output = malloc(conn->output_used);
	if (!conn->output) {
		h2_end(conn, "no memory for what it does not take");
		return false;
	}
	memcpy(conn->output, bytes + sent, conn->output_used);
	conn->output_sent = 0;
	return send_rest(conn);
}

/* Gathers frames until the buffer is full. Returns how many bytes; *is_all: there are no more. */
static size_t gather(struct h2_conn *conn, bool *is_all)
{
	uint8_t *to = conn->control->output;
	size_t used = 0;

	*is_all = false;
	while (used + FRAME_MOST <= H2_BUFFER) {
		const uint8_t *bytes;
		ssize_t length = nghttp2_session_mem_send(conn->session, &bytes);

		if (length < 0 || (size_t)length > H2_BUFFER - used) {
			h2_end(conn, length < 0 ? nghttp2_strerror((int)length)
						: "a frame beyond all measure");
			return 0;
		}
		if (!length) {
			*is_all = true;
			break;
		}
		memcpy(to + used, bytes, (size_t)length);
		used += (size_t)length;
	}
	return used;
}

void h2_hunger(struct h2_conn *conn)
{
	if (list_is_empty(&conn->hungry_link))
		list_add_tail(&conn->control->hungry, &conn->hungry_link);
}

void h2_feed(struct h2_conn *conn)
{
	list_remove(&conn->hungry_link);
	list_for_each (at, &conn->calls) {
		struct rpc *rpc = list_entry(at, struct rpc, link);

		if (rpc->is_hungry)
			rpc_resume(rpc);
	}
	h2_touch(conn);
}

void h2_flush(struct h2_conn *conn)
{
	bool is_all = false;
	size_t sent = 0;

	if (conn->state == H2_OVER || conn->state == H2_HANDSHAKE || !send_rest(conn))
		return;
	conn->mores_left = TURN_MORES;
	while (!is_all) {
		size_t length = gather(conn, &is_all);

		if (conn->state == H2_OVER || !send_or_keep(conn, length))
			return;
		sent += length;
		if (!is_all && sent >= TURN_BYTES) {
			h2_hunger(conn);
			return;
		}
	}
	conn->moved_ns = clock_quick_ns();
	if (conn->state == H2_LEAVING && (!conn->call_count || conn->is_cut_off))
		h2_end(conn, NULL);
	else if (!nghttp2_session_want_read(conn->session) &&
		 !nghttp2_session_want_write(conn->session))
		h2_end(conn, NULL);
}

/* ------------------------------------------------------------------------------------------
 * Time
 */

/* Calls whose client neither sends nor takes. */
static void check_calls(struct h2_conn *conn, uint64_t now_ns, uint64_t stall_ns)
{
	list_for_each_safe (at, &conn->calls) {
		struct rpc *rpc = list_entry(at, struct rpc, link);
		bool waits = rpc->output.end > rpc->output.begin ||
			     (!rpc->is_ended && !rpc->is_finished &&
			      (!rpc->method || !rpc->method->takes_stream ||
			       grpc_reader_is_inside(&rpc->reader)));

		if (!waits || now_ns - rpc->heard_ns < stall_ns || now_ns < rpc->heard_ns)
			continue;
		log_warn_limited("gRPC: %s: a call that does not go on; reset", conn->peer);
		figure_add(&conn->control->figures.stalls, 1);
		(void)nghttp2_submit_rst_stream(conn->session, NGHTTP2_FLAG_NONE, rpc->stream_id,
						NGHTTP2_CANCEL);
		h2_touch(conn);
	}
}

void h2_check(struct h2_conn *conn, uint64_t now_ns)
{
	const kv_control_server_options_t *options = &conn->control->options;
	uint64_t stall_ns = (uint64_t)options->stall_ms * 1000000u;

	if (conn->state == H2_OVER)
		return;
	/* Times that were taken in this turn may be a little ahead of now. */
	if (now_ns < conn->heard_ns || now_ns < conn->moved_ns)
		return;
	if (conn->heard_ns == conn->opened_ns && now_ns - conn->opened_ns > HANDSHAKE_NS) {
		h2_end(conn, "it connected and said nothing");
	} else if (conn->state == H2_HANDSHAKE) {
		if (now_ns - conn->opened_ns > HANDSHAKE_NS)
			h2_end(conn, "the TLS handshake takes too long");
	} else if (conn->output && now_ns - conn->moved_ns > stall_ns) {
		figure_add(&conn->control->figures.stalls, 1);
		h2_end(conn, "it takes no answers");
	} else if (conn->asked && now_ns - conn->asked_ns > stall_ns) {
		figure_add(&conn->control->figures.stalls, 1);
		h2_end(conn, "it does not answer a ping");
	} else if (!conn->asked &&
		   now_ns - conn->heard_ns > (uint64_t)options->keepalive_ms * 1000000u) {
		conn->asked = true;
		conn->asked_ns = now_ns;
		(void)nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, NULL);
		h2_touch(conn);
	}
	check_calls(conn, now_ns, stall_ns);
}
