/*
 * A server that sends everything back, and its client, as SnowRDMA's programs are written: its
 * header alone, callbacks of its types, return codes looked at, no connection closed by the server.
 *
 *	snowrdma_program server IP PORT CLIENTS		ends when so many clients have left
 *	snowrdma_program client IP PORT
 */
#include <remora/compat/snowrdma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static RdmaListener *server;
static int clients_left;
static char exposed[4096];

static void server_received(RdmaConn *conn, void *data, size_t data_len)
{
	char *text = data;

	text[0] = 'H'; /* the data is the callback's to change */
	if (rdmaConnSend(conn, data, data_len) != data_len)
		printf("server: send failed\n");
}

static void server_disconnected(RdmaConn *conn)
{
	printf("server: %s left\n", rdmaConnPeer(conn)[0] ? "a client" : "an unknown one");
	if (--clients_left == 0)
		rdmaServerStop(server);
}

static void server_accepted(RdmaConn *conn)
{
	RdmaRecvCallbackFunc received = server_received;
	RdmaDisconnectCallbackFunc disconnected = server_disconnected;

	if (rdmaConnSetRecvCallback(conn, received) != RDMA_OK ||
	    rdmaConnSetDisconnectCallback(conn, disconnected) != RDMA_OK ||
	    rdmaConnExpose(conn, exposed, sizeof(exposed)) != RDMA_OK)
		printf("server: setting callbacks failed\n");
}

static int run_server_side(char *ip, int port, int clients)
{
	RdmaAcceptCallbackFunc accepted = server_accepted;

	clients_left = clients;
	if (rdmaServer(&server, ip, port) != RDMA_OK) {
		printf("rdmaServer failed: %s\n", rdmaError());
		return 1;
	}
	if (rdmaServerSetAcceptCallback(server, accepted) != RDMA_OK)
		return 1;
	printf("ready\n");
	fflush(stdout);
	if (rdmaServerStart(server) != RDMA_OK)
		return 1;
	rdmaServerRelease(server);
	printf("server: done\n");
	return 0;
}

static atomic_int connected, answers, written, got;
static char answer[64];

static void client_connected(RdmaConn *conn)
{
	(void)conn;
	connected = 1;
}

static void client_received(RdmaConn *conn, void *data, size_t data_len)
{
	(void)conn;
	memcpy(answer, data, data_len < sizeof(answer) ? data_len : sizeof(answer) - 1);
	answers++;
}

static void client_written(RdmaConn *conn, size_t bytes)
{
	(void)conn;
	written += (int)bytes;
}

static void client_read(RdmaConn *conn, size_t bytes)
{
	(void)conn;
	got += (int)bytes;
}

static void wait_until(atomic_int *number, int wanted)
{
	while (*number < wanted)
		usleep(1000);
}

/* Writes into the space that the server exposes, and reads it again. */
static int use_memory(RdmaConn *conn)
{
	char *memory = rdmaConnRegMem(conn, 4096);
	RdmaMemInfo info;

	if (!memory || rdmaConnMemInfo(conn, memory, &info) != RDMA_OK)
		return 1;
	strcpy(memory, "written");
	if (rdmaConnWrite(conn, memory, 8) != 8)
		return 1;
	wait_until(&written, 8);
	memset(memory, 0, 8);
	if (rdmaConnRead(conn, memory, 8) != RDMA_OK)
		return 1;
	wait_until(&got, 8);
	printf("client: %s\n", memory);
	if (rdmaPAWriteSignaled(conn, info.addr, info.lkey, 64, 8) != RDMA_OK)
		return 1;
	wait_until(&written, 16);
	return rdmaConnDeregMem(conn, memory) != RDMA_OK;
}

static int run_client_side(char *ip, int port)
{
	RdmaConn *conn = rdmaConn();
	char hello[] = "hello";

	if (!conn || rdmaConnSetRecvCallback(conn, client_received) != RDMA_OK ||
	    rdmaConnSetConnectedCallback(conn, client_connected) != RDMA_OK ||
	    rdmaConnSetWriteCallback(conn, client_written) != RDMA_OK ||
	    rdmaConnSetReadCallback(conn, client_read) != RDMA_OK)
		return 1;
	if (rdmaConnect(conn, ip, port) != RDMA_OK) {
		printf("rdmaConnect failed: %s\n", rdmaError());
		return 1;
	}
	wait_until(&connected, 1);
	if (rdmaConnSend(conn, hello, strlen(hello)) != strlen(hello))
		return 1;
	wait_until(&answers, 1);
	printf("client: %s\n", answer);
	if (use_memory(conn) != 0) {
		printf("client: %s\n", rdmaError());
		return 1;
	}
	rdmaConnClose(conn);
	rdmaRuntimeStop();
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "server") == 0)
		return run_server_side(argv[2], atoi(argv[3]), atoi(argv[4]));
	if (argc == 4 && strcmp(argv[1], "client") == 0)
		return run_client_side(argv[2], atoi(argv[3]));
	fprintf(stderr, "usage: snowrdma_program server IP PORT CLIENTS | client IP PORT\n");
	return 2;
}
