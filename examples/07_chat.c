/*
 * Chat: two processes talk, all of it in callbacks: 07_chat [tcp://127.0.0.1, shm:room, ...]
 * Who hears a line says the next one. Its number travels beside it, as the immediate.
 */
#include <err.h>
#include <remora/rdma.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const lines[] = {"hello, who is there?", "a remora", "and where do you travel?",
				    "with a shark", "bye"};
#define LINES (sizeof(lines) / sizeof(lines[0]))

static sem_t done; /* for the main thread: it may wait, callbacks may not */

static void say(RdmaConn *conn, uint32_t number)
{
	if (!rdmaConnSendWithImm(conn, number, lines[number], strlen(lines[number])))
		errx(1, "no room, though it is empty");
}

static void heard(RdmaConn *conn, uint32_t number, const void *data, size_t len)
{
	dprintf(1, "%s: %.*s\n", number % 2 ? "child" : "parent", (int)len, (const char *)data);
	if (number + 1 < LINES)
		say(conn, number + 1);
	else
		sem_post(&done);
}

static void left(RdmaConn *conn, enum rmr_status status, const char *reason)
{
	(void)status;
	dprintf(1, "the other one has left: %s\n", reason);
	rdmaConnClose(conn);
	sem_post(&done);
}

static void came(RdmaListener *listener, RdmaConn *conn)
{
	(void)listener;
	rdmaConnSetRecvImmCallback(conn, heard);
	rdmaConnSetDisconnectCallback(conn, left);
	say(conn, 0);
}

int main(int argc, char **argv)
{
	const char *address = argc > 1 ? argv[1] : NULL;
	RdmaListener *listener;
	RdmaConn *conn;
	int fd[2], result = pipe(fd);
	char port[16];

	sem_init(&done, 0, 0);
	if (fork() == 0) { /* before anything of the library is used */
		if (close(fd[1]) || read(fd[0], port, sizeof(port)) != sizeof(port))
			return 1;
		conn = rdmaConn();
		rdmaConnSetRecvImmCallback(conn, heard);
		if (rdmaConnect(conn, address, atoi(port)) != RDMA_OK)
			errx(1, "%s", rdmaError());
		sem_wait(&done);
		rdmaConnClose(conn);
		return 0;
	}
	if (rdmaServer(&listener, address, 0) != RDMA_OK)
		errx(1, "%s", rdmaError());
	rdmaServerSetAcceptCallback(listener, came);
	rdmaServerStartAsync(listener);
	dprintf(fd[1], "%-16d", rdmaServerPort(listener));
	sem_wait(&done);
	rdmaServerRelease(listener);
	return wait(&result) < 0 || result != 0;
}
