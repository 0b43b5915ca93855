/*
 * Ping-pong: the primitives of RDMA programs, one after another, each of which waits.
 *
 * Two programs, a packet at a time, and remote memory by address and key. No thread, no callback:
 * who calls does the work. What a small program or a lesson needs; for more see <remora/rdma.h>.
 *
 *	server						client
 *	------						------
 *	PingpongListener *listener;
 *	RDMA_listen("tcp://127.0.0.1:7471", &listener);
 *	RDMA_accept(listener, -1, &ctx); <------------	RDMA_connect("tcp://127.0.0.1:7471", &ctx);
 *	receive_packet(ctx);		<-------------	ctx->packet.length = 5;
 *							memcpy(ctx->packet.data, "hello", 5);
 *							send_packet(ctx);
 *	char *memory = RDMA_register(ctx, 1 << 20, &ctx->packet.key);
 *	ctx->packet.addr = (uintptr_t)memory;
 *	send_packet(ctx);		------------->	receive_packet(ctx);
 *							send_RDMA_write(ctx, "a long text",
 *								(void *)ctx->packet.addr,
 *								ctx->packet.key);
 *	receive_fin(ctx);		<-------------	send_fin(ctx);
 *	puts(memory);
 *	RDMA_disconnect(ctx);				RDMA_disconnect(ctx);
 *
 * Servers are named as everywhere: "shm:NAME", "tcp://HOST:PORT", "verbs://HOST:PORT", or
 * "DEVICE://HOST:PORT" with any device of <remora/fabric.h>. HOST:PORT or HOST alone (the port is
 * then PINGPONG_PORT) is by the device in the environment variable REMORA_RDMA_DEVICE, tcp if that
 * is not set; NULL is the same on this host, and for a server at all its addresses.
 *
 * Errors. Functions return 0, or 1 on error; RDMA_error() says in words what was wrong.
 *
 *	arguments	a packet that is too long, a key that the peer never told, an address that
 *			is not in the memory of the key: refused here, and the connection goes on
 *	receiving	nothing came within ctx->timeout_ms: the connection goes on
 *	the connection	the peer is gone, or did not take what was sent, read or written within
 *			ctx->timeout_ms, or broke the rules: for good. What the peer sent before
 *			can still be received; else what is left to do is RDMA_disconnect()
 *
 * Waiting packets. What arrives while something else is waited for is kept, up to
 * PINGPONG_KEPT_MAX packets, until receive_packet() asks for it; and the transport holds a few more
 * while no call of this context runs. When there is no room left the peer's send_packet() waits.
 * Two programs that both send more than that before they receive wait for each other, until their
 * time is over.
 *
 * Threads. A context is used by one thread at a time; many can be open. After fork() the child must
 * not use what the parent opened.
 */
#ifndef REMORA_PINGPONG_H
#define REMORA_PINGPONG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PINGPONG_PORT 18515
/* Bytes of data in a packet: eager; longer ones go by read or write. */
#define PINGPONG_DATA_MAX 4096
/* Packets that can wait to be received. */
#define PINGPONG_KEPT_MAX 64
/* Pieces of memory that can be registered with one context. */
#define PINGPONG_MEMORY_MAX 128

/* A control packet. Addresses, keys and sizes are for the program to fill in and to read; of data
 * only `length` bytes travel. A zero follows them in a packet that was received. */
typedef struct PingpongPacket {
	uint32_t type; /* the program's */
	uint32_t key;
	uint64_t addr;
	uint64_t size;
	uint32_t length; /* of data */
	char data[PINGPONG_DATA_MAX + 1];
} PingpongPacket;

/* A connection. The state is the library's own. */
typedef struct PingpongContext {
	PingpongPacket packet; /* the one to send, or the one received */
	int timeout_ms;	       /* how long calls wait; 10000 at first, negative: for ever */
	struct PingpongState *state;
} PingpongContext;

typedef struct PingpongListener PingpongListener;

/* ------------------------------------------------------------------------------------------
 * Connections
 */

/* Connects to a server, and waits up to 10 seconds until that accepts. The name is only read.
 * *save_ctx is the caller's until RDMA_disconnect(); on error it is left as it was. 1: nobody
 * listens there, it did not accept in time, or something else than ping-pong is there. */
int RDMA_connect(char *servername, PingpongContext **save_ctx);
/* Says goodbye, and frees the context and all memory registered with it. Packets and FINs that were
 * sent still arrive; what the peer is reading or writing here fails there. NULL is legal. Always
 * 0. */
int RDMA_disconnect(PingpongContext *ctx);

/* Listens, for any number of clients, one after another or at once. Port 0 picks one that is free:
 * RDMA_address() tells. (On shm a port is but a part of the name, and 0 is as good as another.) The
 * listener is the caller's until RDMA_unlisten(). 1: one cannot listen there. */
int RDMA_listen(char *servername, PingpongListener **listener);
/* The name that clients give to RDMA_connect(). Valid as long as the listener. */
const char *RDMA_address(const PingpongListener *listener);
/* Waits up to timeout_ms (negative: for ever, 0: not at all) for the next client. Who does not
 * speak ping-pong is turned down meanwhile. 1: nobody came in time, or nobody ever will because
 * the adapter is gone. */
int RDMA_accept(PingpongListener *listener, int timeout_ms, PingpongContext **save_ctx);
/* Ends it: who calls now is refused. Contexts that were accepted stay. NULL is legal. */
void RDMA_unlisten(PingpongListener *listener);

/* ------------------------------------------------------------------------------------------
 * Packets
 */

/* Sends ctx->packet; returns when it is there, which does not mean that it was received yet. It
 * stays as it is, and may be sent again. */
int send_packet(PingpongContext *ctx);
/* Waits for the next packet of the peer: it is in ctx->packet then. On error ctx->packet stays. */
int receive_packet(PingpongContext *ctx);
/* Asks for the next packet without waiting: when it arrives, during any other call, it is kept, and
 * the next receive_packet() returns it at once. (Packets are never lost without it; it is for
 * programs that post their receive early.) 1: the connection is lost, and no packet waits. */
int receive_packet_async(PingpongContext *ctx);

/* ------------------------------------------------------------------------------------------
 * Memory
 */

/* Memory of `size` bytes, zeroed, aligned to 4096, that the peer may read and write by its address
 * and *key, from the next packet or FIN on that is sent to it. It can reach no other memory of this
 * process. Freed by RDMA_deregister() or RDMA_disconnect(). NULL: no memory, too many pieces, or
 * the connection is lost. */
void *RDMA_register(PingpongContext *ctx, size_t size, uint32_t *key);
/* Takes it back from the peer, and frees it, whatever is returned. The peer should be done with
 * it: agree on that by a FIN or a packet. If it tries later it is refused; if it is at it just
 * now the connection is lost. 1: no such memory, or the peer could not be told. */
int RDMA_deregister(PingpongContext *ctx, void *memory);

/* Reads `size` bytes of the peer's registered memory into target, which may be any memory; returns
 * when they are there. The peer calls nothing for it. The range may begin anywhere in the peer's
 * memory and must end in it; 1 if not, and nothing was read. For long ones ctx->timeout_ms counts
 * anew with every piece that arrives. If the connection is lost meanwhile a part of target may have
 * been written. */
int send_RDMA_read(PingpongContext *ctx, char *target, unsigned long size, void *remote_addr,
		   uint32_t remote_key);
/* Writes a C string, with the zero at its end, into the peer's registered memory; returns when it
 * is placed. The same holds as for reads. */
int send_RDMA_write(PingpongContext *ctx, const char *value, void *remote_addr,
		    uint32_t remote_key);
/* The same for `size` bytes of any kind. */
int send_RDMA_write_bytes(PingpongContext *ctx, const void *value, unsigned long size,
			  void *remote_addr, uint32_t remote_key);

/* ------------------------------------------------------------------------------------------
 * The end of a transfer
 */

/* The end of a rendezvous: tells the peer that all reads and writes are done; returns when that is
 * there. A FIN is not a packet: it is received by its own function, and each send_fin() is good for
 * one receive_fin(), whatever packets lie between. ctx->packet stays as it is. */
int send_fin(PingpongContext *ctx);
/* Waits for the next FIN of the peer: what it wrote before is placed. 1 also, at once, when
 * PINGPONG_KEPT_MAX packets wait to be received: nothing could come past them. */
int receive_fin(PingpongContext *ctx);

/* What was wrong with the last call of this thread that failed: a sentence. "" when none did. Valid
 * until the thread's next call into the library. */
const char *RDMA_error(void);

#ifdef __cplusplus
}
#endif

#endif
