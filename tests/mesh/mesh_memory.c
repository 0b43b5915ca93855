/*
 * Remote memory: by offset and by address, with and without an immediate, in bounds and out of
 * them.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fixture.h"

#define SIZE (MIB / 2)

struct shape {
	bool is_own; /* memory of the program's own, not made by the mesh */
	bool by_address;
};

static void memory_open(struct member *member, const struct shape *shape)
{
	struct rmr_mesh_options options = {.memory_size = SIZE, .depth = 32, .batch = 4};

	if (shape->is_own) {
		options.memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(options.memory != MAP_FAILED);
	}
	member_open(member, &options);
	CHECK_EQ(rmr_mesh_memory_size(member->mesh), SIZE);
	CHECK(!shape->is_own || rmr_mesh_memory(member->mesh) == options.memory);
	member_connect(member);
}

/* A place of the peer's memory, as the shape has it. */
static uint64_t place(const struct shape *shape, uint64_t base, uint64_t offset)
{
	return shape->by_address ? base + offset : offset;
}

static void expect(struct member *member, enum rmr_mesh_opcode opcode, int64_t work)
{
	uint64_t before = member->seen[opcode];

	if (work <= 0)
		TEST_FAIL("post: %s", rmr_error_message());
	rmr_mesh_flush_all(member->mesh);
	UNTIL(member, member->seen[opcode] > before || member->failed);
	CHECK_EQ(member->failed, 0);
	CHECK_EQ(member->last.work, work);
}

/* 0 writes what 1 has to find, and reads it back. */
static void write_and_read(struct member *member, const struct shape *shape, uint64_t base)
{
	enum rmr_mesh_where where = shape->by_address ? RMR_MESH_ADDRESS : RMR_MESH_OFFSET;
	static const size_t sizes[] = {1, 8, 100, 4096, 100000, SIZE / 4};
	char *memory = rmr_mesh_memory(member->mesh);
	struct rmr_mesh *mesh = member->mesh;
	char *slot;

	for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
		size_t size = sizes[i];
		uint64_t far = SIZE - size - i;

		pattern_fill(memory, size, i);
		expect(member, RMR_MESH_WRITE,
		       rmr_mesh_post_write(mesh, memory, size, 1, place(shape, base, far), where,
					   0));
		CHECK(member->last.data == memory);
		CHECK_EQ(member->last.length, size);
		expect(member, RMR_MESH_READ,
		       rmr_mesh_post_read(mesh, memory + SIZE / 2, size, 1, place(shape, base, far),
					  where));
		CHECK(member->last.data == memory + SIZE / 2);
		pattern_check(memory + SIZE / 2, size, i);
	}
	/* From a slot, which is used up by it. */
	slot = rmr_mesh_get_send_buf(mesh, 1);
	CHECK(slot != NULL);
	pattern_fill(slot, 500, 50);
	expect(member, RMR_MESH_WRITE,
	       rmr_mesh_post_write(mesh, slot, 500, 1, place(shape, base, 0), where, 0));
	expect(member, RMR_MESH_READ,
	       rmr_mesh_post_read(mesh, memory, 500, 1, place(shape, base, 0), where));
	pattern_check(memory, 500, 50);
	expect(member, RMR_MESH_WRITE,
	       rmr_mesh_post_write(mesh, NULL, 0, 1, place(shape, base, SIZE), where, 0));
}

static void refuse(struct member *member, uint64_t base)
{
	struct rmr_mesh *mesh = member->mesh;
	char *memory = rmr_mesh_memory(mesh), other[16];
	struct rmr_mesh_stats before, after;

	rmr_mesh_get_stats(mesh, &before);
	CHECK_EQ(rmr_mesh_post_write(mesh, memory, 2, 1, SIZE - 1, RMR_MESH_OFFSET, 0), RMR_ACCESS);
	CHECK_CONTAINS(rmr_error_message(), "offset");
	CHECK_EQ(rmr_mesh_post_write(mesh, memory, 1, 1, SIZE, RMR_MESH_OFFSET, 1), RMR_ACCESS);
	CHECK_EQ(rmr_mesh_post_read(mesh, memory, 1, 1, UINT64_MAX, RMR_MESH_OFFSET), RMR_ACCESS);
	CHECK_EQ(rmr_mesh_post_read(mesh, memory, SIZE, 1, 1, RMR_MESH_OFFSET), RMR_ACCESS);
	CHECK_EQ(rmr_mesh_post_read(mesh, memory, 1, 1, base - 1, RMR_MESH_ADDRESS), RMR_ACCESS);
	CHECK_EQ(rmr_mesh_post_read(mesh, memory, 1, 1, base + SIZE, RMR_MESH_ADDRESS), RMR_ACCESS);
	CHECK_EQ(rmr_mesh_post_read(mesh, memory, 1, 1, 0, RMR_MESH_ADDRESS), RMR_ACCESS);
	/* Our own end. */
	CHECK_EQ(rmr_mesh_post_read(mesh, other, 1, 1, 0, RMR_MESH_OFFSET), RMR_INVALID);
	CHECK_EQ(rmr_mesh_post_write(mesh, other, 1, 1, 0, RMR_MESH_OFFSET, 0), RMR_INVALID);
	CHECK_EQ(rmr_mesh_post_write(mesh, memory + SIZE - 1, 2, 1, 0, RMR_MESH_OFFSET, 0),
		 RMR_INVALID);
	CHECK_EQ(rmr_mesh_post_write(mesh, memory, 1, 1, 0, (enum rmr_mesh_where)2, 0),
		 RMR_INVALID);
	CHECK_EQ(rmr_mesh_post_read(mesh, rmr_mesh_get_send_buf(mesh, 1), 1, 1, 0, RMR_MESH_OFFSET),
		 RMR_INVALID);
	rmr_mesh_get_stats(mesh, &after);
	CHECK_EQ(after.writes + after.reads, before.writes + before.reads);
	CHECK(rmr_mesh_is_up(mesh, 1)); /* nothing happened */
}

static void check_written(struct member *member, const struct rmr_mesh_event *event)
{
	uint64_t number;

	if (event->opcode != RMR_MESH_WRITE_IMM)
		return;
	number = member->seen[RMR_MESH_WRITE_IMM];
	CHECK_EQ(event->immediate, number);
	CHECK_EQ(event->length, number % 1000);
	CHECK(event->data == (char *)rmr_mesh_memory(member->mesh) + number * 1024);
	pattern_check(event->data, event->length, number);
}

#define NOTES 400u

/* Many writes with an immediate among messages and reads, in batches; all arrive in order. */
static void write_notes(struct member *member)
{
	char *memory = rmr_mesh_memory(member->mesh);
	uint64_t deadline_ns = clock_deadline_ns(PATIENCE_MS);
	int64_t work;

	for (uint64_t i = 1; i <= NOTES; i++) {
		char *source = memory + i * 1024;

		pattern_fill(source, i % 1000, i);
		while ((work = rmr_mesh_post_write(member->mesh, source, i % 1000, 1, i * 1024,
						   RMR_MESH_OFFSET, (uint32_t)i)) == RMR_AGAIN)
			member_wait(member, deadline_ns, "room");
		CHECK(work > 0);
		if (i % 3 == 0)
			member_send(member, 1, "between", 7, 0);
		while (i % 5 == 0 &&
		       rmr_mesh_post_read(member->mesh, memory, 64, 1, 0, RMR_MESH_OFFSET) < 0)
			member_wait(member, deadline_ns, "room");
	}
	UNTIL(member, member->seen[RMR_MESH_WRITE] >= NOTES &&
			      member->seen[RMR_MESH_READ] >= NOTES / 5 &&
			      member->seen[RMR_MESH_SEND] >= NOTES / 3);
	CHECK_EQ(member->failed, 0);
}

/* The first message tells where the other's memory is. */
static void take_base(struct member *member, const struct rmr_mesh_event *event)
{
	if (event->opcode == RMR_MESH_RECV)
		memcpy(member->state, event->data, sizeof(uint64_t));
}

static void memory_role(struct member *member)
{
	static uint64_t base;

	memory_open(member, member->arg);
	if (member->id == 1) {
		base = (uintptr_t)rmr_mesh_memory(member->mesh);
		member_send(member, 0, &base, sizeof(base), 0);
		UNTIL(member, member->seen[RMR_MESH_SEND] == 1);
		/* The program does nothing now: one-sided works go on all the same. */
		member_meet(member);
		member->on_event = check_written;
		UNTIL(member, member->seen[RMR_MESH_WRITE_IMM] == NOTES &&
				      member->seen[RMR_MESH_RECV] == NOTES / 3);
	} else {
		member->state = &base;
		member->on_event = take_base;
		UNTIL(member, member->seen[RMR_MESH_RECV] == 1);
		member->on_event = NULL;
		write_and_read(member, member->arg, base);
		refuse(member, base);
		member_meet(member);
		write_notes(member);
	}
	member_meet(member);
	member_close(member);
}

static void run_memory(bool is_own, bool by_address)
{
	struct shape shape = {.is_own = is_own, .by_address = by_address};
	struct crew crew;

	crew_start(&crew, 2, memory_role, &shape);
	crew_meet(&crew);
	crew_meet(&crew);
	crew_join(&crew);
}

static void test_made(void)
{
	run_memory(false, false);
	run_memory(false, true);
}

static void test_own(void)
{
	run_memory(true, true);
}

/* A process without memory, and one with: only the latter can be written. */
static void lopsided_role(struct member *member)
{
	struct rmr_mesh_options options = {.memory_size = member->id == 0 ? 0 : 4096};

	member_open(member, &options);
	member_connect(member);
	CHECK_EQ(rmr_mesh_memory(member->mesh) == NULL, member->id == 0);
	if (member->id == 0) {
		char *slot = rmr_mesh_get_send_buf(member->mesh, 1);

		CHECK(slot != NULL);
		memcpy(slot, "from a slot", 11);
		CHECK_EQ(rmr_mesh_post_read(member->mesh, slot, 1, 1, 0, RMR_MESH_OFFSET),
			 RMR_INVALID);
		expect(member, RMR_MESH_WRITE,
		       rmr_mesh_post_write(member->mesh, slot, 11, 1, 4085, RMR_MESH_OFFSET, 9));
	} else {
		CHECK_EQ(rmr_mesh_post_write(member->mesh, rmr_mesh_memory(member->mesh), 1, 0, 0,
					     RMR_MESH_OFFSET, 0),
			 RMR_ACCESS);
		CHECK_CONTAINS(rmr_error_message(), "no memory");
		UNTIL(member, member->seen[RMR_MESH_WRITE_IMM] == 1);
		CHECK_MEM((char *)rmr_mesh_memory(member->mesh) + 4085, "from a slot", 11);
	}
	member_meet(member);
	member_close(member);
}

static void test_lopsided(void)
{
	struct crew crew;

	crew_start(&crew, 2, lopsided_role, NULL);
	crew_meet(&crew);
	crew_join(&crew);
}

const struct test memory_tests[] = {
	{"memory_made_by_the_mesh", test_made},
	{"memory_of_the_program", test_own},
	{"memory_on_one_side", test_lopsided},
	{NULL},
};
