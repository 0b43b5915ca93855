/*
 * The helper thread: it stands in for an owner who stops polling in the middle of everything,
 * and costs nothing when there is nothing to do.
 */
#include <remora/fabric.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "harness/test.h"

#define PATIENCE_MS (5000 * TEST_TIME_FACTOR)
#define PROMPT_MS   (100 * TEST_TIME_FACTOR) /* "about a millisecond", on a loaded machine */

struct board {
	char address[128];
	struct rmr_descriptor descriptor;
};

struct side {
	struct board *board;
	struct test_pipe pipe;
	int pings;	/* messages that the target answers before it stops */
	int unanswered; /* ... and takes without an answer */
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct rmr_region *region;
	_Alignas(8) uint8_t memory[4096];
};

static void side_open(struct side *side)
{
	CHECK_OK(rmr_device_open("tcp", NULL, &side->device));
	CHECK_OK(rmr_queue_open(side->device, NULL, &side->queue));
	CHECK_OK(rmr_region_open(side->device, side->memory, sizeof(side->memory),
				 RMR_READ | RMR_WRITE | RMR_ATOMIC, &side->region));
}

static void side_close(struct side *side)
{
	rmr_conn_close(side->conn);
	rmr_region_close(side->region);
	rmr_queue_close(side->queue);
	rmr_device_close(side->device);
}

static struct rmr_completion take(struct side *side, enum rmr_op op)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	struct rmr_completion c;

	while (rmr_poll(side->queue, &c, 1) == 0)
		CHECK(!clock_passed(deadline_ns));
	CHECK_EQ(c.op, op);
	CHECK_EQ(c.status, RMR_OK);
	return c;
}

static void send_one(struct side *side, unsigned flags)
{
	char ping[] = "ping";
	struct rmr_work work = {
		.op = RMR_OP_SEND, .flags = RMR_INLINE | flags, .local = ping, .length = 4};

	CHECK_EQ(rmr_post(side->conn, &work, 1), 1);
}

/* Answers pings by polling hard, so that the connection is hot; then calls nothing any more. */
static void target(void *arg)
{
	struct side *side = arg;
	struct rmr_listener *listener;
	struct rmr_request *request;

	side_open(side);
	CHECK_OK(rmr_listener_open(side->device, "127.0.0.1:0", NULL, &listener));
	strcpy(side->board->address, rmr_listener_address(listener));
	test_signal(&side->pipe, TEST_CHILD);
	CHECK_OK(rmr_listener_next(listener, PATIENCE_MS, &request));
	CHECK_OK(rmr_accept(request, side->queue, NULL, &side->conn));
	CHECK_OK(rmr_region_export(side->region, side->conn, &side->board->descriptor));
	test_signal(&side->pipe, TEST_CHILD);
	for (int i = 0; i < side->pings + side->unanswered; i++) {
		rmr_recv_release(side->queue, take(side, RMR_OP_RECV).data);
		if (i < side->pings)
			send_one(side, RMR_UNSIGNALED);
	}
	test_await(&side->pipe, TEST_CHILD);
	rmr_listener_close(listener);
	side_close(side);
}

static pid_t start(struct side *side, int pings, int unanswered)
{
	pid_t pid;

	memset(side, 0, sizeof(*side));
	side->pings = pings;
	side->unanswered = unanswered;
	side->board = mmap(NULL, sizeof(*side->board), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	test_pipe_open(&side->pipe);
	pid = test_spawn(target, side);
	test_await(&side->pipe, TEST_PARENT);
	side_open(side);
	CHECK_OK(rmr_connect(side->queue, side->board->address, PATIENCE_MS, NULL, &side->conn));
	test_await(&side->pipe, TEST_PARENT);
	for (int i = 0; i < pings; i++) {
		send_one(side, RMR_UNSIGNALED);
		rmr_recv_release(side->queue, take(side, RMR_OP_RECV).data);
	}
	return pid;
}

static void stop(struct side *side, pid_t pid)
{
	test_signal(&side->pipe, TEST_PARENT);
	test_wait(pid);
	side_close(side);
}

/* A READ is answered although the target stopped polling a moment ago, with a hot connection. */
static void test_takes_over(void)
{
	struct rmr_remote *remote;
	struct side side;
	struct rmr_work work;
	pid_t pid = start(&side, 200, 0);

	CHECK_OK(rmr_remote_open(side.conn, &side.board->descriptor, &remote));
	work = (struct rmr_work){.op = RMR_OP_READ,
				 .local = side.memory,
				 .length = 64,
				 .region = side.region,
				 .remote = remote};
	for (int i = 0; i < 200; i++) {
		uint64_t start_ns = clock_now_ns();

		CHECK_EQ(rmr_post(side.conn, &work, 1), 1);
		take(&side, RMR_OP_READ);
		CHECK((clock_now_ns() - start_ns) / 1000000 < PROMPT_MS);
		if (i < 5)
			test_sleep_ms(5);
	}
	stop(&side, pid);
}

/* A message is acknowledged although the program that got it says nothing more. */
static void test_acknowledges(void)
{
	struct side side;
	uint64_t start_ns;
	pid_t pid = start(&side, 200, 1);

	start_ns = clock_now_ns();
	send_one(&side, 0);
	take(&side, RMR_OP_SEND);
	CHECK((clock_now_ns() - start_ns) / 1000000 < PROMPT_MS);
	stop(&side, pid);
}

static uint64_t cpu_us(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* After heavy use, a second of silence costs less than 1% of a core: neither an owner who sleeps on
 * his queue, nor one who does not look at all, keeps the helper awake. */
static void test_idle(void)
{
	struct rmr_completion c;
	struct side side;
	uint64_t before_us;
	pid_t pid = start(&side, 200, 0);

	before_us = cpu_us();
	CHECK_EQ(rmr_wait(side.queue, &c, 1, 1000), 0);
	CHECK(cpu_us() - before_us < 10000 * TEST_TIME_FACTOR);
	before_us = cpu_us();
	test_sleep_ms(1000);
	CHECK(cpu_us() - before_us < 10000 * TEST_TIME_FACTOR);
	stop(&side, pid);
}

/* Completions that the helper made are there when the owner comes back, and an owner who sleeps is
 * woken for them. */
static void test_leaves_completions(void)
{
	struct rmr_completion c;
	struct side side;
	pid_t pid = start(&side, 100, 3);

	for (int i = 0; i < 3; i++)
		send_one(&side, 0);
	test_sleep_ms(50); /* the acknowledgments come, the helper takes them in */
	for (int i = 0; i < 3; i++)
		take(&side, RMR_OP_SEND);
	CHECK_EQ(rmr_poll(side.queue, &c, 1), 0);
	stop(&side, pid);
}

static const struct test tests[] = {
	{"helper_takes_over", test_takes_over},
	{"helper_acknowledges", test_acknowledges},
	{"helper_idle", test_idle},
	{"helper_leaves_completions", test_leaves_completions},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "tcp_helper", tests, TEST_COUNT(tests));
}
