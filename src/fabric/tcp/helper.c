/*
 * The helper: a thread of the device that stands in for owners who do not poll.
 *
 * The contract says that READ, WRITE and atomics complete although the target program calls
 * nothing; somebody has to execute them. While the owner of a queue polls, he does it, and the
 * helper stays out of his way. It learns that he does not by looking at his count of polls, one
 * to four milliseconds apart:
 *
 *	GUARD	The helper sleeps on the epoll set of the queue's sockets, as a one-shot. Costs
 *	  |	nothing while nothing happens.
 *	  | something came in (or the owner asks to be looked after)
 *	  v
 *	TICK	After a millisecond a look at the count. If it has moved: stay while hot or dirty
 *	  |	connections rely on the owner, and look more seldom; else back to GUARD.
 *	  | it has not moved
 *	  v
 *	DORMANT	The helper serves what there is, and sleeps on the epoll set again; now it serves at
 *		once, for as long as the count stands still. When it moves: TICK.
 *
 * So a busy owner has one wake-up of the helper every few milliseconds beside him (one a
 * millisecond cost a ping-pong on two virtual cores some percent), a program whose owner is gone
 * has a server that is woken by epoll, and an idle one has nothing.
 *
 * A wire may have something to look at that most likely comes to nothing (look_in_ns). Then there
 * is one more TICK after that time, in GUARD and in DORMANT; whatever is urgent comes before it.
 *
 * A queue is known to the helper by a number, because an event may be older than the queue's
 * end. helper->lock is held while a queue is worked on, so that helper_remove waits for that.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/tcp/internal.h"

#define KICK_ID	       0 /* queues are numbered from 1 */
#define EVENTS_AT_ONCE 16
#define SERVE_ROUNDS   16 /* before other queues have their turn */

static void kick(struct tcp_helper *helper)
{
	uint64_t one = 1;

	(void)!write(helper->kick_fd, &one, sizeof(one));
}

/* GUARD and DORMANT: wake us when the queue's sockets have something. False: something came in
 * already, of which they will not tell. */
static bool watch(struct tcp_helper *helper, struct tcp_queue *queue, int operation)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = queue->id};

	if (operation == EPOLL_CTL_MOD && !queue->wire->arm(queue))
		return false;
	(void)epoll_ctl(helper->epoll_fd, operation, queue->sockets_fd, &event);
	return true;
}

static void next_tick(struct tcp_queue *queue, uint64_t interval_ns)
{
	if (queue->polls != queue->polls_seen)
		queue->dormant = false;
	queue->polls_seen = queue->polls;
	queue->interval_ns = interval_ns;
	queue->leisurely = false;
	queue->tick_ns = clock_now_ns() + interval_ns;
	atomic_store_explicit(&queue->ticking, true, memory_order_relaxed);
}

static void start_ticks(struct tcp_queue *queue)
{
	next_tick(queue, TCP_HELPER_AFTER_NS);
}

/* One who polls all the time is looked at more seldom. */
static void slow_down_ticks(struct tcp_queue *queue)
{
	next_tick(queue, 2 * queue->interval_ns < TCP_HELPER_AFTER_MAX_NS
				 ? 2 * queue->interval_ns
				 : TCP_HELPER_AFTER_MAX_NS);
}

/* Nothing is urgent; perhaps there is something to look at in a while. */
static void tick_at_leisure(struct tcp_queue *queue)
{
	uint64_t look_in_ns = progress_look_in_ns(queue);

	if (look_in_ns == CLOCK_NEVER)
		return;
	next_tick(queue, look_in_ns);
	queue->leisurely = true;
}

void helper_want_ticks(struct tcp_queue *queue)
{
	if (atomic_load_explicit(&queue->ticking, memory_order_relaxed) && !queue->leisurely)
		return;
	start_ticks(queue);
	kick(&tcp_device_of(queue->base.device)->helper);
}

void helper_want_look(struct tcp_queue *queue)
{
	if (atomic_load_explicit(&queue->ticking, memory_order_relaxed) &&
	    !(queue->leisurely && queue->interval_ns > progress_look_in_ns(queue)))
		return;
	tick_at_leisure(queue);
	kick(&tcp_device_of(queue->base.device)->helper);
}

/* DORMANT: does what there is to do, until it is safe to sleep. */
static void serve(struct tcp_helper *helper, struct tcp_queue *queue)
{
	atomic_store_explicit(&queue->ticking, false, memory_order_relaxed);
	for (int i = 0; i < SERVE_ROUNDS; i++) {
		progress_by_helper(queue);
		if (!watch(helper, queue, EPOLL_CTL_MOD))
			continue;
		if (!progress_needs_polls(queue)) {
			tick_at_leisure(queue);
			return;
		}
		/* What needs polls gets them a millisecond apart: nothing will wake us for it. */
		break;
	}
	start_ticks(queue);
}

/* Something came in. */
static void on_event(struct tcp_helper *helper, struct tcp_queue *queue)
{
	queue_lock(queue);
	if (queue->dormant && queue->polls == queue->polls_seen) {
		serve(helper, queue);
	} else {
		queue->dormant = false;
		if (!atomic_load_explicit(&queue->ticking, memory_order_relaxed) ||
		    queue->leisurely)
			start_ticks(queue);
	}
	queue_unlock(queue);
}

static void end_ticks(struct tcp_helper *helper, struct tcp_queue *queue)
{
	queue->polls_seen = queue->polls;
	atomic_store_explicit(&queue->ticking, false, memory_order_relaxed);
	if (!watch(helper, queue, EPOLL_CTL_MOD))
		start_ticks(queue);
	else
		tick_at_leisure(queue);
}

/* A look at a queue that ticks, if it is time. Returns when the next one is due. */
static uint64_t on_tick(struct tcp_helper *helper, struct tcp_queue *queue, uint64_t now_ns)
{
	uint64_t next_ns = CLOCK_NEVER;

	/* Whoever has the lock is the owner, so he is awake, and we need not wait for him. */
	if (!spin_lock_try(&queue->base.lock))
		return now_ns + TCP_HELPER_AFTER_NS;
	if (now_ns < queue->tick_ns)
		goto unlock;
	/* An owner who sleeps has polled before that, not since. */
	if (queue->polls == queue->polls_seen || (queue->armed && progress_needs_polls(queue))) {
		queue->dormant = true;
		serve(helper, queue);
	} else if (progress_needs_polls(queue)) {
		slow_down_ticks(queue);
	} else {
		end_ticks(helper, queue);
	}
unlock:
	if (atomic_load_explicit(&queue->ticking, memory_order_relaxed))
		next_ns = queue->tick_ns;
	queue_unlock(queue);
	return next_ns;
}

/* Returns how long to sleep until a queue is due, or -1. */
static int tick_all(struct tcp_helper *helper)
{
	uint64_t now_ns = clock_now_ns(), first_ns = CLOCK_NEVER;

	list_for_each (link, &helper->queues) {
		struct tcp_queue *queue = list_entry(link, struct tcp_queue, helper_link);
		uint64_t next_ns;

		if (!atomic_load_explicit(&queue->ticking, memory_order_relaxed))
			continue;
		next_ns = on_tick(helper, queue, now_ns);
		first_ns = next_ns < first_ns ? next_ns : first_ns;
	}
	return clock_remaining_ms(first_ns);
}

static struct tcp_queue *find_queue(struct tcp_helper *helper, uint64_t id)
{
	list_for_each (link, &helper->queues) {
		struct tcp_queue *queue = list_entry(link, struct tcp_queue, helper_link);

		if (queue->id == id)
			return queue;
	}
	return NULL;
}

static void *run(void *argument)
{
	struct tcp_helper *helper = argument;
	struct epoll_event events[EVENTS_AT_ONCE];
	int timeout_ms = -1;

	/* Relaxed: the flag is all there is to see; the thread is joined afterwards. */
	while (!atomic_load_explicit(&helper->stop, memory_order_relaxed)) {
		int count = epoll_wait(helper->epoll_fd, events, EVENTS_AT_ONCE, timeout_ms);

		pthread_mutex_lock(&helper->lock);
		for (int i = 0; i < count; i++) {
			struct tcp_queue *queue = find_queue(helper, events[i].data.u64);
			uint64_t kicks;

			if (queue)
				on_event(helper, queue);
			else if (events[i].data.u64 == KICK_ID)
				(void)!read(helper->kick_fd, &kicks, sizeof(kicks));
		}
		timeout_ms = tick_all(helper);
		pthread_mutex_unlock(&helper->lock);
	}
	return NULL;
}

enum rmr_status helper_init(struct tcp_helper *helper)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = KICK_ID};

	list_init(&helper->queues);
	helper->next_id = KICK_ID + 1;
	helper->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	helper->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (helper->epoll_fd < 0 || helper->kick_fd < 0 ||
	    epoll_ctl(helper->epoll_fd, EPOLL_CTL_ADD, helper->kick_fd, &event) != 0) {
		enum rmr_status status = error_errno(RMR_SYSTEM, errno, "cannot make an epoll set");

		if (helper->epoll_fd >= 0)
			close(helper->epoll_fd);
		if (helper->kick_fd >= 0)
			close(helper->kick_fd);
		return status;
	}
	pthread_mutex_init(&helper->lock, NULL);
	return RMR_OK;
}

void helper_fini(struct tcp_helper *helper)
{
	if (helper->started) {
		atomic_store_explicit(&helper->stop, true, memory_order_relaxed);
		kick(helper);
		pthread_join(helper->thread, NULL);
	}
	close(helper->kick_fd);
	close(helper->epoll_fd);
	pthread_mutex_destroy(&helper->lock);
}

/* The program's signals are not the helper's business. */
static int start_thread(struct tcp_helper *helper)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&helper->thread, NULL, run, helper);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error == 0)
		pthread_setname_np(helper->thread, "remora-tcp");
	return error;
}

enum rmr_status helper_add(struct tcp_helper *helper, struct tcp_queue *queue)
{
	int error = 0;

	pthread_mutex_lock(&helper->lock);
	if (!helper->started) {
		error = start_thread(helper);
		helper->started = error == 0;
	}
	if (error == 0) {
		queue->id = helper->next_id++;
		list_add_tail(&helper->queues, &queue->helper_link);
		(void)watch(helper, queue, EPOLL_CTL_ADD); /* there is nothing yet */
	}
	pthread_mutex_unlock(&helper->lock);
	if (error != 0)
		return error_errno(RMR_SYSTEM, error, "cannot start the helper thread");
	return RMR_OK;
}

void helper_remove(struct tcp_helper *helper, struct tcp_queue *queue)
{
	pthread_mutex_lock(&helper->lock);
	list_remove(&queue->helper_link);
	(void)epoll_ctl(helper->epoll_fd, EPOLL_CTL_DEL, queue->sockets_fd, NULL);
	pthread_mutex_unlock(&helper->lock);
}
