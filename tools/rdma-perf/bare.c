/*
 * The same on the bare fabric: WRITE_IMM into the other's memory and polling, no more than that.
 * What the easy library gives besides (rings, credit, callbacks, a thread) is not here: this is
 * what it is measured against.
 *
 * Both sides have an area of AREA bytes that the other writes, and exchange descriptors by SEND. An
 * immediate of ECHO asks for an answer, one of COUNT for none, one of REPORT for one at the end.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "perf.h"

enum { ECHO = 1, REPORT = 2, COUNT = 3 };

#define AREA	 (1u << 20) /* as large as the easy library's ring */
#define DEPTH	 128u
#define SIGNALED 32 /* one in so many */
#define BATCH	 16 /* small ones for one doorbell */
#define LOOK	 64
#define WAIT_MS	 10000

struct bare {
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct rmr_arena *arena;
	struct rmr_region *region; /* what the other writes */
	uint8_t *source;
	struct rmr_region *source_region;
	struct rmr_remote *remote;
	size_t size, max_inline;
	uint32_t at; /* messages since the beginning */
};

static int check(int result)
{
	if (result < 0)
		errx(1, "%s", rmr_error_message());
	return result;
}

static void open_bare(struct bare *bare, const struct perf_side *side)
{
	*bare = (struct bare){.size = side->size};
	check(rmr_device_open(side->config->device, NULL, &bare->device));
	check(rmr_queue_open(bare->device, &(struct rmr_queue_options){.recv_slots = 256},
			     &bare->queue));
	check(rmr_arena_open(AREA, RMR_ARENA_PEERS_WRITE, &bare->arena));
	check(rmr_region_open(bare->device, rmr_arena_base(bare->arena), AREA, RMR_WRITE,
			      &bare->region));
	bare->source = aligned_alloc(4096, AREA);
	if (!bare->source)
		errx(1, "no memory");
	memset(bare->source, 1, AREA);
	check(rmr_region_open(bare->device, bare->source, AREA, 0, &bare->source_region));
	bare->max_inline = rmr_device_info(bare->device)->max_inline;
}

/* Spins until something comes; `awaited` and nothing else is expected. */
static struct rmr_completion next(struct bare *bare)
{
	struct rmr_completion completion;

	while (rmr_poll(bare->queue, &completion, 1) == 0)
		;
	if (completion.status != RMR_OK || completion.op == RMR_OP_DISCONNECT)
		errx(1, "lost: %s", rmr_status_text(completion.status));
	return completion;
}

static void exchange(struct bare *bare)
{
	struct rmr_descriptor mine;
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_INLINE | RMR_UNSIGNALED,
				.source = &mine,
				.length = sizeof(mine)};
	struct rmr_completion completion;

	check(rmr_region_export(bare->region, bare->conn, &mine));
	check(rmr_post(bare->conn, &work, 1));
	completion = next(bare);
	check(rmr_remote_open(bare->conn, completion.data, &bare->remote));
	rmr_recv_release(bare->queue, completion.data);
}

static void accept_one(struct bare *bare, struct perf_side *side)
{
	const struct perf_config *config = side->config;
	struct rmr_listener *listener;
	struct rmr_request *request;
	char address[128];

	snprintf(address, sizeof(address), "%s:0", config->host ? config->host : "127.0.0.1");
	if (strstr(config->device, "shm"))
		snprintf(address, sizeof(address), "rdma-perf-%d", (int)getpid());
	check(rmr_listener_open(bare->device, address, NULL, &listener));
	pair_ready(side, rmr_listener_address(listener));
	check(rmr_listener_next(listener, WAIT_MS, &request));
	check(rmr_accept(request, bare->queue, &(struct rmr_conn_options){.depth = DEPTH},
			 &bare->conn));
	exchange(bare);
	rmr_listener_close(listener);
}

static void connect_to(struct bare *bare, struct perf_side *side)
{
	open_bare(bare, side);
	check(rmr_connect(bare->queue, side->address, WAIT_MS,
			  &(struct rmr_conn_options){.depth = DEPTH}, &bare->conn));
	exchange(bare);
}

/* Writes one message; each to the place behind the one before. Waits for room, if need be. */
static void post(struct bare *bare, uint32_t immediate, size_t length, unsigned flags)
{
	size_t place = (length + 63) & ~(size_t)63;
	size_t offset = bare->at++ % (AREA / place) * place;
	struct rmr_work work = {.op = RMR_OP_WRITE_IMM,
				.flags = flags,
				.source = bare->source, /* the same one each time, as ours */
				.region = bare->source_region,
				.length = length,
				.remote = bare->remote,
				.offset = offset,
				.immediate = immediate};

	if (length <= bare->max_inline)
		work.flags |= RMR_INLINE;
	if (bare->at % SIGNALED)
		work.flags |= RMR_UNSIGNALED;
	while (check(rmr_post(bare->conn, &work, 1)) == 0) {
		struct rmr_completion completions[32];

		rmr_poll(bare->queue, completions, 32);
	}
}

/* ------------------------------------------------------------------------------------------
 * Servers
 */

void bare_serve(struct perf_side *side)
{
	struct bare bare;
	volatile uint8_t *area;
	uint64_t sum = 0, at = 0;
	size_t place = (side->size + 63) & ~(size_t)63;

	open_bare(&bare, side);
	accept_one(&bare, side);
	area = rmr_arena_base(bare.arena);
	for (;;) {
		struct rmr_completion completions[32];
		int count = rmr_poll(bare.queue, completions, 32);

		for (int i = 0; i < count; i++) {
			if (completions[i].op == RMR_OP_DISCONNECT)
				return;
			if (completions[i].op != RMR_OP_RECV_IMM)
				continue;
			sum += area[at++ % (AREA / place) * place];
			if (completions[i].immediate != COUNT)
				post(&bare, completions[i].immediate, side->size, 0);
		}
	}
}

static void say(struct bare *bare, size_t length)
{
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_UNSIGNALED,
				.source = bare->source,
				.region = bare->source_region,
				.length = length};

	if (length <= bare->max_inline)
		work.flags |= RMR_INLINE;
	if (check(rmr_post(bare->conn, &work, 1)) == 0)
		errx(1, "no room");
}

void bare_serve_send(struct perf_side *side)
{
	struct bare bare;

	open_bare(&bare, side);
	accept_one(&bare, side);
	for (;;) {
		struct rmr_completion completion;

		if (rmr_poll(bare.queue, &completion, 1) == 0)
			continue;
		if (completion.op != RMR_OP_RECV)
			return;
		rmr_recv_release(bare.queue, completion.data);
		say(&bare, side->size);
	}
}

/* ------------------------------------------------------------------------------------------
 * Clients
 */

static bool is_time_over(const struct perf_side *side, uint64_t begin_ns)
{
	return clock_now_ns() - begin_ns >= (uint64_t)(side->config->seconds * 1e9);
}

static void await_imm(struct bare *bare)
{
	while (next(bare).op != RMR_OP_RECV_IMM)
		;
}

double bare_round_trip(struct perf_side *side)
{
	struct bare bare;
	volatile uint8_t *area;
	uint64_t begin_ns, count = 0, sum = 0;
	size_t place = (side->size + 63) & ~(size_t)63;

	connect_to(&bare, side);
	area = rmr_arena_base(bare.arena);
	begin_ns = clock_now_ns();
	do {
		post(&bare, ECHO, side->size, 0);
		await_imm(&bare);
		sum += area[count % (AREA / place) * place];
	} while (++count % LOOK || !is_time_over(side, begin_ns));
	return (double)(clock_now_ns() - begin_ns) / (double)count;
}

double bare_round_trip_send(struct perf_side *side)
{
	struct bare bare;
	uint64_t begin_ns, count = 0;

	connect_to(&bare, side);
	begin_ns = clock_now_ns();
	do {
		struct rmr_completion completion;

		say(&bare, side->size);
		do
			completion = next(&bare);
		while (completion.op != RMR_OP_RECV);
		rmr_recv_release(bare.queue, completion.data);
	} while (++count % LOOK || !is_time_over(side, begin_ns));
	return (double)(clock_now_ns() - begin_ns) / (double)count;
}

double bare_stream(struct perf_side *side)
{
	struct bare bare;
	uint64_t begin_ns, count = 0;
	unsigned batch = side->size > 4096 ? 1 : BATCH;

	connect_to(&bare, side);
	begin_ns = clock_now_ns();
	do
		post(&bare, COUNT, side->size, (count + 1) % batch ? RMR_MORE : 0);
	while ((++count % LOOK && side->size <= 4096) || !is_time_over(side, begin_ns));
	post(&bare, REPORT, side->size, 0);
	await_imm(&bare);
	return (double)count * 1e9 / (double)(clock_now_ns() - begin_ns);
}

double bare_bandwidth(struct perf_side *side)
{
	return bare_stream(side) * (double)side->size;
}
