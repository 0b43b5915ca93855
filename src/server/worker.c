/*
 * A worker: one thread that serves the clients given to it, on every path at once.
 *
 * It polls its queues as long as there is something to do, and a little longer: a client that has
 * its reply mostly asks again soon, and is then served without anyone being woken up. How much
 * longer depends on how long it was idle lately: if mostly not for long, then so long; but hardly
 * at all where that was in vain, or others wanted the processor (base/spin_gauge.h). Then it arms
 * the queues and sleeps.
 *
 * A turn: poll a queue, carry out what came, post replies without starting them, start them all at
 * once (sessions_flush), and last close the sessions that are over, for until then completions of
 * theirs may still lie in the batch. A poll of some queues is a system call, so one that brought
 * nothing for a while is only polled every few turns, and one without sessions never.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "server/internal.h"

#define BATCH	      32
#define RECV_SLOTS    512u
#define SPIN_US	      50
#define VERBS_SPIN_US 300 /* soft RDMA takes longer */
#define SHORT_SPIN    16u /* a part of it, when that was in vain lately */
#define GAP_MOST      8u  /* times SPIN_US: longer gaps count as this */
#define GAP_SHIFT     3
#define HANDLED	      5u    /* times longer than a gap: what handling a batch may take */
#define QUIET_POLLS   64    /* in vain: then a queue is polled less often */
#define QUIET_EVERY   16u   /* turns */
#define CLOCK_EVERY   1024u /* turns between looks at the clock */
#define CHECK_MS      1000  /* between looks at the sessions' deadlines */
#define CHECK_SOON_MS 100   /* the same while some session has one */
#define OVER_MS	      1	    /* between looks at clients that have not left our memory */
#define DRAIN_MS      50    /* at the end: for what has arrived */

/* ------------------------------------------------------------------------------------------
 * Opening and closing
 */

static uint32_t smaller(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

static enum rmr_status open_queue(struct worker *worker, struct server_queue *queue)
{
	const struct kv_server_options *options = &worker->server->options;
	const struct rmr_device_info *info = queue->path->info;
	uint64_t size = (KV_REQUEST_EXTRA + options->eager_limit + 63) & ~(uint64_t)63;
	struct rmr_queue_options queue_options = {
		.recv_slots = smaller(RECV_SLOTS, info->max_slots),
		.recv_size = smaller(size, info->max_message),
	};
	size_t reply_size = sizeof(struct kv_reply) + options->inline_limit;
	enum rmr_status status;

	queue->reply_size = (reply_size > KV_MIN_REPLY ? reply_size : KV_MIN_REPLY) + 63;
	queue->reply_size &= ~(size_t)63;
	queue->max_inline = info->max_inline;
	status = rmr_queue_open(queue->path->device, &queue_options, &queue->queue);
	if (status != RMR_OK)
		return status;
	return reply_pool_open(queue);
}

int worker_open(struct worker *worker, struct kv_server *server)
{
	enum rmr_status status;

	worker->server = server;
	list_init(&worker->mail);
	list_init(&worker->sessions);
	pthread_mutex_init(&worker->lock, NULL);
	worker->spin_ticks = (uint64_t)(SPIN_US * clock_ticks_per_us());
	for (unsigned i = 0; i < server->path_count; i++) {
		if (server->paths[i].kind == PATH_VERBS && server->paths[i].listener)
			worker->spin_ticks = (uint64_t)(VERBS_SPIN_US * clock_ticks_per_us());
	}
	worker->gap_ticks = (uint64_t)(SPIN_GAUGE_GAP_US * clock_ticks_per_us());
	worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker->wake_fd < 0)
		return server_fail(KV_INTERNAL, "eventfd: %s", strerror(errno));
	status = store_worker_open(server->store, &worker->store);
	for (unsigned i = 0; i < server->path_count && status == RMR_OK; i++) {
		worker->queues[i].path = &server->paths[i];
		if (server->paths[i].listener)
			status = open_queue(worker, &worker->queues[i]);
	}
	return status == RMR_OK ? KV_OK : server_fail_rmr(status);
}

void worker_close(struct worker *worker)
{
	if (!worker->server)
		return;
	for (unsigned i = 0; i < worker->server->path_count; i++) {
		reply_pool_close(&worker->queues[i]);
		rmr_queue_close(worker->queues[i].queue);
	}
	if (worker->store)
		store_worker_close(worker->store);
	if (worker->wake_fd >= 0)
		close(worker->wake_fd);
	pthread_mutex_destroy(&worker->lock);
}

/* ------------------------------------------------------------------------------------------
 * Mail
 */

void worker_wake(struct worker *worker)
{
	uint64_t one = 1;

	/* Release: whoever sees it sees what it was called for. */
	atomic_store_explicit(&worker->has_mail, true, memory_order_release);
	if (write(worker->wake_fd, &one, sizeof(one)) < 0)
		return; /* it is full, and wakes as well */
}

void worker_give(struct worker *worker, struct session *session)
{
	session->worker = worker;
	atomic_fetch_add_explicit(&worker->session_count, 1, memory_order_relaxed);
	pthread_mutex_lock(&worker->lock);
	list_add_tail(&worker->mail, &session->link);
	pthread_mutex_unlock(&worker->lock);
	worker_wake(worker);
}

static struct session *take_mail(struct worker *worker)
{
	struct session *session = NULL;

	pthread_mutex_lock(&worker->lock);
	if (!list_is_empty(&worker->mail)) {
		session = list_first_entry(&worker->mail, struct session, link);
		list_remove(&session->link);
	}
	pthread_mutex_unlock(&worker->lock);
	return session;
}

static void read_mail(struct worker *worker)
{
	struct session *session;

	/* Before the list is looked at, so that what comes later sets it again. Acquire: see
	 * worker_wake. */
	atomic_exchange_explicit(&worker->has_mail, false, memory_order_acquire);
	keys_check_sessions(worker);
	identities_look(worker);
	while ((session = take_mail(worker)) != NULL) {
		if (atomic_load_explicit(&worker->stop, memory_order_acquire))
			session_refuse(session, "the server stops");
		else
			session_open(session, worker);
		worker->unsettled = true;
		worker->next_check_ns = 0;
	}
}

/* ------------------------------------------------------------------------------------------
 * A turn
 */

static void received(struct session *session, const struct rmr_completion *completion)
{
	switch (session->state) {
	case SESSION_READY:
		if (completion->op == RMR_OP_RECV)
			request_arrived(session, completion->data, completion->length);
		else
			request_landed(session, completion->immediate);
		break;
	case SESSION_HELLO:
	case SESSION_PROOF:
	case SESSION_WAITING:
		if (completion->op == RMR_OP_RECV)
			greeting_arrived(session, completion->data, completion->length);
		else
			session_violation(session, "a WRITE_IMM instead of a greeting");
		break;
	default:
		break; /* what comes after the last words is not carried out */
	}
}

static inline void handle(struct server_queue *queue, const struct rmr_completion *completion,
			  bool is_alone)
{
	struct session *session = rmr_conn_user(completion->conn);

	switch (completion->op) {
	case RMR_OP_RECV:
		if (completion->status != RMR_OK)
			break;
		/* Somebody waits for the reply, and nobody for the buffer. */
		session->worker->is_alone = is_alone;
		received(session, completion);
		session->worker->is_alone = false;
		rmr_recv_release(queue->queue, completion->data);
		break;
	case RMR_OP_RECV_IMM:
		if (completion->status == RMR_OK)
			received(session, completion);
		break;
	case RMR_OP_SEND:
		if (completion->status == RMR_OK)
			session_completed(session, completion->cookie);
		break;
	case RMR_OP_READ:
		if (completion->status == RMR_OK)
			draft_arrived(session, completion->cookie);
		break;
	case RMR_OP_DISCONNECT:
		log_debug("%s is gone: %s", session->peer, rmr_status_text(completion->status));
		session_end(session);
		break;
	default:
		break; /* a push that failed: the connection is lost, and says so */
	}
}

static int poll_queue(struct worker *worker, struct server_queue *queue)
{
	struct rmr_completion completions[BATCH];
	int found = rmr_poll(queue->queue, completions, BATCH);

	if (found == 0) {
		unsigned activity = rmr_queue_activity(queue->queue);

		if (activity == queue->activity) {
			queue->quiet++;
			return 0;
		}
		/* Peers were at work by themselves, and will go on. */
		queue->activity = activity;
		queue->quiet = 0;
		return 1;
	}
	queue->quiet = 0;
	worker->turn_pushed = 0;
	worker->now_ms = store_clock_quick_ms(worker->server->store);
	for (int i = 0; i < found; i++)
		handle(queue, &completions[i], found == 1);
	if (worker->touched)
		sessions_flush(worker);
	if (worker->over)
		sessions_close_over(worker, false);
	return found;
}

/* Polls all queues that are due. Returns how much there was. */
static int take_turn(struct worker *worker, unsigned turn)
{
	/* Acquire: pairs with the housekeeper's bump. What is looked up from here on is looked up
	 * after the ticket of this epoch was taken. */
	uint32_t epoch = atomic_load_explicit(&worker->server->cells_epoch, memory_order_acquire);
	int found = 0;

	if (epoch != worker->epoch) {
		worker->epoch = epoch;
		/* Release: pairs with the acquire in worker_remembers. */
		atomic_store_explicit(&worker->epoch_seen, epoch, memory_order_release);
	}
	for (unsigned i = 0; i < worker->server->path_count; i++) {
		struct server_queue *queue = &worker->queues[i];

		if (queue->sessions && (queue->quiet < QUIET_POLLS || turn % QUIET_EVERY == 0))
			found += poll_queue(worker, queue);
	}
	return found;
}

/* Looks at the deadlines of all sessions, if it is time. */
static void check_sessions(struct worker *worker)
{
	uint64_t now_ns = clock_quick_ns();
	bool unsettled = false;

	if (now_ns < worker->next_check_ns)
		return;
	/* Only this thread changes the list: it may read it without the lock. */
	list_for_each (link, &worker->sessions)
		unsettled |= session_check(list_entry(link, struct session, link), now_ns);
	worker->unsettled = unsettled;
	worker->next_check_ns = now_ns + (unsettled ? CHECK_SOON_MS : CHECK_MS) * 1000000ull;
	sessions_flush(worker);
	sessions_close_over(worker, false);
}

/* ------------------------------------------------------------------------------------------
 * Sleeping
 */

/* Something may be there. A queue without sessions would not be polled for that, and would say so
 * again and again. */
static void look_at_once(struct worker *worker, struct server_queue *queue)
{
	queue->quiet = 0;
	if (!queue->sessions)
		(void)poll_queue(worker, queue);
}

static bool arm(struct worker *worker)
{
	for (unsigned i = 0; i < worker->server->path_count; i++) {
		struct server_queue *queue = &worker->queues[i];

		if (queue->queue && rmr_queue_arm(queue->queue) != RMR_OK) {
			look_at_once(worker, queue);
			return false;
		}
	}
	return true;
}

/* Sleeps until something may have happened, a deadline, or most_ms (negative: no limit). */
static void rest(struct worker *worker, int most_ms)
{
	unsigned count = worker->server->path_count;
	struct pollfd fds[SERVER_MAX_PATHS + 1];
	uint64_t value;

	if (!arm(worker))
		return;
	for (unsigned i = 0; i < count; i++) {
		struct rmr_queue *queue = worker->queues[i].queue;

		fds[i] = (struct pollfd){.fd = queue ? rmr_queue_fd(queue) : -1, .events = POLLIN};
	}
	fds[count] = (struct pollfd){.fd = worker->wake_fd, .events = POLLIN};
	if (poll(fds, count + 1, most_ms) <= 0)
		return;
	for (unsigned i = 0; i < count; i++) {
		if (fds[i].revents)
			look_at_once(worker, &worker->queues[i]);
	}
	if (fds[count].revents && read(worker->wake_fd, &value, sizeof(value)) < 0)
		log_debug("a wake-up that was none");
}

static int rest_limit_ms(const struct worker *worker)
{
	if (list_is_empty(&worker->sessions))
		return -1;
	if (worker->over)
		return OVER_MS;
	return worker->unsettled ? CHECK_SOON_MS : CHECK_MS;
}

static uint64_t spin_now(const struct worker *worker)
{
	return worker->spins_long ? worker->spin_ticks : worker->spin_ticks / SHORT_SPIN;
}

/* Nothing came this turn: spins on, or sleeps. */
static void be_idle(struct worker *worker)
{
	uint64_t now = clock_ticks();
	bool preempted;

	if (!worker->idle_since)
		worker->idle_since = now;
	if (!worker->spin_since) {
		worker->spin_since = worker->last_look = now;
		worker->spins_long =
			worker->mean_gap < worker->spin_ticks && spin_gauge_pays(&worker->gauge);
	}
	preempted = now - worker->last_look > worker->gap_ticks;
	worker->last_look = now;
	if (!preempted && now - worker->spin_since <= spin_now(worker))
		return;
	if (preempted)
		spin_gauge_preempted(&worker->gauge);
	else if (worker->spins_long)
		spin_gauge_lost(&worker->gauge);
	rest(worker, rest_limit_ms(worker));
	check_sessions(worker);
	if (worker->over)
		sessions_close_over(worker, false);
	/* Whatever woke us may go on: peers who READ over tcp are served by our polling. */
	worker->spin_since = 0;
}

/* Something came after a while: how long it was decides how long the next one is waited for. */
static void end_idleness(struct worker *worker)
{
	uint64_t now = clock_ticks(), gap = now - worker->idle_since;
	uint64_t most = worker->spin_ticks * GAP_MOST;

	/* It came while we spun, and not because others had our processor meanwhile. */
	if (worker->spin_since && worker->spins_long) {
		if (now - worker->last_look > HANDLED * worker->gap_ticks)
			spin_gauge_preempted(&worker->gauge);
		else
			spin_gauge_won(&worker->gauge);
	}
	/* One long pause says little about what comes after it. */
	worker->mean_gap += ((gap < most ? gap : most) >> GAP_SHIFT);
	worker->mean_gap -= worker->mean_gap >> GAP_SHIFT;
	worker->idle_since = 0;
	worker->spin_since = 0;
}

/* ------------------------------------------------------------------------------------------
 * The end
 */

static void say_goodbye(struct worker *worker)
{
	list_for_each (link, &worker->sessions) {
		struct session *session = list_entry(link, struct session, link);

		if (session->state < SESSION_LEAVING)
			session_leave(session, KV_OK, "the server stops");
	}
	sessions_flush(worker);
	sessions_close_over(worker, false);
}

/* Carries out what has arrived, tells everybody, and waits until they have been told. */
static void finish(struct worker *worker)
{
	uint64_t deadline_ns = clock_deadline_ns(DRAIN_MS);

	read_mail(worker);
	while (take_turn(worker, 0) > 0 && !clock_passed(deadline_ns))
		;
	say_goodbye(worker);
	deadline_ns = clock_deadline_ns(worker->server->options.stop_timeout_ms);
	while (!list_is_empty(&worker->sessions) && !clock_passed(deadline_ns)) {
		if (take_turn(worker, 0) == 0)
			rest(worker, 10);
		check_sessions(worker);
	}
	list_for_each (link, &worker->sessions)
		session_end(list_entry(link, struct session, link));
	sessions_close_over(worker, true);
}

void *worker_run(void *argument)
{
	struct worker *worker = argument;

	for (unsigned turn = 0; !atomic_load_explicit(&worker->stop, memory_order_acquire);
	     turn++) {
		/* Relaxed: read_mail() looks again. */
		if (atomic_load_explicit(&worker->has_mail, memory_order_relaxed))
			read_mail(worker);
		if (take_turn(worker, turn) == 0)
			be_idle(worker);
		else if (worker->idle_since)
			end_idleness(worker);
		if (turn % CLOCK_EVERY == 0)
			check_sessions(worker);
	}
	finish(worker);
	return NULL;
}
