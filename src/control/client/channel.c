/*
 * The connection: bytes between a socket (or TLS) and nghttp2, and waiting for them.
 *
 * Waiting. An answer mostly comes after a few microseconds, or as long as the server needs to move
 * a value; waking up takes as long again. So the wheel is turned for about as long as the last
 * answers took, at most options.spin_us, before it sleeps on the socket and the data plane
 * together. Where answers take longer than that it sleeps at once.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/client/internal.h"
#include "fabric/inet.h"

#define WINDOW	      (32 << 20) /* bytes that the server may send before we say so */
#define FRAME	      262144u
#define FIRST_WAIT_NS 50000u
#define SPINS	      8u /* between looks at the clock */

void channel_lose(struct control_channel *channel, const char *format, ...)
{
	va_list args;
	size_t length;

	if (channel->is_lost)
		return; /* the first reason counts */
	channel->is_lost = true;
	va_start(args, format);
	vsnprintf(channel->why, sizeof(channel->why), format, args);
	va_end(args);
	length = strlen(channel->why);
	if (!channel->was_heard)
		snprintf(channel->why + length, sizeof(channel->why) - length,
			 "; is it the port of kv-server --listen-addr? With TLS write https://");
}

void channel_close(kv_control_t *control)
{
	struct control_channel *channel = &control->channel;

	nghttp2_session_del(channel->session);
	channel_tls_end(control);
	if (channel->fd >= 0)
		close(channel->fd);
	channel->session = NULL;
	channel->fd = -1;
	channel->output_left = 0;
	channel->is_leaving = false;
	channel->is_lost = true;
}

/* ------------------------------------------------------------------------------------------
 * Connecting
 */

/* 0, or what is wrong as an errno. */
static int connect_socket(int fd, const struct addrinfo *to, uint64_t deadline_ns)
{
	struct pollfd ready = {.fd = fd, .events = POLLOUT};
	socklen_t length = sizeof(int);
	int error = 0;

	if (connect(fd, to->ai_addr, to->ai_addrlen) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return errno;
	for (;;) {
		int count = poll(&ready, 1, clock_remaining_ms(deadline_ns));

		if (count == 0)
			return ETIMEDOUT;
		if (count > 0)
			break;
		if (errno != EINTR)
			return errno;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length))
		return errno;
	return error;
}

static int connect_one(struct control_channel *channel, const struct addrinfo *to,
		       uint64_t deadline_ns)
{
	int one = 1, error;

	channel->fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (channel->fd < 0)
		return errno;
	(void)setsockopt(channel->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	error = connect_socket(channel->fd, to, deadline_ns);
	if (error) {
		close(channel->fd);
		channel->fd = -1;
	}
	return error;
}

static int connect_any(kv_control_t *control, uint64_t deadline_ns)
{
	const struct control_url *url = &control->url;
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	int found = getaddrinfo(url->host, url->port, &hints, &list), error = 0;

	if (found)
		return control_error(control, KV_DISCONNECTED, "%s: %s", url->host,
				     gai_strerror(found));
	for (const struct addrinfo *at = list; at && control->channel.fd < 0; at = at->ai_next)
		error = connect_one(&control->channel, at, deadline_ns);
	freeaddrinfo(list);
	if (control->channel.fd >= 0)
		return KV_OK;
	if (error == ECONNREFUSED)
		return control_error(control, KV_DISCONNECTED,
				     "%s: nobody listens there; kv-server --listen-addr %s starts "
				     "a server that does",
				     url->authority, url->authority);
	return control_error(control, error == ETIMEDOUT ? KV_TIMEOUT : KV_DISCONNECTED, "%s: %s",
			     url->authority, strerror(error));
}

static int begin_session(kv_control_t *control)
{
	const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
		{NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME},
	};
	struct control_channel *channel = &control->channel;

	if (nghttp2_session_client_new(&channel->session, control->callbacks, control) ||
	    nghttp2_submit_settings(channel->session, 0, settings,
				    sizeof(settings) / sizeof(settings[0])) ||
	    nghttp2_session_set_local_window_size(channel->session, 0, 0, WINDOW))
		return control_error(control, KV_NO_MEMORY, "no memory for a connection");
	return KV_OK;
}

/* Whether the key may travel by this connection: not where it can be read on its way. */
static int check_path(kv_control_t *control)
{
	struct sockaddr_storage peer;
	socklen_t length = sizeof(peer);

	if (!control->secret.length || control->url.is_tls || control->options.insecure)
		return KV_OK;
	if (getpeername(control->channel.fd, (struct sockaddr *)&peer, &length) == 0 &&
	    inet_is_loopback((struct sockaddr *)&peer))
		return KV_OK;
	return control_error(control, KV_DENIED,
			     "%s: without TLS the key could be read on its way: write https://, "
			     "or in a network that you trust give the option 'insecure'",
			     control->url.authority);
}

int channel_connect(kv_control_t *control, uint64_t deadline_ns)
{
	struct control_channel *channel = &control->channel;
	int status;

	channel_close(control);
	if (!channel->input)
		channel->input = malloc(CHANNEL_BUFFER);
	if (!channel->input)
		return control_error(control, KV_NO_MEMORY, "no memory for a connection");
	status = connect_any(control, deadline_ns);
	if (status == KV_OK)
		status = check_path(control);
	if (status == KV_OK && control->url.is_tls)
		status = channel_tls_begin(control, deadline_ns);
	if (status == KV_OK)
		status = begin_session(control);
	if (status != KV_OK) {
		channel_close(control);
		return status;
	}
	channel->is_lost = false;
	channel->wants_write = false;
	channel->expected_ns = FIRST_WAIT_NS;
	return KV_OK;
}

/* ------------------------------------------------------------------------------------------
 * Bytes
 */

static ssize_t read_some(struct control_channel *channel)
{
	if (channel->tls)
		return channel_tls_read(channel, channel->input, CHANNEL_BUFFER);
	return recv(channel->fd, channel->input, CHANNEL_BUFFER, MSG_DONTWAIT);
}

static ssize_t write_some(struct control_channel *channel)
{
	if (channel->tls)
		return channel_tls_write(channel, channel->output, channel->output_left);
	return send(channel->fd, channel->output, channel->output_left,
		    MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Sends as much as the socket takes. */
static void send_all(struct control_channel *channel)
{
	channel->wants_write = false;
	while (!channel->is_lost) {
		ssize_t count;

		if (!channel->output_left) {
			count = nghttp2_session_mem_send(channel->session, &channel->output);
			if (count < 0)
				channel_lose(channel, "HTTP/2: %s", nghttp2_strerror((int)count));
			if (count <= 0)
				return;
			channel->output_left = (size_t)count;
		}
		count = write_some(channel);
		if (count > 0) {
			channel->output += count;
			channel->output_left -= (size_t)count;
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			channel->wants_write = true;
			return;
		} else if (errno != EINTR) {
			channel_lose(channel, "the connection was lost: %s", strerror(errno));
		}
	}
}

/* Takes in what has come. Returns whether there was something. */
static bool receive_all(struct control_channel *channel)
{
	bool any = false;

	while (!channel->is_lost) {
		ssize_t count = read_some(channel), used;

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		any = true;
		if (count < 0)
			channel_lose(channel, "the connection was lost: %s", strerror(errno));
		if (count == 0)
			channel_lose(channel, "the server has closed the connection");
		if (count <= 0)
			break;
		used = nghttp2_session_mem_recv(channel->session, channel->input, (size_t)count);
		if (used < 0)
			channel_lose(channel, "this is no server of gRPC: %s",
				     nghttp2_strerror((int)used));
		channel->was_heard |= used > 0;
		if ((size_t)count < CHANNEL_BUFFER && !channel->tls)
			break; /* there is no more, most likely */
	}
	return any;
}

void channel_look(struct control_channel *channel)
{
	(void)receive_all(channel);
}

/* ------------------------------------------------------------------------------------------
 * Waiting
 */

static void sleep_until(kv_control_t *control, uint64_t deadline_ns)
{
	struct control_channel *channel = &control->channel;
	struct rmr_domains *domains = control->plane.link ? control->plane.domains : NULL;
	struct pollfd fds[2] = {
		{.fd = channel->fd, .events = channel->wants_write ? POLLIN | POLLOUT : POLLIN},
		{.fd = -1, .events = POLLIN},
	};

	if (domains && rmr_domains_arm(domains) != RMR_OK)
		return;
	if (domains)
		fds[1].fd = rmr_domains_fd(domains);
	(void)poll(fds, 2, clock_remaining_ms(deadline_ns));
}

/* How long to stay awake. */
static uint64_t spin_ns(const kv_control_t *control)
{
	uint64_t most =
		control->options.spin_us > 0 ? (uint64_t)control->options.spin_us * 1000u : 0;
	uint64_t expected = control->channel.expected_ns;

	if (expected > most)
		return 0;
	return 2 * expected < most ? 2 * expected : most;
}

void channel_learn(kv_control_t *control, uint64_t begun_ns)
{
	struct control_channel *channel = &control->channel;
	uint64_t took_ns = clock_quick_ns() - begun_ns;

	/* An answer that took very long says little about the next. */
	if (took_ns > 8 * channel->expected_ns + 8 * FIRST_WAIT_NS)
		took_ns = 8 * channel->expected_ns + 8 * FIRST_WAIT_NS;
	channel->expected_ns = (7 * channel->expected_ns + took_ns) / 8;
}

bool channel_turn(kv_control_t *control, uint64_t begun_ns, uint64_t deadline_ns)
{
	struct control_channel *channel = &control->channel;
	uint64_t now_ns;

	send_all(channel);
	do {
		for (unsigned i = 0; i < SPINS; i++) {
			if (channel->is_lost)
				return false;
			if (receive_all(channel)) {
				send_all(channel);
				return !channel->is_lost;
			}
			plane_poll(control);
			cpu_relax();
		}
		now_ns = clock_quick_ns();
		if (now_ns >= deadline_ns)
			return false;
	} while (now_ns < begun_ns + spin_ns(control));
	sleep_until(control, deadline_ns);
	return true;
}
