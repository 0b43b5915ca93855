/*
 * Callbacks are set. Any thread may do so at any time; the runtime loads a callback just before it
 * calls it.
 *
 * All stores here are sequentially consistent, and the runtime loads with acquire: a callback that
 * it finds comes with all that the thread did before it set it. SnowRDMA's types have other
 * arguments: for these a function of ours is called, which finds the program's beside it. So that
 * is stored first.
 */
#include "rdma/easy/internal.h"

int rdmaServerSetAcceptCallback(RdmaListener *listener, RdmaAcceptCallback callback)
{
	listener->accepted = callback;
	return RDMA_OK;
}

int rdmaConnSetConnectedCallback(RdmaConn *conn, RdmaConnectedCallback callback)
{
	conn->connected = callback;
	return RDMA_OK;
}

int rdmaConnSetDisconnectCallback(RdmaConn *conn, RdmaDisconnectCallback callback)
{
	conn->disconnected = callback;
	return RDMA_OK;
}

int rdmaConnSetRecvCallback(RdmaConn *conn, RdmaRecvCallback callback)
{
	conn->received = callback;
	return RDMA_OK;
}

int rdmaConnSetRecvImmCallback(RdmaConn *conn, RdmaRecvImmCallback callback)
{
	conn->received_imm = callback;
	return RDMA_OK;
}

int rdmaConnSetSendableCallback(RdmaConn *conn, RdmaSendableCallback callback)
{
	conn->sendable = callback;
	return RDMA_OK;
}

int rdmaConnSetWriteCallback(RdmaConn *conn, RdmaWriteCallback callback)
{
	conn->written = callback;
	return RDMA_OK;
}

int rdmaConnSetReadCallback(RdmaConn *conn, RdmaReadCallback callback)
{
	conn->read = callback;
	return RDMA_OK;
}

static void call_accepted(RdmaListener *listener, RdmaConn *conn)
{
	RdmaAcceptCallbackFunc func = listener->accepted_func;

	func(conn);
}

int rdmaServerSetAcceptCallbackFunc(RdmaListener *listener, RdmaAcceptCallbackFunc func)
{
	if (func)
		listener->accepted_func = func;
	return rdmaServerSetAcceptCallback(listener, func ? call_accepted : NULL);
}

/* The data may be changed: it lies in our ring. */
static void call_received(RdmaConn *conn, const void *data, size_t length)
{
	RdmaRecvCallbackFunc func = conn->received_func;

	func(conn, (void *)(uintptr_t)data, length);
}

int rdmaConnSetRecvCallbackFunc(RdmaConn *conn, RdmaRecvCallbackFunc func)
{
	if (func)
		conn->received_func = func;
	return rdmaConnSetRecvCallback(conn, func ? call_received : NULL);
}

/* SnowRDMA's programs do not close accepted connections. One that func closes is freed only when
 * the callbacks that are due have returned, so it can be looked at. */
static void call_disconnected(RdmaConn *conn, enum rmr_status status, const char *reason)
{
	RdmaDisconnectCallbackFunc func = conn->disconnected_func;

	(void)status;
	(void)reason;
	func(conn);
	if (conn->listener && !atomic_load_explicit(&conn->is_closing, memory_order_relaxed))
		rdmaConnClose(conn);
}

int rdmaConnSetDisconnectCallbackFunc(RdmaConn *conn, RdmaDisconnectCallbackFunc func)
{
	if (func)
		conn->disconnected_func = func;
	return rdmaConnSetDisconnectCallback(conn, func ? call_disconnected : NULL);
}
