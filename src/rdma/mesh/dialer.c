/*
 * The dialer: a thread that calls the peers whose turn it is to be called, for rmr_connect blocks.
 *
 * It is started with the first peer to be called and ends with the mesh. It calls one peer after
 * the other, the one that waits longest first. A peer that does not answer at all holds up the
 * others for at most TIMEOUT_FIRST_MS at first; who answered late has twice the time the next time.
 * When it has a connection it puts it into the peer's `dial`, and tells the owner by an eventfd.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "rdma/mesh/internal.h"

#define TIMEOUT_FIRST_MS 500
#define TIMEOUT_LAST_MS	 2000
/* While a program waits for peers that are just being started. */
#define HASTY_MS 25

enum rmr_status mesh_dialer_init(struct rmr_mesh *mesh)
{
	struct mesh_dialer *dialer = &mesh->dialer;
	pthread_condattr_t attributes;

	pthread_mutex_init(&dialer->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&dialer->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	dialer->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (dialer->event_fd < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot make an eventfd");
	return mesh_watch(mesh, dialer->event_fd, NULL);
}

/* The one that is due first. NULL: none is wanted. */
static struct mesh_peer *find_next(struct rmr_mesh *mesh)
{
	struct mesh_peer *next = NULL;

	mesh_for_each (peer, mesh) {
		const struct mesh_dial *dial = &peer->dial;

		if (dial->is_wanted && !dial->is_ready &&
		    (!next || dial->next_ns < next->dial.next_ns))
			next = peer;
	}
	return next;
}

static void keep_reason(struct mesh_dial *dial, enum rmr_status status)
{
	/* Whoever turned us down as no part of its mesh will do so again. */
	dial->status = strstr(rmr_error_message(), MESH_REFUSAL) ? RMR_PROTOCOL : status;
	snprintf(dial->reason, sizeof(dial->reason), "%s", error_chain());
}

/* Without the lock: a connection to the peer, which is who we think. */
static enum rmr_status call(struct mesh_peer *peer, int timeout_ms, struct rmr_queue **queue,
			    struct rmr_conn **conn)
{
	struct rmr_mesh *mesh = peer->mesh;
	struct mesh_introduction introduction;
	char text[MESH_REASON_SIZE];
	struct rmr_conn_options options;
	struct rmr_conn_info info;
	enum rmr_status status;
	const char *fault;

	mesh_introduce(mesh, peer->id, &introduction);
	mesh_conn_options(mesh, &introduction, &options);
	status = mesh_open_queue(mesh, queue);
	if (status != RMR_OK)
		return status;
	status = rmr_connect(*queue, mesh->addresses[peer->id], timeout_ms, &options, conn);
	if (status != RMR_OK)
		goto close_queue;
	rmr_conn_get_info(*conn, &info);
	fault = mesh_find_fault(mesh, info.private_data, info.private_length, peer->id, text);
	if (!fault)
		return RMR_OK;
	status = error_set(RMR_PROTOCOL, "%s answered: %s", mesh->addresses[peer->id], fault);
	rmr_conn_close(*conn);

close_queue:
	rmr_queue_close(*queue);
	return status;
}

static void tell_owner(struct mesh_dialer *dialer)
{
	uint64_t one = 1;

	/* Release, paired with mesh_look_around's load; the lock does the rest. */
	atomic_fetch_add_explicit(&dialer->ready, 1, memory_order_release);
	if (write(dialer->event_fd, &one, sizeof(one)) < 0)
		log_debug("mesh: eventfd: %s", strerror(errno));
}

/* Calls one peer; the lock is held before and after. */
static void dial_one(struct rmr_mesh *mesh, struct mesh_peer *peer)
{
	struct mesh_dialer *dialer = &mesh->dialer;
	struct mesh_dial *dial = &peer->dial;
	struct rmr_queue *queue = NULL;
	struct rmr_conn *conn = NULL;
	int timeout_ms = dial->timeout_ms, pause_ms;
	enum rmr_status status;

	pthread_mutex_unlock(&dialer->lock);
	status = call(peer, timeout_ms, &queue, &conn);
	pthread_mutex_lock(&dialer->lock);
	if (status == RMR_OK) {
		dial->queue = queue;
		dial->conn = conn;
		dial->is_ready = true;
		dial->is_wanted = false;
		dial->status = RMR_OK;
	} else {
		keep_reason(dial, status);
		if (status == RMR_TIMEOUT && dial->timeout_ms < TIMEOUT_LAST_MS)
			dial->timeout_ms *= 2;
		pause_ms = mesh->options.redial_ms;
		if (dialer->is_hasty && pause_ms > HASTY_MS)
			pause_ms = HASTY_MS;
		dial->next_ns = clock_deadline_ns(pause_ms);
	}
	/* Also a failure: rmr_mesh_connect may end by it. */
	if (status == RMR_OK || dial->status == RMR_PROTOCOL)
		tell_owner(dialer);
}

static void *run(void *argument)
{
	struct rmr_mesh *mesh = argument;
	struct mesh_dialer *dialer = &mesh->dialer;

	pthread_mutex_lock(&dialer->lock);
	while (!dialer->is_stopping) {
		struct mesh_peer *next = find_next(mesh);

		if (!next) {
			pthread_cond_wait(&dialer->changed, &dialer->lock);
		} else if (!clock_passed(next->dial.next_ns)) {
			struct timespec when = {
				.tv_sec = (time_t)(next->dial.next_ns / 1000000000u),
				.tv_nsec = (long)(next->dial.next_ns % 1000000000u)};

			pthread_cond_timedwait(&dialer->changed, &dialer->lock, &when);
		} else {
			dial_one(mesh, next);
		}
	}
	pthread_mutex_unlock(&dialer->lock);
	return NULL;
}

void mesh_dial(struct mesh_peer *peer, int delay_ms)
{
	struct mesh_dialer *dialer = &peer->mesh->dialer;
	int error = 0;

	pthread_mutex_lock(&dialer->lock);
	if (!peer->dial.is_wanted && !peer->dial.is_ready) {
		peer->dial.is_wanted = true;
		peer->dial.next_ns = clock_deadline_ns(delay_ms);
		if (!peer->dial.timeout_ms)
			peer->dial.timeout_ms = TIMEOUT_FIRST_MS;
	}
	if (!dialer->is_running && !dialer->is_stopping) {
		error = pthread_create(&dialer->thread, NULL, run, peer->mesh);
		dialer->is_running = error == 0;
	}
	pthread_cond_signal(&dialer->changed);
	pthread_mutex_unlock(&dialer->lock);
	if (error)
		log_error("mesh: no thread to call peers: %s", strerror(error));
}

void mesh_dial_hastily(struct rmr_mesh *mesh, bool hasty)
{
	struct mesh_dialer *dialer = &mesh->dialer;
	uint64_t now_ns = clock_now_ns();

	pthread_mutex_lock(&dialer->lock);
	dialer->is_hasty = hasty;
	mesh_for_each (peer, mesh)
		if (hasty && peer->dial.next_ns > now_ns)
			peer->dial.next_ns = now_ns;
	pthread_cond_signal(&dialer->changed);
	pthread_mutex_unlock(&dialer->lock);
}

bool mesh_dial_take(struct mesh_peer *peer, struct mesh_link *link)
{
	struct mesh_dialer *dialer = &peer->mesh->dialer;
	bool is_ready;

	pthread_mutex_lock(&dialer->lock);
	is_ready = peer->dial.is_ready;
	if (is_ready) {
		*link = (struct mesh_link){
			.queue = peer->dial.queue, .conn = peer->dial.conn, .is_ours = true};
		peer->dial.is_ready = false;
		peer->dial.queue = NULL;
		peer->dial.conn = NULL;
	}
	pthread_mutex_unlock(&dialer->lock);
	return is_ready;
}

enum rmr_status mesh_dial_reason(struct mesh_peer *peer, char reason[MESH_REASON_SIZE])
{
	struct mesh_dialer *dialer = &peer->mesh->dialer;
	enum rmr_status status;

	pthread_mutex_lock(&dialer->lock);
	status = peer->dial.status;
	if (status != RMR_OK)
		memcpy(reason, peer->dial.reason, MESH_REASON_SIZE);
	pthread_mutex_unlock(&dialer->lock);
	return status;
}

void mesh_dial_forget(struct mesh_peer *peer)
{
	struct mesh_dialer *dialer = &peer->mesh->dialer;

	pthread_mutex_lock(&dialer->lock);
	peer->dial.status = RMR_OK;
	pthread_mutex_unlock(&dialer->lock);
}

void mesh_dialer_fini(struct rmr_mesh *mesh)
{
	struct mesh_dialer *dialer = &mesh->dialer;

	pthread_mutex_lock(&dialer->lock);
	dialer->is_stopping = true;
	pthread_cond_signal(&dialer->changed);
	pthread_mutex_unlock(&dialer->lock);
	if (dialer->is_running)
		pthread_join(dialer->thread, NULL);
	if (mesh->peers)
		mesh_for_each (peer, mesh) {
			struct mesh_link link;

			if (mesh_dial_take(peer, &link))
				mesh_link_close(&link);
		}
	if (dialer->event_fd >= 0)
		close(dialer->event_fd);
	pthread_cond_destroy(&dialer->changed);
	pthread_mutex_destroy(&dialer->lock);
}
