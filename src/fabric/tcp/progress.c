/*
 * Progress: what happens when the owner of a queue polls, sleeps, or gives a slot back.
 *
 * What is to be taken in is the wire's business (socket.c). Some of it may be seen by nobody but an
 * owner who polls; so a helper that sees him poll no more takes over (helper.c). It is asked for
 * that (helper_want_ticks) before the lock is released, whenever something was left undone that
 * relies on the next poll: of the wire, or a connection that is dirty.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "fabric/tcp/internal.h"

/* base.epoll_fd is only slept upon; sockets_fd is asked directly. */
static void ignore_ready(struct queue_source *source, uint32_t events)
{
	(void)source;
	(void)events;
}

enum rmr_status progress_init(struct tcp_queue *queue, const struct tcp_wire *wire)
{
	struct rmr_queue *base = &queue->base;
	enum rmr_status status;

	queue->wire = wire;
	list_init(&queue->dirty);
	list_init(&queue->starved);
	queue->dispatch_every = queue->dispatch_in = 1;
	queue->source.ready = ignore_ready;
	queue->scratch = malloc(TCP_SCRATCH_BYTES);
	if (!queue->scratch)
		return error_set(RMR_NO_MEMORY, "no memory for a receive buffer");
	queue->sockets_fd = epoll_create1(EPOLL_CLOEXEC);
	queue->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (queue->sockets_fd < 0 || queue->notify_fd < 0) {
		status = error_errno(RMR_SYSTEM, errno, "cannot make an epoll set");
		goto close_descriptors;
	}
	status = queue_watch(base, queue->sockets_fd, EPOLLIN, &queue->source);
	if (status == RMR_OK)
		status = queue_watch(base, queue->notify_fd, EPOLLIN, &queue->source);
	if (status == RMR_OK)
		status = helper_add(&tcp_device_of(base->device)->helper, queue);
	if (status == RMR_OK)
		return RMR_OK;

close_descriptors:
	if (queue->sockets_fd >= 0)
		close(queue->sockets_fd);
	if (queue->notify_fd >= 0)
		close(queue->notify_fd);
	free(queue->scratch);
	return status;
}

enum rmr_status tcp_queue_init(struct rmr_queue *base)
{
	return progress_init((struct tcp_queue *)base, &socket_wire);
}

void progress_fini(struct tcp_queue *queue)
{
	helper_remove(&tcp_device_of(queue->base.device)->helper, queue);
	transmit_free_blocks(queue);
	close(queue->sockets_fd);
	close(queue->notify_fd);
	free(queue->scratch);
}

void tcp_queue_fini(struct rmr_queue *base)
{
	progress_fini((struct tcp_queue *)base);
}

static void flush_dirty(struct tcp_queue *queue)
{
	while (!list_is_empty(&queue->dirty))
		transmit_ready(list_first_entry(&queue->dirty, struct tcp_conn, dirty_link));
}

static void progress(struct tcp_queue *queue)
{
	flush_dirty(queue);
	queue->wire->progress(queue);
}

bool progress_needs_polls(const struct tcp_queue *queue)
{
	return queue->wire->needs_polls(queue) || !list_is_empty(&queue->dirty);
}

uint64_t progress_look_in_ns(const struct tcp_queue *queue)
{
	return queue->wire->look_in_ns ? queue->wire->look_in_ns(queue) : CLOCK_NEVER;
}

static void look_after(struct tcp_queue *queue)
{
	if (progress_needs_polls(queue))
		helper_want_ticks(queue);
}

/* The owner is awake. */
static void disarm(struct tcp_queue *queue)
{
	uint64_t count;

	queue->armed = false;
	if (queue->notified)
		(void)!read(queue->notify_fd, &count, sizeof(count));
	queue->notified = false;
}

int tcp_poll(struct rmr_queue *base, struct rmr_completion *completions, int max)
{
	struct tcp_queue *queue = (struct tcp_queue *)base;
	int count;

	queue_lock(queue);
	queue->polls++;
	if (queue->armed)
		disarm(queue);
	if (completion_ring_is_empty(&base->ring) || ++queue->ring_polls >= TCP_RING_POLLS) {
		queue->ring_polls = 0;
		progress(queue);
	}
	count = queue_pop(base, completions, max);
	if (count > 0 || queue->drain_due)
		message_drain(queue); /* immediates that waited for others to be polled */
	look_after(queue);
	queue_unlock(queue);
	return count;
}

enum rmr_status tcp_arm(struct rmr_queue *base)
{
	struct tcp_queue *queue = (struct tcp_queue *)base;
	enum rmr_status status = RMR_AGAIN;

	queue_lock(queue);
	flush_dirty(queue);
	if (completion_ring_is_empty(&base->ring) && queue->wire->arm(queue)) {
		queue->sleeps++;
		queue->armed = true;
		status = RMR_OK;
		look_after(queue);
	}
	queue_unlock(queue);
	return status;
}

void tcp_recv_release(struct rmr_queue *base, void *data)
{
	struct tcp_queue *queue = (struct tcp_queue *)base;

	queue_lock(queue);
	recv_pool_put(&base->recv, data);
	message_drain(queue);
	look_after(queue);
	queue_unlock(queue);
}

void progress_wake_owner(struct tcp_queue *queue)
{
	uint64_t one = 1;

	/* An eventfd that only he empties. */
	if (!queue->armed || queue->notified)
		return;
	(void)!write(queue->notify_fd, &one, sizeof(one));
	queue->notified = true;
}

void progress_by_helper(struct tcp_queue *queue)
{
	queue->by_helper = true;
	queue->wire->progress(queue);
	if (queue->drain_due)
		message_drain(queue);
	flush_dirty(queue); /* the owner is silent: it will not take acknowledgments along */
	queue->by_helper = false;
	/* If the owner sleeps, the epoll set that he sleeps on may be quiet again, since we took
	 * in what was there. */
	if (!completion_ring_is_empty(&queue->base.ring))
		progress_wake_owner(queue);
}
