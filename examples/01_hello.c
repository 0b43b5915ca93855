/*
 * Hello: two processes exchange a message.
 *	01_hello [device]	device: shm (the default) or tcp
 * The parent is the server, the child the client. The server's address comes through a pipe.
 */
#include <err.h>
#include <remora/fabric.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Every call goes through here: a negative result ends the program with the reason. */
static int check(int result)
{
	if (result < 0)
		errx(1, "%s", rmr_error_message());
	return result;
}

/* RMR_INLINE: the text is copied at once, so it may lie anywhere. */
static void say(struct rmr_conn *conn, const char *text)
{
	struct rmr_work work = {
		.op = RMR_OP_SEND, .flags = RMR_INLINE, .source = text, .length = strlen(text)};

	check(rmr_post(conn, &work, 1));
}

/* Waits for a message; what else comes out of the queue only tells that ours was sent. */
static void hear(struct rmr_queue *queue, const char *who)
{
	struct rmr_completion c = {.op = RMR_OP_DISCONNECT};

	while (c.op != RMR_OP_RECV)
		if (rmr_wait(queue, &c, 1, 5000) == 0 || c.status != RMR_OK)
			errx(1, "%s: no message (%s)", who, rmr_status_text(c.status));
	printf("%s received: %.*s\n", who, (int)c.length, (char *)c.data);
	rmr_recv_release(queue, c.data);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "shm";
	char address[128] = "127.0.0.1:0"; /* tcp: port 0 means any free one */
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	int fd[2], result = pipe(fd), child = fork();

	close(fd[child > 0 ? 0 : 1]); /* so that the child is not left waiting if we fail */
	check(rmr_device_open(name, NULL, &device)); /* each its own, after the fork */
	check(rmr_queue_open(device, NULL, &queue));
	if (child > 0) {
		struct rmr_listener *listener;
		struct rmr_request *request;

		if (!strstr(name, "tcp")) /* shm: any name will do */
			snprintf(address, sizeof(address), "hello-%d", getpid());
		check(rmr_listener_open(device, address, NULL, &listener));
		dprintf(fd[1], "%s%c", rmr_listener_address(listener), 0);
		check(rmr_listener_next(listener, 5000, &request));
		check(rmr_accept(request, queue, NULL, &conn));
		hear(queue, "server");
		say(conn, "hello, client");
		waitpid(child, &result, 0);
		rmr_listener_close(listener);
	} else {
		result = read(fd[0], address, sizeof(address)) < 1;
		check(rmr_connect(queue, address, 5000, NULL, &conn));
		say(conn, "hello, server");
		hear(queue, "client");
	}
	rmr_conn_close(conn);
	rmr_queue_close(queue);
	rmr_device_close(device);
	return result != 0;
}
