/*
 * One host of the tests with two of them (two_hosts_test.py), which cut the wire between them.
 *
 *	lab_peer serve DEVICE ADDRESS MS		serves callers until it is killed, or its
 *							adapter is removed
 *	lab_peer call DEVICE ADDRESS MANNER MS		calls, goes on until the connection ends
 *
 * MANNER is what the caller has in flight when that happens: "reads", "sends" or nothing: "idle"
 * (it sleeps in rmr_wait). MS is dead_after_ms. Both say what they see, a line for each thing:
 *
 *	listening at 10.77.0.1:40001
 *	connected
 *	lost after 2012 ms: disconnected ...		since the last operation that succeeded; the
 *							caller then ends
 *	closed						at the end of either
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <remora/fabric.h>

#include "base/clock.h"

#define SIZE 65536

static void die(const char *what)
{
	printf("%s: %s\n", what, rmr_error_message());
	exit(1);
}

static void check(enum rmr_status status, const char *what)
{
	if (status != RMR_OK)
		die(what);
}

struct host {
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_arena *arena;
	struct rmr_region *region;
	uint8_t *memory;
	int callers;	   /* connections of a server */
	int dead_after_ms; /* of them */
};

static void host_open(struct host *host, const char *device)
{
	check(rmr_device_open(device, NULL, &host->device), "device");
	check(rmr_queue_open(host->device, NULL, &host->queue), "queue");
	check(rmr_arena_open(SIZE, RMR_ARENA_PEERS_WRITE, &host->arena), "arena");
	host->memory = rmr_arena_base(host->arena);
	check(rmr_region_open(host->device, host->memory, SIZE, RMR_READ | RMR_WRITE,
			      &host->region),
	      "region");
}

static void host_close(struct host *host)
{
	rmr_region_close(host->region);
	rmr_arena_close(host->arena);
	rmr_queue_close(host->queue);
	rmr_device_close(host->device);
	printf("closed\n");
}

static struct rmr_work send_of(const void *data, size_t length)
{
	return (struct rmr_work){
		.op = RMR_OP_SEND, .flags = RMR_INLINE, .source = data, .length = length};
}

/* ------------------------------------------------------------------------------------------
 * Serving
 */

/* False when nobody will call any more. */
static bool welcome(struct host *host, struct rmr_listener *listener)
{
	struct rmr_conn_options options = {.dead_after_ms = host->dead_after_ms};
	enum rmr_status status;
	struct rmr_descriptor descriptor;
	struct rmr_request *request;
	struct rmr_conn *conn;
	struct rmr_work work;

	status = rmr_listener_next(listener, 0, &request);
	if (status != RMR_OK)
		return status != RMR_NO_DEVICE;
	if (rmr_accept(request, host->queue, &options, &conn) != RMR_OK) {
		printf("not accepted: %s\n", rmr_error_message());
		return true;
	}
	printf("connection\n");
	host->callers++;
	check(rmr_region_export(host->region, conn, &descriptor), "export");
	work = send_of(&descriptor, sizeof(descriptor));
	work.flags |= RMR_UNSIGNALED;
	if (rmr_post(conn, &work, 1) != 1)
		die("post");
	return true;
}

static void serve(struct host *host, const char *address)
{
	struct rmr_listener *listener;

	check(rmr_listener_open(host->device, address, NULL, &listener), "listen");
	printf("listening at %s\n", rmr_listener_address(listener));
	while (welcome(host, listener) || host->callers > 0) {
		struct rmr_completion completion;

		if (rmr_wait(host->queue, &completion, 1, 20) == 0)
			continue;
		if (completion.op == RMR_OP_RECV) {
			rmr_recv_release(host->queue, completion.data);
		} else if (completion.op == RMR_OP_DISCONNECT) {
			printf("lost: %s\n", rmr_status_text(completion.status));
			rmr_conn_close(completion.conn);
			host->callers--;
		}
	}
	rmr_listener_close(listener);
}

/* ------------------------------------------------------------------------------------------
 * Calling
 */
static struct rmr_remote *import(struct host *host, struct rmr_conn *conn)
{
	struct rmr_completion completion;
	struct rmr_remote *remote;

	if (rmr_wait(host->queue, &completion, 1, 10000) != 1 || completion.op != RMR_OP_RECV)
		die("no descriptor came");
	check(rmr_remote_open(conn, (struct rmr_descriptor *)completion.data, &remote), "remote");
	rmr_recv_release(host->queue, completion.data);
	return remote;
}

static void post_one(struct host *host, struct rmr_conn *conn, struct rmr_remote *remote,
		     const char *manner)
{
	static const uint64_t hello;
	struct rmr_work work = send_of(&hello, sizeof(hello));

	if (strcmp(manner, "reads") == 0)
		work = (struct rmr_work){.op = RMR_OP_READ,
					 .local = host->memory,
					 .length = 4096,
					 .region = host->region,
					 .remote = remote};
	(void)!rmr_post(conn, &work, 1);
}

/* Goes on until the connection ends. */
static void call(struct host *host, const char *address, const char *manner, int dead_after_ms)
{
	struct rmr_conn_options options = {.dead_after_ms = dead_after_ms};
	bool idle = strcmp(manner, "idle") == 0;
	struct rmr_remote *remote;
	struct rmr_conn *conn;
	uint64_t good_ns;

	check(rmr_connect(host->queue, address, 10000, &options, &conn), "connect");
	remote = import(host, conn);
	good_ns = clock_now_ns();
	printf("connected\n");
	if (!idle)
		post_one(host, conn, remote, manner);
	for (;;) {
		struct rmr_completion completion;

		if (rmr_wait(host->queue, &completion, 1, -1) == 0)
			continue;
		if (completion.op == RMR_OP_DISCONNECT) {
			printf("lost after %d ms: %s\n",
			       (int)((clock_now_ns() - good_ns) / 1000000),
			       rmr_status_text(completion.status));
			rmr_conn_close(conn);
			return;
		}
		if (completion.status == RMR_OK) {
			good_ns = clock_now_ns();
			post_one(host, conn, remote, manner);
		} else {
			printf("failed: %s\n", rmr_status_text(completion.status));
		}
	}
}

int main(int argc, char **argv)
{
	struct host host = {0};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 5 && strcmp(argv[1], "serve") == 0) {
		host_open(&host, argv[2]);
		host.dead_after_ms = atoi(argv[4]);
		serve(&host, argv[3]);
		host_close(&host);
		return 0;
	} else if (argc == 6 && strcmp(argv[1], "call") == 0) {
		host_open(&host, argv[2]);
		call(&host, argv[3], argv[4], atoi(argv[5]));
		host_close(&host);
		return 0;
	}
	printf("usage: lab_peer serve DEVICE ADDRESS MS | call DEVICE ADDRESS MANNER MS\n");
	return 2;
}
