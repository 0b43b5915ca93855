/*
 * The adapter's own events: a queue pair broke, a port went down or came back, the adapter is gone.
 *
 * They come through one descriptor a device, and concern connections of any queue. A thread takes
 * them, marks the connection or all of them, and wakes the queue by its eventfd; the owner does
 * the rest when he polls. The thread looks at a connection only between ibv_get_async_event and
 * ibv_ack_async_event: as long as an event is not acknowledged, ibv_destroy_qp waits, so the
 * connection is there.
 *
 * An adapter can be removed (unplugged, `rdma link delete`). Drivers differ in what they do then.
 * Some take it away from under its users, and say so by an event. Others, soft-RoCE among them, say
 * nothing: it goes on for those who have it open, and whoever removes it waits until the last of
 * them has closed it. What tells is that its entry in sysfs is gone, or is another one's. So the
 * thread looks there once a second, and ends the connections, for their users to close the device.
 * (RDMA CM tells of it as well, and at once: cm.c.)
 *
 * A port that goes down does not end its connections at once, for the cable may be back in a
 * moment and the adapter repeats what was lost. They are asked whether they live (keepalive.c),
 * which fails in bounded time if they do not.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "fabric/verbs/internal.h"

static void wake(struct verbs_queue *queue)
{
	uint64_t one = 1;

	(void)!write(queue->async_fd, &one, sizeof(one));
}

/* Release pairs with the acquire of whoever takes the flag: the eventfd's write would do as well,
 * but a poll that looks at the flag by chance must be right too. */
static void mark_conn(struct verbs_conn *conn)
{
	atomic_store_explicit(&conn->adapter_failed, true, memory_order_release);
	wake(conn_queue(conn));
}

static void mark_last_slot(struct verbs_conn *conn)
{
	atomic_store_explicit(&conn->last_slot, true, memory_order_release);
	mark_conn(conn);
}

static void mark_queue(struct verbs_queue *queue)
{
	atomic_store_explicit(&queue->adapter_failed, true, memory_order_release);
	wake(queue);
}

static void mark_queues(struct verbs_device *device, bool failed)
{
	pthread_mutex_lock(&device->lock);
	list_for_each (link, &device->queues) {
		struct verbs_queue *queue = list_entry(link, struct verbs_queue, device_link);

		atomic_store_explicit(failed ? &queue->adapter_failed : &queue->probe_due, true,
				      memory_order_release);
		wake(queue);
	}
	pthread_mutex_unlock(&device->lock);
}

void async_adapter_gone(struct verbs_device *device, const char *reason)
{
	if (atomic_exchange_explicit(&device->gone, true, memory_order_acq_rel))
		return;
	log_error("%s: %s: all its connections end; close the device, and open it again",
		  device->base.info.name, reason);
	mark_queues(device, true);
}

/* The inode of the adapter's entry in sysfs; 0: there is none. */
static uint64_t find_entry(const struct verbs_device *device)
{
	struct stat entry;

	return stat(device->context->device->dev_path, &entry) == 0 ? entry.st_ino : 0;
}

static void look_for_entry(struct verbs_device *device)
{
	if (device->entry != 0 && find_entry(device) != device->entry) {
		device->entry = 0;
		async_adapter_gone(device, "the adapter was removed");
	}
}

static void take_event(struct verbs_device *device, const struct ibv_async_event *event)
{
	const char *text = ibv_event_type_str(event->event_type), *name = device->base.info.name;

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		log_info("%s: %s", name, text);
		mark_conn(event->element.qp->qp_context);
		break;
	case IBV_EVENT_QP_LAST_WQE_REACHED: /* all that soft-RoCE says of refused access */
		log_debug("%s: %s", name, text);
		mark_last_slot(event->element.qp->qp_context);
		break;
	case IBV_EVENT_PORT_ERR:
		log_warn("%s: port %d is down", name, event->element.port_num);
		mark_queues(device, false);
		break;
	case IBV_EVENT_PORT_ACTIVE:
		log_info("%s: port %d is active", name, event->element.port_num);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		async_adapter_gone(device, text);
		break;
	case IBV_EVENT_CQ_ERR:
		log_error("%s: %s: the connections of a queue end", name, text);
		mark_queue(event->element.cq->cq_context);
		break;
	case IBV_EVENT_SRQ_ERR:
		log_error("%s: %s: the connections of a queue end", name, text);
		mark_queue(event->element.srq->srq_context);
		break;
	default:
		log_debug("%s: %s", name, text);
	}
}

static void *run(void *argument)
{
	struct verbs_device *device = argument;
	struct pollfd fds[2] = {{.fd = device->context->async_fd, .events = POLLIN},
				{.fd = device->async_stop_fd, .events = POLLIN}};

	for (;;) {
		struct ibv_async_event event;

		if (poll(fds, 2, device->entry != 0 ? ASYNC_LOOK_MS : -1) < 0 && errno != EINTR)
			return NULL;
		if (fds[1].revents)
			return NULL;
		while (ibv_get_async_event(device->context, &event) == 0) {
			take_event(device, &event);
			ibv_ack_async_event(&event);
		}
		if (fds[0].revents & (POLLERR | POLLHUP | POLLNVAL)) {
			async_adapter_gone(device, "the adapter is gone");
			fds[0].fd = -1; /* it would be readable for ever */
		}
		look_for_entry(device);
	}
}

enum rmr_status async_start(struct verbs_device *device)
{
	int flags = fcntl(device->context->async_fd, F_GETFL);
	sigset_t all, before;
	int error;

	(void)fcntl(device->context->async_fd, F_SETFL, flags | O_NONBLOCK);
	device->entry = find_entry(device);
	device->async_stop_fd = eventfd(0, EFD_CLOEXEC);
	if (device->async_stop_fd < 0)
		return error_errno(RMR_SYSTEM, errno, "cannot make an eventfd");
	sigfillset(&all); /* the program's signals are not this thread's business */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&device->async_thread, NULL, run, device);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error != 0) {
		close(device->async_stop_fd);
		return error_errno(RMR_SYSTEM, error, "cannot start a thread");
	}
	pthread_setname_np(device->async_thread, "remora-verbs");
	return RMR_OK;
}

void async_stop(struct verbs_device *device)
{
	uint64_t one = 1;

	(void)!write(device->async_stop_fd, &one, sizeof(one));
	pthread_join(device->async_thread, NULL);
	close(device->async_stop_fd);
}
