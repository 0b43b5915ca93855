/*
 * Connecting: dial, say HELLO, read the answer.
 *
 * Runs in the caller's thread, which waits; nothing of the queue is touched before conn_open.
 * One deadline covers all steps but the resolution of a name.
 *
 * What can go wrong is told apart, because people do different things about it: nobody listens
 * (REFUSED), nobody answers (TIMEOUT), the name is wrong (BAD_ADDRESS), it is somebody else
 * (PROTOCOL).
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/dial.h"
#include "fabric/inet.h"
#include "fabric/tcp/internal.h"

static enum rmr_status say_hello(struct tcp_conn *conn, int fd)
{
	uint8_t bytes[HANDSHAKE_SIZE];

	conn_greeting(conn, HANDSHAKE_HELLO, bytes);
	/* The buffer of a fresh socket takes 128 bytes. */
	if (send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) != sizeof(bytes))
		return error_errno(RMR_REFUSED, errno, "the listener hung up");
	return RMR_OK;
}

enum rmr_status connect_hear(int fd, uint64_t deadline_ns, const struct connect_form *form,
			     void *answer)
{
	uint8_t bytes[CONNECT_ANSWER_MAX];
	size_t have = 0;
	uint16_t version;

	for (;;) {
		const char *reason;
		enum rmr_status status = dial_await(fd, POLLIN, deadline_ns, "from the listener");
		ssize_t got;

		if (status != RMR_OK)
			return status;
		got = recv(fd, bytes + have, form->size - have, 0);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (got <= 0)
			return error_errno(RMR_REFUSED, got < 0 ? errno : ECONNRESET,
					   "the listener hung up without an answer; its log may "
					   "say why, or it is no Remora");
		have += (size_t)got;
		switch (form->decode(bytes, have, answer, &reason)) {
		case HANDSHAKE_MORE:
			continue;
		case HANDSHAKE_DONE:
			return RMR_OK;
		case HANDSHAKE_VERSION_DIFFERS:
			memcpy(&version, bytes + offsetof(struct handshake, version),
			       sizeof(version));
			return error_set(RMR_PROTOCOL,
					 "the listener speaks version %u, we speak %u; use the "
					 "same release on both sides",
					 version, form->version);
		case HANDSHAKE_BAD:
			return error_set(RMR_PROTOCOL, "%s: something else listens at this port",
					 reason);
		}
	}
}

enum rmr_status connect_judge(struct handshake *answer)
{
	for (int i = 0; i < answer->body_length && answer->kind == HANDSHAKE_REJECT; i++) {
		if (answer->body[i] < ' ' || answer->body[i] > '~')
			answer->body[i] = '?'; /* a stranger's text goes to somebody's terminal */
	}
	if (answer->kind == HANDSHAKE_REJECT)
		return error_set(RMR_REFUSED, "the listener said no: %.*s", answer->body_length,
				 (const char *)answer->body);
	if (answer->kind != HANDSHAKE_ACCEPT)
		return error_set(RMR_PROTOCOL, "a greeting instead of an answer");
	return RMR_OK;
}

static enum handshake_result decode_answer(const uint8_t *bytes, size_t have, void *answer,
					   const char **reason)
{
	return handshake_decode(bytes, have, answer, reason);
}

static const struct connect_form form = {
	.size = HANDSHAKE_SIZE,
	.version = HANDSHAKE_VERSION,
	.decode = decode_answer,
};

static enum rmr_status shake_hands(struct tcp_conn *conn, int fd, uint64_t deadline_ns)
{
	struct handshake answer;
	enum rmr_status status = say_hello(conn, fd);

	if (status == RMR_OK)
		status = connect_hear(fd, deadline_ns, &form, &answer);
	if (status == RMR_OK)
		status = connect_judge(&answer);
	if (status != RMR_OK)
		return status;
	memcpy(conn->base.peer_private, answer.body, answer.body_length);
	conn->base.peer_private_length = answer.body_length;
	return conn_open(conn, fd, &answer);
}

enum rmr_status tcp_connect(struct rmr_conn *base, const char *address, uint64_t deadline_ns)
{
	struct tcp_conn *conn = (struct tcp_conn *)base;
	struct sockaddr_storage peer;
	socklen_t length = sizeof(peer);
	enum rmr_status status;
	int fd = -1;

	status = dial(address, deadline_ns, &fd);
	if (status != RMR_OK)
		return status;
	if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0)
		inet_format((struct sockaddr *)&peer, length, base->peer, sizeof(base->peer));
	status = shake_hands(conn, fd, deadline_ns);
	if (status != RMR_OK)
		close(fd);
	return status;
}
