/*
 * Last words: what a peer said before it went away lies in the socket, also when it is a send of
 * ours that finds out that it is gone. It is delivered, then comes the end.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <remora/fabric.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "raw.h"

#define PATIENCE_MS (5000 * TEST_TIME_FACTOR)
#define ROUNDS	    20

/* How it goes. */
enum parting {
	PARTING_RESET, /* the next send fails */
	PARTING_CLOSE, /* the next but one */
};

struct peer {
	int listener, fd;
	char address[64];
};

/* Accepts one call. */
static void *accept_one(void *argument)
{
	struct handshake greeting = raw_greeting(HANDSHAKE_ACCEPT);
	uint8_t bytes[HANDSHAKE_SIZE];
	struct peer *peer = argument;
	int one = 1;

	peer->fd = accept(peer->listener, NULL, NULL);
	CHECK(peer->fd >= 0);
	/* What the kernel holds back is lost by a reset. */
	CHECK_EQ(setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	CHECK(raw_read(peer->fd, bytes, sizeof(bytes)));
	handshake_encode(bytes, &greeting);
	raw_send(peer->fd, bytes, sizeof(bytes));
	return NULL;
}

static void say_and_part(struct peer *peer, int messages, enum parting parting)
{
	struct linger at_once = {.l_onoff = 1};

	for (int i = 0; i < messages; i++) {
		raw_frame(peer->fd,
			  &(struct frame){.op = FRAME_SEND, .sequence = (uint32_t)i, .length = 4});
		raw_send(peer->fd, "last", 4);
	}
	if (parting == PARTING_RESET)
		CHECK_EQ(setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
	close(peer->fd);
}

/* The peer says so much and parts; we send, and have not looked before. */
static void part(struct rmr_queue *queue, struct peer *peer, int messages, enum parting parting)
{
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_INLINE | RMR_UNSIGNALED,
				.source = "ping",
				.length = 4};
	struct rmr_completion c = {0};
	struct rmr_conn *conn;
	pthread_t thread;
	int heard = 0;

	CHECK_EQ(pthread_create(&thread, NULL, accept_one, peer), 0);
	CHECK_OK(rmr_connect(queue, peer->address, PATIENCE_MS, NULL, &conn));
	CHECK_EQ(pthread_join(thread, NULL), 0);
	/* Somebody who polls is left alone by the helper for a while. */
	CHECK_EQ(rmr_poll(queue, &c, 1), 0);
	say_and_part(peer, messages, parting);
	for (int i = 0; i < 3; i++)
		(void)!rmr_post(conn, &work, 1);
	for (;;) {
		CHECK_EQ(rmr_wait(queue, &c, 1, PATIENCE_MS), 1);
		if (c.op == RMR_OP_DISCONNECT)
			break;
		/* Works that were not sent fail. */
		if (c.op != RMR_OP_RECV)
			continue;
		CHECK_OK(c.status);
		CHECK_EQ(c.length, 4);
		CHECK_MEM(c.data, "last", 4);
		rmr_recv_release(queue, c.data);
		heard++;
	}
	CHECK_EQ(c.status, RMR_DISCONNECTED);
	CHECK_EQ(heard, messages);
	CHECK_EQ(rmr_poll(queue, &c, 1), 0);
	CHECK(rmr_post(conn, &work, 1) < 0);
	rmr_conn_close(conn);
}

static void part_often(enum parting parting)
{
	/* Also more than there are slots for; but no more than a kernel sends before it hears that
	 * some have arrived. */
	static const int messages[] = {0, 1, 2, 4};
	struct rmr_queue_options options = {.recv_slots = 2, .recv_size = 64};
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct peer peer;

	peer.listener = raw_listen(peer.address);
	CHECK_OK(rmr_device_open("tcp", NULL, &device));
	CHECK_OK(rmr_queue_open(device, &options, &queue));
	for (int round = 0; round < ROUNDS; round++)
		part(queue, &peer, messages[round % (int)TEST_COUNT(messages)], parting);
	rmr_queue_close(queue);
	rmr_device_close(device);
	close(peer.listener);
}

static void test_reset(void)
{
	part_often(PARTING_RESET);
}

static void test_close(void)
{
	part_often(PARTING_CLOSE);
}

static const struct test tests[] = {
	{"reset", test_reset},
	{"close", test_close},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "tcp_farewell", tests, TEST_COUNT(tests));
}
