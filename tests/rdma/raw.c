/* A peer that speaks the fabric itself: see raw.h. */
#include "raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rdma/address.h"

void raw_open(struct raw *raw)
{
	*raw = (struct raw){0};
	setup_address(); /* the directory of shm */
	CHECK_OK(rmr_device_open(setup.device, NULL, &raw->device));
	CHECK_OK(rmr_queue_open(raw->device, NULL, &raw->queue));
	CHECK_OK(rmr_arena_open(RAW_RING, RMR_ARENA_PEERS_WRITE, &raw->arena));
	raw->ring = rmr_arena_base(raw->arena);
	CHECK_OK(rmr_region_open(raw->device, raw->ring, RAW_RING, RMR_READ | RMR_WRITE,
				 &raw->region));
}

void raw_close(struct raw *raw)
{
	rmr_conn_close(raw->conn);
	rmr_listener_close(raw->listener);
	rmr_queue_close(raw->queue);
	rmr_region_close(raw->region);
	rmr_arena_close(raw->arena);
	rmr_device_close(raw->device);
}

static void fill_hello(struct raw *raw)
{
	raw->mine = (struct wire_hello){
		.magic = WIRE_MAGIC, .version = WIRE_VERSION, .ring_size = RAW_RING};
	CHECK_OK(rmr_region_export(raw->region, raw->conn, &raw->mine.ring));
	raw->filled = 0;
	raw->sequence = 0;
}

void raw_connect(struct raw *raw, const struct server *server)
{
	struct wire_introduction introduction = {WIRE_MAGIC, WIRE_VERSION};
	struct rmr_conn_options options = {.private_data = &introduction,
					   .private_length = sizeof(introduction)};
	struct address_list list;

	CHECK_OK(address_find(setup_address(), server->port, ADDRESS_CONNECT, &list));
	CHECK_OK(rmr_connect(raw->queue, list.at[0].address, PATIENCE_MS, &options, &raw->conn));
	fill_hello(raw);
}

void raw_send(struct raw *raw, const void *data, size_t length)
{
	struct rmr_work work = {.op = RMR_OP_SEND, .length = length, .region = raw->region};

	/* From the end of our own ring, which nobody writes there as long as no test wraps it. */
	work.source = raw->ring + RAW_RING - 1024;
	CHECK(length <= 1024);
	memcpy(raw->ring + RAW_RING - 1024, data, length);
	CHECK_EQ(rmr_post(raw->conn, &work, 1), 1);
}

void raw_greet(struct raw *raw)
{
	struct rmr_completion completion;

	raw_send(raw, &raw->mine, sizeof(raw->mine));
	do
		CHECK_EQ(rmr_wait(raw->queue, &completion, 1, PATIENCE_MS), 1);
	while (completion.op == RMR_OP_SEND);
	CHECK_EQ(completion.op, RMR_OP_RECV);
	CHECK_EQ(completion.length, sizeof(raw->theirs));
	memcpy(&raw->theirs, completion.data, sizeof(raw->theirs));
	rmr_recv_release(raw->queue, completion.data);
	CHECK_OK(rmr_remote_open(raw->conn, &raw->theirs.ring, &raw->remote));
}

void raw_immediate(struct raw *raw, uint32_t immediate)
{
	struct rmr_work work = {
		.op = RMR_OP_WRITE_IMM, .remote = raw->remote, .immediate = immediate};
	int posted = rmr_post(raw->conn, &work, 1);

	CHECK(posted == 1 || posted == RMR_DISCONNECTED); /* by the one before, already */
}

struct wire_record raw_record(struct raw *raw, enum wire_kind kind, uint32_t length)
{
	return (struct wire_record){
		.length = length, .kind = (uint16_t)kind, .sequence = raw->sequence++};
}

void raw_write(struct raw *raw, const void *data, size_t length, size_t announced)
{
	uint64_t offset = raw->filled % raw->theirs.ring_size;
	struct rmr_work work = {.op = RMR_OP_WRITE,
				.source = raw->ring + RAW_RING - 1024,
				.length = length,
				.region = raw->region,
				.remote = raw->remote,
				.offset = offset};

	CHECK(length <= 1024);
	memcpy(raw->ring + RAW_RING - 1024, data, length);
	CHECK_EQ(rmr_post(raw->conn, &work, 1), 1);
	raw->filled += announced;
	raw_immediate(raw, (uint32_t)(raw->filled % raw->theirs.ring_size / WIRE_UNIT));
}

void raw_expect_end(struct raw *raw)
{
	struct rmr_completion completion = {0};

	while (completion.op != RMR_OP_DISCONNECT) {
		if (rmr_wait(raw->queue, &completion, 1, PATIENCE_MS) == 0)
			TEST_FAIL("the connection goes on");
		if (completion.op == RMR_OP_RECV && completion.status == RMR_OK)
			rmr_recv_release(raw->queue, completion.data);
	}
	rmr_conn_close(raw->conn);
	raw->conn = NULL;
}

int raw_listen(struct raw *raw)
{
	char address[128];

	if (setup_is_shm()) {
		CHECK_OK(rmr_listener_open(raw->device, "rdma-77", NULL, &raw->listener));
		return 77;
	}
	snprintf(address, sizeof(address), "%s:0", setup.host ? setup.host : "127.0.0.1");
	CHECK_OK(rmr_listener_open(raw->device, address, NULL, &raw->listener));
	return atoi(strrchr(rmr_listener_address(raw->listener), ':') + 1);
}

void raw_accept(struct raw *raw)
{
	struct rmr_request *request;

	CHECK_OK(rmr_listener_next(raw->listener, PATIENCE_MS, &request));
	CHECK_OK(rmr_accept(request, raw->queue, NULL, &raw->conn));
	fill_hello(raw);
}
