/*
 * Progress: what happens when the owner of a queue polls, sleeps, or gives a slot back.
 *
 * Asking epoll and then receiving makes two system calls; a program that waits for an answer on
 * one connection should make one. So connections that lately had something are *hot*: at most
 * TCP_HOT_MAX of them, and each poll receives on them directly. They are not watched by epoll
 * meanwhile, which also spares the sender the wake-ups. All others cost a poll nothing: they
 * are looked at through epoll, each time when there is something, ever more seldom when there
 * is not.
 *
 *	cold --has something TCP_HOT_AFTER times--> hot --TCP_COOL_AFTER empty polls--> cold
 *	                                             +--the owner sleeps, or does not poll--> cold
 *
 * Since nobody is woken by a hot connection, a helper that sees the owner poll no more takes
 * over (helper.c). It is asked for that (helper_want_ticks) before the lock is released,
 * whenever something was left undone that relies on the next poll: a hot connection, or one
 * that is dirty.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "fabric/tcp/internal.h"

#define EVENTS_AT_ONCE 32

/* base.epoll_fd is only slept upon; sockets_fd is asked directly. */
static void ignore_ready(struct queue_source *source, uint32_t events)
{
	(void)source;
	(void)events;
}

enum rmr_status tcp_queue_init(struct rmr_queue *base)
{
	struct tcp_queue *queue = (struct tcp_queue *)base;
	enum rmr_status status;

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

void tcp_queue_fini(struct rmr_queue *base)
{
	struct tcp_queue *queue = (struct tcp_queue *)base;

	helper_remove(&tcp_device_of(base->device)->helper, queue);
	transmit_free_blocks(queue);
	close(queue->sockets_fd);
	close(queue->notify_fd);
	free(queue->scratch);
}

void progress_cool(struct tcp_conn *conn)
{
	struct tcp_queue *queue = tcp_queue_of(conn);

	if (!conn->hot)
		return;
	for (unsigned i = 0; i < queue->hot_count; i++) {
		if (queue->hot[i] == conn) {
			queue->hot[i] = queue->hot[--queue->hot_count];
			break;
		}
	}
	conn->hot = false;
	conn->heat = 0;
	conn_update_interest(conn);
}

static void heat(struct tcp_conn *conn)
{
	struct tcp_queue *queue = tcp_queue_of(conn);

	if (queue->hot_count == TCP_HOT_MAX) {
		/* One that found nothing lately gives way. */
		for (unsigned i = 0; i < TCP_HOT_MAX; i++) {
			if (queue->hot[i]->idle_polls > TCP_DISPATCH_EVERY_MAX) {
				progress_cool(queue->hot[i]);
				break;
			}
		}
		if (queue->hot_count == TCP_HOT_MAX)
			return;
	}
	queue->hot[queue->hot_count++] = conn;
	conn->hot = true;
	conn->idle_polls = 0;
	conn_update_interest(conn);
}

/* A connection found by epoll had something. */
static void warm(struct tcp_conn *conn)
{
	struct tcp_queue *queue = tcp_queue_of(conn);

	if (queue->by_helper || conn->state != CONN_OPEN || conn->hot)
		return;
	if (conn->heat_sleeps != queue->sleeps) {
		conn->heat_sleeps = queue->sleeps;
		conn->heat = 0;
	}
	if (++conn->heat >= TCP_HOT_AFTER)
		heat(conn);
}

static void dispatch(struct tcp_queue *queue)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	int count = epoll_wait(queue->sockets_fd, events, EVENTS_AT_ONCE, 0);
	bool found = false;

	for (int i = 0; i < count; i++) {
		struct tcp_conn *conn = events[i].data.ptr;

		if (events[i].events & EPOLLOUT)
			transmit_unblock(conn);
		if ((events[i].events & ~(uint32_t)EPOLLOUT) && receive_ready(conn)) {
			found = true;
			warm(conn);
		}
	}
	if (found)
		queue->dispatch_every = 1;
	else if (queue->dispatch_every < TCP_DISPATCH_EVERY_MAX)
		queue->dispatch_every *= 2;
	queue->dispatch_in = queue->dispatch_every;
}

static void flush_dirty(struct tcp_queue *queue)
{
	while (!list_is_empty(&queue->dirty))
		transmit_ready(list_first_entry(&queue->dirty, struct tcp_conn, dirty_link));
}

static void poll_hot(struct tcp_queue *queue)
{
	/* From the end: one that leaves is replaced by the last, which had its turn. */
	for (unsigned i = queue->hot_count; i-- > 0;) {
		struct tcp_conn *conn = queue->hot[i];

		if (receive_ready(conn))
			conn->idle_polls = 0;
		else if (++conn->idle_polls >= TCP_COOL_AFTER)
			progress_cool(conn);
	}
}

static void progress(struct tcp_queue *queue)
{
	flush_dirty(queue);
	poll_hot(queue);
	if (queue->hot_count == 0 || queue->blocked || --queue->dispatch_in == 0)
		dispatch(queue);
}

static void look_after(struct tcp_queue *queue)
{
	if (queue->hot_count || !list_is_empty(&queue->dirty))
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
	if (completion_ring_is_empty(&base->ring)) {
		/* What a hot socket holds already makes epoll_fd readable when it is watched again:
		 * it is level-triggered. */
		while (queue->hot_count)
			progress_cool(queue->hot[0]);
		queue->sleeps++;
		queue->armed = true;
		status = RMR_OK;
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

void progress_by_helper(struct tcp_queue *queue)
{
	uint64_t one = 1;

	queue->by_helper = true;
	while (queue->hot_count)
		progress_cool(queue->hot[0]);
	dispatch(queue);
	if (queue->drain_due)
		message_drain(queue);
	flush_dirty(queue); /* the owner is silent: it will not take acknowledgments along */
	queue->by_helper = false;
	/* If the owner sleeps, the epoll set that he sleeps on is quiet again, since we took in
	 * what was there. An eventfd that only he empties tells him. */
	if (queue->armed && !queue->notified && !completion_ring_is_empty(&queue->base.ring)) {
		(void)!write(queue->notify_fd, &one, sizeof(one));
		queue->notified = true;
	}
}
