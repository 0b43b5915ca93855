/*
 * Queues: one completion queue, polled without a system call, and descriptors for sleeping.
 *
 * A poll takes in what the completion queue has, and once in a while (LOOK_INTERVAL_US) asks the
 * descriptors: control channels, the adapter's events, the timer. Before sleeping the completion
 * queue is told to make its channel readable with the next entry, and looked at once more.
 *
 * The completion queue never overflows: it has an entry for each receive slot, and VERBS_CQ_SENDS
 * for send requests, which are counted (send_room) when they are posted, signaled or not, for a
 * failing queue pair makes an entry of every one. Connections that find no room wait their turn in
 * `starved`.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "fabric/verbs/internal.h"

#define LOOK_INTERVAL_US    200
#define POLLS_BETWEEN_LOOKS 32 /* polls before the clock is looked at */
#define CQ_EVENTS_KEPT	    64 /* acknowledging takes a lock: not each by itself */
#define TABLE_MIN	    16

static void adapter_is_gone(struct verbs_queue *queue)
{
	uint64_t one = 1;

	atomic_store_explicit(&queue->adapter_failed, true, memory_order_release);
	(void)!write(queue->async_fd, &one, sizeof(one));
}

/* The channel has told that something came; it is armed again before the next sleep. */
static void cq_ready(struct queue_source *source, uint32_t events)
{
	struct verbs_queue *queue =
		(struct verbs_queue *)((char *)source - offsetof(struct verbs_queue, cq_source));
	struct ibv_cq *cq;
	void *context;

	(void)events;
	while (ibv_get_cq_event(queue->channel, &cq, &context) == 0)
		queue->cq_events++;
	if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
		/* The adapter is gone, and the channel would be readable for ever. */
		(void)epoll_ctl(queue->base.epoll_fd, EPOLL_CTL_DEL, queue->channel->fd, NULL);
		adapter_is_gone(queue);
	}
	if (queue->cq_events >= CQ_EVENTS_KEPT) {
		ibv_ack_cq_events(queue->cq, queue->cq_events);
		queue->cq_events = 0;
	}
}

/* async.c has set flags. */
static void async_ready(struct queue_source *source, uint32_t events)
{
	struct verbs_queue *queue =
		(struct verbs_queue *)((char *)source - offsetof(struct verbs_queue, async_source));
	bool all_failed;
	uint64_t count;

	(void)events;
	(void)!read(queue->async_fd, &count, sizeof(count));
	/* What is in the completion queue came before, and says more of the reason. */
	queue_drain(queue);
	/* Acquire: pairs with the release in async.c. */
	all_failed = atomic_load_explicit(&queue->adapter_failed, memory_order_acquire);
	if (atomic_exchange_explicit(&queue->probe_due, false, memory_order_acquire))
		keepalive_probe_all(queue);
	list_for_each (link, &queue->base.conns) {
		struct verbs_conn *conn =
			(struct verbs_conn *)list_entry(link, struct rmr_conn, link);

		if (all_failed || atomic_load_explicit(&conn->adapter_failed, memory_order_acquire))
			verbs_conn_fail(conn, all_failed ? RMR_NO_DEVICE : RMR_DISCONNECTED);
	}
}

static enum rmr_status open_cq(struct verbs_queue *queue)
{
	struct verbs_device *device = verbs_device_of(queue->base.device);
	/* One more for the last request of a connection: see flush_qp in conn.c. */
	int entries = (int)(queue->base.recv.slots + VERBS_CQ_SENDS + 1);

	queue->channel = ibv_create_comp_channel(device->context);
	if (!queue->channel)
		return error_errno(RMR_SYSTEM, errno, "no completion channel");
	(void)fcntl(queue->channel->fd, F_SETFL, fcntl(queue->channel->fd, F_GETFL) | O_NONBLOCK);
	queue->cq = ibv_create_cq(device->context, entries, queue, queue->channel, 0);
	if (!queue->cq) {
		enum rmr_status status =
			doctor_create_failed("completion queue", (unsigned)entries, errno);

		ibv_destroy_comp_channel(queue->channel);
		return status;
	}
	queue->send_room = VERBS_CQ_SENDS;
	return RMR_OK;
}

static void close_cq(struct verbs_queue *queue)
{
	ibv_ack_cq_events(queue->cq, queue->cq_events);
	ibv_destroy_cq(queue->cq);
	ibv_destroy_comp_channel(queue->channel);
}

/* The channel that the control channels of our connections report to. */
static enum rmr_status open_cm(struct verbs_queue *queue)
{
	const struct verbs_device *device = verbs_device_of(queue->base.device);
	enum rmr_status status;

	if (device->name.socket)
		return RMR_OK;
	status = cm_open_channel(device, &queue->cm);
	if (status != RMR_OK)
		return status;
	queue->cm_source.ready = cm_ready;
	return queue_watch(&queue->base, queue->cm->fd, EPOLLIN, &queue->cm_source);
}

static enum rmr_status open_descriptors(struct verbs_queue *queue)
{
	enum rmr_status status;

	queue->async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (queue->async_fd < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot make an eventfd");
	queue->async_source.ready = async_ready;
	queue->cq_source.ready = cq_ready;
	status = queue_watch(&queue->base, queue->async_fd, EPOLLIN, &queue->async_source);
	if (status == RMR_OK)
		status = queue_watch(&queue->base, queue->channel->fd, EPOLLIN, &queue->cq_source);
	if (status == RMR_OK)
		status = open_cm(queue);
	if (status == RMR_OK)
		return RMR_OK;
	if (queue->cm)
		rdma_destroy_event_channel(queue->cm);
	close(queue->async_fd);
	return status;
}

enum rmr_status verbs_queue_init(struct rmr_queue *base)
{
	struct verbs_queue *queue = verbs_queue_of(base);
	struct verbs_device *device = verbs_device_of(base->device);
	enum rmr_status status;

	list_init(&queue->arrived);
	list_init(&queue->starved);
	list_init(&queue->ending);
	queue->look_interval = (uint64_t)(LOOK_INTERVAL_US * clock_ticks_per_us());
	status = open_cq(queue);
	if (status != RMR_OK)
		return status;
	status = open_descriptors(queue);
	if (status != RMR_OK)
		goto close_cq;
	status = keepalive_init(queue);
	if (status != RMR_OK)
		goto close_descriptors;
	status = arrive_init(queue);
	if (status != RMR_OK)
		goto close_keepalive;
	pthread_mutex_lock(&device->lock);
	list_add_tail(&device->queues, &queue->device_link);
	/* If the adapter goes right now: async.c finds the queue, or this does. */
	if (atomic_load_explicit(&device->gone, memory_order_acquire))
		atomic_store_explicit(&queue->adapter_failed, true, memory_order_release);
	pthread_mutex_unlock(&device->lock);
	return RMR_OK;

close_keepalive:
	keepalive_fini(queue);
close_descriptors:
	if (queue->cm)
		rdma_destroy_event_channel(queue->cm);
	close(queue->async_fd);
close_cq:
	close_cq(queue);
	return status;
}

void verbs_queue_fini(struct rmr_queue *base)
{
	struct verbs_queue *queue = verbs_queue_of(base);
	struct verbs_device *device = verbs_device_of(base->device);

	pthread_mutex_lock(&device->lock);
	list_remove(&queue->device_link);
	pthread_mutex_unlock(&device->lock);
	arrive_fini(queue);
	keepalive_fini(queue);
	if (queue->cm)
		rdma_destroy_event_channel(queue->cm);
	close(queue->async_fd);
	close_cq(queue);
	free(queue->by_qpn);
}

/* ------------------------------------------------------------------------------------------
 * Connections by the number of their queue pair, as received messages name them.
 */

static void put_conn(struct verbs_queue *queue, struct verbs_conn *conn)
{
	uint32_t place = queue_place_of(queue, conn->qpn);

	while (queue->by_qpn[place])
		place = (place + 1) & queue->by_qpn_mask;
	queue->by_qpn[place] = conn;
}

/* A table of this size with all that the old one had. */
static bool resize_table(struct verbs_queue *queue, uint32_t size)
{
	struct verbs_conn **old = queue->by_qpn,
			  **table = calloc(size, sizeof(struct verbs_conn *));
	uint32_t old_size = old ? queue->by_qpn_mask + 1 : 0;

	if (!table)
		return false;
	queue->by_qpn = table;
	queue->by_qpn_mask = size - 1;
	for (uint32_t i = 0; i < old_size; i++) {
		if (old[i])
			put_conn(queue, old[i]);
	}
	free(old);
	return true;
}

enum rmr_status queue_add_conn(struct verbs_queue *queue, struct verbs_conn *conn)
{
	uint32_t size = queue->by_qpn ? queue->by_qpn_mask + 1 : 0;

	if (2 * (queue->by_qpn_count + 1) > size &&
	    !resize_table(queue, size ? 2 * size : TABLE_MIN))
		return error_set(RMR_NO_MEMORY, "no memory for a connection");
	put_conn(queue, conn);
	queue->by_qpn_count++;
	return RMR_OK;
}

void queue_remove_conn(struct verbs_queue *queue, struct verbs_conn *conn)
{
	uint32_t place = queue_place_of(queue, conn->qpn);

	while (queue->by_qpn[place] != conn)
		place = (place + 1) & queue->by_qpn_mask;
	queue->by_qpn[place] = NULL;
	queue->by_qpn_count--;
	/* Those behind it must stay reachable: put each of them anew. */
	for (place = (place + 1) & queue->by_qpn_mask; queue->by_qpn[place];
	     place = (place + 1) & queue->by_qpn_mask) {
		struct verbs_conn *moved = queue->by_qpn[place];

		queue->by_qpn[place] = NULL;
		put_conn(queue, moved);
	}
}

/* ------------------------------------------------------------------------------------------
 * Polling
 */

static void take(struct verbs_queue *queue, const struct ibv_wc *wc)
{
	/* The opcode is undefined in failed entries: the wr_id tells. */
	if (wc->wr_id & VERBS_WR_RECV)
		arrive_take(queue, wc);
	else
		complete_take(queue, wc);
}

/* Returns whether there may be more. */
static bool take_batch(struct verbs_queue *queue)
{
	struct ibv_wc batch[VERBS_POLL_BATCH];
	int count = ibv_poll_cq(queue->cq, VERBS_POLL_BATCH, batch);

	if (count < 0) {
		log_error("%s: the completion queue cannot be polled",
			  queue->base.device->info.name);
		adapter_is_gone(queue);
		return false;
	}
	for (int i = 0; i < count; i++)
		take(queue, &batch[i]);
	return count == VERBS_POLL_BATCH;
}

void queue_drain(struct verbs_queue *queue)
{
	while (take_batch(queue))
		;
}

/* Those who waited for room in the completion queue, the longest waiting first. */
static void feed_starved(struct verbs_queue *queue)
{
	while (queue->send_room > 0 && !list_is_empty(&queue->starved)) {
		struct verbs_conn *conn =
			list_first_entry(&queue->starved, struct verbs_conn, starved_link);

		list_remove(&conn->starved_link);
		post_start(conn); /* which may put it back, at the end */
	}
}

static void look_at_descriptors(struct verbs_queue *queue)
{
	uint64_t now = clock_ticks();

	if (now - queue->looked < queue->look_interval)
		return;
	queue->looked = now;
	queue_dispatch(&queue->base);
}

int verbs_poll(struct rmr_queue *base, struct rmr_completion *completions, int max)
{
	struct verbs_queue *queue = verbs_queue_of(base);

	if (queue->armed) {
		queue->armed = false;
		queue->looked = clock_ticks();
		queue_dispatch(base);
	} else if (++queue->polls % POLLS_BETWEEN_LOOKS == 0) {
		look_at_descriptors(queue);
	}
	/* One batch is enough while the program has something to do. */
	(void)take_batch(queue);
	if (completion_ring_is_empty(&base->ring))
		look_at_descriptors(queue); /* there is time for it */
	if (!list_is_empty(&queue->starved))
		feed_starved(queue);
	if (!list_is_empty(&queue->ending))
		verbs_conn_end_all(queue);
	if (!list_is_empty(&queue->arrived))
		arrive_deliver(queue); /* immediates that waited for others to be polled */
	return queue_pop(base, completions, max);
}

/* Would a poll find something in the completion queue? Takes it in. */
enum rmr_status verbs_arm(struct rmr_queue *base)
{
	struct verbs_queue *queue = verbs_queue_of(base);

	if (!completion_ring_is_empty(&base->ring) || !list_is_empty(&queue->ending))
		return RMR_AGAIN;
	queue->armed = true;
	if (ibv_req_notify_cq(queue->cq, 0) != 0)
		return RMR_AGAIN;
	/* What came before the request makes no event: look once more. */
	queue_drain(queue);
	if (!list_is_empty(&queue->starved))
		feed_starved(queue);
	if (!list_is_empty(&queue->arrived))
		arrive_deliver(queue); /* immediates, now that others were polled */
	if (!completion_ring_is_empty(&base->ring) || !list_is_empty(&queue->ending))
		return RMR_AGAIN;
	return RMR_OK;
}
