/* Keys of a peer's memory: announced, found within bounds, withdrawn; and notices that lie. */
#include <stdio.h>
#include <string.h>

#include "harness/test.h"
#include "rdma/peer_memory.h"

#define SIZE 8192u

/* One end: everything in one place, so that a test can take what it needs. */
struct end {
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct rmr_arena *arena;
	struct rmr_region *region;
	struct peer_memory memory;
};

static void end_open(struct end *end)
{
	*end = (struct end){0};
	CHECK_OK(rmr_device_open("shm", NULL, &end->device));
	CHECK_OK(rmr_queue_open(end->device, NULL, &end->queue));
	CHECK_OK(rmr_arena_open(SIZE, RMR_ARENA_PEERS_WRITE, &end->arena));
	CHECK_OK(rmr_region_open(end->device, rmr_arena_base(end->arena), SIZE,
				 RMR_READ | RMR_WRITE, &end->region));
	peer_memory_init(&end->memory);
}

static void end_close(struct end *end)
{
	peer_memory_fini(&end->memory);
	rmr_conn_close(end->conn);
	rmr_queue_close(end->queue);
	rmr_region_close(end->region);
	rmr_arena_close(end->arena);
	rmr_device_close(end->device);
}

static void path_of(char path[128])
{
	snprintf(path, 128, "%s/memory", test_tmpdir());
}

/* The owner: tells its notice through the pipe, and then waits. */
static void own(void *arg)
{
	struct test_pipe *pipe = arg;
	struct rmr_listener *listener;
	struct rmr_request *request;
	struct memory_notice notice;
	struct end end;
	char path[128];

	end_open(&end);
	path_of(path);
	CHECK_OK(rmr_listener_open(end.device, path, NULL, &listener));
	test_signal(pipe, TEST_CHILD);
	CHECK_OK(rmr_listener_next(listener, 10000, &request));
	CHECK_OK(rmr_accept(request, end.queue, NULL, &end.conn));
	CHECK_OK(memory_announce(end.region, end.conn, 17, rmr_arena_base(end.arena), SIZE,
				 &notice));
	test_send(pipe, TEST_CHILD, &notice, sizeof(notice));
	test_await(pipe, TEST_CHILD);
	CHECK_STR(rmr_arena_base(end.arena), "written");
	rmr_listener_close(listener);
	end_close(&end);
}

/* The test's end of a connection to an owner, with its notice. */
struct case_of {
	struct end end;
	struct test_pipe pipe;
	pid_t owner;
	struct memory_notice notice;
};

static void case_open(struct case_of *test)
{
	char path[128];

	test_pipe_open(&test->pipe);
	path_of(path);
	test->owner = test_spawn(own, &test->pipe);
	test_await(&test->pipe, TEST_PARENT);
	end_open(&test->end);
	CHECK_OK(rmr_connect(test->end.queue, path, 10000, NULL, &test->end.conn));
	test_recv(&test->pipe, TEST_PARENT, &test->notice, sizeof(test->notice));
}

static void case_close(struct case_of *test)
{
	test_kill(test->owner);
	end_close(&test->end);
	test_pipe_close(&test->pipe);
}

static enum rmr_status take(struct case_of *test, const struct memory_notice *notice)
{
	return peer_memory_take(&test->end.memory, test->end.conn, notice, sizeof(*notice));
}

static enum rmr_status find(struct case_of *test, uint64_t address, uint64_t length,
			    unsigned rights)
{
	struct rmr_remote *remote;
	uint64_t offset;

	return peer_memory_find(&test->end.memory, 17, address, length, rights, &remote, &offset);
}

static void test_use(void)
{
	struct case_of test;
	struct rmr_work work = {
		.op = RMR_OP_WRITE, .flags = RMR_INLINE, .source = "written", .length = 8};
	struct rmr_completion done;
	uint64_t base;

	case_open(&test);
	base = test.notice.address;
	CHECK_STATUS(find(&test, base, 1, RMR_READ), RMR_ACCESS);
	CHECK_OK(take(&test, &test.notice));
	CHECK_OK(peer_memory_find(&test.end.memory, 17, base, 8, RMR_WRITE, &work.remote,
				  &work.offset));
	CHECK_EQ(work.offset, 0);
	CHECK_EQ(rmr_post(test.end.conn, &work, 1), 1);
	CHECK_EQ(rmr_wait(test.end.queue, &done, 1, 10000), 1);
	CHECK_OK(done.status);
	test_signal(&test.pipe, TEST_PARENT);
	test_wait(test.owner);
	end_close(&test.end);
	test_pipe_close(&test.pipe);
}

static void test_bounds(void)
{
	struct case_of test;
	uint64_t base;

	case_open(&test);
	base = test.notice.address;
	CHECK_OK(take(&test, &test.notice));
	CHECK_OK(find(&test, base, SIZE, RMR_READ | RMR_WRITE));
	CHECK_OK(find(&test, base + SIZE - 1, 1, RMR_READ));
	CHECK_OK(find(&test, base + SIZE, 0, RMR_READ));
	CHECK_STATUS(find(&test, base, SIZE + 1, RMR_READ), RMR_ACCESS);
	CHECK_STATUS(find(&test, base - 1, 2, RMR_READ), RMR_ACCESS);
	CHECK_STATUS(find(&test, base + SIZE, 1, RMR_READ), RMR_ACCESS);
	CHECK_STATUS(find(&test, base + SIZE + 1, 0, RMR_READ), RMR_ACCESS);
	CHECK_STATUS(find(&test, base + 1, UINT64_MAX, RMR_READ), RMR_ACCESS);
	CHECK_STATUS(find(&test, 0, 8, RMR_READ), RMR_ACCESS);
	CHECK_CONTAINS(rmr_error_message(), "8 bytes at 0x0");
	CHECK_STATUS(find(&test, base, 8, RMR_ATOMIC), RMR_ACCESS);
	case_close(&test);
}

static void test_withdraw(void)
{
	struct memory_notice gone;
	struct case_of test;

	case_open(&test);
	CHECK_OK(take(&test, &test.notice));
	memory_withdraw(17, &gone);
	CHECK_OK(take(&test, &gone));
	CHECK_STATUS(find(&test, test.notice.address, 8, RMR_READ), RMR_ACCESS);
	CHECK_OK(take(&test, &test.notice)); /* and comes again */
	CHECK_OK(find(&test, test.notice.address, 8, RMR_READ));
	case_close(&test);
}

/* What a peer that lies can say. None of it changes the table. */
static void test_lies(void)
{
	struct memory_notice lie, good;
	struct case_of test;

	case_open(&test);
	good = test.notice;
	CHECK_STATUS(peer_memory_take(&test.end.memory, test.end.conn, &good, sizeof(good) - 1),
		     RMR_PROTOCOL);
	lie = good, lie.key = 0;
	CHECK_STATUS(take(&test, &lie), RMR_PROTOCOL);
	lie = good, lie.is_withdrawn = 2;
	CHECK_STATUS(take(&test, &lie), RMR_PROTOCOL);
	lie = good, lie.length = 0;
	CHECK_STATUS(take(&test, &lie), RMR_PROTOCOL);
	lie = good, lie.length = SIZE + 1;
	CHECK_STATUS(take(&test, &lie), RMR_PROTOCOL);
	lie = good, lie.length = UINT64_MAX;
	CHECK_STATUS(take(&test, &lie), RMR_PROTOCOL);
	lie = good, memset(&lie.descriptor, 0xee, sizeof(lie.descriptor));
	CHECK_STATUS(take(&test, &lie), RMR_PROTOCOL);
	memory_withdraw(17, &lie);
	CHECK_STATUS(take(&test, &lie), RMR_PROTOCOL);
	CHECK_EQ(test.end.memory.count, 0);
	CHECK_OK(take(&test, &good));
	CHECK_STATUS(take(&test, &good), RMR_PROTOCOL);
	CHECK_EQ(test.end.memory.count, 1);
	case_close(&test);
}

/* A peer that announces without end is stopped; keys that share a bucket are told apart. */
static void test_many(void)
{
	struct memory_notice notice;
	struct case_of test;

	case_open(&test);
	notice = test.notice;
	for (uint32_t key = 1; key <= PEER_MEMORY_MAX; key++) {
		notice.key = key;
		CHECK_OK(take(&test, &notice));
	}
	notice.key = PEER_MEMORY_MAX + 1;
	CHECK_STATUS(take(&test, &notice), RMR_PROTOCOL);
	CHECK_OK(find(&test, notice.address, SIZE, RMR_READ));
	case_close(&test);
}

static void test_new_keys(void)
{
	uint32_t key = memory_new_key();

	CHECK(key != 0);
	CHECK(memory_new_key() != key);
}

static const struct test tests[] = {
	{"use", test_use},   {"bounds", test_bounds}, {"withdraw", test_withdraw},
	{"lies", test_lies}, {"many", test_many},     {"new_keys", test_new_keys},
};

int main(int argc, char **argv)
{
	return test_main(argc, argv, "peer_memory_test", tests, TEST_COUNT(tests));
}
