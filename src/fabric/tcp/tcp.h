/*
 * The tcp provider: the fabric on any network, without privileges and without RDMA hardware.
 *
 *	posting thread				peer
 *	--------------				----
 *	post   -> work FIFO -> tx block
 *	flush  -> one sendmsg  ------------>	one recv takes in many frames (receive.c)
 *						serve.c executes them, message.c delivers
 *	poll   <- answer.c  <---------------	one sendmsg with all answers (transmit.c)
 *
 * Whoever polls makes progress; when nobody does, a helper thread of the device (helper.c)
 * serves what peers ask of our memory. See internal.h for the objects, the locks and what
 * bounds memory, and frame.h for the bytes.
 *
 * One thing to know: a peer's large READ is sent straight from the region's memory, when the
 * socket takes it. A WRITE that the same peer posts behind the READ, without waiting for it,
 * may be placed first. (The other way round always holds: a READ sees the WRITEs before it.)
 */
#ifndef FABRIC_TCP_TCP_H
#define FABRIC_TCP_TCP_H

#include "fabric/provider.h"

extern const struct rmr_provider tcp_provider;

#endif
