/*
 * The shm provider: processes of one host.
 *
 * READ, WRITE and atomics are loads, stores and atomic instructions of the initiator on the
 * target's memory, which it has mapped: no system call, no thread of the target. Memory outside
 * arenas is reached by process_vm_readv and process_vm_writev. Messages go through rings (ring.h).
 * A Unix socket brings the two ends together, passes memory, wakes sleepers and, because the kernel
 * closes it with the process, tells of a peer's death.
 *
 *	packet.c	what is said over the socket		(pure but for send and receive)
 *	segment.c	the shared memory of an end
 *	address.c	names and paths of sockets
 *	listener.c	listening and accepting
 *	connect.c	calling
 *	region.c	the table of regions that peers look at
 *	grant.c		arenas given to a peer, and those that a peer gave to us
 *	access.c	reading and writing a peer's memory
 *	conn.c		posting, waiting works, the end of a connection
 *	progress.c	polling, sleeping, waking
 *	device.c	the provider itself
 *
 * internal.h has the objects.
 */
#ifndef FABRIC_SHM_SHM_H
#define FABRIC_SHM_SHM_H

#include "fabric/provider.h"

extern const struct rmr_provider shm_provider;

#endif
