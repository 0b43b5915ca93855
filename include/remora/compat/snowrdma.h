/*
 * SnowRDMA: programs that were written for that library, on this one.
 *
 *	#include <remora/compat/snowrdma.h>		in place of its "rdma.h"
 *
 *	static void received(RdmaConn *conn, void *data, size_t data_len)
 *	{
 *		rdmaConnSend(conn, data, data_len);
 *	}
 *	static void accepted(RdmaConn *conn)
 *	{
 *		rdmaConnSetRecvCallback(conn, received);
 *	}
 *
 * All of <remora/rdma.h> is here, and is described there. What differs are the callbacks that are
 * set for accepted connections, received messages and lost connections: they have the types of
 * SnowRDMA. A program that wants the others as well includes <remora/rdma.h> in the files that use
 * them, and this header in none of these.
 *
 * Ownership. As in SnowRDMA, an accepted connection that is lost is closed by the library when its
 * disconnect callback has returned; the callback may close it itself. An endpoint made by
 * rdmaConn() belongs to the program until rdmaConnClose().
 *
 * Differences. RdmaConn and RdmaListener have no visible members: rdmaConnPeer() tells what
 * conn->ip and conn->port did. The disconnect callback is not called for a connection that this
 * program closes. RDMA_BLOCKING and the other options are given to rdmaConnWithOptions() and
 * rdmaServerWithOptions(). The peer of a PA call exposes memory of its choice by rdmaConnExpose();
 * physical addresses of its machine cannot be reached.
 */
#ifndef REMORA_COMPAT_SNOWRDMA_H
#define REMORA_COMPAT_SNOWRDMA_H

#include <remora/rdma.h>

/* Types under the names that SnowRDMA has for them. RdmaAcceptCallbackFunc, RdmaRecvCallbackFunc
 * and RdmaDisconnectCallbackFunc are in <remora/rdma.h>. */
typedef RdmaConnectedCallback RdmaConnectedCallbackFunc;
typedef RdmaWriteCallback RdmaWriteCallbackFunc;
typedef RdmaReadCallback RdmaReadCallbackFunc;

/* The setters that take callbacks of SnowRDMA's types. */
#define rdmaServerSetAcceptCallback   rdmaServerSetAcceptCallbackFunc
#define rdmaConnSetRecvCallback	      rdmaConnSetRecvCallbackFunc
#define rdmaConnSetDisconnectCallback rdmaConnSetDisconnectCallbackFunc

#endif
