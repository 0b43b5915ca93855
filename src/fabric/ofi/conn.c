/*
 * Connecting and accepting: endpoint addresses and tokens are exchanged by a socket (greeting.h).
 *
 * Connecting runs in the caller's thread, which waits; the queue is locked only for what touches
 * it. libfabric connects endpoints by itself, when the first packet is sent. That is the caller's:
 * it says something at once, and the other side nothing before it has heard it (silent). Were both
 * to begin, libfabric would make two connections and take one of them back.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/dial.h"
#include "fabric/inet.h"
#include "fabric/ofi/internal.h"

/* ------------------------------------------------------------------------------------------
 * Tokens
 */

struct ofi_conn *conn_by_token(struct ofi_queue *queue, uint64_t token)
{
	uint32_t index = (uint32_t)(token & (OFI_CONNS_MAX - 1));
	struct ofi_conn *conn = index < queue->conn_capacity ? queue->conns[index] : NULL;

	return conn && conn->token == token ? conn : NULL;
}

static bool grow_table(struct ofi_queue *queue)
{
	uint32_t capacity = queue->conn_capacity ? 2 * queue->conn_capacity : 16;
	struct ofi_conn **conns;

	if (capacity > OFI_CONNS_MAX)
		return false;
	conns = realloc(queue->conns, capacity * sizeof(*conns));
	if (!conns)
		return false;
	memset(conns + queue->conn_capacity, 0, (capacity - queue->conn_capacity) * sizeof(*conns));
	queue->conns = conns;
	queue->conn_capacity = capacity;
	return true;
}

/* Gives conn a token, and its place in the table. */
static enum rmr_status take_token(struct ofi_conn *conn)
{
	struct ofi_queue *queue = ofi_queue_of(conn);
	uint32_t index = 0;
	uint64_t random;
	enum rmr_status status = key_random(&random);

	if (status != RMR_OK)
		return status;
	while (index < queue->conn_capacity && queue->conns[index])
		index++;
	if (index == queue->conn_capacity && !grow_table(queue))
		return error_set(RMR_LIMIT, "no room for one more connection on a queue");
	conn->token = (random & ~(uint64_t)(OFI_CONNS_MAX - 1)) | index;
	/* Index 0 with no random bit set would be no token; that will hardly ever happen. */
	if (conn->token == 0)
		conn->token = OFI_CONNS_MAX;
	queue->conns[index] = conn;
	return RMR_OK;
}

static void drop_token(struct ofi_conn *conn)
{
	struct ofi_queue *queue = ofi_queue_of(conn);

	if (conn_by_token(queue, conn->token) == conn)
		queue->conns[conn->token & (OFI_CONNS_MAX - 1)] = NULL;
}

/* ------------------------------------------------------------------------------------------
 * Greetings
 */

/* Writes what we say of ourselves. */
static enum rmr_status write_greeting(struct ofi_conn *conn, int fd, enum handshake_kind kind,
				      uint8_t *to)
{
	const struct ofi_queue *queue = ofi_queue_of(conn);
	struct greeting greeting = {.mode = ofi_device_of(queue)->mode, .token = conn->token};
	struct ofi_address address = queue->address;
	uint8_t handshake[HANDSHAKE_SIZE];
	enum rmr_status status = address_own(queue, fd, &address);

	memcpy(greeting.address, address.bytes, sizeof(greeting.address));
	greeting.address_length = address.length;
	strncpy(greeting.provider, ofi_device_of(queue)->info->fabric_attr->prov_name,
		sizeof(greeting.provider) - 1);
	conn_greeting(&conn->stream, kind, handshake);
	ofi_greeting_encode(to, &greeting, handshake);
	return status;
}

/* Is the peer one whom libfabric can reach from here? Then *address is where. */
static enum rmr_status check_peer(const struct ofi_queue *queue, const struct greeting *peer,
				  struct ofi_address *address)
{
	const char *own = ofi_device_of(queue)->info->fabric_attr->prov_name;

	*address = (struct ofi_address){.length = peer->address_length};
	memcpy(address->bytes, peer->address, sizeof(address->bytes));

	if (strncmp(own, peer->provider, sizeof(peer->provider) - 1) != 0)
		return error_set(RMR_PROTOCOL,
				 "it uses libfabric's '%s', we use '%s'; open the same device on "
				 "both sides",
				 peer->provider, own);
	return address_adapt(queue, address);
}

/* The connection is OPEN, with what the peer said; the lock is held. Undone by abandon. */
static enum rmr_status open_conn(struct ofi_conn *conn, int fd, const struct greeting *peer)
{
	struct ofi_queue *queue = ofi_queue_of(conn);
	struct ofi_address address;
	enum rmr_status status = check_peer(queue, peer, &address);

	if (status != RMR_OK)
		return status;
	conn->peer = endpoint_peer(queue, &address);
	if (!conn->peer)
		return RMR_PROTOCOL;
	conn->peer_token = peer->token;
	conn->reach_ns = clock_deadline_ns(conn->stream.base.options.dead_after_ms);
	conn->called = !conn->silent;
	conn->lends = conn->called && (peer->mode & ofi_device_of(queue)->mode & GREETING_PUSHED);
	conn->rings = peer->mode & GREETING_RUNG;
	conn->peer_awake = !conn->rings;
	conn_begin(&conn->stream, fd, &peer->handshake);
	return control_watch(conn);
}

/* Undoes what was done for a connection that did not come to be. The lock is held, and has been
 * since open_conn: nobody else has looked at it. The socket is the caller's. */
static void abandon(struct ofi_conn *conn)
{
	control_forget(conn);
	conn->stream.state = CONN_UNBORN;
	packet_drop_strays(conn);
	drop_token(conn);
	if (conn->peer)
		endpoint_drop_peer(ofi_queue_of(conn), conn->peer);
	conn->peer = NULL;
}

static enum rmr_status prepare(struct ofi_conn *conn)
{
	enum rmr_status status;

	list_init(&conn->blocked_link);
	list_init(&conn->leaving_link);
	list_init(&conn->opening_link);
	list_init(&conn->rung_link);
	list_init(&conn->unsure_link);
	conn->stream.fd = -1;
	queue_lock(tcp_queue_of(&conn->stream));
	status = take_token(conn);
	queue_unlock(tcp_queue_of(&conn->stream));
	return status;
}

/* ------------------------------------------------------------------------------------------
 * The two ways to a connection
 */

enum rmr_status ofi_accept(struct rmr_request *base, struct rmr_conn *conn_base)
{
	struct ofi_request *request = (struct ofi_request *)base;
	struct ofi_conn *conn = (struct ofi_conn *)conn_base;
	struct ofi_queue *queue = ofi_queue_of(conn);
	uint8_t bytes[GREETING_SIZE];
	enum rmr_status status = prepare(conn);

	if (status == RMR_OK)
		status = write_greeting(conn, request->fd, HANDSHAKE_ACCEPT, bytes);
	inet_keep_alive(request->fd, conn_base->options.dead_after_ms);
	queue_lock(&queue->stream);
	conn->silent = true;
	if (status == RMR_OK)
		status = open_conn(conn, request->fd, &request->hello);
	if (status == RMR_OK && socket_send(request->fd, bytes, sizeof(bytes)) != sizeof(bytes))
		status = error_errno(RMR_DISCONNECTED, errno, "the caller hung up");
	if (status != RMR_OK)
		abandon(conn);
	queue_unlock(&queue->stream);
	if (status != RMR_OK)
		ofi_reject(base, rmr_error_message());
	return status;
}

static_assert(offsetof(struct greeting, version) == offsetof(struct handshake, version) &&
		      GREETING_SIZE <= CONNECT_ANSWER_MAX,
	      "connect_hear can take it");

static enum handshake_result decode_answer(const uint8_t *bytes, size_t have, void *answer,
					   const char **reason)
{
	return ofi_greeting_decode(bytes, have, answer, reason);
}

static const struct connect_form form = {
	.size = GREETING_SIZE,
	.version = GREETING_VERSION,
	.decode = decode_answer,
};

static enum rmr_status shake_hands(struct ofi_conn *conn, int fd, uint64_t deadline_ns,
				   struct greeting *answer)
{
	uint8_t bytes[GREETING_SIZE];
	enum rmr_status status = write_greeting(conn, fd, HANDSHAKE_HELLO, bytes);

	if (status != RMR_OK)
		return status;
	/* The buffer of a fresh socket takes that much. */
	if (send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) != sizeof(bytes))
		return error_errno(RMR_REFUSED, errno, "the listener hung up");
	status = connect_hear(fd, deadline_ns, &form, answer);
	return status == RMR_OK ? connect_judge(&answer->handshake) : status;
}

enum rmr_status ofi_connect(struct rmr_conn *base, const char *address, uint64_t deadline_ns)
{
	struct ofi_conn *conn = (struct ofi_conn *)base;
	struct ofi_queue *queue = ofi_queue_of(conn);
	struct sockaddr_storage peer;
	socklen_t length = sizeof(peer);
	struct greeting answer;
	enum rmr_status status;
	int fd = -1;

	status = dial(address, deadline_ns, &fd);
	if (status != RMR_OK)
		return status;
	if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0)
		inet_format((struct sockaddr *)&peer, length, base->peer, sizeof(base->peer));
	status = prepare(conn);
	if (status == RMR_OK)
		status = shake_hands(conn, fd, deadline_ns, &answer);
	if (status == RMR_OK) {
		memcpy(base->peer_private, answer.handshake.body, answer.handshake.body_length);
		base->peer_private_length = answer.handshake.body_length;
		inet_keep_alive(fd, base->options.dead_after_ms);
	}
	queue_lock(&queue->stream);
	if (status == RMR_OK)
		status = open_conn(conn, fd, &answer);
	if (status == RMR_OK) {
		transmit_greet(&conn->stream);
		packet_take_strays(conn); /* came before the answer was read */
		receive_settle(&conn->stream, conn->stream.messages_done);
	} else {
		abandon(conn);
	}
	queue_unlock(&queue->stream);
	if (status != RMR_OK)
		close(fd);
	return status;
}

void ofi_conn_fini(struct rmr_conn *base)
{
	struct ofi_conn *conn = (struct ofi_conn *)base;
	struct ofi_queue *queue = ofi_queue_of(conn);

	tcp_conn_fini(base);
	queue_lock(&queue->stream);
	drop_token(conn);
	if (conn->peer)
		endpoint_drop_peer(queue, conn->peer);
	conn->peer = NULL;
	queue_unlock(&queue->stream);
}
