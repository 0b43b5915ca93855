/*
 * Domains: opening several devices, and polling and waiting over the queues of all of them.
 *
 * One pass of rmr_domains_poll takes what is done already, polls each queue once, lets lanes go on
 * that have room again, ends links that are to end, and takes what became done by this. Which queue
 * comes first changes with each pass, so that a small `max` starves none.
 *
 * Waiting is as in queue.c: spin a little, as long as that was worth it lately, then arm all queues
 * and sleep on one epoll set that holds their descriptors. The thread that owns the domains runs
 * everything here but rmr_domains_wake.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/domains_internal.h"

#define DEFAULT_SPIN_US 50
#define BATCH		32 /* completions that are taken from a queue at once */

static enum rmr_status watch(struct rmr_domains *domains, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (epoll_ctl(domains->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		return error_errno(RMR_SYSTEM, errno, "cannot watch a descriptor");
	return RMR_OK;
}

static enum rmr_status open_descriptors(struct rmr_domains *domains)
{
	domains->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	domains->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	domains->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (domains->epoll_fd < 0 || domains->timer_fd < 0 || domains->wake_fd < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot make the domains' descriptors");
	return watch(domains, domains->timer_fd);
}

static enum rmr_status open_domain(struct rmr_domains *domains, const char *name,
				   const struct rmr_domains_options *options)
{
	struct domain *domain = &domains->domain[domains->count++];
	enum rmr_status status = rmr_device_open(name, &options->device, &domain->device);

	if (status == RMR_OK)
		status = rmr_queue_open(domain->device, &options->queue, &domain->queue);
	if (status == RMR_OK)
		status = watch(domains, rmr_queue_fd(domain->queue));
	return status;
}

enum rmr_status rmr_domains_open(const char *const *names, int count,
				 const struct rmr_domains_options *options,
				 struct rmr_domains **out)
{
	static const struct rmr_domains_options defaults;
	struct rmr_domains *domains;
	enum rmr_status status;

	if (!names || count < 1)
		return error_set(RMR_INVALID, "no device is named");
	if (count > RMR_DOMAINS_MAX)
		return error_set(RMR_LIMIT, "%d devices, the limit is %d", count, RMR_DOMAINS_MAX);
	if (!options)
		options = &defaults;
	domains = calloc(1, sizeof(*domains));
	if (!domains)
		return error_set(RMR_NO_MEMORY, "no memory for domains");
	domains->epoll_fd = domains->timer_fd = domains->wake_fd = -1;
	list_init(&domains->done);
	list_init(&domains->failing);
	list_init(&domains->dirty);
	domains->spin_us = options->queue.spin_us ? options->queue.spin_us : DEFAULT_SPIN_US;
	if (domains->spin_us > 0)
		domains->spin_ticks = (uint64_t)(domains->spin_us * clock_ticks_per_us());
	status = open_descriptors(domains);
	for (int i = 0; i < count && status == RMR_OK; i++)
		status = open_domain(domains, names[i], options);
	if (status != RMR_OK) {
		rmr_domains_close(domains);
		return status;
	}
	*out = domains;
	return RMR_OK;
}

/* Also for domains of which only some are open. */
void rmr_domains_close(struct rmr_domains *domains)
{
	if (!domains)
		return;
	assert(atomic_load(&domains->children) == 0);
	for (int i = 0; i < domains->count; i++) {
		rmr_queue_close(domains->domain[i].queue);
		rmr_device_close(domains->domain[i].device);
	}
	if (domains->wake_fd >= 0)
		close(domains->wake_fd);
	if (domains->timer_fd >= 0)
		close(domains->timer_fd);
	if (domains->epoll_fd >= 0)
		close(domains->epoll_fd);
	free(domains);
}

void rmr_domains_get_info(const struct rmr_domains *domains, struct rmr_domains_info *info)
{
	*info = (struct rmr_domains_info){.count = domains->count};
	for (int i = 0; i < domains->count; i++) {
		const struct domain *domain = &domains->domain[i];

		info->domain[i] = (struct rmr_domain_info){
			.device = rmr_device_info(domain->device),
			.read_bytes = domain->read_bytes,
			.write_bytes = domain->write_bytes,
			.stripes = domain->stripes,
		};
	}
}

/* Takes events of works that are done, and gives their slots back. */
static int take_done(struct rmr_domains *domains, struct rmr_link_event *events, int max)
{
	int count = 0;

	while (count < max && !list_is_empty(&domains->done)) {
		struct slot *slot = list_first_entry(&domains->done, struct slot, link);

		events[count++] = (struct rmr_link_event){
			.link = slot->owner,
			.cookie = slot->work.cookie,
			.op = slot->work.op,
			.status = slot->status,
			.length = slot->work.length,
		};
		list_remove(&slot->link);
		if (slot != &slot->owner->farewell)
			list_add(&slot->owner->free, &slot->link);
	}
	return count;
}

/* Each completion makes one event at most (others come by the list of what is done), so no more
 * are taken than there is room for. */
static int poll_queue(struct rmr_domains *domains, int index, struct rmr_link_event *events,
		      int max)
{
	struct rmr_completion completions[BATCH];
	int asked = max < BATCH ? max : BATCH, count = 0;
	int taken = rmr_poll(domains->domain[index].queue, completions, asked);

	domains->domain[index].drained = taken < asked;
	for (int i = 0; i < taken; i++)
		count += link_take(domains, index, &completions[i], &events[count]);
	return count;
}

static void pump_dirty(struct rmr_domains *domains)
{
	while (!list_is_empty(&domains->dirty)) {
		struct lane *lane = list_first_entry(&domains->dirty, struct lane, dirty_link);

		list_remove(&lane->dirty_link);
		lane_pump(lane);
	}
}

int rmr_domains_poll(struct rmr_domains *domains, struct rmr_link_event *events, int max)
{
	int count = take_done(domains, events, max), first = domains->turn;

	domains->turn = (first + 1) % domains->count;
	for (int i = 0; i < domains->count; i++) {
		int index = (first + i) % domains->count;

		domains->domain[index].drained = false;
		if (count < max)
			count += poll_queue(domains, index, events + count, max - count);
	}
	pump_dirty(domains);
	link_end_failing(domains);
	return count + take_done(domains, events + count, max - count);
}

/* Was rmr_domains_wake called? Uses the call up. */
static bool take_wake(struct rmr_domains *domains)
{
	/* Acquire pairs with the release in rmr_domains_wake: what the waking thread did before is
	 * seen after rmr_domains_wait returned for it. */
	return atomic_load_explicit(&domains->wake, memory_order_relaxed) &&
	       atomic_exchange_explicit(&domains->wake, false, memory_order_acquire);
}

/* Polls at least once, and for up to spin_ticks. */
static int spin(struct rmr_domains *domains, struct rmr_link_event *events, int max)
{
	uint64_t start = clock_ticks(), limit;

	do {
		int count = rmr_domains_poll(domains, events, max);

		if (count > 0) {
			limit = domains->spin_us > 0
					? (uint64_t)(domains->spin_us * clock_ticks_per_us())
					: 0;
			domains->spin_ticks = domains->spin_ticks * 2 + 1;
			if (domains->spin_ticks > limit)
				domains->spin_ticks = limit;
			return count;
		}
		/* Relaxed: only a reason to stop; take_wake looks again. */
		if (atomic_load_explicit(&domains->wake, memory_order_relaxed))
			return 0;
		cpu_relax();
	} while (clock_ticks() - start < domains->spin_ticks);
	domains->spin_ticks /= 2;
	return 0;
}

/* Sleeps until something may have happened. False when the deadline passed. */
static bool sleep_until(struct rmr_domains *domains, uint64_t deadline_ns)
{
	struct pollfd fds[2] = {{.fd = domains->epoll_fd, .events = POLLIN},
				{.fd = domains->wake_fd, .events = POLLIN}};
	int timeout_ms = clock_remaining_ms(deadline_ns);

	if (timeout_ms == 0)
		return false;
	if (rmr_domains_arm(domains) == RMR_OK && poll(fds, 2, timeout_ms) > 0 &&
	    (fds[1].revents & POLLIN)) {
		/* Only here is the eventfd emptied. The flag, set before it, is looked at after. */
		uint64_t count;

		while (read(domains->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
			;
	}
	return true;
}

int rmr_domains_wait(struct rmr_domains *domains, struct rmr_link_event *events, int max,
		     int timeout_ms)
{
	uint64_t deadline_ns;
	int count = rmr_domains_poll(domains, events, max);

	if (count > 0 || timeout_ms == 0)
		return count;
	deadline_ns = clock_deadline_ns(timeout_ms);
	do {
		count = spin(domains, events, max);
	} while (count == 0 && !take_wake(domains) && sleep_until(domains, deadline_ns));
	return count;
}

void rmr_domains_wake(struct rmr_domains *domains)
{
	uint64_t one = 1;
	int saved = errno;

	/* Release: see take_wake. The flag is set before the eventfd, so that whoever wakes by the
	 * eventfd finds the flag. A full eventfd (EAGAIN) wakes just as well. */
	atomic_store_explicit(&domains->wake, true, memory_order_release);
	if (write(domains->wake_fd, &one, sizeof(one)) < 0)
		errno = saved;
}

int rmr_domains_fd(const struct rmr_domains *domains)
{
	return domains->epoll_fd;
}

enum rmr_status rmr_domains_arm(struct rmr_domains *domains)
{
	if (!list_is_empty(&domains->done))
		return RMR_AGAIN;
	for (int i = 0; i < domains->count; i++) {
		enum rmr_status status = rmr_queue_arm(domains->domain[i].queue);

		if (status != RMR_OK)
			return status;
	}
	return RMR_OK;
}

void rmr_domains_recv_release(struct rmr_domains *domains, const struct rmr_link_event *event)
{
	rmr_recv_release(domains->domain[event->domain].queue, event->data);
}
