/*
 * The acceptor: a thread that takes callers from all listeners, looks whether they speak our
 * protocol and whether there is room, and hands each to the worker that has the fewest. What can be
 * said about a caller before it is connected is said here; the greeting is the worker's.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "server/internal.h"

/* Listeners have deadlines for silent callers, which no descriptor tells of. */
#define LOOK_MS 500
/* When listening fails for a moment, for want of descriptors for instance. */
#define RETRY_MS 100
/* Between looks whether there is room for strangers again. */
#define CROWDED_MS 10
/* Callers taken from one listener before the others have their turn. */
#define BUDGET 64

/* NULL: it is one of ours. */
static const char *find_fault(const struct rmr_request *request, char *text, size_t size)
{
	struct kv_introduction introduction;
	size_t length;
	const void *data = rmr_request_private(request, &length);

	if (length < sizeof(introduction))
		return "this is a Remora key-value server, and you are no client of it";
	memcpy(&introduction, data, sizeof(introduction));
	if (introduction.magic != KV_PROTOCOL_MAGIC)
		return "this is a Remora key-value server, and you are no client of it";
	if (introduction.version == KV_PROTOCOL_VERSION)
		return NULL;
	snprintf(text, size, "the server speaks version %u of the protocol, the client version %u",
		 KV_PROTOCOL_VERSION, introduction.version);
	return text;
}

static struct worker *find_worker(struct kv_server *server)
{
	struct worker *best = &server->workers[0];
	unsigned fewest = UINT32_MAX;

	for (unsigned i = 0; i < server->worker_count; i++) {
		/* Relaxed: a rough balance is enough. */
		unsigned sessions = atomic_load_explicit(&server->workers[i].session_count,
							 memory_order_relaxed);

		if (sessions < fewest) {
			fewest = sessions;
			best = &server->workers[i];
		}
	}
	return best;
}

static void turn_down(struct kv_server *server, struct rmr_request *request, const char *reason)
{
	log_warn_limited("%s turned down: %s", rmr_request_peer(request), reason);
	counter_add(&server->clients_refused, 1);
	rmr_reject(request, reason);
}

/* What tells one peer from another in the text of its address: the user by shm, else the host. */
static void find_host(const char *peer, enum path_kind kind, const char **host, size_t *length)
{
	const char *mark = kind == PATH_SHM ? strstr(peer, "uid ") : strrchr(peer, ':');

	*host = kind == PATH_SHM && mark ? mark : peer;
	*length = kind == PATH_SHM || !mark ? strlen(*host) : (size_t)(mark - peer);
}

static bool is_of(const struct session *session, unsigned path, const char *host, size_t length)
{
	const struct kv_server *server = session->worker->server;
	const char *other;
	size_t other_length;

	if ((server->paths[session->path].kind == PATH_SHM) !=
	    (server->paths[path].kind == PATH_SHM))
		return false;
	find_host(session->peer, server->paths[path].kind, &other, &other_length);
	return length == other_length && memcmp(host, other, length) == 0;
}

/* How many sessions of the caller's host or user there are. */
static unsigned count_peer(struct kv_server *server, unsigned path,
			   const struct rmr_request *request)
{
	const char *host;
	unsigned count = 0;
	size_t length;

	find_host(rmr_request_peer(request), server->paths[path].kind, &host, &length);
	for (unsigned i = 0; i < server->worker_count; i++) {
		struct worker *worker = &server->workers[i];

		pthread_mutex_lock(&worker->lock);
		list_for_each (link, &worker->mail)
			count += is_of(list_entry(link, struct session, link), path, host, length);
		list_for_each (link, &worker->sessions)
			count += is_of(list_entry(link, struct session, link), path, host, length);
		pthread_mutex_unlock(&worker->lock);
	}
	return count;
}

static void take(struct kv_server *server, unsigned path, struct rmr_request *request)
{
	struct session *session;
	char text[128];
	const char *fault = find_fault(request, text, sizeof(text));

	if (fault) {
		turn_down(server, request, fault);
		return;
	}
	/* Relaxed: what counts is session_admit. This spares the caller a greeting. */
	if (atomic_load_explicit(&server->clients, memory_order_relaxed) >=
	    server->options.max_clients) {
		snprintf(text, sizeof(text), KV_TOO_MANY_CLIENTS ": the server takes %u",
			 server->options.max_clients);
		turn_down(server, request, text);
		return;
	}
	if (server->options.max_clients_per_peer &&
	    count_peer(server, path, request) >= server->options.max_clients_per_peer) {
		snprintf(text, sizeof(text), KV_TOO_MANY_CLIENTS ": the server takes %u of one %s",
			 server->options.max_clients_per_peer,
			 server->paths[path].kind == PATH_SHM ? "user" : "address");
		turn_down(server, request, text);
		return;
	}
	session = aligned_alloc(_Alignof(struct session), sizeof(*session));
	if (!session) {
		turn_down(server, request, "the server has no memory for another client");
		return;
	}
	memset(session, 0, sizeof(*session));
	atomic_fetch_add_explicit(&server->strangers, 1, memory_order_relaxed);
	session->request = request;
	snprintf(session->peer, sizeof(session->peer), "%s", rmr_request_peer(request));
	session->path = path;
	worker_give(find_worker(server), session);
}

/* Whether there are as many strangers as are taken: callers wait until they are fewer. */
static bool is_crowded(struct kv_server *server)
{
	/* Relaxed: only this thread adds. */
	return atomic_load_explicit(&server->strangers, memory_order_relaxed) >=
	       SERVER_MAX_STRANGERS;
}

/* Takes who waits at this listener. False: nobody ever will any more. */
static bool look(struct kv_server *server, unsigned path)
{
	for (int i = 0; i < BUDGET && !is_crowded(server); i++) {
		struct rmr_request *request;
		enum rmr_status status =
			rmr_listener_next(server->paths[path].listener, 0, &request);

		if (status == RMR_TIMEOUT)
			return true;
		if (status == RMR_NO_DEVICE) {
			log_error("no more clients by %s: %s", server->paths[path].name,
				  error_chain());
			return false;
		}
		if (status != RMR_OK) {
			log_warn_limited("%s: %s", server->paths[path].name, error_chain());
			usleep(RETRY_MS * 1000);
			return true;
		}
		take(server, path, request);
	}
	return true;
}

void *acceptor_run(void *argument)
{
	struct kv_server *server = argument;
	struct pollfd fds[SERVER_MAX_PATHS + 1];

	for (unsigned i = 0; i < server->path_count; i++) {
		struct rmr_listener *listener = server->paths[i].listener;

		fds[i] = (struct pollfd){.fd = listener ? rmr_listener_fd(listener) : -1,
					 .events = POLLIN};
	}
	fds[server->path_count] = (struct pollfd){.fd = server->stop_fd, .events = POLLIN};
	while (!fds[server->path_count].revents) {
		bool crowded = is_crowded(server);
		int ready = crowded ? poll(fds + server->path_count, 1, CROWDED_MS)
				    : poll(fds, server->path_count + 1, LOOK_MS);

		if (crowded)
			continue;
		/* On time-out all are looked at: see LOOK_MS. */
		for (unsigned i = 0; i < server->path_count; i++) {
			if (fds[i].fd >= 0 && (ready <= 0 || fds[i].revents) && !look(server, i))
				fds[i].fd = -1;
		}
	}
	return NULL;
}
