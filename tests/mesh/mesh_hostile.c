/*
 * Peers that lie: in their introduction, their hello, their slots and their credits.
 *
 * 0 and 2 are a mesh that waits for 1 and talks meanwhile. The test itself is 1, on the bare
 * fabric. Whatever it does costs it its connection and nobody else anything: 0 and 2 go on
 * talking, and in the end a proper 1 is let in.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "fixture.h"
#include "rdma/mesh/wire.h"

#define DEPTH	     8u
#define MESSAGE	     100u
#define SLOT	     (MESH_SLOT_HEAD + 128)
#define RING	     (DEPTH * SLOT)
#define MEMORY	     4096u
#define VICTIM_PLACE 0

struct view {
	atomic_ullong talk, ups, downs, messages;
	atomic_int down_status;
	atomic_bool is_over;
};

static struct view *view;

/* ------------------------------------------------------------------------------------------
 * The mesh
 */
static void watch(struct member *member, const struct rmr_mesh_event *event)
{
	if (event->peer != 1) {
		CHECK(event->status == RMR_OK || event->opcode <= RMR_MESH_READ ||
		      atomic_load(&view->is_over));
		return;
	}
	if (member->id != VICTIM_PLACE)
		return;
	if (event->opcode == RMR_MESH_DOWN) {
		atomic_store(&view->down_status, event->status);
		atomic_fetch_add(&view->downs, 1);
	} else if (event->opcode == RMR_MESH_UP) {
		atomic_fetch_add(&view->ups, 1);
	} else if (event->opcode == RMR_MESH_RECV) {
		CHECK(event->length <= MESSAGE);
		atomic_fetch_add(&view->messages, 1);
	} else {
		CHECK(event->opcode == RMR_MESH_SEND);
	}
}

static void victim_role(struct member *member)
{
	struct rmr_mesh_options options = {.depth = DEPTH,
					   .message_size = MESSAGE,
					   .memory_size = MEMORY,
					   .dead_after_ms = 1000 * (int)TEST_TIME_FACTOR};
	int other = 2 - member->id;

	member->on_event = watch;
	member_open(member, &options);
	CHECK_STATUS(rmr_mesh_connect(member->mesh, 300 * (int)TEST_TIME_FACTOR), RMR_TIMEOUT);
	CHECK(rmr_mesh_is_up(member->mesh, other));
	while (!atomic_load(&view->is_over)) {
		(void)!rmr_mesh_post_send(member->mesh, "talk", 4, other, 0);
		/* The peer is to see that credits are used. */
		if (rmr_mesh_is_up(member->mesh, 1))
			(void)!rmr_mesh_post_send(member->mesh, "talk", 4, 1, 0);
		CHECK(rmr_mesh_wait(member->mesh, 5) >= 0);
		if (member->id == VICTIM_PLACE)
			atomic_store(&view->talk, member->from[other]);
	}
	member_close(member);
}

/* The two others are as well as before. */
static void check_talk(void)
{
	uint64_t before = atomic_load(&view->talk), deadline_ns = clock_deadline_ns(PATIENCE_MS);

	while (atomic_load(&view->talk) < before + 3) {
		CHECK(!clock_passed(deadline_ns));
		test_sleep_ms(1);
	}
}

static void await_view(atomic_ullong *count, uint64_t wanted, const char *what)
{
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);

	while (atomic_load(count) < wanted) {
		if (clock_passed(deadline_ns))
			TEST_FAIL("%s: %llu instead of %llu", what, atomic_load(count),
				  (unsigned long long)wanted);
		test_sleep_ms(1);
	}
}

/* ------------------------------------------------------------------------------------------
 * The liar
 */
struct raw {
	struct rmr_device *device;
	struct rmr_queue *queue;
	struct rmr_conn *conn;
	struct rmr_arena *arena;
	struct rmr_region *region;
	struct rmr_remote *ring;
	struct mesh_hello theirs;
	char address[256];
};

static void raw_open(struct raw *raw, const char *hosts, int place)
{
	char list[CREW_MAX * 128], *at = list, *entry = NULL;
	bool is_shm = strstr(fixture.device, "shm") != NULL;

	memset(raw, 0, sizeof(*raw));
	snprintf(list, sizeof(list), "%s", hosts);
	for (int i = 0; i <= place; i++)
		entry = strsep(&at, ",");
	snprintf(raw->address, sizeof(raw->address), is_shm ? "%s-0" : "%s", entry);
	CHECK_OK(rmr_device_open(fixture.device, NULL, &raw->device));
	CHECK_OK(rmr_arena_open(2 * RING, RMR_ARENA_PEERS_WRITE, &raw->arena));
	CHECK_OK(rmr_region_open(raw->device, rmr_arena_base(raw->arena), 2 * RING, RMR_WRITE,
				 &raw->region));
	CHECK_OK(rmr_queue_open(raw->device, NULL, &raw->queue));
}

static void raw_close(struct raw *raw)
{
	rmr_conn_close(raw->conn);
	rmr_queue_close(raw->queue);
	rmr_region_close(raw->region);
	rmr_arena_close(raw->arena);
	rmr_device_close(raw->device);
}

static struct mesh_introduction right_introduction(int to)
{
	return (struct mesh_introduction){.magic = MESH_MAGIC,
					  .version = MESH_VERSION,
					  .hosts = 3,
					  .from = 1,
					  .to = (uint16_t)to,
					  .depth = DEPTH,
					  .message_size = MESSAGE};
}

static enum rmr_status raw_connect(struct raw *raw, const void *introduction, size_t length)
{
	struct rmr_conn_options options = {.private_data = introduction, .private_length = length};

	return rmr_connect(raw->queue, raw->address, PATIENCE_MS, &options, &raw->conn);
}

static void raw_send(struct raw *raw, const void *data, size_t length)
{
	char *copy = (char *)rmr_arena_base(raw->arena) + RING;
	struct rmr_work work = {.op = RMR_OP_SEND,
				.flags = RMR_UNSIGNALED,
				.source = copy,
				.length = length,
				.region = raw->region};

	memcpy(copy, data, length);
	CHECK_EQ(rmr_post(raw->conn, &work, 1), 1);
}

static struct mesh_hello right_hello(struct raw *raw)
{
	struct mesh_hello hello = {.magic = MESH_MAGIC};

	CHECK_OK(rmr_region_export(raw->region, raw->conn, &hello.ring));
	return hello;
}

static struct rmr_completion raw_next(struct raw *raw)
{
	struct rmr_completion c = {0};

	CHECK_EQ(rmr_wait(raw->queue, &c, 1, PATIENCE_MS), 1);
	return c;
}

static void raw_hear(struct raw *raw)
{
	struct rmr_completion c = raw_next(raw);

	CHECK_EQ(c.op, RMR_OP_RECV);
	CHECK_EQ(c.length, sizeof(raw->theirs));
	memcpy(&raw->theirs, c.data, sizeof(raw->theirs));
	rmr_recv_release(raw->queue, c.data);
	CHECK_OK(rmr_remote_open(raw->conn, &raw->theirs.ring, &raw->ring));
}

/* Is a peer in good standing now. */
static void raw_join(struct raw *raw)
{
	struct mesh_introduction introduction = right_introduction(VICTIM_PLACE);
	uint64_t ups = atomic_load(&view->ups);
	struct mesh_hello hello;

	CHECK_OK(raw_connect(raw, &introduction, sizeof(introduction)));
	hello = right_hello(raw);
	raw_send(raw, &hello, sizeof(hello));
	raw_hear(raw);
	await_view(&view->ups, ups + 1, "UP");
}

static void raw_slot(struct raw *raw, uint32_t slot, uint32_t immediate,
		     const struct mesh_header *header, const void *payload, size_t length)
{
	char *copy = (char *)rmr_arena_base(raw->arena) + RING;
	struct mesh_header numbered = *header;
	struct rmr_work work = {.op = RMR_OP_WRITE_IMM,
				.flags = RMR_UNSIGNALED,
				.source = copy,
				.length = sizeof(*header) + length,
				.region = raw->region,
				.remote = raw->ring,
				.offset = slot * SLOT + MESH_HEADER_AT,
				.immediate = immediate};

	numbered.kind += slot << MESH_SEQUENCE_SHIFT;
	memcpy(copy, &numbered, sizeof(numbered));
	memcpy(copy + sizeof(*header), payload, length);
	if (rmr_post(raw->conn, &work, 1) == 1)
		test_sleep_ms(2); /* the copy is taken by then, or the connection is lost */
}

/* Waits for the end of the connection. */
static void raw_await_end(struct raw *raw)
{
	struct rmr_completion c;

	do {
		c = raw_next(raw);
		if (c.op == RMR_OP_RECV)
			rmr_recv_release(raw->queue, c.data);
	} while (c.op != RMR_OP_DISCONNECT);
}

/* ------------------------------------------------------------------------------------------
 * Lies
 */
static void lie_in_introduction(const char *hosts)
{
	struct mesh_introduction lies[10];
	struct raw raw;

	for (size_t i = 0; i < TEST_COUNT(lies); i++)
		lies[i] = right_introduction(VICTIM_PLACE);
	lies[0].magic++;
	lies[1].version++;
	lies[2].hosts++;
	lies[3].from = 0; /* the victim itself */
	lies[4].from = 3;
	lies[5].from = 65535;
	lies[6].to = 1;
	lies[7].thread = 1;
	lies[8].depth = 1u << 31;
	lies[9].message_size = UINT32_MAX;
	raw_open(&raw, hosts, VICTIM_PLACE);
	for (size_t i = 0; i < TEST_COUNT(lies); i++) {
		CHECK_STATUS(raw_connect(&raw, &lies[i], sizeof(lies[i])), RMR_REFUSED);
		CHECK_CONTAINS(rmr_error_message(), MESH_REFUSAL);
	}
	CHECK_STATUS(raw_connect(&raw, NULL, 0), RMR_REFUSED);
	CHECK_STATUS(raw_connect(&raw, &lies[0], 7), RMR_REFUSED);
	raw_close(&raw);
	check_talk();
}

static void lie_in_hello(const char *hosts)
{
	for (int lie = 0; lie < 8; lie++) {
		struct mesh_introduction introduction = right_introduction(VICTIM_PLACE);
		size_t length = sizeof(struct mesh_hello);
		struct mesh_hello hello;
		struct rmr_region *small = NULL;
		struct raw raw;

		raw_open(&raw, hosts, VICTIM_PLACE);
		CHECK_OK(raw_connect(&raw, &introduction, sizeof(introduction)));
		hello = right_hello(&raw);
		switch (lie) {
		case 0:
			hello.magic++;
			break;
		case 1:
			length--;
			break;
		case 2:
			length = 0;
			break;
		case 3:
			memset(&hello.ring, 0xee, sizeof(hello.ring));
			break;
		case 4: /* memory that is not there */
			hello.has_memory = 1;
			hello.memory_size = 1 << 20;
			break;
		case 5: /* memory that is larger than it is, and wraps around */
			hello.has_memory = 1;
			hello.memory = hello.ring;
			hello.memory_size = UINT64_MAX;
			hello.memory_address = 4096;
			break;
		case 6:
			hello.has_memory = 2;
			break;
		default: /* a ring that is too short */
			CHECK_OK(rmr_region_open(raw.device, rmr_arena_base(raw.arena), RING - 1,
						 RMR_WRITE, &small));
			CHECK_OK(rmr_region_export(small, raw.conn, &hello.ring));
			break;
		}
		raw_send(&raw, &hello, length);
		raw_await_end(&raw);
		rmr_region_close(small);
		raw_close(&raw);
		CHECK_EQ(atomic_load(&view->ups), 0);
	}
	check_talk();
}

/* Says nothing. It is in nobody's way, and another one that speaks is let in before it. */
static void be_silent(const char *hosts)
{
	struct mesh_introduction introduction = right_introduction(VICTIM_PLACE);
	struct raw silent, second;

	raw_open(&silent, hosts, VICTIM_PLACE);
	CHECK_OK(raw_connect(&silent, &introduction, sizeof(introduction)));
	check_talk();
	raw_open(&second, hosts, VICTIM_PLACE);
	raw_join(&second);
	raw_await_end(&silent);
	raw_close(&silent);
	raw_close(&second);
	await_view(&view->downs, 1, "DOWN");
	/* And for ever: it is dropped. */
	raw_open(&silent, hosts, VICTIM_PLACE);
	CHECK_OK(raw_connect(&silent, &introduction, sizeof(introduction)));
	raw_await_end(&silent);
	raw_close(&silent);
	check_talk();
}

static void tell_lie(struct raw *raw, int lie)
{
	struct mesh_header header = {.length = 4, .kind = MESH_KIND_MESSAGE};
	struct mesh_written written = {.offset = MEMORY - 4, .length = 5};
	char payload[128] = "lie";
	uint32_t immediate = 0, slot = 0;
	size_t length = 4;

	switch (lie) {
	case 0: /* out of turn */
		immediate = slot = 1;
		break;
	case 1: /* no slot at all */
		immediate = DEPTH;
		break;
	case 2:
		immediate = 0x7fffffff;
		break;
	case 3:
		header.length = MESSAGE + 1;
		break;
	case 4:
		header.length = UINT32_MAX;
		break;
	case 5:
		header.kind = 99;
		break;
	case 6: /* more than was ever sent */
		header.kind |= MESH_KIND_CREDITED;
		header.consumed = 100000;
		break;
	case 7:
		immediate = MESH_IMM_CREDIT | 100000;
		break;
	case 8: /* fewer than before */
		immediate = MESH_IMM_CREDIT | MESH_COUNTER_MASK;
		break;
	case 9: /* written beyond the memory */
		header = (struct mesh_header){
			.length = sizeof(written), .kind = MESH_KIND_WRITTEN, .immediate = 1};
		memcpy(payload, &written, sizeof(written));
		length = sizeof(written);
		break;
	case 10:
		written.offset = UINT64_MAX - 2;
		header = (struct mesh_header){
			.length = sizeof(written), .kind = MESH_KIND_WRITTEN, .immediate = 1};
		memcpy(payload, &written, sizeof(written));
		length = sizeof(written);
		break;
	case 11:
		header = (struct mesh_header){.length = 1, .kind = MESH_KIND_TERMINATE};
		break;
	case 12: /* one of another lap */
		header.kind |= 8u << MESH_SEQUENCE_SHIFT;
		break;
	default: /* hello again */
		raw_send(raw, &raw->theirs, sizeof(raw->theirs));
		return;
	}
	raw_slot(raw, slot, immediate, &header, payload, length);
}

#define LIES 14

static void lie_in_slots(const char *hosts)
{
	uint64_t messages = atomic_load(&view->messages);

	for (int lie = 0; lie < LIES; lie++) {
		uint64_t downs = atomic_load(&view->downs);
		struct raw raw;

		raw_open(&raw, hosts, VICTIM_PLACE);
		raw_join(&raw);
		tell_lie(&raw, lie);
		raw_await_end(&raw);
		raw_close(&raw);
		await_view(&view->downs, downs + 1, "DOWN");
		CHECK_EQ(atomic_load(&view->down_status), RMR_PROTOCOL);
	}
	CHECK_EQ(atomic_load(&view->messages), messages); /* none of it was believed */
	check_talk();
}

/* The truth, in the end: messages arrive. */
static void tell_truth(const char *hosts)
{
	struct mesh_header header = {.length = MESSAGE, .kind = MESH_KIND_MESSAGE};
	uint64_t messages = atomic_load(&view->messages);
	char payload[MESSAGE] = "true";
	struct raw raw;

	raw_open(&raw, hosts, VICTIM_PLACE);
	raw_join(&raw);
	for (uint32_t i = 0; i < DEPTH; i++)
		raw_slot(&raw, i, i, &header, payload, MESSAGE);
	await_view(&view->messages, messages + DEPTH, "messages");
	raw_close(&raw);
	check_talk();
}

static void test_lies(void)
{
	struct crew crew;

	view = mmap(NULL, sizeof(*view), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(view != MAP_FAILED);
	crew_make(&crew, 3);
	crew_spawn(&crew, 0, victim_role, NULL);
	crew_spawn(&crew, 2, victim_role, NULL);
	await_view(&view->talk, 1, "talk");
	lie_in_introduction(crew.hosts);
	lie_in_hello(crew.hosts);
	be_silent(crew.hosts);
	lie_in_slots(crew.hosts);
	tell_truth(crew.hosts);
	atomic_store(&view->is_over, true);
	crew_join(&crew);
}

/* ------------------------------------------------------------------------------------------
 * Whoever is called lies, too
 */
struct answer {
	bool is_stranger;
	bool hangs_up;
};

/* 1 calls 0, which is the liar. */
static void caller_role(struct member *member)
{
	const struct answer *answer = member->arg;
	struct rmr_mesh_options options = {.depth = DEPTH, .message_size = MESSAGE};
	enum rmr_status status;

	member_open(member, &options);
	member_meet(member);
	status = rmr_mesh_connect(member->mesh, 300 * (int)TEST_TIME_FACTOR);
	CHECK_STATUS(status, answer->is_stranger ? RMR_PROTOCOL : RMR_TIMEOUT);
	if (!answer->is_stranger)
		CHECK_CONTAINS(rmr_error_message(), "0 at");
	CHECK_EQ(rmr_mesh_post_send(member->mesh, NULL, 0, 0, 0), RMR_DISCONNECTED);
	test_signal(&member->pipe, TEST_CHILD);
	member_close(member);
}

static void answer_calls(struct raw *raw, const struct answer *answer, struct test_pipe *pipe)
{
	struct rmr_listener *listener;
	struct rmr_request *request;
	struct mesh_introduction introduction = right_introduction(1);
	struct rmr_conn_options options = {.private_data = &introduction,
					   .private_length = sizeof(introduction)};

	introduction.hosts = 2;
	introduction.from = 0;
	if (answer->is_stranger)
		options.private_length = 5;
	CHECK_OK(rmr_listener_open(raw->device, raw->address, NULL, &listener));
	test_signal(pipe, TEST_PARENT);
	CHECK_OK(rmr_listener_next(listener, PATIENCE_MS, &request));
	CHECK_OK(rmr_accept(request, raw->queue, &options, &raw->conn));
	if (answer->hangs_up) {
		rmr_conn_close(raw->conn);
		raw->conn = NULL;
	} else if (!answer->is_stranger) {
		raw_send(raw, "this is no hello", 16);
	}
	rmr_listener_close(listener);
}

static void test_liar_called(void)
{
	static const struct answer answers[] = {
		{.is_stranger = true}, {.hangs_up = true}, {.hangs_up = false}};

	for (size_t i = 0; i < TEST_COUNT(answers); i++) {
		struct crew crew;
		struct raw raw;

		crew_make(&crew, 2);
		crew_spawn(&crew, 1, caller_role, (void *)(uintptr_t)&answers[i]);
		test_await(&crew.members[1].pipe, TEST_PARENT);
		raw_open(&raw, crew.hosts, 0);
		answer_calls(&raw, &answers[i], &crew.members[1].pipe);
		test_await(&crew.members[1].pipe, TEST_PARENT);
		raw_close(&raw);
		crew_join(&crew);
	}
}

const struct test hostile_tests[] = {
	{"hostile_caller", test_lies, 0, 120},
	{"hostile_listener", test_liar_called},
	{NULL},
};
