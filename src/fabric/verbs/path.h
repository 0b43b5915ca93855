/*
 * Joining two queue pairs without RDMA CM: what this end says of its own, whether it fits what the
 * other says, and the steps to a queue pair that sends and receives. socket.c has the conversation.
 */
#ifndef FABRIC_VERBS_PATH_H
#define FABRIC_VERBS_PATH_H

#include "fabric/verbs/exchange.h"
#include "fabric/verbs/internal.h"

/* This end of a path. */
struct path_end {
	struct exchange exchange;
	int gid_index;
};

/* Can queue pairs of this device be joined so? */
enum rmr_status path_check_device(const struct verbs_device *device);

/* Takes a prepared queue pair to INIT, and describes it. The GID is the one that goes with the
 * local address of the socket. */
enum rmr_status path_begin(struct verbs_conn *conn, int fd, enum greeting_kind kind,
			   struct path_end *own);

/* Do the ends fit? RMR_REFUSED, and the message says what differs. */
enum rmr_status path_check(const struct path_end *own, const struct exchange *peer);
/* Is the GID of a caller its own, as far as the socket tells? RMR_REFUSED. */
enum rmr_status path_check_caller(struct verbs_conn *conn, int fd, const struct exchange *peer);

/* Takes the queue pair to RTR and RTS. */
enum rmr_status path_join(struct verbs_conn *conn, const struct path_end *own,
			  const struct exchange *peer);

#endif
