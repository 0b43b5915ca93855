/*
 * Meeting by TCP: where there is no RDMA CM, or no way for it. exchange.h has the bytes.
 *
 *	caller					listener
 *	dial, queue pair to INIT
 *	HELLO          ------------------->	greeter.c collects it; rmr_accept:
 *						queue pair to INIT, RTR, RTS
 *	               <-------------------	ACCEPT
 *	queue pair to RTR, RTS			MEETING: receives, holds back what is posted
 *	READY          ------------------->	OPEN
 *
 * The socket then stays, silent, in the queue's epoll set: its end is the end of the connection,
 * and keeping it alive is one way to learn of a dead host. A peer that sends anything more breaks
 * the protocol.
 *
 * Calling waits in the caller's thread. Accepting does not: its few bytes go into the buffer of a
 * socket that has sent nothing before.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/dial.h"
#include "fabric/greeter.h"
#include "fabric/inet.h"
#include "fabric/verbs/internal.h"
#include "fabric/verbs/path.h"

/* The control channel of a connection. */
struct verbs_socket {
	struct queue_source source; /* in the queue's epoll set, once watched */
	struct verbs_conn *conn;
	int fd;
	bool watched;
	bool peer_ready;
	uint64_t ready_deadline_ns;
	size_t have; /* bytes that came after the greeting; a READY is all there may be */
	uint8_t bytes[EXCHANGE_READY_SIZE + 1];
};

struct socket_listener {
	struct greeter greeter;
};

/* A caller that introduced itself. */
struct socket_caller {
	int fd;
	int handshake_timeout_ms;
	struct exchange hello;
};

/* ------------------------------------------------------------------------------------------
 * The control channel
 */

/* The connection owns fd from now on; it is not watched yet. */
static enum rmr_status attach(struct verbs_conn *conn, int fd)
{
	struct verbs_socket *socket = calloc(1, sizeof(*socket));

	if (!socket)
		return error_set(RMR_NO_MEMORY, "no memory for a connection");
	inet_keep_alive(fd, conn->base.options.dead_after_ms);
	socket->conn = conn;
	socket->fd = fd;
	conn->socket = socket;
	return RMR_OK;
}

static void unwatch(struct verbs_socket *socket)
{
	if (socket->watched)
		(void)epoll_ctl(socket->conn->base.queue->epoll_fd, EPOLL_CTL_DEL, socket->fd,
				NULL);
	socket->watched = false;
}

/* Forgets the socket, which is the caller's again. */
static int detach(struct verbs_conn *conn)
{
	int fd = conn->socket->fd;

	unwatch(conn->socket);
	free(conn->socket);
	conn->socket = NULL;
	return fd;
}

void socket_close(struct verbs_conn *conn)
{
	int fd;

	if (!conn->socket)
		return;
	fd = detach(conn);
	(void)shutdown(fd, SHUT_RDWR);
	close(fd);
}

bool socket_is_overdue(const struct verbs_conn *conn, uint64_t now_ns)
{
	const struct verbs_socket *socket = conn->socket;

	return socket && !socket->peer_ready && now_ns >= socket->ready_deadline_ns;
}

/* Nothing more is to be learned from the socket: it would only keep the queue awake. */
static void end(struct verbs_socket *socket, enum rmr_status status)
{
	unwatch(socket);
	verbs_conn_fail(socket->conn, status);
}

/* Takes in what came. False: that was all, or it is over. */
static bool read_some(struct verbs_socket *socket)
{
	struct verbs_conn *conn = socket->conn;
	ssize_t got = recv(socket->fd, socket->bytes + socket->have,
			   sizeof(socket->bytes) - socket->have, MSG_DONTWAIT);

	if (got < 0 && errno == EINTR)
		return true;
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return false;
	if (got <= 0) {
		log_debug("verbs: %s: %s", conn->base.peer, got < 0 ? strerror(errno) : "hung up");
		end(socket, RMR_DISCONNECTED);
		return false;
	}
	socket->have += (size_t)got;
	switch (exchange_decode_ready(socket->bytes, socket->have)) {
	case EXCHANGE_MORE:
		return true;
	case EXCHANGE_DONE:
		socket->peer_ready = true;
		verbs_conn_peer_ready(conn);
		return true;
	default:
		log_warn_limited("verbs: connection to %s ended, it broke the protocol: bytes on a "
				 "socket that has nothing to say",
				 conn->base.peer);
		end(socket, RMR_PROTOCOL);
		return false;
	}
}

static void socket_ready(struct queue_source *source, uint32_t events)
{
	(void)events;
	while (read_some((struct verbs_socket *)source))
		;
}

static enum rmr_status watch(struct verbs_conn *conn)
{
	struct verbs_socket *socket = conn->socket;
	enum rmr_status status;

	socket->source.ready = socket_ready;
	status = queue_watch(conn->base.queue, socket->fd, EPOLLIN | EPOLLRDHUP, &socket->source);
	socket->watched = status == RMR_OK;
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Listening
 */

static enum greeter_verdict judge_hello(const uint8_t *bytes, size_t have, const char **reason)
{
	struct exchange hello;

	switch (exchange_decode(bytes, have, &hello, reason)) {
	case EXCHANGE_MORE:
		/* A refusal may be longer than a greeting. */
		if (have < EXCHANGE_SIZE)
			return GREETER_MORE;
		break;
	case EXCHANGE_OTHER_VERSION:
		return GREETER_OTHER_VERSION;
	case EXCHANGE_BAD:
		return GREETER_BAD;
	case EXCHANGE_DONE:
		if (hello.greeting.kind == GREETING_HELLO)
			return GREETER_DONE;
		break;
	case EXCHANGE_REFUSED:
		break;
	}
	*reason = "an answer instead of a greeting";
	return GREETER_BAD;
}

static_assert(EXCHANGE_SIZE <= GREETER_HELLO_MAX && REFUSAL_SIZE <= GREETER_REFUSAL_MAX, "fit");

static const struct greeter_language language = {
	.name = "verbs",
	.hello_size = EXCHANGE_SIZE,
	.judge = judge_hello,
	.refuse = refusal_encode,
};

/* Who listens everywhere can be called everywhere, but only with the adapter's own address will
 * there be a GID for it. */
static void tell_own_address(struct verbs_listener *listener)
{
	struct sockaddr_storage bound;
	socklen_t length = sizeof(bound);
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&bound;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&bound;
	bool everywhere = false;
	char own[INET6_ADDRSTRLEN];

	if (getsockname(listener->socket->greeter.socket, (struct sockaddr *)&bound, &length) != 0)
		return;
	if (bound.ss_family == AF_INET6)
		everywhere = IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
	else if (bound.ss_family == AF_INET)
		everywhere = v4->sin_addr.s_addr == htonl(INADDR_ANY);
	if (!everywhere || !gid_address(verbs_device_of(listener->base.device), own, sizeof(own)))
		return;
	/* The port is at the same place in both families. */
	snprintf(listener->base.address, sizeof(listener->base.address),
		 strchr(own, ':') ? "[%s]:%u" : "%s:%u", own, ntohs(v4->sin_port));
}

enum rmr_status socket_listener_init(struct verbs_listener *listener, const char *address)
{
	enum rmr_status status = path_check_device(verbs_device_of(listener->base.device));

	if (status != RMR_OK)
		return status;
	listener->socket = calloc(1, sizeof(*listener->socket));
	if (!listener->socket)
		return error_set(RMR_NO_MEMORY, "no memory for a listener");
	status = greeter_init(&listener->socket->greeter, &listener->base, &language, address);
	if (status != RMR_OK) {
		free(listener->socket);
		return status;
	}
	tell_own_address(listener);
	return RMR_OK;
}

void socket_listener_fini(struct verbs_listener *listener)
{
	greeter_fini(&listener->socket->greeter);
	free(listener->socket);
}

enum rmr_status socket_listener_next(struct verbs_listener *listener, struct verbs_request *request,
				     int *wait_ms)
{
	struct greeter_caller caller;
	enum rmr_status status = greeter_next(&listener->socket->greeter, &caller, wait_ms);
	struct exchange *hello;
	const char *reason;

	if (status != RMR_OK)
		return status;
	request->caller = calloc(1, sizeof(*request->caller));
	if (!request->caller) {
		log_warn_limited("verbs: caller %s dropped: no memory", caller.peer);
		close(caller.fd);
		*wait_ms = 0; /* others may wait */
		return RMR_AGAIN;
	}
	request->caller->fd = caller.fd;
	request->caller->handshake_timeout_ms = listener->base.options.handshake_timeout_ms;
	hello = &request->caller->hello;
	(void)exchange_decode(caller.hello, EXCHANGE_SIZE, hello, &reason); /* judged already */
	request->greeting = hello->greeting;
	request->reads_out = hello->reads_in;
	request->reads_in = hello->reads_out;
	memcpy(request->base.peer, caller.peer, sizeof(request->base.peer));
	request->base.private_length = hello->greeting.private_length;
	memcpy(request->base.private_data, hello->greeting.private_data,
	       hello->greeting.private_length);
	return RMR_OK;
}

void socket_reject(struct verbs_request *request, const char *reason)
{
	greeter_refuse(&language, request->caller->fd, reason);
	free(request->caller);
	request->caller = NULL;
}

/* From INIT to an ACCEPT that is on its way. The socket is watched before the queue pair can
 * receive: what may still fail after that is little. */
static enum rmr_status answer(struct verbs_conn *conn, const struct exchange *hello)
{
	int fd = conn->socket->fd;
	uint8_t bytes[EXCHANGE_SIZE];
	struct path_end own;
	enum rmr_status status = path_begin(conn, fd, GREETING_ACCEPT, &own);

	if (status == RMR_OK)
		status = path_check(&own, hello);
	if (status == RMR_OK)
		status = path_check_caller(conn, fd, hello);
	if (status == RMR_OK)
		status = watch(conn);
	if (status == RMR_OK)
		status = path_join(conn, &own, hello);
	if (status != RMR_OK)
		return status;
	verbs_conn_take_greeting(conn, &hello->greeting);
	exchange_encode(bytes, &own.exchange);
	if (send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(bytes))
		return error_errno(RMR_DISCONNECTED, errno, "the caller hung up");
	return RMR_OK;
}

enum rmr_status socket_accept(struct verbs_request *request, struct verbs_conn *conn)
{
	struct socket_caller *caller = request->caller;
	int fd = caller->fd;
	char reason[GREETING_TEXT_MAX + 1];
	enum rmr_status status = attach(conn, fd);

	request->caller = NULL;
	if (status != RMR_OK)
		goto refuse;
	conn->socket->ready_deadline_ns = clock_deadline_ns(caller->handshake_timeout_ms);
	status = verbs_conn_prepare(conn);
	if (status != RMR_OK)
		goto detach;
	status = answer(conn, &caller->hello);
	if (status != RMR_OK)
		goto unprepare;
	verbs_conn_open(conn, false);
	free(caller);
	return RMR_OK;

unprepare:
	verbs_conn_unprepare(conn);
detach:
	(void)detach(conn);
refuse:
	snprintf(reason, sizeof(reason), "%s", error_chain());
	greeter_refuse(&language, fd, reason);
	free(caller);
	return status;
}

/* ------------------------------------------------------------------------------------------
 * Calling
 */

static enum rmr_status take_answer(const uint8_t *bytes, size_t have, struct exchange *answer)
{
	char text[GREETING_TEXT_MAX + 1];
	const char *reason;

	switch (exchange_decode(bytes, have, answer, &reason)) {
	case EXCHANGE_MORE:
		return RMR_AGAIN;
	case EXCHANGE_DONE:
		if (answer->greeting.kind != GREETING_ACCEPT)
			return error_set(RMR_PROTOCOL, "a greeting instead of an answer");
		return RMR_OK;
	case EXCHANGE_REFUSED:
		(void)refusal_decode(bytes, have, text);
		return error_set(RMR_REFUSED, "the listener said no: %s", text);
	case EXCHANGE_OTHER_VERSION:
		return error_set(RMR_PROTOCOL,
				 "the listener speaks another version, we speak %u; use the same "
				 "release on both sides",
				 GREETING_VERSION);
	case EXCHANGE_BAD:
		break;
	}
	return error_set(RMR_PROTOCOL, "%s: something else listens at this port", reason);
}

static enum rmr_status hear_answer(int fd, uint64_t deadline_ns, struct exchange *answer)
{
	uint8_t bytes[EXCHANGE_ANSWER_MAX];
	size_t have = 0;

	for (;;) {
		enum rmr_status status = dial_await(fd, POLLIN, deadline_ns, "from the listener");
		ssize_t got;

		if (status != RMR_OK)
			return status;
		got = recv(fd, bytes + have, sizeof(bytes) - have, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (got <= 0)
			return error_errno(RMR_REFUSED, got < 0 ? errno : ECONNRESET,
					   "the listener hung up without an answer; its log may "
					   "say why, or it is no Remora");
		have += (size_t)got;
		status = take_answer(bytes, have, answer);
		if (status != RMR_AGAIN)
			return status;
	}
}

static enum rmr_status say(int fd, const uint8_t *bytes, size_t length)
{
	/* The buffer of a fresh socket takes it. */
	if (send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)length)
		return error_errno(RMR_REFUSED, errno, "the listener hung up");
	return RMR_OK;
}

/* From INIT to a READY that is on its way. */
static enum rmr_status call(struct verbs_conn *conn, uint64_t deadline_ns)
{
	int fd = conn->socket->fd;
	uint8_t bytes[EXCHANGE_SIZE], ready[EXCHANGE_READY_SIZE];
	struct path_end own;
	struct exchange peer;
	enum rmr_status status = path_begin(conn, fd, GREETING_HELLO, &own);

	if (status != RMR_OK)
		return status;
	exchange_encode(bytes, &own.exchange);
	status = say(fd, bytes, sizeof(bytes));
	if (status == RMR_OK)
		status = hear_answer(fd, deadline_ns, &peer);
	if (status == RMR_OK)
		status = path_check(&own, &peer);
	if (status == RMR_OK)
		status = watch(conn);
	if (status == RMR_OK)
		status = path_join(conn, &own, &peer);
	if (status != RMR_OK)
		return status;
	verbs_conn_take_greeting(conn, &peer.greeting);
	exchange_encode_ready(ready);
	return say(fd, ready, sizeof(ready));
}

static void note_peer(struct verbs_conn *conn)
{
	struct verbs_socket *socket = conn->socket;
	struct sockaddr_storage peer;
	socklen_t length = sizeof(peer);

	if (getpeername(socket->fd, (struct sockaddr *)&peer, &length) == 0)
		inet_format((struct sockaddr *)&peer, length, conn->base.peer,
			    sizeof(conn->base.peer));
	/* The listener's ACCEPT says that it is ready; there is nothing more to come. */
	socket->peer_ready = true;
	exchange_encode_ready(socket->bytes);
	socket->have = EXCHANGE_READY_SIZE;
}

enum rmr_status socket_connect(struct verbs_conn *conn, const char *address, uint64_t deadline_ns)
{
	enum rmr_status status = path_check_device(conn_device(conn));
	int fd = -1;

	if (status == RMR_OK)
		status = dial(address, deadline_ns, &fd);
	if (status != RMR_OK)
		return status;
	status = attach(conn, fd);
	if (status != RMR_OK) {
		close(fd);
		return status;
	}
	note_peer(conn);
	status = verbs_conn_prepare(conn);
	if (status != RMR_OK)
		goto close;
	status = call(conn, deadline_ns);
	if (status != RMR_OK)
		goto unprepare;
	verbs_conn_open(conn, true);
	return RMR_OK;

unprepare:
	verbs_conn_unprepare(conn);
close:
	socket_close(conn);
	return status;
}
