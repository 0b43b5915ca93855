/*
 * Many: sixty-four processes in one mesh, each connected to all.
 */
#include "fixture.h"

#define MANY 64

/* Each sends its number to all, and so has the sum of all in the end. */
static void count_in(struct member *member, const struct rmr_mesh_event *event)
{
	uint64_t *sum = member->state;

	if (event->opcode == RMR_MESH_RECV)
		*sum += event->immediate;
}

static void many_role(struct member *member)
{
	struct rmr_mesh_options options = {.depth = 4, .message_size = 64, .batch = 1};
	static uint64_t sum;
	uint64_t expected;

	expected = (uint64_t)member->count * ((uint64_t)member->count - 1) / 2;
	sum = (uint64_t)member->id;
	member->state = &sum;
	member->on_event = count_in;
	member_open(member, &options);
	CHECK_OK(rmr_mesh_connect(member->mesh, test_remaining_ms()));
	for (int i = 0; i < member->count; i++)
		if (i != member->id)
			member_send(member, i, "number", 6, (uint32_t)member->id);
	/* Who has heard all of us leaves; works on the way to it may fail by that, though heard. */
	while (sum != expected ||
	       member->seen[RMR_MESH_SEND] + member->failed < (uint64_t)member->count - 1) {
		CHECK(rmr_mesh_wait(member->mesh, 100) >= 0);
		CHECK(test_remaining_ms() > 0);
	}
	member_close(member);
}

static void test_many(void)
{
	static struct crew crew;

	crew_start(&crew, MANY, many_role, NULL);
	crew_join(&crew);
}

static void test_some(void)
{
	static struct crew crew;

	crew_start(&crew, TEST_TIME_FACTOR > 5 ? 5 : 8, many_role, NULL);
	crew_join(&crew);
}

const struct test many_tests[] = {
	{"many_some_processes", test_some},
	{"many_sixty_four_processes", test_many, TEST_SLOW, 120},
	{NULL},
};
