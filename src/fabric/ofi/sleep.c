/*
 * What is slept upon when libfabric has nothing: its descriptor (FI_WAIT_FD), and the connections'
 * sockets, all in sockets_fd. On that the owner sleeps, through base.epoll_fd, and the helper.
 *
 * Before anybody sleeps, libfabric is asked whether it has something already (fi_trywait). While
 * the owner polls all the time the descriptor is taken out again: a packet that arrives would have
 * to go through a chain of epoll sets, for nothing.
 */
#include <sys/epoll.h>

#include "base/error.h"
#include "fabric/ofi/internal.h"

bool sleep_watch(struct ofi_queue *queue)
{
	struct epoll_event event = {.events = EPOLLIN};
	struct fid *fid = &queue->cq->fid;

	if (!queue->watched)
		queue->watched = epoll_ctl(queue->stream.sockets_fd, EPOLL_CTL_ADD, queue->cq_fd,
					   &event) == 0;
	door_watch_all(queue);
	return queue->watched && fi_trywait(ofi_device_of(queue)->fabric, &fid, 1) == FI_SUCCESS;
}

void sleep_unwatch(struct ofi_queue *queue)
{
	(void)epoll_ctl(queue->stream.sockets_fd, EPOLL_CTL_DEL, queue->cq_fd, NULL);
	queue->watched = false;
}

enum rmr_status sleep_init(struct ofi_queue *queue)
{
	if (fi_control(&queue->cq->fid, FI_GETWAIT, &queue->cq_fd) != 0)
		return error_set(RMR_UNSUPPORTED,
				 "this provider of libfabric cannot be slept upon");
	/* Not watched is as good: then the helper looks after it. */
	(void)sleep_watch(queue);
	return RMR_OK;
}
