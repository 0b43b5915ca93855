/*
 * Remote read: one process reads another's memory while that one sleeps.
 *	02_remote_read [device]		device: shm (the default) or tcp
 * The parent puts a text where peers may read, tells the child where it is, and sleeps.
 */
#include <err.h>
#include <remora/fabric.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int check(int result)
{
	if (result < 0)
		errx(1, "%s", rmr_error_message());
	return result;
}

/* Posts an operation, or none, and waits for the next completion. */
static struct rmr_completion finish(struct rmr_conn *conn, struct rmr_work *work)
{
	struct rmr_completion c = {0};

	check(work != NULL ? rmr_post(conn, work, 1) : 0);
	if (rmr_wait(rmr_conn_queue(conn), &c, 1, 5000) == 0 || c.status != RMR_OK)
		errx(1, "nothing came: %s", rmr_status_text(c.status));
	return c;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "shm";
	char address[128] = "127.0.0.1:0", *text; /* tcp: port 0 means any free one */
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_arena *arena;   /* memory that peers reach fastest */
	struct rmr_region *region; /* what a device may use of it, and peers may do with it */
	struct rmr_listener *listener;
	struct rmr_request *request;
	struct rmr_descriptor where;
	struct rmr_conn *conn;
	int fd[2], result = pipe(fd), child = fork();

	close(fd[child > 0 ? 0 : 1]); /* so that the child is not left waiting if we fail */
	check(rmr_device_open(name, NULL, &device)); /* each its own, after the fork */
	check(rmr_queue_open(device, NULL, &queue));
	check(rmr_arena_open(4096, 0, &arena));
	check(rmr_region_open(device, text = rmr_arena_base(arena), 4096, RMR_READ, &region));
	if (child > 0) {
		struct rmr_work send = {RMR_OP_SEND, RMR_INLINE, .length = sizeof(where)};

		strcpy(text, "a remora travels with a shark");
		if (!strstr(name, "tcp")) /* shm: any name will do */
			snprintf(address, sizeof(address), "remote-read-%d", getpid());
		check(rmr_listener_open(device, address, NULL, &listener));
		dprintf(fd[1], "%s%c", rmr_listener_address(listener), 0);
		check(rmr_listener_next(listener, 5000, &request));
		check(rmr_accept(request, queue, NULL, &conn));
		check(rmr_region_export(region, conn, send.local = &where));
		finish(conn, &send);
		waitpid(child, &result, 0); /* asleep: the READ comes and goes without us */
		rmr_listener_close(listener);
	} else {
		struct rmr_work get = {RMR_OP_READ, .local = text, .length = 64, .region = region};

		result = read(fd[0], address, sizeof(address)) < 1;
		check(rmr_connect(queue, address, 5000, NULL, &conn));
		check(rmr_remote_open(conn, finish(conn, NULL).data, &get.remote));
		finish(conn, &get);
		printf("client read: %s\n", text);
	}
	rmr_conn_close(conn);
	rmr_region_close(region);
	rmr_arena_close(arena);
	rmr_queue_close(queue);
	rmr_device_close(device);
	return result != 0;
}
