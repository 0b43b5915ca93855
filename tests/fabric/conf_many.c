/*
 * Many connections and several threads: 16 and 200 connections on one queue, queues of one device
 * in threads of their own, requests that are accepted by another thread than the one that took
 * them.
 *
 * What these tests would catch: a completion credited to the wrong connection, a connection starved
 * by others, shared state of a device without a lock, slots shared unfairly or leaked.
 */
#include <pthread.h>
#include <string.h>

#include "conformance.h"

/* ------------------------------------------------------------------------------------------
 * Many connections on one queue, on both sides
 */
struct many {
	int conns, rounds;
};

/* Echoes every message on the connection it came from, until all connections are gone. Tells when
 * all echoes are known to have arrived: what is in flight when the peer closes may fail. */
static void echo_many(struct node *node)
{
	const struct many *many = node->arg;
	struct rmr_queue_options options = {.recv_slots = 64, .recv_size = 512};
	int gone = 0, done = 0, i;

	node_open(node, &options);
	node_listen(node);
	for (i = 0; i < many->conns; i++)
		node_accept(node, NULL);
	while (gone < many->conns) {
		struct rmr_completion c = node_next(node);
		struct rmr_work work = {.op = RMR_OP_SEND, .flags = RMR_INLINE};

		if (c.op == RMR_OP_SEND) {
			CHECK_EQ(c.status, RMR_OK);
			if (++done == many->conns * many->rounds)
				test_signal(node->pipe, TEST_CHILD);
		} else if (c.op == RMR_OP_RECV) {
			work.local = c.data;
			work.length = c.length;
			CHECK_EQ(rmr_post(c.conn, &work, 1), 1);
			rmr_recv_release(node->queue, c.data);
		} else {
			CHECK_EQ(c.op, RMR_OP_DISCONNECT);
			rmr_conn_close(c.conn);
			gone++;
		}
	}
	node->conn = NULL;
	node_close(node);
}

/* A small message that says which connection it is on, and how often it went around. */
static void say(struct rmr_conn *conn, uint32_t number, uint32_t round)
{
	uint32_t text[2] = {number, round};
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_INLINE | RMR_UNSIGNALED,
				.local = text,
				.length = sizeof(text)};

	CHECK_EQ(rmr_post(conn, &work, 1), 1);
}

/* One message goes around on each connection all the time. */
static void check_many(struct many many)
{
	struct rmr_queue_options queue_options = {.recv_slots = 64, .recv_size = 512};
	struct rmr_conn_options options = {.depth = 8};
	struct rmr_conn *conns[256];
	uint32_t round[256] = {0}, text[2];
	struct peer peer;
	struct node node = {0};
	uintptr_t i;
	int done = 0;

	peer_start(&peer, echo_many, &many);
	node_open(&node, &queue_options);
	for (i = 0; i < (uintptr_t)many.conns; i++) {
		options.user = (void *)i;
		node_connect(&node, &peer, &options);
		conns[i] = node.conn;
	}
	for (i = 0; i < (uintptr_t)many.conns; i++)
		say(conns[i], (uint32_t)i, 0);
	while (done < many.conns) {
		struct rmr_completion c = node_expect(&node, RMR_OP_RECV, RMR_OK);

		i = (uintptr_t)rmr_conn_user(c.conn);
		CHECK(c.conn == conns[i]);
		CHECK_EQ(c.length, sizeof(text));
		memcpy(text, c.data, sizeof(text));
		rmr_recv_release(node.queue, c.data);
		CHECK_EQ(text[0], i);
		CHECK_EQ(text[1], round[i]++);
		if (round[i] == (uint32_t)many.rounds)
			done++;
		else
			say(c.conn, (uint32_t)i, round[i]);
	}
	test_await(&peer.pipe, TEST_PARENT);
	for (i = 0; i < (uintptr_t)many.conns; i++)
		rmr_conn_close(conns[i]);
	node.conn = NULL;
	peer_join(&peer);
	node_close(&node);
}

static void test_16_conns(void)
{
	check_many((struct many){.conns = 16, .rounds = 500});
}

static void test_200_conns(void)
{
	check_many((struct many){.conns = 200, .rounds = 20});
}

/* ------------------------------------------------------------------------------------------
 * Threads: one device, a queue a thread
 */
#define THREADS 4
#define ROUNDS	1500

/* A worker's part of the node: own queue and connection, shared device and memory. */
struct worker {
	struct node node;
	struct rmr_request *request; /* the server's: what it has to accept */
	const char *address;	     /* the client's: where to connect */
	uint64_t number;
};

/* Accepts what another thread took from the listener, and echoes. */
static void *serve_worker(void *arg)
{
	struct worker *worker = arg;
	struct node *node = &worker->node;
	uint64_t i;

	node_open_queue(node, NULL);
	CHECK_OK(rmr_accept(worker->request, node->queue, NULL, &node->conn));
	node_export(node);
	for (i = 0; i < ROUNDS; i++) {
		node_recv(node, 40, i);
		node_send(node, 40, i + 1);
	}
	node_expect_disconnect(node, node->conn);
	rmr_conn_close(node->conn);
	node_close_queue(node);
	return NULL;
}

static void serve_threads(struct node *node)
{
	struct worker workers[THREADS];
	pthread_t threads[THREADS];
	int i;

	node_open(node, NULL);
	node_memory(node, MEMORY_ARENA, 64 * KIB, memory_rights(node, MEMORY_ARENA));
	node_listen(node);
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.node = *node};
		CHECK_OK(rmr_listener_next(node->listener, PATIENCE_MS, &workers[i].request));
		CHECK_EQ(pthread_create(&threads[i], NULL, serve_worker, &workers[i]), 0);
	}
	for (i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	node_close(node);
}

/* Ping-pong, and between the messages WRITE and READ of the thread's own part of the memory, and
 * FETCH_ADD on a counter that all share. */
static void *call_worker(void *arg)
{
	struct worker *worker = arg;
	struct node *node = &worker->node;
	size_t mine = 4096 + worker->number * 1024;
	struct rmr_work work;
	uint64_t i;

	node_open_queue(node, NULL);
	CHECK_OK(rmr_connect(node->queue, worker->address, PATIENCE_MS, NULL, &node->conn));
	node_import(node);
	for (i = 0; i < ROUNDS; i++) {
		pattern_fill(node->memory.base + mine, 500, worker->number + i);
		work = work_of(node, RMR_OP_WRITE, mine, 500, mine);
		work.flags = RMR_UNSIGNALED | RMR_MORE;
		node_post(node, &work);
		work = work_of(node, RMR_OP_READ, mine + 512, 500, mine);
		node_do(node, &work);
		pattern_check(work.local, 500, worker->number + i, "READ in a thread");
		work = work_of(node, RMR_OP_FETCH_ADD, mine, 8, 0);
		work.operand = 1;
		node_do(node, &work);
		node_send(node, 40, i);
		node_recv(node, 40, i + 1);
	}
	rmr_conn_close(node->conn);
	node_close_queue(node);
	return NULL;
}

static void test_threads(void)
{
	struct worker workers[THREADS];
	pthread_t threads[THREADS];
	struct peer peer;
	struct node node = {0};
	int i;

	peer_start(&peer, serve_threads, NULL);
	node_open(&node, NULL);
	node_memory(&node, MEMORY_ARENA, 64 * KIB, 0);
	test_recv(&peer.pipe, TEST_PARENT, peer.address, sizeof(peer.address));
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){
			.node = node, .address = peer.address, .number = (uint64_t)i};
		CHECK_EQ(pthread_create(&threads[i], NULL, call_worker, &workers[i]), 0);
	}
	for (i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	peer_join(&peer);
	node_close(&node);
}

const struct test many_tests[] = {
	{"many_16_connections_on_a_queue", test_16_conns},
	{"many_200_connections_on_a_queue", test_200_conns},
	{"many_threads_with_own_queues", test_threads},
	{NULL},
};
