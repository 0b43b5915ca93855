/* See pair.h. */
#include "pair.h"

#include <stdio.h>
#include <string.h>

#define ALL_RIGHTS (RMR_READ | RMR_WRITE | RMR_ATOMIC)

void end_open(struct end *end, const char *plan)
{
	struct rmr_device_options options = {.fault_plan = plan};
	struct rmr_queue_options queue_options = {.recv_slots = RECV_SLOTS};

	CHECK_OK(rmr_device_open(DEVICE_NAME, &options, &end->device));
	CHECK_OK(rmr_queue_open(end->device, &queue_options, &end->queue));
	CHECK_OK(rmr_arena_open(MEMORY_SIZE, RMR_ARENA_PEERS_WRITE, &end->arena));
	end->memory = rmr_arena_base(end->arena);
	CHECK_OK(rmr_region_open(end->device, end->memory, MEMORY_SIZE, ALL_RIGHTS, &end->region));
}

void end_close(struct end *end)
{
	for (int i = 0; i < end->count; i++)
		rmr_conn_close(end->conns[i]);
	rmr_listener_close(end->listener);
	rmr_queue_close(end->queue);
	rmr_region_close(end->region);
	rmr_arena_close(end->arena);
	rmr_device_close(end->device);
}

void end_exchange(struct end *end)
{
	struct rmr_descriptor mine, theirs;

	for (int i = 0; i < end->count; i++) {
		CHECK_OK(rmr_region_export(end->region, end->conns[i], &mine));
		test_send(end->pipe, end->side, &mine, sizeof(mine));
	}
	for (int i = 0; i < end->count; i++) {
		test_recv(end->pipe, end->side, &theirs, sizeof(theirs));
		CHECK_OK(rmr_remote_open(end->conns[i], &theirs, &end->remotes[i]));
		CHECK_EQ(rmr_remote_length(end->remotes[i]), MEMORY_SIZE);
	}
	test_signal(end->pipe, end->side);
	test_await(end->pipe, end->side);
}

static void run_peer(void *arg)
{
	struct peer *peer = arg;
	struct end end = {.pipe = &peer->pipe, .side = TEST_CHILD};
	char address[128] = "127.0.0.1:0";

	end_open(&end, peer->plan);
	if (strcmp(FAULT_INNER, "shm") == 0)
		snprintf(address, sizeof(address), "%s/fault.sock", test_tmpdir());
	CHECK_OK(rmr_listener_open(end.device, address, NULL, &end.listener));
	snprintf(address, sizeof(address), "%s", rmr_listener_address(end.listener));
	test_send(end.pipe, end.side, address, sizeof(address));
	for (; end.count < peer->conns; end.count++) {
		struct rmr_request *request;

		CHECK_OK(rmr_listener_next(end.listener, PATIENCE_MS, &request));
		CHECK_OK(rmr_accept(request, end.queue, NULL, &end.conns[end.count]));
	}
	end_exchange(&end);
	if (peer->body)
		peer->body(&end);
	end_close(&end);
}

void peer_start(struct peer *peer, const char *plan, int conns, void (*body)(struct end *end))
{
	*peer = (struct peer){.plan = plan, .conns = conns, .body = body};
	test_pipe_open(&peer->pipe);
	peer->pid = test_spawn(run_peer, peer);
	test_pipe_take(&peer->pipe, TEST_PARENT);
}

void peer_join(struct peer *peer)
{
	test_wait(peer->pid);
	test_pipe_close(&peer->pipe);
}

void end_connect(struct end *end, struct peer *peer, const char *plan)
{
	char address[128];

	*end = (struct end){.pipe = &peer->pipe, .side = TEST_PARENT};
	end_open(end, plan);
	test_recv(end->pipe, end->side, address, sizeof(address));
	for (; end->count < peer->conns; end->count++)
		CHECK_OK(rmr_connect(end->queue, address, PATIENCE_MS, NULL,
				     &end->conns[end->count]));
	end_exchange(end);
}

struct rmr_work end_work(struct end *end, enum rmr_op op, size_t at, size_t length, uint64_t offset)
{
	return (struct rmr_work){.op = op,
				 .local = end->memory + at,
				 .length = length,
				 .region = end->region,
				 .remote = end->remotes[0],
				 .offset = offset};
}

void end_post(struct end *end, int index, const struct rmr_work *works, int count)
{
	for (int done = 0; done < count;) {
		int taken = rmr_post(end->conns[index], works + done, count - done);

		if (taken < 0)
			TEST_FAIL("rmr_post: %s", rmr_error_message());
		done += taken;
	}
}

struct rmr_completion end_next(struct end *end)
{
	struct rmr_completion completion;

	if (rmr_wait(end->queue, &completion, 1, PATIENCE_MS) != 1)
		TEST_FAIL("no completion within %d ms", PATIENCE_MS);
	return completion;
}

struct rmr_completion end_expect(struct end *end, int index, enum rmr_op op, enum rmr_status status)
{
	struct rmr_completion completion = end_next(end);

	CHECK(completion.conn == end->conns[index]);
	CHECK_EQ(completion.op, op);
	CHECK_STATUS(completion.status, status);
	return completion;
}

void end_do(struct end *end, const struct rmr_work *work)
{
	struct rmr_completion completion;

	end_post(end, 0, work, 1);
	completion = end_expect(end, 0, work->op, RMR_OK);
	CHECK_EQ(completion.cookie, work->cookie);
}
