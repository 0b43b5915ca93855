/*
 * Sessions: a client from being accepted to its end. All of it runs in the session's worker.
 *
 * Every SEND has a number, its sequence; its completion means that all before it are done as well,
 * so that short replies, which are copied when they are posted, mostly go unsignaled. Replies that
 * are sent from their buffer wait in `flying` for the completion, and with them values that are
 * being pushed.
 *
 * A session ends in two ways: at once (session_end), when the client is gone; or with last words
 * (session_leave), and then as soon as they have left, or a second later. It is closed at the end
 * of the batch in either case, as completions of it may still wait there to be looked at.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "server/internal.h"

#define GREETING_MS    5000
#define CROWDED_MS     2000 /* the same while there are as many strangers as are taken */
#define LAST_WORDS_MS  1000
#define LEAVING_MS     1000  /* to leave our memory, for a client that is over */
#define FORGET_MS      10000 /* to forget the cells of an older epoch */
#define SIGNALED_EVERY 16u   /* short replies */
#define WANTED_MS      3000u /* so long somebody who got no landing buffer is thought of */

static void session_free(struct session *session)
{
	struct kv_server *server = session->worker->server;

	atomic_fetch_sub_explicit(&session->worker->session_count, 1, memory_order_relaxed);
	/* Relaxed: only the numbers count. */
	atomic_fetch_sub_explicit(session->is_client ? &server->clients : &server->strangers, 1,
				  memory_order_relaxed);
	/* After that: a newer session of the same client may wait for this place. */
	identity_leave(session);
	free(session);
}

bool session_admit(struct session *session)
{
	struct kv_server *server = session->worker->server;

	/* Relaxed: only the numbers count. Added first, so that two workers never both take the
	 * last place. */
	if (atomic_fetch_add_explicit(&server->clients, 1, memory_order_relaxed) >=
	    server->options.max_clients) {
		atomic_fetch_sub_explicit(&server->clients, 1, memory_order_relaxed);
		return false;
	}
	atomic_fetch_sub_explicit(&server->strangers, 1, memory_order_relaxed);
	session->is_client = true;
	return true;
}

void session_refuse(struct session *session, const char *reason)
{
	rmr_reject(session->request, reason);
	session_free(session);
}

void session_open(struct session *session, struct worker *worker)
{
	const struct kv_server_options *options = &worker->server->options;
	struct server_queue *queue = &worker->queues[session->path];
	uint32_t depth = 4 * options->window + 2 * SERVER_SLACK + SERVER_MAX_DRAFTS * SERVER_PULLS;
	uint32_t most = queue->path->info->max_depth;
	/* Before its proof a client grants us nothing. */
	static const struct rmr_grant_limits no_grants;
	struct rmr_conn_options conn_options = {
		.depth = depth < most ? depth : most, .user = session, .grants = &no_grants};
	struct rmr_conn_info info;

	session->queue = queue;
	if (rmr_accept(session->request, queue->queue, &conn_options, &session->conn) != RMR_OK) {
		log_warn_limited("%s: %s", session->peer, error_chain());
		session_free(session);
		return;
	}
	session->request = NULL;
	rmr_conn_get_info(session->conn, &info);
	session->max_reply = info.max_send < queue->reply_size ? info.max_send : queue->reply_size;
	session->state = SESSION_HELLO;
	session->next_id = 1;
	session->flying_end = &session->flying;
	/* As many as fit, with a push for each. */
	session->limit = info.depth / 2;
	session->deadline_ns = clock_deadline_ns(GREETING_MS);
	queue->sessions++;
	queue->quiet = 0;
	counter_add(&worker->counters.present[queue->path->kind], 1);
	counter_add(&worker->counters.sessions, 1);
	pthread_mutex_lock(&worker->lock);
	list_add_tail(&worker->sessions, &session->link);
	pthread_mutex_unlock(&worker->lock);
}

static struct reply *take_flying(struct session *session)
{
	struct reply *reply = session->flying;

	session->flying = reply->next;
	session->flying_count--;
	if (!session->flying)
		session->flying_end = &session->flying;
	return reply;
}

/* Gives back everything. Access to the cells and the connection go first: after that nothing is
 * read or written by or for the client any more. Only then may the housekeeper think that it knows
 * no cell; unless the client stays behind as a ghost (cells.c). (The region goes before the
 * connection, as it waits for accesses of those who are connected.) */
static void session_close(struct session *session)
{
	struct worker *worker = session->worker;

	rmr_region_close(session->cells);
	cells_part(session);
	rmr_conn_close(session->conn);
	pthread_mutex_lock(&worker->lock);
	list_remove(&session->link);
	pthread_mutex_unlock(&worker->lock);
	while (session->flying)
		reply_give(worker, session->queue, take_flying(session));
	pins_release(session);
	drafts_release(session);
	landing_release(session);
	session->queue->sessions--;
	counter_add(&worker->counters.present[session->queue->path->kind], -1);
	log_debug("%s: session closed", session->peer);
	session_free(session);
}

void session_end(struct session *session)
{
	if (session->state == SESSION_OVER)
		return;
	session->state = SESSION_OVER;
	session->next_over = session->worker->over;
	session->worker->over = session;
}

/* Whether the client is out of our memory, so that closing does not wait for it. A client that was
 * stopped inside, or pretends to be there, is waited for without keeping the others waiting. */
static bool has_left(struct session *session)
{
	if (!session->cells || rmr_region_revoke(session->cells) == RMR_OK)
		return true;
	if (!session->over_deadline_ns)
		session->over_deadline_ns = clock_deadline_ns(LEAVING_MS);
	return clock_passed(session->over_deadline_ns);
}

void sessions_close_over(struct worker *worker, bool waits)
{
	struct session *inside = NULL;

	while (worker->over) {
		struct session *session = worker->over;

		worker->over = session->next_over;
		if (waits || has_left(session)) {
			session_close(session);
		} else {
			session->next_over = inside;
			inside = session;
		}
	}
	worker->over = inside;
}

/* ------------------------------------------------------------------------------------------
 * Sending
 */

struct reply *session_reply(struct session *session)
{
	struct server_queue *queue = session->queue;

	struct reply *reply = queue->spare;

	if (reply_pool_is_low(&queue->pool) && session->flying_count >= POOL_FAIR_SHARE)
		reply = reply_stub(queue);
	else if (!reply)
		reply = queue->spare = reply_take(queue);
	if (!reply) {
		log_warn_limited("%s: no buffer for a reply is free", session->peer);
		session_end(session);
	}
	return reply;
}

static void touch(struct session *session)
{
	if (session->is_touched)
		return;
	session->is_touched = true;
	session->next_touched = session->worker->touched;
	session->worker->touched = session;
}

void sessions_flush(struct worker *worker)
{
	while (worker->touched) {
		struct session *session = worker->touched;

		worker->touched = session->next_touched;
		session->is_touched = false;
		rmr_flush(session->conn);
	}
}

/* The buffer is the fabric's until the SEND completes. */
static void let_fly(struct session *session, struct reply *reply)
{
	reply->sequence = session->sequence;
	reply->next = NULL;
	*session->flying_end = reply;
	session->flying_end = &reply->next;
	session->flying_count++;
	if (reply->view.item)
		session->pushes++;
}

static void post(struct session *session, struct reply *reply, size_t length, bool signaled)
{
	struct server_queue *queue = session->queue;
	/* Whoever pushed a value waits for the end of it. */
	bool is_inline = length <= queue->max_inline && !reply->view.item;
	bool is_held = !session->worker->is_alone;
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = is_held ? RMR_MORE : 0,
				.source = reply->bytes,
				.length = length,
				.region = reply->region};
	int posted;

	work.cookie = ++session->sequence;
	if (is_inline)
		work.flags |= RMR_INLINE;
	else
		signaled = true;
	if (signaled || session->sequence - session->signaled >= SIGNALED_EVERY)
		session->signaled = session->sequence;
	else
		work.flags |= RMR_UNSIGNALED;
	posted = rmr_post(session->conn, &work, 1);
	/* The stub is for one reply; then the pool is tried again. */
	if (reply == queue->spare && (!is_inline || !reply->region))
		queue->spare = NULL;
	if (!is_inline)
		let_fly(session, reply);
	counter_add(&session->worker->counters.bytes_out, (int64_t)length);
	if (posted == 1) {
		if (is_held)
			touch(session);
		return;
	}
	if (posted == 0)
		log_warn_limited("%s: takes no replies; thrown out", session->peer);
	session_end(session);
}

bool session_post(struct session *session, struct rmr_work *work)
{
	work->flags |= RMR_MORE;
	if (rmr_post(session->conn, work, 1) == 1) {
		touch(session);
		return true;
	}
	session_end(session);
	return false;
}

void session_send(struct session *session, struct reply *reply, size_t length)
{
	post(session, reply, length, false);
}

void session_completed(struct session *session, uint64_t sequence)
{
	session->completed = sequence;
	while (session->flying && session->flying->sequence <= sequence) {
		struct reply *reply = take_flying(session);

		if (reply->view.item)
			session->pushes--;
		reply_give(session->worker, session->queue, reply);
	}
	if (session->state == SESSION_LEAVING && sequence >= session->last_words)
		session_end(session);
}

/* ------------------------------------------------------------------------------------------
 * Last words
 */

static size_t write_refusal(struct reply *reply, int status, const char *reason)
{
	struct kv_refuse refuse = {.op = KV_OP_REFUSE, .status = status};

	snprintf(refuse.reason, sizeof(refuse.reason), "%s", reason);
	memcpy(reply->bytes, &refuse, sizeof(refuse));
	return sizeof(refuse);
}

static size_t write_goodbye(struct session *session, struct reply *reply, size_t room, int status,
			    const char *reason)
{
	struct kv_reply goodbye = {
		.op = KV_OP_GOODBYE,
		.flags = KV_HAS_VALUE,
		.status = (int16_t)status,
		.cells_epoch = session->worker->epoch,
		.server_time_ms = store_clock_ms(session->worker->server->store),
		.cell = KV_NO_CELL,
	};
	size_t length = strlen(reason);

	if (length > room - sizeof(goodbye))
		length = room - sizeof(goodbye);
	memcpy(reply->bytes, &goodbye, sizeof(goodbye));
	memcpy(reply->bytes + sizeof(goodbye), reason, length);
	return sizeof(goodbye) + length;
}

void session_leave(struct session *session, int status, const char *reason)
{
	bool greeting = session->state < SESSION_READY;
	size_t least = greeting ? sizeof(struct kv_refuse) : sizeof(struct kv_reply);
	struct reply *reply;
	size_t room;

	if (session->state >= SESSION_LEAVING)
		return;
	reply = session_reply(session);
	if (!reply)
		return;
	room = reply->room < session->max_reply ? reply->room : session->max_reply;
	if (room < least) {
		session_end(session);
		return;
	}
	session->state = SESSION_LEAVING;
	session->deadline_ns = clock_deadline_ns(LAST_WORDS_MS);
	session->worker->next_check_ns = 0;
	/* During the greeting nobody can be told that all is well. */
	if (greeting)
		post(session, reply, write_refusal(reply, status ? status : KV_BUSY, reason), true);
	else
		post(session, reply, write_goodbye(session, reply, room, status, reason), true);
	session->last_words = session->sequence;
}

void session_violation(struct session *session, const char *reason)
{
	log_warn_limited("%s: %s; the connection ends", session->peer, reason);
	counter_add(&session->worker->counters.violations, 1);
	session_leave(session, KV_PROTOCOL, reason);
}

/* ------------------------------------------------------------------------------------------
 * Deadlines
 */

/* Whether no reply has completed for too long although some are under way. */
static bool is_stuck(struct session *session, uint64_t now_ns)
{
	uint64_t limit_ns = (uint64_t)session->worker->server->options.client_timeout_ms * 1000000u;

	if (session->signaled <= session->completed) {
		session->stuck_since_ns = 0;
		return false;
	}
	if (!session->stuck_since_ns || session->seen_completed != session->completed) {
		session->stuck_since_ns = now_ns;
		session->seen_completed = session->completed;
	}
	return now_ns > session->stuck_since_ns && now_ns - session->stuck_since_ns >= limit_ns;
}

/* Whether the client holds up cells that others miss; see cells.c. */
static bool holds_cells(const struct session *session, uint64_t now_ns)
{
	const struct kv_server *server = session->worker->server;
	uint32_t oldest = atomic_load_explicit(&session->cells_oldest, memory_order_relaxed);

	/* By shm it may be looking at something, which it would lose. */
	if (session->queue->path->kind == PATH_SHM && session->pin_count)
		return false;
	return oldest && oldest < session->worker->epoch &&
	       atomic_load_explicit(&server->cells_missed, memory_order_relaxed) &&
	       now_ns > atomic_load(&server->epoch_ns) + FORGET_MS * 1000000ull;
}

/* Whether it has a landing buffer that others need, and has not used it for long. */
static bool holds_landing(const struct session *session, uint64_t now_ms)
{
	struct kv_server *server = session->worker->server;
	uint64_t limit_ms = (uint64_t)server->options.client_timeout_ms;
	/* It is looked at once a second. */
	uint64_t fresh_ms = limit_ms > WANTED_MS ? limit_ms : WANTED_MS;
	uint64_t wanted_ms = atomic_load_explicit(&server->landing_wanted_ms, memory_order_relaxed);

	/* By shm it may be looking at something, which it would lose. */
	if (!session->landing || !wanted_ms ||
	    (session->queue->path->kind == PATH_SHM && session->pin_count))
		return false;
	return now_ms < wanted_ms + fresh_ms && now_ms > session->last_ms + limit_ms &&
	       !drafts_are_pulled(session);
}

/* By how much the greeting has to be faster than usual. */
static uint64_t hurry_ns(struct kv_server *server)
{
	return atomic_load_explicit(&server->strangers, memory_order_relaxed) < SERVER_MAX_STRANGERS
		       ? 0
		       : (GREETING_MS - CROWDED_MS) * 1000000ull;
}

bool session_check(struct session *session, uint64_t now_ns)
{
	struct kv_server *server = session->worker->server;
	uint64_t now_ms = store_clock_ms(server->store);

	switch (session->state) {
	case SESSION_HELLO:
	case SESSION_PROOF:
		if (now_ns + hurry_ns(server) >= session->deadline_ns) {
			log_warn_limited("%s: did not introduce itself in time", session->peer);
			counter_add(&session->worker->counters.timeouts, 1);
			session_leave(session, KV_TIMEOUT, "the greeting took too long");
		}
		return true;
	case SESSION_WAITING:
		if (now_ns >= session->deadline_ns) {
			log_warn_limited("%s: its client's older session does not end",
					 session->peer);
			counter_add(&session->worker->counters.timeouts, 1);
			session_leave(session, KV_TIMEOUT,
				      "an older connection of the same client does not end");
		}
		return true;
	case SESSION_READY:
		if (is_stuck(session, now_ns)) {
			log_warn_limited("%s: takes no replies; thrown out", session->peer);
			counter_add(&session->worker->counters.timeouts, 1);
			session_end(session);
		} else if (holds_cells(session, now_ns)) {
			counter_add(&session->worker->counters.timeouts, 1);
			session_leave(session, KV_BUSY,
				      "was silent while counters had to be given to others");
		} else if (pins_are_overdue(session, now_ms)) {
			counter_add(&session->worker->counters.timeouts, 1);
			session_leave(session, KV_BUSY,
				      "was silent while others needed the memory of its views");
			atomic_store_explicit(&server->pins_wanted_ms, 0, memory_order_relaxed);
		} else if (holds_landing(session, now_ms)) {
			counter_add(&session->worker->counters.timeouts, 1);
			session_leave(session, KV_BUSY,
				      "was silent while others needed its landing buffer");
			/* One will do; the next if somebody asks again. */
			atomic_store_explicit(&server->landing_wanted_ms, 0, memory_order_relaxed);
		}
		return drafts_expire(session, now_ms,
				     (uint64_t)server->options.client_timeout_ms) ||
		       session->signaled > session->completed;
	case SESSION_LEAVING:
		if (now_ns >= session->deadline_ns)
			session_end(session);
		return true;
	default:
		return true;
	}
}
