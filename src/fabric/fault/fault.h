/*
 * The fault provider: any other device, with faults by a seeded plan. For tests.
 *
 * "fault:shm" is the device "shm" with a plan (plan.h) on top. It stands on the inner device's
 * public functions alone: every object has an inner twin, works are handed down one by one and
 * their completions are held back, shuffled or replaced on the way up.
 *
 *	decide.c	what shall happen to an operation: pure, from the seed
 *	post.c		works on their way down: order, tearing, where a connection is cut
 *	queue.c		completions on their way up: delay, order, sleeping
 *	conn.c		connections: connect, accept, the end
 *	device.c	device, regions, remotes, listeners: mostly passed through
 *
 * Both ends of a connection must be fault devices over the same inner one, though with any plans:
 * descriptors name the provider that made them.
 */
#ifndef FABRIC_FAULT_FAULT_H
#define FABRIC_FAULT_FAULT_H

#include "fabric/provider.h"

extern const struct rmr_provider fault_provider;

#endif
