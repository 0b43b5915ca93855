/*
 * Queues: polling, waiting, waking.
 *
 * rmr_wait spins before it sleeps, because on a busy connection the answer comes sooner than the
 * kernel could wake us. How long, it learns: each wait that spinning satisfied doubles the time up
 * to options.spin_us, each one that it did not halves it, so a queue that is mostly idle soon goes
 * to sleep at once. One that slept, but not for much longer than it could have spun, spins the
 * whole time next: else two ends that wait for each other would both go on sleeping. But not where
 * that is lost time and again (base/spin_gauge.h): then the other end waits for our processor.
 *
 * It sleeps on two descriptors: the provider's epoll set, and an eventfd for rmr_queue_wake. They
 * are kept apart because on some providers a thread of theirs also reads the epoll set and would
 * swallow the wake-up.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/provider.h"

#define DEFAULT_RECV_SLOTS 64
#define DEFAULT_RECV_SIZE  8192
#define DEFAULT_SPIN_US	   50
/* A sleep of less than so many times the longest spin was hardly worth it. */
#define SPIN_WORTH 2u
/* One in so many spins that were won is looked at: was it won while others had the processor? */
#define SAMPLE 8u

static void fill_defaults(struct rmr_queue *queue, const struct rmr_queue_options *options)
{
	if (options)
		queue->options = *options;
	if (queue->options.recv_slots == 0)
		queue->options.recv_slots = DEFAULT_RECV_SLOTS;
	if (queue->options.recv_size == 0)
		queue->options.recv_size = DEFAULT_RECV_SIZE;
	if (queue->options.spin_us == 0)
		queue->options.spin_us = DEFAULT_SPIN_US;
	if (queue->options.spin_us > 0)
		queue->spin_limit = (uint64_t)(queue->options.spin_us * clock_ticks_per_us());
	queue->spin_ticks = queue->spin_limit;
	queue->spin_gap = (uint64_t)(SPIN_GAUGE_GAP_US * clock_ticks_per_us());
}

static enum rmr_status open_descriptors(struct rmr_queue *queue)
{
	queue->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (queue->epoll_fd < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot make an epoll set");
	queue->wake_fd = queue->options.never_woken ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (queue->wake_fd < 0 && !queue->options.never_woken) {
		close(queue->epoll_fd);
		return error_errno(RMR_SYSTEM, errno, "cannot make an eventfd");
	}
	return RMR_OK;
}

static void close_descriptors(struct rmr_queue *queue)
{
	if (queue->wake_fd >= 0)
		close(queue->wake_fd);
	close(queue->epoll_fd);
}

enum rmr_status rmr_queue_open(struct rmr_device *device, const struct rmr_queue_options *options,
			       struct rmr_queue **out)
{
	struct rmr_queue *queue;
	uint32_t spread = device->provider->doubles_slots ? 2 : 1;
	enum rmr_status status;

	if (fork_is_foreign(device->generation))
		return foreign_handle();
	queue = calloc(1, device->provider->queue_size);
	if (!queue)
		return error_set(RMR_NO_MEMORY, "no memory for a queue");
	queue->device = device;
	queue->provider = device->provider;
	queue->generation = device->generation;
	spin_lock_init(&queue->lock);
	list_init(&queue->conns);
	list_init(&queue->held);
	fill_defaults(queue, options);
	if (queue->options.recv_slots > device->info.max_slots ||
	    queue->options.recv_size > device->info.max_message) {
		status = error_set(RMR_LIMIT, "%u slots of %u bytes: '%s' has at most %u of %zu",
				   queue->options.recv_slots, queue->options.recv_size,
				   device->info.name, device->info.max_slots,
				   device->info.max_message);
		goto free_queue;
	}
	status = open_descriptors(queue);
	if (status != RMR_OK)
		goto free_queue;
	status = recv_pool_init(&queue->recv, queue->options.recv_slots * spread,
				queue->options.recv_size);
	if (status != RMR_OK)
		goto close_descriptors;
	/* One entry for each message that can lie in a slot, and as many for immediates. */
	status = completion_ring_reserve(&queue->ring, 2 * queue->options.recv_slots);
	if (status != RMR_OK)
		goto fini_recv;
	status = queue->provider->queue_init(queue);
	if (status != RMR_OK)
		goto fini_ring;
	atomic_fetch_add(&device->children, 1);
	*out = queue;
	return RMR_OK;

fini_ring:
	completion_ring_fini(&queue->ring);
fini_recv:
	recv_pool_fini(&queue->recv);
close_descriptors:
	close_descriptors(queue);
free_queue:
	free(queue);
	return error_context(status, "opening a queue on '%s'", device->info.name);
}

void rmr_queue_close(struct rmr_queue *queue)
{
	if (!queue)
		return;
	if (fork_is_foreign(queue->generation)) {
		close_descriptors(queue);
		return;
	}
	assert(list_is_empty(&queue->conns));
	queue->provider->queue_fini(queue);
	completion_ring_fini(&queue->ring);
	recv_pool_fini(&queue->recv);
	close_descriptors(queue);
	atomic_fetch_sub(&queue->device->children, 1);
	free(queue);
}

enum rmr_status queue_watch(struct rmr_queue *queue, int fd, uint32_t events,
			    struct queue_source *source)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	if (epoll_ctl(queue->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		return error_errno(RMR_SYSTEM, errno, "cannot watch a descriptor");
	return RMR_OK;
}

int queue_dispatch(struct rmr_queue *queue)
{
	struct epoll_event events[32];
	int count = epoll_wait(queue->epoll_fd, events, 32, 0);

	for (int i = 0; i < count; i++) {
		struct queue_source *source = events[i].data.ptr;

		source->ready(source, events[i].events);
	}
	return count < 0 ? 0 : count;
}

int queue_pop(struct rmr_queue *queue, struct rmr_completion *completions, int max)
{
	struct completion_ring *ring = &queue->ring;
	int count = 0;

	while (count < max && ring->head != ring->tail) {
		struct rmr_completion *completion = &completions[count++];

		completion_copy(completion, &ring->entries[ring->head++ & ring->mask]);
		if (completion->op <= RMR_OP_FETCH_ADD)
			completion->conn->outstanding--;
		else if (completion->op == RMR_OP_RECV_IMM)
			queue->pending_imm--;
	}
	return count;
}

int rmr_poll(struct rmr_queue *queue, struct rmr_completion *completions, int max)
{
	if (fork_is_foreign(queue->generation))
		return 0;
	return queue->provider->poll(queue, completions, max);
}

/* Was rmr_queue_wake called? Uses the call up. */
static bool take_wake(struct rmr_queue *queue)
{
	/* Acquire pairs with the release in rmr_queue_wake: what the waking thread did before is
	 * seen after rmr_wait returned for it. */
	return atomic_load_explicit(&queue->wake, memory_order_relaxed) &&
	       atomic_exchange_explicit(&queue->wake, false, memory_order_acquire);
}

/* In ticks; not beyond the caller's own deadline. */
static uint64_t spin_limit(const struct rmr_queue *queue, uint64_t now_ns, uint64_t deadline_ns)
{
	uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
	uint64_t left;

	if (queue->spin_limit == 0 || left_ns >= (uint64_t)queue->options.spin_us * 1000)
		return queue->spin_limit;
	left = (uint64_t)((double)left_ns / 1000 * clock_ticks_per_us());
	return left < queue->spin_limit ? left : queue->spin_limit;
}

/* Something came while we spun. */
static void spin_won(struct rmr_queue *queue, uint64_t limit)
{
	spin_gauge_won(&queue->gauge);
	queue->spin_ticks = queue->spin_ticks * 2 + 1;
	if (queue->spin_ticks > limit)
		queue->spin_ticks = limit;
}

/* Nothing came, or we were taken off the processor meanwhile. */
static void spin_lost(struct rmr_queue *queue, uint64_t limit, bool preempted)
{
	if (preempted)
		spin_gauge_preempted(&queue->gauge);
	else if (queue->spin_ticks == limit)
		spin_gauge_lost(&queue->gauge);
	queue->spin_ticks = spin_gauge_is_crowded(&queue->gauge) ? 0 : queue->spin_ticks / 2;
}

/* Polls for up to spin_ticks, and as long again whenever a peer was served meanwhile, or a part of
 * a long transfer came in: whoever READs our memory over tcp is as much a reason to stay awake as
 * whoever sends us a message. */
static int spin(struct rmr_queue *queue, struct rmr_completion *completions, int max,
		uint64_t now_ns, uint64_t deadline_ns)
{
	uint64_t limit = spin_limit(queue, now_ns, deadline_ns);
	uint64_t start = clock_ticks(), last = start, time;
	bool preempted = false;
	unsigned served = atomic_load_explicit(&queue->served, memory_order_relaxed);

	if (queue->spin_ticks > limit)
		queue->spin_ticks = limit;
	if (limit == 0)
		return 0;
	do {
		unsigned now;

		for (int i = 0; i < 16; i++) {
			int count = rmr_poll(queue, completions, max);

			if (count > 0) {
				/* The clock is dear here: some of them tell enough. */
				if (++queue->spins_won % SAMPLE == 0 &&
				    clock_ticks() - last > queue->spin_gap)
					spin_lost(queue, limit, true);
				else
					spin_won(queue, limit);
				return count;
			}
		}
		cpu_relax(); /* not after each poll: it takes as long as several of them */
		if (atomic_load_explicit(&queue->wake, memory_order_relaxed))
			return 0;
		now = atomic_load_explicit(&queue->served, memory_order_relaxed);
		if (now != served) {
			served = now;
			start = last = clock_ticks();
			queue->spin_ticks = limit;
			if (clock_passed(deadline_ns))
				return 0;
		}
		time = clock_ticks();
		preempted = time - last > queue->spin_gap;
		last = time;
	} while (!preempted && time - start < queue->spin_ticks);
	spin_lost(queue, limit, preempted);
	return 0;
}

/* After a wait that slept, and brought something after so many ticks. */
static void consider_spinning(struct rmr_queue *queue, uint64_t ticks)
{
	if (ticks < SPIN_WORTH * queue->spin_limit && spin_gauge_pays(&queue->gauge))
		queue->spin_ticks = queue->spin_limit;
}

static void flush_held(struct rmr_queue *queue)
{
	while (!list_is_empty(&queue->held))
		rmr_flush(list_entry(queue->held.next, struct rmr_conn, held_link));
}

/* Sleeps until something may have happened. False when the deadline passed. */
static bool sleep_until(struct rmr_queue *queue, uint64_t deadline_ns)
{
	/* Without a wake_fd the second one is -1, which poll() leaves out. */
	struct pollfd fds[2] = {{.fd = queue->epoll_fd, .events = POLLIN},
				{.fd = queue->wake_fd, .events = POLLIN}};
	int timeout_ms = clock_remaining_ms(deadline_ns);

	if (timeout_ms == 0)
		return false;
	if (queue->provider->arm(queue) == RMR_OK && poll(fds, 2, timeout_ms) > 0 &&
	    (fds[1].revents & POLLIN)) {
		/* Only here is the eventfd emptied. The flag, set before it, is looked at after. */
		uint64_t count;

		while (read(queue->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
			;
	}
	return true;
}

int rmr_wait(struct rmr_queue *queue, struct rmr_completion *completions, int max, int timeout_ms)
{
	uint64_t now_ns, deadline_ns, begin;
	int count = rmr_poll(queue, completions, max);
	bool slept = false;

	if (count > 0 || timeout_ms == 0 || fork_is_foreign(queue->generation))
		return count;
	now_ns = clock_quick_ns();
	deadline_ns = timeout_ms < 0 ? CLOCK_NEVER : now_ns + (uint64_t)timeout_ms * 1000000u;
	begin = clock_ticks();
	flush_held(queue);
	count = spin(queue, completions, max, now_ns, deadline_ns);
	while (count == 0) {
		unsigned served = atomic_load_explicit(&queue->served, memory_order_relaxed);

		if (take_wake(queue) || !sleep_until(queue, deadline_ns))
			break;
		slept = true;
		count = rmr_poll(queue, completions, max);
		if (count == 0 &&
		    atomic_load_explicit(&queue->served, memory_order_relaxed) != served)
			count = spin(queue, completions, max, clock_now_ns(), deadline_ns);
	}
	if (slept && count > 0)
		consider_spinning(queue, clock_ticks() - begin);
	return count;
}

unsigned rmr_queue_activity(const struct rmr_queue *queue)
{
	return atomic_load_explicit(&queue->served, memory_order_relaxed);
}

void rmr_queue_wake(struct rmr_queue *queue)
{
	uint64_t one = 1;
	int saved = errno;

	assert(!queue->options.never_woken);
	/* Release: see take_wake. The flag is set before the eventfd, so that whoever wakes by the
	 * eventfd finds the flag. A full eventfd (EAGAIN) wakes just as well. */
	atomic_store_explicit(&queue->wake, true, memory_order_release);
	if (write(queue->wake_fd, &one, sizeof(one)) < 0)
		errno = saved;
}

int rmr_queue_fd(const struct rmr_queue *queue)
{
	return queue->epoll_fd;
}

enum rmr_status rmr_queue_arm(struct rmr_queue *queue)
{
	if (fork_is_foreign(queue->generation))
		return foreign_handle();
	flush_held(queue);
	return queue->provider->arm(queue);
}

void rmr_recv_release(struct rmr_queue *queue, void *data)
{
	if (!fork_is_foreign(queue->generation))
		queue->provider->recv_release(queue, data);
}
