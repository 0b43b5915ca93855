/*
 * What the runtime's thread does all day.
 *
 *	requests -> hot lanes: poll, call back -> links that ended -> timers -> sleep, if quiet
 *
 * A lane is hot while something happened on it less than spinUs ago: then every round polls it.
 * When it was quiet for so long it is armed, and epoll tells when it stirs. So a thousand idle
 * connections cost nothing; and while one lane is hot, epoll is asked for the others now and then.
 *
 * The order of things keeps every pointer good: links and endpoints go only between two turns,
 * never while events are being walked.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "rdma/easy/internal.h"

#define IDLE_TURNS	     8u
#define PATIENCE_LEAST	     4u /* spins up to 16 times as long, if that is worth it */
#define PATIENCE_MOST	     8u /* where waking up takes longer */
#define WAKES_WORTH	     32 /* spins up to as long as so many wake-ups take */
#define NAPS		     4	/* to see how long that is */
#define NAP_US		     20
#define LOOK_US		     50	  /* between two looks at epoll while something is hot */
#define TIMER_US	     1000 /* and at the timers */
#define ROUNDS_BETWEEN_LOOKS 16	  /* at the clock */

struct loop loop;

void loop_heat(struct lane *lane)
{
	lane->idle_turns = 0;
	if (list_is_empty(&lane->hot_link) && !list_is_empty(&lane->link))
		list_add_tail(&loop.hot, &lane->hot_link);
}

enum rmr_status loop_add_lane(struct lane *lane)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &lane->source};

	if (!list_is_empty(&lane->link)) {
		loop_heat(lane);
		return RMR_OK;
	}
	if (epoll_ctl(loop.epoll_fd, EPOLL_CTL_ADD, rmr_queue_fd(lane->queue), &event) != 0)
		return error_errno(RMR_SYSTEM, errno, "cannot watch a queue");
	list_add_tail(&loop.lanes, &lane->link);
	loop_heat(lane);
	return RMR_OK;
}

void loop_remove_lane(struct lane *lane)
{
	if (list_is_empty(&lane->link))
		return;
	epoll_ctl(loop.epoll_fd, EPOLL_CTL_DEL, rmr_queue_fd(lane->queue), NULL);
	list_remove(&lane->link);
	list_remove(&lane->hot_link);
}

void loop_watch_path(struct path *path, bool is_wanted)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &path->source};

	if (path->is_watched == is_wanted)
		return;
	if (epoll_ctl(loop.epoll_fd, is_wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL,
		      rmr_listener_fd(path->listener), &event) != 0) {
		log_error("%s: cannot watch a listener: %s", path->lane.device_name,
			  strerror(errno));
		return;
	}
	path->is_watched = is_wanted;
}

void loop_set_timer(struct link *link, uint64_t deadline_ns)
{
	link->deadline_ns = deadline_ns;
	if (list_is_empty(&link->timer_link))
		list_add_tail(&loop.timers, &link->timer_link);
}

void loop_end_link(struct link *link, enum rmr_status status, const char *reason)
{
	if (link->is_ended)
		return;
	if (status == RMR_PROTOCOL)
		log_warn_limited("%s: %s; the connection ends",
				 link->conn ? link->conn->peer : "a caller", reason);
	lane_lock_take(&link->lane->lock);
	link->is_ended = true;
	link->status = status;
	if (reason != link->reason)
		snprintf(link->reason, sizeof(link->reason), "%s", reason);
	lane_lock_give(&link->lane->lock);
	list_add_tail(&loop.ended, &link->ended_link);
}

/* ------------------------------------------------------------------------------------------
 * The loop
 */

/* It was quiet for some turns. The clock is looked at only now, for that takes as long as polling.
 * The first time it only begins to run. */
static void consider_sleep(struct lane *lane)
{
	uint64_t now = clock_ticks();

	if (lane->idle_turns == IDLE_TURNS)
		lane->quiet_ticks = now;
	if (now - lane->quiet_ticks < lane->spin_ticks << lane->patience || !lane_arm(lane))
		return;
	list_remove(&lane->hot_link);
	lane->slept_ticks = now;
}

/* How long a wake-up takes here: some microseconds, or hundreds in some virtual machines, where who
 * wakes the other pays nearly as much. The shortest of a few naps tells, for others may have kept
 * us from the processor. */
static uint64_t measure_wake(void)
{
	const struct timespec nap = {.tv_nsec = NAP_US * 1000};
	uint64_t asked = (uint64_t)(NAP_US * clock_ticks_per_us()), least = UINT64_MAX;
	int slack = prctl(PR_GET_TIMERSLACK);

	prctl(PR_SET_TIMERSLACK, 1ul);
	for (int i = 0; i < NAPS; i++) {
		uint64_t begin = clock_ticks(), slept;

		nanosleep(&nap, NULL);
		slept = clock_ticks() - begin;
		if (slept < least)
			least = slept;
	}
	if (slack > 0)
		prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
	return least > asked ? least - asked : 0;
}

/* How patient a lane may become. */
static unsigned patience_max(const struct lane *lane)
{
	unsigned max = PATIENCE_LEAST;

	while (max < PATIENCE_MOST && lane->spin_ticks << max < loop.wake_ticks * WAKES_WORTH)
		max++;
	return max;
}

/* It was woken. A sleep that was hardly longer than a spin cost more than it saved: two ends that
 * take as long as a spin to answer would both sleep for good. After a long one spinning was in
 * vain; but one alone does not tell, for the peer may have been kept from its processor. */
static void learn_from_sleep(struct lane *lane)
{
	uint64_t slept = clock_ticks() - lane->slept_ticks;
	unsigned max = patience_max(lane);

	if (slept >= lane->spin_ticks << (max + 1))
		lane->patience /= 2;
	else if (lane->patience < max)
		lane->patience++;
}

static void run_hot(void)
{
	list_for_each_safe (at, &loop.hot) {
		struct lane *lane = list_entry(at, struct lane, hot_link);
		bool is_busy = lane_turn(lane);

		if (!list_is_empty(&loop.ended)) {
			requests_bury_ended(); /* and perhaps the lane with it */
			continue;
		}
		if (is_busy)
			lane->idle_turns = 0;
		else if (++lane->idle_turns >= IDLE_TURNS)
			consider_sleep(lane);
	}
}

/* Ends those whose time is over. Returns when to look again. */
static uint64_t run_timers(void)
{
	uint64_t now_ns = clock_now_ns(), next_ns = CLOCK_NEVER;

	list_for_each (at, &loop.timers) {
		struct link *link = list_entry(at, struct link, timer_link);

		if (link->deadline_ns <= now_ns)
			requests_time_out(link);
		if (!link->is_ended && link->deadline_ns < next_ns)
			next_ns = link->deadline_ns;
	}
	requests_bury_ended();
	if (loop.resume_ns <= now_ns) {
		loop.resume_ns = CLOCK_NEVER;
		runtime_wake(); /* who looks for requests looks at listeners too */
	}
	return next_ns < loop.resume_ns ? next_ns : loop.resume_ns;
}

static void take(const struct epoll_event *event)
{
	struct source *source = event->data.ptr;
	uint64_t count;

	switch (source->kind) {
	case SOURCE_WAKE:
		(void)!read(runtime.wake_fd, &count, sizeof(count));
		break;
	case SOURCE_LANE:
		/* One that is hot has not slept; its descriptor is only not taken back yet. */
		if (list_is_empty(&((struct lane *)source)->hot_link))
			learn_from_sleep((struct lane *)source);
		loop_heat((struct lane *)source);
		break;
	case SOURCE_PATH:
		accept_callers((struct path *)source);
		break;
	}
}

static void look(int timeout_ms)
{
	struct epoll_event events[64];
	int count = epoll_wait(loop.epoll_fd, events, 64, timeout_ms);

	loop.looked_ticks = clock_ticks();
	for (int i = 0; i < count; i++)
		take(&events[i]);
}

/* Everything is armed. Why no wake-up is lost: see runtime_wake. */
static void sleep_until(uint64_t deadline_ns)
{
	atomic_store(&runtime.is_asleep, true);
	if (!atomic_load(&runtime.has_requests))
		look(clock_remaining_ms(deadline_ns));
	atomic_store_explicit(&runtime.is_asleep, false, memory_order_relaxed);
}

static bool is_over(void)
{
	bool over;

	pthread_mutex_lock(&runtime.mutex);
	over = runtime.is_stopping && runtime.dialers == 0 && list_is_empty(&runtime.conns) &&
	       list_is_empty(&runtime.listeners) && list_is_empty(&runtime.adopts);
	pthread_mutex_unlock(&runtime.mutex);
	return over;
}

/* One round. False: the thread ends. */
static bool run_once(uint64_t look_ticks, uint64_t timer_ticks)
{
	uint64_t now, next_ns;

	if (atomic_load_explicit(&runtime.has_requests, memory_order_relaxed)) {
		atomic_exchange(&runtime.has_requests, false);
		requests_handle();
		requests_bury_ended();
		requests_finish_releases();
		if (is_over())
			return false;
	}
	run_hot();
	if (list_is_empty(&loop.hot)) {
		next_ns = run_timers();
		requests_finish_releases();
		sleep_until(next_ns);
		return true;
	}
	if (++loop.rounds % ROUNDS_BETWEEN_LOOKS)
		return true;
	now = clock_ticks();
	if (now - loop.looked_ticks > look_ticks)
		look(0);
	if (now - loop.timed_ticks > timer_ticks) {
		loop.timed_ticks = now;
		run_timers();
		requests_finish_releases();
	}
	return true;
}

void loop_work(void)
{
	uint64_t look_ticks = (uint64_t)(LOOK_US * clock_ticks_per_us());
	uint64_t timer_ticks = (uint64_t)(TIMER_US * clock_ticks_per_us());

	loop.wake_ticks = measure_wake();
	log_debug("the runtime: waking up takes %.0f us here",
		  (double)loop.wake_ticks / clock_ticks_per_us());
	while (run_once(look_ticks, timer_ticks))
		;
}

enum rmr_status loop_init(void)
{
	static struct source wake = {SOURCE_WAKE};
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &wake};

	loop = (struct loop){.resume_ns = CLOCK_NEVER};
	list_init(&loop.lanes);
	list_init(&loop.hot);
	list_init(&loop.timers);
	list_init(&loop.ended);
	list_init(&loop.releasing);
	loop.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop.epoll_fd < 0 ||
	    epoll_ctl(loop.epoll_fd, EPOLL_CTL_ADD, runtime.wake_fd, &event) != 0) {
		int saved = errno;

		loop_fini();
		return error_errno(RMR_SYSTEM, saved, "cannot make an epoll set");
	}
	return RMR_OK;
}

void loop_fini(void)
{
	if (loop.epoll_fd >= 0)
		close(loop.epoll_fd);
	loop.epoll_fd = -1;
}
