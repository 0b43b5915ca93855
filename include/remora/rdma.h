/*
 * Easy RDMA: messages, remote memory and callbacks, without knowing anything about verbs.
 *
 * A server says what is to happen when somebody connects; a connection, what is to happen when data
 * arrives. The library runs a thread of its own (the runtime) that calls back.
 *
 *	static void received(RdmaConn *conn, const void *data, size_t len)
 *	{
 *		rdmaConnSend(conn, data, len);				back to where it came from
 *	}
 *	static void accepted(RdmaListener *listener, RdmaConn *conn)
 *	{
 *		rdmaConnSetRecvCallback(conn, received);
 *	}
 *
 *	server						client
 *	------						------
 *	RdmaListener *listener;				RdmaConn *conn = rdmaConn();
 *	rdmaServer(&listener, NULL, 7471);		rdmaConnSetRecvCallback(conn, print);
 *	rdmaServerSetAcceptCallback(listener, accepted);
 *	rdmaServerStart(listener);	<-------------	rdmaConnect(conn, "10.0.0.1", 7471);
 *	... serves until rdmaServerStop			rdmaConnSend(conn, "hello", 5);
 *							... until print() was called
 *	rdmaServerRelease(listener);			rdmaConnClose(conn);
 *
 * Three ways to move bytes:
 *
 *	rdmaConnSend		a message: copied into a ring, and there it is called back with
 *	rdmaConnWrite, Read	between registered memory here and the space that the peer exposes;
 *				the program there is not asked
 *	rdmaSync..., rdmaPA...	the same with addresses and keys; those with Sync in their name wait
 *
 * Which transport. The address says: "tcp://HOST", "verbs://HOST", "shm:NAME", or any device of
 * <remora/fabric.h> as "DEVICE://HOST", such as "verbs:mlx5_0,socket://10.0.0.1". A plain host (or
 * NULL: every address here, or this host) leaves it to the environment variable
 * REMORA_RDMA_DEVICE, such as "tcp"; and if that is not set, a server listens on all that this
 * machine has, and a client takes the first that works of shm (if the host is this one), verbs,
 * tcp. rdmaConnProvider() tells which it was. On shm, "shm:NAME" ignores the port, and a plain
 * host with port P is the name "rdma-P".
 *
 * Errors. int functions return RDMA_OK or RDMA_ERR; rdmaError() tells what was wrong with the last
 * one of this thread that failed. What goes wrong later (the peer dies, memory that may not be
 * accessed) ends the connection, and is told by the disconnect callback: once for every
 * connection that was ever connected, but for those closed by rdmaConnClose() here.
 *
 * Threads. Every function may be called by any thread, except that only one thread at a time may
 * use a connection that is being connected. Callbacks run on the runtime's thread, one at a time,
 * no lock held: a callback may take the locks of the program. In a callback everything is legal
 * that does not wait for the runtime: send, write, read, close, set callbacks, rdmaConnectAsync.
 * What would wait for it is refused with RDMA_ERR instead of hanging: rdmaConnect, Sync calls,
 * atomics, rdmaServerStart, rdmaRuntimeStop. What callbacks send leaves together, when those that
 * are due now have returned; what other threads send leaves at once. After fork() the child must
 * not use what the parent had; it may make its own.
 *
 * Cost. The runtime polls while there is something to do, and a little longer (spinUs); then it
 * sleeps, and idle connections cost nothing. On shm messages are copied once, straight into the
 * peer's ring.
 *
 * Order. Messages arrive in the order they were sent, each once, with one callback each. A message
 * arrives after what was written before it on the same connection is placed.
 *
 * Ownership. Who makes a listener releases it. A connection is freed by rdmaConnClose() alone, that
 * of an accepted one too: the disconnect callback is a good place. Without a disconnect callback
 * an accepted connection that is lost is closed by the library.
 *
 * Trust. What a peer sends is checked by the library as far as it is the library's: a peer that
 * breaks its rules loses its connection (RMR_PROTOCOL), and nobody else anything. A connection
 * costs memory for ringSize, and, but for shm, for a copy of the peer's ring as large as the peer
 * chose, maxPeerRing at most: on tcp as much of it as was ever sent into, on verbs all of it,
 * pinned, from the first moment. How many may connect is the program's to decide. Peers reach the
 * ring of their own connection, what was exposed or told to them, and no other memory. On shm a
 * hostile peer can change a message while the callback reads it: where that matters, copy it
 * first.
 */
#ifndef REMORA_RDMA_H
#define REMORA_RDMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <remora/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RDMA_OK	 0
#define RDMA_ERR (-1)

/* What the sending functions return for an error, as in `if (n == RDMA_SEND_ERR)`. */
#define RDMA_SEND_ERR ((size_t)-1)

typedef struct RdmaListener RdmaListener;
typedef struct RdmaConn RdmaConn;

/* What was wrong with the last call of this thread that failed: a sentence. "" when none did. */
const char *rdmaError(void);
/* The same as a code of <remora/status.h>, for programs that decide by it. */
enum rmr_status rdmaErrorStatus(void);

/* ------------------------------------------------------------------------------------------
 * Options
 */

enum RdmaMode {
	RDMA_NONBLOCKING = 0, /* Sync calls and atomics are refused */
	RDMA_BLOCKING,	      /* they are legal, outside of callbacks */
};

/* Of one connection, or of all that a listener accepts. 0 in a field means its default. What a
 * transport has no use for is ignored by it. */
typedef struct RdmaOptions {
	enum RdmaMode mode;
	size_t ringSize;      /* bytes of the ring that messages arrive in here; default 1 MiB, from
				* 4 KiB to 1 GiB, rounded up to a power of two. A message may be a
				* quarter of it */
	int backlog;	      /* listeners: callers that may wait; default 128 */
	int connectTimeoutMs; /* rdmaConnect: for all of it; default 5000 */
	int deadAfterMs;      /* a silent host is dead after this; default 10000 */
	uint32_t sendDepth;   /* operations in flight; default 128 */
	uint32_t recvDepth;   /* arrivals that can wait until the runtime polls, of all connections
				* of a listener together; default 256 */
	uint32_t maxInline;   /* messages up to this long take no look at memory by the adapter;
				* default: what the device can */
	uint32_t signalEvery; /* of messages one in so many is signaled; default: a quarter of
				* sendDepth */
	uint32_t maxReads;    /* reads and atomics in flight; default 16, at most sendDepth */
	int retryCount;	      /* verbs: how often the adapter repeats what is not acknowledged; 1
				* to 7, default 6 (some take 7 for ever), negative: never. (There is
				* no count for a peer that has no room: messages go only where
				* there is some) */
	int spinUs;	      /* the runtime polls so long before it sleeps, and longer while sleeps
				* turn out to be short; default 50, negative: not at all */
	int cpu;	      /* the runtime's thread is bound to CPU number cpu - 1; default 0:
				* to none. Of the connection or listener that starts the runtime */
	size_t maxPeerRing;   /* the largest ring that a peer may have, for on some transports we
				* need as much memory as we send into it; default 64 MiB, or
				* ringSize if that is more. Others are refused (RMR_LIMIT) */
} RdmaOptions;

/* ------------------------------------------------------------------------------------------
 * Server
 */

/* Somebody has connected: set its callbacks here, expose memory, or refuse it by rdmaConnClose().
 * It may be sent to from now on; what is sent in here arrives first. */
typedef void (*RdmaAcceptCallback)(RdmaListener *listener, RdmaConn *conn);

/* Makes a listener at an address of this machine (see "Which transport" above; NULL: all) and a
 * port; 0 picks one that is free. It holds the port from now on; callers wait until
 * rdmaServerStart(). A transport that this machine has not is left out (rdmaServerAddresses()
 * tells). RDMA_ERR: there is none, another program has the port, or the address is not of this
 * machine; rdmaError() says which. */
int rdmaServer(RdmaListener **listener, const char *ip, int port);
/* The same with options for the listener and its connections. options may be NULL. */
int rdmaServerWithOptions(RdmaListener **listener, const char *ip, int port,
			  const RdmaOptions *options);

/* Always RDMA_OK, as all functions that set callbacks. NULL: none. */
int rdmaServerSetAcceptCallback(RdmaListener *listener, RdmaAcceptCallback callback);

/* Serves until rdmaServerStop() and returns RDMA_OK then; connections that were accepted stay. It
 * may be started again. It returns RDMA_OK as well when the listener is released meanwhile, or the
 * runtime stopped. RDMA_ERR: it is being served already, or called in a callback. */
int rdmaServerStart(RdmaListener *listener);
/* The same without waiting: the runtime serves it until the next rdmaServerStop(). */
int rdmaServerStartAsync(RdmaListener *listener);

/* Makes rdmaServerStart() return, at once or when it is next called. Legal in callbacks, other
 * threads and signal handlers; it does not wait, so an accept callback may be running still.
 * Callers wait again, as before the start. Always RDMA_OK. */
int rdmaServerStop(RdmaListener *listener);

/* Closes the listener, and all its connections that were not closed before; their memory too, so
 * nobody may use them any more. No callback of it runs when this has returned. In a callback it
 * returns at once, and all that happens when the callbacks that are due have returned. NULL is
 * legal. */
void rdmaServerRelease(RdmaListener *listener);

/* The port that was picked, or given. */
int rdmaServerPort(const RdmaListener *listener);
/* One line for each transport: where it listens, or why not. Valid as long as the listener. */
const char *rdmaServerAddresses(const RdmaListener *listener);

void rdmaServerSetUserData(RdmaListener *listener, void *data);
void *rdmaServerUserData(const RdmaListener *listener);

/* ------------------------------------------------------------------------------------------
 * Client, and life of a connection
 */

/* Makes an endpoint that is not connected. NULL: no memory. */
RdmaConn *rdmaConn(void);
/* options may be NULL. NULL also for options that make no sense: rdmaError(). */
RdmaConn *rdmaConnWithOptions(const RdmaOptions *options);

/* Connects, and waits until messages and the peer's exposed space can be used; at most
 * connectTimeoutMs. An endpoint that has lost its connection may be connected again, to the same
 * peer or another: callbacks, options and memory stay. (One that was accepted may not: its peer
 * calls again, and is another one then.) RDMA_ERR: refused (RMR_REFUSED), no answer in time
 * (RMR_TIMEOUT), something else is there (RMR_PROTOCOL), connected already (RMR_INVALID) ...; the
 * endpoint is as before and can be tried again. */
int rdmaConnect(RdmaConn *conn, const char *serverip, int port);

/* The same without waiting: legal in callbacks. RDMA_OK: it is being tried; in the end comes the
 * connected callback, or the disconnect callback with the reason. */
int rdmaConnectAsync(RdmaConn *conn, const char *serverip, int port);

/* Ends the connection if there is one, frees it, its registered memory, and all else of it. What
 * was taken by rdmaConnSend() before still arrives, unless the peer takes nothing for a second, or
 * needs more than ten for all of it; this waits for it. Legal at any moment, and in every callback,
 * also its own: there it does not wait, and the rest happens when the callbacks that are due have
 * returned. When it returns no callback of it runs or will run, but for the one that it is called
 * from. Nobody may use the endpoint any more, but for that callback, for which it is not connected.
 * NULL is legal. */
void rdmaConnClose(RdmaConn *conn);

/* Closes all connections and listeners that are left, so that nobody may use them any more, and
 * ends the runtime's thread. Calls that are under way are waited for, connectTimeoutMs at most.
 * What is made next starts it anew. Callbacks do not run any more when this returns. In a callback
 * it does nothing, and says so in the log. Memory of no connection stays. */
void rdmaRuntimeStop(void);

/* An endpoint is connected, by rdmaConnect() or rdmaConnectAsync(): the first callback of it. (For
 * one that was accepted there is the accept callback.) */
typedef void (*RdmaConnectedCallback)(RdmaConn *conn);
/* The connection is lost: RMR_DISCONNECTED when the peer closed it or died, RMR_ACCESS when memory
 * was accessed that was not granted, ...; reason says it in words, valid during the call. The
 * last callback of this connection; send and the like return an error from now on. */
typedef void (*RdmaDisconnectCallback)(RdmaConn *conn, enum rmr_status status, const char *reason);

int rdmaConnSetConnectedCallback(RdmaConn *conn, RdmaConnectedCallback callback);
int rdmaConnSetDisconnectCallback(RdmaConn *conn, RdmaDisconnectCallback callback);

bool rdmaConnIsConnected(const RdmaConn *conn);
/* The device that carries it, "shm", "tcp", "verbs:mlx5_0"; "" before it is connected. */
const char *rdmaConnProvider(const RdmaConn *conn);
/* Who is there: "127.0.0.1:40312", or "pid 4711 uid 1000"; "" before it is connected. */
const char *rdmaConnPeer(const RdmaConn *conn);
/* The listener that accepted it; NULL for one made by rdmaConn(). */
RdmaListener *rdmaConnListener(const RdmaConn *conn);

void rdmaConnSetUserData(RdmaConn *conn, void *data);
void *rdmaConnUserData(const RdmaConn *conn);

/* ------------------------------------------------------------------------------------------
 * Messages
 */

/* A message. data is valid during the call, aligned to 16, and may be changed. */
typedef void (*RdmaRecvCallback)(RdmaConn *conn, const void *data, size_t len);
/* A message that was sent with an immediate; or a write with one: data is where it was written. */
typedef void (*RdmaRecvImmCallback)(RdmaConn *conn, uint32_t imm, const void *data, size_t len);
/* There is room again after a send returned 0. */
typedef void (*RdmaSendableCallback)(RdmaConn *conn);

/* Without a callback messages are dropped. Set them before rdmaConnect(), or in the accept
 * callback, and none is missed. */
int rdmaConnSetRecvCallback(RdmaConn *conn, RdmaRecvCallback callback);
/* Without this one they come to the receive callback, without the immediate. */
int rdmaConnSetRecvImmCallback(RdmaConn *conn, RdmaRecvImmCallback callback);
int rdmaConnSetSendableCallback(RdmaConn *conn, RdmaSendableCallback callback);

/* Sends a message: all of it or nothing. data may be reused at once. Returns data_len; 0 when there
 * is no room for now (the sendable callback tells when); RDMA_SEND_ERR when it is not
 * connected, or data_len is 0 or beyond rdmaConnMaxSend(). It never waits. */
size_t rdmaConnSend(RdmaConn *conn, const void *data, size_t data_len);
/* The same with 32 bits beside it. data_len may be 0: then 0 is returned for no room, and 1 when
 * it was taken. */
size_t rdmaConnSendWithImm(RdmaConn *conn, uint32_t imm_data, const void *data, size_t data_len);
/* The longest message that the peer takes; 0 when not connected. */
size_t rdmaConnMaxSend(const RdmaConn *conn);

/* ------------------------------------------------------------------------------------------
 * Registered memory
 */

/*
 *	char *memory = rdmaConnRegMem(conn, 4096);
 *	RdmaMemInfo info;
 *
 *	rdmaConnMemInfo(conn, memory, &info);			keys, and the peer is told
 *	rdmaConnSend(conn, &info, sizeof(info));		now its program knows, too
 */

/* Memory that adapters may use: the local side of writes and reads, and, told to the peer, its
 * remote side. size bytes, zeroed, aligned to 4096. It belongs to the connection, stays with it
 * when it is connected again, and is freed by rdmaConnDeregMem() or rdmaConnClose(). With
 * conn NULL it belongs to no connection and can be used with all: for what a server exposes to
 * all its clients. NULL: no memory, see rdmaError(). */
void *rdmaConnRegMem(RdmaConn *conn, size_t size);
/* Frees it, with the conn it was made for. Operations that use it must be done; a peer that still
 * accesses it loses its connection. RDMA_ERR: no such memory, or exposed by a connection. */
int rdmaConnDeregMem(RdmaConn *conn, void *data);

typedef struct RdmaMemInfo {
	uint64_t addr; /* as the peer names it in remote_addr, and we in local_addr */
	uint64_t length;
	uint32_t lkey, rkey;
} RdmaMemInfo;

/* Keys of memory that was registered, as the Sync calls take them; data may point anywhere into
 * it. The peer of conn is told of it before any message that is sent afterwards, so send it addr
 * and rkey, and it can use them. RDMA_ERR: it lies in no such memory; or the device can tell a peer
 * of no more pieces (RMR_LIMIT: on shm some hundreds). If that turns out only when it is connected,
 * sends fail with it, until some are deregistered. */
int rdmaConnMemInfo(RdmaConn *conn, const void *data, RdmaMemInfo *info);

/* Exposes memory to the peer as a space of its own that begins at 0: what rdmaConnWrite and Read
 * and the PA calls of the peer go to, without a key. data is registered memory, or any other of
 * the caller, which has to stay until the connection is closed (slower on shm, and no atomics).
 * In the accept callback or before rdmaConnect(). Without it the peer's calls are refused. */
int rdmaConnExpose(RdmaConn *conn, void *data, size_t size);
/* How large the space is that the peer exposes; 0 for none. */
size_t rdmaConnRemoteSize(const RdmaConn *conn);

/* ------------------------------------------------------------------------------------------
 * Writes and reads
 */

/* A write or read that was posted is done: placed there, or here. Bytes of that one. */
typedef void (*RdmaWriteCallback)(RdmaConn *conn, size_t bytes);
typedef void (*RdmaReadCallback)(RdmaConn *conn, size_t bytes);
int rdmaConnSetWriteCallback(RdmaConn *conn, RdmaWriteCallback callback);
int rdmaConnSetReadCallback(RdmaConn *conn, RdmaReadCallback callback);

/* Writes registered memory into the space that the peer exposes, as into a file: each write begins
 * where the one before it ended, the first at 0; rdmaConnSeek() goes elsewhere. data stays
 * untouched until the write callback. Returns data_len; 0 when sendDepth operations are in flight;
 * RDMA_SEND_ERR when not connected, data is not registered, or it does not fit into the space. */
size_t rdmaConnWrite(RdmaConn *conn, const void *data, size_t data_len);
/* The same, and the peer's RecvImm callback gets imm_data and where it was written. RDMA_OK,
 * RDMA_ERR, or RDMA_AGAIN for no room. */
int rdmaConnWriteWithImm(RdmaConn *conn, uint32_t imm_data, const void *data, size_t data_len);
/* Reads from that space into registered memory, from where the read before it ended. RDMA_OK: the
 * read callback tells when it is there. RDMA_AGAIN: maxReads are in flight. */
int rdmaConnRead(RdmaConn *conn, void *data_buf, size_t buf_len);
/* Where in the peer's space the next write and the next read begin. */
int rdmaConnSeek(RdmaConn *conn, uint64_t write_position, uint64_t read_position);

/* No room for now: nothing was done, try again when an operation has completed. */
#define RDMA_AGAIN 1

/*
 *	static void told(RdmaConn *conn, const void *data, size_t len)
 *	{
 *		memcpy(&theirs, data, sizeof(theirs));		an RdmaMemInfo of the peer's
 *	}
 *	...
 *	rdmaSyncReadSignaled(conn, mine.addr, mine.lkey, theirs.addr, theirs.rkey, 4096);
 *
 * Between memory that both sides have registered, by address and key (see rdmaConnMemInfo); wait
 * until it is done, and return how it went: RDMA_OK means placed. RDMA_ERR: see rdmaError(). A
 * wrong key or range that can be told here is refused here and the connection goes on; what the
 * peer refuses ends it. They wait as long as the peer's host is alive, also for room. They need
 * RDMA_BLOCKING, and may not be called in a callback. Any number of threads may call at once. */
int rdmaSyncWriteSignaled(RdmaConn *conn, uint64_t local_addr, uint32_t lkey, uint64_t remote_addr,
			  uint32_t rkey, uint32_t length);
int rdmaSyncReadSignaled(RdmaConn *conn, uint64_t local_addr, uint32_t lkey, uint64_t remote_addr,
			 uint32_t rkey, uint32_t length);

/* To and from the space that the peer exposes: remote_addr counts from 0 in it, and no key is
 * needed. These return when it is posted (RDMA_AGAIN: no room) and the write or read callback
 * tells when it is done. (PA stands for physical address. True ones need a
 * vendor's extension of the kernel that rdma-core does not have; a space that the peer chose to
 * expose can be had everywhere, and harms nobody.) */
int rdmaPAWriteSignaled(RdmaConn *conn, uint64_t local_addr, uint32_t lkey, uint64_t remote_addr,
			uint32_t length);
int rdmaPAReadSignaled(RdmaConn *conn, uint64_t local_addr, uint32_t lkey, uint64_t remote_addr,
		       uint32_t length);
/* The same, and they wait, as the Sync calls above. */
int rdmaPASyncWriteSignaled(RdmaConn *conn, uint64_t local_addr, uint32_t lkey,
			    uint64_t remote_addr, uint32_t length);
int rdmaPASyncReadSignaled(RdmaConn *conn, uint64_t local_addr, uint32_t lkey, uint64_t remote_addr,
			   uint32_t length);

/* Atomics on a word of 8 bytes in the space that the peer exposes, at a multiple of 8; *old becomes
 * what it was before (NULL: not wanted). They wait, as the Sync calls. The memory must be of
 * rdmaConnRegMem(). RDMA_ERR also where the device has no atomics. */
int rdmaConnFetchAdd(RdmaConn *conn, uint64_t remote_addr, uint64_t add, uint64_t *old);
int rdmaConnCompareSwap(RdmaConn *conn, uint64_t remote_addr, uint64_t compare, uint64_t swap,
			uint64_t *old);

/* ------------------------------------------------------------------------------------------
 * Callbacks of SnowRDMA's types
 *
 * For programs that were written for SnowRDMA: <remora/compat/snowrdma.h> gives these functions the
 * names that they have there. The last callback set is the one that is called, whichever function
 * set it.
 */

typedef void (*RdmaAcceptCallbackFunc)(RdmaConn *conn);
typedef void (*RdmaRecvCallbackFunc)(RdmaConn *conn, void *data, size_t data_len);
typedef void (*RdmaDisconnectCallbackFunc)(RdmaConn *conn);

int rdmaServerSetAcceptCallbackFunc(RdmaListener *listener, RdmaAcceptCallbackFunc func);
int rdmaConnSetRecvCallbackFunc(RdmaConn *conn, RdmaRecvCallbackFunc func);
/* An accepted connection is closed when func has returned, unless func closes it. */
int rdmaConnSetDisconnectCallbackFunc(RdmaConn *conn, RdmaDisconnectCallbackFunc func);

#ifdef __cplusplus
}
#endif

#endif
