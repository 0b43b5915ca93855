/*
 * A remote counter: four processes add to one word in the memory of a fifth, which does nothing.
 *	08_remote_counter [address]	tcp://127.0.0.1 ...; the default is the fastest there is
 * rdmaConnFetchAdd is atomic: nobody's count is lost, and everybody sees another number.
 */
#include <err.h>
#include <inttypes.h>
#include <remora/rdma.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 4
#define TIMES	  1000

static uint64_t *counter; /* registered memory of all connections */

static void accepted(RdmaListener *listener, RdmaConn *conn)
{
	(void)listener;
	if (rdmaConnExpose(conn, counter, sizeof(*counter)) != RDMA_OK)
		rdmaConnClose(conn); /* refuses the caller */
}

static int count(const char *address, int port)
{
	RdmaOptions options = {.mode = RDMA_BLOCKING};
	RdmaConn *conn = rdmaConnWithOptions(&options);
	uint64_t before, last = 0;

	if (rdmaConnect(conn, address, port) != RDMA_OK)
		errx(1, "%s", rdmaError());
	for (int i = 0; i < TIMES; i++) {
		if (rdmaConnFetchAdd(conn, 0, 1, &before) != RDMA_OK)
			errx(1, "%s", rdmaError());
		if (i && before <= last)
			errx(1, "the counter went back");
		last = before;
	}
	rdmaConnClose(conn);
	return 0;
}

int main(int argc, char **argv)
{
	const char *address = argc > 1 ? argv[1] : NULL;
	RdmaListener *listener;
	int fd[2], result = pipe(fd), failed = 0;
	char port[16];

	for (int i = 0; i < PROCESSES; i++)
		if (fork() == 0) /* before anything of the library is used */
			return close(fd[1]) || read(fd[0], port, sizeof(port)) < 1 ||
			       count(address, atoi(port));
	if (rdmaServer(&listener, address, 0) != RDMA_OK)
		errx(1, "%s", rdmaError());
	counter = rdmaConnRegMem(NULL, sizeof(*counter));
	rdmaServerSetAcceptCallback(listener, accepted);
	rdmaServerStartAsync(listener);
	for (int i = 0; i < PROCESSES; i++)
		dprintf(fd[1], "%-16d", rdmaServerPort(listener));
	while (wait(&result) > 0)
		failed |= result;
	printf("%d processes, %d times each: %" PRIu64 "\n", PROCESSES, TIMES, *counter);
	rdmaServerRelease(listener);
	rdmaConnDeregMem(NULL, counter);
	return failed != 0;
}
