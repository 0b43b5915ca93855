/*
 * Copies a file into another process by RDMA writes: 09_file_copy FROM TO [tcp://127.0.0.1]
 * The receiver exposes memory and has no part in it; when the sender has ended, it is all there.
 */
#include <err.h>
#include <remora/rdma.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_size_t size, done; /* bytes of the file */
static char *memory;		 /* registered: what is written from, and what is written to */
static RdmaListener *listener;

static void sender_ended(int number)
{
	(void)number;
	rdmaServerStop(listener); /* legal in signal handlers */
}

static void accepted(RdmaListener *at, RdmaConn *conn)
{
	if (rdmaConnExpose(conn, memory, size))
		rdmaServerStop(at);
}

static void written(RdmaConn *conn, size_t bytes)
{
	(void)conn;
	dprintf(1, "%3zu%%\n", (done += bytes) * 100 / size);
}

static int send_all(const char *address, int port)
{
	RdmaConn *conn = rdmaConn();

	rdmaConnSetWriteCallback(conn, written);
	if (rdmaConnect(conn, address, port) != RDMA_OK)
		errx(1, "%s", rdmaError());
	for (size_t at = 0, sent; at < size; at += sent) { /* in pieces of 256 KiB */
		sent = rdmaConnWrite(conn, memory + at, size - at < 262144 ? size - at : 262144);
		if (sent == RDMA_SEND_ERR)
			errx(1, "%s", rdmaError());
		usleep(sent ? 0 : 100); /* 0: enough are in flight */
	}
	while (done < size && rdmaConnIsConnected(conn))
		usleep(100);
	rdmaConnClose(conn);
	return done < size;
}

int main(int argc, char **argv)
{
	FILE *from = argc > 2 ? fopen(argv[1], "r") : NULL, *to;
	struct stat about;
	char port[16];
	int fd[2], result;

	if (argc < 3)
		errx(2, "usage: 09_file_copy FROM TO [address]");
	if (!from || fstat(fileno(from), &about) || !S_ISREG(about.st_mode) || pipe(fd))
		err(1, "%s", argv[1]);
	size = (size_t)about.st_size;
	if (fork() == 0) /* before anything of the library is used */
		return close(fd[1]) || read(fd[0], port, 16) != 16 ||
		       !(memory = rdmaConnRegMem(NULL, size)) ||
		       fread(memory, 1, size, from) != size || send_all(argv[3], atoi(port));
	if (!(to = fopen(argv[2], "w")))
		err(1, "%s", argv[2]);
	if (!(memory = rdmaConnRegMem(NULL, size)) || rdmaServer(&listener, argv[3], 0) != RDMA_OK)
		errx(1, "%s", rdmaError());
	signal(SIGCHLD, sender_ended);
	rdmaServerSetAcceptCallback(listener, accepted);
	dprintf(fd[1], "%-16d", rdmaServerPort(listener));
	rdmaServerStart(listener);
	rdmaServerRelease(listener);
	return wait(&result) < 0 || result || fwrite(memory, 1, size, to) != size || fclose(to);
}
