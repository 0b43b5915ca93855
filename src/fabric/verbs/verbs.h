/*
 * The verbs provider: InfiniBand and RoCE by libibverbs and librdmacm.
 *
 *	device	one adapter, opened by name: "verbs", "verbs:mlx5_0", "verbs:mlx5_0,socket,gid=3"
 *	region	one memory region of the adapter (ibv_reg_mr), with just the rights asked for
 *	queue	one completion queue, one shared receive queue, one completion channel
 *	conn	one RC queue pair, and a control channel that brings it up and tells of its end:
 *		RDMA CM, or with "socket" a TCP connection
 *
 * READ, WRITE and atomics are the adapter's work: the target's processor does not notice. What the
 * adapter does not do by itself is in here: operations longer than a message of the adapter are
 * split, completions come in the order of posting also for unsignaled ones, messages wait for slots
 * without being lost, and a host that fell silent is noticed.
 *
 * internal.h has the objects and the map of the files.
 */
#ifndef FABRIC_VERBS_VERBS_H
#define FABRIC_VERBS_VERBS_H

#include "fabric/provider.h"

extern const struct rmr_provider verbs_provider;

#endif
