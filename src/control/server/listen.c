/*
 * Listening: the address that people write, the socket, and who is let in. Without a host it is
 * this machine alone: a service that asks nobody for a key unless told to should not be
 * everybody's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "control/server/internal.h"
#include "fabric/inet.h"

#define DEFAULT_HOST "127.0.0.1"
#define DEFAULT_PORT "50051"
#define BACKLOG	     256
#define ACCEPTS_MOST 32 /* a turn */

bool control_listen_address(const char *text, char address[CONTROL_ADDRESS])
{
	const char *colon = strrchr(text, ':'), *bracket = strrchr(text, ']');
	const char *port = DEFAULT_PORT, *host = text;
	size_t host_length = strlen(text);
	bool bare_six = text[0] != '[' && colon && strchr(text, ':') != colon;
	int length;

	if (text[0] && !text[strspn(text, "0123456789")]) {
		port = text;
		host_length = 0;
	} else if (colon && !bare_six && (!bracket || colon > bracket)) {
		port = colon + 1;
		host_length = (size_t)(colon - text);
	}
	if (!port[0] || strlen(port) > 5 || port[strspn(port, "0123456789")] || atoi(port) > 65535)
		return false;
	if (!host_length) {
		host = DEFAULT_HOST;
		host_length = strlen(host);
	}
	length = snprintf(address, CONTROL_ADDRESS, "%s%.*s%s:%s", bare_six ? "[" : "",
			  (int)host_length, host, bare_six ? "]" : "", port);
	return length > 0 && (size_t)length < CONTROL_ADDRESS;
}

/* ------------------------------------------------------------------------------------------
 * Taking connections in. The loop's thread.
 */

/* No descriptors are left: the next look at everybody tries again. */
static void pause_accepting(struct kv_control_server *control)
{
	log_warn_limited("gRPC: no connection can be taken: %s; 'ulimit -n' permits more",
			 strerror(errno));
	control_watch_remove(control, &control->listener);
	control->accept_paused = true;
}

void control_listen_resume(struct kv_control_server *control)
{
	if (control->accept_paused && control->listener.fd >= 0)
		control->accept_paused = !control_watch_add(control, &control->listener, EPOLLIN);
}

/* If clients need a key, the oldest connection that has shown none goes for a new one: so clients
 * without a key cannot keep others out. */
static bool make_way(struct kv_control_server *control)
{
	if (!access_needs_key(control))
		return false;
	list_for_each (at, &control->conns) {
		struct h2_conn *conn = list_entry(at, struct h2_conn, link);

		if (conn->has_key || conn->state == H2_OVER)
			continue;
		h2_end(conn, "it has shown no key, and makes way for another");
		return true;
	}
	return false;
}

static void let_in(struct kv_control_server *control, int fd, const struct sockaddr *from,
		   socklen_t length)
{
	char peer[H2_PEER];

	if (control->conn_count >= control->options.max_connections && !make_way(control)) {
		figure_add(&control->figures.connections_refused, 1);
		log_warn_limited("gRPC: %u connections are open; another is turned away",
				 control->conn_count);
		close(fd);
		return;
	}
	inet_format(from, length, peer, sizeof(peer));
	h2_open(control, fd, peer, inet_is_loopback(from));
}

static void accept_some(struct control_watch *watch, uint32_t events)
{
	struct kv_control_server *control =
		(struct kv_control_server *)((char *)watch -
					     offsetof(struct kv_control_server, listener));

	(void)events;
	for (int i = 0; i < ACCEPTS_MOST; i++) {
		struct sockaddr_storage from;
		socklen_t length = sizeof(from);
		int fd = accept4(watch->fd, (struct sockaddr *)&from, &length,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0)
			let_in(control, fd, (struct sockaddr *)&from, length);
		else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			return pause_accepting(control);
		else if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

/* ------------------------------------------------------------------------------------------
 * The socket
 */

static int open_socket(const struct addrinfo *at)
{
	int one = 1, error;
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

int control_listen_open(struct kv_control_server *control)
{
	struct sockaddr_storage bound;
	socklen_t length = sizeof(bound);
	struct addrinfo *list;
	int fd = -1, error = 0;

	if (inet_resolve(control->address, true, &list) != RMR_OK)
		return control_fail_rmr(error_status());
	for (const struct addrinfo *at = list; at && fd < 0; at = at->ai_next) {
		fd = open_socket(at);
		error = errno;
	}
	freeaddrinfo(list);
	if (fd < 0)
		return control_fail(
			error == EADDRINUSE ? KV_BUSY : KV_INVALID,
			"cannot listen for gRPC at %s: %s%s", control->address, strerror(error),
			error == EADDRINUSE ? "; another program listens there: choose another port"
					    : "; HOST:PORT of this machine is meant");
	control->listener = (struct control_watch){.fd = fd, .ready = accept_some};
	if (getsockname(fd, (struct sockaddr *)&bound, &length) == 0)
		inet_format((struct sockaddr *)&bound, length, control->bound,
			    sizeof(control->bound));
	if (access_needs_key(control) && !control->uses_tls && !control->options.insecure_tokens &&
	    !inet_is_loopback((struct sockaddr *)&bound))
		log_warn("gRPC at %s serves this host alone: without TLS the key can be read on "
			 "its way; start with --tls-cert and --tls-key",
			 control->bound);
	if (!access_needs_key(control) && !control->options.tls_client_ca &&
	    !inet_is_loopback((struct sockaddr *)&bound))
		log_warn("there is no key: everybody who can reach gRPC at %s may read and change "
			 "everything; give --key-file, or --listen-addr 127.0.0.1",
			 control->bound);
	if (!control_watch_add(control, &control->listener, EPOLLIN))
		return control_fail(KV_INTERNAL, "epoll: %s", strerror(errno));
	return KV_OK;
}

void control_listen_close(struct kv_control_server *control)
{
	if (control->listener.fd < 0)
		return;
	if (!control->accept_paused)
		control_watch_remove(control, &control->listener);
	close(control->listener.fd);
	control->listener.fd = -1;
	control->accept_paused = false;
}
